//! What a checkpoint and a restart of an MPI program cost, beside what CRIU alone takes for the same program.
//!
//! `cargo bench --bench checkpoints`, as root. PSCHED_BENCH_RUNS changes the number of rounds (10). It needs a
//! CRIU (the one that PSCHED_CRIU names, else what `tests/it/checkpoint/fetch` has fetched, else `criu` in
//! PATH) and Debian's mpich and libmpich-dev; where one of them is not there it says so, and that is all.
//!
//! # What is compared
//! In each round the same program (`tests/programs/laps.c`), with as many PEs, runs twice:
//!
//! - under aprun, in a private instance of eight nodes: `cpr -c -g`, then `cpr -c -k`, then `cpr -r`;
//! - under MPICH's mpiexec: `criu dump --leave-running`, then `criu dump`, then `criu restore --restore-detached`.
//!   CRIU has mpiexec and its proxy to dump there, and the apshepherd here.
//!
//! Rounds alternate, so that both have the same neighbours, and each figure is a median of all rounds (but for
//! a first one, which is not counted); `p95` is beside it. `ratio` is of the medians, ours to CRIU's.
//!
//! # How to read it
//! CRIU alone leaves its images in the page cache, and nobody knows later whether they are what it wrote. Ours
//! are on disk and sealed when cpr ends. So there are two columns of CRIU's: *bare* is the command alone;
//! *sealed* adds what the plainest program would take to do the same after it: it reads each file for its
//! SHA-256 and calls fsync on it, one after the other, and on the folder at last.
//!
//! - *stands still*: ours is what cpr tells, from the moment when its shepherd is hung up on until the gang may
//!   have its turn again; CRIU's is its own count (`stats-dump`), in which its start and its end are not.
//!   The line below has CRIU's own count of ours.
//! - *whole*: from the start of the command until it has ended.
//! - *restart*: from the start of cpr until psched has written down that the application runs (`unlocked`); of
//!   which from `recovering`, when its node has the folder. CRIU's: from start to end of the command.
//! - *size*: what the images take on disk.
//!
//! Where /run is no tmpfs, as in some containers and virtual machines, each CRIU probes the kernel anew, ours and
//! the one alone: to look for /run/criu.kdat after a round tells. For us that is before the gang stands, and while
//! pages are copied.
//!
//! With more PEs than processors the PEs, which never sleep, compete with whatever runs beside them, CRIU and
//! checksums too: then figures of `-g` say as much of the kernel's scheduler as of anybody here.

mod bare;
mod ours;
#[path = "../support/mod.rs"]
mod support;

use anyhow::{Context, bail};
use psched::node::checkpoint::criu::Criu;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use support::{Sample, machine, number, within_instance};

const WIDTHS: [u32; 2] = [2, 8];
/// How long anything that is waited for may take.
const BOUND: Duration = Duration::from_secs(120);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(2);
/// Where the command of the instance finds the program: it was built outside.
const PROGRAM: &str = "PSCHED_BENCH_PROGRAM";

fn main() -> anyhow::Result<ExitCode> {
    if !support::is_bench("checkpoints") {
        return Ok(ExitCode::SUCCESS);
    }
    if support::is_inside() {
        return within_instance(&[], &[], measure);
    }
    let criu = match lacks() {
        Ok(criu) => criu,
        Err(why) => {
            println!("checkpoints: nothing is measured: {why}");
            return Ok(ExitCode::SUCCESS);
        }
    };
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).context("a folder")?;
    let program = built(folder.path())?;
    let variables = [
        ("PSCHED_CRIU", criu.program().as_os_str()),
        (PROGRAM, program.as_os_str()),
        // Shared memory and nothing else: what goes by a network card can't be dumped.
        ("UCX_TLS", "posix,self".as_ref()),
    ];
    within_instance(&["--nodes", "8", "--processors", "1"], &variables, measure)
}

/// A CRIU that works; or what is missing here.
fn lacks() -> Result<Criu, String> {
    if !nix::unistd::geteuid().is_root() {
        return Err("only root can dump and restore with CRIU".into());
    }
    let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/criu/criu");
    let named = std::env::var_os("PSCHED_CRIU").map(PathBuf::from);
    let named = named.or_else(|| fetched.is_file().then_some(fetched));
    let criu = Criu::find(named.as_deref()).and_then(|criu| criu.check().map(|_| criu));
    let criu = criu.map_err(|why| format!("{why} (tests/it/checkpoint/fetch fetches one)"))?;
    for (program, option) in
        [("mpicc.mpich", "-v"), ("mpiexec.hydra", "-version"), ("setsid", "--version")]
    {
        let mut command = Command::new(program);
        command.arg(option).stdout(Stdio::null()).stderr(Stdio::null());
        if !command.status().is_ok_and(|status| status.success()) {
            return Err(format!(
                "there is no {program} (apt-get install mpich libmpich-dev util-linux)"
            ));
        }
    }
    Ok(criu)
}

fn built(folder: &Path) -> anyhow::Result<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/laps.c");
    let program = folder.join("laps");
    let mut command = Command::new("mpicc.mpich");
    let status = command.args(["-O1", "-o"]).arg(&program).arg(&source).status();
    if !status.context("mpicc.mpich")?.success() {
        bail!("{} can't be built", source.display());
    }
    Ok(program)
}

/// One application, dumped twice and restored.
pub struct Round {
    /// Bytes on disk.
    size: u64,
    /// How long it stood, as whoever did it says.
    stood: Duration,
    /// The same by CRIU's count.
    frozen: Duration,
    /// A dump after which it goes on.
    go_on: Duration,
    /// What it takes to seal that.
    go_on_sealed: Duration,
    /// A dump that ends it.
    end: Duration,
    /// What it takes to seal that.
    end_sealed: Duration,
    /// Until it runs again.
    back: Duration,
    /// Of that, without what is before.
    back_proper: Duration,
}

fn measure() -> anyhow::Result<()> {
    let runs = number("PSCHED_BENCH_RUNS", 10usize)?;
    let program = PathBuf::from(std::env::var_os(PROGRAM).context(PROGRAM)?);
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).context("a folder")?;
    let criu = Criu::here()?;
    println!("\ncheckpoints, {runs} rounds, in turns, on {}", machine());
    for width in WIDTHS {
        let (mut ours, mut bare) = (Vec::new(), Vec::new());
        for turn in 0..=runs {
            let at = |who: &str| folder.path().join(format!("{who}-{width}-{turn}"));
            let round = ours::round(&program, width, &at("ours"))?;
            let beside = bare::round(&criu, &program, width, &at("bare"))
                .with_context(|| format!("CRIU alone, {width} PEs"))?;
            if turn > 0 {
                ours.push(round);
                bare.push(beside);
            }
        }
        print(width, &ours, &bare);
    }
    println!("\nnow on {}", machine());
    Ok(())
}

fn print(width: u32, ours: &[Round], bare: &[Round]) {
    println!(
        "\n{:<42} {:>16} {:>16} {:>6} {:>16} {:>6}",
        format!("{width} PEs, ms: median (p95)"),
        "ours",
        "bare",
        "ratio",
        "sealed",
        "ratio"
    );
    let sample = |rounds: &[Round], of: &dyn Fn(&Round) -> Duration| {
        Sample::new(rounds.iter().map(of).collect())
    };
    let told =
        |sample: &Sample| format!("{:.1} ({:.1})", sample.median_ms(), sample.percentile_ms(95));
    type Of = fn(&Round) -> Duration;
    let rows: [(&str, Of, Option<Of>); 6] = [
        ("-g: stands still", |r| r.stood, None),
        ("    by CRIU's own count", |r| r.frozen, None),
        ("-g: whole", |r| r.go_on, Some(|r| r.go_on + r.go_on_sealed)),
        ("-k: whole", |r| r.end, Some(|r| r.end + r.end_sealed)),
        ("restart: from the call until it runs", |r| r.back, None),
        ("         from recovering until it runs", |r| r.back_proper, None),
    ];
    for (name, of, sealed) in rows {
        let (mine, alone) = (sample(ours, &of), sample(bare, &of));
        let ratio = |other: &Sample| mine.median_ms() / other.median_ms();
        print!("{name:<42} {:>16} {:>16} {:>6.2}", told(&mine), told(&alone), ratio(&alone));
        match sealed.map(|sealed| sample(bare, &sealed)) {
            Some(sealed) => println!(" {:>16} {:>6.2}", told(&sealed), ratio(&sealed)),
            None => println!(),
        }
    }
    let median = |rounds: &[Round]| {
        let mut sizes: Vec<u64> = rounds.iter().map(|round| round.size).collect();
        sizes.sort_unstable();
        sizes.get(sizes.len() / 2).map_or(f64::NAN, |bytes| *bytes as f64 / 1e6)
    };
    let (mine, alone) = (median(ours), median(bare));
    println!("{:<42} {mine:>16.1} {alone:>16.1} {:>6.2}", "size, MB", mine / alone);
}

/// What an image that tells of a dump has of times, in microseconds.
#[derive(Clone, PartialEq, prost::Message)]
struct DumpStats {
    #[prost(uint32, tag = "1")]
    freezing: u32,
    #[prost(uint32, tag = "2")]
    frozen: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Stats {
    #[prost(message, optional, tag = "1")]
    dump: Option<DumpStats>,
}

/// How long CRIU says that it has held everybody: from its first look at them on.
pub fn held(images: &Path) -> anyhow::Result<Duration> {
    let path = images.join("stats-dump");
    let bytes = std::fs::read(&path).with_context(|| path.display().to_string())?;
    // Two magic numbers and a length, of four bytes each, and then the message.
    let message = bytes.get(12..).context("stats-dump is short")?;
    let stats: Stats = prost::Message::decode(message).context("stats-dump")?;
    let dump = stats.dump.context("stats-dump tells of no dump")?;
    Ok(Duration::from_micros(u64::from(dump.freezing) + u64::from(dump.frozen)))
}

/// What the files of a folder, and of those in it, take on disk.
pub fn size(folder: &Path) -> anyhow::Result<u64> {
    let mut sum = 0;
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        let found = entry.metadata()?;
        sum += if found.is_dir() { size(&entry.path())? } else { found.blocks() * 512 };
    }
    Ok(sum)
}

/// Waits until something is so.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> anyhow::Result<T> {
    let begun = Instant::now();
    while begun.elapsed() < BOUND {
        if let Some(found) = look() {
            return Ok(found);
        }
        std::thread::sleep(LOOK);
    }
    bail!("{what}: not within {BOUND:?}")
}

/// Whether the program has written that.
pub fn has_written(file: &Path, what: &str) -> Option<()> {
    std::fs::read_to_string(file).ok()?.contains(what).then_some(())
}

/// What the program has to say at its end.
pub fn ended_well(file: &Path) -> anyhow::Result<()> {
    until("the end of the program", || has_written(file, "ended "))?;
    match has_written(file, "ended together, 0 words wrong\n") {
        Some(()) => Ok(()),
        None => bail!("it has ended with a wrong answer: {}", file.display()),
    }
}
