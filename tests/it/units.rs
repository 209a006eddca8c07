//! The units in config/systemd, tried without systemd: a test says to the daemons what it says, hears
//! what it hears, and starts them again in their control group as it does.

use crate::support::hand::Hand;
use crate::support::{BOUND, Running, binaries, eventually, is_root, kill, run, skip};
use nix::sys::ptrace;
use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use std::ffi::OsString;
use std::io::{ErrorKind, Write};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const CONFIG: &str =
    "nodes:\n  - { nids: \"0-1\", processors: 2, memory: 1G, flavors: [su, os, ap] }\n";
/// WATCHDOG_USEC of these tests.
const WATCHDOG: Duration = Duration::from_secs(1);

/// The sockets on which a manager listens, one for each daemon.
struct Manager {
    folder: tempfile::TempDir,
    psched: UnixDatagram,
    apinit: UnixDatagram,
}

impl Manager {
    fn new() -> Manager {
        let folder = tempfile::Builder::new().prefix("it").tempdir_in("/tmp").expect("a folder");
        let socket = |name| UnixDatagram::bind(folder.path().join(name)).expect("bound");
        let (psched, apinit) = (socket("psched"), socket("apinit"));
        Manager { folder, psched, apinit }
    }

    /// What a daemon's command line is given to: each has its own socket, and psched the
    /// capabilities that its unit leaves it.
    fn prefix(&self, group: Option<&Path>) -> Vec<OsString> {
        let bounds = Command::new("setpriv").arg("--version").stdout(Stdio::null()).status();
        let set = if is_root() && bounds.is_ok_and(|status| status.success()) {
            "setpriv --no-new-privs --bounding-set -all,+kill,+sys_ptrace"
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
fn hear(socket: &UnixDatagram, within: Duration) -> Option<String> {
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
fn forget(socket: &UnixDatagram) {
    while hear(socket, Duration::from_millis(1)).is_some() {}
}

#[track_caller]
fn expect(socket: &UnixDatagram, what: &str) {
    assert_eq!(hear(socket, BOUND).as_deref(), Some(what));
}

/// Three in a row, however busy this machine is, none of them of before.
#[track_caller]
fn expect_beats(socket: &UnixDatagram) {
    forget(socket);
    for _ in 0..3 {
        expect(socket, "WATCHDOG=1");
    }
}

/// For three times as long as the watchdog waits nothing comes but what was on its way.
#[track_caller]
fn expect_silence(socket: &UnixDatagram) {
    // Up to the watchdog's time it may be hoped for.
    let mut last = 0;
    while hear(socket, 3 * WATCHDOG).is_some() {
        last += 1;
        assert!(last < 6, "the watchdog is still told that all is well");
    }
}

#[test]
fn psched_is_ready_when_it_answers() {
    let manager = Manager::new();
    let folder = manager.folder.path();
    let text = format!("{CONFIG}listening: {0}/p.sock\nstate: {0}/state\n", folder.display());
    std::fs::write(folder.join("psched.yaml"), text).expect("written");
    let prefix = manager.prefix(None);
    let mut psched = Command::new(&prefix[0])
        .args(&prefix[1..])
        .arg(binaries().join("psched"))
        .arg("--config")
        .arg(folder.join("psched.yaml"))
        .stderr(Stdio::null())
        .spawn()
        .expect("started");
    expect(&manager.psched, "READY=1");
    let answers = UnixStream::connect(folder.join("p.sock")).is_ok();
    let mut apstat = Command::new(binaries().join("apstat"));
    let asked = run(apstat.arg("-n").env("PSCHED_SOCKET", folder.join("p.sock")));
    kill(psched.id() as i32, 15);
    let ended = psched.wait().expect("reaped");
    assert!(answers, "it does not listen");
    asked.expect(0);
    assert_eq!(ended.code(), Some(0));
    eventually(BOUND, "it says that it ends", || {
        hear(&manager.psched, BOUND).as_deref() == Some("STOPPING=1")
    });
}

#[test]
fn the_watchdog_hears_the_loops() {
    let manager = Manager::new();
    let hand = Hand::start_by(&manager.prefix(None), CONFIG, &[("0-1", None)]);
    let daemons = [(&manager.psched, hand.psched_pid()), (&manager.apinit, hand.apinit_pid("0-1"))];
    for (socket, pid) in daemons {
        expect(socket, "READY=1");
        expect_beats(socket);
        kill(pid, 19);
        expect_silence(socket);
        kill(pid, 18);
        expect_beats(socket);
    }
    // What is theirs is not their applications'.
    let env = run(&mut hand.command("aprun", ["-n", "1", "env"])).expect(0);
    let text = String::from_utf8_lossy(&env.stdout).into_owned();
    assert!(!text.contains("NOTIFY_SOCKET") && !text.contains("WATCHDOG"), "{text}");
    // Heard meanwhile: a manager that does not read soon has no room for more.
    std::thread::scope(|scope| {
        for socket in [&manager.psched, &manager.apinit] {
            scope.spawn(|| {
                eventually(BOUND, "each says that it ends", || {
                    hear(socket, BOUND).as_deref() == Some("STOPPING=1")
                });
            });
        }
        hand.end();
    });
}

/// The store's thread of psched.
fn store_thread(psched: i32) -> Pid {
    let tasks = std::fs::read_dir(format!("/proc/{psched}/task")).expect("it runs");
    let named = tasks.flatten().find(|task| {
        std::fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name == "store\n")
    });
    let name = named.expect("a store thread").file_name();
    Pid::from_raw(name.to_string_lossy().parse().expect("a number"))
}

#[test]
fn a_store_that_hangs_is_seen() {
    let name = "units::a_store_that_hangs_is_seen";
    let manager = Manager::new();
    let hand = Hand::start_by(&manager.prefix(None), CONFIG, &[("0-1", None)]);
    // Stopped as by a disk that does not come back: everything else runs on.
    let store = store_thread(hand.psched_pid());
    if let Err(error) = ptrace::seize(store, ptrace::Options::empty()) {
        return skip(name, &format!("psched can't be traced: {error}"));
    }
    expect_beats(&manager.psched);
    ptrace::interrupt(store).expect("stopped");
    waitpid(store, Some(nix::sys::wait::WaitPidFlag::__WALL)).expect("it stops");
    // Nothing to be kept, nothing missed.
    expect_beats(&manager.psched);
    let aprun = Running::start(&mut hand.command("aprun", ["-n", "1", "true"]));
    expect_silence(&manager.psched);
    ptrace::detach(store, None).expect("it goes on");
    aprun.wait(BOUND).expect(0);
    expect_beats(&manager.psched);
    hand.end();
}

/// A control group of version 2 of this test's own, as the manager makes one for a unit.
struct Unit(PathBuf);

impl Unit {
    fn make(name: &str) -> Option<Unit> {
        let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
        let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2"))?;
        let unit = Path::new(mount.split(' ').nth(1)?)
            .join(format!("it-{name}-{}.service", std::process::id()));
        std::fs::create_dir(&unit).ok()?;
        Some(Unit(unit))
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

#[test]
fn a_restarted_daemon_finds_its_applications() {
    let name = "units::a_restarted_daemon_finds_its_applications";
    let Some(unit) = Unit::make("restart") else {
        return skip(name, "no control group can be made at the root of cgroup v2");
    };
    let manager = Manager::new();
    let mut hand = Hand::start_by(&manager.prefix(Some(&unit.0)), CONFIG, &[("0-1", None)]);
    let mut aprun = hand.command("aprun", ["-n", "2", "-N", "1", "sh", "-c"]);
    aprun
        .arg("[ $PMI_RANK = 1 ] || read line; echo got $line; exec sleep 1000")
        .stdin(Stdio::piped());
    let mut aprun = Running::start(&mut aprun);
    let apid = hand.wait_for("running", 1)[0];
    // KillMode=process: the main process and nothing else, first with -9, then as on a stop.
    for signal in [9, 15] {
        let apinit = hand.apinit_pid("0-1");
        if signal == 15 {
            kill(apinit, 15);
            eventually(BOUND, "apinit has ended", || {
                std::fs::read_to_string(format!("/proc/{apinit}/stat"))
                    .is_ok_and(|stat| stat.contains(") Z "))
            });
        }
        hand.kill_apinit_of("0-1");
        forget(&manager.apinit);
        hand.start_apinit("0-1", None);
        expect(&manager.apinit, "READY=1");
        hand.kill_psched();
        hand.start_psched();
        assert_eq!(hand.wait_for("running", 1), [apid]);
    }
    // The applications' own ends are as alive.
    let mut stdin = aprun.child.stdin.take().expect("piped");
    stdin.write_all(b"word\n").expect("taken");
    drop(stdin);
    hand.wait_for("running", 1);
    run(&mut hand.command("apkill", [apid.to_string()])).expect(0);
    let ended = aprun.wait(BOUND).expect(143);
    assert_eq!(ended.sorted(), ["got", "got word"]);
    hand.end();
}

#[test]
fn the_units_are_good() {
    let name = "units::the_units_are_good";
    let there = Command::new("systemd-analyze").arg("--version").stdout(Stdio::null()).status();
    if !there.is_ok_and(|status| status.success()) {
        return skip(name, "no systemd-analyze (Debian: systemd)");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/systemd");
    let mut units = Vec::new();
    for entry in std::fs::read_dir(source).expect("the units").flatten() {
        let text = std::fs::read_to_string(entry.path()).expect("text");
        let copy = folder.path().join(entry.file_name());
        let kept = ["KillMode=process", "Restart=", "OOMScoreAdjust=", "TasksMax=infinity"];
        assert!(kept.iter().all(|setting| text.contains(setting)), "{:?} lacks one", entry.path());
        // What they start is not installed here.
        let text = text.replace("/usr/bin/", &format!("{}/", binaries().display()));
        std::fs::write(&copy, text).expect("written");
        units.push(copy);
    }
    assert_eq!(units.len(), 3);
    let mut verify = Command::new("systemd-analyze");
    let verified = run(verify.args(["verify", "--man=no", "--recursive-errors=no"]).args(units));
    let said = verified.stderr.clone();
    assert!(!said.contains("psched") && !said.contains("apinit"), "{said}");
    verified.expect(0);
}
