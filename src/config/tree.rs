//! The text of psched.yaml as a tree, each part with its place.
//!
//! # Problem
//! An administrator is helped by `psched.yaml:12:18`, and serde_yaml forgets lines and columns once it has read a
//! text. It also takes what nobody means in a file of nodes: anchors, which may unfold to more than there is
//! memory, tags, keys that are lists.
//!
//! # Approach
//! A parser of events (saphyr-parser) says what comes and where. What has no meaning here is refused as soon as it
//! comes, so that a hostile file costs no more than its first such place: nesting deeper than [`DEPTH_MAX`]
//! above all, for the time of a parser may grow with its square.
//!
//! ```text
//!   nodes:                       Map  nodes   1:1
//!     - { nids: 0-3 }                 [0]     2:5     Map  nids  2:7   "0-3"  2:13
//! ```

use super::{At, Problem};
use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span};

/// How deeply lists and maps may be nested. The file needs five.
const DEPTH_MAX: usize = 100;

/// A part of the file.
#[derive(Debug)]
pub(super) struct Tree {
    /// Where it begins.
    pub at: At,
    pub value: Value,
}

/// What it is.
#[derive(Debug)]
pub(super) enum Value {
    /// Nothing: `key:` and no more.
    Nothing,
    /// A word, a number, a text in quotes.
    Text(String),
    List(Vec<Tree>),
    /// In the order of the file, a key given twice too.
    Map(Vec<(Key, Tree)>),
}

/// A key of a map.
#[derive(Debug)]
pub(super) struct Key {
    pub at: At,
    pub name: String,
}

impl Tree {
    /// The place of a key path (`nodes[1].cpus`), or of what of it is there: of a text itself, of a list or map its
    /// key.
    pub fn place(&self, path: &str) -> At {
        self.find(path).unwrap_or(self.at)
    }

    fn find(&self, path: &str) -> Option<At> {
        if path.is_empty() {
            return None;
        }
        match &self.value {
            Value::List(entries) => {
                let (number, rest) = path.strip_prefix('[')?.split_once(']')?;
                let entry = entries.get(number.parse::<usize>().ok()?)?;
                Some(entry.find(rest.strip_prefix('.').unwrap_or(rest)).unwrap_or(entry.at))
            }
            Value::Map(pairs) => pairs.iter().find_map(|(key, tree)| {
                let rest = path.strip_prefix(key.name.as_str())?;
                let below = match rest.strip_prefix('.') {
                    Some(below) => below,
                    None if rest.is_empty() || rest.starts_with('[') => rest,
                    None => return None,
                };
                let own = if matches!(tree.value, Value::Text(_)) { tree.at } else { key.at };
                Some(tree.find(below).unwrap_or(own))
            }),
            Value::Nothing | Value::Text(_) => None,
        }
    }
}

/// Reads a text; one of comments only is [`Value::Nothing`].
pub(super) fn read(text: &str) -> Result<Tree, Problem> {
    let mut builder = Builder { stack: Vec::new(), done: None };
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| malformed(text, error.marker(), error.info()))?;
        builder.take(event, span)?;
    }
    Ok(builder.done.unwrap_or(Tree { at: At { line: 1, column: 1 }, value: Value::Nothing }))
}

/// What the parser could make nothing of.
fn malformed(text: &str, marker: &Marker, info: &str) -> Problem {
    let place = at(*marker);
    if info.contains("recursion limit") {
        // The parser reads ahead, and so may come to a limit of its own first.
        return too_deep(place);
    }
    // Where a tab is taken for an indent, what the parser says is mostly about something else, and in the line
    // before.
    let first = place.line.saturating_sub(1);
    let lines = (1..).zip(text.lines()).skip(first.saturating_sub(1) as usize).take(3);
    let tab = |(line, text): (u32, &str)| {
        let column = text[..text.len() - text.trim_start().len()].find('\t')?;
        Some(At { line, column: column as u32 + 1 })
    };
    match { lines }.find_map(tab) {
        Some(place) => problem(
            place,
            "a tab indents this line",
            "indent with spaces: YAML takes no tabs there",
        ),
        None => problem(place, info, "correct this first: the rest of the file was not read"),
    }
}

fn problem(at: At, what: impl Into<String>, cure: impl Into<String>) -> Problem {
    Problem { at: Some(at), key: String::new(), what: what.into(), cure: cure.into() }
}

fn too_deep(at: At) -> Problem {
    let what = format!("lists and maps are nested more than {DEPTH_MAX} deep");
    problem(at, what, "close each where it ends")
}

/// As people count.
fn at(marker: Marker) -> At {
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    At { line: number(marker.line()), column: number(marker.col()).saturating_add(1) }
}

/// A list or map that is not at its end.
struct Open {
    at: At,
    parts: Parts,
}

enum Parts {
    List(Vec<Tree>),
    /// And the key whose value comes next.
    Map(Vec<(Key, Tree)>, Option<Key>),
}

struct Builder {
    stack: Vec<Open>,
    done: Option<Tree>,
}

impl Builder {
    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), Problem> {
        let here = at(span.start);
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                plain(here, anchor, tag.is_some())?;
                let nothing = style == ScalarStyle::Plain && matches!(&*text, "" | "~" | "null");
                let value = if nothing { Value::Nothing } else { Value::Text(text.into_owned()) };
                self.put(Tree { at: here, value })
            }
            Event::SequenceStart(anchor, tag) => {
                plain(here, anchor, tag.is_some())?;
                self.open(here, Parts::List(Vec::new()))
            }
            Event::MappingStart(anchor, tag) => {
                plain(here, anchor, tag.is_some())?;
                self.open(here, Parts::Map(Vec::new(), None))
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(Open { at, parts }) = self.stack.pop() else { return Ok(()) };
                let value = match parts {
                    Parts::List(entries) => Value::List(entries),
                    Parts::Map(pairs, _) => Value::Map(pairs),
                };
                self.put(Tree { at, value })
            }
            Event::Alias(_) => {
                Err(problem(here, "an alias (*) is not supported", "write out what it stands for"))
            }
            Event::DocumentStart(_) if self.done.is_some() => Err(problem(
                here,
                "a second document is not supported",
                "leave out the --- and what follows it",
            )),
            _ => Ok(()),
        }
    }

    fn open(&mut self, at: At, parts: Parts) -> Result<(), Problem> {
        if self.stack.len() == DEPTH_MAX {
            return Err(too_deep(at));
        }
        if let Some(Open { parts: Parts::Map(_, None), .. }) = self.stack.last() {
            return Err(problem(at, "a key is a list or a map", "give a word as the key"));
        }
        self.stack.push(Open { at, parts });
        Ok(())
    }

    fn put(&mut self, tree: Tree) -> Result<(), Problem> {
        match self.stack.last_mut().map(|open| &mut open.parts) {
            None => self.done = Some(tree),
            Some(Parts::List(entries)) => entries.push(tree),
            Some(Parts::Map(pairs, next)) => match next.take() {
                Some(key) => pairs.push((key, tree)),
                None => match tree.value {
                    Value::Text(name) => *next = Some(Key { at: tree.at, name }),
                    _ => {
                        return Err(problem(tree.at, "a key is missing", "give a word as the key"));
                    }
                },
            },
        }
        Ok(())
    }
}

/// Neither an anchor nor a tag is on it.
fn plain(at: At, anchor: usize, tagged: bool) -> Result<(), Problem> {
    if anchor > 0 {
        return Err(problem(
            at,
            "an anchor (&) is not supported",
            "write out what is meant in each place",
        ));
    }
    if tagged {
        return Err(problem(
            at,
            "a tag (!) is not supported",
            "leave it out: each key has its type",
        ));
    }
    Ok(())
}
