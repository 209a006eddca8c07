//! A node: it holds what it was told to hold, and says it until it is acknowledged.

use super::NODES;
use super::steps::{Measure, Step};
use super::world::World;
use crate::apteam::change::By;
use crate::apteam::ending::{Cause, Decisive, HostEnd};
use crate::apteam::migration_blocker::MigrationBlocker;
use crate::apteam::protocol::node::{
    Command, Foreign, ForeignApplication, MoveCommand, Phase, PlaceCommand, Report, RollOut,
};
use crate::apteam::protocol::turns::{Switch, Switches};
use crate::apteam::record::State;
use crate::apteam::{Apid, Key};
use crate::machine::Nid;
use crate::psched::decide::tests::hello;
use crate::psched::decide::{Event, LinkId, Manage, ReplyId};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Held {
    Placed(Box<PlaceCommand>),
    Running(Box<PlaceCommand>),
    Ended(Box<PlaceCommand>, Box<HostEnd>),
}

impl Held {
    pub fn place(&self) -> &PlaceCommand {
        match self {
            Held::Placed(place) | Held::Running(place) | Held::Ended(place, _) => place,
        }
    }

    pub fn phase(&self) -> Phase {
        match self {
            Held::Placed(_) => Phase::Placed,
            Held::Running(_) => Phase::Running,
            Held::Ended(..) => Phase::Ended,
        }
    }

    pub fn ran(&self) -> bool {
        match self {
            Held::Placed(_) => false,
            Held::Running(_) => true,
            Held::Ended(_, end) => end.launched,
        }
    }
}

/// An apinit, and what it offers.
#[derive(Default)]
pub(super) struct Node {
    pub nids: Vec<u32>,
    pub link: Option<LinkId>,
    /// The store that it obeys, and the start of psched on it.
    pub obeys: Option<(u32, u64)>,
    /// Commits of the store that it has heard of.
    pub commits: u64,
    pub foreign: bool,
    pub purging: bool,
    pub held: BTreeMap<Key, Held>,
    /// Moves that it has begun: both places are the application's until it is there.
    pub moving: BTreeMap<Key, MoveCommand>,
    /// The last that failed of each: it is not begun again.
    pub not_moved: BTreeMap<Key, u32>,
    /// Memory does not go to swap when it is told to.
    pub fails_to_roll_out: bool,
    /// Nor does it say that it can.
    pub without_swap: bool,
    /// Each with the commits that were durable when it left psched.
    pub commands: VecDeque<(u64, Command)>,
    pub reports: VecDeque<Report>,
    pub heard: Vec<Report>,
    /// What it has let run last, and when.
    on: Option<Key>,
    changed: Duration,
    /// How long each has run, and the most memory that it has had.
    ran: BTreeMap<Key, Duration>,
    peaks: BTreeMap<(Key, Nid), u64>,
}

impl Node {
    pub fn new(nids: &[u32]) -> Node {
        Node { nids: nids.to_vec(), ..Node::default() }
    }

    pub fn offers(&self, nid: Nid) -> bool {
        self.nids.contains(&nid.0)
    }

    /// Whether it can be moved, as the node of PE 0 says.
    fn movable(&self, place: &PlaceCommand) -> Option<Report> {
        let spread = place.host_count() > 1;
        let blocker = spread.then_some(MigrationBlocker::SeveralHosts);
        let head = place.part.map.all().next().is_some_and(|node| self.offers(node.nid));
        head.then_some(Report::Movable { key: place.key, blocker })
    }

    /// It is told to a psched that it obeys, and that hears it.
    fn say(&mut self, report: Report) {
        if self.link.is_some() && !self.foreign {
            self.reports.push_back(report);
        }
    }

    fn start_move(&mut self, order: MoveCommand) {
        let MoveCommand { key, number, .. } = order;
        let failed = |why| Report::MoveFailed { key, number, why };
        let answer = match self.held.get(&key) {
            None => failed(MigrationBlocker::NotHere),
            Some(held) if held.place().moved.number >= number => {
                Report::Moved { key, number, frozen: Duration::ZERO }
            }
            Some(_) if self.not_moved.get(&key) == Some(&number) => {
                failed(MigrationBlocker::NotBound("it has failed before".into()))
            }
            Some(Held::Running(place)) => {
                let here = order.places.nids().all(|nid| self.offers(nid));
                if here && place.host_count() == 1 {
                    // (Said again it is one move.)
                    if self.moving.get(&key).is_none_or(|known| known.number < number) {
                        self.moving.insert(key, order);
                    }
                    return;
                }
                failed(MigrationBlocker::SeveralHosts)
            }
            Some(_) => failed(MigrationBlocker::NotGoing),
        };
        if matches!(answer, Report::MoveFailed { .. }) {
            self.not_moved.insert(key, number);
        }
        self.say(answer);
    }

    /// It lets another gang run, and tells what it has measured until now.
    pub fn switch(&mut self, now: Duration, measure: &Measure) {
        let Measure { turn, ran, idle, brought, gap_ns, peak, left_out } = *measure;
        let passed = now.saturating_sub(std::mem::replace(&mut self.changed, now)) * ran / 10;
        let running = |held: &&Held| matches!(held, Held::Running(_));
        let places: Vec<PlaceCommand> =
            self.held.values().filter(running).map(|held| held.place().clone()).collect();
        let there = |key: &Key| places.iter().any(|place| place.key == *key);
        let next = places.get(turn % places.len().max(1)).map(|place| place.key);
        let before = std::mem::replace(&mut self.on, next).filter(|key| Some(*key) != next);
        self.ran.retain(|key, _| there(key));
        self.peaks.retain(|(key, _), _| there(key));
        for place in &places {
            *self.ran.entry(place.key).or_default() += passed;
            for nid in place.places.nids().filter(|nid| self.nids.contains(&nid.0)) {
                let known = self.peaks.entry((place.key, nid)).or_default();
                *known = peak.max(*known);
            }
        }
        let began_ns = now.as_nanos() as u64;
        let switch = Switch {
            generation: 1,
            due_ns: began_ns,
            began_ns,
            freeze_ns: 200_000,
            gap_ns,
            not_yet_frozen: 0,
            stopped: before.into_iter().collect(),
            started: next.into_iter().collect(),
            brought,
        };
        let told = Switches {
            switches: vec![switch],
            left_out,
            peaks: self.peaks.iter().map(|((key, nid), bytes)| (*key, *nid, *bytes)).collect(),
            ran: self.ran.iter().map(|(key, ran)| (*key, *ran)).collect(),
            idle: before.into_iter().map(|key| (key, idle)).collect(),
        };
        self.say(Report::Switches(Box::new(told)));
    }

    /// (It goes at once, or not at all.)
    fn roll_out(&mut self, key: Key) {
        let why = match self.held.get(&key) {
            Some(Held::Running(_)) if !self.fails_to_roll_out => None,
            Some(Held::Running(_)) => Some("none of its memory can go to swap".to_owned()),
            _ => Some("it is no longer here".to_owned()),
        };
        let bytes = if why.is_none() { 1 << 20 } else { 0 };
        self.say(Report::RolledOut { key, bytes, why });
    }

    /// What it moves is there, or stays where it was.
    pub fn arrive(&mut self, fails: bool) {
        for (key, MoveCommand { number, places, .. }) in std::mem::take(&mut self.moving) {
            let Some(Held::Running(place)) = self.held.get_mut(&key) else { continue };
            let report = match fails {
                true => {
                    self.not_moved.insert(key, number);
                    Report::MoveFailed {
                        key,
                        number,
                        why: MigrationBlocker::NotBound("the kernel says no".into()),
                    }
                }
                false => {
                    **place = place.alone(places);
                    place.moved.number = number;
                    Report::Moved { key, number, frozen: Duration::ZERO }
                }
            };
            self.say(report);
        }
    }
}

impl World {
    /// The node that offers this NID.
    pub fn host_of(&self, nid: Nid) -> usize {
        self.nodes.iter().position(|node| node.offers(nid)).expect("all are offered")
    }

    pub fn hear(&mut self, number: usize) {
        let node = &mut self.nodes[number];
        if let (Some(link), Some(report)) = (node.link, node.reports.pop_front()) {
            node.heard.push(report.clone());
            self.event(Event::Report { link, report: Box::new(report) });
        }
    }

    pub fn connect(&mut self, number: u32) {
        let number = number as usize % self.nodes.len();
        let node = &mut self.nodes[number];
        if node.link.is_some() {
            return;
        }
        self.links += 1;
        let link = LinkId(self.links);
        node.link = Some(link);
        let mut hello = hello(&node.nids);
        // Some are of the release before, which wants whole placements.
        hello.parts = number % 3 != 2;
        hello.leads_on = hello.parts;
        if self.swaps && !node.without_swap {
            hello.roll_out = RollOut::Can;
        }
        self.event(Event::LinkOpened { link, hello });
        let node = &mut self.nodes[number];
        (node.foreign, node.purging) = (false, false);
        let commits = node.commits;
        let kept = &self.kept;
        let stranger = node.obeys.is_some_and(|(id, start)| {
            let early = kept.starts.range(start + 1..).any(|(_, before)| *before < commits);
            id != kept.id || !kept.starts.contains_key(&start) || kept.commits < commits || early
        });
        if !stranger {
            self.obey(number);
            return;
        }
        node.foreign = true;
        // To the other psched. (What it was about to move stays where it is.)
        node.reports.clear();
        node.moving.clear();
        let told = |held: &Held| ForeignApplication {
            place: held.place().clone(),
            phase: held.phase(),
            run: Duration::from_secs(held.ran().into()),
        };
        let foreign =
            Foreign { applications: node.held.values().map(told).collect(), ..Foreign::default() };
        self.event(Event::Foreign { link, foreign: Box::new(foreign) });
    }

    /// The node does as this psched says from now on, and tells what it has.
    pub fn obey(&mut self, number: usize) {
        // What it has said before comes before its inventory.
        while self.nodes[number].foreign && !self.nodes[number].reports.is_empty() {
            self.hear(number);
        }
        let node = &mut self.nodes[number];
        let Some(link) = node.link else { return };
        if node.foreign || node.obeys.is_none() {
            // (Nothing that was said to another psched comes again: this one may use its numbers anew.)
            node.heard.clear();
        }
        (node.foreign, node.purging) = (false, false);
        node.obeys = Some((self.kept.id, self.starts));
        node.commits = self.kept.commits;
        let items = node.held.iter().map(|(key, held)| (*key, held.phase())).collect();
        let mut said = Vec::new();
        for held in node.held.values() {
            match held {
                Held::Ended(_, end) => said.push(Report::Ended(end.clone())),
                Held::Running(place) => said.extend(node.movable(place)),
                Held::Placed(_) => {}
            }
        }
        node.reports.extend(said);
        // Where those are that have moved comes before its inventory.
        let places = node.held.values().map(Held::place).filter(|place| place.moved.number > 0);
        let moved = |place: &PlaceCommand| {
            let (key, number) = (place.key, place.moved.number);
            Report::Moved { key, number, frozen: Duration::ZERO }
        };
        let moved: Vec<Report> = places.map(moved).collect();
        for report in moved {
            self.event(Event::Report { link, report: Box::new(report) });
        }
        self.event(Event::Inventory { link, items });
    }

    /// One comes, and all that is said on its way to run is heard at once.
    pub fn begin(&mut self, width: u32) {
        self.step(Step::Post { width, flexible: false });
        let heard = |world: &mut World| {
            for number in 0..world.nodes.len() {
                while !world.nodes[number].commands.is_empty() {
                    world.deliver(number);
                }
                while world.nodes[number].link.is_some() && !world.nodes[number].reports.is_empty()
                {
                    world.hear(number);
                }
            }
        };
        heard(self);
        if let Some(apid) = self.scheduler.teams().last().map(|team| team.apid) {
            self.launch(apid);
        }
        heard(self);
        // Whose memory was to go has gone, or not.
        heard(self);
    }

    /// Whether memory goes to swap there, and whether it says that it can.
    pub fn swap(&mut self, number: u32, goes: bool, can: bool) {
        let at = number as usize % self.nodes.len();
        let node = &mut self.nodes[at];
        (node.fails_to_roll_out, node.without_swap) = (!goes, !can);
        let Some(link) = node.link.filter(|_| self.swaps) else { return };
        let roll_out = match can {
            true => RollOut::Can,
            false => RollOut::Cant("no swap".to_owned()),
        };
        self.event(Event::Noted { link, notes: Vec::new(), roll_out, clock: Default::default() });
    }

    pub fn manage(&mut self, what: Manage, node: Option<u32>) {
        let nids: BTreeSet<Nid> = match node {
            Some(node) => {
                let node = &self.nodes[node as usize % self.nodes.len()];
                node.nids.iter().copied().map(Nid).collect()
            }
            None => (0..NODES).map(Nid).collect(),
        };
        let mut used = self.scheduler.foreign_apids(&nids);
        used.retain(|a| self.kept.saved.get(a).is_some_and(|t| t.state == State::Ended));
        let (reply, by, administrator) = (ReplyId(0), By::default(), true);
        self.event(Event::Manage { reply, what, nids, by, administrator, used });
    }

    /// Launches, with whatever placement its nodes still hold: a front end may be late.
    pub fn launch(&mut self, apid: Apid) {
        let hosts_of = |place: &PlaceCommand| -> BTreeSet<usize> {
            place.part.map.all().map(|node| self.host_of(node.nid)).collect()
        };
        let holds = |at: &usize, wanted: &PlaceCommand| {
            let held = self.nodes[*at].held.get(&wanted.key);
            matches!(held, Some(Held::Placed(place)) if place.ticket == wanted.ticket)
        };
        let placed = self.nodes.iter().flat_map(|n| &n.held).find_map(|(key, held)| match held {
            Held::Placed(place) if key.apid == apid => {
                let hosts = hosts_of(place);
                hosts.iter().all(|at| holds(at, place)).then_some((*key, hosts))
            }
            _ => None,
        });
        let Some((key, hosts)) = placed else { return };
        for at in hosts {
            let node = &mut self.nodes[at];
            if let Some(Held::Placed(place)) = node.held.get(&key).cloned() {
                let movable = node.movable(&place);
                node.held.insert(key, Held::Running(place));
                if node.foreign {
                    continue;
                }
                node.reports.push_back(Report::Launched(key));
                node.reports.push_back(Report::Running(key));
                node.reports.extend(movable);
            }
        }
    }

    pub fn finish(&mut self, apid: Apid, number: usize) {
        let node = &mut self.nodes[number];
        let key = node.held.iter().find(|(k, h)| k.apid == apid && matches!(h, Held::Running(_)));
        if let Some(key) = key.map(|(k, _)| *k) {
            end_on(node, key, None);
        }
    }

    pub fn deliver(&mut self, number: usize) {
        let node = &mut self.nodes[number];
        let Some((commits, command)) = node.commands.pop_front() else { return };
        if node.foreign {
            return self.stranger_says(number, command);
        }
        node.commits = node.commits.max(commits);
        match command {
            Command::Place(place) => {
                // (The same placement has a new ticket when it is sent again, another one is not taken.)
                match node.held.entry(place.key) {
                    Entry::Vacant(entry) => drop(entry.insert(Held::Placed(place))),
                    Entry::Occupied(mut entry) => match entry.get_mut() {
                        Held::Placed(known) if known.places == place.places => *known = place,
                        _ => {}
                    },
                }
            }
            Command::TakeBack { key, number } => match node.held.get(&key) {
                None | Some(Held::Placed(_)) => {
                    node.held.remove(&key);
                    node.reports.push_back(Report::TakenBack { key, number });
                }
                Some(Held::Running(_)) => node.reports.push_back(Report::Launched(key)),
                Some(Held::Ended(_, end)) => {
                    node.reports.push_back(Report::Ended(end.clone()));
                }
            },
            Command::Terminate { key, cause, .. } => {
                if matches!(node.held.get(&key), Some(Held::Placed(_) | Held::Running(_))) {
                    end_on(node, key, Some(cause));
                }
            }
            Command::AcknowledgeEnd(key) => {
                if matches!(node.held.get(&key), Some(Held::Ended(..))) {
                    node.held.remove(&key);
                }
            }
            Command::Discard(key) => {
                node.held.remove(&key);
            }
            Command::Signal { .. }
            | Command::Adopt
            | Command::Purge { .. }
            | Command::Bounds(_)
            | Command::Plan(_)
            | Command::AgreePlan(_)
            | Command::WithdrawPlan(_) => {}
            Command::Move(order) => node.start_move(*order),
            Command::RollOut(key) => node.roll_out(key),
        }
    }

    pub fn stranger_says(&mut self, number: usize, command: Command) {
        let node = &mut self.nodes[number];
        match command {
            Command::Adopt if !node.purging => return self.obey(number),
            Command::Purge { uid } => {
                node.purging = true;
                for key in node.held.keys().copied().collect::<Vec<_>>() {
                    match node.held.get(&key).cloned() {
                        Some(Held::Ended(_, end)) => {
                            node.reports.push_back(Report::Ended(end));
                        }
                        _ => end_on(node, key, Some(Cause::Purge { uid })),
                    }
                }
            }
            Command::AcknowledgeEnd(key) if node.purging => {
                if matches!(node.held.get(&key), Some(Held::Ended(..))) {
                    node.held.remove(&key);
                }
            }
            other => {
                // It is not obeyed; and nothing but the end of a purge was to be said to it.
                let late = matches!(other, Command::AcknowledgeEnd(_) | Command::Adopt);
                assert!(late, "{other:?} to a foreign node");
            }
        }
        if node.purging && node.held.is_empty() {
            self.obey(number);
        }
    }
}

/// By itself, or for this reason.
pub(super) fn end_on(node: &mut Node, key: Key, cause: Option<Cause>) {
    let Some(held) = node.held.get(&key) else { return };
    let (place, launched) = (Box::new(held.place().clone()), held.ran());
    let first = cause.map(|cause| Decisive { at_ns: 0, cause });
    let nids = place.places.nids().filter(|nid| node.offers(*nid)).collect();
    node.moving.remove(&key);
    let end = Box::new(HostEnd { key, nids, launched, first, ..HostEnd::default() });
    node.held.insert(key, Held::Ended(place, end.clone()));
    if node.foreign && !node.purging {
        return;
    }
    node.reports.push_back(Report::Ended(end));
}
