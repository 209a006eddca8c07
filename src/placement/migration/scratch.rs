//! A copy of the occupancy on which moves are tried.

use super::{Mover, Situation};
use crate::apteam::Apid;
use crate::apteam::place::{Place, PlacementList};
use crate::machine::{Nid, Reach, RegionSet};
use crate::occupancy::{Claim, Occupancy, Terms};
use crate::placement::window::adjacent;
use crate::placement::{place_on, processors};
use std::collections::BTreeSet;

/// What a mover needs of its nodes, wherever they are.
pub(super) struct Piece {
    /// Of nodes anywhere.
    pub terms: Terms,
    /// Among which regions they may be.
    pub reach: Reach,
    /// PEs of each of them.
    pub pes: Vec<u32>,
    /// Bytes of each at least.
    pub counted: Vec<u64>,
}

/// Who sits where while a plan is carried out in thought.
pub(super) struct Scratch<'a> {
    pub situation: Situation<'a>,
    pub occupancy: Occupancy,
}

impl<'a> Scratch<'a> {
    pub fn new(situation: Situation<'a>) -> Scratch<'a> {
        let occupancy = situation.occupancy.clone();
        Scratch { situation, occupancy }
    }

    /// A mover, where it holds anything.
    pub fn mover(&self, apid: Apid) -> Option<&'a Mover> {
        self.situation.movers.get(&apid).filter(|_| !self.situation.occupancy.held(apid).is_empty())
    }

    /// What a mover needs.
    pub fn piece(&self, apid: Apid, mover: &Mover) -> Piece {
        let pes = mover.places.0.iter().map(|place| place.pes).collect();
        let (terms, counted) = (self.terms(mover), self.counted(apid, mover));
        Piece { terms, reach: mover.reach, pes, counted }
    }

    fn terms(&self, mover: &Mover) -> Terms {
        let first = mover.places.0.first();
        let depth = first.map_or(1, |p| p.processors.len() / (p.pes as usize).max(1));
        let claim = mover.claim;
        let rules = self.occupancy.rules_in(mover.reach.passes);
        Terms {
            depth: u32::try_from(depth).unwrap_or(u32::MAX).max(1),
            per_node: None,
            memory_per_pe: claim.memory_per_pe,
            level: if claim.shares { rules.highest_level() } else { 0 },
            exclusive: claim.exclusive,
            regions: RegionSet::ALL,
        }
    }

    /// Bytes with which a mover counts on each of its places where the situation has it.
    pub fn counted(&self, apid: Apid, mover: &Mover) -> Vec<u64> {
        if !self.occupancy.memory_known() {
            return vec![0; mover.places.0.len()];
        }
        let held = self.situation.occupancy.held(apid);
        let of = |nid: Nid| {
            let at = self.at(nid)?;
            let i = held.binary_search_by_key(&at, |held| held.at).ok()?;
            Some(held[i].memory)
        };
        mover.places.nids().map(|nid| of(nid).unwrap_or(0)).collect()
    }

    /// A node's place on the line.
    pub fn at(&self, nid: Nid) -> Option<usize> {
        self.occupancy.line().binary_search_by_key(&nid, |slot| slot.nid).ok()
    }

    /// Whether anybody may come to a node.
    pub fn takes(&self, at: usize) -> bool {
        takes(&self.situation, at)
    }

    /// Takes an application away.
    pub fn lift(&mut self, apid: Apid) {
        self.occupancy.release(apid);
    }

    /// Seats a mover; false: it does not fit there, and nothing is changed.
    pub fn seat(&mut self, apid: Apid, mover: &Mover, to: &PlacementList) -> bool {
        if self.occupancy.take(apid, to, mover.claim).is_err() {
            return false;
        }
        self.count(apid, mover, to);
        true
    }

    /// Seats who waits; false: it does not fit there.
    pub fn seat_new(&mut self, apid: Apid, claim: Claim, to: &PlacementList) -> bool {
        self.occupancy.take(apid, to, claim).is_ok()
    }

    /// Seats a mover again where it was before it was lifted, in the situation or since.
    pub fn seat_back(&mut self, apid: Apid, mover: &Mover, to: &PlacementList) {
        // Only a list that does not say what the occupancy says can fail; then the next seat does.
        if self.occupancy.take_found(apid, to, mover.claim).is_ok() {
            self.count(apid, mover, to);
        }
    }

    /// What stays on its node counts with as much memory there as before; what has come to another
    /// node with as much, or with what its claim says, whichever is more.
    fn count(&mut self, apid: Apid, mover: &Mover, to: &PlacementList) {
        if !self.occupancy.memory_known() {
            return;
        }
        let counted = self.counted(apid, mover);
        for ((from, to), bytes) in mover.places.nids().zip(to.nids()).zip(counted) {
            let held = self.occupancy.held(apid);
            let here = self.at(to).and_then(|at| held.binary_search_by_key(&at, |h| h.at).ok());
            if from == to || here.is_some_and(|here| held[here].memory < bytes) {
                self.occupancy.set_memory(apid, to, bytes);
            }
        }
    }

    /// Places on the nodes of this list, with as many PEs on each: the processors there with the
    /// fewest residents.
    pub fn list_on(&self, nodes: &PlacementList, mover: &Mover) -> PlacementList {
        let terms = self.terms(mover);
        let place = |old: &Place| {
            let here = self.at(old.nid);
            let processors =
                here.map(|at| processors(&self.occupancy, at, terms.level, old.processors.len()));
            Place { nid: old.nid, pes: old.pes, processors: processors.unwrap_or_default() }
        };
        PlacementList(nodes.0.iter().map(place).collect())
    }

    /// The places of these PEs on the nodes that begin at `start`: on each the processors with the
    /// fewest residents. They fit.
    pub fn list(
        &self,
        start: usize,
        terms: &Terms,
        pes: impl IntoIterator<Item = u32>,
    ) -> PlacementList {
        let place = |(at, pes): (usize, u32)| place_on(&self.occupancy, terms, at, pes);
        PlacementList((start..).zip(pes).map(place).collect())
    }

    /// Whether a piece fits on the nodes that begin at `start`, wherever they are.
    pub fn fits_all(&self, start: usize, piece: &Piece) -> bool {
        fits_all(&self.situation, &self.occupancy, start, piece, &piece.terms)
    }

    /// Whether it fits on its own nodes, which begin at `start`. It comes to none of them, so that
    /// they may be closed, or kept for somebody else.
    pub fn fits_at_home(&self, start: usize, piece: &Piece) -> bool {
        let terms = Terms { memory_per_pe: Some(0), ..piece.terms };
        fits(&self.occupancy, start, piece, |at| {
            let slot = &self.occupancy.line()[at];
            let processors = terms.given(self.occupancy.residents(at).iter().copied());
            // (It counts with as much memory as before, and with none by its claim.)
            slot.room(&terms, processors, slot.promised).pes
        })
    }

    /// First nodes of places for a piece, at most so many: those on processors where the fewest sit, free ones
    /// first; of these those of the regions to which it may go that are tried first, of these those in the
    /// unbroken stretches with the least room that hold them, then those with the lowest NIDs. And how many
    /// nodes were looked at.
    pub fn best_fit(
        &mut self,
        piece: &Piece,
        may: impl Fn(usize) -> bool,
        most: usize,
    ) -> (Vec<usize>, usize) {
        let (mut found, mut visits) = (Vec::new(), 0);
        let levels = match most {
            // All are wanted: those that are not free are put in order once they are known.
            usize::MAX => [0, piece.terms.level].into_iter().collect::<BTreeSet<u32>>(),
            _ => (0..=piece.terms.level).collect(),
        };
        let mut before = 0;
        for level in levels {
            visits += self.at_level(piece, level, &may, most, &mut found);
            if found.len() >= most {
                break;
            }
            if most == usize::MAX {
                let mut rest = found.split_off(before);
                rest.sort_by_cached_key(|start| self.most_on(*start, piece));
                found.extend(rest);
            }
            before = found.len();
        }
        (found, visits)
    }

    /// The same on processors where no more sit than the level says, beside those that were found before.
    fn at_level(
        &mut self,
        piece: &Piece,
        level: u32,
        may: impl Fn(usize) -> bool,
        most: usize,
        found: &mut Vec<usize>,
    ) -> usize {
        let before: BTreeSet<usize> = found.iter().copied().collect();
        let mut visits = 1;
        let width = piece.pes.iter().map(|pes| u64::from(*pes)).sum();
        for regions in piece.reach.sets() {
            let terms = Terms { regions, level, ..piece.terms };
            let Some(ready) = self.occupancy.ready(&terms) else { break };
            for stretch in ready.stretches(width) {
                let last = (stretch.end + 1).saturating_sub(piece.pes.len());
                for start in stretch.start..last {
                    visits += 1;
                    let nodes = start..start + piece.pes.len();
                    if !before.contains(&start)
                        && fits_all(&self.situation, ready.occupancy, start, piece, &terms)
                        && nodes.into_iter().all(&may)
                    {
                        visits += piece.pes.len();
                        found.push(start);
                        if found.len() >= most {
                            return visits;
                        }
                    }
                }
            }
        }
        visits
    }

    /// The most that would sit with a piece on one of its processors, on the nodes that begin at `start`: it
    /// takes those where the fewest do.
    pub fn most_on(&self, start: usize, piece: &Piece) -> u16 {
        let each = (start..).zip(&piece.pes).map(|(at, pes)| {
            let mut residents = self.occupancy.residents(at).to_vec();
            residents.sort_unstable();
            let last = (*pes as usize * piece.terms.depth as usize).saturating_sub(1);
            residents.get(last).copied().unwrap_or(u16::MAX)
        });
        each.max().unwrap_or(0)
    }

    /// Whether nobody sits on any processor of these places.
    pub fn is_free(&self, places: &PlacementList) -> bool {
        places.0.iter().all(|place| {
            let residents = self.at(place.nid).map(|at| self.occupancy.residents(at));
            let on = |p: &u32| residents.and_then(|r| r.get(*p as usize)).is_some_and(|r| *r == 0);
            place.processors.iter().all(on)
        })
    }
}

/// Whether anybody may come to a node.
pub(super) fn takes(situation: &Situation, at: usize) -> bool {
    let slot = &situation.occupancy.line()[at];
    slot.application && slot.open && !situation.kept.contains(&slot.nid)
}

fn fits_all(
    situation: &Situation,
    occupancy: &Occupancy,
    start: usize,
    piece: &Piece,
    terms: &Terms,
) -> bool {
    fits(occupancy, start, piece, |at| match takes(situation, at) {
        true => occupancy.room(at, terms).pes,
        false => 0,
    })
}

/// Whether a piece fits on the nodes that begin at `start`, which hold so many PEs each.
fn fits(occupancy: &Occupancy, start: usize, piece: &Piece, room: impl Fn(usize) -> u32) -> bool {
    let line = occupancy.line();
    let mut each = (start..).zip(piece.pes.iter().zip(&piece.counted));
    start + piece.pes.len() <= line.len()
        && each.all(|(at, (pes, counted))| {
            let slot = &line[at];
            (at == start || adjacent(line, at - 1))
                && room(at) >= *pes
                && (slot.memory == 0
                    || slot.limit.saturating_sub(slot.promised) >= (*counted).min(slot.limit))
        })
}
