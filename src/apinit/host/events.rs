//! What the tasks and threads of an apinit tell its one task.
//!
//! What an event carries has files of its own, which know of no event.

use super::asker::Asker;
use super::dump::{Images, Prepared};
use super::memory_out::Returned as OfAway;
use super::open_link::Link;
use super::places;
use super::programs::Copy;
use super::restore::Returned;
use super::shepherd_handle::Shepherd;
use super::stream_sender::{FrontSender, Head};
use crate::apinit::decide::Conn;
use crate::apinit::decide::clock::Reading;
use crate::apinit::decide::switcher::News;
use crate::apteam::protocol::attach::ToApinit;
use crate::apteam::protocol::node::{Command, Welcome};
use crate::apteam::protocol::peers::{FromPeer, ToPeer};
use crate::apteam::protocol::processes::Question;
use crate::apteam::protocol::programs::{GivenProgram, ProgramOf, WantedProgram};
use crate::apteam::protocol::shepherd::FromShepherd;
use crate::apteam::protocol::stacks;
use crate::apteam::{Key, SealKey};
use crate::machine::Nid;
use crate::node::checkpoint::fd_channel::Ask;
use crate::rpc::listen::Peer as Caller;
use bytes::Bytes;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::DropGuard;

/// Where the tasks tell.
pub(super) type Events = mpsc::Sender<TaskEvent>;

/// Carries a copy of a program to the task that has asked for it.
pub(super) type Answer = oneshot::Sender<Option<Arc<Copy>>>;

/// What the tasks tell.
#[derive(Debug)]
pub(super) enum TaskEvent {
    LinkUp(Link, Welcome),
    LinkDown,
    Commanded(u64, Command),
    /// Commits of its store.
    Counted(u64),
    /// It asks which processes PEs are.
    ProcessesAsked(Question),
    /// It asks for the stacks of a PE.
    StacksAsked(stacks::Question),
    /// The user who has asked this waits no more.
    StacksWithdrawn(u64),
    /// What is known of its clock.
    Clock(Reading),
    FrontOpened {
        conn: Conn,
        peer: Caller,
        sender: FrontSender,
        listening: DropGuard,
    },
    FrontSaid(Conn, ToApinit),
    FrontDied(Conn),
    HeadOpened {
        conn: Conn,
        uid: u32,
        /// The name in the certificate of its host; empty: it is on this host.
        host: String,
        head: Head,
    },
    HeadSaid(Conn, ToPeer),
    StreamMalformed(Conn, String),
    StreamClosed(Conn),
    ShepherdSaid(Key, FromShepherd),
    ShepherdSilent(Key, String),
    PeerSaid {
        key: Key,
        index: u32,
        generation: u64,
        message: FromPeer,
    },
    PeerLost {
        key: Key,
        index: u32,
        generation: u64,
        text: String,
    },
    /// Another host asks for a program. Answered with the copy, if it is to have it.
    ProgramAsked(ProgramOf, WantedProgram, Answer),
    /// Somebody with this uid brings a program as a front end.
    ProgramBrought(ProgramOf, u32, Answer),
    ProgramTaken(Key, GivenProgram),
    GroupsEmpty(Key),
    GroupsStuck(Key, u32, Vec<String>),
    Turns(News),
    /// How it went, and where the application is then.
    Rebound(Key, Vec<Nid>, Result<(), String>),
    /// What was brought back, or why not.
    Restored(Key, Result<Box<Returned>, String>),
    /// The kernel has worked for it in turns of others: all its processor time there so far.
    Overran(Key, Duration),
    /// The thread that changes gangs has ended by itself.
    SwitchingDead,
    /// At the door.
    Asked {
        asker: Asker,
        ask: Ask,
        descriptor: OwnedFd,
    },
    /// What checkpoints are sealed with, if that is known.
    SealingAsked(oneshot::Sender<Option<SealKey>>),
    /// Under this number; none: he is gone.
    AskedMore(u64, Option<Ask>),
    /// The folder that came with the question of this number is borrowed, and a dump is begun; or why not.
    Prepared(u64, Result<Box<Prepared>, String>),
    /// A part of an application stands still, for the question of this number.
    Stands(u64),
    /// Images are made, or why not.
    Imaged(Key, u64, Result<Images, String>),
    /// His folder is a checkpoint of so many bytes, or a part of one, which is said so; or why not.
    Sealed(u64, Result<(u64, Bytes), String>),
    /// The text of the manifest of all parts, or why there is none.
    Joined(u64, Result<String, String>),
    /// A shepherd that was dumped, if it lives.
    HeardAgain(Key, Option<Shepherd>),
    /// A dump that a former life had begun of one is over.
    Thawed(Key),
    /// An application's memory is out, in so many bytes of images, or why not.
    TookOut(Key, Result<u64, String>),
    /// It is back, or why not.
    CameBack(Key, Result<Box<OfAway>, String>),
    /// What was found of applications where it does not belong, and which of them was the last to
    /// be looked at.
    Looked(Vec<places::Stray>, Option<Key>),
}
