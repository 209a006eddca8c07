//! The time of an event.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The time of an event, on both clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Now {
    /// Nanoseconds of CLOCK_MONOTONIC: what every rule uses.
    pub mono_ns: u64,
    /// Nanoseconds since the epoch: for display, and for what is counted in days over restarts.
    pub wall_ns: u64,
}

/// A span of time in nanoseconds.
pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
