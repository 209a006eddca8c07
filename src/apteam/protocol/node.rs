//! psched and apinit.

use super::attach::NumberedSignal;
use super::turns::{SlicePlan, StopMeans, Switches};
use crate::apteam::bounds::{Bounds, HostBounds};
use crate::apteam::ending::{Cause, HostEnd};
use crate::apteam::migration_blocker::MigrationBlocker;
use crate::apteam::part::{MappedNode, Part, RankMap};
use crate::apteam::place::{HostPart, Place, PlacementList};
use crate::apteam::posting::{Account, Owner};
use crate::apteam::shape::Shape;
use crate::apteam::{Apid, Key, SealKey, Ticket};
use crate::machine::node_memory::Bank;
use crate::machine::{Nid, Node, nids_text};
use crate::variables::Isolation;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The version of this conversation.
pub const PROTOCOL: u32 = 1;

/// Bytes of a text that a host says of itself, or of an application there, at most. More is cut.
pub const SAID_MAX: usize = 1_024;
/// Notes of a host at most (there may be one for each of its applications). More are left out.
pub const NOTES_MAX: usize = 256;
/// Processes of an application that outlive their KILL, that a host tells of at most. More are left
/// out.
pub const STUCK_MAX: usize = 64;
/// Limits of a host, and means of checkpoints, at most. More are left out.
pub const MEANS_MAX: usize = 64;

/// What an apinit says of its nodes beside their state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostNote {
    /// What it is about.
    pub about: NoteAbout,
    /// In words. Of an application: what follows its number and a colon.
    pub text: String,
}

/// What a note is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NoteAbout {
    /// The host, or its nodes.
    Host,
    /// Applications are not isolated there.
    Isolation,
    /// An application.
    App(Key),
}

impl HostNote {
    /// What the host lacks.
    pub fn of_host(text: impl Into<String>) -> HostNote {
        HostNote { about: NoteAbout::Host, text: text.into() }
    }
}

impl std::fmt::Display for HostNote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.about {
            NoteAbout::Host | NoteAbout::Isolation => f.write_str(&self.text),
            NoteAbout::App(key) => write!(f, "application {key}: {}", self.text),
        }
    }
}

/// What an apinit knows of psched's clock, CLOCK_MONOTONIC of psched's host. The default: it is the
/// clock of its own host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockTold {
    /// When that was so, in nanoseconds of psched's clock.
    pub at_ns: u64,
    /// What psched's clock was ahead of the apinit's, in nanoseconds.
    pub ahead_ns: i64,
    /// By how much that may have been wrong, in nanoseconds; 0: it is the same clock.
    pub error_ns: u64,
    /// By how much `ahead_ns` grows, in nanoseconds a second.
    pub pace: i64,
    /// By how much `error_ns` grows, likewise.
    pub growth: u64,
}

impl ClockTold {
    /// What psched's clock is ahead at a time of that clock, and by how much that may be wrong.
    ///
    /// # Example
    /// ```
    /// # use psched_pure::apteam::protocol::node::ClockTold;
    /// let told = ClockTold { at_ns: 0, ahead_ns: 700, error_ns: 50, pace: -100, growth: 10 };
    /// assert_eq!(told.at(2_000_000_000), (500, 70));
    /// ```
    pub fn at(&self, now_ns: u64) -> (i64, u64) {
        if self.error_ns == 0 {
            return (self.ahead_ns, 0);
        }
        let age = i128::from(now_ns.saturating_sub(self.at_ns));
        let of = |rate: i128| rate.saturating_mul(age) / 1_000_000_000;
        let moved = i64::try_from(of(self.pace.into())).unwrap_or(i64::MAX);
        let grown = u64::try_from(of(self.growth.into())).unwrap_or(u64::MAX);
        (self.ahead_ns.saturating_add(moved), self.error_ns.saturating_add(grown))
    }
}

/// How an apinit introduces itself.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL`] of the apinit.
    pub protocol: u32,
    /// Path of its unix socket.
    pub socket: String,
    /// Its host's name.
    pub hostname: String,
    /// Its host's boot id.
    pub boot_id: String,
    /// The nodes that it offers.
    pub nids: Vec<Nid>,
    /// Its process, as the kernel says; 0: it is not known. (It does not say so itself.)
    pub pid: i32,
    /// What it can't do, in words.
    pub notes: Vec<HostNote>,
    /// The store that it has obeyed so far; empty: none.
    pub store_id: String,
    /// Its epoch.
    pub epoch: u64,
    /// Real processors that it may use, by number.
    pub cpus: Vec<u32>,
    /// Memory of the host in bytes.
    pub memory: u64,
    /// Its NUMA nodes.
    pub banks: Vec<Bank>,
    /// Which limits it enforces: `memory`, `processes`.
    pub limits: Vec<String>,
    /// How it stops a gang whose turn is over.
    pub stops: StopMeans,
    /// The machine of its host, as `uname -m` has it; empty: an older release, which does not tell.
    pub arch: String,
    /// What can checkpoint applications there, with its version: `criu 4.2.1`.
    pub back_ends: Vec<String>,
    /// Whether it can bring memory of gangs that stand to swap.
    pub roll_out: RollOut,
    /// Name of its host by its certificate; empty: it takes no connections of other hosts.
    #[serde(default)]
    pub host: String,
    /// Where it takes connections of other hosts, `ADDRESS:PORT`; empty: nowhere.
    #[serde(default)]
    pub address: String,
    /// It has called over the network. (It does not say so itself.)
    #[serde(default)]
    pub remote: bool,
    /// It takes its own part of a placement; one of a release before wants all of it.
    #[serde(default)]
    pub parts: bool,
    /// A stream to it may lead on to other hosts of an application.
    #[serde(default)]
    pub leads_on: bool,
    /// It can be asked for stacks of PEs.
    #[serde(default)]
    pub stacks: bool,
    /// Checkpoints of its applications are made and restored from other hosts.
    #[serde(default)]
    pub images: bool,
}

/// Whether an apinit can bring the memory of a gang that stands to swap, or else into a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum RollOut {
    /// It is of a release before, which can't and does not tell.
    #[default]
    Untold,
    /// To swap.
    Can,
    /// Into a checkpoint of its own, where the application lets itself be checkpointed.
    ByCheckpoint,
    /// It can't: what stands in the way, as what follows "NID 0 has" (`no swap`).
    Cant(String),
}

impl RollOut {
    /// Where memory is that has gone, as what follows "612M".
    pub fn place(&self) -> &'static str {
        match self {
            RollOut::ByCheckpoint => "in a checkpoint",
            _ => "in swap",
        }
    }

    /// Where memory goes, as what follows "goes".
    pub fn way(&self) -> &'static str {
        match self {
            RollOut::ByCheckpoint => "into a checkpoint",
            _ => "to swap",
        }
    }

    /// What stands in the way, as what follows "NID 0 has".
    pub fn obstacle(&self) -> Option<&str> {
        match self {
            RollOut::Untold => Some("an apinit of an older release"),
            RollOut::Can | RollOut::ByCheckpoint => None,
            RollOut::Cant(why) => Some(why),
        }
    }
}

/// What a node is told about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSpec {
    /// Its number.
    pub nid: Nid,
    /// How many processors.
    pub processors: u32,
    /// Explicit real processors; empty: by number.
    pub cpus: Vec<u32>,
    /// Processors of this host in nodes of lower NID.
    pub first_processor: u32,
    /// Bytes.
    pub memory: u64,
}

impl NodeSpec {
    /// Of a node. `first_processor`: the processors of its host in nodes of lower NID.
    pub fn of(node: &Node, first_processor: u32) -> NodeSpec {
        let Node { nid, processors, memory, .. } = *node;
        NodeSpec { nid, processors, cpus: node.cpus.clone(), first_processor, memory }
    }

    /// The real processor behind processor `p` of this node, where the host has `real` ones: the
    /// explicit one, else virtual processor v is real processor v modulo their number.
    pub fn cpu(&self, p: u32, real: &[u32]) -> Option<u32> {
        match self.cpus.get(p as usize) {
            Some(cpu) => Some(*cpu),
            None if real.is_empty() => None,
            None => real.get((self.first_processor.checked_add(p)?) as usize % real.len()).copied(),
        }
    }
}

/// psched's answer to a hello that it takes.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Welcome {
    /// The store's id.
    pub store_id: String,
    /// How many times psched has started on it.
    pub epoch: u64,
    /// The apinit's nodes.
    pub nodes: Vec<NodeSpec>,
    /// From TERM to KILL.
    pub kill_grace: Duration,
    /// psched's monotonic clock and boot id.
    pub mono_ns: u64,
    /// See `mono_ns`.
    pub boot_id: String,
    /// The number of the next application: this psched has not given it, nor any higher one.
    pub next_apid: u64,
    /// The last starts on this store by epoch, this one too.
    pub starts: Vec<Start>,
    /// Commits of the store so far, as far as this psched knows that they are durable; 0: it is of
    /// a release that does not count them.
    pub commits: u64,
    /// Applications whose records psched can't read, in ascending order: nodes that have them know more.
    pub unreadable: Vec<Apid>,
    /// What the apinit may hold.
    pub bounds: HostBounds,
    /// What it seals checkpoints with; none: this psched has no key.
    pub checkpoint_key: Option<SealKey>,
}

impl Welcome {
    /// The id of that start, if it is known.
    pub fn start(&self, epoch: u64) -> Option<&str> {
        self.starts.iter().find(|start| start.epoch == epoch).map(|start| start.id.as_str())
    }
}

/// A start of psched on a store.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Start {
    /// Which one, counted from 1.
    pub epoch: u64,
    /// Random.
    pub id: String,
    /// Commits of the store before it; 0: not known, a release that does not count them made it.
    pub commits: u64,
}

/// How far an application is on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Phase {
    /// Known from psched, not launched.
    Placed,
    /// The launch has come.
    Launched,
    /// Its PEs run.
    Running,
    /// Empty; the report is not acknowledged yet.
    Ended,
}

/// A placement, for each apinit that holds part of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaceCommand {
    /// Which application.
    pub key: Key,
    /// Whose.
    pub owner: Owner,
    /// Its shape.
    pub shape: Shape,
    /// Its places: those of the part, or all.
    pub places: PlacementList,
    /// Its apinits, the head first: for the head and for psched all of them, else that of the part alone.
    pub hosts: Arc<[HostPart]>,
    /// Whose part it is.
    pub part: Part,
    /// What the front end will show.
    pub ticket: Ticket,
    /// For how long it is good.
    pub ticket_left: Duration,
    /// CPU time of each PE.
    pub cpu_limit: Option<Duration>,
    /// Time run.
    pub time_limit: Option<Duration>,
    /// From TERM to KILL.
    pub kill_grace: Duration,
    /// The same when its front end has died.
    pub front_kill_grace: Duration,
    /// Bytes for each PE.
    pub memory_per_pe: Option<u64>,
    /// Processes and threads that it may have on each node.
    pub pids_max: Option<u64>,
    /// What may be kept of it.
    pub bounds: Bounds,
    /// Whether it has IPC and a /dev/shm of its own.
    pub isolation: Isolation,
    /// Where it has these of its own, its PEs reach the service manager and the session bus of their
    /// user all the same.
    pub user_bus: bool,
    /// The random number of its posting, which no application of another store shares.
    pub request_id: [u8; 16],
    /// For display.
    #[serde(serialize_with = "crate::apteam::struck_out::without_arguments")]
    pub command: String,
    /// To how many hosts its head has a stream at most, each of which leads on to others; 0: to each of them.
    pub fan_out: u32,
    /// Others may sit on its processors: they take turns.
    pub shares: bool,
    /// Its nodes are its own, whichever of their processors its PEs have: for a psched that adopts it.
    pub exclusive: bool,
    /// Under which account it runs: likewise.
    pub account: Option<Account>,
    /// Where its PEs give way to the system.
    pub yields: Yields,
    /// What has been moved of it since its launch.
    pub moved: Moved,
    /// Its processes are brought back from a checkpoint, and none is executed.
    pub restart: Option<Restart>,
}

impl PlaceCommand {
    /// How many apinits it is on.
    pub fn host_count(&self) -> u32 {
        self.part.map.hosts()
    }

    /// The rank of the first PE of the part.
    pub fn first_rank(&self) -> u32 {
        self.mapped().next().map_or(0, |(_, node)| node.first_rank)
    }

    /// Its places with their nodes in the map, in rank order.
    pub fn mapped(&self) -> impl Iterator<Item = (&Place, MappedNode)> + '_ {
        let (all, own) = match self.part.index {
            None => (Some(self.part.map.all()), None),
            Some(host) => (None, Some(self.part.map.of_host(host))),
        };
        self.places.0.iter().zip(all.into_iter().flatten().chain(own.into_iter().flatten()))
    }

    /// Whether it is whole, as psched has it, or a whole part: its places are those of the map, and each has
    /// processors as the shape says.
    pub fn fits(&self) -> bool {
        let PlaceCommand { places, shape, part, .. } = self;
        let Some(host) = part.index else { return places.fits_or_shares(shape) };
        let own = part.map.of_host(host).map(|node| (node.nid, node.pes));
        part.map.pes() == u64::from(shape.width)
            && !places.0.is_empty()
            && places.0.iter().map(|place| (place.nid, place.pes)).eq(own)
            && places.are_of(shape)
    }

    /// The part of one of its apinits, of the whole. None: it has none.
    pub fn part_of(&self, index: u32) -> Option<PlaceCommand> {
        let host = self.hosts.get(index as usize)?;
        let own = self.mapped().filter(|(_, node)| node.host == index);
        let places = PlacementList(own.map(|(place, _)| place.clone()).collect());
        if places.0.is_empty() {
            return None;
        }
        let yields = self.yields.nids.iter().copied().filter(|nid| host.nids.contains(nid));
        Some(PlaceCommand {
            places,
            hosts: match index {
                0 => self.hosts.clone(),
                _ => [host.clone()].into(),
            },
            part: Part { index: Some(index), ..self.part.clone() },
            yields: Yields { nids: yields.collect(), ..self.yields },
            ..self.clone()
        })
    }

    /// The part of the apinit with these nodes: itself, unless it is the whole. Also the whole where that apinit has
    /// no part.
    pub fn narrowed(self, nids: &BTreeSet<Nid>) -> PlaceCommand {
        if self.part.index.is_some() {
            return self;
        }
        let index =
            self.hosts.iter().position(|host| host.nids.iter().any(|nid| nids.contains(nid)));
        index.and_then(|index| self.part_of(index as u32)).unwrap_or(self)
    }

    /// As one apinit has it, on which all of it is.
    pub fn alone(&self, places: PlacementList) -> PlaceCommand {
        let nids: Vec<Nid> = places.nids().collect::<BTreeSet<Nid>>().into_iter().collect();
        let host = |part: &HostPart| HostPart { nids: nids.clone(), ..part.clone() };
        let map = RankMap::alone(&places);
        let hosts = self.hosts.iter().map(host).collect();
        PlaceCommand { hosts, places, part: Part { map, ..self.part.clone() }, ..self.clone() }
    }
}

/// What an application is brought back from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restart {
    /// What it was when its checkpoint was made.
    pub from: Key,
    /// How long it had run by then: its time limit counts that too.
    pub run: Duration,
    /// Where its images are of several apinits: how many of its nodes were on each, in the order of its places.
    /// Each such part is brought back on one. Empty: all of it is.
    pub parts: Vec<u32>,
}

/// What an apinit keeps of the moves of an application, with its placement, for its next life and for a
/// psched that adopts it. A placement that psched sends has none of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// The number of the last [`MoveCommand`] that was carried out; 0: none was.
    pub number: u32,
    /// The nodes on which it was launched, in the order of its places on this apinit: its groups have their
    /// names for good. Empty: those of its places.
    pub born: Vec<Nid>,
    /// Its launch has named the processors of its PEs (`-cc` with a list): it stays where it is.
    pub fixed: bool,
    /// (Of a [`Restart`].) How far that is.
    pub restoring: Restoring,
}

/// How far an apinit is with bringing an application back from a checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Restoring {
    /// It has not begun, or there is nothing to bring back.
    #[default]
    No,
    /// It is at it. What another life of that apinit finds so is of no use to anybody, and is ended.
    Begun,
    /// It is back.
    Done(Shift),
}

/// What the apshepherd of an application that was brought back counts more than those who deal with it now:
/// for it the run goes on that began before the checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shift {
    /// Bytes of output that whoever ran it before has had.
    pub output: u64,
    /// Bytes of stdin that it had had.
    pub stdin: u64,
    /// What its CLOCK_MONOTONIC is ahead of the host's, in nanoseconds.
    pub clock_ns: i64,
}

/// A running application is to sit elsewhere on this apinit's nodes, or on other processors of the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveCommand {
    /// Which application.
    pub key: Key,
    /// Counted up over all moves that it was told, from 1: said again, it is answered again and not done again.
    pub number: u32,
    /// Where it is to sit, in the shape that it has: as many PEs on the first node, as many on the second.
    pub places: PlacementList,
}

/// On which nodes of an application PEs give way to the system's own work, and by how much. A psched of a
/// release before says nothing of it: on none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Yields {
    /// How much nicer they are there, 0 to [`NICE_MAX`].
    pub nice: u32,
    /// The nodes that are the system's too.
    pub nids: Vec<Nid>,
}

impl Yields {
    /// How much nicer PEs are on this node.
    pub fn on(&self, nid: Nid) -> u32 {
        if self.nids.contains(&nid) { self.nice } else { 0 }
    }
}

/// The nicest that a process can be.
pub const NICE_MAX: u32 = 19;

/// A node that does not obey the psched that it is linked to.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Foreign {
    /// The store that it obeys.
    pub store_id: String,
    /// Its epoch.
    pub epoch: u64,
    /// Why it does not obey, in words.
    pub why: String,
    /// What it holds. Without a command nothing is added, and nothing goes.
    pub applications: Vec<ForeignApplication>,
}

/// An application on a foreign node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForeignApplication {
    /// As the other psched placed it; of its ticket's time, the rest.
    pub place: PlaceCommand,
    /// How far it is here.
    pub phase: Phase,
    /// How long its PEs have run.
    pub run: Duration,
}

/// psched to apinit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// This is placed on you; wait for its launch.
    Place(Box<PlaceCommand>),
    /// Don't launch this; answered by [`Report::TakenBack`], or by [`Report::Launched`] when it is
    /// too late. `number`: psched gives each such command another one, which the answer repeats. A
    /// psched of a release before gives none: 0.
    TakeBack { key: Key, number: u64 },
    /// A signal for its PEs, to the head. Said again after a break of the link until its number comes
    /// back.
    Signal { key: Key, signal: NumberedSignal },
    /// End it: TERM (or the cause's own signal), then KILL after `kill_after`; zero: KILL at once.
    Terminate { key: Key, cause: Cause, kill_after: Duration },
    /// Its end is on record: forget it.
    AcknowledgeEnd(Key),
    /// It is not in the records, or no more: end it, and forget it.
    Discard(Key),
    /// (To a foreign node.) Obey this psched from now on.
    Adopt,
    /// (To a foreign node.) End what is there, by the word of this user; then obey this psched.
    Purge {
        /// The administrator.
        uid: u32,
    },
    /// What this apinit may hold has changed.
    Bounds(HostBounds),
    /// So its gangs take turns from then on. Answered by [`Report::PlanTaken`].
    Plan(Box<SlicePlan>),
    /// All have the plan of this generation: it counts.
    AgreePlan(u64),
    /// Not all have it: forget it.
    WithdrawPlan(u64),
    /// Let it sit there. Answered by [`Report::Moved`] or [`Report::MoveFailed`].
    Move(Box<MoveCommand>),
    /// It has no turn for long: bring its memory to swap once it stands. It comes in by itself before its
    /// next turn, so that one that is lost, late or said twice costs time at most. Answered by
    /// [`Report::RolledOut`].
    RollOut(Key),
}

/// apinit to psched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    /// The launch came with the right ticket (from the head only).
    Launched(Key),
    /// All its PEs go (from the head only).
    Running(Key),
    /// It was not launched and will not be. `number`: of the command that this answers. An apinit
    /// of a release before repeats none: 0.
    TakenBack { key: Key, number: u64 },
    /// It is being ended, and these processes outlive their KILL: in words, each time all of them.
    /// `nid` is the first of its nodes here.
    Stuck { key: Key, nid: Nid, processes: Vec<String> },
    /// psched's signals up to this number have come to all its apshepherds (from the head only).
    SignalsTaken { key: Key, number: u64 },
    /// Nothing of it is left here. Repeated until acknowledged; each apinit speaks for its own
    /// nodes.
    Ended(Box<HostEnd>),
    /// It has been told something that psched does not know of, a signal of its front end's say, which
    /// it can hear only when it runs (from the head only); `ends`: to end. Not repeated.
    ToHear { key: Key, ends: bool },
    /// The plan of this generation has come.
    PlanTaken(u64),
    /// How changes of party went, and what else is measured. Not repeated.
    Switches(Box<Switches>),
    /// Whether a running application can be moved here, once it runs and to a psched that has just come;
    /// `blocker`: why not.
    Movable { key: Key, blocker: Option<MigrationBlocker> },
    /// It sits where the move of this number was to bring it. `frozen`: for how long it stood for that; zero
    /// where it is said again.
    Moved { key: Key, number: u32, frozen: Duration },
    /// It sits where it sat, and why.
    MoveFailed { key: Key, number: u32, why: MigrationBlocker },
    /// So many bytes of it are in swap on this apinit's nodes; `why`: no more of it went. Not repeated.
    RolledOut { key: Key, bytes: u64, why: Option<String> },
}

impl Command {
    /// Its kind, as it is counted (`psmgr counters`).
    pub fn kind(&self) -> &'static str {
        match self {
            Command::Place(_) => "command: place",
            Command::TakeBack { .. } => "command: take back",
            Command::Signal { .. } => "command: signal",
            Command::Terminate { .. } => "command: terminate",
            Command::AcknowledgeEnd(_) => "command: acknowledge end",
            Command::Discard(_) => "command: discard",
            Command::Adopt => "command: adopt",
            Command::Purge { .. } => "command: purge",
            Command::Bounds(_) => "command: bounds",
            Command::Plan(_) => "command: plan",
            Command::AgreePlan(_) => "command: agree to plan",
            Command::WithdrawPlan(_) => "command: withdraw plan",
            Command::Move(_) => "command: move",
            Command::RollOut(_) => "command: memory out",
        }
    }
}

/// What a command says beside its kind, as `psched replay` shows it.
impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Command::Place(place) => {
                format!(
                    "{} of {} on {}",
                    place.key,
                    place.owner.name,
                    nids_text(place.places.nids())
                )
            }
            Command::TakeBack { key, .. }
            | Command::AcknowledgeEnd(key)
            | Command::Discard(key)
            | Command::RollOut(key) => key.to_string(),
            Command::Signal { key, signal } => format!("{key}, signal {}", signal.signal),
            Command::Terminate { key, cause, .. } => format!("{key}: {cause:?}"),
            Command::Purge { uid } => format!("by uid {uid}"),
            Command::Plan(plan) => {
                let slices = plan.slices.iter().map(|slice| {
                    format!("{} ms: {}", slice.length.as_millis(), joined(&slice.party))
                });
                let slices: Vec<String> = slices.collect();
                format!("plan {}: {}", plan.generation, slices.join("; "))
            }
            Command::AgreePlan(generation) | Command::WithdrawPlan(generation) => {
                format!("plan {generation}")
            }
            Command::Move(to) => {
                format!("{}, move {}, to {}", to.key, to.number, nids_text(to.places.nids()))
            }
            Command::Adopt | Command::Bounds(_) => String::new(),
        };
        f.write_str(&text)
    }
}

impl Report {
    /// Its kind, as it is counted (`psmgr counters`).
    pub fn kind(&self) -> &'static str {
        match self {
            Report::Launched(_) => "report: launched",
            Report::Running(_) => "report: running",
            Report::TakenBack { .. } => "report: taken back",
            Report::Stuck { .. } => "report: stuck",
            Report::SignalsTaken { .. } => "report: signals taken",
            Report::Ended(_) => "report: ended",
            Report::ToHear { .. } => "report: to be heard",
            Report::PlanTaken(_) => "report: plan taken",
            Report::Switches(_) => "report: switches",
            Report::Movable { .. } => "report: movable",
            Report::Moved { .. } => "report: moved",
            Report::MoveFailed { .. } => "report: move failed",
            Report::RolledOut { .. } => "report: memory out",
        }
    }
}

/// What a report says beside its kind, as `psched replay` shows it.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Report::Launched(key) | Report::Running(key) | Report::TakenBack { key, .. } => {
                key.to_string()
            }
            Report::Stuck { key, nid, processes } => {
                format!("{key} on NID {nid}: {}", joined(processes))
            }
            Report::SignalsTaken { key, number } => format!("{key}, up to {number}"),
            Report::Ended(end) => {
                format!(
                    "{} on {}, status {}",
                    end.key,
                    nids_text(end.nids.iter().copied()),
                    end.status()
                )
            }
            Report::ToHear { key, ends } => {
                format!("{key}{}", if *ends { ", its end" } else { "" })
            }
            Report::PlanTaken(generation) => format!("plan {generation}"),
            Report::Switches(all) => {
                let last = all.switches.last();
                let stopped = last.map_or_else(String::new, |last| {
                    format!(
                        "; last stopped {}, started {}",
                        joined(&last.stopped),
                        joined(&last.started)
                    )
                });
                format!("{} changes{stopped}", all.switches.len())
            }
            Report::Movable { key, blocker: None } => format!("{key}: it can be moved"),
            Report::Movable { key, blocker: Some(why) } => format!("{key}: {why}"),
            Report::Moved { key, number, .. } => format!("{key}, move {number}"),
            Report::MoveFailed { key, number, why } => format!("{key}, move {number}: {why}"),
            Report::RolledOut { key, bytes, why } => {
                let why = why.as_ref().map_or_else(String::new, |why| format!(": {why}"));
                format!("{key}, {bytes} bytes{why}")
            }
        };
        f.write_str(&text)
    }
}

/// `1.1, 2.1`, or `none`.
pub fn joined(all: impl IntoIterator<Item = impl ToString>) -> String {
    let all: Vec<String> = all.into_iter().map(|one| one.to_string()).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}
