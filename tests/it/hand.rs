//! psched and apinit by hand: no `psched start` that would start them again.

use crate::support::hand::Hand;
use crate::support::mpi::program;
use crate::support::*;
use std::time::Duration;

const ONE: &str = "nodes:\n  - { nids: 0, processors: 2, flavors: [su, os, ap] }\n";

/// A script that writes, waits for a file, writes again, and exits with 3.
fn in_two_parts(directory: &tempfile::TempDir) -> (std::path::PathBuf, String) {
    let go = directory.path().join("go");
    let script = format!(
        "seq 1 20000; while ! [ -e {} ]; do sleep 0.02; done; seq 1 20000; exit 3",
        go.display()
    );
    (go, script)
}

fn folder() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("it").tempdir_in("/tmp").expect("made")
}

#[test]
fn psched_is_killed_while_one_runs_and_one_waits() {
    let mut hand = Hand::start(ONE, &[("0", None)]);
    let directory = folder();
    let (go, script) = in_two_parts(&directory);
    let runs = hand.start_script("-n 2", &script);
    let apid = hand.wait_for("running", 1)[0];
    let waits = hand.start_script("-q -n 2", "echo done");
    let posted = hand.wait_for("posted", 1);
    hand.kill_psched();
    hand.start_psched();
    // Both are known still, by their numbers.
    assert_eq!(hand.wait_for("running", 1), [apid]);
    assert_eq!(hand.wait_for("posted", 1), posted);
    std::fs::write(&go, "").expect("written");
    let run = runs.wait(BOUND).expect(3);
    assert_eq!(run.out().lines().count(), 2 * 40_000);
    run.says(&format!("Application {apid} exit codes: 3"));
    assert_eq!(waits.wait(BOUND).expect(0).out(), "done\ndone\n");
    hand.end();
}

#[test]
fn an_application_ends_while_psched_is_dead() {
    let mut hand = Hand::start(ONE, &[("0", None)]);
    let directory = folder();
    let (go, script) = in_two_parts(&directory);
    let runs = hand
        .start_script("-n 2", &format!("echo $$ >> {}/pids; {script}", directory.path().display()));
    let apid = hand.wait_for("running", 1)[0];
    let pids = || -> Vec<i32> {
        let text = std::fs::read_to_string(directory.path().join("pids")).unwrap_or_default();
        text.lines().filter_map(|l| l.parse().ok()).collect()
    };
    eventually(BOUND, "both PEs run", || pids().len() == 2);
    hand.kill_psched();
    std::fs::write(&go, "").expect("written");
    eventually(BOUND, "both PEs have ended", || {
        pids().iter().all(|pid| !std::path::Path::new(&format!("/proc/{pid}")).exists())
    });
    hand.start_psched();
    let run = runs.wait(BOUND).expect(3);
    assert_eq!(run.out().lines().count(), 2 * 40_000);
    assert_eq!(hand.apstat("--history")["history"][0]["apid"], apid);
    assert_eq!(hand.apstat("--history")["history"][0]["status"], 3);
    hand.end();
}

#[test]
fn a_killed_aprun_takes_its_application_along_while_psched_is_dead() {
    let mut hand = Hand::start(ONE, &[("0", None)]);
    let directory = folder();
    let pids = directory.path().join("pids");
    let script =
        format!("echo $$ >> {}; trap '' TERM HUP; while :; do sleep 0.1; done", pids.display());
    let runs = hand.start_script("-q -n 2", &script);
    let read = || -> Vec<i32> {
        let text = std::fs::read_to_string(&pids).unwrap_or_default();
        text.lines().filter_map(|l| l.parse().ok()).collect()
    };
    eventually(BOUND, "both PEs run", || read().len() == 2);
    let waits = hand.start_script("-q -n 2", "echo never > $0");
    hand.wait_for("posted", 1);
    hand.kill_psched();
    runs.signal(9);
    waits.signal(9);
    eventually(Duration::from_secs(5), "nothing of it runs", || {
        read().iter().all(|pid| !std::path::Path::new(&format!("/proc/{pid}")).exists())
    });
    runs.wait(BOUND).expect(137);
    waits.wait(BOUND).expect(137);
    // The posting of the one that waited is nobody's either.
    hand.start_psched();
    hand.wait_for("running", 0);
    eventually(BOUND, "both have ended", || {
        hand.apstat("-a")["applications"].as_array().is_some_and(Vec::is_empty)
    });
    hand.end();
}

#[test]
fn apinit_is_killed_and_started_by_hand() {
    let config = "nodes:\n  - { nids: 0-1, processors: 1, flavors: [su, os, ap] }\n  - { nids: 2-3, processors: 1 }\n";
    let mut hand = Hand::start(config, &[("0-1", None), ("2-3", None)]);
    let directory = folder();
    let (go, script) = in_two_parts(&directory);
    let runs = hand.start_script("-n 4 -N 1", &script);
    hand.wait_for("running", 1);
    hand.kill_apinit(1);
    std::fs::write(&go, "").expect("written");
    hand.start_apinit("2-3", None);
    let run = runs.wait(BOUND).expect(3);
    assert_eq!(run.out().lines().count(), 4 * 40_000);
    hand.wait_until_up();
    run_again(&hand);
    hand.end();
}

fn run_again(hand: &Hand) {
    let run = hand.start_script("-q -n 4 --label", "echo $ALPS_APP_PE").wait(BOUND).expect(0);
    assert_eq!(run.sorted(), ["0: 0", "1: 1", "2: 2", "3: 3"]);
}

/// Ranks of one host share memory, however they are spread over its nodes; those of another don't.
/// (Not isolated, so that MPICH has a way between the two that does not need its TCP.)
#[test]
fn uneven_ranks_on_two_made_up_hosts() {
    let Some(ring) = program("hand::uneven_ranks_on_two_made_up_hosts", "ring") else { return };
    let config = "nodes:\n  - { nids: 0, processors: 2, flavors: [su, os, ap], host: one }\n  - { nids: 1, processors: 1, host: one }\n  - { nids: 2, processors: 2, host: two }\nvariables: { isolation: off }\n";
    let hand = Hand::start(config, &[("0-1", Some("one")), ("2", Some("two"))]);
    let ring = ring.to_str().expect("text");
    let run = run(&mut hand.command("aprun", ["-q", "-n", "5", ring])).expect(0);
    let expected: Vec<String> = (0..5)
        .map(|r| format!("rank {r} of 5 appnum 0 sum 15 shared {}", if r < 3 { 3 } else { 2 }))
        .collect();
    assert_eq!(run.sorted(), expected);
    hand.end();
}
