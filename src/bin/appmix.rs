//! appmix: the PMIx server of an application's PEs on one host. Started by apshepherd.

#[path = "../os/own_users_only.rs"]
mod own_users_only;

fn main() -> std::process::ExitCode {
    psched::apshepherd::host::appmix::main(std::env::args().skip(1))
}
