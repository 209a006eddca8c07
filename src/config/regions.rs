//! What regions, gates and accounts mean, and whether somebody can get through each gate.
//!
//! # Problem
//! A slip in a gate is not noticed when it is written: nobody complains of a region that stays empty. So each gate
//! is asked whether there is an application that it lets in and that its region could hold.
//!
//! # Approach
//! Values are read one by one, as [`meaning`](super::meaning) reads those of nodes. Then each node is looked up in
//! its region, and each gate is tried with every depth that nodes have room for: what a region holds is the most
//! PEs in a row of nodes, as placement would count them on an empty machine.
//!
//! ```text
//!   regions:
//!     - { name: ordinary, flavors: [ap] }
//!     - { name: overflow, flavors: [os, su, ap], gates: { width: too wide for ordinary } }
//! ```

use super::names::{flavors, who};
use super::problems::{Problems, quoted};
use super::syntax::{Account, Gates, Region, Text};
use crate::machine::gates::{AccountEntry, Between, Gate, Hours, Mode, People, Who};
use crate::machine::{
    Flavor, Machine, Members, Nid, Node, REGIONS_MAX, RegionId, format_nids, parse_nids,
};
use crate::variables::APPLICATION;
use crate::variables::units::{parse_duration, parse_size};
use std::collections::{BTreeMap, BTreeSet};

/// Accounts of a machine.
pub const ACCOUNTS_MAX: usize = 10_000;
/// Letters of a name.
const NAME_MAX: usize = 64;
/// What begins the width gate of an overflow region.
const TOO_WIDE: &str = "too wide for ";

/// Names with which those of the machine's own variables begin.
const RESERVED: [&str; 1] = ["weight"];

/// The accounts, and who may use each.
pub(super) fn accounts(entries: Vec<Account>, problems: &mut Problems) -> Vec<AccountEntry> {
    let mut accounts: BTreeMap<String, AccountEntry> = BTreeMap::new();
    if entries.len() > ACCOUNTS_MAX {
        let what = format!("there are more than {ACCOUNTS_MAX} accounts");
        problems.add("accounts", what, "give fewer");
    }
    for (i, entry) in entries.into_iter().take(ACCOUNTS_MAX).enumerate() {
        let key = format!("accounts[{i}]");
        let Some(name) = name(&key, entry.name, problems) else { continue };
        if accounts.contains_key(&name) {
            let what = format!("account {name} is defined twice");
            problems.add(format!("{key}.name"), what, "give each account once");
            continue;
        }
        let people = people(&key, entry.users, entry.groups, problems).unwrap_or_default();
        accounts.insert(name.clone(), AccountEntry { name, people });
    }
    accounts.into_values().collect()
}

/// The regions, as they are written; whether they go together is asked by [`check`].
pub(super) fn regions(
    entries: Vec<Region>,
    accounts: &[AccountEntry],
    problems: &mut Problems,
) -> Vec<crate::machine::Region> {
    if entries.len() > REGIONS_MAX {
        let what = format!("there are more than {REGIONS_MAX} regions");
        problems.add("regions", what, "give fewer");
    }
    // Gates speak of regions that come later, too.
    let names: Vec<String> = entries
        .iter()
        .map(|entry| entry.name.as_ref().map_or(String::new(), |text| text.0.clone()))
        .collect();
    let mut regions: Vec<crate::machine::Region> = Vec::new();
    for (i, entry) in entries.into_iter().take(REGIONS_MAX).enumerate() {
        let key = format!("regions[{i}]");
        let name = name(&key, entry.name, problems).unwrap_or_default();
        if !name.is_empty() && names[..i].contains(&name) {
            let what = format!("region {name} is defined twice");
            problems.add(format!("{key}.name"), what, "give each region a name of its own");
        }
        let members = match (entry.nids, entry.flavors) {
            (Some(Text(nids)), None) => match parse_nids(&nids) {
                Ok(nids) => Members::Nids(nids),
                Err(error) => {
                    let cure = "give a list such as 0-3,8";
                    problems.add(format!("{key}.nids"), error.to_string(), cure);
                    Members::Nids(BTreeSet::new())
                }
            },
            (None, Some(names)) => Members::Signature(flavors(&key, names, problems)),
            (nids, _) => {
                let what = match nids {
                    Some(_) => "has both nids and flavors",
                    None => "has neither nids nor flavors",
                };
                let cure =
                    "give one of them: nids: 1-3, or flavors: [ap] for all nodes with just these";
                problems.add(key.clone(), what, cure);
                Members::Nids(BTreeSet::new())
            }
        };
        let key = format!("{key}.gates");
        let gate = gate(&key, entry.gates.unwrap_or_default(), &names, accounts, i, problems);
        let domain = domain(&format!("regions[{i}].domain"), entry.domain, problems);
        regions.push(crate::machine::Region { name, domain, members, gate });
    }
    regions
}

fn name(key: &str, text: Option<Text>, problems: &mut Problems) -> Option<String> {
    let key = format!("{key}.name");
    let Some(Text(name)) = text else {
        problems.add(key, super::form::MISSING, "give a name");
        return None;
    };
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if (1..=NAME_MAX).contains(&name.len()) && name.chars().all(fits) {
        return Some(name);
    }
    let what = format!("{} is not a name", quoted(&name));
    let cure = format!("give 1 to {NAME_MAX} letters, digits, dots, underscores and hyphens");
    problems.add(key, what, cure);
    None
}

/// The domain of a region: a word with which names of variables can begin.
fn domain(key: &str, text: Option<Text>, problems: &mut Problems) -> String {
    let Some(Text(name)) = text else { return APPLICATION.into() };
    let fits = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    if !(1..=NAME_MAX).contains(&name.len()) || !name.chars().all(fits) {
        let what = format!("{} is not a name", quoted(&name));
        let cure = format!("give 1 to {NAME_MAX} letters, digits, underscores and hyphens");
        problems.add(key, what, cure);
    } else if RESERVED.contains(&name.as_str()) {
        let what = format!("{name} is reserved: {name}.* are variables of the machine");
        problems.add(key, what, "give the domain another name");
    }
    name
}

fn gate(
    key: &str,
    gates: Gates,
    names: &[String],
    accounts: &[AccountEntry],
    own: usize,
    problems: &mut Problems,
) -> Gate {
    let mut gate = Gate::default();
    if let Some(Text(text)) = gates.width {
        match text.strip_prefix(TOO_WIDE) {
            Some(other) => match names.iter().position(|name| name == other.trim()) {
                Some(at) if at != own => gate.too_wide_for = Some((names[at].clone(), at)),
                Some(_) => {
                    let cure = "name the region for which applications must be too wide";
                    problems.add(format!("{key}.width"), "the gate names its own region", cure);
                }
                None => {
                    let what = format!("there is no region {}", quoted(other.trim()));
                    let cure = "name one of the regions of this file";
                    problems.add(format!("{key}.width"), what, cure);
                }
            },
            None => {
                let number = |text: &str| text.parse::<u32>().ok();
                let cure = "give PEs such as 1-64, 65- or -8, or: too wide for REGION";
                gate.width = between(&format!("{key}.width"), &text, number, cure, problems);
            }
        }
    }
    gate.people = people(key, gates.users, gates.groups, problems);
    gate.accounts = gates.accounts.map(|texts| {
        let key = format!("{key}.accounts");
        if texts.is_empty() {
            problems.add(key.clone(), NOBODY, "name an account, or leave it out");
        }
        let known = |name: &String| accounts.iter().any(|account| account.name == *name);
        let names: BTreeSet<String> = texts.into_iter().map(|text| text.0).collect();
        for unknown in names.iter().filter(|name| !known(name)) {
            let what = format!("account {} is not defined", quoted(unknown));
            problems.add(key.clone(), what, "add it to accounts, with its users");
        }
        names
    });
    gate.mode = gates.mode.and_then(|Text(text)| match text.as_str() {
        "interactive" => Some(Mode::Interactive),
        "batch" => Some(Mode::Batch),
        _ => {
            let what = format!("{} is not a mode", quoted(&text));
            problems.add(format!("{key}.mode"), what, "give interactive or batch");
            None
        }
    });
    gate.hours = gates.hours.and_then(|Text(text)| {
        let read = hours(&text);
        if read.is_none() {
            let what = format!("{} is not a span of local time", quoted(&text));
            problems.add(format!("{key}.hours"), what, "give local times such as 20:00-06:00");
        }
        read
    });
    if let Some(Text(text)) = gates.time_limit {
        let read = |text: &str| parse_duration(text).ok();
        let cure = "give durations such as -1h for an hour at most";
        gate.time_limit = between(&format!("{key}.time_limit"), &text, read, cure, problems);
    }
    if let Some(Text(text)) = gates.memory {
        let read = |text: &str| parse_size(text).ok();
        let cure = "give sizes such as 4G- for 4G or more";
        gate.memory = between(&format!("{key}.memory"), &text, read, cure, problems);
    }
    gate
}

/// What is said of a gate that is for nobody.
const NOBODY: &str = "no application can pass this gate";

/// `A-B`, `A-`, `-B`.
fn between<T: PartialOrd + Copy>(
    key: &str,
    text: &str,
    read: impl Fn(&str) -> Option<T>,
    cure: &str,
    problems: &mut Problems,
) -> Option<Between<T>> {
    let one = |text: &str| match text.trim() {
        "" => Some(None),
        text => read(text).map(Some),
    };
    let ends = text.split_once('-').and_then(|(least, most)| Some((one(least)?, one(most)?)));
    match ends {
        Some((Some(least), Some(most))) if most < least => {
            problems.add(key, NOBODY, "put the lower number first");
            None
        }
        Some((least, most)) if least.is_some() || most.is_some() => Some(Between { least, most }),
        _ => {
            problems.add(key, format!("{} is not a range", quoted(text)), cure);
            None
        }
    }
}

/// `20:00-06:00`.
fn hours(text: &str) -> Option<Hours> {
    let time = |text: &str| {
        let (hour, minute) = text.trim().split_once(':')?;
        let number = |text: &str, most: u32| {
            let digits = text.len() == 2 && text.bytes().all(|b| b.is_ascii_digit());
            text.parse().ok().filter(|n: &u32| digits && *n <= most)
        };
        let at = number(hour, 24)? * 3600 + number(minute, 59)? * 60;
        (at <= 24 * 3600).then_some(at)
    };
    let (from, until) = text.split_once('-')?;
    let (from, until) = (time(from)?, time(until)?);
    (from != until && from < 24 * 3600).then_some(Hours { from, until })
}

/// None: neither users nor groups are given.
fn people(
    key: &str,
    users: Option<Vec<Text>>,
    groups: Option<Vec<Text>>,
    problems: &mut Problems,
) -> Option<People> {
    if users.is_none() && groups.is_none() {
        return None;
    }
    let mut all = |name: &str, what: &str, texts: Option<Vec<Text>>| -> BTreeSet<Who> {
        let texts = texts.unwrap_or_default().into_iter().enumerate();
        let one = |(i, Text(text)): (usize, Text)| {
            let who = who(&text);
            if who.is_none() {
                let said = format!("{} is not a {what}", quoted(&text));
                let cure = format!("give a {what}'s name or number");
                problems.add(format!("{key}.{name}[{i}]"), said, cure);
            }
            who
        };
        texts.filter_map(one).collect()
    };
    let none =
        users.as_ref().is_none_or(Vec::is_empty) && groups.as_ref().is_none_or(Vec::is_empty);
    let at = if users.is_some() { "users" } else { "groups" };
    let people =
        People { users: all("users", "user", users), groups: all("groups", "group", groups) };
    if none {
        problems.add(format!("{key}.{at}"), NOBODY, "name a user or a group, or leave it out");
    }
    Some(people)
}

/// Whether the regions of a machine go together with its nodes.
pub(super) fn check(machine: &Machine, problems: &mut Problems) {
    if machine.regions.is_empty() {
        return;
    }
    members(machine, problems);
    let of: BTreeMap<Nid, RegionId> =
        machine.nodes.values().map(|node| (node.nid, machine.region_of(node))).collect();
    outside(machine, &of, problems);
    let room = Room { machine, of };
    for (i, region) in machine.regions.iter().enumerate() {
        gate_passable(&format!("regions[{i}].gates"), i, &region.gate, &room, problems);
    }
}

/// NIDs that are no nodes, nodes in two regions, and regions without any.
fn members(machine: &Machine, problems: &mut Problems) {
    let mut taken: BTreeMap<Nid, usize> = BTreeMap::new();
    for (i, region) in machine.regions.iter().enumerate() {
        let (at, nids): (&str, Vec<Nid>) = match &region.members {
            Members::Nids(nids) => {
                let unknown = nids.iter().filter(|nid| !machine.nodes.contains_key(nid));
                let unknown: Vec<Nid> = unknown.copied().collect();
                if !unknown.is_empty() {
                    let what = format!("there is no node {}", format_nids(unknown));
                    problems.add(format!("regions[{i}].nids"), what, "list nodes of this file");
                }
                let nids = nids.iter().filter(|nid| machine.nodes.contains_key(nid));
                ("nids", nids.copied().collect())
            }
            Members::Signature(flavors) => {
                let nodes = machine.nodes.values().filter(|node| node.flavors == *flavors);
                ("flavors", nodes.map(|node| node.nid).collect())
            }
        };
        let key = format!("regions[{i}].{at}");
        let known = problems.has(&format!("regions[{i}]."));
        if nids.is_empty() && !known {
            let what = match &region.members {
                Members::Signature(flavors) => format!("no node has just the flavors {flavors}"),
                Members::Nids(_) => "has no node".into(),
            };
            problems.add(key.clone(), what, "give the region at least one node");
        }
        let serves = |nid: &Nid| machine.nodes[nid].flavors.has(Flavor::Ap);
        if !nids.is_empty() && !nids.iter().any(serves) {
            let what = "no node of the region has flavor ap, so that nothing can be placed there";
            problems.add(
                key.clone(),
                what,
                "give the region nodes with ap, or leave the region out",
            );
        }
        let twice: Vec<Nid> = nids.iter().copied().filter(|nid| taken.contains_key(nid)).collect();
        if let Some(first) = twice.first().and_then(|nid| taken.get(nid)) {
            let what = format!(
                "NIDs {} are in region {} already",
                format_nids(twice.iter().copied()),
                machine.regions[*first].name
            );
            problems.add(key, what, "give each node to one region");
        }
        for nid in nids {
            taken.entry(nid).or_insert(i);
        }
    }
}

/// Nodes for applications that are in no region.
fn outside(machine: &Machine, of: &BTreeMap<Nid, RegionId>, problems: &mut Problems) {
    let outside = machine
        .nodes
        .values()
        .filter(|node| node.flavors.has(Flavor::Ap) && of[&node.nid] == RegionId::NONE);
    let outside: Vec<Nid> = outside.map(|node| node.nid).collect();
    if !outside.is_empty() && !problems.has("regions") {
        let list = format_nids(outside);
        let what = format!("NIDs {list} have flavor ap and are in no region");
        problems.add(
            "regions",
            what,
            "add these nodes to a region, or remove ap from their flavors",
        );
    }
}

/// How many PEs there is room for on the empty machine.
struct Room<'a> {
    machine: &'a Machine,
    of: BTreeMap<Nid, RegionId>,
}

impl Room<'_> {
    /// The most of this depth in a row of nodes of a region.
    fn holds(&self, depth: u32, region: usize) -> u64 {
        self.most(depth, region, |of| of == region)
    }

    /// The same of nodes of any regions of its domain, where one of them is of this.
    fn spans(&self, depth: u32, region: usize) -> u64 {
        let domain = |of: usize| self.machine.regions.get(of).map(|region| &region.domain);
        self.most(depth, region, |of| domain(of) == domain(region))
    }

    fn most(&self, depth: u32, region: usize, among: impl Fn(usize) -> bool) -> u64 {
        let region_of = |node: &Node| self.of.get(&node.nid).and_then(|region| region.index());
        let usable = |node: &&Node| {
            let of = region_of(node);
            node.flavors.has(Flavor::Ap) && node.processors >= depth && of.is_some_and(&among)
        };
        let (mut most, mut here, mut is_own, mut next) = (0, 0, false, None);
        for node in self.machine.nodes.values().filter(usable) {
            if next != Some(node.nid) {
                (here, is_own) = (0, false);
            }
            here += u64::from(node.processors / depth);
            is_own |= region_of(node) == Some(region);
            most = most.max(if is_own { here } else { 0 });
            next = node.nid.0.checked_add(1).map(Nid);
        }
        most
    }

    /// Depths at which nodes differ in what they have room for.
    fn depths(&self) -> BTreeSet<u32> {
        self.machine.nodes.values().map(|node| node.processors).chain([1]).collect()
    }
}

fn gate_passable(key: &str, own: usize, gate: &Gate, room: &Room<'_>, problems: &mut Problems) {
    let most = room.spans(1, own);
    if let Some(least) = gate.width.and_then(|width| width.least)
        && u64::from(least) > most
    {
        let cure = format!("no more than {most} PEs have room here");
        problems.add(format!("{key}.width"), NOBODY, cure);
    }
    if let Some((name, other)) = &gate.too_wide_for {
        // It fits here alone, or on nodes of this region and others in a row.
        let passes = |depth: u32| room.spans(depth, own) > room.holds(depth, *other);
        if !room.depths().into_iter().any(passes) {
            let cure = format!(
                "applications too wide for region {name} must fit here, or on nodes of both \
                 regions with consecutive NIDs"
            );
            problems.add(format!("{key}.width"), NOBODY, cure);
        }
    }
    let largest = room.machine.nodes.values().map(|node| node.memory).max().unwrap_or(0);
    let known = room.machine.nodes.values().all(|node| node.memory > 0);
    if let Some(least) = gate.memory.and_then(|memory| memory.least)
        && known
        && least > largest
    {
        problems.add(format!("{key}.memory"), NOBODY, "no node has so much memory");
    }
}
