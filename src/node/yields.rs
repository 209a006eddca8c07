//! PEs that give way to the system's own work, on nodes that are the system's too (`yield_nice`).
//!
//! # Problem
//! On a node `os su ap` logins and daemons share processors with PEs, which never sleep. nice is the old
//! means, and mostly does nothing: the kernel divides a processor between *groups* of processes first, and
//! nice counts among those of one group only. Each session is such a group (autogroups, sched(7)), and each
//! PE has a session of its own. Where cgroups have the cpu controller those count instead, and sessions do
//! not.
//!
//! What a busy PE has of a processor beside a busy process of another session (measured, Linux 6.18, four
//! seconds each):
//!
//! ```text
//!   the PE has                                        its share
//!   nothing                                           50   %
//!   nice 10                                           50   %
//!   nice 10 in its autogroup                           9.7 %
//!   nice 10, itself and in its autogroup               9.9 %
//!   nice 19 in its autogroup                           1.5 %
//!   nice 10, both in one cpu group                     9.8 %
//!   nice 10, in a cpu group of its own                50   %
//!   no nice, in a cpu group of a tenth of the weight   9.8 %
//! ```
//!
//! # Approach
//! Both: the shepherd makes each PE nicer before its execve, which counts without autogroups, and apinit
//! its session ([`sessions`]), which counts with them. The kernel lets others than root do the second ten
//! times a second, all together, so it is not the shepherd's: that runs as the user. The weight of the cpu
//! group in which applications are is the administrator's (`CPUWeight=`), because it counts beside those
//! of the system only where it stands among them; apinit says so where there is one ([`cpu_group`]).

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

/// Makes the sessions of these processes so nice, where sessions count.
///
/// # Errors
/// The first one's for which it was refused; the others are done.
pub fn sessions(pids: impl Iterator<Item = i32>, nice: u32) -> io::Result<()> {
    let on = fs::read_to_string("/proc/sys/kernel/sched_autogroup_enabled");
    if on.is_err() || on.is_ok_and(|text| text.trim() == "0") {
        return Ok(());
    }
    let mut done = Ok(());
    for pid in pids {
        match fs::write(format!("/proc/{pid}/autogroup"), nice.to_string()) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            // ESRCH: it has ended meanwhile.
            Err(error) if error.raw_os_error() == Some(nix::libc::ESRCH) => {}
            other => done = done.and(other),
        }
    }
    done
}

/// The cpu group in which the processes of this cgroup are, beside which nice does not count: the next one
/// upwards that has a weight; or apinit's own of cgroup v1.
pub fn cpu_group(group: &Path) -> Option<String> {
    let weighted = group.ancestors().find(|group| group.join("cpu.weight").exists());
    weighted.map(|group| group.display().to_string()).or_else(|| {
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        v1_cpu_group(&own).map(str::to_owned)
    })
}

/// The group of v1's cpu controller in /proc/PID/cgroup, if it is not the root.
fn v1_cpu_group(cgroup: &str) -> Option<&str> {
    cgroup.lines().find_map(|line| {
        let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
        (controllers.split(',').any(|name| name == "cpu") && group != "/").then_some(group)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_that_has_a_weight_is_found() {
        let root = tempfile::tempdir().expect("a folder");
        let (unit, below) = (root.path().join("unit"), root.path().join("unit/store/12.1"));
        fs::create_dir_all(&below).expect("made");
        fs::write(unit.join("cpu.weight"), "100\n").expect("written");
        assert_eq!(cpu_group(&below), Some(unit.display().to_string()));
        assert_eq!(v1_cpu_group("8:pids:/a\n2:cpu,cpuacct:/b:c\n0::/d\n"), Some("/b:c"));
        assert_eq!(v1_cpu_group("2:cpuacct:/b\n1:cpu:/\n0::/d\n"), None);
    }
}
