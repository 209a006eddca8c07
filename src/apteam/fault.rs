//! Whose fault it is that a launch has failed.
//!
//! A launch is tried again on other nodes where its node is at fault, and a node that is at fault again and
//! again is drained. Users and their programs must not bring that about: with a program that only some hosts
//! have, a user could else drain a machine. So the host that knows why a launch failed says which of three
//! kinds it is:
//!
//! | kind | what has failed | tried again | counts against the node |
//! | --- | --- | --- | --- |
//! | [`Fault::User`] | the executable, the working directory, the user's limits | no | no |
//! | [`Fault::Busy`] | what a user can use up or kill: processes, memory, an apshepherd | yes | no |
//! | [`Fault::Node`] | what only the host and its administrators can put in order | yes | yes |
//!
//! A file that is missing on one host only is the user's fault too: whether the file is to be there the host
//! can't know, and a second try on a host that happens to have it would hide that others lack it.

use serde::{Deserialize, Serialize};

/// Whose fault it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Fault {
    /// The user's or the program's. Also what nobody has judged: a release before judges nothing.
    #[default]
    User,
    /// The host's for now; users may have caused it.
    Busy,
    /// The node's.
    Node,
}

impl Fault {
    /// Whether another node may do better.
    pub fn may_pass_elsewhere(self) -> bool {
        self != Fault::User
    }
}
