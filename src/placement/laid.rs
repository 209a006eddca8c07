//! Placement of a layout: so many PEs on each node, given one by one ([`Layout`]).
//!
//! # Problem
//! `--nodes 4 -n 10` is 3, 3, 2 and 2 PEs: no single count per node says that, and the index of occupancy knows
//! only such.
//!
//! # Approach
//! Every first node is tried, at each level and in each set of regions: a window has as many nodes as the layout,
//! and each of them room for its PEs. Of all windows that one is taken which leaves the fewest processors to give
//! away on its own nodes, of equal ones that with the lowest NID; or the highest, where ranks go down.
//!
//! ```text
//!   free         4  2 | 3  3  2  2  4        layout 3 3 2 2: one window, NIDs 2 to 5
//!   NID          0  1   2  3  4  5  6
//! ```
//!
//! A flexible application without a window has each of its nodes as near to that end as there is room for its PEs
//! behind the node before: if there are nodes for all, that way finds them.

use super::window::Need;
use super::{Kept, Wanted, listed, room_if_empty, room_now};
use crate::apteam::Apid;
use crate::apteam::choice::Choice;
use crate::apteam::layout::Layout;
use crate::apteam::place::PlacementList;
use crate::machine::Nid;
use crate::occupancy::{Occupancy, Room, Slot};
use std::collections::BTreeSet;
use std::ops::Range;

/// As [`super::try_place`], for a layout, on the nodes of a choice.
pub fn try_place_laid(
    occupancy: &Occupancy,
    wanted: &Wanted,
    kept: &BTreeSet<Nid>,
    choice: &Choice,
    layout: &Layout,
) -> Option<PlacementList> {
    let line = occupancy.line();
    let mut marks = Kept::new(line, kept);
    marks.add(line, |nid| !choice.has(nid));
    let pes = in_line(layout, choice.downwards(), line.len())?;
    wanted.needs(occupancy).find_map(|need| {
        let room = room_now(occupancy, &need.terms, &marks);
        let windows = windows(line, &pes, room);
        let left = |nodes: &Range<usize>| -> u64 {
            nodes.clone().map(|at| u64::from(room(at).processors)).sum()
        };
        let nodes = match choice.downwards() {
            true => windows.rev().min_by_key(left),
            false => windows.min_by_key(left),
        };
        // In order of rank.
        let nodes: Vec<(usize, u32)> = match nodes {
            Some(nodes) if choice.downwards() => nodes.rev().zip(layout.pes()).collect(),
            Some(nodes) => nodes.zip(layout.pes()).collect(),
            None if wanted.flexible => spread(line.len(), choice, layout, room)?,
            None => return None,
        };
        Some(listed(occupancy, &need, nodes))
    })
}

/// A window that it would have if nobody sat there and all nodes took applications, with the fewest
/// applications on it, and these; none: the machine could not hold it.
pub fn nearest_laid(
    occupancy: &Occupancy,
    line: &[Slot],
    wanted: &Wanted,
    choice: &Choice,
    layout: &Layout,
) -> Option<(Vec<Nid>, Vec<Apid>)> {
    let pes = in_line(layout, choice.downwards(), line.len())?;
    wanted.needs_at(0).find_map(|need: Need| {
        let room = |at: usize| match choice.has(line[at].nid) {
            true => room_if_empty(line, at, &need.terms),
            false => Room::default(),
        };
        let nearest = windows(line, &pes, room).min_by_key(|nodes| {
            nodes.clone().map(|at| occupancy.holders(line[at].nid).len()).sum::<usize>()
        });
        let nearest: Vec<usize> = match nearest {
            None if !wanted.flexible => return None,
            None => spread(line.len(), choice, layout, room)?.iter().map(|(at, _)| *at).collect(),
            Some(nodes) => nodes.collect(),
        };
        let nids: Vec<Nid> = nearest.into_iter().map(|at| line[at].nid).collect();
        let holders: BTreeSet<Apid> = nids.iter().flat_map(|nid| occupancy.holders(*nid)).collect();
        Some((nids, holders.into_iter().collect()))
    })
}

/// PEs of each node of a window, from the lowest on; none: there are not as many nodes. (Anybody may ask for
/// billions.)
fn in_line(layout: &Layout, downwards: bool, nodes: usize) -> Option<Vec<u32>> {
    if layout.nodes() > nodes as u64 {
        return None;
    }
    let mut pes: Vec<u32> = layout.pes().collect();
    if downwards {
        pes.reverse();
    }
    Some(pes)
}

/// In order of rank the next node each that has room, with its PEs.
fn spread(
    nodes: usize,
    choice: &Choice,
    layout: &Layout,
    room: impl Fn(usize) -> Room,
) -> Option<Vec<(usize, u32)>> {
    let along = |at: usize| if choice.downwards() { nodes - 1 - at } else { at };
    let mut nodes = (0..nodes).map(along);
    let next = |pes: u32| Some((nodes.find(|at| room(*at).pes >= pes)?, pes));
    layout.pes().map(next).collect()
}

/// All windows, from the left.
fn windows<'a>(
    line: &'a [Slot],
    pes: &'a [u32],
    room: impl Fn(usize) -> Room + 'a,
) -> impl DoubleEndedIterator<Item = Range<usize>> + 'a {
    let last = (line.len() + 1).saturating_sub(pes.len().max(1));
    let fits = move |start: &usize| {
        (*start..).zip(pes).all(|(at, pes)| {
            let joins = at == *start || super::window::adjacent(line, at - 1);
            joins && room(at).pes >= *pes
        })
    };
    (0..last).filter(fits).map(|start| start..start + pes.len())
}
