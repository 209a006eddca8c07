//! How far a replay is: a line on stderr, where that is a terminal.

use std::cell::Cell;
use std::io::{IsTerminal, Write};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How often the line is written anew; a replay that takes no longer has none.
const EVERY: Duration = Duration::from_millis(200);
/// How many changes go by between two looks at the clock.
const LOOK: u32 = 256;

/// How far a replay is.
pub struct Progress {
    label: String,
    /// Bytes of the log that have been read, and all.
    read: Rc<Cell<u64>>,
    size: u64,
    changes: u32,
    told: Instant,
    shown: bool,
}

impl Progress {
    /// `None`: nobody would see it.
    pub fn new(label: String, read: Rc<Cell<u64>>, size: u64) -> Option<Progress> {
        let told = Instant::now();
        let progress = Progress { label, read, size, changes: 0, told, shown: false };
        std::io::stderr().is_terminal().then_some(progress)
    }

    /// It is then in the log's time.
    pub fn at(&mut self, now: Duration, waiting: usize) {
        self.changes += 1;
        if !self.changes.is_multiple_of(LOOK) || self.told.elapsed() < EVERY {
            return;
        }
        self.told = Instant::now();
        self.shown = true;
        let percent = self.read.get().saturating_mul(100) / self.size.max(1);
        let (day, label) = (now.as_secs() / 86_400, &self.label);
        let line = format!("{label}: {percent} % of the log, day {day}, {waiting} jobs wait");
        let _ = write!(std::io::stderr(), "\r{line}\x1b[K");
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
