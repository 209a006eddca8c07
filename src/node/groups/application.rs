//! The groups of one application on this host.

use super::cpu::cpu_of_group;
use super::{Freezer, Memory};
use crate::machine::Nid;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The groups of one application on this host.
#[derive(Clone, Debug)]
pub struct AppGroups {
    path: PathBuf,
    /// The nodes on which it was launched: each group has the name of its own for good.
    nids: Vec<Nid>,
    /// Where it sits now, in the same order; empty: there.
    now: Vec<Nid>,
}

/// What the group of a node may have; `None`: anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of memory; none of it in swap, where the program would crawl instead of being told.
    pub memory: Option<u64>,
    /// Processes and threads.
    pub pids: Option<u64>,
    /// Where its processes may run.
    pub seat: Seat,
}

/// Where the processes of a node's group may run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seat {
    /// Real processors; empty: any.
    pub cpus: Vec<u32>,
    /// NUMA nodes for memory; empty: any.
    pub mems: Vec<u32>,
}

impl Seat {
    /// Confines this group to it, which has had none if it is `fresh`, with all that is there. (On
    /// Linux before 6.2 threads lose what they have bound themselves to.)
    ///
    /// # Errors
    /// Those of write; or the group above has not all of these processors.
    fn take(&self, group: &Path, fresh: bool) -> io::Result<()> {
        let list = |numbers: &[u32]| {
            let all: Vec<String> = numbers.iter().map(u32::to_string).collect();
            // (What is empty would not be written at all.)
            all.join(",") + "\n"
        };
        if !fresh || !self.mems.is_empty() {
            set(group, "cpuset.mems", &list(&self.mems))?;
        }
        set(group, "cpuset.cpus", &list(&self.cpus))?;
        let has = fs::read_to_string(group.join("cpuset.cpus.effective"))?;
        let wanted: BTreeSet<u32> = self.cpus.iter().copied().collect();
        if wanted.is_empty() || numbers(&has) == wanted {
            return Ok(());
        }
        let text = format!(
            "its control group needs processors {}, and may use {}",
            list(&self.cpus).trim(),
            has.trim()
        );
        Err(io::Error::new(io::ErrorKind::InvalidInput, text))
    }
}

/// The numbers in a list of the kernel's: `0-3,8`.
pub fn numbers(list: &str) -> BTreeSet<u32> {
    // More than any kernel has.
    const MOST: u32 = 1 << 16;
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse::<u32>().ok()?..=last.trim().parse::<u32>().ok()?.min(MOST))
    };
    list.split(',').filter_map(range).flatten().collect()
}

/// How often it is looked whether what was killed has gone.
const KILL_LOOK: Duration = Duration::from_millis(1);

/// How long groups of a former life may take to end before others are made in their place.
const END_WAIT: Duration = Duration::from_millis(500);

/// How often groups are made while the one above them is being removed.
const MAKE_TRIES: u32 = 100;

/// Makes a directory that may be there already.
fn make_dir(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
        _ => Ok(()),
    }
}

fn set(group: &Path, file: &str, value: &str) -> io::Result<()> {
    fs::write(group.join(file), value)
        .map_err(|e| io::Error::new(e.kind(), format!("can't write {value} to {file}: {e}")))
}

/// Limits a group.
fn limit(group: &Path, Limits { memory, pids, seat }: &Limits) -> io::Result<()> {
    if *seat != Seat::default() {
        seat.take(group, true)?;
    }
    if let Some(bytes) = memory {
        set(group, "memory.max", &bytes.to_string())?;
        // Absent where the kernel has no swap.
        if group.join("memory.swap.max").exists() {
            set(group, "memory.swap.max", "0")?;
        }
    }
    match pids {
        Some(number) => set(group, "pids.max", &number.to_string()),
        None => Ok(()),
    }
}

impl AppGroups {
    /// Makes them, one for each node with its limits and one for the shepherd with `own`.
    /// `controllers` are those that these groups are to have.
    ///
    /// # Errors
    /// Those of mkdir, and of a limit that can't be set; or a former life of this apinit has left
    /// them, and they can't be removed. They are not used again: Linux 6.18 kills what clone3 puts
    /// into a group that was ever killed. Nothing stays.
    pub(super) fn make(
        path: PathBuf,
        nids: &[Nid],
        controllers: &[&str],
        own: Limits,
        limits: impl Fn(Nid) -> Limits,
    ) -> io::Result<AppGroups> {
        let groups = AppGroups { path, nids: nids.to_vec(), now: Vec::new() };
        if groups.path.exists() && !groups.end(END_WAIT) {
            let text = format!("{} holds processes that do not end", groups.path.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
        }
        let mut tries = 0;
        let made = loop {
            let made = groups.try_make(controllers, &own, &limits);
            // Another apinit of this host may just have removed the group above, which was empty.
            let again = made.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::NotFound);
            tries += 1;
            if !again || tries == MAKE_TRIES {
                break made;
            }
        };
        if made.is_err() {
            groups.remove();
        }
        made.map(|()| groups)
    }

    fn try_make(
        &self,
        controllers: &[&str],
        own: &Limits,
        limits: &impl Fn(Nid) -> Limits,
    ) -> io::Result<()> {
        let above = self.path.parent().ok_or(io::ErrorKind::InvalidInput)?;
        for group in [above, &self.path] {
            make_dir(group)?;
            if !controllers.is_empty() {
                let all: Vec<String> = controllers.iter().map(|name| format!("+{name}")).collect();
                set(group, "cgroup.subtree_control", &all.join(" "))?;
            }
        }
        let shepherd = self.path.join("shepherd");
        make_dir(&shepherd)?;
        limit(&shepherd, own)?;
        for nid in &self.nids {
            let group = self.of_nid(*nid);
            make_dir(&group)?;
            if controllers.contains(&"memory") {
                // One without the others is no program any more.
                set(&group, "memory.oom.group", "1")?;
            }
            limit(&group, &limits(*nid))?;
        }
        Ok(())
    }

    /// User and system time of all that ever ran in the groups of the nodes, waited for or not;
    /// `None`: it can't be read.
    pub fn cpu(&self) -> Option<(Duration, Duration)> {
        let mut sum = (Duration::ZERO, Duration::ZERO);
        for nid in &self.nids {
            let (user, system) = cpu_of_group(&self.of_nid(*nid))?;
            sum = (sum.0 + user, sum.1 + system);
        }
        Some(sum)
    }

    /// Those that a former life of this apinit has made.
    pub fn found(path: PathBuf, nids: Vec<Nid>) -> Option<AppGroups> {
        path.join("cgroup.procs").exists().then_some(AppGroups { path, nids, now: Vec::new() })
    }

    /// What it was moved to, in the order of the nodes on which it was launched.
    pub fn moved(&mut self, now: Vec<Nid>) {
        self.now = now;
    }

    /// The node of a group that has this one's name.
    fn node(&self, born: Nid) -> Nid {
        let at = self.nids.iter().position(|nid| *nid == born);
        at.and_then(|at| self.now.get(at)).copied().unwrap_or(born)
    }

    /// Where they are.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn of_nid(&self, nid: Nid) -> PathBuf {
        self.path.join(nid.to_string())
    }

    /// Whether its processes may run on nothing but their nodes' processors.
    pub fn confined(&self) -> bool {
        self.nids.iter().all(|nid| self.of_nid(*nid).join("cpuset.cpus").exists())
    }

    /// Gives the group that has this node's name another seat, where groups are confined at all.
    ///
    /// # Errors
    /// Those of write; or these processors are not to be had.
    pub fn reseat(&self, born: Nid, seat: &Seat) -> io::Result<()> {
        let group = self.of_nid(born);
        if group.join("cpuset.cpus").exists() { seat.take(&group, false) } else { Ok(()) }
    }

    /// The names of the nodes' groups: those of the nodes on which it was launched.
    pub fn born(&self) -> &[Nid] {
        &self.nids
    }

    /// Puts a process into the group that has this node's name.
    ///
    /// # Errors
    /// Those of write: ESRCH, it has ended.
    pub fn put(&self, born: Nid, pid: i32) -> io::Result<()> {
        fs::write(self.of_nid(born).join("cgroup.procs"), pid.to_string())
    }

    /// The directory of the shepherd's group, and that of each node's.
    ///
    /// # Errors
    /// Those of open.
    pub fn open(&self) -> io::Result<(OwnedFd, Vec<(Nid, OwnedFd)>)> {
        let open = |path: PathBuf| File::open(path).map(OwnedFd::from);
        let nids: io::Result<_> =
            self.nids.iter().map(|nid| Ok((*nid, open(self.of_nid(*nid))?))).collect();
        Ok((open(self.path.join("shepherd"))?, nids?))
    }

    /// The freezers of the nodes' groups. The shepherd is in none of them.
    ///
    /// # Errors
    /// Those of open.
    pub fn freezers(&self) -> io::Result<Vec<Freezer>> {
        self.nids.iter().map(|nid| Freezer::open(&self.of_nid(*nid))).collect()
    }

    /// The freezer of all of it, the shepherd too. It knows nothing of those of the nodes, nor they of
    /// it: what is frozen by both runs when both let it.
    ///
    /// # Errors
    /// Those of open.
    pub fn freezer(&self) -> io::Result<Freezer> {
        Freezer::open(&self.path)
    }

    /// The processes in the group that holds all the others: none, if nobody has moved.
    pub fn above(&self) -> Vec<i32> {
        processes_of(&self.path)
    }

    /// The processes in the shepherd's group: it alone, if nobody has moved.
    pub fn shepherds(&self) -> Vec<i32> {
        processes_in(&self.path.join("shepherd"))
    }

    /// The memory of the nodes' groups, where there is the controller. `locks`: it is kept while the
    /// gang runs, for it is on more than one node.
    ///
    /// # Errors
    /// Those of [`Memory::open`].
    pub fn memory(&self, locks: bool) -> io::Result<Option<Memory>> {
        let all = self.nids.iter().map(|nid| self.of_nid(*nid));
        if !all.clone().all(|group| group.join("memory.current").exists()) {
            return Ok(None);
        }
        Memory::open(&self.path, all, locks, self.any_frozen()).map(Some)
    }

    /// Whether one of them is frozen.
    pub fn any_frozen(&self) -> bool {
        self.freezers().is_ok_and(|all| all.iter().any(Freezer::set))
    }

    /// The memory in bytes that the group of each node has now, where it is measured: that of its
    /// processes and what they share, in swap or not. What the page cache keeps of files is not counted,
    /// as memory.peak would: it grows until nothing is free, and goes when somebody needs the room.
    pub fn memory_had(&self) -> impl Iterator<Item = (Nid, u64)> {
        self.nids.iter().filter_map(|nid| {
            let group = self.of_nid(*nid);
            let stat = fs::read_to_string(group.join("memory.stat")).ok()?;
            // Absent where the kernel has no swap.
            let swap = fs::read_to_string(group.join("memory.swap.current")).unwrap_or_default();
            Some((self.node(*nid), had(&stat, swap.trim().parse().unwrap_or(0))?))
        })
    }

    /// Kills all PEs and what they have made; the shepherd too if so wanted.
    pub fn kill(&self, shepherd: bool) {
        let killed = match shepherd {
            true => fs::write(self.path.join("cgroup.kill"), "1"),
            false => self
                .nids
                .iter()
                .try_for_each(|nid| fs::write(self.of_nid(*nid).join("cgroup.kill"), "1")),
        };
        if let Err(error) = killed {
            tracing::warn!(group = %self.path.display(), %error, "can't kill");
        }
    }

    /// Kills each process of it, the shepherd too, and waits until they have gone; false: some have not by then.
    /// It may be used again, unlike one that is killed as a whole. Nobody in there may make processes meanwhile.
    pub fn kill_each(&self, within: Duration) -> bool {
        let until = Instant::now() + within;
        loop {
            let left = processes_in(&self.path);
            if left.is_empty() {
                return true;
            }
            for pid in left.into_iter().filter_map(rustix::process::Pid::from_raw) {
                let flags = rustix::process::PidfdFlags::empty();
                let Ok(process) = rustix::process::pidfd_open(pid, flags) else { continue };
                // Whoever has been given the number of one that has ended meanwhile is in no group of it.
                if processes_in(&self.path).contains(&pid.as_raw_nonzero().get()) {
                    let kill = rustix::process::Signal::KILL;
                    let _ = rustix::process::pidfd_send_signal(process, kill);
                }
            }
            if Instant::now() >= until {
                return false;
            }
            std::thread::sleep(KILL_LOOK);
        }
    }

    /// Whether no PE, and nothing that one has made, is alive. (A group that is gone is empty.)
    pub fn empty(&self) -> bool {
        self.nids.iter().all(|nid| {
            let events = fs::read_to_string(self.of_nid(*nid).join("cgroup.events"));
            events.map_or_else(
                |error| error.kind() == io::ErrorKind::NotFound,
                |text| text.lines().any(|line| line == "populated 0"),
            )
        })
    }

    /// How many processes are alive there.
    pub fn processes(&self) -> u32 {
        u32::try_from(self.left().len()).unwrap_or(u32::MAX)
    }

    /// The processes that are alive there, with the node of each.
    pub fn left(&self) -> Vec<(Nid, i32)> {
        self.left_by_birth().into_iter().map(|(born, pid)| (self.node(born), pid)).collect()
    }

    /// The same with the node on which each was launched.
    pub fn left_by_birth(&self) -> Vec<(Nid, i32)> {
        let of = |nid: &Nid| {
            let nid = *nid;
            processes_in(&self.of_nid(nid)).into_iter().map(move |pid| (nid, pid))
        };
        self.nids.iter().flat_map(of).collect()
    }

    /// Kills what is in them and removes them; says whether they are gone in time.
    fn end(&self, within: Duration) -> bool {
        let until = Instant::now() + within;
        while !self.remove() {
            self.kill(true);
            if Instant::now() >= until {
                return false;
            }
            std::thread::sleep(KILL_LOOK);
        }
        true
    }

    /// Removes them; says whether they are gone. They are not while a process is in one.
    pub fn remove(&self) -> bool {
        fn remove_tree(directory: &Path) {
            let below = fs::read_dir(directory).into_iter().flatten().flatten();
            for entry in below.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())) {
                remove_tree(&entry.path());
            }
            let _ = fs::remove_dir(directory);
        }
        remove_tree(&self.path);
        let gone = !self.path.exists();
        if let Some(above) = self.path.parent().filter(|_| gone) {
            // The last application takes the store's group with it: an Err is that others are left.
            let _ = fs::remove_dir(above);
        }
        gone
    }
}

/// The processes that are alive in this group and in those below it; none where it has gone.
pub fn processes_in(group: &Path) -> Vec<i32> {
    let mut all = processes_of(group);
    let below = fs::read_dir(group).into_iter().flatten().flatten();
    for entry in below.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())) {
        all.extend(processes_in(&entry.path()));
    }
    all
}

/// The processes that are alive in this group itself.
fn processes_of(group: &Path) -> Vec<i32> {
    let own = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    own.lines().filter_map(|pid| pid.parse().ok()).collect()
}

/// Bytes by a memory.stat, and by what is in swap; some of that may still be in memory too.
fn had(stat: &str, swap: u64) -> Option<u64> {
    let of = |name: &str| {
        let value = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.parse::<u64>().ok();
        stat.lines().find_map(value)
    };
    let all = of("anon")?.checked_add(of("shmem")?)?.checked_add(swap)?;
    Some(all.saturating_sub(of("swapcached").unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read() {
        let stat = "anon 700\nfile 5000\nshmem 40\nfile_mapped 900\nswapcached 8\n";
        assert_eq!(had(stat, 0), Some(732));
        assert_eq!(had(stat, 300), Some(1_032));
        assert_eq!(had("anon 700\nshmem 40\n", 300), Some(1_040));
        assert_eq!(had("anon 700\nfile 5000\n", 300), None);
    }
}
