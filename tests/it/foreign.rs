//! Nodes whose psched has lost its memory: nothing is ended by that, and an administrator decides.

use crate::support::hand::Hand;
use crate::support::*;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const ONE: &str = "nodes:\n  - { nids: 0, processors: 2, flavors: [su, os, ap] }\n";
const TWO: &str = "nodes:\n  - { nids: 0, processors: 1, flavors: [su, os, ap] }\n  - { nids: 1, processors: 1 }\n";

/// Waits for a file named as the first argument of the shell says, and exits with 3.
fn until(hand: &Hand, name: &str) -> (PathBuf, String) {
    let go = hand.folder().join(name);
    let script = format!("while ! [ -e {} ]; do sleep 0.02; done; echo gone; exit 3", go.display());
    (go, script)
}

fn psmgr(hand: &Hand, arguments: &str) -> Command {
    hand.command("psmgr", words(arguments))
}

/// Copies a folder of a psched that has nothing to write just now.
fn copy(hand: &Hand, from: &str, to: &str) {
    let (from, to) = (hand.folder().join(from), hand.folder().join(to));
    let copied = Command::new("cp").arg("-a").args([from, to]).status().expect("cp runs");
    assert!(copied.success());
}

#[track_caller]
fn wait_for_state(hand: &Hand, state: &str) -> serde_json::Value {
    let mut all = serde_json::Value::Null;
    eventually(BOUND, &format!("every node is {state}"), || {
        all = hand.apstat("-n");
        all["nodes"].as_array().expect("a list").iter().all(|n| n["state"] == state)
    });
    all
}

#[test]
fn an_empty_state_directory_ends_nothing_and_the_nodes_are_adopted() {
    let mut hand = Hand::start(TWO, &[("0", None), ("1", None)]);
    let (go, script) = until(&hand, "go");
    let runs = hand.start_script("-n 2 -N 1", &script);
    let apid = hand.wait_for("running", 1)[0];
    hand.kill_psched();
    hand.start_psched_on("empty");
    let all = wait_for_state(&hand, "foreign");
    let text = all.to_string();
    assert!(text.contains("obeys the psched of store"), "{text}");
    assert!(text.contains(&format!("it runs application {apid} of ")), "{text}");
    assert!(text.contains("psmgr adopt 0 takes it over"), "{text}");
    hand.wait_for("running", 0);
    // Who wants to run something waits, and is told for what.
    let waits = hand.start_script("-n 1", "echo ran");
    let posted = hand.wait_for("posted", 1)[0];
    assert!(posted > apid, "the number of the one that runs is not given again");
    let why = run(&mut hand.command("apstat", ["--why", &posted.to_string()])).expect(0).out();
    assert!(why.contains("foreign") && why.contains("psmgr adopt"), "{why}");
    // One of two nodes is not enough.
    run(&mut psmgr(&hand, "adopt 0"))
        .expect(1)
        .says("psmgr adopt 0-1 adopts all its nodes together");
    let told = run(&mut psmgr(&hand, "adopt 0-1")).expect(0).out();
    assert!(told.contains(&format!("application {apid} of ")), "{told}");
    assert_eq!(hand.wait_for("running", 1), [apid]);
    let told = run(&mut psmgr(&hand, "adopt 0-1")).expect(0).out();
    assert_eq!(told, "NIDs 0-1: its apinit obeys this psched already\n");
    let log = run(&mut psmgr(&hand, "log")).expect(0).out();
    let line = log.lines().last().expect("a line");
    assert!(line.contains("foreign") && line.contains("adopted, with application"), "{log}");
    // It is this psched's now, also through its death, and its end is on this one's record.
    hand.kill_psched();
    hand.start_psched_on("empty");
    std::fs::write(&go, "").expect("written");
    let run = runs.wait(BOUND).expect(3);
    assert_eq!(run.out(), "gone\ngone\n");
    run.says(&format!("Application {apid} exit codes: 3"));
    assert_eq!(waits.wait(BOUND).expect(0).out(), "ran\n");
    let history = hand.apstat(&format!("-A {apid}")).to_string();
    assert!(history.contains("sleep 0.02") || history.contains("sh -c"), "{history}");
    let events = hand.apstat(&format!("--events {apid}")).to_string();
    assert!(events.contains("adopted"), "{events}");
    hand.end();
}

/// Its aprun asks a psched that is no more.
#[test]
fn what_was_not_launched_before_it_was_adopted_is_ended_at_once() {
    let mut hand = Hand::start(ONE, &[("0", None)]);
    let (go, script) = until(&hand, "go");
    let first = hand.start_script("-q -n 2", &script);
    hand.wait_for("running", 1);
    let second = hand.start_script("-n 2", "echo never");
    let apid = hand.wait_for("posted", 1)[0];
    // Silent: it does not see that it is placed.
    second.signal(19);
    std::fs::write(&go, "").expect("written");
    first.wait(BOUND).expect(3);
    hand.wait_for("placed", 1);
    hand.kill_psched();
    hand.start_psched_on("empty");
    wait_for_state(&hand, "foreign");
    run(&mut psmgr(&hand, "adopt 0")).expect(0);
    // Its ticket is good for a minute.
    eventually(Duration::from_secs(20), "it has ended, and its node is free", || {
        hand.apstat("--history")["history"].as_array().is_some_and(|rows| rows.len() == 1)
            && hand.apstat("-n")["nodes"][0]["state"] == "free"
    });
    let history = hand.apstat("--history");
    let row = &history["history"][0];
    assert_eq!((row["apid"].as_u64(), row["status"].as_i64()), (Some(apid), Some(125)), "{row}");
    second.signal(18);
    let run = second.wait(BOUND).expect(125);
    assert_eq!(run.out(), "");
    hand.end();
}

/// Without groups, processes are found by the name of the store under which they were born.
#[test]
fn what_an_adopted_application_leaves_is_found() {
    let script = "mount -t tmpfs none /sys/fs/cgroup && exec \"$@\"";
    let prefix = ["unshare", "-m", "sh", "-c", script, "sh"].map(std::ffi::OsString::from);
    let tried = Command::new(&prefix[0]).args(&prefix[1..]).arg("true").output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        let test = "foreign::what_an_adopted_application_leaves_is_found";
        return skip(test, "no mount namespace can be had (root may)");
    }
    let mut hand = Hand::start_by(&prefix, ONE, &[("0", None)]);
    assert!(hand.apstat("-n").to_string().contains("no cgroups"));
    let mark = hand.folder().join("escaped");
    // Another session, and another parent when its own are dead: only its environment tells.
    let script = format!("setsid sh -c 'echo $$ > {}; exec sleep 1000' & wait", mark.display());
    let runs = hand.start_script("-n 1", &script);
    let apid = hand.wait_for("running", 1)[0];
    let escaped = || std::fs::read_to_string(&mark).ok()?.trim().parse::<i32>().ok();
    eventually(BOUND, "it has escaped", || escaped().is_some());
    hand.kill_psched();
    hand.start_psched_on("empty");
    wait_for_state(&hand, "foreign");
    run(&mut psmgr(&hand, "adopt 0")).expect(0);
    assert_eq!(hand.wait_for("running", 1), [apid]);
    // The one that comes knows only the new store.
    let folder = hand.folder().join(format!("apps-0/{apid}.1/shepherd"));
    let shepherd = std::fs::read_to_string(folder).expect("kept");
    hand.kill_apinit(0);
    kill(shepherd.split(' ').next().and_then(|pid| pid.parse().ok()).expect("a pid"), 9);
    hand.start_apinit("0", None);
    runs.wait(BOUND).expect(125);
    let line = format!("/proc/{}/cmdline", escaped().expect("a pid"));
    let lives = std::fs::read(line).is_ok_and(|line| line.starts_with(b"sleep\0"));
    if lives {
        kill(escaped().expect("a pid"), 9);
    }
    assert!(!lives, "it was not found");
    hand.end();
}

#[test]
fn purged_nodes_are_free_again() {
    let mut hand = Hand::start(ONE, &[("0", None)]);
    let runs = hand.start_script("-n 2", "trap '' TERM; while :; do sleep 0.05; done");
    let apid = hand.wait_for("running", 1)[0];
    hand.kill_psched();
    hand.start_psched_on("empty");
    wait_for_state(&hand, "foreign");
    let waits = hand.start_script("-n 2", "echo ran");
    hand.wait_for("posted", 1);
    let told = run(&mut psmgr(&hand, "purge 0")).expect(0).out();
    assert!(told.starts_with("NID 0: its apinit obeys this psched now; application "), "{told}");
    assert!(told.contains(&format!("application {apid} of ")), "{told}");
    assert_eq!(waits.wait(BOUND).expect(0).out(), "ran\nran\n");
    let told = run(&mut psmgr(&hand, "purge 0")).expect(0).out();
    assert_eq!(told, "NID 0: its apinit obeys this psched already\n");
    // Its aprun hears of it from the psched that had it purged.
    runs.wait(BOUND).expect(125).says("its node was purged by ");
    hand.end();
}

/// The state directory is put back to what it was before the application was posted.
#[test]
fn an_old_copy_of_the_store_ends_nothing() {
    let mut hand = Hand::start(ONE, &[("0", None)]);
    hand.kill_psched();
    copy(&hand, "state", "old");
    copy(&hand, "state", "older");
    for _ in 0..2 {
        hand.start_psched();
        hand.wait_until_up();
        hand.kill_psched();
    }
    hand.start_psched();
    let (go, script) = until(&hand, "go");
    let runs = hand.start_script("-n 2", &script);
    let apid = hand.wait_for("running", 1)[0];
    hand.kill_psched();
    hand.start_psched_on("old");
    let text = wait_for_state(&hand, "foreign").to_string();
    assert!(text.contains("an old copy of its state"), "{text}");
    // Restarted often enough, its epoch says nothing any more; its starts do.
    for _ in 0..3 {
        hand.kill_psched();
        hand.start_psched_on("old");
    }
    let text = wait_for_state(&hand, "foreign").to_string();
    assert!(text.contains("an old copy of its state"), "{text}");
    // The right one comes back, and all is as it was.
    hand.kill_psched();
    hand.start_psched();
    assert_eq!(hand.wait_for("running", 1), [apid]);
    hand.kill_psched();
    hand.start_psched_on("older");
    wait_for_state(&hand, "foreign");
    run(&mut psmgr(&hand, "adopt 0")).expect(0);
    assert_eq!(hand.wait_for("running", 1), [apid]);
    std::fs::write(&go, "").expect("written");
    runs.wait(BOUND).expect(3);
    hand.end();
}

/// A copy that was made while psched ran lacks nothing but the newest applications.
#[test]
fn a_young_copy_of_the_store_ends_nothing() {
    let mut hand = Hand::start(ONE, &[("0", None)]);
    copy(&hand, "state", "copy");
    let (go, script) = until(&hand, "go");
    let runs = hand.start_script("-n 2", &script);
    let apid = hand.wait_for("running", 1)[0];
    hand.kill_psched();
    hand.start_psched_on("copy");
    let text = wait_for_state(&hand, "foreign").to_string();
    assert!(text.contains("an old copy of its state"), "{text}");
    assert!(text.contains("apinit knows commit "), "{text}");
    // Other numbers are given there, and apinit and psched are started again.
    let waits = hand.start_script("-q -n 2", "echo never");
    hand.wait_for("posted", 1);
    hand.kill_apinit(0);
    hand.kill_psched();
    hand.start_psched_on("copy");
    hand.start_apinit("0", None);
    let text = wait_for_state(&hand, "foreign").to_string();
    assert!(text.contains("an old copy of its state"), "{text}");
    waits.signal(15);
    waits.wait(BOUND).expect(143);
    hand.kill_psched();
    hand.start_psched();
    assert_eq!(hand.wait_for("running", 1), [apid]);
    std::fs::write(&go, "").expect("written");
    runs.wait(BOUND).expect(3);
    hand.end();
}

/// An apinit is moved from one psched to another, which has applications of its own.
#[test]
fn two_pscheds_with_the_same_numbers() {
    let mut hand = Hand::start(ONE, &[("0", None)]);
    let (go, script) = until(&hand, "go");
    let first = hand.start_script("-n 1", &script);
    let apid = hand.wait_for("running", 1)[0];
    hand.kill_apinit(0);
    hand.kill_psched();
    hand.start_psched_on("second");
    // No node has called: the numbers are given again.
    let second = hand.start_script("-n 1", "echo second");
    assert_eq!(hand.wait_for("posted", 1), [apid]);
    hand.start_apinit("0", None);
    wait_for_state(&hand, "foreign");
    run(&mut psmgr(&hand, "adopt 0"))
        .expect(1)
        .says(&format!("this psched has another application {apid}, of "));
    run(&mut hand.command("apkill", [apid.to_string()])).expect(0);
    second.wait(BOUND).expect(143);
    run(&mut psmgr(&hand, "adopt 0"))
        .expect(1)
        .says(&format!("this psched's history has another application {apid}"));
    // The first aprun has not taken the other's end for its own.
    std::fs::write(&go, "").expect("written");
    hand.kill_psched();
    hand.start_psched();
    first.wait(BOUND).expect(3);
    hand.end();
}

#[test]
fn killed_in_the_middle_of_a_purge() {
    let mut hand = Hand::start(ONE, &[("0", None)]);
    let runs = hand.start_script("-n 2", "trap '' TERM; while :; do sleep 0.05; done");
    hand.wait_for("running", 1);
    hand.kill_psched();
    hand.start_psched_on("empty");
    wait_for_state(&hand, "foreign");
    // TERM does nothing, so that it takes the 5 s of kill_grace.
    for daemon in ["psched", "apinit"] {
        let purge = Running::start(&mut psmgr(&hand, "purge 0"));
        eventually(BOUND, "the purge has begun", || {
            hand.apstat("-n").to_string().contains("being purged")
        });
        if daemon == "psched" {
            hand.kill_psched();
            hand.start_psched_on("empty");
        } else {
            hand.kill_apinit(0);
            hand.start_apinit("0", None);
        }
        let run = purge.wait(BOUND);
        assert_eq!(run.status, 1, "{}", run.stderr);
        wait_for_state(&hand, "foreign");
    }
    run(&mut psmgr(&hand, "purge 0")).expect(0);
    wait_for_state(&hand, "free");
    runs.signal(2);
    runs.signal(2);
    runs.wait(BOUND);
    hand.end();
}

#[test]
fn wrong_arguments_and_wrong_users() {
    let hand = Hand::start(ONE, &[("0", None)]);
    for wrong in ["", "adopt", "purge x y", "adopt 3-1", "keep 0"] {
        run(&mut psmgr(&hand, wrong)).expect(2);
    }
    run(&mut psmgr(&hand, "purge x")).expect(1).says("psched.yaml has no node on a host \"x\"");
    let help = run(&mut psmgr(&hand, "--help")).expect(0).out();
    assert!(help.contains("adopt") && help.contains("purge"), "{help}");
    run(&mut psmgr(&hand, "adopt 9")).expect(1).says("NID 9: not in psched.yaml");
    hand.end();
}
