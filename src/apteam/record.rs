//! The apteam: psched's record of one application, its states, and the legal moves between them.
//!
//! ```text
//!            place                 launch             all go
//!   Posted --------> Placed ------------> Launching --------> Running
//!     ^                                       |
//!     +-- node's fault, and no PE has run ----+
//!     ^ \              | take back           |                   |
//!     |  \ give up     v                     | end               | end
//!     |   \         TakingBack               v                   v
//!     |    \           |  acknowledged    (all hosts empty) --> Ended
//!     |     \          v
//!     +------\------ Lapsed    (waits for its silent front end)
//!   front     \
//!   looks      +--> Ended
//! ```
//!
//! A record is durable before anything that follows from it leaves psched.

use super::change::By;
use super::ending::{Cause, HostEnd};
use super::oversubscribe::Oversubscribe;
use super::place::{HostPart, PlacementList};
use super::posting::{Owner, Posting};
use super::protocol::attach::NumberedSignal;
use super::protocol::node::Restart;
use super::{Apid, Incarnation, Key, Ticket};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// Where an application is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum State {
    /// Waits for a place.
    Posted,
    /// Has a place; its front end has not launched it yet.
    Placed,
    /// Its place is being taken back: the nodes have not all said so yet.
    TakingBack,
    /// Its front end went silent and lost its place; it waits for the front end to look again.
    Lapsed,
    /// The launch has reached its nodes.
    Launching,
    /// Its PEs run.
    Running,
    /// Over: every group is empty.
    Ended,
}

impl State {
    /// The name on screens and in the store.
    pub fn name(self) -> &'static str {
        match self {
            State::Posted => "posted",
            State::Placed => "placed",
            State::TakingBack => "taking-back",
            State::Lapsed => "lapsed",
            State::Launching => "launching",
            State::Running => "running",
            State::Ended => "ended",
        }
    }

    /// All states.
    pub const ALL: [State; 7] = [
        State::Posted,
        State::Placed,
        State::TakingBack,
        State::Lapsed,
        State::Launching,
        State::Running,
        State::Ended,
    ];

    /// The state of that name.
    pub fn parse(name: &str) -> Option<State> {
        State::ALL.into_iter().find(|s| s.name() == name)
    }

    /// Whether an application may go from here to there.
    pub fn may_become(self, next: State) -> bool {
        use State::*;
        matches!(
            (self, next),
            (Posted, Placed | Ended)
                | (Placed, Posted | TakingBack | Launching | Running | Ended)
                | (TakingBack, Lapsed | Posted | Launching | Running | Ended)
                | (Lapsed, Posted | Ended)
                | (Launching, Posted | Running | Ended)
                | (Running, Ended)
        )
    }

    /// Whether it holds processors.
    pub fn holds_processors(self) -> bool {
        matches!(self, State::Placed | State::TakingBack | State::Launching | State::Running)
    }
}

/// The front end that waits for an application: a process of psched's host, or of a login host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FrontProcess {
    /// Its pid, in the pid namespace of the daemon that it has called.
    pub pid: i32,
    /// When it started, in clock ticks since boot (field 22 of /proc/PID/stat): pid and start
    /// together name a process for ever.
    pub started: u64,
    /// Its host and that one's boot, `NAME/BOOT`; empty: it is on psched's host.
    #[serde(default)]
    pub host: Arc<str>,
}

impl FrontProcess {
    /// The name of its host; empty: psched's.
    pub fn host_name(&self) -> &str {
        name_of(&self.host)
    }

    /// One on psched's host.
    pub fn here(pid: i32, started: u64) -> FrontProcess {
        FrontProcess { pid, started, host: Arc::default() }
    }
}

/// The name of the host, of `NAME/BOOT`.
pub fn name_of(host: &str) -> &str {
    host.split('/').next().unwrap_or_default()
}

/// One application, whole: what the store keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Apteam {
    /// Its number.
    pub apid: Apid,
    /// Which placement this is; 0 before the first.
    pub incarnation: Incarnation,
    /// Where it is in its life.
    pub state: State,
    /// What was asked for.
    pub posting: Posting,
    /// Whose it is.
    pub owner: Owner,
    /// The front end that waits for it. None: it has died, or psched does not know it (of an
    /// application that was adopted).
    pub front: Option<FrontProcess>,
    /// Its front end has died. (psched does not know the death of a front end that it does not
    /// know.)
    #[serde(default)]
    pub front_gone: bool,
    /// Where it is, while it holds processors.
    pub places: PlacementList,
    /// The apinits concerned, the one of PE 0 first.
    pub hosts: Arc<[HostPart]>,
    /// Others may be placed on its processors too, and it takes turns with them. Said to its nodes
    /// with the place, and true as long as it has that.
    pub shares: bool,
    /// The secret of its front end.
    pub ticket: Ticket,
    /// When the ticket lapses, on psched's monotonic clock.
    pub ticket_until_ns: u64,
    /// When it was posted, in nanoseconds since the epoch.
    pub posted_at_ns: u64,
    /// When its PEs began, since the epoch; 0: not yet.
    pub running_at_ns: u64,
    /// When it ended, since the epoch; 0: not yet.
    pub ended_at_ns: u64,
    /// Ends of those of its hosts that are empty; of all of them, merged, once it has ended.
    pub end: Option<HostEnd>,
    /// psched's own decision to end it, which goes into the end of every host.
    pub doomed: Option<super::ending::Decisive>,
    /// Signals of psched's that its nodes are not known to have.
    pub signals: Vec<NumberedSignal>,
    /// The number of the last one, or that above which they begin.
    pub last_signal: u64,
    /// The administrator who holds it, if it is held: it is not placed, and where it is does not run.
    pub held: Option<By>,
    /// The user who has stopped its PEs (SIGSTOP through psched), until the user has them go on or ends them.
    #[serde(default)]
    pub stopped: Option<By>,
    /// The domain of the machine that it is scheduled in, from its posting on.
    pub domain: Arc<str>,
    /// What has been moved of it.
    pub moves: Moves,
    /// The checkpoint that it comes from, if it is restored instead of executed. Until it runs it is locked:
    /// nothing is done with it but that it is placed.
    pub restart: Option<Restart>,
    /// Its launches that failed by their nodes' fault.
    #[serde(default)]
    pub retries: Retries,
}

/// Launches of an application that failed by their nodes' fault, after each of which it waited for another
/// place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retries {
    /// How many.
    pub count: u32,
    /// The last of them.
    pub last: Option<FailedLaunch>,
    /// The host of PE 0 was lost during the present launch: whether PEs had gone there nobody can say.
    pub may_have_run: bool,
}

/// A launch that failed by a node's fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedLaunch {
    /// Of this placement.
    pub incarnation: Incarnation,
    /// Why.
    pub cause: Cause,
}

/// The moves of a running application.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moves {
    /// How many its nodes have been told, those too that failed.
    pub told: u32,
    /// Where the last one is to bring it, until its nodes have answered. It holds both places.
    pub to: Option<PlacementList>,
}

impl Apteam {
    /// Its number and incarnation.
    pub fn key(&self) -> Key {
        Key { apid: self.apid, incarnation: self.incarnation }
    }

    /// All processors that are its own: while it is moved, those of both places.
    pub fn holds(&self) -> PlacementList {
        match &self.moves.to {
            Some(to) => self.places.and(to),
            None => self.places.clone(),
        }
    }

    /// Time that it had run before it was restarted from a checkpoint.
    pub fn run_before(&self) -> Duration {
        self.restart.as_ref().map_or(Duration::ZERO, |restart| restart.run)
    }

    /// Whether it is placed by its shape alone, on any nodes. One that is restored is not: its images are of
    /// one host, and so are its nodes.
    pub fn is_plain(&self) -> bool {
        self.posting.is_plain() && self.restart.is_none()
    }

    /// Whether it stays where it is: it has chosen its nodes, or it sits in pieces, for which no window stands, or
    /// its PEs differ in depth or share processors.
    pub fn stays_put(&self) -> bool {
        let Posting { choice, flexible, layout, .. } = &self.posting;
        let shares = matches!(self.posting.oversubscribe, Oversubscribe::Shares(_));
        shares
            || !choice.is_any()
            || *flexible && !self.places.is_contiguous()
            || !layout.one_depth()
    }
}
