//! The policy of gangs: the scheduler itself, in virtual time.
//!
//! # The problem
//!
//! What is measured must be what ships. A second scheduler, written for measuring, would be another policy after
//! the first change to either.
//!
//! # The approach
//!
//! [`Scheduler`] is a pure function of events; here is a shell around it as the daemon is one. Its clock
//! is the log's. Each job is posted when it was submitted, by a front end that launches at once; one apinit offers
//! all nodes, and follows the slice plans that it is sent. So a gang runs when a plan says so, gets on
//! while it has nothing to pay, and has ended when it has run as long as the log says.
//!
//! ```text
//!   log ---> Posted ---> [ Scheduler ] ---> Place       Launched, Running
//!   ends --> Ended --->  [           ] ---> Plan        who runs until when
//!   clock -> Tick ---->  [           ] ---> Move        Moved, at once; what it costs is paid where it comes
//! ```
//!
//! Plans repeat, and slices are short: they are no events here. What a gang has had by a moment, and when it
//! will be done, is reckoned from its plan ([`progress`]), and so is what the machine does ([`tally`]).

mod progress;
mod run_intervals;
mod tally;

use super::workload::Job;
use super::{Capacity, Moves, Outcome, Setup, Watch, nanos};
use crate::apteam::ending::{EndCount, HostEnd, PeEnd};
use crate::apteam::posting::{Owner, Posting};
use crate::apteam::protocol::node::{Command, Hello, PROTOCOL, Report};
use crate::apteam::protocol::turns::SlicePlan;
use crate::apteam::record::FrontProcess;
use crate::apteam::shape::Shape;
use crate::apteam::{Apid, Key, Ticket};
use crate::placement::migration::MigrationLimits;
use crate::psched::decide::{
    Abilities, Effect, Event, LinkId, Now, ReplyId, RollsOut, Scheduler, Settings,
};
use progress::Progress;
use run_intervals::RunIntervals;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tally::{Parties, Tally};

const LINK: LinkId = LinkId(0);
const SECOND: u64 = 1_000_000_000;
/// Where no job has been about to end for so long, none ever is.
const STUCK: u64 = 30 * 86_400 * SECOND;
/// The log's zero on psched's clocks: who has waited since before it has not waited since before time.
const ZERO: u64 = 1_000_000 * SECOND;

/// Why a replay stopped.
#[derive(Debug)]
pub enum Stopped<E> {
    /// The jobs were at an end before their time.
    Jobs(E),
    /// The scheduler would not have one of them.
    Refused {
        /// Where in the log it is.
        line: u64,
        /// Its number there.
        job: i64,
        /// What stood in the way.
        why: String,
    },
}

/// A job that is there.
struct Live {
    job: Job,
    key: Key,
    /// Processors.
    width: u64,
    progress: Progress,
    way: RunIntervals,
    /// Another way, from now on.
    next: Option<RunIntervals>,
    /// The plan that says so; 0: none.
    generation: u64,
    /// When it ends by it.
    ends: Option<u64>,
}

/// A plan that is followed.
struct Followed {
    plan: SlicePlan,
    /// By how many.
    followers: usize,
}

struct Replay<'a, W> {
    setup: &'a Setup,
    scheduler: Scheduler,
    watch: &'a mut W,
    now: u64,
    /// By reply: posted, and not known by number yet.
    posted: BTreeMap<u64, Job>,
    live: BTreeMap<Apid, Live>,
    /// When those end that run.
    ends: BTreeSet<(u64, Apid)>,
    plans: BTreeMap<u64, Followed>,
    /// Plans that are followed by others than before.
    joined: Vec<u64>,
    /// Who has another way, or place.
    touched: Vec<Apid>,
    /// What happens now.
    events: Vec<Event>,
    replies: u64,
    processors: u64,
    tally: Tally,
    /// Of those that were here, processor nanoseconds: on what they got, for starts, for moves.
    had: [u128; 3],
    /// When the first was submitted.
    first: Option<u64>,
    refused: Option<(u64, i64, String)>,
    /// Since when none would ever end, as things are.
    stuck_since: Option<u64>,
    /// Nodes say what memory they have: that of jobs counts.
    memory: bool,
    /// What a move costs.
    moves: MigrationLimits,
}

/// Replays these jobs, in their order of submission.
///
/// # Errors
/// Those of the jobs, and a job that the scheduler refuses.
pub fn replay<E>(
    setup: &Setup,
    mut jobs: impl Iterator<Item = Result<Job, E>>,
    watch: &mut impl Watch,
) -> Result<Capacity, Stopped<E>> {
    let mut next = jobs.next().transpose().map_err(Stopped::Jobs)?;
    let mut replay = Replay::new(setup, watch);
    loop {
        let submit = next.as_ref().map(|job| ZERO + nanos(job.submit));
        let Some(now) = replay.next(submit) else { return replay.over() };
        replay.pass(now);
        replay.end();
        while let Some(job) = next.take_if(|job| ZERO + nanos(job.submit) <= replay.now) {
            replay.post(job);
            next = jobs.next().transpose().map_err(Stopped::Jobs)?;
        }
        if replay.scheduler.deadline().is_some_and(|at| at <= replay.now) {
            replay.events.push(Event::Tick);
        }
        replay.tell();
        replay.settle();
        if let Some((line, job, why)) = replay.refused.take() {
            return Err(Stopped::Refused { line, job, why });
        }
        if next.is_none() && replay.is_stuck() {
            return replay.over();
        }
        #[cfg(test)]
        {
            replay.check();
            replay.check_settled(next.as_ref().map(|job| ZERO + nanos(job.submit)));
        }
        let (held, waiting) = replay.tally.now();
        look(replay.watch, replay.now, held, waiting);
    }
}

impl<'a, W: Watch> Replay<'a, W> {
    fn new(setup: &'a Setup, watch: &'a mut W) -> Replay<'a, W> {
        let roll_out = match setup.moves {
            Moves::All => RollsOut::Anywhere,
            Moves::Daemon => RollsOut::Never,
        };
        let abilities = Abilities { moves: true, says: false, roll_out };
        let settings = Settings { abilities, ..Settings::from(&setup.variables) };
        let moves = MigrationLimits { move_cost: setup.move_cost, ..settings.turns.migration };
        let mut replay = Replay {
            setup,
            moves,
            scheduler: Scheduler::new(setup.machine.clone(), settings),
            watch,
            now: ZERO,
            posted: BTreeMap::new(),
            live: BTreeMap::new(),
            ends: BTreeSet::new(),
            plans: BTreeMap::new(),
            joined: Vec::new(),
            touched: Vec::new(),
            events: Vec::new(),
            replies: 0,
            processors: setup.machine.application_processors(),
            tally: Tally::new(setup.machine.application_processors(), ZERO),
            had: [0; 3],
            first: None,
            stuck_since: None,
            refused: None,
            memory: setup.machine.nodes.values().any(|node| node.memory > 0),
        };
        let hello = Hello {
            protocol: PROTOCOL,
            socket: "simulated".into(),
            hostname: "simulated".into(),
            boot_id: "simulated".into(),
            nids: setup.machine.nodes.keys().copied().collect(),
            ..Hello::default()
        };
        replay.events.push(Event::LinkOpened { link: LINK, hello: Box::new(hello) });
        replay.events.push(Event::Inventory { link: LINK, items: Vec::new() });
        replay.tell();
        replay
    }

    /// When something happens next; none: all is over.
    fn next(&self, submit: Option<u64>) -> Option<u64> {
        let end = self.ends.first().map(|(at, _)| *at);
        let any = submit.or(end).is_some() || !self.live.is_empty();
        let deadline = self.scheduler.deadline().filter(|_| any);
        let next = [submit, end, deadline].into_iter().flatten().min()?;
        any.then_some(next.max(self.now))
    }

    /// Whether none has been about to end for long. (Decisions are taken for ever, and may let others run.)
    fn is_stuck(&mut self) -> bool {
        if !self.ends.is_empty() || self.live.is_empty() {
            self.stuck_since = None;
            return false;
        }
        self.now.saturating_sub(*self.stuck_since.get_or_insert(self.now)) > STUCK
    }

    /// Nothing is to happen any more.
    fn over<E>(self) -> Result<Capacity, Stopped<E>> {
        if let Some(Live { job, way, .. }) = self.live.into_values().next() {
            let why = match way {
                RunIntervals::Never => "it waits, and nothing is to happen any more",
                _ => {
                    "each of its turns is over before it has been started, and so for ever: a start costs \
                     too much (--start-cost), or application.start_cost is not what it costs"
                }
            };
            let why = why.to_owned();
            return Err(Stopped::Refused { line: job.line, job: job.number, why });
        }
        let seconds = |nanoseconds: f64| nanoseconds / SECOND as f64;
        let [useful, starts, moves] = self.had.map(|had| seconds(had as f64));
        let idle = self.tally.idle();
        let capacity = Capacity {
            useful,
            starts,
            moves,
            fragmented: seconds(idle.fragmented),
            kept: seconds(idle.kept),
            idle: seconds(idle.unwanted),
        };
        let from = self.first.unwrap_or(self.now);
        let all = self.processors as f64 * seconds((self.now - from) as f64);
        debug_assert!(
            (capacity.total() - all).abs() <= 1e-6 * all.max(1.0),
            "{capacity:?} is not {all}"
        );
        Ok(capacity)
    }

    /// No processor is run by two, now or in any slice of a plan.
    #[cfg(test)]
    fn check(&self) {
        let seats = |apid: Apid| {
            let places =
                self.scheduler.team(apid).into_iter().flat_map(|team| team.places.0.iter());
            let seats = |place: &crate::apteam::place::Place| {
                place.processors.iter().map(|processor| (place.nid, *processor)).collect::<Vec<_>>()
            };
            places.flat_map(seats).collect::<Vec<_>>()
        };
        let mut run = BTreeSet::new();
        for (apid, _) in self.live.iter().filter(|(_, live)| live.way.at(self.now).0) {
            for seat in seats(*apid) {
                assert!(run.insert(seat), "{seat:?}: {apid} and another, at {}", self.now);
            }
        }
        assert_eq!(run.len() as u64, self.tally.now().0);
        for (generation, Followed { plan, followers }) in &self.plans {
            let follows =
                |apid: &Apid| self.live.get(apid).is_some_and(|l| l.generation == *generation);
            let all = plan.members.iter().map(|key| key.apid).filter(follows).count();
            assert_eq!(all, *followers, "of {generation}");
            for slice in &plan.slices {
                let mut run = BTreeSet::new();
                for apid in slice.party.iter().map(|key| key.apid).filter(follows) {
                    for seat in seats(apid) {
                        assert!(run.insert(seat), "{seat:?}: {apid} and another, by {generation}");
                    }
                }
            }
        }
    }

    /// Until something is due, a decision would change nothing: for some seconds, where all happens at whole ones.
    /// (A plan that is soon over is said again with whatever else happens.)
    #[cfg(test)]
    fn check_settled(&self, submit: Option<u64>) {
        let until = self
            .next(submit)
            .filter(|_| self.setup.variables.application_reconsider().as_secs() == 1);
        let Some(until) = until else { return };
        assert_eq!(self.now % SECOND, 0);
        for at in (self.now..until).step_by(SECOND as usize).skip(1).take(20) {
            let mut effects = self.scheduler.clone().decided_at(Now { mono_ns: at, wall_ns: at });
            let again = |plan: &SlicePlan| {
                let same =
                    |f: &Followed| f.plan.members == plan.members && f.plan.slices == plan.slices;
                self.plans.values().any(same)
            };
            effects.retain(|effect| match effect {
                Effect::Command { command: Command::Plan(plan), .. } => !again(plan),
                _ => true,
            });
            assert!(effects.is_empty(), "at {at}, {} after: {effects:?}", at - self.now);
        }
    }

    /// What the machine did until then.
    fn pass(&mut self, now: u64) {
        self.now = now;
        self.tally.pass(now, |at, held, waiting| look(self.watch, at, held, waiting));
    }

    /// Tells the scheduler all that happens now, and then what comes of that.
    fn tell(&mut self) {
        let now = Now { mono_ns: self.now, wall_ns: self.now };
        while !self.events.is_empty() {
            let effects = self.scheduler.decide_all(now, self.events.drain(..));
            self.hear(effects);
        }
        let effects = self.scheduler.plan_all(now);
        self.hear(effects);
    }

    fn hear(&mut self, effects: Vec<Effect>) {
        let report = |report| Event::Report { link: LINK, report: Box::new(report) };
        for effect in effects {
            match effect {
                Effect::Accept { reply, apid } => self.accepted(reply, apid),
                Effect::Refuse { reply, reason, .. } => {
                    if let Some(job) = self.posted.remove(&reply.0) {
                        let why = reason.to_string();
                        self.refused.get_or_insert((job.line, job.number, why));
                    }
                }
                Effect::Command { command: Command::Place(place), .. } => {
                    if let Some(live) = self.live.get_mut(&place.key.apid) {
                        live.key = place.key;
                    }
                    self.events.push(report(Report::Launched(place.key)));
                    self.events.push(report(Report::Running(place.key)));
                }
                Effect::Command { command: Command::Plan(plan), .. } => self.follow(*plan),
                Effect::Tell { apid, news: crate::psched::decide::News::Running } => {
                    if let Some(live) = self.live.get_mut(&apid).filter(|l| l.generation == 0) {
                        // Nobody keeps it from running until a plan does.
                        live.next = Some(RunIntervals::Always);
                        self.touched.push(apid);
                    }
                }
                Effect::Command { command: Command::Move(order), .. } => {
                    self.moved(order.key);
                    let (key, number) = (order.key, order.number);
                    self.events.push(report(Report::Moved { key, number, frozen: Duration::ZERO }));
                }
                Effect::RollIn { key, .. } => {
                    self.moved(key);
                    self.events.push(Event::RolledIn { key });
                }
                _ => {}
            }
        }
    }

    /// It has another place, and what that costs is paid where it comes.
    fn moved(&mut self, key: Key) {
        if let Some(live) = self.live.get_mut(&key.apid) {
            live.progress.go(&live.way, self.now);
            let memory = live.job.memory_to_move().filter(|_| self.memory);
            let cost = self.moves.cost_of_bytes(memory.unwrap_or(0));
            live.progress.moved(nanos(cost));
            self.touched.push(key.apid);
        }
    }

    fn post(&mut self, job: Job) {
        self.first.get_or_insert(self.now);
        self.tally.begin();
        self.replies += 1;
        let mut id = [0; 16];
        id[..8].copy_from_slice(&self.replies.to_le_bytes());
        let user = job.user.unwrap_or(0);
        let shape = Shape { width: job.width, depth: 1, per_node: None };
        let memory_per_pe = job.memory_per_processor.filter(|_| self.memory);
        let posting = Posting { memory_per_pe, ..Posting::plain(id, shape) };
        let event = Event::Posted {
            reply: ReplyId(self.replies),
            posting: Box::new(posting),
            owner: Owner {
                uid: user,
                gid: user,
                groups: Vec::new(),
                name: format!("user{user}"),
                terminal: false,
            },
            front: FrontProcess::here(1, self.replies),
            secret: Ticket(id),
        };
        self.posted.insert(self.replies, job);
        self.events.push(event);
    }

    fn accepted(&mut self, reply: ReplyId, apid: Apid) {
        let Some(job) = self.posted.remove(&reply.0) else { return };
        let width = u64::from(job.width);
        self.tally.waits(width);
        let submitted = ZERO + nanos(job.submit);
        let run = nanos(job.run);
        let live = Live {
            key: Key { apid, incarnation: crate::apteam::Incarnation(0) },
            width,
            progress: Progress::new(submitted, run, nanos(self.setup.start_cost)),
            way: RunIntervals::Never,
            next: None,
            generation: 0,
            ends: None,
            job,
        };
        self.live.insert(apid, live);
    }

    /// A new plan, of a component: from now on, as far as it is for one that does not wait for others.
    fn follow(&mut self, plan: SlicePlan) {
        let generation = plan.generation;
        let mut followers = 0;
        for (apid, way) in RunIntervals::all(&plan) {
            let Some(live) = self.live.get_mut(&apid) else { continue };
            live.next = Some(way);
            let before = std::mem::replace(&mut live.generation, generation);
            self.follows_not(apid, before);
            self.touched.push(apid);
            followers += 1;
        }
        self.plans.insert(generation, Followed { plan, followers });
        self.joined.push(generation);
    }

    /// It has another plan than before, or has ended: one that nobody follows any more is forgotten.
    fn follows_not(&mut self, apid: Apid, before: u64) {
        if before == 0 {
            match self.live.get(&apid) {
                Some(Live { way: RunIntervals::Always, width, .. }) => self.tally.runs_not(*width),
                Some(Live { width, .. }) => self.tally.waits_not(*width),
                None => {}
            }
        } else if let Some(followed) = self.plans.get_mut(&before) {
            followed.followers -= 1;
            if followed.followers == 0 {
                self.plans.remove(&before);
            }
            self.joined.push(before);
        }
    }

    /// Those that have run as long as they run.
    fn end(&mut self) {
        while let Some((_, apid)) = self.ends.first().copied().filter(|(at, _)| *at <= self.now) {
            self.ends.pop_first();
            let Some(live) = self.live.get_mut(&apid) else { continue };
            live.progress.go(&live.way, self.now);
            let generation = live.generation;
            self.follows_not(apid, generation);
            let Some(live) = self.live.remove(&apid) else { continue };
            let (started, turns, had) = live.progress.told();
            for (all, had) in self.had.iter_mut().zip([had.useful, had.starts, had.moves]) {
                *all += u128::from(had) * u128::from(live.width);
            }
            let count = live.job.width;
            let end = HostEnd {
                key: live.key,
                nids: self
                    .scheduler
                    .team(apid)
                    .map_or_else(Vec::new, |t| t.places.nids().collect()),
                launched: true,
                ends: vec![EndCount { end: PeEnd::Exit(0), count, consequence: false }],
                ..HostEnd::default()
            };
            let since = |at: u64| Duration::from_nanos(at - ZERO);
            self.watch.done(Outcome {
                start: since(started.unwrap_or(self.now)),
                end: since(self.now),
                turns: Some(turns),
                job: live.job,
            });
            let report = Box::new(Report::Ended(Box::new(end)));
            self.events.push(Event::Report { link: LINK, report });
        }
    }

    /// Who has another way or place goes on with it from now on.
    fn settle(&mut self) {
        self.touched.sort_unstable();
        self.touched.dedup();
        for apid in self.touched.drain(..) {
            let Some(live) = self.live.get_mut(&apid) else { continue };
            live.progress.go(&live.way, self.now);
            if let Some(next) = live.next.take() {
                if live.generation == 0 && live.way != next {
                    self.tally.waits_not(live.width);
                    self.tally.runs(live.width);
                }
                live.way = next;
            }
            let before = std::mem::replace(&mut live.ends, live.progress.done(&live.way));
            if live.ends != before {
                self.ends.extend(live.ends.map(|at| (at, apid)));
                if let Some(at) = before {
                    self.ends.remove(&(at, apid));
                }
            }
        }
        self.joined.sort_unstable();
        self.joined.dedup();
        for generation in self.joined.drain(..) {
            let width = |live: &Live| (live.generation == generation).then_some(live.width);
            let width = |apid: Apid| self.live.get(&apid).and_then(width);
            let parties =
                self.plans.get(&generation).map(|followed| Parties::of(&followed.plan, width));
            self.tally.follow(generation, parties);
        }
        self.tally.turn();
    }
}

fn look(watch: &mut impl Watch, at: u64, held: u64, waiting: u64) {
    let held = u32::try_from(held).unwrap_or(u32::MAX);
    watch.at(Duration::from_nanos(at - ZERO), held, usize::try_from(waiting).unwrap_or(usize::MAX));
}

#[cfg(test)]
mod tests;
