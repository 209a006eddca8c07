//! apinit and its apshepherds, which may be of different releases.
//!
//! An application outlives its apinit, so that after an upgrade the new apinit finds shepherds of the
//! release before. The rule:
//!
//! - A release that only adds keeps [`PROTOCOL`]: a field or a message that the other side does not
//!   know is skipped, and one that does not come has the value that it had before there was such a
//!   field.
//! - A release that gives something another meaning, or needs an answer to something new, counts
//!   [`PROTOCOL`] up. Its apinit goes on speaking with shepherds from [`OLDEST`] on: at least the
//!   release before.
//! - Where a shepherd of the release before would do something else than is asked for, as it skips what says
//!   so, its hello tells what it can ([`Hello::several`]); to one that can't it is not said, and the
//!   application ends with 125 and the cure.
//! - Only one that was brought back from a checkpoint is told [`ToShepherd::Rekey`]: where its hello does not
//!   come anew then, it is of a release that skips that, and the restart fails with the cure.
//! - A shepherd takes whatever apinit comes; it is the apinit that knows both sides, by the
//!   shepherd's [`Hello`]. Of that, fields are never taken away and none changes its meaning.
//! - With a shepherd that is newer, or older than [`OLDEST`], nothing is launched: the application
//!   ends with 125 and says both versions ([`misfit`]). One whose PEs go already is left alone, until
//!   an apinit comes that understands it or somebody ends it; its end keeps in its shepherd.

use super::attach::{NumberedSignal, Output, StdinCredit, StdinPiece};
use super::letters::Letter;
use super::notice::Notice;
use super::peers::{BarrierIn, BarrierOut};
use super::processes::{Answer, Question};
use super::programs::{GivenProgram, WantedProgram};
use super::stacks;
use crate::apteam::Key;
use crate::apteam::ending::{Cause, Decisive, HostEnd};
use crate::apteam::launch::HostLaunch;
use std::time::Duration;

/// The version of this conversation.
pub const PROTOCOL: u32 = 1;

/// The oldest version of a shepherd with which an apinit of this release goes on.
pub const OLDEST: u32 = 1;

/// Why an apinit of this release can't speak with a shepherd of that version, and the cure.
///
/// ```
/// # use psched_pure::apteam::protocol::shepherd::{PROTOCOL, misfit};
/// assert_eq!(misfit(PROTOCOL), None);
/// assert!(misfit(PROTOCOL + 1).unwrap().contains("restart apinit"));
/// ```
pub fn misfit(protocol: u32) -> Option<String> {
    let cure = match protocol {
        OLDEST..=PROTOCOL => return None,
        newer if newer > PROTOCOL => "restart apinit from the apshepherd's release",
        _ => "install the apshepherd of apinit's release",
    };
    let own = match OLDEST {
        PROTOCOL => format!("only version {PROTOCOL}"),
        _ => format!("versions {OLDEST} to {PROTOCOL}"),
    };
    Some(format!(
        "it speaks version {protocol} of the shepherd protocol, this apinit {own}: {cure}"
    ))
}

/// The largest frame, in bytes: a seqpacket goes whole or not at all.
pub const FRAME_MAX: usize = 192 * 1024;

/// How both sides begin. By default as this release does, with no application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// [`PROTOCOL`] of the speaker.
    pub protocol: u32,
    /// The application.
    pub key: Key,
    /// (Shepherd.) It has its launch.
    pub launched: bool,
    /// (Shepherd.) Its PEs go.
    pub going: bool,
    /// (Shepherd.) They have ended.
    pub ended: bool,
    /// (Shepherd.) Output taken so far.
    pub output_taken: u64,
    /// (Shepherd.) stdin that has come so far.
    pub stdin_taken: u64,
    /// (Shepherd.) It can execute several programs, and PEs under strace. One of a release before it was so
    /// can't.
    pub several: bool,
    /// (Shepherd.) It answers [`ToShepherd::Stacks`].
    pub stacks: bool,
}

impl Default for Hello {
    fn default() -> Hello {
        Hello {
            protocol: PROTOCOL,
            key: Key::default(),
            launched: false,
            going: false,
            ended: false,
            output_taken: 0,
            stdin_taken: 0,
            several: true,
            stacks: true,
        }
    }
}

/// Towards the shepherd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToShepherd {
    /// First on each connection.
    Hello(Hello),
    /// Fork and execute these, and stop before user code. A launch larger than a frame is sent in
    /// pieces by the shell (see `node::frames`), never seen here.
    Launch(Box<HostLaunch>),
    /// Let them go.
    Go,
    /// End them: TERM (for [`Cause::Kill`], its signal), KILL after `kill_after`, zero: at once.
    Terminate { cause: Cause, kill_after: Duration },
    /// For every PE.
    Signal(NumberedSignal),
    /// For PE 0.
    Stdin(StdinPiece),
    /// No more for PE 0: so many bytes in all.
    StdinEnd(u64),
    /// Output up to so many bytes is written out: forget it.
    OutputTaken(u64),
    /// Let the PEs out of the barrier.
    BarrierOut(BarrierOut),
    /// From the host of another PE.
    Letter(Letter),
    /// The end is known: exit.
    Release,
    /// (Before the hello, to one that was brought back from a checkpoint.) It has the shepherd of another
    /// application, as which it goes on: it says hello as this one. Signals are counted anew; how much
    /// there was of output and stdin goes on to count.
    Rekey(Key),
    /// Which processes are these PEs?
    Processes(Question),
    /// For the programs of which it wanted copies.
    Programs {
        /// All of them.
        programs: Vec<GivenProgram>,
    },
    /// Where do the threads of this PE stand? (To one whose hello says that it can.)
    Stacks(stacks::Question),
    /// The user who has asked this question for stacks waits no more.
    StacksWithdrawn(u64),
    /// The answer to [`FromShepherd::DebuggerMade`].
    DebuggerPlaced(stacks::Placed),
}

/// From the shepherd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromShepherd {
    /// First on each connection.
    Hello(Hello),
    /// Every PE's execve has succeeded; none has run an instruction.
    Ready,
    /// One could not be executed; none will run. `ended` follows.
    Failed(Decisive),
    /// What PEs wrote.
    Output(Output),
    /// stdin may be sent so far.
    StdinCredit(StdinCredit),
    /// Signals up to this number have come.
    SignalsTaken(u64),
    /// All PEs here are in PMI's barrier. The last one that they have been let out of is told again
    /// on each connection, since other hosts may still be in it.
    BarrierIn(BarrierIn),
    /// For the host of another PE.
    Letter(Letter),
    /// Something that ends the application or decides its status.
    Decisive(Decisive),
    /// A line for the front end's stderr.
    Notice(Notice),
    /// These processes outlive their KILL, in words. Each time all of them.
    Stuck(Vec<String>),
    /// Which processes PEs are, as was asked.
    Processes(Answer),
    /// It wants copies of these programs, and makes no PE before they have come. Told again on each connection until
    /// then.
    ProgramsWanted {
        /// All of them.
        programs: Vec<WantedProgram>,
    },
    /// There.
    Stacks(stacks::Answer),
    /// A debugger waits to be put into the control group of its node.
    DebuggerMade(stacks::Made),
    /// No process is left here and all output has been sent and taken. Sent again on each
    /// connection until `release`.
    Ended(Box<HostEnd>),
}
