//! How a command that asks psched something begins and ends: apstat, psview, psmgr, snflv,
//! apkill.
//!
//! Its line is parsed, the question runs on a runtime of its own, what it has to say is written, and the
//! status tells how that went.

use super::other_schedulers;
use crate::rpc::connect::status_text;
use clap::error::ContextKind;
use std::future::Future;
use std::io::{self, Write};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

/// The command line of this program; or, once it is said why there is none, the status to exit with: `wrong`, or where help
/// was wanted 0 once it is written out.
pub fn parsed<T>(name: &str, line: Result<T, clap::Error>, wrong: u8) -> Result<T, ExitCode> {
    line.map_err(|error| {
        if !error.use_stderr() {
            return match error.print().and_then(|()| io::stdout().flush()) {
                Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
                    failed(name, &[format!("can't write standard output: {e}")])
                }
                _ => ExitCode::SUCCESS,
            };
        }
        if let Some(advice) = of_another_scheduler(&error) {
            let _ = writeln!(io::stderr(), "{name}: {advice}");
            return ExitCode::from(wrong);
        }
        let text = error.render().to_string();
        // Begins with the program's name, as every other message does: the output of a script that
        // calls several commands says which of them failed. (An Err: stderr is closed.)
        let _ = match text.strip_prefix("error: ") {
            Some(text) => write!(io::stderr(), "{name}: {text}"),
            None => write!(io::stderr(), "{text}"),
        };
        ExitCode::from(wrong)
    })
}

/// What to say of a subcommand that another scheduler has.
fn of_another_scheduler(error: &clap::Error) -> Option<String> {
    let word = error.get(ContextKind::InvalidSubcommand)?.to_string();
    let advice = other_schedulers::advice(&word)?;
    Some(format!("{word} is not a subcommand: {advice}"))
}

/// A number on a command line.
///
/// # Errors
/// That it is none.
pub fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| "expected a number".to_owned())
}

/// Runs it to its end: 0, or 1 once each problem has a line on stderr.
pub fn asked(name: &str, question: impl Future<Output = Result<(), Vec<String>>>) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(name, &[error.to_string()]),
    };
    let end = runtime.block_on(question);
    // What waits for a key must not keep it.
    runtime.shutdown_background();
    ended(name, end)
}

/// psched's answer to a question, within so long.
///
/// # Errors
/// What it says instead, or that it says nothing.
pub async fn answer<T>(
    call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
    bound: Duration,
) -> Result<T, String> {
    match tokio::time::timeout(bound, call).await {
        Ok(Ok(reply)) => Ok(reply.into_inner()),
        Ok(Err(status)) => Err(status_text(status)),
        Err(_) => Err(format!("psched has not answered for {} s", bound.as_secs())),
    }
}

/// The status of what has come to its end: 0, or 1 once each problem has a line on stderr.
pub fn ended(name: &str, end: Result<(), Vec<String>>) -> ExitCode {
    match end {
        Ok(()) => ExitCode::SUCCESS,
        Err(problems) => failed(name, &problems),
    }
}

fn failed(name: &str, problems: &[String]) -> ExitCode {
    for line in problems {
        let _ = writeln!(io::stderr(), "{name}: {line}");
    }
    ExitCode::FAILURE
}
