//! Signals on their way down.
//!
//! A front end counts its signals and says them again after a break, psched does the same with its
//! own, and so does the head with both to the other hosts; each shepherd passes on only what is new
//! to it. Whoever keeps a signal forgets it when all shepherds below are known to have it.

use super::streams::Told;
use super::{Agent, Out};
use crate::apteam::Key;
use crate::apteam::protocol::attach::{NumberedSignal, PSCHED_SIGNALS, TakenSignals};
use crate::apteam::protocol::node::Report;
use crate::apteam::protocol::peers::ToPeer;
use crate::apteam::protocol::shepherd::ToShepherd;

/// Signals kept for hosts that can't be reached: a front end and psched have no more under way.
const KEPT_MAX: usize = 128;

impl Agent {
    /// A signal for the PEs here and, at the head, for those of the other hosts: psched and the
    /// front end tell the head only.
    pub(super) fn signal(&mut self, key: Key, signal: NumberedSignal, out: &mut Out) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        if signal.number > 0 && app.head() {
            if !app.signals.seen.take(signal.number) {
                if signal.number > PSCHED_SIGNALS {
                    // It has not heard that this one has come.
                    self.report_signals(key, out);
                }
                return;
            }
            if !app.peers.is_empty() && app.signals.kept.len() < KEPT_MAX {
                app.signals.kept.push_back(signal);
            }
        }
        if app.sent && app.running() {
            let from_front = app.head() && signal.number <= PSCHED_SIGNALS;
            app.tell_shepherd(ToShepherd::Signal(signal), out);
            if from_front {
                self.to_hear(key, false, out);
            }
        } else if signal.number > 0 {
            // Nobody is left here who would want it.
            self.own_signals_taken(key, signal.number, out);
        }
        self.tell_peers(key, None, &ToPeer::Signal(signal), out);
    }

    /// The shepherd here has them up to this number.
    pub(super) fn own_signals_taken(&mut self, key: Key, number: u64, out: &mut Out) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        app.signals.own.take(number);
        if app.head() {
            self.tell_signals_taken(key, out);
        } else if let Some(head) = app.open_front() {
            out.push(head.tell(Told::SignalsTaken(number)));
        }
    }

    /// (Head.) Another host has.
    pub(super) fn peer_signals_taken(&mut self, key: Key, index: u32, number: u64, out: &mut Out) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        if let Some(peer) = app.peers.iter_mut().find(|p| p.index == index) {
            peer.signals_taken.take(number);
        }
        self.tell_signals_taken(key, out);
    }

    fn tell_signals_taken(&mut self, key: Key, out: &mut Out) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        let others = app.peers.iter().filter(|p| !p.done).map(|p| p.signals_taken);
        let all = others.fold(app.signals.own, TakenSignals::and);
        let before = std::mem::replace(&mut app.signals.all, all);
        app.signals.kept.retain(|signal| !all.has(signal.number));
        let front = app.open_front();
        for number in all.numbers().filter(|number| !before.has(*number)) {
            if number > PSCHED_SIGNALS {
                self.report_signals(key, out);
            } else if let Some(front) = front {
                out.push(front.tell(Told::SignalsTaken(number)));
            }
        }
    }

    /// (Head.) Tells psched which of its signals everybody has.
    fn report_signals(&self, key: Key, out: &mut Out) {
        let Some(app) = self.apps.get(&key) else { return };
        for number in app.signals.all.numbers().filter(|number| *number > PSCHED_SIGNALS) {
            self.report(Report::SignalsTaken { key, number }, out);
        }
    }
}
