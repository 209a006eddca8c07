//! The line as a search sees it: *blocks*, rows of whole nodes that are alike, and single nodes that are
//! cut.
//!
//! ```text
//!   nodes of 4    | . . . . | . . A A | A A A A | A A A A | A . . .
//!   cells         [           ][                           ][     ]
//!   blocks        [    1    ][   2    ][        3         ][   4  ]
//! ```
//!
//! Between two searches one gang takes its place, or a few do: only the blocks of their nodes are made anew,
//! and joined to their neighbours where they are alike. They are the same as if all were made anew.

use super::block::Block;
use super::board::{Board, Cell, NOBODY};
use std::ops::Range;

impl Board<'_> {
    /// Joins cells to blocks where they have changed.
    pub fn blocks(&mut self) {
        if self.blocks.stale.is_empty() {
            return;
        }
        self.settle();
        let mut stale = std::mem::take(&mut self.blocks.stale);
        let mut old = std::mem::take(&mut self.blocks.known);
        let mut new = std::mem::take(&mut self.blocks.spare);
        stale.sort_unstable_by_key(|nodes| nodes.start);
        new.clear();
        new.reserve(self.cells.len());
        // Before `next` all is known, in `old` from `i` on what comes after it.
        let (mut i, mut next) = (0, 0);
        let mut ranges = stale.drain(..).peekable();
        while let Some(mut nodes) = ranges.next() {
            while let Some(more) = ranges.next_if(|more| more.start <= nodes.end) {
                nodes.end = nodes.end.max(more.end);
            }
            let stays = i + old[i..].partition_point(|block| block.end() <= nodes.start);
            self.append(&mut new, &old[i..stays]);
            i = stays;
            if let Some(cut) = old.get(i).filter(|block| block.at < nodes.start) {
                // (A block of several nodes is unbroken by NID.)
                let left = Block { nodes: nodes.start - cut.at, joins: true, ..*cut };
                self.append(&mut new, &[left]);
            }
            next = nodes.end;
            self.join(nodes, &mut new);
            i += old[i..].partition_point(|block| block.end() <= next);
            if let Some(cut) = old.get_mut(i).filter(|block| block.at < next) {
                (cut.nodes, cut.at) = (cut.end() - next, next);
            }
        }
        drop(ranges);
        debug_assert!(old.get(i).is_none_or(|block| block.at == next));
        self.append(&mut new, &old[i..]);
        self.blocks.stale = stale;
        self.blocks.made += 1;
        (self.blocks.known, self.blocks.spare) = (new, old);
    }

    /// How often the blocks were made anew: as often, they are the same.
    pub fn blocks_made(&self) -> u64 {
        self.blocks.made
    }

    /// The blocks of the line, as they were when [`Board::blocks`] was called.
    pub fn known_blocks(&self) -> &[Block] {
        &self.blocks.known
    }

    /// These come behind those, the first of them perhaps joined to the last.
    fn append(&self, to: &mut Vec<Block>, blocks: &[Block]) {
        let Some((first, others)) = blocks.split_first() else { return };
        match to.last_mut() {
            Some(last) if last.is_as(first) && self.same_room(last.at, first.at) => {
                last.nodes += first.nodes;
                last.joins = first.joins;
            }
            _ => to.push(*first),
        }
        to.extend_from_slice(others);
    }

    /// The blocks of these nodes, behind those of the nodes before them.
    fn join(&self, nodes: Range<usize>, blocks: &mut Vec<Block>) {
        let (line, first) = (self.line(), self.occupancy.first());
        let mut at = nodes.start;
        let from = first.get(at).copied().unwrap_or(0) as u32;
        let mut cell = self.cells.partition_point(|cell| cell.end <= from);
        while at < nodes.end {
            let start = first[at] as u32;
            let processors = line[at].processors;
            while self.cells[cell].end <= start {
                cell += 1;
            }
            let here = &self.cells[cell];
            if here.end < start + processors {
                blocks.push(self.mixed(at, &self.cells[cell..]));
                at += 1;
                continue;
            }
            // Nodes as this one, as far as the cell goes.
            let alike = (self.occupancy.alike()[at] - at)
                .min(((here.end - start) / processors.max(1)) as usize)
                .min(nodes.end - at)
                .max(1);
            let alike = match self.told_apart {
                true => {
                    let room = self.room_of(at);
                    (1..alike).find(|i| self.room_of(at + i) != room).unwrap_or(alike)
                }
                false => alike,
            };
            let last = at + alike - 1;
            let taken = here.taken != NOBODY;
            let all = if here.usable { processors } else { 0 };
            let block = Block {
                at,
                nodes: alike,
                all,
                free: if taken { 0 } else { all },
                idle: if taken || here.runner != NOBODY { 0 } else { all },
                taken: here.taken,
                runner: if taken { NOBODY } else { here.runner },
                sit: self.sit(at),
                mixed: false,
                joins: self.joins(last),
            };
            // (A cell may end where nothing else does.)
            self.append(blocks, &[block]);
            at += alike;
        }
    }

    fn joins(&self, at: usize) -> bool {
        let line = self.line();
        line.get(at + 1).is_some_and(|next| next.nid.0 - line[at].nid.0 == 1)
    }

    /// Of a node with these cells, and others behind it.
    fn mixed(&self, at: usize, cells: &[Cell]) -> Block {
        let node = self.node(at);
        let mut block = Block {
            at,
            nodes: 1,
            idle: 0,
            free: 0,
            all: 0,
            taken: NOBODY,
            runner: NOBODY,
            sit: self.sit(at),
            mixed: true,
            joins: self.joins(at),
        };
        for cell in cells.iter().take_while(|cell| cell.start < node.end) {
            let here = cell.end.min(node.end) - cell.start.max(node.start);
            if cell.usable {
                block.all += here;
                if cell.taken == NOBODY {
                    block.free += here;
                    block.idle += if cell.runner == NOBODY { here } else { 0 };
                }
            }
        }
        block
    }

    /// All of them made anew.
    #[cfg(test)]
    pub fn blocks_anew(&self) -> Vec<Block> {
        let mut blocks = Vec::new();
        self.join(0..self.line().len(), &mut blocks);
        blocks
    }
}
