//! Paths that a user can change, and root's daemons: none is followed with root's rights.

use crate::support::hand::Hand;
use crate::support::users::{ANNA, BERT, Bins, User};
use crate::support::*;
use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
use std::path::Path;
use std::process::Command;

const ONE: &str = "nodes:\n  - { nids: 0, processors: 1, flavors: [su, os, ap] }\n";

fn root(test: &str) -> bool {
    if !is_root() {
        skip(&format!("paths::{test}"), "only root can be several users");
    }
    is_root()
}

fn mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("ours");
}

/// A folder of root's that everybody may enter.
fn open_folder() -> tempfile::TempDir {
    let folder = tempfile::Builder::new().prefix("it").tempdir_in("/tmp").expect("made");
    mode(folder.path(), 0o755);
    folder
}

#[test]
fn daemons_of_root_s_begin_in_no_place_that_a_user_could_change() {
    if !root("daemons_of_root_s_begin_in_no_place_that_a_user_could_change") {
        return;
    }
    let safe = open_folder();
    let hers = ANNA.folder();
    // Hers, below hers, writable for all, and through a link of hers in a sticky directory.
    let below = hers.path().join("below");
    std::fs::create_dir(&below).expect("made");
    let open = safe.path().join("open");
    std::fs::create_dir_all(open.join("within")).expect("made");
    mode(&open, 0o777);
    let sticky = safe.path().join("sticky");
    std::fs::create_dir(&sticky).expect("made");
    mode(&sticky, 0o1777);
    let link = sticky.join("link");
    std::fs::create_dir(safe.path().join("good")).expect("made");
    symlink(safe.path().join("good"), &link).expect("made");
    lchown(&link, Some(ANNA.uid), Some(ANNA.gid)).expect("given");
    for bad in [hers.path(), &below, &open.join("within"), &link] {
        let before: Vec<_> = std::fs::read_dir(bad).expect("there").flatten().collect();
        let (bad, safe) = (bad.display(), safe.path().display());
        let refused = |listening: &str, state: &str| {
            let file = format!("{safe}/psched.yaml");
            let text = format!("{ONE}listening: {listening}/psched.sock\nstate: {state}/state\n");
            std::fs::write(&file, text).expect("written");
            let psched = binaries().join("psched");
            let run = run(Command::new(psched).args(["--config", &file])).expect(1);
            run.says("would not be safe");
        };
        refused(&bad.to_string(), &safe.to_string());
        refused(&safe.to_string(), &bad.to_string());
        let apinit = binaries().join("apinit");
        let socket = format!("{bad}/psched.sock");
        let run = run(Command::new(apinit).args(["--nids", "0", "--socket", &socket])).expect(1);
        run.says("would not be safe");
        let after = std::fs::read_dir(bad.to_string()).expect("there").flatten().count();
        assert_eq!(after, before.len(), "something was made in {bad}");
    }
}

/// On a machine that is full, posts ANNA's application, changes something, and lets it have its turn.
#[track_caller]
fn after_a_wait(directory: &Path, program: &[&str], change: impl FnOnce()) -> Run {
    let hand = Hand::start(ONE, &[("0", None)]);
    hand.open_to_all();
    let bins = Bins::new();
    let aprun = |user: User, line: &[&str]| {
        let mut command = user.command(bins.path("aprun"), [&["-q"], line].concat());
        command.env("PSCHED_SOCKET", hand.socket());
        command
    };
    let long = Running::start(&mut aprun(BERT, &["sleep", "1000"]));
    let apid = hand.wait_for("running", 1)[0].to_string();
    let waits = Running::start(aprun(ANNA, program).current_dir(directory));
    hand.wait_for("posted", 1);
    change();
    run(&mut hand.command("apkill", ["-9", &apid])).expect(0);
    long.wait(BOUND).expect(137);
    let run = waits.wait(BOUND);
    hand.wait_until_up();
    hand.end();
    run
}

/// Puts another link in the place of one, in one step.
fn swap(link: &Path, target: &Path) {
    let new = link.with_extension("new");
    symlink(target, &new).expect("made");
    std::fs::rename(&new, link).expect("renamed");
}

#[test]
fn an_executable_that_is_exchanged_after_its_posting_does_not_run() {
    if !root("an_executable_that_is_exchanged_after_its_posting_does_not_run") {
        return;
    }
    // To a program of root's alone, to a script of hers, to nothing.
    let closed = open_folder();
    let roots = closed.path().join("id");
    copy_program("/usr/bin/id", &roots);
    mode(&roots, 0o700);
    let another = closed.path().join("another");
    write_program(&another, "#!/bin/sh\necho another\n", 0o755);
    let absent = closed.path().join("absent");
    for (to, said) in [(&roots, "changed"), (&another, "changed"), (&absent, "No such file")] {
        let hers = ANNA.folder();
        let link = hers.path().join("program");
        symlink("/bin/echo", &link).expect("made");
        let text = link.to_str().expect("text");
        let run = after_a_wait(hers.path(), &[text, "echoed"], || swap(&link, to));
        assert!([125, 126, 127].contains(&run.status), "{}: {}", run.status, run.stderr);
        assert!(run.stderr.contains(said) && run.stderr.contains(text), "{}", run.stderr);
        assert_eq!(run.out(), "");
    }
}

#[test]
fn an_executable_that_its_user_may_no_longer_execute_is_named() {
    if !root("an_executable_that_its_user_may_no_longer_execute_is_named") {
        return;
    }
    let folder = open_folder();
    let program = folder.path().join("program");
    copy_program("/bin/echo", &program);
    mode(&program, 0o755);
    let text = program.to_str().expect("text");
    // Only its mode: what apinit may do as root does not count.
    let run = after_a_wait(folder.path(), &[text, "echoed"], || mode(&program, 0o744));
    let run = run.expect(126).says("Permission denied").says(text);
    assert_eq!(run.out(), "");
    // Its folder is closed to her.
    mode(&program, 0o755);
    let run = after_a_wait(Path::new("/"), &[text, "echoed"], || mode(folder.path(), 0o700));
    let run = run.expect(126).says("Permission denied").says(text);
    assert_eq!(run.out(), "");
}

#[test]
fn a_working_directory_that_is_exchanged_is_entered_as_the_user() {
    if !root("a_working_directory_that_is_exchanged_is_entered_as_the_user") {
        return;
    }
    let secret = tempfile::Builder::new().prefix("it").tempdir_in("/tmp").expect("made");
    std::fs::write(secret.path().join("secret"), "root's").expect("written");
    mode(secret.path(), 0o700);
    let hers = ANNA.folder();
    let directory = hers.path().join("directory");
    std::fs::create_dir(&directory).expect("made");
    chown(&directory, Some(ANNA.uid), Some(ANNA.gid)).expect("given");
    let run = after_a_wait(&directory, &["cat", "secret"], || {
        std::fs::remove_dir(&directory).expect("empty");
        symlink(secret.path(), &directory).expect("made");
    });
    let text = directory.to_str().expect("text");
    let run = run.expect(125).says("its working directory").says("Permission denied").says(text);
    assert_eq!(run.out(), "");
}
