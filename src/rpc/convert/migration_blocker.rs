//! Why an apinit can't move an application.

use super::codec::{NodeId, Text};
use super::table::variants;
use crate::apteam::migration_blocker::MigrationBlocker;

variants! {
    MigrationBlocker = MigrationBlocker.blocker: migration_blocker::Blocker;
    SeveralHosts,
    ProcessorsNamed,
    NotGoing,
    Ending,
    NotHere,
    AnotherMove,
    Checkpointing,
    MemoryUnderWay,
    NotStopped,
    NotObeyed,
    StrangeNode(strange_node: NodeId),
    OtherShape,
    NotBound(not_bound: Text),
}
