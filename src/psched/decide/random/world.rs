//! psched, its stores and its nodes, and what is looked at after every step.

use super::node::{Held, Node};
use super::steps::Step;
use super::{NODES, PROCESSORS};
use crate::apteam::change::{By, Orders};
use crate::apteam::protocol::node::Restart;
use crate::apteam::record::{Apteam, State};
use crate::apteam::{Apid, Incarnation, Key};
use crate::machine::{Flavor, Flavors, Machine, Members, Nid, Region};
use crate::placement::packing::SITS_MAX;
use crate::psched::decide::tests::{machine, posted, sharing};
use crate::psched::decide::{
    Abilities, Effect, Event, Manage, NodesTo, Now, Origin, Partial, Record, ReplyId, RollsOut,
    Scheduler, Turns,
};
use crate::variables::APPLICATION;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long an application that is restored from a checkpoint had run.
const RESTARTED_AFTER: Duration = Duration::from_secs(5);

/// Which scheduler, and which nodes.
#[derive(Clone, Debug)]
pub(super) struct Kind {
    pub max_resident: u32,
    /// psched.yaml may give the nodes to domains.
    pub domains: bool,
    /// Those who wait have a part of each slice.
    pub floors: bool,
    /// Running applications are moved, and all nodes are offered by one apinit. Else each node has an apinit.
    pub moves: bool,
    /// Nodes bring memory to swap.
    pub swaps: bool,
}

impl Default for Kind {
    /// Nobody shares, or moves.
    fn default() -> Kind {
        Kind { max_resident: 1, domains: false, floors: true, moves: false, swaps: false }
    }
}

/// A store, and what is known of its applications.
#[derive(Clone, Default)]
pub(super) struct Kept {
    pub id: u32,
    /// The starts of psched that led to this, by numbers that no other start has, each with the
    /// commits before it.
    pub starts: BTreeMap<u64, u64>,
    /// Commits so far.
    pub commits: u64,
    pub saved: BTreeMap<Apid, Apteam>,
    pub accepted: BTreeSet<Apid>,
    pub ended: BTreeMap<Apid, u32>,
    pub orders: Orders,
}

pub(super) struct World {
    pub scheduler: Scheduler,
    pub machine: Machine,
    /// psched.yaml may give the nodes to domains.
    pub domains: bool,
    /// Running applications are moved.
    pub moves: bool,
    /// Nodes bring memory to swap.
    pub swaps: bool,
    pub kept: Kept,
    pub copy: Option<Kept>,
    pub stores: u32,
    /// Starts of psched so far.
    pub starts: u64,
    pub nodes: Vec<Node>,
    pub seconds: u64,
    pub postings: u8,
    pub links: u64,
}

impl World {
    pub fn new(kind: &Kind) -> World {
        let Kind { max_resident, domains, floors, moves, swaps } = *kind;
        let (mut machine, mut settings) = (machine(NODES, PROCESSORS), sharing(max_resident));
        settings.turns.floors = floors;
        if moves {
            settings.abilities = Abilities { moves: true, says: true, roll_out: RollsOut::Never };
            machine.regions = vec![all_in_one()];
        }
        if swaps {
            settings.abilities.roll_out = RollsOut::AtHome;
        }
        if domains {
            // Domain 1 has no floors; 0 and 2 may have some.
            let turns = &settings.turns;
            let without = Turns { floors: false, ..turns.clone() };
            let domains = [("domain-0", turns.clone()), ("domain-1", without)];
            settings.domains = domains.map(|(name, turns)| (name.to_owned(), turns)).into();
        }
        World {
            scheduler: Scheduler::new(machine.clone(), settings),
            machine,
            domains,
            moves,
            swaps,
            kept: Kept { id: 1, starts: [(1, 0)].into(), ..Kept::default() },
            copy: None,
            stores: 1,
            starts: 1,
            nodes: match moves {
                true => vec![Node::new(&[0, 1, 2])],
                false => (0..NODES).map(|nid| Node::new(&[nid])).collect(),
            },
            seconds: 1,
            postings: 0,
            links: 0,
        }
    }

    pub fn now(&self) -> Now {
        Now { mono_ns: self.seconds * 1_000_000_000, wall_ns: self.seconds }
    }

    pub fn event(&mut self, event: Event) {
        let effects = self.scheduler.apply(self.now(), event);
        self.effects(effects);
    }

    pub fn effects(&mut self, effects: Vec<Effect>) {
        let saves =
            |effect: &Effect| matches!(effect, Effect::Keep(record) if record.team().is_some());
        self.kept.commits += u64::from(effects.iter().any(saves));
        for effect in effects {
            match effect {
                Effect::Keep(Record::Posted(team) | Record::Update { team, .. }) => {
                    self.check_place(&team);
                    if team.state == State::Posted {
                        // (One that waited has its number again, and may end once more.)
                        self.kept.ended.remove(&team.apid);
                    }
                    if team.state == State::Ended {
                        *self.kept.ended.entry(team.apid).or_default() += 1;
                    }
                    self.kept.saved.insert(team.apid, *team);
                }
                Effect::Keep(Record::Adopted(team)) => {
                    self.kept.accepted.insert(team.apid);
                    self.kept.saved.insert(team.apid, *team);
                }
                Effect::Keep(Record::Nodes(nids, order)) => {
                    for nid in nids {
                        match &order {
                            Some(order) => {
                                drop(self.kept.orders.closed.insert(nid, (**order).clone()))
                            }
                            None => drop(self.kept.orders.closed.remove(&nid)),
                        }
                    }
                }
                Effect::Keep(Record::Flavors(nids, order)) => {
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
                        node.commands.push_back((self.kept.commits, command));
                    }
                }
                _ => {}
            }
        }
    }

    /// A live application, or one of none.
    pub fn pick(&self, index: usize) -> Apid {
        let live: Vec<Apid> = self.scheduler.teams().map(|t| t.apid).collect();
        live.get(index % live.len().max(1)).copied().unwrap_or(Apid(999))
    }

    pub fn step(&mut self, step: Step) {
        let hosts = self.nodes.len();
        let host = |node: u32| node as usize % hosts;
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
            Step::Restart { width, parts, again } => {
                self.restart(width, parts, again.map(Apid));
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
                self.finish(apid, host(node));
            }
            Step::Deliver(node) => {
                while !self.nodes[host(node)].commands.is_empty() {
                    self.deliver(host(node));
                }
            }
            Step::Hear(node) => {
                self.hear(host(node));
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
                let node = &self.nodes[host(node)];
                let again = node.heard.iter().rev().nth(index % node.heard.len().max(1)).cloned();
                if let (Some(link), Some(report)) = (node.link, again) {
                    self.event(Event::Report { link, report: Box::new(report) });
                }
            }
            Step::Break(node) => {
                let node = &mut self.nodes[host(node)];
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
                    if self.moves && first == second {
                        self.machine.regions = vec![all_in_one()];
                    }
                    self.event(Event::Machine(Box::new(self.machine.clone())));
                }
            }
            Step::Crash => self.crash(),
            Step::Copy => {
                self.copy = Some(self.kept.clone());
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
            Step::Migrate(i, nids) => {
                let (reply, apid, by) = (ReplyId(0), self.pick(i), By::default());
                let nids = nids.map(|nids| nids.into_iter().map(Nid).collect());
                self.event(Event::Migrate { reply, apid, nids, dry_run: false, by });
            }
            Step::Compact => {
                let (reply, region, by) = (ReplyId(0), all_in_one().name, By::default());
                self.event(Event::Compact { reply, region, dry_run: false, by });
            }
            Step::Arrive(node, fails) => self.nodes[host(node)].arrive(fails),
            Step::Begin(width) => self.begin(width),
            Step::Swap(node, goes, can) => self.swap(node, goes, can),
            Step::Switch(node, measure) => {
                let now = Duration::from_secs(self.seconds);
                self.nodes[host(node)].switch(now, &measure);
            }
        }
    }

    /// `cpr -r`: of one that ran, or of one that waited.
    fn restart(&mut self, width: u32, parts: u32, again: Option<Apid>) {
        if self.postings >= 200 {
            return;
        }
        self.postings += 1;
        // Where an apinit has several nodes it would wait for ever.
        let each = self.nodes.len() == NODES as usize;
        let parts = if again.is_none() && parts > 1 && each { parts } else { 0 };
        let event = posted(self.postings, if parts > 0 { parts } else { width });
        let Event::Posted { reply, mut posting, owner, front, secret } = event else {
            unreachable!()
        };
        let from = Key { apid: Apid(900), incarnation: Incarnation(1) };
        let origin = match again {
            None => {
                if parts > 0 {
                    posting.shape.per_node = Some(1);
                }
                let parts = vec![1; parts as usize];
                Origin::Running(Restart { from, run: RESTARTED_AFTER, parts })
            }
            Some(apid) => {
                let known = self.kept.saved.get(&apid);
                let its = known.filter(|t| t.state == State::Ended && t.running_at_ns == 0);
                Origin::Waiting { apid, free: its.map(|team| team.incarnation) }
            }
        };
        self.event(Event::Restarted { reply, posting, owner, front, secret, origin });
    }

    pub fn order(&mut self, node: u32, to: NodesTo) {
        let (reply, nids, reason) = (ReplyId(0), [Nid(node)].into(), String::new());
        self.event(Event::Nodes { reply, to, nids, reason, by: By::default() });
    }

    pub fn flavors(&mut self, node: u32, to: Option<Flavors>) {
        let (reply, nids, by) = (ReplyId(0), [Nid(node)].into(), By::default());
        self.event(Event::Flavors { reply, nids, to, by });
    }

    /// psched dies: what was saved is all that is left, and all links break.
    pub fn crash(&mut self) {
        for node in &mut self.nodes {
            node.link = None;
            node.commands.clear();
            node.reports.clear();
        }
        let records: Vec<Apteam> = self.kept.saved.values().cloned().collect();
        let newest = records.iter().map(|t| t.apid.0 + 1).max().unwrap_or(1);
        self.starts += 1;
        self.kept.starts.insert(self.starts, self.kept.commits);
        self.kept.commits += 1;
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
        self.scheduler.started(self.starts, &self.starts.to_string());
        self.effects(effects);
    }

    /// A place that has just been given is on no node that is closed, and nobody's who is held; its nodes are
    /// neighbours, but for one that is flexible.
    pub fn check_place(&self, team: &Apteam) {
        self.check_move(team);
        let before = self.kept.saved.get(&team.apid).map_or(0, |known| known.incarnation.0);
        if team.state == State::Placed && team.incarnation.0 > before {
            assert!(team.held.is_none(), "{} is held", team.apid);
            let neighbours = team.places.is_contiguous();
            assert!(neighbours || team.posting.flexible, "{} is in pieces", team.apid);
            if let Some(Restart { parts, .. }) = &team.restart {
                let own = team.hosts.iter().map(|host| host.nids.len() as u32);
                let own: Vec<u32> = own.filter(|_| !parts.is_empty()).collect();
                let whole = parts.is_empty() && team.hosts.len() == 1;
                assert!(whole || own == *parts, "{} is to be restored on others", team.apid);
            }
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

    /// Nobody is told to go to a node that is closed, nor into pieces, nor beside somebody of another domain.
    fn check_move(&self, team: &Apteam) {
        let told_before = self.kept.saved.get(&team.apid).map_or(0, |known| known.moves.told);
        let Some(to) = team.moves.to.as_ref().filter(|_| team.moves.told > told_before) else {
            return;
        };
        assert!(to.is_contiguous(), "{} goes into pieces", team.apid);
        let new = to.nids().filter(|nid| team.places.nids().all(|own| own != *nid));
        let closed = &self.kept.orders.closed;
        let shut: Vec<Nid> = new.filter(|nid| closed.contains_key(nid)).collect();
        assert!(shut.is_empty(), "{} goes to {shut:?}, which are closed", team.apid);
        let there = |other: &&Apteam| {
            other.state.holds_processors()
                && other.places.nids().any(|nid| to.nids().any(|own| own == nid))
        };
        for other in self.scheduler.teams().filter(there) {
            let (of, with) = (&team.domain, &other.domain);
            assert_eq!(of, with, "{} goes beside {}", team.apid, other.apid);
        }
    }

    pub fn check(&self) {
        for node in &self.nodes {
            let mut taken: BTreeMap<(Nid, u32), u32> = BTreeMap::new();
            for (key, held) in &node.held {
                let Held::Running(place) = held else { continue };
                let all = match node.moving.get(key) {
                    Some(order) => place.places.and(&order.places),
                    None => place.places.clone(),
                };
                for place in all.0.iter().filter(|p| node.offers(p.nid)) {
                    let number = place.nid;
                    for processor in &place.processors {
                        let holders = taken.entry((number, *processor)).or_default();
                        *holders += 1;
                        let most = match self.swaps {
                            true => SITS_MAX.into(),
                            false => self.scheduler.settings().turns.max_resident,
                        };
                        assert!(
                            *holders <= most,
                            "processor {processor} of {number}: {key} is the {holders}th"
                        );
                    }
                }
            }
        }
        self.check_swap();
        self.check_measured();
        assert!(self.scheduler.levels_are_of_their_domains(), "somebody is of two domains");
        assert!(self.kept.ended.values().all(|n| *n == 1), "ended twice: {:?}", self.kept.ended);
    }

    /// Nobody runs by the last decision whose memory is to be out.
    fn check_swap(&self) {
        for team in self.scheduler.teams() {
            let out = self.scheduler.in_swap(team.apid).is_some();
            assert!(!out || self.swaps, "{} is out", team.apid);
            let runs = self.scheduler.runs_by_decision(team.apid);
            assert!(!(out && runs), "{} runs, and is to be out", team.apid);
            assert!(!out || team.state == State::Running, "{} is out", team.key());
        }
    }

    /// What nodes have measured is of applications that are there: their reports may be late, and
    /// none has run for longer than there was time.
    fn check_measured(&self) {
        let (measured, now) = (self.scheduler.measured(), self.now());
        for apid in self.kept.saved.keys().filter(|apid| self.scheduler.team(**apid).is_none()) {
            let nothing = measured.peaks(*apid).next().is_none() && measured.bringing(*apid) == 0;
            assert!(nothing, "{apid} has ended and is measured");
            assert_eq!(measured.partial(*apid), Partial::default(), "{apid} has ended");
        }
        for team in self.scheduler.teams() {
            let most = RESTARTED_AFTER + Duration::from_nanos(now.mono_ns);
            let attained = self.scheduler.attained(team.apid, now.mono_ns);
            assert!(attained <= most, "{} has run for {attained:?} of {most:?}", team.key());
            let memory = self.scheduler.memory(team.apid).map(|(_, bytes)| bytes);
            assert!(memory.max() <= Some(1 << 30), "{} has more memory than a node", team.key());
        }
    }

    /// All that is to be said between psched and this node is said.
    fn exchange(&mut self, number: u32) {
        let at = number as usize % self.nodes.len();
        for _ in 0..1_000 {
            let node = &mut self.nodes[at];
            if node.commands.is_empty() && node.reports.is_empty() && node.moving.is_empty() {
                return;
            }
            node.arrive(false);
            while !self.nodes[at].commands.is_empty() {
                self.deliver(at);
            }
            while !self.nodes[at].reports.is_empty() {
                self.hear(at);
            }
            self.check();
        }
        panic!("psched and its node go on talking: {:?}", self.nodes[at].commands);
    }

    /// Who runs is where his record says, once all has been said.
    fn check_agreement(&self) {
        for node in self.nodes.iter().filter(|node| self.moves && !node.foreign) {
            for (key, held) in &node.held {
                let Some(team) = self.scheduler.team(key.apid) else { continue };
                let Held::Running(place) = held else { continue };
                assert_eq!(team.moves.to, None, "the move of {key} was not answered");
                assert_eq!(team.places, place.places, "where {key} is");
                assert!(team.moves.told >= place.moved.number, "moves of {key}");
            }
        }
    }

    /// Everything is delivered, everybody finishes, silent front ends look again.
    pub fn settle(&mut self) {
        // Without regions every posting has room.
        self.step(Step::Domains(0, 0));
        for round in 1..=2_000 {
            self.manage(Manage::Purge, None);
            for number in 0..NODES {
                self.order(number, NodesTo::Resume);
                self.flavors(number, None);
                self.connect(number);
                self.exchange(number);
            }
            self.check_agreement();
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
                for number in 0..self.nodes.len() {
                    self.finish(apid, number);
                }
            }
            self.check();
            // (A node may keep a placement of another psched under the same key, so that the ticket of
            // this one lapses.)
            if round % 50 == 0 || self.scheduler.teams().all(|t| t.state == State::TakingBack) {
                self.step(Step::Time);
            }
        }
        let left: Vec<_> = self.scheduler.teams().map(|t| (t.key(), t.state)).collect();
        let held: Vec<_> = self.nodes.iter().map(|n| &n.held).collect();
        panic!("it does not come to rest: {left:?}, {held:?}");
    }
}

/// A region of all nodes.
fn all_in_one() -> Region {
    Region {
        name: "all".to_owned(),
        domain: APPLICATION.to_owned(),
        members: Members::Nids((0..NODES).map(Nid).collect()),
        gate: Default::default(),
    }
}

/// Each node in a region and a domain of its own, or both in none.
pub(super) fn machine_of(domains: [u32; 2]) -> Machine {
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
