//! Width, depth and shape of an application.

use serde::{Deserialize, Serialize};

/// Width, depth and shape: aprun's `-n`, `-d` and `-N`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// PEs, at least 1.
    pub width: u32,
    /// Processors for each PE, at least 1.
    pub depth: u32,
    /// PEs on each node; the last node of the application may have fewer. `None`: as the free
    /// space has it.
    pub per_node: Option<u32>,
}

impl Shape {
    /// width x depth.
    pub fn processors(&self) -> u64 {
        u64::from(self.width) * u64::from(self.depth)
    }
}
