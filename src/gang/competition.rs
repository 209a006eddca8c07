//! The graph of who competes with whom.
//!
//! # The problem
//!
//! When a gang comes or goes, only those that it competes with, and those with whom they compete in
//! turn, are to be planned anew; on a machine of 100,000 nodes that must not mean a look at everybody.
//!
//! # The approach
//!
//! An undirected graph, an edge for each pair that shares a processor. Beside it stands who is on each
//! processor and each node, so that the edges of a newcomer are found by looking at its own processors
//! only. Memory is no edge: that three gangs do not fit on a node says nothing about any two of them.
//! But where those on a node do not all fit in its memory, their turns depend on each other: such a
//! *crowded* node joins its gangs into one component.
//!
//! ```
//! use psched_pure::apteam::Apid;
//! use psched_pure::gang::{Gang, competition::Competition};
//!
//! let gang = |processors: &[u32]| Gang { processors: processors.to_vec(), memory: vec![] };
//! let mut competition = Competition::new(6, vec![]);
//! competition.add(Apid(1), gang(&[0, 1, 2, 3]));
//! competition.add(Apid(2), gang(&[4, 5]));
//! assert_eq!(competition.component(Apid(1)), [Apid(1)]);
//! competition.add(Apid(3), gang(&[3, 4]));
//! assert_eq!(competition.component(Apid(1)), [Apid(1), Apid(2), Apid(3)]);
//! assert!(!competition.compete(Apid(1), Apid(2)));
//! ```

use super::Gang;
use crate::apteam::Apid;
use fixedbitset::FixedBitSet;
use petgraph::stable_graph::{NodeIndex, StableUnGraph};
use petgraph::visit::NodeIndexable;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A node's memory, and who counts on it.
#[derive(Clone, Debug, Default)]
struct Room {
    bytes: u64,
    promised: u64,
    gangs: Vec<Apid>,
}

impl Room {
    /// Those on it do not all fit at once.
    fn crowded(&self) -> bool {
        self.promised > self.bytes
    }
}

/// Who competes with whom.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct Competition {
    graph: StableUnGraph<Apid, (), u32>,
    gangs: BTreeMap<Apid, (NodeIndex<u32>, Gang)>,
    /// Who is on each processor.
    on: Vec<Vec<NodeIndex<u32>>>,
    /// By node.
    rooms: Vec<Room>,
    /// How many of them are crowded.
    crowded: usize,
}

/// What a graph is written as: all else follows from it. (Nothing that is asked depends on the order in which
/// the gangs came.)
#[derive(Serialize, Deserialize)]
struct Written {
    processors: usize,
    memory: Vec<u64>,
    gangs: BTreeMap<Apid, Gang>,
}

impl From<Competition> for Written {
    fn from(of: Competition) -> Written {
        let gangs = of.gangs.into_iter().map(|(apid, (_, gang))| (apid, gang)).collect();
        let memory = of.rooms.iter().map(|room| room.bytes).collect();
        Written { processors: of.on.len(), memory, gangs }
    }
}

impl From<Written> for Competition {
    fn from(written: Written) -> Competition {
        let mut read = Competition::new(written.processors, written.memory);
        written.gangs.into_iter().for_each(|(apid, gang)| read.add(apid, gang));
        read
    }
}

impl Competition {
    /// Nobody, on so many processors, and nodes with so many bytes of memory each.
    pub fn new(processors: usize, memory: Vec<u64>) -> Competition {
        let room = |bytes| Room { bytes, ..Room::default() };
        Competition {
            graph: StableUnGraph::default(),
            gangs: BTreeMap::new(),
            on: vec![Vec::new(); processors],
            rooms: memory.into_iter().map(room).collect(),
            crowded: 0,
        }
    }

    /// A gang comes, or is somewhere else from now on. Processors and nodes that are not there are left
    /// out.
    pub fn add(&mut self, apid: Apid, mut gang: Gang) {
        self.remove(apid);
        gang.processors.retain(|p| (*p as usize) < self.on.len());
        gang.memory.retain(|(node, _)| (*node as usize) < self.rooms.len());
        let index = self.graph.add_node(apid);
        for &processor in &gang.processors {
            for &other in &self.on[processor as usize] {
                // (Not a second edge for the next processor that they share.)
                self.graph.update_edge(index, other, ());
            }
        }
        for &processor in &gang.processors {
            self.on[processor as usize].push(index);
        }
        for &(node, bytes) in &gang.memory {
            let room = &mut self.rooms[node as usize];
            let crowded = room.crowded();
            room.promised = room.promised.saturating_add(bytes);
            room.gangs.push(apid);
            self.crowded += usize::from(room.crowded()) - usize::from(crowded);
        }
        self.gangs.insert(apid, (index, gang));
    }

    /// A gang has gone. No effect where there is none of that number.
    pub fn remove(&mut self, apid: Apid) {
        let Some((index, gang)) = self.gangs.remove(&apid) else { return };
        self.graph.remove_node(index);
        for processor in gang.processors {
            self.on[processor as usize].retain(|other| *other != index);
        }
        for (node, bytes) in gang.memory {
            let room = &mut self.rooms[node as usize];
            let crowded = room.crowded();
            room.promised = room.promised.saturating_sub(bytes);
            room.gangs.retain(|other| *other != apid);
            self.crowded -= usize::from(crowded) - usize::from(room.crowded());
        }
    }

    /// A node has so many bytes of memory from now on. Whether anybody's turns may depend on that: not where all on
    /// the node fit before and after.
    pub fn set_room(&mut self, node: u32, bytes: u64) -> bool {
        let Some(room) = self.rooms.get_mut(node as usize) else { return false };
        let crowded = room.crowded();
        room.bytes = bytes;
        self.crowded = self.crowded + usize::from(room.crowded()) - usize::from(crowded);
        crowded || room.crowded()
    }

    /// Whether there is a node on which not all fit at once.
    pub fn is_crowded(&self) -> bool {
        self.crowded > 0
    }

    /// A gang has so many bytes of memory on one of its nodes from now on; no effect where it is not.
    /// Whether anybody's turns may depend on that: not where all on the node fit before and after.
    pub fn set_memory(&mut self, apid: Apid, node: u32, bytes: u64) -> bool {
        let Some((_, gang)) = self.gangs.get_mut(&apid) else { return false };
        let Ok(i) = gang.memory.binary_search_by_key(&node, |(node, _)| *node) else {
            return false;
        };
        let room = &mut self.rooms[node as usize];
        let crowded = room.crowded();
        let before = std::mem::replace(&mut gang.memory[i].1, bytes);
        room.promised = room.promised.saturating_sub(before).saturating_add(bytes);
        self.crowded = self.crowded + usize::from(room.crowded()) - usize::from(crowded);
        before != bytes && (crowded || room.crowded())
    }

    /// All gangs, by number.
    pub fn gangs(&self) -> impl Iterator<Item = Apid> + '_ {
        self.gangs.keys().copied()
    }

    /// What is known of a gang.
    pub fn gang(&self, apid: Apid) -> Option<&Gang> {
        self.gangs.get(&apid).map(|(_, gang)| gang)
    }

    /// Those that share a processor with it, in no particular order, which is the same each time.
    pub fn competitors(&self, apid: Apid) -> impl Iterator<Item = Apid> + '_ {
        let index = self.gangs.get(&apid).map(|(index, _)| *index);
        index.into_iter().flat_map(|i| self.graph.neighbors(i)).map(|i| self.graph[i])
    }

    /// With which others of these each of them shares a processor, all by their places among them.
    pub(super) fn among(&self, members: &[Apid]) -> Vec<FixedBitSet> {
        let mut number = vec![u32::MAX; self.graph.node_bound()];
        let indices: Vec<Option<NodeIndex<u32>>> =
            members.iter().map(|apid| self.gangs.get(apid).map(|(index, _)| *index)).collect();
        for (i, index) in (0..).zip(&indices) {
            if let Some(index) = index {
                number[index.index()] = i;
            }
        }
        let of = |index: &Option<NodeIndex<u32>>| {
            let mut all = FixedBitSet::with_capacity(members.len());
            let others = index.iter().flat_map(|index| self.graph.neighbors(*index));
            let others = others.map(|other| number[other.index()]);
            all.extend(others.filter(|number| *number < u32::MAX).map(|number| number as usize));
            all
        };
        indices.iter().map(of).collect()
    }

    /// Whether two share a processor.
    pub fn compete(&self, one: Apid, other: Apid) -> bool {
        let index = |apid| self.gangs.get(apid).map(|(index, _)| *index);
        let pair = index(&one).zip(index(&other));
        pair.is_some_and(|(one, other)| self.graph.contains_edge(one, other))
    }

    /// Bytes of memory of a node.
    pub fn memory(&self, node: u32) -> u64 {
        self.rooms.get(node as usize).map_or(0, |room| room.bytes)
    }

    /// The nodes of a gang on which not everybody fits at once, and its bytes there.
    pub fn crowded(&self, apid: Apid) -> impl Iterator<Item = (u32, u64)> + '_ {
        // (Mostly none is, and there are many nodes.)
        let gang = self.gang(apid).filter(|_| self.crowded > 0);
        let nodes = gang.map_or(&[][..], |gang| &gang.memory);
        nodes.iter().copied().filter(|(node, _)| self.rooms[*node as usize].crowded())
    }

    /// The others that may keep it from running: those that it competes with, and those on crowded nodes
    /// of its.
    pub fn rivals(&self, apid: Apid) -> BTreeSet<Apid> {
        let mut rivals: BTreeSet<Apid> = self.competitors(apid).collect();
        for (node, _) in self.crowded(apid) {
            rivals.extend(&self.rooms[node as usize].gangs);
        }
        rivals.remove(&apid);
        rivals
    }

    /// Those whose turns depend on each other, with this one, by number; empty where it is not there.
    pub fn component(&self, apid: Apid) -> Vec<Apid> {
        let Some((first, _)) = self.gangs.get(&apid) else { return Vec::new() };
        let mut met = FixedBitSet::with_capacity(self.graph.node_bound());
        let mut seen_rooms = BTreeSet::new();
        // Those who are found; from `next` on their own are still to be looked for.
        let (mut found, mut next) = (Vec::with_capacity(16), 0);
        let mut indices = Vec::with_capacity(16);
        found.push(apid);
        indices.push(*first);
        met.insert(first.index());
        while let Some(index) = indices.get(next).copied() {
            let mut meet = |other: NodeIndex<u32>| {
                if !met.put(other.index()) {
                    indices.push(other);
                    found.push(self.graph[other]);
                }
            };
            self.graph.neighbors(index).for_each(&mut meet);
            let one = self.graph[index];
            for (node, _) in self.crowded(one).filter(|(node, _)| seen_rooms.insert(*node)) {
                let gangs = self.rooms[node as usize].gangs.iter();
                gangs.filter_map(|apid| self.gangs.get(apid)).for_each(|(other, _)| meet(*other));
            }
            next += 1;
        }
        found.sort_unstable();
        found
    }

    /// All components, each by number, in order of their first.
    pub fn components(&self) -> Vec<Vec<Apid>> {
        let mut left: BTreeSet<Apid> = self.gangs().collect();
        let mut all = Vec::new();
        while let Some(first) = left.first().copied() {
            let component = self.component(first);
            component.iter().for_each(|apid| {
                left.remove(apid);
            });
            all.push(component);
        }
        all
    }
}
