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
//!
//! # Sum of squares
//!
//! A line with many gaps of one size is bad at everything that is wider. So the rule, which is known from
//! the packing of bins, keeps sizes apart: the number of gaps of each size is squared, and that window is
//! taken after which the sum of the squares is the least.
//!
//! ```text
//!   NID   0  1  2  3  4  5  6  7  8  9  10 11 12 13
//!         .  A  .  A  .  .  .  A  .  .  .  .  .  .        gaps of 1, 1, 3 and 6; 2 PEs
//!
//!   NIDs 4-5      1, 1, 1, 6      3² + 1²      = 10
//!   NIDs 8-9      1, 1, 3, 4      2² + 1² + 1² =  6       taken
//!   NIDs 9-10     1, 1, 1, 3, 3   3² + 2²      = 13
//! ```
//!
//! A gap is an unbroken run of usable nodes; its size, the processors to give away on them. A window
//! cuts one in two: what is before it, and what is behind it. The window's last node belongs to what is behind it
//! with what is left over there, while it has room for another PE; what is left over on the others
//! counts nowhere. Only three numbers of gaps change by that, so that a window costs a few looks at a
//! map of sizes, which the index keeps. Equal windows: the better fit.

use super::window::{self, Need, STEPS_MAX, STRETCH_STEPS};
use crate::occupancy::index::Ready;
use crate::occupancy::{End, Room, Rules, Slot};
use crate::variables::Allocator;
use std::collections::BTreeMap;
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
        None if rules.allocator == Allocator::SumOfSquares => best_square(line, need, room),
        None => window::best(line, need, room),
    }
}

/// The same among those that the index leads to.
pub(super) fn best_ready(ready: &Ready, need: &Need, rules: Rules) -> Option<Range<usize>> {
    if need.terms.level > 0 {
        return window::best_ready(ready, need);
    }
    match (rules.end_for(need.width), ready.gaps()) {
        (Some(end), _) => nearest(ready, need, end),
        (None, Some(gaps)) if rules.allocator == Allocator::SumOfSquares => {
            let squares = Squares::new(need, gaps, |at| ready.gap(at), |nodes| ready.sum(nodes));
            window::best_by(ready, need, squares.rank())
        }
        (None, _) => window::best_ready(ready, need),
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

/// The window after which the squares are least, looking at every node.
fn best_square(
    line: &[Slot],
    need: &Need,
    room: impl Fn(usize) -> Room + Copy,
) -> Option<Range<usize>> {
    // Sums from the left end, before each node.
    let mut sums = Vec::with_capacity(line.len() + 1);
    sums.push((0, 0));
    for at in 0..line.len() {
        let (room, (processors, pes)) = (room(at), sums[at]);
        sums.push((processors + u64::from(room.processors), pes + u64::from(room.pes)));
    }
    let sum = |nodes: Range<usize>| {
        let (from, to) = (sums[nodes.start], sums[nodes.end]);
        (to.0 - from.0, to.1 - from.1)
    };
    let runs: Vec<Range<usize>> = window::runs(line, room).collect();
    let mut gaps = BTreeMap::new();
    runs.iter().for_each(|run| *gaps.entry(sum(run.clone()).0).or_default() += 1);
    let gap = |at: usize| {
        let run = runs[runs.partition_point(|run| run.end <= at)].clone();
        (run.clone(), sum(run).0)
    };
    let squares = Squares::new(need, &gaps, gap, sum);
    window::best_of(line, need, room, squares.rank())
}

/// By how much the sum of squares grows with a window.
struct Squares<'a, G, S> {
    need: &'a Need,
    /// How many gaps there are of each size.
    gaps: &'a BTreeMap<u64, u64>,
    /// The gap that a node is in, and its size.
    gap: G,
    /// Processors to give away on some nodes, and PEs for which there is room.
    sum: S,
    /// The gap of the window before.
    run: Range<usize>,
    size: u64,
    /// Processors of it before this node.
    before: (usize, u64),
    /// The window before, and its PEs.
    known: (Range<usize>, u64),
}

impl<'a, G, S> Squares<'a, G, S>
where
    G: Fn(usize) -> (Range<usize>, u64),
    S: Fn(Range<usize>) -> (u64, u64),
{
    fn new(need: &'a Need, gaps: &'a BTreeMap<u64, u64>, gap: G, sum: S) -> Squares<'a, G, S> {
        let none = 0..0;
        let known = (none.clone(), 0);
        Squares { need, gaps, gap, sum, run: none, size: 0, before: (0, 0), known }
    }

    /// What makes one window better than another: the least of it. It is asked for the windows of a stretch
    /// from the left, each with its processors to give away.
    fn rank(mut self) -> impl FnMut(&Range<usize>, u64) -> (i64, u64) {
        let taken = self.need.width * u64::from(self.need.terms.depth);
        move |nodes, processors| (self.growth(nodes, processors), processors - taken)
    }

    fn growth(&mut self, nodes: &Range<usize>, processors: u64) -> i64 {
        if !self.run.contains(&nodes.start) || self.before.0 > nodes.start {
            (self.run, self.size) = (self.gap)(nodes.start);
            self.before = (self.run.start, 0);
        }
        let (from, before) = self.before;
        let before = before + (self.sum)(from..nodes.start).0;
        self.before = (nodes.start, before);
        let behind = self.size - before - processors + self.left_on_last(nodes);
        let count = |size: u64| self.gaps.get(&size).map_or(0, |count| *count as i64);
        // What was n² is (n + more)².
        let grows = |size: u64, more: i64| more * (2 * count(size) + more);
        let parts = match (before, behind) {
            (0, 0) => 0,
            (0, one) | (one, 0) => grows(one, 1),
            (one, other) if one == other => grows(one, 2),
            (one, other) => grows(one, 1) + grows(other, 1),
        };
        grows(self.size, -1) + parts
    }

    /// Processors of the window's last node that another PE could have.
    fn left_on_last(&mut self, nodes: &Range<usize>) -> u64 {
        let (known, pes) = &mut self.known;
        *pes = match nodes.start < known.end && known.start <= nodes.start {
            true => {
                let more = (self.sum)(known.end..nodes.end.max(known.end)).1;
                *pes + more - (self.sum)(known.start..nodes.start).1
            }
            false => (self.sum)(nodes.clone()).1,
        };
        *known = nodes.clone();
        let spare = *pes - self.need.width;
        if spare == 0 || self.need.terms.exclusive {
            return 0;
        }
        let (processors, pes) = (self.sum)(nodes.end - 1..nodes.end);
        processors - (pes - spare) * u64::from(self.need.terms.depth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apteam::posting::Shape;
    use crate::apteam::{Apid, place::Place, place::PlacementList};
    use crate::machine::{Machine, Nid, Node, Reach};
    use crate::occupancy::{Claim, Occupancy};
    use crate::placement::{Wanted, exhaustive, try_place};
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

    #[test]
    fn with_very_many_gaps_squares_are_bounded_and_a_window_is_found() {
        let many = [vec![1; STEPS_MAX], vec![2; STEPS_MAX], vec![7; STEPS_MAX]].concat();
        let mut occupancy = gaps(&many, Allocator::SumOfSquares);
        for width in [1, 2, 6, 7] {
            assert!(found(&mut occupancy, width).is_some());
        }
        assert_eq!(found(&mut occupancy, 8), None);
    }
}
