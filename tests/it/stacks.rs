//! `aprun -g`: who dies by a signal leaves the stacks of its threads, and nobody else notices anything.

use crate::support::*;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// Whether what this needs is here; the test is skipped, by name, where not.
fn is_there(test: &str) -> bool {
    let there = |name: &str| {
        Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success())
    };
    let both = there("gdb") && there("cc");
    if !both {
        skip(test, "gdb or cc is not installed (apt-get install gdb gcc)");
    }
    both
}

/// The program, in the instance's own directory.
fn program(instance: &Instance) -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let built = || mpi::built_plain("stacks", "fall", &["-g"]).expect("cc is there");
    let program = instance.directory().join("fall");
    copy_program(BUILT.get_or_init(built), &program);
    program
}

fn with_g(instance: &Instance, options: &str, arguments: &str) -> Command {
    let line = words(options).chain(["./fall"]).chain(words(arguments));
    let mut command = instance.command("aprun", line);
    command.current_dir(instance.directory());
    command
}

/// The files that are left, by name.
fn left(instance: &Instance) -> Vec<OsString> {
    let mut all = listing(&instance.directory());
    all.retain(|name| name.to_string_lossy().ends_with(".stack"));
    all
}

#[test]
fn who_dies_by_a_signal_leaves_its_stacks() {
    if !is_there("stacks::who_dies_by_a_signal_leaves_its_stacks") {
        return;
    }
    let instance = Plan::new().nodes(2, 2).start();
    program(&instance);
    for (apid, how, status, words) in [
        (1, "fall sleep", 139, ["SIGSEGV", " in falls_over (by", "=7) at ", " in main "]),
        (2, "abort sleep", 134, ["SIGABRT", "abort ", "#1 ", " in main "]),
    ] {
        let ran = run(&mut with_g(&instance, "-g -n 4 -N 2", how)).expect(status);
        // (The others may be ended before they have said anything.)
        assert!(ran.sorted().contains(&"PE 1".to_owned()), "{ran:?}");
        let says = format!(
            "Application {apid} left the stacks of PEs that died by a signal in its working directory on their \
             hosts, in files PROGRAM.{apid}.RANK.stack"
        );
        assert!(ran.stderr.contains(&says), "{}", ran.stderr);
        let file = format!("fall.{apid}.1.stack");
        assert_eq!(left(&instance), [OsString::from(&file)]);
        let path = instance.directory().join(file);
        let text = std::fs::read_to_string(&path).expect("there");
        for word in words {
            assert!(text.contains(word), "{word:?} is not in {text}");
        }
        assert!(text.lines().count() < 40, "{text}");
        std::fs::remove_file(path).expect("ours");
        instance.wait_until_free();
    }
    // What ends well, is killed, or handles the signal, leaves none.
    run(&mut with_g(&instance, "-g -n 2", "")).expect(0);
    run(&mut with_g(&instance, "-g -n 2", "catch fall")).expect(11);
    // ^C is the program's, as without it.
    let out = instance.directory().join("out");
    let mut command = with_g(&instance, "-g -q -n 2", "sleep");
    let mut child =
        command.stdout(std::fs::File::create(&out).expect("made")).spawn().expect("aprun");
    let said = || std::fs::read_to_string(&out).unwrap_or_default().lines().count();
    eventually(BOUND, "both run", || said() == 2);
    kill(child.id() as i32, 2);
    assert_eq!(status_of(child.wait().expect("waited for")), 130);
    let mut sleeps = Running::start(&mut with_g(&instance, "-g -q -n 2", "sleep"));
    let apid = instance.wait_for("running", 1)[0];
    assert!(sleeps.runs());
    instance.run("apkill", ["-9", &apid.to_string()]).expect(0);
    sleeps.wait(BOUND).expect(137);
    assert!(left(&instance).is_empty(), "{:?}", left(&instance));
    instance.wait_until_free();
}

/// gdb stands with its PE in turns of others, and signals and output are the program's.
#[test]
fn what_is_traced_takes_turns() {
    if !is_there("stacks::what_is_traced_takes_turns") {
        return;
    }
    let instance = Plan::new().nodes(1, 2).start();
    program(&instance);
    instance.run("psmgr", words("set application.time_slice=50ms")).expect(0);
    let both: Vec<Running> =
        (0..2).map(|_| Running::start(&mut with_g(&instance, "-g -q -n 2", "spin"))).collect();
    for one in both {
        assert_eq!(one.wait(BOUND).expect(0).sorted(), ["PE 0", "PE 1"]);
    }
    assert!(left(&instance).is_empty(), "{:?}", left(&instance));
    instance.wait_until_free();
}

#[test]
fn without_gdb_no_pe_runs() {
    if !is_there("stacks::without_gdb_no_pe_runs") {
        return;
    }
    let instance = Plan::new().nodes(1, 2).start();
    program(&instance);
    let mut command = with_g(&instance, "-g -n 2", "");
    let told = run(command.env("PATH", "/nonexistent"));
    assert_ne!(told.status, 0);
    assert_eq!(told.sorted(), [""; 0]);
    let why = "install the package gdb there, or leave out -g";
    assert!(told.stderr.contains("gdb is not on host ") && told.stderr.contains(why), "{told:?}");
    let both = run(&mut with_g(&instance, "-g --strace -f", "")).expect(125);
    assert!(both.stderr.contains("-g and --strace exclude each other"), "{}", both.stderr);
    instance.wait_until_free();
}
