//! What an empty machine could hold, and what may be asked for instead of what it could not.
//!
//! # Problem
//! Who asks for more than there will ever be is not to wait for it. And to be told "no" is of little use: he wants
//! to know what would be possible, in the options that he has typed.
//!
//! # Approach
//! The largest width of the same shape is found in one pass over each set of regions to which he may go. Whoever
//! has room at some depth, or with so much memory, has it with every smaller one: those are bisected.
//!
//! ```text
//!   four nodes of 4, -n 14 -N 3      the largest of this shape has 12 PEs, and without -N there is room for 14:
//!                                    "ask for -n 12 or less (--nodes 4 or less), or the same without -N or --nodes"
//! ```

use super::need::Need;
use super::window::{self};
use super::{Wanted, pieces, room_if_empty};
use crate::apteam::shape::Shape;
use crate::machine::{Nid, RegionSet};
use crate::occupancy::{Room, Slot};
use serde::Serialize;

/// A shape that this machine could not hold if it were empty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Impossible {
    /// The shape.
    pub shape: Shape,
    /// The largest width of the same depth and per-node count that the empty machine holds; 0: none.
    pub largest_width: u32,
    /// Where that would go.
    pub largest_nids: Vec<Nid>,
    /// Processors of the largest application node; 0: there are no application nodes.
    pub largest_depth: u32,
    /// Bytes for each PE, where with less of it the machine could hold more of the shape.
    pub short_of_memory: Option<u64>,
    /// What may be asked for instead, the nearest first.
    pub cures: Vec<Cure>,
}

/// A change of shape that the empty machine could hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Cure {
    /// This width or less.
    Width(u32),
    /// This depth or less.
    Depth(u32),
    /// This many bytes for each PE, or less.
    Memory(u64),
    /// The same without `-N`.
    WithoutPerNode,
    /// The same, on nodes that need not be contiguous.
    Flexible,
    /// No single change is enough: this depth or less, this width or less, without `-N`.
    Smaller {
        /// Processors for each PE.
        depth: u32,
        /// PEs.
        width: u32,
        /// And without `-m`.
        without_memory: bool,
    },
}

/// How many PEs these regions could hold in its shape if nobody sat there and all nodes took applications,
/// whatever its own width. Where `enough` or more is found, it is not looked for more.
pub fn holds(line: &[Slot], wanted: &Wanted, regions: RegionSet, enough: u32) -> u32 {
    let terms = wanted.need(0, regions).terms;
    wanted.largest(line, &terms, enough, |at| room_if_empty(line, at, &terms))
}

/// Whether a machine of these nodes could hold it, where it may go, if nobody sat there and all of them took
/// applications.
///
/// # Errors
/// The largest of this shape that it could hold.
pub fn possible(line: &[Slot], wanted: &Wanted) -> Result<(), Impossible> {
    let up_to = |enough: u32, wanted: &Wanted| {
        wanted.reach.sets().map(|set| holds(line, wanted, set, enough)).max().unwrap_or(0)
    };
    let shape = wanted.shape;
    let largest_width = up_to(shape.width, wanted);
    if largest_width >= shape.width {
        return Ok(());
    }
    let largest = |wanted: &Wanted| up_to(u32::MAX, wanted);
    let at_most = wanted.with_shape(Shape { width: largest_width, ..shape });
    let nid = |at: usize| line[at].nid;
    let best = |need: Need| -> Option<Vec<Nid>> {
        let room = |at: usize| room_if_empty(line, at, &need.terms);
        let window = |need: &Need, room: &dyn Fn(usize) -> Room| window::best(line, need, room);
        match wanted.flexible {
            true => Some(
                pieces::fill(line, &need, room, window)?.iter().map(|(at, _)| nid(*at)).collect(),
            ),
            false => Some(window::best(line, &need, room)?.map(nid).collect()),
        }
    };
    let largest_nids =
        at_most.needs_at(0).find_map(best).filter(|_| largest_width > 0).unwrap_or_default();
    let nodes = line.iter().filter(|s| s.application && wanted.reach.passes.has(s.region));
    let largest_depth = nodes.map(|s| s.processors).max().unwrap_or(0);
    let of_any_memory = Wanted { memory_per_pe: None, ..*wanted };
    Err(Impossible {
        shape,
        largest_width,
        largest_nids,
        largest_depth,
        short_of_memory: wanted.memory_per_pe.filter(|_| largest(&of_any_memory) > largest_width),
        cures: cures(wanted, largest_width, largest_depth, largest),
    })
}

/// What may be asked for instead; `largest` tells the largest width of a shape.
fn cures(
    wanted: &Wanted,
    largest_width: u32,
    largest_depth: u32,
    largest: impl Fn(&Wanted) -> u32,
) -> Vec<Cure> {
    let shape = wanted.shape;
    let mut cures = Vec::new();
    if largest_width > 0 {
        cures.push(Cure::Width(largest_width));
    }
    // Whoever has room at some depth has it at every smaller one: bisect. `good` holds (0 stands
    // for none), `bad` does not.
    let bisect = |bad: u64, fits: &dyn Fn(u64) -> bool| {
        let (mut good, mut bad) = (0, bad);
        while bad - good > 1 {
            let middle = good + (bad - good) / 2;
            *(if fits(middle) { &mut good } else { &mut bad }) = middle;
        }
        good
    };
    let bad = u64::from(shape.depth.min(largest_depth.saturating_add(1)));
    let depth = bisect(bad, &|depth| {
        largest(&wanted.with_shape(Shape { depth: depth as u32, ..shape })) >= shape.width
    });
    if depth > 0 {
        cures.push(Cure::Depth(depth as u32));
    }
    // In the units that aprun takes.
    let unit = if wanted.memory_per_pe > Some(1 << 20) { 1 << 20 } else { 1 << 10 };
    let bytes = wanted.memory_per_pe.map_or(0, |bytes| {
        bisect(bytes.div_ceil(unit), &|units| {
            let memory_per_pe = Some(units * unit);
            largest(&Wanted { memory_per_pe, ..*wanted }) >= shape.width
        }) * unit
    });
    if bytes > 0 {
        cures.push(Cure::Memory(bytes));
    }
    let unshaped = Shape { per_node: None, ..shape };
    if shape.per_node.is_some() && largest(&wanted.with_shape(unshaped)) >= shape.width {
        cures.push(Cure::WithoutPerNode);
    }
    if !wanted.flexible && largest(&Wanted { flexible: true, ..*wanted }) >= shape.width {
        cures.push(Cure::Flexible);
    }
    if cures.is_empty() && largest_depth > 0 {
        let deepest = Shape { depth: largest_depth, ..unshaped };
        let width = largest(&Wanted { memory_per_pe: None, shape: deepest, ..*wanted });
        let without_memory = wanted.memory_per_pe.is_some();
        cures.push(Cure::Smaller { depth: largest_depth, width, without_memory });
    }
    cures
}
