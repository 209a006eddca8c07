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
use crate::os::signal_helper::SignalHelper;
use crate::os::watch::watch as watch_file;
use crate::psched::decide::Event;
use crate::psched::drive::Front;
use crate::variables::units::format_duration;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::collections::{BTreeSet, HashMap};
use std::os::fd::{AsFd, OwnedFd};
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
    away: HashMap<Arc<str>, AbortHandle>,
    /// How long they may be away.
    away_max: watch::Receiver<Duration>,
}

struct Login {
    number: u64,
    sender: LoginSender,
}

struct Watched {
    apids: BTreeSet<Apid>,
    /// None: its host watches it.
    here: Option<Here>,
}

/// How a process of this host is watched.
struct Here {
    pidfd: Arc<OwnedFd>,
    task: AbortHandle,
}

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
            away_max,
        }
    }

    /// Watches a process for an application.
    pub fn watch(&mut self, apid: Apid, front: Front<FrontHandle>) {
        let Front { process: id, handle: FrontHandle { pidfd, signal_as } } = front;
        match signal_as {
            Some(uid) => self.signals.insert(apid, uid),
            None => self.signals.remove(&apid),
        };
        self.of.insert(apid, id.clone());
        let mut processes = self.processes.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(watched) = processes.get_mut(&id) {
            watched.apids.insert(apid);
            return;
        }
        let here = match pidfd {
            Some(pidfd) => Some(self.watch_here(id.clone(), pidfd)),
            None => {
                match self.logins.get(&id.host) {
                    Some(login) => login.sender.watch([&id]),
                    None => {
                        let host = Arc::clone(&id.host);
                        self.away.entry(host).or_insert_with_key(|host| {
                            gives_up(Arc::clone(host), self.inputs.clone(), self.away_max.clone())
                        });
                    }
                }
                None
            }
        };
        processes.insert(id, Watched { apids: BTreeSet::from([apid]), here });
    }

    /// Waits for the end of a process of this host.
    fn watch_here(&self, id: FrontProcess, pidfd: Arc<OwnedFd>) -> Here {
        let (all, inputs, fd) = (self.processes.clone(), self.inputs.clone(), pidfd.clone());
        let task = tokio::spawn(async move {
            let Ok(fd) = watch_file(fd, Interest::READABLE) else { return };
            if fd.readable().await.is_err() {
                return;
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
        let Some(pid) = Pid::from_raw(process.pid) else { return false };
        let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else { return false };
        // The start time is read after the descriptor was opened, so it is of the same process, or
        // of none.
        if crate::os::peer::process_started(process.pid).ok() != Some(process.started) {
            return false;
        }
        // Whether it asks for the signal it says again, when it connects again.
        let handle = FrontHandle { pidfd: Some(Arc::new(pidfd)), signal_as: None };
        self.watch(apid, Front { process, handle });
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
        if let Some(Watched { here: Some(here), .. }) = processes.get(process)
            && let Err(error) = helper.nudge(here.pidfd.as_fd(), *uid)
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
                self.away.retain(|other, task| {
                    let is_back = other.starts_with(&boots);
                    if is_back {
                        task.abort();
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
                    let (inputs, away_max) = (self.inputs.clone(), self.away_max.clone());
                    self.away.insert(Arc::clone(&host), gives_up(host, inputs, away_max));
                }
                Vec::new()
            }
            LoginEvent::Lost { host } => {
                if self.logins.contains_key(&host) || self.away.remove(&host).is_none() {
                    return Vec::new();
                }
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

    /// These have ended.
    fn gone(&mut self, ended: &[FrontProcess]) -> Vec<Apid> {
        let mut processes = self.processes.lock().unwrap_or_else(|e| e.into_inner());
        let gone = ended.iter().filter_map(|process| processes.remove(process));
        gone.flat_map(|watched| watched.apids).collect()
    }
}

/// Says after a while that a login host does not come back.
fn gives_up(
    host: Arc<str>,
    inputs: mpsc::WeakSender<Input>,
    mut away_max: watch::Receiver<Duration>,
) -> AbortHandle {
    let since = Instant::now();
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
            let _ = inputs.send(Input::Login(LoginEvent::Lost { host })).await;
        }
    });
    task.abort_handle()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::pb;
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
        assert_eq!(fronts.login(LoginEvent::Lost { host: "n1/a".into() }), []);
    }
}
