//! Signals on their way down.
//!
//! A front end counts its signals and says them again after a break, and so does the head to the
//! other hosts; each shepherd passes on only what is new to it. Whoever keeps a signal forgets it
//! when all shepherds below are known to have it. psched's own are not counted.

use super::{Action, Agent, Out};
use crate::apteam::Key;
use crate::apteam::talk::attach::{FromApinit, NumberedSignal, ToApinit};
use crate::apteam::talk::shepherd::ToShepherd;
use std::collections::VecDeque;

/// Signals kept for hosts that can't be reached: a front end has no more under way.
const KEPT_MAX: usize = 64;

/// What is known of an application's signals.
#[derive(Debug, Default)]
pub(super) struct Signals {
    /// (Head.) Those that not everybody is known to have.
    kept: VecDeque<NumberedSignal>,
    /// The highest number that has come from the front end.
    seen: u64,
    /// The highest that the shepherd here has.
    own: u64,
    /// Everybody has them up to here.
    all: u64,
}

impl Signals {
    /// What a front end that has come back need not say again.
    pub fn taken(&self, head: bool) -> u64 {
        if head { self.all } else { self.own }
    }

    /// For a host that has come back.
    pub fn kept(&self) -> impl Iterator<Item = &NumberedSignal> {
        self.kept.iter()
    }
}

impl Agent {
    /// A signal for the PEs here and, at the head, for those of the other hosts: psched and the
    /// front end tell the head only.
    pub(super) fn signal(&mut self, key: Key, signal: NumberedSignal, out: &mut Out) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        if signal.number > 0 && app.head() {
            if signal.number <= app.signals.seen {
                return;
            }
            app.signals.seen = signal.number;
            if !app.peers.is_empty() && app.signals.kept.len() < KEPT_MAX {
                app.signals.kept.push_back(signal);
            }
        }
        if app.sent && app.running() {
            out.push(Action::SendShepherd(key, ToShepherd::Signal(signal)));
        } else if signal.number > 0 {
            // Nobody is left here who would want it.
            self.own_signals_taken(key, signal.number, out);
        }
        self.tell_peers(key, None, &ToApinit::Signal(signal), out);
    }

    /// The shepherd here has them up to this number.
    pub(super) fn own_signals_taken(&mut self, key: Key, number: u64, out: &mut Out) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        app.signals.own = app.signals.own.max(number);
        if app.head() {
            self.tell_signals_taken(key, out);
        } else if let Some(conn) = app.open_front() {
            out.push(Action::SendFront(conn, FromApinit::SignalsTaken(number)));
        }
    }

    /// (Head.) Another host has.
    pub(super) fn peer_signals_taken(&mut self, key: Key, index: u32, number: u64, out: &mut Out) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        if let Some(peer) = app.peers.iter_mut().find(|p| p.index == index) {
            peer.signals_taken = peer.signals_taken.max(number);
        }
        self.tell_signals_taken(key, out);
    }

    fn tell_signals_taken(&mut self, key: Key, out: &mut Out) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        let others = app.peers.iter().filter(|p| !p.done).map(|p| p.signals_taken);
        let all = others.chain([app.signals.own]).min().unwrap_or_default();
        if all <= app.signals.all {
            return;
        }
        app.signals.all = all;
        app.signals.kept.retain(|signal| signal.number > all);
        if let Some(conn) = app.open_front() {
            out.push(Action::SendFront(conn, FromApinit::SignalsTaken(all)));
        }
    }
}
