//! `psched start`: a private instance of psched on this machine, as whoever calls it.
//!
//! # What it does
//! 1. clears what dead instances of the caller left ([`instance::clear_stale`]);
//! 2. makes a folder with psched.yaml in it, a lifeline (a pipe whose writing end only this process
//!    holds), and starts psched and the apinits ([`daemons`]);
//! 3. waits until every node is there ([`wait_ready`]);
//! 4. runs the user's command, with its binaries first in PATH and its socket in PSCHED_SOCKET
//!    ([`command`]); without one, a shell, or nothing until a signal comes;
//! 5. ends what the command left running, closes the lifeline, waits for the daemons, and clears
//!    the folder.
//!
//! # Signals
//! The command stays in this process's group, as under `time` or `sh -c`: what the terminal sends
//! reaches it directly, and job control needs nothing from us. The daemons have groups of their own,
//! so that ^C is not for them. ^C does not end this process: the command decides what it means.
//! TERM, HUP, and an INT or QUIT that another process sent, are passed on to the command and end the
//! instance; the command has [`COMMAND_GRACE`] before it is killed.
//!
//! If this process is killed, the lifeline closes and the daemons clear up: see
//! [`instance`](crate::os::instance).

mod apart;
mod command;
mod daemons;
mod layout;
mod topology;

use super::pages;
use crate::config;
use crate::console::stderr::columns;
use crate::console::wrap::at_blanks;
use crate::machine::{Machine, Nid, format_nids};
use crate::os::instance::{self, Member};
use crate::os::wait;
use crate::rpc::{self, pb};
use crate::variables::Variables;
use clap::Args;
use command::{Command, Ending};
use daemons::{Daemon, Daemons};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io::{IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use topology::Topology;

/// How long the instance may take until all nodes are there.
const READY_BOUND: Duration = Duration::from_secs(10);
/// How often it is asked: often, for it takes some 20 ms.
const READY_POLL: Duration = Duration::from_millis(2);
/// How long a command may take to end once it was asked to.
const COMMAND_GRACE: Duration = Duration::from_secs(5);
/// How long what the command left running may take.
const LEFT_GRACE: Duration = Duration::from_secs(1);
/// How long daemons may take to end when the lifeline is closed, before they are killed.
const DAEMONS_GRACE: Duration = Duration::from_secs(7);
/// How long clearing the folder may take.
const CLEAR_BOUND: Duration = Duration::from_secs(3);

/// The status of `psched start` when it itself failed.
const STATUS_FAILED: u8 = 125;

/// Starts a private instance of psched on this machine, as yourself, and runs CMD in it.
#[derive(Args, Debug)]
#[command(
    long_about = "Starts a private instance of psched on this machine, as yourself, and runs CMD in it.\n\n\
    CMD finds aprun, apstat and apkill first in its PATH, and they find the instance through \
    PSCHED_SOCKET. The instance ends with CMD, and nothing of it is left, --state DIR apart. \
    Without CMD: a shell if there is a terminal, else the instance stays until a signal ends it; \
    then a line PSCHED_SOCKET=PATH on standard output says where it is.\n\n\
    The exit status is CMD's, or 128 plus the signal that ended it; 125 if psched start itself \
    failed, 126 if CMD is not executable, 127 if there is no such file."
)]
pub struct StartArgs {
    /// So many nodes, NIDs from 0 [default: one for each NUMA domain of this machine]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = count::<{ layout::NODES_MAX }>)]
    pub nodes: Option<u32>,
    /// Processors of each node [default: the larger of 2 and real cores / N]
    #[arg(long, value_name = "P", allow_negative_numbers = true, value_parser = count::<{ layout::PROCESSORS_MAX }>)]
    pub processors: Option<u32>,
    /// So many apinit processes, between which the nodes are split
    #[arg(long, value_name = "K", allow_negative_numbers = true, default_value_t = 1, value_parser = count::<{ layout::NODES_MAX }>)]
    pub apinits: u32,
    /// Start with this value of a variable (psched.yaml(5)); may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = assignment)]
    pub set: Vec<(String, String)>,
    /// A psched.yaml of your own instead; its listening and state are not used
    #[arg(long, value_name = "FILE", conflicts_with_all = ["nodes", "processors", "set"])]
    pub config: Option<PathBuf>,
    /// Keep the state in this directory, and leave it there
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// What to run, with its arguments
    #[arg(value_name = "CMD", last = true)]
    pub command: Vec<OsString>,
}

/// A number of something there is at least one of.
fn count<const MAX: u32>(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(n) if (1..=MAX).contains(&n) => Ok(n),
        _ => Err(format!("give a number from 1 to {MAX}")),
    }
}

/// A variable and its value.
pub(super) fn assignment(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("give NAME=VALUE")?;
    Variables::default().set(name, value).map_err(|e| e.to_string())?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Why no instance could be had, or why it had to end.
#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error(transparent)]
    Folder(#[from] instance::FolderError),
    #[error("can't {what}: {error}")]
    Io { what: String, error: std::io::Error },
    #[error("{0}")]
    Config(String),
    #[error(
        "{asked} apinits for {nodes}: there must be a node for each; give --apinits {cure} or fewer"
    )]
    TooManyApinits { asked: u32, nodes: String, cure: usize },
    #[error("{text}{tail}")]
    Daemon { text: String, tail: String },
    #[error("the instance is not ready after {} s: {waiting}{tail}", READY_BOUND.as_secs())]
    NotReady { waiting: String, tail: String },
}

fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> StartError {
    |error| StartError::Io { what: what.into(), error }
}

/// One line of `psched start` for its caller.
fn say(text: &str) {
    // With stderr closed there is nobody to tell.
    let columns = columns();
    let text = format!("psched start: {text}");
    let lines: String = text.lines().map(|line| at_blanks(line, columns, 2) + "\n").collect();
    let _ = std::io::stderr().write_all(lines.as_bytes());
}

/// Runs it, and gives the status to exit with.
pub fn run(args: StartArgs) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            say(&format!("can't start: {error}"));
            return STATUS_FAILED.into();
        }
    };
    let status = runtime.block_on(run_instance(args));
    runtime.shutdown_background();
    match status {
        Ok(status) => status.into(),
        Err(error) => {
            say(&error.to_string());
            STATUS_FAILED.into()
        }
    }
}

/// What the instance is to be: decided before anything is made.
struct Plan {
    nids: Vec<Nid>,
    config: Configuration,
    oversubscribed: Option<String>,
    description: String,
    machine: Machine,
}

/// psched.yaml.
enum Configuration {
    /// To be written into the folder.
    Text(String),
    /// The caller's own.
    File(PathBuf),
}

fn plan(args: &StartArgs, topology: &Topology) -> Result<Plan, StartError> {
    let plan = match &args.config {
        Some(file) => configured(file, topology)?,
        None => {
            let machine = layout::machine(topology, args.nodes, args.processors);
            let mut variables = Variables::default();
            for (name, value) in &args.set {
                variables.set(name, value).map_err(|e| StartError::Config(e.to_string()))?;
            }
            Plan {
                nids: machine.nodes.keys().copied().collect(),
                oversubscribed: layout::oversubscribed(&machine, topology),
                description: layout::describe(&machine),
                config: Configuration::Text(layout::yaml(&machine, &variables)),
                machine,
            }
        }
    };
    let nodes = plan.nids.len();
    if args.apinits as usize > nodes {
        let nodes_text = format!("{nodes} node{}", if nodes == 1 { "" } else { "s" });
        return Err(StartError::TooManyApinits {
            asked: args.apinits,
            nodes: nodes_text,
            cure: nodes,
        });
    }
    Ok(plan)
}

/// What the caller's own psched.yaml says of this host.
fn configured(file: &Path, topology: &Topology) -> Result<Plan, StartError> {
    let refuse = |what: String| StartError::Config(format!("{}: {what}", file.display()));
    let path = std::path::absolute(file).map_err(|e| refuse(e.to_string()))?;
    let text = fs::read_to_string(&path).map_err(|e| {
        refuse(format!("can't be read ({e}); give --config the path of a psched.yaml"))
    })?;
    let mut config = config::read(&text).map_err(|problems| {
        let lines: Vec<String> = problems.iter().map(|p| format!("\n  {p}")).collect();
        refuse(format!("has errors:{}", lines.concat()))
    })?;
    let own = nix::unistd::gethostname().unwrap_or_default();
    config.machine.nodes.retain(|_, node| node.host.is_empty() || *node.host == *own);
    let machine = config.machine;
    if machine.nodes.is_empty() {
        let own = own.to_string_lossy();
        return Err(refuse(format!(
            "has no nodes on this host; give some nodes host: {own}, or leave host out"
        )));
    }
    Ok(Plan {
        nids: machine.nodes.keys().copied().collect(),
        oversubscribed: layout::oversubscribed(&machine, topology),
        description: layout::describe(&machine),
        config: Configuration::File(path),
        machine,
    })
}

async fn run_instance(args: StartArgs) -> Result<u8, StartError> {
    let topology = Topology::read(Path::new("/"));
    let apart::Apart { plan, cpus, claim, warnings } = apart::planned(&args, &topology)?;
    let mut signals = command::Signals::new().map_err(io("watch for signals"))?;
    let bases = instance::bases();
    instance::clear_stale(&bases, CLEAR_BOUND);
    let member = Member::found(&bases)?;
    let folder = member.folder().to_owned();
    warnings.iter().for_each(|text| say(text));
    let result = with_folder(&args, &plan, cpus, &member, &mut signals).await;
    // What the command left is gone, and the daemons; what a killed one left goes with the folder.
    member.leave(CLEAR_BOUND, CLEAR_BOUND);
    drop(claim);
    if folder.exists() {
        say(&format!("can't remove {}; remove it with rm -r", folder.display()));
    }
    result
}

async fn with_folder(
    args: &StartArgs,
    plan: &Plan,
    cpus: Option<Vec<u32>>,
    member: &Member,
    signals: &mut command::Signals,
) -> Result<u8, StartError> {
    let folder = member.folder();
    let socket = folder.join(instance::SOCKET_FILE);
    let config = match &plan.config {
        Configuration::File(file) => file.clone(),
        Configuration::Text(text) => {
            let file = folder.join("psched.yaml");
            fs::OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&file)
                .and_then(|mut f| f.write_all(text.as_bytes()))
                .map_err(io(format!("write {}", file.display())))?;
            file
        }
    };
    let state = match &args.state {
        Some(state) => std::path::absolute(state).map_err(io("find --state"))?,
        None => folder.join("state"),
    };
    if let Some(text) = &plan.oversubscribed {
        say(text);
    }
    let (lifeline, keep) = std::io::pipe().map_err(io("make a pipe"))?;
    let mut daemons = Daemons::new(folder, lifeline.into(), cpus);
    daemons.start(Daemon::psched(&config, &state, folder));
    let started = Instant::now();
    let ready = tokio::select! {
        ready = wait_ready(&mut daemons, plan, args.apinits, &socket, started) => ready.map(Some),
        // ^C too: there is no command yet that it could be for.
        signal = signals.any() => Ok(signal_status(&args.command, signal)),
    };
    let result = match ready {
        Err(error) => Err(error),
        // A signal came first.
        Ok(Some(Ready::Signalled(status))) => Ok(status),
        Ok(Some(Ready::Nodes)) => {
            if let Some(group) = instance::own_group() {
                // Without it only what apinit itself removes goes; the instance works all the same.
                let mark = instance::mark(folder);
                let _ = member.record_group(&group.join(format!("psched.{mark}")));
            }
            daemons.set_ready();
            serve(args, plan, folder, &mut daemons, signals).await
        }
        Ok(None) => Ok(0),
    };
    instance::end_command(folder, LEFT_GRACE, LEFT_GRACE * 2);
    member.announce_end();
    drop(keep);
    daemons.finish(DAEMONS_GRACE).await;
    result
}

enum Ready {
    /// All nodes are there.
    Nodes,
    /// A signal ended it before.
    Signalled(u8),
}

fn signal_status(command: &[OsString], signal: i32) -> Option<Ready> {
    Some(Ready::Signalled(if command.is_empty() { 0 } else { 128u8.saturating_add(signal as u8) }))
}

/// Starts the apinits as soon as psched listens, and waits until all nodes are registered.
async fn wait_ready(
    daemons: &mut Daemons,
    plan: &Plan,
    apinits: u32,
    socket: &Path,
    started: Instant,
) -> Result<Ready, StartError> {
    let mut waiting = "psched does not answer".to_string();
    let mut apinits = Some(apinits);
    let mut client = None;
    loop {
        if let Some(text) = daemons.failed_start() {
            return Err(StartError::Daemon { text, tail: daemons.log_tail() });
        }
        if started.elapsed() > READY_BOUND {
            return Err(StartError::NotReady { waiting, tail: daemons.log_tail() });
        }
        if client.is_none() && std::os::unix::net::UnixStream::connect(socket).is_ok() {
            if let Some(count) = apinits.take() {
                for nids in layout::split(&plan.nids, count as usize) {
                    daemons.start(Daemon::apinit(socket, &nids));
                }
            }
            client =
                rpc::connect::connect(socket).await.ok().map(pb::psched_client::PschedClient::new);
        }
        if let Some(psched) = &mut client {
            match pages::list(psched, pb::ListRequest::default(), READY_BOUND).await {
                Ok(reply) => {
                    let mut missing: BTreeSet<Nid> = plan.nids.iter().copied().collect();
                    for node in reply.nodes.iter().filter(|node| node.state != "suspect") {
                        missing.remove(&Nid(node.nid));
                    }
                    if missing.is_empty() {
                        return Ok(Ready::Nodes);
                    }
                    waiting = format!("no apinit has registered NIDs {}", format_nids(missing));
                }
                Err(text) => {
                    waiting = text;
                    client = None;
                }
            }
        }
        tokio::time::sleep(READY_POLL).await;
    }
}

/// The instance is there: runs what it is for, until that ends or a signal comes.
async fn serve(
    args: &StartArgs,
    plan: &Plan,
    folder: &Path,
    daemons: &mut Daemons,
    signals: &mut command::Signals,
) -> Result<u8, StartError> {
    let socket = folder.join(instance::SOCKET_FILE);
    let command = if !args.command.is_empty() {
        Some(Command::given(&args.command))
    } else if command::has_terminal() {
        say(&format!(
            "{}; this shell uses them, and they end with it (leave it with exit or ^D)",
            plan.description
        ));
        Some(Command::shell())
    } else {
        None
    };
    let Some(command) = command else {
        return serve_until_signal(plan, &socket, daemons, signals).await;
    };
    let mut running = match command.start(&daemons::own_folder(), folder) {
        Ok(running) => running,
        Err((status, text)) => {
            say(&text);
            return Ok(status);
        }
    };
    let mut kill_at: Option<Instant> = None;
    let mut failed = None;
    loop {
        let kill = kill_at.map(|at| at.saturating_duration_since(Instant::now()));
        tokio::select! {
            ending = running.wait() => {
                let status = match ending.map_err(io("wait for the command"))? {
                    Ending::Exit(code) => code,
                    Ending::Signal(signal) => 128u8.saturating_add(signal as u8),
                };
                return match failed {
                    Some(error) => Err(error),
                    None => Ok(status),
                };
            }
            // The second of them is as good as a KILL.
            signal = signals.ending() => {
                running.signal(if kill_at.is_some() { libc::SIGKILL } else { signal });
                kill_at = Some(Instant::now() + COMMAND_GRACE);
            }
            () = wait::sleep(kill) => {
                running.signal(libc::SIGKILL);
                kill_at = Some(Instant::now() + COMMAND_GRACE);
            }
            text = daemons.given_up(), if failed.is_none() => {
                failed = Some(StartError::Daemon { text, tail: daemons.log_tail() });
                running.signal(libc::SIGTERM);
                kill_at = Some(Instant::now() + COMMAND_GRACE);
            }
        }
    }
}

async fn serve_until_signal(
    plan: &Plan,
    socket: &Path,
    daemons: &mut Daemons,
    signals: &mut command::Signals,
) -> Result<u8, StartError> {
    // For a script to eval; with stdout closed it has the environment's folder to look in.
    let mut out = std::io::stdout();
    let _ = writeln!(out, "{}={}", instance::SOCKET, socket.display()).and_then(|()| out.flush());
    let how = if std::io::stderr().is_terminal() { "^C" } else { "TERM" };
    say(&format!("{}; {how} ends them", plan.description));
    tokio::select! {
        _ = signals.any() => Ok(0),
        text = daemons.given_up() => Err(StartError::Daemon { text, tail: daemons.log_tail() }),
    }
}
