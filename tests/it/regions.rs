//! Regions and gates as users meet them: a machine with overflow nodes, gates for people, accounts and
//! terminals, lists of nodes, and another psched.yaml while it runs.

use crate::support::hand::Hand;
use crate::support::*;
use std::process::Command;

/// NID 0 is for the system, 1 and 2 for applications, 3 for those too wide for these.
const OVERFLOW: &str = "nodes:
  - { nids: 0, processors: 1, flavors: [su, os] }
  - { nids: 1-2, processors: 2 }
  - { nids: 3, processors: 2, flavors: [os, su, ap] }
regions:
  - { name: ordinary, flavors: [ap] }
  - { name: overflow, flavors: [os, su, ap], gates: { width: too wide for ordinary } }
";
const FOREVER: &str = "while :; do sleep 0.1; done";

/// NIDs of an application's places, in rank order.
#[track_caller]
fn nids(hand: &Hand, apid: u64) -> Vec<u64> {
    let all = hand.apstat(&format!("-A {apid}"));
    let places = all["placement"].as_array().expect("a list");
    places.iter().filter_map(|place| place["nid"].as_u64()).collect()
}

fn end(hand: &Hand, apid: u64, aprun: Running) {
    run(&mut hand.command("apkill", ["-9", &apid.to_string()])).expect(0);
    aprun.wait(BOUND).expect(137);
}

#[test]
fn overflow_nodes_are_for_who_is_too_wide() {
    let hand = Hand::start(OVERFLOW, &[("0-3", None)]);
    let narrow = hand.start_script("-n 3", FOREVER);
    let first = hand.wait_for("running", 1)[0];
    assert_eq!(nids(&hand, first), [1, 2]);
    // It fits there, so it waits for that, though NID 3 is free.
    let waits = hand.start_script("-n 2", FOREVER);
    let second = hand.wait_for("posted", 1)[0];
    let why = run(&mut hand.command("apstat", ["--why", &second.to_string()])).expect(0).out();
    assert!(why.contains(&format!("application {first} of ")) && why.contains("NID"), "{why}");
    end(&hand, first, narrow);
    assert_eq!(hand.wait_for("running", 1), [second]);
    end(&hand, second, waits);
    // Across the border, with the last PE on the overflow node; seven have no room even so.
    let wide = hand.start_script("-n 5", FOREVER);
    let third = hand.wait_for("running", 1)[0];
    assert_eq!(nids(&hand, third), [1, 2, 3]);
    end(&hand, third, wide);
    hand.start_script("-n 7", "true").wait(BOUND).expect(125).says("-n 6 or less");
    let shown = run(&mut hand.command("apstat", ["-n", "-v"])).expect(0).out();
    assert!(shown.contains(" ordinary ") && shown.contains(" overflow "), "{shown}");
    // A node that becomes an application node joins the region of its signature at once.
    run(&mut hand.command("snflv", ["3", "ap", "su", "os"])).expect(0);
    run(&mut hand.command("snflv", ["0", "ap", "su", "os"])).expect(0);
    let rows = hand.apstat("-n -v")["nodes"].clone();
    let region = |nid: usize| rows[nid]["region"].as_str().unwrap_or_default().to_owned();
    assert_eq!([region(0), region(1), region(3)], ["overflow", "ordinary", "overflow"]);
    hand.end();
}

#[test]
fn ranks_go_down_a_list_that_does() {
    let hand = Hand::start(OVERFLOW, &[("0-3", None)]);
    let down = hand.start_script("-n 4 -L 2-1", FOREVER);
    let apid = hand.wait_for("running", 1)[0];
    assert_eq!(nids(&hand, apid), [2, 1]);
    end(&hand, apid, down);
    let dry = run(&mut hand.command("aprun", words("-n 3 -L 2-1 --dry-run true"))).expect(0).out();
    let rows: Vec<Vec<&str>> = dry.lines().map(|line| line.split_whitespace().collect()).collect();
    let of = |rank: &str| {
        let row = rows.iter().find(|row| row.first() == Some(&rank)).expect("its row");
        row[1].to_owned()
    };
    assert_eq!([of("0"), of("1"), of("2")], ["2", "2", "1"], "{dry}");
    let list = hand.folder().join("list");
    std::fs::write(&list, "1\n2\n").expect("written");
    let one = format!("-n 2 -l {} -E 1", list.display());
    let on_two = hand.start_script(&one, FOREVER);
    let apid = hand.wait_for("running", 1)[0];
    assert_eq!(nids(&hand, apid), [2]);
    hand.start_script("-n 2 -L 0", "true").wait(BOUND).expect(125).says("-L 0 names no node");
    hand.start_script("-n 5 -L 1-2", "true").wait(BOUND).expect(125).says("with -L 1-2, 5 PEs");
    end(&hand, apid, on_two);
    hand.end();
}

/// One runs in the middle: who needs neighbouring nodes waits, who is flexible goes to both its sides.
#[test]
fn one_that_is_flexible_goes_to_both_sides_of_another() {
    let config = "nodes:
  - { nids: 0-4, processors: 2, flavors: [su, os, ap] }
";
    let hand = Hand::start(config, &[("0-1", None), ("2-4", Some("another host"))]);
    let middle = hand.start_script("-n 2 -L 2", FOREVER);
    let first = hand.wait_for("running", 1)[0];
    let waits = hand.start_script("-n 6", "true");
    let second = hand.wait_for("posted", 1)[0];
    // Ranks go up with the nodes.
    let dry =
        run(&mut hand.command("aprun", words("-n 5 --flexible --dry-run true"))).expect(0).out();
    let of = |line: &str| line.split_whitespace().nth(1).map(str::to_owned);
    let on: Vec<String> = dry.lines().skip(1).filter_map(of).collect();
    assert_eq!(on, ["0", "0", "1", "1", "3"], "{dry}");
    let sides = hand.start_script("-q -n 5 --flexible", "echo $ALPS_APP_PE; sleep 600");
    let third = *hand.wait_for("running", 2).iter().max().expect("two");
    assert_eq!(nids(&hand, third), [0, 1, 3]);
    let all = run(&mut hand.command("apstat", ["-A", &third.to_string()])).expect(0).out();
    assert!(all.contains("flexible"), "{all}");
    // Another waits, and is told for whom; who could never be placed is refused.
    let more = hand.start_script("-n 4 --flexible", "true");
    let fourth = hand.wait_for("posted", 2).into_iter().max().expect("two");
    let why = run(&mut hand.command("apstat", ["--why", &fourth.to_string()])).expect(0).out();
    assert!(why.contains("nodes that need not be contiguous"), "{why}");
    assert!(why.contains(&format!("application {first} of ")) && why.contains("flexible"), "{why}");
    hand.start_script("-n 11 --flexible", "true").wait(BOUND).expect(125).says("-n 10 or less");
    hand.start_script("-n 4 -L 0,3-4 --immediate", "true").wait(BOUND).expect(125);
    hand.start_script("-n 5 -L 0,3-4", "true")
        .wait(BOUND)
        .expect(125)
        .says("the same with --flexible");
    end(&hand, first, middle);
    // What it leaves is enough for that one, and no window for the wide one.
    more.wait(BOUND).expect(0);
    assert_eq!(hand.wait_for("posted", 1), [second]);
    end(&hand, third, sides);
    waits.wait(BOUND).expect(0);
    hand.end();
}

#[test]
fn as_even_as_can_be_and_parts_of_their_own_nodes() {
    let config = "nodes:
  - { nids: 0-3, processors: 3, flavors: [su, os, ap] }
";
    let hand = Hand::start(config, &[("0-3", None)]);
    let pes = |apid: u64| {
        let all = hand.apstat(&format!("-A {apid}"));
        let places = all["placement"].as_array().expect("a list").clone();
        let of = |place: &serde_json::Value| (place["nid"].as_u64(), place["pes"].as_u64());
        places
            .iter()
            .map(of)
            .map(|(nid, pes)| (nid.expect("a node"), pes.expect("PEs")))
            .collect::<Vec<_>>()
    };
    let even = hand.start_script("-n 10 --nodes 4", FOREVER);
    let apid = hand.wait_for("running", 1)[0];
    assert_eq!(pes(apid), [(0, 3), (1, 3), (2, 2), (3, 2)]);
    let script = hand.start_script("-n 1 -N 1", "true");
    let waits = hand.start_script("-n 7 --nodes 3", "true");
    script.wait(BOUND).expect(0);
    let second = hand.wait_for("posted", 1)[0];
    let why = run(&mut hand.command("apstat", ["--why", &second.to_string()])).expect(0).out();
    assert!(why.contains("laid out as 3 on a node, 2 on each of 2 nodes"), "{why}");
    end(&hand, apid, even);
    waits.wait(BOUND).expect(0);
    // Each part begins on nodes of its own, and ranks go on.
    let echo = ["sh", "-c", "echo $ALPS_APP_PE $0"];
    let mut parts: Vec<&str> = vec!["-q", "-n", "1", "-N", "1"];
    parts.extend(echo);
    parts.extend(["one", ":", "-n", "3", "-N", "2"]);
    parts.extend(echo);
    parts.push("two");
    let run = run(&mut hand.command("aprun", &parts)).expect(0).out();
    let mut lines: Vec<&str> = run.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["0 one", "1 two", "2 two", "3 two"]);
    // They may differ in depth too.
    let deep = "-n 2 -N 1 -d 3 sh -c X : -n 4 -N 3 -d 1 sh -c X";
    let dry = format!("--dry-run {deep}");
    let dry = crate::support::run(&mut hand.command("aprun", words(&dry))).expect(0).out();
    let rows: Vec<Vec<&str>> = dry.lines().map(|line| line.split_whitespace().collect()).collect();
    let expected = [["0", "0", "0,1,2"], ["1", "1", "0,1,2"], ["2", "2", "0"], ["3", "2", "1"]];
    assert_eq!(rows[1..5], expected, "{dry}");
    let deep = format!("-q {deep}");
    let deep: Vec<&str> = words(&deep)
        .map(|word| if word == "X" { "echo $ALPS_APP_PE $ALPS_APP_DEPTH" } else { word })
        .collect();
    let run = crate::support::run(&mut hand.command("aprun", &deep)).expect(0).out();
    let mut lines: Vec<&str> = run.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["0 3", "1 3", "2 1", "3 1", "4 1", "5 1"]);
    hand.end();
}

#[test]
fn terminals_accounts_and_people_are_what_the_kernel_says() {
    let own = nix::unistd::getuid().as_raw();
    let config = |users: u32, more: &str| {
        format!(
            "nodes:
  - {{ nids: 0, processors: 2, flavors: [su, os, ap] }}
  - {{ nids: 2, processors: 2 }}
  - {{ nids: 4, processors: 2 }}
accounts:
  - {{ name: ocean, users: [{own}] }}
  - {{ name: ice, users: [54321] }}
regions:
  - {{ name: batch, nids: 0, gates: {{ mode: batch, width: -1{more} }} }}
  - {{ name: shell, nids: 2, gates: {{ mode: interactive }} }}
  - {{ name: ocean, nids: 4, gates: {{ accounts: [ocean], users: [{users}], width: 2- }} }}
"
        )
    };
    let hand = Hand::start(&config(own, ""), &[("0,2,4", None)]);
    let nid = |hand: &Hand, aprun: Running| {
        let apid = hand.wait_for("running", 1)[0];
        let nids = nids(hand, apid);
        run(&mut hand.command("apkill", ["-9", &apid.to_string()])).expect(0);
        // (script has a status of its own.)
        aprun.wait(BOUND);
        nids
    };
    // In a session without a terminal, and in one with.
    let mut batch = Command::new("setsid");
    batch.arg("-w").arg(binaries().join("aprun")).args(["sleep", "1000"]);
    let batch = Running::start(batch.env("PSCHED_SOCKET", hand.socket()));
    assert_eq!(nid(&hand, batch), [0]);
    let mut shell = Command::new("script");
    let line = format!("{} sleep 1000", binaries().join("aprun").display());
    shell.args(["-qec", &line, "/dev/null"]).env("PSCHED_SOCKET", hand.socket());
    let shell = Running::start(&mut shell);
    assert_eq!(nid(&hand, shell), [2]);
    let ocean = hand.start_script("-n 2 --account ocean", FOREVER);
    assert_eq!(nid(&hand, ocean), [4]);
    let refused = |options: &str| {
        let mut aprun = Command::new("setsid");
        aprun.arg("-w").arg(binaries().join("aprun")).args(words(options)).arg("true");
        Running::start(aprun.env("PSCHED_SOCKET", hand.socket())).wait(BOUND).expect(125)
    };
    refused("--account ice").says("account ice is only for user 54321; yours: ocean");
    refused("--account sand").says("there is no account sand");
    refused("-n 2").says("region batch lets in only applications of 1 or less PEs");
    // It waits, and then somebody else's users are let in only.
    let other = hand.start_script("-n 2 --account ocean", FOREVER);
    let apid = hand.wait_for("running", 1)[0];
    let waits = hand.start_script("-n 2 --account ocean", FOREVER);
    hand.wait_for("posted", 1);
    let file = hand.folder().join("new.yaml");
    std::fs::write(&file, config(54_321, "")).expect("written");
    let mut check = hand.command("psched", ["check", "--diff"]);
    let told = run(check.arg(&file)).expect(0).out();
    assert!(told.contains("regions") && told.contains("could no longer be placed"), "{told}");
    hand.reconfigure(&config(54_321, ""));
    eventually(BOUND, "the other file", || hand.said().contains("regions"));
    end(&hand, apid, other);
    // The place is free, and not for it.
    assert_eq!(hand.wait_for("posted", 1).len(), 1);
    hand.reconfigure(&config(own, ""));
    let apid = hand.wait_for("running", 1)[0];
    assert_eq!(nids(&hand, apid), [4]);
    end(&hand, apid, waits);
    hand.end();
}

/// All slips of a file are told, and psched does not start with one.
#[test]
fn slips_in_regions_are_told_together() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("psched.yaml");
    let text = OVERFLOW
        .replace("flavors: [ap] }\n  - { name: overflow", "nids: 1-9 }\n  - { name: overflow");
    let text = text.replace("too wide for ordinary", "too wide for ordinery");
    std::fs::write(&file, text).expect("written");
    let checked = run(Command::new(binaries().join("psched")).arg("check").arg(&file)).expect(1);
    for problem in [
        ":6:29: regions[0].nids: there is no node 4-9; list nodes of this file",
        ":7:62: regions[1].gates.width: there is no region \"ordinery\"; name one of the regions",
        ":7:23: regions[1].flavors: NIDs 3 are in region ordinary already",
    ] {
        let said = format!("{}{}", checked.out(), checked.stderr);
        assert!(said.contains(problem), "{said}");
    }
    let started = run(Command::new(binaries().join("psched")).arg("--config").arg(&file));
    assert!(started.status != 0 && started.stderr.contains("ordinery"), "{}", started.stderr);
}

/// The nice value of each PE of an application on all nodes, by rank, and that of its session.
#[track_caller]
fn nices(hand: &Hand) -> Vec<(i32, i32)> {
    let script = "read -r line < /proc/self/stat; set -- $line; shift 18; \
                  echo $ALPS_APP_PE $1 $(cat /proc/$$/autogroup)";
    let all = hand.start_script("-q -n 5", script).wait(BOUND).expect(0).out();
    let mut lines: Vec<(u32, i32, i32)> = Vec::new();
    for line in all.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |word: &str| word.parse::<i32>().expect("a number");
        // (Without autogroups in the kernel there is no more to it.)
        let session = if words.len() > 2 { number(words[words.len() - 1]) } else { 0 };
        lines.push((words[0].parse().expect("a rank"), number(words[1]), session));
    }
    lines.sort_unstable();
    lines.into_iter().map(|(_, own, session)| (own, session)).collect()
}

#[test]
fn pes_give_way_to_the_system_on_its_own_nodes() {
    let hand = Hand::start(OVERFLOW, &[("0-3", None)]);
    let usual = nices(&hand);
    let (own, session) = usual[0];
    assert_eq!(usual, [(own, session); 5], "nobody said that they are to");
    run(&mut hand.command("psmgr", ["set", "yield_nice=7"])).expect(0);
    let sessions = std::fs::read_to_string("/proc/sys/kernel/sched_autogroup_enabled");
    // Others than root may make sessions nicer ten times a second; it does not show what is so here.
    let theirs = nices(&hand);
    let groups = !hand.apstat("-n").to_string().contains("no cgroups");
    let may = is_root() && groups && sessions.is_ok_and(|on| on.trim() == "1");
    let last = if may { 7 } else { theirs[4].1 };
    let mut wanted = vec![(own, session); 4];
    wanted.push(((own + 7).min(19), last));
    assert_eq!(theirs, wanted, "ranks 0 to 3 are on nodes of applications alone");
    run(&mut hand.command("psmgr", ["set", "yield_nice=0"])).expect(0);
    assert_eq!(nices(&hand), usual);
    hand.end();
}
