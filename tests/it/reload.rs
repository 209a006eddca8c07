//! SIGHUP: psched.yaml is read again.

use crate::support::hand::Hand;
use crate::support::*;

const ONE: &str = "nodes:\n  - { nids: 0, processors: 1, flavors: [su, os, ap] }\n";
const TWO: &str = "nodes:\n  - { nids: 0, processors: 1, flavors: [su, os, ap] }\n  - { nids: 1, processors: 1 }\n";

#[track_caller]
fn wait_for_words(hand: &Hand, words: &str) {
    eventually(BOUND, &format!("psched says {words:?}"), || hand.said().contains(words));
}

#[test]
fn valid_takes_effect_and_what_waits_is_named() {
    let hand = Hand::start(ONE, &[("0", None)]);
    let config =
        format!("{ONE}variables:\n  postings_user_max: 1\n  history_max: 7\n  streams_max: 16\n");
    hand.reconfigure(&config);
    wait_for_words(&hand, "read again: postings_user_max 10000 -> 1");
    wait_for_words(&hand, "history_max 10000 -> 7 takes effect when psched is restarted");
    wait_for_words(&hand, "streams_max 256 -> 16 takes effect when psched is restarted");
    let runs = hand.start_script("-n 1", "while :; do sleep 0.1; done");
    let apid = hand.wait_for("running", 1)[0];
    let waits = hand.start_script("-n 1", "true");
    hand.wait_for("posted", 1);
    let refused = hand.start_script("-n 1", "true").wait(BOUND).expect(125);
    refused.says(
        "your part of the queue is full (1 waiting); try again later, or have an administrator \
         raise postings_user_max (1) with psmgr set",
    );
    // The same once more changes nothing.
    hand.reconfigure(&config.replace("  history_max: 7\n  streams_max: 16\n", ""));
    wait_for_words(&hand, "read again: nothing to change");
    run(&mut hand.command("apkill", ["-9", &apid.to_string()])).expect(0);
    runs.wait(BOUND).expect(137);
    waits.wait(BOUND).expect(0);
    hand.end();
}

#[test]
fn invalid_says_all_and_changes_nothing() {
    let hand = Hand::start(ONE, &[("0", None)]);
    hand.reconfigure("nodes:\n  - { nids: 0, processors: 0 }\nvariables:\n  kill_grase: 1\n");
    wait_for_words(&hand, "has 2 problems");
    let said = hand.said();
    assert!(
        said.contains("nodes[0].processors") && said.contains("did you mean kill_grace?"),
        "{said}"
    );
    assert!(said.contains("the former configuration stays in force"), "{said}");
    hand.start_script("-n 1", "true").wait(BOUND).expect(0);
    hand.end();
}

#[test]
fn nodes_come_and_go() {
    let mut hand = Hand::start(TWO, &[("0", None), ("1", None)]);
    let go = hand.folder().join("go");
    let script = format!("while ! [ -e {} ]; do sleep 0.02; done; exit 3", go.display());
    let runs = hand.start_script("-n 2 -N 1", &script);
    let apid = hand.wait_for("running", 1)[0];
    hand.reconfigure(ONE);
    wait_for_words(&hand, "NID 1 removed");
    eventually(BOUND, "NID 1 is shown as taken out", || {
        hand.apstat("-n").to_string().contains("no longer in psched.yaml")
    });
    // Not freed, through a restart of psched either.
    assert_eq!(hand.wait_for("running", 1), [apid]);
    hand.kill_psched();
    hand.start_psched();
    eventually(BOUND, "both are heard", || {
        let all = hand.apstat("-n");
        all["nodes"]
            .as_array()
            .is_some_and(|n| n.len() == 2 && n.iter().all(|n| n["state"] == "busy"))
    });
    std::fs::write(&go, "").expect("written");
    runs.wait(BOUND).expect(3);
    let alone = hand.start_script("-n 2 -N 1", "true").wait(BOUND).expect(125);
    alone.says("ask for");
    // And back.
    hand.reconfigure(TWO);
    wait_for_words(&hand, "NID 1 added");
    hand.wait_until_up();
    hand.start_script("-n 2 -N 1", "true").wait(BOUND).expect(0);
    hand.end();
}

#[test]
fn psmgr_reload_waits_and_tells() {
    let hand = Hand::start(ONE, &[("0", None)]);
    let reload = |text: &str| {
        hand.write_config(text);
        run(&mut hand.command("psmgr", ["reload"]))
    };
    let changed =
        reload(&format!("{ONE}variables:\n  kill_grace: 7s\n  history_max: 7\n")).expect(0);
    let out = changed.out();
    assert!(out.contains("psched.yaml was read again: kill_grace 5s -> 7s\n"), "{out}");
    assert!(out.contains("history_max 10000 -> 7 takes effect when psched is restarted"), "{out}");
    let shown = run(&mut hand.command("psmgr", ["show", "kill_grace"])).expect(0).out();
    assert!(shown.contains("7s"), "{shown}");
    let wrong =
        reload("nodes:\n  - { nids: 0, processors: 0 }\nvariables:\n  kill_grase: 1\n").expect(1);
    let wrong = wrong.says("nodes[0].processors").says("did you mean kill_grace?");
    wrong.says("the former configuration stays in force");
    hand.reconfigure(ONE);
    let log = || run(&mut hand.command("psmgr", ["log"])).expect(0).out();
    eventually(BOUND, "SIGHUP is in the log", || log().contains("SIGHUP"));
    // The two that succeeded, in the order in which they came.
    let log = log();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("psched.yaml")).collect();
    assert_eq!(lines.len(), 2, "{log}");
    assert!(
        lines[0].contains("kill_grace 5s -> 7s") && lines[1].contains("kill_grace 7s -> 5s"),
        "{log}"
    );
    hand.end();
}

/// What an administrator has ordered of a node is not over because a file lacks it for a while.
#[test]
fn a_node_that_is_back_stays_closed_and_that_is_said() {
    let hand = Hand::start(TWO, &[("0", None), ("1", None)]);
    let psmgr = |line: &str| run(&mut hand.command("psmgr", words(line))).expect(0).out();
    psmgr("drain 1 no power");
    hand.write_config(ONE);
    let out = psmgr("reload");
    assert!(out.contains("NID 1 removed") && !out.contains("still"), "{out}");
    hand.write_config(TWO);
    let still = "NID 1 still drained by root: no power (psmgr resume 1 opens it)";
    let out = psmgr("reload");
    assert!(out.contains("NID 1 added") && out.contains(still), "{out}");
    wait_for_words(&hand, still);
    assert_eq!(hand.apstat("-n")["nodes"][1]["state"], "drained");
    psmgr("resume 1");
    hand.wait_until_up();
    // Said once.
    let out = psmgr("reload");
    assert!(!out.contains("still"), "{out}");
    hand.end();
}
