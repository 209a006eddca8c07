//! What apinit and apshepherd have in common: control groups, checkpoints, frames.

pub mod checkpoint;
pub mod frames;
pub mod groups;
pub(crate) mod stuck;
pub mod tracer;
pub mod yields;
