//! An application's own IPC and /dev/shm, as root and as an ordinary user.
//!
//! tests/programs/share.c makes and finds a segment of POSIX shared memory, one of System V's, and a
//! message queue.

use crate::support::hand::Hand;
use crate::support::mpi::plain;
use crate::support::users::{ANNA, Bins};
use crate::support::*;
use std::path::{Path, PathBuf};
use std::process::Command;

const ALL: &str = "shm yes sysv yes queue yes\n";
const NONE: &str = "shm no sysv no queue no\n";
const ONE: &str = "nodes:\n  - { nids: 0, processors: 4, flavors: [su, os, ap] }\n";

/// Whether the kernel gives an ordinary user the namespaces (a container may not).
fn user_namespaces() -> bool {
    let mut command = Command::new("unshare");
    command.args(["-U", "-r", "-m", "-i", "mount", "-t", "tmpfs", "none", "/dev/shm"]);
    if is_root() {
        let mut user = Command::new("setpriv");
        user.args(["--reuid", "61234", "--regid", "61234", "--clear-groups", "--"]);
        user.arg("unshare").args(command.get_args());
        command = user;
    }
    command.output().is_ok_and(|output| output.status.success())
}

/// The instances to try it with: that of whoever runs the tests, and an ordinary user's.
fn instances(test: &str, config: &str) -> Vec<Instance> {
    let mut plans = Vec::new();
    let unprivileged = user_namespaces();
    if is_root() {
        plans.push(Plan::new());
        if unprivileged {
            plans.push(Plan::new().for_user());
        }
    } else if unprivileged {
        plans.push(Plan::new());
    }
    if !unprivileged {
        skip(test, "an ordinary user can't have namespaces here");
    }
    plans.into_iter().map(|plan| plan.config(config).start()).collect()
}

/// The helper, where the instance's user may execute it.
fn share(test: &str, instance: &Instance) -> Option<PathBuf> {
    let built = plain(test, "share")?;
    let path = instance.directory().join("share");
    copy_program(built, &path);
    Some(path)
}

/// Removes, on the host, what a failed test would leave there.
struct Named<'a>(&'a Path, String);

impl Named<'_> {
    fn look(&self) -> String {
        run(Command::new(self.0).args(["look", &self.1])).expect(0).out()
    }
}

impl Drop for Named<'_> {
    fn drop(&mut self) {
        let _ = Command::new(self.0).args(["remove", &self.1]).status();
    }
}

#[test]
fn shared_memory_is_the_applications_own_and_goes_with_it() {
    let test = "isolation::shared_memory_is_the_applications_own_and_goes_with_it";
    for instance in instances(test, ONE) {
        let Some(share) = share(test, &instance) else { return };
        let on_host = Named(&share, format!("it-{}", std::process::id()));
        let name = &on_host.1;
        let other = format!("/dev/shm/{name}.other");
        std::fs::write(&other, "another's").expect("written");
        let go = instance.directory().join("go");
        let _ = std::fs::remove_file(&go);
        let (path, wait) = (share.display(), go.display());
        // One puts, the other finds it, both stay; the memory is never removed by them.
        let script = format!(
            "if [ $ALPS_APP_PE = 0 ]; then ls -A /dev/shm; {path} put {name} || exit 9; fi
             until {path} look {name} | grep 'shm yes sysv yes queue yes'; do sleep 0.02; done
             until [ -e {wait} ]; do sleep 0.02; done; {path} look {name}"
        );
        let running = instance.start_script("-q -n 2", &script);
        instance.wait_for("running", 1);
        // Not on the host, not in another application, also when it is there.
        let elsewhere = instance.aprun(["-q", &share.display().to_string(), "look", name]);
        assert_eq!(elsewhere.expect(0).out(), NONE);
        assert_eq!(on_host.look(), NONE);
        std::fs::write(&go, "").expect("written");
        let run = running.wait(BOUND).expect(0);
        // No name of the host's was listed.
        assert_eq!(run.out(), ALL.repeat(4), "{}", run.stderr);
        assert_eq!(on_host.look(), NONE);
        assert_eq!(std::fs::read_to_string(&other).expect("still there"), "another's");
        std::fs::remove_file(&other).expect("ours");
        let notes = instance.run("apstat", ["-n"]).expect(0).out();
        assert!(!notes.contains("not isolated"), "{notes}");
    }
}

#[test]
fn the_new_dev_shm_is_like_the_hosts() {
    let test = "isolation::the_new_dev_shm_is_like_the_hosts";
    // Size in blocks, and mode.
    let look = "stat -f -c '%T %b' /dev/shm; stat -c %a /dev/shm";
    let host = run(Command::new("sh").args(["-c", look])).expect(0).out();
    for instance in instances(test, ONE) {
        if host.starts_with("tmpfs") {
            assert_eq!(instance.script("-q", look).expect(0).out(), host);
        }
        // A file there that was named before the launch is named with the reason.
        let file = format!("/dev/shm/it-{}-program", std::process::id());
        copy_program("/bin/true", &file);
        let run = instance.aprun(["-q", &file]);
        std::fs::remove_file(&file).expect("ours");
        run.expect(127).says("/dev/shm of its own");
    }
}

#[test]
fn it_outlives_apinit_and_can_be_ended() {
    let test = "isolation::it_outlives_apinit_and_can_be_ended";
    for instance in instances(test, ONE) {
        let first = instance.daemon("apinit");
        let script = "trap 'exit 3' TERM; trap '' HUP; echo ready; while :; do sleep 0.02; done";
        let running = instance.start_script("-q -n 2", script);
        let apid = instance.wait_for("running", 1)[0].to_string();
        kill(first, 9);
        eventually(BOUND, "there is another apinit", || {
            children(instance.child.as_ref().expect("it runs").pid())
                .iter()
                .any(|(pid, name)| name == "apinit" && *pid != first)
        });
        instance.run("apkill", [&apid]).expect(0);
        running.wait(BOUND).expect(143);
        // One that resists is killed.
        let resists = "trap '' TERM; setsid sh -c 'trap \"\" TERM; exec sleep 1000' & wait; wait";
        let running = instance.start_script("-q", resists);
        let apid = instance.wait_for("running", 1)[0].to_string();
        instance.run("apkill", ["-9", &apid]).expect(0);
        running.wait(BOUND).expect(137);
        instance.wait_until_free();
    }
}

#[test]
fn it_can_be_switched_off() {
    let test = "isolation::it_can_be_switched_off";
    let look = "readlink /proc/self/ns/ipc /proc/self/ns/user";
    let host = run(Command::new("sh").args(["-c", look])).expect(0).out();
    for instance in instances(test, &format!("{ONE}variables: {{ isolation: off }}\n")) {
        assert_eq!(instance.script("-q", look).expect(0).out(), host);
        let notes = instance.run("apstat", ["-n"]).expect(0).out();
        assert!(notes.contains("not isolated: isolation is off"), "{notes}");
    }
    for instance in instances(test, &format!("{ONE}variables: {{ isolation: root }}\n")) {
        let out = instance.script("-q", look).expect(0).out();
        let notes = instance.run("apstat", ["-n"]).expect(0).out();
        // Either way without a user namespace.
        assert_eq!(out.lines().nth(1), host.lines().nth(1));
        assert_eq!(notes.contains("not isolated"), out == host, "{notes}");
    }
}

/// In a user namespace of the test's own, which has limits of its own.
#[test]
fn where_it_is_not_allowed_that_is_said() {
    let test = "isolation::where_it_is_not_allowed_that_is_said";
    if !user_namespaces() {
        return skip(test, "an ordinary user can't have namespaces here");
    }
    let base = tempfile::Builder::new().prefix("it").tempdir_in("/tmp").expect("a base");
    let in_namespace = |before: &str, inside: &str| {
        let psched = binaries().join("psched");
        let script =
            format!("{before}; exec {} start --nodes 1 -- sh -c '{inside}'", psched.display());
        let mut command = Command::new("unshare");
        command.args(["-U", "-r", "sh", "-c", &script]).env("TMPDIR", base.path());
        command.env_remove("XDG_RUNTIME_DIR").env_remove("PSCHED_LOG");
        run(&mut command)
    };
    let limit = "echo 0 > /proc/sys/user/max_ipc_namespaces";
    let run = in_namespace(limit, "aprun -q readlink /proc/self/ns/ipc; apstat -n").expect(0);
    let own = std::fs::read_link("/proc/self/ns/ipc").expect("ours");
    assert!(run.out().starts_with(&*own.to_string_lossy()), "{}", run.out());
    let said = ["not isolated", "user.max_*_namespaces"];
    assert!(said.iter().all(|words| run.out().contains(words)), "{}", run.out());
    // It was possible when apinit began, and is no more: nothing runs that is not isolated.
    let run = in_namespace(":", &format!("aprun -q true || exit 9; {limit}; aprun -q echo ran"));
    let run = run.expect(125).says("it can't be isolated");
    assert!(!run.out().contains("ran") && run.stderr.contains("user.max_*_namespaces"));
}

/// A folder of Anna's below /run/user with a file in it, as that of a session has sockets.
struct Session(Vec<PathBuf>);

impl Session {
    fn new() -> Session {
        let own = PathBuf::from(format!("/run/user/{}", ANNA.uid));
        let folders = [Path::new("/run/user"), &own];
        // What there is stays.
        let missing: Vec<PathBuf> =
            folders.into_iter().filter(|f| !f.exists()).map(Path::to_owned).collect();
        std::fs::create_dir_all(&own).expect("made");
        std::os::unix::fs::chown(&own, Some(ANNA.uid), Some(ANNA.gid)).expect("given");
        std::fs::write(own.join("bus"), "").expect("written");
        Session(missing)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(format!("/run/user/{}/bus", ANNA.uid));
        for folder in self.0.iter().rev() {
            let _ = std::fs::remove_dir(folder);
        }
    }
}

#[test]
fn the_service_manager_of_its_user_is_out_of_reach() {
    let test = "isolation::the_service_manager_of_its_user_is_out_of_reach";
    if !is_root() {
        return skip(test, "only root can keep applications from it");
    }
    let _session = Session::new();
    let bins = Bins::new();
    let own = format!("/run/user/{}", ANNA.uid);
    let script = format!(
        "ls -A {own}; echo ${{DBUS_SESSION_BUS_ADDRESS-none}}; : > {own}/mine && ls /run/user/*"
    );
    let bus = format!("unix:path={own}/bus");
    for (variables, expected) in [
        ("", "none\nmine\n".to_owned()),
        ("variables: { hide_user_bus: no }\n", format!("bus\n{bus}\nbus\nmine\n")),
        ("variables: { isolation: off }\n", format!("bus\n{bus}\nbus\nmine\n")),
    ] {
        let hand = Hand::start(&format!("{ONE}{variables}"), &[("0", None)]);
        hand.open_to_all();
        let mut command = ANNA.command(bins.path("aprun"), ["-q", "sh", "-c", &script]);
        command.env("PSCHED_SOCKET", hand.socket()).env("DBUS_SESSION_BUS_ADDRESS", &bus);
        let out = run(&mut command).expect(0).out();
        let left = std::fs::remove_file(format!("{own}/mine")).is_ok();
        // (Another session's folder may be there, too.)
        assert!(out.starts_with(&expected), "{variables} {out}");
        assert_eq!(left, !variables.is_empty(), "it was the host's");
        let notes = run(&mut hand.command("apstat", ["-n"])).expect(0).out();
        let told = notes.contains("can reach their users' service managers");
        assert_eq!(told, !variables.is_empty(), "{variables} {notes}");
        hand.end();
    }
}
