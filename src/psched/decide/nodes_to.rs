//! What is to become of nodes, by the word of an administrator.

use crate::apteam::change::Closed;
use serde::{Deserialize, Serialize};

/// What is to become of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodesTo {
    /// Closed, or gone.
    Close(Closed),
    /// Open again.
    Resume,
}

impl NodesTo {
    /// The verb of psmgr.
    pub(super) fn verb(self) -> &'static str {
        match self {
            NodesTo::Close(Closed::Drained) => "drain",
            NodesTo::Close(Closed::Down) => "down",
            NodesTo::Resume => "resume",
        }
    }
}
