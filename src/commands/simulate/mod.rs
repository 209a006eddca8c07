//! `psched simulate`: a recorded workload, replayed.
//!
//! A [`setting`] is replayed ([`replay`]) to a summary; what is told of one or several is a [`table`]
//! or [`json`], what became of each job [`tsv`], and the machine over time a [`plot`].

mod json;
mod plot;
mod progress;
mod replay;
mod setting;
mod table;
mod tsv;
mod values;

use super::question::ended;
use super::start::assignment;
use crate::console::stdout::write_out;
use crate::simulate::Moves;
use crate::simulate::series::Series;
use crate::simulate::summary::Summary;
use crate::simulate::workload::{Bad, NoEstimate, Overrun};
use anyhow::Context;
use clap::Args;
use setting::{Compared, Policy, Setting};
use setting::{parse_compared, parse_cost, parse_load, parse_nodes, parse_procs, parse_some_time};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use values::Word;

/// Replay a recorded workload.
#[derive(Args, Debug)]
#[command(
    long_about = "Replays a log in the Standard Workload Format, plain or compressed by gzip, \
    in virtual time, and tells what users would have felt and where the machine's time went."
)]
pub struct SimulateArgs {
    /// The log
    #[arg(value_name = "LOG.swf[.gz]")]
    log: PathBuf,
    /// A psched.yaml: its variables, and its nodes unless others are given
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// This value of a variable (psched.yaml(5)); may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = assignment)]
    set: Vec<(String, String)>,
    /// Who runs when
    #[arg(long, value_name = "gang|fcfs|easy|ideal", value_enum, hide_possible_values = true)]
    #[arg(default_value = "gang")]
    policy: Policy,
    /// So many nodes of one processor each [default: the log's MaxProcs]
    #[arg(long, value_name = "N", value_parser = parse_procs, conflicts_with = "nodes")]
    #[arg(allow_negative_numbers = true)]
    procs: Option<u32>,
    /// N nodes of P processors each
    #[arg(long, value_name = "NxP", value_parser = parse_nodes)]
    nodes: Option<(u32, u32)>,
    /// What is done with a job that ran longer than its estimate
    #[arg(long, value_name = "kill|extend", value_enum, hide_possible_values = true)]
    #[arg(default_value = "kill")]
    overrun: Word<Overrun>,
    /// What is done with a job without an estimate
    #[arg(long, value_name = "drop|runtime", value_enum, hide_possible_values = true)]
    #[arg(default_value = "drop")]
    no_estimate: Word<NoEstimate>,
    /// What is done with a log that has jobs without a submit time: they are left out, which is said, or it
    /// is not replayed
    #[arg(long, value_name = "skip|refuse", value_enum, hide_possible_values = true)]
    #[arg(default_value = "skip")]
    bad: Word<Bad>,
    /// For how long a gang holds its processors each time before it gets on
    #[arg(long, value_name = "TIME", value_parser = parse_cost, default_value = "5s")]
    start_cost: Duration,
    /// For how long more when it is moved, or brought in again
    #[arg(long, value_name = "TIME", value_parser = parse_cost, default_value = "30s")]
    move_cost: Duration,
    /// Jobs come faster or slower, so that this is the offered load
    #[arg(long, value_name = "TARGET", value_parser = parse_load)]
    load: Option<f64>,
    /// What a second of the log is: with 1ms its times are a thousandth of what it says
    #[arg(long, value_name = "TIME", value_parser = parse_some_time, default_value = "1s")]
    unit: Duration,
    /// Runs shorter than this count as this in bounded slowdowns
    #[arg(long, value_name = "TIME", value_parser = parse_some_time, default_value = "10s")]
    bound: Duration,
    /// Which moves and roll-outs there are: all that can be planned, or moves alone, as any node makes them
    #[arg(long, value_name = "all|daemon", value_enum, hide_possible_values = true)]
    #[arg(default_value = "daemon")]
    moves: Word<Moves>,
    /// Write what became of each job to this file, a line each with tabs
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// The figures as JSON
    #[arg(long)]
    json: bool,
    /// Draw utilisation, queue and slowdown over time into this file
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Replay it again with these options or variables, and tell of both; may be repeated
    #[arg(long, value_name = "NAME=VALUE[,...]", value_parser = parse_compared)]
    compare: Vec<Compared>,
}

/// What came of one setting.
struct Told {
    setting: Setting,
    /// Nodes of its machine.
    nodes: usize,
    /// Jobs of the log that did not count.
    left_out: u64,
    summary: Summary,
    /// Where there is a plot.
    drawn: Option<Drawn>,
}

/// What is drawn of one setting.
struct Drawn {
    /// The machine over time.
    series: Series,
    /// Of each job the day of its submission, and its slowdown.
    slowdowns: Vec<(f64, f64)>,
}

/// Runs it. The status: 0, or 1 once it is said why not.
pub fn run(args: &SimulateArgs) -> ExitCode {
    ended("psched simulate", simulate(args).map_err(|error| vec![format!("{error:#}")]))
}

fn simulate(args: &SimulateArgs) -> anyhow::Result<()> {
    let settings = Setting::all(args)?;
    for file in args.out.iter().chain(&args.plot) {
        may_be_written(file).with_context(|| naming(file))?;
    }
    let mut all = Vec::new();
    for setting in settings {
        let ran = replay::replay(&args.log, &setting, args.plot.is_some())
            .with_context(|| args.log.display().to_string())?;
        if let (true, Some((count, first))) = (all.is_empty(), ran.without_time) {
            eprintln!(
                "psched simulate: left out: {count} jobs without a submit time (first: line {first}); \
                 --bad refuse does not replay such a log"
            );
        }
        if let (true, Some(out)) = (all.is_empty(), &args.out) {
            tsv::write(out, &ran.outcomes, &setting.label()).with_context(|| naming(out))?;
        }
        all.push(ran.told(&args.log, setting)?);
    }
    let log = args.log.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    if let Some(file) = &args.plot {
        std::fs::write(file, plot::svg(&log, &all)).with_context(|| naming(file))?;
    }
    let text = match args.json {
        true => json::text(&log, &all),
        false => table::text(&log, &all),
    };
    write_out(&text).map_err(anyhow::Error::msg)
}

/// Told before years are replayed for it. What is there stays until there is something to write.
fn may_be_written(file: &Path) -> std::io::Result<()> {
    match std::fs::OpenOptions::new().write(true).open(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            match file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
                Some(folder) if !std::fs::metadata(folder)?.is_dir() => Err(error),
                _ => Ok(()),
            }
        }
        opened => opened.map(drop),
    }
}

fn naming(file: &Path) -> String {
    format!("can't write {}", file.display())
}
