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
use crate::rpc::{caller, tls};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::service::InterceptorLayer;
use tower::util::{MapRequestLayer, MapResponseLayer};

/// Requests on one connection at once: an apinit passes on those of one user on each.
const STREAMS_MAX: u32 = 16_384;
/// Requests of a host that may wait for their turns: more than an honest apinit passes on for all users.
pub(super) const HOST_WAITING_MAX: usize = 20_480;

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

    /// Serves other hosts until `stop`, on the threads of this runtime. It is that of users'
    /// connections: what users of other hosts ask, and TLS, must not hold up psched's loop.
    pub fn serve(
        self,
        runtime: &tokio::runtime::Handle,
        (nodes, users, logins): (NodesServer<Nodes>, PschedServer<Service>, LoginsServer<Logins>),
        halves: PartialMessages,
        turns: RequestTurns,
        stop: CancellationToken,
    ) -> JoinHandle<Result<(), tonic::transport::Error>> {
        let headers = halves.clone();
        let server = tls::server(STREAMS_MAX)
            .layer(InterceptorLayer::new(caller::received))
            .layer(MapRequestLayer::new(move |request| headers.headers(request)))
            .layer(turns)
            .layer(MapRequestLayer::new(move |request| halves.bound(request)))
            .layer(MapRequestLayer::new(Arrivals::of_request))
            .layer(MapResponseLayer::new(budget::metered))
            .add_service(nodes)
            .add_service(users)
            .add_service(logins);
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
            let serving = server.serve_with_incoming_shutdown(connections, stop.cancelled_owned());
            tokio::select! {
                served = serving => served,
                () = follow => Ok(()),
            }
        })
    }
}
