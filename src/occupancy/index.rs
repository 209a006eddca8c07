//! The index: for each kind of PEs that was asked for of late, where room for them is.
//!
//! # The problem
//!
//! A machine may have a million nodes, and a posting wants an answer in microseconds. What a node
//! has room for depends on the depth, the count per node, the memory and the level that are asked
//! for ([`Terms`]); it does not depend on the width, which is the number most postings differ in.
//!
//! # The approach
//!
//! For each of the terms asked for of late there is an entry: the stretches of nodes that a window
//! can lie in, by how many PEs they have room for. The first question builds it in one pass over
//! the line. After that it follows the changes, which are kept in a log, at the next question: an
//! entry costs nothing while nobody asks. An entry that is further behind than the log goes back is
//! built anew, and of entries that are more than memory allows the one not asked for longest goes. An entry
//! for some regions has the nodes from the first of them to the last only, so that those of small regions
//! are small.

use super::room::{Room, Terms};
use super::spans::{Rooms, Spans};
use super::{Occupancy, Slot};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::ops::Range;

/// Changes that are remembered: beyond that it is cheaper to look at the whole of a small line, and
/// at a large one nobody has asked for long.
const LOG_MAX: usize = 4_096;
/// Entries: a few shapes at a few levels in a few regions.
const ENTRIES_MAX: usize = 64;
/// Of the whole line so many have room, however long it is.
const ENTRIES_MIN: usize = 12;
/// Nodes in all entries, unless these have more: some 20 bytes each.
const NODES_MAX: usize = 4_000_000;

/// The entries, and the log of changes that they follow.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Index {
    #[serde(skip)]
    log: VecDeque<Range<usize>>,
    /// Changes before those in the log.
    #[serde(skip)]
    forgotten: u64,
    /// The one asked for last at the end.
    #[serde(skip)]
    entries: Vec<Entry>,
    nodes_max: usize,
}

/// A copy answers the same questions, and builds anew what it needs for that.
impl Clone for Index {
    fn clone(&self) -> Index {
        Index { nodes_max: self.nodes_max, ..Index::default() }
    }
}

#[derive(Debug)]
struct Entry {
    terms: Terms,
    /// Changes that it has followed.
    followed: u64,
    rooms: Rooms,
    /// What windows lie in: with a count per node, cut behind nodes with fewer PEs.
    stretches: Spans,
    /// Usable nodes in a row, where the stretches are not that already.
    runs: Option<Spans>,
}

impl Index {
    pub fn new(nodes: usize) -> Index {
        let nodes_max = NODES_MAX.max(nodes.saturating_mul(ENTRIES_MIN));
        Index { nodes_max, ..Index::default() }
    }

    /// These nodes have changed.
    pub fn note(&mut self, nodes: Range<usize>) {
        if nodes.is_empty() || self.entries.is_empty() {
            return;
        }
        if self.log.len() >= LOG_MAX {
            self.log.pop_front();
            self.forgotten += 1;
        }
        self.log.push_back(nodes);
    }

    /// Those not asked for longest go, as far as they are too many beside this one.
    fn make_room_for(&mut self, new: &Entry) {
        let nodes = |entry: &Entry| entry.rooms.nodes().len();
        let mut all: usize = self.entries.iter().map(nodes).sum::<usize>() + nodes(new);
        let too_many =
            |at: usize, all: usize| self.entries.len() - at >= ENTRIES_MAX || all > self.nodes_max;
        let mut gone = 0;
        while gone < self.entries.len() && too_many(gone, all) {
            all -= nodes(&self.entries[gone]);
            gone += 1;
        }
        self.entries.drain(..gone);
    }

    /// Brings the entry for these terms up to date and puts it last.
    pub fn refresh(&mut self, terms: &Terms, occupancy: &Occupancy) {
        let now = self.forgotten + self.log.len() as u64;
        let known = self.entries.iter().position(|entry| entry.terms == *terms);
        let mut entry = match known.map(|i| self.entries.remove(i)) {
            Some(entry) if entry.followed >= self.forgotten => entry,
            _ => {
                let new = Entry::new(terms, now, occupancy);
                self.make_room_for(&new);
                new
            }
        };
        let missed = (entry.followed - self.forgotten) as usize;
        for nodes in merged(self.log.range(missed..)) {
            entry.follow(&nodes, occupancy);
        }
        entry.followed = now;
        self.entries.push(entry);
        // What all have followed is of no more use.
        let behind = self.entries.iter().map(|entry| entry.followed).min().unwrap_or(now);
        let done = behind.saturating_sub(self.forgotten) as usize;
        self.log.drain(..done);
        self.forgotten += done as u64;
    }
}

/// Joins ranges of nodes that overlap or touch: moves change the same nodes several times.
fn merged<'a>(ranges: impl Iterator<Item = &'a Range<usize>>) -> Vec<Range<usize>> {
    let mut all: Vec<Range<usize>> = ranges.cloned().collect();
    all.sort_unstable_by_key(|nodes| nodes.start);
    all.dedup_by(|next, nodes| {
        let joins = next.start <= nodes.end;
        if joins {
            nodes.end = nodes.end.max(next.end);
        }
        joins
    });
    all
}

/// Whether a node and the next one are in one run.
fn adjoin(line: &[Slot], rooms: &Rooms, at: usize) -> bool {
    rooms.at(at + 1).pes > 0 && line[at + 1].nid.0 - line[at].nid.0 == 1
}

impl Entry {
    fn new(terms: &Terms, now: u64, occupancy: &Occupancy) -> Entry {
        let line = occupancy.line();
        let is_among = |slot: &Slot| terms.regions.has(slot.region);
        let first = line.iter().position(is_among).unwrap_or(0);
        let end = line.iter().rposition(is_among).map_or(first, |last| last + 1);
        let rooms = (first..end).map(|at| occupancy.room(at, terms)).collect();
        let rooms = Rooms::new(first, rooms);
        let stretches = Spans::new(&rooms, true, |at| goes_on(line, &rooms, terms, at));
        let runs = terms.per_node.map(|_| Spans::new(&rooms, false, |at| adjoin(line, &rooms, at)));
        Entry { terms: *terms, followed: now, rooms, stretches, runs }
    }

    fn follow(&mut self, nodes: &Range<usize>, occupancy: &Occupancy) {
        let line = occupancy.line();
        let part = self.rooms.nodes();
        let nodes = nodes.start.max(part.start)..nodes.end.min(part.end);
        let mut same = true;
        for at in nodes.clone() {
            let room = occupancy.room(at, &self.terms);
            if room != self.rooms.at(at) {
                self.rooms.set(at, room);
                same = false;
            }
        }
        if same {
            return;
        }
        let (rooms, terms) = (&self.rooms, &self.terms);
        self.stretches.update(&nodes, rooms, |at| goes_on(line, rooms, terms, at));
        if let Some(runs) = &mut self.runs {
            runs.update(&nodes, rooms, |at| adjoin(line, rooms, at));
        }
    }
}

/// Whether a window with a usable node may go on to the next one.
fn goes_on(line: &[Slot], rooms: &Rooms, terms: &Terms, at: usize) -> bool {
    adjoin(line, rooms, at) && terms.per_node.is_none_or(|n| n == rooms.at(at).pes)
}

/// The index for some terms, up to date.
#[derive(Debug)]
pub struct Ready<'a> {
    /// What it is the index of.
    pub occupancy: &'a Occupancy,
    entry: &'a Entry,
}

impl<'a> Ready<'a> {
    /// What [`Index::refresh`] has put last.
    pub(super) fn new(occupancy: &'a Occupancy) -> Option<Ready<'a>> {
        Some(Ready { occupancy, entry: occupancy.index.entries.last()? })
    }

    /// The stretches that have windows for so many PEs, those with the least room first, then by
    /// NID. Every window lies in one stretch, and every stretch here has one.
    pub fn stretches(&self, width: u64) -> impl Iterator<Item = Range<usize>> + '_ {
        self.entry.stretches.with(width)
    }

    /// All stretches from the left, also those that have no windows for anybody, each with the PEs that it
    /// has room for.
    pub fn by_place(&self) -> impl DoubleEndedIterator<Item = (Range<usize>, u64)> + '_ {
        self.entry.stretches.by_place()
    }

    /// The run of usable nodes that a node is in, and the processors to give away there.
    pub fn gap(&self, at: usize) -> (Range<usize>, u64) {
        self.runs().around(at).map_or((at..at, 0), |(nodes, sum)| (nodes, sum.processors))
    }

    /// The processors to give away on some nodes, and the PEs for which there is room.
    pub fn sum(&self, nodes: Range<usize>) -> (u64, u64) {
        let sum = self.entry.rooms.sum(nodes);
        (sum.processors, sum.pes)
    }

    fn runs(&self) -> &'a Spans {
        self.entry.runs.as_ref().unwrap_or(&self.entry.stretches)
    }

    /// What a node has room for, by its place on the line.
    pub fn room(&self, at: usize) -> Room {
        self.entry.rooms.at(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apteam::Apid;
    use crate::apteam::place::{Place, PlacementList};
    use crate::machine::{Machine, Members, Nid, Node, Region, RegionSet};
    use crate::occupancy::{Claim, Rules};
    use proptest::prelude::*;

    /// Ten nodes with a gap between the NIDs of two of them, all but two in one of two regions.
    fn machine() -> Machine {
        let node = |nid: u32| Node { memory: 24, ..Node::plain(Nid(nid), 3) };
        let nodes = (0..10).map(|i| if i < 6 { i } else { i + 1 });
        let mut machine: Machine = nodes.map(node).collect();
        let region = |nids: &[u32]| Region {
            name: String::new(),
            domain: String::new(),
            members: Members::Nids(nids.iter().copied().map(Nid).collect()),
            gate: Default::default(),
        };
        machine.regions = vec![region(&[1, 2, 5, 7]), region(&[3, 4, 8, 9])];
        machine
    }

    prop_compose! {
        fn terms()(
            depth in 1u32..4,
            per_node in prop_oneof![Just(None), (1u32..4).prop_map(Some)],
            memory_per_pe in prop_oneof![Just(None), (0u64..13).prop_map(Some)],
            level in 0u32..4,
            regions in prop_oneof![
                Just(RegionSet::ALL),
                Just(RegionSet::of(0)),
                Just(RegionSet::of(1)),
                Just(RegionSet::of(0).with(1)),
            ],
        ) -> Terms {
            Terms {
                depth,
                per_node,
                memory_per_pe,
                level,
                exclusive: level == 0 && depth == 1,
                regions,
            }
        }
    }

    #[test]
    fn entries_go_by_the_nodes_that_they_have() {
        let mut occupancy = Occupancy::new(&machine(), Rules { max_resident: 4, ..Rules::PLAIN });
        occupancy.index.nodes_max = 24;
        let terms = |regions: RegionSet, level: u32| Terms {
            depth: 1,
            per_node: None,
            memory_per_pe: None,
            level,
            exclusive: false,
            regions,
        };
        let known = |occupancy: &Occupancy| -> Vec<(usize, u32)> {
            let entries = occupancy.index.entries.iter();
            entries.map(|entry| (entry.rooms.nodes().len(), entry.terms.level)).collect()
        };
        // From NID 1 to 7, from 3 to 9, and all.
        for (level, regions) in (0..).zip([RegionSet::of(0), RegionSet::of(1), RegionSet::ALL]) {
            occupancy.ready(&terms(regions, level)).expect("an entry");
        }
        assert_eq!(known(&occupancy), [(6, 0), (6, 1), (10, 2)]);
        occupancy.ready(&terms(RegionSet::of(0), 0)).expect("an entry");
        assert_eq!(known(&occupancy), [(6, 1), (10, 2), (6, 0)], "the one asked for last is last");
        // For ten more the two that were not asked for longest go.
        occupancy.ready(&terms(RegionSet::ALL, 3)).expect("an entry");
        assert_eq!(known(&occupancy), [(6, 0), (10, 3)]);
        for depth in 0..100 {
            let region = Terms { depth, ..terms(RegionSet::of(0), 0) };
            occupancy.ready(&region).expect("an entry");
        }
        assert_eq!(occupancy.index.entries.len(), 4);
        occupancy.index.nodes_max = 10_000;
        for depth in 0..100 {
            occupancy.ready(&Terms { depth, ..terms(RegionSet::ALL, 0) }).expect("an entry");
        }
        assert_eq!(occupancy.index.entries.len(), ENTRIES_MAX);
    }

    proptest! {
        /// An entry that has followed changes is as one that is built anew.
        #[test]
        fn what_is_followed_is_as_what_is_built(
            kinds in prop::collection::vec(terms(), 1..4),
            steps in prop::collection::vec((0u32..6, 0u64..6, 0u32..11, 0u32..4, 0u64..30), 0..40),
        ) {
            let rules = Rules { max_resident: 4, ..Rules::PLAIN };
            let mut occupancy = Occupancy::new(&machine(), rules);
            for (step, apid, nid, processors, bytes) in steps {
                match step {
                    0 => occupancy.release(Apid(apid)),
                    1 => occupancy.set_open(Nid(nid), bytes.is_multiple_of(3)),
                    2 => {
                        occupancy.set_memory(Apid(apid), Nid(nid), bytes);
                    }
                    _ => {
                        let places = (nid..(nid + processors).min(6)).map(|nid| Place {
                            nid: Nid(nid),
                            processors: (0..processors).collect(),
                            pes: 1,
                        });
                        let claim = Claim { shares: bytes > 3, memory_per_pe: None, exclusive: false };
                        // Where it may not sit, nothing changes, which is a step too.
                        let _ = occupancy.take(Apid(apid), &PlacementList(places.collect()), claim);
                    }
                }
                let terms = &kinds[step as usize % kinds.len()];
                let copy_of = occupancy.clone();
                let mut copy = occupancy.clone();
                let anew = copy.ready(terms).expect("an entry");
                let followed = occupancy.ready(terms).expect("an entry");
                let rooms = |of: &Ready| (0..10).map(|at| of.room(at)).collect::<Vec<_>>();
                prop_assert_eq!(rooms(&followed), rooms(&anew));
                let looked = |at: usize| copy_of.room(at, terms);
                prop_assert_eq!(rooms(&followed), (0..10).map(looked).collect::<Vec<_>>());
                prop_assert_eq!(followed.entry.stretches.all(), anew.entry.stretches.all());
                prop_assert_eq!(
                    followed.stretches(1).collect::<Vec<_>>(),
                    anew.stretches(1).collect::<Vec<_>>()
                );
                let runs = |ready: &Ready| ready.entry.runs.as_ref().map(Spans::all);
                prop_assert_eq!(runs(&followed), runs(&anew));
                let gaps = |ready: &Ready| (0..10).map(|at| ready.gap(at)).collect::<Vec<_>>();
                prop_assert_eq!(gaps(&followed), gaps(&anew));
                // Any nodes' sum is that of its nodes.
                let nodes = step as usize..10;
                let pes = nodes.clone().map(|at| u64::from(followed.room(at).pes));
                prop_assert_eq!(followed.sum(nodes).1, pes.sum::<u64>());
            }
        }
    }
}
