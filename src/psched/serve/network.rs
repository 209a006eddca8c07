//! psched on the network: apinits and users of other hosts, which are known by certificates.

use super::budget;
use super::links::Nodes;
use super::logins::Logins;
use super::services::Service;
use crate::certs::{FOLDER_DEFAULT, Keyring, Role, keyring};
use crate::config::Config;
use crate::rpc::arrivals::Arrivals;
use crate::rpc::partial_messages::PartialMessages;
use crate::rpc::pb::logins_server::LoginsServer;
use crate::rpc::pb::nodes_server::NodesServer;
use crate::rpc::pb::psched_server::PschedServer;
use crate::rpc::request_turns::RequestTurns;
use crate::rpc::tls::{Counted, HostStream};
use crate::rpc::{caller, tls};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tokio_util::sync::CancellationToken;
use tonic::service::InterceptorLayer;
use tonic::transport::Server;
use tower::util::{MapRequestLayer, MapResponseLayer};

/// Requests on one connection of a login host at once: its apinit passes on those of one user on
/// each.
const STREAMS_MAX: u32 = 4_096;
/// On one of another host, whose apinit has a link and no more; and its connections, of which each
/// of its apinits has one. HTTP/2 refuses one more request before it takes any memory, read or not.
const NODE_STREAMS_MAX: u32 = 16;
const NODE_CONNECTIONS_MAX: usize = 1_024;
/// Connections of these that wait to be served: all nodes of a cluster may connect at once.
const NODES_WAITING_MAX: usize = 4_096;
/// Bytes of the headers there: it speaks for no user.
const NODE_HEADERS_MAX: u32 = 16 * 1024;

/// The listener, and the certificate of psched's host.
pub(super) struct Network {
    listener: TcpListener,
    keyring: Arc<Keyring>,
    host: String,
}

impl Network {
    /// Listens for other hosts.
    ///
    /// # Errors
    /// The certificate can't be used, or the address can't be listened on.
    pub fn open(address: SocketAddr, config: &Config) -> anyhow::Result<Network> {
        let folder = config.certificates.as_deref().unwrap_or(FOLDER_DEFAULT);
        let keyring = Arc::new(Keyring::open(Path::new(folder))?);
        let own = keyring.keys().own;
        anyhow::ensure!(
            own.roles.has(Role::Control),
            "the certificate in {folder} has the roles {}, and psched needs control: make one on \
             this host with `psched certs init`, or elsewhere with `psched certs host {} --role {}`",
            own.roles,
            own.name,
            own.roles.with(Role::Control)
        );
        let listener = tls::listen(address, "`network` in psched.yaml chooses it")?;
        tracing::info!(%address, host = own.name, "psched answers other hosts");
        Ok(Network { listener, keyring, host: own.name })
    }

    /// The name of psched's host.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Serves other hosts until `stop`, on the threads of this runtime, which has nothing else to
    /// do: what other hosts ask, and TLS, must hold up neither psched's loop nor users of psched's
    /// host.
    pub fn serve(
        self,
        runtime: &tokio::runtime::Handle,
        (nodes, users, logins): (NodesServer<Nodes>, PschedServer<Service>, LoginsServer<Logins>),
        halves: PartialMessages,
        turns: RequestTurns,
        stop: CancellationToken,
    ) -> JoinHandle<Result<(), tonic::transport::Error>> {
        let headers = halves.clone();
        let layered = |server: Server| {
            let (headers, halves) = (headers.clone(), halves.clone());
            server
                .layer(InterceptorLayer::new(caller::received))
                .layer(MapRequestLayer::new(move |request| headers.headers(request)))
                .layer(turns.clone())
                .layer(MapRequestLayer::new(move |request| halves.bound(request)))
                .layer(MapRequestLayer::new(Arrivals::of_request))
                .layer(MapResponseLayer::new(budget::metered))
                .add_service(nodes.clone())
                .add_service(users.clone())
                .add_service(logins.clone())
        };
        let [server, of_nodes] = servers().map(layered);
        let Network { listener, keyring, .. } = self;
        runtime.spawn(async move {
            let connections = match tls::incoming(listener, Arc::clone(&keyring)) {
                Ok(connections) => connections,
                Err(error) => {
                    tracing::error!(%error, "other hosts can't be listened to");
                    return Ok(());
                }
            };
            let follow = keyring::follow(keyring);
            let (connections, nodes) = split(connections, NODE_CONNECTIONS_MAX);
            let stopped = stop.clone().cancelled_owned();
            let serving = server.serve_with_incoming_shutdown(connections, stopped);
            let of_nodes = of_nodes.serve_with_incoming_shutdown(nodes, stop.cancelled_owned());
            tokio::select! {
                // (If one of them fails psched does not answer some hosts any more: nor the others,
                // so that it shows.)
                served = async { tokio::try_join!(serving, of_nodes) } => served.map(drop),
                () = follow => Ok(()),
            }
        })
    }
}

/// For the connections of login hosts, and for those of the others.
fn servers() -> [Server; 2] {
    let of_nodes = tls::server(NODE_STREAMS_MAX).http2_max_header_list_size(NODE_HEADERS_MAX);
    [tls::server(STREAMS_MAX), of_nodes]
}

/// The connections of login hosts, and those of hosts that speak for no users, each of which has
/// `most`: what a host may do is known before HTTP/2 begins.
fn split(
    connections: impl Stream<Item = io::Result<HostStream>>,
    most: usize,
) -> (impl Stream<Item = io::Result<HostStream>>, impl Stream<Item = io::Result<HostStream>>) {
    let (to_nodes, nodes) = mpsc::channel::<HostStream>(NODES_WAITING_MAX);
    let counts = Counted::default();
    let logins = connections.filter_map(move |connection| match connection {
        Ok(stream) if !stream.peer().roles.has(Role::Login) => {
            let host = stream.peer();
            match counts.take(Arc::clone(&host.name), most, usize::MAX) {
                Some(slot) => {
                    let closed = host.hang_up.clone();
                    tokio::spawn(async move {
                        closed.cancelled().await;
                        drop(slot);
                    });
                    // (It connects again.)
                    if let Err(full) = to_nodes.try_send(stream) {
                        full.into_inner().peer().too_many_wait(NODES_WAITING_MAX);
                    }
                }
                None => host.too_many(most),
            }
            None
        }
        other => Some(other),
    });
    (logins, ReceiverStream::new(nodes).map(Ok))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certs::tests::Place;
    use crate::psched::serve::links::Lost;
    use crate::psched::serve::processes::Questions;
    use crate::rpc::tls::{DialError, Expect};
    use std::time::Duration;
    use tokio::io::AsyncReadExt;
    use tokio::sync::watch;
    use tokio_util::task::AbortOnDropHandle;

    /// A server for hosts of which those without the role login may have two connections, and its
    /// address.
    fn serve(place: &Place) -> (String, [AbortOnDropHandle<()>; 2]) {
        let keyring = Arc::new(Keyring::open(place.path()).expect("good"));
        let listener = tls::listen("127.0.0.1:0".parse().expect("an address"), "test");
        let listener = listener.expect("free");
        let address = listener.local_addr().expect("bound").to_string();
        let (logins, nodes) = split(tls::incoming(listener, keyring).expect("watched"), 2);
        let service = NodesServer::new(Nodes {
            inputs: mpsc::channel(1).0,
            next: Default::default(),
            stop: CancellationToken::new(),
            questions: Questions::default(),
            silence: watch::channel(Duration::from_secs(60)).1,
            lost: Lost::default(),
        });
        let [of_logins, of_nodes] = servers();
        let of_logins = of_logins.clone().add_service(service.clone());
        let of_nodes = of_nodes.clone().add_service(service);
        let served = [
            tokio::spawn(async move { drop(of_logins.serve_with_incoming(logins).await) }),
            tokio::spawn(async move { drop(of_nodes.serve_with_incoming(nodes).await) }),
        ];
        (address, served.map(AbortOnDropHandle::new))
    }

    async fn open(address: &str, folder: &Path) -> Result<HostStream, DialError> {
        let keyring = Keyring::open(folder).expect("good");
        tls::open(address, &Expect { name: None, role: Role::Control }, &keyring).await
    }

    /// The requests that a server takes on this connection at once, as its settings say.
    async fn streams(mut connection: HostStream) -> u32 {
        let length = connection.read_u32().await.expect("a frame") >> 8;
        let mut rest = [0; 5];
        connection.read_exact(&mut rest).await.expect("its flags and its stream");
        for _ in 0..length / 6 {
            let name = connection.read_u16().await.expect("a setting");
            let value = connection.read_u32().await.expect("its value");
            if name == 3 {
                return value;
            }
        }
        u32::MAX
    }

    #[tokio::test]
    async fn a_host_that_speaks_for_no_users_has_few_requests_and_connections() {
        let place = Place::cluster("network-split");
        let (address, _served) = serve(&place);
        let (node, login) = (place.host("n1", "node"), place.host("n2", "login,node"));
        for (folder, most) in [(&node, NODE_STREAMS_MAX), (&login, STREAMS_MAX)] {
            let connection = open(&address, folder).await.expect("taken");
            assert_eq!(streams(connection).await, most);
        }
        // (The server knows a little later that these are closed.)
        let two = async {
            loop {
                let (one, two) = (open(&address, &node).await, open(&address, &node).await);
                if let (Ok(one), Ok(two)) = (one, two) {
                    return (one, two);
                }
            }
        };
        let bound = Duration::from_secs(60);
        let (one, _two) = tokio::time::timeout(bound, two).await.expect("two are taken");
        let closed = open(&address, &node).await.err().expect("one too many");
        assert!(closed.0.contains("the host head has closed the connection"), "{closed}");
        let mut logins = Vec::new();
        for _ in 0..3 {
            logins.push(open(&address, &login).await.expect("taken"));
        }
        drop(one);
        let again = async { while open(&address, &node).await.is_err() {} };
        tokio::time::timeout(bound, again).await.expect("there is room again");
    }
}
