//! Programs that can't run, or can no more once their posting has its turn.

use crate::support::*;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program that needs a libmpi.so.40, with no Open MPI in it; `None` without a C compiler.
fn linked_with_openmpi(test: &str, directory: &Path) -> Option<PathBuf> {
    if !Command::new("cc").arg("--version").output().is_ok_and(|o| o.status.success()) {
        skip(test, "cc is not installed");
        return None;
    }
    let file = |name: &str| directory.join(name).to_str().expect("text").to_owned();
    std::fs::write(file("lib.c"), "int MPI_Init(void) { return 0; }\n").expect("written");
    std::fs::write(
        file("main.c"),
        "#include <stdio.h>\nint MPI_Init(void);\nint main(void) { puts(\"runs\"); return MPI_Init(); }\n",
    )
    .expect("written");
    let rpath = format!("-Wl,-rpath,{}", directory.display());
    for arguments in [
        vec![
            "-shared",
            "-fPIC",
            "-Wl,-soname,libmpi.so.40",
            "-o",
            &file("libmpi.so.40"),
            &file("lib.c"),
        ],
        vec!["-o", &file("program"), &file("main.c"), &file("libmpi.so.40"), &rpath],
    ] {
        run(Command::new("cc").args(arguments)).expect(0);
    }
    Some(directory.join("program"))
}

#[test]
fn one_linked_with_openmpi_is_refused_pmi_1_with_the_cure() {
    let instance = instance(1, 2);
    let test = "programs::one_linked_with_openmpi_is_refused_pmi_1_with_the_cure";
    let Some(program) = linked_with_openmpi(test, &instance.directory()) else { return };
    let program = program.to_str().expect("text");
    let run = instance.aprun(["-q", "-n", "2", "--pmi=pmi1", program]).expect(125);
    assert!(run.stderr.contains("Open MPI") && run.stderr.contains("--pmi=pmix"), "{}", run.stderr);
    assert_eq!(run.out(), "");
    let run = instance.aprun(["-q", "-n", "2", "--pmi=none", program]).expect(0);
    assert_eq!(run.out(), "runs\nruns\n");
}

/// On a machine that is full, posts with `command`, changes something, and lets it have its turn.
#[track_caller]
fn after_a_wait(instance: &Instance, mut command: Command, change: impl FnOnce()) -> Run {
    let long = instance.start_script("-q -n 2", "exec sleep 1000");
    let apid = instance.wait_for("running", 1)[0];
    let waits = Running::start(&mut command);
    instance.wait_for("posted", 1);
    change();
    instance.run("apkill", ["-9", &apid.to_string()]).expect(0);
    long.wait(BOUND).expect(137);
    waits.wait(BOUND)
}

/// A script of several commands is told which of them was not understood.
#[test]
fn wrong_arguments_are_answered_by_name() {
    let commands = ["apkill", "aprun", "apstat", "cpr", "psched", "psmgr", "psview", "snflv"];
    let lines = commands.map(|name| (name, vec!["--no-such-option"]));
    let more = [("psched", vec!["start", "--what"]), ("psched", vec!["simulate", "--what"])];
    for (name, arguments) in lines.into_iter().chain(more) {
        let run = run(Command::new(binaries().join(name)).args(&arguments));
        assert!(run.status != 0 && run.out().is_empty(), "{name} {arguments:?}: {run:?}");
        assert!(run.stderr.starts_with(&format!("{name}: ")), "{name}: {}", run.stderr);
    }
}

#[test]
fn a_working_directory_that_has_gone_is_named() {
    let instance = instance(1, 2);
    let directory = instance.directory().join("gone");
    std::fs::create_dir(&directory).expect("made");
    let mut command = instance.command("aprun", ["-q", "-n", "2", "sh", "-c", "echo ran"]);
    command.current_dir(&directory);
    let run = after_a_wait(&instance, command, || std::fs::remove_dir(&directory).expect("empty"));
    assert_eq!(run.status, 125, "{}", run.stderr);
    assert!(run.stderr.contains("gone"), "{}", run.stderr);
    assert_eq!(run.out(), "");
    instance.wait_until_free();
}

#[test]
fn an_executable_that_has_gone_or_lost_its_mode() {
    let instance = instance(1, 2);
    let program = instance.directory().join("program");
    copy_program("/bin/hostname", &program);
    let command = || instance.command("aprun", [Path::new("-q"), &program]);
    let plain = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    let run = after_a_wait(&instance, command(), || {
        std::fs::set_permissions(&program, plain).expect("ours");
    });
    assert!([125, 126].contains(&run.status), "{}: {}", run.status, run.stderr);
    assert!(run.stderr.contains("program") && run.out().is_empty(), "{}", run.stderr);
    std::fs::remove_file(&program).expect("there");
    copy_program("/bin/hostname", &program);
    // Opened at the posting and kept open: it may run, or be named; it is never another.
    let run = after_a_wait(&instance, command(), || std::fs::remove_file(&program).expect("there"));
    assert!([0, 126, 127].contains(&run.status), "{}: {}", run.status, run.stderr);
    assert!(run.status == 0 || run.stderr.contains("program"), "{}", run.stderr);
    instance.wait_until_free();
}

#[test]
fn what_an_ordinary_user_may_not_read_or_execute() {
    if !is_root() {
        let name = "programs::what_an_ordinary_user_may_not_read_or_execute";
        return skip(name, "only root can become another user");
    }
    let instance = Plan::new().nodes(1, 1).for_user().start();
    let program = instance.directory().join("program");
    copy_program("/bin/true", &program);
    let path = program.to_str().expect("text");
    let mode = |m| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(m);
        std::fs::set_permissions(&program, mode).expect("ours");
    };
    mode(0o700);
    let run = instance.aprun(["-q", path]).expect(126);
    assert!(run.stderr.contains("not executable"), "{}", run.stderr);
    // Root's, executable and not readable: the kernel runs it, so psched may; or it says so.
    mode(0o711);
    let run = instance.aprun(["-q", path]);
    assert!(run.status == 0 || run.status == 126 && run.stderr.contains(path), "{}", run.stderr);
    let closed = instance.directory().join("closed");
    std::fs::create_dir(&closed).expect("made");
    let none = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(&closed, none).expect("ours");
    let inside = closed.join("program");
    let run = instance.aprun(["-q", inside.to_str().expect("text")]);
    let run = run.expect(126);
    assert!(run.stderr.contains("closed") && run.stderr.contains("searched"), "{}", run.stderr);
    // In PATH such a folder is passed over, as a shell does.
    for (name, status) in [("true", 0), ("absent-x", 127)] {
        let mut command = instance.command("aprun", ["-q", name]);
        command.env("PATH", format!("{}:/usr/bin:/bin", closed.display()));
        crate::support::run(&mut command).expect(status);
    }
}
