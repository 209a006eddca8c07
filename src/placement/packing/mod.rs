//! Packing: which gangs run next, and where each of them does.
//!
//! # The problem
//!
//! Where gangs take turns by what they have had, a turn and a place are one question. Who has had
//! least comes first, wherever it finds room; but whoever is stopped by that would rather go on
//! elsewhere, and a wide one finds its processors in crumbs. A gang that waits for one place while
//! another is free wastes the machine, and one that is moved too often wastes its own time.
//!
//! # The approach
//!
//! The gangs are gone through once, in order of turn. Each takes processors that nobody before it
//! has taken:
//!
//! 1. its *home*, where it sits, if that is free. Those who run there now and come later in the
//!    order are no obstacle: they are *displaced*;
//! 2. else, if it may be moved or sits nowhere yet, the window that displaces least: none, by best
//!    fit; or else the fewest by what their displacement costs. Where nobody is ever moved that comes
//!    second: first it goes where the fewest sit, for with those it will take turns;
//! 3. else, if it has waited for long, a window that is *compacted*: those who have taken it are
//!    moved aside, if that is worth what it costs.
//!
//! Who is displaced comes later in the same order, and may be moved into a hole at once.
//!
//! ```text
//!                 processor  0 1 2 3 4 5 6 7
//!   run now                  A A A A B B . .        C, new and 4 wide, comes first; then A, then B
//!   1. C displaces B         A A A A C C C C        (it costs less than A)
//!   2. A is at home
//!   3. B finds no hole, and is stopped
//! ```
//!
//! What the numbers are worth (years of four machines) is told in benches/policy.md and in
//! [`crate::gang::levels`]; they come from outside, with each [`Candidate`].
//!
//! # Cost, and its bound
//!
//! A look at home costs a bit for each processor; a search one pass over the line's blocks, of which only
//! those are made anew where somebody was placed since the search before, and a window is left as soon as it
//! costs more than the best one so far. After a search that found nothing no wider one is made. A compaction
//! is such a pass and [`WINDOWS_MAX`] trials, most of which end with a look at the gaps. Those who run on
//! where they are cost next to nothing.
//!
//! However many ask, a decision makes no more than [`Rules::searches_max`] searches, which look at
//! no more than [`STEPS_ALL_MAX`] blocks in sum, [`Rules::compactions_max`] compactions, and keeps nodes for
//! [`KEEPERS_MAX`].

mod block;
mod blocks;
mod board;
mod compact;
#[cfg(test)]
mod golden;
#[cfg(test)]
mod oracle;
mod scratch;
mod seat;
mod window;

pub use board::Room;
pub use seat::Seat;

use super::{Wanted, usable_runs};
use crate::apteam::Apid;
use crate::machine::RegionSet;
use crate::occupancy::{Occupancy, Terms};
use board::Board;
use compact::Rows;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use window::{Form, Of};

/// Windows that are tried for one compaction, those first in which least is moved.
pub const WINDOWS_MAX: usize = 32;
/// Blocks of the line that all searches of a decision look at; after them nobody finds another place.
pub const STEPS_ALL_MAX: usize = 1_000_000;
/// For whom nodes are kept, the first in the order of those who ask for it.
pub const KEEPERS_MAX: usize = 64;

/// How a candidate sits now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Now {
    /// It runs.
    Runs,
    /// It does not, and its memory is where it sits, if it sits anywhere.
    Stands,
    /// It is on its way there, and will run as soon as it has come.
    Comes,
}

/// Who wants to run.
#[derive(Clone, Debug)]
pub struct Candidate<'a> {
    /// Which application.
    pub apid: Apid,
    /// Its shape.
    pub wanted: Wanted,
    /// Where it sits; none: nowhere yet, or its memory is out.
    pub home: Option<&'a Seat>,
    /// The PEs on each of its nodes, where it has been launched: it keeps them wherever it goes.
    pub shape: Option<&'a [u32]>,
    /// How it sits.
    pub now: Now,
    /// If it finds no place, nobody after it in the order is given one on nodes that it could use.
    pub keeps: bool,
    /// It has chosen its nodes, and is given a place by others: here nodes are only kept for it.
    pub chosen: bool,
    /// It may be given another place.
    pub may_move: bool,
    /// It may be moved aside for another's sake.
    pub may_be_moved: bool,
    /// How much those may lose in sum who are moved aside for it, in processor milliseconds.
    pub may_move_others: Option<u64>,
    /// It may stand while others fill the machine better than they would beside it.
    pub gives_way: bool,
    /// What it costs to displace it, in millionths; more for who is wide and has had little.
    pub displaced: u64,
}

/// As many sit on a processor at most, resident or out: what `max_resident` may be at most. Whoever is placed
/// where so many sit would find more than can be counted there.
pub const SITS_MAX: u16 = 4_096;

/// What may be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The regions of the domain for which it is decided.
    pub domain: RegionSet,
    /// Memory of who stands can be rolled out: then there may be more residents than may stay.
    pub roll_out: bool,
    /// Nobody who sits is moved: whoever is given a place waits there for those who sit there too.
    pub stay: bool,
    /// Gangs for whom others are moved aside.
    pub compactions_max: usize,
    /// Gangs that are moved aside for one.
    pub moved_max: usize,
    /// Searches for a window.
    pub searches_max: usize,
}

/// What is decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packing {
    /// Who runs, in order of turn.
    pub party: Vec<Apid>,
    /// Who sits elsewhere from now on, or for the first time, and where.
    pub seats: BTreeMap<Apid, Seat>,
}

impl Packing {
    /// Whether the same run by both, in whichever order, and sit where they would.
    pub fn is_same(&self, other: &Packing) -> bool {
        let party = |of: &Packing| of.party.iter().copied().collect::<BTreeSet<Apid>>();
        party(self) == party(other) && self.seats == other.seats
    }
}

/// Goes through the candidates, which stand in order of turn. `loses`: how much one loses by being moved aside,
/// in processor milliseconds; `chosen`: the nodes that one could use which has chosen some, in rows, by their place
/// on the line; both are seldom asked. `room`: of the decision before.
pub fn pack(
    occupancy: &Occupancy,
    order: &[Candidate<'_>],
    rules: &Rules,
    loses: &dyn Fn(&Candidate<'_>) -> u64,
    chosen: &dyn Fn(&Candidate<'_>) -> Vec<Range<usize>>,
    room: &mut Room,
) -> Packing {
    if order.is_empty() {
        return Packing::default();
    }
    let mut packer = Packer::new(occupancy, order, rules, loses, std::mem::take(room));
    let (mut party, mut keepers) = (Vec::with_capacity(order.len()), 0);
    for (at, candidate) in order.iter().enumerate() {
        if !candidate.chosen && packer.turn(at) {
            party.push(candidate.apid);
        } else if candidate.keeps && keepers < KEEPERS_MAX {
            keepers += 1;
            packer.board.keep(|| match candidate.chosen {
                true => chosen(candidate),
                false => usable_runs(occupancy.line(), &candidate.wanted),
            });
        }
        packer.board.passed(at);
    }
    let mut seats = BTreeMap::new();
    for (at, seat) in packer.seats {
        let one = &order[at as usize];
        // (A window that was made for one may be the one where it sits.)
        if one.home != Some(&seat) {
            seats.insert(one.apid, seat);
        }
    }
    *room = packer.board.over();
    Packing { party, seats }
}

type AllElse = (u32, Option<u32>, Option<u64>, bool, RegionSet);

struct Packer<'a> {
    board: Board<'a>,
    order: &'a [Candidate<'a>],
    /// Who has been given a place by this decision.
    seats: BTreeMap<u32, Seat>,
    /// The smallest width for which no window was found, by all else that is asked.
    too_wide: BTreeMap<AllElse, u64>,
    searches: usize,
    compactions: usize,
    /// The highest level at which somebody new may sit.
    level: u32,
    rules: &'a Rules,
    loses: &'a dyn Fn(&Candidate<'_>) -> u64,
    /// What that is for each, once it is known.
    losses: Vec<u64>,
    /// The gaps that there were at the last compaction.
    rows: Rows,
}

impl<'a> Packer<'a> {
    fn new(
        occupancy: &'a Occupancy,
        order: &'a [Candidate<'a>],
        rules: &'a Rules,
        loses: &'a dyn Fn(&Candidate<'_>) -> u64,
        room: Room,
    ) -> Packer<'a> {
        Packer {
            board: Board::new(occupancy, order, rules, room),
            order,
            seats: BTreeMap::new(),
            too_wide: BTreeMap::new(),
            searches: 0,
            compactions: 0,
            level: occupancy.rules_in(rules.domain).highest_level(),
            rules,
            loses,
            losses: Vec::new(),
            rows: Rows::default(),
        }
    }

    /// Whether it runs.
    fn turn(&mut self, at: usize) -> bool {
        let candidate = &self.order[at];
        if let Some(home) = candidate.home {
            match self.board.at_home(at, home) {
                board::Home::Free => {
                    self.board.take_home(at, home);
                    return candidate.now != Now::Comes;
                }
                // Those for whom it must go are not there yet.
                board::Home::Coming if candidate.now == Now::Runs => {
                    self.board.take_home(at, home);
                    return true;
                }
                _ => {}
            }
        }
        if candidate.now == Now::Comes || candidate.home.is_some() && !candidate.may_move {
            return false;
        }
        if candidate.wanted.shape.processors() > self.board.free_processors() {
            return false;
        }
        if self.search(at) {
            return true;
        }
        if let Some(budget) = candidate.may_move_others
            && self.compactions < self.rules.compactions_max
        {
            self.compactions += 1;
            return candidate.wanted.reach.sets().any(|regions| {
                let form = Form::of(candidate, self.level, regions);
                self.compact(at, &form, budget)
            });
        }
        false
    }

    /// Gives it the best window there is, if there is one: one where nobody is displaced, wherever it may go,
    /// before one where somebody is.
    fn search(&mut self, at: usize) -> bool {
        let candidate = &self.order[at];
        // (Nearly always one.)
        let mut forms = Vec::with_capacity(1);
        for regions in candidate.wanted.reach.sets() {
            let form = Form::of(candidate, self.level, regions);
            if self.may_be(&form) {
                forms.push(form);
            }
        }
        for form in &forms {
            if let Some(nodes) = self.board.best_fit(form, Of::Idle) {
                return self.give(at, form, nodes, Of::Idle);
            }
        }
        for form in &forms {
            if let Some(nodes) = self.board.best_over(form) {
                return self.give(at, form, nodes, Of::Free);
            }
            if matches!(form, Form::Laid(_)) {
                let least = self.too_wide.entry(by_all_else(form)).or_insert(u64::MAX);
                *least = (*least).min(form.need().width);
            }
        }
        false
    }

    /// Whether a search may find something, and may be made.
    fn may_be(&mut self, form: &Form<'_>) -> bool {
        // Where no window was found no wider one is, if all else is alike. (Shapes that are kept node by
        // node say nothing about others.)
        let too_wide = self.too_wide.get(&by_all_else(form));
        let hopeless = too_wide.is_some_and(|least| form.need().width >= *least);
        if hopeless && matches!(form, Form::Laid(_))
            || self.searches >= self.rules.searches_max
            || self.board.scratch.steps >= STEPS_ALL_MAX
        {
            return false;
        }
        self.searches += 1;
        true
    }

    fn give(&mut self, at: usize, form: &Form<'_>, nodes: Range<usize>, of: Of) -> bool {
        let seat = self.board.seat(form, nodes, of);
        self.board.take(at, &seat);
        self.seats.insert(at as u32, seat);
        true
    }
}

/// What is asked for beside the width.
fn by_all_else(form: &Form<'_>) -> AllElse {
    let Terms { depth, per_node, memory_per_pe, exclusive, regions, .. } = form.need().terms;
    (depth, per_node, memory_per_pe, exclusive, regions)
}
