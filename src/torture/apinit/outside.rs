//! What is around an apinit's driver in the cluster. It may be killed before each call that changes something.

use super::{App, Directory, Slot};
use crate::apinit::decide::switcher::{Event as TurnEvent, Ran};
use crate::apinit::decide::{Action, Agent, Conn, Event};
use crate::apinit::drive::{Heard, Outside, Record, Said, Work};
use crate::apteam::place::HostAddress;
use crate::apteam::protocol::attach::FromApinit;
use crate::apteam::protocol::node::{PlaceCommand, Welcome};
use crate::apteam::protocol::peers::{FromPeer, ToPeer};
use crate::apteam::protocol::programs::WantedProgram;
use crate::apteam::protocol::shepherd::ToShepherd;
use crate::apteam::protocol::turns::Switches;
use crate::apteam::{Key, Ticket};
use crate::machine::Nid;
use crate::torture::wire::{Msg, Target, Who, WireId};
use crate::torture::world::{Ev, World};
use crate::torture::{MS, US, trace};
use std::time::Duration;

/// The world around one apinit.
pub struct At<'w> {
    world: &'w mut World,
    slot: usize,
    life: u64,
}

impl At<'_> {
    pub fn new(world: &mut World, slot: usize) -> At<'_> {
        let life = world.slots[slot].life;
        At { world, slot, life }
    }

    /// It is alive, and stays so until the next call.
    fn steps(&mut self) -> bool {
        self.world.slots[self.slot].life == self.life && self.world.survives(self.slot)
    }

    /// Tells a front end or a head. All of them here do as they should: none is to have more than
    /// its room.
    fn tell_reader(&mut self, wire: WireId, message: Msg, room: u64, whom: &str) -> bool {
        if !self.world.overflows(wire, 0, &message, room) {
            self.world.send(wire, 1, message);
            return true;
        }
        let text = format!("apinit {}: more than {room} bytes wait for {whom}", self.slot);
        self.world.checks.broken(text);
        self.world.hang_up(wire, 1);
        false
    }

    fn app(&mut self, key: Key) -> Option<&mut App> {
        self.world.slots[self.slot].proc.as_mut()?.apps.get_mut(&key)
    }

    fn directory(&mut self, key: Key) -> Option<&mut Directory> {
        self.world.slots[self.slot].apps.get_mut(&key)
    }
}

impl Outside for At<'_> {
    fn now_ns(&self) -> u64 {
        self.world.mono(self.world.slots[self.slot].host)
    }

    fn happened(&mut self) -> Vec<Heard> {
        let proc = self.world.slots[self.slot].proc.as_mut();
        proc.map(|proc| std::mem::take(&mut proc.happened)).unwrap_or_default()
    }

    fn hears(&mut self, event: &Event) {
        let slot = self.slot;
        self.world.note(|| format!("apinit {slot}: {}", trace::cut(event)));
    }

    fn does(&mut self, agent: &Agent, action: &Action) {
        let slot = self.slot;
        self.world.note(|| format!("apinit {slot} does {}", trace::cut(action)));
        let ((apps, streams), bounds) = (agent.held(), agent.bounds());
        let checks = &mut self.world.checks;
        checks.bound("applications of an apinit", apps, bounds.applications as usize);
        checks.bound("streams of an apinit", streams, bounds.connections as usize);
    }

    // ---- records ----

    fn keep(&mut self, record: Record) -> Result<(), String> {
        if !self.steps() {
            return Ok(());
        }
        let slot = self.slot;
        match record {
            Record::Commits(commits) => {
                if let Some(welcome) = &mut self.world.slots[slot].welcome {
                    welcome.commits = commits;
                }
            }
            // Of a psched that counts its commits no node needs that.
            Record::Distrusted(_) => {}
            Record::Plans(plans) => self.world.slots[slot].plans = plans,
            Record::Groups { key, .. } => {
                if let Some(directory) = self.directory(key) {
                    directory.groups = true;
                }
            }
            Record::Shepherd(key) => {
                let shepherd = self.world.shepherd_of(slot, key).map(|(pid, _)| pid);
                if let Some(directory) = self.directory(key) {
                    directory.shepherd = shepherd;
                }
            }
            Record::Place(place) => self.world.keep_place(slot, place),
            Record::NoPlace(key) => {
                if let Some(directory) = self.directory(key) {
                    directory.place = None;
                }
            }
            Record::Front(key, conn) => {
                let fronts = self.world.slots[slot].proc.as_ref().map(|proc| &proc.fronts);
                let process = fronts.and_then(|fronts| fronts.get(&conn)?.process);
                if let Some((process, directory)) = process.zip(self.directory(key)) {
                    directory.front = Some(process);
                }
            }
            Record::Gone(key) => {
                if let Some(directory) = self.directory(key) {
                    directory.gone = true;
                }
            }
            Record::Adopted(key) => {
                if let Some(directory) = self.directory(key) {
                    directory.adopted = true;
                }
            }
            Record::Going(key, at) => {
                if let Some(directory) = self.directory(key) {
                    directory.going = Some(at);
                }
                self.world.checkpoint_soon(key);
            }
            Record::Ran(key, ran_ns, at_ns) => {
                if let Some(directory) = self.directory(key) {
                    directory.ran = Some((ran_ns, at_ns));
                }
            }
        }
        Ok(())
    }

    fn obey(&mut self, _agent: &Agent, welcome: Welcome) {
        if self.steps() {
            self.world.slots[self.slot].welcome = Some(welcome);
        }
    }

    // ---- an application ----

    fn make_folder(&mut self, _: &Agent, place: &PlaceCommand, _: &[Nid]) -> Result<(), String> {
        if self.steps() {
            let at = &mut self.world.slots[self.slot];
            at.apps.insert(place.key, Directory::default());
            at.proc.iter_mut().for_each(|proc| {
                proc.apps.insert(place.key, App::default());
            });
        }
        Ok(())
    }

    fn make_groups(&mut self, _: &Agent, place: &PlaceCommand, _: &[Nid]) -> Result<(), String> {
        if !self.steps() {
            return Ok(());
        }
        let (world, slot) = (&mut *self.world, self.slot);
        let spawn = world.mix.spawn && world.faults.u32(0..100) == 0;
        world.groups.entry((slot, place.key)).or_default();
        if !world.slots[slot].sick && !spawn {
            return Ok(());
        }
        world.checks.shepherd_killed(place.key.apid, &world.slots[slot].nids);
        world.counts.add("no process for a shepherd");
        Err("can't start apshepherd: no process can be made just now".to_owned())
    }

    fn start_shepherd(&mut self, place: &PlaceCommand) -> Result<(), String> {
        let (slot, key) = (self.slot, place.key);
        if !self.steps() {
            return Ok(());
        }
        let pid = self.world.shepherd_born(slot, key);
        if !self.steps() {
            return Ok(());
        }
        let host = self.world.slots[slot].host;
        let wire = self.world.plug(Who::ApinitShepherd(slot, key), Who::Shepherd(pid), host);
        self.world.shepherd_connected(pid, wire);
        self.world.greet(wire, key);
        if let Some(app) = self.app(key) {
            app.shepherd = Some((pid, wire));
        }
        Ok(())
    }

    fn verify_places(&mut self, _: Key, _: &[(Nid, u32)]) -> Option<Result<(), String>> {
        Some(Ok(()))
    }

    fn yields(&mut self, _: Key, _: &[Nid], _: u32) {}

    fn kill(&mut self, key: Key, shepherd: bool) {
        if !self.steps() {
            return;
        }
        if self.app(key).is_some_and(|app| app.returning.is_some()) {
            self.drop_images(key);
        }
        let (world, slot) = (&mut *self.world, self.slot);
        let known = world.shepherd_of(slot, key).map(|(pid, _)| pid);
        world.kill_group(slot, key);
        if shepherd {
            let all = known.into_iter().chain(world.shepherds_here(slot, key));
            all.for_each(|pid| world.shepherd_gone(pid));
        }
    }

    fn drop_images(&mut self, key: Key) {
        if self.steps()
            && let Some(directory) = self.directory(key)
        {
            directory.away = None;
        }
    }

    fn is_empty(&self, key: Key) -> bool {
        self.world.group_count(self.slot, key) == 0
    }

    fn used(&self, _: Key) -> Option<(Duration, Duration)> {
        None
    }

    fn begin(&mut self, _agent: &Agent, work: Work) {
        if !self.steps() {
            return;
        }
        let (world, slot, life) = (&mut *self.world, self.slot, self.life);
        match work {
            Work::Empties(key) => {
                let begun = world.now;
                world.after(100 * US, Ev::ApinitGroups { slot, life, key, begun });
            }
            Work::Rebind { key, parts, place } => world.rebind(slot, key, &parts, place),
            Work::Restore { place, cpus } => world.restore(slot, place, cpus),
            Work::Dump { key, number, output_received, .. } => {
                world.dump(slot, key, number, output_received);
            }
            Work::TakeOut(key) => world.take_out(slot, key),
            Work::BringBack { place, cpus } => world.bring_back(slot, place, cpus),
            Work::FindShepherd(key) => world.find_again(slot, key),
            Work::Remove(key) => {
                let proc = world.slots[slot].proc.as_mut();
                let app = proc.and_then(|proc| {
                    proc.copies.remove(&key);
                    proc.apps.remove(&key)
                });
                if app.is_some() {
                    world.after(MS, Ev::ApinitRemoved { slot, life, key });
                }
            }
        }
    }

    // ---- connections ----

    fn tell_shepherd(&mut self, key: Key, message: ToShepherd) -> bool {
        let hears = self.app(key).filter(|app| !app.hung_up).and_then(|app| app.shepherd);
        if let Some((_, wire)) = hears.filter(|_| self.steps()) {
            self.world.send(wire, 0, Msg::ToShepherd(message));
        }
        true
    }

    fn hang_up_shepherd(&mut self, key: Key) -> bool {
        if !self.steps() {
            return true;
        }
        let Some(app) = self.app(key).filter(|app| app.shepherd.is_some()) else { return false };
        app.hung_up = true;
        self.world.hangs_up(self.slot, key);
        true
    }

    fn fate(&mut self, _: Key, text: String) -> String {
        text
    }

    fn tell_front(&mut self, conn: Conn, message: FromApinit, room: u64) -> bool {
        if !self.steps() {
            return true;
        }
        let fronts = self.world.slots[self.slot].proc.as_ref().map(|proc| &proc.fronts);
        let wire = fronts.and_then(|fronts| fronts.get(&conn)?.wire);
        wire.is_none_or(|wire| {
            self.tell_reader(wire, Msg::FromApinit(message), room, "a front end")
        })
    }

    fn tell_head(&mut self, conn: Conn, message: FromPeer, room: u64) -> bool {
        if !self.steps() {
            return true;
        }
        let heads = self.world.slots[self.slot].proc.as_ref().map(|proc| &proc.heads);
        let wire = heads.and_then(|heads| *heads.get(&conn)?);
        wire.is_none_or(|wire| self.tell_reader(wire, Msg::FromPeer(message), room, "a head"))
    }

    fn close_stream(&mut self, conn: Conn) {
        if !self.steps() {
            return;
        }
        let Some(proc) = self.world.slots[self.slot].proc.as_mut() else { return };
        let front = proc.fronts.remove(&conn).and_then(|front| front.wire);
        if let Some(wire) = front.or(proc.heads.remove(&conn).flatten()) {
            self.world.hang_up(wire, 1);
        }
    }

    fn open_peer(&mut self, key: Key, index: u32, generation: u64, at: HostAddress, room: u64) {
        if !self.steps() {
            return;
        }
        let (world, slot) = (&mut *self.world, self.slot);
        let old = world.slots[slot].proc.as_mut().and_then(|p| p.peers.remove(&(key, index)));
        if let Some(wire) = old {
            world.hang_up(wire, 0);
        }
        let Some(other) = Slot::of_socket(&at.socket) else { return };
        let who = Who::ApinitPeer(slot, key, index, generation);
        let hosts = [world.slots[slot].host, world.slots[other].host];
        let wire = world.connect(who, hosts, Target::Peers { slot: other, uid: 0 });
        if let Some(proc) = &mut world.slots[slot].proc {
            proc.peers.insert((key, index), wire);
            proc.rooms.insert((key, index), (generation, room));
        }
    }

    fn tell_peer(&mut self, key: Key, index: u32, message: ToPeer) {
        if self.steps() {
            self.world.tell_peer_with_room(self.slot, key, index, message);
        }
    }

    fn close_peer(&mut self, key: Key, index: u32) {
        if !self.steps() {
            return;
        }
        let proc = self.world.slots[self.slot].proc.as_mut();
        let closed = proc.and_then(|proc| {
            proc.rooms.remove(&(key, index));
            proc.peers.remove(&(key, index))
        });
        if let Some(wire) = closed {
            self.world.hang_up(wire, 0);
        }
    }

    fn take_program(
        &mut self,
        key: Key,
        program: WantedProgram,
        from: Vec<HostAddress>,
        _: (u32, Ticket),
    ) {
        if self.steps() {
            self.world.take_program(self.slot, key, program, from);
        }
    }

    fn tell_psched(&mut self, said: Said) {
        if !self.steps() {
            return;
        }
        let slot = self.slot;
        match said {
            Said::Inventory(items, _) => self.world.tell_psched(slot, Msg::Inventory(items)),
            Said::Report(report) => self.world.tell_psched(slot, Msg::Report(report)),
            Said::Foreign(foreign) => self.world.is_not_obeyed(slot, &foreign.why),
        }
    }

    fn answer_dump(&mut self, number: u64, refused: Option<String>) {
        if self.steps() {
            match refused {
                Some(_) => self.world.dump_refused(number),
                None => self.world.ends_by_dump(number),
            }
        }
    }

    // ---- time ----

    fn set_timer(&mut self, at_ns: Option<u64>) {
        let (world, slot, life) = (&mut *self.world, self.slot, self.life);
        let (number, host) = (world.number(), world.slots[slot].host);
        let Some(proc) = &mut world.slots[slot].proc else { return };
        proc.timer = number;
        if let Some(at) = at_ns {
            let at = world.hosts[host].true_time(world.now, at);
            world.at(at, Ev::ApinitTimer(slot, life, number));
        }
    }

    fn turns(&mut self, event: TurnEvent) {
        if self.steps() {
            self.world.tell_switcher(self.slot, event);
        }
    }

    fn is_away(&mut self, key: Key) {
        if let Some(proc) = &mut self.world.slots[self.slot].proc {
            proc.away.insert(key);
        }
    }

    fn ran(&self, key: Key) -> Option<Ran> {
        self.world.slots[self.slot].proc.as_ref()?.switcher.ran(key)
    }

    fn had(&mut self, all: bool) -> Option<Switches> {
        self.world.peaks(self.slot, all)
    }

    fn warn(&mut self, key: Key, text: &str) {
        let slot = self.slot;
        self.world.note(|| format!("apinit {slot} warns of {key}: {text}"));
    }
}
