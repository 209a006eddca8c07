//! The scheduler: every decision of psched, as a pure function of what it has been told.
//!
//! # Problem
//! psched must decide where and when applications run while front ends die, nodes vanish and come
//! back, reports arrive late or twice, and psched itself may be killed at any instruction. Locks
//! and callbacks make such a program untestable; so there is one owner of all state and one way in.
//!
//! # Approach
//! [`Scheduler::apply`] takes an [`Event`] and the time, changes the state, and returns what is to
//! be done as [`Effect`]s. Nothing is done here: no clock, no disk, no network. Effects that keep
//! or log are records; the others leave psched only once the records of the same batch, and of all
//! before it, are durable, but for a few ([`Effect::waits_for_nothing`]). So whatever anybody
//! outside has seen is on disk, and after a crash [`Scheduler::restore`] goes on from there.
//!
//! # Example
//! A posting on an idle machine gives, in this order: a saved record (already placed), log lines,
//! the acceptance for aprun, the placement for the node, and the signal to aprun:
//!
//! ```text
//! Posted{..}  ->  Keep(Posted 12: placed on 0-1)  Log(posted)  Log(placed)
//!                 Accept(12)  Command(Place 12.1)  Look(12)
//! ```
//!
//! # Where things are
//! What it is told is in `event.rs`, what it wants done in `effect.rs`, what is kept of it in `keeping.rs`, what it obeys in
//! `settings.rs`.
//! Postings, looks and the line are in `postings.rs`; places that are given and taken back in
//! `placed.rs`; ends and kills in `ends.rs`; links, inventories and reports in `nodes.rs`; nodes that
//! obey another psched in `foreign.rs`, nodes that an administrator has closed in `closed.rs`, or has
//! given flavors in `flavors.rs`; parts of the machine that are scheduled apart in `domains.rs`;
//! applications that he holds in `hold.rs`; the links of an application's nodes in `linked.rs`; who
//! runs when in `turns.rs`, and who runs where in `decisions.rs`; what users have had in `shares.rs`; how a move
//! goes in `moves.rs`; how the changes went in `measured.rs`, with how much memory applications count in
//! `memory.rs`, and how much of the records they take in `kept.rs`; what `apstat` is told in `view.rs`; for
//! whoever drives a scheduler, the order of records and effects in [`outbox`], and the values of variables in
//! [`tuning`].

mod app_links;
mod compare;
mod counters;
mod decisions;
mod domains;
mod drain;
mod effect;
mod ends;
mod event;
mod flavors;
mod foreign;
mod hold;
mod invariants;
mod keeping;
mod kept;
mod measured;
mod memory;
mod moves;
mod nodes;
pub mod outbox;
mod placed;
mod postings;
mod reconfigure;
mod regions;
mod restarts;
mod settings;
mod shares;
pub mod tuning;
mod turns;
mod view;

pub use counters::Counters;
pub use drain::NodesTo;
pub use effect::{Effect, Looked, News, Refusal};
pub use ends::SIGNALS_MAX;
pub use event::{Event, LinkId, Manage, Now, ReplyId};
pub use foreign::PurgedEnd;
pub use keeping::Record;
pub use measured::{Figures, Histogram, Latest, Measured, Partial};
pub use restarts::Origin;
pub use settings::{Abilities, RollsOut, Settings, Turns};
pub use shares::{Had, Holding, SharesRecord};
pub use turns::{PlanView, Share, Turn};
pub use view::When;
pub use view::nodes::NodeView;

#[cfg(test)]
mod random;
#[cfg(test)]
mod tests;

use crate::apteam::change::{FlavorOrder, NodeOrder, Orders};
use crate::apteam::protocol::node::{Command, Hello};
use crate::apteam::record::{Apteam, State};
use crate::apteam::{Apid, Key};
use crate::machine::{Machine, Nid};
use crate::occupancy::Occupancy;
use crate::psched::reason::{AppName, sees_all};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A live connection of an apinit.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Link {
    hello: Hello,
    /// Its inventory has come: its nodes are open.
    known: bool,
    /// It obeys another psched.
    foreign: Option<foreign::Stranger>,
}

/// All of psched's state.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Scheduler {
    machine: Machine,
    /// Of each of its nodes [`Machine::first_processor`], which is asked of all of them.
    first_processors: BTreeMap<Nid, u32>,
    occupancy: Occupancy,
    settings: Settings,
    /// The domains of the machine; at least one.
    domains: Vec<domains::Domain>,
    /// Applications that have not ended.
    teams: BTreeMap<Apid, Apteam>,
    /// What the records of these take, by user.
    kept_bytes: kept::KeptBytes,
    /// Those of them that wait for a place, in order of arrival.
    queue: BTreeSet<Apid>,
    /// Applications by the random number of their posting, while they have not ended.
    #[serde(with = "crate::pairs")]
    requests: BTreeMap<[u8; 16], Apid>,
    next_apid: u64,
    links: BTreeMap<LinkId, Link>,
    /// The store, and applications in it whose records can't be read.
    unreadable: (String, BTreeSet<Apid>),
    /// The link that offers a node now.
    offered: BTreeMap<Nid, LinkId>,
    /// Why the apinit was refused that offered a node last. No record: it offers it again.
    refused: BTreeMap<Nid, String>,
    /// Bytes of memory of nodes for which psched.yaml gives none, as their hosts have told.
    found: BTreeMap<Nid, u64>,
    /// When the last link of a node closed that has closed, and when this psched was started.
    left_ns: BTreeMap<Nid, u64>,
    born_ns: u64,
    /// The links that offer the nodes of each application that has any, that of PE 0 first.
    linked: BTreeMap<Apid, Vec<LinkId>>,
    /// The boot of a node's host when it was last seen. A change kills what ran there.
    boots: BTreeMap<Nid, String>,
    /// Nodes that have acknowledged that a placement is taken back.
    #[serde(with = "crate::pairs")]
    taken_back: BTreeMap<Key, BTreeSet<Nid>>,
    /// Connections that lacked a placement and were given it again. If the application is found to have
    /// run they have lost it, unless it was in time.
    #[serde(with = "crate::pairs")]
    placed_again: BTreeMap<Key, BTreeSet<LinkId>>,
    /// Whether nodes can move an application, as they have said: why not.
    walls: BTreeMap<Apid, Option<String>>,
    /// The apinits that can't bring memory to swap.
    unable: BTreeSet<LinkId>,
    /// Moves that are being made one after the other.
    moving: Option<moves::Sequence>,
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
    /// Nodes that an administrator has given flavors.
    flavors: BTreeMap<Nid, FlavorOrder>,
    /// Answers that wait until foreign nodes have done what they were told.
    managed: Vec<foreign::Managed>,
    /// How applications have ended of which foreign nodes were purged.
    purged: foreign::PurgedEnds,
    /// Nodes that are in use, and not in the configuration, or not with all their processors.
    retired: BTreeSet<Nid>,
    /// Nodes in use that go over to another domain when they are empty.
    leaving: BTreeSet<Nid>,
    /// One of them is.
    goes_over: bool,
    /// The machine as configured, without these, and with the flavors of psched.yaml.
    configured: Machine,
    /// How what runs takes turns.
    schedule: turns::Schedule,
    /// When what users have had was last put on record.
    kept_shares_ns: u64,
    /// When the last event came, in nanoseconds since the epoch.
    wall_ns: u64,
    /// No decision asks for them.
    #[serde(skip)]
    counters: Counters,
    /// How the changes went.
    measured: Measured,
    /// What is known of regions.
    regions: regions::Regions,
}

impl Scheduler {
    /// A scheduler with no history.
    pub fn new(machine: Machine, settings: Settings) -> Scheduler {
        let regions = regions::Regions::of(&machine);
        let domains = domains::of(&machine, &settings);
        let mut schedule = turns::Schedule::new(&machine, &domains);
        schedule.set_half_life(settings.half_life, 0);
        Scheduler {
            occupancy: Occupancy::new(&machine, domains::rules(&domains)),
            configured: machine.clone(),
            schedule,
            kept_shares_ns: 0,
            domains,
            first_processors: machine.first_processors(),
            machine,
            settings,
            teams: BTreeMap::new(),
            kept_bytes: kept::KeptBytes::default(),
            queue: BTreeSet::new(),
            requests: BTreeMap::new(),
            next_apid: 1,
            unreadable: Default::default(),
            links: BTreeMap::new(),
            offered: BTreeMap::new(),
            found: BTreeMap::new(),
            left_ns: BTreeMap::new(),
            refused: BTreeMap::new(),
            born_ns: 0,
            linked: BTreeMap::new(),
            boots: BTreeMap::new(),
            taken_back: BTreeMap::new(),
            placed_again: BTreeMap::new(),
            walls: BTreeMap::new(),
            unable: BTreeSet::new(),
            moving: None,
            stuck: BTreeMap::new(),
            tickets: BTreeSet::new(),
            settling: BTreeSet::new(),
            coming: BTreeSet::new(),
            closed: BTreeMap::new(),
            flavors: BTreeMap::new(),
            managed: Vec::new(),
            purged: Default::default(),
            measured: Measured::default(),
            retired: BTreeSet::new(),
            leaving: BTreeSet::new(),
            goes_over: false,
            wall_ns: 0,
            counters: Counters::default(),
            regions,
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
        orders: Orders,
        next_apid: u64,
        now: Now,
    ) -> (Scheduler, Vec<Effect>) {
        let configured = machine.clone();
        let Orders { closed, flavors } = orders;
        let (machine, kept) = flavors::in_force(machine, &flavors);
        let (machine, retired) = reconfigure::with_retired(machine, None, records.iter());
        let leaving = reconfigure::leaving(&machine, records.iter());
        let mut s = Scheduler::new(machine, settings);
        (s.boots, s.closed, s.retired, s.configured) = (boots, closed, retired, configured);
        s.leaving = leaving;
        s.born_ns = now.mono_ns;
        s.hours(now);
        s.flavors = flavors;
        let mut out: Vec<Effect> = flavors::warning(&kept).into_iter().collect();
        let newest = records.iter().map(|t| t.apid.0 + 1).max().unwrap_or(1);
        s.next_apid = next_apid.max(newest).max(1);
        for mut team in records {
            let apid = team.apid;
            let state = team.state;
            if state == State::Ended {
                continue;
            }
            s.requests.insert(team.posting.request_id, apid);
            let lost = state.holds_processors()
                && s.occupancy.take_found(apid, &team.holds(), (&team).into()).is_err();
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
            let moving = team.moves.to.is_some();
            s.learn(&team.posting, &team.owner);
            if !state.holds_processors() {
                team.domain = s.domain(s.domain_for(&team.posting, &team.owner)).name.clone();
            } else if team.domain.is_empty() {
                team.domain = s.domain_by_place(&team);
            }
            s.kept_bytes.add(&team);
            s.teams.insert(apid, team);
            if moving {
                s.schedule.decision.away.insert(apid);
            }
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
        self.apply_all(now, [event])
    }

    /// What it has heard and decided since it was made.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The same of several that come at one instant: each is taken in its turn, and then it is decided
    /// once, knowing all of them, who runs where.
    pub fn apply_all(&mut self, now: Now, events: impl IntoIterator<Item = Event>) -> Vec<Effect> {
        let mut out = self.decide_all(now, events);
        out.extend(self.plan_all(now));
        out
    }

    /// The same without the plans of what has changed, which [`Scheduler::plan_all`] makes. A caller
    /// that answers effects at the instant at which it has them answers first, and then has one plan
    /// of each component instead of several.
    pub fn decide_all(&mut self, now: Now, events: impl IntoIterator<Item = Event>) -> Vec<Effect> {
        let mut out = Vec::new();
        self.wall_ns = now.wall_ns;
        if self.regions.deadline().is_some_and(|at| at <= now.mono_ns) && self.hours(now) {
            self.want_decisions();
        }
        for event in events {
            self.counters.event(now.wall_ns, &event);
            self.take(now, event, &mut out);
        }
        self.go_over();
        self.decide_if_due(now, &mut out);
        if self.goes_over {
            // (It was moved off by a decision.)
            self.go_over();
            self.decide_if_due(now, &mut out);
        }
        self.counters.effects(&out);
        out
    }

    /// Makes the plans of what has changed.
    pub fn plan_all(&mut self, now: Now) -> Vec<Effect> {
        let mut out = Vec::new();
        self.turns_settle(now, &mut out);
        self.keep_shares_if_due(now, &mut out);
        debug_assert_eq!(self.broken(), None);
        self.counters.effects(&out);
        out
    }

    /// Takes an event; what it leaves to be decided is only noted.
    fn take(&mut self, now: Now, event: Event, out: &mut Vec<Effect>) {
        match event {
            Event::Posted { reply, posting, owner, front, secret } => {
                self.posted(now, reply, *posting, owner, front, secret, None, out);
            }
            Event::Restarted { reply, posting, owner, front, secret, origin } => {
                self.posted(now, reply, *posting, owner, front, secret, Some(origin), out);
            }
            Event::Looked { reply, apid } => self.looked(reply, apid, out),
            Event::FrontGone { apid } => self.front_gone(now, apid, out),
            Event::Kill { reply, apids, signal, uid, administrator } => {
                let problems = apids
                    .into_iter()
                    .map(|apid| self.kill(now, apid, signal, uid, administrator, out).err())
                    .collect();
                out.push(Effect::Killed { reply, problems });
            }
            Event::LinkOpened { link, hello } => self.link_opened(now, link, *hello, out),
            Event::Inventory { link, items } => self.inventory(now, link, &items, out),
            Event::Foreign { link, foreign } => self.foreign_called(now, link, *foreign, out),
            Event::Manage { reply, what, nids, by, administrator, used } => {
                let order =
                    foreign::Order { reply: Some(reply), what, nids, by, administrator, used };
                self.manage(now, &order, out);
            }
            Event::Nodes { reply, to, nids, reason, by } => {
                self.order_nodes(now, reply, to, &nids, reason, by, out);
            }
            Event::Flavors { reply, nids, to, by } => {
                self.order_flavors(now, reply, to, &nids, &by, out);
            }
            Event::Hold { reply, apids, hold, by } => {
                self.hold(now, reply, &apids, hold, &by, out);
            }
            Event::Noted { link, notes, roll_out } => {
                if let Some(told) = self.links.get_mut(&link) {
                    (told.hello.notes, told.hello.roll_out) = (notes, roll_out);
                }
                self.note_roll_out(link);
            }
            Event::LinkClosed { link } => self.link_closed(now, link, out),
            Event::Report { link, report } => self.report(now, link, *report, out),
            Event::StoreRefused { apid, why } => self.store_refused(now, apid, &why, out),
            Event::RolledIn { key } => self.rolled_in(now, key, out),
            Event::Migrate { reply, apid, nids, dry_run, by } => {
                self.migrate(now, moves::Order { reply, dry_run, by }, apid, nids.as_ref(), out);
            }
            Event::Compact { reply, region, dry_run, by } => {
                self.compact(now, moves::Order { reply, dry_run, by }, &region, out);
            }
            Event::Tick => {
                self.tick(now, out);
                self.memory_tick(now);
                self.turns_tick(now, out);
            }
            Event::Machine(machine) => self.reconfigured(now, *machine, out),
            Event::Settings(settings) => {
                let before = std::mem::replace(&mut self.settings, *settings);
                if (&before.turns, &before.domains)
                    != (&self.settings.turns, &self.settings.domains)
                {
                    self.turns_ruled(now);
                }
                let after = self.settings.host_bounds;
                self.hours(now);
                if before.host_bounds != after {
                    let command = |link: &LinkId| {
                        let command = Command::Bounds(after);
                        Effect::Command { link: *link, command }
                    };
                    out.extend(self.links.keys().map(command));
                }
                self.want_decisions();
            }
        }
    }

    /// When [`Event::Tick`] is wanted next, on the monotonic clock.
    pub fn deadline(&self) -> Option<u64> {
        let first = |at: &BTreeSet<(u64, Apid)>| at.first().map(|(at, _)| *at);
        let first = [first(&self.tickets), first(&self.settling)].into_iter().flatten();
        let hours = self.regions.deadline();
        let due = self.domains.iter().filter_map(|domain| domain.due_ns);
        let shares = self.shares_due();
        first.chain(self.schedule.deadline()).chain(hours).chain(due).chain(shares).min()
    }

    /// The next application's number: what the store must keep, lest one be used twice.
    pub fn next_apid(&self) -> u64 {
        self.next_apid
    }

    /// How large the state is, about: nodes and applications.
    pub fn size(&self) -> usize {
        self.machine.nodes.len() + self.teams.len()
    }

    /// The variables that it obeys.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The machine that it schedules.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// [`Machine::first_processor`] of one of its nodes; 0 where it is not there.
    pub fn first_processor(&self, nid: Nid) -> u32 {
        self.first_processors.get(&nid).copied().unwrap_or(0)
    }

    fn save(&self, apid: Apid, lazy: bool, out: &mut Vec<Effect>) {
        if let Some(team) = self.teams.get(&apid) {
            out.push(Effect::Keep(Record::Update { team: Box::new(team.clone()), lazy }));
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
                // (It may have had a place while psched.yaml changed.)
                self.choose_domain(apid);
            }
            State::Placed => {
                self.tickets.insert((team.ticket_until_ns, apid));
            }
            _ => {}
        }
        true
    }

    /// How an application is named in a reason.
    fn app_name(&self, apid: Apid) -> AppName {
        let owner = self.teams.get(&apid).map(|team| &team.owner);
        AppName { apid, owner: owner.map(|owner| (owner.uid, owner.name.clone())) }
    }

    /// The name of an application for administrators: `12 of alice`.
    fn name_of(&self, apid: Apid) -> String {
        self.app_name(apid).words(&sees_all)
    }
}
