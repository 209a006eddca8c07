//! Which move comes before which.
//!
//! A move *waits for* another when it needs processors, or memory, that the other has where it sits.
//! That is a graph. Whoever waits for nobody goes first; then the graph is another.
//!
//! ```text
//!   NID  01234567
//!        AABBCC..     A to 2-3, B to 4-5, C to 6-7:  A waits for B waits for C: C, B, A
//!        AABB....     A to 2-3, B to 0-1:            a circle: A to 4-5, B to 0-1, A to 2-3
//! ```
//!
//! In a circle one goes out of the way for a while, to a free place where no other is to go: the
//! one for which that costs least. Each does so once at most. Where that does not help either, the
//! moves are given up.
//!
//! On processors with one resident each, no move is in another's way by being early, so that moves
//! are found to wait for each other only where they do. Where processors are shared, who comes
//! first is decided by how many wait for it, and a circle may be seen where another choice would
//! have had none.

use super::scratch::Scratch;
use super::{Move, Mover, Refusal, Situation, Target};
use crate::apteam::Apid;
use crate::apteam::place::PlacementList;
use crate::machine::Nid;
use petgraph::Direction::Incoming;
use petgraph::algo::tarjan_scc;
use petgraph::graph::DiGraph;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Moves that are ordered at once: the graph has an edge for each pair of them at worst.
const TARGETS_MAX: usize = 256;

/// An order for moves, in which at no instant a processor has more residents than it may have, nor
/// a node more memory promised than its limit. Applications that stay need not be named.
/// Of more than 256 targets those beyond are refused.
///
/// # Errors
/// [`Refusal::Blocked`]: a place is not there, or not of this shape, or held by one who stays.
/// [`Refusal::Circle`]: moves wait for each other, and nothing breaks the circle.
pub fn order(situation: &Situation, targets: &[Target]) -> Result<Vec<Move>, Refusal> {
    let scratch = Scratch::new(*situation);
    let mut all = Vec::new();
    let mut named = BTreeSet::new();
    for target in targets {
        let blocked = || blocked(target, 0);
        let mover = scratch.mover(target.apid).ok_or_else(blocked)?;
        let shape = |list: &PlacementList| -> Vec<(u32, usize)> {
            list.0.iter().map(|place| (place.pes, place.processors.len())).collect()
        };
        if shape(&mover.places) != shape(&target.to) || !named.insert(target.apid) {
            return Err(blocked());
        }
        for (i, (from, to)) in mover.places.0.iter().zip(target.to.0.iter()).enumerate() {
            // Where it is already it may stay.
            let at = scratch.at(to.nid).ok_or_else(|| blocked_at(target, to.nid))?;
            if from.nid != to.nid && !scratch.takes(at) || all.len() >= TARGETS_MAX {
                return Err(self::blocked(target, i));
            }
        }
        if mover.places != target.to {
            let counted = scratch.counted(target.apid, mover);
            let now = mover.places.clone();
            all.push(Pending { target, mover, counted, now, detoured: false });
        }
    }
    Run { scratch, pending: (0..).zip(all).collect(), moves: Vec::new() }.all()
}

fn blocked_at(target: &Target, nid: Nid) -> Refusal {
    Refusal::Blocked { apid: target.apid, nid }
}

fn blocked(target: &Target, place: usize) -> Refusal {
    blocked_at(target, target.to.0.get(place).map_or(Nid(0), |place| place.nid))
}

/// One that has yet to go.
struct Pending<'a> {
    target: &'a Target,
    mover: &'a Mover,
    counted: Vec<u64>,
    /// Where it is.
    now: PlacementList,
    detoured: bool,
}

/// What is short on a node.
struct Lack {
    at: usize,
    /// These processors; none: memory.
    processors: Option<Vec<u32>>,
}

struct Run<'a> {
    scratch: Scratch<'a>,
    pending: BTreeMap<usize, Pending<'a>>,
    moves: Vec<Move>,
}

impl Run<'_> {
    fn all(mut self) -> Result<Vec<Move>, Refusal> {
        while !self.pending.is_empty() {
            let lacks: BTreeMap<usize, Vec<Lack>> =
                self.pending.iter().map(|(i, one)| (*i, self.lacks(one))).collect();
            let mut waits: DiGraph<usize, ()> = DiGraph::new();
            let nodes: BTreeMap<usize, _> =
                lacks.keys().map(|i| (*i, waits.add_node(*i))).collect();
            for (i, lacks) in &lacks {
                let blockers = self.blockers(*i, lacks);
                if let (Some(lack), true) = (lacks.first(), blockers.is_empty()) {
                    let nid = self.scratch.occupancy.line()[lack.at].nid;
                    return Err(blocked_at(self.pending[i].target, nid));
                }
                for j in blockers {
                    waits.add_edge(nodes[i], nodes[&j], ());
                }
            }
            let mut ready: Vec<usize> =
                lacks.iter().filter(|(_, lacks)| lacks.is_empty()).map(|(i, _)| *i).collect();
            ready.sort_by_key(|i| Reverse(waits.neighbors_directed(nodes[i], Incoming).count()));
            if ready.is_empty() {
                // The first component waits for nobody outside it.
                let circle = tarjan_scc(&waits).into_iter().next().unwrap_or_default();
                self.break_circle(circle.into_iter().map(|node| waits[node]).collect())?;
                continue;
            }
            // Who finds its processors free goes before who would share them until another has gone.
            let free = |i: &&usize| self.finds_it_free(&self.pending[i]);
            let at_once: Vec<usize> = ready.iter().filter(free).copied().collect();
            for i in if at_once.is_empty() { ready } else { at_once } {
                // The one before may have taken what there was.
                if self.lacks(&self.pending[&i]).is_empty() {
                    self.go(i)?;
                }
            }
        }
        Ok(self.moves)
    }

    /// What is short for it to go now.
    fn lacks(&self, one: &Pending) -> Vec<Lack> {
        let occupancy = &self.scratch.occupancy;
        let (apid, claim) = (one.target.apid, one.mover.claim);
        let (own, weight) = (occupancy.held(apid), occupancy.weight(apid));
        let rules = occupancy.rules_in(one.mover.reach.passes);
        let level = if claim.shares { rules.highest_level() } else { 0 };
        let mut lacks = Vec::new();
        let places = one.mover.places.nids().zip(one.target.to.0.iter()).zip(&one.counted);
        for ((home, place), counted) in places {
            let stays = home == place.nid;
            let Some(at) = self.scratch.at(place.nid) else { continue };
            let slot = &occupancy.line()[at];
            let own = own.binary_search_by_key(&at, |held| held.at).ok().map(|i| &own[i]);
            let own_memory = own.map_or(0, |held| held.memory);
            let over = |p: u32| {
                let residents = occupancy.residents(at).get(p as usize).copied();
                let its = own.is_some_and(|held| held.processors.binary_search(&p).is_ok());
                residents.is_none_or(|r| u32::from(r - if its { weight } else { 0 }) > level)
            };
            let count = place.processors.len();
            // What stays on its node counts as before.
            let memory = match stays {
                true => *counted,
                false => slot.memory_of(claim.memory_per_pe, place.pes, count).max(*counted),
            };
            let promised = slot.promised.saturating_sub(own_memory);
            let short = slot.memory > 0
                && memory > own_memory
                && slot.limit.saturating_sub(promised) < memory.min(slot.limit);
            let over: Vec<u32> = match claim.exclusive {
                true => (0..slot.processors).filter(|p| over(*p)).collect(),
                false => place.processors.iter().copied().filter(|p| over(*p)).collect(),
            };
            if short {
                lacks.push(Lack { at, processors: None });
            } else if !over.is_empty() {
                lacks.push(Lack { at, processors: Some(over) });
            }
        }
        lacks
    }

    /// Whether nobody else sits on the processors to which it is to go. (Those of its own it has.)
    fn finds_it_free(&self, one: &Pending) -> bool {
        let occupancy = &self.scratch.occupancy;
        let apid = one.target.apid;
        let (own, weight) = (occupancy.held(apid), occupancy.weight(apid));
        one.target.to.0.iter().all(|place| {
            let Some(at) = self.scratch.at(place.nid) else { return false };
            let own = own.binary_search_by_key(&at, |held| held.at).ok().map(|i| &own[i]);
            let residents = occupancy.residents(at);
            let alone = |p: u32| {
                let its = own.is_some_and(|held| held.processors.binary_search(&p).is_ok());
                residents.get(p as usize).is_some_and(|r| *r == if its { weight } else { 0 })
            };
            place.processors.iter().all(|p| alone(*p))
        })
    }

    /// Who has yet to go, and has something of what is short.
    fn blockers(&self, i: usize, lacks: &[Lack]) -> BTreeSet<usize> {
        let occupancy = &self.scratch.occupancy;
        let has = |j: &usize| {
            let held = occupancy.held(self.pending[j].target.apid);
            lacks.iter().any(|lack| match held.binary_search_by_key(&lack.at, |held| held.at) {
                Ok(k) => lack.processors.as_ref().is_none_or(|short| {
                    short.iter().any(|p| held[k].processors.binary_search(p).is_ok())
                }),
                Err(_) => false,
            })
        };
        self.pending
            .keys()
            .filter(|j| **j != i && !lacks.is_empty())
            .filter(|j| has(j))
            .copied()
            .collect()
    }

    /// It goes where it is to go.
    fn go(&mut self, i: usize) -> Result<(), Refusal> {
        let Some(one) = self.pending.remove(&i) else { return Ok(()) };
        let Target { apid, to } = one.target.clone();
        self.scratch.lift(apid);
        if !self.scratch.seat(apid, one.mover, &to) {
            return Err(blocked(one.target, 0));
        }
        let cost = self.scratch.situation.gate.cost(one.mover, &one.now, &to);
        self.moves.push(Move { apid, to, cost });
        Ok(())
    }

    /// One application of the circle goes out of the way.
    fn break_circle(&mut self, circle: Vec<usize>) -> Result<(), Refusal> {
        let circle: BTreeSet<usize> = circle.into_iter().collect();
        let mut best: Option<(u128, usize, PlacementList)> = None;
        for i in &circle {
            let Some((work, to)) = self.detour(*i) else { continue };
            if best.as_ref().is_none_or(|(least, ..)| work < *least) {
                best = Some((work, *i, to));
            }
        }
        let apids: BTreeSet<Apid> = circle.iter().map(|i| self.pending[i].target.apid).collect();
        let circle = || Refusal::Circle { apids: apids.iter().copied().collect() };
        let (_, i, to) = best.ok_or_else(circle)?;
        let one = self.pending.get_mut(&i).ok_or_else(circle)?;
        let apid = one.target.apid;
        one.detoured = true;
        let from = std::mem::replace(&mut one.now, to.clone());
        self.scratch.lift(apid);
        if !self.scratch.seat(apid, one.mover, &to) {
            return Err(circle());
        }
        let cost = self.scratch.situation.gate.cost(one.mover, &from, &to);
        self.moves.push(Move { apid, to, cost });
        Ok(())
    }

    /// A free place out of the way, and what going there and on to the target costs in all, in
    /// processor-nanoseconds.
    fn detour(&mut self, i: usize) -> Option<(u128, PlacementList)> {
        let one = self.pending.get(&i).filter(|one| !one.detoured)?;
        let (apid, mover, from) = (one.target.apid, one.mover, one.now.clone());
        let others: BTreeSet<usize> = self
            .pending
            .iter()
            .filter(|(j, _)| **j != i)
            .flat_map(|(_, other)| other.target.to.nids().filter_map(|nid| self.scratch.at(nid)))
            .collect();
        let piece = self.scratch.piece(apid, mover);
        self.scratch.lift(apid);
        let start = self.scratch.best_fit(&piece, |at| !others.contains(&at));
        let to = start.map(|start| self.scratch.list(start, &piece));
        self.scratch.seat_back(apid, mover, &from);
        let to = to?;
        let gate = self.scratch.situation.gate;
        let both = [(&from, &to), (&to, &one.target.to)].map(|(a, b)| gate.cost(mover, a, b));
        let cost = both[0].saturating_add(both[1]);
        Some((u128::from(mover.processors()) * cost.as_nanos(), to))
    }
}
