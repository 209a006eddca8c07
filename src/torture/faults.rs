//! What goes wrong: each class by itself at random moments, several at once.

use super::front::Aprun;
use super::logins::{BACK, UNHEARD};
use super::wire::{Pid, Who, WireId};
use super::world::{Ev, World};
use super::{MS, Options, SECOND};
use crate::apteam::Key;
use crate::apteam::protocol::node::Report;
use crate::apteam::record::State;
use crate::psched::decide::{Event, LinkId};
use fastrand::Rng;
use std::collections::{BTreeMap, BTreeSet};

/// The classes, by the name under which they are asked for and counted.
pub const CLASSES: [(&str, &str); 24] = [
    ("delay", "messages between hosts take up to seconds"),
    ("breaks", "connections break, and what was under way is lost"),
    ("cuts", "hosts can't reach each other, in one direction or both"),
    ("psched", "psched is killed, also between two of its actions"),
    ("apinit", "apinits are killed, also between two of their actions"),
    ("shepherd", "apshepherds are killed"),
    ("aprun", "apruns are killed"),
    ("hosts", "application hosts lose power"),
    ("login", "psched's own host loses power"),
    ("disk", "psched's disk is full for a time"),
    ("clocks", "clocks drift, and wall clocks step"),
    ("stale", "reports come again, and late"),
    ("spawn", "no shepherd can be started"),
    ("stops", "psched, apinits and apshepherds are stopped (SIGSTOP) for a time"),
    ("storms", "the same thing is killed again and again"),
    ("naps", "apruns are stopped (^Z), also until their ticket has lapsed"),
    ("strangers", "users try to launch, or to end, what is not theirs"),
    ("stores", "apinits reach a psched of another store, or of an old copy, which discards all"),
    (ORDERS, "administrators drain, resume and lose nodes, hold and release applications"),
    (COPIES, "a copy of the store, made while psched ran, is put in its place"),
    (LAUNCHES, "hosts can start no application for a time"),
    (LOGINS, "apruns are on other hosts too, whose apinits are killed, stopped and cut off"),
    (
        EXCHANGES,
        "hosts learn psched's clock by exchanges, which take longer on one way than on the other",
    ),
    (NARROW, "connections have 100 kbit/s for a time, and heads keep few bytes for other hosts"),
];

/// A class that seeds have or have not whatever else they have.
const ORDERS: &str = "orders";
/// One that they have only where it is asked for, since seeds were known by their histories before
/// it was there.
const COPIES: &str = "copies";
/// Likewise.
const LAUNCHES: &str = "launches";
/// Likewise.
const LOGINS: &str = "logins";
/// Likewise.
const EXCHANGES: &str = "exchanges";
/// Likewise.
const NARROW: &str = "narrow";
/// Those.
const ASKED_FOR: [&str; 5] = [COPIES, LAUNCHES, LOGINS, EXCHANGES, NARROW];
/// In a list of classes: and those that the seed chooses.
pub const CHOSEN: &str = "chosen";

/// Which classes a seed has.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    pub delay: bool,
    pub breaks: bool,
    pub cuts: bool,
    pub psched: bool,
    pub apinit: bool,
    pub shepherd: bool,
    pub aprun: bool,
    pub hosts: bool,
    pub login: bool,
    pub disk: bool,
    pub clocks: bool,
    pub stale: bool,
    pub spawn: bool,
    pub stops: bool,
    pub storms: bool,
    pub naps: bool,
    pub strangers: bool,
    pub stores: bool,
    pub orders: bool,
    pub copies: bool,
    pub launches: bool,
    pub logins: bool,
    pub exchanges: bool,
    pub narrow: bool,
    /// Reports that may come again, and whose they are.
    old: Vec<(usize, Report)>,
    /// Who is stopped until when: psched, each apinit, and apruns.
    psched_stopped: u64,
    apinit_stopped: Vec<u64>,
    fronts_stopped: BTreeMap<Pid, u64>,
}

/// Something that goes wrong.
#[derive(Clone, Debug)]
pub enum Fault {
    Slow,
    Break,
    Cut,
    Psched,
    /// psched in the midst of something.
    PschedNow,
    Apinit(Option<usize>),
    Shepherd,
    Aprun,
    HostDown,
    LoginDown,
    DiskFull,
    DiskRoom,
    Clock,
    Stale,
    Stop,
    Nap(Option<Pid>),
    Stranger,
    Order,
    Copy,
    /// A host can start nothing any more, and can again.
    Sick,
    Well(usize),
    Login,
    Narrow,
    /// ^C at some aprun: no fault, but as sudden.
    Interrupt,
}

/// Of which application a report is, if it is of one.
fn key_of(report: &Report) -> Option<Key> {
    match report {
        Report::Launched(key) | Report::Running(key) | Report::TakenBack { key, .. } => Some(*key),
        Report::Stuck { key, .. } | Report::SignalsTaken { key, .. } => Some(*key),
        Report::Ended(end) => Some(end.key),
        Report::Movable { key, .. }
        | Report::Moved { key, .. }
        | Report::MoveFailed { key, .. }
        | Report::RolledOut { key, .. } => Some(*key),
        _ => None,
    }
}

/// What a fault has broken is whole again by then: the longest takes a login host away.
const MENDED: u64 = 125 * SECOND;

impl Faults {
    /// The classes that a seed has by itself.
    fn of_seed(rng: &mut Rng) -> Vec<&'static str> {
        // Some seeds have none, so that the base is proved.
        if rng.u32(0..8) == 0 {
            return Vec::new();
        }
        let share = rng.u32(2..8);
        let orders = rng.clone().bool();
        let some = CLASSES.iter().map(|c| c.0).filter(|c| *c != ORDERS && !ASKED_FOR.contains(c));
        let some = some.filter(|_| rng.u32(0..10) < share).collect::<Vec<_>>();
        some.into_iter().chain(orders.then_some(ORDERS)).collect()
    }

    /// The classes of a seed: those that were asked for, or some.
    pub fn choose(options: &Options, rng: &mut Rng) -> Faults {
        let mut chosen: BTreeSet<&str> =
            options.faults.iter().flatten().map(String::as_str).collect();
        if options.faults.is_none() || chosen.remove(CHOSEN) {
            chosen.extend(Faults::of_seed(rng));
        }
        let has = |name: &str| chosen.contains(name);
        Faults {
            delay: has("delay"),
            breaks: has("breaks"),
            cuts: has("cuts"),
            psched: has("psched"),
            apinit: has("apinit"),
            shepherd: has("shepherd"),
            aprun: has("aprun"),
            hosts: has("hosts"),
            login: has("login"),
            disk: has("disk"),
            clocks: has("clocks"),
            stale: has("stale"),
            spawn: has("spawn"),
            stops: has("stops"),
            storms: has("storms"),
            naps: has("naps"),
            strangers: has("strangers"),
            stores: has("stores"),
            orders: has(ORDERS),
            copies: has(COPIES),
            launches: has(LAUNCHES),
            logins: has(LOGINS),
            exchanges: has(EXCHANGES),
            narrow: has(NARROW),
            ..Faults::default()
        }
    }
}

impl World {
    /// Nothing goes wrong yet; the checkers learn where the nodes are.
    pub fn ready_faults(&mut self) {
        self.mix.apinit_stopped = vec![0; self.slots.len()];
        for slot in &self.slots {
            self.checks.node_is_on(&slot.nids, slot.host);
        }
    }

    /// The first of each class.
    pub fn begin_faults(&mut self) {
        self.ready_faults();
        let m = self.mix.clone();
        let classes = [
            (m.delay, Fault::Slow),
            (m.breaks, Fault::Break),
            (m.cuts, Fault::Cut),
            (m.psched, Fault::Psched),
            (m.apinit, Fault::Apinit(None)),
            (m.shepherd, Fault::Shepherd),
            (m.aprun, Fault::Aprun),
            (m.hosts, Fault::HostDown),
            (m.login, Fault::LoginDown),
            (m.disk, Fault::DiskFull),
            (m.clocks, Fault::Clock),
            (m.stale, Fault::Stale),
            (m.stops, Fault::Stop),
            (m.naps, Fault::Nap(None)),
            (m.strangers, Fault::Stranger),
            (m.orders, Fault::Order),
            (m.copies, Fault::Copy),
            (m.launches, Fault::Sick),
            (m.logins, Fault::Login),
            (m.narrow, Fault::Narrow),
            (true, Fault::Interrupt),
        ];
        for (_, fault) in classes.into_iter().filter(|(has, _)| *has) {
            self.fault_again(fault);
        }
    }

    /// The next one of a class.
    fn fault_again(&mut self, fault: Fault) {
        let time = self.options.time_ns;
        let mean = match fault {
            Fault::Break | Fault::Stale | Fault::Stranger => time / 120,
            Fault::Apinit(_) | Fault::Shepherd | Fault::Aprun | Fault::Interrupt => time / 40,
            Fault::Psched | Fault::Slow | Fault::Clock | Fault::Nap(_) => time / 30,
            Fault::Order | Fault::Copy => time / 60,
            Fault::Narrow
            | Fault::Cut
            | Fault::Stop
            | Fault::DiskFull
            | Fault::Sick
            | Fault::Login => time / 20,
            Fault::HostDown => time / 12,
            Fault::LoginDown => time / 4,
            Fault::DiskRoom | Fault::Well(_) | Fault::PschedNow => return,
        };
        let wait = self.faults.u64(MS..2 * mean.max(MS));
        self.after(wait, Ev::Fault(fault));
    }

    /// Something goes wrong now.
    pub fn fault(&mut self, fault: Fault) {
        if let Fault::DiskRoom = fault {
            self.disk.full = false;
            return;
        }
        if let Fault::Well(slot) = fault {
            self.slots[slot].sick = false;
            return;
        }
        if self.ending {
            return;
        }
        // One that hits somebody of whom it was said is no link of its class's chain.
        if !matches!(fault, Fault::Nap(Some(_)) | Fault::Apinit(Some(_)) | Fault::PschedNow) {
            self.fault_again(fault.clone());
        }
        self.note(|| format!("FAULT {fault:?}"));
        // (The others disturb hosts, or psched, where it is known for how long.)
        if matches!(fault, Fault::Copy | Fault::Order) {
            self.checks.ends_are_disturbed(self.now + BACK);
        }
        match fault {
            Fault::Slow => {
                self.counts.add("delay");
                self.slow_until = self.now + self.faults.u64(SECOND..20 * SECOND);
                // What was sent last takes up to three seconds more.
                self.disturbed_until(self.slow_until + 4 * SECOND);
                self.checks.ends_are_disturbed(self.slow_until + BACK);
            }
            Fault::Break => self.break_some(),
            Fault::Cut => self.cut_some(),
            Fault::Psched => {
                if self.psched.is_some() {
                    self.counts.add("psched");
                    match self.faults.u32(0..4) {
                        0 => self.kill_psched(),
                        1 => self.store.dies_writing = true,
                        _ => self.around.dies_after = Some(self.faults.u32(0..6)),
                    }
                }
            }
            Fault::PschedNow => {
                if self.psched.is_some() {
                    self.counts.add("psched");
                    self.kill_psched();
                }
            }
            Fault::Apinit(which) => {
                let slot = which.unwrap_or_else(|| self.faults.usize(0..self.slots.len()));
                if let Some(proc) = &mut self.slots[slot].proc {
                    self.counts.add("apinit");
                    if self.faults.bool() {
                        proc.dies_after = Some(self.faults.u32(0..8));
                    } else {
                        self.kill_apinit(slot);
                    }
                    if self.mix.storms {
                        let soon = self.faults.u64(10 * MS..2 * SECOND);
                        if self.faults.u32(0..4) > 0 {
                            self.after(soon, Ev::Fault(Fault::Apinit(Some(slot))));
                        }
                    }
                }
            }
            Fault::Shepherd => {
                let pids: Vec<Pid> = self.sheps.keys().copied().collect();
                if let Some(pid) = self.faults.choice(&pids).copied() {
                    self.counts.add("shepherd");
                    if self.faults.bool() {
                        let actions = self.faults.u32(0..6);
                        if let Some(shep) = self.sheps.get_mut(&pid) {
                            shep.dies_after = Some(actions);
                        }
                    } else {
                        self.kill_shepherd(pid);
                    }
                }
            }
            Fault::Aprun => {
                let pids: Vec<Pid> = self.fronts.keys().copied().collect();
                if let Some(pid) = self.faults.choice(&pids).copied() {
                    self.counts.add("aprun");
                    self.front_gone(pid, None);
                }
            }
            Fault::Interrupt => {
                let pids: Vec<Pid> = self.fronts.keys().copied().collect();
                if let Some(pid) = self.faults.choice(&pids).copied() {
                    self.counts.add("interrupt");
                    let signal = [2, 15, 10][self.faults.usize(0..3)];
                    self.checks.interrupted(pid, signal);
                    self.front_signal(pid, signal, Some(7));
                }
            }
            Fault::Nap(which) => {
                // Those that wait, above all: their place may come while they are away.
                let waits = |(pid, a): (&Pid, &Aprun)| a.waits().then_some(*pid);
                let waiting: Vec<Pid> = self.fronts.iter().filter_map(waits).collect();
                if let Some(pid) = which.or_else(|| self.faults.choice(&waiting).copied()) {
                    self.counts.add("naps");
                    let until = self.now + self.faults.u64(MS..40 * SECOND);
                    // An apinit of another host can't tell it from a dead one.
                    self.checks.napped(pid);
                    self.nap(pid, until);
                }
            }
            Fault::HostDown => {
                let host = self.faults.usize(0..self.hosts.len());
                if host > 0 && self.hosts[host].up {
                    self.counts.add("hosts");
                    self.power_fails(host);
                }
            }
            Fault::LoginDown => {
                if self.hosts[0].up {
                    self.counts.add("login");
                    self.power_fails(0);
                }
            }
            Fault::DiskFull => {
                if !self.disk.full {
                    self.counts.add("disk");
                    self.disk.full = true;
                    let wait = self.faults.u64(MS..15 * SECOND);
                    self.after(wait, Ev::Fault(Fault::DiskRoom));
                    // What waits for its record is said when the disk is tried again.
                    self.disturbed_until(self.now + wait + 2 * SECOND);
                    self.checks.ends_are_disturbed(self.now + wait + BACK);
                }
            }
            Fault::DiskRoom | Fault::Well(_) => {}
            Fault::Login => self.login_fault(),
            Fault::Narrow => self.narrow_some(),
            Fault::Sick => {
                self.counts.add(LAUNCHES);
                let slot = self.faults.usize(0..self.slots.len());
                self.slots[slot].sick = true;
                let wait = self.faults.u64(SECOND..60 * SECOND);
                self.after(wait, Ev::Fault(Fault::Well(slot)));
            }
            Fault::Clock => {
                self.counts.add("clocks");
                let host = self.faults.usize(0..self.hosts.len());
                self.hosts[host].wall_step += self.faults.i64(-7200..7200) * SECOND as i64;
            }
            Fault::Stale => self.say_again(),
            Fault::Stranger => self.stranger_comes(),
            Fault::Order => self.administrator_comes(),
            Fault::Copy => self.copy_or_put_back(),
            Fault::Stop => {
                self.counts.add("stops");
                let until = self.now + self.faults.u64(MS..12 * SECOND);
                self.disturbed_until(until);
                self.checks.ends_are_disturbed(until + BACK);
                let sheps: Vec<Pid> = self.sheps.keys().copied().collect();
                let shepherd = self.faults.choice(&sheps).copied();
                let stopped = match self.faults.usize(0..=self.slots.len()) {
                    0 => {
                        self.checks.psched_away(until);
                        &mut self.mix.psched_stopped
                    }
                    n if n % 2 == 0 => match shepherd.and_then(|pid| self.sheps.get_mut(&pid)) {
                        Some(shep) => &mut shep.stopped_until,
                        None => return,
                    },
                    _ => {
                        let slot = self.faults.usize(0..self.slots.len());
                        self.checks.apinit_away(&self.slots[slot].nids, until);
                        self.checks.login_serves(self.slots[slot].host, until);
                        &mut self.mix.apinit_stopped[slot]
                    }
                };
                // Whoever is stopped already hears what waits for it first.
                if *stopped <= self.now {
                    *stopped = until;
                }
            }
        }
    }

    /// Until when an apinit is, or was, stopped.
    pub fn apinit_stopped_until(&self, slot: usize) -> Option<u64> {
        self.mix.apinit_stopped.get(slot).copied()
    }

    /// An aprun is stopped until then.
    pub fn nap(&mut self, pid: Pid, until: u64) {
        let stopped = self.mix.fronts_stopped.entry(pid).or_default();
        if *stopped <= self.now {
            *stopped = until;
        }
    }

    /// Until when the owner of an end is stopped, if it is.
    pub fn paused_until(&self, who: Who) -> Option<u64> {
        let until = match who {
            Who::PschedLink(_) | Who::PschedFront(_) => self.mix.psched_stopped,
            Who::ApinitLink(slot)
            | Who::ApinitFront(slot, _)
            | Who::ApinitPeer(slot, ..)
            | Who::ApinitShepherd(slot, _) => self.mix.apinit_stopped.get(slot).copied()?,
            Who::FrontPsched(pid) | Who::FrontApinit(pid) => {
                self.mix.fronts_stopped.get(&pid).copied()?
            }
            Who::PschedLogin(_) => self.mix.psched_stopped,
            Who::Login(host) => self.login_paused(host),
            Who::Relay(number) => self.relay_paused(number),
            Who::Nobody | Who::Shepherd(_) | Who::WrongPsched(_) | Who::Copy(_) => return None,
        };
        Some(until).filter(|until| *until > self.now)
    }

    /// psched gets KILL, and is started again.
    pub fn kill_psched(&mut self) {
        self.mix.psched_stopped = 0;
        self.psched_gone();
        let wait = self.faults.u64(20 * MS..8 * SECOND);
        self.after(wait, Ev::PschedStart);
    }

    /// An apinit gets KILL, and is started again.
    pub fn kill_apinit(&mut self, slot: usize) {
        self.mix.apinit_stopped[slot] = 0;
        self.apinit_gone(slot);
        let wait = self.faults.u64(5 * MS..4 * SECOND);
        self.after(wait, Ev::ApinitStart(slot));
    }

    /// A shepherd gets KILL.
    pub fn kill_shepherd(&mut self, pid: Pid) {
        if let Some((apid, slot)) = self.sheps.get(&pid).map(|s| (s.key.apid, s.slot)) {
            self.checks.shepherd_killed(apid, &self.slots[slot].nids);
            self.shepherd_gone(pid);
        }
    }

    fn power_fails(&mut self, host: usize) {
        self.host_down(host);
        let wait = self.faults.u64(SECOND..40 * SECOND);
        self.after(wait, Ev::HostUp(host));
    }

    /// What an apinit's host held may be lost with it.
    pub fn checks_apps_of_slot(&mut self, slot: usize) {
        let nids = self.slots[slot].nids.clone();
        let live = self.psched.iter().flat_map(|p| p.driver.scheduler().teams());
        for team in live.chain(self.disk.teams.values()) {
            if team.places.nids().any(|n| nids.contains(&n)) {
                self.checks.host_took(team.apid, &nids);
            }
        }
    }

    fn break_some(&mut self) {
        let ids: Vec<WireId> = self
            .wires
            .iter()
            .filter(|(_, w)| w.hosts[0] != w.hosts[1])
            .map(|(id, _)| *id)
            .collect();
        if let Some(id) = self.faults.choice(&ids).copied() {
            self.counts.add("breaks");
            self.break_wire(id);
        }
    }

    /// One connection is cut in one direction; or two hosts are cut off from each other.
    fn cut_some(&mut self) {
        self.counts.add("cuts");
        let (a, b) =
            (self.faults.usize(0..self.hosts.len()), self.faults.usize(0..self.hosts.len()));
        if a == b {
            return;
        }
        let until = self.now + self.faults.u64(SECOND..25 * SECOND);
        self.cuts.insert((a, b), until);
        if self.faults.bool() {
            self.cuts.insert((b, a), until);
        }
        let between: Vec<(WireId, [bool; 2])> = self
            .wires
            .iter()
            .filter(|(_, w)| w.hosts == [a, b] || w.hosts == [b, a])
            .map(|(id, w)| {
                (*id, [self.is_cut(w.hosts[1], w.hosts[0]), self.is_cut(w.hosts[0], w.hosts[1])])
            })
            .collect();
        for (id, cut) in between {
            for (side, _) in cut.into_iter().enumerate().filter(|(_, cut)| *cut) {
                self.cut_wire(id, side);
            }
        }
        self.checks.cut(a, b, until);
        for host in [a, b] {
            self.checks.host_is_disturbed(host, until + UNHEARD);
        }
    }

    /// Whose link to psched this is.
    pub fn apinit_of(&self, link: LinkId) -> Option<usize> {
        self.wires.values().find_map(|w| match (w.ends[1], w.ends[0]) {
            (Who::PschedLink(of), Who::ApinitLink(slot)) if of == link => Some(slot),
            _ => None,
        })
    }

    /// A report may be kept, to come again.
    pub fn report_again(&mut self, link: LinkId, report: &Report) {
        if !self.mix.stale {
            return;
        }
        if let Some(slot) = self.apinit_of(link) {
            if self.mix.old.len() >= 60 {
                let at = self.faults.usize(0..60);
                self.mix.old.swap_remove(at);
            }
            self.mix.old.push((slot, report.clone()));
        }
    }

    fn say_again(&mut self) {
        if self.mix.old.is_empty() {
            return;
        }
        // Above all those of applications that have got another place since.
        let newer = |report: &Report| {
            let Some(key) = key_of(report) else { return false };
            self.disk.teams.get(&key.apid).is_some_and(|t| t.key() > key && t.state != State::Ended)
        };
        let newer: Vec<usize> =
            (0..self.mix.old.len()).filter(|at| newer(&self.mix.old[*at].1)).collect();
        let at = match self.faults.choice(&newer).copied() {
            Some(at) if self.faults.u32(0..4) > 0 => at,
            _ => self.faults.usize(0..self.mix.old.len()),
        };
        let (slot, report) = self.mix.old[at].clone();
        let link = self.wires.values().find_map(|w| match (w.ends[1], w.ends[0]) {
            (Who::PschedLink(link), Who::ApinitLink(of)) if of == slot => Some(link),
            _ => None,
        });
        if let Some(link) = link {
            self.counts.add("stale");
            self.psched_event(Event::Report { link, report: Box::new(report) });
        }
    }

    /// No more of it: everything is whole again, and whoever was killed is started.
    pub fn end_faults(&mut self) {
        self.ending = true;
        self.checks.ends_are_disturbed(self.now + MENDED);
        self.disk.full = false;
        self.cuts.clear();
        self.slow_until = 0;
        self.around.dies_after = None;
        self.store.dies_writing = false;
        for slot in &mut self.slots {
            slot.sick = false;
            if let Some(proc) = &mut slot.proc {
                proc.dies_after = None;
            }
        }
        self.sheps.values_mut().for_each(|s| s.dies_after = None);
        self.logins_go_on();
        self.narrow_is_over();
        self.orders_are_over();
    }
}
