//! A recorded workload, replayed in virtual time.
//!
//! # The problem
//!
//! Whether a policy is good shows in months of somebody's work on a whole machine. Nobody has these
//! months, nor may two policies be tried on the same ones: but archives have logs of what was
//! submitted, when, how wide and how long.
//!
//! # The approach
//!
//! [`swf`] reads such a log job by job, [`workload`] says which of its jobs count and as what. A
//! policy is driven through them as fast as it can decide, with a clock that is only what the next event
//! says. Two are here to be compared with, as batch systems have them: first come first served, and EASY
//! backfilling ([`baseline`]). What became of each job is an [`Outcome`].
//!
//! ```
//! use psched::simulate::baseline::{Policy, replay};
//! use psched::simulate::workload::Job;
//!
//! let job = |number, width, run| Job { line: 1, number, submit: 0, width, run, estimate: run };
//! let jobs = [job(1, 3, 100), job(2, 4, 50), job(3, 1, 100)];
//! let outcomes = |policy| {
//!     let mut starts = Vec::new();
//!     replay(4, policy, jobs.iter().cloned().map(Ok::<_, ()>), |o| starts.push((o.job.number, o.start)))
//!         .unwrap();
//!     starts.sort_unstable();
//!     starts
//! };
//! // The third need not wait for the second, which needs the whole machine: it is over in time.
//! assert_eq!(outcomes(Policy::Fcfs), [(1, 0), (2, 100), (3, 150)]);
//! assert_eq!(outcomes(Policy::Easy), [(1, 0), (2, 100), (3, 0)]);
//! ```

pub mod baseline;
pub mod figures;
pub mod swf;
pub mod workload;

use workload::Job;

/// What became of a job. Times in seconds of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Of the workload.
    pub job: Job,
    /// When it first ran.
    pub start: u64,
    /// When it was done.
    pub end: u64,
}
