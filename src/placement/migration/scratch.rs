//! A copy of the occupancy on which moves are tried.

use super::{Mover, Situation};
use crate::apteam::Apid;
use crate::apteam::place::PlacementList;
use crate::machine::{Nid, Reach, RegionSet};
use crate::occupancy::{Occupancy, Terms};
use crate::placement::place_on;
use crate::placement::window::adjacent;

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

/// The occupancy as it is after the moves that were tried.
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

    /// Whether applications may come to a node.
    pub fn takes(&self, at: usize) -> bool {
        takes(&self.occupancy, at)
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

    /// The places of a piece on the nodes that begin at `start`: on each the processors with the
    /// fewest residents. It fits there.
    pub fn list(&self, start: usize, piece: &Piece) -> PlacementList {
        let place = |(at, pes): (usize, &u32)| place_on(&self.occupancy, &piece.terms, at, *pes);
        PlacementList((start..).zip(&piece.pes).map(place).collect())
    }

    /// Whether a piece fits on the nodes that begin at `start`, wherever they are.
    pub fn fits_all(&self, start: usize, piece: &Piece) -> bool {
        fits_all(&self.occupancy, start, piece, &piece.terms)
    }

    /// The first node of a place for a piece, among nodes that `may` allows: on processors where
    /// the fewest sit, free ones first; of these in the first of the regions to which it may go;
    /// of these in the unbroken stretch with the least room that holds it, then at the lowest NID.
    pub fn best_fit(&mut self, piece: &Piece, may: impl Fn(usize) -> bool) -> Option<usize> {
        (0..=piece.terms.level).find_map(|level| self.best_at(piece, level, &may))
    }

    /// As [`Scratch::best_fit`], on processors where no more sit than the level says.
    fn best_at(&mut self, piece: &Piece, level: u32, may: impl Fn(usize) -> bool) -> Option<usize> {
        let width = piece.pes.iter().map(|pes| u64::from(*pes)).sum();
        for regions in piece.reach.sets() {
            let terms = Terms { regions, level, ..piece.terms };
            let ready = self.occupancy.ready(&terms)?;
            let fits = |start: &usize| {
                fits_all(ready.occupancy, *start, piece, &terms)
                    && (*start..*start + piece.pes.len()).all(&may)
            };
            for stretch in ready.stretches(width) {
                let last = (stretch.end + 1).saturating_sub(piece.pes.len());
                if let Some(start) = (stretch.start..last).find(fits) {
                    return Some(start);
                }
            }
        }
        None
    }
}

/// Whether applications may come to a node.
fn takes(occupancy: &Occupancy, at: usize) -> bool {
    let slot = &occupancy.line()[at];
    slot.application && slot.open
}

/// Whether a piece fits on the nodes that begin at `start`.
fn fits_all(occupancy: &Occupancy, start: usize, piece: &Piece, terms: &Terms) -> bool {
    let line = occupancy.line();
    let mut each = (start..).zip(piece.pes.iter().zip(&piece.counted));
    start + piece.pes.len() <= line.len()
        && each.all(|(at, (pes, counted))| {
            let slot = &line[at];
            (at == start || adjacent(line, at - 1))
                && takes(occupancy, at)
                && occupancy.room(at, terms).pes >= *pes
                && (slot.memory == 0
                    || slot.limit.saturating_sub(slot.promised) >= (*counted).min(slot.limit))
        })
}
