//! The store and its thread, on real files.

mod bounds;

use super::committer::{self, Commit, Outcome, Release};
use super::records;
use super::store::{Reader, Record, Store, StoreError, backup};
use crate::apteam::change::{By, Change, Closed, FlavorOrder, NodeOrder, Orders};
use crate::apteam::ending::{Cause, Decisive, HostEnd};
use crate::apteam::place::{Place, PlacementList};
use crate::apteam::posting::{Account, Owner, Posting};
use crate::apteam::protocol::attach::{NumberedSignal, PSCHED_SIGNALS};
use crate::apteam::record::{Apteam, FailedLaunch, FrontProcess, Retries, State};
use crate::apteam::saving::Saving;
use crate::apteam::shape::Shape;
use crate::apteam::{Apid, Incarnation, Ticket};
use crate::machine::{Flavor, Nid};
use crate::psched::decide::SetValue;
use crate::psched::decide::{Effect, ReplyId};
use crate::psched::decide::{HolderUsage, SharesRecord};
use std::sync::atomic::Ordering;
use std::time::Duration;

pub(super) fn team(apid: u64, state: State) -> Apteam {
    Apteam {
        apid: Apid(apid),
        incarnation: Incarnation(2),
        state,
        posting: Posting {
            memory_per_pe: Some(1 << 30),
            command: "./a.out -x".into(),
            cpu_limit: Some(Duration::from_secs(60)),
            account: Account::parse("climate").ok(),
            ..Posting::plain([apid as u8; 16], Shape { width: 4, depth: 2, per_node: Some(2) })
        },
        owner: Owner {
            uid: 1000,
            gid: 1000,
            groups: vec![4, 24],
            name: "alice".into(),
            terminal: true,
        },
        front: Some(FrontProcess::here(4711, 99)),
        front_gone: false,
        places: PlacementList([Place { nid: Nid(3), processors: (0..8).collect(), pes: 4 }].into()),
        hosts: Default::default(),
        ticket: Ticket([7; 16]),
        ticket_until_ns: 123,
        posted_at_ns: 1_000,
        running_at_ns: 0,
        ended_at_ns: 0,
        end: None,
        doomed: Some(Decisive { at_ns: 5, cause: Cause::Kill { signal: 15, uid: 0 } }),
        signals: vec![NumberedSignal { number: PSCHED_SIGNALS + 7, signal: 10 }],
        last_signal: PSCHED_SIGNALS + 7,
        held: Some(By { uid: 7, name: "carol".into(), at_ns: 11 }),
        stopped: Some(By { uid: 1000, name: "alice".into(), at_ns: 12 }),
        shares: true,
        domain: "quick".into(),
        moves: crate::apteam::record::Moves { told: 2, to: None },
        restart: apid.is_multiple_of(2).then(|| crate::apteam::protocol::node::Restart {
            from: crate::apteam::Key { apid: Apid(1), incarnation: Incarnation(3) },
            run: Duration::from_nanos(900_500_000_001),
            parts: vec![2, 1],
        }),
        retries: Retries {
            count: 2,
            last: Some(FailedLaunch {
                incarnation: Incarnation(1),
                cause: Cause::NodeLost { nid: Nid(5), text: "gone".into() },
            }),
            may_have_run: true,
        },
    }
}

#[test]
fn a_record_comes_back_as_it_was() {
    for state in State::ALL {
        let mut team = team(9, state);
        team.end = Some(HostEnd { key: team.key(), nids: vec![Nid(3)], ..HostEnd::default() });
        assert_eq!(records::decode(&records::encode(&team)).expect("a record"), team);
    }
    assert!(records::decode(b"\xff\xff nonsense").is_err());
    assert!(records::decode(b"").is_err());
}

#[test]
fn a_store_keeps_its_id_and_counts_its_epochs() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("deep/state");
    let (id, path_of_store) = {
        let mut store = Store::open(&path).expect("a new store");
        assert_eq!((store.id.len(), store.epoch), (32, 1));
        let waiting = Record::Posted(Box::new(team(1, State::Posted)));
        let log = Record::Log { apid: Apid(1), at_ns: 5, name: "posted", detail: "x".into() };
        let boot = Record::Boot(vec![Nid(3)], "boot".into());
        store.write(&[&waiting, &log, &boot]).expect("written");
        store.write(&[&Record::Posted(Box::new(team(2, State::Ended)))]).expect("written");
        // What was never taken is not brought back by a later state of it.
        store
            .write(&[&Record::Update { team: Box::new(team(3, State::Running)), lazy: false }])
            .expect("written");
        (store.id.clone(), store.path().to_path_buf())
    };
    let store = Store::open(&path).expect("the same store");
    assert_eq!((store.id.clone(), store.epoch), (id, 2));
    let restored = store.restore().expect("restored");
    assert_eq!(restored.next_apid, 3);
    assert_eq!(restored.teams, [team(1, State::Posted)]);
    assert_eq!(restored.boots.get(&Nid(3)).map(String::as_str), Some("boot"));
    let reader = Reader::open(&path_of_store).expect("a reader beside the writer");
    assert_eq!(reader.history(10).expect("history").len(), 1);
    assert_eq!(reader.events(Apid(1)).expect("events")[0].name, "posted");
    assert!(reader.team(Apid(3)).expect("looked").is_none());
}

/// Makes a store of version 1 with a waiting application, and with an application that was set
/// aside. Early releases had no table for the latter.
fn store_of_version_1(path: &std::path::Path, with_aside: bool) {
    let old = rusqlite::Connection::open(path).expect("a new file");
    old.execute_batch(
        "CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
         CREATE TABLE application (
             apid INTEGER PRIMARY KEY,
             state TEXT NOT NULL,
             uid INTEGER NOT NULL,
             command TEXT NOT NULL,
             posted_at_ns INTEGER NOT NULL,
             ended_at_ns INTEGER NOT NULL,
             status INTEGER,
             passed_over INTEGER NOT NULL,
             record BLOB NOT NULL
         );
         CREATE INDEX application_ended ON application (ended_at_ns, apid) WHERE state = 'ended';
         CREATE INDEX application_live ON application (apid) WHERE state <> 'ended';
         CREATE TABLE boot (nid INTEGER PRIMARY KEY, boot_id TEXT NOT NULL);
         INSERT INTO meta VALUES ('id', 'old'), ('epoch', 4), ('commits', 7);
         PRAGMA user_version = 1;",
    )
    .expect("its tables");
    let mut record = records::encode(&team(1, State::Posted));
    // Its field 11 was `passed_over`.
    record.extend([11 << 3, 3]);
    old.execute(
        "INSERT INTO application VALUES (1, 'posted', 1000, './a.out -x', 1000, 0, NULL, 3, ?1)",
        [record],
    )
    .expect("an application");
    if with_aside {
        old.execute_batch(
            "CREATE TABLE set_aside (
                 apid INTEGER PRIMARY KEY,
                 state, uid, command, posted_at_ns, ended_at_ns, status, passed_over, record,
                 at_ns INTEGER NOT NULL,
                 why TEXT NOT NULL
             );
             INSERT INTO set_aside
             VALUES (2, 'running', 1000, 'b', 1, 0, NULL, 5, x'ff', 9, 'can not be read');",
        )
        .expect("one that was set aside");
    }
}

#[test]
fn a_store_of_version_1_goes_on() {
    for with_aside in [true, false] {
        let folder = tempfile::tempdir().expect("a folder");
        let restored = folder.path().join("restored");
        let copy = folder.path().join("copy");
        store_of_version_1(&copy, with_aside);
        // It may be a copy that psched restores.
        let (contents, _) = backup::restore(&restored, &copy).expect("a copy of an old release");
        assert_eq!((contents.store_id.as_str(), contents.applications), ("old", 1));
        let state = folder.path().join("state");
        std::fs::create_dir(&state).expect("made");
        store_of_version_1(&state.join("psched.db"), with_aside);
        for state in [restored, state] {
            let mut store = Store::open(&state).expect("an old store");
            let path = store.path().to_path_buf();
            let found = store.restore().expect("restored");
            assert_eq!((store.id.as_str(), store.epoch), ("old", 5));
            assert_eq!(found.teams, [team(1, State::Posted)]);
            let aside: &[Apid] = if with_aside { &[Apid(2)] } else { &[] };
            assert_eq!(found.unreadable, aside);
            let kept = "SELECT count(*) FROM set_aside WHERE (apid, state, uid, command, posted_at_ns, \
                        ended_at_ns, record, at_ns, why) = (2, 'running', 1000, 'b', 1, 0, x'ff', 9, \
                        'can not be read') AND status IS NULL";
            assert_eq!(count(&path, kept), i64::from(with_aside));
            store.write(&[&Record::Posted(Box::new(team(3, State::Posted)))]).expect("written");
            drop(store);
            for table in ["application", "set_aside"] {
                let columns = format!(
                    "SELECT count(*) FROM pragma_table_info('{table}') WHERE name = 'passed_over'"
                );
                assert_eq!(count(&path, &columns), 0, "{table}");
            }
            assert_eq!(count(&path, "SELECT user_version FROM pragma_user_version"), 2);
            let again = Store::open(&state).expect("a store of version 2");
            assert_eq!(again.restore().expect("restored").teams.len(), 2);
        }
    }
}

#[test]
fn records_of_one_user_are_bounded_and_the_file_gets_smaller() {
    let folder = tempfile::tempdir().expect("a folder");
    let large = |apid, uid| {
        let mut team = team(apid, State::Ended);
        team.owner.uid = uid;
        team.posting.saving = Saving::by_command(&"x".repeat(4_000)).ok();
        Record::Posted(Box::new(team))
    };
    let size = || std::fs::metadata(folder.path().join("psched.db")).expect("there").len();
    // As a release left it that kept all, and could not get smaller.
    {
        let store = Store::open(folder.path()).expect("a store");
        let path = store.path().to_path_buf();
        drop(store);
        let old = rusqlite::Connection::open(path).expect("opened");
        old.execute_batch("PRAGMA auto_vacuum = NONE; VACUUM").expect("set");
    }
    {
        let mut store = Store::open(folder.path()).expect("a store");
        store.write(&[&large(1, 1_000)]).expect("written");
        let records: Vec<Record> = (2..=4_000).map(|apid| large(apid, 1_001)).collect();
        store.write(&records.iter().collect::<Vec<_>>()).expect("written");
        store.write(&[&large(4_001, 1_002)]).expect("written");
    }
    let before = size();
    let mut store = Store::open(folder.path()).expect("the store");
    store.records_user_max.store(1 << 20, Ordering::Relaxed);
    for _ in 0..40 {
        store.write(&[]).expect("written");
    }
    let reader = Reader::open(store.path()).expect("a reader");
    let history = reader.history(10_000).expect("read");
    let of = |uid| history.iter().filter(|team| team.owner.uid == uid).count();
    assert_eq!((of(1_000), of(1_002)), (1, 1), "others' are left alone");
    assert!((100..250).contains(&of(1_001)), "{}", of(1_001));
    let newest = history.iter().filter(|t| t.owner.uid == 1_001).map(|t| t.apid.0).max();
    assert_eq!(newest, Some(4_000), "the oldest are forgotten");
    drop((reader, store));
    assert!(size() < before / 2, "{before} -> {}", size());
}

#[test]
fn what_users_have_had_comes_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let had =
        |n: u64| HolderUsage { holder: format!("u{n:05}").into(), had_s: n as f64 / 2.0, at_ns: n };
    let record = |had, charged| Record::Shares(SharesRecord { had, charged });
    let charged = |n| vec![(Apid(7), Duration::from_secs(n)), (Apid(u64::MAX >> 1), Duration::MAX)];
    let shares = |of: std::ops::Range<u64>| record(of.map(had).collect(), charged(1));
    {
        let mut store = Store::open(folder.path()).expect("a new store");
        store.write(&[&shares(0..4)]).expect("written");
        store
            .write(&[&record(vec![HolderUsage { had_s: 9.5, ..had(1) }], vec![])])
            .expect("written");
        let all = store.restore().expect("restored").shares;
        assert_eq!(all.charged, [], "of those that run now");
        assert_eq!(all.had, [had(0), HolderUsage { had_s: 9.5, ..had(1) }, had(2), had(3)]);
        store.write(&[&shares(2..10_003)]).expect("written");
    }
    let store = Store::open(folder.path()).expect("the same store");
    let all = store.restore().expect("restored").shares;
    assert_eq!((all.had.len(), &all.had[0]), (10_000, &had(3)), "the newest are kept");
    let most = Duration::from_nanos(i64::MAX as u64);
    assert_eq!(all.charged, [(Apid(7), Duration::from_secs(1)), (Apid(u64::MAX >> 1), most)]);
}

#[test]
fn what_administrators_say_comes_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let by = |n: u64| By { uid: 7, name: "carol".into(), at_ns: n };
    let order = |closed, n| NodeOrder { closed, reason: "no power".into(), by: by(n) };
    let nodes = |nids: &[u32], order: Option<NodeOrder>| {
        Record::Nodes(nids.iter().map(|n| Nid(*n)).collect(), order.map(Box::new))
    };
    let given = |names: &str| {
        let flavors = names.split(' ').filter_map(Flavor::parse).collect();
        FlavorOrder { flavors, by: by(4) }
    };
    let flavors = |nids: &[u32], order: Option<FlavorOrder>| {
        Record::Flavors(nids.iter().map(|n| Nid(*n)).collect(), order.map(Box::new))
    };
    let set = |value: &str| SetValue { value: value.into(), by: by(3) };
    let variable = |name: &str, set| Record::Variable { name: name.into(), set };
    let change = |n: u64| Change {
        by: by(n),
        what: "kill_grace".into(),
        before: format!("{n}s"),
        after: format!("{}s", n + 1),
    };
    {
        let mut store = Store::open(folder.path()).expect("a new store");
        store.write(&[&nodes(&[1, 2, 3], Some(order(Closed::Drained, 1)))]).expect("written");
        store.write(&[&nodes(&[3], Some(order(Closed::Down, 2)))]).expect("written");
        store.write(&[&nodes(&[1], None)]).expect("written");
        store.write(&[&flavors(&[1, 2], Some(given("su os")))]).expect("written");
        store.write(&[&flavors(&[2, 3], Some(given("ap")))]).expect("written");
        store.write(&[&flavors(&[3], None)]).expect("written");
        store.write(&[&variable("kill_grace", Some(set("7s")))]).expect("written");
        store.write(&[&variable("kill_grace", Some(set("8s")))]).expect("written");
        store.write(&[&variable("pids_max", Some(set("99")))]).expect("written");
        store.write(&[&variable("pids_max", None)]).expect("written");
        let changes: Vec<Record> = (0..10_005).map(|n| Record::Change(change(n))).collect();
        store.write(&changes.iter().collect::<Vec<_>>()).expect("written");
    }
    let store = Store::open(folder.path()).expect("the same store");
    let restored = store.restore().expect("restored");
    let closed = [(Nid(2), order(Closed::Drained, 1)), (Nid(3), order(Closed::Down, 2))];
    let flavors = [(Nid(1), given("su os")), (Nid(2), given("ap"))].into();
    assert_eq!(restored.orders, Orders { closed: closed.into(), flavors });
    assert_eq!(restored.variables, [("kill_grace".into(), set("8s"))].into());
    let reader = Reader::open(store.path()).expect("a reader");
    assert_eq!(reader.changes(2).expect("the log"), [change(10_003), change(10_004)]);
    let all = reader.changes(u32::MAX).expect("the log");
    assert_eq!((all.len(), &all[0]), (10_000, &change(5)), "the newest are kept");
}

#[test]
fn a_posting_that_has_ended_is_found_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = Store::open(folder.path()).expect("a store");
    store.write(&[&Record::Posted(Box::new(team(1, State::Ended)))]).expect("written");
    store.write(&[&Record::Posted(Box::new(team(2, State::Running)))]).expect("written");
    // The bytes are there, and are not its number.
    let mut named = team(3, State::Ended);
    named.posting.command = "\u{9}".repeat(16);
    store.write(&[&Record::Posted(Box::new(named))]).expect("written");
    let reader = Reader::open(store.path()).expect("a reader");
    let requested = |uid, number| reader.requested(uid, [number; 16]).expect("looked");
    assert_eq!(requested(1000, 1), Some(Apid(1)));
    assert_eq!(requested(1000, 3), Some(Apid(3)));
    // Another's, one that has not ended, and none.
    assert_eq!((requested(1001, 1), requested(1000, 2), requested(1000, 9)), (None, None, None));
}

/// An application that was adopted may have a number far above those that this psched has given.
#[test]
fn an_adopted_number_that_is_far_above_does_not_move_the_next() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = Store::open(folder.path()).expect("a store");
    let numbers = |store: &Store| {
        let restored = store.restore().expect("restored");
        (restored.next_apid, restored.numbers_below)
    };
    assert_eq!(numbers(&store), (1, 0));
    let far = 1 << 52;
    store.write(&[&Record::Adopted(Box::new(team(far, State::Running)))]).expect("written");
    assert_eq!(numbers(&store), (1, far + 1));
    store.write(&[&Record::Posted(Box::new(team(7, State::Ended)))]).expect("written");
    store.write(&[&Record::Adopted(Box::new(team(20, State::Running)))]).expect("written");
    drop(store);
    let store = Store::open(folder.path()).expect("a store");
    assert_eq!(numbers(&store), (21, far + 1));
}

#[test]
fn only_so_much_history_is_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = Store::open(folder.path()).expect("a store");
    store.history_max = 5;
    for apid in 1..=2_000 {
        store.write(&[&Record::Posted(Box::new(team(apid, State::Ended)))]).expect("written");
    }
    let kept = Reader::open(store.path()).expect("a reader").history(10_000).expect("history");
    assert!(kept.len() < 1_100, "{} are kept", kept.len());
    assert_eq!(kept[0].apid, Apid(2_000));
    assert_eq!(store.restore().expect("restored").next_apid, 2_001);
}

#[test]
fn a_store_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a folder");
    // One that is made, and one that is there and open to all.
    let open = folder.path().join("open");
    std::fs::create_dir(&open).expect("made");
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o755)).expect("set");
    let made = folder.path().join("a/b");
    for directory in [&made, &open] {
        let store = Store::open(directory).expect("a store");
        for entry in std::fs::read_dir(directory).expect("listed").flatten() {
            let mode = entry.metadata().expect("there").permissions().mode() & 0o777;
            assert_eq!(mode, 0o600, "{}", entry.path().display());
        }
        drop(store);
    }
    let mode = std::fs::metadata(&made).expect("there").permissions().mode() & 0o777;
    assert_eq!(mode, 0o700);
}

/// What is written to a file that has no name any more is lost: it is not said to be kept.
#[test]
fn a_store_that_was_removed_or_replaced_keeps_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = Store::open(folder.path()).expect("a store");
    store.write(&[]).expect("kept");
    let (path, away) = (store.path().to_path_buf(), folder.path().join("away"));
    std::fs::rename(&path, &away).expect("moved");
    let removed = store.write(&[]).expect_err("it has no name");
    assert!(matches!(removed, StoreError::Removed { .. }), "{removed}");
    std::fs::write(&path, "another one").expect("written");
    let replaced = store.write(&[]).expect_err("another has its name");
    assert!(matches!(replaced, StoreError::Removed { .. }), "{replaced}");
    std::fs::rename(&away, &path).expect("moved back");
    store.write(&[]).expect("kept");
}

#[test]
fn stores_that_cannot_be_used_say_why() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state");
    let store = Store::open(&path).expect("a store");
    let in_use = Store::open(&path).err().expect("refused");
    assert!(matches!(in_use, StoreError::InUse(_)), "{in_use}");
    let database = store.path().to_path_buf();
    drop(store);

    let newer = rusqlite::Connection::open(&database).expect("opened");
    newer.pragma_update(None, "user_version", 99).expect("set");
    drop(newer);
    let refused = Store::open(&path).err().expect("refused");
    assert!(matches!(refused, StoreError::Newer { found: 99, .. }), "{refused}");

    std::fs::write(&database, "this is no database, but longer than a page header is".repeat(100))
        .expect("written");
    let damaged = Store::open(&path).err().expect("refused");
    assert!(matches!(damaged, StoreError::Damaged { .. }), "{damaged}");

    let file = folder.path().join("file");
    std::fs::write(&file, "").expect("written");
    let no_folder = Store::open(&file).err().expect("refused");
    assert!(matches!(no_folder, StoreError::Directory { .. }), "{no_folder}");
}

/// A file system of eight megabytes, as root; None where it can't be made.
struct Small(tempfile::TempDir);

impl Small {
    fn new() -> Option<Small> {
        let folder = tempfile::tempdir().expect("a folder");
        let flags = nix::mount::MsFlags::empty();
        nix::mount::mount(Some("none"), folder.path(), Some("tmpfs"), flags, Some("size=8m"))
            .ok()?;
        Some(Small(folder))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = nix::mount::umount(self.0.path());
    }
}

#[test]
fn a_full_disk_refuses_postings_and_keeps_the_rest() {
    let Some(small) = Small::new() else {
        println!("skipped: a_full_disk_refuses_postings_and_keeps_the_rest: can't mount a tmpfs");
        return;
    };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("tokio");
    runtime.block_on(async {
        let store = Store::open(small.0.path()).expect("a store");
        let path = store.path().to_path_buf();
        let (back, mut outcomes) = tokio::sync::mpsc::unbounded_channel();
        let (commits, trouble, thread) = committer::start(store, back).expect("a thread");
        let commit = |record: Record, posting: Option<u64>, reply: u64| Commit {
            records: vec![record],
            releases: vec![Release::Effect(Effect::Accept {
                reply: ReplyId(reply),
                apid: Apid(reply),
            })],
            lazy: false,
            posting: posting.map(Apid),
        };
        let posting =
            |apid| commit(Record::Posted(Box::new(team(apid, State::Posted))), Some(apid), apid);
        let end = |apid| {
            commit(
                Record::Update { team: Box::new(team(apid, State::Ended)), lazy: false },
                None,
                apid + 1_000,
            )
        };
        let mut next = async || {
            let outcome = tokio::time::timeout(Duration::from_secs(20), outcomes.recv()).await;
            outcome.expect("an answer in time").expect("the thread lives")
        };
        commits.send(posting(1)).expect("sent");
        assert!(matches!(next().await[..], [Outcome::Release(_)]));

        let ballast = small.0.path().join("ballast");
        let fill = std::process::Command::new("dd")
            .arg("if=/dev/zero")
            .arg(format!("of={}", ballast.display()))
            .stderr(std::process::Stdio::null())
            .status();
        assert!(fill.is_ok());
        // Postings are refused with the reason; the end of one that is there waits for room.
        let mut number = 2;
        loop {
            commits.send(posting(number)).expect("sent");
            match &next().await[..] {
                [Outcome::Refused { apid, why, releases }] => {
                    assert_eq!((apid.0, releases.len()), (number, 1));
                    assert!(why.contains("full"), "{why}");
                    break;
                }
                [Outcome::Release(_)] => number += 1,
                _ => panic!("neither kept nor refused"),
            }
            assert!(number < 50_000, "the disk does not fill");
        }
        assert!(trouble.reason().is_some_and(|why| why.contains("full")));
        commits.send(end(1)).expect("sent");
        std::fs::remove_file(&ballast).expect("room again");
        let released = loop {
            let outcomes = next().await;
            if !outcomes.is_empty() {
                break outcomes;
            }
        };
        assert!(matches!(released[..], [Outcome::Release(_)]));
        assert!(trouble.reason().is_none());
        drop(commits);
        thread.join().expect("ends");
        let reader = Reader::open(&path).expect("a reader");
        let ended = reader.team(Apid(1)).expect("read").expect("there");
        assert_eq!(ended.state, State::Ended);
        assert!(reader.team(Apid(number)).expect("read").is_none());
    });
}

/// What SQLite finds with a statement.
fn count(path: &std::path::Path, statement: &str) -> i64 {
    let connection = rusqlite::Connection::open(path).expect("opened");
    connection.query_row(statement, [], |r| r.get(0)).expect("counted")
}

#[test]
fn events_go_with_their_application() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = Store::open(folder.path()).expect("a new store");
    let path = store.path().to_path_buf();
    store.history_max = 100;
    let line = |apid| Record::Log { apid: Apid(apid), at_ns: 5, name: "x", detail: "y".into() };
    store.write(&[&Record::Posted(Box::new(team(1, State::Running))), &line(1)]).expect("written");
    // The old one is there all the time.
    for first in (2..3_002).step_by(500) {
        let records: Vec<Record> = (first..first + 500)
            .flat_map(|apid| [Record::Posted(Box::new(team(apid, State::Ended))), line(apid)])
            .collect();
        store.write(&records.iter().collect::<Vec<_>>()).expect("written");
    }
    store.write(&[]).expect("written");
    let most = 1 + 100 + 500;
    let rows = |table| count(&path, &format!("SELECT count(*) FROM {table}"));
    assert!(rows("application") <= most && rows("event") <= most, "{}", rows("event"));
    assert_eq!(count(&path, "SELECT count(*) FROM event WHERE apid = 1"), 1);
    let orphans = "SELECT count(*) FROM event WHERE apid NOT IN (SELECT apid FROM application)";
    assert_eq!(count(&path, orphans), 0);
    // What a release before has left goes when the store is opened.
    drop(store);
    rusqlite::Connection::open(&path)
        .expect("opened")
        .execute("INSERT INTO event (apid, at_ns, name, detail) VALUES (9, 1, 'x', 'y')", [])
        .expect("written");
    drop(Store::open(folder.path()).expect("the same store"));
    assert_eq!(count(&path, orphans), 0);
}

#[test]
fn a_row_that_can_not_be_read_is_set_aside() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = Store::open(folder.path()).expect("a new store");
    let path = store.path().to_path_buf();
    let teams = [1, 2, 3, 4].map(|apid| Record::Posted(Box::new(team(apid, State::Running))));
    store.write(&teams.iter().collect::<Vec<_>>()).expect("written");
    let boot = Record::Boot(vec![Nid(0), Nid(1)], "boot".into());
    store.write(&[&boot]).expect("written");
    drop(store);
    let connection = rusqlite::Connection::open(&path).expect("opened");
    for damage in [
        "UPDATE application SET record = x'ffff00' WHERE apid = 2",
        "UPDATE application SET record = 'text' WHERE apid = 3",
        "UPDATE application SET record = (SELECT record FROM application WHERE apid = 1) WHERE apid = 4",
        "UPDATE boot SET boot_id = x'00ff' WHERE nid = 1",
    ] {
        connection.execute(damage, []).expect("damaged");
    }
    drop(connection);
    for _ in 0..2 {
        let store = Store::open(folder.path()).expect("the same store");
        let restored = store.restore().expect("restored all the same");
        assert_eq!(restored.teams.iter().map(|t| t.apid.0).collect::<Vec<_>>(), [1]);
        // No number is given twice.
        assert_eq!((restored.next_apid, restored.boots.len()), (5, 1));
        assert_eq!(restored.unreadable, [2, 3, 4].map(Apid));
    }
    // One that its nodes have is put on record again.
    let mut store = Store::open(folder.path()).expect("the same store");
    store.write(&[&Record::Posted(Box::new(team(3, State::Running)))]).expect("written");
    assert_eq!(store.restore().expect("restored").unreadable, [2, 4].map(Apid));
    let kept = "SELECT count(*) FROM set_aside WHERE length(why) > 5 AND record IS NOT NULL";
    assert_eq!(count(&path, kept), 3);
}

#[test]
fn the_log_is_short_again_when_its_reader_has_gone() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = Store::open(folder.path()).expect("a new store");
    let path = store.path().to_path_buf();
    let log = folder.path().join("psched.db-wal");
    let length = || std::fs::metadata(&log).map_or(0, |m| m.len());
    let before = length();
    let mut write = |number: usize| {
        let mut long = team(1, State::Posted);
        long.posting.command = number.to_string().repeat(400_000);
        store.write(&[&Record::Posted(Box::new(long))]).expect("written");
    };
    let reader = rusqlite::Connection::open(&path).expect("opened");
    reader.execute_batch("BEGIN; SELECT count(*) FROM application;").expect("reads");
    reader.query_row("SELECT count(*) FROM application", [], |_| Ok(())).expect("reads");
    (10..16).for_each(&mut write);
    assert!(length() > 2 * before, "{}", length());
    reader.execute_batch("COMMIT").expect("ends");
    (16..20).for_each(&mut write);
    assert!(length() <= 3 * before, "{}, and before {before}", length());
}

/// Whoever makes an application's log grow makes a number grow.
#[test]
fn an_event_log_has_a_bound() {
    let folder = tempfile::tempdir().expect("a folder");
    let log =
        |name, detail: &str| Record::Log { apid: Apid(7), at_ns: 5, name, detail: detail.into() };
    let write = |store: &mut Store, count| {
        let records: Vec<Record> = (0..count).map(|_| log("signal", "once more")).collect();
        store.write(&records.iter().collect::<Vec<_>>()).expect("written");
    };
    let mut store = Store::open(folder.path()).expect("opened");
    let path = store.path().to_path_buf();
    let lines = || Reader::open(&path).expect("opened").events(Apid(7)).expect("read");
    store.write(&[&Record::Posted(Box::new(team(7, State::Running)))]).expect("written");
    write(&mut store, 990);
    write(&mut store, 20);
    assert_eq!(lines().len(), 1_001);
    assert_eq!(lines()[1_000].detail, "10 further events are not kept (the last: signal)");
    // Another life goes on counting.
    drop(store);
    let mut store = Store::open(folder.path()).expect("opened");
    write(&mut store, 5);
    store.write(&[&log("ended", "status 0")]).expect("written");
    let all = lines();
    assert_eq!(all.len(), 1_002);
    assert_eq!(all[1_000].detail, "15 further events are not kept (the last: signal)");
    assert_eq!(all[1_001].name, "ended");
}

/// The monotonic clock begins anew with each boot: what a ticket has left does not.
#[test]
fn a_ticket_has_the_rest_of_its_time_after_another_boot() {
    let clocks = |boot: &str, mono_s: u64, wall_s: u64| records::Clocks {
        boot_id: boot.into(),
        mono_ns: mono_s * 1_000_000_000,
        wall_ns: wall_s * 1_000_000_000,
    };
    let placed = |until_s: u64| Apteam {
        ticket_until_ns: until_s * 1_000_000_000,
        ..team(7, State::Placed)
    };
    // Up for ten days, with a minute to go.
    let record = records::encode_at(&placed(864_060), &clocks("one", 864_000, 1_000_000));
    let until = |at: records::Clocks| {
        records::decode_at(&record, &at).expect("a record").ticket_until_ns / 1_000_000_000
    };
    assert_eq!(until(clocks("one", 864_001, 1_000_001)), 864_060);
    assert_eq!(until(clocks("another", 20, 1_000_040)), 40);
    assert_eq!(until(clocks("another", 20, 1_000_100)), 20, "it has lapsed");
    assert_eq!(until(clocks("another", 20, 999_000)), 80, "a clock that was set back");
    // A small one of long ago is no long one of today.
    let record = records::encode_at(&placed(0), &clocks("one", 50, 1_000_000));
    let at = clocks("another", 20, 2_000_000);
    let until = records::decode_at(&record, &at).expect("a record").ticket_until_ns;
    assert_eq!(until, 20_000_000_000);
    // What went wrong in an earlier boot did so before all that is heard of in this one.
    let doomed = Some(Decisive { at_ns: 864_000_000_000_000, cause: Cause::FrontGone });
    let end = Some(HostEnd { first: doomed.clone(), ..HostEnd::default() });
    let ends = Apteam { doomed, end, ..placed(0) };
    let record = records::encode_at(&ends, &clocks("one", 864_000, 1_000_000));
    let firsts = |boot| {
        let read = records::decode_at(&record, &clocks(boot, 20, 1_000_040)).expect("a record");
        [read.doomed, read.end.expect("an end").first].map(|first| first.expect("one").at_ns)
    };
    assert_eq!(firsts("one"), [864_000_000_000_000; 2]);
    assert_eq!(firsts("another"), [0; 2]);
}

/// psched does not stay without its loop: systemd restarts it.
#[tokio::test]
async fn the_end_of_the_loop_is_the_end_of_psched() {
    let mut core = tokio::spawn(async { panic!("a fault of the loop, for this test") });
    let why = super::over(std::future::pending(), &mut core).await;
    assert_eq!(why, super::Why::Loop);
}
