//! The barriers in which the PEs of a host have arrived.

use crate::apteam::protocol::peers::{BarrierIn, PmiEntry};

/// The last two barriers in which a host's PEs have arrived.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Arrivals(Vec<BarrierIn>);

impl Arrivals {
    pub(super) fn add(&mut self, arrival: BarrierIn) {
        self.0.retain(|known| known.generation != arrival.generation);
        self.0.push(arrival);
        self.0.sort_by_key(|known| known.generation);
        if self.0.len() > 2 {
            self.0.remove(0);
        }
    }

    pub(super) fn of(&self, generation: u64) -> Option<&BarrierIn> {
        self.0.iter().find(|arrival| arrival.generation == generation)
    }

    pub(super) fn take(&mut self, generation: u64) -> Vec<PmiEntry> {
        let of = self.0.iter_mut().find(|arrival| arrival.generation == generation);
        let entries = of.map(|arrival| std::mem::take(&mut arrival.entries)).unwrap_or_default();
        self.0.retain(|arrival| arrival.generation > generation);
        entries
    }

    pub fn all(&self) -> &[BarrierIn] {
        &self.0
    }

    pub(super) fn cost(&self, generation: u64) -> usize {
        self.of(generation).map_or(0, |a| a.entries.iter().map(PmiEntry::cost).sum())
    }
}
