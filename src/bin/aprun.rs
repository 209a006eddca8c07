//! aprun: see man/aprun.1.

use psched::commands::aprun;
use psched::front::options::Program;

fn main() {
    std::process::exit(aprun::run(Program::Aprun).into())
}
