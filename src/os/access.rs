//! The right to execute a file that is somebody else's.

use rustix::fs::{Mode, XattrFlags, fchmod, fsetxattr};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Of an access control list, as the kernel has it in `system.posix_acl_access`: the version, and the kinds of entries.
const VERSION: u32 = 2;
const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
/// The id of an entry that has none.
const NO_ID: u32 = u32::MAX;
/// Names the signal that says that a lease ends.
const F_SETSIG: libc::c_int = 10;
/// Read and execute.
const READ_EXECUTE: u16 = 5;

/// A list by which a file's owner and one more user may read and execute it, and nobody else anything.
fn list(uid: u32) -> Vec<u8> {
    let entries = [
        (USER_OBJ, READ_EXECUTE, NO_ID),
        (USER, READ_EXECUTE, uid),
        (GROUP_OBJ, 0, NO_ID),
        (MASK, READ_EXECUTE, NO_ID),
        (OTHER, 0, NO_ID),
    ];
    let mut bytes = VERSION.to_le_bytes().to_vec();
    for (kind, rights, id) in entries {
        bytes.extend(kind.to_le_bytes());
        bytes.extend(rights.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

/// Lets a user read and execute a file of this process's own user, and do nothing else with it: he is not its owner, and
/// can neither change it nor its rights.
///
/// # Errors
/// The file system has no access control lists, say.
pub fn let_user_execute(file: &File, uid: u32) -> io::Result<()> {
    fchmod(file, Mode::from_raw_mode(0o500))?;
    if uid != nix::unistd::geteuid().as_raw() {
        fsetxattr(file, "system.posix_acl_access", &list(uid), XattrFlags::empty())?;
    }
    Ok(())
}

/// Whether some process has a file of this process's own user open for writing: it could not be executed (ETXTBSY).
/// `file` is open for reading. (The kernel gives no lease for reading then.)
pub fn is_open_for_writing(file: &File) -> bool {
    let control = |command: libc::c_int, value: libc::c_int| {
        // SAFETY: the descriptor is open, and both commands take a number.
        unsafe { libc::fcntl(file.as_raw_fd(), command, value) }
    };
    // (Where somebody opens it for writing at this very moment, the kernel sends a signal. SIGIO, unless another is
    // named, would end this process; SIGURG is ignored.)
    control(F_SETSIG, libc::SIGURG);
    if control(libc::F_SETLEASE, libc::F_RDLCK) == 0 {
        control(libc::F_SETLEASE, libc::F_UNLCK);
        return false;
    }
    io::Error::last_os_error().raw_os_error() == Some(libc::EAGAIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_list_has_the_form_of_the_kernel() {
        let list = list(0x0102_0304);
        assert_eq!(list.len(), 4 + 5 * 8);
        assert_eq!(list[..4], [2, 0, 0, 0]);
        assert_eq!(list[12..20], [2, 0, 5, 0, 4, 3, 2, 1]);
    }

    #[test]
    fn who_writes_is_noticed() {
        let writes = tempfile::NamedTempFile::new().expect("made");
        let reads = File::open(writes.path()).expect("there");
        assert!(is_open_for_writing(&reads));
        let path = writes.into_temp_path();
        assert!(!is_open_for_writing(&reads));
        drop(path);
    }

    #[test]
    fn ones_own_file_needs_none() {
        let file = tempfile::NamedTempFile::new().expect("made");
        let own = nix::unistd::geteuid().as_raw();
        let_user_execute(file.as_file(), own).expect("its own");
        let mode = file.as_file().metadata().expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o500);
    }
}
