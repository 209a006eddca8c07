//! The best window for one who is given a place: where it displaces nobody, or those whom it costs
//! least.
//!
//! Not every window is looked at: who packs a line wants gangs to stand against each other. So a window
//! begins where a [`Block`] does, or ends where one does. Whoever is laid out as nodes have room misses
//! nothing by that: nodes of a block are alike, so a window from its middle, pushed left to its beginning,
//! needs no block more. A shape that is kept node by node ([`Form::Kept`]) may fit from the middle only, and
//! is tried from each node.
//!
//! # Why this is not the search of placement
//!
//! [`crate::placement`] looks for a window on the machine as it is. An index of free stretches is kept for it, and
//! it goes from node to node. [`crate::placement::migration`] fits one shape into what a plan leaves of the machine.
//! Here there is no such machine: each gang of a decision takes its place on a board that the gangs before it
//! have changed, and a window has a cost for those that it displaces. An index would be made anew for each gang, and
//! going from node to node is slow: with blocks of one node, psched took 2.7 times as long for the median
//! posting, and 9.8 times for the 99th percentile, on 1,524 nodes (benches/scheduler.rs, row "line", in one
//! run); 2.1 and 3.7 times on 1,000 nodes of 16 processors, and 1.0 and 2.4 times on 10,000.

use super::block::Block;
use super::board::{Board, NOBODY};
use super::scratch::Scratch;
use super::{Candidate, STEPS_ALL_MAX, Seat};
use crate::machine::RegionSet;
use crate::placement::need::Need;
use crate::variables::End;
use std::ops::Range;

/// Blocks that a search looks at, at most: a bound on its time. Beyond that it has the best of the
/// windows from the left.
const STEPS_MAX: usize = 200_000;
/// As many blocks it counts for to look who is on a node that is cut.
const CUT_STEPS: usize = 8;

/// What of two windows makes one the better: the least of these, in this order.
type Rank = (u16, u64, u64, usize, usize);

/// What is looked for.
#[derive(Clone, Debug)]
pub(super) enum Form<'a> {
    /// So many PEs of so many processors, laid out as the nodes have room.
    Laid(Need),
    /// So many PEs on each of a row of nodes: a shape that is kept.
    Kept(&'a [u32], Need),
}

/// Which processors count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    /// On which nobody runs who may still be displaced.
    Idle,
    /// That nobody has taken.
    Free,
    /// All on which somebody new may sit.
    All,
}

impl Of {
    fn each(self, block: &Block) -> u32 {
        match self {
            Of::Idle => block.idle,
            Of::Free => block.free,
            Of::All => block.all,
        }
    }
}

impl<'a> Form<'a> {
    /// What it looks for at a level, among some regions.
    pub fn of(candidate: &Candidate<'a>, level: u32, regions: RegionSet) -> Form<'a> {
        let mut need = candidate.wanted.need(level, regions);
        let Some(pes) = candidate.shape.filter(|pes| !pes.is_empty()) else {
            return Form::Laid(need);
        };
        let (each, last) = (pes[0], pes[pes.len() - 1]);
        if last <= each && pes[..pes.len() - 1].iter().all(|pes| *pes == each) {
            // That many on each node but the last: the form of -N.
            need.terms.per_node = Some(each);
            return Form::Laid(need);
        }
        Form::Kept(pes, need)
    }

    pub fn need(&self) -> &Need {
        let (Form::Laid(need) | Form::Kept(_, need)) = self;
        need
    }
}

/// A window, and what it costs those who are there.
#[derive(Clone, Debug)]
pub(super) struct Window {
    pub nodes: Range<usize>,
    pub cost: u64,
    /// Who is hit.
    pub number: usize,
    /// Processors of its nodes that count.
    pub processors: u64,
    /// The most that sit on one of its processors, where that counts.
    pub sit: u16,
}

/// Beyond which a window is of no use: it is not gone through to its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Most {
    pub sit: u16,
    /// Of those where no fewer sit.
    pub cost: u64,
    pub number: usize,
    pub processors: u64,
}

impl Most {
    pub const ANY: Most =
        Most { sit: u16::MAX, cost: u64::MAX, number: usize::MAX, processors: u64::MAX };
}

/// A search: all windows of a form.
pub(super) struct Search<'s, 'a> {
    pub board: &'s Board<'a>,
    pub blocks: &'s [Block],
    pub form: &'s Form<'s>,
    pub of: Of,
    scratch: Scratch,
    /// Beyond so many steps of the decision it ends.
    until: usize,
}

impl<'s, 'a> Search<'s, 'a> {
    /// On the blocks as they are known. `scratch`: of the search before.
    pub fn new(board: &'s Board<'a>, scratch: Scratch, form: &'s Form<'s>, of: Of) -> Self {
        let mut scratch = scratch;
        if of != Of::Idle && scratch.met.is_empty() {
            scratch.met.resize(board.candidates(), 0);
        }
        let until = (scratch.steps + STEPS_MAX).min(STEPS_ALL_MAX);
        Search { board, blocks: board.known_blocks(), form, of, scratch, until }
    }

    /// For the next search.
    pub fn over(self) -> Scratch {
        self.scratch
    }

    fn ends(&self) -> bool {
        self.scratch.steps > self.until
    }

    /// PEs on a node of a block.
    fn pes(&self, block: &Block, at: usize) -> u32 {
        match self.of.each(block) {
            0 => 0,
            processors => self.board.pes(at, &self.form.need().terms, processors),
        }
    }

    /// Calls it for each window that is of use, from the left, with what each costs: `cost` tells it of a
    /// candidate. What is found may make others useless.
    pub fn windows(
        &mut self,
        mut most: Most,
        cost: impl Fn(u32) -> u64 + Copy,
        mut found: impl FnMut(Window, &mut Most),
    ) {
        let mut next = 0;
        while let Some((run, _)) = self.gap(next) {
            next = run.end;
            for block in run {
                for (i, start) in self.starts(block) {
                    if let Some(window) = self.from(i, start, &most, cost) {
                        found(window, &mut most);
                    }
                    if self.ends() {
                        return;
                    }
                }
            }
        }
    }

    /// The next gap from this block on in which a window may be: a run of blocks that have something to give,
    /// and together enough; and how many processors.
    fn gap(&self, mut next: usize) -> Option<(Range<usize>, u64)> {
        let need = self.form.need();
        let wanted = (need.width * u64::from(need.terms.depth)).max(1);
        while next < self.blocks.len() {
            let (first, mut gap) = (next, 0);
            while let Some(block) = self.blocks.get(next) {
                let each = u64::from(self.of.each(block));
                gap += each * block.nodes as u64;
                next += usize::from(each > 0);
                if each == 0 || !block.joins {
                    break;
                }
            }
            // (No window gives less than what is taken.)
            if gap >= wanted {
                return Some((first..next, gap));
            }
            next = next.max(first + 1);
        }
        None
    }

    /// Where the windows begin that this block gives rise to, each with the block in which that is.
    fn starts(&mut self, block: usize) -> impl Iterator<Item = (usize, usize)> + use<> {
        let Block { at, nodes, .. } = self.blocks[block];
        let (from, ending) = match self.form {
            Form::Laid(_) => (1, self.ending(block)),
            Form::Kept(..) => (nodes, None),
        };
        (at..at + from).map(move |start| (block, start)).chain(ending)
    }

    /// The window that begins there, in this block.
    fn from(
        &mut self,
        block: usize,
        start: usize,
        most: &Most,
        cost: impl Fn(u32) -> u64 + Copy,
    ) -> Option<Window> {
        let need = *self.form.need();
        self.scratch.walk += 1;
        let mut window = Window { nodes: start..start, cost: 0, number: 0, processors: 0, sit: 0 };
        let (mut rest, mut i, mut at) = (need.width, block, start);
        while rest > 0 {
            self.scratch.steps += 1;
            let here = *self.blocks.get(i)?;
            let end = here.at + here.nodes;
            let each = self.pes(&here, at);
            if each == 0 {
                return None;
            }
            let mut takes = each;
            match self.form {
                Form::Laid(_) => {
                    let nodes = rest.div_ceil(u64::from(each)).min((end - at) as u64);
                    if need.terms.per_node.is_some_and(|n| each < n && u64::from(each) < rest) {
                        return None;
                    }
                    let pes = (nodes * u64::from(each)).min(rest);
                    if nodes == 1 {
                        takes = pes as u32;
                    }
                    rest -= pes;
                    at += nodes as usize;
                    window.processors += nodes * u64::from(self.of.each(&here));
                }
                Form::Kept(pes, _) => {
                    takes = *pes.get(at - start)?;
                    if each < takes {
                        return None;
                    }
                    rest = rest.saturating_sub(u64::from(takes));
                    at += 1;
                    window.processors += u64::from(self.of.each(&here));
                }
            }
            if self.of != Of::Idle {
                self.hits(&here, takes * need.terms.depth, cost, &mut window);
            }
            window.sit = window.sit.max(here.sit);
            let useless = window.sit > most.sit
                || window.sit == most.sit && window.cost > most.cost
                || window.number > most.number
                || window.processors > most.processors;
            if useless {
                return None;
            }
            if at == end {
                if rest > 0 && !here.joins {
                    return None;
                }
                i += 1;
            }
        }
        window.nodes.end = at;
        Some(window)
    }

    /// Where a window begins that ends with this block, and in which block. Of a block whose nodes have room for
    /// fewer PEs than each node is to have, it ends with the first node: only the last one of a window may have fewer.
    fn ending(&mut self, block: usize) -> Option<(usize, usize)> {
        let Form::Laid(need) = self.form else { return None };
        let (mut rest, mut i) = (need.width, block);
        let last = &self.blocks[block];
        let each = self.pes(last, last.at);
        let full = need.terms.per_node.filter(|full| each < *full && u64::from(*full) < need.width);
        if let Some(full) = full {
            let before = usize::try_from((need.width - 1) / u64::from(full)).ok()?;
            let start = last.at.checked_sub(before)?;
            while self.blocks[i].at > start {
                self.scratch.steps += 1;
                i = i.checked_sub(1)?;
            }
            return Some((i, start));
        }
        // (The last node may have fewer; it does not matter where exactly it begins then.)
        loop {
            self.scratch.steps += 1;
            let here = &self.blocks[i];
            let each = u64::from(self.pes(here, here.at));
            if each == 0 || i < block && !here.joins {
                return None;
            }
            let nodes = rest.div_ceil(each);
            if nodes <= here.nodes as u64 {
                return Some((i, here.at + here.nodes - nodes as usize));
            }
            rest -= each * here.nodes as u64;
            i = i.checked_sub(1)?;
        }
    }

    /// Counts who is hit where so many processors of each of these nodes are taken.
    fn hits(
        &mut self,
        block: &Block,
        takes: u32,
        cost: impl Fn(u32) -> u64 + Copy,
        to: &mut Window,
    ) {
        let one = if self.of == Of::All { block.taken } else { block.runner };
        if !block.mixed {
            self.hit(one, cost, to);
            return;
        }
        let Scratch { on, who, steps, .. } = &mut self.scratch;
        *steps += CUT_STEPS;
        who.clear();
        self.board.hit(block, self.of, takes, cost, on, who);
        for i in 0..self.scratch.who.len() {
            self.hit(self.scratch.who[i], cost, to);
        }
    }

    fn hit(&mut self, one: u32, cost: impl Fn(u32) -> u64, to: &mut Window) {
        let Scratch { met, walk, .. } = &mut self.scratch;
        if one != NOBODY && std::mem::replace(&mut met[one as usize], *walk) != *walk {
            to.cost = to.cost.saturating_add(cost(one));
            to.number += 1;
        }
    }
}

impl Board<'_> {
    /// Who is hit where so many processors of a node that is cut are taken: nobody while there are
    /// others, then those whom it costs least. (`on`: room to work in.)
    pub fn hit(
        &self,
        block: &Block,
        of: Of,
        takes: u32,
        cost: impl Fn(u32) -> u64,
        on: &mut Vec<(u64, u32, u32)>,
        who: &mut Vec<u32>,
    ) {
        let left = if of == Of::All { block.free } else { block.idle };
        let Some(wanted) = takes.checked_sub(left).filter(|wanted| *wanted > 0) else { return };
        on.clear();
        for (processors, cell) in self.cells_of(block.at).filter(|(_, cell)| cell.usable) {
            let one = match of {
                Of::All => cell.taken,
                _ if cell.taken == NOBODY => cell.runner,
                _ => NOBODY,
            };
            if one == NOBODY {
                continue;
            }
            let here = processors.end - processors.start;
            match on.iter_mut().rev().find(|(_, known, _)| *known == one) {
                Some((.., processors)) => *processors += here,
                None => on.push((cost(one), one, here)),
            }
        }
        on.sort_unstable();
        let mut freed = 0;
        for (_, one, processors) in on.iter() {
            if freed >= wanted {
                break;
            }
            freed += processors;
            who.push(*one);
        }
    }

    /// The best window on what nobody has taken where somebody is displaced: where nobody is moved, on which
    /// the fewest sit; or where it costs least.
    pub fn best_over(&mut self, form: &Form<'_>) -> Option<Range<usize>> {
        self.blocks();
        let scratch = std::mem::take(&mut self.scratch);
        let mut search = Search::new(self, scratch, form, Of::Free);
        let cost = |one: u32| self.candidate(one).map_or(0, |c| c.displaced);
        let mut best: Option<(Rank, Range<usize>)> = None;
        search.windows(Most::ANY, cost, |window, most| {
            let Window { nodes, cost, processors, sit, .. } = &window;
            let rank = (*sit, *cost, *processors, nodes.len(), nodes.start);
            if best.as_ref().is_none_or(|(least, _)| rank < *least) {
                (most.sit, most.cost) = (*sit, *cost);
                best = Some((rank, window.nodes));
            }
        });
        self.scratch = search.over();
        best.map(|(_, nodes)| nodes)
    }

    /// Of the windows on these processors the one that leaves least over on its nodes, in the smallest gap,
    /// with the fewest nodes, the first from the left; or where `application.allocator` goes by place, the
    /// one nearest to that end of the line.
    pub fn best_fit(&mut self, form: &Form<'_>, of: Of) -> Option<Range<usize>> {
        self.blocks();
        let need = form.need();
        let end = self.occupancy.rules_in(need.terms.regions).end_for(need.width);
        let scratch = std::mem::take(&mut self.scratch);
        let mut search = Search::new(self, scratch, form, of);
        let mut most = Most::ANY;
        let taken = need.width * u64::from(need.terms.depth);
        let mut best: Option<(Rank, Range<usize>)> = None;
        let mut next = 0;
        'gaps: while let Some((run, gap)) = search.gap(next) {
            next = run.end;
            let wider = |(rank, _): &(Rank, _)| rank.1 == taken && gap > rank.2;
            if end.is_none() && best.as_ref().is_some_and(wider) {
                continue;
            }
            for block in run {
                for (i, start) in search.starts(block) {
                    let window = search.from(i, start, &most, |_| 0);
                    if let Some(Window { nodes, processors, .. }) = window {
                        let rank = match end {
                            None => (0, processors, gap, nodes.len(), nodes.start),
                            Some(End::Low) => (0, 0, 0, 0, nodes.start),
                            Some(End::High) => (0, 0, 0, 0, usize::MAX - nodes.start),
                        };
                        if best.as_ref().is_none_or(|(least, _)| rank < *least) {
                            if end.is_none() {
                                most.processors = processors;
                            }
                            best = Some((rank, nodes));
                        }
                    }
                    if search.ends() {
                        break 'gaps;
                    }
                }
                // (Who could begin before a block begins where the one before it does.)
                if end == Some(End::Low) && best.is_some() {
                    break 'gaps;
                }
            }
        }
        self.scratch = search.over();
        best.map(|(_, nodes)| nodes)
    }

    /// The seat of a window, laid out on the processors that count.
    pub fn seat(&mut self, form: &Form<'_>, nodes: Range<usize>, of: Of) -> Seat {
        self.blocks();
        let blocks = self.known_blocks();
        let need = form.need();
        let mut seat = Seat { nodes: Vec::with_capacity(nodes.len()), runs: Vec::new() };
        let mut chosen = Vec::new();
        let mut rest = need.width as u32;
        let mut i = blocks.partition_point(|block| block.at + block.nodes <= nodes.start);
        for at in nodes.clone() {
            while blocks[i].at + blocks[i].nodes <= at {
                i += 1;
            }
            let pes = match form {
                Form::Kept(pes, _) => pes[at - nodes.start],
                Form::Laid(_) => self.pes(at, &need.terms, of.each(&blocks[i])).min(rest),
            };
            if pes == 0 {
                // Those who were moved aside have left more memory than was counted on.
                break;
            }
            rest = rest.saturating_sub(pes);
            let takes = pes * need.terms.depth;
            seat.nodes.push((at as u32, takes, pes));
            let node = self.node(at);
            if takes == node.end - node.start {
                seat.push_run(node);
                continue;
            }
            chosen.clear();
            self.choose(at, takes, &mut chosen);
            chosen.iter().for_each(|p| seat.push_run(*p..p + 1));
        }
        seat
    }
}
