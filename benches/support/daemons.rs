//! The daemons of the instance within which a program measures.

use std::fs;

/// Pid and name of each: children of what has started this program.
pub fn daemons() -> anyhow::Result<Vec<(i32, String)>> {
    let parent = nix::unistd::getppid().as_raw();
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"))?;
    let pids = children.split_whitespace().filter_map(|pid| pid.parse().ok());
    let named = |pid: i32| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        Some((pid, name.trim().to_owned()))
    };
    Ok(pids.filter_map(named).collect())
}
