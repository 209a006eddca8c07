//! The time that each gang has had, by the plans that it followed.

use super::Schedule;
use crate::apteam::Apid;
use crate::variables::units::nanos;
use std::time::Duration;

/// Time that a gang had otherwise than its plans say is put right from so much on.
const CORRECTS_FROM: Duration = Duration::from_millis(20);

impl Schedule {
    /// Puts the time that the members of a plan have had on their account.
    pub(super) fn account(&mut self, generation: u64, until_ns: u64) {
        let Some(planned) = self.plans.get_mut(&generation) else { return };
        if planned.is_decided() {
            // Levels know it.
            return;
        }
        let at = planned.accounted_ns.max(planned.from_ns);
        if at >= until_ns {
            return;
        }
        planned.accounted_ns = until_ns;
        self.account_slices(generation, at, until_ns);
    }

    /// The time between two moments, all slices at once: only sums and the last turns matter.
    fn account_slices(&mut self, generation: u64, from_ns: u64, until_ns: u64) {
        let Some(planned) = self.plans.get(&generation) else { return };
        let Some((first, _, left)) = planned.at(from_ns) else { return };
        let rounds = ((until_ns - from_ns) / planned.round.length.max(1)).saturating_sub(1);
        let whole = |round: &u64| (round.saturating_mul(rounds), None);
        let mut had: Vec<(u64, Option<u64>)> = planned.round.each.iter().map(whole).collect();
        let slices = &planned.plan.slices;
        let (mut slice, mut length) = (first, nanos(left));
        let mut at = from_ns.saturating_add(rounds.saturating_mul(planned.round.length));
        while at < until_ns {
            length = length.min(until_ns - at);
            at += length;
            for apid in &slices[slice].party {
                if let Some(member) = planned.round.index.get(*apid) {
                    had[member] = (had[member].0.saturating_add(length), Some(at));
                }
            }
            slice = (slice + 1) % slices.len();
            length = nanos(slices[slice].length);
        }
        for (apid, (time, last_ns)) in planned.members.iter().zip(had) {
            let time = Duration::from_nanos(time);
            self.accounts.had(*apid, time, last_ns, (from_ns, until_ns));
            self.levels.credit(*apid, time);
        }
    }

    /// The same of one that nobody keeps from running.
    pub(super) fn account_alone(&mut self, apid: Apid, until_ns: u64) {
        let Some(since) = self.alone.get_mut(&apid) else { return };
        let began = std::mem::replace(since, until_ns.max(*since));
        if self.levels.with(apid).is_some_and(|levels| !levels.is_told()) {
            return;
        }
        let length = Duration::from_nanos(until_ns.saturating_sub(began));
        self.accounts.had(apid, length, Some(until_ns), (began, until_ns));
        self.levels.credit(apid, length);
    }

    /// All time that the gangs of a domain have had by then, where plans say it.
    pub(in crate::psched::decide) fn account_for(&mut self, apids: &[Apid], now_ns: u64) {
        let plans = self.plans_of(apids);
        plans.into_iter().for_each(|generation| self.account(generation, now_ns));
        apids.iter().for_each(|apid| self.account_alone(*apid, now_ns));
        self.accounts.forget(now_ns);
    }

    /// A gang was idle for so much longer while no other gang waited for its processors.
    pub(in crate::psched::decide) fn was_idle(&mut self, apid: Apid, time: Duration) {
        let idle = self.idle.entry(apid).or_default();
        *idle = idle.saturating_add(time);
    }

    /// The apinit of a gang that is on no other says for how long it has run. Of that it has not had the time in
    /// which it was idle alone. Differences below [`CORRECTS_FROM`] are the time that the message took.
    /// Whether that is so much.
    pub(super) fn correct(&mut self, apid: Apid, ran: Duration, now_ns: u64) -> bool {
        self.account_for(&[apid], now_ns);
        let ran = ran.saturating_sub(self.idle.get(&apid).copied().unwrap_or_default());
        let corrects = self.accounts.attained(apid).abs_diff(ran) >= CORRECTS_FROM;
        if corrects {
            self.accounts.correct(apid, ran, now_ns);
            if let Some(levels) = self.levels.with_mut(apid).filter(|levels| levels.is_told()) {
                levels.set_attained(apid, ran, now_ns);
            }
        }
        corrects
    }

    /// Of all gangs whose time counts to a share: how much of the time that they have run has been charged.
    pub(in crate::psched::decide) fn charged(&self) -> Vec<(Apid, Duration)> {
        let idle = |apid: &Apid| self.idle.get(apid).copied().unwrap_or_default();
        // (Of one that a node has not told of yet the record before counts.)
        let of = |apid: Apid, attained: Duration| match self.guessed.get(&apid) {
            Some(charged) => (apid, charged.saturating_add(self.since_joined(apid, attained))),
            None => (apid, attained.saturating_add(idle(&apid))),
        };
        self.accounts.charged().map(|(apid, attained)| of(apid, attained)).collect()
    }

    /// What the record of a former start says that applications had been charged for.
    pub(in crate::psched::decide) fn were_charged(&mut self, all: Vec<(Apid, Duration)>) {
        for (apid, time) in all {
            if let Some(charged) = self.guessed.get_mut(&apid) {
                *charged = time;
            }
        }
    }

    /// What it has had since it takes turns, of this in all.
    fn since_joined(&self, apid: Apid, attained: Duration) -> Duration {
        let had = self.joined.get(&apid).map_or(Duration::ZERO, |(_, had)| *had);
        attained.saturating_sub(had)
    }

    /// A gang of a former start has run so long in all. Until that start ended its share was `charged` for a part of
    /// that, and since then for what it has had by its plans here: the rest is charged now.
    pub(super) fn charge_the_rest(
        &mut self,
        apid: Apid,
        charged: Duration,
        ran: Duration,
        now_ns: u64,
    ) {
        self.account_for(&[apid], now_ns);
        let since = self.since_joined(apid, self.accounts.attained(apid));
        self.accounts.set_attained(apid, charged.saturating_add(since));
        self.accounts.correct(apid, ran, now_ns);
    }

    /// An application has had so much by now: as its levels say, or a node.
    pub(in crate::psched::decide) fn resume(&mut self, apid: Apid, had: Duration, now_ns: u64) {
        self.accounts.set_attained(apid, had);
        if let Some(since) = self.alone.get_mut(&apid) {
            *since = now_ns.max(*since);
        }
    }
}
