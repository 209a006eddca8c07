//! What there is: nodes on a line of numbers, and what each is for.
//!
//! A *node* is a schedulable unit of processors and memory. One host offers one node or several
//! (a NUMA domain each, say). Nodes are numbered by NID along a line, and contiguity, which
//! placement guarantees to an application, is contiguity of NIDs.

pub mod gates;
mod host_nodes;
mod hosts;
mod nids;
pub mod node_memory;
mod regions;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

pub use host_nodes::{HostNodesError, names_hosts, with_numbers};
pub use hosts::{HostListError, is_host, parse_hosts};
pub use nids::{NidListError, NidSet, format_nids, nids_text, parse_nids};
pub use regions::{Domain, Members, REGIONS_MAX, Reach, Region, RegionId, RegionSet};

/// A node's number on the line.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Nid(pub u32);

impl fmt::Display for Nid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a node is for. Each flavor is on at least one node of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Flavor {
    /// Support: logins, commands.
    Su,
    /// Operating-system services.
    Os,
    /// Applications.
    Ap,
}

impl Flavor {
    /// All of them, in the order in which signatures are written.
    pub const ALL: [Flavor; 3] = [Flavor::Su, Flavor::Os, Flavor::Ap];

    /// The name in psched.yaml and on screens.
    pub fn name(self) -> &'static str {
        match self {
            Flavor::Su => "su",
            Flavor::Os => "os",
            Flavor::Ap => "ap",
        }
    }

    /// The flavor of that name.
    pub fn parse(name: &str) -> Option<Flavor> {
        Flavor::ALL.into_iter().find(|f| f.name() == name)
    }
}

/// A node's flavors: its signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct Flavors(u8);

impl Flavors {
    /// With this one too.
    #[must_use]
    pub fn with(self, flavor: Flavor) -> Flavors {
        Flavors(self.0 | 1 << flavor as u8)
    }

    /// All three: an overflow node, or the only node of a machine.
    pub fn all() -> Flavors {
        Flavor::ALL.into_iter().fold(Flavors::default(), Flavors::with)
    }

    /// Whether this one is among them.
    pub fn has(self, flavor: Flavor) -> bool {
        self.0 & (1 << flavor as u8) != 0
    }

    /// With all of those too.
    #[must_use]
    pub fn and(self, others: Flavors) -> Flavors {
        Flavors(self.0 | others.0)
    }

    /// Without any of those.
    #[must_use]
    pub fn without(self, others: Flavors) -> Flavors {
        Flavors(self.0 & !others.0)
    }

    /// Whether it has none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Those that it has, in order.
    pub fn iter(self) -> impl Iterator<Item = Flavor> {
        Flavor::ALL.into_iter().filter(move |f| self.has(*f))
    }
}

impl FromIterator<Flavor> for Flavors {
    fn from_iter<I: IntoIterator<Item = Flavor>>(flavors: I) -> Flavors {
        flavors.into_iter().fold(Flavors::default(), Flavors::with)
    }
}

impl fmt::Display for Flavors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.iter().map(Flavor::name).collect();
        f.write_str(&names.join(" "))
    }
}

/// One node as the administrator described it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its number.
    pub nid: Nid,
    /// How many processors it schedules, 1 to 4,096.
    pub processors: u32,
    /// Explicit real processors, one for each of `processors`; empty: the apinit maps them by
    /// number (processor v of the host to real processor v mod R).
    pub cpus: Vec<u32>,
    /// Memory in bytes.
    pub memory: u64,
    /// What it is for.
    pub flavors: Flavors,
    /// The host that offers it; empty: this one.
    pub host: String,
}

impl Node {
    /// One of this host, for everything, of whose memory nothing is known.
    pub fn plain(nid: Nid, processors: u32) -> Node {
        let (cpus, flavors, host) = (Vec::new(), Flavors::all(), String::new());
        Node { nid, processors, cpus, memory: 0, flavors, host }
    }
}

/// All nodes, by number, and the regions that they are in.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Machine {
    /// The nodes.
    pub nodes: BTreeMap<Nid, Node>,
    /// The regions, in the order in which they are tried, [`REGIONS_MAX`] at most; none: all nodes are one.
    pub regions: Vec<Region>,
    /// The accounts, by name, where psched.yaml says who may use which; none: anybody names any.
    pub accounts: Vec<gates::AccountEntry>,
}

impl From<BTreeMap<Nid, Node>> for Machine {
    fn from(nodes: BTreeMap<Nid, Node>) -> Machine {
        Machine { nodes, ..Machine::default() }
    }
}

impl FromIterator<Node> for Machine {
    fn from_iter<I: IntoIterator<Item = Node>>(nodes: I) -> Machine {
        nodes.into_iter().map(|node| (node.nid, node)).collect::<BTreeMap<Nid, Node>>().into()
    }
}

impl Machine {
    /// Flavors that at least one node has.
    pub fn flavors(&self) -> Flavors {
        self.nodes.values().fold(Flavors::default(), |all, node| all.and(node.flavors))
    }

    /// Processors of all nodes for applications.
    pub fn application_processors(&self) -> u64 {
        let nodes = self.nodes.values().filter(|node| node.flavors.has(Flavor::Ap));
        nodes.map(|node| u64::from(node.processors)).sum()
    }

    /// [`Machine::first_processor`] of all nodes, in one pass.
    pub fn first_processors(&self) -> BTreeMap<Nid, u32> {
        let mut hosts: BTreeMap<&str, u32> = BTreeMap::new();
        let first = |node: &Node, next: &mut u32| {
            let following = next.saturating_add(node.processors);
            (node.nid, std::mem::replace(next, following))
        };
        self.nodes.values().map(|n| first(n, hosts.entry(&n.host).or_default())).collect()
    }

    /// The number of processors, counted over the nodes of a host in nodes of lower NID: what
    /// [`Node::cpus`]'s mapping by number starts from. It looks at all nodes before this one.
    pub fn first_processor(&self, nid: Nid) -> u32 {
        let Some(node) = self.nodes.get(&nid) else { return 0 };
        self.nodes
            .range(..nid)
            .filter(|(_, n)| n.host == node.host)
            .map(|(_, n)| n.processors)
            .fold(0, u32::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_processors_of_all_are_those_of_each() {
        let of =
            |(nid, host): (u32, &str)| Node { host: host.into(), ..Node::plain(Nid(nid), nid) };
        let nodes = [(1, "a"), (2, "b"), (3, ""), (5, "a"), (7, "b"), (8, "a"), (9, "")];
        let machine: Machine = nodes.into_iter().map(of).collect();
        let firsts = machine.first_processors();
        assert_eq!(firsts.values().copied().collect::<Vec<_>>(), [0, 0, 0, 1, 2, 6, 3]);
        assert!(firsts.iter().all(|(nid, first)| machine.first_processor(*nid) == *first));
        assert_eq!(firsts.len(), machine.nodes.len());
    }
}
