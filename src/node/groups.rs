//! Control groups: one for the PEs of each node, by which "nothing is left" is known for sure and
//! limits are kept.
//!
//! Only cgroup v2 is used, wherever it is mounted (a hybrid machine has it at
//! /sys/fs/cgroup/unified), below apinit's own group:
//!
//! ```text
//!   psched.daemon                               apinit, if it has moved there
//!   psched.<8 digits of the store>/12.1/0          PEs on NID 0
//!                                      /1          PEs on NID 1
//!                                      /shepherd   their apshepherd
//! ```
//!
//! Processes are born in their group (clone3). The kernel lets a process put another into a group
//! if it may write `cgroup.procs` of that group and of the nearest group above both. These files
//! are apinit's and stay so: an apshepherd of another user's has a capability for that until its
//! PEs are made ([`crate::os::placing`]).
//!
//! **Controllers.** Where no group can be made there are none, which is said, and descent, sessions
//! and a marker in the environment stand in ([`super::apinit`]). Finding and killing take no
//! controller; limits do ([`controllers`]): a node's group gets `memory.max`, `pids.max`,
//! `cpuset.cpus` ([`Limits`]) where the kernel has the controller in v2 and apinit's own group was
//! delegated to it with that controller. By the memory controller a gang's memory is kept while it
//! runs ([`Memory`]). What is not to be had is not done, and said ([`Groups::notes`]).

mod application;
mod cgroup_attach;
mod controllers;
mod cpu;
mod freezer;
mod memory;
mod reclaim;

pub use application::{AppGroups, Limits, Seat, numbers, processes_in};
pub use cgroup_attach::Eager;
pub use freezer::Freezer;
pub use memory::Memory;
pub use reclaim::{Out, bring_out};

use crate::apteam::Key;
use crate::machine::Nid;
use controllers::Controllers;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Where groups can be made.
#[derive(Clone, Debug)]
pub struct Groups {
    base: PathBuf,
    controllers: Controllers,
}

/// Processes in a shepherd's group beside those of the application: itself, CRIU and what that starts.
const PROCESSES_BESIDE: u64 = 64;

/// What the shepherd's group may have: where the nodes' are limited, as much as all of them together,
/// for that is where the processes of one that is restored are made before they are put into theirs;
/// and what it takes itself.
fn of_shepherd(nodes: &BTreeMap<Nid, Limits>, room: u64) -> Limits {
    let sum = |of: fn(&Limits) -> Option<u64>, own: u64| -> Option<u64> {
        nodes.values().try_fold(own, |sum, limits| Some(sum.saturating_add(of(limits)?)))
    };
    let memory = sum(|l| l.memory, room);
    Limits { memory, pids: sum(|l| l.pids, PROCESSES_BESIDE), seat: Seat::default() }
}

/// The v2 mount in /proc/self/mountinfo: (its root, where it is mounted).
fn v2_mount(mountinfo: &str) -> Option<(String, String)> {
    mountinfo.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut fields = before.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        (after.split(' ').next() == Some("cgroup2")).then(|| (unescape(root), unescape(point)))
    })
}

/// mountinfo writes blanks and the like as `\040`.
fn unescape(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        out.push_str(before);
        match after.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                out.push(char::from(byte));
                rest = &after[3..];
            }
            None => {
                out.push('\\');
                rest = after;
            }
        }
    }
    out + rest
}

/// The v2 line of /proc/self/cgroup.
fn v2_group(cgroup: &str) -> Option<&str> {
    cgroup.lines().find_map(|line| line.strip_prefix("0::"))
}

/// The directory of a group, seen through a mount that may show only a part of the tree.
fn directory(root: &str, point: &str, group: &str) -> Option<PathBuf> {
    let below = group.strip_prefix(root.trim_end_matches('/'))?;
    Some(Path::new(point).join(below.trim_start_matches('/')))
}

impl Groups {
    /// Finds apinit's own group, or the one of that name, and tries whether groups can be made
    /// there.
    ///
    /// # Errors
    /// Why not, in words.
    pub fn discover(named: Option<&Path>) -> Result<Groups, String> {
        // Set for what systemd starts as a service, and for nothing below that.
        let supervised = named.is_none() && crate::os::notify::Notify::has_manager();
        Groups::find(named, supervised)
    }

    /// The same of the own group by a process that does nothing but hold it: it leaves it for the
    /// leaf, enables the controllers, and is not started again as long as anything is there.
    ///
    /// # Errors
    /// Why not, in words.
    pub fn hold() -> Result<Groups, String> {
        Groups::find(None, false)
    }

    fn find(named: Option<&Path>, supervised: bool) -> Result<Groups, String> {
        let read = |path: &str| fs::read_to_string(path).map_err(|e| format!("{path}: {e}"));
        let (root, point) = v2_mount(&read("/proc/self/mountinfo")?)
            .ok_or("no cgroup v2 file system is mounted")?;
        if let Some(named) = named {
            let base = directory(&root, &point, &named.to_string_lossy())
                .filter(|base| base.is_dir())
                .ok_or_else(|| format!("there is no group {} in {point}", named.display()))?;
            return Groups::at(base, supervised);
        }
        let own = read("/proc/self/cgroup")?;
        let group = v2_group(&own).ok_or("this process is in no group of cgroup v2")?;
        let base = directory(&root, &point, group)
            .ok_or_else(|| format!("its own group {group} is not below {point}"))?;
        Groups::at(controllers::base_of(base), supervised)
    }

    /// Groups below this one, if they can be made.
    fn at(base: PathBuf, supervised: bool) -> Result<Groups, String> {
        let probe = base.join(format!("psched.probe.{}", std::process::id()));
        fs::create_dir(&probe)
            .map_err(|e| format!("no group can be made in {}: {e}", base.display()))?;
        let works = probe.join("cgroup.kill").exists();
        let _ = fs::remove_dir(&probe);
        if works {
            let controllers = controllers::enable(&base, supervised);
            Ok(Groups { base, controllers })
        } else {
            Err("the kernel has no cgroup.kill (Linux 5.14)".into())
        }
    }

    /// (For tests.) Groups below this process's own, without controllers.
    #[cfg(test)]
    pub fn bare() -> Option<Groups> {
        let read = |path: &str| fs::read_to_string(path).ok();
        let (root, point) = v2_mount(&read("/proc/self/mountinfo")?)?;
        let base = directory(&root, &point, v2_group(&read("/proc/self/cgroup")?)?)?;
        Some(Groups { base, controllers: Controllers::default() })
    }

    /// The limits that groups have, by name.
    pub fn limits(&self) -> Vec<String> {
        let Controllers { memory, pids, cpuset, .. } = self.controllers;
        let all = [(memory, "memory"), (pids, "processes"), (cpuset, "processors")];
        all.into_iter().filter(|(has, _)| *has).map(|(_, name)| name.to_owned()).collect()
    }

    /// It is known how much memory they have had.
    pub fn measures_memory(&self) -> bool {
        self.controllers.memory
    }

    /// What they don't have and why, in words.
    pub fn notes(&self) -> &[String] {
        &self.controllers.notes
    }

    /// Where the groups of an application are, or would be.
    pub fn path_of(&self, mark: &str, key: Key, nids: &[Nid], alone: bool) -> PathBuf {
        let name = match nids.first() {
            Some(first) if !alone => format!("{key}.{first}"),
            _ => key.to_string(),
        };
        self.base.join(format!("psched.{mark}")).join(name)
    }

    /// Finds groups of this store's applications on these nodes that are not among the `known` ones.
    pub fn unknown(
        &self,
        mark: &str,
        nids: &BTreeSet<Nid>,
        known: &BTreeSet<PathBuf>,
    ) -> Vec<(Key, AppGroups)> {
        let below = |group: &Path| -> Vec<(String, PathBuf)> {
            let entries = fs::read_dir(group).into_iter().flatten().flatten();
            let groups = entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir()));
            groups.filter_map(|e| Some((e.file_name().into_string().ok()?, e.path()))).collect()
        };
        let of = |(name, path): (String, PathBuf)| {
            let (apid, rest) = name.split_once('.')?;
            let incarnation = rest.split('.').next().unwrap_or(rest);
            let key = Key::parse(&format!("{apid}.{incarnation}"))?;
            let nodes = below(&path).into_iter().filter_map(|(nid, _)| nid.parse().ok().map(Nid));
            let nodes: Vec<Nid> = nodes.collect();
            let ours = !known.contains(&path) && nodes.iter().any(|nid| nids.contains(nid));
            ours.then(|| AppGroups::found(path, nodes)).flatten().map(|groups| (key, groups))
        };
        below(&self.base.join(format!("psched.{mark}"))).into_iter().filter_map(of).collect()
    }

    /// Makes the groups of an application. `mark` is the beginning of the store's id, `alone` that
    /// no other apinit has a part of the application: one on the same host would have its own. Of
    /// `limits`, by node, those are kept that groups have here. `room` is what the shepherd itself
    /// takes of memory at most, in bytes.
    ///
    /// # Errors
    /// Those of mkdir, and of a limit that can't be set.
    pub fn make(
        &self,
        mark: &str,
        key: Key,
        limits: &BTreeMap<Nid, Limits>,
        alone: bool,
        room: u64,
    ) -> io::Result<AppGroups> {
        let nids: Vec<Nid> = limits.keys().copied().collect();
        self.make_at(self.path_of(mark, key, &nids, alone), limits, room)
    }

    /// The same in this folder, which may be that of other nodes: of an application that was launched on these
    /// and is brought back there.
    ///
    /// # Errors
    /// As of [`Groups::make`].
    pub fn make_at(
        &self,
        path: PathBuf,
        limits: &BTreeMap<Nid, Limits>,
        room: u64,
    ) -> io::Result<AppGroups> {
        let nids: Vec<Nid> = limits.keys().copied().collect();
        let Controllers { memory, pids, cpuset, .. } = self.controllers;
        let used = [(memory, "memory"), (pids, "pids"), (cpuset, "cpuset")];
        let used: Vec<&str> = used.into_iter().filter(|(has, _)| *has).map(|(_, n)| n).collect();
        let kept = |wanted: Limits| Limits {
            memory: wanted.memory.filter(|_| memory),
            pids: wanted.pids.filter(|_| pids),
            seat: if cpuset { wanted.seat } else { Seat::default() },
        };
        AppGroups::make(path, &nids, &used, kept(of_shepherd(limits, room)), |nid| {
            kept(limits.get(&nid).cloned().unwrap_or_default())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shepherd_has_what_its_nodes_have_together() {
        let limits = |memory, pids| Limits { memory, pids, seat: Seat::default() };
        let of =
            |nodes: &[Limits]| of_shepherd(&(0..).map(Nid).zip(nodes.iter().cloned()).collect(), 5);
        let both = of(&[limits(Some(10), Some(3)), limits(Some(20), Some(4))]);
        assert_eq!(both, limits(Some(35), Some(7 + PROCESSES_BESIDE)));
        let one = of(&[limits(Some(10), Some(3)), limits(None, Some(u64::MAX))]);
        assert_eq!(one, limits(None, Some(u64::MAX)));
    }

    #[test]
    fn the_tree_is_found_wherever_it_is() {
        let hybrid = "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
             32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n\
             41 31 0:31 / /sys/fs/cgroup/unified rw,relatime shared:3 - cgroup2 cgroup2 rw\n";
        let (root, point) = v2_mount(hybrid).expect("there is one");
        assert_eq!((&*root, &*point), ("/", "/sys/fs/cgroup/unified"));
        let group = v2_group("4:memory:/x\n0::/system.slice/apinit.service\n").expect("one");
        assert_eq!(
            directory(&root, &point, group),
            Some("/sys/fs/cgroup/unified/system.slice/apinit.service".into())
        );
        let part = "9 8 0:2 /docker/ab /sys/fs/my\\040groups rw - cgroup2 none rw\n";
        let (root, point) = v2_mount(part).expect("there is one");
        assert_eq!(directory(&root, &point, "/docker/ab/x"), Some("/sys/fs/my groups/x".into()));
        assert_eq!(directory(&root, &point, "/elsewhere"), None);
        assert_eq!(v2_mount("1 2 0:3 / / rw - ext4 /dev/a rw\n"), None);
        assert_eq!(v2_group("1:cpu:/\n"), None);
    }
}
