//! Limits of a node's control group, as they look from here: what the kernel does when they are
//! reached, and how that is told.
//!
//! **Memory.** The kernel kills all processes of the group at once. What arrives are PEs that died by
//! KILL, one after the other; which was the largest is known when all of them are reaped, from what
//! the kernel says of each. So the first of them is kept back until nothing of its node is left,
//! [`GATHER`] at most, and then they are told as one, at the time of the first.
//!
//! **Processes.** A fork fails. The program deals with it as it likes, and its user is told once for
//! each node.

use super::{Shepherd, after};
use crate::apteam::ending::{Cause, PeEnd};
use crate::apteam::protocol::notice::Seen;
use crate::machine::Nid;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long the deaths of one node are gathered.
pub(super) const GATHER: Duration = Duration::from_secs(1);
const SIGKILL: i32 = 9;

/// What is known about memory.
#[derive(Clone, Debug, Default)]
pub(super) struct MemoryLimit {
    /// -m.
    pub per_pe: Option<u64>,
    /// Nodes on which the kernel has killed; whether because of their own limit.
    pub killed: BTreeMap<Nid, bool>,
    /// The largest resident set of each PE that has ended, in KiB, or of a process that it left.
    sizes: BTreeMap<u32, u64>,
    /// A death that is not told yet.
    kept: Option<Kept>,
}

#[derive(Clone, Copy, Debug)]
struct Kept {
    rank: u32,
    nid: Nid,
    over_limit: bool,
    at_ns: u64,
}

impl MemoryLimit {
    pub fn size(&mut self, rank: u32, max_rss_kib: u64) {
        let size = self.sizes.entry(rank).or_default();
        *size = max_rss_kib.max(*size);
    }

    /// When a death that is kept back is told at the latest.
    pub fn tell_at(&self) -> Option<u64> {
        self.kept.map(|kept| after(kept.at_ns, GATHER))
    }
}

impl Shepherd {
    /// Whether this end is the kernel's doing for want of memory; then it is seen to.
    pub(super) fn killed_for_memory(
        &mut self,
        now_ns: u64,
        rank: u32,
        nid: Nid,
        end: PeEnd,
    ) -> bool {
        let over_limit = self.memory.killed.get(&nid).copied();
        let Some(over_limit) = over_limit.filter(|_| end == PeEnd::Signal(SIGKILL)) else {
            return false;
        };
        let kept = Kept { rank, nid, over_limit, at_ns: now_ns };
        self.memory.kept.get_or_insert(kept);
        true
    }

    /// Everything of this node that was killed has been reaped.
    pub(super) fn node_reaped(&mut self, now_ns: u64, nid: Nid) {
        if self.memory.kept.is_some_and(|kept| kept.nid == nid) {
            self.tell_memory(now_ns);
        }
    }

    /// Tells the death that was kept back, if there is one.
    pub(super) fn tell_memory(&mut self, now_ns: u64) {
        let Some(Kept { rank, nid, over_limit, at_ns }) = self.memory.kept.take() else { return };
        let here = || self.pes.iter().filter(|(_, pe)| pe.nid == nid);
        let cause = match self.memory.per_pe.filter(|_| over_limit) {
            Some(per_pe) => {
                let sizes = here().filter_map(|(rank, _)| {
                    Some((*rank, self.memory.sizes.get(rank).filter(|kib| **kib > 0)?))
                });
                // The lowest of those that are alike.
                let largest = sizes.rev().max_by_key(|(_, kib)| **kib);
                let largest = largest.map(|(rank, kib)| (rank, kib.saturating_mul(1024)));
                let pes = u32::try_from(here().count()).unwrap_or(u32::MAX);
                Cause::OverMemory { nid, pes, per_pe, largest }
            }
            None => Cause::HostMemory { rank, nid },
        };
        self.bad_since(now_ns, at_ns, cause);
    }

    pub(super) fn process_limit(&mut self, nid: Nid) {
        let Some(most) = self.pids_max.filter(|_| self.pids_told.insert(nid)) else { return };
        self.notice(nid, Seen::ProcessLimit(most));
    }
}
