//! What is kept: one record for each kind of thing that psched's successor must know.

use super::set_value::SetValue;
use super::shares_record::SharesRecord;
use crate::apteam::Apid;
use crate::apteam::change::{Change, FlavorOrder, NodeOrder};
use crate::apteam::record::Apteam;
use crate::machine::Nid;
use serde::Serialize;

/// One thing to be kept.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Record {
    /// A new application, that was posted just now: where it can't be kept it is refused.
    Posted(Box<Apteam>),
    /// A new application, that another psched has started.
    Adopted(Box<Apteam>),
    /// A later state of a known application; no effect on an unknown one. Lazy: its node would
    /// report the state again.
    Update { team: Box<Apteam>, lazy: bool },
    /// A line of its event log.
    Log { apid: Apid, at_ns: u64, name: &'static str, detail: String },
    /// Nodes, and which boot of their host they were last seen in.
    Boot(Vec<Nid>, String),
    /// Nodes that an administrator has closed, and how; none: he has opened them again.
    Nodes(Vec<Nid>, Option<Box<NodeOrder>>),
    /// Nodes that an administrator has given flavors, and which; none: he has taken that back.
    Flavors(Vec<Nid>, Option<Box<FlavorOrder>>),
    /// A variable that psmgr has set; none: it has taken that back.
    Variable { name: String, set: Option<SetValue> },
    /// A line of the log of changes.
    Change(Change),
    /// What these users or accounts have had.
    Shares(SharesRecord),
}

impl Record {
    /// Whether the store may delay the record until the next one that is not lazy, at most for
    /// [`LAZY_TIME`](super::outbox::LAZY_TIME).
    pub fn is_lazy(&self) -> bool {
        matches!(self, Record::Update { lazy: true, .. } | Record::Log { .. } | Record::Shares(_))
    }

    /// The state of an application that this is, if it is one.
    pub fn team(&self) -> Option<&Apteam> {
        match self {
            Record::Posted(team) | Record::Adopted(team) | Record::Update { team, .. } => {
                Some(team)
            }
            _ => None,
        }
    }

    /// Takes the state from a later record of the same application. A new application stays new.
    pub(super) fn update(&mut self, later: Record) {
        match (self, later) {
            (
                Record::Posted(of) | Record::Adopted(of) | Record::Update { team: of, .. },
                Record::Posted(team) | Record::Adopted(team) | Record::Update { team, .. },
            ) => *of = team,
            (of, later) => *of = later,
        }
    }
}
