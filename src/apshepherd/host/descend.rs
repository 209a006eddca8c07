//! Every process that descends from this one.
//!
//! The shepherd is a subreaper: whatever its PEs start has it for an ancestor for as long as it
//! lives, even a daemon that forked twice and made its own session. So the family is found by
//! walking from parents to children.
//!
//! The kernel lists the children of each thread in /proc, so that a walk costs as much as the family
//! is large. To read /proc as a whole costs as much as the host has processes: where thousands of
//! applications end at once, each shepherd would read what all the others have. That is done only
//! where the kernel has no such lists. A list may lack a child whose sibling is reaped meanwhile; the
//! control groups of the nodes, where there are any, name it all the same.

use crate::machine::Nid;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// A process, as /proc/PID/stat has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    pid: i32,
    parent: i32,
    /// It has ended and waits to be reaped.
    zombie: bool,
}

/// The living descendants of this process, and what else is in these control groups.
pub fn descendants(groups: &[(Nid, OwnedFd)]) -> Vec<Pid> {
    let own = std::process::id() as i32;
    let mut found = descendants_of(own);
    let known: BTreeSet<Pid> = found.iter().copied().collect();
    let in_groups: BTreeSet<Pid> = groups.iter().flat_map(|(_, group)| members(group)).collect();
    // (One of another PID namespace has the number 0, which would mean our own process group.)
    let others = in_groups.into_iter().filter(|pid| pid.as_raw() > 0 && pid.as_raw() != own);
    found.extend(others.filter(|pid| !known.contains(pid)));
    found
}

/// The living descendants of a process.
pub fn descendants_of(pid: i32) -> Vec<Pid> {
    match Path::new(&format!("/proc/{pid}/task/{pid}/children")).exists() {
        true => listed_family(pid),
        false => family(pid, &all()),
    }
}

/// Sends a signal to every living descendant; which there were. Repeated until a round finds
/// nobody new, as one may fork while others are found, but a bounded number of times: a caller
/// that wants them gone comes again.
pub fn signal_all(signal: Signal, groups: &[(Nid, OwnedFd)]) -> BTreeSet<Pid> {
    let mut known = BTreeSet::new();
    for _ in 0..8 {
        let found = descendants(groups);
        let new: Vec<Pid> = found.into_iter().filter(|pid| known.insert(*pid)).collect();
        if new.is_empty() {
            break;
        }
        for pid in new {
            // It may have gone meanwhile, or be another user's (set-user-id): apinit's business.
            let _ = kill(pid, signal);
        }
    }
    known
}

/// The processes in a control group; zombies are in none.
fn members(group: &OwnedFd) -> Vec<Pid> {
    let mut text = String::new();
    let file = super::limits::open(group.as_fd(), "cgroup.procs").map(std::fs::File::from);
    if let Some(mut file) = file {
        let _ = file.read_to_string(&mut text);
    }
    text.lines().filter_map(|pid| pid.parse().ok()).map(Pid::from_raw).collect()
}

/// The children of a process's threads, as the kernel lists them; none of one that has gone.
pub fn children_of(parent: i32) -> Vec<i32> {
    let threads = std::fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|t| std::fs::read_to_string(t.path().join("children")).ok());
    let pids = |list: String| -> Vec<i32> {
        list.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect()
    };
    lists.flat_map(pids).collect()
}

/// The same as [`family`] by these lists.
fn listed_family(root: i32) -> Vec<Pid> {
    let mut todo = children_of(root);
    let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
    while let Some(pid) = todo.pop() {
        // Each once, so that a torn picture of /proc can't make a circle.
        if !seen.insert(pid) {
            continue;
        }
        todo.extend(children_of(pid));
        let stat = std::fs::read(format!("/proc/{pid}/stat")).ok();
        if stat.and_then(|stat| parse(&stat)).is_some_and(|stat| !stat.zombie) {
            found.push(Pid::from_raw(pid));
        }
    }
    found
}

fn all() -> Vec<Stat> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()));
    pids.filter_map(|pid| parse(&std::fs::read(format!("/proc/{pid}/stat")).ok()?)).collect()
}

/// `PID (NAME) STATE PARENT ...`, where a name may hold anything, `)` too.
fn parse(stat: &[u8]) -> Option<Stat> {
    let text = String::from_utf8_lossy(stat);
    let (pid, _) = text.split_once(' ')?;
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    Some(Stat { pid: pid.parse().ok()?, parent, zombie: matches!(state, "Z" | "X") })
}

fn family(root: i32, all: &[Stat]) -> Vec<Pid> {
    let mut children: BTreeMap<i32, Vec<&Stat>> = BTreeMap::new();
    for stat in all {
        children.entry(stat.parent).or_default().push(stat);
    }
    let (mut found, mut todo) = (Vec::new(), vec![root]);
    while let Some(parent) = todo.pop() {
        // Each list is taken once, so that a torn picture of /proc can't make a circle.
        for child in children.remove(&parent).unwrap_or_default() {
            todo.push(child.pid);
            if !child.zombie {
                found.push(Pid::from_raw(child.pid));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_hold_anything() {
        let stat = Stat { pid: 12, parent: 7, zombie: false };
        assert_eq!(parse(b"12 (a) Z 1 (b) S 7 12 12 0"), Some(stat));
        assert_eq!(parse(b"12 (sh) Z 7 12"), Some(Stat { zombie: true, ..stat }));
        assert_eq!(parse(b""), None);
    }

    #[test]
    fn lists_of_children_name_the_same_as_all_processes() {
        let own = std::process::id() as i32;
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", "sleep 1000 & echo; read line; kill $!"]);
        shell.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut child = shell.spawn().expect("a shell");
        let mut said = [0; 1];
        child.stdout.as_mut().expect("piped").read_exact(&mut said).expect("it has forked");
        let below: BTreeSet<Pid> = family(child.id() as i32, &all()).into_iter().collect();
        let lists = format!("/proc/{own}/task/{own}/children");
        if Path::new(&lists).exists() {
            let listed: BTreeSet<Pid> = listed_family(child.id() as i32).into_iter().collect();
            assert_eq!((listed.len(), listed), (1, below.clone()));
            // Whichever thread of ours has forked.
            let mine = listed_family(own);
            assert!(below.iter().all(|pid| mine.contains(pid)), "{mine:?} {below:?}");
        }
        drop(child.stdin.take());
        child.wait().expect("it ends");
    }

    #[test]
    fn children_of_children_and_of_zombies_belong() {
        let stat = |pid, parent, zombie| Stat { pid, parent, zombie };
        let all = [
            stat(1, 0, false),
            stat(10, 1, false),
            stat(11, 10, true),
            stat(12, 11, false),
            stat(20, 1, false),
            stat(30, 31, false),
            stat(31, 30, false),
        ];
        assert_eq!(family(10, &all), [Pid::from_raw(12)]);
        assert_eq!(family(1, &all).len(), 3);
        assert_eq!(family(30, &all).len(), 2);
    }
}
