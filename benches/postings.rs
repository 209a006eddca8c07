//! How many durable postings psched answers in a second, through its socket: 8 clients, each on a
//! connection of its own with one posting in flight, on a machine that is full, so that every posting
//! joins the queue.
//!
//! `cargo bench --bench postings`. The state is in Cargo's target directory, which should be on a
//! disk: its file system's type and the time of an fsync there are printed beside the figure, for a
//! posting that is answered has been through one (together with others). PSCHED_BENCH_POSTINGS
//! changes how many there are (10,000).

mod support;

use anyhow::{Context, bail};
use psched::apteam::posting::{Executable, Posting};
use psched::apteam::shape::Shape;
use psched::rpc::pb;
use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use support::{Sample, client, machine, number, within_instance, worded};

const CLIENTS: u64 = 8;
const FSYNCS: usize = 200;
/// How long the first application may take until it runs.
const FULL_WAIT: Duration = Duration::from_secs(10);
/// How long one posting may take: beyond that psched is stuck.
const POST_WAIT: Duration = Duration::from_secs(10);

fn main() -> anyhow::Result<ExitCode> {
    if !support::is_bench("postings") {
        return Ok(ExitCode::SUCCESS);
    }
    let state = Path::new(env!("CARGO_TARGET_TMPDIR")).join("postings-state");
    if !support::is_inside() {
        // A queue left by an earlier run would be counted in.
        let _ = fs::remove_dir_all(&state);
        fs::create_dir_all(&state).with_context(|| state.display().to_string())?;
    }
    let path = state.to_str().context("Cargo's target directory is not UTF-8")?;
    let options = ["--nodes", "4", "--processors", "2", "--state", path];
    within_instance(&options, &[], || {
        // Four nodes of two processors: nothing else finds room while this runs.
        let mut full = Command::new("aprun")
            .args(["-q", "-n", "8", "sleep", "600"])
            .stdin(Stdio::null())
            .spawn()
            .context("aprun")?;
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(2).enable_all().build()?;
        let measured = runtime.block_on(measure(&mut full, &state));
        full.kill().and_then(|()| full.wait()).context("ending the first application")?;
        measured
    })
}

async fn measure(full: &mut Child, state: &Path) -> anyhow::Result<()> {
    let wanted = number("PSCHED_BENCH_POSTINGS", 10_000_u64)?;
    until_full(full).await?;
    let before = fsync_times(state)?;

    let next = Arc::new(AtomicU64::new(0));
    let executable = executable()?;
    let began = Instant::now();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| tokio::spawn(post_all(Arc::clone(&next), wanted, executable.clone(), began)))
        .collect();
    let mut answers = Vec::new();
    let mut trouble = Vec::new();
    for client in clients {
        let (own, outcome) = client.await?;
        answers.extend(own);
        trouble.extend(outcome.err());
    }
    let took = began.elapsed();
    let after = fsync_times(state)?;

    println!("\npostings, {CLIENTS} clients with one in flight each, on {}", machine());
    println!("state in {} on {}", state.display(), file_system(state)?);
    for (when, sample) in [("before", before), ("after", after)] {
        let (median, p95) = (sample.median_ms(), sample.percentile_ms(95));
        println!("fsync of 4 KiB more there, {when}: median {median:.3} ms, p95 {p95:.3} ms");
    }
    println!(
        "\n{} postings answered in {:.2} s: {:.0} a second",
        answers.len(),
        took.as_secs_f64(),
        answers.len() as f64 / took.as_secs_f64(),
    );
    answers.sort_unstable_by_key(|answer| answer.at);
    println!("\n{:<24} {:>10} {:>10} {:>10}", "tenth", "a second", "median ms", "p95 ms");
    let mut start = Duration::ZERO;
    for (tenth, part) in answers.chunks(answers.len().div_ceil(10).max(1)).enumerate() {
        let end = part.last().map_or(start, |answer| answer.at);
        let sample = Sample::new(part.iter().map(|answer| answer.took).collect());
        println!(
            "{:<24} {:>10.0} {:>10.3} {:>10.3}",
            tenth + 1,
            part.len() as f64 / (end - start).as_secs_f64(),
            sample.median_ms(),
            sample.percentile_ms(95),
        );
        start = end;
    }
    match trouble.into_iter().next() {
        Some(error) => Err(error.context("a client stopped before its time")),
        None => Ok(()),
    }
}

/// Waits until an application runs.
async fn until_full(full: &mut Child) -> anyhow::Result<()> {
    let mut psched = client().await?;
    let until = Instant::now() + FULL_WAIT;
    loop {
        let list = psched.list(pb::ListRequest::default()).await.map_err(worded)?.into_inner();
        if list.applications.iter().any(|row| row.state == "running") {
            return Ok(());
        }
        if let Some(status) = full.try_wait()? {
            bail!("the application that fills the machine has ended: {status}");
        }
        if Instant::now() > until {
            bail!("the application that fills the machine does not run after {FULL_WAIT:?}");
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A posting's answer: when it came since the beginning, and how long it took.
struct Answer {
    at: Duration,
    took: Duration,
}

/// One client: posts until so many have been begun by all together.
async fn post_all(
    next: Arc<AtomicU64>,
    wanted: u64,
    executable: Executable,
    began: Instant,
) -> (Vec<Answer>, anyhow::Result<()>) {
    let mut answers = Vec::new();
    let outcome = async {
        let mut psched = client().await?;
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= wanted {
                return Ok(());
            }
            let request = pb::PostRequest::from(posting(number, executable.clone()));
            let sent = Instant::now();
            let answer = async {
                let mut events = psched.post(request).await.map_err(worded)?.into_inner();
                events.message().await.map_err(worded)
            };
            let event = tokio::time::timeout(POST_WAIT, answer).await.context("no answer")??;
            match event.and_then(|event| event.event) {
                Some(pb::application_event::Event::Accepted(_)) => {}
                other => bail!("{other:?} instead of `accepted`"),
            }
            answers.push(Answer { at: began.elapsed(), took: sent.elapsed() });
        }
    }
    .await;
    (answers, outcome)
}

fn posting(number: u64, executable: Executable) -> Posting {
    let mut request_id = [0; 16];
    request_id[..8].copy_from_slice(&u64::from(std::process::id()).to_le_bytes());
    request_id[8..].copy_from_slice(&number.to_le_bytes());
    let shape = Shape { width: 1, depth: 1, per_node: None };
    Posting { command: "true".to_owned(), executable, ..Posting::plain(request_id, shape) }
}

/// What aprun would say of `true`.
fn executable() -> anyhow::Result<Executable> {
    let path = "/bin/true";
    let mut header = [0; 20];
    fs::File::open(path)?.read_exact(&mut header).context(path)?;
    let machine = u16::from_le_bytes([header[18], header[19]]);
    Ok(Executable { path: path.to_owned(), machine, ..Executable::default() })
}

/// How long it takes until 4 KiB more of a file in this directory are on the disk.
fn fsync_times(directory: &Path) -> anyhow::Result<Sample> {
    let path = directory.join("fsync-probe");
    let mut file = fs::File::create(&path).with_context(|| path.display().to_string())?;
    let mut times = Vec::new();
    for _ in 0..FSYNCS {
        file.write_all(&[0x55; 4096])?;
        let clock = Instant::now();
        file.sync_all()?;
        times.push(clock.elapsed());
    }
    fs::remove_file(&path)?;
    Ok(Sample::new(times))
}

/// Type and source of the file system that a directory is on, from /proc/self/mountinfo.
fn file_system(directory: &Path) -> anyhow::Result<String> {
    let directory = directory.canonicalize()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let found = mounts.lines().filter_map(|line| {
        let (mount, system) = line.split_once(" - ")?;
        let point = mount.split(' ').nth(4)?;
        directory.starts_with(point).then_some((point.len(), system))
    });
    // The last one of the longest: a later mount covers an earlier one.
    let (_, system) = found.max_by_key(|(length, _)| *length).context("no mount has it")?;
    let mut words = system.split(' ');
    let (kind, source) = (words.next().unwrap_or("?"), words.next().unwrap_or("?"));
    let doubt = match kind {
        "tmpfs" | "ramfs" => " (no disk: the figures mean nothing, set CARGO_TARGET_DIR)",
        _ => "",
    };
    Ok(format!("{kind} ({source}){doubt}"))
}
