//! How far psched's clock is ahead of this host's, and how well that is known.
//!
//! # The problem
//!
//! Slice plans are in times of psched's CLOCK_MONOTONIC, and gangs on several hosts are to change at
//! the same instant. Each host has a clock of its own, which runs a little faster or slower, and a
//! question about psched's clock takes an unknown time each way.
//!
//! # The approach
//!
//! Four times of an exchange give the difference of the clocks, with an error of at most half of the
//! time that the exchange was on the way (as NTP does it, RFC 5905). The last exchanges are kept. The
//! one with the least error counts, where that error grows with age by the drift of the clocks: at
//! first [`DRIFT_FIRST`] is assumed, later what the kept exchanges show.

use std::collections::VecDeque;

/// Exchanges that are kept.
const KEPT: usize = 16;
/// The drift that is assumed at first, in nanoseconds a second: quartzes differ by less.
const DRIFT_FIRST: u64 = 100_000;
/// The least drift and the largest, likewise: temperature changes a quartz by as much as the former,
/// and the kernel slews a clock by at most the latter.
const DRIFT: (u64, u64) = (2_000, 500_000);
/// Exchanges show a drift if the oldest and the newest of them are so far apart, in nanoseconds.
const DRIFT_SEEN_OVER: u64 = 20_000_000_000;

/// A question about psched's clock and its answer: times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// When it was asked, on this host's clock.
    pub asked_ns: u64,
    /// When psched had the question, on its clock.
    pub received_ns: u64,
    /// When psched answered, on its clock.
    pub told_ns: u64,
    /// When the answer was there, on this host's clock.
    pub arrived_ns: u64,
}

/// What is known of psched's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// What it is ahead of this host's, in nanoseconds.
    pub ahead_ns: i128,
    /// By how much that may be wrong, in nanoseconds.
    pub error_ns: u64,
}

/// The last exchanges with one psched.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    /// When each was over, on this host's clock, and what it showed then.
    kept: VecDeque<(u64, Reading)>,
}

impl Clock {
    /// Takes an exchange, and gives what is known then. None: its times can't be.
    pub fn take(&mut self, exchange: Exchange) -> Option<Reading> {
        let Exchange { asked_ns, received_ns, told_ns, arrived_ns } = exchange;
        let whole = arrived_ns.checked_sub(asked_ns)?;
        let on_the_way = whole.checked_sub(told_ns.checked_sub(received_ns)?)?;
        let there = i128::from(received_ns) - i128::from(asked_ns);
        let back = i128::from(told_ns) - i128::from(arrived_ns);
        // (The clocks drift during the exchange, too; and halves are rounded.)
        let error_ns = on_the_way.div_ceil(2) + grown(DRIFT_FIRST, whole) + 1;
        let reading = Reading { ahead_ns: (there + back) / 2, error_ns };
        if self.kept.back().is_some_and(|(at, _)| *at > arrived_ns) {
            return None;
        }
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back((arrived_ns, reading));
        self.read(arrived_ns)
    }

    /// What is known at this time. None: there was no exchange.
    fn read(&self, now: u64) -> Option<Reading> {
        let drift = self.drift();
        let aged = |(at, reading): &(u64, Reading)| Reading {
            error_ns: reading.error_ns.saturating_add(grown(drift, now.saturating_sub(*at))),
            ..*reading
        };
        self.kept.iter().map(aged).min_by_key(|reading| reading.error_ns)
    }

    /// How much the clocks may drift apart, in nanoseconds a second.
    fn drift(&self) -> u64 {
        let (Some((from, first)), Some((until, last))) = (self.kept.front(), self.kept.back())
        else {
            return DRIFT_FIRST;
        };
        let span = until.saturating_sub(*from);
        if span < DRIFT_SEEN_OVER {
            return DRIFT_FIRST;
        }
        let apart = (last.ahead_ns - first.ahead_ns).unsigned_abs();
        let most = apart + u128::from(first.error_ns) + u128::from(last.error_ns);
        let drift = most.saturating_mul(1_000_000_000) / u128::from(span);
        u64::try_from(drift).unwrap_or(u64::MAX).clamp(DRIFT.0, DRIFT.1)
    }
}

/// By how much clocks of this drift differ after so many nanoseconds.
fn grown(drift: u64, age_ns: u64) -> u64 {
    let grown = u128::from(drift) * u128::from(age_ns) / 1_000_000_000;
    u64::try_from(grown).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;
    const S: u64 = 1_000 * MS;

    fn exchange(asked_ns: u64, ahead_ns: u64, there: u64, back: u64) -> Exchange {
        let received_ns = asked_ns + there + ahead_ns;
        let told_ns = received_ns + MS;
        Exchange { asked_ns, received_ns, told_ns, arrived_ns: told_ns - ahead_ns + back }
    }

    #[test]
    fn an_exchange_shows_the_difference_within_half_of_its_way() {
        let mut clock = Clock::default();
        let even =
            clock.take(exchange(7 * S, 5_000 * S, 2 * MS, 2 * MS)).expect("times that can be");
        assert_eq!(even, Reading { ahead_ns: 5_000 * i128::from(S), error_ns: 2 * MS + 501 });
        // The answer was slow: the difference is wrong by as much, and the older one is still better.
        let slow = clock.take(exchange(8 * S, 5_000 * S, MS, 9 * MS)).expect("times that can be");
        assert_eq!((slow.ahead_ns, slow.error_ns < 3 * MS), (5_000 * i128::from(S), true));
        let good = clock.take(exchange(9 * S, 5_000 * S, MS, MS)).expect("times that can be");
        assert_eq!(good.error_ns, MS + 301);
    }

    #[test]
    fn times_that_can_not_be_are_left_out() {
        let mut clock = Clock::default();
        let late = Exchange { asked_ns: 9, received_ns: 5, told_ns: 4, arrived_ns: 12 };
        assert_eq!(clock.take(late), None);
        let long = Exchange { asked_ns: 9, received_ns: 5, told_ns: 50, arrived_ns: 12 };
        assert_eq!(clock.take(long), None);
        let back = Exchange { asked_ns: 9, received_ns: 5, told_ns: 5, arrived_ns: 8 };
        assert_eq!(clock.take(back), None);
    }

    /// After a while without exchanges little is known.
    #[test]
    fn an_old_exchange_counts_less() {
        let mut clock = Clock::default();
        clock.take(exchange(S, 0, MS, MS));
        let later = clock.take(exchange(101 * S, 0, 8 * MS, 8 * MS)).expect("times that can be");
        assert_eq!(
            later.error_ns,
            8 * MS + 1_701,
            "the old one may be wrong by 1 ms and 10 ms of drift"
        );
    }

    proptest! {
        /// Whatever the ways take, and as long as clocks drift as clocks do, the true difference is
        /// within the error.
        #[test]
        fn the_true_difference_is_within_the_error(
            ahead in 0..10_000_000 * S,
            drift in -90_000_i64..90_000,
            ways in prop::collection::vec((0..20 * MS, 0..20 * MS), 1..60),
        ) {
            let mut clock = Clock::default();
            // (Nanoseconds by which psched's clock has gained at a time.)
            let true_ahead = |at: u64| {
                i128::from(ahead) + i128::from(drift) * i128::from(at) / i128::from(S)
            };
            let mut at = S;
            for (there, back) in ways {
                let received_ns = (i128::from(at + there) + true_ahead(at + there)).max(0) as u64;
                let arrived_ns = at + there + back;
                let exchange =
                    Exchange { asked_ns: at, received_ns, told_ns: received_ns, arrived_ns };
                let reading = clock.take(exchange).expect("times that can be");
                let off = (reading.ahead_ns - true_ahead(arrived_ns)).unsigned_abs();
                prop_assert!(off <= u128::from(reading.error_ns), "{off} {reading:?}");
                at += 5 * S;
            }
        }
    }
}
