//! The scheduler: every decision of psched, as a pure function of what it has been told.
//!
//! # Problem
//! psched must decide where and when applications run while front ends die, nodes vanish and come
//! back, reports arrive late or twice, and psched itself may be killed at any instruction. Locks
//! and callbacks make such a program untestable; so there is one owner of all state and one way in.
//!
//! # Approach
//! [`Scheduler::apply`] takes an [`Event`] and the time, changes the state, and returns what is to
//! be done as [`Effect`]s. Nothing is done here: no clock, no disk, no network. Two kinds of
//! effects are records ([`Effect::is_record`]); the others leave psched only once the records of
//! the same batch, and of all before it, are durable. So whatever anybody outside has seen is on
//! disk, and after a crash [`Scheduler::restore`] goes on from there.
//!
//! # Example
//! A posting on an idle machine gives, in this order: a saved record (already placed), log lines,
//! the acceptance for aprun, the placement for the node, and the signal to aprun:
//!
//! ```text
//! Posted{..}  ->  Save(12: placed on 0-1)  Log(posted)  Log(placed)
//!                 Accept(12)  Command(Place 12.1)  Look(12)
//! ```
//!
//! # Where things are
//! Postings, looks and the line are in `postings.rs`; places that are given and taken back in
//! `placed.rs`; ends and kills in `ends.rs`; links, inventories and reports in `nodes.rs`; nodes that
//! obey another psched in `foreign.rs`, nodes that an administrator has closed in `closed.rs`,
//! applications that he holds in `hold.rs`; the links of an application's nodes in `linked.rs`; who
//! runs when in `turns.rs`, and who runs where by least attained service in `decide.rs`; who is moved
//! for a posting under round robin in `migrate.rs`; how the changes went in `measured.rs`, with how much
//! memory applications count in `memory.rs`; what `apstat` is told in `view.rs`; for whoever drives a
//! scheduler, the order of records and effects in [`outbox`], and the values of variables in [`tuning`].

mod closed;
mod decide;
mod ends;
mod foreign;
mod hold;
mod linked;
mod machines;
mod measured;
mod memory;
mod migrate;
mod nodes;
pub mod outbox;
mod placed;
mod postings;
pub mod tuning;
mod turns;
mod view;

pub use closed::NodesTo;
pub use measured::{Figures, Histogram, Latest, Measured, Partial};
pub use turns::{PlanView, Share, Turn};
pub use view::NodeView;

#[cfg(test)]
mod random;
#[cfg(test)]
mod tests;

use crate::apteam::bounds::{Bounds, HostBounds};
use crate::apteam::change::{By, Change, NodeOrder};
use crate::apteam::ending::HostEnd;
use crate::apteam::place::PlacementList;
use crate::apteam::posting::{Explanation, Owner, Posting};
use crate::apteam::record::{Apteam, FrontProcess, State};
use crate::apteam::talk::node::{Command, Foreign, Hello, Phase, Report};
use crate::apteam::{Apid, Key, Ticket};
use crate::gang::levels;
use crate::machine::{Machine, Nid};
use crate::occupancy::{Occupancy, Rules};
use crate::placement::migration::Gate;
use crate::variables::{Isolation, Order, Top, Variables};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The time of an event, on both clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Nanoseconds of CLOCK_MONOTONIC: what every rule uses.
    pub mono_ns: u64,
    /// Nanoseconds since the epoch: for display, and for what is counted in days over restarts.
    pub wall_ns: u64,
}

/// Who waits for an answer. The shell hands these out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReplyId(pub u64);

/// One connection of an apinit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkId(pub u64);

/// The variables that the scheduler obeys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How long a placed front end may be silent.
    pub ticket_time: Duration,
    /// Starts past a waiting posting after which nodes are kept for it.
    pub passed_over_max: u32,
    /// From TERM to KILL.
    pub kill_grace: Duration,
    /// From apkill's TERM to KILL.
    pub apkill_grace: Duration,
    /// Processes and threads that an application may have on each node.
    pub pids_max: u64,
    /// From TERM to KILL when the aprun has died.
    pub front_kill_grace: Duration,
    /// What may be kept of an application.
    pub bounds: Bounds,
    /// What an apinit may hold.
    pub host_bounds: HostBounds,
    /// Orders of psmgr that wait for their nodes.
    pub orders_max: usize,
    /// Streams that watch one application: for whoever has the streams.
    pub watches_max: usize,
    /// Whether applications have IPC and a /dev/shm of their own.
    pub isolation: Isolation,
    /// Waiting postings altogether.
    pub postings_max: usize,
    /// Waiting postings of one user.
    pub postings_user_max: usize,
    /// How competing applications take turns.
    pub turns: Turns,
    /// The only user whose programs the nodes can run: where psched has no privilege.
    pub only_uid: Option<u32>,
    /// What nodes can do beside stopping a gang and letting it go on.
    pub abilities: Abilities,
}

/// What nodes can do with a gang that stands: what they can't is never planned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Abilities {
    /// Give it other processors, here or on other nodes.
    pub moves: bool,
    /// Take its memory out, and bring it in again anywhere.
    pub roll_out: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            ticket_time: Duration::from_secs(60),
            passed_over_max: 50,
            kill_grace: Duration::from_secs(5),
            apkill_grace: Duration::from_secs(300),
            front_kill_grace: Duration::from_secs(2),
            bounds: Bounds::default(),
            host_bounds: HostBounds::default(),
            orders_max: 64,
            watches_max: 64,
            pids_max: 16_384,
            isolation: Isolation::default(),
            postings_max: 100_000,
            postings_user_max: 10_000,
            turns: Turns::default(),
            only_uid: None,
            abilities: Abilities::default(),
        }
    }
}

impl From<&Variables> for Settings {
    fn from(v: &Variables) -> Settings {
        let count = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
        Settings {
            ticket_time: v.ticket_time(),
            passed_over_max: u32::try_from(v.passed_over_max()).unwrap_or(u32::MAX),
            kill_grace: v.kill_grace(),
            front_kill_grace: v.front_kill_grace(),
            bounds: v.into(),
            host_bounds: v.into(),
            orders_max: count(v.orders_max()),
            watches_max: count(v.watches_max()),
            isolation: v.isolation(),
            apkill_grace: v.apkill_grace(),
            pids_max: v.pids_max(),
            postings_max: count(v.postings_max()),
            postings_user_max: count(v.postings_user_max()),
            turns: v.into(),
            ..Settings::default()
        }
    }
}

/// How competing applications take turns: the variables of the domain `application`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turns {
    /// In which order.
    pub order: Order,
    /// How long one leads, under round robin.
    pub time_slice: Duration,
    /// Gangs on one processor.
    pub max_resident: u32,
    /// Who has waited so long leads next.
    pub longest_wait: Duration,
    /// How much of a node's memory may be promised, in thousandths.
    pub memory_overcommit: u64,
    /// The share of a slice that bringing memory in may take, in thousandths.
    pub switch_share: u64,
    /// By what rules least attained service goes.
    pub levels: levels::Rules,
    /// How often it is looked again who is to run, by least attained service.
    pub reconsider: Duration,
    /// How long one has not run before others are moved aside for it.
    pub compact_after: Duration,
    /// What a start is taken to cost until it has been measured.
    pub start_cost: Duration,
    /// What migration may do.
    pub migration: Gate,
    /// From the sending of a plan to its beginning.
    pub plan_lead: Duration,
    /// Weights of users by name, where they are not 1.
    pub weights: BTreeMap<String, u32>,
}

impl From<&Variables> for Turns {
    fn from(variables: &Variables) -> Turns {
        Turns {
            order: variables.application_order(),
            time_slice: variables.application_time_slice(),
            max_resident: u32::try_from(variables.application_max_resident()).unwrap_or(u32::MAX),
            longest_wait: variables.application_longest_wait(),
            memory_overcommit: variables.application_memory_overcommit(),
            switch_share: variables.application_switch_share(),
            levels: level_rules(variables),
            reconsider: variables.application_reconsider(),
            compact_after: variables.application_compact_after(),
            start_cost: variables.application_start_cost(),
            migration: Gate::from(variables),
            plan_lead: variables.plan_lead(),
            weights: variables.weights(),
        }
    }
}

fn level_rules(v: &Variables) -> levels::Rules {
    let ratio = u32::try_from(v.application_level_ratio()).unwrap_or(u32::MAX);
    let bound = v.application_level_bound();
    let bounds = std::iter::successors(Some(bound), |bound| Some(bound.saturating_mul(ratio)));
    let count = usize::try_from(v.application_level_count()).unwrap_or(usize::MAX);
    let level = usize::try_from(v.application_aging_level()).unwrap_or(usize::MAX);
    levels::Rules {
        bounds: bounds.take(count.saturating_sub(1).min(levels::LEVELS_MAX)).collect(),
        stickiness: v.application_level_stickiness(),
        aging_after: v.application_aging_after(),
        aging_share: v.application_aging_share(),
        aging_level: level,
        aging_grant: v.application_aging_grant(),
        aging_grant_share: v.application_aging_grant_share(),
        longest_wait: v.application_longest_wait(),
        top_turns: (v.application_level_top() == Top::Turns).then(|| v.application_time_slice()),
        switch_share: v.application_switch_share(),
        wide_first: v.application_level_wide_first(),
        width_exponent: v.application_level_width_exponent(),
    }
}

impl Default for Turns {
    fn default() -> Turns {
        (&Variables::default()).into()
    }
}

impl Turns {
    /// How many times as long the slices are that this user's gangs lead.
    fn weight(&self, owner: &Owner) -> u32 {
        self.weights.get(&owner.name).copied().unwrap_or(1)
    }

    /// How many may sit where.
    fn rules(&self) -> Rules {
        Rules { max_resident: self.max_resident, memory_overcommit: self.memory_overcommit }
    }
}

/// What comes from outside.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A posting. `secret` is random; it becomes the ticket.
    Posted {
        reply: ReplyId,
        posting: Box<Posting>,
        owner: Owner,
        front: FrontProcess,
        secret: Ticket,
    },
    /// A front end looks for its placement.
    Looked { reply: ReplyId, apid: Apid },
    /// The process of a front end has gone.
    FrontGone { apid: Apid },
    /// apkill. `signal` 0: TERM, and KILL after [`Settings::apkill_grace`].
    Kill { reply: ReplyId, apids: Vec<Apid>, signal: i32, uid: u32, administrator: bool },
    /// An apinit has introduced itself.
    LinkOpened { link: LinkId, hello: Box<Hello> },
    /// What it has.
    Inventory { link: LinkId, items: Vec<(Key, Phase)> },
    /// It does not obey this psched, and has this: in place of an inventory.
    Foreign { link: LinkId, foreign: Box<Foreign> },
    /// psmgr adopt, or purge, by this user.
    Manage {
        reply: ReplyId,
        what: Manage,
        nids: BTreeSet<Nid>,
        by: By,
        administrator: bool,
        /// Numbers of [`Scheduler::foreign_apids`] that the store has given to other applications,
        /// which have ended.
        used: BTreeSet<Apid>,
    },
    /// psmgr drain, down, or resume, by this administrator.
    Nodes { reply: ReplyId, to: NodesTo, nids: BTreeSet<Nid>, reason: String, by: By },
    /// psmgr hold, or release, by this administrator.
    Hold { reply: ReplyId, apids: BTreeSet<Apid>, hold: bool, by: By },
    /// What it can't do is this now.
    Noted { link: LinkId, notes: Vec<String> },
    /// Its connection has gone.
    LinkClosed { link: LinkId },
    /// It reports.
    Report { link: LinkId, report: Box<Report> },
    /// The store can't take a new posting: it is as if it had not come.
    StoreRefused { apid: Apid, why: String },
    /// A gang that was moved, or brought in, is where it was to be.
    Moved {
        /// Which.
        key: Key,
    },
    /// Time has passed: see [`Scheduler::deadline`].
    Tick,
    /// Settings have been changed.
    Settings(Box<Settings>),
    /// The configuration has these nodes now.
    Machine(Box<Machine>),
}

/// What is to become of a foreign node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manage {
    /// It obeys this psched, its applications run on.
    Adopt,
    /// Its applications are ended, then it obeys this psched.
    Purge,
}

/// What a front end is told.
#[derive(Clone, Debug, PartialEq)]
pub enum News {
    /// There may be a placement: look.
    Placed,
    /// Its PEs run.
    Running,
    /// It has ended with this status.
    Ended { end: Box<HostEnd>, status: u8 },
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
#[derive(Clone, Debug, PartialEq)]
pub enum Looked {
    /// Its place.
    Placed(Box<Apteam>),
    /// None yet.
    Waiting(Explanation),
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Keep this record. Lazy: with the next one that is not, or soon.
    Save { team: Box<Apteam>, lazy: bool },
    /// Keep this new record, of an application that another psched has started.
    SaveAdopted { team: Box<Apteam> },
    /// Keep its count of starts past it.
    SavePassedOver { apid: Apid, passed_over: u32 },
    /// A line of an application's event log.
    Log { apid: Apid, name: &'static str, detail: String },
    /// Keep which boot of their host these nodes were last seen in.
    SaveBoot { nids: Vec<Nid>, boot_id: String },
    /// Keep how an administrator has closed these nodes; none: he has opened them again.
    SaveNodes { nids: Vec<Nid>, order: Option<Box<NodeOrder>> },
    /// Keep a line of the log of changes.
    SaveChange(Change),
    /// The posting is accepted.
    Accept { reply: ReplyId, apid: Apid },
    /// A request is refused.
    Refuse { reply: ReplyId, refusal: Refusal, explanation: Explanation },
    /// The answer to a look.
    Look { reply: ReplyId, looked: Looked },
    /// The answer to a kill: a problem for each apid, or none.
    Killed { reply: ReplyId, problems: Vec<Option<String>> },
    /// The answer to [`Event::Manage`], [`Event::Nodes`] or [`Event::Hold`]: what is so now, and what
    /// stood in the way.
    Managed { reply: ReplyId, done: Vec<String>, problems: Vec<String> },
    /// For an apinit.
    Command { link: LinkId, command: Command },
    /// It stands, and is to sit there from now on: its nodes move it, or bring it in that was out.
    Move {
        /// Which.
        key: Key,
        /// Where it sat; nowhere: it was rolled out.
        from: PlacementList,
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
    /// Its connection is replaced by another of the same nodes.
    CloseLink { link: LinkId },
    /// SIGUSR1 to the front end.
    SignalFront { apid: Apid, front: FrontProcess },
    /// For those who watch it.
    Tell { apid: Apid, news: News },
    /// Its end, for those who watch it, at once: its nodes keep what they have reported until it is
    /// acknowledged, which waits for the record, so a psched that is killed now hears it again.
    TellEnd { apid: Apid, end: Box<HostEnd>, status: u8 },
    /// Something for the daemon's log.
    Warn(String),
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

    /// Whether this goes into the store; the others wait until it is there, unless they wait for
    /// nothing.
    pub fn is_record(&self) -> bool {
        use Effect::*;
        matches!(
            self,
            Save { .. }
                | SaveAdopted { .. }
                | SavePassedOver { .. }
                | Log { .. }
                | SaveBoot { .. }
                | SaveNodes { .. }
                | SaveChange(_)
        )
    }
}

/// A live connection of an apinit.
#[derive(Clone, Debug)]
struct Link {
    hello: Hello,
    /// Its inventory has come: its nodes are open.
    known: bool,
    /// It obeys another psched.
    foreign: Option<foreign::Stranger>,
}

/// All of psched's state.
#[derive(Clone, Debug)]
pub struct Scheduler {
    machine: Machine,
    occupancy: Occupancy,
    settings: Settings,
    /// Applications that have not ended.
    teams: BTreeMap<Apid, Apteam>,
    /// Those of them that wait for a place, in order of arrival.
    queue: BTreeSet<Apid>,
    /// Applications by the random number of their posting, while they have not ended.
    requests: BTreeMap<[u8; 16], Apid>,
    next_apid: u64,
    links: BTreeMap<LinkId, Link>,
    /// The link that offers a node now.
    offered: BTreeMap<Nid, LinkId>,
    /// The links that offer the nodes of each application that has any, that of PE 0 first.
    linked: BTreeMap<Apid, Vec<LinkId>>,
    /// The boot of a node's host when it was last seen. A change kills what ran there.
    boots: BTreeMap<Nid, String>,
    /// Nodes that have acknowledged that a placement is taken back.
    taken_back: BTreeMap<Key, BTreeSet<Nid>>,
    /// Processes that outlive their KILL, in words, by application and the first of its nodes on
    /// their host. No record: their nodes say it again.
    stuck: BTreeMap<Apid, BTreeMap<Nid, Vec<String>>>,
    /// When the next ticket lapses, at the earliest.
    tickets: BTreeSet<(u64, Apid)>,
    /// When it is looked whether the memory of an application that runs is known well enough.
    settling: BTreeSet<(u64, Apid)>,
    /// Applications with a place where they do not run yet.
    coming: BTreeSet<Apid>,
    /// Nodes that an administrator has closed.
    closed: BTreeMap<Nid, NodeOrder>,
    /// Answers that wait until foreign nodes have done what they were told.
    managed: Vec<foreign::Managed>,
    /// Nodes that are in use, and not in the configuration, or not with all their processors.
    retired: BTreeSet<Nid>,
    /// The machine as configured, without these.
    configured: Machine,
    /// How what runs takes turns.
    schedule: turns::Schedule,
    /// When the last event came, in nanoseconds since the epoch.
    wall_ns: u64,
    /// How the changes went.
    measured: Measured,
}

impl Scheduler {
    /// A scheduler with no history.
    pub fn new(machine: Machine, settings: Settings) -> Scheduler {
        Scheduler {
            occupancy: Occupancy::new(&machine, settings.turns.rules()),
            configured: machine.clone(),
            schedule: turns::Schedule::new(&machine),
            machine,
            settings,
            teams: BTreeMap::new(),
            queue: BTreeSet::new(),
            requests: BTreeMap::new(),
            next_apid: 1,
            links: BTreeMap::new(),
            offered: BTreeMap::new(),
            linked: BTreeMap::new(),
            boots: BTreeMap::new(),
            taken_back: BTreeMap::new(),
            stuck: BTreeMap::new(),
            tickets: BTreeSet::new(),
            settling: BTreeSet::new(),
            coming: BTreeSet::new(),
            closed: BTreeMap::new(),
            managed: Vec::new(),
            measured: Measured::default(),
            retired: BTreeSet::new(),
            wall_ns: 0,
        }
    }

    /// A scheduler that goes on from the records of one that was killed: all its nodes are unknown
    /// until they call, and nothing is freed by that: nodes that were taken out of the configuration
    /// meanwhile are kept for what is on them. The effects are for records that contradict each
    /// other.
    pub fn restore(
        machine: Machine,
        settings: Settings,
        records: Vec<Apteam>,
        boots: BTreeMap<Nid, String>,
        closed: BTreeMap<Nid, NodeOrder>,
        next_apid: u64,
        now: Now,
    ) -> (Scheduler, Vec<Effect>) {
        let configured = machine.clone();
        let (machine, retired) = machines::with_retired(machine, None, records.iter());
        let mut s = Scheduler::new(machine, settings);
        (s.boots, s.closed, s.retired, s.configured) = (boots, closed, retired, configured);
        let mut out = Vec::new();
        let newest = records.iter().map(|t| t.apid.0 + 1).max().unwrap_or(1);
        s.next_apid = next_apid.max(newest).max(1);
        for team in records {
            let apid = team.apid;
            let state = team.state;
            if state == State::Ended {
                continue;
            }
            s.requests.insert(team.posting.request_id, apid);
            let lost = state.holds_processors()
                && s.occupancy.take_found(apid, &team.places, (&team).into()).is_err();
            if state == State::Posted {
                s.queue.insert(apid);
            }
            if state == State::Placed {
                s.tickets.insert((team.ticket_until_ns, apid));
            }
            if matches!(state, State::Placed | State::Launching) {
                s.coming.insert(apid);
            }
            let nids: Vec<Nid> = team.places.nids().collect();
            s.teams.insert(apid, team);
            if state.holds_processors() {
                s.turns_inherited(apid, state == State::Running);
            }
            if state == State::Running {
                s.turns_changed(now, apid);
                s.turns_restored(apid);
                s.turns_away(now, &nids);
            }
            if lost {
                s.lose_nodes(
                    now,
                    apid,
                    None,
                    "the records give its processors to another too",
                    &mut out,
                );
            }
        }
        // Those of them that wait for a word of nodes that are gone.
        let apids: Vec<Apid> = s.teams.keys().copied().collect();
        for apid in apids {
            s.lose_down(now, apid, &mut out);
        }
        (s, out)
    }

    /// Takes an event and says what is to be done.
    pub fn apply(&mut self, now: Now, event: Event) -> Vec<Effect> {
        let mut out = Vec::new();
        self.wall_ns = now.wall_ns;
        match event {
            Event::Posted { reply, posting, owner, front, secret } => {
                self.posted(now, reply, *posting, owner, front, secret, &mut out);
            }
            Event::Looked { reply, apid } => self.looked(now, reply, apid, &mut out),
            Event::FrontGone { apid } => self.front_gone(now, apid, &mut out),
            Event::Kill { reply, apids, signal, uid, administrator } => {
                let problems = apids
                    .into_iter()
                    .map(|apid| self.kill(now, apid, signal, uid, administrator, &mut out).err())
                    .collect();
                out.push(Effect::Killed { reply, problems });
            }
            Event::LinkOpened { link, hello } => self.link_opened(now, link, *hello, &mut out),
            Event::Inventory { link, items } => self.inventory(now, link, &items, &mut out),
            Event::Foreign { link, foreign } => self.foreign_called(link, *foreign, &mut out),
            Event::Manage { reply, what, nids, by, administrator, used } => {
                let order = foreign::Order { reply, what, nids, by, administrator, used };
                self.manage(now, &order, &mut out);
            }
            Event::Nodes { reply, to, nids, reason, by } => {
                self.order_nodes(now, reply, to, &nids, reason, by, &mut out);
            }
            Event::Hold { reply, apids, hold, by } => {
                self.hold(now, reply, &apids, hold, &by, &mut out);
            }
            Event::Noted { link, notes } => {
                if let Some(link) = self.links.get_mut(&link) {
                    link.hello.notes = notes;
                }
            }
            Event::LinkClosed { link } => self.link_closed(now, link, &mut out),
            Event::Report { link, report } => self.report(now, link, *report, &mut out),
            Event::StoreRefused { apid, why } => self.store_refused(now, apid, &why, &mut out),
            Event::Moved { key } => self.moved(now, key, &mut out),
            Event::Tick => {
                self.tick(now, &mut out);
                self.memory_tick(now, &mut out);
                self.turns_tick(now, &mut out);
            }
            Event::Machine(machine) => self.reconfigured(now, *machine, &mut out),
            Event::Settings(settings) => {
                let before = std::mem::replace(&mut self.settings, *settings);
                if before.turns != self.settings.turns {
                    self.turns_ruled(now, before.turns.order);
                }
                let after = self.settings.host_bounds;
                self.occupancy.set_rules(self.settings.turns.rules());
                if before.host_bounds != after {
                    let command = |link: &LinkId| {
                        let command = Command::Bounds(after);
                        Effect::Command { link: *link, command }
                    };
                    out.extend(self.links.keys().map(command));
                }
                self.place_waiting(now, &mut out);
            }
        }
        self.decide_if_due(now, &mut out);
        self.migrate_if_due(now, &mut out);
        self.turns_settle(now, &mut out);
        debug_assert!(self.linked_rightly());
        out
    }

    /// When [`Event::Tick`] is wanted next, on the monotonic clock.
    pub fn deadline(&self) -> Option<u64> {
        let first = |at: &BTreeSet<(u64, Apid)>| at.first().map(|(at, _)| *at);
        let first = [first(&self.tickets), first(&self.settling)].into_iter().flatten();
        first.chain(self.schedule.deadline()).min()
    }

    /// The next application's number: what the store must keep, lest one be used twice.
    pub fn next_apid(&self) -> u64 {
        self.next_apid
    }

    /// The variables that it obeys.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The machine that it schedules.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    fn save(&self, apid: Apid, lazy: bool, out: &mut Vec<Effect>) {
        if let Some(team) = self.teams.get(&apid) {
            out.push(Effect::Save { team: Box::new(team.clone()), lazy });
        }
    }

    /// Moves an application to another state, if the table of states allows it.
    fn become_state(&mut self, apid: Apid, next: State) -> bool {
        let Some(team) = self.teams.get_mut(&apid) else { return false };
        if !team.state.may_become(next) {
            return false;
        }
        if team.state == State::Placed {
            self.tickets.remove(&(team.ticket_until_ns, apid));
        }
        if team.state == State::Posted {
            self.queue.remove(&apid);
        }
        match matches!(next, State::Placed | State::Launching) {
            true => self.coming.insert(apid),
            false => self.coming.remove(&apid),
        };
        team.state = next;
        match next {
            State::Posted => {
                self.queue.insert(apid);
            }
            State::Placed => {
                self.tickets.insert((team.ticket_until_ns, apid));
            }
            _ => {}
        }
        true
    }

    /// Who an application is, in explanations: `12 of alice`.
    fn name_of(&self, apid: Apid) -> String {
        match self.teams.get(&apid) {
            Some(team) => format!("{apid} of {}", team.owner.name),
            None => apid.to_string(),
        }
    }
}
