//! Counts the heartbeats of a connection that bring no sign of the other side.
//!
//! Heartbeats are counted and no time is measured: after this host itself has stood still only one more is
//! counted, and messages that have come meanwhile are read first.
//!
//! ```
//! # use psched_pure::apteam::silence::Silence;
//! # use std::time::Duration;
//! let mut silence = Silence::new(Duration::from_secs(6));
//! assert_eq!(silence.every(), Duration::from_secs(2));
//! silence.beat();
//! silence.heard();
//! (0..3).for_each(|_| silence.beat());
//! assert!(silence.is_over());
//! ```

use super::bounds::heartbeat;
use std::time::Duration;

/// How long the other side has said nothing, in heartbeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silence {
    every: Duration,
    most: u32,
    unheard: u32,
}

impl Silence {
    /// Of a connection that may be silent for so long; zero: without a bound.
    pub fn new(silence: Duration) -> Silence {
        let (every, most) = heartbeat(silence);
        Silence { every, most, unheard: 0 }
    }

    /// It may be silent for so long from now on. What was counted stays.
    pub fn allow(&mut self, silence: Duration) {
        (self.every, self.most) = heartbeat(silence);
    }

    /// The time between two heartbeats.
    pub fn every(&self) -> Duration {
        self.every
    }

    /// The other side has said something.
    pub fn heard(&mut self) {
        self.unheard = 0;
    }

    /// One more heartbeat is due, and nothing was heard since the last one.
    pub fn beat(&mut self) {
        self.unheard = self.unheard.saturating_add(1);
    }

    /// Whether the other side has been silent for too long.
    pub fn is_over(&self) -> bool {
        self.unheard >= self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_connection_is_silent_for_too_long_after_its_heartbeats() {
        for (bound, most) in [(6, 3), (15, 3), (16, 4), (60, 12)] {
            let mut silence = Silence::new(bound * SECOND);
            let beats = (1..).find(|_| {
                silence.beat();
                silence.is_over()
            });
            assert_eq!(beats, Some(most), "{bound} s");
        }
    }

    #[test]
    fn what_is_heard_counts_and_a_new_bound_keeps_the_count() {
        let mut silence = Silence::new(15 * SECOND);
        (0..2).for_each(|_| silence.beat());
        silence.heard();
        (0..2).for_each(|_| silence.beat());
        assert!(!silence.is_over());
        silence.allow(60 * SECOND);
        (0..9).for_each(|_| silence.beat());
        assert!(!silence.is_over());
        silence.beat();
        assert!(silence.is_over());
        silence.allow(Duration::ZERO);
        assert!(!silence.is_over(), "without a bound");
    }
}
