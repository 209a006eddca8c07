//! Why moves can't be made, as data and in words.

use crate::apteam::Apid;
use crate::apteam::posting::Explanation;
use crate::machine::Nid;
use crate::placement::explain::{NAMED_MAX, named};

/// Why moves can't be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Moves wait for each other, and there is no place to go meanwhile.
    Circle {
        /// The applications, by number.
        apids: Vec<Apid>,
    },
    /// A place is held by an application that stays, or on a node that is closed.
    Blocked {
        /// The application that is to go there.
        apid: Apid,
        /// The first such node.
        nid: Nid,
    },
}

impl Refusal {
    /// In words; `name` names applications.
    pub fn explain(&self, name: impl Fn(Apid) -> String) -> Explanation {
        match self {
            Refusal::Circle { apids } => Explanation {
                obstacle: "moves would wait for each other".into(),
                holder: format!("{} hold each other's places", named(apids, NAMED_MAX, name)),
                cure: "they can move when one of them has a free place in between".into(),
            },
            Refusal::Blocked { apid, nid } => Explanation {
                obstacle: format!("{} can't move to NID {nid}", name(*apid)),
                holder: String::new(),
                cure: "it can move when the applications there have ended and the node is open"
                    .into(),
            },
        }
    }
}
