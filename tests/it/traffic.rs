//! How much psched and the apinits of many (faked) hosts send each other: to place an application
//! on all of them, and while gangs take turns.

use crate::support::hand::Hand;
use crate::support::wire::Wire;
use crate::support::*;
use std::time::{Duration, Instant};

/// A node each.
const HOSTS: u64 = 50;
/// Processors of a node.
const PROCESSORS: u64 = 40;

fn faked(variables: &str) -> (Hand, Wire) {
    let last = HOSTS - 1;
    let config = format!(
        "nodes:\n  - {{ nids: 0, processors: {PROCESSORS}, flavors: [su, os, ap] }}\n  \
         - {{ nids: 1-{last}, processors: {PROCESSORS} }}\n{variables}"
    );
    Hand::start_faked_by_wire(&config, HOSTS as u32, &format!("0-{last}"))
}

#[test]
fn placing_costs_bytes_for_each_host_and_none_for_each_pe() {
    let (hand, wire) = faked("");
    // What psched sends for a whole application. (Signs of life may be answered meanwhile, but not
    // each time.)
    let sent_once = |pes: u64, each: u64| {
        let before = wire.sent();
        let options = format!("-q -n {pes} -N {each} sleep 0");
        run(&mut hand.command("aprun", words(&options))).expect(0);
        hand.wait_until_up();
        wire.sent() - before
    };
    let sent = |pes: u64, each: u64| {
        (0..4).map(|_| sent_once(pes, each)).min_by_key(|sent| sent.bytes).expect("some")
    };
    let (half, all) = (sent(HOSTS / 2, 1), sent(HOSTS, 1));
    let full = sent(HOSTS * PROCESSORS, PROCESSORS);
    println!("half of the hosts: {half:?}; all: {all:?}; all of their processors: {full:?}");
    assert!(half.data > 0 && all.data >= HOSTS, "nothing was counted");
    // A thousand hosts are to be placed on with less than 10 MB.
    let each = all.bytes / HOSTS;
    assert!(each < 2_000, "{each} bytes for each host");
    assert!(
        full.bytes < all.bytes * 3 / 2,
        "{} bytes, and {} for one PE a host",
        full.bytes,
        all.bytes
    );
    assert!(
        full.data < all.data * 3 / 2,
        "{} frames, and {} for one PE a host",
        full.data,
        all.data
    );
    // Twice as many hosts: twice as much, and not four times.
    assert!(
        all.bytes < half.bytes * 3,
        "{} bytes, and {} for half of the hosts",
        all.bytes,
        half.bytes
    );
    drop(wire);
    hand.end();
}

#[test]
fn turns_cost_no_message() {
    const SLICE: Duration = Duration::from_millis(50);
    const WATCHED: Duration = Duration::from_secs(4);
    // Messages of each host in a second: from psched signs of life, questions about the clock, and
    // their answers; to psched also what a host tells, at most once a second, of all changes of its
    // gangs, in one report. A message for each slice would be twenty.
    const FROM_PSCHED: f64 = 1.5;
    const TO_PSCHED: f64 = 2.75;
    let slice = SLICE.as_millis();
    let (hand, wire) = faked(&format!(
        "variables: {{ application.max_resident: 2, application.time_slice: {slice}ms }}\n"
    ));
    let pes = HOSTS * PROCESSORS;
    let options = format!("-q -n {pes} sleep 1000");
    let gangs = [0, 1].map(|_| Running::start(&mut hand.command("aprun", words(&options))));
    let apids = hand.wait_for("running", 2);
    let turn_of = |apid: u64| {
        let all = run(&mut hand.command("psview", ["--json"])).expect(0).out();
        let all: serde_json::Value = serde_json::from_str(&all).expect("JSON");
        let mut rows = all["applications"].as_array().expect("a list").iter();
        rows.find(|row| row["apid"] == apid).map(|row| row["turn"] == "frozen")
    };
    let rotates = || {
        for frozen in [true, false, true] {
            eventually(BOUND, &format!("the first gang is frozen: {frozen}"), || {
                turn_of(apids[0]) == Some(frozen)
            });
        }
    };
    rotates();
    // Counts the messages from psched and to it for this time, and measures how long that was in seconds.
    // (No command asks for anything meanwhile.)
    let watched = |time: Duration| {
        let (before, began) = ([wire.sent(), wire.heard()], Instant::now());
        std::thread::sleep(time);
        let sent = [wire.sent() - before[0], wire.heard() - before[1]];
        (sent.map(|sent| sent.data as f64), began.elapsed().as_secs_f64())
    };
    let most = |each: f64, seconds: f64| each * seconds * HOSTS as f64;
    eventually(BOUND, "psched has nothing more to say about the plan", || {
        let ([sent, _], seconds) = watched(Duration::from_millis(500));
        sent <= most(FROM_PSCHED, seconds)
    });
    // (A plan is made anew where its gangs come to another level, as they may on a busy machine: then
    // it is watched once more. A message for each slice would be there each time.)
    eventually(BOUND, "a message for each host and second, and none for each slice", || {
        let ([sent, heard], seconds) = watched(WATCHED);
        rotates();
        println!("in {seconds:.2} s: {sent} from psched, {heard} to psched");
        sent <= most(FROM_PSCHED, seconds) && heard <= most(TO_PSCHED, seconds)
    });
    let apids = apids.iter().map(u64::to_string);
    run(&mut hand.command("apkill", ["-9".to_owned()].into_iter().chain(apids))).expect(0);
    for gang in gangs {
        gang.wait(BOUND).expect(137);
    }
    drop(wire);
    hand.end();
}
