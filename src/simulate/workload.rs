//! Which jobs of a log count, and as what.
//!
//! Logs have jobs that never ran, that ran longer than they were allowed to, that were wider than the
//! machine, or of which nobody knows how long they were expected to run. The rules are those by
//! which results on these logs are usually compared; every policy gets the same jobs.
//!
//! | the record says | the job |
//! | --- | --- |
//! | processors requested, or only those allocated | is as wide as the former, or the latter |
//! | wider than the machine (by either), no width, no run time, submitted before the log began | is left out |
//! | no estimate | is left out, or has its run time ([`NoEstimate`]) |
//! | it ran longer than estimated | ran as long as estimated, or was estimated as it ran ([`Overrun`]) |

use super::swf::Record;
use std::time::Duration;

/// A job of the workload. Times since the log's zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Job {
    /// On which line of the log, from 1: numbers are not always one job's.
    pub line: u64,
    /// Its number in the log.
    pub number: i64,
    /// When it is submitted.
    pub submit: Duration,
    /// Processors, at least one.
    pub width: u32,
    /// How long it runs where nothing stops it, at least one second of the log.
    pub run: Duration,
    /// How long its user says that it runs; not less than that.
    pub estimate: Duration,
    /// Bytes for each processor, where the log says how many were asked for.
    pub memory_per_processor: Option<u64>,
    /// The same of what it used, where the log says that.
    pub used_per_processor: Option<u64>,
    /// Whose it is, as a number of the log, where it says so.
    pub user: Option<u32>,
}

impl Job {
    /// Bytes that go with it where it goes: what it used, or else what was asked for, as far as the log says.
    pub fn memory_to_move(&self) -> Option<u64> {
        let each = self.used_per_processor.or(self.memory_per_processor)?;
        Some(each.saturating_mul(self.width.into()))
    }
}

/// What is done with a job without an estimate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NoEstimate {
    /// It is left out.
    #[default]
    Drop,
    /// Its run time is its estimate.
    Runtime,
}

/// What is done with a job that ran longer than its estimate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overrun {
    /// It was ended then.
    #[default]
    Kill,
    /// Its run time was its estimate (for machines that shared their processors).
    Extend,
}

/// What is done with a log that has jobs without a submit time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bad {
    /// These jobs are left out.
    #[default]
    Skip,
    /// It is not replayed.
    Refuse,
}

/// The rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Of the machine.
    pub processors: u32,
    /// See there.
    pub no_estimate: NoEstimate,
    /// See there.
    pub overrun: Overrun,
    /// What a second of the log is.
    pub unit: Duration,
}

impl Rules {
    /// The job of this record; `None`: it is left out.
    pub fn job(&self, record: &Record) -> Option<Job> {
        let known = |processors: i64| u32::try_from(processors).ok().filter(|p| *p > 0);
        let width = |processors: i64| match processors {
            ..=0 => Some(None),
            _ => known(processors).filter(|p| *p <= self.processors).map(Some),
        };
        let (requested, allocated) = (width(record.requested)?, width(record.allocated)?);
        let width = requested.or(allocated)?;
        let submit = u64::try_from(record.submit).ok()?;
        let mut run = u64::try_from(record.run).ok().filter(|run| *run > 0)?;
        let mut estimate = match u64::try_from(record.estimate).ok().filter(|time| *time > 0) {
            Some(estimate) => estimate,
            None if self.no_estimate == NoEstimate::Drop => return None,
            None => run,
        };
        if run > estimate {
            match self.overrun {
                Overrun::Kill => run = estimate,
                Overrun::Extend => estimate = run,
            }
        }
        let time = |seconds: u64| of_units(self.unit, seconds);
        let [submit, run, estimate] = [submit, run, estimate].map(time);
        Some(Job {
            line: record.line,
            number: record.job,
            submit,
            width,
            run,
            estimate,
            memory_per_processor: memory(record.memory),
            used_per_processor: memory(record.used),
            user: u32::try_from(record.user).ok(),
        })
    }
}

/// So many times such a unit.
pub fn of_units(unit: Duration, units: u64) -> Duration {
    let nanos = unit.as_nanos().saturating_mul(units.into());
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// Bytes, of what a record has in KB.
fn memory(kilobytes: i64) -> Option<u64> {
    u64::try_from(kilobytes).ok().filter(|kilobytes| *kilobytes > 0)?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: Record = Record {
        line: 1,
        job: 7,
        submit: 3,
        run: 100,
        allocated: 8,
        used: -1,
        requested: 4,
        estimate: 60,
        memory: -1,
        user: 1,
    };

    fn rules() -> Rules {
        let unit = Duration::from_secs(1);
        Rules { processors: 16, no_estimate: NoEstimate::Drop, overrun: Overrun::Kill, unit }
    }

    #[test]
    fn the_rules_are_those_of_the_table() {
        let job = rules().job(&RECORD).expect("it counts");
        let expected = Job {
            line: 1,
            number: 7,
            submit: Duration::from_secs(3),
            width: 4,
            run: Duration::from_secs(60),
            estimate: Duration::from_secs(60),
            memory_per_processor: None,
            used_per_processor: None,
            user: Some(1),
        };
        assert_eq!(job, expected);
        let record = Record { memory: 512, used: 256, user: -1, ..RECORD };
        let with_memory = rules().job(&record).expect("job");
        assert_eq!((with_memory.memory_per_processor, with_memory.user), (Some(524_288), None));
        assert_eq!(with_memory.used_per_processor, Some(262_144));
        let extended = Rules { overrun: Overrun::Extend, ..rules() }.job(&RECORD);
        assert_eq!(
            extended.map(|job| (job.run, job.estimate)),
            Some([100; 2].map(Duration::from_secs).into())
        );
        let soon = Rules { unit: Duration::from_millis(1), ..rules() }.job(&RECORD);
        let times = soon.map(|job| [job.submit, job.run, job.estimate]);
        assert_eq!(times, Some([3, 60, 60].map(Duration::from_millis)));
        let allocated = rules().job(&Record { requested: -1, ..RECORD });
        assert_eq!(allocated.map(|job| job.width), Some(8));
        for left_out in [
            Record { requested: 17, ..RECORD },
            // Also where it is narrow enough as requested.
            Record { allocated: 17, ..RECORD },
            Record { requested: 0, allocated: -1, ..RECORD },
            Record { run: 0, ..RECORD },
            Record { submit: -1, ..RECORD },
            Record { estimate: -1, ..RECORD },
        ] {
            assert_eq!(rules().job(&left_out), None, "{left_out:?}");
        }
        let runtime = Rules { no_estimate: NoEstimate::Runtime, ..rules() };
        let job = runtime.job(&Record { estimate: -1, ..RECORD });
        assert_eq!(
            job.map(|job| (job.run, job.estimate)),
            Some([100; 2].map(Duration::from_secs).into())
        );
    }
}
