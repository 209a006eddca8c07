//! The seeded cluster: every decision of psched, tried against everything that can go wrong.
//!
//! # Problem
//! What an administrator must be able to believe ("no processor is given away twice", "what was
//! acknowledged survives", "nothing is left") depends on thousands of orders in which messages,
//! deaths and disks can happen. On real machines they come once a year, and can't be had again.
//!
//! # Approach
//! The pure rooms that ship, [`Scheduler`](crate::psched::decide::Scheduler) with its
//! [`outbox`](crate::psched::decide::outbox), [`Agent`](crate::apinit::decide::Agent),
//! [`Shepherd`](crate::apshepherd::decide::Shepherd) and [`Front`](crate::aprun::decide::session::Front), are put
//! together into a cluster in which everything between them is simulated, in virtual time, from one
//! seed: hosts with their clocks, processes and groups, connections that break, a disk that fills,
//! programs that crash, users who type ^C. The same seed is the same history, to the last event.
//!
//! ```text
//!   aprun (Driver, Front) --- psched (Driver, Scheduler, Keeper) --- disk
//!        \                       |  wire
//!         `------wire------ apinit (Driver, Agent) --- other hosts' apinits
//!                                 |  wire
//!                            shepherd (Driver, Shepherd) --- PEs: programs with steps
//! ```
//!
//! Front ends are on psched's host; in the class `logins` of faults on others too, whose apinits
//! pass on what they say ([`logins`]).
//!
//! Around each of them is the driver that ships, on an outside of this cluster ([`psched`], [`apinit`],
//! [`shepherd`], [`front`]). All of them can be killed before each thing that they do. [`checks`] looks on
//! from outside, after every event.
//!
//! In the class `exchanges` hosts learn psched's clock as they do where it ships ([`clocks`]).
//!
//! In half of the seeds people use `cpr`: what runs is checkpointed, some of it to end for that, and restarted
//! later in the same history, again and again ([`images`], [`restarts`]). In a quarter all nodes are one apinit's:
//! only there psched moves applications by itself.
//!
//! # What is not here
//! Heartbeats, but in the class `narrow` of faults ([`narrow`]): they are the shells' own, and what they find
//! out, that nothing comes on a connection any more, comes here to each end after some time without them.
//! Daemons of different releases. `psmgr adopt` and `purge`: a node that meets a psched of another
//! store hangs up, and finds its own again.
//!
//! # Example
//! ```
//! use psched_worlds::torture::{Options, run};
//! let quiet = Options { faults: Some(Default::default()), postings: 5, ..Options::new(1) };
//! let summary = run(&quiet).unwrap_or_else(|failure| panic!("{failure}"));
//! assert!(summary.counts.postings == 5);
//! ```

mod apinit;
pub mod checks;
mod clocks;
mod copies;
mod cpr;
pub mod faults;
mod front;
mod host;
mod images;
mod logins;
mod memory;
mod memory_out;
mod narrow;
mod orders;
mod others;
mod play;
mod program;
mod programs;
mod psched;
pub mod scenarios;
mod shepherd;
mod store;
mod switchers;
mod trace;
mod wire;
mod world;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use world::World;

pub use trace::LINES as TRACE_LINES;

/// A microsecond in nanoseconds.
pub(crate) const US: u64 = 1_000;
/// A millisecond.
pub(crate) const MS: u64 = 1_000_000;
/// A second.
pub(crate) const SECOND: u64 = 1_000_000_000;
/// Simulated seconds of work in a seed, if nothing else is asked for.
pub const SECONDS: u64 = 1_200;
/// Postings in that time.
pub const POSTINGS: u32 = 110;

/// What to try.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// All chance comes from here.
    pub seed: u64,
    /// For how long there is work and faults, in simulated nanoseconds.
    pub time_ns: u64,
    /// Postings in that time.
    pub postings: u32,
    /// The classes of faults, by name, where `chosen` stands for those that the seed chooses;
    /// `None`: only these.
    pub faults: Option<BTreeSet<String>>,
}

impl Options {
    /// A seed as `cargo test` tries it.
    pub fn new(seed: u64) -> Options {
        Options { seed, time_ns: SECONDS * SECOND, postings: POSTINGS, faults: None }
    }

    /// For so many simulated days, with as many postings as belong to them.
    pub fn last(&mut self, days: f64) {
        self.time_ns = (days * (86_400 * SECOND) as f64) as u64;
        let share = self.time_ns as f64 / (SECONDS * SECOND) as f64;
        self.postings = (f64::from(POSTINGS) * share).max(1.0) as u32;
    }

    /// The line that tries it again.
    pub fn line(&self) -> String {
        let mut line = format!("psched torture --seed {}", self.seed);
        if self.time_ns != SECONDS * SECOND {
            line.push_str(&format!(" --days {}", self.time_ns as f64 / (86_400 * SECOND) as f64));
        }
        if let Some(faults) = &self.faults {
            let names: Vec<&str> = faults.iter().map(String::as_str).collect();
            let names = if names.is_empty() { "none".to_owned() } else { names.join(",") };
            line.push_str(&format!(" --faults {names}"));
        }
        line
    }
}

/// What has happened in a seed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    /// Events.
    pub events: u64,
    /// Of them, those that some process heard of.
    pub heard: u64,
    /// Postings.
    pub postings: u64,
    /// Times that gangs were let run.
    pub let_run: u64,
    /// Of these, those of which it was known by when they had to be: where nothing went wrong.
    pub let_run_in_time: u64,
    /// Applications that were moved.
    pub moved: u64,
    /// Of a gang that stood the memory went to swap.
    pub rolled_out: u64,
    /// The same by a checkpoint, and how often one was brought back from that.
    pub taken_out: u64,
    pub returned: u64,
    /// Lives of apinits that began while one was out.
    pub found_away: u64,
    /// Applications that were checkpointed.
    pub dumped: u64,
    /// Of them, those that were ended for it.
    pub kept_off: u64,
    /// Postings of `cpr -r`.
    pub restarts_posted: u64,
    /// Applications that were brought back.
    pub brought_back: u64,
    /// Starts for which memory had to be brought in.
    pub brought: u64,
    /// Peaks of memory that nodes told.
    pub peaks: u64,
    /// Looks at nodes on which not all gangs fit.
    pub crowded: u64,
    /// Times that a gang ran in part while nothing was in the way of all its parts.
    pub partial: u64,
    /// The longest of these, in nanoseconds.
    pub partial_longest: u64,
    /// Faults of each class, and what users did as suddenly.
    pub faults: BTreeMap<&'static str, u64>,
    /// Deaths between two actions of one batch.
    pub killed_between: u64,
    /// Transactions under way when psched died, that were kept, and that were lost.
    pub kept_at_death: u64,
    /// See `kept_at_death`.
    pub lost_at_death: u64,
    /// Postings refused because the disk was full.
    pub refused_by_disk: u64,
    /// Answers given while their records waited for it.
    pub unrecorded: u64,
    /// Messages of nodes that were left out because too much waited for it.
    pub left_out: u64,
    /// Simulated time, in nanoseconds.
    pub time_ns: u64,
    /// Explanations that were held against the machine.
    pub explanations: u64,
    /// Restarts that were compared.
    pub restarts: u64,
    /// Steps of psched that were replayed from its recordings.
    pub replayed: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, class: &'static str) {
        *self.faults.entry(class).or_default() += 1;
    }

    /// Both together.
    pub fn and(&mut self, other: &Counts) {
        self.events += other.events;
        self.heard += other.heard;
        self.postings += other.postings;
        self.let_run += other.let_run;
        self.let_run_in_time += other.let_run_in_time;
        self.moved += other.moved;
        self.rolled_out += other.rolled_out;
        self.taken_out += other.taken_out;
        self.returned += other.returned;
        self.found_away += other.found_away;
        self.dumped += other.dumped;
        self.kept_off += other.kept_off;
        self.restarts_posted += other.restarts_posted;
        self.brought_back += other.brought_back;
        self.brought += other.brought;
        self.peaks += other.peaks;
        self.crowded += other.crowded;
        self.partial += other.partial;
        self.partial_longest = self.partial_longest.max(other.partial_longest);
        self.killed_between += other.killed_between;
        self.kept_at_death += other.kept_at_death;
        self.lost_at_death += other.lost_at_death;
        self.refused_by_disk += other.refused_by_disk;
        self.unrecorded += other.unrecorded;
        self.left_out += other.left_out;
        self.time_ns += other.time_ns;
        self.explanations += other.explanations;
        self.restarts += other.restarts;
        self.replayed += other.replayed;
        for (class, count) in &other.faults {
            *self.faults.entry(class).or_default() += count;
        }
    }
}

/// A seed that held.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// What happened.
    pub counts: Counts,
}

/// A seed that did not.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// What was broken.
    pub text: String,
    /// The last events before it.
    pub trace: Vec<String>,
    /// The line that tries it again.
    pub line: String,
    /// At which event.
    pub event: u64,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for line in &self.trace {
            writeln!(f, "{line}")?;
        }
        writeln!(f, "after {} events: {}", self.event, self.text)?;
        write!(f, "again: {}", self.line)
    }
}

fn simulate(options: &Options, lines: usize) -> World {
    let mut world = World::new(options.clone(), lines);
    world.run();
    world.counts.time_ns = world.now;
    world.counts.explanations = world.checks.looked;
    world.counts.restarts = world.checks.restored;
    world.counts.replayed = world.checks.replayed;
    world
}

/// Tries a seed.
///
/// # Errors
/// What was broken, with a trace: the seed is tried a second time for that.
pub fn run(options: &Options) -> Result<Summary, Box<Failure>> {
    run_traced(options, TRACE_LINES as usize)
}

/// The same, with so many lines of a trace.
///
/// # Errors
/// As [`run`].
pub fn run_traced(options: &Options, lines: usize) -> Result<Summary, Box<Failure>> {
    let world = simulate(options, 0);
    let Some(text) = world.checks.violation() else {
        return Ok(Summary { counts: world.counts });
    };
    let text = text.to_owned();
    let event = world.counts.events;
    let mut again = simulate(options, lines);
    let trace = again.trace.take();
    Err(Box::new(Failure { text, trace, line: options.line(), event }))
}
