//! Processes found without control groups.
//!
//! As long as an application's shepherd lives, it is its business: it is a subreaper, whatever its
//! PEs start descends from it, and its word that nothing is left is as good as an empty group. When
//! it has died, three things lead to what it has left behind, and each alone is enough:
//!
//! * **descent**: apinit is a subreaper too, so orphans of a dead shepherd become children of
//!   apinit, which itself has no children but shepherds. (One that was started again has lost this:
//!   what was left before went to init.)
//! * **session**: each PE makes a session, which its processes keep unless they make their own.
//! * **environment**: each PE is born with `PSCHED_APPLICATION=<store>.<apid>.<incarnation>`, and
//!   what it starts inherits that unless it is taken out.
//!
//! A process that has got rid of its parent, its session and its environment, and whose shepherd and
//! apinit have both died, is not found. With groups it is.

use super::runtime::Process;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::{Arc, Mutex, PoisonError};

/// The variable.
pub(super) const VARIABLE: &str = "PSCHED_APPLICATION";
/// How often all processes are looked through for new ones while the others are being killed.
const ROUNDS: usize = 8;

/// Pids of this apinit's children that are no orphans of a shepherd's: the shepherds that it has
/// made, and what whoever started apinit had as children before.
#[derive(Clone, Debug, Default)]
pub(super) struct Shepherds(Arc<Mutex<BTreeSet<i32>>>);

impl Shepherds {
    /// Before the first is made.
    pub fn begin() -> Shepherds {
        let own = std::process::id() as i32;
        let children = all().into_iter().filter(|stat| stat.parent == own).map(|stat| stat.pid);
        Shepherds(Arc::new(Mutex::new(children.collect())))
    }

    fn with<R>(&self, f: impl FnOnce(&mut BTreeSet<i32>) -> R) -> R {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A new one. To be said before anything else can look.
    pub fn made(&self, pid: i32) {
        self.with(|pids| pids.insert(pid));
    }

    /// It has been waited for.
    pub fn reaped(&self, pid: i32) {
        self.with(|pids| pids.remove(&pid));
    }
}

/// What leads to the processes of an application, or of several.
#[derive(Clone, Debug)]
pub(super) struct Trail {
    /// Values of the variable.
    pub markers: BTreeSet<String>,
    /// The PEs, each the leader of a session.
    pub sessions: Vec<Process>,
    /// A shepherd is dead, and orphans may be its own. (Those of several dead ones can't be told
    /// apart, and need not be: all are to go.)
    pub orphans: Option<Shepherds>,
}

/// A process, from /proc/PID/stat.
#[derive(Clone, Copy, Debug)]
struct Stat {
    pid: i32,
    parent: i32,
    session: i32,
    started: u64,
    ended: bool,
}

fn parse(stat: &[u8]) -> Option<Stat> {
    let text = String::from_utf8_lossy(stat);
    let (pid, _) = text.split_once(' ')?;
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    Some(Stat {
        pid: pid.parse().ok()?,
        ended: matches!(*fields.first()?, "Z" | "X"),
        parent: fields.get(1)?.parse().ok()?,
        session: fields.get(3)?.parse().ok()?,
        started: fields.get(19)?.parse().ok()?,
    })
}

fn all() -> Vec<Stat> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(stat).collect()
}

fn stat(pid: i32) -> Option<Stat> {
    parse(&fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// What the kernel lists as the children of a process's threads.
fn listed(parent: i32) -> std::io::Result<String> {
    let mut all = String::new();
    for thread in fs::read_dir(format!("/proc/{parent}/task"))? {
        all.push_str(&fs::read_to_string(thread?.path().join("children"))?);
    }
    Ok(all)
}

/// The children of a process, as sessions that they lead.
pub(super) fn children(parent: i32) -> Vec<Process> {
    // Where the kernel has the list, the other processes, thousands perhaps, need not be looked at.
    let found = match listed(parent) {
        Ok(list) => list.split_whitespace().filter_map(|pid| stat(pid.parse().ok()?)).collect(),
        Err(_) => all(),
    };
    let of = |stat: &Stat| stat.parent == parent && stat.session == stat.pid;
    let found = found.into_iter().filter(of);
    found.map(|stat| Process { pid: stat.pid, started: stat.started }).collect()
}

/// Those that descend from `root` and not through `but`.
fn descendants(root: i32, but: &BTreeSet<i32>, all: &[Stat]) -> BTreeSet<i32> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for stat in all {
        children.entry(stat.parent).or_default().push(stat.pid);
    }
    let (mut found, mut todo) = (BTreeSet::new(), vec![root]);
    while let Some(parent) = todo.pop() {
        // Taken out, so that a torn picture of /proc can't make a circle.
        for child in children.remove(&parent).unwrap_or_default() {
            if !but.contains(&child) {
                found.insert(child);
                todo.push(child);
            }
        }
    }
    found
}

impl Trail {
    /// What leads to the processes of both: to look through all processes once is enough for many.
    pub fn and(mut self, mut other: Trail) -> Trail {
        self.markers.append(&mut other.markers);
        self.sessions.append(&mut other.sessions);
        Trail { orphans: self.orphans.or(other.orphans), ..self }
    }

    fn bears_marker(&self, pid: i32) -> bool {
        // A zombie's is empty; a stranger's can't be read.
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let value =
            |v: &[u8]| v.strip_prefix(VARIABLE.as_bytes())?.strip_prefix(b"=").map(<[u8]>::to_vec);
        let ours = |v: Vec<u8>| String::from_utf8(v).is_ok_and(|v| self.markers.contains(&v));
        environment.split(|b| *b == 0).filter_map(value).any(ours)
    }

    /// The living processes to which it leads.
    pub fn find(&self) -> Vec<i32> {
        let all = all();
        let own = std::process::id() as i32;
        // To the first process everybody's orphans come.
        let orphans = self
            .orphans
            .as_ref()
            .filter(|_| own != 1)
            .map(|shepherds| shepherds.with(|shepherds| descendants(own, shepherds, &all)));
        let orphans = orphans.unwrap_or_default();
        // The number of a session is not given away while anybody is in it. So it is another one's
        // if its leader is there and is not the PE.
        let started: BTreeMap<i32, u64> = all.iter().map(|s| (s.pid, s.started)).collect();
        let leader = |p: &Process| started.get(&p.pid).is_none_or(|at| *at == p.started);
        let sessions: BTreeSet<i32> =
            self.sessions.iter().filter(|p| leader(p)).map(|p| p.pid).collect();
        all.iter()
            .filter(|s| !s.ended && s.pid != own)
            .filter(|s| {
                sessions.contains(&s.session)
                    || orphans.contains(&s.pid)
                    || self.bears_marker(s.pid)
            })
            .map(|s| s.pid)
            .collect()
    }

    /// Kills them; again, a bounded number of times, as long as new ones are found.
    pub fn kill(&self) {
        let mut known = BTreeSet::new();
        for _ in 0..ROUNDS {
            let new: Vec<i32> = self.find().into_iter().filter(|pid| known.insert(*pid)).collect();
            if new.is_empty() {
                return;
            }
            for pid in new {
                let pid = nix::unistd::Pid::from_raw(pid);
                let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Child, Command};
    use std::time::{Duration, Instant};

    fn trail(marker: &str) -> Trail {
        Trail { markers: [marker.into()].into(), sessions: Vec::new(), orphans: None }
    }

    #[track_caller]
    fn leads_to(trail: &Trail, child: &mut Child) {
        let pid = child.id() as i32;
        // spawn returns when the old memory is gone, an instant before the new environment is there.
        let until = Instant::now() + Duration::from_secs(10);
        while trail.find() != [pid] {
            assert!(Instant::now() < until, "it is not found");
        }
        trail.kill();
        let status = child.wait().expect("it is a child");
        assert_eq!(status.signal(), Some(9));
        assert!(trail.find().is_empty());
    }

    #[test]
    fn by_environment() {
        let marker = format!("test.{}.1", std::process::id());
        let mut sleep = Command::new("sleep");
        let mut child = sleep.arg("100").env(VARIABLE, &marker).spawn().expect("a sleep");
        assert!(trail(&format!("{marker}1")).find().is_empty());
        leads_to(&trail(&marker), &mut child);
    }

    #[test]
    fn by_session() {
        let mut child = Command::new("setsid").arg("sleep").arg("100").spawn().expect("setsid");
        let pid = child.id() as i32;
        let until = Instant::now() + Duration::from_secs(10);
        let leader = loop {
            if let Some(leader) =
                children(std::process::id() as i32).into_iter().find(|p| p.pid == pid)
            {
                break leader;
            }
            assert!(Instant::now() < until, "it leads no session");
        };
        // One that has its number by chance is not it.
        let other = Process { started: leader.started + 1, ..leader };
        let nobody = Trail { sessions: vec![other], ..trail("nobody's.1.1") };
        assert!(nobody.find().is_empty());
        leads_to(&Trail { sessions: vec![leader], ..trail("nobody's.1.1") }, &mut child);
    }

    #[test]
    fn of_several_at_once() {
        let own = std::process::id();
        let (one, two) = (format!("test.{own}.2"), format!("test.{own}.3"));
        let of = |marker: &str| {
            let mut sleep = Command::new("sleep");
            sleep.arg("100").env(VARIABLE, marker).spawn().expect("a sleep")
        };
        let mut children = [of(&one), of(&two)];
        let both = trail(&one).and(trail(&two));
        let until = Instant::now() + Duration::from_secs(10);
        while both.find().len() < 2 {
            assert!(Instant::now() < until, "they are not found");
        }
        both.kill();
        for child in &mut children {
            assert_eq!(child.wait().expect("it is a child").signal(), Some(9));
        }
    }

    #[test]
    fn by_descent() {
        let stat = |pid, parent| Stat { pid, parent, session: 1, started: 1, ended: false };
        let all =
            [stat(10, 1), stat(11, 10), stat(12, 11), stat(20, 10), stat(21, 20), stat(30, 1)];
        assert_eq!(descendants(10, &[11].into(), &all), [20, 21].into());
        assert_eq!(descendants(10, &[].into(), &all), [11, 12, 20, 21].into());
        let line = b"12 (a) b) Z 7 12 9 0 -1 4 1 1 1 1 1 1 1 1 20 0 1 0 4711 1 1";
        let stat = parse(line).expect("one");
        assert_eq!((stat.pid, stat.parent, stat.session, stat.started), (12, 7, 9, 4711));
        assert!(stat.ended && parse(b"12 (a) Z").is_none());
    }
}
