//! What is known of the signals of an application.

use crate::apteam::protocol::attach::{NumberedSignal, PSCHED_SIGNALS, TakenSignals};
use std::collections::VecDeque;

/// What is known of an application's signals.
#[derive(Debug, Default)]
pub(super) struct Signals {
    /// (Head.) Those that not everybody is known to have.
    pub(super) kept: VecDeque<NumberedSignal>,
    /// The highest numbers that have come from above.
    pub(super) seen: TakenSignals,
    /// The highest that the shepherd here has.
    pub(super) own: TakenSignals,
    /// Everybody has them up to here.
    pub(super) all: TakenSignals,
}

impl Signals {
    /// What a front end that has come back need not say again.
    pub fn taken(&self, head: bool) -> impl Iterator<Item = u64> {
        let taken = if head { self.all } else { self.own };
        // Of a head's front end psched's are none of its business.
        taken.numbers().filter(move |number| !head || *number <= PSCHED_SIGNALS)
    }

    /// For a host that has come back.
    pub fn kept(&self) -> impl Iterator<Item = &NumberedSignal> {
        self.kept.iter()
    }
}
