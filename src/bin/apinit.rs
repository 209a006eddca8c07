//! apinit: offers nodes of its host to psched and runs applications on them.
use clap::Parser;

fn main() -> std::process::ExitCode {
    psched::apinit::host::main(&psched::apinit::host::Options::parse())
}
