//! Front ends that psched waits for, and the login hosts that say what has become of theirs.
//!
//! # Problem
//! If an aprun dies, its application is to end. psched is told of the death of a process of its own
//! host by the kernel. A process of another host is watched by the apinit of that host, and the
//! connection to that one may break. An apinit that is silent says nothing of its users: its host
//! may be dead, or merely cut off.
//!
//! # Approach
//! psched names the processes that it waits for on each new connection of a login host, so that no
//! death is lost. A process of a former boot of the host has ended. While a login host is not
//! connected its front ends count as there, until it has been away for `login_host_away`.
//!
//! # Example
//! ```
//! use psched_pure::apteam::Apid;
//! use psched_pure::apteam::record::FrontProcess;
//! use psched_pure::psched::decide::login_hosts::{LoginHosts, LoginSays, Task};
//! let mut hosts = LoginHosts::default();
//! let aprun = FrontProcess { pid: 7, started: 1, host: "n1/boot-a".into() };
//! let task = hosts.watch(Apid(1), aprun, false, None);
//! assert_eq!(task, Some(Task::GiveUpLater { host: "n1/boot-a".into(), absence: 0 }));
//! let opened = LoginSays::Opened { number: 1, host: "n1".into(), boot_id: "boot-b".into() };
//! assert_eq!(hosts.hear(opened).gone, [Apid(1)]);
//! ```

use crate::apteam::Apid;
use crate::apteam::record::FrontProcess;
use crate::variables::units::format_duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// What comes of the connections of login hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginSays {
    /// The apinit of a login host has connected.
    Opened {
        /// Counts these connections.
        number: u64,
        /// The host, by its certificate.
        host: Arc<str>,
        /// Its boot.
        boot_id: String,
    },
    /// These processes of a host, by pid and start time, have ended.
    Gone {
        /// The host.
        host: Arc<str>,
        /// Its boot.
        boot_id: String,
        /// Which.
        processes: Vec<(i32, u64)>,
    },
    /// A host has been away for `login_host_away`.
    Lost {
        /// The host and its boot, `NAME/BOOT`.
        host: Arc<str>,
        /// Which absence of it.
        absence: u64,
    },
    /// The connection of this number is closed.
    Closed {
        /// Which.
        number: u64,
    },
}

/// What is to be done for the front ends that are watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// Watch a process of psched's host.
    WatchHere(FrontProcess),
    /// Name processes on the connection of this number.
    Name {
        /// The connection.
        link: u64,
        /// All of one host and boot.
        processes: Vec<FrontProcess>,
    },
    /// Say [`LoginSays::Lost`] once `login_host_away` has passed.
    GiveUpLater {
        /// The host and its boot, `NAME/BOOT`.
        host: Arc<str>,
        /// Which absence of it.
        absence: u64,
    },
    /// The host of this absence is back: it is not given up.
    IsBack {
        /// Which absence.
        absence: u64,
    },
}

/// Why front ends of a login host count as ended though nobody has seen their end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftBehind {
    /// Name of the host.
    pub host: String,
    /// The host has been started anew; otherwise, it has been away for too long.
    pub restarted: bool,
    /// How many applications wait for a front end there.
    pub applications: usize,
}

impl LeftBehind {
    /// The message for the log. `away_max`: the value of `login_host_away`.
    pub fn words(&self, away_max: Duration) -> String {
        let (host, count) = (&self.host, self.applications);
        let whose = if count == 1 { "application" } else { "applications" };
        let why = match self.restarted {
            true => "was restarted".to_owned(),
            false => format!("has been away for {} (login_host_away)", format_duration(away_max)),
        };
        format!(
            "the login host {host} {why}: {count} {whose} posted there count as left by their aprun"
        )
    }
}

/// What follows from what a login host says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// Applications whose front end has ended.
    pub gone: Vec<Apid>,
    /// What is to be done.
    pub tasks: Vec<Task>,
    /// A warning, if front ends count as ended.
    pub left_behind: Option<LeftBehind>,
}

/// Where SIGUSR1 for a front end goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nudge {
    /// To a process of psched's host, with the rights of this user.
    Here(u32),
    /// To the login host on a connection.
    Login {
        /// Its number.
        link: u64,
        /// With whose rights.
        uid: u32,
    },
}

/// Front ends that are watched, and the hosts where they are.
#[derive(Debug, Default)]
pub struct LoginHosts {
    /// Applications of each process.
    processes: BTreeMap<FrontProcess, BTreeSet<Apid>>,
    of: BTreeMap<Apid, FrontProcess>,
    /// Front ends that are to be signalled, by application, and whose rights that takes.
    signals: BTreeMap<Apid, u32>,
    /// Connections of login hosts, by name and boot.
    links: BTreeMap<Arc<str>, u64>,
    /// The absence of each that is not connected and has front ends that are waited for.
    away: BTreeMap<Arc<str>, u64>,
    /// Counts absences.
    next_absence: u64,
}

impl LoginHosts {
    /// Waits for a process for the sake of an application. `here`: it is of psched's host.
    /// `signal_as`: the user, if it asks for SIGUSR1.
    pub fn watch(
        &mut self,
        apid: Apid,
        process: FrontProcess,
        here: bool,
        signal_as: Option<u32>,
    ) -> Option<Task> {
        match signal_as {
            Some(uid) => self.signals.insert(apid, uid),
            None => self.signals.remove(&apid),
        };
        self.of.insert(apid, process.clone());
        if let Some(apids) = self.processes.get_mut(&process) {
            apids.insert(apid);
            return None;
        }
        self.processes.insert(process.clone(), BTreeSet::from([apid]));
        if here {
            return Some(Task::WatchHere(process));
        }
        match self.links.get(&process.host) {
            Some(link) => Some(Task::Name { link: *link, processes: vec![process] }),
            None if self.away.contains_key(&process.host) => None,
            None => Some(self.gives_up(process.host)),
        }
    }

    /// Whether this process is waited for.
    pub fn is_watched(&self, process: &FrontProcess) -> bool {
        self.processes.contains_key(process)
    }

    /// Whether a connection of a login host is in use.
    pub fn has_link(&self, number: u64) -> bool {
        self.links.values().any(|link| *link == number)
    }

    /// A process of psched's host has ended. Returned: its applications.
    pub fn ended(&mut self, process: &FrontProcess) -> Vec<Apid> {
        self.processes.remove(process).into_iter().flatten().collect()
    }

    /// An application has ended. Returned: its front end, if nothing else waits for that.
    pub fn forget(&mut self, apid: Apid) -> Option<FrontProcess> {
        self.signals.remove(&apid);
        let process = self.of.remove(&apid)?;
        let apids = self.processes.get_mut(&process)?;
        apids.remove(&apid);
        if !apids.is_empty() {
            return None;
        }
        self.processes.remove(&process);
        Some(process)
    }

    /// Where the signal for this front end goes, if it asks for one.
    pub fn nudge(&self, apid: Apid, process: &FrontProcess) -> Option<Nudge> {
        let uid = *self.signals.get(&apid)?;
        Some(match self.links.get(&process.host) {
            Some(link) => Nudge::Login { link: *link, uid },
            None => Nudge::Here(uid),
        })
    }

    /// Hears of a login host.
    pub fn hear(&mut self, says: LoginSays) -> Heard {
        match says {
            LoginSays::Opened { number, host, boot_id } => self.opened(number, &host, &boot_id),
            LoginSays::Gone { host, boot_id, processes } => {
                let host: Arc<str> = format!("{host}/{boot_id}").into();
                let process = |(pid, started)| FrontProcess { pid, started, host: host.clone() };
                let ended: Vec<FrontProcess> = processes.into_iter().map(process).collect();
                Heard { gone: self.gone(&ended), ..Heard::default() }
            }
            LoginSays::Closed { number } => {
                let closed = self.links.iter().filter(|(_, link)| **link == number);
                let hosts: Vec<Arc<str>> = closed.map(|(host, _)| host.clone()).collect();
                self.links.retain(|_, link| *link != number);
                let tasks = hosts.into_iter().map(|host| self.gives_up(host)).collect();
                Heard { tasks, ..Heard::default() }
            }
            LoginSays::Lost { host, absence } => {
                // (It may have come and gone again while this was on its way.)
                if self.away.get(&host).is_none_or(|away| *away != absence) {
                    return Heard::default();
                }
                self.away.remove(&host);
                let lost = self.processes.keys().filter(|process| process.host == host);
                let lost: Vec<FrontProcess> = lost.cloned().collect();
                self.left_behind(&host, &lost, false)
            }
        }
    }

    fn opened(&mut self, number: u64, host: &str, boot_id: &str) -> Heard {
        let (id, boots): (Arc<str>, _) = (format!("{host}/{boot_id}").into(), format!("{host}/"));
        let of_host = self.processes.keys().filter(|process| process.host.starts_with(&boots));
        let (alive, dead): (Vec<_>, Vec<_>) = of_host.cloned().partition(|p| p.host == id);
        let back = self.away.iter().filter(|(other, _)| other.starts_with(&boots));
        let mut tasks: Vec<Task> =
            back.map(|(_, absence)| Task::IsBack { absence: *absence }).collect();
        self.away.retain(|other, _| !other.starts_with(&boots));
        self.links.retain(|other, _| !other.starts_with(&boots));
        self.links.insert(id, number);
        if !alive.is_empty() {
            tasks.push(Task::Name { link: number, processes: alive });
        }
        Heard { tasks, ..self.left_behind(host, &dead, true) }
    }

    /// A host is not connected, and has front ends that are waited for.
    fn gives_up(&mut self, host: Arc<str>) -> Task {
        let absence = self.next_absence;
        self.next_absence += 1;
        self.away.insert(host.clone(), absence);
        Task::GiveUpLater { host, absence }
    }

    /// These count as ended.
    fn left_behind(&mut self, host: &str, ended: &[FrontProcess], restarted: bool) -> Heard {
        let gone = self.gone(ended);
        let left_behind = (!gone.is_empty()).then(|| LeftBehind {
            host: host.split('/').next().unwrap_or_default().to_owned(),
            restarted,
            applications: gone.len(),
        });
        Heard { gone, left_behind, ..Heard::default() }
    }

    /// These have ended.
    fn gone(&mut self, ended: &[FrontProcess]) -> Vec<Apid> {
        ended.iter().flat_map(|process| self.ended(process)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, host: &str) -> FrontProcess {
        FrontProcess { host: host.into(), ..FrontProcess::here(pid, 7) }
    }

    fn opened(hosts: &mut LoginHosts, number: u64, boot_id: &str) -> Heard {
        let (host, boot_id) = ("n1".into(), boot_id.to_owned());
        hosts.hear(LoginSays::Opened { number, host, boot_id })
    }

    #[test]
    fn a_host_that_is_back_is_named_all_of_its_processes() {
        let mut hosts = LoginHosts::default();
        let later = hosts.watch(Apid(1), process(1, "n1/a"), false, Some(1000));
        assert_eq!(later, Some(Task::GiveUpLater { host: "n1/a".into(), absence: 0 }));
        assert_eq!(hosts.watch(Apid(2), process(2, "n1/a"), false, None), None);
        assert_eq!(hosts.watch(Apid(3), process(2, "n1/a"), false, None), None);
        let named = Task::Name { link: 4, processes: vec![process(1, "n1/a"), process(2, "n1/a")] };
        let heard = opened(&mut hosts, 4, "a");
        assert_eq!(heard.tasks, [Task::IsBack { absence: 0 }, named.clone()]);
        assert_eq!((heard.gone, heard.left_behind), (vec![], None));
        // (The end of the older connection is heard later.)
        let five = Task::Name { link: 5, processes: vec![process(1, "n1/a"), process(2, "n1/a")] };
        assert_eq!(opened(&mut hosts, 5, "a").tasks, [five]);
        assert_eq!(hosts.hear(LoginSays::Closed { number: 4 }), Heard::default());
        let nudge = hosts.nudge(Apid(1), &process(1, "n1/a"));
        assert_eq!(nudge, Some(Nudge::Login { link: 5, uid: 1000 }));
        assert_eq!(hosts.nudge(Apid(2), &process(2, "n1/a")), None);
    }

    #[test]
    fn what_another_boot_or_a_long_absence_leaves_behind_is_named() {
        let mut hosts = LoginHosts::default();
        hosts.watch(Apid(1), process(1, "n1/a"), false, None);
        hosts.watch(Apid(2), process(1, "n10/a"), false, None);
        let heard = opened(&mut hosts, 1, "b");
        assert_eq!(heard.gone, [Apid(1)]);
        let words = heard.left_behind.expect("a warning").words(Duration::from_secs(60));
        assert!(words.contains("the login host n1 was restarted: 1 application posted"), "{words}");
        let lost = |absence| LoginSays::Lost { host: "n10/a".into(), absence };
        assert_eq!(hosts.hear(lost(7)), Heard::default());
        let heard = hosts.hear(lost(1));
        assert_eq!(heard.gone, [Apid(2)]);
        let words = heard.left_behind.expect("a warning").words(Duration::from_secs(60));
        assert!(words.contains("n10 has been away for 1m (login_host_away)"), "{words}");
    }

    #[test]
    fn what_nothing_waits_for_is_forgotten() {
        let mut hosts = LoginHosts::default();
        let here = FrontProcess::here(1, 7);
        assert_eq!(
            hosts.watch(Apid(1), here.clone(), true, Some(1)),
            Some(Task::WatchHere(here.clone()))
        );
        assert_eq!(hosts.watch(Apid(2), here.clone(), true, Some(1)), None);
        assert_eq!(hosts.nudge(Apid(1), &here), Some(Nudge::Here(1)));
        assert_eq!((hosts.forget(Apid(1)), hosts.is_watched(&here)), (None, true));
        assert_eq!((hosts.forget(Apid(2)), hosts.is_watched(&here)), (Some(here.clone()), false));
        assert_eq!(hosts.ended(&here), []);
    }
}
