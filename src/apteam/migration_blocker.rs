//! What keeps an application where it is, as its apinit knows.

use crate::machine::Nid;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Why an apinit can't move an application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MigrationBlocker {
    /// It is on several hosts.
    SeveralHosts,
    /// The processors of its PEs were named.
    ProcessorsNamed,
    /// Its PEs have not been let go.
    NotGoing,
    /// It is ending.
    Ending,
    /// The apinit does not have it.
    NotHere,
    /// The apinit is moving it by another order.
    AnotherMove,
    /// A checkpoint of it is being made.
    Checkpointing,
    /// Its memory is on the way out or in.
    MemoryUnderWay,
    /// It can't be stopped.
    NotStopped,
    /// The psched that has ordered the move is not obeyed.
    NotObeyed,
    /// This node is not one of the apinit's.
    StrangeNode(Nid),
    /// It would have other numbers of PEs or processors on its nodes.
    OtherShape,
    /// Its threads can't be bound to other processors: what the host says.
    NotBound(String),
}

impl fmt::Display for MigrationBlocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MigrationBlocker::SeveralHosts => "it is on several hosts",
            MigrationBlocker::ProcessorsNamed => "its processors were named (-cc)",
            MigrationBlocker::NotGoing => "its PEs have not started yet",
            MigrationBlocker::Ending => "it is ending",
            MigrationBlocker::NotHere => "it is no longer here",
            MigrationBlocker::AnotherMove => "another move of it is under way",
            MigrationBlocker::Checkpointing => "it is being checkpointed",
            MigrationBlocker::MemoryUnderWay => "its memory is being taken out or brought in",
            MigrationBlocker::NotStopped => "it can't be frozen (apstat -n shows why)",
            MigrationBlocker::NotObeyed => "its apinit no longer obeys this psched",
            MigrationBlocker::StrangeNode(nid) => {
                return write!(f, "NID {nid} belongs to another apinit");
            }
            MigrationBlocker::OtherShape => "its shape does not fit there",
            MigrationBlocker::NotBound(text) => text,
        })
    }
}
