//! cpr: checkpoints of applications.

fn main() -> std::process::ExitCode {
    psched::commands::cpr::run()
}
