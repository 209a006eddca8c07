//! Connections, as TCP and unix streams really are: in order, until they break.
//!
//! A wire has two ends, each of a process, and a queue in each direction. What is sent arrives later,
//! in order. A process that ends closes its ends: what it had sent still arrives, then the end. When
//! the network breaks a wire, what was under way is lost on either side, and each side hears of it
//! in its own time. A wire that is cut in one direction swallows what is said there, and nobody is
//! told before silence has lasted too long.

use super::logins::BACK;
use super::narrow::{size_of, time_to_leave};
use super::world::{Ev, World};
use super::{MS, SECOND, US};
use crate::apinit::decide::Conn;
use crate::apinit::decide::clock::Exchange;
use crate::apinit::decide::login::ProcessId;
use crate::aprun::decide::session::{Ask, Looked, PschedEvent};
use crate::apteam::protocol::attach::{FromApinit, ToApinit};
use crate::apteam::protocol::node::{ClockTold, Command, Hello, Phase, Report, Welcome};
use crate::apteam::protocol::peers::{FromPeer, ToPeer};
use crate::apteam::protocol::shepherd::{FromShepherd, ToShepherd};
use crate::apteam::{Apid, Key};
use crate::psched::decide::LinkId;
use std::collections::VecDeque;

/// A process: no number is used twice.
pub type Pid = i32;

/// A wire's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WireId(pub u64);

/// What is said on a wire.
#[derive(Clone, Debug)]
pub enum Msg {
    /// Somebody has connected.
    Open(Target),
    /// Nobody listens there.
    NotThere,
    /// Nothing more comes.
    Eof,
    /// apinit to psched.
    Hello(Box<Hello>),
    Inventory(Vec<(Key, Phase)>),
    Report(Box<Report>),
    /// A heartbeat.
    Beat,
    /// A question about psched's clock, and what is known of that clock.
    ClockAsked(u64),
    Clock(ClockTold),
    /// psched to apinit.
    Welcome(Box<Welcome>),
    LinkRefused(String),
    /// Its number, and how many commits were durable when it left.
    Command(u64, u64, Box<Command>),
    /// psched's answer to a heartbeat, and about its clock.
    BeatAnswered,
    ClockAnswered(Exchange),
    /// A front end and an apinit.
    ToApinit(Box<ToApinit>),
    FromApinit(FromApinit),
    /// A head and another apinit.
    ToPeer(Box<ToPeer>),
    FromPeer(FromPeer),
    /// apinit and shepherd.
    ToShepherd(ToShepherd),
    FromShepherd(Box<FromShepherd>),
    /// psched answers on its socket.
    Up(Pid),
    /// A front end asks psched.
    Ask(Ask),
    Look(Apid),
    Kill(Apid, i32),
    /// psched answers.
    Event(Box<PschedEvent>),
    /// The call was refused: for good, or not.
    Refused(String, bool),
    Looked(Box<Looked>),
    Killed,
    /// The apinit of a login host to psched: its boot, and processes that have ended.
    LoginHello(String),
    LoginGone(Vec<ProcessId>),
    /// psched to that one: processes to watch, and one to signal.
    LoginWatched(Vec<ProcessId>),
    LoginNudge(ProcessId),
}

/// Who listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// psched, for an apinit.
    PschedLink,
    /// A psched that is not the machine's, for this apinit.
    WrongPsched(usize),
    /// One that was started on a copy of psched's store, by its number.
    Copy(u64),
    /// psched, for a front end.
    PschedFront(Pid),
    /// An apinit, for a front end of this process and user.
    Apinit { slot: usize, front: Pid, uid: u32 },
    /// An apinit, for a head that runs as this user.
    Peers { slot: usize, uid: u32 },
    /// psched, for the apinit of a login host.
    PschedLogin(usize),
    /// The apinit of a front end's host, which passes on to psched, or to an apinit of the host
    /// `to`.
    Relay { host: usize, to: usize, slot: Option<usize>, front: Pid, uid: u32 },
}

/// Whose end it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// Nobody's: not taken yet, or closed.
    Nobody,
    PschedLink(LinkId),
    PschedFront(Pid),
    WrongPsched(usize),
    Copy(LinkId),
    ApinitLink(usize),
    /// A front end's stream, or a head's.
    ApinitFront(usize, Conn),
    ApinitPeer(usize, Key, u32, u64),
    ApinitShepherd(usize, Key),
    Shepherd(Pid),
    FrontPsched(Pid),
    FrontApinit(Pid),
    /// The login link of a host, by its number at psched, and of a host.
    PschedLogin(u64),
    Login(usize),
    /// What an apinit passes on for a user.
    Relay(u64),
}

/// A connection.
#[derive(Debug)]
pub struct Wire {
    /// Whose ends: 0 has dialled.
    pub ends: [Who; 2],
    /// On which hosts.
    pub hosts: [usize; 2],
    /// To end 0, to end 1.
    pub to: [VecDeque<Msg>; 2],
    /// When the last of each queue arrives.
    last_ns: [u64; 2],
    /// What is said towards this end is lost.
    pub lost: [bool; 2],
    /// Bytes of output towards each end that it has not read.
    pub unread: [u64; 2],
    /// Bytes of all messages towards each end that it has not read, where connections may be
    /// narrow.
    pub waiting: [u64; 2],
    /// Messages that have not left yet, and when the first of them leaves.
    leaving: [VecDeque<Msg>; 2],
    leaves_ns: [u64; 2],
}

impl Wire {
    /// Drops the messages that are on their way to this end.
    pub fn drop_messages(&mut self, side: usize) {
        self.to[side].clear();
        self.leaving[side].clear();
    }

    /// How many messages are on their way to this end.
    pub fn on_the_way(&self, side: usize) -> usize {
        self.to[side].len() + self.leaving[side].len()
    }

    /// Messages wait for the bandwidth of the connection.
    pub fn has_leaving(&self) -> bool {
        self.leaving.iter().any(|queue| !queue.is_empty())
    }
}

/// Bytes of output in a message.
fn output_in(msg: &Msg) -> u64 {
    match msg {
        Msg::FromApinit(FromApinit::Output(output)) => output.data.len() as u64,
        Msg::FromPeer(message) => output_of_peer(message),
        _ => 0,
    }
}

fn output_of_peer(message: &FromPeer) -> u64 {
    match message {
        FromPeer::Output(output) => output.data.len() as u64,
        FromPeer::Beyond(beyond) => output_of_peer(&beyond.message),
        _ => 0,
    }
}

impl World {
    /// How long a message takes from one host to another.
    pub fn latency(&mut self, hosts: [usize; 2]) -> u64 {
        let own = if hosts[0] == hosts[1] { 20 * US..150 * US } else { 80 * US..900 * US };
        let base = self.net.u64(own) + self.clocks.way(hosts);
        if self.now < self.slow_until && hosts[0] != hosts[1] && self.net.u32(0..8) == 0 {
            return base + self.net.u64(MS..3 * SECOND);
        }
        base
    }

    /// A new wire from one host to another. The other end is nobody's until `Open` has come there.
    pub fn connect(&mut self, from: Who, hosts: [usize; 2], target: Target) -> WireId {
        self.next_wire += 1;
        let id = WireId(self.next_wire);
        let wire = Wire {
            ends: [from, Who::Nobody],
            hosts,
            to: [VecDeque::new(), VecDeque::new()],
            last_ns: [0; 2],
            lost: [self.is_cut(hosts[1], hosts[0]), self.is_cut(hosts[0], hosts[1])],
            unread: [0; 2],
            waiting: [0; 2],
            leaving: [VecDeque::new(), VecDeque::new()],
            leaves_ns: [0; 2],
        };
        if self.is_revoked(hosts) {
            return self.is_turned_away(id, wire);
        }
        let silent = wire.lost != [false; 2] || !self.hosts[hosts[1]].up;
        self.wires.insert(id, wire);
        if silent {
            // Nobody answers: the one who dials gives up after a while.
            let patience = self.net.u64(SECOND..5 * SECOND);
            self.at(self.now + patience, Ev::Lost(id, 0));
            if let Some(wire) = self.wires.get_mut(&id) {
                wire.lost = [true; 2];
            }
        }
        self.send(id, 0, Msg::Open(target));
        id
    }

    /// Which end is `who`'s.
    pub fn send(&mut self, id: WireId, from: usize, msg: Msg) {
        let to = 1 - from;
        let Some(hosts) = self.wires.get(&id).map(|w| w.hosts) else { return };
        let latency = self.latency([hosts[from], hosts[to]]);
        let narrow = self.is_narrow(hosts);
        let Some(wire) = self.wires.get_mut(&id) else { return };
        if wire.lost[to] {
            return;
        }
        wire.unread[to] += output_in(&msg);
        if self.narrow.on {
            wire.waiting[to] += size_of(&msg);
        }
        let first = wire.leaving[to].is_empty();
        if narrow || !first {
            wire.leaving[to].push_back(msg);
            self.bounds_of_wire(id, to);
            if first {
                self.begins_to_leave(id, to);
            }
            return;
        }
        self.message_leaves(id, to, msg, latency);
    }

    /// A message has left: it arrives after those before it.
    fn message_leaves(&mut self, id: WireId, to: usize, msg: Msg, latency: u64) {
        let now = self.now;
        let Some(wire) = self.wires.get_mut(&id) else { return };
        let at = (now + latency).max(wire.last_ns[to]);
        wire.last_ns[to] = at;
        wire.to[to].push_back(msg);
        self.bounds_of_wire(id, to);
        self.at(at, Ev::Arrive(id, to));
    }

    /// The first of the messages that have not left takes its time.
    fn begins_to_leave(&mut self, id: WireId, to: usize) {
        let now = self.now;
        let Some(wire) = self.wires.get_mut(&id) else { return };
        let Some(first) = wire.leaving[to].front() else { return };
        let at = now + time_to_leave(first);
        wire.leaves_ns[to] = at;
        self.at(at, Ev::Leaves(id, to));
    }

    /// The first message that has not left leaves, if it is time for it.
    pub fn first_leaves(&mut self, id: WireId, to: usize) {
        let now = self.now;
        let Some(wire) = self.wires.get_mut(&id).filter(|wire| wire.leaves_ns[to] <= now) else {
            return;
        };
        let hosts = wire.hosts;
        let Some(msg) = wire.leaving[to].pop_front() else { return };
        let latency = self.latency([hosts[1 - to], hosts[to]]);
        self.message_leaves(id, to, msg, latency);
        self.begins_to_leave(id, to);
    }

    /// What has waited for the bandwidth of a connection leaves at once.
    pub fn all_leave(&mut self, id: WireId) {
        for to in 0..2 {
            while let Some(wire) = self.wires.get_mut(&id) {
                let hosts = wire.hosts;
                let Some(msg) = wire.leaving[to].pop_front() else { break };
                let latency = self.latency([hosts[1 - to], hosts[to]]);
                self.message_leaves(id, to, msg, latency);
            }
        }
    }

    /// A process closes its end, or is dead: what it has sent arrives, then the end.
    pub fn hang_up(&mut self, id: WireId, side: usize) {
        let Some(wire) = self.wires.get_mut(&id) else { return };
        wire.ends[side] = Who::Nobody;
        wire.drop_messages(side);
        let host = wire.hosts[side];
        if self.hosts[host].up {
            self.send(id, side, Msg::Eof);
        } else {
            // A host that is gone says nothing, nor what has not left it.
            wire.leaving[1 - side].clear();
            let late = self.net.u64(SECOND..15 * SECOND);
            self.at(self.now + late, Ev::Lost(id, 1 - side));
        }
        self.drop_wire(id);
    }

    /// Forgets a wire that is nobody's.
    fn drop_wire(&mut self, id: WireId) {
        let none = |w: &Wire| w.ends == [Who::Nobody; 2] && w.on_the_way(1) == 0;
        if self.wires.get(&id).is_some_and(none) {
            self.wires.remove(&id);
        }
    }

    /// What goes from psched to an apinit on this wire may be lost.
    fn wire_disturbs(&mut self, id: WireId) {
        if let Some(Who::ApinitLink(slot)) = self.wires.get(&id).map(|wire| wire.ends[0]) {
            self.disturbed(slot);
        }
    }

    /// The network loses what is under way, and both sides hear of it, each in its time.
    pub fn break_wire(&mut self, id: WireId) {
        self.wire_disturbs(id);
        let Some(wire) = self.wires.get_mut(&id) else { return };
        for side in 0..2 {
            // What has just been sent may still have come through.
            if self.faults.bool() {
                wire.drop_messages(side);
                wire.lost[side] = true;
            }
        }
        let hosts = wire.hosts;
        for host in hosts {
            self.checks.host_is_disturbed(host, self.now + BACK);
        }
        let late = if hosts[0] == hosts[1] { 5 * MS } else { 2 * SECOND };
        for side in 0..2 {
            let at = self.now + MS + self.faults.u64(0..late);
            self.at(at, Ev::Lost(id, side));
        }
    }

    /// One direction swallows everything. Each side hangs up when it has heard nothing for too long.
    pub fn cut_wire(&mut self, id: WireId, to: usize) {
        self.wire_disturbs(id);
        let Some(wire) = self.wires.get_mut(&id) else { return };
        wire.lost[to] = true;
        wire.drop_messages(to);
        for side in 0..2 {
            let at = self.now + self.faults.u64(5 * SECOND..20 * SECOND);
            self.at(at, Ev::Lost(id, side));
        }
    }

    /// An end hears that its wire is no more.
    pub fn lost(&mut self, id: WireId, side: usize) {
        let Some(wire) = self.wires.get_mut(&id) else { return };
        wire.lost = [true; 2];
        (0..2).for_each(|side| wire.drop_messages(side));
        let who = std::mem::replace(&mut wire.ends[side], Who::Nobody);
        self.drop_wire(id);
        if let Who::Relay(number) = who {
            self.relay_breaks(number);
        }
        self.heard(id, side, who, Msg::Eof);
    }

    /// The next message in a queue has come.
    pub fn arrive(&mut self, id: WireId, side: usize) {
        let Some(wire) = self.wires.get_mut(&id) else { return };
        let Some(msg) = wire.to[side].pop_front() else { return };
        let who = wire.ends[side];
        if let Msg::Open(target) = msg {
            return self.opened(id, target);
        }
        if matches!(msg, Msg::Eof) {
            wire.ends[side] = Who::Nobody;
            wire.lost = [true; 2];
            (0..2).for_each(|side| wire.drop_messages(side));
        }
        self.drop_wire(id);
        self.heard(id, side, who, msg);
    }

    fn opened(&mut self, id: WireId, target: Target) {
        let who = match target {
            Target::PschedLink => self.psched_link_opened(id),
            Target::WrongPsched(slot) => Some(Who::WrongPsched(slot)),
            Target::Copy(number) => self.copy_opened(id, number),
            Target::PschedFront(pid) => self.psched_front_opened(id, pid),
            Target::Apinit { slot, front, uid } => self.apinit_front_opened(id, slot, front, uid),
            Target::Peers { slot, uid } => self.apinit_head_opened(id, slot, uid),
            Target::PschedLogin(host) => self.psched_login_opened(id, host),
            Target::Relay { .. } => self.relay_opened(id, target),
        };
        match (who, self.wires.get_mut(&id)) {
            (Some(who), Some(wire)) if wire.ends[0] != Who::Nobody || wire.on_the_way(1) > 0 => {
                wire.ends[1] = who;
                if let Who::PschedFront(_) = who
                    && let Some(pid) = self.psched.as_ref().map(|p| p.pid)
                {
                    self.send(id, 1, Msg::Up(pid));
                }
            }
            // Nobody listens there.
            (None, Some(_)) => {
                self.send(id, 1, Msg::NotThere);
                self.hang_up(id, 1);
            }
            _ => {}
        }
    }

    /// A connection with a host whose certificate is revoked is refused: the one who dials hears of
    /// it at once.
    fn is_turned_away(&mut self, id: WireId, wire: Wire) -> WireId {
        self.wires.insert(id, Wire { lost: [true; 2], ..wire });
        let soon = self.net.u64(MS..20 * MS);
        self.after(soon, Ev::Lost(id, 0));
        id
    }

    /// An end has read a message.
    pub fn has_read(&mut self, id: WireId, side: usize, msg: &Msg) {
        let bytes = output_in(msg);
        if let Some(wire) = self.wires.get_mut(&id).filter(|_| self.narrow.on) {
            wire.waiting[side] = wire.waiting[side].saturating_sub(size_of(msg));
        }
        if let Some(wire) = self.wires.get_mut(&id).filter(|_| bytes > 0) {
            wire.unread[side] = wire.unread[side].saturating_sub(bytes);
            if let Who::Relay(number) = wire.ends[1 - side] {
                self.relay_goes_on(number);
            }
        }
    }

    /// Whether an end that does not read has more than `room` bytes of output if it gets this
    /// message too. False also if the connection has gone.
    pub fn overflows(&self, id: WireId, side: usize, msg: &Msg, room: u64) -> bool {
        let bytes = output_in(msg);
        let unread = self.wires.get(&id).map_or(0, |wire| wire.unread[side]);
        bytes > 0 && unread + bytes > room
    }

    /// What a process hears.
    pub fn heard(&mut self, id: WireId, side: usize, who: Who, msg: Msg) {
        if who == Who::Nobody {
            return;
        }
        if self.trace.on() {
            let text = format!("{who:?} hears {}", super::trace::cut(&msg));
            self.trace.line(self.now, text);
        }
        if let Some(pause) = self.paused_until(who) {
            // A stopped process reads when it goes on; what waits for it stays in order.
            self.at(pause, Ev::Heard(id, side, who, Box::new(msg)));
            return;
        }
        if let Who::Relay(number) = who
            && self.relay_holds(id, number, &msg)
        {
            return;
        }
        self.has_read(id, side, &msg);
        match who {
            Who::Nobody => {}
            Who::PschedLink(link) => self.psched_link_says(id, link, msg),
            Who::PschedFront(pid) => self.psched_front_says(id, pid, msg),
            Who::WrongPsched(slot) => self.wrong_psched_says(id, slot, msg),
            Who::Copy(link) => self.copy_hears(link, msg),
            Who::ApinitLink(slot) => self.apinit_link_says(id, slot, msg),
            Who::ApinitFront(slot, conn) => self.apinit_stream_says(slot, conn, msg),
            Who::ApinitPeer(slot, key, index, generation) => {
                self.apinit_peer_says(slot, key, index, generation, msg);
            }
            Who::ApinitShepherd(slot, key) => self.apinit_shepherd_says(id, slot, key, msg),
            Who::Shepherd(pid) => self.shepherd_hears(id, pid, msg),
            Who::FrontPsched(pid) => self.front_psched_says(id, pid, msg),
            Who::FrontApinit(pid) => self.front_apinit_says(id, pid, msg),
            Who::PschedLogin(number) => self.psched_login_says(number, msg),
            Who::Login(host) => self.login_hears(id, host, msg),
            Who::Relay(number) => self.relay_hears(id, number, msg),
        }
    }
}
