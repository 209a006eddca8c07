//! Processes that do not die: because the kernel waits for something, or nobody kills them.

use crate::support::*;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file system that can be frozen: who writes there then waits in the kernel.
pub struct Freezer {
    folder: tempfile::TempDir,
    frozen: bool,
}

/// Whether the command could be run and was content.
fn does(program: &str, arguments: &[&str], path: &Path) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).arg(path).stdin(std::process::Stdio::null());
    command.output().is_ok_and(|out| out.status.success())
}

impl Freezer {
    pub fn new(test: &str) -> Option<Freezer> {
        if !is_root() {
            skip(test, "only root can mount a file system");
            return None;
        }
        let folder = tempfile::Builder::new().prefix("it").tempdir_in("/tmp").expect("a folder");
        let freezer = Freezer { folder, frozen: false };
        let image = freezer.folder.path().join("image");
        std::fs::File::create(&image).and_then(|f| f.set_len(8 << 20)).expect("an image");
        std::fs::create_dir(freezer.path()).expect("made");
        let image_text = image.to_str().expect("text");
        let made = does("mke2fs", &["-q", "-t", "ext4"], &image)
            && does("mount", &["-o", "loop", image_text], &freezer.path())
            && does("fsfreeze", &["-f"], &freezer.path())
            && does("fsfreeze", &["-u"], &freezer.path());
        if !made {
            skip(test, "no file system can be made, mounted from a file and frozen");
            return None;
        }
        Some(freezer)
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("frozen")
    }

    pub fn freeze(&mut self) {
        assert!(does("fsfreeze", &["-f"], &self.path()));
        self.frozen = true;
    }

    pub fn thaw(&mut self) {
        assert!(does("fsfreeze", &["-u"], &self.path()));
        self.frozen = false;
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        if self.frozen {
            does("fsfreeze", &["-u"], &self.path());
        }
        let until = std::time::Instant::now() + BOUND;
        while !does("umount", &[], &self.path()) && std::time::Instant::now() < until {
            // Who waited there is about to go, or it was never mounted.
            if std::fs::read_dir(self.path()).is_ok_and(|d| d.count() == 0) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }
}

/// An application whose PE 1 waits in the kernel.
fn waiting(instance: &Instance, freezer: &mut Freezer) -> (Running, String) {
    freezer.freeze();
    let file = freezer.path().join("file");
    let file = file.to_str().expect("text");
    let script = format!("if [ $PMI_RANK = 1 ]; then echo x > {file}; fi; exec sleep 1000");
    let stuck = instance.start_script("-n 2 -N 2", &script);
    let apid = instance.wait_for("running", 1)[0].to_string();
    eventually(BOUND, "PE 1 waits in the kernel", || {
        processes_with(file).iter().any(|(pid, _)| {
            std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|s| s.contains(") D "))
        })
    });
    (stuck, apid)
}

#[test]
fn a_process_that_waits_in_the_kernel_is_named_and_holds_up_nobody_else() {
    let name = "stuck::a_process_that_waits_in_the_kernel_is_named_and_holds_up_nobody_else";
    let Some(mut freezer) = Freezer::new(name) else { return };
    let instance = instance(2, 2);
    let (stuck, apid) = waiting(&instance, &mut freezer);
    instance.run("apkill", ["-9", &apid]).expect(0);
    // PE 0 goes, PE 1 can't: who it is and where it waits is said to everybody who asks.
    let words = "'sh' of PE 1 waits in the kernel (D) on NID 0";
    for option in [&["--why", apid.as_str()][..], &["-n"]] {
        let mut said = String::new();
        eventually(BOUND, &format!("apstat {option:?} says {words:?}"), || {
            said = instance.run("apstat", option).expect(0).out();
            said.contains(words)
        });
        assert!(!said.contains("of PE 0"), "{said}");
    }
    // Its node is held, and nobody is hindered on the other.
    let nodes = instance.apstat("-n");
    assert_eq!(nodes["nodes"][0]["pl"], 2, "{nodes}");
    instance.script("-q -n 2 -N 2", "echo $PMI_RANK").expect(0);
    let refused = instance.script("-q -n 4 --immediate", "true").expect(125);
    assert!(refused.stderr.contains(&format!("application {apid}")), "{}", refused.stderr);
    // psched forgets it, and is told again; the application outlives psched and apinit.
    for daemon in ["psched", "apinit"] {
        kill(instance.daemon(daemon), 9);
        eventually(BOUND, "it is said again", || {
            let why = instance.run("apstat", ["--why", &apid]);
            why.status == 0 && why.out().contains(words)
        });
    }
    freezer.thaw();
    let run = stuck.wait(BOUND).expect(137).says(words);
    assert_eq!(run.stderr.matches("waits in the kernel").count(), 1, "{}", run.stderr);
    instance.wait_until_free();
}

#[test]
fn without_a_shepherd_its_apinit_names_what_waits_in_the_kernel() {
    let name = "stuck::without_a_shepherd_its_apinit_names_what_waits_in_the_kernel";
    let Some(mut freezer) = Freezer::new(name) else { return };
    let instance = instance(1, 2);
    let (stuck, apid) = waiting(&instance, &mut freezer);
    let apinit = instance.daemon("apinit");
    let shepherd = children(apinit).into_iter().find(|(_, name)| name == "apshepherd");
    kill(shepherd.expect("there is one").0, 9);
    let words = "'sh' waits in the kernel (D) on NID 0";
    eventually(BOUND, "apstat says it", || {
        instance.run("apstat", ["--why", &apid]).expect(0).out().contains(words)
    });
    assert_eq!(instance.apstat("-n")["nodes"][0]["pl"], 2);
    freezer.thaw();
    let run = stuck.wait(BOUND).expect(125).says(words);
    assert_eq!(run.stderr.matches("waits in the kernel").count(), 1, "{}", run.stderr);
    instance.wait_until_free();
}

/// Whoever reads the environment of such a process hangs as it does: so do the helpers of these tests
/// that look for processes by it, until it goes on. None is called meanwhile.
#[test]
fn a_process_whose_memory_is_locked_holds_up_no_search() {
    let name = "stuck::a_process_whose_memory_is_locked_holds_up_no_search";
    let Some(mut freezer) = Freezer::new(name) else { return };
    let Some(program) = mpi::plain("stuck", "hang") else { return };
    // Without control groups what is left is looked for in the environments of all processes.
    let instance = Plan::new().nodes(2, 1).for_user().start();
    let at = |name: &str| instance.directory().join(name).to_str().expect("text").to_owned();
    copy_program(program, at("hang"));
    let file = freezer.path().join("file");
    std::fs::write(&file, [0; 4096]).expect("written");
    let all = std::os::unix::fs::PermissionsExt::from_mode;
    std::fs::set_permissions(&file, all(0o666)).expect("ours");
    std::fs::set_permissions(at("hang"), all(0o755)).expect("ours");
    for path in [freezer.path(), freezer.folder.path().to_owned()] {
        std::fs::set_permissions(path, all(0o755)).expect("ours");
    }
    let lost = instance.start_script("-n 1", "exec sleep 1000");
    let apid = instance.wait_for("running", 1)[0].to_string();
    let shepherd = children(instance.daemon("apinit")).into_iter().find(|c| c.1 == "apshepherd");
    let script = format!("exec {} {} {}", at("hang"), file.display(), at("go"));
    let hangs = instance.start_script("-n 1", &script);
    let pid = || std::fs::read_to_string(at("go.pid"));
    eventually(BOUND, "it is about to hang", || pid().is_ok());
    freezer.freeze();
    std::fs::write(at("go"), "").expect("written");
    let tasks = format!("/proc/{}/task", pid().expect("there"));
    eventually(BOUND, "it hangs", || {
        let states = std::fs::read_dir(&tasks).expect("there").flatten().map(|task| {
            std::fs::read_to_string(task.path().join("stat")).is_ok_and(|s| s.contains(") D "))
        });
        states.collect::<Vec<_>>() == [true, true]
    });
    // It may be of the one whose shepherd is gone now, and is named with it.
    kill(shepherd.expect("there is one").0, 9);
    let words = "'hang' on NID 0 may belong to it, and can't be examined";
    eventually(BOUND, "apstat says it", || {
        instance.run("apstat", ["--why", &apid]).expect(0).out().contains(words)
    });
    // Root's own instances end what is left of them, and are not held up.
    let base = tempfile::Builder::new().prefix("it").tempdir_in("/tmp").expect("a base");
    let mut start = Command::new(binaries().join("psched"));
    start.args(["start", "--nodes", "1", "--", "true"]).env("TMPDIR", base.path());
    run(start.env_remove("XDG_RUNTIME_DIR")).expect(0);
    freezer.thaw();
    lost.wait(BOUND).expect(125).says(words);
    instance.run("apkill", ["-9", "2"]).expect(0);
    hangs.wait(BOUND).expect(137);
    instance.wait_until_free();
}

#[test]
fn who_stops_his_shepherd_is_ended_none_the_less() {
    let config = "nodes:\n  - { nids: 0, processors: 2, flavors: [su, os, ap] }\n\
                  variables:\n  kill_grace: 100ms\n";
    let instance = Plan::new().config(config).start();
    let script = "echo here; kill -STOP $PPID; exec sleep 1000";
    let limited = instance.start_script("-n 1 --time-limit 1s", script);
    // What it wrote is not lost.
    let run = limited.wait(BOUND).expect(124);
    assert_eq!(run.out(), "here\n");
    instance.wait_until_free();
}
