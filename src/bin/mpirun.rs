//! mpirun: aprun with -np; see man/mpirun.1.

use psched::aprun;
use psched::aprun::decide::options::Program;
use std::process::ExitCode;

fn main() -> ExitCode {
    aprun::host::run(Program::Mpirun).into()
}
