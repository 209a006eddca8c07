//! `apstat`: what is there, and why it is as it is.
//!
//! One question to psched, then pure functions: [`views`] makes titled tables of typed cells from
//! its answer, and [`table`](super::table) writes those as text or as JSON. Both forms come from the same rows,
//! so neither can say what the other does not.

mod live;
mod stacks;
mod views;

use super::apkill::parse_apid;
use super::pages;
use super::question::{asked, parsed};
use crate::apteam::Apid;
use crate::console::stdout::write_out;
use crate::console::table::{self, Report};
use crate::rpc::connect::{connect, socket_path};
use crate::rpc::pb;
use crate::rpc::pb::psched_client::PschedClient;
use clap::{ArgGroup, Parser};
use jiff::tz::TimeZone;
use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;
use tonic::transport::Channel;

/// How long psched may take to answer.
const ANSWER_BOUND: Duration = Duration::from_secs(30);
/// The most of the ended applications that --history shows.
const HISTORY_MAX: u32 = 100_000;
/// How often -w asks.
const REFRESH: Duration = Duration::from_secs(1);

/// Shows applications, nodes, and why something waits.
#[derive(Parser, Clone, Debug)]
#[command(
    name = "apstat",
    version,
    max_term_width = 80,
    group = ArgGroup::new("one").args(["application", "stacks", "why", "events", "history", "shares"]),
    long_about = "Shows applications, nodes, and why something waits.\n\n\
    Without options: the applications (-a). -a, -p and -n can be given together. The exit status \
    is 0; 1 if psched could not be asked or knows no such application, or --stacks has found none; 2 if the \
    command line is wrong."
)]
pub struct Cli {
    /// Applications, in order of their numbers (the default)
    #[arg(short = 'a', long = "applications", conflicts_with = "one")]
    applications: bool,
    /// Applications that wait for a place, and why
    #[arg(short = 'p', long = "pending", conflicts_with = "one")]
    pending: bool,
    /// Nodes, and a summary of them
    #[arg(short = 'n', long = "nodes", conflicts_with = "one")]
    nodes: bool,
    /// With --nodes: one line a node, for scripts: fields between colons, _ for nothing, no heading
    #[arg(long, requires = "nodes",
          conflicts_with_all = ["applications", "pending", "verbose", "json", "watch", "one"])]
    parse: bool,
    /// All about one application
    #[arg(short = 'A', long = "application", value_name = "APID", value_parser = parse_apid)]
    application: Option<u64>,
    /// With --application: the process of each PE, with its host, for debuggers. For its owner and administrators
    // (What conflicts with --application makes clap forget that it is required.)
    #[arg(long, requires = "application", conflicts_with_all = ["applications", "pending", "nodes", "stacks", "why", "events",
          "history", "shares"])]
    pids: bool,
    /// The stacks of all threads of all PEs of an application. For its owner and administrators
    #[arg(long, value_name = "APID", value_parser = parse_apid, conflicts_with = "watch")]
    stacks: Option<u64>,
    /// Why an application is not running: what stands in the way, who holds it, what would help
    #[arg(long, value_name = "APID", value_parser = parse_apid)]
    why: Option<u64>,
    /// What has happened to an application
    #[arg(long, value_name = "APID", value_parser = parse_apid)]
    events: Option<u64>,
    /// The last N applications that have ended, newest first
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "20",
          value_parser = count)]
    history: Option<u32>,
    /// What each user, or account, has had of the processors, and what is due to each
    #[arg(long)]
    shares: bool,
    /// With -a: also when the next turn comes, what share of its time each has had, what was its due,
    /// and how long it has run. With -n: also host, flavors, memory, room, and why a node is not free
    #[arg(short = 'v', long = "verbose", conflicts_with = "one")]
    verbose: bool,
    /// The same as JSON
    #[arg(long)]
    json: bool,
    /// Again each second, until ^C; in a terminal until q, and arrows scroll
    #[arg(short = 'w', long = "watch")]
    watch: bool,
}

/// How many of the ended applications.
fn count(text: &str) -> Result<u32, String> {
    let in_range = text.parse().ok().filter(|n| (1..=HISTORY_MAX).contains(n));
    in_range.ok_or_else(|| format!("expected a number from 1 to {HISTORY_MAX}"))
}

impl Cli {
    fn list_request(&self) -> pb::ListRequest {
        let apid = self.application.or(self.why).unwrap_or(0);
        pb::ListRequest { history: self.history.unwrap_or(0), apid, ..Default::default() }
    }
}

/// Runs it with this command line, and gives the status to exit with.
pub fn run(words: Vec<OsString>) -> ExitCode {
    match parsed("apstat", Cli::try_parse_from(words), 2) {
        Ok(cli) => asked("apstat", async { show(&cli).await.map_err(|text| vec![text]) }),
        Err(status) => status,
    }
}

async fn show(cli: &Cli) -> Result<(), String> {
    if let Some(apid) = cli.stacks {
        return stacks::show(&mut client().await?, apid, cli.json).await;
    }
    if !cli.watch {
        let mut client = client().await?;
        if cli.parse {
            let reply = pages::list(&mut client, cli.list_request(), ANSWER_BOUND).await?;
            return write_out(&views::parse(&reply));
        }
        let report = report(cli, &mut client).await?;
        return write_out(&text_of(cli, &report));
    }
    if io::stdout().is_terminal() {
        return live::live(cli).await;
    }
    tokio::select! {
        end = watch(cli) => end,
        // ^C is how one leaves: all is well.
        _ = tokio::signal::ctrl_c() => Ok(()),
    }
}

async fn client() -> Result<PschedClient<Channel>, String> {
    let channel = connect(&socket_path()).await.map_err(|e| e.to_string())?;
    Ok(PschedClient::new(channel).max_decoding_message_size(64 * 1024 * 1024))
}

fn text_of(cli: &Cli, report: &Report) -> String {
    if cli.json { report.json() } else { report.text_within(table::terminal_columns()) }
}

/// psched, which may be away and come back.
#[derive(Default)]
struct Psched {
    client: Option<PschedClient<Channel>>,
}

impl Psched {
    /// Asks anew.
    ///
    /// # Errors
    /// Why there is no answer; the next question goes over a new connection.
    async fn ask(&mut self, cli: &Cli) -> Result<Report, String> {
        let client = match &mut self.client {
            Some(client) => client,
            none => none.insert(client().await?),
        };
        let report = report(cli, client).await;
        if report.is_err() {
            self.client = None;
        }
        report
    }
}

/// Writes it to a pipe or a file, again and again.
async fn watch(cli: &Cli) -> Result<(), String> {
    let mut psched = Psched::default();
    loop {
        let text = match psched.ask(cli).await {
            Ok(report) => text_of(cli, &report),
            Err(text) => format!("apstat: {}\n", table::clean(&text)),
        };
        let mut out = io::stdout();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            result => result.map_err(|e| format!("can't write standard output: {e}"))?,
        }
        tokio::time::sleep(REFRESH).await;
    }
}

/// Asks psched, and puts its answer into tables.
async fn report(cli: &Cli, client: &mut PschedClient<Channel>) -> Result<Report, String> {
    let zone = TimeZone::system();
    if let Some(apid) = cli.events {
        let reply = pages::events(client, apid, ANSWER_BOUND).await?;
        return Ok(views::events(&reply, &zone));
    }
    if cli.shares {
        let reply = pages::shares(client, ANSWER_BOUND).await?;
        return Ok(views::shares(&reply));
    }
    if let Some(apid) = cli.application.filter(|_| cli.pids) {
        let reply = pages::processes(client, apid, ANSWER_BOUND).await?;
        return Ok(views::processes(&reply, Apid(apid)));
    }
    let reply = pages::list(client, cli.list_request(), ANSWER_BOUND).await?;
    if let Some(apid) = cli.why {
        return views::why(&reply, Apid(apid)).ok_or_else(|| unknown(apid));
    }
    if let Some(apid) = cli.application {
        return views::application(&reply, Apid(apid), &zone).ok_or_else(|| unknown(apid));
    }
    if cli.history.is_some() {
        return Ok(views::history(&reply, &zone));
    }
    let mut report = Report::default();
    if cli.applications || !(cli.nodes || cli.pending) {
        report.tables.push(views::applications(&reply, cli.verbose));
    }
    if cli.pending {
        report.tables.push(views::pending(&reply));
    }
    if cli.nodes {
        report.tables.extend(views::nodes(&reply, cli.verbose));
    }
    report.notices.extend(views::notices(&reply, cli.nodes));
    Ok(report)
}

fn unknown(apid: u64) -> String {
    format!("there is no application {apid}; apstat --history lists ended applications")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_go_together_and_not() {
        let parse = |words: &str| Cli::try_parse_from(words.split(' '));
        assert!(parse("apstat -a -n -p -v --json").is_ok());
        assert!(parse("apstat --nodes --parse").is_ok());
        assert!(parse("apstat -A 7 --pids --json -w").is_ok_and(|cli| cli.pids));
        assert!(parse("apstat --stacks 7 --json").is_ok_and(|cli| cli.stacks == Some(7)));
        assert!(parse("apstat --shares --json").is_ok_and(|cli| cli.shares));
        assert_eq!(parse("apstat --history").expect("N is optional").history, Some(20));
        assert_eq!(parse("apstat --history 3").expect("given").history, Some(3));
        assert_eq!(parse("apstat -A 7").expect("one").list_request().apid, 7);
        for bad in [
            "apstat -A x",
            "apstat -A 1 --why 2",
            "apstat -a --why 1",
            "apstat -v -A 1",
            "apstat --shares -n",
            "apstat --shares --history",
            "apstat --history 0",
            "apstat --pids",
            "apstat --stacks",
            "apstat --stacks 1 -w",
            "apstat --stacks 1 -A 1",
            "apstat --stacks 1 --pids",
            "apstat --stacks 1 -n",
            "apstat --stacks 1 -v",
            "apstat --pids --why 1",
            "apstat --pids -n",
            "apstat 5",
            "apstat --parse",
            "apstat -n --parse -a",
            "apstat -n --parse -p",
            "apstat -n --parse --json",
            "apstat -n --parse -v",
            "apstat -n --parse -w",
            "apstat -n --parse -A 1",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
