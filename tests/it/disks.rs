//! The store on disks that are full, can't be written, or hold what this psched doesn't know.

use crate::support::*;
use psched::rpc::{connect, pb};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file system of 8 MB, as long as it is needed.
struct Small(tempfile::TempDir);

impl Small {
    fn new(test: &str) -> Option<Small> {
        let folder = tempfile::Builder::new().prefix("it").tempdir_in("/tmp").expect("made");
        let flags = nix::mount::MsFlags::empty();
        let made =
            nix::mount::mount(Some("none"), folder.path(), Some("tmpfs"), flags, Some("size=8m"));
        if made.is_err() {
            skip(test, "no file system can be mounted");
            return None;
        }
        Some(Small(folder))
    }

    fn ballast(&self) -> PathBuf {
        self.0.path().join("ballast")
    }

    /// Writes until nothing more fits.
    fn fill(&self) {
        use std::io::Write;
        let mut file =
            std::fs::File::options().create(true).append(true).open(self.ballast()).expect("made");
        while file.write_all(&[0; 512]).is_ok() {}
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let lazily = nix::mount::MntFlags::MNT_DETACH;
        let _ = nix::mount::umount2(self.0.path(), lazily);
    }
}

#[test]
fn a_full_store_refuses_postings_and_loses_nothing() {
    let Some(small) = Small::new("disks::a_full_store_refuses_postings_and_loses_nothing") else {
        return;
    };
    let state = small.0.path().join("state");
    let instance = Plan::new().nodes(2, 2).arg("--state").arg(&state).start();
    let go = instance.directory().join("go");
    let script =
        format!("while ! [ -e {} ]; do sleep 0.02; done; seq 1 1000; exit 5", go.display());
    let runs = instance.start_script("-n 1", &script);
    let apid = instance.wait_for("running", 1)[0];
    // For this one the postings below will wait until the end.
    let stays = instance.start_script("-q -n 2", "exec sleep 1000");
    let both = instance.wait_for("running", 2);
    // The store has room of its own for a while, which postings with long commands use up.
    let refused = (0..50).find_map(|round| {
        small.fill();
        post_until_refused(&instance.folder().join("psched.sock"), round);
        // The log may have been copied into the database meanwhile, and have room again.
        Some(instance.script("-q -n 1", "true")).filter(|run| run.status != 0)
    });
    let refused = refused.expect("the disk does not fill").expect(125);
    assert!(refused.stderr.contains("full"), "{}", refused.stderr);
    assert!(refused.stderr.contains("psched.db"), "{}", refused.stderr);
    assert_eq!(instance.apids("running"), both);
    // What runs ends with its true status, and its record waits for room.
    std::fs::write(&go, "").expect("written");
    let run = runs.wait(BOUND).expect(5);
    assert_eq!(run.out().lines().count(), 1_000);
    std::fs::remove_file(small.ballast()).expect("room again");
    eventually(BOUND, "an application runs again", || {
        instance.script("-q -n 1", "true").status == 0
    });
    eventually(BOUND, "its record is kept", || {
        let history = instance.apstat("--history");
        let rows = history["history"].as_array().expect("a list").clone();
        rows.iter().any(|r| r["apid"] == apid && r["status"] == 5)
    });
    let waiting = instance.apids("posted").into_iter().map(|apid| apid.to_string());
    instance.run("apkill", waiting).expect(0);
    instance.run("apkill", both.iter().filter(|a| **a != apid).map(u64::to_string)).expect(0);
    stays.wait(BOUND).expect(143);
    instance.wait_until_free();
}

/// Posts what waits and has a long command, until the store can't take more of it.
fn post_until_refused(socket: &Path, round: u32) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("tokio").block_on(async {
        let channel = connect::connect(socket).await.expect("connected");
        let mut psched = pb::psched_client::PschedClient::new(channel);
        // A long one that does not fit leaves room for shorter ones.
        let mut sizes = [60_000, 6_000, 600, 60, 1].into_iter();
        let mut size = 60_000;
        for number in 0..2_000u32 {
            let posting = pb::PostRequest {
                request_id: [number.to_ne_bytes(), round.to_ne_bytes()].concat().repeat(2).into(),
                // The whole machine, so that it waits.
                shape: Some(pb::Shape { width: 4, depth: 1, per_node: 0 }),
                command: "x".repeat(size),
                executable: Some(pb::Executable { path: "/bin/true".into(), ..Default::default() }),
                ..Default::default()
            };
            if let Err(status) = psched.post(posting).await {
                assert_eq!(status.code(), tonic::Code::Unavailable, "{status}");
                match sizes.next() {
                    Some(next) => size = next,
                    None => return,
                }
            }
        }
        panic!("the disk does not fill");
    });
}

/// `psched start` on a state directory where it can't start: what it says.
fn refused(base: &Path, state: &Path, user: Option<&Path>) -> Run {
    let mut command = match user {
        None => Command::new(binaries().join("psched")),
        Some(bins) => {
            let uid = USER.to_string();
            let mut command = Command::new("setpriv");
            command.args(["--reuid", &uid, "--regid", &uid, "--clear-groups", "--"]);
            command.arg(bins.join("psched"));
            command
        }
    };
    command.args(["start", "--nodes", "1", "--state"]).arg(state).args(["--", "true"]);
    command.env("TMPDIR", base).env_remove("XDG_RUNTIME_DIR").env_remove("PSCHED_LOG");
    run(command.current_dir(base)).expect(125)
}

fn base() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("it").tempdir_in("/tmp").expect("made")
}

#[test]
fn a_newer_store_is_refused_and_left_alone() {
    let base = base();
    let state = base.path().join("state");
    Plan::new().nodes(1, 1).arg("--state").arg(&state).start().script("-q", "true").expect(0);
    let file = state.join("psched.db");
    // PRAGMA user_version is at byte 60 of the file, big-endian.
    let mut bytes = std::fs::read(&file).expect("the store");
    bytes[60..64].copy_from_slice(&99u32.to_be_bytes());
    std::fs::write(&file, &bytes).expect("written");
    let run = refused(base.path(), &state, None);
    assert!(run.stderr.contains("version 99"), "{}", run.stderr);
    assert!(std::fs::read(&file).expect("there") == bytes, "it has been written to");
}

#[test]
fn a_state_directory_that_can_not_be_written_is_named() {
    let name = "disks::a_state_directory_that_can_not_be_written_is_named";
    if !is_root() {
        return skip(name, "only root can become another user, for whom it can't be written");
    }
    let mode = |m| std::os::unix::fs::PermissionsExt::from_mode(m);
    let base = base();
    std::fs::set_permissions(base.path(), mode(0o755)).expect("opened");
    let tmp = base.path().join("t");
    std::fs::create_dir(&tmp).expect("made");
    std::os::unix::fs::chown(&tmp, Some(USER), Some(USER)).expect("his");
    for program in ["psched", "apinit", "apshepherd"] {
        std::fs::copy(binaries().join(program), base.path().join(program)).expect("copied");
    }
    // Root's directory; and the user's own one with files that are root's.
    let state = base.path().join("state");
    std::fs::create_dir(&state).expect("made");
    let run = refused(&tmp, &state, Some(base.path()));
    assert!(run.stderr.contains(state.to_str().expect("text")), "{}", run.stderr);
    assert!(run.stderr.contains("ermission denied"), "{}", run.stderr);
    let state = base.path().join("kept");
    Plan::new().nodes(1, 1).arg("--state").arg(&state).start().script("-q", "true").expect(0);
    std::fs::set_permissions(&state, mode(0o755)).expect("opened");
    for file in ["psched.db", "lock"] {
        std::fs::set_permissions(state.join(file), mode(0o644)).expect("readable");
    }
    std::os::unix::fs::chown(state.join("lock"), Some(USER), Some(USER)).expect("his");
    let run = refused(&tmp, &state, Some(base.path()));
    assert!(run.stderr.contains("psched.db"), "{}", run.stderr);
    assert!(run.stderr.contains("can't be written"), "{}", run.stderr);
}
