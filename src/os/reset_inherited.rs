//! What a process inherits of its parent beyond memory and files, and how an application's process
//! is rid of it.
//!
//! A daemon runs with settings that its administrator chose for *it*: it is the last that the
//! kernel kills for want of memory, it runs before others, it may have capabilities that outlive a
//! change of ids. Nearly all of them pass through fork and execve. So apinit's child, which becomes
//! an apshepherd and later has the PEs as its children, lays them off ([`settings`]) while it is
//! still root, and all rights when it becomes its owner's ([`become_user`]).
//!
//! Two settings can't be laid off by anybody, as the kernel wants it: no_new_privs and filters of
//! system calls. Who puts these on apinit puts them on every PE.
//!
//! What is called between clone3 and execve makes system calls and allocates nothing.

use super::capabilities;
use super::placing::Placing;
use std::ffi::{CStr, c_int, c_ulong};
use std::io;

/// Bytes of the largest `struct sigaction` that a kernel has, in words.
const SIGACTION_WORDS: usize = 8;
/// Bytes of the kernel's signal set.
const SIGNAL_SET_BYTES: usize = 8;
/// What Linux gives every process: 50 microseconds.
const TIMER_SLACK_NS: c_ulong = 50_000;
/// What a core dump holds if nobody says otherwise: core(5).
const CORE_DUMP_FILTER: &CStr = c"0x33";
/// `ioprio_set`: the calling process.
const IOPRIO_WHO_PROCESS: c_int = 1;
/// `keyctl`: a new session keyring.
const KEYCTL_JOIN_SESSION_KEYRING: c_int = 1;
/// `set_mempolicy`: memory from the nearest node.
const MPOL_DEFAULT: c_int = 0;
/// `personality`: nothing of another system's, and addresses at random.
const PER_LINUX: c_ulong = 0;
/// The right to signal processes of other users.
const CAP_KILL: u32 = 5;
/// The right to take on other users' ids.
const CAP_SETUID: u32 = 7;

/// Default dispositions for all signals, those included that glibc keeps for itself: its `signal`
/// refuses them, and a parent that ignores them would hand that on.
///
/// # Safety
/// In a forked child only: no handler of the program's runs any more.
pub(super) unsafe fn default_signals() {
    // All zeros: SIG_DFL, no flags, an empty mask.
    let action = [0u64; SIGACTION_WORDS];
    for signal in 1..=64 {
        // SAFETY: the pointer is to at least as many bytes as the kernel reads; nothing is written.
        // Refused for KILL and STOP, which are default.
        unsafe {
            let none = std::ptr::null_mut::<u64>();
            libc::syscall(libc::SYS_rt_sigaction, signal, action.as_ptr(), none, SIGNAL_SET_BYTES);
        }
    }
}

/// Settings back to what Linux gives a process: to be called by root. What this system doesn't know,
/// or a container forbids, was never set.
///
/// # Safety
/// In a forked child only.
pub(super) unsafe fn settings() {
    // SAFETY (whole block): system calls by thin wrappers, on constants.
    unsafe {
        put(c"/proc/self/oom_score_adj", c"0");
        put(c"/proc/self/coredump_filter", CORE_DUMP_FILTER);
        let param = libc::sched_param { sched_priority: 0 };
        libc::sched_setscheduler(0, libc::SCHED_OTHER, &param);
        libc::setpriority(libc::PRIO_PROCESS, 0, 0);
        libc::syscall(libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, 0);
        // After the policy: a real-time process has none.
        libc::prctl(libc::PR_SET_TIMERSLACK, TIMER_SLACK_NS, 0, 0, 0);
        libc::syscall(libc::SYS_set_mempolicy, MPOL_DEFAULT, std::ptr::null::<c_ulong>(), 0);
        libc::prctl(libc::PR_SET_THP_DISABLE, 0, 0, 0, 0);
        libc::personality(PER_LINUX);
        // The possessor of a keyring may use its keys, whoever he is: the daemon's are not for the
        // owner. Made while this is root's, so that it takes nothing of the owner's quota.
        libc::syscall(
            libc::SYS_keyctl,
            KEYCTL_JOIN_SESSION_KEYRING,
            std::ptr::null::<libc::c_char>(),
        );
        // Those that keep capabilities when ids change. Refused where a container has locked them.
        libc::prctl(libc::PR_SET_SECUREBITS, 0, 0, 0, 0);
    }
}

/// No capabilities any more, in the sets that ids do not govern: the inheritable and, with them, the
/// ambient one; for an ordinary user in every set. To be called when the ids are the owner's.
/// Whether that worked: who has any left must not go on.
///
/// # Safety
/// In a forked child only.
pub(super) unsafe fn rights(uid: u32) -> bool {
    let mut sets = capabilities::NONE;
    if uid == 0 {
        let Some(own) = capabilities::get() else { return false };
        sets = own;
        for [_, _, inheritable] in &mut sets {
            *inheritable = 0;
        }
    }
    // The kernel takes out of the ambient set what is no longer inheritable.
    capabilities::set(&sets)
}

/// No capability in any set, whoever this is. Whether that worked.
///
/// # Safety
/// In a forked child only.
pub(super) unsafe fn no_capabilities() -> bool {
    capabilities::set(&capabilities::NONE)
}

/// Whether this thread may signal other users' processes.
pub(super) fn may_signal_others() -> bool {
    capabilities::get().is_some_and(|sets| sets[0][0] & 1 << CAP_KILL != 0)
}

/// Lays off, for this thread and those that it will make, the rights to signal other users' processes
/// and to take on their ids. Whether that worked.
pub(super) fn no_rights_over_users() -> bool {
    let Some(mut sets) = capabilities::get() else { return false };
    for set in &mut sets[0] {
        *set &= !(1 << CAP_KILL | 1 << CAP_SETUID);
    }
    capabilities::set(&sets)
}

/// Makes this process its owner's for good, with no capabilities, and lets nobody trace it or read
/// its memory who is not root. At no instant may the owner do so: the kernel takes that right away
/// before it changes the ids (but where `fs.suid_dumpable` is 1, see [`dumps_all`]). To be called
/// first of all, while there is one thread. `placing`: an ordinary user's keeps the right to put
/// its PEs into groups of root's.
///
/// # Errors
/// Those of setresuid and prctl; or a capability can't be given up. The process must not go on then.
pub fn become_user(uid: u32, placing: bool) -> io::Result<Option<Placing>> {
    let placing = placing && uid != 0;
    if placing {
        Placing::outlast_ids()?;
    }
    let owner = nix::unistd::Uid::from_raw(uid);
    nix::unistd::setresuid(owner, owner, owner)?;
    let kept = placing.then(Placing::take).transpose()?;
    // SAFETY: system calls on memory of their own; nobody else's capabilities change.
    if kept.is_none() && !unsafe { rights(uid) } {
        return Err(io::Error::last_os_error());
    }
    nix::sys::prctl::set_dumpable(false)?;
    Ok(kept)
}

/// Whether this host lets users trace what has changed its ids (`fs.suid_dumpable` is 1, a setting for
/// debugging): then the owner may trace an apshepherd for some microseconds.
pub fn dumps_all() -> bool {
    std::fs::read_to_string("/proc/sys/fs/suid_dumpable").is_ok_and(|text| text.trim() == "1")
}

/// # Safety
/// In a forked child only.
unsafe fn put(path: &CStr, text: &CStr) {
    // SAFETY: both end in a zero byte; the descriptor is this function's own.
    unsafe {
        let fd = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if fd >= 0 {
            libc::write(fd, text.as_ptr().cast(), text.count_bytes());
            libc::close(fd);
        }
    }
}
