//! Random histories: the scheduler against nodes that lose, delay and repeat.
//!
//! Each node is a small honest model: it holds what it was told to hold, launches when a front end
//! comes, and repeats its last words until they are acknowledged. Commands and reports wait in
//! queues from which the history takes them in its own time; a link may break at any moment, which
//! loses both queues. psched may be killed and restored from its last saved records. Looked at
//! after every step: no processor is held twice, on any node; nothing that has ended is told to
//! end twice. Looked at once everything has come to rest: each accepted posting has ended, once,
//! and no node holds anything.

use super::tests::{hello, machine, posted};
use super::*;
use crate::apteam::place::PlacementList;
use crate::apteam::talk::node::PlaceCommand;
use proptest::prelude::*;
use std::collections::VecDeque;

const NODES: u32 = 2;
const PROCESSORS: u32 = 2;

#[derive(Clone, Debug)]
enum Step {
    Post {
        width: u32,
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
    /// A report that was heard before comes again.
    HearAgain(u32, usize),
    Break(u32),
    Connect(u32),
    Time,
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    let any = 0..8usize;
    let node = 0..NODES;
    prop_oneof![
        4 => (1..=NODES * PROCESSORS).prop_map(|width| Step::Post { width }),
        1 => any.clone().prop_map(Step::FrontGone),
        2 => any.clone().prop_map(Step::Look),
        2 => (any.clone(), prop_oneof![Just(0), Just(9), Just(10)]).prop_map(|(a, s)| Step::Kill(a, s)),
        6 => any.clone().prop_map(Step::Launch),
        6 => (any, node.clone()).prop_map(|(a, n)| Step::Finish(a, n)),
        6 => node.clone().prop_map(Step::Deliver),
        6 => node.clone().prop_map(Step::Hear),
        3 => (node.clone(), 0..64usize).prop_map(|(n, i)| Step::HearAgain(n, i)),
        2 => node.clone().prop_map(Step::Break),
        3 => node.prop_map(Step::Connect),
        2 => Just(Step::Time),
        1 => Just(Step::Crash),
    ]
}

#[derive(Clone, Debug, PartialEq)]
enum Held {
    Placed(PlacementList),
    Running(PlacementList),
    Ended(HostEnd),
}

#[derive(Default)]
struct Node {
    link: Option<LinkId>,
    held: BTreeMap<Key, Held>,
    commands: VecDeque<Command>,
    reports: VecDeque<Report>,
    heard: Vec<Report>,
}

struct World {
    scheduler: Scheduler,
    saved: BTreeMap<Apid, Apteam>,
    nodes: Vec<Node>,
    seconds: u64,
    postings: u8,
    accepted: BTreeSet<Apid>,
    ended: BTreeMap<Apid, u32>,
    links: u64,
}

impl World {
    fn new() -> World {
        World {
            scheduler: Scheduler::new(machine(NODES, PROCESSORS), Settings::default()),
            saved: BTreeMap::new(),
            nodes: (0..NODES).map(|_| Node::default()).collect(),
            seconds: 1,
            postings: 0,
            accepted: BTreeSet::new(),
            ended: BTreeMap::new(),
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
                    if team.state == State::Ended {
                        *self.ended.entry(team.apid).or_default() += 1;
                    }
                    self.saved.insert(team.apid, *team);
                }
                Effect::Accept { apid, .. } => {
                    self.accepted.insert(apid);
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
            Step::Post { width } => {
                if self.postings < 200 {
                    self.postings += 1;
                    self.event(posted(self.postings, width));
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
            Step::Crash => self.crash(),
        }
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
        let items = node
            .held
            .iter()
            .map(|(key, held)| {
                let phase = match held {
                    Held::Placed(_) => Phase::Placed,
                    Held::Running(_) => Phase::Running,
                    Held::Ended(_) => Phase::Ended,
                };
                (*key, phase)
            })
            .collect();
        for held in node.held.values() {
            if let Held::Ended(end) = held {
                node.reports.push_back(Report::Ended(Box::new(end.clone())));
            }
        }
        self.event(Event::LinkOpened { link, hello: hello(&[number]) });
        self.event(Event::Inventory { link, items });
    }

    /// Launches, with whatever placement its nodes still hold: a front end may be late.
    fn launch(&mut self, apid: Apid) {
        let held = self.nodes.iter().flat_map(|n| &n.held).find_map(|(key, held)| match held {
            Held::Placed(list) if key.apid == apid => Some((*key, list.clone())),
            _ => None,
        });
        let Some((key, list)) = held else { return };
        let nids: Vec<Nid> = list.nids().collect();
        let placed =
            |n: &Nid| matches!(self.nodes[n.0 as usize].held.get(&key), Some(Held::Placed(_)));
        if nids.is_empty() || !nids.iter().all(placed) {
            return;
        }
        for nid in nids {
            let node = &mut self.nodes[nid.0 as usize];
            if let Some(Held::Placed(list)) = node.held.get(&key).cloned() {
                node.held.insert(key, Held::Running(list));
                node.reports.push_back(Report::Launched(key));
                node.reports.push_back(Report::Running(key));
            }
        }
    }

    fn finish(&mut self, apid: Apid, number: usize) {
        let node = &mut self.nodes[number];
        let key = node.held.iter().find(|(k, h)| k.apid == apid && matches!(h, Held::Running(_)));
        if let Some(key) = key.map(|(k, _)| *k) {
            end_on(node, number, key);
        }
    }

    fn deliver(&mut self, number: usize) {
        let node = &mut self.nodes[number];
        let Some(command) = node.commands.pop_front() else { return };
        match command {
            Command::Place(place) => {
                let PlaceCommand { key, places, .. } = *place;
                node.held.entry(key).or_insert(Held::Placed(places));
            }
            Command::TakeBack(key) => match node.held.get(&key) {
                None | Some(Held::Placed(_)) => {
                    node.held.remove(&key);
                    node.reports.push_back(Report::TakenBack(key));
                }
                Some(Held::Running(_)) => node.reports.push_back(Report::Launched(key)),
                Some(Held::Ended(end)) => {
                    node.reports.push_back(Report::Ended(Box::new(end.clone())));
                }
            },
            Command::Terminate { key, .. } => {
                if matches!(node.held.get(&key), Some(Held::Placed(_) | Held::Running(_))) {
                    end_on(node, number, key);
                }
            }
            Command::AcknowledgeEnd(key) => {
                if matches!(node.held.get(&key), Some(Held::Ended(_))) {
                    node.held.remove(&key);
                }
            }
            Command::Discard(key) => {
                node.held.remove(&key);
            }
            Command::Signal { .. } => {}
        }
    }

    /// psched dies: what was saved is all that is left, and all links break.
    fn crash(&mut self) {
        for node in &mut self.nodes {
            node.link = None;
            node.commands.clear();
            node.reports.clear();
        }
        let records: Vec<Apteam> = self.saved.values().cloned().collect();
        let newest = records.iter().map(|t| t.apid.0 + 1).max().unwrap_or(1);
        let (scheduler, effects) = Scheduler::restore(
            machine(NODES, PROCESSORS),
            Settings::default(),
            records,
            BTreeMap::new(),
            newest,
            self.now(),
        );
        self.scheduler = scheduler;
        self.effects(effects);
    }

    fn check(&self) {
        for (number, node) in self.nodes.iter().enumerate() {
            let mut taken = BTreeSet::new();
            for (key, held) in &node.held {
                let Held::Running(list) = held else { continue };
                for place in list.0.iter().filter(|p| p.nid.0 as usize == number) {
                    for processor in &place.processors {
                        assert!(
                            taken.insert(*processor),
                            "processor {processor} of {number} twice: {key}"
                        );
                    }
                }
            }
        }
        assert!(self.ended.values().all(|n| *n == 1), "ended twice: {:?}", self.ended);
    }

    /// Everything is delivered, everybody finishes, silent front ends look again.
    fn settle(&mut self) {
        for _ in 0..2_000 {
            for number in 0..NODES {
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

fn end_on(node: &mut Node, number: usize, key: Key) {
    let end = HostEnd { key, nids: vec![Nid(number as u32)], ..HostEnd::default() };
    node.held.insert(key, Held::Ended(end.clone()));
    node.reports.push_back(Report::Ended(Box::new(end)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_history_comes_to_rest(steps in proptest::collection::vec(step(), 1..160)) {
        let mut world = World::new();
        for number in 0..NODES {
            world.connect(number);
        }
        for step in steps {
            world.step(step);
            world.check();
        }
        world.settle();
        prop_assert_eq!(world.ended.keys().copied().collect::<BTreeSet<_>>(), world.accepted);
    }
}
