//! Binding the threads of an application that stands to other processors.
//!
//! # Problem
//! An application may have thousands of threads, each bound to some of the processors of its PE. All are to
//! be bound anew or none; and an apinit that is killed in between must not leave some here and some there.
//!
//! # Approach
//! The application is frozen, so that nothing forks or ends by itself meanwhile. First it is written down
//! what each thread is bound to, and to what it is to be bound: that is the journal. Then it is done, then the
//! new placement is kept, then the journal goes. What it says are sets, not changes, so that it can be done
//! again from the beginning by the next life of this apinit.
//!
//! ```text
//!   thread 4711   0,1 -> 4,5        each old processor has its new one
//!   thread 4712   0   -> 4
//!   thread 4713   0-7 -> 4,5        it has freed itself of what PEs are bound to, and may have all of those
//! ```
//!
//! Where control groups confine processes to processors (cpuset), those have their new ones before
//! the threads, for the kernel binds no thread outside of its group's. (Linux before 6.2 binds all
//! threads of a group to all of its processors when these change: so it is known before what each
//! is bound to.)
//!
//! Memory follows where the new processors lie in another NUMA node. Pages that the kernel leaves cost time
//! when they are used, and nothing else.

use super::places::{self, Seating};
use super::process_tracking::{self, Trail};
use super::runtime::AppDirectory;
use crate::apinit::decide::Rebind;
use crate::apteam::protocol::node::PlaceCommand;
use crate::machine::Nid;
use crate::node::groups::{AppGroups, Seat};
use crate::os::affinity;
use crate::os::claims::list;
use crate::rpc::pb;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex};

/// Threads are looked for again, for one may just have been made, at most so often.
const LOOKS: usize = 4;

/// What there is to be bound anew.
#[derive(Debug)]
pub(super) struct Rebinding {
    pub directory: AppDirectory,
    /// Where there are none, the trail leads to its processes.
    pub groups: Option<AppGroups>,
    pub trail: Trail,
    pub parts: Vec<Rebind>,
    pub place: PlaceCommand,
    /// The NUMA node of each processor.
    pub numa: BTreeMap<u32, u32>,
    /// Where it may run now. Nobody looks after it while it is being bound.
    pub seating: Arc<Mutex<Seating>>,
    /// Where each node's part may run then.
    pub seats: BTreeMap<Nid, Seat>,
}

impl Rebinding {
    /// Does it.
    ///
    /// # Errors
    /// Why not, in words; all threads are bound as before then.
    pub fn carry_out(&self) -> Result<(), String> {
        let mut seating = places::lock(&self.seating);
        let mut known = BTreeSet::new();
        let mut journal = pb::MoveJournal {
            place: Some(self.place.clone().into()),
            threads: Vec::new(),
            groups: self.seated_groups(&seating),
        };
        for look in 0..LOOKS {
            let new: Vec<pb::BoundThread> =
                self.threads().into_iter().filter(|thread| known.insert(thread.tid)).collect();
            if new.is_empty() && look > 0 {
                break;
            }
            let before = journal.threads.len();
            journal.threads.extend(new);
            let kept = self.directory.keep_move(&journal).map_err(|error| format!("{error:#}"));
            let seated = kept.and_then(|()| match look {
                0 => reseat(self.groups.as_ref(), &journal.groups, false),
                _ => Ok(()),
            });
            let bound = seated.and_then(|()| bind(&journal.threads[before..]));
            if let Err(why) = bound {
                self.take_back(&journal);
                return Err(why);
            }
        }
        if let Err(error) = self.directory.keep_place(self.place.clone()) {
            self.take_back(&journal);
            return Err(format!("{error:#}"));
        }
        self.directory.drop_move();
        seating.seats.clone_from(&self.seats);
        self.bring_memory();
        Ok(())
    }

    fn take_back(&self, journal: &pb::MoveJournal) {
        take_back(self.groups.as_ref(), journal);
        self.directory.drop_move();
    }

    /// Where its groups are confined to now, and then.
    fn seated_groups(&self, now: &Seating) -> Vec<pb::SeatedGroup> {
        if !self.groups.as_ref().is_some_and(AppGroups::confined) {
            return Vec::new();
        }
        let group = |(nid, after): (&Nid, &Seat)| {
            let before = now.seats.get(nid).cloned().unwrap_or_default();
            pb::SeatedGroup {
                nid: nid.0,
                cpus_before: before.cpus,
                cpus_after: after.cpus.clone(),
                mems_before: before.mems,
                mems_after: after.mems.clone(),
            }
        };
        self.seats.iter().map(group).collect()
    }

    /// All threads that are to be bound otherwise.
    fn threads(&self) -> Vec<pb::BoundThread> {
        let mut all = Vec::new();
        let any: BTreeSet<u32> = self.seats.values().flat_map(|seat| seat.cpus.clone()).collect();
        for (born, pid, cpus) in self.processes() {
            let seat = born.and_then(|born| self.seats.get(&born)).map(|seat| &seat.cpus);
            let whole: BTreeSet<u32> =
                seat.map_or(any.clone(), |seat| seat.iter().copied().collect());
            for tid in process_tracking::threads_of(pid) {
                all.extend(bound_thread(tid, &cpus, &whole));
            }
        }
        all
    }

    /// Its processes, each with the node on which it was launched, where that is known, and with
    /// what becomes of its processors.
    fn processes(&self) -> Vec<(Option<Nid>, i32, BTreeMap<u32, u32>)> {
        let Some(groups) = &self.groups else {
            let all: BTreeMap<u32, u32> =
                self.parts.iter().flat_map(|part| part.cpus.iter().copied()).collect();
            let found = self.trail.find().ours;
            return found.into_iter().map(|process| (None, process.pid, all.clone())).collect();
        };
        let of: BTreeMap<Nid, BTreeMap<u32, u32>> = self
            .parts
            .iter()
            .map(|part| (part.born, part.cpus.iter().copied().collect()))
            .collect();
        let in_groups = groups.left_by_birth().into_iter();
        in_groups
            .filter_map(|(born, pid)| Some((Some(born), pid, of.get(&born)?.clone())))
            .collect()
    }

    /// To the NUMA nodes of its new processors.
    fn bring_memory(&self) {
        if self.numa.values().collect::<BTreeSet<_>>().len() < 2 {
            return;
        }
        for (_, pid, cpus) in self.processes() {
            let pairs = cpus
                .iter()
                .filter_map(|(old, new)| Some((*self.numa.get(old)?, *self.numa.get(new)?)));
            let pairs: BTreeSet<(u32, u32)> = pairs.filter(|(old, new)| old != new).collect();
            for (from, to) in pairs {
                if let Err(error) = affinity::migrate_pages(pid, from, to) {
                    tracing::info!(pid, %error, "the memory of a process stays on NUMA node \
                                                 {from}");
                }
            }
        }
    }
}

/// Finishes what a former life of this apinit has begun: the placement as it is then.
pub(super) fn finish(directory: &AppDirectory) -> Option<PlaceCommand> {
    let journal = directory.begun_move()?;
    let place = PlaceCommand::try_from(journal.place.clone()?).ok()?;
    // Those that are still the same threads.
    let same =
        |thread: &pb::BoundThread| process_tracking::started(thread.tid) == Some(thread.started);
    let threads: Vec<pb::BoundThread> = journal.threads.into_iter().filter(same).collect();
    let journal = pb::MoveJournal { threads, ..journal };
    let born = journal.groups.iter().map(|group| Nid(group.nid)).collect();
    let groups = directory.groups().and_then(|path| AppGroups::found(path, born));
    let seated = reseat(groups.as_ref(), &journal.groups, false);
    let done = seated
        .and_then(|()| bind(&journal.threads))
        .and_then(|()| directory.keep_place(place.clone()).map_err(|error| format!("{error:#}")));
    if let Err(why) = done {
        tracing::warn!("an unfinished move is rolled back: {why}");
        take_back(groups.as_ref(), &journal);
        directory.drop_move();
        return None;
    }
    directory.drop_move();
    Some(place)
}

/// Confines groups to where they are after a move, or were before.
///
/// # Errors
/// Which one can't be, and why.
fn reseat(groups: Option<&AppGroups>, all: &[pb::SeatedGroup], back: bool) -> Result<(), String> {
    let Some(groups) = groups else { return Ok(()) };
    for group in all {
        let (cpus, mems) = match back {
            true => (&group.cpus_before, &group.mems_before),
            false => (&group.cpus_after, &group.mems_after),
        };
        let seat = Seat { cpus: cpus.clone(), mems: mems.clone() };
        groups
            .reseat(Nid(group.nid), &seat)
            .map_err(|e| format!("the group of NID {} can't be confined: {e}", group.nid))?;
    }
    Ok(())
}

/// All as it was.
fn take_back(groups: Option<&AppGroups>, journal: &pb::MoveJournal) {
    if let Err(why) = reseat(groups, &journal.groups, true) {
        tracing::warn!("a move is rolled back: {why}");
    }
    for thread in &journal.threads {
        // An Err: it has ended.
        let _ = affinity::set(thread.tid, &thread.before);
    }
}

/// What a thread is bound to, and is to be: where its PE was bound to all or to some processors, to
/// those that they become; else to the `whole` of them. `None`: it has ended.
fn bound_thread(
    tid: i32,
    cpus: &BTreeMap<u32, u32>,
    whole: &BTreeSet<u32>,
) -> Option<pb::BoundThread> {
    let before = affinity::get(tid).ok()?;
    let each: Option<BTreeSet<u32>> = before.iter().map(|cpu| cpus.get(cpu).copied()).collect();
    let all = cpus.keys().all(|cpu| before.contains(cpu));
    let after = each.filter(|_| !all || whole.is_empty()).unwrap_or_else(|| whole.clone());
    let after: Vec<u32> = after.into_iter().collect();
    if after.is_empty() {
        return None;
    }
    let started = process_tracking::started(tid)?;
    Some(pb::BoundThread { tid, started, before, after })
}

/// Binds them.
///
/// # Errors
/// Which one can't be, and why.
fn bind(threads: &[pb::BoundThread]) -> Result<(), String> {
    for pb::BoundThread { tid, after, .. } in threads {
        match affinity::set(*tid, after) {
            Err(error) if error.raw_os_error() != Some(libc::ESRCH) => {
                return Err(refused(*tid, after, &error));
            }
            _ => {}
        }
    }
    Ok(())
}

fn refused(tid: i32, cpus: &[u32], error: &io::Error) -> String {
    let cpus = list(cpus.iter().copied());
    format!("thread {tid} can't be bound to processors {cpus}: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper() -> std::process::Child {
        std::process::Command::new("sleep").arg("60").spawn().expect("sleep")
    }

    #[test]
    fn sets_are_translated_and_free_threads_get_all() {
        let mut child = sleeper();
        let tid = child.id() as i32;
        let all = affinity::get(tid).expect("a child");
        affinity::set(tid, &all[..1]).expect("a child");
        let whole = [70, 71].into();
        let after = |to: &[(u32, u32)]| {
            let bound = bound_thread(tid, &to.iter().copied().collect(), &whole).expect("it lives");
            assert_eq!(bound.before, all[..1]);
            bound.after
        };
        assert_eq!(after(&[(all[0], 70), (all[0] + 1, 71)]), [70]);
        // One that has all has all, though several of them were one.
        assert_eq!(after(&[(all[0], 70)]), [70, 71]);
        // One that has bound itself elsewhere.
        assert_eq!(after(&[(all[0] + 1, 70)]), [70, 71]);
        let why = bind(&[pb::BoundThread { tid, started: 0, before: vec![], after: vec![60_000] }]);
        assert!(why.is_err_and(|why| why.contains("60000")));
        let _ = child.kill();
        let _ = child.wait();
        assert_eq!(bind(&[pb::BoundThread { tid, after: all, ..Default::default() }]), Ok(()));
    }

    fn placement() -> pb::PlaceCommand {
        pb::PlaceCommand {
            key: Some(pb::ApplicationKey { apid: 1, incarnation: 1 }),
            owner: Some(pb::Owner::default()),
            shape: Some(pb::Shape { width: 1, depth: 1, ..Default::default() }),
            places: vec![pb::Place { nid: 3, processors: vec![0], pes: 1 }],
            hosts: vec![pb::HostPart { nids: vec![3], ..Default::default() }],
            ticket: vec![0; 16].into(),
            request_id: vec![0; 16].into(),
            ..Default::default()
        }
    }

    /// A journal is finished by whoever finds it; of threads that have gone, and numbers that are others'
    /// by now, nothing is bound.
    #[test]
    fn what_was_begun_is_finished() {
        let mut child = sleeper();
        let tid = child.id() as i32;
        let all = affinity::get(tid).expect("a child");
        let started = process_tracking::started(tid).expect("a child");
        let last = vec![all[all.len() - 1]];
        let thread =
            |started| pb::BoundThread { tid, started, before: all.clone(), after: last.clone() };
        let folder = tempfile::tempdir().expect("a folder");
        for (begun, expected) in [(started + 1, &all), (started, &last)] {
            let directory = AppDirectory::at(folder.path());
            let place = Some(placement());
            let threads = vec![thread(begun)];
            let journal = pb::MoveJournal { place, threads, groups: Vec::new() };
            directory.keep_move(&journal).expect("kept");
            assert!(finish(&directory).is_some() && directory.place().is_some());
            assert_eq!(&affinity::get(tid).expect("a child"), expected);
            assert!(finish(&directory).is_none());
        }
        let _ = child.kill();
        let _ = child.wait();
    }
}
