//! How long psched and apinit are away when they are killed: with 1,000 applications of one PE running,
//! and with none, in one run.
//!
//! `cargo bench --bench restart`. PSCHED_BENCH_APPLICATIONS changes the number of applications (1000),
//! PSCHED_BENCH_RUNS the number of kills of each kind (5). Each application is a real apshepherd with a
//! `sleep`, and an aprun that waits for it.
//!
//! For psched, *answers* is from kill -9 to the first answer of the next one, *reconciled* to the moment
//! when every node is open again and every application is known to run. For apinit there is only the
//! latter. `psched start` starts both again, at once if they have run for two seconds.
//!
//! The applications run on when all that is measured; how long the instance takes to end them, and
//! itself, is the last figure.

mod support;

use anyhow::{Context, bail};
use psched::rpc::pb;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use support::{Client, Sample, client, machine, number, within_instance, worded};

/// Between two questions.
const PAUSE: Duration = Duration::from_millis(2);
/// The longest that anything here may take.
const BOUND: Duration = Duration::from_secs(120);
/// Names the file that is written when the instance is left.
const LEFT: &str = "PSCHED_BENCH_LEFT";
/// How long a daemon runs before it is killed, so that it is started again without a pause.
const SETTLED: Duration = Duration::from_millis(2_500);

fn main() -> anyhow::Result<ExitCode> {
    if !support::is_bench("restart") {
        return Ok(ExitCode::SUCCESS);
    }
    let nodes = number("PSCHED_BENCH_APPLICATIONS", 1000usize)?.to_string();
    let left = std::env::temp_dir().join(format!("psched-bench-{}", std::process::id()));
    let left = std::env::var_os(LEFT).map_or(left, PathBuf::from);
    within_instance(
        &["--nodes", &nodes, "--processors", "1"],
        &[(LEFT, left.as_os_str())],
        || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(measure())?;
            std::fs::write(&left, "").with_context(|| left.display().to_string())
        },
    )?;
    // Not within the instance: it has ended.
    if std::env::var_os(LEFT).is_none() {
        let took = std::fs::metadata(&left)?.modified()?.elapsed()?;
        std::fs::remove_file(&left)?;
        println!("\nended, with all of them: {:.2} s", took.as_secs_f64());
    }
    Ok(ExitCode::SUCCESS)
}

async fn measure() -> anyhow::Result<()> {
    let count = number("PSCHED_BENCH_APPLICATIONS", 1000usize)?;
    let runs = number("PSCHED_BENCH_RUNS", 5usize)?;
    println!("\nkill -9, {runs} of each, on {}", machine());
    kills(0, count, runs).await?;
    let began = Instant::now();
    for _ in 0..count {
        let mut command = Command::new("aprun");
        command.args(["-q", "sleep", "1000000"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // The instance ends it.
        drop(command.spawn().context("aprun")?);
    }
    let mut psched = client().await?;
    until("all applications run", async || Ok(running(&mut psched).await? == count)).await?;
    let took = began.elapsed();
    println!(
        "\n{count} launches at once: {:.1} s, {:.2} ms each",
        took.as_secs_f64(),
        took.as_secs_f64() * 1e3 / count as f64
    );
    kills(count, count, runs).await
}

/// Kills both daemons so many times, one after the other, and prints what it took.
async fn kills(applications: usize, nodes: usize, runs: usize) -> anyhow::Result<()> {
    let (mut answers, mut reconciled, mut registered) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..runs {
        tokio::time::sleep(SETTLED).await;
        let began = kill("psched")?;
        let mut psched = None;
        until("psched answers", async || {
            psched = client().await.ok();
            Ok(match &mut psched {
                Some(psched) => list(psched).await.is_ok(),
                None => false,
            })
        })
        .await?;
        answers.push(began.elapsed());
        let Some(mut psched) = psched else { bail!("psched does not answer") };
        until("everything is known", async || is_whole(&mut psched, applications, nodes).await)
            .await?;
        reconciled.push(began.elapsed());

        tokio::time::sleep(SETTLED).await;
        let before = daemon("apinit")?;
        let began = kill("apinit")?;
        // psched notices its death before there is another one.
        let other = async || Ok(daemon("apinit").is_ok_and(|pid| pid != before));
        until("apinit is started again", other).await?;
        until("everything is known", async || is_whole(&mut psched, applications, nodes).await)
            .await?;
        registered.push(began.elapsed());
    }
    println!(
        "\n{:<46} {:>10} {:>10}",
        format!("with {applications} applications, ms"),
        "median",
        "most"
    );
    for (what, times) in [
        ("psched answers again", answers),
        ("psched knows all nodes and applications again", reconciled),
        ("apinit is registered with all of them again", registered),
    ] {
        let sample = Sample::new(times);
        println!("{what:<46} {:>10.0} {:>10.0}", sample.median_ms(), sample.percentile_ms(100));
    }
    Ok(())
}

async fn list(psched: &mut Client) -> anyhow::Result<pb::ListReply> {
    let request = pb::ListRequest::default();
    Ok(psched.list(request).await.map_err(worded)?.into_inner())
}

async fn running(psched: &mut Client) -> anyhow::Result<usize> {
    Ok(list(psched).await?.applications.iter().filter(|row| row.state == "running").count())
}

/// Every node is open, and so many applications run.
async fn is_whole(psched: &mut Client, applications: usize, nodes: usize) -> anyhow::Result<bool> {
    let list = list(psched).await?;
    let open = |node: &&pb::NodeRow| matches!(node.state.as_str(), "free" | "busy");
    let runs = list.applications.iter().filter(|row| row.state == "running").count();
    Ok(runs == applications && list.nodes.iter().filter(open).count() == nodes)
}

async fn until(
    what: &str,
    mut so: impl AsyncFnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let began = Instant::now();
    while !so().await? {
        if began.elapsed() > BOUND {
            bail!("{what}: not within {} s", BOUND.as_secs());
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

/// A daemon of this instance, whose parent is ours.
fn daemon(name: &str) -> anyhow::Result<i32> {
    let parent = nix::unistd::getppid().as_raw();
    let found = std::fs::read_dir("/proc")?.flatten().find_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        let (before, after) = stat.rsplit_once(')')?;
        let mut fields = after.split_whitespace();
        let lives = fields.next()? != "Z";
        let of_ours = fields.next()?.parse() == Ok(parent);
        (lives && of_ours && before.ends_with(&format!("({name}"))).then_some(pid)
    });
    found.with_context(|| format!("{name} does not run"))
}

/// kill -9 of one; when that was.
fn kill(name: &str) -> anyhow::Result<Instant> {
    let pid = nix::unistd::Pid::from_raw(daemon(name)?);
    let began = Instant::now();
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL)?;
    Ok(began)
}
