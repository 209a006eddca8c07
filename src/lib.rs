//! psched: a placement and gang scheduler for tightly coupled parallel programs.
//!
//! This is the map of the house. A room is a module; arrows run downwards only, and the rooms
//! marked *pure* have no clock, no randomness, no input or output, no async and no logging: what
//! comes from outside is an event, what is to be done is an effect. They are the crate `psched_pure`
//! (`src/pure.rs`), and the worlds to try them in are `psched_worlds` (`src/worlds.rs`).
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
//! | [`scheduler`] | ties them: `apply(now, Event) -> effects` | pure |
//! | [`psched`] | what carries the scheduler's decisions out, and in which order, whatever the world is like | pure |
//! | [`agent`] | what apinit does: `apply(now, happening) -> actions` | pure |
//! | [`shepherd`] | what apshepherd does, PMI with it | pure |
//! | [`front`] | what aprun does | pure |
//! | [`torture`] | all of these together in a simulated cluster, tried against every fault | pure |
//! | [`simulate`] | recorded workloads, replayed in virtual time | pure |
//! | [`daemon`] | psched for real: gRPC services, store, clock, node links | |
//! | [`commands`] | aprun, apstat, apkill, cpr, psmgr, psview, snflv and `psched start` | |
//! | [`node`] | apinit and apshepherd for real: cgroups, exec, stdio, checkpoints | |
//! | [`os`] | the operating-system seam: the only `unsafe` | |
//! | [`logging`] | where diagnostics go | |
//! | [`rpc`] | generated protobuf, conversions, connecting, who is calling | |

pub mod commands;
pub mod daemon;
pub mod logging;
pub mod node;
pub mod os;
pub mod rpc;

pub use psched_pure::{
    agent, apteam, checkpoint, config, front, gang, machine, occupancy, placement, psched,
    scheduler, shepherd, variables,
};
pub use psched_worlds::{simulate, torture};
