//! What moves within a host cost: how long an application stands, how long its owner waits for `psmgr`; and
//! how long it takes to bring fifty small applications together so that a wide one can begin.
//!
//! `cargo bench --bench moves`. PSCHED_BENCH_RUNS changes the number of moves (40). How long one stands is
//! what psched's log of events says, from the moment when it is known to be frozen until all its threads are
//! bound and it may go on. Beside it is the least that a frozen gang costs: the time that the switcher takes
//! for a change of party on the same machine is in `cargo bench --bench turns`.

mod support;

use anyhow::{Context, bail};
use psched::rpc::pb;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use support::{Sample, client, machine, number, within_instance, worded};

/// Small ones that are moved together, and as many that end before.
const SMALL: usize = 50;
const PES: u32 = 8;

fn main() -> anyhow::Result<ExitCode> {
    if !support::is_bench("moves") {
        return Ok(ExitCode::SUCCESS);
    }
    let config =
        std::env::temp_dir().join(format!("psched-bench-moves-{}.yaml", std::process::id()));
    let last = 2 * SMALL - 1;
    let text = format!(
        "nodes:\n  - {{ nids: 0, processors: 1, flavors: [su, os, ap] }}\n  - {{ nids: 1-{last}, \
         processors: 1 }}\nregions:\n  - {{ name: all, nids: '0-{last}' }}\n"
    );
    std::fs::write(&config, text).context("a configuration")?;
    let path = config.to_string_lossy().into_owned();
    let done = within_instance(&["--config", &path], &[], measure);
    let _ = std::fs::remove_file(config);
    done
}

fn measure() -> anyhow::Result<()> {
    let runs = number("PSCHED_BENCH_RUNS", 40usize)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    println!("\nmoves within a host, on {}", machine());
    println!("\n{:<44} {:>10} {:>10} {:>10}", "ms", "median", "p95", "least");
    for busy in [false, true] {
        let (stood, took) = to_and_fro(&runtime, busy, runs)?;
        let kind = if busy { "busy" } else { "asleep" };
        row(&format!("{PES} PEs, {kind}: it stands"), &stood);
        row(&format!("{PES} PEs, {kind}: psmgr migrate, whole"), &took);
    }
    together()
}

fn row(name: &str, sample: &Sample) {
    println!(
        "{name:<44} {:>10.2} {:>10.2} {:>10.2}",
        sample.median_ms(),
        sample.percentile_ms(95),
        sample.percentile_ms(0)
    );
}

/// One of eight PEs goes to other nodes and back.
fn to_and_fro(
    runtime: &tokio::runtime::Runtime,
    busy: bool,
    runs: usize,
) -> anyhow::Result<(Sample, Sample)> {
    let script = if busy { "while :; do :; done" } else { "sleep 1000" };
    let width = PES.to_string();
    let mut aprun = start(&["-q", "-n", &width, "sh", "-c", script])?;
    let apid = running(1)?[0];
    let mut took = Vec::new();
    for run in 0..runs {
        let first = if run % 2 == 0 { PES } else { 0 };
        let nids = format!("{first}-{}", first + PES - 1);
        let clock = Instant::now();
        psmgr(&["migrate", &apid.to_string(), &nids])?;
        took.push(clock.elapsed());
    }
    let stood = runtime.block_on(stood(apid, runs))?;
    end(&[apid])?;
    aprun.wait().context("aprun")?;
    Ok((Sample::new(stood), Sample::new(took)))
}

/// How long it stood for each move, from its log of events.
async fn stood(apid: u64, runs: usize) -> anyhow::Result<Vec<Duration>> {
    let mut psched = client().await?;
    for _ in 0..100 {
        let request = pb::EventsRequest { apid, ..Default::default() };
        let events = psched.events(request).await.map_err(worded)?.into_inner().events;
        let moved = events.iter().filter(|event| event.name == "moved");
        let ms = moved.filter_map(|event| {
            let (_, ms) = event.detail.rsplit_once(", in ")?;
            ms.strip_suffix(" ms")?.parse::<f64>().ok()
        });
        let all: Vec<Duration> = ms.map(|ms| Duration::from_secs_f64(ms / 1e3)).collect();
        if all.len() >= runs {
            return Ok(all);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    bail!("not all moves are in the log")
}

/// Every other one of a full machine ends, the rest is brought together, a wide one begins.
fn together() -> anyhow::Result<()> {
    let mut apruns: Vec<Child> = Vec::new();
    for _ in 0..2 * SMALL {
        apruns.push(start(&["-q", "sleep", "1000"])?);
    }
    let apids = running(2 * SMALL)?;
    let others: Vec<u64> = apids.iter().copied().step_by(2).collect();
    end(&others)?;
    let left = running(SMALL)?;
    let clock = Instant::now();
    psmgr(&["compact", "all"])?;
    let compacted = clock.elapsed();
    let wide = SMALL.to_string();
    let begun = Instant::now();
    let status = start(&["-q", "-n", &wide, "true"])?.wait().context("aprun")?;
    if !status.success() {
        bail!("the wide one: {status}");
    }
    println!(
        "\n{SMALL} applications brought together: {:.0} ms, {:.1} ms each; then `aprun -n {SMALL} true`: {:.0} ms",
        compacted.as_secs_f64() * 1e3,
        compacted.as_secs_f64() * 1e3 / SMALL as f64,
        begun.elapsed().as_secs_f64() * 1e3
    );
    end(&left)?;
    for mut aprun in apruns {
        aprun.wait().context("aprun")?;
    }
    Ok(())
}

fn start(arguments: &[&str]) -> anyhow::Result<Child> {
    let mut command = Command::new("aprun");
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().context("aprun")
}

fn psmgr(arguments: &[&str]) -> anyhow::Result<()> {
    let output = Command::new("psmgr").args(arguments).output().context("psmgr")?;
    if !output.status.success() {
        bail!("psmgr {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

fn end(apids: &[u64]) -> anyhow::Result<()> {
    let apids = apids.iter().map(u64::to_string);
    let status = Command::new("apkill").arg("-9").args(apids).status().context("apkill")?;
    if !status.success() {
        bail!("apkill: {status}");
    }
    Ok(())
}

/// So many run, and no more: who.
fn running(count: usize) -> anyhow::Result<Vec<u64>> {
    for _ in 0..2_000 {
        let output = Command::new("apstat").args(["-a", "--json"]).output().context("apstat")?;
        let view: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let rows = view["applications"].as_array().cloned().unwrap_or_default();
        let runs = |row: &&serde_json::Value| row["state"] == "running";
        let found: Vec<u64> =
            rows.iter().filter(runs).filter_map(|row| row["apid"].as_u64()).collect();
        if found.len() == count && rows.len() == count {
            return Ok(found);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    bail!("there are not {count} that run")
}
