//! The cluster: hosts, processes, wires, a disk, and the one queue of what happens next.

use super::apinit::Slot;
use super::checks::{Checks, Parts};
use super::clocks::Clocks;
use super::copies::Copies;
use super::cpr::Cpr;
use super::faults::{Fault, Faults};
use super::front::Aprun;
use super::host::{Host, Proc, ProcId};
use super::logins::Logins;
use super::memory::Memory;
use super::narrow::Narrow;
use super::psched::{Around, Psched};
use super::shepherd::Shep;
use super::store::{Disk, Thread};
use super::switchers::Frozen;
use super::trace::Trace;
use super::wire::{Msg, Pid, Who, Wire, WireId};
use super::{Counts, MS, Options, SECOND};
use crate::apinit::decide::Conn;
use crate::apinit::decide::switcher::Outcome;
use crate::apteam::Key;
use crate::apteam::ending::PeEnd;
use crate::apteam::protocol::node::RollOut;
use crate::gang::levels::LEVELS_MAX;
use crate::gang::plan::SLICE_MIN;
use crate::machine::{Flavors, Machine, Members, Nid, Node, Region};
use crate::psched::decide::{Abilities, LinkId, RollsOut, Settings, Turns};
use crate::variables::APPLICATION;
use fastrand::Rng;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

/// What happens next.
#[derive(Clone, Debug)]
pub enum Ev {
    /// The next message of this wire has come to this end.
    Arrive(WireId, usize),
    /// A process that was stopped hears what has waited for it.
    Heard(WireId, usize, Who, Box<Msg>),
    /// The first message that waits for the bandwidth of this wire leaves towards this end.
    Leaves(WireId, usize),
    /// Two hosts have their full bandwidth again.
    Wide(usize, usize),
    /// This end hears that its wire is gone.
    Lost(WireId, usize),
    /// A request that does not keep the order of its wire.
    PschedRpc(WireId, Pid, Box<Msg>),
    /// Timers; the number is that of the process's life or of the timer.
    PschedTimer(Pid, u64),
    PschedStart,
    PschedFrontDied(Pid, Pid),
    StoreDone(Pid, u64),
    StoreOutcome(Pid),
    ApinitStart(usize),
    ApinitTimer(usize, u64, u64),
    ApinitDial(usize, u64),
    /// A heartbeat of an apinit, and of one that psched waits for.
    Beat(usize, u64, WireId),
    PschedBeat(Pid, LinkId),
    /// A question about psched's clock, or a reading of it.
    Clock(usize, u64, WireId),
    /// Of the switcher: its timer, what it has asked to be stopped, how changes went.
    Turns(usize, u64, u64),
    TurnsStopped {
        slot: usize,
        life: u64,
        outcomes: Vec<(Key, Outcome)>,
    },
    TurnsTold(usize, u64),
    /// It is looked how much memory applications have; some has come.
    Memory(usize, u64),
    Brought {
        slot: usize,
        life: u64,
        key: Key,
        number: u64,
    },
    /// Somebody wants a checkpoint, of this one or of any; a step of one, and whether it gets its name.
    Checkpoint(Option<Key>),
    HungUp {
        slot: usize,
        life: u64,
        key: Key,
    },
    BringBack {
        slot: usize,
        life: u64,
        key: Key,
    },
    Named {
        slot: usize,
        life: u64,
        key: Key,
        number: u64,
    },
    /// Somebody restarts one; cpr is at the apinit's door; a step of bringing it back.
    Restart,
    Door(Pid, u64),
    Restore {
        slot: usize,
        life: u64,
        key: Key,
    },
    /// Somebody is killed in the midst of that.
    FrontKilled(Pid),
    ShepherdKilled(usize, Key),
    ApinitFrontDied(usize, u64, Conn),
    ApinitGroups {
        slot: usize,
        life: u64,
        key: Key,
        begun: u64,
    },
    ApinitRemoved {
        slot: usize,
        life: u64,
        key: Key,
    },
    ShepherdSilent {
        slot: usize,
        life: u64,
        key: Key,
        text: String,
    },
    ShepherdTimer(Pid, u64),
    /// A PE has been executed, or not.
    Executed(Pid, u32),
    /// A PE's program goes on.
    Step(ProcId),
    /// A process ends.
    Dies(ProcId, PeEnd),
    /// Its shepherd reaps a PE.
    Reap(Pid, u32, PeEnd),
    FrontTimer(Pid, u64),
    /// So many bytes are typed.
    FrontTyped(Pid, u64),
    /// PE 0's pipe has taken so many bytes.
    StdinTaken(Pid, u64),
    /// An apinit asks another one for a program; a front end has sent one.
    ProgramAsks {
        slot: usize,
        life: u64,
        key: Key,
        tries: u32,
    },
    ProgramHanded {
        pid: Pid,
        link: u32,
        key: Key,
    },
    /// A shepherd that was stopped goes on.
    ShepherdGoesOn(Pid),
    FrontWrote {
        pid: Pid,
        source: u32,
        end: u64,
    },
    FrontSignal {
        pid: Pid,
        signal: i32,
        sender: Option<Pid>,
    },
    /// psched's own signal.
    FrontNudged(Pid),
    /// Of an apinit, what it is for the users of its host.
    LoginStart(usize),
    LoginDial(usize, u64),
    LoginAgain(usize, u64),
    LoginFrontDied(usize, u64, Pid),
    /// psched gives a login host up.
    LoginLost {
        psched: Pid,
        host: Arc<str>,
        absence: u64,
    },
    /// What was said in a conversation that has been given up since.
    FrontLate(Pid, Box<super::front::Said>),
    /// Somebody posts.
    Post,
    /// Somebody types apkill.
    Apkill,
    /// A signal that ends nobody.
    Signals,
    /// Something goes wrong.
    Fault(Fault),
    HostUp(usize),
    /// A look at bounds, explanations and the restart property.
    Probe,
}

/// Levels, ageing and the longest wait such that runs of seconds come to all of them.
fn small_levels(turns: &mut Turns, rng: &mut Rng) {
    let of = |rng: &mut Rng, least, most| Duration::from_millis(rng.u64(least..=most));
    turns.longest_wait = of(rng, 2_000, 8_000);
    turns.start_cost = of(rng, 0, 100);
    turns.reconsider = Duration::from_secs(1);
    let levels = &mut turns.levels;
    let bound = of(rng, 50, 500);
    levels.bounds = (0..rng.u32(0..4)).map(|level| bound * 3u32.pow(level)).collect();
    levels.stickiness = of(rng, 0, 3_000);
    levels.aging_after = of(rng, 200, 3_000);
    levels.aging_level = rng.usize(0..3);
    levels.aging_grant = of(rng, 0, 500);
    levels.longest_wait = turns.longest_wait;
    if rng.bool() {
        // After two slices a gang comes behind the others of its level, so that gangs are stopped
        // often.
        levels.stickiness = Duration::ZERO;
        let level = turns.time_slice * 2;
        levels.bounds = (1..LEVELS_MAX as u32).map(|levels| level * levels).collect();
    }
}

/// The only region, where there is one.
pub const REGION: &str = "all";

/// In most seeds all apinits bring memory out, in some all but one, in some none. Whether any does.
fn some_roll_out(slots: &mut [Slot], rng: &mut Rng) -> bool {
    let kind = rng.u32(0..4);
    if kind == 0 {
        return false;
    }
    let cant = (kind == 1).then(|| rng.usize(0..slots.len()));
    // The others to swap, or by a checkpoint, or each in its own way.
    let by_checkpoint = rng.u32(0..3);
    for (at, slot) in slots.iter_mut().enumerate() {
        slot.roll_out = match cant == Some(at) {
            true => RollOut::Cant("no swap".to_owned()),
            false if by_checkpoint == 0 || by_checkpoint == 1 && at % 2 == 0 => {
                RollOut::ByCheckpoint
            }
            false => RollOut::Can,
        };
    }
    true
}

/// The whole simulated cluster.
pub struct World {
    pub options: Options,
    pub settings: Settings,
    pub now: u64,
    seq: u64,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    events: BTreeMap<u64, Ev>,
    /// Chance, one for each matter, so that one more fault does not change the programs.
    pub work: Rng,
    pub net: Rng,
    pub faults: Rng,
    pub mix: Faults,
    pub machine: Machine,
    pub hosts: Vec<Host>,
    pub psched: Option<Box<Psched>>,
    pub around: Around,
    pub store: Thread,
    pub disk: Disk,
    pub copies: Copies,
    pub chance_of_copies: Rng,
    pub slots: Vec<Slot>,
    pub sheps: BTreeMap<Pid, Shep>,
    pub procs: BTreeMap<ProcId, Proc>,
    /// PE processes and what they left, by apinit and application: the groups.
    pub groups: BTreeMap<(usize, Key), BTreeSet<ProcId>>,
    /// Groups that are frozen.
    pub frozen: BTreeMap<(usize, Key), Frozen>,
    /// How long it takes until a frozen group is known to be.
    pub stops_take: u64,
    pub memory: Memory,
    pub cpr: Cpr,
    pub fronts: BTreeMap<Pid, Aprun>,
    pub logins: Logins,
    pub clocks: Clocks,
    pub narrow: Narrow,
    pub wires: BTreeMap<WireId, Wire>,
    pub next_wire: u64,
    next_pid: Pid,
    next_number: u64,
    /// Messages between hosts may be slow until then.
    pub slow_until: u64,
    /// Nothing goes from one host to another until then.
    pub cuts: BTreeMap<(usize, usize), u64>,
    /// Postings that are still to come, and what was posted.
    pub to_post: u32,
    /// No more faults, no more postings: everything is to come to rest.
    pub ending: bool,
    pub checks: Checks,
    pub given: super::checks::Given,
    pub parts: Parts,
    pub counts: Counts,
    pub trace: Trace,
}

impl World {
    /// A cluster at its beginning.
    pub fn new(options: Options, lines: usize) -> World {
        let mut seeds = Rng::with_seed(options.seed);
        let mut fork = || Rng::with_seed(seeds.u64(..));
        let (mut shape, work, net, mut faults) = (fork(), fork(), fork(), fork());
        let mut turns = fork();
        let mut memory = Memory::choose(fork());
        let cpr = Cpr::choose(fork());
        let mut others = fork();
        // (Of its own, so that older classes come as they did before this one was there.)
        let chance_of_copies = Rng::with_seed(options.seed ^ 0x00c0_91e5);
        let mut machine = Machine::default();
        let mut hosts = vec![Host::new("login".into(), &mut shape)];
        let mut slots = Vec::new();
        let mut nid = 0;
        // One apinit with all nodes, in some: only there psched moves anybody by itself.
        let one = others.u32(0..4) == 0;
        let count = if one { 1 } else { shape.usize(5..=7) };
        for number in 1..=count {
            // psched's own host offers nodes too, sometimes.
            let host = if !one && number == count && shape.bool() { 0 } else { number };
            let name = if host == 0 { "login".into() } else { format!("host{host}") };
            if host > 0 {
                hosts.push(Host::new(name.clone(), &mut shape));
            }
            let mut cpu = 0;
            for _ in 0..if !one && shape.u32(0..4) == 0 { 2 } else { 1 } {
                let mut nids = BTreeSet::new();
                let mut cpus = Vec::new();
                for _ in 0..if one { shape.u32(7..=10) } else { shape.u32(1..=2) } {
                    let processors = shape.u32(2..=4);
                    cpus.extend(cpu..cpu + processors);
                    let own: Vec<u32> = (cpu..cpu + processors).collect();
                    cpu += processors;
                    machine.nodes.insert(
                        Nid(nid),
                        Node {
                            nid: Nid(nid),
                            processors,
                            cpus: own,
                            memory: 1 << 30,
                            flavors: Flavors::all(),
                            host: name.clone(),
                        },
                    );
                    nids.insert(Nid(nid));
                    nid += 1;
                }
                slots.push(Slot::new(host, nids, cpus));
            }
        }
        // Half of the seeds are as if nobody shared anything.
        let shared = if turns.bool() { 1 } else { turns.u32(2..=4) };
        let time_slice = Duration::from_millis(turns.u64(20..=300));
        // In three of eight seeds; the others have floors.
        let rolls_out = turns.u32(0..8) < 3;
        let mut settings = Settings {
            ticket_time: Duration::from_secs(10),
            kill_grace: Duration::from_secs(2),
            apkill_grace: Duration::from_secs(10),
            postings_max: 60,
            postings_user_max: 40,
            // (Not drawn, so that everything else of a seed is as before.)
            fan_out: 1 + (options.seed % 3) as u32,
            turns: Turns {
                max_resident: shared,
                time_slice,
                floors: !rolls_out,
                switch_share: memory.switch_share(),
                ..Turns::default()
            },
            abilities: Abilities { moves: true, says: true, roll_out: RollsOut::Never },
            ..Settings::default()
        };
        if rolls_out {
            small_levels(&mut settings.turns, &mut turns);
            settings.abilities.roll_out = RollsOut::AtHome;
            memory.rolls_out = some_roll_out(&mut slots, &mut others);
        } else {
            // (By a copy: the histories of these seeds are older than their levels.)
            small_levels(&mut settings.turns, &mut turns.clone());
        }
        if one {
            settings.turns.compact_after = Duration::from_millis(others.u64(500..5_000));
            settings.turns.migration.move_cost = Duration::from_millis(others.u64(0..1_000));
            settings.turns.migration.quiet_time = Duration::from_millis(others.u64(0..5_000));
            let region = Region {
                name: REGION.into(),
                domain: APPLICATION.into(),
                members: Members::Nids(machine.nodes.keys().copied().collect()),
                gate: Default::default(),
            };
            machine.regions.push(region);
        }
        // Confirmed at once, or as late as a loaded host does it. (A floor is not over by then: who has it would not
        // run.)
        let stops_take = if turns.bool() { 0 } else { turns.u64(0..=30 * MS) };
        let floor = SLICE_MIN.as_nanos() as u64;
        let stops_take = if settings.turns.floors { stops_take % (floor / 2) } else { stops_take };
        let mix = Faults::choose(&options, &mut faults);
        if mix.clocks {
            hosts.iter_mut().for_each(|h| h.drift(&mut shape));
        }
        let mut clocks = Clocks::new(options.seed, mix.exchanges);
        clocks.drift(&mut hosts);
        let narrow = Narrow::new(options.seed, mix.narrow);
        if narrow.on {
            settings.host_bounds.silence = Duration::from_secs(6);
        }
        World {
            checks: Checks::default(),
            given: Default::default(),
            parts: Parts::default(),
            settings,
            now: 0,
            seq: 0,
            queue: BinaryHeap::new(),
            events: BTreeMap::new(),
            work,
            net,
            faults,
            mix,
            machine,
            hosts,
            psched: None,
            around: Around::default(),
            store: Thread::default(),
            disk: Disk::default(),
            copies: Copies::default(),
            chance_of_copies,
            slots,
            sheps: BTreeMap::new(),
            procs: BTreeMap::new(),
            groups: BTreeMap::new(),
            frozen: BTreeMap::new(),
            stops_take,
            memory,
            cpr,
            fronts: BTreeMap::new(),
            logins: Logins::new(options.seed),
            clocks,
            narrow,
            wires: BTreeMap::new(),
            next_wire: 0,
            next_pid: 100,
            next_number: 0,
            slow_until: 0,
            cuts: BTreeMap::new(),
            to_post: options.postings,
            ending: false,
            counts: Counts::default(),
            trace: Trace::new(lines),
            options,
        }
    }

    /// This happens then.
    pub fn at(&mut self, at: u64, ev: Ev) {
        self.seq += 1;
        self.queue.push(Reverse((at.max(self.now), self.seq)));
        self.events.insert(self.seq, ev);
    }

    /// This happens in a while.
    pub fn after(&mut self, wait: u64, ev: Ev) {
        self.at(self.now + wait, ev);
    }

    /// A number that no process has had.
    pub fn new_pid(&mut self) -> Pid {
        self.next_pid += 1;
        self.next_pid
    }

    /// A number that nothing has had.
    pub fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// A line of the trace, made only if it is wanted.
    pub fn note(&mut self, text: impl FnOnce() -> String) {
        if self.trace.on() {
            let text = text();
            self.trace.line(self.now, text);
        }
    }

    /// Whether nothing goes from one host to another now.
    pub fn is_cut(&self, from: usize, to: usize) -> bool {
        self.cuts.get(&(from, to)).is_some_and(|until| *until > self.now)
    }

    /// Lets the next thing happen. False: nothing does any more, or not before `until`.
    pub fn step(&mut self, until: u64) -> bool {
        let Some(Reverse((at, _))) = self.queue.peek().copied() else { return false };
        if at > until {
            self.now = until;
            return false;
        }
        let Some(Reverse((_, seq))) = self.queue.pop() else { return false };
        self.now = at;
        if let Some(ev) = self.events.remove(&seq) {
            self.counts.events += 1;
            self.happen(ev);
        }
        true
    }

    fn happen(&mut self, ev: Ev) {
        match ev {
            Ev::Arrive(wire, side) => self.arrive(wire, side),
            Ev::Heard(wire, side, who, msg) => self.heard(wire, side, who, *msg),
            Ev::Leaves(wire, side) => self.first_leaves(wire, side),
            Ev::Wide(a, b) => self.wide_again(a, b),
            Ev::Lost(wire, side) => self.lost(wire, side),
            Ev::PschedRpc(wire, front, msg) => self.psched_asked(wire, front, *msg),
            Ev::PschedTimer(pid, timer) => self.psched_timer(pid, timer),
            Ev::PschedStart => self.psched_start(),
            Ev::PschedFrontDied(pid, front) => self.psched_front_died(pid, front),
            Ev::StoreDone(pid, number) => self.store_done(pid, number),
            Ev::StoreOutcome(pid) => self.psched_outcome(pid),
            Ev::ApinitStart(slot) => self.apinit_start(slot),
            Ev::ApinitTimer(slot, life, timer) => self.apinit_timer(slot, life, timer),
            Ev::ApinitDial(slot, life) => self.apinit_dial(slot, life),
            Ev::Beat(slot, life, wire) => self.beat(slot, life, wire),
            Ev::PschedBeat(pid, link) => self.psched_beat(pid, link),
            Ev::Clock(slot, life, wire) => self.exchange_tick(slot, life, wire),
            Ev::Turns(slot, life, number) => self.turns_tick(slot, life, number),
            Ev::TurnsStopped { slot, life, outcomes } => self.turns_stopped(slot, life, outcomes),
            Ev::Memory(slot, life) => self.look_at_memory(slot, life),
            Ev::Brought { slot, life, key, number } => self.memory_came(slot, life, key, number),
            Ev::Checkpoint(of) => self.somebody_checkpoints(of),
            Ev::HungUp { slot, life, key } => self.hung_up(slot, life, key),
            Ev::BringBack { slot, life, key } => self.brought_back(slot, life, key),
            Ev::Named { slot, life, key, number } => self.named(slot, life, key, number),
            Ev::Restart => self.somebody_restarts(),
            Ev::Door(pid, number) => self.at_the_door(pid, number),
            Ev::Restore { slot, life, key } => self.restore_step(slot, life, key),
            Ev::FrontKilled(pid) => self.front_is_killed(pid),
            Ev::ShepherdKilled(slot, key) => self.shepherd_is_killed(slot, key),
            Ev::TurnsTold(slot, life) => self.turns_told(slot, life),
            Ev::ApinitFrontDied(slot, life, conn) => self.apinit_front_died(slot, life, conn),
            Ev::ApinitGroups { slot, life, key, begun } => {
                self.apinit_groups(slot, life, key, begun);
            }
            Ev::ApinitRemoved { slot, life, key } => self.apinit_removed(slot, life, key),
            Ev::ShepherdSilent { slot, life, key, text } => {
                self.apinit_shepherd_silent(slot, life, key, text);
            }
            Ev::ShepherdTimer(pid, timer) => self.shepherd_timer(pid, timer),
            Ev::Executed(pid, rank) => self.executed(pid, rank),
            Ev::Step(proc) => self.program_step(proc),
            Ev::Dies(proc, end) => self.dies(proc, end),
            Ev::Reap(pid, rank, end) => self.reap(pid, rank, end),
            Ev::FrontTyped(pid, count) => self.front_typed(pid, count),
            Ev::StdinTaken(pid, count) => self.stdin_taken(pid, count),
            Ev::ProgramAsks { slot, life, key, tries } => {
                self.program_asks(slot, life, key, tries);
            }
            Ev::ProgramHanded { pid, link, key } => self.program_handed(pid, link, key),
            Ev::ShepherdGoesOn(pid) => self.shepherd_goes_on(pid),
            Ev::FrontTimer(pid, timer) => self.front_timer(pid, timer),
            Ev::FrontWrote { pid, source, end } => self.front_wrote(pid, source, end),
            Ev::FrontSignal { pid, signal, sender } => self.front_signal(pid, signal, sender),
            Ev::FrontNudged(pid) => self.front_nudged(pid),
            Ev::FrontLate(pid, said) => self.front_hears_late(pid, *said),
            Ev::LoginStart(host) => self.login_start(host),
            Ev::LoginDial(host, life) => self.login_dial(host, life),
            Ev::LoginAgain(host, life) => self.login_again(host, life),
            Ev::LoginFrontDied(host, life, pid) => self.login_front_died(host, life, pid),
            Ev::LoginLost { psched, host, absence } => {
                self.psched_login_lost(psched, host, absence);
            }
            Ev::Post => self.somebody_posts(),
            Ev::Apkill => self.somebody_kills(),
            Ev::Signals => self.somebody_signals(),
            Ev::Fault(fault) => self.fault(fault),
            Ev::HostUp(host) => self.host_up(host),
            Ev::Probe => self.probe(),
        }
    }

    /// Runs a seed: work and faults, then rest.
    pub fn run(&mut self) {
        self.at(0, Ev::PschedStart);
        if self.mix.logins {
            self.have_login_hosts(1 + (self.options.seed % 2) as usize);
        }
        for slot in 0..self.slots.len() {
            let late = self.net.u64(0..50 * MS);
            self.at(late, Ev::ApinitStart(slot));
        }
        self.at(SECOND, Ev::Post);
        self.at(SECOND * 7, Ev::Apkill);
        self.at(SECOND * 3, Ev::Signals);
        self.at(SECOND, Ev::Probe);
        self.begin_faults();
        self.begin_cpr();
        let work = self.options.time_ns;
        while self.checks.sound() && self.step(work) {}
        if !self.checks.sound() {
            return;
        }
        self.come_to_rest();
    }
}
