//! What is due to each user (or account) of the processors, which decays as what each has had does.
//!
//! # The problem
//!
//! Usage compares users with each other. It does not say whether a user has had too little: a user
//! with one narrow application has always had less than a user with a hundred wide ones, even if the
//! narrow one has never waited. psched has to know which users can spare time before it
//! deschedules their programs for a fuller machine.
//!
//! # The approach
//!
//! *Max-min fair shares* (water filling): each user gets an equal part of the processors by weight,
//! but not more than the user's applications can use; the rest is shared among the other users. The
//! sum over time, with the half-life of usage, is what was *due*. A user becomes *short* below a
//! third of it, and stops being short at half: the gap keeps programs from changing places all the
//! time. (The column Due of `apstat --shares` is another figure: equal parts, by weight, of what
//! all users have had.)
//!
//! ```text
//!   12 processors   weight   wants   is due
//!   ann                  1       2        2
//!   bob                  1      30        3.33
//!   cyd                  2      30        6.67
//! ```

use super::shares::{Holder, Shares};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A user becomes short below this part of what was due.
const SHORT: f64 = 1.0 / 3.0;
/// A short user stays short below this part of what was due.
const SHORT_UNTIL: f64 = 0.5;
/// Looks for short users in a half-life.
const LOOKS: u64 = 8;

/// What one user could use.
#[derive(Clone, Debug, PartialEq)]
pub struct Want {
    /// Whose share it is.
    pub holder: Holder,
    /// At least 1.
    pub weight: u32,
    /// Processors of all that the user has here, of what runs and of what waits.
    pub processors: u64,
}

/// What was due to all, in parts of the machine (domains) of which each is shared by itself.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(bound(deserialize = "P: Ord + Deserialize<'de>"))]
pub struct Dues<P> {
    /// As usage is counted.
    due: Shares,
    /// Processors that have been due to each since `at_ns`.
    rates: BTreeMap<P, Vec<(Holder, f64)>>,
    at_ns: u64,
    short: BTreeSet<Holder>,
    looked_ns: Option<u64>,
}

impl<P: Ord> Dues<P> {
    /// What was due halves in so long from then on.
    pub fn set_half_life(&mut self, half_life: Duration, now_ns: u64) {
        self.pass(now_ns);
        self.due.set_half_life(half_life, now_ns);
    }

    /// There are other parts from then on; nothing is due in any before it is said.
    pub fn clear_parts(&mut self, now_ns: u64) {
        self.pass(now_ns);
        self.rates.clear();
    }

    /// From then on these want so much of the processors of a part.
    pub fn set_wants(&mut self, part: P, processors: u64, wants: Vec<Want>, now_ns: u64) {
        self.pass(now_ns);
        self.rates.insert(part, fair(processors, wants));
    }

    /// Finds the short users, if the next look is due. `had`: usage in processor nanoseconds.
    pub fn look(&mut self, had: impl Fn(&str) -> f64, now_ns: u64) {
        if self.looks_ns().is_none_or(|at| now_ns < at) {
            return;
        }
        self.pass(now_ns);
        self.looked_ns = Some(now_ns);
        let short = std::mem::take(&mut self.short);
        let here = || self.rates.values().flatten().map(|(holder, _)| holder);
        let is_short = |holder: &&Holder| {
            let least = if short.contains(*holder) { SHORT_UNTIL } else { SHORT };
            had(holder) < least * self.due.used(holder, now_ns)
        };
        self.short = here().filter(is_short).cloned().collect();
        if self.due.are_too_many() {
            let here: BTreeSet<Holder> = here().cloned().collect();
            self.due.forget(now_ns, |holder| here.contains(holder));
        }
    }

    /// The time of the next look; none: what was due is not remembered.
    pub fn looks_ns(&self) -> Option<u64> {
        let every = u64::try_from(self.due.half_life().as_nanos()).unwrap_or(u64::MAX) / LOOKS;
        (every > 0).then(|| self.looked_ns.map_or(0, |at| at.saturating_add(every)))
    }

    /// Whether a user was short at the last look.
    pub fn is_short(&self, holder: &str) -> bool {
        self.short.contains(holder)
    }

    /// Adds what has become due by then; its older part has decayed already.
    fn pass(&mut self, now_ns: u64) {
        let time = now_ns.saturating_sub(std::mem::replace(&mut self.at_ns, now_ns)) as f64;
        // (Several decisions may be taken at one moment.)
        if time == 0.0 {
            return;
        }
        let half_life = self.due.half_life().as_nanos() as f64;
        let counts = match half_life {
            0.0 => 0.0,
            _ => (1.0 - (-time / half_life).exp2()) * half_life / std::f64::consts::LN_2,
        };
        for (holder, rate) in self.rates.values().flatten() {
            self.due.charge(holder, rate * counts, now_ns);
        }
    }
}

/// The processors that are due to each.
fn fair(processors: u64, mut wants: Vec<Want>) -> Vec<(Holder, f64)> {
    let each = |want: &Want| want.processors as f64 / f64::from(want.weight.max(1));
    wants.sort_by(|a, b| each(a).total_cmp(&each(b)));
    let mut left = processors as f64;
    let mut weights: f64 = wants.iter().map(|want| f64::from(want.weight.max(1))).sum();
    let due = |want: Want| {
        let weight = f64::from(want.weight.max(1));
        let due = (want.processors as f64).min(left * weight / weights);
        (left, weights) = (left - due, weights - weight);
        (want.holder, due)
    };
    wants.into_iter().map(due).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn want(name: &str, weight: u32, processors: u64) -> Want {
        Want { holder: name.into(), weight, processors }
    }

    #[test]
    fn what_one_does_not_want_is_shared_by_weight() {
        let wants = vec![want("cyd", 2, 30), want("bob", 1, 30), want("ann", 1, 2)];
        let due: Vec<(String, i64)> = fair(12, wants)
            .into_iter()
            .map(|(holder, due)| (holder.to_string(), (due * 100.0).round() as i64))
            .collect();
        assert_eq!(due, [("ann".into(), 200), ("cyd".into(), 667), ("bob".into(), 333)]);
        assert_eq!(fair(12, Vec::new()), []);
    }

    /// Ann and Bob want all of four processors for an hour, and Ann has them.
    #[test]
    fn who_has_had_less_than_a_third_is_short_until_it_is_half() {
        const MINUTE: u64 = 60_000_000_000;
        let mut dues: Dues<u8> = Dues::default();
        dues.set_half_life(Duration::from_secs(3_600), 0);
        dues.look(|_| 0.0, 0);
        assert!(!dues.is_short("ann") && !dues.is_short("bob"));
        dues.set_wants(0, 4, vec![want("ann", 1, 4), want("bob", 1, 400)], 0);
        let two_for = |minutes: u64| {
            let mut shares = Shares::default();
            // (Minute by minute, for it decays meanwhile.)
            (0..minutes).for_each(|m| shares.charge(&"x".into(), 2.0 * MINUTE as f64, m * MINUTE));
            shares.used("x", minutes * MINUTE)
        };
        let look = |dues: &mut Dues<u8>, minutes, share: f64| {
            dues.look(
                |who| if who == "bob" { share * two_for(minutes) } else { 1e30 },
                minutes * MINUTE,
            );
            (dues.is_short("ann"), dues.is_short("bob"))
        };
        assert_eq!(look(&mut dues, 60, 0.4), (false, false));
        assert_eq!(look(&mut dues, 68, 0.2), (false, true));
        // (It is not yet time to look.)
        assert_eq!(look(&mut dues, 69, 0.6), (false, true));
        assert_eq!(look(&mut dues, 76, 0.4), (false, true));
        assert_eq!(look(&mut dues, 84, 0.6), (false, false));
        assert_eq!(look(&mut dues, 92, 0.2), (false, true));
        // A user without applications is not short; without memory of dues no user is.
        dues.clear_parts(92 * MINUTE);
        assert_eq!(look(&mut dues, 100, 0.0), (false, false));
        dues.set_wants(1, 4, vec![want("bob", 1, 400)], 100 * MINUTE);
        dues.set_half_life(Duration::ZERO, 100 * MINUTE);
        assert_eq!((dues.looks_ns(), look(&mut dues, 200, 0.0)), (None, (false, false)));
    }

    proptest! {
        /// The simplest way: a small step for each user who wants more, again and again.
        #[test]
        fn due_is_what_a_little_for_each_comes_to(
            processors in 1u64..50,
            wants in proptest::collection::vec((1u32..4, 0u64..40), 0..8),
        ) {
            const STEP: f64 = 1e-3;
            let named = wants.iter().enumerate().map(|(n, (weight, p))| want(&n.to_string(), *weight, *p));
            let found: BTreeMap<Holder, f64> = fair(processors, named.collect()).into_iter().collect();
            let (mut left, mut had) = (processors as f64, vec![0.0; wants.len()]);
            loop {
                let mut any = false;
                for (had, (weight, wants)) in had.iter_mut().zip(&wants) {
                    let more = STEP * f64::from(*weight);
                    if *had + more <= *wants as f64 && left >= more {
                        (*had, left, any) = (*had + more, left - more, true);
                    }
                }
                if !any { break }
            }
            for (n, had) in had.iter().enumerate() {
                let found = found[&Holder::from(n.to_string())];
                prop_assert!((found - had).abs() < 0.05, "{n}: {found} and {had} of {wants:?}");
            }
        }
    }
}
