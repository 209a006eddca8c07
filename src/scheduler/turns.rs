//! Turns: the slice plans of the gangs that run, and how nodes come to follow them.
//!
//! # Problem
//! Gangs come and go, nodes are slow, silent or away, and psched may be killed at any instruction. At
//! each of these a plan must be in force that every node concerned has, or the former one must stay; and
//! what one component does must cost the others nothing.
//!
//! # Approach
//! [`Schedule`] keeps the graph of who competes, the order of turns, and the plan of each component
//! ([`crate::gang`]). What changes is noted while an event is applied; at its end each component that is
//! concerned is planned anew. The new plan goes to the apinits that hold its members:
//!
//! ```text
//!   one apinit      Plan(agreed), obeyed at once
//!   several         Plan to all --> PlanTaken from all --> AgreePlan to all      from now + plan_lead on
//!                   not from all in three quarters of that: WithdrawPlan to all, and the same
//!                   without the silent ones, which are told what was agreed
//! ```
//!
//! A component with a plan that is being agreed is not planned again before that is decided, so that
//! arrivals without end hold up nothing. Nodes that are away are waited for, a little; after that a plan
//! is made without them. Who comes back is told the plans of what it holds. A gang that comes meanwhile is
//! told to wait, where it is on several apinits: it would run on some of them only.
//!
//! A gang alone in its component needs no plan: nodes let run what nobody keeps from it. Under round
//! robin a new plan goes on with the slice that is on, and whoever has come leads after that; by least
//! attained service a decision is taken at once.
//!
//! Nothing of this is on record: after a restart nodes go on by the plans that they have until they are
//! told others, whose generations are higher. So a gang of a former start is told even that it is alone.

mod view;

pub use view::{PlanView, Share, Turn};

use super::decide::Decision;
use super::ends::nanos;
use super::{Effect, LinkId, Now, Scheduler, Settings};
use crate::apteam::record::{Apteam, State};
use crate::apteam::talk::node::Command;
use crate::apteam::talk::turns::{PlannedSlice, SlicePlan};
use crate::apteam::{Apid, Key};
use crate::gang::Gang;
use crate::gang::competition::Competition;
use crate::gang::levels::{self, Levels};
use crate::gang::plan::{Plan, Slice, levelled, plan};
use crate::gang::rotation::{Rotation, Rules, SLICE_MIN};
use crate::machine::{Machine, Nid};
use crate::occupancy::Held;
use crate::variables::Order;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// From the sending of a plan to its beginning where one apinit follows it: it need not be waited for
/// others.
const SOON: Duration = Duration::from_millis(1);
/// How long nodes that are away are waited for before a plan is made without them.
const AWAY: Duration = Duration::from_secs(2);

/// A plan, and how far it is.
#[derive(Clone, Debug)]
struct Planned {
    /// Everybody whom it is about, by number.
    members: Vec<Apid>,
    plan: Plan,
    /// Where positions are counted from.
    begins_ns: u64,
    /// From when on it is obeyed.
    from_ns: u64,
    /// Time had is on the account of its members until then.
    accounted_ns: u64,
    /// The apinits that were asked.
    asked: BTreeSet<LinkId>,
    /// Those of them that have not answered, and until when they may.
    missing: Option<(BTreeSet<LinkId>, u64)>,
    /// By which order it was made.
    order: Order,
    /// Who is to lead at once by it.
    early: BTreeSet<Apid>,
}

impl Planned {
    /// The slice that is on then, since when, and how much of it is left.
    fn at(&self, ns: u64) -> Option<(&Slice, u64, Duration)> {
        let after = Duration::from_nanos(ns.saturating_sub(self.begins_ns));
        let (number, left) = self.plan.at(after)?;
        let slice = &self.plan.slices[number];
        let gone = slice.length.saturating_sub(left);
        Some((slice, ns.saturating_sub(nanos(gone)), left))
    }

    /// When it has to be made anew.
    fn over_ns(&self) -> Option<u64> {
        if self.order == Order::LeastAttainedService && !self.plan.repeats {
            // Long before who runs gives way to whoever waits.
            let first = self.plan.slices.first().map_or(0, |slice| nanos(slice.length) / 2);
            return Some(self.begins_ns.saturating_add(first));
        }
        let over = || self.begins_ns.saturating_add(nanos(self.plan.length()));
        (!self.plan.repeats && !self.plan.slices.is_empty()).then(over)
    }

    /// When something is to be done about it; `u64::MAX`: never.
    fn due_ns(&self) -> u64 {
        match (&self.missing, self.over_ns()) {
            (Some((_, until_ns)), _) => *until_ns,
            // A little before, so that it does not begin again.
            (None, Some(over)) => over.saturating_sub(nanos(SLICE_MIN)),
            (None, None) => u64::MAX,
        }
    }
}

/// How the gangs that run take turns.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    /// The first processor of each node on the line, counted over all of them.
    first_processor: Vec<u32>,
    /// Processors for applications.
    processors: u64,
    competition: Competition,
    rotation: Rotation,
    /// By generation.
    plans: BTreeMap<u64, Planned>,
    /// When each of them is due.
    due: BTreeSet<(u64, u64)>,
    /// Those that are being agreed.
    asking: BTreeSet<u64>,
    /// The agreed plan of each gang that has one.
    plan_of: BTreeMap<Apid, u64>,
    /// The one that is being agreed.
    asked_of: BTreeMap<Apid, u64>,
    /// Gangs that nobody keeps from running, and since when that is on their account.
    alone: BTreeMap<Apid, u64>,
    /// When each began to take turns, and what it had had by then.
    joined: BTreeMap<Apid, (u64, Duration)>,
    /// Those of them of which that is only how long ago they were launched, until a node has said it.
    guessed: BTreeSet<Apid>,
    /// Those of a former start of psched, of whom nodes may have plans that are not known here, and
    /// whether they ran then.
    inherited: BTreeMap<Apid, bool>,
    /// Whose component is to be planned anew.
    changed: BTreeSet<Apid>,
    /// By least attained service: who has had what, and who runs where by the last decision.
    pub(super) levels: Levels,
    pub(super) decision: Decision,
    /// Who is to lead at once.
    early: BTreeSet<Apid>,
    /// Who has done so, and until when it does not again.
    hurried: BTreeMap<Apid, u64>,
    /// Apinits that did not answer in time.
    silent: BTreeSet<LinkId>,
    /// Nodes that went, and until when they are waited for.
    away: BTreeMap<Nid, u64>,
    /// When a component that waits for such nodes is planned without them.
    retry_ns: Option<u64>,
    generation: u64,
}

impl Schedule {
    pub(super) fn new(machine: &Machine) -> Schedule {
        let mut first_processor = Vec::with_capacity(machine.nodes.len());
        let mut processors = 0u32;
        for node in machine.nodes.values() {
            first_processor.push(processors);
            processors = processors.saturating_add(node.processors);
        }
        let memory = |node: &crate::machine::Node| match node.memory {
            0 => u64::MAX,
            bytes => bytes,
        };
        let memory = machine.nodes.values().map(memory).collect();
        Schedule {
            first_processor,
            processors: machine.application_processors(),
            competition: Competition::new(processors as usize, memory),
            rotation: Rotation::default(),
            plans: BTreeMap::new(),
            due: BTreeSet::new(),
            asking: BTreeSet::new(),
            plan_of: BTreeMap::new(),
            asked_of: BTreeMap::new(),
            alone: BTreeMap::new(),
            joined: BTreeMap::new(),
            guessed: BTreeSet::new(),
            inherited: BTreeMap::new(),
            changed: BTreeSet::new(),
            levels: Levels::default(),
            decision: Decision::default(),
            early: BTreeSet::new(),
            hurried: BTreeMap::new(),
            silent: BTreeSet::new(),
            away: BTreeMap::new(),
            retry_ns: None,
            generation: 0,
        }
    }

    /// What of an application decides whom it may run with, by what it holds.
    fn gang(&self, held: &[Held]) -> Gang {
        let first = |held: &Held| self.first_processor.get(held.at).copied().unwrap_or(0);
        let of = |held: &Held| {
            let first = first(held);
            held.processors.iter().map(|p| first.saturating_add(*p)).collect::<Vec<u32>>()
        };
        let memory = |held: &Held| (held.at as u32, held.memory);
        Gang {
            processors: held.iter().flat_map(of).collect(),
            memory: held.iter().map(memory).collect(),
        }
    }

    /// Everybody who shares a plan with this one is concerned too, unless he is about to have another.
    pub(super) fn concern(&mut self, apid: Apid) {
        self.concern_all(&[apid]);
    }

    /// The same of each of these: a plan that several of them share is gone through once.
    pub(super) fn concern_all(&mut self, apids: &[Apid]) {
        self.changed.extend(apids);
        let (plan_of, asked_of) = (&self.plan_of, &self.asked_of);
        let generations: BTreeSet<u64> =
            apids.iter().filter_map(|apid| plan_of.get(apid).copied()).collect();
        for generation in &generations {
            let Some(planned) = self.plans.get(generation) else { continue };
            let shares = |other: &&Apid| {
                plan_of.get(other) == Some(generation) && !asked_of.contains_key(other)
            };
            self.changed.extend(planned.members.iter().filter(shares));
        }
    }

    /// A gang counts with so many bytes on the node at this place of the line.
    pub(super) fn set_memory(&mut self, apid: Apid, at: usize, bytes: u64) {
        let node = u32::try_from(at).unwrap_or(u32::MAX);
        if self.competition.set_memory(apid, node, bytes) {
            self.decision.wanted = true;
            self.concern(apid);
        }
    }

    /// Bringing the memory of a gang in costs what is made of what it did before.
    pub(super) fn set_cost(&mut self, apid: Apid, cost: impl Fn(Duration) -> Duration) {
        let cost = cost(self.rotation.cost(apid));
        if self.rotation.set_cost(apid, cost) {
            self.concern(apid);
        }
    }

    /// Puts the time that the members of a plan have had on their account.
    fn account(&mut self, generation: u64, until_ns: u64) {
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
    fn account_alone(&mut self, apid: Apid, until_ns: u64) {
        let Some(since) = self.alone.get_mut(&apid) else { return };
        let began = std::mem::replace(since, until_ns.max(*since));
        if self.levels.contains(apid) {
            return;
        }
        let length = Duration::from_nanos(until_ns.saturating_sub(began));
        self.rotation.ran(&[apid], &Slice { party: vec![apid], length }, began);
    }

    /// What bringing the memory of a gang in takes, as its nodes have measured it.
    pub(super) fn cost(&self, apid: Apid) -> Duration {
        self.rotation.cost(apid)
    }

    /// Who is to lead at once.
    pub(super) fn early(&self) -> Vec<Apid> {
        self.early.iter().copied().collect()
    }

    /// The weight of a gang.
    pub(super) fn weight(&self, apid: Apid) -> u32 {
        self.rotation.weight(apid)
    }

    /// Whether it can't run beside these, or has no turn at all.
    pub(super) fn is_in_the_way(&self, apid: Apid, party: &BTreeSet<Apid>) -> bool {
        self.competition.gang(apid).is_none()
            || self.competition.crowded(apid).next().is_some()
            || self.competition.competitors(apid).any(|other| party.contains(&other))
    }

    /// It competes with nobody: its memory is out.
    pub(super) fn competition_without(&mut self, apid: Apid) {
        self.competition.remove(apid);
    }

    /// Which share of the machine an application has.
    fn set_width(&mut self, team: &Apteam, rules: &levels::Rules) {
        let of = team.posting.shape.processors().saturating_mul(1_000_000);
        self.levels.set_width(team.apid, of / self.processors.max(1), rules);
    }

    /// The rotation goes on with one that has had so much by now: by another order, or as a node says.
    pub(super) fn resume(&mut self, apid: Apid, had: Duration, now_ns: u64) {
        self.rotation.set_attained(apid, had);
        if let Some(since) = self.alone.get_mut(&apid) {
            *since = now_ns.max(*since);
        }
    }

    /// Forgets plans that are nobody's any more.
    fn retire(&mut self, generations: impl IntoIterator<Item = u64>) {
        for generation in generations {
            let Some(planned) = self.plans.get(&generation) else { continue };
            let still = |apid: &Apid| {
                self.plan_of.get(apid) == Some(&generation)
                    || self.asked_of.get(apid) == Some(&generation)
            };
            if !planned.members.iter().any(still) {
                self.remove(generation);
            }
        }
    }

    fn insert(&mut self, generation: u64, planned: Planned) {
        self.due.insert((planned.due_ns(), generation));
        self.plans.insert(generation, planned);
    }

    fn remove(&mut self, generation: u64) -> Option<Planned> {
        let planned = self.plans.remove(&generation)?;
        self.due.remove(&(planned.due_ns(), generation));
        Some(planned)
    }

    /// When something is to be done next without an event.
    pub(super) fn deadline(&self) -> Option<u64> {
        let due = self.due.first().map(|(at, _)| *at).filter(|at| *at < u64::MAX);
        due.into_iter().chain(self.retry_ns).chain(self.decision.due_ns).min()
    }

    /// The plan of a component from then on, and when it begins. `early`: who of it is to lead at once.
    fn next_plan(
        &self,
        members: &[Apid],
        former: &BTreeSet<u64>,
        (order, rules): (Order, &Rules),
        from_ns: u64,
        early: &BTreeSet<Apid>,
    ) -> (Plan, u64) {
        if order == Order::LeastAttainedService {
            let party = &self.decision.party;
            return (levelled(&self.competition, members, party, rules.time_slice), from_ns);
        }
        let here: BTreeSet<Apid> = members.iter().copied().collect();
        // Who runs by then, and whose slice has most left.
        let mut runs: Vec<Apid> =
            here.iter().copied().filter(|a| self.alone.contains_key(a)).collect();
        let mut on: Option<(Duration, u64, &Slice)> = None;
        for planned in former.iter().filter_map(|generation| self.plans.get(generation)) {
            let Some((slice, began_ns, left)) = planned.at(from_ns) else { continue };
            runs.extend(slice.party.iter().filter(|apid| here.contains(apid)));
            // What begins again only because the next plan is late is not gone on with; nor what was
            // until a level's bound, where there are slices now.
            let leads = planned.plan.slices.len() > 1
                && planned.order == order
                && left >= SLICE_MIN
                && planned.over_ns().is_none_or(|over_ns| from_ns < over_ns)
                && slice.party.first().is_some_and(|leader| here.contains(leader));
            if leads && on.is_none_or(|(most, ..)| left > most) {
                on = Some((left, began_ns, slice));
            }
        }
        let early: Vec<Apid> = early.iter().copied().filter(|apid| !runs.contains(apid)).collect();
        let on = on.filter(|_| early.is_empty());
        let Some((_, began_ns, slice)) = on else {
            let plan = plan(&self.competition, &self.rotation, members, rules, from_ns, &early);
            return (plan, from_ns);
        };
        let leader = slice.party.first().copied();
        let others = runs.iter().copied().filter(|apid| Some(*apid) != leader);
        let first: Vec<Apid> = leader.into_iter().chain(others).collect();
        let mut plan = plan(&self.competition, &self.rotation, members, rules, from_ns, &first);
        if let Some(first) = plan.slices.first_mut().filter(|f| f.length != slice.length) {
            // Once: slices have another length now, and a repetition would go on with this one. No longer
            // than one of these from now on: an hour that was not meant is soon over.
            let gone = Duration::from_nanos(from_ns.saturating_sub(began_ns));
            first.length = slice.length.min(gone.saturating_add(first.length));
            plan.repeats = false;
        }
        (plan, began_ns)
    }
}

impl Settings {
    pub(super) fn rules(&self) -> Rules {
        Rules {
            time_slice: self.turns.time_slice,
            longest_wait: self.turns.longest_wait,
            switch_share: self.turns.switch_share,
        }
    }
}

/// The part of a plan that an apinit is told: its members there, and what of each slice is theirs.
fn part(
    s: &Scheduler,
    generation: u64,
    planned: &Planned,
    link: LinkId,
    agreed: bool,
) -> SlicePlan {
    let here = |apid: &Apid| {
        let team = s.teams.get(apid)?;
        s.linked.get(apid)?.contains(&link).then(|| team.key())
    };
    // (By number, as those of the plan are.)
    let members: Vec<Key> = planned.members.iter().filter_map(here).collect();
    let key = |apid: &Apid| {
        let at = members.binary_search_by_key(apid, |key| key.apid).ok()?;
        Some(members[at])
    };
    let slice = |slice: &Slice| PlannedSlice {
        length: slice.length,
        party: slice.party.iter().filter_map(key).collect(),
    };
    let slices = planned.plan.slices.iter().map(slice).collect();
    SlicePlan {
        generation,
        begins_ns: planned.begins_ns,
        from_ns: planned.from_ns,
        agreed,
        slices,
        members,
    }
}

impl Scheduler {
    /// psched has started on its store for so many times: plans are numbered above those of its starts
    /// before.
    pub fn started(&mut self, epoch: u64) {
        self.schedule.generation = self.schedule.generation.max(epoch << 32);
    }

    /// What it has had is taken from the records, which have when it was launched and not how long it was
    /// frozen.
    pub(super) fn turns_restored(&mut self, apid: Apid) {
        self.schedule.guessed.insert(apid);
    }

    /// It has run so long by now, one of its nodes says. The first word counts: after it psched has seen
    /// more than a node could tell.
    pub(super) fn turns_ran(&mut self, now: Now, apid: Apid, ran: Duration) {
        let schedule = &mut self.schedule;
        if schedule.guessed.remove(&apid) {
            schedule.resume(apid, ran, now.mono_ns);
            schedule.levels.set_attained(apid, ran, now.mono_ns);
            schedule.joined.insert(apid, (now.mono_ns, ran));
            schedule.concern(apid);
        }
    }

    /// It takes turns from now on, or no more.
    pub(super) fn turns_changed(&mut self, now: Now, apid: Apid) {
        let schedule = &mut self.schedule;
        let runs = |team: &&Apteam| team.state == State::Running;
        if self.teams.get(&apid).is_some_and(|team| !runs(&team)) {
            return;
        }
        schedule.concern(apid);
        let out = schedule.decision.is_out(apid);
        let away = out || schedule.decision.away.contains(&apid);
        let takes = |team: &&Apteam| runs(team) && team.held.is_none() && !away;
        let decides = self.settings.turns.order == Order::LeastAttainedService;
        match self.teams.get(&apid).filter(takes) {
            Some(team) => {
                let had = match team.running_at_ns {
                    0 => 0,
                    began => now.wall_ns.saturating_sub(began),
                };
                let weight = self.settings.turns.weight(&team.owner);
                let had = Duration::from_nanos(had);
                if decides {
                    let waited = if had.is_zero() {
                        now.wall_ns - team.posted_at_ns.min(now.wall_ns)
                    } else {
                        0
                    };
                    let waited = Duration::from_nanos(waited);
                    schedule.levels.add(apid, weight, had, waited, now.mono_ns);
                    schedule.levels.set_away(apid, false, now.mono_ns);
                    schedule.set_width(team, &self.settings.turns.levels);
                }
                schedule.rotation.add(apid, weight, had, now.mono_ns);
                if !schedule.joined.contains_key(&apid) {
                    // Until it has been measured.
                    schedule.rotation.set_cost(apid, self.settings.turns.start_cost);
                }
                schedule.joined.entry(apid).or_insert((now.mono_ns, had));
                let gang = schedule.gang(self.occupancy.held(apid));
                if schedule.competition.gang(apid) != Some(&gang) {
                    schedule.competition.add(apid, gang);
                }
            }
            None => {
                if !out {
                    schedule.levels.set_away(apid, true, now.mono_ns);
                }
                schedule.competition.remove(apid);
            }
        }
        schedule.decision.wanted = true;
        if !self.teams.contains_key(&apid) {
            schedule.rotation.remove(apid);
            schedule.levels.remove(apid);
            schedule.decision.forget(apid);
            schedule.alone.remove(&apid);
            schedule.joined.remove(&apid);
            schedule.guessed.remove(&apid);
            schedule.early.remove(&apid);
            schedule.hurried.remove(&apid);
            schedule.inherited.remove(&apid);
            schedule.changed.remove(&apid);
            let of = [schedule.plan_of.remove(&apid), schedule.asked_of.remove(&apid)];
            schedule.retire(of.into_iter().flatten());
        }
    }

    /// It has been told something that it can hear only while it runs: if it is frozen it leads next, at
    /// once. But once in a round, or whoever tells his own something again and again would have the time of
    /// the others.
    pub(super) fn turn_early(&mut self, now: Now, apid: Apid) {
        let until_ns = self.schedule.hurried.get(&apid);
        let again = until_ns.is_some_and(|until_ns| *until_ns > now.mono_ns);
        if !again && matches!(self.schedule.turn(apid, now.mono_ns), Turn::Waits { .. }) {
            self.lead_next(apid);
        }
    }

    /// The same where that ends it, which is not done again and again.
    pub(super) fn turn_to_end(&mut self, apid: Apid) {
        self.schedule.hurried.remove(&apid);
        self.lead_next(apid);
    }

    fn lead_next(&mut self, apid: Apid) {
        if self.schedule.plan_of.contains_key(&apid) {
            self.schedule.early.insert(apid);
            self.schedule.concern(apid);
            self.schedule.decision.wanted = true;
        }
    }

    /// Everything that takes turns, on another machine or after other rules.
    pub(super) fn turns_anew(&mut self, now: Now) {
        let Schedule { first_processor, processors, competition, .. } =
            Schedule::new(&self.machine);
        self.schedule.first_processor = first_processor;
        self.schedule.processors = processors;
        self.schedule.competition = competition;
        self.schedule.decision.seats.clear();
        let running: Vec<Apid> =
            self.teams.values().filter(|t| t.state == State::Running).map(|t| t.apid).collect();
        for apid in running {
            self.turns_changed(now, apid);
        }
    }

    /// The rules have changed: whoever takes turns does so by them from the next slice on.
    pub(super) fn turns_ruled(&mut self, now: Now, before: Order) {
        for team in self.teams.values() {
            let weight = self.settings.turns.weight(&team.owner);
            self.schedule.rotation.set_weight(team.apid, weight);
            self.schedule.levels.set_weight(team.apid, weight);
            self.schedule.set_width(team, &self.settings.turns.levels);
        }
        if before != self.settings.turns.order {
            self.order_changed(now);
        }
        self.schedule.decision.wanted = true;
        self.schedule.changed.extend(self.schedule.plan_of.keys());
    }

    /// It is of a former start of psched.
    pub(super) fn turns_inherited(&mut self, apid: Apid, runs: bool) {
        self.schedule.inherited.insert(apid, runs);
    }

    /// These nodes are not heard any more.
    pub(super) fn turns_away(&mut self, now: Now, nids: &[Nid]) {
        let until = now.mono_ns.saturating_add(nanos(AWAY));
        self.schedule.away.extend(nids.iter().map(|nid| (*nid, until)));
    }

    /// An apinit is back, or there for the first time: it is told the plans of what it holds.
    pub(super) fn turns_back(&mut self, link: LinkId, nids: &[Nid], out: &mut Vec<Effect>) {
        for nid in nids {
            self.schedule.away.remove(nid);
        }
        let holders = nids.iter().flat_map(|nid| self.occupancy.holders(*nid));
        let apids: BTreeSet<Apid> = holders.collect();
        let plan_of = |apid: &Apid| self.schedule.plan_of.get(apid).copied();
        let generations: BTreeSet<u64> = apids.iter().filter_map(plan_of).collect();
        for generation in generations {
            let Some(planned) = self.schedule.plans.get(&generation) else { continue };
            let plan = Box::new(part(self, generation, planned, link, true));
            out.push(Effect::Command { link, command: Command::Plan(plan) });
        }
    }

    /// An apinit has a plan.
    pub(super) fn plan_taken(&mut self, link: LinkId, generation: u64, out: &mut Vec<Effect>) {
        self.schedule.silent.remove(&link);
        let Some(planned) = self.schedule.plans.get_mut(&generation) else { return };
        if let Some((missing, _)) = &mut planned.missing {
            missing.remove(&link);
            if missing.is_empty() {
                self.agreed(generation, false, out);
            }
        }
    }

    /// All have it; `told`: as agreed.
    fn agreed(&mut self, generation: u64, told: bool, out: &mut Vec<Effect>) {
        let schedule = &mut self.schedule;
        schedule.asking.remove(&generation);
        let Some(mut planned) = schedule.remove(generation) else { return };
        planned.missing = None;
        let members = planned.members.clone();
        schedule.insert(generation, planned);
        let mut former = BTreeSet::new();
        for apid in &members {
            // Who has gone meanwhile is in no plan any more; its end has the others planned anew.
            if schedule.asked_of.remove(apid).is_some() {
                schedule.alone.remove(apid);
                schedule.inherited.remove(apid);
                former.extend(schedule.plan_of.insert(*apid, generation));
            }
        }
        schedule.retire(former);
        if told && schedule.silent.is_empty() {
            // All were asked.
            return;
        }
        let Some(planned) = self.schedule.plans.get(&generation) else { return };
        for link in self.links_of_all(&members) {
            let command = match planned.asked.contains(&link) {
                true if told => continue,
                true => Command::AgreePlan(generation),
                // It was silent, or has come since.
                false => Command::Plan(Box::new(part(self, generation, planned, link, true))),
            };
            out.push(Effect::Command { link, command });
        }
    }

    /// The links that stand of these applications' nodes.
    fn links_of_all(&self, members: &[Apid]) -> BTreeSet<LinkId> {
        let mut links: Vec<LinkId> =
            members.iter().filter_map(|apid| self.linked.get(apid)).flatten().copied().collect();
        links.sort_unstable();
        links.dedup();
        links.retain(|link| self.links.get(link).is_some_and(|l| l.known));
        links.into_iter().collect()
    }

    pub(super) fn turns_tick(&mut self, now: Now, out: &mut Vec<Effect>) {
        while let Some((_, generation)) =
            self.schedule.due.first().copied().filter(|(at, _)| *at <= now.mono_ns)
        {
            if self.schedule.asking.contains(&generation) {
                self.withdraw(now, generation, out);
                continue;
            }
            // Its nodes begin again with it until they have the next.
            self.schedule.due.pop_first();
            let planned = self.schedule.plans.get(&generation);
            let members = planned.map_or_else(Vec::new, |planned| planned.members.clone());
            self.schedule.changed.extend(members);
        }
    }

    /// Not all have answered in time: those are silent, and the others are asked again.
    fn withdraw(&mut self, now: Now, generation: u64, out: &mut Vec<Effect>) {
        self.schedule.asking.remove(&generation);
        let Some(planned) = self.schedule.remove(generation) else { return };
        for apid in &planned.members {
            if self.schedule.asked_of.remove(apid).is_some() {
                self.schedule.concern(*apid);
            }
        }
        for apid in &planned.early {
            self.schedule.hurried.remove(apid);
            if self.schedule.plan_of.contains_key(apid) {
                self.schedule.early.insert(*apid);
            }
        }
        for link in planned.asked.iter().filter(|link| self.links.contains_key(link)) {
            out.push(Effect::Command { link: *link, command: Command::WithdrawPlan(generation) });
        }
        for apid in &planned.members {
            self.let_wait(now, *apid, out);
        }
        self.schedule.silent.extend(planned.missing.into_iter().flat_map(|(missing, _)| missing));
    }

    /// Plans anew what has changed, as far as that can be done now.
    pub(super) fn turns_settle(&mut self, now: Now, out: &mut Vec<Effect>) {
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
        self.schedule.away.retain(|_, until| *until > now.mono_ns);
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
            self.schedule.concern_all(&members);
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
                self.plan_component(now, members, out);
            }
        }
        self.schedule.changed = waits;
    }

    /// Until when nodes of these that are away are waited for.
    fn away_until(&self, members: &[Apid]) -> Option<u64> {
        let away = &self.schedule.away;
        if away.is_empty() {
            // (Mostly, and there are many nodes.)
            return None;
        }
        let nodes = members.iter().filter_map(|apid| self.teams.get(apid));
        let nids = nodes.flat_map(|team| team.places.nids());
        nids.filter_map(|nid| away.get(&nid)).max().copied()
    }

    /// One that has come, and whose component can't be planned now, would run where its processors are
    /// free and wait where they are not: on several apinits it waits on all of them.
    fn let_wait(&mut self, now: Now, apid: Apid, out: &mut Vec<Effect>) {
        let schedule = &mut self.schedule;
        let known = schedule.plan_of.contains_key(&apid)
            || schedule.asked_of.contains_key(&apid)
            || schedule.alone.contains_key(&apid)
            || schedule.inherited.get(&apid) == Some(&true);
        let spread = self.teams.get(&apid).is_some_and(|team| team.hosts.len() > 1);
        if known || !spread {
            return;
        }
        schedule.generation += 1;
        let generation = schedule.generation;
        schedule.plan_of.insert(apid, generation);
        let asked = self.links_of_all(&[apid]);
        let planned = Planned {
            members: vec![apid],
            plan: Plan { slices: Vec::new(), repeats: true },
            begins_ns: now.mono_ns,
            from_ns: now.mono_ns,
            accounted_ns: now.mono_ns,
            asked,
            missing: None,
            order: self.settings.turns.order,
            early: BTreeSet::new(),
        };
        for link in &planned.asked {
            let plan = Box::new(part(self, generation, &planned, *link, true));
            out.push(Effect::Command { link: *link, command: Command::Plan(plan) });
        }
        self.schedule.insert(generation, planned);
    }

    /// A new plan for a component, and on its way to its nodes.
    fn plan_component(&mut self, now: Now, members: Vec<Apid>, out: &mut Vec<Effect>) {
        let rules = self.settings.rules();
        let all = self.links_of_all(&members);
        let schedule = &mut self.schedule;
        let held = members.len() == 1 && schedule.competition.gang(members[0]).is_none();
        let former: BTreeSet<u64> =
            members.iter().filter_map(|apid| schedule.plan_of.get(apid).copied()).collect();
        let inherited = schedule.inherited.contains_key(&members[0]);
        let order = self.settings.turns.order;
        let runs = order == Order::RoundRobin || schedule.decision.party.contains(&members[0]);
        if members.len() == 1 && former.is_empty() && !held && !inherited && runs {
            schedule.alone.entry(members[0]).or_insert(now.mono_ns);
            schedule.early.remove(&members[0]);
            return;
        }
        let asked: BTreeSet<LinkId> = all.difference(&schedule.silent).copied().collect();
        let lead = if asked.len() > 1 { self.settings.turns.plan_lead } else { SOON };
        let before = former.iter().filter_map(|g| schedule.plans.get(g)).map(|p| p.from_ns).max();
        let from_ns = now.mono_ns.saturating_add(nanos(lead)).max(before.unwrap_or(0));
        for generation in &former {
            schedule.account(*generation, from_ns);
        }
        for apid in &members {
            schedule.account_alone(*apid, from_ns);
        }
        let mut early: BTreeSet<Apid> =
            members.iter().filter_map(|apid| schedule.early.take(apid)).collect();
        schedule.hurried.retain(|_, until_ns| *until_ns > from_ns);
        let (plan, begins_ns) = match held {
            true => (Plan { slices: Vec::new(), repeats: true }, from_ns),
            false => schedule.next_plan(&members, &former, (order, &rules), from_ns, &early),
        };
        if begins_ns < from_ns {
            // They are on.
            early.clear();
        }
        let round_ns = from_ns.saturating_add(nanos(plan.length()));
        schedule.hurried.extend(early.iter().map(|apid| (*apid, round_ns)));
        schedule.generation += 1;
        let generation = schedule.generation;
        let missing = (asked.len() > 1).then(|| {
            let until = from_ns.saturating_sub(nanos(lead) / 4);
            (asked.clone(), until)
        });
        let agreed = missing.is_none();
        schedule.asked_of.extend(members.iter().map(|apid| (*apid, generation)));
        let accounted_ns = from_ns;
        let planned = Planned {
            members,
            plan,
            begins_ns,
            from_ns,
            accounted_ns,
            asked,
            missing,
            order,
            early,
        };
        let plan = |link| Command::Plan(Box::new(part(self, generation, &planned, link, agreed)));
        let commands: Vec<Effect> = planned
            .asked
            .iter()
            .map(|link| Effect::Command { link: *link, command: plan(*link) })
            .collect();
        out.extend(commands);
        self.schedule.insert(generation, planned);
        if agreed {
            self.agreed(generation, true, out);
        } else {
            self.schedule.asking.insert(generation);
        }
    }
}
