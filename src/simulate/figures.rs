//! What users felt, in numbers.
//!
//! A job's *wait* is the time in which it did not run between its submission and its end, its
//! *response* all of that time, and its *bounded slowdown* how many times longer than alone it took:
//! response / run, where a run that is shorter than a bound counts as that bound, and never less
//! than 1.

use super::Outcome;
use std::time::Duration;

/// A bound that figures on such logs are usually told with.
#[cfg(test)]
pub const SLOWDOWN_BOUND: Duration = Duration::from_secs(10);

impl Outcome {
    /// From its submission to its end.
    pub fn response(&self) -> Duration {
        self.end.saturating_sub(self.job.submit)
    }

    /// All of that in which it did not get on.
    pub fn wait(&self) -> Duration {
        self.response().saturating_sub(self.job.run)
    }

    /// The longest stretch of it without running.
    pub fn longest_stopped(&self) -> Duration {
        self.turns.map_or(self.start.saturating_sub(self.job.submit), |turns| turns.longest_stopped)
    }

    /// At least 1; runs shorter than `bound`, which is not zero, count as that.
    pub fn bounded_slowdown(&self, bound: Duration) -> f64 {
        let alone = self.job.run.max(bound);
        (self.response().as_secs_f64() / alone.as_secs_f64()).max(1.0)
    }
}

/// How values are spread.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// Of all.
    pub mean: f64,
    /// The one in the middle.
    pub median: f64,
    /// 95 of 100 are no more.
    pub p95: f64,
    /// 99 of 100 are no more.
    pub p99: f64,
    /// 999 of 1000 are no more.
    pub p999: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// That of these; all zero of none.
    pub fn of(values: impl Iterator<Item = f64>) -> Spread {
        let mut values: Vec<f64> = values.collect();
        values.sort_unstable_by(f64::total_cmp);
        let at = |per_mille: usize| {
            let at = (values.len() * per_mille / 1_000).min(values.len().saturating_sub(1));
            values.get(at).copied().unwrap_or_default()
        };
        Spread {
            mean: values.iter().sum::<f64>() / values.len().max(1) as f64,
            median: at(500),
            p95: at(950),
            p99: at(990),
            p999: at(999),
            max: values.last().copied().unwrap_or_default(),
        }
    }
}

/// What the users of some jobs felt; times in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Felt {
    /// How many they are.
    pub jobs: usize,
    /// Time in which they did not get on.
    pub wait: Spread,
    /// Time from submission to end.
    pub response: Spread,
    /// At least 1.
    pub bounded_slowdown: Spread,
}

impl Felt {
    /// By these; runs shorter than `bound` count as that in slowdowns.
    pub fn of<'o>(outcomes: impl Iterator<Item = &'o Outcome> + Clone, bound: Duration) -> Felt {
        let spread = |value: fn(&Outcome) -> f64| Spread::of(outcomes.clone().map(value));
        Felt {
            jobs: outcomes.clone().count(),
            wait: spread(|o| o.wait().as_secs_f64()),
            response: spread(|o| o.response().as_secs_f64()),
            bounded_slowdown: Spread::of(outcomes.map(|o| o.bounded_slowdown(bound))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::workload::Job;
    use super::*;

    #[test]
    fn a_job_is_told_in_three_numbers() {
        let outcome = |submit, run, start, end| Outcome {
            job: Job {
                submit: Duration::from_secs(submit),
                run: Duration::from_secs(run),
                ..Job::default()
            },
            start: Duration::from_secs(start),
            end: Duration::from_secs(end),
            turns: None,
        };
        let told = |o: Outcome| {
            let slowdown = o.bounded_slowdown(SLOWDOWN_BOUND);
            (o.wait().as_secs(), o.response().as_secs(), slowdown)
        };
        assert_eq!(told(outcome(10, 100, 60, 160)), (50, 150, 1.5));
        // A second's run after ten seconds is no slowdown of eleven.
        assert_eq!(told(outcome(0, 1, 10, 11)), (10, 11, 1.1));
        assert_eq!(told(outcome(0, 1, 0, 1)), (0, 1, 1.0));
        // But where a second counts it is.
        let bounds = [Duration::from_secs(1), Duration::from_millis(100)];
        assert_eq!(bounds.map(|bound| outcome(0, 1, 10, 11).bounded_slowdown(bound)), [11.0; 2]);
    }

    #[test]
    fn values_are_spread() {
        let spread = Spread::of((0..200).rev().map(f64::from));
        let expected =
            Spread { mean: 99.5, median: 100.0, p95: 190.0, p99: 198.0, p999: 199.0, max: 199.0 };
        assert_eq!(spread, expected);
        assert_eq!(Spread::of(std::iter::empty()), Spread::default());
        assert_eq!(Spread::of([3.0].into_iter()).p99, 3.0);
    }
}
