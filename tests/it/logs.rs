//! What the daemons and aprun log of one application, and how it is found.

use crate::support::{binaries, run};
use std::process::Command;

#[test]
fn each_process_logs_an_application_in_a_span_of_its_own() {
    let base = tempfile::tempdir().expect("a folder");
    let run = run(Command::new(binaries().join("psched"))
        .args(["start", "--nodes", "1", "--processors", "1", "--", "env", "PSCHED_LOG=debug"])
        .args(["aprun", "-n", "1", "true"])
        .env("TMPDIR", base.path())
        .env_remove("XDG_RUNTIME_DIR")
        .env("PSCHED_LOG", "info")
        .env("PSCHED_LOG_FORMAT", "json"))
    .expect(0);
    let lines: Vec<serde_json::Value> =
        run.stderr.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let uid = nix::unistd::getuid().as_raw();
    for room in ["psched::daemon", "psched::node::apinit", "psched::commands::aprun"] {
        let of_it = lines.iter().filter(|line| {
            line["target"].as_str().is_some_and(|target| target.starts_with(room))
                && line["span"]["name"] == "application"
        });
        let whole = of_it.filter(|line| {
            let span = &line["span"];
            span["apid"] == 1 && span["nid"] == 0 && span["uid"] == uid
        });
        assert!(whole.count() >= 2, "{room}: {}", run.stderr);
    }
}

#[test]
fn without_a_wish_nothing_is_logged() {
    let base = tempfile::tempdir().expect("a folder");
    let run = run(Command::new(binaries().join("psched"))
        .args([
            "start",
            "--nodes",
            "1",
            "--processors",
            "1",
            "--",
            "aprun",
            "-q",
            "-n",
            "1",
            "true",
        ])
        .env("TMPDIR", base.path())
        .env_remove("XDG_RUNTIME_DIR")
        .env_remove("PSCHED_LOG"))
    .expect(0);
    assert_eq!(run.stderr, "");
}
