//! Front ends that psched waits for, and the login hosts that say what has become of theirs.
//!
//! # Problem
//! If an aprun dies, its application is to end. The kernel tells psched of the death of a process
//! of psched's own host. The apinit of another host watches the apruns there, and its connection to
//! psched may break. From a silent apinit psched does not learn whether an aprun lives: the host
//! may be dead, or merely cut off.
//!
//! # Approach
//! psched names the processes that it waits for on each new connection of a login host, so that no
//! death is lost. A process of a former boot of the host has ended. While a login host is not
//! connected its front ends count as alive, until it has been away for `login_host_away`.
//!
//! One apinit of a host has such a connection, and watches the front ends of all its users. psched
//! refuses a second apinit, which has another folder of sockets: if each replaced the connection of
//! the other, psched would name all processes again and again. If the same apinit connects again,
//! its older connection is dead.
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
//! let (host, boot_id, folder) = ("n1".into(), "boot-b".into(), "/run/psched".into());
//! let opened = LoginSays::Opened { number: 1, host, boot_id, folder };
//! assert_eq!(hosts.hear(opened).gone, [Apid(1)]);
//! ```

use crate::apteam::Apid;
use crate::apteam::record::{FrontProcess, name_of};
use crate::variables::units::format_duration;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
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
        /// The folder of the apinit's sockets, which no other apinit of the host has; empty: an
        /// apinit of a release before does not tell it.
        folder: String,
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
    /// Watch a process of psched's host no more.
    UnwatchHere(FrontProcess),
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
    /// End an absence: the host is back, or no application waits for a front end there.
    EndAbsence {
        /// Which absence.
        absence: u64,
    },
}

/// Front ends of a login host that count as dead though no apinit has reported their death, and
/// why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftBehind {
    /// Name of the host.
    pub host: String,
    /// The host has been started anew; otherwise, it has been away for too long.
    pub restarted: bool,
    /// How many applications have their front end there.
    pub applications: usize,
}

impl LeftBehind {
    /// The message for the log. `away_max`: the value of `login_host_away`.
    pub fn words(&self, away_max: Duration) -> String {
        let (host, count) = (&self.host, self.applications);
        let apruns = match count {
            1 => "the aprun of 1 application there".to_owned(),
            _ => format!("the apruns of {count} applications there"),
        };
        match self.restarted {
            true => format!("the login host {host} was restarted: {apruns} died with it"),
            false => format!(
                "the login host {host} has been away for {} (login_host_away): psched takes {apruns} for dead",
                format_duration(away_max)
            ),
        }
    }
}

/// What follows from what a login host says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// Applications whose front end has ended.
    pub gone: Vec<Apid>,
    /// What is to be done.
    pub tasks: Vec<Task>,
    /// An older connection of the host, which is no longer in use.
    pub replaced: Option<u64>,
    /// Set if the connection is refused, because another apinit of the host has one.
    pub refused: Option<Refused>,
    /// A warning, if front ends count as ended.
    pub left_behind: Option<LeftBehind>,
}

/// Why the connection of an apinit of a login host is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The number of the connection.
    pub number: u64,
    /// Name of the host.
    pub host: String,
    /// The folder of the refused apinit, and that of the apinit that has the connection.
    pub folders: [String; 2],
    /// This apinit was not refused before while that connection lasts.
    pub first: bool,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (host, [own, other]) = (&self.host, &self.folders);
        write!(
            f,
            "on {host} the apinit with --runtime {other} watches the front ends of all users; the apinit with \
             --runtime {own} takes over when that one has ended"
        )
    }
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
///
/// What is kept is bounded by the applications that have front ends, and by the hosts that are
/// connected. A host that names a new boot with each request leaves nothing behind.
#[derive(Debug, Default)]
pub struct LoginHosts {
    /// Applications of each process.
    processes: BTreeMap<FrontProcess, BTreeSet<Apid>>,
    of: BTreeMap<Apid, FrontProcess>,
    /// Front ends that are to be signalled, by application, and whose rights that takes.
    signals: BTreeMap<Apid, u32>,
    /// Login hosts that are connected or have front ends that are waited for, by name.
    hosts: BTreeMap<Arc<str>, LoginHost>,
    /// Connections in use, by number: the host of each.
    links: BTreeMap<u64, Arc<str>>,
    /// Counts absences.
    next_absence: u64,
}

/// One login host.
#[derive(Debug, Default)]
struct LoginHost {
    /// Its connection.
    link: Option<LoginLink>,
    /// Boots of which processes are waited for, as `NAME/BOOT`.
    boots: BTreeMap<Arc<str>, Boot>,
}

/// The connection of a login host.
#[derive(Debug)]
struct LoginLink {
    number: u64,
    /// The host and its boot, `NAME/BOOT`.
    of: Arc<str>,
    /// The folder of its apinit.
    folder: String,
    /// The folder of the apinit that was last refused for its sake.
    refused: Option<String>,
}

/// Front ends of one boot of a host: at least one.
#[derive(Debug, Default)]
struct Boot {
    processes: BTreeSet<FrontProcess>,
    /// Which absence this is, while the host is not connected.
    absence: Option<u64>,
}

impl LoginHost {
    /// The connection to this boot.
    fn link_of(&self, boot: &str) -> Option<u64> {
        self.link.as_ref().filter(|link| *link.of == *boot).map(|link| link.number)
    }
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
        let host = self.hosts.entry(name_of(&process.host).into()).or_default();
        let link = host.link_of(&process.host);
        let boot = host.boots.entry(process.host.clone()).or_default();
        boot.processes.insert(process.clone());
        match link {
            Some(link) => Some(Task::Name { link, processes: vec![process] }),
            None if boot.absence.is_some() => None,
            None => Some(boot.gives_up(process.host, &mut self.next_absence)),
        }
    }

    /// Whether this process is waited for.
    pub fn is_watched(&self, process: &FrontProcess) -> bool {
        self.processes.contains_key(process)
    }

    /// A process of psched's host has ended. Returned: its applications.
    pub fn ended(&mut self, process: &FrontProcess) -> Vec<Apid> {
        self.processes.remove(process).into_iter().flatten().collect()
    }

    /// An application has ended. Returned: what is to be done if nothing else waits for its front
    /// end.
    pub fn forget(&mut self, apid: Apid) -> Option<Task> {
        self.signals.remove(&apid);
        let process = self.of.remove(&apid)?;
        let apids = self.processes.get_mut(&process)?;
        apids.remove(&apid);
        if !apids.is_empty() {
            return None;
        }
        self.processes.remove(&process);
        match process.host.is_empty() {
            true => Some(Task::UnwatchHere(process)),
            false => self.leaves(&process),
        }
    }

    /// Where the signal for this front end goes, if it asks for one.
    pub fn nudge(&self, apid: Apid, process: &FrontProcess) -> Option<Nudge> {
        let uid = *self.signals.get(&apid)?;
        let host = self.hosts.get(name_of(&process.host));
        Some(match host.and_then(|host| host.link_of(&process.host)) {
            Some(link) => Nudge::Login { link, uid },
            None => Nudge::Here(uid),
        })
    }

    /// Hears of a login host.
    pub fn hear(&mut self, says: LoginSays) -> Heard {
        match says {
            LoginSays::Opened { number, host, boot_id, folder } => {
                self.opened(number, &host, &boot_id, folder)
            }
            LoginSays::Gone { host, boot_id, processes } => {
                let host: Arc<str> = format!("{host}/{boot_id}").into();
                let process = |(pid, started)| FrontProcess { pid, started, host: host.clone() };
                self.gone(processes.into_iter().map(process))
            }
            LoginSays::Closed { number } => self.closed(number),
            LoginSays::Lost { host, absence } => {
                let boots = self.hosts.get(name_of(&host)).map(|of_name| &of_name.boots);
                let boot = boots.and_then(|boots| boots.get(&host));
                // (It may have come and gone again while this was on its way.)
                let Some(boot) = boot.filter(|boot| boot.absence == Some(absence)) else {
                    return Heard::default();
                };
                let lost = boot.processes.clone();
                // (What counts this absence is over.)
                Heard { tasks: Vec::new(), ..self.left_behind(&host, lost, false) }
            }
        }
    }

    fn opened(&mut self, number: u64, name: &Arc<str>, boot_id: &str, folder: String) -> Heard {
        let id: Arc<str> = format!("{name}/{boot_id}").into();
        let host = self.hosts.entry(name.clone()).or_default();
        // (What has connected from a former boot is dead.)
        let other = host.link.as_mut().filter(|link| link.of == id && link.is_of_another(&folder));
        if let Some(link) = other {
            let first = link.refused.replace(folder.clone()).as_ref() != Some(&folder);
            let (host, folders) = (name.to_string(), [folder, link.folder.clone()]);
            let refused = Some(Refused { number, host, folders, first });
            return Heard { refused, ..Heard::default() };
        }
        let link = LoginLink { number, of: id.clone(), folder, refused: None };
        let replaced = host.link.replace(link).map(|before| before.number);
        let back = host.boots.values_mut().filter_map(|boot| boot.absence.take());
        let mut tasks: Vec<Task> = back.map(|absence| Task::EndAbsence { absence }).collect();
        let (mut alive, mut dead) = (Vec::new(), Vec::new());
        for (boot, Boot { processes, .. }) in &host.boots {
            let of_boot = if *boot == id { &mut alive } else { &mut dead };
            of_boot.extend(processes.iter().cloned());
        }
        if !alive.is_empty() {
            tasks.push(Task::Name { link: number, processes: alive });
        }
        if let Some(before) = replaced {
            self.links.remove(&before);
        }
        self.links.insert(number, name.clone());
        Heard { tasks, replaced, ..self.left_behind(name, dead, true) }
    }

    fn closed(&mut self, number: u64) -> Heard {
        // (The end of a connection that has been replaced is no news.)
        let Some(name) = self.links.remove(&number) else { return Heard::default() };
        let Some(host) = self.hosts.get_mut(&name) else { return Heard::default() };
        host.link = None;
        // (With the connection there were front ends of its own boot only.)
        let away = host.boots.iter_mut().filter(|(_, boot)| boot.absence.is_none());
        let next = &mut self.next_absence;
        let tasks = away.map(|(id, boot)| boot.gives_up(id.clone(), next)).collect();
        if host.boots.is_empty() {
            self.hosts.remove(&name);
        }
        Heard { tasks, ..Heard::default() }
    }

    /// Nothing waits any more for a process of a login host.
    fn leaves(&mut self, process: &FrontProcess) -> Option<Task> {
        let name = name_of(&process.host);
        let host = self.hosts.get_mut(name)?;
        let boot = host.boots.get_mut(&process.host)?;
        boot.processes.remove(process);
        if !boot.processes.is_empty() {
            return None;
        }
        let absence = boot.absence;
        host.boots.remove(&process.host);
        if host.boots.is_empty() && host.link.is_none() {
            self.hosts.remove(name);
        }
        absence.map(|absence| Task::EndAbsence { absence })
    }

    /// These count as ended.
    fn left_behind(
        &mut self,
        host: &str,
        ended: impl IntoIterator<Item = FrontProcess>,
        restarted: bool,
    ) -> Heard {
        let heard = self.gone(ended);
        let left_behind = (!heard.gone.is_empty()).then(|| LeftBehind {
            host: name_of(host).to_owned(),
            restarted,
            applications: heard.gone.len(),
        });
        Heard { left_behind, ..heard }
    }

    /// These have ended.
    fn gone(&mut self, ended: impl IntoIterator<Item = FrontProcess>) -> Heard {
        let mut heard = Heard::default();
        for process in ended {
            heard.tasks.extend(self.leaves(&process));
            heard.gone.extend(self.ended(&process));
        }
        heard
    }
}

impl LoginLink {
    /// Whether this folder is another apinit's. (Of two apinits of a release before the newer one
    /// has the connection.)
    fn is_of_another(&self, folder: &str) -> bool {
        !folder.is_empty() && !self.folder.is_empty() && folder != self.folder
    }
}

impl Boot {
    /// The host is not connected, and these are waited for.
    fn gives_up(&mut self, host: Arc<str>, next: &mut u64) -> Task {
        let absence = *next;
        *next += 1;
        self.absence = Some(absence);
        Task::GiveUpLater { host, absence }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, host: &str) -> FrontProcess {
        FrontProcess { host: host.into(), ..FrontProcess::here(pid, 7) }
    }

    fn opened(hosts: &mut LoginHosts, number: u64, boot_id: &str) -> Heard {
        opened_by(hosts, number, boot_id, "/run/psched")
    }

    fn opened_by(hosts: &mut LoginHosts, number: u64, boot_id: &str, folder: &str) -> Heard {
        let (host, boot_id, folder) = ("n1".into(), boot_id.to_owned(), folder.to_owned());
        hosts.hear(LoginSays::Opened { number, host, boot_id, folder })
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
        assert_eq!(heard.tasks, [Task::EndAbsence { absence: 0 }, named]);
        assert_eq!((heard.gone, heard.left_behind), (vec![], None));
        // (The end of the older connection is heard later.)
        let five = Task::Name { link: 5, processes: vec![process(1, "n1/a"), process(2, "n1/a")] };
        let heard = opened(&mut hosts, 5, "a");
        assert_eq!((heard.tasks, heard.replaced), (vec![five], Some(4)));
        assert_eq!(hosts.hear(LoginSays::Closed { number: 4 }), Heard::default());
        let nudge = hosts.nudge(Apid(1), &process(1, "n1/a"));
        assert_eq!(nudge, Some(Nudge::Login { link: 5, uid: 1000 }));
        assert_eq!(hosts.nudge(Apid(2), &process(2, "n1/a")), None);
    }

    /// Two would take the connection from each other for ever.
    #[test]
    fn a_second_apinit_of_a_host_is_refused_while_the_first_is_connected() {
        let mut hosts = LoginHosts::default();
        hosts.watch(Apid(1), process(1, "n1/a"), false, Some(1000));
        assert_eq!(opened_by(&mut hosts, 1, "a", "/run/one").refused, None);
        for (number, first) in [(2, true), (3, false)] {
            let heard = opened_by(&mut hosts, number, "a", "/run/two");
            let refused = heard.refused.clone().expect("it is refused");
            assert_eq!((refused.number, refused.first), (number, first));
            assert_eq!(heard, Heard { refused: heard.refused.clone(), ..Heard::default() });
            let words = refused.to_string();
            assert!(words.contains("on n1 the apinit with --runtime /run/one watches"), "{words}");
            assert_eq!(hosts.hear(LoginSays::Closed { number }), Heard::default());
        }
        let nudge = hosts.nudge(Apid(1), &process(1, "n1/a"));
        assert_eq!(nudge, Some(Nudge::Login { link: 1, uid: 1000 }));
        // The first one connects again before psched has noticed that it was cut off.
        let heard = opened_by(&mut hosts, 4, "a", "/run/one");
        assert_eq!((heard.refused, heard.replaced), (None, Some(1)));
        // It is gone: the other one is named all.
        hosts.hear(LoginSays::Closed { number: 4 });
        let named = Task::Name { link: 5, processes: vec![process(1, "n1/a")] };
        let heard = opened_by(&mut hosts, 5, "a", "/run/two");
        assert_eq!((heard.refused, heard.tasks.last()), (None, Some(&named)));
        // After a restart of the host the first apinit has it. An apinit of a release before, which
        // tells no folder, replaces another one and is replaced.
        assert_eq!(opened_by(&mut hosts, 6, "b", "/run/one").replaced, Some(5));
        assert_eq!(opened_by(&mut hosts, 7, "b", "").replaced, Some(6));
        assert_eq!(opened_by(&mut hosts, 8, "b", "/run/two").replaced, Some(7));
    }

    #[test]
    fn what_another_boot_or_a_long_absence_leaves_behind_is_named() {
        let mut hosts = LoginHosts::default();
        hosts.watch(Apid(1), process(1, "n1/a"), false, None);
        hosts.watch(Apid(2), process(1, "n10/a"), false, None);
        let heard = opened(&mut hosts, 1, "b");
        assert_eq!(heard.gone, [Apid(1)]);
        let words = heard.left_behind.expect("a warning").words(Duration::from_secs(60));
        assert!(
            words
                .contains("the login host n1 was restarted: the aprun of 1 application there died"),
            "{words}"
        );
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
        let unwatch = Some(Task::UnwatchHere(here.clone()));
        assert_eq!((hosts.forget(Apid(2)), hosts.is_watched(&here)), (unwatch, false));
        assert_eq!(hosts.ended(&here), []);
    }
    /// A login host could name another boot with each request, and none of them would ever be back.
    #[test]
    fn boots_that_there_never_were_leave_nothing_behind() {
        let mut hosts = LoginHosts::default();
        for apid in 0..1_000 {
            let process = process(1, &format!("n1/{apid}"));
            let later = hosts.watch(Apid(apid), process, false, None);
            let Some(Task::GiveUpLater { absence, .. }) = later else { panic!("{later:?}") };
            assert_eq!(hosts.forget(Apid(apid)), Some(Task::EndAbsence { absence }));
            assert!(hosts.hosts.is_empty() && hosts.processes.is_empty());
        }
        // Nor does a front end whose end is heard late, or a host that was connected.
        let heard = opened(&mut hosts, 1, "a");
        assert_eq!((heard.tasks, heard.replaced), (vec![], None));
        hosts.watch(Apid(1), process(1, "n1/a"), false, None);
        hosts.watch(Apid(2), process(1, "n1/b"), false, None);
        let later = |absence| Task::GiveUpLater { host: "n1/a".into(), absence };
        assert_eq!(hosts.hear(LoginSays::Closed { number: 1 }).tasks, [later(1_001)]);
        let gone = |boot_id: &str| {
            let (host, boot_id) = ("n1".into(), boot_id.to_owned());
            LoginSays::Gone { host, boot_id, processes: vec![(1, 7)] }
        };
        let heard = hosts.hear(gone("a"));
        assert_eq!((heard.gone, heard.tasks), (vec![Apid(1)], vec![ended(1_001)]));
        let heard = hosts.hear(gone("b"));
        assert_eq!((heard.gone, heard.tasks), (vec![Apid(2)], vec![ended(1_000)]));
        assert!(hosts.hosts.is_empty() && hosts.links.is_empty());
        // The end of an application whose front end has ended is nothing new.
        assert_eq!((hosts.forget(Apid(1)), hosts.forget(Apid(2))), (None, None));
    }

    fn ended(absence: u64) -> Task {
        Task::EndAbsence { absence }
    }
}
