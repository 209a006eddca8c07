//! On how many processors an oversubscribed application runs.
//!
//! # Problem
//! With `--oversubscribe` a user has more PEs than the machine has processors, and wants as few of them on each
//! processor as can be.
//!
//! # Approach
//! An application that would fit on the empty machine shares nothing. Another gets as many processors as the
//! largest application of its kind could have where it may go; with `-N` it keeps its number of nodes, and has
//! as many processors on each as that many nodes offer. With `-m` a processor counts with the memory of all PEs
//! that share it.
//!
//! ```text
//!   two nodes of 4     -n 6     fits: 6 processors
//!                      -n 20    8 processors, 2 or 3 PEs on each
//!                      -n 20 -N 10   the same; -n 20 -N 5 would need 4 nodes, and is refused
//! ```
//!
//! The decision looks at the machine as it is configured, not at who is on it: on a busy machine the application
//! waits or takes turns as any other, and never runs more slowly than it has to once it runs.

use super::Wanted;
use super::possible::holds;
use crate::apteam::oversubscribe::Sharing;
use crate::apteam::posting::Explanation;
use crate::apteam::shape::Shape;
use crate::occupancy::Slot;
use crate::variables::raise;
use crate::variables::units::{about, count};
use serde::Serialize;

/// Why PEs can't share processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Unshared {
    /// There would be more on a processor than may be.
    TooMany {
        /// PEs in all.
        pes: u32,
        /// The processors that there are for them.
        processors: u32,
        /// PEs that may share one.
        most: u32,
    },
    /// `-N` needs more nodes than there are, whatever they hold.
    TooFewNodes {
        /// What was asked for.
        shape: Shape,
        /// How many nodes there are for it.
        nodes: u32,
    },
    /// The nodes have less memory than all PEs ask for (`-m`).
    Memory {
        /// PEs in all.
        pes: u32,
        /// Bytes for each.
        bytes: u64,
    },
}

/// The processors that the PEs of an application share on these nodes, at most `most` PEs each. `None`: it fits
/// without sharing, or there is no node for it.
///
/// # Errors
/// Why it can't.
pub fn shared(line: &[Slot], wanted: &Wanted, most: u32) -> Result<Option<Sharing>, Unshared> {
    let shape = Shape { depth: 1, ..wanted.shape };
    let up_to = |shape: Shape, memory_per_pe: Option<u64>, enough: u32| {
        let wanted = Wanted { shape, memory_per_pe, ..*wanted };
        wanted.reach.sets().map(|set| holds(line, &wanted, set, enough)).max().unwrap_or(0)
    };
    let memory_of = |pes: u32| wanted.memory_per_pe.map(|each| each.saturating_mul(pes.into()));
    // (Where memory alone is short, the ordinary refusal says so.)
    if up_to(shape, None, shape.width) >= shape.width {
        return Ok(None);
    }
    if let Some(each) = shape.per_node {
        return shared_on_nodes(
            wanted,
            each.clamp(1, shape.width),
            most,
            &|shape, pes| up_to(shape, memory_of(pes), shape.width) >= shape.width,
            &|shape| up_to(shape, None, u32::MAX),
        );
    }
    let there = up_to(shape, None, u32::MAX);
    let mut processors = there;
    let mut pes = 0;
    // With every round more PEs share a processor.
    while processors > 0 {
        let needed = shape.width.div_ceil(processors);
        if needed > most {
            return Err(Unshared::TooMany { pes: shape.width, processors, most });
        }
        if needed <= pes {
            return Ok(Some(Sharing { processors, per_node: None }));
        }
        pes = needed;
        processors = up_to(shape, memory_of(pes), u32::MAX).min(there);
    }
    no_memory(wanted, there)
}

/// There is less memory than is asked for, unless there is no processor at all.
fn no_memory(wanted: &Wanted, processors: u32) -> Result<Option<Sharing>, Unshared> {
    match wanted.memory_per_pe {
        Some(bytes) if processors > 0 => Err(Unshared::Memory { pes: wanted.shape.width, bytes }),
        _ => Ok(None),
    }
}

/// The same with `-N`: so many PEs on each node. `fits`: whether there is room in a shape, with the memory of so
/// many PEs on each processor; `largest`: the largest width, whatever memory there is.
fn shared_on_nodes(
    wanted: &Wanted,
    each: u32,
    most: u32,
    fits: &dyn Fn(Shape, u32) -> bool,
    largest: &dyn Fn(Shape) -> u32,
) -> Result<Option<Sharing>, Unshared> {
    let shape = wanted.shape;
    let nodes = shape.width.div_ceil(each);
    let rest = shape.width - (nodes - 1) * each;
    let placed = |processors: u32| Shape {
        width: (nodes - 1).saturating_mul(processors).saturating_add(rest.min(processors)),
        per_node: Some(processors),
        depth: 1,
    };
    let has = |processors: u32| largest(placed(processors)) >= placed(processors).width;
    if !has(1) {
        let nodes = largest(placed(1));
        let shape = Shape { per_node: Some(each), ..shape };
        return if nodes == 0 { Ok(None) } else { Err(Unshared::TooFewNodes { shape, nodes }) };
    }
    // So many nodes have so many processors, and not more: bisect.
    let (mut good, mut bad) = (1, each.max(2));
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        *(if has(middle) { &mut good } else { &mut bad }) = middle;
    }
    let sharing = Sharing { processors: placed(good).width, per_node: Some(good) };
    let pes = each.div_ceil(good);
    match () {
        () if pes > most => Err(Unshared::TooMany { pes: each, processors: good, most }),
        () if fits(placed(good), pes) => Ok(Some(sharing)),
        () => no_memory(wanted, good),
    }
}

impl Unshared {
    /// In words.
    pub fn explain(&self) -> Explanation {
        let (obstacle, cure) = match *self {
            Unshared::TooMany { pes, processors, most } => (
                format!(
                    "{pes} PEs on {} exceed the maximum of {most} PEs on a processor",
                    count(processors, "processor")
                ),
                format!(
                    "ask for {} or fewer there, or {}",
                    u64::from(processors) * u64::from(most),
                    raise("oversubscribe_max", most)
                ),
            ),
            Unshared::Memory { pes, bytes } => (
                format!(
                    "the machine lacks {} of memory for each of {pes} PEs, even if they share \
                     processors",
                    about(bytes)
                ),
                "ask for fewer PEs, or give a smaller -m".to_owned(),
            ),
            Unshared::TooFewNodes { shape, nodes } => {
                let each = shape.per_node.unwrap_or(1).max(1);
                (
                    format!(
                        "{} PEs, {each} on each node, need {} nodes, and there are {nodes} for them",
                        shape.width,
                        shape.width.div_ceil(each)
                    ),
                    "give a larger -N, or leave it out".to_owned(),
                )
            }
        };
        Explanation { obstacle, holder: String::new(), cure }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Nid, Reach, RegionId};

    fn nodes(processors: &[u32], memory: u64) -> Vec<Slot> {
        let slot = |(nid, count): (u32, &u32)| Slot {
            nid: Nid(nid),
            processors: *count,
            free: *count,
            open: true,
            application: true,
            region: RegionId::ONLY,
            memory,
            limit: if memory == 0 { u64::MAX } else { memory },
            promised: 0,
            share: 0,
        };
        (0..).zip(processors).map(slot).collect()
    }

    fn wanted(width: u32, per_node: Option<u32>, memory_per_pe: Option<u64>) -> Wanted {
        let shape = Shape { width, depth: 1, per_node };
        Wanted { shape, memory_per_pe, exclusive: false, flexible: false, reach: Reach::ALL }
    }

    #[test]
    fn an_application_shares_only_if_it_has_to() {
        let line = nodes(&[4, 4], 0);
        let of = |width, per_node| shared(&line, &wanted(width, per_node, None), 16);
        let on = |processors, per_node| Ok(Some(Sharing { processors, per_node }));
        assert_eq!(of(6, None), Ok(None));
        assert_eq!(of(8, None), Ok(None));
        assert_eq!(of(9, None), on(8, None));
        assert_eq!(of(128, None), on(8, None));
        assert_eq!(of(129, None), Err(Unshared::TooMany { pes: 129, processors: 8, most: 16 }));
        // As many nodes as -N says.
        assert_eq!(of(20, Some(10)), on(8, Some(4)));
        assert_eq!(of(5, Some(5)), on(4, Some(4)));
        assert_eq!(of(9, Some(8)), on(5, Some(4)));
        let shape = Shape { width: 20, depth: 1, per_node: Some(5) };
        assert_eq!(of(20, Some(5)), Err(Unshared::TooFewNodes { shape, nodes: 2 }));
        assert_eq!(
            of(100, Some(100)),
            Err(Unshared::TooMany { pes: 100, processors: 4, most: 16 })
        );
        assert_eq!(shared(&nodes(&[], 0), &wanted(1, None, None), 16), Ok(None));
        // Nodes that differ: as many as all of them have.
        let line = nodes(&[2, 4, 3], 0);
        let with = shared(&line, &wanted(30, Some(10), None), 16);
        assert_eq!(with, on(6, Some(2)));
    }

    #[test]
    fn memory_is_that_of_all_pes_on_a_processor() {
        let line = nodes(&[4], 100);
        let of = |width, memory| shared(&line, &wanted(width, None, Some(memory)), 16);
        assert_eq!(of(8, 10), Ok(Some(Sharing { processors: 4, per_node: None })));
        // A processor counts with the most PEs that any has: four with two PEs each would need 128.
        assert_eq!(of(6, 16), Ok(Some(Sharing { processors: 3, per_node: None })));
        assert_eq!(of(11, 10), Err(Unshared::Memory { pes: 11, bytes: 10 }));
        let on_each = shared(&line, &wanted(11, Some(11), Some(10)), 16);
        assert_eq!(on_each, Err(Unshared::Memory { pes: 11, bytes: 10 }));
        let on_each = shared(&line, &wanted(8, Some(8), Some(10)), 16);
        assert_eq!(on_each, Ok(Some(Sharing { processors: 4, per_node: Some(4) })));
    }

    #[test]
    fn refusals_name_the_cure() {
        let said = |unshared: Unshared| unshared.explain().to_string();
        assert_eq!(
            said(Unshared::TooMany { pes: 99, processors: 2, most: 32 }),
            "99 PEs on 2 processors exceed the maximum of 32 PEs on a processor; ask for 64 or \
             fewer there, or have an administrator raise oversubscribe_max (32) with psmgr set"
        );
        let shape = Shape { width: 20, depth: 1, per_node: Some(5) };
        assert_eq!(
            said(Unshared::TooFewNodes { shape, nodes: 2 }),
            "20 PEs, 5 on each node, need 4 nodes, and there are 2 for them; give a larger -N, or leave it out"
        );
    }
}
