//! Compaction: a window made by moving aside those who have taken it.

use super::block::Block;
use super::board::NOBODY;
use super::window::{Form, Most, Of, Search, Window};
use super::{Candidate, Packer, Seat};
use std::ops::Range;

impl Packer<'_> {
    /// Makes room for one by moving those aside who have taken a window, and gives it that: of all
    /// windows the one where those moved lose least in sum, no more than `budget`.
    pub(super) fn compact(&mut self, at: usize, form: &Form<'_>, budget: u64) -> bool {
        self.windows_to_compact(form, budget)
            .into_iter()
            .any(|window| self.move_aside(at, form, window.nodes))
    }

    /// Windows in which all who have taken something may be moved, the cheapest first.
    pub(super) fn windows_to_compact(&mut self, form: &Form<'_>, budget: u64) -> Vec<Window> {
        if self.losses.is_empty() {
            let of =
                |one: &Candidate| if one.may_be_moved { (self.loses)(one) } else { u64::MAX / 2 };
            self.losses = self.order.iter().map(of).collect();
        }
        self.board.blocks();
        let scratch = std::mem::take(&mut self.board.scratch);
        let mut search = Search::new(&self.board, scratch, form, Of::All);
        let mut found: Vec<Window> = Vec::new();
        let most = Most { sit: 0, cost: budget, number: self.rules.moved_max, ..Most::ANY };
        search.windows(most, |one| self.loss(one), |window, _| found.push(window));
        self.board.scratch = search.over();
        let order = |w: &Window| (w.cost, w.nodes.len(), w.nodes.start);
        found.sort_unstable_by_key(order);
        found.truncate(super::WINDOWS_MAX);
        found
    }

    /// What one loses that is moved: nothing where it has its place only by this decision, far too
    /// much where it may not be moved.
    fn loss(&self, one: u32) -> u64 {
        match self.seats.contains_key(&one) {
            true => 0,
            false => self.losses[one as usize],
        }
    }

    /// Who has to go from a window.
    pub(super) fn in_the_way(&mut self, form: &Form<'_>, nodes: &Range<usize>) -> Vec<u32> {
        let terms = &form.need().terms;
        self.board.blocks();
        let mut rest = form.need().width as u32;
        let (mut on, mut who) = (Vec::new(), Vec::new());
        let blocks = self.board.known_blocks();
        let first = blocks.partition_point(|block| block.end() <= nodes.start);
        for block in blocks[first..].iter().take_while(|block| block.at < nodes.end) {
            // (Nodes of a block have room for the same.)
            let here = block.at.max(nodes.start)..block.end().min(nodes.end);
            let pes = match form {
                Form::Kept(pes, _) => pes[here.start - nodes.start],
                Form::Laid(_) => self.board.pes(here.start, terms, block.all).min(rest),
            };
            rest = rest.saturating_sub(pes.saturating_mul(here.len() as u32));
            if block.mixed {
                let cost = |one| self.loss(one);
                self.board.hit(block, Of::All, pes * terms.depth, cost, &mut on, &mut who);
            } else if block.taken != NOBODY {
                who.push(block.taken);
            }
        }
        who.sort_unstable();
        who.dedup();
        who
    }

    /// Whether there are gaps for those who have to go, as far as can be seen without moving anybody: most
    /// trials fail at that. A node that is cut counts as if all of it were free.
    pub(super) fn has_gaps(&mut self, form: &Form<'_>, window: &Range<usize>, who: &[u32]) -> bool {
        self.board.blocks();
        if self.rows.made != Some(self.board.blocks_made()) {
            self.rows.anew(self.board.known_blocks(), self.board.blocks_made());
        }
        let blocks = self.board.known_blocks();
        let from = blocks.partition_point(|block| block.end() <= window.start);
        let to = from + blocks[from..].partition_point(|block| block.at < window.end);
        let (Some(first), Some(last)) = (blocks.get(from), blocks[..to].last()) else {
            return true;
        };
        // All that will be as it is not: the window, and where those sit who go.
        let mut other = window.clone();
        for one in who {
            let seat = self.seats.get(one).or(self.order[*one as usize].home);
            if let Some(nodes) = seat.and_then(Seat::span) {
                other = other.start.min(nodes.start)..other.end.max(nodes.end);
            }
        }
        let rows = self.rows.around(blocks, &other);
        let here = self.rows.blocks(&rows);
        let each = |block: &Block| {
            let goes = block.taken != NOBODY && who.contains(&block.taken);
            if goes { block.all } else { free(block) }
        };
        let mut gaps = Gaps { known: Vec::with_capacity(here.len()), open: 0 };
        let before = blocks[here.start..from].iter();
        before.for_each(|block| gaps.add(block.nodes, each(block), block.joins));
        gaps.add(window.start.saturating_sub(first.at), each(first), true);
        let within = |block: &Block| {
            let nodes = block.end().min(window.end) - block.at.max(window.start);
            nodes as u64 * u64::from(block.all)
        };
        let need = form.need();
        let left = blocks[from..to].iter().map(within).sum::<u64>();
        let left = left.saturating_sub(need.width * u64::from(need.terms.depth));
        gaps.open += left;
        if left < window.len() as u64 {
            // One of its nodes is full, wherever that is: no gap goes through it.
            gaps.end();
            gaps.open = left;
        }
        gaps.add(last.end().saturating_sub(window.end), each(last), last.joins);
        let behind = blocks[to..here.end].iter();
        behind.for_each(|block| gaps.add(block.nodes, each(block), block.joins));
        gaps.end();
        let width = |one: &u32| self.order[*one as usize].wanted.shape.processors().max(1);
        let mut widths: Vec<u64> = who.iter().map(width).collect();
        widths.sort_unstable_by(|a, b| b.cmp(a));
        let hold = |width| gaps.hold(width) + self.rows.hold(&rows, width);
        (1..).zip(widths).all(|(count, width)| hold(width) >= count)
    }

    /// Gives it this window, and those in it others, widest first. Where one of them finds none, all is
    /// as it was.
    pub(super) fn move_aside(&mut self, at: usize, form: &Form<'_>, nodes: Range<usize>) -> bool {
        let who = self.in_the_way(form, &nodes);
        self.has_gaps(form, &nodes, &who) && self.exchange(at, form, nodes, who)
    }

    /// The same, for those who are in the way.
    pub(super) fn exchange(
        &mut self,
        at: usize,
        form: &Form<'_>,
        nodes: Range<usize>,
        who: Vec<u32>,
    ) -> bool {
        let mut moved: Vec<(u64, u32, Seat)> = Vec::new();
        for one in who {
            let seat = self.seats.get(&one).or(self.order[one as usize].home);
            if let Some(seat) = seat {
                moved.push((seat.width(), one, seat.clone()));
            }
        }
        moved.sort_unstable_by_key(|(width, one, _)| (u64::MAX - width, *one));
        for (_, one, seat) in &moved {
            self.board.leave(*one as usize, seat);
        }
        let own = self.board.seat(form, nodes, Of::Free);
        self.board.take(at, &own);
        let mut placed: Vec<(u32, Seat)> = Vec::new();
        for (_, one, _) in &moved {
            let its = &self.order[*one as usize];
            // Nobody who runs gives way to one that is moved aside while there is room elsewhere.
            let mut found = None;
            for of in [Of::Idle, Of::Free] {
                found = found.or_else(|| {
                    its.wanted.reach.sets().find_map(|regions| {
                        let form = Form::of(its, self.level, regions);
                        self.board.best_fit(&form, of).map(|nodes| (form, nodes, of))
                    })
                });
            }
            let Some((form, nodes, of)) = found else { break };
            let seat = self.board.seat(&form, nodes, of);
            self.board.take(*one as usize, &seat);
            placed.push((*one, seat));
        }
        if placed.len() == moved.len() {
            self.seats.extend(placed);
            self.seats.insert(at as u32, own);
            return true;
        }
        for (one, seat) in &placed {
            self.board.leave(*one as usize, seat);
        }
        self.board.leave(at, &own);
        for (_, one, seat) in &moved {
            self.board.take(*one as usize, seat);
        }
        false
    }
}

/// Free processors of each node of a block; all processors of a node that is cut.
fn free(block: &Block) -> u32 {
    if block.mixed { block.all } else { block.free }
}

/// The gaps as they are before anybody goes, by which many trials are seen to fail: only what is
/// around the window of one is gone through again for it.
///
/// ```text
///   free of each block   4 4 0 0 2 2 0 3
///   rows of blocks      [     |0|     |  ]      each ends with a block on which nothing is free
///   gaps                   8   0   4   3
/// ```
#[derive(Debug, Default)]
pub(super) struct Rows {
    /// Of which blocks.
    made: Option<u64>,
    /// Where each row ends, in blocks, and its gap in processors.
    ends: Vec<usize>,
    gaps: Vec<u64>,
}

impl Rows {
    /// Of these blocks.
    fn anew(&mut self, blocks: &[Block], made: u64) {
        self.made = Some(made);
        self.ends.clear();
        self.gaps.clear();
        let mut gap = 0;
        for (end, block) in (1..).zip(blocks) {
            let each = free(block);
            gap += block.nodes as u64 * u64::from(each);
            if each == 0 || !block.joins || end == blocks.len() {
                self.ends.push(end);
                self.gaps.push(std::mem::take(&mut gap));
            }
        }
    }

    /// The rows that may be others where blocks of these nodes are: to the end of the one that
    /// follows.
    fn around(&self, blocks: &[Block], nodes: &Range<usize>) -> Range<usize> {
        let first = blocks.partition_point(|block| block.end() <= nodes.start);
        let next = blocks.partition_point(|block| block.at < nodes.end);
        let row = |block: usize| self.ends.partition_point(|end| *end <= block);
        row(first)..(row(next) + 1).min(self.ends.len())
    }

    /// Their blocks.
    fn blocks(&self, rows: &Range<usize>) -> Range<usize> {
        let end = |rows: usize| rows.checked_sub(1).map_or(0, |last| self.ends[last]);
        end(rows.start)..end(rows.end)
    }

    /// How many so wide all other rows have room for at most.
    fn hold(&self, but: &Range<usize>, width: u64) -> u64 {
        hold(&self.gaps[..but.start], width) + hold(&self.gaps[but.end..], width)
    }
}

/// How many so wide these gaps have room for at most.
fn hold(gaps: &[u64], width: u64) -> u64 {
    gaps.iter().filter(|gap| **gap >= width).map(|gap| gap / width).sum()
}

/// Processors that nobody will have taken, in unbroken rows of nodes.
struct Gaps {
    known: Vec<u64>,
    /// Of the one that may go on.
    open: u64,
}

impl Gaps {
    /// So many nodes more, with so many processors each. `joins`: the next one joins on.
    fn add(&mut self, nodes: usize, each: u32, joins: bool) {
        self.open += nodes as u64 * u64::from(each);
        if each == 0 && nodes > 0 || !joins {
            self.end();
        }
    }

    fn end(&mut self) {
        if self.open > 0 {
            self.known.push(std::mem::take(&mut self.open));
        }
    }

    /// How many so wide there is room for at most.
    fn hold(&self, width: u64) -> u64 {
        hold(&self.known, width)
    }
}
