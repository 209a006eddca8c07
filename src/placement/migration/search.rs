//! The search: sets of applications lifted off the line, and ways to put them back.
//!
//! What has to be paid grows with who is lifted, so that nothing is gone into which costs as much as
//! the best plan known, or more than may be paid.

use super::order::{Wish, run};
use super::scratch::{Piece, Scratch};
use super::{Gate, Move, Mover, Plan, Refusal, Situation, Step, Waiting, windows};
use crate::apteam::Apid;
use crate::apteam::place::PlacementList;
use crate::machine::{Reach, RegionSet};
use crate::occupancy::{Claim, Terms};
use crate::placement::list;
use crate::placement::window::{self, Need};
use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::time::Duration;

/// Where no more than so many can be lifted, all sets of them are tried.
const EXACT_MAX: usize = 6;
/// Nodes that each part of the search looks at, or seats somebody on, give or take one look at the
/// line.
const VISITS_MAX: usize = 150_000;
/// What seating somebody counts as, for each of his nodes.
const SEAT_VISITS: usize = 4;
/// Ways to put one back that are gone into where not all are: of the first, the second, and so on;
/// of the others one.
const BREADTH: [usize; 2] = [2, 2];
/// Who waits is seated under this number while others are put back.
const NEW: Apid = Apid(u64::MAX);

/// What a plan may cost.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    pub work_max: u128,
    pub moves_max: usize,
}

impl Limits {
    pub const NONE: Limits = Limits { work_max: u128::MAX, moves_max: usize::MAX };

    pub fn of(gate: &Gate, waiting: &Waiting) -> Limits {
        Limits { work_max: gate.work_max(waiting), moves_max: gate.moves_max }
    }
}

/// What the search has found.
#[derive(Default)]
pub(super) struct Found {
    pub best: Option<Plan>,
    /// What came of the first way that failed.
    pub failure: Option<Refusal>,
}

/// One that can be lifted.
#[derive(Clone, Copy)]
pub(super) struct Liftable {
    /// What it costs to move it, in processor-nanoseconds.
    pub work: u128,
    /// It may go to other nodes; else only its processors may be changed.
    pub leaves: bool,
}

pub(super) struct Search<'a> {
    scratch: Scratch<'a>,
    need: Need,
    /// How who waits sits.
    claim: Claim,
    pub liftable: BTreeMap<Apid, Liftable>,
    pub limits: Limits,
    /// Processors are shared.
    shared: bool,
    /// Every way to put somebody back is gone into.
    every_way: bool,
    visits: usize,
    found: Found,
}

/// What a lifted one needs when it is put back.
struct Lifted<'a> {
    apid: Apid,
    mover: &'a Mover,
    piece: Piece,
    liftable: Liftable,
}

impl<'a> Search<'a> {
    /// For a window among these regions.
    pub fn new(
        situation: Situation<'a>,
        waiting: &Waiting,
        regions: RegionSet,
        limits: Limits,
    ) -> Search<'a> {
        let scratch = Scratch::new(situation);
        let wanted = &waiting.wanted;
        let need = wanted.need(wanted.highest_level(&scratch.occupancy), regions);
        let shared = wanted.rules(&scratch.occupancy).max_resident > 1;
        let mut liftable = BTreeMap::new();
        for apid in situation.occupancy.applications() {
            let Some(mover) = scratch.mover(apid) else { continue };
            let leaves = situation.hindrance(apid).is_none();
            if leaves || shared && mover.wall.is_none() {
                let work = work(mover, situation.gate.cost_of_all(mover));
                liftable.insert(apid, Liftable { work, leaves });
            }
        }
        let claim = Claim {
            shares: shared && !wanted.exclusive,
            memory_per_pe: wanted.memory_per_pe,
            exclusive: wanted.exclusive,
        };
        let found = Found::default();
        Search {
            scratch,
            need,
            claim,
            liftable,
            limits,
            shared,
            every_way: false,
            visits: 0,
            found,
        }
    }

    /// What it finds. It can be asked again.
    pub fn run(&mut self) -> Found {
        if self.liftable.len() <= EXACT_MAX {
            (self.every_way, self.visits) = (true, VISITS_MAX);
            self.every_set();
            if self.visits > 0 || self.is_free() {
                return std::mem::take(&mut self.found);
            }
        }
        self.run_bounded()
    }

    /// There is a plan that costs nothing.
    fn is_free(&self) -> bool {
        self.found.best.as_ref().is_some_and(|best| best.work == 0)
    }

    /// Only what is done where there are many.
    pub fn run_bounded(&mut self) -> Found {
        (self.every_way, self.visits) = (false, VISITS_MAX);
        for candidate in windows::cheapest(self.scratch.situation, &self.need, &self.liftable) {
            if self.visits == 0 || self.is_free() {
                break;
            }
            let lifted = self.let_off(candidate.start, candidate.lifted);
            if !lifted.is_empty() {
                self.try_set(&lifted, Some(candidate.start));
            }
        }
        std::mem::take(&mut self.found)
    }

    /// All sets, the cheapest first.
    fn every_set(&mut self) {
        let all: Vec<(Apid, u128)> = self.liftable.iter().map(|(a, l)| (*a, l.work)).collect();
        let members = |mask: usize| (0..all.len()).filter(move |i| mask >> i & 1 == 1);
        let mut sets: Vec<(u128, usize)> = (1..1usize << all.len())
            .map(|mask| (members(mask).map(|i| all[i].1).sum(), mask))
            .collect();
        sets.sort_unstable();
        for (_, mask) in sets {
            let lifted: Vec<Apid> = members(mask).map(|i| all[i].0).collect();
            self.try_set(&lifted, None);
        }
    }

    /// Of those that stand in a window, the ones that have to be lifted: dear ones stay where that
    /// does no harm. None: they would not be enough.
    fn let_off(&mut self, start: usize, mut lifted: Vec<Apid>) -> Vec<Apid> {
        lifted.sort_by_key(|apid| self.liftable[apid].work);
        lifted.iter().for_each(|apid| self.scratch.lift(*apid));
        let mut stay = Vec::new();
        if self.window_from(start).is_some() {
            for apid in lifted.iter().rev() {
                self.home(*apid);
                if self.window_from(start).is_some() {
                    stay.push(*apid);
                } else {
                    self.scratch.lift(*apid);
                }
            }
        } else {
            stay.clone_from(&lifted);
            lifted.iter().for_each(|apid| self.home(*apid));
        }
        lifted.retain(|apid| !stay.contains(apid));
        lifted.iter().for_each(|apid| self.home(*apid));
        lifted
    }

    fn home(&mut self, apid: Apid) {
        if let Some(mover) = self.scratch.mover(apid) {
            self.charge(mover);
            self.scratch.seat_back(apid, mover, &mover.places);
        }
    }

    /// Somebody is seated: that and taking him off again costs as much as to look at the nodes
    /// a few times.
    fn charge(&mut self, mover: &Mover) {
        self.visits = self.visits.saturating_sub(SEAT_VISITS * mover.places.0.len());
    }

    /// The window that begins at this node.
    fn window_from(&mut self, start: usize) -> Option<Range<usize>> {
        let line = self.scratch.occupancy.line();
        let Need { width, terms } = self.need;
        let longest = match terms.per_node {
            Some(n) => (width - 1) / u64::from(n) + 1,
            None => width,
        };
        let longest = usize::try_from(longest).unwrap_or(usize::MAX);
        let end = start.saturating_add(longest).min(line.len());
        let room = |at: usize| self.room(at, &terms);
        let run =
            window::runs(&line[..end], |at| if at < start { Default::default() } else { room(at) })
                .next()
                .filter(|run| run.start == start)?;
        let mut found = None;
        let length = run.len();
        let _ = window::each(&self.need, room, run, |nodes, _| {
            found = Some(nodes);
            ControlFlow::Break(())
        });
        self.visits = self.visits.saturating_sub(length);
        found.filter(|nodes| nodes.start == start)
    }

    fn room(&self, at: usize, terms: &Terms) -> crate::occupancy::Room {
        match self.scratch.takes(at) {
            true => self.scratch.occupancy.room(at, terms),
            false => Default::default(),
        }
    }

    /// Every window on the line, from the left.
    fn windows(&mut self) -> Vec<Range<usize>> {
        let line = self.scratch.occupancy.line();
        let terms = self.need.terms;
        let room = |at: usize| self.room(at, &terms);
        let mut all = Vec::new();
        for run in window::runs(line, room) {
            let _ = window::each(&self.need, room, run, |nodes, _| {
                all.push(nodes);
                ControlFlow::Continue(())
            });
        }
        self.visits = self.visits.saturating_sub(line.len());
        all
    }

    /// Lifts these, seats who waits, and puts them back in all the ways that are gone into.
    fn try_set(&mut self, apids: &[Apid], start: Option<usize>) {
        // Where processors are not shared, whoever is lifted goes elsewhere.
        let least: u128 = match self.shared {
            true => 0,
            false => apids.iter().map(|apid| self.liftable[apid].work).sum(),
        };
        let fewest = if self.shared { 0 } else { apids.len() };
        if fewest > self.limits.moves_max {
            return;
        }
        if least > self.limits.work_max || self.visits == 0 || self.is_free() {
            return;
        }
        let scratch = &self.scratch;
        let lifted = |apid: &Apid| {
            let mover = scratch.mover(*apid)?;
            let piece = scratch.piece(*apid, mover);
            Some(Lifted { apid: *apid, mover, piece, liftable: self.liftable[apid] })
        };
        let mut lifted: Vec<Lifted> = apids.iter().filter_map(lifted).collect();
        lifted.sort_by_key(|one| std::cmp::Reverse(one.mover.processors()));
        apids.iter().for_each(|apid| self.scratch.lift(*apid));
        let mut windows: Vec<Range<usize>> = match start {
            Some(start) => self.window_from(start).into_iter().collect(),
            None => self.windows(),
        };
        if self.shared {
            // (One that costs no less than another that was found before is not taken.)
            let (scratch, need) = (&self.scratch, &self.need);
            windows.sort_by_cached_key(|nodes| {
                !scratch.is_free(&list(&scratch.occupancy, need, nodes.clone()))
            });
        }
        for nodes in windows {
            let window = list(&self.scratch.occupancy, &self.need, nodes);
            if self.scratch.seat_new(NEW, self.claim, &window) {
                self.put_back(&lifted, &mut Vec::new(), &window, 0, 0);
                self.scratch.lift(NEW);
            }
        }
        apids.iter().for_each(|apid| self.home(*apid));
    }

    /// Puts back those who are not yet.
    fn put_back(
        &mut self,
        lifted: &[Lifted<'a>],
        back: &mut Vec<PlacementList>,
        window: &PlacementList,
        work: u128,
        moves: usize,
    ) {
        let Some(one) = lifted.get(back.len()) else { return self.leaf(lifted, back, window) };
        let own = one.mover.places.0.first().and_then(|place| self.scratch.at(place.nid));
        // On shared processors there may be room for it where it was, on others of them.
        let at_home = |at: &usize| self.scratch.fits_at_home(*at, &one.piece);
        let stays = own.filter(|at| self.shared && at_home(at));
        let stays = stays.filter(|_| self.is_contiguous(one.mover));
        let mut starts: Vec<usize> = stays.into_iter().collect();
        let dear = work.saturating_add(one.liftable.work) > self.limits.work_max;
        if one.liftable.leaves && !dear && moves < self.limits.moves_max {
            let elsewhere = |at: &usize| Some(*at) != own;
            let most = match self.every_way {
                true => usize::MAX,
                false => BREADTH.get(back.len()).copied().unwrap_or(1),
            };
            let (all, visits) = self.scratch.best_fit(&one.piece, |_| true, most);
            self.visits = self.visits.saturating_sub(visits);
            starts.extend(all.into_iter().filter(elsewhere));
        }
        if starts.is_empty() && !dear {
            self.found.failure.get_or_insert(Refusal::Homeless { apid: one.apid });
        }
        for start in starts {
            let (more, goes) = if Some(start) == stays { (0, 0) } else { (one.liftable.work, 1) };
            // A plan may have been found meanwhile.
            if work + more > self.limits.work_max || self.visits == 0 || self.is_free() {
                continue;
            }
            self.charge(one.mover);
            let pes = one.piece.pes.iter().copied();
            let to = match Some(start) == stays
                && self.scratch.seat(one.apid, one.mover, &one.mover.places)
            {
                true => {
                    self.scratch.lift(one.apid);
                    one.mover.places.clone()
                }
                false => self.scratch.list(start, &one.piece.terms, pes),
            };
            if self.scratch.seat(one.apid, one.mover, &to) {
                back.push(to);
                self.put_back(lifted, back, window, work + more, moves + goes);
                back.pop();
                self.scratch.lift(one.apid);
            }
        }
    }

    fn is_contiguous(&self, mover: &Mover) -> bool {
        mover.places.0.windows(2).all(|pair| pair[0].nid.0.checked_add(1) == Some(pair[1].nid.0))
    }

    /// All are back: whether that can be done in steps, and what it costs.
    fn leaf(&mut self, lifted: &[Lifted<'a>], back: &[PlacementList], window: &PlacementList) {
        self.scratch.lift(NEW);
        // Each has the processors that it was put back on. If they wait for each other's in a circle,
        // or for ever, whichever are free when it goes may do.
        for any in [!self.shared, true] {
            lifted.iter().for_each(|one| self.scratch.lift(one.apid));
            lifted.iter().for_each(|one| self.home(one.apid));
            let wishes: Vec<Wish> = lifted
                .iter()
                .zip(back)
                .map(|(one, to)| Wish { apid: one.apid, to: to.clone(), any })
                .collect();
            let straight = match run(&mut self.scratch, &wishes) {
                Ok(steps) => {
                    let straight = steps.len() <= lifted.len();
                    self.consider(lifted, window, steps);
                    straight
                }
                Err(refusal) => {
                    self.found.failure.get_or_insert(refusal);
                    false
                }
            };
            if straight || any {
                break;
            }
        }
        lifted.iter().for_each(|one| self.scratch.lift(one.apid));
        let seated = self.scratch.seat_new(NEW, self.claim, window);
        debug_assert!(seated, "the window was there before");
        for (one, to) in lifted.iter().zip(back) {
            let seated = self.scratch.seat(one.apid, one.mover, to);
            debug_assert!(seated, "so was its place");
        }
    }

    /// The moves are made on the scratch: the plan, if it is better than the best.
    fn consider(&mut self, lifted: &[Lifted<'a>], window: &PlacementList, steps: Vec<Step>) {
        let Some(window) = self.free_on(window) else { return };
        let mut moves: BTreeMap<Apid, Move> = BTreeMap::new();
        let mut sum = 0u128;
        for one in lifted {
            let mine = steps.iter().filter(|step| step.apid() == one.apid);
            let cost =
                mine.clone().fold(Duration::ZERO, |sum, step| sum.saturating_add(step.cost()));
            let to = mine.rev().find_map(|step| match step {
                Step::Move { to, .. } | Step::RollIn { to, .. } => Some(to.clone()),
                Step::RollOut { .. } => None,
            });
            if let Some(to) = to {
                sum = sum.saturating_add(work(one.mover, cost));
                let from = one.mover.places.clone();
                moves.insert(one.apid, Move { apid: one.apid, from, to, cost });
            }
        }
        let plan = Plan { window, moves: moves.into_values().collect(), steps, work: sum };
        let better = self.found.best.as_ref().is_none_or(|best| plan.work < best.work);
        if better && plan.work <= self.limits.work_max {
            self.limits.work_max = plan.work.saturating_sub(1);
            self.found.best = Some(plan);
        }
    }

    /// The window with processors as they are free now, of which there may be others than when it
    /// was looked for.
    fn free_on(&mut self, window: &PlacementList) -> Option<PlacementList> {
        let first = window.0.first().and_then(|place| self.scratch.at(place.nid))?;
        let pes = || window.0.iter().map(|place| place.pes);
        // It may have fewer PEs on a node than there is room for now: any so many do.
        let piece = Piece {
            terms: self.need.terms,
            reach: Reach::ALL,
            pes: pes().collect(),
            counted: vec![0; window.0.len()],
        };
        if !self.scratch.fits_all(first, &piece) {
            return None;
        }
        Some(self.scratch.list(first, &self.need.terms, pes()))
    }
}

/// What a cost comes to for an application, in processor-nanoseconds.
pub(super) fn work(mover: &Mover, cost: Duration) -> u128 {
    u128::from(mover.processors()).saturating_mul(cost.as_nanos())
}
