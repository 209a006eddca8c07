//! `cpr -r` on a real psched and apinit: who may, what is refused, and that nothing is left of one whose cpr
//! goes. (That processes are restored is tested where there is a CRIU.)

use crate::support::hand::Hand;
use crate::support::users::ANNA;
use crate::support::*;
use psched::apteam::choice::Choice;
use psched::apteam::launch::Launch;
use psched::apteam::posting::{Owner, Posting};
use psched::apteam::shape::Shape;
use psched::apteam::{Apid, Incarnation};
use psched::checkpoint::{HostImages, Kind, Manifest, Recovery, SealKey, example};
use psched::node::checkpoint::dir::{KEY_FILE, Partial, Spot, load_key};
use psched::rpc::{connect, pb};
use std::io::Write;
use std::os::fd::AsFd;
use std::time::Duration;

const CONFIG: &str = "nodes:\n  - { nids: 0, processors: 2, flavors: [su, os, ap] }\n";
/// Goes on until there is a file.
const UNTIL_TOLD: &str = "while ! [ -e $END ]; do sleep 0.01; done";
const AGAIN: &str = "echo again $WHO; exit 3";

fn start() -> Hand {
    Hand::start(CONFIG, &[("0", None)])
}

fn key_of(hand: &Hand) -> SealKey {
    let path = hand.folder().join("state").join(KEY_FILE);
    load_key(&path).expect("readable").expect("psched has made it")
}

fn store_of(hand: &Hand) -> String {
    let runtime = tokio::runtime::Runtime::new().expect("made");
    runtime.block_on(async {
        let channel = connect::connect(&hand.socket()).await.expect("it answers");
        let mut client = pb::psched_client::PschedClient::new(channel);
        let reply = client.list(pb::ListRequest::default()).await.expect("an answer");
        reply.into_inner().store_id
    })
}

/// Of two PEs on the node of this machine, ours.
fn manifest(hand: &Hand) -> Manifest {
    let owner = Owner {
        uid: nix::unistd::getuid().as_raw(),
        gid: nix::unistd::getgid().as_raw(),
        groups: Vec::new(),
        name: "me".into(),
        terminal: false,
    };
    let shape = Shape { width: 2, depth: 1, per_node: Some(2) };
    let mut manifest = example();
    if let Kind::Running { places, hosts, .. } = &mut manifest.kind {
        let mut place = places.0[0].clone();
        (place.processors, place.pes) = (vec![0, 1], 2);
        *hosts = vec![HostImages { nids: vec![place.nid], ..hosts[0].clone() }];
        *places = psched::apteam::place::PlacementList([place].into());
    }
    let posting = Posting { command: format!("sh -c {AGAIN}"), ..Posting::plain([1; 16], shape) };
    manifest.recovery = Recovery { owner, posting, ..manifest.recovery };
    manifest.made.store = store_of(hand);
    manifest
}

/// The same of one that waited, which was this application.
fn waiting(hand: &Hand, apid: u64) -> Manifest {
    let mut manifest = manifest(hand);
    (manifest.kind, manifest.files) = (Kind::Waiting, Vec::new());
    manifest.recovery.apid = Apid(apid);
    manifest.recovery.incarnation = Incarnation(0);
    manifest.recovery.posting.shape = Shape { width: 1, depth: 2, per_node: None };
    let arguments = ["sh", "-c", AGAIN].map(|word| word.as_bytes().to_vec()).into();
    manifest.launch = Some(Launch {
        executable: b"/bin/sh".to_vec(),
        arguments,
        environment: vec![b"WHO=me".to_vec()],
        directory: b"/".to_vec(),
        umask: 0o022,
        ..Launch::default()
    });
    manifest
}

/// As a checkpoint in the folder of the daemons.
fn made(hand: &Hand, name: &str, manifest: Manifest, key: &SealKey) {
    let partial = Partial::create(Spot::of(&hand.folder().join(name)).expect("a place"));
    let partial = partial.expect("made");
    if !manifest.files.is_empty() {
        let folder = partial.dir().folder("host-0").expect("made");
        for (folder, name, bytes) in
            [(partial.as_fd(), "core-1.img", "core"), (folder.as_fd(), "pages-1.img", "pages")]
        {
            use rustix::fs::{Mode, OFlags, openat};
            let create = OFlags::WRONLY | OFlags::CREATE;
            let file = openat(folder, name, create, Mode::RUSR).expect("made");
            std::fs::File::from(file).write_all(bytes.as_bytes()).expect("written");
        }
    }
    partial.dir().seal(manifest, key, None).expect("sealed");
    partial.publish(false).expect("published");
}

fn cpr(hand: &Hand, line: &str) -> std::process::Command {
    let mut command = hand.command("cpr", words(line));
    command.current_dir(hand.folder());
    command
}

fn events(hand: &Hand, apid: u64) -> Vec<String> {
    let rows = hand.apstat(&format!("--events {apid}"));
    let rows = rows["events"].as_array().expect("a list").clone();
    rows.iter().map(|row| row["event"].as_str().expect("a name").to_owned()).collect()
}

/// Somebody has all processors until there is a file.
fn holder(hand: &Hand) -> Running {
    let line = words("-n 2").chain(["sh", "-c", UNTIL_TOLD]);
    let mut command = hand.command("aprun", line);
    let running = Running::start(command.env("END", hand.folder().join("end")));
    hand.wait_for("running", 1);
    running
}

fn let_go(hand: &Hand, holder: Running) {
    std::fs::write(hand.folder().join("end"), "").expect("written");
    holder.wait(BOUND).expect(0);
}

#[test]
fn one_that_waited_waits_again_under_its_number() {
    let hand = start();
    let holder = holder(&hand);
    // It waits, and its aprun goes, as after a checkpoint that ends it.
    let waits = Running::start(&mut hand.command("aprun", ["-n1", "-d2", "sh", "-c", AGAIN]));
    assert_eq!(hand.wait_for("posted", 1), [2]);
    waits.signal(9);
    waits.wait(BOUND).expect(137);
    hand.wait_for("posted", 0);
    made(&hand, "queued", waiting(&hand, 2), &key_of(&hand));
    let again = Running::start(&mut cpr(&hand, "-r queued"));
    assert_eq!(hand.wait_for("posted", 1), [2]);
    // psched knows it by its records too.
    let_go(&hand, holder);
    let run = again.wait(BOUND).expect(3).says("cpr: application 2 is posted again\n");
    assert_eq!(run.out(), "again me\n");
    assert!(run.stderr.contains("Application 2 exit codes: 3\n"), "{}", run.stderr);
    assert_eq!(
        events(&hand, 2),
        ["posted", "ended", "posted", "placed", "launched", "running", "ended"]
    );
    // By now the number is that of one which has run.
    let run = run_again(&hand, "queued", 3).says("cpr: application 2 is restarted as 3\n");
    assert_eq!(run.out(), "again me\n");
    // Nor is it ours where another store gave it.
    let mut other = waiting(&hand, 1);
    other.made.store = "0123456789abcdef".into();
    made(&hand, "other", other, &key_of(&hand));
    run_again(&hand, "other --output o.%a", 3).says("cpr: application 1 is restarted as 4\n");
    let written = std::fs::read_to_string(hand.folder().join("o.4")).expect("made");
    assert_eq!(written, "again me\n");
    hand.end();
}

fn run_again(hand: &Hand, line: &str, status: i32) -> Run {
    run(&mut cpr(hand, &format!("-r {line}"))).expect(status)
}

#[test]
fn what_can_not_be_restarted_is_refused_with_the_reason() {
    let hand = start();
    let key = key_of(&hand);
    let make = |name: &str, change: &dyn Fn(&mut Manifest)| {
        let mut manifest = manifest(&hand);
        change(&mut manifest);
        made(&hand, name, manifest, &key);
    };
    made(&hand, "foreign", manifest(&hand), &SealKey([3; 32]));
    make("damaged", &|_| {});
    let path = hand.folder().join("damaged/manifest.json");
    let text = std::fs::read_to_string(&path).expect("there");
    std::fs::write(&path, text.replace("\"width\": 2", "\"width\": 1")).expect("written");
    make("less", &|_| {});
    std::fs::remove_file(hand.folder().join("less/core-1.img")).expect("there");
    make("hers", &|manifest| manifest.recovery.owner.uid = ANNA.uid);
    make("club", &|manifest| manifest.recovery.owner.groups = vec![4_711]);
    make("over", &|manifest| {
        manifest.recovery.posting.time_limit = Some(Duration::from_secs(10));
        manifest.recovery.run = Duration::from_secs(10);
    });
    make("elsewhere", &|manifest| {
        manifest.recovery.posting.choice = Choice::default().only("7").expect("a list");
    });
    for (name, said) in [
        ("none", "cpr: none: there is no such folder"),
        ("foreign", "cpr: foreign: it is not sealed by the key of this machine"),
        ("damaged", "cpr: damaged: manifest.json is damaged"),
        ("less", "cpr: less: it is incomplete: core-1.img is missing"),
        ("hers", "cpr: hers: the application belongs to user 61301, and you are user"),
        ("club", "cpr: club: "),
        ("over", "cpr: over: it can't be restarted: it has reached its time limit of 10 s"),
        ("elsewhere", "cpr: elsewhere: -L 7 names no node of this machine"),
    ] {
        run_again(&hand, name, 125).says(said);
    }
    let never = hand.apstat("--history 10");
    assert_eq!(never["history"].as_array().map(Vec::len), Some(0), "{never}");
    hand.end();
}

/// It waits, with psched killed and started again meanwhile, until its cpr goes.
#[test]
fn one_that_ran_is_locked_and_goes_with_its_cpr() {
    let mut hand = start();
    let holder = holder(&hand);
    made(&hand, "tonight", manifest(&hand), &key_of(&hand));
    let waits = Running::start(&mut cpr(&hand, "-r tonight"));
    assert_eq!(hand.wait_for("posted", 1), [2]);
    run_again(&hand, "tonight", 125).says("another process is writing, restarting or removing it");
    hand.kill_psched();
    hand.start_psched();
    let row = hand.apstat("-A 2");
    assert_eq!((&row["state"], &row["restarted from"]), (&"posted".into(), &12.into()), "{row}");
    waits.signal(9);
    waits.wait(BOUND).expect(137);
    hand.wait_for("posted", 0);
    assert_eq!(events(&hand, 2), ["created", "managed", "ended"]);
    // Nor is the folder held any more: another cpr may.
    let waits = Running::start(&mut cpr(&hand, "-r tonight"));
    assert_eq!(hand.wait_for("posted", 1), [3]);
    waits.signal(15);
    // (It may not have heard its number yet.)
    waits.wait(BOUND).expect(143);
    let_go(&hand, holder);
    hand.end();
}
