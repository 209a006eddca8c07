//! What the daemons and aprun log of one application, and how it is found.

use crate::support::hand::Hand;
use crate::support::{BOUND, binaries, run};
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
    for room in ["psched::psched::serve", "psched::apinit::host", "psched::aprun::host"] {
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

/// Accounting has a line of each application, whatever a user calls his program, and can have it alone.
#[test]
fn each_application_that_ends_has_one_line_of_usage() {
    let base = tempfile::tempdir().expect("a folder");
    let program = base.path().join("a\nusage: b");
    std::fs::copy("/bin/true", &program).expect("copied");
    let script =
        r#"aprun -q -n 2 "$0"; aprun -q -n 1 -N 1 sh -c 'exit 3'; aprun -q -n 9 true; exit 0"#;
    let run = run(Command::new(binaries().join("psched"))
        .args(["start", "--nodes", "2", "--processors", "2", "--", "sh", "-c", script])
        .arg(&program)
        .env("TMPDIR", base.path())
        .env_remove("XDG_RUNTIME_DIR")
        .env("PSCHED_LOG", "usage=info")
        .env("PSCHED_LOG_FORMAT", "json"))
    .expect(0);
    let lines: Vec<serde_json::Value> =
        run.stderr.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    // The third could never run, and so was none. Nothing else is logged.
    assert_eq!(lines.len(), 2, "{}", run.stderr);
    let uid = nix::unistd::getuid().as_raw();
    for (at, (line, width)) in lines.iter().zip([2u64, 1]).enumerate() {
        let fields = &line["fields"];
        for (name, value) in [("apid", at as u64 + 1), ("incarnation", 1), ("uid", uid.into())] {
            assert_eq!(fields[name], value, "{name} in {line}");
        }
        for (name, value) in [("width", width), ("depth", 1), ("processors", width)] {
            assert_eq!(fields[name], value, "{name} in {line}");
        }
        assert_eq!(line["target"], "usage");
        assert_eq!(fields["nids"], "0", "{line}");
        let times = ["posted", "started", "ended"].map(|name| fields[name].as_str());
        assert!(times.iter().all(Option::is_some) && times.is_sorted(), "{line}");
        let ran = fields["ran_ms"].as_u64().expect("it ran");
        assert_eq!(fields["processor_ms"], ran * width, "{line}");
    }
    let (first, second) = (&lines[0]["fields"], &lines[1]["fields"]);
    assert!(first["command"].as_str().is_some_and(|c| c.contains("usage: b")), "{first}");
    assert_eq!((first["status"].as_u64(), second["status"].as_u64()), (Some(0), Some(3)));
    assert_eq!((first["per_node"].as_u64(), second["per_node"].as_u64()), (None, Some(1)));
    assert_eq!(first["cause"].as_str(), None, "{first}");
    assert_eq!(second["cause"], "PE 0 on NID 0 exited with code 3");
}

/// Without a wish too: in a private instance's log.
#[test]
fn usage_is_logged_by_default() {
    let base = tempfile::tempdir().expect("a folder");
    let script = "aprun -q -n 1 true; log=$(dirname \"$PSCHED_SOCKET\")/log; \
                  timeout 60 sh -c 'until grep usage: \"$0\"; do sleep 0.1; done' \"$log\"";
    let run = run(Command::new(binaries().join("psched"))
        .args(["start", "--nodes", "1", "--processors", "1", "--", "sh", "-c", script])
        .env("TMPDIR", base.path())
        .env_remove("XDG_RUNTIME_DIR")
        .env_remove("PSCHED_LOG"))
    .expect(0);
    assert!(run.out().contains("application 1.1 ended with status 0"), "{}", run.stderr);
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

/// A log that nobody reads stops neither daemon, not even at its end.
#[test]
fn a_log_that_nobody_reads_holds_up_nobody() {
    let nodes = "nodes:\n  - { nids: 0, processors: 2, flavors: [su, os, ap] }\n";
    let mut hand = Hand::start(nodes, &[("0", None)]);
    hand.stop_psched();
    hand.stop_apinit("0");
    hand.log_unread();
    hand.start_psched();
    hand.start_apinit("0", None);
    hand.wait_until_up();
    // Each of these leaves more than the pipe holds.
    for _ in 0..20 {
        hand.start_script("-q -n 2", "exit 3").wait(BOUND).expect(3);
        hand.apstat("-n");
    }
    hand.end();
}
