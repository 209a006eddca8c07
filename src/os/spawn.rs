//! Starting an apshepherd: clone3 into its group, the owner's ids, exec.
//!
//! apinit may have other threads (those that wait for files), so between clone3 and execve the child
//! makes system calls and nothing else: whatever needs memory is laid out before ([`Spawn`]). A
//! process is *born* in its control group, because moving one there later takes milliseconds.

use super::clone::{CLONE_INTO_CGROUP, CLONE_PIDFD, CloneArgs};
use std::ffi::{CString, c_char, c_int};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

const CLOSE_RANGE_CLOEXEC: libc::c_uint = 4;

/// Whose process it is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ids {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

/// A program to start. Its stdin and stdout are /dev/null, its stderr is the caller's.
#[derive(Debug)]
pub struct Spawn<'a> {
    /// Path of the executable.
    pub program: CString,
    /// Arguments from argv\[0\] on.
    pub arguments: Vec<CString>,
    /// NAME=VALUE.
    pub environment: Vec<CString>,
    /// Open files that it keeps, under the numbers that they have; all others are closed.
    pub keep: Vec<BorrowedFd<'a>>,
    /// The control group to be born in, a directory.
    pub group: Option<BorrowedFd<'a>>,
    /// Whose it is to be; `None`: the caller's.
    pub ids: Option<Ids>,
}

/// A started process.
#[derive(Debug)]
pub struct Spawned {
    /// Its pid. It is to be waited for.
    pub pid: i32,
    /// A descriptor of it.
    pub pidfd: OwnedFd,
    /// Brings the errno (four bytes) if it could not be executed; else ends without a byte.
    pub failure: OwnedFd,
}

/// Starts it. Returns before its execve: see [`Spawned::failure`].
///
/// # Errors
/// Those of pipe2 and clone3 (EACCES, EBUSY, ENOENT: the group can't be used).
pub fn spawn(spawn: &Spawn<'_>) -> io::Result<Spawned> {
    let pointers = |strings: &[CString]| -> Vec<*const c_char> {
        strings.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let argv = pointers(&spawn.arguments);
    let envp = pointers(&spawn.environment);
    let keep: Vec<RawFd> = spawn.keep.iter().map(AsRawFd::as_raw_fd).collect();
    let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    let mut pipe: [c_int; 2] = [-1, -1];
    // SAFETY: the pointer is to two ints.
    if unsafe { libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: pipe2 has just made both; nobody else owns them.
    let (failure, tell) = unsafe { (OwnedFd::from_raw_fd(pipe[0]), OwnedFd::from_raw_fd(pipe[1])) };
    let mut pidfd: c_int = -1;
    let mut args = CloneArgs {
        flags: CLONE_PIDFD,
        pidfd: (&raw mut pidfd) as u64,
        exit_signal: libc::SIGCHLD as u64,
        ..CloneArgs::default()
    };
    if let Some(group) = spawn.group {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = group.as_raw_fd() as u64;
    }
    // All signals blocked: no handler of ours may run in the child.
    // SAFETY: both sets are live; a zeroed one is filled before use.
    let before = unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        before
    };
    // SAFETY: no memory is shared and there is no stack of its own: this is fork, and in the child
    // nothing but `become_program` runs, which never returns.
    let pid =
        unsafe { libc::syscall(libc::SYS_clone3, &raw mut args, std::mem::size_of::<CloneArgs>()) };
    if pid == 0 {
        // SAFETY: all pointers live in this frame, of which the child has a copy.
        unsafe {
            become_program(spawn, &argv, &envp, &keep, null.as_raw_fd(), tell.as_raw_fd());
        }
    }
    let error = io::Error::last_os_error();
    // SAFETY: the set is the one that was there before.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
    if pid < 0 {
        return Err(error);
    }
    // SAFETY: clone3 has just made it; nobody else owns it.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok(Spawned { pid: pid as i32, pidfd, failure })
}

/// The child, from clone3 to execve.
///
/// # Safety
/// `argv` and `envp` must end in null. To be called in a child right after its fork.
unsafe fn become_program(
    spawn: &Spawn<'_>,
    argv: &[*const c_char],
    envp: &[*const c_char],
    keep: &[RawFd],
    null: RawFd,
    tell: RawFd,
) -> ! {
    // SAFETY (whole block): system calls by thin wrappers, which neither allocate nor lock, on
    // memory laid out before the fork. The ids are set by the bare calls: glibc's would want to
    // set them in the threads that this child does not have.
    unsafe {
        let check = |ok: bool| {
            if !ok {
                let errno = *libc::__errno_location();
                libc::write(tell, (&raw const errno).cast(), 4);
                libc::_exit(127);
            }
        };
        check(libc::setsid() >= 0);
        for signal in 1..=64 {
            // Refused for KILL, STOP and those that glibc keeps for itself: they are default.
            libc::signal(signal, libc::SIG_DFL);
        }
        check(libc::dup2(null, 0) == 0 && libc::dup2(null, 1) == 1);
        libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, CLOSE_RANGE_CLOEXEC);
        for fd in keep {
            check(libc::fcntl(*fd, libc::F_SETFD, 0) == 0);
        }
        if let Some(ids) = &spawn.ids {
            let groups = ids.groups.as_ptr();
            check(libc::syscall(libc::SYS_setgroups, ids.groups.len(), groups) == 0);
            check(libc::syscall(libc::SYS_setresgid, ids.gid, ids.gid, ids.gid) == 0);
            check(libc::syscall(libc::SYS_setresuid, ids.uid, ids.uid, ids.uid) == 0);
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::pthread_sigmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
        libc::execve(spawn.program.as_ptr(), argv.as_ptr(), envp.as_ptr());
        check(false);
        libc::_exit(127)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::AsFd;

    fn c(text: &str) -> CString {
        CString::new(text).expect("no zero in it")
    }

    fn run(program: &str, script: &str, keep: &[&OwnedFd]) -> (Vec<u8>, i32) {
        let spawn_it = Spawn {
            program: c(program),
            arguments: vec![c("sh"), c("-c"), c(script)],
            environment: vec![c("PATH=/usr/bin:/bin")],
            keep: keep.iter().map(|fd| fd.as_fd()).collect(),
            group: None,
            ids: None,
        };
        let spawned = spawn(&spawn_it).expect("it starts");
        let mut said = Vec::new();
        std::fs::File::from(spawned.failure).read_to_end(&mut said).expect("a pipe");
        let mut status = 0;
        // SAFETY: the pointer is to a live int.
        let pid = unsafe { libc::waitpid(spawned.pid, &mut status, 0) };
        assert_eq!(pid, spawned.pid);
        (said, libc::WEXITSTATUS(status))
    }

    #[test]
    fn it_keeps_what_is_said_and_nothing_else() {
        let (kept, other) = (
            std::fs::File::open("/dev/null").expect("there is one"),
            std::fs::File::open("/dev/null").expect("there is one"),
        );
        let (kept, other) = (OwnedFd::from(kept), OwnedFd::from(other));
        let script = format!(
            "[ -e /proc/self/fd/{} ] && [ ! -e /proc/self/fd/{} ] && exit 5",
            kept.as_raw_fd(),
            other.as_raw_fd()
        );
        assert_eq!(run("/bin/sh", &script, &[&kept]), (vec![], 5));
    }

    #[test]
    fn what_cannot_be_executed_tells_why() {
        let (said, code) = run("/no/such/file", "", &[]);
        assert_eq!((said, code), (libc::ENOENT.to_ne_bytes().to_vec(), 127));
    }
}
