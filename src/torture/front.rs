//! aprun's driver in this world, and the people who type it.

use super::apinit::Slot;
use super::cpr::Returning;
use super::faults::Fault;
use super::program::{Plan, STDIN};
use super::programs::SIZE;
use super::wire::{Msg, Pid, Target, Who, WireId};
use super::world::{Ev, World};
use super::{MS, SECOND, US};
use crate::aprun::decide::closing::Ended;
use crate::aprun::decide::session::{
    Action, Ask, Event, Front, Looked, Placement, ReportRow, Setup,
};
use crate::aprun::drive::{Driver, Others, Outside};
use crate::apteam::Apid;
use crate::apteam::launch::{FileIdentity, HostLaunch, Launch};
use crate::apteam::place::HostAddress;
use crate::apteam::posting::{Owner, Posting};
use crate::apteam::protocol::attach::{FromApinit, Output, ToApinit};
use crate::apteam::protocol::programs::ProgramOf;
use crate::apteam::record::State;
use crate::apteam::shape::Shape;
use crate::machine::Nid;
use std::collections::VecDeque;
use std::time::Duration;

/// An aprun that runs.
#[derive(Debug)]
pub struct Aprun {
    pub posting: (Posting, Owner),
    /// None: it is doing something.
    driver: Option<Box<Driver>>,
    apid: Option<Apid>,
    /// The posting may have come before.
    posted: bool,
    psched: Option<(WireId, u32, Ask)>,
    pub apinit: Option<(WireId, u32)>,
    /// The conversation with an apinit that is to begin, perhaps only after a door.
    attaching: u32,
    not_there: bool,
    /// Bytes of its stdin that it has read.
    typed: u64,
    pending: VecDeque<Said>,
    timer: (u64, u64),
    /// It is no aprun: it is `cpr -r`.
    pub returning: Option<Box<Returning>>,
}

/// What is said to a driver, in a conversation of this number or in none.
#[derive(Clone, Debug, PartialEq)]
pub enum Said {
    By(Event),
    ByPsched(u32, Event),
    ByApinit(u32, Event),
}

/// The delay of what a closed conversation said last: the next one may have begun by then.
const LATE: u64 = 60 * MS;

impl Aprun {
    /// Its number, once it has one.
    pub fn apid(&self) -> Option<Apid> {
        self.apid
    }

    /// Its posting is on record, and it has not begun to launch.
    pub fn waits(&self) -> bool {
        self.apid().is_some() && self.apinit.is_none()
    }
}

/// The user of that number, in a session without a terminal.
pub(super) fn owner_of(uid: u32) -> Owner {
    let (gid, groups, name) = (uid, Vec::new(), format!("user{uid}"));
    Owner { uid, gid, groups, name, terminal: false }
}

impl World {
    /// The program that a launch names.
    pub fn plan_of(&self, launch: &HostLaunch) -> Option<Plan> {
        let number: Pid = std::str::from_utf8(&launch.launch.executable).ok()?.parse().ok()?;
        self.checks.plan(number).cloned()
    }

    /// Somebody types aprun.
    pub fn somebody_posts(&mut self) {
        if self.to_post == 0 || self.ending {
            return;
        }
        self.to_post -= 1;
        let left = self.options.time_ns.saturating_sub(self.now);
        let pause = left * 9 / 10 / u64::from(self.to_post + 1);
        // In bursts, with pauses.
        let wait = match self.work.u32(0..4) {
            0 => self.work.u64(0..=pause * 5 / 2),
            1 => self.work.u64(0..=pause),
            _ => self.work.u64(0..=pause / 4),
        };
        self.after(wait.max(US), Ev::Post);
        let host = self.somebodys_host();
        if !self.hosts[host].up {
            // He comes back.
            self.to_post += 1;
            return;
        }
        let pid = self.new_pid();
        self.front_is_on(pid, host);
        self.may_be_slow(pid);
        let total: u32 = self.machine.nodes.values().map(|n| n.processors).sum();
        let width = match self.work.u32(0..20) {
            0 => self.work.u32(1..=total * 2),
            1..4 => self.work.u32(1..=total),
            _ => self.work.u32(1..=(total / 3).max(2)),
        };
        let depth = if self.work.u32(0..5) == 0 { 2 } else { 1 };
        let per_node = (self.work.u32(0..5) == 0).then(|| self.work.u32(1..=2));
        let mut request_id = [0; 16];
        self.work.fill(&mut request_id);
        let uid = 1000 + self.work.u32(0..3);
        let time_limit =
            (self.work.u32(0..12) == 0).then(|| Duration::from_millis(self.work.u64(100..20_000)));
        let posting = Posting {
            command: format!("program{pid}"),
            time_limit,
            immediate: self.work.u32(0..12) == 0,
            // (By chance too; these are drawn already.)
            tries_again: request_id[1] < 240,
            flexible: request_id[0] < 32,
            ..Posting::plain(request_id, Shape { width, depth, per_node })
        };
        let owner = owner_of(uid);
        let plan = Plan::any(&mut self.work, width);
        let files = self.work.u32(0..10) == 0;
        self.aprun_starts(pid, posting, owner, plan, files);
        if self.mix.naps && self.faults.u32(0..6) == 0 {
            // Its place comes while it is stopped.
            let soon = self.faults.u64(500 * US..4 * MS);
            self.after(soon, Ev::Fault(Fault::Nap(Some(pid))));
        }
    }

    /// An aprun of this process begins.
    pub fn aprun_starts(
        &mut self,
        pid: Pid,
        posting: Posting,
        owner: Owner,
        plan: Plan,
        files: bool,
    ) {
        self.front_starts(pid, posting, owner, plan, files, None);
    }

    /// A front end of this process begins.
    pub fn front_starts(
        &mut self,
        pid: Pid,
        posting: Posting,
        owner: Owner,
        plan: Plan,
        files: bool,
        returning: Option<Box<Returning>>,
    ) {
        let uid = owner.uid;
        let launch = Launch {
            executable: pid.to_string().into_bytes(),
            pmi: plan.mpi,
            copies: pid % 2 == 0,
            identity: Some(FileIdentity { size: SIZE, ..FileIdentity::default() }),
            ..Launch::default()
        };
        self.note(|| format!("aprun {pid} posts {:?} of user {uid}", posting.shape));
        let past = returning.as_ref().map(|returning| returning.from.past.clone());
        // What was typed before the checkpoint is not typed again.
        let typed = past.as_ref().map_or(0, |past| past.read);
        self.checks.posted(pid, &posting, plan, past);
        self.counts.postings += 1;
        let restarts = returning.as_ref().map(|returning| returning.origin.apid());
        let setup = Setup { launch, uid, files, restarts, ..Setup::default() };
        let aprun = Aprun {
            posting: (posting, owner),
            driver: Some(Box::new(Driver::new(setup))),
            apid: None,
            posted: false,
            psched: None,
            apinit: None,
            attaching: 0,
            not_there: false,
            typed,
            pending: VecDeque::new(),
            timer: (0, 0),
            returning,
        };
        self.fronts.insert(pid, aprun);
        self.front_happens(pid, Event::Start);
    }

    pub fn front_happens(&mut self, pid: Pid, event: Event) {
        self.front_hears(pid, Said::By(event));
    }

    /// What is said to it while it does something is heard after that.
    pub fn front_hears(&mut self, pid: Pid, said: Said) {
        self.counts.heard += 1;
        let Some(aprun) = self.fronts.get_mut(&pid) else { return };
        aprun.pending.push_back(said);
        let Some(mut driver) = aprun.driver.take() else { return };
        while let Some(next) = self.fronts.get_mut(&pid).and_then(|a| a.pending.pop_front()) {
            let mut around = Around { pid, world: self };
            let over = match next {
                Said::By(event) => driver.happens(&mut around, event),
                Said::ByPsched(link, event) => driver.psched(&mut around, link, event),
                Said::ByApinit(link, event) => driver.apinit(&mut around, link, event),
            };
            if let Some(status) = over {
                return self.front_gone(pid, Some(status));
            }
        }
        if let Some(aprun) = self.fronts.get_mut(&pid) {
            aprun.driver = Some(driver);
        }
        self.front_sets_timer(pid);
    }

    /// What was said in a conversation that has been given up since.
    pub fn front_hears_late(&mut self, pid: Pid, said: Said) {
        match self.paused_until(Who::FrontPsched(pid)) {
            Some(pause) => self.at(pause, Ev::FrontLate(pid, Box::new(said))),
            None => self.front_hears(pid, said),
        }
    }

    fn front_sets_timer(&mut self, pid: Pid) {
        let number = self.number();
        let Some(aprun) = self.fronts.get_mut(&pid) else { return };
        let at = aprun.driver.as_ref().and_then(|driver| driver.deadline_ns()).unwrap_or(0);
        if aprun.timer.0 == at {
            return;
        }
        aprun.timer = (at, number);
        if at > 0 {
            let at = self.hosts[self.logins.host_of(pid)].true_time(self.now, at);
            self.at(at, Ev::FrontTimer(pid, number));
        }
    }

    /// Its timer has rung.
    pub fn front_timer(&mut self, pid: Pid, timer: u64) {
        if let Some(pause) = self.paused_until(Who::FrontPsched(pid)) {
            return self.at(pause, Ev::FrontTimer(pid, timer));
        }
        let Some(aprun) = self.fronts.get_mut(&pid).filter(|a| a.timer.1 == timer) else { return };
        aprun.timer = (0, 0);
        self.front_happens(pid, Event::Time);
    }

    /// Whether it says that this posting may have come before.
    pub fn posts_again(&self, pid: Pid) -> bool {
        self.fronts.get(&pid).is_some_and(|aprun| aprun.posted)
    }

    /// A piece of output is written.
    pub fn front_wrote(&mut self, pid: Pid, source: u32, end: u64) {
        if let Some(pause) = self.paused_until(Who::FrontPsched(pid)) {
            return self.at(pause, Ev::FrontWrote { pid, source, end });
        }
        self.front_happens(pid, Event::Written { source, end });
    }

    /// Something is typed.
    pub fn front_typed(&mut self, pid: Pid, count: u64) {
        if let Some(pause) = self.paused_until(Who::FrontPsched(pid)) {
            return self.at(pause, Ev::FrontTyped(pid, count));
        }
        let Some(aprun) = self.fronts.get_mut(&pid) else { return };
        let data = super::program::piece(STDIN, aprun.typed, count as usize);
        aprun.typed += count;
        self.front_happens(pid, Event::Stdin(data));
    }

    /// A signal comes to it.
    pub fn front_signal(&mut self, pid: Pid, signal: i32, sender: Option<Pid>) {
        if let Some(pause) = self.paused_until(Who::FrontPsched(pid)) {
            return self.at(pause, Ev::FrontSignal { pid, signal, sender });
        }
        self.front_happens(pid, Event::Signal { signal, sender });
    }

    /// psched's signal comes to it.
    pub fn front_nudged(&mut self, pid: Pid) {
        if let Some(pause) = self.paused_until(Who::FrontPsched(pid)) {
            return self.at(pause, Ev::FrontNudged(pid));
        }
        self.front_happens(pid, Event::Nudged);
    }

    /// It has ended: by itself with this status, or killed.
    pub fn front_gone(&mut self, pid: Pid, status: Option<u8>) {
        let Some(mut aprun) = self.fronts.remove(&pid) else { return };
        if let Some(mut returning) = aprun.returning.take() {
            self.lets_go(&mut returning);
        }
        self.note(|| format!("aprun {pid} is gone: {status:?}"));
        self.close_ends(|who| who == Who::FrontPsched(pid) || who == Who::FrontApinit(pid));
        self.checks.front_ended(pid, aprun.apid(), status);
        self.checks.front_died(pid, self.now);
        self.front_end_is_seen(pid);
        self.apinits_hear_of_front(pid);
    }

    fn slot_of(&self, socket: &str) -> Option<usize> {
        (0..self.slots.len()).find(|slot| Slot::socket(*slot) == socket)
    }

    /// psched says something.
    pub fn front_psched_says(&mut self, wire: WireId, pid: Pid, msg: Msg) {
        let Some(aprun) = self.fronts.get_mut(&pid) else { return };
        let Some((_, link, ask)) = aprun.psched.filter(|(of, ..)| *of == wire) else { return };
        let down = |text: String, answered| Event::PschedDown { text, absent: false, answered };
        let event = match msg {
            Msg::Up(of) => {
                self.front_hears(pid, Said::ByPsched(link, Event::PschedUp { pid: of }));
                self.send(wire, 0, Msg::Ask(ask));
                return;
            }
            Msg::Event(event) => Event::Psched(*event),
            Msg::Looked(looked) => Event::Looked(*looked),
            Msg::Killed => Event::Killed,
            Msg::Refused(text, true) => Event::PschedRefused(text),
            Msg::Refused(text, false) => down(text, true),
            Msg::Eof => {
                aprun.psched = None;
                // Each question says by itself that it has failed, sooner or later.
                let failed = Event::Looked(Looked::Failed("it came too late".into()));
                let late = Said::ByPsched(link, failed);
                self.after(LATE, Ev::FrontLate(pid, Box::new(late)));
                down("psched closed the connection".to_owned(), false)
            }
            _ => return,
        };
        self.front_hears(pid, Said::ByPsched(link, event));
    }

    /// The apinit says something.
    pub fn front_apinit_says(&mut self, wire: WireId, pid: Pid, msg: Msg) {
        if matches!(msg, Msg::FromApinit(FromApinit::Accepted)) {
            self.checks.let_in(pid);
        }
        let Some(aprun) = self.fronts.get_mut(&pid) else { return };
        let Some((_, link)) = aprun.apinit.filter(|(of, _)| *of == wire) else { return };
        let event = match msg {
            Msg::FromApinit(message) => Event::Apinit(message),
            Msg::NotThere => return aprun.not_there = true,
            Msg::Eof => {
                aprun.apinit = None;
                let (text, connected) = ("the connection is closed".to_owned(), !aprun.not_there);
                Event::ApinitDown { text, connected }
            }
            _ => return,
        };
        self.front_hears(pid, Said::ByApinit(link, event));
    }

    /// At the door of the apinit with which a conversation is to begin it goes like this.
    pub fn front_at_the_door(&mut self, pid: Pid, event: Event) {
        let Some(aprun) = self.fronts.get(&pid) else { return };
        self.front_hears(pid, Said::ByApinit(aprun.attaching, event));
    }

    /// The conversation with an apinit has this wire.
    pub fn front_attaches(&mut self, pid: Pid, wire: WireId) {
        if let Some(aprun) = self.fronts.get_mut(&pid) {
            aprun.apinit = Some((wire, aprun.attaching));
        }
    }

    /// Somebody sends a signal that ends nobody to one that runs: a real-time one, another each time,
    /// so that it is known by its number.
    pub fn somebody_signals(&mut self) {
        if self.ending {
            return;
        }
        let wait = self.work.u64(SECOND..self.options.time_ns / 60);
        self.after(wait, Ev::Signals);
        if self.paused_until(Who::PschedFront(0)).is_some() {
            return;
        }
        let teams = self.psched.iter().flat_map(|p| p.driver.scheduler().teams());
        let run = teams.filter(|t| t.state == State::Running).map(|t| (t.key(), t.owner.uid));
        let run: Vec<_> = run.collect();
        if let Some((key, uid)) = self.work.choice(&run).copied()
            && let Some(signal) = self.checks.new_signal(key)
        {
            self.counts.add("signals");
            self.psched_signals(key, signal, uid);
        }
    }

    /// Somebody types apkill.
    pub fn somebody_kills(&mut self) {
        if self.ending {
            return;
        }
        let wait = self.work.u64(SECOND..self.options.time_ns / 12);
        self.after(wait, Ev::Apkill);
        let Some(psched) = &self.psched else { return };
        if self.paused_until(Who::PschedFront(0)).is_some() {
            return;
        }
        let live: Vec<_> =
            psched.driver.scheduler().teams().map(|t| (t.apid, t.owner.uid)).collect();
        if live.is_empty() {
            return;
        }
        let (apid, uid) = live[self.work.usize(0..live.len())];
        let signal = [0, 9, 15, 2, 10][self.work.usize(0..5)];
        self.counts.add("apkill");
        self.psched_kill(None, apid, signal, uid);
    }
}

/// The world around one aprun.
struct Around<'a> {
    pid: Pid,
    world: &'a mut World,
}

impl Around<'_> {
    fn aprun(&mut self) -> Option<&mut Aprun> {
        self.world.fronts.get_mut(&self.pid)
    }
}

impl Outside for Around<'_> {
    fn now_ns(&self) -> u64 {
        self.world.mono(self.world.logins.host_of(self.pid))
    }

    fn hears(&mut self, event: &Event) {
        if self.world.trace.on() {
            let text = format!("aprun {}: {}", self.pid, super::trace::cut(event));
            self.world.note(|| text);
        }
    }

    fn decides(&mut self, front: &Front, actions: &[Action]) {
        if let Some(aprun) = self.aprun() {
            aprun.apid = front.apid();
        }
        if front.lacks_output() {
            self.world.checks.lacks_output(self.pid);
        }
        if self.world.trace.on() {
            for action in actions {
                let text = format!("aprun {} does {}", self.pid, super::trace::cut(action));
                self.world.trace.line(self.world.now, text);
            }
        }
    }

    fn converse(&mut self, link: u32, ask: Ask, again: bool) -> Vec<Event> {
        let pid = self.pid;
        let Some(aprun) = self.aprun() else { return Vec::new() };
        aprun.posted = again;
        if let Some((wire, ..)) = aprun.psched.take() {
            self.world.hang_up(wire, 0);
        }
        let (who, host) = (Who::FrontPsched(pid), self.world.logins.host_of(pid));
        let wire = match host {
            0 => self.world.dial_psched(who, 0, Target::PschedFront(pid)),
            _ => self.world.dial_through(who, host, 0, None),
        };
        if let Some(aprun) = self.aprun() {
            aprun.psched = Some((wire, link, ask));
        }
        Vec::new()
    }

    fn look(&mut self, _: u32, apid: Apid) -> Vec<Event> {
        if let Some((wire, ..)) = self.aprun().and_then(|aprun| aprun.psched) {
            self.world.send(wire, 0, Msg::Look(apid));
        }
        Vec::new()
    }

    fn kill(&mut self, _: u32, apid: Apid, signal: i32) -> Vec<Event> {
        if let Some((wire, ..)) = self.aprun().and_then(|aprun| aprun.psched) {
            self.world.send(wire, 0, Msg::Kill(apid, signal));
        }
        Vec::new()
    }

    fn deposit(&mut self, _: Apid) {
        // No checkpoint asks for the launch of a posting in this world.
    }

    fn make_files(&mut self, _: &Placement) -> Result<(), String> {
        Ok(())
    }

    fn attach(&mut self, link: u32, at: HostAddress, first: Box<ToApinit>, _: Others) {
        let socket = at.socket.clone();
        let pid = self.pid;
        let Some(aprun) = self.aprun() else { return };
        (aprun.not_there, aprun.attaching) = (false, link);
        let returns = aprun.returning.is_some();
        if let Some((wire, of)) = aprun.apinit.take() {
            self.world.hang_up(wire, 0);
            // It may have said that it has broken before it was given up.
            let (text, connected) = ("it came too late".to_owned(), true);
            let late = Said::ByApinit(of, Event::ApinitDown { text, connected });
            self.world.after(LATE, Ev::FrontLate(pid, Box::new(late)));
        }
        let Some(slot) = self.world.slot_of(&socket) else { return };
        let same = self.world.slots[slot].host == self.world.logins.host_of(pid);
        if self.world.logins.count() > 0 && same != at.host.is_empty() {
            let text = format!("aprun {pid} looks for the apinit {slot} at {at:?}");
            return self.world.checks.broken(text);
        }
        match *first {
            ToApinit::Launch { .. } if returns => self.world.goes_to_the_door(pid, slot, first),
            _ => self.world.attach(pid, slot, first),
        }
    }

    fn send(&mut self, message: ToApinit) {
        if let Some((wire, _)) = self.aprun().and_then(|aprun| aprun.apinit) {
            self.world.send(wire, 0, Msg::ToApinit(Box::new(message)));
        }
    }

    fn hand(&mut self, link: u32, of: ProgramOf) {
        self.world.hands_program(self.pid, link, of);
    }

    fn let_go(&mut self) {
        let Some(mut returning) = self.aprun().and_then(|aprun| aprun.returning.take()) else {
            return;
        };
        self.world.lets_go(&mut returning);
        if let Some(aprun) = self.aprun() {
            aprun.returning = Some(returning);
        }
    }

    fn read_stdin(&mut self, most: usize) -> Vec<Event> {
        let (pid, all) = (self.pid, self.world.checks.plan(self.pid).map_or(0, |p| p.stdin));
        let left = self.aprun().map_or(0, |aprun| all - aprun.typed);
        if left == 0 {
            return vec![Event::StdinEnd];
        }
        let most = left.min(most as u64).min(20_000);
        let count = self.world.work.u64(1..=most);
        let late = self.world.work.u64(5 * US..300 * MS);
        self.world.after(late, Ev::FrontTyped(pid, count));
        Vec::new()
    }

    fn write(&mut self, output: Output) -> Vec<Event> {
        let (pid, apid) = (self.pid, self.aprun().and_then(|aprun| aprun.apid));
        self.world.checks.shown(apid, &output);
        let (source, end) = (output.source, output.end());
        let late = self.world.work.u64(5 * US..100 * US) + self.world.writes_late(pid);
        self.world.after(late, Ev::FrontWrote { pid, source, end });
        Vec::new()
    }

    fn say(&mut self, line: String) -> Vec<Event> {
        self.world.checks.said(self.pid, line);
        Vec::new()
    }

    fn say_of_node(&mut self, nid: Nid, _: u64, text: &str) -> Vec<Event> {
        self.say(crate::aprun::decide::closing::of_node(nid, "DATE", text))
    }

    fn warn(&mut self, text: String) {
        let pid = self.pid;
        self.world.note(|| format!("aprun {pid} warns: {text}"));
    }

    fn report(&mut self, _: Vec<ReportRow>) -> Vec<Event> {
        // No program is started with the option for it.
        Vec::new()
    }

    fn close(&mut self, ended: Box<Ended>) -> Vec<Event> {
        self.world.checks.closed(self.pid, ended.status);
        Vec::new()
    }
}
