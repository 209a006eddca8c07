//! Domains: parts of the machine that are scheduled apart, each by variables of its own.
//!
//! # Problem
//! On one machine short tests are to take turns every 100 ms, and long runs every second, with other levels
//! and other bounds. What one part does must not reach the other: no decision, no order of
//! turns, no node that is kept.
//!
//! # Approach
//! Regions name the domain that they are of. There is one line of nodes, one queue and one graph of who
//! competes with whom; everything that chooses goes through one domain:
//!
//! ```text
//!   nodes           0   1   2   3   4   5   6   7
//!   regions        [ ordinary      ][ tests      ]
//!   domains        [ application   ][ quick      ]
//!   application.time_slice 1s                      quick.time_slice 100ms, quick.max_resident 2
//! ```
//!
//! An application is of one domain, from its posting to its end: the first whose regions let it in and could
//! hold it. It is on record, so that a restart with another psched.yaml changes nothing for who runs.
//! All who sit on a node are of one domain: a node in use that is to go to another takes nobody new until it is
//! empty ([`super::reconfigure`]). So a component of the graph is of one domain too, and is planned by its rules.
//!
//! Memory that is taken, tickets, memory limits and ends know of no domains.

use super::{Now, Scheduler, Turns};
use crate::apteam::Apid;
use crate::apteam::posting::{Owner, Posting};
use crate::apteam::record::Apteam;
use crate::gang::levels::Levels;
use crate::machine::RegionSet;
use crate::psched::decide::domain::Domain;
use crate::psched::decide::domain::DomainId;
use crate::psched::decide::domain::at;
use crate::psched::decide::domain::of;
use std::collections::BTreeMap;
use std::sync::Arc;

impl Scheduler {
    /// Whether there are several domains.
    pub fn has_domains(&self) -> bool {
        self.domains.len() > 1
    }

    /// The domains by name, and by which variables each goes.
    pub fn domains(&self) -> impl Iterator<Item = (&str, &Turns)> {
        self.domains.iter().map(|domain| (&*domain.name, &domain.turns))
    }

    /// All domains.
    pub(super) fn domain_ids(&self) -> impl Iterator<Item = DomainId> + use<> {
        (0..self.domains.len()).map(DomainId)
    }

    /// What is known of a domain.
    pub(super) fn domain(&self, id: DomainId) -> &Domain {
        at(&self.domains, id)
    }

    /// The same, to be changed.
    pub(super) fn domain_mut(&mut self, id: DomainId) -> &mut Domain {
        let at = if id.0 < self.domains.len() { id.0 } else { 0 };
        &mut self.domains[at]
    }

    /// The domain of that name; the first where none has it any more.
    pub(super) fn domain_named(&self, name: &str) -> DomainId {
        match self.domains.len() {
            1 => DomainId(0),
            _ => {
                let named = self.domains.iter().position(|domain| &*domain.name == name);
                DomainId(named.unwrap_or(0))
            }
        }
    }

    /// The domain of an application; the first where it is not there any more.
    pub(super) fn domain_of(&self, apid: Apid) -> DomainId {
        self.teams.get(&apid).map_or(DomainId(0), |team| self.domain_named(&team.domain))
    }

    /// Whether the domain of an application is not there any more. It goes by the rules of the first then, and
    /// stays where it is: among those of another it would be a stranger as soon as its own is there again.
    pub(super) fn domain_has_gone(&self, team: &Apteam) -> bool {
        !team.domain.is_empty() && self.domains.iter().all(|domain| *domain.name != *team.domain)
    }

    /// Whether an application is of this domain.
    pub(super) fn is_of(&self, apid: Apid, domain: DomainId) -> bool {
        self.domains.len() == 1 || self.domain_of(apid) == domain
    }

    /// The name of the domain that some of these regions are of.
    pub(super) fn domain_reached(&self, regions: RegionSet) -> &str {
        let domain = self.domains.iter().find(|domain| domain.regions.meets(regions));
        &domain.unwrap_or(&self.domains[0]).name
    }

    /// The variables of an application's domain.
    pub(super) fn turns_of(&self, team: &Apteam) -> &Turns {
        &self.domain(self.domain_named(&team.domain)).turns
    }

    /// Who of a domain waits for a place, in order of arrival.
    pub(super) fn line_of(&self, domain: DomainId) -> impl Iterator<Item = Apid> {
        self.queue.iter().copied().filter(move |apid| self.is_of(*apid, domain))
    }

    /// The domain that a posting is of: the first whose regions let it in and could hold it; of several that
    /// could not, the first that lets it in.
    pub(super) fn domain_for(&self, posting: &Posting, owner: &Owner) -> DomainId {
        if !self.has_domains() {
            return DomainId(0);
        }
        let reach = |id: DomainId| self.reach_in(self.domain(id).regions, posting, owner);
        let mut open = self.domain_ids().map(|id| (id, reach(id)));
        let mut first = None;
        let holds = open.find(|(id, reach)| {
            let lets_in = !reach.passes.is_empty();
            first = first.or(lets_in.then_some(*id));
            lets_in && self.could_hold(posting, *reach)
        });
        holds.map(|(id, _)| id).or(first).unwrap_or(DomainId(0))
    }

    /// The domain of the first of its nodes that is in one.
    pub(super) fn domain_by_place(&self, team: &Apteam) -> Arc<str> {
        let domain = |nid| self.machine.domain_of(self.machine.nodes.get(&nid)?);
        let named = team.places.nids().find_map(domain).map(|name| self.domain_named(name));
        self.domain(named.unwrap_or(DomainId(0))).name.clone()
    }

    /// Who waits is of another domain where that is so now.
    pub(super) fn waiting_to_domains(&mut self) {
        let waits = self.teams.values().filter(|team| !team.state.holds_processors());
        let waits: Vec<Apid> = waits.map(|team| team.apid).collect();
        waits.into_iter().for_each(|apid| self.choose_domain(apid));
    }

    /// The same of one that has no place.
    pub(super) fn choose_domain(&mut self, apid: Apid) {
        let Some(team) = self.teams.get(&apid) else { return };
        let domain = self.domain(self.domain_for(&team.posting, &team.owner)).name.clone();
        if let Some(team) = self.teams.get_mut(&apid) {
            team.domain = domain;
        }
    }

    /// The variables or the machine are others: the domains are made anew of them. Whoever was of one that has
    /// gone takes what he has had with him to the one that he goes by now, and back.
    pub(super) fn domains_anew(&mut self, now: Now) {
        let new = of(&self.machine, &self.settings);
        let old = std::mem::replace(&mut self.domains, new);
        if !old.iter().map(|old| &old.name).eq(self.domains.iter().map(|new| &new.name)) {
            let teams = self.teams.values();
            let of: BTreeMap<Apid, DomainId> =
                teams.map(|team| (team.apid, self.domain_named(&team.domain))).collect();
            // Where the one has floors and the other has none, that is kept by others.
            let known_to = |apid: &Apid| self.schedule.levels.with(*apid).map(Levels::is_told);
            let other = |(apid, id): &(&Apid, &DomainId)| {
                known_to(apid).is_some_and(|told| told != self.domain(**id).turns.floors)
            };
            let others: Vec<Apid> = of.iter().filter(other).map(|(apid, _)| *apid).collect();
            for apid in others {
                let had = self.schedule.attained(apid, now.mono_ns);
                self.schedule.resume(apid, had, now.mono_ns);
                if let Some(levels) = self.schedule.levels.with_mut(apid) {
                    levels.set_attained(apid, had, now.mono_ns);
                }
            }
            let domain = |apid| of.get(&apid).copied().unwrap_or(DomainId(0));
            self.schedule.levels.dealt(&self.domains, domain, now.mono_ns);
            self.schedule.dues.clear_parts(now.mono_ns);
        }
        for domain in &mut self.domains {
            if let Some(old) = old.iter().find(|old| old.name == domain.name) {
                (domain.wanted, domain.due_ns) = (old.wanted, old.due_ns);
            }
        }
    }

    /// Whether what each application has had is known to its own domain, and to no other.
    #[cfg(test)]
    pub(super) fn levels_are_of_their_domains(&self) -> bool {
        self.teams.keys().all(|apid| {
            let own = self.domain_of(*apid);
            let known = |id: &DomainId| self.schedule.levels.of(*id).contains(*apid);
            self.domain_ids().filter(known).all(|id| id == own)
        })
    }
}
