//! Why a handshake failed, in a sentence for each side.
//!
//! The side that refuses a certificate has the exact reason. The other side has an alert, which is
//! a word; what it meant, and where to look, is said here.

use jiff::Timestamp;
use rustls::pki_types::UnixTime;
use rustls::{AlertDescription, CertificateError, Error};
use std::io;

/// Finds TLS's own error in the chain of an error.
pub fn tls_error<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a Error> {
    // No chain is as long; a source that leads back to itself would be endless.
    let causes = std::iter::successors(Some(error), |cause| (*cause).source()).take(32);
    causes.filter_map(found).next()
}

/// (An `io::Error` does not name what it carries as its source.)
fn found<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a Error> {
    if let Some(error) = error.downcast_ref::<Error>() {
        return Some(error);
    }
    tls_error(error.downcast_ref::<io::Error>()?.get_ref()?)
}

/// What is wrong with the other side, or what the other side says is wrong with this one. `peer`
/// names the other side: `the host n1`, or an address.
pub fn sentence(peer: &str, error: &Error) -> String {
    match error {
        Error::InvalidCertificate(wrong) => refused(peer, wrong),
        Error::NoCertificatesPresented => format!(
            "{peer} presents no certificate: give its apinit a folder of certificates that \
             `psched certs host` has made"
        ),
        Error::AlertReceived(alert) => told(peer, *alert),
        Error::InvalidMessage(_) => format!(
            "{peer} does not speak TLS: check the address and the port, and whether both sides \
             have certificates configured"
        ),
        other => format!("TLS with {peer} failed: {other}"),
    }
}

/// The kind of fault, by which the log tells reasons apart.
pub fn kind(error: &Error) -> &'static str {
    use CertificateError as Wrong;
    match error {
        Error::InvalidCertificate(wrong) => match wrong {
            Wrong::Expired | Wrong::ExpiredContext { .. } => "expired",
            Wrong::NotValidYet | Wrong::NotValidYetContext { .. } => "not yet valid",
            Wrong::Revoked => "revoked",
            Wrong::UnknownIssuer | Wrong::BadSignature => "authority",
            _ => "certificate",
        },
        Error::NoCertificatesPresented => "no certificate",
        Error::AlertReceived(alert) => match alert {
            AlertDescription::CertificateExpired => "told: expired",
            AlertDescription::UnknownCA | AlertDescription::DecryptError => "told: authority",
            AlertDescription::CertificateRevoked => "told: revoked",
            AlertDescription::BadCertificate => "told: name",
            AlertDescription::AccessDenied => "told: role",
            _ => "told",
        },
        Error::InvalidMessage(_) => "no TLS",
        _ => "TLS",
    }
}

/// Why this side refuses.
fn refused(peer: &str, wrong: &CertificateError) -> String {
    match wrong {
        CertificateError::ExpiredContext { time, not_after } => format!(
            "the certificate of {peer} expired at {}, and the clock of this host says {}: renew \
             it with `psched certs renew`, or set the clock",
            utc(not_after),
            utc(time)
        ),
        CertificateError::Expired => format!(
            "the certificate of {peer} has expired: renew it with `psched certs renew`, or set \
             the clock of this host"
        ),
        CertificateError::NotValidYetContext { time, not_before } => format!(
            "the certificate of {peer} is not valid before {}, and the clock of this host says \
             {}: set the clock that is wrong",
            utc(not_before),
            utc(time)
        ),
        CertificateError::NotValidYet => format!(
            "the certificate of {peer} is not valid yet: set the clock of this host, or of the \
             host that made the certificate"
        ),
        CertificateError::NotValidForNameContext { expected, presented } => format!(
            "{peer} presents a certificate of {}, not of {}: check the address, or which folder \
             of certificates was copied there",
            list(presented),
            expected.to_str()
        ),
        CertificateError::NotValidForName => {
            format!("{peer} presents a certificate of another host: check the address")
        }
        CertificateError::Revoked => format!(
            "the certificate of {peer} has been revoked: make it a new one with `psched certs \
             host` if the host is to be trusted again"
        ),
        CertificateError::UnknownIssuer | CertificateError::BadSignature => format!(
            "the certificate of {peer} is signed by an authority that this host does not know: \
             copy the authorities.pem of the cluster to both hosts"
        ),
        other => format!("the certificate of {peer} is not accepted: {other}"),
    }
}

/// Why the other side refuses, as far as its alert says so.
fn told(peer: &str, alert: AlertDescription) -> String {
    let why = match alert {
        AlertDescription::CertificateExpired => {
            "its certificate has expired or is not valid yet by the clock there: renew it with \
             `psched certs renew`, or set the clock that is wrong"
        }
        // (The latter where another authority has the same name.)
        AlertDescription::UnknownCA | AlertDescription::DecryptError => {
            "it is signed by an authority that is not known there: copy the authorities.pem of \
             the cluster to both hosts"
        }
        AlertDescription::CertificateRevoked => {
            "its certificate has been revoked: ask the administrator of the cluster"
        }
        AlertDescription::CertificateRequired => {
            "it has presented no certificate: check the folder of certificates of this host"
        }
        AlertDescription::BadCertificate => {
            "it expects the certificate of another host: check the address that it has for this \
             host, and which folder of certificates was copied here"
        }
        AlertDescription::AccessDenied => {
            "the certificate of this host lacks a role that it needs there: check the address \
             that is configured there, or make another certificate with `psched certs host`"
        }
        AlertDescription::CertificateUnknown | AlertDescription::UnsupportedCertificate => {
            "its certificate is not accepted there: the log of the daemon there says why"
        }
        other => return format!("TLS with {peer} failed: the other side says {other:?}"),
    };
    format!("{peer} refuses this host: {why}")
}

fn list(names: &[String]) -> String {
    // Each as `DnsName("n1")`: the name alone is what a reader looks for.
    let name = |text: &String| text.split('"').nth(1).unwrap_or(text).to_owned();
    match names.iter().filter(|name| !name.contains("psched:")).map(name).collect::<Vec<_>>() {
        names if names.is_empty() => "no host".to_owned(),
        names => names.join(", "),
    }
}

/// A time in UTC, to the second.
fn utc(time: &UnixTime) -> String {
    date(i64::try_from(time.as_secs()).unwrap_or(i64::MAX))
}

/// Seconds since 1970 as a time in UTC.
pub fn date(seconds: i64) -> String {
    match Timestamp::from_second(seconds) {
        Ok(time) => time.to_string(),
        Err(_) => format!("{seconds} s since 1970"),
    }
}
