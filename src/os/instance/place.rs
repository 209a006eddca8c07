//! Where folders may be, and how one is opened without being led elsewhere.
//!
//! Root finds its folders by name in directories like /tmp, where everybody makes entries. Nobody
//! else may make a folder of his look like one of root's, or have it lead root to files outside: the
//! locks are taken, groups are killed and files are removed by what is found there. So
//!
//! * the directory is one in which nobody else can exchange root's entries ([`trust`]);
//! * a folder is believed if it is the caller's own and closed to all others, as it was made. (One
//!   that is open to others need not be where its owner has put it, and anything may be in it: who
//!   may write to a directory can move it.)
//! * it is opened once, no link is followed, and what is in it is opened through it, where again no
//!   link is followed, nothing is waited for (a FIFO), and only plain files of the caller's count.

use crate::os::trust;
use rustix::fs::{Mode, OFlags, fstat, open, openat};
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The longest path of a base directory in bytes. A socket's path holds 107 bytes, and below the
/// base comes `psched-4294967295-XXXXXX/apps-4095/1234567890.1/shepherd.sock`.
const BASE_LENGTH_MAX: usize = 107 - 62;
/// As whom the kernel shows owners that the own user namespace does not have.
const OVERFLOW_UID: u32 = 65_534;

/// Directories in which folders are looked for, the preferred one first: `$XDG_RUNTIME_DIR`,
/// `$TMPDIR`, `/tmp`.
pub fn bases() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for name in ["XDG_RUNTIME_DIR", "TMPDIR"] {
        if let Some(value) = std::env::var_os(name).filter(|v| !v.is_empty()) {
            found.push(value.into());
        }
    }
    found.push("/tmp".into());
    found
}

/// Why a directory can't hold folders; `None`: it can.
pub(super) fn unfit(base: &Path, uid: u32) -> Option<String> {
    if !base.is_absolute() {
        return Some("not an absolute path".into());
    }
    if base.as_os_str().len() > BASE_LENGTH_MAX {
        return Some(format!("longer than {BASE_LENGTH_MAX} bytes, too long for a socket's path"));
    }
    let metadata = match fs::metadata(base) {
        Ok(m) if m.is_dir() => m,
        Ok(_) => return Some("not a directory".into()),
        Err(e) => return Some(e.to_string()),
    };
    // Another user's: he could replace what we put there, and were it sticky. In a user namespace
    // the host's root is nobody.
    let nobody = metadata.uid() == OVERFLOW_UID && !trust::sees_every_user();
    if metadata.uid() != uid && metadata.uid() != 0 && !nobody {
        return Some(format!("belongs to user {}", metadata.uid()));
    }
    if metadata.mode() & 0o1002 == 0o002 {
        return Some("all users may change it".into());
    }
    if let Err(why) = trust::check_directory(base) {
        return Some(why);
    }
    rustix::fs::access(base, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK)
        .err()
        .map(|e| e.to_string())
}

/// A folder that is the caller's and nobody else's.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    fd: OwnedFd,
}

impl Folder {
    /// Opens one that is there.
    ///
    /// # Errors
    /// There is none, or it is a link or no directory; `PermissionDenied` where it is another user's,
    /// or open to others.
    pub fn open(path: &Path) -> io::Result<Folder> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = open(path, flags, Mode::empty())?;
        let found = fstat(&fd)?;
        let others = Mode::RWXG | Mode::RWXO;
        if !own(found.st_uid) || Mode::from_raw_mode(found.st_mode).intersects(others) {
            let text = format!(
                "{} must belong to this user, and be closed to other users (chmod 700)",
                path.display()
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        Ok(Folder { path: path.to_owned(), fd })
    }

    /// Where it was when it was opened, and is unless its owner has moved it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a file in it; `how` says what for, and whether it may be made.
    ///
    /// # Errors
    /// There is none, or it is a link; `PermissionDenied` where it is another user's, or not a plain
    /// file.
    pub fn file(&self, name: &str, how: OFlags) -> io::Result<File> {
        let safely = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = File::from(openat(&self.fd, name, how | safely, Mode::RUSR | Mode::WUSR)?);
        let found = file.metadata()?;
        if !found.is_file() || !own(found.uid()) {
            let text = format!(
                "{name} in {} is not a plain file that belongs to this user",
                self.path.display()
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        Ok(file)
    }

    /// Whether there is such an entry.
    pub fn has(&self, name: &str) -> bool {
        rustix::fs::statat(&self.fd, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }
}

fn own(uid: u32) -> bool {
    uid == rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("ours");
    }

    #[test]
    fn a_base_must_be_short_and_ours() {
        let uid = rustix::process::geteuid().as_raw();
        assert_eq!(unfit(Path::new("/tmp"), uid), None);
        for bad in ["relative", "/tmp/not/there", "/proc/version", &format!("/{}", "x".repeat(60))]
        {
            assert!(unfit(Path::new(bad), uid).is_some(), "{bad}");
        }
        // The longest socket below the longest base fits sun_path with its final zero.
        let below = "psched-4294967295-XXXXXX/apps-4095/1234567890.1/shepherd.sock";
        assert!(BASE_LENGTH_MAX + 1 + below.len() < 108);
    }

    #[test]
    fn a_base_is_nothing_that_another_user_can_exchange() {
        let home = tempfile::Builder::new().prefix("pi").tempdir_in("/tmp").expect("a directory");
        let uid = rustix::process::geteuid().as_raw();
        let base = home.path().join("base");
        fs::create_dir(&base).expect("made");
        mode(home.path(), 0o755);
        for (open, fit) in [(0o700, true), (0o777, false), (0o1777, true)] {
            mode(&base, open);
            assert_eq!(unfit(&base, uid).is_none(), fit, "{open:o}");
        }
        if uid != 0 {
            return;
        }
        // The sticky bit keeps its entries from everybody but its owner.
        let give = |path: &Path, to| std::os::unix::fs::chown(path, Some(to), None);
        give(&base, 61_301).expect("root may");
        let why = unfit(&base, uid).expect("another's");
        assert!(why.contains("belongs to user 61301"), "{why}");
        // And the owner of what it is in can exchange it as a whole.
        give(&base, 0).and(give(home.path(), 61_301)).expect("root may");
        assert!(unfit(&base, uid).expect("in another's").contains("61301"));
        give(home.path(), 0).expect("root may");
        assert_eq!(unfit(&base, uid), None);
    }

    #[test]
    fn nothing_in_a_folder_leads_out_of_it() {
        let base = tempfile::tempdir().expect("a directory");
        let at = |name: &str| base.path().join(name);
        fs::create_dir(at("folder")).expect("made");
        for (open, believed) in [(0o700, true), (0o750, false), (0o701, false), (0o777, false)] {
            mode(&at("folder"), open);
            assert_eq!(Folder::open(&at("folder")).is_ok(), believed, "{open:o}");
        }
        mode(&at("folder"), 0o700);
        symlink("folder", at("link")).expect("made");
        assert!(Folder::open(&at("link")).is_err());
        let folder = Folder::open(&at("folder")).expect("ours");
        fs::write(at("outside"), "x").expect("written");
        symlink("../outside", at("folder/lock")).expect("made");
        nix::unistd::mkfifo(&at("folder/groups"), nix::sys::stat::Mode::S_IRWXU).expect("made");
        let write = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
        for (name, how) in [("lock", OFlags::RDONLY), ("lock", write), ("groups", OFlags::RDONLY)] {
            assert!(folder.file(name, how).is_err(), "{name}");
        }
        assert_eq!(fs::read_to_string(at("outside")).expect("read"), "x");
        assert!(folder.has("lock") && !folder.has("ending"));
        folder.file("ending", write).expect("made");
        // Whatever has its path now, it is still the same.
        fs::rename(at("folder"), at("moved")).expect("moved");
        assert!(folder.file("ending", OFlags::RDONLY).is_ok());
    }
}
