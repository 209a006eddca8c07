//! A front end and the apinit of PE 0; that apinit (the *head*) and those of the other hosts.
//!
//! To the others the head is what aprun is to the head: it passes the launch on, gathers `Ready`
//! and PMI barriers, says `Go`, and relays signals, ends and output.
//!
//! Output is numbered in bytes for each source and kept by the apshepherd until the front end says
//! that it has written it: a window bounds what lies between, and a lost apinit loses nothing.

use crate::apteam::ending::{Cause, Decisive};
use crate::apteam::launch::Launch;
use crate::apteam::{Key, Ticket};
use crate::machine::Nid;
use bytes::Bytes;
use std::time::Duration;

/// All output of a source up to `offset` bytes has been written out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputTaken {
    /// Index of the host in the placement.
    pub source: u32,
    /// Bytes from the start.
    pub offset: u64,
}

/// One key and value of PMI's key-value space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PmiEntry {
    /// The key.
    pub key: Bytes,
    /// Its value.
    pub value: Bytes,
}

/// Towards the apinit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToApinit {
    /// Begins the conversation: launch this.
    Launch { key: Key, ticket: Ticket, launch: Box<Launch> },
    /// Begins it anew after a break: output up to here has been written, so much stdin was sent.
    Resume { key: Key, ticket: Ticket, taken: Vec<OutputTaken>, stdin_sent: u64 },
    /// For PE 0.
    Stdin(Bytes),
    /// No more for PE 0.
    StdinEnd,
    /// Written out.
    OutputTaken(OutputTaken),
    /// For all PEs.
    Signal(i32),
    /// End it.
    Terminate { cause: Cause, kill_after: Duration },
    /// (From the head.) Let the PEs go.
    Go,
    /// (From the head.) The barrier is complete; these were put by anyone since the last one.
    BarrierOut(Vec<PmiEntry>),
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
}

/// From the apinit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromApinit {
    /// The launch (or the resumption) is taken.
    Accepted,
    /// It is not; with a cause when it was tried and failed.
    Refused { text: String, cause: Option<Cause> },
    /// All PEs go.
    Going,
    /// Bytes that PEs wrote.
    Output(Output),
    /// stdin may be sent up to so many bytes from the start.
    StdinCredit(u64),
    /// A line for stderr.
    Notice(String),
    /// Nothing more comes.
    Done,
    /// (To the head.) Every PE here has been executed and stands still.
    Ready,
    /// (To the head.) All PEs here are in the barrier; these were put since the last one.
    BarrierIn(Vec<PmiEntry>),
    /// (To the head.) Something that ends the application or decides its status.
    Decisive(Decisive),
}
