//! `psched torture`: seeds of the simulated cluster, as many as somebody likes.

use super::question::{ended, number};
use crate::console::stdout::write_out;
use crate::torture::faults::{CHOSEN, CLASSES};
use crate::torture::{self, Counts, Failure, Options, scenarios};
use clap::Args;
use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The most lines of a trace that are kept.
const LINES_MAX: u32 = 10_000_000;

/// Try the scheduler in a simulated cluster against every fault.
#[derive(Args, Debug)]
#[command(long_about = "Tries psched's own decisions in a simulated cluster: hosts, processes, \
    connections and a disk on which everything goes wrong that can, in virtual time. Each seed gives \
    one history, and the same seed gives the same one. All promises are checked after every event.")]
pub struct TortureArgs {
    /// The first seed
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number::<u64>)]
    seed: u64,
    /// How many seeds, from that one on
    #[arg(long, value_name = "COUNT", default_value = "1", value_parser = seeds_wanted)]
    seeds: NonZeroU64,
    /// Simulated days of work and faults in each seed [default: 20 minutes]
    #[arg(long, value_name = "D", value_parser = days)]
    days: Option<f64>,
    /// Only these classes of faults, or none; otherwise each seed chooses ("chosen" in the list:
    /// too)
    #[arg(long, value_name = "CLASS,...", value_delimiter = ',', value_parser = class)]
    faults: Option<Vec<String>>,
    /// Lines of the trace that is shown of the first that fails: its last ones
    #[arg(long, value_name = "COUNT", default_value_t = torture::TRACE_LINES)]
    #[arg(value_parser = lines)]
    lines: u32,
    /// Instead of seeds, the scenario of this name, or all
    #[arg(long, value_name = "NAME", value_parser = scenario)]
    #[arg(conflicts_with_all = ["seed", "seeds", "days", "faults", "lines"])]
    scenario: Option<String>,
}

fn days(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(days) if (0.001..=1_000.0).contains(&days) => Ok(days),
        _ => Err("expected a number from 0.001 to 1000".into()),
    }
}

fn seeds_wanted(text: &str) -> Result<NonZeroU64, String> {
    text.parse().map_err(|_| "expected a number of at least 1".to_owned())
}

fn lines(text: &str) -> Result<u32, String> {
    let in_range = text.parse().ok().filter(|n| *n <= LINES_MAX);
    in_range.ok_or_else(|| format!("expected a number from 0 to {LINES_MAX}"))
}

fn class(text: &str) -> Result<String, String> {
    if ["none", CHOSEN].contains(&text) || CLASSES.iter().any(|(name, _)| *name == text) {
        return Ok(text.to_owned());
    }
    let names: Vec<&str> = CLASSES.iter().map(|(name, _)| *name).collect();
    Err(format!("expected one of none, {CHOSEN}, {}", names.join(", ")))
}

fn scenario(text: &str) -> Result<String, String> {
    if text == "all" || scenarios::named(text).is_some() {
        return Ok(text.to_owned());
    }
    let names: Vec<&str> = scenarios::SCENARIOS.iter().map(|s| s.name).collect();
    Err(format!("expected one of all, {}", names.join(", ")))
}

/// Plays them, and tells whether one did not hold.
fn play(name: &str) -> Result<bool, String> {
    let mut failed = false;
    for scenario in scenarios::SCENARIOS.iter().filter(|s| name == "all" || s.name == name) {
        match scenario.run() {
            Ok(_) => write_out(&format!("{}: held, against: {}\n", scenario.name, scenario.fault))?,
            Err(failure) => {
                failed = true;
                write_out(&format!("{failure}\n\n"))?;
            }
        }
    }
    Ok(failed)
}

impl TortureArgs {
    fn options(&self, seed: u64) -> Options {
        let mut options = Options::new(seed);
        if let Some(days) = self.days {
            options.last(days);
        }
        let names = |names: &Vec<String>| -> BTreeSet<String> {
            names.iter().filter(|name| *name != "none").cloned().collect()
        };
        options.faults = self.faults.as_ref().map(names);
        options
    }
}

/// Tries them. The status: 0 if all held, 1 if one did not, or once it is said what can't be
/// written.
pub fn run(arguments: &TortureArgs) -> ExitCode {
    let tried = match &arguments.scenario {
        Some(name) => play(name),
        None => seeds(arguments),
    };
    match tried {
        Ok(failed) => ExitCode::from(u8::from(failed)),
        Err(why) => ended("psched torture", Err(vec![why])),
    }
}

/// Tries the seeds on all processors, and tells whether one failed.
fn seeds(arguments: &TortureArgs) -> Result<bool, String> {
    let begun = Instant::now();
    let next = AtomicU64::new(0);
    let found: Mutex<(Counts, Vec<Box<Failure>>)> = Mutex::default();
    let unwritten: Mutex<Option<String>> = Mutex::default();
    let work = || {
        while let number = next.fetch_add(1, Ordering::Relaxed)
            && number < arguments.seeds.get()
        {
            let options = arguments.options(arguments.seed.wrapping_add(number));
            let outcome = torture::run_traced(&options, arguments.lines as usize);
            let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
            match outcome {
                Ok(summary) => found.0.and(&summary.counts),
                Err(failure) => {
                    // The whole story of the first; of the others what was broken.
                    let story = match found.1.is_empty() {
                        true => format!("{failure}\n\n"),
                        false => format!("{}\nagain: {}\n\n", failure.text, failure.line),
                    };
                    found.1.push(failure);
                    if let Err(why) = write_out(&story) {
                        // It would be for nothing that the others are tried.
                        next.store(arguments.seeds.get(), Ordering::Relaxed);
                        *unwritten.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
                    }
                }
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    if let Some(why) = unwritten.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(why);
    }
    let (counts, failures) = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    write_out(&summary(arguments.seeds.get(), failures.len(), &counts, begun.elapsed()))?;
    Ok(!failures.is_empty())
}

/// The figures of all seeds.
fn summary(seeds: u64, failed: usize, counts: &Counts, time: Duration) -> String {
    let seconds = time.as_secs_f64();
    let faults: Vec<String> =
        counts.faults.iter().map(|(class, count)| format!("{class} {count}")).collect();
    let lines = [
        format!("seeds       {seeds}, of which {failed} failed"),
        format!("simulated   {:.2} days", counts.time_ns as f64 / 86_400e9),
        format!(
            "events      {} ({:.0} a second, {seconds:.1} s in all)",
            counts.events,
            counts.events as f64 / seconds.max(1e-9)
        ),
        format!("postings    {}", counts.postings),
        format!("faults      {}", if faults.is_empty() { "none".into() } else { faults.join(", ") }),
        format!(
            "deaths      {} between two actions; of transactions under way then {} kept, {} lost; {} postings \
             refused by a full disk",
            counts.killed_between, counts.kept_at_death, counts.lost_at_death, counts.refused_by_disk
        ),
        format!(
            "full disk   {} answers given while their records waited, {} messages of nodes left out",
            counts.unrecorded, counts.left_out
        ),
        "checked     after every event: processors, contiguity, records, statuses, output, barriers, bounds, \
         gangs in part"
            .to_owned(),
        format!(
            "            {} explanations against the machine, {} restarts; at the end of each seed that nothing \
             is lost or left, and rest",
            counts.explanations, counts.restarts
        ),
    ];
    lines.map(|line| line + "\n").concat()
}
