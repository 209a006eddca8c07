//! Checkpoints of PEs that share processors (`--oversubscribe`).

use super::whole::Rig;
use crate::support::criu::criu;
use crate::support::*;
use std::path::Path;

const CONFIG: &str = "nodes:\n  - { nids: 0-1, processors: 2, flavors: [su, os, ap] }\n";

/// So many PEs that write until there is a file `stop`, and their application.
fn start(rig: &Rig, pes: u32) -> (Running, u64) {
    let script = "while ! [ -e stop ]; do echo $ALPS_APP_PE >> out; sleep 0.01; done; \
                  grep Cpus_allowed_list: /proc/self/status >> processors; exit 3";
    let line = format!("-q -n {pes} --oversubscribe sh -c");
    let mut command = rig.hand.command("aprun", words(&line).chain([script]));
    (Running::start(command.current_dir(rig.work.path())), rig.running())
}

fn checkpointed(rig: &Rig, pes: u32, name: &str) {
    let (aprun, apid) = start(rig, pes);
    rig.goes_on("out");
    rig.cpr(&format!("-k -c {name} -p {apid}")).expect(0);
    aprun.wait(BOUND).expect(137);
}

#[test]
fn pes_that_share_processors_share_as_many_again() {
    let test = "checkpoint::shares::pes_that_share_processors_share_as_many_again";
    let Some(criu) = criu(test) else { return };
    let rig = Rig::of(&criu, CONFIG, &["0-1"]);
    checkpointed(&rig, 9, "even");
    let restarted = Running::start(&mut rig.command("cpr", "-r even"));
    rig.goes_on("out");
    let apid = rig.running().to_string();
    let shown = run(&mut rig.command("apstat", &format!("-A {apid}"))).expect(0).out();
    assert!(shown.contains("9:1:5 on 4"), "{shown}");
    std::fs::write(rig.at("stop"), "").expect("written");
    restarted.wait(BOUND).expect(3);
    for rank in 0..9 {
        assert!(rig.read("out").contains(&format!("{rank}\n")), "PE {rank}");
    }
    // As before, none is bound to one of those that it shares.
    let processors = rig.read("processors");
    assert_eq!(processors.lines().count(), 9);
    let both = "grep Cpus_allowed_list: /proc/self/status";
    let both = rig.hand.command("aprun", ["-q", "-n", "1", "-d", "2", "sh", "-c", both]).output();
    let both = String::from_utf8(both.expect("it ran").stdout).expect("text");
    assert!(!both.is_empty() && processors == both.repeat(9), "{processors} {both}");
    assert!(Path::new(&rig.at("even")).is_dir());
}

/// What runs inside goes on with its parent, and another is started inside of what was restored.
#[test]
fn a_program_inside_is_brought_back_with_its_parent() {
    let test = "checkpoint::shares::a_program_inside_is_brought_back_with_its_parent";
    let Some(criu) = criu(test) else { return };
    let rig = Rig::of(&criu, CONFIG, &["0-1"]);
    let inside = format!("{} --inside -q -n 2 sh", binaries().join("aprun").display());
    let script = "while ! [ -e stop ]; do echo $ALPS_APP_PE >> out; sleep 0.01; done; exit 3";
    std::fs::write(rig.at("inner"), script).expect("written");
    let script =
        format!("{inside} inner; code=$?; {inside} -c 'echo $ALPS_APP_ID >> later'; exit $code");
    let line = ["-q", "-d", "2", "sh", "-c", &script];
    let aprun = Running::start(rig.hand.command("aprun", line).current_dir(rig.work.path()));
    let apid = rig.running();
    rig.goes_on("out");
    rig.cpr(&format!("-c first -p {apid}")).expect(0);
    rig.goes_on("out");
    rig.cpr(&format!("-k -c second -p {apid}")).expect(0);
    aprun.wait(BOUND).expect(137);
    let restarted = Running::start(&mut rig.command("cpr", "-r second"));
    rig.goes_on("out");
    let now = rig.running();
    std::fs::write(rig.at("stop"), "").expect("written");
    restarted.wait(BOUND).expect(3);
    assert_eq!(rig.read("later"), format!("{now}\n{now}\n"));
}
