//! What aprun says of a host of its application that does not answer, with the cable of the host
//! out.

use crate::support::cables::*;
use crate::support::hosts::Cluster;
use crate::support::*;
use std::process::Stdio;

/// Lines of a file that begin so.
fn count(path: &std::path::Path, start: &str) -> usize {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().filter(|line| line.starts_with(start)).count()
}

/// aprun is on h0, PE 0 on h1, and another PE on h2.
#[test]
fn aprun_says_which_host_does_not_answer_and_that_it_answers_again() {
    if !faults_may_be(
        "silent_hosts::aprun_says_which_host_does_not_answer_and_that_it_answers_again",
    ) {
        return;
    }
    let cluster = Cluster::start(3, 1);
    let (go, told) = (cluster.folder().join("go"), cluster.folder().join("told"));
    let script = format!("until [ -e {} ]; do sleep 0.05; done; echo out", go.display());
    let arguments = |options: &'static str| words(options).chain(["sh", "-c", &*script]);
    let mut command = cluster.command(0, "aprun", arguments("-n 2 -N 1 -L 1,2"));
    command.stderr(std::fs::File::create(&told).expect("made")).stdout(Stdio::null());
    let mut aprun = command.spawn().expect("it starts");
    let quiet = Running::start(&mut cluster.command(0, "aprun", arguments("-q -n 2 -N 1 -L 1,2")));
    cluster.wait_for("running", 2);
    for (host, silent, again) in [
        (
            2,
            "aprun: NID 2 (host h2) does not answer; its output comes later",
            "aprun: NID 2 (host h2) answers again",
        ),
        (1, "aprun: NID 1 (host h1) does not answer (", "aprun: NID 1 (host h1) answers again"),
    ] {
        break_cable(&cluster, host, Fault::Out);
        eventually(BOUND, "it says that the host does not answer", || count(&told, silent) == 1);
        assert_eq!(count(&told, again), 0);
        mend_cable(&cluster, host, Fault::Out);
        eventually(BOUND, "it says that the host answers again", || count(&told, again) == 1);
    }
    std::fs::write(&go, "").expect("written");
    assert!(aprun.wait().expect("waited for").success());
    for nid in [1, 2] {
        for word in ["does not answer", "answers again"] {
            let line = format!("aprun: NID {nid} (host h{nid}) {word}");
            assert_eq!(count(&told, &line), 1, "once for each outage: {line}");
        }
    }
    let quiet = quiet.wait(BOUND).expect(0);
    assert_eq!(quiet.sorted(), ["out"; 2]);
    assert_eq!(quiet.stderr, "", "-q");
    cluster.wait_until_up();
}
