//! Which window on free processors is taken, by `application.allocator`, where it is not the best fit.
//!
//! # By place
//!
//! `first-fit` takes the window that begins at the lowest NID, and `wide-from-one-end` for wide
//! applications the one that begins at the highest:
//!
//! ```text
//!   NID   0  1  2  3  4  5  6  7
//!         .  A  .  .  .  A  .  .       2 PEs: NIDs 2-3 from the low end, 6-7 from the high one
//! ```
//!
//! The index is asked for its stretches from that end. The first one with room enough has the window. On
//! a machine of a million nodes there may be very many before it with too little: after
//! [`STRETCHES_MAX`] of them those are looked at that have just room enough, as many, and of these the
//! one nearest to the end is taken. If there are no more than that it is the right one too.

use super::need::Need;
use super::window::{self, STEPS_MAX, STRETCH_STEPS};
use crate::occupancy::index::Ready;
use crate::occupancy::{Room, Rules, Slot};
use crate::variables::End;
use std::ops::Range;

/// Stretches that are looked at by place, and then as many by room.
const STRETCHES_MAX: usize = STEPS_MAX / STRETCH_STEPS;

/// The window that is taken on free processors, looking at every node.
pub(super) fn best(
    line: &[Slot],
    need: &Need,
    room: impl Fn(usize) -> Room + Copy,
    rules: Rules,
) -> Option<Range<usize>> {
    match rules.end_for(need.width) {
        Some(End::Low) => window::first(line, need, room),
        Some(End::High) => window::last(line, need, room),
        None => window::best(line, need, room),
    }
}

/// The same among those that the index leads to.
pub(super) fn best_ready(ready: &Ready, need: &Need, rules: Rules) -> Option<Range<usize>> {
    if need.terms.level > 0 {
        return window::best_ready(ready, need);
    }
    match rules.end_for(need.width) {
        Some(end) => nearest(ready, need, end),
        None => window::best_ready(ready, need),
    }
}

/// The window nearest to an end of the line.
fn nearest(ready: &Ready, need: &Need, end: End) -> Option<Range<usize>> {
    // (Mostly there is none, when many wait.)
    ready.stretches(need.width).next()?;
    let enough = |(nodes, pes): (Range<usize>, u64)| (pes >= need.width).then_some(nodes);
    let by_place = match end {
        End::Low => ready.by_place().take(STRETCHES_MAX).find_map(enough),
        End::High => ready.by_place().rev().take(STRETCHES_MAX).find_map(enough),
    };
    let stretch = by_place.or_else(|| {
        let enough = ready.stretches(need.width).take(STRETCHES_MAX);
        match end {
            End::Low => enough.min_by_key(|nodes| nodes.start),
            End::High => enough.max_by_key(|nodes| nodes.start),
        }
    })?;
    // In a stretch all nodes are full but the last, so that a window begins wherever there are PEs enough
    // from there on.
    let start = match end {
        End::Low => stretch.start,
        End::High => enough_with(ready, need, stretch.clone().rev())?,
    };
    let last = enough_with(ready, need, start..stretch.end)?;
    Some(start..last + 1)
}

/// The first of these nodes with which there is room for all PEs.
fn enough_with(
    ready: &Ready,
    need: &Need,
    mut nodes: impl Iterator<Item = usize>,
) -> Option<usize> {
    let mut pes = 0;
    nodes.find(|at| {
        pes += u64::from(ready.room(*at).pes);
        pes >= need.width
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apteam::shape::Shape;
    use crate::apteam::{Apid, place::Place, place::PlacementList};
    use crate::machine::{Machine, Nid, Node, Reach};
    use crate::occupancy::{Claim, Occupancy};
    use crate::placement::{Wanted, exhaustive, try_place};
    use crate::variables::Allocator;
    use std::collections::BTreeSet;

    /// A line with gaps of so many nodes, from the left, and a node in use behind each.
    fn gaps(gaps: &[u32], allocator: Allocator) -> Occupancy {
        let ends = gaps.iter().scan(0, |end, gap| {
            *end += gap + 1;
            Some(*end - 1)
        });
        let ends: Vec<Nid> = ends.map(Nid).collect();
        let last = ends.last().expect("a gap");
        let machine: Machine = (0..=last.0).map(|nid| Node::plain(Nid(nid), 1)).collect();
        let mut occupancy = Occupancy::new(&machine, Rules { allocator, ..Rules::PLAIN });
        (0..=last.0).for_each(|nid| occupancy.set_open(Nid(nid), true));
        let place = |nid: &Nid| Place { nid: *nid, processors: vec![0], pes: 1 };
        let list = PlacementList(ends.iter().map(place).collect());
        occupancy.take(Apid(1), &list, Claim::default()).expect("free ones");
        occupancy
    }

    fn wanted(width: u32) -> Wanted {
        let shape = Shape { width, depth: 1, per_node: None };
        Wanted { shape, memory_per_pe: None, exclusive: false, flexible: false, reach: Reach::ALL }
    }

    /// The first node that it gets by the index, and by a look at every node.
    fn found(occupancy: &mut Occupancy, width: u32) -> Option<(u32, usize)> {
        let none = BTreeSet::new();
        let all = exhaustive(occupancy, &wanted(width), &none).map(|(_, nodes)| nodes.start);
        let list = try_place(occupancy, &wanted(width), &none);
        assert_eq!(list.is_some(), all.is_some(), "whether there is a window is always found out");
        Some((list?.nids().next()?.0, all?))
    }

    #[test]
    fn behind_very_many_gaps_that_are_too_small_the_window_is_still_found() {
        let few = STRETCHES_MAX - 1;
        for allocator in [Allocator::FirstFit, Allocator::WideFromOneEnd] {
            // So few windows that all are known: the right one, wherever it is.
            let sizes = [vec![1; 5 * few], vec![3; few], vec![1; 5 * few]].concat();
            let mut occupancy = gaps(&sizes, allocator);
            for width in [2, 3] {
                let (by_index, all) = found(&mut occupancy, width).expect("room");
                assert_eq!(by_index as usize, all);
            }
            assert_eq!(found(&mut occupancy, 4), None);
            // More of them: one of them.
            let sizes = [vec![1; 5 * few], vec![4; 2 * few], vec![2; 2 * few]].concat();
            let mut occupancy = gaps(&sizes, allocator);
            let (by_index, all) = found(&mut occupancy, 2).expect("room");
            assert!(by_index as usize >= all);
        }
    }
}
