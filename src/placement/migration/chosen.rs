//! Where applications go that an administrator moves.
//!
//! [`elsewhere`] finds one application another place: on the nodes that are named, or on any but its own.
//! [`compacted`] brings those who can be moved together at the low end of some nodes, so that what is free is
//! in one piece:
//!
//! ```text
//!   NID  0123456789             0123456789
//!        A..BB.C.DD    ->       ABBCDD....
//! ```
//!
//! Each goes, in the order in which they sit, to the first nodes from the left where it fits in its
//! shape on processors that are free, and only where that is further to the left. Applications
//! that can't be moved stay where they are. Where processors may be shared no application is
//! brought on another's: what is free is to be more, not what waits. An application that is to go
//! elsewhere has a place on free processors, if there is one, before one where the fewest sit.
//! Neither asks what the gate allows: the administrator knows what the moves are for.

use super::scratch::Scratch;
use super::{Mover, Situation, Target};
use crate::apteam::Apid;
use crate::apteam::place::PlacementList;
use crate::machine::Nid;
use std::collections::BTreeSet;

/// A place for an application on these nodes, on all of them; `None`: on any others than those where it sits.
/// Of its own nodes, old and new, those are taken that `may` allows. `None` is answered where there is none.
pub fn elsewhere(
    situation: &Situation,
    apid: Apid,
    nodes: Option<&BTreeSet<Nid>>,
    may: impl Fn(Nid) -> bool,
) -> Option<PlacementList> {
    let mut scratch = Scratch::new(*situation);
    let mover = scratch.mover(apid)?;
    let own: BTreeSet<Nid> = mover.places.nids().collect();
    let piece = scratch.piece(apid, mover);
    if nodes.is_some_and(|nodes| nodes.len() != piece.pes.len()) {
        return None;
    }
    scratch.lift(apid);
    let line: Vec<Nid> = scratch.occupancy.line().iter().map(|slot| slot.nid).collect();
    let wanted = |at: usize| {
        let nid = line[at];
        may(nid)
            && match nodes {
                Some(nodes) => nodes.contains(&nid),
                None => !own.contains(&nid),
            }
    };
    let start = scratch.best_fit(&piece, wanted)?;
    Some(scratch.list(start, &piece))
}

/// Where everybody goes who is to go further to the left among these nodes, on processors that are free then.
pub fn compacted(
    situation: &Situation,
    nodes: &BTreeSet<Nid>,
    may: impl Fn(Apid, Nid) -> bool,
) -> Vec<Target> {
    let mut scratch = Scratch::new(*situation);
    let sits = |mover: &Mover| mover.places.nids().all(|nid| nodes.contains(&nid));
    let mut movers: Vec<(Apid, &Mover)> = situation
        .movers
        .iter()
        .filter(|(_, mover)| !mover.stays && sits(mover))
        .filter_map(|(apid, _)| Some((*apid, scratch.mover(*apid)?)))
        .collect();
    movers.sort_by_key(|(apid, mover)| (mover.places.nids().min(), *apid));
    let mut targets = Vec::new();
    for (apid, mover) in movers {
        let mut piece = scratch.piece(apid, mover);
        piece.terms.level = 0;
        let first = mover.places.nids().min();
        let Some(home) = first.and_then(|nid| scratch.at(nid)) else { continue };
        scratch.lift(apid);
        let line = scratch.occupancy.line();
        let inside = |start: usize| {
            let of = start..start + piece.pes.len();
            of.into_iter()
                .all(|at| line.get(at).is_some_and(|s| nodes.contains(&s.nid) && may(apid, s.nid)))
        };
        let start = (0..home).find(|start| inside(*start) && scratch.fits_all(*start, &piece));
        let to = start.map(|at| scratch.list(at, &piece));
        // (That it fits was just seen.)
        match to.filter(|to| scratch.seat(apid, mover, to)) {
            Some(to) => targets.push(Target { apid, to }),
            None => scratch.seat_back(apid, mover, &mover.places),
        }
    }
    targets
}
