//! All of the state of psched, and where an event goes.

use super::counters::Counters;
use super::domain::{self, Domain};
use super::effect::Effect;
use super::event::{Event, LinkId};
use super::flavor_orders;
use super::foreign::next_after;
use super::keeping::Record;
use super::kept::KeptBytes;
use super::known_regions::Regions;
use super::measured::Measured;
use super::move_sequence::{self, Sequence};
use super::now::Now;
use super::purged::PurgedEnds;
use super::retired;
use super::retries::FailedLaunches;
use super::settings::Settings;
use super::stranger::{self, Managed, Stranger};
use super::turns::Schedule;
use super::unheard::Unheard;
use crate::apteam::change::{FlavorOrder, NodeOrder, Orders};
use crate::apteam::migration_blocker::MigrationBlocker;
use crate::apteam::protocol::node::{ClockTold, Command, Hello};
use crate::apteam::record::{Apteam, State};
use crate::apteam::{Apid, Key};
use crate::machine::node_memory::Divisions;
use crate::machine::{Machine, Nid};
use crate::occupancy::Occupancy;
use crate::psched::reason::{AppName, sees_all};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A live connection of an apinit.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Link {
    pub(super) hello: Hello,
    /// Its inventory has come: its nodes are open.
    pub(super) known: bool,
    /// It obeys another psched.
    pub(super) foreign: Option<Stranger>,
    /// What it knows of psched's clock.
    #[serde(default)]
    pub(super) clock: ClockTold,
}

/// All of psched's state.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Scheduler {
    pub(super) machine: Machine,
    /// Of each of its nodes [`Machine::first_processor`], which is asked of all of them.
    pub(super) first_processors: BTreeMap<Nid, u32>,
    pub(super) occupancy: Occupancy,
    pub(super) settings: Settings,
    /// The domains of the machine; at least one.
    pub(super) domains: Vec<Domain>,
    /// Applications that have not ended.
    pub(super) teams: BTreeMap<Apid, Apteam>,
    /// What the records of these take, by user.
    pub(super) kept_bytes: KeptBytes,
    /// Those of them that wait for a place, in order of arrival.
    pub(super) queue: BTreeSet<Apid>,
    /// Applications by the random number of their posting, while they have not ended.
    #[serde(with = "crate::pairs")]
    pub(super) requests: BTreeMap<[u8; 16], Apid>,
    pub(super) next_apid: u64,
    /// All numbers on record are below this one, or below the next.
    #[serde(default)]
    pub(super) numbers_below: u64,
    /// The random id of this start of psched.
    pub(super) start_id: String,
    pub(super) links: BTreeMap<LinkId, Link>,
    /// The store, and applications in it whose records can't be read.
    pub(super) unreadable: (String, BTreeSet<Apid>),
    /// The link that offers a node now.
    pub(super) offered: BTreeMap<Nid, LinkId>,
    /// Why the apinit was refused that offered a node last. No record: it offers it again.
    pub(super) refused: BTreeMap<Nid, Unheard>,
    /// Bytes of memory of nodes for which psched.yaml gives none, as their hosts have told.
    pub(super) found: BTreeMap<Nid, u64>,
    /// By which these are worked out; it is made anew with the machine.
    #[serde(skip)]
    pub(super) divisions: Divisions,
    /// When the last link of a node closed that has closed, and when this psched was started.
    pub(super) left_ns: BTreeMap<Nid, u64>,
    pub(super) born_ns: u64,
    /// The links that offer the nodes of each application that has any, that of PE 0 first.
    pub(super) linked: BTreeMap<Apid, super::app_links::Linked>,
    /// The boot of a node's host when it was last seen. A change kills what ran there.
    pub(super) boots: BTreeMap<Nid, String>,
    /// Nodes that have acknowledged that a placement is taken back.
    #[serde(with = "crate::pairs")]
    pub(super) taken_back: BTreeMap<Key, BTreeSet<Nid>>,
    /// Connections that lacked a placement and were given it again. If the application is found to have
    /// run they have lost it, unless it was in time: they are asked, and stay here until they
    /// answer. The number of the question; 0: they have not been asked yet.
    #[serde(with = "crate::pairs")]
    pub(super) placed_again: BTreeMap<Key, BTreeMap<LinkId, u64>>,
    /// Commands to take an application back: each has a number of its own.
    pub(super) take_backs: u64,
    /// Whether nodes can move an application, as they have said: why not.
    pub(super) migration_blockers: BTreeMap<Apid, Option<MigrationBlocker>>,
    /// The apinits that can't bring memory to swap.
    pub(super) unable: BTreeSet<LinkId>,
    /// Moves that are being made one after the other.
    pub(super) moving: Option<Sequence>,
    /// Processes that outlive their KILL, in words, by application and the first of its nodes on
    /// their host. No record: their nodes say it again.
    pub(super) stuck: BTreeMap<Apid, BTreeMap<Nid, Vec<String>>>,
    /// When the next ticket lapses, at the earliest.
    pub(super) tickets: BTreeSet<(u64, Apid)>,
    /// When it is looked whether the memory of an application that runs is known well enough.
    pub(super) settling: BTreeSet<(u64, Apid)>,
    /// Applications with a place where they do not run yet.
    pub(super) coming: BTreeSet<Apid>,
    /// Nodes that an administrator has closed, or psched.
    pub(super) closed: BTreeMap<Nid, NodeOrder>,
    /// Nodes on which launches have failed in a row.
    #[serde(default)]
    pub(super) failed_launches: FailedLaunches,
    /// Nodes that an administrator has given flavors.
    pub(super) flavors: BTreeMap<Nid, FlavorOrder>,
    /// Answers that wait until foreign nodes have done what they were told.
    pub(super) managed: Vec<Managed>,
    /// How applications have ended of which foreign nodes were purged.
    pub(super) purged: PurgedEnds,
    /// Nodes that are in use, and not in the configuration, or not with all their processors.
    pub(super) retired: BTreeSet<Nid>,
    /// Nodes in use that go over to another domain when they are empty.
    pub(super) leaving: BTreeSet<Nid>,
    /// One of them is.
    pub(super) goes_over: bool,
    /// The machine as configured, without these, and with the flavors of psched.yaml.
    pub(super) configured: Machine,
    /// How what runs takes turns.
    pub(super) schedule: Schedule,
    /// When what users have had was last put on record.
    pub(super) kept_shares_ns: u64,
    /// When the last event came, in nanoseconds since the epoch.
    pub(super) wall_ns: u64,
    /// No decision asks for them.
    #[serde(skip)]
    counters: Counters,
    /// How the changes went.
    pub(super) measured: Measured,
    /// What is known of regions.
    pub(super) regions: Regions,
}

impl Scheduler {
    /// A scheduler with no history.
    pub fn new(machine: Machine, settings: Settings) -> Scheduler {
        let regions = Regions::of(&machine);
        let domains = domain::of(&machine, &settings);
        let mut schedule = Schedule::new(&machine, &domains);
        schedule.set_half_life(settings.half_life, 0);
        Scheduler {
            occupancy: Occupancy::new(&machine, domain::rules(&domains)),
            configured: machine.clone(),
            schedule,
            kept_shares_ns: 0,
            domains,
            first_processors: machine.first_processors(),
            machine,
            settings,
            teams: BTreeMap::new(),
            kept_bytes: KeptBytes::default(),
            queue: BTreeSet::new(),
            requests: BTreeMap::new(),
            next_apid: 1,
            numbers_below: 0,
            start_id: String::new(),
            unreadable: Default::default(),
            links: BTreeMap::new(),
            offered: BTreeMap::new(),
            found: BTreeMap::new(),
            divisions: Divisions::default(),
            left_ns: BTreeMap::new(),
            refused: BTreeMap::new(),
            born_ns: 0,
            linked: BTreeMap::new(),
            boots: BTreeMap::new(),
            taken_back: BTreeMap::new(),
            placed_again: BTreeMap::new(),
            take_backs: 0,
            migration_blockers: BTreeMap::new(),
            unable: BTreeSet::new(),
            moving: None,
            stuck: BTreeMap::new(),
            tickets: BTreeSet::new(),
            settling: BTreeSet::new(),
            coming: BTreeSet::new(),
            closed: BTreeMap::new(),
            failed_launches: FailedLaunches::default(),
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
        let (machine, kept) = flavor_orders::in_force(machine, &flavors);
        let (machine, retired) = retired::with_retired(machine, None, records.iter());
        let leaving = retired::leaving(&machine, records.iter());
        let mut s = Scheduler::new(machine, settings);
        (s.boots, s.closed, s.retired, s.configured) = (boots, closed, retired, configured);
        s.leaving = leaving;
        s.born_ns = now.mono_ns;
        s.hours(now);
        s.flavors = flavors;
        let mut out: Vec<Effect> = flavor_orders::warning(&kept).into_iter().collect();
        let mut apids: Vec<Apid> = records.iter().map(|team| team.apid).collect();
        apids.sort_unstable();
        s.next_apid = apids.iter().fold(next_apid.max(1), |next, apid| next_after(next, *apid));
        s.numbers_below = apids.last().map_or(0, |apid| apid.0.saturating_add(1));
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
                    "the records give its processors to another application too",
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
        self.go_over(now, &mut out);
        self.decide_if_due(now, &mut out);
        if self.goes_over {
            // (It was moved off by a decision.)
            self.go_over(now, &mut out);
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

    /// Takes an event; what it leaves to be decided is only noted (but for an aprun that is back).
    fn take(&mut self, now: Now, event: Event, out: &mut Vec<Effect>) {
        match event {
            Event::Posted { reply, posting, owner, front, secret } => {
                self.posted(now, reply, *posting, owner, front, secret, None, out);
            }
            Event::Restarted { reply, posting, owner, front, secret, origin } => {
                self.posted(now, reply, *posting, owner, front, secret, Some(origin), out);
            }
            Event::Looked { reply, apid } => self.looked(now, reply, apid, out),
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
                    stranger::Order { reply: Some(reply), what, nids, by, administrator, used };
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
            Event::Noted { link, notes, roll_out, clock } => {
                if let Some(told) = self.links.get_mut(&link) {
                    (told.hello.notes, told.hello.roll_out) = (notes, roll_out);
                    told.clock = clock;
                }
                self.note_roll_out(link);
            }
            Event::Revoked { link } => self.is_revoked(link),
            Event::LinkClosed { link } => self.link_closed(now, link, out),
            Event::Report { link, report } => self.report(now, link, *report, out),
            Event::StoreRefused { apid, why } => self.store_refused(now, apid, &why, out),
            Event::RolledIn { key } => self.rolled_in(now, key, out),
            Event::Migrate { reply, apid, nids, dry_run, by } => {
                self.migrate(
                    now,
                    move_sequence::Order { reply, dry_run, by },
                    apid,
                    nids.as_ref(),
                    out,
                );
            }
            Event::Compact { reply, region, dry_run, by } => {
                self.compact(now, move_sequence::Order { reply, dry_run, by }, &region, out);
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

    /// The store has numbers below this one on record, perhaps of applications that have ended.
    pub fn has_numbers_below(&mut self, number: u64) {
        self.numbers_below = self.numbers_below.max(number);
    }

    /// No number on record is this one or higher: a node that has one obeys another store. (One
    /// that was adopted may be far above the next.)
    pub fn apids_below(&self) -> u64 {
        self.next_apid.max(self.numbers_below)
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

    pub(super) fn save(&self, apid: Apid, lazy: bool, out: &mut Vec<Effect>) {
        if let Some(team) = self.teams.get(&apid) {
            out.push(Effect::Keep(Record::Update { team: Box::new(team.clone()), lazy }));
        }
    }

    /// It is not on its way to its place any more.
    pub(super) fn comes_no_more(&mut self, apid: Apid) {
        self.coming.remove(&apid);
        self.schedule.decision.beside.remove(&apid);
    }

    /// Moves an application to another state, if the table of states allows it.
    pub(super) fn become_state(&mut self, apid: Apid, next: State) -> bool {
        let Some(team) = self.teams.get_mut(&apid) else { return false };
        if !team.state.may_become(next) {
            return false;
        }
        let until_ns = team.ticket_until_ns;
        if team.state == State::Placed {
            self.tickets.remove(&(until_ns, apid));
        }
        if team.state == State::Posted {
            self.queue.remove(&apid);
        }
        team.state = next;
        match matches!(next, State::Placed | State::Launching) {
            true => drop(self.coming.insert(apid)),
            false => self.comes_no_more(apid),
        }
        match next {
            State::Posted => {
                self.queue.insert(apid);
                // (It may have had a place while psched.yaml changed.)
                self.choose_domain(apid);
            }
            State::Placed => {
                self.tickets.insert((until_ns, apid));
            }
            _ => {}
        }
        true
    }

    /// How an application is named in a reason.
    pub(super) fn app_name(&self, apid: Apid) -> AppName {
        let owner = self.teams.get(&apid).map(|team| &team.owner);
        AppName { apid, owner: owner.map(|owner| (owner.uid, owner.name.clone())) }
    }

    /// The name of an application for administrators: `12 of alice`.
    pub(super) fn name_of(&self, apid: Apid) -> String {
        self.app_name(apid).words(&sees_all)
    }
}
