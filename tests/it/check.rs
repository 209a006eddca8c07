//! `psched check`: problems with their places, and what a file would change.

use crate::support::hand::Hand;
use crate::support::*;
use nix::unistd::{User, geteuid};
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

fn check(arguments: &[&OsStr]) -> Run {
    let mut command = Command::new(binaries().join("psched"));
    run(command.arg("check").args(arguments).env_remove("PSCHED_SOCKET"))
}

#[test]
fn all_problems_have_their_places() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("psched.yaml");
    let text = "nodes:\n  - { nids: 0, processors: 2, flavor: [ap] }\n  - nids: 0-3\n    \
                processors: 0\nvariables:\n  kill_grase: 5s\nlistening: here\n";
    std::fs::write(&file, text).expect("written");
    let ran = check(&[file.as_os_str()]).expect(1);
    let path = file.display();
    let expected = format!(
        "psched check: {path}:2:31: nodes[0].flavor: there is no such key; did you mean flavors?\n\
         psched check: {path}:3:11: nodes[1].nids: NID 0 is already in nodes[0]; give each node once\n\
         psched check: {path}:4:17: nodes[1].processors: \"0\" is not a number of processors; give 1 to 4096\n\
         psched check: {path}:6:15: variables.kill_grase: there is no variable kill_grase; did you mean kill_grace?\n\
         psched check: {path}:7:12: listening: \"here\" is not the path of a file or folder; give an absolute path \
         that does not end in /\n\
         psched check: 5 problems: psched would refuse this file\n"
    );
    assert_eq!(ran.stderr, expected);
    assert!(ran.stdout.is_empty());
    // psched says the same of it, and does not start.
    let mut psched = Command::new(binaries().join("psched"));
    let refused = run(psched.arg("--config").arg(&file).env_remove("PSCHED_LOG")).expect(1);
    for line in expected.lines().take(5) {
        let line = line.trim_start_matches("psched check: ");
        assert!(refused.stderr.contains(line), "{line} is not in {}", refused.stderr);
    }
}

#[test]
fn a_good_file_is_summed_up_and_one_that_is_not_there_is_named() {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/psched.yaml");
    let ran = check(&[shipped.as_os_str()]).expect(0);
    let good = ": good: 4 nodes, 32 processors, 32 of them for applications, 0 variables that are not at \
                their defaults\n";
    assert!(ran.out().ends_with(good), "{}", ran.out());
    let none = check(&[OsStr::new("/nowhere/psched.yaml")]).expect(1);
    none.says("psched check: /nowhere/psched.yaml can't be read: No such file or directory");
    // A slip in a name is no problem for psched, but for whoever made it.
    let file = tempfile::NamedTempFile::new().expect("a file");
    let text = std::fs::read_to_string(&shipped).expect("it is there");
    std::fs::write(file.path(), text + "\nadministrators: [nobody-1]\n").expect("written");
    let ran = check(&[file.path().as_os_str()]).expect(0);
    let warning = "warning: administrators: nobody-1 is not a user of this host\n";
    assert!(ran.out().ends_with(warning), "{}", ran.out());
    // Nobody to compare it with.
    let alone = check(&[shipped.as_os_str(), OsStr::new("--diff")]).expect(1);
    alone.says("no psched answers on /run/psched/psched.sock");
    let huge = tempfile::NamedTempFile::new().expect("a file");
    huge.as_file().set_len(20 << 20).expect("that long");
    check(&[huge.path().as_os_str()]).expect(1).says("more than 10485760");
}

#[test]
fn what_a_file_would_change_is_told_and_nothing_is_changed() {
    let two = "nodes:\n  - { nids: 0, processors: 1, flavors: [su, os, ap] }\n  - { nids: 1, processors: 1 }\n";
    let one = "nodes:\n  - { nids: 0, processors: 1, flavors: [su, os, ap] }\n";
    let hand = Hand::start(two, &[("0", None), ("1", None)]);
    let runs = hand.start_script("-n 2 -N 1", "while :; do sleep 0.1; done");
    let apid = hand.wait_for("running", 1)[0];
    let file = hand.folder().join("new.yaml");
    let diff = |text: &str| {
        let text = format!("{text}listening: {}\n", hand.socket().display());
        std::fs::write(&file, text).expect("written");
        let mut command = hand.command("psched", ["check", "--diff"]);
        run(command.arg(&file)).expect(0).out()
    };
    let told = diff(&format!(
        "{one}state: {}/state\nvariables:\n  kill_grace: 7s\n  history_max: 9\n  application.max_resident: 1\n",
        hand.folder().display()
    ));
    let (_, told) = told.split_once('\n').expect("the file is summed up first");
    assert_eq!(
        told,
        format!(
            "psmgr reload would change:\n  kill_grace 5s -> 7s\n  NID 1 removed\na restart of psched \
             would change, while applications run on:\n  history_max 10000 -> 9 takes \
             effect\nwhat psmgr reload means for applications:\n  application {apid} of {} keeps NID 1, \
             which takes no new applications\n",
            User::from_uid(geteuid())
                .ok()
                .flatten()
                .map_or_else(|| geteuid().to_string(), |u| u.name)
        )
    );
    let shown = run(&mut hand.command("psmgr", ["show", "kill_grace"])).expect(0).out();
    assert!(shown.contains("5s"), "{shown}");
    assert_eq!(hand.wait_for("running", 1), [apid]);
    run(&mut hand.command("apkill", ["-9", &apid.to_string()])).expect(0);
    runs.wait(BOUND).expect(137);
    hand.end();
}
