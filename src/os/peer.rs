//! Who is at the other end of a unix socket, as the kernel tells it.
//!
//! Three answers are fixed when the peer calls `connect`, whatever it does afterwards: its ids
//! (SO_PEERCRED), its supplementary groups (SO_PEERGROUPS) and a pidfd of it (SO_PEERPIDFD, since
//! Linux 6.5). The pidfd is what makes the pid worth anything: a pid alone may long be another
//! process's.
//!
//! Without SO_PEERPIDFD the pid of SO_PEERCRED is opened, and believed only if the process that has
//! it now started no later than the connection was accepted and has the peer's user id. What that
//! leaves open is a pid that was used again between `connect` and `accept`, by the same user.

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{getsockopt, sockopt};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{SysconfVar, sysconf};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// The peer's ids at the time of its `connect`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Effective user id; the overflow id (65534) where ours is a user namespace that lacks it.
    pub uid: u32,
    /// Effective group id.
    pub gid: u32,
    /// Its pid; 0 where it is not in our pid namespace.
    pub pid: i32,
}

/// SO_PEERCRED.
///
/// # Errors
/// Those of getsockopt: the descriptor is no socket, or not connected.
pub fn credentials(socket: &impl AsFd) -> io::Result<Credentials> {
    let ids = getsockopt(socket, sockopt::PeerCredentials)?;
    Ok(Credentials { uid: ids.uid(), gid: ids.gid(), pid: ids.pid() })
}

/// SO_PEERGROUPS: the peer's supplementary groups, exactly as it had them. (getgrouplist would need
/// an entry in passwd, and would tell of groups that the process does not have.)
///
/// # Errors
/// Those of getsockopt.
pub fn groups(socket: &impl AsFd) -> io::Result<Vec<u32>> {
    // Enough for nearly everybody; the kernel says how many there are if it is not.
    let mut groups: Vec<libc::gid_t> = vec![0; 64];
    loop {
        let mut bytes = libc::socklen_t::try_from(size_of_val(&groups[..]))
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        // SAFETY: the pointer and `bytes` describe the vector's initialised memory, which the call
        // may write to and does not keep; a gid_t may have any value.
        let outcome = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut bytes,
            )
        };
        let count = bytes as usize / size_of::<libc::gid_t>();
        match Errno::result(outcome) {
            Ok(_) => {
                groups.truncate(count);
                return Ok(groups);
            }
            // The peer's groups can't change any more, so that one more turn is enough.
            Err(Errno::ERANGE) if count > groups.len() => groups.resize(count, 0),
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// A process that was found at the other end.
#[derive(Debug)]
pub struct PeerProcess {
    /// A descriptor of it, and of no other process ever.
    pub pidfd: OwnedFd,
    /// When it started, in clock ticks since boot; 0: it had ended before that could be read.
    pub started: u64,
}

/// A pidfd of the peer and when it started; `None` when there is no such process any more, or when
/// the one that has the pid now can't be shown to be the peer.
///
/// `accepted` is [`boot_ticks`] at the time when the connection was accepted.
///
/// # Errors
/// Those of getsockopt and pidfd_open that say nothing about the peer (no descriptors left, say).
pub fn process(
    socket: &impl AsFd,
    peer: Credentials,
    accepted: u64,
) -> io::Result<Option<PeerProcess>> {
    match getsockopt(socket, sockopt::PeerPidfd) {
        Ok(pidfd) => {
            let started = match process_started(peer.pid) {
                Ok(started) if is_running(&pidfd) => started,
                _ => 0,
            };
            Ok(Some(PeerProcess { pidfd, started }))
        }
        Err(Errno::ENOPROTOOPT) => process_by_pid(peer, accepted),
        // It has been waited for already.
        Err(Errno::ESRCH | Errno::ENODATA | Errno::EINVAL) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Whether the process at the other end, or the one that listens there, is known to have ended. (Not known: it
/// is of another pid namespace, or its pid is another's by now.)
pub fn has_ended(socket: &impl AsFd) -> bool {
    let pid = credentials(socket).ok().and_then(|peer| rustix::process::Pid::from_raw(peer.pid));
    let Some(pid) = pid else { return false };
    match rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) {
        Ok(pidfd) => !is_running(&pidfd),
        Err(errno) => errno == rustix::io::Errno::SRCH,
    }
}

/// What [`process`] does on a kernel without SO_PEERPIDFD.
fn process_by_pid(peer: Credentials, accepted: u64) -> io::Result<Option<PeerProcess>> {
    let Some(pid) = rustix::process::Pid::from_raw(peer.pid) else {
        return Ok(None);
    };
    let pidfd = match rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) {
        Ok(pidfd) => pidfd,
        Err(rustix::io::Errno::SRCH | rustix::io::Errno::INVAL) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    };
    let (Ok(started), Ok(uid)) = (process_started(peer.pid), effective_uid(peer.pid)) else {
        return Ok(None);
    };
    // It still runs, so it had the pid all the while since the pidfd was opened, and what was read
    // under that pid was about it.
    let proved = started <= accepted && uid == peer.uid && is_running(&pidfd);
    Ok(proved.then_some(PeerProcess { pidfd, started }))
}

/// A descriptor of the process with this pid that started then; `None`: it has ended.
///
/// # Errors
/// Those of pidfd_open, and of reading /proc, that say nothing about the process: no descriptors left, say. It may
/// live, and is to be looked for again.
pub fn open_process(pid: i32, started: u64) -> io::Result<Option<OwnedFd>> {
    open_process_by(pid, started, |pid| {
        rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())
    })
}

fn open_process_by(
    pid: i32,
    started: u64,
    open: impl FnOnce(rustix::process::Pid) -> rustix::io::Result<OwnedFd>,
) -> io::Result<Option<OwnedFd>> {
    let Some(pid) = rustix::process::Pid::from_raw(pid) else { return Ok(None) };
    let pidfd = match open(pid) {
        Ok(pidfd) => Ok(pidfd),
        Err(rustix::io::Errno::SRCH) => return Ok(None),
        Err(errno) => Err(io::Error::from(errno)),
    };
    // The start time is read after the descriptor was opened, so it is of the same process, or of none. (Where it was
    // not opened, another start shows that the process has ended: its pid is another's, or a thread's.)
    match process_started(pid.as_raw_nonzero().get()) {
        Ok(other) if other != started => Ok(None),
        Ok(_) => pidfd.map(Some),
        Err(error) if is_of_nobody(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether /proc says that there is no such process.
fn is_of_nobody(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(Errno::ESRCH as i32)
}

/// Clock ticks since boot, the unit of [`process_started`].
pub fn boot_ticks() -> u64 {
    let hertz = sysconf(SysconfVar::CLK_TCK).ok().flatten().unwrap_or(100).max(1) as u64;
    let Ok(now) = clock_gettime(ClockId::CLOCK_BOOTTIME) else {
        return 0;
    };
    let (seconds, ns) = (now.tv_sec().max(0) as u64, now.tv_nsec().max(0) as u64);
    // As the kernel rounds: down.
    seconds * hertz + ns / (1_000_000_000 / hertz)
}

/// When a process started, in clock ticks since boot (field 22 of /proc/PID/stat). Together with
/// the pid it names a process for ever.
///
/// # Errors
/// There is no such process, or /proc hides it.
pub fn process_started(pid: i32) -> io::Result<u64> {
    let stat = fs::read(format!("/proc/{pid}/stat"))?;
    start_of(&stat).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Whether a process has a controlling terminal (field 7 of /proc/PID/stat); not where that can't be read.
pub fn has_terminal(pid: i32) -> bool {
    let stat = fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    field(&stat, 7).is_some_and(|terminal: i64| terminal != 0)
}

fn start_of(stat: &[u8]) -> Option<u64> {
    field(stat, 22)
}

/// A field from the third on. Field 2, the name in brackets, may hold anything, brackets and blanks too.
fn field<T: std::str::FromStr>(stat: &[u8], number: usize) -> Option<T> {
    let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let rest = std::str::from_utf8(&stat[after_name..]).ok()?;
    rest.split_ascii_whitespace().nth(number - 3)?.parse().ok()
}

/// From /proc/PID/status: the owner of the folder would be root for a process that is undumpable.
fn effective_uid(pid: i32) -> io::Result<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let uids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    let effective = uids.and_then(|uids| uids.split_ascii_whitespace().nth(1)?.parse().ok());
    effective.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Whether the process of a pidfd has not ended. (It becomes readable at the end.)
pub fn is_running(pidfd: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)];
    matches!(poll(&mut fds, PollTimeout::ZERO), Ok(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Pid, PidfdFlags, pidfd_open};
    use std::os::unix::net::UnixStream;
    use std::process::{Command, Stdio};

    fn own() -> Credentials {
        Credentials {
            uid: nix::unistd::geteuid().as_raw(),
            gid: nix::unistd::getegid().as_raw(),
            pid: nix::unistd::getpid().as_raw(),
        }
    }

    #[test]
    fn the_kernel_tells_who_we_are() {
        let (here, _there) = UnixStream::pair().expect("a pair");
        assert_eq!(credentials(&here).expect("credentials"), own());
        let mut told = groups(&here).expect("groups");
        let mut have: Vec<u32> = nix::unistd::getgroups()
            .expect("own groups")
            .into_iter()
            .map(nix::unistd::Gid::as_raw)
            .collect();
        told.sort_unstable();
        have.sort_unstable();
        assert_eq!(told, have);
    }

    #[test]
    fn both_ways_to_the_process_agree() {
        let (here, _there) = UnixStream::pair().expect("a pair");
        let now = boot_ticks();
        let started = process_started(own().pid).expect("our own stat");
        assert!(started > 0 && started <= now);
        let found = process(&here, own(), now).expect("allowed").expect("we run");
        assert_eq!(found.started, started);
        let found = process_by_pid(own(), now).expect("allowed").expect("we run");
        assert_eq!(found.started, started);
    }

    #[test]
    fn without_a_pidfd_of_the_socket_a_doubtful_process_is_not_believed() {
        let now = boot_ticks();
        let another = Credentials { uid: own().uid + 1, ..own() };
        assert!(process_by_pid(another, now).expect("allowed").is_none(), "another user's");
        let started = process_started(own().pid).expect("our own stat");
        assert!(process_by_pid(own(), started - 1).expect("allowed").is_none(), "started later");
        let nobody = Credentials { pid: 0, ..own() };
        assert!(process_by_pid(nobody, now).expect("allowed").is_none(), "no pid");
        let mut child = Command::new("true").stdin(Stdio::null()).spawn().expect("true runs");
        let pid = child.id() as i32;
        child.wait().expect("it ends");
        let gone = Credentials { pid, ..own() };
        assert!(process_by_pid(gone, now).expect("allowed").is_none(), "it has ended");
    }

    #[test]
    fn the_start_is_found_behind_any_name() {
        let numbers = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20 21";
        let stat = format!("77 (a) b (c)) {numbers}\n");
        assert_eq!(start_of(stat.as_bytes()), Some(4711));
        assert_eq!(start_of(b"77 (\xff) S 1"), None);
        assert_eq!(start_of(b""), None);
    }

    #[test]
    fn a_process_that_cannot_be_opened_is_not_dead() {
        use rustix::io::Errno;
        let own = std::process::id() as i32;
        let started = process_started(own).expect("it runs");
        let open = |pid: Pid| pidfd_open(pid, PidfdFlags::empty());
        assert!(matches!(open_process_by(own, started, open), Ok(Some(_))));
        assert!(matches!(open_process_by(own, started + 1, open), Ok(None)), "another one's pid");
        assert!(matches!(open_process_by(own, started, |_| Err(Errno::SRCH)), Ok(None)));
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::PERM] {
            let opened = open_process_by(own, started, |_| Err(errno));
            let error = opened.expect_err("not known");
            assert_eq!(error.raw_os_error(), Some(errno.raw_os_error()));
        }
        // Nobody has the pid now, however the kernel says so.
        let mut child = Command::new("true").spawn().expect("started");
        child.wait().expect("ended");
        let ended = child.id() as i32;
        assert!(matches!(open_process_by(ended, 1, |_| Err(Errno::INVAL)), Ok(None)));
        assert!(matches!(open_process(ended, 1), Ok(None)));
    }
}
