//! Bad input: a clear message, the right status, nothing lost.

use crate::support::*;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::process::Command;

#[test]
fn bad_numbers_and_options() {
    let instance = instance(1, 1);
    for arguments in [
        "-n 0 true",
        "-n -1 true",
        "-n 99999999999999 true",
        "-n x true",
        "-n",
        "-d 0 true",
        "-d x true",
        "-N 0 true",
        "-N -3 true",
        "-m x true",
        "-t x true",
        "--time-limit x true",
        "-cc nothing true",
        "--what true",
        "-L 1-x true",
        "-B true",
        "-e =x true",
        "",
        "-n 1",
    ] {
        let run = instance.aprun(words(arguments));
        assert_eq!(run.status, 125, "{arguments}: {}", run.stderr);
        assert!(!run.stderr.is_empty() && run.out().is_empty(), "{arguments}");
    }
    instance.aprun(words("-B true")).says("not yet");
    assert!(instance.apstat("--history")["history"].as_array().expect("a list").is_empty());
}

/// One status for a wrong command line, and none of success for help that can't be written.
#[test]
fn usage_errors_end_with_2() {
    let names = ["apkill", "apstat", "cpr", "psched", "psmgr", "psview", "snflv"];
    for name in names {
        for wrong in ["--nosuch", "1-x"] {
            let run = run(Command::new(binaries().join(name)).arg(wrong)).expect(2);
            assert!(run.stderr.starts_with(&format!("{name}: ")), "{name}: {}", run.stderr);
        }
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("opened");
        let mut help = Command::new(binaries().join(name));
        let help = help.arg("--help").stdout(full).output().expect("it runs");
        assert_eq!(help.status.code(), Some(1), "{name}");
        let said = String::from_utf8_lossy(&help.stderr);
        assert!(said.starts_with(&format!("{name}: can't write standard output: ")), "{said}");
    }
}

/// What other schedulers call a subcommand is answered with the command to use.
#[test]
fn subcommands_of_other_schedulers_are_answered() {
    for (name, word, says) in [
        ("psched", "run", "run is not a subcommand: aprun runs a parallel program"),
        ("psched", "submit", "submit is not a subcommand: aprun runs a parallel program"),
        ("psmgr", "cancel", "cancel is not a subcommand: apkill APID ends an application"),
    ] {
        let run = run(Command::new(binaries().join(name)).args([word, "3"])).expect(2);
        assert!(run.stderr.starts_with(&format!("{name}: {says}")), "{}", run.stderr);
        assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
    }
}

#[test]
fn without_psched_it_is_said() {
    let base = tempfile::tempdir().expect("made");
    let socket = base.path().join("nobody.sock");
    for (name, arguments, status) in
        [("aprun", vec!["true"], 125), ("apstat", vec!["-a"], 1), ("apkill", vec!["1"], 1)]
    {
        let mut command = Command::new(binaries().join(name));
        let run = run(command.args(&arguments).env("PSCHED_SOCKET", &socket)).expect(status);
        assert!(run.stderr.contains("nobody.sock"), "{name}: {}", run.stderr);
    }
    let long = format!("/tmp/{}/psched.sock", "x".repeat(120));
    let mut command = Command::new(binaries().join("apstat"));
    let run = run(command.env("PSCHED_SOCKET", &long)).expect(1);
    assert!(run.stderr.contains("long"), "{}", run.stderr);
}

#[test]
fn garbage_on_the_socket_hurts_no_one() {
    let instance = instance(1, 1);
    let mut garbage = UnixStream::connect(&instance.socket).expect("connected");
    let _ = garbage.write_all(&[0xff; 100_000]);
    let mut half = UnixStream::connect(&instance.socket).expect("connected");
    half.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").expect("written");
    instance.script("-q", "true").expect(0);
    drop((garbage, half));
    instance.script("-q", "true").expect(0);
}

#[test]
fn a_thousand_idle_connections_hurt_no_one() {
    let instance = instance(1, 1);
    let mut idle = Vec::new();
    for _ in 0..1000 {
        // Refused beyond the bound, or kept: either is good.
        if let Ok(stream) = UnixStream::connect(&instance.socket) {
            idle.push(stream);
        }
    }
    if let Err(e) = std::fs::metadata(&instance.socket) {
        panic!("the socket is gone: {e}");
    }
    drop(idle.drain(..idle.len() / 2));
    instance.script("-q", "true").expect(0);
}

#[test]
fn a_state_in_use_is_refused() {
    let base = tempfile::Builder::new().prefix("it").tempdir_in("/tmp").expect("made");
    let state = base.path().join("state");
    let first = Plan::new().nodes(1, 1).arg("--state").arg(&state).start();
    let mut command = Command::new(binaries().join("psched"));
    command.args(["start", "--nodes", "1", "--state"]).arg(&state).args(["--", "true"]);
    let run = run(command.env("TMPDIR", base.path()).env_remove("XDG_RUNTIME_DIR")).expect(125);
    assert!(run.stderr.contains("in use"), "{}", run.stderr);
    first.script("-q", "true").expect(0);
}

#[test]
fn a_damaged_store_is_refused() {
    let base = tempfile::Builder::new().prefix("it").tempdir_in("/tmp").expect("made");
    let state = base.path().join("state");
    Plan::new().nodes(1, 1).arg("--state").arg(&state).start().script("-q", "true").expect(0);
    let file = std::fs::read_dir(&state)
        .expect("there")
        .flatten()
        .map(|e| e.path())
        .find(|p| std::fs::read(p).is_ok_and(|b| b.starts_with(b"SQLite format 3")))
        .expect("the store");
    let length = std::fs::metadata(&file).expect("there").len();
    std::fs::write(&file, vec![0x5a; length as usize]).expect("damaged");
    let mut command = Command::new(binaries().join("psched"));
    command.args(["start", "--nodes", "1", "--state"]).arg(&state).args(["--", "true"]);
    let run = run(command.env("TMPDIR", base.path()).env_remove("XDG_RUNTIME_DIR")).expect(125);
    assert!(
        run.stderr.contains(file.file_name().expect("a name").to_str().expect("text")),
        "{}",
        run.stderr
    );
    assert_eq!(std::fs::metadata(&file).expect("left alone").len(), length);
}

#[test]
fn a_runtime_directory_that_is_not_there_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let yaml = folder.path().join("psched.yaml");
    let nodes = "nodes:\n  - { nids: 0, processors: 1, flavors: [su, os, ap] }\n";
    std::fs::write(&yaml, format!("{nodes}state: {}/state\n", folder.path().display()))
        .expect("it");
    let none = folder.path().join("none");
    let mut psched = std::process::Command::new(binaries().join("psched"));
    psched.arg("--config").arg(&yaml).arg("--runtime").arg(&none);
    let run = run(&mut psched);
    assert_ne!(run.status, 0);
    run.says(&format!("{} is not the runtime directory", none.display())).says("No such file");
}
