//! Every process that descends from this one.
//!
//! The shepherd is a subreaper: whatever its PEs start has it for an ancestor for as long as it
//! lives, even a daemon that forked twice and made its own session. So the family is found by
//! walking parents, from /proc.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::{BTreeMap, BTreeSet};

/// A process, as /proc/PID/stat has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    pid: i32,
    parent: i32,
    /// It has ended and waits to be reaped.
    zombie: bool,
}

/// The living descendants of this process.
pub fn descendants() -> Vec<Pid> {
    family(std::process::id() as i32, &all())
}

/// Sends a signal to every living descendant; how many there were. Repeated until a round finds
/// nobody new, as one may fork while others are found, but a bounded number of times: a caller
/// that wants them gone comes again.
pub fn signal_all(signal: Signal) -> u32 {
    let mut known = BTreeSet::new();
    for _ in 0..8 {
        let found = descendants();
        let new: Vec<Pid> = found.into_iter().filter(|pid| known.insert(*pid)).collect();
        if new.is_empty() {
            break;
        }
        for pid in new {
            // It may have gone meanwhile, or be another user's (set-user-id): apinit's business.
            let _ = kill(pid, signal);
        }
    }
    known.len() as u32
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
