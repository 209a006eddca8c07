//! The time of an event.

use serde::{Deserialize, Serialize};

/// The time of an event, on both clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Now {
    /// Nanoseconds of CLOCK_MONOTONIC: what every rule uses.
    pub mono_ns: u64,
    /// Nanoseconds since the epoch: for display, and for what is counted in days over restarts.
    pub wall_ns: u64,
}
