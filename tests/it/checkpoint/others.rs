//! What an application of a user's is not given back by root's CRIU, and what of it is not taken
//! out.
//!
//! Root of a container may not dump processes of others. So what is restored here is an application
//! of root's, in whose images all processes are the user's: only root can write them so.

use super::rig::{Back, Images, Taken, images};
use super::{END_IT, ONE, rig};
use crate::support::criu::criu;
use crate::support::hand::Hand;
use crate::support::users::{ANNA, Bins};
use crate::support::*;
use psched::node::checkpoint::criu::Criu;
use psched::node::checkpoint::{Late, Owner, dump_application};
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

fn anna() -> Owner {
    Owner { uid: ANNA.uid, gid: ANNA.gid, groups: ANNA.groups.to_vec() }
}

/// A number as protobuf writes it.
fn varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn read_varint(bytes: &[u8], at: &mut usize) -> u64 {
    let mut number = 0;
    for shift in (0..).step_by(7) {
        let byte = bytes[*at];
        *at += 1;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    number
}

/// The message with another message in the place of the one to which these fields lead.
fn replaced(message: &[u8], fields: &[u64], with: &[u8]) -> Vec<u8> {
    let Some((field, rest)) = fields.split_first() else { return with.to_vec() };
    let (mut at, mut out) = (0, Vec::new());
    while at < message.len() {
        let began = at;
        let key = read_varint(message, &mut at);
        match key & 7 {
            0 => drop(read_varint(message, &mut at)),
            1 => at += 8,
            2 => {
                let length = read_varint(message, &mut at) as usize;
                let inner = &message[at..at + length];
                at += length;
                if key >> 3 == *field {
                    let inner = replaced(inner, rest, with);
                    varint(key, &mut out);
                    varint(inner.len() as u64, &mut out);
                    out.extend_from_slice(&inner);
                    continue;
                }
            }
            5 => at += 4,
            other => panic!("wire type {other}"),
        }
        out.extend_from_slice(&message[began..at]);
    }
    out
}

/// Makes every process of the images this user's.
fn forge(images: &Path, uid: u32) {
    let mut creds = Vec::new();
    for field in 1..=8 {
        varint(field << 3, &mut creds);
        varint(if field % 2 == 1 { uid } else { ANNA.gid }.into(), &mut creds);
    }
    // No capabilities, securebits and groups.
    for (field, value) in [(9, 0), (9, 0), (10, 0), (10, 0), (11, 0), (11, 0), (13, 0)] {
        varint(field << 3, &mut creds);
        varint(value, &mut creds);
    }
    for entry in fs::read_dir(images).expect("ours").flatten() {
        if !entry.file_name().to_string_lossy().starts_with("core-") {
            continue;
        }
        let bytes = fs::read(entry.path()).expect("ours");
        // Two numbers, and one message behind its length.
        let core = replaced(&bytes[12..], &[5, 10], &creds);
        let length = u32::try_from(core.len()).expect("short").to_le_bytes();
        fs::write(entry.path(), [&bytes[..8], &length, &core].concat()).expect("ours");
    }
}

/// A program of root's that has this open, and listens here, if it does; it is taken off, and is
/// hers from now on.
struct Hers {
    hand: Hand,
    folder: PathBuf,
    images: Images,
    taken: Taken,
}

impl Hers {
    fn new(opens: &str, listens: &str) -> Hers {
        let mut hand = Hand::start(ONE, &[("0", None)]);
        hand.open_to_all();
        let folder = hand.folder().join("hers");
        fs::create_dir(&folder).expect("made");
        own(&folder, 0o755);
        let script = format!(
            "import os, socket, time\n\
             os.chdir('{0}'); os.umask(0o77)\n\
             open('a', 'w').write('1234567\\n'); os.mkfifo('fifo'); os.mkdir('d')\n\
             held = os.open('{1}', os.O_RDWR) if '{1}' else None\n\
             s = socket.socket(socket.AF_UNIX)\n\
             if '{2}': s.bind('{2}'); s.listen(); os.chown('{2}', {3}, {4})\n\
             os.chdir('/'); open('{0}/ready', 'w'); time.sleep(1000.274)",
            folder.display(),
            if opens.is_empty() { String::new() } else { format!("{}/{opens}", folder.display()) },
            if listens.is_empty() {
                String::new()
            } else {
                format!("{}/{listens}", folder.display())
            },
            ANNA.uid,
            ANNA.gid,
        );
        let mut command = hand.command("aprun", ["-q", "python3", "-B", "-c", &script]);
        // One that she can execute.
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin");
        let aprun = Running::start(command.current_dir("/"));
        let apid = hand.wait_for("running", 1)[0];
        let mut taken = Taken::of(&hand.folder().join(format!("apps-0/{apid}.1")), None);
        hand.kill_apinit(0);
        eventually(BOUND, "it sleeps", || folder.join("ready").exists());
        let images = images();
        let criu = criu("checkpoint::others").expect("asked before");
        dump_application(&criu, &taken.running(), images.as_fd(), END_IT).expect("dumped");
        aprun.signal(9);
        aprun.wait(BOUND);
        for name in listing(&folder) {
            let path = folder.join(name);
            let _ = std::os::unix::fs::lchown(&path, Some(ANNA.uid), Some(ANNA.gid));
        }
        taken.belongs_to(anna());
        Hers { hand, folder, images, taken }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Why it does not come back, where something is done before CRIU opens anything, though it has
    /// been looked at, and when CRIU has opened all.
    #[track_caller]
    fn refused(&self, first: impl Fn(), then: Option<&dyn Fn()>) -> String {
        let criu = criu("checkpoint::others").expect("asked before");
        let mut late = |what| {
            match what {
                Late::Bring => {
                    eventually(BOUND, "CRIU waits", || self.images.waited_for());
                    first();
                }
                Late::Compare => {
                    if let Some(then) = then {
                        self.taken.wait_until_there();
                        then();
                    }
                }
            }
            Ok(())
        };
        let refused = Back::restore_with(&criu, &self.images, &self.taken, &mut late);
        refused.map(drop).expect_err("it is given back").to_string()
    }

    /// It is given back.
    #[track_caller]
    fn comes_back(&self, criu: &Criu) {
        drop(Back::try_restore(criu, &self.images, &self.taken).expect("all is hers"));
    }

    /// The same where nothing is done meanwhile.
    #[track_caller]
    fn refused_at_once(&self) -> String {
        let criu = criu("checkpoint::others").expect("asked before");
        let refused = Back::try_restore(&criu, &self.images, &self.taken);
        refused.map(drop).expect_err("it is given back").to_string()
    }
}

fn own(path: &Path, mode: u32) {
    chown(path, Some(ANNA.uid), Some(ANNA.gid)).expect("root may");
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("ours");
}

fn secret(path: &Path) {
    fs::write(path, "not hers").expect("written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("ours");
}

#[test]
fn what_is_not_hers_is_not_given_back() {
    let test = "checkpoint::others::what_is_not_hers_is_not_given_back";
    let Some(criu) = criu(test) else { return };
    let hers = Hers::new("a", "");
    // Processes of root's in images of hers.
    let why = hers.refused_at_once();
    assert!(why.contains("has the rights of user 0"), "{why}");
    forge(hers.images.path(), ANNA.uid + 1);
    let why = hers.refused_at_once();
    assert!(why.contains(&format!("the rights of user {}", ANNA.uid + 1)), "{why}");
    forge(hers.images.path(), ANNA.uid);
    // All as it was: it is there.
    hers.comes_back(&criu);

    // Something else in the place of her file, before anybody looks.
    let (file, aside) = (hers.at("a"), hers.at("aside"));
    fs::rename(&file, &aside).expect("moved");
    secret(&file);
    let why = hers.refused_at_once();
    assert!(why.contains("may not open") && why.contains("hers/a"), "{why}");
    fs::rename(&file, hers.at("secret")).expect("moved");
    symlink(hers.at("secret"), &file).expect("linked");
    let why = hers.refused_at_once();
    assert!(why.contains("symbolic link"), "{why}");
    fs::remove_file(&file).expect("removed");
    for (kind, device) in [
        (rustix::fs::FileType::Fifo, 0),
        (rustix::fs::FileType::CharacterDevice, rustix::fs::makedev(1, 8)),
    ] {
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &file, kind, mode, device).expect("made");
        let why = hers.refused_at_once();
        assert!(why.contains("may not open"), "{why}");
        fs::remove_file(&file).expect("removed");
    }

    // When that has been looked at, and before CRIU opens it.
    fs::rename(&aside, &file).expect("back");
    let swap = |from: &str| {
        fs::rename(&file, &aside).expect("moved");
        fs::rename(hers.at(from), &file).expect("moved");
    };
    let back = |to: &str| {
        fs::rename(&file, hers.at(to)).expect("moved");
        fs::rename(&aside, &file).expect("moved");
    };
    let why = hers.refused(|| swap("secret"), None);
    assert!(why.contains("may not open"), "{why}");
    back("secret");
    // And hers is there again when that is looked at.
    let why = hers.refused(|| swap("secret"), Some(&|| back("secret")));
    assert!(why.contains("may not open"), "{why}");
    // Or what CRIU has opened has no name any more.
    let remove = || {
        fs::remove_file(&file).expect("her folder");
        fs::rename(&aside, &file).expect("moved");
    };
    let why = hers.refused(|| swap("secret"), Some(&remove));
    assert!(why.contains("may not open"), "{why}");
    secret(&hers.at("secret"));
    symlink(hers.at("secret"), hers.at("link")).expect("linked");
    let why = hers.refused(|| swap("link"), None);
    assert!(why.contains("Too many levels of symbolic links"), "{why}");
    back("link");
    hers.comes_back(&criu);
    assert_eq!(fs::read_to_string(&file).expect("there"), "1234567\n");
    drop(hers);
}

#[test]
fn a_fifo_that_is_not_hers_is_not_given_back() {
    let test = "checkpoint::others::a_fifo_that_is_not_hers_is_not_given_back";
    let Some(criu) = criu(test) else { return };
    let hers = Hers::new("fifo", "");
    forge(hers.images.path(), ANNA.uid);
    hers.comes_back(&criu);
    let (fifo, aside, roots) = (hers.at("fifo"), hers.at("aside"), hers.at("roots"));
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &roots, rustix::fs::FileType::Fifo, mode, 0)
        .expect("made");
    let swap = || {
        fs::rename(&fifo, &aside).expect("moved");
        fs::rename(&roots, &fifo).expect("moved");
    };
    let back = || {
        fs::rename(&fifo, &roots).expect("moved");
        fs::rename(&aside, &fifo).expect("moved");
    };
    let why = hers.refused(swap, Some(&back));
    assert!(why.contains("may not open"), "{why}");
    swap();
    let why = hers.refused_at_once();
    assert!(why.contains("may not open"), "{why}");
}

/// CRIU removes the name of a socket before it binds it again, as root, wherever that leads by
/// then.
#[test]
fn a_socket_of_others_is_not_removed() {
    let test = "checkpoint::others::a_socket_of_others_is_not_removed";
    let Some(criu) = criu(test) else { return };
    let hers = Hers::new("", "d/s");
    forge(hers.images.path(), ANNA.uid);
    let roots = hers.hand.folder().join("roots");
    fs::create_dir(&roots).expect("made");
    let _listens = UnixListener::bind(roots.join("s")).expect("bound");
    let there = || fs::metadata(roots.join("s")).is_ok_and(|found| found.file_type().is_socket());
    own(&hers.at("d"), 0o755);
    own(&hers.at("d/s"), 0o755);
    fs::rename(hers.at("d"), hers.at("aside")).expect("moved");
    symlink(&roots, hers.at("d")).expect("linked");
    let why = hers.refused_at_once();
    assert!(why.contains("symbolic link"), "{why}");
    assert!(there(), "it was removed");
    // As it was it listens again.
    fs::remove_file(hers.at("d")).expect("removed");
    fs::rename(hers.at("aside"), hers.at("d")).expect("back");
    hers.comes_back(&criu);
    let found = fs::metadata(hers.at("d/s")).expect("there");
    assert!(found.file_type().is_socket() && there());
}

/// What an ordinary program has is hers to have; what a set-user-ID program has in its memory is
/// not.
#[test]
fn what_only_root_could_read_is_not_taken_out() {
    let test = "checkpoint::others::what_only_root_could_read_is_not_taken_out";
    let Some(criu) = criu(test) else { return };
    let bins = Bins::new();
    let sleep = fs::canonicalize("/bin/sleep").expect("there");
    let lends = bins.path("lends");
    fs::copy(sleep, &lends).expect("copied");
    fs::set_permissions(&lends, fs::Permissions::from_mode(0o4755)).expect("ours");
    let script = format!("exec {} 1000.275", lends.display());
    for (script, refused) in [("sleep 1000.275; :", false), (&script[..], true)] {
        let mut hand = Hand::start(ONE, &[("0", None)]);
        hand.open_to_all();
        let mut command = ANNA.command(bins.path("aprun"), ["-q", "sh", "-c", script]);
        let aprun = Running::start(command.env("PSCHED_SOCKET", hand.socket()));
        let apid = hand.wait_for("running", 1)[0];
        let taken = Taken::of(&hand.folder().join(format!("apps-0/{apid}.1")), None);
        eventually(BOUND, "it sleeps", || {
            let name =
                |pid: &i32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            match refused {
                true => taken.pes().iter().any(|pid| name(pid) == "lends\n"),
                false => rig::below(&taken.pes()).len() == 1,
            }
        });
        hand.kill_apinit(0);
        let images = images();
        let dumped = dump_application(&criu, &taken.running(), images.as_fd(), END_IT);
        match dumped {
            Ok(_) => assert!(!refused && rig::dumps_others()),
            Err(error) if refused => {
                let why = error.to_string();
                assert!(why.contains("(lends) has the rights of user 0"), "{why}");
            }
            // Nothing of it is not hers.
            Err(error) => {
                assert!(error.to_string().contains("CAP_SYS_RESOURCE"), "{error}");
                assert!(!rig::dumps_others());
            }
        }
        aprun.signal(9);
        let pes = taken.pes();
        rig::below(&pes).into_iter().chain(pes).for_each(|pid| kill(pid, 9));
        kill(taken.shepherd, 9);
        aprun.wait(BOUND);
    }
}
