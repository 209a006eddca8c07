//! Front ends: the processes that wait for an application.
//!
//! Each is known by a pidfd, which the kernel gave with its connection (or which was opened anew,
//! after a restart, for a pid whose start time is the recorded one). One task waits for its end,
//! however many applications it has posted; SIGUSR1 goes through the same descriptor, so that it
//! can never reach a process that has taken over the number. Only a front end that asks for the signal gets
//! it, and with no more rights than its user has ([`SignalHelper`]): it may have executed another program.
//!
//! Front ends on other hosts are watched by the apinit of their host ([`logins`](super::logins)), which says
//! when one has ended and sends it the signal. While that one is not connected nothing is known of them: they
//! count as there, until it has been away for `login_host_away`.

use super::front_handle::FrontHandle;
use super::input::Input;
use super::logins::{LoginEvent, LoginSender};
use crate::apteam::Apid;
use crate::apteam::record::FrontProcess;
use crate::os::peer::open_process;
use crate::os::signal_helper::SignalHelper;
use crate::os::watch::watch as watch_file;
use crate::psched::decide::Event;
use crate::psched::drive::Front;
use crate::variables::units::format_duration;
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::Interest;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

/// All front ends that are watched.
pub struct Fronts {
    inputs: mpsc::WeakSender<Input>,
    /// Applications of each process. Behind a lock only because the waiting task empties it.
    processes: Arc<Mutex<HashMap<FrontProcess, Watched>>>,
    of: HashMap<Apid, FrontProcess>,
    /// Front ends that are to be signalled, by application, and whose rights that takes.
    signals: HashMap<Apid, u32>,
    /// None: there is no helper, and no signal is sent.
    helper: Option<SignalHelper>,
    /// Login hosts that are connected, by name and boot.
    logins: HashMap<Arc<str>, Login>,
    /// Those that are not, and have front ends that are waited for: what gives them up in time.
    away: HashMap<Arc<str>, Away>,
    /// Counts these.
    next_away: AtomicU64,
    /// How long they may be away.
    away_max: watch::Receiver<Duration>,
    open: Open,
}

struct Login {
    number: u64,
    sender: LoginSender,
}

/// A login host that is not connected.
struct Away {
    number: u64,
    /// Waits until it is given up.
    task: AbortHandle,
}

struct Watched {
    apids: BTreeSet<Apid>,
    /// None: its host watches it.
    here: Option<Here>,
}

/// How a process of this host is watched.
struct Here {
    /// None: it could not be opened yet, which is tried again.
    pidfd: Option<Arc<OwnedFd>>,
    task: AbortHandle,
}

/// How long to wait before a process that can't be opened is tried again: no descriptors are left, say.
const OPEN_AGAIN: Duration = Duration::from_secs(1);

/// What opens a process by its pid and start time; `None`: it has ended.
type Open = fn(i32, u64) -> io::Result<Option<OwnedFd>>;

impl Fronts {
    /// None yet.
    pub fn new(
        inputs: mpsc::WeakSender<Input>,
        helper: Option<SignalHelper>,
        away_max: watch::Receiver<Duration>,
    ) -> Fronts {
        Fronts {
            inputs,
            processes: Arc::default(),
            of: HashMap::new(),
            signals: HashMap::new(),
            helper,
            logins: HashMap::new(),
            away: HashMap::new(),
            next_away: AtomicU64::new(0),
            away_max,
            open: open_process,
        }
    }

    /// Watches a process for an application.
    pub fn watch(&mut self, apid: Apid, front: Front<FrontHandle>) {
        let Front { process, handle: FrontHandle { pidfd, signal_as } } = front;
        match signal_as {
            Some(uid) => self.signals.insert(apid, uid),
            None => self.signals.remove(&apid),
        };
        self.watch_by(apid, process, pidfd, false);
    }

    /// `unopened`: it is of this host, and is to be opened once that can be done.
    fn watch_by(
        &mut self,
        apid: Apid,
        id: FrontProcess,
        pidfd: Option<Arc<OwnedFd>>,
        unopened: bool,
    ) {
        self.of.insert(apid, id.clone());
        let mut processes = self.processes.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(watched) = processes.get_mut(&id) {
            watched.apids.insert(apid);
            return;
        }
        let here = match pidfd {
            pidfd if unopened || pidfd.is_some() => Some(self.watch_here(id.clone(), pidfd)),
            _ => {
                match self.logins.get(&id.host) {
                    Some(login) => login.sender.watch([&id]),
                    None => {
                        if !self.away.contains_key(&id.host) {
                            let away = self.gives_up(Arc::clone(&id.host));
                            self.away.insert(Arc::clone(&id.host), away);
                        }
                    }
                }
                None
            }
        };
        processes.insert(id, Watched { apids: BTreeSet::from([apid]), here });
    }

    /// Waits for the end of a process of this host.
    fn watch_here(&self, id: FrontProcess, pidfd: Option<Arc<OwnedFd>>) -> Here {
        let (all, inputs, opened) = (self.processes.clone(), self.inputs.clone(), pidfd.clone());
        let open = self.open;
        let task = tokio::spawn(async move {
            let pidfd = match opened {
                Some(pidfd) => Some(pidfd),
                None => opened_later(&id, open, &all).await,
            };
            // (None: it has ended.)
            if let Some(pidfd) = pidfd {
                let Ok(fd) = watch_file(pidfd, Interest::READABLE) else { return };
                if fd.readable().await.is_err() {
                    return;
                }
            }
            let gone = all.lock().unwrap_or_else(|e| e.into_inner()).remove(&id);
            let Some(inputs) = inputs.upgrade() else { return };
            for apid in gone.map(|watched| watched.apids).unwrap_or_default() {
                if inputs.send(Input::Event(Box::new(Event::FrontGone { apid }))).await.is_err() {
                    return;
                }
            }
        });
        Here { pidfd, task: task.abort_handle() }
    }

    /// Finds the process of a record again. False: it has gone.
    pub fn find(&mut self, apid: Apid, process: FrontProcess) -> bool {
        if !process.host.is_empty() {
            // Its host says what has become of it.
            let handle = FrontHandle { pidfd: None, signal_as: None };
            self.watch(apid, Front { process, handle });
            return true;
        }
        let pidfd = match (self.open)(process.pid, process.started) {
            Ok(Some(pidfd)) => Some(Arc::new(pidfd)),
            Ok(None) => return false,
            Err(error) => {
                let pid = process.pid;
                tracing::warn!(apid = apid.0, pid, %error, "can't watch an aprun yet");
                None
            }
        };
        // Whether it asks for the signal it says again, when it connects again.
        self.signals.remove(&apid);
        let unopened = pidfd.is_none();
        self.watch_by(apid, process, pidfd, unopened);
        true
    }

    /// SIGUSR1: look. A signal that can't be sent is no harm, the event stream says the same.
    pub fn signal(&self, apid: Apid, process: &FrontProcess) {
        let Some(uid) = self.signals.get(&apid) else { return };
        if let Some(login) = self.logins.get(&process.host) {
            return login.sender.nudge(process, *uid);
        }
        let Some(helper) = &self.helper else { return };
        let processes = self.processes.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(Watched { here: Some(Here { pidfd: Some(pidfd), .. }), .. }) =
            processes.get(process)
            && let Err(error) = helper.nudge(pidfd.as_fd(), *uid)
        {
            tracing::debug!(apid = apid.0, %error, "no signal to aprun");
        }
    }

    /// An application has ended.
    pub fn forget(&mut self, apid: Apid) {
        self.signals.remove(&apid);
        let Some(id) = self.of.remove(&apid) else { return };
        let mut processes = self.processes.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(watched) = processes.get_mut(&id) {
            watched.apids.remove(&apid);
            if watched.apids.is_empty() {
                let here = processes.remove(&id).and_then(|watched| watched.here);
                here.inspect(|here| here.task.abort());
            }
        }
    }

    /// What a login host has to say. Returned: the applications whose front end has ended.
    pub fn login(&mut self, event: LoginEvent) -> Vec<Apid> {
        match event {
            LoginEvent::Opened { number, host, boot_id, sender } => {
                let id: Arc<str> = format!("{host}/{boot_id}").into();
                let boots = format!("{host}/");
                let processes = self.processes.lock().unwrap_or_else(|e| e.into_inner());
                let of_host = processes.keys().filter(|p| p.host.starts_with(&boots));
                let (alive, dead): (Vec<&FrontProcess>, Vec<&FrontProcess>) =
                    of_host.partition(|p| p.host == id);
                let dead: Vec<FrontProcess> = dead.into_iter().cloned().collect();
                sender.watch(alive);
                drop(processes);
                self.logins.retain(|other, _| !other.starts_with(&boots));
                self.away.retain(|other, away| {
                    let is_back = other.starts_with(&boots);
                    if is_back {
                        away.task.abort();
                    }
                    !is_back
                });
                self.logins.insert(id, Login { number, sender });
                self.gone(&dead)
            }
            LoginEvent::Gone { host, boot_id, processes } => {
                let host: Arc<str> = format!("{host}/{boot_id}").into();
                let process = |(pid, started)| FrontProcess { pid, started, host: host.clone() };
                self.gone(&processes.into_iter().map(process).collect::<Vec<_>>())
            }
            LoginEvent::Closed { number } => {
                let closed = self.logins.extract_if(|_, login| login.number == number);
                let hosts: Vec<Arc<str>> = closed.map(|(host, _)| host).collect();
                for host in hosts {
                    let away = self.gives_up(Arc::clone(&host));
                    self.away.insert(host, away);
                }
                Vec::new()
            }
            LoginEvent::Lost { host, number } => {
                // (It may have come and gone again while this was on its way.)
                if self.away.get(&host).is_none_or(|away| away.number != number) {
                    return Vec::new();
                }
                self.away.remove(&host);
                let processes = self.processes.lock().unwrap_or_else(|e| e.into_inner());
                let lost = processes.keys().filter(|process| process.host == host);
                let lost: Vec<FrontProcess> = lost.cloned().collect();
                drop(processes);
                let apids = self.gone(&lost);
                if !apids.is_empty() {
                    let name = host.split('/').next().unwrap_or_default();
                    let (away, count) = (format_duration(*self.away_max.borrow()), apids.len());
                    let whose = if count == 1 { "application" } else { "applications" };
                    tracing::warn!(
                        "the login host {name} has been away for {away} (login_host_away): {count} {whose} \
                         posted there count as left by their aprun"
                    );
                }
                apids
            }
        }
    }

    /// Has it said after a while that a login host does not come back.
    fn gives_up(&self, host: Arc<str>) -> Away {
        let number = self.next_away.fetch_add(1, Ordering::Relaxed);
        let since = Instant::now();
        let (inputs, mut away_max) = (self.inputs.clone(), self.away_max.clone());
        let task = tokio::spawn(async move {
            loop {
                let until = since + *away_max.borrow_and_update();
                tokio::select! {
                    () = sleep_until(until) => break,
                    // (An Err: psched ends.)
                    changed = away_max.changed() => if changed.is_err() { return },
                }
            }
            if let Some(inputs) = inputs.upgrade() {
                let _ = inputs.send(Input::Login(LoginEvent::Lost { host, number })).await;
            }
        });
        Away { number, task: task.abort_handle() }
    }

    /// These have ended.
    fn gone(&mut self, ended: &[FrontProcess]) -> Vec<Apid> {
        let mut processes = self.processes.lock().unwrap_or_else(|e| e.into_inner());
        let gone = ended.iter().filter_map(|process| processes.remove(process));
        gone.flat_map(|watched| watched.apids).collect()
    }
}

/// Opens a process once that can be done. None: it has ended.
async fn opened_later(
    id: &FrontProcess,
    open: Open,
    all: &Mutex<HashMap<FrontProcess, Watched>>,
) -> Option<Arc<OwnedFd>> {
    let pidfd = loop {
        tokio::time::sleep(OPEN_AGAIN).await;
        if let Ok(opened) = open(id.pid, id.started) {
            break Arc::new(opened?);
        }
    };
    let mut all = all.lock().unwrap_or_else(|e| e.into_inner());
    if let Some(here) = all.get_mut(id).and_then(|watched| watched.here.as_mut()) {
        here.pidfd = Some(Arc::clone(&pidfd));
    }
    Some(pidfd)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::pb;
    use std::sync::atomic::AtomicUsize;
    use tonic::Status;

    type Told = mpsc::Receiver<Result<pb::ToLogin, Status>>;

    const DAY: Duration = Duration::from_secs(86_400);

    fn fronts() -> Fronts {
        Fronts::new(mpsc::channel(1).0.downgrade(), None, watch::channel(DAY).1)
    }

    fn process(pid: i32, host: &str) -> FrontProcess {
        FrontProcess { host: host.into(), ..FrontProcess::here(pid, 7) }
    }

    fn watch(fronts: &mut Fronts, apid: u64, process: &FrontProcess) {
        let handle = FrontHandle { pidfd: None, signal_as: Some(1000) };
        fronts.watch(Apid(apid), Front { process: process.clone(), handle });
    }

    fn opened(fronts: &mut Fronts, number: u64, boot_id: &str) -> (Vec<Apid>, Told) {
        let (sender, told) = LoginSender::new();
        let boot_id = boot_id.to_owned();
        let event = LoginEvent::Opened { number, host: "n1".into(), boot_id, sender };
        (fronts.login(event), told)
    }

    /// The pids in a message: of processes to watch, or of the process to signal.
    fn pids(told: &mut Told) -> Vec<i32> {
        let pid = |process: pb::FrontEnd| process.pid;
        match told.try_recv().ok().and_then(|told| told.expect("a message").message) {
            Some(pb::to_login::Message::Watched(named)) => {
                let mut pids: Vec<i32> = named.processes.into_iter().map(pid).collect();
                pids.sort_unstable();
                pids
            }
            Some(pb::to_login::Message::Nudge(nudge)) => {
                nudge.process.map(pid).into_iter().collect()
            }
            None => Vec::new(),
        }
    }

    #[tokio::test]
    async fn a_login_host_watches_its_front_ends_and_signals_them() {
        let mut fronts = fronts();
        let (one, two) = (process(1, "n1/a"), process(2, "n1/a"));
        watch(&mut fronts, 1, &one);
        let (gone, mut told) = opened(&mut fronts, 1, "a");
        assert_eq!((gone, pids(&mut told)), (vec![], vec![1]));
        watch(&mut fronts, 2, &two);
        watch(&mut fronts, 3, &two);
        assert_eq!(pids(&mut told), [2], "once for all its applications");
        fronts.signal(Apid(2), &two);
        assert_eq!(pids(&mut told), [2]);
        let processes = vec![(2, 7), (1, 8)];
        let ended = LoginEvent::Gone { host: "n1".into(), boot_id: "a".into(), processes };
        assert_eq!(fronts.login(ended), [Apid(2), Apid(3)], "another start is another process");
        fronts.forget(Apid(1));
        assert!(fronts.processes.lock().expect("whole").is_empty());
    }

    #[tokio::test]
    async fn a_process_that_cannot_be_opened_is_not_dead() {
        let (inputs, mut told) = mpsc::channel(4);
        let mut fronts = Fronts::new(inputs.downgrade(), None, watch::channel(DAY).1);
        let own = std::process::id() as i32;
        let started = crate::os::peer::process_started(own).expect("it runs");
        let (lives, dead) =
            (FrontProcess::here(own, started), FrontProcess::here(own, started + 1));
        assert!(!fronts.find(Apid(1), dead.clone()));
        // There is no descriptor left at first.
        static TRIED: AtomicUsize = AtomicUsize::new(0);
        fronts.open = |pid, started| match TRIED.fetch_add(1, Ordering::Relaxed) {
            0 | 1 => Err(rustix::io::Errno::MFILE.into()),
            _ => open_process(pid, started),
        };
        assert!(fronts.find(Apid(2), lives.clone()) && fronts.find(Apid(3), dead.clone()));
        let Some(Input::Event(event)) = told.recv().await else { panic!("nothing is told") };
        assert_eq!(*event, Event::FrontGone { apid: Apid(3) });
        let opened = |fronts: &Fronts| {
            let processes = fronts.processes.lock().expect("whole");
            assert!(!processes.contains_key(&dead));
            processes[&lives].here.as_ref().is_some_and(|here| here.pidfd.is_some())
        };
        while !opened(&fronts) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(told.try_recv().is_err());
    }

    #[tokio::test]
    async fn what_a_login_host_says_counts_for_its_own_processes_only() {
        let mut fronts = fronts();
        watch(&mut fronts, 1, &process(1, "n2/b"));
        watch(&mut fronts, 2, &process(1, "n10/a"));
        let processes = vec![(1, 7)];
        let ended = LoginEvent::Gone { host: "n1".into(), boot_id: "b".into(), processes };
        assert_eq!(fronts.login(ended), []);
        assert_eq!(opened(&mut fronts, 1, "b").0, []);
    }

    /// After a break everything is named again; of another boot nothing is left.
    #[tokio::test]
    async fn a_login_host_comes_back() {
        let mut fronts = fronts();
        watch(&mut fronts, 1, &process(1, "n1/a"));
        let (_, mut first) = opened(&mut fronts, 1, "a");
        assert_eq!(pids(&mut first), [1]);
        let (gone, mut second) = opened(&mut fronts, 2, "a");
        assert_eq!((gone, pids(&mut second)), (vec![], vec![1]));
        // (The end of the older connection is heard later.)
        fronts.login(LoginEvent::Closed { number: 1 });
        fronts.signal(Apid(1), &process(1, "n1/a"));
        assert_eq!(pids(&mut second), [1]);
        fronts.login(LoginEvent::Closed { number: 2 });
        fronts.signal(Apid(1), &process(1, "n1/a"));
        assert_eq!(pids(&mut second), [0; 0]);
        let (gone, mut third) = opened(&mut fronts, 3, "b");
        assert_eq!((gone, pids(&mut third)), (vec![Apid(1)], vec![]));
    }

    /// One that never comes back would keep the applications of its users for ever.
    #[tokio::test(start_paused = true)]
    async fn a_login_host_that_stays_away_is_given_up() {
        let (inputs, mut queue) = mpsc::channel(4);
        let (bound, away_max) = watch::channel(DAY);
        let mut fronts = Fronts::new(inputs.downgrade(), None, away_max);
        let begun = Instant::now();
        // It has not connected since psched was started, comes, and goes.
        watch(&mut fronts, 1, &process(1, "n1/a"));
        watch(&mut fronts, 2, &process(2, "n1/a"));
        tokio::time::sleep(DAY / 2).await;
        let (_, mut told) = opened(&mut fronts, 1, "a");
        assert_eq!(pids(&mut told), [1, 2]);
        tokio::time::sleep(DAY * 3).await;
        fronts.login(LoginEvent::Closed { number: 1 });
        assert!(queue.try_recv().is_err());
        // The bound counts as it is now, from the end of the connection on.
        tokio::time::sleep(DAY / 4).await;
        bound.send_replace(DAY / 2);
        let Some(Input::Login(lost)) = queue.recv().await else { panic!("it is given up") };
        assert_eq!(begun.elapsed().as_secs(), (DAY * 4).as_secs());
        let mut gone = fronts.login(lost);
        gone.sort_unstable();
        assert_eq!(gone, [Apid(1), Apid(2)]);
        // What was on its way when it came back has no effect.
        watch(&mut fronts, 3, &process(3, "n1/a"));
        let (_, _told) = opened(&mut fronts, 2, "a");
        fronts.login(LoginEvent::Closed { number: 2 });
        assert_eq!(fronts.login(LoginEvent::Lost { host: "n1/a".into(), number: 1 }), []);
    }
}
