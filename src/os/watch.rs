//! Descriptors in tokio's event loop.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Waits for a descriptor (a pidfd, a pipe, a socket) with tokio.
///
/// # Errors
/// The descriptor is of a kind that epoll does not take, or no tokio runs.
pub fn watch(fd: Arc<OwnedFd>, interest: Interest) -> io::Result<AsyncFd<Arc<OwnedFd>>> {
    // SAFETY: an OwnedFd is open and keeps its number until it is dropped, and the AsyncFd, which
    // deregisters first, holds it till then; nobody can replace what is inside the Arc.
    unsafe { AsyncFd::register_with_interest(fd, interest) }.map_err(io::Error::from)
}
