//! The first pass: the form of the file, by serde_yaml. This is the only module that knows of it.

use super::Problem;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use std::fmt;

/// How deeply brackets may be nested. The file needs three; the parser's time grows with the square
/// of the depth.
const DEPTH_MAX: usize = 100;

/// The file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub nodes: Option<Vec<Nodes>>,
    pub administrators: Option<Vec<Text>>,
    pub listening: Option<Text>,
    pub state: Option<Text>,
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
}

/// A single value as it was written, a number too: `nids: 0` and `nids: 0-3` are both good.
#[derive(Debug)]
pub(super) struct Text(pub String);

/// Keys and values in the order of the file, so that a key given twice is not lost.
#[derive(Debug, Default)]
pub(super) struct Pairs(pub Vec<(String, Text)>);

/// Reads the form.
pub(super) fn read(text: &str) -> Result<File, Problem> {
    if let Some(line) = too_deep(text) {
        return Err(Problem {
            key: String::new(),
            what: format!("line {line}: brackets are nested more than {DEPTH_MAX} deep"),
            cure: "close them where their list or map ends".into(),
        });
    }
    // A file of comments only is an empty one.
    let file: Result<Option<File>, _> = serde_yaml::from_str(text);
    file.map(Option::unwrap_or_default).map_err(|error| Problem {
        key: String::new(),
        what: error.to_string(),
        cure: "correct that place first, what follows it was not looked at; \
               psched.yaml(5) describes the file"
            .into(),
    })
}

/// The line where brackets are nested too deeply, if there is one. It looks at no quotes: nobody
/// needs so many that are not closed.
fn too_deep(text: &str) -> Option<usize> {
    let mut depth = 0usize;
    for (line, text) in (1..).zip(text.lines()) {
        let comment = if text.starts_with('#') { Some(0) } else { text.find(" #") };
        for byte in text[..comment.unwrap_or(text.len())].bytes() {
            match byte {
                b'[' | b'{' => depth += 1,
                b']' | b'}' => depth = depth.saturating_sub(1),
                _ => continue,
            }
            if depth > DEPTH_MAX {
                return Some(line);
            }
        }
    }
    None
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Text, D::Error> {
        struct Any;
        impl Visitor<'_> for Any {
            type Value = Text;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a word or a number")
            }
            fn visit_str<E>(self, value: &str) -> Result<Text, E> {
                Ok(Text(value.into()))
            }
            fn visit_bool<E>(self, value: bool) -> Result<Text, E> {
                Ok(Text(value.to_string()))
            }
            fn visit_u64<E>(self, value: u64) -> Result<Text, E> {
                Ok(Text(value.to_string()))
            }
            fn visit_i64<E>(self, value: i64) -> Result<Text, E> {
                Ok(Text(value.to_string()))
            }
            fn visit_u128<E>(self, value: u128) -> Result<Text, E> {
                Ok(Text(value.to_string()))
            }
            fn visit_i128<E>(self, value: i128) -> Result<Text, E> {
                Ok(Text(value.to_string()))
            }
            fn visit_f64<E>(self, value: f64) -> Result<Text, E> {
                Ok(Text(value.to_string()))
            }
        }
        from.deserialize_any(Any)
    }
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
