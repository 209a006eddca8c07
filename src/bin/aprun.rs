//! aprun, and mpirun, which executes it by this name: see man/aprun.1.

use psched::aprun;
use std::process::ExitCode;

fn main() -> ExitCode {
    aprun::host::run(aprun::host::called(std::env::args_os().next())).into()
}
