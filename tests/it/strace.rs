//! `aprun --strace`: each PE under strace, which nobody notices but whoever reads the files.

use crate::support::users::{self, ANNA, BERT};
use crate::support::*;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::Command;

/// Whether strace is here; the test is skipped, by name, where not.
fn is_there(test: &str) -> bool {
    let there = Command::new("strace").arg("-V").output().is_ok_and(|o| o.status.success());
    if !there {
        skip(test, "strace is not installed (apt-get install strace)");
    }
    there
}

/// A shell script in the instance's own directory, under strace with these options.
fn traced(instance: &Instance, options: &str, strace: &str, script: &str) -> Command {
    let line = words(options).chain(["--strace", strace, "/bin/sh", "-c", script]);
    let mut command = instance.command("aprun", line);
    command.current_dir(instance.directory());
    command
}

fn file(instance: &Instance, apid: u64, rank: u64) -> String {
    let path = instance.directory().join(format!("sh.{apid}.{rank}.strace"));
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn each_pe_has_a_file_and_ends_as_without_it() {
    if !is_there("strace::each_pe_has_a_file_and_ends_as_without_it") {
        return;
    }
    let instance = Plan::new().nodes(2, 2).start();
    let script = "echo PE $ALPS_APP_PE; echo to stderr >&2";
    let ran = run(&mut traced(&instance, "-q -n 4 -N 2", "-e trace=write", script)).expect(0);
    assert_eq!(ran.sorted(), ["PE 0", "PE 1", "PE 2", "PE 3"]);
    assert_eq!(ran.stderr, "to stderr\n".repeat(4));
    for rank in 0..4 {
        let text = file(&instance, 1, rank);
        assert!(text.contains(&format!("write(1, \"PE {rank}\\n\"")), "{text}");
        assert!(text.ends_with("+++ exited with 0 +++\n"), "{text}");
    }
    let path = instance.directory().join("sh.1.0.strace");
    assert_eq!(std::fs::metadata(path).expect("there").mode() & 0o777, 0o600);
    // The program's status, not that of strace; what it has forked is followed, where that is asked for.
    run(&mut traced(&instance, "-q", "-f", "(exit 3); exit 7")).expect(7);
    assert!(file(&instance, 2, 0).contains("+++ exited with 3 +++"));
    for (signal, status) in [("SEGV", 139), ("KILL", 137), ("ABRT", 134)] {
        let script = format!("kill -{signal} $$; sleep 1000");
        let ran = run(&mut traced(&instance, "-n 2", "-f", &script)).expect(status);
        assert!(!ran.stderr.contains("left"), "{}", ran.stderr);
    }
    let text = file(&instance, 3, 0) + &file(&instance, 3, 1);
    assert!(text.contains("+++ killed by SIGSEGV"), "{text}");
    // No options at all, and an argument that has to be quoted.
    run(&mut traced(&instance, "-q", "", "exit 0")).expect(0);
    run(&mut traced(&instance, "-q", "-P '/no such file' -c", "exit 0")).expect(0);
    instance.wait_until_free();
}

#[test]
fn signals_and_pids_are_the_programs() {
    if !is_there("strace::signals_and_pids_are_the_programs") {
        return;
    }
    let instance = Plan::new().nodes(1, 2).start();
    let script = "trap 'echo usr' USR1; trap 'echo int; exit 5' INT; echo $$ ready; \
                  while :; do sleep 0.02; done";
    let mut command = traced(&instance, "-q -n 2", "-e trace=none", script);
    let out = instance.directory().join("out");
    command.stdout(std::fs::File::create(&out).expect("made"));
    let mut child = command.spawn().expect("aprun");
    let said = || std::fs::read_to_string(&out).unwrap_or_default();
    let count = |word: &str| said().lines().filter(|line| line.ends_with(word)).count();
    eventually(BOUND, "both are ready", || count("ready") == 2);
    let apid = instance.wait_for("running", 1)[0];
    let report = instance.apstat(&format!("-A {apid} --pids"));
    let rows = report["processes"].as_array().expect("a list").clone();
    let mut pids: Vec<String> = rows.iter().map(|row| row["pid"].to_string()).collect();
    let mut own: Vec<String> =
        said().lines().filter_map(|l| Some(l.strip_suffix(" ready")?.to_owned())).collect();
    pids.sort();
    own.sort();
    assert_eq!(pids, own);
    kill(child.id() as i32, 10);
    eventually(BOUND, "both have heard USR1", || count("usr") == 2);
    kill(child.id() as i32, 2);
    assert_eq!(status_of(child.wait().expect("waited for")), 5);
    // (The end of the first may come before the trap of the second.)
    assert!(count("int") > 0, "{}", said());
    instance.wait_until_free();
}

#[test]
fn what_can_not_be_traced_does_not_run() {
    if !is_there("strace::what_can_not_be_traced_does_not_run") {
        return;
    }
    let instance = Plan::new().nodes(1, 2).start();
    let ran = instance.directory().join("ran");
    let script = format!("echo >> {}", ran.display());
    let refused = |command: &mut Command, words: &[&str]| {
        let told = run(command);
        assert_ne!(told.status, 0);
        for word in words {
            assert!(told.stderr.contains(word), "{word:?} is not in {}", told.stderr);
        }
        assert!(!ran.exists());
        instance.wait_until_free();
    };
    let wrong = ["strace has ended before it traced anything", "nosuchcall"];
    refused(&mut traced(&instance, "-n 2", "-e trace=nosuchcall", &script), &wrong);
    let mut nowhere = traced(&instance, "-n 2", "-f", &script);
    refused(
        nowhere.arg("x").env("PATH", "/nonexistent"),
        &["strace is not on host ", "install the package strace there"],
    );
    // Of one PE only: none runs.
    std::fs::create_dir(instance.directory().join("sh.3.1.strace")).expect("made");
    refused(&mut traced(&instance, "-n 2", "-f", &script), &["sh.3.1.strace"]);
    let told = run(&mut traced(&instance, "-n 2", "-o log", &script)).expect(125);
    assert!(told.stderr.contains("--strace: -o (--output) is not passed"), "{}", told.stderr);
}

/// In a folder where everybody writes, somebody has made links of the names that are to come.
#[test]
fn a_link_of_another_user_is_not_followed() {
    let test = "strace::a_link_of_another_user_is_not_followed";
    if !is_there(test) {
        return;
    }
    let one = "nodes:\n  - { nids: 0, processors: 2, flavors: [su, os, ap] }\n";
    let Some((hand, bins)) = users::daemons(test, one, "0") else { return };
    let (shared, own) = (tempfile::tempdir_in("/tmp").expect("made"), ANNA.folder());
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
    std::fs::set_permissions(shared.path(), mode).expect("ours");
    let secret = own.path().join("secret");
    std::fs::write(&secret, "kept").expect("written");
    std::os::unix::fs::chown(&secret, Some(ANNA.uid), Some(ANNA.gid)).expect("hers");
    let name = |apid: u64| shared.path().join(format!("sh.{apid}.0.strace"));
    BERT.does(|| {
        symlink(&secret, name(1)).expect("made");
        nix::unistd::mkfifo(&name(2), nix::sys::stat::Mode::from_bits_truncate(0o666))
            .expect("made");
        std::fs::write(name(3), "his").expect("written");
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o666);
        std::fs::set_permissions(name(3), open).expect("his");
    });
    let aprun = |folder: &Path| {
        let line = words("-q --strace -f sh -c").chain(["id -u"]);
        let mut command = ANNA.command(bins.path("aprun"), line);
        run(command.env("PSCHED_SOCKET", hand.socket()).current_dir(folder))
    };
    for apid in 1..=3 {
        let told = aprun(shared.path());
        assert_ne!(told.status, 0, "{apid}");
        assert!(told.stderr.contains("its strace file "), "{}", told.stderr);
        assert_eq!(told.out(), "");
    }
    assert_eq!(std::fs::read(&secret).expect("there"), b"kept");
    assert_eq!(std::fs::read(name(3)).expect("there"), b"his");
    assert_eq!(aprun(shared.path()).expect(0).out(), format!("{}\n", ANNA.uid));
    assert_eq!(std::fs::metadata(name(4)).expect("there").uid(), ANNA.uid);
    hand.end();
}

/// Who is traced takes turns like everybody.
#[test]
fn traced_programs_take_turns() {
    if !is_there("strace::traced_programs_take_turns") {
        return;
    }
    let config = "nodes:\n  - { nids: 0, processors: 1, flavors: [su, os, ap] }\n\
                  variables: { application.max_resident: 2, application.time_slice: 50ms }\n";
    let instance = Plan::new().config(config).shared().start();
    let script = "i=0; while [ $i -lt 60 ]; do i=$((i+1)); sleep 0.01; done; echo $i";
    let both: Vec<Running> = ["-f", "-f -e trace=none"]
        .iter()
        .map(|strace| Running::start(&mut traced(&instance, "-q", strace, script)))
        .collect();
    let mut apids = instance.wait_for("running", 2);
    let frozen = |apid: u64| {
        let all = instance.apstat("-a");
        let mut rows = all["applications"].as_array().expect("a list").iter();
        rows.any(|row| {
            row["apid"] == apid && row["turn"].as_str().is_some_and(|t| t.starts_with("frozen"))
        })
    };
    eventually(BOUND, "one of them waits", || apids.iter().any(|apid| frozen(*apid)));
    for running in both {
        assert_eq!(running.wait(BOUND).expect(0).out(), "60\n");
    }
    apids.sort_unstable();
    for apid in apids {
        assert!(file(&instance, apid, 0).ends_with("+++ exited with 0 +++\n"));
    }
}

#[test]
fn an_mpi_program_is_wired_up_all_the_same() {
    let test = "strace::an_mpi_program_is_wired_up_all_the_same";
    if !is_there(test) {
        return;
    }
    let Some(program) = mpi::program(test, "ring") else { return };
    let instance = Plan::new().nodes(1, 2).start();
    let line = ["-q", "-n", "2", "--strace", "-f -e trace=none"];
    let mut command = instance.command("aprun", line);
    run(command.arg(program).current_dir(instance.directory())).expect(0);
}
