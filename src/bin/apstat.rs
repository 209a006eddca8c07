//! apstat: shows applications and nodes.

fn main() -> std::process::ExitCode {
    psched::commands::apstat::run()
}
