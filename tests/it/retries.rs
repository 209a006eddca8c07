//! Launches that fail on a host by what its user has not put there.

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

/// A program that a host lacks is its user's to put there: its application ends at once, names the host's
/// node, and nothing counts against the node, whoever starts it how often.
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
        let ran = aprun(&cluster, &bins, user, "-n 2 /run/local/program").expect(127);
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
