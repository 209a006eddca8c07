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

/// A second apinit offers nodes that another has, among which an application runs: it is refused by name, says so
/// itself, and gets them only when the first has gone for good. psched's own death, or the first's, changes nothing.
#[test]
fn nodes_have_one_apinit() {
    let config = "nodes:\n  - { nids: 1, processors: 1, flavors: [su, os, ap] }\n  - { nids: 2-4, processors: 1 }\n";
    let mut hand = Hand::start(config, &[("1-4", None)]);
    let go = hand.folder().join("go");
    let script = format!("while ! [ -e {} ]; do sleep 0.02; done; exit 3", go.display());
    let runs = hand.start_script("-n 4 -N 1", &script);
    hand.wait_for("running", 1);
    let first = hand.apinit_pid("1-4");
    hand.start_apinit("2-3", None);
    let socket = hand.folder().join("apinit-1.sock");
    let why = format!(
        "NIDs 2-3 are offered by another apinit, which is linked: the apinit of NIDs 1-4 on \
         host {} ({}, process {first})",
        psched::os::host::hostname(),
        socket.display()
    );
    eventually(BOUND, "both say so", || {
        let said = hand.said();
        said.contains(&format!("an apinit was refused: {why}"))
            && said.contains(&format!("psched refuses this node: {why}"))
    });
    let times = |hand: &Hand| hand.said().matches("an apinit was refused: NIDs").count();
    hand.wait_for("running", 1);
    // Whoever of the two calls first: psched knows who has what runs there.
    hand.kill_psched();
    hand.start_psched();
    hand.wait_until_seen();
    hand.wait_for("running", 1);
    hand.kill_apinit_of("1-4");
    eventually(BOUND, "psched has heard of it, and refuses the other", || {
        hand.said().contains("has application 1 of ")
    });
    hand.start_apinit("1-4", None);
    hand.wait_until_seen();
    hand.wait_for("running", 1);
    // It calls every second, and is told of once.
    assert!(times(&hand) <= 4, "{} times", times(&hand));
    std::fs::write(&go, "").expect("written");
    runs.wait(BOUND).expect(3);
    hand.stop_apinit("1-4");
    let all = |state: [&str; 4]| {
        let all = hand.apstat("-n");
        let nodes = all["nodes"].as_array().expect("a list");
        nodes.iter().zip(state).all(|(node, state)| node["state"] == state)
    };
    eventually(BOUND, "the other has its nodes", || all(["suspect", "free", "free", "suspect"]));
    hand.end();
}

/// Nodes for which psched.yaml gives no memory have that of their host: what asks for more is refused, and who
/// asks for some is told where nobody can hold him to it.
#[test]
fn memory_is_found_by_itself() {
    let config = "nodes:\n  - { nids: 0, processors: 1, flavors: [su, os, ap] }\n  - { nids: 1, processors: 1 }\n";
    let hand = Hand::start(config, &[("0", None), ("1", None)]);
    let text = std::fs::read_to_string("/proc/meminfo").expect("readable");
    let total = text.lines().find_map(|l| l.strip_prefix("MemTotal:")).expect("a line");
    let mib: u64 = total.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") / 1024;
    let half = mib / 2;
    let too_much = format!("{}M", half + 2);
    let refused = run(&mut hand.command("aprun", ["-m", &too_much, "true"])).expect(125);
    refused.says("memory");
    let taken = run(&mut hand.command("aprun", ["-m", "16M", "true"])).expect(0);
    let nodes = hand.apstat("-n");
    let limits = nodes["nodes"][0]["limits"].to_string();
    let told = taken.stderr.matches("can't limit memory").count();
    assert_eq!(told, usize::from(!limits.contains("memory")), "{limits}: {}", taken.stderr);
    let silent = run(&mut hand.command("aprun", ["true"])).expect(0);
    assert!(!silent.stderr.contains("limit memory"), "{}", silent.stderr);
    hand.end();
}

/// An administrator who takes the shipped psched.yaml to a smaller host is told.
#[test]
fn nodes_with_more_processors_than_their_host_are_named() {
    let cores = std::thread::available_parallelism().expect("a number").get();
    for (processors, crowded) in [(cores * 2 + 1, true), (1, false)] {
        let config =
            format!("nodes:\n  - {{ nids: 0, processors: {processors}, flavors: [su, os, ap] }}\n");
        let hand = Hand::start(&config, &[("0", None)]);
        let notes = || run(&mut hand.command("apstat", ["-n"])).expect(0).out();
        let words =
            format!("the nodes of this apinit have {processors} processors, and its host has ");
        match crowded {
            true => eventually(BOUND, "it is said", || notes().contains(&words)),
            false => assert!(!notes().contains("its nodes have"), "{}", notes()),
        }
        hand.end();
    }
}

/// Two pscheds that know nothing of each other take processors that the other does not use, while
/// there are any; and where there are none, both nodes say so.
#[test]
fn two_pscheds_of_a_host_take_different_processors() {
    let claims = tempfile::tempdir().expect("a folder");
    let named = format!("PSCHED_CLAIMS={}", claims.path().display());
    let prefix = ["env", &named, "PSCHED_LOG=info"].map(Into::into);
    let start = |processors: usize| {
        let config =
            format!("nodes:\n  - {{ nids: 0, processors: {processors}, flavors: [su, os, ap] }}\n");
        Hand::start_by(&prefix, &config, &[("0", None)])
    };
    let bound = |hand: &Hand| {
        let line = words("-q grep Cpus_allowed_list: /proc/self/status");
        run(&mut hand.command("aprun", line)).expect(0).out()
    };
    let told = |hand: &Hand| {
        let notes = run(&mut hand.command("apstat", ["-n"])).expect(0).out();
        (hand.said() + &notes).contains("programs of both will run there at once")
    };
    let (first, second) = (start(1), start(1));
    let cores = std::thread::available_parallelism().expect("a number").get();
    if cores > 1 {
        assert_ne!(bound(&first), bound(&second));
        assert!(!told(&first) && !told(&second), "{}", second.said());
    }
    let all = start(cores);
    eventually(BOUND, "it says that they are used", || told(&all));
}
