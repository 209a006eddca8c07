//! Where: the window of contiguous nodes for an application.
//!
//! # The problem
//!
//! A tightly coupled program wants its PEs near each other, so its nodes have consecutive NIDs: a
//! *window* on the line of nodes. Many windows may do. Which one is taken decides how soon the
//! next wide program finds room: a line with its free processors in crumbs holds nothing wide.
//!
//! # The rules
//!
//! A node is *usable* for a shape when it has flavor `ap`, is open, is not kept for somebody else,
//! and has room for at least one PE: it holds `free / depth` of them, at most `-N`. A window is a
//! set of usable nodes with consecutive NIDs, filled from the left:
//!
//! - with `-N`, every node has exactly N PEs but the last, which has the rest;
//! - without, every node has as many PEs as it holds but the last, which has the rest.
//!
//! So at each first node there is one window at most. Of all windows, that one is taken which
//!
//! 1. leaves the fewest free processors on its own nodes,
//! 2. lies in the smallest gap: the unbroken run of usable nodes around it with the fewest free
//!    processors,
//! 3. has the fewest nodes,
//! 4. begins at the lowest NID.
//!
//! On its nodes an application gets the lowest free processors, PE by PE.
//!
//! # Example
//!
//! Six nodes of four processors; a letter is an application's processor, a dot is free. Three PEs
//! (application C) could go to NIDs 0, 1, 3 or 4. On NID 1 nothing is left over, so they go there,
//! although NID 0 comes first:
//!
//! ```text
//!   NID  0    1    2    3    4    5               0    1    2    3    4    5
//!        .... A... BBBB .... .... BBBB    ->      .... ACCC BBBB .... .... BBBB
//! ```
//!
//! # Cost
//!
//! A search is one pass over the line, run by run, with two pointers, and allocates nothing until
//! the window is found. The reasons of a refusal (`why`) cost more, so that [`try_place`] leaves
//! them out: a scheduler that only wants to know whether one of a thousand waiting postings fits
//! asks that, and [`place`] when somebody wants to know why not.

mod explain;
#[cfg(test)]
mod golden;
#[cfg(test)]
mod oracle;
mod why;
mod window;

use crate::apteam::Apid;
use crate::apteam::place::{Place, PlacementList};
use crate::apteam::posting::Shape;
use crate::machine::{Machine, Nid};
use crate::occupancy::{Occupancy, Slot, empty_line};
use std::collections::BTreeSet;
use window::{Need, Window};

/// A shape that this machine could not hold if it were empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Impossible {
    /// The shape.
    pub shape: Shape,
    /// The largest width of the same depth and per-node count that the empty machine holds; 0: none.
    pub largest_width: u32,
    /// Where that would go.
    pub largest_nids: Vec<Nid>,
    /// Processors of the largest application node; 0: there are no application nodes.
    pub largest_depth: u32,
    /// What may be asked for instead, the nearest first.
    pub cures: Vec<Cure>,
}

/// A change of shape that the empty machine could hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cure {
    /// This width or less.
    Width(u32),
    /// This depth or less.
    Depth(u32),
    /// The same without `-N`.
    WithoutPerNode,
    /// No single change is enough: this depth or less, this width or less, without `-N`.
    Smaller {
        /// Processors for each PE.
        depth: u32,
        /// PEs.
        width: u32,
    },
}

/// Why there is no place now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoRoom {
    /// The shape.
    pub shape: Shape,
    /// The largest width that fits now.
    pub largest_width_now: u32,
    /// The window that needs the fewest applications to end before it fits: its nodes. Empty where
    /// the machine could not hold the shape at all.
    pub window: Vec<Nid>,
    /// Those applications, by number.
    pub holders: Vec<Apid>,
    /// Nodes of that window that are closed (no apinit offers them).
    pub closed: Vec<Nid>,
    /// Nodes of that window that are kept for a posting passed over too often.
    pub kept: Vec<Nid>,
}

/// The best window now: contiguous NIDs, best fit, the lowest NID on ties. Nodes in `kept` are not
/// used.
///
/// # Errors
/// What stands in the way.
pub fn place(
    occupancy: &Occupancy,
    shape: &Shape,
    kept: &BTreeSet<Nid>,
) -> Result<PlacementList, NoRoom> {
    try_place(occupancy, shape, kept).ok_or_else(|| why::no_room(occupancy, shape, kept))
}

/// As [`place`], without the reasons: much cheaper where there is no room.
pub fn try_place(
    occupancy: &Occupancy,
    shape: &Shape,
    kept: &BTreeSet<Nid>,
) -> Option<PlacementList> {
    let need = Need::of(shape);
    let found = window::best(occupancy.line(), &need, free_now(kept))?;
    Some(list(occupancy, &need, &found))
}

/// Whether the empty machine could hold the shape.
///
/// # Errors
/// The largest of this shape that it could hold.
pub fn possible(machine: &Machine, shape: &Shape) -> Result<(), Impossible> {
    let line = empty_line(machine);
    let largest = |shape: &Shape| window::largest(&line, &Need::of(shape), if_empty);
    let largest_width = largest(shape);
    if largest_width >= shape.width {
        return Ok(());
    }
    let at_most = Need::of(&Shape { width: largest_width, ..*shape });
    let largest_nids = window::best(&line, &at_most, if_empty)
        .filter(|_| largest_width > 0)
        .map_or_else(Vec::new, |w| line[w.nodes].iter().map(|s| s.nid).collect());
    let largest_depth = line.iter().enumerate().map(|(i, s)| if_empty(i, s)).max().unwrap_or(0);
    Err(Impossible {
        shape: *shape,
        largest_width,
        largest_nids,
        largest_depth,
        cures: cures(shape, largest_width, largest_depth, largest),
    })
}

/// What may be asked for instead; `largest` tells the largest width of a shape.
fn cures(
    shape: &Shape,
    largest_width: u32,
    largest_depth: u32,
    largest: impl Fn(&Shape) -> u32,
) -> Vec<Cure> {
    let mut cures = Vec::new();
    if largest_width > 0 {
        cures.push(Cure::Width(largest_width));
    }
    // Whoever has room at some depth has it at every smaller one: bisect. `good` holds (0 stands
    // for none), `bad` does not.
    let (mut good, mut bad) = (0, shape.depth.min(largest_depth.saturating_add(1)));
    while bad - good > 1 {
        let depth = good + (bad - good) / 2;
        let fits = largest(&Shape { depth, ..*shape }) >= shape.width;
        *(if fits { &mut good } else { &mut bad }) = depth;
    }
    if good > 0 {
        cures.push(Cure::Depth(good));
    }
    let unshaped = Shape { per_node: None, ..*shape };
    if shape.per_node.is_some() && largest(&unshaped) >= shape.width {
        cures.push(Cure::WithoutPerNode);
    }
    if cures.is_empty() && largest_depth > 0 {
        let width = largest(&Shape { depth: largest_depth, ..unshaped });
        cures.push(Cure::Smaller { depth: largest_depth, width });
    }
    cures
}

/// Every node that some window for this shape on the empty machine contains.
pub fn usable(machine: &Machine, shape: &Shape) -> BTreeSet<Nid> {
    let line = empty_line(machine);
    let need = Need::of(shape);
    let mut nids = BTreeSet::new();
    for run in window::runs(&line, &need, if_empty) {
        let mut next = run.start;
        window::each(&line, &need, if_empty, run, |nodes, _| {
            let new = next.max(nodes.start)..nodes.end;
            nids.extend(line[new].iter().map(|s| s.nid));
            next = next.max(nodes.end);
        });
    }
    nids
}

/// Processors that a node could give away now.
fn free_now(kept: &BTreeSet<Nid>) -> impl Fn(usize, &Slot) -> u32 + Copy + '_ {
    // Mostly nothing is kept: then no node is looked up.
    let any = !kept.is_empty();
    move |_, slot| match slot.application && slot.open && !(any && kept.contains(&slot.nid)) {
        true => slot.free,
        false => 0,
    }
}

/// Processors that a node could give away if nobody sat anywhere and every node were open.
fn if_empty(_at: usize, slot: &Slot) -> u32 {
    if slot.application { slot.processors } else { 0 }
}

/// The placement list of a window: filled from the left, processors by number.
fn list(occupancy: &Occupancy, need: &Need, found: &Window) -> PlacementList {
    let mut rest = need.width;
    let places = found.nodes.clone().map(|at| {
        let slot = &occupancy.line()[at];
        let pes = u64::from(need.capacity(slot.free)).min(rest) as u32;
        rest -= u64::from(pes);
        let processors = pes as usize * need.depth as usize;
        Place {
            nid: slot.nid,
            processors: occupancy.free_processors(at).take(processors).collect(),
            pes,
        }
    });
    PlacementList(places.collect())
}
