//! What each user (or account) has had of the processors, which decays.
//!
//! # The problem
//!
//! A user with a hundred applications must not have a hundred times the processor time of a user with one. And
//! what a user had last week is no reason to keep him waiting today.
//!
//! # The approach
//!
//! *Usage with decay*, as batch systems have it: the processor time that a holder of a share has had counts
//! half as much after each half-life. All usage decays by the same factor, so that time alone changes nobody's
//! place. Usage is divided by weight before it is compared; the user with the least comes first.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Holders of shares that are remembered after their last gang: a bound on memory. The smallest usage is
/// forgotten first.
pub const REMEMBERED_MAX: usize = 10_000;

/// The holder of a share: the name of a user or an account.
pub type Holder = Arc<str>;

/// Usage at a moment, in processor nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Usage {
    had: f64,
    at_ns: u64,
}

/// What all holders have had.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shares {
    used: BTreeMap<Holder, Usage>,
    half_life: Duration,
}

impl Default for Shares {
    fn default() -> Shares {
        Shares { used: BTreeMap::new(), half_life: Duration::from_secs(3_600) }
    }
}

/// What is left of usage after so long.
fn decayed(had: f64, after_ns: u64, half_life: Duration) -> f64 {
    let half_life = half_life.as_nanos() as f64;
    match after_ns {
        0 => had,
        _ if half_life <= 0.0 => 0.0,
        after => had * (-(after as f64) / half_life).exp2(),
    }
}

impl Shares {
    /// Usage halves in so long from then on; zero: nothing is remembered.
    pub fn set_half_life(&mut self, half_life: Duration, now_ns: u64) {
        for usage in self.used.values_mut() {
            usage.had = decayed(usage.had, now_ns.saturating_sub(usage.at_ns), self.half_life);
            usage.at_ns = usage.at_ns.max(now_ns);
        }
        self.half_life = half_life;
    }

    /// After how long usage counts half as much.
    pub fn half_life(&self) -> Duration {
        self.half_life
    }

    /// What a holder has had, as it counts then, in processor nanoseconds.
    pub fn used(&self, holder: &str, now_ns: u64) -> f64 {
        let usage = self.used.get(holder);
        usage.map_or(0.0, |u| decayed(u.had, now_ns.saturating_sub(u.at_ns), self.half_life))
    }

    /// A holder has had so many processor nanoseconds more by then; less than zero: so many fewer than were
    /// charged.
    pub fn charge(&mut self, holder: &Holder, had: f64, now_ns: u64) {
        match self.used.get_mut(holder) {
            Some(of) => {
                let before = decayed(of.had, now_ns.saturating_sub(of.at_ns), self.half_life);
                *of = Usage { had: (before + had).max(0.0), at_ns: now_ns.max(of.at_ns) };
            }
            None => {
                let usage = Usage { had: had.max(0.0), at_ns: now_ns };
                self.used.insert(holder.clone(), usage);
            }
        }
    }

    /// A holder had had so much when it was put on record, so long ago.
    pub fn restore(&mut self, holder: &Holder, had: f64, age_ns: u64, now_ns: u64) {
        self.charge(holder, decayed(had, age_ns, self.half_life), now_ns);
    }

    /// Those who have had something since a time, and how much counts then.
    pub fn changed_since(
        &self,
        since_ns: u64,
        now_ns: u64,
    ) -> impl Iterator<Item = (&Holder, f64)> {
        let changed = self.used.iter().filter(move |(_, usage)| usage.at_ns >= since_ns);
        changed.map(move |(holder, _)| (holder, self.used(holder, now_ns)))
    }

    /// How many are remembered.
    pub fn len(&self) -> usize {
        self.used.len()
    }

    /// Whether none is remembered.
    pub fn is_empty(&self) -> bool {
        self.used.is_empty()
    }

    /// All who have had something, and how much of it counts then.
    pub fn all(&self, now_ns: u64) -> impl Iterator<Item = (&Holder, f64)> {
        self.used.keys().map(move |holder| (holder, self.used(holder, now_ns)))
    }

    /// Whether so many are remembered that [`Shares::forget`] is worth its time, for it goes through all of
    /// them: an eighth more than it leaves.
    pub fn are_too_many(&self) -> bool {
        self.used.len() > REMEMBERED_MAX / 8 * 9
    }

    /// Forgets those who have had least, of whom `is_here` says that they have no gang, down to
    /// [`REMEMBERED_MAX`].
    pub fn forget(&mut self, now_ns: u64, is_here: impl Fn(&str) -> bool) {
        let over = self.used.len().saturating_sub(REMEMBERED_MAX);
        if over == 0 {
            return;
        }
        let gone = self.all(now_ns).filter(|(holder, _)| !is_here(holder));
        let mut gone: Vec<(u64, Holder)> =
            gone.map(|(holder, used)| (used.to_bits(), holder.clone())).collect();
        gone.sort_unstable();
        for (_, holder) in gone.into_iter().take(over) {
            self.used.remove(&holder);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600 * 1_000_000_000;

    #[test]
    fn usage_halves_in_its_half_life() {
        let mut shares = Shares::default();
        let (ann, bob): (Holder, Holder) = ("ann".into(), "bob".into());
        shares.charge(&ann, 8.0, 0);
        shares.charge(&bob, 1.0, 0);
        assert_eq!([shares.used("ann", HOUR), shares.used("bob", HOUR)], [4.0, 0.5]);
        shares.charge(&ann, 1.0, 2 * HOUR);
        assert_eq!(shares.used("ann", 2 * HOUR), 3.0);
        assert_eq!(shares.used("nobody", 0), 0.0);
        shares.charge(&bob, -9.0, 2 * HOUR);
        assert_eq!(shares.used("bob", 2 * HOUR), 0.0);
        shares.charge(&bob, 0.25, 2 * HOUR);
        // What was before another half-life is as it was.
        shares.set_half_life(Duration::from_secs(7_200), 2 * HOUR);
        assert_eq!([shares.used("ann", 4 * HOUR), shares.used("bob", 4 * HOUR)], [1.5, 0.125]);
        shares.set_half_life(Duration::ZERO, 4 * HOUR);
        assert_eq!(shares.used("ann", 4 * HOUR + 1), 0.0);
    }

    #[test]
    fn no_more_are_remembered_than_a_bound() {
        let mut shares = Shares::default();
        for n in 0..REMEMBERED_MAX + 3 {
            shares.charge(&n.to_string().into(), 1.0 + n as f64, 0);
        }
        shares.forget(0, |holder| holder == "0");
        let of: Vec<f64> = ["0", "1", "2", "3", "4"].map(|of| shares.used(of, 0)).into();
        assert_eq!(of, [1.0, 0.0, 0.0, 0.0, 5.0]);
        assert_eq!(shares.all(0).count(), REMEMBERED_MAX);
    }
}
