//! Promise 6: what psched says stands in the way really does, and would fit if it did not.
//!
//! The look is a stupid one: every window is tried (or the largest nodes first, for one that is flexible), on a
//! table made anew of processors on which one more may sit, and of memory that is left. It reads psched's
//! sentences as a user would. Where all nodes can bring memory to swap, `max_resident` is no limit for who is
//! placed.

use crate::apteam::Apid;
use crate::apteam::place::PlacementList;
use crate::apteam::posting::{Explanation, Posting, Shape};
use crate::apteam::record::Apteam;
use crate::machine::{Nid, parse_nids};
use crate::psched::decide::{Effect, Looked, NodeView, Refusal, RollsOut, Scheduler};
use crate::torture::apinit::Slot;
use crate::torture::world::World;
use std::collections::{BTreeMap, BTreeSet};

/// Which apinits bring memory to swap. Of some that do not psched knows only while they call.
#[derive(Clone, Copy)]
enum Homes {
    None,
    Some,
    All,
}

/// What is said where memory of somebody stays.
const NO_ROLL_OUT: &str = "no roll-out here";

/// The most that sit on one processor where memory of who stands goes to swap, so that none of them counts.
const SITS_MAX: u32 = crate::placement::packing::SITS_MAX as u32;

/// Processors of each node on which one more may sit, and for which there is memory.
type Free = BTreeMap<Nid, u32>;

/// What was asked for.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    shape: Shape,
    /// Its nodes need not be contiguous.
    flexible: bool,
    /// It is laid out over nodes one by one.
    laid_out: bool,
    /// It is brought back from images of one host.
    one_host: bool,
    /// It is placed by a decision.
    by_decision: bool,
}

impl Asked {
    pub fn of(posting: &Posting, one_host: bool) -> Asked {
        let laid_out = !posting.layout.is_empty();
        let by_decision = !(one_host || laid_out || posting.flexible || posting.immediate);
        Asked { shape: posting.shape, flexible: posting.flexible, laid_out, one_host, by_decision }
    }
}

/// Whether it fits on some window of these nodes, or where it is flexible on any of them; on those of one host
/// where it has to be on one.
fn fits(free: &Free, asked: &Asked, hosts: &[BTreeSet<Nid>]) -> bool {
    if !asked.one_host {
        return fits_on(free, asked);
    }
    hosts.iter().any(|nids| {
        let mut free = free.clone();
        free.retain(|nid, _| nids.contains(nid));
        fits_on(&free, asked)
    })
}

fn fits_on(free: &Free, Asked { shape, flexible, .. }: &Asked) -> bool {
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

/// Where it sits: until its nodes say that it has moved, both where it was and where it goes.
fn held_by(team: &Apteam) -> PlacementList {
    match &team.moves.to {
        Some(to) => team.places.and(to),
        None => team.places.clone(),
    }
}

/// What is wrong with an explanation, if anything.
fn wrong(
    s: &Scheduler,
    asked: &Asked,
    hosts: &[BTreeSet<Nid>],
    why: &Explanation,
    most: u32,
) -> Option<String> {
    if asked.laid_out {
        return None;
    }
    let is_closed = |v: &NodeView| ["suspect", "drained", "draining", "down"].contains(&v.state);
    let closed: BTreeSet<Nid> = s.nodes().filter(is_closed).map(|v| v.node.nid).collect();
    let holding = || s.teams().filter(|t| t.state.holds_processors());
    // Without some of those who sit there.
    let room = |without: &BTreeSet<Apid>| {
        let mut on: BTreeMap<(Nid, u32), u32> = BTreeMap::new();
        for team in holding().filter(|t| !without.contains(&t.apid)) {
            for place in held_by(team).0.iter() {
                for processor in &place.processors {
                    // (Whoever was placed while nobody shared shares with nobody until it ends.)
                    let seats = if s.sits_alone(team.apid) { most } else { 1 };
                    let on = on.entry((place.nid, *processor)).or_default();
                    *on = seats.saturating_add(*on);
                }
            }
        }
        let has_room = |nid, p: &u32| on.get(&(nid, *p)).is_none_or(|residents| *residents < most);
        let count = |v: &NodeView| {
            (0..v.node.processors).filter(|p| has_room(v.node.nid, p)).count() as u32
        };
        let memory = |v: &NodeView| {
            let of = |t: &Apteam| s.memory(t.apid).find(|(nid, _)| *nid == v.node.nid);
            let others = holding().filter(|t| !without.contains(&t.apid)).filter_map(of);
            let left = v.node.memory.saturating_sub(others.map(|(_, bytes)| bytes).sum());
            let share = v.node.memory / u64::from(v.node.processors) / u64::from(most);
            // (Where memory goes to swap it bounds nobody's place.)
            if most == SITS_MAX { u32::MAX } else { (left / share) as u32 }
        };
        s.nodes().map(|v| (v.node.nid, count(&v).min(memory(&v)))).collect::<Free>()
    };
    let mut open = room(&BTreeSet::new());
    open.retain(|nid, _| !closed.contains(nid));
    if why.obstacle.ends_with("is held") {
        return None;
    }
    // Room is not enough.
    if why.obstacle.contains("waits for its turn") {
        return None;
    }
    let kept = why.holder.contains("kept for");
    if fits(&open, asked, hosts) && !kept {
        return Some("it fits now".into());
    }
    // (Why nobody's memory goes out there is said of others than those who hold it.)
    let holder = why.holder.split(NO_ROLL_OUT).next().unwrap_or_default();
    let names = named(holder);
    let window = nids_after(&why.cure, "it fits on ")?;
    for apid in &names {
        let team = s.team(*apid).filter(|t| t.state.holds_processors());
        if !team.is_some_and(|t| held_by(t).nids().any(|nid| window.contains(&nid))) {
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
    if !fits(&then, asked, hosts) {
        return Some(format!("it would not fit there even then: {then:?}"));
    }
    None
}

impl World {
    /// Looks at what psched is about to tell of waiting postings.
    pub fn check_explanations(
        &mut self,
        s: &Scheduler,
        asked: Option<Apid>,
        posted: Option<Asked>,
        effects: &[Effect],
    ) {
        let hosts: Vec<BTreeSet<Nid>> = self.slots.iter().map(|at| at.nids.clone()).collect();
        let goes_out = s.settings().abilities.roll_out == RollsOut::AtHome;
        let can = |slot: &Slot| slot.roll_out.obstacle().is_none();
        let count = self.slots.iter().filter(|slot| can(slot)).count();
        let homes = match count {
            // (Nor of these.)
            0 if s.nodes().any(|v| ["suspect", "down"].contains(&v.state)) => Homes::Some,
            0 => Homes::None,
            // (Who was placed while nobody's memory went out, one resident on a processor, shares with nobody.)
            all if all == self.slots.len() && !s.teams().any(|t| s.sits_alone(t.apid)) => {
                Homes::All
            }
            _ => Homes::Some,
        };
        let mut found = None;
        for effect in effects {
            let (shape, why) = match effect {
                Effect::Look { looked: Looked::Waiting(why), .. } => {
                    let team = asked.and_then(|a| s.team(a));
                    let waits = |t: &&crate::apteam::record::Apteam| {
                        t.state == crate::apteam::record::State::Posted
                    };
                    let asked = |t: &Apteam| Asked::of(&t.posting, t.restart.is_some());
                    (team.filter(waits).map(asked), why)
                }
                Effect::Refuse { refusal: Refusal::NoRoom, explanation, .. } => {
                    (posted, explanation)
                }
                _ => continue,
            };
            let Some(shape) = shape else { continue };
            self.checks.looked += 1;
            let resident = s.settings().turns.max_resident;
            let wrong = |most| wrong(s, &shape, &hosts, why, most);
            // (Unless somebody's memory stays, of whom it is said then.)
            let out = shape.by_decision && goes_out && !why.holder.contains(NO_ROLL_OUT);
            let text = match homes {
                Homes::All if out => wrong(SITS_MAX),
                Homes::Some if out => wrong(SITS_MAX).filter(|_| wrong(resident).is_some()),
                _ => wrong(resident),
            };
            found = text.map(|wrong| format!("\"{why}\" is not true: {wrong}"));
        }
        if let Some(text) = found {
            self.checks.broken(text);
        }
    }
}
