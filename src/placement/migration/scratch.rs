//! A copy of the occupancy on which moves are tried.

use super::{Mover, Situation};
use crate::apteam::Apid;
use crate::apteam::place::{Place, PlacementList};
use crate::machine::Nid;
use crate::occupancy::{Claim, Occupancy, Room, Terms};
use crate::placement::processors;
use crate::placement::window::{self, adjacent};

/// What a mover needs of its nodes, wherever they are.
pub(super) struct Piece {
    pub terms: Terms,
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
        Piece { terms: self.terms(mover), pes, counted: self.counted(apid, mover) }
    }

    fn terms(&self, mover: &Mover) -> Terms {
        let first = mover.places.0.first();
        let depth = first.map_or(1, |p| p.processors.len() / (p.pes as usize).max(1));
        let claim = mover.claim;
        Terms {
            depth: u32::try_from(depth).unwrap_or(u32::MAX).max(1),
            per_node: None,
            memory_per_pe: claim.memory_per_pe,
            level: if claim.shares { self.occupancy.rules().highest_level() } else { 0 },
            exclusive: claim.exclusive,
        }
    }

    /// Bytes with which a mover counts on each of its places where the situation has it.
    pub fn counted(&self, apid: Apid, mover: &Mover) -> Vec<u64> {
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
        let slot = &self.occupancy.line()[at];
        slot.application && slot.open && !self.situation.kept.contains(&slot.nid)
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
        for (nid, bytes) in to.nids().zip(self.counted(apid, mover)) {
            self.count(apid, nid, bytes);
        }
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
            for (nid, bytes) in to.nids().zip(self.counted(apid, mover)) {
                match *to == mover.places {
                    true => drop(self.occupancy.set_memory(apid, nid, bytes)),
                    false => self.count(apid, nid, bytes),
                }
            }
        }
    }

    /// It counts with as much memory as before, or as its claim says, whichever is more.
    fn count(&mut self, apid: Apid, nid: Nid, bytes: u64) {
        let held = self.occupancy.held(apid);
        let at = self.at(nid);
        let has = held.iter().find(|held| Some(held.at) == at).map_or(0, |held| held.memory);
        if has < bytes {
            self.occupancy.set_memory(apid, nid, bytes);
        }
    }

    /// Whether so many PEs of a kind fit on a node, and memory that they count with at least.
    pub fn fits(&self, at: usize, terms: &Terms, pes: u32, counted: u64) -> bool {
        let slot = &self.occupancy.line()[at];
        self.takes(at)
            && self.occupancy.room(at, terms).pes >= pes
            && (slot.memory == 0
                || slot.limit.saturating_sub(slot.promised) >= counted.min(slot.limit))
    }

    /// The places of these PEs on the nodes that begin at `start`: on each the processors with the
    /// fewest residents. They fit.
    pub fn list(
        &self,
        start: usize,
        terms: &Terms,
        pes: impl IntoIterator<Item = u32>,
    ) -> PlacementList {
        let place = |(at, pes): (usize, u32)| {
            let count = pes as usize * terms.depth as usize;
            let processors = processors(&self.occupancy, at, terms.level, count);
            Place { nid: self.occupancy.line()[at].nid, processors, pes }
        };
        PlacementList((start..).zip(pes).map(place).collect())
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

    /// Whether a piece fits on the nodes that begin at `start`.
    pub fn fits_all(&self, start: usize, piece: &Piece) -> bool {
        let line = self.occupancy.line();
        let each = piece.pes.iter().zip(&piece.counted).enumerate();
        start + piece.pes.len() <= line.len()
            && each.into_iter().all(|(i, (pes, counted))| {
                (i == 0 || adjacent(line, start + i - 1))
                    && self.fits(start + i, &piece.terms, *pes, *counted)
            })
    }

    /// First nodes of places for a piece: best fit first, at most so many. That is fewest
    /// applications on its nodes, then fewest free processors left on them, then the shortest run
    /// of usable nodes around them, then the lowest NID.
    pub fn best_fit(&self, piece: &Piece, may: impl Fn(usize) -> bool, most: usize) -> Vec<usize> {
        let line = self.occupancy.line();
        let room = |at: usize| match self.takes(at) && may(at) {
            true => self.occupancy.room(at, &piece.terms),
            false => Room::default(),
        };
        let mut found: Vec<(usize, u64, usize, usize)> = Vec::new();
        for run in window::runs(line, room) {
            let last = (run.end + 1).saturating_sub(piece.pes.len());
            for start in run.start..last {
                if !self.fits_all(start, piece) {
                    continue;
                }
                let nodes = start..start + piece.pes.len();
                let holders = nodes.clone().map(|at| self.occupancy.holders_at(at).len());
                let free = nodes.clone().map(|at| u64::from(line[at].free)).sum();
                let holders = if piece.terms.level == 0 { 0 } else { holders.sum() };
                found.push((holders, free, run.len(), start));
            }
        }
        found.sort_unstable();
        found.truncate(most);
        found.into_iter().map(|(.., start)| start).collect()
    }
}
