//! The folder of appmix in /tmp, for files of the library's and of the PEs. Where none can be made there, because another
//! user has filled /tmp for example, it is in /dev/shm, which an application may have for itself. appmix removes it in the end, its apshepherd
//! does if it can't, and then the apinit. That keeps a [`Record`] of it, by which a private instance that is cleared by
//! another process loses it as well.
//!
//! (It is not held open, as for a lock: appmix is dumped with its application, and can be restored where it has none.)

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, ResolveFlags, fstat, openat2, unlinkat};
use std::fs::DirBuilder;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Where they are, and where else. (First in /tmp: a new /dev/shm is expected to be empty.)
const PARENT: &str = "/tmp";
const SPARE: &str = "/dev/shm";
/// How they are called, with digits behind it.
const PREFIX: &str = "psched.pmix.";
/// The most files that are removed, and levels of folders from the root on.
const REMOVED_MAX: u32 = 1000;
const DEPTH_MAX: usize = 8;

/// A random path for a new folder.
///
/// # Errors
/// There are no random numbers.
pub fn new_path() -> std::io::Result<String> {
    let mut random = [0u8; 8];
    rustix::rand::getrandom(&mut random[..], rustix::rand::GetRandomFlags::empty())?;
    Ok(format!("{PARENT}/{PREFIX}{:016x}", u64::from_ne_bytes(random)))
}

/// Makes the folder of such a path, or one in the other place: which one.
///
/// # Errors
/// What stood in the way in the first place.
pub fn make(path: &str) -> std::io::Result<String> {
    let create = |path: &str| DirBuilder::new().mode(0o700).create(path);
    let Err(error) = create(path) else { return Ok(path.to_owned()) };
    match spare(Path::new(path)) {
        Some(spare) if create(&spare).is_ok() => Ok(spare),
        _ => Err(error),
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
    /// Where it is.
    pub path: PathBuf,
}

impl Record {
    /// The name of the file, in the runtime directory of an application.
    pub const FILE: &str = "pmix";

    /// What is in the file.
    pub fn line(&self) -> String {
        format!("{} {}", self.uid, self.path.display())
    }

    /// Removes the folder that a file names, if there is such a file. The file must be one that no other user can write.
    pub fn remove_of(file: &Path) {
        let Ok(line) = std::fs::read_to_string(file) else { return };
        let Some((uid, path)) = line.split_once(' ') else { return };
        if let Ok(uid) = uid.parse() {
            remove(Path::new(path), uid);
        }
    }
}

/// Removes a folder of a user's with what is in it, as far as that is little: he may have put a million files there.
/// Nothing but his own folders is entered. It may have gone, and another user have made one of this name with links in
/// it; and what is mounted there would be served by a process of its user's, which may never answer.
///
/// (It is removed in both places.)
pub fn remove(folder: &Path, uid: u32) {
    remove_one(folder, uid);
    if let Some(spare) = spare(folder) {
        remove_one(Path::new(&spare), uid);
    }
}

fn remove_one(folder: &Path, uid: u32) {
    let (Some(parent), Some(name)) = (folder.parent(), folder.file_name()) else { return };
    let Ok(parent) = open(CWD, parent, ResolveFlags::empty()) else { return };
    if let Ok(top) = own(&parent, name, uid) {
        remove_below(&top, uid, DEPTH_MAX, &mut REMOVED_MAX.clone());
        let _ = unlinkat(&parent, name, AtFlags::REMOVEDIR);
    }
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

fn remove_below(folder: &OwnedFd, uid: u32, depth: usize, left: &mut u32) {
    let Ok(entries) = Dir::read_from(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        if [c".", c".."].contains(&name) {
            continue;
        }
        let Some(less) = left.checked_sub(1) else { return };
        *left = less;
        if unlinkat(folder, name, AtFlags::empty()).is_ok() || depth == 0 {
            continue;
        }
        if let Ok(inner) = own(folder, name, uid) {
            remove_below(&inner, uid, depth - 1, left);
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
        let uid = nix::unistd::geteuid().as_raw();
        remove(&all.path().join("link"), uid);
        remove(&folder, uid + 1);
        assert!(folder.join("sub/file").exists(), "another user's");
        remove(&folder, uid);
        assert!(!folder.exists() && other.join("kept").exists());
    }

    #[test]
    fn it_is_elsewhere_where_there_is_no_room() {
        let path = new_path().expect("random");
        let spare = make(&path.replace(PARENT, "/proc")).expect("made");
        assert!(spare.starts_with("/dev/shm/psched.pmix.") && Path::new(&spare).is_dir());
        assert!(make(&path.replace(PARENT, "/proc")).is_err(), "it is there");
        assert_eq!(make(&path).expect("made"), path);
        remove(Path::new(&path), nix::unistd::geteuid().as_raw());
        assert!(!Path::new(&path).exists() && !Path::new(&spare).exists());
    }

    #[test]
    fn a_record_leads_to_its_folder() {
        let all = tempfile::tempdir().expect("a folder");
        let (path, file) = (all.path().join("a folder"), all.path().join(Record::FILE));
        std::fs::create_dir(&path).expect("made");
        for text in ["", "x", "1000", "x /tmp", &format!("1 {}", path.display())] {
            std::fs::write(&file, text).expect("written");
            Record::remove_of(&file);
            assert!(path.exists(), "{text}");
        }
        let uid = nix::unistd::geteuid().as_raw();
        std::fs::write(&file, Record { uid, path: path.clone() }.line()).expect("written");
        Record::remove_of(&file);
        Record::remove_of(&all.path().join("none"));
        assert!(!path.exists());
    }
}
