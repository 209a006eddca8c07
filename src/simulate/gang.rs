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

use super::workload::Job;
use super::{Capacity, Moves, Outcome, Setup, Turns, Watch};
use crate::apteam::ending::{EndCount, HostEnd, PeEnd};
use crate::apteam::posting::{Executable, Owner, Posting, Shape};
use crate::apteam::record::FrontProcess;
use crate::apteam::talk::node::{Command, Hello, PROTOCOL, Report};
use crate::apteam::talk::turns::SlicePlan;
use crate::apteam::{Apid, Key, Ticket};
use crate::gang::plan::at;
use crate::scheduler::{Abilities, Effect, Event, LinkId, Now, ReplyId, Scheduler, Settings};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

const LINK: LinkId = LinkId(0);
const SECOND: u64 = 1_000_000_000;
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
    /// What it has still to run, and to pay before that, for starts and for moves.
    left: u64,
    owes: (u64, u64),
    /// Since when that is so.
    at: u64,
    runs: bool,
    /// It is to run from now on; and was moved since it was looked at.
    to_run: bool,
    moved: bool,
    /// Its plan.
    generation: u64,
    /// When it ends, if it runs on.
    ends_at: Option<u64>,
    started: Option<u64>,
    stopped: u64,
    turns: Turns,
}

impl Live {
    fn ends(&self) -> u64 {
        self.at.saturating_add(self.left).saturating_add(self.owes.0).saturating_add(self.owes.1)
    }
}

/// A plan that is followed.
struct Followed {
    plan: SlicePlan,
    members: BTreeSet<Apid>,
    /// When the slice that is on is over.
    until: u64,
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
    /// When their slices are over.
    boundaries: BTreeSet<(u64, u64)>,
    /// Whose slice has changed.
    touched: BTreeSet<Apid>,
    events: VecDeque<Event>,
    replies: u64,
    processors: u64,
    held: u64,
    /// Widths of those who wait.
    waiting: BTreeMap<u64, u32>,
    capacity: Capacity,
    counted: u64,
    /// When the first was submitted.
    first: Option<u64>,
    refused: Option<(u64, i64, String)>,
    /// Nodes say what memory they have.
    memory: bool,
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
        let submit = next.as_ref().map(|job| ZERO + job.submit.saturating_mul(SECOND));
        let Some(now) = replay.next(submit) else { return replay.over() };
        replay.pass_time(now);
        replay.end();
        while let Some(job) =
            next.take_if(|job| ZERO + job.submit.saturating_mul(SECOND) <= replay.now)
        {
            replay.post(job);
            next = jobs.next().transpose().map_err(Stopped::Jobs)?;
        }
        replay.turn();
        if replay.scheduler.deadline().is_some_and(|at| at <= replay.now) {
            replay.apply(Event::Tick);
        }
        replay.settle();
        if let Some((line, job, why)) = replay.refused.take() {
            return Err(Stopped::Refused { line, job, why });
        }
        #[cfg(test)]
        replay.check();
        let since = Duration::from_nanos(replay.now - ZERO);
        let waiting = replay.waiting.values().map(|n| *n as usize).sum();
        let held = u32::try_from(replay.held).unwrap_or(u32::MAX);
        replay.watch.at(since, held, waiting);
    }
}

impl<'a, W: Watch> Replay<'a, W> {
    fn new(setup: &'a Setup, watch: &'a mut W) -> Replay<'a, W> {
        let all = setup.moves == Moves::All;
        let abilities = Abilities { moves: all, roll_out: all };
        let settings = Settings { abilities, ..Settings::from(&setup.variables) };
        let mut replay = Replay {
            setup,
            scheduler: Scheduler::new(setup.machine.clone(), settings),
            watch,
            now: ZERO,
            posted: BTreeMap::new(),
            live: BTreeMap::new(),
            ends: BTreeSet::new(),
            plans: BTreeMap::new(),
            boundaries: BTreeSet::new(),
            touched: BTreeSet::new(),
            events: VecDeque::new(),
            replies: 0,
            processors: setup.machine.application_processors(),
            held: 0,
            waiting: BTreeMap::new(),
            capacity: Capacity::default(),
            counted: ZERO,
            first: None,
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
        replay.apply(Event::LinkOpened { link: LINK, hello: Box::new(hello) });
        replay.apply(Event::Inventory { link: LINK, items: Vec::new() });
        replay
    }

    /// When something happens next; none: all is over.
    fn next(&self, submit: Option<u64>) -> Option<u64> {
        let end = self.ends.first().map(|(at, _)| *at);
        let any = submit.or(end).is_some() || !self.live.is_empty();
        let deadline = self.scheduler.deadline().filter(|_| any);
        let boundary = self.boundaries.first().map(|(at, _)| *at);
        let next = [submit, end, deadline, boundary].into_iter().flatten().min()?;
        any.then_some(next.max(self.now))
    }

    /// Nothing is to happen any more.
    fn over<E>(self) -> Result<Capacity, Stopped<E>> {
        if let Some(Live { job, .. }) = self.live.into_values().next() {
            let why = "it waits, and nothing is to happen any more".to_owned();
            return Err(Stopped::Refused { line: job.line, job: job.number, why });
        }
        let from = self.first.unwrap_or(self.now);
        let all = self.processors as f64 * (self.now - from) as f64 / SECOND as f64;
        debug_assert!(
            (self.capacity.total() - all).abs() <= 1e-6 * all.max(1.0),
            "{:?} is not {all}",
            self.capacity
        );
        Ok(self.capacity)
    }

    /// No processor is run by two.
    #[cfg(test)]
    fn check(&self) {
        let mut run = BTreeSet::new();
        for apid in self.live.iter().filter(|(_, live)| live.runs).map(|(apid, _)| *apid) {
            for place in self.scheduler.team(apid).into_iter().flat_map(|team| team.places.0.iter())
            {
                for seat in place.processors.iter().map(|processor| (place.nid, *processor)) {
                    assert!(run.insert(seat), "{seat:?}: {apid} and another, at {}", self.now);
                }
            }
        }
        assert_eq!(run.len() as u64, self.held);
    }

    /// What the machine did until then.
    fn pass_time(&mut self, now: u64) {
        let seconds = (now - self.counted) as f64 / SECOND as f64;
        let idle = self.processors.saturating_sub(self.held);
        let to = match self.waiting.first_key_value() {
            None => &mut self.capacity.idle,
            Some((narrowest, _)) if *narrowest <= idle => &mut self.capacity.fragmented,
            Some(_) => &mut self.capacity.kept,
        };
        // (Before the first job there is no machine to waste.)
        if self.first.is_some() {
            *to += idle as f64 * seconds;
        }
        (self.now, self.counted) = (now, now);
    }

    fn apply(&mut self, event: Event) {
        let now = Now { mono_ns: self.now, wall_ns: self.now };
        let effects = self.scheduler.apply(now, event);
        self.hear(effects);
        while let Some(event) = self.events.pop_front() {
            let effects = self.scheduler.apply(now, event);
            self.hear(effects);
        }
    }

    fn hear(&mut self, effects: Vec<Effect>) {
        let report = |report| Event::Report { link: LINK, report: Box::new(report) };
        for effect in effects {
            match effect {
                Effect::Accept { reply, apid } => self.accepted(reply, apid),
                Effect::Refuse { reply, explanation, .. } => {
                    if let Some(job) = self.posted.remove(&reply.0) {
                        let why = explanation.to_string();
                        self.refused.get_or_insert((job.line, job.number, why));
                    }
                }
                Effect::Command { command: Command::Place(place), .. } => {
                    if let Some(live) = self.live.get_mut(&place.key.apid) {
                        live.key = place.key;
                    }
                    self.events.push_back(report(Report::Launched(place.key)));
                    self.events.push_back(report(Report::Running(place.key)));
                }
                Effect::Command { command: Command::Plan(plan), .. } => self.follow(*plan),
                Effect::Tell { apid, news: crate::scheduler::News::Running } => {
                    if let Some(live) = self.live.get_mut(&apid) {
                        // Nobody keeps it from running until a plan does.
                        live.to_run = true;
                        self.touched.insert(apid);
                    }
                }
                Effect::Move { key, .. } => {
                    if let Some(live) = self.live.get_mut(&key.apid) {
                        live.moved = true;
                        live.turns.moves += 1;
                        live.owes.1 += nanos(self.setup.move_cost);
                        self.touched.insert(key.apid);
                    }
                    self.events.push_back(Event::Moved { key });
                }
                _ => {}
            }
        }
    }

    fn post(&mut self, job: Job) {
        self.first.get_or_insert(self.now);
        self.replies += 1;
        let mut id = [0; 16];
        id[..8].copy_from_slice(&self.replies.to_le_bytes());
        let user = job.user.unwrap_or(0);
        let posting = Posting {
            request_id: id,
            shape: Shape { width: job.width, depth: 1, per_node: None },
            memory_per_pe: job.memory_per_processor.filter(|_| self.memory),
            command: String::new(),
            cpu_limit: None,
            time_limit: None,
            immediate: false,
            exclusive: false,
            executable: Executable::default(),
        };
        let event = Event::Posted {
            reply: ReplyId(self.replies),
            posting: Box::new(posting),
            owner: Owner { uid: user, gid: user, groups: Vec::new(), name: format!("user{user}") },
            front: FrontProcess { pid: 1, started: self.replies },
            secret: Ticket(id),
        };
        self.posted.insert(self.replies, job);
        self.apply(event);
    }

    fn accepted(&mut self, reply: ReplyId, apid: Apid) {
        let Some(job) = self.posted.remove(&reply.0) else { return };
        let width = u64::from(job.width);
        *self.waiting.entry(width).or_default() += 1;
        let live = Live {
            key: Key { apid, incarnation: crate::apteam::Incarnation(0) },
            width,
            left: job.run.saturating_mul(SECOND),
            owes: (0, 0),
            at: self.now,
            runs: false,
            to_run: false,
            moved: false,
            generation: 0,
            ends_at: None,
            started: None,
            stopped: ZERO + job.submit.saturating_mul(SECOND),
            turns: Turns::default(),
            job,
        };
        self.live.insert(apid, live);
    }

    /// A new plan, of a component: from now on, as far as it is for one that does not wait for others.
    fn follow(&mut self, plan: SlicePlan) {
        let generation = plan.generation;
        let members: BTreeSet<Apid> = plan.members.iter().map(|key| key.apid).collect();
        for apid in &members {
            let Some(live) = self.live.get_mut(apid) else { continue };
            let before = std::mem::replace(&mut live.generation, generation);
            self.follows_no_more(*apid, before);
        }
        self.plans.insert(generation, Followed { plan, members, until: u64::MAX });
        self.slice(generation);
    }

    /// It has another plan, or has ended: a plan that nobody follows any more is forgotten.
    fn follows_no_more(&mut self, apid: Apid, generation: u64) {
        let Some(followed) = self.plans.get_mut(&generation) else { return };
        followed.members.remove(&apid);
        if followed.members.is_empty() {
            self.boundaries.remove(&(followed.until, generation));
            self.plans.remove(&generation);
        }
    }

    /// The slice of a plan that is on now.
    fn slice(&mut self, generation: u64) {
        let Some(followed) = self.plans.get_mut(&generation) else { return };
        let plan = &followed.plan;
        let from = self.now.max(plan.from_ns);
        let after = Duration::from_nanos(from.saturating_sub(plan.begins_ns));
        let on = at(plan.slices.iter().map(|slice| slice.length), after);
        let party = on.map_or(&[][..], |(number, _)| &plan.slices[number].party);
        for apid in &followed.members {
            if let Some(live) = self.live.get_mut(apid) {
                live.to_run = party.contains(&live.key);
                self.touched.insert(*apid);
            }
        }
        self.boundaries.remove(&(followed.until, generation));
        followed.until = match on {
            Some((_, left)) if plan.slices.len() > 1 => from.saturating_add(nanos(left)),
            _ => u64::MAX,
        };
        if followed.until < u64::MAX {
            self.boundaries.insert((followed.until, generation));
        }
    }

    /// Slices that are over.
    fn turn(&mut self) {
        while let Some((_, generation)) =
            self.boundaries.first().copied().filter(|(at, _)| *at <= self.now)
        {
            self.slice(generation);
        }
    }

    /// Those that have run as long as they run.
    fn end(&mut self) {
        while let Some((_, apid)) = self.ends.first().copied().filter(|(at, _)| *at <= self.now) {
            self.ends.pop_first();
            self.settled(apid);
            let Some(mut live) = self.live.remove(&apid) else { continue };
            self.held -= live.width;
            self.follows_no_more(apid, live.generation);
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
            live.turns.starts = live.turns.starts.max(1);
            let since = |at: u64| Duration::from_nanos(at - ZERO);
            self.watch.done(Outcome {
                start: since(live.started.unwrap_or(self.now)),
                end: since(self.now),
                turns: Some(live.turns),
                job: live.job,
            });
            let report = Box::new(Report::Ended(Box::new(end)));
            self.apply(Event::Report { link: LINK, report });
        }
    }

    /// What one has had and paid is on its account until now.
    fn settled(&mut self, apid: Apid) {
        let Some(live) = self.live.get_mut(&apid) else { return };
        let mut time = self.now - std::mem::replace(&mut live.at, self.now);
        if !live.runs {
            return;
        }
        let mut pay = |owed: &mut u64| {
            let paid = time.min(*owed);
            (time, *owed) = (time - paid, *owed - paid);
            paid as f64 / SECOND as f64 * live.width as f64
        };
        self.capacity.starts += pay(&mut live.owes.0);
        self.capacity.moves += pay(&mut live.owes.1);
        self.capacity.useful += pay(&mut live.left);
    }

    /// Who is to run does, and who is not does not, from now on.
    fn settle(&mut self) {
        for apid in std::mem::take(&mut self.touched) {
            self.settled(apid);
            let Some(live) = self.live.get_mut(&apid) else { continue };
            let moved = std::mem::take(&mut live.moved);
            if live.runs == live.to_run && !(moved && live.runs) {
                continue;
            }
            if let Some(at) = live.ends_at.take() {
                self.ends.remove(&(at, apid));
            }
            let waiting = self.waiting.entry(live.width).or_default();
            if live.runs {
                self.held -= live.width;
                live.stopped = self.now;
                *waiting += 1;
            }
            live.runs = live.to_run;
            if live.runs {
                self.held += live.width;
                *waiting -= 1;
                live.turns.starts += 1;
                live.owes.0 += nanos(self.setup.start_cost);
                live.started.get_or_insert(self.now);
                let stood = Duration::from_nanos(self.now - live.stopped);
                live.turns.longest_stopped = live.turns.longest_stopped.max(stood);
            }
            if *waiting == 0 {
                self.waiting.remove(&live.width);
            }
            if live.runs {
                let at = live.ends();
                live.ends_at = Some(at);
                self.ends.insert((at, apid));
            }
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
