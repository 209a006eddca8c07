//! Migration planned: which applications to move aside, where to, in which order, at what cost, so
//! that one that waits finds a window.
//!
//! # The problem
//!
//! A wide posting may wait although there are processors enough: they are in crumbs between others.
//! Some of these moved a little make one window of many crumbs. Each move costs the one that is moved
//! some time, so the cheapest moves are wanted, and none where the gain is not worth it.
//!
//! # Example
//!
//! Nodes of one processor. C wants four of them, and four are free, here and there. B is in the way,
//! and narrow enough for the crumb at the end; A and D stay:
//!
//! ```text
//!   NID  0123456789             0123456789
//!        AAA..B.DD.    B -> 9   AAACCCCDDB
//! ```
//!
//! On nodes of several processors an application keeps its shape: as many PEs on its first node, as
//! many on its second, and so on, on contiguous nodes. C wants two whole nodes here:
//!
//! ```text
//!   NID  0    1    2    3               0    1    2    3
//!        AA.. BB.. .... E...   B -> 0   AABB CCCC CCCC E...
//! ```
//!
//! PEs that stay on their nodes cost nothing: where processors are shared, C may get room by no more
//! than A's going to other processors of its node. B's are taken by two, C wants four:
//!
//! ```text
//!   NID  0                0
//!        AA..    A -> 0   BBAA
//!        BB..             CCCC
//! ```
//!
//! # The parts
//!
//! [`Gate`] is what the variables `application.load_balance.*` allow. [`plan`] searches: see there for
//! what it finds and what bounds it. [`order`] puts moves, chosen by it or by anybody, in an order in
//! which at no instant a processor has more residents than it may have, nor a node more memory
//! promised. A [`Refusal`] says what stood in the way.

mod chosen;
mod gate;
#[cfg(test)]
mod golden;
#[cfg(test)]
mod oracle;
mod order;
mod plan;
mod refusal;
#[cfg(test)]
mod scenes;
mod scratch;
mod search;
mod windows;

pub use chosen::{compacted, elsewhere};
pub use gate::{Gate, Hindrance, Wall};
pub use order::order;
pub use plan::{plan, try_plan};
pub use refusal::Refusal;

use super::Wanted;
use crate::apteam::Apid;
use crate::apteam::place::PlacementList;
use crate::machine::{Nid, Reach};
use crate::occupancy::{Claim, Occupancy};
use std::collections::{BTreeMap, BTreeSet};
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
    /// Why it can't be moved, nor its processors be changed; `None`: it can.
    pub wall: Option<Wall>,
    /// How long ago it was moved; `None`: never.
    pub since_move: Option<Duration>,
    /// The time that it has run.
    pub attained: Duration,
}

impl Mover {
    /// Processors of its PEs.
    pub fn processors(&self) -> u64 {
        self.places.0.iter().map(|place| place.processors.len() as u64).sum()
    }

    /// Bytes of its memory on all its places.
    fn bytes_in_all(&self) -> u64 {
        let bytes = self.bytes.iter().take(self.places.0.len());
        bytes.fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }
}

/// What a plan is made from.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// Who sits where. The application that waits sits nowhere.
    pub occupancy: &'a Occupancy,
    /// Those who sit there. One that is missing here is a wall ([`Wall::Unknown`]).
    pub movers: &'a BTreeMap<Apid, Mover>,
    /// Nodes to which nobody may come: they are kept for somebody else.
    pub kept: &'a BTreeSet<Nid>,
    /// What is allowed.
    pub gate: Gate,
    /// An application can be rolled out for a while, and come in on other nodes.
    pub can_roll_out: bool,
}

/// Who waits for a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// What it wants.
    pub wanted: Wanted,
    /// The time that it has run so far.
    pub attained: Duration,
}

/// Where an application is to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Which one.
    pub apid: Apid,
    /// Its places there, in the shape that it has.
    pub to: PlacementList,
}

/// A move of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// Who is moved.
    pub apid: Apid,
    /// Where it sits.
    pub from: PlacementList,
    /// Where it will sit. Where the nodes are the same, only processors are changed.
    pub to: PlacementList,
    /// The time that it loses by it, on all ways together.
    pub cost: Duration,
}

/// A step of a plan. Each is done when the one before is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// An application goes to other processors: those of the plan, or for a while to free ones.
    Move {
        /// Which one.
        apid: Apid,
        /// Where to.
        to: PlacementList,
        /// The time that it loses.
        cost: Duration,
    },
    /// An application holds nothing for a while: frozen, its memory is elsewhere.
    RollOut {
        /// Which one.
        apid: Apid,
    },
    /// It comes back.
    RollIn {
        /// Which one.
        apid: Apid,
        /// Where to.
        to: PlacementList,
        /// The time that it loses by both ways.
        cost: Duration,
    },
}

impl Step {
    /// Who it is about.
    pub fn apid(&self) -> Apid {
        match self {
            Step::Move { apid, .. } | Step::RollOut { apid } | Step::RollIn { apid, .. } => *apid,
        }
    }

    /// The time that it costs that application.
    pub fn cost(&self) -> Duration {
        match self {
            Step::Move { cost, .. } | Step::RollIn { cost, .. } => *cost,
            Step::RollOut { .. } => Duration::ZERO,
        }
    }
}

/// Moves that make a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Where the application that waits fits when all is done.
    pub window: PlacementList,
    /// Who moves, by number; none: it fits as it is.
    pub moves: Vec<Move>,
    /// How.
    pub steps: Vec<Step>,
    /// The cost of all steps, each times the processors of its application, in nanoseconds.
    pub work: u128,
}
