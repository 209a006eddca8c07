//! Windows on the line: which ones there are for a shape, and the best of them.
//!
//! All functions here take the line and a function that tells what a node has room for (no PE: it
//! is not usable). So the same search answers for the machine as it is, for the empty machine, and
//! for one on which some applications have ended; and for a machine that has an index it looks at
//! the stretches that the index names, and no further than is good.
//!
//! ```text
//!   free       3   1   2   4 | 0 | 4   4        shape: 5 PEs of depth 1, no -N
//!   run        [-----------]       [-----]      unbroken, each node holds a PE
//!   windows    [-------]                        3 + 1 + 1 of 2
//!                  [-------]                    1 + 2 + 2 of 4
//!                                  [-----]      4 + 1 of 4
//! ```
//!
//! Both ends of a window only move to the right as its first node does, so that a run costs as
//! many steps as it has nodes.

use super::need::Need;
use super::overlap_cost::Over;
use crate::occupancy::index::Ready;
use crate::occupancy::{Occupancy, Room, Slot, Terms};
use std::ops::{ControlFlow, Range};

/// Steps of a search in the index once it has a window: a window is one, a node on the way to the
/// first one of a stretch too, and a stretch, which may be anywhere in memory, [`STRETCH_STEPS`].
/// Up to here the best window is found; on a machine that has more of them, the best of these,
/// which begin with the narrowest gaps.
pub(super) const STEPS_MAX: usize = 512;
/// The same where windows over others are weighed, which costs more.
const STEPS_OVER_MAX: usize = 128;
pub(super) const STRETCH_STEPS: usize = 4;

/// The unbroken runs of usable nodes: as long as can be, NIDs consecutive, each holds a PE.
pub(super) fn runs(
    line: &[Slot],
    room: impl Fn(usize) -> Room,
) -> impl Iterator<Item = Range<usize>> {
    let mut next = 0;
    std::iter::from_fn(move || {
        let usable = |at: usize| room(at).pes > 0;
        let start = (next..line.len()).find(|&at| usable(at))?;
        let follows = |at: &usize| adjacent(line, *at - 1) && usable(*at);
        next = (start + 1..line.len()).take_while(follows).last().map_or(start + 1, |at| at + 1);
        Some(start..next)
    })
}

/// Whether the node after this one has the next NID.
pub(super) fn adjacent(line: &[Slot], at: usize) -> bool {
    line.get(at + 1).is_some_and(|next| next.nid.0 - line[at].nid.0 == 1)
}

/// Calls `found` for each window in a run, from the left, with the processors to give away on its
/// nodes, until it breaks.
pub(super) fn each(
    need: &Need,
    room: impl Fn(usize) -> Room,
    run: Range<usize>,
    found: impl FnMut(Range<usize>, u64) -> ControlFlow<()>,
) -> ControlFlow<()> {
    match need.terms.per_node {
        Some(n) => each_of_one_length(need, n, room, run, found),
        None => each_filled(need, room, run, found),
    }
}

/// Without -N: from each first node as far as it takes.
fn each_filled(
    need: &Need,
    room: impl Fn(usize) -> Room,
    run: Range<usize>,
    mut found: impl FnMut(Range<usize>, u64) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let (mut end, mut processors, mut pes) = (run.start, 0u64, 0u64);
    for start in run.clone() {
        while pes < need.width && end < run.end {
            let more = room(end);
            processors += u64::from(more.processors);
            pes += u64::from(more.pes);
            end += 1;
        }
        if pes < need.width {
            break;
        }
        found(start..end, processors)?;
        let less = room(start);
        processors -= u64::from(less.processors);
        pes -= u64::from(less.pes);
    }
    ControlFlow::Continue(())
}

/// With -N: all windows have the same number of nodes, all of them full but the last.
fn each_of_one_length(
    need: &Need,
    per_node: u32,
    room: impl Fn(usize) -> Room,
    run: Range<usize>,
    mut found: impl FnMut(Range<usize>, u64) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let full_nodes = (need.width - 1) / u64::from(per_node);
    let rest = need.width - full_nodes * u64::from(per_node);
    let Some(full_nodes) = usize::try_from(full_nodes).ok().filter(|n| *n < run.len()) else {
        return ControlFlow::Continue(());
    };
    // Of the nodes that end just before this one: how many in a row are full, and the processors
    // of the last `full_nodes`.
    let (mut full, mut processors) = (0, 0u64);
    for last in run.clone() {
        let here = room(last);
        if full >= full_nodes && u64::from(here.pes) >= rest {
            found(last - full_nodes..last + 1, processors + u64::from(here.processors))?;
        }
        full = if here.pes == per_node { full + 1 } else { 0 };
        processors += u64::from(here.processors);
        if last - run.start >= full_nodes {
            processors -= u64::from(room(last - full_nodes).processors);
        }
    }
    ControlFlow::Continue(())
}

/// Of the windows in these stretches, from the left, the one whose rank is the least; of equals the
/// one with the fewest nodes, then the one that came first. `rank` is told the window and the
/// processors to give away on it; `tie`, asked where ranks are equal, its stretch.
fn least<R: Ord, T: Ord + Copy>(
    need: &Need,
    room: impl Fn(usize) -> Room + Copy,
    stretches: impl Iterator<Item = Range<usize>>,
    steps_max: usize,
    mut rank: impl FnMut(&Range<usize>, u64) -> R,
    mut tie: impl FnMut(&Range<usize>) -> T,
) -> Option<Range<usize>> {
    let mut best: Option<(R, T, Range<usize>)> = None;
    let mut steps = 0;
    for stretch in stretches {
        let mut known = stretch.start;
        let mut tied: Option<T> = None;
        steps += STRETCH_STEPS;
        let all = each(need, room, stretch.clone(), |nodes, processors| {
            steps += nodes.end - known;
            known = nodes.end - 1;
            let rank = rank(&nodes, processors);
            if best.as_ref().is_none_or(|(best, ..)| rank <= *best) {
                let tie = *tied.get_or_insert_with(|| tie(&stretch));
                let order = |tie: T, nodes: &Range<usize>| (tie, nodes.len(), nodes.start);
                let better = |(r, t, n): &(R, T, Range<usize>)| {
                    rank < *r || order(tie, &nodes) < order(*t, n)
                };
                if best.as_ref().is_none_or(better) {
                    best = Some((rank, tie, nodes));
                }
            }
            if steps > steps_max { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        if all.is_break() {
            break;
        }
    }
    best.map(|(_, _, nodes)| nodes)
}

/// What a window leaves over of the processors to give away on its nodes.
fn left_over(need: &Need) -> impl Fn(&Range<usize>, u64) -> u64 {
    let taken = need.width * u64::from(need.terms.depth);
    move |_, processors| processors - taken
}

/// The best fit on free processors, looking at every node.
pub(super) fn best(
    line: &[Slot],
    need: &Need,
    room: impl Fn(usize) -> Room + Copy,
) -> Option<Range<usize>> {
    least(need, room, runs(line, room), usize::MAX, left_over(need), |run| {
        run.clone().map(|at| u64::from(room(at).processors)).sum::<u64>()
    })
}

/// The best window where processors have residents, looking at every node.
pub(super) fn best_over(
    occupancy: &Occupancy,
    need: &Need,
    room: impl Fn(usize) -> Room + Copy,
) -> Option<Range<usize>> {
    let mut over = Over::new(occupancy, need, room);
    let rank = |nodes: &Range<usize>, _| over.rank(nodes);
    least(need, room, runs(occupancy.line(), room), usize::MAX, rank, |_| ())
}

/// The best window that the index leads to: the best fit, or over others.
pub(super) fn best_ready(ready: &Ready, need: &Need) -> Option<Range<usize>> {
    let room = |at: usize| ready.room(at);
    if need.terms.level == 0 {
        let gap = |stretch: &Range<usize>| ready.gap(stretch.start).1;
        return least(need, room, ready.stretches(need.width), STEPS_MAX, left_over(need), gap);
    }
    let mut over = Over::new(ready.occupancy, need, room);
    let rank = |nodes: &Range<usize>, _| over.rank(nodes);
    least(need, room, ready.stretches(need.width), STEPS_OVER_MAX, rank, |_| ())
}

/// The first window from the left.
pub(super) fn first(
    line: &[Slot],
    need: &Need,
    room: impl Fn(usize) -> Room + Copy,
) -> Option<Range<usize>> {
    let mut first = None;
    for run in runs(line, room) {
        let found = each(need, room, run, |nodes, _| {
            first = Some(nodes);
            ControlFlow::Break(())
        });
        if found.is_break() {
            break;
        }
    }
    first
}

/// The last window from the left.
pub(super) fn last(
    line: &[Slot],
    need: &Need,
    room: impl Fn(usize) -> Room + Copy,
) -> Option<Range<usize>> {
    let mut last = None;
    for run in runs(line, room) {
        let _ = each(need, room, run, |nodes, _| {
            last = Some(nodes);
            ControlFlow::Continue(())
        });
    }
    last
}

/// The largest width that there is a window for, the rest of the shape being the same; 0: none.
/// Every smaller width has one too. Where `enough` or more is found, it is not looked for more.
pub(super) fn largest(
    line: &[Slot],
    terms: &Terms,
    enough: u32,
    room: impl Fn(usize) -> Room,
) -> u32 {
    let mut largest = 0u64;
    // PEs of the nodes before this one that a window ending here could have.
    let mut before = 0u64;
    for at in 0..line.len() {
        let pes = room(at).pes;
        if at > 0 && !adjacent(line, at - 1) {
            before = 0;
        }
        if pes > 0 {
            largest = largest.max(before + u64::from(pes));
        }
        if largest >= u64::from(enough) {
            break;
        }
        let goes_on = pes > 0 && terms.per_node.is_none_or(|n| n == pes);
        before = if goes_on { before + u64::from(pes) } else { 0 };
    }
    u32::try_from(largest).unwrap_or(u32::MAX)
}
