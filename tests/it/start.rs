//! `psched start`: what it makes, and that nothing of it stays.

use crate::support::*;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn psched(base: &tempfile::TempDir, arguments: &[&str]) -> Command {
    let mut command = Command::new(binaries().join("psched"));
    command
        .arg("start")
        .args(arguments)
        .env("TMPDIR", base.path())
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env_remove("XDG_RUNTIME_DIR")
        .env_remove("PSCHED_LOG")
        .stdin(Stdio::null());
    command
}

fn base() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("it").tempdir_in("/tmp").expect("a base")
}

#[track_caller]
fn check_empty(base: &tempfile::TempDir) {
    let path = base.path().to_str().expect("text");
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let processes = processes_with(path);
        let files: Vec<_> =
            std::fs::read_dir(base.path()).expect("there").flatten().map(|e| e.path()).collect();
        if processes.is_empty() && files.is_empty() {
            return;
        }
        assert!(Instant::now() < until, "there is still {processes:#?} {files:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn the_readmes_example() {
    let base = base();
    let arguments = ["--nodes", "4", "--", "aprun", "-n", "8", "-N", "2", "hostname"];
    let run = run(&mut psched(&base, &arguments)).expect(0);
    let host = nix::unistd::gethostname().expect("a name").into_string().expect("text");
    assert_eq!(run.sorted(), vec![host; 8]);
    assert!(!run.stderr.contains("Application 1"), "{}", run.stderr);
    check_empty(&base);
}

/// The list of so many nodes comes in pages.
#[test]
fn as_many_nodes_as_it_may_have() {
    let base = base();
    run(&mut psched(&base, &["--nodes", "4096", "--processors", "1", "--", "true"])).expect(0);
    check_empty(&base);
}

#[test]
fn the_status_is_the_commands() {
    let base = base();
    let directory = base.path().to_str().expect("text").to_owned();
    for (command, status, says) in [
        (vec!["true"], 0, ""),
        (vec!["sh", "-c", "exit 7"], 7, ""),
        (vec!["sh", "-c", "kill -USR1 $$"], 138, ""),
        (vec!["sh", "-c", "kill -KILL $$"], 137, ""),
        (vec!["/not/there"], 127, "/not/there: not found"),
        (vec!["not-in-the-path"], 127, "not-in-the-path: not found"),
        (vec![directory.as_str()], 126, "not executable"),
        (vec!["/etc/passwd"], 126, "not executable"),
    ] {
        let mut arguments = vec!["--nodes", "1", "--"];
        arguments.extend(&command);
        let run = run(&mut psched(&base, &arguments)).expect(status);
        assert!(run.stderr.contains(says), "{command:?}: {}", run.stderr);
    }
    check_empty(&base);
}

#[test]
fn bad_arguments_are_refused_before_anything_is_made() {
    let base = base();
    let config = base.path().join("psched.yaml");
    std::fs::write(&config, "nodes:\n  - { nids: 0-1, processors: 0 }\n").expect("written");
    let config = config.to_str().expect("text");
    for (arguments, says) in [
        (vec!["--nodes", "0"], "give a number from 1 to 4096"),
        (vec!["--nodes", "-1"], "give a number from 1 to 4096"),
        (vec!["--nodes", "99999999999"], "give a number from 1 to 4096"),
        (vec!["--nodes", "four"], "give a number from 1 to 4096"),
        (vec!["--nodes"], "a value is required"),
        (vec!["--processors", "0"], "give a number from 1 to 4096"),
        (vec!["--apinits", "3", "--nodes", "2"], "give --apinits 2 or fewer"),
        (vec!["--config", config, "--nodes", "2"], "cannot be used with"),
        (vec!["--config", "/not/there"], "can't be read"),
        (vec!["--config", config], "nodes[0].processors: \"0\" is not a number of processors"),
        (vec!["--what"], "unexpected argument"),
    ] {
        let mut all = arguments.clone();
        all.extend(["--", "true"]);
        let run = run(&mut psched(&base, &all)).expect(125);
        assert!(run.stderr.contains(says), "{arguments:?}: {}", run.stderr);
        assert_eq!(run.out(), "");
    }
    std::fs::remove_file(config).expect("there");
    check_empty(&base);
}

#[test]
fn a_state_that_can_not_be_used_is_named() {
    let base = base();
    let file = base.path().join("file");
    std::fs::write(&file, "").expect("written");
    let state = file.join("state");
    let arguments = ["--nodes", "1", "--state", state.to_str().expect("text"), "--", "true"];
    let run = run(&mut psched(&base, &arguments)).expect(125);
    assert!(run.stderr.contains("psched could not start"), "{}", run.stderr);
    assert!(run.stderr.contains(state.to_str().expect("text")), "{}", run.stderr);
    std::fs::remove_file(file).expect("there");
    check_empty(&base);
}

#[test]
fn oversubscription_is_said_once() {
    let base = base();
    let cores = std::thread::available_parallelism().expect("known").get();
    let many =
        ["--nodes", "2", "--processors", &cores.to_string(), "--", "true"].map(str::to_owned);
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let run = run(&mut psched(&base, &many)).expect(0);
    assert_eq!(run.stderr.matches("oversubscribed").count(), 1, "{}", run.stderr);
    assert!(run.stderr.contains("real one"), "{}", run.stderr);
    let run = crate::support::run(&mut psched(&base, &["--", "true"])).expect(0);
    assert_eq!(run.stderr, "");
    check_empty(&base);
}

#[test]
fn this_machine_as_it_is() {
    let instance = Plan::new().start();
    let all = instance.apstat("-n");
    let nodes = all["nodes"].as_array().expect("a list");
    assert!(!nodes.is_empty());
    assert!(
        nodes
            .iter()
            .all(|n| n["hw"].as_u64().is_some_and(|p| p >= 1) && n["avl"].as_u64() > Some(1))
    );
    let processors: u64 = nodes.iter().filter_map(|n| n["hw"].as_u64()).sum();
    assert!(processors <= std::thread::available_parallelism().expect("known").get() as u64);
    let run = instance.aprun(["-q", "-n", &processors.to_string(), "echo", "x"]).expect(0);
    assert_eq!(run.out().lines().count() as u64, processors);
}

#[test]
fn a_configuration_of_ones_own() {
    let base = base();
    let config = base.path().join("own.yaml");
    std::fs::write(
        &config,
        "nodes:\n  - { nids: 4, processors: 1, flavors: [su, os] }\n  - { nids: 7-8, processors: 1 }\n\
         listening: /nowhere/psched.sock\nvariables:\n  kill_grace: 1s\n",
    )
    .expect("written");
    let config = config.to_str().expect("text");
    let script = "apstat -n; aprun -q -n 2 --dry-run true";
    let run =
        run(&mut psched(&base, &["--config", config, "--apinits", "2", "--", "sh", "-c", script]));
    let run = run.expect(0);
    let out = run.out();
    let nids: Vec<&str> = out.lines().filter_map(|l| l.split_whitespace().next()).collect();
    assert!(nids.contains(&"4") && nids.contains(&"7") && nids.contains(&"8"), "{out}");
    std::fs::remove_file(config).expect("there");
    check_empty(&base);
}

#[test]
fn the_command_finds_the_instance() {
    let base = base();
    let script = "command -v aprun; echo $PSCHED_SOCKET; test -S $PSCHED_SOCKET && echo there; \
                  stat -c %a $(dirname $PSCHED_SOCKET)";
    let run = run(&mut psched(&base, &["--nodes", "1", "--", "sh", "-c", script])).expect(0);
    let out = run.out();
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[0], binaries().join("aprun").to_str().expect("text"));
    assert!(lines[1].starts_with(base.path().to_str().expect("text")), "{out}");
    assert_eq!(lines[2..], ["there", "700"]);
    check_empty(&base);
}

#[test]
fn ps_shows_its_children_by_name() {
    let base = base();
    let arguments = ["--nodes", "2", "--apinits", "2", "--", "sleep", "1000"];
    let running = Running::start(&mut psched(&base, &arguments));
    let pid = running.pid();
    let names = || {
        let mut names: Vec<String> = children(pid).into_iter().map(|(_, n)| n).collect();
        names.sort();
        names
    };
    eventually(BOUND, "sleep runs", || names().contains(&"sleep".to_owned()));
    assert_eq!(names(), ["apinit", "apinit", "psched", "sleep"]);
    running.signal(15);
    running.wait(Duration::from_secs(20)).expect(143);
    check_empty(&base);
}

#[test]
fn what_the_command_leaves_running_ends_with_it() {
    let base = base();
    let script = "aprun -q sleep 1000 & setsid sleep 1000 & sleep 0.3; exit 5";
    run(&mut psched(&base, &["--nodes", "1", "--", "sh", "-c", script])).expect(5);
    check_empty(&base);
}

#[test]
fn a_signal_ends_it_whatever_the_command_does() {
    for (signal, script, status) in [
        (15, "exec sleep 1000", 143),
        (1, "exec sleep 1000", 129),
        (2, "exec sleep 1000", 130),
        (15, "trap 'exit 9' TERM; while :; do sleep 0.05; done", 9),
        // It does not care: killed.
        (15, "trap '' TERM HUP; while :; do sleep 0.05; done", 137),
    ] {
        let base = base();
        let running =
            Running::start(&mut psched(&base, &["--nodes", "1", "--", "sh", "-c", script]));
        let pid = running.pid();
        eventually(BOUND, "the command runs", || {
            children(pid).iter().any(|(_, n)| n == "sh" || n == "sleep")
        });
        // Its trap needs a moment that can't be seen from outside.
        std::thread::sleep(Duration::from_millis(100));
        running.signal(signal);
        running.wait(Duration::from_secs(20)).expect(status);
        check_empty(&base);
    }
}

#[test]
fn without_a_command_it_stays_until_a_signal() {
    for signal in [1, 2, 15] {
        let mut instance = instance(1, 1);
        assert!(instance.child.as_mut().expect("started").runs());
        let run = instance.end(signal).expect("it ran");
        assert_eq!(run.status, 0, "{}", run.stderr);
    }
}

#[test]
fn killed_it_leaves_nothing() {
    let mut instance = instance(2, 2);
    let long = instance.start_script("-q -n 4", "setsid sleep 1000 & exec sleep 1000");
    instance.wait_for("running", 1);
    let began = Instant::now();
    instance.end(9);
    assert!(began.elapsed() < Duration::from_secs(10));
    assert_ne!(long.wait(Duration::from_secs(15)).status, 0);
}

/// What it said of its processors goes with it.
#[test]
fn killed_it_takes_no_processors() {
    let base = base();
    let claims = base.path().join("claims");
    std::fs::create_dir(&claims).expect("made");
    let mut command = psched(&base, &["--nodes", "1", "--processors", "1", "--", "sleep", "1000"]);
    let running = Running::start(command.env("PSCHED_CLAIMS", &claims));
    let path = base.path().to_str().expect("text").to_owned();
    eventually(BOUND, "the command runs", || {
        processes_with(&path).iter().any(|(_, line)| line.starts_with("sleep"))
    });
    let claimed = || std::fs::read_dir(&claims).expect("there").count();
    assert!(claimed() > 0);
    running.signal(9);
    drop(running.wait(Duration::from_secs(20)));
    eventually(BOUND, "its claim is gone", || claimed() == 0);
    eventually(BOUND, "the rest too", || processes_with(&path).is_empty());
    std::fs::remove_dir(&claims).expect("empty");
    check_empty(&base);
}

#[test]
fn killed_while_apinit_is_being_restarted_it_leaves_nothing() {
    let mut instance = instance(2, 2);
    let long = instance.start_script("-q -n 4", "exec sleep 1000");
    instance.wait_for("running", 1);
    let apinit = instance.daemon("apinit");
    kill(apinit, 9);
    instance.end(9);
    assert_ne!(long.wait(Duration::from_secs(15)).status, 0);
}

#[test]
fn killed_together_with_psched_it_leaves_nothing() {
    let mut instance = instance(2, 2);
    let long = instance.start_script("-q -n 4", "exec sleep 1000");
    instance.wait_for("running", 1);
    let psched = instance.daemon("psched");
    // Stopped, it restarts nobody; both are dead before the one or the other could do anything.
    let start = instance.child.as_ref().expect("it runs").pid();
    kill(start, 19);
    kill(psched, 9);
    instance.end(9);
    assert_ne!(long.wait(Duration::from_secs(15)).status, 0);
}

#[test]
fn all_killed_at_once_the_next_one_clears() {
    let base = base();
    let script = "aprun -q -n 2 sh -c 'exec sleep 1000'";
    let running = Running::start(&mut psched(&base, &["--nodes", "1", "--", "sh", "-c", script]));
    let path = base.path().to_str().expect("text").to_owned();
    eventually(BOUND, "the PEs run", || {
        processes_with(&path).iter().filter(|(_, line)| line.starts_with("sleep")).count() == 2
    });
    // psched start first, so that it restarts nobody; the PEs are not touched.
    running.signal(9);
    for (pid, line) in processes_with(&path) {
        if !line.starts_with("sleep") {
            kill(pid, 9);
        }
    }
    drop(running.wait(Duration::from_secs(10)));
    run(&mut psched(&base, &["--nodes", "1", "--", "true"])).expect(0);
    check_empty(&base);
}

/// Another shell's processes have the instance's socket in their environment, and stay; PEs that
/// were started from there do not.
#[test]
fn what_uses_it_from_elsewhere_stays() {
    for end in ["TERM", "KILL", "all killed"] {
        let base = base();
        let path = base.path().to_str().expect("text").to_owned();
        let running = Running::start(&mut psched(&base, &["--nodes", "1", "--processors", "2"]));
        let mut socket = None;
        eventually(BOUND, "the instance is there", || {
            let folders = std::fs::read_dir(base.path()).into_iter().flatten().flatten();
            socket = folders.map(|f| f.path().join("psched.sock")).find(|s| s.exists());
            socket.is_some()
        });
        let socket = socket.expect("seen");
        let from_elsewhere = |program: &std::path::Path, arguments: &[&str]| {
            let mut command = Command::new(program);
            command.args(arguments).env("PSCHED_SOCKET", &socket).stdin(Stdio::null());
            command.env_remove("PSCHED_LOG");
            Running::start(&mut command)
        };
        let mut stays = from_elsewhere("sleep".as_ref(), &["1000"]);
        let script = "setsid sleep 1001 & exec sleep 1001";
        let aprun =
            from_elsewhere(&binaries().join("aprun"), &["-q", "-n", "2", "sh", "-c", script]);
        let pes = || {
            let all = processes_with(&path);
            all.iter().filter(|(_, line)| line.starts_with("sleep 1001")).count()
        };
        eventually(BOUND, "the PEs run", || pes() == 4);
        match end {
            "TERM" => running.signal(15),
            "KILL" => running.signal(9),
            _ => {
                // psched start first, so that it restarts nobody; the PEs are not touched.
                running.signal(9);
                for (pid, line) in processes_with(&path) {
                    if !line.starts_with("sleep") {
                        kill(pid, 9);
                    }
                }
            }
        }
        drop(running.wait(Duration::from_secs(20)));
        if end == "all killed" {
            run(&mut psched(&base, &["--nodes", "1", "--", "true"])).expect(0);
        }
        eventually(BOUND, "what was started from elsewhere is all that is left", || {
            let left: Vec<i32> = processes_with(&path).into_iter().map(|(pid, _)| pid).collect();
            left.iter().all(|pid| [stays.pid(), aprun.pid()].contains(pid))
        });
        aprun.signal(9);
        assert_ne!(aprun.wait(BOUND).status, 0);
        assert!(stays.runs(), "{end}: another's process was ended");
        stays.signal(9);
        drop(stays.wait(BOUND));
        check_empty(&base);
    }
}

#[test]
fn two_at_once_do_not_meet() {
    let (first, second) = (instance(1, 2), instance(1, 2));
    assert_ne!(first.socket, second.socket);
    let long = first.start_script("-q -n 2", "exec sleep 1000");
    first.wait_for("running", 1);
    // The other one's processors are free, and it knows nothing of the first one's application.
    second.script("-q -n 2 --immediate", "true").expect(0);
    assert!(second.apids("running").is_empty());
    drop(second);
    assert_eq!(first.apids("running").len(), 1);
    first.run("apkill", ["-9", "1"]).expect(0);
    long.wait(BOUND).expect(137);
}

#[test]
fn a_state_directory_stays_and_is_used_again() {
    let directory = base();
    let state = directory.path().join("state");
    let start = || Plan::new().nodes(1, 1).arg("--state").arg(&state).start();
    start().script("-q", "exit 3").expect(3);
    let again = start();
    let history = again.apstat("--history");
    assert_eq!(history["history"][0]["status"], 3, "{history}");
    again.script("-q", "true").expect(0);
    let history = again.apstat("--history");
    assert_eq!(history["history"][0]["apid"], 2, "{history}");
}

#[test]
fn daemons_that_die_are_started_again() {
    let instance = instance(1, 1);
    for name in ["psched", "apinit"] {
        let before = instance.daemon(name);
        kill(before, 9);
        eventually(BOUND, "another is there", || {
            let parent = instance.child.as_ref().expect("it runs").pid();
            children(parent).iter().any(|(pid, n)| n == name && *pid != before)
        });
    }
    // Both are well again when an application runs.
    eventually(BOUND, "an application runs", || instance.script("-q", "true").status == 0);
}

/// Types ^C on a terminal of psched start's own.
#[test]
fn the_terminals_interrupt_is_the_commands() {
    if !Command::new("script").arg("--version").output().is_ok_and(|o| o.status.success()) {
        return skip(
            "start::the_terminals_interrupt_is_the_commands",
            "script(1) is not installed",
        );
    }
    let base = base();
    let line = format!(
        "trap : INT; {} start --nodes 1 -- sh -c 'trap \"echo caught; exit 9\" INT; echo ready; while :; do sleep 0.05; done'; echo status $?",
        binaries().join("psched").display()
    );
    let mut command = Command::new("script");
    command.args(["-q", "-e", "-c", &line, "/dev/null"]).env("TMPDIR", base.path());
    command.env("SHELL", "/bin/sh").env_remove("XDG_RUNTIME_DIR").env_remove("PSCHED_LOG");
    command.stdin(Stdio::piped());
    let mut running = Running::start(&mut command);
    let mut keys = running.child.stdin.take().expect("piped");
    let path = base.path().to_str().expect("text").to_owned();
    eventually(BOUND, "the command runs", || {
        processes_with(&path).iter().any(|(_, line)| line.starts_with("sleep"))
    });
    keys.write_all(b"\x03").expect("typed");
    let run = running.wait(Duration::from_secs(20));
    assert!(run.out().contains("caught") && run.out().contains("status 9"), "{}", run.out());
    check_empty(&base);
}

/// The terminal is closed under it.
#[test]
fn the_terminal_goes_away() {
    if !Command::new("script").arg("--version").output().is_ok_and(|o| o.status.success()) {
        return skip("start::the_terminal_goes_away", "script(1) is not installed");
    }
    let base = base();
    let line = format!(
        "exec {} start --nodes 1 -- sh -c 'aprun -q sleep 1000 & sleep 1000'",
        binaries().join("psched").display()
    );
    let mut command = Command::new("script");
    command.args(["-q", "-c", &line, "/dev/null"]).env("TMPDIR", base.path());
    command.env("SHELL", "/bin/sh").env_remove("XDG_RUNTIME_DIR").env_remove("PSCHED_LOG");
    command.stdin(Stdio::piped());
    let running = Running::start(&mut command);
    let path = base.path().to_str().expect("text").to_owned();
    eventually(BOUND, "the PE runs", || {
        processes_with(&path).iter().filter(|(_, line)| line.starts_with("sleep")).count() == 2
    });
    running.signal(9);
    drop(running.wait(Duration::from_secs(20)));
    check_empty(&base);
}

#[test]
fn a_signal_while_it_starts_ends_it() {
    for signal in [2, 15] {
        let base = base();
        let running = Running::start(&mut psched(&base, &["--nodes", "1", "--", "sleep", "1000"]));
        // Its folder is there when its signals are watched.
        eventually(BOUND, "the folder is there", || {
            std::fs::read_dir(base.path()).is_ok_and(|mut d| d.next().is_some())
        });
        running.signal(signal);
        running.wait(Duration::from_secs(20)).expect(128 + signal);
        check_empty(&base);
    }
}

/// The user's shell on a terminal, and out of it again.
#[test]
fn on_a_terminal_there_is_a_shell() {
    if !Command::new("script").arg("--version").output().is_ok_and(|o| o.status.success()) {
        return skip("start::on_a_terminal_there_is_a_shell", "script(1) is not installed");
    }
    let base = base();
    let line = format!(
        "{} start --nodes 2 --processors 1; echo status $?",
        binaries().join("psched").display()
    );
    let mut command = Command::new("script");
    command.args(["-q", "-e", "-c", &line, "/dev/null"]).env("TMPDIR", base.path());
    command.env("SHELL", "/bin/sh").env_remove("XDG_RUNTIME_DIR").env_remove("PSCHED_LOG");
    command.stdin(Stdio::piped());
    let mut running = Running::start(&mut command);
    let mut keys = running.child.stdin.take().expect("piped");
    // aprun reads ahead: what is typed for the shell goes to a PE unless told otherwise.
    keys.write_all(b"aprun -q -n 2 echo from-a-$((40+2)) < /dev/null\nexit 6\n").expect("typed");
    let run = running.wait(Duration::from_secs(30));
    let out = run.out();
    assert_eq!(out.matches("from-a-42").count(), 2, "{out}");
    assert!(out.contains("2 nodes of 1 processor") && out.contains("status 6"), "{out}");
    check_empty(&base);
}

#[test]
fn an_ordinary_user_has_it_too() {
    if !is_root() {
        return skip("start::an_ordinary_user_has_it_too", "only root can become another user");
    }
    let instance = Plan::new().nodes(2, 2).for_user().start();
    let run = instance.script("-n 4 --label", "id -u; echo $ALPS_APP_PE").expect(0);
    let expected: Vec<String> =
        (0..4).flat_map(|r| [format!("{r}: {r}"), format!("{r}: {USER}")]).collect();
    let mut expected = expected;
    expected.sort();
    assert_eq!(run.sorted(), expected);
    assert_eq!(instance.apstat("--history")["history"][0]["user"], USER.to_string());
    instance.script("-q -n 2", "[ $ALPS_APP_PE = 0 ] || kill -9 $$; exec sleep 1000").expect(137);
    // What they leave behind goes.
    let run = instance.script("-n 1", "setsid sleep 1000 & exit 0").expect(0);
    assert!(run.stderr.contains("left 1 process behind"), "{}", run.stderr);
}

#[test]
fn an_ordinary_users_instance_leaves_nothing_when_killed() {
    if !is_root() {
        let name = "start::an_ordinary_users_instance_leaves_nothing_when_killed";
        return skip(name, "only root can become another user");
    }
    let mut instance = Plan::new().nodes(2, 1).for_user().start();
    let long = instance.start_script("-q -n 2", "setsid sleep 1000 & exec sleep 1000");
    instance.wait_for("running", 1);
    instance.end(9);
    assert_ne!(long.wait(Duration::from_secs(15)).status, 0);
}

/// Two on one machine take different processors where there are some, and say whose the others are; a third has
/// none left, and says with whom it shares. What somebody else's file says takes nothing away.
#[test]
fn two_take_different_processors() {
    let base = base();
    let claims = base.path().join("claims");
    std::fs::create_dir(&claims).expect("made");
    let tmp = base.path().join("t");
    std::fs::create_dir(&tmp).expect("made");
    let start = |script: &str| {
        let arguments = ["--nodes", "1", "--processors", "1", "--", "sh", "-c", script];
        let mut command = psched(&base, &arguments);
        command.env("PSCHED_CLAIMS", &claims).env("TMPDIR", &tmp);
        command
    };
    let bound = "aprun -q grep Cpus_allowed_list: /proc/self/status";
    let go = base.path().join("go");
    let wait = format!("{bound}; while ! [ -e {} ]; do sleep 0.02; done", go.display());
    let claimed = || std::fs::read_dir(&claims).expect("there").count();
    let first = Running::start(&mut start(&wait));
    eventually(BOUND, "the first has said what it takes", || claimed() == 1);
    let second = run(&mut start(bound)).expect(0);
    let text = "are used by psched start (process ";
    assert!(second.stderr.contains(text), "{}", second.stderr);
    assert!(second.stderr.contains(&first.child.id().to_string()), "{}", second.stderr);
    // (On a machine of one core there is no other.)
    let alone = !second.stderr.contains("at once");
    // All of them are taken by one that takes as many as there are.
    let mut all = psched(&base, &["--", "sh", "-c", &wait]);
    let all = Running::start(all.env("PSCHED_CLAIMS", &claims).env("TMPDIR", &tmp));
    eventually(BOUND, "both have said so", || claimed() == 2);
    let third = run(&mut start(bound)).expect(0);
    assert!(third.stderr.contains("programs of both will run there at once"), "{}", third.stderr);
    std::fs::write(&go, "").expect("written");
    let (first, all) = (first.wait(BOUND).expect(0), all.wait(BOUND).expect(0));
    if alone {
        assert_ne!(first.out(), second.out());
    }
    assert!(!first.stderr.contains("used by"), "{}", first.stderr);
    drop(all);
    assert_eq!(claimed(), 0, "they are gone");
    std::fs::remove_file(&go).expect("removed");
    std::fs::remove_dir(&claims).expect("empty");
    std::fs::remove_dir(&tmp).expect("empty");
    check_empty(&base);
}
