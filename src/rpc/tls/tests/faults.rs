//! Every fault of a certificate, by a real handshake: the sentence of the side that calls, and that
//! in the log of the side that is called.

use super::*;
use crate::certs::keyring::Keys;
use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, ServerConfig};
use std::io::Write;
use time::{Duration as Days, OffsetDateTime};

/// What is logged on this thread, from now on.
struct Log {
    text: Arc<Mutex<Vec<u8>>>,
    _own: tracing::subscriber::DefaultGuard,
}

#[derive(Clone)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("not poisoned").extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn begin() -> Log {
        let text = Arc::new(Mutex::new(Vec::new()));
        let kept = Kept(Arc::clone(&text));
        let fmt = tracing_subscriber::fmt().with_ansi(false).with_writer(move || kept.clone());
        Log { text, _own: tracing::subscriber::set_default(fmt.finish()) }
    }

    /// Waits until one of the lines has all of these texts, and empties the log.
    async fn says(&self, fault: &str, texts: &[&str]) {
        let text = || String::from_utf8_lossy(&self.text.lock().expect("kept")).into_owned();
        let has_all = |line: &str| texts.iter().all(|text| line.contains(text));
        let said = async {
            while !text().lines().any(has_all) {
                tokio::task::yield_now().await;
            }
        };
        let said = timeout(HANDSHAKE, said).await;
        assert!(said.is_ok(), "{fault}: the log does not say {texts:?}, but {}", text());
        self.text.lock().expect("kept").clear();
    }
}

/// A server and a client whose keys may be other ones than those in their folders, and what both
/// say.
struct Both<'a> {
    fault: &'a str,
    /// The folders of the server and of the client.
    folders: (&'a Path, &'a Path),
    expect: Expect,
}

impl Both<'_> {
    /// The one that calls hears the first texts, and the other one logs the second.
    async fn say(&self, alter: impl FnOnce(&mut Keys, &mut Keys), here: &[&str], there: &[&str]) {
        let log = Log::begin();
        let (address, server, _served) = serve(self.folders.0).await;
        let client = Arc::new(Keyring::open(self.folders.1).expect("good"));
        let (mut of_server, mut of_client) = (server.keys(), client.keys());
        alter(&mut of_server, &mut of_client);
        server.alter(|keys| *keys = of_server);
        client.alter(|keys| *keys = of_client);
        let said = call_with(&address, &client, self.expect.clone()).await;
        let said = said.expect_err(self.fault);
        let missing = here.iter().find(|text| !said.contains(**text));
        assert!(missing.is_none(), "{}: {missing:?} not in {said}", self.fault);
        log.says(self.fault, there).await;
    }
}

fn nothing(_: &mut Keys, _: &mut Keys) {}

/// What the host that is refused hears, or logs, of its own certificate's time.
const BY_THE_CLOCK_THERE: &str = "refuses this host: its certificate has expired or is not \
     valid yet by the clock there: renew \
     it with `psched certs renew`, or set the clock that is wrong";
const NOT_KNOWN_THERE: &str = "refuses this host: it is signed by an authority that is not \
     known there: copy the \
     authorities.pem of the cluster to both hosts";

/// A host of this name whose certificate is valid between two days, counted from now.
fn host_between(place: &Place, name: &str, days: (i64, i64)) -> std::path::PathBuf {
    let now = OffsetDateTime::now_utc();
    let valid = (now + Days::days(days.0), now + Days::days(days.1));
    let roles = "control,login,node".parse().expect("roles");
    place.workshop().issue_for(name, &roles, valid, false).expect("made")
}

#[tokio::test]
async fn a_certificate_out_of_its_time() {
    let place = Place::cluster("fault-time");
    let good = place.host("n1", "node");
    let expired = host_between(&place, "n2", (-20, -10));
    let early = host_between(&place, "n3", (10, 20));
    let head = place.path();
    let cases =
        [("expired", &expired, "expired at 2"), ("not yet valid", &early, "is not valid before 2")];
    for (fault, folder, refused) in cases {
        let this_clock = ", and the clock of this host says 2";
        let both = Both { fault, folders: (head, folder), expect: control() };
        let log = ["a connection is refused: the certificate of 127.0.0.1:", refused, this_clock];
        both.say(nothing, &["the host head", BY_THE_CLOCK_THERE], &log).await;
        let fault = &format!("of the server: {fault}");
        let both = Both { fault, folders: (folder, &good), expect: control() };
        let here = ["the certificate of 127.0.0.1:", refused, this_clock];
        both.say(nothing, &here, &["127.0.0.1:", BY_THE_CLOCK_THERE]).await;
    }
}

/// A clock that is wrong by so many days.
#[derive(Debug)]
struct Off(i64);

impl TimeProvider for Off {
    fn current_time(&self) -> Option<UnixTime> {
        let off = OffsetDateTime::now_utc() + Days::days(self.0);
        let seconds = u64::try_from(off.unix_timestamp()).ok()?;
        Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
    }
}

/// The certificates are good. By the clock of one host they are, and by that of the other one they
/// are not.
#[tokio::test]
async fn a_clock_that_is_wrong() {
    let place = Place::cluster("fault-clock");
    let n1 = place.host("n1", "node");
    let of_server = |days| {
        move |server: &mut Keys, _: &mut Keys| {
            let mut config = ServerConfig::clone(&server.server);
            config.time_provider = Arc::new(Off(days));
            server.server = Arc::new(config);
        }
    };
    let of_client = |days| {
        move |_: &mut Keys, client: &mut Keys| {
            let mut config = ClientConfig::clone(&client.client);
            config.time_provider = Arc::new(Off(days));
            client.client = Arc::new(config);
        }
    };
    for (fault, days, refused, cure) in [
        ("late", 300, "expired at 2", ", or set the clock"),
        ("early", -300, "is not valid before 2", ": set the clock that is wrong"),
    ] {
        let refuses = [refused, ", and the clock of this host says 2", cure];
        let both = Both { fault, folders: (place.path(), &n1), expect: control() };
        let told = ["the host head", BY_THE_CLOCK_THERE];
        both.say(of_server(days), &told, &refuses).await;
        let told = ["a connection is refused: 127.0.0.1:", BY_THE_CLOCK_THERE];
        both.say(of_client(days), &refuses, &told).await;
    }
}

#[tokio::test]
async fn another_name_and_another_role_than_expected() {
    let place = Place::cluster("fault-name");
    let (n1, n2) = (place.host("n1", "node,login"), place.host("n2", "login"));
    let named = Expect { name: Some("n7".into()), role: Role::Control };
    let fault = "another name";
    let both = Both { fault, folders: (place.path(), &n1), expect: named };
    let here = ["presents a certificate of head, not of n7: check the address"];
    let there = "refuses this host: it expects the certificate of another host: check the address \
                 that it has for this host, and which folder of certificates was copied here";
    both.say(nothing, &here, &["a connection is refused: 127.0.0.1:", there]).await;
    let fault = "no psched";
    let both = Both { fault, folders: (&n1, &n2), expect: control() };
    let here = "has not the role control: the roles of its certificate are login,node; check";
    let there = "refuses this host: the certificate of this host lacks a role that it needs there";
    both.say(nothing, &["the host n1 at 127.0.0.1:", here], &[there]).await;
    let fault = "no node";
    let both = Both { fault, folders: (place.path(), &n2), expect: control() };
    let why = "the host n2 may not offer nodes: the roles of its certificate are login, and it \
               needs node; make it another one with `psched certs host n2 --role login,node`";
    both.say(nothing, &[why], &["a request is refused: ", why]).await;
}

#[tokio::test]
async fn another_authority() {
    let (ours, theirs) = (Place::cluster("fault-ours"), Place::cluster("fault-theirs"));
    let stranger = theirs.host("n1", "node");
    let not_known = "is signed by an authority that this host does not know: copy the \
                     authorities.pem of the cluster to both hosts";
    let both = |fault| Both { fault, folders: (ours.path(), &stranger), expect: control() };
    let told = ["a connection is refused: 127.0.0.1:", NOT_KNOWN_THERE];
    both("neither knows the other").say(nothing, &[not_known], &told).await;
    fs::copy(ours.path().join(AUTHORITIES), stranger.join(AUTHORITIES)).expect("copied");
    let log = ["a connection is refused: the certificate of 127.0.0.1:", not_known];
    both("a stranger").say(nothing, &["the host head", NOT_KNOWN_THERE], &log).await;
}

#[tokio::test]
async fn no_certificate() {
    let place = Place::cluster("fault-none");
    let n1 = place.host("n1", "node");
    let without = |_: &mut Keys, client: &mut Keys| {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls13 = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("TLS 1.3");
        let mut config = tls13
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(&client.any_host))
            .with_no_client_auth();
        config.alpn_protocols = client.client.alpn_protocols.clone();
        client.client = Arc::new(config);
    };
    let here = "the host head refuses this host: it has presented no certificate: check the folder \
                of certificates of this host";
    let there = "presents no certificate: give its apinit a folder of certificates that `psched \
                 certs host` has made";
    let fault = "no certificate";
    let both = Both { fault, folders: (place.path(), &n1), expect: control() };
    both.say(without, &[here], &["a connection is refused: 127.0.0.1:", there]).await;
}

#[tokio::test]
async fn a_revoked_certificate() {
    let place = Place::cluster("fault-revoked");
    let n1 = place.host("n1", "node");
    place.workshop().revoke("n1").expect("revoked");
    let fault = "revoked";
    let both = Both { fault, folders: (place.path(), &n1), expect: control() };
    let here = "the host head refuses this host: its certificate has been revoked";
    let log = ["a connection is refused: the certificate of 127.0.0.1:", "has been revoked"];
    both.say(nothing, &[here], &log).await;
}
