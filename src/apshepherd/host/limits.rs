//! What the groups of the nodes tell about their limits.
//!
//! Everybody may read the files of a group, and the shepherd has the directories of its own. Files
//! that are not there (no such controller) tell nothing.

use super::pes::Pes;
use crate::apteam::launch::HostLaunch;
use crate::machine::Nid;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use nix::sys::uio::pread;
use nix::unistd::{Pid, getsid};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The files of one node's group.
#[derive(Debug)]
struct Files {
    /// Index of the group.
    index: usize,
    memory: Option<OwnedFd>,
    processes: Option<OwnedFd>,
}

/// The nodes' files.
#[derive(Debug, Default)]
pub struct Limits {
    files: BTreeMap<Nid, Files>,
    memory_limited: bool,
    /// Nodes on which the kernel has killed, not all of which is reaped yet.
    killed: BTreeSet<Nid>,
}

pub(super) fn open(group: BorrowedFd<'_>, name: &str) -> Option<OwnedFd> {
    openat(group, name, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty()).ok()
}

/// A number of a file with lines `name number`.
fn number(file: Option<&OwnedFd>, name: &str) -> u64 {
    let mut text = [0; 512];
    let count = file.and_then(|file| pread(file, &mut text, 0).ok()).unwrap_or(0);
    number_of(&String::from_utf8_lossy(&text[..count]), name)
}

fn number_of(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|n| n.trim().parse().ok()).unwrap_or(0)
}

impl Limits {
    /// Opens what there is.
    pub fn open(launch: &HostLaunch, groups: &[(Nid, OwnedFd)]) -> Limits {
        let files = groups.iter().enumerate().map(|(index, (nid, group))| {
            let memory = open(group.as_fd(), "memory.events");
            let processes = open(group.as_fd(), "pids.events");
            (*nid, Files { index, memory, processes })
        });
        let files: BTreeMap<Nid, Files> = files.collect();
        let memory_limited =
            launch.memory_per_pe.is_some() && files.values().any(|f| f.memory.is_some());
        Limits { files, memory_limited, killed: BTreeSet::new() }
    }

    /// The files by which the kernel says that forks were refused, with the indices of their groups.
    pub fn watched(&self) -> impl Iterator<Item = (usize, BorrowedFd<'_>)> {
        self.files.values().filter_map(|f| Some((f.index, f.processes.as_ref()?.as_fd())))
    }

    /// Whether memory is limited and that can be seen.
    pub fn memory_limited(&self) -> bool {
        self.memory_limited
    }

    /// Whether the kernel has killed for want of memory there: whether because of the group's own
    /// limit. It counts before it kills, so that whoever has reaped knows.
    pub fn memory_kill(&mut self, nid: Nid) -> Option<bool> {
        let file = self.files.get(&nid)?.memory.as_ref();
        (number(file, "oom_kill") > 0).then(|| {
            self.killed.insert(nid);
            number(file, "oom") > 0
        })
    }

    /// Whether a fork was refused there. Says so once, and the file is watched no more: a program
    /// that forks without end would keep us busy.
    pub fn forks_refused(&mut self, nid: Nid) -> bool {
        let Some(files) = self.files.get_mut(&nid) else { return false };
        let refused = number(files.processes.as_ref(), "max") > 0;
        files.processes.take_if(|_| refused).is_some()
    }

    /// Nodes on which the kernel has killed and of which no child is left, each once.
    pub fn reaped(&mut self, pes: &Pes) -> Vec<Nid> {
        if self.killed.is_empty() {
            return Vec::new();
        }
        let own = std::process::id();
        let path = format!("/proc/{own}/task/{own}/children");
        // Without this file nobody can tell, and the wait has its bound.
        let Ok(text) = std::fs::read_to_string(path) else { return Vec::new() };
        let children = text.split_whitespace().filter_map(|pid| pid.parse().ok());
        let sessions: BTreeSet<i32> = children
            .filter_map(|pid| getsid(Some(Pid::from_raw(pid))).ok())
            .map(Pid::as_raw)
            .collect();
        let left = |nid: Nid| {
            pes.all.iter().any(|pe| pe.nid == nid && sessions.contains(&pe.pid.as_raw()))
        };
        let done: Vec<Nid> = self.killed.iter().copied().filter(|nid| !left(*nid)).collect();
        self.killed.retain(|nid| !done.contains(nid));
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_by_their_whole_name() {
        let text = "low 0\nhigh 0\nmax 31\noom 2\noom_kill 5\noom_group_kill 1\n";
        assert_eq!((number_of(text, "oom"), number_of(text, "oom_kill")), (2, 5));
        assert_eq!((number_of(text, "max"), number_of(text, "kill")), (31, 0));
    }
}
