//! What the daemons tell a service manager: when they answer, that their loops turn, that they read
//! their configuration again, that they end.

use crate::support::hand::Hand;
use crate::support::manager::*;
use crate::support::users::{ANNA, Bins, User};
use crate::support::*;
use nix::sys::ptrace;
use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

const CONFIG: &str =
    "nodes:\n  - { nids: \"0-1\", processors: 2, memory: 1G, flavors: [su, os, ap] }\n";

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
    wait_for(&manager.psched, "STOPPING=1");
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
    // Heard meanwhile, and what has come so far thrown away: a manager that does not read soon has no
    // room for more.
    forget(&manager.psched);
    forget(&manager.apinit);
    std::thread::scope(|scope| {
        for socket in [&manager.psched, &manager.apinit] {
            scope.spawn(|| wait_for(socket, "STOPPING=1"));
        }
        hand.end();
    });
}

#[test]
fn a_reload_is_told() {
    let manager = Manager::new();
    let hand = Hand::start_by(&manager.prefix(None), CONFIG, &[("0-1", None)]);
    expect(&manager.psched, "READY=1");
    kill(hand.psched_pid(), 1);
    wait_for(&manager.psched, "RELOADING=1");
    wait_for(&manager.psched, "READY=1");
    hand.end();
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
    let name = "notify::a_store_that_hangs_is_seen";
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

/// A name service that takes its time, as a library in front of the C library's.
fn slow_name_service(folder: &std::path::Path) -> std::path::PathBuf {
    let (source, library) = (folder.join("names.c"), folder.join("names.so"));
    let text = "#include <errno.h>\n#include <grp.h>\n#include <pwd.h>\n#include <stdlib.h>\n#include <unistd.h>\n\
        static void slow(void) { const char *f = getenv(\"PSCHED_TEST_HANGS\"); while (f && !access(f, F_OK)) usleep(5000); }\n\
        int getpwuid_r(uid_t u, struct passwd *p, char *b, size_t n, struct passwd **r) { slow(); *r = 0; return 0; }\n\
        int getpwnam_r(const char *u, struct passwd *p, char *b, size_t n, struct passwd **r) { slow(); *r = 0; return 0; }\n\
        int getgrnam_r(const char *u, struct group *p, char *b, size_t n, struct group **r) { slow(); *r = 0; return 0; }\n\
        int getgrgid_r(gid_t u, struct group *p, char *b, size_t n, struct group **r) { slow(); *r = 0; return 0; }\n";
    std::fs::write(&source, text).expect("written");
    let mut cc = Command::new("cc");
    run(cc.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source)).expect(0);
    library
}

#[test]
fn a_name_service_that_hangs_stops_nobody() {
    let test = "notify::a_name_service_that_hangs_stops_nobody";
    if !is_root() {
        return skip(test, "only root can be many users");
    }
    if !Command::new("cc").arg("--version").output().is_ok_and(|o| o.status.success()) {
        return skip(test, "cc is not installed");
    }
    let manager = Manager::new();
    let hangs = manager.folder.path().join("hangs");
    let library = slow_name_service(manager.folder.path());
    let variable = |name: &str, value: &std::path::Path| format!("{name}={}", value.display());
    let mut prefix: Vec<std::ffi::OsString> = vec![
        "env".into(),
        variable("LD_PRELOAD", &library).into(),
        variable("PSCHED_TEST_HANGS", &hangs).into(),
    ];
    prefix.extend(manager.prefix(None));
    let hand = Hand::start_by(&prefix, CONFIG, &[("0-1", None)]);
    hand.open_to_all();
    let bins = Bins::new();
    expect(&manager.psched, "READY=1");
    std::fs::write(&hangs, "").expect("written");
    // Each of them would be looked up.
    let users = (0..6).map(|more| User { uid: 61_600 + more, ..ANNA });
    let runs: Vec<_> = users
        .map(|user| {
            let mut aprun = user.command(bins.path("aprun"), ["-q", "id", "-u"]);
            (user.uid, Running::start(aprun.env("PSCHED_SOCKET", hand.socket())))
        })
        .collect();
    expect_beats(&manager.psched);
    run(&mut hand.command("apstat", ["-n"])).expect(0);
    for (uid, aprun) in runs {
        assert_eq!(aprun.wait(BOUND).expect(0).out(), format!("{uid}\n"));
    }
    // A configuration with names in it waits, and nobody for it.
    hand.reconfigure(&format!("{CONFIG}administrators: [nobody1, nobody2, nobody3]\n"));
    expect_beats(&manager.psched);
    run(&mut hand.command("psmgr", ["drain", "1", "dust"])).expect(0);
    eventually(BOUND, "it goes on without them", || {
        hand.said().contains("does not resolve the administrator nobody3")
    });
    let history = run(&mut hand.command("apstat", ["--history", "--json"])).expect(0).out();
    assert!(history.contains("61605"), "{history}");
    std::fs::remove_file(&hangs).expect("there");
    hand.end();
}
