//! How long a gang that is on several apinits ran on some of them and not on others.
//!
//! # Problem
//! None of them knows: each tells when it let its part run and when it stopped it. One may start late,
//! miss a turn altogether or run on through another's; one may be dead or out of reach and tell nothing,
//! or less than all. And nobody tells what was so before the first change.
//!
//! # Approach
//! Of each apinit the changes that it told are kept in order of time. Between two of them it is known what
//! was so: it ran if the earlier one let it run and the later one stopped it (before the first told one:
//! by that alone). Two alike in a row say that one between them was not told, and then it is not known.
//! The time up to which all have told a later change is counted, once; of one that is in touch with psched
//! and has told nothing for [`LATE`] after another's change, what it told last is taken as still so.
//!
//! ```text
//!   apinit 0   |#####|     |#####|     |#####        # it ran
//!   apinit 2    |#####|                 |####
//!   in part    !     !     !!!!!!!     !              the second turn was missed there
//! ```

use crate::machine::Nid;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Changes that are kept of each apinit: they tell each second, in which there are a hundred at the
/// shortest slices.
const CHANGES_MAX: usize = 256;
/// Apinits tell each second what has changed there.
const LATE: u64 = 5_000_000_000;

/// How a gang that is on several apinits ran on some of them and not on others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Partial {
    /// In all.
    pub total: Duration,
    /// How many times.
    pub times: u64,
    /// At most.
    pub longest: Duration,
}

/// What its apinits have told of one gang, and what comes of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Parts {
    pub partial: Partial,
    /// By the lowest NID of each: when it was let run (true) or stopped.
    changes: BTreeMap<Nid, VecDeque<(u64, bool)>>,
    /// The time before is counted.
    counted_ns: u64,
    /// It ran in part up to there, for so long.
    on: Duration,
}

impl Parts {
    /// On this apinit it was let run then, or stopped.
    pub fn changed(&mut self, apinit: Nid, at_ns: u64, runs: bool) {
        let changes = self.changes.entry(apinit).or_default();
        let after = changes.iter().rev().take_while(|(at, _)| *at > at_ns).count();
        changes.insert(changes.len() - after, (at_ns, runs));
    }

    /// Changes of this apinit before that time were not told: up to there nothing is known of it.
    pub fn left_out(&mut self, apinit: Nid, before_ns: u64) {
        if self.changes.remove(&apinit).is_some() {
            self.counted_ns = self.counted_ns.max(before_ns);
            self.on = Duration::ZERO;
        }
    }

    /// Counts what is known by now. It is on so many `apinits`; of those which are not in `touch` nothing
    /// is taken for granted.
    pub fn count(&mut self, apinits: usize, touch: impl Fn(Nid) -> bool) {
        let last = |changes: &VecDeque<(u64, bool)>| changes.back().map_or(0, |(at, _)| *at);
        let late = self.changes.values().map(last).max().unwrap_or(0).saturating_sub(LATE);
        let known = |(nid, changes): (&Nid, &VecDeque<_>)| match last(changes) {
            at if at < late && touch(*nid) => late,
            at => at,
        };
        if self.changes.len() == apinits {
            let until_ns = self.changes.iter().map(known).min().unwrap_or(0);
            self.sweep(until_ns);
        }
        for changes in self.changes.values_mut() {
            let over = changes.len().saturating_sub(CHANGES_MAX);
            if let Some((at, _)) = changes.drain(..over).next_back() {
                self.counted_ns = self.counted_ns.max(at);
                self.on = Duration::ZERO;
            }
            // The last one before is needed to tell what was so after it.
            while changes.get(1).is_some_and(|(at, _)| *at <= self.counted_ns) {
                changes.pop_front();
            }
        }
    }

    /// Counts the time up to there. A thousand apinits tell of ten changes each second, so each change is looked at
    /// once, and says what is so from then on of its own apinit only.
    fn sweep(&mut self, until_ns: u64) {
        if until_ns <= self.counted_ns {
            return;
        }
        let changes = std::mem::take(&mut self.changes);
        let mut told: Vec<Told<'_>> =
            changes.values().map(|changes| Told::at(changes, self.counted_ns)).collect();
        let mut so = So::default();
        told.iter().for_each(|of| *so.of(of.runs()) += 1);
        let mut bounds: Vec<(u64, usize)> = Vec::new();
        for (number, of) in told.iter().enumerate() {
            let later = of.changes.range(of.past..).map(|(at, _)| *at);
            bounds.extend(later.take_while(|at| *at <= until_ns).map(|at| (at, number)));
        }
        bounds.sort_unstable();
        for (at, number) in bounds {
            if at > self.counted_ns {
                self.stretch(at, so.is_in_part());
                self.counted_ns = at;
            }
            if let Some(of) = told.get_mut(number) {
                *so.of(of.runs()) -= 1;
                of.past += 1;
                *so.of(of.runs()) += 1;
            }
        }
        if until_ns > self.counted_ns {
            self.stretch(until_ns, so.is_in_part());
            self.counted_ns = until_ns;
        }
        self.changes = changes;
    }

    /// From what is counted to there nothing changed.
    fn stretch(&mut self, to_ns: u64, in_part: bool) {
        let from_ns = self.counted_ns;
        // Before the first change that anybody told there was nothing.
        if !in_part || from_ns == 0 {
            self.on = Duration::ZERO;
            return;
        }
        let time = Duration::from_nanos(to_ns - from_ns);
        self.partial.times += u64::from(self.on.is_zero());
        self.on = self.on.saturating_add(time);
        self.partial.total = self.partial.total.saturating_add(time);
        self.partial.longest = self.partial.longest.max(self.on);
    }
}

/// What an apinit has told, seen from a time.
struct Told<'a> {
    changes: &'a VecDeque<(u64, bool)>,
    /// So many changes are over by then.
    past: usize,
}

impl Told<'_> {
    fn at(changes: &VecDeque<(u64, bool)>, at_ns: u64) -> Told<'_> {
        Told { changes, past: changes.partition_point(|(at, _)| *at <= at_ns) }
    }

    /// Whether it ran there from then to the next change, if that is known.
    fn runs(&self) -> Option<bool> {
        let before = self.past.checked_sub(1).and_then(|last| self.changes.get(last));
        let after = self.changes.get(self.past);
        match (before.map(|(_, runs)| *runs), after.map(|(_, runs)| !*runs)) {
            (Some(before), Some(after)) => (before == after).then_some(before),
            (before, after) => before.or(after),
        }
    }
}

/// On how many apinits it ran, did not run, and of how many that is not known.
#[derive(Default)]
struct So {
    runs: usize,
    stands: usize,
    unknown: usize,
}

impl So {
    fn of(&mut self, runs: Option<bool>) -> &mut usize {
        match runs {
            Some(true) => &mut self.runs,
            Some(false) => &mut self.stands,
            None => &mut self.unknown,
        }
    }

    fn is_in_part(&self) -> bool {
        self.unknown == 0 && self.runs > 0 && self.stands > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// What apinits 0 and 1 have told, in milliseconds: let run, stopped, and so on.
    fn told(parts: &mut Parts, apinit: u32, first: bool, at: &[u64]) {
        for (number, at) in at.iter().enumerate() {
            parts.changed(Nid(apinit), at * MS, first == (number % 2 == 0));
        }
    }

    fn took(parts: &Parts) -> (u128, u64, u128) {
        let Partial { total, times, longest } = parts.partial;
        (total.as_millis(), times, longest.as_millis())
    }

    #[test]
    fn late_starts_and_late_stops() {
        let mut parts = Parts::default();
        told(&mut parts, 0, true, &[100, 200, 300, 400]);
        parts.count(2, |_| true);
        assert_eq!(took(&parts), (0, 0, 0));
        told(&mut parts, 1, true, &[102, 203, 300]);
        parts.count(2, |_| true);
        assert_eq!(took(&parts), (5, 2, 3));
        // It is said once.
        parts.count(2, |_| true);
        told(&mut parts, 1, false, &[400]);
        parts.count(2, |_| true);
        assert_eq!(took(&parts), (5, 2, 3));
    }

    #[test]
    fn a_turn_that_is_missed() {
        let mut parts = Parts::default();
        told(&mut parts, 0, true, &[100, 200, 300, 400, 500, 600]);
        told(&mut parts, 1, true, &[100, 200, 500, 600]);
        parts.count(2, |_| true);
        assert_eq!(took(&parts), (100, 1, 100));
    }

    /// Apinit 1 is stopped for a while, and what it had let run runs on.
    #[test]
    fn a_stop_that_is_missed() {
        let mut parts = Parts::default();
        told(&mut parts, 0, true, &[100, 200, 300, 400, 500, 600]);
        told(&mut parts, 1, true, &[100, 420, 500, 600]);
        parts.count(2, |_| true);
        assert_eq!(took(&parts), (120, 2, 100));
    }

    #[test]
    fn one_that_ran_before_is_not_taken_for_one_that_missed_it() {
        // It came, went on at once on 1, and was frozen on 0 until a plan let it run there.
        let mut parts = Parts::default();
        told(&mut parts, 0, true, &[100, 200, 300]);
        told(&mut parts, 1, false, &[200, 300]);
        parts.count(2, |_| true);
        assert_eq!(took(&parts), (0, 0, 0));
    }

    #[test]
    fn of_one_that_is_silent_it_is_taken_that_nothing_changed() {
        let of = |touch| {
            let mut parts = Parts::default();
            told(&mut parts, 1, true, &[100, 200]);
            told(&mut parts, 0, true, &[100, 200, 300, 400, 5_000, 5_350]);
            parts.count(2, |nid| nid == Nid(0) || touch);
            took(&parts)
        };
        assert_eq!((of(true), of(false)), ((50, 1, 50), (0, 0, 0)));
    }

    #[test]
    fn what_was_not_told_is_not_counted() {
        let mut parts = Parts::default();
        // Between 100 and 500 something is missing on 1.
        told(&mut parts, 0, true, &[90, 200, 300, 400, 500, 600]);
        told(&mut parts, 1, true, &[100]);
        told(&mut parts, 1, true, &[500, 600]);
        parts.count(2, |_| true);
        assert_eq!(took(&parts), (10, 1, 10));
        told(&mut parts, 0, true, &[700, 800, 900]);
        parts.left_out(Nid(1), 790 * MS);
        parts.count(2, |_| true);
        told(&mut parts, 1, false, &[800, 901, 1_000]);
        told(&mut parts, 0, false, &[1_000]);
        parts.count(2, |_| true);
        assert_eq!(took(&parts), (11, 2, 10));
    }

    #[test]
    fn it_is_bounded() {
        let mut parts = Parts::default();
        told(&mut parts, 1, true, &[1]);
        for at in 0..2_000 {
            parts.changed(Nid(0), at * MS, at % 2 == 0);
            parts.count(3, |_| true);
        }
        assert_eq!(parts.changes[&Nid(0)].len(), CHANGES_MAX);
    }

    /// The same, as slow as it is obvious: for each stretch of time each apinit is asked.
    fn count_slowly(parts: &mut Parts, until_ns: u64) {
        let changes = parts.changes.clone();
        let mut bounds: Vec<u64> = changes.values().flatten().map(|(at, _)| *at).collect();
        bounds.push(until_ns);
        bounds.sort_unstable();
        bounds.dedup();
        for to in bounds.into_iter().filter(|at| *at <= until_ns) {
            let from = parts.counted_ns;
            if to <= from {
                continue;
            }
            let runs = |changes: &VecDeque<(u64, bool)>| {
                let before = changes.iter().rev().find(|(at, _)| *at <= from).map(|(_, r)| *r);
                let after = changes.iter().find(|(at, _)| *at > from).map(|(_, r)| !*r);
                match (before, after) {
                    (Some(before), Some(after)) => (before == after).then_some(before),
                    (before, after) => before.or(after),
                }
            };
            let all: Option<Vec<bool>> = changes.values().map(runs).collect();
            let in_part = all.is_some_and(|all| all.contains(&true) && all.contains(&false));
            parts.stretch(to, in_part);
            parts.counted_ns = to;
        }
    }

    proptest::proptest! {
        #[test]
        fn each_stretch_is_counted_as_if_each_apinit_were_asked(
            told in proptest::collection::vec((0u32..4, 0u64..40, proptest::bool::ANY), 0..60),
            untils in proptest::collection::vec(0u64..50, 1..5),
        ) {
            let (mut parts, mut slow) = (Parts::default(), Parts::default());
            let each = told.len() / untils.len() + 1;
            for (told, until) in told.chunks(each).zip(&untils) {
                for (apinit, at, runs) in told {
                    parts.changed(Nid(*apinit), *at, *runs);
                    slow.changed(Nid(*apinit), *at, *runs);
                }
                parts.sweep(*until);
                count_slowly(&mut slow, *until);
                proptest::prop_assert_eq!(took_ns(&parts), took_ns(&slow));
            }
        }
    }

    fn took_ns(parts: &Parts) -> (u128, u64, u128, u64) {
        let Partial { total, times, longest } = parts.partial;
        (total.as_nanos(), times, longest.as_nanos(), parts.counted_ns)
    }
}
