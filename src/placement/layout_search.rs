//! Placement of a layout: so many PEs on each node, given one by one ([`Layout`]).
//!
//! # Problem
//! `--nodes 4 -n 10` is 3, 3, 2 and 2 PEs, and parts may differ in depth: no single count per node says that, and
//! the index of occupancy knows only such.
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

use super::need::Need;
use super::{Kept, Wanted, place_on, room_if_empty, room_now};
use crate::apteam::Apid;
use crate::apteam::choice::Choice;
use crate::apteam::layout::Layout;
use crate::apteam::place::PlacementList;
use crate::machine::Nid;
use crate::occupancy::{Occupancy, Room, Slot, Terms};
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
    let laid = in_rank(layout, wanted, line.len())?;
    let pes = along(&laid, choice);
    wanted.needs(occupancy).find_map(|need| {
        let room =
            |at: usize, depth: u32| room_now(occupancy, &deep(&need.terms, depth), &marks)(at);
        let windows = windows(line, &pes, room);
        let left = |nodes: &Range<usize>| -> u64 {
            nodes.clone().zip(&pes).map(|(at, of)| u64::from(room(at, of.depth).processors)).sum()
        };
        let nodes = match choice.downwards() {
            true => windows.rev().min_by_key(left),
            false => windows.min_by_key(left),
        };
        // In order of rank.
        let nodes: Vec<usize> = match nodes {
            Some(nodes) if choice.downwards() => nodes.rev().collect(),
            Some(nodes) => nodes.collect(),
            None if wanted.flexible => spread(line.len(), choice, &laid, room)?,
            None => return None,
        };
        let place =
            |(at, of): (usize, &Own)| place_on(occupancy, &deep(&need.terms, of.depth), at, of.pes);
        Some(PlacementList(nodes.into_iter().zip(&laid).map(place).collect()))
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
    let laid = in_rank(layout, wanted, line.len())?;
    let pes = along(&laid, choice);
    wanted.needs_at(0).find_map(|need: Need| {
        let room = |at: usize, depth: u32| match choice.has(line[at].nid) {
            true => room_if_empty(line, at, &deep(&need.terms, depth)),
            false => Room::default(),
        };
        let nearest = windows(line, &pes, room).min_by_key(|nodes| {
            nodes.clone().map(|at| occupancy.holders(line[at].nid).len()).sum::<usize>()
        });
        let nearest: Vec<usize> = match nearest {
            None if !wanted.flexible => return None,
            None => spread(line.len(), choice, &laid, room)?,
            Some(nodes) => nodes.collect(),
        };
        let nids: Vec<Nid> = nearest.into_iter().map(|at| line[at].nid).collect();
        let holders: BTreeSet<Apid> = nids.iter().flat_map(|nid| occupancy.holders(*nid)).collect();
        Some((nids, holders.into_iter().collect()))
    })
}

/// What one node of a layout has.
#[derive(Clone, Copy)]
struct Own {
    pes: u32,
    depth: u32,
}

/// That of each node, in order of rank; none: there are not as many nodes. (Anybody may ask for billions.)
fn in_rank(layout: &Layout, wanted: &Wanted, nodes: usize) -> Option<Vec<Own>> {
    let each = layout.each(wanted.shape.depth).map(|(pes, depth)| Own { pes, depth });
    (layout.nodes() <= nodes as u64).then(|| each.collect())
}

/// The same from the lowest node on.
fn along(laid: &[Own], choice: &Choice) -> Vec<Own> {
    match choice.downwards() {
        true => laid.iter().rev().copied().collect(),
        false => laid.to_vec(),
    }
}

/// The terms for PEs of this depth.
fn deep(terms: &Terms, depth: u32) -> Terms {
    Terms { depth: depth.max(1), ..*terms }
}

/// In order of rank the next node each that has room.
fn spread(
    nodes: usize,
    choice: &Choice,
    laid: &[Own],
    room: impl Fn(usize, u32) -> Room,
) -> Option<Vec<usize>> {
    let along = |at: usize| if choice.downwards() { nodes - 1 - at } else { at };
    let mut nodes = (0..nodes).map(along);
    laid.iter().map(|of| nodes.find(|at| room(*at, of.depth).pes >= of.pes)).collect()
}

/// All windows, from the left.
fn windows<'a>(
    line: &'a [Slot],
    pes: &'a [Own],
    room: impl Fn(usize, u32) -> Room + 'a,
) -> impl DoubleEndedIterator<Item = Range<usize>> + 'a {
    let last = (line.len() + 1).saturating_sub(pes.len().max(1));
    let fits = move |start: &usize| {
        (*start..).zip(pes).all(|(at, of)| {
            let joins = at == *start || super::window::adjacent(line, at - 1);
            joins && room(at, of.depth).pes >= of.pes
        })
    };
    (0..last).filter(fits).map(|start| start..start + pes.len())
}
