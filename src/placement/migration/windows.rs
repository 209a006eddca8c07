//! Which windows are worth trying: those with the cheapest applications on them.
//!
//! Applications are lifted off the line in a few rounds, cheap ones first. After each round both
//! ends of the windows that there are then move along the line once; what it would cost to lift all
//! who stand in one comes from two sums over the line:
//!
//! ```text
//!   node                     0  1  2  3  4  5
//!   A costs 3, B costs 5     A  A     B  B  B
//!   begun before the end     3  3  3  8  8  8
//!   ended before the start   0  0  3  3  3  3      window 1-3: 8 - 0; window 2-4: 8 - 3
//! ```

use super::scratch::takes;
use super::search::Liftable;
use super::{Refusal, Situation, Waiting};
use crate::apteam::Apid;
use crate::occupancy::{Occupancy, Room, Terms};
use crate::placement::window::{self, Need};
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::ops::{ControlFlow, Range};

/// Rounds of lifting.
const ROUNDS_MAX: usize = 4;
/// Windows that are tried.
const WINDOWS_MAX: usize = 48;

/// A window worth trying.
pub(super) struct Candidate {
    /// Its first node.
    pub start: usize,
    /// Who stands in it and can be lifted.
    pub lifted: Vec<Apid>,
}

/// Sums of numbers over the nodes on which applications begin and end.
struct Sums {
    begun: Vec<(u128, usize)>,
    ended: Vec<(u128, usize)>,
}

impl Sums {
    fn of(occupancy: &Occupancy, each: impl Iterator<Item = (Apid, u128)>) -> Sums {
        let nodes = occupancy.line().len();
        let mut sums = Sums { begun: vec![(0, 0); nodes + 1], ended: vec![(0, 0); nodes + 1] };
        for (apid, number) in each {
            let held = occupancy.held(apid);
            if let (Some(first), Some(last)) = (held.first(), held.last()) {
                for sum in [&mut sums.begun[first.at + 1], &mut sums.ended[last.at + 1]] {
                    *sum = (sum.0.saturating_add(number), sum.1 + 1);
                }
            }
        }
        for all in [&mut sums.begun, &mut sums.ended] {
            for at in 0..nodes {
                all[at + 1] = (all[at].0.saturating_add(all[at + 1].0), all[at].1 + all[at + 1].1);
            }
        }
        sums
    }

    /// Of those who stand in a window.
    fn within(&self, nodes: &Range<usize>) -> u128 {
        self.begun[nodes.end].0.saturating_sub(self.ended[nodes.start].0)
    }

    /// Windows with the same answer have the same applications.
    fn who(&self, nodes: &Range<usize>) -> (usize, usize) {
        (self.begun[nodes.end].1, self.ended[nodes.start].1)
    }
}

/// The line with some taken off it: what that leaves of each node, and no more.
struct Bare<'a> {
    situation: Situation<'a>,
    terms: Terms,
    /// By processor, counted over all nodes.
    residents: Vec<u16>,
    promised: Vec<u64>,
    rooms: Vec<Room>,
}

impl<'a> Bare<'a> {
    fn new(situation: Situation<'a>, terms: Terms) -> Bare<'a> {
        let occupancy = situation.occupancy;
        let nodes = 0..occupancy.line().len();
        let mut bare = Bare {
            situation,
            terms,
            residents: nodes.clone().flat_map(|at| occupancy.residents(at)).copied().collect(),
            promised: occupancy.line().iter().map(|slot| slot.promised).collect(),
            rooms: vec![Room::default(); nodes.len()],
        };
        nodes.for_each(|at| bare.look(at));
        bare
    }

    fn look(&mut self, at: usize) {
        let slot = &self.situation.occupancy.line()[at];
        if takes(&self.situation, at) {
            let first = self.situation.occupancy.first()[at];
            let residents = &self.residents[first..first + slot.processors as usize];
            let processors = self.terms.given(residents.iter().copied());
            self.rooms[at] = slot.room(&self.terms, processors, self.promised[at]);
        }
    }

    fn lift(&mut self, apid: Apid) {
        let weight = self.situation.occupancy.weight(apid);
        for held in self.situation.occupancy.held(apid) {
            let first = self.situation.occupancy.first()[held.at];
            for p in &held.processors {
                self.residents[first + *p as usize] -= weight;
            }
            self.promised[held.at] = self.promised[held.at].saturating_sub(held.memory);
            self.look(held.at);
        }
    }
}

/// The windows to try, the cheapest first.
pub(super) fn cheapest(
    situation: Situation,
    need: &Need,
    liftable: &BTreeMap<Apid, Liftable>,
) -> Vec<Candidate> {
    let leave =
        || liftable.iter().filter(|(_, one)| one.leaves).map(|(apid, one)| (*apid, one.work));
    let works: Vec<u128> =
        leave().map(|(_, work)| work).collect::<BTreeSet<_>>().into_iter().collect();
    let rounds = works.len().min(ROUNDS_MAX);
    let bounds: Vec<u128> =
        (1..=rounds).map(|round| works[round * works.len() / rounds - 1]).collect();
    let mut bare = Bare::new(situation, need.terms);
    // What it costs to lift all, which round, first node, end: the dearest on top.
    let mut best: BinaryHeap<(u128, usize, usize, usize)> = BinaryHeap::new();
    for (round, most) in bounds.iter().enumerate() {
        let low = round.checked_sub(1).map(|before| bounds[before]);
        for (apid, _) in
            leave().filter(|(_, work)| work <= most && low.is_none_or(|low| *work > low))
        {
            bare.lift(apid);
        }
        let sums = Sums::of(situation.occupancy, leave().filter(|(_, work)| work <= most));
        let room = |at: usize| bare.rooms[at];
        let mut before = None;
        for run in window::runs(situation.occupancy.line(), room) {
            let _ = window::each(need, room, run, |nodes, _| {
                let who = sums.who(&nodes);
                if before.replace(who) != Some(who) {
                    best.push((sums.within(&nodes), round, nodes.start, nodes.end));
                    if best.len() > WINDOWS_MAX {
                        best.pop();
                    }
                }
                ControlFlow::Continue(())
            });
        }
    }
    let mut tried = BTreeSet::new();
    let mut candidates = Vec::new();
    for (_, round, start, end) in best.into_sorted_vec() {
        let here = (start..end).flat_map(|at| situation.occupancy.holders_at(at));
        let goes = |apid: &&Apid| {
            liftable.get(apid).is_some_and(|one| one.leaves && one.work <= bounds[round])
        };
        let lifted: BTreeSet<Apid> = here.filter(goes).copied().collect();
        if tried.insert((start, lifted.clone())) {
            candidates.push(Candidate { start, lifted: lifted.into_iter().collect() });
        }
    }
    candidates
}

/// The window with the fewest who can't be moved, and why; `None`: there is one without any.
pub(super) fn hindered(situation: &Situation, waiting: &Waiting) -> Option<Refusal> {
    let all = situation.occupancy;
    let wanted = &waiting.wanted;
    let need = wanted.need(wanted.highest_level(all), wanted.reach.passes);
    let stay: Vec<Apid> =
        all.applications().filter(|apid| situation.hindrance(*apid).is_some()).collect();
    let sums = Sums::of(all, stay.iter().map(|apid| (*apid, 1)));
    let room = |at: usize| match takes(situation, at) {
        true => all.line()[at].room(&need.terms, all.line()[at].processors, 0),
        false => Room::default(),
    };
    let mut fewest: Option<(u128, Range<usize>)> = None;
    for run in window::runs(all.line(), room) {
        let _ = window::each(&need, room, run, |nodes, _| {
            let count = sums.within(&nodes);
            if fewest.as_ref().is_none_or(|(least, _)| count < *least) {
                fewest = Some((count, nodes));
            }
            ControlFlow::Continue(())
        });
    }
    let Some((count, nodes)) = fewest else { return Some(Refusal::NoNodes) };
    if count == 0 {
        return None;
    }
    let holders: BTreeSet<Apid> =
        nodes.clone().flat_map(|at| all.holders_at(at)).copied().collect();
    let by =
        holders.into_iter().filter_map(|apid| Some((apid, situation.hindrance(apid)?))).collect();
    Some(Refusal::Hindered { window: all.line()[nodes].iter().map(|slot| slot.nid).collect(), by })
}
