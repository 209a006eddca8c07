//! Stacks of the threads of a running PE: `apstat --stacks APID`.
//!
//! The question goes the way of the one for processes ([`super::processes`]), one for each PE. The apshepherd of
//! the PE has a debugger write the stacks, with its user's rights:
//!
//! ```text
//!   apstat --stacks ----> psched ----> apinit ----> apshepherd ----> gdb -p PID
//!                   <----        <----        <----            <----
//! ```
//!
//! The debugger works in the control group of its PE's node. Only apinit may put it there: the apshepherd makes a
//! process that waits, names it to apinit ([`Made`]), and lets it become the debugger once apinit says that it is
//! there ([`Placed`]).
//!
//! When the user who asks has gone, psched withdraws the question, and apinit passes that on.
//!
//! An apinit or apshepherd of a release before does not know the question. Their hellos say so, and whoever asks
//! is told which of them is to be upgraded.

use crate::apteam::Key;
use crate::machine::Nid;
use std::time::Duration;

/// The most text of one PE, in bytes.
pub const TEXT_MAX: usize = 64 << 10;

/// How long an apshepherd has for its answer, with the time until it is the turn of its gang.
pub const WITHIN: Duration = Duration::from_secs(30);

/// Debuggers that work at once, of one application on one host: as many for questions of administrators as for
/// those of its user.
pub const AT_ONCE: usize = 4;

/// Where do the threads of this PE stand?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// By chance, from psched: its answer has it.
    pub number: u64,
    /// Of which application.
    pub key: Key,
    /// The PE.
    pub rank: u32,
    /// Whose question it is, as psched knows it from the kernel or a certificate.
    pub uid: u32,
    /// The user is an administrator.
    pub administrator: bool,
}

/// A debugger that has been made for a question, and waits for its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Made {
    /// Of the question.
    pub number: u64,
    /// The node on which its PE was launched.
    pub nid: Nid,
    /// Its process, as the apshepherd numbers it.
    pub pid: u32,
    /// It is no debugger, but will be a program that a PE spawns, and of no question: the number is the apshepherd's.
    pub spawned: bool,
}

/// Whether the debugger of a question is in the control group of its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Of the question.
    pub number: u64,
    /// Why it is not, in words that follow `PE 3: `; empty: it is.
    pub why_not: String,
    /// As in [`Made::spawned`].
    pub spawned: bool,
}

/// There, or why that can't be said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Of the question.
    pub number: u64,
    /// Of which application. An apshepherd is not believed that.
    pub key: Key,
    /// The PE.
    pub rank: u32,
    /// Its process, as [`super::processes::PeProcess`] has it.
    pub pid: u32,
    /// What the debugger has written: text of the program's making.
    pub text: String,
    /// There was more of it than [`TEXT_MAX`].
    pub cut: bool,
    /// Why there is no text, in words that follow `PE 3: `; empty: it is above.
    pub why_not: String,
}

impl Answer {
    /// There is none, because of this.
    pub fn none(question: Question, why_not: impl Into<String>) -> Answer {
        let Question { number, key, rank, .. } = question;
        let why_not = why_not.into();
        Answer { number, key, rank, pid: 0, text: String::new(), cut: false, why_not }
    }
}
