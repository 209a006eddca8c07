//! The head and the other hosts of its application.

use super::application::App;
use super::peer::Peer;
use super::streams::Told;
use super::{AWAY_MAX, Action, Agent, Front, Out, PEER_AGAIN, PEER_AGAIN_MAX, branches, ns};
use crate::apteam::Key;
use crate::apteam::ending::Cause;
use crate::apteam::protocol::attach::OutputTaken;
use crate::apteam::protocol::peers::{FromPeer, Onward, ToPeer};
use std::time::Duration;

impl App {
    /// Tells those of the other hosts that can hear and are wanted.
    pub(super) fn tell_peers(
        &self,
        wanted: impl Fn(&Peer) -> bool,
        message: &ToPeer,
        out: &mut Out,
    ) {
        let hear = self.peers.iter().filter(|peer| peer.open && !peer.done && wanted(peer));
        let hear: Vec<u32> = hear.map(|peer| peer.index).collect();
        if !hear.is_empty() {
            out.push(Action::SendPeers(self.key(), hear, message.clone()));
        }
    }
}

impl Agent {
    fn peer(&mut self, key: Key, index: u32) -> Option<&mut Peer> {
        self.apps.get_mut(&key)?.peers.iter_mut().find(|p| p.index == index)
    }

    /// Opens streams to other hosts, where there are many through others, and begins the conversations. Their
    /// indices count up.
    pub(super) fn open_peers(&mut self, now: u64, key: Key, indices: Vec<u32>, out: &mut Out) {
        let Some(app) = self.apps.get(&key) else { return };
        let onward = |index: u32| {
            let host = app.place.hosts.get(index as usize)?;
            Some(Onward { index, at: host.at() })
        };
        let fan_out = match app.place.fan_out {
            0 => u32::MAX,
            fan_out => fan_out,
        };
        let hosts: Vec<Onward> = indices.iter().filter_map(|index| onward(*index)).collect();
        for (Onward { index, at }, beyond) in branches(hosts, fan_out as usize) {
            out.push(Action::OpenPeer { key, index, at, beyond, fan_out });
        }
        self.greet(now, key, &indices, out);
    }

    /// Begins the conversation on streams that were just opened: anew with hosts whose PEs are known to be ready,
    /// else with the launch, which is taken for that where it has come before. (An apinit that is killed before its
    /// shepherd has the launch comes back without it.)
    fn greet(&mut self, now: u64, key: Key, indices: &[u32], out: &mut Out) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        let ticket = app.place.ticket;
        let launch = app.launch.clone();
        let (mut all, mut launched, mut first) = (Vec::new(), Vec::new(), Vec::new());
        for peer in app.peers.iter_mut().filter(|peer| indices.binary_search(&peer.index).is_ok()) {
            let index = peer.index;
            (peer.open, peer.asked_again) = (true, true);
            peer.again_ns = None;
            all.push(index);
            if launch.is_some() && !peer.ready {
                launched.push(index);
            } else {
                // What it says again that has gone to the front end is on its way there still, or is
                // asked for anew when that one comes back.
                let taken = vec![OutputTaken { source: index, offset: peer.taken }];
                first.push(Action::SendPeers(
                    key,
                    vec![index],
                    ToPeer::Resume { key, ticket, taken },
                ));
            }
        }
        if let Some(launch) = launch.filter(|_| !launched.is_empty()) {
            out.push(Action::SendPeers(key, launched, ToPeer::Launch { key, ticket, launch }));
        }
        out.append(&mut first);
        self.tell_sources(key, &all, out);
        let Some(app) = self.apps.get(&key) else { return };
        for signal in app.signals.kept() {
            let lacks = |p: &Peer| {
                all.binary_search(&p.index).is_ok() && !p.signals_taken.has(signal.number)
            };
            app.tell_peers(lacks, &ToPeer::Signal(*signal), out);
        }
        if let Some(doom) = app.doom.clone().filter(|_| !all.is_empty()) {
            let kill_after = Duration::from_nanos(doom.kill_at_ns.saturating_sub(now));
            let terminate = ToPeer::Terminate { cause: doom.cause, kill_after };
            out.push(Action::SendPeers(key, all, terminate));
        }
    }

    pub(super) fn peer_message(
        &mut self,
        now: u64,
        key: Key,
        index: u32,
        message: FromPeer,
        out: &mut Out,
    ) {
        let Some(peer) = self.peer(key, index).filter(|p| p.open) else { return };
        match message {
            FromPeer::Accepted => {
                (peer.accepted, peer.asked_again) = (true, false);
                peer.lost_since_ns = None;
            }
            FromPeer::Refused { text, cause } => {
                (peer.open, peer.done, peer.ready) = (false, true, false);
                let app = self.apps.get(&key);
                if let Some(app) = app.filter(|app| app.going_ns.is_none()) {
                    let nid = app.nid_of(index);
                    let grace = app.place.kill_grace;
                    let cause = cause.unwrap_or(Cause::NodeLost { nid, text });
                    self.end_all(now, key, cause, grace, None, out);
                }
                // One whose PEs went and that does not know them any more has nothing left of them.
                self.settle(now, key, out);
            }
            FromPeer::NotNow(_) => {
                // It is there, which is more than can be said of one that can't be reached.
                peer.open = false;
                peer.lost_since_ns = None;
                peer.again_ns = Some(now.saturating_add(ns(PEER_AGAIN)));
            }
            FromPeer::Output(output) => self.peer_output(key, index, output, out),
            FromPeer::Notice(notice) => {
                if let Some(front) = self.apps.get(&key).and_then(App::open_front) {
                    out.push(front.tell(Told::Notice(notice)));
                }
            }
            FromPeer::Done => {
                peer.done = true;
                self.settle(now, key, out);
            }
            FromPeer::Ready => {
                peer.ready = true;
                self.drop_launch(key);
                if self.apps.get(&key).is_some_and(|app| app.going_ns.is_some()) {
                    out.push(Action::SendPeers(key, vec![index], ToPeer::Go));
                } else {
                    self.try_go(now, key, out);
                }
            }
            FromPeer::BarrierIn(arrival) => self.peer_barrier(now, key, index, arrival, out),
            FromPeer::Letter(letter) => self.pass_letter(key, letter, out),
            FromPeer::SignalsTaken(number) => self.peer_signals_taken(key, index, number, out),
            FromPeer::Decisive(decisive) => {
                if decisive.cause.ends_application()
                    && let Some(app) = self.apps.get(&key)
                {
                    let grace = app.place.kill_grace;
                    self.end_all(now, key, decisive.cause, grace, Some(index), out);
                }
            }
            // (Who passes them on has read these.)
            FromPeer::Beyond(_) | FromPeer::Lost(_) => {}
            FromPeer::Going => {
                // A former life of this head has let its PEs go, and died before it could tell
                // everybody.
                peer.ready = true;
                self.try_go(now, key, out);
            }
        }
    }

    pub(super) fn peer_lost(
        &mut self,
        now: u64,
        key: Key,
        index: u32,
        text: String,
        out: &mut Out,
    ) {
        let Some(peer) = self.peer(key, index).filter(|p| p.open) else { return };
        peer.open = false;
        if peer.done {
            return;
        }
        let since = *peer.lost_since_ns.get_or_insert(now);
        let wait = (now.saturating_sub(since) / 4).clamp(ns(PEER_AGAIN), ns(PEER_AGAIN_MAX));
        peer.again_ns = Some(now.saturating_add(wait));
        // Before it has the launch nothing runs there, and waiting for ever would help nobody.
        // Afterwards only psched can say that the host is lost.
        if !peer.accepted && now >= since.saturating_add(ns(AWAY_MAX)) {
            peer.done = true;
            peer.again_ns = None;
            if let Some(app) = self.apps.get(&key) {
                let nid = app.nid_of(index);
                let grace = app.place.kill_grace;
                let text = format!("its apinit can't be reached: {text}");
                self.end_all(now, key, Cause::NodeLost { nid, text }, grace, None, out);
            }
        }
        self.settle(now, key, out);
    }

    pub(super) fn peers_tick(&mut self, now: u64, key: Key, out: &mut Out) {
        let Some(app) = self.apps.get(&key) else { return };
        let due = |p: &&Peer| !p.done && p.again_ns.is_some_and(|at| at <= now);
        let due: Vec<u32> = app.peers.iter().filter(due).map(|p| p.index).collect();
        // Not through others: one of them was perhaps what stood in the way.
        for index in due {
            self.open_peers(now, key, vec![index], out);
        }
    }

    /// Tells every other host that can hear, but the one that knows already.
    pub(super) fn tell_peers(
        &self,
        key: Key,
        except: Option<u32>,
        message: &ToPeer,
        out: &mut Out,
    ) {
        let Some(app) = self.apps.get(&key) else { return };
        app.tell_peers(|peer| Some(peer.index) != except, message, out);
    }

    /// Forgets the launch when all who need it have it.
    pub(super) fn drop_launch(&mut self, key: Key) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        if (app.sent || !app.running()) && app.peers.iter().all(|p| p.ready || p.done) {
            app.launch = None;
        }
    }

    /// On the front end's way back: the other hosts send again what it has not written. Also when it
    /// has gone for good: what came while it was away was not kept here, and counts as written only
    /// when it comes again.
    pub(super) fn rewind_peers(&mut self, key: Key, out: &mut Out) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        let ticket = app.place.ticket;
        if !matches!(app.front, Front::Open(_) | Front::Gone) {
            return;
        }
        for peer in &mut app.peers {
            (peer.forwarded, peer.asked_again) = (peer.taken, true);
            if peer.open && peer.accepted && !peer.done {
                let taken = vec![OutputTaken { source: peer.index, offset: peer.taken }];
                let resume = ToPeer::Resume { key, ticket, taken };
                out.push(Action::SendPeers(key, vec![peer.index], resume));
            }
        }
    }
}
