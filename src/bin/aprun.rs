//! aprun: see man/aprun.1.

use psched::commands::aprun;
use psched::front::options::Program;
use std::process::ExitCode;

fn main() -> ExitCode {
    aprun::run(Program::Aprun).into()
}
