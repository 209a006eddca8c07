//! What both programs share: a private instance around the measuring, and tables.
//!
//! `cargo bench --bench launch` starts `psched start ... -- ITSELF`: the measuring is done by the
//! command of the instance, so that nothing of the instance outlives it.

mod figures;

use anyhow::{Context, bail};
use psched::rpc::connect::{connect, socket_path, status_text};
use psched::rpc::pb;
use std::ffi::OsStr;
use std::process::{Command, ExitCode};
use std::str::FromStr;

pub use figures::{Sample, is_bench, machine};

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

/// The number that a variable of the environment says.
///
/// # Errors
/// It is none.
pub fn number<T: FromStr<Err: std::error::Error + Send + Sync + 'static>>(
    name: &'static str,
    default: T,
) -> anyhow::Result<T> {
    std::env::var(name).map_or(Ok(default), |text| text.parse().context(name))
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
