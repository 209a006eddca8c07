//! The line while it is packed: which processors are taken, by whom, and who runs on the others.
//!
//! On a large machine nobody looks at every processor. The line is cut into *cells*, stretches of
//! processors that are in one state; there are about as many as gangs run. For a search they are
//! joined to *blocks*: rows of whole nodes that are alike, and single nodes that are cut.
//!
//! ```text
//!   nodes of 4    | . . . . | . . A A | A A A A | A A A A | A . . .
//!   cells         [           ][                           ][     ]
//!   blocks        [    1    ][   2    ][        3         ][   4  ]
//! ```

use super::{Candidate, Now, Seat};
use crate::machine::Nid;
use crate::occupancy::{Occupancy, Slot, Terms};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Nobody, where a candidate is named by its place in the order.
pub(super) const NOBODY: u32 = u32::MAX;

/// How somebody finds its home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Home {
    /// Nobody has taken any of it.
    Free,
    /// Only those have who are on their way there.
    Coming,
    /// It is taken.
    Taken,
}

/// Processors in one state.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cell {
    pub start: u32,
    pub end: u32,
    /// Who has taken them.
    pub taken: u32,
    /// Who runs there, and has not had its turn in the order yet.
    pub runner: u32,
    /// Somebody new may sit there.
    pub usable: bool,
}

/// Nodes in a row that are alike, each of them wholly in one state, with room for the same; or one that
/// is not.
#[derive(Clone, Copy, Debug)]
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
    /// It is one node with cells of several kinds.
    pub mixed: bool,
    /// The node after the last is the next by its NID.
    pub joins: bool,
}

#[derive(Debug)]
pub(super) struct Board<'a> {
    pub occupancy: &'a Occupancy,
    order: &'a [Candidate<'a>],
    cells: Vec<Cell>,
    blocks: Vec<Block>,
    /// The blocks are those of the cells.
    joined: bool,
    free: u64,
    roll_out: bool,
    /// Bytes of those who have taken processors of a node, where not everybody fits at once, or memory
    /// can be rolled out.
    used: BTreeMap<usize, u64>,
    /// Those of them who do not sit there yet: their bytes are not promised yet.
    new: BTreeMap<usize, u64>,
    /// Nodes with the same processors may have room for different numbers of PEs.
    told_apart: bool,
}

impl<'a> Board<'a> {
    pub fn new(
        occupancy: &'a Occupancy,
        order: &'a [Candidate<'a>],
        kept: &BTreeSet<Nid>,
        roll_out: bool,
    ) -> Board<'a> {
        let line = occupancy.line();
        let processors = match (occupancy.first().last(), line.last()) {
            (Some(first), Some(slot)) => *first as u32 + slot.processors,
            _ => 0,
        };
        let all = Cell { start: 0, end: processors, taken: NOBODY, runner: NOBODY, usable: true };
        let mut board = Board {
            occupancy,
            order,
            cells: vec![all],
            blocks: Vec::new(),
            joined: false,
            free: u64::from(processors),
            roll_out,
            used: BTreeMap::new(),
            new: BTreeMap::new(),
            told_apart: occupancy.memory_known() || order.iter().any(|c| c.wanted.exclusive),
        };
        board.cut_runners();
        let kept =
            kept.iter().filter_map(|nid| line.binary_search_by_key(nid, |slot| slot.nid).ok());
        let mut wall = 0..0;
        for at in occupancy.notable().shut.iter().copied().chain(kept) {
            let node = board.node(at);
            if node.start == wall.end {
                wall.end = node.end;
            } else {
                board.wall(std::mem::replace(&mut wall, node));
            }
        }
        board.wall(wall);
        let most = occupancy.rules().highest_level();
        for at in &occupancy.notable().full {
            for (p, residents) in board.node(*at).zip(occupancy.residents(*at)) {
                // (With a resident that shares with nobody it is more than any level.)
                if u32::from(*residents) > most && !(roll_out && *residents < 0x80) {
                    board.wall(p..p + 1);
                }
            }
        }
        board
    }

    /// The cells of those who run. They share no processor, for they run.
    fn cut_runners(&mut self) {
        let mut running: Vec<(u32, u32, u32)> = Vec::new();
        for (number, candidate) in (0..).zip(self.order) {
            if let Some(home) = candidate.home.filter(|_| candidate.now == Now::Runs) {
                running.extend(home.runs.iter().map(|run| (run.start, run.end, number)));
            }
        }
        running.sort_unstable();
        let end = self.cells[0].end;
        let cell = |start, end, runner| Cell { start, end, taken: NOBODY, runner, usable: true };
        let mut cells = Vec::with_capacity(2 * running.len() + 1);
        let mut known = 0;
        for (start, stop, number) in running {
            let start = start.max(known);
            if start > known {
                cells.push(cell(known, start, NOBODY));
            }
            if stop > start {
                cells.push(cell(start, stop, number));
                known = stop;
            }
        }
        if known < end || cells.is_empty() {
            cells.push(cell(known, end, NOBODY));
        }
        self.cells = cells;
    }

    /// Nobody new may sit there.
    fn wall(&mut self, range: Range<u32>) {
        let cells = self.cut(&range);
        for cell in self.cells.get_mut(cells).into_iter().flatten() {
            if std::mem::replace(&mut cell.usable, false) && cell.taken == NOBODY {
                self.free -= u64::from(cell.end - cell.start);
            }
        }
    }

    /// Nobody new sits on these nodes from now on.
    pub fn keep(&mut self, nids: BTreeSet<Nid>) {
        let line = self.line();
        for at in nids.iter().filter_map(|n| line.binary_search_by_key(n, |slot| slot.nid).ok()) {
            self.wall(self.node(at));
        }
    }

    /// The cells of a range, which is cut out of them.
    fn cut(&mut self, range: &Range<u32>) -> Range<usize> {
        self.joined = false;
        let first = self.split(range.start);
        let last = self.split(range.end);
        first..last
    }

    /// The first cell from this processor on, with an edge there.
    fn split(&mut self, at: u32) -> usize {
        let i = self.cells.partition_point(|cell| cell.end <= at);
        match self.cells.get_mut(i) {
            Some(cell) if cell.start < at => {
                let rest = Cell { start: at, ..*cell };
                cell.end = at;
                self.cells.insert(i + 1, rest);
                i + 1
            }
            _ => i,
        }
    }

    /// The cells that a range touches.
    fn touched(&self, range: &Range<u32>) -> &[Cell] {
        let first = self.cells.partition_point(|cell| cell.end <= range.start);
        let last = self.cells.partition_point(|cell| cell.start < range.end);
        &self.cells[first..last.max(first)]
    }

    /// The processors of a node.
    fn node(&self, at: usize) -> Range<u32> {
        let first = self.occupancy.first()[at] as u32;
        first..first + self.line()[at].processors
    }

    pub fn line(&self) -> &'a [Slot] {
        self.occupancy.line()
    }

    /// Processors that can be taken.
    pub fn free_processors(&self) -> u64 {
        self.free
    }

    /// Candidates.
    pub fn candidates(&self) -> usize {
        self.order.len()
    }

    /// Whose order it is, of those whom a cell names.
    pub fn candidate(&self, number: u32) -> Option<&'a Candidate<'a>> {
        self.order.get(number as usize)
    }

    pub fn at_home(&self, at: usize, home: &Seat) -> Home {
        let mut coming = false;
        for cell in home.runs.iter().flat_map(|run| self.touched(run)) {
            match self.candidate(cell.taken) {
                None => {}
                Some(by) if by.now == Now::Comes => coming = true,
                Some(_) => return Home::Taken,
            }
        }
        if !self.occupancy.notable().tight.is_empty() && !self.memory_fits(at) {
            return Home::Taken;
        }
        if coming { Home::Coming } else { Home::Free }
    }

    /// Its memory fits beside that of those taken; or it is alone there: it was admitted.
    fn memory_fits(&self, at: usize) -> bool {
        let tight = &self.occupancy.notable().tight;
        self.occupancy.held(self.order[at].apid).iter().all(|held| {
            let used = self.used.get(&held.at).copied().unwrap_or(0);
            let memory = self.line()[held.at].memory;
            !tight.contains(&held.at) || used == 0 || used.saturating_add(held.memory) <= memory
        })
    }

    /// It takes what of the seat nobody has taken.
    pub fn take(&mut self, at: usize, seat: &Seat) {
        self.give(NOBODY, at as u32, seat);
        self.charge(at, seat, true);
    }

    /// As it was before [`Board::take`].
    pub fn leave(&mut self, at: usize, seat: &Seat) {
        self.give(at as u32, NOBODY, seat);
        self.charge(at, seat, false);
    }

    /// Processors of a seat change hands; of one who would share its nodes with nobody, all of them.
    fn give(&mut self, from: u32, to: u32, seat: &Seat) {
        let exclusive = |one| self.candidate(one).is_some_and(|one| one.wanted.exclusive);
        let runs = match exclusive(from) || exclusive(to) {
            true => Cow::Owned(seat.nodes.iter().map(|(at, ..)| self.node(*at as usize)).collect()),
            false => Cow::Borrowed(&seat.runs),
        };
        for run in runs.iter() {
            let cells = self.cut(run);
            for cell in &mut self.cells[cells] {
                if cell.taken != from {
                    continue;
                }
                cell.taken = to;
                let processors = u64::from(cell.end - cell.start);
                match (cell.usable, to) {
                    (false, _) => {}
                    (true, NOBODY) => self.free += processors,
                    (true, _) => self.free -= processors,
                }
            }
        }
    }

    fn charge(&mut self, at: usize, seat: &Seat, more: bool) {
        let candidate = &self.order[at];
        let at_home = candidate.home == Some(seat);
        let counts = !self.occupancy.notable().tight.is_empty() || self.roll_out;
        if !counts && (at_home || !self.occupancy.memory_known()) {
            return;
        }
        let memory_per_pe = candidate.wanted.memory_per_pe;
        // Where it sits it counts with what is known of it.
        let known = if at_home { self.occupancy.held(candidate.apid) } else { &[] };
        for (i, (at, processors, pes)) in seat.nodes.iter().enumerate() {
            let at = *at as usize;
            let slot = &self.occupancy.line()[at];
            if slot.memory == 0 {
                continue;
            }
            let bytes = match known.get(i).filter(|held| held.at == at) {
                Some(held) => held.memory,
                None => slot.memory_of(memory_per_pe, *pes, *processors as usize),
            };
            let of = |used: &mut BTreeMap<usize, u64>| {
                let used = used.entry(at).or_default();
                *used = if more { used.saturating_add(bytes) } else { used.saturating_sub(bytes) };
            };
            of(&mut self.used);
            if !at_home {
                of(&mut self.new);
            }
        }
    }

    /// All of it in words, wherever the cells are cut.
    #[cfg(test)]
    pub fn state(&self) -> String {
        let of = |cell: &Cell| {
            let one = (cell.taken, cell.runner, cell.usable);
            std::iter::repeat_n(one, (cell.end - cell.start) as usize)
        };
        let line: Vec<_> = self.cells.iter().flat_map(of).collect();
        let used = self.used.iter().filter(|(_, bytes)| **bytes > 0).collect::<Vec<_>>();
        let new = self.new.iter().filter(|(_, bytes)| **bytes > 0).collect::<Vec<_>>();
        format!("{line:?} {} {used:?} {new:?}", self.free)
    }

    /// Its turn in the order is over: where it ran and does not any more nobody is displaced.
    pub fn passed(&mut self, at: usize) {
        let candidate = &self.order[at];
        let Some(home) = candidate.home.filter(|_| candidate.now == Now::Runs) else { return };
        self.joined = false;
        for run in &home.runs {
            let first = self.cells.partition_point(|cell| cell.end <= run.start);
            let here = self.cells[first..].iter_mut().take_while(|cell| cell.start < run.end);
            here.filter(|cell| cell.runner == at as u32).for_each(|cell| cell.runner = NOBODY);
        }
    }

    /// How many PEs of a kind a node has room for, of so many processors.
    pub fn pes(&self, at: usize, terms: &Terms, processors: u32) -> u32 {
        let slot = &self.line()[at];
        if terms.exclusive && slot.free.min(processors) < slot.processors {
            return 0;
        }
        slot.room(terms, processors, self.promised(at)).pes
    }

    /// Bytes of a node that are promised, by this decision too.
    fn promised(&self, at: usize) -> u64 {
        let of = |used: &BTreeMap<usize, u64>| used.get(&at).copied().unwrap_or(0);
        match self.roll_out {
            true => of(&self.used),
            false => self.line()[at].promised.saturating_add(of(&self.new)),
        }
    }

    /// Whether two nodes with the same processors have room for the same.
    fn same_room(&self, one: usize, other: usize) -> bool {
        let of = |at: usize| {
            let slot = &self.line()[at];
            (slot.memory, self.promised(at), slot.free < slot.processors)
        };
        !self.told_apart || of(one) == of(other)
    }

    /// The processors of a node, each with its cell.
    pub fn processors(&self, at: usize) -> impl Iterator<Item = (u32, &Cell)> {
        let node = self.node(at);
        self.touched(&node).iter().flat_map(move |cell| {
            (cell.start.max(node.start)..cell.end.min(node.end)).map(move |p| (p, cell))
        })
    }

    /// The processors of a node that so many are taken of: idle ones first, those with the fewest
    /// residents first; then those of who is displaced at the least cost.
    pub fn choose(&self, at: usize, count: u32, chosen: &mut Vec<u32>) {
        let first = self.occupancy.first()[at] as u32;
        if count == self.line()[at].processors {
            chosen.extend(first..first + count);
            return;
        }
        let residents = self.occupancy.residents(at);
        let of = |(p, cell): (u32, &Cell)| {
            let runner = self.candidate(cell.runner);
            let displaced = runner.map_or((0, 0), |runner| (1 + runner.displaced, cell.runner));
            (displaced, residents[(p - first) as usize], p)
        };
        let free = self.processors(at).filter(|(_, cell)| cell.usable && cell.taken == NOBODY);
        let mut order: Vec<_> = free.map(of).collect();
        order.sort_unstable();
        let from = chosen.len();
        chosen.extend(order.iter().take(count as usize).map(|(.., p)| *p));
        chosen[from..].sort_unstable();
    }

    /// Joins the cells to blocks, where they have changed.
    pub fn blocks(&mut self) {
        if !std::mem::replace(&mut self.joined, true) {
            let mut blocks = std::mem::take(&mut self.blocks);
            blocks.clear();
            self.join(&mut blocks);
            self.blocks = blocks;
        }
    }

    /// The blocks of the line, as they were when [`Board::blocks`] was called.
    pub fn known_blocks(&self) -> &[Block] {
        &self.blocks
    }

    fn join(&self, blocks: &mut Vec<Block>) {
        let (line, first) = (self.line(), self.occupancy.first());
        let mut at = 0;
        let mut cell = 0;
        while at < line.len() {
            let start = first[at] as u32;
            let processors = line[at].processors;
            while self.cells[cell].end <= start {
                cell += 1;
            }
            let here = &self.cells[cell];
            if here.end < start + processors {
                blocks.push(self.mixed(at, cell));
                at += 1;
                continue;
            }
            // Nodes as this one, as far as the cell goes.
            let nodes = (self.occupancy.alike()[at] - at)
                .min(((here.end - start) / processors.max(1)) as usize)
                .max(1);
            let nodes = match self.told_apart {
                true => (1..nodes).find(|i| !self.same_room(at, at + i)).unwrap_or(nodes),
                false => nodes,
            };
            let last = at + nodes - 1;
            let taken = here.taken != NOBODY;
            let all = if here.usable { processors } else { 0 };
            let block = Block {
                at,
                nodes,
                all,
                free: if taken { 0 } else { all },
                idle: if taken || here.runner != NOBODY { 0 } else { all },
                taken: here.taken,
                runner: if taken { NOBODY } else { here.runner },
                mixed: false,
                joins: line.get(last + 1).is_some_and(|next| next.nid.0 - line[last].nid.0 == 1),
            };
            at += nodes;
            match blocks.last_mut() {
                // (A cell may end where nothing else does.)
                Some(before) if before.is_as(&block) && self.same_room(before.at, block.at) => {
                    before.add(&block);
                }
                _ => blocks.push(block),
            }
        }
    }

    fn mixed(&self, at: usize, from: usize) -> Block {
        let (line, first) = (self.line(), self.occupancy.first()[at] as u32);
        let end = first + line[at].processors;
        let mut block = Block {
            at,
            nodes: 1,
            idle: 0,
            free: 0,
            all: 0,
            taken: NOBODY,
            runner: NOBODY,
            mixed: true,
            joins: line.get(at + 1).is_some_and(|next| next.nid.0 - line[at].nid.0 == 1),
        };
        for cell in self.cells[from..].iter().take_while(|cell| cell.start < end) {
            let here = cell.end.min(end) - cell.start.max(first);
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
}

impl Block {
    fn is_as(&self, other: &Block) -> bool {
        let of = |b: &Block| (b.idle, b.free, b.all, b.taken, b.runner, b.mixed);
        !self.mixed && self.joins && of(self) == of(other)
    }

    fn add(&mut self, other: &Block) {
        self.nodes += other.nodes;
        self.joins = other.joins;
    }
}
