//! The threads of one part, from old processors to new ones.

use crate::machine::Nid;

/// The threads of one node's part: from which real processor to which. Those of a part that is not bound
/// stay as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rebind {
    /// The node on which they were launched: their group has its name.
    pub born: Nid,
    /// Each old processor with its new one.
    pub cpus: Vec<(u32, u32)>,
}
