//! Listening on a unix socket, and knowing who calls.
//!
//! [`listen`] makes the socket: it replaces a stale one, never a live one or some other file, and
//! nobody can connect before its mode is right. [`incoming`] accepts within [`Bounds`], so that one
//! user's idle connections lock nobody else out. Each [`PeerStream`] brings its [`Peer`], which
//! tonic puts into the extensions of every request:
//!
//! ```no_run
//! use psched::rpc::listen::{Bounds, Peer, incoming, listen};
//! # async fn example() -> anyhow::Result<()> {
//! let connections = incoming(listen("/run/psched/psched.sock".as_ref(), 0o666)?, Bounds::default());
//! // tonic::transport::Server::builder().add_service(...).serve_with_incoming(connections)
//! # let request = tonic::Request::new(());
//! // and in a service:
//! let peer: Option<&Peer> = request.extensions().get();
//! # Ok(())
//! # }
//! ```

use crate::os::peer;
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::Sleep;
use tonic::transport::server::Connected;

mod socket;

pub use socket::{ListenError, PATH_MAX, listen};

/// What a user id that does not exist in our user namespace is shown as.
const OVERFLOW_UID: u32 = 65_534;

/// HTTP/2's preface is `PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n`.
const PREFACE_BYTES: usize = 24;

/// How long nothing is accepted after the system had no descriptor or memory for it.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Who is at the other end of a connection: all of it from the kernel.
#[derive(Clone, Debug)]
pub struct Peer {
    /// User id, when it connected.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Its pid; 0: none in our pid namespace.
    pub pid: i32,
    /// Becomes readable when the process ends. `None`: it has ended, or could not be shown to be
    /// the one that connected.
    pub pidfd: Option<Arc<OwnedFd>>,
    /// When the process started, in clock ticks since boot (field 22 of /proc/PID/stat); 0: not
    /// known.
    pub started: u64,
    /// Why nothing may be posted for it.
    pub doubt: Option<Doubt>,
}

/// Why it is not certain who a peer is. Its Display is a sentence with the cure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// Shown as the overflow uid: any id that our user namespace lacks looks like this.
    UnmappedUid,
    /// In another pid namespace: it can't be signalled or watched.
    NoPid,
    /// No process could be shown to be the one that connected.
    NoProcess,
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Doubt::UnmappedUid => {
                "the kernel shows your user id as 65534, which stands for every id that is not \
                 mapped here: call as an ordinary user, from psched's own user namespace"
            }
            Doubt::NoPid => {
                "the kernel shows no process id for you: call from psched's own pid namespace, or \
                 one below it"
            }
            Doubt::NoProcess => {
                "the process that connected has ended, or can't be told from another one: connect \
                 anew"
            }
        })
    }
}

impl Peer {
    /// Asks the kernel. `accepted` is [`peer::boot_ticks`] at the time of accept.
    fn of(stream: &UnixStream, ids: peer::Credentials, accepted: u64) -> io::Result<Peer> {
        let process = peer::process(stream, ids, accepted)?;
        let doubt = match &process {
            _ if ids.uid == OVERFLOW_UID => Some(Doubt::UnmappedUid),
            _ if ids.pid <= 0 => Some(Doubt::NoPid),
            Some(process) if process.started > 0 => None,
            _ => Some(Doubt::NoProcess),
        };
        let (pidfd, started) = match process {
            Some(process) => (Some(Arc::new(process.pidfd)), process.started),
            None => (None, 0),
        };
        Ok(Peer {
            uid: ids.uid,
            gid: ids.gid,
            groups: peer::groups(stream)?,
            pid: ids.pid,
            pidfd,
            started,
            doubt,
        })
    }
}

/// How many connections are kept at a time: one beyond is closed at once. And for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Of all users together.
    pub connections: usize,
    /// Of these, so many are kept for root and for our own uid: nodes, administrators.
    pub reserved: usize,
    /// Of one user, who is neither root nor our own uid.
    pub per_uid: usize,
    /// How long a connection may take until it has sent HTTP/2's preface. One that never speaks
    /// would hold its place for ever: keepalive begins after the preface.
    pub preface_wait: Duration,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            connections: 1024,
            reserved: 64,
            per_uid: 256,
            preface_wait: Duration::from_secs(10),
        }
    }
}

impl Bounds {
    /// Whether one more of this user's fits.
    fn admit(&self, privileged: bool, all: usize, own: usize) -> bool {
        match privileged {
            true => all < self.connections,
            false => all < self.connections.saturating_sub(self.reserved) && own < self.per_uid,
        }
    }
}

/// Raises the limit of open files to what is allowed, and says what it is now: each connection
/// takes two descriptors (the socket and the pidfd of its peer), and the usual soft limit of 1,024
/// would not do for [`Bounds::default`].
///
/// # Errors
/// Those of getrlimit and setrlimit; then the limit is as it was.
pub fn raise_descriptor_limit() -> io::Result<u64> {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    Ok(hard)
}

/// Connections by user; no entry is 0.
type Counts = Arc<Mutex<BTreeMap<u32, usize>>>;

/// A place among the connections, which is given back when dropped.
struct Slot {
    counts: Counts,
    uid: u32,
}

impl Slot {
    fn take(counts: &Counts, bounds: &Bounds, uid: u32) -> Option<Slot> {
        let privileged = uid == 0 || uid == nix::unistd::geteuid().as_raw();
        let mut by_uid = counts.lock().unwrap_or_else(PoisonError::into_inner);
        let all = by_uid.values().sum();
        let own = by_uid.get(&uid).copied().unwrap_or(0);
        if !bounds.admit(privileged, all, own) {
            return None;
        }
        by_uid.insert(uid, own + 1);
        Some(Slot { counts: Arc::clone(counts), uid })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut by_uid = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        match by_uid.get_mut(&self.uid) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(by_uid.remove(&self.uid)),
        }
    }
}

/// The connections of a listener, within bounds. The stream does not end, and none of its items is
/// an error: what goes wrong with one connection, or for want of descriptors, is no reason to stop
/// listening.
pub fn incoming(listener: UnixListener, bounds: Bounds) -> Incoming {
    Incoming { listener, bounds, counts: Counts::default(), pause: None }
}

/// See [`incoming`].
pub struct Incoming {
    listener: UnixListener,
    bounds: Bounds,
    counts: Counts,
    pause: Option<Pin<Box<Sleep>>>,
}

impl Incoming {
    /// A connection as a stream of a known peer, or the reason why it is closed.
    fn receive(&self, stream: UnixStream) -> Result<PeerStream, Turned> {
        let accepted = peer::boot_ticks();
        let ids = peer::credentials(&stream).map_err(Turned::Unknown)?;
        let slot =
            Slot::take(&self.counts, &self.bounds, ids.uid).ok_or(Turned::TooMany(ids.uid))?;
        let peer = Peer::of(&stream, ids, accepted).map_err(Turned::Unknown)?;
        let wait = Box::pin(tokio::time::sleep(self.bounds.preface_wait));
        Ok(PeerStream { stream, peer, preface: Some(Preface { wait, bytes: 0 }), _slot: slot })
    }
}

/// Why a connection is closed at once.
enum Turned {
    TooMany(u32),
    Unknown(io::Error),
}

impl tokio_stream::Stream for Incoming {
    type Item = io::Result<PeerStream>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<PeerStream>>> {
        loop {
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(cx));
                self.pause = None;
            }
            match ready!(self.listener.poll_accept(cx)) {
                Ok((stream, _)) => match self.receive(stream) {
                    Ok(stream) => return Poll::Ready(Some(Ok(stream))),
                    Err(Turned::TooMany(uid)) => {
                        tracing::warn!(uid, "too many connections: one more is closed");
                    }
                    Err(Turned::Unknown(error)) => {
                        tracing::warn!(%error, "who connected is not known: closed");
                    }
                },
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    tracing::warn!(%error, "can't accept a connection: trying again");
                    self.pause = Some(Box::pin(tokio::time::sleep(ACCEPT_PAUSE)));
                }
            }
        }
    }
}

/// A connection of a known peer.
pub struct PeerStream {
    stream: UnixStream,
    peer: Peer,
    preface: Option<Preface>,
    _slot: Slot,
}

/// What a connection owes until it has spoken.
struct Preface {
    wait: Pin<Box<Sleep>>,
    bytes: usize,
}

impl Connected for PeerStream {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for PeerStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let Some(preface) = &mut self.preface else {
            return read;
        };
        if read.is_ready() {
            preface.bytes += buffer.filled().len() - before;
            if preface.bytes >= PREFACE_BYTES {
                self.preface = None;
            }
            return read;
        }
        ready!(preface.wait.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncWrite for PeerStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
