//! What /proc tells of processes that are to be dumped, or were restored.

use super::CheckpointError;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// A unix socket with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub inode: u64,
    pub listens: bool,
}

/// An open file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Open {
    pub number: i32,
    /// As the link of /proc says it: a path, `pipe:[7]` and so on.
    pub path: String,
    /// The number of its mount.
    pub mount: u64,
    pub dev: u64,
    pub ino: u64,
    /// It is /dev/null.
    pub null: bool,
}

/// The device of /dev/null.
const NULL: u64 = 1 << 8 | 3;
/// `__SO_ACCEPTCON` of /proc/net/unix.
const LISTENS: u64 = 1 << 16;

fn failed(path: &str, error: &std::io::Error) -> CheckpointError {
    CheckpointError::new(format!("{path}: {error}"))
}

fn read(path: &str) -> Result<String, CheckpointError> {
    let bytes = fs::read(path).map_err(|e| failed(path, &e))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The namespace of a process, if it is not this process's own.
pub(super) fn other_namespace(pid: i32, kind: &str) -> Result<Option<OwnedFd>, CheckpointError> {
    let path = format!("/proc/{pid}/ns/{kind}");
    let theirs = File::open(&path).map_err(|e| failed(&path, &e))?;
    let name = |m: fs::Metadata| (m.dev(), m.ino());
    let own = fs::metadata(format!("/proc/self/ns/{kind}")).map_err(|e| failed(&path, &e))?;
    let other = theirs.metadata().map_err(|e| failed(&path, &e))?;
    Ok((name(own) != name(other)).then(|| theirs.into()))
}

/// The pid of a process in its own PID namespace.
pub(super) fn inner_pid(pid: i32) -> Result<i32, CheckpointError> {
    let path = format!("/proc/{pid}/status");
    let text = read(&path)?;
    let line = text.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let last = line.and_then(|line| line.split_whitespace().next_back()?.parse().ok());
    last.ok_or_else(|| CheckpointError::new(format!("{path} has no NSpid")))
}

/// The children of a process, by their numbers in its PID namespace; none if that is this process's own.
pub fn host_pids(parent: i32) -> Option<BTreeMap<u32, u32>> {
    if inner_pid(parent).ok()? == parent {
        return None;
    }
    let children = children(parent).ok()?;
    let pids = children.into_iter().filter_map(|child| {
        let inner = inner_pid(child).ok()?;
        Some((inner.unsigned_abs(), child.unsigned_abs()))
    });
    Some(pids.collect())
}

/// How a thread is, as the kernel says it by a letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It runs, or would if it had a processor. One whose group is frozen is about to sleep.
    Runs = b'R' as isize,
    /// It waits in the kernel so that nothing stops it: not one that is frozen by its group.
    Waits = b'D' as isize,
}

/// Whether a thread of it is in this state. One that is not there any more is in none.
pub(super) fn has_thread(pid: i32, state: State) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.filter_map(|task| std::fs::read(task.path().join("stat")).ok()).any(|stat| {
        // Behind its name, which may have anything in it.
        let end = stat.iter().rposition(|b| *b == b')').unwrap_or(0);
        stat.get(end + 2) == Some(&(state as u8))
    })
}

/// The children of a process with one thread.
pub(super) fn children(pid: i32) -> Result<Vec<i32>, CheckpointError> {
    let text = read(&format!("/proc/{pid}/task/{pid}/children"))?;
    Ok(text.split_whitespace().filter_map(|child| child.parse().ok()).collect())
}

/// The numbers of the mounts that a process sees.
pub(super) fn mounts(pid: i32) -> Result<BTreeSet<u64>, CheckpointError> {
    let text = read(&format!("/proc/{pid}/mountinfo"))?;
    Ok(text.lines().filter_map(|line| line.split(' ').next()?.parse().ok()).collect())
}

/// The open files of a process, by number.
pub(super) fn open_files(pid: i32) -> Result<Vec<Open>, CheckpointError> {
    let folder = format!("/proc/{pid}/fd");
    let entries = fs::read_dir(&folder).map_err(|e| failed(&folder, &e))?.flatten();
    let numbers = entries.filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok());
    let mut numbers: Vec<i32> = numbers.collect();
    numbers.sort_unstable();
    let mut all = Vec::new();
    for number in numbers {
        match open_file(pid, number) {
            // Closed meanwhile, by one that runs.
            Err((_, e)) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err((path, e)) => return Err(failed(&path, &e)),
            Ok(open) => all.push(open),
        }
    }
    Ok(all)
}

fn open_file(pid: i32, number: i32) -> Result<Open, (String, std::io::Error)> {
    let path = format!("/proc/{pid}/fd/{number}");
    let link = fs::read_link(&path).map_err(|e| (path.clone(), e))?;
    let file = fs::metadata(&path).map_err(|e| (path, e))?;
    let path = format!("/proc/{pid}/fdinfo/{number}");
    let info = fs::read_to_string(&path).map_err(|e| (path, e))?;
    let mount = info.lines().find_map(|l| l.strip_prefix("mnt_id:")?.trim().parse().ok());
    Ok(Open {
        number,
        path: link.to_string_lossy().into_owned(),
        mount: mount.unwrap_or(0),
        dev: file.dev(),
        ino: file.ino(),
        null: file.file_type().is_char_device() && file.rdev() == NULL,
    })
}

/// The sockets with this name: the one that listens, and those of its connections.
pub(super) fn sockets_at(socket: &Path) -> Result<Vec<Named>, CheckpointError> {
    let name =
        socket.to_str().ok_or_else(|| CheckpointError::new("the path of a socket is not UTF-8"))?;
    Ok(read("/proc/net/unix")?.lines().filter_map(|line| named(line, name)).collect())
}

/// `NUMBER: REFCOUNT PROTOCOL FLAGS TYPE STATE INODE PATH`, where a path may hold anything.
fn named(line: &str, name: &str) -> Option<Named> {
    let before = line.strip_suffix(name)?.strip_suffix(' ')?;
    let mut fields = before.split_ascii_whitespace().skip(3);
    let flags = u64::from_str_radix(fields.next()?, 16).ok()?;
    let inode = fields.nth(2)?.parse().ok()?;
    // The inode is the last field before the path.
    fields.next().is_none().then_some(Named { inode, listens: flags & LISTENS != 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_found_by_their_whole_name() {
        let listens =
            "00000000abcd: 00000002 00000000 00010000 0005 01 6210314 /run/a/shepherd.sock";
        let name = "/run/a/shepherd.sock";
        assert_eq!(named(listens, name), Some(Named { inode: 6_210_314, listens: true }));
        let connected = listens.replace("00010000", "00000000");
        assert_eq!(named(&connected, name), Some(Named { inode: 6_210_314, listens: false }));
        assert_eq!(named(listens, "/shepherd.sock"), None);
        assert_eq!(named(listens, "sock"), None);
        assert_eq!(named(&listens.replace(name, &format!("/x {name}")), name), None);
    }

    #[test]
    fn this_process_is_where_it_is() {
        let own = std::process::id() as i32;
        assert!(other_namespace(own, "pid").expect("readable").is_none());
        assert!(inner_pid(own).expect("readable") > 0);
        let files = open_files(own).expect("readable");
        assert!(files.windows(2).all(|w| w[0].number < w[1].number));
        assert!(!mounts(own).expect("readable").is_empty());
    }

    #[test]
    fn a_file_that_closes_meanwhile_is_not_open() {
        use std::sync::atomic::{AtomicBool, Ordering};
        let end = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !end.load(Ordering::Relaxed) {
                    drop(File::open("/dev/null"));
                }
            });
            let read = (0..2_000).map(|_| open_files(std::process::id() as i32));
            let result = read.collect::<Result<Vec<_>, _>>();
            end.store(true, Ordering::Relaxed);
            result.expect("those that are there");
        });
    }
}
