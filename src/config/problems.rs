//! The problems of a psched.yaml: how they are told, and how they are gathered.

use std::fmt;
use std::path::Path;

/// Letters of a wrong value that are repeated in its problem.
const QUOTED_MAX: usize = 60;

/// Problems that are reported; more than these say nothing new.
pub const PROBLEMS_MAX: usize = 100;

/// A place in the text, both from 1 on; columns are of letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct At {
    /// Which line.
    pub line: u32,
    /// Which letter of it.
    pub column: u32,
}

/// One thing that is wrong with the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where it is; none: it is of the whole file.
    pub at: Option<At>,
    /// The path of the key, `nodes[1].processors`. Empty: `what` says it all.
    pub key: String,
    /// What is wrong.
    pub what: String,
    /// What would cure it.
    pub cure: String,
}

impl Problem {
    /// As compilers write it: `/etc/psched/psched.yaml:3:30: nodes[0].processors: what; cure`.
    pub fn of_file(&self, path: &Path) -> String {
        let blank = if self.at.is_some() { "" } else { " " };
        format!("{}:{blank}{self}", path.display())
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(At { line, column }) = self.at {
            write!(f, "{line}:{column}: ")?;
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        write!(f, "{}; {}", self.what, self.cure)
    }
}
/// The problems so far; where they are is looked up later, by their keys.
pub(super) struct Problems(pub Vec<Problem>);

impl Problems {
    /// Whether there is one of a key that begins like this.
    pub fn has(&self, key: &str) -> bool {
        self.0.iter().any(|problem| problem.key.starts_with(key))
    }

    pub fn add(
        &mut self,
        key: impl Into<String>,
        what: impl Into<String>,
        cure: impl Into<String>,
    ) {
        if self.0.len() < PROBLEMS_MAX {
            let (key, what, cure) = (key.into(), what.into(), cure.into());
            self.0.push(Problem { at: None, key, what, cure });
        }
    }
}

/// A wrong value as its problem repeats it: in quotes, cut off where it is long.
pub(super) fn quoted(text: &str) -> String {
    match text.char_indices().nth(QUOTED_MAX) {
        Some((end, _)) => format!("\"{}...\"", &text[..end]),
        None => format!("\"{text}\""),
    }
}
