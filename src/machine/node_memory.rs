//! Memory of nodes for which psched.yaml gives none, of what their host has.
//!
//! A host may have several nodes, and several NUMA nodes (*banks* here). Each processor of a node has a part of
//! the bank to which its real processor belongs: of what the nodes of the host that are given so much leave of
//! it, as much as every other.
//!
//! ```text
//!   bank of 16G                bank of 8G
//!   NID 0: 2  NID 1: 2         NID 2: 4, memory: 6G
//!   8G        8G               6G, and the other 2G are nobody's
//! ```

use super::{Machine, Nid, Node};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A NUMA node of a host.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Bank {
    /// Its real processors.
    pub cpus: Vec<u32>,
    /// Bytes.
    pub memory: u64,
}

/// Memory is given in steps of so many bytes.
const STEP: u64 = 1 << 20;

/// Bytes for each of these nodes of a host that has none: all nodes of the host, each with the number of its first
/// processor there. `cpus`: real processors that are used by number. Without banks that name every processor the
/// host is one, with `memory` bytes.
///
/// ```
/// # use psched_pure::machine::{Nid, Node, node_memory::divided};
/// let nodes = [Node::plain(Nid(0), 3), Node::plain(Nid(1), 1)];
/// let found = divided([(&nodes[0], 0), (&nodes[1], 3)], &[0, 1], &[], 8 << 30);
/// assert_eq!(found.into_values().collect::<Vec<_>>(), [6 << 30, 2 << 30]);
/// ```
pub fn divided<'a>(
    nodes: impl IntoIterator<Item = (&'a Node, u32)>,
    cpus: &[u32],
    banks: &[Bank],
    memory: u64,
) -> BTreeMap<Nid, u64> {
    let bank_of: BTreeMap<u32, usize> = banks
        .iter()
        .enumerate()
        .flat_map(|(i, b)| b.cpus.iter().map(move |cpu| (*cpu, i)))
        .collect();
    let real = |node: &Node, first: u32, p: u32| match node.cpus.get(p as usize) {
        Some(cpu) => Some(*cpu),
        None if cpus.is_empty() => None,
        None => Some(cpus[(u64::from(first) + u64::from(p)) as usize % cpus.len()]),
    };
    let nodes: Vec<(&Node, u32)> = nodes.into_iter().collect();
    // Of each node, how many of its processors are of which bank.
    let counted = |(node, first): &(&Node, u32)| {
        let mut counts: BTreeMap<usize, u64> = BTreeMap::new();
        for p in 0..node.processors {
            let bank = real(node, *first, p).and_then(|cpu| bank_of.get(&cpu))?;
            *counts.entry(*bank).or_default() += 1;
        }
        Some(counts)
    };
    let counts: Option<Vec<BTreeMap<usize, u64>>> = nodes.iter().map(counted).collect();
    let one_bank =
        || nodes.iter().map(|(node, _)| [(0, u64::from(node.processors))].into()).collect();
    let (counts, mut left): (Vec<_>, Vec<u64>) = match counts.filter(|_| !banks.is_empty()) {
        Some(counts) => (counts, banks.iter().map(|bank| bank.memory).collect()),
        None => (one_bank(), vec![memory]),
    };
    let mut sharing = vec![0u64; left.len()];
    for ((node, _), counts) in nodes.iter().zip(&counts) {
        for (bank, count) in counts {
            match node.memory {
                0 => sharing[*bank] += count,
                given => {
                    let part = part(given, *count, node.processors.into());
                    left[*bank] = left[*bank].saturating_sub(part);
                }
            }
        }
    }
    let of = |((node, _), counts): (&(&Node, u32), &BTreeMap<usize, u64>)| {
        let parts = counts.iter().map(|(bank, count)| part(left[*bank], *count, sharing[*bank]));
        let bytes = parts.fold(0, u64::saturating_add);
        (node.memory == 0).then_some((node.nid, bytes - bytes % STEP))
    };
    nodes.iter().zip(&counts).filter_map(of).collect()
}

/// What a host tells of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told<'a> {
    /// Real processors that are used by number.
    pub cpus: &'a [u32],
    /// Its NUMA nodes.
    pub banks: &'a [Bank],
    /// Its memory in bytes.
    pub memory: u64,
}

/// The memory of nodes by host, for a machine whose hosts tell of themselves one after the other: what a host tells is
/// worked out for its nodes alone, and once where several apinits of it tell the same.
#[derive(Clone, Debug, Default)]
pub struct Divisions {
    /// The nodes of each host; none: it has not been looked.
    nodes: Option<BTreeMap<String, Vec<Nid>>>,
    last: Option<Division>,
}

#[derive(Clone, Debug)]
struct Division {
    host: String,
    cpus: Vec<u32>,
    banks: Vec<Bank>,
    memory: u64,
    found: BTreeMap<Nid, u64>,
}

impl Divisions {
    /// [`divided`] for a host of this machine, which has to be the same each time. `firsts`: processors in nodes of
    /// lower NID on the same host.
    pub fn of_host(
        &mut self,
        machine: &Machine,
        firsts: &BTreeMap<Nid, u32>,
        host: &str,
        told: Told<'_>,
    ) -> &BTreeMap<Nid, u64> {
        let same = |last: &Division| {
            let Division { host: of, cpus, banks, memory, .. } = last;
            of == host && told == Told { cpus, banks, memory: *memory }
        };
        let nodes = self.nodes.get_or_insert_with(|| {
            let mut by_host: BTreeMap<String, Vec<Nid>> = BTreeMap::new();
            for node in machine.nodes.values() {
                match by_host.get_mut(&node.host) {
                    Some(nids) => nids.push(node.nid),
                    None => drop(by_host.insert(node.host.clone(), vec![node.nid])),
                }
            }
            by_host
        });
        let last = self.last.take().filter(same).unwrap_or_else(|| {
            let nids = nodes.get(host).into_iter().flatten();
            let of_host = nids.filter_map(|nid| machine.nodes.get(nid));
            let first = |node: &Node| firsts.get(&node.nid).copied().unwrap_or(0);
            let of_host = of_host.map(|node| (node, first(node)));
            let found = divided(of_host, told.cpus, told.banks, told.memory);
            let Told { cpus, banks, memory } = told;
            let (cpus, banks) = (cpus.to_vec(), banks.to_vec());
            Division { host: host.to_owned(), cpus, banks, memory, found }
        });
        &self.last.insert(last).found
    }
}

/// So many parts of `all`.
fn part(bytes: u64, parts: u64, all: u64) -> u64 {
    let part = u128::from(bytes) * u128::from(parts) / u128::from(all.max(1));
    u64::try_from(part).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const G: u64 = 1 << 30;

    fn gigabytes(nodes: &[Node], cpus: &[u32], banks: &[Bank], memory: u64) -> Vec<(u32, u64)> {
        let mut first = 0;
        let with = nodes.iter().map(|node| {
            let at = first;
            first += node.processors;
            (node, at)
        });
        let found = divided(with.collect::<Vec<_>>(), cpus, banks, memory * G);
        found.into_iter().map(|(nid, bytes)| (nid.0, bytes / G)).collect()
    }

    fn node(nid: u32, processors: u32, memory: u64) -> Node {
        Node { memory: memory * G, ..Node::plain(Nid(nid), processors) }
    }

    /// Whoever tells after whom: each host has what it has alone.
    #[test]
    fn hosts_tell_one_after_the_other() {
        let of = |nid, host: &str| Node { host: host.into(), ..node(nid, 2, 0) };
        let nodes = [of(0, "a"), of(1, "b"), of(2, "a"), of(3, "b")];
        let nodes = nodes.map(|node| (node.nid, node)).into();
        let machine = Machine { nodes, ..Machine::default() };
        let firsts = machine.first_processors();
        let mut divisions = Divisions::default();
        for (host, memory, nids) in [
            ("a", 8, [0, 2]),
            ("a", 8, [0, 2]),
            ("b", 4, [1, 3]),
            ("a", 8, [0, 2]),
            ("a", 6, [0, 2]),
        ] {
            let told = Told { cpus: &[0, 1, 2, 3], banks: &[], memory: memory * G };
            let found = divisions.of_host(&machine, &firsts, host, told);
            let each = nids.map(|nid| (Nid(nid), memory * G / 2));
            assert_eq!(*found, each.into(), "{host}");
        }
        let nobody = Told { cpus: &[], banks: &[], memory: G };
        assert!(divisions.of_host(&machine, &firsts, "c", nobody).is_empty());
    }

    #[test]
    fn memory_is_divided_by_processors() {
        let two = [node(0, 2, 0), node(1, 2, 0)];
        assert_eq!(gigabytes(&two, &[0, 1, 2, 3], &[], 24), [(0, 12), (1, 12)]);
        assert_eq!(gigabytes(&[node(3, 7, 0)], &[], &[], 24), [(3, 24)]);
        // What is given is not to be had, and who is given more than there is leaves nothing.
        let three = [node(0, 2, 0), node(1, 4, 12), node(2, 1, 0)];
        assert_eq!(gigabytes(&three, &[0], &[], 24), [(0, 8), (2, 4)]);
        assert_eq!(gigabytes(&[node(0, 2, 0), node(1, 4, 99)], &[0], &[], 24), [(0, 0)]);
    }

    #[test]
    fn each_has_that_of_its_numa_nodes() {
        let bank = |cpus: &[u32], memory| Bank { cpus: cpus.to_vec(), memory: memory * G };
        let banks = [bank(&[0, 1, 2, 3], 16), bank(&[4, 5, 6, 7], 8)];
        let all: Vec<u32> = (0..8).collect();
        let nodes = [node(0, 2, 0), node(1, 2, 0), node(2, 4, 6)];
        assert_eq!(gigabytes(&nodes, &all, &banks, 24), [(0, 8), (1, 8)]);
        let nodes = [node(0, 6, 0), node(1, 2, 0)];
        assert_eq!(gigabytes(&nodes, &all, &banks, 24), [(0, 20), (1, 4)]);
        // Explicit ones, and more than there are.
        let pinned = Node { cpus: vec![4, 5], ..node(1, 2, 0) };
        assert_eq!(gigabytes(&[node(0, 4, 0), pinned], &all, &banks, 24), [(0, 16), (1, 8)]);
        assert_eq!(gigabytes(&[node(0, 32, 0)], &all, &banks, 24), [(0, 24)]);
        // A processor of which no bank is known: the host is one.
        let odd = Node { cpus: vec![99], ..node(0, 1, 0) };
        assert_eq!(gigabytes(&[odd], &all, &banks, 24), [(0, 24)]);
    }
}
