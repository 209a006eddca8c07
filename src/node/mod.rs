//! What apinit, apshepherd and front ends have in common: control groups, checkpoints, frames, what a file is.

pub mod checkpoint;
pub mod connection_owner;
pub mod file_identity;
pub mod frames;
pub mod groups;
pub(crate) mod stuck;
pub mod tracer;
pub mod yields;
