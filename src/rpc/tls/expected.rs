//! The host that is expected at an address, and what is not accepted in its place.
//!
//! The side that opens a connection compares while the handshake is under way, so that its refusal
//! is part of the handshake: TLS tells the other side, whose log says then why the connection has
//! ended.

use super::Expect;
use crate::certs::HostCertificate;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use std::sync::{Arc, OnceLock};

impl Expect {
    /// Whether the host at an address is the one that is expected.
    ///
    /// # Errors
    /// It is not: the sentence, and what TLS tells it.
    pub(super) fn compare(
        &self,
        address: &str,
        shown: &HostCertificate,
    ) -> Result<(), (String, CertificateError)> {
        if let Some(expected) = &self.name
            && *expected != shown.name
        {
            let why = format!(
                "{address} presents a certificate of {}, not of {expected}: check the address, or \
                 which folder of certificates was copied there",
                shown.name
            );
            return Err((why, CertificateError::NotValidForName));
        }
        if !shown.roles.has(self.role) {
            let why = format!(
                "the host {} at {address} has not the role {}: the roles of its certificate are \
                 {}; check the address, or make it another certificate with `psched certs host`",
                shown.name,
                self.role.name(),
                shown.roles
            );
            return Err((why, CertificateError::ApplicationVerificationFailure));
        }
        Ok(())
    }
}

/// Accepts the certificate of the expected host only.
#[derive(Debug)]
pub(super) struct ExpectedHost {
    any_host: Arc<dyn ServerCertVerifier>,
    expect: Expect,
    address: String,
    wrong: OnceLock<String>,
}

impl ExpectedHost {
    /// The host that is expected at this address; `any_host` accepts each host of the cluster.
    pub fn new(
        any_host: Arc<dyn ServerCertVerifier>,
        expect: &Expect,
        address: &str,
    ) -> Arc<ExpectedHost> {
        let (expect, address) = (expect.clone(), address.to_owned());
        Arc::new(ExpectedHost { any_host, expect, address, wrong: OnceLock::new() })
    }

    /// A configuration that accepts it only. (In a session that was taken up again TLS would not
    /// ask.)
    pub fn config(self: &Arc<Self>, config: &ClientConfig) -> Arc<ClientConfig> {
        let mut config = config.clone();
        config.resumption = Resumption::disabled();
        config.dangerous().set_certificate_verifier(Arc::clone(self) as _);
        Arc::new(config)
    }

    /// Why another host has been refused, if one has.
    pub fn wrong(&self) -> Option<&String> {
        self.wrong.get()
    }
}

impl ServerCertVerifier for ExpectedHost {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified =
            self.any_host.verify_server_cert(end_entity, intermediates, name, ocsp, now)?;
        let unreadable = |_| Error::InvalidCertificate(CertificateError::BadEncoding);
        let shown = HostCertificate::read(end_entity).map_err(unreadable)?;
        match self.expect.compare(&self.address, &shown) {
            Ok(()) => Ok(verified),
            Err((why, told)) => {
                let _ = self.wrong.set(why);
                Err(Error::InvalidCertificate(told))
            }
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.any_host.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.any_host.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.any_host.supported_verify_schemes()
    }
}
