//! psched around its scheduler: links, front ends, answers. As `daemon::core` does it.

use super::checks::Asked;
use super::store::{Disk, Thread};
use super::wire::{Msg, Pid, Target, Who, WireId};
use super::world::{Ev, World};
use super::{MS, US};
use crate::apteam::posting::{Owner, Posting};
use crate::apteam::record::{Apteam, FrontProcess, State};
use crate::apteam::talk::node::{NodeSpec, Report, Welcome};
use crate::apteam::{Apid, Key, Ticket};
use crate::front::closing::Ended;
use crate::front::course::{Ask, Event as Told, Looked as Found, Placement};
use crate::machine::Nid;
use crate::scheduler::outbox::{Held, Kept, Outbox, Outcome, Release};
use crate::scheduler::{Effect, Event, LinkId, Looked, News, Now, ReplyId, Scheduler};
use std::collections::{BTreeMap, BTreeSet};

/// An answer that waits for all before it to be durable.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// Whether an application is there: for a watch of this front end's.
    Watch { wire: WireId, front: Pid, apid: Apid, found: bool },
    /// The same for a look.
    Look { wire: WireId, apid: Apid, found: bool },
    /// What was made of a posting that comes again.
    Post { wire: WireId, front: Pid },
}

/// Who waits for a reply of the scheduler's.
#[derive(Clone, Copy, Debug)]
enum Waiter {
    Post(WireId, Pid),
    Look(WireId),
    Kill(Option<WireId>),
    /// A signal that is watched until it comes.
    Signal(Key, i32),
}

/// Commits that may wait for the full disk: few, so that some histories come to it.
const COMMITS_MAX: usize = 24;

/// A psched that runs.
#[derive(Debug)]
pub struct Psched {
    pub pid: Pid,
    pub scheduler: Scheduler,
    outbox: Outbox<Answer>,
    pub store: Thread,
    waiters: BTreeMap<ReplyId, Waiter>,
    next: u64,
    watchers: BTreeMap<Apid, Vec<WireId>>,
    links: BTreeMap<LinkId, (WireId, u64)>,
    /// Streams whose first message has not come.
    fresh: BTreeSet<LinkId>,
    /// Applications of each front end that is watched.
    fronts: BTreeMap<Pid, BTreeSet<Apid>>,
    timer: (u64, u64),
    /// It dies after so many more things that leave it.
    pub dies_after: Option<u32>,
}

impl Psched {
    /// Something is on its way to the disk.
    pub fn is_busy(&self) -> bool {
        self.outbox.under_way() > 0
    }

    /// Its links.
    pub fn links(&self) -> Vec<LinkId> {
        self.links.keys().copied().collect()
    }
}

impl World {
    /// Both clocks of psched's host.
    pub fn psched_now(&self) -> Now {
        Now { mono_ns: self.mono(0), wall_ns: self.hosts[0].wall(self.now) }
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
        scheduler.started(self.disk.epoch);
        self.note(|| format!("psched {pid} starts"));
        self.checks.psched_away(self.now);
        let waiting: Vec<(Apid, FrontProcess)> =
            scheduler.teams().filter_map(|t| t.front.map(|f| (t.apid, f))).collect();
        self.psched = Some(Box::new(Psched {
            pid,
            scheduler,
            outbox: Outbox::bounded(COMMITS_MAX),
            store: Thread::default(),
            waiters: BTreeMap::new(),
            next: 1,
            watchers: BTreeMap::new(),
            links: BTreeMap::new(),
            fresh: BTreeSet::new(),
            fronts: BTreeMap::new(),
            timer: (0, 0),
            dies_after: None,
        }));
        self.psched_takes(effects, None);
        for (apid, front) in waiting {
            if self.fronts.contains_key(&front.pid) {
                self.psched_watches(apid, front.pid);
            } else {
                self.psched_event(Event::FrontGone { apid });
            }
        }
        if self.ending {
            self.orders_are_over();
        }
    }

    /// It is dead.
    pub fn psched_gone(&mut self) {
        self.store_dies();
        let Some(psched) = self.psched.take() else { return };
        self.checks.psched_died();
        self.checks.psched_away(u64::MAX);
        self.note(|| format!("psched {} dies", psched.pid));
        self.all_disturbed();
        let own = |who: Who| matches!(who, Who::PschedLink(_) | Who::PschedFront(_));
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
        let now = self.psched_now();
        self.note(|| format!("psched: {}", super::trace::cut(&event)));
        let asked = match &event {
            Event::Looked { apid, .. } => Some(*apid),
            _ => None,
        };
        let Some(psched) = &mut self.psched else { return };
        if psched.outbox.leaves_out(&event, psched.store.trouble) {
            self.counts.left_out += 1;
            if let Event::LinkOpened { link, .. } = event {
                self.psched_performs(Effect::RefuseLink { link, why: "the disk is full".into() });
            }
            return;
        }
        let effects = psched.scheduler.apply(now, event);
        self.check_explanations(asked, None, &effects);
        self.check_places(&effects);
        self.psched_takes(effects, None);
    }

    fn psched_takes(&mut self, effects: Vec<Effect>, new: Option<Apid>) {
        if !effects.is_empty() {
            let wall = self.hosts[0].wall(self.now);
            let Some(psched) = &mut self.psched else { return };
            let leaving = psched.outbox.take(wall, effects, new);
            for effect in leaving.now {
                self.psched_performs(effect);
            }
            if let Some(commit) = leaving.commit {
                self.commit(commit);
            }
            if let Some(pid) = self.psched.as_ref().map(|p| p.pid) {
                self.psched_gives(pid);
            }
        }
        self.psched_sets_timer();
    }

    fn psched_sets_timer(&mut self) {
        let number = self.number();
        let Some(psched) = &mut self.psched else { return };
        let at = psched.scheduler.deadline().unwrap_or(0);
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
        let Some(psched) = self.psched.as_mut().filter(|p| p.pid == pid) else { return };
        let Some(outcome) = psched.store.back.pop_front() else { return };
        psched.outbox.came_back(&outcome);
        match outcome {
            Outcome::Release(releases) => {
                for release in releases {
                    match release {
                        Release::Effect(effect) => self.psched_performs(effect),
                        Release::Answer(answer) => self.psched_answers(answer),
                    }
                    if self.psched.as_ref().is_none_or(|p| p.pid != pid) {
                        return;
                    }
                }
            }
            Outcome::Refused { apid, why, releases } => {
                if let Some(psched) = &mut self.psched {
                    psched.outbox.refused(apid, &why);
                }
                for release in releases {
                    if let Release::Effect(Effect::Accept { reply, .. }) = release
                        && let Some(Waiter::Post(wire, _)) =
                            self.psched.as_mut().and_then(|p| p.waiters.remove(&reply))
                    {
                        self.send(wire, 1, Msg::Refused(why.clone(), false));
                    }
                }
                self.psched_event(Event::StoreRefused { apid, why });
            }
        }
        self.psched_gives(pid);
        let links = self.psched.as_mut().map(|p| p.outbox.to_hang_up()).unwrap_or_default();
        for link in links {
            if let Some((wire, _)) = self.psched.as_mut().and_then(|p| p.links.remove(&link)) {
                self.hang_up(wire, 1);
            }
            self.psched_event(Event::LinkClosed { link });
        }
    }

    /// The loop hears that the store fails.
    pub fn store_has_failed(&mut self, pid: Pid) {
        self.psched_gives(pid);
    }

    /// Answers are given that were held, if psched is the same still.
    fn psched_gives(&mut self, pid: Pid) {
        loop {
            let Some(psched) = self.psched.as_mut().filter(|p| p.pid == pid) else { return };
            match psched.outbox.kept() {
                Some(held) => self.psched_gives_one(held, Kept::Yes),
                None => break,
            }
        }
        let Some(psched) = &mut self.psched else { return };
        if psched.store.trouble {
            for held in psched.outbox.unheld() {
                self.psched_gives_one(held, Kept::Waits);
            }
        }
    }

    fn psched_gives_one(&mut self, held: Held<Answer>, kept: Kept) {
        self.counts.unrecorded += u64::from(kept == Kept::Waits);
        match (held, kept) {
            (Held::Look(answer), Kept::Yes) => self.psched_answers(answer),
            (Held::Look(answer), Kept::Waits) => {
                let why = "records wait for the disk".to_owned();
                match answer {
                    Answer::Watch { wire, .. } | Answer::Post { wire, .. } => {
                        self.send(wire, 1, Msg::Refused(why, false));
                    }
                    Answer::Look { wire, .. } => {
                        self.reply(wire, Msg::Looked(Box::new(Found::Failed(why))));
                    }
                }
            }
            (Held::Reply(effect), Kept::Yes) => self.psched_performs(effect),
            // Who sent a signal is told that it is not on record.
            (Held::Reply(Effect::Killed { reply, .. }), Kept::Waits) => {
                let waiter = self.psched.as_mut().and_then(|p| p.waiters.remove(&reply));
                if let Some(Waiter::Kill(Some(wire))) = waiter {
                    self.reply(wire, Msg::Killed);
                }
            }
            (Held::Reply(_), Kept::Waits) => {}
        }
    }

    fn psched_performs(&mut self, effect: Effect) {
        // It may be killed between any two things that leave it.
        if let Some(psched) = &mut self.psched
            && let Some(left) = &mut psched.dies_after
        {
            if *left == 0 {
                self.counts.killed_between += 1;
                return self.kill_psched();
            }
            *left -= 1;
        }
        self.note(|| format!("psched does {}", super::trace::cut(&effect)));
        let Some(psched) = &mut self.psched else { return };
        match effect {
            Effect::Accept { reply, apid } => {
                if let Some(Waiter::Post(wire, front)) = psched.waiters.remove(&reply) {
                    if let Some(why) = psched.outbox.why_refused(apid) {
                        let why = why.to_owned();
                        return self.send(wire, 1, Msg::Refused(why, false));
                    }
                    psched.watchers.entry(apid).or_default().push(wire);
                    let process = psched.scheduler.team(apid).and_then(|t| t.front);
                    self.checks.acknowledged(&self.disk, apid, front);
                    self.send(wire, 1, Msg::Event(Box::new(Told::Accepted(apid))));
                    if let Some(process) = process {
                        self.psched_watches(apid, process.pid);
                    }
                }
            }
            Effect::Refuse { reply, explanation, .. } => match psched.waiters.remove(&reply) {
                Some(Waiter::Post(wire, _)) => {
                    self.send(wire, 1, Msg::Refused(explanation.to_string(), true));
                }
                Some(Waiter::Look(wire)) => {
                    let failed = Found::Failed(explanation.to_string());
                    self.reply(wire, Msg::Looked(Box::new(failed)));
                }
                Some(Waiter::Kill(_) | Waiter::Signal(..)) | None => {}
            },
            Effect::Look { reply, looked } => {
                if let Some(Waiter::Look(wire)) = psched.waiters.remove(&reply) {
                    let found = match looked {
                        Looked::Placed(team) => Found::Placement(Box::new(Placement {
                            key: team.key(),
                            places: team.places.clone(),
                            hosts: team.hosts.to_vec(),
                            ticket: team.ticket,
                        })),
                        Looked::Waiting(why) => Found::Waiting(why),
                    };
                    self.reply(wire, Msg::Looked(Box::new(found)));
                }
            }
            Effect::Killed { reply, problems } => match psched.waiters.remove(&reply) {
                Some(Waiter::Kill(Some(wire))) => self.reply(wire, Msg::Killed),
                Some(Waiter::Signal(key, signal)) if problems.iter().all(Option::is_none) => {
                    self.checks.signal_taken(key, signal);
                }
                _ => {}
            },
            Effect::Command { link, command } => {
                if let Some((wire, seq)) = psched.links.get_mut(&link) {
                    *seq += 1;
                    let (wire, seq, commits) = (*wire, *seq, self.counted(&self.disk));
                    self.send(wire, 1, Msg::Command(seq, commits, Box::new(command)));
                }
            }
            Effect::Welcome { link, nids } => self.welcome(link, &nids),
            Effect::RefuseLink { link, why } => {
                if let Some((wire, _)) = psched.links.remove(&link) {
                    self.send(wire, 1, Msg::LinkRefused(why));
                    self.hang_up(wire, 1);
                }
            }
            Effect::CloseLink { link } => {
                if let Some((wire, _)) = psched.links.remove(&link) {
                    self.hang_up(wire, 1);
                }
            }
            Effect::SignalFront { front, .. } => {
                self.front_nudged(front.pid);
            }
            Effect::Tell { apid, news } => self.psched_tells(apid, news),
            Effect::TellEnd { apid, end, status } => {
                self.checks.told_before_its_record(apid);
                self.psched_tells(apid, News::Ended { end, status });
            }
            // Its nodes take nobody out, so that is not planned.
            Effect::RollIn { .. } | Effect::RollOut { .. } => {}
            Effect::Warn(text) => self.checks.warned(&text),
            // Nobody asks for it.
            Effect::Managed { .. } => {}
            Effect::Save { .. }
            | Effect::SaveAdopted { .. }
            | Effect::Log { .. }
            | Effect::SaveBoot { .. }
            | Effect::SaveNodes { .. }
            | Effect::SaveFlavors { .. }
            | Effect::SaveChange(_)
            | Effect::SaveShares(_) => {}
        }
    }

    /// The answer to a request, in no order with anything else.
    fn reply(&mut self, wire: WireId, msg: Msg) {
        self.send(wire, 1, msg);
    }

    fn welcome(&mut self, link: LinkId, nids: &[Nid]) {
        let next_apid = self.psched.as_ref().map_or(u64::MAX, |p| p.scheduler.next_apid());
        let welcome = self.welcome_of(&self.disk, next_apid, nids);
        let wire = self.psched.as_ref().and_then(|p| p.links.get(&link)).map(|l| l.0);
        if let Some(wire) = wire {
            self.send(wire, 1, Msg::Welcome(welcome));
        }
    }

    /// How many commits a psched on this disk says that there are. (Without copies none counts
    /// them, so that seeds are the histories that they were before it was done.)
    pub fn counted(&self, disk: &Disk) -> u64 {
        if self.mix.copies { disk.commits } else { 0 }
    }

    /// How a psched on this disk introduces itself.
    pub fn welcome_of(&self, disk: &Disk, next_apid: u64, nids: &[Nid]) -> Welcome {
        let (machine, mono_ns) = (&self.machine, self.mono(0));
        let spec = |n: &crate::machine::Node| NodeSpec {
            nid: n.nid,
            processors: n.processors,
            cpus: n.cpus.clone(),
            first_processor: machine.first_processor(n.nid),
            memory: n.memory,
        };
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

    fn told(&self, apid: Apid, news: News) -> Told {
        let team = self.psched.as_ref().and_then(|p| p.scheduler.team(apid));
        match news {
            News::Placed => Told::Placed(team.map_or(0, |t| t.incarnation.0)),
            News::Running => Told::Launched,
            News::Ended { end, status } => {
                Told::Ended(Box::new(Ended { status, end: *end, told: false }))
            }
        }
    }

    fn psched_tells(&mut self, apid: Apid, news: News) {
        let ended = matches!(news, News::Ended { .. });
        let told = self.told(apid, news);
        let Some(psched) = &mut self.psched else { return };
        let watchers = match ended {
            true => psched.watchers.remove(&apid).unwrap_or_default(),
            false => psched.watchers.get(&apid).cloned().unwrap_or_default(),
        };
        if ended {
            psched.fronts.values_mut().for_each(|apids| {
                apids.remove(&apid);
            });
            psched.fronts.retain(|_, apids| !apids.is_empty());
        }
        for wire in watchers {
            self.send(wire, 1, Msg::Event(Box::new(told.clone())));
        }
    }

    fn psched_watches(&mut self, apid: Apid, front: Pid) {
        let alive = self.fronts.contains_key(&front);
        let Some(psched) = &mut self.psched else { return };
        psched.fronts.entry(front).or_default().insert(apid);
        let pid = psched.pid;
        if !alive {
            self.after(50 * US, Ev::PschedFrontDied(pid, front));
        }
    }

    /// The kernel tells of the end of a front end.
    pub fn psched_front_died(&mut self, pid: Pid, front: Pid) {
        if let Some(pause) = self.paused_until(Who::PschedFront(0)) {
            return self.at(pause, Ev::PschedFrontDied(pid, front));
        }
        let Some(psched) = self.psched.as_mut().filter(|p| p.pid == pid) else { return };
        for apid in psched.fronts.remove(&front).unwrap_or_default() {
            self.psched_event(Event::FrontGone { apid });
        }
    }

    // ---- its socket ----

    /// An apinit has connected.
    pub fn psched_link_opened(&mut self, wire: WireId) -> Option<Who> {
        let number = self.number();
        let psched = self.psched.as_mut()?;
        let link = LinkId(number);
        psched.links.insert(link, (wire, 0));
        psched.fresh.insert(link);
        Some(Who::PschedLink(link))
    }

    /// A front end has connected.
    pub fn psched_front_opened(&mut self, _wire: WireId, front: Pid) -> Option<Who> {
        self.psched.as_ref().map(|_| Who::PschedFront(front))
    }

    /// An apinit says something.
    pub fn psched_link_says(&mut self, _wire: WireId, link: LinkId, msg: Msg) {
        let Some(psched) = &mut self.psched else { return };
        let event = match msg {
            Msg::Hello(hello) if psched.fresh.remove(&link) => Event::LinkOpened { link, hello },
            Msg::Inventory(items) => {
                self.apinit_of(link).into_iter().for_each(|slot| self.calmed(slot));
                Event::Inventory { link, items }
            }
            Msg::Report(report) => {
                self.report_again(link, &report);
                Event::Report { link, report }
            }
            Msg::Eof => {
                psched.links.remove(&link);
                psched.fresh.remove(&link);
                Event::LinkClosed { link }
            }
            _ => return,
        };
        let switches = matches!(&event, Event::Report { report, .. }
            if matches!(**report, Report::Switches(_)));
        self.psched_event(event);
        if switches {
            self.check_memory();
        }
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

    fn reply_to(&mut self, waiter: Waiter) -> Option<ReplyId> {
        let psched = self.psched.as_mut()?;
        let id = ReplyId(psched.next);
        psched.next += 1;
        psched.waiters.insert(id, waiter);
        Some(id)
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
        let Some(psched) = &mut self.psched else { return };
        let found = |apid: Apid, p: &super::psched::Psched| p.scheduler.team(apid).is_some();
        match msg {
            Msg::Ask(Ask::Post) if again => {
                self.psched_reads(Answer::Post { wire, front });
            }
            Msg::Ask(Ask::Post) => self.psched_posted(wire, front),
            Msg::Ask(Ask::Watch(apid)) => {
                let found = found(apid, psched);
                self.psched_reads(Answer::Watch { wire, front, apid, found });
            }
            Msg::Look(apid) => {
                let found = found(apid, psched);
                self.psched_reads(Answer::Look { wire, apid, found });
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
        let Some(reply) = self.reply_to(Waiter::Kill(wire)) else { return };
        let apids = vec![apid];
        self.checks.killed(apid, signal);
        self.psched_event(Event::Kill { reply, apids, signal, uid, administrator: false });
    }

    /// Somebody sends a signal of which the checkers know.
    pub fn psched_signals(&mut self, key: Key, signal: i32, uid: u32) {
        let Some(reply) = self.reply_to(Waiter::Signal(key, signal)) else { return };
        let apids = vec![key.apid];
        self.psched_event(Event::Kill { reply, apids, signal, uid, administrator: false });
    }

    fn psched_posted(&mut self, wire: WireId, front: Pid) {
        let Some(aprun) = self.fronts.get(&front) else { return };
        let (posting, owner): (Posting, Owner) = aprun.posting.clone();
        let asked = Asked::of(&posting, aprun.returning.is_some());
        let origin = aprun.returning.as_ref().map(|returning| returning.origin.clone());
        let Some(psched) = &mut self.psched else { return };
        if psched.store.trouble || psched.outbox.is_full() {
            return self.send(wire, 1, Msg::Refused("the disk is full".into(), false));
        }
        let new = Apid(psched.scheduler.next_apid());
        let mut secret = [0; 16];
        self.work.fill(&mut secret);
        let Some(reply) = self.reply_to(Waiter::Post(wire, front)) else { return };
        let (posting, secret) = (Box::new(posting), Ticket(secret));
        let front = FrontProcess { pid: front, started: 1 };
        let event = match origin {
            None => Event::Posted { reply, posting, owner, front, secret },
            Some(origin) => Event::Restarted { reply, posting, owner, front, secret, origin },
        };
        self.note(|| format!("psched: {}", super::trace::cut(&event)));
        let now = self.psched_now();
        let Some(psched) = &mut self.psched else { return };
        let effects = psched.scheduler.apply(now, event);
        self.check_explanations(None, Some(asked), &effects);
        self.psched_takes(effects, Some(new));
    }

    fn psched_reads(&mut self, answer: Answer) {
        let Some(psched) = &mut self.psched else { return };
        let pid = psched.pid;
        match psched.outbox.hold(answer) {
            Ok(()) => self.psched_gives(pid),
            Err(answer) => self.psched_answers(answer),
        }
    }

    /// What was asked is known, and durable.
    fn psched_answers(&mut self, answer: Answer) {
        match answer {
            Answer::Watch { wire, front, apid, found: true } => self.watch(wire, front, apid),
            Answer::Look { wire, apid, found: true } => {
                if let Some(reply) = self.reply_to(Waiter::Look(wire)) {
                    self.psched_event(Event::Looked { reply, apid });
                }
            }
            Answer::Watch { wire, apid, .. } => self.tell_ended(wire, apid),
            Answer::Post { wire, front } => match self.posted_before(front) {
                Some(apid) => {
                    self.checks.acknowledged(&self.disk, apid, front);
                    self.tell_ended(wire, apid);
                }
                // (One that has not ended the scheduler knows by the posting's number.)
                None => self.psched_posted(wire, front),
            },
            Answer::Look { wire, apid, .. } => {
                let found = match self.ended(apid) {
                    Some(ended) => Found::Ended(ended),
                    None => Found::Failed(format!("there is no application {apid}")),
                };
                self.reply(wire, Msg::Looked(Box::new(found)));
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
        Some(Box::new(Ended { status: end.status(), end, told: false }))
    }

    fn tell_ended(&mut self, wire: WireId, apid: Apid) {
        let there = self.disk.teams.contains_key(&apid);
        let msg = match self.ended(apid) {
            Some(ended) => Msg::Event(Box::new(Told::Ended(ended))),
            None if there => Msg::Refused("the application is just ending".into(), false),
            None => Msg::Refused(format!("there is no application {apid}"), true),
        };
        self.send(wire, 1, msg);
    }

    fn watch(&mut self, wire: WireId, front: Pid, apid: Apid) {
        let Some(psched) = &mut self.psched else { return };
        let Some(team) = psched.scheduler.team(apid) else { return self.tell_ended(wire, apid) };
        let news = match team.state {
            State::Running => Some(News::Running),
            State::Placed | State::Launching | State::Lapsed => Some(News::Placed),
            _ => None,
        };
        let process = team.front;
        psched.watchers.entry(apid).or_default().push(wire);
        self.send(wire, 1, Msg::Event(Box::new(Told::Accepted(apid))));
        if let Some(news) = news {
            let told = self.told(apid, news);
            self.send(wire, 1, Msg::Event(Box::new(told)));
        }
        if process.is_some_and(|p| p.pid == front) {
            self.psched_watches(apid, front);
        }
    }

    /// What psched listens on: for those who dial.
    pub fn dial_psched(&mut self, from: Who, host: usize, target: Target) -> WireId {
        self.connect(from, [host, 0], target)
    }
}
