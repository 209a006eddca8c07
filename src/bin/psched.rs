//! psched: the placement scheduler's daemon, and `psched backup`, `certs`, `check`, `replay`, `restore`, `simulate`,
//! `start` and `torture`.

use clap::{Args, Parser, Subcommand};
use psched::commands::{backup, certs, check, number, parsed, replay, start, worlds};
use psched::psched::serve;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::process::ExitCode;

/// The placement scheduler: its daemon, and private instances of it.
#[derive(Parser)]
#[command(
    name = "psched",
    version,
    max_term_width = 80,
    args_conflicts_with_subcommands = true,
    long_about = "The placement scheduler.\n\n\
    Without a subcommand this is the daemon: it reads its configuration, opens its state, listens \
    on its socket, and places applications on the nodes that apinit offers. It stays in the \
    foreground; systemd supervises it. PSCHED_LOG says what it logs."
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    daemon: Daemon,
}

#[derive(Subcommand)]
enum Command {
    Backup(backup::BackupArgs),
    Certs(certs::CertsArgs),
    Check(check::CheckArgs),
    Replay(replay::ReplayArgs),
    Restore(backup::RestoreArgs),
    /// Replay a recorded workload
    #[command(disable_help_flag = true)]
    Simulate(worlds::Words),
    Start(start::StartArgs),
    /// Try the scheduler in a simulated cluster against every fault
    #[command(disable_help_flag = true)]
    Torture(worlds::Words),
}

#[derive(Args)]
struct Daemon {
    /// The configuration [default: /etc/psched/psched.yaml]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The directory of the state, instead of the configuration's
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// End when this descriptor, a pipe's reading end, has reached its end (psched start gives it)
    #[arg(long, value_name = "FD", value_parser = number::<RawFd>)]
    lifeline: Option<RawFd>,
    /// The folder of a private instance, with its socket; cleared by whoever leaves it last (psched start gives it)
    #[arg(long, value_name = "DIR")]
    runtime: Option<PathBuf>,
}

/// A decision makes and drops many small lists.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    if let Some(name) = worlds::help_for(std::env::args_os().skip(1)) {
        return worlds::run(name, worlds::Words::help());
    }
    // psched start keeps small statuses for its command.
    let start = std::env::args_os().nth(1).is_some_and(|a| a == "start");
    let cli = match parsed("psched", Cli::try_parse(), if start { 125 } else { 2 }) {
        Ok(cli) => cli,
        Err(status) => return status,
    };
    match cli.command {
        Some(Command::Backup(args)) => backup::back_up(&args),
        Some(Command::Certs(args)) => certs::run(args),
        Some(Command::Replay(args)) => replay::run(&args),
        Some(Command::Restore(args)) => backup::restore(&args),
        Some(Command::Check(args)) => check::run(&args),
        Some(Command::Simulate(words)) => worlds::run("simulate", words),
        Some(Command::Start(args)) => start::run(args),
        Some(Command::Torture(words)) => worlds::run("torture", words),
        None => {
            let Daemon { config, state, lifeline, runtime } = cli.daemon;
            serve::run(serve::Arguments { config, state, lifeline, runtime })
        }
    }
}
