//! The flavors that are in force.

use super::effect::Effect;
use crate::apteam::change::FlavorOrder;
use crate::machine::{Flavor, Flavors, Machine, Nid, nids_text};
use std::collections::BTreeMap;

/// The machine of psched.yaml with the flavors that are ordered; and nodes that keep some against their
/// orders, because no other has them.
pub(super) fn in_force(
    mut machine: Machine,
    orders: &BTreeMap<Nid, FlavorOrder>,
) -> (Machine, Vec<(Nid, Flavors)>) {
    let mut configured = Vec::new();
    for (nid, order) in orders {
        if let Some(node) = machine.nodes.get_mut(nid) {
            configured.push((*nid, std::mem::replace(&mut node.flavors, order.flavors)));
        }
    }
    let mut kept = Vec::new();
    if configured.is_empty() {
        return (machine, kept);
    }
    let all = machine.flavors();
    for (nid, flavors) in configured {
        let lacking = flavors.without(all);
        if let Some(node) = machine.nodes.get_mut(&nid).filter(|_| !lacking.is_empty()) {
            node.flavors = node.flavors.and(lacking);
            kept.push((nid, lacking));
        }
    }
    (machine, kept)
}

/// What is said of nodes that keep flavors against their orders.
pub(super) fn warning(kept: &[(Nid, Flavors)]) -> Option<Effect> {
    let all = kept.iter().fold(Flavors::default(), |all, (_, flavors)| all.and(*flavors));
    let nids: Vec<Nid> = kept.iter().map(|(nid, _)| *nid).collect();
    let keep = if nids.len() == 1 { "keeps" } else { "keep" };
    let text = || {
        format!(
            "{} {keep} {} by psched.yaml, against snflv: no other node has that flavor now; \
             give it to another node (snflv), or remove that setting (snflv --reset)",
            nids_text(nids),
            list(all)
        )
    };
    (!kept.is_empty()).then(text).map(Effect::Warn)
}

/// `flavor ap`, `flavors su, os`.
fn list(flavors: Flavors) -> String {
    let names: Vec<&str> = flavors.iter().map(Flavor::name).collect();
    let noun = if names.len() == 1 { "flavor" } else { "flavors" };
    format!("{noun} {}", names.join(", "))
}
