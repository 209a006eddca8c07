//! The name, roles and validity in a certificate.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

/// What a URI in a certificate begins with that names a role.
pub const ROLE_PREFIX: &str = "psched:";

/// What a host may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// It runs psched.
    Control,
    /// It speaks for its users: what its apinit says of a caller is believed.
    Login,
    /// It offers nodes.
    Node,
}

impl Role {
    /// All roles.
    pub const ALL: [Role; 3] = [Role::Control, Role::Login, Role::Node];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Role::Control => "control",
            Role::Login => "login",
            Role::Node => "node",
        }
    }
}

/// The roles of a host. As text: `login,node`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roles(pub BTreeSet<Role>);

impl Roles {
    /// Whether this role is among them.
    pub fn has(&self, role: Role) -> bool {
        self.0.contains(&role)
    }

    /// These and another one: what a new certificate is to have.
    pub fn with(&self, role: Role) -> Roles {
        Roles(self.0.iter().copied().chain([role]).collect())
    }
}

impl fmt::Display for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.0.iter().map(|role| role.name()).collect();
        f.write_str(if names.is_empty() { "none" } else { "" })?;
        f.write_str(&names.join(","))
    }
}

impl FromStr for Roles {
    type Err = String;

    fn from_str(text: &str) -> Result<Roles, String> {
        let role = |word: &str| {
            let found = Role::ALL.into_iter().find(|role| role.name() == word);
            found.ok_or_else(|| format!("{word:?} is not a role: give control, login or node"))
        };
        text.split(',').map(role).collect::<Result<_, _>>().map(Roles)
    }
}

/// The certificate of a host, as far as psched goes by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostCertificate {
    /// The name of the host.
    pub name: String,
    /// Its roles.
    pub roles: Roles,
    /// The serial number, in hexadecimal digits.
    pub serial: String,
    /// The name of the authority that has signed it.
    pub authority: String,
    /// When it begins to be valid, in seconds since 1970.
    pub not_before: i64,
    /// When it ceases to be valid, likewise.
    pub not_after: i64,
}

impl HostCertificate {
    /// Reads a certificate in DER, whose signature was verified before or does not matter.
    ///
    /// # Errors
    /// It is no certificate, or names no host.
    pub fn read(der: &[u8]) -> Result<HostCertificate, String> {
        let (_, read) =
            X509Certificate::from_der(der).map_err(|_| "it is not an X.509 certificate")?;
        let names = read.subject_alternative_name().map_err(|error| error.to_string())?;
        let names = names.iter().flat_map(|names| &names.value.general_names);
        let (mut host, mut roles) = (None, Roles::default());
        for name in names {
            match name {
                GeneralName::DNSName(dns) if host.is_none() => host = Some((*dns).to_owned()),
                GeneralName::URI(uri) => {
                    // (A role that this release does not know permits nothing here.)
                    let role = uri.strip_prefix(ROLE_PREFIX).and_then(|role| role.parse().ok());
                    roles.0.extend(role.map(|role: Roles| role.0).unwrap_or_default());
                }
                _ => {}
            }
        }
        Ok(HostCertificate {
            name: host.ok_or("it names no host")?,
            roles,
            serial: serial_text(read.tbs_certificate.raw_serial()),
            authority: common_name(read.issuer()),
            not_before: read.validity().not_before.timestamp(),
            not_after: read.validity().not_after.timestamp(),
        })
    }
}

/// A serial number, as `openssl x509 -serial` shows it.
pub fn serial_text(serial: &[u8]) -> String {
    let digits = serial.iter().skip_while(|byte| **byte == 0);
    digits.map(|byte| format!("{byte:02X}")).collect()
}

/// The common name of an authority, with its validity's end in seconds since 1970.
///
/// # Errors
/// It is no certificate.
pub fn authority(der: &[u8]) -> Result<(String, i64), String> {
    let (_, read) = X509Certificate::from_der(der).map_err(|_| "it is not an X.509 certificate")?;
    Ok((common_name(read.subject()), read.validity().not_after.timestamp()))
}

fn common_name(name: &x509_parser::x509::X509Name<'_>) -> String {
    let common = name.iter_common_name().next().and_then(|name| name.as_str().ok());
    common.unwrap_or_default().to_owned()
}
