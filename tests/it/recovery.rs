//! Daemons that die while applications run or wait.

use crate::support::*;
use std::time::Duration;

#[test]
fn psched_dies_while_an_application_runs() {
    let instance = instance(1, 2);
    let script = "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do echo $i; sleep 0.1; done; exit 3";
    let running = instance.start_script("-n 2", script);
    let apid = instance.wait_for("running", 1)[0];
    kill(instance.daemon("psched"), 9);
    let run = running.wait(BOUND).expect(3);
    assert_eq!(run.out().lines().count(), 40, "{}", run.out());
    run.says(&format!("Application {apid} exit codes: 3"));
    instance.wait_until_free();
    assert_eq!(instance.apstat("--history")["history"][0]["status"], 3);
    instance.script("-q -n 2", "true").expect(0);
}

#[test]
fn psched_dies_while_a_posting_waits() {
    let instance = instance(1, 1);
    let long = instance.start_script("-q", "exec sleep 1000");
    let apid = instance.wait_for("running", 1)[0].to_string();
    let waits = instance.start_script("-q", "echo done");
    instance.wait_for("posted", 1);
    let before = instance.daemon("psched");
    kill(before, 9);
    eventually(BOUND, "psched is back", || {
        let run = instance.run("apstat", ["-a"]);
        run.status == 0 && instance.daemon("psched") != before
    });
    assert_eq!(instance.wait_for("running", 1), [apid.parse::<u64>().expect("a number")]);
    assert_eq!(instance.wait_for("posted", 1).len(), 1);
    eventually(BOUND, "apkill is heard", || instance.run("apkill", ["-9", &apid]).status == 0);
    long.wait(BOUND).expect(137);
    assert_eq!(waits.wait(BOUND).expect(0).out(), "done\n");
}

#[test]
fn whoever_kills_psched_does_not_end_the_instance() {
    let instance = instance(1, 1);
    let running = instance.start_script("-q", "sleep 3; echo done; exit 4");
    instance.wait_for("running", 1);
    for _ in 0..8 {
        let psched = instance.daemon("psched");
        kill(psched, 9);
        eventually(BOUND, "psched is back", || {
            processes_with(&instance.folder().display().to_string())
                .iter()
                .any(|(pid, line)| *pid != psched && line.contains("psched --config"))
        });
    }
    assert_eq!(running.wait(BOUND).expect(4).out(), "done\n");
    instance.script("-q", "true").expect(0);
}

#[test]
fn psched_dies_again_and_again() {
    let instance = instance(2, 2);
    let running: Vec<Running> = (0..4)
        .map(|i| {
            instance.start_script(
                "-q",
                &format!("seq 1 2000; sleep 1.{i}; seq 1 2000; exit {}", i + 10),
            )
        })
        .collect();
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(300));
        kill(instance.daemon("psched"), 9);
    }
    for (i, running) in running.into_iter().enumerate() {
        let run = running.wait(BOUND).expect(10 + i as i32);
        assert_eq!(run.out().lines().count(), 4000);
    }
    instance.wait_until_free();
    // None lost, none doubled.
    let history = instance.apstat("--history");
    let mut statuses: Vec<u64> = history["history"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|r| r["status"].as_u64())
        .collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [10, 11, 12, 13]);
}

#[test]
fn apinit_dies_while_an_application_runs() {
    let instance = instance(1, 2);
    let script = "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do echo $i; seq 1 5000; sleep 0.1; done; exit 3";
    let running = instance.start_script("-q -n 2", script);
    instance.wait_for("running", 1);
    kill(instance.daemon("apinit"), 9);
    let run = running.wait(BOUND).expect(3);
    assert_eq!(run.out().lines().count(), 2 * 20 * 5001);
    instance.wait_until_free();
    instance.script("-q -n 2", "true").expect(0);
}

#[test]
fn an_apshepherd_that_dies_is_named() {
    let instance = instance(1, 1);
    let running = instance.start_script("-n 1", "exec sleep 1000");
    instance.wait_for("running", 1);
    let apinit = instance.daemon("apinit");
    let shepherd = children(apinit).into_iter().find(|(_, n)| n == "apshepherd");
    let shepherd = match shepherd {
        Some((pid, _)) => pid,
        None => processes_with("apshepherd").first().expect("there is one").0,
    };
    kill(shepherd, 9);
    let run = running.wait(BOUND).expect(125);
    assert!(run.stderr.contains("apshepherd"), "{}", run.stderr);
    instance.wait_until_free();
    instance.script("-q", "true").expect(0);
}

#[test]
fn aprun_dies_while_psched_is_dead() {
    let instance = instance(1, 2);
    let running = instance.start_script("-q -n 2", "trap '' TERM; while :; do sleep 0.1; done");
    instance.wait_for("running", 1);
    let psched = instance.daemon("psched");
    // Stopped, so that nobody starts another in its place.
    kill(psched, 19);
    running.signal(9);
    running.wait(BOUND).expect(137);
    let socket = instance.socket.to_str().expect("text").to_owned();
    eventually(Duration::from_secs(5), "nothing of it runs", || {
        let own = processes_with(&socket);
        own.iter().all(|(_, line)| !line.starts_with("sh ") && !line.starts_with("sleep"))
    });
    kill(psched, 18);
    instance.wait_until_free();
}
