//! How changes of party go, seen by the programs: two gangs of PEs that do nothing but look at the clock,
//! on as many nodes of one processor as there are real ones (two at most), by one apinit and by two.
//!
//! `cargo bench --bench turns`. For each time slice: whether two programs ever ran at once on a processor;
//! the gap between the last stamp of the one and the first of the next; the skew between the first stamps
//! of a turn on two nodes; how late a turn was to its plan cannot be seen from there (`psview` has it). And
//! what turns cost: the processor time of apinit and of psched, which is also taken with one gang alone.
//! Four nodes on two processors show only whether two ever ran at once: Linux stops PEs there too.
//! At last 500 pairs of programs that sleep, each pair on a node of its own: what apinit needs to change them all.
//! PSCHED_BENCH_TURNS changes how many turns are looked at (1,000; with slices of 1 s a fifth of it),
//! PSCHED_BENCH_SERIES=3 asks for one series only (16: the pairs).

#[path = "support/daemons.rs"]
mod daemons;
// It needs no client of its own.
#[allow(dead_code, unused_imports)]
mod support;

use anyhow::{Context, bail, ensure};
use daemons::daemons;
use psched::gang::floor;
use psched::gang::plan::SLICE_MIN;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use support::{Sample, is_bench, machine, number, within_instance};

const SERIES: &str = "PSCHED_BENCH_SERIES";
/// Bytes before the table of runs in a file of stamps.
const HEAD: usize = 16;

/// One arrangement.
struct Series {
    apinits: u32,
    slice: &'static str,
    /// Processes beside it that do nothing but run.
    busy: usize,
    gangs: usize,
    /// More than there are processors: then only who ran at once with whom is told.
    nodes: usize,
}

const ALL: [Series; 16] = [
    Series { apinits: 1, slice: "10ms", busy: 0, gangs: 2, nodes: 2 },
    Series { apinits: 1, slice: "20ms", busy: 0, gangs: 2, nodes: 2 },
    Series { apinits: 1, slice: "50ms", busy: 0, gangs: 2, nodes: 2 },
    Series { apinits: 1, slice: "100ms", busy: 0, gangs: 2, nodes: 2 },
    Series { apinits: 1, slice: "1s", busy: 0, gangs: 2, nodes: 2 },
    Series { apinits: 2, slice: "20ms", busy: 0, gangs: 2, nodes: 2 },
    Series { apinits: 2, slice: "50ms", busy: 0, gangs: 2, nodes: 2 },
    Series { apinits: 2, slice: "100ms", busy: 0, gangs: 2, nodes: 2 },
    Series { apinits: 2, slice: "1s", busy: 0, gangs: 2, nodes: 2 },
    Series { apinits: 1, slice: "10ms", busy: 1, gangs: 2, nodes: 2 },
    Series { apinits: 1, slice: "20ms", busy: 1, gangs: 2, nodes: 2 },
    Series { apinits: 1, slice: "100ms", busy: 1, gangs: 2, nodes: 2 },
    Series { apinits: 2, slice: "100ms", busy: 1, gangs: 2, nodes: 2 },
    Series { apinits: 1, slice: "100ms", busy: 0, gangs: 1, nodes: 2 },
    Series { apinits: 1, slice: "50ms", busy: 0, gangs: 2, nodes: 4 },
    Series { apinits: 2, slice: "50ms", busy: 0, gangs: 2, nodes: 4 },
];

/// Pairs of the last series, each on a node of one processor.
const PAIRS: u32 = 500;
const PAIRS_SLICE: &str = "100ms";

impl Series {
    fn slice(&self) -> Duration {
        let ms = self.slice.strip_suffix("ms").and_then(|n| n.parse().ok());
        Duration::from_millis(ms.unwrap_or(1_000))
    }

    fn turns(&self) -> anyhow::Result<u32> {
        let turns = number("PSCHED_BENCH_TURNS", 1_000_u32)?;
        Ok(if self.slice() >= Duration::from_secs(1) { turns / 5 } else { turns }.max(4))
    }
}

fn main() -> anyhow::Result<ExitCode> {
    if !is_bench("turns") {
        return Ok(ExitCode::SUCCESS);
    }
    let asked = match std::env::var(SERIES) {
        Ok(number) => Some(number.parse::<usize>().context(SERIES)?),
        Err(_) => None,
    };
    if support::is_inside() {
        let asked = asked.context(SERIES)?;
        match ALL.get(asked) {
            Some(series) => measure(series)?,
            None => pairs()?,
        }
        return Ok(ExitCode::SUCCESS);
    }
    println!("{}", machine());
    println!("times in ms: median, 99 of 100 at most, the largest\n");
    for (number, series) in ALL.iter().enumerate() {
        if asked.is_some_and(|asked| asked != number) {
            continue;
        }
        let apinits = series.apinits.to_string();
        let slice = format!("application.time_slice={}", series.slice);
        let nodes = series.nodes.to_string();
        let options =
            ["--nodes", &nodes, "--processors", "1", "--apinits", &apinits, "--set", &slice];
        let number = number.to_string();
        within_instance(&options, &[(SERIES, OsStr::new(&number))], || bail!("not inside"))?;
    }
    if asked.is_none_or(|asked| asked == ALL.len()) {
        let (nodes, slice) = (PAIRS.to_string(), format!("application.time_slice={PAIRS_SLICE}"));
        // Who sleeps would give its turn away.
        let idle = ["--set", "application.idle_after=0s"];
        let options = ["--nodes", &nodes, "--processors", "1", "--set", &slice];
        let number = ALL.len().to_string();
        let options = [&options[..], &idle].concat();
        within_instance(&options, &[(SERIES, OsStr::new(&number))], || bail!("not inside"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A program that is killed when it is let go of.
struct Runs(Child);

impl Drop for Runs {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An uninterrupted run of one process, in nanoseconds.
type Run = (u64, u64);

fn measure(series: &Series) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let stamp = built(folder.path())?;
    let _busy: Vec<Runs> = (0..series.busy)
        .map(|_| Command::new("sh").args(["-c", "while :; do :; done"]).spawn().map(Runs))
        .collect::<Result<_, _>>()?;
    let table = |gang: usize, pe: usize| folder.path().join(format!("stamps-{gang}-{pe}"));
    let mut gangs = Vec::new();
    for gang in 0..series.gangs {
        let script = format!(
            "exec {} {}/stamps-{gang}-$ALPS_APP_PE spin",
            stamp.display(),
            folder.path().display()
        );
        let aprun = Command::new("aprun")
            .args(["-q", "-n", &series.nodes.to_string(), "-N", "1", "sh", "-c", &script])
            .stdin(Stdio::null())
            .spawn()
            .context("aprun")?;
        gangs.push(Runs(aprun));
        let until = Instant::now() + Duration::from_secs(20);
        while !(0..series.nodes).all(|pe| table(gang, pe).exists()) {
            ensure!(Instant::now() < until, "gang {gang} does not run");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    // The first turns are those of the launch.
    std::thread::sleep(series.slice() * 4 + Duration::from_millis(200));
    let began = monotonic_ns();
    let cost = used_within(series.slice() * series.turns()?)?;
    let stamps: Vec<Vec<Vec<Run>>> = (0..series.gangs)
        .map(|gang| (0..series.nodes).map(|pe| runs(&table(gang, pe), began)).collect())
        .collect::<anyhow::Result<_>>()?;
    println!(
        "{} gang{} on {} nodes, {} apinit{}, slices of {}{}: apinit {:.2} %, psched {:.2} % of a processor",
        series.gangs,
        if series.gangs == 1 { "" } else { "s" },
        series.nodes,
        series.apinits,
        if series.apinits == 1 { "" } else { "s" },
        series.slice,
        if series.busy > 0 { ", a busy process beside them" } else { "" },
        cost.0,
        cost.1,
    );
    if let [one, other] = &stamps[..] {
        let overlaps = one.iter().zip(other).map(|(one, other)| overlaps(one, other)).sum();
        let turns = |gang: &[Vec<Run>]| -> Vec<Vec<Run>> {
            gang.iter().map(|runs| turns(runs, series.slice())).collect()
        };
        told(&turns(one), &turns(other), overlaps, series.nodes == 2);
    }
    Ok(())
}

/// What apinit and psched need for the turns of many pairs.
fn pairs() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let script = format!("touch {}/$ALPS_APP_ID; exec sleep 1000", folder.path().display());
    let start = |_| {
        let mut aprun = Command::new("aprun");
        aprun.args(["-q", "-n", "1", "sh", "-c", &script]).stdin(Stdio::null());
        aprun.spawn().map(Runs).context("aprun")
    };
    let _programs: Vec<Runs> = (0..PAIRS * 2).map(start).collect::<Result<_, _>>()?;
    let until = Instant::now() + Duration::from_secs(120);
    while fs::read_dir(folder.path())?.count() < PAIRS as usize * 2 {
        ensure!(Instant::now() < until, "not all of the programs run");
        std::thread::sleep(Duration::from_millis(100));
    }
    std::thread::sleep(Duration::from_secs(2));
    let (apinit, psched) = used_within(Duration::from_secs(10))?;
    println!(
        "{PAIRS} pairs on a node each, slices of {PAIRS_SLICE}: apinit {apinit:.1} %, psched {psched:.1} % of a processor"
    );
    Ok(())
}

/// How much of a processor the apinits and psched use from now on for so long, in percent.
fn used_within(time: Duration) -> anyhow::Result<(f64, f64)> {
    let daemons = daemons()?;
    let spent =
        |name: &str| daemons.iter().filter(|d| d.1 == name).map(|d| spent(d.0)).sum::<u64>();
    let (apinit, psched, began) = (spent("apinit"), spent("psched"), Instant::now());
    std::thread::sleep(time);
    let elapsed = began.elapsed().as_nanos() as f64;
    let share = |name: &str, before: u64| (spent(name) - before) as f64 / elapsed * 100.0;
    Ok((share("apinit", apinit), share("psched", psched)))
}

/// `times`: those of the changes too.
fn told(one: &[Vec<Run>], other: &[Vec<Run>], overlaps: usize, times: bool) {
    let (mut gaps, mut turns) = (Vec::new(), 0);
    for (one, other) in one.iter().zip(other) {
        let all = together(one, other);
        turns += all.len();
        for pair in all.windows(2) {
            let (((_, last), who), ((first, _), next)) = (pair[0], pair[1]);
            if first > last && who != next {
                gaps.push(Duration::from_nanos(first - last));
            }
        }
    }
    println!("  turns {turns}, overlaps {overlaps}");
    if !times {
        return;
    }
    // The nearest first stamp on the other node is of the same turn.
    let skew = |gang: &[Vec<Run>]| -> Vec<Duration> {
        let near = |first: u64| {
            let other = gang[1].iter().map(|run| run.0.abs_diff(first)).min()?;
            Some(Duration::from_nanos(other))
        };
        gang[0].iter().skip(1).filter_map(|run| near(run.0)).collect()
    };
    let skews = [skew(one), skew(other)].concat();
    for (name, times) in [("gap", gaps), ("skew", skews)] {
        let times = Sample::new(times);
        println!(
            "  {name:5}{:9.3}{:9.3}{:9.3}",
            times.median_ms(),
            times.percentile_ms(99),
            times.percentile_ms(100)
        );
    }
}

/// The uninterrupted runs of a process since then.
fn runs(table: &Path, since: u64) -> anyhow::Result<Vec<Run>> {
    let bytes = fs::read(table).with_context(|| table.display().to_string())?;
    let word = |at: usize| {
        let bytes = bytes.get(at..at + 8).and_then(|b| b.try_into().ok());
        bytes.map_or(0, u64::from_ne_bytes)
    };
    let count = word(0) as usize;
    let run = |n: usize| (word(HEAD + 16 * n), word(HEAD + 16 * n + 8));
    let mut all: Vec<Run> = (0..count).map(run).filter(|(first, _)| *first >= since).collect();
    // The last one may not be over.
    all.pop();
    Ok(all)
}

/// The turns of a process: runs that are parted by less than half of the shortest slice, a floor, are one.
fn turns(runs: &[Run], slice: Duration) -> Vec<Run> {
    let apart = floor::length(slice).max(SLICE_MIN).as_nanos() as u64 / 2;
    let mut all: Vec<Run> = Vec::new();
    for (first, last) in runs.iter().copied() {
        match all.last_mut() {
            Some(before) if first - before.1 < apart => before.1 = last,
            _ => all.push((first, last)),
        }
    }
    all
}

/// The runs of both in order of time, and whether each is of the first.
fn together(one: &[Run], other: &[Run]) -> Vec<(Run, bool)> {
    let mut all: Vec<(Run, bool)> = one.iter().map(|run| (*run, true)).collect();
    all.extend(other.iter().map(|run| (*run, false)));
    all.sort_unstable();
    all
}

/// How often a run of the one began before a run of the other was over.
fn overlaps(one: &[Run], other: &[Run]) -> usize {
    together(one, other).windows(2).filter(|pair| pair[1].0.0 <= pair[0].0.1).count()
}

fn monotonic_ns() -> u64 {
    psched::os::host::monotonic_ns()
}

/// The program that stamps.
fn built(folder: &Path) -> anyhow::Result<PathBuf> {
    let program = folder.join("stamp");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/stamp.c");
    let status = Command::new("cc")
        .args(["-O2", "-pthread", "-o"])
        .arg(&program)
        .arg(source)
        .status()
        .context("cc")?;
    ensure!(status.success(), "{source} can't be compiled");
    Ok(program)
}

/// Processor time of all threads of a process, in nanoseconds.
fn spent(pid: i32) -> u64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let of = |thread: fs::DirEntry| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    };
    threads.filter_map(of).sum()
}
