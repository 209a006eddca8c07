//! `apkill`: sends a signal to applications, or ends them.
//!
//! As kill(1): `apkill -9 12`, `apkill -SIGUSR1 12 13`. Without a signal an application is asked to
//! end (TERM) and, five minutes later, made to (KILL). clap knows no options that are signals, so a
//! first `-9` or `-USR1` is rewritten to `--signal=9` before it sees it ([`with_signal_named`]).

use super::question::{Does, answer_again, ask, asked, parsed};
use crate::apteam::signal;
use crate::console::stderr::complain;
use crate::console::stdout::write_out;
use crate::console::table::whole_seconds;
use crate::rpc::connect::{connect, socket_path};
use crate::rpc::pb;
use crate::rpc::pb::psched_client::PschedClient;
use clap::Parser;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

/// How long psched may take to answer.
const ANSWER_BOUND: Duration = Duration::from_secs(30);

/// Ends applications, or sends them a signal.
#[derive(Parser, Debug)]
#[command(
    name = "apkill",
    version,
    max_term_width = 80,
    override_usage = "apkill [-SIGNAL] APID...\n       apkill -l",
    long_about = "Ends applications, or sends them a signal.\n\nWithout a signal every PE gets \
                  TERM, and KILL five minutes later if it is still there. A signal is a name, \
                  with or without SIG, or a number: -9, -KILL, -SIGKILL. Users can end their \
                  own applications, administrators all. The exit status is 0 if all was done; 1 \
                  if not; 2 if the command line is wrong."
)]
struct Cli {
    /// The signal: -SIGNAL is the same
    #[arg(short = 's', long, value_name = "SIGNAL", value_parser = parse_signal)]
    signal: Option<i32>,
    /// List the names of signals
    #[arg(short = 'l', long, conflicts_with_all = ["signal", "apids"])]
    list: bool,
    /// Numbers of applications, as apstat shows them
    #[arg(value_name = "APID", required_unless_present = "list", value_parser = parse_apid)]
    apids: Vec<u64>,
}

/// Runs it with this command line, and gives the status to exit with.
pub fn run(words: Vec<OsString>) -> ExitCode {
    match parsed("apkill", Cli::try_parse_from(with_signal_named(words.into_iter())), 2) {
        Ok(cli) => asked("apkill", async move {
            match cli.list {
                true => write_out(&signal_list()).map_err(|text| vec![text]),
                false => kill(cli.apids, cli.signal.unwrap_or(0)).await,
            }
        }),
        Err(status) => status,
    }
}

/// # Errors
/// What stood in the way, for each of them.
async fn kill(apids: Vec<u64>, signal: i32) -> Result<(), Vec<String>> {
    let channel = connect(&socket_path()).await.map_err(|e| vec![e.to_string()])?;
    let client = &PschedClient::new(channel);
    let request = pb::KillRequest { apids: apids.clone(), signal };
    let reply = answer_again(ask!(client.kill, request), Does::Change, ANSWER_BOUND).await;
    let reply = reply.map_err(|why| vec![why])?;
    if !reply.unrecorded.is_empty() {
        complain("apkill", &format!("done, but not recorded: {}", reply.unrecorded));
    }
    for (wait, apids) in ending(&apids, &reply.kill_in_ns) {
        complain("apkill", &format!("{apids}: ending, KILL in {wait} (at once: apkill -9)"));
    }
    if !reply.held.is_empty() {
        complain("apkill", &held(&reply.held));
    }
    let mut problems = reply.problems;
    problems.retain(|problem| !problem.is_empty());
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

/// Applications that get KILL later, by the time until then: `4m50s`, `12, 13`.
fn ending(apids: &[u64], kill_in_ns: &[u64]) -> BTreeMap<String, String> {
    let mut all: BTreeMap<String, String> = BTreeMap::new();
    for (apid, ns) in apids.iter().zip(kill_in_ns).filter(|(_, ns)| **ns > 0) {
        let apids = all.entry(whole_seconds(*ns)).or_default();
        let comma = if apids.is_empty() { "" } else { ", " };
        *apids += &format!("{comma}{apid}");
    }
    all
}

/// Why these do not get TERM yet.
fn held(apids: &[u64]) -> String {
    let list = |separator| apids.iter().map(u64::to_string).collect::<Vec<_>>().join(separator);
    let (is, gets, it) = match apids.len() {
        1 => ("is", "gets", "it is"),
        _ => ("are", "get", "they are"),
    };
    format!(
        "{} {is} held by an administrator, and {gets} TERM only when {it} released (psmgr release {})",
        list(", "),
        list(" ")
    )
}

/// A first argument that is a signal, as the option that clap knows.
fn with_signal_named(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = arguments.collect();
    let signal = arguments.get(1).and_then(|a| a.to_str()).and_then(|a| a.strip_prefix('-'));
    // All but options: -l, -s, -h, -V and the long ones; no signal's name is one letter.
    if let Some(signal) = signal
        && !signal.starts_with('-')
        && (signal.len() > 1 || signal.bytes().all(|b| b.is_ascii_digit()))
        && !(signal.starts_with('s') && parse_signal(signal).is_err())
        && !signal.is_empty()
    {
        arguments[1] = format!("--signal={signal}").into();
    }
    arguments
}

pub(super) fn parse_apid(text: &str) -> Result<u64, String> {
    text.parse().ok().filter(|n| *n > 0).ok_or_else(|| {
        "not the number of an application (1, 2, ...); apstat lists them".to_string()
    })
}

fn parse_signal(text: &str) -> Result<i32, String> {
    match text.parse::<i32>() {
        // kill(1) has it for "is it there?".
        Ok(0) => Err("0 is not a signal; apstat shows whether an application exists".to_string()),
        _ => signal::parse(text)
            .ok_or_else(|| "not a signal; apkill -l lists their names".to_string()),
    }
}

fn signal_list() -> String {
    (1..).zip(signal::NAMES).map(|(number, name)| format!("{number:>2} {name}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Result<(Option<i32>, Vec<u64>), clap::Error> {
        let arguments = with_signal_named(words.split(' ').map(OsString::from));
        Cli::try_parse_from(arguments).map(|cli| (cli.signal, cli.apids))
    }

    #[test]
    fn signals_as_kill_takes_them() {
        for (words, signal) in [
            ("apkill 12", None),
            ("apkill -9 12", Some(9)),
            ("apkill -KILL 12", Some(9)),
            ("apkill -SIGKILL 12", Some(9)),
            ("apkill -sigterm 12", Some(15)),
            ("apkill -s USR1 12", Some(10)),
            ("apkill -sUSR1 12", Some(10)),
            ("apkill --signal 64 12", Some(64)),
            ("apkill -stop 12", Some(19)),
        ] {
            assert_eq!(parse(words).expect(words), (signal, vec![12]), "{words}");
        }
        assert_eq!(parse("apkill 1 2 3").expect("three").1, [1, 2, 3]);
        let bad = [
            "apkill",
            "apkill -9",
            "apkill -0 1",
            "apkill -65 1",
            "apkill -NONE 1",
            "apkill x",
            "apkill 0",
            "apkill -l 1",
            "apkill 12 -9",
            "apkill 1.1",
        ];
        for words in bad {
            assert!(parse(words).is_err(), "{words}");
        }
        let zero = parse("apkill -0 1").expect_err("it is none").to_string();
        assert!(zero.contains("0 is not a signal"), "{zero}");
        assert!(signal_list().contains("\n15 TERM\n"));
    }

    #[test]
    fn whoever_has_time_to_end_is_told_how_long() {
        const SECOND: u64 = 1_000_000_000;
        let told = ending(&[7, 8, 9, 10], &[300 * SECOND, 0, 299 * SECOND + 1, 290 * SECOND]);
        let told: Vec<(&str, &str)> = told.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(told, [("4m50s", "10"), ("5m", "7, 9")]);
        // An older psched says nothing of it.
        assert!(ending(&[7], &[]).is_empty());
    }

    #[test]
    fn held_ones_get_term_when_they_are_released() {
        let one = "7 is held by an administrator, and gets TERM only when it is released (psmgr release 7)";
        assert_eq!(held(&[7]), one);
        assert!(held(&[7, 9]).starts_with("7, 9 are held by an administrator, and get TERM"));
        assert!(held(&[7, 9]).contains("they are released (psmgr release 7 9)"));
    }

    #[test]
    fn names_are_the_kernels() {
        for (number, name) in (1..).zip(signal::NAMES) {
            let known: nix::sys::signal::Signal =
                format!("SIG{name}").parse().expect("a name that nix knows");
            assert_eq!(known as i32, number);
        }
    }
}
