//! What a posting of `cpr -r` comes from.

use crate::apteam::protocol::node::Restart;
use crate::apteam::{Apid, Incarnation};
use serde::{Deserialize, Serialize};

/// What a posting of `cpr -r` comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Origin {
    /// A checkpoint of an application that ran: its processes are restored.
    Running(Restart),
    /// A checkpoint of one that waited for a place, or whose program has saved itself: it waits, and is executed
    /// when it has a place.
    Waiting {
        /// The number that it had.
        apid: Apid,
        /// The number stands for nothing else by the records: this very posting had it, of this store, has
        /// ended, and never ran. Its last incarnation then; what follows has a higher one, so that a late
        /// word of a node about the first is known as that.
        free: Option<Incarnation>,
    },
}

impl Origin {
    /// The number that it had.
    pub fn apid(&self) -> Apid {
        match self {
            Origin::Running(restart) => restart.from.apid,
            Origin::Waiting { apid, .. } => *apid,
        }
    }
}
