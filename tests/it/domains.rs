//! Domains as users and administrators meet them: two parts of a machine that take turns apart, each by variables
//! that are retuned live, over a restart, and with another psched.yaml while applications run.

use crate::support::hand::Hand;
use crate::support::*;

/// NIDs of one processor, these for short runs and those for long ones.
fn config(quick: &str, long: &str) -> String {
    format!(
        "nodes:
  - {{ nids: 0-1, processors: 1, flavors: [su, os, ap] }}
  - {{ nids: 2, processors: 1 }}
regions:
  - {{ name: tests, nids: '{quick}', domain: quick, gates: {{ time_limit: -1h }} }}
  - {{ name: long, nids: '{long}' }}
variables:
  application.time_slice: 400ms
  application.max_resident: 2
  quick.time_slice: 100ms
"
    )
}

const FOREVER: &str = "while :; do sleep 0.01; done";

fn view(hand: &Hand) -> serde_json::Value {
    let view = run(&mut hand.command("psview", ["--json"])).expect(0).out();
    serde_json::from_str(&view).expect("JSON")
}

/// The NIDs and the lengths of the slices, in milliseconds, the longest first, of each plan; by the first NID.
fn plans(hand: &Hand) -> Vec<(u64, Vec<u64>)> {
    let view = view(hand);
    let number = |value: &serde_json::Value| value.as_u64().expect("a number");
    let nid = |apid: u64| {
        let rows = view["applications"].as_array().expect("a list");
        let row = rows.iter().find(|row| row["apid"] == apid).expect("its row");
        number(&row["nids"][0])
    };
    let plan = |plan: &serde_json::Value| {
        let slices = plan["slices"].as_array().expect("a list");
        let length = |slice: &serde_json::Value| number(&slice["length_ns"]) / 1_000_000;
        let mut lengths: Vec<u64> = slices.iter().map(length).collect();
        lengths.sort_unstable_by(|a, b| b.cmp(a));
        (nid(number(&plan["members"][0])), lengths)
    };
    let mut plans: Vec<_> = view["plans"].as_array().expect("a list").iter().map(plan).collect();
    plans.sort_unstable();
    plans
}

/// All of them have run for a while.
fn all_ran(hand: &Hand) -> bool {
    let rows = view(hand)["applications"].as_array().expect("a list").clone();
    rows.iter().all(|row| row["attained_ns"].as_u64() > Some(200_000_000))
}

#[test]
fn two_domains_take_turns_apart() {
    let mut hand = Hand::start(&config("2", "0-1"), &[("0-2", None)]);
    let long_ones: Vec<_> = (0..2).map(|_| hand.start_script("-n 2", FOREVER)).collect();
    let long = hand.wait_for("running", 2);
    let quick: Vec<_> = (0..2).map(|_| hand.start_script("--time-limit 30m", FOREVER)).collect();
    let short: Vec<u64> =
        hand.wait_for("running", 4).into_iter().filter(|apid| !long.contains(apid)).collect();
    let both = || plans(&hand);
    eventually(BOUND, "two plans", || both() == [(0, vec![300, 100]), (2, vec![75, 25])]);
    // All of them get on.
    eventually(BOUND, "time for each", || all_ran(&hand));
    let shown = run(&mut hand.command("apstat", ["-A", &short[0].to_string()])).expect(0).out();
    assert!(
        shown.lines().any(|line| line.starts_with("Domain:") && line.ends_with(" quick")),
        "{shown}"
    );
    let view = run(&mut hand.command("psview", [] as [&str; 0])).expect(0).out();
    assert!(view.contains("quick: slices of 100ms"), "{view}");
    assert!(view.contains("application: slices of 400ms"), "{view}");
    // Retuned live, one of them.
    let said = run(&mut hand.command("psmgr", ["set", "quick.time_slice=50ms"])).expect(0).out();
    assert!(said.contains("quick.time_slice: 100ms -> 50ms"), "{said}");
    eventually(BOUND, "other slices", || both() == [(0, vec![300, 100]), (2, vec![37, 12])]);
    run(&mut hand.command("psmgr", ["set", "slow.time_slice=50ms"]))
        .expect(1)
        .says("no region of this machine has the domain slow");
    let shown = run(&mut hand.command("psmgr", ["show", "quick.time_slice"])).expect(0).out();
    assert!(shown.contains("50ms"), "{shown}");
    // After a restart as before: the value, and who is of which domain.
    hand.kill_psched();
    hand.start_psched();
    eventually(BOUND, "plans after a restart", || {
        plans(&hand) == [(0, vec![300, 100]), (2, vec![37, 12])]
    });
    // NIDs 1 and 2 are to be of the other domain, and 2 goes over when the short ones have ended.
    hand.reconfigure(&config("1", "0,2"));
    eventually(BOUND, "the other file", || {
        run(&mut hand.command("apstat", ["-n", "-v"])).out().contains("moves to another domain")
    });
    let waits = hand.start_script("", FOREVER);
    let third = hand.wait_for("posted", 1)[0];
    for apid in &short {
        run(&mut hand.command("apkill", ["-9", &apid.to_string()])).expect(0);
    }
    quick.into_iter().for_each(|aprun| drop(aprun.wait(BOUND).expect(137)));
    eventually(BOUND, "its place", || hand.wait_for("running", 3).contains(&third));
    let row = hand.apstat(&format!("-A {third}"));
    assert_eq!(row["placement"][0]["nid"], 2, "{row}");
    run(&mut hand.command("apkill", ["-9", &third.to_string()])).expect(0);
    waits.wait(BOUND).expect(137);
    for apid in &long {
        run(&mut hand.command("apkill", ["-9", &apid.to_string()])).expect(0);
    }
    long_ones.into_iter().for_each(|aprun| drop(aprun.wait(BOUND).expect(137)));
    hand.end();
}
