//! `psched backup` and `psched restore`: copies of psched's state.

use crate::console::stderr::complain;
use crate::console::stdout::write_out;
use crate::psched::serve::committer::RECORDS_WAIT;
use crate::psched::serve::store::backup::{self, Contents};
use crate::psched::serve::{configuration_of, state_directory};
use crate::rpc::connect::{connect, socket_path};
use crate::rpc::pb;
use crate::rpc::pb::psched_client::PschedClient;
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// How long a psched may take to say whether its records wait; without an answer none is told.
const ANSWER_BOUND: Duration = Duration::from_secs(10);

/// Where the state is.
#[derive(Args, Debug)]
struct State {
    /// The configuration that names the state directory [default: /etc/psched/psched.yaml]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The state directory
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
}

impl State {
    fn directory(&self) -> anyhow::Result<PathBuf> {
        if let Some(state) = &self.state {
            return Ok(state.clone());
        }
        let usual = || PathBuf::from("/etc/psched/psched.yaml");
        let config = configuration_of(
            &self.config.clone().unwrap_or_else(usual),
            "name one with --config, or the state directory with --state",
        )?;
        Ok(state_directory(None, &config))
    }
}

/// Copy psched's state to a file, also while psched runs
#[derive(Args, Debug)]
pub struct BackupArgs {
    /// The file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    state: State,
}

/// Put a copy of psched's state in its place; psched must not run
#[derive(Args, Debug)]
pub struct RestoreArgs {
    /// The file that psched backup has written
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    state: State,
}

/// Runs `psched backup`, and gives the status to exit with.
pub fn back_up(args: &BackupArgs) -> ExitCode {
    let done = || -> anyhow::Result<String> {
        let directory = args.state.directory()?;
        let waits = records_wait();
        let contents = backup::back_up(&directory, &args.file, args.force)?;
        if let Some((_, why)) =
            waits.or_else(records_wait).filter(|(id, _)| *id == contents.store_id)
        {
            complain("psched backup", &format!("the copy lacks the latest changes: {why}"));
        }
        Ok(format!("{}: {}\n", args.file.display(), told(&contents)))
    };
    ended("psched backup", done())
}

/// Runs `psched restore`, and gives the status to exit with.
pub fn restore(args: &RestoreArgs) -> ExitCode {
    let done = || -> anyhow::Result<String> {
        let directory = args.state.directory()?;
        let (contents, replaced) = backup::restore(&directory, &args.file)?;
        Ok(restored(&directory, &contents, replaced.as_deref()))
    };
    ended("psched restore", done())
}

/// The store of the psched that answers here, and what it says of records that wait for its disk.
fn records_wait() -> Option<(String, String)> {
    let asked = async {
        let channel = connect(&socket_path()).await.ok()?;
        let mut client = PschedClient::new(channel).max_decoding_message_size(64 << 20);
        // (A number that no application has: the answer is short.)
        let request = pb::ListRequest { apid: u64::MAX, ..Default::default() };
        let reply = tokio::time::timeout(ANSWER_BOUND, client.list(request)).await.ok()?.ok()?;
        let reply = reply.into_inner();
        let why = reply.notices.into_iter().find(|notice| notice.starts_with(RECORDS_WAIT))?;
        Some((reply.store_id, why))
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    runtime.block_on(asked)
}

fn told(contents: &Contents) -> String {
    let Contents { store_id, commits, applications, running } = contents;
    let short = store_id.get(..8).unwrap_or(store_id);
    let s = if *applications == 1 { "" } else { "s" };
    format!(
        "store {short} as of commit {commits}, with {applications} application{s} that had not ended, \
         {running} of them running"
    )
}

fn restored(directory: &Path, contents: &Contents, replaced: Option<&Path>) -> String {
    let mut text = format!("{}: {}\n", directory.display(), told(contents));
    if let Some(replaced) = replaced {
        text += &format!("the former store is {}\n", replaced.display());
    }
    text + "start psched; nodes that know later commits show as foreign (apstat -n), and their \
            applications run on: psmgr adopt NIDS takes them over, psmgr purge NIDS ends them\n"
}

fn ended(name: &str, done: anyhow::Result<String>) -> ExitCode {
    match done.and_then(|text| write_out(&text).map_err(anyhow::Error::msg)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {error:#}");
            ExitCode::FAILURE
        }
    }
}
