//! Windows on the line: which ones there are for a shape, and the best of them.
//!
//! All functions here take the line and a function that tells how many processors a node could
//! give away (0: it is not usable). So the same search answers for the machine as it is, for the
//! empty machine, and for one on which some applications have ended.
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

use crate::apteam::posting::Shape;
use crate::occupancy::Slot;
use std::ops::Range;

/// What a shape needs of nodes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Need {
    /// PEs.
    pub width: u64,
    /// Processors for each.
    pub depth: u32,
    /// PEs that each node but the last must have.
    pub per_node: Option<u32>,
}

impl Need {
    /// A shape's. Zeros, which no posting should have got in with, count as ones.
    pub fn of(shape: &Shape) -> Need {
        Need {
            width: u64::from(shape.width.max(1)),
            depth: shape.depth.max(1),
            per_node: shape.per_node.map(|n| n.max(1)),
        }
    }

    /// PEs that a node with so many processors to give away can have.
    pub fn capacity(&self, available: u32) -> u32 {
        (available / self.depth).min(self.per_node.unwrap_or(u32::MAX))
    }
}

/// A window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Window {
    /// Its nodes, by their place on the line.
    pub nodes: Range<usize>,
    /// Processors left over on them.
    left_over: u64,
    /// Processors to give away in the run around it.
    gap: u64,
}

/// The unbroken runs of usable nodes: as long as can be, NIDs consecutive, each holds a PE.
pub(super) fn runs(
    line: &[Slot],
    need: &Need,
    available: impl Fn(usize, &Slot) -> u32,
) -> impl Iterator<Item = Range<usize>> {
    let mut next = 0;
    std::iter::from_fn(move || {
        let usable = |at: usize| need.capacity(available(at, &line[at])) > 0;
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
/// nodes.
pub(super) fn each(
    line: &[Slot],
    need: &Need,
    available: impl Fn(usize, &Slot) -> u32,
    run: Range<usize>,
    found: impl FnMut(Range<usize>, u64),
) {
    match need.per_node {
        Some(n) => each_of_one_length(line, need, n, available, run, found),
        None => each_filled(line, need, available, run, found),
    }
}

/// Without -N: from each first node as far as it takes.
fn each_filled(
    line: &[Slot],
    need: &Need,
    available: impl Fn(usize, &Slot) -> u32,
    run: Range<usize>,
    mut found: impl FnMut(Range<usize>, u64),
) {
    let (mut end, mut processors, mut pes) = (run.start, 0u64, 0u64);
    for start in run.clone() {
        while pes < need.width && end < run.end {
            let more = available(end, &line[end]);
            processors += u64::from(more);
            pes += u64::from(need.capacity(more));
            end += 1;
        }
        if pes < need.width {
            return;
        }
        found(start..end, processors);
        let less = available(start, &line[start]);
        processors -= u64::from(less);
        pes -= u64::from(need.capacity(less));
    }
}

/// With -N: all windows have the same number of nodes, all of them full but the last.
fn each_of_one_length(
    line: &[Slot],
    need: &Need,
    per_node: u32,
    available: impl Fn(usize, &Slot) -> u32,
    run: Range<usize>,
    mut found: impl FnMut(Range<usize>, u64),
) {
    let full_nodes = (need.width - 1) / u64::from(per_node);
    let rest = need.width - full_nodes * u64::from(per_node);
    let Some(full_nodes) = usize::try_from(full_nodes).ok().filter(|n| *n < run.len()) else {
        return;
    };
    // Of the nodes that end just before this one: how many in a row are full, and the processors
    // of the last `full_nodes`.
    let (mut full, mut processors) = (0, 0u64);
    for last in run.clone() {
        let here = available(last, &line[last]);
        let capacity = need.capacity(here);
        if full >= full_nodes && u64::from(capacity) >= rest {
            found(last - full_nodes..last + 1, processors + u64::from(here));
        }
        full = if capacity == per_node { full + 1 } else { 0 };
        processors += u64::from(here);
        if last - run.start >= full_nodes {
            let gone = last - full_nodes;
            processors -= u64::from(available(gone, &line[gone]));
        }
    }
}

/// The best window, by the rules of this room; `None`: there is none.
pub(super) fn best(
    line: &[Slot],
    need: &Need,
    available: impl Fn(usize, &Slot) -> u32 + Copy,
) -> Option<Window> {
    let taken = need.width * u64::from(need.depth);
    let mut best: Option<Window> = None;
    for run in runs(line, need, available) {
        let gap = run.clone().map(|at| u64::from(available(at, &line[at]))).sum();
        each(line, need, available, run, |nodes, processors| {
            let window = Window { nodes, left_over: processors - taken, gap };
            let rank = |w: &Window| (w.left_over, w.gap, w.nodes.len());
            // They come from the left, so the lower NID stays on a tie.
            if best.as_ref().is_none_or(|best| rank(&window) < rank(best)) {
                best = Some(window);
            }
        });
    }
    best
}

/// The first window from the left.
pub(super) fn first(
    line: &[Slot],
    need: &Need,
    available: impl Fn(usize, &Slot) -> u32 + Copy,
) -> Option<Range<usize>> {
    let mut first = None;
    for run in runs(line, need, available) {
        each(line, need, available, run, |nodes, _| {
            first.get_or_insert(nodes);
        });
        if first.is_some() {
            break;
        }
    }
    first
}

/// The largest width that there is a window for, the rest of the shape being the same; 0: none.
/// Every smaller width has one too.
pub(super) fn largest(
    line: &[Slot],
    need: &Need,
    available: impl Fn(usize, &Slot) -> u32 + Copy,
) -> u32 {
    let mut largest = 0u64;
    for run in runs(line, need, available) {
        // PEs of the nodes before this one that a window ending here could have.
        let mut before = 0u64;
        for at in run {
            let capacity = need.capacity(available(at, &line[at]));
            largest = largest.max(before + u64::from(capacity));
            let goes_on = need.per_node.is_none_or(|n| n == capacity);
            before = if goes_on { before + u64::from(capacity) } else { 0 };
        }
    }
    u32::try_from(largest).unwrap_or(u32::MAX)
}
