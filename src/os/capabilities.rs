//! The capabilities of the calling thread, which no crate here sets without allocating: a forked
//! child may call these functions.

use std::ffi::c_int;

/// `capget` and `capset`: two words for each set. (From linux/capability.h.)
const VERSION_3: u32 = 0x2008_0522;

/// What `capget` and `capset` are told first. The kernel writes its own version where it does not
/// know this one.
#[repr(C)]
struct Header {
    version: u32,
    pid: c_int,
}

impl Header {
    /// Of the calling thread.
    fn own() -> Header {
        Header { version: VERSION_3, pid: 0 }
    }
}

/// Effective, permitted and inheritable capabilities; low words, then high ones.
pub(super) type Sets = [[u32; 3]; 2];
/// No capability in any set.
pub(super) const NONE: Sets = [[0; 3]; 2];

/// Those that it has; `None`: the kernel does not say.
pub(super) fn get() -> Option<Sets> {
    let mut sets = NONE;
    let mut header = Header::own();
    // SAFETY: both pointers are to what version 3 of the interface says.
    let asked = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, sets.as_mut_ptr()) };
    (asked == 0).then_some(sets)
}

/// From now on it has these. Whether that worked; if not, errno says why.
pub(super) fn set(sets: &Sets) -> bool {
    let mut header = Header::own();
    // SAFETY: both pointers are to what version 3 of the interface says.
    unsafe { libc::syscall(libc::SYS_capset, &raw mut header, sets.as_ptr()) == 0 }
}
