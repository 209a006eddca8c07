//! snflv: what nodes are for.

fn main() -> std::process::ExitCode {
    psched::commands::snflv::run()
}
