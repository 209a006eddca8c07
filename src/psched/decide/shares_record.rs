//! What users (or accounts) have had, as it is put on record.

use crate::apteam::Apid;
use crate::gang::shares::Holder;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What the holder of a share had had at a time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HolderUsage {
    /// The name of a user or an account.
    pub holder: Holder,
    /// Processor seconds, of which older ones count less.
    pub had_s: f64,
    /// When it was that much, in nanoseconds since the epoch.
    pub at_ns: u64,
}

/// What is put on record of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SharesRecord {
    /// Users or accounts whose usage has changed.
    pub had: Vec<HolderUsage>,
    /// Of all applications that run: how much of the time that they have run is in it.
    pub charged: Vec<(Apid, Duration)>,
}
