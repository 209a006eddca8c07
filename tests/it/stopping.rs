//! TERM ends psched, apinit and an instance within seconds, whoever is connected, whatever hangs and
//! however much runs.

use crate::support::hand::Hand;
use crate::support::nasty::{half_open, never_reads};
use crate::support::*;
use prost::Message;
use psched::rpc::pb;
use std::time::{Duration, Instant};

const ONE: &str = "nodes:\n  - { nids: 0, processors: 2, flavors: [su, os, ap] }\n";
/// What a daemon may take, on a busy machine: a second or three for each thing that may hang.
const END: Duration = Duration::from_secs(12);
#[test]
fn psched_with_nasty_clients() {
    let mut hand = Hand::start(ONE, &[("0", None)]);
    let _half_open = half_open(&hand.socket());
    let runs = hand.start_script("-n 1", "while :; do sleep 0.1; done");
    let apid = hand.wait_for("running", 1)[0];
    let waits = hand.start_script("-n 2", "true");
    hand.wait_for("posted", 1);
    let watches = Running::start(&mut hand.command("apstat", ["-n", "-w"]));
    let apinit = hand.apinit_pid("0");
    // Streams and answers of every service that nobody takes, and that nobody ends.
    let watch = pb::WatchRequest { apid, ..Default::default() }.encode_to_vec();
    let list = pb::ListRequest::default().encode_to_vec();
    let _never_read = [
        never_reads(&hand.socket(), "/psched.v1.Psched/Watch", &watch, false),
        never_reads(&hand.socket(), "/psched.v1.Psched/List", &list, false),
        never_reads(&hand.socket(), "/psched.v1.Nodes/Link", b"", true),
    ];
    let stopped = [runs.pid(), waits.pid(), watches.pid(), apinit];
    stopped.iter().for_each(|pid| kill(*pid, 19));
    let took = hand.stop_psched();
    stopped.iter().for_each(|pid| kill(*pid, 18));
    assert!(took < END, "{took:?}");
    assert!(!hand.socket().exists(), "it takes its socket along");
    // Nothing was lost.
    hand.start_psched();
    hand.wait_for("running", 1);
    hand.wait_for("posted", 1);
    for (running, status) in [(waits, 143), (runs, 143)] {
        running.signal(15);
        running.wait(BOUND).expect(status);
    }
    watches.signal(9);
    watches.wait(BOUND);
    hand.end();
}

/// Another process has the store for itself: the end of an application can't be written.
#[test]
fn psched_with_a_store_that_hangs() {
    let mut hand = Hand::start(ONE, &[("0", None)]);
    let go = hand.folder().join("go");
    let script = format!("while ! [ -e {} ]; do sleep 0.02; done; exit 3", go.display());
    let runs = hand.start_script("-n 1", &script);
    hand.wait_for("running", 1);
    let store = rusqlite::Connection::open(hand.folder().join("state/psched.db")).expect("opened");
    store.execute_batch("BEGIN IMMEDIATE").expect("locked");
    std::fs::write(&go, "").expect("written");
    eventually(BOUND, "the store fails", || hand.said().contains("locked"));
    let took = hand.stop_psched();
    assert!(took < END, "{took:?}");
    store.execute_batch("ROLLBACK").expect("unlocked");
    // Its node tells the next one.
    hand.start_psched();
    runs.wait(BOUND).expect(3);
    eventually(BOUND, "its end is on record", || {
        hand.apstat("--history")["history"][0]["status"] == 3
    });
    hand.end();
}

#[test]
fn apinit_with_nasty_clients() {
    let mut hand = Hand::start(ONE, &[("0", None)]);
    // Its aprun is stopped with everything full: the pipe, the stream, the window.
    let runs =
        hand.start_script("-n 1", "while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done");
    hand.wait_for("running", 1);
    kill(runs.pid(), 19);
    let socket = hand.folder().join("apinit-0.sock");
    let _half_open = half_open(&socket);
    // Two streams that have said nothing, and will not hear anything.
    let _never_read = [(); 2].map(|()| never_reads(&socket, "/psched.v1.Apinit/Attach", b"", true));
    kill(hand.psched_pid(), 19);
    let took = hand.stop_apinit("0");
    kill(hand.psched_pid(), 18);
    assert!(took < END, "{took:?}");
    // The application has not ended with it.
    hand.start_apinit("0", None);
    kill(runs.pid(), 18);
    eventually(BOUND, "it is taken up", || hand.apstat("-n")["nodes"][0]["state"] == "busy");
    runs.signal(15);
    runs.wait(BOUND).expect(143);
    hand.end();
}

/// `psched start` promises ten seconds, however many applications run: with groups, and as a user
/// without, where their processes have to be looked for.
fn with_many_applications(plan: Plan) {
    const MANY: usize = 120;
    let mut instance = plan.nodes(MANY as u32, 1).start();
    let start = |_| instance.start_script("-q", "exec sleep 1000");
    let apruns: Vec<Running> = (0..MANY).map(start).collect();
    instance.wait_for("running", MANY);
    let began = Instant::now();
    let run = instance.end(15).expect("it ran").expect(0);
    let took = began.elapsed();
    assert!(!run.stderr.contains("does not end"), "{}", run.stderr);
    assert!(took < Duration::from_secs(10), "{took:?}");
    for aprun in apruns {
        aprun.wait(BOUND);
    }
}

#[test]
fn an_instance_with_many_applications() {
    with_many_applications(Plan::new());
}

#[test]
fn an_instance_with_many_applications_and_no_groups() {
    if !is_root() {
        return skip("stopping::an_instance_with_many_applications_and_no_groups", "not root");
    }
    with_many_applications(Plan::new().for_user());
}
