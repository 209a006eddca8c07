//! The next plan of each component that has changed.

use super::Schedule;
use super::agree::part;
use super::planned::{Planned, Round};
use crate::apteam::Apid;
use crate::apteam::protocol::node::Command;
use crate::apteam::protocol::turns::TAKERS_MAX;
use crate::gang::floor::{self, On};
use crate::gang::plan::{Plan, Rules, SLICE_MIN, levelled};
use crate::psched::decide::{Effect, LinkId, Now, Scheduler, Turns};
use crate::variables::units::nanos;
use std::collections::BTreeSet;
use std::time::Duration;

/// From the sending of a plan to its beginning where one apinit follows it: it need not be waited for
/// others.
const SOON: Duration = Duration::from_millis(1);
/// An apinit that knows less than this of psched's clock delays no plan further, in nanoseconds.
const CLOCK_ERROR_MAX: u64 = 1_000_000_000;

impl Scheduler {
    /// Plans anew what has changed, as far as that can be done now.
    pub(in crate::psched::decide) fn turns_settle(&mut self, now: Now, out: &mut Vec<Effect>) {
        self.renew_ripe(now, out);
        self.renew_takers(now);
        self.schedule.silent.retain(|link| self.links.contains_key(link));
        // Whoever was to answer and is away now does not.
        let gone = |generation: &&u64| {
            let missing = self.schedule.plans.get(generation).and_then(|p| p.missing.as_ref());
            missing.is_none_or(|(links, _)| !links.iter().all(|l| self.links.contains_key(l)))
        };
        let gone: Vec<u64> = self.schedule.asking.iter().filter(gone).copied().collect();
        for generation in gone {
            self.withdraw(now, generation, out);
        }
        self.schedule.away.take(now.mono_ns, usize::MAX);
        self.schedule.retry_ns = None;
        let mut waits = BTreeSet::new();
        while let Some(apid) = self.schedule.changed.pop_first() {
            // Named again by one with whom it shared a plan.
            if waits.contains(&apid) {
                continue;
            }
            let members = match self.schedule.competition.gang(apid) {
                Some(_) => self.schedule.competition.component(apid),
                // Held: it has its place, and does not run.
                None => vec![apid],
            };
            let former = self.schedule.plans_of(&members);
            self.schedule.concern_others(&former, &members);
            let asked = members.iter().any(|apid| self.schedule.asked_of.contains_key(apid));
            let until = self.away_until(&members);
            for apid in &members {
                self.schedule.changed.remove(apid);
            }
            if asked || until.is_some() {
                if let Some(until) = until.filter(|_| !asked) {
                    let sooner = self.schedule.retry_ns.map_or(until, |at| at.min(until));
                    self.schedule.retry_ns = Some(sooner);
                }
                for apid in &members {
                    self.let_wait(now, *apid, out);
                }
                waits.extend(members);
            } else {
                self.plan_component(now, members, &former, out);
            }
        }
        self.schedule.changed = waits;
    }

    /// Plans that would have to be made anew soon are made anew with what happens now.
    fn renew_ripe(&mut self, now: Now, out: &mut Vec<Effect>) {
        while let Some((_, generation)) = self.schedule.due.first().copied() {
            let planned = self.schedule.plans.get(&generation);
            let Some(planned) = planned.filter(|p| p.is_ripe(now.mono_ns)) else { return };
            let concerned = planned.members.iter().any(|a| self.schedule.changed.contains(a));
            if !concerned && self.may_say_again(generation, planned) {
                self.say_again(now, generation, out);
            } else {
                self.schedule.changed.extend(&planned.members);
                self.schedule.due.pop_first();
            }
        }
    }

    /// Whether nothing but the time is to be another in a plan: all have it, and the one apinit that follows
    /// it has heard of it.
    fn may_say_again(&self, generation: u64, planned: &Planned) -> bool {
        let schedule = &self.schedule;
        let has = |apid: &Apid| {
            schedule.plan_of.get(apid) == Some(&generation) && !schedule.asked_of.contains_key(apid)
        };
        planned.asked.len() == 1
            && schedule.silent.is_empty()
            && schedule.away.is_empty()
            && planned.members.iter().all(has)
            && self.links_of_all(&planned.members) == planned.asked
    }

    /// The same plan from now on, by which a decision is carried out.
    fn say_again(&mut self, now: Now, generation: u64, out: &mut Vec<Effect>) {
        let schedule = &mut self.schedule;
        let Some(mut planned) = schedule.remove(generation) else { return };
        let slices = |apid: &Apid| self.domain(self.domain_of(*apid)).turns.slices();
        let rules = planned.members.first().map(slices);
        let schedule = &mut self.schedule;
        debug_assert!(
            !schedule.changed.is_empty()
                || rules.is_none_or(|of| schedule.levelled(&planned.members, &of) == planned.plan),
            "{planned:?}"
        );
        let from_ns = now.mono_ns.saturating_add(nanos(SOON)).max(planned.from_ns);
        (planned.begins_ns, planned.from_ns, planned.accounted_ns) = (from_ns, from_ns, from_ns);
        planned.early.clear();
        schedule.generation += 1;
        let generation = schedule.generation;
        schedule.plan_of.extend(planned.members.iter().map(|apid| (*apid, generation)));
        let plan = |link| Command::Plan(Box::new(part(self, generation, &planned, link, true)));
        let command = |link: &LinkId| Effect::Command { link: *link, command: plan(*link) };
        out.extend(planned.asked.iter().map(command));
        self.schedule.insert(generation, planned);
    }

    /// The order in which these get the time that one of them gives away: that of turns, without those who lead.
    /// (By the next turn alone a program that sleeps would cost its own user the place before others.)
    fn takers(&self, now: Now, members: &[Apid]) -> Vec<Apid> {
        let domain = self.domain_of(members[0]);
        let rules = &self.domain(domain).turns.levels;
        let levels = self.schedule.levels.of(domain);
        let waits = |apid: &&Apid| !self.schedule.decision.party.contains(*apid);
        let place = |apid| levels.place(apid, rules, now.mono_ns);
        let mut order: Vec<_> =
            members.iter().filter(waits).filter_map(|apid| Some((place(*apid)?, *apid))).collect();
        if order.len() > TAKERS_MAX {
            order.select_nth_unstable(TAKERS_MAX);
            order.truncate(TAKERS_MAX);
        }
        order.sort_unstable();
        order.into_iter().map(|(_, apid)| apid).collect()
    }

    /// A plan by which time was given away is made anew where another member is to get that first.
    fn renew_takers(&mut self, now: Now) {
        let given: Vec<Apid> = std::mem::take(&mut self.schedule.given).into_iter().collect();
        for generation in self.schedule.plans_of(&given) {
            let planned = self.schedule.plans.get(&generation);
            let Some(planned) = planned.filter(|planned| !planned.takers.is_empty()) else {
                continue;
            };
            if self.takers(now, &planned.members).first() != planned.takers.first() {
                self.schedule.concern_others(&[generation], &[]);
            }
        }
    }

    /// Until when nodes of these that are away are waited for.
    fn away_until(&self, members: &[Apid]) -> Option<u64> {
        let away = &self.schedule.away;
        if away.is_empty() {
            // (Mostly, and there are many nodes.)
            return None;
        }
        let teams = members.iter().filter_map(|apid| self.teams.get(apid));
        let places = teams.clone().map(|team| team.places.0.len()).sum::<usize>();
        if places <= away.len() {
            let nids = teams.flat_map(|team| team.places.nids());
            return nids.filter_map(|nid| away.of(nid)).max();
        }
        away.last_of(|nid| members.iter().any(|apid| self.occupancy.holds(*apid, nid)))
    }

    /// A new plan for a component, whose members have these, and on its way to its nodes.
    fn plan_component(
        &mut self,
        now: Now,
        members: Vec<Apid>,
        former: &[u64],
        out: &mut Vec<Effect>,
    ) {
        let domain = self.domain_of(members[0]);
        let turns = &self.domain(domain).turns;
        // They are of one domain, but where they were adopted. The decisions of several domains do not go
        // together: nobody leads by them, and each has floors, so that none is left out.
        let mixed = !members.iter().all(|apid| self.is_of(*apid, domain));
        let (rules, plan_lead) = (turns.slices(), turns.plan_lead);
        let floors = turns.floors || mixed;
        let all = self.links_of_all(&members);
        let schedule = &mut self.schedule;
        let held = members.len() == 1 && schedule.competition.gang(members[0]).is_none();
        let inherited = schedule.inherited.contains_key(&members[0]);
        let decision = &schedule.decision;
        let runs =
            floors && !decision.is_rolled_out(members[0]) || decision.party.contains(&members[0]);
        if members.len() == 1 && former.is_empty() && !held && !inherited && runs {
            schedule.alone.entry(members[0]).or_insert(now.mono_ns);
            schedule.early.remove(&members[0]);
            return;
        }
        let asked: BTreeSet<LinkId> = match schedule.silent.is_empty() {
            true => all,
            false => all.difference(&schedule.silent).copied().collect(),
        };
        // All are to have the plan before it begins, also by a clock that is ahead of psched's.
        let worst = asked.iter().filter_map(|link| self.links.get(link));
        let worst =
            worst.map(|link| link.clock.at(now.mono_ns).1).max().unwrap_or(0).min(CLOCK_ERROR_MAX);
        let lead = if asked.len() > 1 { plan_lead } else { SOON };
        let lead = lead.saturating_add(Duration::from_nanos(worst));
        let before = former.iter().filter_map(|g| schedule.plans.get(g)).map(|p| p.from_ns).max();
        let from_ns = now.mono_ns.saturating_add(nanos(lead)).max(before.unwrap_or(0));
        for generation in former {
            schedule.account(*generation, from_ns);
        }
        for apid in &members {
            schedule.account_alone(*apid, from_ns);
        }
        let mut early: BTreeSet<Apid> =
            members.iter().filter_map(|apid| schedule.early.take(apid)).collect();
        schedule.hurried.retain(|_, until_ns| *until_ns > from_ns);
        let (plan, begins_ns) = if held {
            (Plan { slices: Vec::new(), repeats: true }, from_ns)
        } else if floors {
            schedule.floored(&members, former, &rules, from_ns, &early, mixed)
        } else {
            (schedule.levelled(&members, &rules), from_ns)
        };
        if begins_ns < from_ns {
            // They are on.
            early.clear();
        }
        schedule.generation += 1;
        let generation = schedule.generation;
        let missing = (asked.len() > 1).then(|| {
            let until = from_ns.saturating_sub(nanos(lead) / 4);
            (asked.clone(), until)
        });
        let agreed = missing.is_none();
        let accounted_ns = from_ns;
        let takers = if floors && !mixed { self.takers(now, &members) } else { Vec::new() };
        let planned = Planned {
            round: Round::of(&members, &plan),
            members,
            plan,
            begins_ns,
            from_ns,
            lead_ns: nanos(lead),
            accounted_ns,
            asked,
            missing,
            floors,
            early,
            takers,
        };
        let plan = |link| Command::Plan(Box::new(part(self, generation, &planned, link, agreed)));
        let command = |link: &LinkId| Effect::Command { link: *link, command: plan(*link) };
        out.extend(planned.asked.iter().map(command));
        let schedule = &mut self.schedule;
        if agreed {
            schedule.have(&planned.members, generation);
            schedule.insert(generation, planned);
            self.say_agreed(generation, true, out);
        } else {
            schedule.asked_of.extend(planned.members.iter().map(|apid| (*apid, generation)));
            schedule.asking.insert(generation);
            schedule.insert(generation, planned);
        }
    }
}

impl Schedule {
    /// Whom the plan of an application names for what is given.
    #[cfg(test)]
    pub(in crate::psched::decide) fn takers_of(&self, apid: Apid) -> &[Apid] {
        let plan = self.plan_of.get(&apid).and_then(|generation| self.plans.get(generation));
        plan.map_or(&[], |plan| &plan.takers)
    }

    /// The plan of a component by the decision that is in force.
    fn levelled(&self, members: &[Apid], rules: &Rules) -> Plan {
        levelled(&self.competition, members, &self.decision.party, rules.time_slice)
    }

    /// The plan of a component from then on by the decision that is in force, with floors, and when it begins.
    /// `mixed`: its members are of several domains.
    fn floored(
        &self,
        members: &[Apid],
        former: &[u64],
        rules: &Rules,
        from_ns: u64,
        early: &BTreeSet<Apid>,
        mixed: bool,
    ) -> (Plan, u64) {
        // The slice that is on by then, and has most left.
        let mut on: Option<(Duration, u64, On<'_>)> = None;
        let mut early: Vec<Apid> =
            early.iter().copied().filter(|apid| members.binary_search(apid).is_ok()).collect();
        for planned in former.iter().filter_map(|generation| self.plans.get(generation)) {
            let Some((number, began_ns, left)) = planned.at(from_ns) else { continue };
            // What it would begin with again is no slice that is to go on.
            if planned.floors && planned.is_overdue(from_ns) {
                continue;
            }
            let slices = &planned.plan.slices;
            let slice = &slices[number];
            early.retain(|apid| !slice.party.contains(apid));
            let is_here = |apid: &Apid| members.binary_search(apid).is_ok();
            let goes_on = planned.floors && slices.len() > 1;
            // (A lead goes on with whoever leads now: else those who end in theirs would put off the floor. A floor
            // is over with the gang that had it.)
            let gone = slice.floor && !slice.party.iter().any(is_here);
            if goes_on && on.as_ref().is_none_or(|(most, ..)| left > *most) {
                let before = slices[..number].iter().rev().take_while(|before| before.floor);
                let floors = before.count() as u32;
                on = Some((left, began_ns, On { slice, floors, over: gone || left < SLICE_MIN }));
            }
        }
        let (began_ns, on) = match on.filter(|_| early.is_empty()) {
            Some((_, began_ns, on)) => (if on.over { from_ns } else { began_ns }, Some(on)),
            None => (from_ns, None),
        };
        let is_out = |apid| !mixed && self.decision.is_rolled_out(apid);
        let none = BTreeSet::new();
        let leads = if mixed { &none } else { &self.decision.party };
        let chosen = floor::Chosen { leads, early: &early, is_out: &is_out };
        let (competition, accounts) = (&self.competition, &self.accounts);
        let plan = floor::plan(competition, accounts, members, chosen, rules, from_ns, on.as_ref());
        // (A lead that was longer, because of memory that came in, is over now.)
        let over = plan
            .slices
            .first()
            .is_none_or(|first| began_ns.saturating_add(nanos(first.length)) <= from_ns);
        (plan, if over { from_ns } else { began_ns })
    }
}

impl Turns {
    /// What of them says how slices are made.
    fn slices(&self) -> Rules {
        let Turns { time_slice, switch_share, .. } = *self;
        Rules { time_slice, switch_share }
    }
}
