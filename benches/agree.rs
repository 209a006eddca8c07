//! Whether `psched simulate` tells what a real psched does: one workload, posted to a `psched start` and replayed.
//!
//! `cargo bench --bench agree`, as root (the applications are of several users). Two workloads:
//!
//! - *mix*: on two real processors, where PEs spin: interactive runs, sweeps, and wide and narrow long ones of four
//!   users. Drawn from a seed (PSCHED_BENCH_SEED, 1).
//! - *log*: two days of the KTH-SP2 log with all times divided by 1,000, on a hundred made-up nodes. A PE counts the
//!   time in which it was not frozen, in short sleeps; no idle time is given away. Left out where PSCHED_TRACES does
//!   not name a folder with the log.
//!
//! Of each application the response (from posting to end) live is divided by that in the simulator for the same
//! arrivals. There its run is longer by what a launch of so many PEs takes on the idle machine, and each launch is
//! an application of its own, of a user without usage: a launch takes processor time from programs that run.
//! Responses depend on milliseconds, also in the simulator. So there are [`REPLAYS`], in which each arrival is up to 3 ms later, and
//! responses are compared with their mean. Beside it stands how far the first replay is off from that mean.
//!
//! PSCHED_BENCH_WORKLOAD names the only one to run, PSCHED_BENCH_JOBS a file in which there is a line for each
//! application.

// It needs no client of its own.
#[allow(dead_code, unused_imports)]
mod support;

use anyhow::{Context, ensure};
use rustix::time::{ClockId, clock_gettime};
use std::fmt::Write as _;
use std::io::Read;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use support::{is_bench, is_inside, machine, within_instance};

/// The first uid of users of a workload.
const UIDS: u32 = 61_400;
/// How long a PE of a made-up processor sleeps at a time.
const NAP: Duration = Duration::from_millis(5);

/// Replays of a workload by the simulator, and by how many milliseconds arrivals are later in these.
const REPLAYS: u64 = 8;
const LATER: u64 = 3;

/// One application. Times in milliseconds.
#[derive(Clone, Copy, Debug)]
struct Job {
    at: u64,
    run: u64,
    width: u32,
    user: u32,
}

/// A workload, and the machine that it is for.
struct Workload {
    name: &'static str,
    nodes: u32,
    processors: u32,
    /// What a PE does: `spin`, or `nap` where processors are made up.
    work: &'static str,
    variables: &'static [(&'static str, &'static str)],
    jobs: Vec<Job>,
}

fn main() -> anyhow::Result<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    if let (Some(work @ ("spin" | "nap")), Some(run)) =
        (arguments.next().as_deref(), arguments.next())
    {
        works(work, Duration::from_millis(run.parse()?));
        return Ok(ExitCode::SUCCESS);
    }
    if !is_bench("agree") {
        return Ok(ExitCode::SUCCESS);
    }
    let only = std::env::var("PSCHED_BENCH_WORKLOAD").ok();
    let wanted = |workload: &Workload| only.as_deref().is_none_or(|only| only == workload.name);
    let all = [Some(mix()?), log()?].into_iter().flatten().filter(wanted);
    if is_inside() {
        for workload in all {
            compare(&workload)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    ensure!(
        rustix::process::geteuid().is_root(),
        "the workloads have several users: run it as root"
    );
    println!("{}", machine());
    for workload in all {
        let (nodes, processors) = (workload.nodes.to_string(), workload.processors.to_string());
        let set: Vec<String> = workload.variables.iter().map(|(n, v)| format!("{n}={v}")).collect();
        let mut options = vec!["--nodes", &nodes, "--processors", &processors];
        for one in &set {
            options.extend(["--set", one]);
        }
        let name = workload.name.as_ref();
        within_instance(&options, &[("PSCHED_BENCH_WORKLOAD", name)], || Ok(()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What a PE does for so long.
fn works(work: &str, run: Duration) {
    if work == "spin" {
        let used = || {
            let time = clock_gettime(ClockId::ProcessCPUTime);
            Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
        };
        while used() < run {
            // (The clock is a system call.)
            (0..20_000).for_each(|_| std::hint::spin_loop());
        }
        return;
    }
    let mut had = Duration::ZERO;
    while had < run {
        let (began, nap) = (Instant::now(), NAP.min(run - had));
        std::thread::sleep(nap);
        // (Much longer: it was frozen.)
        had += began.elapsed().min(2 * nap);
    }
}

fn mix() -> anyhow::Result<Workload> {
    let seed = std::env::var("PSCHED_BENCH_SEED").map_or(Ok(1), |seed| seed.parse())?;
    let mut dice = fastrand::Rng::with_seed(seed);
    let mut jobs = Vec::new();
    // Long ones, wide and narrow.
    for n in 0..3 {
        jobs.push(Job { at: 500 + 3_000 * n, run: 12_000, width: 2, user: 0 });
        jobs.push(Job { at: 2_000 + 4_000 * n, run: 9_000, width: 1, user: 1 });
    }
    // Two sweeps.
    for begin in [8_000, 35_000] {
        jobs.extend((0..30).map(|n| Job { at: begin + 10 * n, run: 200, width: 1, user: 2 }));
    }
    // Somebody at a terminal.
    let mut at = 1_000;
    while at < 80_000 {
        let (run, width) = (dice.u64(20..420), dice.u32(1..=2));
        jobs.push(Job { at, run, width, user: 3 });
        at += dice.u64(600..3_100);
    }
    jobs.sort_by_key(|job| job.at);
    Ok(Workload { name: "mix", nodes: 1, processors: 2, work: "spin", variables: &[], jobs })
}

/// Two days of the log, from when its machine has filled.
fn log() -> anyhow::Result<Option<Workload>> {
    const BEGIN: i64 = 30 * 86_400;
    let Some(folder) = std::env::var_os("PSCHED_TRACES") else { return Ok(None) };
    let path = Path::new(&folder).join("KTH-SP2-1996-2.1-cln.swf.gz");
    let mut text = String::new();
    flate2::read::GzDecoder::new(std::fs::File::open(&path).context("the log of KTH-SP2")?)
        .read_to_string(&mut text)?;
    let mut jobs = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with(';')) {
        let fields: Vec<i64> = line.split_whitespace().filter_map(|f| f.parse().ok()).collect();
        let [_, submit, _, run, width, .., _] = fields[..] else { continue };
        let user = fields.get(11).copied().unwrap_or(0);
        if (BEGIN..BEGIN + 2 * 86_400).contains(&submit) && run > 0 && width > 0 {
            jobs.push(Job {
                at: (submit - BEGIN) as u64,
                run: run as u64,
                width: width as u32,
                user: user.unsigned_abs() as u32 % 1_000,
            });
        }
    }
    Ok(Some(Workload {
        name: "log",
        nodes: 100,
        processors: 1,
        work: "nap",
        variables: &[("application.idle_after", "0s")],
        jobs,
    }))
}

/// Posts one, and waits for its end. Returned: how long that took.
fn posted(workload: &Workload, program: &Path, job: Job) -> anyhow::Result<Duration> {
    let began = Instant::now();
    let uid = (UIDS + job.user).to_string();
    let aprun = program.with_file_name("aprun");
    let status = Command::new("setpriv")
        .args(["--reuid", &uid, "--regid", &uid, "--clear-groups", "--"])
        .arg(aprun)
        .args(["-q", "-n", &job.width.to_string()])
        .arg(program)
        .args([workload.work, &job.run.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .current_dir("/")
        .status()?;
    ensure!(status.success(), "an application ended with {status}");
    Ok(began.elapsed())
}

/// What launches take on the idle machine: each a little, and each PE.
#[derive(Clone, Copy)]
struct Launch {
    of_one: Duration,
    of_all: Duration,
    processors: u32,
}

impl Launch {
    /// By the medians of twenty with one PE and with one on each processor.
    fn measured(workload: &Workload, program: &Path) -> anyhow::Result<Launch> {
        let median = |width: u32| -> anyhow::Result<Duration> {
            let none = Job { at: 0, run: 0, width, user: 900 };
            let mut all: Vec<Duration> =
                (0..20).map(|_| posted(workload, program, none)).collect::<Result<_, _>>()?;
            all.sort_unstable();
            Ok(all[all.len() / 2])
        };
        let processors = workload.nodes * workload.processors;
        Ok(Launch { of_one: median(1)?, of_all: median(processors)?, processors })
    }

    /// Of so many PEs.
    fn of(&self, width: u32) -> Duration {
        let more = self.of_all.saturating_sub(self.of_one);
        self.of_one + more * (width.max(1) - 1) / (self.processors - 1).max(1)
    }
}

/// The responses of all, live.
fn live(workload: &Workload, program: &Path) -> anyhow::Result<Vec<Duration>> {
    let began = Instant::now();
    std::thread::scope(|scope| {
        let run = |job: &Job| {
            let job = *job;
            let left = Duration::from_millis(job.at).saturating_sub(began.elapsed());
            std::thread::sleep(left);
            scope.spawn(move || posted(workload, program, job))
        };
        let all: Vec<_> = workload.jobs.iter().map(run).collect();
        let joined = |one: std::thread::ScopedJoinHandle<'_, anyhow::Result<Duration>>| {
            one.join().map_err(|_| anyhow::anyhow!("a thread has died"))?
        };
        all.into_iter().map(joined).collect()
    })
}

/// The responses in a replay by the simulator, with each arrival a little later.
fn simulated(
    workload: &Workload,
    folder: &Path,
    launch: Launch,
    seed: u64,
) -> anyhow::Result<Vec<Duration>> {
    let mut dice = fastrand::Rng::with_seed(seed);
    // What is posted when: a launch, and a millisecond later the application.
    let mut posted: Vec<(u64, usize, bool)> = Vec::new();
    for (number, job) in workload.jobs.iter().enumerate() {
        let at = job.at + dice.u64(0..=LATER);
        posted.push((at + 1, number, true));
        // (Made-up processors run no aprun.)
        if workload.work == "spin" {
            posted.push((at, number, false));
        }
    }
    posted.sort_unstable();
    let mut log = format!("; MaxProcs: {}\n", workload.nodes * workload.processors);
    for (line, (at, number, is_job)) in (1..).zip(&posted) {
        let Job { run, width, user, .. } = workload.jobs[*number];
        let takes = launch.of(width).as_millis() as u64;
        let (run, width, user) = match is_job {
            true => (run + takes, width, user),
            // (Of a user who has had nothing.)
            false => (takes, 1, 10_000 + *number as u32),
        };
        writeln!(
            log,
            "{line} {at} 0 {run} {width} -1 -1 {width} {run} -1 1 {user} 1 -1 -1 -1 -1 -1"
        )?;
    }
    let (path, out) = (folder.join("log.swf"), folder.join("out.tsv"));
    std::fs::write(&path, log)?;
    let nodes = format!("{}x{}", workload.nodes, workload.processors);
    let mut command = Command::new(env!("CARGO_BIN_EXE_psched"));
    command.args(["simulate", "--unit", "1ms", "--start-cost", "1ms", "--move-cost", "20ms"]);
    command.args(["--overrun", "extend", "--nodes", &nodes, "--out"]).arg(&out).arg(&path);
    for (name, value) in workload.variables {
        command.arg("--set").arg(format!("{name}={value}"));
    }
    let done = command.stdout(Stdio::null()).status()?;
    ensure!(done.success(), "psched simulate: {done}");
    let mut responses = vec![Duration::ZERO; workload.jobs.len()];
    for line in std::fs::read_to_string(&out)?.lines().skip(1) {
        let fields: Vec<&str> = line.split('\t').collect();
        let line: usize = fields[0].parse()?;
        let (submit, end): (f64, f64) = (fields[1].parse()?, fields[6].parse()?);
        if let (_, number, true) = posted[line - 1] {
            responses[number] = Duration::from_secs_f64(end - submit);
        }
    }
    Ok(responses)
}

/// How responses are to what was expected.
struct Agreement {
    ratio: f64,
    /// By how much they are off, in percent.
    median: f64,
    p95: f64,
}

impl Agreement {
    fn of(responses: &[Duration], expected: &[f64]) -> Agreement {
        let ratio = |(one, expected): (&Duration, &f64)| one.as_secs_f64() / expected;
        let mut ratios: Vec<f64> = responses.iter().zip(expected).map(ratio).collect();
        let mut off: Vec<f64> =
            ratios.iter().map(|ratio| (ratio.ln().abs().exp() - 1.0) * 100.0).collect();
        ratios.sort_by(f64::total_cmp);
        off.sort_by(f64::total_cmp);
        let at = |of: &[f64], percent: usize| of[(of.len() * percent / 100).min(of.len() - 1)];
        Agreement { ratio: at(&ratios, 50), median: at(&off, 50), p95: at(&off, 95) }
    }
}

fn compare(workload: &Workload) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    open(folder.path())?;
    if let Some(socket) = std::env::var_os("PSCHED_SOCKET") {
        open(Path::new(&socket).parent().context("a folder")?)?;
    }
    // (Others may run what is there.)
    let program = folder.path().join("agree");
    std::fs::copy(std::env::current_exe()?, &program)?;
    std::fs::copy(env!("CARGO_BIN_EXE_aprun"), folder.path().join("aprun"))?;
    let launch = Launch::measured(workload, &program)?;
    let live = live(workload, &program)?;
    let replays: Vec<Vec<Duration>> = (1..=REPLAYS)
        .map(|seed| simulated(workload, folder.path(), launch, seed))
        .collect::<Result<_, _>>()?;
    // (The geometric mean: what is compared are ratios.)
    let expected: Vec<f64> = (0..live.len())
        .map(|job| {
            let logs = replays.iter().map(|replay| replay[job].as_secs_f64().ln());
            (logs.sum::<f64>() / REPLAYS as f64).exp()
        })
        .collect();
    let mut lines = String::from("at\trun\twidth\tuser\tlive\tsimulated\n");
    for ((job, live), expected) in workload.jobs.iter().zip(&live).zip(&expected) {
        let (Job { at, run, width, user }, live) = (job, live.as_secs_f64());
        writeln!(lines, "{at}\t{run}\t{width}\t{user}\t{live:.3}\t{expected:.3}")?;
    }
    if let Some(path) = std::env::var_os("PSCHED_BENCH_JOBS") {
        std::fs::write(path, lines)?;
    }
    let (one, other) = (Agreement::of(&live, &expected), Agreement::of(&replays[0], &expected));
    let mean = |of: f64| of / live.len() as f64;
    println!(
        "{}: {} applications, a launch {:.1} ms with 1 PE, {:.1} ms with {}; live / simulated: median {:.3}; off by \
         {:.1} % (median), {:.1} % (p95), one replay by {:.1} and {:.1} %; mean response {:.3} s live, {:.3} s simulated",
        workload.name,
        workload.jobs.len(),
        launch.of_one.as_secs_f64() * 1e3,
        launch.of_all.as_secs_f64() * 1e3,
        launch.processors,
        one.ratio,
        one.median,
        one.p95,
        other.median,
        other.p95,
        mean(live.iter().sum::<Duration>().as_secs_f64()),
        mean(expected.iter().sum()),
    );
    Ok(())
}

/// Others may enter it.
fn open(folder: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    Ok(std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755))?)
}
