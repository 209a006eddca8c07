//! How far a gang is: what it has run, and paid for starts and moves.
//!
//! # The problem
//!
//! Slices are of a second or less, a log is of a year, and between two events of the log nothing else
//! happens than that the same turns come again.
//!
//! # The approach
//!
//! One round is walked through from stretch to stretch, and then another. What a start costs comes at the
//! beginning of each stretch, and what a gang runs is paid off it first; so whether the two rounds were alike
//! is seen from that alone. If they were, all others are, until the gang is moved or done: they are
//! multiplied. Else the debt of starts grows from round to round (they cost more than there is time), or
//! shrinks, by as much each time.

use super::run_intervals::RunIntervals;
use crate::simulate::Turns;
use std::time::Duration;

/// How far a gang is. Times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Until when this is known. What changes at that moment has not changed yet.
    at: u64,
    /// What it has still to run, and to pay before that.
    left: u64,
    owes_starts: u64,
    owes_moves: u64,
    /// What it owes for each start.
    start_cost: u64,
    runs: bool,
    /// Since when it does not.
    stopped: u64,
    started: Option<u64>,
    turns: Turns,
    had: TimeSpent,
}

/// What the time was for that a gang has had, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeSpent {
    /// It got on.
    pub useful: u64,
    /// It was being started.
    pub starts: u64,
    /// It was being moved or brought in.
    pub moves: u64,
}

impl Progress {
    /// One that is submitted then, and has to run for so long.
    pub fn new(submitted: u64, run: u64, start_cost: u64) -> Progress {
        Progress {
            at: submitted,
            left: run,
            owes_starts: 0,
            owes_moves: 0,
            start_cost,
            runs: false,
            stopped: submitted,
            started: None,
            turns: Turns::default(),
            had: TimeSpent::default(),
        }
    }

    /// It goes this way until then, or until it is done.
    pub fn go(&mut self, way: &RunIntervals, until: u64) {
        if let Some((from, round)) = way.repeats() {
            self.walk(way, until.min(self.at.max(from).saturating_add(round)));
            while self.left > 0 && until.saturating_sub(self.at) > round {
                let before = *self;
                self.walk(way, self.at + round);
                let times = self.alike(&before, round).min((until - self.at) / round);
                if self.left > 0 {
                    self.repeat(&before, times, round);
                }
            }
        }
        self.walk(way, until);
    }

    /// When it is done if it goes this way for ever; none: never.
    pub fn done(&self, way: &RunIntervals) -> Option<u64> {
        let mut ahead = *self;
        ahead.go(way, u64::MAX);
        (ahead.left == 0).then_some(ahead.at)
    }

    /// It is elsewhere from now on, which costs so much; if it runs it is started there.
    pub fn moved(&mut self, cost: u64) {
        self.turns.moves = self.turns.moves.saturating_add(1);
        self.owes_moves = self.owes_moves.saturating_add(cost);
        if std::mem::take(&mut self.runs) {
            self.stopped = self.at;
        }
    }

    /// When it first ran; how it took turns; what its time was for.
    pub fn told(&self) -> (Option<u64>, Turns, TimeSpent) {
        (self.started, self.turns, self.had)
    }

    /// From stretch to stretch.
    fn walk(&mut self, way: &RunIntervals, until: u64) {
        let mut stretches = way.stretches(self.at);
        while self.left > 0 && self.at < until {
            let (runs, changes) = stretches.next();
            self.turn(runs);
            let all = self.left.saturating_add(self.owes_starts).saturating_add(self.owes_moves);
            let here = changes.min(until) - self.at;
            let time = if runs { here.min(all) } else { here };
            if runs {
                self.has(time);
            }
            self.at += time;
        }
    }

    /// It runs from now on, or does not.
    fn turn(&mut self, runs: bool) {
        match (std::mem::replace(&mut self.runs, runs), runs) {
            (false, true) => {
                self.turns.starts = self.turns.starts.saturating_add(1);
                self.owes_starts = self.owes_starts.saturating_add(self.start_cost);
                self.started.get_or_insert(self.at);
                let stopped = Duration::from_nanos(self.at - self.stopped);
                self.turns.longest_stopped = self.turns.longest_stopped.max(stopped);
            }
            (true, false) => self.stopped = self.at,
            _ => {}
        }
    }

    fn has(&mut self, mut time: u64) {
        let mut pay = |owed: &mut u64, had: &mut u64| {
            let paid = time.min(*owed);
            (time, *owed, *had) = (time - paid, *owed - paid, had.saturating_add(paid));
        };
        pay(&mut self.owes_starts, &mut self.had.starts);
        pay(&mut self.owes_moves, &mut self.had.moves);
        pay(&mut self.left, &mut self.had.useful);
    }

    /// What it has to have beside starts.
    fn rest(&self) -> u64 {
        self.left.saturating_add(self.owes_moves)
    }

    /// How many rounds will be like the one since `before`, at least.
    fn alike(&self, before: &Progress, round: u64) -> u64 {
        let (owed, owes) = (before.owes_starts, self.owes_starts);
        match before.rest() - self.rest() {
            // Nothing but starts, and more and more of them.
            0 if owes >= owed => u64::MAX,
            // So many, that there is nothing else in a round.
            0 => owes.saturating_sub(round) / (owed - owes),
            rest if owes == owed => self.rest().saturating_sub(1) / rest,
            _ => 0,
        }
    }

    /// So many rounds more like the one since `before`.
    fn repeat(&mut self, before: &Progress, times: u64, round: u64) {
        let more = |now: u64, before: u64| (now - before).saturating_mul(times);
        let starts = u32::try_from(times).unwrap_or(u32::MAX);
        let starts = starts.saturating_mul(self.turns.starts - before.turns.starts);
        self.turns.starts = self.turns.starts.saturating_add(starts);
        self.had.starts = self.had.starts.saturating_add(more(self.had.starts, before.had.starts));
        let rest = more(before.rest(), self.rest());
        let moves = rest.min(self.owes_moves);
        self.owes_moves -= moves;
        self.had.moves += moves;
        self.left -= rest - moves;
        self.had.useful += rest - moves;
        self.owes_starts = match self.owes_starts.checked_sub(before.owes_starts) {
            Some(grown) => self.owes_starts.saturating_add(grown.saturating_mul(times)),
            None => self.owes_starts - more(before.owes_starts, self.owes_starts),
        };
        let time = round.saturating_mul(times);
        self.at = self.at.saturating_add(time);
        self.stopped = self.stopped.saturating_add(time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apteam::protocol::turns::{PlannedSlice, SlicePlan};
    use crate::apteam::{Apid, Incarnation, Key};
    use proptest::prelude::*;

    const KEY: Key = Key { apid: Apid(1), incarnation: Incarnation(1) };

    /// Slices of such lengths, in some of which it runs.
    fn way(begins: u64, from: u64, slices: &[(u64, bool)]) -> RunIntervals {
        let slice = |(length, runs): &(u64, bool)| PlannedSlice {
            length: Duration::from_nanos(*length),
            party: if *runs { vec![KEY] } else { vec![] },
        };
        let plan = SlicePlan {
            begins_ns: begins,
            from_ns: from,
            members: vec![KEY],
            slices: slices.iter().map(slice).collect(),
            takers: Vec::new(),
            ..SlicePlan::default()
        };
        RunIntervals::all(&plan).pop().expect("a member").1
    }

    #[test]
    fn each_start_is_paid_before_it_gets_on() {
        let half = way(0, 0, &[(10, true), (10, false)]);
        let mut gang = Progress::new(0, 1_000_000, 2);
        // 8 of each round.
        assert_eq!(gang.done(&half), Some(124_999 * 20 + 10));
        gang.go(&half, 2_000_000);
        assert_eq!(gang.had, TimeSpent { useful: 800_000, starts: 200_000, moves: 0 });
        assert_eq!(gang.turns.starts, 100_000);
        gang.moved(30);
        // It is started once more, and that is known when it was.
        assert_eq!(gang.done(&RunIntervals::Always), Some(2_000_000 + 2 + 30 + 200_000));
        assert_eq!(gang.done(&RunIntervals::Never), None);
    }

    #[test]
    fn a_start_that_takes_longer_than_the_turn_is_never_over() {
        let short = way(0, 0, &[(10, true), (10, false)]);
        assert_eq!(Progress::new(0, 1, 10).done(&short), None);
        assert_eq!(Progress::new(0, 1, 11).done(&short), None);
        assert_eq!(Progress::new(0, 1, 9).done(&short), Some(10));
        let mut gang = Progress::new(0, 1, 15);
        gang.go(&short, 2_000_000);
        assert_eq!((gang.owes_starts, gang.had.starts), (500_000, 1_000_000));
        // With longer turns from then on the debt is paid off, by 985 in a round.
        let long = way(2_000_000, 2_000_000, &[(1_000, true), (1_000, false)]);
        assert_eq!(gang.done(&long), Some(2_000_000 + 507 * 2_000 + 621));
    }

    proptest! {
        /// What comes of rounds is what comes of every stretch of them.
        #[test]
        fn rounds_are_no_other_than_their_stretches(
            slices in proptest::collection::vec((1u64..30, any::<bool>()), 1..7),
            begins in 0u64..50, lead in 0u64..5, submitted in 0u64..60, starts in 0u64..40,
            moves in 0u64..100, run in 1u64..3_000, owes in 0u64..2_000, until in 60u64..5_000,
        ) {
            let way = way(begins, begins + lead, &slices);
            let mut quick = Progress::new(submitted, run, starts);
            (quick.owes_starts, quick.owes_moves) = (owes, moves);
            let mut slow = quick;
            quick.go(&way, until);
            slow.walk(&way, until);
            // (Since when a running gang did not run is nothing.)
            slow.stopped = if slow.runs { quick.stopped } else { slow.stopped };
            prop_assert_eq!(quick, slow);
            let done = quick.done(&way);
            slow.walk(&way, 200_000);
            match done.filter(|at| *at <= 200_000) {
                Some(at) => prop_assert_eq!((slow.left, slow.at), (0, at)),
                None => prop_assert!(slow.left > 0),
            }
        }
    }
}
