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
//! For a flexible application, which fits where there are processors enough, see [`pieces`].
//!
//! Ties go to the lowest NID. Where applications share processors, one with fewer residents than it
//! may have is room, so that of those on one processor not all have to end.

mod pieces;

use super::need::Need;
use super::window::{self};
use super::{Kept, NoRoom, Wanted, exhaustive, room_if_empty, room_now};
use crate::apteam::Apid;
use crate::machine::Nid;
use crate::occupancy::{Held, Occupancy, Room, Slot, Terms};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{ControlFlow, Range};

/// Nodes looked at in trying single applications, and applications times nodes in letting them
/// off: what an explanation may cost at most. A machine of 10,000 nodes stays far below.
const STEPS_MAX: usize = 4_000_000;
/// Regions that an explanation looks at, of all that one may go to the first.
const REGIONS_EXPLAINED: usize = 8;

/// The reasons. To be asked only where there is no window now.
pub(super) fn no_room(occupancy: &Occupancy, wanted: &Wanted, kept: &BTreeSet<Nid>) -> Box<NoRoom> {
    let line = occupancy.line();
    let needs: Vec<Need> =
        wanted.needs_at(wanted.highest_level(occupancy)).take(REGIONS_EXPLAINED).collect();
    let Nearest { need, nodes, holders } = match wanted.flexible {
        true => pieces::nearest(occupancy, wanted, &needs),
        false => nearest(occupancy, wanted, &needs),
    };
    let nids = |which: &dyn Fn(&Slot) -> bool| {
        nodes.iter().map(|at| &line[*at]).filter(|s| which(s)).map(|s| s.nid).collect()
    };
    let (exclusive_holders, shared): (Vec<Apid>, Vec<Apid>) =
        holders.iter().partition(|apid| occupancy.is_exclusive(**apid));
    let held = |at: usize| occupancy.holders_at(at).iter().any(|apid| shared.contains(apid));
    let held = nodes.iter().copied().filter(|at| held(*at)).map(|at| line[at].nid).collect();
    let theirs: BTreeSet<Nid> = exclusive_holders
        .iter()
        .flat_map(|apid| occupancy.held(*apid))
        .map(|held| line[held.at].nid)
        .collect();
    Box::new(NoRoom {
        held,
        exclusive_holders,
        exclusively_held: theirs.into_iter().collect(),
        shape: wanted.shape,
        exclusive: wanted.exclusive,
        flexible: wanted.flexible,
        largest_width_now: {
            let kept = Kept::new(line, kept);
            let largest = |need: &Need| {
                let room = room_now(occupancy, &need.terms, &kept);
                wanted.largest(line, &need.terms, u32::MAX, room)
            };
            needs.iter().map(largest).max().unwrap_or(0)
        },
        max_resident: match wanted.exclusive
            || holders.iter().any(|apid| occupancy.sits_alone(*apid))
        {
            true => 1,
            false => wanted.rules(occupancy).max_resident,
        },
        short_of_memory: nodes
            .first()
            .filter(|_| !holders.is_empty() && fits_without_memory(occupancy, wanted, &need, kept))
            .map(|at| {
                let slot = &line[*at];
                let one = slot.memory_of(wanted.memory_per_pe, 1, need.terms.depth as usize);
                let all = one.saturating_mul(need.width);
                let unsaid = wanted.memory_per_pe.is_none();
                if unsaid { all.max(slot.reserve()) } else { all }
            }),
        unsaid: wanted.memory_per_pe.is_none(),
        closed: nids(&|s| !s.open),
        kept: nids(&|s| kept.contains(&s.nid)),
        window: nids(&|_| true),
        holders,
    })
}

/// Whether there would be a window now if no memory were promised to anybody.
fn fits_without_memory(
    occupancy: &Occupancy,
    wanted: &Wanted,
    need: &Need,
    kept: &BTreeSet<Nid>,
) -> bool {
    let room = |at: usize| {
        let slot = &occupancy.line()[at];
        match takes_new(slot) && !kept.contains(&slot.nid) {
            true => slot.room(&need.terms, with_level(occupancy.residents(at), &need.terms), 0),
            false => Room::default(),
        }
    };
    let width = u32::try_from(need.width).unwrap_or(u32::MAX);
    wanted.largest(occupancy.line(), &need.terms, width, room) >= width
}

/// Whether a node takes new applications.
fn takes_new(slot: &Slot) -> bool {
    slot.application && slot.open
}

/// How many processors have no more residents than asked for.
fn with_level(residents: &[u16], terms: &Terms) -> u32 {
    terms.given(residents.iter().copied())
}

/// The place nearest to being one, among which regions it lies, and who has to end for it.
struct Nearest {
    need: Need,
    nodes: Vec<usize>,
    holders: Vec<Apid>,
}

impl Nearest {
    /// Nothing that could ever be one.
    fn none(wanted: &Wanted, needs: &[Need]) -> Nearest {
        let need = needs.first().copied();
        let need = need.unwrap_or_else(|| wanted.need(0, wanted.reach.passes));
        Nearest { need, nodes: Vec::new(), holders: Vec::new() }
    }
}

/// Of all places to which it may go. Asks nothing of what is kept.
fn nearest(occupancy: &Occupancy, wanted: &Wanted, needs: &[Need]) -> Nearest {
    if let Some((need, window)) = exhaustive(occupancy, wanted, &BTreeSet::new()) {
        return Nearest { need, nodes: window.collect(), holders: Vec::new() };
    }
    let one = |need: &Need| {
        let (window, apid) = one_end(occupancy, need)?;
        Some(Nearest { need: *need, nodes: window.collect(), holders: vec![apid] })
    };
    if let Some(nearest) = needs.iter().find_map(one) {
        return nearest;
    }
    let line = occupancy.line();
    let several = |need: &Need, closed: bool| {
        let any = |at: usize| room_if_empty(line, at, &need.terms);
        let open = |at: usize| if takes_new(&line[at]) { any(at) } else { Room::default() };
        let window = match closed {
            true => fewest_holders(occupancy, need, any)?,
            false => fewest_holders(occupancy, need, open)?,
        };
        let holders = who_must_end(occupancy, need, window.clone());
        Some(Nearest { need: *need, nodes: window.collect(), holders })
    };
    let fewest = |closed: bool| {
        let all = needs.iter().filter_map(|need| several(need, closed));
        all.min_by_key(|nearest| nearest.holders.len())
    };
    fewest(false).or_else(|| fewest(true)).unwrap_or_else(|| Nearest::none(wanted, needs))
}

/// What a node would have room for if this application, which holds this of it, had ended.
fn room_without(occupancy: &Occupancy, at: usize, terms: &Terms, held: &Held, weight: u16) -> Room {
    let slot = &occupancy.line()[at];
    // A node that takes nothing gives nothing away, and neither does what is freed on it.
    if !takes_new(slot) {
        return Room::default();
    }
    let mut own = held.processors.iter().peekable();
    let left = (0..).zip(occupancy.residents(at)).map(|(processor, residents)| {
        let freed = own.next_if(|own| **own == processor).map_or(0, |_| weight);
        residents - freed
    });
    slot.room(terms, terms.given(left), slot.promised.saturating_sub(held.memory))
}

/// The lowest window that the end of a single application would make, and that application.
fn one_end(occupancy: &Occupancy, need: &Need) -> Option<(Range<usize>, Apid)> {
    let line = occupancy.line();
    let mut steps = STEPS_MAX;
    let mut lowest: Option<(Range<usize>, Apid)> = None;
    for apid in occupancy.applications() {
        let gains = occupancy.held(apid);
        let weight = occupancy.weight(apid);
        let room = |at: usize| match gains.binary_search_by_key(&at, |held| held.at) {
            Ok(i) => room_without(occupancy, at, &need.terms, &gains[i], weight),
            Err(_) => occupancy.room(at, &need.terms),
        };
        let usable = |at: &usize| room(*at).pes > 0;
        let mut seen = 0;
        for &Held { at, .. } in gains {
            if at < seen || !usable(&at) {
                continue;
            }
            // Only a run with one of its nodes can have a window that was not there before.
            let left = |l: &usize| window::adjacent(line, *l) && usable(l);
            let start = (seen..at).rev().take_while(left).last().unwrap_or(at);
            let right = |r: &usize| window::adjacent(line, *r - 1) && usable(r);
            let end = (at + 1..line.len()).take_while(right).last().map_or(at + 1, |r| r + 1);
            seen = end;
            let _ = window::each(need, room, start..end, |nodes, _| {
                if lowest.as_ref().is_none_or(|(lowest, _)| nodes.start < lowest.start) {
                    lowest = Some((nodes, apid));
                }
                ControlFlow::Break(())
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
    room: impl Fn(usize) -> Room + Copy,
) -> Option<Range<usize>> {
    let line = occupancy.line();
    let is_closed = |at: usize| usize::from(!line[at].open);
    let mut fewest: Option<((usize, usize), Range<usize>)> = None;
    for run in window::runs(line, room) {
        // Of the window before: each of its applications with its count of nodes, and how many of
        // its nodes are closed.
        let mut here: BTreeMap<Apid, usize> = BTreeMap::new();
        let mut closed = 0;
        let mut known = run.start..run.start;
        let _ = window::each(need, room, run, |nodes, _| {
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
            ControlFlow::Continue(())
        });
    }
    fewest.map(|(_, nodes)| nodes)
}

/// Which of a window's applications have to end before the shape fits there, by number: those that
/// hold least of it are let off first, as far as that goes.
fn who_must_end(occupancy: &Occupancy, need: &Need, nodes: Range<usize>) -> Vec<Apid> {
    let line = &occupancy.line()[nodes.clone()];
    let inside = |apid: Apid| {
        let held = occupancy.held(apid);
        let from = held.partition_point(|held| held.at < nodes.start);
        held[from..].iter().take_while(|held| held.at < nodes.end)
    };
    let all: BTreeSet<Apid> =
        nodes.clone().flat_map(|at| occupancy.holders_at(at)).copied().collect();
    let mut order: Vec<(usize, Apid)> = all
        .into_iter()
        .map(|apid| (inside(apid).map(|held| held.processors.len()).sum(), apid))
        .collect();
    order.sort_unstable();
    // Of those that stay: residents of each processor, and memory.
    let mut stay: Vec<(Vec<u16>, u64)> =
        line.iter().map(|slot| (vec![0; slot.processors as usize], 0)).collect();
    let mut must_end = BTreeSet::new();
    let mut steps = STEPS_MAX;
    for (_, apid) in order {
        if steps < line.len() {
            must_end.insert(apid);
            continue;
        }
        steps -= line.len();
        let weight = occupancy.weight(apid);
        for held in inside(apid) {
            let (residents, memory) = &mut stay[held.at - nodes.start];
            held.processors.iter().for_each(|p| residents[*p as usize] += weight);
            *memory += held.memory;
        }
        let room = |at: usize| {
            let (residents, memory) = &stay[at];
            line[at].room(&need.terms, with_level(residents, &need.terms), *memory)
        };
        if window::first(line, need, room).is_none() {
            must_end.insert(apid);
            for held in inside(apid) {
                let (residents, memory) = &mut stay[held.at - nodes.start];
                held.processors.iter().for_each(|p| residents[*p as usize] -= weight);
                *memory -= held.memory;
            }
        }
    }
    must_end.into_iter().collect()
}
