//! How busy a workload keeps a machine, and the same workload made to keep it busier or less.
//!
//! The *offered load* is the work that is submitted (processors times run time) by what the machine could
//! do from the first submission to the last. To scale it the times between submissions are made shorter or
//! longer, all by the same factor; jobs stay as they are.

use super::workload::Job;

/// What is submitted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Offered {
    /// Processor seconds.
    work: f64,
    /// When the first and the last job are submitted, in seconds.
    span: Option<(u64, u64)>,
}

impl Offered {
    /// With this job too, which is submitted no earlier than those before it.
    pub fn add(&mut self, job: &Job) {
        self.work += f64::from(job.width) * job.run as f64;
        let (first, _) = self.span.unwrap_or((job.submit, job.submit));
        self.span = Some((first, job.submit));
    }

    /// On so many processors. `None`: all is submitted at once, or nothing is.
    pub fn load(&self, processors: u32) -> Option<f64> {
        let (first, last) = self.span.filter(|(first, last)| first < last)?;
        Some(self.work / (f64::from(processors) * (last - first) as f64))
    }

    /// What makes it `target` on so many processors. `None`: no factor can.
    pub fn scale(&self, processors: u32, target: f64) -> Option<Scale> {
        let (first, _) = self.span?;
        Some(Scale { first, factor: self.load(processors)? / target })
    }
}

/// Another pace of submissions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    first: u64,
    factor: f64,
}

impl Scale {
    /// The same job, submitted when it is at this pace: to the second, the first when it was.
    pub fn job(&self, job: Job) -> Job {
        let since = (job.submit.saturating_sub(self.first) as f64 * self.factor).round() as u64;
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
        let job = |submit, width, run| Job { submit, width, run, ..Job::default() };
        let jobs = [job(100, 2, 50), job(110, 4, 25), job(300, 1, 200)];
        assert_eq!(offered(&jobs).load(4), Some(0.5));
        let scale = offered(&jobs).scale(4, 1.0).expect("a span");
        let faster = jobs.clone().map(|job| scale.job(job));
        assert_eq!(faster.clone().map(|job| job.submit), [100, 105, 200]);
        assert_eq!(offered(&faster).load(4), Some(1.0));
        let slower = offered(&jobs).scale(4, 0.25).expect("a span");
        assert_eq!(jobs.clone().map(|job| slower.job(job).submit), [100, 120, 500]);
        assert_eq!(offered(&jobs[..1]).scale(4, 0.5), None);
        assert_eq!(Offered::default().load(4), None);
    }
}
