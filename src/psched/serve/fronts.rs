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
//! count as there.

use super::front_handle::FrontHandle;
use super::input::Input;
use super::logins::{LoginEvent, LoginSender};
use crate::apteam::Apid;
use crate::apteam::record::FrontProcess;
use crate::os::signal_helper::SignalHelper;
use crate::os::watch::watch;
use crate::psched::decide::Event;
use crate::psched::drive::Front;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::collections::{BTreeSet, HashMap};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};
use tokio::io::Interest;
use tokio::sync::mpsc;

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
    task: tokio::task::AbortHandle,
}

impl Fronts {
    /// None yet.
    pub fn new(inputs: mpsc::WeakSender<Input>, helper: Option<SignalHelper>) -> Fronts {
        Fronts {
            inputs,
            processes: Arc::default(),
            of: HashMap::new(),
            signals: HashMap::new(),
            helper,
            logins: HashMap::new(),
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
                if let Some(login) = self.logins.get(&id.host) {
                    login.sender.watch([&id]);
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
            let Ok(fd) = watch(fd, Interest::READABLE) else { return };
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
                self.logins.insert(id, Login { number, sender });
                self.gone(&dead)
            }
            LoginEvent::Gone { host, boot_id, processes } => {
                let host: Arc<str> = format!("{host}/{boot_id}").into();
                let process = |(pid, started)| FrontProcess { pid, started, host: host.clone() };
                self.gone(&processes.into_iter().map(process).collect::<Vec<_>>())
            }
            LoginEvent::Closed { number } => {
                self.logins.retain(|_, login| login.number != number);
                Vec::new()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::pb;
    use tonic::Status;

    type Told = mpsc::Receiver<Result<pb::ToLogin, Status>>;

    fn fronts() -> Fronts {
        Fronts::new(mpsc::channel(1).0.downgrade(), None)
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

    #[test]
    fn a_login_host_watches_its_front_ends_and_signals_them() {
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

    #[test]
    fn what_a_login_host_says_counts_for_its_own_processes_only() {
        let mut fronts = fronts();
        watch(&mut fronts, 1, &process(1, "n2/b"));
        watch(&mut fronts, 2, &process(1, "n10/a"));
        let processes = vec![(1, 7)];
        let ended = LoginEvent::Gone { host: "n1".into(), boot_id: "b".into(), processes };
        assert_eq!(fronts.login(ended), []);
        assert_eq!(opened(&mut fronts, 1, "b").0, []);
    }

    /// After a break everything is named again; of another boot nothing is left.
    #[test]
    fn a_login_host_comes_back() {
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
}
