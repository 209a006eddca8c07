//! A psched that this node is linked to and does not obey.

use crate::apteam::protocol::node::Welcome;

/// A psched that this node is linked to and does not obey.
#[derive(Debug)]
pub(super) struct Stranger {
    /// As it introduced itself.
    pub(super) welcome: Welcome,
    /// An administrator has had the node purged.
    pub(super) purging: bool,
    /// Why it is not obeyed, until it has been told that and what is here: not before it is known where those sit
    /// who are just being bound anew.
    pub(super) untold: Option<String>,
}
