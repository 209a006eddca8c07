//! MPI programs, as Debian's mpicc.mpich builds them.

use crate::support::hosts;
use crate::support::mpi::program;
use crate::support::*;
use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;

/// An instance and a program in a place that its user can reach.
fn built(test: &str, name: &str) -> Option<String> {
    Some(program(test, name)?.to_str().expect("text").to_owned())
}

#[test]
fn a_ring_and_a_sum() {
    let Some(ring) = built("mpi::a_ring_and_a_sum", "ring") else { return };
    let instance = instance(2, 2);
    for options in ["-n 1", "-n 2", "-n 4", "-n 3 -N 2"] {
        let run = instance.aprun(words(&format!("-q {options}")).chain([ring.as_str()])).expect(0);
        let n: u32 = words(options).nth(1).expect("a width").parse().expect("a number");
        let expected: Vec<String> = (0..n)
            .map(|r| format!("rank {r} of {n} appnum 0 sum {} shared {n}", n * (n + 1) / 2))
            .collect();
        assert_eq!(run.sorted(), expected, "{options}");
    }
}

#[test]
fn a_ring_of_several_programs() {
    let test = "mpi::a_ring_of_several_programs";
    let (Some(ring), instance) = (built(test, "ring"), instance(2, 2)) else { return };
    // Another file, so that it is another program.
    let other = instance.directory().join("other");
    copy_program(&ring, &other);
    let other = other.to_str().expect("text");
    let line = ["-q", "-n", "1", &ring, ":", "-n", "2", other, ":", &ring];
    let run = instance.aprun(line).expect(0);
    let expected = [0, 1, 1, 2].iter().enumerate();
    let expected: Vec<String> = expected
        .map(|(rank, appnum)| format!("rank {rank} of 4 appnum {appnum} sum 10 shared 4"))
        .collect();
    assert_eq!(run.sorted(), expected);
}

#[test]
fn a_ring_across_two_apinits() {
    let Some(ring) = built("mpi::a_ring_across_two_apinits", "ring") else { return };
    // Each apinit would keep its part of the application to itself, and this MPICH's TCP, by which
    // the parts would then talk, hangs now and then at the end, under its own mpiexec too.
    let config = "nodes:\n  - { nids: 0-3, processors: 1, flavors: [su, os, ap] }\n\
         variables: { isolation: off }\n";
    let instance = Plan::new().config(config).arg("--apinits").arg("2").start();
    let run = instance.aprun(["-q", "-n", "4", &ring]).expect(0);
    // One host: all four share memory.
    let expected: Vec<String> =
        (0..4).map(|r| format!("rank {r} of 4 appnum 0 sum 10 shared 4")).collect();
    assert_eq!(run.sorted(), expected);
}

#[test]
fn an_abort_is_the_status() {
    let Some(abort) = built("mpi::an_abort_is_the_status", "abort") else { return };
    let instance = instance(1, 2);
    for (code, status) in [("3", 3), ("0", 1), ("256", 1), ("259", 3)] {
        let run = instance.aprun(["-n", "2", &abort, code]).expect(status);
        run.says(&format!("called MPI_Abort({code})"));
        instance.wait_until_free();
    }
}

#[test]
fn an_exit_without_finalize_ends_it() {
    let Some(leave) = built("mpi::an_exit_without_finalize_ends_it", "leave") else { return };
    let instance = instance(1, 2);
    for (code, status) in [("0", 1), ("5", 5)] {
        let run = instance.aprun(["-n", "2", &leave, code]).expect(status);
        run.says("without calling MPI_Finalize");
        instance.wait_until_free();
    }
}

#[test]
fn names_are_published() {
    let Some(names) = built("mpi::names_are_published", "names") else { return };
    let run = instance(1, 2).aprun(["-q", "-n", "2", &names]).expect(0);
    assert_eq!(run.sorted(), ["found", "taken back"], "{}", run.stderr);
}

/// They are kept at the host of PE 0. (With Debian's MPICH over TCP many ranks never come out of MPI_Finalize.)
#[test]
fn names_are_published_to_another_host() {
    let test = "mpi::names_are_published_to_another_host";
    if !hosts::may_be(test) {
        return;
    }
    let Some(names) = program(test, "names") else { return };
    let cluster = hosts::Cluster::start(2, 1);
    let mut command = cluster.command(0, "aprun", words("-q -n 4"));
    let run = run(command.arg(&names).arg("7")).expect(7);
    let mut lines = run.sorted();
    // (What the library says when the PEs of the other host have ended first.)
    lines.retain(|line| !line.contains(" UCX "));
    assert_eq!(lines, ["found", "taken back"], "{}", run.stderr);
    cluster.wait_until_up();
}

/// Some wrappers close what they were not told of: then the PEs meet by a port.
#[test]
fn by_a_port_they_meet_behind_what_closes_descriptors() {
    let test = "mpi::by_a_port_they_meet_behind_what_closes_descriptors";
    let Some(ring) = built(test, "ring") else { return };
    let instance = instance(2, 2);
    let close =
        "for fd in /proc/self/fd/*; do n=${fd##*/}; [ $n -le 2 ] || eval \"exec $n>&-\"; done";
    let script = format!("{close}; exec {ring}");
    let line = |options: &'static str| words(options).chain(["bash", "-c", &script]);
    let run = instance.aprun(line("-q --pmi=port -n 3")).expect(0);
    let lines = (0..3).map(|rank| format!("rank {rank} of 3 appnum 0 sum 6 shared 3"));
    assert_eq!(run.sorted(), lines.collect::<Vec<_>>(), "{}", run.stderr);
    // (It would be no test if they met without it.)
    assert_ne!(instance.aprun(line("-q --pmi=pmi1 -n 3")).status, 0);
    let Some(abort) = built(test, "abort") else { return };
    let run = instance.aprun(["--pmi=port", "-n", "2", &abort, "7"]).expect(7);
    run.says("called MPI_Abort(7)");
}

/// A PE that says `tells` in the words of a shell, waits for a file, and calls at the port: it runs, and has told this.
fn calls_at_the_port(instance: &Instance, tells: &str, go: &Path) -> (Running, String) {
    let told = instance.directory().join("told");
    let script = format!(
        "echo {tells} > {0}.new && mv {0}.new {0}; until [ -e {1} ]; do sleep 0.05; done; \
         exec 3<>/dev/tcp/127.0.0.1/${{PMI_PORT#*:}}; echo cmd=initack pmiid=$PMI_ID >&3; read line <&3; echo $line",
        told.display(),
        go.display(),
    );
    let line = words("-q --pmi=port -n 1").chain(["bash", "-c", &script]);
    let running = Running::start(&mut instance.command("aprun", line));
    eventually(BOUND, "it runs", || told.exists());
    let text = std::fs::read_to_string(&told).expect("read");
    (running, text)
}

/// Whoever guesses or knows the number of a PE is nobody if he is another user.
#[test]
fn a_stranger_at_the_port_is_not_heard() {
    let test = "mpi::a_stranger_at_the_port_is_not_heard";
    if !is_root() {
        return skip(test, "only root can become another user");
    }
    let instance = Plan::new().nodes(1, 2).for_user().start();
    let go = instance.directory().join("go");
    let (running, text) = calls_at_the_port(&instance, "$PMI_PORT $PMI_ID", &go);
    let (port, id) = text.trim().split_once(' ').expect("both");
    let connect = || {
        let stream = std::net::TcpStream::connect(port).expect("connected");
        stream.set_read_timeout(Some(BOUND)).expect("set");
        stream
    };
    for id in [id, "1"] {
        let mut stream = connect();
        stream.write_all(format!("cmd=initack pmiid={id}\n").as_bytes()).expect("written");
        let mut answer = String::new();
        match stream.read_to_string(&mut answer) {
            Ok(_) => {}
            // It was closed before all was read.
            Err(e) => assert_eq!(e.kind(), std::io::ErrorKind::ConnectionReset),
        }
        assert_eq!(answer, "");
    }
    // Many who say nothing are in nobody's way.
    let silent: Vec<_> = (0..500).map(|_| connect()).collect();
    std::fs::write(&go, "").expect("written");
    let run = running.wait(BOUND);
    assert_eq!(run.out(), "cmd=initack rc=0\n", "{}", run.stderr);
    drop(silent);
}

/// A PE that connects to the port waits while the apshepherd has no descriptors.
#[test]
fn an_apshepherd_without_descriptors_takes_its_pes_later() {
    let instance = instance(1, 1);
    let go = instance.directory().join("go");
    let (running, text) = calls_at_the_port(&instance, "$PPID ${PMI_PORT#*:}", &go);
    let (shepherd, port) = text.trim().split_once(' ').expect("both");
    let limit = |soft: u32| {
        let limit = format!("--nofile={soft}:");
        run(Command::new("prlimit").args(["--pid", shepherd, &limit])).expect(0);
    };
    // (There are some, but none behind those of PEs.)
    limit(32);
    std::fs::write(&go, "").expect("written");
    let port: u16 = port.parse().expect("a port");
    let waits = || {
        let table = std::fs::read_to_string("/proc/net/tcp").expect("read");
        let own = format!(" 0100007F:{port:04X} 00000000:0000 0A 00000000:00000001 ");
        table.contains(&own)
    };
    eventually(BOUND, "its PE waits at the port", waits);
    let told = || running.has_said("waits in MPI_Init: the port of PMI can't take it");
    eventually(BOUND, "its user is told", told);
    limit(1024);
    let run = running.wait(BOUND);
    assert_eq!(run.out(), "cmd=initack rc=0\n", "{}", run.stderr);
}

#[test]
fn spawning_is_refused_clearly() {
    let Some(spawn) = built("mpi::spawning_is_refused_clearly", "spawn") else { return };
    let instance = instance(1, 2);
    let run = instance.aprun(["-q", "-n", "1", &spawn]);
    assert_ne!(run.status, 0);
    assert!(run.stderr.to_lowercase().contains("spawn"), "{}", run.stderr);
    instance.wait_until_free();
}

#[test]
fn garbage_ends_that_application_and_nothing_else() {
    let instance = instance(1, 2);
    let other = instance.start_script("-q", "sleep 2; echo fine");
    instance.wait_for("running", 1);
    for garbage in ["cmd=nonsense x=1", "\\377\\377\\377", "cmd=put kvsname=\\001"] {
        let script = format!("eval \"printf '{garbage}\\n' >&$PMI_FD\"; exec sleep 1000");
        let mut command = instance.command("aprun", ["-n", "1", "bash", "-c"]);
        let run = run(command.arg(&script)).expect(1);
        assert!(run.stderr.contains("PMI"), "{garbage}: {}", run.stderr);
    }
    assert_eq!(other.wait(BOUND).expect(0).out(), "fine\n");
}

#[test]
fn without_pmi_each_is_a_world_of_its_own() {
    let Some(ring) = built("mpi::without_pmi_each_is_a_world_of_its_own", "ring") else { return };
    let instance = instance(1, 2);
    let run = instance.aprun(["-q", "--pmi=none", "-n", "2", &ring]).expect(0);
    let line = "rank 0 of 1 appnum 0 sum 1 shared 1";
    // A singleton may have no appnum at all.
    assert!(
        run.sorted().iter().all(|l| l.replace("appnum -1", "appnum 0") == line),
        "{}",
        run.out()
    );
    assert_eq!(run.sorted().len(), 2);
}

#[test]
fn an_ordinary_users_ranks_meet() {
    let name = "mpi::an_ordinary_users_ranks_meet";
    let Some(ring) = program(name, "ring") else { return };
    if !is_root() {
        return skip(name, "only root can become another user");
    }
    let instance = Plan::new().nodes(2, 1).for_user().start();
    let own = instance.directory().join("ring");
    copy_program(ring, &own);
    let run = instance.aprun(["-q", "-n", "2", own.to_str().expect("text")]).expect(0);
    assert_eq!(run.sorted().len(), 2, "{}", run.out());
}
