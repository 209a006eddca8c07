//! The agent: everything that an apinit knows, and where an event goes.

use super::actions::{Action, Out};
use super::application::App;
use super::dumping::Dumping;
use super::events::{Conn, Event};
use super::stranger::Stranger;
use super::streams::{FrontEnd, HeadStream};
use super::timed::Timed;
use super::waits::REPORT_AGAIN;
use crate::apteam::bounds::{Bounds, HostBounds};
use crate::apteam::fault::Fault;
use crate::apteam::posting::Owner;
use crate::apteam::protocol::node::{PlaceCommand, Report, Welcome};
use crate::apteam::protocol::turns::SlicePlan;
use crate::apteam::{Key, Ticket};
use crate::machine::Nid;
use crate::variables::units::nanos as ns;
use std::collections::{BTreeMap, BTreeSet};

/// What an apinit is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Me {
    /// The nodes that it offers.
    pub nids: BTreeSet<Nid>,
    /// Who it runs as: only root can run other users' applications.
    pub uid: u32,
    /// Real processors that it may use.
    pub cpus: Vec<u32>,
    /// The NUMA node of each real processor. Those of which nothing is known are one.
    pub numa: BTreeMap<u32, u32>,
    /// The boot of its host: psched's clock is this one if it is psched's boot too.
    pub boot_id: String,
}

/// Everything that an apinit knows.
#[derive(Debug)]
pub struct Agent {
    pub(super) me: Me,
    /// What -m says is not enforced here.
    pub(super) unlimited: bool,
    /// psched hears, and is obeyed.
    pub(super) linked: bool,
    /// The last welcome of a psched that is obeyed: store, epoch and nodes.
    pub(super) welcome: Option<Welcome>,
    /// The psched that this node is linked to and does not obey.
    pub(super) stranger: Option<Stranger>,
    /// Ids of starts that were on old copies of the store, until another is obeyed.
    pub(super) distrusted: Vec<String>,
    /// What psched's clock is ahead of this host's, in nanoseconds.
    pub(super) clock_ahead_ns: i128,
    /// The boot of the host whose clock that is.
    clock_of: String,
    /// An exchange has shown how far it is ahead.
    pub(super) clock_is_read: bool,
    /// Plans that were put on this host's clock by what was known of another boot's clock, or by a
    /// former life of this apinit.
    pub(super) plans_of_before: BTreeSet<u64>,
    pub(super) last_command: u64,
    /// Plans by generation, with times of this host's clock.
    pub(super) plans: BTreeMap<u64, SlicePlan>,
    pub(super) apps: Timed<Key, App>,
    pub(super) fronts: Timed<Conn, FrontEnd>,
    pub(super) heads: Timed<Conn, HeadStream>,
    /// Whether ends are told, as it was when the deadlines of the applications were asked last.
    ends_heard: bool,
    timer_ns: Option<u64>,
}

impl Agent {
    /// A new one, which remembers the welcome that a former life of it was given.
    pub fn new(me: Me, remembered: Option<Welcome>) -> Agent {
        Agent {
            me,
            unlimited: false,
            linked: false,
            welcome: remembered,
            stranger: None,
            distrusted: Vec::new(),
            clock_ahead_ns: 0,
            clock_of: String::new(),
            clock_is_read: false,
            plans_of_before: BTreeSet::new(),
            last_command: 0,
            plans: BTreeMap::new(),
            apps: Timed::default(),
            fronts: Timed::default(),
            heads: Timed::default(),
            ends_heard: false,
            timer_ns: None,
        }
    }

    /// With these limits enforced (`memory`): without it whoever names his memory is told that it is not.
    #[must_use]
    pub fn limiting(mut self, limits: &[String]) -> Agent {
        self.unlimited = !limits.iter().any(|limit| limit == "memory");
        self
    }

    /// The last command that it has seen, for heartbeats.
    pub fn last_command(&self) -> u64 {
        self.last_command
    }

    /// The store that it obeys, and its epoch; empty before the first.
    pub fn store(&self) -> (&str, u64) {
        self.welcome.as_ref().map_or(("", 0), |w| (&w.store_id, w.epoch))
    }

    /// What psched's clock is ahead of this host's, as plans are put on this one, in nanoseconds.
    pub fn clock_ahead_ns(&self) -> i128 {
        self.clock_ahead_ns
    }

    /// Commits of that store that it has heard of.
    pub fn commits(&self) -> u64 {
        self.welcome.as_ref().map_or(0, |w| w.commits)
    }

    /// The first eight digits of the store's id, by which its groups and processes are known.
    pub fn store_mark(&self) -> &str {
        let id = self.store().0;
        id.get(..8).unwrap_or(id)
    }

    /// The uid that owns an application here.
    pub fn owner(&self, key: Key) -> Option<&Owner> {
        self.apps.get(&key).map(|app| &app.place.owner)
    }

    /// What it may hold: the defaults until a psched has been obeyed.
    pub fn bounds(&self) -> HostBounds {
        self.welcome.as_ref().map_or_else(HostBounds::default, |w| w.bounds)
    }

    /// What may be kept of an application.
    pub fn bounds_of(&self, key: Key) -> Bounds {
        self.apps.get(&key).map_or_else(Bounds::default, |app| app.place.bounds)
    }

    /// An application's owner by his uid, and its ticket.
    pub fn owner_and_ticket(&self, key: Key) -> Option<(u32, Ticket)> {
        self.apps.get(&key).map(|app| (app.place.owner.uid, app.place.ticket))
    }

    /// Whether its shepherd has said that it can be asked for stacks.
    pub fn has_stacks(&self, key: Key) -> bool {
        self.apps.get(&key).is_some_and(|app| app.stacks)
    }

    /// Which part of an application is here, and of how many.
    pub fn part(&self, key: Key) -> Option<(usize, usize)> {
        let app = self.apps.get(&key)?;
        Some((app.index as usize, app.place.host_count() as usize))
    }

    /// Whether this is the stream of a head that it listens to.
    pub fn hears_head(&self, conn: Conn) -> bool {
        self.heads.contains_key(&conn)
    }

    /// The host from which a head has opened this stream, by the name in its certificate.
    pub fn host_of_head(&self, conn: Conn) -> Option<&str> {
        self.heads.get(&conn).map(|head| &*head.host)
    }

    /// The application whose ticket a head has shown on this stream.
    pub fn key_of_head(&self, conn: Conn) -> Option<Key> {
        self.heads.get(&conn)?.opening.has()
    }

    /// How many applications and streams of front ends and heads it holds.
    pub fn held(&self) -> (usize, usize) {
        (self.apps.len(), self.fronts.len() + self.heads.len())
    }

    /// Takes in what happens at `now_ns` (nanoseconds of CLOCK_MONOTONIC) and says what is to be
    /// done, in order.
    pub fn apply(&mut self, now_ns: u64, event: Event) -> Vec<Action> {
        let mut out = Vec::new();
        let o = &mut out;
        let ticked = event == Event::Tick;
        match event {
            Event::Linked(welcome) => self.linked(now_ns, *welcome, o),
            Event::Unlinked => (self.linked, self.stranger) = (false, None),
            Event::Counted(commits) => self.counted(commits, o),
            Event::Clock(reading) => self.clock_read(reading, o),
            Event::Command(seq, command) => self.command(now_ns, seq, command, o),
            Event::FrontOpened { conn, uid, watch } => {
                self.front_opened(now_ns, conn, uid, watch, o);
            }
            Event::FrontMessage(conn, message) => self.front_message(now_ns, conn, message, o),
            Event::FrontDied(conn) => self.front_died(now_ns, conn, o),
            Event::HeadOpened { conn, uid, host } => self.head_opened(now_ns, conn, uid, host, o),
            Event::HeadMessage(conn, message) => self.head_message(now_ns, conn, message, o),
            Event::StreamClosed(conn) => self.stream_closed(now_ns, conn, o),
            Event::ShepherdSpawned(key) => self.shepherd_spawned(now_ns, key, o),
            Event::SpawnFailed { key, text } => {
                self.shepherd_lost(now_ns, key, text, Fault::Node, o);
            }
            Event::ShepherdMessage(key, message) => {
                self.shepherd_message(now_ns, key, message, o);
            }
            // (Its user may have killed it.)
            Event::ShepherdLost { key, text } => {
                self.shepherd_lost(now_ns, key, text, Fault::Busy, o);
            }
            Event::PeerMessage(key, index, message) => {
                self.peer_message(now_ns, key, index, message, o);
            }
            Event::PeerLost { key, index, text } => self.peer_lost(now_ns, key, index, text, o),
            Event::ProgramAsked(key, program) => self.program_asked(key, program, o),
            Event::ProgramTaken(key, given) => self.program_taken(key, *given, o),
            Event::GroupsUsed { key, utime, stime } => self.groups_used(key, utime, stime),
            Event::GroupsEmpty(key) => self.groups_empty(now_ns, key, o),
            Event::GroupsStuck { key, processes, named } => {
                self.groups_stuck(key, processes, named, o);
            }
            Event::Found(found) => self.found(now_ns, *found, o),
            Event::PlacesVerified(key, result) => self.places_verified(now_ns, key, result, o),
            Event::Strayed(key, text) => self.strayed(key, text, o),
            Event::Turns(news) => self.news(now_ns, news, o),
            Event::Ran(key, ran) => self.ran(now_ns, key, ran, o),
            Event::Rebound(key, result) => self.rebound(now_ns, key, result, o),
            Event::Restored(key, result) => self.restored(now_ns, key, result, o),
            Event::DumpAsked { number, uid, key, end, afar } => {
                let asked = Dumping { number, uid, end, afar, holds: false, until_ns: None };
                self.dump_asked(asked, key, o);
            }
            Event::Dumped { key, number, made } => self.dumped(now_ns, key, number, made, o),
            Event::DumpSaid { number, word } => self.dump_said(now_ns, number, word, o),
            Event::TakenOut(key, result) => self.taken_out(now_ns, key, result, o),
            Event::CameBack(key, result) => self.came_back(now_ns, key, result, o),
            Event::Tick => self.tick(now_ns, o),
        }
        self.tell_stranger(now_ns, o);
        self.finish_purge(now_ns, o);
        let next = match self.next_timer() {
            // What is due and was not to be done just now must not hold up everything else for ever.
            Some(at) if ticked && at <= now_ns => Some(now_ns.saturating_add(ns(REPORT_AGAIN))),
            next => next,
        };
        if next != self.timer_ns {
            self.timer_ns = next;
            o.push(Action::SetTimer(next));
        }
        out
    }

    fn linked(&mut self, now: u64, welcome: Welcome, out: &mut Out) {
        match self.why_not(&welcome, out) {
            Some(why) => self.meet_stranger(welcome, why),
            None => self.obey(now, welcome, out),
        }
    }

    pub(super) fn obey(&mut self, now: u64, welcome: Welcome, out: &mut Out) {
        (self.linked, self.stranger) = (true, None);
        self.distrusted.clear();
        // (A guess from another welcome is no better than one from this.)
        if self.clock_of != welcome.boot_id || !self.clock_is_read {
            self.clock_is_read = false;
            self.clock_of.clone_from(&welcome.boot_id);
            self.plans_of_before = self.plans.keys().copied().collect();
            // (On another host a guess, until an exchange has shown more.)
            self.clock_ahead_ns = match welcome.boot_id == self.me.boot_id {
                true => 0,
                false => i128::from(welcome.mono_ns) - i128::from(now),
            };
        }
        out.push(Action::Remember(welcome.clone()));
        if self.welcome.as_ref().is_some_and(|known| known.store_id != welcome.store_id) {
            self.forget_plans(out);
        }
        self.welcome = Some(welcome);
        let items = self
            .apps
            .iter()
            .filter(|(_, app)| !app.over_with_psched())
            .map(|(key, app)| (*key, app.phase()))
            .collect();
        let keys: Vec<Key> = self.apps.keys().copied().collect();
        // Before its end, which is told by the nodes where it sat.
        keys.iter().for_each(|key| self.report_moved(*key, out));
        out.push(Action::Inventory { items, last_command: self.last_command });
        for key in keys {
            self.report_movable(key, out);
            self.report_end(now, key, out);
            self.report_stuck(key, out);
        }
    }

    fn tick(&mut self, now: u64, out: &mut Out) {
        self.streams_tick(now, out);
        let keys: Vec<Key> = self.apps.keys().copied().collect();
        for key in keys {
            self.time_limit_tick(now, key, out);
            let due = self.apps.get(&key).is_some_and(|app| app.report_due_ns() <= Some(now));
            if due {
                self.report_end(now, key, out);
            }
            self.front_away_tick(now, key, out);
            self.grace_tick(now, key, out);
            self.backstop_tick(now, key, out);
            self.dump_tick(now, key, out);
            // After what may end the application: hosts that are still to be reached are then told
            // in this tick.
            self.peers_tick(now, key, out);
            self.barrier_tick(now, key, out);
            self.silence_tick(now, key, out);
            self.settle(now, key, out);
        }
    }

    /// A time of this host's clock on psched's.
    pub(super) fn on_psched_clock(&self, at_ns: u64) -> u64 {
        let at = i128::from(at_ns) + self.clock_ahead_ns;
        u64::try_from(at.max(0)).unwrap_or(u64::MAX)
    }

    pub(super) fn next_timer(&mut self) -> Option<u64> {
        let heard = self.reports_ends();
        if std::mem::replace(&mut self.ends_heard, heard) != heard {
            self.apps.touch_all();
        }
        let of_apps = self.apps.next(|app| app.deadlines(heard).min());
        let of_fronts = self.fronts.next(|front| front.opening.deadline());
        let of_heads = self.heads.next(|head| head.opening.deadline());
        [of_apps, of_fronts, of_heads].into_iter().flatten().min()
    }

    /// Reports, if there is somebody to report to: what has happened meanwhile, the next inventory
    /// tells.
    pub(super) fn report(&self, report: Report, out: &mut Out) {
        if self.linked {
            out.push(Action::Report(report));
        }
    }
}

/// The nodes of a part that are also in a placement, in the placement's order.
pub(super) fn own_nids(place: &PlaceCommand, nids: &BTreeSet<Nid>) -> Vec<Nid> {
    place.places.nids().filter(|nid| nids.contains(nid)).collect()
}
