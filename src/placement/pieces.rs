//! Pieces: where a flexible application goes that finds no window.
//!
//! # The problem
//!
//! A line has processors enough, in gaps none of which is wide enough. An application whose PEs need no
//! neighbours can have them now, if it goes to several gaps; but each of its pieces stands in somebody's way,
//! for it is not moved ([`super::packing`], [`super::migration`]).
//!
//! # The rule
//!
//! So it is in as few pieces as may be. Whole gaps are taken, those with room for the most PEs first, of equal
//! ones the lowest; what is left of it goes, as soon as another gap has a window for that, where an application
//! of that width would go. Where a gap has a window for all of it that is the only piece: it is placed as if it
//! were not flexible. Levels and regions are tried in the same order too.
//!
//! ```text
//!   NID  0   1   2   3   4   5   6   7   8   9
//!        .   .   A   .   B   .   .   .   C   .      D has 6 PEs: NIDs 5-7 are taken, then 0-1, and 1 PE is
//!        D   D   A   D   B   D   D   D   C   .      left, for which NID 3 is the first of the smallest gaps
//! ```
//!
//! With `-N` a gap is what a window can lie in: nodes that hold N PEs each, and one behind them that holds fewer.
//! Of a gap that is taken only the former count; the latter may take the last PEs. So all its nodes are full
//! but one, which has the rest. PEs are numbered from the lowest node to the highest.
//!
//! # Cost
//!
//! One look at each node, an order of the gaps, and one search for a window.

use super::need::Need;
use super::window::adjacent;
use crate::occupancy::{Room, Slot, Terms};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

/// Nodes by their place on the line, ascending, each with its PEs.
pub(super) type Filled = Vec<(usize, u32)>;

/// How many PEs some nodes hold together, wherever they are.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    per_node: Option<u32>,
    /// PEs of those nodes of which any number can be used.
    full: u64,
    /// How many nodes hold so many PEs, and so fewer than -N: one of them can be used, as the last.
    parts: BTreeMap<u32, usize>,
}

impl Tally {
    /// Of these nodes.
    pub fn of(terms: &Terms, rooms: impl IntoIterator<Item = Room>) -> Tally {
        let mut tally = Tally { per_node: terms.per_node, full: 0, parts: BTreeMap::new() };
        rooms.into_iter().for_each(|room| tally.add(room));
        tally
    }

    /// A node more.
    pub fn add(&mut self, room: Room) {
        match self.per_node {
            Some(most) if room.pes < most => *self.parts.entry(room.pes).or_default() += 1,
            _ => self.full += u64::from(room.pes),
        }
    }

    /// A node less.
    pub fn take(&mut self, room: Room) {
        match self.per_node {
            Some(most) if room.pes < most => {
                if let Some(count) = self.parts.get_mut(&room.pes) {
                    *count -= 1;
                    if *count == 0 {
                        self.parts.remove(&room.pes);
                    }
                }
            }
            _ => self.full -= u64::from(room.pes),
        }
    }

    /// The largest width that they hold. They hold every smaller one too.
    pub fn holds(&self) -> u64 {
        self.full + self.parts.last_key_value().map_or(0, |(pes, _)| u64::from(*pes))
    }
}

/// The largest width that so much room holds.
pub(super) fn largest(terms: &Terms, rooms: impl IntoIterator<Item = Room>) -> u32 {
    u32::try_from(Tally::of(terms, rooms).holds()).unwrap_or(u32::MAX)
}

/// What a window can lie in.
struct Gap {
    /// Its nodes of which each is full where all are taken.
    full: Range<usize>,
    /// PEs of these.
    pes: u64,
    /// PEs of the one behind them that holds fewer than -N.
    part: u64,
}

/// Where it goes, of nodes with so much room: in one window, or in the fewest pieces. `window` is the window
/// that one of some width has, where there is one.
pub(super) fn fill(
    line: &[Slot],
    need: &Need,
    room: impl Fn(usize) -> Room,
    window: impl FnOnce(&Need, &dyn Fn(usize) -> Room) -> Option<Range<usize>>,
) -> Option<Filled> {
    let mut rooms: Vec<Room> = (0..line.len()).map(room).collect();
    if Tally::of(&need.terms, rooms.iter().copied()).holds() < need.width {
        return None;
    }
    let mut gaps = gaps(line, need.terms.per_node, &rooms);
    gaps.sort_by_key(|gap| (Reverse(gap.pes), gap.full.start));
    // The widest window of each gap and those after it.
    let mut widest: Vec<u64> = gaps.iter().map(|gap| gap.pes + gap.part).collect();
    for i in (1..widest.len()).rev() {
        widest[i - 1] = widest[i - 1].max(widest[i]);
    }
    // What is left of it, and the widest window on what is left of gaps that are taken.
    let (mut left, mut parts) = (*need, 0);
    let mut filled = Filled::new();
    for (gap, widest) in gaps.iter().zip(widest) {
        if widest.max(parts) >= left.width {
            break;
        }
        left.width -= gap.pes;
        parts = parts.max(gap.part);
        for at in gap.full.clone() {
            filled.push((at, std::mem::take(&mut rooms[at]).pes));
        }
    }
    let mut rest = left.width;
    for at in window(&left, &|at| rooms[at])? {
        let pes = u64::from(rooms[at].pes).min(rest) as u32;
        rest -= u64::from(pes);
        filled.push((at, pes));
    }
    filled.sort_unstable();
    (rest == 0).then_some(filled)
}

/// All gaps, from the left.
fn gaps(line: &[Slot], per_node: Option<u32>, rooms: &[Room]) -> Vec<Gap> {
    let mut gaps: Vec<Gap> = Vec::new();
    // Whether the last one goes on with this node.
    let mut open = false;
    for (at, room) in rooms.iter().enumerate() {
        open &= at > 0 && adjacent(line, at - 1);
        if room.pes == 0 {
            open = false;
            continue;
        }
        if !open {
            gaps.push(Gap { full: at..at, pes: 0, part: 0 });
        }
        let Some(gap) = gaps.last_mut() else { continue };
        open = per_node.is_none_or(|most| most == room.pes);
        match open {
            true => {
                gap.full.end = at + 1;
                gap.pes += u64::from(room.pes);
            }
            false => gap.part = u64::from(room.pes),
        }
    }
    gaps
}

/// Every node that it could have, in rows.
pub(super) fn usable(
    line: &[Slot],
    need: &Need,
    room: impl Fn(usize) -> Room,
) -> Vec<Range<usize>> {
    let rooms = || (0..line.len()).map(&room);
    if Tally::of(&need.terms, rooms()).holds() < need.width {
        return Vec::new();
    }
    let most = need.terms.per_node.map_or(1, u64::from);
    // PEs of the node that is not full.
    let rest = (need.width - 1) % most + 1;
    let of_use = |pes: u64| pes >= rest || pes >= most && need.width > most;
    let at_all = |(_, room): &(usize, Room)| room.pes > 0 && of_use(u64::from(room.pes));
    rooms().enumerate().filter(at_all).map(|(at, _)| at..at + 1).collect()
}
