//! aprun as its users see it, without a daemon: wrong command lines and programs, and (in
//! [`session`]) whole courses with a psched and an apinit played by the test.

mod fake;
mod restart;
mod session;
mod several;

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// aprun with nothing of the caller's that could change its ways.
fn command(binary: &str) -> Command {
    let mut command = Command::new(binary);
    for variable in [
        "PSCHED_LOG",
        "APRUN_LABEL",
        "APRUN_SYNC_TTY",
        "APRUN_DEFAULT_MEMORY",
        "BATCH_PARTITION_ID",
    ] {
        command.env_remove(variable);
    }
    command.env("PSCHED_SOCKET", "/nonexistent/psched.sock").stdin(Stdio::null());
    command
}

fn run<S: AsRef<OsStr>>(directory: &Path, arguments: &[S]) -> Output {
    let mut command = command(env!("CARGO_BIN_EXE_aprun"));
    command.args(arguments).current_dir(directory).output().expect("aprun can be started")
}

/// What a user sees: stderr and status, and nothing on stdout.
#[track_caller]
fn transcript(directory: &Path, line: &str) -> String {
    let words: Vec<&str> = line.split(' ').filter(|w| !w.is_empty()).collect();
    let output = run(directory, &words);
    assert!(output.stdout.is_empty(), "{line}: {:?}", String::from_utf8_lossy(&output.stdout));
    let status = output.status.code().expect("no signal");
    format!("{}={status}", String::from_utf8_lossy(&output.stderr))
}

#[test]
fn wrong_command_lines() {
    let here = Path::new("/");
    let pes = "the number of PEs is a whole number from 1 to 1048576";
    let depth = "the number of processors for each PE is a whole number from 1 to 4096";
    for (line, said) in [
        ("", "no command given: name the program to run after the options".to_owned()),
        ("-n 0 true", format!("-n: \"0\" is too small: {pes}")),
        ("-n -1 true", format!("-n: \"-1\" is negative: {pes}")),
        ("-n 99999999999 true", format!("-n: \"99999999999\" is too large: {pes}")),
        ("-n many true", format!("-n: \"many\" is not a number: {pes}")),
        ("-d 0 true", format!("-d: \"0\" is too small: {depth}")),
        ("-d 1e3 true", format!("-d: \"1e3\" is not a number: {depth}")),
        (
            "-N -2 true",
            "-N: \"-2\" is negative: the number of PEs on each node is a whole number from 1 to \
             4096"
                .to_owned(),
        ),
        ("--fast true", "\"--fast\" is not an option: aprun --help lists the options".to_owned()),
        ("-y true", "\"-y\" is not an option: aprun --help lists the options".to_owned()),
        // Options of other launchers are no letters of aprun's.
        ("-hold 1 true", "\"-hold\" is not an option: aprun --help lists the options".to_owned()),
        (
            "-launcher fork true",
            "-launcher is not an option of aprun: psched's apinits start the PEs: leave it out".to_owned(),
        ),
        (
            "-hostfile /nonexistent -n 1 true",
            "-hostfile: /nonexistent can't be read: No such file or directory; give the name of a file with a \
             host on each line"
                .to_owned(),
        ),
        (
            "-x NO_SUCH_VARIABLE true",
            "-x: the variable \"NO_SUCH_VARIABLE\" is not set: leave it out, or give it a value, as in -x NAME=1 (to \
             leave out a host, give -E)"
                .to_owned(),
        ),
        ("-L 0-x true", "-L: \"x\" is not a node number or a range such as 0-3".to_owned()),
        ("-np 0 true", format!("-np: \"0\" is too small: {pes}")),
        (
            "-n 1 true : -q true",
            "part 2: -q applies to the whole application: give it before the first command".to_owned(),
        ),
        (
            "-n 1 true : -d 2 true",
            "part 2: -d is 2 here and 1 in the first part: give each part -N, because parts with \
             different -d use different nodes"
                .to_owned(),
        ),
        (
            "true :",
            "part 2: no command given: name the program to run after the options".to_owned(),
        ),
        ("--load-file /nonexistent", "/nonexistent can't be read: No such file or directory".to_owned()),
        ("--load-file /", "/ can't be read: Is a directory".to_owned()),
        (
            "--load-file /etc/passwd true",
            "\"true\" is a command, but --load-file names the programs: give the command a line of \
             that file, or leave out --load-file"
                .to_owned(),
        ),
        (
            "-v true",
            "no psched answers on /nonexistent/psched.sock: check PSCHED_SOCKET, or start a private \
             psched with `psched start`"
                .to_owned(),
        ),
        (
            "true",
            "no psched answers on /nonexistent/psched.sock: check PSCHED_SOCKET, or start a private \
             psched with `psched start`"
                .to_owned(),
        ),
        (
            "--dry-run true",
            "no psched answers on /nonexistent/psched.sock: check PSCHED_SOCKET, or start a private \
             psched with `psched start`"
                .to_owned(),
        ),
    ] {
        assert_eq!(transcript(here, line), format!("aprun: {said}\n=125"), "aprun {line}");
    }
}

#[test]
fn wrong_programs() {
    let folder = tempfile::tempdir().expect("a folder");
    let make = |name: &str, text: &[u8], mode: u32| {
        crate::support::write_program(folder.path().join(name), text, mode);
    };
    make("plain", b"echo hello\n", 0o755);
    make("list", b"# two\ntrue\n-n 2 ./absent x\n", 0o644);
    make("open", b"true\n./absent 'x y\n", 0o644);
    make("noexec", b"#!/bin/sh\n", 0o644);
    make("lost", b"#!/nope/interpreter\n", 0o755);
    make("cut", b"\x7fELF\x02\x01\x01", 0o755);
    // The head of a program for 64-bit ARM.
    let mut other = b"\x7fELF\x02\x01\x01".to_vec();
    other.resize(64, 0);
    other[16] = 3;
    other[18] = if cfg!(target_arch = "aarch64") { 62 } else { 183 };
    make("other", &other, 0o755);
    let (theirs, own) =
        if cfg!(target_arch = "aarch64") { ("x86-64", "AArch64") } else { ("AArch64", "x86-64") };
    for (line, said, status) in [
        ("./absent", "./absent: not found".to_owned(), 127),
        (
            "absent-x",
            "absent-x: not found in PATH; give its path".to_owned(),
            127,
        ),
        ("./lost", "./lost: its interpreter /nope/interpreter was not found".to_owned(), 127),
        ("./", "./: not executable: it is a directory".to_owned(), 126),
        (
            "./plain",
            "./plain: not executable: the file has no #! line; begin it with #! and the path of its \
             interpreter"
                .to_owned(),
            126,
        ),
        (
            "./noexec",
            "./noexec: not executable: no permission to execute it (chmod +x gives it)".to_owned(),
            126,
        ),
        (
            "./cut",
            "./cut: not executable: the ELF file is cut short; build or copy it again".to_owned(),
            126,
        ),
        (
            "./other",
            format!(
                "./other: not executable: it is built for {theirs}, this machine is {own}; build \
                 it here"
            ),
            126,
        ),
        ("/dev/null", "/dev/null: not executable: it is not a regular file".to_owned(), 126),
        // Whichever part it is, nothing is posted.
        ("true : ./absent", "part 2: ./absent: not found".to_owned(), 127),
        ("./absent : true", "part 1: ./absent: not found".to_owned(), 127),
        (
            "true : -n 2 true : ./",
            "part 3: ./: not executable: it is a directory".to_owned(),
            126,
        ),
        ("--load-file list", "list:3: ./absent: not found".to_owned(), 127),
        (
            "--load-file open",
            "open:2: the quote of \"'x y\" is not closed on its line: close it, or put a backslash \
             before it"
                .to_owned(),
            125,
        ),
    ] {
        let seen = transcript(folder.path(), line);
        assert_eq!(seen, format!("aprun: {said}\n={status}"), "aprun {line}");
    }
}

#[test]
fn help_and_version_go_to_stdout() {
    let output = run(Path::new("/"), &["--help"]);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert!(output.stdout.starts_with(b"usage: aprun [OPTIONS] COMMAND"), "{output:?}");
    let output = run(Path::new("/"), &["--version"]);
    let expected = format!("aprun (psched) {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(output.stdout, expected.as_bytes());
    for name in ["-v", "-V"] {
        assert_eq!(run(Path::new("/"), &[name]).stdout, expected.as_bytes(), "{name}");
    }
    let mut mpirun = command(env!("CARGO_BIN_EXE_mpirun"));
    let output = mpirun.args(["-np", "0", "true"]).output().expect("mpirun can be started");
    assert!(output.stderr.starts_with(b"mpirun: -np: \"0\" is too small"), "{output:?}");
    assert_eq!(output.status.code(), Some(125));
}

#[test]
fn arguments_need_not_be_text() {
    use std::os::unix::ffi::OsStrExt;
    let output = run(Path::new("/"), &[OsStr::from_bytes(b"-n"), OsStr::from_bytes(b"\xff\xfe")]);
    assert_eq!(output.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&output.stderr).contains("is not a number"), "{output:?}");
}
