//! What is said of a node beside its state: as data, and in words for a reader.

use super::{AppName, Sees};
use crate::apteam::Key;
use crate::machine::{Nid, format_nids};
use std::fmt;

/// One note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeNote {
    /// What names no application.
    Said(String),
    /// An order for it, in words.
    Ordered {
        /// These.
        text: String,
        /// When it was given, in nanoseconds since the epoch.
        at_ns: u64,
    },
    /// What its apinit says of an application.
    Of(Key, AppName, String),
    /// What its apinit says of processes that outlive their KILL.
    Stuck(AppName, String),
    /// It is foreign.
    Foreign(ForeignNote),
}

/// An apinit that obeys another psched, and the applications that it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignNote {
    /// Why it is foreign.
    pub why: String,
    /// Its nodes.
    pub nids: Vec<Nid>,
    /// Its applications.
    pub runs: Vec<AppName>,
    /// They are being ended (psmgr purge).
    pub purging: bool,
}

impl NodeNote {
    /// In words, for a reader who may know of the applications of some users.
    pub fn words(&self, sees: Sees<'_>) -> String {
        match self {
            NodeNote::Said(text) | NodeNote::Ordered { text, .. } => text.clone(),
            NodeNote::Of(key, name, text) => {
                format!("application {}: {text}", name.or_another(sees, key))
            }
            NodeNote::Stuck(name, said) => {
                let name = name.or_another(sees, name.apid);
                format!("application {name} is being ended, and {said}")
            }
            NodeNote::Foreign(foreign) => foreign.words(sees),
        }
    }

    /// When it came to be so, in nanoseconds since the epoch, if that is known.
    pub fn at_ns(&self) -> Option<u64> {
        match self {
            NodeNote::Ordered { at_ns, .. } => Some(*at_ns),
            NodeNote::Said(_) | NodeNote::Of(..) | NodeNote::Stuck(..) | NodeNote::Foreign(_) => {
                None
            }
        }
    }
}

impl fmt::Display for NodeNote {
    /// For a reader who sees everything.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words(&super::sees_all))
    }
}

impl ForeignNote {
    /// Why it is foreign, what runs there, and the cure.
    pub fn words(&self, sees: Sees<'_>) -> String {
        let names = name_list(self.runs.iter().map(|name| name.words(sees)).collect());
        let list = format_nids(self.nids.iter().copied());
        let why = &self.why;
        if self.purging {
            format!("foreign, being purged of {names}")
        } else if names.is_empty() {
            format!("foreign: {why}; nothing runs there: psmgr adopt {list} takes it over")
        } else {
            format!(
                "foreign: {why}; it runs {names}: psmgr adopt {list} takes it over with them, psmgr purge {list} \
                 ends them"
            )
        }
    }
}

/// Applications that a list names before it counts the others.
const NAMED_MAX: usize = 16;

/// `application 12 of alice`, `applications 12 of alice, 13 of bob and 4 others`; empty of none.
pub fn name_list(mut names: Vec<String>) -> String {
    names.dedup();
    let others = names.len().saturating_sub(NAMED_MAX);
    names.truncate(NAMED_MAX);
    let noun = if names.len() + others == 1 { "application" } else { "applications" };
    match (names.is_empty(), others) {
        (true, _) => String::new(),
        (false, 0) => format!("{noun} {}", names.join(", ")),
        (false, n) => format!("{noun} {} and {n} others", names.join(", ")),
    }
}
