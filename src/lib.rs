//! psched: a placement and gang scheduler for tightly coupled parallel programs.
//!
//! This is the map of the house. A room is a module. Rooms marked *pure* have no clock, no randomness,
//! no input or output, no async and no logging: what comes from outside is an event, what is to be done
//! is an effect. They are the crate `psched_pure` (`src/pure.rs`); the worlds to try them in are
//! `psched_worlds` (`src/worlds.rs`).
//!
//! What everyone talks about, and where and when applications run:
//!
//! | room | what it holds | |
//! | --- | --- | --- |
//! | [`machine`] | what there is: nodes, flavors, lists of NIDs, regions and their gates | pure |
//! | [`variables`] | what can be retuned, in one table | pure |
//! | [`config`] | psched.yaml in, machine and variables out, or all problems | pure |
//! | [`apteam`] | what runs: the record, its states, shape, placement list, endings; and the words in which the processes talk about it | pure |
//! | [`checkpoint`] | what a checkpoint says of itself, and whether it is whole and true | pure |
//! | [`occupancy`] | who sits where | pure |
//! | [`placement`] | where an application goes | pure |
//! | [`gang`] | when: who competes, parties, slice plans | pure |
//!
//! Each process has a wing. `decide` is what it decides: `apply(now, event) -> effects`. `drive` carries
//! that out in the right order, over a trait that stands for the world. `host` or `serve` is the real
//! world:
//!
//! | wing | pure | real |
//! | --- | --- | --- |
//! | [`psched`] | [`decide`](psched::decide), the scheduler; [`drive`](psched::drive) | [`serve`](psched::serve): gRPC services, store, node links |
//! | [`apinit`] | [`decide`](apinit::decide), the agent of a host's nodes; [`drive`](apinit::drive) | [`host`](apinit::host): control groups, the switching thread, runtime folders |
//! | [`apshepherd`] | [`decide`](apshepherd::decide): start, ends, output, PMI; [`drive`](apshepherd::drive) | [`host`](apshepherd::host): PEs, pipes |
//! | [`aprun`] | [`decide`](aprun::decide): options, the course of a launch; [`drive`](aprun::drive) | [`host`](aprun::host): connections, terminal, files |
//!
//! The rest:
//!
//! | room | what it holds | |
//! | --- | --- | --- |
//! | [`torture`] | all wings together in a simulated cluster, tried against every fault | pure |
//! | [`simulate`] | recorded workloads, replayed in virtual time | pure |
//! | [`commands`] | apstat, apkill, cpr, psmgr, psview, snflv (one program, `psched-commands`) and `psched start` | |
//! | [`console`] | what a person reads at a terminal: tables, stdout | |
//! | [`node`] | what apinit and apshepherd have in common: control groups, checkpoints, frames | |
//! | [`os`] | the operating-system seam: the only `unsafe` | |
//! | [`logging`] | where diagnostics go | |
//! | [`rpc`] | generated protobuf, conversions, connecting, who is calling | |

pub mod commands;
pub mod console;
pub mod logging;
pub mod node;
pub mod os;
pub mod rpc;

/// apinit, on each host.
pub mod apinit {
    pub mod host;
    pub use psched_pure::apinit::{decide, drive};
}
/// aprun and mpirun, the front ends.
pub mod aprun {
    pub mod host;
    pub use psched_pure::aprun::{decide, drive};
}
/// apshepherd, around the PEs of one application on one host.
pub mod apshepherd {
    pub mod host;
    pub use psched_pure::apshepherd::{decide, drive};
}
/// psched, the daemon.
pub mod psched {
    pub mod serve;
    pub use psched_pure::psched::{decide, drive, reason};
}

pub use psched_pure::{apteam, checkpoint, config, gang, machine, occupancy, placement, variables};
pub use psched_worlds::{simulate, torture};
