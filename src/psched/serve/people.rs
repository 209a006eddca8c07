//! Users and groups that the configuration names: their numbers, and those that this host does not
//! have.
//!
//! A name without a user is no error: directories of users change, and a psched.yaml may be written
//! on another host. But most often it is a slip, so an administrator who checks the file, has it
//! read again or sets a weight is told.

use super::names::{Number, names};
use crate::config::Config;
use crate::machine::gates::Who;
use crate::variables::WEIGHT;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How long all look-ups of a file's names may take together; the remaining names are counted.
const ALL_WAIT: Duration = Duration::from_secs(10);

/// User ids of the configured administrators; a name without a user is left out.
pub fn administrators(config: &Config) -> BTreeSet<u32> {
    let mut ids = BTreeSet::new();
    for name in &config.administrators {
        let name = name.to_string();
        match name.parse().map_or_else(|_| names().user_id(&name), Number::Is) {
            Number::Is(uid) => {
                ids.insert(uid);
            }
            // (Told by `unknown`.)
            Number::None => {}
            Number::NoAnswer => tracing::warn!(
                "the name service does not resolve the administrator {name}: psched tries again \
                 later"
            ),
        }
    }
    ids
}

/// Groups by name get their numbers; a group that this host does not know lets nobody in.
pub fn groups_looked_up(config: &mut Config) {
    let mut number = |name: &str| {
        match names().group_id(name) {
            Number::Is(gid) => return Some(gid),
            // (Told by `unknown`.)
            Number::None => {}
            Number::NoAnswer => tracing::warn!(
                "the name service does not resolve the group {name} of psched.yaml, which lets \
                 no user in until then: psched tries again later"
            ),
        }
        None
    };
    let gates = config.machine.regions.iter_mut().filter_map(|region| region.gate.people.as_mut());
    let accounts = config.machine.accounts.iter_mut().map(|account| &mut account.people);
    gates.chain(accounts).for_each(|people| people.look_up(&mut number));
}

/// A sentence for each user and group that the configuration names and this host does not have.
/// Blocks for ten seconds at most.
pub fn unknown(config: &Config) -> Vec<String> {
    let names = names();
    let (users, groups) = named(config);
    let until = Instant::now() + ALL_WAIT;
    let mut told = Vec::new();
    let mut unasked = 0;
    let all = users.iter().map(|(name, place)| ("user", name, place));
    for (kind, name, place) in all.chain(groups.iter().map(|(name, place)| ("group", name, place)))
    {
        if Instant::now() > until {
            unasked += 1;
            continue;
        }
        let number = if kind == "user" { names.user_id(name) } else { names.group_id(name) };
        match number {
            Number::Is(_) => {}
            Number::None => told.push(format!("{place}: {name} is not a {kind} of this host")),
            Number::NoAnswer => unasked += 1,
        }
    }
    if unasked > 0 {
        told.push(format!(
            "the name service did not say within {} s whether {unasked} more users and groups \
             exist",
            ALL_WAIT.as_secs()
        ));
    }
    told
}

/// Says them in the log.
pub fn warn_of_unknown(config: &Config) -> Vec<String> {
    let unknown = unknown(config);
    unknown.iter().for_each(|line| tracing::warn!("psched.yaml: {line}"));
    unknown
}

/// A sentence for each of these names, of those that get a weight, which no user has. A name of
/// which nothing is told in time passes. Blocks for ten seconds at most.
pub fn no_users_of(names_of_users: &[String]) -> Vec<String> {
    let until = Instant::now() + ALL_WAIT;
    let asked = names_of_users.iter().filter(|name| name.parse::<u32>().is_err());
    asked
        .filter(|name| Instant::now() < until && names().user_id(name) == Number::None)
        .map(|name| {
            format!(
                "{WEIGHT}{name}: {name} is not a user of this host; give a user's name (or a \
                 number, if the user has no name)"
            )
        })
        .collect()
}

/// Names of users and of groups, each with the first place that names it.
fn named(config: &Config) -> (BTreeMap<String, String>, BTreeMap<String, String>) {
    let (mut users, mut groups) = (BTreeMap::new(), BTreeMap::new());
    let mut add = |to_groups: bool, name: &str, place: &dyn Fn() -> String| {
        let to = if to_groups { &mut groups } else { &mut users };
        // (A number needs no name.)
        if name.parse::<u32>().is_err() && !to.contains_key(name) {
            to.insert(name.to_owned(), place());
        }
    };
    for name in &config.administrators {
        add(false, &name.to_string(), &|| "administrators".into());
    }
    let gates = config.machine.regions.iter().filter_map(|region| {
        let place = format!("the gate of region {}", region.name);
        Some((place, region.gate.people.as_ref()?))
    });
    let accounts = config.machine.accounts.iter();
    let accounts = accounts.map(|account| (format!("account {}", account.name), &account.people));
    for (place, people) in gates.chain(accounts) {
        for (who, to_groups) in people
            .users
            .iter()
            .map(|who| (who, false))
            .chain(people.groups.iter().map(|who| (who, true)))
        {
            if let Who::Name(name) = who {
                add(to_groups, name, &|| place.clone());
            }
        }
    }
    for shown in config.variables.show() {
        if let Some(name) = shown.name.strip_prefix(WEIGHT) {
            add(false, name, &|| shown.name.clone());
        }
    }
    (users, groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> Vec<String> {
        let nodes = "nodes:\n  - { nids: 0-1, processors: 2, flavors: [su, os, ap] }\n";
        unknown(&crate::config::read(&format!("{nodes}{text}")).expect("valid"))
    }

    #[test]
    fn users_and_groups_that_are_not_there_are_named() {
        assert_eq!(
            told("administrators: [root, 4000]\nvariables: { weight.user.root: 2 }"),
            [""; 0]
        );
        let text = "administrators: [nobody-1, 7]\nvariables: { weight.user.nobody-2: 2, weight.user.4001: 3 }\n\
                    accounts:\n  - { name: ocean, users: [root, nobody-3], groups: [nobodies, root] }\n\
                    regions:\n  - { name: all, nids: 0-1, gates: { users: [nobody-1, nobody-4] } }\n";
        assert_eq!(
            told(text),
            [
                "administrators: nobody-1 is not a user of this host",
                "weight.user.nobody-2: nobody-2 is not a user of this host",
                "account ocean: nobody-3 is not a user of this host",
                "the gate of region all: nobody-4 is not a user of this host",
                "account ocean: nobodies is not a group of this host",
            ]
        );
    }

    #[test]
    fn a_weight_is_of_a_user() {
        let names = ["root", "4001", "nobody-1"].map(str::to_owned);
        let told = no_users_of(&names);
        let [told] = &told[..] else { panic!("{told:?}") };
        assert!(told.starts_with("weight.user.nobody-1: nobody-1 is not a user of this host"));
    }
}
