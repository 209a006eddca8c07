//! The folder of appmix in /tmp, for files of the library's and of the PEs. appmix removes it in the end, and its
//! apshepherd does if it can't.
//!
//! (It is not held open, as for a lock: appmix is dumped with its application, and can be restored where it has none.)

use nix::unistd::geteuid;
use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, fstat, openat, unlinkat};
use std::os::fd::OwnedFd;
use std::path::Path;

/// Where they are. (Not in /dev/shm: that of an application is empty when it begins.)
const PARENT: &str = "/tmp";
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

/// Removes a folder of this user's with what is in it, as far as that is little: he may have put a million files there.
/// Nothing but the folder is followed: it may have gone, and another user have made one of this name with links in it.
pub fn remove(folder: &Path) {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(top) = openat(CWD, folder, flags, Mode::empty()) else { return };
    if fstat(&top).is_ok_and(|stat| stat.st_uid == geteuid().as_raw()) {
        remove_below(&top, DEPTH_MAX, &mut REMOVED_MAX.clone());
        let _ = unlinkat(CWD, folder, AtFlags::REMOVEDIR);
    }
}

fn remove_below(folder: &OwnedFd, depth: usize, left: &mut u32) {
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
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        if let Ok(inner) = openat(folder, name, flags, Mode::empty()) {
            remove_below(&inner, depth - 1, left);
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
        remove(&all.path().join("link"));
        remove(&folder);
        assert!(!folder.exists() && other.join("kept").exists());
    }
}
