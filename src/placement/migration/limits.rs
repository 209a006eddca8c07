//! The gate: what moves cost, and what may be done for an application that waits.

use super::Mover;
use crate::apteam::place::PlacementList;
use crate::placement::Wanted;
use crate::variables::Variables;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A waiting application that has run for less counts as if it had run so long: else none that is
/// new could ever have another moved.
const ATTAINED_LEAST: Duration = Duration::from_secs(60);

/// An application that waits for a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// What it wants.
    pub wanted: Wanted,
    /// The time that it has run so far.
    pub attained: Duration,
}

/// What migration may do: the variables `application.load_balance.*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigrationLimits {
    /// Applications may be moved for others at all.
    pub enabled: bool,
    /// How many applications a decision moves aside for another, at most.
    pub moves_max: usize,
    /// How often the gain of moves must outweigh their cost, in thousandths.
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

impl From<&Variables> for MigrationLimits {
    fn from(variables: &Variables) -> MigrationLimits {
        let moves_max = variables.application_load_balance_moves_max();
        MigrationLimits {
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

impl MigrationLimits {
    /// The time that an application loses when it goes from `from` to `to`, which has the same
    /// shape: the fixed part, and the time for the memory of those of its PEs that change nodes.
    /// Nothing where none does. `mover` tells the memory of each place.
    pub(super) fn cost(&self, mover: &Mover, from: &PlacementList, to: &PlacementList) -> Duration {
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

    /// The time that an application loses by a move of so much memory: the fixed part, and what the
    /// memory takes.
    pub fn cost_of_bytes(&self, bytes: u64) -> Duration {
        let ns = u128::from(bytes) * 1_000_000_000 / u128::from(self.move_rate.max(1));
        let memory = Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX));
        self.move_cost.saturating_add(memory)
    }

    /// The largest cost, in processor-nanoseconds, that a window is worth to an application that
    /// waits for it. What it gains is its processors times the time that it has run, or a minute.
    pub fn work_max(&self, waiting: &Waiting) -> u128 {
        let attained = waiting.attained.max(ATTAINED_LEAST);
        let gain = u128::from(waiting.wanted.shape.processors()) * attained.as_nanos();
        gain.saturating_mul(1_000).checked_div(self.least_gain.into()).unwrap_or(u128::MAX)
    }
}
