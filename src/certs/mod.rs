//! Certificates of hosts: the identity of a host on the network.
//!
//! A user is known by the kernel of the host on which his command runs. A host is known by its
//! certificate, which one of the cluster's authorities has signed. The certificate names the host
//! (its DNS name, which is the host's name in psched.yaml) and its roles (a URI for each role,
//! `psched:node`), so that no host claims the nodes or the users of another one.
//!
//! | file | subject |
//! | --- | --- |
//! | [`contents`] | the name, roles and validity in a certificate |
//! | [`making`] | authorities, certificates and revocations: made, read and written |
//! | [`keyring`] | what a daemon presents and accepts, read anew when its files change |
//! | [`faults`] | why a handshake failed, in a sentence for each side |
//!
//! The folder of a host, `/etc/psched/certs` ([`FOLDER_DEFAULT`]):
//!
//! | file | contents |
//! | --- | --- |
//! | `authorities.pem` | certificates of the authorities that are accepted, the newest first |
//! | `host.pem`, `host.key` | the certificate of the host, and its private key |
//! | `revoked.pem` | revocation lists of the authorities; may be absent |
//!
//! The folder in which certificates are made has the `authority.key` of the newest authority,
//! `hosts/NAME` with a folder for each host, to be copied there, and `replaced/NAME.pem` with the certificates that a
//! host has had before, as long as they are valid.

pub mod contents;
pub mod faults;
pub mod keyring;
pub mod making;

pub use contents::{HostCertificate, Role, Roles};
pub use keyring::Keyring;

/// The folder of a host's certificate where no other is named.
pub const FOLDER_DEFAULT: &str = "/etc/psched/certs";
/// Certificates of the authorities that are accepted.
pub const AUTHORITIES: &str = "authorities.pem";
/// The certificate of the host.
pub const HOST: &str = "host.pem";
/// Its private key.
pub const HOST_KEY: &str = "host.key";
/// Revocation lists.
pub const REVOKED: &str = "revoked.pem";
/// The private key of the newest authority.
pub const AUTHORITY_KEY: &str = "authority.key";
/// The private key of the authority before it, until that one is retired.
pub const PREVIOUS_KEY: &str = "authority-previous.key";
/// Folders of hosts, in the folder in which certificates are made.
pub const HOSTS: &str = "hosts";

/// Certificates that others have replaced, in the folder in which certificates are made.
pub const REPLACED: &str = "replaced";

/// What stood in the way, in a sentence that names the file and the cure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CertsError(pub String);

impl CertsError {
    fn new(text: impl Into<String>) -> CertsError {
        CertsError(text.into())
    }
}

#[cfg(test)]
pub mod tests;
