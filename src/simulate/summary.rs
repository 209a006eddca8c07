//! All that is told of one replay.

use super::classes::Classes;
use super::figures::Felt;
use super::load::Offered;
use super::{Capacity, Outcome};
use std::cmp::Reverse;
use std::time::Duration;

/// How many of the worst-off are told by number.
const WORST: usize = 10;
/// Who is better or worse off by less is neither.
const NOTICED: Duration = Duration::from_secs(60);

/// All that is told of one replay.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Of the machine.
    pub processors: u32,
    /// From the first submission to the last end.
    pub span: Duration,
    /// Where there is a span of submissions.
    pub offered_load: Option<f64>,
    /// Where the machine's time went.
    pub capacity: Capacity,
    /// Of all jobs.
    pub felt: Felt,
    /// Of each class.
    pub classes: Classes,
    /// How gangs took turns, under a policy under which they may.
    pub turns: Option<TurnsTaken>,
    /// The longest stretch without running, and the number of whose it was.
    pub longest_stopped: (Duration, i64),
    /// The longest time in all, likewise.
    pub longest_wait: (Duration, i64),
    /// Where there was something to compare with.
    pub against: Option<Against>,
}

/// How gangs took turns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TurnsTaken {
    /// Starts of a job: mean and largest.
    pub starts: (f64, u32),
    /// Moves of a job: mean and largest.
    pub moves: (f64, u32),
}

/// The same jobs under a baseline.
#[derive(Clone, Debug, PartialEq)]
pub struct Against {
    /// The part of the jobs whose response is shorter by over a minute.
    pub better: f64,
    /// And longer.
    pub worse: f64,
    /// Whose response is longer by most, from the worst.
    pub worst: Vec<Worse>,
}

/// A job that is worse off than under the baseline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worse {
    /// Its number.
    pub job: i64,
    /// Processors.
    pub width: u32,
    /// How long it runs.
    pub run: Duration,
    /// Here.
    pub response: Duration,
    /// Under the baseline.
    pub there: Duration,
}

impl Summary {
    /// Of these outcomes, in the order of the log. A run shorter than `bound` counts as `bound` in
    /// slowdowns. `baseline` has the responses of the same jobs in the same order.
    pub fn of(
        outcomes: &[Outcome],
        processors: u32,
        capacity: Capacity,
        bound: Duration,
        baseline: Option<&[Duration]>,
    ) -> Summary {
        let mut offered = Offered::default();
        outcomes.iter().for_each(|outcome| offered.add(&outcome.job));
        let first = outcomes.first().map_or(Duration::ZERO, |outcome| outcome.job.submit);
        let last = outcomes.iter().map(|outcome| outcome.end).max().unwrap_or_default();
        let longest = |time: fn(&Outcome) -> Duration| {
            // Of equals the first.
            let longest = outcomes.iter().max_by_key(|o| (time(o), Reverse(o.job.line)));
            longest.map_or((Duration::ZERO, 0), |o| (time(o), o.job.number))
        };
        Summary {
            processors,
            span: last.saturating_sub(first),
            offered_load: offered.load(processors),
            capacity,
            felt: Felt::of(outcomes.iter(), bound),
            classes: Classes::of(outcomes, processors, bound),
            turns: TurnsTaken::of(outcomes),
            longest_stopped: longest(Outcome::longest_stopped),
            longest_wait: longest(Outcome::wait),
            against: baseline.map(|baseline| Against::of(outcomes, baseline)),
        }
    }

    /// The part of the machine's time in which jobs got on.
    pub fn utilisation(&self) -> f64 {
        self.capacity.useful / self.capacity.total().max(f64::MIN_POSITIVE)
    }
}

impl TurnsTaken {
    fn of(outcomes: &[Outcome]) -> Option<TurnsTaken> {
        outcomes.iter().find(|outcome| outcome.turns.is_some())?;
        let turns = outcomes.iter().map(|outcome| outcome.turns.unwrap_or_default());
        let of = |values: Vec<u32>| {
            let sum: u64 = values.iter().map(|value| u64::from(*value)).sum();
            (sum as f64 / values.len() as f64, values.into_iter().max().unwrap_or_default())
        };
        let starts = of(turns.clone().map(|turns| turns.starts).collect());
        Some(TurnsTaken { starts, moves: of(turns.map(|turns| turns.moves).collect()) })
    }
}

impl Against {
    fn of(outcomes: &[Outcome], baseline: &[Duration]) -> Against {
        let pairs = || outcomes.iter().zip(baseline.iter().copied());
        let part = |counts: fn(Duration, Duration) -> bool| {
            let those = pairs().filter(|(o, there)| counts(o.response(), *there));
            those.count() as f64 / outcomes.len().max(1) as f64
        };
        let mut worst: Vec<_> =
            pairs().filter(|(outcome, there)| outcome.response() > *there).collect();
        worst.sort_by_key(|(outcome, there)| Reverse(outcome.response() - *there));
        worst.truncate(WORST);
        let worse = |(outcome, there): (&Outcome, Duration)| Worse {
            job: outcome.job.number,
            width: outcome.job.width,
            run: outcome.job.run,
            response: outcome.response(),
            there,
        };
        Against {
            better: part(|here, there| here + NOTICED < there),
            worse: part(|here, there| here > there + NOTICED),
            worst: worst.into_iter().map(worse).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Turns;
    use super::super::figures::SLOWDOWN_BOUND;
    use super::super::workload::Job;
    use super::*;

    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn outcome(line: u64, submit: u64, start: u64, end: u64, turns: Option<Turns>) -> Outcome {
        let number = line as i64 * 10;
        let (submit, run) = (secs(submit), secs(100));
        let job = Job { line, number, submit, width: 2, run, ..Job::default() };
        Outcome { job, start: secs(start), end: secs(end), turns }
    }

    #[test]
    fn who_is_worse_off_is_told_by_number() {
        let outcomes: Vec<Outcome> =
            (1..=20).map(|n| outcome(n, n, n, n + 100 * n, None)).collect();
        let there: Vec<Duration> =
            (1..=20).map(|n| secs(if n < 6 { 1_000 } else { 100 })).collect();
        let summary = Summary::of(&outcomes, 4, Capacity::default(), SLOWDOWN_BOUND, Some(&there));
        let against = summary.against.expect("a baseline");
        assert_eq!((against.better, against.worse), (0.25, 0.75));
        let worst: Vec<i64> = against.worst.iter().map(|worse| worse.job).collect();
        assert_eq!(worst, (11..=20).rev().map(|n| n * 10).collect::<Vec<i64>>());
        let first = &against.worst[0];
        assert_eq!((first.response, first.there), (secs(2_000), secs(100)));
        assert_eq!(summary.longest_wait, (secs(1_900), 200));
        assert_eq!(summary.span, secs(2_019));
        assert_eq!((summary.turns, summary.longest_stopped), (None, (Duration::ZERO, 10)));
    }

    #[test]
    fn turns_are_summed_up() {
        let turns =
            |starts, moves, stopped| Some(Turns { starts, moves, longest_stopped: secs(stopped) });
        let outcomes =
            [outcome(1, 0, 0, 500, turns(3, 0, 90)), outcome(2, 0, 10, 300, turns(1, 4, 10))];
        let summary = Summary::of(&outcomes, 4, Capacity::default(), SLOWDOWN_BOUND, None);
        let taken = TurnsTaken { starts: (2.0, 3), moves: (2.0, 4) };
        assert_eq!(summary.turns, Some(taken));
        assert_eq!(summary.longest_stopped, (secs(90), 10));
        assert_eq!(summary.longest_wait, (secs(400), 10));
        assert_eq!(summary.offered_load, None);
    }

    #[test]
    fn capacity_is_all_accounted_for() {
        let capacity = Capacity { useful: 30.0, idle: 60.0, kept: 10.0, ..Capacity::default() };
        let summary = Summary::of(&[], 4, capacity, SLOWDOWN_BOUND, None);
        assert_eq!((summary.utilisation(), capacity.total()), (0.3, 100.0));
    }
}
