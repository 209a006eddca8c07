//! Memory of a gang that stands goes out by a checkpoint, where there is no swap, and comes in for its turn.

use super::whole::{Rig, numbers};
use crate::support::criu::criu;
use crate::support::*;
use std::path::Path;

/// One gang may be resident; who has had three seconds stands for who has had none.
const ONE: &str = "nodes:\n  - { nids: 0, processors: 1, flavors: [su, os, ap] }\n\
                   variables: { application.order: least-attained-service, application.level.bound: 3s, \
                   application.level.stickiness: 0s, application.max_resident: 1, kill_grace: 1s }\n";

/// An instance whose memory goes out by checkpoints into this folder; none where it goes to swap.
fn rig(test: &str, shelf: &Path) -> Option<Rig> {
    let rig = Rig::that_rolls_out(&criu(test)?, ONE, shelf);
    let by_checkpoint = said(&rig, "-n -v").contains("by checkpoint");
    if !by_checkpoint {
        skip(test, "there is swap here: memory goes there");
    }
    by_checkpoint.then_some(rig)
}

/// What apstat says.
fn said(rig: &Rig, options: &str) -> String {
    let run = run(&mut rig.command("apstat", options)).expect(0);
    String::from_utf8_lossy(&run.stdout).into_owned()
}

/// A folder that is root's alone.
fn shelf() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("out").tempdir_in("/tmp").expect("made")
}

/// What is in there of applications.
fn on_shelf(shelf: &Path) -> Vec<String> {
    let names = listing(&shelf.join("apinit-0")).into_iter();
    names.map(|name| name.to_string_lossy().into_owned()).collect()
}

/// The first counts, and stands; the second has its place, and the first is out.
fn with_one_out(rig: &Rig, shelf: &Path, to: u32) -> (Running, u64, Running) {
    let first = rig.counts(to, "first");
    let apid = rig.running();
    rig.goes_on("first");
    eventually(BOUND, "it has had its time", || rig.read("first").lines().count() > 200);
    let second = Running::start(&mut rig.command("aprun", "-q sleep 1000"));
    eventually(BOUND, "it is out", || {
        on_shelf(shelf) == [format!("{apid}.1")] && is_out(rig, apid)
    });
    (first, apid, second)
}

fn is_out(rig: &Rig, apid: u64) -> bool {
    said(rig, &format!("--events {apid}")).contains("in a checkpoint")
}

#[test]
fn it_goes_out_and_comes_in_and_nobody_notices() {
    let test = "checkpoint::out::it_goes_out_and_comes_in_and_nobody_notices";
    let shelf = shelf();
    let Some(mut rig) = rig(test, shelf.path()) else { return };
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

/// The processes of its PEs.
fn pes_of(rig: &Rig, apid: u64) -> Vec<i32> {
    let runtime = rig.hand.folder().join(format!("apps-0/{apid}.1"));
    let groups = std::fs::read_to_string(runtime.join("groups")).expect("kept");
    let all = std::fs::read_to_string(Path::new(groups.trim_end()).join("0/cgroup.procs"));
    all.expect("its group").lines().filter_map(|pid| pid.parse().ok()).collect()
}
