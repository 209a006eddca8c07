//! More PEs than processors (`--oversubscribe`), as a user starts them.

use crate::support::hand::Hand;
use crate::support::mpi::{open, program};
use crate::support::*;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Each PE says its rank and where the kernel lets it run.
const WHERE: &str = "echo $ALPS_APP_PE $(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' \
                     /proc/self/status)";

/// The processors of each rank.
fn bound(run: &Run) -> BTreeMap<u32, String> {
    let of = |line: &str| {
        let (rank, processors) = line.split_once(' ').expect("two words");
        (rank.parse().expect("a rank"), processors.to_owned())
    };
    run.out().lines().map(of).collect()
}

#[test]
fn too_many_pes_are_refused_and_told_how() {
    let instance = instance(1, 2);
    let refused = instance.aprun(["-n", "4", "true"]).expect(125);
    refused.says("ask for -n 2 or less; or let PEs share 2 processors with --oversubscribe");
    let many = instance.aprun(["-n", "129", "--oversubscribe", "true"]).expect(125);
    many.says(
        "129 PEs on 2 processors exceed the maximum of 64 PEs on a processor; ask for 128 or fewer",
    );
    instance.aprun(["-n", "128", "--oversubscribe", "true"]).expect(0);
    let nodes = instance.aprun(words("-n 6 -N 3 --oversubscribe true")).expect(125);
    nodes.says("6 PEs, 3 on each node, need 2 nodes, and there are 1 for them");
    let deep = instance.aprun(words("-n 3 -d 2 --oversubscribe true")).expect(125);
    deep.says("-d 2 gives each PE several");
}

#[test]
fn pes_take_the_processors_in_turn() {
    let instance = instance(2, 1);
    let own = bound(&instance.aprun(["-q", "-n", "2", "sh", "-c", WHERE]).expect(0));
    assert_eq!(own.len(), 2);
    // As many on each node; each has one of the two that it had without sharing.
    let run = instance.aprun(["-q", "-n", "6", "--oversubscribe", "sh", "-c", WHERE]).expect(0);
    let shared = bound(&run);
    let expected: Vec<&String> = [0, 0, 0, 1, 1, 1].iter().map(|node| &own[node]).collect();
    assert_eq!(shared.values().collect::<Vec<_>>(), expected);
    // One that fits shares nothing.
    let run = instance.aprun(["-q", "-n", "2", "--oversubscribe", "sh", "-c", WHERE]).expect(0);
    assert_eq!(bound(&run), own);
    let dry = instance.aprun(words("-n 3 --oversubscribe --dry-run true")).expect(0);
    let lines: Vec<Vec<String>> =
        dry.out().lines().skip(1).map(|line| words(line).map(str::to_owned).collect()).collect();
    assert_eq!(lines, [["0", "0", "0"], ["1", "0", "0"], ["2", "1", "0"]]);
}

#[test]
fn unbound_pes_have_all_processors_of_their_node() {
    let instance = instance(1, 2);
    let of =
        |options: &str| bound(&instance.aprun(words(options).chain(["sh", "-c", WHERE])).expect(0));
    let together = of("-q -n 1 -d 2");
    // (Those that share are not bound, if nothing else is said.)
    for options in ["-cc none", ""] {
        let all = of(&format!("-q -n 5 {options} --oversubscribe"));
        assert_eq!(all.len(), 5);
        assert!(all.values().all(|processors| *processors == together[&0]), "{all:?} {together:?}");
    }
    // What they call has all of them, too, and not each the first one; and no thread for each of them.
    let script = format!(
        "echo $ALPS_APP_PE $({} --inside -q -n 1 sh -c \"$0; echo \\$OMP_NUM_THREADS\")",
        binaries().join("aprun").display()
    );
    let (_, inner) = WHERE.split_once("$(").expect("a command in it");
    let line = words("-q -n 4 --oversubscribe sh -c");
    let line = line.chain([script.as_str(), inner.trim_end_matches(')')]);
    let all = bound(&instance.aprun(line).expect(0));
    // (A node of one processor, which it is beside other instances, binds them.)
    let several = together[&0].contains(['-', ',']);
    let expected = format!("{}{}", together[&0], if several { " 1" } else { "" });
    assert!(all.len() == 4 && all.values().all(|said| *said == expected), "{all:?} {expected}");
    let each = of("-q -n 5 -cc cpu --oversubscribe");
    let own = of("-q -n 2");
    let expected: Vec<&String> = [0, 1, 0, 1, 0].iter().map(|pe| &own[pe]).collect();
    assert_eq!(each.values().collect::<Vec<_>>(), expected);
    let line = ["-n", "5", "-cc", "0:2", "--oversubscribe", "true"];
    instance.aprun(line).expect(125).says("names processor 2");
}

#[test]
fn mpi_programs_run() {
    let test = "oversubscribe::mpi_programs_run";
    together_on_few(program(test, "ring"));
}

#[test]
fn programs_of_open_mpi_run() {
    let test = "oversubscribe::programs_of_open_mpi_run";
    together_on_few(open(test, "ring"));
}

fn together_on_few(ring: Option<PathBuf>) {
    let Some(ring) = ring else { return };
    let ring = ring.to_str().expect("text");
    let instance = instance(2, 1);
    for options in ["-n 4", "-n 7", "-n 6 -N 3"] {
        let n: u32 = words(options).nth(1).expect("a width").parse().expect("a number");
        let all: Vec<&str> = words("-q --oversubscribe").chain(words(options)).collect();
        let run = instance.aprun(all.into_iter().chain([ring])).expect(0);
        let mut expected: Vec<String> = (0..n)
            .map(|r| format!("rank {r} of {n} appnum 0 sum {} shared {n}", n * (n + 1) / 2))
            .collect();
        expected.sort();
        assert_eq!(run.sorted(), expected, "{options}");
    }
    // As mpirun's users say it, of several programs.
    let line = ["-q", "--oversubscribe", "-np", "1", ring, ":", "-n", "3", ring];
    let run = run(&mut instance.command("mpirun", line)).expect(0);
    assert_eq!(run.out().lines().filter(|line| line.contains(" of 4 appnum 1 ")).count(), 3);
}

#[test]
fn pes_of_two_apinits_meet() {
    let test = "oversubscribe::pes_of_two_apinits_meet";
    let Some(ring) = program(test, "ring") else { return };
    // (As in mpi::a_ring_across_two_apinits.)
    let config = "nodes:\n  - { nids: 0-1, processors: 1, flavors: [su, os, ap] }\n\
         variables: { isolation: off }\n";
    let instance = Plan::new().config(config).arg("--apinits").arg("2").start();
    let run = instance.aprun(["-q", "-n", "5", "--oversubscribe", ring.to_str().expect("text")]);
    let expected: Vec<String> =
        (0..5).map(|r| format!("rank {r} of 5 appnum 0 sum 15 shared 5")).collect();
    assert_eq!(run.expect(0).sorted(), expected);
}

/// It takes turns as a whole, and is shown with what it shares.
#[test]
fn it_takes_turns_and_is_shown() {
    let hand = Hand::start(
        "nodes:\n  - { nids: 0, processors: 2, flavors: [su, os, ap] }\n\
         variables: { application.max_resident: 2, application.time_slice: 50ms }\n",
        &[("0", None)],
    );
    let crowd =
        Running::start(&mut hand.command("aprun", words("-q -n 5 --oversubscribe sleep 600")));
    let first = hand.wait_for("running", 1)[0];
    let other = Running::start(&mut hand.command("aprun", words("-q -n 2 sleep 600")));
    let both = hand.wait_for("running", 2);
    let shown = run(&mut hand.command("apstat", ["-A", &first.to_string()])).expect(0).out();
    assert!(shown.contains("w:d:N:") && shown.contains("5:1:- on 2"), "{shown}");
    assert!(shown.contains("  0   5 0,1"), "{shown}");
    let row = &hand.apstat(&format!("-A {first}"));
    assert!(!row.is_null());
    eventually(BOUND, "psview shows PEs and processors", || {
        run(&mut hand.command("psview", [""; 0])).out().contains("5/2")
    });
    for apid in both {
        run(&mut hand.command("apkill", ["-9", &apid.to_string()])).expect(0);
    }
    for aprun in [crowd, other] {
        aprun.wait(BOUND).expect(137);
    }
}
