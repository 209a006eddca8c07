//! Callers in other namespaces than psched's: who can't be known, or signalled, is told so.

use crate::support::*;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// `unshare` as an ordinary user: the caller, or one that root becomes.
fn unshare(options: &[&str]) -> Command {
    let mut command = as_user("unshare");
    command.args(options);
    command
}

fn as_user(program: &str) -> Command {
    let mut command = if is_root() {
        let mut command = Command::new("setpriv");
        let uid = USER.to_string();
        command.args(["--reuid", &uid, "--regid", &uid, "--clear-groups", "--", program]);
        command
    } else {
        Command::new(program)
    };
    command.env_remove("XDG_RUNTIME_DIR").env_remove("PSCHED_LOG").current_dir("/");
    command
}

/// Whether the kernel lets an ordinary user do that (a container may not).
fn allowed(test: &str, options: &[&str]) -> bool {
    let allowed = unshare(options).arg("true").output().is_ok_and(|o| o.status.success());
    if !allowed {
        skip(test, "an ordinary user can't have namespaces here");
    }
    allowed
}

/// A private instance in namespaces of its own, until this is dropped.
struct Inside {
    child: Child,
    socket: PathBuf,
    _base: tempfile::TempDir,
    bins: tempfile::TempDir,
}

impl Inside {
    #[track_caller]
    fn start(options: &[&str]) -> Inside {
        let [base, bins] = ["a base", "a folder"]
            .map(|what| tempfile::Builder::new().prefix("it").tempdir_in("/tmp").expect(what));
        if is_root() {
            std::os::unix::fs::chown(base.path(), Some(USER), Some(USER)).expect("given");
        }
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(bins.path(), mode).expect("ours");
        for name in ["psched", "apinit", "apshepherd", "aprun"] {
            let (from, to) = (binaries().join(name), bins.path().join(name));
            if std::fs::hard_link(&from, &to).is_err() {
                copy_program(&from, &to);
            }
        }
        let mut command = unshare(options);
        command.arg(bins.path().join("psched")).args(["start", "--nodes", "1", "--", "sh", "-c"]);
        command.arg("aprun -q true && echo $PSCHED_SOCKET; read line");
        command.env("TMPDIR", base.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let mut socket = String::new();
        let stdout = child.stdout.as_mut().expect("piped");
        BufReader::new(stdout).read_line(&mut socket).expect("a line");
        let inside = Inside { child, socket: socket.trim_end().into(), _base: base, bins };
        assert!(inside.socket.exists(), "{socket:?}: its own aprun has failed");
        inside
    }

    /// aprun from outside.
    #[track_caller]
    fn refuses(&self, mut command: Command) -> String {
        command.arg("-q").arg("true").env("PSCHED_SOCKET", &self.socket).stdin(Stdio::null());
        run(&mut command).expect(125).stderr
    }

    /// Lets its command read its line, and waits.
    #[track_caller]
    fn end(mut self) {
        drop(self.child.stdin.take());
        let child = &mut self.child;
        eventually(BOUND, "the instance ends", || child.try_wait().expect("asked").is_some());
        let folder = self.socket.parent().expect("a folder");
        eventually(BOUND, "its folder is gone", || !folder.exists());
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_caller_whose_id_does_not_exist_in_psched_s_user_namespace_is_told() {
    let test = "namespaces::a_caller_whose_id_does_not_exist_in_psched_s_user_namespace_is_told";
    if !is_root() {
        return skip(test, "only root can be two users");
    }
    if !allowed(test, &["-U", "-r"]) {
        return;
    }
    let inside = Inside::start(&["-U", "-r"]);
    // Root of the host is nobody there.
    let said = inside.refuses(Command::new(inside.bins.path().join("aprun")));
    assert!(said.contains("65534") && said.contains("user namespace"), "{said}");
    inside.end();
}

#[test]
fn a_caller_who_has_no_pid_in_psched_s_pid_namespace_is_told() {
    let test = "namespaces::a_caller_who_has_no_pid_in_psched_s_pid_namespace_is_told";
    let options = ["-U", "-r", "-p", "-f", "--mount-proc", "--kill-child"];
    if !allowed(test, &options) {
        return;
    }
    let inside = Inside::start(&options);
    // The same user, outside.
    let said = inside.refuses(as_user(inside.bins.path().join("aprun").to_str().expect("text")));
    assert!(said.contains("no process id") && said.contains("pid namespace"), "{said}");
    inside.end();
}

/// psched sees who it is and which process: only the caller's own view is another one.
#[test]
fn a_caller_in_namespaces_below_psched_s_is_like_any_other() {
    let test = "namespaces::a_caller_in_namespaces_below_psched_s_is_like_any_other";
    if !allowed(test, &["-U", "-r", "-p", "-f"]) {
        return;
    }
    let plan = Plan::new().nodes(1, 1);
    let instance = if is_root() { plan.for_user().start() } else { plan.start() };
    let aprun = instance.bins.join("aprun");
    let aprun = if aprun.is_file() { aprun } else { binaries().join("aprun") };
    for options in [&["-U", "-r"][..], &["-U", "-r", "-p", "-f"]] {
        let mut command = unshare(options);
        command.arg(&aprun).args(["-q", "id", "-u"]).env("PSCHED_SOCKET", &instance.socket);
        command.env("PATH", "/usr/bin:/bin").stdin(Stdio::null());
        let uid = if is_root() { USER } else { nix::unistd::geteuid().as_raw() };
        assert_eq!(run(&mut command).expect(0).out(), format!("{uid}\n"), "{options:?}");
    }
}
