//! Acting on files with a user's rights.
//!
//! Root sometimes has to know what a user may do, or do it for him: then the kernel is to decide, with his
//! ids, and not a comparison of permission bits, which knows nothing of access lists. Linux keeps the ids
//! that count for files for each thread by itself; so a thread takes them on, does it, and ends.

use std::io;

/// Runs this with the rights on files of a user, in a thread of its own. What it opens stays open.
///
/// # Errors
/// There is no thread, or its ids can't be set: the caller is not root.
pub fn with_rights_of<T: Send>(
    uid: u32,
    gid: u32,
    groups: &[u32],
    act: impl FnOnce() -> T + Send,
) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, || {
            // SAFETY: system calls on this thread's own ids; the pointer and the length are those of a
            // live slice. The bare calls: glibc's would set the groups of all threads.
            let taken = unsafe {
                libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) == 0 && {
                    libc::syscall(libc::SYS_setfsgid, gid);
                    libc::syscall(libc::SYS_setfsuid, uid);
                    // They answer with what was before, and an impossible id changes nothing.
                    libc::syscall(libc::SYS_setfsgid, u32::MAX) == i64::from(gid)
                        && libc::syscall(libc::SYS_setfsuid, u32::MAX) == i64::from(uid)
                }
            };
            if taken { Ok(act()) } else { Err(io::Error::from_raw_os_error(libc::EPERM)) }
        })?;
        thread.join().unwrap_or_else(|_| {
            Err(io::Error::other("the thread with the user's rights has failed"))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_kernel_decides_by_his_ids() {
        if !nix::unistd::geteuid().is_root() {
            assert!(with_rights_of(0, 0, &[], || ()).is_err());
            return;
        }
        let file = tempfile::NamedTempFile::new_in("/tmp").expect("made");
        let open = || std::fs::File::open(file.path()).map(|_| ()).map_err(|e| e.kind());
        let set = |mode| {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(file.path(), mode).expect("ours");
        };
        let refused = Err(io::ErrorKind::PermissionDenied);
        set(0o600);
        assert_eq!(with_rights_of(61_301, 61_401, &[], open).expect("acted"), refused);
        set(0o640);
        std::os::unix::fs::chown(file.path(), None, Some(61_501)).expect("ours");
        assert_eq!(with_rights_of(61_301, 61_401, &[], open).expect("acted"), refused);
        assert_eq!(with_rights_of(61_301, 61_401, &[61_501], open).expect("acted"), Ok(()));
        // This thread is as it was.
        set(0o600);
        assert_eq!(open(), Ok(()));
    }
}
