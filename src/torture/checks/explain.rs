//! Promise 6: what psched says stands in the way really does, and would fit if it did not.
//!
//! The look is a stupid one: every window is tried (or the largest nodes first, for one that is flexible), on a
//! table made anew of processors on which one more may sit, and of memory that is left. It reads psched's
//! sentences as a user would.

use crate::apteam::Apid;
use crate::apteam::posting::{Explanation, Shape};
use crate::apteam::record::Apteam;
use crate::machine::{Nid, parse_nids};
use crate::scheduler::{Effect, Looked, NodeView, Refusal, Scheduler};
use crate::torture::world::World;
use std::collections::{BTreeMap, BTreeSet};

/// Processors of each node on which one more may sit, and for which there is memory.
type Free = BTreeMap<Nid, u32>;

/// What was asked for: its shape, and whether its nodes need not be contiguous.
pub type Asked = (Shape, bool);

/// Whether a shape fits on some window of these nodes, or one that is flexible on any of them.
fn fits(free: &Free, (shape, flexible): &Asked) -> bool {
    let capacity = |nid: &Nid| {
        let pes = free.get(nid).copied().unwrap_or(0) / shape.depth;
        shape.per_node.map_or(pes, |most| pes.min(most))
    };
    let along = |nodes: &mut dyn Iterator<Item = Nid>| {
        let mut rest = shape.width;
        for nid in nodes {
            let here = capacity(&nid).min(rest);
            let short = shape.per_node.is_some_and(|n| here < n && here < rest);
            if here == 0 || short {
                return false;
            }
            rest -= here;
            if rest == 0 {
                return true;
            }
        }
        false
    };
    if *flexible {
        let mut nids: Vec<Nid> = free.keys().copied().collect();
        nids.sort_by_key(|nid| std::cmp::Reverse(capacity(nid)));
        return along(&mut nids.into_iter());
    }
    free.keys().any(|first| along(&mut (first.0..).map(Nid)))
}

/// The numbers before " of user", as an explanation names applications.
fn named(text: &str) -> BTreeSet<Apid> {
    let words: Vec<&str> = text.split([' ', ',']).collect();
    let number = |w: &[&str]| (w[1] == "of" && w[2].starts_with("user")).then(|| w[0].parse().ok());
    words.windows(3).filter_map(|w| number(w).flatten()).map(Apid).collect()
}

/// The list of NIDs that follows these words.
fn nids_after(text: &str, words: &str) -> Option<BTreeSet<Nid>> {
    let rest = &text[text.find(words)? + words.len()..];
    let rest = rest.strip_prefix("NIDs ").or_else(|| rest.strip_prefix("NID "))?;
    let list = rest.split([' ', ';']).next()?.trim_end_matches(',');
    parse_nids(list).ok()
}

/// The list of NIDs that stands before these words.
fn nids_before(text: &str, words: &str) -> Option<BTreeSet<Nid>> {
    let list = text[..text.find(words)?].rsplit(' ').next()?;
    parse_nids(list).ok()
}

/// What is wrong with an explanation, if anything.
fn wrong(s: &Scheduler, shape: &Asked, why: &Explanation) -> Option<String> {
    let is_closed = |v: &NodeView| ["suspect", "drained", "draining", "down"].contains(&v.state);
    let closed: BTreeSet<Nid> = s.nodes().filter(is_closed).map(|v| v.node.nid).collect();
    let holding = || s.teams().filter(|t| t.state.holds_processors());
    // Without some of those who sit there.
    let room = |without: &BTreeSet<Apid>| {
        let mut on: BTreeMap<(Nid, u32), u32> = BTreeMap::new();
        for place in
            holding().filter(|t| !without.contains(&t.apid)).flat_map(|t| t.places.0.iter())
        {
            for processor in &place.processors {
                *on.entry((place.nid, *processor)).or_default() += 1;
            }
        }
        let most = s.settings().turns.max_resident;
        let has_room = |nid, p: &u32| on.get(&(nid, *p)).is_none_or(|residents| *residents < most);
        let count = |v: &NodeView| {
            (0..v.node.processors).filter(|p| has_room(v.node.nid, p)).count() as u32
        };
        let memory = |v: &NodeView| {
            let of = |t: &Apteam| s.memory(t.apid).find(|(nid, _)| *nid == v.node.nid);
            let others = holding().filter(|t| !without.contains(&t.apid)).filter_map(of);
            let left = v.node.memory.saturating_sub(others.map(|(_, bytes)| bytes).sum());
            let share = v.node.memory / u64::from(v.node.processors) / u64::from(most);
            (left / share) as u32
        };
        s.nodes().map(|v| (v.node.nid, count(&v).min(memory(&v)))).collect::<Free>()
    };
    let mut open = room(&BTreeSet::new());
    open.retain(|nid, _| !closed.contains(nid));
    if why.obstacle.ends_with("is held") {
        return None;
    }
    // By least attained service room is not enough.
    let waits = why.obstacle.contains("waits for its turn");
    if waits && s.settings().turns.order == crate::variables::Order::LeastAttainedService {
        return None;
    }
    let kept = why.holder.contains("kept for");
    if fits(&open, shape) && !kept {
        return Some("it fits now".into());
    }
    let names = named(&why.holder);
    let window = nids_after(&why.cure, "it fits on ")?;
    for apid in &names {
        let team = s.team(*apid).filter(|t| t.state.holds_processors());
        if !team.is_some_and(|t| t.places.nids().any(|nid| window.contains(&nid))) {
            return Some(format!("application {apid} holds nothing there"));
        }
    }
    if let Some(named) = nids_before(&why.holder, " is offered by no apinit")
        .or_else(|| nids_before(&why.holder, " are offered by no apinit"))
        && !named.is_subset(&closed)
    {
        return Some(format!("apinits offer some of {named:?}"));
    }
    if why.holder.contains(" others") {
        return None;
    }
    // When they have gone it fits, on that window.
    let mut then = room(&names);
    then.retain(|nid, _| window.contains(nid));
    if !fits(&then, shape) {
        return Some(format!("it would not fit there even then: {then:?}"));
    }
    None
}

impl World {
    /// Looks at what psched is about to tell of waiting postings.
    pub fn check_explanations(
        &mut self,
        asked: Option<Apid>,
        posted: Option<Asked>,
        effects: &[Effect],
    ) {
        let Some(psched) = &self.psched else { return };
        let s = &psched.scheduler;
        let mut found = None;
        for effect in effects {
            let (shape, why) = match effect {
                Effect::Look { looked: Looked::Waiting(why), .. } => {
                    let team = asked.and_then(|a| s.team(a));
                    let waits = |t: &&crate::apteam::record::Apteam| {
                        t.state == crate::apteam::record::State::Posted
                    };
                    let asked = |t: &Apteam| (t.posting.shape, t.posting.flexible);
                    (team.filter(waits).map(asked), why)
                }
                Effect::Refuse { refusal: Refusal::NoRoom, explanation, .. } => {
                    (posted, explanation)
                }
                _ => continue,
            };
            let Some(shape) = shape else { continue };
            self.checks.looked += 1;
            found = wrong(s, &shape, why).map(|wrong| format!("\"{why}\" is not true: {wrong}"));
        }
        if let Some(text) = found {
            self.checks.broken(text);
        }
    }
}
