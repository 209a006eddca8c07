//! psmgr on a live machine: variables, nodes that are taken out, applications that are held.

use crate::support::hand::Hand;
use crate::support::users::{ANNA, Bins};
use crate::support::*;
use std::process::Command;

/// Nobody shares a processor: what finds none free waits.
const ONE: &str = "nodes:
  - { nids: 0, processors: 1, flavors: [su, os, ap] }
variables:
  application.max_resident: 1
";
const TWO: &str = "nodes:
  - { nids: 0, processors: 1, flavors: [su, os, ap] }
  - { nids: 1, processors: 1 }
variables:
  application.max_resident: 1
";
const FOREVER: &str = "while :; do sleep 0.1; done";

fn psmgr(hand: &Hand, arguments: &str) -> Command {
    hand.command("psmgr", words(arguments))
}

/// What psmgr prints where all is well.
#[track_caller]
fn done(hand: &Hand, arguments: &str) -> String {
    run(&mut psmgr(hand, arguments)).expect(0).out()
}

#[track_caller]
fn json(hand: &Hand, arguments: &str) -> serde_json::Value {
    serde_json::from_str(&done(hand, &format!("{arguments} --json"))).expect("JSON")
}

/// A variable's value, and where it comes from.
#[track_caller]
fn value(hand: &Hand, name: &str) -> (String, String) {
    let all = json(hand, &format!("show {name}"));
    let rows = all["variables"].as_array().expect("a list");
    let row = rows.iter().find(|row| row["name"] == name).expect("there");
    let text = |key| row[key].as_str().expect("text").to_owned();
    (text("value"), text("from"))
}

#[track_caller]
fn state(hand: &Hand, nid: usize) -> String {
    hand.apstat("-n")["nodes"][nid]["state"].as_str().expect("text").to_owned()
}

#[track_caller]
fn wait_for_node(hand: &Hand, nid: usize, wanted: &str) {
    eventually(BOUND, &format!("NID {nid} is {wanted}"), || state(hand, nid) == wanted);
}

#[test]
fn variables_are_set_at_once_and_kept() {
    let mut hand = Hand::start(ONE, &[("0", None)]);
    let runs = hand.start_script("-n 1", FOREVER);
    let apid = hand.wait_for("running", 1)[0];
    let told = done(&hand, "set postings_user_max=1 weight.user.root=3 history_max=7");
    assert_eq!(
        told,
        "postings_user_max: 10000 -> 1\nweight.user.root: 1 -> 3\nhistory_max: 10000 -> 7 when \
         psched is started again (applications run on); until then as before\n"
    );
    let waits = hand.start_script("-n 1", "true");
    hand.wait_for("posted", 1);
    let refused = |hand: &Hand| {
        let run = hand.start_script("-n 1", "true").wait(BOUND).expect(125);
        run.says("your part of the queue is full (1 waiting)");
    };
    refused(&hand);
    // The file says another value, which psmgr's stands before; then psched dies.
    hand.reconfigure(&format!("{ONE}  postings_user_max: 5\n  kill_grace: 7s\n"));
    let words = "postings_user_max 10000 -> 5 has no effect: psmgr has set it to 1";
    eventually(BOUND, "the file was read", || hand.said().contains(words));
    refused(&hand);
    assert!(done(&hand, "show history_max").contains("history_max is 10000 until"));
    hand.kill_psched();
    hand.start_psched();
    refused(&hand);
    let (set, from) = value(&hand, "postings_user_max");
    assert!(set == "1" && from.starts_with("psmgr ("), "{set} {from}");
    assert_eq!(value(&hand, "weight.user.root").0, "3");
    assert_eq!(value(&hand, "kill_grace"), ("7s".into(), "psched.yaml".into()));
    assert_eq!(value(&hand, "ticket_time"), ("1m".into(), "default".into()));
    assert!(!done(&hand, "show history_max").contains("until"));
    let told = done(&hand, "set --reset postings_user_max weight.user.root kill_grace");
    assert_eq!(
        told,
        "postings_user_max: 1 -> 5 (psched.yaml)\nweight.user.root: 3 -> 1 (default)\nkill_grace: \
         7s (psched.yaml), not set by psmgr\n"
    );
    let log = json(&hand, "log");
    let log: Vec<[&str; 3]> = log["changes"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|row| ["what", "from", "to"].map(|key| row[key].as_str().expect("text")))
        .collect();
    assert_eq!(
        log,
        [
            ["postings_user_max", "10000", "1"],
            ["weight.user.root", "1", "3"],
            ["history_max", "10000", "7"],
            [
                "psched.yaml",
                "in force",
                "kill_grace 5s -> 7s, postings_user_max 10000 -> 5 has no effect: psmgr has set it to 1",
            ],
            ["postings_user_max", "1", "5 (psched.yaml)"],
            ["weight.user.root", "3", "1 (default)"],
        ]
    );
    let newest = json(&hand, "log -n 1");
    assert_eq!(newest["changes"].as_array().map(Vec::len), Some(1));
    // Who and when, too.
    let newest = &newest["changes"][0];
    assert_eq!(newest["user"], hand.apstat("-a")["applications"][0]["user"], "{newest}");
    let year = run(Command::new("date").arg("+%Y-")).expect(0).out();
    assert!(newest["time"].as_str().expect("text").starts_with(year.trim()), "{newest}");
    run(&mut hand.command("apkill", ["-9", &apid.to_string()])).expect(0);
    runs.wait(BOUND).expect(137);
    waits.wait(BOUND).expect(0);
    hand.end();
}

#[test]
fn what_is_wrong_changes_nothing() {
    let hand = Hand::start(ONE, &[("0", None)]);
    for line in
        ["set", "set kill_grace", "set --reset a=1", "drain 0-x", "hold 0", "fix", "log -n x"]
    {
        run(&mut psmgr(&hand, line)).expect(2);
    }
    let nobody = run(&mut psmgr(&hand, "drain x")).expect(1);
    nobody.says(
        "psmgr: psched.yaml has no node on a host \"x\": apstat -n -v shows nodes and their hosts",
    );
    let wrong = run(&mut psmgr(&hand, "set ticket_time=9s kill_grace=9h kill_grase=1s")).expect(1);
    let wrong = wrong
        .says("9h is out of the range of kill_grace; give a duration such as 500ms, 5s or 1m30s")
        .says("there is no variable kill_grase; did you mean kill_grace?");
    assert_eq!(wrong.out(), "");
    let nobody = run(&mut psmgr(&hand, "set ticket_time=9s weight.user.nobody-1=2")).expect(1);
    nobody.says("weight.user.nobody-1: nobody-1 is not a user of this host");
    // Nothing is known to be wrong with one that is taken away.
    run(&mut psmgr(&hand, "set --reset weight.user.nobody-1")).expect(0);
    run(&mut psmgr(&hand, "set --reset colour")).expect(1).says("there is no variable colour");
    run(&mut psmgr(&hand, "show colour")).expect(1).says("no variable matches colour");
    run(&mut psmgr(&hand, "drain 0,7")).expect(1).says("NID 7: not in psched.yaml");
    run(&mut psmgr(&hand, "down 0"))
        .expect(1)
        .says("NID 0: connected, so not down: use psmgr drain 0");
    run(&mut psmgr(&hand, "hold 7")).expect(1).says("there is no application 7");
    assert_eq!(value(&hand, "ticket_time").0, "1m");
    assert_eq!(state(&hand, 0), "free");
    assert_eq!(json(&hand, "log")["changes"].as_array().map(Vec::len), Some(0));
    hand.end();
}

/// Of two that set at once one is the later, wholly; and what was answered is on the record.
#[test]
fn sets_at_once_and_a_psched_that_is_killed() {
    let mut hand = Hand::start(ONE, &[("0", None)]);
    let sets: Vec<Running> = (1..=8)
        .map(|n| {
            Running::start(&mut psmgr(&hand, &format!("set apkill_grace={n}s ticket_time={n}s")))
        })
        .collect();
    eventually(BOUND, "one is set", || hand.said().contains("apkill_grace: "));
    hand.kill_psched();
    hand.start_psched();
    let said: Vec<String> = sets
        .into_iter()
        .map(|set| set.wait(BOUND))
        .filter(|run| run.status == 0)
        .map(|run| run.out())
        .collect();
    let log = done(&hand, "log -n 100");
    for lines in &said {
        // `apkill_grace: 5m -> 3s`
        let to = lines.lines().next().and_then(|l| l.split(" -> ").nth(1)).expect("a value");
        let kept =
            log.lines().any(|l| l.contains("apkill_grace") && l.ends_with(&format!(" {to}")));
        assert!(kept, "{to} was answered, and is not in\n{log}");
    }
    let all = json(&hand, "show");
    let rows = all["variables"].as_array().expect("a list");
    let value = |name: &str| rows.iter().find(|row| row["name"] == name).map(|row| &row["value"]);
    let (one, other) = (value("apkill_grace"), value("ticket_time"));
    let untouched = log.lines().count() == 1;
    assert!(one == other || untouched, "{one:?} {other:?}\n{log}");
    hand.end();
}

#[test]
fn a_drained_node_takes_nothing_new() {
    let mut hand = Hand::start(TWO, &[("0", None), ("1", None)]);
    let runs = hand.start_script("-n 1", FOREVER);
    let first = hand.wait_for("running", 1)[0];
    let told = done(&hand, "drain 0-1 the memory is bad");
    assert!(
        told.starts_with("NIDs 0-1: drained by ") && told.contains(": the memory is bad"),
        "{told}"
    );
    assert_eq!([state(&hand, 0), state(&hand, 1)], ["draining", "drained"]);
    let waits = hand.start_script("-n 2", "echo ran");
    let apid = hand.wait_for("posted", 1)[0];
    let why = run(&mut hand.command("apstat", ["--why", &apid.to_string()])).expect(0).out();
    assert!(why.contains("the memory is bad") && why.contains("psmgr resume 0-1"), "{why}");
    // What runs there runs on, and ends; through a death of psched's nothing is forgotten.
    hand.kill_psched();
    hand.start_psched();
    wait_for_node(&hand, 0, "draining");
    wait_for_node(&hand, 1, "drained");
    run(&mut hand.command("apkill", ["-9", &first.to_string()])).expect(0);
    runs.wait(BOUND).expect(137);
    wait_for_node(&hand, 0, "drained");
    assert!(hand.apstat("-n").to_string().contains("drained by "), "and why");
    hand.wait_for("posted", 1);
    assert!(done(&hand, "resume 0").starts_with("NID 0: open; before: drained by "));
    hand.wait_for("posted", 1);
    done(&hand, "resume 0-1");
    assert_eq!(waits.wait(BOUND).expect(0).out(), "ran\nran\n");
    hand.end();
}

#[test]
fn what_ran_on_a_node_that_is_down_ends() {
    let mut hand = Hand::start(TWO, &[("0", None), ("1", None)]);
    let never = hand.folder().join("never").display().to_string();
    let script = format!("until [ -e {never} ]; do sleep 0.1; done");
    let runs = hand.start_script("-n 2 -N 1", &script);
    let apid = hand.wait_for("running", 1)[0];
    hand.kill_apinit_of("1");
    wait_for_node(&hand, 1, "suspect");
    let notices = hand.apstat("-n")["notices"].to_string();
    assert!(notices.contains("NID 1: suspect: its apinit does not answer, since 20"), "{notices}");
    let told = done(&hand, "down 1 the power is gone");
    assert!(told.contains("NID 1: declared down by "), "{told}");
    assert!(
        told.contains(&format!("application {apid} of "))
            && told.contains("lost nodes that are down"),
        "{told}"
    );
    let run = runs.wait(BOUND).expect(125);
    run.says("[NID 00001]").says("it was declared down by ").says("the power is gone");
    wait_for_node(&hand, 0, "free");
    assert_eq!(state(&hand, 1), "down");
    // Through a death of psched's; and it was alive: what it has is ended, and it waits.
    hand.kill_psched();
    hand.start_psched();
    hand.start_apinit("1", None);
    wait_for_node(&hand, 0, "free");
    eventually(BOUND, "what ran there is gone", || processes_with(&never).is_empty());
    assert_eq!(state(&hand, 1), "down");
    let waits = hand.start_script("-n 2 -N 1", "echo ran");
    hand.wait_for("posted", 1);
    done(&hand, "resume 1");
    assert_eq!(waits.wait(BOUND).expect(0).out(), "ran\nran\n");
    hand.end();
}

#[test]
fn a_held_posting_waits_until_it_is_released() {
    let mut hand = Hand::start(ONE, &[("0", None)]);
    let runs = hand.start_script("-n 1", FOREVER);
    let first = hand.wait_for("running", 1)[0];
    let waits = hand.start_script("-n 1", "echo held");
    let apid = hand.wait_for("posted", 1)[0];
    let told = done(&hand, &format!("hold {apid}"));
    assert!(
        told.starts_with(&format!("application {apid} of ")) && told.ends_with(": held\n"),
        "{told}"
    );
    assert_eq!(hand.wait_for("held", 1), [apid]);
    let why = run(&mut hand.command("apstat", ["--why", &apid.to_string()])).expect(0).out();
    assert!(why.contains(&format!("psmgr release {apid}")), "{why}");
    run(&mut hand.command("apkill", ["-9", &first.to_string()])).expect(0);
    runs.wait(BOUND).expect(137);
    // Others go past it, and it waits through a death of psched's.
    assert_eq!(hand.start_script("-n 1", "echo past").wait(BOUND).expect(0).out(), "past\n");
    hand.kill_psched();
    hand.start_psched();
    hand.wait_until_up();
    assert_eq!(hand.wait_for("held", 1), [apid]);
    done(&hand, &format!("release {apid}"));
    assert_eq!(waits.wait(BOUND).expect(0).out(), "held\n");
    let log = done(&hand, "log");
    assert_eq!(log.lines().filter(|l| l.contains(&format!("application {apid} of "))).count(), 2);
    hand.end();
}

#[test]
fn psmgr_is_for_administrators() {
    if !is_root() {
        let test = "psmgr::psmgr_is_for_administrators";
        return skip(test, "only root can be another user");
    }
    let hand = Hand::start(ONE, &[("0", None)]);
    hand.open_to_all();
    let bins = Bins::new();
    let as_anna = |line: &str| {
        let mut command = ANNA.command(bins.path("psmgr"), words(line));
        run(command.env("PSCHED_SOCKET", hand.socket()))
    };
    let lines = [
        "show",
        "set kill_grace=9s",
        "drain 0",
        "down 0",
        "resume 0",
        "hold 1",
        "release 1",
        "log",
        "counters",
        "record /dev/null --force",
        "adopt 0",
        "purge 0",
    ];
    for line in lines {
        as_anna(line).expect(1).says("user 61301 is not an administrator of this psched");
    }
    assert_eq!((value(&hand, "kill_grace").0, state(&hand, 0)), ("5s".into(), "free".into()));
    hand.reconfigure(&format!("{ONE}administrators: [61301]\n"));
    eventually(BOUND, "she is one", || as_anna("log").status == 0);
    as_anna("set kill_grace=9s").expect(0);
    assert!(value(&hand, "kill_grace").1.starts_with("psmgr (61301, "));
    hand.end();
}

/// What psched has heard and decided is counted, from its start.
#[test]
fn what_psched_is_busy_with_is_counted() {
    let hand = Hand::start(ONE, &[("0", None)]);
    let counts = |hand: &Hand| {
        let told = json(hand, "counters");
        let rows = told["counters"].as_array().expect("a list").clone();
        move |what: &str, kind: &str| {
            let row = rows.iter().find(|row| row["what"] == what && row["kind"] == kind);
            row.map_or(0, |row| row["count"].as_u64().expect("a number"))
        }
    };
    let before = counts(&hand);
    assert_eq!((before("heard", "posting"), before("heard", "link opened")), (0, 1));
    for _ in 0..3 {
        run(&mut hand.command("aprun", ["-q", "-n", "1", "true"])).expect(0);
    }
    let after = counts(&hand);
    assert_eq!(after("heard", "posting"), 3);
    assert_eq!(after("decided", "answer: accepted"), 3);
    assert_eq!(after("decided", "command: place"), 3);
    assert!(after("heard", "report: ended") >= 3);
    hand.end();
}

/// What psched decided is shown by a replay of its recording, without psched.
#[test]
fn a_recording_shows_what_psched_decided() {
    let hand = Hand::start(ONE, &[("0", None)]);
    for word in ["--token=hunter2", "again"] {
        run(&mut hand.command("aprun", ["-q", "-n", "1", "echo", word])).expect(0);
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("events");
    let path = file.to_str().expect("text");
    let told = run(&mut hand.command("psmgr", ["record", path])).expect(0).out();
    assert!(told.contains("psched replay"), "{told}");
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&file.metadata().expect("there").permissions());
    assert_eq!(mode & 0o777, 0o600);
    // An existing file is not replaced by chance.
    run(&mut hand.command("psmgr", ["record", path])).expect(1).says("File exists");
    run(&mut hand.command("psmgr", ["record", "--force", path])).expect(0);
    let counted = json(&hand, "counters");
    hand.end();
    let text = std::fs::read_to_string(&file).expect("text");
    assert!(!text.contains("hunter2"), "an argument is written");
    let replay = |words: &[&str]| {
        let mut command = Command::new(binaries().join("psched"));
        run(command.arg("replay").args(words))
    };
    let shown = replay(&[path]).expect(0).out();
    for line in
        ["posting: -n 1 -d 1 by ", "    answer: accepted: application 2\n", "report: ended: link "]
    {
        assert!(shown.contains(line), "{shown}");
    }
    // Each kind of effect as often as psched has counted.
    let lines = replay(&["--json", path]).expect(0).out();
    let places =
        lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
    let effects = places.flat_map(|line| line["effects"].as_array().expect("a list").clone());
    let placed = effects.filter(|effect| effect["Command"]["command"]["Place"].is_object()).count();
    let rows = counted["counters"].as_array().expect("a list");
    let row = rows.iter().find(|row| row["kind"] == "command: place").expect("counted");
    assert_eq!(row["count"], placed);
    // A cut one is shown up to there.
    let cut = folder.path().join("cut");
    std::fs::write(&cut, &text[..text.len() - 200]).expect("written");
    let cut = replay(&[cut.to_str().expect("text")]).expect(1).says("it is cut").out();
    assert!(cut.contains("answer: accepted"), "{cut}");
    replay(&["/etc/hostname"]).expect(1).says("not a recording of psched");
}
