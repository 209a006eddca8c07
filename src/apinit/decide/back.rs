//! What an application is found to be when it has come back from a checkpoint.

use crate::apteam::protocol::shepherd::Hello;
use crate::machine::Nid;

/// One that is there again. All of it is frozen, but for its shepherd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CameBack {
    /// What its shepherd said.
    pub hello: Hello,
    /// Bytes of its images.
    pub bytes: u64,
    /// What its clock is ahead of this host's, in nanoseconds.
    pub clock_ns: i64,
}

/// What has been brought back. All of it is frozen, but for its shepherd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Back {
    /// The nodes by which its shepherd and its groups are called, in the order of its places here.
    pub born: Vec<Nid>,
    /// What its shepherd said when it had been told its new key.
    pub hello: Hello,
    /// So much of its output, in bytes, was delivered to whoever ran it before.
    pub output: u64,
    /// What its clock is ahead of this host's, in nanoseconds.
    pub clock_ns: i64,
}
