//! The apinit of PE 0 (the *head*) and those of the other hosts of its application.
//!
//! To the others the head is what aprun is to the head: it passes the launch on, gathers `Ready` and PMI barriers, says
//! `Go`, and relays signals, ends and output. It speaks for the whole application, as no front end may: the two are
//! protocols of their own ([`super::attach`]), and what is common to both is in the parts that messages are made of.

use super::attach::{NumberedSignal, Output, OutputTaken};
use super::notice::Notice;
use crate::apteam::ending::{Cause, Decisive};
use crate::apteam::launch::Launch;
use crate::apteam::{Key, Ticket};
use bytes::Bytes;
use std::time::Duration;

/// One key and value of PMI's key-value space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PmiEntry {
    /// The key.
    pub key: Bytes,
    /// Its value.
    pub value: Bytes,
}

impl PmiEntry {
    /// At least as many bytes as it takes in a message, and as good a measure of the memory.
    pub fn cost(&self) -> usize {
        self.key.len() + self.value.len() + PMI_ENTRY_COST
    }
}

/// What an entry costs in a message beside its key and its value, in bytes, rounded up.
pub const PMI_ENTRY_COST: usize = 16;

/// The most of entries that goes in one piece of a [`BarrierOut`], in bytes of their cost.
pub const BARRIER_PIECE_MAX: usize = 1024 * 1024;

/// All PEs of a host are in a PMI barrier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BarrierIn {
    /// Which one, counted from 1.
    pub generation: u64,
    /// What they have put since the one before.
    pub entries: Vec<PmiEntry>,
}

/// The PEs of all hosts are in a PMI barrier: what anyone has put since the one before, in pieces
/// that fit in a frame. With the last piece they go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BarrierOut {
    /// Which one.
    pub generation: u64,
    /// Counted from 0.
    pub piece: u32,
    /// There is no further piece.
    pub last: bool,
    /// The entries.
    pub entries: Vec<PmiEntry>,
}

impl BarrierOut {
    /// All pieces of one, in order: at least one, and each fits in a frame.
    pub fn pieces(generation: u64, entries: Vec<PmiEntry>) -> Vec<BarrierOut> {
        let mut pieces: Vec<BarrierOut> = Vec::new();
        let mut room = 0;
        for entry in entries {
            let cost = entry.cost();
            match pieces.last_mut() {
                Some(piece) if cost <= room => piece.entries.push(entry),
                _ => {
                    let piece = pieces.len() as u32;
                    pieces.push(BarrierOut {
                        generation,
                        piece,
                        last: false,
                        entries: vec![entry],
                    });
                    room = BARRIER_PIECE_MAX;
                }
            }
            room = room.saturating_sub(cost);
        }
        match pieces.last_mut() {
            Some(last) => last.last = true,
            None => {
                pieces.push(BarrierOut { generation, piece: 0, last: true, entries: Vec::new() })
            }
        }
        pieces
    }
}

/// From the head to another apinit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToPeer {
    /// Begins the conversation: launch your part of this.
    Launch { key: Key, ticket: Ticket, launch: Box<Launch> },
    /// Begins it anew after a break, or once the head's front end has come back: output up to here has been written.
    Resume { key: Key, ticket: Ticket, taken: Vec<OutputTaken> },
    /// Written out.
    OutputTaken(OutputTaken),
    /// For all PEs.
    Signal(NumberedSignal),
    /// End it.
    Terminate { cause: Cause, kill_after: Duration },
    /// Let the PEs go.
    Go,
    /// The barrier is complete.
    BarrierOut(BarrierOut),
}

/// From another apinit to the head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromPeer {
    /// The launch (or the resumption) is taken.
    Accepted,
    /// It is not; with a cause when it was tried and failed. The head takes this for the last word about that host.
    Refused { text: String, cause: Option<Cause> },
    /// It can't be had now, for a reason that passes by itself: to be tried again.
    NotNow(String),
    /// Every PE here has been executed and stands still.
    Ready,
    /// All PEs here go.
    Going,
    /// Bytes that PEs wrote.
    Output(Output),
    /// Signals up to this number have come to the apshepherd.
    SignalsTaken(u64),
    /// For its user.
    Notice(Notice),
    /// All PEs here are in the barrier.
    BarrierIn(BarrierIn),
    /// Something that ends the application or decides its status.
    Decisive(Decisive),
    /// Nothing more comes.
    Done,
}
