//! Users of this host where psched, or PE 0 of their application, is on another one.
//!
//! A user talks to a unix socket of his own host, where the kernel says who he is. What he asks of
//! psched, and what his aprun says to the apinit of PE 0, is passed on as it is over TLS, with a
//! header that says who he is ([`caller`]). Each user has connections of his own to each other
//! host, which all his commands share. The window of such a connection has room for the windows of
//! all requests that he may have ([`REQUESTS_MAX`]): a stopped aprun, which reads nothing, fills
//! the window of its own request, and its application waits; his other applications do not. What
//! waits here for a user is bounded by the same windows, and by what HTTP/2 may have of an answer
//! that it has not written to him ([`Passed`]): so much for each request, of which a user may have
//! so many, and all users together so many ([`REQUESTS_ALL_MAX`], of which some are for users that
//! have few, [`REQUESTS_KEPT`]). A request counts until its answer has been written to the user's
//! connection.
//!
//! While the certificate of this host has not the role login, each request is refused with that
//! reason. When the certificate loses the role, all requests that are being passed on end.
//!
//! | socket, in the runtime directory | what is passed on |
//! | --- | --- |
//! | `psched.sock`, where psched is on another host | the service Psched |
//! | `relay.sock` | the service Apinit, to the apinit that the header `psched-head` names |

use super::network::Network;
use super::passed::Passed;
use crate::apteam::place::HostAddress;
use crate::certs::Role;
use crate::rpc::caller::{self, HEAD_HEADER, RELAY_SOCKET, RELAYED_MAX};
use crate::rpc::connect;
use crate::rpc::kept::Kept;
use crate::rpc::listen::{Bounds, ListenError, Peer, admitted, incoming_within, listen};
use crate::rpc::partial_messages::{HEADERS, Limits, PartialMessages, refused};
use crate::rpc::relayed::{self, Sent};
use crate::rpc::tls::{self, Counted, Expect, HOST_USERS_MAX, Slot};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::UnixListener;
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tonic::body::Body;
use tonic::codegen::http::{HeaderMap, Request, Response};
use tonic::server::NamedService;
use tonic::service::InterceptorLayer;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tower::util::MapRequestLayer;
use tower::{Service, ServiceExt};

/// The socket of psched, where psched is on another host.
const PSCHED_SOCKET: &str = "psched.sock";
/// What a user's front ends may have half said.
const HALVES: Limits =
    Limits { small: 128 * 1024, large: 8, halves: 1_024, requests: 4_096, headers: HEADERS.0 };
/// HTTP/2's windows, in bytes, of a stream and of a connection of a user.
const WINDOWS: (u32, u32) = (128 * 1024, 256 * 1024);
/// Requests of a user that are passed on at once. An aprun has two, and a user as many apruns as he
/// may have connections (`connections_user_max`).
const REQUESTS_MAX: usize = 4_096;
/// Requests of all users. Each takes [`WINDOW_AWAY`] and [`GIVEN_MAX`](super::passed::GIVEN_MAX)
/// bytes at most.
const REQUESTS_ALL_MAX: usize = RELAYED_MAX;
/// Of these, so many are kept for users who have fewer than [`FEW`]: some users with as many as they may have
/// keep none of the others out.
const REQUESTS_KEPT: usize = REQUESTS_MAX;
const FEW: usize = 64;
/// Requests of a user that have no answer yet; more of them wait here, each for [`TURN`] at most.
const UNANSWERED_MAX: usize = 256;
const TURN: Duration = Duration::from_secs(5);
/// Requests on a connection at once; more wait at the caller. An aprun has one on each of its two.
const STREAMS_MAX: u32 = 32;
/// HTTP/2's windows, in bytes, of a request and of a connection to another host: all requests of a
/// user have room.
const WINDOW_AWAY: u32 = 64 * 1024;
const WINDOWS_AWAY: (u32, u32) = (WINDOW_AWAY, WINDOW_AWAY * REQUESTS_MAX as u32);
/// Connections to other hosts that are kept: for all users, and for one.
const CHANNELS_MAX: usize = HOST_USERS_MAX;
const CHANNELS_USER_MAX: usize = 64;
/// Connections that are being opened for a user at once.
const OPENING_MAX: usize = 8;
/// How long a connection to another host may take.
const REACH: Duration = Duration::from_secs(10);
/// How long an apinit waits before it looks again whether another one of this host still has a
/// socket.
const LISTEN_AGAIN: Duration = Duration::from_secs(5);
/// How long it waits after a socket could not be made: the first wait, and the longest.
const FAILED_AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// A user's connection to an apinit, or to psched.
type Channels = BTreeMap<(u32, HostAddress), Arc<OnceCell<Channel>>>;

/// Bytes of the headers of a user's request.
const HEADERS_MAX: u32 = 16 * 1024;
/// Files that a connection of each socket for users takes: two sockets, each with a peer's pidfd.
pub(super) const FILES_EACH: u64 = 4;

/// What passes on.
pub(super) struct Relay {
    network: Arc<Network>,
    /// psched's address; none: it is on this host.
    psched: Option<String>,
    boot_id: String,
    channels: Mutex<Channels>,
    /// Connections that are being opened, of each user.
    opening: Counted<u32>,
    requests: Places,
    /// The turns of requests that have no answer yet, of each user.
    turns: Kept<u32, Semaphore>,
    /// Ends what is being passed on: this host does not speak for its users any more.
    over: CancellationToken,
}

impl Relay {
    /// Passes on from now until the handles are dropped. Returned with them: whether this apinit is
    /// the one that the users of this host talk to, because it has [`RELAY_SOCKET`].
    pub fn serve(
        network: &Arc<Network>,
        psched: Option<String>,
        directory: &Path,
        bounds: &watch::Receiver<Bounds>,
    ) -> (Vec<AbortOnDropHandle<()>>, watch::Receiver<bool>) {
        let away = psched.is_some();
        let relay = Arc::new(Relay {
            network: Arc::clone(network),
            psched,
            boot_id: crate::os::host::boot_id(),
            channels: Mutex::default(),
            opening: Counted::default(),
            requests: Places::default(),
            turns: Kept::default(),
            over: CancellationToken::new(),
        });
        let over = relay.over.clone().drop_guard();
        let (has, serves) = watch::channel(false);
        let mut sockets = vec![(directory.join(RELAY_SOCKET), has)];
        let other = || (directory.join(PSCHED_SOCKET), watch::Sender::new(false));
        sockets.extend(away.then(other));
        let listens = sockets.into_iter();
        let listens =
            listens.map(|(socket, has)| keep(socket, Arc::clone(&relay), bounds.clone(), has));
        let mut tasks: Vec<_> =
            listens.map(|kept| AbortOnDropHandle::new(tokio::spawn(kept))).collect();
        // (A connection that has been accepted is served by a task of its own.)
        tasks.push(AbortOnDropHandle::new(tokio::spawn(async move {
            let _over = over;
            std::future::pending().await
        })));
        (tasks, serves)
    }

    /// A user's connection to a host, which is opened if there is none.
    async fn channel(&self, uid: u32, at: HostAddress, role: Role) -> Result<Channel, Status> {
        let key = (uid, at.clone());
        let cell = self.cell(&key);
        let name = (!at.host.is_empty()).then(|| at.host.clone());
        let open = || async {
            // (A user chooses the host, and apinit looks up its name and waits for it: few at once.)
            let take = || self.opening.take(uid, OPENING_MAX, usize::MAX);
            let slot = name.is_some().then(take);
            if matches!(slot, Some(None)) {
                return Err(Status::resource_exhausted(format!(
                    "{OPENING_MAX} other hosts have not answered you yet: try again later"
                )));
            }
            let expect = Expect { name: name.clone(), role };
            let slot = slot.flatten().map(Arc::new);
            let address = match slot.clone() {
                // (psched's own host is known by its name.)
                Some(slot) => {
                    let found = tls::addresses_for_user(&at.address, slot).await;
                    let found = found.map_err(Status::unavailable)?;
                    let found: Vec<String> = found.iter().map(SocketAddr::to_string).collect();
                    found.join(",")
                }
                None => at.address.clone(),
            };
            let keyring = self.network.keyring();
            let opened = tls::connect_within(&address, expect, keyring, WINDOWS_AWAY).await;
            opened.map_err(|error| Status::unavailable(error.0))
        };
        // Who wants the same connection waits with the first, and no longer.
        let opened = timeout(REACH, cell.get_or_try_init(open)).await;
        let late = |_| Status::unavailable("it does not answer");
        let opened = opened.map_err(late).and_then(|opened| opened.cloned());
        if opened.is_err() {
            self.channels().remove(&key);
        }
        opened
    }

    fn channels(&self) -> MutexGuard<'_, Channels> {
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The place of a connection, for a user who has too many in place of another of his own.
    fn cell(&self, key: &(u32, HostAddress)) -> Arc<OnceCell<Channel>> {
        let mut channels = self.channels();
        if let Some(cell) = channels.get(key) {
            return Arc::clone(cell);
        }
        let begin = |uid: u32| (uid, HostAddress::default());
        let own = begin(key.0)..begin(key.0.saturating_add(1));
        let first = channels.range(own.clone()).next().map(|(key, _)| key.clone());
        if let Some(first) = first
            && channels.range(own).count() >= CHANNELS_USER_MAX
        {
            channels.remove(&first);
        }
        if channels.len() >= CHANNELS_MAX {
            channels.pop_last();
        }
        Arc::clone(channels.entry(key.clone()).or_default())
    }

    /// Whether a request may be passed on, and for whom.
    fn begins(&self, request: &Request<Body>) -> Result<Begun, Status> {
        let peer = request.extensions().get::<Peer>().cloned();
        let unknown = || Status::internal("the kernel does not report the caller's user id");
        let peer = peer.ok_or_else(unknown)?;
        // (The listeners are gone a moment later than the role.)
        if self.over.is_cancelled() || !self.network.has(Role::Login) {
            // (What an aprun asks again waits until the host has the role again.)
            return Err(match GOES_ON.contains(&request.uri().path()) {
                true => withdrawn_meanwhile(),
                false => withdrawn(),
            });
        }
        if let Some(why) = refused(request) {
            return Err(why);
        }
        let place = self.requests.take(peer.uid)?;
        Ok(Begun { peer, place })
    }

    /// The turn of a request among those of its user that have no answer yet.
    async fn turn(&self, begun: &Begun) -> Option<OwnedSemaphorePermit> {
        begun.place.as_ref()?;
        let turns = self.turns.of(begun.peer.uid, || Semaphore::new(UNANSWERED_MAX));
        // (Some answers take as long as a checkpoint does: they hold no other request up for
        // longer.)
        timeout(TURN, turns.acquire_owned()).await.ok()?.ok()
    }

    async fn pass(
        &self,
        to: To,
        request: Request<Body>,
        begun: Begun,
    ) -> Result<Response<Body>, Status> {
        match to {
            To::Psched => self.to_psched(request, begun).await,
            To::Head => self.to_head(request, begun).await,
        }
    }

    async fn to_psched(
        &self,
        request: Request<Body>,
        begun: Begun,
    ) -> Result<Response<Body>, Status> {
        let Some(address) = &self.psched else {
            return Err(Status::unimplemented("psched has a socket of its own on this host"));
        };
        let at = HostAddress { address: address.clone(), ..HostAddress::default() };
        let what = format!("psched on {address}");
        self.pass_on(request, begun, at, Role::Control, &what).await
    }

    async fn to_head(
        &self,
        request: Request<Body>,
        begun: Begun,
    ) -> Result<Response<Body>, Status> {
        let at = head_of(request.headers()).ok_or_else(|| {
            Status::invalid_argument("the header psched-head names no apinit of another host")
        })?;
        let what = format!("the apinit of host {}", at.host);
        self.pass_on(request, begun, at, Role::Node, &what).await
    }

    /// Passes a request on; `what`: to whom, in words.
    async fn pass_on(
        &self,
        mut request: Request<Body>,
        begun: Begun,
        at: HostAddress,
        role: Role,
        what: &str,
    ) -> Result<Response<Body>, Status> {
        let Begun { peer, place } = begun;
        caller::pass_on(request.headers_mut(), &peer, &self.boot_id)?;
        // (A command asks again, where it does no harm.)
        let away = |why: &dyn std::fmt::Display, sent: Sent| {
            let text = format!("{what} can't be reached from this host: {why}");
            relayed::unavailable(text, sent)
        };
        let key = (peer.uid, at.clone());
        let channel = self.over.run_until_cancelled(self.channel(peer.uid, at, role)).await;
        let channel = channel.unwrap_or_else(|| Err(withdrawn_meanwhile()));
        let mut channel = channel.map_err(|status| match status.code() {
            Code::Unavailable => away(&status.message(), Sent::No),
            _ => status,
        })?;
        let broken = |error: tonic::transport::Error, sent: Sent| {
            // (The host may have another address by now.)
            self.channels().remove(&key);
            // (A connection that could not be opened again has carried nothing.)
            let sent = if connect::is_not_connected(&error) { Sent::No } else { sent };
            away(&connect::status_text(Status::from_error(Box::new(error))), sent)
        };
        // (What is wrong with one request says nothing of the connection.)
        let own = Arc::new(OnceLock::new());
        let ended = |error: tonic::transport::Error| match own.get() {
            Some(why) => Status::clone(why),
            None => broken(error, Sent::Maybe),
        };
        let passes = |body| Body::new(Passed::to_host(body, self.over.clone(), Arc::clone(&own)));
        let request = request.map(passes);
        let passed = async {
            let ready = channel.ready().await.map_err(|error| broken(error, Sent::No))?;
            ready.call(request).await.map_err(ended)
        };
        let passed = self.over.run_until_cancelled(passed).await;
        let response = passed.unwrap_or_else(|| Err(withdrawn_meanwhile()))?;
        let (over, from) = (self.over.clone(), what.into());
        Ok(response.map(|body| Body::new(Passed::to_user(body, over, from, place))))
    }
}

/// Requests that are being passed on, of each user.
#[derive(Default)]
struct Places(Counted<u32>);

impl Places {
    /// The place of a user's request. (Those of root and of our own user are not counted.)
    fn take(&self, uid: u32) -> Result<Option<Slot>, Status> {
        if uid == 0 || uid == nix::unistd::geteuid().as_raw() {
            return Ok(None);
        }
        let kept = if self.0.of(&uid) < FEW { 0 } else { REQUESTS_KEPT };
        let place = self.0.take(uid, REQUESTS_MAX, REQUESTS_ALL_MAX - kept);
        place.map(Some).ok_or_else(|| {
            // (Not for good: an aprun that waits for its turn goes on waiting.)
            let text = match self.0.of(&uid) >= REQUESTS_MAX {
                true => format!(
                    "you have {REQUESTS_MAX} requests to other hosts under way, or with answers \
                     that you have not read: try again when some of them have ended"
                ),
                false => format!(
                    "the users of this host have {} requests to other hosts under way, the \
                     maximum: try again later, or from another login host",
                    REQUESTS_ALL_MAX - kept
                ),
            };
            relayed::unavailable(text, Sent::No)
        })
    }
}

/// What an aprun asks of an application that it has posted.
const GOES_ON: [&str; 3] =
    ["/psched.v1.Psched/Watch", "/psched.v1.Psched/Look", "/psched.v1.Apinit/Attach"];
/// Why nothing is passed on.
const WITHDRAWN: &str = "the certificate of this host has not the role login, so that it serves no users: use a login \
                         host of the cluster, or ask its administrator";

/// This host does not speak for its users any more.
fn withdrawn() -> Status {
    Status::permission_denied(WITHDRAWN)
}

/// The same in the middle of a conversation: an aprun waits until the role is back, as for a host that is away.
pub(super) fn withdrawn_meanwhile() -> Status {
    Status::unavailable(WITHDRAWN)
}

/// The apinit that a header names.
fn head_of(headers: &HeaderMap) -> Option<HostAddress> {
    let (host, address) = headers.get(HEAD_HEADER)?.to_str().ok()?.split_once(' ')?;
    let short = |text: &str| (1..=300).contains(&text.len());
    (short(host) && short(address)).then(|| HostAddress {
        host: host.to_owned(),
        address: address.to_owned(),
        socket: String::new(),
    })
}

/// Listens on a socket for ever. Of several apinits of a host one has it; the others look again
/// whether that one has gone. `has`: whether this one has it.
async fn keep(
    socket: PathBuf,
    relay: Arc<Relay>,
    bounds: watch::Receiver<Bounds>,
    has: watch::Sender<bool>,
) {
    loop {
        let listener = listener_on(&socket).await;
        let connections = incoming_within(listener, bounds.clone());
        let halves = PartialMessages::new(HALVES, super::HALVES_OF_HOST);
        let headers = halves.clone();
        let server = tonic::transport::Server::builder()
            .initial_stream_window_size(WINDOWS.0)
            .initial_connection_window_size(WINDOWS.1)
            .http2_keepalive_interval(Some(Duration::from_secs(30)))
            .http2_keepalive_timeout(Some(Duration::from_secs(20)))
            .http2_max_header_list_size(HEADERS_MAX)
            .max_concurrent_streams(STREAMS_MAX)
            .layer(InterceptorLayer::new(admitted))
            .layer(MapRequestLayer::new(move |request| headers.headers(request)))
            .layer(MapRequestLayer::new(move |request| halves.bound(request)))
            .add_service(ToPsched(Arc::clone(&relay)))
            .add_service(ToHead(Arc::clone(&relay)));
        let _removed = Removed(socket.clone());
        has.send_replace(true);
        // (None of its connections is an error.)
        let over = relay.over.clone().cancelled_owned();
        // (A connection ends with what may be passed on: its user asks again on another one, when
        // the role is back.)
        let _ = server.serve_with_incoming_shutdown(connections, over).await;
        has.send_replace(false);
        sleep(LISTEN_AGAIN).await;
    }
}

/// Listens on a socket for users as soon as that can be done, and logs why it can't be done yet.
async fn listener_on(socket: &Path) -> UnixListener {
    // (As the sockets of apinit itself.)
    let mode = if nix::unistd::geteuid().is_root() { 0o666 } else { 0o600 };
    let mut obstacle = Obstacle::default();
    loop {
        match listen(socket, mode) {
            Ok(listener) => {
                if obstacle.failed {
                    tracing::warn!("users of this host are served on {} now", socket.display());
                }
                return listener;
            }
            Err(error) => {
                if let Some(said) = obstacle.met(socket, error) {
                    tracing::warn!("{said}");
                }
                sleep(obstacle.wait).await;
            }
        }
    }
}

/// Why there is no listening on a socket for users.
#[derive(Default)]
struct Obstacle {
    /// It can't be made; otherwise, another apinit has it.
    failed: bool,
    /// How long to wait before the next attempt.
    wait: Duration,
    /// What was last logged.
    said: String,
}

impl Obstacle {
    /// An attempt has ended so. Returned: what is to be logged, if that is new.
    fn met(&mut self, socket: &Path, error: ListenError) -> Option<String> {
        let before = self.failed;
        self.failed = !matches!(error, ListenError::Answered(_));
        let socket = socket.display();
        let said = match self.failed {
            true => format!(
                "users of this host can't be served on {socket}: {:#}; apinit tries again",
                anyhow::Error::new(error)
            ),
            false => format!("users of this host are served by another apinit, which has {socket}"),
        };
        self.wait = match self.failed {
            true if before => (self.wait * 2).min(FAILED_AGAIN.1),
            true => FAILED_AGAIN.0,
            false => LISTEN_AGAIN,
        };
        let is_new = said != self.said;
        self.said.clone_from(&said);
        is_new.then_some(said)
    }
}

/// A socket, removed when its listener goes.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

type Answering = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

/// A request that may be passed on.
struct Begun {
    peer: Peer,
    place: Option<Slot>,
}

/// To whom.
#[derive(Clone, Copy)]
enum To {
    Psched,
    Head,
}

/// Passes a request on in its turn. What is refused, and what waits, takes little memory.
fn pass(relay: Arc<Relay>, to: To, request: Request<Body>) -> Answering {
    let begun = match relay.begins(&request) {
        Ok(begun) => begun,
        Err(status) => return Box::pin(std::future::ready(answer(Err(status)))),
    };
    Box::pin(async move {
        let _turn = relay.turn(&begun).await;
        answer(Box::pin(relay.pass(to, request, begun)).await)
    })
}

/// The service Psched, on another host.
#[derive(Clone)]
struct ToPsched(Arc<Relay>);

impl NamedService for ToPsched {
    const NAME: &'static str = "psched.v1.Psched";
}

impl Service<Request<Body>> for ToPsched {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answering;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Answering {
        pass(Arc::clone(&self.0), To::Psched, request)
    }
}

/// The service Apinit, on another host.
#[derive(Clone)]
struct ToHead(Arc<Relay>);

impl NamedService for ToHead {
    const NAME: &'static str = "psched.v1.Apinit";
}

impl Service<Request<Body>> for ToHead {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answering;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Answering {
        pass(Arc::clone(&self.0), To::Head, request)
    }
}

/// A refusal is an answer, too.
fn answer(passed: Result<Response<Body>, Status>) -> Result<Response<Body>, Infallible> {
    Ok(passed.unwrap_or_else(Status::into_http))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_bounded_for_each_user_and_for_all() {
        let places = Places::default();
        let own = nix::unistd::geteuid().as_raw();
        assert!(places.take(0).is_ok_and(|place| place.is_none()));
        let mut users = own + 1..;
        let mut taken = Vec::new();
        // Some have as many as they may have.
        for user in users.by_ref().take(REQUESTS_ALL_MAX / REQUESTS_MAX - 1) {
            taken.extend((0..REQUESTS_MAX).map(|_| places.take(user).expect("there is one")));
            let refused = places.take(user).expect_err("one too many");
            let what =
                (relayed::sent(&refused), refused.message().contains("you have 4096 requests"));
            assert_eq!(what, (Some(Sent::No), true), "{refused}");
        }
        // Others still have a few.
        for user in users.by_ref().take(REQUESTS_KEPT / FEW) {
            taken.extend((0..FEW).map(|_| places.take(user).expect("these are kept")));
            let refused = places.take(user).expect_err("these are not");
            let what = (
                relayed::sent(&refused),
                refused.message().contains("the users of this host have 12288"),
            );
            assert_eq!(what, (Some(Sent::No), true), "{refused}");
        }
        let other = users.next().expect("another user");
        let refused = places.take(other).expect_err("all are taken");
        let what = (
            relayed::sent(&refused),
            refused.message().contains("the users of this host have 16384"),
        );
        assert_eq!(what, (Some(Sent::No), true), "{refused}");
        // Root and our own user are served all the same.
        assert!(places.take(0).is_ok() && places.take(own).is_ok());
        taken.pop();
        assert!(places.take(other).is_ok());
    }

    /// Only where another one answers are users served.
    #[test]
    fn what_stands_in_the_way_of_a_socket_is_logged_as_what_it_is() {
        let socket = Path::new("/run/psched/relay.sock");
        let mut obstacle = Obstacle::default();
        let denied = || ListenError::NotAllowed { doing: "create the socket", path: socket.into() };
        assert_eq!(
            obstacle.met(socket, denied()).as_deref(),
            Some(
                "users of this host can't be served on /run/psched/relay.sock: not allowed to create the socket \
                 /run/psched/relay.sock: choose a directory of your own; apinit tries again"
            )
        );
        // It is said once, and tried less and less often.
        let mut waits = vec![obstacle.wait.as_secs()];
        for _ in 0..7 {
            assert_eq!(obstacle.met(socket, denied()), None);
            waits.push(obstacle.wait.as_secs());
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
        let other = obstacle.met(socket, ListenError::Answered(socket.into()));
        assert_eq!(
            other.as_deref(),
            Some(
                "users of this host are served by another apinit, which has /run/psched/relay.sock"
            )
        );
        assert_eq!((obstacle.failed, obstacle.wait), (false, LISTEN_AGAIN));
        // What the system says is said, and the next error is no longer waited for.
        let source = std::io::Error::from(nix::errno::Errno::EROFS);
        let error = ListenError::System { doing: "create the socket", path: socket.into(), source };
        let said = obstacle.met(socket, error).expect("it is new");
        assert!(said.contains("Read-only file system"), "{said}");
        assert_eq!((obstacle.failed, obstacle.wait), (true, FAILED_AGAIN.0));
    }

    /// The folder is made late, and then another one has the socket for a time.
    #[tokio::test(start_paused = true)]
    async fn a_socket_is_made_when_that_can_be_done() {
        let folder = tempfile::tempdir().expect("a folder");
        let below = folder.path().join("late");
        let socket = below.join("relay.sock");
        let first = socket.clone();
        let mut waits = tokio::spawn(async move { listener_on(&first).await });
        // (The clock goes as soon as nothing else is to be done: it has tried several times by
        // now.)
        assert!(timeout(FAILED_AGAIN.1 * 3, &mut waits).await.is_err());
        std::fs::create_dir(&below).expect("made");
        let listens = waits.await.expect("it listens");
        let mut other = tokio::spawn(async move { listener_on(&socket).await });
        assert!(timeout(LISTEN_AGAIN * 3, &mut other).await.is_err());
        drop(listens);
        other.await.expect("it listens");
    }

    #[test]
    fn a_header_names_a_head() {
        let head = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(HEAD_HEADER, text.parse().expect("a header"));
            head_of(&headers).map(|at| (at.host, at.address))
        };
        assert_eq!(head("n1 10.0.0.1:7118"), Some(("n1".into(), "10.0.0.1:7118".into())));
        assert_eq!(
            [head("n1"), head(" 10.0.0.1:1"), head("n1 "), head(&"x".repeat(999)),],
            [const { None }; 4]
        );
        assert_eq!(head_of(&HeaderMap::new()), None);
    }
}
