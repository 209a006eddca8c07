//! Who sits where: per node its processors, their holders, and whether it takes new applications.

use crate::apteam::Apid;
use crate::apteam::place::PlacementList;
use crate::machine::{Machine, Nid};
use std::collections::BTreeSet;

/// Why processors can't be given away.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("processor {processor} of NID {nid} is not free")]
pub struct Conflict {
    /// The node.
    pub nid: Nid,
    /// Its processor.
    pub processor: u32,
}

/// The state of every node's processors.
#[derive(Clone, Debug)]
pub struct Occupancy {}

impl Occupancy {
    /// An empty machine whose nodes are all closed (no apinit offers them yet).
    pub fn new(_machine: &Machine) -> Occupancy {
        Occupancy {}
    }

    /// Opens a node for new applications, or closes it. What is there stays.
    pub fn set_open(&mut self, _nid: Nid, _open: bool) {}

    /// Whether a node takes new applications.
    pub fn is_open(&self, _nid: Nid) -> bool {
        false
    }

    /// Gives the processors of a placement to an application.
    ///
    /// # Errors
    /// The first processor that is another's (or not there); nothing is changed then.
    pub fn take(&mut self, _apid: Apid, _places: &PlacementList) -> Result<(), Conflict> {
        Ok(())
    }

    /// Takes all processors of an application back. No effect where it has none.
    pub fn release(&mut self, _apid: Apid) {}

    /// Free processors of a node, open or not.
    pub fn free(&self, _nid: Nid) -> u32 {
        0
    }

    /// Applications with processors on a node, each once, by number.
    pub fn holders(&self, _nid: Nid) -> Vec<Apid> {
        Vec::new()
    }

    /// Processors of a node in use.
    pub fn used(&self, _nid: Nid) -> u32 {
        0
    }

    /// All NIDs with flavor `ap`.
    pub fn application_nodes(&self) -> BTreeSet<Nid> {
        BTreeSet::new()
    }
}
