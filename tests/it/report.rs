//! `aprun --report`: how each PE ended, on real processes.

use crate::support::hand::Hand;
use crate::support::*;
use std::time::Instant;

const TWO: &str = "nodes:
  - { nids: 0, processors: 2, flavors: [su, os, ap] }
  - { nids: 1, processors: 2 }
";

/// The rows of the table in what aprun has said on stderr, by their columns, and the lines after it.
fn table(stderr: &str) -> (Vec<Vec<&str>>, Vec<&str>) {
    let mut lines = stderr.lines().skip_while(|line| !line.starts_with("Name "));
    let head = lines.next().unwrap_or_default();
    let heading: Vec<&str> = head.split_whitespace().collect();
    assert_eq!(heading, ["Name", "Rank", "NID", "PID", "Elapsed", "Exit", "Signal"], "{stderr}");
    let (rows, rest): (Vec<&str>, Vec<&str>) = lines.partition(|line| line.starts_with("sh "));
    (rows.into_iter().map(|row| row.split_whitespace().collect()).collect(), rest)
}

/// Seconds of a column.
fn seconds(text: &str) -> f64 {
    text.strip_suffix('s').and_then(|text| text.parse().ok()).expect("seconds")
}

/// The pid that a rank has written into a file of its own.
fn pid_of(hand: &Hand, rank: u32) -> i32 {
    let path = hand.folder().join(format!("pid.{rank}"));
    let mut pid = None;
    eventually(BOUND, &format!("rank {rank} says its pid"), || {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        pid = text.strip_suffix('\n').and_then(|text| text.parse().ok());
        pid.is_some()
    });
    pid.expect("it was waited for")
}

/// Each PE writes its pid into a file, and then does what these say for its rank.
fn script(hand: &Hand, by_rank: &str) -> String {
    let folder = hand.folder().display();
    format!("echo $$ >{folder}/pid.$ALPS_APP_PE; case $ALPS_APP_PE in {by_rank} esac")
}

fn is_gone(pid: i32) -> bool {
    !std::path::Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn exits_and_signals_of_two_nodes() {
    let hand = Hand::start(TWO, &[("0", None), ("1", None)]);
    for (options, quiet) in [("-n 4 -N 2 --report", false), ("-q -n 4 -N 2 --report", true)] {
        for rank in 0..4 {
            let _ = std::fs::remove_file(hand.folder().join(format!("pid.{rank}")));
        }
        let waits = "while :; do sleep 0.05; done";
        let script = script(&hand, &format!("0) sleep 0.3;; 1) exit 3;; *) {waits};;"));
        let began = Instant::now();
        let aprun = hand.start_script(options, &script);
        let pids = [0, 1, 2, 3].map(|rank| pid_of(&hand, rank));
        // Those that end by themselves have done so, and somebody kills another.
        eventually(BOUND, "0 and 1 have ended", || is_gone(pids[0]) && is_gone(pids[1]));
        kill(pids[2], 9);
        let run = aprun.wait(BOUND);
        let all = began.elapsed().as_secs_f64();
        // The first bad end decides.
        assert_eq!(run.status, 3, "{}", run.stderr);
        let (rows, rest) = table(&run.stderr);
        assert_eq!(rows.len(), 4, "{}", run.stderr);
        let ends = [["0", "-"], ["3", "-"], ["-", "Killed"], ["-", "Terminated"]];
        for (rank, (row, end)) in rows.iter().zip(ends).enumerate() {
            let nid = (rank / 2).to_string();
            assert_eq!(row[..3], ["sh", &rank.to_string(), &nid], "{}", run.stderr);
            assert_eq!(row[3], pids[rank].to_string(), "{}", run.stderr);
            assert_eq!(row[5..], end, "{}", run.stderr);
        }
        let elapsed: Vec<f64> = rows.iter().map(|row| seconds(row[4])).collect();
        // One of them slept; each host's time begins with its own go.
        assert!(elapsed[0] >= 0.3 && elapsed.iter().all(|time| *time <= all), "{elapsed:?} {all}");
        let closing = rest.iter().any(|line| line.contains(" took "));
        assert_eq!(closing, !quiet, "{}", run.stderr);
    }
    // Unasked there is none.
    let run = hand.start_script("-n 4 -N 2", "true").wait(BOUND).expect(0);
    assert!(!run.stderr.contains("Elapsed"), "{}", run.stderr);
    hand.end();
}

/// What the PEs write is whole beside it, and each has its line.
#[test]
fn many_pes_and_much_output() {
    let config = "nodes:\n  - { nids: 0-1, processors: 40, flavors: [su, os, ap] }\n";
    let hand = Hand::start(config, &[("0", None), ("1", None)]);
    let script = "i=0; while [ $i -lt 200 ]; do echo $ALPS_APP_PE $i; i=$((i+1)); done; \
                  exit $((ALPS_APP_PE % 2))";
    let run = hand.start_script("-n 80 -N 40 --report", script).wait(BOUND).expect(1);
    assert_eq!(run.out().lines().count(), 80 * 200);
    let (rows, _) = table(&run.stderr);
    let ends: Vec<[String; 3]> =
        rows.iter().map(|row| [row[1], row[2], row[5]].map(str::to_owned)).collect();
    let wanted = |rank: u32| [rank, rank / 40, rank % 2].map(|number| number.to_string());
    assert_eq!(ends, (0..80).map(wanted).collect::<Vec<_>>());
    hand.end();
}

#[test]
fn a_lost_apshepherd_leaves_gaps_and_no_hang() {
    let hand = Hand::start(TWO, &[("0", None), ("1", None)]);
    let script = script(&hand, "*) while :; do sleep 0.05; done;;");
    let aprun = hand.start_script("-n 3 -N 2 --report", &script);
    let pids = [0, 1, 2].map(|rank| pid_of(&hand, rank).to_string());
    hand.wait_for("running", 1);
    let shepherd =
        children(hand.apinit_pid("1")).into_iter().find(|(_, name)| name == "apshepherd");
    kill(shepherd.expect("it has one").0, 9);
    let run = aprun.wait(BOUND).expect(125);
    let (rows, _) = table(&run.stderr);
    assert_eq!(rows[2], ["sh", "2", "1", "-", "-", "-", "-"], "{}", run.stderr);
    for rank in [0, 1] {
        assert_eq!(
            (rows[rank][3], rows[rank][6]),
            (&pids[rank][..], "Terminated"),
            "{}",
            run.stderr
        );
    }
    hand.end();
}
