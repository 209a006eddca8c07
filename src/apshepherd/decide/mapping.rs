//! Which ranks share a host, in the words of MPICH: `PMI_process_mapping`.
//!
//! MPICH asks its process manager for this value before anything else, because ranks that share a
//! host talk through shared memory. The value is a list of blocks, `(first,nodes,each)`: `nodes`
//! hosts from number `first` on, with `each` consecutive ranks on every one of them.
//!
//! What counts is the *host*: several NIDs of one host are one node to MPICH. Hosts are numbered in
//! order of their lowest rank.
//!
//! ```
//! # use psched_pure::apshepherd::decide::mapping::process_mapping;
//! // Two NIDs of host a with two PEs each, one NID of host b with four: two hosts of four.
//! assert_eq!(process_mapping([("a", 2), ("a", 2), ("b", 4)]), "(vector,(0,2,4))");
//! ```

use crate::apteam::part::RankMap;
use crate::apteam::place::HostPart;
use std::collections::BTreeMap;

/// The mapping of an application, from its places in rank order: host and PEs of each.
pub fn process_mapping<H: Ord>(places: impl IntoIterator<Item = (H, u64)>) -> String {
    let mut hosts: BTreeMap<H, usize> = BTreeMap::new();
    // (number of the host, its consecutive ranks)
    let mut runs: Vec<(usize, u64)> = Vec::new();
    for (host, pes) in places.into_iter().filter(|(_, pes)| *pes > 0) {
        let next = hosts.len();
        let number = *hosts.entry(host).or_insert(next);
        match runs.last_mut() {
            Some((last, count)) if *last == number => *count += pes,
            _ => runs.push((number, pes)),
        }
    }
    let mut blocks: Vec<(usize, usize, u64)> = Vec::new();
    for (number, count) in runs {
        match blocks.last_mut() {
            Some((first, nodes, each)) if *each == count && *first + *nodes == number => {
                *nodes += 1
            }
            _ => blocks.push((number, 1, count)),
        }
    }
    let blocks: String =
        blocks.iter().map(|(first, nodes, each)| format!(",({first},{nodes},{each})")).collect();
    format!("(vector{blocks})")
}

/// The mapping of a placement, whose apinits have these ids of hosts. An apinit that is not among them is a host of its
/// own. `apart`: each apinit keeps its PEs to themselves, so that those of two on one host share no memory either.
pub fn mapping_of(map: &RankMap, hosts: &[HostPart], apart: bool) -> String {
    process_mapping(map.pes_by_host().map(|(index, pes)| {
        let host = hosts.get(index as usize).filter(|_| !apart);
        (host.map_or(Err(index), |host| Ok(&host.host_id)), pes)
    }))
}

/// The most ranks that a mapping is unfolded for.
const RANKS_MAX: u32 = 1 << 20;

/// The number of each rank's host, as a mapping of so many ranks has it; ranks that it does not name are on host 0.
///
/// ```
/// # use psched_pure::apshepherd::decide::mapping::hosts_of;
/// assert_eq!(hosts_of("(vector,(0,2,2),(2,1,1))", 5), [0, 0, 1, 1, 2]);
/// assert_eq!(hosts_of("", 2), [0, 0]);
/// ```
pub fn hosts_of(mapping: &str, width: u32) -> Vec<u32> {
    let width = width.min(RANKS_MAX) as usize;
    let mut hosts = Vec::with_capacity(width);
    for block in mapping.split('(').skip(2) {
        let numbers: Vec<u32> = block
            .split([',', ')'])
            .filter(|word| !word.is_empty())
            .map_while(|word| word.parse().ok())
            .collect();
        let [first, nodes, each] = numbers[..] else { break };
        let block = (first..first.saturating_add(nodes))
            .flat_map(|host| std::iter::repeat_n(host.min(RANKS_MAX), each as usize));
        hosts.extend(block.take(width - hosts.len()));
    }
    hosts.resize(width, 0);
    hosts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apteam::place::{Place, PlacementList};
    use crate::machine::Nid;
    use proptest::prelude::*;

    proptest! {
        /// What is written is read again.
        #[test]
        fn a_mapping_unfolds(places in proptest::collection::vec((0u8..4, 0u64..4), 0..12)) {
            let mut numbers: Vec<u8> = Vec::new();
            let mut expected = Vec::new();
            for (host, pes) in places.iter().filter(|(_, pes)| *pes > 0) {
                if !numbers.contains(host) {
                    numbers.push(*host);
                }
                let number = numbers.iter().position(|known| known == host).unwrap_or_default();
                expected.extend(std::iter::repeat_n(number as u32, *pes as usize));
            }
            let text = process_mapping(places.iter().copied());
            prop_assert_eq!(hosts_of(&text, expected.len() as u32), expected);
        }

        #[test]
        fn any_text_unfolds(text in "[(vector,)0-9]{0,40}", width in 0u32..50) {
            prop_assert_eq!(hosts_of(&text, width).len(), width as usize);
        }
    }

    /// Golden texts, the uneven ones as MPICH's own hydra writes them.
    #[test]
    fn golden() {
        for (places, text) in [
            (&[("a", 1)][..], "(vector,(0,1,1))"),
            (&[("a", 8)], "(vector,(0,1,8))"),
            (&[("a", 2), ("a", 2)], "(vector,(0,1,4))"),
            (&[("a", 2), ("b", 2), ("c", 2)], "(vector,(0,3,2))"),
            (&[("a", 2), ("b", 2), ("c", 1)], "(vector,(0,2,2),(2,1,1))"),
            (&[("a", 3), ("b", 1), ("c", 1)], "(vector,(0,1,3),(1,2,1))"),
            (&[("a", 1), ("b", 2), ("c", 3)], "(vector,(0,1,1),(1,1,2),(2,1,3))"),
            (&[("a", 2), ("a", 1), ("b", 3)], "(vector,(0,2,3))"),
            (&[("a", 1), ("b", 1), ("a", 1)], "(vector,(0,2,1),(0,1,1))"),
            (&[("a", 1), ("b", 0), ("c", 1)], "(vector,(0,2,1))"),
        ] {
            assert_eq!(process_mapping(places.iter().copied()), text, "{places:?}");
        }
    }

    #[test]
    fn nids_of_a_host_are_one() {
        let place = |nid, pes| Place { nid: Nid(nid), processors: vec![], pes };
        let places = PlacementList([place(0, 2), place(1, 2), place(2, 3)].into());
        let host = |nids: &[u32], id: &str| HostPart {
            nids: nids.iter().map(|n| Nid(*n)).collect(),
            host_id: id.into(),
            ..HostPart::default()
        };
        let of = |hosts: &[HostPart], apart| mapping_of(&RankMap::of(&places, hosts), hosts, apart);
        let two = [host(&[0, 1], "x"), host(&[2], "y")];
        assert_eq!(of(&two, false), "(vector,(0,1,4),(1,1,3))");
        let same = [host(&[0, 1], "x"), host(&[2], "x")];
        assert_eq!(of(&same, false), "(vector,(0,1,7))");
        assert_eq!(of(&same, true), "(vector,(0,1,4),(1,1,3))");
        assert_eq!(of(&[], true), "(vector,(0,2,2),(2,1,3))");
    }

    /// What MPICH reads out of the text: the host of each rank.
    fn read(text: &str) -> Vec<usize> {
        let inner = text.strip_prefix("(vector,(").expect("vector").trim_end_matches("))");
        let mut hosts = Vec::new();
        for block in inner.split("),(") {
            let n: Vec<usize> = block.split(',').map(|n| n.parse().expect("a number")).collect();
            for node in 0..n[1] {
                hosts.extend(std::iter::repeat_n(n[0] + node, n[2]));
            }
        }
        hosts
    }

    proptest! {
        #[test]
        fn ranks_share_a_number_exactly_when_they_share_a_host(
            places in prop::collection::vec((0usize..5, 1u64..4), 1..12)
        ) {
            const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
            let text = process_mapping(places.iter().map(|(h, n)| (NAMES[*h], *n)));
            let read = read(&text);
            let real: Vec<usize> =
                places.iter().flat_map(|(h, n)| std::iter::repeat_n(*h, *n as usize)).collect();
            prop_assert_eq!(read.len(), real.len());
            for i in 0..real.len() {
                for j in 0..i {
                    prop_assert_eq!(real[i] == real[j], read[i] == read[j]);
                }
            }
        }
    }
}
