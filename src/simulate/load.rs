//! How busy a workload keeps a machine, and the same workload made to keep it busier or less.
//!
//! The *offered load* is the work that is submitted (processors times run time) by what the machine
//! could do from the first submission to the last. To scale it the times between submissions are
//! made shorter or longer, all by the same factor; jobs stay as they are.

use super::workload::{Job, of_units};
use std::time::Duration;

/// What is submitted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Offered {
    /// Processor seconds.
    work: f64,
    /// When the first and the last job are submitted.
    span: Option<(Duration, Duration)>,
}

impl Offered {
    /// With this job too, which is submitted no earlier than those before it.
    pub fn add(&mut self, job: &Job) {
        self.work += f64::from(job.width) * job.run.as_secs_f64();
        let (first, _) = self.span.unwrap_or((job.submit, job.submit));
        self.span = Some((first, job.submit));
    }

    /// On so many processors. `None`: all is submitted at once, or nothing is.
    pub fn load(&self, processors: u32) -> Option<f64> {
        let (first, last) = self.span.filter(|(first, last)| first < last)?;
        Some(self.work / (f64::from(processors) * (last - first).as_secs_f64()))
    }

    /// What makes it `target` on so many processors, with times that are whole ones of `unit`,
    /// which is not zero. `None`: no factor can.
    pub fn scale(&self, processors: u32, target: f64, unit: Duration) -> Option<Scale> {
        let (first, _) = self.span?;
        Some(Scale { first, factor: self.load(processors)? / target, unit })
    }
}

/// Another pace of submissions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    first: Duration,
    factor: f64,
    unit: Duration,
}

impl Scale {
    /// The same job, submitted when it is at this pace: to the unit, the first when it was.
    pub fn job(&self, job: Job) -> Job {
        let unit = self.unit.as_nanos().max(1);
        let since = job.submit.saturating_sub(self.first).as_nanos() / unit;
        let since = (since as f64 * self.factor).round() as u64;
        let since = of_units(self.unit, since);
        Job { submit: self.first.saturating_add(since), ..job }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offered(jobs: &[Job]) -> Offered {
        let mut offered = Offered::default();
        jobs.iter().for_each(|job| offered.add(job));
        offered
    }

    #[test]
    fn a_load_is_scaled_by_the_times_between_submissions() {
        let secs = Duration::from_secs;
        let job = |submit, width, run| Job {
            submit: secs(submit),
            width,
            run: secs(run),
            ..Job::default()
        };
        let jobs = [job(100, 2, 50), job(110, 4, 25), job(300, 1, 200)];
        assert_eq!(offered(&jobs).load(4), Some(0.5));
        let scale = offered(&jobs).scale(4, 1.0, secs(1)).expect("a span");
        let faster = jobs.clone().map(|job| scale.job(job));
        assert_eq!(faster.clone().map(|job| job.submit), [100, 105, 200].map(secs));
        assert_eq!(offered(&faster).load(4), Some(1.0));
        let slower = offered(&jobs).scale(4, 0.25, secs(1)).expect("a span");
        assert_eq!(jobs.clone().map(|job| slower.job(job).submit), [100, 120, 500].map(secs));
        assert_eq!(offered(&jobs[..1]).scale(4, 0.5, secs(1)), None);
        assert_eq!(Offered::default().load(4), None);
    }
}
