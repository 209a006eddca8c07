//! What screens are told about turns: reading only.

use super::{Planned, Schedule};
use crate::apteam::Apid;
use crate::apteam::record::State;
use crate::gang::plan::Slice;
use crate::psched::decide::Scheduler;
use crate::variables::units::nanos;
use std::collections::BTreeMap;
use std::time::Duration;

/// The plan of a component, as it is followed.
#[derive(Clone, Copy, Debug)]
pub struct PlanView<'a> {
    /// Its number.
    pub generation: u64,
    /// Its gangs, by number.
    pub members: &'a [Apid],
    /// One after the other, and then from the beginning. None: nobody runs.
    pub slices: &'a [Slice],
    /// When the first slice begins, or began, on psched's monotonic clock.
    pub begins_ns: u64,
    /// From when on it is obeyed.
    pub from_ns: u64,
    /// All its nodes have it.
    pub agreed: bool,
}

/// Whether a gang runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It is not running, in any slice.
    None,
    /// Nobody keeps it from running.
    Always,
    /// It runs until then; the first in its party leads.
    Runs { leads: bool, until_ns: u64 },
    /// It is frozen until then; `u64::MAX`: nobody knows.
    Waits { until_ns: u64 },
    /// It is frozen, and no turn is planned for it: it is held.
    Held,
}

/// What of its time a gang has had, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Share {
    /// Since it began to run: the time run, of all.
    pub had: u32,
    /// What it would have if each user among those that may keep it from running, and its own, had as much for
    /// each unit of weight, and each of his gangs as much as the others; without shares, each that may.
    pub due: u32,
}

impl Schedule {
    /// The plan that counts for it then.
    pub(super) fn planned(&self, apid: Apid) -> Option<&Planned> {
        self.plans.get(self.plan_of.get(&apid)?)
    }

    pub(super) fn turn(&self, apid: Apid, now_ns: u64) -> Turn {
        let Some(planned) = self.planned(apid) else {
            return match self.alone.contains_key(&apid) {
                true => Turn::Always,
                // It has come, and is in no plan yet.
                false => Turn::Waits { until_ns: u64::MAX },
            };
        };
        let slices = &planned.plan.slices;
        if !slices.is_empty() && slices.iter().all(|slice| slice.party.contains(&apid)) {
            return Turn::Always;
        }
        let Some((at, began_ns, _)) = planned.at(now_ns.max(planned.from_ns)) else {
            return Turn::Held;
        };
        let on = &slices[at];
        let runs = on.party.contains(&apid);
        let mut until_ns = began_ns.saturating_add(nanos(on.length));
        // As long as the coming slices say the same.
        let coming = slices.iter().cycle().skip(at + 1).take(slices.len());
        for slice in coming.take_while(|slice| slice.party.contains(&apid) == runs) {
            until_ns = until_ns.saturating_add(nanos(slice.length));
        }
        match runs {
            true => Turn::Runs { leads: on.party.first() == Some(&apid), until_ns },
            // (Without floors the next decision says who runs, and its plan only what nodes do without psched.)
            false if planned.is_decided() => Turn::Waits { until_ns: u64::MAX },
            false if slices.iter().any(|slice| slice.party.contains(&apid)) => {
                Turn::Waits { until_ns }
            }
            false => Turn::Waits { until_ns: u64::MAX },
        }
    }

    /// Its due in thousandths.
    fn due(&self, apid: Apid) -> u32 {
        let weight = |apid: Apid| u64::from(self.accounts.weight(apid));
        let rivals = self.competition.rivals(apid);
        let all = match self.accounts.holder(apid) {
            None => rivals.into_iter().map(weight).sum::<u64>() + weight(apid),
            Some(own) => {
                let (mut holders, mut gangs) = (BTreeMap::from([(own, weight(apid))]), 1);
                for rival in rivals {
                    let Some(holder) = self.accounts.holder(rival) else { continue };
                    gangs += u64::from(holder == own);
                    holders.entry(holder).or_insert_with(|| weight(rival));
                }
                holders.values().sum::<u64>().saturating_mul(gangs)
            }
        };
        u32::try_from(weight(apid) * 1_000 / all.max(1)).unwrap_or(1_000)
    }

    /// How long it has run by then.
    pub(in crate::psched::decide) fn attained(&self, apid: Apid, now_ns: u64) -> Duration {
        if let Some(levels) = self.levels.with(apid).filter(|levels| !levels.is_told()) {
            return levels.attained(apid, now_ns);
        }
        self.accounts.attained(apid).saturating_add(self.since_account(apid, now_ns))
    }

    /// What of that is on no account yet.
    pub(in crate::psched::decide) fn since_account(&self, apid: Apid, now_ns: u64) -> Duration {
        match (self.planned(apid), self.alone.get(&apid)) {
            (Some(planned), _) => planned.time_of(apid, now_ns),
            (None, Some(since)) => Duration::from_nanos(now_ns.saturating_sub(*since)),
            (None, None) => Duration::ZERO,
        }
    }
}

impl Planned {
    /// The time that a gang has by it until then, of what is on no account yet.
    fn time_of(&self, apid: Apid, until_ns: u64) -> Duration {
        let mut at = self.accounted_ns.max(self.from_ns);
        let whole = nanos(self.plan.length());
        if whole == 0 || at >= until_ns {
            return Duration::ZERO;
        }
        let rounds = (until_ns - at) / whole;
        let of = |slice: &&Slice| slice.party.contains(&apid);
        let each: Duration = self.plan.slices.iter().filter(of).map(|slice| slice.length).sum();
        let mut time = each.saturating_mul(u32::try_from(rounds).unwrap_or(u32::MAX));
        at = at.saturating_add(rounds.saturating_mul(whole));
        while at < until_ns {
            let Some((number, _, left)) = self.at(at) else { break };
            let length = left.min(Duration::from_nanos(until_ns - at));
            if of(&&self.plan.slices[number]) {
                time = time.saturating_add(length);
            }
            at = at.saturating_add(nanos(length).max(1));
        }
        time
    }
}

impl Scheduler {
    /// The plans that count or are being agreed, by number.
    pub fn plans(&self) -> impl Iterator<Item = PlanView<'_>> {
        self.schedule.plans.iter().map(|(generation, planned)| PlanView {
            generation: *generation,
            members: &planned.members,
            slices: &planned.plan.slices,
            begins_ns: planned.begins_ns,
            from_ns: planned.from_ns,
            agreed: planned.missing.is_none(),
        })
    }

    /// Whether an application runs at this time of psched's monotonic clock, and until when.
    pub fn turn(&self, apid: Apid, now_ns: u64) -> Turn {
        match self.teams.get(&apid).map(|team| team.state) {
            Some(State::Running) => match self.schedule.turn(apid, now_ns) {
                // Its component is about to be planned.
                Turn::Held if !self.is_held(apid) => Turn::Waits { until_ns: u64::MAX },
                Turn::Waits { until_ns } => {
                    // It may lead before its next slice.
                    let overtakes = self.domain(self.domain_of(apid)).overtakes;
                    let leads = overtakes.filter(|(at, by)| *by == Some(apid) && *at > now_ns);
                    Turn::Waits { until_ns: leads.map_or(until_ns, |(at, _)| until_ns.min(at)) }
                }
                turn => turn,
            },
            _ => Turn::None,
        }
    }

    /// How long it has run by then, without the time in which it was frozen.
    pub fn attained(&self, apid: Apid, now_ns: u64) -> Duration {
        self.schedule.attained(apid, now_ns)
    }

    /// What it has had, and what was its due.
    pub fn share(&self, apid: Apid, now_ns: u64) -> Share {
        let Some((joined_ns, before)) = self.schedule.joined.get(&apid) else {
            return Share::default();
        };
        let all = u128::from(now_ns.saturating_sub(*joined_ns)).max(1);
        let had = self.attained(apid, now_ns).saturating_sub(*before).as_nanos();
        Share {
            had: u32::try_from(had.min(all) * 1_000 / all).unwrap_or(1_000),
            due: self.schedule.due(apid),
        }
    }
}
