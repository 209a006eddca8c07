//! What administrators change about a live machine, and what is kept of it.

use crate::machine::{Flavors, Nid};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Who has said something, and when.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct By {
    /// His number.
    pub uid: u32,
    /// His name, for display; empty: he has none.
    pub name: String,
    /// When, in nanoseconds since the epoch.
    pub at_ns: u64,
}

impl fmt::Display for By {
    /// His name, or his number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.as_str() {
            "" => write!(f, "user {}", self.uid),
            name => f.write_str(name),
        }
    }
}

/// A line of the log of changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Who, and when.
    pub by: By,
    /// Of what: a variable, nodes, an application.
    pub what: String,
    /// What was so.
    pub before: String,
    /// What is so since.
    pub after: String,
}

/// How an administrator has closed a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Closed {
    /// Nothing new goes there; what is there stays.
    Drained,
    /// Its host is known to be gone, and with it what was there.
    Down,
}

impl Closed {
    /// The name on screens and in the store.
    pub fn name(self) -> &'static str {
        match self {
            Closed::Drained => "drained",
            Closed::Down => "down",
        }
    }

    /// The one of this name.
    pub fn parse(name: &str) -> Option<Closed> {
        [Closed::Drained, Closed::Down].into_iter().find(|closed| closed.name() == name)
    }
}

/// A node that an administrator has closed: it takes nothing new until he resumes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeOrder {
    /// How.
    pub closed: Closed,
    /// Why, in his words; empty: he gave no reason.
    pub reason: String,
    /// Who, and when.
    pub by: By,
}

impl fmt::Display for NodeOrder {
    /// `drained by alice: memory errors`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let closed = match self.closed {
            Closed::Drained => "drained",
            Closed::Down => "declared down",
        };
        write!(f, "{closed} by {}", self.by)?;
        if self.reason.is_empty() { Ok(()) } else { write!(f, ": {}", self.reason) }
    }
}

/// Flavors that an administrator has given a node: they are in force in place of those of psched.yaml
/// until he takes them back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlavorOrder {
    /// All that it has, at least one.
    pub flavors: Flavors,
    /// Who, and when.
    pub by: By,
}

impl fmt::Display for FlavorOrder {
    /// `su os, set by alice`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, set by {}", self.flavors, self.by)
    }
}

/// What administrators have said of nodes, and what holds until they take it back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Orders {
    /// Nodes that are closed.
    pub closed: BTreeMap<Nid, NodeOrder>,
    /// Nodes with other flavors than psched.yaml gives them.
    pub flavors: BTreeMap<Nid, FlavorOrder>,
}
