//! Programs that save themselves: `aprun --checkpoint`, `cpr -c`, `cpr -r`, on a real psched and apinit.

use crate::support::hand::Hand;
use crate::support::*;
use std::process::Command;

const CONFIG: &str = "nodes:\n  - { nids: 0-1, processors: 1, flavors: [su, os, ap] }\n";

/// Says how often it was saved, and where it has got to know what to do on USR1; ends with 3 when there is a
/// file.
const BY_SIGNAL: &str = "f=saved.$ALPS_APP_PE; n=0; [ -e $f ] && n=$(cat $f); echo saved $n
    trap 'echo $((n + 1)) > $f; exit 0' USR1; : > ready.$ALPS_APP_PE
    while ! [ -e stop ]; do sleep 0.01; done; exit 3";

/// The same, which looks for a file.
const BY_FILE: &str = "n=0; [ -e saved ] && n=$(cat saved); echo saved $n; : > ready.0
    while ! [ -e save ]; do [ -e stop ] && exit 3; sleep 0.01; done; rm save; echo $((n + 1)) > saved";

/// Two apinits: each node is one's own.
fn start() -> Hand {
    Hand::start(CONFIG, &[("0", None), ("1", None)])
}

fn here(hand: &Hand, program: &str, line: &str) -> Command {
    let mut command = hand.command(program, words(line));
    command.current_dir(hand.folder());
    command
}

/// Runs it until its PEs are ready.
fn begun(hand: &Hand, command: &mut Command, pes: usize) -> Running {
    let ready = |pe: usize| hand.folder().join(format!("ready.{pe}"));
    for pe in 0..pes {
        // An Err: there is none.
        let _ = std::fs::remove_file(ready(pe));
    }
    let running = Running::start(command);
    eventually(BOUND, "its PEs are ready", || (0..pes).all(|pe| ready(pe).exists()));
    // psched hears of it a little later.
    hand.wait_for("running", 1);
    running
}

fn launched(hand: &Hand, line: &str, script: &str, pes: usize) -> Running {
    let mut aprun = here(hand, "aprun", line);
    begun(hand, aprun.args(["sh", "-c", script]), pes)
}

fn cpr(hand: &Hand, line: &str, status: i32) -> Run {
    run(&mut here(hand, "cpr", line)).expect(status)
}

fn is_there(hand: &Hand, name: &str) -> bool {
    hand.folder().join(name).exists()
}

/// No folder of a checkpoint, whole or not.
fn none_made(hand: &Hand) {
    let entries = std::fs::read_dir(hand.folder()).expect("there");
    let names: Vec<_> = entries.map(|entry| entry.expect("read").file_name()).collect();
    assert!(names.iter().all(|name| !name.to_string_lossy().contains("tonight")), "{names:?}");
}

#[test]
fn on_a_signal_it_saves_itself_and_is_executed_again() {
    let hand = start();
    let first = launched(&hand, "-n2 -N1 --checkpoint usr1 --time-limit 1000", BY_SIGNAL, 2);
    assert_eq!(hand.apstat("-A 1")["checkpoint"], "SIGUSR1");
    let nodes = run(&mut here(&hand, "psview", "--json")).expect(0);
    let nodes: serde_json::Value = serde_json::from_slice(&nodes.stdout).expect("JSON");
    let names = nodes["nodes"][0]["checkpoints"].as_array().expect("a list").clone();
    assert!(names.contains(&"application".into()), "{names:?}");
    // It can't go on, and is not asked to begin with.
    cpr(&hand, "-c tonight -p 1 -g", 1).says("saves itself on SIGUSR1, and ends: it can't go on");
    none_made(&hand);
    let said = cpr(&hand, "-c tonight -p 1", 0);
    assert_eq!(
        said.out(),
        "application 1 has saved itself and ended: cpr -r tonight starts it again\n"
    );
    assert_eq!(first.wait(BOUND).expect(0).out(), "saved 0\nsaved 0\n");
    let info = cpr(&hand, "-i tonight --json", 0);
    let info: serde_json::Value = serde_json::from_slice(&info.stdout).expect("JSON");
    let found = &info["checkpoints"][0];
    assert_eq!(
        (&found["kind"], &found["back_end"], &found["bytes"]),
        (&"running".into(), &"application".into(), &0.into()),
        "{info}"
    );
    assert!(found["time_left_ms"].as_u64().is_some_and(|left| left <= 1_000_000), "{info}");

    // As another application, which can be checkpointed as the first could; psched knows it by its store alone.
    let second = begun(&hand, &mut here(&hand, "cpr", "-r tonight"), 2);
    assert_eq!(hand.apstat("-A 2")["checkpoint"], "SIGUSR1");
    cpr(&hand, "-c tonight -p 2 -k", 1).says("tonight exists; -f replaces");
    cpr(&hand, "-c tonight -f -p 2 -k", 0);
    let second = second.wait(BOUND).expect(0).says("cpr: application 1 is restarted as 2\n");
    assert_eq!(second.out(), "saved 1\nsaved 1\n");
    let third = begun(&hand, &mut here(&hand, "cpr", "-r tonight"), 2);
    std::fs::write(hand.folder().join("stop"), "").expect("written");
    assert_eq!(third.wait(BOUND).expect(3).out(), "saved 2\nsaved 2\n");
    hand.end();
}

#[test]
fn a_command_has_it_save_itself() {
    let hand = start();
    // The shell's: with what the application has, where it runs.
    let by = "--checkpoint=echo $WHO $ALPS_APP_ID > told && [ -e may ] && : > save";
    let start = |hand: &Hand| {
        let mut aprun = hand.command("aprun", ["-e", "WHO=me", by, "sh", "-c", BY_FILE]);
        begun(hand, aprun.current_dir(hand.folder()), 1)
    };
    let first = start(&hand);
    cpr(&hand, "-c tonight -p 1", 1).says("&& : > save: exit status: 1\n");
    none_made(&hand);
    assert_eq!(std::fs::read_to_string(hand.folder().join("told")).expect("written"), "me 1\n");
    std::fs::write(hand.folder().join("may"), "").expect("written");
    cpr(&hand, "-c tonight -p 1", 0);
    assert_eq!(first.wait(BOUND).expect(0).out(), "saved 0\n");
    let second = begun(&hand, &mut here(&hand, "cpr", "-r tonight --output out"), 1);
    std::fs::write(hand.folder().join("stop"), "").expect("written");
    second.wait(BOUND).expect(3);
    assert_eq!(std::fs::read_to_string(hand.folder().join("out")).expect("written"), "saved 1\n");
    hand.end();
}

#[test]
fn what_a_command_saves_may_go_on() {
    let hand = start();
    let going = launched(&hand, "--checkpoint ./save.sh", BY_FILE, 1);
    let script = hand.folder().join("save.sh");
    let made = "printf '#!/bin/sh\\n: > saved.it\\n' > $0; chmod 755 $0";
    let made = Command::new("sh").args(["-c", made]).arg(&script).status();
    assert!(made.expect("sh").success());
    let said = cpr(&hand, "-c tonight -p 1 -g", 0);
    assert_eq!(
        said.out(),
        "application 1 has saved itself (./save.sh) and goes on: cpr -r tonight starts it again from there\n"
    );
    assert!(is_there(&hand, "saved.it") && is_there(&hand, "tonight/manifest.json"));
    assert_eq!(hand.apstat("-A 1")["state"], "running");
    std::fs::write(hand.folder().join("stop"), "").expect("written");
    going.wait(BOUND).expect(3);
    hand.end();
}

#[test]
fn what_has_not_saved_itself_is_no_checkpoint() {
    let mut hand = start();
    // The signal kills it.
    let dies =
        launched(&hand, "-q --checkpoint USR1", ": > ready.0; while :; do sleep 0.01; done", 1);
    cpr(&hand, "-c tonight -p 1", 1)
        .says("(SIGUSR1), and ended with status 138, not 0: no checkpoint");
    dies.wait(BOUND).expect(138);
    none_made(&hand);
    // It never ends; whoever waits for that can leave.
    let deaf = "trap : USR1; : > ready.0; while ! [ -e stop ]; do sleep 0.01; done";
    let stays = launched(&hand, "--checkpoint USR1", deaf, 1);
    let waits = Running::start(&mut here(&hand, "cpr", "-c tonight -p 2"));
    eventually(BOUND, "it is told", || {
        let rows = hand.apstat("--events 2");
        rows["events"]
            .as_array()
            .is_some_and(|rows| rows.iter().any(|row| row["event"] == "signal"))
    });
    waits.signal(15);
    let said =
        "ended by SIGTERM: no checkpoint was made, but application 2 was told to save itself";
    waits.wait(BOUND).expect(1).says(said);
    none_made(&hand);
    // psched may go meanwhile.
    let waits = Running::start(&mut here(&hand, "cpr", "-c tonight -p 2"));
    eventually(BOUND, "it is told again", || {
        let rows = hand.apstat("--events 2");
        let told = |row: &&serde_json::Value| row["event"] == "signal";
        rows["events"].as_array().is_some_and(|rows| rows.iter().filter(told).count() == 2)
    });
    hand.kill_psched();
    hand.start_psched();
    std::fs::write(hand.folder().join("stop"), "").expect("written");
    waits.wait(BOUND).expect(0);
    stays.wait(BOUND).expect(0);
    assert!(is_there(&hand, "tonight/manifest.json"));
    hand.end();
}
