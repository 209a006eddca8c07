//! The gate: what migration is allowed to do, and what keeps one application from being moved.

use super::{Mover, Waiting};
use crate::apteam::place::PlacementList;
use crate::variables::Variables;
use crate::variables::units::format_duration;
use std::fmt;
use std::time::Duration;

/// A waiting application that has run for less counts as if it had run so long: else none that is
/// new could ever have another moved.
const ATTAINED_LEAST: Duration = Duration::from_secs(60);
/// The prefix of the variables.
pub(super) const FAMILY: &str = "application.load_balance.";

/// What migration may do: the variables `application.load_balance.*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gate {
    /// It may do anything at all.
    pub enabled: bool,
    /// Applications that one plan moves to other nodes, at most.
    pub moves_max: usize,
    /// How often the gain of a plan must outweigh its cost, in thousandths.
    pub least_gain: u64,
    /// How long an application is left alone after a move.
    pub quiet_time: Duration,
    /// Processors from which on an application that waits may have others moved.
    pub width_min: u64,
    /// Time that an application must have run before it is moved.
    pub least_attained: Duration,
    /// The part of a move's cost that does not depend on memory.
    pub move_cost: Duration,
    /// Bytes that move in a second, at least 1.
    pub move_rate: u64,
}

impl From<&Variables> for Gate {
    fn from(variables: &Variables) -> Gate {
        let moves_max = variables.application_load_balance_moves_max();
        Gate {
            enabled: variables.application_load_balance_enabled(),
            moves_max: usize::try_from(moves_max).unwrap_or(usize::MAX),
            least_gain: variables.application_load_balance_least_gain(),
            quiet_time: variables.application_load_balance_quiet_time(),
            width_min: variables.application_load_balance_width_min(),
            least_attained: variables.application_load_balance_least_attained(),
            move_cost: variables.application_load_balance_move_cost(),
            move_rate: variables.application_load_balance_move_rate(),
        }
    }
}

impl Gate {
    /// The time that an application loses when it goes from `from` to `to`, which has the same
    /// shape: the fixed part, and the time for the memory of those of its PEs that change nodes.
    /// Nothing where none does. `mover` tells the memory of each place.
    pub fn cost(&self, mover: &Mover, from: &PlacementList, to: &PlacementList) -> Duration {
        let pairs = from.0.iter().zip(to.0.iter()).enumerate();
        let goes = pairs.filter(|(_, (from, to))| from.nid != to.nid);
        let mut bytes: Option<u64> = None;
        for (i, _) in goes {
            let here = mover.bytes.get(i).copied().unwrap_or(0);
            bytes = Some(bytes.unwrap_or(0).saturating_add(here));
        }
        bytes.map_or(Duration::ZERO, |bytes| self.cost_of_bytes(bytes))
    }

    /// The same where all of its PEs change nodes.
    pub fn cost_of_all(&self, mover: &Mover) -> Duration {
        self.cost_of_bytes(mover.bytes_in_all())
    }

    /// The time that an application loses when all of it goes out, and comes in again: its memory
    /// is moved twice.
    pub fn cost_of_roll_out(&self, mover: &Mover) -> Duration {
        self.cost_of_bytes(mover.bytes_in_all().saturating_mul(2))
    }

    /// The time that an application loses by a move of so much memory: the fixed part, and what the
    /// memory takes.
    pub fn cost_of_bytes(&self, bytes: u64) -> Duration {
        let ns = u128::from(bytes) * 1_000_000_000 / u128::from(self.move_rate.max(1));
        let memory = Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX));
        self.move_cost.saturating_add(memory)
    }

    /// What a window is worth to whoever waits for it, in processor-nanoseconds: its processors
    /// times the time that it has run, or a minute.
    pub fn gain(waiting: &Waiting) -> u128 {
        let attained = waiting.attained.max(ATTAINED_LEAST);
        u128::from(waiting.wanted.shape.processors()) * attained.as_nanos()
    }

    /// The largest cost, in processor-nanoseconds, that such a gain is worth.
    pub fn work_max(&self, waiting: &Waiting) -> u128 {
        let gain = Gate::gain(waiting).saturating_mul(1_000);
        gain.checked_div(self.least_gain.into()).unwrap_or(u128::MAX)
    }

    /// What keeps an application where it is.
    pub fn hindrance(&self, mover: &Mover) -> Option<Hindrance> {
        if let Some(wall) = mover.wall {
            return Some(Hindrance::Wall(wall));
        }
        if let Some(since) = mover.since_move.filter(|since| *since < self.quiet_time) {
            return Some(Hindrance::Quiet { left: self.quiet_time - since });
        }
        let left = self.least_attained.saturating_sub(mover.attained);
        (!left.is_zero()).then_some(Hindrance::Young { left })
    }
}

/// Why an application can't be moved, whatever is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wall {
    /// Its processors were named when it was launched.
    Pinned,
    /// It stays on its nodes: it has chosen them, or they are not neighbours.
    Stays,
    /// It is being launched.
    Launching,
    /// It is ending.
    Ending,
    /// Its nodes can't move it.
    Unable,
    /// Nothing is known of it.
    Unknown,
}

/// What keeps an application from being moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hindrance {
    /// It can't be.
    Wall(Wall),
    /// It was moved a short time ago.
    Quiet {
        /// So long it is left alone yet.
        left: Duration,
    },
    /// It has run for a short time only.
    Young {
        /// So long it must run yet.
        left: Duration,
    },
}

impl fmt::Display for Hindrance {
    /// What follows the name of an application.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = |time: Duration| format_duration(Duration::from_secs(time.as_secs().max(1)));
        match self {
            Hindrance::Wall(Wall::Pinned) => f.write_str("has processors that its user named"),
            Hindrance::Wall(Wall::Stays) => f.write_str("stays on the nodes that it has"),
            Hindrance::Wall(Wall::Launching) => f.write_str("is being launched"),
            Hindrance::Wall(Wall::Ending) => f.write_str("is ending"),
            Hindrance::Wall(Wall::Unable) => f.write_str("is on nodes that can move none"),
            Hindrance::Wall(Wall::Unknown) => f.write_str("is not known"),
            Hindrance::Quiet { left } => {
                write!(f, "was moved a short time ago and is left alone for {}", whole(*left))
            }
            Hindrance::Young { left } => {
                write!(f, "has run for a short time, and is moved after {} more", whole(*left))
            }
        }
    }
}
