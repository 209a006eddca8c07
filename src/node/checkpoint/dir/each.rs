//! The same for many files, several at once.
//!
//! A checkpoint has some dozens of files, or thousands, and for each of them somebody waits: for the disk,
//! or for the checksum. One after the other they would wait for one another. Beside that, a file system puts on
//! disk together what is asked for at the same time.

use crate::checkpoint::Flaw;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Threads for one folder: mostly they wait for the disk. Each has a buffer of [`super::PIECE`] bytes.
const THREADS: usize = 8;

/// What the work gives for each, in their order.
///
/// # Errors
/// That of the first, in their order, for which it fails. What comes after that may have been done, or not.
pub(super) fn at_once<T: Sync, R: Send>(
    all: &[T],
    work: impl Fn(&T) -> Result<R, Flaw> + Sync,
) -> Result<Vec<R>, Flaw> {
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    // They are taken in their order: whatever comes before the one that fails is done.
    let some = || {
        let mut done = Vec::new();
        while !failed.load(Ordering::Relaxed) {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(one) = all.get(at) else { break };
            let result = work(one);
            failed.fetch_or(result.is_err(), Ordering::Relaxed);
            done.push((at, result));
        }
        done
    };
    let mut done = std::thread::scope(|scope| {
        // One that can't be started leaves the work to the others, of whom this thread is one.
        let start = |_| std::thread::Builder::new().spawn_scoped(scope, some).ok();
        let threads: Vec<_> = (1..THREADS.min(all.len())).filter_map(start).collect();
        let mut done = some();
        for thread in threads {
            done.extend(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        done
    });
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn results_are_in_order_and_several_are_done_at_once() {
        // Each waits for another one.
        let two = Barrier::new(2);
        let all: Vec<usize> = (0..100).collect();
        let squares = at_once(&all, |n| {
            two.wait();
            Ok(n * n)
        });
        assert_eq!(squares, Ok(all.iter().map(|n| n * n).collect()));
        assert_eq!(at_once(&[], |_: &u8| Ok(())), Ok(vec![]));
    }

    #[test]
    fn the_first_that_fails_is_told_and_soon_nothing_more_is_done() {
        let done = AtomicUsize::new(0);
        let all: Vec<usize> = (0..10_000).collect();
        let missing = |n: &usize| Flaw::Missing { file: n.to_string() };
        let result = at_once(&all, |n| {
            done.fetch_add(1, Ordering::Relaxed);
            // One later one is there at once, and is not told.
            if *n >= 3 { Err(missing(n)) } else { Ok(()) }
        });
        assert_eq!(result, Err(missing(&3)));
        assert!(done.into_inner() <= 3 + THREADS);
    }
}
