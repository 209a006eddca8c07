//! Memory that goes out by a checkpoint of apinit's own, and comes in from there. As `apinit::host::memory_out` does it.
//!
//! ```text
//!   TakeOut     hung up --> all is said --> copied --> the mark --> no process is left --> TakenOut
//!   BringBack   processes, frozen --> its shepherd is heard --> placement, no mark --> CameBack
//!                  the apinit may be killed before each, and the first step fail
//! ```

use super::MS;
use super::images::Snapshot;
use super::wire::Who;
use super::world::{Ev, World};
use crate::apinit::decide::switcher::{Event as TurnEvent, News};
use crate::apinit::decide::{CameBack, Event};
use crate::apinit::drive::Heard;
use crate::apteam::Key;
use crate::apteam::protocol::node::{PlaceCommand, Restoring, Shift};
use std::sync::Arc;

/// It takes so long at most, either way.
const TAKES_MAX: u64 = 30 * MS;
/// It stays out for about so long.
const OUT_FOR: u64 = super::SECOND;

/// One that is being brought back.
#[derive(Debug)]
pub struct Returning {
    place: Box<PlaceCommand>,
    cpus: Vec<Vec<u32>>,
}

impl World {
    /// It is copied, and its processes are ended; or it stays as it is.
    pub fn take_out(&mut self, slot: usize, key: Key) {
        let pid = self.shepherd_of(slot, key).map(|(pid, _)| pid);
        let snapshot = match self.memory.fails() {
            true => None,
            false => pid.and_then(|pid| self.snapshot(slot, key, pid)),
        };
        let Some(snapshot) = snapshot else {
            let why = "the disk is full".to_owned();
            return self.apinit_hears(slot, Heard::TookOut(key, Err(why)));
        };
        if let Some(directory) = self.slots[slot].apps.get_mut(&key) {
            directory.away = Some(Arc::new(snapshot));
        }
        if !self.survives(slot) {
            return;
        }
        self.vanish(slot, key);
        self.counts.taken_out += 1;
        let bytes = self.memory.bytes();
        let Some(proc) = &mut self.slots[slot].proc else { return };
        if let Some(app) = proc.apps.get_mut(&key) {
            app.shepherd = None;
        }
        self.harm_a_restore(slot, key, OUT_FOR);
        self.apinit_hears(slot, Heard::TookOut(key, Ok(bytes)));
    }

    /// No process of it is left, and nobody sees them end: they go on elsewhere.
    pub fn vanish(&mut self, slot: usize, key: Key) {
        let members = self.groups.get_mut(&(slot, key)).map(std::mem::take).unwrap_or_default();
        for id in members {
            self.procs.remove(&id);
            self.checks.process_ended(id);
        }
        for pid in self.shepherds_here(slot, key) {
            self.sheps.remove(&pid);
            self.close_ends(|who| who == Who::Shepherd(pid));
        }
    }

    /// It is to be there again.
    pub fn bring_back(&mut self, slot: usize, place: Box<PlaceCommand>, cpus: Vec<Vec<u32>>) {
        let late = self.memory.late(TAKES_MAX);
        let (key, life) = (place.key, self.slots[slot].life);
        let Some(proc) = &mut self.slots[slot].proc else { return };
        if let Some(app) = proc.apps.get_mut(&key) {
            app.returning = Some(Returning { place, cpus });
        }
        self.after(late, Ev::BringBack { slot, life, key });
        self.harm_a_restore(slot, key, late);
    }

    /// It is.
    pub fn brought_back(&mut self, slot: usize, life: u64, key: Key) {
        if let Some(pause) = self.paused_until(Who::ApinitLink(slot)) {
            return self.at(pause, Ev::BringBack { slot, life, key });
        }
        if self.slots[slot].life != life {
            return;
        }
        let Some(proc) = &mut self.slots[slot].proc else { return };
        let returning = proc.apps.get_mut(&key).and_then(|app| app.returning.take());
        let Some(Returning { mut place, cpus }) = returning else { return };
        let away = self.slots[slot].apps.get(&key).and_then(|directory| directory.away.clone());
        let Some(from) = away else {
            let why = "its images are missing".to_owned();
            return self.apinit_hears(slot, Heard::CameBack(key, Err(why)));
        };
        // What another life of this apinit has begun to bring back has run nothing.
        self.vanish(slot, key);
        self.freeze(slot, key);
        let pid = self.comes_out(slot, &place, &cpus, &from, false);
        if !self.survives(slot) {
            return;
        }
        let host = self.slots[slot].host;
        let wire = self.plug(Who::ApinitShepherd(slot, key), Who::Shepherd(pid), host);
        self.shepherd_connected(pid, wire);
        let hello = self.hello_on(wire);
        self.greet(wire, key);
        let Some(hello) = hello else {
            let why = "its apshepherd does not answer".to_owned();
            return self.apinit_hears(slot, Heard::CameBack(key, Err(why)));
        };
        let clock_ns = self.sheps.get(&pid).map_or(0, |shep| shep.ahead);
        let shift = match place.moved.restoring {
            Restoring::Done(shift) => shift,
            Restoring::No | Restoring::Begun => Shift::default(),
        };
        place.moved.restoring = Restoring::Done(Shift { clock_ns, ..shift });
        self.keep_place(slot, place);
        if let Some(directory) = self.slots[slot].apps.get_mut(&key) {
            directory.away = None;
        }
        if !self.survives(slot) {
            return;
        }
        let Some(proc) = &mut self.slots[slot].proc else { return };
        if let Some(app) = proc.apps.get_mut(&key) {
            (app.shepherd, app.hung_up) = (Some((pid, wire)), false);
        }
        self.counts.returned += 1;
        let back = CameBack { hello, bytes: self.memory.bytes(), clock_ns };
        self.apinit_hears(slot, Heard::CameBack(key, Ok(Box::new(back))));
    }

    /// Whether it has no process, and is to be brought back before it runs.
    pub fn returns_first(&mut self, slot: usize, key: Key) -> bool {
        let Some(proc) = &mut self.slots[slot].proc else { return false };
        if !proc.away.contains(&key) {
            return false;
        }
        proc.returns.insert(key);
        self.apinit_happens(slot, Event::Turns(News::ComesIn(key)));
        true
    }

    /// It is there again: whether it runs.
    pub fn returned(&mut self, slot: usize, event: &TurnEvent) -> bool {
        let TurnEvent::Brought(key, _) = event else { return true };
        let Some(proc) = &mut self.slots[slot].proc else { return false };
        proc.away.remove(key);
        let runs = proc.returns.remove(key);
        if runs {
            self.thaw(slot, *key);
        }
        runs
    }
}

/// What is copied of it, in the runtime directory.
pub type Mark = Option<Arc<Snapshot>>;
