//! psched: a placement and gang scheduler for tightly coupled parallel programs.
//!
//! This is the map: each row is a module. Modules marked *pure* have no clock, no randomness
//! without a given seed, no input or output, no async and no logging: what comes from outside is an
//! event, what is to be done is an effect. They are the crate `psched_pure` (`src/pure.rs`); the
//! simulated cluster and the simulator are `psched_worlds` (`src/worlds.rs`).
//!
//! Shared modules. Each uses only modules above it; `placement` and `gang` do not use each other:
//!
//! | module | what it holds | |
//! | --- | --- | --- |
//! | [`variables`] | the table of all variables, their kinds and units | pure |
//! | [`machine`] | nodes, flavors, lists of NIDs, regions and their gates | pure |
//! | [`config`] | the parser of psched.yaml: machine and variables, or all problems | pure |
//! | [`apteam`] | an application: record, states, shape, placement list, endings; the messages between processes | pure |
//! | [`checkpoint`] | the manifest and seal of a checkpoint, and whether it is complete | pure |
//! | [`occupancy`] | which application uses which processors and memory | pure |
//! | [`placement`] | where an application goes | pure |
//! | [`gang`] | when an application runs: competitors, parties, slice plans | pure |
//! | [`steering`] | characters that must not reach a terminal | pure |
//! | `psched_pure::by_time` | things of which each has a time, by both | pure |
//! | `psched_pure::pairs` | maps with keys that are no text, for JSON | pure |
//!
//! Each process has a wing. `decide` is what it decides: `apply(now, event) -> effects`. `drive`
//! carries that out in the right order, over a trait that stands for the world. `host` or `serve`
//! is the operating system:
//!
//! | wing | pure | real |
//! | --- | --- | --- |
//! | [`psched`] | [`decide`](psched::decide), the scheduler; [`reason`](psched::reason), why a posting waits; [`drive`](psched::drive) | [`serve`](psched::serve): gRPC services, store, node links |
//! | [`apinit`] | [`decide`](apinit::decide), the agent of a host's nodes; [`drive`](apinit::drive) | [`host`](apinit::host): control groups, the switching thread, runtime folders |
//! | [`apshepherd`] | [`decide`](apshepherd::decide): start, ends, output, PMI; [`drive`](apshepherd::drive) | [`host`](apshepherd::host): PEs, pipes |
//! | [`aprun`] | [`decide`](aprun::decide): options, the session of a launch; [`drive`](aprun::drive) | [`host`](aprun::host): connections, terminal, files |
//!
//! The rest:
//!
//! | module | what it holds | |
//! | --- | --- | --- |
//! | [`os`] | system calls: the only `unsafe` | |
//! | [`logging`] | where the log goes | |
//! | [`certs`] | certificates of hosts: made, read, followed when they change | |
//! | [`rpc`] | generated protobuf, conversions, connecting, who is calling | |
//! | [`node`] | what apinit and apshepherd share: control groups, checkpoints, frames | |
//! | [`console`] | tables and pages for a terminal, stdout | |
//! | [`commands`] | apstat, apkill, cpr, psmgr, psview, snflv (one program, `psched-commands`) and `psched start` | |
//! | [`simulate`] | recorded workloads, replayed in virtual time | pure |
//! | [`torture`] | all wings together in a simulated cluster, tried against every fault | pure |
//!
//! Which module may use which:
//!
//! - A pure module uses pure modules only; the compiler checks that.
//! - `decide` uses the shared modules, `drive` its `decide`, `host` or `serve` both. No shared
//!   module uses a wing.
//! - A wing does not use another one, with these exceptions: apinit and aprun use what apshepherd
//!   knows of PMI, and `aprun --inside` uses `apinit::host::inside`.
//! - Every module may use [`steering`]. `os` and `logging` use nothing else above; `certs` uses
//!   `machine` and `os`; `rpc` uses the shared modules, `certs` and `os`; `node` uses these and
//!   `rpc`; `console` uses `os` and the units of `variables`.
//! - `commands`, `simulate` and `torture` may use everything that they show or try; only
//!   `commands` uses the other two.

pub mod certs;
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
/// aprun, mpirun and mpiexec, the front ends.
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

pub use psched_pure::{
    apteam, checkpoint, config, gang, machine, occupancy, placement, steering, variables,
};
pub use psched_worlds::{simulate, torture};
