//! `psched simulate` and `psched torture`, which the daemon's program does not contain: psched becomes this one
//! for them.

use clap::{Parser, Subcommand};
use psched::commands::{parsed, simulate, torture};
use std::process::ExitCode;

/// Worlds to try psched in. Its parts are called as `psched simulate` and `psched torture`.
#[derive(Parser)]
#[command(name = "psched", bin_name = "psched", version, max_term_width = 80)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Simulate(simulate::SimulateArgs),
    Torture(torture::TortureArgs),
}

/// A decision makes and drops many small lists: with it a log is replayed in three quarters of the time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = match parsed("psched", Cli::try_parse(), 2) {
        Ok(cli) => cli,
        Err(status) => return status,
    };
    match cli.command {
        Command::Simulate(args) => simulate::run(&args),
        Command::Torture(args) => torture::run(&args),
    }
}
