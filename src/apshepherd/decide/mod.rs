//! What an apshepherd does, without doing it: the start gate, output and stdin, PMI, ends.
//!
//! [`Shepherd::apply`] takes what has happened and gives what is to be done, in order. The shell
//! around it (`apshepherd::host`) has the sockets, pipes and processes, and nothing to decide.
//!
//! ```text
//!            launch             all stopped            go
//!  Waiting ----------> Starting ------------> Ready --------> Going
//!     |                   |                     |               |
//!     | released          | one not executable, terminated      | PEs end, or are ended
//!     v                   v                     v               v
//!   exit                killed, none has run an instruction   no child left
//!                                   \                           |
//!                                    +----> output taken <------+
//!                                                |
//!                                              Ended, told until released
//! ```
//!
//! **Ends.** The first bad end decides the status ([`crate::apteam::ending`]). One that ends the
//! application (anything but a plain exit) is told upwards, and the other PEs get TERM at once and
//! KILL after `kill_grace`, in which they run: gangs that take turns may be frozen; what they then die
//! of is a consequence. When all PEs have ended and
//! something that they started has not, it gets TERM after [`LINGER`], then KILL as well.
//!
//! **Lost connections.** apinit may go and come back at any time. On each connection both sides say
//! hello, and then everything that counts is said again: readiness, the barriers that may still
//! count, the decisive end, output that isn't taken, the final end. What was on its way down is said
//! again from above: stdin and signals are numbered, so that what has come already is known.
//!
//! **Restarts.** One that was brought back from a checkpoint finds itself on a new connection, and is told
//! there as which application it goes on. Its front end is another one, which counts its signals from 1;
//! output and stdin go on to count, for apinit knows where the new front end's begin. stdin that had ended
//! stays ended: what the new one sends is thrown away.
//!
//! ```
//! use psched_pure::apteam::{Key, protocol::shepherd::{FromShepherd, ToShepherd}};
//! use psched_pure::apshepherd::decide::{Action, Event, Shepherd};
//! let mut shepherd = Shepherd::new(0, Key::parse("12.1").unwrap());
//! let actions = shepherd.apply(1, Event::Connected);
//! assert!(matches!(actions[0], Action::Send(FromShepherd::Hello(_))));
//! assert_eq!(shepherd.apply(2, Event::Frame(ToShepherd::Release)), [Action::Exit]);
//! ```

mod asks;
mod events;
mod input;
mod left;
mod limits;
pub mod mapping;
pub mod output;
mod pe_ends;
pub mod pmi;
pub mod pmix;
pub mod spawn;
mod stacks;
mod stuck;
#[cfg(test)]
mod tests;
mod unmet;
mod wireup;

use crate::apteam::Key;
use crate::apteam::bounds::Bounds;
use crate::apteam::ending::{Decisive, EndCount, Usage};
use crate::apteam::fault::Fault;
use crate::apteam::launch::{self, HostLaunch};
use crate::apteam::protocol::attach::{NumberedSignal, TakenSignals};
use crate::apteam::protocol::notice::Seen;
use crate::apteam::protocol::programs::WantedProgram;
use crate::apteam::protocol::shepherd::{FromShepherd, Hello, PROTOCOL, ToShepherd};
use crate::machine::Nid;
use asks::Asks;
use input::Stdin;
use limits::MemoryLimit;
use output::{OutputLog, Source};
use pe_ends::{EINVAL, Grace};
use pmi::Pmi;
use pmix::Pmix;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

pub use events::{Action, Event};
pub use left::Left;
pub use stacks::{Looked, Standing, Tool, stacks_in};
pub use stuck::NAMED_MAX;

/// How long a shepherd without a launch waits for an apinit to connect.
pub const ABSENT: Duration = Duration::from_secs(120);
/// How long what PEs leave behind may go on: a `tee` at the end of a PE's stdout has its last lines
/// to write.
pub const LINGER: Duration = Duration::from_millis(100);
/// How often it is looked whether they are frozen: that time is not theirs.
pub const LINGER_STEP: Duration = Duration::from_millis(10);
/// How long PEs that are to end, and are frozen when their grace is over, are waited for.
pub const FROZEN_MAX: Duration = Duration::from_secs(30);
/// From one KILL of everything to the next, as long as something is left; later ones are rarer.
pub const KILL_AGAIN: Duration = Duration::from_millis(100);
/// The longest that a shepherd goes on when it has to go: then it leaves the rest to the kernel,
/// which kills its children with it.
pub const LEAVE: Duration = Duration::from_secs(3);
/// The most PEs of one host: each takes four descriptors here, and Linux gives a process no more
/// than some 65,536 with common hard limits.
pub const PES_MAX: usize = 16 * 1024;
/// Lines for the front end's stderr, in all: beyond, they are of no use to anybody.
const NOTICES_MAX: u32 = 64;
/// Signals kept until the PEs go: as many as Linux has.
const HELD_SIGNALS_MAX: usize = 64;

const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Waiting,
    Starting,
    Ready,
    Going,
}

/// apinit's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Down,
    /// Connected; it has not said hello.
    Silent,
    Up,
}

#[derive(Clone, Debug)]
struct Pe {
    nid: Nid,
    stopped: bool,
    ended: bool,
    /// stdout and stderr may still bring something.
    open: [bool; 2],
    /// Real processors, ascending; empty: not bound.
    cpus: Vec<u32>,
    /// How many are its own.
    depth: u32,
}

/// The state of one apshepherd. (A checkpoint has a copy of it, as of all memory.)
#[derive(Clone, Debug)]
pub struct Shepherd {
    key: Key,
    stage: Stage,
    link: Link,
    pes: BTreeMap<u32, Pe>,
    /// Copies of these programs are waited for. Then no PE has been made.
    wanted: Vec<WantedProgram>,
    /// PEs that have not been executed and not ended.
    starting: usize,
    alive: usize,
    kill_grace: Duration,
    pmi: Option<Pmi>,
    pmix: Option<Pmix>,
    /// The program can't do without.
    pmix_needed: bool,
    /// A time limit of PMIx has passed, and it was asked whether the PEs are frozen.
    limits_asked: bool,
    asks: Asks,
    output: OutputLog,
    /// How each PE has ended is told.
    reports: bool,
    reading: bool,
    stdin: Stdin,
    /// Signals that came before the PEs went.
    held_signals: Vec<i32>,
    /// The highest numbers of signals that have come.
    signals_taken: TakenSignals,
    notices: VecDeque<(Nid, Seen)>,
    notices_left: u32,

    /// The first bad thing.
    first: Option<Decisive>,
    /// Ends from here on are consequences.
    ending: bool,
    /// Failures and decisive ends that were seen here, for an apinit that comes later: at most a
    /// plain bad exit and one thing that ends the application.
    told: Vec<FromShepherd>,
    ends: Vec<EndCount>,
    usage: Usage,
    leftovers: u32,
    /// What the PEs left behind has had its TERM.
    swept: bool,
    /// `ending` and `kill_at` as they were before that, until it is known that they have had it.
    before_sweep: Option<(bool, Option<u64>)>,
    /// They were found frozen then: how long they were seen not to be since.
    thawed: Option<Duration>,
    memory: MemoryLimit,
    stuck: stuck::Stuck,
    stacks: stacks::Stacks,
    spawned: spawn::Spawned,
    unmet: unmet::Unmet,
    /// How many processes each node may have, and of which it is told already that it has them.
    pids_max: Option<u64>,
    pids_told: BTreeSet<Nid>,
    went_at: u64,
    /// No process is left.
    empty_at: Option<u64>,
    ended: bool,
    leaving: bool,

    kill_at: Option<u64>,
    /// (Of an end that was decided here.) Before its KILL it is looked whether they are frozen.
    grace: Option<Grace>,
    linger_until: Option<u64>,
    absent_until: Option<u64>,
    leave_at: Option<u64>,
    timer: Option<u64>,
    actions: Vec<Action>,
}

impl Shepherd {
    /// The shepherd of this application, born now. All times are nanoseconds of CLOCK_MONOTONIC.
    pub fn new(now_ns: u64, key: Key) -> Shepherd {
        Shepherd {
            key,
            stage: Stage::Waiting,
            link: Link::Down,
            pes: BTreeMap::new(),
            wanted: Vec::new(),
            starting: 0,
            alive: 0,
            kill_grace: Duration::from_secs(5),
            pmi: None,
            pmix: None,
            pmix_needed: false,
            limits_asked: false,
            asks: Asks::default(),
            output: OutputLog::new(false, Bounds::default().output),
            reports: false,
            reading: true,
            stdin: Stdin::default(),
            held_signals: Vec::new(),
            signals_taken: TakenSignals::default(),
            notices: VecDeque::new(),
            notices_left: NOTICES_MAX,
            first: None,
            ending: false,
            told: Vec::new(),
            ends: Vec::new(),
            usage: Usage::default(),
            leftovers: 0,
            swept: false,
            before_sweep: None,
            thawed: None,
            memory: MemoryLimit::default(),
            stuck: stuck::Stuck::default(),
            stacks: stacks::Stacks::default(),
            spawned: spawn::Spawned::default(),
            unmet: unmet::Unmet::default(),
            pids_max: None,
            pids_told: BTreeSet::new(),
            went_at: 0,
            empty_at: None,
            ended: false,
            leaving: false,
            kill_at: None,
            grace: None,
            linger_until: None,
            absent_until: Some(after(now_ns, ABSENT)),
            leave_at: None,
            timer: None,
            actions: Vec::new(),
        }
    }

    /// Takes what has happened at this time; gives what is to be done, in order. After
    /// [`Action::Exit`] there is nothing more.
    pub fn apply(&mut self, now_ns: u64, event: Event) -> Vec<Action> {
        match event {
            Event::Connected => self.connected(),
            Event::Disconnected => {
                self.link = Link::Down;
                // (With the connection the shell has ended what it had for whoever asked there.)
                self.stacks = stacks::Stacks::default();
                if self.stage == Stage::Waiting {
                    self.absent_until = Some(after(now_ns, ABSENT));
                }
            }
            Event::Frame(frame) => self.frame(now_ns, frame),
            Event::Stopped { rank } => self.stopped(rank),
            Event::ExecFailed { rank, errno, text, fault } => {
                self.exec_failed(now_ns, rank, errno, text, fault);
            }
            Event::PeEnded { rank, pid, end, usage } => {
                self.pe_ended(now_ns, rank, pid, end, usage)
            }
            Event::MemoryKill { nid, over_limit } => {
                self.memory.killed.entry(nid).or_insert(over_limit);
            }
            Event::OrphanKilled { rank, max_rss_kib } => self.memory.size(rank, max_rss_kib),
            Event::NodeReaped(nid) => self.node_reaped(now_ns, nid),
            Event::ProgramsWanted(programs) => self.want_programs(now_ns, programs),
            Event::ProcessLimit { nid } => self.process_limit(nid),
            Event::NoChildLeft => self.no_child_left(now_ns),
            Event::LeftNamed(left) => self.left_named(left),
            Event::LeftFound(count) => {
                self.leftovers = self.leftovers.max(count);
                self.before_sweep = None;
            }
            Event::LeftFrozen => self.left_frozen(now_ns),
            Event::Frozen(frozen) => self.look_frozen(now_ns, frozen),
            Event::Pmi { rank, data } => self.pmi_bytes(now_ns, rank, &data),
            Event::Mix(said) => self.mix_says(now_ns, said),
            Event::Pmix3(rank) => self.spawned.with_pmix_3(rank),
            Event::MixEnded(text) => self.mix_ended(now_ns, &text),
            Event::NoMix(why) => self.no_pmix(why),
            Event::PortShut(why) => self.port_shut(&why),
            Event::MpiFound(loaded) => self.mpi_found(now_ns, loaded),
            Event::Output { rank, stderr, data } => {
                if let Some(source) = self.source(rank, stderr) {
                    self.output.push(source, data);
                }
            }
            Event::OutputEof { rank, stderr } => {
                if let Some(source) = self.source(rank, stderr) {
                    self.output.end_of(source);
                }
                if let Some(pe) = self.pes.get_mut(&rank) {
                    pe.open[usize::from(stderr)] = false;
                }
            }
            Event::StdinWritten(count) => self.stdin_written(count),
            Event::StdinClosed => self.stdin_closed(),
            Event::PesLooked(looked) => self.stacks.looked(now_ns, looked, &mut self.actions),
            Event::DebuggerEnded { number, said } => {
                self.stacks.ended(number, said, &mut self.actions);
            }
            Event::SpawnMade { number, nid, pid } => self.spawn_made(now_ns, number, nid, pid),
            Event::SpawnEnded { number, end } => self.spawn_ended(now_ns, number, end),
            Event::Tick => self.tick(now_ns),
            Event::LifelineGone => self.leave(now_ns),
        }
        self.settle(now_ns);
        std::mem::take(&mut self.actions)
    }

    /// What holds after every event.
    fn settle(&mut self, now_ns: u64) {
        if self.leaving && (self.empty_at.is_some() || self.stage == Stage::Waiting) {
            self.actions.push(Action::Exit);
            return;
        }
        if self.link == Link::Up {
            while let Some((nid, what)) = self.notices.pop_front() {
                self.actions.push(Action::Notice { nid, what });
            }
            while let Some(output) = self.output.next_piece() {
                self.actions.push(Action::Send(FromShepherd::Output(output)));
            }
        }
        let wanted = self.output.wants_more();
        if wanted != self.reading {
            self.reading = wanted;
            self.actions.push(Action::ReadOutput(wanted));
        }
        let all_read = self.pes.values().all(|pe| pe.open == [false; 2]);
        if !self.ended && self.empty_at.is_some() && all_read && self.output.is_empty() {
            self.ended = true;
            self.send(|shepherd| FromShepherd::Ended(Box::new(shepherd.host_end())));
        }
        self.wait_for_leavings(now_ns);
        if self.empty_at.is_some() {
            // (Nobody is left who wants to know.)
            self.asks = Asks::default();
        }
        if self.ending || self.empty_at.is_some() {
            self.stacks.give_up(now_ns, "the application ends", &mut self.actions);
        }
        let deadlines = [self.kill_at, self.linger_until, self.absent_until, self.leave_at];
        let deadlines = deadlines.into_iter().chain([
            self.memory.tell_at(),
            self.stuck.name_at,
            self.stacks.look_at(),
            self.unmet.look_at,
            self.asks.due_ns(),
            self.spawned.due_ns(),
            self.pmix.as_ref().and_then(Pmix::due_ns).filter(|_| !self.limits_asked),
        ]);
        let timer = deadlines.flatten().min();
        if timer != self.timer {
            self.timer = timer;
            self.actions.push(Action::SetTimer(timer));
        }
    }

    fn tick(&mut self, now_ns: u64) {
        // The timer has rung: whatever comes next has to be set again.
        self.timer = None;
        let due = |at: &mut Option<u64>| at.take_if(|at| *at <= now_ns).is_some();
        if due(&mut self.leave_at) || due(&mut self.absent_until) {
            self.actions.push(Action::Exit);
        }
        if due(&mut self.linger_until) {
            match self.thawed {
                Some(_) => self.actions.push(Action::LookFrozen),
                None => self.sweep(now_ns),
            }
        }
        if due(&mut self.kill_at) {
            self.kill_unless_frozen(now_ns);
        }
        if due(&mut self.stuck.name_at) {
            self.name_left(now_ns);
        }
        if due(&mut self.unmet.look_at) {
            self.look_for_mpi();
        }
        let limit = self.pmix.as_ref().and_then(Pmix::due_ns).filter(|at| *at <= now_ns);
        if limit.is_some() && !self.limits_asked {
            self.limits_asked = true;
            self.actions.push(Action::LookFrozen);
        }
        self.send_letters(now_ns);
        self.stacks.tick(now_ns, &mut self.actions);
        self.spawns_late(now_ns);
        if self.memory.tell_at().is_some_and(|at| at <= now_ns) {
            self.tell_memory(now_ns);
        }
    }

    // ---- apinit ----

    fn connected(&mut self) {
        self.link = Link::Silent;
        self.output.rewind();
        self.say_hello();
    }

    fn say_hello(&mut self) {
        let hello = Hello {
            protocol: PROTOCOL,
            key: self.key,
            launched: self.stage > Stage::Waiting,
            going: self.stage == Stage::Going,
            ended: self.ended,
            output_taken: self.output.taken(),
            stdin_taken: self.stdin.received,
            several: true,
            stacks: true,
        };
        self.actions.push(Action::Send(FromShepherd::Hello(hello)));
    }

    fn frame(&mut self, now_ns: u64, frame: ToShepherd) {
        match frame {
            ToShepherd::Hello(hello) if hello.key == self.key => self.greeted(now_ns),
            ToShepherd::Hello(_) => self.actions.push(Action::Hangup),
            ToShepherd::Launch(launch) if self.stage == Stage::Waiting && !self.ended => {
                self.launch(now_ns, launch)
            }
            ToShepherd::Go if self.is_ready() => {
                self.stage = Stage::Going;
                self.went_at = now_ns;
                self.actions.push(Action::Go);
                self.next_look_for_mpi();
                for signal in std::mem::take(&mut self.held_signals) {
                    self.actions.push(Action::Signal(signal));
                }
            }
            // Said twice, or too late: apinit has lost track over a lost connection.
            ToShepherd::Launch(_) | ToShepherd::Go => {}
            ToShepherd::Terminate { cause, kill_after } => {
                // apinit says it when they run.
                self.grace = None;
                self.end(now_ns, cause, kill_after);
            }
            ToShepherd::Signal(signal) => self.signal(signal),
            ToShepherd::Stdin(piece) => self.stdin(piece),
            ToShepherd::StdinEnd(length) => self.stdin_end(length),
            ToShepherd::OutputTaken(offset) => self.output.take(offset),
            ToShepherd::Letter(letter) => self.letter(now_ns, letter),
            ToShepherd::BarrierOut(out) => {
                if let Some(pmi) = &mut self.pmi {
                    let effects = pmi.barrier_out(out);
                    self.pmi_effects(now_ns, effects);
                }
            }
            ToShepherd::Processes(question) if self.link == Link::Up => {
                self.actions.push(Action::TellProcesses(question));
            }
            // It has not said whose apinit it is.
            ToShepherd::Processes(_) => {}
            ToShepherd::Programs { programs } => {
                if !std::mem::take(&mut self.wanted).is_empty() {
                    self.actions.push(Action::ForkWith(programs));
                }
            }
            ToShepherd::Stacks(question) if self.link == Link::Up => {
                let why_not = match () {
                    () if self.stage != Stage::Going => Some("it has not begun to run"),
                    () if self.ending || self.empty_at.is_some() => Some("the application ends"),
                    () if !self.pes.contains_key(&question.rank) => Some("it is not on this host"),
                    () => None,
                };
                self.stacks.asks(now_ns, question, why_not, &mut self.actions);
            }
            ToShepherd::Stacks(_) => {}
            ToShepherd::StacksWithdrawn(number) => {
                self.stacks.withdrawn(now_ns, number, &mut self.actions);
            }
            ToShepherd::DebuggerPlaced(placed) if placed.spawned => {
                self.spawn_placed(now_ns, placed);
            }
            ToShepherd::DebuggerPlaced(placed) => {
                self.stacks.placed(now_ns, placed, &mut self.actions);
            }
            ToShepherd::Release => self.leave(now_ns),
            ToShepherd::Rekey(key) if self.link == Link::Silent => self.rekey(key),
            // It is in the midst of a conversation about another one.
            ToShepherd::Rekey(_) => self.actions.push(Action::Hangup),
        }
    }

    /// It goes on as another application.
    fn rekey(&mut self, key: Key) {
        self.key = key;
        self.signals_taken = TakenSignals::default();
        self.notices_left = NOTICES_MAX;
        self.actions.push(Action::Rekeyed(key));
        self.say_hello();
    }

    /// apinit has said hello: it is told everything that it may have missed.
    fn greeted(&mut self, now_ns: u64) {
        self.link = Link::Up;
        self.absent_until = None;
        let mut missed = Vec::new();
        if self.is_ready() {
            missed.push(FromShepherd::Ready);
        }
        if !self.wanted.is_empty() {
            missed.push(FromShepherd::ProgramsWanted { programs: self.wanted.clone() });
        }
        missed.extend(self.told.iter().cloned());
        if self.stdin.wanted {
            missed.push(FromShepherd::StdinCredit(self.stdin.told()));
        }
        missed.extend(self.signals_taken.numbers().map(FromShepherd::SignalsTaken));
        let barriers = self.pmi.as_ref().map(Pmi::barriers).unwrap_or_default();
        missed.extend(barriers.into_iter().map(FromShepherd::BarrierIn));
        self.asks.begin_again();
        missed.extend(self.spawned.wait());
        missed.extend(self.asks.next(now_ns).into_iter().map(FromShepherd::Letter));
        if !self.stuck.list.is_empty() && !self.ended {
            missed.push(FromShepherd::Stuck(self.stuck.list.clone()));
        }
        if self.ended {
            missed.push(FromShepherd::Ended(Box::new(self.host_end())));
        }
        self.actions.extend(missed.into_iter().map(Action::Send));
    }

    /// All PEs stand, and none has been ended or lost since.
    fn is_ready(&self) -> bool {
        self.stage == Stage::Ready && !self.ending && self.empty_at.is_none()
    }

    fn launch(&mut self, now_ns: u64, launch: Box<HostLaunch>) {
        self.stage = Stage::Starting;
        self.absent_until = None;
        self.kill_grace = launch.kill_grace;
        self.memory.per_pe = launch.memory_per_pe;
        self.pids_max = launch.pids_max;
        for pe in &launch.pes {
            let depth = if pe.depth == 0 { launch.depth } else { pe.depth };
            let new = Pe {
                nid: pe.nid,
                stopped: false,
                ended: false,
                open: [true; 2],
                cpus: pe.cpus.clone(),
                depth: depth.max(1),
            };
            self.pes.insert(pe.rank, new);
        }
        let first = launch.pes.first().map_or(0, |pe| pe.rank);
        let sound = !launch.pes.is_empty()
            && launch.pes.len() <= PES_MAX
            && self.pes.len() == launch.pes.len()
            && launch.pes.iter().all(|pe| pe.rank < launch.width)
            && launch.launch.fits(launch.width).is_ok();
        if !sound {
            let text = match launch.pes.len() {
                n if n > PES_MAX => format!(
                    "the application has {n} PEs on this host, more than the maximum of \
                     {PES_MAX}: ask for fewer PEs on each node (-N), or a larger -d"
                ),
                n => match launch.launch.fits(launch.width) {
                    Err(text) => text,
                    Ok(()) => format!("apinit sent it a list of {n} PEs that is out of order"),
                },
            };
            self.empty_at = Some(now_ns);
            self.exec_failed(now_ns, first, EINVAL, text, Fault::User);
            // None is made, so that nothing can be heard of one.
            self.pes.clear();
            return;
        }
        self.starting = self.pes.len();
        self.alive = self.pes.len();
        self.output = OutputLog::new(launch.launch.whole_lines, launch.bounds.output);
        self.reports = launch.launch.report;
        self.stdin.wanted = launch.stdin;
        self.stdin.window = launch.bounds.stdin;
        self.stdin.closed |= !launch.stdin;
        if launch.launch.pmix != launch::ServePmix::No {
            let ranks = self.pes.keys().copied();
            let most = launch.bounds.pmi;
            self.pmix = Some(Pmix::new(launch.alone, most, launch.width, ranks));
            self.pmix_needed = launch.launch.pmix == launch::ServePmix::Needed;
        }
        if launch.width > 1 && (launch.launch.pmi || self.pmix.is_some()) {
            self.watch_for_mpi(launch.launch.pmi);
        }
        // (Fences of PMIx go through its barriers.)
        if launch.launch.pmi || self.pmix.is_some() {
            let Key { apid, incarnation } = self.key;
            // (MPI takes two worlds of one name for one; a spawned one is in the application of another.)
            let own = launch.spawned.as_ref().map(|_| format!("_{}", now_ns));
            let name = format!("psched_{apid}_{}{}", incarnation.0, own.unwrap_or_default());
            let mapping = launch.process_mapping.clone();
            let ranks = self.pes.keys().copied();
            let space_max = launch.bounds.pmi;
            let pmi = Pmi::new(name, launch.width, mapping, launch.alone, space_max, ranks);
            let entries = launch.spawned.as_ref().map_or(&[][..], |spawned| &spawned.entries);
            let pmi = pmi.with_universe(launch.universe());
            let pmi = pmi.with_appnums(|rank| launch.launch.part_of(rank));
            self.pmi = Some(pmi.with_entries(entries));
            self.spawned = spawn::Spawned::of(&launch);
        }
        self.actions.push(Action::Fork(launch));
        self.grant_stdin();
    }

    /// The PEs can't be made before copies of these programs are here.
    fn want_programs(&mut self, now_ns: u64, programs: Vec<WantedProgram>) {
        self.wanted = programs;
        if self.ending || self.leaving {
            return self.want_nothing(now_ns);
        }
        self.send(|shepherd| FromShepherd::ProgramsWanted { programs: shepherd.wanted.clone() });
    }

    /// It ends before they came: no PE was made, and nothing can be heard of one.
    pub(super) fn want_nothing(&mut self, now_ns: u64) {
        if !std::mem::take(&mut self.wanted).is_empty() {
            self.empty_at = Some(now_ns);
            self.pes.clear();
        }
    }

    fn signal(&mut self, signal: NumberedSignal) {
        let NumberedSignal { number, signal } = signal;
        if number == 0 || self.signals_taken.take(number) {
            let held = &mut self.held_signals;
            if self.stage == Stage::Going {
                self.actions.push(Action::Signal(signal));
            } else if held.len() < HELD_SIGNALS_MAX && (number > 0 || !held.contains(&signal)) {
                held.push(signal);
            }
        }
        if number > 0 {
            self.send(|_| FromShepherd::SignalsTaken(number));
        }
    }

    // ---- small things ----

    /// Says it if apinit listens; if it doesn't, it is told when it says hello.
    fn send(&mut self, message: impl FnOnce(&Shepherd) -> FromShepherd) {
        if self.link == Link::Up {
            let message = message(self);
            self.actions.push(Action::Send(message));
        }
    }

    /// Says it now, and again to every apinit that comes.
    fn tell(&mut self, message: FromShepherd) {
        self.told.push(message.clone());
        self.send(|_| message);
    }

    fn notice(&mut self, nid: Nid, what: Seen) {
        if let Some(left) = self.notices_left.checked_sub(1) {
            self.notices_left = left;
            self.notices.push_back((nid, what));
        }
    }

    /// Ends everything and goes.
    fn leave(&mut self, now_ns: u64) {
        self.leaving = true;
        self.ending = true;
        self.want_nothing(now_ns);
        if self.stage > Stage::Waiting && self.empty_at.is_none() {
            self.leave_at = Some(after(now_ns, LEAVE));
            self.kill_everything(now_ns);
        }
    }

    fn nid(&self, rank: u32) -> Nid {
        self.pes.get(&rank).map_or(Nid::default(), |pe| pe.nid)
    }

    fn source(&self, rank: u32, stderr: bool) -> Option<Source> {
        self.pes.get(&rank).map(|pe| Source { rank, nid: pe.nid, stderr })
    }
}

fn after(now_ns: u64, time: Duration) -> u64 {
    now_ns.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}
