//! apshepherd: parent of an application's PEs on one host. Started by apinit.
fn main() -> std::process::ExitCode {
    psched::node::shepherd::main(std::env::args().skip(1))
}
