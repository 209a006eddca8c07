use super::store::{Copy, Progress, Room, Store};
use super::{Places, give};
use crate::apinit::host::promised_room::PromisedRoom;
use crate::apteam::Key;
use crate::apteam::protocol::programs::WantedProgram;
use crate::os::regular::digest;
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use tokio_stream::StreamExt;

const MIB: u64 = 1 << 20;
const ROOM: Room = Room { all: 10 * MIB, user: 6 * MIB };
/// Nobody's.
const USER: u32 = 4_444;

fn key(number: u64) -> Key {
    Key::parse(&format!("{number}.1")).expect("a key")
}

fn program(part: u32, size: u64) -> WantedProgram {
    WantedProgram { part, size, name: b"a.out".to_vec() }
}

/// A store in a folder of the test's. (What lies on a tmpfs of its own, as it is for root, is tried over several
/// hosts.)
fn store(folder: &std::path::Path) -> Store {
    Store::in_folder(folder.to_owned(), &BTreeMap::new())
}

fn sha(bytes: &[u8]) -> [u8; 32] {
    digest(&mut std::io::Cursor::new(bytes)).expect("in memory")
}

fn path(copy: &Copy) -> PathBuf {
    PathBuf::from(std::ffi::OsString::from_vec(copy.given().path))
}

#[test]
fn a_copy_is_executable_once_it_is_whole() {
    let folder = tempfile::tempdir().expect("made");
    let mut store = store(folder.path());
    let own = nix::unistd::geteuid().as_raw();
    let copy = store.add(key(12), program(0, 6), own, ROOM);
    assert_eq!(copy.given().why_not, "it has not come");
    copy.write(0, b"abc").expect("the first");
    // Once more, and more.
    copy.write(0, b"abcde").expect("some are known");
    assert_eq!(copy.write(6, b"x"), Err("bytes 5 to 6 are missing".into()));
    let over = "it has more than the 6 bytes of its posting".to_owned();
    assert_eq!(copy.write(5, b"fg"), Err(over));
    assert_eq!(copy.end(sha(b"abcde")), Err("only 5 of 6 bytes have come".into()));
    // All come again.
    assert_eq!(copy.bytes(), 0);
    copy.write(0, b"abcdeX").expect("room");
    assert_eq!(copy.end(sha(b"abcdef")), Err("its bytes are not those of the program".into()));
    copy.write(0, b"abcdef").expect("room");
    copy.end(sha(b"abcdef")).expect("whole");
    copy.end(sha(b"abcdef")).expect("said again");
    assert_eq!(*copy.progress().borrow(), Progress::Whole(sha(b"abcdef")));
    let (given, path) = (copy.given(), path(&copy));
    assert_eq!(std::fs::read(&path).expect("there"), b"abcdef");
    assert_eq!(path.file_name().expect("a name"), "a.out");
    let mode = std::fs::metadata(&path).expect("there").permissions().mode();
    assert_eq!(mode & 0o7777, 0o500);
    assert_eq!(given.identity.map(|identity| identity.size), Some(6));
    store.remove(key(12));
    assert!(!path.exists() && store.find(key(12), 0).is_none());
}

#[test]
fn what_has_no_room_has_a_digest() {
    let folder = tempfile::tempdir().expect("made");
    let mut store = store(folder.path());
    let own = nix::unistd::geteuid().as_raw();
    let _first = store.add(key(1), program(0, 6 * MIB), USER, ROOM);
    let second = store.add(key(1), program(1, 3), USER, ROOM);
    assert!(second.no_room().expect("none").contains("program_memory_user_max"), "{second:?}");
    let third = store.add(key(2), program(0, 4 * MIB + 1), USER + 1, ROOM);
    assert!(third.no_room().expect("none").contains("program_memory_max"), "{third:?}");
    second.write(0, b"abc").expect("it is read");
    second.end(sha(b"abc")).expect("whole");
    let given = second.given();
    assert_eq!((given.path, given.digest), (Vec::new(), Some(sha(b"abc"))));
    // What is removed makes room.
    store.remove(key(1));
    assert_eq!(store.add(key(3), program(0, 6 * MIB), USER, ROOM).no_room(), None);
    let none = Store::none("there are no others").add(key(3), program(0, 1), own, ROOM);
    assert_eq!(none.no_room().as_deref(), Some("there are no others"));
}

/// A copy has room beside what else is written there, until it is.
#[test]
fn a_copy_has_what_room_others_have_left() {
    let folder = tempfile::tempdir().expect("made");
    let promised = PromisedRoom::with(MIB);
    let mut store = store(folder.path()).within(promised.clone());
    let take = |bytes| promised.take(folder.path(), bytes, |_| 0).expect("mounted");
    let images = take(MIB / 2).expect("there is room");
    let large = store.add(key(1), program(0, MIB / 2 + 1), USER, ROOM);
    assert!(large.no_room().is_some_and(|why| why.contains("No space left")), "{large:?}");
    let size = 128 << 10;
    let own = nix::unistd::geteuid().as_raw();
    let copy = store.add(key(2), program(0, size), own, ROOM);
    assert_eq!(copy.no_room(), None);
    let left = || take(MIB).map_or_else(|left| left, |_| MIB);
    assert_eq!(left(), MIB / 2 - size);
    // (What is written statvfs would count.)
    copy.write(0, &vec![1; 1_000]).expect("room");
    assert_eq!(left(), MIB / 2 - size + 1_000);
    assert!(copy.end(sha(b"")).is_err(), "all comes again");
    assert_eq!(left(), MIB / 2 - size);
    let bytes = vec![2; size as usize];
    copy.write(0, &bytes).expect("room");
    copy.end(sha(&bytes)).expect("whole");
    assert_eq!(left(), MIB / 2);
    drop(images);
    assert_eq!(store.add(key(3), program(0, MIB), USER, ROOM).no_room(), None);
    assert_eq!(left(), 0);
    store.remove(key(3));
    assert_eq!(left(), MIB);
}

/// The owner has copies open whose applications are over, and executes one: only that one counts.
#[test]
fn what_is_held_open_gives_its_memory_back() {
    use std::os::unix::fs::MetadataExt;
    let folder = tempfile::tempdir().expect("made");
    let mut store = store(folder.path());
    let own = nix::unistd::geteuid().as_raw();
    let sleep = std::fs::read("/bin/sleep").expect("there");
    let small = |size: u64| Room { all: 2 * size, user: 2 * size };
    let size = (sleep.len() as u64).max(64 << 10);
    let add = |store: &mut Store, number| {
        let copy = store.add(key(number), program(0, sleep.len() as u64), own, small(size));
        assert_eq!(copy.no_room(), None);
        copy.write(0, &sleep).expect("room");
        copy.end(sha(&sleep)).expect("whole");
        path(&copy)
    };
    let held = std::fs::File::open(add(&mut store, 1)).expect("his own");
    let executed = std::process::Command::new(add(&mut store, 2)).arg("60").spawn();
    let mut executed = executed.expect("executed");
    store.remove(key(1));
    assert_eq!(held.metadata().expect("open").size(), 0);
    // (As it is executed, it has its room still.)
    store.remove(key(2));
    let third = add(&mut store, 3);
    let full = store.add(key(4), program(0, 1), own, small(size)).no_room();
    assert!(full.is_some_and(|why| why.contains("program_memory")));
    // It is so, too, if another apinit goes on here.
    let mut again = Store::in_folder(folder.path().into(), &[(key(3), own)].into());
    let mut other = std::process::Command::new(third).arg("60").spawn().expect("executed");
    again.remove(key(3));
    let full = |store: &mut Store, number| {
        let full = store.add(key(number), program(0, 1), own, small(size / 2)).no_room().is_some();
        store.remove(key(number));
        full
    };
    assert!(full(&mut again, 6));
    other.kill().and_then(|()| other.wait()).expect("ended");
    assert!(!full(&mut again, 7));
    executed.kill().and_then(|()| executed.wait()).expect("ended");
    store.remove(key(4));
    add(&mut store, 5);
}

/// What somebody is sent, until the end or a failure.
async fn sent(copy: &Arc<Copy>, offset: u64) -> Result<(Vec<u8>, Vec<u8>, String), String> {
    let place = Places::default().take("").expect("free");
    let mut stream = give(Arc::clone(copy), offset, place);
    let mut bytes = Vec::new();
    while let Some(piece) = stream.next().await {
        let piece = piece.map_err(|status| status.message().to_owned())?;
        bytes.extend_from_slice(&piece.data);
        if !piece.digest.is_empty() {
            return Ok((bytes, piece.digest.to_vec(), piece.no_room));
        }
    }
    Err("closed".into())
}

#[tokio::test]
async fn bytes_go_on_as_they_come() {
    let folder = tempfile::tempdir().expect("made");
    let mut store = store(folder.path());
    let own = nix::unistd::geteuid().as_raw();
    let copy = store.add(key(1), program(0, 9), own, ROOM);
    copy.write(0, b"abc").expect("room");
    let (all, rest) = (Arc::clone(&copy), Arc::clone(&copy));
    let all = tokio::spawn(async move { sent(&all, 0).await });
    let rest = tokio::spawn(async move { sent(&rest, 5).await });
    tokio::task::yield_now().await;
    copy.write(3, b"defg").expect("room");
    tokio::task::yield_now().await;
    copy.write(7, b"hi").expect("room");
    copy.end(sha(b"abcdefghi")).expect("whole");
    let whole = |bytes: &[u8]| Ok((bytes.to_vec(), sha(b"abcdefghi").to_vec(), String::new()));
    assert_eq!(all.await.expect("no panic"), whole(b"abcdefghi"));
    assert_eq!(rest.await.expect("no panic"), whole(b"fghi"));
    let failed = store.add(key(2), program(0, 9), own, ROOM);
    failed.fail("aprun can't read it".into());
    assert_eq!(sent(&failed, 0).await, Err("aprun can't read it".into()));
    // One without room passes on nothing but its digest.
    let small = Room { all: 1, user: 1 };
    let roomless = store.add(key(3), program(0, 9), own, small);
    roomless.write(0, b"abcdefghi").expect("it is read");
    roomless.end(sha(b"abcdefghi")).expect("whole");
    let (bytes, digest, why) = sent(&roomless, 0).await.expect("its digest");
    assert_eq!((bytes, digest), (Vec::new(), sha(b"abcdefghi").to_vec()));
    assert!(why.contains("program_memory_max"), "{why}");
}
