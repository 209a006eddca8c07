//! Records and nodes that disagree, brought about as they can be on a machine: a runtime directory
//! that is back, or gone with its processes, an apinit that is not there, one that died before it had
//! made what it was told to. (Another boot of the host is tested in an emulated machine, an old copy
//! of the state with psmgr.)

use crate::support::hand::Hand;
use crate::support::machine::AppFolder;
use crate::support::*;
use psched::apteam::Key;
use std::path::Path;
use std::time::Duration;

const ONE: &str = "nodes:\n  - { nids: 0, processors: 2, flavors: [su, os, ap] }\n";

/// The one application's folder in the runtime directory.
fn app_folder(hand: &Hand) -> AppFolder {
    let mut found = None;
    eventually(BOUND, "an application has a folder", || {
        let entries = std::fs::read_dir(hand.path().join("apps-0")).into_iter().flatten().flatten();
        let mut keys =
            entries.filter_map(|e| Some((Key::parse(e.file_name().to_str()?)?, e.path())));
        found = keys.next().map(|(key, path)| AppFolder { key, path });
        found.is_some()
    });
    found.expect("found")
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("made");
    for entry in std::fs::read_dir(from).expect("read").flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_file()) {
            // The shepherd's socket.
            continue;
        }
        std::fs::copy(entry.path(), to.join(entry.file_name())).expect("copied");
    }
}

fn node(hand: &Hand) -> serde_json::Value {
    hand.apstat("-n")["nodes"][0].clone()
}

/// What an apinit has that the records do not, be it that it ended long ago, goes without effect.
#[test]
fn what_a_node_has_and_the_records_have_not_is_removed() {
    let mut hand = Hand::start(ONE, &[("0", None)]);
    let folder = tempfile::tempdir().expect("made");
    let go = folder.path().join("go");
    let script = format!("while ! [ -e {} ]; do sleep 0.02; done; exit 4", go.display());
    let runs = hand.start_script("-n 2", &script);
    hand.wait_for("running", 1);
    let app = app_folder(&hand);
    let kept = folder.path().join("kept");
    copy(&app.path, &kept);
    std::fs::write(&go, "").expect("written");
    runs.wait(BOUND).expect(4);
    eventually(BOUND, "its folder is gone", || !app.path.exists());
    hand.kill_apinit(0);
    copy(&kept, &app.path);
    hand.start_apinit("0", None);
    eventually(BOUND, "its folder is gone again", || !app.path.exists());
    let history = hand.apstat("--history");
    let rows = history["history"].as_array().expect("a list");
    let statuses: Vec<i64> = rows.iter().filter_map(|row| row["status"].as_i64()).collect();
    assert_eq!(statuses, [4], "it ended once: {history}");
    hand.wait_until_up();
    assert_eq!(hand.start_script("-q -n 2", "echo on").wait(BOUND).expect(0).out(), "on\non\n");
    hand.end();
}

#[test]
fn a_node_that_has_lost_an_application_is_named() {
    let mut hand = Hand::start(ONE, &[("0", None)]);
    let runs = hand.start_script("-n 2", "exec sleep 1000");
    hand.wait_for("running", 1);
    let app = app_folder(&hand);
    let shepherd = app.shepherd().expect("it runs");
    hand.kill_apinit(0);
    // With it the kernel kills the PEs.
    kill(shepherd, 9);
    let groups = std::fs::read_to_string(app.path.join("groups")).unwrap_or_default();
    std::fs::remove_dir_all(&app.path).expect("gone");
    hand.start_apinit("0", None);
    let run = runs.wait(BOUND).expect(125);
    let words = "the node lost the application: its apinit does not know it any more";
    assert!(run.stderr.contains("[NID 00000]") && run.stderr.contains(words), "{run:?}");
    hand.wait_until_up();
    assert_eq!(hand.start_script("-q -n 2", "echo on").wait(BOUND).expect(0).out(), "on\non\n");
    // Nobody knows of its groups any more: they are the test's to remove.
    for below in ["shepherd", "0", ""].into_iter().filter(|_| !groups.is_empty()) {
        let _ = std::fs::remove_dir(Path::new(&groups).join(below));
    }
    hand.end();
}

#[test]
fn a_node_that_is_not_registered_keeps_what_it_has_and_gets_nothing_new() {
    let mut hand = Hand::start(ONE, &[("0", None)]);
    let folder = tempfile::tempdir().expect("made");
    let go = folder.path().join("go");
    let script = format!("while ! [ -e {} ]; do sleep 0.02; done; exit 4", go.display());
    let runs = hand.start_script("-n 1", &script);
    hand.wait_for("running", 1);
    hand.kill_apinit(0);
    eventually(BOUND, "it is suspect", || node(&hand)["state"] == "suspect");
    assert_eq!(node(&hand)["pl"], 1);
    // A processor is free, and nothing is placed there.
    let mut waits = hand.start_script("-q -n 1", "echo later");
    hand.wait_for("posted", 1);
    // Its end is not taken from silence.
    std::fs::write(&go, "").expect("written");
    hand.kill_psched();
    hand.start_psched();
    hand.wait_for("posted", 1);
    assert_eq!(hand.wait_for("running", 1).len(), 1);
    assert!(waits.runs());
    hand.start_apinit("0", None);
    runs.wait(BOUND).expect(4);
    assert_eq!(waits.wait(BOUND).expect(0).out(), "later\n");
    hand.end();
}

/// Placed, not launched; its apinit died before it had made all of it.
#[test]
fn a_placement_that_was_only_begun_is_made_again() {
    let mut hand = Hand::start(ONE, &[("0", None)]);
    let folder = tempfile::tempdir().expect("made");
    let go = folder.path().join("go");
    let script = format!("while ! [ -e {} ]; do sleep 0.02; done", go.display());
    let first = hand.start_script("-q -n 2", &script);
    hand.wait_for("running", 1);
    let second = hand.start_script("-q -n 2", "echo second");
    hand.wait_for("posted", 1);
    // Silent: it does not see that it is placed.
    second.signal(19);
    std::fs::write(&go, "").expect("written");
    first.wait(BOUND).expect(0);
    hand.wait_for("placed", 1);
    let app = app_folder(&hand);
    eventually(BOUND, "all of it is made", || app.has("place"));
    hand.kill_apinit(0);
    std::fs::remove_file(app.path.join("place")).expect("gone");
    hand.start_apinit("0", None);
    eventually(Duration::from_secs(20), "it is made again", || app.has("place"));
    second.signal(18);
    assert_eq!(second.wait(BOUND).expect(0).out(), "second\nsecond\n");
    hand.end();
}
