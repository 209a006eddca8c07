//! Turns, as far as the agent has a word in them.
//!
//! Who runs when is decided by the [`super::switcher`], which is driven apart from the agent: it must
//! not wait for anything that the agent is about. The agent tells it who comes and who goes and what
//! psched plans, keeps the plans for the next life of this apinit, and passes on how the changes went.
//!
//! An application that shares its processors goes when the switcher says that it may. One that does not
//! has no rival here ([`super::launching`]): it goes at once, and is known to the switcher all the same,
//! for psched may hold it.
//!
//! **Time run.** What limits and charges count is the time that a gang has run, which the switcher
//! keeps. It is asked for one that shares when its time limit may be over, and for everybody who has been
//! stopped or let run, and at the end. (Others run all the time.)
//!
//! **Ends.** A TERM that comes to a frozen gang waits there for its next turn, and so its grace begins
//! with that turn; but after [`TURN_WAIT`] it is over.

use super::application::{App, Grace};
use super::clock::{Reading, STEP_MIN};
use super::moves::gang;
use super::switcher::{Event as TurnEvent, News, Ran};
use super::{Action, Agent, Out, ns};
use crate::apteam::Key;
use crate::apteam::ending::Cause;
use crate::apteam::protocol::node::Report;
use crate::apteam::protocol::turns::SlicePlan;
use std::collections::BTreeSet;
use std::time::Duration;

/// How long a gang that is to end, with a grace, waits for its turn.
pub const TURN_WAIT: Duration = Duration::from_secs(30);
/// How exact a time limit is for one that takes turns.
const LIMIT_STEP: Duration = Duration::from_millis(10);

impl Agent {
    /// With the plans that a former life of this apinit held.
    pub fn planned(mut self, plans: Vec<SlicePlan>) -> Agent {
        self.plans = plans.into_iter().map(|plan| (plan.generation, plan)).collect();
        self
    }

    /// It is about to go, or goes.
    pub(super) fn comes(&self, now: u64, app: &App, going: bool, out: &mut Out) {
        let gang = gang(app);
        let ran_ns = app.run_ns(now).max(app.ran_before());
        out.push(Action::Turns(TurnEvent::Comes { gang, going, frozen: false, ran_ns }));
    }

    /// Nothing is left of it here: its processors are free.
    pub(super) fn goes(&mut self, key: Key, out: &mut Out) {
        let Some(app) = self.apps.get(&key) else { return };
        if app.entered || app.going_ns.is_some() {
            out.push(Action::Turns(TurnEvent::Goes(key)));
        }
    }

    pub(super) fn plan(&mut self, now: u64, mut plan: SlicePlan, out: &mut Out) {
        let generation = plan.generation;
        plan.from_ns = self.on_own_clock(plan.from_ns);
        plan.begins_ns = self.begins_here(&plan);
        out.push(Action::Turns(TurnEvent::Plan(plan.clone())));
        self.plans.insert(generation, plan);
        self.prune_plans(now, Some(generation), out);
        self.report(Report::PlanTaken(generation), out);
    }

    pub(super) fn agree_plan(&mut self, now: u64, generation: u64, out: &mut Out) {
        let Some(plan) = self.plans.get_mut(&generation) else { return };
        plan.agreed = true;
        out.push(Action::Turns(TurnEvent::Agree(generation)));
        self.prune_plans(now, None, out);
    }

    pub(super) fn withdraw_plan(&mut self, generation: u64, out: &mut Out) {
        if self.plans.remove(&generation).is_some() {
            out.push(Action::Turns(TurnEvent::Withdraw(generation)));
            self.keep_plans(out);
        }
    }

    /// Another store is obeyed from now on, whose plans are counted anew.
    pub(super) fn forget_plans(&mut self, out: &mut Out) {
        if !self.plans.is_empty() {
            let old = std::mem::take(&mut self.plans);
            out.extend(old.into_keys().map(|plan| Action::Turns(TurnEvent::Withdraw(plan))));
            self.keep_plans(out);
        }
    }

    fn keep_plans(&self, out: &mut Out) {
        out.push(Action::KeepPlans(self.plans.values().cloned().collect()));
    }

    /// More is known of psched's clock: what plans say is put anew on this host's.
    pub(super) fn clock_read(&mut self, reading: Reading, out: &mut Out) {
        self.clock_is_read = true;
        let step = reading.ahead_ns - self.clock_ahead_ns;
        if step.unsigned_abs() < u128::from(STEP_MIN) {
            return;
        }
        self.clock_ahead_ns = reading.ahead_ns;
        let before = std::mem::take(&mut self.plans_of_before);
        let mut stepped = false;
        for (_, plan) in self.plans.iter_mut().filter(|(plan, _)| !before.contains(plan)) {
            plan.from_ns = stepped_by(plan.from_ns, step, None);
            plan.begins_ns = stepped_by(plan.begins_ns, step, Some(plan));
            out.push(Action::Turns(TurnEvent::Plan(plan.clone())));
            stepped = true;
        }
        if stepped {
            self.keep_plans(out);
        }
    }

    /// A time of psched's clock on this host's.
    fn on_own_clock(&self, at_ns: u64) -> u64 {
        let at = i128::from(at_ns) - self.clock_ahead_ns;
        u64::try_from(at.max(0)).unwrap_or(u64::MAX)
    }

    /// Its beginning on this host's clock. One that began before this host did is as far in its round.
    fn begins_here(&self, plan: &SlicePlan) -> u64 {
        stepped_by(plan.begins_ns, self.clock_ahead_ns, Some(plan))
    }

    /// Forgets those that named nobody else who is here.
    pub(super) fn plans_of_gone(&mut self, key: Key, out: &mut Out) {
        if self.plans.values().any(|plan| plan.members.contains(&key)) {
            self.prune_plans(0, None, out);
        }
    }

    /// Forgets plans that nobody here will ever obey again: each of those whom they name obeys a newer
    /// one already, or has gone.
    fn prune_plans(&mut self, now: u64, new: Option<u64>, out: &mut Out) {
        let mut obeyed: BTreeSet<Key> = BTreeSet::new();
        let mut old = Vec::new();
        for (generation, plan) in self.plans.iter().rev() {
            let here = |key: &&Key| self.apps.contains_key(key) && !obeyed.contains(key);
            if !plan.members.iter().any(|key| here(&key)) && Some(*generation) != new {
                old.push(*generation);
            }
            if plan.agreed && plan.from_ns <= now {
                obeyed.extend(plan.members.iter().copied());
            }
        }
        for generation in &old {
            self.plans.remove(generation);
            out.push(Action::Turns(TurnEvent::Withdraw(*generation)));
        }
        if !old.is_empty() || new.is_some() {
            self.keep_plans(out);
        }
    }

    /// What the switcher has to say.
    pub(super) fn news(&mut self, now: u64, news: News, out: &mut Out) {
        match news {
            News::MayGo(key) => self.may_go(now, key, out),
            News::HasTurn(key) => self.has_turn(now, key, out),
            News::Held(key, stands) => self.lifted(now, key, stands, out),
            News::GoesOut(key) => self.goes_out(key, out),
            News::ComesIn(key) => self.comes_in(key, out),
            News::RolledOut(key, bytes, why) => {
                self.report(Report::RolledOut { key, bytes, why }, out);
            }
            News::Switches(mut told) => {
                let changed = told.changed().into_iter().filter(|key| self.apps.contains_key(key));
                out.extend(changed.map(Action::TellRan));
                for switch in &mut told.switches {
                    switch.due_ns = self.on_psched_clock(switch.due_ns);
                    switch.began_ns = self.on_psched_clock(switch.began_ns);
                }
                self.report(Report::Switches(told), out);
            }
        }
    }

    /// It has run so long by now.
    pub(super) fn ran(&mut self, now: u64, key: Key, ran: Ran, out: &mut Out) {
        if let Some(app) = self.apps.get_mut(&key) {
            (app.ran, app.ran_asked_ns) = (Some((ran.by(now), now)), None);
            self.time_limit_tick(now, key, out);
        }
    }

    /// Ends an application here when it can hear of it: a gang that takes turns, when it has one.
    pub(super) fn terminate_in_turn(
        &mut self,
        now: u64,
        key: Key,
        cause: Cause,
        kill_after: Duration,
        out: &mut Out,
    ) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        if !app.place.shares || app.going_ns.is_none() || kill_after.is_zero() {
            app.grace = None;
            return self.terminate(now, key, cause, kill_after, out);
        }
        let until_ns = now.saturating_add(ns(TURN_WAIT));
        // (Said again, it waits no longer for that.)
        let until_ns = app.grace.as_ref().map_or(until_ns, |grace| grace.until_ns.min(until_ns));
        app.grace = Some(Grace { cause, kill_after, until_ns });
        if let Some(doom) = &mut app.doom {
            doom.kill_at_ns = until_ns.saturating_add(ns(kill_after));
            doom.backstop_ns = doom.kill_at_ns.saturating_add(ns(super::BACKSTOP));
        }
        out.push(Action::Turns(TurnEvent::Watch(key)));
        self.to_hear(key, true, out);
    }

    /// (Head.) It is told something, and may be frozen: psched gives it its turn early.
    pub(super) fn to_hear(&self, key: Key, ends: bool, out: &mut Out) {
        let shares = |app: &&App| app.head() && app.place.shares && app.going_ns.is_some();
        if self.apps.get(&key).filter(shares).is_some() {
            self.report(Report::ToHear { key, ends }, out);
        }
    }

    /// Its shepherd ends it by itself, and waits with the KILL until it runs: so does apinit with its own.
    pub(super) fn backstop_waits(&mut self, key: Key) {
        let Some(app) = self.apps.get_mut(&key).filter(|app| app.place.shares) else { return };
        if let Some(doom) = &mut app.doom {
            doom.backstop_ns = doom.backstop_ns.saturating_add(ns(TURN_WAIT));
        }
    }

    /// It runs, and hears.
    fn has_turn(&mut self, now: u64, key: Key, out: &mut Out) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        let Some(Grace { cause, kill_after, .. }) = app.grace.take() else { return };
        if let Some(doom) = &mut app.doom {
            doom.kill_at_ns = now.saturating_add(ns(kill_after));
            doom.backstop_ns = doom.kill_at_ns.saturating_add(ns(super::BACKSTOP));
        }
        if app.running() {
            self.terminate(now, key, cause, kill_after, out);
        }
    }

    /// It has waited for its turn long enough.
    pub(super) fn grace_tick(&mut self, now: u64, key: Key, out: &mut Out) {
        if self.apps.get(&key).and_then(App::grace_ns).is_some_and(|at| at <= now) {
            self.has_turn(now, key, out);
        }
    }
}

impl App {
    /// When its grace begins at the latest.
    pub fn grace_ns(&self) -> Option<u64> {
        Some(self.grace.as_ref().filter(|_| self.running())?.until_ns)
    }

    /// How long its PEs have run by now, in nanoseconds.
    pub fn run_ns(&self, now: u64) -> u64 {
        match (self.ran, self.going_ns) {
            (Some((ran, _)), _) => ran,
            (None, Some(since)) => now.saturating_sub(since).saturating_add(self.ran_before()),
            (None, None) => 0,
        }
    }

    /// When its time is over, or may be: what it has run is asked then.
    pub fn time_limit_ns(&self) -> Option<u64> {
        let limit = self.place.time_limit.filter(|_| self.head() && self.doom.is_none())?;
        let going = self.going_ns?;
        let due = match self.ran {
            None => going.saturating_add(ns(limit).saturating_sub(self.ran_before())),
            Some((ran, at)) if ran >= ns(limit) => at,
            Some((ran, at)) => at.saturating_add((ns(limit) - ran).max(ns(LIMIT_STEP))),
        };
        // (One that has been asked is not asked again at once: the switcher may be busy.)
        let again = self.ran_asked_ns.map(|asked| asked.saturating_add(ns(LIMIT_STEP)));
        Some(again.map_or(due, |again| due.max(again)))
    }

    /// Its time is over.
    pub fn time_is_over(&self, now: u64) -> bool {
        match (self.ran, self.place.time_limit) {
            (_, None) => false,
            (Some((ran, _)), Some(limit)) => ran >= ns(limit),
            (None, _) if self.place.shares => false,
            (None, _) => self.time_limit_ns().is_some_and(|at| at <= now),
        }
    }
}

/// A time on a clock that is so much behind; of the beginning of a plan, which may be before that
/// clock's own, as far in its round.
fn stepped_by(at_ns: u64, step: i128, begins: Option<&SlicePlan>) -> u64 {
    let at = i128::from(at_ns) - step;
    let slices = begins.iter().flat_map(|plan| &plan.slices);
    let round: i128 = slices.map(|slice| i128::from(ns(slice.length))).sum();
    let at = if at < 0 && round > 0 { at.rem_euclid(round) } else { at };
    u64::try_from(at.max(0)).unwrap_or(u64::MAX)
}
