//! The best window for one who is given a place: where it displaces nobody, or those whom it costs
//! least.
//!
//! Not every window is looked at: who packs a line wants gangs to stand against each other. So a window
//! begins where a [`Block`] does, or ends where one does. Whoever is laid out as nodes have room misses
//! nothing by that: nodes of a block are alike, so a window from its middle, pushed left to its beginning,
//! needs no block more. A shape that is kept node by node ([`Form::Kept`]) may fit from the middle only, and
//! is tried from each node.

use super::board::{Block, Board, NOBODY};
use super::{Candidate, Seat};
use crate::placement::window::Need;
use std::ops::Range;

/// Blocks that a search looks at, at most: a bound on its time. Beyond that it has the best of the
/// windows from the left.
const STEPS_MAX: usize = 200_000;

/// What of two windows makes one the better: the least of these, in this order.
type Rank = (u64, u64, usize, usize);

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
    pub fn of(candidate: &Candidate<'a>, level: u32) -> Form<'a> {
        let mut need = candidate.wanted.need(level);
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
}

/// A search: all windows of a form.
pub(super) struct Search<'s, 'a> {
    pub board: &'s Board<'a>,
    pub blocks: &'s [Block],
    pub form: &'s Form<'s>,
    pub of: Of,
    /// By candidate: in which walk it was met last.
    met: Vec<u32>,
    walk: u32,
    steps: usize,
}

impl<'s, 'a> Search<'s, 'a> {
    pub fn new(board: &'s Board<'a>, blocks: &'s [Block], form: &'s Form<'s>, of: Of) -> Self {
        let met = if of == Of::Idle { Vec::new() } else { vec![0; board.candidates()] };
        Search { board, blocks, form, of, met, walk: 0, steps: 0 }
    }

    /// PEs on a node of a block.
    fn pes(&self, block: &Block, at: usize) -> u32 {
        match self.of.each(block) {
            0 => 0,
            processors => self.board.pes(at, &self.form.need().terms, processors),
        }
    }

    /// Calls it for each window, from the left, with what each costs: `cost` tells it of a candidate,
    /// `hits` who is hit where so many processors of a node are taken.
    pub fn windows(&mut self, cost: impl Fn(u32) -> u64 + Copy, mut found: impl FnMut(Window)) {
        for i in 0..self.blocks.len() {
            let block = self.blocks[i];
            if self.of.each(&block) == 0 {
                continue;
            }
            for (i, start) in self.starts(i) {
                if let Some(window) = self.from(i, start, cost) {
                    found(window);
                }
                if self.steps > STEPS_MAX {
                    return;
                }
            }
        }
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
        cost: impl Fn(u32) -> u64 + Copy,
    ) -> Option<Window> {
        let need = *self.form.need();
        self.walk += 1;
        let mut window = Window { nodes: start..start, cost: 0, number: 0, processors: 0 };
        let (mut rest, mut i, mut at) = (need.width, block, start);
        while rest > 0 {
            self.steps += 1;
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

    /// Where a window begins that ends with this block, and in which block.
    fn ending(&mut self, block: usize) -> Option<(usize, usize)> {
        let Form::Laid(need) = self.form else { return None };
        let (mut rest, mut i) = (need.width, block);
        // (The last node may have fewer; it does not matter where exactly it begins then.)
        loop {
            self.steps += 1;
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
        let mut who = Vec::new();
        self.board.hit(block, self.of, takes, cost, &mut who);
        who.into_iter().for_each(|one| self.hit(one, cost, to));
    }

    fn hit(&mut self, one: u32, cost: impl Fn(u32) -> u64, to: &mut Window) {
        if one != NOBODY && std::mem::replace(&mut self.met[one as usize], self.walk) != self.walk {
            to.cost = to.cost.saturating_add(cost(one));
            to.number += 1;
        }
    }
}

impl Board<'_> {
    /// Who is hit where so many processors of a node that is cut are taken: nobody while there are
    /// others, then those whom it costs least.
    pub fn hit(
        &self,
        block: &Block,
        of: Of,
        takes: u32,
        cost: impl Fn(u32) -> u64,
        who: &mut Vec<u32>,
    ) {
        let left = if of == Of::All { block.free } else { block.idle };
        let Some(wanted) = takes.checked_sub(left).filter(|wanted| *wanted > 0) else { return };
        let mut on: Vec<(u64, u32, u32)> = Vec::new();
        for (_, cell) in self.processors(block.at).filter(|(_, cell)| cell.usable) {
            let one = match of {
                Of::All => cell.taken,
                _ if cell.taken == NOBODY => cell.runner,
                _ => NOBODY,
            };
            if one == NOBODY {
                continue;
            }
            match on.iter_mut().rev().find(|(_, known, _)| *known == one) {
                Some((.., processors)) => *processors += 1,
                None => on.push((cost(one), one, 1)),
            }
        }
        on.sort_unstable();
        let mut freed = 0;
        for (_, one, processors) in on {
            if freed >= wanted {
                break;
            }
            freed += processors;
            who.push(one);
        }
    }

    /// The best window on what nobody has taken: where nobody is displaced, by best fit; or where it
    /// costs least.
    pub fn best(&mut self, form: &Form<'_>) -> Option<(Range<usize>, Of)> {
        if let Some(nodes) = self.best_fit(form, Of::Idle) {
            return Some((nodes, Of::Idle));
        }
        self.blocks();
        let mut search = Search::new(self, self.known_blocks(), form, Of::Free);
        let cost = |one: u32| self.candidate(one).map_or(0, |c| c.displaced);
        let mut best: Option<(Rank, Range<usize>)> = None;
        search.windows(cost, |window| {
            let rank = (window.cost, window.processors, window.nodes.len(), window.nodes.start);
            if best.as_ref().is_none_or(|(least, _)| rank < *least) {
                best = Some((rank, window.nodes));
            }
        });
        best.map(|(_, nodes)| (nodes, Of::Free))
    }

    /// The window that leaves least over on its nodes, in the smallest gap, with the fewest nodes, the
    /// first from the left.
    pub fn best_fit(&mut self, form: &Form<'_>, of: Of) -> Option<Range<usize>> {
        self.blocks();
        let mut search = Search::new(self, self.known_blocks(), form, of);
        let blocks = search.blocks;
        let need = form.need();
        let taken = need.width * u64::from(need.terms.depth);
        let mut best: Option<(Rank, Range<usize>)> = None;
        let mut next = 0;
        while next < blocks.len() {
            // A run of blocks that have something to give.
            let mut gap = 0;
            let first = next;
            while next < blocks.len() {
                let block = &blocks[next];
                let each = of.each(block);
                if each == 0 {
                    break;
                }
                gap += u64::from(each) * block.nodes as u64;
                next += 1;
                if !block.joins {
                    break;
                }
            }
            let run = first..next;
            next = next.max(first + 1);
            if gap < taken {
                continue;
            }
            for block in run {
                for (i, start) in search.starts(block) {
                    if let Some(Window { nodes, processors, .. }) = search.from(i, start, |_| 0) {
                        let rank = (processors, gap, nodes.len(), nodes.start);
                        if best.as_ref().is_none_or(|(least, _)| rank < *least) {
                            best = Some((rank, nodes));
                        }
                    }
                    if search.steps > STEPS_MAX {
                        return best.map(|(_, nodes)| nodes);
                    }
                }
            }
        }
        best.map(|(_, nodes)| nodes)
    }

    /// The seat of a window, laid out on the processors that count.
    pub fn seat(&mut self, form: &Form<'_>, nodes: Range<usize>, of: Of) -> Seat {
        self.blocks();
        let blocks = self.known_blocks();
        let need = form.need();
        let mut seat = Seat::default();
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
            chosen.clear();
            self.choose(at, takes, &mut chosen);
            seat.nodes.push((at as u32, takes, pes));
            chosen.iter().for_each(|p| seat.push(*p));
        }
        seat
    }
}
