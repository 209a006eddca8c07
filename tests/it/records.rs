//! Records and nodes that disagree, brought about as they can be on a machine: a runtime directory
//! that is back, or gone with its processes, another boot of the host, an apinit that is not there, one
//! that died before it had made what it was told to.
//!
//! | what is found | where it is provoked |
//! | --- | --- |
//! | node has X, the records do not | [`what_a_node_has_and_the_records_have_not_is_removed`], `disks` |
//! | node has X, the record of X can't be read | [`what_the_records_have_lost_its_node_brings_back`] |
//! | node has X, the store is another one, or an old copy | `foreign` |
//! | records have X running, the node, same boot, lacks it | [`a_node_that_has_lost_an_application_is_named`] |
//! | the same, other boot | [`with_its_host_an_application_dies`]; with another kernel in `emulated` |
//! | node not registered | [`a_node_that_is_not_registered_keeps_what_it_has_and_gets_nothing_new`] |
//! | node has an older incarnation of X | [`of_an_older_incarnation_nothing_stays`] |
//! | exit report for an X that has ended | [`what_a_node_has_and_the_records_have_not_is_removed`] |
//! | placement granted, not launched | [`a_placement_that_was_only_begun_is_made_again`], `waiting` |

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

/// The folder of this one, in its first incarnation. (That of another may still be on its way out.)
fn folder_of(hand: &Hand, apid: u64) -> AppFolder {
    let key = Key::parse(&format!("{apid}.1")).expect("a key");
    AppFolder { key, path: hand.path().join(format!("apps-0/{key}")) }
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

/// Of groups that were forgotten with their folder nobody knows any more: they are the test's to remove.
fn remove_groups(groups: &str) {
    for below in ["shepherd", "0", ""].into_iter().filter(|_| !groups.is_empty()) {
        let _ = std::fs::remove_dir(Path::new(groups).join(below));
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

/// A record that psched can't read ends nothing: its node knows enough, and its aprun waits for that.
#[test]
fn what_the_records_have_lost_its_node_brings_back() {
    let mut hand = Hand::start(ONE, &[("0", None)]);
    let folder = tempfile::tempdir().expect("made");
    let go = folder.path().join("go");
    let script = format!("while ! [ -e {} ]; do sleep 0.02; done; exit 4", go.display());
    let runs = hand.start_script("-n 1", &script);
    let apid = hand.wait_for("running", 1)[0];
    hand.kill_psched();
    let store = rusqlite::Connection::open(hand.folder().join("state/psched.db")).expect("opened");
    let damaged = store.execute("UPDATE application SET record = x'ffff00'", []).expect("damaged");
    assert_eq!(damaged, 1);
    drop(store);
    hand.start_psched();
    assert_eq!(hand.wait_for("running", 1), [apid]);
    // (The log is written beside what it tells of.)
    for words in [
        format!("the record of application {apid} can't be read"),
        "psched adopted NID 0, with application".to_owned(),
    ] {
        eventually(BOUND, &words, || hand.said().contains(&words));
    }
    assert_eq!(hand.start_script("-q -n 1", "echo on").wait(BOUND).expect(0).out(), "on\n");
    std::fs::write(&go, "").expect("written");
    runs.wait(BOUND).expect(4);
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
    let words = "the node lost the application: its apinit no longer knows it";
    assert!(run.stderr.contains("[NID 00000]") && run.stderr.contains(words), "{run:?}");
    hand.wait_until_up();
    assert_eq!(hand.start_script("-q -n 2", "echo on").wait(BOUND).expect(0).out(), "on\non\n");
    remove_groups(&groups);
    hand.end();
}

/// The runtime directory was removed: an application without a record would run on beside others.
#[test]
fn what_an_apinit_has_no_record_of_is_ended() {
    let mut hand = Hand::start(ONE, &[("0", None)]);
    let runs = hand.start_script("-n 2", "trap '' TERM HUP; while :; do sleep 0.1; done");
    let lost = hand.wait_for("running", 1)[0];
    let app = app_folder(&hand);
    let shepherd = app.shepherd().expect("it runs");
    let Ok(groups) = std::fs::read_to_string(app.path.join("groups")) else {
        return skip("records::what_an_apinit_has_no_record_of_is_ended", "there are no cgroups");
    };
    hand.kill_apinit(0);
    std::fs::remove_dir_all(hand.path().join("apps-0")).expect("gone");
    hand.start_apinit("0", None);
    let run = runs.wait(BOUND).expect(125);
    assert!(run.stderr.contains("the node lost the application"), "{run:?}");
    assert_eq!(hand.start_script("-q -n 2", "echo on").wait(BOUND).expect(0).out(), "on\non\n");
    eventually(BOUND, "its processes have gone", || pids().all(|pid| pid != shepherd));
    eventually(BOUND, "its control groups are missing", || !std::path::Path::new(&groups).exists());
    let note = format!("application {lost}.1: its processes were ended");
    assert!(hand.said().contains(&note), "{}", hand.said());
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

/// Daemons for which this file is the boot id; `None`: the test is skipped.
fn in_another_boot(test: &str, boot: &Path) -> Option<Vec<std::ffi::OsString>> {
    let script = "mount --bind \"$0\" /proc/sys/kernel/random/boot_id && exec \"$@\"";
    let prefix: Vec<std::ffi::OsString> = ["unshare", "-m", "sh", "-c", script]
        .map(Into::into)
        .into_iter()
        .chain([boot.into()])
        .collect();
    let tried = std::process::Command::new(&prefix[0]).args(&prefix[1..]).arg("true").output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        skip(&format!("records::{test}"), "no mount namespace can be had (root may)");
        return None;
    }
    Some(prefix)
}

/// The host is restarted: its processes and runtime directory are gone, its boot id is another one.
/// psched is on it, or on another host and lives on.
#[test]
fn with_its_host_an_application_dies() {
    let folder = tempfile::tempdir().expect("made");
    let boot = folder.path().join("boot_id");
    let boot_id = |number| format!("01234567-89ab-cdef-0123-45678901234{number}\n");
    std::fs::write(&boot, boot_id(1)).expect("written");
    let Some(prefix) = in_another_boot("with_its_host_an_application_dies", &boot) else { return };
    for psched_too in [true, false] {
        let mut hand = Hand::start_by(&prefix, ONE, &[("0", None)]);
        let runs = hand.start_script("-n 2", "exec sleep 1000");
        hand.wait_for("running", 1);
        let app = app_folder(&hand);
        let groups = std::fs::read_to_string(app.path.join("groups")).unwrap_or_default();
        // What is on record of this one is on the disk, and of the first too.
        let waits = hand.start_script("-q -n 2", "echo on");
        hand.wait_for("posted", 1);
        hand.kill_apinit(0);
        if psched_too {
            hand.kill_psched();
        }
        kill(app.shepherd().expect("it runs"), 9);
        std::fs::remove_dir_all(hand.path().join("apps-0")).expect("gone");
        std::fs::write(&boot, boot_id(2 + i32::from(psched_too))).expect("written");
        if psched_too {
            hand.start_psched();
            // Nothing is taken from silence.
            assert_eq!(hand.wait_for("running", 1), [app.key.apid.0]);
        }
        hand.start_apinit("0", None);
        let run = runs.wait(BOUND).expect(125);
        let words = "the node lost the application: its host was restarted";
        assert!(run.stderr.contains("[NID 00000]") && run.stderr.contains(words), "{run:?}");
        assert_eq!(waits.wait(BOUND).expect(0).out(), "on\non\n");
        remove_groups(&groups);
        hand.end();
    }
}

/// Its place was taken back while its node was away, and it runs in another; then the node finds again
/// what it had.
#[test]
fn of_an_older_incarnation_nothing_stays() {
    let config = format!("{ONE}variables: {{ ticket_time: 5s }}\n");
    let mut hand = Hand::start(&config, &[("0", None)]);
    let folder = tempfile::tempdir().expect("made");
    let [first_go, go] = ["first", "go"].map(|name| folder.path().join(name));
    let until = |go: &Path| format!("while ! [ -e {} ]; do sleep 0.02; done", go.display());
    let first = hand.start_script("-q -n 2", &until(&first_go));
    hand.wait_for("running", 1);
    let second = hand.start_script("-n 2", &format!("{}; echo second; exit 4", until(&go)));
    let apid = hand.wait_for("posted", 1)[0];
    // Silent: it does not see that it is placed.
    second.signal(19);
    std::fs::write(&first_go, "").expect("written");
    first.wait(BOUND).expect(0);
    let old = folder_of(&hand, apid);
    eventually(BOUND, "all of it is made", || old.has("place") && old.shepherd().is_some());
    let shepherd = old.shepherd().expect("it waits for a launch");
    hand.kill_apinit(0);
    let aside = hand.path().join("aside");
    std::fs::rename(&old.path, &aside).expect("moved");
    hand.wait_for("taking-back", 1);
    hand.start_apinit("0", None);
    hand.wait_for("lapsed", 1);
    second.signal(18);
    hand.wait_for("running", 1);
    hand.kill_apinit(0);
    std::fs::rename(&aside, &old.path).expect("moved");
    assert_eq!(old.shepherd(), Some(shepherd));
    hand.start_apinit("0", None);
    eventually(BOUND, "the old one has gone", || !old.path.exists() && old.shepherd().is_none());
    assert!(hand.said().contains(&format!("application {}", old.key)), "it is logged");
    std::fs::write(&go, "").expect("written");
    assert_eq!(second.wait(BOUND).expect(4).out(), "second\nsecond\n");
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
    let apid = hand.wait_for("posted", 1)[0];
    // Silent: it does not see that it is placed.
    second.signal(19);
    std::fs::write(&go, "").expect("written");
    first.wait(BOUND).expect(0);
    hand.wait_for("placed", 1);
    let app = folder_of(&hand, apid);
    eventually(BOUND, "all of it is made", || app.has("place"));
    hand.kill_apinit(0);
    std::fs::remove_file(app.path.join("place")).expect("gone");
    hand.start_apinit("0", None);
    eventually(Duration::from_secs(20), "it is made again", || app.has("place"));
    second.signal(18);
    assert_eq!(second.wait(BOUND).expect(0).out(), "second\nsecond\n");
    hand.end();
}
