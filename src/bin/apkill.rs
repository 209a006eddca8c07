//! apkill: ends applications.

fn main() -> std::process::ExitCode {
    psched::commands::apkill::run()
}
