//! Whether the processes of an application are in the control groups of their nodes, and on their
//! processors.
//!
//! # Problem
//! What is outside of these groups is held by no freezer and bound by no limit: it would run beside
//! the gang whose turn it is. No user may write to a group ([`crate::os::placing`]); root may, and
//! what root does wrong must not be believed to be right. And every process may bind itself to any
//! processor (taskset, numactl, GOMP_CPU_AFFINITY), also to one of another gang's, where no cpuset
//! controller confines it.
//!
//! # Approach
//! When all PEs stand before their first instruction, each node's group holds exactly its PEs, the
//! group above no process, and the shepherd's group its shepherd alone. If not, no PE runs
//! ([`verify`]).
//!
//! Later it is looked again, once a [`PERIOD`] ([`Look`]): at these groups, and at the children of
//! the shepherd, which lists them without a look at all processes. What is found outside goes back
//! to the group in which it was seen before; what was never seen in one is killed. A fork of the shepherd
//! that has executed nothing may be beside it for [`FORMING`]: a debugger, or what a PE spawns, that this
//! apinit is about to put into the group of its node. Where processors
//! are not enforced, each thread that may run on others than its application's on that node is
//! bound to those again. One round takes [`BUDGET`] at most, and the next goes on where it ended:
//! many applications are looked at less often, never for longer.

use super::process_tracking;
use crate::apteam::Key;
use crate::machine::Nid;
use crate::node::groups::{AppGroups, Seat};
use crate::node::tracer::tracer;
use crate::os::affinity;
use crate::os::claims::list;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// How often it is looked.
pub(super) const PERIOD: Duration = Duration::from_secs(1);
/// How long one round may take: one part in 200 of a processor.
const BUDGET: Duration = Duration::from_millis(5);

/// How long a fork of the shepherd may be beside it. (The shepherd gives up what is to be spawned before that.)
const FORMING: Duration = Duration::from_secs(10);

/// Where the processes of an application belong.
#[derive(Debug, Default)]
pub(super) struct Seating {
    /// The processors and NUMA nodes of each node's group, by its name.
    pub seats: BTreeMap<Nid, Seat>,
    /// Processes, each with the group in which it was seen last.
    homes: BTreeMap<i32, Nid>,
    /// Forks of the shepherd beside it, each since when it has been seen.
    forming: BTreeMap<i32, Instant>,
}

impl Seating {
    /// Of one whose processes have not been seen yet.
    pub fn at(seats: BTreeMap<Nid, Seat>) -> Seating {
        Seating { seats, ..Seating::default() }
    }
}

/// To be held as long as processes are moved or bound on purpose.
pub(super) fn lock(seating: &Mutex<Seating>) -> MutexGuard<'_, Seating> {
    seating.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One application that is to be looked at.
#[derive(Debug)]
pub(super) struct Look {
    pub key: Key,
    pub groups: AppGroups,
    pub shepherd: i32,
    pub seating: Arc<Mutex<Seating>>,
}

/// What was found, in words for the log and for the application's user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stray {
    pub key: Key,
    pub text: String,
}

/// Looks at these, beginning after `last`, as long as there is time: what was found, and at which
/// it ended.
pub(super) fn round(mut all: Vec<Look>, last: Option<Key>) -> (Vec<Stray>, Option<Key>) {
    all.sort_by_key(|look| look.key);
    let begun = Instant::now();
    let first = all.iter().position(|look| Some(look.key) > last).unwrap_or(0);
    all.rotate_left(first);
    let (mut found, mut at) = (Vec::new(), last);
    for look in all {
        if begun.elapsed() > BUDGET {
            break;
        }
        at = Some(look.key);
        found.extend(look.take().into_iter().map(|text| Stray { key: look.key, text }));
    }
    (found, at)
}

impl Look {
    fn take(&self) -> Vec<String> {
        let mut seating = match self.seating.try_lock() {
            Ok(seating) => seating,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // It is being moved.
            Err(TryLockError::WouldBlock) => return Vec::new(),
        };
        let inside = self.groups.left_by_birth();
        let mut found = self.put_back(&mut seating, &inside);
        if !self.groups.confined() {
            found.extend(bind_again(&seating, &inside));
        }
        found
    }

    /// What is outside of the nodes' groups.
    fn put_back(&self, seating: &mut Seating, inside: &[(Nid, i32)]) -> Vec<String> {
        let of: BTreeMap<i32, Nid> = inside.iter().map(|(nid, pid)| (*pid, *nid)).collect();
        let children = process_tracking::listed_children(self.shepherd);
        let mut outside: BTreeSet<i32> = self.groups.above().into_iter().collect();
        let beside: BTreeSet<i32> = self.groups.shepherds().into_iter().collect();
        // Above a shepherd that was brought back is the first process of its PID namespace, with
        // what it has made to bring it back.
        let first = process_tracking::parent(self.shepherd).filter(|first| beside.contains(first));
        let known = |pid: i32| {
            pid == self.shepherd
                || is_mix(self.shepherd, pid)
                || first.is_some_and(|first| {
                    pid == first || process_tracking::parent(pid) == Some(first)
                })
        };
        outside.extend(beside.iter().copied().filter(|pid| !known(*pid)));
        let away = |child: &i32| {
            !of.contains_key(child)
                && process_tracking::lives(*child)
                && !(beside.contains(child) && is_mix(self.shepherd, *child))
        };
        outside.extend(children.into_iter().filter(away));
        let before = std::mem::replace(&mut seating.homes, of);
        let forms = |pid: &i32| !before.contains_key(pid) && self.forms(*pid);
        let forming: BTreeMap<i32, Instant> = outside
            .iter()
            .filter(|pid| forms(pid))
            .map(|pid| (*pid, seating.forming.get(pid).copied().unwrap_or_else(Instant::now)))
            .collect();
        outside.retain(|pid| forming.get(pid).is_none_or(|since| since.elapsed() > FORMING));
        seating.forming = forming;
        let mut found = Vec::new();
        for pid in outside {
            let home = before.get(&pid).copied();
            // (Not put back now, it may be at the next look.)
            seating.homes.extend(home.map(|nid| (pid, nid)));
            found.extend(self.end_or_put(pid, home, &group_of(pid)));
        }
        found
    }

    /// It is a debugger, or what a PE spawns, on its way to its node.
    fn forms(&self, pid: i32) -> bool {
        is_forming(&self.groups, self.shepherd, pid)
    }

    /// `None`: it has ended by itself, or has just been born where it belongs.
    fn end_or_put(&self, pid: i32, home: Option<Nid>, group: &str) -> Option<String> {
        // Not to be another's by the time that it is killed.
        let process = process_tracking::process(pid)?;
        let pidfd = process.opened()?;
        let own = |group: String| {
            let nids = self.groups.born().iter();
            nids.into_iter().any(|nid| group.ends_with(&format!("/{}/{nid}", self.name())))
        };
        if own(group_of(pid)) {
            return None;
        }
        let done = match home.map(|nid| self.groups.put(nid, pid)) {
            Some(Ok(())) => "put back",
            _ => {
                let kill = rustix::process::Signal::KILL;
                rustix::process::pidfd_send_signal(pidfd, kill).ok()?;
                "ended"
            }
        };
        Some(format!(
            "process {pid} of it was found in {group}, outside of the control group of its \
             node, and {done}: a process with root's rights had moved it"
        ))
    }

    fn name(&self) -> String {
        let name = self.groups.path().file_name();
        name.unwrap_or_default().to_string_lossy().into_owned()
    }
}

/// Binds those threads to their application's processors that may run on others.
fn bind_again(seating: &Seating, inside: &[(Nid, i32)]) -> Option<String> {
    let mut first = None;
    for (nid, pid) in inside {
        let Some(seat) = seating.seats.get(nid).filter(|seat| !seat.cpus.is_empty()) else {
            continue;
        };
        for tid in process_tracking::threads_of(*pid) {
            // An Err: it has ended.
            let Ok(has) = affinity::get(tid) else { continue };
            let may: Vec<u32> = has.iter().copied().filter(|cpu| seat.cpus.contains(cpu)).collect();
            if may.len() == has.len() {
                continue;
            }
            let to = if may.is_empty() { &seat.cpus } else { &may };
            if affinity::set(tid, to).is_ok() {
                first.get_or_insert((*pid, has, to.clone()));
            }
        }
    }
    let (pid, has, to) = first?;
    Some(format!(
        "process {pid} of it had bound itself to processors {}, not all of which are the \
         application's, and was bound to {} again (-cc, -d and -N give it others)",
        list(has.into_iter()),
        list(to.into_iter())
    ))
}

/// Whether a process is a fork of the shepherd that has executed nothing, and is in the shepherd's group.
pub(super) fn is_forming(groups: &AppGroups, shepherd: i32, pid: i32) -> bool {
    is_fork_of(shepherd, pid) && groups.shepherds().contains(&pid)
}

/// Whether a process is a fork of the shepherd that has executed nothing, and is in the group of this node.
pub(super) fn has_formed(groups: &AppGroups, shepherd: i32, born: Nid, pid: i32) -> bool {
    is_fork_of(shepherd, pid) && groups.left_by_birth().contains(&(born, pid))
}

fn is_fork_of(shepherd: i32, pid: i32) -> bool {
    process_tracking::parent(pid) == Some(shepherd) && process_tracking::is_fork(pid)
}

/// Whether a process is the appmix of this shepherd: its child, and of the file beside this program, or of one that an
/// upgrade has replaced. One that ends has no file any more. Of an ordinary user's apinit the kernel does not say which
/// program it is, since no process of the same user may trace it, and in the midst of its execve it has the name of the
/// shepherd still.
fn is_mix(shepherd: i32, pid: i32) -> bool {
    if process_tracking::parent(pid) != Some(shepherd) {
        return false;
    }
    let name = |pid| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    match fs::read_link(format!("/proc/{pid}/exe")) {
        Ok(path) => {
            let own = std::env::current_exe().map(|own| own.with_file_name("appmix"));
            let path = path.to_string_lossy();
            let path = path.strip_suffix(" (deleted)").unwrap_or(&path);
            own.is_ok_and(|own| own == Path::new(path))
        }
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            let name_now = name(pid);
            name_now == "appmix\n" || name_now == name(shepherd)
        }
        Err(_) => name(pid) == "appmix\n",
    }
}

/// The control group of a process, as the kernel names it.
fn group_of(pid: i32) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let group = text.lines().find_map(|line| line.strip_prefix("0::"));
    group.unwrap_or("another group").to_owned()
}

/// Where each PE of a launch stands, by what the groups hold. `shepherd` is their parent, `pes` how
/// many each node has; an strace may stand beside each of them. They are known from then on.
///
/// # Errors
/// What is where it does not belong, for the user.
pub(super) fn verify(
    groups: &AppGroups,
    shepherd: i32,
    pes: &[(Nid, u32)],
    seating: &mut Seating,
) -> Result<(), String> {
    let own = |pid: i32| pid == shepherd || is_mix(shepherd, pid);
    let beside = groups.shepherds().into_iter().filter(|pid| !own(*pid));
    if let Some(pid) = beside.chain(groups.above()).next() {
        return Err(outside(pid));
    }
    let inside = groups.left_by_birth();
    seating.homes = inside.iter().map(|(nid, pid)| (*pid, *nid)).collect();
    let wrong = |inside: &[(Nid, i32)]| {
        let other = |(nid, pes): &&(Nid, u32)| {
            usize::try_from(*pes) != Ok(inside.iter().filter(|(of, _)| of == nid).count())
        };
        pes.iter().find(other).copied()
    };
    if wrong(&inside).is_none() {
        return Ok(());
    }
    let tracers: BTreeSet<i32> = inside.iter().filter_map(|(_, pid)| tracer(*pid)).collect();
    // (gdb has a child for a moment, which has one too, by which it finds out what the kernel can do.)
    let traces = |pid: i32| {
        let up = std::iter::successors(Some(pid), |pid| process_tracking::parent(*pid));
        up.take(3).any(|pid| tracers.contains(&pid))
    };
    // What it leaves of them for an instant is the shepherd's child, of gdb's file, or ends and has none.
    let exe = |pid: i32| fs::read_link(format!("/proc/{pid}/exe"));
    let of_tracers: BTreeSet<PathBuf> = tracers.iter().filter_map(|pid| exe(*pid).ok()).collect();
    let is_left = |pid: i32| match exe(pid) {
        Ok(path) => {
            of_tracers.contains(&path) && tracer(pid).is_none_or(|pid| !tracers.contains(&pid))
        }
        Err(error) => error.kind() == ErrorKind::NotFound,
    };
    let traced = inside.iter().copied().filter(|(_, pid)| !traces(*pid) && !is_left(*pid));
    let traced: Vec<(Nid, i32)> = traced.collect();
    let Some((nid, expected)) = wrong(&traced) else { return Ok(()) };
    let inside: BTreeSet<i32> = inside.into_iter().map(|(_, pid)| pid).collect();
    let children = process_tracking::children(shepherd).into_iter().map(|child| child.pid);
    if let Some(pid) = children
        .filter(|pid| !inside.contains(pid) && !is_mix(shepherd, *pid))
        .find(|pid| process_tracking::lives(*pid))
    {
        return Err(outside(pid));
    }
    let most: u32 = pes.iter().map(|(_, pes)| pes).sum();
    match u32::try_from(traced.len()) {
        // One has been killed, as its shepherd says.
        Ok(found) if found < most => Ok(()),
        _ => Err(format!(
            "the control group of NID {nid} has other processes than its {expected} PEs before \
             they have started: a process with root's rights has moved them"
        )),
    }
}

fn outside(pid: i32) -> String {
    format!(
        "process {pid} of it was found in {} before its PEs had started, and not in the control \
         group of its node: a process with root's rights has moved it",
        group_of(pid)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::groups::Groups;
    use std::process::{Child, Command};

    struct Sleepers(Vec<Child>, AppGroups);

    impl Drop for Sleepers {
        fn drop(&mut self) {
            for child in &mut self.0 {
                let _ = child.kill();
                let _ = child.wait();
            }
            assert!(self.1.remove(), "its groups stay");
        }
    }

    /// Groups of two nodes with that many processes each; `None`: none can be made here.
    fn groups(pes: [usize; 2]) -> Option<Sleepers> {
        let groups = Groups::bare()?;
        let key = Key::parse(&format!("{}.1", std::process::id())).expect("a key");
        let limits = (0..2).map(|nid| (Nid(nid), Default::default())).collect();
        let mark = format!("{:08x}", pes[0] * 16 + pes[1]);
        let made = groups.make(&mark, key, &limits, true, 0).ok()?;
        let mut all = Sleepers(Vec::new(), made);
        for (nid, pes) in pes.into_iter().enumerate() {
            for _ in 0..pes {
                let child = Command::new("sleep").arg("60").spawn().expect("sleep");
                put(&all, child.id(), &nid.to_string());
                all.0.push(child);
            }
        }
        Some(all)
    }

    fn put(all: &Sleepers, pid: u32, group: &str) {
        let path = all.1.path().join(group).join("cgroup.procs");
        fs::write(path, pid.to_string()).expect("put");
    }

    #[test]
    fn what_is_outside_of_its_group_is_found() {
        let Some(mut all) = groups([2, 1]) else { return };
        let pes = [(Nid(0), 2), (Nid(1), 1)];
        // (A process without children: the children of this process are other tests'.)
        let shepherd = all.0[2].id() as i32;
        let told = |all: &Sleepers| {
            verify(&all.1, shepherd, &pes, &mut Seating::default()).err().unwrap_or_default()
        };
        assert_eq!(told(&all), "");
        let first = all.0[0].id();
        for group in ["shepherd", "1"] {
            put(&all, first, group);
            assert_ne!(told(&all), "", "{group}");
            put(&all, first, "0");
            assert_eq!(told(&all), "");
        }
        // (In no group with controllers can it be.)
        let above = all.1.path().join("cgroup.procs");
        if fs::write(&above, first.to_string()).is_ok() {
            assert!(told(&all).contains(&format!("process {first} of it was found in /")));
            put(&all, first, "0");
        }
        // Another's, beside the PEs.
        let other = Command::new("sleep").arg("60").spawn().expect("sleep");
        put(&all, other.id(), "1");
        all.0.push(other);
        assert!(told(&all).contains("NID 1 has other processes than its 1 PEs"));
        let mut other = all.0.pop().expect("pushed");
        let _ = other.kill();
        let _ = other.wait();
        assert_eq!(told(&all), "");
        // What traces a PE, beside it.
        let mut strace = Command::new("strace");
        strace.args(["-o", "/dev/null", "-p", &first.to_string()]);
        if let Ok(strace) = strace.spawn() {
            put(&all, strace.id(), "0");
            let traces = Some(strace.id() as i32);
            all.0.push(strace);
            while tracer(first as i32) != traces
                && all.0[3].try_wait().is_ok_and(|ended| ended.is_none())
            {
                std::thread::sleep(Duration::from_millis(2));
            }
            assert_eq!(told(&all), "");
            let mut strace = all.0.pop().expect("pushed");
            let _ = strace.kill();
            let _ = strace.wait();
        }
        // The shepherd tells of a PE that has been killed.
        let _ = all.0[0].kill();
        let _ = all.0[0].wait();
        assert_eq!(told(&all), "");
    }

    fn look(all: &Sleepers, cpus: &[u32]) -> Look {
        let seat = |nid| (Nid(nid), Seat { cpus: cpus.to_vec(), mems: Vec::new() });
        Look {
            key: Key::parse("1.1").expect("a key"),
            groups: all.1.clone(),
            shepherd: std::process::id() as i32,
            seating: Arc::new(Mutex::new(Seating::at((0..2).map(seat).collect()))),
        }
    }

    /// (Other tests have children of this process too, in no group of this one's: only those of its
    /// own are looked at.)
    fn found(look: &Look, all: &Sleepers) -> Vec<String> {
        let mut seating = lock(&look.seating);
        let own: BTreeSet<i32> = all.0.iter().map(|child| child.id() as i32).collect();
        let inside = look.groups.left_by_birth();
        for (nid, pid) in inside.iter().filter(|(_, pid)| own.contains(pid)) {
            seating.homes.insert(*pid, *nid);
        }
        let outside = look.groups.shepherds().into_iter().chain(look.groups.above());
        let homes = &seating.homes;
        let texts = outside
            .filter_map(|pid| look.end_or_put(pid, homes.get(&pid).copied(), &group_of(pid)));
        let texts: Vec<String> = texts.collect();
        texts.into_iter().chain(bind_again(&seating, &inside)).collect()
    }

    #[test]
    fn what_strays_is_put_back_or_ended() {
        let Some(all) = groups([1, 2]) else { return };
        let cpus = affinity::get(0).expect("ours");
        let look = look(&all, &cpus);
        assert_eq!(found(&look, &all), [] as [String; 0]);
        let first = all.0[1].id();
        put(&all, first, "shepherd");
        let text = found(&look, &all).concat();
        assert!(text.contains(&format!("process {first} of it")) && text.contains("put back"));
        assert!(all.1.left().contains(&(Nid(1), first as i32)));
        assert_eq!(found(&look, &all), [] as [String; 0]);
        // A process that was never seen in its group is killed.
        let mut other = Command::new("sleep").arg("60").spawn().expect("sleep");
        put(&all, other.id(), "shepherd");
        let text = found(&look, &all).concat();
        let _ = other.kill();
        let ended = std::os::unix::process::ExitStatusExt::signal(&other.wait().expect("ours"));
        assert!(text.contains("and ended"), "{text}");
        assert_eq!(ended, Some(9));
    }

    #[test]
    fn who_binds_himself_elsewhere_is_bound_again() {
        let Some(all) = groups([2, 2]) else { return };
        let cpus = affinity::get(0).expect("ours");
        let [first, .., last] = cpus[..] else { return };
        let look = look(&all, &[first]);
        let bound = |n: usize| affinity::get(all.0[n].id() as i32).expect("it lives");
        // They have all of this process's.
        assert!(found(&look, &all).concat().contains("had bound itself"));
        assert!((0..4).all(|n| bound(n) == [first]));
        assert_eq!(found(&look, &all), [] as [String; 0]);
        affinity::set(all.0[3].id() as i32, &[last]).expect("ours");
        let text = found(&look, &all).concat();
        assert!(text.contains(&format!("processors {last}, ")), "{text}");
        assert_eq!(bound(3), [first]);
    }

    #[test]
    fn a_round_goes_on_where_the_last_one_ended() {
        let Some(all) = groups([0, 1]) else { return };
        let looks = |keys: &[&str]| -> Vec<Look> {
            // (Whose children are others' is not for this test to say.)
            let shepherd = all.0[0].id() as i32;
            let one = |key: &&str| Look {
                key: Key::parse(key).expect("a key"),
                shepherd,
                ..look(&all, &[])
            };
            keys.iter().map(one).collect()
        };
        let key = |text| Key::parse(text);
        // (Whether there is time for all is the machine's business: at least one is looked at.)
        let (_, last) = round(looks(&["2.1", "1.1"]), key("1.1"));
        assert!(last == key("1.1") || last == key("2.1"), "{last:?}");
        assert_eq!(round(Vec::new(), key("1.1")), (Vec::new(), key("1.1")));
    }
}
