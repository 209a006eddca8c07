//! What goes into a [`super::Shepherd`] and what comes out.

use super::left::Left;
use super::pmix::{FromMix, ToMix};
use super::spawn::Request;
use super::stacks::Looked;
use crate::apteam::Key;
use crate::apteam::ending::{PeEnd, Usage};
use crate::apteam::fault::Fault;
use crate::apteam::launch::HostLaunch;
use crate::apteam::posting::Mpi;
use crate::apteam::protocol::notice::Seen;
use crate::apteam::protocol::processes::Question;
use crate::apteam::protocol::programs::{GivenProgram, WantedProgram};
use crate::apteam::protocol::shepherd::{FromShepherd, ToShepherd};
use crate::machine::Nid;
use bytes::Bytes;
use std::collections::BTreeMap;

/// What has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// apinit is there.
    Connected,
    /// It is gone.
    Disconnected,
    /// It says this.
    Frame(ToShepherd),
    /// This PE has been executed and stands still before user code.
    Stopped { rank: u32 },
    /// This one can't be: `text` names the file and the cure. Also when it could not be forked.
    ExecFailed { rank: u32, errno: i32, text: String, fault: Fault },
    /// A PE has been reaped, whose process this was. Everything that it said over PMI has been reported
    /// before.
    PeEnded { rank: u32, pid: u32, end: PeEnd, usage: Usage },
    /// The kernel has killed processes of this node for want of memory. Reported before the first
    /// of the PEs that died of it.
    MemoryKill {
        /// On which node.
        nid: Nid,
        /// Its group was over its own limit; else it was the host's memory that ran out.
        over_limit: bool,
    },
    /// A process that this PE has left, by making its session, was killed and had this resident set.
    OrphanKilled { rank: u32, max_rss_kib: u64 },
    /// All PEs of this node, and what they have left, have been reaped; after a
    /// [`Event::MemoryKill`].
    NodeReaped(Nid),
    /// Answer to [`Action::Fork`]: nothing was forked, since these programs are not here.
    ProgramsWanted(Vec<WantedProgram>),
    /// A fork failed, as this node has all the processes that it may have.
    ProcessLimit { nid: Nid },
    /// There is no child, and PEs have been forked.
    NoChildLeft,
    /// Answer to [`Action::NameLeft`]: what descends from the shepherd and lives.
    LeftNamed(Vec<Left>),
    /// So many processes were alive when [`Action::SignalLeft`] was done.
    LeftFound(u32),
    /// [`Action::SignalLeft`] was not done: they are frozen, since others have their turn.
    LeftFrozen,
    /// Answer to [`Action::LookFrozen`].
    Frozen(bool),
    /// Bytes on a PE's PMI connection.
    Pmi { rank: u32, data: Bytes },
    /// appmix says this.
    Mix(FromMix),
    /// This PE has an Open MPI with a PMIx of release 3. (Said before its [`FromMix::Spawn`], where other hosts have PEs.)
    Pmix3(u32),
    /// appmix has ended by itself: how.
    MixEnded(String),
    /// There is no appmix, and the program may do without: why.
    NoMix(String),
    /// For a while now no PE could be accepted at the port of PMI-1, and why.
    PortShut(String),
    /// Answer to [`Action::LookForMpi`]: of each of the PEs that has loaded one.
    MpiFound(BTreeMap<u32, Mpi>),
    /// A PE wrote this.
    Output { rank: u32, stderr: bool, data: Bytes },
    /// Nothing more comes from there.
    OutputEof { rank: u32, stderr: bool },
    /// PE 0's stdin has taken so many more bytes.
    StdinWritten(u64),
    /// PE 0 has closed its stdin.
    StdinClosed,
    /// Answer to [`Action::LookAtPes`]: of each PE that there is.
    PesLooked(BTreeMap<u32, Looked>),
    /// The debugger of this question has ended: what it has written (and whether there was more of it), or why it
    /// has not written stacks.
    DebuggerEnded { number: u64, said: Result<(String, bool), String> },
    /// Answer to [`Action::Spawn`]: its process waits for its place.
    SpawnMade { number: u64, nid: Nid, pid: u32 },
    /// What was spawned has ended; an Err: it could not be made or executed, in words.
    SpawnEnded { number: u64, end: Result<PeEnd, String> },
    /// The time that was asked for has come.
    Tick,
    /// Whoever keeps this instance alive is gone, or the shepherd was told to end (SIGTERM).
    LifelineGone,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Fork and execute the PEs, each to stop before user code. Where programs are not here: [`Event::ProgramsWanted`],
    /// and nothing else.
    Fork(Box<HostLaunch>),
    /// Fork and execute them now, with these copies.
    ForkWith(Vec<GivenProgram>),
    /// Let all PEs go.
    Go,
    /// Send a signal to the process group of each PE that has not ended.
    Signal(i32),
    /// Send a signal to every process that descends from the shepherd, unless they are frozen;
    /// answered by [`Event::LeftFound`] or [`Event::LeftFrozen`].
    SignalLeft(i32),
    /// Say whether they are frozen; answered by [`Event::Frozen`].
    LookFrozen,
    /// KILL every process that descends from the shepherd.
    KillEverything,
    /// Say which processes descend from the shepherd and live; answered by
    /// [`Event::LeftNamed`].
    NameLeft,
    /// Tell apinit.
    Send(FromShepherd),
    /// Tell apinit, as a [`FromShepherd::Notice`], the time being the shell's to fill in.
    Notice { nid: Nid, what: Seen },
    /// End the connection: what came on it is not to be made sense of.
    Hangup,
    /// Answer a PE on its PMI connection.
    PmiSend { rank: u32, data: Bytes },
    /// Close a PE's PMI connection.
    PmiClose { rank: u32 },
    /// Look which MPI these PEs have loaded; answered by [`Event::MpiFound`].
    LookForMpi(Vec<u32>),
    /// Tell appmix.
    TellMix(ToMix),
    /// Read the PEs' output, or let it wait in their pipes.
    ReadOutput(bool),
    /// For PE 0's stdin, in order.
    WriteStdin(Bytes),
    /// Close PE 0's stdin once all of that is written.
    CloseStdin,
    /// Report [`Event::Tick`] at this time; `None`: not at all. Replaces the one before.
    SetTimer(Option<u64>),
    /// Say which processes these PEs are.
    TellProcesses(Question),
    /// Say how these PEs are; answered by [`Event::PesLooked`].
    LookAtPes(Vec<u32>),
    /// Have a debugger write the stacks of a PE, for this question: make it, and tell apinit of it
    /// ([`FromShepherd::DebuggerMade`]). Answered by [`Event::DebuggerEnded`].
    StartDebugger { number: u64, rank: u32 },
    /// It is where it belongs: let it begin.
    LetDebuggerWork(u64),
    /// End it; answered by [`Event::DebuggerEnded`].
    EndDebugger(u64),
    /// It has been told to end and does not: its end is waited for no more.
    LeaveDebugger(u64),
    /// Make the process of what this PE spawns; answered by [`Event::SpawnMade`] or [`Event::SpawnEnded`].
    Spawn { number: u64, rank: u32, request: Request },
    /// It is where it belongs: let it become aprun. [`Event::SpawnEnded`] follows.
    LetSpawnedRun(u64),
    /// Kill it; answered by [`Event::SpawnEnded`].
    EndSpawned(u64),
    /// It goes on as this application, by whose number people are told of it.
    Rekeyed(Key),
    /// It is over.
    Exit,
}
