//! Who runs at each instant on the processors of one apinit.
//!
//! # The problem
//!
//! Gangs take turns by plans that psched sends ([`crate::apteam::protocol::turns`]). A plan can be late,
//! lost, withdrawn or wrong; apinit can be stopped for seconds, or killed and started again; stopping a
//! gang takes a while and may fail. Whatever happens, no two gangs may run on one processor, and what a
//! plan wants should be so as soon as it may.
//!
//! # The approach
//!
//! At each event the machine asks anew who should run *by the clock*, which no history can lead
//! astray:
//!
//! 1. Each gang obeys the plan of the highest generation that is agreed, has begun and names it. It has
//!    its turn, or it has not, or no plan names it.
//! 2. Those whose turn it is come first, the newer plan before the older; then those to whom one of
//!    them owes time, and which stands meanwhile ([`debts`]); then those that no plan names, who runs
//!    already first. Each is *chosen* if nobody chosen so far has one of its processors.
//! 3. Who runs and is not chosen is stopped. Who is chosen is let run once nobody else who runs, or who
//!    is not known to have stopped, has one of its processors.
//!
//! ```text
//!             comes                       its processors are free
//!   (gate) ----------> Gate -------------------------------------> Running <----+
//!                       |                                            |          |
//!                       | another runs there          not chosen     |          | chosen, and its
//!                       v                                            v          | processors are free
//!                    Stopping -----------------> Stopped <------- Stopping      |
//!                                 it goes, frozen   |                | failed   |
//!                                                   +----------------|----------+
//!                                                                    +--> Running, tried again
//! ```
//!
//! A gang *comes* when its PEs stand before their first instruction. If it may not run it is stopped
//! there first, and then goes: psched hears that it runs, and plans for it.
//!
//! A gang whose memory has gone to swap while it stood is let run only when that is back
//! ([`Start::MemoryComes`]). It has its processors meanwhile, and does not run: that time is not its own.
//! If its turn is over before, it does not wait in the next one, so that it gets somewhere even where
//! nobody makes its slices longer.
//!
//! Of one that stands and has no turn for long psched may have the memory brought out ([`out`]).
//! A gang pays back the time for which the kernel has worked for it after its stop ([`debts`]).
//!
//! Gangs that share no processor, and that no chain of gangs which share joins, have nothing to do with each
//! other: they are of different *parts* ([`parts`]). An event asks anew only for the parts that it
//! concerns, and time for those of which a plan says something else by now. So with five hundred pairs
//! that change one after the other each change costs what one pair costs.
//!
//! Nothing here stops anybody or knows the time. The driver (a thread of apinit, or the simulated
//! cluster) does what the actions say and tells how it went.
//!
//! ```
//! use psched_pure::apinit::decide::switcher::{Action, Event, Gang, Switcher};
//! use psched_pure::{apteam::Key, machine::Nid};
//!
//! let gang = |name: &str| {
//!     Gang { key: Key::parse(name).unwrap(), processors: vec![(Nid(0), 0)], spread: false, whole: true }
//! };
//! let mut switcher = Switcher::default();
//! switcher.apply(0, Event::Begin);
//! let comes = |name| Event::Comes { gang: gang(name), going: false, frozen: false, ran_ns: 0 };
//! let first = switcher.apply(1, comes("1.1"));
//! assert!(first.contains(&Action::MayGo(Key::parse("1.1").unwrap())));
//! let second = switcher.apply(2, comes("2.1"));
//! assert!(second.contains(&Action::Stop(vec![Key::parse("2.1").unwrap()])));
//! ```

mod debts;
mod idle;
mod out;
mod parts;
mod plans;
#[cfg(test)]
mod tests;

use crate::apteam::Key;
use crate::apteam::protocol::turns::{SlicePlan, Switch, Switches};
use crate::machine::Nid;
use debts::{Debtors, Debts};
use fixedbitset::FixedBitSet;
use idle::{Given, Idle};
use parts::Parts;
use plans::Plans;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// One that could not be stopped is tried again after this long.
pub const STOP_AGAIN: Duration = Duration::from_millis(100);

/// What of an application takes turns on this apinit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gang {
    /// Which.
    pub key: Key,
    /// Its processors here.
    pub processors: Vec<(Nid, u32)>,
    /// It is on more than one node, here or elsewhere.
    pub spread: bool,
    /// All of it is on this apinit.
    pub whole: bool,
}

/// What became of a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is stopped.
    Stopped,
    /// It had not been let run: of its memory only so many bytes had come.
    NotIn(u64),
    /// So many of its groups were not known to be frozen when the time for it was over. No process of
    /// it runs an instruction of the user's all the same: the freezer sees to that.
    NotYet(u32),
    /// It may run on.
    Failed,
}

/// What became of a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// It runs.
    Runs,
    /// Its memory is out, and comes before it runs: [`Event::Brought`].
    MemoryComes,
}

/// What happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// What a former life of this apinit has left has come: from now on gangs are stopped and let run.
    Begin,
    /// A gang is there.
    Comes {
        /// Who, and where.
        gang: Gang,
        /// It has gone already; else its PEs stand before their first instruction, and it goes after
        /// [`Action::MayGo`].
        going: bool,
        /// All of it is stopped.
        frozen: bool,
        /// What it has run before.
        ran_ns: u64,
    },
    /// Nothing is left of it.
    Goes(Key),
    /// A plan, whose times are of this host's clock.
    Plan(SlicePlan),
    /// The plan of this generation counts.
    Agree(u64),
    /// It is to be forgotten.
    Withdraw(u64),
    /// Say when it has its turn: [`Action::HasTurn`].
    Watch(Key),
    /// How an [`Action::Stop`] went.
    Stopped(Vec<(Key, Outcome)>),
    /// How an [`Action::Start`] went.
    Started(Vec<(Key, Start)>),
    /// It is to stand until it is seated: [`Action::Held`].
    Hold(Key),
    /// It sits on these processors from now on, and may run again. No effect on one that is not here.
    Rebind(Gang),
    /// Its memory is to go out once it stands: [`Action::RollOut`], [`Action::TakeOut`] or [`Action::NotOut`].
    RollOut(Key),
    /// Whether memory goes out by a checkpoint from now on, and not to swap.
    ByCheckpoint(bool),
    /// So many bytes of its memory have come in, and it runs. No effect if it has been stopped since.
    Brought(Key, u64),
    /// The kernel has worked for so many nanoseconds, on some processor of a gang that was stopped and
    /// not yet frozen.
    Overran(Key, u64),
    /// How much processor time these have used in all, or waited for because others had it, in nanoseconds, where
    /// that can be known: asked by [`Action::Look`].
    Used(Vec<(Key, Option<u64>)>),
    /// A gang that has used next to nothing for so long gives its processors away; none: it does not.
    IdleAfter(Option<Duration>),
    /// The time of [`Switcher::next_ns`] has come.
    Tick,
}

/// How long a gang has run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Ran {
    /// Until it was last let run, or stopped, in nanoseconds.
    pub ns: u64,
    /// It runs since.
    pub since_ns: Option<u64>,
}

impl Ran {
    /// By now, in nanoseconds.
    pub fn by(&self, now: u64) -> u64 {
        self.ns.saturating_add(self.since_ns.map_or(0, |since| now.saturating_sub(since)))
    }
}

/// What of it the agent hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// [`Action::MayGo`].
    MayGo(Key),
    /// [`Action::HasTurn`].
    HasTurn(Key),
    /// [`Action::Held`].
    Held(Key, bool),
    /// So many bytes of it are in swap; or why no more of it went.
    RolledOut(Key, u64, Option<String>),
    /// It is to be taken out by a checkpoint: it stands, has no turn soon, and there is no swap.
    GoesOut(Key),
    /// One that was is to run: [`Event::Brought`] is waited for.
    ComesIn(Key),
    /// Changes by this host's clock, and peaks of memory; at most each second.
    Switches(Box<Switches>),
}

/// What is to be done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Stop all of these; answered by [`Event::Stopped`] for each of them.
    Stop(Vec<Key>),
    /// Let all of these run; answered by [`Event::Started`] for each of them.
    Start(Vec<Key>),
    /// Say how much processor time these have used: answered by [`Event::Used`].
    Look(Vec<Key>),
    /// Its memory is not waited for any longer: answered by [`Event::Brought`].
    Hasten(Key),
    /// It may go: it stands stopped, or may run.
    MayGo(Key),
    /// One that is watched runs.
    HasTurn(Key),
    /// One that was to stand does, until it is seated; or it can't be stopped, and goes on as before.
    Held(Key, bool),
    /// Its memory may go: it stands, and has no turn soon. Whoever brings it away ends with that when it is
    /// to start.
    RollOut(Key),
    /// The same where memory goes out by a checkpoint: nobody else runs on its processors until it is seated, or
    /// [`out::LEAVES`] is over.
    TakeOut(Key),
    /// Its memory does not go, and why.
    NotOut(Key, &'static str),
    /// It has been let run, or stopped.
    Ran(Key, Ran),
    /// It has been idle for so many nanoseconds more, while no other gang waited for its processors.
    WasIdle(Key, u64),
    /// A change is over.
    Switched(Switch),
}

/// What the plans say of a gang.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Unplanned,
    Its { generation: u64, since_ns: u64 },
    Others { generation: u64, since_ns: u64 },
}

impl Turn {
    /// Of those who want to run, the highest first; `None`: it must not.
    fn rank(self) -> Option<u64> {
        match self {
            Turn::Unplanned => Some(0),
            Turn::Its { generation, .. } => Some(generation.max(1)),
            Turn::Others { .. } => None,
        }
    }

    fn plan(self) -> Option<(u64, u64)> {
        match self {
            Turn::Unplanned => None,
            Turn::Its { generation, since_ns } | Turn::Others { generation, since_ns } => {
                Some((generation, since_ns))
            }
        }
    }
}

/// On what ground a gang wants to run, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Wants {
    /// It is its turn, or no plan says otherwise.
    Its,
    /// Others give: first those whom their plan names for that, then a gang that runs already, then the gang with the
    /// earliest next turn.
    Takes { named: usize, comes: bool, at: u64 },
    /// It gives its turn away, and keeps it until another gang takes it.
    Gives,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Its PEs stand before their first instruction.
    Gate {
        frozen: bool,
    },
    /// Asked to run: it may do so already, or its memory comes.
    Starting,
    Running,
    /// Asked to stop: at the gate, or while it runs, and then it may run on until the answer.
    Stopping {
        gate: bool,
    },
    Stopped,
}

/// Whether it is to stand for a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    No,
    /// It is to, and may run still.
    Asked,
    /// It stands, which has been said.
    Told,
}

#[derive(Clone, Debug)]
struct Seat {
    /// Its processors, as bits.
    on: FixedBitSet,
    /// All of it is here.
    whole: bool,
    state: State,
    watched: bool,
    lift: Hold,
    /// Its last stop has failed.
    again_ns: Option<u64>,
    /// Its memory comes: the change as which its start will be told.
    comes_in: Option<Box<Switch>>,
    /// Its last turn was over before its memory was in.
    missed: bool,
    /// Its memory is to go if it stands before then.
    out_by_ns: Option<u64>,
    /// It is being taken out, and its processors wait for that until then.
    leaves_by_ns: Option<u64>,
    debts: Debts,
    idle: Idle,
    ran: Ran,
}

impl Seat {
    /// It runs, or may.
    fn occupies(&self) -> bool {
        matches!(self.state, State::Starting | State::Running | State::Stopping { gate: false })
    }

    /// It does from now on.
    fn runs(&mut self, now: u64, key: Key, out: &mut Vec<Action>) {
        self.state = State::Running;
        self.ran.since_ns = Some(now);
        out.push(Action::Ran(key, self.ran));
    }
}

/// The start of one whose memory had to come, as it is told.
fn came_in(told: Switch, bytes: u64, now: u64) -> Action {
    let gap_ns = now.saturating_sub(told.began_ns);
    Action::Switched(Switch { gap_ns, brought: bytes, ..told })
}

/// A change that is under way.
#[derive(Clone, Debug)]
struct Change {
    switch: Switch,
    /// All that were to be stopped have been.
    stopped: bool,
    /// [`Action::Start`]s that are not done.
    starts: u32,
}

/// Who is here, what the plans are, and who runs.
#[derive(Clone, Debug, Default)]
pub struct Switcher {
    begun: bool,
    seats: BTreeMap<Key, Seat>,
    /// Gangs that were asked to stop and have not answered: they may still run.
    stopping: BTreeSet<Key>,
    plans: Plans,
    /// The number of each processor in the sets of bits.
    bits: BTreeMap<(Nid, u32), usize>,
    /// Who has to do with whom, and when each part is to be looked at again.
    parts: Parts,
    /// Memory goes out by a checkpoint.
    by_checkpoint: bool,
    /// How long a gang has to be idle before it gives.
    idle_after: Option<Duration>,
    change: Option<Change>,
}

impl Switcher {
    /// When it wants a [`Event::Tick`] at the latest, in nanoseconds of this host's clock.
    pub fn next_ns(&self) -> Option<u64> {
        self.parts.next_ns()
    }

    /// Who runs, or may.
    pub fn running(&self) -> impl Iterator<Item = Key> {
        self.seats.iter().filter(|(_, seat)| seat.occupies()).map(|(key, _)| *key)
    }

    /// How long a gang has run; `None`: it is not here.
    pub fn ran(&self, key: Key) -> Option<Ran> {
        self.seats.get(&key).map(|seat| seat.ran)
    }

    /// Takes in what happens at `now` (nanoseconds of CLOCK_MONOTONIC) and says what is to be done.
    pub fn apply(&mut self, now: u64, event: Event) -> Vec<Action> {
        let mut out = Vec::new();
        let mut planned = false;
        match event {
            Event::Begin => {
                self.begun = true;
                self.parts.touch_all();
            }
            Event::Comes { gang, going, frozen, ran_ns } => {
                self.comes(now, gang, going, frozen, ran_ns, &mut out);
            }
            Event::Goes(key) => {
                if self.seats.remove(&key).is_some() {
                    self.stopping.remove(&key);
                    self.parts.goes(key);
                }
            }
            Event::Plan(plan) => {
                planned = plan.agreed;
                plan.members.iter().for_each(|key| self.parts.touch(*key));
                self.plan_changes(plan.generation);
                self.plans.insert(plan);
            }
            Event::Agree(generation) => {
                self.plans.agree(generation);
                self.plan_changes(generation);
                planned = true;
            }
            Event::Withdraw(generation) => {
                self.plan_changes(generation);
                self.plans.remove(generation);
            }
            Event::Watch(key) => {
                if let Some(seat) = self.seats.get_mut(&key) {
                    seat.watched = true;
                    self.parts.touch(key);
                }
            }
            Event::Hold(key) => match self.seats.get_mut(&key) {
                Some(seat) => {
                    seat.lift = Hold::Asked;
                    self.parts.touch(key);
                }
                None => out.push(Action::Held(key, false)),
            },
            Event::Rebind(gang) => {
                let on = self.bits_of(&gang.processors);
                if let Some(seat) = self.seats.get_mut(&gang.key) {
                    (seat.on, seat.lift, seat.leaves_by_ns) = (on, Hold::No, None);
                    self.parts.moves();
                }
            }
            Event::Stopped(outcomes) => {
                for (key, outcome) in outcomes {
                    self.stopped(now, key, outcome, &mut out);
                    self.parts.touch(key);
                }
            }
            Event::Started(outcomes) => {
                for (key, start) in outcomes {
                    self.started(now, key, start, &mut out);
                    self.parts.touch(key);
                }
                if let Some(change) = &mut self.change {
                    change.starts = change.starts.saturating_sub(1);
                }
            }
            Event::ByCheckpoint(by) => {
                if std::mem::replace(&mut self.by_checkpoint, by) != by {
                    self.parts.touch_all();
                }
            }
            Event::RollOut(key) => {
                self.want_out(now, key, &mut out);
                self.parts.touch(key);
            }
            Event::Brought(key, bytes) => {
                self.brought(now, key, bytes, &mut out);
                self.parts.touch(key);
            }
            Event::Overran(key, time_ns) => {
                self.overran(key, time_ns, &mut out);
                self.parts.touch(key);
                // It is told when a change is due.
                planned = true;
            }
            Event::Used(all) => {
                let looked_at = self.looked_at();
                for (key, used) in all {
                    self.used(now, key, used, looked_at, &mut out);
                    self.parts.touch(key);
                }
            }
            Event::IdleAfter(after) => {
                if std::mem::replace(&mut self.idle_after, after) != after {
                    self.parts.touch_all();
                }
            }
            Event::Tick => planned = true,
        }
        // Of nobody who is not concerned anything has changed.
        let concerned = self.parts.concerned(now, self.seats.iter().map(|(key, s)| (*key, &s.on)));
        if self.begun {
            // (Whoever goes has gone before anybody else runs there.)
            self.roll_out(now, &concerned, &mut out);
            self.decide(now, planned, &concerned, &mut out);
            self.roll_out(now, &concerned, &mut out);
        }
        for key in &concerned {
            let Some(seat) = self.seats.get_mut(key) else { continue };
            if seat.watched && seat.state == State::Running {
                seat.watched = false;
                out.push(Action::HasTurn(*key));
            }
        }
        let Switcher { seats, plans, .. } = self;
        self.parts.looked_at(|keys| {
            let its = |key: &Key| seats.get(key);
            let times = |seat: &Seat| {
                let idle =
                    [seat.idle.look_ns, seat.idle.gives_ns].map(|at| at.filter(|at| *at > now));
                let other = [seat.again_ns, seat.out_by_ns, seat.leaves_by_ns, seat.debts.again_ns];
                idle.into_iter().chain(other)
            };
            let again = keys.iter().filter_map(its).flat_map(times).flatten().min();
            let change = plans.next_change(keys.iter().copied(), now);
            again.into_iter().chain(change).min()
        });
        out
    }

    /// What this plan says of its members is another thing from now on.
    fn plan_changes(&mut self, generation: u64) {
        for key in self.plans.members(generation) {
            self.parts.touch(*key);
        }
    }

    fn comes(
        &mut self,
        now: u64,
        gang: Gang,
        going: bool,
        frozen: bool,
        ran_ns: u64,
        out: &mut Vec<Action>,
    ) {
        if let Some(seat) = self.seats.get(&gang.key) {
            if !matches!(seat.state, State::Gate { .. } | State::Stopping { gate: true }) {
                out.push(Action::MayGo(gang.key));
            }
            return;
        }
        let on = self.bits_of(&gang.processors);
        self.parts.comes(gang.key, &on);
        let state = match (going, frozen) {
            (true, true) => State::Stopped,
            (true, false) => State::Running,
            (false, frozen) => State::Gate { frozen },
        };
        let since_ns = (state == State::Running).then_some(now);
        let ran = Ran { ns: ran_ns, since_ns };
        out.push(Action::Ran(gang.key, ran));
        let (watched, again_ns, comes_in, missed) = (false, None, None, false);
        let (lift, out_by_ns, leaves_by_ns) = (Hold::No, None, None);
        let seat = Seat {
            on,
            whole: gang.whole,
            state,
            watched,
            lift,
            again_ns,
            comes_in,
            missed,
            out_by_ns,
            leaves_by_ns,
            debts: Debts::default(),
            idle: Idle::default(),
            ran,
        };
        self.seats.insert(gang.key, seat);
    }

    fn bits_of(&mut self, processors: &[(Nid, u32)]) -> FixedBitSet {
        let mut on = FixedBitSet::new();
        for processor in processors {
            let new = self.bits.len();
            on.grow_and_insert(*self.bits.entry(*processor).or_insert(new));
        }
        on
    }

    fn stopped(&mut self, now: u64, key: Key, outcome: Outcome, out: &mut Vec<Action>) {
        let Some(seat) = self.seats.get_mut(&key) else { return };
        let State::Stopping { gate } = seat.state else { return };
        self.stopping.remove(&key);
        if outcome == Outcome::Failed {
            match gate {
                true => seat.state = State::Gate { frozen: false },
                false if seat.ran.since_ns.is_none() => seat.runs(now, key, out),
                false => seat.state = State::Running,
            }
            seat.again_ns = Some(now.saturating_add(super::ns(STOP_AGAIN)));
            if std::mem::replace(&mut seat.lift, Hold::No) == Hold::Asked {
                out.push(Action::Held(key, false));
            }
            if let Some(change) = self.change.as_mut().filter(|_| !gate) {
                change.switch.stopped.retain(|stopped| *stopped != key);
            }
            return;
        }
        seat.state = State::Stopped;
        if let Some(time) = seat.idle.slept_on(now) {
            out.push(Action::WasIdle(key, time));
        }
        seat.idle.stops();
        let told = seat.comes_in.take();
        if let (Outcome::NotIn(bytes), Some(told)) = (outcome, told) {
            seat.missed = true;
            out.push(came_in(*told, bytes, now));
        }
        if gate {
            out.push(Action::MayGo(key));
        } else {
            seat.ran = Ran { ns: seat.ran.by(now), since_ns: None };
            out.push(Action::Ran(key, seat.ran));
        }
        if let (Outcome::NotYet(groups), Some(change)) = (outcome, &mut self.change) {
            change.switch.not_yet_frozen = change.switch.not_yet_frozen.saturating_add(groups);
        }
    }

    fn started(&mut self, now: u64, key: Key, start: Start, out: &mut Vec<Action>) {
        let Some(seat) = self.seats.get_mut(&key).filter(|s| s.state == State::Starting) else {
            return;
        };
        if start == Start::Runs {
            return seat.runs(now, key, out);
        }
        // It is told when it runs, and this change does not last longer for it.
        let Some(Change { switch, .. }) = &mut self.change else { return };
        switch.started.retain(|started| *started != key);
        let Switch { generation, due_ns, began_ns, .. } = *switch;
        let started = vec![key];
        let told = Switch { generation, due_ns, began_ns, started, ..Switch::default() };
        seat.comes_in = Some(Box::new(told));
        if std::mem::take(&mut seat.missed) {
            out.push(Action::Hasten(key));
        }
    }

    fn brought(&mut self, now: u64, key: Key, bytes: u64, out: &mut Vec<Action>) {
        let Some(seat) = self.seats.get_mut(&key).filter(|s| s.state == State::Starting) else {
            return;
        };
        if let Some(told) = seat.comes_in.take() {
            out.push(came_in(*told, bytes, now));
        }
        seat.runs(now, key, out);
    }

    /// Sees to it that those of these run who should: whole parts, so that nobody else has to do with
    /// them.
    fn decide(&mut self, now: u64, planned: bool, concerned: &[Key], out: &mut Vec<Action>) {
        let turns: BTreeMap<Key, Turn> =
            concerned.iter().map(|key| (*key, self.plans.turn(*key, now))).collect();
        let given = self.given(now, &turns);
        // (A plan says nothing of what comes of idle time.)
        let planned = planned && !given.changes();
        let mut debtors = self.debtors(now, &turns);
        let chosen = loop {
            let chosen = self.choose(&turns, &debtors, &given);
            let before = debtors.len();
            debtors.retain(|_, creditors| creditors.iter().any(|key| chosen.contains(key)));
            if debtors.len() == before {
                break chosen;
            }
        };
        self.pay(now, &debtors, &chosen);
        let (mut stop, mut outgoing) = (Vec::new(), Vec::new());
        for key in concerned {
            let Some(seat) = self.seats.get_mut(key) else { continue };
            let again = seat.again_ns.is_none_or(|at| at <= now);
            let may_run = matches!(seat.state, State::Starting | State::Running);
            if may_run && again && !chosen.contains(key) {
                (seat.state, seat.again_ns) = (State::Stopping { gate: false }, None);
                self.stopping.insert(*key);
                stop.push(*key);
                outgoing.push(*key);
            } else if seat.state == State::Running && chosen.contains(key) {
                seat.again_ns = None;
            }
        }
        let mut busy = FixedBitSet::with_capacity(self.bits.len());
        let holds = |seat: &&Seat| seat.occupies() || seat.leaves_by_ns.is_some();
        for seat in concerned.iter().filter_map(|key| self.seats.get(key)).filter(holds) {
            busy.union_with(&seat.on);
        }
        let (mut thaw, mut go) = (Vec::new(), Vec::new());
        for key in &chosen {
            let Some(seat) = self.seats.get_mut(key) else { continue };
            let gate = matches!(seat.state, State::Gate { .. });
            if !gate && seat.state != State::Stopped || !seat.on.is_disjoint(&busy) {
                continue;
            }
            busy.union_with(&seat.on);
            if gate {
                go.push(*key);
            }
            seat.again_ns = None;
            if seat.state == (State::Gate { frozen: false }) {
                seat.runs(now, *key, out);
            } else {
                seat.state = State::Starting;
                thaw.push(*key);
            }
        }
        for key in concerned {
            let Some(seat) = self.seats.get_mut(key) else { continue };
            if seat.lift == Hold::Asked && seat.state == State::Stopped {
                seat.lift = Hold::Told;
                out.push(Action::Held(*key, true));
            }
        }
        // Who stays at the gate is stopped there, and goes.
        for key in concerned {
            let Some(seat) = self.seats.get_mut(key) else { continue };
            let again = seat.again_ns.is_none_or(|at| at <= now);
            match seat.state {
                State::Gate { frozen: true } => {
                    seat.state = State::Stopped;
                    go.push(*key);
                }
                State::Gate { frozen: false } if again => {
                    (seat.state, seat.again_ns) = (State::Stopping { gate: true }, None);
                    stop.push(*key);
                }
                _ => {}
            }
        }
        self.record(now, planned, &turns, outgoing, &thaw, &chosen);
        if !stop.is_empty() {
            out.push(Action::Stop(stop));
        }
        if !thaw.is_empty() {
            out.push(Action::Start(thaw));
        }
        out.extend(go.into_iter().map(Action::MayGo));
        self.close(now, out);
        self.look(now, &turns, out);
    }

    /// The gangs that are to run, while these debtors stand and their creditors may run in their
    /// place, and what some give goes to others.
    fn choose(
        &self,
        turns: &BTreeMap<Key, Turn>,
        debtors: &Debtors,
        given: &Given,
    ) -> BTreeSet<Key> {
        let creditors: BTreeSet<Key> = debtors.values().flatten().copied().collect();
        let mut wanting: Vec<(Wants, Reverse<u64>, bool, bool, Key)> = turns
            .iter()
            .filter(|(key, _)| !debtors.contains_key(key))
            .filter_map(|(key, turn)| {
                let seat = self.seats.get(key).filter(|seat| seat.lift == Hold::No)?;
                let owed = creditors.contains(key);
                let rank = match turn.rank().or(owed.then_some(0)) {
                    Some(rank) if given.gives(key) => (Wants::Gives, rank),
                    Some(rank) => (Wants::Its, rank),
                    None => {
                        let (named, at) = given.takes(key)?;
                        (Wants::Takes { named, comes: !seat.occupies(), at }, 0)
                    }
                };
                Some((rank.0, Reverse(rank.1), !owed, !seat.occupies(), *key))
            })
            .collect();
        wanting.sort_unstable();
        let mut taken = FixedBitSet::with_capacity(self.bits.len());
        let mut chosen: BTreeSet<Key> = BTreeSet::new();
        for (.., key) in wanting {
            let Some(seat) = self.seats.get(&key) else { continue };
            if seat.on.is_disjoint(&taken) {
                taken.union_with(&seat.on);
                chosen.insert(key);
            }
        }
        chosen
    }

    /// Notes who is stopped and started in the change that is under way, or begins.
    fn record(
        &mut self,
        now: u64,
        planned: bool,
        turns: &BTreeMap<Key, Turn>,
        outgoing: Vec<Key>,
        incoming: &[Key],
        chosen: &BTreeSet<Key>,
    ) {
        if outgoing.is_empty() && incoming.is_empty() {
            return;
        }
        let change = self.change.get_or_insert_with(|| {
            // Whoever waits for an outgoing one's processors is why that has to go.
            let waits = |key: &&Key| self.seats.get(key).is_some_and(|seat| !seat.occupies());
            let waiting = chosen.iter().filter(waits);
            let concerned = incoming.iter().chain(&outgoing).chain(waiting);
            let plans = concerned.filter_map(|key| turns.get(key)?.plan());
            let (generation, due_ns) = plans.max().filter(|_| planned).unwrap_or((0, now));
            let switch = Switch { generation, due_ns, began_ns: now, ..Switch::default() };
            Change { switch, stopped: false, starts: 0 }
        });
        change.stopped &= outgoing.is_empty();
        change.starts += u32::from(!incoming.is_empty());
        change.switch.stopped.extend(outgoing);
        change.switch.started.extend(incoming);
    }

    /// Ends the change that is under way, if nothing more comes of it.
    fn close(&mut self, now: u64, out: &mut Vec<Action>) {
        let Some(change) = &mut self.change else { return };
        if !self.stopping.is_empty() {
            return;
        }
        let since_began = now.saturating_sub(change.switch.began_ns);
        if !std::mem::replace(&mut change.stopped, true) {
            change.switch.freeze_ns = since_began;
        }
        if change.starts > 0 {
            return;
        }
        change.switch.gap_ns = since_began;
        if let Some(Change { switch, .. }) = self.change.take()
            && !(switch.stopped.is_empty() && switch.started.is_empty())
        {
            out.push(Action::Switched(switch));
        }
    }
}
