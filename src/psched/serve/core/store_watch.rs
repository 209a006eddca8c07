//! Whether the store thread answers.

use std::time::Duration;
use tokio::time::Instant;

/// How long the disk may take over records before those who only look, or have ordered something,
/// are answered all the same.
pub(super) const DISK_PATIENCE: Duration = Duration::from_secs(10);

/// Until when the loop waits for the store before it answers without it.
///
/// The time counts from the last answer of the store, or from the first record that was handed over
/// after it: time in which there was nothing to keep is not the disk's.
#[derive(Debug, Default)]
pub(super) struct Patience {
    since: Option<Instant>,
}

impl Patience {
    /// The store has answered.
    pub fn answered(&mut self) {
        self.since = None;
    }

    /// The end of the patience, if there is anything to wait for (`busy`: records are with the
    /// store). To be asked between any two inputs.
    pub fn until(&mut self, now: Instant, busy: bool) -> Option<Instant> {
        if !busy {
            self.since = None;
            return None;
        }
        Some(*self.since.get_or_insert(now) + DISK_PATIENCE)
    }
}

/// Whether the store thread answers, as the watchdog sees it.
///
/// A disk that refuses is an answer, again and again, and no reason to be started anew: psched says
/// so to whoever posts. A disk that does not answer at all is seen by nothing else.
#[derive(Debug)]
pub(super) struct StoreWatch {
    /// How long it may take over what it was given.
    bound: Duration,
    /// Since when it has had something to answer, and has not said a word.
    silent_since: Option<Instant>,
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
        self.silent_since.get_or_insert_with(Instant::now).elapsed() < self.bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_is_not_the_disks() {
        let mut patience = Patience::default();
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        assert_eq!(patience.until(at(0), false), None);
        // Nothing was asked for 11 s: a record handed over then counts from then.
        assert_eq!(patience.until(at(11), true), Some(at(21)));
        // More records do not put the end off.
        assert_eq!(patience.until(at(15), true), Some(at(21)));
        // An answer does, for those that are still with the store.
        patience.answered();
        assert_eq!(patience.until(at(16), true), Some(at(26)));
        patience.answered();
        assert_eq!(patience.until(at(17), false), None);
        assert_eq!(patience.until(at(60), true), Some(at(70)));
    }
}
