//! Where the PEs of `aprun --inside` go: on the processors of the process that asks for it.
//!
//! # Problem
//! A script that runs as a PE starts parallel programs of its own, as it did under mpiexec. Posted as any other,
//! such a program waits for processors that its parent may hold, while the parent waits for it.
//!
//! # Approach
//! With `--inside` nothing is posted. aprun starts the PEs itself, through an apshepherd of its own, so that they
//! are what any child of a PE is: in the control group of the application on this node, on its processors, in
//! its turn, within its limits, on its account, and ended with it. They have no right that the calling process
//! has not, and so nobody has to be asked whether it may start them.
//!
//! Their processors are those that the kernel lets the calling process run on: its PE's own, or all that the
//! application has on the node where its PEs are not bound (`-cc none`, or PEs that share processors). Where a
//! private instance has more processors than the machine, its PE may have more of them than real ones: then there
//! is room for as many PEs, which share these.
//!
//! ```
//! use psched_pure::aprun::decide::inside::place;
//! use psched_pure::apteam::shape::Shape;
//! use psched_pure::machine::Nid;
//! // aprun -d 4 ./script, in which: aprun --inside -n 2
//! let shape = Shape { width: 2, depth: 1, per_node: None };
//! let place = place(&shape, false, Nid(3), &[4, 5, 6, 7], 4).unwrap();
//! assert_eq!((place.pes, place.processors), (2, vec![4, 5]));
//! ```

use crate::apteam::binding::NUMBER_MAX;
use crate::apteam::place::Place;
use crate::apteam::shape::Shape;
use crate::machine::Nid;
use crate::variables::Variables;
use crate::variables::units::count;

/// The PEs on the processors of the caller, `cpus`, which count as `depth` if that is more.
///
/// # Errors
/// There are too few; in words.
pub fn place(
    shape: &Shape,
    shared: bool,
    nid: Nid,
    cpus: &[u32],
    depth: u32,
) -> Result<Place, String> {
    let there = (cpus.len() as u64).max(depth.min(NUMBER_MAX).into());
    let needed = shape.processors();
    let (pes, depth) = (shape.width, shape.depth);
    let most = Variables::default().oversubscribe_max();
    let has = count(there, "processor");
    if needed <= there {
        let processors = cpus.iter().copied().cycle().take(needed as usize).collect();
        return Ok(Place { nid, processors, pes });
    }
    if !shared {
        let fewer = match there / u64::from(depth.max(1)) {
            0 => format!("-n 1 -d {there}"),
            most => format!("-n {most}"),
        };
        return Err(format!(
            "--inside: {pes} PEs of depth {depth} need {needed} processors, but this process may run on \
             {has}: ask for {fewer} or less, start the application with a larger -d or with -cc none, or \
             let PEs share processors with --oversubscribe"
        ));
    }
    if depth > 1 || u64::from(pes) > there.saturating_mul(most) {
        return Err(format!(
            "--inside: {pes} PEs do not fit on {has} with at most {most} PEs on each: ask for -n {} or less",
            there.saturating_mul(most)
        ));
    }
    Ok(Place { nid, processors: cpus.to_vec(), pes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pes_have_the_callers_processors_and_no_others() {
        let of = |width, depth, shared| {
            let shape = Shape { width, depth, per_node: None };
            place(&shape, shared, Nid(2), &[1, 3, 5], 2)
        };
        let own = |pes, processors: &[u32]| {
            Ok(Place { nid: Nid(2), processors: processors.to_vec(), pes })
        };
        assert_eq!(of(2, 1, false), own(2, &[1, 3]));
        assert_eq!(of(1, 3, false), own(1, &[1, 3, 5]));
        assert_eq!(of(3, 1, true), own(3, &[1, 3, 5]));
        assert_eq!(of(7, 1, true), own(7, &[1, 3, 5]));
        // Processors of a private instance that has more than there are.
        let shape = Shape { width: 2, depth: 2, per_node: None };
        let place = place(&shape, false, Nid(2), &[1, 3, 5], 4).expect("room");
        assert_eq!(place.own(1).collect::<Vec<_>>(), [5, 1]);
        assert_eq!(
            of(2, 2, false).expect_err("too many"),
            "--inside: 2 PEs of depth 2 need 4 processors, but this process may run on 3 processors: ask \
             for -n 1 or less, start the application with a larger -d or with -cc none, or let PEs share \
             processors with --oversubscribe"
        );
        let shape = Shape { width: 1, depth: 4, per_node: None };
        let deep = super::place(&shape, false, Nid(2), &[1, 3, 5], 2).expect_err("too deep");
        assert!(deep.contains(": ask for -n 1 -d 3 or less, "), "{deep}");
        assert_eq!(
            of(193, 1, true).expect_err("too many"),
            "--inside: 193 PEs do not fit on 3 processors with at most 64 PEs on each: ask for -n 192 or less"
        );
    }
}
