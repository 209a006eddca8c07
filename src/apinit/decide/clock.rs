//! How far psched's clock is ahead of this host's, and how well that is known.
//!
//! # The problem
//!
//! Slice plans are in times of psched's CLOCK_MONOTONIC, and gangs on several hosts are to change at
//! the same instant. Each host has a clock of its own, which runs a little faster or slower, and a
//! question about psched's clock takes an unknown time each way. A host may also change how fast its
//! clock runs, as a time service does.
//!
//! # The approach
//!
//! Four times of an exchange give bounds of the difference of the clocks, apart by the time that the
//! exchange was on the way (as NTP does it, RFC 5905). The last exchanges are kept. The two of them that
//! say most about it give the pace at which the difference changes, with an error; by that pace each
//! exchange is carried on to the present. The one with the least error then counts, where the error grows
//! with age by the error of the pace.
//!
//! All this is reckoned by CLOCK_MONOTONIC_RAW of this host, which no time service changes: what a
//! service does to CLOCK_MONOTONIC of this host is read, not guessed. What one does to psched's clock is
//! seen by the next exchange: if that contradicts the older ones, they are forgotten.

use crate::apteam::protocol::node::ClockTold;
use std::collections::VecDeque;

/// Exchanges that are kept.
const KEPT: usize = 16;
/// The pace that is possible at first, in nanoseconds a second: quartzes differ by less.
const PACE_FIRST: u64 = 100_000;
/// By how much the pace may change while exchanges are kept, likewise: temperature changes a quartz by
/// less, and a time service that has settled does not change a clock by more.
const WANDER: u64 = 10_000;
/// Two exchanges show a pace if they are so far apart, in nanoseconds.
const PACE_SEEN_OVER: u64 = 10_000_000_000;
/// Two readings show how this host's clock is slewed if they are so far apart, likewise.
const SLEW_SEEN_OVER: u64 = 100_000_000;
/// How long a reading is used, in nanoseconds: it is read again as often.
pub const HELD_NS: u64 = 500_000_000;
/// The least change of what is known of psched's clock that is put to use, in nanoseconds: far less
/// than a change of party takes.
pub const STEP_MIN: u64 = 20_000;

/// A question about psched's clock and its answer: times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// When it was asked, on this host's clock.
    pub asked_ns: u64,
    /// When psched had the question, on its clock.
    pub received_ns: u64,
    /// When psched answered, on its clock.
    pub told_ns: u64,
}

/// Both clocks of this host at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// CLOCK_MONOTONIC, in nanoseconds.
    pub mono_ns: u64,
    /// CLOCK_MONOTONIC_RAW, in nanoseconds.
    pub raw_ns: u64,
    /// By how much the two may have been read apart, in nanoseconds.
    pub apart_ns: u64,
}

impl Moment {
    /// What the raw clock is behind.
    fn slewed(&self) -> i128 {
        i128::from(self.mono_ns) - i128::from(self.raw_ns)
    }
}

/// What is known of psched's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// What it is ahead of this host's, in nanoseconds.
    pub ahead_ns: i128,
    /// By how much that may be wrong while it is used, in nanoseconds.
    pub error_ns: u64,
}

/// What is known of psched's clock at one moment, and what becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    ahead_ns: i128,
    error_ns: u64,
    /// By how much `ahead_ns` grows, in nanoseconds a second.
    pace: i64,
    /// By how much `error_ns` grows, likewise.
    growth: u64,
}

/// An exchange that is kept.
#[derive(Clone, Copy, Debug)]
struct Kept {
    /// When it was over, on this host's raw clock.
    raw_ns: u64,
    /// What psched's clock was ahead of this host's raw clock then.
    ahead_ns: i128,
    error_ns: u64,
}

/// The last exchanges with one psched.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    kept: VecDeque<Kept>,
    /// When the clocks of this host were read, and how much faster the slewed one ran until then, in
    /// nanoseconds a second.
    slew: Option<(Moment, i64)>,
    /// What psched was told.
    told: Option<ClockTold>,
}

impl Clock {
    /// Takes an exchange whose answer was there at this moment, and gives what is known then. None: its
    /// times can't be.
    pub fn take(&mut self, exchange: Exchange, at: Moment) -> Option<Reading> {
        let Exchange { asked_ns, received_ns, told_ns } = exchange;
        let whole = at.mono_ns.checked_sub(asked_ns)?;
        let on_the_way = whole.checked_sub(told_ns.checked_sub(received_ns)?)?;
        if self.kept.back().is_some_and(|last| last.raw_ns > at.raw_ns) {
            return None;
        }
        let there = i128::from(received_ns) - i128::from(asked_ns);
        let back = i128::from(told_ns) - i128::from(at.mono_ns);
        let kept = Kept {
            raw_ns: at.raw_ns,
            ahead_ns: (there + back) / 2 + at.slewed(),
            // (The clocks drift during the exchange, too; and halves are rounded.)
            error_ns: on_the_way.div_ceil(2) + grown(PACE_FIRST, whole) + at.apart_ns + 1,
        };
        let known = self.on_raw(at.raw_ns);
        let contradicts = known.is_some_and(|known| {
            (known.ahead_ns - kept.ahead_ns).unsigned_abs()
                > u128::from(known.error_ns) + u128::from(kept.error_ns)
        });
        if contradicts {
            self.kept.clear();
        }
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(kept);
        self.read(at)
    }

    /// What is known at this moment, for the next [`HELD_NS`]. None: there was no exchange.
    pub fn read(&mut self, at: Moment) -> Option<Reading> {
        self.see_slew(at);
        let known = self.known(at)?;
        let moved = known.pace.unsigned_abs().saturating_add(known.growth);
        let error_ns = known.error_ns.saturating_add(grown(moved, HELD_NS));
        Some(Reading { ahead_ns: known.ahead_ns, error_ns: error_ns.saturating_add(STEP_MIN) })
    }

    /// What psched is to be told at this moment. None: what it was told is still good.
    pub fn news(&mut self, at: Moment) -> Option<ClockTold> {
        let reading = self.read(at)?;
        let known = self.known(at)?;
        // With some room, so that each exchange is not news.
        let error_ns = reading.error_ns.saturating_add(reading.error_ns / 4);
        let at_ns = i128::from(at.mono_ns) + known.ahead_ns;
        let at_ns = u64::try_from(at_ns.max(0)).unwrap_or(u64::MAX);
        if let Some((ahead_ns, told_ns)) = self.told.map(|told| told.at(at_ns)) {
            let off = (i128::from(ahead_ns) - reading.ahead_ns).unsigned_abs();
            let holds = off + u128::from(reading.error_ns) <= u128::from(told_ns);
            if holds && told_ns / 2 <= error_ns {
                return None;
            }
        }
        self.told = Some(ClockTold {
            at_ns,
            ahead_ns: i64::try_from(reading.ahead_ns).unwrap_or(i64::MAX),
            error_ns,
            pace: known.pace,
            growth: known.growth,
        });
        self.told
    }

    /// How this host's clock is slewed.
    fn see_slew(&mut self, at: Moment) {
        let Some((before, _)) = self.slew else {
            self.slew = Some((at, 0));
            return;
        };
        let span = at.raw_ns.saturating_sub(before.raw_ns);
        if span >= SLEW_SEEN_OVER {
            let slewed = (at.slewed() - before.slewed()) * 1_000_000_000 / i128::from(span);
            self.slew = Some((at, i64::try_from(slewed).unwrap_or(i64::MAX)));
        }
    }

    /// What is known of psched's clock and this host's.
    fn known(&self, at: Moment) -> Option<Known> {
        let of_raw = self.on_raw(at.raw_ns)?;
        let slew = self.slew.map_or(0, |(_, slew)| slew);
        Some(Known {
            ahead_ns: of_raw.ahead_ns - at.slewed(),
            error_ns: of_raw.error_ns.saturating_add(at.apart_ns),
            pace: of_raw.pace.saturating_sub(slew),
            growth: of_raw.growth,
        })
    }

    /// What is known of psched's clock and this host's raw one.
    fn on_raw(&self, raw_ns: u64) -> Option<Known> {
        let (pace, growth) = self.pace();
        let aged = |kept: &Kept| {
            let age = raw_ns.saturating_sub(kept.raw_ns);
            let moved = i128::from(pace) * i128::from(age) / 1_000_000_000;
            Known {
                ahead_ns: kept.ahead_ns + moved,
                error_ns: kept.error_ns.saturating_add(grown(growth, age)),
                pace,
                growth,
            }
        };
        self.kept.iter().map(aged).min_by_key(|known| known.error_ns)
    }

    /// By how much psched's clock gains on this host's raw one, in nanoseconds a second, and by how
    /// much that may be wrong.
    fn pace(&self) -> (i64, u64) {
        let mut best = (0, PACE_FIRST);
        for (at, last) in self.kept.iter().enumerate() {
            for first in self.kept.iter().take(at) {
                let span = last.raw_ns.saturating_sub(first.raw_ns);
                if span < PACE_SEEN_OVER {
                    continue;
                }
                let of_span = |ns: i128| ns.saturating_mul(1_000_000_000) / i128::from(span);
                let errors = i128::from(first.error_ns) + i128::from(last.error_ns);
                let error = u64::try_from(of_span(errors)).unwrap_or(u64::MAX);
                let error = error.saturating_add(WANDER);
                let pace = i64::try_from(of_span(last.ahead_ns - first.ahead_ns));
                if let Ok(pace) = pace
                    && error < best.1
                {
                    best = (pace, error);
                }
            }
        }
        best
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
    /// What is added to each reading: for the time in which it is used, and what is not followed.
    const USED: u64 = PACE_FIRST / 2 + STEP_MIN;

    fn moment(ns: u64) -> Moment {
        Moment { mono_ns: ns, raw_ns: ns, apart_ns: 0 }
    }

    fn exchange(asked_ns: u64, ahead_ns: u64, there: u64, back: u64) -> (Exchange, Moment) {
        let received_ns = asked_ns + there + ahead_ns;
        let told_ns = received_ns + MS;
        (Exchange { asked_ns, received_ns, told_ns }, moment(told_ns - ahead_ns + back))
    }

    fn take(clock: &mut Clock, (exchange, at): (Exchange, Moment)) -> Reading {
        clock.take(exchange, at).expect("times that can be")
    }

    #[test]
    fn an_exchange_shows_the_difference_within_half_of_its_way() {
        let mut clock = Clock::default();
        let even = take(&mut clock, exchange(7 * S, 5_000 * S, 2 * MS, 2 * MS));
        let ahead_ns = 5_000 * i128::from(S);
        assert_eq!(even, Reading { ahead_ns, error_ns: 2 * MS + 501 + USED });
        // The answer was slow: the difference is wrong by as much, and the older one is still better.
        let slow = take(&mut clock, exchange(8 * S, 5_000 * S, MS, 9 * MS));
        assert_eq!((slow.ahead_ns, slow.error_ns < 3 * MS), (ahead_ns, true));
        let good = take(&mut clock, exchange(9 * S, 5_000 * S, MS, MS));
        assert_eq!(good.error_ns, MS + 301 + USED);
    }

    #[test]
    fn times_that_can_not_be_are_left_out() {
        let mut clock = Clock::default();
        let late = Exchange { asked_ns: 9, received_ns: 5, told_ns: 4 };
        assert_eq!(clock.take(late, moment(12)), None);
        let long = Exchange { asked_ns: 9, received_ns: 5, told_ns: 50 };
        assert_eq!(clock.take(long, moment(12)), None);
        let back = Exchange { asked_ns: 9, received_ns: 5, told_ns: 5 };
        assert_eq!(clock.take(back, moment(8)), None);
    }

    /// After a while without exchanges little is known.
    #[test]
    fn an_old_exchange_counts_less() {
        let mut clock = Clock::default();
        take(&mut clock, exchange(S, 0, MS, MS));
        let held = clock.read(moment(3 * S)).expect("an exchange");
        assert_eq!(held.error_ns, MS + 301 + 199_700 + USED);
        let (exchange, at) = exchange(101 * S, 0, 8 * MS, 8 * MS);
        let later = clock.take(exchange, at).expect("times that can be");
        assert!(later.error_ns > 8 * MS, "the old one may be wrong by 1 ms and 10 ms of drift");
    }

    /// What a time service does to this host's clock needs no exchange.
    #[test]
    fn a_clock_that_is_slewed_is_followed_at_once() {
        let mut clock = Clock::default();
        for at in 1..=12 {
            take(&mut clock, exchange(at * 5 * S, 0, MS / 10, MS / 10));
        }
        let before = clock.news(moment(61 * S)).expect("the first");
        assert_eq!((before.ahead_ns, before.pace), (0, 0));
        assert_eq!(clock.news(moment(61 * S + S / 2)), None);
        // From now on it runs faster by 300 ppm.
        let at = |ns: u64| Moment { mono_ns: ns + (ns - 62 * S) * 3 / 10_000, ..moment(ns) };
        for half in 0..7 {
            let reading = clock.read(at(62 * S + half * S / 2)).expect("exchanges");
            assert_eq!(reading.ahead_ns, -i128::from(half) * 150_000);
            assert!(reading.error_ns < MS, "{reading:?}");
        }
        let after = clock.news(at(65 * S + S / 2)).expect("that is news");
        assert_eq!(after.pace, -300_000);
        assert_eq!(clock.news(at(66 * S)), None, "psched carries it on");
    }

    /// An exchange tells that psched's clock runs at another pace.
    #[test]
    fn exchanges_that_are_contradicted_are_forgotten() {
        let mut clock = Clock::default();
        for at in 1..=12 {
            take(&mut clock, exchange(at * 5 * S, 7 * S, MS / 10, MS / 10));
        }
        let ahead_ns = 7 * S + 2 * MS;
        let reading = take(&mut clock, exchange(65 * S, ahead_ns, MS, MS));
        assert_eq!(reading.ahead_ns, i128::from(ahead_ns));
        assert!(reading.error_ns > MS, "{reading:?}");
    }

    proptest! {
        /// Whatever the ways take, as long as clocks drift as clocks do, and however this host's clock
        /// is slewed: the true difference is within the error, also of what psched was told.
        #[test]
        fn the_true_difference_is_within_the_error(
            ahead in 0..10_000_000 * S,
            drift in -90_000_i64..90_000,
            slews in prop::collection::vec(-500_000_i64..500_000, 1..4),
            ways in prop::collection::vec((0..20 * MS, 0..20 * MS), 1..60),
        ) {
            let mut clock = Clock::default();
            let of = |ppb: i64, ns: u64| i128::from(ppb) * i128::from(ns) / i128::from(S);
            // The slew changes each 60 seconds.
            let at = |raw: u64| {
                let mut slewed = 0;
                for (n, slew) in (0..).zip(slews.iter().cycle().take(10)) {
                    slewed += of(*slew, raw.saturating_sub(n * 60 * S).min(60 * S));
                }
                let mono_ns = (i128::from(raw) + slewed) as u64;
                Moment { mono_ns, raw_ns: raw, apart_ns: 0 }
            };
            let psched = |raw: u64| (i128::from(ahead + raw) + of(drift, raw)) as u64;
            let mut raw = S;
            let mut told: Option<ClockTold> = None;
            for (there, back) in ways {
                let received_ns = psched(raw + there);
                let exchange =
                    Exchange { asked_ns: at(raw).mono_ns, received_ns, told_ns: received_ns };
                let mut now = raw + there + back;
                let _ = clock.take(exchange, at(now)).expect("times that can be");
                while now < raw + 5 * S {
                    let reading = clock.read(at(now)).expect("there was one");
                    let ahead = i128::from(psched(now)) - i128::from(at(now).mono_ns);
                    let off = (reading.ahead_ns - ahead).unsigned_abs();
                    prop_assert!(off <= u128::from(reading.error_ns), "{off} {reading:?}");
                    told = clock.news(at(now)).or(told);
                    let (told_ahead, error) = told.expect("told at first").at(psched(now));
                    let off = (i128::from(told_ahead) - ahead).unsigned_abs();
                    prop_assert!(off <= u128::from(error), "{off} {told:?}");
                    now += HELD_NS;
                }
                raw += 5 * S;
            }
        }
    }
}
