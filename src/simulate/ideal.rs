//! Ideal processor sharing: a bound to compare a policy with.
//!
//! # The problem
//!
//! EASY shows what users gain over a batch system. How much is left to gain is shown only by a
//! machine on which sharing costs nothing.
//!
//! # The approach
//!
//! Every job that is there gets on at the same rate, from its submission to its end: at full speed
//! while all of them fit on the machine by count, else at the rate at which together they use all
//! processors. It is a gang scheduler with slices of no length, without costs, that places a gang
//! on any free processors and divides one processor between two gangs as it likes. (A policy that
//! prefers short jobs can still have a smaller mean: equal rates are fair, not optimal.)
//!
//! Since all rates are equal, a clock that runs at that rate orders the ends: a job ends when that
//! clock has gone on by its run time since its submission.
//!
//! ```text
//! 4 processors         0 s      2 s                 6 s
//! A, 4 wide, 4 s       |--full--|------- half ------|
//! B, 4 wide, 2 s                |------- half ------|   each has gone on by 2 s
//! ```

use super::workload::Job;
use super::{Capacity, Outcome, Watch};
use std::collections::BTreeMap;
use std::time::Duration;

/// Replays these jobs, in their order of submission, on so many processors, none of them wider.
///
/// # Errors
/// Fails with the first error of `jobs`.
pub fn replay<E>(
    processors: u32,
    jobs: impl Iterator<Item = Result<Job, E>>,
    watch: &mut impl Watch,
) -> Result<Capacity, E> {
    let mut capacity = Capacity::default();
    // By the reading of the shared clock at the end of each, in the bits of a number of seconds: of
    // numbers that are not negative these have the same order. Then by line of the log.
    let mut live: BTreeMap<(u64, u64), Job> = BTreeMap::new();
    // Seconds: of the log, and of the shared clock. Processors that the jobs would use at full
    // speed.
    let (mut now, mut clock, mut wanted) = (0.0, 0.0, 0u64);
    let mut next = jobs.fuse();
    let mut job = next.next().transpose()?;
    if let Some(first) = &job {
        now = first.submit.as_secs_f64();
    }
    loop {
        let rate = (f64::from(processors) / wanted.max(1) as f64).min(1.0);
        let reads = live.first_key_value().map(|((bits, _), _)| f64::from_bits(*bits));
        let end = reads.map(|reads| (now + (reads - clock) / rate, reads));
        let submit = job.as_ref().map(|job| job.submit.as_secs_f64());
        let (at, reads) = match (submit, end) {
            (Some(submit), Some((end, _))) if submit < end => {
                (submit, clock + (submit - now) * rate)
            }
            (Some(submit), None) => (submit, clock),
            (_, Some((end, reads))) => (end, reads),
            (None, None) => return Ok(capacity),
        };
        let held = wanted.min(processors.into()) as f64;
        capacity.useful += held * (at - now);
        capacity.idle += (f64::from(processors) - held) * (at - now);
        (now, clock) = (at, reads);
        while let Some(first) =
            live.first_entry().filter(|first| f64::from_bits(first.key().0) <= clock)
        {
            let job = first.remove();
            wanted -= u64::from(job.width);
            let start = job.submit;
            // (No sooner than it can be: fractions of a nanosecond are lost on the way.)
            let end = Duration::from_secs_f64(now).max(start + job.run);
            watch.done(Outcome { job, start, end, turns: None });
        }
        while let Some(come) = job.take_if(|job| job.submit.as_secs_f64() <= now) {
            wanted += u64::from(come.width);
            let ends: f64 = clock + come.run.as_secs_f64();
            live.insert((ends.to_bits(), come.line), come);
            job = next.next().transpose()?;
        }
        let held = u32::try_from(wanted).unwrap_or(u32::MAX).min(processors);
        watch.at(Duration::from_secs_f64(now), held, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Default)]
    struct Seen(Vec<(u64, f64)>);

    impl Watch for Seen {
        fn done(&mut self, outcome: Outcome) {
            self.0.push((outcome.job.line, outcome.end.as_secs_f64()));
        }

        fn at(&mut self, _: Duration, _: u32, _: usize) {}
    }

    fn ends(processors: u32, jobs: &[Job]) -> (Vec<f64>, Capacity) {
        let mut seen = Seen::default();
        let all = jobs.iter().cloned().map(Ok::<_, ()>);
        let capacity = replay(processors, all, &mut seen).expect("good jobs");
        seen.0.sort_unstable_by_key(|(line, _)| *line);
        (seen.0.into_iter().map(|(_, end)| end).collect(), capacity)
    }

    fn job(line: u64, submit: u64, width: u32, run: u64) -> Job {
        let [submit, run] = [submit, run].map(Duration::from_secs);
        Job { line, submit, width, run, estimate: run, ..Job::default() }
    }

    /// In small steps, each of which gives every job that is there its part.
    fn slow(processors: u32, jobs: &[Job]) -> Vec<f64> {
        const STEPS: u64 = 200;
        let mut left: Vec<f64> = jobs.iter().map(|job| job.run.as_secs_f64()).collect();
        let mut ends = vec![0.0; jobs.len()];
        for step in 0.. {
            let at = step as f64 / STEPS as f64;
            let there = |i: &usize| jobs[*i].submit.as_secs() * STEPS <= step && left[*i] > 0.0;
            let there: Vec<usize> = (0..jobs.len()).filter(there).collect();
            if there.is_empty() && jobs.iter().all(|job| job.submit.as_secs() * STEPS <= step) {
                break;
            }
            let wanted: u32 = there.iter().map(|i| jobs[*i].width).sum();
            let rate = (f64::from(processors) / f64::from(wanted.max(1))).min(1.0);
            for i in there {
                left[i] -= rate / STEPS as f64;
                ends[i] = at;
            }
        }
        ends
    }

    #[test]
    fn jobs_that_do_not_fit_share() {
        let (found, capacity) = ends(4, &[job(1, 0, 4, 4), job(2, 2, 4, 2), job(3, 20, 1, 5)]);
        assert_eq!(found, [6.0, 6.0, 25.0]);
        // All four processors are idle for 14 s, then three of them for 5 s.
        assert_eq!((capacity.useful, capacity.idle), (29.0, 4.0 * 14.0 + 3.0 * 5.0));
        // Those that fit do not feel each other.
        assert_eq!(
            ends(4, &[job(1, 0, 2, 9), job(2, 0, 2, 3), job(3, 3, 1, 1)]).0,
            [9.0, 3.0, 4.0]
        );
        assert_eq!(ends(4, &[]).0, Vec::<f64>::new());
    }

    proptest! {
        #[test]
        fn ends_are_those_of_small_steps(
            jobs in proptest::collection::vec((0u64..8, 1u32..=6, 1u64..20), 1..20),
        ) {
            let mut submit = 0;
            let of = |(line, (after, width, run))| {
                submit += after;
                job(line, submit, width, run)
            };
            let jobs: Vec<Job> = (1..).zip(jobs).map(of).collect();
            let (quick, capacity) = ends(6, &jobs);
            for (quick, slow) in quick.iter().zip(slow(6, &jobs)) {
                // (A job that should have ended in a step has part of the next one too.)
                prop_assert!((quick - slow).abs() < 0.5, "{quick} and {slow}");
            }
            let work: u64 = jobs.iter().map(|job| u64::from(job.width) * job.run.as_secs()).sum();
            prop_assert!((capacity.useful - work as f64).abs() < 1e-6 * work as f64);
        }
    }
}
