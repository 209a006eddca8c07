//! apinit on the network: how it reaches psched and other hosts' apinits, and how they reach it.

use super::doorway::Doorway;
use super::events::Events;
use super::{Options, attach, heads};
use crate::apteam::place::HostAddress;
use crate::certs::{FOLDER_DEFAULT, Keyring, Role, keyring};
use crate::rpc::caller::{self, HOST_WAITING_MAX};
use crate::rpc::connect::connect;
use crate::rpc::partial_messages::PartialMessages;
use crate::rpc::request_turns::RequestTurns;
use crate::rpc::tls::{self, Cut, Expect, PORT_APINIT, PORT_PSCHED};
use anyhow::bail;
use std::collections::BTreeMap;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::OnceCell;
use tokio_util::task::AbortOnDropHandle;
use tonic::service::InterceptorLayer;
use tonic::transport::Channel;
use tower::util::MapRequestLayer;

/// The runtime directory where psched is on another host and no other is named.
const RUNTIME_DEFAULT: &str = "/run/psched";
/// Requests on one connection of another host: its apinit has one for each application that it is
/// the head of here (`applications_max` at most), and passes on those of one user on each of its
/// other connections (4,096).
pub(super) const STREAMS_MAX: u32 = 65_536;
/// Other hosts to which connections are kept.
const HOSTS_MAX: usize = 8_192;

/// Where psched is.
#[derive(Clone)]
pub(super) enum Psched {
    /// On this host.
    Socket(PathBuf),
    /// On another one, at this address.
    Host(String, Arc<Network>),
}

impl fmt::Display for Psched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Psched::Socket(path) => path.display().fmt(f),
            Psched::Host(address, _) => address.fmt(f),
        }
    }
}

impl Psched {
    /// Its address, if it is on another host.
    pub fn address(&self) -> Option<String> {
        match self {
            Psched::Socket(_) => None,
            Psched::Host(address, _) => Some(address.clone()),
        }
    }

    /// Where the command line says; and the runtime directory.
    pub fn of(
        options: &Options,
        network: Option<&Arc<Network>>,
    ) -> anyhow::Result<(Psched, PathBuf)> {
        if let Some(address) = &options.psched
            && let Some(network) = network
        {
            let address = tls::with_port(address, PORT_PSCHED);
            let directory = options.runtime.as_deref().unwrap_or(Path::new(RUNTIME_DEFAULT));
            let directory = std::path::absolute(directory)?;
            make_directory(&directory, options.runtime.is_none())?;
            return Ok((Psched::Host(address, Arc::clone(network)), directory));
        }
        let Some(socket) = &options.socket else {
            bail!("--socket is missing: name the socket of psched, or its host with --psched")
        };
        let socket = std::path::absolute(socket)?;
        match socket.parent() {
            Some(directory) => Ok((Psched::Socket(socket.clone()), directory.to_owned())),
            None => bail!("{} is not the path of a socket", socket.display()),
        }
    }

    /// Connects.
    ///
    /// # Errors
    /// Why not, in a sentence.
    pub async fn connect(&self) -> Result<Channel, String> {
        match self {
            Psched::Socket(path) => connect(path).await.map_err(|error| error.to_string()),
            Psched::Host(address, network) => {
                let expect = Expect { name: None, role: Role::Control };
                let connected = tls::connect(address, expect, Arc::clone(&network.keyring));
                connected.await.map_err(|error| error.to_string())
            }
        }
    }
}

/// Makes the usual runtime directory, which goes with the boot, if it is not there.
fn make_directory(directory: &Path, usual: bool) -> anyhow::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    if usual && !directory.is_dir() {
        std::fs::DirBuilder::new().mode(0o755).create(directory).map_err(|error| {
            anyhow::anyhow!("can't make the directory {}: {error}", directory.display())
        })?;
    }
    Ok(())
}

/// A connection to another host, and what closes it.
type Open = (Channel, Cut);

/// This host among others.
pub(super) struct Network {
    /// Its name, by its certificate.
    pub host: String,
    keyring: Arc<Keyring>,
    listen: SocketAddr,
    /// A connection to each other host, which all applications share.
    channels: Mutex<BTreeMap<HostAddress, Arc<OnceCell<Open>>>>,
}

impl Network {
    /// As the command line says; none: this host knows no others.
    pub fn of(options: &Options) -> anyhow::Result<Option<Network>> {
        let Options { psched, certificates, listen, .. } = options;
        if psched.is_none() && certificates.is_none() && listen.is_none() {
            return Ok(None);
        }
        let folder = certificates.as_deref().unwrap_or(Path::new(FOLDER_DEFAULT));
        let keyring = Keyring::open(folder)?;
        let own = keyring.keys().own;
        let role = if options.nids.is_some() { Role::Node } else { Role::Login };
        anyhow::ensure!(
            own.roles.has(role),
            "the certificate in {} has the roles {}, and apinit needs {}: make another one with \
             `psched certs host {} --role {}`",
            folder.display(),
            own.roles,
            role.name(),
            own.name,
            own.roles.with(role)
        );
        Ok(Some(Network {
            host: own.name,
            keyring: Arc::new(keyring),
            listen: listen.unwrap_or((Ipv4Addr::UNSPECIFIED, PORT_APINIT).into()),
            channels: Mutex::default(),
        }))
    }

    /// What this host presents and accepts.
    pub fn keyring(&self) -> Arc<Keyring> {
        Arc::clone(&self.keyring)
    }

    /// Whether its certificate has this role.
    pub fn has(&self, role: Role) -> bool {
        self.keyring.keys().own.roles.has(role)
    }

    /// Where other hosts reach this one, as its hello says; without an address: the one from which
    /// it connects.
    pub fn told(&self) -> String {
        match self.listen.ip().is_unspecified() {
            true => format!(":{}", self.listen.port()),
            false => self.listen.to_string(),
        }
    }

    /// Serves heads on other hosts, and follows changes of certificates, until the handles are
    /// dropped.
    pub fn serve(
        &self,
        events: Events,
        doorway: Arc<Doorway>,
    ) -> anyhow::Result<[AbortOnDropHandle<()>; 2]> {
        let listener = tls::listen(self.listen, "--listen chooses it")?;
        let connections = tls::incoming(listener, Arc::clone(&self.keyring))?;
        let halves = PartialMessages::new(super::HALVES, super::HALVES_OF_HOST);
        let headers = halves.clone();
        // (Users of this host do not call here.)
        let turns = RequestTurns::new(0, HOST_WAITING_MAX);
        let server = tls::server(STREAMS_MAX)
            .layer(InterceptorLayer::new(caller::received))
            .layer(MapRequestLayer::new(move |request| headers.headers(request)))
            .layer(turns)
            .layer(MapRequestLayer::new(move |request| halves.bound(request)))
            .add_service(attach::service(events.clone(), Some(doorway)))
            .add_service(heads::service(events));
        let served = async move {
            // (None of its connections is an error.)
            let _ = server.serve_with_incoming(connections).await;
        };
        let follow = keyring::follow(Arc::clone(&self.keyring));
        Ok([
            AbortOnDropHandle::new(tokio::spawn(served)),
            AbortOnDropHandle::new(tokio::spawn(follow)),
        ])
    }

    /// The connection to the apinit of another host.
    async fn channel(&self, at: &HostAddress) -> Result<Reached, String> {
        let cell = {
            let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
            if channels.len() >= HOSTS_MAX && !channels.contains_key(at) {
                channels.pop_first();
            }
            Arc::clone(channels.entry(at.clone()).or_default())
        };
        let expect = Expect { name: Some(at.host.clone()), role: Role::Node };
        let keyring = Arc::clone(&self.keyring);
        let opened = cell.get_or_try_init(|| tls::connect_to_cut(&at.address, expect, keyring));
        let (channel, cut) = opened.await.cloned().map_err(|error| error.to_string())?;
        Ok(Reached { channel, cut: Some(cut) })
    }
}

/// A connection to another apinit.
pub(super) struct Reached {
    pub channel: Channel,
    /// Closes it; none: it is of one stream only, which closes it.
    pub cut: Option<Cut>,
}

/// A connection to an apinit of this host or of another one.
///
/// # Errors
/// Why there is none, in a sentence.
pub(super) async fn reach(network: Option<&Network>, at: &HostAddress) -> Result<Reached, String> {
    let own = network.map_or("", |network| &network.host);
    if at.host == own {
        let channel = connect(Path::new(&at.socket)).await.map_err(|error| error.to_string())?;
        return Ok(Reached { channel, cut: None });
    }
    match network {
        Some(network) if !at.address.is_empty() => network.channel(at).await,
        Some(_) => Err(format!(
            "the apinit of {} takes no connections of other hosts: start it with --certificates",
            at.socket
        )),
        None => Err("this host has no certificate: start apinit with --certificates".into()),
    }
}
