//! `psched certs`: the authority of a cluster, and the certificates of its hosts.

use crate::certs::contents::{authority, serial_text};
use crate::certs::faults::date;
use crate::certs::making::{
    DAYS, Workshop, certificate, read_certificates, read_revocations, revoked_serials,
};
use crate::certs::{
    AUTHORITIES, CertsError, FOLDER_DEFAULT, HOST, HostCertificate, REVOKED, Role, Roles,
};
use crate::console::stdout::write_out;
use crate::console::table::{Cell, Report, Table, terminal_columns};
use crate::os::host::hostname;
use clap::{Args, Subcommand};
use jiff::Timestamp;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Make and show certificates, by which the hosts of a cluster know each other
#[derive(Args, Debug)]
#[command(long_about = "Makes and shows certificates, by which the hosts of a cluster know each \
    other. psched-certs(8) has the steps from one host to many.")]
pub struct CertsArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Make the authority of a cluster, and the certificate of the host on which psched runs
    Init {
        /// Name of this host in psched.yaml [default: its host name]
        #[arg(long, value_name = "NAME", conflicts_with_all = ["next", "retire"])]
        name: Option<String>,
        /// Make another authority beside the one there is, for certificates made from now on
        #[arg(long, conflicts_with = "retire")]
        next: bool,
        /// End the older of two authorities, once no certificate is signed by it
        #[arg(long)]
        retire: bool,
        #[command(flatten)]
        folder: Folder,
    },
    /// Make the certificate of another host
    Host {
        /// Its name in psched.yaml
        #[arg(value_name = "NAME")]
        name: String,
        /// What it may do: node (offer nodes), login (speak for its users), control (run psched)
        #[arg(long, value_name = "ROLES", value_parser = roles)]
        role: Roles,
        #[command(flatten)]
        days: Days,
        #[command(flatten)]
        folder: Folder,
    },
    /// Make new certificates in place of those of these hosts
    Renew {
        /// The hosts [default: all of which two thirds of the time are over]
        #[arg(value_name = "NAME")]
        names: Vec<String>,
        /// All hosts
        #[arg(long, conflicts_with = "names")]
        all: bool,
        #[command(flatten)]
        days: Days,
        #[command(flatten)]
        folder: Folder,
    },
    /// Revoke the certificate of a host and those that it has replaced: no host accepts them any more
    Revoke {
        /// The host
        #[arg(value_name = "NAME")]
        name: String,
        #[command(flatten)]
        folder: Folder,
    },
    /// Show authorities and certificates, with their roles and how long they are valid
    Show {
        /// As JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        folder: Folder,
    },
}

#[derive(Args, Debug)]
struct Folder {
    /// The folder in which certificates are made
    #[arg(long, value_name = "DIR", default_value = FOLDER_DEFAULT)]
    folder: PathBuf,
}

#[derive(Args, Debug)]
struct Days {
    /// How many days the certificate is valid, 1 to 3650
    #[arg(long, value_name = "N", default_value_t = DAYS.0,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(DAYS.1)))]
    days: u32,
}

fn roles(text: &str) -> Result<Roles, String> {
    text.parse()
}

/// Runs it, and gives the status to exit with.
pub fn run(args: CertsArgs) -> ExitCode {
    match done(args.command).and_then(|text| write_out(&text).map_err(CertsError)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("psched certs: {error}");
            ExitCode::FAILURE
        }
    }
}

fn done(command: Command) -> Result<String, CertsError> {
    match command {
        Command::Init { next: true, folder, .. } => next(&folder.folder),
        Command::Init { retire: true, folder, .. } => {
            Workshop::new(&folder.folder).retire()?;
            Ok(format!(
                "one authority is accepted; copy {AUTHORITIES} from {} to {FOLDER_DEFAULT} of \
                 every host\n",
                folder.folder.display()
            ))
        }
        Command::Init { name, folder, .. } => init(&folder.folder, name),
        Command::Host { name, role, days, folder } => {
            let workshop = Workshop::new(&folder.folder);
            let old = certificate(&workshop.of_host(&name).join(HOST)).ok();
            // (Read first: if it fails nothing has been made.)
            let revoked = revoked(&folder.folder)?;
            let made = workshop.issue(&name, &role, days.days, false)?;
            Ok(copy_it(&name, &made)
                + &old.map_or_else(String::new, |old| replaced(&old, &revoked)))
        }
        Command::Renew { names, all, days, folder } => {
            renew(&folder.folder, &names, all, days.days)
        }
        Command::Revoke { name, folder } => revoke(&folder.folder, &name),
        Command::Show { json, folder } => show(&folder.folder, json),
    }
}

fn copy_it(name: &str, folder: &Path) -> String {
    format!("{}: copy its files to {FOLDER_DEFAULT} of {name}\n", folder.display())
}

/// A line about the certificate that a new one has replaced.
fn replaced(old: &HostCertificate, revoked: &BTreeSet<String>) -> String {
    let HostCertificate { name, roles, not_after, .. } = old;
    let until = date(*not_after);
    let then = match () {
        () if revoked.contains(&old.serial) => "was revoked before".to_owned(),
        () if Timestamp::now().as_second() > *not_after => "has expired".to_owned(),
        () => format!(
            "stays valid until {until}; `psched certs revoke {name}` revokes all certificates of {name}"
        ),
    };
    format!("the former certificate of {name}, with roles {roles}, {then}\n")
}

/// Serial numbers of certificates that are revoked.
fn revoked(folder: &Path) -> Result<BTreeSet<String>, CertsError> {
    let revoked = revoked_serials(&read_revocations(&folder.join(REVOKED))?);
    Ok(revoked.keys().map(|serial| serial_text(serial)).collect())
}

fn init(folder: &Path, name: Option<String>) -> Result<String, CertsError> {
    let name = name.unwrap_or_else(hostname);
    let workshop = Workshop::new(folder);
    workshop.init(&format!("psched authority of {name}, {}", today()))?;
    let all = Roles(Role::ALL.into());
    workshop.issue(&name, &all, DAYS.0, true)?;
    Ok(format!(
        "{}: an authority, and the certificate of this host ({name}, roles {all})\n\
         make the certificate of another host with `psched certs host NAME --role node`\n",
        folder.display()
    ))
}

fn next(folder: &Path) -> Result<String, CertsError> {
    Workshop::new(folder).authorities()?;
    let authorities = read_certificates(&folder.join(AUTHORITIES))?;
    let names = authorities.iter().map(|der| authority(der).map(|(name, _)| name));
    let names: Vec<String> = names.collect::<Result<_, _>>().map_err(CertsError)?;
    Workshop::new(folder).next(&next_name(&names, &today()))?;
    Ok(format!(
        "two authorities are accepted; copy {AUTHORITIES} from {} to {FOLDER_DEFAULT} of every \
         host, then run `psched certs renew --all`, copy the certificates, and end the older \
         authority with `psched certs init --retire`\n",
        folder.display()
    ))
}

/// The name of the authority that follows these, the newest of which is first. They are told apart
/// by their names, also where they are of the same day.
fn next_name(names: &[String], day: &str) -> String {
    let newest = names.first().map_or("", String::as_str);
    let cluster = newest.split(',').next().unwrap_or(newest);
    let named = |number: usize| match number {
        1 => format!("{cluster}, {day}"),
        _ => format!("{cluster}, {day} ({number})"),
    };
    let mut free = (1..=names.len() + 1).map(named).filter(|name| !names.contains(name));
    free.next().unwrap_or_else(|| named(names.len() + 2))
}

fn renew(folder: &Path, names: &[String], all: bool, days: u32) -> Result<String, CertsError> {
    let workshop = Workshop::new(folder);
    workshop.authorities()?;
    let mut folders: Vec<PathBuf> = Vec::new();
    if names.is_empty() {
        let hosts = workshop.hosts()?.into_iter().map(|name| workshop.of_host(&name));
        let here = folder.join(HOST).exists().then(|| folder.to_owned());
        for one in here.into_iter().chain(hosts) {
            let due = is_due(&certificate(&one.join(HOST))?, Timestamp::now().as_second());
            folders.extend((all || due).then_some(one));
        }
    }
    for name in names {
        let here = certificate(&folder.join(HOST)).is_ok_and(|own| own.name == *name);
        folders.push(if here { folder.to_owned() } else { workshop.known_host(name)? });
    }
    let mut told = String::new();
    for one in folders {
        let new = workshop.renew(&one, days)?;
        told += &match one == folder {
            true => format!("{}: renewed, until {}\n", new.name, date(new.not_after)),
            false => copy_it(&new.name, &one),
        };
    }
    if told.is_empty() {
        told = "no certificate is due yet; --all renews all of them\n".to_owned();
    }
    Ok(told)
}

/// Whether two thirds of its time are over.
fn is_due(certificate: &HostCertificate, now: i64) -> bool {
    let whole = certificate.not_after.saturating_sub(certificate.not_before);
    now.saturating_sub(certificate.not_before) >= whole / 3 * 2
}

fn revoke(folder: &Path, name: &str) -> Result<String, CertsError> {
    let before = revoked(folder)?;
    let revoked = Workshop::new(folder).revoke(name)?;
    let again = revoked.iter().all(|one| before.contains(&one.serial));
    let serials: Vec<&str> = revoked.iter().map(|one| one.serial.as_str()).collect();
    let are = if serials.len() == 1 { "certificate" } else { "certificates" };
    let is = match (again, serials.len()) {
        (false, 1) => "is revoked",
        (false, _) => "are revoked",
        (true, 1) => "was revoked already",
        (true, _) => "were revoked already",
    };
    Ok(format!(
        "{name}: the {are} {} {is}; psched ends its connections within seconds if this \
         is its folder; copy {REVOKED} from {} to {FOLDER_DEFAULT} of every other host\n",
        serials.join(", "),
        folder.display()
    ))
}

fn show(folder: &Path, json: bool) -> Result<String, CertsError> {
    let now = Timestamp::now().as_second();
    let columns = "<Kind <Name <Roles <Until <State <Authority";
    let mut table = Table::new("certificates", "", columns)
        .cuts(&[("Authority", 12), ("Name", 12)])
        .drops(&["Authority", "Kind"]);
    let workshop = Workshop::new(folder);
    workshop.authorities()?;
    for der in read_certificates(&folder.join(AUTHORITIES))? {
        let (name, until) = authority(&der).map_err(CertsError)?;
        let state = if now > until { "expired" } else { "valid" };
        table.rows.push(vec![
            Cell::text("authority"),
            Cell::text(name),
            Cell::None,
            Cell::text(date(until)),
            Cell::text(state),
            Cell::None,
        ]);
    }
    let revoked = revoked(folder)?;
    let own = folder.join(HOST).exists().then(|| ("this host", folder.to_owned()));
    let hosts = workshop.hosts()?.into_iter().map(|name| ("host", workshop.of_host(&name)));
    for (kind, folder) in own.into_iter().chain(hosts) {
        let host = certificate(&folder.join(HOST))?;
        let state = match () {
            () if revoked.contains(&host.serial) => "revoked",
            () if now > host.not_after => "expired",
            () if now < host.not_before => "not yet valid",
            () if is_due(&host, now) => "to be renewed",
            () => "valid",
        };
        table.rows.push(vec![
            Cell::text(kind),
            Cell::text(host.name),
            Cell::text(host.roles.to_string()),
            Cell::text(date(host.not_after)),
            Cell::text(state),
            Cell::text(host.authority),
        ]);
    }
    let report = Report { tables: vec![table], ..Report::default() };
    Ok(if json { report.json() } else { report.text_within(terminal_columns()) })
}

/// The date, by which authorities of a cluster are told apart.
fn today() -> String {
    jiff::Zoned::now().date().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certs::tests::Place;

    fn said(done: Result<String, CertsError>) -> String {
        done.unwrap_or_else(|error| error.0)
    }

    #[test]
    fn a_folder_without_an_authority_is_told_how_to_make_one() {
        let place = Place::new("none-yet");
        let folder = place.path();
        for done in [
            show(folder, false),
            next(folder),
            renew(folder, &["h7".to_owned()], false, 30),
            renew(folder, &[], true, 30),
            revoke(folder, "h8"),
        ] {
            let said = said(done);
            assert!(said.contains("no authority: make one with `psched certs init`"), "{said}");
        }
    }

    #[test]
    fn a_host_without_a_certificate_is_told_which_have_one() {
        let place = Place::cluster("unknown");
        let folder = place.path();
        let dir = folder.join("hosts").display().to_string();
        let none = format!("h7 has no certificate in {dir}: there is none yet; ");
        assert!(said(revoke(folder, "h7")).starts_with(&none), "{}", said(revoke(folder, "h7")));
        for name in ["h2", "h1"] {
            place.host(name, "node");
        }
        let two = format!("h7 has no certificate in {dir}: there are those of h1, h2");
        assert_eq!(said(renew(folder, &["h1".to_owned(), "h7".to_owned()], false, 30)), two);
        assert_eq!(said(revoke(folder, "h7")), two);
        assert!(said(revoke(folder, "../hosts/h1")).contains("has no certificate"));
    }

    #[test]
    fn what_is_done_a_second_time_is_told() {
        let place = Place::cluster("twice");
        let folder = place.path();
        let host = |roles: &str| {
            let role = roles.parse().expect("roles");
            let (days, folder) = (Days { days: 30 }, Folder { folder: folder.to_owned() });
            said(done(Command::Host { name: "h1".to_owned(), role, days, folder }))
        };
        assert_eq!(host("login").lines().count(), 1);
        let again = host("node");
        let line = again.lines().nth(1).expect("of the one before");
        let begins = "the former certificate of h1, with roles login, stays valid until 2";
        assert!(line.starts_with(begins), "{line}");
        assert!(
            line.ends_with("; `psched certs revoke h1` revokes all certificates of h1"),
            "{line}"
        );
        let first = said(revoke(folder, "h1"));
        assert!(first.contains(" are revoked; psched ends its connections"), "{first}");
        let second = said(revoke(folder, "h1"));
        assert!(second.contains(" were revoked already; psched"), "{second}");
        assert!(host("node").ends_with("with roles node, was revoked before\n"));
    }

    /// Nothing is made if the answer can't be given.
    #[test]
    fn revocations_are_read_before_a_certificate_is_made() {
        let place = Place::cluster("unreadable");
        let folder = place.path();
        std::fs::create_dir(folder.join(REVOKED)).expect("made");
        let (days, dir) = (Days { days: 30 }, Folder { folder: folder.to_owned() });
        let role = "node".parse().expect("roles");
        let said = said(done(Command::Host { name: "h1".to_owned(), role, days, folder: dir }));
        assert!(said.starts_with("can't read"), "{said}");
        assert!(!folder.join("hosts").join("h1").exists());
    }

    /// With its key the key of the authority is known to others.
    #[test]
    fn the_certificate_of_this_host_is_not_revoked() {
        let place = Place::cluster("own");
        let folder = place.path();
        let own = certificate(&folder.join(HOST)).expect("its own").name;
        let said = said(revoke(folder, &own));
        let begins = format!("{own} is the host of this folder");
        assert!(said.starts_with(&begins) && said.contains("--next"), "{said}");
        assert!(!folder.join(REVOKED).exists());
    }

    #[test]
    fn an_authority_of_the_same_day_has_another_name() {
        let next = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            next_name(&names, "2026-11-30")
        };
        assert_eq!(next(&["authority of h0, 2025-01-02"]), "authority of h0, 2026-11-30");
        let same = "authority of h0, 2026-11-30";
        assert_eq!(next(&[same]), "authority of h0, 2026-11-30 (2)");
        assert_eq!(
            next(&["authority of h0, 2026-11-30 (2)", same]),
            "authority of h0, 2026-11-30 (3)"
        );
        assert_eq!(next(&["authority of h0, 2026-11-30 (2)"]), same);
    }

    #[test]
    fn a_certificate_is_due_when_two_thirds_of_its_time_are_over() {
        let host = HostCertificate {
            name: "n1".into(),
            roles: Roles::default(),
            serial: "1".into(),
            authority: "a".into(),
            not_before: 100,
            not_after: 400,
        };
        assert_eq!([100, 299, 300, 500].map(|now| is_due(&host, now)), [false, false, true, true]);
    }
}
