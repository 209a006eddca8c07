//! Front ends: the processes that wait for an application.
//!
//! Each is known by a pidfd, which the kernel gave with its connection (or which was opened anew,
//! after a restart, for a pid whose start time is the recorded one). One task waits for its end,
//! however many applications it has posted; SIGUSR1 goes through the same descriptor, so that it
//! can never reach a process that has taken over the number. Only a front end that asks for the signal gets
//! it, and with no more rights than its user has ([`SignalHelper`]): it may have executed another program.
//!
//! Front ends on other hosts are watched by the apinit of their host ([`logins`](super::logins)), which says
//! when one has ended and sends it the signal. What follows if that one is not connected
//! [`login_hosts`](crate::psched::decide::login_hosts) decides.

use super::front_handle::FrontHandle;
use super::input::Input;
use super::logins::{LoginEvent, LoginSender};
use crate::apteam::Apid;
use crate::apteam::record::FrontProcess;
use crate::os::peer::open_process;
use crate::os::signal_helper::SignalHelper;
use crate::os::watch::watch as watch_file;
use crate::psched::decide::Event;
use crate::psched::decide::login_hosts::{LoginHosts, LoginSays, Nudge, Refused, Task};
use crate::psched::drive::Front;
use crate::rpc::tls::{Refusal, RefusalLog};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::Interest;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

/// All front ends that are watched.
pub struct Fronts {
    inputs: mpsc::WeakSender<Input>,
    /// Behind a lock only because the task that waits for a process takes it out.
    watched: Arc<Mutex<Watched>>,
    /// None: there is no helper, and no signal is sent.
    helper: Option<SignalHelper>,
    /// Towards login hosts, by the number of their connection.
    senders: HashMap<u64, LoginSender>,
    /// What gives up login hosts that are away, by the number of the absence.
    absences: HashMap<u64, AbortHandle>,
    /// How long they may be away.
    away_max: watch::Receiver<Duration>,
    /// Where it is said that apinits of login hosts are refused.
    refusals: RefusalLog,
    open: Open,
}

/// The processes that are watched.
#[derive(Default)]
struct Watched {
    hosts: LoginHosts,
    /// How those of this host are.
    here: HashMap<FrontProcess, Here>,
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
            watched: Arc::default(),
            helper,
            senders: HashMap::new(),
            absences: HashMap::new(),
            away_max,
            refusals: RefusalLog::default(),
            open: open_process,
        }
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches a process for an application.
    pub fn watch(&mut self, apid: Apid, front: Front<FrontHandle>) {
        let Front { process, handle: FrontHandle { pidfd, signal_as } } = front;
        self.watch_by(apid, process, pidfd, signal_as, false);
    }

    /// `unopened`: it is of this host, and is to be opened once that can be done.
    fn watch_by(
        &mut self,
        apid: Apid,
        process: FrontProcess,
        pidfd: Option<Arc<OwnedFd>>,
        signal_as: Option<u32>,
        unopened: bool,
    ) {
        let here = unopened || pidfd.is_some();
        let mut watched = self.watched();
        match watched.hosts.watch(apid, process, here, signal_as) {
            // (The task takes the lock: it does not see the process before it is here.)
            Some(Task::WatchHere(process)) => {
                let here = self.watch_here(process.clone(), pidfd);
                watched.here.insert(process, here);
            }
            task => {
                drop(watched);
                task.into_iter().for_each(|task| self.does(task));
            }
        }
    }

    /// What is to be done for login hosts.
    fn does(&mut self, task: Task) {
        match task {
            Task::WatchHere(_) => {}
            Task::UnwatchHere(process) => {
                self.watched().here.remove(&process).inspect(|here| here.task.abort());
            }
            Task::Name { link, processes } => {
                if let Some(sender) = self.senders.get(&link) {
                    sender.watch(&processes);
                }
            }
            Task::GiveUpLater { host, absence } => {
                let task = self.gives_up(host, absence);
                self.absences.insert(absence, task);
            }
            Task::EndAbsence { absence } => {
                self.absences.remove(&absence).inspect(AbortHandle::abort);
            }
        }
    }

    /// Waits for the end of a process of this host.
    fn watch_here(&self, id: FrontProcess, pidfd: Option<Arc<OwnedFd>>) -> Here {
        let (all, inputs, opened) = (self.watched.clone(), self.inputs.clone(), pidfd.clone());
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
            let gone = {
                let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
                all.here.remove(&id);
                all.hosts.ended(&id)
            };
            let Some(inputs) = inputs.upgrade() else { return };
            for apid in gone {
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
        let unopened = pidfd.is_none();
        self.watch_by(apid, process, pidfd, None, unopened);
        true
    }

    /// SIGUSR1: look. A signal that can't be sent is no harm, the event stream says the same.
    pub fn signal(&self, apid: Apid, process: &FrontProcess) {
        let watched = self.watched();
        let uid = match watched.hosts.nudge(apid, process) {
            None => return,
            Some(Nudge::Here(uid)) => uid,
            Some(Nudge::Login { link, uid }) => {
                if let Some(sender) = self.senders.get(&link) {
                    sender.nudge(process, uid);
                }
                return;
            }
        };
        let Some(helper) = &self.helper else { return };
        if let Some(Here { pidfd: Some(pidfd), .. }) = watched.here.get(process)
            && let Err(error) = helper.nudge(pidfd.as_fd(), uid)
        {
            tracing::debug!(apid = apid.0, %error, "no signal to aprun");
        }
    }

    /// An application has ended.
    pub fn forget(&mut self, apid: Apid) {
        let task = self.watched().hosts.forget(apid);
        task.into_iter().for_each(|task| self.does(task));
    }

    /// What a login host has to say. Returned: the applications whose front end has ended.
    pub fn login(&mut self, event: LoginEvent) -> Vec<Apid> {
        let closed = match (&event.says, event.sender) {
            (LoginSays::Opened { number, .. }, Some(sender)) => {
                self.senders.insert(*number, sender);
                None
            }
            (LoginSays::Lost { absence, .. }, _) => {
                self.absences.remove(absence);
                None
            }
            (LoginSays::Closed { number }, _) => Some(*number),
            _ => None,
        };
        let opened = match &event.says {
            LoginSays::Opened { host, .. } => Some(Arc::clone(host)),
            _ => None,
        };
        let heard = self.watched().hosts.hear(event.says);
        if let Some(refused) = &heard.refused {
            self.logs(refused);
            if let Some(sender) = self.senders.remove(&refused.number) {
                sender.refuse(&refused.to_string());
            }
        } else if let Some(host) = opened {
            tracing::info!(host = &*host, "a login host has connected");
        }
        heard.tasks.into_iter().for_each(|task| self.does(task));
        // (A connection whose sender is dropped ends.)
        for number in closed.into_iter().chain(heard.replaced) {
            self.senders.remove(&number);
        }
        if let Some(left) = heard.left_behind {
            tracing::warn!("{}", left.words(*self.away_max.borrow()));
        }
        heard.gone
    }

    /// Logs that an apinit is refused, if that is new. Returned: whether it is logged.
    fn logs(&self, refused: &Refused) -> bool {
        // (Two that are refused by turns are each time the first.)
        refused.first
            && self.refusals.connection(&Refusal {
                kind: "second apinit",
                of: format!("{}{}", refused.host, refused.folders[0]),
                why: refused.to_string(),
            })
    }

    /// Has it said after a while that a login host does not come back.
    fn gives_up(&self, host: Arc<str>, absence: u64) -> AbortHandle {
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
                let lost = LoginSays::Lost { host, absence }.into();
                let _ = inputs.send(Input::Login(lost)).await;
            }
        });
        task.abort_handle()
    }
}

/// Opens a process once that can be done. None: it has ended.
async fn opened_later(id: &FrontProcess, open: Open, all: &Mutex<Watched>) -> Option<Arc<OwnedFd>> {
    let pidfd = loop {
        tokio::time::sleep(OPEN_AGAIN).await;
        if let Ok(opened) = open(id.pid, id.started) {
            break Arc::new(opened?);
        }
    };
    let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(here) = all.here.get_mut(id) {
        here.pidfd = Some(Arc::clone(&pidfd));
    }
    Some(pidfd)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::pb;
    use std::sync::atomic::{AtomicUsize, Ordering};
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
        let (host, boot_id) = ("n1".into(), boot_id.to_owned());
        let says = LoginSays::Opened { number, host, boot_id, folder: "/run/psched".into() };
        (fronts.login(LoginEvent { says, sender: Some(sender) }), told)
    }

    /// The front ends of a psched that watches one aprun on a login host, and the messages on the
    /// host's first connection.
    fn with_login_host() -> (Fronts, Told) {
        let mut fronts = fronts();
        watch(&mut fronts, 1, &process(1, "n1/a"));
        let (_, mut told) = opened(&mut fronts, 1, "a");
        assert_eq!(pids(&mut told), [1]);
        (fronts, told)
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

    /// However many of them are refused by turns.
    #[tokio::test(start_paused = true)]
    async fn apinits_that_are_refused_do_not_fill_the_log() {
        let fronts = fronts();
        let refused = |folder: String, first| {
            let (host, folders) = ("n1".to_owned(), [folder, "/run/psched".to_owned()]);
            fronts.logs(&Refused { number: 2, host, folders, first })
        };
        assert!(!refused("/run/a".into(), false));
        let by_turns = (0..1_000).filter(|n| refused(format!("/run/{}", n % 2), true)).count();
        assert_eq!(by_turns, 2);
        let many = (0..1_000).filter(|n| refused(format!("/run/other-{n}"), true)).count();
        assert!(many < 100, "{many}");
    }

    #[tokio::test]
    async fn a_second_apinit_of_a_login_host_is_told_why_it_is_refused() {
        let (mut fronts, mut first) = with_login_host();
        let (sender, mut told) = LoginSender::new();
        let (host, boot_id) = ("n1".into(), "a".to_owned());
        let says = LoginSays::Opened { number: 2, host, boot_id, folder: "/run/other".into() };
        fronts.login(LoginEvent { says, sender: Some(sender) });
        let refused = told.recv().await.expect("a message").expect_err("it is refused");
        assert!(refused.message().contains("--runtime /run/psched"), "{refused}");
        assert!(told.recv().await.is_none(), "its connection ends");
        // The first one is not concerned.
        watch(&mut fronts, 2, &process(2, "n1/a"));
        assert_eq!(pids(&mut first), [2]);
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
        let ended = LoginSays::Gone { host: "n1".into(), boot_id: "a".into(), processes };
        assert_eq!(
            fronts.login(ended.into()),
            [Apid(2), Apid(3)],
            "another start is another process"
        );
        fronts.forget(Apid(1));
        assert!(!fronts.watched().hosts.is_watched(&one));
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
            let watched = fronts.watched();
            assert!(!watched.hosts.is_watched(&dead));
            watched.here[&lives].pidfd.is_some()
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
        let ended = LoginSays::Gone { host: "n1".into(), boot_id: "b".into(), processes };
        assert_eq!(fronts.login(ended.into()), []);
        assert_eq!(opened(&mut fronts, 1, "b").0, []);
    }

    /// After a break everything is named again; of another boot nothing is left.
    #[tokio::test]
    async fn a_login_host_comes_back() {
        let (mut fronts, _first) = with_login_host();
        let (gone, mut second) = opened(&mut fronts, 2, "a");
        assert_eq!((gone, pids(&mut second)), (vec![], vec![1]));
        // (The end of the older connection is heard later.)
        fronts.login(LoginSays::Closed { number: 1 }.into());
        fronts.signal(Apid(1), &process(1, "n1/a"));
        assert_eq!(pids(&mut second), [1]);
        fronts.login(LoginSays::Closed { number: 2 }.into());
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
        fronts.login(LoginSays::Closed { number: 1 }.into());
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
        fronts.login(LoginSays::Closed { number: 2 }.into());
        let lost = LoginSays::Lost { host: "n1/a".into(), absence: 1 };
        assert_eq!(fronts.login(lost.into()), []);
    }
    /// What lasts no longer than what waits for it: a login host may name boots that never were.
    #[tokio::test]
    async fn an_application_that_ends_takes_the_absence_of_its_host_with_it() {
        let mut fronts = fronts();
        for apid in 0..100 {
            watch(&mut fronts, apid, &process(1, &format!("n1/{apid}")));
        }
        assert_eq!(fronts.absences.len(), 100);
        let timers: Vec<AbortHandle> = fronts.absences.values().cloned().collect();
        (0..100).for_each(|apid| fronts.forget(Apid(apid)));
        assert!(fronts.absences.is_empty());
        while !timers.iter().all(AbortHandle::is_finished) {
            tokio::task::yield_now().await;
        }
        // Nor are there more connections than hosts.
        let (_, mut first) = opened(&mut fronts, 1, "a");
        let (_, mut second) = opened(&mut fronts, 2, "a");
        assert_eq!(fronts.senders.len(), 1);
        assert_eq!(first.try_recv().err(), Some(mpsc::error::TryRecvError::Disconnected));
        assert_eq!(second.try_recv().err(), Some(mpsc::error::TryRecvError::Empty));
        fronts.login(LoginSays::Closed { number: 1 }.into());
        assert_eq!(fronts.senders.len(), 1);
        fronts.login(LoginSays::Closed { number: 2 }.into());
        assert!(fronts.senders.is_empty());
    }
}
