//! Regions: parts of the line that applications are sent to in order, each through its gate.
//!
//! # Problem
//! A machine is for several uses at once: ordinary nodes for everybody, overflow nodes that also serve the
//! system and are only for who is too wide for the others, a few nodes for short tests. Where an application
//! may go is one question, and placement, migration and restart must have one answer to it.
//!
//! # Approach
//! A region is nodes by number, or all nodes with one flavor signature, so that a node that gets other flavors
//! changes its region with them. A node is in one region at most: the first that has it. Regions are tried in
//! the order of psched.yaml, each alone. Where none of those whose gates an application passes could hold it,
//! if nobody sat there, it may span them: its nodes are contiguous all the same, across their borders.
//!
//! A machine without regions is one, without a gate.
//!
//! Each region is of a *domain*: nodes that are scheduled together, under one set of variables. Regions of
//! different domains have nothing to do with each other: no application is in both, and each domain has its
//! own order of turns.
//!
//! ```
//! use psched_pure::machine::{Reach, RegionSet};
//! let both = RegionSet::of(0).with(2);
//! let alone = Reach { passes: both, spans: false };
//! assert_eq!(alone.sets().collect::<Vec<_>>(), [RegionSet::of(0), RegionSet::of(2)]);
//! let wide = Reach { passes: both, spans: true };
//! assert_eq!(wide.sets().last(), Some(both));
//! ```

use super::gates::Gate;
use super::{Flavor, Flavors, Machine, Nid, Node};
use crate::variables::APPLICATION;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The most regions of a machine. (All bits of a [`RegionSet`] stand for the machine as a whole.)
pub const REGIONS_MAX: usize = 63;

/// A region as the administrator described it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Region {
    /// Its name, by which gates and people speak of it.
    pub name: String,
    /// What it is scheduled with; mostly [`APPLICATION`].
    pub domain: String,
    /// Its nodes.
    pub members: Members,
    /// Who is let in.
    pub gate: Gate,
}

/// Which nodes are in a region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Members {
    /// These.
    Nids(BTreeSet<Nid>),
    /// All with just these flavors.
    Signature(Flavors),
}

impl Members {
    /// Whether a node is one of them.
    pub fn has(&self, node: &Node) -> bool {
        match self {
            Members::Nids(nids) => nids.contains(&node.nid),
            Members::Signature(flavors) => *flavors == node.flavors,
        }
    }
}

/// The region of a node: its place among the machine's regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RegionId(u8);

impl RegionId {
    /// A node that is in none, where there are regions.
    pub const NONE: RegionId = RegionId(u8::MAX);
    /// The only one of a machine that has none.
    pub const ONLY: RegionId = RegionId(0);

    /// Its place among the machine's regions; none: it is none of them.
    pub fn index(self) -> Option<usize> {
        (self != RegionId::NONE).then_some(usize::from(self.0))
    }
}

/// Regions that are scheduled together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    /// Its name, with which the names of its variables begin.
    pub name: String,
    /// Its regions; [`RegionSet::ALL`] on a machine that has none.
    pub regions: RegionSet,
    /// Processors of its nodes for applications.
    pub processors: u64,
}

impl Machine {
    /// The domains, in the order in which their first regions stand; at least one.
    pub fn domains(&self) -> Vec<Domain> {
        let mut domains: Vec<Domain> = Vec::new();
        for (at, region) in self.regions.iter().enumerate() {
            match domains.iter_mut().find(|domain| domain.name == region.domain) {
                Some(domain) => domain.regions = domain.regions.with(at),
                None => domains.push(Domain {
                    name: region.domain.clone(),
                    regions: RegionSet::of(at),
                    processors: 0,
                }),
            }
        }
        if let [] | [_] = domains[..] {
            let name = domains.pop().map_or(APPLICATION.into(), |domain| domain.name);
            let processors = self.application_processors();
            return vec![Domain { name, regions: RegionSet::ALL, processors }];
        }
        for node in self.nodes.values().filter(|node| node.flavors.has(Flavor::Ap)) {
            let region = self.region_of(node);
            if let Some(domain) = domains.iter_mut().find(|domain| domain.regions.has(region)) {
                domain.processors += u64::from(node.processors);
            }
        }
        domains
    }

    /// The name of the domain that a node is of; none: it is in no region.
    pub fn domain_of(&self, node: &Node) -> Option<&str> {
        if self.regions.is_empty() {
            return Some(APPLICATION);
        }
        Some(&self.regions.get(self.region_of(node).index()?)?.domain)
    }

    /// The region that a node is in.
    pub fn region_of(&self, node: &Node) -> RegionId {
        if self.regions.is_empty() {
            return RegionId::ONLY;
        }
        let at = self.regions.iter().position(|region| region.members.has(node));
        at.and_then(|at| u8::try_from(at).ok()).map_or(RegionId::NONE, RegionId)
    }
}

/// Some of a machine's regions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RegionSet(u64);

impl RegionSet {
    /// All that there can be.
    pub const ALL: RegionSet = RegionSet(u64::MAX);

    /// This one, by its place.
    pub fn of(index: usize) -> RegionSet {
        RegionSet::default().with(index)
    }

    /// With this one too.
    #[must_use]
    pub fn with(self, index: usize) -> RegionSet {
        RegionSet(self.0 | 1u64.checked_shl(index as u32).unwrap_or(0))
    }

    /// Those that are in both.
    #[must_use]
    pub fn and(self, other: RegionSet) -> RegionSet {
        RegionSet(self.0 & other.0)
    }

    /// Whether it has a node of this region. Nodes of none are in [`RegionSet::ALL`] only.
    pub fn has(self, region: RegionId) -> bool {
        self == RegionSet::ALL || region.0 < 64 && self.0 >> region.0 & 1 == 1
    }

    /// Whether some region is in both.
    pub fn meets(self, other: RegionSet) -> bool {
        !self.and(other).is_empty()
    }

    /// Whether there is none in it.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Their places, ascending.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..REGIONS_MAX).filter(move |i| self.0 >> i & 1 == 1)
    }
}

/// Where an application may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Reach {
    /// The regions whose gates let it in; [`RegionSet::ALL`]: the machine as a whole.
    pub passes: RegionSet,
    /// None of them could hold it alone: it may span them.
    pub spans: bool,
}

impl Reach {
    /// The machine as a whole.
    pub const ALL: Reach = Reach { passes: RegionSet::ALL, spans: false };

    /// Nodes among which a window may lie, in the order in which they are tried.
    pub fn sets(self) -> impl Iterator<Item = RegionSet> + Clone {
        let whole = self.passes == RegionSet::ALL;
        let alone = (0..REGIONS_MAX)
            .filter(move |i| !whole && self.passes.0 >> i & 1 == 1)
            .map(RegionSet::of);
        alone.chain((whole || self.spans).then_some(self.passes))
    }
}

impl Default for Reach {
    fn default() -> Reach {
        Reach::ALL
    }
}
