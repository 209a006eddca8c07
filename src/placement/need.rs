//! What a posting needs of nodes.

use crate::occupancy::Terms;

/// What a posting needs of nodes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Need {
    /// PEs.
    pub width: u64,
    /// Of each node.
    pub terms: Terms,
}
