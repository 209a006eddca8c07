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
//! policy is driven through them as fast as it can decide, with a clock that is only what the next
//! event says. Three are here to be compared with: first come first served and EASY backfilling, as
//! batch systems have them ([`baseline`]), and sharing that costs nothing ([`ideal`]). What became
//! of each job is an [`Outcome`]; [`summary`] is what is told of all, by class too ([`classes`]),
//! [`series`] the machine over time, and [`load`] the same workload at another pace.
//!
//! ```
//! # use psched_worlds::simulate::{Outcome, Watch};
//! # use std::time::Duration;
//! use psched_worlds::simulate::baseline::{Policy, replay};
//! use psched_worlds::simulate::workload::Job;
//!
//! #[derive(Default)]
//! struct Starts(Vec<(i64, u64)>);
//! impl Watch for Starts {
//!     fn done(&mut self, o: Outcome) {
//!         self.0.push((o.job.number, o.start.as_secs()));
//!     }
//!     fn at(&mut self, _: Duration, _: u32, _: usize) {}
//! }
//!
//! let job = |number, width, run| {
//!     let run = Duration::from_secs(run);
//!     Job { number, width, run, estimate: run, ..Job::default() }
//! };
//! let jobs = [job(1, 3, 100), job(2, 4, 50), job(3, 1, 100)];
//! let starts = |policy| {
//!     let mut starts = Starts::default();
//!     replay(4, policy, jobs.iter().cloned().map(Ok::<_, ()>), &mut starts).unwrap();
//!     starts.0.sort_unstable();
//!     starts.0
//! };
//! // The third need not wait for the second, which needs the whole machine: it is over in time.
//! assert_eq!(starts(Policy::Fcfs), [(1, 0), (2, 100), (3, 150)]);
//! assert_eq!(starts(Policy::Easy), [(1, 0), (2, 100), (3, 0)]);
//! ```

pub mod baseline;
pub mod classes;
pub mod figures;
pub mod gang;
pub mod ideal;
pub mod load;
pub mod series;
pub mod summary;
pub mod swf;
pub mod workload;

use crate::machine::Machine;
use crate::variables::Variables;
use crate::variables::units::nanos;
use std::time::Duration;
use workload::Job;

/// What a policy of gangs is tried on.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Its nodes.
    pub machine: Machine,
    /// As psched reads them.
    pub variables: Variables,
    /// For how long a gang holds its processors without getting on, each time that it is started.
    pub start_cost: Duration,
    /// The additional time for which a gang holds its processors without progress each time that it is
    /// moved, or rolled in. Where the nodes say what memory they have, the transfer of its memory is
    /// added (`application.load_balance.move_rate`).
    pub move_cost: Duration,
    /// Which moves and roll-outs there are.
    pub moves: Moves,
}

/// Which moves and roll-outs are simulated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Moves {
    /// All that the scheduler can plan.
    All,
    /// Moves alone, which any node of the daemon's can do.
    #[default]
    Daemon,
}

/// Who looks on while a workload is replayed.
pub trait Watch {
    /// This became of a job. Told once of each, at its end or before it.
    fn done(&mut self, outcome: Outcome);

    /// After all that happens at `now`, so many processors are held and so many jobs do not run,
    /// though they are there. `now` never goes back.
    fn at(&mut self, now: Duration, held: u32, waiting: usize);
}

/// What became of a job. Times since the log's zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Of the workload.
    pub job: Job,
    /// When it first ran.
    pub start: Duration,
    /// When it was done.
    pub end: Duration,
    /// How it took turns, under a policy under which it may.
    pub turns: Option<Turns>,
}

/// How a gang took turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turns {
    /// How often it was started, the first time too.
    pub starts: u32,
    /// How often its processors became others, or it was brought in again.
    pub moves: u32,
    /// The longest stretch without running between its submission and its end.
    pub longest_stopped: Duration,
}

/// Where the machine's capacity went, in processor seconds, from the first submission to the last
/// end.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Capacity {
    /// Jobs got on.
    pub useful: f64,
    /// Held by gangs that were being started.
    pub starts: f64,
    /// Held by gangs that were being moved or brought in.
    pub moves: f64,
    /// Idle while somebody waited who would have fitted by count, but for where the idle ones were.
    pub fragmented: f64,
    /// Idle otherwise while somebody waited: too few for anyone, or kept for who came before.
    pub kept: f64,
    /// Idle while nobody waited.
    pub idle: f64,
}

impl Capacity {
    /// All of it.
    pub fn total(&self) -> f64 {
        let Capacity { useful, starts, moves, fragmented, kept, idle } = self;
        useful + starts + moves + fragmented + kept + idle
    }
}
