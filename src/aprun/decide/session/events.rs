//! What comes in and what goes out: events, actions and the data in them.

use crate::apteam::ending::Cause;
use crate::apteam::launch::Launch;
use crate::apteam::place::{HostAddress, HostPart, PlacementList};
use crate::apteam::posting::Explanation;
use crate::apteam::protocol::attach::{FromApinit, Output, ToApinit};
use crate::apteam::protocol::programs::ProgramOf;
use crate::apteam::{Apid, Key, Ticket};
use crate::machine::Nid;
use crate::variables::units::nanos;
use bytes::Bytes;
use std::time::Duration;

use super::report_row::ReportRow;
pub use crate::aprun::decide::closing::Ended;

/// A placement, as psched answers a look.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Placement {
    /// The application and its incarnation.
    pub key: Key,
    /// Where its PEs go.
    pub places: PlacementList,
    /// The apinits; the first holds PE 0.
    pub hosts: Vec<HostPart>,
    /// The proof that it is ours.
    pub ticket: Ticket,
    /// The host of this aprun, by its certificate; empty: it has none.
    pub front_host: String,
}

/// An event of the stream of a posting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PschedEvent {
    /// The record is durable.
    Accepted(Apid),
    /// Look: there may be a placement, of this incarnation.
    Placed(u32),
    /// The launch is known.
    Launched,
    /// It waits, and why.
    Waiting(Explanation),
    /// A launch has failed by a node's fault before any PE ran, and it waits for another place.
    Retried(Retried),
    /// Say what would be launched, for a checkpoint.
    AskLaunch,
    /// It is over.
    Ended(Box<Ended>),
}

/// A launch that is tried again elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retried {
    /// The placement whose launch has failed.
    pub incarnation: u32,
    /// Why.
    pub cause: Cause,
    /// The how many-th retry comes now, and of how many.
    pub attempt: u32,
    /// See `attempt`.
    pub most: u32,
}

/// The answer to a look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Looked {
    /// Go there.
    Placement(Box<Placement>),
    /// Not yet, and why.
    Waiting(Explanation),
    /// It is over.
    Ended(Box<Ended>),
    /// No answer, and why.
    Failed(String),
}

/// How output failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Nobody reads stdout any more.
    StdoutClosed,
    /// Writing failed; the text names the file and the reason.
    Failed(String),
}

/// What comes from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// All is ready: begin.
    Start,
    /// Connected with psched, which has this pid (as the kernel says of the connection).
    PschedUp {
        /// The pid.
        pid: i32,
    },
    /// Not, or no more.
    PschedDown {
        /// Why.
        text: String,
        /// Nobody listens there, nor did a moment ago: no use to try again.
        absent: bool,
        /// psched itself has said that it can't do now what it was asked.
        answered: bool,
    },
    /// psched has refused the posting, or knows it no more.
    PschedRefused(String),
    /// psched tells.
    Psched(PschedEvent),
    /// psched answers a look.
    Looked(Looked),
    /// psched answers a kill.
    Killed,
    /// The files of --output and --error are open, or can't be opened.
    Files(Result<(), String>),
    /// The connection with the apinit is gone, or never was (`connected`).
    ApinitDown {
        /// Why.
        text: String,
        /// What was to be said first has been sent.
        connected: bool,
    },
    /// The apinit tells.
    Apinit(FromApinit),
    /// A signal came.
    Signal {
        /// Its number.
        signal: i32,
        /// Who sent it, where a process did.
        sender: Option<i32>,
    },
    /// psched's own signal came: there may be a placement.
    Nudged,
    /// So much was read from stdin.
    Stdin(Bytes),
    /// stdin is at its end.
    StdinEnd,
    /// Something that the user should know.
    Trouble(String),
    /// A piece of output has been written out, or thrown away because nobody wants it.
    Written {
        /// Of this source.
        source: u32,
        /// The piece that ends at this byte.
        end: u64,
    },
    /// Output can't be written.
    OutputLost(Loss),
    /// The deadline that was asked for is over.
    Time,
}

/// What to ask psched on a new stream of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// To take the posting, which may be there already.
    Post,
    /// To go on telling of this application.
    Watch(Apid),
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Connect with psched where there is no connection, and ask for events.
    Psched(Ask),
    /// Ask psched for the placement.
    Look(Apid),
    /// Ask psched to send this signal to the application, which ends a posting.
    Kill {
        /// Which application.
        apid: Apid,
        /// The signal.
        signal: i32,
    },
    /// Say to psched what would be launched.
    Deposit(Apid),
    /// Open the files of --output and --error.
    OpenFiles(Box<Placement>),
    /// Connect with this apinit; say this first. What was connected before is dropped.
    Attach {
        /// Where it is: with an address, on another host.
        at: HostAddress,
        /// The first message.
        first: Box<ToApinit>,
    },
    /// Say this to the apinit.
    Send(ToApinit),
    /// Send it the bytes of this program.
    Hand(ProgramOf),
    /// Read from stdin, at most so many bytes.
    ReadStdin(usize),
    /// Write out, then tell.
    Write(Output),
    /// Write `[NID 00002] TIME text` to stderr, with the local time of `at_ns` (since the epoch).
    SayOfNode {
        /// Which node.
        nid: Nid,
        /// When it happened there.
        at_ns: u64,
        /// What.
        text: String,
    },
    /// A line for stderr, after all output that was to be written before.
    Say(String),
    /// For the log: something that should not be.
    Warn(String),
    /// Tell on stderr how each PE ended, before how all of it did.
    Report(Vec<ReportRow>),
    /// Tell on stderr how it ended.
    Close(Box<Ended>),
    /// Leave with this status. Nothing comes after it.
    Exit(u8),
}

/// What the course of an application depends on.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Setup {
    /// What is to be launched.
    pub launch: Launch,
    /// Whose it is, for the record of a ^C.
    pub uid: u32,
    /// -q: no word of a wait.
    pub quiet: bool,
    /// There are files to open (--output, --error).
    pub files: bool,
    /// How long a psched that does not answer is waited for before it has taken the posting; `None`: for
    /// [`FIRST_PATIENCE_NS`](super::FIRST_PATIENCE_NS).
    pub patience: Option<Duration>,
    /// --wait-for-psched: when a posting is given up that psched has not taken, whatever keeps psched: it hangs,
    /// or its disk is full. A few seconds ([`FIRST_PATIENCE_NS`](super::FIRST_PATIENCE_NS)) it always has.
    /// `None`: never.
    pub answer_within: Option<Duration>,
    /// There are copies of the programs in a folder that all hosts have (PARALLEL_FILE_SYSTEM).
    pub parallel: bool,
    /// --immediate: a posting that psched can't take now is given up.
    pub immediate: bool,
    /// The application which had this number is restarted from a checkpoint, and what becomes of it is said.
    pub restarts: Option<Apid>,
    /// It is an aprun that restarts it, which had lost it (`--restart-from`); else `cpr -r`.
    pub recovers: bool,
    /// The application in which this process runs itself, as a PE or as what a PE has started.
    pub within: Option<Apid>,
    /// --inside: it runs in the application in which this process runs, and has that one's number.
    pub inside: bool,
    /// By chance: this process waits longer than the shortest pause before it tries again, by so many 256ths. Those of
    /// many processes that lost psched at one moment come back one after the other.
    pub spread: u8,
}

impl Setup {
    /// How long a psched that does not answer is waited for before it has taken the posting, in ns.
    pub(super) fn patience_ns(&self) -> u64 {
        self.patience.map_or(super::FIRST_PATIENCE_NS, nanos)
    }

    /// How long psched may take to take the posting, in ns.
    pub(super) fn answer_within_ns(&self) -> Option<u64> {
        Some(nanos(self.answer_within?).max(super::FIRST_PATIENCE_NS))
    }

    /// The name of the program, for messages.
    pub fn program(&self) -> &'static str {
        if self.restarts.is_some() && !self.recovers { "cpr" } else { "aprun" }
    }
}
