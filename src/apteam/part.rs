//! What the apinits of an application have of it: each its own places, and one compact map of all.
//!
//! An application may be on thousands of hosts. Were each of them told every place, what psched sends would grow with
//! hosts times nodes. So an apinit is told the places of its own nodes, and where ranks are elsewhere by runs of
//! nodes that are alike: equal hosts that follow each other are one run.
//!
//! ```
//! use psched_pure::apteam::{part::*, place::*};
//! use psched_pure::machine::Nid;
//! let place = |nid| Place { nid: Nid(nid), processors: vec![0, 1], pes: 2 };
//! let host = |nids: [u32; 2]| HostPart { nids: nids.map(Nid).to_vec(), ..HostPart::default() };
//! let places = PlacementList((0..6).map(place).collect());
//! let map = RankMap::of(&places, &[host([0, 1]), host([2, 3]), host([4, 5])]);
//! let all = MapRun { first_nid: Nid(0), nodes: 2, pes: 2, first_host: 0, hosts: 3 };
//! assert_eq!(map.0[..], [all]);
//! assert_eq!((map.hosts(), map.pes()), (3, 12));
//! let second: Vec<MappedNode> = map.of_host(1).collect();
//! assert_eq!(second[0], MappedNode { nid: Nid(2), pes: 2, host: 1, first_rank: 4, place: 2 });
//! ```

use super::place::{HostPart, PlacementList};
use crate::machine::Nid;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Nodes in rank order that are alike. NIDs count up by 1 over all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapRun {
    /// The first node.
    pub first_nid: Nid,
    /// Nodes of each of these apinits, at least 1.
    pub nodes: u32,
    /// PEs on each node.
    pub pes: u32,
    /// The apinit of the first nodes, by its index among those of the application; 0 is the head.
    pub first_host: u32,
    /// How many apinits follow each other, at least 1.
    pub hosts: u32,
}

impl MapRun {
    fn all_nodes(&self) -> u64 {
        u64::from(self.nodes) * u64::from(self.hosts)
    }

    fn all_pes(&self) -> u64 {
        self.all_nodes() * u64::from(self.pes)
    }
}

/// Where the PEs of an application are, in rank order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankMap(pub Arc<[MapRun]>);

/// A node of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedNode {
    /// The node.
    pub nid: Nid,
    /// PEs on it.
    pub pes: u32,
    /// Its apinit.
    pub host: u32,
    /// The rank of its first PE.
    pub first_rank: u32,
    /// How many nodes are before it.
    pub place: u32,
}

impl RankMap {
    /// That of a placement. A node that none of these apinits has counts as an apinit of its own, after the others.
    pub fn of(places: &PlacementList, hosts: &[HostPart]) -> RankMap {
        let own =
            (0..).zip(hosts).flat_map(|(index, host)| host.nids.iter().map(move |n| (*n, index)));
        let owners: BTreeMap<Nid, u32> = own.collect();
        let mut unclaimed = hosts.len() as u32;
        let mut single: Vec<MapRun> = Vec::new();
        for place in places.0.iter() {
            let host = owners.get(&place.nid).copied().unwrap_or_else(|| {
                unclaimed += 1;
                unclaimed - 1
            });
            match single.last_mut() {
                Some(last)
                    if (last.first_host, last.pes) == (host, place.pes)
                        && last.first_nid.0.checked_add(last.nodes) == Some(place.nid.0) =>
                {
                    last.nodes += 1;
                }
                _ => single.push(MapRun {
                    first_nid: place.nid,
                    nodes: 1,
                    pes: place.pes,
                    first_host: host,
                    hosts: 1,
                }),
            }
        }
        let mut runs: Vec<MapRun> = Vec::new();
        for run in single {
            match runs.last_mut() {
                Some(last)
                    if (last.nodes, last.pes) == (run.nodes, run.pes)
                        && last.first_host + last.hosts == run.first_host
                        && u64::from(last.first_nid.0) + last.all_nodes()
                            == u64::from(run.first_nid.0) =>
                {
                    last.hosts += 1;
                }
                _ => runs.push(run),
            }
        }
        RankMap(runs.into())
    }

    /// That of a placement on one apinit.
    pub fn alone(places: &PlacementList) -> RankMap {
        let nids = places.nids().collect();
        RankMap::of(places, &[HostPart { nids, ..HostPart::default() }])
    }

    /// How many apinits there are.
    pub fn hosts(&self) -> u32 {
        self.0.iter().map(|run| run.first_host.saturating_add(run.hosts)).max().unwrap_or(0)
    }

    /// Nodes in all.
    pub fn nodes(&self) -> u64 {
        self.0.iter().map(MapRun::all_nodes).fold(0, u64::saturating_add)
    }

    /// PEs in all.
    pub fn pes(&self) -> u64 {
        self.0.iter().map(MapRun::all_pes).fold(0, u64::saturating_add)
    }

    /// All nodes, in rank order.
    pub fn all(&self) -> impl Iterator<Item = MappedNode> + '_ {
        let each = |run: &MapRun| {
            let run = *run;
            let hosts = (run.first_host..).take(run.hosts as usize);
            let hosts = hosts.flat_map(move |host| std::iter::repeat_n(host, run.nodes as usize));
            (run.first_nid.0..).zip(hosts).map(move |(nid, host)| (Nid(nid), run.pes, host))
        };
        let (mut first_rank, mut place) = (0u32, 0u32);
        self.0.iter().flat_map(each).map(move |(nid, pes, host)| {
            let node = MappedNode { nid, pes, host, first_rank, place };
            first_rank = first_rank.saturating_add(pes);
            place = place.saturating_add(1);
            node
        })
    }

    /// The nodes of one apinit, in rank order. (Its cost is that of the runs.)
    pub fn of_host(&self, host: u32) -> impl Iterator<Item = MappedNode> + '_ {
        let (mut ranks, mut places) = (0u64, 0u64);
        let runs = self.0.iter().filter_map(move |run| {
            let before = (ranks, places);
            ranks = ranks.saturating_add(run.all_pes());
            places = places.saturating_add(run.all_nodes());
            let index = host.checked_sub(run.first_host).filter(|index| *index < run.hosts)?;
            Some((run, u64::from(index) * u64::from(run.nodes), before))
        });
        runs.flat_map(move |(run, skipped, (ranks, places))| {
            (skipped..skipped + u64::from(run.nodes)).map(move |at| MappedNode {
                nid: Nid(run.first_nid.0.saturating_add(cut(at))),
                pes: run.pes,
                host,
                first_rank: cut(ranks.saturating_add(at * u64::from(run.pes))),
                place: cut(places.saturating_add(at)),
            })
        })
    }

    /// PEs of the apinits, in rank order: each time that another one begins. (Nodes of one may stand between those of
    /// another.)
    pub fn pes_by_host(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        self.0.iter().flat_map(|run| {
            let pes = u64::from(run.nodes) * u64::from(run.pes);
            (run.first_host..).take(run.hosts as usize).map(move |host| (host, pes))
        })
    }

    /// The apinit of a PE. (Its cost is that of the runs.)
    pub fn host_of(&self, rank: u32) -> Option<u32> {
        let mut before = 0u64;
        self.0.iter().find_map(|run| {
            let (all, first) = (run.all_pes(), before);
            before = before.saturating_add(all);
            let within = u64::from(rank).checked_sub(first).filter(|within| *within < all)?;
            let each = u64::from(run.nodes) * u64::from(run.pes);
            Some(run.first_host.saturating_add(cut(within / each)))
        })
    }

    /// The first PE of each apinit that has one, by the number of the apinit.
    pub fn first_pes(&self) -> BTreeMap<u32, u32> {
        let (mut first, mut found) = (0u32, BTreeMap::new());
        for (host, pes) in self.pes_by_host().filter(|(_, pes)| *pes > 0) {
            found.entry(host).or_insert(first);
            first = first.saturating_add(cut(pes));
        }
        found
    }

    /// The node by which an apinit is named: the first one that it has.
    pub fn first_nid(&self, host: u32) -> Option<Nid> {
        self.of_host(host).next().map(|node| node.nid)
    }
}

fn cut(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// Whose part of an application a placement is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The apinit, by its index among those of the application; 0 is the head. None: it is not a part, but all of it,
    /// as psched has it, and as releases before sent it to each.
    pub index: Option<u32>,
    /// Where all its PEs are.
    pub map: RankMap,
    /// MPICH's `PMI_process_mapping`.
    pub process_mapping: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apteam::place::Place;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn host(nids: &[u32]) -> HostPart {
        HostPart { nids: nids.iter().map(|nid| Nid(*nid)).collect(), ..HostPart::default() }
    }

    #[test]
    fn a_thousand_hosts_that_are_alike_are_one_run() {
        let place = |nid| Place { nid: Nid(nid), processors: vec![0], pes: 1 };
        let places = PlacementList((0..100_000).map(place).collect());
        let hosts: Vec<HostPart> =
            (0..1_000).map(|h| host(&(h * 100..(h + 1) * 100).collect::<Vec<_>>())).collect();
        let map = RankMap::of(&places, &hosts);
        assert_eq!(map.0.len(), 1);
        let last: Vec<MappedNode> = map.of_host(999).collect();
        assert_eq!((last.len(), last[0].first_rank, last[0].nid), (100, 99_900, Nid(99_900)));
        assert_eq!((map.hosts(), map.nodes(), map.pes()), (1_000, 100_000, 100_000));
    }

    #[test]
    fn nobodys_node_is_a_host_of_its_own() {
        let place = |nid| Place { nid: Nid(nid), processors: vec![0], pes: 1 };
        let map = RankMap::of(&PlacementList([3, 4, 5].map(place).into()), &[host(&[4])]);
        let hosts: Vec<u32> = map.all().map(|node| node.host).collect();
        assert_eq!(hosts, [1, 0, 2]);
        assert_eq!(RankMap::default().hosts(), 0);
    }

    proptest! {
        /// By whichever way a map is asked, it says what the placement says.
        #[test]
        fn a_map_is_the_placement(list in prop::collection::vec((0u32..3, 1u32..3), 1..20),
                                  order in prop::collection::vec(any::<u32>(), 20)) {
            let mut nids: Vec<u32> = (0..list.len() as u32).collect();
            // Mostly in ascending order, else some are swapped.
            for (at, with) in order.iter().enumerate().filter(|(_, with)| **with % 4 == 0) {
                let (at, with) = (at % nids.len(), *with as usize / 4 % nids.len());
                nids.swap(at, with);
            }
            let places = nids.iter().zip(&list).map(|(nid, (_, pes))| Place {
                nid: Nid(*nid),
                processors: vec![],
                pes: *pes,
            });
            let places = PlacementList(places.collect());
            let hosts: Vec<HostPart> = (0..3u32)
                .map(|own| {
                    let its = nids.iter().zip(&list).filter(|(_, (of, _))| *of == own);
                    host(&its.map(|(nid, _)| *nid).collect::<Vec<_>>())
                })
                .collect();
            let map = RankMap::of(&places, &hosts);
            for node in map.all() {
                for rank in node.first_rank..node.first_rank + node.pes {
                    prop_assert_eq!(map.host_of(rank), Some(node.host));
                }
            }
            prop_assert_eq!(map.host_of(map.pes() as u32), None);
            let mut first_rank = 0;
            let plain = places.0.iter().zip(&list).zip(0..).map(|((place, (host, _)), at)| {
                let node =
                    MappedNode { nid: place.nid, pes: place.pes, host: *host, first_rank, place: at };
                first_rank += place.pes;
                node
            });
            let plain: Vec<MappedNode> = plain.collect();
            prop_assert_eq!(map.all().collect::<Vec<_>>(), plain.clone());
            prop_assert_eq!(map.pes(), u64::from(first_rank));
            prop_assert_eq!(map.nodes(), plain.len() as u64);
            for own in 0..4 {
                let its: Vec<MappedNode> = plain.iter().copied().filter(|n| n.host == own).collect();
                prop_assert_eq!(map.of_host(own).collect::<Vec<_>>(), its);
            }
            for (host, first) in map.first_pes() {
                prop_assert_eq!(map.of_host(host).next().map(|node| node.first_rank), Some(first));
            }
            let having: BTreeSet<u32> = plain.iter().map(|node| node.host).collect();
            prop_assert_eq!(map.first_pes().into_keys().collect::<BTreeSet<_>>(), having);
            let by_host: u64 = map.pes_by_host().map(|(_, pes)| pes).sum();
            prop_assert_eq!(by_host, map.pes());
        }
    }
}
