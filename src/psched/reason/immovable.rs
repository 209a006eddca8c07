//! Why an application stays where it is, as psched knows.

use crate::apteam::migration_blocker::MigrationBlocker;
use std::fmt;

/// Why psched moves an application nowhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Immovable {
    /// It has no place.
    NoPlace,
    /// It has a place, and does not run there yet.
    NotRunning,
    /// It is ending.
    Ending,
    /// It is being moved.
    Moving,
    /// Its memory is in swap or in a checkpoint.
    MemoryOut,
    /// Its user has chosen its nodes.
    NodesChosen,
    /// Its PEs share processors.
    ProcessorsShared,
    /// Its nodes are not contiguous, or its parts differ in depth.
    InPieces,
    /// psched.yaml has its domain no more.
    NoDomain,
    /// It sits on nodes of other regions than the one that is compacted, too.
    OtherRegions,
    /// Its apinit has not said whether it can be moved.
    NotSaid,
    /// Its apinit says this.
    OfNode(MigrationBlocker),
}

impl fmt::Display for Immovable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Immovable::NoPlace => "it has no place yet",
            Immovable::NotRunning => "it does not run yet",
            Immovable::Ending => "it is ending",
            Immovable::Moving => "it is being moved",
            Immovable::MemoryOut => "its memory is rolled out",
            Immovable::NodesChosen => "its nodes were chosen (-L, -E)",
            Immovable::ProcessorsShared => "its PEs share processors (--oversubscribe)",
            Immovable::InPieces => {
                "its nodes are not contiguous (--flexible), or its parts \
                                    differ in -d"
            }
            Immovable::NoDomain => "its domain is no longer in psched.yaml",
            Immovable::OtherRegions => "it is on nodes of other regions too",
            Immovable::NotSaid => "its apinit has not said that it can be moved",
            Immovable::OfNode(blocker) => return blocker.fmt(f),
        })
    }
}
