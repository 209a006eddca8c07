//! What a daemon presents and accepts, read anew when its files change.

use super::contents::{HostCertificate, serial_text};
use super::making::{read, read_certificates, read_revocations, revoked_serials};
use super::{AUTHORITIES, CertsError, HOST, HOST_KEY, REVOKED};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig,
    SignatureScheme,
};
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// The protocol that is spoken within TLS, as ALPN names it.
const ALPN: &[u8] = b"h2";
/// How often the files are looked at, at most.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// What a daemon presents and accepts now.
#[derive(Clone, Debug)]
pub struct Keys {
    /// The certificate of this host.
    pub own: HostCertificate,
    /// For connections that come.
    pub server: Arc<ServerConfig>,
    /// For connections that are opened. It accepts any host of the cluster.
    pub client: Arc<ClientConfig>,
    /// By what it does.
    pub any_host: Arc<dyn ServerCertVerifier>,
    /// Serial numbers of certificates that were revoked, in hexadecimal digits.
    pub revoked: Arc<BTreeSet<String>>,
}

/// Keys that follow the files of a folder.
#[derive(Debug)]
pub struct Keyring {
    folder: PathBuf,
    state: Mutex<State>,
    revoked: watch::Sender<Arc<BTreeSet<String>>>,
}

#[derive(Debug)]
struct State {
    keys: Keys,
    /// The files that `keys` was read from, or whose reading failed.
    files: Files,
    looked: Instant,
}

/// Device, inode, size and modification time of each file, as far as it exists.
type Files = [Option<(u64, u64, u64, i64, i64)>; 4];

impl Keyring {
    /// Reads the files of a folder.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn open(folder: &Path) -> Result<Keyring, CertsError> {
        let files = look(folder);
        let keys = load(folder)?;
        let revoked = watch::Sender::new(Arc::clone(&keys.revoked));
        let state = Mutex::new(State { keys, files, looked: Instant::now() });
        Ok(Keyring { folder: folder.to_owned(), state, revoked })
    }

    /// The keys of now. Where files have changed and can't be used, those of before stay, and the
    /// log has the reason.
    pub fn keys(&self) -> Keys {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.looked.elapsed() >= LOOK_AGAIN {
            self.look_again(&mut state);
        }
        state.keys.clone()
    }

    /// Looks at the files now.
    pub fn refresh(&self) {
        self.look_again(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn look_again(&self, state: &mut State) {
        state.looked = Instant::now();
        let files = look(&self.folder);
        if files == state.files {
            return;
        }
        state.files = files;
        match load(&self.folder) {
            Ok(keys) => {
                tracing::info!(
                    folder = %self.folder.display(),
                    host = keys.own.name,
                    "new certificates are in force"
                );
                self.revoked.send_replace(Arc::clone(&keys.revoked));
                state.keys = keys;
            }
            Err(error) => {
                tracing::warn!("the certificates of before stay in force: {error}");
            }
        }
    }

    /// Has other keys in force than those of the files, until these change.
    #[cfg(test)]
    pub fn alter(&self, alter: impl FnOnce(&mut Keys)) {
        alter(&mut self.state.lock().expect("not poisoned").keys);
    }

    /// Revoked serial numbers, now and later.
    pub fn revocations(&self) -> watch::Receiver<Arc<BTreeSet<String>>> {
        self.revoked.subscribe()
    }
}

/// Keeps looking at the files, so that a revocation ends connections that are open.
pub async fn follow(keyring: Arc<Keyring>) {
    loop {
        tokio::time::sleep(LOOK_AGAIN).await;
        let keyring = Arc::clone(&keyring);
        let looked = tokio::task::spawn_blocking(move || keyring.refresh()).await;
        if looked.is_err() {
            return;
        }
    }
}

fn look(folder: &Path) -> Files {
    [AUTHORITIES, HOST, HOST_KEY, REVOKED].map(|file| {
        let data = std::fs::metadata(folder.join(file)).ok()?;
        Some((data.dev(), data.ino(), data.size(), data.mtime(), data.mtime_nsec()))
    })
}

fn load(folder: &Path) -> Result<Keys, CertsError> {
    let at = |file: &str| folder.join(file);
    let wrong = |file: &str, why: &dyn std::fmt::Display| {
        CertsError::new(format!("{} can't be used: {why}", at(file).display()))
    };
    let mut roots = RootCertStore::empty();
    for authority in read_certificates(&at(AUTHORITIES))? {
        roots.add(authority).map_err(|error| wrong(AUTHORITIES, &error))?;
    }
    let roots = Arc::new(roots);
    let chain = read_certificates(&at(HOST))?;
    let own = HostCertificate::read(&chain[0]).map_err(|why| wrong(HOST, &why))?;
    only_ours(&at(HOST_KEY))?;
    let key = read(&at(HOST_KEY))?;
    let key = PrivateKeyDer::from_pem_slice(&key).map_err(|error| wrong(HOST_KEY, &error))?;
    let lists = read_revocations(&at(REVOKED))?;
    let revoked = revoked_serials(&lists).into_keys().map(|serial| serial_text(&serial)).collect();

    let provider = Arc::new(ring::default_provider());
    let clients = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone());
    // (A list of each authority there may be, or none.)
    let clients = clients.with_crls(lists.clone()).allow_unknown_revocation_status().build();
    let clients = clients.map_err(|error| wrong(AUTHORITIES, &error))?;
    let servers = WebPkiServerVerifier::builder_with_provider(roots, provider.clone());
    let servers = servers.with_crls(lists).allow_unknown_revocation_status().build();
    let servers = servers.map_err(|error| wrong(AUTHORITIES, &error))?;
    let mismatch = |error: rustls::Error| match error {
        rustls::Error::InconsistentKeys(_) => wrong(
            HOST_KEY,
            &"it is not the key of host.pem beside it: copy both from the same folder",
        ),
        other => wrong(HOST_KEY, &other),
    };
    let mut server = tls13(ServerConfig::builder_with_provider, &provider)?
        .with_client_cert_verifier(clients)
        .with_single_cert(chain.clone(), key.clone_key())
        .map_err(mismatch)?;
    let any_host: Arc<dyn ServerCertVerifier> = Arc::new(AnyHost(servers));
    let mut client = tls13(ClientConfig::builder_with_provider, &provider)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::clone(&any_host))
        .with_client_auth_cert(chain, key)
        .map_err(mismatch)?;
    server.alpn_protocols = vec![ALPN.to_vec()];
    client.alpn_protocols = vec![ALPN.to_vec()];
    let (server, client, revoked) = (Arc::new(server), Arc::new(client), Arc::new(revoked));
    Ok(Keys { own, server, client, any_host, revoked })
}

/// Accepts the certificate of any host of the cluster. Which host it is, and what it may do, is
/// compared by the side that opens the connection: hosts are known by their names in
/// psched.yaml, which need not be what a name service calls them, and psched by its role.
#[derive(Debug)]
struct AnyHost(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyHost {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let unreadable = rustls::Error::InvalidCertificate(CertificateError::BadEncoding);
        let own = HostCertificate::read(end_entity).map_err(|_| unreadable.clone())?;
        let name = ServerName::try_from(own.name).map_err(|_| unreadable)?;
        self.0.verify_server_cert(end_entity, intermediates, &name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// A builder for TLS 1.3 and nothing older.
fn tls13<S: rustls::ConfigSide>(
    builder: impl Fn(Arc<CryptoProvider>) -> rustls::ConfigBuilder<S, rustls::WantsVersions>,
    provider: &Arc<CryptoProvider>,
) -> Result<rustls::ConfigBuilder<S, rustls::WantsVerifier>, CertsError> {
    let built = builder(Arc::clone(provider)).with_protocol_versions(&[&TLS13]);
    built.map_err(|error| CertsError::new(error.to_string()))
}

/// Refuses a private key that another user may read, or could have put there.
fn only_ours(path: &Path) -> Result<(), CertsError> {
    let failed = |why: String| CertsError::new(format!("{} can't be used: {why}", path.display()));
    let data = std::fs::metadata(path)
        .map_err(|error| CertsError::new(format!("can't read {}: {error}", path.display())))?;
    let own = rustix::process::geteuid().as_raw();
    if data.uid() != own && data.uid() != 0 {
        return Err(failed(format!("it belongs to user {}: chown it", data.uid())));
    }
    if data.mode() & 0o077 != 0 {
        return Err(failed("other users may read it: chmod 600 it, and renew it".into()));
    }
    let folder = crate::os::new_file::folder_of(path);
    crate::os::trust::check_directory(folder).map_err(failed)
}
