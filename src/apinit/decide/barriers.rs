//! PMI's barriers where an application is on several hosts: gathered at the head.
//!
//! ```text
//!   other host          head                    barrier 7
//!   BarrierIn 7 ------> has all of 7?
//!                <----- BarrierOut 7, in pieces, with what anybody has put
//! ```
//!
//! Any apinit may die at any moment, and its next life knows nothing of barriers. So nothing here is
//! remembered for good: each shepherd tells a new apinit of the last barrier that its PEs have left
//! and of the one that they are in, each apinit tells a new head of the same, and a head that has
//! died in the middle of sending its `BarrierOut` makes it anew from what it is told. What comes
//! twice is known by the barrier's number, and no two numbers are ever mixed.
//!
//! A host that has not heard of the end of barrier 7 is in it; the others may be in 8 by then, but
//! not beyond. So two arrivals of each host are enough, and one `BarrierOut`.
//!
//! When a front end comes back, all hosts say their barriers again, in the same moment. The head
//! collects them for [`BARRIER_AGAIN`] and answers them together: a `BarrierOut` for each of a
//! thousand hosts would be a thousand times all that the PEs have put.

use super::application::App;
use super::peer::Peer;
use super::{Action, Agent, BARRIER_AGAIN, Out, ns};
use crate::apshepherd::decide::pmi;
use crate::apteam::Key;
use crate::apteam::ending::Cause;
use crate::apteam::protocol::peers::{BarrierIn, BarrierOut, FromPeer, ToPeer};
use crate::apteam::protocol::shepherd::ToShepherd;
use std::collections::BTreeSet;

/// Hosts that have said again that they are in the barrier that was complete last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BarrierAgain {
    /// When they are answered.
    pub at_ns: u64,
    /// Their indices.
    hosts: BTreeSet<u32>,
}

impl Agent {
    /// All PEs here are in the barrier, or were.
    pub(super) fn own_barrier(&mut self, now: u64, key: Key, arrival: BarrierIn, out: &mut Out) {
        let Some(app) = self.apps.get_mut(&key).filter(|app| app.running()) else { return };
        let generation = arrival.generation;
        app.arrivals.add(arrival.clone());
        if app.head() {
            self.arrived(now, key, 0, generation, out);
        } else if let Some(head) = app.open_front() {
            out.extend(head.tell_head(FromPeer::BarrierIn(arrival)));
        }
    }

    /// (Head.) The same of another host.
    pub(super) fn peer_barrier(
        &mut self,
        now: u64,
        key: Key,
        index: u32,
        arrival: BarrierIn,
        out: &mut Out,
    ) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        let Some(peer) = app.peers.iter_mut().find(|p| p.index == index) else { return };
        let generation = arrival.generation;
        peer.arrivals.add(arrival);
        self.arrived(now, key, index, generation, out);
    }

    fn arrived(&mut self, now: u64, key: Key, index: u32, generation: u64, out: &mut Out) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        let over = app.barrier_out.first().map_or(0, |piece| piece.generation);
        if generation > over {
            self.try_barrier(now, key, over, out);
        } else if generation == over {
            // It has not heard of the end, or it can't be known whether it has.
            let at_ns = now.saturating_add(ns(BARRIER_AGAIN));
            let new = || BarrierAgain { at_ns, hosts: BTreeSet::new() };
            app.barrier_again.get_or_insert_with(new).hosts.insert(index);
        }
    }

    /// (Head.) Answers the hosts that have said the last barrier again.
    pub(super) fn barrier_tick(&mut self, now: u64, key: Key, out: &mut Out) {
        let due = self.apps.get(&key).and_then(|app| app.barrier_again.as_ref());
        if due.is_none_or(|again| again.at_ns > now) {
            return;
        }
        let Some(app) = self.apps.get_mut(&key) else { return };
        let again = app.barrier_again.take();
        let hosts: Vec<u32> = again.into_iter().flat_map(|again| again.hosts).collect();
        for piece in &app.barrier_out {
            send(app, key, &hosts, piece, out);
        }
    }

    /// (Head.) When everybody is in: everybody out, with what anybody put.
    fn try_barrier(&mut self, now: u64, key: Key, over: u64, out: &mut Out) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        let everybody =
            |generation: &u64| app.peers.iter().all(|peer| peer.arrivals.of(*generation).is_some());
        // The latest: who has arrived there has left those before.
        let own = app.arrivals.all().iter().map(|arrival| arrival.generation);
        let Some(generation) = own.filter(|g| *g > over).filter(everybody).max() else { return };
        let all = || std::iter::once(&app.arrivals).chain(app.peers.iter().map(|p| &p.arrivals));
        let most = app.place.bounds.pmi;
        if all().map(|arrivals| arrivals.cost(generation) as u64).sum::<u64>() > most {
            let (nid, grace) = (app.nid(), app.place.kill_grace);
            let cause = Cause::Garbage { rank: 0, nid, text: pmi::too_much(most) };
            return self.end_all(now, key, cause, grace, None, out);
        }
        let mut merged = app.arrivals.take(generation);
        for peer in &mut app.peers {
            merged.extend(peer.arrivals.take(generation));
        }
        app.barrier_out = BarrierOut::pieces(generation, merged);
        // (Every host is in this barrier: none waits for the end of the one before.)
        app.barrier_again = None;
        let hosts: Vec<u32> = std::iter::once(0).chain(app.peers.iter().map(|p| p.index)).collect();
        for piece in &app.barrier_out {
            send(app, key, &hosts, piece, out);
        }
    }
}

/// To the shepherd here, which is that of host 0, and to other hosts.
fn send(app: &App, key: Key, hosts: &[u32], piece: &BarrierOut, out: &mut Out) {
    if hosts.contains(&0) && app.running() {
        out.push(Action::SendShepherd(key, ToShepherd::BarrierOut(piece.clone())));
    }
    let among = |peer: &Peer| hosts.binary_search(&peer.index).is_ok();
    app.tell_peers(among, &ToPeer::BarrierOut(piece.clone()), out);
}
