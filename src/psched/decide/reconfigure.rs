//! Another machine than before: nodes that come, go and change in the configuration.
//!
//! A node that is taken out of psched.yaml while applications are on it is not gone: they run. It is
//! *retired*: nothing new is placed there, what is there keeps its processors, and its apinit is
//! heard. With the next look at the configuration after its last application has ended, it is gone.
//! (Not before: an apinit that offers it beside others is refused then, and what runs on these is not
//! heard.)
//!
//! A node that is to have fewer processors than are in use is retired as well. It gets the configured
//! number of processors when all such nodes of its apinit are empty.
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

    /// Nodes of an application that it does not hold any more may go over to another domain, or have as
    /// many processors as are configured.
    pub(super) fn note_left(&mut self, left: &PlacementList) {
        let changes = |nid: Nid| self.leaving.contains(&nid) || self.retired.contains(&nid);
        let none = self.leaving.is_empty() && self.retired.is_empty();
        if !none && left.nids().any(|nid| changes(nid) && self.occupancy.used(nid) == 0) {
            self.goes_over = true;
        }
    }

    /// The retired nodes that stay so for now: all that are not configured, until that is read again; and those
    /// of an apinit, which is hung up on when they change, until all of them are empty.
    fn still_retired(&self) -> BTreeSet<Nid> {
        let smaller = |nid: &&Nid| self.configured.nodes.contains_key(nid);
        let in_use = self.retired.iter().filter(smaller).filter(|n| self.occupancy.used(**n) > 0);
        let links: BTreeSet<Option<&LinkId>> = in_use.map(|nid| self.offered.get(nid)).collect();
        let stays = |nid: &&Nid| !smaller(nid) || links.contains(&self.offered.get(nid));
        self.retired.iter().filter(stays).copied().collect()
    }

    /// The same, at the end of an event.
    pub(super) fn go_over(&mut self, now: Now, out: &mut Vec<Effect>) {
        if std::mem::take(&mut self.goes_over) {
            let still_retired = self.still_retired();
            if still_retired.len() < self.retired.len() {
                self.machine_with(now, &still_retired, out);
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
        self.machine_with(now, &BTreeSet::new(), out);
    }

    /// As [`Scheduler::machine_anew`], with these nodes still retired.
    fn machine_with(&mut self, now: Now, still: &BTreeSet<Nid>, out: &mut Vec<Effect>) {
        self.divisions = Divisions::default();
        let (machine, kept) = flavor_orders::in_force(self.configured.clone(), &self.flavors);
        out.extend(flavor_orders::warning(&kept));
        let machine = self.with_found(machine);
        let (mut machine, mut retired) =
            with_retired(machine, Some(&self.machine), self.teams.values());
        let still = still.iter().filter_map(|nid| Some((*nid, self.machine.nodes.get(nid)?)));
        for (nid, node) in still {
            machine.nodes.insert(nid, node.clone());
            retired.insert(nid);
        }
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
