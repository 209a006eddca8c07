//! Why there is no room: the window that is nearest to being one, and who stands in it.
//!
//! Which applications would have to end, at the least, is a covering problem, with no quick exact
//! answer in general. What people meet most is answered exactly, and the rest by a bound that is
//! reached by ending no more than is needed. In this order:
//!
//! 1. Nobody has to end: only nodes kept for another posting stand in the way.
//! 2. One application has to end: each is tried, looking only at the nodes around its own.
//! 3. Several: of the windows that open nodes would have if nobody sat on them, that one with the
//!    fewest applications on it; of these, those whose staying would do no harm are let off.
//! 4. Open nodes are not enough even so: the same over all nodes, fewest closed ones first.
//!
//! Ties go to the lowest NID.

use super::window::{self, Need};
use super::{NoRoom, free_now, if_empty};
use crate::apteam::Apid;
use crate::apteam::posting::Shape;
use crate::machine::Nid;
use crate::occupancy::{Occupancy, Slot};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Nodes looked at in trying single applications, and applications times nodes in letting them
/// off: what an explanation may cost at most. A machine of 10,000 nodes stays far below.
const STEPS_MAX: usize = 4_000_000;

/// The reasons. To be asked only where there is no window now.
pub(super) fn no_room(occupancy: &Occupancy, shape: &Shape, kept: &BTreeSet<Nid>) -> NoRoom {
    let line = occupancy.line();
    let need = Need::of(shape);
    let (window, holders) = nearest(occupancy, &need).unwrap_or((0..0, Vec::new()));
    let nids = |which: &dyn Fn(&Slot) -> bool| {
        line[window.clone()].iter().filter(|s| which(s)).map(|s| s.nid).collect()
    };
    NoRoom {
        shape: *shape,
        largest_width_now: window::largest(line, &need, free_now(kept)),
        closed: nids(&|s| !s.open),
        kept: nids(&|s| kept.contains(&s.nid)),
        window: nids(&|_| true),
        holders,
    }
}

/// The window nearest to being one, and who has to end for it. Asks nothing of what is kept.
fn nearest(occupancy: &Occupancy, need: &Need) -> Option<(Range<usize>, Vec<Apid>)> {
    let line = occupancy.line();
    let nothing_kept = BTreeSet::new();
    if let Some(found) = window::best(line, need, free_now(&nothing_kept)) {
        return Some((found.nodes, Vec::new()));
    }
    if let Some((nodes, apid)) = one_end(occupancy, need) {
        return Some((nodes, vec![apid]));
    }
    let open = |at: usize, slot: &Slot| if slot.open { if_empty(at, slot) } else { 0 };
    let nodes = fewest_holders(occupancy, need, open)
        .or_else(|| fewest_holders(occupancy, need, if_empty))?;
    let holders = who_must_end(occupancy, need, nodes.clone());
    Some((nodes, holders))
}

/// The lowest window that the end of a single application would make, and that application.
fn one_end(occupancy: &Occupancy, need: &Need) -> Option<(Range<usize>, Apid)> {
    let line = occupancy.line();
    let nothing_kept = BTreeSet::new();
    let free = free_now(&nothing_kept);
    let mut steps = STEPS_MAX;
    let mut lowest: Option<(Range<usize>, Apid)> = None;
    for apid in occupancy.applications() {
        let gains: Vec<(usize, u32)> = occupancy.held(apid).collect();
        let available = |at: usize, slot: &Slot| {
            let gain = gains.binary_search_by_key(&at, |g| g.0).map_or(0, |i| gains[i].1);
            // A closed node gives nothing away, and neither does what is freed on it.
            if slot.open && slot.application { free(at, slot) + gain } else { 0 }
        };
        let usable = |at: &usize| need.capacity(available(*at, &line[*at])) > 0;
        let mut seen = 0;
        for &(at, _) in &gains {
            if at < seen || !usable(&at) {
                continue;
            }
            // Only a run with one of its nodes can have a window that was not there before.
            let left = |l: &usize| window::adjacent(line, *l) && usable(l);
            let start = (seen..at).rev().take_while(left).last().unwrap_or(at);
            let right = |r: &usize| window::adjacent(line, *r - 1) && usable(r);
            let end = (at + 1..line.len()).take_while(right).last().map_or(at + 1, |r| r + 1);
            seen = end;
            window::each(line, need, available, start..end, |nodes, _| {
                if lowest.as_ref().is_none_or(|(lowest, _)| nodes.start < lowest.start) {
                    lowest = Some((nodes, apid));
                }
            });
            let cost = end - start;
            if steps < cost {
                return lowest;
            }
            steps -= cost;
        }
    }
    lowest
}

/// Of the windows that nodes would have with so many processors to give away: fewest closed
/// nodes, then fewest applications, then lowest NID.
fn fewest_holders(
    occupancy: &Occupancy,
    need: &Need,
    available: impl Fn(usize, &Slot) -> u32 + Copy,
) -> Option<Range<usize>> {
    let line = occupancy.line();
    let is_closed = |at: usize| usize::from(!line[at].open);
    let mut fewest: Option<((usize, usize), Range<usize>)> = None;
    for run in window::runs(line, need, available) {
        // Of the window before: each of its applications with its count of nodes, and how many of
        // its nodes are closed.
        let mut here: BTreeMap<Apid, usize> = BTreeMap::new();
        let mut closed = 0;
        let mut known = run.start..run.start;
        window::each(line, need, available, run, |nodes, _| {
            for at in known.end..nodes.end {
                closed += is_closed(at);
                for apid in occupancy.holders_at(at) {
                    *here.entry(*apid).or_default() += 1;
                }
            }
            for at in known.start..nodes.start {
                closed -= is_closed(at);
                for apid in occupancy.holders_at(at) {
                    if let Some(count) = here.get_mut(apid) {
                        *count -= 1;
                        if *count == 0 {
                            here.remove(apid);
                        }
                    }
                }
            }
            known = nodes.clone();
            let rank = (closed, here.len());
            if fewest.as_ref().is_none_or(|(fewest, _)| rank < *fewest) {
                fewest = Some((rank, nodes));
            }
        });
    }
    fewest.map(|(_, nodes)| nodes)
}

/// Which of a window's applications have to end before the shape fits there, by number: those that
/// hold least of it are let off first, as far as that goes.
fn who_must_end(occupancy: &Occupancy, need: &Need, nodes: Range<usize>) -> Vec<Apid> {
    let line = &occupancy.line()[nodes.clone()];
    let mut held: BTreeMap<Apid, u64> = BTreeMap::new();
    for at in nodes.clone() {
        for apid in occupancy.holders_at(at) {
            held.insert(*apid, 0);
        }
    }
    for (apid, held) in &mut held {
        let inside = occupancy.held(*apid).filter(|(at, _)| nodes.contains(at));
        *held = inside.map(|(_, processors)| u64::from(processors)).sum();
    }
    let mut order: Vec<(u64, Apid)> = held.iter().map(|(apid, held)| (*held, *apid)).collect();
    order.sort_unstable();
    let mut room: Vec<u32> = line.iter().map(|s| s.processors).collect();
    let mut must_end = BTreeSet::new();
    let mut steps = STEPS_MAX;
    for (_, apid) in order {
        if steps < line.len() {
            must_end.insert(apid);
            continue;
        }
        steps -= line.len();
        let inside = || occupancy.held(apid).filter(|(at, _)| nodes.contains(at));
        for (at, processors) in inside() {
            room[at - nodes.start] -= processors;
        }
        if window::first(line, need, |at, _| room[at]).is_none() {
            must_end.insert(apid);
            for (at, processors) in inside() {
                room[at - nodes.start] += processors;
            }
        }
    }
    must_end.into_iter().collect()
}
