//! Promise 6: what psched says stands in the way really does, and would fit if it did not.
//!
//! The look is a stupid one: every window is tried (or the largest nodes first, for one that is flexible), on a
//! table made anew of processors on which one more may sit, and of memory that is left. Where all nodes can bring memory to swap, `max_resident` is no limit for who is
//! placed.

use crate::apteam::Apid;
use crate::apteam::choice::Choice;
use crate::apteam::place::PlacementList;
use crate::apteam::posting::Posting;
use crate::apteam::record::Apteam;
use crate::apteam::shape::Shape;
use crate::machine::Nid;
use crate::psched::decide::{Effect, Looked, NodeView, Refusal, RollsOut, Scheduler};
use crate::psched::reason::{Obstacle, Reason, Wait};
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

/// The most that sit on one processor where memory of who stands goes to swap, so that none of them counts.
const SITS_MAX: u32 = crate::placement::packing::SITS_MAX as u32;

/// Processors of each node on which one more may sit, and for which there is memory.
type Free = BTreeMap<Nid, u32>;

/// What was asked for.
#[derive(Clone, Debug)]
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
    /// Its nodes. (No user chooses any; those on which its launch has failed are left out.)
    choice: Choice,
}

impl Asked {
    pub fn of(posting: &Posting, one_host: bool) -> Asked {
        let laid_out = !posting.layout.is_empty();
        let Posting { shape, flexible, immediate, .. } = *posting;
        let choice = posting.choice.clone();
        let by_decision = choice.is_any() && !(one_host || laid_out || flexible || immediate);
        Asked { shape, flexible, laid_out, one_host, by_decision, choice }
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
    why: &Reason,
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
        let chosen = s.nodes().filter(|v| asked.choice.has(v.node.nid));
        chosen.map(|v| (v.node.nid, count(&v).min(memory(&v)))).collect::<Free>()
    };
    let mut open = room(&BTreeSet::new());
    open.retain(|nid, _| !closed.contains(nid));
    // Where it is held, or has to wait for its turn, room is not enough.
    if let Obstacle::Waits(Wait::Held { .. } | Wait::Turn { .. }) = why.obstacle {
        return None;
    }
    let full = match &why.obstacle {
        Obstacle::Waits(Wait::Full(full)) => Some(full),
        _ => None,
    };
    let kept = full.is_some_and(|full| !full.no_room.kept.is_empty());
    if fits(&open, asked, hosts) && !kept {
        return Some("it fits now".into());
    }
    let full = full.filter(|full| !full.no_room.window.is_empty())?;
    let names: BTreeSet<Apid> = full.no_room.holders.iter().copied().collect();
    let window: BTreeSet<Nid> = full.no_room.window.iter().copied().collect();
    for apid in &names {
        let team = s.team(*apid).filter(|t| t.state.holds_processors());
        if !team.is_some_and(|t| held_by(t).nids().any(|nid| window.contains(&nid))) {
            return Some(format!("application {apid} holds nothing there"));
        }
    }
    let silent = &full.shut.silent;
    if silent.iter().any(|nid| !closed.contains(nid)) {
        return Some(format!("apinits offer some of {silent:?}"));
    }
    // When they have gone it fits, on that window.
    let mut then = room(&names);
    then.retain(|nid, _| window.contains(nid));
    if !fits(&then, asked, hosts) {
        return Some(format!("it would not fit there even then: {then:?}"));
    }
    None
}

/// It says why memory of applications stays.
fn says_no_roll_out(why: &Reason) -> bool {
    matches!(&why.obstacle, Obstacle::Waits(Wait::Full(full)) if full.no_roll_out.is_some())
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
            let (shape, why): (_, &Reason) = match effect {
                Effect::Look { looked: Looked::Waiting(why), .. } => {
                    let team = asked.and_then(|a| s.team(a));
                    let waits = |t: &&crate::apteam::record::Apteam| {
                        t.state == crate::apteam::record::State::Posted
                    };
                    let asked = |t: &Apteam| Asked::of(&t.posting, t.restart.is_some());
                    (team.filter(waits).map(asked), why)
                }
                Effect::Refuse { refusal: Refusal::NoRoom, reason, .. } => (posted.clone(), reason),
                _ => continue,
            };
            let Some(shape) = shape else { continue };
            self.checks.looked += 1;
            let resident = s.settings().turns.max_resident;
            let wrong = |most| wrong(s, &shape, &hosts, why, most);
            // (Unless somebody's memory stays, of whom it is said then.)
            let out = shape.by_decision && goes_out && !says_no_roll_out(why);
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
