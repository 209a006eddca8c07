//! Front ends on this host for a psched on another one: watched, and signalled.
//!
//! psched names the processes that it waits for. Each is watched by its pidfd; psched is told when it
//! has ended. psched names them all again on each new connection, so nothing is kept here.
//!
//! psched has one such connection of each host. If several apinits share a folder of sockets, the
//! apinit that serves the users of the host opens it. If they have different folders, psched
//! accepts the first apinit that connects, and refuses the others until that one is gone.

use super::attach::OPEN_AGAIN;
use super::link::LASTING;
use super::network::Psched;
use crate::apinit::decide::login::{LoginWatch, Opened, ProcessId, WATCHED_MAX};
use crate::os::peer::open_process;
use crate::os::signal_helper::SignalHelper;
use crate::rpc::caller::FOLDER_MAX;
use crate::rpc::connect::status_text;
use crate::rpc::pb;
use crate::rpc::pb::from_login::Message as Said;
use crate::rpc::pb::logins_client::LoginsClient;
use crate::rpc::pb::to_login::Message as Told;
use std::future::Future;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, sleep};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::task::AbortOnDropHandle;

/// Before another attempt to connect: the first and the longest wait.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));
/// Messages to psched that may wait.
const QUEUE: usize = 1_024;

/// Keeps a connection to psched for ever, while this apinit serves the users of this host.
/// `directory`: of its sockets.
pub(super) async fn keep(
    psched: Psched,
    directory: PathBuf,
    helper: Arc<Option<SignalHelper>>,
    serves: watch::Receiver<bool>,
) {
    let run = || connected(psched.clone(), end_of(folder(&directory)), Arc::clone(&helper));
    while_serving(serves, run).await;
}

/// Has this run while this apinit serves the users of this host, and no longer.
async fn while_serving<F>(mut serves: watch::Receiver<bool>, run: impl Fn() -> F)
where
    F: Future<Output = ()>,
{
    // (An Err: it never will again.)
    while serves.wait_for(|serves| *serves).await.is_ok() {
        tokio::select! {
            () = run() => {}
            ended = serves.wait_for(|serves| !*serves) => if ended.is_err() { return },
        }
    }
}

/// The folder of sockets as psched is told of it. Its path is not enough: another mount namespace
/// may have another folder there.
fn folder(directory: &Path) -> String {
    use std::os::unix::fs::MetadataExt;
    let path = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
    match std::fs::metadata(&path) {
        Ok(folder) => {
            format!("{} (inode {} of device {:#x})", path.display(), folder.ino(), folder.dev())
        }
        // (Its sockets can't be made, either.)
        Err(_) => path.display().to_string(),
    }
}

/// The end of a text, which says more than its beginning: psched takes [`FOLDER_MAX`] bytes.
fn end_of(mut text: String) -> String {
    let from = text.ceil_char_boundary(text.len().saturating_sub(FOLDER_MAX));
    text.split_off(from)
}

/// Connects to psched again and again.
async fn connected(psched: Psched, folder: String, helper: Arc<Option<SignalHelper>>) {
    let (mut wait, mut last_error) = (BACK_OFF.0, String::new());
    loop {
        let begun = tokio::time::Instant::now();
        let error = match serve(&psched, &folder, (*helper).as_ref(), &mut last_error).await {
            Ok(()) => "psched has closed the connection".to_owned(),
            Err(text) => text,
        };
        if error != last_error {
            tracing::warn!("no connection to psched for the users of this host: {error}");
            last_error = error;
        }
        if begun.elapsed() > BACK_OFF.1 {
            wait = BACK_OFF.0;
        }
        // All hosts of a cluster should not connect at the same time.
        sleep(wait.mul_f64(0.5 + jitter())).await;
        wait = (wait * 2).min(BACK_OFF.1);
    }
}

/// Between 0 and 1, by chance.
pub(super) fn jitter() -> f64 {
    let mut byte = [0];
    // (Err: each waits as long.)
    let _ = rustix::rand::getrandom(&mut byte[..], rustix::rand::GetRandomFlags::NONBLOCK);
    f64::from(byte[0]) / 256.0
}

/// A process that is watched until this is dropped.
struct Watched {
    pidfd: Arc<OwnedFd>,
    _watch: AbortOnDropHandle<()>,
}

/// One connection, from its beginning to its end.
async fn serve(
    psched: &Psched,
    folder: &str,
    helper: Option<&SignalHelper>,
    last_error: &mut String,
) -> Result<(), String> {
    let channel = psched.connect().await?;
    let (says, said) = mpsc::channel(QUEUE);
    let (boot_id, folder) = (crate::os::host::boot_id(), folder.to_owned());
    let hello = Said::Hello(pb::LoginHello { boot_id, folder });
    let _ = says.try_send(pb::FromLogin { message: Some(hello) });
    let answer = LoginsClient::new(channel).link(ReceiverStream::new(said)).await;
    let mut told = answer.map_err(status_text)?.into_inner();
    let (ends, mut ended) = mpsc::channel::<(i32, u64)>(QUEUE);
    let mut processes = Processes::new(ends, open_process);
    let mut again = tokio::time::interval(OPEN_AGAIN);
    again.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut lasting = Box::pin(sleep(LASTING));
    loop {
        tokio::select! {
            () = &mut lasting, if !last_error.is_empty() => {
                tracing::warn!("the connection to psched for the users of this host holds again");
                last_error.clear();
            }
            Some(id) = ended.recv() => {
                processes.named.ended(id);
                gone(&says, vec![id]).await?;
            }
            _ = again.tick(), if processes.named.counts().1 > 0 => {
                gone(&says, processes.again()).await?;
            }
            message = told.message() => match message.map_err(status_text)?.map(|m| m.message) {
                None => return Ok(()),
                Some(Some(Told::Watched(named))) => {
                    let ids = named.processes.iter().map(|process| (process.pid, process.started));
                    gone(&says, processes.watch(ids)).await?;
                }
                Some(Some(Told::Nudge(nudge))) => {
                    let process = nudge.process.unwrap_or_default();
                    let id = (process.pid, process.started);
                    if let Some(helper) = helper
                        && let Some(process) = processes.named.handle(id)
                        && let Err(error) = helper.nudge(process.pidfd.as_fd(), nudge.uid)
                    {
                        tracing::debug!(%error, "no signal to aprun");
                    }
                }
                Some(None) => {}
            }
        }
    }
}

/// Tells psched that these have ended.
async fn gone(says: &mpsc::Sender<pb::FromLogin>, ids: Vec<(i32, u64)>) -> Result<(), String> {
    if ids.is_empty() {
        return Ok(());
    }
    let process = |(pid, started)| pb::FrontEnd { pid, started };
    let processes = ids.into_iter().map(process).collect();
    let message = Some(Said::Gone(pb::FrontEnds { processes }));
    let closed = |_| "psched has closed the connection".to_owned();
    says.send(pb::FromLogin { message }).await.map_err(closed)
}

/// What opens a process; `None`: it has ended.
type Open = fn(i32, u64) -> io::Result<Option<OwnedFd>>;

/// The processes that psched has named on a connection.
struct Processes {
    named: LoginWatch<Watched>,
    ends: mpsc::Sender<ProcessId>,
    open: Open,
}

impl Processes {
    fn new(ends: mpsc::Sender<ProcessId>, open: Open) -> Processes {
        Processes { named: LoginWatch::default(), ends, open }
    }

    /// Watches these front ends, and returns those that have ended already.
    fn watch(&mut self, ids: impl IntoIterator<Item = ProcessId>) -> Vec<ProcessId> {
        self.opening(|named, open| named.watch(ids, open))
    }

    /// Tries again to open those that could not be opened, and returns those that have ended.
    fn again(&mut self) -> Vec<ProcessId> {
        self.opening(|named, open| named.again(open))
    }

    fn opening(
        &mut self,
        look: impl FnOnce(
            &mut LoginWatch<Watched>,
            &mut dyn FnMut(ProcessId) -> Opened<Watched>,
        ) -> Vec<ProcessId>,
    ) -> Vec<ProcessId> {
        let (before, mut problem) = (self.named.counts().1, None);
        let (ends, open) = (&self.ends, self.open);
        let mut try_open = |id: ProcessId| match open(id.0, id.1) {
            Ok(Some(pidfd)) => Opened::Watched(watched(id, pidfd, ends.clone())),
            Ok(None) => Opened::Ended,
            Err(error) => {
                problem.get_or_insert((id.0, error));
                Opened::NotNow
            }
        };
        let ended = look(&mut self.named, &mut try_open);
        if before == 0 && self.named.counts().1 > 0 {
            match problem {
                Some((pid, error)) => tracing::warn!(pid, %error, "can't watch an aprun yet"),
                None => tracing::warn!("can't watch an aprun yet: {WATCHED_MAX} are watched"),
            }
        }
        ended
    }
}

fn watched(id: ProcessId, pidfd: OwnedFd, ends: mpsc::Sender<ProcessId>) -> Watched {
    let pidfd = Arc::new(pidfd);
    let fd = Arc::clone(&pidfd);
    let watch = tokio::spawn(async move {
        if super::attach::wait_for_end(fd).await {
            let _ = ends.send(id).await;
        }
    });
    Watched { pidfd, _watch: AbortOnDropHandle::new(watch) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::peer::process_started;

    #[tokio::test]
    async fn a_process_that_cannot_be_opened_is_not_dead() {
        let (ends, _ended) = mpsc::channel(1);
        let own = std::process::id() as i32;
        let own = (own, process_started(own).expect("it runs"));
        let full = |_, _| Err(rustix::io::Errno::MFILE.into());
        let mut processes = Processes::new(ends, full);
        let ended = (own.0, own.1 + 1);
        assert_eq!(processes.watch([own, ended]), []);
        assert_eq!(processes.named.counts(), (0, 2));
        assert_eq!(processes.again(), []);
        // There are descriptors again.
        processes.open = open_process;
        assert_eq!(processes.again(), [ended]);
        assert_eq!(processes.named.counts(), (1, 0));
        assert_eq!(processes.watch([own]), []);
    }
    /// Two would end each other's connection for ever.
    #[tokio::test]
    async fn an_apinit_that_serves_no_users_has_no_connection() {
        let (first, serves) = watch::channel(false);
        let (begun, runs) = watch::channel(0);
        let (ended, ends) = watch::channel(0);
        struct Ends(watch::Sender<i32>);
        impl Drop for Ends {
            fn drop(&mut self) {
                self.0.send_modify(|count| *count += 1);
            }
        }
        let connection = move || {
            let ends = Ends(ended.clone());
            begun.send_modify(|count| *count += 1);
            async move {
                let _ends = ends;
                std::future::pending::<()>().await;
            }
        };
        let keeps = tokio::spawn(while_serving(serves, connection));
        let is = async |mut seen: watch::Receiver<i32>, count: i32| {
            seen.wait_for(|now| *now == count).await.map(|now| *now).expect("it goes on")
        };
        // The other one has the socket: nothing is begun.
        tokio::task::yield_now().await;
        assert_eq!((*runs.borrow(), *ends.borrow()), (0, 0));
        first.send_replace(true);
        assert_eq!(is(runs.clone(), 1).await, 1);
        first.send_replace(false);
        assert_eq!(is(ends.clone(), 1).await, 1);
        first.send_replace(true);
        assert_eq!(is(runs.clone(), 2).await, 2);
        drop(first);
        keeps.await.expect("it ends");
        assert_eq!(*ends.borrow(), 2);
    }
}
