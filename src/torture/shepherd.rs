//! apshepherd in the simulated cluster: the driver that ships, and the PEs that it has forked.

mod outside;

use super::host::{Proc, ProcId};
use super::program::{self, Program, Step};
use super::wire::{Msg, Pid, Who, WireId};
use super::world::{Ev, World};
use super::{MS, SECOND, US};
use crate::apshepherd::decide::Event;
use crate::apshepherd::drive::Driver;
use crate::apteam::Key;
use crate::apteam::ending::{PeEnd, Usage};
use crate::apteam::fault::Fault;
use crate::apteam::launch::HostLaunch;
use outside::Around;
use std::collections::BTreeMap;

const SIGUSR1: i32 = 10;
/// Real-time signals: of apkill alone, and each is sent to an application once.
const SIGRTMIN: i32 = super::checks::SIGRTMIN;

#[derive(Clone, Debug)]
struct Pe {
    proc: ProcId,
    /// How it has ended, where nobody has waited for it yet.
    zombie: Option<PeEnd>,
    reaped: bool,
    eof: bool,
}

/// A shepherd that runs.
#[derive(Clone, Debug)]
pub struct Shep {
    pub slot: usize,
    pub key: Key,
    /// None: it is just being called.
    driver: Option<Box<Driver>>,
    /// What it is to hear next.
    happened: Vec<Event>,
    wire: Option<WireId>,
    pes: BTreeMap<u32, Pe>,
    launch: Option<Box<HostLaunch>>,
    /// One whose program is waited for.
    launch_waits: Option<Box<HostLaunch>>,
    forked: bool,
    /// Processes that PEs have started.
    kids: u32,
    reading: bool,
    /// PEs whose pipes are full.
    stuck: Vec<ProcId>,
    timer: u64,
    /// When that rings, by its clock.
    rings_at: Option<u64>,
    /// What its clock is ahead of its host's, in nanoseconds: it was brought back from a checkpoint.
    pub ahead: i64,
    /// Bytes that PE 0's pipe is about to take.
    pouring: u64,
    /// It is stopped until then, and whether its going on is due.
    pub stopped_until: u64,
    goes_on: bool,
    /// PE 0 waits for the end of its stdin; which has come.
    reads: Option<ProcId>,
    stdin_over: bool,
    /// It dies after so many more actions.
    pub dies_after: Option<u32>,
}

impl Shep {
    /// A process waits for it: to read its pipe, or for the end of stdin.
    pub fn waits_for(&self, id: ProcId) -> bool {
        self.stuck.contains(&id) || self.reads == Some(id)
    }

    /// As it is when it comes out of images: its processes have other numbers.
    pub fn restored(
        &self,
        slot: usize,
        key: Key,
        ahead: i64,
        numbers: &BTreeMap<ProcId, ProcId>,
    ) -> Shep {
        let now = |id: &ProcId| numbers.get(id).copied().unwrap_or(ProcId(0));
        let pe = |(rank, pe): (&u32, &Pe)| (*rank, Pe { proc: now(&pe.proc), ..pe.clone() });
        Shep {
            slot,
            key,
            ahead,
            wire: None,
            pes: self.pes.iter().map(pe).collect(),
            stuck: self.stuck.iter().map(now).collect(),
            reads: self.reads.as_ref().map(now),
            stopped_until: 0,
            goes_on: false,
            dies_after: None,
            ..self.clone()
        }
    }
}

impl World {
    /// A new shepherd.
    pub fn shepherd_born(&mut self, slot: usize, key: Key) -> Pid {
        let pid = self.new_pid();
        let mono = self.mono(self.slots[slot].host);
        let shep = Shep {
            slot,
            key,
            driver: Some(Box::new(Driver::new(mono, key))),
            happened: Vec::new(),
            wire: None,
            pes: BTreeMap::new(),
            launch: None,
            launch_waits: None,
            forked: false,
            kids: 0,
            reading: true,
            stuck: Vec::new(),
            timer: 0,
            rings_at: None,
            ahead: 0,
            pouring: 0,
            stopped_until: 0,
            goes_on: false,
            reads: None,
            stdin_over: false,
            dies_after: None,
        };
        self.sheps.insert(pid, shep);
        self.drive_shepherd(pid, |driver, out| driver.begin(out));
        pid
    }

    /// The shepherds of an application on this apinit's nodes.
    pub fn shepherds_here(&self, slot: usize, key: Key) -> Vec<Pid> {
        let own = |(pid, s): (&Pid, &Shep)| (s.slot == slot && s.key == key).then_some(*pid);
        self.sheps.iter().filter_map(own).collect()
    }

    /// It is dead, by KILL or because it has left.
    pub fn shepherd_gone(&mut self, pid: Pid) {
        let Some(shep) = self.sheps.remove(&pid) else { return };
        self.note(|| format!("shepherd {pid} of {} is gone", shep.key));
        self.close_ends(|who| who == Who::Shepherd(pid));
        // Those that it traces go with it; those that run go on.
        for pe in shep.pes.values() {
            if self.procs.get(&pe.proc).is_some_and(|p| !p.runs) {
                self.kill_proc(pe.proc);
            }
        }
    }

    /// apinit has connected.
    pub fn shepherd_connected(&mut self, pid: Pid, wire: WireId) {
        if let Some(shep) = self.sheps.get_mut(&pid) {
            shep.wire = Some(wire);
            self.shepherd_happens(pid, Event::Connected);
        }
    }

    /// It reads what is left on the connection of an apinit that died, and its end.
    pub fn shepherd_drains(&mut self, pid: Pid) {
        // An apinit that starts waits until it goes on.
        if let Some(shep) = self.sheps.get_mut(&pid) {
            shep.stopped_until = 0;
            self.shepherd_settles(pid);
        }
        let Some(wire) = self.sheps.get_mut(&pid).and_then(|s| s.wire) else { return };
        while let Some(msg) = self.wires.get_mut(&wire).and_then(|w| w.to[1].pop_front()) {
            self.shepherd_hears(wire, pid, msg);
        }
        if let Some(shep) = self.sheps.get_mut(&pid).filter(|s| s.wire == Some(wire)) {
            shep.wire = None;
            self.wires.remove(&wire);
            self.shepherd_happens(pid, Event::Disconnected);
        }
    }

    /// apinit says something.
    pub fn shepherd_hears(&mut self, wire: WireId, pid: Pid, msg: Msg) {
        let Some(shep) = self.sheps.get_mut(&pid).filter(|s| s.wire == Some(wire)) else { return };
        match msg {
            Msg::ToShepherd(frame) => self.shepherd_happens(pid, Event::Frame(frame)),
            Msg::Eof => {
                shep.wire = None;
                self.shepherd_happens(pid, Event::Disconnected);
            }
            _ => {}
        }
    }

    /// Its timer has rung.
    pub fn shepherd_timer(&mut self, pid: Pid, timer: u64) {
        if self.sheps.get(&pid).is_some_and(|s| s.timer == timer) {
            self.shepherd_happens(pid, Event::Tick);
        }
    }

    fn shepherd_happens(&mut self, pid: Pid, event: Event) {
        self.counts.heard += 1;
        let Some(shep) = self.sheps.get_mut(&pid) else { return };
        shep.happened.push(event);
        self.shepherd_wakes(pid);
    }

    /// It does what is to be done, unless it is stopped: then once it goes on.
    fn shepherd_wakes(&mut self, pid: Pid) {
        let Some(shep) = self.sheps.get_mut(&pid) else { return };
        if shep.stopped_until > self.now {
            if !std::mem::replace(&mut shep.goes_on, true) {
                let until = shep.stopped_until;
                self.at(until, Ev::ShepherdGoesOn(pid));
            }
            return;
        }
        self.shepherd_settles(pid);
    }

    /// A shepherd that was stopped goes on.
    pub fn shepherd_goes_on(&mut self, pid: Pid) {
        if let Some(shep) = self.sheps.get_mut(&pid) {
            shep.goes_on = false;
            self.shepherd_settles(pid);
        }
    }

    fn shepherd_settles(&mut self, pid: Pid) {
        self.drive_shepherd(pid, |driver, out| driver.settle(out));
    }

    fn drive_shepherd(&mut self, pid: Pid, call: impl FnOnce(&mut Driver, &mut Around<'_>)) {
        let driver = self.sheps.get_mut(&pid).and_then(|shep| shep.driver.take());
        let Some(mut driver) = driver else { return };
        let mut out = Around::new(self, pid);
        call(&mut driver, &mut out);
        if out.is_childless() {
            driver.no_child(&mut out);
        }
        // (It may have been killed.)
        if let Some(shep) = self.sheps.get_mut(&pid) {
            shep.driver = Some(driver);
        }
    }

    fn fork(&mut self, pid: Pid, launch: Box<HostLaunch>) {
        let Some(shep) = self.sheps.get(&pid) else { return };
        let (slot, key) = (shep.slot, shep.key);
        let Some(plan) = self.plan_of(&launch) else { return };
        for pe in &launch.pes {
            let Some(own) = plan.pes.get(pe.rank as usize) else { continue };
            let proc = self.born(Proc {
                slot,
                key,
                nid: pe.nid,
                born: pe.nid,
                shepherd: pid,
                rank: Some(pe.rank),
                runs: false,
                stands: false,
                dying: false,
                ignores_term: own.ignores_term,
                cpus: pe.cpus.clone(),
                program: Program {
                    steps: own.steps.iter().cloned().collect(),
                    born_as: key,
                    ..Program::default()
                },
            });
            let late = self.work.u64(100 * US..5 * MS);
            if let Some(shep) = self.sheps.get_mut(&pid) {
                shep.pes.insert(pe.rank, Pe { proc, zombie: None, reaped: false, eof: false });
            }
            self.after(late, Ev::Executed(pid, pe.rank));
        }
        if let Some(shep) = self.sheps.get_mut(&pid) {
            shep.launch = Some(launch);
            shep.forked = true;
        }
    }

    /// A PE has been executed and stands, or it could not be.
    pub fn executed(&mut self, pid: Pid, rank: u32) {
        let Some(shep) = self.sheps.get(&pid) else { return };
        let Some(pe) = shep.pes.get(&rank).filter(|pe| !pe.reaped) else { return };
        let (proc, key) = (pe.proc, shep.key);
        if self.procs.get(&proc).is_none_or(|p| p.dying) {
            return;
        }
        let plan = shep.launch.as_ref().and_then(|l| self.plan_of(l));
        let bad = plan.and_then(|p| p.pes.get(rank as usize)?.bad);
        match bad {
            Some(errno) => {
                self.checks.not_executable(key, errno);
                let text = "it can't be executed".to_owned();
                self.dies(proc, PeEnd::Exit(127));
                self.shepherd_happens(
                    pid,
                    Event::ExecFailed { rank, errno, text, fault: Fault::User },
                );
            }
            None => self.shepherd_happens(pid, Event::Stopped { rank }),
        }
    }

    fn go(&mut self, pid: Pid) {
        let Some(shep) = self.sheps.get(&pid) else { return };
        let (slot, key) = (shep.slot, shep.key);
        let host = self.slots[slot].host;
        let own: Vec<ProcId> = shep.pes.values().map(|pe| pe.proc).collect();
        for id in own {
            let Some(proc) = self.procs.get_mut(&id).filter(|p| !p.dying) else { continue };
            proc.runs = true;
            self.checks.begins(self.now, &self.disk, host, proc);
            self.occupies(id);
            self.wake(id, US);
        }
        self.part_changes(key);
    }

    /// Sends a signal to every process of a shepherd's that hears it; how many there are.
    fn signal(&mut self, pid: Pid, signal: i32) -> u32 {
        let own: Vec<ProcId> =
            self.procs.iter().filter(|(_, p)| p.shepherd == pid).map(|(id, _)| *id).collect();
        let found = own.len() as u32;
        for id in own {
            let Some(proc) = self.procs.get_mut(&id) else { continue };
            match (signal, proc.rank) {
                (SIGUSR1, Some(rank)) => self.checks.signalled(proc.key, rank),
                (SIGRTMIN.., Some(rank)) => self.checks.signal_came(proc.key, rank, signal),
                _ => {}
            }
            // These programs have handlers for USR1, USR2 and the like.
            let ends = matches!(signal, 1 | 2 | 3 | 6 | 9 | 15);
            if !ends || proc.dying || proc.ignores_term && signal != 9 {
                continue;
            }
            proc.dying = true;
            let key = proc.key;
            let late = self.work.u64(20 * US..3 * MS);
            self.after(late, Ev::Dies(id, PeEnd::Signal(signal)));
            self.part_changes(key);
        }
        found
    }

    /// PE 0's pipe has taken so many bytes, or PE 0 is not there any more.
    pub fn stdin_taken(&mut self, pid: Pid, count: u64) {
        let Some(shep) = self.sheps.get_mut(&pid) else { return };
        shep.pouring = shep.pouring.saturating_sub(count);
        let Some(pe) = shep.pes.get(&0) else { return };
        match self.procs.contains_key(&pe.proc) {
            true => self.shepherd_happens(pid, Event::StdinWritten(count)),
            false => self.shepherd_happens(pid, Event::StdinClosed),
        }
    }

    /// It has waited for a PE.
    pub fn reap(&mut self, pid: Pid, rank: u32, end: PeEnd) {
        let Some(pe) = self.sheps.get_mut(&pid).and_then(|s| s.pes.get_mut(&rank)) else { return };
        if std::mem::replace(&mut pe.reaped, true) {
            return;
        }
        let ended = Event::PeEnded { rank, pid: rank, end, usage: Usage::default() };
        self.shepherd_happens(pid, ended);
    }

    /// A process that a PE had started has ended.
    pub fn shepherd_lost_child(&mut self, pid: Pid) {
        if let Some(shep) = self.sheps.get_mut(&pid) {
            shep.kids = shep.kids.saturating_sub(1);
        }
        self.shepherd_wakes(pid);
    }

    // ---- checkpoints ----

    /// CLOCK_MONOTONIC as this shepherd sees it.
    pub fn shepherds_clock(&self, pid: Pid) -> Option<u64> {
        let shep = self.sheps.get(&pid)?;
        Some(self.mono(self.slots[shep.slot].host).saturating_add_signed(shep.ahead))
    }

    fn shepherd_sets_timer(&mut self, pid: Pid) {
        let number = self.number();
        let Some(shep) = self.sheps.get_mut(&pid) else { return };
        shep.timer = number;
        let (host, ahead) = (self.slots[shep.slot].host, shep.ahead);
        if let Some(at) = shep.rings_at {
            let at = self.hosts[host].true_time(self.now, at.saturating_add_signed(-ahead));
            self.at(at, Ev::ShepherdTimer(pid, number));
        }
    }

    /// A PE has ended, and its shepherd has not waited for it yet.
    pub fn is_a_zombie(&mut self, pid: Pid, rank: Option<u32>, end: PeEnd) {
        let pes = self.sheps.get_mut(&pid).map(|shep| &mut shep.pes);
        if let Some(pe) = pes.zip(rank).and_then(|(pes, rank)| pes.get_mut(&rank)) {
            pe.zombie = Some(end);
        }
    }

    /// A shepherd comes out of images: what it waited for it waits for again.
    pub fn shepherd_comes_back(&mut self, pid: Pid, shep: Shep) {
        let zombies: Vec<(u32, PeEnd)> = shep
            .pes
            .iter()
            .filter(|(_, pe)| !pe.reaped)
            .filter_map(|(rank, pe)| pe.zombie.map(|end| (*rank, end)))
            .collect();
        let pouring = shep.pouring;
        self.sheps.insert(pid, shep);
        for (rank, end) in zombies {
            self.after(50 * US, Ev::Reap(pid, rank, end));
        }
        if pouring > 0 {
            self.after(50 * US, Ev::StdinTaken(pid, pouring));
        }
        self.shepherd_sets_timer(pid);
    }

    // ---- programs ----

    /// A process does its next step in a while.
    pub fn wake(&mut self, id: ProcId, late: u64) {
        if let Some(proc) = self.procs.get_mut(&id) {
            proc.program.wakes_at = self.now + late;
        }
        self.after(late, Ev::Step(id));
    }

    /// A process does its next step.
    pub fn program_step(&mut self, id: ProcId) {
        if self.held_back(id) {
            return;
        }
        let Some(proc) = self.procs.get_mut(&id).filter(|p| p.runs && !p.dying) else { return };
        if proc.program.waits.is_some() {
            return;
        }
        let Some(step) = proc.program.steps.front().cloned() else { return };
        let (pid, rank, key) = (proc.shepherd, proc.rank.unwrap_or(0), proc.key);
        let (slot, nid, born, cpus) = (proc.slot, proc.nid, proc.born, proc.cpus.clone());
        let born_as = proc.program.born_as;
        let kvs = format!("psched_{}_{}", born_as.apid, born_as.incarnation.0);
        let round = proc.program.round / 2;
        match step {
            Step::Say(count) => {
                let Some(shep) = self.sheps.get_mut(&pid) else {
                    // Nobody reads: SIGPIPE.
                    return self.dies(id, PeEnd::Signal(13));
                };
                if !shep.reading {
                    return shep.stuck.push(id);
                }
                let data = program::piece(rank, proc.program.said, count);
                proc.program.said += count as u64;
                proc.program.steps.pop_front();
                self.checks.wrote(key, rank, count as u64);
                self.shepherd_happens(pid, Event::Output { rank, stderr: false, data });
                self.wake(id, 20 * US);
            }
            Step::Read => match self.sheps.get_mut(&pid) {
                Some(shep) if !shep.stdin_over => shep.reads = Some(id),
                _ => {
                    proc.program.steps.pop_front();
                    self.wake(id, US);
                }
            },
            Step::Work(time) => {
                proc.program.steps.pop_front();
                self.wake(id, time);
            }
            Step::Init => {
                let text = "cmd=init pmi_version=1 pmi_subversion=1\n".to_owned();
                self.pmi_ask(id, "cmd=response_to_init", text);
            }
            Step::Put => {
                let text =
                    format!("cmd=put kvsname={kvs} key=r{round}p{rank} value=v{rank}r{round}\n");
                self.pmi_ask(id, "cmd=put_result rc=0", text);
            }
            Step::Barrier => self.pmi_ask(id, "cmd=barrier_out", "cmd=barrier_in\n".to_owned()),
            Step::Get => {
                let width = self.checks.width(key.apid).max(1);
                let other = (rank + 1 + round) % width;
                let text = format!("cmd=get kvsname={kvs} key=r{round}p{other}\n");
                self.pmi_ask(id, "cmd=get_result", text);
            }
            Step::Finalize => {
                self.pmi_ask(id, "cmd=finalize_ack", "cmd=finalize\n".to_owned());
            }
            Step::Abort(code) => {
                proc.program.steps = [Step::Work(SECOND), Step::End(PeEnd::Exit(1))].into();
                self.checks.aborted(self.now, key, code);
                self.pmi_say(id, format!("cmd=abort exitcode={code}\n"));
                self.wake(id, US);
            }
            Step::Leave { lives, ignores_term } => {
                proc.program.steps.pop_front();
                let program = Program {
                    steps: [Step::Work(lives), Step::End(PeEnd::Exit(0))].into(),
                    born_as: key,
                    ..Program::default()
                };
                let child = self.born(Proc {
                    slot,
                    key,
                    nid,
                    // In the group of whoever has made it.
                    born,
                    shepherd: pid,
                    rank: None,
                    runs: true,
                    stands: false,
                    dying: false,
                    ignores_term,
                    cpus,
                    program,
                });
                if let Some(shep) = self.sheps.get_mut(&pid) {
                    shep.kids += 1;
                }
                let host = self.slots[slot].host;
                if let Some(proc) = self.procs.get(&child) {
                    self.checks.begins(self.now, &self.disk, host, proc);
                }
                self.occupies(child);
                self.wake(child, US);
                self.wake(id, US);
            }
            Step::End(end) => {
                proc.dying = true;
                if proc.rank.is_some() {
                    let inside = self.checks.pmi_inside(key, rank);
                    self.checks.ended_by_itself(self.now, key, rank, end, inside, slot);
                }
                self.dies(id, end);
            }
        }
    }

    fn pmi_say(&mut self, id: ProcId, text: String) {
        let Some(proc) = self.procs.get(&id) else { return };
        let (pid, rank) = (proc.shepherd, proc.rank.unwrap_or(0));
        let data = bytes::Bytes::from(text);
        self.shepherd_happens(pid, Event::Pmi { rank, data });
    }

    fn pmi_ask(&mut self, id: ProcId, answer: &'static str, text: String) {
        if let Some(proc) = self.procs.get_mut(&id) {
            proc.program.waits = Some(answer);
            let (key, rank) = (proc.key, proc.rank.unwrap_or(0));
            self.checks.pmi_asks(key, rank, answer);
            self.pmi_say(id, text);
        }
    }

    fn pmi_answer(&mut self, pid: Pid, rank: u32, data: &[u8]) {
        let Some(id) = self.sheps.get(&pid).and_then(|s| s.pes.get(&rank)).map(|pe| pe.proc) else {
            return;
        };
        let text = String::from_utf8_lossy(data).into_owned();
        let Some(proc) = self.procs.get_mut(&id) else { return };
        let Some(awaited) = proc.program.waits else {
            return self.checks.broken(format!("PE {rank} was answered unasked: {text}"));
        };
        if !text.starts_with(awaited) {
            let said = format!("PE {rank} of {} awaits {awaited} and hears {text}", proc.key);
            return self.checks.broken(said);
        }
        match proc.program.steps.pop_front() {
            Some(Step::Get) => {
                let width = self.checks.width(proc.key.apid).max(1);
                let round = proc.program.round / 2;
                let other = (rank + 1 + round) % width;
                let expected = format!("value=v{other}r{round}");
                if !text.contains(&expected) {
                    let said = format!("PE {rank} of {} expects {expected}: {text}", proc.key);
                    self.checks.broken(said);
                }
            }
            Some(Step::Barrier) => {
                proc.program.round += 1;
                let (key, round) = (proc.key, proc.program.round);
                self.checks.left_barrier(key, rank, round);
            }
            _ => {}
        }
        if let Some(proc) = self.procs.get_mut(&id) {
            proc.program.waits = None;
        }
        self.wake(id, 2 * US);
    }
}
