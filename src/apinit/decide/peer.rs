//! Another host of an application, as its head sees it.

use super::arrivals::Arrivals;
use super::waits::AWAY_MAX;
use crate::apteam::protocol::attach::TakenSignals;
use crate::variables::units::nanos as ns;

/// Another host of an application, as its head sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Peer {
    /// Its index in the hosts.
    pub index: u32,
    /// There is a stream to it.
    pub open: bool,
    /// It has taken the launch.
    pub accepted: bool,
    /// Its PEs stand before their first instruction.
    pub ready: bool,
    /// Nothing more comes from it.
    pub done: bool,
    /// The barriers in which its PEs have arrived.
    pub arrivals: Arrivals,
    /// Its shepherd has signals up to these numbers.
    pub signals_taken: TakenSignals,
    /// Its output up to here has gone to the front end.
    pub forwarded: u64,
    /// Its output up to here is written out.
    pub taken: u64,
    /// It was asked to say its output again, and has not answered yet.
    pub asked_again: bool,
    /// How often that was so for output that did not come.
    pub holes: u32,
    /// Not reachable since.
    pub lost_since_ns: Option<u64>,
    /// When it is tried again.
    pub again_ns: Option<u64>,
}

impl Peer {
    pub fn new(index: u32) -> Peer {
        Peer {
            index,
            open: false,
            accepted: false,
            ready: false,
            done: false,
            arrivals: Arrivals::default(),
            signals_taken: TakenSignals::default(),
            forwarded: 0,
            taken: 0,
            asked_again: false,
            holes: 0,
            lost_since_ns: None,
            again_ns: None,
        }
    }

    /// Nothing is to be waited for from it: it is done; or the whole application has ended by
    /// psched's word, and nobody knows when the host can be reached.
    pub fn over(&self, now: u64, all_ended: bool) -> bool {
        self.done || all_ended && self.away_ns().is_some_and(|at| now >= at)
    }

    /// From when on it counts as one that can't be reached: it has been away for long, or is not
    /// tried.
    pub fn away_ns(&self) -> Option<u64> {
        match self.lost_since_ns {
            _ if self.done => None,
            Some(since) => Some(since.saturating_add(ns(AWAY_MAX))),
            None => (!self.open && self.again_ns.is_none()).then_some(0),
        }
    }

    /// When it is tried again, or given up if its application is over (`over`).
    pub fn deadline(&self, over: bool) -> Option<u64> {
        if self.done {
            return None;
        }
        let give_up = self.away_ns().filter(|_| over);
        [self.again_ns, give_up].into_iter().flatten().min()
    }
}
