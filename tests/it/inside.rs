//! `aprun --inside`: a program in the application in which its aprun runs, as a user's script starts it.

use crate::support::hand::Hand;
use crate::support::mpi::{open, program};
use crate::support::*;
use std::path::Path;

const CONFIG: &str = "nodes:\n  - { nids: 0-1, processors: 2, flavors: [su, os, ap] }\n";

fn start() -> Hand {
    Hand::start(CONFIG, &[("0-1", None)])
}

/// A script's line that runs something inside.
fn inside(line: &str) -> String {
    format!("{} --inside {line}", binaries().join("aprun").display())
}

/// aprun of a script that is one PE of two processors.
#[track_caller]
fn script(hand: &Hand, text: &str) -> Run {
    hand.start_script("-q -d 2", text).wait(BOUND)
}

/// How many processors a list of the kernel's names.
fn host_processors(list: &str) -> usize {
    psched::node::groups::numbers(list).len()
}

/// Whether a `sleep` for just so long runs.
fn sleeps(seconds: u32) -> bool {
    let line = format!("sleep\0{seconds}\0").into_bytes();
    pids().any(|pid| std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|own| own == line))
}

/// A script's lines that start PEs inside, in the background, which sleep for just so long; and wait until one does.
fn sleeper(hand: &Hand, seconds: u32) -> String {
    let there = hand.path().join(seconds.to_string());
    let there = there.display();
    let line = inside(&format!("-q -n 2 sh -c 'touch {there}; exec sleep {seconds}'"));
    format!("{line} & until [ -e {there} ]; do sleep 0.01; done")
}

#[test]
fn who_is_in_no_application_is_refused() {
    let hand = start();
    let aprun = |variable: &str| {
        let mut command = hand.command("aprun", ["--inside", "true"]);
        command.env("PSCHED_APPLICATION", variable);
        run(&mut command).expect(125)
    };
    let said = "does not run inside an application";
    aprun("").says(said);
    // A variable is not believed.
    let other = hand.start_script("-q", "sleep 600");
    let apid = hand.wait_for("running", 1)[0];
    aprun(&format!("5ca1ab1e.{apid}.1")).says(said);
    run(&mut hand.command("apkill", ["-9", &apid.to_string()])).expect(0);
    other.wait(BOUND).expect(137);
    // Nor one that names another application, where the kernel knows better.
    let line = inside("-q sh -c 'echo $ALPS_APP_ID'");
    let another = format!("echo $ALPS_APP_ID; PSCHED_APPLICATION=5ca1ab1e.4711.1 {line}");
    let told = script(&hand, &another);
    match told.status {
        0 => {
            let out = told.out();
            let ids: Vec<&str> = out.lines().collect();
            assert!(matches!(ids[..], [outer, inner] if outer == inner), "{ids:?}");
        }
        _ => drop(told.expect(125).says("does not name that one")),
    }
}

#[test]
fn its_pes_are_in_the_application() {
    let hand = start();
    let text = "cat /proc/self/cgroup | tail -n 1; echo $ALPS_APP_ID; sed -n \
                's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status";
    let outer = script(&hand, text).expect(0).out();
    let outer: Vec<&str> = outer.lines().collect();
    let apid: u64 = outer[1].parse().expect("a number");
    let inner = script(&hand, &inside(&format!("-q -n 2 --label sh -c '{text}'"))).expect(0);
    let lines = inner.sorted();
    let of = |rank: &str| -> Vec<&str> {
        lines.iter().filter_map(|line| line.strip_prefix(rank)).collect()
    };
    let (first, second) = (of("0: "), of("1: "));
    let next = (apid + 1).to_string();
    for own in [&first, &second] {
        assert!(own.contains(&next.as_str()), "{own:?}");
        let group = outer[0].replace(&format!("/{apid}."), &format!("/{next}."));
        assert!(own.contains(&group.as_str()), "{own:?} {group}");
    }
    // (Other instances on this machine may leave this one a single processor.)
    let apart = !matches!(host_processors(outer[2]), 1);
    assert_eq!(first != second, apart, "each has a processor of its own");
    // psched knows of two applications only.
    let history = hand.apstat("--history");
    let rows = history["history"].as_array().expect("rows");
    assert_eq!(rows.len(), 2, "{history}");
}

#[test]
fn it_has_the_callers_processors_and_no_more() {
    let hand = start();
    let refused = script(&hand, &inside("-n 3 true")).expect(125);
    refused.says("may run on 2 processors: ask for -n 2 or less");
    script(&hand, &inside("-q -n 3 --oversubscribe true")).expect(0);
    script(&hand, &inside("-n 129 --oversubscribe true"))
        .expect(125)
        .says("ask for -n 128 or less");
    script(&hand, &inside("-n 2 -N 1 true")).expect(125).says("leave out -N");
    let dry = script(&hand, &inside("-n 2 --dry-run true")).expect(0).out();
    assert_eq!(dry.lines().count(), 3, "{dry}");
    // A PE has its own processors only, and all of the node's with -cc none.
    let line = inside("-q -n 2 true");
    hand.start_script("-q -n 2", &line).wait(BOUND).expect(125).says("may run on 1 processor:");
    let count = "sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status";
    let all = hand.start_script("-q -n 1 -d 2 -cc none", count).wait(BOUND).expect(0);
    if host_processors(all.out().trim()) > 1 {
        hand.start_script("-q -n 2 -cc none", &line).wait(BOUND).expect(0);
    }
}

#[test]
fn statuses_output_input_and_signals_are_its_own() {
    let hand = start();
    let status = format!("{}; echo $?", inside("-q -n 2 sh -c 'exit $((ALPS_APP_PE * 7))'"));
    assert_eq!(script(&hand, &status).expect(0).out(), "7\n");
    let status = format!("{}; echo $?", inside("-n 2 sh -c 'kill -SEGV $$'"));
    let died = script(&hand, &status).expect(0);
    assert_eq!(died.out(), "139\n");
    died.says("Segmentation fault").says("Inside application ");
    let status = format!("{}; echo $?", inside("-q ./nope"));
    assert_eq!(script(&hand, &status).expect(0).out(), "127\n");
    // stdin goes to PE 0; another inside of it is as good.
    let nested = inside(&format!("-q {}", inside("-q cat")));
    assert_eq!(script(&hand, &format!("echo text | {nested}")).expect(0).out(), "text\n");
    // TERM is passed on, and only to what it runs.
    let text = format!("{}; kill $!; wait $!; echo $?", sleeper(&hand, 86401));
    assert_eq!(script(&hand, &text).expect(0).out(), "143\n");
    assert!(!sleeps(86401));
}

#[test]
fn mpi_programs_run() {
    let test = "inside::mpi_programs_run";
    let Some(ring) = program(test, "ring") else { return };
    let hand = start();
    let lines = |n: u32| -> Vec<String> {
        let line = |r| format!("rank {r} of {n} appnum 0 sum {} shared {n}", n * (n + 1) / 2);
        (0..n).map(line).collect()
    };
    let ring = ring.display();
    let two = script(&hand, &inside(&format!("-q -n 2 {ring}"))).expect(0);
    assert_eq!(two.sorted(), lines(2));
    let five = script(&hand, &inside(&format!("-q -n 5 --oversubscribe {ring}"))).expect(0);
    assert_eq!(five.sorted(), lines(5));
    let mpirun = binaries().join("mpirun");
    let text = format!("{} --inside -q -np 2 {ring}", mpirun.display());
    assert_eq!(script(&hand, &text).expect(0).sorted(), lines(2));
    // Those of Open MPI have an appmix of their own.
    let Some(open) = open("inside::mpi_programs_run.open", "ring") else { return };
    let two = script(&hand, &inside(&format!("-q -n 2 {}", open.display()))).expect(0);
    assert_eq!(two.sorted(), lines(2));
}

#[test]
fn it_ends_with_its_aprun_and_with_its_parent() {
    let hand = start();
    // Its aprun is killed: what it ran goes, and the script goes on.
    let go = hand.path().join("go");
    let killed = format!(
        "{}; kill -9 $!; until [ -e {} ]; do sleep 0.01; done; echo on",
        sleeper(&hand, 86402),
        go.display()
    );
    let parent = hand.start_script("-q -d 2", &killed);
    eventually(BOUND, "it has run inside", || hand.path().join("86402").exists());
    eventually(BOUND, "it is gone", || !sleeps(86402));
    std::fs::write(&go, "").expect("written");
    assert_eq!(parent.wait(BOUND).expect(0).out(), "on\n");
    // The parent is ended.
    let parent = hand.start_script("-q -d 2", &inside("-q -n 2 sleep 86403"));
    eventually(BOUND, "it runs inside", || sleeps(86403));
    let apid = hand.wait_for("running", 1)[0];
    run(&mut hand.command("apkill", ["-9", &apid.to_string()])).expect(0);
    parent.wait(BOUND).expect(137);
    assert!(!sleeps(86403));
    // The script ends before what it has started.
    let left = hand.start_script("-d 2", &sleeper(&hand, 86404)).wait(BOUND).expect(0);
    left.says("behind, which were ended");
    assert!(!sleeps(86404));
}

/// What stops the parent stops it: here an administrator, as a turn of another's would.
#[test]
fn it_is_frozen_with_its_parent() {
    let hand = start();
    let count = hand.path().join("count");
    let line = format!("-q sh -c 'while :; do echo x >> {}; done'", count.display());
    let parent = hand.start_script("-q -d 2", &inside(&line));
    let length = || std::fs::metadata(&count).map_or(0, |file| file.len());
    eventually(BOUND, "it counts", || length() > 0);
    let apid = hand.wait_for("running", 1)[0].to_string();
    run(&mut hand.command("psmgr", ["hold", &apid])).expect(0);
    let (mut before, mut same) = (0, 0);
    eventually(BOUND, "it stands still", || {
        let now = length();
        same = if now == before { same + 1 } else { 0 };
        before = now;
        // (It writes many times between two looks.)
        same >= 40
    });
    run(&mut hand.command("psmgr", ["release", &apid])).expect(0);
    eventually(BOUND, "it goes on", || length() > before);
    run(&mut hand.command("apkill", ["-9", &apid])).expect(0);
    parent.wait(BOUND).expect(137);
}

/// A user's own instance, where the user is not root.
#[test]
fn an_ordinary_user_runs_it_too() {
    if !is_root() {
        return;
    }
    let instance = Plan::new().nodes(1, 2).for_user().start();
    let aprun = instance.bins.join("aprun");
    assert!(Path::new(&aprun).is_file());
    let line = format!("{} --inside -q -n 2 id -u", aprun.display());
    let run = instance.script("-q -d 2", &line).expect(0);
    assert_eq!(run.sorted(), [USER.to_string(), USER.to_string()]);
}
