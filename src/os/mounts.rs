//! Symbolic links that are not followed, in a mount namespace of one's own.
//!
//! # The problem
//! A program that root trusts (CRIU) opens, makes, links and removes files by paths that lead
//! through folders of users. Whatever has been checked before, a user can put a link into the place
//! of a file or a folder a moment later, and root acts somewhere else.
//!
//! # The approach
//! Each mount has a flag by which the kernel follows no link of it (MS_NOSYMFOLLOW). A path that
//! the kernel gave for an open file has no link on its way: so nothing that is needed is lost. In a
//! mount namespace of its own nobody else notices. Without links a path leads only through folders
//! that its owner could put there himself.
//!
//! /proc and /dev keep their links (`/proc/self`, `/dev/ptmx`), which nobody but root can make.

use std::ffi::{CStr, CString};
use std::io;

/// Where links are root's alone, and are needed.
const KEPT: [&CStr; 2] = [c"/proc", c"/dev"];
/// How /proc/self/mountinfo says it.
const OPTION: &str = "nosymfollow";

/// All mounts of this process's namespace follow no symbolic links, until [`NoLinks::end`].
#[derive(Debug)]
pub struct NoLinks {
    /// Those that did so before.
    already: Vec<CString>,
}

impl NoLinks {
    /// Begins it. The namespace is to be this process's own, and its mounts must not propagate to
    /// others.
    ///
    /// # Errors
    /// The kernel refuses; it may hold for some of the mounts then.
    pub fn begin() -> io::Result<NoLinks> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
        let already = mounts.lines().filter_map(already).collect();
        set(c"/", true, true)?;
        for kept in KEPT {
            // An Err: nothing is mounted there, and it is of the mount above. Then links in it stay
            // closed.
            let _ = set(kept, false, false);
        }
        Ok(NoLinks { already })
    }

    /// Ends it.
    ///
    /// # Errors
    /// The kernel refuses; it may still hold for some of the mounts then.
    pub fn end(self) -> io::Result<()> {
        set(c"/", false, true)?;
        self.already.iter().try_for_each(|point| set(point, true, false))
    }
}

/// The mount point of a line of mountinfo, if that has the flag.
fn already(line: &str) -> Option<CString> {
    let mut fields = line.split(' ').skip(4);
    let (point, options) = (fields.next()?, fields.next()?);
    let has = options.split(',').any(|option| option == OPTION);
    // Blanks are written as octal numbers.
    has.then(|| CString::new(unescaped(point)).ok()).flatten()
}

fn unescaped(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes();
    let mut out = Vec::new();
    while let [first, rest @ ..] = bytes {
        let digits = rest.get(..3).filter(|_| *first == b'\\');
        let octal = digits.and_then(|d| u8::from_str_radix(std::str::from_utf8(d).ok()?, 8).ok());
        bytes = if octal.is_some() { &rest[3..] } else { rest };
        out.push(octal.unwrap_or(*first));
    }
    out
}

/// Sets the flag of the mount at this path, or takes it off; of all that is mounted below it too,
/// if so wanted.
fn set(path: &CStr, on: bool, below: bool) -> io::Result<()> {
    let flag = libc::MOUNT_ATTR_NOSYMFOLLOW;
    let attributes = libc::mount_attr {
        attr_set: if on { flag } else { 0 },
        attr_clr: if on { 0 } else { flag },
        propagation: 0,
        userns_fd: 0,
    };
    let flags = if below { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path ends with a zero, and the structure is of the size that is told; both
    // outlive the call.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            flags,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_not_followed_but_in_proc() {
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().expect("made");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("/etc", &link).expect("linked");
        let entered = std::thread::scope(|scope| {
            let alone = scope.spawn(|| {
                // SAFETY: of all that a thread shares with others only mounts and its folders are
                // concerned.
                if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
                    return false;
                }
                let none = None::<&str>;
                let flags = nix::mount::MsFlags::MS_REC | nix::mount::MsFlags::MS_PRIVATE;
                nix::mount::mount(none, "/", none, flags, none).expect("its own");
                let open = || std::fs::File::open(&link).map(drop).map_err(|e| e.raw_os_error());
                assert_eq!(open(), Ok(()));
                let closed = NoLinks::begin().expect("closed");
                assert_eq!(open(), Err(Some(libc::ELOOP)));
                let below = std::fs::metadata(link.join("passwd"));
                assert_eq!(below.map_err(|e| e.raw_os_error()).map(drop), Err(Some(libc::ELOOP)));
                assert!(std::fs::read("/proc/self/status").is_ok());
                closed.end().expect("open");
                assert_eq!(open(), Ok(()));
                true
            });
            alone.join().expect("no panic")
        });
        // A container may not let mounts be made.
        let _ = entered;
        // Nobody else has noticed.
        assert!(std::fs::File::open(&link).is_ok());
    }

    #[test]
    fn mounts_that_have_the_flag_are_known() {
        let line = "36 35 98:0 / /mnt/a\\040b rw,nosymfollow - ext3 /dev/root rw";
        assert_eq!(already(line).as_deref(), Some(c"/mnt/a b"));
        assert_eq!(already(&line.replace(",nosymfollow", "")), None);
        assert_eq!(already("36 35"), None);
    }
}
