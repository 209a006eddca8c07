//! psview: shows who runs when.

fn main() -> std::process::ExitCode {
    psched::commands::psview::run()
}
