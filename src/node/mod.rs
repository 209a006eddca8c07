//! apinit and apshepherd for real: cgroups, exec, stdio, checkpoints.

pub mod apinit;
pub mod checkpoint;
pub mod frames;
pub mod groups;
pub mod shepherd;
mod stuck;
pub mod yields;
