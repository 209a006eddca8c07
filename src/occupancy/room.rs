//! What one node has to give: its slot on the line, and how many PEs of a kind it could take.

use crate::apteam::shape::Shape;
use crate::machine::{Flavor, Machine, Nid, Node, RegionId, RegionSet};
use crate::variables::{Allocator, End};
use serde::{Deserialize, Serialize};

/// The part of a node's memory that is its reserve: a sixteenth. Programs grow before that is measured.
const RESERVE: u64 = 16;

/// How many may sit where: the variables that occupancy obeys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    /// Applications on one processor, at least 1; 1: nobody shares.
    pub max_resident: u32,
    /// How much of a node's memory may be promised, in thousandths.
    pub memory_overcommit: u64,
    /// Which of several windows on free processors is taken.
    pub allocator: Allocator,
    /// PEs from which on an application is wide, for [`Allocator::WideFromOneEnd`].
    pub allocator_wide: u64,
}

impl Rules {
    /// Nobody shares, memory is promised once, and the best fit is taken.
    pub const PLAIN: Rules = Rules {
        max_resident: 1,
        memory_overcommit: 1_000,
        allocator: Allocator::BestFit,
        allocator_wide: 64,
    };

    /// The end of the line nearest to which so many PEs are placed; none: it goes by something else.
    pub fn end_for(&self, width: u64) -> Option<End> {
        self.allocator.end(width >= self.allocator_wide)
    }

    /// The highest level at which a place is given: residents that a processor may have before.
    pub fn highest_level(&self) -> u32 {
        self.max_resident.max(1) - 1
    }

    /// Bytes of a node that may be promised.
    pub fn limit(&self, memory: u64) -> u64 {
        if memory == 0 {
            return u64::MAX;
        }
        let limit = u128::from(memory) * u128::from(self.memory_overcommit) / 1_000;
        u64::try_from(limit).unwrap_or(u64::MAX)
    }

    /// What an application that names no memory counts with, in bytes for each processor: so little
    /// that a node's processors are taken before its memory is.
    fn share(&self, memory: u64, processors: u32) -> u64 {
        let promised = self.limit(memory).min(memory);
        promised / u64::from(processors.max(1)) / u64::from(self.max_resident.max(1))
    }
}

/// The rules of each domain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleBook(Vec<(RegionSet, Rules)>);

impl RuleBook {
    /// Of each domain its regions, and the rules there. Where nothing else is said the first apply.
    pub fn new(of: Vec<(RegionSet, Rules)>) -> RuleBook {
        match of.is_empty() {
            true => Rules::PLAIN.into(),
            false => RuleBook(of),
        }
    }

    /// Those of the domain that some of these regions are of.
    pub fn of(&self, regions: RegionSet) -> Rules {
        let domain = self.0.iter().find(|(of, _)| of.meets(regions));
        domain.unwrap_or(&self.0[0]).1
    }

    /// The same domains with other rules.
    #[must_use]
    pub fn with(&self, change: impl Fn(Rules) -> Rules) -> RuleBook {
        RuleBook(self.0.iter().map(|(regions, rules)| (*regions, change(*rules))).collect())
    }

    /// Those of the domain of a region.
    pub(super) fn at(&self, region: RegionId) -> Rules {
        let domain = self.0.iter().find(|(of, _)| of.has(region));
        domain.unwrap_or(&self.0[0]).1
    }
}

impl From<Rules> for RuleBook {
    fn from(rules: Rules) -> RuleBook {
        RuleBook(vec![(RegionSet::ALL, rules)])
    }
}

/// One node as placement sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// The region that it is in.
    pub region: RegionId,
    /// Its memory in bytes; 0: not known, and never short.
    pub memory: u64,
    /// Bytes of it that may be promised.
    pub limit: u64,
    /// Bytes promised to the applications on it.
    pub promised: u64,
    /// Bytes that an application which names none counts with for each processor.
    pub share: u64,
}

impl Slot {
    fn of(node: &Node, region: RegionId, rules: Rules) -> Slot {
        let mut slot = Slot {
            nid: node.nid,
            processors: node.processors,
            free: node.processors,
            open: false,
            application: node.flavors.has(Flavor::Ap),
            region,
            memory: node.memory,
            limit: 0,
            promised: 0,
            share: 0,
        };
        slot.obey(rules);
        slot
    }

    pub(super) fn obey(&mut self, rules: Rules) {
        self.limit = rules.limit(self.memory);
        self.share = rules.share(self.memory, self.processors);
    }

    /// Bytes that so many PEs with these processors count with here.
    pub fn memory_of(&self, memory_per_pe: Option<u64>, pes: u32, processors: usize) -> u64 {
        let bytes = match memory_per_pe {
            _ if self.memory == 0 => 0,
            Some(bytes) => bytes.saturating_mul(u64::from(pes)),
            None => self.share.saturating_mul(processors as u64),
        };
        // More than all is all: sums stay far from the end of the numbers.
        bytes.min(self.limit)
    }

    /// Bytes of it that are kept for those who sit there and grow: no application comes beside them that says nothing
    /// of its memory.
    pub fn reserve(&self) -> u64 {
        if self.memory == 0 { 0 } else { self.limit / RESERVE }
    }

    /// What a node with this many processors to give away and this much memory promised already
    /// can take: nothing where it is in none of the regions.
    pub fn room(&self, terms: &Terms, processors: u32, promised: u64) -> Room {
        if !terms.regions.has(self.region) {
            return Room::default();
        }
        let by_processors = (processors / terms.depth).min(terms.per_node.unwrap_or(u32::MAX));
        let each = match terms.memory_per_pe {
            _ if self.memory == 0 => 0,
            Some(bytes) => bytes,
            None => self.share.saturating_mul(u64::from(terms.depth)),
        };
        let left = self.limit.saturating_sub(promised);
        if terms.memory_per_pe.is_none() && promised > 0 && left < self.reserve() {
            return Room::default();
        }
        let pes = match left.checked_div(each) {
            Some(by_memory) => by_processors.min(u32::try_from(by_memory).unwrap_or(u32::MAX)),
            None => by_processors,
        };
        if pes == 0 { Room::default() } else { Room { processors, pes } }
    }
}

/// The line of a machine on which nobody sits, in order of NID; all nodes closed.
pub fn empty_line(machine: &Machine, rules: &RuleBook) -> Vec<Slot> {
    let slot = |node: &Node| {
        let region = machine.region_of(node);
        Slot::of(node, region, rules.at(region))
    };
    machine.nodes.values().map(slot).collect()
}

/// What a search asks of each node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Terms {
    /// Processors for each PE, at least 1.
    pub depth: u32,
    /// PEs on each node but the last, at least 1.
    pub per_node: Option<u32>,
    /// Bytes for each PE; `None`: the node's share for each of its processors.
    pub memory_per_pe: Option<u64>,
    /// Residents that a processor may have at most: 0 asks for free ones.
    pub level: u32,
    /// Only nodes on which nobody sits, and all of each.
    pub exclusive: bool,
    /// Only nodes of these regions.
    pub regions: RegionSet,
}

impl Terms {
    /// Those of a posting. Zeros, which none should have got in with, count as ones.
    pub fn of(shape: &Shape, memory_per_pe: Option<u64>, level: u32) -> Terms {
        Terms {
            exclusive: false,
            regions: RegionSet::ALL,
            depth: shape.depth.max(1),
            per_node: shape.per_node.map(|n| n.max(1)),
            memory_per_pe,
            level,
        }
    }

    /// How many of a node's processors could be given away, which have so many residents each.
    pub fn given(&self, residents: impl IntoIterator<Item = u16>) -> u32 {
        let (mut below, mut all) = (0, 0);
        for residents in residents {
            below += u32::from(u32::from(residents) <= self.level);
            all += 1;
        }
        if self.exclusive && below < all { 0 } else { below }
    }
}

/// What a node could take: nothing, or at least one PE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Processors to give away.
    pub processors: u32,
    /// PEs, at most as many as asked for on each node.
    pub pes: u32,
}
