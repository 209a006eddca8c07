//! What CRIU has written into its log, in words that say what stood in the way and what would help.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::BorrowedFd;

/// So much of the log's end is looked at.
const LOG_TAIL: u64 = 256 * 1024;
/// So many of its lines are passed on.
const LINES: usize = 3;

/// What CRIU says that is no reason: it follows from one, or does not matter.
const NO_REASON: [&str; 7] = [
    "FAILED.",
    "cgroupd: recv req error",
    "Can't setup RLIMIT_NOFILE",
    "exited, status=",
    "killed by signal",
    "Unable to open fd=",
    "Dump files (pid:",
];

/// Words of CRIU's and what they mean for an application.
const CURES: [(&str, &str); 10] = [
    (
        "Can't get rlimit",
        "root lacks the capability CAP_SYS_RESOURCE here, so that it can dump its own processes only",
    ),
    (
        "Can't dump half of stream unix connection",
        "a process is connected to a process outside the application: it must end that \
         connection first",
    ),
    (
        "xternal socket is used",
        "a process is connected to a process outside the application: it must end that \
         connection first",
    ),
    ("sysvipc", "System V shared memory needs a space of its own: run it without isolation=off"),
    (
        "Connected TCP socket",
        "a TCP connection leads out of the application: it must be closed first",
    ),
    (
        "Address already in use",
        "one of its ports is in use: the application still runs, another program has the port, \
         or a connection of it ended less than a minute ago",
    ),
    ("No space left on device", "the disk is full: free some of it, or choose another directory"),
    ("is not empty", "the directory has other images: choose an empty one"),
    ("ghost file", "a removed file that is still open is larger than apinit's --ghost-limit"),
    ("Can't open file", "a file that was open is missing: put it back where it was"),
];

/// The reasons in a log of the directory of the images, as `: REASON; REASON (CURE)`; nothing where there
/// are none.
pub(super) fn reasons(directory: BorrowedFd<'_>, name: &str) -> String {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let Ok(fd) = rustix::fs::openat(directory, name, flags, Mode::empty()) else {
        return String::new();
    };
    let mut file = File::from(fd);
    let length = file.metadata().map_or(0, |m| m.len());
    let mut tail = Vec::new();
    // An Err: what has been read is looked at.
    let _ = file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL)));
    let _ = file.take(LOG_TAIL).read_to_end(&mut tail);
    of_log(&String::from_utf8_lossy(&tail))
}

fn of_log(log: &str) -> String {
    let is_reason = |line: &&str| !NO_REASON.iter().any(|no| line.contains(no));
    // `(00.035023)  19582: Error (criu/files-reg.c:1790): WORDS`
    let errors: Vec<&str> = log
        .lines()
        .filter_map(|line| line.split_once("Error (")?.1.split_once("): ").map(|(_, said)| said))
        .filter(is_reason)
        .collect();
    let last = &errors[errors.len().saturating_sub(LINES)..];
    told(Some(&last.join("; ")), None)
}

/// What it said, and the cure if one is known.
pub(super) fn told(said: Option<&str>, errno: Option<i32>) -> String {
    let said = said.map(str::trim).filter(|s| !s.is_empty());
    let text = match (said, errno.filter(|e| *e != 0)) {
        (Some(said), _) => said.to_owned(),
        (None, Some(errno)) => std::io::Error::from_raw_os_error(errno).to_string(),
        (None, None) => return String::new(),
    };
    let cure = CURES.iter().find(|(words, _)| text.contains(words)).map(|(_, cure)| *cure);
    cure.map_or_else(|| format!(": {text}"), |cure| format!(": {cure} ({text})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_told_and_not_what_follows() {
        let log = "\
(00.042753) Error (criu/util.c:1534): rlimit: Can't setup RLIMIT_NOFILE for self: Operation not permitted
(00.043158)  19582: Error (criu/sk-unix.c:1651): unix: Can't bind id 0x9 ino 7 addr /a/b: No such file or directory
(00.043179)  19582: Error (criu/files.c:1221): Unable to open fd=32 id=0x9
(00.043529) Error (criu/cr-restore.c:2331): Restoring FAILED.
(00.046905) Error (criu/cgroup.c:2055): cg: cgroupd: recv req error: No such file or directory
";
        let expected = ": unix: Can't bind id 0x9 ino 7 addr /a/b: No such file or directory";
        assert_eq!(of_log(log), expected);
        assert_eq!(of_log("(00.01) nothing was wrong\n"), "");
    }

    #[test]
    fn known_reasons_have_their_cure() {
        let log =
            "(00.1) Error (criu/sk-unix.c:900): unix: Can't dump half of stream unix connection.\n";
        assert!(of_log(log).contains("must end that connection first"), "{}", of_log(log));
        assert_eq!(told(None, Some(libc::EEXIST)), ": File exists (os error 17)");
        assert_eq!(told(None, Some(0)), "");
    }
}
