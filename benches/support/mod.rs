//! What both programs share: a private instance around the measuring, and tables.
//!
//! `cargo bench --bench launch` starts `psched start ... -- ITSELF`: the measuring is done by the
//! command of the instance, so that nothing of the instance outlives it.

use anyhow::{Context, bail};
use psched::rpc::connect::{connect, socket_path, status_text};
use psched::rpc::pb;
use std::ffi::OsStr;
use std::process::{Command, ExitCode};
use std::time::Duration;

pub type Client = pb::psched_client::PschedClient<tonic::transport::Channel>;

/// Set for the program when it is the command of an instance.
const INSIDE: &str = "PSCHED_BENCH_INSIDE";

/// Runs `measure` within an instance that is started with these options and variables.
pub fn within_instance(
    options: &[&str],
    variables: &[(&str, &OsStr)],
    measure: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<ExitCode> {
    if is_inside() {
        measure()?;
        return Ok(ExitCode::SUCCESS);
    }
    let itself = std::env::current_exe().context("where this program is")?;
    let status = Command::new(env!("CARGO_BIN_EXE_psched"))
        .arg("start")
        .args(options)
        .arg("--")
        .arg(itself)
        .arg("--bench")
        .env(INSIDE, "1")
        .envs(variables.iter().copied())
        .status()
        .context(env!("CARGO_BIN_EXE_psched"))?;
    if !status.success() {
        bail!("psched start: {status}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether this program is the command of an instance.
pub fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Whether `cargo bench` has called: `cargo test --all-targets` runs these programs too, and shall
/// not wait for them.
pub fn is_bench(name: &str) -> bool {
    let asked = std::env::args().any(|argument| argument == "--bench");
    if !asked {
        println!("{name}: measures only under `cargo bench --bench {name}`");
    }
    asked
}

/// A client of the instance.
pub async fn client() -> anyhow::Result<Client> {
    let channel = connect(&socket_path()).await?;
    Ok(Client::new(channel).max_decoding_message_size(64 << 20))
}

/// A call's failure in words.
pub fn worded(status: tonic::Status) -> anyhow::Error {
    anyhow::anyhow!("{}", status_text(status))
}

/// Lengths of time, sorted.
pub struct Sample(Vec<Duration>);

impl Sample {
    pub fn new(mut times: Vec<Duration>) -> Sample {
        times.sort_unstable();
        Sample(times)
    }

    /// The smallest one that at least `percent` of all do not exceed, in milliseconds.
    pub fn percentile_ms(&self, percent: usize) -> f64 {
        let rank = (self.0.len() * percent).div_ceil(100).max(1);
        self.0.get(rank - 1).map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
    }

    pub fn median_ms(&self) -> f64 {
        self.percentile_ms(50)
    }
}

/// The machine, in a line: figures mean nothing without it.
pub fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let info = read("/proc/cpuinfo");
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    format!(
        "{cpus} processors ({}), Linux {}, load {}",
        model.map_or("of an unknown model", |(_, name)| name),
        read("/proc/sys/kernel/osrelease").trim(),
        read("/proc/loadavg").split(' ').next().unwrap_or("unknown"),
    )
}
