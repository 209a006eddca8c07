//! The units in config/systemd, tried without systemd: daemons are started again in their unit's control
//! group as it does, and the files are read as it reads them.

use crate::support::hand::Hand;
use crate::support::manager::*;
use crate::support::*;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

const CONFIG: &str =
    "nodes:\n  - { nids: \"0-1\", processors: 2, memory: 1G, flavors: [su, os, ap] }\n";

#[test]
fn a_restarted_daemon_finds_its_applications() {
    let name = "units::a_restarted_daemon_finds_its_applications";
    let Some(unit) = Unit::make("restart") else {
        return skip(name, "no control group can be made at the root of cgroup v2");
    };
    let manager = Manager::new();
    let mut hand = Hand::start_by(&manager.prefix(Some(&unit.0)), CONFIG, &[("0-1", None)]);
    let mut aprun = hand.command("aprun", ["-n", "2", "-N", "1", "sh", "-c"]);
    let folder = tempfile::tempdir().expect("a folder");
    let read = folder.path().join("read");
    aprun
        .arg("[ $PMI_RANK = 1 ] || read line; echo got $line; [ $PMI_RANK = 1 ] || : > $0; exec sleep 1000")
        .arg(&read)
        .stdin(Stdio::piped());
    let mut aprun = Running::start(&mut aprun);
    let apid = hand.wait_for("running", 1)[0];
    assert!(unit.has_groups(), "the application's groups are below the unit's");
    // KillMode=process: the main process and nothing else, first with -9, then as on a stop.
    for signal in [9, 15] {
        let apinit = hand.apinit_pid("0-1");
        if signal == 15 {
            kill(apinit, 15);
            eventually(BOUND, "apinit has ended", || {
                std::fs::read_to_string(format!("/proc/{apinit}/stat"))
                    .is_ok_and(|stat| stat.contains(") Z "))
            });
        }
        hand.kill_apinit_of("0-1");
        forget(&manager.apinit);
        hand.start_apinit("0-1", None);
        expect(&manager.apinit, "READY=1");
        hand.kill_psched();
        hand.start_psched();
        assert_eq!(hand.wait_for("running", 1), [apid]);
    }
    // The applications' own ends are as alive.
    let mut stdin = aprun.child.stdin.take().expect("piped");
    stdin.write_all(b"word\n").expect("taken");
    drop(stdin);
    eventually(BOUND, "the word has been read", || read.exists());
    run(&mut hand.command("apkill", [apid.to_string()])).expect(0);
    let ended = aprun.wait(BOUND).expect(143);
    assert_eq!(ended.sorted(), ["got", "got word"]);
    hand.end();
}

#[test]
fn the_units_are_good() {
    let name = "units::the_units_are_good";
    let there = Command::new("systemd-analyze").arg("--version").stdout(Stdio::null()).status();
    if !there.is_ok_and(|status| status.success()) {
        return skip(name, "no systemd-analyze (Debian: systemd)");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/systemd");
    let mut units = Vec::new();
    for entry in std::fs::read_dir(source).expect("the units").flatten() {
        let text = std::fs::read_to_string(entry.path()).expect("text");
        let copy = folder.path().join(entry.file_name());
        let kept = ["KillMode=process", "Restart=", "OOMScoreAdjust=", "TasksMax=infinity"];
        assert!(kept.iter().all(|setting| text.contains(setting)), "{:?} lacks one", entry.path());
        let has = |line: &str| text.lines().any(|of| of == line);
        match entry.file_name().to_str() {
            // Without one of them what is promised of processors, memory or processes is not kept.
            Some("psched-groups.service") => assert!(has("Delegate=cpuset memory pids")),
            // A reload that fails is to fail.
            Some("psched.service") => assert!(has("ExecReload=/usr/bin/psmgr reload")),
            _ => {}
        }
        // What they start is not installed here.
        let text = text.replace("/usr/bin/", &format!("{}/", binaries().display()));
        std::fs::write(&copy, text).expect("written");
        units.push(copy);
    }
    assert_eq!(units.len(), 3);
    let mut verify = Command::new("systemd-analyze");
    let verified = run(verify.args(["verify", "--man=no", "--recursive-errors=no"]).args(units));
    let said = verified.stderr.clone();
    assert!(!said.contains("psched") && !said.contains("apinit"), "{said}");
    verified.expect(0);
}
