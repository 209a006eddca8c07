//! Processes found by the marker in their environment, where there are no groups.
//!
//! Each PE is born with `PSCHED_APPLICATION=<store>.<apid>.<incarnation>`, and what it starts
//! inherits that. It can be shed, so it only stands in where nothing better is to be had.

use std::fs;

/// The variable.
pub(super) const VARIABLE: &str = "PSCHED_APPLICATION";

/// The pids that bear this marker.
fn bearers(marker: &str) -> Vec<i32> {
    let wanted = format!("{VARIABLE}={marker}").into_bytes();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            // A zombie's is empty; a stranger's can't be read.
            let environment = fs::read(entry.path().join("environ")).ok()?;
            environment.split(|b| *b == 0).any(|v| v == wanted).then_some(pid)
        })
        .collect()
}

/// How many processes bear it.
pub(super) fn count(marker: &str) -> u32 {
    u32::try_from(bearers(marker).len()).unwrap_or(u32::MAX)
}

/// Kills all that bear it.
pub(super) fn kill(marker: &str) {
    for pid in bearers(marker) {
        let pid = nix::unistd::Pid::from_raw(pid);
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_found_and_killed() {
        let marker = format!("test.{}.1", std::process::id());
        let mut child = std::process::Command::new("sleep")
            .arg("100")
            .env(VARIABLE, &marker)
            .spawn()
            .expect("there is a sleep");
        // spawn returns when the old memory is gone, an instant before the new environment is there.
        let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while count(&marker) != 1 {
            assert!(std::time::Instant::now() < until, "it is not found");
        }
        assert_eq!(count(&format!("{marker}1")), 0);
        kill(&marker);
        let status = child.wait().expect("it is a child");
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9));
        assert_eq!(count(&marker), 0);
    }
}
