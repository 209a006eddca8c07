//! snflv on a live machine: what nodes are for is set, and taken back.

use crate::support::hand::Hand;
use crate::support::users::{ANNA, Bins};
use crate::support::*;
use std::process::Command;

/// NID 0 is for the system, the others for applications; nobody shares a processor.
const THREE: &str = "nodes:
  - { nids: 0, processors: 1, flavors: [su, os] }
  - { nids: 1-2, processors: 1 }
variables:
  application.max_resident: 1
";
const FOREVER: &str = "while :; do sleep 0.1; done";

fn snflv(hand: &Hand, arguments: &[&str]) -> Command {
    hand.command("snflv", arguments)
}

/// What it prints where all is well.
#[track_caller]
fn done(hand: &Hand, arguments: &[&str]) -> String {
    run(&mut snflv(hand, arguments)).expect(0).out()
}

/// The lines of `snflv --json`: flavors, NIDs, what psched.yaml says, and whether snflv has set them.
#[track_caller]
fn shown(hand: &Hand) -> Vec<(String, String, Option<String>, bool)> {
    let all: serde_json::Value = serde_json::from_str(&done(hand, &["--json"])).expect("JSON");
    let text = |row: &serde_json::Value, key: &str| row[key].as_str().map(str::to_owned);
    let row = |row: &serde_json::Value| {
        let by_snflv = text(row, "from").expect("always").starts_with("snflv (");
        let flavors = text(row, "flavors").expect("some");
        (flavors, text(row, "nids").expect("some"), text(row, "configured"), by_snflv)
    };
    all["flavors"].as_array().expect("a list").iter().map(row).collect()
}

/// As it is without orders.
fn usual() -> Vec<(String, String, Option<String>, bool)> {
    let row = |flavors: &str, nids: &str| (flavors.to_owned(), nids.to_owned(), None, false);
    vec![row("su os", "0"), row("ap", "1-2")]
}

/// Applications on a node.
#[track_caller]
fn on(hand: &Hand, nid: usize) -> Vec<u64> {
    let all = hand.apstat("-n");
    let apids = all["nodes"][nid]["apids"].as_array().expect("a list");
    apids.iter().filter_map(serde_json::Value::as_u64).collect()
}

#[test]
fn what_is_set_is_in_force_until_it_is_taken_back() {
    let mut hand = Hand::start(THREE, &[("0-2", None)]);
    assert_eq!(shown(&hand), usual());
    let first = hand.start_script("-n 1", FOREVER);
    let stays = hand.wait_for("running", 1)[0];
    assert_eq!(on(&hand, 1), [stays]);
    let tried = done(&hand, &["1", "su", "os", "--dry-run"]);
    let (head, tried) = tried.split_once('\n').expect("two lines at least");
    assert_eq!((head, shown(&hand)), ("nothing was changed; this would be the result:", usual()));
    let told = done(&hand, &["1", "su", "os"]);
    assert_eq!(told, tried);
    assert!(told.starts_with("NID 1: su os, set by "), "{told}");
    assert!(told.contains("; before: ap (psched.yaml)\n"), "{told}");
    let keeps = format!("application {stays} of ");
    assert!(
        told.contains(&keeps) && told.ends_with(" keeps NID 1, which takes no new applications\n"),
        "{told}"
    );
    // Another goes elsewhere, and a third waits, also when the first has ended there.
    let second = hand.start_script("-n 1", FOREVER);
    let other = hand.wait_for("running", 2)[1];
    assert_eq!((on(&hand, 1), on(&hand, 2)), (vec![stays], vec![other]));
    let third = hand.start_script("-n 1", "echo ran");
    let waits = hand.wait_for("posted", 1)[0];
    run(&mut hand.command("apkill", ["-9", &stays.to_string()])).expect(0);
    first.wait(BOUND).expect(137);
    eventually(BOUND, "it has gone from NID 1", || on(&hand, 1).is_empty());
    assert_eq!(hand.wait_for("posted", 1), [waits]);
    // psched dies, and reads another file: what was set stands before it.
    hand.kill_psched();
    hand.start_psched();
    let set = |configured: &str| {
        let mut rows = usual();
        rows[1].1 = "2".into();
        rows.insert(1, ("su os".into(), "1".into(), Some(configured.into()), true));
        rows
    };
    assert_eq!(shown(&hand), set("ap"));
    let other_file = THREE
        .replace("nids: 1-2, processors: 1", "nids: 2, processors: 1")
        .replace("variables:", "  - { nids: 1, processors: 1, flavors: [su, ap] }\nvariables:");
    let path = hand.folder().join("new.yaml");
    std::fs::write(&path, &other_file).expect("written");
    let mut check = hand.command("psched", ["check", "--diff"]);
    let words = "flavors of NID 1: ap -> su ap has no effect: snflv has set them to su os";
    let diff = run(check.arg(&path)).expect(0).out();
    assert!(diff.contains(words) && !diff.contains("gets NID"), "{diff}");
    hand.reconfigure(&other_file);
    eventually(BOUND, "the file was read", || hand.said().contains(words));
    assert_eq!(shown(&hand), set("su ap"));
    let nodes = run(&mut hand.command("apstat", ["-n", "-v"])).expect(0).out();
    let row = nodes.lines().find(|line| line.trim_start().starts_with("1 ")).expect("NID 1");
    assert!(row.contains(" su,os ") && row.contains(" su,ap "), "{nodes}");
    assert!(nodes.contains("flavors su os, set by "), "{nodes}");
    assert_eq!(hand.wait_for("posted", 1), [waits]);
    // Taken back, it takes what waits.
    let tried = done(&hand, &["1", "--reset", "--dry-run"]);
    assert!(tried.contains(&format!("application {waits} of ")), "{tried}");
    assert!(tried.ends_with(" gets NID 1\n"), "{tried}");
    let told = done(&hand, &["0-1", "--reset"]);
    assert!(
        told.starts_with(
            "NID 0: su os (psched.yaml) already\nNID 1: su ap (psched.yaml); before: su os, set by "
        ),
        "{told}"
    );
    assert_eq!(third.wait(BOUND).expect(0).out(), "ran\n");
    // A support node takes applications as soon as it has ap.
    let fills = hand.start_script("-n 2", FOREVER);
    hand.wait_for("posted", 1);
    done(&hand, &["0", "os su ap"]);
    assert_eq!(hand.wait_for("running", 2).len(), 2);
    let log = run(&mut hand.command("psmgr", ["log"])).expect(0).out();
    assert_eq!(
        log.lines()
            .filter(|line| line.contains(" flavors of NID") && !line.contains("SIGHUP"))
            .count(),
        3,
        "{log}"
    );
    for apid in hand.wait_for("running", 2) {
        run(&mut hand.command("apkill", ["-9", &apid.to_string()])).expect(0);
    }
    second.wait(BOUND).expect(137);
    fills.wait(BOUND).expect(137);
    hand.end();
}

#[test]
fn what_is_wrong_changes_nothing() {
    let hand = Hand::start(THREE, &[("0-2", None)]);
    for line in [&["x"][..], &["1", "app"], &["1", ""], &["--reset"], &["1", "--dry-run"]] {
        run(&mut snflv(&hand, line)).expect(2);
    }
    run(&mut snflv(&hand, &["1", "su app"]))
        .expect(2)
        .says("app is not a flavor: the flavors are su, os and ap");
    for line in [&["7"][..], &["1,7", "ap"], &["7", "--reset"], &["7", "ap", "--dry-run"]] {
        run(&mut snflv(&hand, line)).expect(1).says("NID 7: not in psched.yaml");
    }
    run(&mut snflv(&hand, &["1-2", "su"])).expect(1).says(
        "NIDs 1-2: no other node has flavor ap, and at least one node must have it: give it to another node first",
    );
    run(&mut snflv(&hand, &["0", "ap"]))
        .expect(1)
        .says("NID 0: no other node has flavor su")
        .says("NID 0: no other node has flavor os");
    assert_eq!(shown(&hand), usual());
    assert_eq!(
        done(&hand, &["0,2"]),
        "Flavors Nodes NIDs From        Configured\n\
         su os       1 0    psched.yaml -\n\
         ap          1 2    psched.yaml -\n"
    );
    hand.end();
}

#[test]
fn to_set_is_for_administrators() {
    if !is_root() {
        let test = "snflv::to_set_is_for_administrators";
        return skip(test, "only root can be another user");
    }
    let hand = Hand::start(THREE, &[("0-2", None)]);
    hand.open_to_all();
    let bins = Bins::new();
    let as_anna = |line: &[&str]| {
        let mut command = ANNA.command(bins.path("snflv"), line);
        run(command.env("PSCHED_SOCKET", hand.socket()))
    };
    for line in [&["1", "os"][..], &["1", "os", "--dry-run"], &["1", "--reset"]] {
        as_anna(line).expect(1).says("user 61301 is not an administrator of this psched");
    }
    // She may look.
    assert!(as_anna(&[]).expect(0).out().contains("psched.yaml"));
    assert_eq!(shown(&hand), usual());
    hand.reconfigure(&format!("{THREE}administrators: [61301]\n"));
    eventually(BOUND, "she is one", || as_anna(&["1", "--reset"]).status == 0);
    assert!(as_anna(&["1", "os"]).expect(0).out().starts_with("NID 1: os, set by 61301; before"));
    hand.end();
}
