//! Starting an apshepherd: clone3 into its group, the owner's groups, exec.
//!
//! apinit may have other threads (those that wait for files), so between clone3 and execve the child
//! makes system calls and nothing else: whatever needs memory is laid out before ([`Spawn`]). A
//! process is *born* in its control group, because moving one there later takes milliseconds.
//!
//! What dumps and restores shepherds (CRIU) is started in the same way, in namespaces of the shepherd's
//! or new ones.

use super::clone::{CLONE_INTO_CGROUP, CLONE_PIDFD, CloneArgs};
use super::reset_inherited;
use super::space::{Space, Step};
use std::ffi::{CString, c_char, c_int};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

const CLOSE_RANGE_CLOEXEC: libc::c_uint = 4;

/// Whose groups it is to have. Its user id it takes itself, first of all ([`reset_inherited::become_user`]): if
/// it had that before its execve, the user could trace it from there until it forbids that, where he
/// may read its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ids {
    /// Group id.
    pub gid: u32,
    /// Supplementary groups; `None`: the caller's, because they are the same. (Where a user
    /// namespace denies setgroups, nobody may set even those.)
    pub groups: Option<Vec<u32>>,
}

/// Namespaces that a program is started in, where they are not the caller's.
#[derive(Clone, Copy, Debug, Default)]
pub struct Namespaces<'a> {
    /// The mount namespace to join. The program is found in there.
    pub mounts: Option<BorrowedFd<'a>>,
    /// The PID namespace to join.
    pub pids: Option<BorrowedFd<'a>>,
    /// A mount namespace like the caller's and a PID namespace of its own, in which it is the first
    /// process: when it ends, the kernel ends all others. It has to mount /proc anew.
    pub first: bool,
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
    /// Its groups, and without the caller's settings (see [`reset_inherited`]); `None`: as the caller is.
    pub ids: Option<Ids>,
    /// Where it is to be; `None`: where the caller is.
    pub space: Option<&'a Space>,
    /// Its soft limit of open files; `None`: the caller's.
    pub soft_files: Option<u64>,
    /// Its namespaces. All of these need root.
    pub within: Namespaces<'a>,
}

/// A started process.
#[derive(Debug)]
pub struct Spawned {
    /// Its pid. It is to be waited for.
    pub pid: i32,
    /// A descriptor of it.
    pub pidfd: OwnedFd,
    /// Brings a [`Failure`] if it could not be executed; else ends without a byte.
    pub failure: OwnedFd,
}

/// Why there is no program.
#[derive(Debug)]
pub struct Failure {
    /// What of its space could not be made; `None`: something else, execve mostly.
    pub step: Option<Step>,
    /// Why.
    pub error: io::Error,
}

impl Failure {
    /// Bytes of one on the pipe.
    pub const SIZE: usize = 8;

    /// One from its bytes.
    pub fn parse(bytes: [u8; Failure::SIZE]) -> Failure {
        let [a, b, c, d, errno @ ..] = bytes;
        let error = io::Error::from_raw_os_error(i32::from_ne_bytes(errno));
        Failure { step: Step::parse(u32::from_ne_bytes([a, b, c, d])), error }
    }
}

/// Starts it. Returns before its execve: see [`Spawned::failure`].
///
/// # Errors
/// Those of pipe2, clone3 (EACCES, EBUSY, ENOENT: the group can't be used) and setns (EPERM: a
/// namespace of another's).
pub fn spawn(spawn: &Spawn<'_>) -> io::Result<Spawned> {
    let Some(pids) = spawn.within.pids else { return spawn_here(spawn) };
    // A PID namespace is joined by the children of the thread that asks for it: one of its own, so that
    // nothing has to be taken back.
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, || {
            // SAFETY: an open descriptor; for PID namespaces nothing of this thread's own changes.
            if unsafe { libc::setns(pids.as_raw_fd(), libc::CLONE_NEWPID) } != 0 {
                return Err(io::Error::last_os_error());
            }
            spawn_here(spawn)
        })?;
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread that forks has failed")))
    })
}

fn spawn_here(spawn: &Spawn<'_>) -> io::Result<Spawned> {
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
    if spawn.within.first {
        args.flags |= (libc::CLONE_NEWPID | libc::CLONE_NEWNS) as u64;
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
        let fail = |step: u32| -> ! {
            let words = [step, *libc::__errno_location() as u32];
            libc::write(tell, words.as_ptr().cast(), Failure::SIZE);
            libc::_exit(127)
        };
        let check = |ok: bool| {
            if !ok {
                fail(0);
            }
        };
        check(libc::setsid() >= 0);
        reset_inherited::default_signals();
        check(libc::dup2(null, 0) == 0 && libc::dup2(null, 1) == 1);
        libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, CLOSE_RANGE_CLOEXEC);
        for fd in keep {
            check(libc::fcntl(*fd, libc::F_SETFD, 0) == 0);
        }
        if let Some(mounts) = spawn.within.mounts {
            check(libc::setns(mounts.as_raw_fd(), libc::CLONE_NEWNS) == 0);
        }
        // Still with root's rights, and before other ids would own it.
        if let Some(Err(step)) = spawn.space.map(|space| space.enter()) {
            fail(step as u32);
        }
        if let Some(soft) = spawn.soft_files {
            let mut limit: libc::rlimit64 = std::mem::zeroed();
            check(libc::getrlimit64(libc::RLIMIT_NOFILE, &mut limit) == 0);
            limit.rlim_cur = soft.min(limit.rlim_max);
            check(libc::setrlimit64(libc::RLIMIT_NOFILE, &limit) == 0);
        }
        if let Some(ids) = &spawn.ids {
            reset_inherited::settings();
            if let Some(groups) = &ids.groups {
                check(libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) == 0);
            }
            check(libc::syscall(libc::SYS_setresgid, ids.gid, ids.gid, ids.gid) == 0);
            check(reset_inherited::rights(0));
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::pthread_sigmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
        libc::execve(spawn.program.as_ptr(), argv.as_ptr(), envp.as_ptr());
        fail(0)
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
            space: None,
            soft_files: None,
            within: Namespaces::default(),
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
    fn it_is_where_it_is_to_be() {
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        let start = |script: &str, within: Namespaces<'_>| {
            spawn(&Spawn {
                program: c("/bin/sh"),
                arguments: vec![c("sh"), c("-c"), c(script)],
                environment: vec![c("PATH=/usr/bin:/bin")],
                keep: vec![],
                group: None,
                ids: None,
                space: None,
                soft_files: None,
                within,
            })
        };
        let ended = |spawned: &Spawned| {
            let mut status = 0;
            // SAFETY: the pointer is to a live int.
            assert_eq!(unsafe { libc::waitpid(spawned.pid, &mut status, 0) }, spawned.pid);
            libc::WEXITSTATUS(status)
        };
        // Containers may forbid it.
        let first = Namespaces { first: true, ..Namespaces::default() };
        let Ok(first) = start("[ $$ = 1 ] || exit 3; exec sleep 1000", first) else { return };
        let path = |kind: &str| format!("/proc/{}/ns/{kind}", first.pid);
        let open = |kind| std::fs::File::open(path(kind)).expect("its namespace");
        let name = |path: &str| std::fs::read_link(path).expect("its name").display().to_string();
        let (mounts, pids) = (open("mnt"), open("pid"));
        let (own, theirs) = (name("/proc/self/ns/pid"), name(&path("pid")));
        assert_ne!(own, theirs);
        let both =
            Namespaces { mounts: Some(mounts.as_fd()), pids: Some(pids.as_fd()), first: false };
        let script = format!("[ \"$(readlink /proc/self/ns/pid)\" = '{theirs}' ] && exit 4");
        let second = start(&script, both).expect("it starts there");
        assert_eq!(ended(&second), 4);
        assert_eq!(name("/proc/self/ns/pid"), own);
        // SAFETY: a child of ours that has not been waited for.
        unsafe { libc::kill(first.pid, libc::SIGKILL) };
        ended(&first);
        let refused = Namespaces { pids: Some(mounts.as_fd()), ..Namespaces::default() };
        assert!(start("exit 0", refused).is_err());
    }

    #[test]
    fn what_cannot_be_executed_tells_why() {
        let (said, code) = run("/no/such/file", "", &[]);
        let failure = Failure::parse(said.try_into().expect("one whole"));
        assert_eq!((failure.step, failure.error.raw_os_error()), (None, Some(libc::ENOENT)));
        assert_eq!(code, 127);
    }
}
