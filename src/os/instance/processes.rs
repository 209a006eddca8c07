//! The processes of an instance, known by their environment.

use super::{APPLICATION, INSTANCE, RUNTIME, SOCKET, SOCKET_FILE};
use crate::os::environ;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// Which of an instance's processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// What the user's command started, itself included.
    Command,
    /// Daemons, shepherds and PEs too.
    Everything,
}

/// The commands that are an application's front end: what they are called. (cpr is called `psched-commands` for the
/// instant before it says which command it is.)
const FRONT_ENDS: [&str; 5] = ["aprun", "mpirun", "mpiexec", "cpr", "psched-commands"];

/// Ends what the user's command of an instance left running: TERM, and KILL after `grace`; gives up
/// at `bound`.
pub fn end_command(folder: &Path, grace: Duration, bound: Duration) {
    end_processes(folder, &[], Whose::Command, grace, Instant::now() + bound);
}

pub(super) fn end_processes(
    folder: &Path,
    marks: &[&str],
    whose: Whose,
    grace: Duration,
    until: Instant,
) {
    let kill_at = Instant::now() + grace;
    let mut asked = BTreeSet::new();
    // One that is executing a program has no environment for an instant: to be sure that there is
    // no one, one looks twice.
    let mut empty = 0;
    loop {
        let found = processes(folder, marks, whose);
        empty = if found.is_empty() { empty + 1 } else { 0 };
        let late = Instant::now() >= until;
        if empty == 2 || (empty > 0 && (late || whose == Whose::Command)) {
            return;
        }
        if empty == 1 {
            std::thread::sleep(Duration::from_millis(2));
            continue;
        }
        for (pid, process, daemon) in found {
            // A daemon has no one left to serve, and nothing to save: its store is durable.
            if daemon || late || Instant::now() >= kill_at {
                let _ = pidfd_send_signal(&process, Signal::KILL);
            } else if asked.insert(pid) {
                let _ = pidfd_send_signal(&process, Signal::TERM);
                // An interactive shell does not care for TERM, but for its terminal.
                let _ = pidfd_send_signal(&process, Signal::HUP);
                let _ = pidfd_send_signal(&process, Signal::CONT);
            }
        }
        // However long the rest has taken, nobody is left alone.
        if late {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Living processes of an instance, without the caller: pid, pidfd, whether it is a daemon.
fn processes(folder: &Path, marks: &[&str], whose: Whose) -> Vec<(i32, OwnedFd, bool)> {
    let own = std::process::id() as i32;
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let mut processes = BTreeMap::new();
    environ::each(pids.filter(|pid| *pid != own), |pid, environment| {
        if membership(environment, folder, marks, || is_front_end(pid)).is_some()
            && let Some(process) = Pid::from_raw(pid)
            && let Ok(process) = pidfd_open(process, PidfdFlags::empty())
        {
            processes.insert(pid, process);
        }
    });
    // Its pid may have become another's: what the pidfd stands for is asked again.
    let again: Vec<i32> = processes.keys().copied().collect();
    let mut found = Vec::new();
    environ::each(again, |pid, environment| {
        match (membership(environment, folder, marks, || is_front_end(pid)), processes.remove(&pid))
        {
            (Some(true), _) if whose == Whose::Command => (),
            (Some(daemon), Some(process)) => found.push((pid, process, daemon)),
            _ => (),
        }
    });
    found
}

/// Whether a process with that environment, if it can be read, belongs to an instance, and if so
/// whether as a daemon.
/// (`front_end`: whether it is that of an application, which goes with it, wherever it was called).
fn membership(
    environment: Option<&[u8]>,
    folder: &Path,
    marks: &[&str],
    front_end: impl Fn() -> bool,
) -> Option<bool> {
    use std::os::unix::ffi::OsStrExt;
    let folder = folder.as_os_str().as_bytes();
    let socket = [folder, b"/", SOCKET_FILE.as_bytes()].concat();
    let mut member = None;
    for variable in environment?.split(|b| *b == 0) {
        let Some(equals) = variable.iter().position(|b| *b == b'=') else { continue };
        let (name, value) = (&variable[..equals], &variable[equals + 1..]);
        if name == RUNTIME.as_bytes() && value == folder {
            return Some(true);
        }
        let of_application = || {
            marks
                .iter()
                .any(|s| value.strip_prefix(s.as_bytes()).is_some_and(|r| r.first() == Some(&b'.')))
        };
        if (name == INSTANCE.as_bytes() && value == folder)
            || (name == APPLICATION.as_bytes() && of_application())
            || (name == SOCKET.as_bytes() && value == socket && front_end())
        {
            member = Some(false);
        }
    }
    member
}

fn is_front_end(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm"))
        .is_ok_and(|name| FRONT_ENDS.contains(&name.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_known_by_their_environment() {
        let folder = Path::new("/tmp/psched-0-abcdef");
        let of = |text: &str| {
            membership(Some(text.replace('|', "\0").as_bytes()), folder, &["0123abcd"], || false)
        };
        assert_eq!(membership(None, folder, &["0123abcd"], || true), None);
        assert_eq!(of("A=1|PSCHED_RUNTIME=/tmp/psched-0-abcdef|B=2|"), Some(true));
        assert_eq!(of("PSCHED_INSTANCE=/tmp/psched-0-abcdef"), Some(false));
        // Anybody may export it who uses the instance.
        assert_eq!(of("PSCHED_SOCKET=/tmp/psched-0-abcdef/psched.sock"), None);
        let aprun = b"PSCHED_SOCKET=/tmp/psched-0-abcdef/psched.sock";
        assert_eq!(membership(Some(aprun), folder, &[], || true), Some(false));
        assert_eq!(of("PSCHED_APPLICATION=0123abcd.7.1|"), Some(false));
        assert_eq!(of("PSCHED_APPLICATION=0123abcde.7.1|PSCHED_RUNTIME=/tmp/psched-0-abc"), None);
        assert_eq!(
            of("X=PSCHED_RUNTIME=/tmp/psched-0-abcdef|PSCHED_INSTANCE=/tmp/psched-0-abcdefg"),
            None
        );
    }
}
