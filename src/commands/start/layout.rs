//! The nodes of a private instance: how many, with what; and their psched.yaml.
//!
//! ```text
//! --nodes 4 on 2 cores         nid 0 (su os ap) 2   nid 1 (ap) 2   nid 2 (ap) 2   nid 3 (ap) 2
//! neither, 2 domains of 8      nid 0 (su os ap) 8   nid 1 (ap) 8          explicit processors
//! ```
//! With `--nodes` processors are virtual: psched maps the instance's processor v to real core
//! v mod R, one to one as long as there are enough.

use super::topology::Topology;
use crate::machine::{Flavor, Flavors, Machine, Nid, Node};
use crate::variables::Variables;
use std::collections::BTreeSet;
use std::fmt::Write;

/// The most nodes of a private instance.
pub const NODES_MAX: u32 = 4096;
/// The most processors of one of its nodes.
pub const PROCESSORS_MAX: u32 = 4096;

/// The nodes for `--nodes` and `--processors` on this machine.
pub fn machine(topology: &Topology, nodes: Option<u32>, processors: Option<u32>) -> Machine {
    let flavors = |nid: u32| {
        if nid == 0 { Flavors::all() } else { Flavors::default().with(Flavor::Ap) }
    };
    let node = |nid: u32, processors: u32, cpus: Vec<u32>, memory: u64| {
        let flavors = flavors(nid);
        Node { nid: Nid(nid), processors, cpus, memory, flavors, host: String::new() }
    };
    match nodes {
        Some(n) => {
            let n = n.max(1);
            let each = processors.unwrap_or_else(|| (topology.cores() / n).max(2));
            let memory = topology.memory() / u64::from(n);
            (0..n).map(|nid| node(nid, each, Vec::new(), memory)).collect()
        }
        None => (0..)
            .zip(&topology.domains)
            .map(|(nid, domain)| match processors {
                Some(p) => node(nid, p, Vec::new(), domain.memory),
                None => node(nid, domain.cpus.len() as u32, domain.cpus.clone(), domain.memory),
            })
            .collect(),
    }
}

/// What is to be said where there are more processors than real ones.
pub fn oversubscribed(machine: &Machine, topology: &Topology) -> Option<String> {
    let (wanted, real) = (processors(machine), u64::from(topology.cores()));
    (wanted > real).then(|| {
        let ones = if real == 1 { "one" } else { "ones" };
        format!(
            "oversubscribed: {wanted} processors share {real} real {ones}; gangs are not guaranteed"
        )
    })
}

/// Real processors that these nodes are bound to, of these that may be used.
pub fn bound(machine: &Machine, cpus: &[u32]) -> BTreeSet<u32> {
    let firsts = machine.first_processors();
    let mut bound = BTreeSet::new();
    for node in machine.nodes.values() {
        if !node.cpus.is_empty() {
            bound.extend(&node.cpus);
        } else if !cpus.is_empty() {
            let first = firsts.get(&node.nid).copied().unwrap_or(0) as usize;
            // (After one round all are.)
            let each = 0..(node.processors as usize).min(cpus.len());
            bound.extend(each.map(|p| cpus[(first + p) % cpus.len()]));
        }
    }
    bound
}

/// Processors of all nodes.
pub fn processors(machine: &Machine) -> u64 {
    machine.nodes.values().map(|n| u64::from(n.processors)).sum()
}

/// `4 nodes of 2 processors`, or their sum where they differ.
pub fn describe(machine: &Machine) -> String {
    let count = |n: u64, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    let nodes = machine.nodes.len() as u64;
    let mut each = machine.nodes.values().map(|n| n.processors);
    let first = each.next().unwrap_or(0);
    if each.all(|p| p == first) {
        format!("{} of {}", count(nodes, "node"), count(first.into(), "processor"))
    } else {
        format!("{}, {} in all", count(nodes, "node"), count(processors(machine), "processor"))
    }
}

/// The nodes for each of `apinits` processes: contiguous, sizes differing by one at most.
pub fn split(nids: &[Nid], apinits: usize) -> Vec<Vec<Nid>> {
    let parts = apinits.clamp(1, nids.len().max(1));
    (0..parts)
        .map(|i| nids[i * nids.len() / parts..(i + 1) * nids.len() / parts].to_vec())
        .collect()
}

/// psched.yaml for these nodes, with these variables.
pub fn yaml(machine: &Machine, variables: &Variables) -> String {
    let mut text = String::from("# Written by psched start for a private instance.\nnodes:\n");
    for node in machine.nodes.values() {
        let flavors: Vec<&str> = node.flavors.iter().map(Flavor::name).collect();
        let _ = write!(
            text,
            "  - nids: \"{}\"\n    processors: {}\n    memory: {}\n    flavors: [{}]\n",
            node.nid,
            node.processors,
            node.memory,
            flavors.join(", ")
        );
        if !node.cpus.is_empty() {
            let cpus: Vec<String> = node.cpus.iter().map(u32::to_string).collect();
            let _ = writeln!(text, "    cpus: \"{}\"", cpus.join(","));
        }
    }
    let set: Vec<_> = variables.show().into_iter().filter(|v| !v.is_default()).collect();
    if !set.is_empty() {
        text.push_str("variables:\n");
    }
    for variable in set {
        let _ = writeln!(text, "  {}: \"{}\"", variable.name, variable.value);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::topology::Domain;
    use super::*;

    fn two_domains() -> Topology {
        let domain = |cpus: &[u32]| Domain { cpus: cpus.to_vec(), memory: 8 << 30 };
        Topology { domains: vec![domain(&[0, 1, 2]), domain(&[4, 5])] }
    }

    fn picture(machine: &Machine) -> Vec<String> {
        let line = |n: &Node| format!("{} ({}) {} {:?}", n.nid, n.flavors, n.processors, n.cpus);
        machine.nodes.values().map(line).collect()
    }

    #[test]
    fn this_machine_as_it_is() {
        let machine = machine(&two_domains(), None, None);
        assert_eq!(picture(&machine), ["0 (su os ap) 3 [0, 1, 2]", "1 (ap) 2 [4, 5]"]);
        assert_eq!(oversubscribed(&machine, &two_domains()), None);
        assert_eq!(describe(&machine), "2 nodes, 5 processors in all");
    }

    #[test]
    fn so_many_nodes() {
        let topology = two_domains();
        let four = machine(&topology, Some(4), None);
        assert_eq!(
            picture(&four),
            ["0 (su os ap) 2 []", "1 (ap) 2 []", "2 (ap) 2 []", "3 (ap) 2 []"]
        );
        assert_eq!(four.nodes[&Nid(0)].memory, 4 << 30);
        assert_eq!(
            oversubscribed(&four, &topology).as_deref(),
            Some("oversubscribed: 8 processors share 5 real ones; gangs are not guaranteed")
        );
        assert_eq!(describe(&four), "4 nodes of 2 processors");
        assert_eq!(picture(&machine(&topology, Some(1), None)), ["0 (su os ap) 5 []"]);
        assert_eq!(picture(&machine(&topology, Some(1), Some(3))), ["0 (su os ap) 3 []"]);
        assert_eq!(describe(&machine(&topology, Some(1), Some(1))), "1 node of 1 processor");
        assert_eq!(
            picture(&machine(&topology, None, Some(1))),
            ["0 (su os ap) 1 []", "1 (ap) 1 []"]
        );
    }

    #[test]
    fn psched_reads_what_is_written() {
        for (nodes, processors) in [(None, None), (Some(4), None), (Some(1), Some(7))] {
            let machine = machine(&two_domains(), nodes, processors);
            let mut variables = Variables::default();
            for variables_set in
                [&[][..], &[("application.time_slice", "50ms"), ("kill_grace", "1s")]]
            {
                for (name, value) in variables_set {
                    assert_eq!(variables.set(name, value), Ok(()));
                }
                let text = yaml(&machine, &variables);
                let read = crate::config::read(&text).expect("a good psched.yaml");
                assert_eq!((&read.machine, &read.variables), (&machine, &variables));
            }
        }
    }

    #[test]
    fn nodes_are_split_contiguously() {
        let nids: Vec<Nid> = (0..5).map(Nid).collect();
        let sizes = |k| split(&nids, k).iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(sizes(1), [5]);
        assert_eq!(sizes(2), [2, 3]);
        assert_eq!(sizes(5), [1, 1, 1, 1, 1]);
        assert_eq!(split(&nids, 2).concat(), nids);
    }
}
