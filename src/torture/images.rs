//! Checkpoints: what is kept of an application at one moment, and how it comes back from that. As
//! `apinit::host` makes them (`dump`) and restores them (`restore`).
//!
//! # Problem
//! A checkpoint is a copy of processes in the middle of what they do: PEs that compute, wait in a barrier or
//! for room in a pipe, or have ended and nobody has waited for them; a shepherd that has output which nobody
//! has taken. Whoever makes it, and whoever brings it back, may be killed at each step.
//!
//! # Approach
//! What is copied is everything that a process has in memory here: the [`Shepherd`] that ships, and each
//! [`Proc`] with its program and with what is left of the time that it computes. A restore gives them new
//! numbers, the processors of their new place, and a frozen group; from there on they are as all others.
//!
//! ```text
//!   Dump      hung up  --> all is said --> images --> its shepherd is called again --> named, or not
//!   Restore   kept that it has begun --> images --> frozen processes --> rekeyed --> Restored
//!                  any of these may fail, and the apinit, the shepherd or cpr be killed before each
//! ```
//!
//! [`Shepherd`]: crate::apshepherd::decide::Shepherd

use super::checks::Past;
use super::host::{Proc, ProcId};
use super::program::Plan;
use super::shepherd::Shep;
use super::wire::{Msg, Pid, Who, WireId};
use super::world::{Ev, World};
use super::{MS, US};
use crate::apinit::decide::{Back, DumpWord, Event};
use crate::apinit::drive::Heard;
use crate::apteam::Key;
use crate::apteam::protocol::node::{PlaceCommand, Restoring};
use crate::apteam::protocol::shepherd::{FromShepherd, Hello, ToShepherd};
use crate::checkpoint::{Kind, Manifest};
use crate::machine::Nid;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Messages that a shepherd and its apinit still have for each other when they hang up: more than any
/// window lets through.
const SAID_MAX: usize = 4096;

/// A process as it is in the images.
#[derive(Clone, Debug)]
struct Saved {
    id: ProcId,
    proc: Proc,
    /// What was left until its next step; none: it waits for somebody.
    left: Option<u64>,
}

/// All that an application is on an apinit's nodes, at one moment.
#[derive(Debug)]
pub struct Snapshot {
    shep: Shep,
    procs: Vec<Saved>,
    /// The nodes by which its shepherd knows its PEs, and their real processors.
    born: Vec<Nid>,
    cpus: Vec<Vec<u32>>,
    /// What its shepherd's clock said.
    clock: u64,
}

/// A checkpoint that has its name.
#[derive(Debug)]
pub struct Checkpoint {
    /// Which of all.
    pub number: u64,
    pub manifest: Manifest,
    /// What its PEs do.
    pub plan: Plan,
    /// What the checkers knew of it.
    pub past: Past,
    at: Snapshot,
    /// Output up to here had left the shepherd.
    output: u64,
}

/// How far a shepherd is that is hung up on.
#[derive(Clone, Copy, Debug)]
pub enum HangUp {
    /// Nobody asks any more.
    Gone,
    /// It is stopped until then.
    Wait(u64),
    /// There is none.
    NoShepherd,
    /// It has said all, and heard all.
    Done,
}

/// A checkpoint that somebody has asked for.
#[derive(Debug)]
pub struct Draft {
    pub manifest: Manifest,
    /// It is ended once the checkpoint has its name.
    pub end: bool,
    /// What has been made of it.
    pub made: Option<Box<Checkpoint>>,
}

/// A restore that is under way.
#[derive(Debug)]
pub struct Coming {
    from: Arc<Checkpoint>,
    place: Box<PlaceCommand>,
    cpus: Vec<Vec<u32>>,
    shepherd: Option<Pid>,
}

impl World {
    // ---- made ----

    /// It stands: nothing more is said to its shepherd. What is on its way there comes first.
    pub fn hangs_up(&mut self, slot: usize, key: Key) {
        let late = self.cpr.chance.u64(100 * US..20 * MS);
        let life = self.slots[slot].life;
        self.after(late, Ev::HungUp { slot, life, key });
        self.harm_a_restore(slot, key, late);
    }

    /// Its shepherd has heard all and said all, and closes.
    pub fn hung_up(&mut self, slot: usize, life: u64, key: Key) {
        if let Some(pause) = self.paused_until(Who::ApinitLink(slot)) {
            return self.at(pause, Ev::HungUp { slot, life, key });
        }
        match self.says_all(slot, life, key) {
            // (If the shepherd has gone meanwhile, the driver knows that.)
            HangUp::Gone | HangUp::NoShepherd => {}
            HangUp::Wait(until) => self.at(until, Ev::HungUp { slot, life, key }),
            HangUp::Done => self.apinit_hears(slot, Heard::ShepherdSilent(key, String::new())),
        }
    }

    /// Its images are made, or can't be.
    pub fn dump(&mut self, slot: usize, key: Key, number: u64, output: u64) {
        let pid = self.shepherd_of(slot, key).map(|(pid, _)| pid);
        let images = match self.cpr.fails(4) {
            true => None,
            false => pid.and_then(|pid| self.images(slot, key, pid, number, output)),
        };
        let made = images.is_some();
        let draft = self.cpr.drafts.get_mut(&number);
        let end = draft.as_ref().is_some_and(|draft| draft.end);
        if let Some(draft) = draft {
            draft.made = images;
        }
        if made {
            self.counts.dumped += 1;
            if end {
                self.checks.imaged(key);
            }
        }
        let (late, life) = (self.cpr.chance.u64(US..30 * MS), self.slots[slot].life);
        match made {
            true => self.after(late, Ev::Named { slot, life, key, number }),
            false => drop(self.cpr.drafts.remove(&number)),
        }
        self.apinit_hears(slot, Heard::Imaged(key, number, made));
    }

    /// What is on its way between a shepherd and its apinit comes, and then nothing more.
    pub fn says_all(&mut self, slot: usize, life: u64, key: Key) -> HangUp {
        let known = |world: &World| {
            let proc = world.slots[slot].proc.as_ref().filter(|_| world.slots[slot].life == life);
            proc.is_some_and(|proc| proc.apps.contains_key(&key))
        };
        if !known(self) {
            return HangUp::Gone;
        }
        let Some((pid, wire)) = self.shepherd_of(slot, key) else { return HangUp::NoShepherd };
        if let Some(until) = self.sheps.get(&pid).map(|shep| shep.stopped_until)
            && until > self.now
        {
            return HangUp::Wait(until + US);
        }
        for _ in 0..SAID_MAX {
            let Some(on_it) = self.wires.get_mut(&wire) else { break };
            if let Some(msg) = on_it.to[1].pop_front() {
                self.shepherd_hears(wire, pid, msg);
            } else if let Some(msg) = on_it.to[0].pop_front() {
                self.apinit_shepherd_says(wire, slot, key, msg);
            } else {
                break;
            }
            if !known(self) {
                return HangUp::Gone;
            }
        }
        HangUp::Done
    }

    /// Its shepherd is connected to again, if it lives.
    pub fn find_again(&mut self, slot: usize, key: Key) {
        let before = self.shepherd_of(slot, key);
        let found = before.and_then(|(pid, _)| self.find_shepherd(slot, key, pid));
        if let Some((_, wire)) = before.filter(|_| found.is_none()) {
            self.hang_up(wire, 0);
        }
        let Some(proc) = &mut self.slots[slot].proc else { return };
        if let Some(app) = proc.apps.get_mut(&key) {
            app.shepherd = found.as_ref().map(|(shepherd, _)| *shepherd);
            app.hung_up = false;
        }
        self.apinit_hears(slot, Heard::HeardAgain(key, found.is_some()));
    }

    /// The checkpoint gets its name, or whoever asked for it is killed before that. One that is to end hears
    /// which.
    pub fn named(&mut self, slot: usize, life: u64, key: Key, number: u64) {
        if let Some(pause) = self.paused_until(Who::ApinitLink(slot)) {
            return self.at(pause, Ev::Named { slot, life, key, number });
        }
        let Some(draft) = self.cpr.drafts.remove(&number) else { return };
        let alive = self.slots[slot].life == life && self.slots[slot].proc.is_some();
        let named = alive && self.hosts[0].up && !self.cpr.fails(4);
        if let Some(made) = draft.made.filter(|_| named) {
            self.note(|| format!("checkpoint {number} of {key} has its name"));
            self.cpr.keep(made);
        }
        if alive && draft.end {
            if named {
                self.cpr.named.insert(number, key);
                self.checks.may_end_by_dump(key.apid);
            }
            let word = if named { DumpWord::Named } else { DumpWord::Gone };
            self.apinit_happens(slot, Event::DumpSaid { number, word });
        }
    }

    /// A checkpoint of it.
    fn images(
        &mut self,
        slot: usize,
        key: Key,
        pid: Pid,
        number: u64,
        output: u64,
    ) -> Option<Box<Checkpoint>> {
        let at = self.snapshot(slot, key, pid)?;
        let (past, plan) = self.checks.past(key, output)?;
        let manifest = self.cpr.drafts.get(&number)?.manifest.clone();
        Some(Box::new(Checkpoint { number, manifest, plan, past, at, output }))
    }

    /// A copy of all that it is.
    pub fn snapshot(&self, slot: usize, key: Key, pid: Pid) -> Option<Snapshot> {
        let shep = self.sheps.get(&pid)?;
        let members = self.groups.get(&(slot, key)).cloned().unwrap_or_default();
        let dies = |id: &ProcId| self.procs.get(id).is_none_or(|proc| proc.dying || !proc.runs);
        // (CRIU does not take what is just dying.)
        if !self.is_frozen(slot, key) || members.is_empty() || members.iter().any(dies) {
            return None;
        }
        let saved = |id: &ProcId| {
            let proc = self.procs.get(id)?.clone();
            let waits = proc.program.waits.is_some() || shep.waits_for(*id);
            let left = (!waits).then(|| proc.program.wakes_at.saturating_sub(self.now));
            Some(Saved { id: *id, proc, left })
        };
        let procs = members.iter().filter_map(saved).collect();
        let place = self.slots[slot].apps.get(&key)?.place.as_deref()?;
        let born = match place.moved.born.is_empty() {
            true => place.places.nids().collect(),
            false => place.moved.born.clone(),
        };
        let cpus = place.places.0.iter().map(|part| {
            let node = &self.machine.nodes[&part.nid];
            part.processors.iter().map(|p| node.cpus[*p as usize]).collect()
        });
        let clock = self.shepherds_clock(pid)?;
        Some(Snapshot { shep: shep.clone(), procs, born, cpus: cpus.collect(), clock })
    }

    // ---- brought back ----

    /// Its images are read, if cpr has passed them.
    pub fn restore(&mut self, slot: usize, place: Box<PlaceCommand>, cpus: Vec<Vec<u32>>) {
        let key = place.key;
        let Some(proc) = &mut self.slots[slot].proc else { return };
        let app = proc.apps.get_mut(&key);
        let Some((app, from)) = app.and_then(|app| app.restore_from.take().map(|f| (app, f)))
        else {
            self.checks.not_restored(key.apid);
            let why = "apinit has not received the folder of its checkpoint".to_owned();
            return self.apinit_happens(slot, Event::Restored(key, Err(why)));
        };
        app.coming = Some(Box::new(Coming { from, place, cpus, shepherd: None }));
        self.restore_goes_on(slot, key);
    }

    /// The next step of a restore comes in a while, unless somebody is killed before.
    fn restore_goes_on(&mut self, slot: usize, key: Key) {
        let late = self.cpr.chance.u64(100 * US..30 * MS);
        let life = self.slots[slot].life;
        self.after(late, Ev::Restore { slot, life, key });
        self.harm_a_restore(slot, key, late);
    }

    /// A step of a restore.
    pub fn restore_step(&mut self, slot: usize, life: u64, key: Key) {
        if let Some(pause) = self.paused_until(Who::ApinitLink(slot)) {
            return self.at(pause, Ev::Restore { slot, life, key });
        }
        if self.slots[slot].life != life {
            return;
        }
        let fails = self.cpr.fails(10);
        let Some(proc) = &mut self.slots[slot].proc else { return };
        let Some(coming) = proc.apps.get_mut(&key).and_then(|app| app.coming.take()) else {
            return;
        };
        let done = match coming.shepherd {
            _ if fails => Err("the disk says no".to_owned()),
            None => self.processes_come(slot, key, *coming).map(|()| None),
            Some(pid) => self.rekeyed(slot, key, pid, &coming.from).map(Some),
        };
        let result = match done {
            Ok(None) => return self.restore_goes_on(slot, key),
            Ok(Some(back)) => {
                self.counts.brought_back += 1;
                Ok(Box::new(back))
            }
            Err(why) => {
                // Whatever is there of it has run nothing, and is not to.
                self.checks.not_restored(key.apid);
                self.kill_restored(slot, key);
                Err(why)
            }
        };
        self.apinit_happens(slot, Event::Restored(key, result));
    }

    fn kill_restored(&mut self, slot: usize, key: Key) {
        self.kill_group(slot, key);
        self.shepherds_here(slot, key).into_iter().for_each(|pid| self.shepherd_gone(pid));
    }

    /// They are there again, on their new processors, in frozen groups.
    fn processes_come(&mut self, slot: usize, key: Key, coming: Coming) -> Result<(), String> {
        let Coming { from, place, cpus, .. } = coming;
        let Kind::Running { places: had, .. } = &from.manifest.kind else {
            return Err("it has no images".to_owned());
        };
        let alike = had.0.iter().map(|part| part.pes).eq(place.places.0.iter().map(|p| p.pes));
        if !alike || place.host_count() != 1 {
            let text = format!("{key} is on {:?}, and its checkpoint has {had:?}", place.places);
            self.checks.broken(text);
            return Err("its placement has another shape than its checkpoint".to_owned());
        }
        let was = from.at.shep.key;
        if place.restart.as_ref().map(|restart| restart.from) != Some(was) {
            self.checks.broken(format!("{key} is given images of {was}"));
        }
        self.freeze(slot, key);
        let pid = self.comes_out(slot, &place, &cpus, &from.at, true);
        let Some(proc) = &mut self.slots[slot].proc else { return Ok(()) };
        if let Some(app) = proc.apps.get_mut(&key) {
            app.coming = Some(Box::new(Coming { from, place, cpus, shepherd: Some(pid) }));
        }
        Ok(())
    }

    /// What was copied is there, in frozen groups; `stands`: it has not run as this application before. Its
    /// shepherd.
    pub fn comes_out(
        &mut self,
        slot: usize,
        place: &PlaceCommand,
        cpus: &[Vec<u32>],
        from: &Snapshot,
        stands: bool,
    ) -> Pid {
        let key = place.key;
        let pid = self.new_pid();
        let now_on: BTreeMap<Nid, usize> = from.born.iter().copied().zip(0..).collect();
        let mut numbers = BTreeMap::new();
        for saved in &from.procs {
            let at = now_on.get(&saved.proc.born).copied().unwrap_or(0);
            let moved = |cpu: &u32| {
                let part = from.cpus.get(at)?.iter().position(|old| old == cpu)?;
                cpus.get(at)?.get(part).copied()
            };
            let id = self.born(Proc {
                slot,
                key,
                nid: place.places.0[at].nid,
                shepherd: pid,
                cpus: saved.proc.cpus.iter().filter_map(moved).collect(),
                stands,
                ..saved.proc.clone()
            });
            numbers.insert(saved.id, id);
            if let Some(left) = saved.left {
                self.wake(id, left.max(US));
            }
        }
        let host_clock = self.mono(self.slots[slot].host);
        let ahead = from.clock as i64 - host_clock as i64;
        self.shepherd_comes_back(pid, from.shep.restored(slot, key, ahead, &numbers));
        // An apinit that is started again kills it by this.
        if let Some(directory) = self.slots[slot].apps.get_mut(&key) {
            directory.shepherd = Some(pid);
        }
        pid
    }

    /// Its shepherd goes on as this application.
    fn rekeyed(
        &mut self,
        slot: usize,
        key: Key,
        pid: Pid,
        from: &Checkpoint,
    ) -> Result<Back, String> {
        let gone = || "its apshepherd can't go on: it has died".to_owned();
        if !self.sheps.contains_key(&pid) {
            return Err(gone());
        }
        let host = self.slots[slot].host;
        let wire = self.plug(Who::ApinitShepherd(slot, key), Who::Shepherd(pid), host);
        self.shepherd_connected(pid, wire);
        let hello = self.greeted(wire, key, pid, from).ok_or_else(|| {
            self.hang_up(wire, 0);
            gone()
        })?;
        let clock_ns = self.sheps.get(&pid).map_or(0, |shep| shep.ahead);
        let Some(proc) = &mut self.slots[slot].proc else { return Err(gone()) };
        if let Some(app) = proc.apps.get_mut(&key) {
            app.shepherd = Some((pid, wire));
        }
        Ok(Back { born: from.at.born.clone(), hello, output: from.output, clock_ns })
    }

    /// What a restored shepherd says; none: it dies meanwhile.
    fn greeted(&mut self, wire: WireId, key: Key, pid: Pid, from: &Checkpoint) -> Option<Hello> {
        let said = self.hello_on(wire)?;
        let was = from.at.shep.key;
        if said.key != was {
            self.checks.broken(format!("the shepherd of {was} says it is {}'s", said.key));
        }
        self.shepherd_hears(wire, pid, Msg::ToShepherd(ToShepherd::Rekey(key)));
        let hello = self.hello_on(wire).filter(|hello| hello.key == key)?;
        self.greet(wire, key);
        Some(hello)
    }

    /// The hello that a shepherd has just said.
    pub fn hello_on(&mut self, wire: WireId) -> Option<Hello> {
        match self.wires.get_mut(&wire)?.to[0].pop_front()? {
            Msg::FromShepherd(said) => match *said {
                FromShepherd::Hello(hello) => Some(hello),
                _ => None,
            },
            _ => None,
        }
    }

    /// Those who were brought back and stood until now are let run: only where all of it is back.
    pub fn first_run(&mut self, slot: usize, key: Key) {
        let host = self.slots[slot].host;
        let members = self.groups.get(&(slot, key)).cloned().unwrap_or_default();
        for id in members {
            let Some(proc) = self.procs.get_mut(&id).filter(|proc| proc.stands) else { continue };
            proc.stands = false;
            let place = self.slots[slot].apps.get(&key).and_then(|dir| dir.place.as_ref());
            let done = |place: &PlaceCommand| matches!(place.moved.restoring, Restoring::Done(_));
            if !place.is_some_and(|place| done(place)) {
                self.checks.broken(format!("{key} runs, and was not brought back as a whole"));
            }
            if let Some(proc) = self.procs.get(&id) {
                self.checks.begins(self.now, &self.disk, host, proc);
            }
        }
    }
}
