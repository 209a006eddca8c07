//! Whose turn it is.
//!
//! # The problem
//!
//! Nobody may starve, however the gangs of a component overlap, and a gang must not have to wait for
//! more than those that it competes with.
//!
//! # The approach
//!
//! *Round robin* on an arbitrary graph: in order of when each ran last, longest ago first, and who has
//! never run before all of them in order of arrival. In a slice in which a gang does not run, a rival
//! that had waited longer runs; that rival has then waited less, and can't do it again before the gang
//! has run. So it runs at least once in as many slices as there are gangs that compete with it, itself
//! counted in. Promoted time counts: who was promoted has run.
//!
//! A weight lengthens the slices that a gang leads, and not how often it leads: the bound above is in
//! slices and holds for everybody.

use super::competition::Competition;
use super::party::party;
use super::plan::Slice;
use crate::apteam::Apid;
use std::collections::BTreeMap;
use std::time::Duration;

/// What a gang has had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Had {
    /// The number of the last slice in which it ran; 0: none yet.
    last: u64,
    /// Its place in the order of arrival.
    arrived: u64,
    /// How many times the time slice it leads for; at least 1.
    weight: u32,
}

/// The order of turns of all gangs of a machine.
#[derive(Clone, Debug, Default)]
pub struct Rotation {
    slices: u64,
    arrivals: u64,
    had: BTreeMap<Apid, Had>,
}

impl Rotation {
    /// A gang takes its place: it leads next in its component. No effect where it has one.
    pub fn add(&mut self, apid: Apid, weight: u32) {
        self.arrivals += 1;
        let had = Had { last: 0, arrived: self.arrivals, weight: weight.max(1) };
        self.had.entry(apid).or_insert(had);
    }

    /// A gang has gone.
    pub fn remove(&mut self, apid: Apid) {
        self.had.remove(&apid);
    }

    /// Another weight, from the next plan on.
    pub fn set_weight(&mut self, apid: Apid, weight: u32) {
        if let Some(had) = self.had.get_mut(&apid) {
            had.weight = weight.max(1);
        }
    }

    /// The same for these only.
    pub fn of(&self, members: &[Apid]) -> Rotation {
        let had = members.iter().filter_map(|apid| Some((*apid, *self.had.get(apid)?)));
        Rotation { slices: self.slices, arrivals: self.arrivals, had: had.collect() }
    }

    /// The members of a component in order of turn. Those without a place are left out.
    pub fn order(&self, members: &[Apid]) -> Vec<Apid> {
        let of = |apid: &Apid| self.had.get(apid).map(|had| (had.last, had.arrived, *apid));
        let mut order: Vec<_> = members.iter().filter_map(of).collect();
        order.sort_unstable();
        order.into_iter().map(|(_, _, apid)| apid).collect()
    }

    /// The next slice of a component.
    pub fn next(&self, competition: &Competition, members: &[Apid], slice: Duration) -> Slice {
        let party = party(competition, self.order(members));
        let weight = party.first().and_then(|leader| self.had.get(leader)).map_or(1, |h| h.weight);
        Slice { length: slice.saturating_mul(weight), party }
    }

    /// A slice has been run, or is taken as run.
    pub fn ran(&mut self, slice: &Slice) {
        self.slices += 1;
        for apid in &slice.party {
            if let Some(had) = self.had.get_mut(apid) {
                had.last = self.slices;
            }
        }
    }
}
