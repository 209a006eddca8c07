//! Where: the window of contiguous nodes for an application.

use crate::apteam::Apid;
use crate::apteam::place::PlacementList;
use crate::apteam::posting::{Explanation, Shape};
use crate::machine::{Machine, Nid};
use crate::occupancy::Occupancy;
use std::collections::BTreeSet;

/// A shape that this machine could not hold if it were empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Impossible {
    /// The shape.
    pub shape: Shape,
    /// The largest width of the same depth and per-node count that the empty machine holds; 0: none.
    pub largest_width: u32,
    /// Where that would go.
    pub largest_nids: Vec<Nid>,
}

/// Why there is no place now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoRoom {
    /// The shape.
    pub shape: Shape,
    /// The largest width that fits now.
    pub largest_width_now: u32,
    /// The window that needs the fewest applications to end before it fits: its nodes.
    pub window: Vec<Nid>,
    /// Those applications, by number.
    pub holders: Vec<Apid>,
    /// Nodes of that window that are closed (no apinit offers them).
    pub closed: Vec<Nid>,
    /// Nodes that are free but kept for a posting passed over too often.
    pub kept: Vec<Nid>,
}

/// The best window now: contiguous NIDs, best fit, the lowest NID on ties. Nodes in `kept` are not
/// used.
///
/// # Errors
/// What stands in the way.
pub fn place(
    _occupancy: &Occupancy,
    shape: &Shape,
    _kept: &BTreeSet<Nid>,
) -> Result<PlacementList, NoRoom> {
    Err(NoRoom {
        shape: *shape,
        largest_width_now: 0,
        window: Vec::new(),
        holders: Vec::new(),
        closed: Vec::new(),
        kept: Vec::new(),
    })
}

/// Whether the empty machine could hold the shape.
///
/// # Errors
/// The largest of this shape that it could hold.
pub fn possible(_machine: &Machine, _shape: &Shape) -> Result<(), Impossible> {
    Ok(())
}

/// Every node that some window for this shape on the empty machine contains.
pub fn usable(_machine: &Machine, _shape: &Shape) -> BTreeSet<Nid> {
    BTreeSet::new()
}

impl Impossible {
    /// In words.
    pub fn explain(&self) -> Explanation {
        Explanation::default()
    }
}

impl NoRoom {
    /// In words; `name` tells who holds an application (`12 of alice`).
    pub fn explain(&self, _name: impl Fn(Apid) -> String) -> Explanation {
        Explanation::default()
    }
}
