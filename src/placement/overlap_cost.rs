//! What a window costs those who sit there already.
//!
//! ```text
//!   residents  2 1 0 0 | 1 1 1 1      4 PEs, -N 2: the two processors of each node with the fewest
//!   cost           0 + 0   1 + 1      = 2, over the applications of both nodes
//! ```
//!
//! Windows of a stretch come from the left, and both their ends only move right, so that each node
//! is added once and taken off once.

use super::need::Need;
use crate::apteam::Apid;
use crate::occupancy::{Occupancy, Room};
use std::ops::Range;

/// The sums of the window before.
pub(super) struct Over<'a, R> {
    occupancy: &'a Occupancy,
    need: &'a Need,
    room: R,
    /// Its nodes but the last, which have as many PEs as they hold.
    known: Range<usize>,
    /// PEs of these.
    pes: u64,
    /// Residents on the processors that they give.
    cost: u64,
    /// Applications that begin on one of them, seen from the left.
    begun: u64,
}

impl<'a, R: Fn(usize) -> Room> Over<'a, R> {
    pub fn new(occupancy: &'a Occupancy, need: &'a Need, room: R) -> Over<'a, R> {
        Over { occupancy, need, room, known: 0..0, pes: 0, cost: 0, begun: 0 }
    }

    /// Residents on the processors that the window takes, in sum, and the applications on its
    /// nodes. (Each is counted where it begins, seen from the left: one in pieces once for each.)
    pub fn rank(&mut self, nodes: &Range<usize>) -> (u64, u64) {
        let full = nodes.start..nodes.end - 1;
        if self.known.end <= full.start || self.known.start > full.start {
            self.known = full.start..full.start;
            (self.pes, self.cost, self.begun) = (0, 0, 0);
        }
        for at in self.known.start..full.start {
            let (pes, cost, begun) = self.of(at);
            (self.pes, self.cost, self.begun) =
                (self.pes - pes, self.cost - cost, self.begun - begun);
        }
        for at in self.known.end..full.end {
            let (pes, cost, begun) = self.of(at);
            (self.pes, self.cost, self.begun) =
                (self.pes + pes, self.cost + cost, self.begun + begun);
        }
        self.known = full.clone();
        let last = nodes.end - 1;
        let rest = self.need.width.saturating_sub(self.pes);
        let on_last = self.residents(last, rest);
        // Of those on the first node all count, wherever they begin.
        let on_first = self.occupancy.holders_at(nodes.start).len() as u64;
        let later = match full.is_empty() {
            true => 0,
            false => self.begun - self.begin(nodes.start) + self.begin(last),
        };
        (self.cost + on_last, on_first + later)
    }

    /// Of a node that has as many PEs as it holds: these, residents, and who begins there.
    fn of(&self, at: usize) -> (u64, u64, u64) {
        let pes = u64::from((self.room)(at).pes);
        (pes, self.residents(at, pes), self.begin(at))
    }

    /// Residents on the processors that so many PEs would get.
    fn residents(&self, at: usize, pes: u64) -> u64 {
        let mut wanted = pes * u64::from(self.need.terms.depth);
        let all = self.occupancy.residents(at);
        let mut sum = 0;
        for level in 0..=self.need.terms.level {
            let here = all.iter().filter(|r| u32::from(**r) == level).count() as u64;
            let taken = here.min(wanted);
            sum += taken * u64::from(level);
            wanted -= taken;
            if wanted == 0 {
                break;
            }
        }
        sum
    }

    /// Applications on a node that are not on the one before.
    fn begin(&self, at: usize) -> u64 {
        let here = self.occupancy.holders_at(at);
        let before: &[Apid] =
            at.checked_sub(1).map_or(&[], |before| self.occupancy.holders_at(before));
        here.iter().filter(|apid| before.binary_search(apid).is_err()).count() as u64
    }
}
