//! Which hosts of an application do not answer, as its front end is told.
//!
//! The user of an application whose output stays away wants to know why. The head knows which of
//! the other hosts it has lost, and tells the front end all of them each time that the list
//! changes: what was told before a break of the front end's stream need not be known, and a list
//! that is told twice does no harm. A host that is being restarted is back within [`SILENT_AFTER`],
//! and nothing is told. Between two lists there are [`SILENT_PAUSE`] at least: of a host that comes
//! and goes a few lines tell.

use super::application::App;
use super::peer::Peer;
use super::streams::{Stream, Told};
use super::waits::{SILENT_AFTER, SILENT_PAUSE};
use super::{Agent, Out, ns};
use crate::apteam::Key;
use crate::apteam::protocol::notice::Notice;
use std::collections::BTreeSet;

/// What a front end was told of hosts that do not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SilentPeers {
    /// The hosts, by their indices; none: what it was told is not known.
    told: Option<BTreeSet<u32>>,
    /// Nothing is told before.
    not_before_ns: u64,
}

impl Default for SilentPeers {
    fn default() -> SilentPeers {
        SilentPeers { told: Some(BTreeSet::new()), not_before_ns: 0 }
    }
}

impl SilentPeers {
    /// A front end has come back, perhaps to another life of this apinit. If this host was cut off,
    /// its connections to the other hosts come back in a moment, too.
    pub fn front_is_back(&mut self, now: u64) {
        *self = SilentPeers { told: None, not_before_ns: now.saturating_add(ns(SILENT_AFTER)) };
    }
}

impl Peer {
    /// From when on it counts as a host that does not answer, if it has begun and is lost.
    fn silent_from_ns(&self) -> Option<u64> {
        let since = self.lost_since_ns.filter(|_| self.accepted && !self.done)?;
        Some(since.saturating_add(ns(SILENT_AFTER)))
    }

    /// It has answered since it was reached, and since the front end came back. (A restarted apinit
    /// takes it that every host has the launch.)
    pub(super) fn answers(&self) -> bool {
        self.done || self.open && self.accepted && !self.asked_again
    }
}

impl App {
    /// The front end's stream, if it is to be told of hosts that do not answer.
    fn front_of_silent_peers(&self) -> Option<Stream> {
        let front = self.open_front().filter(|front| matches!(front, Stream::Front(_)))?;
        (!self.done_said && !self.peers.is_empty()).then_some(front)
    }

    /// When the front end is to be told which hosts do not answer.
    pub(super) fn silence_due_ns(&self) -> Option<u64> {
        self.front_of_silent_peers()?;
        let due = match &self.silent_peers.told {
            Some(told) => {
                let change = |peer: &Peer| match (told.contains(&peer.index), peer.silent_from_ns())
                {
                    (false, from) => from,
                    (true, None) => peer.answers().then_some(0),
                    (true, Some(_)) => None,
                };
                self.peers.iter().filter_map(change).min()
            }
            None if self.peers.iter().all(Peer::answers) => Some(0),
            None => self.peers.iter().filter_map(Peer::silent_from_ns).min(),
        };
        Some(due?.max(self.silent_peers.not_before_ns))
    }
}

impl Agent {
    /// Tells the front end which hosts do not answer, if it is time.
    pub(super) fn silence_tick(&mut self, now: u64, key: Key, out: &mut Out) {
        let Some(app) = self.apps.get(&key) else { return };
        if app.silence_due_ns().is_none_or(|at| at > now) {
            return;
        }
        let Some(front) = app.front_of_silent_peers() else { return };
        let silent = |peer: &&Peer| peer.silent_from_ns().is_some_and(|from| from <= now);
        let told: BTreeSet<u32> = app.peers.iter().filter(silent).map(|peer| peer.index).collect();
        let nids = told.iter().map(|index| app.nid_of(*index)).collect();
        out.push(front.tell(Told::Notice(Notice::Silent { nids })));
        let not_before_ns = now.saturating_add(ns(SILENT_PAUSE));
        if let Some(app) = self.apps.get_mut(&key) {
            app.silent_peers = SilentPeers { told: Some(told), not_before_ns };
        }
    }
}
