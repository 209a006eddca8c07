//! The last decision of who runs where, and what is known for the next.

use super::in_line::InLine;
use super::ranks::Ranks;
use super::rolled::Rolled;
use crate::apteam::place::Place;
use crate::apteam::record::Apteam;
use crate::apteam::{Apid, Incarnation};
use crate::occupancy::Occupancy;
use crate::placement::Wanted;
use crate::placement::packing::{self, Candidate, Seat};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Where an application sits, as packing sees it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::psched::decide) struct Seated {
    pub(super) incarnation: Incarnation,
    pub(super) seat: Seat,
    /// PEs on each of its nodes.
    pub(super) pes: Vec<u32>,
    pub(super) wanted: Wanted,
    /// When it was moved last.
    pub(super) moved_ns: Option<u64>,
}

/// The last decision, and what is known for the next.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(in crate::psched::decide) struct Decision {
    /// Who runs, in all domains.
    pub party: BTreeSet<Apid>,
    /// Who is being moved, or is rolled out: they have no turn.
    pub away: BTreeSet<Apid>,
    /// Those of them whose memory is out.
    pub(super) out: BTreeSet<Apid>,
    /// Whose memory was to go to swap while they keep their places.
    pub(super) rolled: BTreeMap<Apid, Rolled>,
    /// Applications that have a place beside others that run, and are not launched yet. Until then
    /// the ranks of their users count.
    #[serde(default)]
    pub(in crate::psched::decide) beside: BTreeSet<Apid>,
    /// When each was moved last.
    pub moved_ns: BTreeMap<Apid, u64>,
    /// Where each sits.
    pub seats: BTreeMap<Apid, Seated>,
    /// The places of users in the last decision.
    pub(super) ranks: Ranks,
    /// Room for the next.
    pub(super) line: Vec<InLine>,
    #[serde(skip)]
    pub(super) candidates: Vec<Candidate<'static>>,
    #[serde(skip)]
    pub(super) room: packing::Room,
}

impl Decision {
    /// Its memory has gone while it keeps its place, or is on its way.
    pub(in crate::psched::decide) fn is_rolled_out(&self, apid: Apid) -> bool {
        matches!(self.rolled.get(&apid), Some(Rolled::Out(_)))
    }

    /// Its memory is out.
    pub(in crate::psched::decide) fn is_out(&self, apid: Apid) -> bool {
        self.out.contains(&apid)
    }

    pub(in crate::psched::decide) fn forget(&mut self, apid: Apid) {
        self.party.remove(&apid);
        self.away.remove(&apid);
        self.out.remove(&apid);
        self.rolled.remove(&apid);
        self.seats.remove(&apid);
        self.moved_ns.remove(&apid);
    }
}

/// Where it sits, or is to sit once it has been moved.
pub(in crate::psched::decide) fn seated(
    occupancy: &Occupancy,
    team: &Apteam,
    wanted: Wanted,
    moved_ns: Option<u64>,
) -> Seated {
    // By place on the line, whichever way ranks go.
    let places = team.moves.to.as_ref().unwrap_or(&team.places);
    let mut sorted: Vec<&Place> = places.0.iter().collect();
    sorted.sort_unstable_by_key(|place| place.nid);
    let pes: Vec<u32> = sorted.iter().map(|place| place.placed()).collect();
    let seat = match team.moves.to.is_some() {
        // (It holds where it sits as well.)
        true => Seat::at(occupancy, &sorted, team.posting.exclusive),
        false => Seat::of(occupancy, team.apid, &pes),
    };
    Seated { incarnation: team.incarnation, seat, pes, wanted, moved_ns }
}
