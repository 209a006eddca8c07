//! Several programs in one application.

use super::rig::{Rig, launch, sh};
use super::{count, identity};
use crate::support::{copy_program, write_program};
use psched::apteam::ending::{Cause, PeEnd};
use psched::apteam::launch::{HostLaunch, Part};
use psched::apteam::protocol::shepherd::FromShepherd;
use psched::machine::Nid;
use std::path::Path;

/// A part that begins with this PE.
fn part(first: u32, program: &str, arguments: &[&str]) -> Part {
    let own = launch(1, program, arguments).launch;
    Part { first, executable: own.executable, arguments: own.arguments, identity: None }
}

/// Four PEs: one of the first program, two of `program`, one of another shell.
fn three(program: &str) -> HostLaunch {
    let mut launch = sh(4, "echo a $PMI_RANK/$PMI_SIZE; echo x > ran.$PMI_RANK");
    launch.launch.more = vec![
        part(1, program, &["-c", "echo b $PMI_RANK/$PMI_SIZE"]),
        part(3, "/bin/sh", &["-c", "echo c $PMI_RANK/$PMI_SIZE $1; exit 3", "me", "d e"]),
    ];
    launch
}

#[test]
fn each_pe_runs_its_own() {
    let mut rig = Rig::new();
    let mut launch = three("/bin/sh");
    launch.launch.directory = rig.folder().to_str().expect("utf-8").into();
    let end = rig.run(launch);
    let said: Vec<String> = (0..4).map(|rank| rig.stdout(rank)).collect();
    assert_eq!(said, ["a 0/4\n", "b 1/4\n", "b 2/4\n", "c 3/4 d e\n"]);
    // The rules are those of one program.
    assert_eq!(end.status(), 3);
    assert_eq!(end.ends, [count(PeEnd::Exit(0), 3, false), count(PeEnd::Exit(3), 1, false)]);
}

/// A host that has PEs from the middle on.
#[test]
fn parts_are_those_of_the_ranks_that_are_here() {
    let mut rig = Rig::new();
    // Nobody here runs the first: whether it is there does not matter.
    let mut launch = three("/bin/sh");
    launch.launch.executable = b"/nonexistent".to_vec();
    launch.pes.drain(..2);
    let end = rig.run(launch);
    let said: Vec<String> = [2, 3].map(|rank| rig.stdout(rank)).into();
    assert_eq!((said, end.status()), (vec!["b 2/4\n".to_owned(), "c 3/4 d e\n".into()], 3));
}

/// No PE has run, and the message says which program it was: that of the first of these PEs to fail.
#[track_caller]
fn refused(mut rig: Rig, mut launch: HostLaunch, ranks: &[u32], words: &str, status: u8) {
    launch.launch.directory = rig.folder().to_str().expect("utf-8").into();
    rig.launch(launch);
    let FromShepherd::Failed(failed) = rig.next() else { panic!("no failure") };
    let Cause::LaunchFailed { rank: failing, nid, text, .. } = &failed.cause else {
        panic!("{failed:?}")
    };
    assert!(ranks.contains(failing) && *nid == Nid(failing / 2), "{failing} on {nid}: {text}");
    assert!(text.contains(words), "{text}");
    let end = rig.end();
    assert_eq!((end.launched, end.status(), end.ends.len()), (false, status, 0));
    assert!(!rig.folder().join("ran.0").exists());
}

#[test]
fn one_that_is_not_there_is_named_and_none_runs() {
    refused(Rig::new(), three("./absent"), &[1, 2], "part 2, ", 127);
    let rig = Rig::new();
    let file = rig.folder().join("none");
    write_program(&file, "echo no program\n", 0o755);
    let launch = three(file.to_str().expect("utf-8"));
    let words = format!("part 2, {}: Exec format error", file.display());
    refused(rig, launch, &[1, 2], &words, 126);
}

#[test]
fn one_that_has_changed_since_its_posting_is_refused() {
    let rig = Rig::new();
    let copy = |name: &str| {
        let to = rig.folder().join(name);
        copy_program("/bin/true", &to);
        to
    };
    let file = copy("true");
    let mut launch = three("/bin/sh");
    launch.launch.more[1].executable = file.to_str().expect("utf-8").into();
    launch.launch.more[1].identity = Some(identity(Path::new(&file)));
    std::fs::rename(copy("anew"), &file).expect("moved");
    refused(rig, launch, &[3], "/true has changed since it was posted", 126);
}
