use super::making::{Workshop, certificate};
use super::*;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A folder of its own, removed at the end.
pub struct Place(PathBuf);

impl Place {
    pub fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("psched-certs-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).expect("a folder");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).expect("ours");
        Place(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn workshop(&self) -> Workshop {
        Workshop::new(&self.0)
    }

    /// A cluster with this host, which has all roles, as head.
    pub fn cluster(name: &str) -> Place {
        let place = Place::new(name);
        place.workshop().init("authority A, 2026").expect("made");
        place.workshop().issue("head", &Roles(Role::ALL.into()), 30, true).expect("made");
        place
    }

    pub fn host(&self, name: &str, roles: &str) -> PathBuf {
        self.workshop().issue(name, &roles.parse().expect("roles"), 30, false).expect("made")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn roles_are_written_as_they_are_read() {
    for text in ["node", "login,node", "control,login,node"] {
        assert_eq!(text.parse::<Roles>().expect("roles").to_string(), text);
    }
    assert_eq!("node,login".parse::<Roles>().expect("roles").to_string(), "login,node");
    let wrong = "nodes".parse::<Roles>().expect_err("no role");
    assert_eq!(wrong, "\"nodes\" is not a role: give control, login or node");
}

#[test]
fn a_certificate_names_its_host_and_roles() {
    let place = Place::cluster("names");
    let folder = place.host("n1", "node");
    let read = certificate(&folder.join(HOST)).expect("readable");
    assert_eq!((&*read.name, &*read.roles.to_string()), ("n1", "node"));
    assert_eq!(read.authority, "authority A, 2026");
    let days = (read.not_after - read.not_before) / 86_400;
    assert_eq!(days, 30);
    let own = certificate(&place.path().join(HOST)).expect("readable");
    assert_ne!(own.serial, read.serial);
    for file in [HOST_KEY, HOST, AUTHORITIES] {
        let mode = fs::metadata(folder.join(file)).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    assert!(!folder.join(AUTHORITY_KEY).exists());
}

#[test]
fn a_cluster_has_one_authority_unless_another_is_asked_for() {
    let place = Place::cluster("again");
    let before = fs::read(place.path().join(AUTHORITY_KEY)).expect("there");
    let again = place.workshop().init("another").expect_err("there is one");
    assert!(again.0.contains("has an authority already: use --next"), "{again}");
    assert_eq!(fs::read(place.path().join(AUTHORITY_KEY)).expect("there"), before);
    let retire = place.workshop().retire().expect_err("there is only one");
    assert!(retire.0.contains("only one authority is accepted"), "{retire}");
}

#[test]
fn names_that_are_no_hosts_make_no_folders() {
    let place = Place::cluster("evil");
    for name in ["", "../../etc", "a b", "a/b", ".."] {
        let roles = Roles([Role::Node].into());
        let wrong = place.workshop().issue(name, &roles, 30, false).expect_err("no name");
        assert!(wrong.0.ends_with("is not the name of a host"), "{wrong}");
    }
    assert!(!place.path().join(HOSTS).exists());
}

#[test]
fn an_authority_is_retired_only_when_no_host_needs_it() {
    let place = Place::cluster("roll");
    let folder = place.host("n1", "node");
    place.workshop().next("authority B, 2027").expect("made");
    let both = fs::read_to_string(folder.join(AUTHORITIES)).expect("handed out");
    assert_eq!(both.matches("BEGIN CERTIFICATE").count(), 2);
    let third = place.workshop().next("authority C").expect_err("two are enough");
    assert!(third.0.contains("two authorities"), "{third}");
    let early = place.workshop().retire().expect_err("n1 has an old one");
    assert!(early.0.contains("the certificate of n1 is still signed by authority A"), "{early}");
    let old = certificate(&folder.join(HOST)).expect("readable");
    let new = place.workshop().renew(&folder, 60).expect("renewed");
    assert_eq!((&new.name, &new.roles), (&old.name, &old.roles));
    assert_eq!(new.authority, "authority B, 2027");
    place.workshop().renew(place.path(), 60).expect("renewed");
    place.workshop().retire().expect("retired");
    let one = fs::read_to_string(folder.join(AUTHORITIES)).expect("handed out");
    assert_eq!(one.matches("BEGIN CERTIFICATE").count(), 1);
    assert!(both.starts_with(&one));
    Keyring::open(&folder).expect("n1 is fine");
}

#[test]
fn a_key_that_others_may_read_is_not_used() {
    let place = Place::cluster("open");
    let key = place.path().join(HOST_KEY);
    fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).expect("ours");
    let wrong = Keyring::open(place.path()).expect_err("open");
    assert!(wrong.0.contains("other users may read it"), "{wrong}");
}

#[test]
fn what_is_wrong_with_a_folder_is_said_with_the_file() {
    let place = Place::cluster("wrong");
    let n1 = place.host("n1", "node");
    let n2 = place.host("n2", "node");
    fs::copy(n2.join(HOST_KEY), n1.join(HOST_KEY)).expect("copied");
    let wrong = Keyring::open(&n1).expect_err("another's key").0;
    assert!(wrong.contains("host.key can't be used: it is not the key of host.pem"), "{wrong}");
    fs::write(n2.join(AUTHORITIES), "nothing").expect("written");
    let wrong = Keyring::open(&n2).expect_err("no authority").0;
    assert!(wrong.contains("authorities.pem has no certificate in PEM form"), "{wrong}");
    fs::remove_file(n2.join(HOST)).expect("there");
    fs::copy(n1.join(AUTHORITIES), n2.join(AUTHORITIES)).expect("copied");
    let wrong = Keyring::open(&n2).expect_err("no certificate").0;
    assert!(wrong.contains("can't read") && wrong.contains("host.pem"), "{wrong}");
}

/// Files that are copied one by one are for a moment of two hosts, or half there.
#[test]
fn a_keyring_keeps_what_works_until_the_new_works() {
    let place = Place::cluster("new");
    let folder = place.host("n1", "node");
    let keyring = Keyring::open(&folder).expect("good");
    let old = keyring.keys().own;
    fs::write(folder.join(HOST), "-----BEGIN").expect("written");
    keyring.refresh();
    assert_eq!(keyring.keys().own, old);
    place.host("n1", "login");
    keyring.refresh();
    assert_eq!(keyring.keys().own.roles.to_string(), "login");
}

#[test]
fn a_revoked_certificate_is_on_the_list_of_every_host() {
    let place = Place::cluster("revoked");
    let (n1, n2) = (place.host("n1", "node"), place.host("n2", "node"));
    let keyring = Keyring::open(&n2).expect("good");
    let revocations = keyring.revocations();
    let revoked = place.workshop().revoke("n1").expect("revoked").remove(0);
    assert_eq!(revoked.serial, certificate(&n1.join(HOST)).expect("readable").serial);
    keyring.refresh();
    assert!(revocations.borrow().contains(&revoked.serial));
    // The list outlives the authority.
    place.workshop().next("authority B").expect("made");
    let second = place.workshop().revoke("n2").expect("revoked").remove(0);
    keyring.refresh();
    let now = revocations.borrow().clone();
    assert!(now.contains(&revoked.serial) && now.contains(&second.serial), "{now:?}");
    // A host that gets another certificate is as good as new.
    place.host("n1", "node");
    let new = Keyring::open(&n1).expect("good").keys();
    assert!(!new.revoked.contains(&new.own.serial));
}

/// Whoever has a copy of a certificate that was replaced is out with it.
#[test]
fn a_host_is_revoked_with_all_certificates_that_it_has_had() {
    let place = Place::cluster("replaced");
    let n1 = place.host("n1", "node");
    let serial = || certificate(&n1.join(HOST)).expect("readable").serial;
    let mut had = vec![serial()];
    for _ in 0..2 {
        place.workshop().renew(&n1, 30).expect("renewed");
        had.insert(0, serial());
    }
    let revoked = place.workshop().revoke("n1").expect("revoked");
    let revoked: Vec<String> = revoked.into_iter().map(|one| one.serial).collect();
    assert_eq!(revoked, had);
    let keys = Keyring::open(&n1).expect("good").keys();
    assert!(had.iter().all(|serial| keys.revoked.contains(serial)));
    // What it gets then is not revoked; nor is another host's that is renewed.
    let n2 = place.host("n2", "node");
    for folder in [&n1, &n2] {
        place.workshop().renew(folder, 30).expect("renewed");
        let new = Keyring::open(folder).expect("good").keys();
        assert!(!new.revoked.contains(&new.own.serial));
    }
}
