//! What a user is told of an application while it runs, as data: aprun makes the words.

use crate::apteam::ending::Cause;
use crate::machine::Nid;

/// Something that a front end tells its user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Its apshepherd saw this on a node.
    Seen {
        /// Where.
        nid: Nid,
        /// When, in nanoseconds since the epoch, by the clock of the node's host.
        at_ns: u64,
        /// What.
        what: Seen,
    },
    /// A process of it outlives its KILL, or is not where it belongs: which, in words.
    Process(String),
    /// psched has no record of it.
    NoRecord,
    /// -m counts for where it is placed, and its host can't limit its memory.
    MemoryNotLimited,
    /// The apinit of this node can't be reached: the output from there may not be complete.
    Unreachable(Nid),
    /// These hosts do not answer, and all others do: their output comes later.
    Silent {
        /// A node of each.
        nids: Vec<Nid>,
    },
    /// Its apshepherd is of a release that its apinit does not understand: why, and what would cure it.
    Unheard(String),
    /// It has been launched already: this launch is not taken.
    LaunchedAlready,
    /// There is no copy of a program on this node's host, which executes what is at its path, or
    /// else what the front end has copied into a folder that all hosts have.
    NotCopied {
        /// Where.
        nid: Nid,
        /// Why there is none.
        why: String,
    },
}

/// What an apshepherd sees of its PEs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// This ends the application: one of the causes that [`Cause::notice`] knows.
    Ends(Cause),
    /// What a PE asked of PMI was refused: in words that follow its name.
    Pmi { rank: u32, text: String },
    /// A fork failed: the application has as many processes and threads on the node as it may have.
    ProcessLimit(u64),
    /// A process outlives its KILL: which, in words.
    Process(String),
}
