//! Whether a path leads where its writer meant it to, whatever other users do.
//!
//! Root's daemons make, replace and remove files: sockets, records, runtime directories. Were any
//! directory on the way another user's, he could put a link in its place, and root would make,
//! change or remove what the link points to. So root's daemons do not begin in such a place: each
//! directory from / on must be root's (or the daemon's own), and nobody else may write to it, unless
//! it is sticky, as /tmp is: there only the owner of an entry, who is looked at next, can replace it.
//! What a group may write to is refused whatever the group, root's too, for where there is an access
//! control list the mode shows its mask, and whoever the list names may write there.
//! Links on the way are followed in the same manner.
//!
//! ```no_run
//! # use psched::os::trust::check_directory;
//! check_directory("/run/psched".as_ref()).unwrap();
//! let error = check_directory("/home/anna/run".as_ref()).unwrap_err();
//! assert_eq!(error, "/home/anna belongs to user 1000, who could put another directory in its place");
//! ```

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// Links that are followed: as many as the kernel follows.
const LINKS_MAX: u32 = 40;
/// The mode bit by which only the owner of an entry can replace it.
const STICKY: u32 = 0o1000;
const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;

/// Checks a directory that exists, for this process if it is root's; nobody else has rights that
/// another user could borrow. In a user namespace, where the host's root is nobody, nothing can be
/// said.
///
/// # Errors
/// Who could change where the path leads, in words.
pub fn check_directory(path: &Path) -> Result<(), String> {
    match nix::unistd::geteuid().is_root() && sees_every_user() {
        true => check(path, 0),
        false => Ok(()),
    }
}

/// Whether every user of the host is one here, as is not so in a user namespace.
pub fn sees_every_user() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_ascii_whitespace().eq(["0", "0", "4294967295"])
}

/// The same for files of this user's and root's.
fn check(path: &Path, own: u32) -> Result<(), String> {
    let failed = |path: &Path, e: std::io::Error| format!("can't examine {}: {e}", path.display());
    let path = std::path::absolute(path).map_err(|e| failed(path, e))?;
    let parts = |path: &Path| -> Vec<OsString> {
        let named =
            path.components().filter(|c| !matches!(c, Component::RootDir | Component::CurDir));
        named.rev().map(|c| c.as_os_str().to_owned()).collect()
    };
    let mut here = PathBuf::from("/");
    let mut rest = parts(&path);
    let mut links = 0;
    look_at(&here, own)?;
    while let Some(name) = rest.pop() {
        if name == ".." {
            here.pop();
            continue;
        }
        let next = here.join(&name);
        let found = fs::symlink_metadata(&next).map_err(|e| failed(&next, e))?;
        if !found.is_symlink() {
            here = next;
            look_at(&here, own)?;
            continue;
        }
        // In a directory that has been looked at; in a sticky one anybody may have put it.
        owned(&next, found.uid(), own)?;
        links += 1;
        if links > LINKS_MAX {
            return Err(format!("{} leads through too many symbolic links", path.display()));
        }
        let target = fs::read_link(&next).map_err(|e| failed(&next, e))?;
        if target.is_absolute() {
            here = PathBuf::from("/");
        }
        rest.extend(parts(&target));
    }
    Ok(())
}

fn owned(path: &Path, uid: u32, own: u32) -> Result<(), String> {
    if uid == 0 || uid == own {
        return Ok(());
    }
    Err(format!("{} belongs to user {uid}, and that user could replace it", path.display()))
}

fn look_at(directory: &Path, own: u32) -> Result<(), String> {
    let found = fs::symlink_metadata(directory)
        .map_err(|e| format!("can't examine {}: {e}", directory.display()))?;
    owned(directory, found.uid(), own)?;
    let mode = found.mode();
    let who = if mode & OTHERS_WRITE != 0 {
        "all users".to_owned()
    } else if mode & GROUP_WRITES != 0 {
        format!("group {}, or a user of its access control list (getfacl)", found.gid())
    } else {
        return Ok(());
    };
    if mode & STICKY != 0 {
        return Ok(());
    }
    Err(format!("{} is writable by {who}: remove that right (chmod go-w)", directory.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("ours");
    }

    #[test]
    fn who_could_change_a_path_is_named() {
        let base = tempfile::tempdir().expect("a folder");
        let own = nix::unistd::geteuid().as_raw();
        let at = |name: &str| base.path().join(name);
        fs::create_dir_all(at("a/b")).expect("made");
        mode(base.path(), 0o755);
        for name in ["a", "a/b"] {
            mode(&at(name), 0o755);
        }
        assert_eq!(check(&at("a/b"), own), Ok(()));
        assert_eq!(check(&at("a/../a/./b"), own), Ok(()));
        // Anybody could exchange b; not in a sticky directory.
        mode(&at("a"), 0o777);
        let said = check(&at("a/b"), own).expect_err("open");
        assert!(said.contains("is writable by all users") && said.contains("/a "), "{said}");
        // A group could, and whoever else an access control list with this mask names.
        mode(&at("a"), 0o775);
        let said = check(&at("a/b"), own).expect_err("open");
        assert!(said.contains("is writable by group") && said.contains("getfacl"), "{said}");
        mode(&at("a"), 0o1777);
        assert_eq!(check(&at("a/b"), own), Ok(()));
        // A link is followed, and what it leads through is looked at.
        symlink(at("a/b"), at("link")).expect("made");
        assert_eq!(check(&at("link"), own), Ok(()));
        symlink("../link", at("a/relative")).expect("made");
        assert_eq!(check(&at("a/relative"), own), Ok(()));
        mode(&at("a"), 0o777);
        assert!(check(&at("link"), own).is_err());
        symlink("loop", at("loop")).expect("made");
        let said = check(&at("loop"), own).expect_err("endless");
        assert!(said.contains("too many symbolic links"), "{said}");
        assert!(check(&at("absent"), own).is_err());
        // Another user's. (What is not root's, as somebody else sees it.)
        if own != 0 {
            assert!(check(base.path(), own + 1).expect_err("ours").contains("belongs to user"));
        } else {
            std::os::unix::fs::chown(at("a"), Some(61_301), None).expect("root may");
            let said = check(&at("a/b"), own).expect_err("another's");
            assert!(said.contains("belongs to user 61301"), "{said}");
            // His link in a sticky directory of root's, to a directory of root's.
            mode(base.path(), 0o1777);
            symlink("/", at("his")).expect("made");
            std::os::unix::fs::lchown(at("his"), Some(61_301), None).expect("root may");
            assert!(check(&at("his"), own).expect_err("his").contains("belongs to user 61301"));
        }
    }
}
