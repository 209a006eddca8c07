//! The store on disks that are full, can't be written, or hold what this psched doesn't know.

use crate::support::hand::Hand;
use crate::support::*;
use psched::rpc::{connect, pb};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A file system of 8 MB, as long as it is needed.
struct Small(tempfile::TempDir);

impl Small {
    fn new(test: &str) -> Option<Small> {
        let folder = tempfile::Builder::new().prefix("it").tempdir_in("/tmp").expect("made");
        let flags = nix::mount::MsFlags::empty();
        let made =
            nix::mount::mount(Some("none"), folder.path(), Some("tmpfs"), flags, Some("size=8m"));
        if made.is_err() {
            skip(test, "no file system can be mounted");
            return None;
        }
        Some(Small(folder))
    }

    fn ballast(&self) -> PathBuf {
        self.0.path().join("ballast")
    }

    /// Writes until nothing more fits.
    fn fill(&self) {
        use std::io::Write;
        let mut file =
            std::fs::File::options().create(true).append(true).open(self.ballast()).expect("made");
        while file.write_all(&[0; 512]).is_ok() {}
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let lazily = nix::mount::MntFlags::MNT_DETACH;
        let _ = nix::mount::umount2(self.0.path(), lazily);
    }
}

#[test]
fn a_full_store_refuses_postings_and_loses_nothing() {
    let Some(small) = Small::new("disks::a_full_store_refuses_postings_and_loses_nothing") else {
        return;
    };
    let state = small.0.path().join("state");
    let instance = Plan::new().nodes(2, 2).arg("--state").arg(&state).start();
    let go = instance.directory().join("go");
    let script =
        format!("while ! [ -e {} ]; do sleep 0.02; done; seq 1 1000; exit 5", go.display());
    let runs = instance.start_script("-n 1", &script);
    let apid = instance.wait_for("running", 1)[0];
    // For this one the postings below will wait until the end.
    let stays = instance.start_script("-q -n 2", "exec sleep 1000");
    let both = instance.wait_for("running", 2);
    let refused = fill_up(&small, &instance);
    assert!(refused.stderr.contains("full"), "{}", refused.stderr);
    assert!(refused.stderr.contains("psched.db"), "{}", refused.stderr);
    assert!(!refused.stderr.contains("does not answer"), "{}", refused.stderr);
    // Who does not want to wait is told so at once.
    let refused = instance.script("-q --immediate -n 1", "true").expect(125);
    assert!(
        refused.stderr.starts_with("aprun: the posting was not accepted: "),
        "{}",
        refused.stderr
    );
    assert!(!refused.stderr.contains("trying again"), "{}", refused.stderr);
    assert_eq!(instance.apids("running"), both);
    // What runs ends with its true status, and its record waits for room.
    std::fs::write(&go, "").expect("written");
    let run = runs.wait(BOUND).expect(5);
    assert_eq!(run.out().lines().count(), 1_000);
    std::fs::remove_file(small.ballast()).expect("room again");
    eventually(BOUND, "an application runs again", || {
        instance.script("-q -n 1", "true").status == 0
    });
    eventually(BOUND, "its record is kept", || {
        let history = instance.apstat("--history 1000");
        let rows = history["history"].as_array().expect("a list").clone();
        rows.iter().any(|r| r["apid"] == apid && r["status"] == 5)
    });
    let waiting = instance.apids("posted").into_iter().map(|apid| apid.to_string());
    instance.run("apkill", waiting).expect(0);
    instance.run("apkill", both.iter().filter(|a| **a != apid).map(u64::to_string)).expect(0);
    stays.wait(BOUND).expect(143);
    instance.wait_until_free();
}

/// Fills the disk until it takes no posting, however short: what the last one was told.
#[track_caller]
fn fill_up(small: &Small, instance: &Instance) -> Run {
    // The store has room of its own for a while, which postings with long commands use up.
    let refused = (0..50).find_map(|round| {
        small.fill();
        post_until_refused(&instance.folder().join("psched.sock"), round);
        // The log may have been copied into the database meanwhile, and have room again.
        Some(instance.script("-q -n 1", "true")).filter(|run| run.status != 0)
    });
    refused.expect("the disk does not fill").expect(125)
}

#[test]
fn a_full_disk_stops_neither_looks_nor_kills() {
    let test = "disks::a_full_disk_stops_neither_looks_nor_kills";
    let Some(small) = Small::new(test) else { return };
    let state = small.0.path().join("state");
    let instance = Plan::new().nodes(2, 2).arg("--state").arg(&state).start();
    let go = instance.directory().join("go");
    let script = format!("while ! [ -e {} ]; do sleep 0.02; done; exit 5", go.display());
    let ends = instance.start_script("-q -n 1", &script);
    let ending = instance.wait_for("running", 1)[0];
    let killed = instance.start_script("-q -n 2", "exec sleep 1000");
    let running = instance.wait_for("running", 2);
    let victim = *running.iter().find(|apid| **apid != ending).expect("the other");
    // As long as this reads, the store's log does not begin again: it is used up.
    let reader = rusqlite::Connection::open(state.join("psched.db")).expect("opened");
    reader.execute_batch("BEGIN; SELECT count(*) FROM application").expect("reads");
    fill_up(&small, &instance);
    let none: [&str; 0] = [];
    let waits = || {
        let run = instance.run("apstat", none).expect(0);
        format!("{}{}", run.out(), run.stderr).contains("waiting for the disk")
    };
    eventually(BOUND, "not even a short record fits", || {
        small.fill();
        instance.script("-q -n 1", "true");
        // It is tried again several times meanwhile.
        (0..5).all(|_| {
            std::thread::sleep(Duration::from_millis(200));
            waits()
        })
    });
    // From now on records wait: that of an end, first.
    std::fs::write(&go, "").expect("written");
    ends.wait(BOUND).expect(5);
    let says_why = |text: &str| {
        assert!(text.contains("records have been waiting for the disk since 20"), "{text}");
        assert!(text.contains("is full"), "{text}");
    };
    // What is shown has word of it, and comes.
    for (program, arguments) in [("apstat", vec![]), ("psmgr", vec!["show"])] {
        let run = instance.run(program, none.iter().chain(&arguments)).expect(0);
        says_why(&format!("{}{}", run.out(), run.stderr));
    }
    instance.run("apstat", ["--history"]).expect(0);
    let apid = ending.to_string();
    for option in ["--why", "-A", "--events"] {
        let run = instance.run("apstat", [option, &apid]).expect(0);
        says_why(&format!("{}{}", run.out(), run.stderr));
    }
    for order in [&["set", "history_max=77"][..], &["reload"]] {
        let refused = instance.run("psmgr", order).expect(1);
        assert!(refused.stderr.contains("is full"), "{}", refused.stderr);
    }
    // A copy lacks what waits.
    let copies = tempfile::tempdir().expect("a folder");
    let (copy, state) = (copies.path().join("copy"), state.display().to_string());
    let copy = copy.display().to_string();
    let run = instance.run("psched", ["backup", &copy, "--state", &state]).expect(0);
    assert!(run.stderr.contains("the copy lacks the latest changes"), "{}", run.stderr);
    // A kill kills, again too, and so does a signal; whoever asked for it knows that it is not on record.
    let run = instance.run("apkill", ["-9", &victim.to_string()]).expect(0);
    says_why(&run.stderr);
    killed.wait(BOUND).expect(137);
    assert!(instance.apids("running").is_empty());
    std::fs::remove_file(small.ballast()).expect("room again");
    drop(reader);
    eventually(BOUND, "both ends are kept", || {
        let history = instance.apstat("--history 1000");
        let rows = history["history"].as_array().expect("a list").clone();
        [(ending, 5), (victim, 137)]
            .iter()
            .all(|(apid, status)| rows.iter().any(|r| r["apid"] == *apid && r["status"] == *status))
    });
    assert!(!waits());
    let waiting = instance.apids("posted").into_iter().map(|apid| apid.to_string());
    instance.run("apkill", waiting).expect(0);
    instance.wait_until_free();
}

/// How many short ones there are: 100,000 take an hour.
const SHORT_VARIABLE: &str = "PSCHED_SHORT_APPLICATIONS";

#[test]
fn events_of_short_applications_beside_an_old_one_go_with_them() {
    let count = std::env::var(SHORT_VARIABLE).map_or(400, |text| text.parse().expect("a number"));
    let base = base();
    let state = base.path().join("state");
    let config = "variables: { history_max: 50 }\nnodes:\n  - { nids: 0, processors: 8, flavors: [su, os, ap] }\n";
    let instance = Plan::new().config(config).arg("--state").arg(&state).start();
    let old = instance.start_script("-q -n 1", "exec sleep 100000");
    let living = instance.wait_for("running", 1)[0];
    let aprun = binaries().join("aprun");
    let script = format!(
        "i=0; while [ $i -lt {} ]; do {} -q -n 1 true || exit 9; i=$((i+1)); done",
        count / 4,
        aprun.display()
    );
    let start = |_| Running::start(&mut instance.command("/bin/sh", ["-c", &script]));
    let shells: Vec<Running> = (0..4).map(start).collect();
    let bound = BOUND.max(Duration::from_millis(100 * count));
    shells.into_iter().for_each(|shell| drop(shell.wait(bound).expect(0)));
    let database = rusqlite::Connection::open(state.join("psched.db")).expect("opened");
    let rows = |what: &str| -> u64 {
        let number = |r: &rusqlite::Row<'_>| r.get::<_, i64>(0);
        database.query_row(&format!("SELECT count(*) FROM {what}"), [], number).expect("counted")
            as u64
    };
    assert!(rows("application") < count, "nothing was pruned");
    assert_eq!(rows("event WHERE apid NOT IN (SELECT apid FROM application)"), 0);
    assert!(rows(&format!("event WHERE apid = {living}")) > 2);
    let log = std::fs::metadata(state.join("psched.db-wal")).expect("the log").len();
    assert!(log < 4 * 1024 * 1024, "the log has {log} bytes");
    drop(database);
    instance.run("apkill", ["-9", &living.to_string()]).expect(0);
    old.wait(BOUND).expect(137);
    instance.wait_until_free();
}

/// What makes the disk fail under psched, and how it is told to.
struct FailingDisk {
    folder: tempfile::TempDir,
}

impl FailingDisk {
    fn new(test: &str) -> Option<FailingDisk> {
        let folder = base();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/disks/fsync.c");
        let mut command = Command::new("cc");
        command.args(["-shared", "-fPIC", "-o"]).arg(folder.path().join("fsync.so")).arg(source);
        match command.status() {
            Ok(status) => assert!(status.success(), "it does not compile"),
            Err(_) => {
                skip(test, "there is no C compiler");
                return None;
            }
        }
        Some(FailingDisk { folder })
    }

    fn switch(&self) -> PathBuf {
        self.folder.path().join("switch")
    }

    /// Files with this end can't be synced any more.
    fn fail(&self, end: &str) {
        let new = self.folder.path().join("new");
        std::fs::write(&new, end).expect("written");
        std::fs::rename(new, self.switch()).expect("switched");
    }

    fn work(&self) {
        std::fs::remove_file(self.switch()).expect("switched");
    }

    /// A command line that has the rest of it run on this disk.
    fn prefix(&self) -> Vec<std::ffi::OsString> {
        let variable = |name: &str, path: PathBuf| {
            let mut text = std::ffi::OsString::from(format!("{name}="));
            text.push(path);
            text
        };
        vec![
            "env".into(),
            variable("LD_PRELOAD", self.folder.path().join("fsync.so")),
            variable("FAILING_DISK", self.switch()),
        ]
    }
}

#[test]
fn after_a_failed_sync_nothing_that_was_confirmed_is_lost() {
    let test = "disks::after_a_failed_sync_nothing_that_was_confirmed_is_lost";
    let Some(disk) = FailingDisk::new(test) else { return };
    let nodes = "nodes:\n  - { nids: 0-1, processors: 2, flavors: [su, os, ap] }\n";
    let mut hand = Hand::start_by(&disk.prefix(), nodes, &[("0-1", None)]);
    let stays = hand.start_script("-q -n 1", "exec sleep 1000");
    let staying = hand.wait_for("running", 1)[0];
    let go = hand.folder().join("go");
    let script = format!("while ! [ -e {} ]; do sleep 0.02; done; exit 7", go.display());
    let ends = hand.start_script("-q -n 1", &script);
    let both = hand.wait_for("running", 2);
    let ending = *both.iter().find(|apid| **apid != staying).expect("the other");

    // The log: what can't be synced is not confirmed, and what waits is kept when it can be again.
    disk.fail("-wal");
    let refused = hand.start_script("-q -n 1", "true").wait(BOUND).expect(125);
    assert!(refused.stderr.contains("fsync"), "{}", refused.stderr);
    std::fs::write(&go, "").expect("written");
    ends.wait(BOUND).expect(7);
    disk.work();
    eventually(BOUND, "an application runs again", || {
        hand.start_script("-q -n 1", "exit 3").wait(BOUND).status == 3
    });
    // (aprun hears of the end from apinit, which may have to tell it to the next psched.)
    let kept = |hand: &Hand, most: usize| {
        eventually(BOUND, &format!("{most} ends are kept"), || {
            let history = hand.apstat("--history 1000");
            let rows = history["history"].as_array().expect("a list").clone();
            let status = |apid: u64| rows.iter().find(|r| r["apid"] == apid)?["status"].as_u64();
            let threes = rows.iter().filter(|r| r["status"] == 3).count();
            assert!(threes <= most, "{threes}");
            (status(ending), threes) == (Some(7), most)
        });
    };
    hand.kill_psched();
    hand.start_psched();
    assert_eq!(hand.wait_for("running", 1), [staying]);
    hand.wait_until_seen();
    kept(&hand, 1);

    // The database: what can't be copied there stays in the log.
    disk.fail(".db");
    let long = format!("exit 3 # {}", "x".repeat(30_000));
    (0..20).for_each(|_| drop(hand.start_script("-q -n 1", &long).wait(BOUND).expect(3)));
    hand.kill_psched();
    disk.work();
    hand.start_psched();
    assert_eq!(hand.wait_for("running", 1), [staying]);
    hand.wait_until_seen();
    kept(&hand, 21);

    // psched dies while nothing can be synced: the end that it has told is told to it again.
    disk.fail("-wal");
    let _ = hand.start_script("-q -n 1", "true").wait(BOUND).expect(125);
    let run = run(&mut hand.command("apkill", ["-9", &staying.to_string()])).expect(0);
    assert!(run.stderr.contains("not recorded"), "{}", run.stderr);
    stays.wait(BOUND).expect(137);
    hand.kill_psched();
    disk.work();
    hand.start_psched();
    eventually(BOUND, "its end is kept", || {
        let history = hand.apstat("--history 1000");
        let rows = history["history"].as_array().expect("a list").clone();
        rows.iter().any(|r| r["apid"] == staying && r["status"] == 137)
    });
    hand.end();
}

/// Posts what waits and has a long command, until the store can't take more of it.
fn post_until_refused(socket: &Path, round: u32) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("tokio").block_on(async {
        let channel = connect::connect(socket).await.expect("connected");
        let mut psched = pb::psched_client::PschedClient::new(channel);
        // A long one that does not fit leaves room for shorter ones.
        let mut sizes = [60_000, 6_000, 600, 60, 1].into_iter();
        let mut size = 60_000;
        for number in 0..2_000u32 {
            let posting = pb::PostRequest {
                request_id: [number.to_ne_bytes(), round.to_ne_bytes()].concat().repeat(2).into(),
                // The whole machine, so that it waits.
                shape: Some(pb::Shape { width: 4, depth: 1, per_node: 0 }),
                command: "x".repeat(size),
                executable: Some(pb::Executable { path: "/bin/true".into(), ..Default::default() }),
                ..Default::default()
            };
            if let Err(status) = psched.post(posting).await {
                assert_eq!(status.code(), tonic::Code::Unavailable, "{status}");
                match sizes.next() {
                    Some(next) => size = next,
                    None => return,
                }
            }
        }
        panic!("the disk does not fill");
    });
}

/// `psched start` on a state directory where it can't start: what it says.
fn refused(base: &Path, state: &Path, user: Option<&Path>) -> Run {
    let mut command = match user {
        None => Command::new(binaries().join("psched")),
        Some(bins) => {
            let uid = USER.to_string();
            let mut command = Command::new("setpriv");
            command.args(["--reuid", &uid, "--regid", &uid, "--clear-groups", "--"]);
            command.arg(bins.join("psched"));
            command
        }
    };
    command.args(["start", "--nodes", "1", "--state"]).arg(state).args(["--", "true"]);
    command.env("TMPDIR", base).env_remove("XDG_RUNTIME_DIR").env_remove("PSCHED_LOG");
    run(command.current_dir(base)).expect(125)
}

fn base() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("it").tempdir_in("/tmp").expect("made")
}

#[test]
fn a_newer_store_is_refused_and_left_alone() {
    let base = base();
    let state = base.path().join("state");
    Plan::new().nodes(1, 1).arg("--state").arg(&state).start().script("-q", "true").expect(0);
    let file = state.join("psched.db");
    // PRAGMA user_version is at byte 60 of the file, big-endian.
    let mut bytes = std::fs::read(&file).expect("the store");
    bytes[60..64].copy_from_slice(&99u32.to_be_bytes());
    std::fs::write(&file, &bytes).expect("written");
    let run = refused(base.path(), &state, None);
    assert!(run.stderr.contains("version 99"), "{}", run.stderr);
    assert!(std::fs::read(&file).expect("there") == bytes, "it has been written to");
}

#[test]
fn a_state_directory_that_can_not_be_written_is_named() {
    let name = "disks::a_state_directory_that_can_not_be_written_is_named";
    if !is_root() {
        return skip(name, "only root can become another user, for whom it can't be written");
    }
    let mode = |m| std::os::unix::fs::PermissionsExt::from_mode(m);
    let base = base();
    std::fs::set_permissions(base.path(), mode(0o755)).expect("opened");
    let tmp = base.path().join("t");
    std::fs::create_dir(&tmp).expect("made");
    std::os::unix::fs::chown(&tmp, Some(USER), Some(USER)).expect("his");
    for program in ["psched", "apinit", "apshepherd"] {
        std::fs::copy(binaries().join(program), base.path().join(program)).expect("copied");
    }
    // Root's directory; and the user's own one with files that are root's.
    let state = base.path().join("state");
    std::fs::create_dir(&state).expect("made");
    let run = refused(&tmp, &state, Some(base.path()));
    assert!(run.stderr.contains(state.to_str().expect("text")), "{}", run.stderr);
    assert!(run.stderr.contains("ermission denied"), "{}", run.stderr);
    let state = base.path().join("kept");
    Plan::new().nodes(1, 1).arg("--state").arg(&state).start().script("-q", "true").expect(0);
    std::fs::set_permissions(&state, mode(0o755)).expect("opened");
    for file in ["psched.db", "lock"] {
        std::fs::set_permissions(state.join(file), mode(0o644)).expect("readable");
    }
    std::os::unix::fs::chown(state.join("lock"), Some(USER), Some(USER)).expect("his");
    let run = refused(&tmp, &state, Some(base.path()));
    assert!(run.stderr.contains("psched.db"), "{}", run.stderr);
    assert!(run.stderr.contains("can't be written"), "{}", run.stderr);
}
