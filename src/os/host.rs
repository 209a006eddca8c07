//! This host's clock and boot: what psched and its nodes compare, so each is read in one way.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// CLOCK_MONOTONIC in nanoseconds; 0 where it can't be read.
pub fn monotonic_ns() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC)
        .map_or(Duration::ZERO, Duration::from);
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

/// CLOCK_MONOTONIC and CLOCK_MONOTONIC_RAW at one moment, and by how much they may have been read apart;
/// in nanoseconds. The best of some readings: this process may be preempted in one.
pub fn clocks() -> (u64, u64, u64) {
    const TRIES: usize = 8;
    let raw_ns = || {
        let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC_RAW)
            .map_or(Duration::ZERO, Duration::from);
        u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
    };
    let read = || {
        let (before, raw, after) = (monotonic_ns(), raw_ns(), monotonic_ns());
        let apart = after.saturating_sub(before).div_ceil(2);
        (before.saturating_add(apart), raw, apart)
    };
    (1..TRIES).map(|_| read()).fold(read(), |best, one| if one.2 < best.2 { one } else { best })
}

/// The clock on the wall, in nanoseconds since the epoch; 0 before that.
pub fn wall_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

/// Gives memory that is not used any more back to the kernel, after much of it was freed at once:
/// the allocator keeps what lies below anything that is still used.
pub fn return_memory() {
    // SAFETY: it may be called at any time, by any thread.
    unsafe { libc::malloc_trim(0) };
}

/// The kernel's random id of this boot; empty where it can't be read.
pub fn boot_id() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    id.unwrap_or_default().trim().to_owned()
}

/// Its name; `localhost` where it has none.
pub fn hostname() -> String {
    nix::unistd::gethostname()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_else(|_| "localhost".into())
}
