//! Which processors a thread may run on, and which NUMA nodes its memory lies on: of any thread, not only
//! the caller's, and of any number of processors.

use std::io;

/// Words of the longest set that is asked for: 65,536 processors, more than Linux can have.
const WORDS_MAX: usize = 1024;

/// The processors of a thread, ascending.
///
/// # Errors
/// Those of sched_getaffinity: ESRCH, it has ended.
pub fn get(tid: i32) -> io::Result<Vec<u32>> {
    let mut words = [0u64; WORDS_MAX];
    let bytes = std::mem::size_of_val(&words);
    // SAFETY: the kernel writes at most `bytes` bytes to the live array, and says how many.
    let got = unsafe { libc::syscall(libc::SYS_sched_getaffinity, tid, bytes, words.as_mut_ptr()) };
    let got = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
    let of = |(word, bits): (usize, &u64)| {
        let bits = *bits;
        (0..64).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| word as u32 * 64 + bit)
    };
    Ok(words.iter().take(got / 8).enumerate().flat_map(of).collect())
}

/// Binds a thread to these processors.
///
/// # Errors
/// Those of sched_setaffinity: EINVAL, none of them may be used there; EPERM, it is somebody else's.
pub fn set(tid: i32, cpus: &[u32]) -> io::Result<()> {
    let mut words = [0u64; WORDS_MAX];
    for cpu in cpus {
        let word = words.get_mut(*cpu as usize / 64).ok_or(io::ErrorKind::InvalidInput)?;
        *word |= 1 << (cpu % 64);
    }
    let bytes = std::mem::size_of_val(&words);
    // SAFETY: the kernel reads `bytes` bytes of the live array.
    let done = unsafe { libc::syscall(libc::SYS_sched_setaffinity, tid, bytes, words.as_ptr()) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Brings the memory of a process from some NUMA nodes to others: that of the first to the first, and so on.
/// How many pages stayed, because they are shared, say.
///
/// # Errors
/// Those of migrate_pages: ENOSYS, the kernel has no NUMA.
pub fn migrate_pages(pid: i32, from: u32, to: u32) -> io::Result<u64> {
    let set = |node: u32| -> io::Result<u64> {
        1u64.checked_shl(node).filter(|_| node < 64).ok_or(io::ErrorKind::InvalidInput.into())
    };
    let (from, to) = (set(from)?, set(to)?);
    // SAFETY: the kernel reads one word of each set. (It takes the number of bits and one more.)
    let left =
        unsafe { libc::syscall(libc::SYS_migrate_pages, pid, 65, &raw const from, &raw const to) };
    u64::try_from(left).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_bound_and_freed_again() {
        let own = rustix::thread::gettid().as_raw_nonzero().get();
        let all = get(own).expect("its own");
        set(own, &all[..1]).expect("one of its own");
        assert_eq!(get(own).expect("its own"), all[..1]);
        set(own, &all).expect("its own");
        assert_eq!(get(own).expect("its own"), all);
        assert!(set(own, &[]).is_err() && set(own, &[100_000]).is_err());
    }
}
