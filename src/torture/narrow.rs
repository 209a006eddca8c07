//! Connections that are narrow for a time, and hosts that are full.
//!
//! In the class `narrow` of faults the connections between two hosts have 100 kbit/s for a time: a
//! message waits until those before it have left. When the time is over, all messages that wait
//! leave at once. What other classes leave to chance, that nothing comes on a link any more, is
//! found out here by heartbeats too, as apinit and psched count them ([`Silence`]), and they wait
//! behind what is large.
//!
//! A head keeps few bytes for another host: beyond them the stream breaks, as `room` of
//! [`open_peer`](crate::apinit::drive::Outside::open_peer) has it, and what waited on it is lost.

use super::SECOND;
use super::wire::{Msg, Pid, Who, WireId};
use super::world::{Ev, World};
use crate::apinit::decide::Event;
use crate::apteam::Key;
use crate::apteam::protocol::attach::{FromApinit, ToApinit};
use crate::apteam::protocol::node::{Command, Report};
use crate::apteam::protocol::peers::{FromPeer, ToPeer};
use crate::apteam::silence::Silence;
use crate::psched::decide::{Event as PschedEvent, LinkId};
use fastrand::Rng;
use std::collections::BTreeMap;

/// 100 kbit/s, in bytes a second.
const RATE: u64 = 12_500;
/// Messages here are as much smaller than real ones as this part of the room for another host.
const ROOM_PART: u64 = 1 << 16;
/// The same for the room for output.
const OUTPUT_PART: u64 = 64;
/// Of so many messages to a host that has not read all before them, one finds it full.
const FULL_ONE_IN: u32 = 12;
/// Bytes of a message beside what it carries.
const ENVELOPE: u64 = 80;
/// Bytes of a launch: arguments and environment.
const LAUNCH: u64 = 1_500;

/// All of it.
#[derive(Debug)]
pub struct Narrow {
    pub on: bool,
    chance: Rng,
    /// Until when connections between two hosts are narrow, the lower number first.
    until: BTreeMap<(usize, usize), u64>,
}

/// The heartbeats that psched counts on a link.
#[derive(Debug)]
pub struct Beats {
    silence: Silence,
    heard_ns: u64,
    wire: WireId,
}

/// Bytes of a message, about.
pub fn size_of(msg: &Msg) -> u64 {
    let carries = match msg {
        Msg::Open(_) | Msg::Eof | Msg::NotThere => return 0,
        Msg::FromApinit(FromApinit::Output(output)) => OUTPUT_PART * output.data.len() as u64,
        Msg::FromPeer(message) => of_peer(message),
        Msg::ToPeer(message) => to_peer(message),
        Msg::ToApinit(message) if matches!(**message, ToApinit::Launch { .. }) => LAUNCH,
        Msg::Inventory(items) => 40 * items.len() as u64,
        Msg::Report(report) => match &**report {
            Report::Switches(told) => 70 * told.switches.len() as u64,
            _ => 0,
        },
        Msg::Command(.., command) => match &**command {
            Command::Place(place) => 40 * place.places.0.len() as u64,
            Command::Plan(plan) => 40 * plan.slices.len() as u64,
            _ => 0,
        },
        _ => 0,
    };
    ENVELOPE + carries
}

fn of_peer(message: &FromPeer) -> u64 {
    match message {
        FromPeer::Output(output) => OUTPUT_PART * output.data.len() as u64,
        FromPeer::Beyond(beyond) => of_peer(&beyond.message),
        _ => 0,
    }
}

fn to_peer(message: &ToPeer) -> u64 {
    match message {
        ToPeer::Launch { .. } => LAUNCH,
        ToPeer::Pass(pass) => to_peer(&pass.message),
        _ => 0,
    }
}

impl Narrow {
    pub fn new(seed: u64, on: bool) -> Narrow {
        Narrow { on, chance: Rng::with_seed(seed ^ 0x0a44_0bed), until: BTreeMap::new() }
    }
}

/// How long a message takes to leave on a narrow connection.
pub fn time_to_leave(msg: &Msg) -> u64 {
    size_of(msg) * SECOND / RATE
}

/// Two hosts, whichever of them has dialled.
fn between(hosts: [usize; 2]) -> (usize, usize) {
    (hosts[0].min(hosts[1]), hosts[0].max(hosts[1]))
}

impl World {
    /// What goes between two hosts is narrow for a time.
    pub fn narrow_some(&mut self) {
        let (a, b) =
            (self.faults.usize(0..self.hosts.len()), self.faults.usize(0..self.hosts.len()));
        let until = self.now + self.faults.u64(SECOND..40 * SECOND);
        if a == b {
            return;
        }
        self.counts.add("narrow");
        self.narrow_until(a, b, until);
        // Ends that heard nothing for too long have closed their connections by then, and open
        // others.
        let late = until + super::logins::UNHEARD;
        self.disturbed_until(late);
        for host in [a, b] {
            self.checks.host_is_disturbed(host, late);
        }
    }

    /// What goes between these hosts is narrow until then, or for longer if it already is.
    pub fn narrow_until(&mut self, a: usize, b: usize, until: u64) {
        let known = self.narrow.until.entry(between([a, b])).or_default();
        *known = until.max(*known);
        self.at(until, Ev::Wide(a, b));
    }

    /// Whether what goes between these hosts is narrow now.
    pub fn is_narrow(&self, hosts: [usize; 2]) -> bool {
        self.narrow.until.get(&between(hosts)).is_some_and(|until| *until > self.now)
    }

    /// Two hosts have their full bandwidth again, unless it has become narrow for longer.
    pub fn wide_again(&mut self, a: usize, b: usize) {
        if self.is_narrow([a, b]) {
            return;
        }
        self.narrow.until.remove(&between([a, b]));
        let own = |hosts: [usize; 2]| between(hosts) == between([a, b]);
        let ids: Vec<WireId> =
            self.wires.iter().filter(|(_, wire)| own(wire.hosts)).map(|(id, _)| *id).collect();
        ids.into_iter().for_each(|id| self.all_leave(id));
    }

    /// All connections are as wide as ever.
    pub fn narrow_is_over(&mut self) {
        for ((a, b), _) in std::mem::take(&mut self.narrow.until) {
            self.wide_again(a, b);
        }
    }

    /// Nothing waits for bandwidth where there is enough.
    pub fn look_at_narrow(&mut self) {
        // (At this very moment a connection may become wide.)
        let wide = |hosts| self.narrow.until.get(&between(hosts)).is_none_or(|at| *at < self.now);
        let waits = self.wires.values().find(|wire| wire.has_leaving() && wide(wire.hosts));
        if let Some(hosts) = waits.map(|wire| wire.hosts) {
            let text = format!("messages between hosts {hosts:?} wait, though nothing is narrow");
            self.checks.broken(text);
        }
    }

    // ---- a peer that is full ----

    /// Tells another host, unless more waits for it than may: then the stream breaks, and what waits is lost.
    pub fn tell_peer_with_room(&mut self, slot: usize, key: Key, index: u32, message: ToPeer) {
        let Some(proc) = &self.slots[slot].proc else { return };
        let Some(wire) = proc.peers.get(&(key, index)).copied() else { return };
        let room = proc.rooms.get(&(key, index)).copied();
        let message = Msg::ToPeer(Box::new(message));
        let waiting = self.wires.get(&wire).map_or(0, |wire| wire.waiting[1]);
        // (Other applications' streams to that host may have filled what it takes unread.)
        let others = self.narrow.on && waiting > 0 && self.narrow.chance.u32(0..FULL_ONE_IN) == 0;
        let full =
            |(_, room): &(u64, u64)| others || waiting + size_of(&message) > *room / ROOM_PART;
        let Some((generation, _)) = room.filter(|_| self.narrow.on).filter(full) else {
            return self.send(wire, 0, message);
        };
        self.counts.add("full peers");
        self.note(|| format!("apinit {slot}: the stream to host {index} of {key} is full"));
        if let Some(proc) = &mut self.slots[slot].proc {
            proc.peers.remove(&(key, index));
        }
        self.cut_off_at_once(wire);
        let text = "it does not read its messages".to_owned();
        self.apinit_hears(
            slot,
            crate::apinit::drive::Heard::PeerLost(key, index, generation, text),
        );
    }

    /// The side that has dialled closes a connection. All that is on its way is lost.
    fn cut_off_at_once(&mut self, id: WireId) {
        let Some(wire) = self.wires.get_mut(&id) else { return };
        wire.ends[0] = Who::Nobody;
        wire.lost = [true; 2];
        (0..2).for_each(|side| wire.drop_messages(side));
        let late = self.net.u64(super::MS..20 * super::MS);
        self.after(late, Ev::Lost(id, 1));
    }

    // ---- heartbeats ----

    /// psched has welcomed an apinit on this wire: it says from now on that it is there.
    pub fn beats_begin(&mut self, slot: usize, wire: WireId) {
        if !self.narrow.on {
            return;
        }
        let silence = Silence::new(self.settings.host_bounds.silence);
        let life = self.slots[slot].life;
        if let Some(proc) = &mut self.slots[slot].proc {
            proc.silence = Some((silence, wire));
            self.after(0, Ev::Beat(slot, life, wire));
        }
    }

    /// Something has come from psched.
    pub fn psched_is_heard(&mut self, slot: usize, wire: WireId) {
        let proc = self.slots[slot].proc.as_mut();
        if let Some((silence, _)) =
            proc.and_then(|proc| proc.silence.as_mut()).filter(|(_, of)| *of == wire)
        {
            silence.heard();
        }
    }

    /// It is time for a heartbeat.
    pub fn beat(&mut self, slot: usize, life: u64, wire: WireId) {
        if let Some(pause) = self.paused_until(Who::ApinitLink(slot)) {
            return self.at(pause, Ev::Beat(slot, life, wire));
        }
        let own = self.slots[slot].life == life;
        let Some(proc) = self.slots[slot].proc.as_mut().filter(|_| own) else { return };
        if proc.link.is_none_or(|link| link.0 != wire) {
            return;
        }
        let Some((silence, _)) = proc.silence.as_mut().filter(|(_, of)| *of == wire) else {
            return;
        };
        if silence.is_over() {
            self.counts.add("silent psched");
            self.check_silence(wire);
            self.hang_up(wire, 0);
            self.link_down(slot);
            return self.apinit_happens(slot, Event::Unlinked);
        }
        silence.beat();
        let every = silence.every().as_nanos() as u64;
        self.send(wire, 0, Msg::Beat);
        self.after(every, Ev::Beat(slot, life, wire));
    }

    /// One end of a connection has heard nothing for too long: something stood in the way of the other end.
    fn check_silence(&mut self, id: WireId) {
        let silence = self.settings.host_bounds.silence.as_nanos() as u64;
        let since = self.now.saturating_sub(2 * silence);
        let Some(wire) = self.wires.get(&id) else { return };
        let (hosts, lost) = (wire.hosts, wire.lost != [false; 2]);
        if !lost && hosts.iter().all(|host| self.checks.is_undisturbed(*host, since)) {
            let text =
                format!("hosts {hosts:?} are silent to each other, and nothing is in the way");
            self.checks.broken(text);
        }
    }

    /// An apinit has connected: psched counts its heartbeats.
    pub fn beats_are_counted(&mut self, link: LinkId, wire: WireId) {
        if !self.narrow.on {
            return;
        }
        let silence = Silence::new(self.settings.host_bounds.silence);
        let (heard_ns, every) = (self.now, silence.every().as_nanos() as u64);
        self.around.beats.insert(link, Beats { silence, heard_ns, wire });
        let pid = self.around.pid;
        self.after(every, Ev::PschedBeat(pid, link));
    }

    /// An apinit says something.
    pub fn apinit_is_heard(&mut self, link: LinkId) {
        if let Some(beats) = self.around.beats.get_mut(&link) {
            beats.heard_ns = self.now;
            beats.silence.heard();
        }
    }

    /// A heartbeat of an apinit should have come.
    pub fn psched_beat(&mut self, pid: Pid, link: LinkId) {
        if let Some(pause) = self.paused_until(Who::PschedLink(link)) {
            return self.at(pause, Ev::PschedBeat(pid, link));
        }
        if self.around.pid != pid {
            return;
        }
        let Some(beats) = self.around.beats.get_mut(&link) else { return };
        let every = beats.silence.every().as_nanos() as u64;
        let due = beats.heard_ns + every;
        if due > self.now {
            return self.at(due, Ev::PschedBeat(pid, link));
        }
        beats.silence.beat();
        if !beats.silence.is_over() {
            return self.after(every, Ev::PschedBeat(pid, link));
        }
        let wire = beats.wire;
        self.counts.add("silent apinits");
        self.check_silence(wire);
        self.around.beats.remove(&link);
        self.around.clocks.remove(&link);
        self.hang_up(wire, 1);
        self.psched_event(PschedEvent::LinkClosed { link });
    }
}

#[cfg(test)]
mod tests {
    use super::super::play::{Play, plan};
    use super::super::program::Step;
    use super::*;
    use crate::apteam::ending::PeEnd;

    /// Output that would take minutes at 100 kbit/s, and that is narrow for 20 seconds.
    #[test]
    fn what_has_waited_leaves_as_soon_as_a_connection_is_wide() {
        let mut play = Play::new(&[&[2], &[2]], 0).expect("it comes up");
        play.world.narrow.on = true;
        let steps = vec![Step::Work(5 * SECOND), Step::Say(20_000), Step::End(PeEnd::Exit(0))];
        let aprun = play.posts(1001, 4, plan(steps));
        play.until("it runs", |w| w.runs(aprun) == 4).expect("so");
        let begun = play.world.now;
        play.world.narrow_until(1, 2, begun + 10 * SECOND);
        play.world.narrow_until(2, 1, begun + 20 * SECOND);
        play.world.narrow_until(1, 2, begun + 15 * SECOND);
        let waits = |w: &World| w.exit_of(aprun).is_none();
        play.throughout(19 * SECOND, "its output waits", waits).expect("so");
        assert!(play.world.wires.values().any(|wire| wire.has_leaving()));
        play.pass(2 * SECOND);
        assert_eq!(play.world.exit_of(aprun), Some(0));
        assert_eq!(play.world.checks.violation(), None);
    }
}
