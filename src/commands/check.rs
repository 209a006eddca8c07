//! `psched check`: all that is wrong with a psched.yaml, before psched reads it; and what it would change.
//!
//! The file is read by the same function as psched's own, so what is good here is good there. What it would
//! change (`--diff`) the running psched says, to an administrator: it tries the file on a copy of what it knows.

use super::question::asked;
use crate::config::{self, Config, SIZE_MAX};
use crate::console::stdout::write_out;
use crate::console::table::terminal_columns;
use crate::console::wrap::at_blanks;
use crate::psched::serve::people::unknown;
use crate::rpc::connect::{SOCKET_VARIABLE, connect, socket_path, status_text};
use crate::rpc::pb;
use crate::rpc::pb::psched_client::PschedClient;
use bytes::Bytes;
use clap::Args;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Bytes of the file in one message.
const PIECE: usize = 256 * 1024;

/// Check a configuration, and tell what it would change
#[derive(Args, Debug)]
#[command(
    long_about = "Checks a psched.yaml as psched itself reads it: all its problems at once, each with \
    line, column and cure. The status is 0 if there are none, 1 if there are."
)]
pub struct CheckArgs {
    /// The file
    #[arg(value_name = "FILE", default_value = "/etc/psched/psched.yaml")]
    file: PathBuf,
    /// Also tell what the running psched would change if it read it now (HUP), and for which applications
    #[arg(long)]
    diff: bool,
}

/// Runs it, and gives the status to exit with.
pub fn run(args: &CheckArgs) -> ExitCode {
    asked("psched check", async { check(args).await })
}

async fn check(args: &CheckArgs) -> Result<(), Vec<String>> {
    let text = text_of(&args.file).map_err(|why| vec![why])?;
    let config = config::read(&text).map_err(|problems| {
        let mut lines: Vec<String> = problems.iter().map(|p| p.of_file(&args.file)).collect();
        lines.push(match lines.len() {
            1 => "1 problem: psched would refuse this file".to_owned(),
            n => format!("{n} problems: psched would refuse this file"),
        });
        lines
    })?;
    let mut told = format!("{}: good: {}\n", args.file.display(), summary(&config));
    for line in unknown(&config) {
        told += &format!("warning: {line}\n");
    }
    if args.diff {
        told += &differences(text, &config).await.map_err(|why| vec![why])?;
    }
    let columns = terminal_columns();
    let told: String = told.lines().map(|line| at_blanks(line, columns, 4) + "\n").collect();
    write_out(&told).map_err(|why| vec![why])
}

fn text_of(path: &Path) -> Result<String, String> {
    let mut text = String::new();
    // (One byte more than may be is enough to say that it is too long.)
    let read =
        File::open(path).and_then(|file| file.take(SIZE_MAX as u64 + 1).read_to_string(&mut text));
    read.map_err(|error| {
        format!("{} can't be read: {error}; give the path of a psched.yaml", path.display())
    })?;
    Ok(text)
}

/// `4 nodes, 32 processors, 26 of them for applications, 2 variables set`.
fn summary(config: &Config) -> String {
    let count = |n: u64, one: &str, many: &str| format!("{n} {}", if n == 1 { one } else { many });
    let machine = &config.machine;
    let processors = machine.nodes.values().map(|node| u64::from(node.processors)).sum();
    let set = config.variables.show().iter().filter(|shown| !shown.is_default()).count();
    format!(
        "{}, {}, {} of them for applications, {}",
        count(machine.nodes.len() as u64, "node", "nodes"),
        count(processors, "processor", "processors"),
        machine.application_processors(),
        count(
            set as u64,
            "variable that is not at its default",
            "variables that are not at their defaults"
        ),
    )
}

/// What the running psched would change.
async fn differences(text: String, config: &Config) -> Result<String, String> {
    let named = std::env::var_os(SOCKET_VARIABLE).is_some_and(|path| !path.is_empty());
    let socket = match &config.listen {
        Some(path) if !named => PathBuf::from(path),
        _ => socket_path(),
    };
    let channel = connect(&socket).await.map_err(|error| error.to_string())?;
    let mut psched = PschedClient::new(channel).max_decoding_message_size(64 * 1024 * 1024);
    let pieces: Vec<pb::CompareRequest> = text
        .as_bytes()
        .chunks(PIECE)
        .map(|piece| pb::CompareRequest { piece: Bytes::copy_from_slice(piece) })
        .collect();
    let reply = psched.compare(tokio_stream::iter(pieces)).await.map_err(status_text)?.into_inner();
    if let Some(problem) = reply.problems.first() {
        let n = reply.problems.len();
        return Err(format!(
            "the running psched is of another release and refuses this file: {problem} (the \
             first of {n} problems); restart psched as this release"
        ));
    }
    Ok(told(&reply))
}

/// In sections; those without lines are left out.
fn told(reply: &pb::CompareReply) -> String {
    let pb::CompareReply { changes, waits, applications, .. } = reply;
    if changes.is_empty() && waits.is_empty() && applications.is_empty() {
        return "psmgr reload would change nothing\n".to_owned();
    }
    let section = |title: &str, lines: &[String]| match lines {
        [] => String::new(),
        lines => format!("{title}:\n  {}\n", lines.join("\n  ")),
    };
    [
        section("psmgr reload would change", changes),
        section("a restart of psched would change, while applications run on", waits),
        section("what psmgr reload means for applications", applications),
    ]
    .concat()
}
