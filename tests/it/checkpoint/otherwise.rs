//! Applications are to be restarted where something is otherwise than it was.

use super::whole::Rig;
use crate::support::criu::criu;
use crate::support::*;
use std::path::Path;

const NODES: &str =
    "nodes:\n  - { nids: 0-3, processors: 1, memory: 100M, flavors: [su, os, ap] }\n";

/// A checkpoint of one that counts, or that has done `before`: it has ended.
#[track_caller]
fn taken_off(rig: &Rig, options: &str, before: &str) {
    let script = format!(
        "{before}; i=0; while [ $i -lt 100000 ]; do i=$((i+1)); echo $i; sleep 0.0173; done"
    );
    let line = format!("-q {options} sh -c");
    let aprun = Running::start(rig.writes_to("aprun", &line, "first").arg(script));
    let apid = rig.running();
    rig.goes_on("first");
    rig.cpr(&format!("-c tonight -k -p {apid}")).expect(0);
    aprun.wait(BOUND).expect(128 + 9);
}

#[test]
fn a_file_that_is_gone_is_named() {
    let test = "checkpoint::otherwise::a_file_that_is_gone_is_named";
    let Some(criu) = criu(test) else { return };
    let rig = Rig::with(&criu, NODES);
    let file = rig.at("input");
    std::fs::write(&file, "all of it\n").expect("written");
    taken_off(&rig, "", &format!("exec 8<{}", file.display()));
    let aside = rig.at("aside");
    std::fs::rename(&file, &aside).expect("moved");
    let said = file.display().to_string();
    rig.cpr("-r tonight").expect(125).says(&said).says("put it back where it was");
    rig.hand.wait_for("running", 0);
    std::fs::rename(&aside, &file).expect("back");
    rig.can_be_restarted("tonight");
}

#[test]
fn a_gate_that_says_no_by_now_is_obeyed() {
    let test = "checkpoint::otherwise::a_gate_that_says_no_by_now_is_obeyed";
    let Some(criu) = criu(test) else { return };
    let rig = Rig::with(&criu, NODES);
    taken_off(&rig, "", ":");
    let gated = |users: &str| {
        let config = format!(
            "{NODES}regions:\n  - {{ name: closed, nids: 0-3, gates: {{ users: [{users}] }} }}\n"
        );
        let read = || rig.hand.said().matches("read again: ").count();
        let before = read();
        rig.hand.reconfigure(&config);
        eventually(BOUND, "it is read", || read() > before);
    };
    gated("54321");
    rig.cpr("-r tonight").expect(125).says("region closed lets in only");
    rig.hand.wait_for("running", 0);
    let own = nix::unistd::getuid().as_raw();
    gated(&format!("54321, {own}"));
    rig.can_be_restarted("tonight");
}

#[test]
fn where_memory_is_short_it_waits() {
    let test = "checkpoint::otherwise::where_memory_is_short_it_waits";
    let Some(criu) = criu(test) else { return };
    let rig = Rig::with(&criu, &format!("{NODES}variables: {{ application.max_resident: 2 }}\n"));
    taken_off(&rig, "-m 60M", ":");
    // Two may share a processor, and have not the memory for it.
    let other = Running::start(&mut rig.command("aprun", "-q -n 4 -m 60M sleep 1000.391"));
    rig.running();
    let cpr = Running::start(&mut rig.writes_to("cpr", "-r tonight", "second"));
    let apid = rig.hand.wait_for("posted", 1)[0];
    let why = run(&mut rig.command("apstat", &format!("--why {apid}"))).expect(0);
    assert!(why.out().contains("memory"), "{}", why.out());
    other.signal(15);
    other.wait(BOUND).expect(128 + 15);
    rig.goes_on("second");
    cpr.signal(15);
    cpr.wait(BOUND).expect(128 + 15);
}

/// The copy of its images that root restores from does not fit.
#[test]
fn where_there_is_no_room_for_its_images_that_is_said() {
    let test = "checkpoint::otherwise::where_there_is_no_room_for_its_images_that_is_said";
    let Some(criu) = criu(test) else { return };
    let folder = tempfile::tempdir_in("/tmp").expect("made");
    let sized = |flags, size| {
        let none = Some("none");
        nix::mount::mount(none, folder.path(), Some("tmpfs"), flags, Some(size)).is_ok()
    };
    if !sized(nix::mount::MsFlags::empty(), "size=64m,mode=700") {
        return skip(test, "no file system can be mounted");
    }
    let _unmounted = Unmounted(folder.path());
    let config = "nodes:\n  - { nids: 0, processors: 1, flavors: [su, os, ap] }\n";
    let rig = Rig::that_rolls_out(&criu, config, folder.path());
    // There is none for those that are to be made, and the application goes on.
    let aprun = rig.counts(100_000, "out");
    let apid = rig.running();
    assert!(sized(nix::mount::MsFlags::MS_REMOUNT, "size=300k"));
    rig.cpr(&format!("-c tonight -p {apid}"))
        .expect(1)
        .says("No space left on device")
        .says("has room for");
    rig.goes_on("out");
    assert!(listing(&folder.path().join("apinit-0")).is_empty());
    aprun.signal(15);
    aprun.wait(BOUND).expect(128 + 15);
    assert!(sized(nix::mount::MsFlags::MS_REMOUNT, "size=64m"));
    taken_off(&rig, "", ":");
    assert!(sized(nix::mount::MsFlags::MS_REMOUNT, "size=300k"));
    rig.cpr("-r tonight").expect(125).says("No space left on device").says("has room for");
    rig.hand.wait_for("running", 0);
    let left = listing(&folder.path().join("apinit-0"));
    assert!(left.is_empty(), "{left:?}");
    assert!(sized(nix::mount::MsFlags::MS_REMOUNT, "size=64m"));
    rig.can_be_restarted("tonight");
}

/// What is not in any folder any more becomes images, however large it is.
#[test]
fn removed_files_have_a_bound() {
    let test = "checkpoint::otherwise::removed_files_have_a_bound";
    let Some(criu) = criu(test) else { return };
    let config = "nodes:\n  - { nids: 0, processors: 1, flavors: [su, os, ap] }\n";
    let rig = Rig::given(&criu, config, "PSCHED_GHOST_LIMIT=1M");
    let script = "exec 8>removed; head -c 2M /dev/zero >&8; rm removed; echo >ready; \
                  while [ ! -e done ]; do sleep 0.0183; done; exec 8>&-; echo >ready; sleep 1000.392";
    let aprun = Running::start(rig.command("aprun", "-q sh -c").arg(script));
    let apid = rig.running();
    let ready = || {
        eventually(BOUND, "it has come so far", || rig.at("ready").exists());
        std::fs::remove_file(rig.at("ready")).expect("ours");
    };
    ready();
    let line = format!("-c tonight -p {apid}");
    rig.cpr(&line).expect(1).says("--ghost-limit").says("of removed files");
    // It goes on, and may be checkpointed without it.
    std::fs::write(rig.at("done"), "").expect("written");
    ready();
    rig.cpr(&line).expect(0);
    aprun.signal(15);
    aprun.wait(BOUND).expect(128 + 15);
}

struct Unmounted<'a>(&'a Path);

impl Drop for Unmounted<'_> {
    fn drop(&mut self) {
        let _ = nix::mount::umount2(self.0, nix::mount::MntFlags::MNT_DETACH);
    }
}
