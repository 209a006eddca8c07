//! Where: the window of contiguous nodes for an application.
//!
//! # The problem
//!
//! A tightly coupled program wants its PEs near each other, so its nodes have consecutive NIDs: a
//! *window* on the line of nodes. Many windows may do. Which one is taken decides how soon the
//! next wide program finds room: a line with its free processors in crumbs holds nothing wide.
//!
//! # The rules
//!
//! A node is *usable* for a posting when it has flavor `ap`, is open, is not kept
//! for somebody else, and has room for at least one PE: as many as its processors at this level
//! (below) and its memory hold, at most `-N`. A window is a set of usable nodes with consecutive
//! NIDs, filled from the left:
//!
//! - with `-N`, every node has exactly N PEs but the last, which has the rest;
//! - without, every node has as many PEs as it holds but the last, which has the rest.
//!
//! So at each first node there is one window at most. Free processors come first (level 0). Of all
//! windows on these, that one is taken which
//!
//! 1. leaves the fewest free processors on its own nodes,
//! 2. lies in the smallest gap: the unbroken run of usable nodes around it with the fewest free
//!    processors,
//! 3. has the fewest nodes,
//! 4. begins at the lowest NID.
//!
//! (That is the best fit. `application.allocator` has other rules: [`allocator`].)
//!
//! Where there is none, and applications may share processors (`max_resident` is more than 1), the
//! application is placed over others, on processors that have one resident at most, or else two at
//! most, and so on (levels 1, 2, ...). Of all windows of such a level that one is taken which
//!
//! 1. has the fewest residents on the processors taken, in sum,
//! 2. has the fewest applications on its nodes (one in pieces counts for each),
//! 3. has the fewest nodes,
//! 4. begins at the lowest NID.
//!
//! On a machine with regions all of that holds within one of them: at each level those are tried in which
//! the application is let in, in their order, and then, where none of them could hold it if it were empty,
//! all of them together ([`crate::machine::Reach`]). One that has chosen its nodes looks at these only
//! ([`try_place_among`]).
//!
//! A flexible application takes pieces where there is no window, at the same level and in the same regions
//! ([`pieces`]).
//!
//! On its nodes an application gets the processors with the fewest residents, of these the lowest,
//! PE by PE.
//!
//! # Example
//!
//! Six nodes of four processors; a letter is an application's processor, a dot is free. Three PEs
//! (application C) could go to NIDs 0, 1, 3 or 4. On NID 1 nothing is left over, so they go there,
//! although NID 0 comes first. Then D wants 12 processors, and takes turns with two others:
//!
//! ```text
//!   NID  0    1    2    3    4    5               0    1    2    3    4    5
//!        .... A... BBBB .... .... BBBB    ->      .... ACCC BBBB .... .... BBBB
//!                                         ->      DDDD ACCC BBBB .... .... BBBB
//!                                                      DDDD DDDD
//! ```
//!
//! # Memory
//!
//! With `-m` an application counts with so much for each PE. Without, it counts on each processor
//! with an equal part of the node's memory, so that `max_resident` of them fit on every one; and where others sit
//! it is placed only if a sixteenth of the memory is left, for nobody knows yet how it grows. What is
//! promised on a node never exceeds its memory times `memory_overcommit`, by placement: a variable
//! that is lowered, or a measured peak, takes nothing away.
//!
//! # Cost
//!
//! [`try_place`] asks the index of occupancy, and weighs a bounded number of windows: on a machine
//! that has more, the best of those in the narrowest stretches that hold the posting. Whether there
//! is a window at all is always found out. Where nodes are kept for somebody, who has waited for
//! very long, it looks at every node. The reasons of a refusal (`why`) cost more: a scheduler that
//! only wants to know whether one of a thousand waiting postings fits leaves them out.

mod allocator;
mod explain;
#[cfg(test)]
mod golden;
mod layout_search;
pub mod migration;
mod need;
mod node_list;
#[cfg(test)]
mod oracle;
mod overlap_cost;
pub mod packing;
mod pieces;
mod possible;
mod sharing;
mod why;
mod window;

pub use explain::{NAMED_MAX, Shut};
pub use layout_search::{nearest_laid, try_place_laid};
pub use node_list::{only_among, try_place_among};
pub use possible::{Cure, Impossible, holds, possible};
pub use sharing::{Unshared, shared};

use crate::apteam::Apid;
use crate::apteam::place::{Place, PlacementList};
use crate::apteam::posting::Posting;
use crate::apteam::shape::Shape;
use crate::machine::{Nid, Reach, RegionSet};
use crate::occupancy::{Occupancy, Room, Rules, Slot, Terms};
use fixedbitset::FixedBitSet;
use need::Need;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ops::{ControlFlow, Range};

/// What is to be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// How many processors, and in what layout.
    pub shape: Shape,
    /// Bytes for each PE; `None`: the node's share for each processor.
    pub memory_per_pe: Option<u64>,
    /// Nodes on which nobody else sits, and nobody will.
    pub exclusive: bool,
    /// Its nodes need not be contiguous.
    pub flexible: bool,
    /// The regions to which it may go.
    pub reach: Reach,
}

/// By the posting alone: anywhere.
impl From<&Posting> for Wanted {
    fn from(posting: &Posting) -> Wanted {
        Wanted {
            shape: posting.placed_shape(),
            memory_per_pe: posting.placed_memory(),
            exclusive: posting.exclusive,
            flexible: posting.flexible,
            reach: Reach::ALL,
        }
    }
}

impl Wanted {
    /// What it needs at a level, of nodes of some regions.
    fn need(&self, level: u32, regions: RegionSet) -> Need {
        Need {
            width: u64::from(self.shape.width.max(1)),
            terms: Terms {
                exclusive: self.exclusive,
                regions,
                ..Terms::of(&self.shape, self.memory_per_pe, level)
            },
        }
    }

    /// What it needs, in the order in which it is looked for: free processors first, wherever it may go.
    fn needs(self, occupancy: &Occupancy) -> impl Iterator<Item = Need> + use<> {
        let levels = 0..=self.highest_level(occupancy);
        levels.flat_map(move |level| self.needs_at(level))
    }

    /// The same at one level.
    fn needs_at(self, level: u32) -> impl Iterator<Item = Need> {
        self.reach.sets().map(move |regions| self.need(level, regions))
    }

    /// The highest level at which it takes a place.
    fn highest_level(&self, occupancy: &Occupancy) -> u32 {
        if self.exclusive { 0 } else { self.rules(occupancy).highest_level() }
    }

    /// Those of its domain.
    fn rules(&self, occupancy: &Occupancy) -> Rules {
        occupancy.rules_in(self.reach.passes)
    }

    /// What it asks of nodes on which nobody sits, its width aside.
    pub fn terms_if_empty(&self, regions: RegionSet) -> Terms {
        self.need(0, regions).terms
    }

    /// The largest width of its kind that there is a place for, in what these nodes have room for. Every smaller
    /// one has a place too. Where `enough` or more is found, it is not looked for more.
    fn largest(
        &self,
        line: &[Slot],
        terms: &Terms,
        enough: u32,
        room: impl Fn(usize) -> Room,
    ) -> u32 {
        match self.flexible {
            true => pieces::largest(terms, (0..line.len()).map(room)),
            false => window::largest(line, terms, enough, room),
        }
    }

    fn with_shape(self, shape: Shape) -> Wanted {
        Wanted { shape, ..self }
    }
}

/// Why there is no place now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NoRoom {
    /// The shape.
    pub shape: Shape,
    /// It wants nodes on which nobody else sits.
    pub exclusive: bool,
    /// They need not be contiguous.
    pub flexible: bool,
    /// The largest width that fits now.
    pub largest_width_now: u32,
    /// Applications that may sit on one processor; 1 also where those in the way share with nobody.
    pub max_resident: u32,
    /// There are processors enough now, and too little memory on their nodes. Bytes that it counts
    /// with in all, on nodes like the first of the window; of one that says nothing of its memory at least the reserve.
    pub short_of_memory: Option<u64>,
    /// It says nothing of its memory.
    pub unsaid: bool,
    /// The window that needs the fewest applications to end before it fits: its nodes; or those of the pieces.
    /// Empty where the machine could not hold the shape at all.
    pub window: Vec<Nid>,
    /// Those applications, by number.
    pub holders: Vec<Apid>,
    /// Nodes of that window on which those applications are, except for the exclusive ones.
    pub held: Vec<Nid>,
    /// The holders that have all processors of their nodes to themselves (`-F exclusive`), by
    /// number.
    pub exclusive_holders: Vec<Apid>,
    /// All nodes of those, also outside the window.
    pub exclusively_held: Vec<Nid>,
    /// Nodes of that window that are closed (no apinit offers them, or an administrator has said so).
    pub closed: Vec<Nid>,
    /// Nodes of that window that are kept for a posting that has waited too long.
    pub kept: Vec<Nid>,
}

/// The best window now: contiguous NIDs, on free processors by `application.allocator`, else over the
/// fewest others; the lowest NID on ties. Nodes in `kept` are not used.
///
/// # Errors
/// What stands in the way.
pub fn place(
    occupancy: &mut Occupancy,
    wanted: &Wanted,
    kept: &BTreeSet<Nid>,
) -> Result<PlacementList, Box<NoRoom>> {
    try_place(occupancy, wanted, kept).ok_or_else(|| why::no_room(occupancy, wanted, kept))
}

/// As [`place`], without the reasons: much cheaper where there is no room.
pub fn try_place(
    occupancy: &mut Occupancy,
    wanted: &Wanted,
    kept: &BTreeSet<Nid>,
) -> Option<PlacementList> {
    let rules = wanted.rules(occupancy);
    if !kept.is_empty() {
        // What has no room if nothing is kept has none now.
        let mut most = wanted.needs_at(wanted.highest_level(occupancy));
        let has_room = |need: Need| {
            let ready = occupancy.ready(&need.terms);
            ready.is_some_and(|ready| ready.stretches(need.width).next().is_some())
        };
        if !wanted.flexible && !most.any(has_room) {
            return None;
        }
        return looked(occupancy, wanted, &Kept::new(occupancy.line(), kept));
    }
    for need in wanted.needs(occupancy) {
        let ready = occupancy.ready(&need.terms)?;
        if let Some(nodes) = allocator::best_ready(&ready, &need, rules) {
            return Some(list(occupancy, &need, nodes));
        }
        if wanted.flexible
            && let Some(nodes) = in_pieces(ready.occupancy, &need, |at| ready.room(at))
        {
            return Some(listed(occupancy, &need, nodes));
        }
    }
    None
}

/// The same, looking at every node.
fn looked(occupancy: &Occupancy, wanted: &Wanted, kept: &Kept) -> Option<PlacementList> {
    if !wanted.flexible {
        let (need, nodes) = exhaustive_but(occupancy, wanted, kept)?;
        return Some(list(occupancy, &need, nodes));
    }
    wanted.needs(occupancy).find_map(|need| {
        let nodes = in_pieces(occupancy, &need, room_now(occupancy, &need.terms, kept))?;
        Some(listed(occupancy, &need, nodes))
    })
}

/// Where one goes that is flexible, at a level and in some regions.
fn in_pieces(
    occupancy: &Occupancy,
    need: &Need,
    room: impl Fn(usize) -> Room,
) -> Option<pieces::Filled> {
    let window = |need: &Need, room: &dyn Fn(usize) -> Room| window_at(occupancy, need, room);
    pieces::fill(occupancy.line(), need, room, window)
}

/// Why there is no place now; `None`: there is one.
pub fn why_not(
    occupancy: &Occupancy,
    wanted: &Wanted,
    kept: &BTreeSet<Nid>,
) -> Option<Box<NoRoom>> {
    let marked = Kept::new(occupancy.line(), kept);
    let width = wanted.shape.width.max(1);
    let fits = |need: Need| {
        let room = room_now(occupancy, &need.terms, &marked);
        wanted.largest(occupancy.line(), &need.terms, width, room) >= width
    };
    let mut most = wanted.needs_at(wanted.highest_level(occupancy));
    (!most.any(fits)).then(|| why::no_room(occupancy, wanted, kept))
}

/// The best window, looking at every node, and the level that it is at.
fn exhaustive(
    occupancy: &Occupancy,
    wanted: &Wanted,
    kept: &BTreeSet<Nid>,
) -> Option<(Need, Range<usize>)> {
    exhaustive_but(occupancy, wanted, &Kept::new(occupancy.line(), kept))
}

fn exhaustive_but(
    occupancy: &Occupancy,
    wanted: &Wanted,
    kept: &Kept,
) -> Option<(Need, Range<usize>)> {
    wanted.needs(occupancy).find_map(|need| {
        let room = room_now(occupancy, &need.terms, kept);
        Some((need, window_at(occupancy, &need, room)?))
    })
}

/// The best window at a level.
fn window_at(
    occupancy: &Occupancy,
    need: &Need,
    room: impl Fn(usize) -> Room + Copy,
) -> Option<Range<usize>> {
    match need.terms.level {
        0 => allocator::best(occupancy.line(), need, room, occupancy.rules_in(need.terms.regions)),
        _ => window::best_over(occupancy, need, room),
    }
}

/// Every node that some window for it contains, or that it may have a piece on, where nobody sits on these
/// nodes and all of them take applications.
pub fn usable(line: &[Slot], wanted: &Wanted) -> BTreeSet<Nid> {
    // In order of NID: a set is made of them at once.
    let nids: Vec<Nid> =
        usable_runs(line, wanted).into_iter().flatten().map(|at| line[at].nid).collect();
    nids.into_iter().collect()
}

/// The same in rows, by their place on the line.
fn usable_runs(line: &[Slot], wanted: &Wanted) -> Vec<Range<usize>> {
    let add = |all: &mut Vec<Range<usize>>, nodes: Range<usize>| match all.last_mut() {
        Some(last) if nodes.start <= last.end => last.end = last.end.max(nodes.end),
        _ => all.push(nodes),
    };
    let in_set = |need: Need| {
        let room = |at: usize| room_if_empty(line, at, &need.terms);
        if wanted.flexible {
            return pieces::usable(line, &need, room);
        }
        let mut usable = Vec::new();
        for run in window::runs(line, room) {
            let _ = window::each(&need, room, run, |nodes, _| {
                add(&mut usable, nodes);
                ControlFlow::Continue(())
            });
        }
        usable
    };
    let mut usable: Vec<Range<usize>> = wanted.needs_at(0).flat_map(in_set).collect();
    // Regions may lie among each other.
    usable.sort_unstable_by_key(|nodes| nodes.start);
    let mut joined = Vec::with_capacity(usable.len());
    usable.into_iter().for_each(|nodes| add(&mut joined, nodes));
    joined
}

/// Kept nodes by their place on the line: each is looked at often.
struct Kept(FixedBitSet);

impl Kept {
    fn new(line: &[Slot], kept: &BTreeSet<Nid>) -> Kept {
        // Mostly nothing is.
        let mut marks = FixedBitSet::with_capacity(if kept.is_empty() { 0 } else { line.len() });
        let mut kept = kept.iter().peekable();
        for (at, slot) in line.iter().enumerate() {
            while kept.next_if(|nid| **nid < slot.nid).is_some() {}
            match kept.peek() {
                Some(nid) => marks.set(at, **nid == slot.nid),
                None => break,
            }
        }
        Kept(marks)
    }

    /// These too.
    fn add(&mut self, line: &[Slot], which: impl Fn(Nid) -> bool) {
        self.0.grow(line.len());
        for (at, _) in line.iter().enumerate().filter(|(_, slot)| which(slot.nid)) {
            self.0.insert(at);
        }
    }
}

/// What a node has room for now.
fn room_now<'a>(
    occupancy: &'a Occupancy,
    terms: &'a Terms,
    kept: &'a Kept,
) -> impl Fn(usize) -> Room + Copy + 'a {
    move |at| match kept.0.contains(at) {
        true => Room::default(),
        false => occupancy.room(at, terms),
    }
}

/// What a node would have room for if nobody sat anywhere and every node took applications.
fn room_if_empty(line: &[Slot], at: usize, terms: &Terms) -> Room {
    match &line[at] {
        slot if slot.application => slot.room(terms, slot.processors, 0),
        _ => Room::default(),
    }
}

/// The placement list of a window: filled from its first node on, whichever way that is.
fn list(occupancy: &Occupancy, need: &Need, nodes: impl Iterator<Item = usize>) -> PlacementList {
    let mut rest = need.width;
    let places = nodes.map(|at| {
        let pes = u64::from(occupancy.room(at, &need.terms).pes).min(rest) as u32;
        rest -= u64::from(pes);
        place_on(occupancy, &need.terms, at, pes)
    });
    PlacementList(places.collect())
}

/// The placement list of nodes with so many PEs each, in the order in which they stand.
fn listed(
    occupancy: &Occupancy,
    need: &Need,
    nodes: impl IntoIterator<Item = (usize, u32)>,
) -> PlacementList {
    let place = |(at, pes)| place_on(occupancy, &need.terms, at, pes);
    PlacementList(nodes.into_iter().map(place).collect())
}

/// So many PEs on a node: the processors with the fewest residents, these by number.
fn place_on(occupancy: &Occupancy, terms: &Terms, at: usize, pes: u32) -> Place {
    let count = pes as usize * terms.depth as usize;
    let processors = processors(occupancy, at, terms.level, count);
    Place { nid: occupancy.line()[at].nid, processors, pes }
}

/// So many processors of a node that have no more residents than the level says: those with the
/// fewest, of these the lowest.
fn processors(occupancy: &Occupancy, at: usize, level: u32, count: usize) -> Vec<u32> {
    let mut processors: Vec<u32> = Vec::with_capacity(count);
    for level in 0..=level {
        let here = (0..).zip(occupancy.residents(at)).filter(|(_, r)| u32::from(**r) == level);
        let more = count - processors.len();
        processors.extend(here.map(|(processor, _)| processor).take(more));
    }
    processors.sort_unstable();
    processors
}
