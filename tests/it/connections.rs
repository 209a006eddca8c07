//! Connections between the hosts of a cluster: one for each pair of hosts and direction, which launches, barriers, output
//! and copies of programs share, and all applications.
//!
//! The direction of a connection is that of the call: an apinit listens at one port, and calls from any port.

use crate::support::criu::criu;
use crate::support::hosts::{Cluster, NETWORK, may_be};
use crate::support::programs::copy_program;
use crate::support::*;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;

/// Where apinits and psched listen.
const APINIT: &str = "7118";
const PSCHED: &str = "7117";
/// One more than a fan-out of 2 reaches: one host is reached through others.
const HOSTS: usize = 4;
/// The first of the two nodes of each host.
const EVEN: &str = "0,2,4,6";

/// The connections that a host has opened to this port of other hosts: its own port, and the other's address.
fn opened(cluster: &Cluster, host: usize, port: &str) -> BTreeSet<(String, String)> {
    let mut ss = cluster.on(host, "ss".as_ref());
    ss.args(["-Htn", "state", "established", "dport", "=", &format!(":{port}")]);
    let text = run(&mut ss).expect(0).out();
    let connection = |line: &str| {
        let mut ends = line.split_whitespace().skip(2).map(str::to_owned);
        Some((ends.next()?, ends.next()?))
    };
    text.lines().filter_map(connection).collect()
}

/// All connections between apinits: from which host, from which port, and to which address.
fn between(cluster: &Cluster) -> BTreeSet<(usize, String, String)> {
    let of = |host| opened(cluster, host, APINIT).into_iter().map(move |(own, to)| (host, own, to));
    (0..cluster.count()).flat_map(of).collect()
}

/// No host has two connections to another one.
#[track_caller]
fn one_each(all: &BTreeSet<(usize, String, String)>) {
    let pairs: BTreeSet<(usize, &str)> = all.iter().map(|(from, _, to)| (*from, &**to)).collect();
    assert_eq!(pairs.len(), all.len(), "several between two hosts: {all:?}");
}

/// A program of 12 MB that only the first host has: it puts values, passes barriers, and writes.
fn program(cluster: &Cluster) -> Option<&'static str> {
    const PROGRAM: &str = "/run/own/phases";
    let program = mpi::plain("connections", "phases")?;
    let to = cluster.root(0).join(&PROGRAM[1..]);
    std::fs::create_dir_all(to.parent().expect("a folder")).expect("made");
    copy_program(&program, &to);
    let mut longer = std::process::Command::new("truncate");
    run(longer.args(["-s", "12M", "--"]).arg(&to)).expect(0);
    Some(PROGRAM)
}

/// An application of all hosts that writes until it is let go.
fn starts(cluster: &Cluster, program: &str, nids: &str, folder: &Path) -> Running {
    std::fs::create_dir(folder).expect("made");
    let (pes, folder) = (2 * HOSTS, folder.display());
    let line = format!("-q -n {pes} --flexible -L {nids} {program} {folder} 100 7");
    Running::start(cluster.command(0, "aprun", words(&line)).stdin(Stdio::null()))
}

fn are_wired(folder: &Path) -> bool {
    (0..2 * HOSTS).all(|rank| folder.join(format!("wired.{rank}")).exists())
}

#[test]
fn hosts_have_one_connection_in_each_direction() {
    let test = "connections::hosts_have_one_connection_in_each_direction";
    if !may_be(test) {
        return;
    }
    let cluster = Cluster::start(HOSTS, 2);
    cluster.set("fan_out=2");
    let Some(program) = program(&cluster) else { return };
    let mut links = Vec::new();
    // One for itself, and one for its users.
    eventually(BOUND, "all apinits have connected", || {
        links = (1..HOSTS).map(|host| opened(&cluster, host, PSCHED)).collect();
        links.iter().all(|of| of.len() == 2)
    });
    let at = |name: &str| cluster.folder().join(name);
    // While a copy of the program comes, at the barriers, and while PEs write.
    let (first, mut all) = (starts(&cluster, program, EVEN, &at("first")), BTreeSet::new());
    eventually(BOUND, "all PEs have passed their barriers", || {
        let now = between(&cluster);
        one_each(&now);
        all.extend(now);
        are_wired(&at("first"))
    });
    one_each(&all);
    let tree = between(&cluster);
    // The head reaches the third host through the second; a copy is fetched, so that has the other direction.
    let third = format!("{NETWORK}.3:{APINIT}");
    let led = tree.iter().filter(|(_, _, to)| *to == third).map(|(from, ..)| *from);
    assert_eq!(led.collect::<Vec<_>>(), [1], "{tree:?}");
    let fetched = tree.iter().filter(|(from, ..)| *from == 2).count();
    assert_eq!(fetched, 1, "the third host has fetched no copy: {tree:?}");
    // A second application beside it, whose head is the same, and a signal to all of both.
    let second = starts(&cluster, program, "1,3,5,7", &at("second"));
    eventually(BOUND, "the second one writes, too", || are_wired(&at("second")));
    let mut kill = cluster.command(0, "apkill", ["-s", "URG"]);
    run(kill.args(cluster.wait_for("running", 2).iter().map(u64::to_string))).expect(0);
    assert_eq!(between(&cluster), tree, "others for a second application");
    for (running, name) in [(first, "first"), (second, "second")] {
        std::fs::write(at(name).join("go"), "").expect("written");
        running.wait(BOUND).expect(7);
    }
    cluster.wait_until_up();
    // What is kept is kept for the next one.
    assert_eq!(between(&cluster), tree, "after the end of all applications");
    run(&mut cluster.command(0, "aprun", words(&format!("-q -n 8 --flexible -L {EVEN} true"))))
        .expect(0);
    assert_eq!(between(&cluster), tree, "for a third application");
    // (An apinit has one connection to psched for itself, and one for its users, if any.)
    let now: Vec<_> = (1..HOSTS).map(|host| opened(&cluster, host, PSCHED)).collect();
    assert_eq!(now, links, "to psched");
}

/// What a user of another host asks of an apinit, and images of his checkpoints, go over one connection of his: not over
/// that of the apinits, which would wait for him where he does not read.
#[test]
fn a_user_has_one_connection_to_a_host_for_all_that_he_asks() {
    let test = "connections::a_user_has_one_connection_to_a_host_for_all_that_he_asks";
    if !may_be(test) {
        return;
    }
    let Some(criu) = criu(test) else { return };
    let cluster = Cluster::start_with(2, 1, Some(criu.program().to_owned()));
    let dir = cluster.folder().join("tonight").display().to_string();
    let starts = || {
        let arguments = words("-q -b -n 1 -L 1 sh -c").chain(["while :; do sleep 0.01; done"]);
        Running::start(&mut cluster.command(0, "aprun", arguments))
    };
    let apruns = [starts(), starts()];
    let apids = cluster.wait_for("running", 2);
    let before = between(&cluster);
    assert_eq!(before.iter().filter(|(from, ..)| *from == 0).count(), 1, "{before:?}");
    let cpr = |line: &str| Running::start(&mut cluster.command(0, "cpr", words(line)));
    cpr(&format!("-c {dir} -k -p {}", apids[0])).wait(BOUND).expect(0);
    assert_eq!(between(&cluster), before, "images come");
    let again = cpr(&format!("-r {dir} --output {dir}.out"));
    eventually(BOUND, "it is restored", || {
        assert_eq!(between(&cluster), before, "images go");
        let all = cluster.apstat("-a");
        let mut rows = all["applications"].as_array().expect("a list").iter();
        rows.any(|row| row["state"] == "running" && row["apid"].as_u64() > Some(apids[1]))
    });
    let running = cluster.wait_for("running", 2);
    let line = ["-9".to_owned()].into_iter().chain(running.iter().map(u64::to_string));
    run(&mut cluster.command(0, "apkill", line)).expect(0);
    again.wait(BOUND).expect(137);
    for aprun in apruns {
        aprun.wait(BOUND).expect(137);
    }
    cluster.wait_until_up();
    assert_eq!(between(&cluster), before, "after the end of all applications");
}
