//! Faked hosts, as somebody who tries a configuration uses them.

use crate::support::hand::Hand;
use crate::support::{BOUND, Running, eventually, run};

/// Twelve nodes of two processors on three faked hosts.
fn faked(config: &str) -> Hand {
    let config = format!(
        "nodes:\n  - {{ nids: 0, processors: 2, flavors: [su, os, ap] }}\n  \
         - {{ nids: 1-11, processors: 2 }}\n{config}"
    );
    Hand::start_faked(&config, 3, "0-11")
}

fn aprun(hand: &Hand, width: &str, seconds: &str) -> Running {
    Running::start(&mut hand.command("aprun", ["-n", width, "sleep", seconds]))
}

#[test]
fn programs_run_on_faked_hosts_as_long_as_they_say() {
    let hand = faked("");
    let nodes = run(&mut hand.command("apstat", ["-n"])).expect(0).out();
    assert!(nodes.contains("faked: PEs are timers"), "{nodes}");
    let begun = std::time::Instant::now();
    aprun(&hand, "24", "1").wait(BOUND).expect(0);
    assert!(begun.elapsed() >= std::time::Duration::from_secs(1));
    // Whatever it is: nothing is executed.
    run(&mut hand.command("aprun", ["-n", "24", "false"])).expect(0);
    // Two of them side by side, each over one host and a half.
    let both = [aprun(&hand, "12", "0.5"), aprun(&hand, "12", "0.5")];
    both.into_iter().for_each(|one| drop(one.wait(BOUND).expect(0)));
    // One that is ended ends.
    let long = aprun(&hand, "24", "1000");
    let apid = hand.wait_for("running", 1)[0].to_string();
    run(&mut hand.command("apkill", [&apid])).expect(0);
    assert_ne!(long.wait(BOUND).status, 0);
    hand.wait_until_up();
    hand.end();
}

/// Forty hosts, each of which speaks with two others at most.
#[test]
fn a_program_runs_on_a_tree_of_hosts() {
    let config = "nodes:\n  - { nids: 0, processors: 2, flavors: [su, os, ap] }\n  - { nids: 1-39, \
                  processors: 2 }\nvariables: { fan_out: 2 }\n";
    let hand = Hand::start_faked(config, 40, "0-39");
    for seconds in ["0", "0.3"] {
        aprun(&hand, "80", seconds).wait(BOUND).expect(0);
    }
    let long = aprun(&hand, "80", "1000");
    let apid = hand.wait_for("running", 1)[0].to_string();
    run(&mut hand.command("apkill", ["-9", &apid])).expect(0);
    assert_eq!(long.wait(BOUND).status, 137);
    hand.wait_until_up();
    hand.end();
}

#[test]
fn faked_gangs_take_turns() {
    let hand = faked("variables:\n  application.max_resident: 3\n  application.time_slice: 50ms\n");
    let both = [aprun(&hand, "24", "1000"), aprun(&hand, "24", "1000")];
    for apid in hand.wait_for("running", 2) {
        for frozen in [true, false] {
            eventually(BOUND, &format!("{apid} is frozen: {frozen}"), || {
                let all = run(&mut hand.command("psview", ["--json"])).expect(0).out();
                let all: serde_json::Value = serde_json::from_str(&all).expect("JSON");
                let mut rows = all["applications"].as_array().expect("a list").iter();
                rows.any(|row| row["apid"] == apid && (row["turn"] == "frozen") == frozen)
            });
        }
    }
    // Time in which it is frozen is not its own, and it ends all the same.
    aprun(&hand, "24", "0.2").wait(BOUND).expect(0);
    for apid in hand.wait_for("running", 2) {
        run(&mut hand.command("apkill", [apid.to_string()])).expect(0);
    }
    both.into_iter().for_each(|one| assert_ne!(one.wait(BOUND).status, 0));
    hand.end();
}

#[test]
fn what_can_not_be_faked_is_refused() {
    let hand = faked("");
    let socket = hand.socket();
    let socket = socket.to_str().expect("text");
    let too_many = ["--socket", socket, "--nids", "0-3", "--fake", "5"];
    run(&mut hand.command("apinit", too_many))
        .expect(1)
        .says("--fake 5: there have to be as many nodes, and --nids names 4");
    run(&mut hand.command("apinit", ["--psched", "h", "--nids", "0", "--fake", "1"])).expect(2);
    hand.end();
}
