//! Foreign nodes, and what is to be done with them.

use super::event::{LinkId, Manage, ReplyId};
use crate::apteam::Apid;
use crate::apteam::change::By;
use crate::apteam::protocol::node::{Foreign, PlaceCommand};
use crate::machine::Nid;
use crate::psched::reason::{AppName, ForeignNote, sees_all};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A foreign node, or several of one apinit.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Stranger {
    /// Its applications count up: each posting looks among them for a number, and there may be very
    /// many.
    pub(super) foreign: Foreign,
    /// What it has been told to do.
    pub(super) told: Option<Manage>,
}

impl Stranger {
    pub(super) fn new(mut foreign: Foreign) -> Stranger {
        foreign.applications.sort_by_key(|application| application.place.key);
        Stranger { foreign, told: None }
    }

    /// Whether it has an application of this number.
    pub(super) fn has(&self, apid: Apid) -> bool {
        let all = &self.foreign.applications;
        all.binary_search_by_key(&apid, |application| application.place.key.apid).is_ok()
    }

    /// What is said of the nodes of its apinit.
    pub(super) fn note(&self, nids: &[Nid]) -> ForeignNote {
        ForeignNote {
            why: self.foreign.why.clone(),
            nids: nids.to_vec(),
            runs: self.foreign.applications.iter().map(|a| app_name(&a.place)).collect(),
            purging: self.told == Some(Manage::Purge),
        }
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.foreign.applications.iter().map(|a| name(&a.place)).collect()
    }
}

/// An answer that waits until all of these nodes have an inventory for us.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Managed {
    pub(super) reply: ReplyId,
    pub(super) what: Manage,
    pub(super) waits: BTreeSet<LinkId>,
    pub(super) done: Vec<String>,
}

/// What an administrator wants.
pub(super) struct Order {
    /// Where the answer goes; none: psched does it by itself.
    pub reply: Option<ReplyId>,
    pub what: Manage,
    pub nids: BTreeSet<Nid>,
    pub by: By,
    pub administrator: bool,
    pub used: BTreeSet<Apid>,
}

impl Order {
    /// Who does it, as the log has it.
    pub(super) fn actor(&self) -> String {
        match self.reply {
            Some(_) => format!("user {}", self.by.uid),
            None => "psched".into(),
        }
    }
}

/// How an application of another psched is named.
pub(super) fn app_name(place: &PlaceCommand) -> AppName {
    let owner = &place.owner;
    AppName { apid: place.key.apid, owner: Some((owner.uid, owner.name.clone())) }
}

/// `12 of alice`.
pub(super) fn name(place: &PlaceCommand) -> String {
    app_name(place).words(&sees_all)
}
