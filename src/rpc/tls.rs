//! TLS between hosts: both sides present a certificate.
//!
//! [`incoming`] takes connections, [`connect`] opens them. Either side accepts only a certificate
//! that one of the cluster's authorities has signed, and knows then which host the other one is and
//! what it may do ([`HostPeer`]). What is refused is said in the log here, and in an error there.
//!
//! A stranger may connect as often as he likes: so few handshakes are under way at once, of one
//! address and of all ([`handshakes`]), and none takes longer than [`HANDSHAKE`].
//!
//! A host has many connections, of its daemons and of its users, whose requests its apinit passes on. Some are kept for
//! the daemons ([`HostPeer::carries_users`]).

mod expected;
mod handshakes;
mod names;
mod quiet;
mod refusals;

use crate::certs::faults::{kind, sentence, tls_error};
use crate::certs::{HostCertificate, Keyring, Role, Roles};
use crate::rpc::caller::HEADERS_MAX;
use expected::ExpectedHost;
use handshakes::Handshakes;
use hyper_util::rt::TokioIo;
pub use names::addresses_for_user;
use quiet::{QUIET, Quiet};
pub use refusals::{Refusal, RefusalLog};
use rustls::pki_types::ServerName;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::{Sleep, sleep, timeout};
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tokio_util::task::AbortOnDropHandle;
use tonic::transport::server::Connected;
use tonic::transport::{Channel, Endpoint, Server};

/// The TCP port of psched where no other is named.
pub const PORT_PSCHED: u16 = 7117;
/// The TCP port of an apinit where no other is named.
pub const PORT_APINIT: u16 = 7118;

/// How long a handshake may take, with the connection before it.
pub const HANDSHAKE: Duration = Duration::from_secs(10);
/// Handshakes that may be under way: of all addresses, and of one.
const HANDSHAKES_MAX: (usize, usize) = (256, 16);
/// Connections of one host at once: it may have several apinits, each with a few.
const HOST_CONNECTIONS_MAX: usize = 4_096;
/// Those of them that may carry requests of users. The others are for the daemons of the host: its users can't keep its
/// apinit from psched.
pub const HOST_USERS_MAX: usize = HOST_CONNECTIONS_MAX - HOST_CONNECTIONS_MAX / 16;
/// How long a connection for which there is no place has to hear so.
const TOLD: Duration = Duration::from_secs(1);
/// How long a host may say nothing after its handshake. It speaks as soon as it has heard the first bytes from here. The
/// kernel sends a lost segment again after 0.2, 0.6, 1.4 and 3 s: four losses in a row are tolerated.
const SPEAKS: Duration = Duration::from_secs(5);
/// Accepted connections that wait to be served.
const ACCEPTED_MAX: usize = 64;
/// Connections that wait for accept; the kernel lowers it to net.core.somaxconn.
const BACKLOG: i32 = 4_096;
/// How long nothing is accepted after the system had no descriptor or memory for it.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long sent data may remain unacknowledged before the kernel closes a connection, in
/// milliseconds.
const USER_TIMEOUT_MS: u32 = 20_000;
/// Between two signs of life on a connection, and how long one may take.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(15));
/// The first bytes of the other side that are taken before a connection counts as open.
const FIRST_BYTES: usize = 64;

/// HTTP/2's windows, in bytes, of a stream and of a connection: what may wait to be read.
const WINDOWS: (u32, u32) = (1 << 20, 4 << 20);

/// A server for the connections of hosts, which takes so many requests on each connection at once.
pub fn server(streams_max: u32) -> Server {
    let (interval, wait) = KEEPALIVE;
    Server::builder()
        .initial_stream_window_size(WINDOWS.0)
        .initial_connection_window_size(WINDOWS.1)
        .http2_keepalive_interval(Some(interval))
        .http2_keepalive_timeout(Some(wait))
        .http2_max_header_list_size(HEADERS_MAX)
        .max_concurrent_streams(streams_max)
}

/// The host at the other end of a connection, by its certificate.
#[derive(Clone, Debug)]
pub struct HostPeer {
    /// Its name.
    pub name: Arc<str>,
    /// What it may do.
    pub roles: Roles,
    /// The serial number of its certificate.
    pub serial: Arc<str>,
    /// Its address.
    pub address: SocketAddr,
    /// Cancelling it closes the connection at once.
    pub hang_up: CancellationToken,
    /// The place of this connection among those that carry requests of users.
    pub users: Arc<UsersPlace>,
    /// Where it is said that requests of it are refused.
    pub log: RefusalLog,
    /// Serial numbers of revoked certificates.
    pub revoked: watch::Receiver<Arc<BTreeSet<String>>>,
}

/// A place of a connection among those of its host that carry requests of users, once it carries one.
#[derive(Debug, Default)]
pub struct UsersPlace {
    counts: Counted<Arc<str>>,
    taken: OnceLock<Option<Slot>>,
}

impl HostPeer {
    /// Whether its certificate has been revoked, which has closed the connection.
    pub fn is_revoked(&self) -> bool {
        self.revoked.borrow().contains(&*self.serial)
    }

    /// Whether this connection may carry requests of users: not if so many of its host do that the others are kept for
    /// its daemons. Then it is closed in a moment.
    ///
    /// To be called within a tokio runtime.
    ///
    /// # Errors
    /// It may not, in a sentence for the user.
    pub fn carries_users(&self) -> Result<(), tonic::Status> {
        let take = || self.users.counts.take(Arc::clone(&self.name), HOST_USERS_MAX, usize::MAX);
        let mut first = false;
        let taken = self.users.taken.get_or_init(|| {
            first = true;
            take()
        });
        if taken.is_some() {
            return Ok(());
        }
        if first {
            let hang_up = self.hang_up.clone();
            tokio::spawn(async move {
                sleep(TOLD).await;
                hang_up.cancel();
            });
        }
        Err(tonic::Status::unavailable(format!(
            "the users of the host {} have the maximum number of connections ({HOST_USERS_MAX}): \
             try again later",
            self.name
        )))
    }

    /// Whether it has this role. If not, the log says so.
    ///
    /// # Errors
    /// It has not, in a sentence for both sides. `wants`: what it asks for, `offer nodes`.
    pub fn needs(&self, role: Role, wants: &'static str) -> Result<(), tonic::Status> {
        if self.roles.has(role) {
            return Ok(());
        }
        let why = format!(
            "the host {} may not {wants}: the roles of its certificate are {}, and it needs {}; \
             make it another one with `psched certs host {} --role {}`",
            self.name,
            self.roles,
            role.name(),
            self.name,
            self.roles.with(role)
        );
        self.log.request(&Refusal { kind: wants, of: self.name.to_string(), why: why.clone() });
        Err(tonic::Status::permission_denied(why))
    }

    /// Logs that a connection is closed because its host, which speaks for no users, has so many
    /// already.
    pub fn too_many(&self, most: usize) {
        let why = format!(
            "the host {} has {most} connections already, the maximum of a host without the role login",
            self.name
        );
        self.log.connection(&Refusal { kind: "many connections", of: self.name.to_string(), why });
    }

    /// Logs that a connection is closed because so many wait to be served.
    pub fn too_many_wait(&self, most: usize) {
        let why = format!(
            "{most} connections of hosts without the role login wait to be served, and one of the host {} is closed",
            self.name
        );
        self.log.connection(&Refusal { kind: "many wait", of: self.name.to_string(), why });
    }
}

/// Which host is expected at an address.
#[derive(Clone, Debug)]
pub struct Expect {
    /// Its name; none: any.
    pub name: Option<String>,
    /// A role that it has.
    pub role: Role,
}

/// Why a host was not reached, in a sentence.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct DialError(pub String);

/// A connection between two hosts.
pub struct HostStream {
    stream: TlsStream<TcpStream>,
    /// What has come before the connection was handed on.
    first: Vec<u8>,
    peer: HostPeer,
    hung_up: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Until when it has to say something. None: it has, or is not waited for.
    silent: Option<Pin<Box<Sleep>>>,
    /// How long nothing has come, where that has a bound.
    quiet: Option<Quiet>,
    _slot: Option<Slot>,
}

impl HostStream {
    fn new(
        stream: TlsStream<TcpStream>,
        first: Vec<u8>,
        certificate: HostCertificate,
        address: SocketAddr,
        keyring: &Keyring,
        accepted: Option<(Slot, Counted<Arc<str>>, RefusalLog)>,
    ) -> HostStream {
        let hang_up = CancellationToken::new();
        let serial: Arc<str> = certificate.serial.into();
        // A revoked certificate ends what it has opened, too.
        let (mut revoked, token, own) =
            (keyring.revocations(), hang_up.clone(), Arc::clone(&serial));
        tokio::spawn(async move {
            tokio::select! {
                () = token.cancelled() => {}
                Ok(_) = revoked.wait_for(|list| list.contains(&*own)) => token.cancel(),
            }
        });
        let peer = HostPeer {
            name: certificate.name.into(),
            roles: certificate.roles,
            serial,
            address,
            hang_up: hang_up.clone(),
            users: Arc::default(),
            log: RefusalLog::default(),
            revoked: keyring.revocations(),
        };
        let hung_up = Box::pin(hang_up.cancelled_owned());
        let (silent, quiet) = (None, None);
        let mut new = HostStream { stream, first, peer, hung_up, silent, quiet, _slot: None };
        if let Some((slot, counts, log)) = accepted {
            new.peer.log = log;
            new.peer.users = Arc::new(UsersPlace { counts, taken: OnceLock::new() });
            new.silent = Some(Box::pin(sleep(SPEAKS)));
            new._slot = Some(slot);
        }
        new
    }

    /// The other host.
    pub fn peer(&self) -> &HostPeer {
        &self.peer
    }

    fn connected(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        match self.hung_up.as_mut().poll(cx) {
            Poll::Ready(()) => Err(io::ErrorKind::ConnectionAborted.into()),
            Poll::Pending => Ok(()),
        }
    }

    fn takes(&mut self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Some(quiet) = &mut self.quiet {
            let taken = match &written {
                Poll::Ready(taken) => Some(*taken.as_ref().unwrap_or(&0)),
                Poll::Pending => None,
            };
            quiet.takes(taken);
        }
        written
    }
}

impl Drop for HostStream {
    fn drop(&mut self) {
        self.peer.hang_up.cancel();
    }
}

impl Connected for HostStream {
    type ConnectInfo = HostPeer;

    fn connect_info(&self) -> HostPeer {
        self.peer.clone()
    }
}

impl AsyncRead for HostStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.connected(cx)?;
        if !self.first.is_empty() {
            let count = self.first.len().min(buffer.remaining());
            let rest = self.first.split_off(count);
            buffer.put_slice(&std::mem::replace(&mut self.first, rest));
            return Poll::Ready(Ok(()));
        }
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if let Some(quiet) = &mut self.quiet {
            if read.is_ready() {
                quiet.heard();
            } else if quiet.poll_over(cx).is_ready() {
                let text = format!("it has sent nothing for {} s", QUIET.as_secs());
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, text)));
            }
        }
        match &mut self.silent {
            None => read,
            Some(_) if read.is_ready() => {
                self.silent = None;
                read
            }
            Some(wait) => wait.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into())),
        }
    }
}

impl AsyncWrite for HostStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.connected(cx)?;
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.takes(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.connected(cx)?;
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.takes(written)
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

/// How many there are of each kind of key, with a bound.
#[derive(Debug)]
pub struct Counted<K>(Arc<Mutex<BTreeMap<K, usize>>>);

impl<K> Clone for Counted<K> {
    fn clone(&self) -> Counted<K> {
        Counted(Arc::clone(&self.0))
    }
}

impl<K> Default for Counted<K> {
    fn default() -> Counted<K> {
        Counted(Arc::default())
    }
}

impl<K: Ord + Clone + Send + Sync + 'static> Counted<K> {
    /// One more, unless there are `most` of this key, or `all` of all keys.
    pub fn take(&self, key: K, most: usize, all: usize) -> Option<Slot> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.values().sum::<usize>() >= all || counts.get(&key).copied() >= Some(most) {
            return None;
        }
        *counts.entry(key.clone()).or_default() += 1;
        let own = self.clone();
        Some(Slot(Some(Box::new(move || own.give_back(&key)))))
    }

    /// How many there are of this key.
    pub fn of(&self, key: &K) -> usize {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.get(key).copied().unwrap_or(0)
    }

    fn give_back(&self, key: &K) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(key) {
            *count -= 1;
            if *count == 0 {
                counts.remove(key);
            }
        }
    }
}

/// A counted place; dropping it gives the place back.
pub struct Slot(Option<Box<dyn FnOnce() + Send + Sync>>);

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Slot")
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(give_back) = self.0.take() {
            give_back();
        }
    }
}

/// Connections of hosts that have shown a certificate.
pub struct Incoming {
    accepted: ReceiverStream<io::Result<HostStream>>,
    _accepts: AbortOnDropHandle<()>,
}

impl tokio_stream::Stream for Incoming {
    type Item = io::Result<HostStream>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<HostStream>>> {
        Pin::new(&mut self.accepted).poll_next(cx)
    }
}

/// Listens on an address.
///
/// # Errors
/// Why not, in a sentence; `setting` is what chooses the address.
pub fn listen(address: SocketAddr, setting: &str) -> anyhow::Result<std::net::TcpListener> {
    let bound = std::net::TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        // All hosts of a cluster may connect at once.
        rustix::net::listen(&listener, BACKLOG)?;
        Ok(listener)
    });
    bound.map_err(|error| {
        let cure = match error.kind() {
            io::ErrorKind::AddrInUse => {
                "another process listens there: stop it, or choose \
                                         another port"
            }
            io::ErrorKind::AddrNotAvailable => "no interface of this host has this address",
            _ => "choose another address",
        };
        anyhow::anyhow!("can't listen on {address}: {error}; {cure} ({setting})")
    })
}

/// The connections of a listener. The stream does not end, and none of its items is an error.
///
/// To be called within a tokio runtime with I/O enabled.
///
/// # Errors
/// The runtime can't watch the listener.
pub fn incoming(listener: std::net::TcpListener, keyring: Arc<Keyring>) -> io::Result<Incoming> {
    let listener = TcpListener::from_std(listener)?;
    let (accepted, receiver) = mpsc::channel(ACCEPTED_MAX);
    let accepts = tokio::spawn(accept(listener, keyring, accepted));
    Ok(Incoming {
        accepted: ReceiverStream::new(receiver),
        _accepts: AbortOnDropHandle::new(accepts),
    })
}

async fn accept(
    listener: TcpListener,
    keyring: Arc<Keyring>,
    accepted: mpsc::Sender<io::Result<HostStream>>,
) {
    let shaking = Shaking::new(Mutex::new(Handshakes::new(HANDSHAKES_MAX)));
    let hosts = Hosts::default();
    let said = RefusalLog::default();
    loop {
        let (stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
            Err(error) => {
                tracing::warn!(%error, "can't accept a connection: trying again");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let end = CancellationToken::new();
        let Some((id, gone)) = lock(&shaking).begin(address.ip(), end.clone()) else {
            let why = format!("{address} is refused: too many connections wait to be served");
            said.connection(&refusal("many wait", address, why));
            continue;
        };
        if let Some((from, end)) = gone {
            end.cancel();
            let why = format!("{from} has too many handshakes under way: the oldest is ended");
            said.connection(&Refusal { kind: "many handshakes", of: from.to_string(), why });
        }
        let place = Place { shaking: Arc::clone(&shaking), id };
        let (keyring, accepted) = (Arc::clone(&keyring), accepted.clone());
        let (hosts, said) = (hosts.clone(), said.clone());
        tokio::spawn(async move {
            let shakes = shake(stream, address, &keyring, &hosts, &place, &said);
            let shakes = timeout(HANDSHAKE, shakes);
            // (None: it has given its place to another, which was said.)
            let Some(shaken) = end.run_until_cancelled(shakes).await else { return };
            let late = || {
                let why = format!("{address} has not ended its handshake in 10 s");
                Err(refusal("late", address, why))
            };
            match shaken.unwrap_or_else(|_| late()) {
                Ok(stream) => {
                    lock(&place.shaking).over(place.id);
                    // An Err: the listener is gone.
                    let _ = accepted.send(Ok(stream)).await;
                }
                Err(refusal) => {
                    said.connection(&refusal);
                }
            }
        });
    }
}

type Shaking = Arc<Mutex<Handshakes<CancellationToken>>>;

fn lock(shaking: &Shaking) -> MutexGuard<'_, Handshakes<CancellationToken>> {
    shaking.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A place among the handshakes, which is given back when dropped.
struct Place {
    shaking: Shaking,
    id: handshakes::Id,
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.shaking).gone(self.id);
    }
}

/// Connections by host: all, and those that carry requests of users.
#[derive(Clone, Default)]
struct Hosts {
    all: Counted<String>,
    users: Counted<Arc<str>>,
}

/// The handshake of a connection that has come.
async fn shake(
    stream: TcpStream,
    address: SocketAddr,
    keyring: &Keyring,
    hosts: &Hosts,
    place: &Place,
    log: &RefusalLog,
) -> Result<HostStream, Refusal> {
    let no_options = |error| refusal("socket", address, format!("{address}: {error}"));
    set_options(&stream).map_err(no_options)?;
    let _ = stream.peek(&mut [0]).await;
    lock(&place.shaking).speaks(place.id);
    let acceptor = TlsAcceptor::from(keyring.keys().server);
    let stream = acceptor.accept(stream).await.map_err(|error| {
        let kind = tls_error(&error).map_or("closed", kind);
        refusal(kind, address, why(&address.to_string(), &error))
    })?;
    let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let read = shown.map(|der| HostCertificate::read(der));
    let certificate = match read {
        Some(Ok(certificate)) => certificate,
        Some(Err(wrong)) => {
            let why = format!("the certificate of {address} is not accepted: {wrong}");
            return Err(refusal("certificate", address, why));
        }
        None => {
            let why = format!("{address} presents no certificate");
            return Err(refusal("no certificate", address, why));
        }
    };
    let slot = hosts.all.take(certificate.name.clone(), HOST_CONNECTIONS_MAX, usize::MAX);
    let Some(slot) = slot else {
        let why =
            format!("the host {} has {HOST_CONNECTIONS_MAX} connections already", certificate.name);
        return Err(Refusal { kind: "many connections", of: certificate.name, why });
    };
    let stream = TlsStream::Server(stream);
    let accepted = Some((slot, hosts.users.clone(), log.clone()));
    Ok(HostStream::new(stream, Vec::new(), certificate, address, keyring, accepted))
}

/// A connection from this address is refused. (Its port is another one for each connection.)
fn refusal(kind: &'static str, address: SocketAddr, why: String) -> Refusal {
    Refusal { kind, of: address.ip().to_string(), why }
}

fn set_options(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    rustix::net::sockopt::set_tcp_user_timeout(stream, USER_TIMEOUT_MS)?;
    Ok(())
}

/// Why TLS failed with this peer.
fn why(peer: &str, error: &io::Error) -> String {
    match (tls_error(error), error.kind()) {
        (Some(error), _) => sentence(peer, error),
        (None, io::ErrorKind::UnexpectedEof) => format!("{peer} has closed the connection"),
        (None, _) => format!("TLS with {peer} failed: {error}"),
    }
}

/// The address `HOST:PORT`, or `HOST` with this port.
pub fn with_port(address: &str, port: u16) -> String {
    let bare = |rest: &str| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit());
    match address.rsplit_once(':') {
        // (An IPv6 address in brackets may have no port.)
        Some((host, rest)) if bare(rest) && (!host.contains(':') || host.ends_with(']')) => {
            address.to_owned()
        }
        Some(_) if !address.starts_with('[') => format!("[{address}]:{port}"),
        _ => format!("{address}:{port}"),
    }
}

/// Opens a connection to a host.
///
/// # Errors
/// It can't be reached, or is another one.
pub async fn open(
    address: &str,
    expect: &Expect,
    keyring: &Keyring,
) -> Result<HostStream, DialError> {
    let late = |_| DialError(format!("{address} does not answer (within 10 s)"));
    timeout(HANDSHAKE, open_now(address, expect, keyring)).await.map_err(late)?.map_err(DialError)
}

async fn open_now(address: &str, expect: &Expect, keyring: &Keyring) -> Result<HostStream, String> {
    let stream = dial(address).await?;
    let at = stream.peer_addr().map_err(|error| format!("{address}: {error}"))?;
    set_options(&stream).map_err(|error| format!("{address}: {error}"))?;
    // (No name of a name service counts: the name in the certificate is compared with that in
    // psched.yaml.)
    let name = ServerName::IpAddress(at.ip().into());
    let keys = keyring.keys();
    let expected = ExpectedHost::new(keys.any_host, expect, address);
    let connector = TlsConnector::from(expected.config(&keys.client));
    let mut stream = connector.connect(name, stream).await.map_err(|error| {
        let wrong = expected.wrong().cloned();
        wrong.unwrap_or_else(|| why(address, &error))
    })?;
    let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let read = shown.map(|der| HostCertificate::read(der));
    let Some(Ok(certificate)) = read else {
        return Err(format!("{address} presents a certificate of no host"));
    };
    // (As the handshake has done.)
    expect.compare(address, &certificate).map_err(|(why, _)| why)?;
    // Only with the first bytes of the other side it is known that it takes our certificate.
    let mut first = vec![0; FIRST_BYTES];
    let peer = format!("the host {}", certificate.name);
    match stream.read(&mut first).await {
        Ok(0) => return Err(format!("{peer} has closed the connection: its log says why")),
        Ok(count) => first.truncate(count),
        Err(error) => return Err(why(&peer, &error)),
    }
    if expect.role == Role::Control {
        names::runs_psched(&certificate.name);
    }
    Ok(HostStream::new(TlsStream::Client(stream), first, certificate, at, keyring, None))
}

/// Connects to the first address of a name that answers.
async fn dial(address: &str) -> Result<TcpStream, String> {
    let mut last = None;
    for at in names::addresses(address).await? {
        match TcpStream::connect(at).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = Some((at, error)),
        }
    }
    Err(match last {
        None => format!("the name of {address} has no address"),
        Some((at, error)) => unconnected(at, address, &error),
    })
}

/// Why there is no connection to this address, which the name stands for.
fn unconnected(at: SocketAddr, name: &str, error: &io::Error) -> String {
    let at = match at.to_string() {
        at if at == name => at,
        at => format!("{at} ({name})"),
    };
    match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            format!("nothing listens on {at}: is the daemon there running?")
        }
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            format!("no route to {at}: {error}; check the network")
        }
        _ => format!("can't connect to {at}: {error}"),
    }
}

/// A channel to a host, which connects anew by itself when a call finds the connection broken.
///
/// # Errors
/// It can't be reached, or is another one.
pub async fn connect(
    address: &str,
    expect: Expect,
    keyring: Arc<Keyring>,
) -> Result<Channel, DialError> {
    connect_to_cut(address, expect, keyring).await.map(|(channel, _)| channel)
}

/// As [`connect`], with HTTP/2's windows, in bytes, of a stream and of the connection: what may
/// wait here to be read.
///
/// # Errors
/// As there.
pub async fn connect_within(
    address: &str,
    expect: Expect,
    keyring: Arc<Keyring>,
    windows: (u32, u32),
) -> Result<Channel, DialError> {
    let endpoint = super::connect::endpoint()
        .initial_stream_window_size(windows.0)
        .initial_connection_window_size(windows.1);
    connect_by(endpoint, address, expect, keyring).await.map(|(channel, _)| channel)
}

/// Closes the connection of a channel at once, with all that waits to be sent on it.
#[derive(Clone, Debug, Default)]
pub struct Cut(Arc<Mutex<CancellationToken>>);

impl Cut {
    /// Closes the connection that there is now. The next call opens another one.
    pub fn cut(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).cancel();
    }

    fn follow(&self, stream: &HostStream) {
        let hang_up = stream.peer.hang_up.clone();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = hang_up;
    }
}

/// As [`connect`], and what closes the connection.
///
/// # Errors
/// As there.
pub async fn connect_to_cut(
    address: &str,
    expect: Expect,
    keyring: Arc<Keyring>,
) -> Result<(Channel, Cut), DialError> {
    connect_by(super::connect::endpoint(), address, expect, keyring).await
}

async fn connect_by(
    endpoint: Endpoint,
    address: &str,
    expect: Expect,
    keyring: Arc<Keyring>,
) -> Result<(Channel, Cut), DialError> {
    let mut first = Some(open(address, &expect, &keyring).await?);
    let at = address.to_owned();
    let cut = Cut::default();
    let follows = cut.clone();
    let connector = tower::service_fn(move |_| {
        let ready = first.take();
        let (at, expect, keyring) = (at.clone(), expect.clone(), Arc::clone(&keyring));
        let cut = follows.clone();
        async move {
            let mut stream = match ready {
                Some(stream) => stream,
                None => open(&at, &expect, &keyring).await?,
            };
            // (An apinit counts heartbeats on its link to psched.)
            stream.quiet = (expect.role == Role::Node).then(|| Quiet::new(QUIET));
            cut.follow(&stream);
            Ok::<_, DialError>(TokioIo::new(stream))
        }
    });
    let (interval, wait) = KEEPALIVE;
    let channel = endpoint
        .http2_keep_alive_interval(interval)
        .keep_alive_timeout(wait)
        .keep_alive_while_idle(true)
        .connect_with_connector(connector)
        .await
        .map_err(|error| DialError(super::connect::chain(&error)))?;
    Ok((channel, cut))
}

#[cfg(test)]
pub(in crate::rpc) mod tests;
