//! The second pass: what the values mean, and whether they go together.

use super::contents::{Administrator, Config, NODES_MAX, PROCESSORS_MAX};
use super::form::MISSING;
use super::names::{flavors, who};
use super::problems::{Problem, Problems, quoted};
use super::regions;
use super::syntax::{File, Nodes, Pairs, Text};
use crate::machine::gates::Who;
use crate::machine::{Flavor, Flavors, Machine, Nid, Node, is_host, parse_hosts, parse_nids};
use crate::variables::Variables;
use crate::variables::units::parse_size;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// The longest path of a unix socket on Linux, in bytes.
const SOCKET_PATH_MAX: usize = 107;
/// The largest number of a real processor.
const CPU_MAX: u32 = 65_535;

/// Checks the whole file, of which form has these problems.
pub(super) fn check(file: File, form: Vec<Problem>) -> Result<Config, Vec<Problem>> {
    let mut problems = Problems(form);
    let (mut machine, understood) = machine(file.nodes.unwrap_or_default(), &mut problems);
    machine.accounts = regions::accounts(file.accounts.unwrap_or_default(), &mut problems);
    let entries = file.regions.unwrap_or_default();
    machine.regions = regions::regions(entries, &machine.accounts, &mut problems);
    if understood {
        regions::check(&machine, &mut problems);
    }
    let config = Config {
        variables: variables(file.variables.unwrap_or_default(), &machine, &mut problems),
        machine,
        administrators: administrators(file.administrators.unwrap_or_default(), &mut problems),
        listen: path("listening", file.listening, SOCKET_PATH_MAX, &mut problems),
        state: path("state", file.state, 4_095, &mut problems),
        network: network(file.network, &mut problems),
        certificates: path("certificates", file.certificates, 4_095, &mut problems),
    };
    if problems.0.is_empty() { Ok(config) } else { Err(problems.0) }
}

/// The nodes, and whether all entries were understood: what is missing of nodes that were not may just be there.
fn machine(entries: Vec<Nodes>, problems: &mut Problems) -> (Machine, bool) {
    let mut machine = Machine::default();
    let understood = |problems: &Problems| !problems.has("nodes");
    if entries.is_empty() {
        if !understood(problems) {
            return (machine, false);
        }
        let cure = "list at least one under nodes, such as { nids: 0-3, processors: 8 }";
        problems.add("nodes", "there are no nodes", cure);
        return (machine, false);
    }
    // Which entry each node came from, and whether that entry names its flavors.
    let mut from: BTreeMap<Nid, usize> = BTreeMap::new();
    let mut unnamed: BTreeSet<Nid> = BTreeSet::new();
    for (i, entry) in entries.into_iter().enumerate() {
        let names_flavors = entry.flavors.is_some();
        for node in nodes(&format!("nodes[{i}]"), entry, problems) {
            if let Some(first) = from.get(&node.nid) {
                let what = format!("NID {} is already in nodes[{first}]", node.nid);
                problems.add(format!("nodes[{i}].nids"), what, "give each node once");
                // One is enough: a range that overlaps another has as many as they share.
                break;
            }
            if machine.nodes.len() == NODES_MAX {
                let what = format!("there are more than {NODES_MAX} nodes");
                problems.add(format!("nodes[{i}]"), what, "give fewer");
                return (machine, false);
            }
            from.insert(node.nid, i);
            if !names_flavors {
                unnamed.insert(node.nid);
            }
            machine.nodes.insert(node.nid, node);
        }
    }
    let flavors_unsaid = match machine.nodes.len() {
        1 => Flavors::all(),
        _ => Flavors::default().with(Flavor::Ap),
    };
    for nid in unnamed {
        if let Some(node) = machine.nodes.get_mut(&nid) {
            node.flavors = flavors_unsaid;
        }
    }
    let understood = understood(problems);
    if understood {
        check_flavors(&machine, problems);
        check_cpus(&machine, &from, problems);
    }
    (machine, understood)
}

/// The nodes of one entry; none where its NIDs are not understood. Other values that are not
/// understood are replaced by good ones, so that the search for problems goes on.
fn nodes(key: &str, entry: Nodes, problems: &mut Problems) -> Vec<Node> {
    let nids = match entry.nids.as_ref().map(|text| parse_nids(&text.0)) {
        Some(Ok(nids)) => nids,
        Some(Err(error)) => {
            problems.add(format!("{key}.nids"), error.to_string(), "give a list such as 0-3,8");
            BTreeSet::new()
        }
        None => {
            problems.add(format!("{key}.nids"), MISSING, "give a list such as 0-3,8");
            BTreeSet::new()
        }
    };
    let range = format!("give 1 to {PROCESSORS_MAX}");
    let processors = match &entry.processors {
        Some(Text(text)) => match text.trim().parse() {
            Ok(n @ 1..=PROCESSORS_MAX) => Some(n),
            _ => {
                let what = format!("{} is not a number of processors", quoted(text));
                problems.add(format!("{key}.processors"), what, range);
                None
            }
        },
        None => {
            problems.add(format!("{key}.processors"), MISSING, range);
            None
        }
    };
    let mut cpus = match entry.cpus.as_ref().map(|text| parse_cpus(&text.0)) {
        None => Vec::new(),
        Some(Ok(cpus)) => cpus,
        Some(Err(what)) => {
            let cure = format!("give a list such as 0-3,8 of processors from 0 to {CPU_MAX}");
            problems.add(format!("{key}.cpus"), what, cure);
            Vec::new()
        }
    };
    let hosts = hosts(key, &entry, nids.len(), problems);
    if let Some(processors) = processors
        && !cpus.is_empty()
        && !nids.is_empty()
    {
        let (each, listed) = (processors as usize, cpus.len());
        let wanted = each.saturating_mul(if entry.hosts.is_some() { 1 } else { nids.len() });
        if listed != wanted {
            let what = format!("{listed} numbers are listed for {wanted} processors");
            let cure = match entry.hosts {
                Some(_) => "list one for each processor of a host",
                None => "list one for each processor, beginning with the lowest NID",
            };
            problems.add(format!("{key}.cpus"), what, cure);
            cpus.clear();
        }
    }
    let memory = match entry.memory.as_ref().map(|text| parse_size(&text.0)) {
        None => 0,
        Some(Ok(memory)) => memory,
        Some(Err(error)) => {
            problems.add(format!("{key}.memory"), error.to_string(), "give a size such as 8G");
            0
        }
    };
    let flavors = flavors(key, entry.flavors.unwrap_or_default(), problems);
    let processors = processors.unwrap_or(1);
    // Where each node has a host of its own, its processors have the same numbers on each.
    let again = if entry.hosts.is_some() { nids.len() } else { 1 };
    let mut cpus = std::iter::repeat_n(cpus, again).flatten();
    let mut hosts = hosts.into_iter();
    let node = |nid| Node {
        nid,
        processors,
        cpus: cpus.by_ref().take(processors as usize).collect(),
        memory,
        flavors,
        host: hosts.next().unwrap_or_default(),
    };
    nids.into_iter().map(node).collect()
}

/// The host of each of so many nodes.
fn hosts(key: &str, entry: &Nodes, nodes: usize, problems: &mut Problems) -> Vec<String> {
    let one = entry.host.as_ref().map_or("", |text| &text.0);
    if !is_host(one) {
        let what = format!("{} is not the name of a host", quoted(one));
        problems.add(format!("{key}.host"), what, "give its name, or leave it out for this host");
    }
    let Some(Text(list)) = &entry.hosts else { return vec![one.to_owned(); nodes] };
    let key = format!("{key}.hosts");
    if entry.host.is_some() {
        let cure = "give host where all these nodes are on one host, hosts where each has its own";
        problems.add(key.clone(), "can't be given together with host", cure);
    }
    match parse_hosts(list) {
        Ok(hosts) if hosts.len() == nodes || nodes == 0 => return hosts,
        Ok(hosts) => {
            let what = format!("{} hosts are listed for {nodes} nodes", hosts.len());
            problems.add(key, what, "list one for each node, beginning with the lowest NID");
        }
        Err(error) => {
            let cure = "give names such as n1,n2 or n[000-003]";
            problems.add(key, error.to_string(), cure);
        }
    }
    vec![String::new(); nodes]
}

fn check_flavors(machine: &Machine, problems: &mut Problems) {
    for flavor in Flavor::ALL {
        if !machine.nodes.values().any(|node| node.flavors.has(flavor)) {
            let name = flavor.name();
            let cure = format!("add {name} to the flavors of one, such as flavors: [su, os, ap]");
            problems.add("nodes", format!("no node has flavor {name}"), cure);
        }
    }
    for node in machine.nodes.values().filter(|n| n.flavors == Flavors::default()).take(1) {
        let what = format!("NID {} has no flavor", node.nid);
        problems.add("nodes", what, "give it one of su, os, ap, or leave flavors out");
    }
}

fn check_cpus(machine: &Machine, from: &BTreeMap<Nid, usize>, problems: &mut Problems) {
    let mut held: BTreeMap<(&str, u32), Nid> = BTreeMap::new();
    // For each host the first node that names its processors and the first that doesn't.
    let mut first: BTreeMap<&str, (Option<Nid>, Option<Nid>)> = BTreeMap::new();
    for node in machine.nodes.values() {
        let key = || from.get(&node.nid).map_or_else(String::new, |i| format!("nodes[{i}].cpus"));
        let (named, unnamed) = first.entry(&node.host).or_default();
        (if node.cpus.is_empty() { unnamed } else { named }).get_or_insert(node.nid);
        for cpu in &node.cpus {
            if let Some(other) = held.insert((&node.host, *cpu), node.nid) {
                let what = match other == node.nid {
                    true => format!("processor {cpu} is given twice to NID {other}"),
                    false => {
                        format!("processor {cpu} is given to NID {other} and NID {}", node.nid)
                    }
                };
                problems.add(key(), what, "give each real processor of a host to one node");
                break;
            }
        }
    }
    for (host, nodes) in first {
        if let (Some(named), Some(unnamed)) = nodes {
            let host = if host.is_empty() { "this host".into() } else { format!("host {host}") };
            let what = format!("on {host}, NID {named} lists its cpus and NID {unnamed} does not");
            problems.add("nodes", what, "list them for all nodes of a host, or for none");
        }
    }
}

/// Reads `0-3,8`, in the order given.
fn parse_cpus(text: &str) -> Result<Vec<u32>, String> {
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let number = |text: &str| text.trim().parse().ok().filter(|cpu: &u32| *cpu <= CPU_MAX);
        let ends = match part.split_once('-') {
            Some((a, b)) => (number(a), number(b)),
            None => (number(part), number(part)),
        };
        let (Some(a), Some(b)) = ends else {
            return Err(format!("{} is not a processor or a range of them", quoted(part)));
        };
        if b < a {
            return Err(format!("the range {} runs backwards", quoted(part)));
        }
        cpus.extend(a..=b);
        // More than there are numbers: some must be twice, and the list is bounded.
        if cpus.len() > CPU_MAX as usize + 1 {
            return Err("some processors are listed twice".into());
        }
    }
    Ok(cpus)
}

fn variables(pairs: Pairs, machine: &Machine, problems: &mut Problems) -> Variables {
    let mut variables = Variables::default();
    variables.set_domains(machine.regions.iter().map(|region| region.domain.as_str()));
    for (name, text) in pairs.0 {
        let text = text.map_or_else(String::new, |text| text.0);
        if let Err(error) = variables.set(&name, &text) {
            let key = format!("variables.{}", quoted(&name).trim_matches('"'));
            problems.add(key, error.what(), error.cure());
        }
    }
    variables
}

fn administrators(texts: Vec<Text>, problems: &mut Problems) -> Vec<Administrator> {
    let mut administrators = BTreeSet::new();
    for (i, Text(text)) in texts.into_iter().enumerate() {
        let key = format!("administrators[{i}]");
        match who(&text) {
            Some(Who::Id(uid)) => drop(administrators.insert(Administrator::Uid(uid))),
            Some(Who::Name(name)) => drop(administrators.insert(Administrator::Name(name))),
            None => {
                let what = format!("{} is not a user", quoted(&text));
                problems.add(key, what, "give a user's name or number");
            }
        }
    }
    administrators.into_iter().collect()
}

/// The address on which psched takes connections of other hosts.
fn network(text: Option<Text>, problems: &mut Problems) -> Option<SocketAddr> {
    let Text(text) = text?;
    let address = text.trim().parse().ok().filter(|address: &SocketAddr| address.port() > 0);
    if address.is_none() {
        let what = format!("{} is not the address and the port of an interface", quoted(&text));
        problems.add("network", what, "give one such as 0.0.0.0:7117 (all interfaces)");
    }
    address
}

fn path(key: &str, text: Option<Text>, max: usize, problems: &mut Problems) -> Option<String> {
    let Text(path) = text?;
    if !path.starts_with('/') || path.ends_with('/') || path.contains('\0') {
        let what = format!("{} is not the path of a file or folder", quoted(&path));
        problems.add(key, what, "give an absolute path that does not end in /");
    } else if path.len() > max {
        let what = format!("the path has {} bytes", path.len());
        problems.add(key, what, format!("give a path of at most {max} bytes"));
    }
    Some(path)
}
