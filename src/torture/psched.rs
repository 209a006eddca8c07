//! psched in the simulated cluster: the driver that ships, on a simulated outside.
//!
//! What the daemon's services do beside the driver (a call that comes, a question that is asked of the
//! state and of the disk before one is put to the driver) is here as well.

use super::checks::Asked;
use super::logins::{BACK, DOWN, PschedLogins};
use super::narrow::Beats;
use super::store::Disk;
use super::wire::{Msg, Pid, Target, Who, WireId};
use super::world::{Ev, World};
use super::{MS, US};
use crate::aprun::decide::closing::Ended;
use crate::aprun::decide::session::{
    Ask, Looked as Found, Placement, PschedEvent as Said, Retried,
};
use crate::apteam::posting::{Owner, Posting};
use crate::apteam::protocol::node::{ClockTold, NodeSpec, Report, Welcome};
use crate::apteam::record::{Apteam, FrontProcess, State};
use crate::apteam::{Apid, Key, Ticket};
use crate::machine::Nid;
use crate::psched::decide::outbox::{Commit, Kept, Outbox};
use crate::psched::decide::{Effect, Event, LinkId, Looked, Now, ReplyId, Scheduler};
use crate::psched::drive::recorder::Recording;
use crate::psched::drive::requests::Kill;
use crate::psched::drive::{
    Answer, Driver, Front, Identity, Note, Outside, Refused, Reply, Sent, ToNode, Told, Waits,
};
use crate::psched::reason::sees_all;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A question whose answer waits for all before it to be durable.
#[derive(Clone, Debug, PartialEq)]
pub enum Question {
    /// Whether an application is there: for a watch of this front end's.
    Watch { stream: Stream, apid: Apid, found: bool },
    /// The same for a look.
    Look { wire: WireId, apid: Apid, found: bool },
    /// What was made of a posting that comes again.
    Post { stream: Stream },
}

/// A front end's stream of events.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stream {
    wire: WireId,
    front: Pid,
}

/// A call that waits for an answer.
#[derive(Clone, Copy, Debug)]
pub enum Call {
    /// Of a front end.
    Wire(WireId),
    /// Its watch of this application.
    Watch(WireId, Apid),
    /// A signal of which the checkers know.
    Signal(Key, i32),
    /// Nobody waits.
    Nobody,
}

/// Commits that may wait for the full disk: few, so that some histories come to it.
const COMMITS_MAX: usize = 24;

/// A psched that runs.
pub struct Psched {
    pub pid: Pid,
    pub driver: Driver<World>,
    /// Streams whose first message has not come.
    fresh: BTreeMap<LinkId, WireId>,
    timer: (u64, u64),
}

/// What is around the driver of the psched that runs.
#[derive(Debug, Default)]
pub struct Around {
    /// psched's own number; 0: it does not run.
    pub pid: Pid,
    /// Front ends that are watched, and the hosts of those that are not here.
    pub logins: PschedLogins,
    /// What apinits have told of its clock.
    pub clocks: BTreeMap<LinkId, ClockTold>,
    /// The heartbeats of apinits.
    pub beats: BTreeMap<LinkId, Beats>,
    /// psched dies after so many more things that leave it.
    pub dies_after: Option<u32>,
    /// It has died within a call of its driver's: nothing leaves it any more.
    dead: bool,
    /// Questions that have their answer.
    answered: VecDeque<(Question, Kept)>,
    /// Of what is being decided: the application of a look, and the posting.
    asked: (Option<Apid>, Option<Asked>),
    /// Applications whose end is told before it is on record.
    told_early: BTreeSet<Apid>,
}

impl World {
    /// Both clocks of psched's host.
    pub fn psched_now(&self) -> Now {
        Now { mono_ns: self.mono(0), wall_ns: self.hosts[0].wall(self.now) }
    }

    /// The state of the psched that runs.
    pub fn scheduler(&self) -> Option<&Scheduler> {
        self.psched.as_ref().map(|psched| psched.driver.scheduler())
    }

    /// psched is started.
    pub fn psched_start(&mut self) {
        if self.psched.is_some() || !self.hosts[0].up {
            return;
        }
        if self.disk.full {
            // Its epoch can't be written: whoever supervises it tries again.
            return self.after(500 * MS, Ev::PschedStart);
        }
        let pid = self.new_pid();
        self.disk.start(format!("start-{pid}"));
        let (teams, boots, next) = self.disk.restore();
        let orders = self.disk.orders.clone();
        let now = self.psched_now();
        let (machine, settings) = (self.machine.clone(), self.settings.clone());
        let (mut scheduler, effects) =
            Scheduler::restore(machine, settings, teams, boots, orders, next, now);
        scheduler.started(self.disk.epoch, self.disk.start_id());
        self.note(|| format!("psched {pid} starts"));
        self.checks.psched_away(self.now);
        self.checks.ends_are_disturbed(self.now + BACK);
        let mut driver =
            Driver::new(scheduler, Outbox::bounded(COMMITS_MAX), self.identity(&self.disk));
        driver.remember(super::checks::EVENTS);
        self.around = Around { pid, ..Around::default() };
        self.store = Default::default();
        let fresh = BTreeMap::new();
        self.psched = Some(Box::new(Psched { pid, driver, fresh, timer: (0, 0) }));
        self.psched_does(|driver, world| driver.begin(world, effects));
        if self.ending {
            self.orders_are_over();
        }
    }

    /// Has the driver do something, and then what comes of that beside it.
    fn psched_does(&mut self, act: impl FnOnce(&mut Driver<World>, &mut World)) {
        let Some(mut psched) = self.psched.take() else { return };
        act(&mut psched.driver, self);
        self.psched = Some(psched);
        self.around.asked = (None, None);
        if self.around.dead {
            self.counts.killed_between += 1;
            return self.kill_psched();
        }
        self.psched_sets_timer();
        while let Some((question, kept)) = self.around.answered.pop_front() {
            self.psched_answers(question, kept);
        }
    }

    /// Something leaves psched, unless it has just died: it may be killed between any two things.
    fn leaves(&mut self) -> bool {
        match &mut self.around.dies_after {
            Some(0) => self.around.dead = true,
            Some(left) => *left -= 1,
            None => {}
        }
        !self.around.dead
    }

    /// It is dead.
    pub fn psched_gone(&mut self) {
        self.check_replay();
        self.store_dies();
        let Some(psched) = self.psched.take() else { return };
        self.psched_forgets_logins();
        self.around = Around::default();
        self.store = Default::default();
        self.checks.psched_died();
        self.checks.ends_are_disturbed(self.now + DOWN);
        self.checks.psched_away(u64::MAX);
        self.note(|| format!("psched {} dies", psched.pid));
        self.all_disturbed();
        let own = |who: Who| {
            matches!(who, Who::PschedLink(_) | Who::PschedFront(_) | Who::PschedLogin(_))
        };
        self.close_ends(own);
    }

    /// All ends of a dead process are closed.
    pub fn close_ends(&mut self, own: impl Fn(Who) -> bool) {
        let ends: Vec<(WireId, usize)> = self
            .wires
            .iter()
            .flat_map(|(id, w)| [(*id, 0, w.ends[0]), (*id, 1, w.ends[1])])
            .filter(|(_, _, who)| own(*who))
            .map(|(id, side, _)| (id, side))
            .collect();
        for (id, side) in ends {
            self.hang_up(id, side);
        }
    }

    /// Something for the scheduler.
    pub fn psched_event(&mut self, event: Event) {
        self.counts.heard += 1;
        self.note(|| format!("psched: {}", super::trace::cut(&event)));
        self.psched_does(|driver, world| driver.events(world, vec![event]));
    }

    /// The same for events that come also in a quiet cluster: they are not counted.
    pub fn psched_learns(&mut self, event: Event) {
        self.psched_does(|driver, world| driver.events(world, vec![event]));
    }

    /// An order of an administrator's.
    pub fn psched_manages(&mut self, event: impl FnOnce(ReplyId) -> Event) {
        self.counts.heard += 1;
        self.psched_does(|driver, world| driver.manage(world, event, Call::Nobody));
    }

    fn psched_sets_timer(&mut self) {
        let number = self.number();
        let Some(psched) = &mut self.psched else { return };
        let at = psched.driver.scheduler().deadline().unwrap_or(0);
        if psched.timer.0 == at {
            return;
        }
        psched.timer = (at, number);
        if at == 0 {
            return;
        }
        let pid = psched.pid;
        let at = self.hosts[0].true_time(self.now, at);
        self.at(at, Ev::PschedTimer(pid, number));
    }

    /// Its timer has rung.
    pub fn psched_timer(&mut self, pid: Pid, timer: u64) {
        if let Some(pause) = self.paused_until(Who::PschedFront(0)) {
            return self.at(pause, Ev::PschedTimer(pid, timer));
        }
        if let Some(psched) = self.psched.as_mut().filter(|p| p.pid == pid && p.timer.1 == timer) {
            psched.timer = (0, 0);
            self.psched_event(Event::Tick);
        }
    }

    /// The store has an outcome for it.
    pub fn psched_outcome(&mut self, pid: Pid) {
        if let Some(pause) = self.paused_until(Who::PschedFront(0)) {
            return self.at(pause, Ev::StoreOutcome(pid));
        }
        if self.around.pid != pid {
            return;
        }
        let Some(outcome) = self.store.back.pop_front() else { return };
        self.psched_does(|driver, world| driver.outcomes(world, vec![outcome]));
    }

    /// The loop hears that the store fails.
    pub fn store_has_failed(&mut self) {
        self.psched_does(|driver, world| driver.give_if_it_waits(world));
    }

    /// How many commits a psched on this disk says that there are. (Without copies none counts
    /// them, so that seeds are the histories that they were before it was done.)
    pub fn counted(&self, disk: &Disk) -> u64 {
        if self.mix.copies { disk.commits } else { 0 }
    }

    /// Which psched one on this disk is.
    fn identity(&self, disk: &Disk) -> Identity {
        Identity {
            store_id: "torture0store".into(),
            epoch: disk.epoch,
            starts: if self.mix.copies { disk.starts.clone() } else { Vec::new() },
            boot_id: self.hosts[0].boot_id(),
            kill_grace: self.settings.kill_grace,
            checkpoint_key: None,
        }
    }

    /// How a psched on a copy of the disk introduces itself.
    pub fn welcome_of(&self, disk: &Disk, next_apid: u64, nids: &[Nid]) -> Welcome {
        let (machine, mono_ns) = (&self.machine, self.mono(0));
        let spec = |n: &crate::machine::Node| NodeSpec::of(n, machine.first_processor(n.nid));
        Welcome {
            store_id: "torture0store".into(),
            epoch: disk.epoch,
            nodes: nids.iter().filter_map(|n| machine.nodes.get(n)).map(spec).collect(),
            kill_grace: self.settings.kill_grace,
            mono_ns,
            boot_id: self.hosts[0].boot_id(),
            next_apid,
            starts: if self.mix.copies { disk.starts.clone() } else { Vec::new() },
            commits: self.counted(disk),
            unreadable: Vec::new(),
            bounds: self.settings.host_bounds,
            checkpoint_key: None,
        }
    }

    fn psched_watches(&mut self, apid: Apid, process: FrontProcess, signal_as: Option<u32>) {
        let here = process.host.is_empty();
        let task = self.around.logins.hosts.watch(apid, process, here, signal_as);
        task.into_iter().for_each(|task| self.psched_login_task(task));
    }

    /// The kernel tells of the end of a front end.
    pub fn psched_front_died(&mut self, pid: Pid, front: Pid) {
        if let Some(pause) = self.paused_until(Who::PschedFront(0)) {
            return self.at(pause, Ev::PschedFrontDied(pid, front));
        }
        if self.around.pid != pid {
            return;
        }
        let gone = self.around.logins.hosts.ended(&self.logins.process(front));
        self.fronts_gone(gone);
    }

    // ---- its socket ----

    /// An apinit has connected.
    pub fn psched_link_opened(&mut self, wire: WireId) -> Option<Who> {
        let number = self.number();
        let psched = self.psched.as_mut()?;
        let link = LinkId(number);
        psched.fresh.insert(link, wire);
        self.beats_are_counted(link, wire);
        Some(Who::PschedLink(link))
    }

    /// A front end has connected.
    pub fn psched_front_opened(&mut self, _wire: WireId, front: Pid) -> Option<Who> {
        self.psched.as_ref().map(|_| Who::PschedFront(front))
    }

    /// An apinit says something.
    pub fn psched_link_says(&mut self, wire: WireId, link: LinkId, msg: Msg) {
        self.apinit_is_heard(link);
        let Some(psched) = &mut self.psched else { return };
        let event = match msg {
            Msg::Beat => return self.send_on(wire, Msg::BeatAnswered),
            Msg::Hello(hello) => {
                let Some(wire) = psched.fresh.remove(&link) else { return };
                self.counts.heard += 1;
                self.note(|| format!("psched: {}", super::trace::cut(&hello)));
                return self
                    .psched_does(|driver, world| driver.link_opened(world, link, hello, wire));
            }
            Msg::ClockAsked(asked_ns) => return self.clock_asked(wire, asked_ns),
            Msg::Clock(clock) => return self.clock_told(link, clock),
            Msg::Inventory(items) => {
                self.apinit_of(link).into_iter().for_each(|slot| self.calmed(slot));
                Event::Inventory { link, items }
            }
            Msg::Report(report) => {
                self.report_again(link, &report);
                Event::Report { link, report }
            }
            Msg::Eof => {
                psched.fresh.remove(&link);
                self.around.clocks.remove(&link);
                self.around.beats.remove(&link);
                Event::LinkClosed { link }
            }
            _ => return,
        };
        let switches = matches!(&event, Event::Report { report, .. }
            if matches!(**report, Report::Switches(_)));
        let left_out = matches!(event, Event::Inventory { .. } | Event::Report { .. });
        if left_out && self.psched.as_ref().is_some_and(|p| p.driver.is_full()) {
            self.counts.left_out += u64::from(self.store.trouble);
        }
        self.psched_event(event);
        if switches {
            self.check_memory();
        }
    }

    fn send_on(&mut self, wire: WireId, msg: Msg) {
        World::send(self, wire, 1, msg);
    }

    /// A front end asks something. Looks and kills are calls of their own: they do not keep the
    /// order of the stream.
    pub fn psched_front_says(&mut self, wire: WireId, front: Pid, msg: Msg) {
        match msg {
            Msg::Look(_) | Msg::Kill(..) => {
                let late = self.net.u64(0..400 * US);
                self.after(late, Ev::PschedRpc(wire, front, Box::new(msg)));
            }
            Msg::Ask(ask) => self.psched_asked(wire, front, Msg::Ask(ask)),
            _ => {}
        }
    }

    /// A call has come.
    pub fn psched_asked(&mut self, wire: WireId, front: Pid, msg: Msg) {
        if let Some(pause) = self.paused_until(Who::PschedFront(0)) {
            return self.at(pause, Ev::PschedRpc(wire, front, Box::new(msg)));
        }
        if !self.wires.contains_key(&wire) {
            return;
        }
        let again = matches!(&msg, Msg::Ask(Ask::Post)) && self.posts_again(front);
        let Some(scheduler) = self.scheduler() else { return };
        let found = |apid: Apid| scheduler.team(apid).is_some();
        let stream = Stream { wire, front };
        match msg {
            Msg::Ask(Ask::Post) if again => self.psched_reads(Question::Post { stream }),
            Msg::Ask(Ask::Post) => self.psched_posted(stream),
            Msg::Ask(Ask::Watch(apid)) => {
                let found = found(apid);
                self.psched_reads(Question::Watch { stream, apid, found });
            }
            Msg::Look(apid) => {
                let found = found(apid);
                self.psched_reads(Question::Look { wire, apid, found });
            }
            Msg::Kill(apid, signal) => {
                let uid = self.fronts.get(&front).map_or(0, |f| f.posting.1.uid);
                self.psched_kill(Some(wire), apid, signal, uid);
            }
            _ => {}
        }
    }

    /// Somebody asks for the end of an application.
    pub fn psched_kill(&mut self, wire: Option<WireId>, apid: Apid, signal: i32, uid: u32) {
        if self.psched.is_some() {
            self.checks.killed(apid, signal);
            self.psched_signalled(wire.map_or(Call::Nobody, Call::Wire), apid, signal, uid);
        }
    }

    /// Somebody sends a signal of which the checkers know.
    pub fn psched_signals(&mut self, key: Key, signal: i32, uid: u32) {
        self.psched_signalled(Call::Signal(key, signal), key.apid, signal, uid);
    }

    fn psched_signalled(&mut self, call: Call, apid: Apid, signal: i32, uid: u32) {
        self.counts.heard += 1;
        self.note(|| format!("psched: signal {signal} to {apid}"));
        let kill = Kill { apids: vec![apid], signal, uid, administrator: false };
        self.psched_does(|driver, world| driver.kill(world, kill, call));
    }

    fn psched_posted(&mut self, stream: Stream) {
        let front = stream.front;
        let Some(aprun) = self.fronts.get(&front) else { return };
        let (posting, owner): (Posting, Owner) = aprun.posting.clone();
        let asked = Asked::of(&posting, aprun.returning.is_some());
        let origin = aprun.returning.as_ref().map(|returning| returning.origin.clone());
        if self.psched.is_none() {
            return;
        }
        let mut secret = [0; 16];
        self.work.fill(&mut secret);
        let (posting, secret) = (Box::new(posting), Ticket(secret));
        let process = self.logins.process(front);
        let posted = process.clone();
        let event = move |reply| match origin {
            None => Event::Posted { reply, posting, owner, front: posted, secret },
            Some(origin) => {
                Event::Restarted { reply, posting, owner, front: posted, secret, origin }
            }
        };
        self.note(|| format!("psched: a posting of aprun {front}"));
        self.around.asked = (None, Some(asked));
        let front = Front { process, handle: () };
        self.psched_does(|driver, world| driver.post(world, event, front, stream));
    }

    fn psched_reads(&mut self, question: Question) {
        self.psched_does(|driver, world| driver.look(world, question));
    }

    /// What was asked is known, and durable; or it waits for the disk.
    fn psched_answers(&mut self, question: Question, kept: Kept) {
        if kept == Kept::Waits {
            self.counts.unrecorded += 1;
            let why = "records wait for the disk".to_owned();
            return match question {
                Question::Watch { stream: Stream { wire, .. }, .. }
                | Question::Post { stream: Stream { wire, .. } } => {
                    self.send(wire, 1, Msg::Refused(why, false));
                }
                Question::Look { wire, .. } => {
                    self.send(wire, 1, Msg::Looked(Box::new(Found::Failed(why))));
                }
            };
        }
        match question {
            Question::Watch { stream, apid, found: true } => {
                let process = self.logins.process(stream.front);
                let front = Some(Front { process, handle: () });
                let call = Call::Watch(stream.wire, apid);
                self.psched_does(|driver, world| driver.watch(world, apid, front, stream, call));
            }
            Question::Look { wire, apid, found: true } => {
                self.counts.heard += 1;
                self.around.asked = (Some(apid), None);
                self.psched_does(|driver, world| driver.looked(world, apid, Call::Wire(wire)));
            }
            Question::Watch { stream, apid, .. } => self.tell_ended(stream.wire, apid),
            Question::Post { stream } => match self.posted_before(stream.front) {
                Some(apid) => {
                    self.checks.acknowledged(&self.disk, apid, stream.front);
                    self.tell_ended(stream.wire, apid);
                }
                // (One that has not ended the scheduler knows by the posting's number.)
                None => self.psched_posted(stream),
            },
            Question::Look { wire, apid, .. } => {
                let found = match self.ended(apid) {
                    Some(ended) => Found::Ended(ended),
                    None => Found::Failed(format!("there is no application {apid}")),
                };
                self.send(wire, 1, Msg::Looked(Box::new(found)));
            }
        }
    }

    /// The application that was made of an aprun's posting, if it has ended.
    fn posted_before(&self, front: Pid) -> Option<Apid> {
        let id = self.fronts.get(&front)?.posting.0.request_id;
        let of_same = |t: &&Apteam| t.posting.request_id == id && t.state == State::Ended;
        self.disk.teams.values().find(of_same).map(|t| t.apid)
    }

    fn ended(&self, apid: Apid) -> Option<Box<Ended>> {
        let team = self.disk.teams.get(&apid).filter(|t| t.state == State::Ended)?;
        let end = team.end.clone().unwrap_or_default();
        Some(Box::new(Ended {
            status: end.status(),
            end,
            told: false,
            by_name: String::new(),
            host: String::new(),
            no_copy: false,
        }))
    }

    fn tell_ended(&mut self, wire: WireId, apid: Apid) {
        let there = self.disk.teams.contains_key(&apid);
        let msg = match self.ended(apid) {
            Some(ended) => Msg::Event(Box::new(Said::Ended(ended))),
            None if there => Msg::Refused("the application is just ending".into(), false),
            None => Msg::Refused(format!("there is no application {apid}"), true),
        };
        self.send(wire, 1, msg);
    }

    /// What psched listens on: for those who dial.
    pub fn dial_psched(&mut self, from: Who, host: usize, target: Target) -> WireId {
        self.connect(from, [host, 0], target)
    }
}

impl Outside for World {
    type Caller<T: Reply> = Call;
    type Stream = Stream;
    type Front = ();
    type Link = WireId;
    type Look = Question;

    fn now(&self) -> Now {
        self.psched_now()
    }

    fn commits(&self) -> u64 {
        self.counted(&self.disk)
    }

    fn waits(&self) -> Option<Waits> {
        let why = || "the disk is full".to_owned();
        self.store.trouble.then(|| Waits { since_ns: 0, why: why(), refuses: true })
    }

    fn commit(&mut self, commit: Commit<Question>) {
        if self.leaves() {
            self.store_is_given(commit);
        }
    }

    fn answer<T: Reply>(&mut self, caller: Call, reply: T) {
        if !self.leaves() {
            return;
        }
        let msg = match (reply.into_answer(), caller) {
            (Answer::Looked(Ok(Looked::Placed(team))), _) => {
                Msg::Looked(Box::new(Found::Placement(Box::new(Placement {
                    key: team.key(),
                    places: team.places.clone(),
                    hosts: team.hosts.to_vec(),
                    ticket: team.ticket,
                    front_host: team
                        .front
                        .as_ref()
                        .map_or_else(String::new, |f| self.front_host(f.pid)),
                }))))
            }
            (Answer::Looked(Ok(Looked::Waiting(why))), _) => {
                Msg::Looked(Box::new(Found::Waiting(why.words(&sees_all))))
            }
            (Answer::Looked(Err(why)), _) => {
                Msg::Looked(Box::new(Found::Failed(why.words(&sees_all))))
            }
            (Answer::Killed(killed), Call::Signal(key, signal)) => {
                self.counts.unrecorded += u64::from(killed.kept == Kept::Waits);
                let taken = killed.problems.iter().all(Option::is_none);
                if taken && killed.kept == Kept::Yes {
                    self.checks.signal_taken(key, signal);
                }
                return;
            }
            // (Also one that is not on record: its sender is told that.)
            (Answer::Killed(killed), _) => {
                self.counts.unrecorded += u64::from(killed.kept == Kept::Waits);
                Msg::Killed
            }
            (Answer::Watched(Ok(false)), Call::Watch(wire, apid)) => {
                return self.tell_ended(wire, apid);
            }
            (Answer::Watched(Err(why)), _) => Msg::Refused(why.words(&sees_all), false),
            (Answer::Watched(Ok(_)) | Answer::Managed(_), _) => return,
        };
        if let Call::Wire(wire) | Call::Watch(wire, _) = caller {
            self.send(wire, 1, msg);
        }
    }

    fn look(&mut self, question: Question, kept: Kept) {
        if !self.around.dead {
            self.around.answered.push_back((question, kept));
        }
    }

    fn listens(&self, stream: &Stream) -> bool {
        self.wires.contains_key(&stream.wire)
    }

    fn tell(&mut self, stream: &mut Stream, told: &Told) -> bool {
        if !self.leaves() {
            return true;
        }
        let said = match told {
            Told::Accepted(apid) => {
                self.checks.acknowledged(&self.disk, *apid, stream.front);
                Said::Accepted(*apid)
            }
            Told::Placed(incarnation) => Said::Placed(incarnation.0),
            Told::Launched(_) => Said::Launched,
            Told::Retried { failed, count, most } => {
                self.counts.add("launches tried again");
                Said::Retried(Retried {
                    incarnation: failed.incarnation.0,
                    cause: failed.cause.clone(),
                    attempt: *count,
                    most: *most,
                })
            }
            Told::Ended(end) => {
                if self.around.told_early.remove(&end.key.apid) {
                    self.checks.told_before_its_record(end.key.apid);
                }
                let (status, end) = (end.status(), (**end).clone());
                Said::Ended(Box::new(Ended {
                    status,
                    end,
                    told: false,
                    by_name: String::new(),
                    host: String::new(),
                    no_copy: false,
                }))
            }
            // Nobody asks for that here.
            Told::AskLaunch => return true,
        };
        self.send(stream.wire, 1, Msg::Event(Box::new(said)));
        self.wires.contains_key(&stream.wire)
    }

    fn refuse(&mut self, stream: Stream, why: Refused) {
        if self.leaves() {
            let for_good = matches!(why, Refused::Decided(..));
            self.send(stream.wire, 1, Msg::Refused(why.words(&sees_all), for_good));
        }
    }

    fn send(&mut self, link: &mut WireId, sent: Sent) -> bool {
        if self.leaves() {
            let Sent { seq, commits, message } = sent;
            let msg = match message {
                Some(ToNode::Welcome(welcome)) => Msg::Welcome(welcome),
                Some(ToNode::Refused(why)) => Msg::LinkRefused(why),
                Some(ToNode::Command(command)) => Msg::Command(seq, commits, command),
                // The answer to a heartbeat: narrow connections answer those themselves.
                None => return true,
            };
            World::send(self, *link, 1, msg);
        }
        true
    }

    fn hang_up(&mut self, link: WireId) {
        if self.leaves() {
            World::hang_up(self, link, 1);
        }
    }

    fn watch_front(&mut self, apid: Apid, front: Front<()>) {
        if !self.around.dead {
            self.psched_watches(apid, front.process, Some(0));
        }
    }

    fn find_front(&mut self, apid: Apid, process: FrontProcess) -> bool {
        let found = !process.host.is_empty() || self.fronts.contains_key(&process.pid);
        if found {
            self.psched_watches(apid, process, None);
        }
        found
    }

    fn forget_front(&mut self, apid: Apid) {
        self.around.logins.hosts.forget(apid);
    }

    fn signal_front(&mut self, apid: Apid, process: FrontProcess) {
        if !self.leaves() {
            return;
        }
        match process.host.is_empty() {
            true => self.after(0, Ev::FrontNudged(process.pid)),
            false => self.nudge_by_login(apid, &process),
        }
    }

    fn note(&mut self, note: Note) {
        match note {
            Note::Warning(text) => {
                if text.contains("drained by psched") {
                    self.counts.add("nodes drained by psched");
                }
                self.checks.warned(&text);
            }
            // Placement and occupancy never disagree.
            Note::Fault(text) => self.checks.broken(text),
            _ => {}
        }
    }

    fn keep_recording(&mut self, _recording: Recording, _why: String) {}

    fn decided(&mut self, scheduler: &Scheduler, effects: &[Effect]) {
        self.given.push(effects);
        for effect in effects {
            World::note(self, || format!("psched decides {}", super::trace::cut(effect)));
            if let Effect::TellEnd { apid, .. } = effect {
                self.around.told_early.insert(*apid);
            }
        }
        let (asked, posted) = std::mem::take(&mut self.around.asked);
        self.check_explanations(scheduler, asked, posted, effects);
        self.check_places(scheduler, effects);
        self.check_leads(effects);
    }
}
