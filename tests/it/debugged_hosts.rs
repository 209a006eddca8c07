//! What looks into PEs, on another host than aprun's: stacks of those that die (`aprun -g`),
//! `--strace`, and a debugger that attaches to a PE which executes a copy of its program.

use crate::pids::rank_by_gdb;
use crate::support::hosts::{Cluster, may_be};
use crate::support::*;
use std::process::Command;

#[test]
fn pes_of_another_host_are_looked_into() {
    let test = "debugged_hosts::pes_of_another_host_are_looked_into";
    if !may_be(test) {
        return;
    }
    for (program, option) in [("gdb", "--version"), ("strace", "-V"), ("cc", "--version")] {
        if !Command::new(program).arg(option).output().is_ok_and(|output| output.status.success()) {
            return skip(test, &format!("{program} is not installed (apt-get install {program})"));
        }
    }
    let cluster = Cluster::start(2, 1);
    let folder = cluster.folder();
    let read = |name: &str| {
        let path = folder.join(name);
        std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    };
    // (A command that enters a host's mounts is in no folder of them.)
    let aprun = |options: &str, program: &[&str]| {
        let mut command = cluster.on(0, "env".as_ref());
        command.arg("-C").arg(folder).arg(binaries().join("aprun")).args(words(options));
        command.args(program).env_remove("PSCHED_SOCKET").env_remove("PSCHED_LOG");
        command
    };
    // The PE of the other host dies by a signal.
    let fall = mpi::built_plain(test, "fall", &["-g"]).expect("cc is there");
    copy_program(fall, folder.join("fall"));
    let ran = run(&mut aprun("-g -n 2 -N 1", &["./fall", "fall", "sleep"])).expect(139);
    assert!(ran.stderr.contains("left the stacks of PEs"), "{}", ran.stderr);
    let stack = read("fall.1.1.stack");
    for word in ["SIGSEGV", " in falls_over (by", "=7) at ", " in main "] {
        assert!(stack.contains(word), "{word:?} is not in {stack}");
    }
    assert!(!folder.join("fall.1.0.stack").exists(), "PE 0 has not died by itself");
    cluster.wait_until_up();
    // Each has its file of strace.
    let script = "echo PE $ALPS_APP_PE on $(hostname)";
    let mut traced = aprun("-q -n 2 -N 1", &["--strace", "-e trace=write", "sh", "-c", script]);
    assert_eq!(run(&mut traced).expect(0).sorted(), ["PE 0 on h0", "PE 1 on h1"]);
    for rank in [0, 1] {
        let text = read(&format!("sh.2.{rank}.strace"));
        assert!(text.contains(&format!("write(1, \"PE {rank} on h{rank}\\n\"")), "{text}");
        assert!(text.ends_with("+++ exited with 0 +++\n"), "{text}");
    }
    cluster.wait_until_up();
    // The program is on the first host alone, and the other one executes a copy.
    let program = mpi::built_plain(test, "rank", &["-g"]).expect("cc is there");
    let own = cluster.root(0).join("run/own");
    std::fs::create_dir(&own).expect("made");
    copy_program(program, own.join("rank"));
    let sleeps = Running::start(&mut aprun("-q -n 2 -N 1", &["/run/own/rank", "2"]));
    let apid = cluster.wait_for("running", 1)[0];
    let mut pids = Vec::new();
    eventually(BOUND, "both PEs have processes", || {
        let report = cluster.apstat(&format!("-A {apid} --pids"));
        let rows = report["processes"].as_array().expect("a list").iter();
        pids = rows.filter_map(|row| i32::try_from(row["pid"].as_i64()?).ok()).collect();
        pids.iter().filter(|pid| **pid > 0).count() == 2
    });
    let executes = |pid: i32| std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    eventually(BOUND, "the other host executes a copy", || {
        executes(pids[1]).starts_with("/run/psched/programs-1")
    });
    for (rank, pid) in pids.iter().enumerate() {
        let mut attached = None;
        eventually(BOUND, "its program has begun", || {
            attached = rank_by_gdb(cluster.on(rank, "gdb".as_ref()), *pid);
            attached.is_some()
        });
        assert_eq!(attached, Some(rank as u64), "{}", executes(*pid).display());
    }
    run(&mut cluster.command(0, "apkill", ["-9", &apid.to_string()])).expect(0);
    sleeps.wait(BOUND).expect(137);
    cluster.wait_until_up();
}
