//! Authorities, certificates and revocations: made, read and written.

use super::contents::{HostCertificate, Roles, authority};
use super::{
    AUTHORITIES, AUTHORITY_KEY, CertsError, HOST, HOST_KEY, HOSTS, PREVIOUS_KEY, REPLACED, REVOKED,
};
use crate::machine::is_host;
use crate::os::new_file::NewFile;
use crate::os::regular::open_regular;
use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    RevokedCertParams, SanType, SerialNumber,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use time::{Duration, OffsetDateTime};
use x509_parser::prelude::FromDer;
use x509_parser::revocation_list::CertificateRevocationList;

/// The largest file of certificates that is read, in bytes.
const FILE_MAX: u64 = 4 << 20;
/// Hosts that a message names.
const NAMED_MAX: usize = 16;
/// How long an authority is valid.
const AUTHORITY_DAYS: i64 = 3_650;
/// How long a certificate is valid where nothing else is said, and at most.
pub const DAYS: (u32, u32) = (365, 3_650);
/// A certificate is valid from so long before it was made: clocks differ.
const BACKDATED: Duration = Duration::hours(1);

/// Reads a file of certificates or keys.
///
/// # Errors
/// It can't be read, or is too large.
pub fn read(path: &Path) -> Result<Vec<u8>, CertsError> {
    let failed = |error: io::Error| {
        let cure = match error.kind() {
            io::ErrorKind::NotFound if path.ends_with(AUTHORITY_KEY) => {
                ": make certificates on the host where `psched certs init` has made it"
            }
            io::ErrorKind::NotFound => ": `psched certs` makes it",
            io::ErrorKind::PermissionDenied => ": it belongs to another user",
            _ => "",
        };
        CertsError::new(format!("can't read {}: {error}{cure}", path.display()))
    };
    let mut bytes = Vec::new();
    let file = open_regular(path).map_err(failed)?;
    file.take(FILE_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    match bytes.len() as u64 > FILE_MAX {
        true => Err(CertsError::new(format!("{} has more than {FILE_MAX} bytes", path.display()))),
        false => Ok(bytes),
    }
}

/// Reads the certificates in a file: at least one.
///
/// # Errors
/// It can't be read, or has none.
pub fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, CertsError> {
    let bytes = read(path)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match all {
        Ok(all) if !all.is_empty() => Ok(all),
        _ => Err(CertsError::new(format!(
            "{} has no certificate in PEM form: copy it again",
            path.display()
        ))),
    }
}

/// Reads the revocation lists in a file; none where it does not exist.
///
/// # Errors
/// It can't be read, or is something else.
pub fn read_revocations(
    path: &Path,
) -> Result<Vec<CertificateRevocationListDer<'static>>, CertsError> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let bytes = read(path)?;
    let wrong = |_| {
        CertsError::new(format!(
            "{} has no revocation list in PEM form: copy it again",
            path.display()
        ))
    };
    CertificateRevocationListDer::pem_slice_iter(&bytes).collect::<Result<_, _>>().map_err(wrong)
}

/// The serial numbers in revocation lists, each with the moment of its revocation.
pub fn revoked_serials(lists: &[CertificateRevocationListDer<'_>]) -> BTreeMap<Vec<u8>, i64> {
    let mut serials = BTreeMap::new();
    for list in lists {
        let Ok((_, list)) = CertificateRevocationList::from_der(list) else { continue };
        for revoked in list.iter_revoked_certificates() {
            serials.insert(revoked.raw_serial().to_vec(), revoked.revocation_date.timestamp());
        }
    }
    serials
}

/// Writes a file that only its owner may read, whole or not at all.
///
/// # Errors
/// Why not.
pub fn write(path: &Path, contents: &str) -> Result<(), CertsError> {
    let folder = crate::os::new_file::folder_of(path);
    let failed = |what: &str, error: &dyn std::fmt::Display| {
        CertsError::new(format!("{} can't be {what}: {error}", path.display()))
    };
    let new = NewFile::make(folder, path).map_err(|not| failed(not.what, &not.source))?;
    let file = fs::File::options().write(true).open(new.path());
    file.and_then(|mut file| file.write_all(contents.as_bytes()))
        .map_err(|error| failed("written", &error))?;
    new.put(path, true).map_err(|not| failed(not.what, &not.source))
}

/// The folder in which certificates are made.
#[derive(Clone, Debug)]
pub struct Workshop {
    folder: PathBuf,
}

/// A certificate with its private key, in PEM form.
#[derive(Clone)]
pub struct Made {
    /// The certificate.
    pub certificate: String,
    /// The key.
    pub key: String,
}

/// An authority that signs.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    name: String,
}

impl Workshop {
    /// The folder, which need not exist yet.
    pub fn new(folder: &Path) -> Workshop {
        Workshop { folder: folder.to_owned() }
    }

    /// The path of a file in it.
    fn at(&self, file: &str) -> PathBuf {
        self.folder.join(file)
    }

    /// The folder with the files of a host.
    pub fn of_host(&self, name: &str) -> PathBuf {
        self.at(HOSTS).join(name)
    }

    /// The hosts that have a folder, by name.
    ///
    /// # Errors
    /// The folder can't be read.
    pub fn hosts(&self) -> Result<Vec<String>, CertsError> {
        let hosts = self.at(HOSTS);
        let entries = match fs::read_dir(&hosts) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => {
                return Err(CertsError::new(format!("can't read {}: {error}", hosts.display())));
            }
        };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> =
            names.filter(|name| self.of_host(name).join(HOST).exists()).collect();
        names.sort();
        Ok(names)
    }

    /// The folder of a host that has a certificate here.
    ///
    /// # Errors
    /// There is no authority, or the host has no certificate; the error names hosts that have one.
    pub fn known_host(&self, name: &str) -> Result<PathBuf, CertsError> {
        self.authorities()?;
        let folder = self.of_host(name);
        // (Where that can't be known, reading it says why.)
        if is_host_name(name) && folder.join(HOST).try_exists().unwrap_or(true) {
            return Ok(folder);
        }
        let hosts = self.hosts()?;
        let shown = hosts[..hosts.len().min(NAMED_MAX)].join(", ");
        let there = match hosts.len() {
            0 => "there is none yet; `psched certs host NAME --role node` makes one".to_owned(),
            1 => format!("there is one of {shown}"),
            n if n > NAMED_MAX => {
                format!(
                    "there are those of {shown} and {} others (psched certs show)",
                    n - NAMED_MAX
                )
            }
            _ => format!("there are those of {shown}"),
        };
        let at = self.at(HOSTS);
        Err(CertsError::new(format!("{name} has no certificate in {}: {there}", at.display())))
    }

    /// Makes the first authority of a cluster.
    ///
    /// # Errors
    /// There is one, or it can't be written.
    pub fn init(&self, name: &str) -> Result<(), CertsError> {
        if self.at(AUTHORITY_KEY).exists() || self.at(AUTHORITIES).exists() {
            return Err(CertsError::new(format!(
                "{} has an authority already: use --next to replace it by a new one",
                self.folder.display()
            )));
        }
        make_folder(&self.folder)?;
        let made = new_authority(name)?;
        write(&self.at(AUTHORITY_KEY), &made.key)?;
        write(&self.at(AUTHORITIES), &made.certificate)
    }

    /// Makes the next authority, by which certificates are signed from now on. Both are accepted.
    ///
    /// # Errors
    /// There is none yet, or one too many, or it can't be written.
    pub fn next(&self, name: &str) -> Result<(), CertsError> {
        let old = self.authorities()?;
        if self.at(PREVIOUS_KEY).exists() {
            return Err(CertsError::new(
                "two authorities are accepted already: end the older one with `psched certs init \
                 --retire`",
            ));
        }
        let key = self.at(AUTHORITY_KEY);
        let old_key = text(read(&key)?)?;
        let made = new_authority(name)?;
        write(&self.at(PREVIOUS_KEY), &old_key)?;
        write(&self.at(AUTHORITIES), &format!("{}{old}", made.certificate))?;
        write(&key, &made.key)?;
        self.hand_out()
    }

    /// Accepts the newest authority only.
    ///
    /// # Errors
    /// There is only one; a host still has a certificate of the older one, which is named.
    pub fn retire(&self) -> Result<(), CertsError> {
        if !self.at(PREVIOUS_KEY).exists() {
            return Err(CertsError::new("only one authority is accepted: there is none to retire"));
        }
        let authorities = read_certificates(&self.at(AUTHORITIES))?;
        let newest = authority(&authorities[0]).map_err(CertsError::new)?.0;
        let own = self.at(HOST).exists().then(|| self.folder.clone());
        let folders = self.hosts()?.into_iter().map(|name| self.of_host(&name)).chain(own);
        for folder in folders {
            let certificate = certificate(&folder.join(HOST))?;
            if certificate.authority != newest {
                return Err(CertsError::new(format!(
                    "the certificate of {} is still signed by {}: renew it with `psched certs \
                     renew`, copy it to the host, and retire the authority then",
                    certificate.name, certificate.authority
                )));
            }
        }
        let pem = text(read(&self.at(AUTHORITIES))?)?;
        write(&self.at(AUTHORITIES), &first_of(&pem))?;
        let previous = self.at(PREVIOUS_KEY);
        fs::remove_file(&previous).map_err(|error| {
            CertsError::new(format!("can't remove {}: {error}", previous.display()))
        })?;
        self.hand_out()
    }

    /// Makes the certificate of a host; `here`: of the host on which certificates are made.
    /// Returned: the folder of the host.
    ///
    /// # Errors
    /// The name is none, there is no authority, or it can't be written.
    pub fn issue(
        &self,
        name: &str,
        roles: &Roles,
        days: u32,
        here: bool,
    ) -> Result<PathBuf, CertsError> {
        let now = OffsetDateTime::now_utc();
        let valid = (now - BACKDATED, now + Duration::days(i64::from(days)));
        self.issue_for(name, roles, valid, here)
    }

    /// As [`Workshop::issue`], for the time between two moments.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn issue_for(
        &self,
        name: &str,
        roles: &Roles,
        valid: (OffsetDateTime, OffsetDateTime),
        here: bool,
    ) -> Result<PathBuf, CertsError> {
        if !is_host_name(name) {
            return Err(CertsError::new(format!("{name:?} is not the name of a host")));
        }
        let made = self.newest()?.issue(name, roles, valid)?;
        let folder = if here { self.folder.clone() } else { self.of_host(name) };
        make_folder(&folder)?;
        self.keep_replaced(name, &folder.join(HOST))?;
        write(&folder.join(HOST_KEY), &made.key)?;
        write(&folder.join(HOST), &made.certificate)?;
        self.hand_out_to(&folder)?;
        Ok(folder)
    }

    /// Makes new certificates in place of those in these folders, with the same names and roles.
    ///
    /// # Errors
    /// One can't be read or written.
    pub fn renew(&self, folder: &Path, days: u32) -> Result<HostCertificate, CertsError> {
        let old = certificate(&folder.join(HOST))?;
        let here = folder == self.folder;
        self.issue(&old.name, &old.roles, days, here)?;
        certificate(&folder.join(HOST))
    }

    /// Keeps the certificate that is about to be replaced: it stays valid until it expires, and is revoked together
    /// with the one that replaces it.
    fn keep_replaced(&self, name: &str, host: &Path) -> Result<(), CertsError> {
        if !host.exists() {
            return Ok(());
        }
        let kept = self.replaced(name);
        let mut all = text(read(host)?)?;
        if kept.exists() {
            all += &text(read(&kept)?)?;
        }
        let now = OffsetDateTime::now_utc().unix_timestamp();
        let is_valid = |pem: &str| {
            let der = CertificateDer::from_pem_slice(pem.as_bytes());
            der.is_ok_and(|der| HostCertificate::read(&der).is_ok_and(|c| c.not_after >= now))
        };
        let mut valid = String::new();
        while !all.is_empty() {
            let first = first_of(&all);
            all.drain(..first.len());
            if is_valid(&first) {
                valid += &first;
            }
        }
        make_folder(&self.at(REPLACED))?;
        write(&kept, &valid)
    }

    /// Certificates of a host that were replaced and have not expired.
    fn replaced(&self, name: &str) -> PathBuf {
        self.at(REPLACED).join(format!("{name}.pem"))
    }

    /// Revokes the certificate of a host, and those that it has replaced and that have not expired. Returned: all of
    /// them, the newest first.
    ///
    /// # Errors
    /// There is none, or it is that of this host, or it can't be written.
    pub fn revoke(&self, name: &str) -> Result<Vec<HostCertificate>, CertsError> {
        self.refuse_own(name)?;
        let mut all = read_certificates(&self.known_host(name)?.join(HOST))?;
        all.truncate(1);
        let replaced = self.replaced(name);
        // (Empty where all have expired.)
        if fs::metadata(&replaced).is_ok_and(|file| file.len() > 0) {
            all.extend(read_certificates(&replaced)?);
        }
        let lists = read_revocations(&self.at(REVOKED))?;
        let mut serials = revoked_serials(&lists);
        let mut revoked = Vec::new();
        for der in &all {
            revoked.push(HostCertificate::read(der).map_err(CertsError::new)?);
            let (_, read) = x509_parser::certificate::X509Certificate::from_der(der)
                .map_err(|_| CertsError::new("it is not an X.509 certificate"))?;
            let serial = read.tbs_certificate.raw_serial().to_vec();
            serials.entry(serial).or_insert_with(|| OffsetDateTime::now_utc().unix_timestamp());
        }
        self.write_revocations(&serials)?;
        self.hand_out()?;
        Ok(revoked)
    }

    /// Refuses to revoke the certificate of the host on which certificates are made: no host would
    /// accept psched any more, and a user who has its key may have the key of the authority, which
    /// is in the same folder.
    fn refuse_own(&self, name: &str) -> Result<(), CertsError> {
        let own = certificate(&self.at(HOST)).is_ok_and(|own| own.name == name);
        if !own || self.of_host(name).join(HOST).exists() {
            return Ok(());
        }
        Err(CertsError::new(format!(
            "{name} is the host of this folder, and no host would accept its psched any more: if another user may have \
             read its key, that user may have the key of the authority as well; replace both with `psched certs init \
             --next` (psched-certs(8), REPLACE THE AUTHORITY)"
        )))
    }

    /// One list of each authority that has a key here. A serial number is random and long, so that
    /// it stands in the list of each.
    fn write_revocations(&self, serials: &BTreeMap<Vec<u8>, i64>) -> Result<(), CertsError> {
        let newest = self.newest()?;
        let mut lists = newest.revocations(serials)?;
        if self.at(PREVIOUS_KEY).exists() {
            let pem = self.authorities()?;
            let previous = self.authority(PREVIOUS_KEY, &pem[first_of(&pem).len()..])?;
            lists += &previous.revocations(serials)?;
        }
        write(&self.at(REVOKED), &lists)
    }

    /// Copies what each host needs to know of authorities into the folders of hosts.
    fn hand_out(&self) -> Result<(), CertsError> {
        self.hosts()?.iter().try_for_each(|name| self.hand_out_to(&self.of_host(name)))
    }

    fn hand_out_to(&self, folder: &Path) -> Result<(), CertsError> {
        if folder == self.folder {
            return Ok(());
        }
        write(&folder.join(AUTHORITIES), &self.authorities()?)?;
        match self.at(REVOKED).exists() {
            true => write(&folder.join(REVOKED), &text(read(&self.at(REVOKED))?)?),
            false => Ok(()),
        }
    }

    /// The certificates of the authorities, the newest first.
    ///
    /// # Errors
    /// There is none, or they can't be read.
    pub fn authorities(&self) -> Result<String, CertsError> {
        let path = self.at(AUTHORITIES);
        // (Where that can't be known, reading them says why.)
        match path.try_exists().unwrap_or(true) {
            true => text(read(&path)?),
            false => Err(CertsError::new(format!(
                "{} has no authority: make one with `psched certs init`, or name the folder with \
                 --folder",
                self.folder.display()
            ))),
        }
    }

    fn newest(&self) -> Result<Authority, CertsError> {
        self.authority(AUTHORITY_KEY, &self.authorities()?)
    }

    /// The authority whose certificate begins this text.
    fn authority(&self, key: &str, pem: &str) -> Result<Authority, CertsError> {
        let wrong = |file: &str, error: &dyn std::fmt::Display| {
            CertsError::new(format!("{} can't be used: {error}", self.at(file).display()))
        };
        let der = CertificateDer::from_pem_slice(pem.as_bytes())
            .map_err(|error| wrong(AUTHORITIES, &error))?;
        let name = authority(&der).map_err(|error| wrong(AUTHORITIES, &error))?.0;
        let key_pem = text(read(&self.at(key))?)?;
        let pair = KeyPair::from_pem(&key_pem).map_err(|error| wrong(key, &error))?;
        let issuer = Issuer::from_ca_cert_der(&der, pair).map_err(|error| wrong(key, &error))?;
        Ok(Authority { issuer, name })
    }
}

/// Reads the certificate of a host.
///
/// # Errors
/// It can't be read, or is none.
pub fn certificate(path: &Path) -> Result<HostCertificate, CertsError> {
    let all = read_certificates(path)?;
    HostCertificate::read(&all[0])
        .map_err(|why| CertsError::new(format!("{} can't be used: {why}", path.display())))
}

/// Whether a host can be called so. (It becomes the name of a folder.)
fn is_host_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !name.is_empty() && is_host(name) && name.chars().all(plain) && !name.starts_with('.')
}

/// Makes a folder that only its owner may look into, unless there is one. Those above it are made
/// as any others are: psched.yaml lies beside, and all users read it.
fn make_folder(folder: &Path) -> Result<(), CertsError> {
    use std::os::unix::fs::DirBuilderExt;
    let above = folder.parent().map_or(Ok(()), fs::create_dir_all);
    let own = || fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    above.and_then(|()| own()).map_err(|error| {
        CertsError::new(format!("can't make the folder {}: {error}", folder.display()))
    })
}

fn new_authority(name: &str) -> Result<Made, CertsError> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.not_before = OffsetDateTime::now_utc() - BACKDATED;
    params.not_after = OffsetDateTime::now_utc() + Duration::days(AUTHORITY_DAYS);
    let key = KeyPair::generate().map_err(failed)?;
    let certificate = params.self_signed(&key).map_err(failed)?;
    Ok(Made { certificate: certificate.pem(), key: key.serialize_pem() })
}

impl Authority {
    fn issue(
        &self,
        name: &str,
        roles: &Roles,
        valid: (OffsetDateTime, OffsetDateTime),
    ) -> Result<Made, CertsError> {
        let mut params = CertificateParams::new(vec![name.to_owned()]).map_err(failed)?;
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        for role in &roles.0 {
            let uri = format!("{}{}", super::contents::ROLE_PREFIX, role.name());
            let uri = Ia5String::try_from(uri).map_err(failed)?;
            params.subject_alt_names.push(SanType::URI(uri));
        }
        params.serial_number = Some(random_serial()?);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        (params.not_before, params.not_after) = valid;
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(failed)?;
        Ok(Made { certificate: certificate.pem(), key: key.serialize_pem() })
    }

    fn revocations(&self, serials: &BTreeMap<Vec<u8>, i64>) -> Result<String, CertsError> {
        let now = OffsetDateTime::now_utc();
        let revoked = |(serial, at): (&Vec<u8>, &i64)| RevokedCertParams {
            serial_number: SerialNumber::from_slice(serial),
            revocation_time: OffsetDateTime::from_unix_timestamp(*at).unwrap_or(now),
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: now - BACKDATED,
            // Lists are replaced when something is revoked, not by the calendar.
            next_update: now + Duration::days(AUTHORITY_DAYS),
            crl_number: SerialNumber::from(now.unix_timestamp().unsigned_abs()),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = params.signed_by(&self.issuer).map_err(failed)?;
        list.pem().map_err(|error| CertsError::new(format!("{}: {error}", self.name)))
    }
}

/// A serial number that no other certificate has: 16 random bytes, of which the first bit is 0, as
/// it would be a sign.
fn random_serial() -> Result<SerialNumber, CertsError> {
    let mut bytes = [0; 16];
    match rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty()) {
        Ok(16) => {
            bytes[0] = bytes[0] & 0x3f | 0x40;
            Ok(SerialNumber::from_slice(&bytes))
        }
        _ => Err(CertsError::new("the kernel gives no random numbers: try again later")),
    }
}

/// The first certificate of several in PEM form.
fn first_of(pem: &str) -> String {
    const END: &str = "-----END CERTIFICATE-----";
    let end = pem.find(END).map_or(pem.len(), |at| at + END.len());
    let rest = pem[end..].find(|c| c != '\r' && c != '\n').unwrap_or(pem.len() - end);
    pem[..end + rest].to_owned()
}

fn text(bytes: Vec<u8>) -> Result<String, CertsError> {
    String::from_utf8(bytes).map_err(|_| CertsError::new("the file is not in PEM form"))
}

fn failed(error: impl std::fmt::Display) -> CertsError {
    CertsError::new(format!("the certificate can't be made: {error}"))
}
