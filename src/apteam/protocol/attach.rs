//! A front end and the apinit of PE 0.
//!
//! Output is numbered in bytes for each source and kept by the apshepherd until the front end says
//! that it has written it: a window bounds what lies between, and a lost apinit loses nothing.
//!
//! What goes down is numbered for the same reason, and whoever sends it keeps it until the
//! apshepherd is known to have it: stdin by bytes ([`StdinCredit`]), signals and barriers one by
//! one. An apinit that dies with some of it in its hands is told it again, and what the apshepherd
//! has had already it knows by the number.

use super::notice::Notice;
use crate::apteam::ending::{Cause, PeReport};
use crate::apteam::launch::Launch;
use crate::apteam::{Key, Ticket};
use crate::machine::Nid;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// All output of a source up to `offset` bytes has been written out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputTaken {
    /// Index of the host in the placement.
    pub source: u32,
    /// Bytes from the start.
    pub offset: u64,
}

/// Bytes of stdin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StdinPiece {
    /// Bytes of stdin before these.
    pub offset: u64,
    /// The bytes.
    pub data: Bytes,
}

impl StdinPiece {
    /// Bytes of stdin up to its end.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.data.len() as u64)
    }
}

/// How much of stdin may be sent, and how much need not be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct StdinCredit {
    /// It may be sent up to so many bytes from the start.
    pub credit: u64,
    /// The apshepherd has it up to here.
    pub received: u64,
}

/// A signal for all PEs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumberedSignal {
    /// Counted up from 1 by the front end, and above [`PSCHED_SIGNALS`] by psched, so that one that is
    /// said again is passed on once; 0: not counted.
    pub number: u64,
    /// Which signal.
    pub signal: i32,
}

/// psched's signals have higher numbers, the front end's lower ones.
pub const PSCHED_SIGNALS: u64 = 1 << 63;

/// Up to which numbers signals have come, of the two who count.
///
/// ```
/// # use psched_pure::apteam::protocol::attach::{PSCHED_SIGNALS, TakenSignals};
/// let mut taken = TakenSignals::default();
/// assert!(taken.take(2) && !taken.take(1) && taken.take(PSCHED_SIGNALS + 1));
/// assert_eq!(taken.numbers().collect::<Vec<_>>(), [2, PSCHED_SIGNALS + 1]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct TakenSignals {
    front: u64,
    psched: u64,
}

impl TakenSignals {
    fn of(&mut self, number: u64) -> &mut u64 {
        if number > PSCHED_SIGNALS { &mut self.psched } else { &mut self.front }
    }

    /// Takes a number in; says whether it is new.
    pub fn take(&mut self, number: u64) -> bool {
        let highest = self.of(number);
        let new = number > *highest;
        *highest = number.max(*highest);
        new
    }

    /// Whether this one has come.
    pub fn has(mut self, number: u64) -> bool {
        number <= *self.of(number)
    }

    /// What both have.
    pub fn and(self, other: TakenSignals) -> TakenSignals {
        TakenSignals { front: self.front.min(other.front), psched: self.psched.min(other.psched) }
    }

    /// The highest of each who counts; none of one of whom nothing has come.
    pub fn numbers(self) -> impl Iterator<Item = u64> {
        [self.front, self.psched].into_iter().filter(|number| *number > 0)
    }
}

/// From a front end to the apinit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToApinit {
    /// Begins the conversation: launch this.
    Launch { key: Key, ticket: Ticket, launch: Box<Launch> },
    /// Begins it anew after a break: output up to here has been written.
    Resume { key: Key, ticket: Ticket, taken: Vec<OutputTaken> },
    /// For PE 0.
    Stdin(StdinPiece),
    /// No more for PE 0: so many bytes in all.
    StdinEnd(u64),
    /// Written out.
    OutputTaken(OutputTaken),
    /// For all PEs.
    Signal(NumberedSignal),
    /// End it, for a reason of the front end's own.
    Terminate { reason: FrontReason, kill_after: Duration },
}

/// Why a front end has its application ended. It can speak for itself only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrontReason {
    /// Its standard output is closed.
    StdoutClosed,
    /// What PEs wrote can't be written any more.
    Gone,
    /// It withdraws the launch, for it has this signal.
    Withdrawn { signal: i32 },
}

impl From<FrontReason> for Cause {
    fn from(reason: FrontReason) -> Cause {
        match reason {
            FrontReason::StdoutClosed => Cause::StdoutClosed,
            FrontReason::Gone | FrontReason::Withdrawn { .. } => Cause::FrontGone,
        }
    }
}

/// Output of one PE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Which host's part: its index in the placement's hosts. (A shepherd leaves it 0; its apinit
    /// sets it.)
    pub source: u32,
    /// Bytes of that source before these.
    pub offset: u64,
    /// Who wrote it.
    pub rank: u32,
    /// Where.
    pub nid: Nid,
    /// To stderr, else to stdout.
    pub stderr: bool,
    /// The bytes.
    pub data: Bytes,
    /// The third kind: no output, but how that PE has ended, where the launch asks for it. Its data is
    /// [`REPORT_DATA`], which nobody writes out; by it the report has its place among the output, is
    /// kept, repeated and acknowledged as that, and is never cut in two.
    pub report: Option<PeReport>,
}

/// The byte that a report counts as.
pub const REPORT_DATA: Bytes = Bytes::from_static(b"\n");

impl Output {
    /// Bytes of its source up to its end.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.data.len() as u64)
    }
}

/// From the apinit to a front end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromApinit {
    /// The launch (or the resumption) is taken.
    Accepted,
    /// It is not; with a cause when it was tried and failed.
    Refused { text: String, cause: Option<Cause> },
    /// It can't be had now, for a reason that passes by itself: to be tried again.
    NotNow(String),
    /// All PEs go.
    Going,
    /// Bytes that PEs wrote.
    Output(Output),
    /// stdin may be sent so far.
    StdinCredit(StdinCredit),
    /// Signals up to this number have come to all PEs' apshepherds.
    SignalsTaken(u64),
    /// For its user.
    Notice(Notice),
    /// Hosts want copies of the program of this part, counted from 0.
    ProgramWanted(u32),
    /// Nothing more comes.
    Done,
}
