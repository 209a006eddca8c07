//! Copies of the state, made while psched runs and put back later.

use crate::support::criu::criu;
use crate::support::hand::Hand;
use crate::support::*;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const ONE: &str = "nodes:\n  - { nids: 0, processors: 2, flavors: [su, os, ap] }\n";

/// `psched backup` or `psched restore` of the state directory of this name.
fn psched(hand: &Hand, what: &str, file: &Path, state: &str) -> Command {
    let mut command = hand.command("psched", [what]);
    command.arg(file).arg("--state").arg(hand.folder().join(state));
    command
}

/// A copy of the state, and its last commit.
#[track_caller]
fn copied(hand: &Hand, name: &str, state: &str) -> (PathBuf, u64) {
    let file = hand.folder().join(name);
    let told = run(&mut psched(hand, "backup", &file, state)).expect(0).out();
    let (_, rest) = told.split_once("as of commit ").expect("it says what it has");
    let commit = rest.split(',').next().and_then(|n| n.parse().ok()).expect("a number");
    (file, commit)
}

/// The last commit that the apinit has heard of.
fn heard(hand: &Hand) -> u64 {
    let text = std::fs::read_to_string(hand.folder().join("apps-0/commits")).unwrap_or_default();
    text.split_whitespace().last().and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// psched goes on, and its node hears of it.
#[track_caller]
fn go_on(hand: &Hand, commit: u64) {
    let set = format!("set freeze_wait={}ms", 1 + commit % 50);
    run(&mut hand.command("psmgr", words(&set))).expect(0);
    eventually(BOUND, "the node hears of later commits", || heard(hand) > commit);
}

/// psched, which does not run, is started on this copy: the node does not obey it, and says what
/// runs there.
#[track_caller]
fn put_back(hand: &mut Hand, (file, commit): &(PathBuf, u64), apid: u64) {
    assert!(heard(hand) > *commit, "{} is no old copy", file.display());
    let state = format!("on-{}", file.file_name().expect("a name").to_string_lossy());
    let told = run(&mut psched(hand, "restore", file, &state)).expect(0).out();
    assert!(told.contains("psmgr adopt"), "{told}");
    // It is an old one however often it is started, and whatever it is used for.
    for _ in 0..2 {
        hand.start_psched_on(&state);
        let mut text = String::new();
        eventually(BOUND, "the node is foreign", || {
            text = hand.apstat("-n").to_string();
            text.contains("\"foreign\"") && text.contains("an old copy of its state")
        });
        assert!(text.contains(&format!("application {apid} of ")), "{text}");
        run(&mut hand.command("psmgr", words("set freeze_wait=9ms"))).expect(0);
        hand.kill_psched();
    }
}

/// psched goes on beyond all these copies, is started on each of them, and then on the state that
/// went on.
#[track_caller]
fn each_put_back(hand: &mut Hand, copies: &[(PathBuf, u64)], apid: u64, state: &str) {
    go_on(hand, copies.last().expect("one").1);
    hand.kill_psched();
    for copy in copies {
        put_back(hand, copy, apid);
    }
    hand.start_psched();
    assert_eq!(hand.wait_for(state, 1), [apid]);
}

fn until(hand: &Hand, name: &str, then: &str) -> (PathBuf, String) {
    let go = hand.folder().join(name);
    let script = format!("while ! [ -e {} ]; do sleep 0.02; done; {then}", go.display());
    (go, script)
}

#[test]
fn a_copy_made_at_any_point_of_an_applications_life_ends_nothing() {
    let mut hand = Hand::start(ONE, &[("0", None)]);
    let (first_goes, script) = until(&hand, "first", "exit 0");
    let first = hand.start_script("-q -n 2", &script);
    hand.wait_for("running", 1);
    let (goes, script) = until(&hand, "second", "echo gone; exit 3");
    let second = hand.start_script("-n 2", &script);
    let apid = hand.wait_for("posted", 1)[0];
    let mut copies = vec![copied(&hand, "posted", "state")];
    // Stopped it does not see that it is placed.
    second.signal(19);
    std::fs::write(&first_goes, "").expect("written");
    first.wait(BOUND).expect(0);
    hand.wait_for("placed", 1);
    copies.push(copied(&hand, "placed", "state"));
    second.signal(18);
    copies.push(copied(&hand, "launching", "state"));
    hand.wait_for("running", 1);
    copies.push(copied(&hand, "running", "state"));
    each_put_back(&mut hand, &copies, apid, "running");
    // Nor does a copy of one that is ending, which nobody kills before its time.
    std::fs::write(&goes, "").expect("written");
    let run = second.wait(BOUND).expect(3);
    assert_eq!(run.out(), "gone\ngone\n");
    let (saved, trap) = until(&hand, "third", "echo saved; exit 5");
    let [armed, ends] = ["armed", "ends"].map(|name| hand.folder().join(name));
    let (arm, tell) = (armed.display(), ends.display());
    let script = format!("trap ': > {tell}; {trap}' TERM; : > {arm}; while :; do sleep 0.02; done");
    let third = hand.start_script("-q -n 1", &script);
    let apid = hand.wait_for("running", 1)[0];
    eventually(BOUND, "it can be told to end", || armed.exists());
    run_apkill(&hand, apid);
    eventually(BOUND, "it is being ended", || ends.exists());
    let ending = copied(&hand, "ending", "state");
    each_put_back(&mut hand, &[ending], apid, "ending");
    std::fs::write(&saved, "").expect("written");
    let run = third.wait(BOUND);
    assert!(run.out().contains("saved"), "{} {}", run.out(), run.stderr);
    hand.end();
}

/// Copies made while it goes on after a checkpoint, while only the checkpoint is left of it, and
/// when it has been restarted from that under another number.
#[test]
fn a_copy_made_around_a_checkpoint_ends_nothing() {
    let test = "backup::a_copy_made_around_a_checkpoint_ends_nothing";
    let Some(criu) = criu(test) else { return };
    let named = format!("PSCHED_CRIU={}", criu.program().display());
    let prefix = ["env", &named, "PSCHED_LOG=info"].map(Into::into);
    let mut hand = Hand::start_by(&prefix, ONE, &[("0", None)]);
    let work = tempfile::tempdir().expect("a folder");
    let here = |hand: &Hand, program: &str, line: &str| {
        let mut command = hand.command(program, words(line));
        command.current_dir(work.path());
        command
    };
    let (goes, script) = until(&hand, "goes", "echo gone; exit 3");
    let first = Running::start(here(&hand, "aprun", "-q -n 1 sh -c").arg(script));
    let apid = hand.wait_for("running", 1)[0];
    run(&mut here(&hand, "cpr", &format!("-c kept -p {apid}"))).expect(0);
    let mut copies = vec![copied(&hand, "goes-on", "state")];
    each_put_back(&mut hand, &copies, apid, "running");
    eventually(BOUND, "it can be checkpointed", || {
        run(&mut here(&hand, "cpr", &format!("-c tonight -f -k -p {apid}"))).status == 0
    });
    first.wait(BOUND).expect(137);
    hand.wait_for("running", 0);
    copies.push(copied(&hand, "checkpointed", "state"));
    let second = Running::start(&mut here(&hand, "cpr", "-r tonight"));
    let apid = hand.wait_for("running", 1)[0];
    copies.push(copied(&hand, "restarted", "state"));
    each_put_back(&mut hand, &copies, apid, "running");
    std::fs::write(&goes, "").expect("written");
    assert_eq!(second.wait(BOUND).expect(3).out(), "gone\n");
    hand.end();
}

fn run_apkill(hand: &Hand, apid: u64) {
    run(&mut hand.command("apkill", [apid.to_string()])).expect(0);
}

#[test]
fn what_runs_goes_on_on_a_restored_copy_that_is_adopted() {
    let mut hand = Hand::start(ONE, &[("0", None)]);
    let (goes, script) = until(&hand, "go", "exit 3");
    let runs = hand.start_script("-n 2", &script);
    let apid = hand.wait_for("running", 1)[0];
    let copy = copied(&hand, "copy", "state");
    go_on(&hand, copy.1);
    hand.kill_psched();
    put_back(&mut hand, &copy, apid);
    hand.start_psched_on("on-copy");
    eventually(BOUND, "it is adopted", || {
        run(&mut hand.command("psmgr", words("adopt 0"))).status == 0
    });
    assert_eq!(hand.wait_for("running", 1), [apid]);
    std::fs::write(&goes, "").expect("written");
    runs.wait(BOUND).expect(3);
    assert_eq!(hand.apstat("--history")["history"][0]["status"], 3);
    hand.end();
}

/// A private instance on a copy of some psched's state, from the same shell, ends nothing of that one's.
#[test]
fn an_instance_on_a_copy_ends_only_its_own() {
    let hand = Hand::start(ONE, &[("0", None)]);
    let (file, _) = copied(&hand, "copy", "state");
    run(&mut psched(&hand, "restore", &file, "on-copy")).expect(0);
    let (goes, script) = until(&hand, "go", "exit 3");
    let runs = hand.start_script("-q -n 2", &script);
    let apid = hand.wait_for("running", 1)[0];
    let mut start = Command::new(binaries().join("psched"));
    start.args(["start", "--state"]).arg(hand.folder().join("on-copy")).arg("--");
    start.arg(binaries().join("aprun")).args(["-q", "-n", "1", "echo", "on"]);
    let run = run(start.env("XDG_RUNTIME_DIR", hand.folder()).env("PSCHED_CLAIMS", "")).expect(0);
    assert_eq!(run.out(), "on\n");
    assert_eq!(hand.wait_for("running", 1), [apid]);
    std::fs::write(&goes, "").expect("written");
    runs.wait(BOUND).expect(3);
    hand.end();
}

#[test]
fn what_is_no_copy_or_has_no_place_is_refused() {
    let mut hand = Hand::start(ONE, &[("0", None)]);
    let file = hand.folder().join("copy");
    let backup = |file: &Path, state| psched(&hand, "backup", file, state);
    run(&mut backup(&file, "none")).expect(1).says("there is no store in ");
    run(&mut backup(&file, "state")).expect(0);
    let mode = std::fs::metadata(&file).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let before = std::fs::read(&file).expect("read");
    run(&mut backup(&file, "state")).expect(1).says("exists already").says("--force");
    assert_eq!(std::fs::read(&file).expect("read"), before);
    run(backup(&file, "state").arg("--force")).expect(0);
    // psched runs on that state.
    run(&mut psched(&hand, "restore", &file, "state")).expect(1).says("in use by another psched");
    let text = hand.folder().join("psched.yaml");
    run(&mut psched(&hand, "restore", &text, "new")).expect(1).says("is not a store of psched");
    assert!(!hand.folder().join("new").exists());
    hand.stop_psched();
    let told = run(&mut psched(&hand, "restore", &file, "state")).expect(0).out();
    let kept = told.lines().find_map(|l| l.strip_prefix("the former store is ")).expect("kept");
    assert!(Path::new(kept).is_file(), "{told}");
    // It is one that can be put back itself.
    run(&mut psched(&hand, "restore", kept.as_ref(), "former")).expect(0);
    let left = |name: &str| name.ends_with(".new") || name.ends_with("-wal");
    for folder in [hand.folder().to_owned(), hand.folder().join("state")] {
        for name in listing(&folder) {
            assert!(!left(&name.to_string_lossy()), "{name:?} is left");
        }
    }
    hand.start_psched();
    hand.wait_until_up();
    hand.end();
}
