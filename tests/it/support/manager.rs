//! A service manager, played by a test: what systemd says to the daemons of its units, and hears.

use super::*;
use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;

/// WATCHDOG_USEC of its daemons.
const WATCHDOG: Duration = Duration::from_secs(1);

/// The sockets on which a manager listens, one for each daemon.
pub struct Manager {
    pub folder: tempfile::TempDir,
    pub psched: UnixDatagram,
    pub apinit: UnixDatagram,
}

impl Manager {
    pub fn new() -> Manager {
        let folder = tempfile::Builder::new().prefix("it").tempdir_in("/tmp").expect("a folder");
        let socket = |name| UnixDatagram::bind(folder.path().join(name)).expect("bound");
        let (psched, apinit) = (socket("psched"), socket("apinit"));
        Manager { folder, psched, apinit }
    }

    /// What a daemon's command line is given to: each has its own socket, and psched the
    /// capabilities that its unit leaves it.
    pub fn prefix(&self, group: Option<&Path>) -> Vec<OsString> {
        let bounds = Command::new("setpriv").arg("--version").stdout(Stdio::null()).status();
        let set = if is_root() && bounds.is_ok_and(|status| status.success()) {
            "setpriv --no-new-privs --bounding-set -all,+kill,+setuid,+sys_ptrace"
        } else {
            ""
        };
        let enter = group.map_or(String::new(), |group| {
            format!(
                "case $1 in */apinit) echo 0 >'{}/cgroup.procs' || exit 219; esac",
                group.display()
            )
        });
        let script = format!(
            "export NOTIFY_SOCKET=\"$0/${{1##*/}}\" WATCHDOG_USEC={} WATCHDOG_PID=$$ PSCHED_LOG=info\n\
             {enter}\n\
             case $1 in */psched) exec {set} \"$@\";; esac\n\
             exec \"$@\"",
            WATCHDOG.as_micros()
        );
        let folder = self.folder.path().as_os_str().to_owned();
        vec!["sh".into(), "-c".into(), script.into(), folder]
    }
}

/// The next message, if one comes within this time.
pub fn hear(socket: &UnixDatagram, within: Duration) -> Option<String> {
    socket.set_read_timeout(Some(within)).expect("set");
    let mut message = [0; 512];
    match socket.recv(&mut message) {
        Ok(length) => Some(String::from_utf8_lossy(&message[..length]).into_owned()),
        Err(error) if error.kind() == ErrorKind::WouldBlock => None,
        // A child has ended.
        Err(error) if error.kind() == ErrorKind::Interrupted => hear(socket, within),
        Err(error) => panic!("{error}"),
    }
}

/// Throws away what has come so far.
pub fn forget(socket: &UnixDatagram) {
    while hear(socket, Duration::from_millis(1)).is_some() {}
}

#[track_caller]
pub fn expect(socket: &UnixDatagram, what: &str) {
    assert_eq!(hear(socket, BOUND).as_deref(), Some(what));
}

/// Three in a row, however busy this machine is, none of them of before.
#[track_caller]
pub fn expect_beats(socket: &UnixDatagram) {
    forget(socket);
    for _ in 0..3 {
        expect(socket, "WATCHDOG=1");
    }
}

/// For three times as long as the watchdog waits nothing comes but what was on its way.
#[track_caller]
pub fn expect_silence(socket: &UnixDatagram) {
    // Up to the watchdog's time it may be hoped for.
    let mut last = 0;
    while hear(socket, 3 * WATCHDOG).is_some() {
        last += 1;
        assert!(last < 6, "the watchdog is still told that all is well");
    }
}

/// Waits until one of its messages has this line.
#[track_caller]
pub fn wait_for(socket: &UnixDatagram, line: &str) {
    eventually(BOUND, &format!("{line} is said"), || {
        hear(socket, BOUND).is_some_and(|said| said.lines().any(|l| l == line))
    });
}

/// A control group of version 2 of this test's own, as the manager makes one for a unit.
pub struct Unit(pub PathBuf);

impl Unit {
    /// None where no group can be made.
    pub fn make(name: &str) -> Option<Unit> {
        let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
        let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2"))?;
        let unit = Path::new(mount.split(' ').nth(1)?)
            .join(format!("it-{name}-{}.service", std::process::id()));
        std::fs::create_dir(&unit).ok()?;
        Some(Unit(unit))
    }
}

impl Unit {
    /// The path that apinit's --groups takes.
    pub fn path(&self) -> String {
        let name = self.0.file_name().expect("it has a name");
        format!("/{}", name.to_string_lossy())
    }

    /// Whether groups of applications are there.
    pub fn has_groups(&self) -> bool {
        let below = std::fs::read_dir(&self.0).into_iter().flatten().flatten();
        below.into_iter().any(|e| e.file_name().to_string_lossy().starts_with("psched."))
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        let _ = std::fs::write(self.0.join("cgroup.kill"), "1");
        let mut folders = vec![self.0.clone()];
        let mut next = 0;
        while let Some(folder) = folders.get(next).cloned() {
            next += 1;
            let below = std::fs::read_dir(folder).into_iter().flatten().flatten();
            folders.extend(below.map(|entry| entry.path()).filter(|path| path.is_dir()));
        }
        eventually(BOUND, "the unit's groups are gone", || {
            folders.iter().rev().filter(|f| f.exists()).all(|f| std::fs::remove_dir(f).is_ok())
        });
    }
}
