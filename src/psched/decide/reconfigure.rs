//! Another machine than before: nodes that come, go and change in the configuration.
//!
//! A node that is taken out of psched.yaml while applications are on it is not gone: they run. It is
//! *retired*: nothing new is placed there, what is there keeps its processors, and its apinit is
//! heard. The same holds for a node that is to have fewer processors than are in use. When what is configured
//! holds all that runs there, that is in force: the node is smaller, or gone. (One whose apinit offers configured
//! nodes as well stays until that apinit is started without it, or the configuration is read again: that apinit
//! is refused then, and with it what runs on its other nodes is not heard.)
//!
//! A node in use whose region is of another domain from now on is *leaving*: it takes nobody new until it is
//! empty, so that all who sit on a node are of one domain, and goes over then.
//!
//! An apinit whose nodes have changed is hung up on; it calls again and is told of its new ones. Flavors
//! are not told to it: where only they have changed, it hears nothing.
//!
//! What is in force is made in one place, [`Scheduler::machine_anew`], of what is configured, of the
//! flavors that administrators have ordered, and of what is in use.

use super::retired::{leaving, with_retired};
use super::unheard::Unheard;
use super::{Effect, LinkId, Now, Scheduler, domain, flavor_orders};
use crate::apteam::Apid;
use crate::apteam::place::PlacementList;
use crate::machine::node_memory::Divisions;
use crate::machine::{Machine, Nid, format_nids};
use crate::occupancy::Occupancy;
use std::collections::{BTreeMap, BTreeSet};

/// What the apinit of a node is told of it, and where it is.
fn told<'a>(
    machine: &'a Machine,
    firsts: &BTreeMap<Nid, u32>,
    nid: Nid,
) -> Option<(u32, &'a [u32], u64, &'a str, u32)> {
    let node = machine.nodes.get(&nid)?;
    let first = firsts.get(&nid).copied().unwrap_or(0);
    Some((node.processors, &node.cpus, node.memory, &node.host, first))
}

impl Scheduler {
    pub(super) fn reconfigured(&mut self, now: Now, machine: Machine, out: &mut Vec<Effect>) {
        self.configured = machine;
        // Who was refused calls again, unless its certificate was revoked.
        self.refused.retain(|_, why| matches!(why, Unheard::Revoked(_)));
        self.machine_anew(now, out);
    }

    /// Nodes of an application that it does not hold any more may go over to another domain, or be
    /// what is configured.
    pub(super) fn note_left(&mut self, left: &PlacementList) {
        let empty = |nid: Nid| self.leaving.contains(&nid) && self.occupancy.used(nid) == 0;
        let changes = |nid: Nid| self.retired.contains(&nid) || empty(nid);
        let none = self.leaving.is_empty() && self.retired.is_empty();
        if !none && left.nids().any(changes) {
            self.goes_over = true;
        }
    }

    /// Whether one of the retired nodes may be what is configured: all that is in use there is configured. (To
    /// make the machine anew takes as long as it has nodes.)
    fn may_be_as_configured(&self) -> bool {
        let fits = |nid: Nid, processors: u32| {
            let holders = self.occupancy.holders(nid);
            let teams = holders.iter().filter_map(|apid| self.teams.get(apid));
            let mut holds = teams.map(|team| team.holds());
            holds.all(|holds| {
                let mut there = holds.0.iter().filter(|place| place.nid == nid);
                there.all(|place| place.processors.iter().all(|number| *number < processors))
            })
        };
        self.retired.iter().any(|nid| match self.configured.nodes.get(nid) {
            Some(node) => fits(*nid, node.processors),
            None => self.occupancy.used(*nid) == 0,
        })
    }

    /// Whether an apinit that offers configured nodes would be refused if all that is empty and not
    /// configured were gone.
    fn would_refuse(&self) -> bool {
        let configured = |nid: &Nid| self.configured.nodes.contains_key(nid);
        let gone = self.retired.iter().filter(|nid| !configured(nid));
        let mut links = gone
            .filter(|nid| self.occupancy.used(**nid) == 0)
            .filter_map(|nid| self.links.get(self.offered.get(nid)?));
        links.any(|link| link.hello.nids.iter().any(configured))
    }

    /// The same, at the end of an event.
    pub(super) fn go_over(&mut self, now: Now, out: &mut Vec<Effect>) {
        if std::mem::take(&mut self.goes_over) {
            if self.may_be_as_configured() && !self.would_refuse() {
                self.machine_anew(now, out);
            }
            let leaving = leaving(&self.machine, self.teams.values());
            let before = std::mem::replace(&mut self.leaving, leaving);
            let changed: Vec<Nid> = before.symmetric_difference(&self.leaving).copied().collect();
            changed.into_iter().for_each(|nid| self.open_or_not(nid));
            self.want_decisions();
        }
    }

    /// Puts in force what is configured and ordered now.
    pub(super) fn machine_anew(&mut self, now: Now, out: &mut Vec<Effect>) {
        self.divisions = Divisions::default();
        let (machine, kept) = flavor_orders::in_force(self.configured.clone(), &self.flavors);
        out.extend(flavor_orders::warning(&kept));
        let machine = self.with_found(machine);
        let (machine, retired) = with_retired(machine, Some(&self.machine), self.teams.values());
        let retired_before = std::mem::replace(&mut self.retired, retired);
        if machine == self.machine {
            return;
        }
        let old = std::mem::replace(&mut self.machine, machine);
        let firsts = self.machine.first_processors();
        let firsts_before = std::mem::replace(&mut self.first_processors, firsts);
        let changed = |nid: Nid| {
            told(&old, &firsts_before, nid) != told(&self.machine, &self.first_processors, nid)
                || retired_before.contains(&nid) != self.retired.contains(&nid)
        };
        let stale: BTreeSet<LinkId> =
            self.offered.iter().filter(|(n, _)| changed(**n)).map(|(_, link)| *link).collect();
        self.domains_anew(now);
        self.occupancy = Occupancy::new(&self.machine, domain::rules(&self.domains));
        self.measured.keep(|nid| self.machine.nodes.contains_key(&nid));
        for team in self.teams.values().filter(|t| t.state.holds_processors()) {
            if let Err(conflict) = self.occupancy.take_found(team.apid, &team.holds(), team.into())
            {
                // They were its own a moment ago: a fault of ours.
                let text = format!("application {} was not placed again: {conflict}", team.apid);
                out.push(Effect::Fault(text));
            }
        }
        self.learn_anew(now);
        self.waiting_to_domains();
        self.leaving = leaving(&self.machine, self.teams.values());
        self.turns_anew(now);
        let measured: Vec<Apid> = self.teams.keys().copied().collect();
        for apid in measured {
            self.count_memory(now, apid);
        }
        let offered: Vec<Nid> = self.offered.keys().copied().collect();
        for nid in offered {
            self.open_or_not(nid);
        }
        let in_use = |nid: &Nid| self.occupancy.used(*nid) > 0;
        let moved = self.machine.nodes.keys().copied().filter(in_use);
        let moved: Vec<Nid> = moved
            .filter(|n| firsts_before.get(n) != self.first_processors.get(n))
            .filter(|n| old.nodes.get(n).is_some_and(|node| node.cpus.is_empty()))
            .collect();
        if !moved.is_empty() {
            out.push(Effect::Warn(format!(
                "NIDs {} have other real processors now, and applications still run on the former \
                 ones: list cpus for all nodes of a host to keep applications apart",
                format_nids(moved)
            )));
        }
        for link in stale {
            self.link_closed(now, link, out);
            out.push(Effect::CloseLink { link });
        }
        self.want_decisions();
    }
}
