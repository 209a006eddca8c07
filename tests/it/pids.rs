//! `apstat -A APID --pids`: the process of each PE, as its host numbers it.

use crate::support::hand::Hand;
use crate::support::hosts::{Cluster, may_be};
use crate::support::users::{self, ANNA, BERT};
use crate::support::*;
use serde_json::Value;
use std::process::Command;

/// Rank, NID, host, pid (0: none) and state.
type Row = (u64, u64, String, i32, String);

fn rows(report: &Value) -> Vec<Row> {
    let row = |row: &Value| {
        let number = |name: &str| row[name].as_u64().unwrap_or(0);
        let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
        (number("rank"), number("nid"), text("host"), number("pid") as i32, text("state"))
    };
    report["processes"].as_array().expect("a list").iter().map(row).collect()
}

/// A variable of a process's environment.
fn variable(pid: i32, name: &str) -> Option<String> {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
    let all = environment.split(|byte| *byte == 0);
    let value = |item: &[u8]| item.strip_prefix(name.as_bytes())?.strip_prefix(b"=").map(Vec::from);
    String::from_utf8(all.into_iter().find_map(value)?).ok()
}

/// What a debugger that attaches finds: the rank that the program has, if there is a debugger.
pub fn rank_by_gdb(mut gdb: Command, pid: i32) -> Option<u64> {
    gdb.args(["-nx", "-q", "-batch", "-ex", "print own_rank", "-ex", "bt", "-p", &pid.to_string()]);
    let said = gdb.output().ok()?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.contains("waits_here"), "no symbols: {said}");
    said.lines().find_map(|line| line.strip_prefix("$1 = ")).and_then(|rank| rank.parse().ok())
}

#[test]
fn the_process_of_each_rank_is_named() {
    let name = "pids::the_process_of_each_rank_is_named";
    let Some(program) = mpi::built_plain("pids", "rank", &["-g"]) else { return };
    let instance = Plan::new().nodes(2, 2).start();
    let mut command = instance.command("aprun", ["-q", "-n", "4", "-N", "2"]);
    let running = Running::start(command.arg(&program).arg("2"));
    let apid = instance.wait_for("running", 1)[0];
    let asks = format!("-A {apid} --pids");
    let mut found = Vec::new();
    eventually(BOUND, "PE 2 has ended, and no other", || {
        found = rows(&instance.apstat(&asks));
        found.iter().filter(|row| row.4 == "ended").count() == 1
    });
    let own = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("Linux has one");
    for (at, (rank, nid, host, pid, state)) in found.iter().enumerate() {
        assert_eq!((*rank, *nid, host.as_str()), (at as u64, at as u64 / 2, own.trim()));
        match rank {
            2 => assert_eq!((*pid, state.as_str()), (0, "ended")),
            _ => {
                assert_eq!(state, "runs");
                assert_eq!(variable(*pid, "ALPS_APP_PE"), Some(rank.to_string()));
                let exe = std::fs::read_link(format!("/proc/{pid}/exe")).expect("it lives");
                assert_eq!(exe, std::fs::canonicalize(&program).expect("it is there"));
            }
        }
    }
    assert_eq!(found.len(), 4);
    let debugger = Command::new("gdb").arg("--version").output().is_ok();
    for row in found.iter().filter(|row| debugger && row.3 > 0) {
        assert_eq!(rank_by_gdb(Command::new("gdb"), row.3), Some(row.0), "{name}");
    }
    let text = instance.run("apstat", words(&asks)).expect(0).out();
    assert!(text.contains(&format!("Processes of application {apid}\n")), "{text}");
    assert!(text.contains("Rank NID Host") && text.contains("- ended"), "{text}");
    instance.run("apkill", ["-9", &apid.to_string()]).expect(0);
    running.wait(BOUND).expect(137);
    let ended = instance.run("apstat", words(&asks)).expect(1);
    assert!(ended.stderr.contains(&format!("application {apid} has ended")), "{}", ended.stderr);
    instance.run("apstat", ["-A", "999", "--pids"]).expect(1).says("there is no application 999");
}

#[test]
fn a_posting_that_waits_has_no_processes_yet() {
    let instance = Plan::new().nodes(1, 1).start();
    let first = instance.start_script("-q -n 1", "exec sleep 1000");
    let running = instance.wait_for("running", 1)[0];
    let second = instance.start_script("-q -n 1", "exec sleep 1000");
    let posted = instance.wait_for("posted", 1)[0];
    let asked = instance.run("apstat", words(&format!("-A {posted} --pids"))).expect(1);
    let expected = format!("application {posted} has no processes yet: it is posted");
    assert!(asked.stderr.contains(&expected), "{}", asked.stderr);
    let both = [running, posted].map(|apid| apid.to_string());
    instance.run("apkill", ["-9"].into_iter().chain(both.iter().map(String::as_str))).expect(0);
    for running in [first, second] {
        running.wait(BOUND);
    }
}

/// Pids are numbers that a hostile user could do little with; whose they are he is not told all the same.
#[test]
fn only_the_owner_and_administrators_are_told() {
    let one = "nodes:\n  - { nids: 0, processors: 2, flavors: [su, os, ap] }\n";
    let Some((hand, bins)) = users::daemons("pids::only_the_owner_is_told", one, "0") else {
        return;
    };
    let mut command =
        ANNA.command(bins.path("aprun"), words("-q sh -c").chain(["exec sleep 1000"]));
    let running = Running::start(command.env("PSCHED_SOCKET", hand.socket()));
    let apid = hand.wait_for("running", 1)[0];
    let asks = |user: Option<users::User>| {
        let line = format!("-A {apid} --pids --json");
        let mut command = match user {
            Some(user) => user.command(bins.path("apstat"), words(&line)),
            None => hand.command("apstat", words(&line)),
        };
        run(command.env("PSCHED_SOCKET", hand.socket()))
    };
    for user in [Some(ANNA), None] {
        let told = asks(user).expect(0);
        let report = serde_json::from_slice(&told.stdout).expect("JSON");
        let found = rows(&report);
        assert_eq!((found.len(), found[0].4.as_str()), (1, "runs"));
        assert_eq!(variable(found[0].3, "ALPS_APP_ID"), Some(apid.to_string()));
    }
    asks(Some(BERT)).expect(1).says("only that user and administrators are shown its processes");
    let mut command = ANNA.command(bins.path("apkill"), ["-9", &apid.to_string()]);
    run(command.env("PSCHED_SOCKET", hand.socket())).expect(0);
    running.wait(BOUND).expect(137);
    hand.end();
}

/// An apinit that is stopped, and an apshepherd: what is not known is said, with why, in bounded time.
#[test]
fn what_does_not_answer_is_named() {
    let mut instance = Plan::new().nodes(1, 1).start();
    let running = instance.start_script("-q -n 1", "exec sleep 1000");
    let apid = instance.wait_for("running", 1)[0];
    let asks = format!("-A {apid} --pids");
    let apinit = instance.daemon("apinit");
    let shepherd = children(apinit).into_iter().find(|(_, name)| name == "apshepherd");
    for pid in [apinit, shepherd.expect("a child of apinit").0] {
        kill(pid, 19);
        let report = instance.apstat(&asks);
        kill(pid, 18);
        let found = rows(&report);
        assert_eq!((found[0].3, found[0].4.as_str()), (0, "unknown"), "{report}");
        let notice = report["notices"][0].as_str().unwrap_or_default();
        assert!(notice.starts_with("NID 0: no answer for 5 s"), "{report}");
        eventually(BOUND, "it answers again", || rows(&instance.apstat(&asks))[0].3 > 0);
    }
    // And who asks too much at once is told so. (The fifth finds four questions that wait.)
    kill(apinit, 19);
    let asked: Vec<Running> =
        (0..8).map(|_| Running::start(&mut instance.command("apstat", words(&asks)))).collect();
    let ends: Vec<Run> = asked.into_iter().map(|asked| asked.wait(BOUND)).collect();
    kill(apinit, 18);
    let refused = ends.iter().filter(|run| run.status == 1).collect::<Vec<_>>();
    assert!(refused.iter().all(|run| run.stderr.contains("you have 4 questions")), "{refused:?}");
    assert!(!refused.is_empty() && refused.len() <= 4, "{refused:?}");
    instance.run("apkill", ["-9", &apid.to_string()]).expect(0);
    running.wait(BOUND).expect(137);
    instance.end(15);
}

#[test]
fn a_user_on_another_host_is_told_too() {
    if !may_be("pids::a_user_on_another_host_is_told_too") {
        return;
    }
    let cluster = Cluster::start(2, 1);
    let line = words("-q -n 2 -N 1 sh -c").chain(["echo $$; exec sleep 1000"]);
    let running = Running::start(&mut cluster.command(0, "aprun", line));
    let apid = cluster.wait_for("running", 1)[0];
    let asks = format!("-A {apid} --pids --json");
    for host in [0, 1] {
        let told = run(&mut cluster.command(host, "apstat", words(&asks))).expect(0);
        let found = rows(&serde_json::from_slice(&told.stdout).expect("JSON"));
        let hosts: Vec<(u64, &str)> = found.iter().map(|row| (row.0, row.2.as_str())).collect();
        assert_eq!(hosts, [(0, "h0"), (1, "h1")]);
        for (rank, _, _, pid, _) in found {
            assert_eq!(variable(pid, "ALPS_APP_PE"), Some(rank.to_string()));
        }
    }
    run(&mut cluster.command(0, "apkill", ["-9", &apid.to_string()])).expect(0);
    running.wait(BOUND).expect(137);
}

/// PEs beyond one answer come with the next. (Those of faked hosts are no processes.)
#[test]
fn a_large_application_comes_in_pages() {
    let nodes = "nodes:\n  - { nids: 0, processors: 3000, flavors: [su, os, ap] }\n  \
                 - { nids: 1, processors: 3000 }\n";
    let hand = Hand::start_faked(nodes, 2, "0-1");
    let running = Running::start(&mut hand.command("aprun", words("-q -n 5000 sleep 1000")));
    let apid = hand.wait_for("running", 1)[0];
    let report = hand.apstat(&format!("-A {apid} --pids"));
    let found = rows(&report);
    assert!((0..5000).eq(found.iter().map(|row| row.0)));
    assert!(found.iter().all(|row| row.3 == 0 && row.4 == "unknown"));
    let notices = report["notices"].as_array().expect("a list").clone();
    let why = "its host is faked: its PEs are no processes";
    let on = ["NID 0", "NIDs 0-1", "NID 1"].map(|nids| format!("{nids}: {why}"));
    assert!(notices.iter().all(|told| on.iter().any(|one| told == one)), "{report}");
    run(&mut hand.command("apkill", ["-9", &apid.to_string()])).expect(0);
    running.wait(BOUND);
    hand.end();
}
