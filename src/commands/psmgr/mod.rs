//! `psmgr`: what administrators do with a live machine.
//!
//! A subject is a file: foreign nodes and nodes that are taken out ([`nodes`]), variables
//! ([`variables`]), applications that are held ([`hold`]), the log of all of that ([`log`]), and what psched
//! is busy with ([`counters`]).
//! psched decides, and answers once what was done is on its record; all of it may be said again.

mod counters;
mod hold;
pub(super) mod log;
mod moves;
pub(super) mod nodes;
mod record;
mod variables;

use super::question::{Does, again, ask, asked, parsed};
use crate::console::stdout::write_out;
use crate::console::table::clean;
use crate::rpc::connect::{connect, socket_path, status_text};
use crate::rpc::pb;
use crate::rpc::pb::psched_client::PschedClient;
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;
use tonic::transport::Channel;

/// How long the nodes may take: longer than any ordinary grace from TERM to KILL.
pub(super) const ANSWER_BOUND: Duration = Duration::from_secs(120);
/// The largest answer, in bytes: a log, or the weights of many users.
const ANSWER_MAX: usize = 64 * 1024 * 1024;

/// Manages a live machine.
#[derive(Parser, Debug)]
#[command(
    name = "psmgr",
    version,
    max_term_width = 80,
    long_about = "Manages a live machine. For administrators.\n\nNIDS is a list of nodes, as \
                  0-3,7, or of their hosts, as h1,n[004-007]; APID the number of an application, as apstat shows it. The exit status \
                  is 0 if all was done; 1 if not: then nothing was changed, or the change goes \
                  on, as the message says; 2 if the command line is wrong."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Shows variables, their values and where these come from
    Show(variables::Show),
    /// Sets variables, all or none; they outlive a restart and a reload of psched.yaml
    Set(variables::Set),
    /// Keeps new applications away from nodes; the ones there run on
    Drain(nodes::Order),
    /// Opens drained nodes, or nodes that were down, to new applications
    Resume(nodes::Order),
    /// Declares nodes lost with their hosts: their applications have ended
    Down(nodes::Order),
    /// Makes applications wait until they are released
    Hold(hold::Apids),
    /// Lets held applications go on
    Release(hold::Apids),
    /// Moves a running application to other nodes of its host, where it runs on
    Migrate(moves::Migrate),
    /// Moves the applications of a region together, so that free processors are contiguous
    Compact(moves::Compact),
    /// Makes psched read psched.yaml again, and shows changes or problems
    Reload,
    /// Shows administrators' changes, with user and time
    Log(log::Log),
    /// Counts the events that psched has received and its decisions
    Counters(counters::Counters),
    /// Writes the latest events to a file, for psched replay
    Record(record::Record),
    /// Puts foreign nodes under this psched, with their applications, which run on
    Adopt(nodes::Nodes),
    /// Ends the applications of foreign nodes, and puts the nodes under this psched
    Purge(nodes::Nodes),
}

/// Runs it with this command line, and gives the status to exit with.
pub fn run(words: Vec<OsString>) -> ExitCode {
    let line = Cli::try_parse_from(words).and_then(|cli| match &cli.command {
        Command::Set(set) => set.check().map_err(|text| wrong("set", text)).map(|()| cli),
        _ => Ok(cli),
    });
    match parsed("psmgr", line, 2) {
        Ok(cli) => asked("psmgr", async {
            let text = manage(cli.command).await?;
            write_out(&text).map_err(|text| vec![text])
        }),
        Err(status) => status,
    }
}

/// An error of a subcommand's command line that clap can't see, with the subcommand's usage.
fn wrong(name: &str, text: String) -> clap::Error {
    let mut command = Cli::command();
    command.build();
    match command.find_subcommand_mut(name) {
        Some(command) => command.error(ErrorKind::ValueValidation, text),
        None => command.error(ErrorKind::ValueValidation, text),
    }
}

/// Does it, and gives what is to be printed; or what stood in the way.
async fn manage(command: Command) -> Result<String, Vec<String>> {
    let client = &mut client().await?;
    match command {
        Command::Show(show) => show.run(client).await,
        Command::Set(set) => set.run(client).await,
        Command::Drain(order) => order.run(client, pb::NodesTo::Drained).await,
        Command::Resume(order) => order.run(client, pb::NodesTo::Open).await,
        Command::Down(order) => order.run(client, pb::NodesTo::Down).await,
        Command::Hold(apids) => apids.run(client, true).await,
        Command::Release(apids) => apids.run(client, false).await,
        Command::Migrate(migrate) => migrate.run(client).await,
        Command::Compact(compact) => compact.run(client).await,
        Command::Reload => {
            done(again(ask!(client.reload, pb::ReloadRequest {}), Does::Change, ANSWER_BOUND)).await
        }
        Command::Log(log) => log.run(client).await,
        Command::Counters(counters) => counters.run(client).await,
        Command::Record(record) => record.run(client).await,
        Command::Adopt(nodes) => {
            let request = nodes.request(client).await?;
            done(again(ask!(client.adopt, request), Does::Change, ANSWER_BOUND)).await
        }
        Command::Purge(nodes) => {
            let request = nodes.request(client).await?;
            done(again(ask!(client.purge, request), Does::Change, ANSWER_BOUND)).await
        }
    }
}

pub(super) type Client = PschedClient<Channel>;

/// psched, on the socket that the environment names.
pub(super) async fn client() -> Result<Client, Vec<String>> {
    let channel = connect(&socket_path()).await.map_err(|e| vec![e.to_string()])?;
    Ok(PschedClient::new(channel).max_decoding_message_size(ANSWER_MAX))
}

/// psched's answer, in time.
pub(super) async fn answer<T>(
    call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
) -> Result<T, Vec<String>> {
    match tokio::time::timeout(ANSWER_BOUND, call).await {
        Ok(Ok(reply)) => Ok(reply.into_inner()),
        Ok(Err(status)) => Err(vec![status_text(status)]),
        Err(_) => Err(vec![format!(
            "psched has not answered for {} s; a change continues: apstat -n shows its progress",
            ANSWER_BOUND.as_secs()
        )]),
    }
}

/// What was done, a sentence a line; or what stood in the way.
pub(super) async fn done(
    call: impl Future<Output = Result<tonic::Response<pb::ManageReply>, tonic::Status>>,
) -> Result<String, Vec<String>> {
    let pb::ManageReply { done, problems } = answer(call).await?;
    if problems.is_empty() {
        Ok(done.iter().map(|line| clean(line) + "\n").collect())
    } else {
        Err(problems)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Nid;

    #[test]
    fn command_lines() {
        let parse = |words: &str| Cli::try_parse_from(words.split(' '));
        let adopt = parse("psmgr adopt 0-2,7").expect("good");
        assert!(matches!(adopt.command, Command::Adopt(nodes) if nodes.nids().len() == 4));
        let purge = parse("psmgr purge 3").expect("good");
        assert!(matches!(purge.command, Command::Purge(nodes) if nodes.nids() == [Nid(3)].into()));
        for good in [
            "psmgr show",
            "psmgr show kill* --json",
            "psmgr drain 0-3 bad memory",
            "psmgr drain h1,3",
            "psmgr resume 3",
            "psmgr down 3 -- the power -is gone",
            "psmgr hold 1 2",
            "psmgr release 1",
            "psmgr log -n 3 --json",
            "psmgr counters --json",
            "psmgr record events --force",
        ] {
            assert!(parse(good).is_ok(), "{good}");
        }
        for bad in [
            "psmgr",
            "psmgr adopt",
            "psmgr adopt 0-x",
            "psmgr adopt 3-1",
            "psmgr fix 0",
            "psmgr set",
            "psmgr drain",
            "psmgr drain 3-",
            "psmgr hold",
            "psmgr hold 0",
            "psmgr log -n x",
            "psmgr log 3",
            "psmgr counters 3",
            "psmgr record",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn set_takes_names_with_values_or_without() {
        let check = |words: &str| match Cli::try_parse_from(words.split(' ')).map(|c| c.command) {
            Ok(Command::Set(set)) => set.check().is_ok(),
            _ => false,
        };
        assert!(check("psmgr set a=1 weight.user.x=2"));
        assert!(check("psmgr set --reset a b"));
        for bad in ["psmgr set a", "psmgr set a=1 b", "psmgr set =1", "psmgr set --reset a=1"] {
            assert!(!check(bad), "{bad}");
        }
    }
}
