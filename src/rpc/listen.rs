//! Listening on a unix socket, and knowing who calls.
//!
//! [`listen`] makes the socket: it replaces a stale one, never a live one or some other file, and
//! nobody can connect before its mode is right. [`incoming`] accepts within [`Bounds`], so that one
//! user's idle connections lock nobody else out; who is refused is told why by [`admitted`]. Each [`PeerStream`] brings its [`Peer`], which
//! tonic puts into the extensions of every request:
//!
//! ```no_run
//! use psched::rpc::listen::{Bounds, Peer, incoming, listen};
//! # async fn example() -> anyhow::Result<()> {
//! let connections = incoming(listen("/run/psched/psched.sock".as_ref(), 0o666)?, Bounds::default());
//! // Server::builder().layer(InterceptorLayer::new(admitted)).add_service(...)
//! //     .serve_with_incoming(connections)
//! # let request = tonic::Request::new(());
//! // and in a service:
//! let peer: Option<&Peer> = request.extensions().get();
//! # Ok(())
//! # }
//! ```

use crate::os::{peer, rights};
use crate::rpc::kept::Kept;
use crate::rpc::rounds::Rounds;
use std::fmt;
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::server::Connected;

mod bounds;
mod connection;
mod reading;
mod socket;

pub use bounds::{Bounds, FILES_USUAL, admitted, raise_descriptor_limit};
use bounds::{Counts, Slot};
use connection::Connection;
use reading::Reading;
pub use socket::{ListenError, PATH_MAX, is_absent, listen, listen_for_descriptors};

/// What a user id that does not exist in our user namespace is shown as.
const OVERFLOW_UID: u32 = 65_534;

/// HTTP/2's preface is `PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n`.
const PREFACE_BYTES: usize = 24;

/// How long nothing is accepted after the system had no descriptor or memory for it.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Connections with descriptors in them that may wait to be closed.
const CLOSES_MAX: usize = 4_096;

/// How often it is logged at most that connections are refused: whoever tries must not fill the
/// log.
const SAY_AGAIN: Duration = Duration::from_secs(10);

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
    /// Its connection is one too many, and why: see [`admitted`].
    pub turned: Option<Arc<str>>,
    /// Cancelling it closes the connection at once, with all that waits to be sent on it: the only
    /// way to be rid of that when the other end lets none of it come.
    pub hang_up: CancellationToken,
    /// It is on another host, whose apinit speaks for it.
    pub relayed: Option<Relayed>,
}

/// The host of a caller that is not on this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relayed {
    /// Its name, by its certificate.
    pub host: Arc<str>,
    /// Its boot id.
    pub boot_id: Arc<str>,
    /// The caller has a controlling terminal there.
    pub terminal: bool,
}

impl Relayed {
    /// The host and its boot, by which its processes are told from those of all other hosts.
    pub fn host_and_boot(&self) -> String {
        format!("{}/{}", self.host, self.boot_id)
    }
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

impl Doubt {
    /// All doubts.
    const ALL: [Doubt; 3] = [Doubt::UnmappedUid, Doubt::NoPid, Doubt::NoProcess];

    /// A word for it, between daemons.
    pub fn name(self) -> &'static str {
        match self {
            Doubt::UnmappedUid => "unmapped-uid",
            Doubt::NoPid => "no-pid",
            Doubt::NoProcess => "no-process",
        }
    }

    /// The doubt of this name.
    pub fn of(name: &str) -> Option<Doubt> {
        Doubt::ALL.into_iter().find(|doubt| doubt.name() == name)
    }
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
                "the process that connected has ended, or can't be told from another one: \
                 connect again"
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
            turned: None,
            hang_up: CancellationToken::new(),
            relayed: None,
        })
    }
}

/// The connections of a listener, within bounds. The stream does not end, and none of its items is
/// an error: what goes wrong with one connection, or for want of descriptors, is no reason to stop
/// listening.
pub fn incoming(listener: UnixListener, bounds: Bounds) -> Incoming {
    incoming_within(listener, watch::Sender::new(bounds).subscribe())
}

/// Like [`incoming`], with bounds that may change: what is there already is left alone.
pub fn incoming_within(listener: UnixListener, bounds: watch::Receiver<Bounds>) -> Incoming {
    let (counts, turned) = (Counts::default(), Counts::default());
    let refuses_descriptors = rights::refuses(&listener);
    Incoming {
        listener,
        refuses_descriptors,
        bounds,
        counts,
        turned,
        rounds: Kept::default(),
        pause: None,
        said: None,
    }
}

/// See [`incoming`].
pub struct Incoming {
    listener: UnixListener,
    /// The kernel does.
    refuses_descriptors: bool,
    bounds: watch::Receiver<Bounds>,
    counts: Counts,
    turned: Counts,
    /// In which connections are read, of each user.
    rounds: Kept<u32, Rounds>,
    pause: Option<Pin<Box<Sleep>>>,
    said: Option<Instant>,
}

impl Incoming {
    /// A connection as a stream of a known peer. `None`: it is closed.
    fn receive(&mut self, stream: UnixStream) -> io::Result<Option<PeerStream>> {
        let mut connection = Connection::new(stream, self.refuses_descriptors);
        let stream = &*connection.stream()?;
        let accepted = peer::boot_ticks();
        let ids = peer::credentials(stream)?;
        let bounds = *self.bounds.borrow();
        let (slot, turned) = match self.counts.take(&bounds, ids.uid) {
            Ok(slot) => (slot, None),
            Err(full) => {
                let why = full.to_string();
                self.say(ids, &why);
                let Some(slot) = self.turned.take_turned(ids.uid) else { return Ok(None) };
                (slot, Some(why.into()))
            }
        };
        let wait = || Box::pin(tokio::time::sleep(bounds.preface_wait));
        let end = turned.is_some().then(wait);
        let peer = Peer { turned, ..Peer::of(stream, ids, accepted)? };
        let preface = Some(Preface { wait: wait(), bytes: 0 });
        let hung_up = Box::pin(peer.hang_up.clone().cancelled_owned());
        let bounded = peer.uid != 0 && peer.uid != nix::unistd::geteuid().as_raw();
        let reading = Reading::new(
            bounded.then(|| self.rounds.of(peer.uid, reading::rounds)),
            bounds.portion,
        );
        Ok(Some(PeerStream { connection, peer, reading, preface, end, hung_up, slot }))
    }

    /// Logs that one is refused.
    fn say(&mut self, ids: peer::Credentials, why: &str) {
        if self.said.is_none_or(|at| at.elapsed() >= SAY_AGAIN) {
            self.said = Some(Instant::now());
            tracing::warn!(uid = ids.uid, "a connection is refused: {why}");
        }
    }
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
            // (Whoever sends what is slow to close is slow to be heard again.)
            if rights::waiting() > CLOSES_MAX {
                self.pause = Some(Box::pin(tokio::time::sleep(ACCEPT_PAUSE)));
                continue;
            }
            match ready!(self.listener.poll_accept(cx)) {
                Ok((stream, _)) => match self.receive(stream) {
                    Ok(Some(stream)) => return Poll::Ready(Some(Ok(stream))),
                    Ok(None) => {}
                    Err(error) => {
                        tracing::warn!(%error, "the user of a connection is unknown: closed");
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
    connection: Connection,
    peer: Peer,
    reading: Reading,
    preface: Option<Preface>,
    /// When it is closed, whatever it does: it is one too many.
    end: Option<Pin<Box<Sleep>>>,
    /// See [`Peer::hang_up`].
    hung_up: Pin<Box<WaitForCancellationFutureOwned>>,
    slot: Slot,
}

/// What a connection owes until it has spoken.
struct Preface {
    wait: Pin<Box<Sleep>>,
    bytes: usize,
}

impl PeerStream {
    /// The process that connected.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// How many connections its user had when it was accepted, with this one.
    pub fn number(&self) -> usize {
        self.slot.number()
    }

    /// What has come, as much as it may read now.
    fn poll_some(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Some(room) = ready!(self.reading.poll_room(cx)) else {
            return self.connection.poll_read(cx, buffer);
        };
        let room = room.min(buffer.remaining());
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(room));
        ready!(self.connection.poll_read(cx, &mut part))?;
        let count = part.filled().len();
        self.reading.reads(count);
        buffer.advance(count);
        Poll::Ready(Ok(()))
    }

    /// Moves the connection from the runtime that accepted it to the runtime of the caller.
    ///
    /// # Errors
    /// The runtime of the caller can't watch the socket (epoll_ctl(2)). The connection is closed then.
    pub fn settled(mut self) -> io::Result<PeerStream> {
        self.connection.settle()?;
        let waits = self.preface.iter_mut().map(|preface| &mut preface.wait).chain(&mut self.end);
        waits.for_each(|wait| *wait = Box::pin(tokio::time::sleep_until(wait.deadline())));
        Ok(self)
    }

    /// An error once it is hung up on. Whoever reads or writes, for one of them may be all that is
    /// waited for, is woken.
    fn connected(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        match self.hung_up.as_mut().poll(cx) {
            Poll::Ready(()) => Err(io::ErrorKind::ConnectionAborted.into()),
            Poll::Pending => Ok(()),
        }
    }
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
        if let Some(end) = &mut self.end
            && end.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        self.connected(cx)?;
        let before = buffer.filled().len();
        let read = self.poll_some(cx, buffer);
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
        self.connected(cx)?;
        Pin::new(&mut self.connection).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.connected(cx)?;
        Pin::new(&mut self.connection).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.connection.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_shutdown(cx)
    }
}

#[cfg(test)]
pub(crate) mod tests;
