//! Why a flexible application has no room: who would have to end.
//!
//! # Problem
//! Wherever processors are freed it can use them, so that there is no window that stands for the answer: who
//! has to end is chosen from all who sit where it may go.
//!
//! # Approach
//! In the same order as for a window:
//!
//! 1. Nobody has to end: only nodes kept for another posting stand in the way.
//! 2. One application has to end: each is tried, that with the lowest number is named.
//! 3. Several: all are thought away, and then let back one by one, those that hold least first, where that does
//!    no harm. Those that are left out are named: none of them could stay.
//! 4. Open nodes are not enough even so: closed ones are thought open, and are closed again first, from the
//!    highest, where that does no harm.
//!
//! What is left is a count of PEs, so that each trial costs no more than a look at the nodes that it concerns.

use super::{Nearest, room_without, takes_new, with_level};
use crate::apteam::Apid;
use crate::occupancy::{Occupancy, Room};
use crate::placement::need::Need;
use crate::placement::pieces::{Tally, fill};
use crate::placement::window::{self};
use crate::placement::{Wanted, room_if_empty};
use std::collections::BTreeMap;

/// Of all places to which it may go. Asks nothing of what is kept.
pub(super) fn nearest(occupancy: &Occupancy, wanted: &Wanted, needs: &[Need]) -> Nearest {
    let now = |need: &Need| {
        let nodes = placed(occupancy, need, |at| occupancy.room(at, &need.terms))?;
        Some(Nearest { need: *need, nodes, holders: Vec::new() })
    };
    let nearest = needs.iter().find_map(now);
    let nearest = nearest.or_else(|| needs.iter().find_map(|need| one_end(occupancy, need)));
    let fewest = |closed: bool| {
        let all = needs.iter().filter_map(|need| several(occupancy, need, closed));
        all.min_by_key(|nearest| nearest.holders.len())
    };
    nearest
        .or_else(|| fewest(false))
        .or_else(|| fewest(true))
        .unwrap_or_else(|| Nearest::none(wanted, needs))
}

/// The nodes that it would have.
fn placed(occupancy: &Occupancy, need: &Need, room: impl Fn(usize) -> Room) -> Option<Vec<usize>> {
    let line = occupancy.line();
    let window = |need: &Need, room: &dyn Fn(usize) -> Room| window::first(line, need, room);
    Some(fill(line, need, room, window)?.into_iter().map(|(at, _)| at).collect())
}

/// The first application that would be enough if it ended.
fn one_end(occupancy: &Occupancy, need: &Need) -> Option<Nearest> {
    let terms = &need.terms;
    let room = |at: usize| occupancy.room(at, terms);
    let now = Tally::of(terms, (0..occupancy.line().len()).map(room));
    occupancy.applications().find_map(|apid| {
        let weight = occupancy.weight(apid);
        let mut then = now.clone();
        let mut freed = BTreeMap::new();
        for held in occupancy.held(apid) {
            let without = room_without(occupancy, held.at, terms, held, weight);
            then.take(room(held.at));
            then.add(without);
            freed.insert(held.at, without);
        }
        if then.holds() < need.width {
            return None;
        }
        let room = |at: usize| freed.get(&at).copied().unwrap_or_else(|| room(at));
        let nodes = placed(occupancy, need, room)?;
        Some(Nearest { need: *need, nodes, holders: vec![apid] })
    })
}

/// No more applications than have to end, and where it is placed then. `closed`: also on nodes that are.
fn several(occupancy: &Occupancy, need: &Need, closed: bool) -> Option<Nearest> {
    let (line, terms) = (occupancy.line(), &need.terms);
    let mut open: Vec<bool> = line.iter().map(|slot| closed || takes_new(slot)).collect();
    let empty = |at: usize| room_if_empty(line, at, terms);
    let of_open = |open: &[bool], at: usize| if open[at] { empty(at) } else { Room::default() };
    let mut tally = Tally::of(terms, (0..line.len()).map(|at| of_open(&open, at)));
    if tally.holds() < need.width {
        return None;
    }
    for at in (0..line.len()).rev().filter(|at| !line[*at].open) {
        tally.take(of_open(&open, at));
        tally.add(Room::default());
        match tally.holds() >= need.width {
            true => open[at] = false,
            false => {
                tally.take(Room::default());
                tally.add(of_open(&open, at));
            }
        }
    }
    // Of those that stay: residents of each processor, and memory, where there are any.
    let mut stay: BTreeMap<usize, (Vec<u16>, u64)> = BTreeMap::new();
    let room = |stay: &BTreeMap<usize, (Vec<u16>, u64)>, at: usize| match stay.get(&at) {
        _ if !open[at] || !line[at].application => Room::default(),
        Some((residents, memory)) => line[at].room(terms, with_level(residents, terms), *memory),
        None => empty(at),
    };
    let held = |apid: Apid| {
        let processors = occupancy.held(apid).iter().map(|held| held.processors.len());
        processors.sum::<usize>()
    };
    let mut order: Vec<(usize, Apid)> =
        occupancy.applications().map(|apid| (held(apid), apid)).collect();
    order.sort_unstable();
    let mut holders = Vec::new();
    for (_, apid) in order {
        let weight = occupancy.weight(apid);
        let mut count = |comes: bool| {
            for held in occupancy.held(apid) {
                tally.take(room(&stay, held.at));
                let none = || (vec![0; line[held.at].processors as usize], 0);
                let (residents, memory) = stay.entry(held.at).or_insert_with(none);
                for processor in &held.processors {
                    let residents = &mut residents[*processor as usize];
                    *residents = match comes {
                        true => residents.saturating_add(weight),
                        false => residents.saturating_sub(weight),
                    };
                }
                *memory = match comes {
                    true => *memory + held.memory,
                    false => *memory - held.memory,
                };
                tally.add(room(&stay, held.at));
            }
            tally.holds() >= need.width
        };
        if !count(true) {
            count(false);
            holders.push(apid);
        }
    }
    holders.sort_unstable();
    let nodes = placed(occupancy, need, |at| room(&stay, at))?;
    Some(Nearest { need: *need, nodes, holders })
}
