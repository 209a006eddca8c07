//! apinit around its agent: the link, front ends, other hosts, shepherds, and the runtime directory
//! from which it takes up after its death. As `apinit::host::shell` does it.

use super::away::{Mark, Returning};
use super::host::ProcId;
use super::images::{Checkpoint, Coming as ComingBack};
use super::memory::Coming;
use super::wire::{Msg, Pid, Target, Who, WireId};
use super::world::{Ev, World};
use super::{MS, SECOND, US};
use crate::apinit::decide::switcher::{Event as TurnEvent, Switcher};
use crate::apinit::decide::{Action, Agent, Conn, Found, Happening, Me, Rebind};
use crate::apteam::Key;
use crate::apteam::talk::node::{Hello, PROTOCOL, PlaceCommand, Restoring, RollOut, Welcome};
use crate::apteam::talk::shepherd::{self, FromShepherd, ToShepherd};
use crate::apteam::talk::turns::{SlicePlan, Switches};
use crate::machine::Nid;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
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
    /// What waits for its shepherd while it is dumped.
    pub hung_up: Option<Vec<ToShepherd>>,
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
    pub agent: Agent,
    pub apps: BTreeMap<Key, App>,
    fronts: BTreeMap<Conn, Front>,
    peers: BTreeMap<(Key, u32), (u64, WireId)>,
    /// The wire to psched, and whether it has been welcomed on it.
    link: Option<(WireId, bool)>,
    back_off: u64,
    pub own: VecDeque<Happening>,
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
    pub returns: BTreeSet<Key>,
    /// It dies after so many more actions.
    pub dies_after: Option<u32>,
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

    fn of_socket(socket: &str) -> Option<usize> {
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
            agent: Agent::new(me, at.welcome.clone()).planned(at.plans.clone()),
            apps: BTreeMap::new(),
            fronts: BTreeMap::new(),
            peers: BTreeMap::new(),
            link: None,
            back_off: 20 * MS,
            own: VecDeque::new(),
            timer: 0,
            switcher: Switcher::default(),
            turns_timer: 0,
            switches: Switches::default(),
            peaks: BTreeMap::new(),
            coming: BTreeMap::new(),
            away: BTreeSet::new(),
            returns: BTreeSet::new(),
            dies_after: None,
        }));
        let plans = at.plans.clone();
        self.note(|| format!("apinit {slot} starts"));
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
        self.apinit_settles(slot);
        self.tell_switcher(slot, TurnEvent::Begin);
        self.apinit_settles(slot);
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
        self.slots[slot].apps.remove(&key);
    }

    fn take_up(&mut self, slot: usize, key: Key, directory: &Directory, place: PlaceCommand) {
        // What has only begun to be brought back is not gone on with.
        let whole = place.restart.is_none() || matches!(place.moved.restoring, Restoring::Done(_));
        let away = directory.away.is_some();
        if away {
            self.counts.found_away += 1;
            // What is there of it is no more than its images are.
            self.vanish(slot, key);
            self.freeze(slot, key);
        }
        let known = directory.shepherd.filter(|_| whole && !away);
        let found = known.and_then(|pid| self.find_shepherd(slot, key, pid));
        let (shepherd, hello) = found.unzip();
        if hello.is_none()
            && let Some(pid) = directory.shepherd
        {
            self.shepherd_gone(pid);
        }
        let mut died = None;
        let front = directory.front.map(|process| {
            let conn = Conn(self.number());
            let alive = self.fronts.contains_key(&process);
            died = (!alive).then_some(conn);
            (conn, process)
        });
        let (going_ns, ran_ns) = (directory.going, self.found_ran(slot, key));
        let Some(proc) = &mut self.slots[slot].proc else { return };
        if let Some(conn) = died {
            proc.own.push_back(Happening::FrontDied(conn));
        }
        if let Some((conn, process)) = front {
            proc.fronts.insert(conn, Front { wire: None, process: Some(process) });
        }
        let hung_up = away.then(Vec::new);
        proc.apps.insert(key, App { shepherd, hung_up, ..App::default() });
        if away {
            proc.away.insert(key);
        }
        let front = front.map(|(conn, _)| conn);
        let gone = directory.gone;
        let found = Found {
            place,
            going_ns,
            ran_ns,
            hello,
            silent: false,
            away: away.then_some(7),
            front,
            gone,
        };
        proc.own.push_front(Happening::Found(Box::new(found)));
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

    /// What has happened to it, and what follows.
    pub fn apinit_happens(&mut self, slot: usize, happening: Happening) {
        self.counts.heard += 1;
        if let Some(proc) = &mut self.slots[slot].proc {
            proc.own.push_back(happening);
            self.apinit_settles(slot);
        }
    }

    pub fn apinit_settles(&mut self, slot: usize) {
        let life = self.slots[slot].life;
        loop {
            let mono = self.mono(self.slots[slot].host);
            let Some(proc) = &mut self.slots[slot].proc else { return };
            let Some(happening) = proc.own.pop_front() else { break };
            let text = self.trace.on().then(|| super::trace::cut(&happening));
            let actions = proc.agent.apply(mono, happening);
            let (apps, streams) = proc.agent.held();
            let bounds = proc.agent.bounds();
            self.checks.bound("applications of an apinit", apps, bounds.applications as usize);
            self.checks.bound("streams of an apinit", streams, bounds.connections as usize);
            if let Some(text) = text {
                self.note(|| format!("apinit {slot}: {text}"));
            }
            for action in actions {
                if !self.apinit_acts(slot, action) || self.slots[slot].life != life {
                    return;
                }
            }
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

    fn apinit_acts(&mut self, slot: usize, action: Action) -> bool {
        if !self.survives(slot) {
            return false;
        }
        self.note(|| format!("apinit {slot} does {}", super::trace::cut(&action)));
        let host = self.slots[slot].host;
        let Some(proc) = &mut self.slots[slot].proc else { return false };
        match action {
            Action::MakeAndSpawn { place, .. } => return self.make(slot, *place),
            Action::SendShepherd(key, message) => {
                let Some(app) = proc.apps.get_mut(&key) else { return true };
                if let Some(waiting) = &mut app.hung_up {
                    waiting.push(message);
                } else if let Some((_, wire)) = app.shepherd {
                    self.send(wire, 0, Msg::ToShepherd(message));
                }
            }
            Action::SendFront(conn, message) => {
                if let Some(wire) = proc.fronts.get(&conn).and_then(|f| f.wire) {
                    self.send(wire, 1, Msg::FromApinit(message));
                }
            }
            Action::CloseFront(conn) => {
                if let Some(wire) = proc.fronts.remove(&conn).and_then(|f| f.wire) {
                    self.hang_up(wire, 1);
                }
            }
            Action::KeepFront(key, conn) => {
                let process = proc.fronts.get(&conn).and_then(|f| f.process);
                if let (Some(process), Some(directory)) =
                    (process, self.slots[slot].apps.get_mut(&key))
                {
                    directory.front = Some(process);
                }
            }
            Action::KeepGone(key) => {
                if let Some(directory) = self.slots[slot].apps.get_mut(&key) {
                    directory.gone = true;
                }
            }
            Action::KeepGoing(key, at) => {
                if let Some(directory) = self.slots[slot].apps.get_mut(&key) {
                    directory.going = Some(at);
                }
                self.checkpoint_soon(key);
            }
            Action::Dump { key, number } => self.dump(slot, key, number),
            Action::TakeOut(key) => self.take_out(slot, key),
            Action::BringBack { place, cpus } => self.bring_back(slot, place, cpus),
            Action::RefuseDump(number, _) => self.dump_refused(number),
            Action::DumpEnds(number) => self.ends_by_dump(number),
            Action::KeepPlace(place) => self.keep_place(slot, place),
            Action::Restore { place, cpus } => return self.restore(slot, place, cpus),
            Action::Rebind { key, parts, place } => return self.rebind(slot, key, &parts, place),
            Action::Turns(event) => self.tell_switcher(slot, event),
            Action::TellRan(key) => self.tell_ran(slot, key),
            Action::KeepPlans(plans) => self.slots[slot].plans = plans,
            Action::OpenPeer { key, index, socket } => {
                let old = proc.peers.remove(&(key, index));
                if let Some((_, wire)) = old {
                    self.hang_up(wire, 0);
                }
                let Some(other) = Slot::of_socket(&socket) else { return true };
                let generation = self.number();
                let who = Who::ApinitPeer(slot, key, index, generation);
                let hosts = [host, self.slots[other].host];
                let target = Target::Apinit { slot: other, front: None, uid: 0 };
                let wire = self.connect(who, hosts, target);
                if let Some(proc) = &mut self.slots[slot].proc {
                    proc.peers.insert((key, index), (generation, wire));
                }
            }
            Action::SendPeer(key, index, message) => {
                if let Some((_, wire)) = proc.peers.get(&(key, index)).copied() {
                    self.send(wire, 0, Msg::ToApinit(Box::new(message)));
                }
            }
            Action::Inventory { items, .. } => self.tell_psched(slot, Msg::Inventory(items)),
            Action::Report(report) => self.tell_psched(slot, Msg::Report(Box::new(report))),
            // Of a psched that counts its commits no node needs that.
            Action::Distrust(_) => {}
            Action::Foreign(foreign) => {
                self.checks.warned(&foreign.why);
                if let Some((wire, _)) = proc.link.take() {
                    let own = self.wires.get(&wire).map(|w| w.ends[1]);
                    if let Some(Who::PschedLink(_)) = own {
                        let why = &foreign.why;
                        self.checks.broken(format!("an apinit does not obey its psched: {why}"));
                    }
                    self.hang_up(wire, 0);
                    self.link_down(slot);
                    if let Some(proc) = &mut self.slots[slot].proc {
                        proc.own.push_back(Happening::Unlinked);
                    }
                }
            }
            Action::Remember(welcome) => self.slots[slot].welcome = Some(welcome),
            Action::RememberCommits(commits) => {
                if let Some(welcome) = &mut self.slots[slot].welcome {
                    welcome.commits = commits;
                }
            }
            Action::VerifyPlaces { key, .. } => {
                proc.own.push_back(Happening::PlacesVerified(key, Ok(())));
            }
            Action::Yield { .. } => {}
            Action::KillGroups { key, shepherd } => {
                if self.killed_away(slot, key) {
                    return true;
                }
                let known = self.shepherd_of(slot, key).map(|s| s.0);
                self.kill_group(slot, key);
                if shepherd {
                    let of = |(pid, s): (&Pid, &super::shepherd::Shep)| {
                        (Some(*pid) == known || s.slot == slot && s.key == key).then_some(*pid)
                    };
                    let pids: Vec<Pid> = self.sheps.iter().filter_map(of).collect();
                    pids.into_iter().for_each(|pid| self.shepherd_gone(pid));
                }
            }
            Action::CheckGroupsEmpty(key) => {
                let life = self.slots[slot].life;
                if self.group_count(slot, key) == 0 {
                    self.tell_ran(slot, key);
                    let Some(proc) = &mut self.slots[slot].proc else { return false };
                    proc.own.push_back(Happening::GroupsEmpty(key));
                } else {
                    let begun = self.now;
                    self.after(100 * US, Ev::ApinitGroups { slot, life, key, begun });
                }
            }
            Action::Warn(key, text) => {
                self.note(|| format!("apinit {slot} warns of {key}: {text}"))
            }
            Action::Remove(key) => {
                proc.peers.retain(|(of, _), _| *of != key);
                let app = proc.apps.remove(&key);
                self.close_ends(
                    |who| matches!(who, Who::ApinitPeer(s, k, ..) if s == slot && k == key),
                );
                if let Some(app) = app {
                    if let Some(directory) = self.slots[slot].apps.get_mut(&key) {
                        directory.place = None;
                    }
                    if !self.survives(slot) {
                        return false;
                    }
                    if let Some((_, wire)) = app.shepherd {
                        self.send(wire, 0, Msg::ToShepherd(ToShepherd::Release));
                    }
                    let life = self.slots[slot].life;
                    self.after(MS, Ev::ApinitRemoved { slot, life, key });
                }
            }
            Action::SetTimer(at) => {
                let number = self.number();
                let life = self.slots[slot].life;
                if let Some(proc) = &mut self.slots[slot].proc {
                    proc.timer = number;
                }
                if let Some(at) = at {
                    let at = self.hosts[host].true_time(self.now, at);
                    self.at(at, Ev::ApinitTimer(slot, life, number));
                }
            }
        }
        true
    }

    pub fn keep_place(&mut self, slot: usize, place: Box<PlaceCommand>) {
        if let Some(directory) = self.slots[slot].apps.get_mut(&place.key) {
            directory.place = Some(place);
        }
    }

    /// Journal, threads, placement, in the order of the shell; it may die between any two.
    fn rebind(
        &mut self,
        slot: usize,
        key: Key,
        parts: &[Rebind],
        place: Box<PlaceCommand>,
    ) -> bool {
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
        let Some(directory) = self.slots[slot].apps.get_mut(&key) else { return true };
        // Now and then the kernel refuses.
        let refused = self.faults.u32(0..8) == 0;
        if !refused {
            directory.journal = Some(Journal { place, bound });
        }
        if !self.survives(slot) {
            return false;
        }
        if !refused {
            self.finish_rebinding(slot, key);
        }
        let Some(proc) = &mut self.slots[slot].proc else { return false };
        let result = if refused { Err("the kernel says no".to_owned()) } else { Ok(()) };
        proc.own.push_back(Happening::Rebound(key, result));
        true
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

    /// Groups, directory, shepherd, in the order of the shell; it may die between any two.
    fn make(&mut self, slot: usize, place: PlaceCommand) -> bool {
        let key = place.key;
        self.slots[slot].apps.insert(key, Directory::default());
        if !self.survives(slot) {
            return false;
        }
        if let Some(directory) = self.slots[slot].apps.get_mut(&key) {
            directory.groups = true;
        }
        if !self.survives(slot) {
            return false;
        }
        if self.slots[slot].sick || self.mix.spawn && self.faults.u32(0..100) == 0 {
            let text = "can't start apshepherd: no process can be made just now".to_owned();
            self.checks.shepherd_killed(key.apid, &self.slots[slot].nids);
            self.counts.add("no process for a shepherd");
            if let Some(proc) = &mut self.slots[slot].proc {
                proc.apps.insert(key, App::default());
                proc.own.push_back(Happening::SpawnFailed { key, text });
            }
            return true;
        }
        if place.restart.is_some() {
            // Its shepherd comes with it.
            self.keep_place(slot, Box::new(place));
            let Some(proc) = &mut self.slots[slot].proc else { return false };
            proc.apps.insert(key, App::default());
            proc.own.push_back(Happening::ShepherdSpawned(key));
            return true;
        }
        let pid = self.shepherd_born(slot, key);
        if !self.survives(slot) {
            return false;
        }
        let host = self.slots[slot].host;
        let wire = self.plug(Who::ApinitShepherd(slot, key), Who::Shepherd(pid), host);
        self.shepherd_connected(pid, wire);
        self.greet(wire, key);
        if let Some(directory) = self.slots[slot].apps.get_mut(&key) {
            directory.shepherd = Some(pid);
        }
        if !self.survives(slot) {
            return false;
        }
        if let Some(directory) = self.slots[slot].apps.get_mut(&key) {
            directory.place = Some(Box::new(place));
        }
        let Some(proc) = &mut self.slots[slot].proc else { return false };
        proc.apps.insert(key, App { shepherd: Some((pid, wire)), ..App::default() });
        proc.own.push_back(Happening::ShepherdSpawned(key));
        true
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
            0 => {
                self.tell_ran(slot, key);
                self.apinit_happens(slot, Happening::GroupsEmpty(key));
            }
            processes if self.now - begun > SECOND => {
                self.apinit_happens(slot, Happening::GroupsStuck { key, processes, named: vec![] });
            }
            _ => self.after(5 * MS, Ev::ApinitGroups { slot, life, key, begun }),
        }
    }

    /// Its shepherd is waited for, then directory and groups go.
    pub fn apinit_removed(&mut self, slot: usize, life: u64, key: Key) {
        let at = &self.slots[slot];
        if at.life != life || at.proc.is_none() {
            return;
        }
        let there = at.apps.get(&key).and_then(|d| d.shepherd);
        if there.is_some_and(|pid| self.sheps.contains_key(&pid)) {
            return self.after(20 * MS, Ev::ApinitRemoved { slot, life, key });
        }
        if self.slots[slot].apps.get(&key).is_some_and(|d| d.place.is_none()) {
            self.slots[slot].apps.remove(&key);
        }
        if self.group_count(slot, key) == 0 {
            self.groups.remove(&(slot, key));
            self.frozen.remove(&(slot, key));
        } else {
            self.after(20 * MS, Ev::ApinitRemoved { slot, life, key });
        }
    }

    /// Its timer has rung.
    pub fn apinit_timer(&mut self, slot: usize, life: u64, timer: u64) {
        if let Some(pause) = self.paused_until(Who::ApinitLink(slot)) {
            return self.at(pause, Ev::ApinitTimer(slot, life, timer));
        }
        let own = |p: &Apinit| p.timer == timer;
        if self.slots[slot].life == life && self.slots[slot].proc.as_deref().is_some_and(own) {
            self.apinit_happens(slot, Happening::Tick);
        }
    }

    // ---- psched ----

    fn tell_psched(&mut self, slot: usize, msg: Msg) {
        if let Some((wire, true)) = self.slots[slot].proc.as_ref().and_then(|p| p.link) {
            self.send(wire, 0, msg);
        }
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
        let (store, epoch) = proc.agent.store();
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
            ..Hello::default()
        };
        let host = at.host;
        // One that has obeyed none yet would obey any.
        let wrong = self.mix.stores && !self.ending && !hello.store_id.is_empty();
        let target = match (wrong && self.faults.u32(0..4) == 0, self.reaches_copy(slot)) {
            (true, _) => {
                self.counts.add("stores");
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

    fn link_down(&mut self, slot: usize) {
        self.disturbed(slot);
        let life = self.slots[slot].life;
        let Some(proc) = &mut self.slots[slot].proc else { return };
        proc.link = None;
        let wait = proc.back_off;
        proc.back_off = (wait * 2).min(SECOND);
        self.after(wait, Ev::ApinitDial(slot, life));
    }

    /// psched says something.
    pub fn apinit_link_says(&mut self, wire: WireId, slot: usize, msg: Msg) {
        let Some(proc) = &mut self.slots[slot].proc else { return };
        let Some((_, welcomed)) = proc.link.filter(|l| l.0 == wire) else { return };
        match msg {
            Msg::Welcome(welcome) => {
                proc.link = Some((wire, true));
                proc.back_off = 20 * MS;
                self.welcomed(slot, welcome.mono_ns);
                self.apinit_happens(slot, Happening::Linked(welcome));
                self.tell_peaks(slot, true);
                self.apinit_settles(slot);
            }
            Msg::Command(seq, commits, command) => {
                if commits > 0 {
                    self.apinit_happens(slot, Happening::Counted(commits));
                }
                if self.slots[slot].proc.as_ref().is_none_or(|p| p.link.is_none_or(|l| l.0 != wire))
                {
                    return;
                }
                self.apinit_happens(slot, Happening::Command(seq, *command));
            }
            Msg::LinkRefused(text) => {
                self.checks.warned(&text);
                self.hang_up(wire, 0);
                self.link_down(slot);
            }
            Msg::Eof => {
                self.link_down(slot);
                if welcomed {
                    self.apinit_happens(slot, Happening::Unlinked);
                }
            }
            _ => {}
        }
    }

    // ---- front ends, and heads ----

    /// Somebody has connected to its socket.
    pub fn apinit_front_opened(
        &mut self,
        wire: WireId,
        slot: usize,
        front: Option<Pid>,
        uid: u32,
    ) -> Option<Who> {
        self.slots[slot].proc.as_ref()?;
        let conn = Conn(self.number());
        // The kernel of another host tells nothing of a front end's death.
        let here = front.filter(|_| self.slots[slot].host == 0);
        let watched = here.is_some() || front.is_none();
        if let Some(proc) = &mut self.slots[slot].proc {
            proc.fronts.insert(conn, Front { wire: Some(wire), process: here });
        }
        if let Some(wire) = self.wires.get_mut(&wire) {
            wire.ends[1] = Who::ApinitFront(slot, conn);
        }
        let opened = Happening::AttachOpened { conn, uid, trusted: front.is_none(), watched };
        self.apinit_happens(slot, opened);
        if here.is_some_and(|pid| !self.fronts.contains_key(&pid)) {
            let life = self.slots[slot].life;
            self.after(US, Ev::ApinitFrontDied(slot, life, conn));
        }
        Some(Who::ApinitFront(slot, conn)).filter(|_| self.slots[slot].proc.is_some())
    }

    /// A front end, or a head, says something.
    pub fn apinit_front_says(&mut self, slot: usize, conn: Conn, msg: Msg) {
        let Some(proc) = &mut self.slots[slot].proc else { return };
        match msg {
            Msg::ToApinit(message) => {
                self.apinit_happens(slot, Happening::AttachMessage(conn, *message));
            }
            Msg::Eof => {
                if let Some(front) = proc.fronts.get_mut(&conn) {
                    front.wire = None;
                }
                self.apinit_happens(slot, Happening::AttachClosed(conn));
            }
            _ => {}
        }
    }

    /// The process behind a stream is dead.
    pub fn apinit_front_died(&mut self, slot: usize, life: u64, conn: Conn) {
        if let Some(pause) = self.paused_until(Who::ApinitLink(slot)) {
            return self.at(pause, Ev::ApinitFrontDied(slot, life, conn));
        }
        let at = &self.slots[slot];
        if at.life == life && at.proc.as_ref().is_some_and(|p| p.fronts.contains_key(&conn)) {
            self.apinit_happens(slot, Happening::FrontDied(conn));
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
        let Some(proc) = &mut self.slots[slot].proc else { return };
        if proc.peers.get(&(key, index)).is_none_or(|p| p.0 != generation) {
            return;
        }
        match msg {
            Msg::FromApinit(message) => {
                self.apinit_happens(slot, Happening::PeerMessage(key, index, message));
            }
            Msg::Eof => {
                proc.peers.remove(&(key, index));
                let text = "it has closed the stream".to_owned();
                self.apinit_happens(slot, Happening::PeerLost { key, index, text });
            }
            _ => {}
        }
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
                self.apinit_happens(slot, Happening::ShepherdMessage(key, *message));
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
        if self.slots[slot].life == life {
            self.apinit_happens(slot, Happening::ShepherdLost { key, text });
        }
    }

    /// What is left on an apinit's host when all is over: nothing, it is to be hoped.
    pub fn left_over(&self, slot: usize) -> Vec<String> {
        let at = &self.slots[slot];
        let mut left: Vec<String> =
            at.apps.keys().map(|key| format!("the runtime directory of {key}")).collect();
        let held = at.proc.as_ref().map_or((0, 0), |p| p.agent.held());
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
