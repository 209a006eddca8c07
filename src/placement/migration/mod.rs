//! Migration: where applications that an administrator moves can go, and in which order.
//!
//! # The problem
//!
//! An administrator wants one application elsewhere (`psmgr migrate`), or the applications of a
//! region together, so that what is free is in one piece (`psmgr compact`). An application that is
//! moved keeps its shape: as many PEs on its first node, as many on its second, and so on, on
//! contiguous nodes. It holds both places until the move is over, so several moves need an order.
//!
//! # Example
//!
//! Four nodes of four processors are compacted. A goes to NID 0. B has four PEs on its first node,
//! so it finds no place beside A, and goes to NIDs 1 and 2:
//!
//! ```text
//!   NID  0    1    2    3               0    1    2    3
//!        .... AA.. BBBB B...    ->      AA.. BBBB B... ....
//! ```
//!
//! # The parts
//!
//! [`elsewhere`] and [`compacted`] choose places. [`order`] puts moves in an order in which at no
//! instant a processor has more residents than it may have, nor a node more memory promised; a
//! [`Refusal`] says why there is none. [`MigrationLimits`] is what the variables `application.load_balance.*`
//! say: what a move costs, and what decisions may do that move applications aside for one that
//! waits ([`super::packing`]). Administrators are not asked by it.

mod chosen;
#[cfg(test)]
mod golden;
mod limits;
#[cfg(test)]
mod oracle;
mod order;
mod refusal;
#[cfg(test)]
mod scenes;
mod scratch;

pub use chosen::{compacted, elsewhere};
pub use limits::{MigrationLimits, Waiting};
pub use order::order;
pub use refusal::Refusal;

use crate::apteam::Apid;
use crate::apteam::place::PlacementList;
use crate::machine::Reach;
use crate::occupancy::{Claim, Occupancy};
use std::collections::BTreeMap;
use std::time::Duration;

/// A running application as migration sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mover {
    /// Where it sits.
    pub places: PlacementList,
    /// How it sits there.
    pub claim: Claim,
    /// The regions to which it may go: gates are obeyed by moves as by placement.
    pub reach: Reach,
    /// Bytes of memory that it has on each of its places, in their order; what is missing counts as
    /// none.
    pub bytes: Vec<u64>,
    /// It can't be moved, nor its processors be changed.
    pub stays: bool,
}

impl Mover {
    /// Processors of its PEs.
    fn processors(&self) -> u64 {
        self.places.0.iter().map(|place| place.processors.len() as u64).sum()
    }

    /// Bytes of its memory on all its places.
    fn bytes_in_all(&self) -> u64 {
        let bytes = self.bytes.iter().take(self.places.0.len());
        bytes.fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }
}

/// What moves are chosen and put in order from.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// The occupancy of the whole line.
    pub occupancy: &'a Occupancy,
    /// The applications that sit there. An application that is missing here stays.
    pub movers: &'a BTreeMap<Apid, Mover>,
    /// What moves cost.
    pub gate: MigrationLimits,
}

/// Where an application is to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Which application.
    pub apid: Apid,
    /// Its places there, in the shape that it has.
    pub to: PlacementList,
}

/// A move of an order. Each is made when the one before is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// Which application.
    pub apid: Apid,
    /// Where it goes: to its target, or out of the way for a while. Where the nodes are the same,
    /// only processors are changed.
    pub to: PlacementList,
    /// The time that it loses by this move.
    pub cost: Duration,
}
