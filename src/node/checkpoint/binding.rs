//! The processors that threads are bound to.
//!
//! CRIU restores threads as its own: bound to whatever it may use. A gang whose PEs wander is slow, and after
//! a restart its processors are others than before. So it is kept with the images what each thread is bound
//! to, and each is bound anew before it runs: the n-th of the processors that its node's part was bound to
//! becomes the n-th of those that it has now. Who is bound to all there are, is not bound.
//!
//! ```text
//!   had   PE 0  2     PE 1  3     a thread of PE 1 that bound itself  3
//!   has   6, 7
//!   now   PE 0  6     PE 1  7                                         7
//! ```

use super::CheckpointError;
use super::proc;
use crate::os::affinity;
use crate::os::claims::list;
use std::collections::{BTreeMap, BTreeSet};

/// The threads of a node's part, each with what it is bound to.
pub type Bound = Vec<(i32, Vec<u32>)>;

/// Of these processes, which stand still: the threads that are bound, by their numbers in their PID namespace.
pub fn of(pids: impl Iterator<Item = i32>) -> Result<Bound, CheckpointError> {
    let failed = |e: std::io::Error| {
        CheckpointError::new(format!("what its threads are bound to can't be read: {e}"))
    };
    let all = affinity::get(0).map_err(failed)?;
    let mut bound = Vec::new();
    for pid in pids {
        for entry in std::fs::read_dir(format!("/proc/{pid}/task")).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let Some(tid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
            let cpus = affinity::get(tid).map_err(failed)?;
            if cpus != all {
                bound.push((proc::inner_pid(tid)?, cpus));
            }
        }
    }
    Ok(bound)
}

/// Binds them to the processors that their node's part has now.
///
/// # Errors
/// One can't be.
pub fn again(saved: &[(u32, Bound)], cpus: &[(u32, Vec<u32>)]) -> Result<(), String> {
    for (nid, bound) in saved {
        let Some((_, now)) = cpus.iter().find(|(of, now)| of == nid && !now.is_empty()) else {
            continue;
        };
        for (tid, cpus) in translated(bound, now) {
            affinity::set(tid, &cpus).map_err(|e| {
                let cpus = list(cpus.iter().copied());
                format!("a restored thread can't be bound to processors {cpus}: {e}")
            })?;
        }
    }
    Ok(())
}

/// What each is to be bound to. Where there are not as many processors as there were, all of these.
fn translated(bound: &Bound, now: &[u32]) -> Bound {
    let had: BTreeSet<u32> = bound.iter().flat_map(|(_, cpus)| cpus.iter().copied()).collect();
    let all: BTreeSet<u32> = now.iter().copied().collect();
    let alike = had.len() == all.len();
    let new: BTreeMap<u32, u32> = had.into_iter().zip(all.iter().copied()).collect();
    let to = |cpus: &Vec<u32>| -> Vec<u32> {
        match alike {
            true => cpus.iter().filter_map(|cpu| new.get(cpu).copied()).collect(),
            false => all.iter().copied().collect(),
        }
    };
    bound.iter().map(|(tid, cpus)| (*tid, to(cpus))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nth_becomes_the_nth() {
        let bound = vec![(7, vec![2]), (8, vec![3]), (9, vec![2, 3])];
        let now = vec![(7, vec![6]), (8, vec![9]), (9, vec![6, 9])];
        assert_eq!(translated(&bound, &[6, 9]), now);
        // Fewer, where virtual processors share real ones.
        let few = vec![(7, vec![1]), (8, vec![1]), (9, vec![1])];
        assert_eq!(translated(&bound, &[1, 1]), few);
        assert_eq!(translated(&vec![], &[1]), vec![]);
    }

    #[test]
    fn who_is_bound_is_found() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
        let pid = child.id() as i32;
        let all = affinity::get(0).expect("ours");
        let before = of([pid].into_iter()).expect("it lives");
        affinity::set(pid, &all[..1]).expect("ours");
        let after = of([pid].into_iter()).expect("it lives");
        let _ = child.kill();
        let _ = child.wait();
        assert_eq!(before, vec![]);
        if all.len() > 1 {
            assert_eq!(after.iter().map(|(_, cpus)| &cpus[..]).collect::<Vec<_>>(), [&all[..1]]);
        }
    }
}
