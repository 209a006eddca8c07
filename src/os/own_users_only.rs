//! `accept` of the program appmix, which exports it to the PMIx library: it closes connections of other users.
//!
//! # Problem
//! Any user of a host may connect to the port of 127.0.0.1 at which the library listens. It reads what a connection says
//! of itself in the thread that serves all, and waits for it: one who connected and said nothing held up all PEs.
//!
//! # Approach
//! A function that the library calls is looked for in the program first. So this one is in the program only, and not in
//! the crate, whose other programs would call it too. The kernel says whose the other end of a connection is.

#![allow(unsafe_code)]

use psched::node::connection_owner::owner_of_connection;
use std::ffi::c_int;
use std::net::TcpStream;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};

/// The next connection of this user's.
///
/// # Safety
/// As for accept(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accept(
    socket: c_int,
    address: *mut libc::sockaddr,
    length: *mut libc::socklen_t,
) -> c_int {
    // SAFETY: the caller's promise.
    let came = unsafe { libc::accept4(socket, address, length, libc::SOCK_CLOEXEC) };
    if came < 0 {
        return came;
    }
    // SAFETY: it has just been made, and is nobody else's.
    let came = unsafe { OwnedFd::from_raw_fd(came) };
    if let Some(own) = own(came) {
        return own.into_raw_fd();
    }
    // (After any other error the library ends the thread that accepts.)
    nix::errno::Errno::ECONNABORTED.set();
    -1
}

/// This connection, if its other end is this user's.
fn own(connection: OwnedFd) -> Option<OwnedFd> {
    let connection = TcpStream::from(connection);
    let (here, there) = (connection.local_addr().ok()?, connection.peer_addr().ok()?);
    let own = owner_of_connection(there, here) == Some(nix::unistd::geteuid().as_raw());
    own.then(|| connection.into())
}
