//! What is installed: each command by its name, whether it is a program of its own or executes another one.

use crate::support::*;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Programs that execute another one, and the status where they can't.
const LAUNCHERS: [(&str, &str, i32); 8] = [
    ("apkill", "psched-commands", 127),
    ("apstat", "psched-commands", 127),
    ("cpr", "psched-commands", 127),
    ("psmgr", "psched-commands", 127),
    ("psview", "psched-commands", 127),
    ("snflv", "psched-commands", 127),
    ("mpirun", "aprun", 125),
    ("mpiexec", "aprun", 125),
];

fn folder() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("it").tempdir_in("/tmp").expect("made")
}

/// A copy of a program in this folder.
fn copied(name: &str, folder: &Path) -> PathBuf {
    let to = folder.join(name);
    copy_program(binaries().join(name), &to);
    to
}

/// A script in this folder.
fn script(name: &str, folder: &Path, text: &str) {
    write_program(folder.join(name), format!("#!/bin/sh\n{text}\n"), 0o755);
}

/// Those of Cargo.toml, so all that cargo installs.
#[test]
fn each_command_says_its_own_name() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let manifest = std::fs::read_to_string(manifest).expect("there");
    let programs =
        manifest.split("[[bin]]\nname = \"").skip(1).filter_map(|rest| rest.split('"').next());
    let programs: Vec<&str> = programs.collect();
    for name in LAUNCHERS.iter().map(|launcher| launcher.0).chain([
        "psched",
        "apinit",
        "apshepherd",
        "appmix",
        "aprun",
    ]) {
        assert!(programs.contains(&name), "{name} is not in {programs:?}");
    }
    for name in programs {
        // (These are not for users: they have only --help.)
        let inner = ["apshepherd", "appmix"].contains(&name);
        let option = if inner { "--help" } else { "--version" };
        let said = run(Command::new(binaries().join(name)).arg(option).current_dir("/"));
        assert!(said.status == 0 && said.stderr.is_empty(), "{name}: {said:?}");
        let out = said.out();
        let first = match name {
            "apshepherd" => "usage: apshepherd ",
            "appmix" => "usage: appmix ",
            // What psched executes for two of its own commands is called as these are.
            "psched-worlds" => "psched ",
            name => &format!("{name} "),
        };
        assert!(out.starts_with(first), "{name}: {out}");
        assert!(inner || out.trim_end().ends_with(env!("CARGO_PKG_VERSION")), "{name}: {out}");
    }
}

/// ps shows what the user typed, and the process that a shell has started is the one that ends by a signal.
#[test]
fn a_launcher_becomes_its_program() {
    let folder = folder();
    let socket = folder.path().join("psched.sock");
    // One that never answers.
    let _listener = UnixListener::bind(&socket).expect("bound");
    for (name, program, _) in LAUNCHERS {
        let words = match name {
            "apkill" => vec!["1"],
            "cpr" => vec!["-c", "none", "-p", "1"],
            "mpirun" | "mpiexec" => vec!["-np", "1", "true"],
            "psmgr" => vec!["show"],
            _ => vec![],
        };
        let mut command = Command::new(binaries().join(name));
        command.args(&words).env("PSCHED_SOCKET", &socket).env_remove("PSCHED_LOG");
        let running = Running::start(command.current_dir(folder.path()));
        let pid = running.pid();
        let text =
            |what: &str| std::fs::read_to_string(format!("/proc/{pid}/{what}")).unwrap_or_default();
        let target = binaries().join(program).canonicalize().expect("there");
        eventually(BOUND, &format!("{name} runs {program}, and is called {name}"), || {
            std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == target)
                && text("comm") == format!("{name}\n")
        });
        let typed = binaries().join(name);
        let line = [&[typed.to_str().expect("text")], &words[..], &[""]].concat().join("\0");
        assert_eq!(text("cmdline"), line);
        kill(pid, 9);
        running.wait(BOUND).expect(137);
    }
}

/// Descriptors, the environment and what is done about signals are for the program, not for its launcher.
#[test]
fn a_launcher_hands_all_on_as_it_was() {
    let folder = folder();
    let show = "grep -E '^Sig(Blk|Ign):' /proc/self/status; echo \"$ONE\"; printf '<%s>' \"$@\"; \
                for fd in 0 1 2 5; do [ -e /proc/$$/fd/$fd ] || printf ' %s is closed' $fd; done; exit 42";
    script("shown", folder.path(), show);
    for (name, program, _) in LAUNCHERS {
        script(program, folder.path(), show);
        let launcher = copied(name, folder.path());
        for before in ["", "trap '' PIPE HUP;", "exec <&-;", "exec 5</dev/null;", "exec 2>&-;"] {
            let said = |program: &Path| {
                let line = format!("{before} ONE=1 exec {} a 'b  c' ''", program.display());
                run(Command::new("sh").arg("-c").arg(line)).expect(42).out()
            };
            assert_eq!(
                said(&launcher),
                said(&folder.path().join("shown")),
                "{name} after {before:?}"
            );
        }
    }
}

/// Called by a link, or by any first word at all, a program is what it is.
#[test]
fn a_launcher_knows_its_name() {
    let folder = folder();
    for (name, ..) in LAUNCHERS {
        let link = folder.path().join("another");
        std::os::unix::fs::symlink(binaries().join(name), &link).expect("linked");
        let said = run(Command::new(&link).arg("--version")).expect(0).out();
        assert!(said.starts_with(&format!("{name} ")), "{name}: {said}");
        std::fs::remove_file(&link).expect("gone");
    }
    // Links in place of the small programs do as well.
    let link = folder.path().join("psview");
    std::os::unix::fs::symlink(binaries().join("psched-commands"), &link).expect("linked");
    let said = run(Command::new(&link).arg("--version")).expect(0).out();
    assert!(said.starts_with("psview "), "{said}");
}

/// It is looked for beside the launcher and nowhere else.
#[test]
fn a_launcher_without_its_program_says_what_to_do() {
    let elsewhere = folder();
    for (name, program, status) in LAUNCHERS {
        script(program, elsewhere.path(), "echo a program from PATH");
        let folder = folder();
        let launcher = copied(name, folder.path());
        let mut command = Command::new(&launcher);
        command.env("PATH", elsewhere.path()).current_dir(elsewhere.path());
        let said = run(&mut command).expect(status);
        assert_eq!(said.out(), "");
        let path = folder.path().join(program);
        let expected = format!(
            "{name}: {} can't be executed: No such file or directory; {name} needs {program} of the same release \
             in its own folder: install all programs of psched there\n",
            path.display()
        );
        assert_eq!(said.stderr, expected);
    }
}

/// Where somebody has made the program a link to the launcher, it ends.
#[test]
fn a_launcher_does_not_execute_itself() {
    for (name, program, status) in LAUNCHERS {
        let folder = folder();
        let launcher = copied(name, folder.path());
        std::os::unix::fs::symlink(&launcher, folder.path().join(program)).expect("linked");
        let said = run(&mut Command::new(&launcher)).expect(status);
        assert!(said.stderr.contains("Too many levels of symbolic links"), "{said:?}");
    }
}

#[test]
fn a_name_that_is_unknown_is_refused() {
    let program = binaries().join("psched-commands");
    let said = run(Command::new("bash").args(["-c", "exec -a apfuture \"$0\" -a"]).arg(&program))
        .expect(127);
    assert!(
        said.stderr.starts_with("psched-commands: called as apfuture, which is not one of apkill"),
        "{said:?}"
    );
    let said = run(&mut Command::new(&program)).expect(127);
    assert!(said.stderr.contains("psched-commands NAME ARGUMENTS"), "{said:?}");
    let said = run(Command::new(&program).args(["apkill", "-l"])).expect(0);
    assert!(said.out().contains("HUP"), "{said:?}");
}
