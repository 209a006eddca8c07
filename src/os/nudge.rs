//! psched's SIGUSR1 to an aprun, which says "look", and telling it from everybody else's.
//!
//! # Problem
//! aprun passes USR1 on to its PEs, where it kills a program that does not expect it; psched's own
//! must never go there. The kernel names the sender's pid. But an aprun that was stopped, or could
//! not connect for a while, may never have met the psched that sent it: that one was started and has
//! died meanwhile, and its pid says nothing.
//!
//! # Approach
//! psched's signal bears a value, as one of sigqueue(3) does. A user who sends an aprun of his own the
//! same value tells it to look, which does no harm.

use nix::libc;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The value that psched's USR1 bears.
const MARK: u32 = 0x7073_6368;

/// siginfo_t of a signal that bears a value, on 64-bit Linux.
#[repr(C)]
struct Queued {
    signal: libc::c_int,
    errno: libc::c_int,
    code: libc::c_int,
    _align: libc::c_int,
    pid: libc::pid_t,
    uid: libc::uid_t,
    value: usize,
    _rest: [usize; 12],
}

const _: () = assert!(size_of::<Queued>() == size_of::<libc::siginfo_t>());

/// Sends it.
///
/// # Errors
/// The process has ended, or may not be signalled.
pub fn nudge(process: BorrowedFd<'_>) -> io::Result<()> {
    let info = Queued {
        signal: libc::SIGUSR1,
        errno: 0,
        code: libc::SI_QUEUE,
        _align: 0,
        pid: nix::unistd::getpid().as_raw(),
        uid: nix::unistd::getuid().as_raw(),
        value: MARK as usize,
        _rest: [0; 12],
    };
    let (fd, signal, info) = (process.as_raw_fd(), libc::SIGUSR1, &raw const info);
    // SAFETY: no library has this call with a siginfo_t; the kernel reads one from where `info`
    // points, which is as long as one and lives through the call.
    let done = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, signal, info, 0) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A signal that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Came {
    /// Which.
    pub signal: i32,
    /// The process that sent it, where one did.
    pub sender: Option<i32>,
    /// It is psched's.
    pub nudge: bool,
}

/// Reads what the kernel says of a signal.
pub fn came(info: &libc::siginfo_t) -> Came {
    let (signal, code) = (info.si_signo, info.si_code);
    let sent = matches!(code, libc::SI_USER | libc::SI_QUEUE | libc::SI_TKILL);
    // SAFETY: these codes are of signals that processes send, whose siginfo_t has the sender's pid.
    let sender = sent.then(|| unsafe { info.si_pid() });
    // SAFETY: with this code it has a value.
    let value = (code == libc::SI_QUEUE).then(|| unsafe { info.si_value() }.sival_ptr as usize);
    // Of sigqueue(3)'s int, which others give, the rest is not said.
    let value = value.map(|value| value as u32);
    Came { signal, sender, nudge: signal == libc::SIGUSR1 && value == Some(MARK) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::signal::{Signal, kill};
    use rustix::process::{PidfdFlags, getpid, pidfd_open};
    use signal_hook::iterator::SignalsInfo;
    use signal_hook::iterator::exfiltrator::raw::WithRawSiginfo;
    use std::os::fd::AsFd;

    #[test]
    fn it_is_told_from_others() {
        let mut signals =
            SignalsInfo::with_exfiltrator([libc::SIGUSR1], WithRawSiginfo).expect("caught");
        let mut next = || signals.wait().next().map(|info| came(&info));
        let own = nix::unistd::getpid();
        let came = |nudge| Came { signal: libc::SIGUSR1, sender: Some(own.as_raw()), nudge };
        kill(own, Signal::SIGUSR1).expect("sent");
        assert_eq!(next(), Some(came(false)));
        let process = pidfd_open(getpid(), PidfdFlags::empty()).expect("opened");
        nudge(process.as_fd()).expect("sent");
        assert_eq!(next(), Some(came(true)));
    }
}
