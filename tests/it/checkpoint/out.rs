//! Memory of a gang that stands goes out by a checkpoint, where there is no swap, and comes in for its turn.

use super::whole::{Rig, numbers};
use crate::support::criu::criu;
use crate::support::*;
use psched::node::checkpoint::criu::Criu;
use std::path::Path;
use std::time::{Duration, Instant};

/// One gang may be resident on a node with so many processors; who has had a second stands for who has had none.
fn config(processors: u32) -> String {
    format!(
        "nodes:\n  - {{ nids: 0, processors: {processors}, flavors: [su, os, ap] }}\n\
         variables: {{ application.level.bound: 1s, application.level.stickiness: 0s, application.max_resident: 1, kill_grace: 1s }}\n"
    )
}

/// An instance whose memory goes out by checkpoints into this folder; none where it goes elsewhere, or nowhere.
fn rig(test: &str, shelf: &Path, processors: u32) -> Option<Rig> {
    let rig = Rig::that_rolls_out(&criu(test)?, &config(processors), shelf);
    goes_by_checkpoint(test, &rig).then_some(rig)
}

/// Whether memory goes out by checkpoint here: to swap it goes rather.
fn goes_by_checkpoint(test: &str, rig: &Rig) -> bool {
    let nodes = said(rig, "-n -v");
    let by_checkpoint = nodes.contains("by checkpoint");
    if !by_checkpoint {
        skip(test, &format!("memory does not go out by checkpoint here:\n{nodes}"));
    }
    by_checkpoint
}

/// What apstat says.
fn said(rig: &Rig, options: &str) -> String {
    let run = run(&mut rig.command("apstat", options)).expect(0);
    String::from_utf8_lossy(&run.stdout).into_owned()
}

/// A folder that is root's alone, in memory: a disk that other things have filled has no room for images.
fn shelf() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("out").tempdir_in("/dev/shm").expect("made")
}

/// What is in there of applications.
fn on_shelf(shelf: &Path) -> Vec<String> {
    let names = listing(&shelf.join("apinit-0")).into_iter();
    names.map(|name| name.to_string_lossy().into_owned()).collect()
}

/// The one that counts has been running for long enough to stand for another; its number.
#[track_caller]
fn has_had_its_time(rig: &Rig) -> u64 {
    let apid = rig.running();
    // (It runs alone: all time is its own.)
    let since = Instant::now();
    eventually(BOUND, "it has had its time", || since.elapsed() > Duration::from_millis(1_500));
    apid
}

/// Another comes, which has the place of the one that runs, and that one is out.
#[track_caller]
fn goes_out(rig: &Rig, shelf: &Path, processors: u32) -> (u64, Running) {
    let apid = has_had_its_time(rig);
    let line = format!("-q -n {processors} sleep 1000");
    let second = Running::start(&mut rig.command("aprun", &line));
    eventually(BOUND, "it is out", || {
        on_shelf(shelf) == [format!("{apid}.1")] && is_out(rig, apid)
    });
    (apid, second)
}

/// The one that goes out counts up to a number.
#[track_caller]
fn with_one_out(rig: &Rig, shelf: &Path, to: u32) -> (Running, u64, Running) {
    let first = rig.counts(to, "first");
    let (apid, second) = goes_out(rig, shelf, 1);
    (first, apid, second)
}

fn is_out(rig: &Rig, apid: u64) -> bool {
    said(rig, &format!("--events {apid}")).contains("in a checkpoint")
}

#[test]
fn it_goes_out_and_comes_in_and_nobody_notices() {
    let test = "checkpoint::out::it_goes_out_and_comes_in_and_nobody_notices";
    let shelf = shelf();
    let Some(mut rig) = rig(test, shelf.path(), 1) else { return };
    let (first, apid, second) = with_one_out(&rig, shelf.path(), 400);
    let why = said(&rig, &format!("--why {apid}"));
    assert!(why.contains("its memory goes into a checkpoint ("), "{why}");
    assert_eq!(pes_of(&rig, apid), [] as [i32; 0]);

    // The next lives of psched and of apinit find it as it is.
    rig.hand.kill_psched();
    rig.hand.kill_apinit(0);
    rig.hand.start_psched();
    rig.hand.start_apinit("0", None);
    rig.hand.wait_for("running", 2);
    assert_eq!(on_shelf(shelf.path()), [format!("{apid}.1")]);
    second.signal(15);
    second.wait(BOUND).expect(128 + 15);
    first.wait(BOUND).expect(3);
    assert_eq!(rig.read("first"), numbers(400));
    assert_eq!(on_shelf(shelf.path()), [] as [String; 0]);
}

/// One whose PEs have connections to what serves them PMI or PMIx by a port: that goes out and comes in with them.
#[test]
fn a_program_that_met_over_tcp_goes_out_and_comes_in() {
    let test = "checkpoint::out::a_program_that_met_over_tcp_goes_out_and_comes_in";
    let shelf = shelf();
    let Some(rig) = rig(test, shelf.path(), 2) else { return };
    // (A file of its own for each of them.)
    let open = mpi::open(&format!("{test}-open"), "laps");
    let (Some(mpich), Some(open)) = (mpi::program(test, "laps"), open) else { return };
    for (name, options, laps) in [("port", "--pmi=port", &mpich), ("pmix", "", &open)] {
        let goal = rig.at(&format!("{name}.goal"));
        let line = format!("-n 2 {options} {} {}", laps.display(), goal.display());
        let mut command = rig.writes_to("aprun", &line, name);
        let first = Running::start(command.env("UCX_TLS", "posix,self"));
        let (apid, second) = goes_out(&rig, shelf.path(), 2);
        assert_eq!(pes_of(&rig, apid), [] as [i32; 0], "{name}");
        std::fs::write(&goal, "").expect("written");
        second.signal(15);
        second.wait(BOUND).expect(128 + 15);
        first.wait(BOUND).expect(0);
        let text = rig.read(name);
        assert!(text.ends_with("ended together, 0 words wrong\n"), "{name}: {text}");
    }
}

/// The processes of its PEs.
fn pes_of(rig: &Rig, apid: u64) -> Vec<i32> {
    let runtime = rig.hand.folder().join(format!("apps-0/{apid}.1"));
    let groups = std::fs::read_to_string(runtime.join("groups")).expect("kept");
    let all = std::fs::read_to_string(Path::new(groups.trim_end()).join("0/cgroup.procs"));
    all.expect("its group").lines().filter_map(|pid| pid.parse().ok()).collect()
}

/// It ends as any other: with its signal, at once where it has no grace, else when it has heard of it.
#[test]
fn one_that_is_out_can_be_ended() {
    let test = "checkpoint::out::one_that_is_out_can_be_ended";
    let shelf = shelf();
    let Some(rig) = rig(test, shelf.path(), 1) else { return };
    for (signal, status) in [(9, 128 + 9), (15, 128 + 15)] {
        let (first, apid, second) = with_one_out(&rig, shelf.path(), 100_000);
        let line = format!("-s {signal} {apid}");
        run(&mut rig.command("apkill", &line)).expect(0);
        let ended = first.wait(BOUND).expect(status);
        assert!(!ended.stderr.contains("lost"), "{}", ended.stderr);
        // (For the turn in which it heard of it the other may have gone.)
        let left = on_shelf(shelf.path());
        assert!(!left.contains(&format!("{apid}.1")), "signal {signal}: {left:?}");
        second.signal(15);
        second.wait(BOUND).expect(128 + 15);
    }
}

/// In the midst of that, too: nobody tries to bring back what is not wanted, and nothing of it stays.
#[test]
fn one_that_comes_in_can_be_ended() {
    let test = "checkpoint::out::one_that_comes_in_can_be_ended";
    let shelf = shelf();
    // (What is in memory may not be executed, in some places.)
    let folder = tempfile::tempdir().expect("a folder");
    let Some(real) = criu(test) else { return };
    // One that takes its time, once it is asked to; and says when it has begun. It is written by another process, so
    // that no fork of this one holds it open.
    let (slow, at) = (folder.path().join("slow"), folder.path().join("criu"));
    let [shown, real] = [&slow, real.program()].map(|path| path.display().to_string());
    let text = format!(
        "#!/bin/sh\n[ -e {shown} ] && echo >>{shown}.begun && sleep 2\nexec {real} \"$@\"\n"
    );
    let mut put = std::process::Command::new("sh");
    put.args(["-c", "printf %s \"$1\" >$0 && chmod 755 $0"]).arg(&at).arg(&text);
    assert!(put.status().expect("sh").success());
    let slow_one = Criu::find(Some(&at)).expect("it is there");
    let rig = Rig::that_rolls_out(&slow_one, &config(1), shelf.path());
    if !goes_by_checkpoint(test, &rig) {
        return;
    }
    let (first, apid, second) = with_one_out(&rig, shelf.path(), 100_000);
    std::fs::write(&slow, "").expect("written");
    second.signal(15);
    second.wait(BOUND).expect(128 + 15);
    let begun = folder.path().join("slow.begun");
    eventually(BOUND, "it comes in", || begun.exists());
    run(&mut rig.command("apkill", &format!("-s 9 {apid}"))).expect(0);
    first.wait(BOUND).expect(128 + 9);
    assert_eq!(on_shelf(shelf.path()), [] as [String; 0]);
    let times = std::fs::read_to_string(&begun).expect("there").lines().count();
    assert_eq!(times, 1, "it was tried again");
}

#[test]
fn one_that_is_out_is_checkpointed_and_restarted() {
    let test = "checkpoint::out::one_that_is_out_is_checkpointed_and_restarted";
    let shelf = shelf();
    let Some(rig) = rig(test, shelf.path(), 1) else { return };
    let (first, apid, second) = with_one_out(&rig, shelf.path(), 400);
    rig.cpr(&format!("-c kept -p {apid} -k")).expect(0);
    first.wait(BOUND).expect(128 + 9);
    assert_eq!(on_shelf(shelf.path()), [] as [String; 0]);
    second.signal(15);
    second.wait(BOUND).expect(128 + 15);
    let before = rig.read("first");
    let back = Running::start(&mut rig.writes_to("cpr", "-r kept", "rest"));
    back.wait(BOUND).expect(3);
    assert_eq!(before + &rig.read("rest"), numbers(400));
}

/// What CRIU would not bring back it says, and it is said once more by whoever waits for it.
#[test]
fn one_whose_file_has_changed_ends_and_says_why() {
    let test = "checkpoint::out::one_whose_file_has_changed_ends_and_says_why";
    let shelf = shelf();
    let Some(rig) = rig(test, shelf.path(), 1) else { return };
    std::fs::write(rig.at("data"), "all of it\n").expect("written");
    let script = "exec 7<data; i=0; while :; do i=$((i+1)); echo $i; sleep 0.0172; done";
    let first = Running::start(rig.writes_to("aprun", "-q sh -c", "first").arg(script));
    let (apid, second) = goes_out(&rig, shelf.path(), 1);
    std::fs::write(rig.at("data"), "less\n").expect("written");
    second.signal(15);
    second.wait(BOUND).expect(128 + 15);
    let ended = first.wait(BOUND).expect(125);
    assert!(ended.stderr.contains("can't be restored"), "{}", ended.stderr);
    let said = said(&rig, &format!("--events {apid}"));
    assert!(said.contains("can't be restored"), "{said}");
    assert_eq!(on_shelf(shelf.path()), [] as [String; 0]);
}

/// Who is at the other end would find it broken.
#[test]
fn one_with_a_connection_to_outside_stays() {
    let test = "checkpoint::out::one_with_a_connection_to_outside_stays";
    let shelf = shelf();
    let Some(rig) = rig(test, shelf.path(), 1) else { return };
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let port = listener.local_addr().expect("known").port();
    let script = format!(
        "exec 7<>/dev/tcp/127.0.0.1/{port}; i=0; while :; do i=$((i+1)); echo $i; sleep 0.0172; done"
    );
    let first = Running::start(rig.writes_to("aprun", "-q bash -c", "first").arg(script));
    let (_peer, _) = listener.accept().expect("it connects");
    let apid = has_had_its_time(&rig);
    let second = Running::start(&mut rig.command("aprun", "-q sleep 1000"));
    eventually(BOUND, "it stays", || {
        said(&rig, &format!("--events {apid}")).contains("not-rolled-out")
    });
    let said = said(&rig, &format!("--events {apid}"));
    assert!(said.contains(&format!("it is connected to 127.0.0.1:{port}")), "{said}");
    // It runs on when it has its turn.
    second.signal(15);
    second.wait(BOUND).expect(128 + 15);
    rig.goes_on("first");
    first.signal(15);
    first.wait(BOUND).expect(128 + 15);
}

/// At any moment either its images count or its processes do.
#[test]
fn whenever_its_apinit_is_killed_nothing_is_lost() {
    let test = "checkpoint::out::whenever_its_apinit_is_killed_nothing_is_lost";
    let shelf = shelf();
    let Some(mut rig) = rig(test, shelf.path(), 1) else { return };
    for late in [0, 10, 25, 40, 60, 90] {
        let first = rig.counts(400, "first");
        let apid = has_had_its_time(&rig);
        let runtime = rig.hand.folder().join(format!("apps-0/{apid}.1"));
        let second = Running::start(&mut rig.command("aprun", "-q sleep 1000"));
        let begun = || runtime.join("dumped").exists() || runtime.join("away").exists();
        at_once(begun, "it is being taken out");
        std::thread::sleep(Duration::from_millis(late));
        rig.hand.kill_apinit(0);
        rig.hand.start_apinit("0", None);
        rig.hand.wait_for("running", 2);
        second.signal(15);
        at_once(
            || rig.read("first").lines().count() >= 399 || !runtime.join("away").exists(),
            "it comes",
        );
        std::thread::sleep(Duration::from_millis(late));
        rig.hand.kill_apinit(0);
        rig.hand.start_apinit("0", None);
        second.wait(BOUND).expect(128 + 15);
        first.wait(BOUND).expect(3);
        assert_eq!(rig.read("first"), numbers(400), "{late} ms");
        eventually(BOUND, "nothing is left", || on_shelf(shelf.path()).is_empty());
    }
}

/// Awaits what lasts for a moment only.
#[track_caller]
fn at_once(is: impl Fn() -> bool, what: &str) {
    let until = Instant::now() + BOUND;
    while !is() {
        assert!(Instant::now() < until, "not within {BOUND:?}: {what}");
        std::thread::yield_now();
    }
}

/// An MPI program's PEs share memory and wait for each other.
#[test]
fn an_mpi_program_goes_out_and_has_the_right_answer() {
    let test = "checkpoint::out::an_mpi_program_goes_out_and_has_the_right_answer";
    let Some(laps) = crate::support::mpi::program(test, "laps") else { return };
    let shelf = shelf();
    let Some(rig) = rig(test, shelf.path(), 2) else { return };
    let (program, goal) = (laps.to_str().expect("text"), rig.at("goal"));
    let line = format!("-q -n 2 {program} {}", goal.display());
    let mut command = rig.writes_to("aprun", &line, "first");
    command.env("UCX_TLS", "posix,self");
    let first = Running::start(&mut command);
    for _ in 0..2 {
        rig.goes_on("first");
        let (_, second) = goes_out(&rig, shelf.path(), 2);
        second.signal(15);
        second.wait(BOUND).expect(128 + 15);
    }
    rig.goes_on("first");
    std::fs::write(goal, "").expect("written");
    first.wait(BOUND).expect(0);
    let written = rig.read("first");
    assert!(written.contains("ended together") && written.contains(", 0 words wrong"), "{written}");
}
