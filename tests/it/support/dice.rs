//! Random moments that can be had again: `PSCHED_SEED=N cargo test ...` throws the same dice.

use std::time::{Duration, SystemTime};

/// A small generator (SplitMix64): its numbers need no quality, only a seed.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The seed is PSCHED_SEED's, else of this moment; it is said, so that a failure shows it.
    pub fn of_this_run(test: &str) -> Dice {
        let given = std::env::var("PSCHED_SEED").ok();
        let seed = given.and_then(|text| text.parse().ok()).unwrap_or_else(|| {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            now.map_or(0, |since| since.as_nanos() as u64) % 1_000_000_007
        });
        eprintln!("{test}: seed {seed}; again with PSCHED_SEED={seed}");
        Dice::new(seed)
    }

    pub fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.number() % end.max(1)
    }

    /// One of these.
    pub fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len() as u64) as usize]
    }

    /// A time from nothing to `longest`.
    pub fn time(&mut self, longest: Duration) -> Duration {
        Duration::from_nanos(self.below(longest.as_nanos() as u64 + 1))
    }

    /// Dice of its own, for another thread.
    pub fn split(&mut self) -> Dice {
        Dice(self.number())
    }
}
