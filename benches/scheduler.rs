//! What a decision of the bare scheduler costs: no clock, no record, no message, only
//! `Scheduler::apply`, to which events are given as nodes that do all at once would give them.
//!
//! `cargo bench --bench scheduler [-- NAME...]`, with names of the first column.
//!
//! *line*: 1,524 nodes of one processor, up to eight gangs on each, and gangs from one processor wide to
//! all of them: the recorded workloads. The others: 100 to 100,000 nodes of 16 processors with up to
//! four gangs, one gang for every ten nodes that are 25 nodes wide on average; *hosts*: the same with an
//! apinit on each node, where the others have one for all.
//!
//! Applications come by chance, as many as go, and each run of a machine begins with as many as it has
//! room for, taken over from the records of another. All times are virtual. Each row takes as long as
//! PSCHED_BENCH_SECONDS says (3), or one application if that takes longer, and tells:
//!
//! - per second of processor time: applications, from their posting to their end; calls of `apply`
//!   ("decisions"); slices of the plans that went to nodes;
//! - the same with the events kept, as the daemon does (`recorder.rs`);
//! - for each kind of event, and for all of them, the median, the 99th percentile and the largest processor
//!   time of its `apply`, in microseconds.

#[path = "support/figures.rs"]
mod figures;

use figures::{Sample, is_bench, machine};
use psched::apteam::ending::{EndCount, HostEnd, PeEnd};
use psched::apteam::posting::{Owner, Posting};
use psched::apteam::protocol::node::{Command, Hello, PROTOCOL, Phase, Report};
use psched::apteam::record::{FrontProcess, State};
use psched::apteam::shape::Shape;
use psched::apteam::{Apid, Key, Ticket};
use psched::machine::{Machine, Nid, Node};
use psched::psched::decide::{
    Effect, Event, LinkId, News, Now, ReplyId, Scheduler, Settings, Turns,
};
use psched::psched::drive::recorder::Recorder;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// What is measured.
#[derive(Clone, Copy)]
struct Row {
    name: &'static str,
    nodes: u32,
    processors: u32,
    /// Nodes of an apinit.
    nodes_each: u32,
    max_resident: u32,
    /// Applications that are there at once, about.
    gangs: u64,
    /// Their widths in nodes are between one and this: equally likely, or each power of two.
    widest: u32,
    by_powers: bool,
}

const LINE: Row = Row {
    name: "line",
    nodes: 1_524,
    processors: 1,
    nodes_each: 1_524,
    max_resident: 8,
    gangs: 40,
    widest: 1_524,
    by_powers: true,
};

const fn cluster(name: &'static str, nodes: u32, nodes_each: u32) -> Row {
    Row {
        name,
        nodes,
        processors: 16,
        nodes_each,
        max_resident: 4,
        gangs: nodes as u64 / 10,
        widest: 49,
        by_powers: false,
    }
}

const ROWS: [Row; 7] = [
    LINE,
    cluster("100", 100, 100),
    cluster("1000", 1_000, 1_000),
    cluster("1000-hosts", 1_000, 1),
    cluster("10000", 10_000, 10_000),
    cluster("10000-hosts", 10_000, 1),
    cluster("100000", 100_000, 100_000),
];

const SECOND: f64 = 1e9;
/// How long applications run: from the first to the second in seconds, each power of two equally likely.
const RUNS: (f64, f64) = (10.0, 100_000.0);
/// Kinds of events; a turn is a tick, or the word of a node that it has a plan.
const KINDS: [&str; 5] = ["posted", "launched", "running", "turn", "ended"];
/// Places in these lists.
const POSTED: usize = 0;
const LAUNCHED: usize = 1;
const RUNNING: usize = 2;
const TURN: usize = 3;
const ENDED: usize = 4;

/// A scheduler, and nodes that answer at once.
struct Driven {
    row: Row,
    scheduler: Scheduler,
    /// What keeps the events, where that is measured too.
    recorder: Option<Recorder>,
    random: fastrand::Rng,
    mono_ns: u64,
    requests: u64,
    /// What nodes have to say, and of which kind that is.
    reports: VecDeque<(usize, LinkId, Report)>,
    /// When each application ends that runs.
    ends: BTreeSet<(u64, Apid)>,
    /// By kind.
    times: [Vec<Duration>; 5],
    slices: u64,
    ended: u64,
}

fn settings(row: &Row, floors: bool) -> Settings {
    let turns = Turns { floors, max_resident: row.max_resident, ..Turns::default() };
    Settings { turns, ..Settings::default() }
}

fn machine_of(row: &Row) -> Machine {
    let node = |nid| Node { memory: 64 << 30, ..Node::plain(Nid(nid), row.processors) };
    (0..row.nodes).map(node).collect()
}

impl Driven {
    /// A machine with its applications, which all run.
    fn new(row: Row, floors: bool) -> Driven {
        let scheduler = Scheduler::new(machine_of(&row), settings(&row, floors));
        let mut empty = Driven::around(row, scheduler);
        for link in 0..row.nodes.div_ceil(row.nodes_each) {
            empty.call(link.into(), Vec::new());
        }
        for _ in 0..row.gangs {
            empty.post();
        }
        // Planned all at once: one after the other they would be planned as often.
        let mut teams: Vec<_> = empty.scheduler.teams().cloned().collect();
        let mut held: BTreeMap<u64, Vec<(Key, Phase)>> = BTreeMap::new();
        for team in teams.iter_mut().filter(|team| team.state.holds_processors()) {
            team.state = State::Running;
            let links: BTreeSet<u64> = team.places.nids().map(|nid| row.link(nid).0).collect();
            for link in links {
                held.entry(link).or_default().push((team.key(), Phase::Running));
            }
        }
        let running: Vec<Apid> = teams
            .iter()
            .filter(|team| team.state == State::Running)
            .map(|team| team.apid)
            .collect();
        let next = empty.scheduler.next_apid();
        let (machine, settings) = (machine_of(&row), settings(&row, floors));
        let none = BTreeMap::new();
        let (scheduler, _) = Scheduler::restore(
            machine,
            settings,
            teams,
            none,
            Default::default(),
            next,
            empty.now(),
        );
        let mut driven = Driven { requests: empty.requests, ..Driven::around(row, scheduler) };
        for link in 0..u64::from(row.nodes.div_ceil(row.nodes_each)) {
            driven.call(link, held.remove(&link).unwrap_or_default());
        }
        for apid in running {
            // Who is met at some moment is mostly one that runs for long, and somewhere in the middle.
            let (least, most) = RUNS;
            let whole = least + (most - least) * driven.random.f64();
            let left = whole * driven.random.f64();
            driven.runs(apid, left);
        }
        driven.answer();
        driven.times = Default::default();
        driven.slices = 0;
        driven
    }

    fn around(row: Row, scheduler: Scheduler) -> Driven {
        Driven {
            row,
            scheduler,
            recorder: None,
            random: fastrand::Rng::with_seed(11),
            mono_ns: 1_000_000_000,
            requests: 0,
            reports: VecDeque::new(),
            ends: BTreeSet::new(),
            times: Default::default(),
            slices: 0,
            ended: 0,
        }
    }

    fn now(&self) -> Now {
        Now { mono_ns: self.mono_ns, wall_ns: self.mono_ns }
    }

    /// An apinit calls, with what it has.
    fn call(&mut self, number: u64, items: Vec<(Key, Phase)>) {
        let first = number as u32 * self.row.nodes_each;
        let nids = first..(first + self.row.nodes_each).min(self.row.nodes);
        let hello = Hello {
            protocol: PROTOCOL,
            socket: format!("/run/psched/apinit-{number}.sock"),
            hostname: format!("host{number}"),
            boot_id: "b7f0f2f4-6a1c-4e55-9d0e-1f2d3c4b5a69".into(),
            nids: nids.map(Nid).collect(),
            ..Hello::default()
        };
        let link = LinkId(number);
        self.scheduler.apply(self.now(), Event::LinkOpened { link, hello: Box::new(hello) });
        let effects = self.scheduler.apply(self.now(), Event::Inventory { link, items });
        self.hear(effects);
    }

    /// Applies an event of a kind, and has the nodes hear of it.
    fn apply(&mut self, kind: usize, event: Event) {
        let now = self.now();
        let begun = processor_time();
        if let Some(recorder) = &mut self.recorder {
            recorder.tells(now, &self.scheduler, std::slice::from_ref(&event));
        }
        let effects = self.scheduler.apply(now, event);
        if let Some(recorder) = &mut self.recorder {
            recorder.gave(&effects);
        }
        self.times[kind].push(processor_time() - begun);
        self.hear(effects);
    }

    /// What nodes and front ends do of that at once; their reports wait for [`Driven::answer`].
    fn hear(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                // The head launches it, and when it is launched it runs.
                Effect::Command { link, command: Command::Place(place) }
                    if place.places.nids().next().is_some_and(|nid| self.row.link(nid) == link) =>
                {
                    self.reports.push_back((LAUNCHED, link, Report::Launched(place.key)));
                    self.reports.push_back((RUNNING, link, Report::Running(place.key)));
                }
                Effect::Command { link, command: Command::Plan(plan) } => {
                    self.slices += plan.slices.len() as u64;
                    if !plan.agreed {
                        let taken = Report::PlanTaken(plan.generation);
                        self.reports.push_back((TURN, link, taken));
                    }
                }
                Effect::Tell { apid, news: News::Running } => {
                    let (least, most) = RUNS;
                    let seconds = least * (most / least).powf(self.random.f64());
                    self.runs(apid, seconds);
                }
                _ => {}
            }
        }
    }

    fn answer(&mut self) {
        while let Some((kind, link, report)) = self.reports.pop_front() {
            self.apply(kind, Event::Report { link, report: Box::new(report) });
        }
    }

    /// It ends in so many seconds.
    fn runs(&mut self, apid: Apid, seconds: f64) {
        self.ends.insert((self.mono_ns + (seconds * SECOND) as u64, apid));
    }

    fn post(&mut self) {
        let Row { widest, processors, by_powers, .. } = self.row;
        let nodes = match by_powers {
            true => (f64::from(widest) + 1.0).powf(self.random.f64()) as u32,
            false => self.random.u32(1..=widest),
        };
        self.requests += 1;
        let mut id = [0; 16];
        id[..8].copy_from_slice(&self.requests.to_le_bytes());
        let shape = Shape { width: nodes * processors, depth: 1, per_node: None };
        let command = "./a.out --input case.nml".into();
        let posting = Posting { command, ..Posting::plain(id, shape) };
        let event = Event::Posted {
            reply: ReplyId(self.requests),
            posting: Box::new(posting),
            owner: Owner {
                uid: 1000,
                gid: 1000,
                groups: vec![1000],
                name: "alice".into(),
                terminal: false,
            },
            front: FrontProcess::here(4000, self.requests),
            secret: Ticket(id),
        };
        self.apply(POSTED, event);
    }

    /// All its nodes say that it has ended.
    fn end(&mut self, apid: Apid) {
        let Some(team) = self.scheduler.team(apid) else { return };
        let key = team.key();
        let mut parts: BTreeMap<LinkId, HostEnd> = BTreeMap::new();
        for place in team.places.0.iter() {
            let link = self.row.link(place.nid);
            let part = parts.entry(link).or_insert_with(|| HostEnd {
                key,
                launched: true,
                ends: vec![EndCount { end: PeEnd::Exit(0), count: 0, consequence: false }],
                ..HostEnd::default()
            });
            part.nids.push(place.nid);
            part.ends[0].count += place.pes;
        }
        for (link, end) in parts {
            self.apply(
                ENDED,
                Event::Report { link, report: Box::new(Report::Ended(Box::new(end))) },
            );
        }
        self.ended += 1;
    }

    /// Applications come and go for so long.
    fn drive(&mut self, budget: Duration) -> Duration {
        let (least, most) = RUNS;
        let lasts = (most - least) / (most / least).ln();
        let between = lasts * SECOND / self.row.gangs as f64;
        let mut comes = self.mono_ns;
        let (begun, began) = (Instant::now(), processor_time());
        while begun.elapsed() < budget || self.ended == 0 {
            let ends = self.ends.first().copied();
            let first = ends.map_or(u64::MAX, |(at, _)| at).min(comes);
            let due = self.scheduler.deadline().unwrap_or(u64::MAX);
            self.mono_ns = first.min(due).max(self.mono_ns);
            if due < first {
                self.apply(TURN, Event::Tick);
            } else if let Some((_, apid)) = ends.filter(|(at, _)| *at == first) {
                self.ends.pop_first();
                self.end(apid);
            } else {
                comes += (-(1.0 - self.random.f64()).ln() * between) as u64 + 1;
                self.post();
            }
            self.answer();
        }
        processor_time() - began
    }
}

/// Of this thread: others on the machine do not count.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

impl Row {
    fn link(&self, nid: Nid) -> LinkId {
        LinkId((nid.0 / self.nodes_each).into())
    }
}

fn measure(row: Row, floors: bool, recorded: bool, name: &str, budget: Duration) {
    let mut driven = Driven::new(row, floors);
    driven.recorder = recorded.then(|| Recorder::new(&driven.scheduler));
    let took = driven.drive(budget).as_secs_f64();
    let applied: usize = driven.times.iter().map(Vec::len).sum();
    let runs = driven.scheduler.teams().filter(|team| team.state == State::Running).count();
    print!(
        "{:<12} {:<22} {runs:>6} {:>9.0} {:>9.0} {:>9.0}",
        row.name,
        name,
        driven.ended as f64 / took,
        applied as f64 / took,
        driven.slices as f64 / took,
    );
    let all = driven.times.iter().flatten().copied().collect();
    for times in driven.times.into_iter().chain([all]) {
        let sample = Sample::new(times);
        let [p99, most] = [99, 100].map(|percent| sample.percentile_ms(percent) * 1e3);
        let p50 = sample.median_ms() * 1e3;
        print!("  {:>24}", format!("{p50:.1} {p99:.1} {most:.0}"));
    }
    println!();
}

fn main() -> ExitCode {
    if !is_bench("scheduler") {
        return ExitCode::SUCCESS;
    }
    let seconds = std::env::var("PSCHED_BENCH_SECONDS").ok().and_then(|text| text.parse().ok());
    let budget = Duration::from_secs_f64(seconds.unwrap_or(3.0));
    let names: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    println!("{}", machine());
    print!(
        "{:<12} {:<22} {:>6} {:>9} {:>9} {:>9}",
        "nodes", "floors", "gangs", "ended/s", "apply/s", "slices/s"
    );
    for kind in KINDS.into_iter().chain(["all"]) {
        print!("  {:>24}", format!("{kind} p50 p99 max"));
    }
    println!();
    for row in ROWS {
        if names.is_empty() || names.iter().any(|name| name == row.name) {
            let ways = [(true, false, "yes"), (true, true, "yes, recorded"), (false, false, "no")];
            for (floors, recorded, name) in ways {
                measure(row, floors, recorded, name, budget);
            }
        }
    }
    ExitCode::SUCCESS
}
