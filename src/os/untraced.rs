//! Executing a program of psched's own as a user, which no other process of that user may trace at any instant.
//!
//! # Problem
//! Between its execve and its first system call a program may be traced by whoever has its user's id, and then be made
//! to do anything: outside of all turns, and in a control group that no program is to be in.
//!
//! # Approach
//! The kernel lets nobody trace a process that has a capability which he has not. So it is executed with the one that the
//! apshepherd keeps for its PEs ([`super::placing`]), among its ambient ones, and gives it up as its first act
//! ([`is_safe`]), when it has said that it is not to be traced. Where the apshepherd has none, its user has started all of
//! it himself, or the host has no control groups, where no process is held anyway.

use super::capabilities::{NONE, set};
use super::placing::Placing;
use super::reset_inherited;
use std::ffi::{CString, c_char, c_int, c_uint};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Where the program has its one file.
pub const OWN_FD: RawFd = 3;
/// Its exit status if it can't be executed.
pub const NOT_EXECUTED: u8 = 127;

/// A program to be executed.
#[derive(Debug)]
pub struct Untraced<'a> {
    /// Its path.
    pub program: &'a Path,
    /// The whole of its environment.
    pub environment: &'a [(&'a str, String)],
    /// The most bytes of data that it may have.
    pub data_max: u64,
    /// What keeps others from it.
    pub guard: Option<&'a Placing>,
}

impl Untraced<'_> {
    /// Forks a child that executes it; its pid. It has `file` as [`OWN_FD`] and no other; its stdin, stdout and stderr
    /// are /dev/null; signals that the parent blocks stay blocked. The caller has one thread.
    ///
    /// # Errors
    /// No process can be made, or a text has a null byte.
    pub fn start(&self, file: BorrowedFd<'_>) -> io::Result<i32> {
        let program = CString::new(self.program.as_os_str().as_bytes())?;
        let environment = self.environment.iter();
        let environment: Vec<CString> = environment
            .map(|(name, value)| CString::new(format!("{name}={value}")))
            .collect::<Result<_, _>>()?;
        let argv = [program.as_ptr(), std::ptr::null()];
        let mut envp: Vec<*const c_char> = environment.iter().map(|item| item.as_ptr()).collect();
        envp.push(std::ptr::null());
        // SAFETY: the caller has one thread; the child makes system calls on memory that is laid out, and nothing else.
        unsafe {
            let parent = libc::getpid();
            match libc::fork() {
                -1 => Err(io::Error::last_os_error()),
                0 => {
                    self.execute(&argv, &envp, file.as_raw_fd(), parent);
                    libc::_exit(c_int::from(NOT_EXECUTED))
                }
                pid => Ok(pid),
            }
        }
    }

    /// The child, from fork to execve. It comes back if something has failed.
    ///
    /// # Safety
    /// Both lists end in null. To be called in a child right after its fork.
    unsafe fn execute(
        &self,
        argv: &[*const c_char],
        envp: &[*const c_char],
        file: RawFd,
        parent: libc::pid_t,
    ) {
        // SAFETY (whole block): system calls by their thin libc wrappers, on memory laid out before the fork.
        unsafe {
            // It would find out by the end of its connection, if it could.
            let parent_lives = libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) == 0
                && libc::getppid() == parent;
            let ready = match self.guard {
                Some(_) => Placing::outlasts_execve(),
                None => Placing::disown(),
            };
            reset_inherited::default_signals();
            let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
            let placed = (0..3).all(|to| libc::dup2(null, to) == to)
                && (if file == OWN_FD {
                    libc::fcntl(file, libc::F_SETFD, 0)
                } else {
                    libc::dup2(file, OWN_FD)
                }) >= 0;
            libc::syscall(libc::SYS_close_range, OWN_FD as c_uint + 1, c_uint::MAX, 0);
            let data = libc::rlimit64 { rlim_cur: self.data_max, rlim_max: self.data_max };
            let none = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
            let limited = libc::setrlimit64(libc::RLIMIT_DATA, &data) == 0
                && libc::setrlimit64(libc::RLIMIT_CORE, &none) == 0;
            if parent_lives && ready && placed && limited {
                libc::execve(argv[0], argv.as_ptr(), envp.as_ptr());
            }
        }
    }
}

/// The first act of such a program: from here on no process of its user may trace it, and it has no capability.
///
/// # Errors
/// The kernel refuses, and the program must not go on.
pub fn is_safe() -> io::Result<()> {
    // SAFETY: no pointers.
    let done = unsafe {
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) == 0
            && libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) == 0
    };
    match done && set(&NONE) {
        true => Ok(()),
        false => Err(io::Error::last_os_error()),
    }
}

/// Ends this process without running anything that libraries have for its end.
pub fn end_at_once(code: i32) -> ! {
    // SAFETY: no preconditions.
    unsafe { libc::_exit(code) }
}
