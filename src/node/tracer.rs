//! What traces a process, as the kernel tells it.

use std::fs;

/// The process that traces another one, if one does.
pub fn tracer(pid: i32) -> Option<i32> {
    let status = fs::read(format!("/proc/{pid}/status")).ok()?;
    let status = String::from_utf8_lossy(&status);
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"))?;
    tracer.trim().parse().ok().filter(|tracer| *tracer > 0)
}
