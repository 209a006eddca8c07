//! Seeds, on all processors.

use super::{Failure, Options, run};

/// Tries seeds on two threads; panics with the first that fails.
fn seeds(range: std::ops::Range<u64>, of: impl Fn(u64) -> Options + Sync, least: (u64, u64)) {
    let next = std::sync::atomic::AtomicU64::new(range.start);
    let work = || -> Result<(), Box<Failure>> {
        loop {
            let seed = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            if seed >= range.end {
                return Ok(());
            }
            let counts = run(&of(seed))?.counts;
            let (events, postings) = (counts.events, counts.postings);
            assert!(events >= least.0 && postings >= least.1, "seed {seed} is small: {counts:?}");
        }
    };
    std::thread::scope(|scope| {
        let threads = [scope.spawn(work), scope.spawn(work)];
        for thread in threads {
            if let Err(failure) = thread.join().expect("no panic") {
                panic!("{failure}");
            }
        }
    });
}

#[test]
fn nothing_goes_wrong_where_nothing_goes_wrong() {
    let of = |seed| Options { faults: Some(Default::default()), ..Options::new(seed) };
    seeds(1..20, of, (1, 100));
}

/// Each seed chooses its faults: `psched torture` tries more of them.
#[test]
fn nothing_is_lost_whatever_goes_wrong() {
    seeds(1..241, Options::new, (5_000, 100));
}

#[test]
fn a_seed_is_the_same_history_each_time() {
    let [a, b] = [run(&Options::new(7)), run(&Options::new(7))];
    assert_eq!(a, b);
    assert!(a.is_ok());
}
