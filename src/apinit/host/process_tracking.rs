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
//!
//! The environment of a process that hangs in the kernel may not be to be had ([`environ`]). Where it
//! is the owner's, and not older than the application, it counts as one that is left: it is named, and
//! holds up the application, but is not killed, for it may be a stranger.

use super::runtime::Process;
use crate::os::environ;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

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

/// Whose an application is, and since when.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Born {
    pub uid: u32,
    /// When its shepherd started, in clock ticks since boot; 0: not known.
    pub started: u64,
}

/// The living processes to which a trail leads.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub ours: Vec<Process>,
    /// Those that can't be looked at, and may be ours.
    pub unseen: Vec<Process>,
}

impl Found {
    pub fn len(&self) -> usize {
        self.ours.len() + self.unseen.len()
    }
}

/// What leads to the processes of an application, or of several.
#[derive(Clone, Debug)]
pub(super) struct Trail {
    /// Values of the variable, with those who bear them.
    pub markers: BTreeMap<String, Born>,
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
    /// As the kernel's letter has it.
    state: u8,
    /// It has executed nothing since its fork.
    fork: bool,
}

/// Of a process's flags: it was forked, and has not executed. (From linux/sched.h.)
const PF_FORKNOEXEC: u64 = 0x40;

impl Stat {
    /// It runs no instruction.
    fn stands(&self) -> bool {
        self.ended || matches!(self.state, b'T' | b't')
    }
}

fn parse(stat: &[u8]) -> Option<Stat> {
    let text = String::from_utf8_lossy(stat);
    let (pid, _) = text.split_once(' ')?;
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    Some(Stat {
        pid: pid.parse().ok()?,
        ended: matches!(*fields.first()?, "Z" | "X"),
        state: *fields.first()?.as_bytes().first()?,
        parent: fields.get(1)?.parse().ok()?,
        session: fields.get(3)?.parse().ok()?,
        started: fields.get(19)?.parse().ok()?,
        fork: fields.get(6)?.parse::<u64>().is_ok_and(|flags| flags & PF_FORKNOEXEC != 0),
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

/// When a process or a thread started, in clock ticks since boot.
pub(super) fn started(tid: i32) -> Option<u64> {
    Some(stat(tid)?.started)
}

/// Whether a process is there, and has not ended.
pub(super) fn lives(pid: i32) -> bool {
    stat(pid).is_some_and(|stat| !stat.ended)
}

/// The process that has this number now.
pub(super) fn process(pid: i32) -> Option<Process> {
    let stat = stat(pid)?;
    Some(Process { pid, started: stat.started })
}

/// The threads of a process.
pub(super) fn threads_of(pid: i32) -> Vec<i32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Whether a process has executed nothing since its fork: what runs in it is its parent's program.
pub(super) fn is_fork(pid: i32) -> bool {
    stat(pid).is_some_and(|stat| stat.fork)
}

/// The parent of a process.
pub(super) fn parent(pid: i32) -> Option<i32> {
    Some(stat(pid)?.parent)
}

/// The children of a process by their numbers, those that have ended too. Where the kernel has no
/// list of them: none.
pub(super) fn listed_children(parent: i32) -> Vec<i32> {
    let list = listed(parent).unwrap_or_default();
    list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// What the kernel lists as the children of a process's threads.
fn listed(parent: i32) -> std::io::Result<String> {
    let mut all = String::new();
    for thread in fs::read_dir(format!("/proc/{parent}/task"))? {
        all.push_str(&fs::read_to_string(thread?.path().join("children"))?);
    }
    Ok(all)
}

/// The four user ids in the text of /proc/PID/status.
fn user_ids(status: &str) -> impl Iterator<Item = u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
    line.split_ascii_whitespace().filter_map(|id| id.parse().ok())
}

/// Sends them a signal, and nobody who has been given one of their pids meanwhile.
fn signal(processes: &[Process], signal: rustix::process::Signal) {
    for pidfd in processes.iter().filter_map(|process| process.opened()) {
        // An Err: it has ended.
        let _ = rustix::process::pidfd_send_signal(pidfd, signal);
    }
}

/// Kills them.
fn end(processes: &[Process]) {
    signal(processes, rustix::process::Signal::KILL);
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

    fn leads_to(&self, environment: &[u8]) -> bool {
        let value = |v: &[u8]| -> Option<String> {
            let value = v.strip_prefix(VARIABLE.as_bytes())?.strip_prefix(b"=")?;
            String::from_utf8(value.to_vec()).ok()
        };
        let mut values = environment.split(|b| *b == 0).filter_map(value);
        values.any(|value| self.markers.contains_key(&value))
    }

    /// Whether one whose environment is not to be had may be one of them.
    fn may_lead_to(&self, process: Process) -> bool {
        let status = fs::read(format!("/proc/{}/status", process.pid)).unwrap_or_default();
        let status = String::from_utf8_lossy(&status);
        let of = |born: &Born| {
            process.started >= born.started && user_ids(&status).any(|uid| uid == born.uid)
        };
        self.markers.values().any(of)
    }

    /// The living processes to which it leads.
    pub fn find(&self) -> Found {
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
        let since = self.markers.values().map(|born| born.started).min().unwrap_or(0);
        let mut found = Found::default();
        let mut others = BTreeMap::new();
        for stat in all.iter().filter(|s| !s.ended && s.pid != own) {
            let process = Process { pid: stat.pid, started: stat.started };
            if sessions.contains(&stat.session) || orphans.contains(&stat.pid) {
                found.ours.push(process);
            } else if stat.started >= since {
                others.insert(stat.pid, process);
            }
        }
        environ::each(others.keys().copied(), |pid, environment| {
            let Some(process) = others.get(&pid).copied() else { return };
            match environment {
                Some(environment) if self.leads_to(environment) => found.ours.push(process),
                None if self.may_lead_to(process) => found.unseen.push(process),
                _ => (),
            }
        });
        found
    }

    /// Stops them, and says whether all of them stand: by then, or not.
    ///
    /// Each is sent SIGSTOP, one that stands before its tracer too: it stays there when that lets go.
    /// While one of them runs it may make another that a look misses; so they all stand only if nobody
    /// new is found by a look that began when they did.
    pub fn stop(&self, until: Instant) -> bool {
        let (mut known, mut stood) = (BTreeSet::new(), false);
        loop {
            let found = self.find();
            let goes = |process: &Process| stat(process.pid).is_some_and(|stat| !stat.stands());
            let new = |process: &&Process| known.insert(**process) || goes(process);
            let going: Vec<Process> = found.ours.iter().filter(new).copied().collect();
            let stand = going.is_empty() && found.unseen.is_empty();
            if stand && stood {
                return true;
            }
            if Instant::now() >= until {
                return false;
            }
            stood = stand;
            signal(&going, rustix::process::Signal::STOP);
        }
    }

    /// Whether some of them are stopped, not by a tracer.
    pub fn any_stopped(&self) -> bool {
        let stands = |process: &Process| stat(process.pid).is_some_and(|stat| stat.state == b'T');
        self.find().ours.iter().any(stands)
    }

    /// Lets them go on.
    pub fn resume(&self) {
        signal(&self.find().ours, rustix::process::Signal::CONT);
    }

    /// Kills them; again, a bounded number of times, as long as new ones are found.
    pub fn kill(&self) {
        let mut known = BTreeSet::new();
        for _ in 0..ROUNDS {
            let found = self.find().ours.into_iter();
            let new: Vec<Process> = found.filter(|process| known.insert(*process)).collect();
            if new.is_empty() {
                return;
            }
            end(&new);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Child, Command};
    use std::time::Duration;

    fn trail(marker: &str) -> Trail {
        let markers = [(marker.into(), Born::default())].into();
        Trail { markers, sessions: Vec::new(), orphans: None }
    }

    fn pids(trail: &Trail) -> Vec<i32> {
        trail.find().ours.iter().map(|process| process.pid).collect()
    }

    #[track_caller]
    fn leads_to(trail: &Trail, child: &mut Child) {
        let pid = child.id() as i32;
        // spawn returns when the old memory is gone, an instant before the new environment is there.
        let until = Instant::now() + Duration::from_secs(10);
        while pids(trail) != [pid] {
            assert!(Instant::now() < until, "it is not found");
        }
        trail.kill();
        let status = child.wait().expect("it is a child");
        assert_eq!(status.signal(), Some(9));
        assert!(pids(trail).is_empty());
    }

    #[test]
    fn by_environment() {
        let marker = format!("test.{}.1", std::process::id());
        let mut sleep = Command::new("sleep");
        let mut child = sleep.arg("100").env(VARIABLE, &marker).spawn().expect("a sleep");
        assert!(pids(&trail(&format!("{marker}1"))).is_empty());
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
        assert!(pids(&nobody).is_empty());
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
        while pids(&both).len() < 2 {
            assert!(Instant::now() < until, "they are not found");
        }
        both.kill();
        for child in &mut children {
            assert_eq!(child.wait().expect("it is a child").signal(), Some(9));
        }
    }

    #[test]
    fn what_is_older_than_the_application_is_not_its() {
        let marker = format!("test.{}.4", std::process::id());
        let mut sleep = Command::new("sleep");
        let mut child = sleep.arg("100").env(VARIABLE, &marker).spawn().expect("a sleep");
        let started = stat(child.id() as i32).expect("it is there").started;
        let since = |started| {
            let born = Born { uid: nix::unistd::getuid().as_raw(), started };
            Trail { markers: [(marker.clone(), born)].into(), ..trail("") }
        };
        assert!(pids(&since(started + 1)).is_empty());
        // Of what can't be looked at, the owner's may be.
        let process = Process { pid: child.id() as i32, started };
        assert!(since(started).may_lead_to(process) && !since(started + 1).may_lead_to(process));
        let mut strangers = since(started);
        strangers.markers.values_mut().for_each(|born| born.uid += 1);
        assert!(!strangers.may_lead_to(process));
        leads_to(&since(started), &mut child);
    }

    #[test]
    fn a_pid_that_was_given_away_is_spared() {
        let mut child = Command::new("sleep").arg("100").spawn().expect("a sleep");
        let now = Process::now(child.id() as i32);
        // What was found had the pid before, and so another start.
        end(&[Process { started: now.started - 1, ..now }]);
        let state = stat(now.pid).expect("it is there");
        assert!(!state.ended && child.try_wait().expect("a child").is_none());
        end(&[now]);
        assert_eq!(child.wait().expect("a child").signal(), Some(9));
    }

    #[test]
    fn by_descent() {
        let stat = |pid, parent| Stat {
            pid,
            parent,
            session: 1,
            started: 1,
            ended: false,
            state: b'S',
            fork: false,
        };
        let all =
            [stat(10, 1), stat(11, 10), stat(12, 11), stat(20, 10), stat(21, 20), stat(30, 1)];
        assert_eq!(descendants(10, &[11].into(), &all), [20, 21].into());
        assert_eq!(descendants(10, &[].into(), &all), [11, 12, 20, 21].into());
        let line = b"12 (a) b) Z 7 12 9 0 -1 4 1 1 1 1 1 1 1 1 20 0 1 0 4711 1 1";
        let stat = parse(line).expect("one");
        assert_eq!((stat.pid, stat.parent, stat.session, stat.started), (12, 7, 9, 4711));
        assert!(stat.ended && !stat.fork && parse(b"12 (a) Z").is_none());
        let line = b"12 (a) S 7 12 9 0 -1 4194368 1 1 1 1 1 1 1 1 20 0 1 0 4711 1 1";
        assert!(parse(line).is_some_and(|stat| stat.fork && !stat.ended));
    }
}
