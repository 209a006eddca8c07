//! Rows of whole nodes that are alike.

use std::ops::Range;

/// Nodes in a row that are alike, each of them wholly in one state, with room for the same; or one that
/// is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// The first node.
    pub at: usize,
    /// How many.
    pub nodes: usize,
    /// Processors of each that can be taken, and on which nobody runs who may still be displaced.
    pub idle: u32,
    /// Processors of each that can be taken.
    pub free: u32,
    /// Processors of each that could, if nobody had taken them.
    pub all: u32,
    /// Who has taken them, and who runs there, where it is one.
    pub taken: u32,
    pub runner: u32,
    /// The most that sit on one of their processors, where that counts.
    pub sit: u16,
    /// It is one node with cells of several kinds.
    pub mixed: bool,
    /// The node after the last is the next by its NID.
    pub joins: bool,
}

impl Block {
    pub(super) fn is_as(&self, other: &Block) -> bool {
        let of = |b: &Block| (b.idle, b.free, b.all, b.taken, b.runner, b.sit, b.mixed);
        !self.mixed && self.joins && of(self) == of(other)
    }

    pub(super) fn end(&self) -> usize {
        self.at + self.nodes
    }
}

/// All blocks of the line, from the left, and of which nodes they are not those of its cells.
#[derive(Clone, Debug, Default)]
pub(super) struct Blocks {
    pub(super) known: Vec<Block>,
    pub(super) stale: Vec<Range<usize>>,
    /// How often they were made anew.
    pub(super) made: u64,
    /// Room for the next ones.
    pub(super) spare: Vec<Block>,
}

impl Blocks {
    /// Of a line of so many nodes none is known.
    pub fn forget(&mut self, nodes: usize) {
        self.known.clear();
        self.stale.clear();
        self.stale.push(0..nodes);
    }

    /// Cells of these nodes have changed, or what there is room for.
    pub fn changed(&mut self, nodes: impl IntoIterator<Item = Range<usize>>) {
        if !self.known.is_empty() {
            self.stale.extend(nodes);
        }
    }
}
