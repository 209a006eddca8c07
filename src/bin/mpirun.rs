//! mpirun: aprun with -np; see man/mpirun.1.

use psched::commands::aprun;
use psched::front::options::Program;
use std::process::ExitCode;

fn main() -> ExitCode {
    aprun::run(Program::Mpirun).into()
}
