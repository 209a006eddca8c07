//! `psview`: who runs when, with whom, and how the changes go.
//!
//! One question to psched, whose answer has the time in it, then pure functions: [`page`] lays it out in
//! lines that fit a width, of which [`matrix`] has the parties; [`json`] and [`trace`] say it to programs,
//! and [`picture`] draws it. [`live`] shows the same lines in a terminal, again and again, and [`help`]
//! explains them.

mod help;
mod json;
mod lines;
mod live;
mod matrix;
mod page;
mod picture;
mod runs;
mod trace;

#[cfg(test)]
mod golden;

use super::pages;
use super::question::{asked, parsed};
use crate::console::stdout::write_out;
use crate::console::table::{json_text, terminal_columns};
use crate::node::checkpoint::OF_ROOT_ALONE;
use crate::rpc::connect::{connect, socket_path};
use crate::rpc::pb;
use crate::rpc::pb::psched_client::PschedClient;
use clap::Parser;
use page::Page;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tonic::transport::Channel;

/// How long psched may take to answer.
const ANSWER_BOUND: Duration = Duration::from_secs(30);
/// The width of a text that goes to no terminal.
const WIDTH: usize = 80;
/// More changes than psched keeps.
const ALL: u32 = u32::MAX;

/// Shows who runs when.
#[derive(Parser, Debug)]
#[command(
    name = "psview",
    version,
    max_term_width = 80,
    long_about = "Shows who runs when: applications that compete for processors take turns, as whole \
    gangs.\n\n\
    A row is a party, the applications that run at the same time; a column is a node, or neighbours \
    that look alike. The exit status is 0; 1 if psched could not be asked; 2 if the command \
    line is wrong."
)]
struct Cli {
    /// Nodes, and what they can do
    #[arg(short = 'n', long = "nodes")]
    nodes: bool,
    /// Live in this terminal, until q
    #[arg(short = 'w', long = "watch")]
    watch: bool,
    /// All of it as JSON
    #[arg(long, conflicts_with_all = ["nodes", "watch"])]
    json: bool,
    /// Write the latest changes as a Chrome trace-event file, for chrome://tracing and Perfetto
    #[arg(long, value_name = "FILE", conflicts_with_all = ["nodes", "watch", "json"])]
    trace: Option<PathBuf>,
    /// Draw the latest turns over time as an SVG picture: a row a node, a colour an application
    #[arg(long, value_name = "FILE", conflicts_with_all = ["nodes", "watch", "json", "trace"])]
    svg: Option<PathBuf>,
}

/// Runs it with this command line, and gives the status to exit with.
pub fn run(words: Vec<OsString>) -> ExitCode {
    match parsed("psview", Cli::try_parse_from(words), 2) {
        Ok(cli) => asked("psview", async { show(&cli).await.map_err(|text| vec![text]) }),
        Err(status) => status,
    }
}

async fn show(cli: &Cli) -> Result<(), String> {
    let what = if cli.nodes { Page::Nodes } else { Page::Turns };
    if cli.watch {
        return live::live(what).await;
    }
    let mut psched = Psched::default();
    if let Some(path) = &cli.trace {
        let reply = psched.ask(ALL).await?;
        let text = serde_json::to_vec(&trace::trace(&reply)).map_err(|e| e.to_string())?;
        return written(path, &text, &reply);
    }
    if let Some(path) = &cli.svg {
        let reply = psched.ask(ALL).await?;
        return written(path, picture::svg(&reply).as_bytes(), &reply);
    }
    let reply = psched.ask(0).await?;
    let text = match cli.json {
        true => json_text(&json::json(&reply)),
        false => lines::text(&page::page(&reply, what, width())),
    };
    write_out(&text)
}

/// The letters that a line may have.
fn width() -> usize {
    match terminal_columns() {
        0 => WIDTH,
        columns => columns,
    }
}

fn written(path: &Path, text: &[u8], reply: &pb::TurnsReply) -> Result<(), String> {
    std::fs::write(path, text).map_err(|e| format!("can't write {}: {e}", path.display()))?;
    let changes = reply.switches.len();
    let line = format!("{changes} changes of party written to {}\n", path.display());
    let _ = io::stderr().write_all(line.as_bytes());
    Ok(())
}

/// psched, which may be away and come back.
#[derive(Default)]
struct Psched {
    client: Option<PschedClient<Channel>>,
}

impl Psched {
    /// Asks, for so many of the latest changes too.
    ///
    /// # Errors
    /// Why there is no answer; the next question goes over a new connection.
    async fn ask(&mut self, switches: u32) -> Result<pb::TurnsReply, String> {
        let asked = tokio::time::timeout(ANSWER_BOUND, self.asked(switches)).await;
        let silent = format!("psched has not answered for {} s", ANSWER_BOUND.as_secs());
        let reply = asked.unwrap_or(Err(silent));
        if reply.is_err() {
            self.client = None;
        }
        reply
    }

    async fn asked(&mut self, switches: u32) -> Result<pb::TurnsReply, String> {
        let client = match &mut self.client {
            Some(client) => client,
            none => {
                let channel = connect(&socket_path()).await.map_err(|e| e.to_string())?;
                let client = PschedClient::new(channel);
                none.insert(client.max_decoding_message_size(64 * 1024 * 1024))
            }
        };
        let reply = pages::turns(client, switches, ANSWER_BOUND).await?;
        Ok(for_user(reply, rustix::process::geteuid().as_raw()))
    }
}

/// Without what would not checkpoint an application of this user's.
fn for_user(mut reply: pb::TurnsReply, uid: u32) -> pb::TurnsReply {
    for node in reply.nodes.iter_mut().filter(|_| uid != 0) {
        node.back_ends.retain(|back_end| !back_end.ends_with(OF_ROOT_ALONE));
    }
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_not_work_for_the_user_is_not_named() {
        let back_ends = vec![format!("criu 4.2{OF_ROOT_ALONE}"), "application".to_owned()];
        let node = pb::NodeRow { back_ends: back_ends.clone(), ..pb::NodeRow::default() };
        let reply = pb::TurnsReply { nodes: vec![node], ..pb::TurnsReply::default() };
        assert_eq!(for_user(reply.clone(), 0).nodes[0].back_ends, back_ends);
        assert_eq!(for_user(reply, 1000).nodes[0].back_ends, ["application"]);
    }

    #[test]
    fn options_that_go_together_and_not() {
        let parse = |words: &str| Cli::try_parse_from(words.split(' '));
        assert!(parse("psview -n -w").expect("both").nodes);
        assert_eq!(parse("psview --trace x").expect("a file").trace, Some("x".into()));
        assert_eq!(parse("psview --svg x").expect("a file").svg, Some("x".into()));
        for bad in [
            "psview 1",
            "psview --json -w",
            "psview --trace",
            "psview --trace x --json",
            "psview --svg x --trace y",
            "psview --svg x -n",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
