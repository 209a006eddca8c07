//! The file as serde_yaml hands it over, once its form has been looked at ([`form`](super::form)).

use super::Problem;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_yaml::Value as Yaml;
use std::fmt;

/// The file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub nodes: Option<Vec<Nodes>>,
    pub regions: Option<Vec<Region>>,
    pub accounts: Option<Vec<Account>>,
    pub administrators: Option<Vec<Text>>,
    pub listening: Option<Text>,
    pub state: Option<Text>,
    pub network: Option<Text>,
    pub certificates: Option<Text>,
    pub variables: Option<Pairs>,
}

/// An entry of `nodes`: one node, or several that are alike.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Nodes {
    pub nids: Option<Text>,
    pub processors: Option<Text>,
    pub cpus: Option<Text>,
    pub memory: Option<Text>,
    pub flavors: Option<Vec<Text>>,
    pub host: Option<Text>,
    pub hosts: Option<Text>,
}

/// An entry of `regions`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Region {
    pub name: Option<Text>,
    pub domain: Option<Text>,
    pub nids: Option<Text>,
    pub flavors: Option<Vec<Text>>,
    pub gates: Option<Gates>,
}

/// The gates of a region.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Gates {
    pub width: Option<Text>,
    pub users: Option<Vec<Text>>,
    pub groups: Option<Vec<Text>>,
    pub accounts: Option<Vec<Text>>,
    pub mode: Option<Text>,
    pub hours: Option<Text>,
    pub time_limit: Option<Text>,
    pub memory: Option<Text>,
}

/// An entry of `accounts`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Account {
    pub name: Option<Text>,
    pub users: Option<Vec<Text>>,
    pub groups: Option<Vec<Text>>,
}

/// A single value as it was written, a number too: `nids: 0` and `nids: 0-3` are both good.
#[derive(Debug, Deserialize)]
pub(super) struct Text(pub String);

/// Keys and values in the order of the file.
#[derive(Debug, Default)]
pub(super) struct Pairs(pub Vec<(String, Option<Text>)>);

/// The file, of which only what fits is left.
pub(super) fn read(fitting: Yaml) -> Result<File, Problem> {
    // A file of comments only is an empty one.
    let file: Result<Option<File>, _> = serde_yaml::from_value(fitting);
    file.map(Option::unwrap_or_default).map_err(|error| Problem {
        at: None,
        key: String::new(),
        what: error.to_string(),
        cure: "psched.yaml(5) describes the file".into(),
    })
}

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Pairs, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Pairs;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("names and values, such as kill_grace: 5s")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        from.deserialize_map(InOrder)
    }
}
