//! Running applications are dumped by a real CRIU, and restored.

mod client;
mod others;
mod otherwise;
mod out;
mod parts;
mod restart;
mod rig;
mod shares;
mod whole;

use crate::support::criu::criu;
use crate::support::hand::Hand;
use crate::support::users::{ANNA, Bins};
use crate::support::*;
use psched::node::checkpoint::{Begun, DumpOptions, GHOST_LIMIT, dump_application};
use rig::{Back, Images, Taken, Talk, images};
use std::os::fd::AsFd;
use std::time::Duration;

const ONE: &str = "nodes:\n  - { nids: 0, processors: 2, flavors: [su, os, ap] }\n";
const GO_ON: DumpOptions = DumpOptions { go_on: true, bound: BOUND, ghost_limit: GHOST_LIMIT };
const END_IT: DumpOptions = DumpOptions { go_on: false, ..GO_ON };

/// The last lap of which something was written.
fn lap(written: &str) -> u64 {
    let laps = written.lines().filter_map(|line| line.strip_prefix("lap ")?.parse().ok());
    laps.max().unwrap_or(0)
}

/// An MPI program under root's apinit, as on a real machine: of an ordinary user's, unless this is a
/// container whose root may only dump his own.
#[test]
fn an_mpi_program_is_taken_off_and_comes_back() {
    let test = "checkpoint::an_mpi_program_is_taken_off_and_comes_back";
    let Some(criu) = criu(test) else { return };
    let Some(laps) = mpi::program(test, "laps") else { return };
    let mut hand = Hand::start(ONE, &[("0", None)]);
    hand.open_to_all();
    let bins = Bins::new();
    let (program, goal) = (bins.add(&laps), hand.folder().join("goal"));
    let line = ["-q", "-n", "2", program.to_str().expect("text"), goal.to_str().expect("text")];
    let mut command = if rig::dumps_others() {
        ANNA.command(bins.path("aprun"), line)
    } else {
        hand.command("aprun", line)
    };
    command.env("PSCHED_SOCKET", hand.socket()).env("UCX_TLS", "posix,self");
    let aprun = Running::start(&mut command);
    let apid = hand.wait_for("running", 1)[0];
    let taken = Taken::of(&hand.folder().join(format!("apps-0/{apid}.1")), None);
    // It is on its way, and its apinit is gone: nobody else talks to its apshepherd.
    eventually(BOUND, "both PEs share memory", || {
        taken.pes().iter().filter(|pe| rig::maps(**pe).contains("ucx_shm_posix")).count() == 2
    });
    hand.kill_apinit(0);
    let mut written = Talk::with(&taken.socket).until(|written| lap(written) >= 10);

    // It goes on as if nothing had been.
    let first = images();
    let dumped = dump_application(&criu, &taken.running(), first.as_fd(), GO_ON).expect("dumped");
    println!("2-PE MPICH, goes on: {dumped:?}");
    let before = lap(&written);
    let mut talk = Talk::with(&taken.socket);
    written = talk.until(|written| lap(written) > before);
    drop(talk);

    // It ends, and comes back.
    let second = images();
    let dumped = dump_application(&criu, &taken.running(), second.as_fd(), END_IT).expect("dumped");
    println!("2-PE MPICH, ends: {dumped:?}");
    eventually(BOUND, "nobody is left", || taken.pes().is_empty());
    assert!(dumped.frozen <= dumped.total && dumped.bytes > 8 << 20, "{dumped:?}");
    let before = lap(&written);
    for times in ["once", "and once more"] {
        let back = Back::restore(&criu, &second, &taken);
        println!("2-PE MPICH, restored {times}: {:?}", back.restored.total);
        // The pids are those that they had, and nobody here has them.
        assert_ne!(back.restored.shepherd, taken.shepherd);
        assert!(!rig::dumpable(back.restored.shepherd), "its users may look into its apshepherd");
        let mut talk = Talk::with(&back.socket);
        talk.until(|written| lap(written) > before);
        std::fs::write(&goal, "").expect("written");
        let end = talk.end();
        assert!(end.ends.len() == 1 && end.ends[0].count == 2, "{end:?}");
        assert!(talk.written.contains("ended together, 0 words wrong"), "{}", talk.written);
        talk.release();
        back.gone(0);
        std::fs::remove_file(&goal).expect("removed");
    }
    aprun.signal(9);
    aprun.wait(BOUND);
}

/// Of an ordinary user's, who has put a link to a file of root's in the place of one that he had open.
/// (Where root may dump his own only, this can't be played; what is asked of files is tested in the room.)
#[test]
fn a_file_that_is_not_the_users_is_not_given_back() {
    let test = "checkpoint::a_file_that_is_not_the_users_is_not_given_back";
    let Some(criu) = criu(test) else { return };
    if !rig::dumps_others() {
        return;
    }
    let mut hand = Hand::start(ONE, &[("0", None)]);
    hand.open_to_all();
    let bins = Bins::new();
    let folder = hand.folder().join("his");
    std::fs::create_dir(&folder).expect("made");
    std::os::unix::fs::chown(&folder, Some(ANNA.uid), Some(ANNA.gid)).expect("his");
    let (file, moved, secret) = (folder.join("a"), folder.join("b"), hand.folder().join("secret"));
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::write(&secret, "not his\n").expect("written");
    std::fs::set_permissions(&secret, mode).expect("mode");
    // As long as the other one; CRIU compares that.
    let script = format!(
        "umask 077; printf '1234567\\n' > {0}; exec 8<{0}; sleep 1000.272; :",
        file.display()
    );
    let line = ["-q", "sh", "-c", &script];
    let mut command = ANNA.command(bins.path("aprun"), line);
    let aprun = Running::start(command.env("PSCHED_SOCKET", hand.socket()));
    let apid = hand.wait_for("running", 1)[0];
    let taken = Taken::of(&hand.folder().join(format!("apps-0/{apid}.1")), None);
    hand.kill_apinit(0);
    eventually(BOUND, "it sleeps", || rig::below(&taken.pes()).len() == 1);
    let images = images();
    dump_application(&criu, &taken.running(), images.as_fd(), END_IT).expect("dumped");
    std::fs::rename(&file, &moved).expect("moved");
    std::os::unix::fs::symlink(&secret, &file).expect("linked");
    let why = Back::try_restore(&criu, &images, &taken).expect_err("not his").to_string();
    assert!(why.contains("his/a") && why.contains("symbolic link"), "{why}");
    // With his own in its place it comes back.
    std::fs::rename(&moved, &file).expect("moved back");
    let back = Back::restore(&criu, &images, &taken);
    assert!(!rig::dumpable(back.restored.shepherd), "its owner may look into its apshepherd");
    drop(back);
    aprun.signal(9);
    aprun.wait(BOUND);
}

/// One of a private instance, in which the apshepherd holds a lifeline; and one that was restored is
/// dumped again.
#[test]
fn what_was_restored_can_be_dumped_again() {
    let test = "checkpoint::what_was_restored_can_be_dumped_again";
    let Some(criu) = criu(test) else { return };
    let Some(program) = mpi::built_plain(test, "laps", &["-DPLAIN"]) else { return };
    let instance = instance(1, 1);
    let goal = instance.directory().join("goal");
    // A file with a name in its own /dev/shm, which nobody has open.
    let script = "echo kept > /dev/shm/left; \"$0\" \"$1\" && cat /dev/shm/left";
    let line = ["-q", "sh", "-c", script, program.to_str().expect("text")];
    let aprun = Running::start(instance.command("aprun", line).arg(&goal));
    let apid = instance.wait_for("running", 1)[0];
    let start = instance.child.as_ref().expect("it runs").pid();
    let folder = instance.folder().join(format!("apps-0/{apid}.1"));
    let taken = Taken::of(&folder, Some(start));
    eventually(BOUND, "it runs", || rig::below(&taken.pes()).len() == 1);
    // Nobody starts another apinit meanwhile.
    kill(start, libc::SIGSTOP);
    kill(instance_child(start, "apinit"), 9);
    let written = Talk::with(&taken.socket).until(|written| lap(written) >= 10);

    // A dump may have been begun before another took it out, and be carried on when it is back: what was told of it
    // is of another by then.
    let (first, second) = (images(), images());
    let begun = Begun::new(&criu, &taken.running(), second.as_fd(), END_IT).expect("begun");
    dump_application(&criu, &taken.running(), first.as_fd(), END_IT).expect("dumped");
    let why = Back::refuse_late(&criu, &first, &taken).to_string();
    assert_eq!(why, "they are others");
    let back = Back::restore(&criu, &first, &taken);
    let mut talk = Talk::with(&back.socket);
    let written = talk.until(|now| lap(now) > lap(&written));
    drop(talk);
    let again = back.taken();
    begun.carry_on(&again.running(), &mut || Ok(Vec::new())).expect("dumped again");
    back.gone(128 + 9);

    let back = Back::restore(&criu, &second, &again);
    let mut talk = Talk::with(&back.socket);
    talk.until(|now| lap(now) > lap(&written));
    std::fs::write(&goal, "").expect("written");
    talk.end();
    assert!(talk.written.contains("ended together, 0 words wrong\nkept\n"), "{}", talk.written);
    talk.release();
    back.gone(0);

    // Without its lifeline it ends.
    let mut back = Back::restore(&criu, &second, &again);
    back.lifeline = None;
    back.gone_somehow();
    kill(start, libc::SIGCONT);
    aprun.signal(9);
    aprun.wait(BOUND);
}

/// A connection to the journal could not be dumped: an apshepherd lets go of it at its start.
#[test]
fn diagnostics_hold_no_connection() {
    use std::os::fd::OwnedFd;
    use std::os::unix::fs::MetadataExt;
    use std::process::{Command, Stdio};
    for journal in [true, false] {
        let (_ours, theirs) = std::os::unix::net::UnixStream::pair().expect("a connection");
        let theirs = std::fs::File::from(OwnedFd::from(theirs));
        let stat = theirs.metadata().expect("a file");
        let folder = tempfile::tempdir().expect("made");
        let listener = rig::listener(&folder.path().join("sock"));
        let mut command = Command::new("sh");
        let script = "exec 8<&0 0</dev/null; exec \"$0\" 12.1 --listen 8";
        command.arg("-c").arg(script).arg(binaries().join("apshepherd"));
        let stream = format!("{}:{}", stat.dev(), stat.ino() + u64::from(!journal));
        command.env("JOURNAL_STREAM", stream).stdin(Stdio::from(listener)).stderr(theirs);
        let mut shepherd = command.stdout(Stdio::null()).spawn().expect("apshepherd");
        let pid = shepherd.id();
        // Its signals are blocked when it listens.
        eventually(BOUND, "it is there", || {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
            status.contains("SigBlk:\t0000000000014007")
        });
        let stderr = std::fs::read_link(format!("/proc/{pid}/fd/2")).expect("open");
        assert_eq!(stderr.to_str() == Some("/dev/null"), journal, "{stderr:?}");
        shepherd.kill().expect("ours");
        shepherd.wait().expect("ours");
    }
}

fn instance_child(of: i32, name: &str) -> i32 {
    let all = children(of);
    all.iter().find(|(_, n)| n == name).map(|(pid, _)| *pid).expect("it runs")
}

/// A dump that can't be leaves everything as it was, and says why.
#[test]
fn what_stands_in_the_way_is_said() {
    let test = "checkpoint::what_stands_in_the_way_is_said";
    let Some(criu) = criu(test) else { return };
    let mut hand = Hand::start(ONE, &[("0", None)]);
    // A connection to a process that is no part of it.
    let socket = hand.folder().join("outside");
    let outside = std::os::unix::net::UnixListener::bind(&socket).expect("bound");
    let script = format!(
        "import socket; s = socket.socket(socket.AF_UNIX); s.connect('{}'); s.recv(1); print('went on')",
        socket.display()
    );
    let mut command = hand.command("aprun", ["-q", "python3", "-c", &script]);
    let aprun = Running::start(&mut command);
    let apid = hand.wait_for("running", 1)[0];
    let taken = Taken::of(&hand.folder().join(format!("apps-0/{apid}.1")), None);
    let (connection, _) = outside.accept().expect("connected");
    let why = |images: &Images| {
        let error = dump_application(&criu, &taken.running(), images.as_fd(), END_IT);
        error.expect_err("it can't be dumped").to_string()
    };
    assert!(why(&images()).contains("apinit must close that connection"), "{}", why(&images()));
    hand.kill_apinit(0);
    let open = images();
    rustix::fs::fchmod(&open, rustix::fs::Mode::from_raw_mode(0o755)).expect("ours");
    assert!(why(&open).contains("mode 0700"), "{}", why(&open));
    let used = images();
    let text = why(&used);
    assert!(text.contains("must end that connection first"), "{text}");
    let text = why(&used);
    assert!(text.contains("is not empty"), "{text}");

    // It runs on.
    drop(connection);
    let mut talk = Talk::with(&taken.socket);
    talk.end();
    assert_eq!(talk.written, "went on\n");
    hand.start_apinit("0", None);
    drop(talk);
    aprun.wait(Duration::from_secs(60)).expect(0);
}
