//! The units in config/systemd, and daemons that a service manager supervises: the test plays it.

use crate::support::hand::Hand;
use crate::support::*;
use std::ffi::OsString;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const ONE: &str = "nodes:\n  - { nids: 0, processors: 1, flavors: [su, os, ap] }\n";
/// Twice as long as between two words of a daemon's.
const WATCHDOG: Duration = Duration::from_secs(1);

/// The service manager's end.
struct Manager {
    _folder: tempfile::TempDir,
    path: PathBuf,
    socket: UnixDatagram,
}

impl Manager {
    fn new() -> Manager {
        let folder = tempfile::Builder::new().prefix("sd").tempdir_in("/tmp").expect("a folder");
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).expect("bound");
        Manager { _folder: folder, path, socket }
    }

    /// What is put before a daemon's command line, as its unit would have it.
    fn prefix(&self) -> Vec<OsString> {
        let mut socket = OsString::from("NOTIFY_SOCKET=");
        socket.push(&self.path);
        let watchdog = format!("WATCHDOG_USEC={}", WATCHDOG.as_micros());
        ["env".into(), socket, watchdog.into(), "PSCHED_LOG=info".into()].into()
    }

    /// The next thing that is said, if anything is within that time.
    fn next(&self, within: Duration) -> Option<String> {
        self.socket.set_read_timeout(Some(within)).expect("set");
        let mut bytes = [0; 256];
        let length = self.socket.recv(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes[..length]).into_owned())
    }

    /// Waits until that is said.
    #[track_caller]
    fn wait_for(&self, words: &str) {
        eventually(BOUND, &format!("{words} is said"), || {
            self.next(BOUND).is_some_and(|said| said.lines().any(|line| line == words))
        });
    }

    /// What was said before is forgotten.
    fn forget(&self) {
        while self.next(Duration::from_millis(1)).is_some() {}
    }

    /// The daemon says that it lives, says so again, and says nothing while it is stopped.
    #[track_caller]
    fn watches(&self, pid: i32) {
        (0..3).for_each(|_| self.wait_for("WATCHDOG=1"));
        kill(pid, 19);
        eventually(BOUND, "it is stopped", || state_of(pid) == Some('T'));
        self.forget();
        let said = self.next(2 * WATCHDOG);
        kill(pid, 18);
        assert_eq!(said, None, "said by a loop that does not turn");
        self.wait_for("WATCHDOG=1");
    }
}

fn state_of(pid: i32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(") ").next()?.chars().next()
}

#[test]
fn psched_tells_its_manager() {
    let manager = Manager::new();
    let mut hand = Hand::start_by(&manager.prefix(), ONE, &[("0", None)]);
    manager.wait_for("READY=1");
    // It would be heard too.
    hand.stop_apinit("0");
    manager.forget();
    manager.watches(hand.psched_pid());
    kill(hand.psched_pid(), 1);
    manager.wait_for("RELOADING=1");
    manager.wait_for("READY=1");
    hand.stop_psched();
    manager.wait_for("STOPPING=1");
    hand.end();
}

/// apinit in a group of its own, as Delegate=yes gives it. Restarting it kills the main process
/// alone (KillMode=process).
#[test]
fn apinit_is_restarted_by_its_manager() {
    let name = "systemd::apinit_is_restarted_by_its_manager";
    let Some(unit) = Unit::new() else { return skip(name, "no group can be made (cgroup v2)") };
    let manager = Manager::new();
    let mut prefix: Vec<OsString> =
        ["sh", "-c", "echo $$ >\"$0\"/cgroup.procs && exec \"$@\""].map(OsString::from).into();
    prefix.push(unit.0.clone().into());
    let mut hand = Hand::start_by(&[prefix, manager.prefix()].concat(), ONE, &[("0", None)]);
    let go = hand.folder().join("go");
    let script = format!("while ! [ -e {} ]; do sleep 0.02; done; exit 3", go.display());
    let runs = hand.start_script("-n 1", &script);
    let apid = hand.wait_for("running", 1)[0];
    let below = std::fs::read_dir(&unit.0).expect("there").flatten();
    let group = below.filter(|e| e.file_name().to_string_lossy().starts_with("psched.")).count();
    assert!(group > 0, "the application's groups are below the unit's");
    hand.stop_psched();
    manager.forget();
    // One of the two is left to say it.
    manager.watches(hand.apinit_pid("0"));
    hand.kill_apinit_of("0");
    manager.forget();
    hand.start_apinit("0", None);
    manager.wait_for("READY=1");
    hand.start_psched();
    assert_eq!(hand.wait_for("running", 1), [apid]);
    hand.stop_apinit("0");
    manager.wait_for("STOPPING=1");
    hand.start_apinit("0", None);
    std::fs::write(&go, "").expect("written");
    runs.wait(BOUND).expect(3);
    hand.end();
}

/// A group that was delegated.
struct Unit(PathBuf);

impl Unit {
    fn new() -> Option<Unit> {
        let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
        let mount = mounts.lines().find(|l| l.split(' ').nth(2) == Some("cgroup2"))?;
        let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        let own = own.lines().find_map(|l| l.strip_prefix("0::/"))?;
        let point = Path::new(mount.split(' ').nth(1)?);
        let path = point.join(own).join(format!("unit.{}", std::process::id()));
        std::fs::create_dir(&path).ok()?;
        Some(Unit(path))
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        let _ = std::fs::write(self.0.join("cgroup.kill"), "1");
        eventually(BOUND, "the unit's group is gone", || {
            let all = Command::new("find").arg(&self.0).args(["-depth", "-type", "d"]).output();
            let all = all.map(|o| String::from_utf8_lossy(&o.stdout).into_owned());
            all.unwrap_or_default().lines().for_each(|d| drop(std::fs::remove_dir(d)));
            !self.0.exists()
        });
    }
}
