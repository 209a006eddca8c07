//! The time that each gang has had, by the plans that it followed.

use super::Schedule;
use crate::apteam::Apid;
use crate::gang::plan::Slice;
use crate::scheduler::ends::nanos;
use crate::variables::Order;
use std::time::Duration;

impl Schedule {
    /// Puts the time that the members of a plan have had on their account.
    pub(super) fn account(&mut self, generation: u64, until_ns: u64) {
        let Some(planned) = self.plans.get_mut(&generation) else { return };
        if planned.order == Order::LeastAttainedService {
            // Levels know it.
            return;
        }
        let mut at = planned.accounted_ns.max(planned.from_ns);
        planned.accounted_ns = planned.accounted_ns.max(until_ns);
        let planned = planned.clone();
        let whole = nanos(planned.plan.length());
        if whole == 0 {
            return;
        }
        // Of a plan that has gone round for days only the last rounds say whose turn it is.
        let rounds = (until_ns.saturating_sub(at) / whole).saturating_sub(1);
        if rounds > 0 {
            let times = u32::try_from(rounds).unwrap_or(u32::MAX);
            for slice in &planned.plan.slices {
                for apid in &slice.party {
                    self.rotation.credit(*apid, slice.length.saturating_mul(times));
                }
            }
            at = at.saturating_add(rounds.saturating_mul(whole));
        }
        while at < until_ns {
            let Some((slice, _, left)) = planned.at(at) else { return };
            let length = left.min(Duration::from_nanos(until_ns - at));
            let slice = Slice { party: slice.party.clone(), length };
            self.rotation.ran(&planned.members, &slice, at);
            at = at.saturating_add(nanos(length).max(1));
        }
    }

    /// The same of one that nobody keeps from running.
    pub(super) fn account_alone(&mut self, apid: Apid, until_ns: u64) {
        let Some(since) = self.alone.get_mut(&apid) else { return };
        let began = std::mem::replace(since, until_ns.max(*since));
        if self.levels.with(apid).is_some() {
            return;
        }
        let length = Duration::from_nanos(until_ns.saturating_sub(began));
        self.rotation.ran(&[apid], &Slice { party: vec![apid], length }, began);
    }

    /// The rotation goes on with one that has had so much by now: by another order, or as a node says.
    pub(in crate::scheduler) fn resume(&mut self, apid: Apid, had: Duration, now_ns: u64) {
        self.rotation.set_attained(apid, had);
        if let Some(since) = self.alone.get_mut(&apid) {
            *since = now_ns.max(*since);
        }
    }
}
