//! mpirun: aprun with -np; see man/mpirun.1.

use psched::commands::aprun;
use psched::front::options::Program;

fn main() {
    std::process::exit(aprun::run(Program::Mpirun).into())
}
