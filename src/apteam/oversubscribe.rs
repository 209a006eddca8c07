//! PEs that share processors (`--oversubscribe`).
//!
//! # Problem
//! An application with more PEs than the machine has processors is refused, and that is right for a program
//! that computes. A user who tests a program with 64 ranks on a laptop wants it to run all the same, as
//! `mpiexec` does.
//!
//! # Approach
//! Placement, time slices and migration know whole processors only, and go on to. An oversubscribed
//! application is placed as one of fewer PEs of one processor each ([`Sharing::shape`]); its real PEs are then
//! spread over what it was given ([`Sharing::spread`]). psched decides once, when the application is posted,
//! whether it has to share at all.
//!
//! ```
//! use psched_pure::apteam::oversubscribe::Sharing;
//! use psched_pure::apteam::{place::*, shape::Shape};
//! use psched_pure::machine::Nid;
//! // aprun -n 5 --oversubscribe on two nodes of two processors:
//! let posted = Shape { width: 5, depth: 1, per_node: None };
//! let sharing = Sharing { processors: 4, per_node: None };
//! let on = |nid, pes| Place { nid: Nid(nid), processors: vec![0, 1], pes };
//! let spread = sharing.spread(&posted, &PlacementList([on(0, 2), on(1, 2)].into()));
//! assert_eq!(spread, PlacementList([on(0, 3), on(1, 2)].into()));
//! // PEs of a node take its processors in turn.
//! let own: Vec<Vec<u32>> = spread.pes().map(|pe| pe.processors).collect();
//! assert_eq!(own, [[0], [1], [0], [0], [1]]);
//! ```

use super::place::{Place, PlacementList};
use super::shape::Shape;
use serde::{Deserialize, Serialize};

/// Whether the PEs of an application share processors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Oversubscribe {
    /// Each PE has its own processors.
    #[default]
    No,
    /// `--oversubscribe`: PEs share processors if there are too few. Also of an application that fits.
    Allowed,
    /// There are too few: PEs share these.
    Shares(Sharing),
}

impl Oversubscribe {
    /// What a placement was made of, whatever was asked for.
    pub fn of_places(places: &PlacementList, posted: &Shape) -> Oversubscribe {
        if !places.0.iter().any(Place::shares) {
            return Oversubscribe::No;
        }
        let processors = places.0.iter().map(Place::placed);
        let per_node = posted.per_node.and_then(|_| processors.clone().max());
        Oversubscribe::Shares(Sharing { processors: processors.sum(), per_node })
    }
}

/// The processors that an oversubscribed application needs: one for each PE that placement sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sharing {
    /// Processors in all, at least 1 and fewer than PEs.
    pub processors: u32,
    /// Processors on each node but the last, if the posting says how many PEs are on each (`-N`).
    pub per_node: Option<u32>,
}

impl Sharing {
    /// The shape that is placed: one PE for each processor.
    pub fn shape(&self) -> Shape {
        Shape { width: self.processors.max(1), depth: 1, per_node: self.per_node }
    }

    /// The most PEs on a processor, of an application that was posted in this shape.
    pub fn most(&self, posted: &Shape) -> u32 {
        match (posted.per_node, self.per_node) {
            (Some(pes), Some(processors)) => pes.min(posted.width).div_ceil(processors.max(1)),
            _ => posted.width.div_ceil(self.processors.max(1)),
        }
    }

    /// The PEs of a posting on the processors that it was given: as many on each node as `-N` says, else as
    /// even as can be, in the order of the nodes.
    pub fn spread(&self, posted: &Shape, given: &PlacementList) -> PlacementList {
        let width = u64::from(posted.width);
        let nodes = given.0.len();
        let with = |place: &Place, pes: u64| Place {
            pes: u32::try_from(pes).unwrap_or(u32::MAX).max(1),
            ..place.clone()
        };
        if let (Some(each), Some(processors)) = (posted.per_node, self.per_node) {
            let rest = width.saturating_sub(u64::from(each) * (nodes as u64).saturating_sub(1));
            // Of a flexible application any node may be the one with fewer PEs.
            let fewer = given.0.iter().position(|p| p.processors.len() < processors as usize);
            let fewer = fewer.unwrap_or(nodes.saturating_sub(1));
            let pes = |at: usize| if at == fewer { rest } else { each.into() };
            let places = given.0.iter().enumerate().map(|(at, place)| with(place, pes(at)));
            return PlacementList(places.collect());
        }
        let all: u64 = given.0.iter().map(|place| place.processors.len() as u64).sum();
        let (mut before, mut placed) = (0, 0);
        let places = given.0.iter().map(|place| {
            before += place.processors.len() as u64;
            let until = (width * before).div_ceil(all.max(1));
            let pes = until - placed;
            placed = until;
            with(place, pes)
        });
        PlacementList(places.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Nid;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn given_on(processors: &[u32]) -> PlacementList {
        let on = |(nid, count): (u32, &u32)| Place {
            nid: Nid(nid),
            processors: (0..*count).collect(),
            pes: *count,
        };
        PlacementList((0..).zip(processors).map(on).collect())
    }

    fn pes(list: &PlacementList) -> Vec<u32> {
        list.0.iter().map(|place| place.pes).collect()
    }

    #[test]
    fn as_many_on_each_node_as_was_asked_for() {
        let posted = Shape { width: 10, depth: 1, per_node: Some(4) };
        let sharing = Sharing { processors: 6, per_node: Some(2) };
        assert_eq!(pes(&sharing.spread(&posted, &given_on(&[2, 2, 2]))), [4, 4, 2]);
        assert_eq!(sharing.most(&posted), 2);
        // The last node has fewer processors: with --flexible it may be any.
        let posted = Shape { width: 9, depth: 1, per_node: Some(4) };
        let sharing = Sharing { processors: 5, per_node: Some(2) };
        assert_eq!(pes(&sharing.spread(&posted, &given_on(&[2, 1, 2]))), [4, 1, 4]);
    }

    proptest! {
        /// Whatever it was given: all PEs are there, each processor has at least one and none has more than
        /// `most`, and the list is whole.
        #[test]
        fn pes_are_spread_evenly(nodes in vec(1..9u32, 1..8), more in 1..200u32) {
            let processors: u32 = nodes.iter().sum();
            let posted = Shape { width: processors + more, depth: 1, per_node: None };
            let sharing = Sharing { processors, per_node: None };
            let list = sharing.spread(&posted, &given_on(&nodes));
            prop_assert_eq!(list.0.iter().map(|p| p.pes).sum::<u32>(), posted.width);
            prop_assert!(list.fits_or_shares(&posted));
            let mut on: std::collections::BTreeMap<(Nid, u32), u32> = Default::default();
            for pe in list.pes() {
                prop_assert_eq!(pe.processors.len(), 1);
                *on.entry((pe.nid, pe.processors[0])).or_default() += 1;
            }
            prop_assert_eq!(on.len(), processors as usize);
            let most = sharing.most(&posted);
            prop_assert!(on.values().all(|pes| (1..=most).contains(pes)), "{on:?} of {most}");
        }
    }
}
