//! Jobs by how wide they are, and by how long they run: who pays for what others gain.
//!
//! A policy may be good in the mean and bad to those whom it is hard on: the widest, and the longest. So
//! the figures are also those of each class of width, as a part of the machine, of each class of run time,
//! and of each class of width among jobs that run for long.

use super::Outcome;
use super::figures::Felt;
use std::time::Duration;

/// Runs over this are long.
const LONG: Duration = Duration::from_secs(2 * 3600);
/// Where one class of run times ends and the next begins; each with its name.
const RUNS: [(&str, Duration); 5] = [
    ("to 1m", Duration::from_secs(60)),
    ("to 10m", Duration::from_secs(600)),
    ("to 2h", LONG),
    ("to 10h", Duration::from_secs(10 * 3600)),
    ("over 10h", Duration::MAX),
];
/// Into which parts of a machine wider jobs are put, beside those of one processor.
const PARTS: [u32; 4] = [8, 4, 2, 1];

/// Jobs that are alike, and what their users felt.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// As `2-16`, processors, or `to 10m`.
    pub name: String,
    /// What they felt.
    pub felt: Felt,
}

/// All classes; those without jobs are left out.
#[derive(Clone, Debug, PartialEq)]
pub struct Classes {
    /// By width.
    pub width: Vec<Class>,
    /// By run time.
    pub run: Vec<Class>,
    /// By width, of those that run for more than two hours.
    pub long_by_width: Vec<Class>,
}

impl Classes {
    /// Of these, on so many processors; runs shorter than `bound` count as that in slowdowns.
    pub fn of(outcomes: &[Outcome], processors: u32, bound: Duration) -> Classes {
        let widths = widths(processors);
        let by_width = |long: bool| {
            let counts = move |o: &Outcome| !long || o.job.run > LONG;
            let class = |(name, most): &(String, u32)| (name.clone(), *most);
            let widths = widths.iter().map(class);
            of_each(outcomes, bound, widths, move |o| counts(o).then_some(o.job.width))
        };
        let runs = RUNS.iter().map(|(name, most)| ((*name).to_owned(), *most));
        let run = of_each(outcomes, bound, runs, |o| Some(o.job.run));
        Classes { width: by_width(false), run, long_by_width: by_width(true) }
    }
}

/// The classes of width of a machine, each with its largest.
fn widths(processors: u32) -> Vec<(String, u32)> {
    let mut widths = vec![("1".to_owned(), 1)];
    let mut least = 2;
    for most in PARTS.map(|part| processors / part) {
        if most >= least {
            let name = if most == least { most.to_string() } else { format!("{least}-{most}") };
            widths.push((name, most));
            least = most + 1;
        }
    }
    widths
}

/// Puts each into the first class whose largest value its own is no more than.
fn of_each<V: Ord>(
    outcomes: &[Outcome],
    bound: Duration,
    classes: impl Iterator<Item = (String, V)>,
    value: impl Fn(&Outcome) -> Option<V>,
) -> Vec<Class> {
    let classes: Vec<(String, V)> = classes.collect();
    let mut within: Vec<Vec<&Outcome>> = classes.iter().map(|_| Vec::new()).collect();
    for outcome in outcomes {
        let Some(value) = value(outcome) else { continue };
        let class = classes.iter().zip(&mut within).find(|((_, most), _)| value <= *most);
        if let Some((_, within)) = class {
            within.push(outcome);
        }
    }
    let classes = classes.into_iter().zip(within).filter(|(_, within)| !within.is_empty());
    let felt = |within: Vec<&Outcome>| Felt::of(within.iter().copied(), bound);
    classes.map(|((name, _), within)| Class { name, felt: felt(within) }).collect()
}

#[cfg(test)]
mod tests {
    use super::super::figures::SLOWDOWN_BOUND;
    use super::super::workload::Job;
    use super::*;

    fn outcome(width: u32, run: u64) -> Outcome {
        let end = Duration::from_secs(run);
        Outcome {
            job: Job { width, run: end, ..Job::default() },
            start: Duration::ZERO,
            end,
            turns: None,
        }
    }

    fn names(classes: &[Class]) -> Vec<(&str, usize)> {
        classes.iter().map(|class| (class.name.as_str(), class.felt.jobs)).collect()
    }

    #[test]
    fn each_job_is_in_one_class_of_each_kind() {
        let widths = [1, 2, 16, 17, 32, 33, 64, 65, 128];
        let runs = [1, 60, 61, 600, 601, 7_200, 7_201, 36_000, 36_001];
        let outcomes: Vec<Outcome> =
            widths.into_iter().zip(runs).map(|(width, run)| outcome(width, run)).collect();
        let classes = Classes::of(&outcomes, 128, SLOWDOWN_BOUND);
        let width = [("1", 1), ("2-16", 2), ("17-32", 2), ("33-64", 2), ("65-128", 2)];
        assert_eq!(names(&classes.width), width);
        let run = [("to 1m", 2), ("to 10m", 2), ("to 2h", 2), ("to 10h", 2), ("over 10h", 1)];
        assert_eq!(names(&classes.run), run);
        assert_eq!(names(&classes.long_by_width), [("33-64", 1), ("65-128", 2)]);
    }

    #[test]
    fn small_machines_have_few_classes() {
        let names = |processors| -> Vec<String> {
            widths(processors).into_iter().map(|(name, _)| name).collect()
        };
        assert_eq!(names(1), ["1"]);
        assert_eq!(names(2), ["1", "2"]);
        assert_eq!(names(10), ["1", "2", "3-5", "6-10"]);
    }
}
