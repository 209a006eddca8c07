//! A move that is under way.

use crate::apteam::protocol::node::MoveCommand;

/// A move that is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Moving {
    pub(super) order: MoveCommand,
    /// Since when it stands for it.
    pub(super) lifted_ns: Option<u64>,
}
