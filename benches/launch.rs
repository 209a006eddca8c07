//! How long a launch takes: `aprun -q -n N true` beside Debian's `mpiexec.hydra -n N true` and Open MPI's
//! `mpirun -n N true`, and the same of an MPI program that begins and ends, and of one that spawns another and meets it; in
//! turns on one machine, from the fork of the front end to its end; and where aprun's time goes.
//!
//! `cargo bench --bench launch`. PSCHED_BENCH_RUNS changes the number of runs of each (50). Without
//! mpiexec.hydra (Debian: mpich), mpicc.mpich (libmpich-dev) or mpicc.openmpi (libopenmpi-dev, openmpi-bin) their rows
//! are left out; without the MPICH of tests/it/mpis/fetch those of an MPICH that spawns. (Debian's does not.)
//!
//! The second table is made of the event logs of those very applications, whose times are compared
//! with the clock readings just before the fork and just after the end: the first row is therefore
//! what happens in aprun before psched has the posting, the last what happens after psched knows of
//! the end. An event that psched adds to its log appears there as a row by itself.

#[path = "support/hydra.rs"]
mod hydra;
#[path = "support/programs.rs"]
mod programs;
mod support;

use anyhow::{Context, bail};
use psched::rpc::pb;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use support::{Sample, client, machine, number, within_instance, worded};

const WIDTHS: [u32; 2] = [1, 8];
const WARM_UP: usize = 5;

fn main() -> anyhow::Result<ExitCode> {
    if !support::is_bench("launch") {
        return Ok(ExitCode::SUCCESS);
    }
    within_instance(&["--nodes", "4", "--processors", "2"], &[], measure)
}

/// One kind of launch that is measured.
struct Kind {
    command: &'static [&'static str],
    width: u32,
    /// What it starts, and the name for that.
    program: PathBuf,
    named: &'static str,
    /// The words after it.
    arguments: &'static [&'static str],
    /// Where its libraries are, if not where Linux looks for them.
    libraries: Option<OsString>,
}

impl Kind {
    fn name(&self) -> String {
        let options = self.command.iter().filter(|word| !word.starts_with("--allow"));
        let words: Vec<&str> = options.copied().collect();
        format!("{} -n {} {}", words.join(" "), self.width, self.named)
    }

    fn new(
        command: &'static [&'static str],
        width: u32,
        program: &Path,
        named: &'static str,
    ) -> Kind {
        let program = program.to_owned();
        Kind { command, width, program, named, arguments: &[], libraries: None }
    }

    /// One whose steps are shown.
    fn is_plain(&self) -> bool {
        self.command == APRUN && self.named == "true"
    }
}

const APRUN: &[&str] = &["aprun", "-q"];
/// As a program of Open MPI is started.
const APRUN_PMIX: &[&str] = &["aprun", "-q", "--pmi=pmix"];
/// With a processor for what is spawned.
const APRUN_SPAWNS: &[&str] = &["aprun", "-q", "-d", "2"];
/// Debian's MPICH can't spawn; this one can, if it was fetched.
const SPAWNING_MPICH: &str = "target/mpis/mpich-4.3.2/lib";

/// What is measured of each width: a command without MPI, then a program of each MPI.
fn kinds(folder: &Path) -> anyhow::Result<Vec<Kind>> {
    let mut kinds = Vec::new();
    let (mpich, open) = (programs::is_there("mpicc.mpich"), programs::is_there("mpicc.openmpi"));
    let hydra: &[&str] = &[hydra::PROGRAM];
    let built = |there: bool, compiler| match there {
        true => programs::build(folder, compiler, "hello").map(Some),
        false => Ok(None),
    };
    let of_mpich = built(mpich, "mpicc.mpich")?;
    let of_open = built(open, "mpicc.openmpi")?;
    for width in WIDTHS {
        let mut add = |there: bool, command, program: &Path, named| {
            if there {
                kinds.push(Kind::new(command, width, program, named));
            }
        };
        let plain = Path::new("true");
        add(true, APRUN, plain, "true");
        add(hydra::is_there(), hydra, plain, "true");
        add(open, APRUN_PMIX, plain, "true");
        add(open, &programs::MPIRUN, plain, "true");
        if let Some(hello) = &of_mpich {
            add(true, APRUN, hello, "hello (MPICH)");
            add(hydra::is_there(), hydra, hello, "hello (MPICH)");
        }
        if let Some(hello) = &of_open {
            add(true, APRUN, hello, "hello (Open MPI)");
            add(true, &programs::MPIRUN, hello, "hello (Open MPI)");
        }
    }
    let mut spawns = |command, program: &Path, named, libraries: Option<&OsString>| {
        let kind = Kind::new(command, 1, program, named);
        kinds.push(Kind { arguments: &["1"], libraries: libraries.cloned(), ..kind });
    };
    let library = Path::new(env!("CARGO_MANIFEST_DIR")).join(SPAWNING_MPICH);
    if mpich && library.is_dir() && hydra::is_there() {
        // (What it has is not looked for in Debian's.)
        let file = library.join("libmpi.so.12");
        let options = ["-Wl,--no-as-needed".as_ref(), file.as_os_str(), "-Wl,--as-needed".as_ref()];
        let program = programs::build_with(folder, "mpicc.mpich", "family", &options)?;
        let libraries = library.clone().into_os_string();
        for command in [APRUN_SPAWNS, hydra] {
            spawns(command, &program, "spawn (MPICH)", Some(&libraries));
        }
    }
    if open {
        let program = programs::build(folder, "mpicc.openmpi", "family")?;
        for command in [APRUN_SPAWNS, &programs::MPIRUN] {
            spawns(command, &program, "spawn (Open MPI)", None);
        }
    }
    Ok(kinds)
}

/// One launch: clock readings in nanoseconds since the epoch, and the time between by a clock that
/// nobody sets.
struct Run {
    began_ns: u64,
    over_ns: u64,
    took: Duration,
}

fn measure() -> anyhow::Result<()> {
    let runs = number("PSCHED_BENCH_RUNS", 50usize)?;
    let folder = tempfile::tempdir()?;
    let kinds = kinds(folder.path())?;
    let mut done: Vec<Vec<Run>> = kinds.iter().map(|_| Vec::new()).collect();
    for turn in 0..WARM_UP + runs {
        for (kind, done) in kinds.iter().zip(&mut done) {
            let run = launch(kind)?;
            if turn >= WARM_UP {
                done.push(run);
            }
        }
    }

    println!("\nlaunch, {runs} of each in turns, on {}", machine());
    println!("\n{:<56} {:>10} {:>10} {:>10}", "ms", "median", "p95", "least");
    for (kind, runs) in kinds.iter().zip(&done) {
        let sample = Sample::new(runs.iter().map(|run| run.took).collect());
        println!(
            "{:<56} {:>10.2} {:>10.2} {:>10.2}",
            kind.name(),
            sample.median_ms(),
            sample.percentile_ms(95),
            sample.percentile_ms(0),
        );
    }

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    for (kind, runs) in kinds.iter().zip(&done).filter(|(kind, _)| kind.is_plain()) {
        println!("\nwhere the time of `{}` goes", kind.name());
        // The figures above stand, whatever becomes of these.
        match runtime.block_on(steps(kind.width, runs)) {
            Ok(steps) => print_steps(&steps),
            Err(error) => println!("is not known: {error:#}"),
        }
    }
    Ok(())
}

fn launch(kind: &Kind) -> anyhow::Result<Run> {
    let mut command = Command::new(kind.command[0]);
    command.args(&kind.command[1..]).arg("-n").arg(kind.width.to_string()).arg(&kind.program);
    command.args(kind.arguments);
    if let Some(libraries) = &kind.libraries {
        command.env("LD_LIBRARY_PATH", libraries);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let (began_ns, clock) = (now_ns(), Instant::now());
    let status = command.status().with_context(|| kind.name())?;
    let (over_ns, took) = (now_ns(), clock.elapsed());
    if !status.success() {
        bail!("{}: {status}", kind.name());
    }
    Ok(Run { began_ns, over_ns, took })
}

fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// From one event to the next one: names, and how long it took each time.
struct Step {
    from: String,
    to: String,
    times: Vec<Duration>,
}

/// Steps of the applications that those runs were, in the order in which they first appear.
async fn steps(width: u32, runs: &[Run]) -> anyhow::Result<Vec<Step>> {
    let mut psched = client().await?;
    let request = pb::ListRequest { history: 10_000, ..Default::default() };
    let list = psched.list(request).await.map_err(worded)?.into_inner();
    let mut steps: Vec<Step> = Vec::new();
    let mut places: BTreeMap<(String, String), usize> = BTreeMap::new();
    let mut found = 0;
    for run in runs {
        let same = |row: &&pb::ApplicationRow| {
            row.shape.as_ref().is_some_and(|shape| shape.width == width)
                && (run.began_ns..run.over_ns).contains(&row.posted_at_ns)
        };
        let Some(key) = list.history.iter().find(same).and_then(|row| row.key.as_ref()) else {
            continue;
        };
        found += 1;
        let request = pb::EventsRequest { apid: key.apid, ..Default::default() };
        let mut events = psched.events(request).await.map_err(worded)?.into_inner().events;
        events.sort_by_key(|event| event.at_ns);
        let named = |at_ns, name: &str| pb::EventRow {
            at_ns,
            name: name.to_owned(),
            detail: String::new(),
        };
        events.insert(0, named(run.began_ns, "aprun is called"));
        events.push(named(run.over_ns, "aprun has ended"));
        for pair in events.windows(2) {
            let names = (pair[0].name.clone(), pair[1].name.clone());
            let place = *places.entry(names.clone()).or_insert_with(|| {
                steps.push(Step { from: names.0, to: names.1, times: Vec::new() });
                steps.len() - 1
            });
            // psched may write an event down after aprun has ended.
            let time = pair[1].at_ns.saturating_sub(pair[0].at_ns);
            steps[place].times.push(Duration::from_nanos(time));
        }
    }
    if found == 0 {
        bail!("psched's history has none of these applications");
    }
    println!("({found} of {} found in psched's history)", runs.len());
    Ok(steps)
}

fn print_steps(steps: &[Step]) {
    println!("{:<20} {:<20} {:>8} {:>10} {:>10}", "from", "to", "times", "median ms", "p95 ms");
    let mut sum = 0.0;
    for step in steps {
        let sample = Sample::new(step.times.clone());
        sum += sample.median_ms();
        println!(
            "{:<20} {:<20} {:>8} {:>10.3} {:>10.3}",
            step.from,
            step.to,
            step.times.len(),
            sample.median_ms(),
            sample.percentile_ms(95),
        );
    }
    println!("{:<41} {:>8} {sum:>10.3}", "sum of medians", "");
}
