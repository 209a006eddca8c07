//! How a command that asks psched something begins and ends: apstat, psview, psmgr, snflv,
//! apkill.
//!
//! Its line is parsed, the question runs on a runtime of its own, what it has to say is written, and the
//! status tells how that went.

use super::other_schedulers;
use crate::console::stderr::complain;
use crate::rpc::connect::status_text;
use crate::rpc::relayed::{self, Sent};
use clap::error::ContextKind;
use std::future::Future;
use std::io::{self, Write};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;
use tokio::time::{Instant, sleep};

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
            complain(name, &advice);
            return ExitCode::from(wrong);
        }
        let text = error.render().to_string();
        let text = missing(&text).unwrap_or(text);
        // Begins with the program's name, as every other message does: the output of a script that
        // calls several commands says which of them failed. (An Err: stderr is closed.)
        let _ = match text.strip_prefix("error: ") {
            Some(text) => write!(io::stderr(), "{name}: {text}"),
            None => write!(io::stderr(), "{text}"),
        };
        ExitCode::from(wrong)
    })
}

/// What clap says of arguments that have to be there, in a line: `missing: <APID>...`. `None`: it
/// says something else.
fn missing(text: &str) -> Option<String> {
    let rest = text.strip_prefix("error: the following required arguments were not provided:\n")?;
    let (names, rest) = rest.split_once("\n\n")?;
    let names: Vec<&str> = names.lines().map(str::trim).collect();
    Some(format!("error: missing: {}\n\n{rest}", names.join(", ")))
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

/// How long a question is asked again that the apinit of a login host could not pass on to psched.
const AGAIN: Duration = Duration::from_secs(5);
/// How soon: the first time, and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(500));

/// What a question does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Does {
    /// It only reads: it may be asked twice.
    Read,
    /// It changes something: it is asked again only where psched has certainly not got it.
    Change,
}

/// A question that can be asked again: a closure that calls a method of a client with a request.
macro_rules! ask {
    ($client:ident . $method:ident, $request:expr) => {{
        let client = &*$client;
        let request = $request.clone();
        move || {
            let (mut client, request) = (client.clone(), request.clone());
            async move { client.$method(request).await }
        }
    }};
}
pub(in crate::commands) use ask;

/// psched's answer to a question, within so long. Where the apinit of this host could not pass it on, it is
/// asked again for some seconds.
///
/// # Errors
/// As [`answer`].
pub async fn answer_again<T, F>(
    call: impl FnMut() -> F,
    does: Does,
    bound: Duration,
) -> Result<T, String>
where
    F: Future<Output = Result<tonic::Response<T>, tonic::Status>>,
{
    answer(again(call, does, bound), bound).await
}

/// A call, made again as long as that may help and does no harm.
pub async fn again<T, F>(
    mut call: impl FnMut() -> F,
    does: Does,
    bound: Duration,
) -> Result<tonic::Response<T>, tonic::Status>
where
    F: Future<Output = Result<tonic::Response<T>, tonic::Status>>,
{
    let (mut until, mut pause) = (None, PAUSES.0);
    loop {
        let status = match call().await {
            Err(status) => status,
            answer => return answer,
        };
        let harmless = match relayed::sent(&status) {
            None => false,
            Some(Sent::No) => true,
            Some(Sent::Maybe) => does == Does::Read,
        };
        // (From the first failure on: what broke may have been under way for long.)
        let until = *until.get_or_insert_with(|| Instant::now() + AGAIN.min(bound));
        if !harmless || Instant::now() + pause >= until {
            return Err(status);
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSES.1);
    }
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
        complain(name, line);
    }
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use tonic::{Response, Status};

    /// (In clap's words of today.)
    #[test]
    fn what_is_missing_is_one_line() {
        let of = |words: &[&str]| {
            let line = clap::Command::new("x")
                .arg(clap::arg!(--apid <APID>).required(true))
                .arg(clap::arg!(<DIR>).required(true));
            let error = line.try_get_matches_from(words).expect_err("refused");
            missing(&error.render().to_string())
        };
        let text = of(&["x"]).expect("it is missing");
        assert!(text.starts_with("error: missing: --apid <APID>, <DIR>\n\nUsage: x "), "{text}");
        assert_eq!(of(&["x", "--other"]), None);
    }

    /// How often it is asked, and for how long, where psched is away the first so many times.
    async fn asked(does: Does, away: u32, status: impl Fn() -> Status) -> (u32, bool, Duration) {
        let (times, begun) = (Cell::new(0), Instant::now());
        let call = || {
            times.set(times.get() + 1);
            let answer = if times.get() > away { Ok(Response::new(7)) } else { Err(status()) };
            std::future::ready(answer)
        };
        let answer: Result<u32, String> = answer_again(call, does, Duration::from_secs(30)).await;
        (times.get(), answer.is_ok(), begun.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_is_asked_again_where_that_does_no_harm() {
        let lost = |sent| move || relayed::unavailable("psched is away".into(), sent);
        for (does, sent) in
            [(Does::Read, Sent::No), (Does::Read, Sent::Maybe), (Does::Change, Sent::No)]
        {
            let (times, answered, _) = asked(does, 3, lost(sent)).await;
            assert_eq!((times, answered), (4, true), "{does:?} {sent:?}");
            // Not for ever.
            let (times, answered, took) = asked(does, u32::MAX, lost(sent)).await;
            assert!(times > 5 && !answered, "{times}");
            assert!(took > Duration::from_secs(4) && took <= AGAIN, "{took:?}");
        }
        let (times, answered, _) = asked(Does::Change, 3, lost(Sent::Maybe)).await;
        assert_eq!((times, answered), (1, false), "it may be done already");
        // What breaks after a long while is asked again for as long.
        let slow = Cell::new(0);
        let call = || {
            slow.set(slow.get() + 1);
            let first = slow.get() == 1;
            async move {
                if first {
                    sleep(AGAIN * 2).await;
                    return Err(relayed::unavailable("it broke".into(), Sent::Maybe));
                }
                Ok(Response::new(7))
            }
        };
        assert_eq!(answer_again(call, Does::Read, Duration::from_secs(30)).await, Ok(7));
        // What psched itself says is its answer.
        let (times, answered, _) = asked(Does::Read, 3, || Status::unavailable("the disk")).await;
        assert_eq!((times, answered), (1, false));
    }
}
