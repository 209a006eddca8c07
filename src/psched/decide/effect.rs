//! What the scheduler wants done: effects, and what they say to whom.

use super::keeping::Record;
use super::{LinkId, ReplyId};
use crate::apteam::ending::HostEnd;
use crate::apteam::place::PlacementList;
use crate::apteam::protocol::node::Command;
use crate::apteam::record::{Apteam, FailedLaunch, FrontProcess};
use crate::apteam::{Apid, Key};
use crate::machine::Nid;
use crate::psched::reason::Reason;
use serde::Serialize;

/// What a front end is told.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum News {
    /// There may be a placement: look.
    Placed,
    /// Its PEs run.
    Running,
    /// A launch has failed by a node's fault, and it waits for another place: the how many-th retry this is,
    /// and of how many.
    Retried { failed: Box<FailedLaunch>, count: u32, most: u32 },
    /// It has ended.
    Ended(Box<HostEnd>),
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Refusal {
    /// It can never be.
    Impossible,
    /// Not now.
    NoRoom,
    /// A bound is reached.
    TooMany,
    /// Not this user.
    NotAllowed,
    /// There is no such application.
    NotFound,
}

/// What a front end's look finds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Looked {
    /// Its place.
    Placed(Box<Apteam>),
    /// None yet.
    Waiting(Box<Reason>),
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Effect {
    /// Keep this.
    Keep(Record),
    /// Keep a line of an application's event log, with the time at which it is taken.
    Log { apid: Apid, name: &'static str, detail: String },
    /// The posting is accepted.
    Accept { reply: ReplyId, apid: Apid },
    /// A request is refused.
    Refuse { reply: ReplyId, refusal: Refusal, reason: Box<Reason> },
    /// The answer to a look.
    Look { reply: ReplyId, looked: Looked },
    /// The answer to a kill: a problem for each apid, or none.
    Killed { reply: ReplyId, problems: Vec<Option<String>> },
    /// The answer to what an administrator orders ([`Event::Manage`] and those after it): what is so now, and
    /// what stood in the way.
    Managed { reply: ReplyId, done: Vec<String>, problems: Vec<String> },
    /// For an apinit.
    Command { link: LinkId, command: Command },
    /// Its memory is out, and it is to sit there from now on: its nodes bring it in.
    RollIn {
        /// Which.
        key: Key,
        /// Where it is to sit.
        to: PlacementList,
    },
    /// It stands, and its memory goes out.
    RollOut {
        /// Which.
        key: Key,
    },
    /// It is taken as a node: welcome it with these NIDs.
    Welcome { link: LinkId, nids: Vec<Nid> },
    /// It is not.
    RefuseLink { link: LinkId, why: String },
    /// Its connection is replaced by another of the same nodes, or it said what no apinit says.
    CloseLink { link: LinkId },
    /// SIGUSR1 to the front end.
    SignalFront { apid: Apid, front: FrontProcess },
    /// For those who watch it.
    Tell { apid: Apid, news: News },
    /// Its end, for those who watch it, at once: its nodes keep what they have reported until it is
    /// acknowledged, which waits for the record, so a psched that is killed now hears it again.
    TellEnd { apid: Apid, end: Box<HostEnd> },
    /// Something for the daemon's log.
    Warn(String),
    /// The same of a fault of psched itself.
    Fault(String),
}

impl Effect {
    /// Whether this leaves without waiting for records: an end that its nodes would say again, and
    /// plans of turns, which are on no record.
    pub fn waits_for_nothing(&self) -> bool {
        use Command::{AgreePlan, Plan, WithdrawPlan};
        match self {
            Effect::TellEnd { .. } => true,
            Effect::Command { command, .. } => {
                matches!(command, Plan(_) | AgreePlan(_) | WithdrawPlan(_))
            }
            _ => false,
        }
    }

    /// The application that this ends or signals, if it does. It may leave before its record, for
    /// an application that has a process has been placed durably: where psched dies in between, it
    /// has not confirmed that to its caller, and to its successor the application has just ended.
    pub fn may_precede_its_record(&self) -> Option<Key> {
        match self {
            Effect::Command {
                command: Command::Terminate { key, .. } | Command::Signal { key, .. },
                ..
            } => Some(*key),
            _ => None,
        }
    }
}
