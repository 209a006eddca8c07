//! A process that sends psched's SIGUSR1 with the rights of the user who is to get it.
//!
//! # Problem
//! A front end may execute another program after it has posted, a set-user-ID one too, and its pidfd is
//! then a descriptor of that program. Signals of root's reach every process. A comparison of ids before the
//! signal leaves a gap between the two; so the kernel has to decide, as it does for the user's own kill(2).
//!
//! # Approach
//! For each signal a process takes on all of the user's ids, lays off every capability, sends, and ends.
//! That is a child of a small process ([`SignalHelper::start`]), which psched makes before it has threads,
//! files or much memory. (It can't be a thread of psched's: a user may signal whatever has his ids, and a
//! KILL for one thread ends them all.) A child that its user stops in that moment is killed.
//!
//! The helper has no file but one end of a socket, and ends when psched has closed the other.

use super::nudge::nudge;
use super::reset_inherited;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use std::ffi::{c_int, c_uint};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// How long one signal may take, in milliseconds: it takes none of it.
const SEND_MAX_MS: c_int = 200;

/// The helper's socket; none: the kernel lets this process signal its own user's processes only, so that
/// it needs no helper.
#[derive(Debug)]
pub struct SignalHelper(Option<OwnedFd>);

impl SignalHelper {
    /// Forks the helper, where this process may signal other users' processes.
    ///
    /// # Errors
    /// There can be no more processes, or files.
    pub fn start() -> io::Result<SignalHelper> {
        if !reset_inherited::may_signal_others() {
            return Ok(SignalHelper(None));
        }
        let (ours, its) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        // SAFETY: getpid has no preconditions.
        let parent = unsafe { libc::getpid() };
        // SAFETY: the child runs `serve` and nothing else, which makes system calls only and never returns.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            // SAFETY: right after the fork, in the child.
            0 => unsafe { serve(its.as_raw_fd(), parent) },
            _ => Ok(SignalHelper(Some(ours))),
        }
    }

    /// Has psched's SIGUSR1 sent to a process with this user's rights. That it has been taken does not say
    /// that the kernel has let it through.
    ///
    /// # Errors
    /// The helper is busy, or has ended: the signal is dropped.
    pub fn nudge(&self, process: BorrowedFd<'_>, uid: u32) -> io::Result<()> {
        let Some(helper) = &self.0 else { return nudge(process) };
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut files = SendAncillaryBuffer::new(&mut space);
        let process = [process];
        files.push(SendAncillaryMessage::ScmRights(&process));
        let bytes = uid.to_ne_bytes();
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match rustix::net::sendmsg(helper.as_fd(), &[IoSlice::new(&bytes)], &mut files, flags) {
            Ok(_) => Ok(()),
            Err(Errno::AGAIN) => Err(io::Error::new(
                io::ErrorKind::WouldBlock,
                "the process that sends signals is busy",
            )),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// Lays off this process's rights over other users' processes, which its helper has. To be called before
/// there are other threads.
pub fn leave_users_to_the_helper() {
    if !reset_inherited::no_rights_over_users() {
        tracing::debug!("psched keeps the rights to signal users' processes");
    }
}

/// The helper's life.
///
/// # Safety
/// In a forked child only.
unsafe fn serve(socket: RawFd, parent: libc::pid_t) -> ! {
    // SAFETY (whole block): system calls by their thin wrappers, on memory of this frame.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid() != parent {
            libc::_exit(0);
        }
        libc::prctl(libc::PR_SET_NAME, c"signals".as_ptr());
        reset_inherited::default_signals();
        // What a terminal or a manager sends to all of psched's processes is psched's to heed.
        for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGPIPE] {
            libc::signal(signal, libc::SIG_IGN);
        }
        let socket = if socket == 0 { 0 } else { libc::dup2(socket, 0) };
        if socket != 0 || libc::syscall(libc::SYS_close_range, 1, c_uint::MAX, 0) != 0 {
            libc::_exit(1);
        }
        loop {
            let Some((process, uid)) = next(socket) else { libc::_exit(0) };
            if process >= 0 {
                send(process, uid);
                libc::close(process);
            }
        }
    }
}

/// The next order; `None`: psched has ended. A process below 0: it is none.
///
/// # Safety
/// In a forked child only.
unsafe fn next(socket: RawFd) -> Option<(RawFd, u32)> {
    let mut bytes = [0u8; 4];
    // Room for one descriptor, aligned as a header is.
    let mut space = [0u64; 4];
    // SAFETY (whole block): the message points to memory of this frame, whose sizes it says; the kernel
    // fills in whole headers.
    unsafe {
        let mut part =
            libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: size_of_val(&bytes) };
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = space.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&space) as _;
        let length = loop {
            let length = libc::recvmsg(socket, &raw mut message, libc::MSG_CMSG_CLOEXEC);
            if length >= 0 || *libc::__errno_location() != libc::EINTR {
                break length;
            }
        };
        if length <= 0 {
            return None;
        }
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        let one = libc::CMSG_LEN(size_of::<RawFd>() as c_uint) as usize;
        let is_file = !header.is_null()
            && (*header).cmsg_level == libc::SOL_SOCKET
            && (*header).cmsg_type == libc::SCM_RIGHTS
            && (*header).cmsg_len as usize == one;
        let process =
            if is_file { libc::CMSG_DATA(header).cast::<RawFd>().read_unaligned() } else { -1 };
        Some((process, u32::from_ne_bytes(bytes)))
    }
}

/// Sends it in a child, and waits for that.
///
/// # Safety
/// In a forked child only.
unsafe fn send(process: RawFd, uid: u32) {
    // SAFETY (whole block): system calls by their thin wrappers. The calls on ids are the bare ones; there
    // is one thread.
    unsafe {
        let child = libc::fork();
        if child < 0 {
            return;
        }
        if child == 0 {
            let taken = libc::syscall(libc::SYS_setresuid, uid, uid, uid) == 0
                && reset_inherited::no_capabilities()
                && nudge(BorrowedFd::borrow_raw(process)).is_ok();
            libc::_exit(i32::from(!taken));
        }
        let end = libc::syscall(libc::SYS_pidfd_open, child, 0) as RawFd;
        if end >= 0 {
            let mut ended = libc::pollfd { fd: end, events: libc::POLLIN, revents: 0 };
            libc::poll(&raw mut ended, 1, SEND_MAX_MS);
            libc::close(end);
        }
        // It is not reaped yet, so the number is its own.
        libc::kill(child, libc::SIGKILL);
        while libc::waitpid(child, std::ptr::null_mut(), 0) < 0
            && *libc::__errno_location() == libc::EINTR
        {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Pid, PidfdFlags, pidfd_open};
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};
    use std::time::{Duration, Instant};

    /// A process of this user's, which USR1 ends.
    fn sleeper(uid: u32) -> (Child, OwnedFd) {
        let child = Command::new("sleep").arg("60").uid(uid).spawn().expect("started");
        let pid = Pid::from_raw(child.id() as i32).expect("a pid");
        (child, pidfd_open(pid, PidfdFlags::empty()).expect("opened"))
    }

    fn ended(child: &mut Child, bound: Duration) -> bool {
        let until = Instant::now() + bound;
        while Instant::now() < until {
            if child.try_wait().expect("asked").is_some() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        false
    }

    #[test]
    fn the_kernel_decides_by_the_users_ids() {
        let own = nix::unistd::geteuid().as_raw();
        let helper = SignalHelper::start().expect("started");
        let (mut his, his_fd) = sleeper(if own == 0 { 61_301 } else { own });
        let (mut roots, roots_fd) = sleeper(own);
        if own == 0 {
            // As a front end would be that has become root.
            helper.nudge(roots_fd.as_fd(), 61_301).expect("taken");
        }
        let uid = if own == 0 { 61_301 } else { own };
        helper.nudge(his_fd.as_fd(), uid).expect("taken");
        // In order: when this one has come, the other has been refused.
        assert!(ended(&mut his, Duration::from_secs(60)));
        assert!(roots.try_wait().expect("asked").is_none(), "root's process got it");
        helper.nudge(roots_fd.as_fd(), own).expect("taken");
        assert!(ended(&mut roots, Duration::from_secs(60)));
    }
}
