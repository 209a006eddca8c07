//! Which of the standard descriptors were open when the process began.
//!
//! Rust's runtime opens `/dev/null` in place of a closed stdin, stdout or stderr before `main`, so
//! that a closed stdout would swallow output without a word. Therefore they are looked at earlier:
//! the C library calls the functions listed in the section `.init_array` before Rust's runtime
//! begins.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU8, Ordering};

/// A bit for each of 0, 1 and 2 that was closed.
static CLOSED: AtomicU8 = AtomicU8::new(0);

extern "C" fn look() {
    for fd in 0..=2 {
        // SAFETY: asks only for the flags of a number; where it is not open the answer is EBADF.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } == -1 {
            CLOSED.fetch_or(1 << fd, Ordering::Relaxed);
        }
    }
}

// SAFETY: the section holds pointers to functions that take no arguments (more are passed and
// ignored) and return nothing, as `look` does; it touches only an atomic.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

/// Whether stdin (0), stdout (1) or stderr (2) was closed when the process began.
pub fn closed_at_start(fd: RawFd) -> bool {
    (0..=2).contains(&fd) && CLOSED.load(Ordering::Relaxed) & (1 << fd) != 0
}
