//! apkill's signals: each one that psched has taken comes to each PE once, or, where the PE ends first,
//! not at all.

use super::Checks;
use crate::apteam::Key;
use std::collections::BTreeMap;

/// The first real-time signal, which no program of the cluster ends by.
pub const SIGRTMIN: i32 = 34;
/// The last.
const SIGRTMAX: i32 = 64;

/// The signals of one launch of an application.
#[derive(Debug)]
pub(super) struct Signals {
    /// The next one that nobody has sent to it.
    next: i32,
    /// Those that psched has said it has taken, in order.
    taken: Vec<i32>,
    /// The last one that came to each rank.
    came: BTreeMap<u32, i32>,
}

impl Default for Signals {
    fn default() -> Signals {
        Signals { next: SIGRTMIN, taken: Vec::new(), came: BTreeMap::new() }
    }
}

impl Checks {
    /// A signal that has not been sent to this launch; none: all have been.
    pub fn new_signal(&mut self, key: Key) -> Option<i32> {
        let signals = self.signals.entry(key).or_default();
        let signal = Some(signals.next).filter(|signal| *signal <= SIGRTMAX);
        signals.next += 1;
        signal
    }

    /// psched has said that it will come.
    pub fn signal_taken(&mut self, key: Key, signal: i32) {
        self.signals.entry(key).or_default().taken.push(signal);
    }

    /// It comes to a PE. They come in the order in which they were sent, so that one that comes late
    /// has come before, and one that is passed over is lost.
    pub fn signal_came(&mut self, key: Key, rank: u32, signal: i32) {
        let Some(signals) = self.signals.get_mut(&key).filter(|s| signal < s.next) else {
            return self.broken(format!("PE {rank} of {key} gets signal {signal}, unsent"));
        };
        let before = signals.came.insert(rank, signal).unwrap_or(0);
        let lost = signals.taken.iter().find(|s| **s > before && **s < signal).copied();
        if signal <= before {
            self.broken(format!("PE {rank} of {key} gets signal {signal} again, after {before}"));
        } else if let Some(lost) = lost {
            self.broken(format!(
                "PE {rank} of {key} gets signal {signal}, and {lost}, which psched took, never came"
            ));
        }
    }
}
