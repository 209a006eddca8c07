//! aprun, and mpirun and mpiexec, which execute it by these names: see man/aprun.1.

use psched::aprun;
use std::process::ExitCode;

fn main() -> ExitCode {
    aprun::host::run(aprun::host::called(std::env::args_os().next())).into()
}
