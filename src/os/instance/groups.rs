//! The control groups of a dead instance.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The eight digits by which the groups and processes of the applications of an instance are known: made from
/// its folder, which nobody else has, whatever state it goes on from.
pub fn mark(folder: &Path) -> String {
    let mut hasher = DefaultHasher::new();
    folder.hash(&mut hasher);
    format!("{:08x}", hasher.finish() >> 32)
}

/// The eight digits in a group's path `…/psched.0123abcd`.
pub(super) fn mark_of_group(group: &Path) -> Option<&str> {
    let mark = group.file_name()?.to_str()?.strip_prefix("psched.")?;
    (group.is_absolute() && mark.len() == 8 && mark.bytes().all(|b| b.is_ascii_hexdigit()))
        .then_some(mark)
}

/// Kills all processes of a control group and removes it with the groups below it.
pub(super) fn end_group(group: &Path, until: Instant) {
    loop {
        if !group.exists() {
            return;
        }
        // Refused where the group is not ours: nothing to be done about that here.
        let _ = fs::write(group.join("cgroup.kill"), "1");
        remove_group(group);
        if !group.exists() || Instant::now() >= until {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Removes empty groups from the leaves up. (Files of a group are the kernel's and go with it.)
fn remove_group(group: &Path) {
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            remove_group(&entry.path());
        }
    }
    let _ = fs::remove_dir(group);
}

/// Where this process's own control group (v2) is in the file system; `None`: there is no v2 tree.
pub fn own_group() -> Option<PathBuf> {
    group_path(
        &fs::read_to_string("/proc/self/mountinfo").ok()?,
        &fs::read_to_string("/proc/self/cgroup").ok()?,
    )
}

/// From the texts of /proc/self/mountinfo and /proc/self/cgroup.
fn group_path(mountinfo: &str, cgroup: &str) -> Option<PathBuf> {
    let own = Path::new(cgroup.lines().find_map(|l| l.strip_prefix("0::"))?);
    mountinfo.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        if kind.split(' ').next() != Some("cgroup2") {
            return None;
        }
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        let below = own.strip_prefix(root).ok()?;
        // An empty component would leave a slash at the end.
        Some(if below.as_os_str().is_empty() { point.into() } else { Path::new(point).join(below) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_group_is_found_in_hybrid_and_unified_trees() {
        let hybrid = "36 31 0:32 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n\
                      41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
        let own = "8:pids:/\n0::/\n";
        assert_eq!(group_path(hybrid, own), Some("/sys/fs/cgroup/unified".into()));
        let unified = "30 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
        let slice = "0::/user.slice/user-1000.slice/session-1.scope\n";
        assert_eq!(
            group_path(unified, slice),
            Some("/sys/fs/cgroup/user.slice/user-1000.slice/session-1.scope".into())
        );
        assert_eq!(group_path("", own), None);
        assert_eq!(mark_of_group(Path::new("/sys/fs/cgroup/psched.0123abcd")), Some("0123abcd"));
        assert_eq!(mark_of_group(Path::new("/sys/fs/cgroup")), None);
        let [one, other] = ["/tmp/psched-0-a", "/tmp/psched-0-b"].map(|f| mark(Path::new(f)));
        let group = Path::new("/sys/fs/cgroup").join(format!("psched.{one}"));
        assert!(one != other && mark_of_group(&group) == Some(&*one));
        assert_eq!(mark_of_group(Path::new("/sys/fs/cgroup/psched.0123abcd/1.1")), None);
    }
}
