//! apinit: offers nodes of its host to psched and runs applications on them.
use clap::Parser;

fn main() -> std::process::ExitCode {
    psched::node::apinit::main(&psched::node::apinit::Options::parse())
}
