//! Flavors that an administrator has given nodes: `snflv`.
//!
//! # Problem
//! What a node is for stands in psched.yaml. A machine that lives changes: a login node is lent to
//! applications over night, an application node serves files for a week. That is to be done without an
//! edit of the file, at once and for as long as it is wanted, also through a restart; and no order may
//! leave the machine without a node for logins, for the system or for applications.
//!
//! # Approach
//! An order names all flavors of a node. It is on record, and stands before psched.yaml until it is taken
//! back. What is in force is made of both by [`in_force`], and obeyed as a new psched.yaml would be
//! ([`Scheduler::machine_anew`]): what sits on a node that is no application node any more stays, nothing
//! new is placed there, and what waits is looked at again.
//!
//! ```text
//!   psched.yaml  0: su os   1: ap   2: ap    (each flavor is on one node at least)
//!   snflv                           2: os
//!   in force     0: su os   1: ap   2: os
//!   snflv 1 os   refused: no other node has ap
//! ```
//!
//! psched.yaml may lose a node later, say NID 1 here: then ap would be on no node. The order on NID 2
//! takes from it what others have too, and no more: it has `os ap` until there is another, and that is
//! said in psched's log.

use super::{Effect, Event, Now, Record, ReplyId, Scheduler};
use crate::apteam::Apid;
use crate::apteam::change::{By, Change, FlavorOrder};
use crate::apteam::place::PlacementList;
use crate::apteam::protocol::node::Yields;
use crate::apteam::record::{Apteam, State};
use crate::machine::{Flavor, Flavors, Machine, Nid, Node, RegionId, nids_text};
use std::collections::{BTreeMap, BTreeSet};

/// Applications that an answer names; the others are counted.
const NAMED_MAX: usize = 1_000;

impl Scheduler {
    /// Which flavors an administrator has given a node, if he has.
    pub fn flavor_order(&self, nid: Nid) -> Option<&FlavorOrder> {
        self.flavors.get(&nid)
    }

    /// What psched.yaml says of them; none: it does not know the node.
    pub fn configured_flavors(&self, nid: Nid) -> Option<Flavors> {
        self.configured.nodes.get(&nid).map(|node| node.flavors)
    }

    /// Whether new applications may be placed on a node, as far as its flavors go.
    pub(super) fn is_for_applications(&self, nid: Nid) -> bool {
        self.machine.nodes.get(&nid).is_some_and(|node| node.flavors.has(Flavor::Ap))
    }

    /// On which of these nodes PEs give way to the system, and by how much: on those that are its own too,
    /// as far as variable `yield_nice` says so. What runs keeps what it has.
    pub(super) fn yields(&self, places: &PlacementList) -> Yields {
        let nice = self.settings.yield_nice;
        let systems = |nid: &Nid| {
            let node = self.machine.nodes.get(nid);
            node.is_some_and(|n| n.flavors.has(Flavor::Su) || n.flavors.has(Flavor::Os))
        };
        match nice {
            0 => Yields::default(),
            nice => Yields { nice, nids: places.nids().filter(systems).collect() },
        }
    }

    /// What [`Event::Flavors`] would be answered with, and which postings it would place. Nothing is
    /// changed: a copy is asked.
    pub fn would(&self, now: Now, event: Event) -> (Vec<String>, Vec<String>) {
        let mut copy = self.clone();
        let managed = copy.apply(now, event).into_iter().find_map(|effect| match effect {
            Effect::Managed { done, problems, .. } => Some((done, problems)),
            _ => None,
        });
        let (mut done, problems) = managed.unwrap_or_default();
        done.extend(named(self.teams().filter_map(|team| Scheduler::gets(&copy, team)).collect()));
        (done, problems)
    }

    pub(super) fn order_flavors(
        &mut self,
        now: Now,
        reply: ReplyId,
        to: Option<Flavors>,
        nids: &BTreeSet<Nid>,
        by: &By,
        out: &mut Vec<Effect>,
    ) {
        let problems = self.problems_of_flavors(to, nids);
        if !problems.is_empty() {
            out.push(Effect::Managed { reply, done: Vec::new(), problems });
            return;
        }
        let order = to.map(|flavors| FlavorOrder { flavors, by: by.clone() });
        // Nodes that were alike are one line of the log.
        let mut changed: BTreeMap<(String, String), Vec<Nid>> = BTreeMap::new();
        let mut idle: BTreeMap<String, Vec<Nid>> = BTreeMap::new();
        for nid in nids {
            let before = self.flavors_text(*nid);
            if self.flavors.get(nid).map(|order| order.flavors) == to {
                idle.entry(before).or_default().push(*nid);
                continue;
            }
            match &order {
                Some(order) => drop(self.flavors.insert(*nid, order.clone())),
                None => drop(self.flavors.remove(nid)),
            }
            changed.entry((before, self.flavors_text(*nid))).or_default().push(*nid);
        }
        let mut done = Vec::new();
        for (text, nids) in idle {
            done.push(format!("{}: {text} already", nids_text(nids)));
        }
        let all: Vec<Nid> = changed.values().flatten().copied().collect();
        for ((before, after), nids) in changed {
            let nids = nids_text(nids);
            done.push(format!("{nids}: {after}; before: {before}"));
            let what = format!("flavors of {nids}");
            out.push(Effect::Warn(format!("{what}: {after}; before: {before}")));
            out.push(Effect::Keep(Record::Change(Change { by: by.clone(), what, before, after })));
        }
        if !all.is_empty() {
            out.push(Effect::Keep(Record::Flavors(all, order.map(Box::new))));
        }
        let loses: BTreeSet<Nid> =
            nids.iter().copied().filter(|nid| self.is_for_applications(*nid)).collect();
        let could = self.could_be_placed();
        let mut after = Vec::new();
        self.machine_anew(now, &mut after);
        let loses = |nid: &Nid| loses.contains(nid) && !self.is_for_applications(*nid);
        if nids.iter().any(loses) {
            done.extend(self.shut_for(&could, loses));
        }
        // First the answer: what follows is placed by it.
        out.push(Effect::Managed { reply, done, problems });
        out.extend(after);
    }

    /// Postings that are placed some day.
    fn could_be_placed(&self) -> BTreeSet<Apid> {
        let may = |team: &&Apteam| {
            team.state == State::Posted && self.may_ever(&team.posting, &team.owner).is_ok()
        };
        self.teams().filter(may).map(|team| team.apid).collect()
    }

    /// What it means for applications that these nodes take nothing new: who stays there, and which of those
    /// that could be placed can't be any more.
    fn shut_for(&self, could: &BTreeSet<Apid>, shut: impl Fn(&Nid) -> bool + Copy) -> Vec<String> {
        let stays = |team: &&Apteam| team.state.holds_processors();
        let keeps = self.teams().filter(stays).filter_map(|team| self.keeps(team, shut));
        let mut lines = named(keeps.collect());
        let waiting = could.iter().filter_map(|apid| self.team(*apid));
        let mut impossible = waiting.filter_map(|team| self.impossible(team));
        lines.extend(impossible.by_ref().take(NAMED_MAX));
        // (To count them would cost as much as to name them.)
        lines.extend(impossible.next().map(|_| "and other applications".to_owned()));
        lines
    }

    /// `su os, set by alice`, `ap (psched.yaml)`.
    fn flavors_text(&self, nid: Nid) -> String {
        match (self.flavors.get(&nid), self.configured_flavors(nid)) {
            (Some(order), _) => order.to_string(),
            (None, Some(flavors)) => format!("{flavors} (psched.yaml)"),
            (None, None) => "not in psched.yaml".into(),
        }
    }

    /// What is wrong with an order.
    fn problems_of_flavors(&self, to: Option<Flavors>, nids: &BTreeSet<Nid>) -> Vec<String> {
        if nids.is_empty() {
            return vec!["no nodes are named: name the nodes that get the flavors".into()];
        }
        if to.is_some_and(Flavors::is_empty) {
            return vec!["a node has at least one flavor: su, os, ap".into()];
        }
        let known = |nid: &&Nid| {
            let ordered = to.is_none() && self.flavors.contains_key(nid);
            self.configured.nodes.contains_key(nid) || ordered
        };
        let unknown: Vec<Nid> = nids.iter().filter(|nid| !known(nid)).copied().collect();
        if !unknown.is_empty() {
            let unknown = nids_text(unknown);
            return vec![format!("{unknown}: not in psched.yaml (apstat -n lists the nodes)")];
        }
        let flavors_then = |nid: Nid, configured: Flavors| match (nids.contains(&nid), to) {
            (true, to) => to.unwrap_or(configured),
            (false, _) => self.flavors.get(&nid).map_or(configured, |order| order.flavors),
        };
        let nodes = self.configured.nodes.values();
        let then = nodes
            .fold(Flavors::default(), |all, node| all.and(flavors_then(node.nid, node.flavors)));
        let lost = self.machine.flavors().without(then);
        let mut problems = Vec::new();
        for flavor in lost.iter() {
            let has = |nid: &Nid| {
                self.machine.nodes.get(nid).is_some_and(|node| node.flavors.has(flavor))
            };
            let last: Vec<Nid> = nids.iter().copied().filter(has).collect();
            if last.is_empty() {
                // Another keeps it against its order: this one takes it from nobody.
                continue;
            }
            let name = flavor.name();
            problems.push(format!(
                "{}: no other node has flavor {name}, and at least one node must have it: give \
                 it to another node first (snflv NIDS FLAVORS)",
                nids_text(last)
            ));
        }
        let outside: Vec<Nid> = nids
            .iter()
            .filter_map(|nid| self.configured.nodes.get(nid))
            .map(|node| Node { flavors: flavors_then(node.nid, node.flavors), ..node.clone() })
            .filter(|node| node.flavors.has(Flavor::Ap))
            .filter(|node| self.configured.region_of(node) == RegionId::NONE)
            .map(|node| node.nid)
            .collect();
        if !outside.is_empty() {
            problems.push(format!(
                "{}: would have flavor ap and be in no region, so no application could be \
                 placed there: give the flavors of a region (apstat -n -v shows them), or leave \
                 out ap",
                nids_text(outside)
            ));
        }
        problems
    }

    /// What this psched.yaml says anew of flavors, and has no effect, for there are orders: said where it
    /// is read.
    pub fn flavors_without_effect(&self, machine: &Machine) -> Vec<String> {
        let mut alike: BTreeMap<String, Vec<Nid>> = BTreeMap::new();
        for (nid, order) in &self.flavors {
            let Some(new) = machine.nodes.get(nid).map(|node| node.flavors) else { continue };
            let old = self.configured_flavors(*nid);
            if old == Some(new) || old.is_none() && new == order.flavors {
                continue;
            }
            let from = old.map_or_else(String::new, |old| format!("{old} -> "));
            let text =
                format!("{from}{new} has no effect: snflv has set them to {}", order.flavors);
            alike.entry(text).or_default().push(*nid);
        }
        let line = |(text, nids)| format!("flavors of {}: {text}", nids_text(nids));
        alike.into_iter().map(line).collect()
    }
}

/// The first of these sentences, and how many more there are.
fn named(mut lines: Vec<String>) -> Vec<String> {
    if lines.len() > NAMED_MAX {
        let others = lines.len() - NAMED_MAX;
        lines.truncate(NAMED_MAX);
        lines.push(format!("and {others} other applications"));
    }
    lines
}
