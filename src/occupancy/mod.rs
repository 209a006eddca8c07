//! Who sits where: per node its processors, their holders, and whether it takes new applications.
//!
//! # The problem
//!
//! Placement asks one question over and over: how much is free along the line of nodes? It asks
//! for every posting and, while postings wait, after every end. Everything else (who holds what,
//! which processor exactly) is asked only for the nodes of one window.
//!
//! # The approach
//!
//! The line is one array of small [`Slot`]s in order of NID, 16 bytes a node, with the count of
//! free processors already there, so that a search is one pass over contiguous memory. Beside it
//! stand the things that are asked for rarely: one bit a processor for the whole machine, the
//! holders of each node, and what each application holds.
//!
//! ```text
//!   slots    nid 0, 4 of 4 free | nid 1, 1 of 4 free | nid 3, 0 of 2 free      (NID 2: not there)
//!   used         0 0 0 0        |     1 1 1 0        |       1 1
//!   holders         -           |      12, 13        |        13
//! ```
//!
//! Every change of a slot goes through `Occupancy::changed`. A tree over the slots (largest run,
//! free processors of a subtree) for a million nodes would be brought up to date there and nowhere
//! else.

#[cfg(test)]
mod tests;

use crate::apteam::Apid;
use crate::apteam::place::PlacementList;
use crate::machine::{Flavor, Machine, Nid};
use fixedbitset::FixedBitSet;
use std::collections::{BTreeMap, BTreeSet};

/// Why processors can't be given away.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("processor {processor} of NID {nid} is not free")]
pub struct Conflict {
    /// The node.
    pub nid: Nid,
    /// Its processor.
    pub processor: u32,
}

/// One node as placement sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Its number.
    pub nid: Nid,
    /// All its processors.
    pub processors: u32,
    /// Those of them that nobody holds.
    pub free: u32,
    /// It takes new applications.
    pub open: bool,
    /// It has flavor `ap`.
    pub application: bool,
}

/// The line of a machine on which nobody sits, in order of NID; all nodes closed.
pub fn empty_line(machine: &Machine) -> Vec<Slot> {
    machine
        .nodes
        .values()
        .map(|node| Slot {
            nid: node.nid,
            processors: node.processors,
            free: node.processors,
            open: false,
            application: node.flavors.has(Flavor::Ap),
        })
        .collect()
}

/// A processor of the node at this place on the line.
type Processor = (usize, u32);

/// The state of every node's processors.
#[derive(Clone, Debug)]
pub struct Occupancy {
    /// By NID.
    slots: Vec<Slot>,
    /// Where the bits of each slot begin in `used`.
    first_bit: Vec<usize>,
    /// One bit a processor.
    used: FixedBitSet,
    /// Who holds processors of each slot, by number.
    holders: Vec<Vec<Apid>>,
    /// What each application holds, sorted.
    held: BTreeMap<Apid, Vec<Processor>>,
}

impl Occupancy {
    /// An empty machine whose nodes are all closed (no apinit offers them yet).
    pub fn new(machine: &Machine) -> Occupancy {
        let slots = empty_line(machine);
        let mut first_bit = Vec::with_capacity(slots.len());
        let mut bits = 0;
        for slot in &slots {
            first_bit.push(bits);
            bits += slot.processors as usize;
        }
        Occupancy {
            first_bit,
            used: FixedBitSet::with_capacity(bits),
            holders: vec![Vec::new(); slots.len()],
            held: BTreeMap::new(),
            slots,
        }
    }

    /// Opens a node for new applications, or closes it. What is there stays. No effect for a NID
    /// that is not there.
    pub fn set_open(&mut self, nid: Nid, open: bool) {
        if let Some(i) = self.index(nid) {
            self.changed(i, |slot| slot.open = open);
        }
    }

    /// Whether a node takes new applications.
    pub fn is_open(&self, nid: Nid) -> bool {
        self.slot(nid).is_some_and(|s| s.open)
    }

    /// Gives the processors of a placement to an application, which may already have others. Asks
    /// neither for open nodes nor for flavors: what is found running after a restart is taken too.
    ///
    /// # Errors
    /// The first processor that is another's (or not there); nothing is changed then.
    pub fn take(&mut self, apid: Apid, places: &PlacementList) -> Result<(), Conflict> {
        let mut taken: Vec<Processor> = Vec::new();
        for place in &places.0 {
            for &processor in &place.processors {
                let free = self.index(place.nid).filter(|&i| {
                    processor < self.slots[i].processors && !self.used[self.bit((i, processor))]
                });
                match free {
                    Some(i) => {
                        let bit = self.bit((i, processor));
                        self.used.insert(bit);
                        taken.push((i, processor));
                    }
                    None => {
                        // Only the bits have been touched so far.
                        for processor in taken {
                            let bit = self.bit(processor);
                            self.used.remove(bit);
                        }
                        return Err(Conflict { nid: place.nid, processor });
                    }
                }
            }
        }
        if taken.is_empty() {
            return Ok(());
        }
        for &(i, _) in &taken {
            self.changed(i, |slot| slot.free -= 1);
            if let Err(at) = self.holders[i].binary_search(&apid) {
                self.holders[i].insert(at, apid);
            }
        }
        let held = self.held.entry(apid).or_default();
        held.extend(taken);
        held.sort_unstable();
        Ok(())
    }

    /// Takes all processors of an application back. No effect where it has none.
    pub fn release(&mut self, apid: Apid) {
        for (i, processor) in self.held.remove(&apid).unwrap_or_default() {
            let bit = self.bit((i, processor));
            self.used.remove(bit);
            self.changed(i, |slot| slot.free += 1);
            self.holders[i].retain(|&holder| holder != apid);
        }
    }

    /// Free processors of a node, open or not.
    pub fn free(&self, nid: Nid) -> u32 {
        self.slot(nid).map_or(0, |s| s.free)
    }

    /// Applications with processors on a node, each once, by number.
    pub fn holders(&self, nid: Nid) -> Vec<Apid> {
        self.index(nid).map_or_else(Vec::new, |i| self.holders[i].clone())
    }

    /// Processors of a node in use.
    pub fn used(&self, nid: Nid) -> u32 {
        self.slot(nid).map_or(0, |s| s.processors - s.free)
    }

    /// All NIDs with flavor `ap`.
    pub fn application_nodes(&self) -> BTreeSet<Nid> {
        self.slots.iter().filter(|s| s.application).map(|s| s.nid).collect()
    }

    /// The nodes in order of NID: what placement searches. The functions below name a node by its
    /// place in this slice.
    pub fn line(&self) -> &[Slot] {
        &self.slots
    }

    /// The free processors of the node at `at` on the line, ascending.
    ///
    /// # Panics
    /// Where `at` is not on the line.
    pub fn free_processors(&self, at: usize) -> impl Iterator<Item = u32> + '_ {
        (0..self.slots[at].processors).filter(move |&p| !self.used[self.bit((at, p))])
    }

    /// The applications on the node at `at` on the line, by number.
    ///
    /// # Panics
    /// Where `at` is not on the line.
    pub fn holders_at(&self, at: usize) -> &[Apid] {
        &self.holders[at]
    }

    /// The applications that hold anything, by number.
    pub fn applications(&self) -> impl Iterator<Item = Apid> + '_ {
        self.held.keys().copied()
    }

    /// How many processors an application holds on each of its nodes, these by their place on the
    /// line, ascending.
    pub fn held(&self, apid: Apid) -> impl Iterator<Item = (usize, u32)> + '_ {
        self.held
            .get(&apid)
            .map_or(&[][..], Vec::as_slice)
            .chunk_by(|a, b| a.0 == b.0)
            .map(|on_one| (on_one[0].0, on_one.len() as u32))
    }

    fn index(&self, nid: Nid) -> Option<usize> {
        self.slots.binary_search_by_key(&nid, |s| s.nid).ok()
    }

    fn slot(&self, nid: Nid) -> Option<&Slot> {
        self.index(nid).map(|i| &self.slots[i])
    }

    fn bit(&self, (at, processor): Processor) -> usize {
        self.first_bit[at] + processor as usize
    }

    /// The one way in which a slot changes: an index over the line would follow from here.
    fn changed(&mut self, at: usize, change: impl FnOnce(&mut Slot)) {
        change(&mut self.slots[at]);
    }
}
