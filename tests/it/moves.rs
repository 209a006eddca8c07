//! Running applications that are moved, as users and administrators see it: within a host, while daemons are
//! killed, and aside for one that waits.

use crate::support::hand::Hand;
use crate::support::mpi;
use crate::support::*;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Four nodes of a processor on one host, in one region. Moves are made for whoever has waited for a second.
const CONFIG: &str = "nodes:
  - { nids: 0, processors: 1, flavors: [su, os, ap] }
  - { nids: 1-3, processors: 1 }
regions:
  - { name: all, nids: '0-3' }
variables:
  application.floor: no
  application.level.bound: 100ms
  application.max_resident: 2
  application.compact_after: 1s
  application.reconsider: 1s
  application.load_balance.least_gain: 0
  application.load_balance.least_attained: 0s
  application.load_balance.quiet_time: 0s
";

/// Says where it runs, and goes on until a file is there; then it ends with 3.
const UNTIL_TOLD: &str = "echo $$ >> $OUT; read line; echo read $line; while ! [ -e $OUT.end ]; do sleep 0.01; done; exit 3";

fn start() -> Hand {
    Hand::start(CONFIG, &[("0-3", None)])
}

/// Real processors of a process, as the kernel has it.
fn bound_to(pid: i32) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.unwrap_or_default().trim().to_owned()
}

/// The processors of the first nodes of this machine: node n has the n-th, modulo their number.
fn processor_of(nid: u32) -> String {
    let allowed = bound_to(std::process::id() as i32);
    let cpus: Vec<u32> = allowed
        .split(',')
        .flat_map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let number = |text: &str| text.parse::<u32>().expect("a number");
            number(first)..=number(last)
        })
        .collect();
    cpus[nid as usize % cpus.len()].to_string()
}

fn nids(hand: &Hand, apid: u64) -> Vec<u64> {
    let row = hand.apstat(&format!("-A {apid}"));
    let placement = row["placement"].as_array().expect("a list").clone();
    placement.iter().map(|place| place["nid"].as_u64().expect("a number")).collect()
}

fn events(hand: &Hand, apid: u64) -> Vec<String> {
    let rows = hand.apstat(&format!("--events {apid}"));
    let rows = rows["events"].as_array().expect("a list").clone();
    rows.iter().map(|row| row["event"].as_str().expect("a name").to_owned()).collect()
}

fn pids(path: &std::path::Path, count: usize) -> Vec<i32> {
    let mut found = Vec::new();
    eventually(BOUND, "its processes", || {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        found = text.lines().filter_map(|line| line.parse().ok()).collect();
        found.len() == count
    });
    found
}

fn psmgr(hand: &Hand, line: &str) -> Run {
    run(&mut hand.command("psmgr", line.split_whitespace()))
}

fn program(hand: &Hand, name: &str) -> (std::path::PathBuf, String) {
    let out = hand.folder().join(name);
    let script = format!("OUT={}; {UNTIL_TOLD}", out.display());
    (out, script)
}

fn end(out: &std::path::Path) {
    std::fs::write(
        out.with_file_name(format!("{}.end", out.file_name().expect("a name").to_string_lossy())),
        "",
    )
    .expect("written");
}

/// Two PEs go from one end to the other and back, partly over themselves: processes, ranks, stdin and the
/// status stay what they are; processors, apstat and the log of events follow.
#[test]
fn a_program_is_moved_and_notices_nothing() {
    let hand = start();
    let (out, script) = program(&hand, "moved");
    let mut command = hand.command("aprun", ["-n", "2", "sh", "-c", &script]);
    command.stdin(std::process::Stdio::piped());
    let mut aprun = Running::start(&mut command);
    let apid = hand.wait_for("running", 1)[0];
    let pes = pids(&out, 2);
    let ranks = |pes: &[i32]| {
        let mut on: Vec<String> = pes.iter().map(|pid| bound_to(*pid)).collect();
        on.sort();
        on
    };
    let of = |nids: [u32; 2]| {
        let mut on = nids.map(processor_of).to_vec();
        on.sort();
        on
    };
    assert_eq!(ranks(&pes), of([0, 1]));
    let plan = psmgr(&hand, &format!("migrate {apid} 2-3 --dry-run")).expect(0).out();
    assert!(plan.contains("NIDs 0-1 to NIDs 2-3, 2 PEs"), "{plan}");
    assert!(plan.contains("1 move, estimated with"), "{plan}");
    assert_eq!(nids(&hand, apid), [0, 1]);
    for to in [[1, 2], [2, 3], [0, 1], [1, 2]] {
        let [first, last] = to;
        let said = psmgr(&hand, &format!("migrate {apid} {first}-{last}")).expect(0).out();
        assert!(said.contains(&format!("on NIDs {first}-{last}")), "{said}");
        assert_eq!(nids(&hand, apid), to.map(u64::from));
        assert_eq!(ranks(&pes), of(to), "on {to:?}");
    }
    // What it starts is where it is.
    let stays = psmgr(&hand, &format!("migrate {apid} 1-2")).expect(1);
    stays.says("is there already");
    let moves = || events(&hand, apid).into_iter().filter(|event| event == "moved").count();
    eventually(BOUND, "four moves in its log", || moves() == 4);
    use std::io::Write;
    let mut stdin = aprun.child.stdin.take().expect("a pipe");
    stdin.write_all(b"hello\nhello\n").expect("written");
    drop(stdin);
    end(&out);
    let ended = aprun.wait(BOUND).expect(3);
    assert!(ended.out().contains("read hello"), "{}", ended.out());
    hand.end();
}

/// Two ranks of MPICH that never stop talking to each other.
#[test]
fn an_mpi_program_is_moved_and_comes_to_its_right_end() {
    let test = "moves::an_mpi_program_is_moved_and_comes_to_its_right_end";
    moved_while_it_talks(mpi::program(test, "laps"));
}

/// Two ranks of Open MPI, whose appmix goes on meanwhile.
#[test]
fn one_of_open_mpi_is_moved_and_comes_to_its_right_end() {
    let test = "moves::one_of_open_mpi_is_moved_and_comes_to_its_right_end";
    moved_while_it_talks(mpi::open(test, "laps"));
}

fn moved_while_it_talks(laps: Option<PathBuf>) {
    let Some(laps) = laps else { return };
    let hand = start();
    let out = hand.folder().join("laps.end");
    let arguments = ["-n".into(), "2".into(), laps.into_os_string(), out.clone().into_os_string()];
    let aprun = Running::start(&mut hand.command("aprun", arguments));
    let apid = hand.wait_for("running", 1)[0];
    for turn in 0..8 {
        let to = if turn % 2 == 0 { "2-3" } else { "0-1" };
        psmgr(&hand, &format!("migrate {apid} {to}")).expect(0);
    }
    std::fs::write(&out, "").expect("written");
    let ended = aprun.wait(BOUND).expect(0);
    assert!(ended.out().contains("ended together, 0 words wrong"), "{}", ended.out());
    hand.end();
}

#[test]
fn what_can_t_be_moved_is_said() {
    let hand = start();
    let (out, script) = program(&hand, "fixed");
    let aprun = Running::start(&mut hand.command("aprun", ["-cc", "0", "sh", "-c", &script]));
    let fixed = hand.wait_for("running", 1)[0];
    pids(&out, 1);
    psmgr(&hand, &format!("migrate {fixed}")).expect(1).says("its processors were named (-cc)");
    let shown = run(&mut hand.command("apstat", ["-A", &fixed.to_string()])).expect(0).out();
    assert!(shown.contains("its processors were named (-cc)"), "{shown}");
    let (chosen_out, script) = program(&hand, "chosen");
    let chosen = Running::start(&mut hand.command("aprun", ["-L", "3", "sh", "-c", &script]));
    let all = hand.wait_for("running", 2);
    let other = *all.iter().find(|apid| **apid != fixed).expect("another");
    psmgr(&hand, &format!("migrate {other} 1")).expect(1).says("its nodes were chosen (-L, -E)");
    psmgr(&hand, "migrate 99").expect(1).says("there is no application 99");
    psmgr(&hand, &format!("migrate {other} 9")).expect(1);
    psmgr(&hand, "migrate x").expect(2);
    psmgr(&hand, "compact nowhere").expect(1).says("there is no region nowhere: there are all");
    // A psched that is started again knows it from the nodes.
    let mut hand = hand;
    hand.kill_psched();
    hand.start_psched();
    eventually(BOUND, "it is known again", || {
        psmgr(&hand, &format!("migrate {fixed}")).stderr.contains("its processors were named")
    });
    [&out, &chosen_out].into_iter().for_each(|out| end(out));
    aprun.wait(BOUND).expect(3);
    chosen.wait(BOUND).expect(3);
    hand.end();
}

/// Four hold a processor each, two of them end, and a wide one waits: one of the others goes aside for it.
#[test]
fn others_go_aside_for_a_wide_one() {
    let hand = start();
    let mut all = Vec::new();
    for number in 0..4 {
        let (out, script) = program(&hand, &format!("narrow{number}"));
        let aprun = Running::start(&mut hand.command("aprun", ["sh", "-c", &script]));
        let pid = pids(&out, 1)[0];
        all.push((out, aprun, pid));
    }
    let apids = hand.wait_for("running", 4);
    let on = |apid: &u64| nids(&hand, *apid)[0];
    assert_eq!(apids.iter().map(on).collect::<Vec<_>>(), [0, 1, 2, 3]);
    for number in [2, 0] {
        let (out, aprun, _) = all.remove(number);
        end(&out);
        aprun.wait(BOUND).expect(3);
    }
    // (An application has ended for its aprun a moment before its processors are free.)
    eventually(BOUND, "two nodes are free", || {
        let all = hand.apstat("-n");
        let nodes = all["nodes"].as_array().expect("a list").iter();
        nodes.filter(|node| node["pl"] == 0).count() == 2
    });
    let wide = run(&mut hand.command("aprun", ["-n", "2", "sh", "-c", "echo $ALPS_APP_PE"]));
    assert_eq!(wide.expect(0).sorted(), ["0", "1"]);
    let left: BTreeSet<u64> = hand.wait_for("running", 2).into_iter().collect();
    // (The wide one may have ended before its nodes have said so.)
    let moved = |apid: &&u64| events(&hand, **apid).contains(&"moved".into());
    eventually(BOUND, "one is told to have moved", || left.iter().filter(moved).count() == 1);
    for (out, aprun, pid) in all {
        assert!(!bound_to(pid).is_empty(), "{pid} has ended");
        end(&out);
        aprun.wait(BOUND).expect(3);
    }
    hand.end();
}

#[test]
fn what_is_free_comes_together() {
    // A machine without regions is one.
    let without = CONFIG.replace("regions:\n  - { name: all, nids: '0-3' }\n", "");
    assert!(!without.contains("regions"));
    for config in [CONFIG, &without] {
        comes_together(Hand::start(config, &[("0-3", None)]));
    }
}

fn comes_together(hand: Hand) {
    let mut all = Vec::new();
    for number in 0..4 {
        let (out, script) = program(&hand, &format!("narrow{number}"));
        let aprun = Running::start(&mut hand.command("aprun", ["sh", "-c", &script]));
        pids(&out, 1);
        all.push((out, aprun));
    }
    let apids = hand.wait_for("running", 4);
    for number in [2, 0] {
        let (out, aprun) = all.remove(number);
        end(&out);
        aprun.wait(BOUND).expect(3);
    }
    let plan = psmgr(&hand, "compact all --dry-run").expect(0).out();
    assert!(plan.contains("2 moves, estimated with"), "{plan}");
    assert_eq!(nids(&hand, apids[1]), [1]);
    let said = psmgr(&hand, "compact all").expect(0).out();
    assert!(said.starts_with(&plan), "the plan comes first: {said}");
    assert_eq!([nids(&hand, apids[1]), nids(&hand, apids[3])], [[0], [1]]);
    let again = psmgr(&hand, "compact all").expect(0).out();
    assert!(again.contains("nothing to move"), "{again}");
    for (out, aprun) in all {
        end(&out);
        aprun.wait(BOUND).expect(3);
    }
    hand.end();
}

/// psched and apinit are killed at random moments while an application is moved again and again. Wherever
/// it is found, records, nodes and its processors say the same.
#[test]
fn a_move_survives_the_daemons() {
    let mut hand = start();
    let mut dice = dice::Dice::of_this_run("a_move_survives_the_daemons");
    let (out, script) = program(&hand, "moved");
    let mut command = hand.command("aprun", ["sh", "-c", &script]);
    let aprun = Running::start(command.stdin(std::process::Stdio::null()));
    let apid = hand.wait_for("running", 1)[0];
    let pid = pids(&out, 1)[0];
    let moments = std::env::var("PSCHED_MOMENTS").ok().and_then(|n| n.parse().ok()).unwrap_or(6);
    for moment in 0..moments {
        let to = dice.below(4);
        let order = Running::start(
            &mut hand.command("psmgr", ["migrate".to_owned(), apid.to_string(), to.to_string()]),
        );
        std::thread::sleep(dice.time(std::time::Duration::from_millis(60)));
        match moment % 2 {
            0 => {
                hand.kill_psched();
                hand.start_psched();
            }
            _ => {
                hand.kill_apinit(0);
                hand.start_apinit("0-3", None);
            }
        }
        // (It was refused, cut off, or done.)
        let _ = order.wait(BOUND);
        eventually(BOUND, "it is at rest", || {
            let last = events(&hand, apid).into_iter().rfind(|event| event.contains("mov"));
            last.is_none_or(|event| event != "moving")
        });
        let at = u32::try_from(nids(&hand, apid)[0]).expect("a NID");
        eventually(BOUND, "it is bound to what the record says", || {
            bound_to(pid) == processor_of(at)
        });
        // It runs: no gang is left frozen.
        let ran = || -> u64 {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let fields: Vec<&str> =
                stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
            fields.get(8).and_then(|faults| faults.parse().ok()).unwrap_or(0)
        };
        let before = ran();
        eventually(BOUND, "it goes on", || ran() > before || bound_to(pid).is_empty());
    }
    end(&out);
    aprun.wait(BOUND).expect(3);
    hand.end();
}

/// Six programs on six nodes, three of which end, and nobody is brought on another's processor, though four
/// may sit there: by an order that brings all together, and by one that has one go.
#[test]
fn free_processors_come_before_shared_ones() {
    let config = "nodes:\n  - { nids: 0, processors: 1, flavors: [su, os, ap] }\n  \
                  - { nids: 1-5, processors: 1 }\nvariables:\n  application.max_resident: 4\n";
    for (apinits, end, expected) in [
        (&["0-5"][..], [0, 2, 4], [0, 1, 2]),
        // Each stays with its apinit.
        (&["0-2", "3-5"], [0, 1, 4], [0, 3, 4]),
    ] {
        let all: Vec<(&str, Option<&str>)> = apinits.iter().map(|nids| (*nids, None)).collect();
        let hand = Hand::start(config, &all);
        let mut all = Vec::new();
        for number in 0..6 {
            let (out, script) = program(&hand, &format!("narrow{number}"));
            let aprun = Running::start(&mut hand.command("aprun", ["sh", "-c", &script]));
            pids(&out, 1);
            all.push((out, aprun));
        }
        let apids = hand.wait_for("running", 6);
        let on = |apids: &[u64]| {
            let mut on: Vec<u64> = apids.iter().flat_map(|apid| nids(&hand, *apid)).collect();
            on.sort_unstable();
            on
        };
        assert_eq!(on(&apids), [0, 1, 2, 3, 4, 5]);
        for number in end.into_iter().rev() {
            let (out, aprun) = all.remove(number);
            self::end(&out);
            aprun.wait(BOUND).expect(3);
        }
        let left = hand.wait_for("running", 3);
        eventually(BOUND, "their nodes have said that they can be moved", || {
            let plan = psmgr(&hand, "compact all --dry-run").expect(0).out();
            !plan.contains("can't be moved")
        });
        psmgr(&hand, "compact all").expect(0);
        assert_eq!(on(&left), expected, "{apinits:?}");
        let again = psmgr(&hand, "compact all").expect(0).out();
        assert!(again.contains("nothing to move"), "{again}");
        assert_eq!(
            again.contains("the nodes of its apinit (NIDs 0-2; NIDs 3-5)"),
            apinits.len() > 1
        );
        psmgr(&hand, &format!("migrate {}", left[0])).expect(0);
        let now = on(&left);
        assert!(now.windows(2).all(|pair| pair[0] < pair[1]), "two on one node: {now:?}");
        for (out, aprun) in all {
            self::end(&out);
            aprun.wait(BOUND).expect(3);
        }
        hand.end();
    }
}
