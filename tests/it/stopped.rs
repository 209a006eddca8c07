//! psched and apinit stopped with SIGSTOP and continued: they are slow, not dead. Applications run
//! on, nothing is freed, and what was asked meanwhile is answered later.

use crate::support::machine::{AppFolder, Daemon, Machine, Way};
use crate::support::phases::{Flow, Kind, Meets};
use crate::support::*;
use std::process::Command;
use std::time::Duration;

const STOP: i32 = 19;
const CONTINUE: i32 = 18;
const ON_BOTH: Kind = Kind { spread: true, meets: Meets::ByHand };

/// Continues what it has stopped, also when the test fails.
struct Stopped(i32);

impl Stopped {
    fn stop(pid: i32) -> Stopped {
        kill(pid, STOP);
        Stopped(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        kill(self.0, CONTINUE);
    }
}

fn node(machine: &Machine, nid: u64) -> serde_json::Value {
    let all = machine.apstat("-n");
    let nodes = all["nodes"].as_array().expect("a list").iter();
    nodes.clone().find(|node| node["nid"] == nid).expect("this node").clone()
}

fn output(machine: &Machine, name: &str, line: &str) -> String {
    run(&mut machine.command(name, words(line))).expect(0).out()
}

/// Short: an application comes to its end, and another is posted, while the daemon is stopped.
fn stopped_for_seconds(way: Way, daemon: Daemon) {
    let machine = Machine::start(way);
    let mut flow = Flow::running(&machine, ON_BOTH);
    let pid = machine.pid(daemon);
    let stopped = Stopped::stop(pid);
    flow.let_go();
    // No wait for anything: this is how long it is stopped.
    std::thread::sleep(Duration::from_secs(3));
    let mut command = machine.command("aprun", ["-q", "-n", "2", "-N", "1", "echo", "later"]);
    let mut later = Running::start(&mut command);
    std::thread::sleep(Duration::from_secs(1));
    assert!(flow.runs(), "its end is not on record yet");
    assert!(later.runs(), "it waits");
    drop(stopped);
    let ended = flow.ends_well(&machine);
    assert_eq!(later.wait(BOUND).expect(0).out(), "later\nlater\n");
    assert_eq!(machine.pid(daemon), pid, "nobody has started another");
    machine.wait_until_clear(&ended.groups);
    machine.end();
}

#[test]
fn psched_under_start() {
    stopped_for_seconds(Way::UnderStart, Daemon::Psched);
}

#[test]
fn psched_by_hand() {
    stopped_for_seconds(Way::ByHand, Daemon::Psched);
}

#[test]
fn apinit_under_start() {
    stopped_for_seconds(Way::UnderStart, Daemon::Apinit(0));
}

#[test]
fn apinit_by_hand() {
    stopped_for_seconds(Way::ByHand, Daemon::Apinit(1));
}

/// What is said to it meanwhile waits, however many words it is: lines that are typed, one by one.
#[test]
fn an_apshepherd_that_is_stopped_loses_nothing() {
    let machine = Machine::start(Way::ByHand);
    let mut flow = Flow::running(&machine, ON_BOTH);
    let shepherds: Vec<i32> =
        flow.app_folders(&machine).iter().filter_map(AppFolder::shepherd).collect();
    assert_eq!(shepherds.len(), 2);
    let stopped: Vec<Stopped> = shepherds.into_iter().map(Stopped::stop).collect();
    // More messages than a queue of them should have room for.
    eventually(BOUND, "it has been fed", || flow.fed() > 12_000);
    drop(stopped);
    flow.ends_well(&machine);
    machine.end();
}

/// A new apinit doesn't take it for dead.
#[test]
fn an_apshepherd_that_is_stopped_outlives_its_apinit() {
    let mut machine = Machine::start(Way::ByHand);
    let mut flow = Flow::running(&machine, ON_BOTH);
    let shepherds = flow.app_folders(&machine);
    let stopped: Vec<Stopped> =
        shepherds.iter().filter_map(AppFolder::shepherd).map(Stopped::stop).collect();
    assert_eq!(stopped.len(), 2);
    machine.kill(Daemon::Apinit(0), Duration::ZERO);
    machine.kill(Daemon::Apinit(1), Duration::ZERO);
    for nid in [0, 1] {
        eventually(BOUND, "the new one is linked", || node(&machine, nid)["state"] != "suspect");
    }
    assert!(flow.runs(), "nobody has ended it");
    drop(stopped);
    flow.ends_well(&machine);
    machine.end();
}

/// A PE may take from its apshepherd the right to open files, for both are of one user. After a restart of apinit
/// it could not be told of any end then: it ends itself, and apinit ends what it leaves.
#[test]
fn an_apshepherd_to_which_no_apinit_can_connect_ends() {
    let mut machine = Machine::start(Way::ByHand);
    let folder = tempfile::tempdir().expect("a folder");
    let started = folder.path().join("started");
    let script =
        format!("echo $PPID > {}.new && mv {0}.new {0}; exec sleep 1000", started.display());
    let mut command = machine.command("aprun", ["-q", "-n", "1", "-L", "0", "sh", "-c", &script]);
    let flow = Running::start(&mut command);
    eventually(BOUND, "it runs", || started.exists());
    let shepherd = std::fs::read_to_string(&started).expect("read");
    let limit = ["--nofile=0:0", "--pid", shepherd.trim()];
    run(Command::new("prlimit").args(limit)).expect(0);
    machine.kill(Daemon::Apinit(0), Duration::ZERO);
    flow.wait(BOUND).expect(125);
    machine.end();
}

#[test]
fn an_apinit_that_is_silent_for_long_is_suspect_and_keeps_what_it_has() {
    let machine = Machine::start(Way::UnderStart);
    let mut flow = Flow::running(&machine, ON_BOTH);
    let stopped = Stopped::stop(machine.pid(Daemon::Apinit(1)));
    eventually(BOUND, "node 1 is suspect", || node(&machine, 1)["state"] == "suspect");
    // Nothing is freed, and nothing new is placed there.
    assert_eq!(node(&machine, 1)["pl"], 1);
    let rows = machine.apstat("-a");
    let row = &rows["applications"][0];
    assert_eq!((&row["state"], &row["turn"]), (&"running".into(), &"suspect".into()), "{rows}");
    let shown = output(&machine, "psview", "");
    assert!(shown.contains(" suspect "), "{shown}");
    let mut command = machine.command("aprun", ["-q", "-n", "2", "-N", "1", "echo", "later"]);
    let mut later = Running::start(&mut command);
    eventually(BOUND, "it waits for a place", || {
        let rows = machine.apstat("-a");
        let rows = rows["applications"].as_array().expect("a list");
        rows.iter().any(|row| row["state"] == "posted")
    });
    assert!(later.runs() && flow.runs());
    drop(stopped);
    flow.ends_well(&machine);
    assert_eq!(later.wait(BOUND).expect(0).out(), "later\nlater\n");
    machine.end();
}

/// With apkill, by its user: it is shown everywhere, also by a psched that was started since.
#[test]
fn an_application_that_its_user_has_stopped_is_shown_as_such() {
    let mut machine = Machine::start(Way::ByHand);
    let mut flow = Flow::running(&machine, ON_BOTH);
    let turn = |machine: &Machine| {
        let rows = machine.apstat("-a");
        rows["applications"][0]["turn"].as_str().unwrap_or_default().to_owned()
    };
    let apid = machine.apstat("-a")["applications"][0]["apid"].to_string();
    let mut pids: Vec<u64> = Vec::new();
    // (An apinit that is late to answer is not waited for.)
    eventually(BOUND, "both apinits have said where its PEs are", || {
        let pes = machine.apstat(&format!("-A {apid} --pids"));
        let pes = pes["processes"].as_array().expect("a list").iter();
        pids = pes.filter_map(|pe| pe["pid"].as_u64()).collect();
        pids.len() == 2
    });
    let stand = || {
        let stands = |pid: &u64| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
        };
        pids.iter().all(stands)
    };
    // A PE has no terminal: TSTP does not stop it, unless its program says so.
    output(&machine, "apkill", &format!("-TSTP {apid}"));
    // A PE takes URG after TSTP: one that stood would not take it.
    output(&machine, "apkill", &format!("-URG {apid}"));
    eventually(BOUND, "TSTP has come, and each PE runs on", || flow.marks("urged"));
    // (It may be frozen for a moment, until psched has planned its turns.)
    eventually(BOUND, "it runs", || turn(&machine) == "runs" && !stand());
    output(&machine, "apkill", &format!("-STOP {apid}"));
    eventually(BOUND, "they stand", stand);
    eventually(BOUND, "it is shown", || turn(&machine) == "stopped");
    for shows in ["apstat", "psview"] {
        eventually(BOUND, shows, || output(&machine, shows, "").contains(" stopped "));
    }
    let why = output(&machine, "apstat", &format!("--why {apid}"));
    assert!(why.contains(&format!("application {apid} is stopped")), "{why}");
    assert!(why.contains("has stopped it (apkill -STOP)"), "{why}");
    machine.kill(Daemon::Psched, Duration::ZERO);
    eventually(BOUND, "psched and apinits are back", || turn(&machine) == "stopped");
    // (An apinit that has just connected may have told of one PE and not of the other one.)
    eventually(BOUND, "they stand still", stand);
    assert!(flow.runs());
    let goes_on = words("-CONT").chain([&*apid]);
    let goes_on: Vec<&str> = goes_on.collect();
    eventually(BOUND, "its nodes are connected", || {
        run(&mut machine.command("apkill", &goes_on)).status == 0
    });
    // (It may be frozen for a moment, until psched has planned its turns anew.)
    eventually(BOUND, "it has its turns", || turn(&machine) == "runs");
    flow.ends_well(&machine);
    machine.end();
}
