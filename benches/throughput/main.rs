//! How many short programs end in a second: `aprun -q -n 1 true` called by 1, 16 and 64 shells, each
//! of which calls the next when the one before has ended, beside `mpiexec.hydra -n 1 true` called in
//! the same way, in turns, on two processors; and the same programs as tasks of one job of HyperQueue.
//!
//! `cargo bench --bench throughput`. PSCHED_BENCH_RUNS changes how many there are of each (2,000).
//! Without mpiexec.hydra (Debian: mpich) or HyperQueue (PyPI: hyperqueue, and python3) their columns
//! are left out.
//!
//! The second table is what psched's own processes have used for one of aprun's programs, and how much
//! they have grown by all of them: memory, descriptors and threads.

#[path = "../support/daemons.rs"]
mod daemons;
#[path = "../support/hydra.rs"]
mod hydra;
// It needs no client of its own.
#[allow(dead_code, unused_imports)]
#[path = "../support/mod.rs"]
mod support;

use anyhow::{Context, bail};
use daemons::daemons;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use support::{machine, number, within_instance};

/// Shells at once, and how much of all each of these runs does: one shell alone is slow.
const CROWDS: [(usize, usize); 3] = [(1, 5), (16, 1), (64, 1)];

fn main() -> anyhow::Result<ExitCode> {
    if !support::is_bench("throughput") {
        return Ok(ExitCode::SUCCESS);
    }
    within_instance(&["--nodes", "1", "--processors", "2"], &[], measure)
}

fn measure() -> anyhow::Result<()> {
    let wanted = number("PSCHED_BENCH_RUNS", 2_000_usize)?;
    let has_hydra = hydra::is_there();
    let mut python = Command::new("python3");
    let imported = python.args(["-c", "import hyperqueue"]).stderr(Stdio::null()).status();
    let has_hq = imported.is_ok_and(|status| status.success());

    // Both are warm then.
    crowd("aprun -q", 2, 100)?;
    if has_hydra {
        crowd(hydra::PROGRAM, 2, 20)?;
    }
    println!("\nprograms a second, on {}", machine());
    println!("\n{:<12} {:>10} {:>10} {:>10}", "shells", "programs", "aprun", "hydra");
    let before = Servers::look()?;
    let mut run = 0;
    for (shells, part) in CROWDS {
        let count = wanted / part;
        let ours = crowd("aprun -q", shells, count)?;
        run += count;
        let rate = |took: Duration| count as f64 / took.as_secs_f64();
        let theirs = match has_hydra.then(|| crowd(hydra::PROGRAM, shells, count)) {
            Some(Ok(took)) => format!("{:.0}", rate(took)),
            Some(Err(error)) => {
                eprintln!("{error}");
                "fails".to_owned()
            }
            None => "-".to_owned(),
        };
        println!("{shells:<12} {count:>10} {:>10.0} {theirs:>10}", rate(ours));
    }
    let after = Servers::look()?;
    if has_hq {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/throughput/hq.py");
        let output = Command::new("python3").arg(script).arg(wanted.to_string()).output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        match text.lines().last().and_then(|line| line.parse::<f64>().ok()) {
            Some(took) => println!("HyperQueue: {wanted} tasks, {:.0}", wanted as f64 / took),
            None => println!("HyperQueue: {}", String::from_utf8_lossy(&output.stderr).trim()),
        }
    }
    after.compare(&before, run);
    Ok(())
}

/// So many programs by so many shells at once: from the first call to the last end.
fn crowd(command: &str, shells: usize, count: usize) -> anyhow::Result<Duration> {
    let began = Instant::now();
    let mut running = Vec::new();
    for shell in 0..shells {
        let own = count / shells + usize::from(shell < count % shells);
        let text = format!(
            "i=0; while [ $i -lt {own} ]; do {command} -n 1 true || exit 1; i=$((i+1)); done"
        );
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(text).stdin(Stdio::null());
        running.push(shell.spawn().context("sh")?);
    }
    let mut failed = 0;
    for mut shell in running {
        failed += usize::from(!shell.wait()?.success());
    }
    if failed > 0 {
        bail!("{command}: {failed} shells have stopped before their time");
    }
    Ok(began.elapsed())
}

/// What psched and its apinits have used, and what they are.
struct Servers(Vec<Server>);

struct Server {
    name: String,
    pid: i32,
    busy: Duration,
    resident_kib: u64,
    files: usize,
    threads: usize,
}

impl Server {
    /// `None`: it has ended.
    fn look((pid, name): (i32, String)) -> Option<Server> {
        let process = Path::new("/proc").join(pid.to_string());
        let read = |file: &str| fs::read_to_string(process.join(file)).ok();
        let count = |folder: &str| fs::read_dir(process.join(folder)).map_or(0, Iterator::count);
        let (status, stat) = (read("status")?, read("stat")?);
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        // utime and stime, in hundredths of a second: also those of threads that have ended.
        let (_, after) = stat.rsplit_once(") ")?;
        let ticks = after.split(' ').skip(11).take(2).filter_map(|t| t.parse::<u64>().ok());
        Some(Server {
            name,
            pid,
            busy: Duration::from_millis(ticks.sum::<u64>() * 10),
            resident_kib: resident.split_whitespace().next()?.parse().ok()?,
            files: count("fd"),
            threads: count("task"),
        })
    }
}

impl Servers {
    fn look() -> anyhow::Result<Servers> {
        Ok(Servers(daemons()?.into_iter().filter_map(Server::look).collect()))
    }

    fn compare(&self, before: &Servers, programs: usize) {
        println!(
            "\n{:<12} {:>12} {:>16} {:>16} {:>12}",
            "", "us a program", "KiB before/after", "files", "threads"
        );
        for now in &self.0 {
            let Some(old) = before.0.iter().find(|old| old.pid == now.pid) else { continue };
            let busy = now.busy.saturating_sub(old.busy).as_secs_f64() * 1e6 / programs as f64;
            println!(
                "{:<12} {busy:>12.0} {:>16} {:>16} {:>12}",
                now.name,
                format!("{}/{}", old.resident_kib, now.resident_kib),
                format!("{}/{}", old.files, now.files),
                format!("{}/{}", old.threads, now.threads),
            );
        }
    }
}
