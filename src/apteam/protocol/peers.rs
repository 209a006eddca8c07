//! The apinit of PE 0 (the *head*) and those of the other hosts of its application.
//!
//! To the others the head is what aprun is to the head: it passes the launch on, gathers `Ready` and PMI barriers, says
//! `Go`, and relays signals, ends and output. It speaks for the whole application, as no front end may: the two are
//! protocols of their own ([`super::attach`]), and what is common to both is in the parts that messages are made of.
//!
//! **Trees.** The head of an application on many hosts has streams to some of them, and each of these leads on
//! ([`ToPeer::Lead`]): what is said on it names those whom it is for ([`ToPeer::Pass`]), and what comes from beyond names
//! its host ([`FromPeer::Beyond`]). So each conversation is as without a tree, and a message for everybody goes once over
//! each stream.

use super::attach::{NumberedSignal, Output, OutputTaken};
use super::letters::Letter;
use super::notice::Notice;
use crate::apteam::ending::{Cause, Decisive};
use crate::apteam::launch::Launch;
use crate::apteam::place::HostAddress;
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

/// A host that is reached through another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Onward {
    /// Its index in the hosts of its application.
    pub index: u32,
    /// Where it is.
    pub at: HostAddress,
}

/// Hosts of an application by their indices: runs that follow each other, each by its first and how many it has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Indices(pub Vec<(u32, u32)>);

impl Indices {
    /// These, which count up.
    pub fn of(indices: impl IntoIterator<Item = u32>) -> Indices {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for index in indices {
            match runs.last_mut() {
                Some((first, count)) if index == first.saturating_add(*count) => *count += 1,
                _ => runs.push((index, 1)),
            }
        }
        Indices(runs)
    }

    /// Whether it is among them. Looks at few of the runs, which count up: another host may send a million.
    pub fn has(&self, index: u32) -> bool {
        let after = self.0.partition_point(|(first, _)| *first <= index);
        let run = after.checked_sub(1).and_then(|at| self.0.get(at));
        run.is_some_and(|(first, count)| index - first < *count)
    }
}

/// A message for these hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pass {
    /// Which.
    pub to: Indices,
    /// The message, which is no other `Pass`.
    pub message: ToPeer,
}

/// A message from the host of this index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beyond {
    /// Which.
    pub index: u32,
    /// The message, which is no other `Beyond`.
    pub message: FromPeer,
}

/// From the head to another apinit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToPeer {
    /// Begins a stream that leads on: to host `index` of the application, which is spoken to, and through it to these.
    /// It has a stream to `fan_out` of them at most, which lead on to the others.
    Lead { key: Key, index: u32, fan_out: u32, hosts: Vec<Onward> },
    /// (On such a stream.) For some of the hosts.
    Pass(Box<Pass>),
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
    /// For the host of one of its PEs.
    Letter(Letter),
    /// (Of a launch that allows copies.) From these it has programs, the first before the next.
    Sources {
        /// At most [`SOURCES_MAX`].
        hosts: Vec<HostAddress>,
    },
}

/// The most hosts from which one has programs.
pub const SOURCES_MAX: usize = 4;

/// From another apinit to the head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromPeer {
    /// (On a stream that leads on.) From a host that is reached through the one that is spoken to.
    Beyond(Box<Beyond>),
    /// (On such a stream.) Nothing more comes from there: the stream beyond is closed, and this is why.
    Lost(String),
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
    /// For the host of a PE of another host.
    Letter(Letter),
    /// Something that ends the application or decides its status.
    Decisive(Decisive),
    /// Nothing more comes.
    Done,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn runs_are_their_indices(indices in proptest::collection::btree_set(0u32..40, 0..30)) {
            let runs = Indices::of(indices.iter().copied());
            let again: BTreeSet<u32> = (0..50).filter(|index| runs.has(*index)).collect();
            prop_assert_eq!(&again, &indices);
            prop_assert!(runs.0.len() <= indices.len());
        }
    }

    #[test]
    fn those_that_follow_each_other_are_one_run() {
        assert_eq!(Indices::of([1, 2, 3, 7, 9, 10]).0, [(1, 3), (7, 1), (9, 2)]);
        assert!(Indices(vec![(u32::MAX, u32::MAX)]).has(u32::MAX));
    }
}
