//! One application as its apinit sees it.

use super::events::{Conn, Watch};
use super::waits::{AWAY_MAX, LINGER, REPORT_AGAIN};
use crate::apteam::Key;
use crate::apteam::bounds::Bounds;
use crate::apteam::ending::{Cause, Decisive, HostEnd};
use crate::apteam::launch::Launch;
use crate::apteam::migration_blocker::MigrationBlocker;
use crate::apteam::protocol::attach::StdinCredit;
use crate::apteam::protocol::node::{Phase, PlaceCommand};
use crate::apteam::protocol::notice::Notice;
use crate::apteam::protocol::peers::BarrierOut;
use crate::apteam::protocol::shepherd::{Hello, ToShepherd};
use crate::machine::Nid;
use crate::variables::units::nanos as ns;
use std::collections::BTreeSet;
use std::time::Duration;

use super::arrivals::Arrivals;
use super::barriers::BarrierAgain;
use super::dumping::Dumping;
use super::kept_output::Kept;
use super::kept_signals::Signals;
use super::moving::Moving;
use super::out_stage::OutStage;
use super::peer::Peer;
use super::programs::Programs;
use super::silent_peers::SilentPeers;
use super::streams::Stream;

/// The largest window of output that there can be: the most of the variable `output_max`.
const WINDOW_MAX: u64 = 64 << 20;

/// How the shepherd is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shepherd {
    /// Asked for.
    Spawning,
    /// It is being brought back from a checkpoint, with its PEs.
    Restoring,
    /// It hears.
    Up,
    /// It lives, and has said nothing in this life of apinit yet; its PEs go.
    Silent,
    /// It is of a release that is not understood; its PEs go.
    Strange,
    /// It has been let go, or is lost.
    Gone,
}

/// The front end; on a host that is not the head, the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Front {
    /// None has come yet.
    None,
    /// It listens.
    Open(Stream),
    /// Its stream is closed, its process is not known to be dead.
    Away {
        /// Its last stream.
        conn: Conn,
        /// Since when.
        since_ns: u64,
        /// By whom its process is watched.
        watch: Watch,
    },
    /// Its process is dead.
    Gone,
}

/// How far the end is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It has not ended.
    Not,
    /// It has; its groups are not known to be empty.
    Emptying(HostEnd),
    /// Nothing is left of it.
    Empty {
        /// How it ended.
        end: HostEnd,
        /// When that was last reported.
        reported_ns: u64,
        /// psched has it on record.
        acknowledged: bool,
    },
}

/// A decision to end the whole application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Doom {
    /// Why.
    pub cause: Cause,
    /// When its processes get KILL.
    pub kill_at_ns: u64,
    /// The first decision, which this one may have made more urgent.
    pub first: Decisive,
    /// When apinit kills them itself, if they are still there.
    pub backstop_ns: u64,
}

/// An end with a grace, of one that is stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Grace {
    pub cause: Cause,
    pub kill_after: Duration,
    /// It is waited for its turn no longer.
    pub until_ns: u64,
}

#[derive(Debug)]
pub(super) struct App {
    pub place: PlaceCommand,
    /// This apinit's index in the hosts; 0 is the head.
    pub index: u32,
    /// Its nodes of the application.
    pub nids: Vec<Nid>,
    /// Its processors of the application.
    pub processors: BTreeSet<(Nid, u32)>,
    pub ticket_until_ns: u64,
    pub shepherd: Shepherd,
    /// A former life of this apinit had it.
    pub was_found: bool,
    /// Its shepherd has said whether it can execute several programs.
    pub several: Option<bool>,
    /// It said that it can be asked for stacks.
    pub stacks: bool,
    /// The launch, until the shepherd has it and all peers are ready.
    pub launch: Option<Box<Launch>>,
    /// The launch has come.
    pub launched_ns: Option<u64>,
    /// The shepherd has it.
    pub sent: bool,
    /// The PEs here stand before their first instruction.
    pub ready: bool,
    /// What its shepherd is told when it is back.
    pub held: Vec<ToShepherd>,
    /// The switcher has been told that it is about to go.
    pub entered: bool,
    /// The switcher has said that it may go.
    pub turn_came: bool,
    pub going_ns: Option<u64>,
    /// (Of one that shares its processors.) How long its PEs had run at a time, both in nanoseconds.
    pub ran: Option<(u64, u64)>,
    /// When that was last asked because of its time limit, until it is answered.
    pub ran_asked_ns: Option<u64>,
    pub front: Front,
    /// (Head.) The psched that is obeyed has adopted it, and may not know its front end: psched
    /// does not tell then that a front end on another host has died.
    pub adopted: bool,
    /// The other hosts, where this one is the head; `peers[i]` is host i + 1.
    pub peers: Vec<Peer>,
    /// (Head.) What the front end was told of those that do not answer.
    pub silent_peers: SilentPeers,
    /// The barriers in which the PEs here have arrived.
    pub arrivals: Arrivals,
    /// (Head.) The last complete one, for hosts that have not heard of it.
    pub barrier_out: Vec<BarrierOut>,
    pub programs: Programs,
    /// (Head.) Hosts that are to hear that one again, and when.
    pub barrier_again: Option<BarrierAgain>,
    pub signals: Signals,
    pub output: Kept,
    /// The offset from which output is in images that the application is to end with: kept from the
    /// front end.
    pub imaged: Option<u64>,
    /// How far stdin may be sent, as the shepherd has said.
    pub stdin: StdinCredit,
    /// The most that the shepherd can have allowed: what it said to a former life of this apinit is
    /// not known.
    pub stdin_limit: u64,
    /// stdin has been given to the shepherd up to here.
    pub stdin_passed: u64,
    /// The first bad thing that the shepherd told.
    pub first: Option<Decisive>,
    pub doom: Option<Doom>,
    /// Its shepherd is told of that when it has its turn.
    pub grace: Option<Grace>,
    /// Output was thrown away, for nobody was there to write it.
    pub output_lost: bool,
    /// What of another host's part did not come, in words for the front end.
    pub lost: Option<Notice>,
    pub end: End,
    /// Processes that outlive their KILL, in words.
    pub stuck: Vec<String>,
    /// The front end knows that nothing more comes.
    pub done_said: bool,
    /// psched does not want to hear of it.
    pub discarded: bool,
    /// It is being moved.
    pub moving: Option<Moving>,
    /// The last move that failed, and why.
    pub not_moved: Option<(u32, MigrationBlocker)>,
    /// It is being checkpointed.
    pub dumping: Option<Dumping>,
    /// Its memory is in a checkpoint of this apinit's own, or on its way.
    pub away: Option<OutStage>,
}

impl App {
    pub fn new(place: PlaceCommand, index: u32, nids: Vec<Nid>, ticket_until_ns: u64) -> App {
        let here: BTreeSet<Nid> = nids.iter().copied().collect();
        let own = place.places.0.iter().filter(|p| here.contains(&p.nid));
        let processors =
            own.flat_map(|p| p.processors.iter().map(move |number| (p.nid, *number))).collect();
        let peers = match index {
            0 => (1..place.host_count()).map(Peer::new).collect(),
            _ => Vec::new(),
        };
        App {
            place,
            index,
            nids,
            processors,
            ticket_until_ns,
            shepherd: Shepherd::Spawning,
            was_found: false,
            several: None,
            stacks: false,
            launch: None,
            launched_ns: None,
            sent: false,
            ready: false,
            held: Vec::new(),
            entered: false,
            turn_came: false,
            going_ns: None,
            ran: None,
            ran_asked_ns: None,
            front: Front::None,
            adopted: false,
            peers,
            silent_peers: SilentPeers::default(),
            arrivals: Arrivals::default(),
            barrier_out: Vec::new(),
            programs: Programs::default(),
            barrier_again: None,
            signals: Signals::default(),
            output: Kept::default(),
            stdin: StdinCredit::default(),
            stdin_limit: 0,
            stdin_passed: 0,
            first: None,
            doom: None,
            grace: None,
            output_lost: false,
            imaged: None,
            lost: None,
            end: End::Not,
            stuck: Vec::new(),
            done_said: false,
            discarded: false,
            moving: None,
            not_moved: None,
            dumping: None,
            away: None,
        }
    }

    pub fn key(&self) -> Key {
        self.place.key
    }

    pub fn head(&self) -> bool {
        self.index == 0
    }

    /// What an apshepherd of the release before would skip in its launch.
    pub fn skipped_by_the_release_before(&self) -> Option<&'static str> {
        let launch = self.launch.as_ref()?;
        if launch.parts() > 1 {
            return Some("applications of several programs");
        }
        if launch.strace.is_some() {
            return Some("--strace");
        }
        launch.stacks.then_some("-g")
    }

    /// Its launch has what an apshepherd of the release before would skip: several programs, or
    /// what traces PEs.
    pub fn has_several(&self) -> bool {
        self.skipped_by_the_release_before().is_some()
    }

    /// The rank of the first of the PEs here.
    pub fn first_rank(&self) -> u32 {
        self.place.first_rank()
    }

    /// The node by which this host is named in causes.
    pub fn nid(&self) -> Nid {
        self.nids.first().copied().unwrap_or_default()
    }

    /// The node by which another host of it is named.
    pub fn nid_of(&self, index: u32) -> Nid {
        self.place.part.map.first_nid(index).unwrap_or_default()
    }

    /// (Head.) A former life of this apinit had the launch and may not have passed it on to every
    /// host: the front end, which has it, is to say it again.
    pub fn needs_launch(&self) -> bool {
        self.launch.is_none()
            && self.running()
            && self.doom.is_none()
            && self.going_ns.is_none()
            && !self.peers.iter().all(|p| p.ready || p.done)
    }

    /// How much output may be sent and not written, in bytes. A shepherd of the release before knows
    /// no other window than the default.
    pub fn output_window(&self) -> u64 {
        let least = match self.place.restart {
            // It goes by the window that it had.
            Some(_) => WINDOW_MAX,
            None => Bounds::default().output,
        };
        self.place.bounds.output.max(least)
    }

    pub fn open_front(&self) -> Option<Stream> {
        match self.front {
            Front::Open(stream) => Some(stream),
            _ => None,
        }
    }

    pub fn running(&self) -> bool {
        self.end == End::Not
    }

    pub fn empty(&self) -> bool {
        matches!(self.end, End::Empty { .. })
    }

    /// psched has nothing to do with it any more.
    pub fn over_with_psched(&self) -> bool {
        self.discarded || matches!(self.end, End::Empty { acknowledged: true, .. })
    }

    /// Its processors may hold processes, now or soon.
    pub fn occupies(&self) -> bool {
        self.sent && !self.empty()
    }

    /// The cause that a front end is told which comes too late.
    pub fn known_cause(&self) -> Option<Cause> {
        let ended = match &self.end {
            End::Not => None,
            End::Emptying(end) | End::Empty { end, .. } => end.first.as_ref(),
        };
        ended.map(|d| d.cause.clone()).or_else(|| self.doom.as_ref().map(|d| d.cause.clone()))
    }

    pub fn phase(&self) -> Phase {
        match (&self.end, self.going_ns, self.launched_ns) {
            (End::Empty { .. }, _, _) => Phase::Ended,
            (_, Some(_), _) => Phase::Running,
            (_, None, Some(_)) => Phase::Launched,
            (_, None, None) => Phase::Placed,
        }
    }

    /// Its shepherd, found again, says how far it is.
    pub fn heard_of(&mut self, hello: &Hello) {
        self.shepherd = Shepherd::Up;
        self.several = Some(hello.several);
        self.stacks = hello.stacks;
        self.output.taken = hello.output_taken;
        self.output.end = hello.output_taken;
        // What had been written before its checkpoint it may not have heard of.
        self.output.skip_to(self.shift().output);
        self.stdin_passed = hello.stdin_taken;
        self.stdin_limit = hello.stdin_taken.saturating_add(self.place.bounds.stdin);
    }

    /// When its end is to be reported again: until psched has it on record; and where other hosts
    /// can't be reached, until psched says that the whole application has ended. (Their PEs may run
    /// on, and wait for this head in a barrier.)
    pub fn report_due_ns(&self) -> Option<u64> {
        match self.end {
            End::Empty { reported_ns, acknowledged, .. } if !self.discarded => {
                let away = || self.peers.iter().filter_map(Peer::away_ns).min();
                let since = if acknowledged { away()? } else { 0 };
                Some(reported_ns.saturating_add(ns(REPORT_AGAIN)).max(since))
            }
            _ => None,
        }
    }

    /// What was decided for the whole application by now: also a time limit that is over, and on
    /// which nothing has been done yet.
    pub fn decided(&self, now: u64) -> Option<Decisive> {
        let over = self.time_limit_ns().filter(|_| self.time_is_over(now));
        let limit = over.zip(self.place.time_limit);
        let limit =
            limit.map(|(at_ns, limit)| Decisive { at_ns, cause: Cause::TimeLimit { limit } });
        self.doom.as_ref().map(|doom| doom.first.clone()).or(limit)
    }

    /// When a front end that is away is given up.
    pub fn away_until_ns(&self) -> Option<u64> {
        match self.front {
            Front::Away { since_ns, .. } if self.empty() => {
                self.over_with_psched().then(|| since_ns.saturating_add(ns(LINGER)))
            }
            // A head is waited for as long as its application is to go on.
            Front::Away { since_ns, watch: Watch::No, .. }
                if self.head() || self.doom.is_some() =>
            {
                Some(since_ns.saturating_add(ns(AWAY_MAX)))
            }
            _ => None,
        }
    }

    /// When what is left of it is killed by apinit itself: its shepherd should have done so.
    pub fn backstop_ns(&self) -> Option<u64> {
        let doom = self.doom.as_ref().filter(|_| self.sent && self.running())?;
        Some(doom.backstop_ns)
    }

    pub fn deadlines(&self, reports_ends: bool) -> impl Iterator<Item = u64> {
        let report = self.report_due_ns().filter(|_| reports_ends);
        let limit = self.time_limit_ns().filter(|_| !self.empty());
        let peers =
            self.peers.iter().filter_map(|p| p.deadline(self.discarded && self.empty())).min();
        let waits = [
            self.away_until_ns(),
            self.grace_ns(),
            self.backstop_ns(),
            self.dump_until_ns(),
            self.silence_due_ns(),
            self.barrier_again.as_ref().map(|again| again.at_ns),
        ];
        [report, limit, peers].into_iter().chain(waits).flatten()
    }
}
