//! The folder of appmix in /tmp, for files of the library's and of the PEs. Where none can be made there, because another
//! user has filled /tmp for example, it is in /dev/shm, which an application may have for itself.
//!
//! appmix removes it at the end. If appmix was killed its apshepherd removes it, and if that was killed as well its apinit
//! does, which has a [`Record`] of it. A process that clears up after a private instance reads the records, too. (An
//! application that was restarted from a checkpoint has none: its apshepherd makes the folder again ([`make_again`]), and
//! removes it.)
//!
//! It is not held open, as for a lock: appmix is dumped with its application, and can be restored where it has none.
//!
//! Its name must not become free while PEs count on it: another user could make a folder of this name, with links in it, and
//! Open MPI removes what is behind them when a PE ends. It also removes its folders, and those above, where nothing is left in
//! them. So each of ours has a folder in it that stays ([`KEPT`]).

use crate::os::acting::with_rights_of;
use nix::unistd::geteuid;
use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, ResolveFlags, fstat, openat2, unlinkat};
use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Where they are, and where else. (First in /tmp: programs may count on a /dev/shm of their own that has no files yet.)
const PARENT: &str = "/tmp";
const SPARE: &str = "/dev/shm";
/// How they are called, with digits behind it.
const PREFIX: &str = "psched.pmix.";
/// A folder in each.
const KEPT: &str = "kept";
/// The most files that are removed, and levels of folders from the root on.
const REMOVED_MAX: u32 = 1000;
const DEPTH_MAX: usize = 8;
/// How long that may take, in about.
const TIME_MAX: Duration = Duration::from_secs(10);
/// Folders of one user that wait to be removed.
const WAITING_MAX: usize = 64;
/// The group of a thread with the rights of a user, to whom the folder belongs.
const NO_GROUP: u32 = 65_534;

/// A random path for a new folder.
///
/// # Errors
/// There are no random numbers.
pub fn new_path() -> std::io::Result<String> {
    let mut random = [0u8; 8];
    rustix::rand::getrandom(&mut random[..], rustix::rand::GetRandomFlags::empty())?;
    Ok(format!("{PARENT}/{PREFIX}{:016x}", u64::from_ne_bytes(random)))
}

/// A random path for a new folder in that of the application in which this process runs, with which it goes; without one,
/// as [`new_path`].
///
/// # Errors
/// There are no random numbers.
pub fn new_path_inside() -> std::io::Result<String> {
    let new = new_path()?;
    let outer = std::env::var("PMIX_SERVER_TMPDIR").ok();
    let outer = outer.filter(|outer| is_ours(outer) && Path::new(outer).is_dir());
    Ok(outer.map_or_else(|| new.clone(), |outer| new.replacen(PARENT, &outer, 1)))
}

/// Whether it is such a path, in one of the two places.
fn is_ours(path: &str) -> bool {
    let of = |parent| path.strip_prefix(parent)?.strip_prefix('/')?.strip_prefix(PREFIX);
    let digits = of(PARENT).or_else(|| of(SPARE)).unwrap_or_default();
    digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Makes the folder of such a path, or one in the other place: which one.
///
/// # Errors
/// What stood in the way in the first place.
pub fn make(path: &str) -> std::io::Result<String> {
    let Err(error) = create(Path::new(path)) else { return Ok(path.to_owned()) };
    match spare(Path::new(path)) {
        Some(spare) if create(Path::new(&spare)).is_ok() => Ok(spare),
        _ => Err(error),
    }
}

fn create(path: &Path) -> std::io::Result<()> {
    let create = |path: &Path| DirBuilder::new().mode(0o700).create(path);
    create(path)?;
    create(&path.join(KEPT)).inspect_err(|_| drop(std::fs::remove_dir(path)))
}

/// Makes a folder of this name in one of ours, for the files of the PEs of one namespace: its path.
///
/// # Errors
/// The system's.
pub fn make_below(folder: &str, name: &str) -> std::io::Result<String> {
    let path = format!("{folder}/{name}");
    create(Path::new(&path)).map(|()| path)
}

/// Makes the folder of an application that was restarted from a checkpoint, unless it is there still.
///
/// # Errors
/// In its place is something else, or the folder of another user. Or it can't be made.
pub fn make_again(path: &str) -> std::io::Result<()> {
    let Err(error) = create(Path::new(path)) else { return Ok(()) };
    let found = std::fs::symlink_metadata(path).map_err(|_| error)?;
    let own = found.is_dir() && found.uid() == geteuid().as_raw() && found.mode() & 0o077 == 0;
    match own {
        true => {
            // (One that a PE has made has none.)
            let _ = DirBuilder::new().mode(0o700).create(Path::new(path).join(KEPT));
            Ok(())
        }
        false => Err(std::io::Error::other("another user has made something of that name")),
    }
}

/// The other place of a path.
fn spare(path: &Path) -> Option<String> {
    Some(format!("{SPARE}/{}", path.file_name()?.to_str()?))
}

/// A folder and whose it is, in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The user.
    pub uid: u32,
    /// A path of [`new_path`].
    pub path: String,
}

impl Record {
    /// The name of the file, in the runtime directory of an application.
    pub const FILE: &str = "pmix";

    /// What is in the file.
    pub fn line(&self) -> String {
        format!("{} {}", self.uid, self.path)
    }

    fn parse(line: &str) -> Option<Record> {
        let (uid, path) = line.split_once(' ')?;
        is_ours(path).then_some(Record { uid: uid.parse().ok()?, path: path.to_owned() })
    }

    /// Removes the folder of the record in this directory of an application, if it has one. No other user may be able to
    /// write in the directory.
    ///
    /// A thread with the rights of its owner removes another user's folder, and is not waited for: the owner can make the
    /// removal last, by leases on files or by large ones.
    pub fn remove_in(directory: &Path) {
        let line = std::fs::read_to_string(directory.join(Record::FILE)).unwrap_or_default();
        let Some(Record { uid, path }) = Record::parse(&line) else { return };
        if uid == geteuid().as_raw() {
            remove(Path::new(&path), uid);
        } else if places(Path::new(&path)).iter().any(|place| place.symlink_metadata().is_ok()) {
            remove_for(uid, path);
        }
    }
}

/// Folders that wait to be removed, of each user for whom a thread does that.
static WAITING: Mutex<BTreeMap<u32, Vec<String>>> = Mutex::new(BTreeMap::new());

fn waiting() -> MutexGuard<'static, BTreeMap<u32, Vec<String>>> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has a thread remove this folder of a user: one for each user, so that none waits for another.
fn remove_for(uid: u32, path: String) {
    use std::collections::btree_map::Entry;
    match waiting().entry(uid) {
        Entry::Occupied(mut of) if of.get().len() < WAITING_MAX => return of.get_mut().push(path),
        Entry::Occupied(_) => {
            return tracing::warn!("{path} stays: its user has too many such folders");
        }
        Entry::Vacant(of) => drop(of.insert(vec![path])),
    }
    let remove_all = move || {
        while let Some(path) = next(uid) {
            let removed = with_rights_of(uid, NO_GROUP, &[], || remove(Path::new(&path), uid));
            let _ = removed.inspect_err(|error| tracing::warn!("{path} stays: {error}"));
        }
    };
    let started = std::thread::Builder::new().name("pmix-folder".to_owned()).spawn(remove_all);
    if let Err(error) = started {
        tracing::warn!("folders of PMIx stay: {error}");
        waiting().remove(&uid);
    }
}

/// The next folder of this user; with the last, he is forgotten.
fn next(uid: u32) -> Option<String> {
    let mut waiting = waiting();
    let path = waiting.get_mut(&uid).and_then(Vec::pop);
    if path.is_none() {
        waiting.remove(&uid);
    }
    path
}

/// Waits for the folders that are being removed, for at most so long.
pub fn wait(bound: Duration) {
    let until = Instant::now() + bound;
    while !waiting().is_empty() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Removes a folder of a user's with what is in it, in both places, as far as that is little: he may have put a million
/// files there. Only his own folders are entered. The folder may be gone, and another user may have made one of this name
/// with links in it; and what is mounted there would be served by a process of its user's, which may never answer.
pub fn remove(folder: &Path, uid: u32) {
    places(folder).iter().for_each(|place| remove_one(place, uid));
}

/// Where a folder of this path may be.
fn places(path: &Path) -> Vec<PathBuf> {
    let spare = spare(path).map(PathBuf::from);
    [path.to_owned()].into_iter().chain(spare).collect()
}

fn remove_one(folder: &Path, uid: u32) {
    let (Some(parent), Some(name)) = (folder.parent(), folder.file_name()) else { return };
    let Ok(parent) = open(CWD, parent, ResolveFlags::empty()) else { return };
    if let Ok(top) = own(&parent, name, uid) {
        let mut bounds = Bounds { left: REMOVED_MAX, until: Instant::now() + TIME_MAX };
        remove_below(&top, uid, DEPTH_MAX, &mut bounds);
        let _ = unlinkat(&parent, name, AtFlags::REMOVEDIR);
    }
}

/// What may still be done: so many files, until then.
struct Bounds {
    left: u32,
    until: Instant,
}

fn open(
    at: impl AsFd,
    path: impl rustix::path::Arg,
    resolve: ResolveFlags,
) -> rustix::io::Result<OwnedFd> {
    openat2(at, path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty(), resolve)
}

/// A folder of this user's in another, on the same file system.
fn own(at: &OwnedFd, name: impl rustix::path::Arg, uid: u32) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV | ResolveFlags::BENEATH;
    let folder = open(at, name, resolve)?;
    match fstat(&folder)?.st_uid == uid {
        true => Ok(folder),
        false => Err(rustix::io::Errno::PERM),
    }
}

fn remove_below(folder: &OwnedFd, uid: u32, depth: usize, bounds: &mut Bounds) {
    let Ok(entries) = Dir::read_from(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        if [c".", c".."].contains(&name) {
            continue;
        }
        if bounds.left == 0 || Instant::now() > bounds.until {
            return;
        }
        bounds.left -= 1;
        if unlinkat(folder, name, AtFlags::empty()).is_ok() || depth == 0 {
            continue;
        }
        if let Ok(inner) = own(folder, name, uid) {
            remove_below(&inner, uid, depth - 1, bounds);
            let _ = unlinkat(folder, name, AtFlags::REMOVEDIR);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_removed_and_no_link_is_followed() {
        let all = tempfile::tempdir().expect("a folder");
        let (folder, other) = (all.path().join("mine"), all.path().join("other"));
        for made in [&folder.join("sub/sub"), &other] {
            std::fs::create_dir_all(made).expect("made");
        }
        for file in [folder.join("sub/file"), other.join("kept")] {
            std::fs::write(file, "").expect("written");
        }
        std::os::unix::fs::symlink(&other, folder.join("sub/link")).expect("a link");
        std::os::unix::fs::symlink(&other, all.path().join("link")).expect("a link");
        let uid = geteuid().as_raw();
        remove_one(&all.path().join("link"), uid);
        remove_one(&folder, uid + 1);
        assert!(folder.join("sub/file").exists(), "another user's");
        remove_one(&folder, uid);
        assert!(!folder.exists() && other.join("kept").exists());
    }

    /// As root.
    #[test]
    fn what_is_mounted_there_and_folders_of_others_stay() {
        if !geteuid().is_root() {
            return;
        }
        let all = tempfile::tempdir().expect("a folder");
        let [folder, theirs, mounted] =
            ["mine", "mine/theirs", "mine/mounted"].map(|name| all.path().join(name));
        for made in [&folder, &theirs, &mounted] {
            std::fs::create_dir(made).expect("made");
        }
        std::os::unix::fs::chown(&theirs, Some(61_301), None).expect("ours");
        let mount = |program: &str, arguments: &[&str]| {
            let done = std::process::Command::new(program).args(arguments).arg(&mounted).status();
            done.is_ok_and(|status| status.success())
        };
        let is_mounted = mount("mount", &["-t", "tmpfs", "none"]);
        for file in [theirs.join("kept"), mounted.join("kept"), folder.join("gone")] {
            std::fs::write(file, "").expect("written");
        }
        remove_one(&folder, 0);
        let kept = (theirs.join("kept").exists(), mounted.join("kept").exists());
        if is_mounted {
            assert!(mount("umount", &[]));
        }
        assert_eq!((kept, folder.join("gone").exists()), ((true, is_mounted), false));
    }

    #[test]
    fn no_more_is_removed_than_may_be() {
        let all = tempfile::tempdir().expect("a folder");
        let folder = all.path().join("mine");
        std::fs::create_dir(&folder).expect("made");
        for number in 0..REMOVED_MAX + 5 {
            std::fs::write(folder.join(number.to_string()), "").expect("written");
        }
        remove_one(&folder, geteuid().as_raw());
        assert_eq!(std::fs::read_dir(&folder).expect("it stays").count(), 5);
        remove_one(&folder, geteuid().as_raw());
        assert!(!folder.exists());
    }

    #[test]
    fn it_is_elsewhere_where_there_is_no_room() {
        let path = new_path().expect("random");
        let spare = make(&path.replace(PARENT, "/proc")).expect("made");
        assert!(spare.starts_with("/dev/shm/psched.pmix.") && Path::new(&spare).is_dir());
        assert!(make(&path.replace(PARENT, "/proc")).is_err(), "it is there");
        assert_eq!(make(&path).expect("made"), path);
        remove(Path::new(&path), geteuid().as_raw());
        assert!(!Path::new(&path).exists() && !Path::new(&spare).exists());
    }

    /// Open MPI tries to remove them when a PE ends.
    #[test]
    fn folders_are_never_empty() {
        let path = make(&new_path().expect("random")).expect("made");
        let below = make_below(&path, "1").expect("made");
        for folder in [&below, &path] {
            assert!(std::fs::remove_dir(folder).is_err(), "{folder}");
        }
        assert!(make_below(&path, "1").is_err(), "it is there");
        remove(Path::new(&path), geteuid().as_raw());
        assert!(!Path::new(&path).exists());
    }

    #[test]
    fn the_folder_of_a_restarted_application_is_made_again() {
        let all = tempfile::tempdir().expect("a folder");
        let path = all.path().join("mine");
        let text = path.to_str().expect("text");
        make_again(text).expect("made");
        assert!(path.join(KEPT).is_dir());
        std::fs::remove_dir(path.join(KEPT)).expect("removed");
        make_again(text).expect("it is there");
        assert!(path.join(KEPT).is_dir());
        std::fs::remove_dir_all(&path).expect("removed");
        std::os::unix::fs::symlink(all.path(), &path).expect("a link");
        make_again(text).expect_err("a link");
        std::fs::remove_file(&path).expect("removed");
        std::fs::create_dir(&path).expect("made");
        make_again(text).expect_err("others may read it");
    }

    #[test]
    fn a_record_leads_to_its_folder() {
        let all = tempfile::tempdir().expect("a folder");
        let file = all.path().join(Record::FILE);
        let path = make(&new_path().expect("random")).expect("made");
        let uid = geteuid().as_raw();
        for text in
            [String::new(), "x".into(), "1000".into(), "x /tmp".into(), format!("{uid} {path}/x")]
        {
            assert_eq!(Record::parse(&text), None, "{text}");
            std::fs::write(&file, text).expect("written");
            Record::remove_in(all.path());
        }
        assert_eq!(Record::parse(&format!("{uid} /tmp")), None);
        assert!(Path::new(&path).exists());
        std::fs::write(&file, Record { uid, path: path.clone() }.line()).expect("written");
        Record::remove_in(all.path());
        Record::remove_in(&all.path().join("none"));
        assert!(!Path::new(&path).exists());
    }

    /// As root.
    #[test]
    fn that_of_another_user_is_removed_with_his_rights() {
        if !geteuid().is_root() {
            return;
        }
        let all = tempfile::tempdir().expect("a folder");
        let (file, uid) = (all.path().join(Record::FILE), 61_302);
        let [his, root_s] = [0; 2].map(|_| make(&new_path().expect("random")).expect("made"));
        for path in [Path::new(&his), &Path::new(&his).join(KEPT)] {
            std::os::unix::fs::chown(path, Some(uid), None).expect("ours");
        }
        for path in [&his, &root_s] {
            std::fs::write(&file, Record { uid, path: path.clone() }.line()).expect("written");
            Record::remove_in(all.path());
        }
        wait(Duration::from_secs(20));
        assert!(!Path::new(&his).exists() && Path::new(&root_s).exists());
        remove(Path::new(&root_s), 0);
    }
}
