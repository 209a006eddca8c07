//! psmgr: what administrators do with a live machine.

fn main() -> std::process::ExitCode {
    psched::commands::psmgr::run()
}
