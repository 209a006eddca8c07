//! `apstat --stacks APID`: where the threads of PEs stand that run, and go on.

use crate::support::hand::Hand;
use crate::support::hosts::{Cluster, may_be};
use crate::support::users::{self, ANNA, BERT, Bins, User};
use crate::support::*;
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Two threads that stand in functions of their own, until the file of its argument is there. With another argument
/// the first of them does not sleep; or it is none of main's, which leaves.
const SOURCE: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int busy;
__attribute__((noinline)) void second_waits(void) { for (;;) pause(); }
static void *second(void *nothing) { second_waits(); return nothing; }
__attribute__((noinline)) void first_waits(const char *end) { while (access(end, F_OK)) if (!busy) usleep(2000); }

static void *first(void *end) {
    first_waits(end);
    printf("done %s\n", getenv("ALPS_APP_PE"));
    exit(0);
}

int main(int count, char **words) {
    pthread_t thread;
    busy = count > 2 && words[2][0] == 'b';
    if (count < 2 || pthread_create(&thread, 0, second, 0)) return 3;
    if (count < 3 || busy) first(words[1]);
    if (pthread_create(&thread, 0, first, words[1])) return 3;
    pthread_exit(0);
}
"#;

/// The program, in this folder; `None`: the test is skipped.
fn program(test: &str, folder: &Path) -> Option<PathBuf> {
    let there = |name: &str| {
        Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success())
    };
    if !there("gdb") || !there("cc") {
        skip(test, "gdb or cc is not installed (apt-get install gdb gcc)");
        return None;
    }
    let (source, program) = (folder.join("waits.c"), folder.join("waits"));
    std::fs::write(&source, SOURCE).expect("written");
    run(Command::new("cc").args(["-g", "-O1", "-pthread", "-o"]).arg(&program).arg(&source))
        .expect(0);
    Some(program)
}

/// Starts it; it ends when `end` is there.
fn start(mut aprun: Command, program: &Path, end: &Path) -> Running {
    Running::start(aprun.arg(program).arg(end))
}

/// It goes on, and ends by itself, all PEs and without a word.
#[track_caller]
fn goes_on(running: Running, end: &Path, pes: u32) {
    std::fs::write(end, "").expect("written");
    let run = running.wait(BOUND).expect(0);
    let expected: Vec<String> = (0..pes).map(|rank| format!("done {rank}")).collect();
    assert_eq!((run.sorted(), run.stderr.as_str()), (expected, ""));
}

/// The PEs of a report: rank, stacks, and why there are none.
fn rows(run: &Run) -> Vec<(u64, String, String)> {
    let report: Value = serde_json::from_slice(&run.stdout).expect("JSON");
    let text = |row: &Value, name: &str| row[name].as_str().unwrap_or_default().to_owned();
    let row = |row: &Value| {
        (row["rank"].as_u64().expect("a number"), text(row, "stacks"), text(row, "why"))
    };
    report["pes"].as_array().expect("a list").iter().map(row).collect()
}

fn whole(stacks: &str) -> bool {
    let both = [" in first_waits (", " in second_waits (", "Thread 2 (", "Thread 1 ("];
    both.iter().all(|word| stacks.contains(word))
}

/// Asks for stacks, and stops the debugger while it holds its PE. Returns the process of the debugger. Asks again if
/// the debugger has let go before it was stopped, or had not taken each thread: a signal that stops the process waits
/// only if no thread is free to take it.
fn ask_and_hold(command: &mut Command, program: &Path) -> (Running, i32) {
    let begun = Instant::now();
    while begun.elapsed() < BOUND {
        let asked = Running::start(command);
        let mut found = None;
        while found.is_none() && begun.elapsed() < BOUND {
            found = tracer_of(program);
        }
        let debugger = found.expect("no debugger comes");
        let send = |signal| {
            let _ = signal::kill(Pid::from_raw(debugger), signal);
        };
        send(Signal::SIGSTOP);
        let stands = || !matches!(state(debugger).as_deref(), Some("R" | "S" | "D"));
        eventually(BOUND, "the debugger stands", stands);
        if tracer_of(program) == Some(debugger) {
            return (asked, debugger);
        }
        send(Signal::SIGCONT);
        asked.wait(BOUND);
    }
    panic!("no debugger is slow enough");
}

/// What traces each thread of the PE of this program, all of them stopped for it.
fn tracer_of(program: &Path) -> Option<i32> {
    let runs_it = |pid: &i32| {
        let exe = std::fs::read_link(format!("/proc/{pid}/exe"));
        exe.is_ok_and(|exe| exe == program)
    };
    let tracer = |task: PathBuf| {
        let status = std::fs::read_to_string(task.join("status")).ok()?;
        let field = |name| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let stopped = field("State:")?.starts_with('t');
        field("TracerPid:")?.parse::<i32>().ok().filter(|tracer| stopped && *tracer > 0)
    };
    let of_all = |pid: i32| {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
        let mut tracers = tasks.flatten().map(|task| tracer(task.path()));
        let first = tracers.next()??;
        tracers.all(|other| other == Some(first)).then_some(first)
    };
    pids().filter(runs_it).find_map(of_all)
}

/// The control group of a process, as the kernel names it.
fn group(pid: i32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default()
}

/// Whether that is frozen; `None`: there is none of version 2.
fn frozen(pid: i32) -> Option<bool> {
    let groups = group(pid);
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let file = |root: &str| std::fs::read_to_string(format!("{root}{path}/cgroup.freeze")).ok();
    let text = file("/sys/fs/cgroup/unified").or_else(|| file("/sys/fs/cgroup"))?;
    Some(text.trim() == "1")
}

/// The process of rank 0.
fn process(instance: &Instance, apid: &str) -> i32 {
    let report = instance.apstat(&format!("-A {apid} --pids"));
    report["processes"][0]["pid"].as_u64().expect("it runs") as i32
}

/// For longer than a PE is looked at after its debugger, it is stopped.
#[track_caller]
fn stays_stopped(pid: i32) {
    eventually(BOUND, "it is stopped", || state(pid).as_deref() == Some("T"));
    let begun = Instant::now();
    eventually(BOUND, "time goes by", || {
        assert_eq!(state(pid).as_deref(), Some("T"), "after {:?}", begun.elapsed());
        begun.elapsed() > Duration::from_millis(2_500)
    });
}

fn state(pid: i32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(stat.rsplit_once(')')?.1.trim().chars().take(1).collect())
}

#[test]
fn every_thread_of_every_pe_is_shown_and_goes_on() {
    let test = "live_stacks::every_thread_of_every_pe_is_shown_and_goes_on";
    let instance = Plan::new().nodes(2, 2).start();
    let Some(program) = program(test, &instance.directory()) else { return };
    let end = instance.directory().join("end");
    let running = start(instance.command("aprun", words("-n 4 -N 2 -q")), &program, &end);
    let apid = instance.wait_for("running", 1)[0].to_string();
    let report = instance.apstat(&format!("-A {apid} --pids"));
    let host = report["processes"][0]["host"].as_str().expect("text").to_owned();
    let text = instance.run("apstat", ["--stacks", &apid]).expect(0).out();
    let sections: Vec<&str> = text.split("\n\n").filter(|s| s.starts_with("PE ")).collect();
    let headings: Vec<&str> = text.lines().filter(|line| line.starts_with("PE ")).collect();
    let expected: Vec<String> = (0..4)
        .map(|rank| {
            let pid = &report["processes"][rank]["pid"];
            format!("PE {rank}, NID {}, host {host}, pid {pid}", rank / 2)
        })
        .collect();
    assert_eq!((headings, sections.len()), (expected.iter().map(String::as_str).collect(), 4));
    // And again, as often as one likes.
    for _ in 0..3 {
        let told = instance.run("apstat", ["--stacks", &apid, "--json"]).expect(0);
        let rows = rows(&told);
        assert_eq!(rows.iter().map(|row| row.0).collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert!(rows.iter().all(|row| whole(&row.1) && row.2.is_empty()), "{rows:?}");
    }
    goes_on(running, &end, 4);
    let ended = instance.run("apstat", ["--stacks", &apid]).expect(1);
    assert!(ended.stderr.contains(&format!("application {apid} has ended")), "{}", ended.stderr);
    instance.run("apstat", ["--stacks", "999"]).expect(1).says("there is no application 999");
}

/// The debugger is the user's and has no right more, and nobody else may ask.
#[test]
fn it_is_the_owners_and_only_the_owner_and_administrators_are_told() {
    let test = "live_stacks::only_the_owner_is_told";
    let one = "nodes:\n  - { nids: 0, processors: 2, flavors: [su, os, ap] }\n";
    let Some((hand, bins)) = users::daemons(test, one, "0") else { return };
    let folder = ANNA.folder();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).expect("ours");
    let Some(program) = program(test, folder.path()) else { return };
    let end = folder.path().join("end");
    let mut aprun = ANNA.command(bins.path("aprun"), words("-n 1 -q"));
    aprun.env("PSCHED_SOCKET", hand.socket());
    let running = start(aprun, &program, &end);
    let apid = hand.wait_for("running", 1)[0].to_string();
    let asks = |user: Option<User>| {
        let line = ["--stacks", &apid, "--json"];
        let mut command = match user {
            Some(user) => user.command(bins.path("apstat"), line),
            None => hand.command("apstat", line),
        };
        command.env("PSCHED_SOCKET", hand.socket());
        command
    };
    for user in [Some(ANNA), None] {
        let rows = rows(&run(&mut asks(user)).expect(0));
        assert!(rows.len() == 1 && whole(&rows[0].1), "{rows:?}");
    }
    run(&mut asks(Some(BERT)))
        .expect(1)
        .says("only that user and administrators are shown its stacks");
    // Also where an administrator has asked.
    let (asked, debugger) = ask_and_hold(&mut asks(None), &program);
    let status = std::fs::read_to_string(format!("/proc/{debugger}/status")).expect("it lives");
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("there");
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let (uid, gid) = (ANNA.uid.to_string(), ANNA.gid.to_string());
    assert_eq!((field("Uid:"), field("Gid:")), (vec![uid; 4], vec![gid; 4]));
    assert_eq!((field("CapEff:"), field("CapPrm:")), (vec!["0".repeat(16)], vec!["0".repeat(16)]));
    // It is frozen with its PE, and has the limits of that.
    let pe = pids()
        .find(|pid| std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == program));
    assert_eq!(group(debugger), group(pe.expect("it runs")));
    // It works for longer than from one look to the next for what is not where it belongs.
    let begun = Instant::now();
    eventually(BOUND, "time goes by", || begun.elapsed() > Duration::from_millis(3_500));
    assert_eq!(state(debugger).as_deref(), Some("T"));
    kill(debugger, 18);
    assert!(whole(&rows(&asked.wait(BOUND).expect(0))[0].1));
    assert!(!hand.said().contains("outside of the control group"), "{}", hand.said());
    goes_on(running, &end, 1);
    hand.end();
}

/// A debugger that dies, and an apstat that does, at whatever moment: the program goes on.
#[test]
fn a_debugger_that_is_killed_and_an_apstat_that_is_change_nothing() {
    let test = "live_stacks::a_debugger_that_is_killed_and_an_apstat_that_is_change_nothing";
    let instance = Plan::new().nodes(1, 2).start();
    let Some(program) = program(test, &instance.directory()) else { return };
    let end = instance.directory().join("end");
    let running = start(instance.command("aprun", words("-n 1 -q")), &program, &end);
    let apid = instance.wait_for("running", 1)[0].to_string();
    let pid = process(&instance, &apid);
    let mut command = instance.command("apstat", ["--stacks", &apid, "--json"]);
    let runs = |what: &str| {
        eventually(BOUND, what, || state(pid).is_some_and(|state| state == "S" || state == "R"));
    };
    for _ in 0..10 {
        let (asked, debugger) = ask_and_hold(&mut command, &program);
        kill(debugger, 9);
        let why = rows(&asked.wait(BOUND).expect(1))[0].2.clone();
        assert!(why.contains("gdb was killed by signal 9"), "{why}");
        runs("it goes on after the debugger");
    }
    // ^C: the debugger, which would work for 20 seconds, ends, and so does the question, which would have a
    // place for 30: a user has eight on a host.
    for _ in 0..10 {
        let (asked, debugger) = ask_and_hold(&mut command, &program);
        assert_eq!(group(debugger), group(pid));
        kill(asked.pid(), 2);
        asked.wait(BOUND);
        eventually(Duration::from_secs(8), "the debugger ends", || state(debugger).is_none());
        runs("it goes on after apstat");
    }
    // An apinit that is killed: whoever asks hears it, and nothing is left of the debugger.
    let (asked, debugger) = ask_and_hold(&mut command, &program);
    kill(instance.daemon("apinit"), 9);
    let told = asked.wait(BOUND).expect(1);
    assert!(rows(&told)[0].2.contains("its apinit has just gone"), "{told:?}");
    eventually(BOUND, "the debugger ends", || state(debugger).is_none());
    runs("it goes on without its apinit");
    eventually(BOUND, "it can be asked again", || {
        let told = run(&mut command);
        told.status == 0 && whole(&rows(&told)[0].1)
    });
    goes_on(running, &end, 1);
}

/// A PE ends while its debugger stands: the application does not wait for that.
#[test]
fn an_end_does_not_wait_for_a_debugger() {
    let test = "live_stacks::an_end_does_not_wait_for_a_debugger";
    let instance = Plan::new().nodes(1, 2).start();
    let Some(program) = program(test, &instance.directory()) else { return };
    let end = instance.directory().join("end");
    let running = start(instance.command("aprun", words("-n 2 -q")), &program, &end);
    let apid = instance.wait_for("running", 1)[0].to_string();
    let mut asks = instance.command("apstat", ["--stacks", &apid, "--json"]);
    let (asked, debugger) = ask_and_hold(&mut asks, &program);
    let begun = Instant::now();
    instance.run("apkill", ["-9", &apid]).expect(0);
    let killed = running.wait(BOUND).expect(137);
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    assert!(!killed.stderr.contains("left"), "{}", killed.stderr);
    eventually(BOUND, "the debugger ends", || state(debugger).is_none());
    asked.wait(BOUND);
    instance.wait_until_free();
}

#[test]
fn a_gang_that_is_frozen_is_waited_for() {
    let test = "live_stacks::a_gang_that_is_frozen_is_waited_for";
    let instance = Plan::new().nodes(1, 2).shared().start();
    let Some(program) = program(test, &instance.directory()) else { return };
    instance.run("psmgr", words("set application.time_slice=1s")).expect(0);
    let ends: Vec<PathBuf> = (0..2).map(|i| instance.directory().join(format!("end{i}"))).collect();
    let spin = |end: &PathBuf| {
        let mut command = instance.command("aprun", words("-n 2 -q"));
        Running::start(command.arg(&program).arg(end).arg("busy"))
    };
    let both: Vec<Running> = ends.iter().map(spin).collect();
    let apids: Vec<String> = instance.wait_for("running", 2).iter().map(u64::to_string).collect();
    let command = |apid: &String| instance.command("apstat", ["--stacks", apid, "--json"]);
    for apid in apids.iter().chain(&apids) {
        let told = run(&mut command(apid)).expect(0);
        assert!(rows(&told).iter().all(|row| whole(&row.1)), "{told:?}");
    }
    instance.run("psmgr", words("set application.time_slice=50ms")).expect(0);
    for (running, end) in both.into_iter().zip(&ends) {
        goes_on(running, end, 2);
    }
}

/// A question waits for a PE that is stopped, and nothing works meanwhile: the turns of its gang are another's.
#[test]
fn a_question_that_waits_is_no_work_of_its_gang() {
    let test = "live_stacks::a_question_that_waits_is_no_work_of_its_gang";
    let instance = Plan::new().nodes(1, 1).shared().start();
    let Some(program) = program(test, &instance.directory()) else { return };
    let ends = ["end0", "end1"].map(|name| instance.directory().join(name));
    let busy = Running::start(
        instance.command("aprun", words("-n 1 -q")).arg(&program).arg(&ends[0]).arg("busy"),
    );
    let first = instance.wait_for("running", 1)[0];
    let waits = start(instance.command("aprun", words("-n 1 -q")), &program, &ends[1]);
    let both = instance.wait_for("running", 2);
    let second = both.iter().find(|apid| **apid != first).expect("two").to_string();
    let pid = process(&instance, &first.to_string());
    if frozen(pid).is_none() {
        skip(test, "there are no control groups");
        std::fs::write(&ends[0], "").expect("written");
        std::fs::write(&ends[1], "").expect("written");
        return;
    }
    let stopped = process(&instance, &second);
    instance.run("apkill", ["-s", "STOP", &second]).expect(0);
    eventually(BOUND, "it is stopped", || state(stopped).as_deref() == Some("T"));
    let asked = Running::start(&mut instance.command("apstat", ["--stacks", &second, "--json"]));
    let (begun, mut looks, mut stood) = (Instant::now(), 0, 0);
    eventually(BOUND, "time goes by", || {
        looks += 1;
        stood += u32::from(frozen(pid) == Some(true));
        begun.elapsed() > Duration::from_secs(4)
    });
    kill(asked.pid(), 2);
    asked.wait(BOUND);
    instance.run("apkill", ["-s", "CONT", &second]).expect(0);
    goes_on(busy, &ends[0], 1);
    goes_on(waits, &ends[1], 1);
    // (Of two that have work each stands half of the time.)
    assert!(stood * 3 < looks, "it stood at {stood} of {looks} looks");
}

#[test]
fn a_pe_that_stays_stopped_is_told_so() {
    let test = "live_stacks::a_pe_that_stays_stopped_is_told_so";
    let instance = Plan::new().nodes(1, 1).start();
    let Some(program) = program(test, &instance.directory()) else { return };
    let end = instance.directory().join("end");
    let running = start(instance.command("aprun", words("-n 1 -q")), &program, &end);
    let apid = instance.wait_for("running", 1)[0].to_string();
    let pid = process(&instance, &apid);
    instance.run("apkill", ["-s", "STOP", &apid]).expect(0);
    eventually(BOUND, "it is stopped", || state(pid).as_deref() == Some("T"));
    let told = instance.run("apstat", ["--stacks", &apid, "--json"]).expect(1);
    instance.run("apkill", ["-s", "CONT", &apid]).expect(0);
    goes_on(running, &end, 1);
    let why = &rows(&told)[0].2;
    assert!(why.starts_with("it has been stopped by a signal for 30 s"), "{why}");
}

/// A user stops a PE while a debugger works on it, and the debugger is killed: the PE stays stopped.
#[test]
fn a_stop_that_a_user_wants_outlives_a_debugger_that_is_killed() {
    let test = "live_stacks::a_stop_that_a_user_wants_outlives_a_debugger_that_is_killed";
    let instance = Plan::new().nodes(1, 1).start();
    let Some(program) = program(test, &instance.directory()) else { return };
    let end = instance.directory().join("end");
    let running = start(instance.command("aprun", words("-n 1 -q")), &program, &end);
    let apid = instance.wait_for("running", 1)[0].to_string();
    let pid = process(&instance, &apid);
    let mut command = instance.command("apstat", ["--stacks", &apid, "--json"]);
    let (asked, debugger) = ask_and_hold(&mut command, &program);
    instance.run("apkill", ["-s", "STOP", &apid]).expect(0);
    let waits = || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
        let line = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
        u64::from_str_radix(line.expect("there").trim(), 16).expect("a number") >> 18 & 1 == 1
    };
    eventually(BOUND, "the stop waits for it", waits);
    kill(debugger, 9);
    asked.wait(BOUND).expect(1);
    stays_stopped(pid);
    instance.run("apkill", ["-s", "CONT", &apid]).expect(0);
    eventually(BOUND, "it goes on", || state(pid).is_some_and(|state| state != "T"));
    // By any other program of the user's: that is seen while the debugger holds the PE.
    let (asked, debugger) = ask_and_hold(&mut command, &program);
    kill(pid, 19);
    let begun = Instant::now();
    eventually(BOUND, "time goes by", || begun.elapsed() > Duration::from_millis(500));
    kill(debugger, 9);
    asked.wait(BOUND).expect(1);
    stays_stopped(pid);
    kill(pid, 18);
    // Stopped no more, it is not left so by the next one.
    eventually(BOUND, "it goes on", || state(pid).is_some_and(|state| state != "T"));
    let (asked, debugger) = ask_and_hold(&mut command, &program);
    kill(debugger, 9);
    asked.wait(BOUND).expect(1);
    goes_on(running, &end, 1);
}

/// The main thread of a program has ended (pthread_exit), and others run.
#[test]
fn a_pe_without_its_main_thread_has_stacks() {
    let test = "live_stacks::a_pe_without_its_main_thread_has_stacks";
    let instance = Plan::new().nodes(1, 1).start();
    let Some(program) = program(test, &instance.directory()) else { return };
    let end = instance.directory().join("end");
    let mut aprun = instance.command("aprun", words("-n 1 -q"));
    let running = Running::start(aprun.arg(&program).arg(&end).arg("leaves"));
    let apid = instance.wait_for("running", 1)[0].to_string();
    let pid = process(&instance, &apid);
    eventually(BOUND, "its main thread ends", || state(pid).as_deref() == Some("Z"));
    let told = instance.run("apstat", ["--stacks", &apid, "--json"]).expect(0);
    let (_, stacks, why) = &rows(&told)[0];
    for function in [" in first_waits (", " in second_waits ("] {
        assert!(stacks.contains(function) && why.is_empty(), "{told:?}");
    }
    // A debugger of such a program is killed like any other.
    let threads = || std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let stands = || {
        let tids = threads().filter_map(|thread| thread.file_name().to_str()?.parse().ok());
        tids.filter_map(state).any(|state| state == "T" || state == "t")
    };
    eventually(BOUND, "all go on", || !stands());
    goes_on(running, &end, 1);
}

#[test]
fn a_pe_that_is_traced_already_is_named() {
    let test = "live_stacks::a_pe_that_is_traced_already_is_named";
    let instance = Plan::new().nodes(1, 2).start();
    let Some(program) = program(test, &instance.directory()) else { return };
    let end = instance.directory().join("end");
    for (options, by) in
        [("-g -q -n 2", "gdb (aprun -g)"), ("--strace -f -q -n 2", "strace (aprun --strace)")]
    {
        let _ = std::fs::remove_file(&end);
        let mut command = instance.command("aprun", words(options));
        command.current_dir(instance.directory());
        let running = start(command, &program, &end);
        let apid = instance.wait_for("running", 1)[0].to_string();
        let told = instance.run("apstat", ["--stacks", &apid]).expect(1);
        let line =
            format!(": no stacks: it is traced already by {by}, and a process has one tracer only");
        assert_eq!(told.out().lines().filter(|l| l.ends_with(&line)).count(), 2, "{told:?}");
        assert!(told.stderr.contains(&format!("no stacks of application {apid}")), "{told:?}");
        goes_on(running, &end, 2);
        instance.wait_until_free();
    }
}

#[test]
fn hosts_are_asked_and_one_without_a_debugger_is_named() {
    let test = "live_stacks::hosts_are_asked_and_one_without_a_debugger_is_named";
    if !may_be(test) {
        return;
    }
    let cluster = Cluster::start(2, 1);
    let Some(program) = program(test, cluster.folder()) else { return };
    let end = cluster.folder().join("end");
    let bins = Bins::new();
    let of_anna = |host: usize, name: &str, line: &str| {
        let mut command = cluster.on(host, "setpriv".as_ref());
        let uid = ANNA.uid.to_string();
        command.args(["--reuid", &uid, "--regid", &uid, "--clear-groups", "--"]);
        command.arg(bins.path(name)).args(words(line));
        command.env_remove("PSCHED_SOCKET").env_remove("PSCHED_LOG");
        command
    };
    let running = start(of_anna(1, "aprun", "-q -n 4 -N 2"), &program, &end);
    let apid = cluster.wait_for("running", 1)[0].to_string();
    for host in [0, 1] {
        let told = run(&mut of_anna(host, "apstat", &format!("--stacks {apid} --json"))).expect(0);
        let rows = rows(&told);
        assert!(rows.len() == 4 && rows.iter().all(|row| whole(&row.1)), "{told:?}");
    }
    for name in ["gdb", "eu-stack"] {
        let script = format!("test ! -e /usr/bin/{name} || mount --bind /dev/null /usr/bin/{name}");
        run(cluster.on(1, "sh".as_ref()).args(["-c", &script])).expect(0);
    }
    // (A process sees what is mounted in its own namespace: the apshepherd's is a copy of its host's.)
    std::fs::write(&end, "").expect("written");
    running.wait(BOUND).expect(0);
    std::fs::remove_file(&end).expect("ours");
    let running = start(of_anna(1, "aprun", "-q -n 4 -N 2"), &program, &end);
    let apid = cluster.wait_for("running", 1)[0].to_string();
    let told = run(&mut of_anna(0, "apstat", &format!("--stacks {apid} --json"))).expect(0);
    for (rank, stacks, why) in rows(&told) {
        match rank {
            0 | 1 => assert!(whole(&stacks) && why.is_empty(), "{told:?}"),
            _ => {
                assert!(why.contains("neither gdb nor eu-stack is on host h1"), "{why}");
                assert!(why.contains("install the package gdb there"), "{why}");
            }
        }
    }
    goes_on(running, &end, 4);
}

/// PEs beyond one answer come with the next. (Those of faked hosts are no processes.)
#[test]
fn a_large_application_comes_in_pages() {
    let nodes = "nodes:\n  - { nids: 0, processors: 600, flavors: [su, os, ap] }\n  \
                 - { nids: 1, processors: 600 }\n";
    let hand = Hand::start_faked(nodes, 2, "0-1");
    let running = Running::start(&mut hand.command("aprun", words("-q -n 1000 sleep 1000")));
    let apid = hand.wait_for("running", 1)[0].to_string();
    let told = run(&mut hand.command("apstat", ["--stacks", &apid, "--json"])).expect(1);
    let rows = rows(&told);
    assert!((0..1000).eq(rows.iter().map(|row| row.0)));
    assert!(rows.iter().all(|row| row.2 == "its host is faked: its PEs are no processes"));
    run(&mut hand.command("apkill", ["-9", &apid])).expect(0);
    running.wait(BOUND);
    hand.end();
}
