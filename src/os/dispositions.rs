//! What signals do to this process before it asks for anything else.

use nix::sys::signal::{SigHandler, SigSet, Signal, signal};
use std::io;

/// Ignores a signal from now on.
///
/// # Errors
/// The signal can't be ignored.
pub fn ignore(which: Signal) -> io::Result<()> {
    // SAFETY: no handler of ours is installed, only the kernel's own disposition.
    unsafe { signal(which, SigHandler::SigIgn) }?;
    Ok(())
}

/// Ends this process by a signal, as if it had never been caught.
#[allow(clippy::disallowed_methods)] // A signal runs no destructors either.
pub fn end_by(which: Signal) -> ! {
    // SAFETY: no handler of ours is installed, only the kernel's own disposition.
    let default = unsafe { signal(which, SigHandler::SigDfl) };
    // (An Err, or one that does not end it: the status says the same.)
    let _ = default.and_then(|_| nix::sys::signal::raise(which));
    std::process::exit(128 + which as i32)
}

/// Lets all signals come that the starter of this program may have blocked: a daemon that hears of
/// no child's end, and of no TERM, is of no use. To be called before there are other threads.
///
/// # Errors
/// Those of pthread_sigmask.
pub fn unblock_all() -> io::Result<()> {
    SigSet::empty().thread_set_mask()?;
    Ok(())
}

/// Whether a signal is ignored, as it is under nohup or in a background job of a shell without job
/// control. To be asked before a handler is installed.
pub fn is_ignored(which: Signal) -> bool {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: without a new action the call only fills in the old one.
    unsafe {
        libc::sigaction(which as libc::c_int, std::ptr::null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignoring() {
        assert!(!is_ignored(Signal::SIGTTIN));
        ignore(Signal::SIGTTIN).expect("may be ignored");
        assert!(is_ignored(Signal::SIGTTIN));
        assert!(ignore(Signal::SIGKILL).is_err());
    }
}
