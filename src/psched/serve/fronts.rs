//! Front ends: the processes that wait for an application.
//!
//! Each is known by a pidfd, which the kernel gave with its connection (or which was opened anew,
//! after a restart, for a pid whose start time is the recorded one). One task waits for its end,
//! however many applications it has posted; SIGUSR1 goes through the same descriptor, so that it
//! can never reach a process that has taken over the number. Only a front end that asks for the signal gets
//! it, and with no more rights than its user has ([`SignalHelper`]): it may have executed another program.

use super::front_handle::FrontHandle;
use super::input::Input;
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
    processes: Arc<Mutex<HashMap<(i32, u64), Watched>>>,
    of: HashMap<Apid, (i32, u64)>,
    /// Front ends that are to be signalled, by application, and whose rights that takes.
    signals: HashMap<Apid, u32>,
    /// None: there is no helper, and no signal is sent.
    helper: Option<SignalHelper>,
}

struct Watched {
    pidfd: Arc<OwnedFd>,
    apids: BTreeSet<Apid>,
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
        }
    }

    /// Watches a process for an application.
    pub fn watch(&mut self, apid: Apid, front: Front<FrontHandle>) {
        let Front { process, handle: FrontHandle { pidfd, signal_as } } = front;
        let id = (process.pid, process.started);
        match signal_as {
            Some(uid) => self.signals.insert(apid, uid),
            None => self.signals.remove(&apid),
        };
        self.of.insert(apid, id);
        let mut processes = self.processes.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(watched) = processes.get_mut(&id) {
            watched.apids.insert(apid);
            return;
        }
        let (all, inputs, fd) = (self.processes.clone(), self.inputs.clone(), pidfd.clone());
        let task = tokio::spawn(async move {
            let Ok(fd) = watch(fd, Interest::READABLE) else { return };
            if fd.readable().await.is_err() {
                return;
            }
            let gone = all.lock().unwrap_or_else(|e| e.into_inner()).remove(&id);
            let Some(inputs) = inputs.upgrade() else { return };
            for apid in gone.map(|w| w.apids).unwrap_or_default() {
                if inputs.send(Input::Event(Box::new(Event::FrontGone { apid }))).await.is_err() {
                    return;
                }
            }
        });
        let apids = BTreeSet::from([apid]);
        processes.insert(id, Watched { pidfd, apids, task: task.abort_handle() });
    }

    /// Finds the process of a record again. False: it has gone.
    pub fn find(&mut self, apid: Apid, process: FrontProcess) -> bool {
        let Some(pid) = Pid::from_raw(process.pid) else { return false };
        let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else { return false };
        // The start time is read after the descriptor was opened, so it is of the same process, or
        // of none.
        if crate::os::peer::process_started(process.pid).ok() != Some(process.started) {
            return false;
        }
        // Whether it asks for the signal it says again, when it connects again.
        let handle = FrontHandle { pidfd: Arc::new(pidfd), signal_as: None };
        self.watch(apid, Front { process, handle });
        true
    }

    /// SIGUSR1: look. A signal that can't be sent is no harm, the event stream says the same.
    pub fn signal(&self, apid: Apid, process: FrontProcess) {
        let (Some(helper), Some(uid)) = (&self.helper, self.signals.get(&apid)) else { return };
        let processes = self.processes.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(watched) = processes.get(&(process.pid, process.started))
            && let Err(error) = helper.nudge(watched.pidfd.as_fd(), *uid)
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
                watched.task.abort();
                processes.remove(&id);
            }
        }
    }
}
