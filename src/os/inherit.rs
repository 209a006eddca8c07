//! Descriptors that a parent process handed down by number.

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Takes a descriptor that was named on the command line, and keeps it from being handed further.
///
/// # Errors
/// It is not open, or it is one of stdin, stdout and stderr.
pub fn take(fd: RawFd) -> io::Result<OwnedFd> {
    if fd <= 2 {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "descriptors 0 to 2 are the standard ones",
        ));
    }
    // SAFETY: borrowed for this call only; where it is not open the kernel answers EBADF.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    fcntl(borrowed, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    // SAFETY: it is open, and our parent made it for us: nothing else in this process owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
