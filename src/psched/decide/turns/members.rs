//! Who takes turns: those who come and go, are held or let go, and are to lead at once.

use super::{Schedule, Turn};
use crate::apteam::Apid;
use crate::apteam::record::{Apteam, State};
use crate::psched::decide::domain::DomainId;
use crate::psched::decide::{Now, Scheduler, domain};
use crate::variables::units::nanos;
use std::collections::BTreeSet;
use std::time::Duration;

impl Scheduler {
    /// Distinguishes this start of psched from all others. `epoch` counts its starts on its store:
    /// plans and signals are numbered above those of earlier starts. `id` is random and differs also
    /// between starts on copies of the store: tickets depend on it.
    pub fn started(&mut self, epoch: u64, id: &str) {
        self.start_id = id.to_owned();
        self.schedule.generation = self.schedule.generation.max(epoch << 32);
        self.number_signals_from(epoch);
    }

    /// What it has had is taken from the records, which have when it was launched and not how long it was
    /// frozen.
    pub(in crate::psched::decide) fn turns_restored(&mut self, apid: Apid) {
        let before = self.teams.get(&apid).map_or(Duration::ZERO, Apteam::run_before);
        self.schedule.guessed.insert(apid, before);
    }

    /// It has run so long by now, one of its nodes says. The first word counts: after it psched has seen
    /// more than a node could tell; but whole ones give idle time away, and have what others give.
    pub(in crate::psched::decide) fn turns_ran(&mut self, now: Now, apid: Apid, ran: Duration) {
        let schedule = &mut self.schedule;
        if let Some(charged) = schedule.guessed.remove(&apid) {
            schedule.charge_the_rest(apid, charged, ran, now.mono_ns);
            // (What it was idle before is in what it has had, and stays there.)
            schedule.idle.remove(&apid);
            schedule.resume(apid, ran, now.mono_ns);
            if let Some(levels) = schedule.levels.with_mut(apid) {
                levels.set_attained(apid, ran, now.mono_ns);
            }
            schedule.joined.insert(apid, (now.mono_ns, ran));
            schedule.concern(apid);
            self.want_decision_for(apid);
            return;
        }
        let whole = self.teams.get(&apid).is_some_and(|team| team.hosts.len() == 1);
        if whole
            && self.domain(self.domain_of(apid)).has_floors()
            && self.schedule.correct(apid, ran, now.mono_ns)
        {
            // By the new ranks somebody else may come first where time is given away.
            self.schedule.given.insert(apid);
            self.want_decision_for(apid);
        }
    }

    /// The same of one that has ended. `whole`: it was on one apinit, which has measured all of its time, also what
    /// it gave away without psched having heard of it.
    pub(in crate::psched::decide) fn turns_ended(
        &mut self,
        now: Now,
        apid: Apid,
        domain: DomainId,
        ran: Duration,
        whole: bool,
    ) {
        if let Some(charged) = self.schedule.guessed.remove(&apid) {
            self.schedule.charge_the_rest(apid, charged, ran, now.mono_ns);
        } else if self.domain(domain).has_floors() && whole {
            self.schedule.correct(apid, ran, now.mono_ns);
        }
    }

    /// It takes turns from now on, or no more.
    pub(in crate::psched::decide) fn turns_changed(&mut self, now: Now, apid: Apid) {
        let domain = self.domain_of(apid);
        let schedule = &mut self.schedule;
        let runs = |team: &&Apteam| team.state == State::Running;
        if self.teams.get(&apid).is_some_and(|team| !runs(&team)) {
            return;
        }
        schedule.concern(apid);
        let out = schedule.decision.is_out(apid);
        let away = out || schedule.decision.away.contains(&apid);
        let takes = |team: &&Apteam| runs(team) && team.held.is_none() && !away;
        let of = domain::at(&self.domains, domain);
        match self.teams.get(&apid).filter(takes) {
            Some(team) => {
                let had = match team.running_at_ns {
                    0 => 0,
                    began => now.wall_ns.saturating_sub(began),
                };
                let fresh = had == 0;
                let weight = of.turns.weight(&team.owner);
                let had = Duration::from_nanos(had).saturating_add(team.run_before());
                let waited =
                    if fresh { now.wall_ns - team.posted_at_ns.min(now.wall_ns) } else { 0 };
                let waited = Duration::from_nanos(waited);
                let levels = schedule.levels.of_mut(domain);
                levels.add(apid, weight, had, waited, now.mono_ns);
                levels.set_away(apid, false, now.mono_ns);
                schedule.set_width(team, of.processors, &of.turns.levels);
                schedule.accounts.add(apid, weight, had, now.mono_ns);
                schedule.set_share(team, of);
                if !schedule.joined.contains_key(&apid) {
                    // Until it has been measured.
                    schedule.accounts.set_cost(apid, of.turns.start_cost);
                }
                schedule.joined.entry(apid).or_insert((now.mono_ns, had));
                let gang = schedule.gang(self.occupancy.held(apid));
                if schedule.competition.gang(apid) != Some(&gang) {
                    schedule.competition.add(apid, gang);
                }
            }
            None => {
                if let Some(levels) = schedule.levels.with_mut(apid).filter(|_| !out) {
                    levels.set_away(apid, true, now.mono_ns);
                }
                schedule.competition.remove(apid);
            }
        }
        if self.teams.contains_key(&apid) {
            self.want_decision(domain);
        } else {
            if schedule.share_of(apid).is_some() {
                schedule.account_for(&[apid], now.mono_ns);
            }
            schedule.accounts.remove(apid);
            if let Some(levels) = schedule.levels.with_mut(apid) {
                levels.remove(apid);
            }
            schedule.decision.forget(apid);
            schedule.alone.remove(&apid);
            schedule.joined.remove(&apid);
            schedule.guessed.remove(&apid);
            schedule.idle.remove(&apid);
            schedule.early.remove(&apid);
            schedule.inherited.remove(&apid);
            schedule.changed.remove(&apid);
            let of = [schedule.plan_of.remove(&apid), schedule.asked_of.remove(&apid)];
            schedule.retire(of.into_iter().flatten());
        }
    }

    /// It has been told something that it can hear only while it runs: if it is frozen it leads next, at
    /// once.
    pub(in crate::psched::decide) fn turn_early(&mut self, now: Now, apid: Apid) {
        if matches!(self.schedule.turn(apid, now.mono_ns), Turn::Waits { .. }) {
            self.lead_next(now, apid, false);
        }
    }

    /// The same where that ends it.
    pub(in crate::psched::decide) fn turn_to_end(&mut self, now: Now, apid: Apid) {
        self.lead_next(now, apid, true);
    }

    /// It leads next, where none of its user's has done so for as many time slices as users take turns with it; what
    /// ends an application is counted apart. Without that bound whoever tells many applications something, one after
    /// the other, has all the time of the others. (At most half of it goes so: a turn is a quarter of a slice.)
    fn lead_next(&mut self, now: Now, apid: Apid, ends: bool) {
        let (Some(team), Some(planned)) = (self.teams.get(&apid), self.schedule.planned(apid))
        else {
            return;
        };
        let whose = (team.owner.uid, ends);
        if self.schedule.hurried.get(&whose).is_some_and(|until_ns| *until_ns > now.mono_ns) {
            return;
        }
        let owners = planned.members.iter().filter_map(|apid| self.teams.get(apid));
        let users: BTreeSet<u32> = owners.map(|team| team.owner.uid).collect();
        let slice = nanos(self.domain(self.domain_of(apid)).turns.time_slice);
        let until_ns = now.mono_ns.saturating_add(slice.saturating_mul(users.len() as u64));
        self.schedule.hurried.insert(whose, until_ns);
        self.schedule.early.insert(apid);
        self.schedule.concern(apid);
        self.want_decision_for(apid);
    }

    /// Everything that takes turns, on another machine or after other rules.
    pub(in crate::psched::decide) fn turns_anew(&mut self, now: Now) {
        let Schedule { first_processor, competition, .. } =
            Schedule::new(&self.machine, &self.domains);
        self.schedule.first_processor = first_processor;
        self.schedule.competition = competition;
        self.schedule.decision.seats.clear();
        let running: Vec<Apid> =
            self.teams.values().filter(|t| t.state == State::Running).map(|t| t.apid).collect();
        for apid in running {
            self.turns_changed(now, apid);
        }
    }

    /// The rules have changed: whoever takes turns does so by them from the next slice on.
    pub(in crate::psched::decide) fn turns_ruled(&mut self, now: Now) {
        self.domains_anew(now);
        self.schedule.set_half_life(self.settings.half_life, now.mono_ns);
        self.floors_anew(now);
        for team in self.teams.values() {
            let id = self.domain_named(&team.domain);
            let of = domain::at(&self.domains, id);
            let weight = of.turns.weight(&team.owner);
            self.schedule.accounts.set_weight(team.apid, weight);
            self.schedule.set_share(team, of);
            self.schedule.levels.of_mut(id).set_weight(team.apid, weight);
            self.schedule.set_width(team, of.processors, &of.turns.levels);
        }
        self.want_decisions();
        self.schedule.changed.extend(self.schedule.plan_of.keys());
        let rules = domain::rules(&self.domains);
        if *self.occupancy.rules() != rules {
            self.occupancy.set_rules(rules);
            self.learn_anew(now);
            self.schedule.decision.seats.clear();
        }
    }

    /// In each domain that has floors from now on, or none any more, what its gangs have had is kept by others.
    fn floors_anew(&mut self, now: Now) {
        for id in self.domain_ids() {
            let floors = self.domain(id).turns.floors;
            let levels = self.schedule.levels.of(id);
            if levels.is_told() == floors {
                continue;
            }
            let gangs: Vec<Apid> = levels.gangs().collect();
            for apid in gangs {
                let had = self.schedule.attained(apid, now.mono_ns);
                self.schedule.resume(apid, had, now.mono_ns);
                self.schedule.levels.of_mut(id).set_attained(apid, had, now.mono_ns);
            }
            self.schedule.levels.of_mut(id).set_told(floors, now.mono_ns);
        }
    }

    /// It is of a former start of psched.
    pub(in crate::psched::decide) fn turns_inherited(&mut self, apid: Apid, runs: bool) {
        self.schedule.inherited.insert(apid, runs);
    }
}
