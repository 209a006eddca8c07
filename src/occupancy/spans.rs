//! Unbroken stretches of nodes and what they add up to, kept up to date as nodes change.
//!
//! ```text
//!   PEs       4   4   1   4 | 0 | 4   4      with -N 4 only the last node of a window may have fewer
//!   runs      [-----------]       [-----]    usable nodes with consecutive NIDs
//!   stretches [-------] [-]       [-----]    the same, cut behind every node that is not full
//! ```
//!
//! A change of a few nodes touches the stretches that these nodes and their neighbours are in. What
//! a stretch adds up to comes from sums over blocks of nodes, so that cutting a long one costs no
//! walk along it.

use super::room::Room;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Nodes of a block, and blocks of a block of blocks.
const BLOCK: usize = 64;

/// What nodes add up to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    /// Processors to give away.
    pub processors: u64,
    /// PEs.
    pub pes: u64,
}

impl Sum {
    fn add(&mut self, processors: u64, pes: u64) {
        self.processors += processors;
        self.pes += pes;
    }

    fn exchange(&mut self, old: Room, new: Room) {
        let change = |sum: u64, old: u32, new: u32| sum - u64::from(old) + u64::from(new);
        self.processors = change(self.processors, old.processors, new.processors);
        self.pes = change(self.pes, old.pes, new.pes);
    }
}

/// The room of each node of a part of the line, outside of which there is none, and sums over any nodes in a
/// row.
#[derive(Debug)]
pub(super) struct Rooms {
    /// The first node, by its place on the line.
    first: usize,
    rooms: Vec<Room>,
    blocks: Vec<Sum>,
    /// Of blocks.
    blocks_of: Vec<Sum>,
}

impl Rooms {
    /// Of the nodes from the `first` on.
    pub fn new(first: usize, rooms: Vec<Room>) -> Rooms {
        let blocks: Vec<Sum> = rooms
            .chunks(BLOCK)
            .map(|block| {
                let mut sum = Sum::default();
                block.iter().for_each(|r| sum.add(r.processors.into(), r.pes.into()));
                sum
            })
            .collect();
        let blocks_of = blocks
            .chunks(BLOCK)
            .map(|blocks| {
                let mut sum = Sum::default();
                blocks.iter().for_each(|b| sum.add(b.processors, b.pes));
                sum
            })
            .collect();
        Rooms { first, rooms, blocks, blocks_of }
    }

    /// The nodes, by their places on the line.
    pub fn nodes(&self) -> Range<usize> {
        self.first..self.first + self.rooms.len()
    }

    /// The room of a node.
    pub fn at(&self, at: usize) -> Room {
        let room = at.checked_sub(self.first).and_then(|at| self.rooms.get(at));
        room.copied().unwrap_or_default()
    }

    /// Those nodes that have some, from the left.
    fn usable(&self) -> impl Iterator<Item = (usize, &Room)> {
        (self.first..).zip(&self.rooms).filter(|(_, room)| room.pes > 0)
    }

    /// Another one, of a node of this part.
    pub fn set(&mut self, at: usize, room: Room) {
        let at = at - self.first;
        let old = std::mem::replace(&mut self.rooms[at], room);
        self.blocks[at / BLOCK].exchange(old, room);
        self.blocks_of[at / (BLOCK * BLOCK)].exchange(old, room);
    }

    pub fn sum(&self, nodes: Range<usize>) -> Sum {
        let within = |at: usize| at.saturating_sub(self.first).min(self.rooms.len());
        let (mut at, end) = (within(nodes.start), within(nodes.end));
        let mut sum = Sum::default();
        while at < end {
            let whole = |size: usize| at.is_multiple_of(size) && at + size <= end;
            if whole(BLOCK * BLOCK) {
                let more = self.blocks_of[at / (BLOCK * BLOCK)];
                sum.add(more.processors, more.pes);
                at += BLOCK * BLOCK;
            } else if whole(BLOCK) {
                let more = self.blocks[at / BLOCK];
                sum.add(more.processors, more.pes);
                at += BLOCK;
            } else {
                let room = self.rooms[at];
                sum.add(room.processors.into(), room.pes.into());
                at += 1;
            }
        }
        sum
    }
}

/// Stretches by their first node, and by how many PEs they could take.
#[derive(Debug)]
pub(super) struct Spans {
    by_start: BTreeMap<usize, (usize, Sum)>,
    /// With first node and end. Nobody asks so for runs.
    by_pes: Option<BTreeSet<(u64, usize, usize)>>,
}

impl Spans {
    /// All there are; `goes_on` tells whether a usable node and the next one are in one stretch,
    /// `by_pes` whether [`Spans::with`] will be asked.
    pub fn new(rooms: &Rooms, by_pes: bool, goes_on: impl Fn(usize) -> bool) -> Spans {
        let mut found: Vec<(usize, (usize, Sum))> = Vec::new();
        let mut open = false;
        for (at, room) in rooms.usable() {
            if !open {
                found.push((at, (at, Sum::default())));
            }
            if let Some((_, (end, sum))) = found.last_mut() {
                *end = at + 1;
                sum.add(room.processors.into(), room.pes.into());
            }
            open = goes_on(at);
        }
        let by_pes = by_pes
            .then(|| found.iter().map(|(start, (end, sum))| (sum.pes, *start, *end)).collect());
        Spans { by_start: found.into_iter().collect(), by_pes }
    }

    /// Those around nodes whose rooms have changed: nodes of the part, one at least.
    pub fn update(
        &mut self,
        changed: &Range<usize>,
        rooms: &Rooms,
        goes_on: impl Fn(usize) -> bool,
    ) {
        // A neighbour's room is as it was, but it may be cut off or joined.
        let part = rooms.nodes();
        let first = changed.start.saturating_sub(1).max(part.start);
        let last = changed.end.min(part.end - 1);
        let (mut lowest, mut highest) = (first, last + 1);
        let before = self.by_start.range(..first).next_back().filter(|(_, (end, _))| *end > first);
        let touched = before.into_iter().chain(self.by_start.range(first..=last));
        let old: Vec<usize> = touched
            .map(|(start, (end, _))| {
                lowest = lowest.min(*start);
                highest = highest.max(*end);
                *start
            })
            .collect();
        old.into_iter().for_each(|start| self.remove(start));
        let mut start = None;
        for at in first..=last {
            if rooms.at(at).pes == 0 {
                continue;
            }
            let begin = start.take().unwrap_or(if at == first { lowest } else { at });
            if at < last && goes_on(at) {
                start = Some(begin);
            } else {
                let end = if at == last { highest } else { at + 1 };
                self.insert(begin..end, rooms.sum(begin..end));
            }
        }
    }

    fn insert(&mut self, nodes: Range<usize>, sum: Sum) {
        self.by_start.insert(nodes.start, (nodes.end, sum));
        if let Some(by_pes) = &mut self.by_pes {
            by_pes.insert((sum.pes, nodes.start, nodes.end));
        }
    }

    fn remove(&mut self, start: usize) {
        let Some((end, sum)) = self.by_start.remove(&start) else { return };
        if let Some(by_pes) = &mut self.by_pes {
            by_pes.remove(&(sum.pes, start, end));
        }
    }

    /// The stretch that a node is in, if it is usable.
    pub fn around(&self, at: usize) -> Option<(Range<usize>, Sum)> {
        let (start, (end, sum)) = self.by_start.range(..=at).next_back()?;
        (*end > at).then_some((*start..*end, *sum))
    }

    /// The stretches with so many PEs or more, those with the fewest first, then by place.
    pub fn with(&self, pes: u64) -> impl Iterator<Item = Range<usize>> + '_ {
        let from = self.by_pes.iter().flat_map(move |by_pes| by_pes.range((pes, 0, 0)..));
        from.map(|(_, start, end)| *start..*end)
    }

    /// All of them from the left, each with the PEs that it could take.
    pub fn by_place(&self) -> impl DoubleEndedIterator<Item = (Range<usize>, u64)> + '_ {
        self.by_start.iter().map(|(start, (end, sum))| (*start..*end, sum.pes))
    }

    #[cfg(test)]
    pub fn all(&self) -> Vec<(Range<usize>, Sum)> {
        self.by_start.iter().map(|(start, (end, sum))| (*start..*end, *sum)).collect()
    }
}
