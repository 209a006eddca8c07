//! Which process is which PE.
//!
//! psched asks the apinits of an application, each of them asks its apshepherd, and the answers come back the
//! same way. Nothing is recorded, and nothing waits for an answer that does not come:
//!
//! ```text
//!   apstat --pids ----> psched ----> apinit ----> apshepherd     Question: ranks
//!                 <----        <----        <----                Answer: a process for each
//! ```
//!
//! A question names ranks, at most [`RANKS_MAX`], so that no message grows with an application. An apinit or
//! apshepherd of a release before skips it: whoever has asked gives up after a while, and says so.

use crate::apteam::Key;

/// The most PEs of one question. Their answer has some 60 KiB.
pub const RANKS_MAX: u32 = 4096;

/// Which processes are these PEs?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// By chance, from psched: its answer has it.
    pub number: u64,
    /// Of which application.
    pub key: Key,
    /// The lowest rank.
    pub first: u32,
    /// So many from there.
    pub count: u32,
}

impl Question {
    /// Whether it asks for this PE.
    ///
    /// ```
    /// # use psched_pure::apteam::{Key, protocol::processes::{Question, RANKS_MAX}};
    /// let question = Question { number: 1, key: Key::default(), first: 10, count: 2 };
    /// assert_eq!([9, 10, 11, 12].map(|rank| question.asks(rank)), [false, true, true, false]);
    /// let all = Question { first: 0, count: u32::MAX, ..question };
    /// assert!(all.asks(RANKS_MAX - 1) && !all.asks(RANKS_MAX));
    /// ```
    pub fn asks(&self, rank: u32) -> bool {
        rank.checked_sub(self.first).is_some_and(|at| at < self.count.min(RANKS_MAX))
    }
}

/// These.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Of the question.
    pub number: u64,
    /// Of which application. Nobody believes an apshepherd that.
    pub key: Key,
    /// Those of the PEs that are on this host, by rank.
    pub processes: Vec<PeProcess>,
    /// Why there is none, in words that follow `NID 3: `; empty: they are above.
    pub why_not: String,
}

/// The process of a PE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeProcess {
    /// Its rank.
    pub rank: u32,
    /// Its number; 0: it has ended. From an apshepherd as its own PID namespace has it, from an apinit as that
    /// of the host.
    pub pid: u32,
}
