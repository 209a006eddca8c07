//! Being on time: the priority of a thread, and memory that stays.
//!
//! The thread that changes gangs is preempted by what it has just let run, in the middle of doing so,
//! unless it goes before it; and a page of it that is out costs milliseconds.

use std::io;

/// What a thread was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// SCHED_FIFO, at its lowest: before everybody of the ordinary classes.
    Fifo,
    /// The nicest of the ordinary ones, -20.
    Nice,
    /// None, for this reason (an errno).
    Ordinary(i32),
}

/// Gives the calling thread the best priority that it may have. What it makes does not inherit it.
pub fn prioritise() -> Priority {
    let parameters = libc::sched_param { sched_priority: 1 };
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: 0 is the calling thread, and the pointer is to a live sched_param.
    if unsafe { libc::sched_setscheduler(0, policy, &parameters) } == 0 {
        return Priority::Fifo;
    }
    let refused = errno();
    // SAFETY: no memory is involved. (On Linux 0 is the calling thread, not all of the process.)
    match unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) } {
        0 => Priority::Nice,
        _ => Priority::Ordinary(refused),
    }
}

/// Keeps in memory what this process has there, and what it touches from now on. What it has not
/// touched takes no memory by this.
///
/// # Errors
/// EPERM without CAP_IPC_LOCK: within a limit (RLIMIT_MEMLOCK) a later allocation might fail.
pub fn lock_memory() -> io::Result<()> {
    const CAP_IPC_LOCK: u32 = 14;
    let status = std::fs::read_to_string("/proc/self/status")?;
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    if effective.unwrap_or(0) >> CAP_IPC_LOCK & 1 == 0 {
        return Err(io::Error::from_raw_os_error(libc::EPERM));
    }
    let flags = libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT;
    // SAFETY: it changes where pages may be, not what is in them.
    match unsafe { libc::mlockall(flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_what_it_may_have() {
        let given = std::thread::spawn(|| {
            let given = prioritise();
            // SAFETY: no memory is involved.
            let policy = unsafe { libc::sched_getscheduler(0) };
            (given, policy & !libc::SCHED_RESET_ON_FORK)
        });
        let (given, policy) = given.join().expect("it ends");
        assert_eq!(policy == libc::SCHED_FIFO, given == Priority::Fifo, "{given:?}");
    }
}
