//! Compaction: a window made by moving aside those who have taken it.

use super::window::{Form, Most, Of, Search, Window};
use super::{Packer, Seat};
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
        self.board.blocks();
        let scratch = std::mem::take(&mut self.board.scratch);
        let mut search = Search::new(&self.board, scratch, form, Of::All);
        let mut found: Vec<Window> = Vec::new();
        let most = Most { cost: budget, number: self.rules.moved_max, ..Most::ANY };
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
        match &self.seats[one as usize] {
            Some(_) => 0,
            None => self.order[one as usize].may_be_moved.unwrap_or(u64::MAX / 2),
        }
    }

    /// Who has to go from a window.
    fn in_the_way(&mut self, form: &Form<'_>, nodes: &Range<usize>) -> Vec<u32> {
        let terms = &form.need().terms;
        self.board.blocks();
        let mut rest = form.need().width as u32;
        let (mut on, mut who) = (Vec::new(), Vec::new());
        let blocks = self.board.known_blocks();
        let first = blocks.partition_point(|block| block.at + block.nodes <= nodes.start);
        for block in blocks[first..].iter().take_while(|block| block.at < nodes.end) {
            let end = (block.at + block.nodes).min(nodes.end);
            for at in block.at.max(nodes.start)..end {
                let pes = match form {
                    Form::Kept(pes, _) => pes[at - nodes.start],
                    Form::Laid(_) => self.board.pes(at, terms, block.all).min(rest),
                };
                rest = rest.saturating_sub(pes);
                if block.mixed {
                    let cost = |one| self.loss(one);
                    self.board.hit(block, Of::All, pes * terms.depth, cost, &mut on, &mut who);
                } else if self.board.candidate(block.taken).is_some() {
                    who.push(block.taken);
                    who.dedup();
                }
            }
        }
        who.sort_unstable();
        who.dedup();
        who
    }

    /// Gives it this window, and those in it others, widest first. Where one of them finds none, all is
    /// as it was.
    pub(super) fn move_aside(&mut self, at: usize, form: &Form<'_>, nodes: Range<usize>) -> bool {
        let mut moved: Vec<(u64, u32, Seat)> = Vec::new();
        for one in self.in_the_way(form, &nodes) {
            let seat = self.seats[one as usize].clone();
            if let Some(seat) = seat.or_else(|| self.order[one as usize].home.cloned()) {
                moved.push((seat.width(), one, seat));
            }
        }
        moved.sort_unstable_by_key(|(width, one, _)| (u64::MAX - width, *one));
        for (_, one, seat) in &moved {
            self.board.leave(*one as usize, seat);
        }
        let own = self.board.seat(form, nodes, Of::Free);
        self.board.take(at, &own);
        let mut placed: Vec<(usize, Seat)> = Vec::new();
        for (_, one, _) in &moved {
            let one = *one as usize;
            let its = Form::of(&self.order[one], self.level);
            let Some(nodes) = self.board.best_fit(&its, Of::Free) else { break };
            let seat = self.board.seat(&its, nodes, Of::Free);
            self.board.take(one, &seat);
            placed.push((one, seat));
        }
        if placed.len() == moved.len() {
            for (one, seat) in placed {
                self.seats[one] = Some(seat);
            }
            self.seats[at] = Some(own);
            return true;
        }
        for (one, seat) in &placed {
            self.board.leave(*one, seat);
        }
        self.board.leave(at, &own);
        for (_, one, seat) in &moved {
            self.board.take(*one as usize, seat);
        }
        false
    }
}
