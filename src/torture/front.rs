//! aprun around its course, and the people who type it. As `aprun::host::drive` does it.

use super::apinit::Slot;
use super::faults::Fault;
use super::program::{Plan, STDIN};
use super::restarts::Returning;
use super::wire::{Msg, Pid, Target, Who, WireId};
use super::world::{Ev, World};
use super::{MS, SECOND, US};
use crate::aprun::decide::course::{Action, Ask, Front, Happening, Looked, Setup};
use crate::apteam::launch::{HostLaunch, Launch};
use crate::apteam::posting::{Owner, Posting, Shape};
use crate::apteam::record::State;
use crate::apteam::talk::attach::{FromApinit, ToApinit};
use std::collections::VecDeque;
use std::time::Duration;

/// An aprun that runs.
#[derive(Debug)]
pub struct Aprun {
    pub posting: (Posting, Owner),
    core: Front,
    /// It has posted before.
    posted: bool,
    psched: Option<(WireId, Ask)>,
    looks: u32,
    kills: u32,
    pub apinit: Option<WireId>,
    not_there: bool,
    /// Bytes of its stdin that it has read.
    typed: u64,
    pending: VecDeque<Happening>,
    busy: bool,
    timer: (u64, u64),
    /// It is no aprun: it is `cpr -r`.
    pub returning: Option<Box<Returning>>,
}

impl Aprun {
    /// Its number, once it has one.
    pub fn apid(&self) -> Option<crate::apteam::Apid> {
        self.core.apid()
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
        if !self.hosts[0].up {
            // He comes back.
            self.to_post += 1;
            return;
        }
        let pid = self.new_pid();
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
            // (By chance too; it is drawn already.)
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
        let launch =
            Launch { executable: pid.to_string().into_bytes(), pmi: plan.mpi, ..Launch::default() };
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
            core: Front::new(setup),
            posted: false,
            psched: None,
            looks: 0,
            kills: 0,
            apinit: None,
            not_there: false,
            typed,
            pending: VecDeque::new(),
            busy: false,
            timer: (0, 0),
            returning,
        };
        self.fronts.insert(pid, aprun);
        self.front_happens(pid, Happening::Start);
    }

    pub fn front_happens(&mut self, pid: Pid, happening: Happening) {
        self.counts.heard += 1;
        let Some(aprun) = self.fronts.get_mut(&pid) else { return };
        aprun.pending.push_back(happening);
        if std::mem::replace(&mut aprun.busy, true) {
            return;
        }
        loop {
            let mono = self.mono(0);
            let Some(aprun) = self.fronts.get_mut(&pid) else { return };
            let Some(next) = aprun.pending.pop_front() else { break };
            let text = self.trace.on().then(|| super::trace::cut(&next));
            let actions = aprun.core.apply(mono, next);
            if let Some(text) = text {
                self.note(|| format!("aprun {pid}: {text}"));
            }
            for action in actions {
                self.front_acts(pid, action);
            }
        }
        if let Some(aprun) = self.fronts.get_mut(&pid) {
            aprun.busy = false;
        }
        self.front_sets_timer(pid);
    }

    fn front_sets_timer(&mut self, pid: Pid) {
        let number = self.number();
        let Some(aprun) = self.fronts.get_mut(&pid) else { return };
        let at = aprun.core.deadline().unwrap_or(0);
        if aprun.timer.0 == at {
            return;
        }
        aprun.timer = (at, number);
        if at > 0 {
            let at = self.hosts[0].true_time(self.now, at);
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
        self.front_happens(pid, Happening::Time);
    }

    /// Whether this posting of its is not the first.
    pub fn posts_again(&mut self, pid: Pid) -> bool {
        self.fronts.get_mut(&pid).is_some_and(|aprun| std::mem::replace(&mut aprun.posted, true))
    }

    /// A piece of output is written.
    pub fn front_wrote(&mut self, pid: Pid, source: u32, end: u64) {
        if let Some(pause) = self.paused_until(Who::FrontPsched(pid)) {
            return self.at(pause, Ev::FrontWrote { pid, source, end });
        }
        self.front_happens(pid, Happening::Written { source, end });
    }

    /// Something is typed.
    pub fn front_typed(&mut self, pid: Pid, count: u64) {
        if let Some(pause) = self.paused_until(Who::FrontPsched(pid)) {
            return self.at(pause, Ev::FrontTyped(pid, count));
        }
        let Some(aprun) = self.fronts.get_mut(&pid) else { return };
        let data = super::program::piece(STDIN, aprun.typed, count as usize);
        aprun.typed += count;
        self.front_happens(pid, Happening::Stdin(data));
    }

    /// A signal comes to it.
    pub fn front_signal(&mut self, pid: Pid, signal: i32, sender: Option<Pid>) {
        if let Some(pause) = self.paused_until(Who::FrontPsched(pid)) {
            return self.at(pause, Ev::FrontSignal { pid, signal, sender });
        }
        self.front_happens(pid, Happening::Signal { signal, sender });
    }

    /// psched's signal comes to it.
    pub fn front_nudged(&mut self, pid: Pid) {
        if let Some(pause) = self.paused_until(Who::FrontPsched(pid)) {
            return self.at(pause, Ev::FrontNudged(pid));
        }
        self.front_happens(pid, Happening::Nudged);
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
        let late = self.net.u64(10 * US..400 * US);
        if let Some(psched) = self.psched.as_ref().map(|p| p.pid) {
            self.after(late, Ev::PschedFrontDied(psched, pid));
        }
        self.apinits_hear_of_front(pid);
    }

    fn front_acts(&mut self, pid: Pid, action: Action) {
        let Some(aprun) = self.fronts.get_mut(&pid) else { return };
        if self.trace.on() {
            let text = format!("aprun {pid} does {}", super::trace::cut(&action));
            self.trace.line(self.now, text);
        }
        match action {
            Action::Psched(ask) => {
                let old = aprun.psched.take();
                (aprun.looks, aprun.kills) = (0, 0);
                if let Some((wire, _)) = old {
                    self.hang_up(wire, 0);
                }
                let target = Target::PschedFront(pid);
                let wire = self.dial_psched(Who::FrontPsched(pid), 0, target);
                if let Some(aprun) = self.fronts.get_mut(&pid) {
                    aprun.psched = Some((wire, ask));
                }
            }
            // Nobody asks for that here.
            Action::Deposit(_) => {}
            Action::Look(apid) => match aprun.psched {
                Some((wire, _)) => {
                    aprun.looks += 1;
                    self.send(wire, 0, Msg::Look(apid));
                }
                None => {
                    let failed = Looked::Failed("not connected with psched".into());
                    aprun.pending.push_back(Happening::Looked(failed));
                }
            },
            Action::Kill { apid, signal } => match aprun.psched {
                Some((wire, _)) => {
                    aprun.kills += 1;
                    self.send(wire, 0, Msg::Kill(apid, signal));
                }
                None => aprun.pending.push_back(Happening::Killed),
            },
            Action::OpenFiles(_) => aprun.pending.push_back(Happening::Files(Ok(()))),
            Action::Attach { socket, first } => {
                aprun.not_there = false;
                let returns = aprun.returning.is_some();
                if let Some(wire) = aprun.apinit.take() {
                    self.hang_up(wire, 0);
                }
                let Some(slot) = self.slot_of(&socket) else { return };
                match *first {
                    ToApinit::Launch { .. } if returns => self.goes_to_the_door(pid, slot, first),
                    _ => self.attach(pid, slot, first),
                }
            }
            Action::Send(message) => {
                if let Some(wire) = aprun.apinit {
                    self.send(wire, 0, Msg::ToApinit(Box::new(message)));
                }
            }
            Action::ReadStdin(most) => {
                let left = self.checks.plan(pid).map_or(0, |p| p.stdin) - aprun.typed;
                if left == 0 {
                    return aprun.pending.push_back(Happening::StdinEnd);
                }
                let most = left.min(most as u64).min(20_000);
                let count = self.work.u64(1..=most);
                let late = self.work.u64(5 * US..300 * MS);
                self.after(late, Ev::FrontTyped(pid, count));
            }
            Action::Write(output) => {
                let apid = aprun.apid();
                self.checks.shown(apid, &output);
                let (source, end) = (output.source, output.end());
                let late = self.work.u64(5 * US..100 * US);
                self.after(late, Ev::FrontWrote { pid, source, end });
            }
            Action::Say(line) => self.checks.said(pid, line),
            Action::Warn(text) => self.note(|| format!("aprun {pid} warns: {text}")),
            // Nobody asks for it here.
            Action::Report(_) => {}
            Action::Close(ended) => self.checks.closed(pid, ended.status),
            Action::Exit(status) => self.front_gone(pid, Some(status)),
        }
    }

    fn slot_of(&self, socket: &str) -> Option<usize> {
        (0..self.slots.len()).find(|slot| Slot::socket(*slot) == socket)
    }

    /// psched says something.
    pub fn front_psched_says(&mut self, wire: WireId, pid: Pid, msg: Msg) {
        let Some(aprun) = self.fronts.get_mut(&pid) else { return };
        let Some((_, ask)) = aprun.psched.filter(|(of, _)| *of == wire) else { return };
        match msg {
            Msg::Up(of) => {
                self.front_happens(pid, Happening::PschedUp { pid: of });
                self.send(wire, 0, Msg::Ask(ask));
            }
            Msg::Event(event) => self.front_happens(pid, Happening::Event(*event)),
            Msg::Looked(looked) => {
                aprun.looks = aprun.looks.saturating_sub(1);
                self.front_happens(pid, Happening::Looked(*looked));
            }
            Msg::Killed => {
                aprun.kills = aprun.kills.saturating_sub(1);
                self.front_happens(pid, Happening::Killed);
            }
            Msg::Refused(text, true) => self.front_happens(pid, Happening::PschedRefused(text)),
            Msg::Refused(text, false) => {
                let (absent, answered) = (false, true);
                self.front_happens(pid, Happening::PschedDown { text, absent, answered });
            }
            Msg::Eof => {
                aprun.psched = None;
                let (looks, kills) =
                    (std::mem::take(&mut aprun.looks), std::mem::take(&mut aprun.kills));
                let text = "psched closed the connection".to_owned();
                let (absent, answered) = (false, false);
                self.front_happens(
                    pid,
                    Happening::PschedDown { text: text.clone(), absent, answered },
                );
                for _ in 0..looks {
                    self.front_happens(pid, Happening::Looked(Looked::Failed(text.clone())));
                }
                for _ in 0..kills {
                    self.front_happens(pid, Happening::Killed);
                }
            }
            _ => {}
        }
    }

    /// The apinit says something.
    pub fn front_apinit_says(&mut self, wire: WireId, pid: Pid, msg: Msg) {
        if matches!(msg, Msg::FromApinit(FromApinit::Accepted)) {
            self.checks.let_in(pid);
        }
        let Some(aprun) = self.fronts.get_mut(&pid).filter(|a| a.apinit == Some(wire)) else {
            return;
        };
        if matches!(msg, Msg::FromApinit(FromApinit::Going))
            && let Some(mut returning) = aprun.returning.take()
        {
            self.lets_go(&mut returning);
            if let Some(aprun) = self.fronts.get_mut(&pid) {
                aprun.returning = Some(returning);
            }
        }
        let Some(aprun) = self.fronts.get_mut(&pid) else { return };
        match msg {
            Msg::FromApinit(message) => self.front_happens(pid, Happening::Apinit(message)),
            Msg::NotThere => aprun.not_there = true,
            Msg::Eof => {
                aprun.apinit = None;
                let (text, connected) = ("the connection is closed".to_owned(), !aprun.not_there);
                self.front_happens(pid, Happening::ApinitDown { text, connected });
            }
            _ => {}
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
