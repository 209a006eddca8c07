//! apinit and apshepherd for real: cgroups, exec, stdio.

pub mod apinit;
pub mod frames;
pub mod groups;
pub mod shepherd;
mod stuck;
pub mod yields;
