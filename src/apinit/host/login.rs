//! Front ends on this host for a psched on another one: watched, and signalled.
//!
//! psched names the processes that it waits for. Each is watched by its pidfd; psched is told when it
//! has ended. psched names them all again on each new connection, so nothing is kept here.

use super::network::Psched;
use crate::os::peer::process_started;
use crate::os::signal_helper::SignalHelper;
use crate::rpc::connect::status_text;
use crate::rpc::pb;
use crate::rpc::pb::from_login::Message as Said;
use crate::rpc::pb::logins_client::LoginsClient;
use crate::rpc::pb::to_login::Message as Told;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::sleep;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::task::AbortOnDropHandle;

/// Before another attempt to connect: the first and the longest wait.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));
/// Messages to psched that may wait.
const QUEUE: usize = 1_024;
/// Processes that are watched at once.
const WATCHED_MAX: usize = 65_536;

/// Keeps a connection to psched for ever.
pub(super) async fn keep(psched: Psched, helper: Option<SignalHelper>) {
    let (mut wait, mut last_error) = (BACK_OFF.0, String::new());
    loop {
        let begun = tokio::time::Instant::now();
        let error = match serve(&psched, helper.as_ref()).await {
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
async fn serve(psched: &Psched, helper: Option<&SignalHelper>) -> Result<(), String> {
    let channel = psched.connect().await?;
    let (says, said) = mpsc::channel(QUEUE);
    let hello = Said::Hello(pb::LoginHello { boot_id: crate::os::host::boot_id() });
    let _ = says.try_send(pb::FromLogin { message: Some(hello) });
    let answer = LoginsClient::new(channel).link(ReceiverStream::new(said)).await;
    let mut told = answer.map_err(status_text)?.into_inner();
    let (ends, mut ended) = mpsc::channel::<(i32, u64)>(QUEUE);
    let mut watched: HashMap<(i32, u64), Watched> = HashMap::new();
    loop {
        tokio::select! {
            Some(id) = ended.recv() => {
                watched.remove(&id);
                gone(&says, vec![id]).await?;
            }
            message = told.message() => match message.map_err(status_text)?.map(|m| m.message) {
                None => return Ok(()),
                Some(Some(Told::Watched(named))) => {
                    let mut dead = Vec::new();
                    for process in named.processes {
                        let id = (process.pid, process.started);
                        if watched.contains_key(&id) {
                            continue;
                        }
                        match watch(id, &ends).filter(|_| watched.len() < WATCHED_MAX) {
                            Some(alive) => {
                                watched.insert(id, alive);
                            }
                            None => dead.push(id),
                        }
                    }
                    gone(&says, dead).await?;
                }
                Some(Some(Told::Nudge(nudge))) => {
                    let process = nudge.process.unwrap_or_default();
                    if let Some(helper) = helper
                        && let Some(process) = watched.get(&(process.pid, process.started))
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

/// Watches a process. None: it has ended.
fn watch((pid, started): (i32, u64), ends: &mpsc::Sender<(i32, u64)>) -> Option<Watched> {
    let pidfd = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
    // The start time is read after the descriptor was opened, so it is of the same process, or of
    // none.
    if process_started(pid).ok() != Some(started) {
        return None;
    }
    let pidfd = Arc::new(pidfd);
    let (fd, ends) = (Arc::clone(&pidfd), ends.clone());
    let watch = tokio::spawn(async move {
        if super::attach::wait_for_end(fd).await {
            let _ = ends.send((pid, started)).await;
        }
    });
    Some(Watched { pidfd, _watch: AbortOnDropHandle::new(watch) })
}
