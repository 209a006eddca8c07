//! Launches that fail on a host: tried again on another one, and counted against the node.

use crate::support::hosts::{Cluster, may_be};
use crate::support::users::{ANNA, BERT, Bins, User};
use crate::support::*;
use std::path::Path;

/// A user's aprun on h0.
fn aprun(cluster: &Cluster, bins: &Bins, user: &User, line: &str) -> Run {
    let mut command = cluster.on(0, "setpriv".as_ref());
    let uid = user.uid.to_string();
    command.args(["--reuid", &uid, "--regid", &uid, "--clear-groups", "--"]);
    command.arg(bins.path("aprun")).args(words(line)).current_dir("/");
    command.env_remove("PSCHED_SOCKET").env_remove("PSCHED_LOG").env("HOME", "/");
    run(&mut command)
}

fn psmgr(cluster: &Cluster, line: &str) -> Run {
    run(&mut cluster.command(0, "psmgr", words(line))).expect(0)
}

/// apinit can make no folder for an application on a host, or can again.
fn break_folder(cluster: &Cluster, host: usize, broken: bool) {
    let folder = format!("/run/psched/apps-{host}");
    let mut command = cluster.on(host, if broken { "mount" } else { "umount" }.as_ref());
    if broken {
        command.args(["-t", "tmpfs", "-o", "ro,mode=755", "none"]);
    }
    run(command.arg(folder)).expect(0);
}

/// How a node is closed, and why.
fn node(cluster: &Cluster, nid: usize) -> (String, String) {
    let row = cluster.apstat("-n -v")["nodes"][nid].clone();
    let text = |of: &serde_json::Value| of.as_str().unwrap_or_default().to_owned();
    (text(&row["state"]), row.to_string())
}

/// A host on which apinit can't make an application's folder starts no application: they run on another host. One user's do not have its
/// node drained; another user's failure does.
#[test]
fn a_host_that_starts_nothing_is_left_out_and_drained() {
    if !may_be("retries::a_host_that_starts_nothing_is_left_out_and_drained") {
        return;
    }
    let cluster = Cluster::start(3, 1);
    let bins = Bins::new();
    psmgr(&cluster, "drain 0");
    break_folder(&cluster, 1, true);
    for attempt in 0..4 {
        let quiet = if attempt == 3 { "-q " } else { "" };
        let ran = aprun(&cluster, &bins, &ANNA, &format!("{quiet}-n 2 hostname")).expect(0);
        assert_eq!(ran.sorted(), ["h2", "h2"]);
        // (With its host, where aprun knew its place already.)
        let said = "could not be started on NID 1";
        assert_eq!(ran.stderr.contains(said), attempt != 3, "{}", ran.stderr);
        assert_eq!(ran.stderr.contains("tried again elsewhere, 1 of 3"), attempt != 3);
    }
    assert_eq!(node(&cluster, 1).0, "free");
    // An application that no other host has room for ends at once, with the reason.
    let wide = aprun(&cluster, &bins, &ANNA, "-n 4 hostname").expect(125);
    assert!(wide.stderr.contains("[NID 00001]"), "{}", wide.stderr);
    aprun(&cluster, &bins, &BERT, "-n 2 hostname").expect(0);
    let (state, row) = node(&cluster, 1);
    assert_eq!(state, "drained", "{row}");
    assert!(row.contains("3 launches in a row failed here; the last one: "), "{row}");
    assert!(row.contains("psched"), "{row}");
    assert!(cluster.said("psched").contains("NID 1: drained by psched: 3 launches in a row"));
    let ran = aprun(&cluster, &bins, &ANNA, "-n 2 hostname").expect(0);
    assert!(!ran.stderr.contains("tried again"), "{}", ran.stderr);
    // The drain outlives psched. Then the host is put in order.
    break_folder(&cluster, 1, false);
    let mut cluster = cluster;
    cluster.kill_psched();
    cluster.start_psched();
    eventually(BOUND, "the node is known as drained", || node(&cluster, 1).0 == "drained");
    psmgr(&cluster, "resume 1");
    eventually(BOUND, "the nodes are up", || cluster.states() == ["drained", "free", "free"]);
    let ran = aprun(&cluster, &bins, &ANNA, "-n 2 hostname").expect(0);
    assert_eq!(ran.sorted(), ["h1", "h1"]);
    assert!(!ran.stderr.contains("tried again"), "{}", ran.stderr);
}

/// A program that a host lacks, and gets no copy of (-b), is its user's to put there: its application ends at
/// once, names the host's node, and nothing counts against the node, whoever starts it how often.
#[test]
fn a_missing_program_drains_nothing() {
    if !may_be("retries::a_missing_program_drains_nothing") {
        return;
    }
    let cluster = Cluster::start(3, 1);
    let bins = Bins::new();
    psmgr(&cluster, "drain 0");
    psmgr(&cluster, "set launch_failures_to_drain=1");
    for host in [0, 2] {
        let folder = cluster.root(host).join("run/local");
        std::fs::create_dir(&folder).expect("made");
        std::fs::copy(Path::new("/bin/true"), folder.join("program")).expect("copied");
    }
    for user in [&ANNA, &BERT, &ANNA, &BERT] {
        let ran = aprun(&cluster, &bins, user, "-b -n 2 /run/local/program").expect(127);
        assert!(ran.stderr.contains("[NID 00001]"), "{}", ran.stderr);
        assert!(!ran.stderr.contains("tried again"), "{}", ran.stderr);
    }
    assert_eq!(cluster.states(), ["drained", "free", "free"]);
}

/// A host without the working directory is named before any PE of any host runs; nothing is tried again. A
/// directory that all hosts have is the cure.
#[test]
fn a_missing_directory_is_told_with_its_host() {
    if !may_be("retries::a_missing_directory_is_told_with_its_host") {
        return;
    }
    let cluster = Cluster::start(2, 1);
    std::fs::create_dir(cluster.root(0).join("run/here")).expect("made");
    let started = cluster.folder().join("started");
    let script = format!("touch {}", started.display());
    let aprun = |options: &str| {
        let line = words("-n 4 --chdir /run/here").chain(words(options));
        let mut command = cluster.command(0, "aprun", line.chain(["sh", "-c", &script]));
        run(&mut command)
    };
    let refused = aprun("").expect(125);
    assert!(!started.exists(), "a PE has run");
    assert!(!refused.stderr.contains("tried again"), "{}", refused.stderr);
    refused.says(
        "it can't enter its working directory /run/here on host h1: No such file or directory; make it \
         there, or give another one with --chdir",
    );
    aprun("--chdir /tmp").expect(0);
    assert!(started.exists());
    cluster.wait_until_up();
}
