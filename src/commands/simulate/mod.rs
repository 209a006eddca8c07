//! `psched simulate`: a recorded workload, replayed.

use crate::commands::question::{ended, write_out};
use crate::simulate::baseline::{Policy, replay};
use crate::simulate::figures::Spread;
use crate::simulate::swf::{Log, SwfError};
use crate::simulate::workload::{NoEstimate, Overrun, Rules};
use crate::simulate::{Outcome, Watch};
use anyhow::Context;
use clap::{Args, ValueEnum};
use flate2::bufread::MultiGzDecoder;
use serde_json::json;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Replay a recorded workload.
#[derive(Args, Debug)]
#[command(
    long_about = "Replays a log in the Standard Workload Format, plain or compressed by gzip, \
    in virtual time, and tells what users would have felt."
)]
pub struct SimulateArgs {
    /// The log
    #[arg(value_name = "LOG.swf[.gz]")]
    log: PathBuf,
    /// Who runs when
    #[arg(long, value_name = "fcfs|easy", value_enum, hide_possible_values = true, default_value_t = Named::Easy)]
    policy: Named,
    /// Processors of the machine [default: the log's MaxProcs]
    #[arg(long, value_name = "N")]
    procs: Option<NonZeroU32>,
    /// What is done with a job that ran longer than its estimate
    #[arg(
        long,
        value_name = "kill|extend",
        value_enum,
        hide_possible_values = true,
        default_value_t
    )]
    overrun: Overrun,
    /// What is done with a job without an estimate
    #[arg(
        long,
        value_name = "drop|runtime",
        value_enum,
        hide_possible_values = true,
        default_value_t
    )]
    no_estimate: NoEstimate,
    /// Write what became of each job to this file, a line each with tabs
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// The figures as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Named {
    /// First come first served
    Fcfs,
    /// EASY backfilling, by users' estimates
    Easy,
}

/// Runs it. The status: 0, or 1 once it is said why not.
pub fn run(args: &SimulateArgs) -> ExitCode {
    ended("psched simulate", simulate(args).map_err(|error| vec![format!("{error:#}")]))
}

fn open(path: &Path) -> anyhow::Result<Log<Box<dyn BufRead>>> {
    let named = || path.display().to_string();
    let mut file = BufReader::new(File::open(path).with_context(named)?);
    let compressed = file.fill_buf().with_context(named)?.starts_with(&[0x1f, 0x8b]);
    let from: Box<dyn BufRead> = match compressed {
        true => Box::new(BufReader::new(MultiGzDecoder::new(file))),
        false => Box::new(file),
    };
    Log::new(from).with_context(named)
}

/// What became of all jobs.
#[derive(Default)]
struct Results {
    outcomes: Vec<Outcome>,
}

impl Watch for Results {
    fn done(&mut self, outcome: Outcome) {
        self.outcomes.push(outcome);
    }

    fn at(&mut self, _: Duration, _: u32, _: usize) {}
}

fn simulate(args: &SimulateArgs) -> anyhow::Result<()> {
    let named = || args.log.display().to_string();
    let log = open(&args.log)?;
    let processors = args.procs.map(NonZeroU32::get).or(log.processors());
    let processors = processors
        .with_context(|| format!("{}: it does not say MaxProcs: say --procs N", named()))?;
    let (no_estimate, overrun) = (args.no_estimate, args.overrun);
    let rules = Rules { processors, no_estimate, overrun };
    let policy = match args.policy {
        Named::Fcfs => Policy::Fcfs,
        Named::Easy => Policy::Easy,
    };
    let jobs = log.filter_map(|record: Result<_, SwfError>| match record {
        Ok(record) => rules.job(&record).map(Ok),
        Err(error) => Some(Err(error)),
    });
    let mut results = Results::default();
    replay(processors, policy, jobs, &mut results).with_context(named)?;
    let mut outcomes = results.outcomes;
    outcomes.sort_unstable_by_key(|outcome| outcome.job.line);
    if let Some(out) = &args.out {
        write(out, &outcomes).with_context(|| out.display().to_string())?;
    }
    tell(&outcomes, args.json)
}

fn write(path: &Path, outcomes: &[Outcome]) -> std::io::Result<()> {
    let mut out = BufWriter::new(File::create(path)?);
    writeln!(out, "job\tsubmit\twidth\trun\test\tstart\tend")?;
    for Outcome { job, start, end, .. } in outcomes {
        let (number, submit, width, run) = (job.number, job.submit, job.width, job.run);
        let (estimate, start, end) = (job.estimate, seconds(*start), seconds(*end));
        writeln!(out, "{number}\t{submit}\t{width}\t{run}\t{estimate}\t{start}\t{end}")?;
    }
    out.flush()
}

/// A time as a column has it: seconds, with a fraction only where there is one.
fn seconds(time: Duration) -> String {
    match time.subsec_nanos() {
        0 => time.as_secs().to_string(),
        _ => format!("{:.3}", time.as_secs_f64()),
    }
}

fn tell(outcomes: &[Outcome], as_json: bool) -> anyhow::Result<()> {
    let all: [(&str, Spread); 3] = [
        ("wait", Spread::of(outcomes.iter().map(|o| o.wait().as_secs_f64()))),
        ("response", Spread::of(outcomes.iter().map(|o| o.response().as_secs_f64()))),
        ("bounded_slowdown", Spread::of(outcomes.iter().map(Outcome::bounded_slowdown))),
    ];
    if as_json {
        let mut told = json!({ "jobs": outcomes.len() });
        for (name, Spread { mean, median, p95, p99, max }) in all {
            told[name] =
                json!({ "mean": mean, "median": median, "p95": p95, "p99": p99, "max": max });
        }
        return write_out(&format!("{told:#}\n")).map_err(anyhow::Error::msg);
    }
    let mut out = format!("{} jobs\n", outcomes.len());
    for (name, Spread { mean, median, p95, p99, max }) in all {
        let _ = writeln!(out, "{name:17}{mean:12.2}{median:12.2}{p95:12.2}{p99:12.2}{max:12.2}");
    }
    write_out(&out).map_err(anyhow::Error::msg)
}
