//! apstat, apkill, cpr, psmgr, psview and snflv in one program: the programs of these names execute it.

fn main() -> std::process::ExitCode {
    psched::commands::named::run(std::env::args_os().collect())
}
