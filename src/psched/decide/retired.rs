//! Nodes in use that psched.yaml lacks, or that are of another domain than who sits there.

use crate::apteam::record::Apteam;
use crate::machine::{Flavors, Machine, Nid, Node};
use std::collections::BTreeSet;

/// The machine, and with it those nodes that applications are on and that it lacks in whole or in
/// part; these as they were in `old`, if that is known.
pub(super) fn with_retired<'a>(
    mut machine: Machine,
    old: Option<&Machine>,
    teams: impl Iterator<Item = &'a Apteam>,
) -> (Machine, BTreeSet<Nid>) {
    let mut retired = BTreeSet::new();
    for team in teams.filter(|t| t.state.holds_processors()) {
        for place in team.holds().0.iter() {
            let needed = place.processors.iter().max().map_or(0, |p| p.saturating_add(1));
            if machine.nodes.get(&place.nid).is_some_and(|n| n.processors >= needed) {
                continue;
            }
            retired.insert(place.nid);
            let bare = || Node { flavors: Flavors::default(), ..Node::plain(place.nid, needed) };
            let known = old.and_then(|old| old.nodes.get(&place.nid).cloned());
            let mut node = known.unwrap_or_else(bare);
            // Without the flavor ap placement passes over it.
            node.flavors = Flavors::default();
            machine.nodes.insert(place.nid, node);
        }
    }
    (machine, retired)
}

/// Nodes in use that are of another domain than who sits there.
pub(super) fn leaving<'a>(
    machine: &Machine,
    teams: impl Iterator<Item = &'a Apteam>,
) -> BTreeSet<Nid> {
    let is_of =
        |node: &Node, name: &str| machine.domain_of(node).is_none_or(|domain| domain == name);
    let mut leaving = BTreeSet::new();
    for team in teams.filter(|t| t.state.holds_processors() && !t.domain.is_empty()) {
        // (Nor does one get to another domain to which somebody is on his way.)
        let holds = team.holds();
        let nodes = holds.nids().filter_map(|nid| machine.nodes.get(&nid));
        leaving.extend(nodes.filter(|node| !is_of(node, &team.domain)).map(|node| node.nid));
    }
    leaving
}
