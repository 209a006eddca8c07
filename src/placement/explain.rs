//! The words: what stood in the way, who holds it, what would make it fit.
//!
//! They are made here for aprun's stderr, for `apstat` and for a log, from the same data that
//! placement decided by.

use super::{Cure, Impossible, NoRoom};
use crate::apteam::Apid;
use crate::apteam::change::NodeOrder;
use crate::apteam::posting::Explanation;
use crate::apteam::shape::Shape;
use crate::machine::{Nid, format_nids, nids_text};
use crate::variables::units::{about, count};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Applications that a sentence names before it counts the others.
pub const NAMED_MAX: usize = 8;
/// Applications that a brief explanation names before it counts the others.
const NAMED_BRIEFLY_MAX: usize = 2;

impl Impossible {
    /// In words.
    pub fn explain(&self) -> Explanation {
        let needs = |shape| match self.short_of_memory {
            Some(bytes) => format!("{} and {} of memory for each PE", needs(shape), about(bytes)),
            None => needs(shape),
        };
        let obstacle = if self.largest_depth == 0 {
            format!("{}; this machine has no application nodes", needs(&self.shape))
        } else if self.largest_width == 0 && self.short_of_memory.is_some() {
            format!("{}; no application node of this machine has that much", needs(&self.shape))
        } else if self.largest_width == 0 {
            format!(
                "{}, with all processors of a PE on one node; the largest application node of \
                 this machine has {}",
                needs(&self.shape),
                self.largest_depth,
            )
        } else {
            // (That its nodes are not neighbours is what is in the way.)
            let together =
                if self.cures.contains(&Cure::Flexible) { " on contiguous nodes" } else { "" };
            format!(
                "{}; this machine can hold at most {} of this shape{together} ({})",
                needs(&self.shape),
                count(self.largest_width, "PE"),
                nids_text(self.largest_nids.iter().copied()),
            )
        };
        let cures: Vec<String> = self.cures.iter().map(|cure| self.cure(*cure)).collect();
        let cure = match &cures[..] {
            [] => "an administrator can give nodes the flavor ap".to_string(),
            [one] => format!("ask for {one}"),
            [first @ .., last] => format!("ask for {}, or {last}", first.join(", or ")),
        };
        Explanation { obstacle, holder: String::new(), cure }
    }

    /// What follows "ask for". (aprun's --nodes comes as PEs on each node too, where it divides
    /// -n.)
    fn cure(&self, cure: Cure) -> String {
        match cure {
            Cure::Width(width) if self.shape.per_node.is_some() => {
                let nodes = self.largest_nids.len() as u32;
                let (or_less, or_fewer) = (or_less(width), or_less(nodes));
                format!("-n {width}{or_less} (and --nodes {nodes}{or_fewer}, if given)")
            }
            Cure::Width(width) => format!("-n {width}{}", or_less(width)),
            Cure::Depth(depth) => format!("-d {depth}{}", or_less(depth)),
            // What aprun reads: whole numbers.
            Cure::Memory(bytes) if bytes.is_multiple_of(1 << 20) => {
                format!("-m {}M or less", bytes >> 20)
            }
            Cure::Memory(bytes) => format!("-m {}K or less", bytes >> 10),
            Cure::WithoutPerNode => "the same without -N or --nodes".into(),
            Cure::Flexible => "the same with --flexible".into(),
            Cure::Smaller { depth, width, without_memory } => {
                let without = match (self.shape.per_node.is_some(), without_memory) {
                    (false, false) => "",
                    (true, false) => " without -N or --nodes",
                    (false, true) => " without -m",
                    (true, true) => " without -N, --nodes and -m",
                };
                format!("-d {depth} and -n {width}{}{without}", or_less(width))
            }
        }
    }
}

/// Nodes that take nothing new, by why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Shut {
    /// An administrator has closed them; those that were closed in the same words are together.
    pub ordered: Vec<(NodeOrder, Vec<Nid>)>,
    /// They go over to another domain when they are empty.
    pub leaving: Vec<Nid>,
    /// psched refuses the apinit that offers them, for this reason.
    pub refused: BTreeMap<String, Vec<Nid>>,
    /// No apinit offers them.
    pub silent: Vec<Nid>,
    /// Their apinit obeys another psched.
    pub foreign: Vec<Nid>,
    /// All nodes of the apinits of foreign ones, which are adopted or purged together.
    pub obeying: BTreeSet<Nid>,
}

impl NoRoom {
    /// In words; `name` tells who holds an application (`12 of alice`), `shut` why its closed nodes are closed;
    /// `domain`: with whose name variables begin; `no_roll_out`: why nobody's memory goes out for it, where
    /// that could be.
    pub fn explain(
        &self,
        domain: &str,
        name: impl Fn(Apid) -> String,
        shut: &Shut,
        no_roll_out: Option<&str>,
    ) -> Explanation {
        let nodes = match (self.shape.width == 1, self.flexible) {
            (true, _) => "one node",
            (false, false) => "contiguous nodes",
            (false, true) => "nodes that need not be contiguous",
        };
        let alone = if self.exclusive { " that no other application uses" } else { "" };
        let place = format!("{nodes}{alone}");
        let memory = self.short_of_memory;
        let memory =
            memory.map_or_else(String::new, |all| format!(" and {} of memory", about(all)));
        let needs = format!("{}{memory} on {place}", needs(&self.shape));
        if self.window.is_empty() {
            return Explanation {
                obstacle: format!(
                    "{needs}, and this machine could not hold that even if it \
                                   were empty"
                ),
                holder: String::new(),
                cure: "ask for less".into(),
            };
        }
        let obstacle = match self.largest_width_now {
            0 => format!("{needs}, and no such PE fits now"),
            n => {
                let verb = if n == 1 { "fits" } else { "fit" };
                format!("{needs}, and only {} of this shape {verb} now", count(n, "PE"))
            }
        };
        let window = nids_text(self.window.iter().copied());
        let mut stand: Vec<String> = Vec::new();
        let mut until: Vec<String> = Vec::new();
        let others = self.other_holders();
        if !self.exclusive_holders.is_empty() {
            stand.push(format!("{} (-F exclusive)", self.exclusively(NAMED_MAX, &name)));
        }
        until.extend(self.ended(&others, &name));
        if !others.is_empty() {
            let names = named(&others, NAMED_MAX, &name);
            let what = if self.short_of_memory.is_some() { "memory" } else { "processors" };
            let most = Some(self.max_resident);
            let most = most.filter(|most| *most > 1 && self.short_of_memory.is_none());
            let most = most.map(|most| format!("at most {most} on each: {domain}.max_resident"));
            let limits: Vec<String> = most
                .into_iter()
                .chain(no_roll_out.map(|why| format!("no roll-out here: {why}")))
                .collect();
            let shared = match limits.is_empty() {
                true => String::new(),
                false => format!(" ({})", limits.join("; ")),
            };
            let (s, holds) = if others.len() == 1 { ("", "holds") } else { ("s", "hold") };
            let held = nids_text(self.held.iter().copied());
            stand.push(format!("application{s} {names} {holds} {what} of {held}{shared}"));
        }
        let (closed, opened) = self.closed(shut);
        stand.extend(closed);
        until.extend(opened);
        let mut cure = format!("it fits on {window} when {}", until.join(" and "));
        if self.largest_width_now > 0 {
            let n = self.largest_width_now;
            cure.push_str(&format!("; -n {n}{} fits now", or_less(n)));
        }
        if self.short_of_memory.is_some() {
            cure.push_str(match self.unsaid {
                true => "; it may fit sooner with -m, which says how much it needs",
                false => "; it may fit sooner with a smaller -m",
            });
        }
        Explanation { obstacle, holder: stand.join(", and "), cure }
    }

    /// The holders that are not exclusive.
    fn other_holders(&self) -> Vec<Apid> {
        let alone = &self.exclusive_holders;
        self.holders.iter().copied().filter(|apid| !alone.contains(apid)).collect()
    }

    /// A condition in words: that `others`, and the applications that have nodes to themselves, have
    /// ended. None if there are no such applications.
    fn ended(&self, others: &[Apid], name: impl Fn(Apid) -> String) -> Option<String> {
        let alone = &self.exclusive_holders;
        let all: Vec<Apid> = alone.iter().chain(others).copied().collect();
        let names = named(&all, NAMED_MAX, name);
        match all.len() {
            0 => None,
            1 => Some(format!("application {names} has ended")),
            // One list of names is said once; the second time it would only be long. After two
            // lists "these" would be ambiguous.
            n if n > 2 && (alone.is_empty() || others.is_empty()) => {
                Some(format!("these {n} have ended"))
            }
            _ => Some(format!("applications {names} have ended")),
        }
    }

    /// Which applications have which nodes to themselves.
    fn exclusively(&self, most: usize, name: impl Fn(Apid) -> String) -> String {
        let names = named(&self.exclusive_holders, most, name);
        let nids = nids_text(self.exclusively_held.iter().copied());
        match self.exclusive_holders.len() {
            1 => format!("application {names} has {nids} to itself"),
            _ => format!("applications {names} have {nids} to themselves"),
        }
    }

    /// The first obstacle in a few words, without a cure; `scattered`: there is room, and not on
    /// contiguous nodes.
    pub fn brief(
        &self,
        name: impl Fn(Apid) -> String,
        shut: &Shut,
        scattered: bool,
    ) -> Explanation {
        let (width, processors) = (self.shape.width, self.shape.processors());
        let verb = if width == 1 { "needs" } else { "need" };
        let memory = self.short_of_memory;
        let memory =
            memory.map_or_else(String::new, |all| format!(" and {} of memory", about(all)));
        let contiguous = if scattered { " on contiguous nodes" } else { "" };
        let obstacle = format!(
            "{} {verb} {}{memory}{contiguous}",
            count(width, "PE"),
            count(processors, "processor")
        );
        let others = self.other_holders();
        let holder = match others.len() {
            0 if !self.holders.is_empty() => self.exclusively(NAMED_BRIEFLY_MAX, name),
            0 => self.closed(shut).0.into_iter().next().unwrap_or_default(),
            n => {
                let (s, verb) = if n == 1 { ("", "holds") } else { ("s", "hold") };
                let names = named(&others, NAMED_BRIEFLY_MAX, name);
                let held = nids_text(self.held.iter().copied());
                format!("application{s} {names} {verb} {held}")
            }
        };
        Explanation { obstacle, holder, cure: String::new() }
    }

    /// Nodes of the window that take nothing new: why, and until when.
    fn closed(&self, shut: &Shut) -> (Vec<String>, Vec<String>) {
        let (mut stand, mut until) = (Vec::new(), Vec::new());
        let Shut { ordered, leaving, refused, silent, foreign, obeying } = shut;
        for (order, closed) in ordered {
            let (are, list) = (
                if closed.len() == 1 { "was" } else { "were" },
                format_nids(closed.iter().copied()),
            );
            stand.push(format!("{} {are} {order}", nids_text(closed.iter().copied())));
            until.push(format!("an administrator runs psmgr resume {list}"));
        }
        if !leaving.is_empty() {
            let (are, list) =
                (if leaving.len() == 1 { "is" } else { "are" }, nids_text(leaving.iter().copied()));
            stand.push(format!("{list} {are} in use by applications of another domain"));
            until.push(format!("{list} {are} empty"));
        }
        for (why, nids) in refused {
            let list = nids_text(nids.iter().copied());
            stand.push(format!("psched refuses the apinit that offers {list} ({why})"));
            until.push(format!("psched accepts an apinit that offers {list}"));
        }
        if !silent.is_empty() {
            let closed = nids_text(silent.iter().copied());
            let (is, its) = if silent.len() == 1 { ("is", "its") } else { ("are", "their") };
            stand.push(format!("{closed} {is} suspect ({its} apinit does not answer)"));
            until.push(format!("the apinit of {closed} answers"));
        }
        if !foreign.is_empty() {
            let (is, list) =
                (if foreign.len() == 1 { "is" } else { "are" }, nids_text(foreign.iter().copied()));
            stand.push(format!("{list} {is} foreign: its apinit obeys another psched (apstat -n)"));
            let list = format_nids(obeying.iter().copied());
            until.push(format!("an administrator runs psmgr adopt {list}, or psmgr purge {list}"));
        }
        if !self.kept.is_empty() {
            let kept = nids_text(self.kept.iter().copied());
            let is = if self.kept.len() == 1 { "is" } else { "are" };
            stand.push(format!("{kept} {is} kept for an application that has waited too long"));
            until.push(format!("the application that {kept} {is} kept for has had its turn"));
        }
        (stand, until)
    }
}

/// `8 PEs of depth 1, 2 on each node, need 8 processors`.
fn needs(shape: &Shape) -> String {
    let verb = if shape.width == 1 { "needs" } else { "need" };
    let each = shape.per_node.map_or_else(String::new, |n| format!(", {n} on each node,"));
    format!(
        "{} of depth {}{each} {verb} {}",
        count(shape.width, "PE"),
        shape.depth,
        count(shape.processors(), "processor"),
    )
}

/// What follows a number that may also be lower.
fn or_less(n: u32) -> &'static str {
    if n > 1 { " or less" } else { "" }
}

/// `12 of alice, 13 of bob and 4 others`.
pub(super) fn named(apids: &[Apid], most: usize, name: impl Fn(Apid) -> String) -> String {
    let shown = if apids.len() > most { most - 1 } else { apids.len() };
    let mut names: Vec<String> = apids[..shown].iter().map(|a| name(*a)).collect();
    if apids.len() > shown {
        names.push(format!("{} others", apids.len() - shown));
    }
    match names.split_last() {
        Some((last, first)) if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        _ => names.concat(),
    }
}
