//! appmix: the PMIx server of an application's PEs on one host. Started by apshepherd.
fn main() -> std::process::ExitCode {
    psched::apshepherd::host::appmix::main(std::env::args().skip(1))
}
