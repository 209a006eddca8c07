//! The head and the other hosts of its application.

use super::application::App;
use super::peer::Peer;
use super::streams::Told;
use super::{AWAY_MAX, Action, Agent, Front, Out, PEER_AGAIN, ns};
use crate::apteam::Key;
use crate::apteam::ending::Cause;
use crate::apteam::protocol::attach::OutputTaken;
use crate::apteam::protocol::peers::{FromPeer, ToPeer};
use std::time::Duration;

impl Agent {
    fn peer(&mut self, key: Key, index: u32) -> Option<&mut Peer> {
        self.apps.get_mut(&key)?.peers.iter_mut().find(|p| p.index == index)
    }

    /// Opens a stream to another host and begins the conversation: anew where its PEs are known to
    /// be ready, else with the launch, which is taken for that where it has come before. (An apinit
    /// that is killed before its shepherd has the launch comes back without it.)
    pub(super) fn open_peer(&mut self, now: u64, key: Key, index: u32, out: &mut Out) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        let Some(host) = app.place.hosts.get(index as usize) else { return };
        let at = host.at();
        let ticket = app.place.ticket;
        let doom = app.doom.clone();
        let launch = app.launch.clone();
        let Some(peer) = app.peers.iter_mut().find(|p| p.index == index) else { return };
        (peer.open, peer.asked_again) = (true, true);
        peer.again_ns = None;
        let first = match launch {
            Some(launch) if !peer.ready => ToPeer::Launch { key, ticket, launch },
            _ => {
                // What it says again that has gone to the front end is on its way there still, or is
                // asked for anew when that one comes back.
                let taken = vec![OutputTaken { source: index, offset: peer.taken }];
                ToPeer::Resume { key, ticket, taken }
            }
        };
        out.push(Action::OpenPeer { key, index, at });
        out.push(Action::SendPeer(key, index, first));
        let signals = app.signals.kept().filter(|signal| !peer.signals_taken.has(signal.number));
        out.extend(signals.map(|s| Action::SendPeer(key, index, ToPeer::Signal(*s))));
        if let Some(doom) = doom {
            let kill_after = Duration::from_nanos(doom.kill_at_ns.saturating_sub(now));
            let terminate = ToPeer::Terminate { cause: doom.cause, kill_after };
            out.push(Action::SendPeer(key, index, terminate));
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
                let was_ready = peer.ready;
                (peer.open, peer.done, peer.ready) = (false, true, false);
                let app = self.apps.get(&key);
                if let Some(app) = app.filter(|app| !was_ready && app.going_ns.is_none()) {
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
                    out.push(Action::SendPeer(key, index, ToPeer::Go));
                } else {
                    self.try_go(now, key, out);
                }
            }
            FromPeer::BarrierIn(arrival) => self.peer_barrier(now, key, index, arrival, out),
            FromPeer::SignalsTaken(number) => self.peer_signals_taken(key, index, number, out),
            FromPeer::Decisive(decisive) => {
                if decisive.cause.ends_application()
                    && let Some(app) = self.apps.get(&key)
                {
                    let grace = app.place.kill_grace;
                    self.end_all(now, key, decisive.cause, grace, Some(index), out);
                }
            }
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
        peer.again_ns = Some(now.saturating_add(ns(PEER_AGAIN)));
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
        for index in due {
            self.open_peer(now, key, index, out);
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
        for peer in app.peers.iter().filter(|p| p.open && !p.done && Some(p.index) != except) {
            out.push(Action::SendPeer(key, peer.index, message.clone()));
        }
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
                out.push(Action::SendPeer(key, peer.index, resume));
            }
        }
    }
}
