//! The line while it is packed: which processors are taken, by whom, and who runs on the others.
//!
//! On a large machine nobody looks at every processor. The line is cut into *cells*, stretches of
//! processors that are in one state; there are about as many as gangs run. For a search they are
//! joined to *blocks* (`blocks.rs`).

use super::block::Blocks;
use super::scratch::Scratch;
use super::{Candidate, Now, Rules, SITS_MAX, Seat};
use crate::occupancy::{Occupancy, Slot, Terms};
use std::borrow::Cow;
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

/// What a decision works in, for the next to use again: it has room for what there is to note.
#[derive(Clone, Debug, Default)]
pub struct Room {
    cells: Vec<Cell>,
    blocks: Blocks,
    scratch: Scratch,
    homes: Vec<(u32, u32, u32)>,
    running: Vec<Running>,
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

#[derive(Debug)]
pub(super) struct Board<'a> {
    pub occupancy: &'a Occupancy,
    order: &'a [Candidate<'a>],
    pub(super) cells: Vec<Cell>,
    pub(super) blocks: Blocks,
    pub(super) scratch: Scratch,
    free: u64,
    /// Processors on which somebody new may sit.
    open: u64,
    roll_out: bool,
    /// Nobody is moved: it counts how many sit somewhere.
    stay: bool,
    /// Bytes of those who have taken processors of each node, where not everybody fits at once, or memory
    /// can be rolled out; empty where no memory is known.
    used: Vec<u64>,
    /// Those of them who do not sit there yet: their bytes are not promised yet.
    new: Vec<u64>,
    /// Nodes with the same processors may have room for different numbers of PEs, or it counts how many
    /// sit there.
    pub(super) told_apart: bool,
    /// How each of those who run is at home.
    running: Vec<Running>,
    /// Where they are, for a moment.
    homes: Vec<(u32, u32, u32)>,
    /// Some of them have stayed since the cells were looked at last.
    stayed: bool,
}

/// How one who runs is at home. Most stay there, and nobody looks at their cells for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Running {
    /// Nobody has touched it, and somebody new may sit on all of it.
    Untouched,
    /// It has taken it in its turn.
    Stayed,
    /// As its cells say.
    Other,
}

impl<'a> Board<'a> {
    pub fn new(
        occupancy: &'a Occupancy,
        order: &'a [Candidate<'a>],
        rules: &Rules,
        room: Room,
    ) -> Board<'a> {
        let Room { mut cells, mut blocks, mut scratch, homes, mut running } = room;
        let line = occupancy.line();
        let (roll_out, stay) = (rules.roll_out, rules.stay);
        let processors = match (occupancy.first().last(), line.last()) {
            (Some(first), Some(slot)) => *first as u32 + slot.processors,
            _ => 0,
        };
        let with_memory = if occupancy.memory_known() { line.len() } else { 0 };
        let all = Cell { start: 0, end: processors, taken: NOBODY, runner: NOBODY, usable: true };
        cells.clear();
        cells.push(all);
        blocks.forget(line.len());
        scratch.clear();
        running.clear();
        running.resize(order.len(), Running::Other);
        let mut board = Board {
            occupancy,
            order,
            cells,
            blocks,
            scratch,
            free: u64::from(processors),
            open: u64::from(processors),
            roll_out,
            stay,
            used: vec![0; with_memory],
            new: vec![0; with_memory],
            told_apart: stay
                || occupancy.memory_known()
                || order.iter().any(|c| c.wanted.exclusive),
            running,
            homes,
            stayed: false,
        };
        board.cut_runners();
        let shut = &occupancy.notable().shut;
        // (While a machine comes up almost every node is shut.)
        let mut walls: Vec<Range<u32>> = Vec::new();
        for node in shut.iter().map(|at| board.node(*at)) {
            match walls.last_mut() {
                Some(last) if last.end == node.start => last.end = node.end,
                _ => walls.push(node),
            }
        }
        let most = occupancy.rules_in(rules.domain).highest_level();
        // (With a resident that shares with nobody it is more than any level.)
        let over =
            |residents: &u16| u32::from(*residents) > most && !(roll_out && *residents < SITS_MAX);
        for at in &occupancy.notable().full {
            let first = board.node(*at).start;
            let residents = occupancy.residents(*at);
            let mut next = 0;
            while let Some(from) = residents[next..].iter().position(over) {
                let from = next + from;
                let to = residents[from..].iter().position(|r| !over(r));
                next = to.map_or(residents.len(), |to| from + to);
                walls.push(first + from as u32..first + next as u32);
            }
        }
        board.wall(walls);
        board
    }

    /// The cells of those who run. They share no processor, for they run.
    fn cut_runners(&mut self) {
        self.homes.clear();
        for (number, candidate) in (0..).zip(self.order) {
            if let Some(home) = candidate.home.filter(|_| candidate.now == Now::Runs) {
                self.homes.extend(home.runs.iter().map(|run| (run.start, run.end, number)));
                if !candidate.wanted.exclusive {
                    self.running[number as usize] = Running::Untouched;
                }
            }
        }
        self.homes.sort_unstable();
        let end = self.cells[0].end;
        let cell = |start, end, runner| Cell { start, end, taken: NOBODY, runner, usable: true };
        self.cells.clear();
        let mut known = 0;
        for (start, stop, number) in self.homes.iter().copied() {
            if start < known {
                self.running[number as usize] = Running::Other;
            }
            let start = start.max(known);
            if start > known {
                self.cells.push(cell(known, start, NOBODY));
            }
            if stop > start {
                self.cells.push(cell(start, stop, number));
                known = stop;
            }
        }
        if known < end || self.cells.is_empty() {
            self.cells.push(cell(known, end, NOBODY));
        }
    }

    /// What it has worked in.
    pub fn over(self) -> Room {
        let Board { cells, blocks, scratch, homes, running, .. } = self;
        Room { cells, blocks, scratch, homes, running }
    }

    /// Nobody new may sit there. All of it in one pass: there may be as many walls as nodes.
    fn wall(&mut self, mut walls: Vec<Range<u32>>) {
        walls.sort_unstable_by_key(|wall| wall.start);
        if walls.is_empty() || self.open == 0 {
            return;
        }
        self.settle();
        let mut cells: Vec<Cell> = Vec::with_capacity(self.cells.len() + walls.len());
        let mut walls = walls.into_iter().peekable();
        let (mut wall, mut at) = (0..0, 0);
        for cell in std::mem::take(&mut self.cells) {
            while at < cell.end {
                while wall.end <= at && walls.peek().is_some_and(|next| next.start <= at) {
                    wall = walls.next().unwrap_or(wall);
                }
                let walled = at < wall.end;
                let end = match walled {
                    true => wall.end,
                    false => walls.peek().map_or(u32::MAX, |next| next.start),
                };
                let piece = Cell { start: at, end: end.min(cell.end), ..cell };
                at = piece.end;
                let processors = u64::from(piece.end - piece.start);
                if walled && piece.usable {
                    touch(&mut self.running, piece.runner);
                    self.open -= processors;
                    self.free -= if piece.taken == NOBODY { processors } else { 0 };
                }
                let usable = piece.usable && !walled;
                match cells.last_mut() {
                    // (Walls that touch are one.)
                    Some(last) if walled && last.end > cell.start && !last.usable => last.end = at,
                    _ => cells.push(Cell { usable, ..piece }),
                }
            }
        }
        self.cells = cells;
    }

    /// Nobody new sits on these nodes from now on.
    pub fn keep(&mut self, nodes: impl FnOnce() -> Vec<Range<usize>>) {
        // (Mostly the first who waits for so long could use all of them.)
        if self.open == 0 {
            return;
        }
        let nodes = nodes();
        let walls = nodes.iter().filter(|nodes| !nodes.is_empty());
        let walls = walls.map(|n| self.node(n.start).start..self.node(n.end - 1).end);
        self.wall(walls.collect());
        self.blocks.changed(nodes);
    }

    /// Brings the cells of those up to date who have stayed where they run.
    pub(super) fn settle(&mut self) {
        if !std::mem::take(&mut self.stayed) {
            return;
        }
        for cell in &mut self.cells {
            if self.running.get(cell.runner as usize) == Some(&Running::Stayed) {
                (cell.taken, cell.runner) = (cell.runner, NOBODY);
            }
        }
    }

    /// The cells of a range, which is cut out of them.
    fn cut(&mut self, range: &Range<u32>) -> Range<usize> {
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
    pub(super) fn node(&self, at: usize) -> Range<u32> {
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

    pub fn at_home(&mut self, at: usize, home: &Seat) -> Home {
        let mut coming = false;
        if self.running[at] != Running::Untouched {
            self.settle();
            for cell in home.runs.iter().flat_map(|run| self.touched(run)) {
                match self.candidate(cell.taken) {
                    None => {}
                    Some(by) if by.now == Now::Comes => coming = true,
                    Some(_) => return Home::Taken,
                }
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
            let used = self.used.get(held.at).copied().unwrap_or(0);
            let memory = self.line()[held.at].memory;
            !tight.contains(&held.at) || used == 0 || used.saturating_add(held.memory) <= memory
        })
    }

    /// It takes what of its home nobody has taken.
    pub fn take_home(&mut self, at: usize, home: &Seat) {
        if self.running[at] != Running::Untouched {
            return self.take(at, home);
        }
        (self.running[at], self.stayed) = (Running::Stayed, true);
        self.blocks.changed(home.span());
        self.free -= home.width();
        self.charge(at, home, true);
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
        self.settle();
        let exclusive = |one| self.candidate(one).is_some_and(|one| one.wanted.exclusive);
        let runs = match exclusive(from) || exclusive(to) {
            true => Cow::Owned(seat.nodes.iter().map(|(at, ..)| self.node(*at as usize)).collect()),
            false => Cow::Borrowed(&seat.runs),
        };
        self.blocks.changed(seat.span());
        for run in runs.iter() {
            let cells = self.cut(run);
            for cell in &mut self.cells[cells] {
                if cell.taken != from {
                    continue;
                }
                cell.taken = to;
                touch(&mut self.running, cell.runner);
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
        if !self.occupancy.memory_known() {
            return;
        }
        let candidate = &self.order[at];
        let at_home = candidate.home.is_some_and(|home| std::ptr::eq(home, seat) || home == seat);
        let counts = !self.occupancy.notable().tight.is_empty() || self.roll_out;
        if !counts && at_home {
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
            let of = |used: &mut u64| {
                *used = if more { used.saturating_add(bytes) } else { used.saturating_sub(bytes) };
            };
            of(&mut self.used[at]);
            if !at_home {
                of(&mut self.new[at]);
            }
        }
    }

    /// All of it in words, wherever the cells are cut.
    #[cfg(test)]
    pub fn state(&mut self) -> String {
        self.settle();
        let of = |cell: &Cell| {
            let one = (cell.taken, cell.runner, cell.usable);
            std::iter::repeat_n(one, (cell.end - cell.start) as usize)
        };
        let line: Vec<_> = self.cells.iter().flat_map(of).collect();
        format!("{line:?} {} {:?} {:?}", self.free, self.used, self.new)
    }

    /// Its turn in the order is over: where it ran and does not any more nobody is displaced.
    pub fn passed(&mut self, at: usize) {
        let candidate = &self.order[at];
        let Some(home) = candidate.home.filter(|_| candidate.now == Now::Runs) else { return };
        if self.running[at] == Running::Stayed {
            return;
        }
        self.blocks.changed(home.span());
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
        let of = |used: &[u64]| used.get(at).copied().unwrap_or(0);
        match self.roll_out {
            true => of(&self.used),
            false => self.line()[at].promised.saturating_add(of(&self.new)),
        }
    }

    /// Whether two nodes with the same processors have room for the same.
    pub(super) fn same_room(&self, one: usize, other: usize) -> bool {
        let region = |at: usize| self.line()[at].region;
        region(one) == region(other)
            && (!self.told_apart || self.room_of(one) == self.room_of(other))
    }

    /// By what nodes with the same processors are told apart.
    pub(super) fn room_of(&self, at: usize) -> (u64, u64, bool, u16) {
        let slot = &self.line()[at];
        (slot.memory, self.promised(at), slot.free < slot.processors, self.sit(at))
    }

    /// The most that sit on a processor of a node, where that counts.
    pub(super) fn sit(&self, at: usize) -> u16 {
        match self.stay {
            true => self.occupancy.residents(at).iter().copied().max().unwrap_or(0),
            false => 0,
        }
    }

    /// The cells of a node, each with its processors there.
    pub fn cells_of(&self, at: usize) -> impl Iterator<Item = (Range<u32>, &Cell)> {
        let node = self.node(at);
        let cells = self.touched(&node).iter();
        cells.map(move |cell| (cell.start.max(node.start)..cell.end.min(node.end), cell))
    }

    /// The processors of a node that so many are taken of: idle ones first, those with the fewest
    /// residents first; then those of who is displaced at the least cost.
    pub fn choose(&self, at: usize, count: u32, chosen: &mut Vec<u32>) {
        let first = self.occupancy.first()[at] as u32;
        let residents = self.occupancy.residents(at);
        let free = self.cells_of(at).filter(|(_, cell)| cell.usable && cell.taken == NOBODY);
        let mut order = Vec::with_capacity(residents.len());
        for (processors, cell) in free {
            let runner = self.candidate(cell.runner);
            let displaced = runner.map_or((0, 0), |runner| (1 + runner.displaced, cell.runner));
            order.extend(processors.map(|p| (displaced, residents[(p - first) as usize], p)));
        }
        order.sort_unstable();
        let from = chosen.len();
        chosen.extend(order.iter().take(count as usize).map(|(.., p)| *p));
        chosen[from..].sort_unstable();
    }
}

/// Whoever runs there may not find all of its home any more.
fn touch(running: &mut [Running], runner: u32) {
    if let Some(running) = running.get_mut(runner as usize) {
        *running = Running::Other;
    }
}
