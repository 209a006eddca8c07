//! Gangs of stamping PEs (tests/programs/stamp.c) under a real apinit, and what their stamps say.

use crate::apinit::front::*;
use crate::apinit::rig::*;
use crate::support::mpi;
use nix::time::{ClockId, clock_gettime};
use psched::apteam::Key;
use psched::apteam::ending::{Cause, HostEnd};
use psched::apteam::protocol::node::{Command, PlaceCommand, Report};
use psched::apteam::protocol::turns::{PlannedSlice, SlicePlan, StopMeans, Switch};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

pub const MS: u64 = 1_000_000;
const HEAD: usize = 16;

/// CLOCK_MONOTONIC in nanoseconds: here psched's too.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("there is one");
    Duration::from(now).as_nanos() as u64
}

/// The program, built once; `None` without a C compiler.
pub fn stamper(test: &str) -> Option<PathBuf> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    BUILT.get_or_init(|| mpi::plain(test, "stamp")).clone()
}

/// A gang that goes.
pub struct Gang {
    pub key: Key,
    pub front: Front,
    table: PathBuf,
}

/// An uninterrupted run of one process, in nanoseconds.
pub type Run = (u64, u64);

impl Gang {
    /// Places it on all of node 0 together with others, and lets it go; `script` with `STAMP`, the
    /// program and its table, in it.
    pub async fn launch(
        instance: &Instance,
        link: &mut Link,
        program: &Path,
        name: &str,
        script: &str,
    ) -> Gang {
        let place = PlaceCommand { shares: true, ..instance.place(name, &[&[0]], 2) };
        Gang::launch_placed(instance, link, program, place, script).await
    }

    pub async fn launch_placed(
        instance: &Instance,
        link: &mut Link,
        program: &Path,
        place: PlaceCommand,
        script: &str,
    ) -> Gang {
        let key = place.key;
        link.place(&place).await;
        let table = instance.folder.path().join(format!("stamps-{key}"));
        let stamp = format!("{} {}", program.display(), table.display());
        let script =
            format!("cd {}; {}", instance.folder.path().display(), script.replace("STAMP", &stamp));
        let mut front = Front::launch(&instance.apinit_socket(0), key, &script).await;
        front.until_going().await;
        Gang { key, front, table }
    }

    /// What its processes have run.
    pub fn runs(&self) -> Vec<Run> {
        runs_of(&self.table)
    }

    /// When it was last seen to run.
    pub fn last(&self) -> u64 {
        self.runs().iter().map(|run| run.1).max().unwrap_or(0)
    }

    /// How often it has done what it is about.
    pub fn rounds(&self) -> u64 {
        words_of(&self.table).get(1).copied().unwrap_or(0)
    }
}

/// What is in a table of stamps: how many runs, how many rounds, and the runs.
fn words_of(table: &Path) -> Vec<u64> {
    let bytes = std::fs::read(table).unwrap_or_default();
    let (head, rest) = bytes.split_at(bytes.len().min(HEAD));
    let count = head.get(..8).map_or(0, |b| u64::from_ne_bytes(b.try_into().expect("eight")));
    let used = rest.len().min(count as usize * 16);
    [head, &rest[..used]]
        .concat()
        .chunks_exact(8)
        .map(|b| u64::from_ne_bytes(b.try_into().expect("eight")))
        .collect()
}

/// What the processes that share this table have run.
pub fn runs_of(table: &Path) -> Vec<Run> {
    let words = words_of(table);
    let runs = words.get(2..).unwrap_or_default().chunks_exact(2).map(|w| (w[0], w[1]));
    runs.filter(|(first, last)| *first > 0 && last >= first).collect()
}

/// All the time in which somebody of a gang ran, as disjoint stretches.
fn stretches(runs: Vec<Run>) -> Vec<Run> {
    let mut runs = runs;
    runs.sort_unstable();
    let mut all: Vec<Run> = Vec::new();
    for (first, last) in runs {
        match all.last_mut() {
            Some(before) if first <= before.1 => before.1 = before.1.max(last),
            _ => all.push((first, last)),
        }
    }
    all
}

/// How often somebody of a gang began to run after a millisecond without.
pub fn turns(runs: Vec<Run>) -> usize {
    let all = stretches(runs);
    let pauses = all.windows(2).filter(|two| two[1].0 - two[0].1 > MS);
    usize::from(!all.is_empty()) + pauses.count()
}

/// Times at which both ran.
pub fn overlaps(one: Vec<Run>, other: Vec<Run>) -> Vec<(Run, Run)> {
    let (one, other) = (stretches(one), stretches(other));
    let mut found = Vec::new();
    let mut at = 0;
    for run in one {
        while other.get(at).is_some_and(|o| o.1 < run.0) {
            at += 1;
        }
        found.extend(other[at..].iter().take_while(|o| o.0 <= run.1).map(|o| (run, *o)));
    }
    found
}

/// Nobody ran an instruction while another did.
#[track_caller]
pub fn exclusive(gangs: &[&Gang]) {
    for (at, one) in gangs.iter().enumerate() {
        for other in &gangs[..at] {
            let found = overlaps(one.runs(), other.runs());
            assert!(
                found.is_empty(),
                "{} and {} ran at once {} times: {:?}",
                one.key,
                other.key,
                found.len(),
                &found[..found.len().min(5)]
            );
        }
    }
}

/// A plan of equal slices, each with one gang, that begins in a moment.
pub fn plan(generation: u64, slice: Duration, gangs: &[Key]) -> SlicePlan {
    let begins_ns = now_ns() + 20 * MS;
    SlicePlan {
        generation,
        begins_ns,
        from_ns: begins_ns,
        agreed: true,
        members: gangs.to_vec(),
        slices: gangs.iter().map(|key| PlannedSlice { length: slice, party: vec![*key] }).collect(),
        takers: Vec::new(),
    }
}

/// Sends a plan, and waits until it has been taken.
pub async fn planned(link: &mut Link, plan: SlicePlan) {
    let generation = plan.generation;
    link.send(Command::Plan(Box::new(plan))).await;
    until_report(link, |report| matches!(report, Report::PlanTaken(n) if *n == generation)).await;
}

pub async fn until_report(link: &mut Link, mut wanted: impl FnMut(&Report) -> bool) -> Report {
    loop {
        let report = link.report().await;
        if wanted(&report) {
            return report;
        }
    }
}

/// Waits until so many changes of this plan have been told; all of them.
pub async fn switches(link: &mut Link, generation: u64, count: usize) -> Vec<Switch> {
    let mut all = Vec::new();
    while all.len() < count {
        if let Report::Switches(told) = link.report().await {
            all.extend(told.switches.into_iter().filter(|s| s.generation == generation));
        }
    }
    all
}

/// Ends it by KILL, wherever it is in its turns.
pub async fn end_now(link: &mut Link, gang: &mut Gang) {
    let cause = Cause::Kill { uid: 0, signal: 9 };
    let kill_after = Duration::ZERO;
    link.send(Command::Terminate { key: gang.key, cause, kill_after }).await;
    ended(link, gang).await;
}

/// Waits until it is over.
pub async fn ended(link: &mut Link, gang: &mut Gang) -> HostEnd {
    // Its output is to be taken before it is over.
    gang.front.until_done().await;
    let of = |report: &Report| matches!(report, Report::Ended(end) if end.key == gang.key);
    let Report::Ended(end) = until_report(link, of).await else { unreachable!() };
    link.acknowledge(gang.key).await;
    *end
}

pub async fn kill(link: &mut Link, gangs: Vec<Gang>) {
    for mut gang in gangs {
        end_now(link, &mut gang).await;
    }
}

/// Where there is no freezer exclusivity is not promised.
pub fn freezes(test: &str, stops: StopMeans) -> bool {
    let freezes = stops == StopMeans::Freezer;
    if !freezes {
        crate::support::skip(test, "no cgroup v2, whose freezer this is about");
    }
    freezes
}

/// A played psched and a real apinit of node 0, whose gangs can be frozen; `None`: the test is skipped.
pub async fn open(test: &str) -> Option<(Instance, Apinit, Link)> {
    let mut instance = Instance::new().await;
    let apinit = Apinit::start(&instance, "0");
    let link = instance.link().await;
    if freezes(test, link.hello.stops) {
        return Some((instance, apinit, link));
    }
    apinit.end().await;
    None
}

/// The middle one, and the one that 99 of 100 do not exceed, in microseconds.
pub fn quantiles(values: impl Iterator<Item = u64>) -> (u64, u64) {
    let mut all: Vec<u64> = values.map(|ns| ns / 1_000).collect();
    all.sort_unstable();
    let at = |part: usize| all.get(all.len() * part / 100).copied().unwrap_or(0);
    (at(50), at(99))
}
