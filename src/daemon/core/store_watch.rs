//! Whether the store thread answers.

use std::time::Duration;

/// Whether the store thread answers, as the watchdog sees it.
///
/// A disk that refuses is an answer, again and again, and no reason to be started anew: psched says
/// so to whoever posts. A disk that does not answer at all is seen by nothing else.
#[derive(Debug)]
pub(super) struct StoreWatch {
    /// How long it may take over what it was given.
    bound: Duration,
    /// Since when it has had something to answer, and has not said a word.
    silent_since: Option<tokio::time::Instant>,
}

impl StoreWatch {
    /// Twice the time between two looks is what the manager waits for a word.
    pub fn new(beat: Option<Duration>) -> StoreWatch {
        StoreWatch { bound: beat.unwrap_or(Duration::MAX).saturating_mul(2), silent_since: None }
    }

    /// It has said something.
    pub fn answered(&mut self) {
        self.silent_since = None;
    }

    /// Whether it is to be taken for alive now; `waiting`: something is with it.
    pub fn answers(&mut self, waiting: bool) -> bool {
        if !waiting {
            self.silent_since = None;
            return true;
        }
        self.silent_since.get_or_insert_with(tokio::time::Instant::now).elapsed() < self.bound
    }
}
