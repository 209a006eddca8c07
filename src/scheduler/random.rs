//! Random histories: the scheduler against nodes that lose, delay and repeat.
//!
//! Each node is a small honest model: it holds what it was told to hold, launches when a front end
//! comes, and repeats its last words until they are acknowledged. Commands and reports wait in
//! queues from which the history takes them in its own time; a link may break at any moment, which
//! loses both queues. psched may be killed and restored from its last saved records. Looked at
//! after every step: no processor has more holders than it may, on any node; nothing that has ended is told to
//! end twice; what runs on a foreign node goes on until an administrator says otherwise. psched may
//! also be started with an empty store, or with an old copy of one. Administrators close nodes or take the
//! flavor ap from them, and hold applications: nothing new is placed there, and these are not placed. Where the
//! nodes are of domains, another psched.yaml gives them to others: nobody is placed beside somebody of another
//! domain. Looked at once everything has come to rest: each accepted posting has ended, once, and no node holds
//! anything.

use super::tests::{hello, machine, posted, sharing};
use super::*;
use crate::apteam::change::{By, Closed, Orders};
use crate::apteam::ending::{Cause, Decisive, HostEnd};
use crate::apteam::talk::node::{Foreign, ForeignApplication, Phase, PlaceCommand, Report};
use crate::machine::{Flavor, Flavors, Members, Region};
use crate::variables::Order;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::time::Duration;

const NODES: u32 = 3;
const PROCESSORS: u32 = 2;

#[derive(Clone, Debug)]
enum Step {
    Post {
        width: u32,
        flexible: bool,
    },
    FrontGone(usize),
    Look(usize),
    Kill(usize, i32),
    /// The front end of an application launches it on every node that knows it.
    Launch(usize),
    /// A running application ends by itself on a node.
    Finish(usize, u32),
    Deliver(u32),
    Hear(u32),
    /// All that the nodes report is heard at one instant.
    HearAll,
    /// A report that was heard before comes again.
    HearAgain(u32, usize),
    Break(u32),
    Connect(u32),
    Time,
    Crash,
    /// Its state directory is copied.
    Copy,
    /// It is started on the copy; the nodes call at once, or when they do.
    OldCopy(bool),
    /// It is started on nothing.
    EmptyStore(bool),
    /// On both nodes, or on one of them.
    Adopt(Option<u32>),
    Purge(Option<u32>),
    /// An administrator drains it, declares it down (he may be wrong), or resumes it.
    Order(u32, NodesTo),
    /// An administrator gives it flavors, or takes that back.
    Flavors(u32, Option<Flavors>),
    Hold(usize, bool),
    /// The nodes are of these domains from now on, by number; the same for both: without regions.
    Domains(u32, u32),
}

fn step() -> impl Strategy<Value = Step> {
    let any = 0..8usize;
    let node = 0..NODES;
    prop_oneof![
        4 => (1..=NODES * PROCESSORS, proptest::bool::ANY)
            .prop_map(|(width, flexible)| Step::Post { width, flexible }),
        1 => any.clone().prop_map(Step::FrontGone),
        2 => any.clone().prop_map(Step::Look),
        2 => (any.clone(), prop_oneof![Just(0), Just(9), Just(10)]).prop_map(|(a, s)| Step::Kill(a, s)),
        6 => any.clone().prop_map(Step::Launch),
        6 => (any.clone(), node.clone()).prop_map(|(a, n)| Step::Finish(a, n)),
        6 => node.clone().prop_map(Step::Deliver),
        6 => node.clone().prop_map(Step::Hear),
        3 => Just(Step::HearAll),
        3 => (node.clone(), 0..64usize).prop_map(|(n, i)| Step::HearAgain(n, i)),
        2 => node.clone().prop_map(Step::Break),
        3 => node.clone().prop_map(Step::Connect),
        2 => Just(Step::Time),
        1 => Just(Step::Crash),
        1 => Just(Step::Copy),
        1 => proptest::bool::ANY.prop_map(Step::OldCopy),
        1 => proptest::bool::ANY.prop_map(Step::EmptyStore),
        5 => proptest::option::of(node.clone()).prop_map(Step::Adopt),
        1 => proptest::option::of(node.clone()).prop_map(Step::Purge),
        3 => (node.clone(), to()).prop_map(|(n, to)| Step::Order(n, to)),
        2 => (node, flavors()).prop_map(|(n, to)| Step::Flavors(n, to)),
        2 => (any, proptest::bool::ANY).prop_map(|(a, hold)| Step::Hold(a, hold)),
        // (Without it where there are none: see `history_of`.)
        2 => (0u32..3, 0u32..3).prop_map(|(a, b)| Step::Domains(a, b)),
    ]
}

fn flavors() -> impl Strategy<Value = Option<Flavors>> {
    let system = [Flavor::Su, Flavor::Os].into_iter().collect();
    prop_oneof![Just(Some(system)), Just(Some(Flavors::all())), Just(None)]
}

fn to() -> impl Strategy<Value = NodesTo> {
    let (drain, down) = (NodesTo::Close(Closed::Drained), NodesTo::Close(Closed::Down));
    prop_oneof![Just(drain), Just(down), Just(NodesTo::Resume)]
}

#[derive(Clone, Debug, PartialEq)]
enum Held {
    Placed(Box<PlaceCommand>),
    Running(Box<PlaceCommand>),
    Ended(Box<PlaceCommand>, Box<HostEnd>),
}

impl Held {
    fn place(&self) -> &PlaceCommand {
        match self {
            Held::Placed(place) | Held::Running(place) | Held::Ended(place, _) => place,
        }
    }

    fn phase(&self) -> Phase {
        match self {
            Held::Placed(_) => Phase::Placed,
            Held::Running(_) => Phase::Running,
            Held::Ended(..) => Phase::Ended,
        }
    }

    fn ran(&self) -> bool {
        match self {
            Held::Placed(_) => false,
            Held::Running(_) => true,
            Held::Ended(_, end) => end.launched,
        }
    }
}

#[derive(Default)]
struct Node {
    link: Option<LinkId>,
    /// The store that it obeys, and the start of psched on it.
    obeys: Option<(u32, u64)>,
    foreign: bool,
    purging: bool,
    held: BTreeMap<Key, Held>,
    commands: VecDeque<Command>,
    reports: VecDeque<Report>,
    heard: Vec<Report>,
}

/// A store, and what is known of its applications.
#[derive(Clone, Default)]
struct Kept {
    id: u32,
    /// The starts of psched that led to this, by numbers that no other start has.
    starts: BTreeSet<u64>,
    saved: BTreeMap<Apid, Apteam>,
    accepted: BTreeSet<Apid>,
    ended: BTreeMap<Apid, u32>,
    orders: Orders,
}

struct World {
    scheduler: Scheduler,
    machine: Machine,
    /// psched.yaml may give the nodes to domains.
    domains: bool,
    kept: Kept,
    copy: Option<Kept>,
    stores: u32,
    /// Starts of psched so far.
    starts: u64,
    nodes: Vec<Node>,
    seconds: u64,
    postings: u8,
    links: u64,
}

impl World {
    fn new(max_resident: u32, domains: bool) -> World {
        let (machine, mut settings) = (machine(NODES, PROCESSORS), sharing(max_resident));
        if domains {
            // Domain 1 goes by least attained service, 0 and 2 by turns.
            let turns = &settings.turns;
            let decides = Turns { order: Order::LeastAttainedService, ..turns.clone() };
            let domains = [("domain-0", turns.clone()), ("domain-1", decides)];
            settings.domains = domains.map(|(name, turns)| (name.to_owned(), turns)).into();
        }
        World {
            scheduler: Scheduler::new(machine.clone(), settings),
            machine,
            domains,
            kept: Kept { id: 1, starts: [1].into(), ..Kept::default() },
            copy: None,
            stores: 1,
            starts: 1,
            nodes: (0..NODES).map(|_| Node::default()).collect(),
            seconds: 1,
            postings: 0,
            links: 0,
        }
    }

    fn now(&self) -> Now {
        Now { mono_ns: self.seconds * 1_000_000_000, wall_ns: self.seconds }
    }

    fn event(&mut self, event: Event) {
        let effects = self.scheduler.apply(self.now(), event);
        self.effects(effects);
    }

    fn effects(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Save { team, .. } => {
                    self.check_place(&team);
                    if team.state == State::Ended {
                        *self.kept.ended.entry(team.apid).or_default() += 1;
                    }
                    self.kept.saved.insert(team.apid, *team);
                }
                Effect::SaveAdopted { team } => {
                    self.kept.accepted.insert(team.apid);
                    self.kept.saved.insert(team.apid, *team);
                }
                Effect::SaveNodes { nids, order } => {
                    for nid in nids {
                        match &order {
                            Some(order) => {
                                drop(self.kept.orders.closed.insert(nid, (**order).clone()))
                            }
                            None => drop(self.kept.orders.closed.remove(&nid)),
                        }
                    }
                }
                Effect::SaveFlavors { nids, order } => {
                    let flavors = &mut self.kept.orders.flavors;
                    for nid in nids {
                        match &order {
                            Some(order) => drop(flavors.insert(nid, (**order).clone())),
                            None => drop(flavors.remove(&nid)),
                        }
                    }
                }
                Effect::Accept { apid, .. } => {
                    self.kept.accepted.insert(apid);
                }
                Effect::Command { link, command } => {
                    if let Some(node) = self.nodes.iter_mut().find(|n| n.link == Some(link)) {
                        node.commands.push_back(command);
                    }
                }
                _ => {}
            }
        }
    }

    /// A live application, or one of none.
    fn pick(&self, index: usize) -> Apid {
        let live: Vec<Apid> = self.scheduler.teams().map(|t| t.apid).collect();
        live.get(index % live.len().max(1)).copied().unwrap_or(Apid(999))
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Post { width, flexible } => {
                if self.postings < 200 {
                    self.postings += 1;
                    let mut event = posted(self.postings, width);
                    if let Event::Posted { posting, .. } = &mut event {
                        posting.flexible = flexible;
                    }
                    self.event(event);
                }
            }
            Step::FrontGone(i) => self.event(Event::FrontGone { apid: self.pick(i) }),
            Step::Look(i) => self.event(Event::Looked { reply: ReplyId(0), apid: self.pick(i) }),
            Step::Kill(i, signal) => {
                let apids = vec![self.pick(i)];
                self.event(Event::Kill {
                    reply: ReplyId(0),
                    apids,
                    signal,
                    uid: 0,
                    administrator: true,
                });
            }
            Step::Launch(i) => self.launch(self.pick(i)),
            Step::Finish(i, node) => {
                let apid = self.pick(i);
                self.finish(apid, node as usize);
            }
            Step::Deliver(node) => {
                while !self.nodes[node as usize].commands.is_empty() {
                    self.deliver(node as usize);
                }
            }
            Step::Hear(node) => {
                self.hear(node as usize);
            }
            Step::HearAll => {
                let mut events = Vec::new();
                for node in &mut self.nodes {
                    let Some(link) = node.link else { continue };
                    for report in node.reports.drain(..) {
                        node.heard.push(report.clone());
                        events.push(Event::Report { link, report: Box::new(report) });
                    }
                }
                let effects = self.scheduler.apply_all(self.now(), events);
                self.effects(effects);
            }
            Step::HearAgain(node, index) => {
                let node = &self.nodes[node as usize];
                let again = node.heard.iter().rev().nth(index % node.heard.len().max(1)).cloned();
                if let (Some(link), Some(report)) = (node.link, again) {
                    self.event(Event::Report { link, report: Box::new(report) });
                }
            }
            Step::Break(node) => {
                let node = &mut self.nodes[node as usize];
                node.commands.clear();
                node.reports.clear();
                if let Some(link) = node.link.take() {
                    self.event(Event::LinkClosed { link });
                }
            }
            Step::Connect(node) => self.connect(node),
            Step::Time => {
                self.seconds += 61;
                self.event(Event::Tick);
            }
            Step::Domains(first, second) => {
                if self.domains {
                    self.machine = machine_of([first, second]);
                    self.event(Event::Machine(Box::new(self.machine.clone())));
                }
            }
            Step::Crash => self.crash(),
            Step::Copy => {
                self.copy = Some(self.kept.clone());
                // From here on the two are told apart.
                self.crash();
            }
            Step::OldCopy(call) => {
                if let Some(copy) = self.copy.clone() {
                    self.kept = copy;
                    self.crash();
                    (0..NODES).filter(|_| call).for_each(|number| self.connect(number));
                }
            }
            Step::EmptyStore(call) => {
                self.stores += 1;
                self.kept = Kept { id: self.stores, ..Kept::default() };
                self.crash();
                (0..NODES).filter(|_| call).for_each(|number| self.connect(number));
            }
            Step::Adopt(node) => self.manage(Manage::Adopt, node),
            Step::Purge(node) => self.manage(Manage::Purge, node),
            Step::Order(node, to) => self.order(node, to),
            Step::Flavors(node, to) => self.flavors(node, to),
            Step::Hold(i, hold) => {
                let apids = [self.pick(i)].into();
                self.event(Event::Hold { reply: ReplyId(0), apids, hold, by: By::default() });
            }
        }
    }

    fn order(&mut self, node: u32, to: NodesTo) {
        let (reply, nids, reason) = (ReplyId(0), [Nid(node)].into(), String::new());
        self.event(Event::Nodes { reply, to, nids, reason, by: By::default() });
    }

    fn flavors(&mut self, node: u32, to: Option<Flavors>) {
        let (reply, nids, by) = (ReplyId(0), [Nid(node)].into(), By::default());
        self.event(Event::Flavors { reply, nids, to, by });
    }

    fn hear(&mut self, number: usize) {
        let node = &mut self.nodes[number];
        if let (Some(link), Some(report)) = (node.link, node.reports.pop_front()) {
            node.heard.push(report.clone());
            self.event(Event::Report { link, report: Box::new(report) });
        }
    }

    fn connect(&mut self, number: u32) {
        let node = &mut self.nodes[number as usize];
        if node.link.is_some() {
            return;
        }
        self.links += 1;
        let link = LinkId(self.links);
        node.link = Some(link);
        self.event(Event::LinkOpened { link, hello: hello(&[number]) });
        let node = &mut self.nodes[number as usize];
        (node.foreign, node.purging) = (false, false);
        let stranger = node
            .obeys
            .is_some_and(|(id, start)| id != self.kept.id || !self.kept.starts.contains(&start));
        if !stranger {
            self.obey(number as usize);
            return;
        }
        node.foreign = true;
        // To the other psched.
        node.reports.clear();
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
    fn obey(&mut self, number: usize) {
        // What it has said before comes before its inventory.
        while self.nodes[number].foreign && !self.nodes[number].reports.is_empty() {
            self.hear(number);
        }
        let node = &mut self.nodes[number];
        let Some(link) = node.link else { return };
        (node.foreign, node.purging) = (false, false);
        if node.obeys.is_none_or(|(id, _)| id != self.kept.id) {
            node.heard.clear();
        }
        node.obeys = Some((self.kept.id, self.starts));
        let items = node.held.iter().map(|(key, held)| (*key, held.phase())).collect();
        for held in node.held.values() {
            if let Held::Ended(_, end) = held {
                node.reports.push_back(Report::Ended(end.clone()));
            }
        }
        self.event(Event::Inventory { link, items });
    }

    fn manage(&mut self, what: Manage, node: Option<u32>) {
        let nids: BTreeSet<Nid> = match node {
            Some(node) => [Nid(node)].into(),
            None => (0..NODES).map(Nid).collect(),
        };
        let mut used = self.scheduler.foreign_apids(&nids);
        used.retain(|a| self.kept.saved.get(a).is_some_and(|t| t.state == State::Ended));
        let (reply, by, administrator) = (ReplyId(0), By::default(), true);
        self.event(Event::Manage { reply, what, nids, by, administrator, used });
    }

    /// Launches, with whatever placement its nodes still hold: a front end may be late.
    fn launch(&mut self, apid: Apid) {
        let held = self.nodes.iter().flat_map(|n| &n.held).find_map(|(key, held)| match held {
            Held::Placed(place) if key.apid == apid => Some((*key, place.clone())),
            _ => None,
        });
        let Some((key, place)) = held else { return };
        let nids: Vec<Nid> = place.places.nids().collect();
        let placed =
            |n: &Nid| matches!(self.nodes[n.0 as usize].held.get(&key), Some(Held::Placed(_)));
        if nids.is_empty() || !nids.iter().all(placed) {
            return;
        }
        for nid in nids {
            let node = &mut self.nodes[nid.0 as usize];
            if let Some(Held::Placed(place)) = node.held.get(&key).cloned() {
                node.held.insert(key, Held::Running(place));
                if node.foreign {
                    continue;
                }
                node.reports.push_back(Report::Launched(key));
                node.reports.push_back(Report::Running(key));
            }
        }
    }

    fn finish(&mut self, apid: Apid, number: usize) {
        let node = &mut self.nodes[number];
        let key = node.held.iter().find(|(k, h)| k.apid == apid && matches!(h, Held::Running(_)));
        if let Some(key) = key.map(|(k, _)| *k) {
            end_on(node, number, key, None);
        }
    }

    fn deliver(&mut self, number: usize) {
        let node = &mut self.nodes[number];
        let Some(command) = node.commands.pop_front() else { return };
        if node.foreign {
            return self.stranger_says(number, command);
        }
        match command {
            Command::Place(place) => {
                node.held.entry(place.key).or_insert(Held::Placed(place));
            }
            Command::TakeBack(key) => match node.held.get(&key) {
                None | Some(Held::Placed(_)) => {
                    node.held.remove(&key);
                    node.reports.push_back(Report::TakenBack(key));
                }
                Some(Held::Running(_)) => node.reports.push_back(Report::Launched(key)),
                Some(Held::Ended(_, end)) => {
                    node.reports.push_back(Report::Ended(end.clone()));
                }
            },
            Command::Terminate { key, cause, .. } => {
                if matches!(node.held.get(&key), Some(Held::Placed(_) | Held::Running(_))) {
                    end_on(node, number, key, Some(cause));
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
        }
    }

    fn stranger_says(&mut self, number: usize, command: Command) {
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
                        _ => end_on(node, number, key, Some(Cause::Purge { uid })),
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

    /// psched dies: what was saved is all that is left, and all links break.
    fn crash(&mut self) {
        for node in &mut self.nodes {
            node.link = None;
            node.commands.clear();
            node.reports.clear();
        }
        let records: Vec<Apteam> = self.kept.saved.values().cloned().collect();
        let newest = records.iter().map(|t| t.apid.0 + 1).max().unwrap_or(1);
        self.starts += 1;
        self.kept.starts.insert(self.starts);
        let (scheduler, effects) = Scheduler::restore(
            self.machine.clone(),
            self.scheduler.settings().clone(),
            records,
            BTreeMap::new(),
            self.kept.orders.clone(),
            newest,
            self.now(),
        );
        self.scheduler = scheduler;
        self.effects(effects);
    }

    /// A place that has just been given is on no node that is closed, and nobody's who is held; its nodes are
    /// neighbours, but for one that is flexible.
    fn check_place(&self, team: &Apteam) {
        let before = self.kept.saved.get(&team.apid).map_or(0, |known| known.incarnation.0);
        if team.state == State::Placed && team.incarnation.0 > before {
            assert!(team.held.is_none(), "{} is held", team.apid);
            let neighbours = team.places.is_contiguous();
            assert!(neighbours || team.posting.flexible, "{} is in pieces", team.apid);
            let Orders { closed, flavors } = &self.kept.orders;
            let shut = |nid: Nid| {
                let ap = flavors.get(&nid).is_none_or(|order| order.flavors.has(Flavor::Ap));
                closed.contains_key(&nid) || !ap
            };
            assert!(!team.places.nids().any(shut), "{} is on a closed node", team.apid);
            let on_its_nodes = |other: &&Apteam| {
                other.state.holds_processors()
                    && other.places.nids().any(|nid| team.places.nids().any(|own| own == nid))
            };
            for other in self.scheduler.teams().filter(on_its_nodes) {
                let (of, with) = (&team.domain, &other.domain);
                assert_eq!(of, with, "{} is placed beside {}", team.apid, other.apid);
            }
        }
    }

    fn check(&self) {
        for (number, node) in self.nodes.iter().enumerate() {
            let mut taken: BTreeMap<u32, u32> = BTreeMap::new();
            for (key, held) in &node.held {
                let Held::Running(place) = held else { continue };
                for place in place.places.0.iter().filter(|p| p.nid.0 as usize == number) {
                    for processor in &place.processors {
                        let holders = taken.entry(*processor).or_default();
                        *holders += 1;
                        let most = self.scheduler.settings().turns.max_resident;
                        assert!(
                            *holders <= most,
                            "processor {processor} of {number}: {key} is the {holders}th"
                        );
                    }
                }
            }
        }
        assert!(self.kept.ended.values().all(|n| *n == 1), "ended twice: {:?}", self.kept.ended);
    }

    /// Everything is delivered, everybody finishes, silent front ends look again.
    fn settle(&mut self) {
        // Without regions every posting has room.
        self.step(Step::Domains(0, 0));
        for _ in 0..2_000 {
            self.manage(Manage::Purge, None);
            for number in 0..NODES {
                self.order(number, NodesTo::Resume);
                self.flavors(number, None);
                self.connect(number);
                while !self.nodes[number as usize].commands.is_empty() {
                    self.deliver(number as usize);
                }
                while !self.nodes[number as usize].reports.is_empty() {
                    self.step(Step::Hear(number));
                }
            }
            let live: Vec<Apid> = self.scheduler.teams().map(|t| t.apid).collect();
            if live.is_empty() && self.nodes.iter().all(|n| n.held.is_empty()) {
                return;
            }
            for apid in live {
                let apids = [apid].into();
                let (reply, by) = (ReplyId(0), By::default());
                self.event(Event::Hold { reply, apids, hold: false, by });
                self.event(Event::Looked { reply: ReplyId(0), apid });
                self.launch(apid);
                for number in 0..NODES as usize {
                    self.finish(apid, number);
                }
            }
            self.check();
            if self.scheduler.teams().all(|t| t.state == State::TakingBack) {
                self.step(Step::Time);
            }
        }
        let left: Vec<_> = self.scheduler.teams().map(|t| (t.key(), t.state)).collect();
        let held: Vec<_> = self.nodes.iter().map(|n| &n.held).collect();
        panic!("it does not come to rest: {left:?}, {held:?}");
    }
}

/// Each node in a region and a domain of its own, or both in none.
fn machine_of(domains: [u32; 2]) -> Machine {
    let mut machine = machine(NODES, PROCESSORS);
    if domains[0] != domains[1] {
        let region = |(nid, domain): (u32, u32)| Region {
            name: format!("region-{nid}"),
            domain: format!("domain-{domain}"),
            members: Members::Nids([Nid(nid)].into()),
            gate: Default::default(),
        };
        machine.regions = (0..).zip(domains).map(region).collect();
    }
    machine
}

/// By itself, or for this reason.
fn end_on(node: &mut Node, number: usize, key: Key, cause: Option<Cause>) {
    let Some(held) = node.held.get(&key) else { return };
    let (place, launched) = (Box::new(held.place().clone()), held.ran());
    let first = cause.map(|cause| Decisive { at_ns: 0, cause });
    let nids = vec![Nid(number as u32)];
    let end = Box::new(HostEnd { key, nids, launched, first, ..HostEnd::default() });
    node.held.insert(key, Held::Ended(place, end.clone()));
    if node.foreign && !node.purging {
        return;
    }
    node.reports.push_back(Report::Ended(end));
}

fn history(steps: Vec<Step>) {
    history_of(1, false, steps);
}

fn history_of(max_resident: u32, domains: bool, steps: Vec<Step>) {
    let mut world = World::new(max_resident, domains);
    for number in 0..NODES {
        world.connect(number);
    }
    for step in steps {
        world.step(step);
        world.check();
    }
    world.settle();
    assert_eq!(world.kept.ended.keys().copied().collect::<BTreeSet<_>>(), world.kept.accepted);
}

fn post(width: u32) -> Step {
    Step::Post { width, flexible: false }
}

/// What random histories have found.
#[test]
fn an_old_copy_places_anew_what_an_adopted_node_lacks() {
    use Step::*;
    history(vec![post(3), Copy, Connect(0), Hear(0), OldCopy(true), Adopt(None)]);
}

/// The end of a purged part concerned the rest, whose node was foreign still.
#[test]
fn what_ends_in_a_purge_is_not_said_to_a_foreign_node() {
    use Step::*;
    history(vec![
        Crash,
        post(3),
        post(3),
        Copy,
        post(1),
        post(1),
        OldCopy(true),
        post(1),
        Adopt(None),
        Deliver(0),
        Deliver(1),
        Copy,
        post(1),
        OldCopy(true),
        OldCopy(true),
    ]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_history_comes_to_rest(steps in proptest::collection::vec(step(), 1..160)) {
        history(steps);
    }

    #[test]
    fn every_history_of_those_who_share_comes_to_rest(
        max_resident in 2u32..5,
        steps in proptest::collection::vec(step(), 1..160)
    ) {
        history_of(max_resident, false, steps);
    }

    #[test]
    fn every_history_of_domains_comes_to_rest(
        max_resident in 1u32..4,
        steps in proptest::collection::vec(step(), 1..160)
    ) {
        history_of(max_resident, true, steps);
    }
}
