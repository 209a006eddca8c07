//! apinit in the simulated cluster: the driver that ships, and around it the link, front ends, other hosts,
//! shepherds, and the runtime directory from which it takes up after its death.
//!
//! What apinit's own threads do is here as well: waiting for groups to empty, moving threads, removing.

mod outside;

use super::host::ProcId;
use super::images::{Checkpoint, Coming as ComingBack};
use super::logins::{BACK, DOWN};
use super::memory::Coming;
use super::memory_out::{Mark, Returning};
use super::programs::Copy;
use super::wire::{Msg, Pid, Target, Who, WireId};
use super::world::{Ev, World};
use super::{MS, SECOND, US};
use crate::apinit::decide::clock::Reading;
use crate::apinit::decide::exchanges::Exchanges;
use crate::apinit::decide::switcher::{Event as TurnEvent, Switcher};
use crate::apinit::decide::{Agent, Conn, Event, Found, Me, Rebind, Watch};
use crate::apinit::drive::{Driver, Heard, Left};
use crate::apteam::Key;
use crate::apteam::protocol::node::{Hello, PROTOCOL, PlaceCommand, RollOut, Welcome};
use crate::apteam::protocol::shepherd::{self, FromShepherd, ToShepherd};
use crate::apteam::protocol::turns::{SlicePlan, Switches};
use crate::apteam::silence::Silence;
use crate::machine::Nid;
use outside::At;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A host's apinit: what is there also while it is dead.
#[derive(Debug)]
pub struct Slot {
    pub host: usize,
    pub nids: BTreeSet<Nid>,
    pub cpus: Vec<u32>,
    /// How many times it has been started.
    pub life: u64,
    /// No shepherd can be started there.
    pub sick: bool,
    /// Whether it brings memory to swap.
    pub roll_out: RollOut,
    pub proc: Option<Box<Apinit>>,
    /// The runtime directory: gone when the host goes.
    welcome: Option<Welcome>,
    plans: Vec<SlicePlan>,
    pub apps: BTreeMap<Key, Directory>,
}

/// The runtime directory of an application.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    groups: bool,
    pub shepherd: Option<Pid>,
    /// Last: with it, it counts as made.
    pub place: Option<Box<PlaceCommand>>,
    front: Option<Pid>,
    gone: bool,
    adopted: bool,
    going: Option<u64>,
    /// What it has run, and when that was so.
    pub ran: Option<(u64, u64)>,
    /// Its memory is out, and no process of it counts.
    pub away: Mark,
    /// A move that was begun: its placement then, and where each process is bound then.
    journal: Option<Journal>,
}

/// Where processes are to be bound, and the placement that they have then.
#[derive(Clone, Debug)]
struct Journal {
    place: Box<PlaceCommand>,
    bound: BTreeMap<ProcId, (Nid, Vec<u32>)>,
}

/// What a running apinit has of an application.
#[derive(Debug, Default)]
pub struct App {
    pub shepherd: Option<(Pid, WireId)>,
    /// Nothing more can be said to it.
    pub hung_up: bool,
    /// What cpr has passed.
    pub restore_from: Option<Arc<Checkpoint>>,
    /// It is being brought back.
    pub coming: Option<Box<ComingBack>>,
    /// The same of one whose memory was out.
    pub returning: Option<Returning>,
}

#[derive(Debug)]
struct Front {
    wire: Option<WireId>,
    process: Option<Pid>,
}

/// An apinit that runs.
#[derive(Debug)]
pub struct Apinit {
    /// None: it is just being called.
    driver: Option<Box<Driver>>,
    /// What has come of calls of it.
    happened: Vec<Heard>,
    pub apps: BTreeMap<Key, App>,
    fronts: BTreeMap<Conn, Front>,
    /// Streams of heads, and the wires of those that are open.
    heads: BTreeMap<Conn, Option<WireId>>,
    pub peers: BTreeMap<(Key, u32), WireId>,
    /// Of each the generation of its stream, and how many bytes may wait on it.
    pub rooms: BTreeMap<(Key, u32), (u64, u64)>,
    /// The wire to psched, and whether it has been welcomed on it.
    pub link: Option<(WireId, bool)>,
    /// The heartbeats that psched has not answered on that wire.
    pub silence: Option<(Silence, WireId)>,
    /// The exchanges with psched about its clock on that wire, and how often psched's host had been started; what
    /// was read last, when, and of which of these clocks.
    pub exchanges: Option<(Exchanges, WireId, u32)>,
    pub reading: Option<(Reading, u64, u32)>,
    /// The error of the one before.
    pub error_before: u64,
    back_off: u64,
    timer: u64,
    pub switcher: Switcher,
    pub turns_timer: u64,
    /// Changes that are still to be told.
    pub switches: Switches,
    /// The most memory that it knows of.
    pub peaks: BTreeMap<(Key, Nid), u64>,
    /// Whose memory comes.
    pub coming: BTreeMap<Key, Coming>,
    /// Who has no process, for its memory is out; and of those who is to run as soon as it has.
    pub away: BTreeSet<Key>,
    /// Copies of programs.
    pub copies: BTreeMap<Key, Copy>,
    pub returns: BTreeSet<Key>,
    /// It dies after so many more actions.
    pub dies_after: Option<u32>,
}

impl Apinit {
    /// Its agent, while the driver is not just being called.
    pub fn agent(&self) -> Option<&Agent> {
        self.driver.as_ref().map(|driver| driver.agent())
    }
}

impl Slot {
    pub fn new(host: usize, nids: BTreeSet<Nid>, cpus: Vec<u32>) -> Slot {
        Slot {
            host,
            nids,
            cpus,
            life: 0,
            sick: false,
            roll_out: RollOut::Untold,
            proc: None,
            welcome: None,
            plans: Vec::new(),
            apps: BTreeMap::new(),
        }
    }

    /// The host was switched off: /run was in memory.
    pub fn lose_runtime(&mut self) {
        self.welcome = None;
        self.plans.clear();
        self.apps.clear();
    }

    /// Where front ends find it.
    pub fn socket(slot: usize) -> String {
        format!("/run/psched/apinit-{slot}.sock")
    }

    pub fn of_socket(socket: &str) -> Option<usize> {
        socket.strip_prefix("/run/psched/apinit-")?.strip_suffix(".sock")?.parse().ok()
    }
}

impl World {
    /// apinit is started, and takes up what a former life of it has left.
    pub fn apinit_start(&mut self, slot: usize) {
        let host = self.slots[slot].host;
        if self.slots[slot].proc.is_some() || !self.hosts[host].up {
            return;
        }
        let boot_id = self.hosts[host].boot_id();
        let at = &mut self.slots[slot];
        at.life += 1;
        let life = at.life;
        let me =
            Me { nids: at.nids.clone(), uid: 0, cpus: at.cpus.clone(), numa: [].into(), boot_id };
        at.proc = Some(Box::new(Apinit {
            driver: Some(Box::new(Driver::new(
                Agent::new(me, at.welcome.clone()).planned(at.plans.clone()),
            ))),
            happened: Vec::new(),
            apps: BTreeMap::new(),
            fronts: BTreeMap::new(),
            heads: BTreeMap::new(),
            peers: BTreeMap::new(),
            rooms: BTreeMap::new(),
            link: None,
            silence: None,
            exchanges: None,
            reading: None,
            error_before: 0,
            back_off: 20 * MS,
            timer: 0,
            switcher: Switcher::default(),
            turns_timer: 0,
            switches: Switches::default(),
            peaks: BTreeMap::new(),
            coming: BTreeMap::new(),
            away: BTreeSet::new(),
            copies: BTreeMap::new(),
            returns: BTreeSet::new(),
            dies_after: None,
        }));
        let plans = at.plans.clone();
        self.note(|| format!("apinit {slot} starts"));
        self.checks.host_is_disturbed(host, self.now + BACK);
        self.apinit_serves_users(slot, true);
        for plan in plans {
            self.tell_switcher(slot, TurnEvent::Plan(plan));
        }
        let by_checkpoint = self.slots[slot].roll_out == RollOut::ByCheckpoint;
        self.tell_switcher(slot, TurnEvent::ByCheckpoint(by_checkpoint));
        self.checks.apinit_away(&self.slots[slot].nids, self.now);
        let left: Vec<(Key, Directory)> =
            self.slots[slot].apps.iter().map(|(k, d)| (*k, d.clone())).collect();
        for (key, directory) in left {
            self.finish_rebinding(slot, key);
            let directory = self.slots[slot].apps.get(&key).cloned().unwrap_or(directory);
            match directory.place.clone() {
                Some(place) => self.take_up(slot, key, &directory, *place),
                None => self.clear(slot, key, &directory),
            }
        }
        self.drive(slot, |driver, out| driver.begin(out));
        self.after(0, Ev::ApinitDial(slot, life));
        self.measure(slot);
    }

    /// An application that had only begun to be made, or was being removed.
    fn clear(&mut self, slot: usize, key: Key, directory: &Directory) {
        let in_groups: Vec<Pid> = self
            .sheps
            .iter()
            .filter(|(pid, s)| {
                Some(**pid) == directory.shepherd
                    || directory.groups && s.slot == slot && s.key == key
            })
            .map(|(pid, _)| *pid)
            .collect();
        for pid in in_groups {
            self.shepherd_gone(pid);
        }
        self.kill_group(slot, key);
        if directory.groups {
            self.groups.remove(&(slot, key));
        }
        self.slots[slot].apps.remove(&key);
    }

    fn take_up(&mut self, slot: usize, key: Key, directory: &Directory, place: PlaceCommand) {
        let away = directory.away.is_some();
        if away {
            self.counts.found_away += 1;
            // What is there of it is no more than its images are.
            self.vanish(slot, key);
            self.freeze(slot, key);
        }
        let known = directory.shepherd.filter(|_| Driver::goes_on(&place, away));
        let found = known.and_then(|pid| self.find_shepherd(slot, key, pid));
        let (shepherd, hello) = found.unzip();
        if hello.is_none()
            && let Some(pid) = directory.shepherd
        {
            self.shepherd_gone(pid);
        }
        let front = directory.front.map(|process| (Conn(self.number()), process));
        let front_died = front.is_some_and(|(_, process)| !self.fronts.contains_key(&process));
        let (going_ns, ran_ns) = (directory.going, self.found_ran(slot, key));
        let Some(proc) = &mut self.slots[slot].proc else { return };
        if let Some((conn, process)) = front {
            proc.fronts.insert(conn, Front { wire: None, process: Some(process) });
        }
        proc.apps.insert(key, App { shepherd, ..App::default() });
        let found = Found {
            place,
            going_ns,
            ran_ns,
            hello,
            silent: false,
            away: away.then_some(7),
            front: front.map(|(conn, _)| conn),
            gone: directory.gone,
            adopted: directory.adopted,
        };
        self.drive(slot, |driver, _| driver.left(Left { found, front_died, thawing: false }));
    }

    /// Connects to the shepherd of a former life and hears its hello.
    pub fn find_shepherd(
        &mut self,
        slot: usize,
        key: Key,
        pid: Pid,
    ) -> Option<((Pid, WireId), shepherd::Hello)> {
        self.sheps.get(&pid)?;
        // It hears first what was on its way from the one who died.
        self.shepherd_drains(pid);
        self.sheps.get(&pid)?;
        let host = self.slots[slot].host;
        let wire = self.plug(Who::ApinitShepherd(slot, key), Who::Shepherd(pid), host);
        self.shepherd_connected(pid, wire);
        let first = self.wires.get_mut(&wire).and_then(|w| w.to[0].pop_front());
        let Some(Msg::FromShepherd(first)) = first else {
            // It has died in this moment.
            self.hang_up(wire, 0);
            return None;
        };
        let FromShepherd::Hello(hello) = *first else { return None };
        self.greet(wire, key);
        Some(((pid, wire), hello))
    }

    pub fn greet(&mut self, wire: WireId, key: Key) {
        let hello = shepherd::Hello { key, ..Default::default() };
        self.send(wire, 0, Msg::ToShepherd(ToShepherd::Hello(hello)));
    }

    /// A wire within a host, both ends taken.
    pub fn plug(&mut self, from: Who, to: Who, host: usize) -> WireId {
        let wire = self.connect(from, [host, host], Target::PschedLink);
        if let Some(wire) = self.wires.get_mut(&wire) {
            wire.to[1].clear();
            wire.ends[1] = to;
        }
        wire
    }

    /// It is dead: its streams end, its shepherds go on.
    pub fn apinit_gone(&mut self, slot: usize) {
        if self.slots[slot].proc.take().is_none() {
            return;
        }
        self.note(|| format!("apinit {slot} dies"));
        self.checks.host_is_disturbed(self.slots[slot].host, self.now + DOWN);
        self.apinit_serves_users(slot, false);
        self.disturbed(slot);
        self.checks.apinit_away(&self.slots[slot].nids, u64::MAX);
        self.close_ends(|who| match who {
            Who::ApinitLink(s)
            | Who::ApinitFront(s, _)
            | Who::ApinitPeer(s, ..)
            | Who::ApinitShepherd(s, _) => s == slot,
            _ => false,
        });
    }

    /// The agent hears this, and what follows is done.
    pub fn apinit_happens(&mut self, slot: usize, event: Event) {
        self.apinit_hears(slot, Heard::Happens(event));
    }

    /// The same for events that come also in a quiet cluster: they are not counted.
    pub fn apinit_learns(&mut self, slot: usize, event: Event) {
        self.drive(slot, |driver, out| driver.hears(out, Heard::Happens(event)));
    }

    /// The driver hears this, and what follows is done. (While it is being called: after that.)
    pub fn apinit_hears(&mut self, slot: usize, heard: Heard) {
        self.counts.heard += 1;
        match &mut self.slots[slot].proc {
            None => {}
            Some(proc) if proc.driver.is_none() => proc.happened.push(heard),
            Some(_) => self.drive(slot, |driver, out| driver.hears(out, heard)),
        }
    }

    /// What has come of calls is heard, and what follows is done.
    pub fn apinit_settles(&mut self, slot: usize) {
        self.drive(slot, |driver, out| driver.settle(out));
    }

    fn drive(&mut self, slot: usize, call: impl FnOnce(&mut Driver, &mut At<'_>)) {
        let life = self.slots[slot].life;
        let driver = self.slots[slot].proc.as_mut().and_then(|proc| proc.driver.take());
        let Some(mut driver) = driver else { return };
        let mut out = At::new(self, slot);
        call(&mut driver, &mut out);
        driver.keep_plans(&mut out);
        // (It may have been killed.)
        if self.slots[slot].life == life
            && let Some(proc) = &mut self.slots[slot].proc
        {
            proc.driver = Some(driver);
        }
    }

    /// Whether it is still alive: it may be killed before any step.
    pub fn survives(&mut self, slot: usize) -> bool {
        let Some(proc) = &mut self.slots[slot].proc else { return false };
        match &mut proc.dies_after {
            Some(0) => {
                self.counts.killed_between += 1;
                self.kill_apinit(slot);
                false
            }
            Some(left) => {
                *left -= 1;
                true
            }
            None => true,
        }
    }

    pub fn keep_place(&mut self, slot: usize, place: Box<PlaceCommand>) {
        if let Some(directory) = self.slots[slot].apps.get_mut(&place.key) {
            directory.place = Some(place);
        }
    }

    /// Journal, threads, placement, in the order of `apinit::host::rebind`; it may die between any two.
    fn rebind(&mut self, slot: usize, key: Key, parts: &[Rebind], place: Box<PlaceCommand>) {
        let now_on: BTreeMap<Nid, Nid> =
            place.moved.born.iter().copied().zip(place.places.nids()).collect();
        let mut bound = BTreeMap::new();
        for (id, proc) in self.procs.iter().filter(|(_, p)| p.slot == slot && p.key == key) {
            let Some(part) = parts.iter().find(|part| part.born == proc.born) else { continue };
            let new = |cpu: &u32| part.cpus.iter().find(|(old, _)| old == cpu).map(|(_, new)| *new);
            let cpus = proc.cpus.iter().map(|cpu| new(cpu).unwrap_or(*cpu)).collect();
            let nid = now_on.get(&proc.born).copied().unwrap_or(proc.nid);
            bound.insert(*id, (nid, cpus));
        }
        let Some(directory) = self.slots[slot].apps.get_mut(&key) else { return };
        // Now and then the kernel refuses.
        let refused = self.faults.u32(0..8) == 0;
        if !refused {
            directory.journal = Some(Journal { place, bound });
        }
        if !self.survives(slot) {
            return;
        }
        if !refused {
            self.finish_rebinding(slot, key);
        }
        let result = if refused { Err("the kernel says no".to_owned()) } else { Ok(()) };
        self.apinit_happens(slot, Event::Rebound(key, result));
    }

    /// What a journal says, by whoever finds it.
    fn finish_rebinding(&mut self, slot: usize, key: Key) {
        let directory = self.slots[slot].apps.get_mut(&key);
        let Some(Journal { place, bound }) = directory.and_then(|d| d.journal.take()) else {
            return;
        };
        self.counts.moved += 1;
        for (id, (nid, cpus)) in bound {
            if let Some(proc) = self.procs.get_mut(&id) {
                (proc.nid, proc.cpus) = (nid, cpus);
            }
        }
        self.keep_place(slot, place);
    }

    fn group_count(&self, slot: usize, key: Key) -> u32 {
        self.groups.get(&(slot, key)).map_or(0, |g| g.len() as u32)
    }

    /// Groups are looked at again.
    pub fn apinit_groups(&mut self, slot: usize, life: u64, key: Key, begun: u64) {
        if let Some(pause) = self.paused_until(Who::ApinitLink(slot)) {
            return self.at(pause, Ev::ApinitGroups { slot, life, key, begun });
        }
        if self.slots[slot].life != life || self.slots[slot].proc.is_none() {
            return;
        }
        match self.group_count(slot, key) {
            0 => self.apinit_hears(slot, Heard::GroupsEmpty(key)),
            processes if self.now - begun > SECOND => {
                self.apinit_happens(slot, Event::GroupsStuck { key, processes, named: vec![] });
            }
            _ => self.after(5 * MS, Ev::ApinitGroups { slot, life, key, begun }),
        }
    }

    /// Its shepherd is waited for, then its groups and its directory go.
    pub fn apinit_removed(&mut self, slot: usize, life: u64, key: Key) {
        let at = &self.slots[slot];
        if at.life != life || at.proc.is_none() {
            return;
        }
        let there = at.apps.get(&key).and_then(|d| d.shepherd);
        if there.is_some_and(|pid| self.sheps.contains_key(&pid)) {
            return self.after(20 * MS, Ev::ApinitRemoved { slot, life, key });
        }
        if self.group_count(slot, key) > 0 {
            return self.after(20 * MS, Ev::ApinitRemoved { slot, life, key });
        }
        self.groups.remove(&(slot, key));
        self.frozen.remove(&(slot, key));
        // Last: by it an apinit that is started again knows of the groups.
        if self.slots[slot].apps.get(&key).is_some_and(|d| d.place.is_none()) {
            self.slots[slot].apps.remove(&key);
        }
    }

    /// Its timer has rung.
    pub fn apinit_timer(&mut self, slot: usize, life: u64, timer: u64) {
        if let Some(pause) = self.paused_until(Who::ApinitLink(slot)) {
            return self.at(pause, Ev::ApinitTimer(slot, life, timer));
        }
        let own = |p: &Apinit| p.timer == timer;
        if self.slots[slot].life == life && self.slots[slot].proc.as_deref().is_some_and(own) {
            self.apinit_happens(slot, Event::Tick);
        }
    }

    // ---- psched ----

    fn tell_psched(&mut self, slot: usize, msg: Msg) {
        if let Some((wire, true)) = self.slots[slot].proc.as_ref().and_then(|p| p.link) {
            self.send(wire, 0, msg);
        }
    }

    /// Its psched is told that it is not obeyed, and hung up on.
    fn is_not_obeyed(&mut self, slot: usize, why: &str) {
        self.checks.warned(why);
        let link = self.slots[slot].proc.as_mut().and_then(|proc| proc.link.take());
        let Some((wire, _)) = link else { return };
        if let Some(Who::PschedLink(_)) = self.wires.get(&wire).map(|wire| wire.ends[1]) {
            self.checks.broken(format!("an apinit does not obey its psched: {why}"));
        }
        self.hang_up(wire, 0);
        self.link_down(slot);
        self.apinit_happens(slot, Event::Unlinked);
    }

    /// It dials psched.
    pub fn apinit_dial(&mut self, slot: usize, life: u64) {
        if let Some(pause) = self.paused_until(Who::ApinitLink(slot)) {
            return self.at(pause, Ev::ApinitDial(slot, life));
        }
        let at = &self.slots[slot];
        let Some(proc) = at.proc.as_ref().filter(|p| at.life == life && p.link.is_none()) else {
            return;
        };
        let host = &self.hosts[at.host];
        let Some(driver) = &proc.driver else { return };
        let (store, epoch) = driver.agent().store();
        let hello = Hello {
            protocol: PROTOCOL,
            socket: Slot::socket(slot),
            hostname: host.name.clone(),
            boot_id: host.boot_id(),
            nids: at.nids.iter().copied().collect(),
            notes: Vec::new(),
            store_id: store.to_owned(),
            epoch,
            cpus: at.cpus.clone(),
            roll_out: at.roll_out.clone(),
            // Some are of the release before, which wants the whole placement.
            parts: slot % 4 != 3,
            leads_on: slot % 4 != 3,
            ..Hello::default()
        };
        let mut hello = hello;
        if self.logins.count() > 0 {
            (hello.host, hello.address) = (host.name.clone(), format!("{}:7118", host.name));
        }
        let host = at.host;
        // One that has obeyed none yet would obey any.
        let wrong = self.mix.stores && !self.ending && !hello.store_id.is_empty();
        let target = match (wrong && self.faults.u32(0..4) == 0, self.reaches_copy(slot)) {
            (true, _) => {
                self.counts.add("stores");
                self.checks.host_is_disturbed(host, self.now + BACK);
                self.checks.apinit_away(&self.slots[slot].nids, self.now);
                Target::WrongPsched(slot)
            }
            (false, Some(number)) => {
                self.checks.apinit_away(&self.slots[slot].nids, self.now);
                Target::Copy(number)
            }
            (false, None) => Target::PschedLink,
        };
        let wire = self.dial_psched(Who::ApinitLink(slot), host, target);
        self.send(wire, 0, Msg::Hello(Box::new(hello)));
        if let Some(proc) = &mut self.slots[slot].proc {
            proc.link = Some((wire, false));
        }
    }

    pub fn link_down(&mut self, slot: usize) {
        self.disturbed(slot);
        let life = self.slots[slot].life;
        let Some(proc) = &mut self.slots[slot].proc else { return };
        (proc.link, proc.exchanges, proc.reading) = (None, None, None);
        let wait = proc.back_off;
        proc.back_off = (wait * 2).min(SECOND);
        self.after(wait, Ev::ApinitDial(slot, life));
    }

    /// psched says something.
    pub fn apinit_link_says(&mut self, wire: WireId, slot: usize, msg: Msg) {
        self.psched_is_heard(slot, wire);
        let Some(proc) = &mut self.slots[slot].proc else { return };
        let Some((_, welcomed)) = proc.link.filter(|l| l.0 == wire) else { return };
        match msg {
            Msg::Welcome(welcome) => {
                proc.link = Some((wire, true));
                proc.back_off = 20 * MS;
                self.welcomed(slot, welcome.mono_ns);
                self.apinit_happens(slot, Event::Linked(welcome));
                self.beats_begin(slot, wire);
                self.exchanges_begin(slot, wire);
            }
            Msg::ClockAnswered(exchange) => self.exchange_answered(slot, wire, exchange),
            Msg::Command(seq, commits, command) => {
                if commits > 0 {
                    self.apinit_happens(slot, Event::Counted(commits));
                }
                if self.slots[slot].proc.as_ref().is_none_or(|p| p.link.is_none_or(|l| l.0 != wire))
                {
                    return;
                }
                self.apinit_happens(slot, Event::Command(seq, *command));
            }
            Msg::LinkRefused(text) => {
                self.checks.warned(&text);
                self.hang_up(wire, 0);
                self.link_down(slot);
            }
            Msg::Eof => {
                self.link_down(slot);
                if welcomed {
                    self.apinit_happens(slot, Event::Unlinked);
                }
            }
            _ => {}
        }
    }

    // ---- front ends, and heads ----

    /// A front end has connected to its socket.
    pub fn apinit_front_opened(
        &mut self,
        wire: WireId,
        slot: usize,
        front: Pid,
        uid: u32,
    ) -> Option<Who> {
        let conn = Conn(self.number());
        // The kernel of another host tells nothing of a front end's death. (Nor does psched, which
        // takes all hosts for its own: no hello here says that it is remote.)
        let hosts = self.wires.get(&wire).map(|wire| wire.hosts);
        let here = hosts.is_some_and(|hosts| hosts[0] == hosts[1]).then_some(front);
        let watch = if here.is_some() { Watch::Here } else { Watch::No };
        let proc = self.slots[slot].proc.as_mut()?;
        proc.fronts.insert(conn, Front { wire: Some(wire), process: here });
        let opened = Event::FrontOpened { conn, uid, watch };
        let who = self.apinit_stream_opened(wire, slot, conn, opened);
        if here.is_some_and(|pid| !self.fronts.contains_key(&pid)) {
            let life = self.slots[slot].life;
            self.after(US, Ev::ApinitFrontDied(slot, life, conn));
        }
        who
    }

    /// Another apinit has, it says.
    pub fn apinit_head_opened(&mut self, wire: WireId, slot: usize, uid: u32) -> Option<Who> {
        let conn = Conn(self.number());
        self.slots[slot].proc.as_mut()?.heads.insert(conn, Some(wire));
        let host = match self.wires.get(&wire).map(|wire| wire.ends[0]) {
            Some(Who::ApinitPeer(from, ..)) if self.slots[from].host != self.slots[slot].host => {
                format!("host{}", self.slots[from].host)
            }
            _ => String::new(),
        };
        self.apinit_stream_opened(wire, slot, conn, Event::HeadOpened { conn, uid, host })
    }

    fn apinit_stream_opened(
        &mut self,
        wire: WireId,
        slot: usize,
        conn: Conn,
        opened: Event,
    ) -> Option<Who> {
        if let Some(wire) = self.wires.get_mut(&wire) {
            wire.ends[1] = Who::ApinitFront(slot, conn);
        }
        self.apinit_happens(slot, opened);
        // (Nobody's, if it was refused at once.)
        let whose = self.wires.get(&wire).map_or(Who::Nobody, |wire| wire.ends[1]);
        Some(whose).filter(|_| self.slots[slot].proc.is_some())
    }

    /// A front end, or a head, says something.
    pub fn apinit_stream_says(&mut self, slot: usize, conn: Conn, msg: Msg) {
        let Some(proc) = &mut self.slots[slot].proc else { return };
        // (What is said to the other service never comes here: each has its own stream.)
        let event = match msg {
            Msg::ToApinit(message) => Event::FrontMessage(conn, *message),
            Msg::ToPeer(message) => Event::HeadMessage(conn, *message),
            Msg::Eof => {
                if let Some(front) = proc.fronts.get_mut(&conn) {
                    front.wire = None;
                }
                if let Some(wire) = proc.heads.get_mut(&conn) {
                    *wire = None;
                }
                Event::StreamClosed(conn)
            }
            _ => return,
        };
        self.apinit_happens(slot, event);
    }

    /// The process behind a stream is dead.
    pub fn apinit_front_died(&mut self, slot: usize, life: u64, conn: Conn) {
        if let Some(pause) = self.paused_until(Who::ApinitLink(slot)) {
            return self.at(pause, Ev::ApinitFrontDied(slot, life, conn));
        }
        let at = &self.slots[slot];
        if at.life == life && at.proc.as_ref().is_some_and(|p| p.fronts.contains_key(&conn)) {
            self.apinit_happens(slot, Event::FrontDied(conn));
        }
    }

    /// A front end's process has ended: whoever watches it hears of it.
    pub fn apinits_hear_of_front(&mut self, pid: Pid) {
        for slot in 0..self.slots.len() {
            let at = &self.slots[slot];
            let life = at.life;
            let of = |(conn, f): (&Conn, &Front)| (f.process == Some(pid)).then_some(*conn);
            let fronts = at.proc.iter().flat_map(|p| p.fronts.iter());
            let conns: Vec<Conn> = fronts.filter_map(of).collect();
            for conn in conns {
                let late = self.net.u64(10 * US..500 * US);
                self.after(late, Ev::ApinitFrontDied(slot, life, conn));
            }
        }
    }

    /// Another host's apinit says something.
    pub fn apinit_peer_says(
        &mut self,
        slot: usize,
        key: Key,
        index: u32,
        generation: u64,
        msg: Msg,
    ) {
        let heard = match msg {
            Msg::FromPeer(message) => Heard::PeerSaid(key, index, generation, message),
            Msg::Eof => {
                let text = "it has closed the stream".to_owned();
                Heard::PeerLost(key, index, generation, text)
            }
            _ => return,
        };
        self.apinit_hears(slot, heard);
    }

    // ---- shepherds ----

    /// The shepherd of an application, and the wire to it.
    pub fn shepherd_of(&self, slot: usize, key: Key) -> Option<(Pid, WireId)> {
        self.slots[slot].proc.as_ref()?.apps.get(&key)?.shepherd
    }

    /// A shepherd says something.
    pub fn apinit_shepherd_says(&mut self, wire: WireId, slot: usize, key: Key, msg: Msg) {
        let Some(proc) = &self.slots[slot].proc else { return };
        let own = proc.apps.get(&key).and_then(|a| a.shepherd);
        if own.is_none_or(|(_, of)| of != wire) {
            return;
        }
        match msg {
            Msg::FromShepherd(message) => {
                self.apinit_happens(slot, Event::ShepherdMessage(key, *message));
            }
            Msg::Eof => {
                let text = "it died: Killed (signal 9)".to_owned();
                let life = self.slots[slot].life;
                self.after(100 * US, Ev::ShepherdSilent { slot, life, key, text });
            }
            _ => {}
        }
    }

    /// A shepherd can't be heard any more.
    pub fn apinit_shepherd_silent(&mut self, slot: usize, life: u64, key: Key, text: String) {
        // (If the shepherd has gone meanwhile, the driver knows that.)
        if self.slots[slot].life == life && self.shepherd_of(slot, key).is_some() {
            self.apinit_hears(slot, Heard::ShepherdSilent(key, text));
        }
    }

    /// What is left on an apinit's host when all is over: nothing, it is to be hoped.
    pub fn left_over(&self, slot: usize) -> Vec<String> {
        let at = &self.slots[slot];
        let mut left: Vec<String> =
            at.apps.keys().map(|key| format!("the runtime directory of {key}")).collect();
        let groups = self.groups.keys().filter(|(of, _)| *of == slot);
        left.extend(groups.map(|(_, key)| format!("the groups of {key}")));
        let agent = at.proc.as_ref().and_then(|proc| proc.agent());
        let held = agent.map_or((0, 0), Agent::held);
        if held != (0, 0) {
            left.push(format!("an agent that holds {} applications, {} streams", held.0, held.1));
        }
        let procs: Vec<ProcId> =
            self.procs.iter().filter(|(_, p)| p.slot == slot).map(|(id, _)| *id).collect();
        if !procs.is_empty() {
            left.push(format!("{} processes", procs.len()));
        }
        let sheps = self.sheps.values().filter(|s| s.slot == slot).count();
        if sheps > 0 {
            left.push(format!("{sheps} shepherds"));
        }
        left
    }
}
