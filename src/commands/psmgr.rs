//! `psmgr`: what administrators do with a live machine.
//!
//! For now that is to say what becomes of foreign nodes, which obey another psched's records:
//! `psmgr adopt 0-3` and `psmgr purge 0-3`. psched decides and answers once its nodes have done it;
//! both may be said again at any time, and go on from where they are.

use crate::machine::{Nid, parse_nids};
use crate::rpc::connect::{connect, socket_path, status_text};
use crate::rpc::pb;
use crate::rpc::pb::psched_client::PschedClient;
use clap::{Parser, Subcommand};
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

/// How long the nodes may take: longer than any ordinary grace from TERM to KILL.
const ANSWER_BOUND: Duration = Duration::from_secs(120);

/// Manages a live machine.
#[derive(Parser, Debug)]
#[command(
    name = "psmgr",
    version,
    long_about = "Manages a live machine. For administrators.\n\n\
    A node is foreign when it has obeyed a psched with other records than the one that runs \
    now (apstat shows it, and why): its applications run on, and nothing is placed there until an \
    administrator adopts or purges it. NIDS is a list of nodes, as 0-3,7. The exit status is 0 if \
    all is as it was asked for, 1 if not, 2 if the command line is wrong."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Foreign nodes obey this psched from now on; their applications run on, on its records
    Adopt {
        /// The nodes: 0-3,7
        #[arg(value_name = "NIDS", value_parser = nids)]
        nids: Nids,
    },
    /// The applications of foreign nodes are ended; then the nodes obey this psched
    Purge {
        /// The nodes: 0-3,7
        #[arg(value_name = "NIDS", value_parser = nids)]
        nids: Nids,
    },
}

/// A list of NIDs on the command line.
#[derive(Clone, Debug)]
struct Nids(BTreeSet<Nid>);

fn nids(text: &str) -> Result<Nids, String> {
    parse_nids(text).map(Nids).map_err(|e| e.to_string())
}

/// Runs it, and gives the status to exit with.
pub fn run() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&[error.to_string()]),
    };
    match runtime.block_on(manage(cli.command)) {
        Ok(pb::NodesReply { done, problems }) => {
            for line in done {
                let _ = writeln!(io::stdout(), "{line}");
            }
            if problems.is_empty() { ExitCode::SUCCESS } else { fail(&problems) }
        }
        Err(text) => fail(&[text]),
    }
}

fn fail(lines: &[String]) -> ExitCode {
    for line in lines {
        let _ = writeln!(io::stderr(), "psmgr: {line}");
    }
    ExitCode::FAILURE
}

async fn manage(command: Command) -> Result<pb::NodesReply, String> {
    let channel = connect(&socket_path()).await.map_err(|e| e.to_string())?;
    let mut client = PschedClient::new(channel);
    let request = |nids: Nids| pb::NodesRequest { nids: nids.0.into_iter().map(|n| n.0).collect() };
    let call = async {
        match command {
            Command::Adopt { nids } => client.adopt(request(nids)).await,
            Command::Purge { nids } => client.purge(request(nids)).await,
        }
    };
    match tokio::time::timeout(ANSWER_BOUND, call).await {
        Ok(Ok(reply)) => Ok(reply.into_inner()),
        Ok(Err(status)) => Err(status_text(status)),
        Err(_) => Err(format!(
            "not done after {} s; it goes on: apstat -n shows how far it is, and psmgr can be \
             called again",
            ANSWER_BOUND.as_secs()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines() {
        let parse = |words: &str| Cli::try_parse_from(words.split(' '));
        let adopt = parse("psmgr adopt 0-2,7").expect("good");
        assert!(matches!(adopt.command, Command::Adopt { nids } if nids.0.len() == 4));
        let purge = parse("psmgr purge 3").expect("good");
        assert!(matches!(purge.command, Command::Purge { nids } if nids.0 == [Nid(3)].into()));
        for bad in ["psmgr", "psmgr adopt", "psmgr adopt x", "psmgr adopt 3-1", "psmgr fix 0"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
