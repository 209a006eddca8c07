//! The last events, for whoever has to understand a failure.
//!
//! Nothing is formatted in an ordinary run. A seed that fails is run once more with this on: it is
//! the same to the last event.

use std::collections::VecDeque;

/// Lines that are shown of a failure.
pub const LINES: u32 = 400;
/// Characters of one.
const SHOWN: usize = 260;

/// A ring of lines.
#[derive(Debug, Default)]
pub struct Trace {
    /// How many lines are kept: none, usually.
    most: usize,
    lines: VecDeque<String>,
}

impl Trace {
    /// A trace of the last lines.
    pub fn new(most: usize) -> Trace {
        Trace { most, lines: VecDeque::new() }
    }

    /// Whether it is worth while to make a line.
    pub fn on(&self) -> bool {
        self.most > 0
    }

    /// Keeps one.
    pub fn line(&mut self, now: u64, text: String) {
        if self.most == 0 {
            return;
        }
        if self.lines.len() == self.most {
            self.lines.pop_front();
        }
        self.lines.push_back(format!("{:>14.6} {text}", now as f64 / 1e9));
    }

    /// What was kept.
    pub fn take(&mut self) -> Vec<String> {
        self.lines.drain(..).collect()
    }
}

/// Anything, in at most a line's length.
pub fn cut(what: &impl std::fmt::Debug) -> String {
    let text = format!("{what:?}");
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}
