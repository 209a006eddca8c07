//! The form of the file: which keys there are, and what each of them takes.
//!
//! # Problem
//! serde stops at the first key that it does not know. Whoever has mistyped three wants to hear of three, and of
//! what is wrong with the values beside them as well.
//!
//! # Approach
//! The [`Tree`] of the file is compared with a table of the keys ([`FILE`]). What does not fit is a problem, and is
//! left out; the rest goes on to serde, which finds nothing but what it expects, and then to
//! [`meaning`](super::meaning).

use super::tree::{Tree, Value};
use super::{At, PROBLEMS_MAX, Problem};
use crate::variables::nearest;
use serde_yaml::Value as Yaml;
use std::collections::BTreeMap;

/// What a key takes.
enum Form {
    /// A word or a number.
    Text,
    /// A list of them.
    Texts,
    /// A list of maps with these keys.
    Maps(&'static [(&'static str, Form)]),
    /// A map with these keys.
    Map(&'static [(&'static str, Form)]),
    /// Names and values, whatever the names are.
    Pairs,
}

/// The keys of the file.
const FILE: &[(&str, Form)] = &[
    ("nodes", Form::Maps(NODES)),
    ("regions", Form::Maps(REGIONS)),
    ("accounts", Form::Maps(ACCOUNTS)),
    ("administrators", Form::Texts),
    ("listening", Form::Text),
    ("state", Form::Text),
    ("network", Form::Text),
    ("certificates", Form::Text),
    ("variables", Form::Pairs),
];

/// The keys of an entry of `nodes`.
const NODES: &[(&str, Form)] = &[
    ("nids", Form::Text),
    ("processors", Form::Text),
    ("cpus", Form::Text),
    ("memory", Form::Text),
    ("flavors", Form::Texts),
    ("host", Form::Text),
    ("hosts", Form::Text),
];

/// The keys of an entry of `regions`.
const REGIONS: &[(&str, Form)] = &[
    ("name", Form::Text),
    ("domain", Form::Text),
    ("nids", Form::Text),
    ("flavors", Form::Texts),
    ("gates", Form::Map(GATES)),
];

/// The keys of the gates of a region.
const GATES: &[(&str, Form)] = &[
    ("width", Form::Text),
    ("users", Form::Texts),
    ("groups", Form::Texts),
    ("accounts", Form::Texts),
    ("mode", Form::Text),
    ("hours", Form::Text),
    ("time_limit", Form::Text),
    ("memory", Form::Text),
];

/// The keys of an entry of `accounts`.
const ACCOUNTS: &[(&str, Form)] =
    &[("name", Form::Text), ("users", Form::Texts), ("groups", Form::Texts)];

/// All keys there are, for the manual to be compared with.
#[cfg(test)]
pub(super) fn keys() -> impl Iterator<Item = &'static str> {
    [FILE, NODES, REGIONS, GATES, ACCOUNTS].into_iter().flatten().map(|(name, _)| *name)
}

/// What of the file has the right form, with the problems of the rest.
pub(super) fn fitting(tree: &Tree) -> (Yaml, Vec<Problem>) {
    let mut fit = Fit { problems: Vec::new() };
    let yaml = match &tree.value {
        Value::Nothing => Yaml::Null,
        _ => fit.map(tree, FILE, ""),
    };
    (yaml, fit.problems)
}

/// What is said of a key that has to be there; [`Fit`] has said more of an entry with a key that is not known.
pub(super) const MISSING: &str = "is missing";

/// Whether a key is said to be missing where more has been said: its entry or its value has another form, or a
/// key beside it is not known, and may be meant for it.
pub(super) fn says_no_more(missing: &Problem, problems: &[Problem]) -> bool {
    let entry = |key: &str| key.rsplit_once('.').map(|(entry, _)| entry.to_owned());
    let of = entry(&missing.key);
    let more = |p: &Problem| {
        let same = p.key == missing.key && p.what != MISSING;
        same || Some(&p.key) == of.as_ref() || p.what == UNKNOWN && entry(&p.key) == of
    };
    missing.what == MISSING && problems.iter().any(more)
}

const UNKNOWN: &str = "there is no such key";

struct Fit {
    problems: Vec<Problem>,
}

impl Fit {
    fn add(&mut self, at: At, key: &str, what: impl Into<String>, cure: impl Into<String>) {
        if self.problems.len() < PROBLEMS_MAX {
            let (key, what, cure) = (key.to_owned(), what.into(), cure.into());
            self.problems.push(Problem { at: Some(at), key, what, cure });
        }
    }

    /// The value of a key, which may be left out.
    fn value(&mut self, tree: &Tree, form: &Form, path: &str) -> Option<Yaml> {
        match tree.value {
            Value::Nothing => Some(Yaml::Null),
            _ => self.given(tree, form, path),
        }
    }

    fn given(&mut self, tree: &Tree, form: &Form, path: &str) -> Option<Yaml> {
        match (form, &tree.value) {
            (Form::Text, Value::Text(text)) => Some(Yaml::String(text.clone())),
            (Form::Texts, Value::List(entries)) => {
                let entries = entries.iter().zip(0..);
                let text = |(entry, i): (&Tree, usize)| {
                    self.given(entry, &Form::Text, &format!("{path}[{i}]"))
                };
                Some(Yaml::Sequence(entries.filter_map(text).collect()))
            }
            (Form::Maps(keys), Value::List(entries)) => {
                let entries = entries.iter().zip(0..);
                let map =
                    |(entry, i): (&Tree, usize)| self.map(entry, keys, &format!("{path}[{i}]"));
                Some(Yaml::Sequence(entries.map(map).collect()))
            }
            (Form::Map(keys), Value::Map(_)) => Some(self.map(tree, keys, path)),
            (Form::Pairs, Value::Map(pairs)) => {
                let mut map = serde_yaml::Mapping::new();
                for (key, tree) in pairs {
                    let path = format!("{path}.{}", key.name);
                    if map.contains_key(key.name.as_str()) {
                        self.add(key.at, &path, "is set twice", "set it once");
                    } else if let Some(value) = self.value(tree, &Form::Text, &path) {
                        map.insert(key.name.clone().into(), value);
                    }
                }
                Some(Yaml::Mapping(map))
            }
            (form, value) => {
                let is = match value {
                    Value::Nothing => "nothing",
                    Value::Text(_) => "a word",
                    Value::List(_) => "a list",
                    Value::Map(_) => "a map",
                };
                let (takes, cure) = match form {
                    Form::Text => ("a word or a number", "write it without brackets and dashes"),
                    Form::Texts => ("a list", "write it in brackets, such as [a, b]"),
                    Form::Maps(_) => {
                        ("a list of maps", "begin each entry with - on a line of its own")
                    }
                    Form::Map(_) => ("a map", "write { KEY: VALUE }"),
                    Form::Pairs => ("a map", "write NAME: VALUE, each on a line of its own"),
                };
                self.add(tree.at, path, format!("found {is}, and {takes} is expected"), cure);
                None
            }
        }
    }

    /// A map with these keys.
    fn map(&mut self, tree: &Tree, keys: &[(&str, Form)], path: &str) -> Yaml {
        let mut map = serde_yaml::Mapping::new();
        let names = || keys.iter().map(|(name, _)| *name);
        let Value::Map(pairs) = &tree.value else {
            let all: Vec<&str> = names().collect();
            let what = "keys and their values are expected here";
            self.add(tree.at, path, what, format!("the keys are {}", all.join(", ")));
            return Yaml::Mapping(map);
        };
        let mut lines: BTreeMap<&str, u32> = BTreeMap::new();
        for (key, tree) in pairs {
            let path =
                if path.is_empty() { key.name.clone() } else { format!("{path}.{}", key.name) };
            if let Some(line) = lines.get(key.name.as_str()) {
                let what = format!("is given twice, first on line {line}");
                self.add(key.at, &path, what, "keep one of them");
                continue;
            }
            lines.insert(&key.name, key.at.line);
            let Some((_, form)) = keys.iter().find(|(name, _)| *name == key.name) else {
                let cure =
                    match (key.name.as_str(), nearest(&key.name, names().map(|name| (name, name))))
                    {
                        ("<<", _) => "there are no merge keys: write out what is meant".to_owned(),
                        (_, Some(near)) => format!("did you mean {near}?"),
                        _ => {
                            format!("the keys here are {}", names().collect::<Vec<_>>().join(", "))
                        }
                    };
                self.add(key.at, &path, UNKNOWN, cure);
                continue;
            };
            if let Some(value) = self.value(tree, form, &path) {
                map.insert(key.name.clone().into(), value);
            }
        }
        Yaml::Mapping(map)
    }
}
