//! What the daemons tell a service manager: when they answer, that their loops turn, that they read
//! their configuration again, that they end.

use crate::support::hand::Hand;
use crate::support::manager::*;
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
