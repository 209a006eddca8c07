//! What aprun writes on a terminal.

use crate::support::hand::Hand;
use crate::support::*;
use std::io::Write;
use std::process::{Command, Stdio};

/// A terminal shows `^C` where the next line would begin.
#[test]
fn after_an_interrupt_aprun_begins_a_new_line() {
    let test = "terminals::after_an_interrupt_aprun_begins_a_new_line";
    if !Command::new("script").arg("--version").output().is_ok_and(|o| o.status.success()) {
        return skip(test, "script(1) is not installed");
    }
    let hand = Hand::start(
        "nodes:\n  - { nids: 0, processors: 2, flavors: [su, os, ap] }\n",
        &[("0", None)],
    );
    hand.wait_until_up();
    let mut shell = Command::new("script");
    let line =
        format!("stty cols 80 rows 24; exec {} sleep 1000", binaries().join("aprun").display());
    shell.args(["-qec", &line, "/dev/null"]).env("PSCHED_SOCKET", hand.socket());
    shell.env("SHELL", "/bin/sh").stdin(Stdio::piped());
    let mut running = Running::start(&mut shell);
    let mut keys = running.child.stdin.take().expect("piped");
    hand.wait_for("running", 1);
    keys.write_all(b"\x03").expect("typed");
    let told = running.wait(BOUND).out();
    assert!(told.contains("^C\r\n[NID 00000] "), "{told:?}");
    hand.end();
}
