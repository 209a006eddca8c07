//! When each gang ran on each node, as far as the latest changes of party tell.

use crate::rpc::pb;
use std::collections::{BTreeMap, BTreeSet};

/// A run of a gang on a node. Times are of psched's monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The application.
    pub apid: u64,
    /// When it began.
    pub since_ns: u64,
    /// When it ended; now, if it goes on.
    pub until_ns: u64,
    /// The plan by which it began; 0: not known.
    pub generation: u64,
}

/// A node, and what happened there.
pub struct Node<'a> {
    /// Its number.
    pub nid: u32,
    /// The runs, in order of their beginnings.
    pub runs: Vec<Run>,
    /// The changes of its apinit.
    pub switches: Vec<&'a pb::TurnsSwitch>,
}

/// The nodes, those of an apinit one after the other.
///
/// An application that has ended is on the first node of each apinit that it was on: which others it had
/// is not known any more.
pub fn by_node(reply: &pb::TurnsReply) -> Vec<Node<'_>> {
    let mut switches: BTreeMap<u32, Vec<&pb::TurnsSwitch>> = BTreeMap::new();
    for switch in &reply.switches {
        switches.entry(switch.apinit).or_default().push(switch);
    }
    let mut apinits: BTreeMap<u32, Vec<&pb::NodeRow>> = BTreeMap::new();
    for node in &reply.nodes {
        apinits.entry(node.apinit).or_default().push(node);
    }
    let machine = Machine::new(reply);
    let mut all = Vec::new();
    for (apinit, nodes) in apinits {
        let switches = switches.remove(&apinit).unwrap_or_default();
        let runs = runs(reply, &machine, &nodes, &switches);
        for node in &nodes {
            let first = nodes.first().is_some_and(|first| first.nid == node.nid);
            let here = |run: &&Run| match machine.nids.get(&run.apid) {
                Some(nids) => nids.contains(&node.nid),
                None => first,
            };
            let mut runs: Vec<Run> = runs.iter().filter(here).copied().collect();
            runs.sort_by_key(|run| (run.since_ns, run.apid));
            all.push(Node { nid: node.nid, runs, switches: switches.clone() });
        }
    }
    all
}

/// Where each application is.
struct Machine {
    /// The nodes of each application.
    nids: BTreeMap<u64, BTreeSet<u32>>,
    /// The applications on each node that run now.
    running: BTreeMap<u32, Vec<u64>>,
    /// When the first change began.
    begin_ns: u64,
}

impl Machine {
    fn new(reply: &pb::TurnsReply) -> Machine {
        use pb::turn::Kind::{Always, Leads, Promoted};
        let begin_ns = reply.switches.iter().map(|switch| switch.began_ns).min();
        let begin_ns = begin_ns.unwrap_or(reply.now_ns);
        let (mut nids, mut running) = (BTreeMap::new(), BTreeMap::<u32, Vec<u64>>::new());
        for row in &reply.applications {
            let apid = row.key.map_or(0, |key| key.apid);
            nids.insert(apid, row.places.iter().map(|place| place.nid).collect());
            let kind = row.turn.map(|turn| turn.kind()).unwrap_or_default();
            if matches!(kind, Always | Leads | Promoted) {
                for place in &row.places {
                    running.entry(place.nid).or_default().push(apid);
                }
            }
        }
        Machine { nids, running, begin_ns }
    }
}

/// The runs of each gang on the nodes of an apinit.
fn runs(
    reply: &pb::TurnsReply,
    machine: &Machine,
    nodes: &[&pb::NodeRow],
    switches: &[&pb::TurnsSwitch],
) -> Vec<Run> {
    let begin = machine.begin_ns;
    let ran = |switch: &pb::TurnsSwitch| switch.began_ns.saturating_add(switch.gap_ns);
    let mut runs = Vec::new();
    // Since when each one runs, and by which plan.
    let mut open: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    // A gang that was stopped and not started before has run since before the first change.
    let mut seen: BTreeSet<u64> = BTreeSet::new();
    for switch in switches {
        for apid in &switch.stopped {
            let since = open.remove(apid).or_else(|| (!seen.contains(apid)).then_some((begin, 0)));
            if let Some((since, generation)) = since.filter(|(since, _)| *since < switch.began_ns) {
                let until_ns = switch.began_ns;
                runs.push(Run { apid: *apid, since_ns: since, until_ns, generation });
            }
            seen.insert(*apid);
        }
        for apid in &switch.started {
            open.insert(*apid, (ran(switch), switch.generation));
            seen.insert(*apid);
        }
    }
    // A gang that runs and is in no change has run all the time.
    for apid in nodes.iter().filter_map(|node| machine.running.get(&node.nid)).flatten() {
        if !seen.contains(apid) {
            open.insert(*apid, (begin, 0));
        }
    }
    for (apid, (since_ns, generation)) in open {
        // No change tells that a gang ended. It did so before the next one that took its place.
        let next = || {
            let later = |switch: &&&pb::TurnsSwitch| {
                switch.began_ns > since_ns && !switch.started.is_empty()
            };
            switches.iter().find(later).map(|switch| switch.began_ns)
        };
        let ended = !machine.nids.contains_key(&apid);
        let until_ns = ended.then(next).flatten().unwrap_or(reply.now_ns).max(since_ns);
        runs.push(Run { apid, since_ns, until_ns, generation });
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gang_that_ended_gives_way_to_the_next() {
        let change = |began_ns, started: &[u64]| pb::TurnsSwitch {
            began_ns,
            started: started.to_vec(),
            ..Default::default()
        };
        let place = pb::Place::default();
        let reply = pb::TurnsReply {
            now_ns: 90,
            nodes: vec![pb::NodeRow::default()],
            applications: vec![pb::ApplicationRow {
                key: Some(pb::ApplicationKey { apid: 2, incarnation: 1 }),
                places: vec![place],
                ..Default::default()
            }],
            // 1 has ended by the time at which 2 runs.
            switches: vec![change(10, &[1]), change(30, &[]), change(50, &[2])],
            ..Default::default()
        };
        let runs = |nodes: Vec<Node>| {
            let run = |run: &Run| (run.apid, run.since_ns, run.until_ns);
            nodes.iter().flat_map(|node| node.runs.iter().map(run)).collect::<Vec<_>>()
        };
        assert_eq!(runs(by_node(&reply)), [(1, 10, 50), (2, 50, 90)]);
    }
}
