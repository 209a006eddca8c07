//! Users of this host where psched, or PE 0 of their application, is on another one.
//!
//! A user talks to a unix socket of his own host, where the kernel says who he is. What he asks of
//! psched, and what his aprun says to the apinit of PE 0, is passed on as it is over TLS, with a
//! header that says who he is ([`caller`]). Each user has connections of his own, so that a user who
//! does not read his answers fills the windows of his own connections only.
//!
//! | socket, in the runtime directory | what is passed on |
//! | --- | --- |
//! | `psched.sock`, where psched is on another host | the service Psched |
//! | `relay.sock` | the service Apinit, to the apinit that the header `psched-head` names |

use super::network::Network;
use crate::apteam::place::HostAddress;
use crate::certs::Role;
use crate::rpc::caller::{self, HEAD_HEADER, RELAY_SOCKET};
use crate::rpc::listen::{Bounds, Peer, admitted, incoming_within, listen};
use crate::rpc::partial_messages::{Limits, PartialMessages};
use crate::rpc::tls::{self, Counted, Expect, HOST_USERS_MAX};
use crate::variables::Variables;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{OnceCell, watch};
use tokio::time::{sleep, timeout};
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
const HALVES: Limits = Limits { small: 128 * 1024, large: 8, halves: 1_024, requests: 4_096 };
/// HTTP/2's windows, in bytes, of a stream and of a connection of a user.
const WINDOWS: (u32, u32) = (128 * 1024, 256 * 1024);
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
}

impl Relay {
    /// Passes on from now until the handles are dropped.
    pub fn serve(
        network: &Arc<Network>,
        psched: Option<String>,
        directory: &Path,
        bounds: &watch::Receiver<Bounds>,
    ) -> Vec<AbortOnDropHandle<()>> {
        let away = psched.is_some();
        let relay = Arc::new(Relay {
            network: Arc::clone(network),
            psched,
            boot_id: crate::os::host::boot_id(),
            channels: Mutex::default(),
            opening: Counted::default(),
        });
        let mut sockets = vec![directory.join(RELAY_SOCKET)];
        sockets.extend(away.then(|| directory.join(PSCHED_SOCKET)));
        let listens =
            sockets.into_iter().map(|socket| keep(socket, Arc::clone(&relay), bounds.clone()));
        listens.map(|kept| AbortOnDropHandle::new(tokio::spawn(kept))).collect()
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
            let opened = tls::connect(&address, expect, self.network.keyring()).await;
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

    async fn to_psched(&self, request: Request<Body>) -> Result<Response<Body>, Status> {
        let Some(address) = &self.psched else {
            return Err(Status::unimplemented("psched has a socket of its own on this host"));
        };
        let at = HostAddress { address: address.clone(), ..HostAddress::default() };
        let what = format!("psched on {address}");
        self.pass_on(request, at, Role::Control, &what).await
    }

    async fn to_head(&self, request: Request<Body>) -> Result<Response<Body>, Status> {
        let at = head_of(request.headers()).ok_or_else(|| {
            Status::invalid_argument("the header psched-head names no apinit of another host")
        })?;
        let what = format!("the apinit of host {}", at.host);
        self.pass_on(request, at, Role::Node, &what).await
    }

    /// Passes a request on; `what`: to whom, in words.
    async fn pass_on(
        &self,
        mut request: Request<Body>,
        at: HostAddress,
        role: Role,
        what: &str,
    ) -> Result<Response<Body>, Status> {
        let peer = request.extensions().get::<Peer>().cloned();
        let unknown = || Status::internal("the kernel does not report the caller's user id");
        let peer = peer.ok_or_else(unknown)?;
        caller::pass_on(request.headers_mut(), &peer, &self.boot_id)?;
        let away = |why: &dyn std::fmt::Display| {
            Status::unavailable(format!("{what} can't be reached from this host: {why}"))
        };
        let key = (peer.uid, at.clone());
        let channel = self.channel(peer.uid, at, role).await;
        let mut channel = channel.map_err(|status| match status.code() {
            Code::Unavailable => away(&status.message()),
            _ => status,
        })?;
        let broken = |error: tonic::transport::Error| {
            // (The host may have another address by now.)
            self.channels().remove(&key);
            away(&crate::rpc::connect::status_text(Status::from_error(Box::new(error))))
        };
        channel.ready().await.map_err(broken)?.call(request).await.map_err(broken)
    }
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
/// whether that one has gone.
async fn keep(socket: PathBuf, relay: Arc<Relay>, bounds: watch::Receiver<Bounds>) {
    let mut said = false;
    loop {
        // (As the sockets of apinit itself.)
        let mode = if nix::unistd::geteuid().is_root() { 0o666 } else { 0o600 };
        match listen(&socket, mode) {
            Ok(listener) => {
                let connections = incoming_within(listener, bounds.clone());
                let halves = PartialMessages::new(HALVES, super::HALVES_OF_HOST);
                let server = tonic::transport::Server::builder()
                    .initial_stream_window_size(WINDOWS.0)
                    .initial_connection_window_size(WINDOWS.1)
                    .http2_keepalive_interval(Some(Duration::from_secs(30)))
                    .http2_keepalive_timeout(Some(Duration::from_secs(20)))
                    .http2_max_header_list_size(HEADERS_MAX)
                    .max_concurrent_streams(u32::try_from(Variables::default().streams_max()).ok())
                    .layer(InterceptorLayer::new(admitted))
                    .layer(MapRequestLayer::new(move |request| halves.bound(request)))
                    .add_service(ToPsched(Arc::clone(&relay)))
                    .add_service(ToHead(Arc::clone(&relay)));
                let _removed = Removed(socket.clone());
                // (None of its connections is an error.)
                let _ = server.serve_with_incoming(connections).await;
            }
            Err(why) if !said => {
                said = true;
                tracing::info!("users of this host are served by another apinit, or not: {why}");
            }
            Err(_) => {}
        }
        sleep(LISTEN_AGAIN).await;
    }
}

/// A socket, removed when its listener goes.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

type Passed = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

/// The service Psched, on another host.
#[derive(Clone)]
struct ToPsched(Arc<Relay>);

impl NamedService for ToPsched {
    const NAME: &'static str = "psched.v1.Psched";
}

impl Service<Request<Body>> for ToPsched {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Passed;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Passed {
        let relay = Arc::clone(&self.0);
        Box::pin(async move { answer(relay.to_psched(request).await) })
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
    type Future = Passed;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Passed {
        let relay = Arc::clone(&self.0);
        Box::pin(async move { answer(relay.to_head(request).await) })
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
