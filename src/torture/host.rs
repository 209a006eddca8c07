//! Hosts: their clocks and the processes of users on them.

use super::logins::UNHEARD;
use super::program::Program;
use super::wire::Pid;
use super::world::{Ev, World};
use super::{MS, SECOND, US};
use crate::apteam::Key;
use crate::apteam::ending::PeEnd;
use crate::machine::Nid;
use fastrand::Rng;

/// A user's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProcId(pub u64);

/// A PE, or what a PE has started.
#[derive(Clone, Debug)]
pub struct Proc {
    pub slot: usize,
    pub key: Key,
    pub nid: Nid,
    /// The node on which it was born: its group has that name.
    pub born: Nid,
    pub shepherd: Pid,
    /// Its rank; `None`: a PE's child.
    pub rank: Option<u32>,
    /// It runs instructions of the user's.
    pub runs: bool,
    /// It was brought back from a checkpoint, and has run nothing since.
    pub stands: bool,
    /// It is being killed.
    pub dying: bool,
    pub ignores_term: bool,
    /// Real processors of its host that it is bound to.
    pub cpus: Vec<u32>,
    pub program: Program,
}

/// A host.
#[derive(Debug)]
pub struct Host {
    pub name: String,
    pub up: bool,
    pub boots: u32,
    /// When it came up, and what its monotonic clock said then.
    up_at: u64,
    mono_base: u64,
    /// Parts in a million by which its clock is fast.
    ppm: i64,
    /// How far its wall clock is off.
    pub wall_step: i64,
}

impl Host {
    /// A host that is up, for a while already.
    pub fn new(name: String, rng: &mut Rng) -> Host {
        let mono_base = rng.u64(100 * SECOND..90 * 24 * 3600 * SECOND);
        Host { name, up: true, boots: 1, up_at: 0, mono_base, ppm: 0, wall_step: 0 }
    }

    /// Its clock is not quite right.
    pub fn drift(&mut self, rng: &mut Rng) {
        self.ppm = rng.i64(-200..=200);
    }

    /// Its clock is fast by so many parts in a million, from its boot on.
    pub fn runs_fast_by(&mut self, ppm: i64) {
        self.ppm = ppm;
    }

    /// The boot id.
    pub fn boot_id(&self) -> String {
        format!("{}-boot{}", self.name, self.boots)
    }

    /// It comes up, at this time.
    pub fn boot(&mut self, now: u64) {
        self.up = true;
        self.boots += 1;
        self.up_at = now;
        self.mono_base = 20 * SECOND;
    }

    /// CLOCK_MONOTONIC there.
    pub fn mono(&self, now: u64) -> u64 {
        let up = (now - self.up_at) as i128;
        (self.mono_base as i128 + up + up * i128::from(self.ppm) / 1_000_000) as u64
    }

    /// CLOCK_REALTIME there.
    pub fn wall(&self, now: u64) -> u64 {
        (1_790_000_000_000_000_000u64 + now).saturating_add_signed(self.wall_step)
    }

    /// When its monotonic clock will say so, or has: never too early.
    pub fn true_time(&self, now: u64, mono: u64) -> u64 {
        let mut at = now + mono.saturating_sub(self.mono(now));
        while self.mono(at) < mono {
            at += mono - self.mono(at);
        }
        at
    }
}

impl World {
    /// CLOCK_MONOTONIC of a host.
    pub fn mono(&self, host: usize) -> u64 {
        self.hosts[host].mono(self.now)
    }

    /// A new process of an application, in its group.
    pub fn born(&mut self, proc: Proc) -> ProcId {
        let id = ProcId(self.number());
        self.groups.entry((proc.slot, proc.key)).or_default().insert(id);
        self.procs.insert(id, proc);
        id
    }

    /// A process is sent KILL: it takes a moment, and now and then a long one.
    pub fn kill_proc(&mut self, id: ProcId) {
        let Some(proc) = self.procs.get_mut(&id).filter(|p| !p.dying) else { return };
        proc.dying = true;
        let key = proc.key;
        // In the middle of something that the kernel finishes first.
        let late = match self.work.u32(0..400) {
            0 => self.work.u64(SECOND..3 * SECOND),
            _ => self.work.u64(20 * US..2 * MS),
        };
        self.after(late, Ev::Dies(id, PeEnd::Signal(9)));
        self.part_changes(key);
    }

    /// A process has ended.
    pub fn dies(&mut self, id: ProcId, end: PeEnd) {
        let Some(proc) = self.procs.remove(&id) else { return };
        let group = (proc.slot, proc.key);
        if let Some(members) = self.groups.get_mut(&group) {
            members.remove(&id);
        }
        self.checks.process_ended(id);
        self.part_changes(proc.key);
        self.is_a_zombie(proc.shepherd, proc.rank, end);
        self.note(|| format!("process {} of {} ends: {end:?}", id.0, proc.key));
        if self.sheps.contains_key(&proc.shepherd) {
            match proc.rank {
                Some(rank) => {
                    let late = self.work.u64(5 * US..300 * US);
                    self.after(late, Ev::Reap(proc.shepherd, rank, end));
                }
                None => self.shepherd_lost_child(proc.shepherd),
            }
        }
    }

    /// Every process of a group is sent KILL.
    pub fn kill_group(&mut self, slot: usize, key: Key) {
        let members: Vec<ProcId> =
            self.groups.get(&(slot, key)).into_iter().flatten().copied().collect();
        for id in members {
            self.kill_proc(id);
        }
    }

    /// Power fails: everything on a host is gone at once, and nobody is told.
    pub fn host_down(&mut self, host: usize) {
        self.note(|| format!("host {host} goes down"));
        self.hosts[host].up = false;
        self.checks.host_is_disturbed(host, self.now + 2 * UNHEARD);
        let procs: Vec<ProcId> = self
            .procs
            .iter()
            .filter(|(_, p)| self.slots[p.slot].host == host)
            .map(|(id, _)| *id)
            .collect();
        for id in procs {
            if let Some(proc) = self.procs.remove(&id) {
                if let Some(members) = self.groups.get_mut(&(proc.slot, proc.key)) {
                    members.remove(&id);
                }
                self.checks.process_ended(id);
                self.checks.host_took(proc.key.apid, &self.slots[proc.slot].nids);
                if proc.runs {
                    self.checks.host_took_running(proc.key.apid, proc.nid);
                }
            }
        }
        let sheps: Vec<Pid> = self
            .sheps
            .iter()
            .filter(|(_, s)| self.slots[s.slot].host == host)
            .map(|(pid, _)| *pid)
            .collect();
        for pid in sheps {
            self.shepherd_gone(pid);
        }
        for slot in 0..self.slots.len() {
            if self.slots[slot].host == host {
                self.checks_apps_of_slot(slot);
                self.apinit_gone(slot);
                self.slots[slot].lose_runtime();
                self.groups.retain(|(of, _), _| *of != slot);
                self.frozen.retain(|(of, _), _| *of != slot);
            }
        }
        self.look_at_parts();
        if host == 0 {
            self.psched_gone();
            self.checks.login_went();
        }
        self.login_gone(host);
        let on = |pid: &Pid| self.logins.host_of(*pid) == host;
        let fronts: Vec<Pid> = self.fronts.keys().copied().filter(on).collect();
        for pid in fronts {
            self.front_gone(pid, None);
        }
    }

    /// It has been switched on again.
    pub fn host_up(&mut self, host: usize) {
        if self.hosts[host].up {
            return;
        }
        let now = self.now;
        self.hosts[host].boot(now);
        self.note(|| format!("host {host} is up again"));
        for slot in 0..self.slots.len() {
            if self.slots[slot].host == host {
                // What was placed there before it was noticed.
                self.checks_apps_of_slot(slot);
                self.after(100 * MS, Ev::ApinitStart(slot));
            }
        }
        if host == 0 {
            self.after(200 * MS, Ev::PschedStart);
        }
        self.login_host_up(host);
    }
}
