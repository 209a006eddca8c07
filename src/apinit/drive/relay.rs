//! Streams to other apinits, and from one to the next.
//!
//! # Problem
//! The head of an application has a conversation with each of its other hosts. If it had a stream for each, a thousand
//! hosts would be a thousand connections, and what is for everybody would be sent a thousand times.
//!
//! # Approach
//! The conversations stay as they are: the agents at both ends know of no tree. Here the head's streams, its *ways*,
//! lead on ([`branches`]): what is for several hosts is sent once on each way, and an apinit on it passes it to its own
//! agent and along its own ways. What comes back goes the other way, with the host from which it is.
//!
//! ```text
//!   head                     host 1                        hosts 2, 3
//!   Lead 1, beyond 2 3  -->  opens ways to 2 and 3
//!   Pass to 1-3: Launch -->  its agent hears Launch   -->  Launch
//!                       <--  Ready
//!                       <--  Beyond 2: Ready          <--  Ready
//!   (host 1 is lost: hosts 2 and 3 are lost with it. The agent opens streams to each, which lead nowhere.)
//! ```
//!
//! An apinit between keeps nothing of what it passes, and knows nothing of it: each agent judges what comes as if it had
//! come at once. A stream leads on once the agent here has accepted the application's ticket on it: until then the
//! `Lead`, and what is for hosts beyond, is kept within bounds ([`Held`]). A `Lead` for an application other than
//! that of the ticket, or for hosts that this application does not have, closes the stream. If a stream is closed, everything beyond counts as closed. The conversations say what was lost anew,
//! as after any break.
//!
//! What waits in an apinit between for a way that is slow is bounded by the windows of all output beyond, which are
//! smaller the more hosts there are ([`Bounds::among`](crate::apteam::bounds::Bounds::among)).

use super::{Driver, Outside};
use crate::apinit::decide::{Conn, Event, branches};
use crate::apteam::Key;
use crate::apteam::protocol::attach::OutputTaken;
use crate::apteam::protocol::peers::{Beyond, FromPeer, Indices, Onward, Pass, ToPeer};
use std::collections::{BTreeMap, BTreeSet};

/// The most streams that a `Lead` may ask for: the maximum of the variable `fan_out`.
pub const FAN_OUT_MAX: u32 = 1_024;
/// The most hosts that a `Lead` may name: a cluster has no more nodes (psched.yaml(5)), and each host offers one at
/// least. Once the ticket is shown, it is those of the application.
pub const LEAD_HOSTS_MAX: usize = crate::config::NODES_MAX;
/// Messages for hosts beyond that are kept beside one for each of them: signals and the like.
const HELD_MAX: usize = 64;
/// Bytes of memory that such a message counts for, if it is no launch.
const HELD_COST: u64 = 1_024;

/// What is said to an agent whose stream leads on when its own part of it is over.
const PART_OVER: &str = "it has closed the stream";

fn beyond(index: u32, message: FromPeer) -> FromPeer {
    FromPeer::Beyond(Box::new(Beyond { index, message }))
}

/// Who has opened a way, and hears what comes on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// The agent here, of an application whose head it is.
    Agent,
    /// The head, or a host on the way from it, by its stream.
    Head(Conn),
}

/// A stream to another apinit.
#[derive(Debug)]
struct Way {
    generation: u64,
    whose: Whose,
    /// Hosts that are reached on it beside the one to which it is.
    beyond: BTreeSet<u32>,
}

/// A stream of a head that leads on.
#[derive(Debug)]
struct Led {
    key: Key,
    /// Of this host.
    index: u32,
    /// How many there are beyond.
    beyond: u64,
    /// The agent here has closed it.
    closed: bool,
}

/// A stream of a head that is to lead on once it has shown its ticket.
#[derive(Debug)]
struct Held {
    key: Key,
    /// Of this host.
    index: u32,
    fan_out: u32,
    /// Those beyond.
    hosts: Vec<Onward>,
    /// What is for them.
    passes: Vec<Pass>,
    /// Bytes of memory.
    bytes: u64,
}

impl Held {
    /// Why this can't be what a head says.
    fn fault(&self) -> Option<String> {
        if !(1..=FAN_OUT_MAX).contains(&self.fan_out) {
            return Some(format!("it is to lead to {} hosts at once", self.fan_out));
        }
        (self.hosts.len() > LEAD_HOSTS_MAX)
            .then(|| format!("it is to lead to {} hosts", self.hosts.len()))
    }

    /// Why it can't be of this application, of which host `index` of `count` is here.
    fn misfit(&self, key: Key, part: Option<(usize, usize)>) -> Option<String> {
        if key != self.key {
            return Some(format!("it shows the ticket of application {key}"));
        }
        let Some((index, count)) = part.filter(|(index, _)| *index == self.index as usize) else {
            return Some(format!("host {} of the application is not this one", self.index));
        };
        let counts_up = self.hosts.is_sorted_by(|one, next| one.index < next.index);
        let other = |onward: &Onward| {
            let other = onward.index as usize;
            other < count && other != index
        };
        (!counts_up || !self.hosts.iter().all(other))
            .then(|| "the hosts to which it is to lead are not those of the application".into())
    }

    /// Keeps a message for hosts beyond. False: there is no room for it.
    fn keep(&mut self, pass: Pass) -> bool {
        let cost = match &pass.message {
            ToPeer::Launch { launch, .. } => launch.footprint(),
            ToPeer::Resume { taken, .. } => (size_of::<OutputTaken>() * taken.len()) as u64,
            ToPeer::Signal(_)
            | ToPeer::OutputTaken(_)
            | ToPeer::Terminate { .. }
            | ToPeer::Sources { .. } => 0,
            // (Comes only to a host that has accepted its launch.)
            _ => return false,
        };
        let runs = size_of_val(&*pass.to.0) as u64;
        self.bytes = self.bytes.saturating_add(HELD_COST + runs).saturating_add(cost);
        self.passes.push(pass);
        self.passes.len() <= self.hosts.len() + HELD_MAX
    }
}

/// Bytes of memory of where hosts are.
fn footprint(hosts: &[Onward]) -> u64 {
    let text = |Onward { at, .. }: &Onward| at.host.len() + at.address.len() + at.socket.len();
    (size_of_val(hosts) + hosts.iter().map(text).sum::<usize>()) as u64
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Relay {
    /// By application, as its ticket has shown, and host.
    ways: BTreeMap<(Key, u32), Way>,
    held: BTreeMap<Conn, Held>,
    led: BTreeMap<Conn, Led>,
    /// The last that was given.
    generation: u64,
}

impl Relay {
    /// The ways of an application, by the hosts to which they are.
    fn of(&self, key: Key) -> impl Iterator<Item = (u32, &Way)> {
        self.ways.range((key, 0)..=(key, u32::MAX)).map(|((_, index), way)| (*index, way))
    }

    /// The hosts to which somebody's ways of an application are.
    fn firsts(&self, key: Key, whose: Whose) -> Vec<u32> {
        self.of(key).filter(|(_, way)| way.whose == whose).map(|(index, _)| index).collect()
    }

    /// The hosts on somebody's ways that are among those wanted, by the first of each way.
    fn reached(
        &self,
        key: Key,
        whose: Whose,
        wanted: &impl Fn(u32) -> bool,
    ) -> Vec<(u32, Vec<u32>)> {
        let own = self.of(key).filter(|(_, way)| way.whose == whose);
        let each = own.map(|(first, way)| {
            let mut all: Vec<u32> = way.beyond.iter().copied().filter(|i| wanted(*i)).collect();
            if wanted(first) {
                let at = all.partition_point(|index| *index < first);
                all.insert(at, first);
            }
            (first, all)
        });
        each.filter(|(_, all)| !all.is_empty()).collect()
    }

    fn leads_on(&self, key: Key, first: u32) -> bool {
        self.ways.get(&(key, first)).is_some_and(|way| !way.beyond.is_empty())
    }
}

impl Driver {
    /// Opens a way, in place of one to the same host, and of whatever else leads there.
    pub(super) fn open_way(
        &mut self,
        out: &mut impl Outside,
        whose: Whose,
        key: Key,
        first: Onward,
        beyond: Vec<Onward>,
        fan_out: u32,
    ) {
        let Onward { index, at } = first;
        let relay = &mut self.relay;
        let other = relay.ways.get(&(key, index)).map(|way| way.whose);
        if other == Some(Whose::Agent) && whose != Whose::Agent {
            // The head is here, and speaks with its hosts itself.
            return;
        }
        relay.generation += 1;
        let generation = relay.generation;
        let reached: BTreeSet<u32> = beyond.iter().map(|onward| onward.index).collect();
        let way = Way { generation, whose, beyond: reached.clone() };
        let before = relay.ways.insert((key, index), way);
        // (A stream that leads on names each host once.)
        if whose == Whose::Agent {
            for ((_, first), way) in relay.ways.range_mut((key, 0)..=(key, u32::MAX)) {
                if *first != index && way.whose == whose {
                    way.beyond.retain(|other| *other != index && !reached.contains(other));
                }
            }
        }
        let room = self.agent.bounds_of(key).to_peer();
        out.open_peer(key, index, generation, at, room);
        if !beyond.is_empty() {
            out.tell_peer(key, index, ToPeer::Lead { key, index, fan_out, hosts: beyond });
        }
        if let Some(mut before) = before {
            before.beyond.retain(|other| !reached.contains(other));
            let itself = (before.whose != whose).then_some(index);
            let lost = itself.into_iter().chain(before.beyond);
            let lost: Vec<u32> = lost.collect();
            self.ways_lost(out, before.whose, key, lost, "its stream was opened anew");
        }
    }

    /// Tells those of somebody's hosts that are wanted.
    pub(super) fn pass_on(
        &mut self,
        out: &mut impl Outside,
        whose: Whose,
        key: Key,
        wanted: &impl Fn(u32) -> bool,
        message: &ToPeer,
    ) {
        for (first, to) in self.relay.reached(key, whose, wanted) {
            let message = message.clone();
            let message = match self.relay.leads_on(key, first) {
                true => ToPeer::Pass(Box::new(Pass { to: Indices::of(to), message })),
                false => message,
            };
            out.tell_peer(key, first, message);
        }
    }

    /// A host says something, or one beyond it.
    pub(super) fn peer_says(
        &mut self,
        out: &mut impl Outside,
        (key, first): (Key, u32),
        generation: u64,
        message: FromPeer,
    ) {
        let way = self.relay.ways.get_mut(&(key, first));
        let Some(way) = way.filter(|way| way.generation == generation) else { return };
        let whose = way.whose;
        let (index, message) = match message {
            FromPeer::Beyond(beyond) if way.beyond.contains(&beyond.index) => {
                (beyond.index, beyond.message)
            }
            FromPeer::Beyond(_) => return,
            message => (first, message),
        };
        match message {
            FromPeer::Lost(text) => {
                way.beyond.remove(&index);
                self.ways_lost(out, whose, key, vec![index], &text);
            }
            FromPeer::Beyond(_) => {}
            message => match whose {
                Whose::Agent => self.apply(out, Event::PeerMessage(key, index, message)),
                Whose::Head(conn) => {
                    self.tell_head(out, conn, beyond(index, message));
                }
            },
        }
    }

    /// A way is closed, and with it whatever is beyond.
    pub(super) fn peer_lost(
        &mut self,
        out: &mut impl Outside,
        (key, first): (Key, u32),
        generation: u64,
        text: &str,
    ) {
        let same = |way: &&Way| way.generation == generation;
        if self.relay.ways.get(&(key, first)).filter(same).is_none() {
            return;
        }
        let Some(way) = self.relay.ways.remove(&(key, first)) else { return };
        let lost = std::iter::once(first).chain(way.beyond).collect();
        self.ways_lost(out, way.whose, key, lost, text);
    }

    /// Nothing more comes from these on somebody's ways.
    fn ways_lost(
        &mut self,
        out: &mut impl Outside,
        whose: Whose,
        key: Key,
        lost: Vec<u32>,
        text: &str,
    ) {
        for index in lost {
            let text = text.to_owned();
            match whose {
                Whose::Agent => self.apply(out, Event::PeerLost { key, index, text }),
                Whose::Head(conn) => {
                    self.tell_head(out, conn, beyond(index, FromPeer::Lost(text)));
                }
            }
        }
        if let Whose::Head(conn) = whose {
            self.end_lead(out, conn);
        }
    }

    /// A head says something, or a host on the way from it.
    pub(super) fn head_says(&mut self, out: &mut impl Outside, conn: Conn, message: ToPeer) {
        match message {
            ToPeer::Lead { key, index, fan_out, hosts } => {
                let known =
                    self.relay.led.contains_key(&conn) || self.relay.held.contains_key(&conn);
                if known || !self.agent.hears_head(conn) {
                    return;
                }
                let bytes = footprint(&hosts);
                let held = Held { key, index, fan_out, hosts, passes: Vec::new(), bytes };
                let fault = held.fault();
                self.relay.held.insert(conn, held);
                match fault {
                    Some(fault) => self.break_off(out, conn, &fault),
                    None => self.holds(out, conn),
                }
                self.lead(out, conn);
            }
            ToPeer::Pass(pass) => self.passes(out, conn, *pass),
            message => {
                self.apply(out, Event::HeadMessage(conn, message));
                self.lead(out, conn);
            }
        }
    }

    fn passes(&mut self, out: &mut impl Outside, conn: Conn, pass: Pass) {
        let Pass { to, message } = pass;
        if let Some(held) = self.relay.held.get_mut(&conn) {
            let own = to.has(held.index).then(|| message.clone());
            if !held.keep(Pass { to, message }) {
                self.break_off(out, conn, "it sends too much before it has shown its ticket");
            }
            if let Some(message) = own {
                self.apply(out, Event::HeadMessage(conn, message));
            }
            self.lead(out, conn);
            // (Not of one whose ticket is good by now: a launch may be larger.)
            if self.relay.held.contains_key(&conn) {
                self.holds(out, conn);
            }
            return;
        }
        let Some(Led { key, index, .. }) = self.relay.led.get(&conn) else { return };
        let (key, own) = (*key, to.has(*index));
        self.pass_on(out, Whose::Head(conn), key, &|index| to.has(index), &message);
        if own {
            self.apply(out, Event::HeadMessage(conn, message));
        }
    }

    /// Closes a stream if those of its host keep more than they may before they have shown their tickets: as much as
    /// the launches of one user that wait. The head tries again.
    fn holds(&mut self, out: &mut impl Outside, conn: Conn) {
        let host = self.agent.host_of_head(conn);
        let same =
            self.relay.held.iter().filter(|(conn, _)| self.agent.host_of_head(**conn) == host);
        let bytes = same.fold(0, |bytes: u64, (_, held)| bytes.saturating_add(held.bytes));
        if bytes > self.agent.bounds().launch_bytes_user {
            let text = "what its host has sent before tickets were shown uses the maximum memory";
            self.break_off(out, conn, text);
        }
    }

    /// Closes a stream that was to lead on to other hosts and may not. Nothing has been sent to these.
    fn break_off(&mut self, out: &mut impl Outside, conn: Conn, why: &str) {
        let Some(held) = self.relay.held.remove(&conn) else { return };
        let text = match self.agent.host_of_head(conn) {
            None | Some("") => format!("a stream of an apinit of this host is closed: {why}"),
            Some(host) => format!("a stream of the host {host} is closed: {why}"),
        };
        out.warn(held.key, &text);
        self.tell_head(out, conn, FromPeer::NotNow(text));
        out.close_stream(conn);
        self.apply(out, Event::StreamClosed(conn));
    }

    /// Opens the ways of streams that have shown their tickets meanwhile.
    pub(super) fn lead_on(&mut self, out: &mut impl Outside) {
        let held: Vec<Conn> = self.relay.held.keys().copied().collect();
        held.into_iter().for_each(|conn| self.lead(out, conn));
    }

    /// Opens the ways of a stream if it has shown its ticket, and passes on what was kept for those beyond.
    fn lead(&mut self, out: &mut impl Outside, conn: Conn) {
        let Some(held) = self.relay.held.get(&conn) else { return };
        let Some(key) = self.agent.key_of_head(conn) else { return };
        if let Some(misfit) = held.misfit(key, self.agent.part(key)) {
            return self.break_off(out, conn, &misfit);
        }
        let Some(held) = self.relay.held.remove(&conn) else { return };
        let Held { index, fan_out, hosts, passes, .. } = held;
        self.relay.led.insert(conn, Led { key, index, beyond: hosts.len() as u64, closed: false });
        let whose = Whose::Head(conn);
        for (first, beyond) in branches(hosts, fan_out as usize) {
            self.open_way(out, whose, key, first, beyond, fan_out);
        }
        for Pass { to, message } in passes {
            self.pass_on(out, whose, key, &|index| to.has(index), &message);
        }
    }

    /// Tells a head. One that does not read is told nothing more.
    pub(super) fn tell_head(&mut self, out: &mut impl Outside, conn: Conn, message: FromPeer) {
        let room = match &message {
            FromPeer::Output(_) => self.output_room(conn),
            FromPeer::Beyond(beyond) if matches!(beyond.message, FromPeer::Output(_)) => {
                self.output_room(conn)
            }
            _ => u64::MAX,
        };
        if !out.tell_head(conn, message, room) {
            self.later(Event::StreamClosed(conn));
        }
    }

    /// Bytes of output that may wait for a head, from here and from the hosts beyond. (One that acknowledges what it has
    /// not read would have more and more of our memory.)
    fn output_room(&self, conn: Conn) -> u64 {
        let (key, hosts) = match self.relay.led.get(&conn) {
            Some(led) => (Some(led.key), led.beyond + 1),
            None => (self.agent.key_of_head(conn), 1),
        };
        key.map_or(0, |key| self.agent.output_room_of_host(key)).saturating_mul(hosts)
    }

    /// The agent has nothing more to say on a stream, of a front end or a head. If it leads on it stays open for those
    /// beyond.
    pub(super) fn close_stream(&mut self, out: &mut impl Outside, conn: Conn) {
        // (Without a ticket it was not led on to any host.)
        self.relay.held.remove(&conn);
        match self.relay.led.get_mut(&conn) {
            Some(led) if !led.closed => {
                led.closed = true;
                self.tell_head(out, conn, FromPeer::Lost(PART_OVER.into()));
                self.end_lead(out, conn);
            }
            Some(_) => {}
            None => out.close_stream(conn),
        }
    }

    /// Closes a stream that leads on if nothing more comes on it.
    fn end_lead(&mut self, out: &mut impl Outside, conn: Conn) {
        let Some(led) = self.relay.led.get(&conn) else { return };
        if led.closed && self.relay.firsts(led.key, Whose::Head(conn)).is_empty() {
            self.relay.led.remove(&conn);
            out.close_stream(conn);
        }
    }

    /// A stream of a front end or a head is closed at its other end: those beyond are told so.
    pub(super) fn stream_closed(&mut self, out: &mut impl Outside, conn: Conn) {
        self.relay.held.remove(&conn);
        if let Some(led) = self.relay.led.remove(&conn) {
            self.close_ways(out, led.key, Whose::Head(conn));
            if led.closed {
                return out.close_stream(conn);
            }
        }
        self.apply(out, Event::StreamClosed(conn));
    }

    /// Closes the ways that the agent has opened for an application. (One that leads on for a head goes on.)
    pub(super) fn close_own_ways(&mut self, out: &mut impl Outside, key: Key) {
        self.close_ways(out, key, Whose::Agent);
    }

    fn close_ways(&mut self, out: &mut impl Outside, key: Key, whose: Whose) {
        for first in self.relay.firsts(key, whose) {
            self.relay.ways.remove(&(key, first));
            out.close_peer(key, first);
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
