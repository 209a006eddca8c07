//! The placement list: which nodes, which of their processors, how many PEs on each.

use super::shape::Shape;
use crate::machine::Nid;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// One node's part of an application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The node.
    pub nid: Nid,
    /// Numbers of the node's processors, PE by PE, as many for each ([`Place::depth`]). Fewer than PEs: these
    /// take them in turn ([`super::oversubscribe`]).
    pub processors: Vec<u32>,
    /// PEs here, at least 1.
    pub pes: u32,
}

impl Place {
    /// Processors of each PE here. Those of other nodes may have other numbers of them.
    pub fn depth(&self) -> u32 {
        let processors = u32::try_from(self.processors.len()).unwrap_or(u32::MAX);
        match self.shares() {
            true => 1,
            false => processors / self.pes.max(1),
        }
    }

    /// Whether its PEs share processors.
    pub fn shares(&self) -> bool {
        !self.processors.is_empty() && self.processors.len() < self.pes as usize
    }

    /// PEs that placement has put here: if they share processors, one for each of these.
    pub fn placed(&self) -> u32 {
        match self.shares() {
            true => u32::try_from(self.processors.len()).unwrap_or(u32::MAX),
            false => self.pes,
        }
    }

    /// The processors of its PEs, by their order.
    pub fn own(&self, pe: usize) -> impl Iterator<Item = u32> + '_ {
        own(&self.processors, pe, self.depth() as usize)
    }
}

/// The processors of a PE, the `pe`th of those that have these together, `depth` for each. If there are too few
/// for all, PEs begin again with the first.
pub(super) fn own(
    processors: &[u32],
    pe: usize,
    depth: usize,
) -> impl Iterator<Item = u32> + use<'_> {
    let depth = depth.max(1);
    let first = pe % (processors.len() / depth).max(1) * depth;
    processors.iter().skip(first).take(depth).copied()
}

/// The nodes of an application in rank order: the first PEs on the first place, and so on. A list never
/// changes, so that records and commands, which all have it, share one: who is moved has another.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PlacementList(pub Arc<[Place]>);

/// One PE of a placement: what each apinit works out for itself from the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedPe {
    /// Its rank, from 0.
    pub rank: u32,
    /// Its node.
    pub nid: Nid,
    /// Its processors on that node.
    pub processors: Vec<u32>,
}

impl PlacementList {
    /// Every PE with its node and processors, in rank order.
    ///
    /// ```
    /// # use psched_pure::{apteam::{place::*, shape::Shape}, machine::Nid};
    /// let list = PlacementList([
    ///     Place { nid: Nid(3), processors: vec![0, 1, 2, 3], pes: 2 },
    ///     Place { nid: Nid(4), processors: vec![5, 6], pes: 1 },
    /// ].into());
    /// let last = list.pes().last().unwrap();
    /// assert_eq!((last.rank, last.nid, last.processors), (2, Nid(4), vec![5, 6]));
    /// ```
    pub fn pes(&self) -> impl Iterator<Item = PlacedPe> + '_ {
        let on_each = self.0.iter().flat_map(move |place| {
            (0..place.pes as usize).map(move |pe| (place.nid, place.own(pe).collect()))
        });
        (0..).zip(on_each).map(|(rank, (nid, processors))| PlacedPe { rank, nid, processors })
    }

    /// The nodes, in rank order.
    pub fn nids(&self) -> impl Iterator<Item = Nid> + '_ {
        self.0.iter().map(|p| p.nid)
    }

    /// Whether its nodes are neighbours by NID, whichever way ranks go.
    ///
    /// ```
    /// # use psched_pure::{apteam::place::*, machine::Nid};
    /// let place = |nid| Place { nid: Nid(nid), processors: Vec::new(), pes: 1 };
    /// let on = |nids: [u32; 3]| PlacementList(nids.map(place).into());
    /// assert!(on([3, 4, 5]).is_contiguous() && on([5, 4, 3]).is_contiguous());
    /// assert!(!on([3, 4, 6]).is_contiguous() && !on([3, 4, 3]).is_contiguous());
    /// ```
    pub fn is_contiguous(&self) -> bool {
        let all = |up: bool| {
            let follow = |two: &[Place]| {
                let (one, next) = if up { (&two[0], &two[1]) } else { (&two[1], &two[0]) };
                one.nid.0.checked_add(1) == Some(next.nid.0)
            };
            self.0.windows(2).all(follow)
        };
        all(true) || all(false)
    }

    /// What it takes to hold both: each node of either with the processors of both, by NID.
    ///
    /// ```
    /// # use psched_pure::{apteam::place::*, machine::Nid};
    /// let on = |nid, processors| Place { nid: Nid(nid), processors, pes: 1 };
    /// let from = PlacementList([on(3, vec![0]), on(4, vec![0])].into());
    /// let to = PlacementList([on(4, vec![1]), on(5, vec![1])].into());
    /// let both = [on(3, vec![0]), on(4, vec![0, 1]), on(5, vec![1])];
    /// assert_eq!(from.and(&to), PlacementList(both.into()));
    /// ```
    pub fn and(&self, other: &PlacementList) -> PlacementList {
        let mut all: Vec<&Place> = self.0.iter().chain(other.0.iter()).collect();
        all.sort_by_key(|place| place.nid);
        let node = |here: &[&Place]| {
            let pes = here.iter().map(|place| place.pes).max().unwrap_or(0);
            let mut processors = here[0].processors.clone();
            here[1..].iter().for_each(|place| processors.extend(&place.processors));
            processors.sort_unstable();
            processors.dedup();
            Place { nid: here[0].nid, processors, pes }
        };
        PlacementList(all.chunk_by(|one, next| one.nid == next.nid).map(node).collect())
    }

    /// PEs on a node. Placement lists nodes once and by NID, where it is found without a walk; other lists
    /// are gone through.
    ///
    /// ```
    /// # use psched_pure::{apteam::place::*, machine::Nid};
    /// let place = |nid, pes| Place { nid: Nid(nid), processors: Vec::new(), pes };
    /// let list = PlacementList([place(3, 2), place(4, 1)].into());
    /// assert_eq!([2, 3, 4].map(|nid| list.pes_on(Nid(nid))), [0, 2, 1]);
    /// let list = PlacementList([place(4, 2), place(5, 1), place(3, 7)].into());
    /// assert_eq!([2, 3, 4].map(|nid| list.pes_on(Nid(nid))), [0, 7, 2]);
    /// ```
    pub fn pes_on(&self, nid: Nid) -> u32 {
        match self.0.binary_search_by_key(&nid, |place| place.nid) {
            Ok(at) => self.0[at].pes,
            Err(_) => self.0.iter().find(|place| place.nid == nid).map_or(0, |place| place.pes),
        }
    }

    /// The node of a rank.
    pub fn nid_of(&self, rank: u32) -> Option<Nid> {
        let mut before = 0u32;
        self.0
            .iter()
            .find(|p| {
                before = before.saturating_add(p.pes);
                rank < before
            })
            .map(|p| p.nid)
    }

    /// Whether the list is a whole one for this shape: its PEs add up, each has its processors, as many as any
    /// on its node, and the deepest as many as the shape says.
    pub fn fits(&self, shape: &Shape) -> bool {
        let whole = |p: &Place| {
            let each = u64::from(p.pes) * u64::from(p.depth());
            p.depth() > 0 && p.processors.len() as u64 == each
        };
        self.0.iter().map(|p| u64::from(p.pes)).sum::<u64>() == u64::from(shape.width)
            && self.0.iter().all(|p| p.pes > 0 && whole(p))
            && self.0.iter().map(Place::depth).max() == Some(shape.depth)
    }

    /// Whether these are places of a shape: each is whole, and none is deeper than the shape says.
    pub fn are_of(&self, shape: &Shape) -> bool {
        self.0.iter().all(|place| {
            let each = u64::from(place.pes) * u64::from(place.depth());
            let whole = place.processors.len() as u64 == each && place.depth() > 0;
            place.pes > 0 && place.depth() <= shape.depth && (place.shares() || whole)
        })
    }

    /// The same, also where PEs share processors: no processor is named without a PE, and a PE has one.
    pub fn fits_or_shares(&self, shape: &Shape) -> bool {
        let whole = |p: &Place| p.shares() || p.pes as usize == p.processors.len();
        let pes = self.0.iter().map(|p| u64::from(p.pes)).sum::<u64>();
        let shares = self.0.iter().any(Place::shares);
        match shares {
            false => self.fits(shape),
            true => shape.depth == 1 && pes == u64::from(shape.width) && self.0.iter().all(whole),
        }
    }
}

/// The part of a placement that one apinit holds.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HostPart {
    /// Its nodes.
    pub nids: Vec<Nid>,
    /// Path of its unix socket.
    pub socket: String,
    /// Tells hosts apart: PEs under one id share memory, and PMI is told so.
    pub host_id: String,
    /// Name of its host by its certificate; empty: it takes no connections of other hosts.
    #[serde(default)]
    pub host: String,
    /// Where it takes connections of other hosts, `ADDRESS:PORT`; empty: nowhere.
    #[serde(default)]
    pub address: String,
}

impl HostPart {
    /// The name of its host, which its id begins with; empty: not known.
    pub fn host_name(&self) -> &str {
        self.host_id.rsplit_once('/').map_or(&self.host_id, |(name, _)| name)
    }

    /// Where the apinit takes connections from this host: without an address if the apinit is on
    /// this host, or takes no connections of other hosts.
    pub fn reached_from(&self, host: &str) -> HostAddress {
        match self.host.is_empty() || self.host == host {
            true => HostAddress { socket: self.socket.clone(), ..HostAddress::default() },
            false => self.at(),
        }
    }

    /// Where the apinit takes connections.
    pub fn at(&self) -> HostAddress {
        HostAddress {
            host: self.host.clone(),
            address: self.address.clone(),
            socket: self.socket.clone(),
        }
    }
}

/// Where an apinit takes connections: on its own host a unix socket, of other hosts an address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct HostAddress {
    /// Name of its host by its certificate; empty: it takes no connections of other hosts.
    pub host: String,
    /// `ADDRESS:PORT`; empty: as above.
    pub address: String,
    /// Path of its unix socket.
    pub socket: String,
}
