//! Placement on nodes that an application has chosen (`-L`, `-E`).
//!
//! # Problem
//! A list of nodes is one application's own, so the index of occupancy can't know it; and one that runs down
//! wants its ranks to begin at the high end.
//!
//! # Approach
//! Whoever has a list pays for it: every node is looked at. For ranks from the high end the line is looked at in
//! a mirror, in which each node's number is what is left of all numbers above it: windows are filled from its
//! left, by the same rules, and the list comes out from the highest node to the lowest.
//!
//! ```text
//!   -L 4-1 -n 5, nodes of 2      line    1:.. 2:.. 3:.. 4:..        mirror  4:.. 3:.. 2:.. 1:..
//!                                PEs        2 2  3 4  0 1                   0 1  2 3  4
//! ```
//!
//! In the mirror only the free processors are weighed; over others it is the first window from the high end.

use super::need::Need;
use super::window::{self};
use super::{Kept, Wanted, list, listed, pieces, room_now};
use crate::apteam::choice::Choice;
use crate::apteam::place::PlacementList;
use crate::machine::Nid;
use crate::occupancy::{Occupancy, Room, Slot};
use std::collections::BTreeSet;

/// As [`super::try_place`], on the nodes of a choice.
pub fn try_place_among(
    occupancy: &Occupancy,
    wanted: &Wanted,
    kept: &BTreeSet<Nid>,
    choice: &Choice,
) -> Option<PlacementList> {
    let line = occupancy.line();
    let mut marks = Kept::new(line, kept);
    marks.add(line, |nid| !choice.has(nid));
    match choice.downwards() {
        true => downwards(occupancy, wanted, &marks),
        false => super::looked(occupancy, wanted, &marks),
    }
}

fn downwards(occupancy: &Occupancy, wanted: &Wanted, kept: &Kept) -> Option<PlacementList> {
    let line = occupancy.line();
    let mirror: Vec<Slot> =
        line.iter().rev().map(|slot| Slot { nid: Nid(u32::MAX - slot.nid.0), ..*slot }).collect();
    let last = line.len().checked_sub(1)?;
    let window = |need: &Need, room: &dyn Fn(usize) -> Room| match need.terms.level {
        0 => window::best(&mirror, need, room),
        _ => window::first(&mirror, need, room),
    };
    wanted.needs(occupancy).find_map(|need| {
        let room = room_now(occupancy, &need.terms, kept);
        let room = |at: usize| room(last - at);
        if wanted.flexible {
            let nodes = pieces::fill(&mirror, &need, room, window)?.into_iter();
            return Some(listed(occupancy, &need, nodes.map(|(at, pes)| (last - at, pes))));
        }
        Some(list(occupancy, &need, window(&need, &room)?.map(|at| last - at)))
    })
}

/// A line on which only the nodes of a choice are for applications.
pub fn only_among(line: &[Slot], choice: &Choice) -> Vec<Slot> {
    let of = |slot: &Slot| Slot { application: slot.application && choice.has(slot.nid), ..*slot };
    line.iter().map(of).collect()
}
