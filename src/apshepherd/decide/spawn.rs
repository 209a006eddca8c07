//! Programs that PEs spawn (MPI_Comm_spawn).
//!
//! # Problem
//! An application has the processors of its PEs and no others, and no other application is moved for what one PE wants to
//! start.
//!
//! # Approach
//! What a PE spawns is a program inside the application ([`crate::aprun::decide::inside`]), on processors of that PE: an
//! `aprun --inside` that is a child of this apshepherd, and a world of MPI of its own, which by PMI-1 finds how to reach the PE
//! in its key-value space. It has the output of the PE and is frozen with it.
//!
//! A PE has room for as many as it has processors beside the one on which it runs (`-d`). PEs that may run on the same
//! processors (`-cc none`) have together what they all do not need. With `--oversubscribe` the number is not limited here.
//!
//! A program of Open MPI is spawned by PMIx. The appmix of the host serves its PEs as well, so that they and the PEs that
//! have spawned them find one another. It is told of them first, and so are those of the application's other hosts, whose
//! PEs may meet the new ones; what one of them says is asked and told by letters ([`LetterText::Spawning`]). What one that
//! was spawned spawns in its turn is, but for its parent, as if the PE of the application had spawned it.
//!
//! A PE that spawns another program as soon as the last one has disconnected finds that one still ending: so a request for
//! which there will be room waits for a while ([`FREED`]).
//!
//! The process gets its place as a debugger does ([`crate::apteam::protocol::stacks`]): it is made, apinit puts it into the
//! control group of its node, and then it becomes aprun.
//!
//! ```text
//!  (by PMIx: Preparing, until appmix knows of it on all hosts)
//!            made               placed
//!  Making ----------> Waiting ----------> Running ----> ended: badly, and the application ends
//!     |                  |
//!     | can't be made    | no place, or no answer within PLACED: refused
//! ```
//!
//! The application lasts until what was spawned has ended.

mod elsewhere;

use super::asks::Asker;
use super::pmix::{FromMix, NOT_FOUND, SPAWN_FAILED, SUCCESS, ToMix};
use super::{Action, PES_MAX, Shepherd, after};
use crate::apteam::ending::{Cause, PeEnd};
use crate::apteam::launch::HostLaunch;
use crate::apteam::protocol::letters::{LetterText, SpawnedPe, Spawning};
use crate::apteam::protocol::notice::Seen;
use crate::apteam::protocol::peers::PmiEntry;
use crate::apteam::protocol::shepherd::FromShepherd;
use crate::apteam::protocol::stacks::{Made, Placed};
use crate::machine::Nid;
use crate::variables::units::count;
use elsewhere::Elsewhere;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Programs that PEs of one host have spawned and that have not ended.
const PROGRAMS_MAX: usize = 64;
/// How long a request waits for programs that end, and how many do.
const FREED: Duration = Duration::from_secs(5);
const WAITING_MAX: usize = 16;
/// How long others may take until they know of one. (The apinit of one may be upgraded meanwhile.)
const PREPARED: Duration = Duration::from_secs(600);
/// How long an apinit may take to put one into its group. (After 10 s it ends what waits beside the apshepherd.)
const PLACED: Duration = Duration::from_secs(8);

/// What PEs want to have spawned.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Request {
    /// At least one where the request was whole.
    pub programs: Vec<Program>,
    /// What the new PEs find by PMI-1.
    pub entries: Vec<PmiEntry>,
    /// Variables (NAME=VALUE) by which the new PEs find appmix; empty: they are served PMI-1.
    pub pmix: Vec<Vec<u8>>,
    /// `None`: the PE spawns them. Else a PE that it has spawned by PMIx does.
    pub spawner: Option<SpawnedPe>,
}

impl Request {
    /// PEs of all programs.
    pub fn pes(&self) -> u64 {
        self.programs.iter().map(|program| u64::from(program.pes)).sum()
    }
}

/// One program of a request.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Program {
    /// How many PEs run it.
    pub pes: u32,
    /// Its name, to be looked for in PATH.
    pub command: Vec<u8>,
    /// What follows it.
    pub arguments: Vec<Vec<u8>>,
    /// NAME=VALUE, beside the environment that there is.
    pub environment: Vec<Vec<u8>>,
    /// Its working directory; empty: as it is.
    pub folder: Vec<u8>,
    /// Folders before those of PATH, with colons; empty: none.
    pub path: Vec<u8>,
}

/// Which server has passed a request on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    Pmi,
    /// appmix, by this number.
    Mix(u64),
}

/// What was spawned, or is about to be, and has not ended.
#[derive(Clone, Debug)]
struct Live {
    /// Which PE has spawned it.
    rank: u32,
    pes: u64,
    by: By,
    stage: Stage,
    /// Until it is made.
    request: Request,
    /// Whether appmix has still to confirm it, and how many other hosts have.
    waits_for: (bool, usize),
    /// Why one of them can't.
    why_not: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// All are told of it, and know of it by then.
    Preparing(u64),
    Making,
    /// apinit is to place it, until then.
    Waiting(Made, u64),
    Running,
    /// It was refused, and is being ended.
    Ending,
}

/// A request that waits for room.
#[derive(Clone, Debug)]
struct Wanted {
    rank: u32,
    by: By,
    request: Request,
    /// Until then.
    until: u64,
    /// Why it will be refused.
    why: String,
}

/// Why a request is refused.
enum Refusal {
    /// There is no room for it; and whether there is when programs have ended.
    NoRoom(String, bool),
    Other(String),
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Spawned {
    last: u64,
    /// In the order in which they came.
    wanted: VecDeque<Wanted>,
    /// The application was spawned itself, by PEs of another.
    within: bool,
    programs: BTreeMap<u64, Live>,
    elsewhere: Elsewhere,
    /// PEs may share processors.
    pub shares: bool,
    /// No other host has PEs.
    pub alone: bool,
    /// The first PE of each other one; none, if there are too many of them.
    pub others: Vec<u32>,
    /// PEs with a PMIx of release 3. (They can't read what a server of a later release says about PEs that are all on other
    /// hosts.)
    of_pmix_3: BTreeSet<u32>,
    /// How the PMIx namespaces of what PEs of this host spawn begin.
    spaces: String,
}

impl Spawned {
    /// None yet, of this launch.
    pub fn of(launch: &HostLaunch) -> Spawned {
        Spawned {
            shares: launch.launch.shares,
            alone: launch.alone,
            others: launch.others.clone(),
            within: launch.spawned.is_some(),
            spaces: format!("{}.{}", launch.pmix_name, launch.host_index),
            ..Spawned::default()
        }
    }

    /// The PMIx namespace of one.
    fn space(&self, number: u64) -> String {
        format!("{}.{number}", self.spaces)
    }

    /// This PE has one.
    pub fn with_pmix_3(&mut self, rank: u32) {
        self.of_pmix_3.insert(rank);
    }

    /// Whether none is left.
    pub fn is_empty(&self) -> bool {
        self.programs.is_empty()
    }

    /// When one has waited for too long.
    pub fn due_ns(&self) -> Option<u64> {
        let until = |program: &Live| match program.stage {
            Stage::Preparing(until) | Stage::Waiting(_, until) => Some(until),
            _ => None,
        };
        let wanted = self.wanted.iter().map(|wanted| wanted.until);
        self.programs.values().filter_map(until).chain(wanted).min()
    }

    /// What apinit has to be asked (again).
    pub fn wait(&self) -> impl Iterator<Item = FromShepherd> {
        self.programs.values().filter_map(|program| match program.stage {
            Stage::Waiting(made, _) => Some(FromShepherd::DebuggerMade(made)),
            _ => None,
        })
    }
}

impl Shepherd {
    /// A PE wants this.
    pub(super) fn spawn(&mut self, now_ns: u64, rank: u32, by: By, request: Request) {
        match self.may_spawn(rank, by, &request) {
            Ok(()) => self.begin_spawn(now_ns, rank, by, request),
            Err(Refusal::NoRoom(why, true)) if self.spawned.wanted.len() < WAITING_MAX => {
                let until = after(now_ns, FREED);
                self.spawned.wanted.push_back(Wanted { rank, by, request, until, why });
            }
            Err(Refusal::NoRoom(why, _) | Refusal::Other(why)) => {
                self.refuse_spawn(now_ns, rank, by, &why);
            }
        }
    }

    /// Something has ended: there may be room for what waits.
    fn spawn_wanted(&mut self, now_ns: u64) {
        for wanted in std::mem::take(&mut self.spawned.wanted) {
            match self.may_spawn(wanted.rank, wanted.by, &wanted.request) {
                Ok(()) => self.begin_spawn(now_ns, wanted.rank, wanted.by, wanted.request),
                Err(Refusal::NoRoom(_, true)) => self.spawned.wanted.push_back(wanted),
                Err(Refusal::NoRoom(why, false) | Refusal::Other(why)) => {
                    self.refuse_spawn(now_ns, wanted.rank, wanted.by, &why);
                }
            }
        }
    }

    fn begin_spawn(&mut self, now_ns: u64, rank: u32, by: By, request: Request) {
        self.spawned.last += 1;
        let number = self.spawned.last;
        let pes = request.pes();
        let waits_for = (by != By::Pmi, self.spawned.others.len());
        let (stage, why_not) = (Stage::Preparing(after(now_ns, PREPARED)), String::new());
        let live = Live { rank, pes, by, stage, request, waits_for, why_not };
        self.spawned.programs.insert(number, live);
        match by {
            By::Pmi => self.make_spawned(number),
            By::Mix(_) => self.prepare_spawned(now_ns, number),
        }
    }

    /// All who serve PMIx are told of the new PEs before they are there.
    fn prepare_spawned(&mut self, now_ns: u64, number: u64) {
        let space = self.spawned.space(number);
        let Some(Live { rank, request, pes, .. }) = self.spawned.programs.get(&number) else {
            return;
        };
        let (parent, spawner) = (*rank, request.spawner.clone());
        let firsts = request.programs.iter().scan(0u32, |first, program| {
            *first = first.saturating_add(program.pes);
            Some(*first)
        });
        let firsts = firsts.take(request.programs.len().saturating_sub(1)).collect();
        let width = u32::try_from(*pes).unwrap_or(u32::MAX);
        let spawning = Spawning { space, width, firsts, parent, spawner };
        let prepare = ToMix::Prepare { number, spawning: spawning.clone() };
        self.actions.push(Action::TellMix(prepare));
        for other in self.spawned.others.clone() {
            let text = LetterText::Spawning(spawning.clone());
            self.ask(now_ns, (parent, other), text, Asker::Spawning(number));
        }
    }

    /// Another host knows of what is to be spawned, or can't.
    pub(super) fn known_elsewhere(&mut self, now_ns: u64, number: u64, status: i32, why: &[u8]) {
        let Some(live) = self.spawned.programs.get_mut(&number) else { return };
        live.waits_for.1 = live.waits_for.1.saturating_sub(1);
        // (Where all PEs have ended, none will meet them.)
        if ![SUCCESS, NOT_FOUND].contains(&status) {
            live.why_not = format!("on another host of it, {}", String::from_utf8_lossy(why));
        }
        self.make_if_all_know(now_ns, number);
    }

    fn make_if_all_know(&mut self, now_ns: u64, number: u64) {
        let Some(live) = self.spawned.programs.get(&number) else { return };
        if !matches!(live.stage, Stage::Preparing(_)) || live.waits_for != (false, 0) {
            return;
        }
        if live.why_not.is_empty() && !self.ending {
            return self.make_spawned(number);
        }
        let Some(live) = self.forget_spawned(now_ns, number) else { return };
        let why = if self.ending { "the application ends" } else { &live.why_not };
        self.refuse_spawn(now_ns, live.rank, live.by, why);
    }

    fn make_spawned(&mut self, number: u64) {
        let Some(live) = self.spawned.programs.get_mut(&number) else { return };
        live.stage = Stage::Making;
        let (rank, request) = (live.rank, std::mem::take(&mut live.request));
        self.actions.push(Action::Spawn { number, rank, request });
    }

    /// What appmix says about programs that are spawned. Anything else is given back.
    pub(super) fn mix_spawns(&mut self, now_ns: u64, said: FromMix) -> Option<FromMix> {
        match said {
            FromMix::Spawn { number, rank, spawner, programs } => {
                let request = Request { programs, spawner, ..Request::default() };
                self.spawn(now_ns, rank, By::Mix(number), request);
            }
            FromMix::Prepared { number, environment, why_not } => {
                let Some(live) = self.spawned.programs.get_mut(&number) else {
                    self.known_here(number, why_not);
                    return None;
                };
                if std::mem::take(&mut live.waits_for.0) {
                    live.request.pmix = environment;
                    if !why_not.is_empty() {
                        live.why_not = why_not;
                    }
                    self.make_if_all_know(now_ns, number);
                }
            }
            FromMix::SpawnedAbort { number, code } => {
                let rank = self.spawned.programs.get(&number)?.rank;
                let nid = self.nid(rank);
                let code = Cause::Abort { rank, nid, code }.status();
                self.bad(now_ns, Cause::SpawnedEnd { rank, nid, code });
            }
            other => return Some(other),
        }
        None
    }

    fn forget_spawned(&mut self, now_ns: u64, number: u64) -> Option<Live> {
        let live = self.spawned.programs.remove(&number)?;
        if let By::Mix(_) = live.by {
            let space = self.spawned.space(number);
            // (Those of one that ends end by themselves.)
            let others = if self.ending { Vec::new() } else { self.spawned.others.clone() };
            for other in others {
                let text = LetterText::SpawnedEnded(space.clone());
                self.ask(now_ns, (live.rank, other), text, Asker::Nobody);
            }
            self.spawned_is_gone(now_ns, space);
        }
        Some(live)
    }

    fn answer_spawn(&mut self, now_ns: u64, rank: u32, by: By, runs: Option<u64>) {
        match by {
            By::Pmi => {
                let effects = self.pmi.as_mut().map(|pmi| pmi.spawned(rank, runs.is_some()));
                self.pmi_effects(now_ns, effects.unwrap_or_default());
            }
            By::Mix(number) => {
                let status = if runs.is_some() { SUCCESS } else { SPAWN_FAILED };
                let name = runs.map(|own| self.spawned.space(own)).unwrap_or_default();
                self.actions.push(Action::TellMix(ToMix::Spawned { number, status, name }));
            }
        }
    }

    fn refuse_spawn(&mut self, now_ns: u64, rank: u32, by: By, why: &str) {
        self.answer_spawn(now_ns, rank, by, None);
        let text = format!("called MPI_Comm_spawn in vain: {why}");
        self.notice(self.nid(rank), Seen::Pmi { rank, text });
    }

    fn may_spawn(&self, rank: u32, by: By, request: &Request) -> Result<(), Refusal> {
        self.is_sound(rank, by, request).map_err(Refusal::Other)?;
        let wanted = request.pes();
        let (most, used) = self.room_to_spawn(rank);
        let room = most.saturating_sub(used);
        if wanted <= room {
            return Ok(());
        }
        let room = match room {
            0 => "no processor but those on which PEs run".to_owned(),
            room => format!("{} beside those on which PEs run", count(room, "processor")),
        };
        let cure = match self.spawned.within {
            false => {
                "give each PE as many as it needs, with its own (-d), or let PEs share processors (--oversubscribe)"
            }
            true => {
                "PEs that were spawned by PMI-1 spawn others only if all share processors (--oversubscribe)"
            }
        };
        let processes = match wanted {
            1 => "a process".to_owned(),
            wanted => format!("{wanted} processes"),
        };
        Err(Refusal::NoRoom(format!("{processes} for which it has {room}: {cure}"), wanted <= most))
    }

    /// Whether a request can be met, if there is room.
    fn is_sound(&self, rank: u32, by: By, request: &Request) -> Result<(), String> {
        if self.ending || self.leaving {
            return Err("the application ends".to_owned());
        }
        if request.spawner.is_none() && self.pes.get(&rank).is_none_or(|pe| pe.ended) {
            return Err("it has ended".to_owned());
        }
        if self.spawned.programs.len() >= PROGRAMS_MAX {
            return Err(format!(
                "PEs of its host have spawned {PROGRAMS_MAX} programs that have not ended, the maximum"
            ));
        }
        if by != By::Pmi && !self.spawned.alone {
            if self.spawned.others.is_empty() {
                let most = HostLaunch::OTHERS_MAX + 1;
                return Err(format!("with Open MPI, PEs on more than {most} hosts can't spawn"));
            }
            if self.spawned.of_pmix_3.contains(&rank) {
                let why = "PEs are on several hosts, and its Open MPI has PMIx 3, which can't connect them with what is \
                           spawned: use one that was built with libpmix, or Open MPI 5";
                return Err(why.to_owned());
            }
        }
        if request.programs.is_empty() {
            let why = "it names more than 256 programs, or has more than a megabyte of words and variables";
            return Err(why.to_owned());
        }
        if request.programs.iter().any(|program| program.command.is_empty()) {
            return Err("a program has no name".to_owned());
        }
        match request.pes() {
            wanted if wanted > PES_MAX as u64 => {
                Err(format!("{wanted} processes are more than {PES_MAX}, the maximum of one host"))
            }
            _ => Ok(()),
        }
    }

    /// How many PEs this one may have spawned at a time, with those beside it, and how many there are.
    fn room_to_spawn(&self, rank: u32) -> (u64, u64) {
        let Some(own) = self.pes.get(&rank).filter(|_| !self.spawned.shares) else {
            return (u64::MAX, 0);
        };
        let beside = |other: &super::Pe| {
            other.nid == own.nid && other.cpus.iter().any(|cpu| own.cpus.binary_search(cpu).is_ok())
        };
        let mut room = u64::from(own.depth) - u64::from(!own.ended);
        for (_, pe) in self.pes.iter().filter(|(other, pe)| **other != rank && beside(pe)) {
            room += u64::from(pe.depth) - u64::from(!pe.ended);
        }
        let near = |program: &&Live| {
            program.rank == rank || self.pes.get(&program.rank).is_some_and(beside)
        };
        (room, self.spawned.programs.values().filter(near).map(|program| program.pes).sum())
    }

    /// Its process waits to become aprun.
    pub(super) fn spawn_made(&mut self, now_ns: u64, number: u64, nid: Nid, pid: u32) {
        let Some(program) = self.spawned.programs.get_mut(&number) else { return };
        let made = Made { number, nid, pid, spawned: true };
        program.stage = Stage::Waiting(made, after(now_ns, PLACED));
        self.send(|_| FromShepherd::DebuggerMade(made));
    }

    /// apinit has put it into its group, or could not.
    pub(super) fn spawn_placed(&mut self, now_ns: u64, placed: Placed) {
        let Placed { number, why_not, .. } = placed;
        let Some(program) = self.spawned.programs.get_mut(&number) else { return };
        if !matches!(program.stage, Stage::Waiting(..)) {
            return;
        }
        let (rank, by) = (program.rank, program.by);
        if !why_not.is_empty() {
            program.stage = Stage::Ending;
            self.actions.push(Action::EndSpawned(number));
            return self.refuse_spawn(now_ns, rank, by, &why_not);
        }
        program.stage = Stage::Running;
        self.actions.push(Action::LetSpawnedRun(number));
        self.answer_spawn(now_ns, rank, by, Some(number));
    }

    /// The time is over of those that wait.
    pub(super) fn spawns_late(&mut self, now_ns: u64) {
        if self.spawned.wanted.front().is_some_and(|first| first.until <= now_ns) {
            // (A PE may have ended and left its processor.)
            self.spawn_wanted(now_ns);
        }
        while let Some(first) = self.spawned.wanted.front()
            && first.until <= now_ns
            && let Some(Wanted { rank, by, why, .. }) = self.spawned.wanted.pop_front()
        {
            self.refuse_spawn(now_ns, rank, by, &why);
        }
        let (mut unknown, mut unplaced) = (Vec::new(), Vec::new());
        for (number, program) in &self.spawned.programs {
            match program.stage {
                Stage::Preparing(until) if until <= now_ns => unknown.push(*number),
                Stage::Waiting(_, until) if until <= now_ns => unplaced.push(*number),
                _ => {}
            }
        }
        for number in unknown {
            self.asks.withdraw(Asker::Spawning(number));
            if let Some(Live { rank, by, waits_for: (here, _), .. }) =
                self.forget_spawned(now_ns, number)
            {
                let who = if here { "appmix" } else { "another host of it" };
                let why = format!("{who} did not answer within {} s", PREPARED.as_secs());
                self.refuse_spawn(now_ns, rank, by, &why);
            }
        }
        for number in unplaced {
            let why_not = format!(
                "the apinit of its host has not put it into its control group within {} s: it may be of an older \
                 release",
                PLACED.as_secs()
            );
            self.spawn_placed(now_ns, Placed { number, why_not, spawned: true });
        }
    }

    /// It has ended; an Err: it could not be made, or could not become aprun.
    pub(super) fn spawn_ended(&mut self, now_ns: u64, number: u64, end: Result<PeEnd, String>) {
        let Some(program) = self.forget_spawned(now_ns, number) else { return };
        self.spawn_ended_so(now_ns, program, end);
        self.spawn_wanted(now_ns);
    }

    fn spawn_ended_so(&mut self, now_ns: u64, program: Live, end: Result<PeEnd, String>) {
        let (rank, nid) = (program.rank, self.nid(program.rank));
        let of_memory = |shepherd: &mut Shepherd, end| {
            !shepherd.ending && shepherd.killed_for_memory(now_ns, rank, nid, end)
        };
        if let (Stage::Running, Ok(end)) = (program.stage, &end)
            && of_memory(self, *end)
        {
            return;
        }
        let cause = match (program.stage, end) {
            (Stage::Ending, _) | (Stage::Running, Ok(PeEnd::Exit(0))) => return,
            (Stage::Running, Ok(PeEnd::Exit(code))) => Cause::SpawnedEnd { rank, nid, code },
            (Stage::Running, Ok(PeEnd::Signal(signal))) => {
                let code = Cause::PeSignal { rank, nid, signal }.status();
                Cause::SpawnedEnd { rank, nid, code }
            }
            (Stage::Running, Err(why)) => {
                Cause::NotMet { rank, nid, text: format!("can't run what it has spawned: {why}") }
            }
            (Stage::Preparing(_) | Stage::Making | Stage::Waiting(..), end) => {
                let why = end.err().unwrap_or_else(|| "its process was killed".to_owned());
                return self.refuse_spawn(now_ns, rank, program.by, &why);
            }
        };
        self.bad(now_ns, cause);
    }
}
