//! Making a PE: fork, everything between fork and execve, and what the parent asks of the kernel
//! about it afterwards.
//!
//! apshepherd has one thread, and all memory that the child needs is laid out before the fork
//! ([`Program`], [`PeSetup`]): between fork and execve the child makes system calls and nothing
//! else. What goes wrong there comes up a pipe as a [`Failure`]: which step, which errno.
//!
//! In order, the child
//!  1. drops its parent's right to put it into its group ([`super::placing`]), will be killed when its
//!     parent dies, and makes a session (so no terminal's ^C meets it, and a
//!     shell in it can make jobs of its own);
//!  2. has default signals, its umask, directory and processors, and is as nice as it is to be;
//!  3. has its four files, all others being closed: 0, 1, 2 and, for PMI, [`PMI_FD`];
//!  4. has its limits;
//!  5. is traced by its parent, so that it stops when execve has succeeded, before its first
//!     instruction.
//!
//! A process that is to trace a PE, and what a PE spawns, is made in the same way: it waits at a gate instead
//! of 5, until the PE stands, or it is in the PE's group.
//!
//! Signals that the parent blocks are unblocked right before execve. One that comes there stops the
//! child, which is traced, and the parent keeps it for later.

use super::clone::{CLONE_INTO_CGROUP, CloneArgs};
use super::placing::Placing;
use super::reset_inherited;
use std::ffi::{CString, c_char, c_int, c_uint, c_ulong};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::time::Duration;

/// Number of the PMI connection in a PE. Low numbers belong to shell scripts (`exec 3<file`), those
/// from 10 on are where shells keep what they move out of the way.
pub const PMI_FD: RawFd = 29;

/// Where a child that waits has its gate.
const GATE_FD: RawFd = 3;

/// Files that the parent hands to children are numbered from here on, so that moving them to their
/// places never tramples on another one.
const HIGH: RawFd = 32;

/// What the child was about when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Step {
    /// setsid, or the death signal.
    Session = 1,
    /// chdir.
    Directory = 2,
    /// sched_setaffinity.
    Affinity = 3,
    /// dup and close.
    Files = 4,
    /// setrlimit.
    Limits = 5,
    /// ptrace.
    Trace = 6,
    /// execve.
    Exec = 7,
    /// nice.
    Yield = 8,
    /// capset.
    Rights = 9,
}

/// What a child says up the pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Which child: the `index` of its setup.
    pub index: u32,
    /// Where it failed.
    pub step: Step,
    /// Why.
    pub errno: i32,
}

impl Failure {
    /// Bytes of one on the pipe.
    pub const SIZE: usize = 12;

    /// One from its bytes.
    pub fn parse(bytes: &[u8; Failure::SIZE]) -> Option<Failure> {
        let word = |at: usize| {
            u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let step = match word(4) {
            1 => Step::Session,
            2 => Step::Directory,
            3 => Step::Affinity,
            4 => Step::Files,
            5 => Step::Limits,
            6 => Step::Trace,
            7 => Step::Exec,
            8 => Step::Yield,
            9 => Step::Rights,
            _ => return None,
        };
        Some(Failure { index: word(0), step, errno: word(8) as i32 })
    }
}

/// A resource limit to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetLimit {
    resource: c_uint,
    limit: libc::rlimit64,
}

impl SetLimit {
    /// This soft limit, within the hard one that there is. `None`: no such resource.
    pub fn soft(resource: u32, soft: u64) -> Option<SetLimit> {
        SetLimit::both(resource, soft, u64::MAX)
    }

    /// A soft and a hard limit, within the hard one that there is.
    pub fn both(resource: u32, soft: u64, hard: u64) -> Option<SetLimit> {
        let mut limit = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the pointer is to a live rlimit64.
        if unsafe { libc::getrlimit64(resource, &mut limit) } != 0 {
            return None;
        }
        let rlim_max = limit.rlim_max.min(hard);
        Some(SetLimit {
            resource,
            limit: libc::rlimit64 { rlim_cur: soft.min(rlim_max), rlim_max },
        })
    }
}

/// What all PEs that execute one program have in common.
#[derive(Debug)]
pub struct Program {
    /// The path to execute, after the change of directory.
    pub executable: CString,
    /// argv.
    pub arguments: Vec<CString>,
    /// NAME=VALUE; the same for all programs of an application.
    pub environment: Rc<[CString]>,
    /// Working directory.
    pub directory: CString,
    /// File mode creation mask.
    pub umask: u32,
    /// Limits.
    pub limits: Vec<SetLimit>,
}

/// What is one PE's own.
#[derive(Debug)]
pub struct PeSetup<'a> {
    /// By which a [`Failure`] names it.
    pub index: u32,
    /// NAME=VALUE, beside the program's.
    pub environment: Vec<CString>,
    /// Processors; empty: any.
    pub cpus: &'a [u32],
    /// How much nicer than the caller, 0 to 19.
    pub nice: u32,
    /// stdin, stdout and stderr. These and the others must come from [`high`].
    pub stdio: [BorrowedFd<'a>; 3],
    /// The connection that becomes [`PMI_FD`].
    pub pmi: Option<BorrowedFd<'a>>,
    /// The directory of the control group to be born in.
    pub group: Option<BorrowedFd<'a>>,
    /// The caller's right to put it there, where the group is root's and the caller is not.
    pub placing: Option<&'a Placing>,
    /// It is no PE (it is to trace one, or to start what one spawns): it executes once this pipe has a byte, and is not traced itself.
    pub gate: Option<BorrowedFd<'a>>,
    /// What descends from the caller is to trace it, also where the kernel lets ancestors only.
    pub lends: bool,
    /// Where failures are written.
    pub failures: BorrowedFd<'a>,
}

/// The same file under a number that [`PeSetup`] may use, closed on execve.
///
/// # Errors
/// No more files can be opened.
pub fn high(fd: OwnedFd) -> io::Result<OwnedFd> {
    if fd.as_raw_fd() >= HIGH {
        return Ok(fd);
    }
    // SAFETY: fcntl on an open descriptor.
    let new = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, HIGH) };
    if new < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: fcntl has just made it, nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(new) })
}

/// Forks a PE. It executes its program by itself; the parent hears of it by
/// [`wait_any`] and of failures by the pipe.
///
/// # Errors
/// The fork failed.
pub fn fork_pe(program: &Program, pe: &PeSetup<'_>) -> io::Result<i32> {
    let pointers = |strings: &[CString]| -> Vec<*const c_char> {
        strings.iter().map(|s| s.as_ptr()).collect()
    };
    let mut argv = pointers(&program.arguments);
    argv.push(std::ptr::null());
    let mut envp = pointers(&program.environment);
    envp.extend(pointers(&pe.environment));
    envp.push(std::ptr::null());
    let mask = cpu_mask(pe.cpus);
    // SAFETY: getpid has no preconditions.
    let parent = unsafe { libc::getpid() };

    let mut args = CloneArgs { exit_signal: libc::SIGCHLD as u64, ..CloneArgs::default() };
    if let Some(group) = pe.group {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = group.as_raw_fd() as u64;
    }
    let mut clone = || {
        // SAFETY: no shared memory and no stack of its own: this is fork, and in the child (the
        // only thread, as in the parent) nothing but `become_pe` runs, which never returns.
        let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw mut args, size_of::<CloneArgs>()) };
        if pid == -1 { Err(io::Error::last_os_error()) } else { Ok(pid) }
    };
    let pid = match pe.placing {
        Some(placing) => placing.within(clone)?,
        None => clone(),
    };
    let pid = match pid {
        // Some containers filter it out.
        // SAFETY: as above.
        Err(e) if pe.group.is_none() && e.raw_os_error() == Some(libc::ENOSYS) => unsafe {
            match libc::fork() {
                -1 => return Err(io::Error::last_os_error()),
                pid => pid.into(),
            }
        },
        pid => pid?,
    };
    match pid {
        // SAFETY: all pointers live in this frame, of which the child has a copy.
        0 => unsafe { become_pe(program, pe, &argv, &envp, &mask, parent) },
        pid => Ok(pid as i32),
    }
}

/// The child, from fork to execve.
///
/// # Safety
/// `argv` and `envp` must end in null. To be called in a child right after its fork.
unsafe fn become_pe(
    program: &Program,
    pe: &PeSetup<'_>,
    argv: &[*const c_char],
    envp: &[*const c_char],
    mask: &[c_ulong],
    parent: libc::pid_t,
) -> ! {
    let failures = pe.failures.as_raw_fd();
    // SAFETY (whole block): system calls by their thin libc wrappers, which neither allocate nor
    // lock, on memory laid out before the fork.
    unsafe {
        let check = |ok: bool, step: Step| {
            if !ok {
                fail(failures, pe.index, step);
            }
        };
        check(pe.placing.is_none() || Placing::disown(), Step::Rights);
        check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) == 0, Step::Session);
        if libc::getppid() != parent {
            libc::_exit(127);
        }
        check(libc::setsid() >= 0, Step::Session);
        reset_inherited::default_signals();
        libc::umask(program.umask & 0o777);
        check(libc::chdir(program.directory.as_ptr()) == 0, Step::Directory);
        if !mask.is_empty() {
            let bytes = std::mem::size_of_val(mask);
            let done = libc::syscall(libc::SYS_sched_setaffinity, 0, bytes, mask.as_ptr());
            check(done >= 0, Step::Affinity);
        }
        if pe.nice > 0 {
            // What it becomes may be -1 too, which is no failure.
            *libc::__errno_location() = 0;
            let now = libc::nice(pe.nice as c_int);
            check(now != -1 || *libc::__errno_location() == 0, Step::Yield);
        }
        for (to, from) in (0..).zip(&pe.stdio) {
            check(libc::dup2(from.as_raw_fd(), to) == to, Step::Files);
        }
        let mut from: c_uint = 3;
        if let Some(pmi) = pe.pmi {
            check(libc::dup2(pmi.as_raw_fd(), PMI_FD) == PMI_FD, Step::Files);
            close_from_to(3, PMI_FD as c_uint - 1);
            from = PMI_FD as c_uint + 1;
        } else if let Some(gate) = pe.gate {
            check(libc::dup2(gate.as_raw_fd(), GATE_FD) == GATE_FD, Step::Files);
            from = GATE_FD as c_uint + 1;
        }
        // The pipe for failures alone stays, until execve closes it.
        close_from_to(from, failures as c_uint - 1);
        close_from_to(failures as c_uint + 1, c_uint::MAX);
        for SetLimit { resource, limit } in &program.limits {
            check(libc::setrlimit64(*resource, limit) == 0, Step::Limits);
        }
        if pe.lends {
            // (An Err: without Yama everybody of this user may.)
            libc::prctl(libc::PR_SET_PTRACER, parent as c_ulong, 0, 0, 0);
        }
        if pe.gate.is_some() {
            wait_at_gate();
        } else {
            let traced = libc::ptrace(
                libc::PTRACE_TRACEME,
                0,
                std::ptr::null_mut::<libc::c_void>(),
                std::ptr::null_mut::<libc::c_void>(),
            );
            check(traced == 0, Step::Trace);
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
        libc::execve(program.executable.as_ptr(), argv.as_ptr(), envp.as_ptr());
        fail(failures, pe.index, Step::Exec)
    }
}

/// Waits for the byte in [`GATE_FD`], and closes it. Without one there is nothing to do.
///
/// # Safety
/// In a forked child, which has the pipe there.
unsafe fn wait_at_gate() {
    let mut byte = 0u8;
    // SAFETY: system calls on an open descriptor and a live byte; _exit runs nothing of the parent's.
    unsafe {
        loop {
            match libc::read(GATE_FD, (&raw mut byte).cast(), 1) {
                1 => break,
                -1 if *libc::__errno_location() == libc::EINTR => {}
                _ => libc::_exit(127),
            }
        }
        libc::close(GATE_FD);
    }
}

/// # Safety
/// In a forked child: closes files that Rust thinks are owned.
unsafe fn close_from_to(from: c_uint, to: c_uint) {
    if from <= to {
        // SAFETY: the caller's promise; flags 0.
        unsafe { libc::syscall(libc::SYS_close_range, from, to, 0) };
    }
}

/// Says what failed, by errno, and ends.
fn fail(failures: RawFd, index: u32, step: Step) -> ! {
    // SAFETY: errno's address is this thread's; write of a live array; _exit ends the child
    // without running anything of the parent's.
    unsafe {
        let errno = *libc::__errno_location();
        let words = [index, step as u32, errno as u32];
        libc::write(failures, words.as_ptr().cast(), Failure::SIZE);
        libc::_exit(127)
    }
}

/// Processors as the kernel takes them: a bit each, as many words as it takes.
fn cpu_mask(cpus: &[u32]) -> Vec<c_ulong> {
    const BITS: usize = c_ulong::BITS as usize;
    // More than any kernel has: the mask stays small whatever the number says.
    const CPUS_MAX: usize = 1 << 16;
    let Some(highest) = cpus.iter().max() else { return Vec::new() };
    let words = (*highest as usize).min(CPUS_MAX) / BITS + 1;
    let mut mask = vec![0; words];
    for cpu in cpus {
        if let Some(word) = mask.get_mut(*cpu as usize / BITS) {
            *word |= 1 << (*cpu as usize % BITS);
        }
    }
    mask
}

/// What became of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is traced and stands, with this signal.
    Stopped(i32),
    /// It exited with this code.
    Exited(u8),
    /// It died by this signal.
    Died(i32),
}

/// What a child and those of its own that it waited for have used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    /// User CPU time.
    pub utime: Duration,
    /// System CPU time.
    pub stime: Duration,
    /// Its largest resident set, in KiB.
    pub max_rss_kib: u64,
    /// Blocks read.
    pub inblocks: u64,
    /// Blocks written.
    pub outblocks: u64,
}

/// A child of which there is news. One that has ended is gone after this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Child {
    /// Which.
    pub pid: i32,
    /// What.
    pub change: Change,
    /// What it and those of its own that it waited for have used.
    pub used: Used,
}

/// The answer of [`wait_any`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// News.
    News(Child),
    /// There are children, and no news of them.
    Nothing,
    /// There is no child.
    NoChild,
}

/// The pid of a child that has ended and is not waited for yet, and its session; `None`: there is no
/// such child, or it can't be told.
pub fn session_of_ended() -> Option<(i32, i32)> {
    // SAFETY: a siginfo of zeros is one, and the pointer is to live memory of that type.
    let pid = unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
        if libc::waitid(libc::P_ALL, 0, &mut info, flags) != 0 {
            return None;
        }
        info.si_pid()
    };
    // SAFETY: getsid has no preconditions.
    let session = unsafe { libc::getsid(pid) };
    (pid > 0 && session > 0).then_some((pid, session))
}

/// Asks for news of any child, without waiting.
pub fn wait_any() -> Waited {
    wait(-1)
}

/// Asks for news of this child, without waiting. (By nix's waitpid the news of one that died by a real-time signal is lost.)
pub fn wait_for(pid: libc::pid_t) -> Waited {
    wait(pid)
}

fn wait(whom: libc::pid_t) -> Waited {
    let mut status: c_int = 0;
    // SAFETY: an rusage of zeros is one.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    let pid = loop {
        // SAFETY: both pointers are to live memory of the right types.
        let pid =
            unsafe { libc::wait4(whom, &mut status, libc::WNOHANG | libc::__WALL, &mut usage) };
        if pid >= 0 {
            break pid;
        }
        if io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            return Waited::NoChild;
        }
    };
    if pid == 0 {
        return Waited::Nothing;
    }
    let change = if libc::WIFSTOPPED(status) {
        Change::Stopped(libc::WSTOPSIG(status))
    } else if libc::WIFSIGNALED(status) {
        Change::Died(libc::WTERMSIG(status))
    } else {
        Change::Exited(libc::WEXITSTATUS(status) as u8)
    };
    let time = |t: libc::timeval| {
        Duration::new(t.tv_sec.max(0) as u64, t.tv_usec.clamp(0, 999_999) as u32 * 1000)
    };
    let used = Used {
        utime: time(usage.ru_utime),
        stime: time(usage.ru_stime),
        max_rss_kib: usage.ru_maxrss.max(0) as u64,
        inblocks: usage.ru_inblock.max(0) as u64,
        outblocks: usage.ru_oublock.max(0) as u64,
    };
    Waited::News(Child { pid, change, used })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_beyond_1024_have_their_bit() {
        assert!(cpu_mask(&[]).is_empty());
        assert_eq!(cpu_mask(&[0, 3]), [9]);
        let mask = cpu_mask(&[2050]);
        assert_eq!((mask.len(), mask[32]), (33, 4));
    }

    #[test]
    fn soft_limits_stay_within_the_hard_one() {
        let limit = SetLimit::soft(libc::RLIMIT_CORE, u64::MAX).expect("RLIMIT_CORE").limit;
        assert_eq!(limit.rlim_cur, limit.rlim_max);
        assert_eq!(SetLimit::soft(4711, 1), None);
    }

    #[test]
    fn failures_come_back() {
        let mut bytes = [0; Failure::SIZE];
        for (at, word) in [7u32, Step::Exec as u32, 2].into_iter().enumerate() {
            bytes[at * 4..][..4].copy_from_slice(&word.to_ne_bytes());
        }
        assert_eq!(Failure::parse(&bytes), Some(Failure { index: 7, step: Step::Exec, errno: 2 }));
        bytes[4] = 99;
        assert_eq!(Failure::parse(&bytes), None);
    }
}
