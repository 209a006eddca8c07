//! What is known of regions.

use crate::machine::{Machine, RegionSet};
use crate::occupancy::Terms;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What is asked of nodes for each PE, and whether these need not be contiguous.
pub(super) type Kind = (Terms, bool);

/// What is known of regions.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Regions {
    /// How many PEs there is room for if nobody sits anywhere.
    #[serde(with = "crate::pairs")]
    pub(super) holds: BTreeMap<Kind, u32>,
    /// Those whose gates are open at this time of day.
    pub(super) open: RegionSet,
    /// When that changes, on the monotonic clock; none: never.
    pub(super) change_ns: Option<u64>,
}

impl Regions {
    /// Nothing yet: where the time of day counts, it is looked at with the first event.
    pub fn of(machine: &Machine) -> Regions {
        let hours = machine.regions.iter().any(|region| region.gate.hours.is_some());
        Regions { holds: BTreeMap::new(), open: RegionSet::ALL, change_ns: hours.then_some(0) }
    }

    /// When a gate opens or closes by the time of day.
    pub fn deadline(&self) -> Option<u64> {
        self.change_ns
    }
}
