//! Who sits where: per node its processors with their residents, its memory and who has it promised,
//! and whether it takes new applications.
//!
//! # The problem
//!
//! Placement asks one question over and over: where along the line of nodes is room for so many PEs
//! of this kind? It asks for every posting and, while postings wait, after every end, on free
//! processors first and then on those with one resident, with two, and so on. Everything else (who
//! holds what, which processor exactly) is asked only for the nodes of one window.
//!
//! # The approach
//!
//! The line is one array of small [`Slot`]s in order of NID. Beside it stand one byte a processor
//! for the whole machine, its residents; the holders of each node; and what each application holds.
//!
//! ```text
//!   slots      nid 0, 4 of 4 free | nid 1, 1 of 4 free | nid 3, 0 of 2 free    (NID 2: not there)
//!   residents      0 0 0 0        |     1 2 1 0        |       1 1
//!   holders           -           |      12, 13        |        13
//! ```
//!
//! An application that shares no processor with anybody (`max_resident` is 1, say) is marked on its
//! processors, so that they are at no level.
//!
//! Every change of a slot goes through `Occupancy::changed`, where the [`index`] learns of it: it
//! has the unbroken stretches of nodes for each of the kinds of PEs that were asked for of late, so
//! that a search does not walk the line.

pub mod index;
mod room;
mod spans;
#[cfg(test)]
mod tests;

pub use room::{Room, RuleBook, Rules, Slot, Terms, empty_line};

use crate::apteam::Apid;
use crate::apteam::place::{Place, PlacementList};
use crate::apteam::record::Apteam;
use crate::machine::{Machine, Nid, RegionSet};
use index::{Index, Ready};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Why processors can't be given away.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("processor {processor} of NID {nid} is not free")]
pub struct Conflict {
    /// The node.
    pub nid: Nid,
    /// Its processor.
    pub processor: u32,
}

/// How an application sits on its processors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// Others may sit there too.
    pub shares: bool,
    /// Bytes for each PE; `None`: the node's share for each processor.
    pub memory_per_pe: Option<u64>,
    /// All processors of its nodes are its own, whichever its PEs have.
    pub exclusive: bool,
}

impl From<&Apteam> for Claim {
    fn from(team: &Apteam) -> Claim {
        Claim {
            shares: team.shares,
            memory_per_pe: team.posting.memory_per_pe,
            exclusive: team.posting.exclusive,
        }
    }
}

/// On a processor whose resident shares it with nobody.
const ALONE: u16 = 0x8000;
/// Residents that can be counted on one processor: more than the variable allows.
const COUNTED_MAX: u16 = ALONE - 1;

/// What an application holds of one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The node, by its place on the line.
    pub at: usize,
    /// Processors, ascending.
    pub processors: Vec<u32>,
    /// Bytes of memory promised to it there.
    pub memory: u64,
}

/// With how many bytes an application counts on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// The node, by its place on the line.
    pub at: usize,
    /// So many it was.
    pub before: u64,
    /// So many it is.
    pub now: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Holding {
    shares: bool,
    /// All processors of its nodes are its own.
    exclusive: bool,
    /// By place on the line.
    nodes: Vec<Held>,
}

impl Holding {
    /// What it adds to the byte of a processor.
    fn weight(&self) -> u16 {
        if self.shares { 1 } else { ALONE | 1 }
    }
}

/// The state of every node's processors.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Occupancy {
    rules: RuleBook,
    /// By NID.
    slots: Vec<Slot>,
    /// Where the processors of each slot begin in `residents`.
    first: Vec<usize>,
    /// Of each processor: how many hold it, and [`ALONE`].
    residents: Vec<u16>,
    /// Who holds processors of each slot, by number.
    holders: Vec<Vec<Apid>>,
    /// What each application holds.
    held: BTreeMap<Apid, Holding>,
    index: Index,
    notable: Notable,
    /// For each slot the first one behind it that has another number of processors, or not the next NID, or
    /// is in another region.
    alike: Vec<usize>,
    memory_known: bool,
}

/// Nodes that are not as most are, by their place on the line: who looks at the line as a whole need
/// not look at each node for that.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Notable {
    /// Closed, or for no applications.
    pub shut: BTreeSet<usize>,
    /// With a processor on which nobody else may sit.
    pub full: BTreeSet<usize>,
    /// With more memory promised than there is.
    pub tight: BTreeSet<usize>,
}

impl Occupancy {
    /// An empty machine whose nodes are all closed (no apinit offers them yet).
    pub fn new(machine: &Machine, rules: impl Into<RuleBook>) -> Occupancy {
        let rules = rules.into();
        let slots = empty_line(machine, &rules);
        let mut first = Vec::with_capacity(slots.len());
        let mut processors = 0;
        for slot in &slots {
            first.push(processors);
            processors += slot.processors as usize;
        }
        Occupancy {
            rules,
            first,
            residents: vec![0; processors],
            holders: vec![Vec::new(); slots.len()],
            held: BTreeMap::new(),
            index: Index::new(slots.len()),
            notable: Notable { shut: (0..slots.len()).collect(), ..Notable::default() },
            alike: alike(&slots),
            memory_known: slots.iter().any(|slot| slot.memory > 0),
            slots,
        }
    }

    /// Nodes that are not as most are.
    pub fn notable(&self) -> &Notable {
        &self.notable
    }

    /// Whether the memory of any node is known: then nodes with the same processors free may differ in
    /// what they have room for.
    pub fn memory_known(&self) -> bool {
        self.memory_known
    }

    /// For each node of the line the first one behind it that has another number of processors, or not
    /// the next NID, or is in another region.
    pub fn alike(&self) -> &[usize] {
        &self.alike
    }

    /// The first processor of each node of the line, counted over all of them.
    pub fn first(&self) -> &[usize] {
        &self.first
    }

    /// The rules that it obeys.
    pub fn rules(&self) -> &RuleBook {
        &self.rules
    }

    /// Those of the domain that some of these regions are of.
    pub fn rules_in(&self, regions: RegionSet) -> Rules {
        self.rules.of(regions)
    }

    /// Obeys other rules from now on. What is there stays as it was promised.
    pub fn set_rules(&mut self, rules: impl Into<RuleBook>) {
        let rules = rules.into();
        if rules == self.rules {
            return;
        }
        self.rules = rules;
        self.slots.iter_mut().for_each(|slot| slot.obey(self.rules.at(slot.region)));
        self.index = Index::new(self.slots.len());
        self.note(0..self.slots.len());
    }

    /// Opens a node for new applications, or closes it. What is there stays. No effect for a NID
    /// that is not there.
    pub fn set_open(&mut self, nid: Nid, open: bool) {
        if let Some(at) = self.index(nid).filter(|at| self.slots[*at].open != open) {
            self.slots[at].open = open;
            self.changed(at..at + 1);
        }
    }

    /// A copy in which only these nodes are for applications.
    #[must_use]
    pub fn only(&self, which: impl Fn(Nid) -> bool) -> Occupancy {
        let mut copy = self.clone();
        for at in 0..copy.slots.len() {
            if copy.slots[at].application && !which(copy.slots[at].nid) {
                copy.slots[at].application = false;
                copy.note(at..at + 1);
            }
        }
        copy
    }

    /// Whether a node takes new applications.
    pub fn is_open(&self, nid: Nid) -> bool {
        self.slot(nid).is_some_and(|s| s.open)
    }

    /// Gives the processors of a placement to an application, which may already have others. Asks
    /// neither for open nodes nor for flavors nor for memory, which placement has looked at.
    ///
    /// # Errors
    /// The first processor that has as many residents as it may have, or any where one of the two
    /// shares with nobody, or that is not there; nothing is changed then.
    pub fn take(
        &mut self,
        apid: Apid,
        places: &PlacementList,
        claim: Claim,
    ) -> Result<(), Conflict> {
        self.seat(apid, places, claim, None)
    }

    /// As [`Occupancy::take`], for what sits there already, as its records or its nodes say: also
    /// where there are more residents than a new one would find, for the rules may have been others.
    ///
    /// # Errors
    /// The first processor that another has where one of the two shares with nobody, or that is not
    /// there; nothing is changed then.
    pub fn take_found(
        &mut self,
        apid: Apid,
        places: &PlacementList,
        claim: Claim,
    ) -> Result<(), Conflict> {
        self.seat(apid, places, claim, Some(u32::from(COUNTED_MAX) - 1))
    }

    fn seat(
        &mut self,
        apid: Apid,
        places: &PlacementList,
        claim: Claim,
        level: Option<u32>,
    ) -> Result<(), Conflict> {
        let own = self.held.get(&apid);
        let mut taken: Vec<Held> = Vec::with_capacity(places.0.len());
        // Placement names each node once, in order: then no earlier one is looked through.
        let mut furthest = None;
        for place in places.0.iter() {
            let conflict = |processor: u32| Conflict { nid: place.nid, processor };
            let follows = furthest.map_or(0, |at: usize| at + 1);
            let follows = self.slots.get(follows).filter(|s| s.nid == place.nid).map(|_| follows);
            let Some(at) = follows.or_else(|| self.index(place.nid)) else {
                return Err(conflict(place.processors.first().copied().unwrap_or(0)));
            };
            let slot = &self.slots[at];
            let highest = || self.rules.at(slot.region).highest_level();
            let level = match claim.shares {
                true => level.unwrap_or_else(highest).min(u32::from(COUNTED_MAX) - 1),
                false => 0,
            };
            let mut processors = match claim.exclusive {
                true => (0..slot.processors).collect(),
                false => place.processors.clone(),
            };
            processors.sort_unstable();
            let before = own.and_then(|own| own.node(at));
            let again = furthest >= Some(at);
            furthest = furthest.max(Some(at));
            for (i, &p) in processors.iter().enumerate() {
                let its_own = i > 0 && processors[i - 1] == p
                    || before.is_some_and(|held| held.processors.binary_search(&p).is_ok())
                    || again && taken.iter().any(|t| t.at == at && t.processors.contains(&p));
                if its_own
                    || p >= slot.processors
                    || u32::from(self.residents[self.first[at] + p as usize]) > level
                {
                    return Err(conflict(p));
                }
            }
            let memory = slot.memory_of(claim.memory_per_pe, place.pes, processors.len());
            if !processors.is_empty() {
                taken.push(Held { at, processors, memory });
            }
        }
        if taken.is_empty() {
            return Ok(());
        }
        let holding = self.held.entry(apid).or_insert_with(|| Holding {
            shares: claim.shares,
            exclusive: claim.exclusive,
            nodes: Vec::with_capacity(taken.len()),
        });
        let weight = holding.weight();
        for held in &taken {
            let slot = &mut self.slots[held.at];
            slot.promised = slot.promised.saturating_add(held.memory);
            for p in &held.processors {
                let residents = &mut self.residents[self.first[held.at] + *p as usize];
                slot.free -= u32::from(*residents == 0);
                *residents += weight;
            }
            if let Err(i) = self.holders[held.at].binary_search(&apid) {
                self.holders[held.at].insert(i, apid);
            }
        }
        let places: Vec<usize> = taken.iter().map(|held| held.at).collect();
        for new in taken {
            holding.add(new);
        }
        self.changed_all(places);
        Ok(())
    }

    /// Takes all processors of an application back. No effect where it has none.
    pub fn release(&mut self, apid: Apid) {
        let Some(holding) = self.held.remove(&apid) else { return };
        let weight = holding.weight();
        for held in &holding.nodes {
            let slot = &mut self.slots[held.at];
            slot.promised = slot.promised.saturating_sub(held.memory);
            for p in &held.processors {
                let residents = &mut self.residents[self.first[held.at] + *p as usize];
                *residents -= weight;
                slot.free += u32::from(*residents == 0);
            }
            self.holders[held.at].retain(|&holder| holder != apid);
        }
        self.changed_all(holding.nodes.iter().map(|held| held.at));
    }

    /// A node has so many bytes of memory, as is known from now on. (Who sits there counts as before, until it
    /// is taken anew.)
    pub fn learn_memory(&mut self, nid: Nid, bytes: u64) {
        let Some(at) = self.index(nid) else { return };
        let rules = self.rules.at(self.slots[at].region);
        self.slots[at].memory = bytes;
        self.slots[at].obey(rules);
        self.memory_known |= bytes > 0;
        self.changed(at..at + 1);
    }

    /// Counts an application with this much memory on a node from now on, in bytes, or with all that may
    /// be promised there. None, and no effect, where it is not, and on a node whose memory is not known.
    pub fn set_memory(&mut self, apid: Apid, nid: Nid, bytes: u64) -> Option<Counted> {
        let at = self.index(nid).filter(|at| self.slots[*at].memory > 0)?;
        let holding = self.held.get_mut(&apid)?;
        let i = holding.nodes.binary_search_by_key(&at, |held| held.at).ok()?;
        let slot = &mut self.slots[at];
        let now = bytes.min(slot.limit);
        let before = std::mem::replace(&mut holding.nodes[i].memory, now);
        slot.promised = slot.promised.saturating_sub(before).saturating_add(now);
        if now != before {
            self.changed(at..at + 1);
        }
        Some(Counted { at, before, now })
    }

    /// Bytes with which an application counts that claims this place, while it is not known what it has; 0:
    /// there is no such node.
    pub fn memory_of(&self, place: &Place, claim: Claim) -> u64 {
        self.slot(place.nid).map_or(0, |slot| {
            let processors =
                if claim.exclusive { slot.processors as usize } else { place.processors.len() };
            slot.memory_of(claim.memory_per_pe, place.pes, processors)
        })
    }

    /// Bytes with which an application counts on a node while nothing is known of its memory; 0 where it
    /// is not.
    pub fn share(&self, apid: Apid, nid: Nid) -> u64 {
        let held = self.index(nid).and_then(|at| self.held.get(&apid)?.node(at));
        let of = |held: &Held| self.slots[held.at].memory_of(None, 0, held.processors.len());
        held.map_or(0, of)
    }

    /// Free processors of a node, open or not.
    pub fn free(&self, nid: Nid) -> u32 {
        self.slot(nid).map_or(0, |s| s.free)
    }

    /// Whether an application has processors on a node.
    pub fn holds(&self, apid: Apid, nid: Nid) -> bool {
        self.index(nid).is_some_and(|at| self.holders[at].binary_search(&apid).is_ok())
    }

    /// Applications with processors on a node, each once, by number.
    pub fn holders(&self, nid: Nid) -> Vec<Apid> {
        self.index(nid).map_or_else(Vec::new, |i| self.holders[i].clone())
    }

    /// Processors of a node in use: those with at least one resident.
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

    /// The processors of the node at `at` on the line, each with what stands on it: how many hold
    /// it, or more than any level where its holder shares with nobody.
    ///
    /// # Panics
    /// Where `at` is not on the line.
    pub fn residents(&self, at: usize) -> &[u16] {
        &self.residents[self.first[at]..][..self.slots[at].processors as usize]
    }

    /// The most applications on one processor of the node at `at` on the line.
    ///
    /// # Panics
    /// Where `at` is not on the line.
    pub fn most_residents(&self, at: usize) -> u32 {
        let count = |residents: &u16| u32::from(residents & !ALONE);
        self.residents(at).iter().map(count).max().unwrap_or(0)
    }

    /// What the node at `at` on the line could take now; nothing where it takes no applications.
    ///
    /// # Panics
    /// Where `at` is not on the line.
    pub fn room(&self, at: usize, terms: &Terms) -> Room {
        let slot = &self.slots[at];
        if !slot.application || !slot.open {
            return Room::default();
        }
        let processors = match terms.level {
            0 if terms.exclusive && slot.free < slot.processors => 0,
            0 => slot.free,
            _ => terms.given(self.residents(at).iter().copied()),
        };
        slot.room(terms, processors, slot.promised)
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

    /// What an application holds on each of its nodes, by their place on the line.
    pub fn held(&self, apid: Apid) -> &[Held] {
        self.held.get(&apid).map_or(&[], |holding| &holding.nodes)
    }

    /// What an application adds to [`Occupancy::residents`] on each of its processors; 0: it has
    /// none.
    pub fn weight(&self, apid: Apid) -> u16 {
        self.held.get(&apid).map_or(0, Holding::weight)
    }

    /// Whether an application shares its processors with nobody.
    pub fn sits_alone(&self, apid: Apid) -> bool {
        self.held.get(&apid).is_some_and(|holding| !holding.shares)
    }

    /// Whether an application has all processors of its nodes to itself (`-F exclusive`).
    pub fn is_exclusive(&self, apid: Apid) -> bool {
        self.held.get(&apid).is_some_and(|holding| holding.exclusive)
    }

    /// The index for these terms, brought up to date.
    pub fn ready(&mut self, terms: &Terms) -> Option<Ready<'_>> {
        let mut index = std::mem::take(&mut self.index);
        index.refresh(terms, self);
        self.index = index;
        Ready::new(self)
    }

    fn index(&self, nid: Nid) -> Option<usize> {
        self.slots.binary_search_by_key(&nid, |s| s.nid).ok()
    }

    fn slot(&self, nid: Nid) -> Option<&Slot> {
        self.index(nid).map(|i| &self.slots[i])
    }

    /// Each change of slots comes through here.
    fn changed(&mut self, nodes: Range<usize>) {
        self.note(nodes.clone());
        self.index.note(nodes);
    }

    fn note(&mut self, nodes: Range<usize>) {
        for at in nodes {
            let slot = self.slots[at];
            let level = self.rules.at(slot.region).highest_level();
            let full = self.residents(at).iter().any(|residents| u32::from(*residents) > level);
            let Notable { shut, full: all_full, tight } = &mut self.notable;
            let set = |nodes: &mut BTreeSet<usize>, is: bool| match is {
                true => nodes.insert(at),
                false => nodes.remove(&at),
            };
            set(shut, !slot.open || !slot.application);
            set(all_full, full);
            set(tight, slot.memory > 0 && slot.promised > slot.memory);
        }
    }

    /// The same for nodes here and there.
    fn changed_all(&mut self, nodes: impl IntoIterator<Item = usize>) {
        let mut range = 0..0;
        for at in nodes {
            if at == range.end {
                range.end += 1;
            } else {
                self.changed(std::mem::replace(&mut range, at..at + 1));
            }
        }
        self.changed(range);
    }
}

fn alike(slots: &[Slot]) -> Vec<usize> {
    let mut alike: Vec<usize> = (1..=slots.len()).collect();
    for at in (1..slots.len()).rev() {
        let (one, next) = (&slots[at - 1], &slots[at]);
        let as_one = |slot: &Slot| (slot.processors, slot.region);
        if as_one(one) == as_one(next) && next.nid.0 - one.nid.0 == 1 {
            alike[at - 1] = alike[at];
        }
    }
    alike
}

impl Holding {
    fn node(&self, at: usize) -> Option<&Held> {
        self.nodes.binary_search_by_key(&at, |held| held.at).ok().map(|i| &self.nodes[i])
    }

    fn add(&mut self, new: Held) {
        if self.nodes.last().is_none_or(|last| last.at < new.at) {
            self.nodes.push(new);
            return;
        }
        match self.nodes.binary_search_by_key(&new.at, |held| held.at) {
            Ok(i) => {
                let old = &mut self.nodes[i];
                old.processors.extend(new.processors);
                old.processors.sort_unstable();
                old.memory = old.memory.saturating_add(new.memory);
            }
            Err(i) => self.nodes.insert(i, new),
        }
    }
}
