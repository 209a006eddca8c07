//! Those who type `cpr`: checkpoints of what runs, and restarts of what was checkpointed in the same history.
//!
//! `cpr -r` is an aprun from its posting on ([`super::front`]). What it has more is here: the folder, which
//! nobody else has meanwhile, and the door of the apinit, through which that goes before the launch.

use super::faults::Fault;
use super::front::Aprun;
use super::images::{Checkpoint, Draft};
use super::wire::{Msg, Pid, Target, Who};
use super::world::{Ev, World};
use super::{MS, SECOND, US};
use crate::apinit::decide::Event as AtApinit;
use crate::aprun::decide::session::Event;
use crate::apteam::protocol::attach::{FromApinit, ToApinit};
use crate::apteam::{Apid, Key, Ticket};
use crate::checkpoint::{Kind, Made, Manifest, Recovery, restarting};
use crate::psched::decide::Origin;
use fastrand::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Checkpoints that are kept: the oldest goes first.
const KEPT_MAX: usize = 24;
/// How long an apinit may take until it has heard of the placement.
const PLACE_WAIT: u64 = 10 * SECOND;
/// Between two questions whether it has.
const PAUSE: u64 = 50 * MS;
/// What the course is told then: psched may have taken the place back before this apinit heard of
/// it.
const NOT_PLACED: &str = "it has not heard of the placement from psched yet";

/// What a seed does with cpr.
#[derive(Debug)]
pub struct Cpr {
    pub chance: Rng,
    /// People type it.
    used: bool,
    /// Nothing of it fails by itself.
    pub sure: bool,
    /// Checkpoints that are being made.
    pub drafts: BTreeMap<u64, Draft>,
    /// Those that have their name, and whose application is to end for it.
    pub named: BTreeMap<u64, Key>,
    kept: Vec<Arc<Checkpoint>>,
    /// The folders that some cpr has.
    held: BTreeSet<u64>,
}

/// What a `cpr -r` has.
#[derive(Debug)]
pub struct Returning {
    pub from: Arc<Checkpoint>,
    pub origin: Origin,
    /// It holds the folder.
    held: bool,
    door: Option<Door>,
}

/// A question at an apinit's door.
#[derive(Debug)]
struct Door {
    number: u64,
    slot: usize,
    key: Key,
    ticket: Ticket,
    first: Box<ToApinit>,
    since: u64,
}

impl Cpr {
    /// Whatever comes of this chance: in half of the seeds people use it.
    pub fn choose(mut chance: Rng) -> Cpr {
        let used = chance.bool();
        Cpr { used, ..Cpr::none(chance) }
    }

    /// Nobody types it.
    pub fn none(chance: Rng) -> Cpr {
        let (drafts, named, kept, held) = Default::default();
        Cpr { chance, used: false, sure: false, drafts, named, kept, held }
    }

    /// One in so many fails.
    pub fn fails(&mut self, of: u32) -> bool {
        self.chance.u32(0..of) == 0 && !self.sure
    }

    /// A checkpoint has its name.
    pub fn keep(&mut self, made: Box<Checkpoint>) {
        if self.kept.len() >= KEPT_MAX {
            self.kept.remove(0);
        }
        self.kept.push(Arc::from(made));
    }

    /// The last one of this application.
    pub fn last_of(&self, apid: Apid) -> Option<Arc<Checkpoint>> {
        self.kept.iter().rev().find(|c| c.manifest.recovery.apid == apid).cloned()
    }
}

impl World {
    /// The first of each.
    pub fn begin_cpr(&mut self) {
        if self.cpr.used {
            self.at(SECOND * 4, Ev::Checkpoint(None));
            self.at(SECOND * 20, Ev::Restart);
        }
    }

    /// Somebody types `cpr -c`, of this one or of any that runs.
    pub fn somebody_checkpoints(&mut self, of: Option<Key>) {
        if self.ending {
            return;
        }
        if of.is_none() {
            let wait = self.cpr.chance.u64(SECOND..self.options.time_ns / 30);
            self.after(wait, Ev::Checkpoint(None));
        }
        if !self.hosts[0].up || self.paused_until(Who::PschedFront(0)).is_some() {
            return;
        }
        let Some(psched) = &self.psched else { return };
        let run = psched.driver.scheduler().teams().filter(|team| team.hosts.len() == 1);
        let run: Vec<Key> = run.map(|team| team.key()).collect();
        let key = match of {
            Some(key) => run.contains(&key).then_some(key),
            None => self.cpr.chance.choice(&run).copied(),
        };
        let end = self.cpr.chance.u32(0..3) > 0;
        if let Some(key) = key {
            self.checkpoint(key, end);
        }
    }

    /// psched says what it is, and its apinit is asked for images. Which checkpoint that will be.
    pub fn checkpoint(&mut self, key: Key, end: bool) -> Option<u64> {
        let team = self.scheduler()?.team(key.apid)?.clone();
        let kind = Kind::of(&team).ok()?;
        let nid = team.places.nids().next()?;
        let slot = self.slots.iter().position(|slot| slot.nids.contains(&nid))?;
        // (Parts of several apinits are tried on real ones.)
        if !team.places.nids().all(|nid| self.slots[slot].nids.contains(&nid)) {
            return None;
        }
        let proc = self.slots[slot].proc.as_ref()?;
        if self.paused_until(Who::ApinitLink(slot)).is_some() {
            return None;
        }
        let mono = self.mono(self.slots[slot].host);
        let run = Duration::from_nanos(proc.switcher.ran(key)?.by(mono));
        let manifest = Manifest {
            made: Made::default(),
            kind,
            recovery: Recovery::of(&team, run),
            launch: None,
            files: Vec::new(),
        };
        let number = self.number();
        self.note(|| format!("cpr asks for checkpoint {number} of {key}, to end: {end}"));
        self.cpr.drafts.insert(number, Draft { manifest, end, made: None });
        let uid = team.owner.uid;
        self.apinit_happens(slot, AtApinit::DumpAsked { number, uid, key, end, afar: false });
        Some(number)
    }

    /// Of some that have just begun to go somebody wants a checkpoint at once.
    pub fn checkpoint_soon(&mut self, key: Key) {
        // (Of the key alone, so that the other chances stay what they are.)
        let number = key.apid.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        if self.cpr.used && number.is_multiple_of(11) {
            self.after(number % (50 * MS), Ev::Checkpoint(Some(key)));
        }
    }

    /// It is being ended, now that its checkpoint has its name.
    pub fn ends_by_dump(&mut self, number: u64) {
        if let Some(key) = self.cpr.named.remove(&number) {
            self.counts.kept_off += 1;
            self.checks.ends_by_dump(key);
        }
    }

    /// There is no checkpoint, or whoever asked is told why his application was not ended.
    pub fn dump_refused(&mut self, number: u64) {
        self.cpr.drafts.remove(&number);
        self.cpr.named.remove(&number);
    }

    /// Somebody types `cpr -r`.
    pub fn somebody_restarts(&mut self) {
        if self.ending {
            return;
        }
        let wait = self.cpr.chance.u64(SECOND..self.options.time_ns / 20);
        self.after(wait, Ev::Restart);
        let Some(from) = self.cpr.chance.choice(&self.cpr.kept).cloned() else { return };
        // (Those that would run for ever would have all processors before long.)
        let rare = from.plan.is_endless() && self.cpr.chance.u32(0..6) > 0;
        if rare || !self.hosts[0].up {
            return;
        }
        let twice = self.cpr.chance.u32(0..8) == 0;
        let pid = self.restarts(&from);
        if let Some(pid) = pid
            && self.mix.aprun
            && self.cpr.chance.u32(0..4) == 0
        {
            let soon = self.cpr.chance.u64(US..120 * MS);
            self.after(soon, Ev::FrontKilled(pid));
        }
        if self.mix.psched && self.cpr.chance.u32(0..4) == 0 {
            let soon = self.cpr.chance.u64(US..120 * MS);
            self.after(soon, Ev::Fault(Fault::PschedNow));
        }
        if twice {
            self.restarts(&from);
        }
    }

    /// A `cpr -r` of this checkpoint begins; none: another has the folder, or it can't be restarted.
    pub fn restarts(&mut self, from: &Arc<Checkpoint>) -> Option<Pid> {
        if self.cpr.held.contains(&from.number) {
            return None;
        }
        let mut request_id = [0; 16];
        self.cpr.chance.fill(&mut request_id);
        let back = restarting(&from.manifest, request_id).ok()?;
        let origin = Origin::Running(back.restart?);
        self.cpr.held.insert(from.number);
        let pid = self.new_pid();
        let owner = from.manifest.recovery.owner.clone();
        let returning = Returning { from: Arc::clone(from), origin, held: true, door: None };
        self.note(|| format!("cpr {pid} restarts checkpoint {}", from.number));
        self.counts.restarts_posted += 1;
        let plan = from.plan.clone();
        self.front_starts(pid, back.posting, owner, plan, false, Some(Box::new(returning)));
        Some(pid)
    }

    /// The folder is let go: it runs, or cpr is gone.
    pub fn lets_go(&mut self, returning: &mut Returning) {
        if std::mem::replace(&mut returning.held, false) {
            self.cpr.held.remove(&returning.from.number);
        }
    }

    /// Its apinit is to have the images before it has the launch.
    pub fn goes_to_the_door(&mut self, pid: Pid, slot: usize, first: Box<ToApinit>) {
        let number = self.number();
        let since = self.now;
        let late = self.net.u64(50 * US..MS);
        let ToApinit::Launch { key, ticket, .. } = &*first else { return };
        let (key, ticket) = (*key, *ticket);
        let Some(returning) = self.returning(pid) else { return };
        returning.door = Some(Door { number, slot, key, ticket, first, since });
        self.after(late, Ev::Door(pid, number));
    }

    fn returning(&mut self, pid: Pid) -> Option<&mut Returning> {
        self.fronts.get_mut(&pid)?.returning.as_deref_mut()
    }

    /// It knocks.
    pub fn at_the_door(&mut self, pid: Pid, number: u64) {
        if let Some(pause) = self.paused_until(Who::FrontPsched(pid)) {
            return self.at(pause, Ev::Door(pid, number));
        }
        let now = self.now;
        let Some(Aprun { posting, returning: Some(returning), .. }) = self.fronts.get_mut(&pid)
        else {
            return;
        };
        let (uid, held) = (posting.1.uid, returning.held);
        let Some(door) = returning.door.take_if(|door| door.number == number) else { return };
        let (slot, waits) = (door.slot, now - door.since < PLACE_WAIT);
        let host = self.slots[slot].host;
        let refused = |text| Event::Apinit(FromApinit::Refused { text, cause: None });
        let down = |text: &str| Event::ApinitDown { text: text.into(), connected: false };
        let there = self.slots[slot].proc.is_some() && self.hosts[host].up;
        let reached = there && !self.is_cut(0, host) && !self.is_cut(host, 0);
        let stopped = self.paused_until(Who::ApinitLink(slot)).is_some();
        let event = if !held {
            refused("its checkpoint was released, because it has already run".to_owned())
        } else if !reached {
            down("nobody answers at the door")
        } else {
            let agent = self.slots[slot].proc.as_ref().and_then(|proc| proc.agent());
            let may = match agent.filter(|_| !stopped) {
                Some(agent) => agent.may_restore(door.key, uid, &door.ticket),
                None => Ok(false),
            };
            match may {
                Err(why) => refused(why),
                Ok(false) if waits => {
                    if let Some(returning) = self.returning(pid) {
                        returning.door = Some(door);
                    }
                    return self.after(PAUSE, Ev::Door(pid, number));
                }
                Ok(false) if stopped => down("it does not answer"),
                Ok(false) => Event::Apinit(FromApinit::NotNow(NOT_PLACED.into())),
                Ok(true) => return self.passes(pid, door),
            }
        };
        self.front_at_the_door(pid, event);
    }

    /// The apinit has the folder; now the launch.
    fn passes(&mut self, pid: Pid, door: Door) {
        let Door { slot, key, first, .. } = door;
        let Some(from) = self.returning(pid).map(|r| Arc::clone(&r.from)) else { return };
        let proc = self.slots[slot].proc.as_mut();
        if let Some(app) = proc.and_then(|proc| proc.apps.get_mut(&key)) {
            app.restore_from = Some(from);
        }
        self.attach(pid, slot, first);
    }

    /// The stream to the apinit.
    pub fn attach(&mut self, pid: Pid, slot: usize, first: Box<ToApinit>) {
        let Some(uid) = self.fronts.get(&pid).map(|aprun| aprun.posting.1.uid) else { return };
        let (host, from) = (self.slots[slot].host, self.logins.host_of(pid));
        let who = Who::FrontApinit(pid);
        // (On psched's host a front end reaches other hosts without an apinit of its own, as it
        // always has here.)
        let wire = match from == 0 || from == host {
            true => self.connect(who, [from, host], Target::Apinit { slot, front: pid, uid }),
            false => self.dial_through(who, from, host, Some(slot)),
        };
        self.send(wire, 0, Msg::ToApinit(first));
        self.front_attaches(pid, wire);
    }

    /// cpr gets KILL, at whichever step it is.
    pub fn front_is_killed(&mut self, pid: Pid) {
        if !self.ending && self.fronts.contains_key(&pid) {
            self.counts.add("aprun");
            self.front_gone(pid, None);
        }
    }

    /// The same of a shepherd that is being brought back.
    pub fn shepherd_is_killed(&mut self, slot: usize, key: Key) {
        let of = |shep: &super::shepherd::Shep| shep.slot == slot && shep.key == key;
        let found = self.sheps.iter().find(|(_, shep)| of(shep)).map(|(pid, _)| *pid);
        if let Some(pid) = found.filter(|_| !self.ending) {
            self.counts.add("shepherd");
            self.checks.not_restored(key.apid);
            self.kill_shepherd(pid);
        }
    }

    /// A restore has begun its next step, which takes so long: somebody may be killed before that is over.
    pub fn harm_a_restore(&mut self, slot: usize, key: Key, late: u64) {
        if self.ending || self.cpr.sure {
            return;
        }
        let soon = self.cpr.chance.u64(0..late + MS);
        match self.cpr.chance.u32(0..16) {
            0 if self.mix.apinit => self.after(soon, Ev::Fault(Fault::Apinit(Some(slot)))),
            1 if self.mix.shepherd => self.after(soon, Ev::ShepherdKilled(slot, key)),
            2 if self.mix.psched => self.after(soon, Ev::Fault(Fault::PschedNow)),
            _ => {}
        }
    }
}
