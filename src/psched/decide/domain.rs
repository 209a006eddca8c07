//! A domain, its rules, and the levels of its gangs.

use super::settings::{Settings, Turns};
use crate::apteam::Apid;
use crate::apteam::record::Apteam;
use crate::gang::levels::Levels;
use crate::gang::shares::Holder;
use crate::machine::{Machine, RegionSet};
use crate::occupancy::RuleBook;
use crate::variables::ShareBy;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// A domain, by its place among those of the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct DomainId(pub(super) usize);

/// A domain and its rules.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Domain {
    /// Its name.
    pub name: Arc<str>,
    /// Its regions.
    pub regions: RegionSet,
    /// Processors of its nodes for applications.
    pub processors: u64,
    /// Its variables.
    pub turns: Turns,
    /// There is something to decide.
    pub wanted: bool,
    /// When a user whose applications run has had as much as one whose applications wait, and which
    /// of those leads then, if it takes turns.
    pub overtakes: Option<(u64, Option<Apid>)>,
    /// Some stand for the sake of a fuller machine.
    pub fuller: bool,
    /// When it is looked again who is to run, or to be moved, if nothing happens.
    pub due_ns: Option<u64>,
}

impl Domain {
    /// Whether those who wait have a floor.
    pub fn has_floors(&self) -> bool {
        self.turns.floors
    }

    /// To whose share the time of an application counts; none: there are no shares.
    pub fn holder(&self, team: &Apteam) -> Option<Holder> {
        self.has_floors().then(|| self.turns.holder(team)).flatten()
    }

    /// Whether what users have had decides who comes first.
    pub fn has_shares(&self) -> bool {
        self.has_floors() && self.turns.share_by != ShareBy::Application
    }
}

/// Those of a machine; at least one.
pub(super) fn of(machine: &Machine, settings: &Settings) -> Vec<Domain> {
    let domain = |domain: crate::machine::Domain| Domain {
        turns: settings.turns_of(&domain.name).clone(),
        name: domain.name.into(),
        regions: domain.regions,
        processors: domain.processors,
        wanted: false,
        overtakes: None,
        fuller: false,
        due_ns: None,
    };
    machine.domains().into_iter().map(domain).collect()
}

/// One of them: where only this part of a scheduler is to be borrowed.
pub(super) fn at(domains: &[Domain], id: DomainId) -> &Domain {
    domains.get(id.0).unwrap_or(&domains[0])
}

/// How many may sit where, in each.
pub(super) fn rules(domains: &[Domain]) -> RuleBook {
    RuleBook::new(domains.iter().map(|domain| (domain.regions, domain.turns.rules())).collect())
}

/// What the gangs of each domain have had.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct LevelsOf(Vec<Levels>);

impl LevelsOf {
    /// Nothing has been had in these domains.
    pub fn new(domains: &[Domain]) -> LevelsOf {
        let of = |domain: &Domain| Levels::new(domain.turns.floors);
        LevelsOf(domains.iter().map(of).collect())
    }

    /// Those of a domain.
    pub fn of(&self, domain: DomainId) -> &Levels {
        self.0.get(domain.0).unwrap_or(&self.0[0])
    }

    /// The same, to be changed.
    pub fn of_mut(&mut self, domain: DomainId) -> &mut Levels {
        let at = if domain.0 < self.0.len() { domain.0 } else { 0 };
        &mut self.0[at]
    }

    /// Those that know a gang; none: it has not taken turns.
    pub fn with(&self, apid: Apid) -> Option<&Levels> {
        self.0.iter().find(|levels| levels.contains(apid))
    }

    /// The same, to be changed.
    pub fn with_mut(&mut self, apid: Apid) -> Option<&mut Levels> {
        self.0.iter_mut().find(|levels| levels.contains(apid))
    }

    /// A gang has had so much more, a plan with floors says.
    pub fn credit(&mut self, apid: Apid, time: Duration) {
        if let Some(levels) = self.with_mut(apid) {
            levels.credit(apid, time);
        }
    }

    /// For so many other domains: each gang's goes to the one that it is of now.
    pub(super) fn dealt(&mut self, domains: &[Domain], of: impl Fn(Apid) -> DomainId, now_ns: u64) {
        let before = std::mem::replace(self, LevelsOf::new(domains));
        for levels in before.0 {
            levels.deal(|apid| of(apid).0, &mut self.0, now_ns);
        }
    }
}
