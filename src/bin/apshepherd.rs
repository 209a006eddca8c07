//! apshepherd: parent of an application's PEs on one host. Started by apinit.
use psched::apshepherd::host;
use psched::node::checkpoint::{restore_order, within};

fn main() -> std::process::ExitCode {
    let mut arguments = std::env::args().skip(1).peekable();
    match arguments.next_if(|first| first == restore_order::ARGUMENT) {
        Some(_) => within::main(arguments),
        None => host::main(arguments),
    }
}
