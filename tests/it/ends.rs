//! How applications end: statuses, closing lines, signals, limits.

use crate::support::*;
use std::io::Read;
use std::process::Stdio;
use std::time::{Duration, Instant};

#[test]
fn statuses() {
    let instance = instance(2, 2);
    for (options, script, status) in [
        ("-n 4", "exit 0", 0),
        ("-n 1", "exit 3", 3),
        // The first bad end decides; a plain exit ends nobody else.
        ("-n 2", "if [ $ALPS_APP_PE = 1 ]; then exit 3; fi; sleep 0.5; exit 4", 3),
        ("-n 2", "if [ $ALPS_APP_PE = 1 ]; then exit 0; fi; sleep 0.2; exit 4", 4),
        ("-n 1", "kill -SEGV $$", 139),
        ("-n 4", "[ $ALPS_APP_PE != 2 ] || kill -KILL $$; exec sleep 1000", 137),
        ("-n 1 --time-limit 200ms", "exec sleep 1000", 124),
        ("-n 1", "exit 255", 255),
    ] {
        let run = instance.script(options, script);
        assert_eq!(run.status, status, "{options} {script}: {}", run.stderr);
        instance.wait_until_free();
    }
}

#[test]
fn closing_lines() {
    let instance = instance(2, 2);
    let run = instance.script("-n 4", "[ $ALPS_APP_PE != 3 ] || kill -SEGV $$; exec sleep 1000");
    let run = run.expect(139);
    // The first is told at once, while the others are being ended; it is not told again.
    let lines: Vec<&str> = run.stderr.lines().collect();
    assert_eq!(lines.len(), 3, "{}", run.stderr);
    assert!(lines[0].starts_with("[NID 00001] "), "{}", lines[0]);
    let died =
        " Apid 1: PE 3 died: Segmentation fault (signal 11); initiated application termination";
    assert!(lines[0].ends_with(died), "{}", lines[0]);
    assert_eq!(lines[1], "Application 1 exit signals: Segmentation fault");
    let took = regex_like(
        lines[2],
        "Application 1 took #.# s: user #.# s, system #.# s, peak memory #.#M",
    );
    assert!(took, "{}", lines[2]);
    let run = instance.script("-n 2", "exit $((ALPS_APP_PE + 5))");
    assert!([5, 6].contains(&run.status), "{}", run.stderr);
    run.says("Application 2 exit codes: 5, 6\n");
    let run = instance.script("-n 2 -q", "true").expect(0);
    assert_eq!(run.stderr, "");
    let run = instance.script("-n 2 --closing alps", "true").expect(0);
    let alps = "Application 4 resources: utime ~#s, stime ~#s, Rss ~#, inblocks ~#, outblocks ~#";
    assert!(regex_like(run.stderr.trim_end(), alps), "{}", run.stderr);
    // What ended well says nothing of its own, unless it is asked.
    assert_eq!(instance.script("-n 2", "true").expect(0).stderr, "");
    instance.script("-n 2 -v", "true").expect(0).says("Application 6 took 0.");
}

/// Whether a text is the pattern with each `#` a number.
fn regex_like(text: &str, pattern: &str) -> bool {
    let mut rest = text;
    for (i, part) in pattern.split('#').enumerate() {
        if i > 0 {
            let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            if digits == 0 {
                return false;
            }
            rest = &rest[digits..];
        }
        match rest.strip_prefix(part) {
            Some(after) => rest = after,
            None => return false,
        }
    }
    rest.is_empty()
}

#[test]
fn what_can_not_be_executed() {
    let instance = instance(1, 1);
    let directory = instance.directory();
    let file = |name: &str, text: &[u8], mode: u32| {
        let path = directory.join(name);
        write_program(&path, text, mode);
        path.to_str().expect("text").to_owned()
    };
    let plain = file("plain", b"#!/bin/sh\n", 0o644);
    let bare = file("bare", b"echo x\n", 0o755);
    let lost = file("lost", b"#!/not/there\n", 0o755);
    let mut elf = std::fs::read("/bin/true").expect("there");
    // Another machine: e_machine of an S/390.
    elf[18..20].copy_from_slice(&22u16.to_le_bytes());
    let foreign = file("foreign", &elf, 0o755);
    for (program, status) in [
        ("/not/there", 127),
        ("not-in-the-path", 127),
        (directory.to_str().expect("text"), 126),
        (&plain, 126),
        (&bare, 126),
        (&foreign, 126),
        (&lost, 126),
    ] {
        let run = instance.aprun(["-q", program]);
        // A script whose interpreter is missing: the kernel says "not found".
        let good = run.status == status || (program == lost && run.status == 127);
        assert!(good, "{program}: {} {}", run.status, run.stderr);
        assert!(!run.stderr.is_empty() && run.out().is_empty(), "{program}: {}", run.stderr);
    }
    assert!(instance.apids("running").is_empty());
}

#[test]
fn an_interrupt_goes_down_and_before_the_launch_takes_the_posting() {
    let instance = instance(1, 2);
    let script = "trap 'echo got INT; exit 7' INT; echo ready; while :; do sleep 0.05; done";
    let running = instance.start_script("-q -n 2", script);
    instance.wait_for("running", 1);
    let waits = instance.start_script("-q -n 2", "true");
    instance.wait_for("posted", 1);
    waits.signal(2);
    waits.wait(BOUND).expect(130);
    eventually(BOUND, "the posting is gone", || instance.apids("posted").is_empty());
    // Their traps need a moment.
    std::thread::sleep(Duration::from_millis(300));
    running.signal(2);
    let run = running.wait(BOUND).expect(7);
    assert_eq!(run.sorted(), ["got INT", "got INT", "ready", "ready"]);
}

/// ^C leaves a loop of a shell: for this aprun itself must have ended by INT.
#[test]
fn an_interrupt_ends_aprun_too() {
    use std::os::unix::process::ExitStatusExt;
    let instance = instance(1, 2);
    let end_of = |line: &str| {
        let mut aprun = instance.command("aprun", ["-q", "sh", "-c", line]);
        let mut aprun = aprun.stdout(Stdio::piped()).spawn().expect("spawned");
        let mut ready = [0; 6];
        let stdout = aprun.stdout.as_mut().expect("piped");
        stdout.read_exact(&mut ready).expect("it says so");
        let pid = nix::unistd::Pid::from_raw(aprun.id().cast_signed());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).expect("signalled");
        aprun.wait().expect("ended")
    };
    assert_eq!(end_of("echo ready; exec sleep 1000").signal(), Some(2));
    // What the program makes of it counts.
    let deaf = "trap 'exit 3' INT; echo ready; while :; do sleep 0.05; done";
    assert_eq!(end_of(deaf).code(), Some(3));
}

#[test]
fn signals_are_passed_on() {
    let instance = instance(1, 1);
    for (name, number) in [
        ("HUP", 1),
        ("QUIT", 3),
        ("TERM", 15),
        ("USR1", 10),
        ("USR2", 12),
        ("URG", 23),
        ("WINCH", 28),
    ] {
        let script = format!("trap 'exit 40' {name}; echo ready; while :; do sleep 0.02; done");
        let mut command = instance.command("aprun", ["-q", "sh", "-c", &script]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("started");
        // The trap is set when it says so.
        let mut ready = [0; 6];
        child.stdout.as_mut().expect("piped").read_exact(&mut ready).expect("it says ready");
        kill(child.id() as i32, number);
        let began = Instant::now();
        while child.try_wait().expect("asked").is_none() {
            assert!(began.elapsed() < BOUND, "{name} did not end it");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(status_of(child.wait().expect("ended")), 40, "{name}");
    }
}

#[test]
fn apkill_ends_ones_own() {
    let instance = instance(1, 2);
    let start = |script| {
        let running = instance.start_script("-n 2", script);
        let apid = instance.wait_for("running", 1)[0].to_string();
        std::thread::sleep(Duration::from_millis(200));
        (running, apid)
    };
    let (running, apid) = start("exec sleep 1000");
    instance.run("apkill", [&apid]).expect(0);
    running.wait(BOUND).expect(143).says("killed by ");
    let (running, apid) = start("trap '' TERM; while :; do sleep 0.1; done");
    // Whoever has ended one that goes on is told for how long.
    let told = instance.run("apkill", [&apid]).expect(0);
    told.says(&format!("apkill: {apid}: ending, KILL in 5m (at once: apkill -9)"));
    assert_eq!(instance.wait_for("ending", 1).len(), 1);
    let rows = instance.run("apstat", ["-a"]).expect(0).out();
    assert!(rows.contains("ending KILL in 4m") || rows.contains("ending KILL in 5m "), "{rows}");
    instance.run("apkill", ["-9", &apid]).expect(0);
    running.wait(BOUND).expect(137);
    let (running, apid) = start("trap 'exit 9' USR1; while :; do sleep 0.05; done");
    instance.run("apkill", ["-SIGUSR1", &apid]).expect(0);
    running.wait(BOUND).expect(9);
    let run = instance.run("apkill", ["4711"]).expect(1);
    run.says("4711");
    // A posting that waits goes as well.
    let (running, apid) = start("exec sleep 1000");
    let waits = instance.start_script("-n 2", "true");
    let posted = instance.wait_for("posted", 1)[0].to_string();
    instance.run("apkill", [&posted]).expect(0);
    assert_eq!(waits.wait(BOUND).status, 143);
    instance.run("apkill", ["-KILL", &apid]).expect(0);
    running.wait(BOUND).expect(137);
}

#[test]
fn another_users_application_is_not_ones_own() {
    if !is_root() {
        let name = "ends::another_users_application_is_not_ones_own";
        return skip(name, "only root can be two users");
    }
    let instance = instance(1, 1);
    let running = instance.start_script("-q", "exec sleep 1000");
    let apid = instance.wait_for("running", 1)[0].to_string();
    // The folder is private: an instance is its user's. Root's applications are not another's to
    // end even when he can reach the socket.
    let folder = instance.folder();
    let mode = |m| std::os::unix::fs::PermissionsExt::from_mode(m);
    std::fs::set_permissions(&folder, mode(0o711)).expect("opened");
    let parent = folder.parent().expect("the base").to_owned();
    std::fs::set_permissions(&parent, mode(0o755)).expect("opened");
    let bins = tempfile::Builder::new().prefix("it").tempdir_in("/tmp").expect("made");
    std::fs::set_permissions(bins.path(), mode(0o755)).expect("opened");
    for name in ["apkill", "psched-commands"] {
        copy_program(binaries().join(name), bins.path().join(name));
    }
    let uid = USER.to_string();
    let mut command = std::process::Command::new("setpriv");
    command.args(["--reuid", &uid, "--regid", &uid, "--clear-groups", "--"]);
    command.arg(bins.path().join("apkill")).args(["-9", &apid]).current_dir("/tmp");
    let refused = run(command.env("PSCHED_SOCKET", &instance.socket)).expect(1);
    assert!(refused.stderr.contains(&apid), "{}", refused.stderr);
    std::fs::set_permissions(&folder, mode(0o700)).expect("closed");
    assert_eq!(instance.apids("running").len(), 1);
    instance.run("apkill", ["-9", &apid]).expect(0);
    running.wait(BOUND).expect(137);
}

#[test]
fn a_time_limit_ends_it() {
    let instance = instance(1, 1);
    let run = instance.script("--time-limit 300ms", "exec sleep 1000").expect(124);
    run.says("time limit");
    // One that ignores TERM is killed after kill_grace (5 s).
    let script = "trap '' TERM; while :; do sleep 0.1; done";
    let run = instance.script("-q --time-limit 2s", script).expect(124);
    assert!(run.took > Duration::from_secs(6), "{:?}", run.took);
}

#[test]
fn cpu_time_is_limited() {
    let instance = instance(1, 1);
    let run = instance.script("-q -t 1", "while :; do :; done");
    assert!([128 + 24, 137].contains(&run.status), "{}: {}", run.status, run.stderr);
}

#[test]
fn killed_aprun_takes_its_application_along() {
    let instance = instance(1, 2);
    let script = "trap '' TERM HUP INT; while :; do sleep 0.1; done";
    let running = instance.start_script("-q -n 2", script);
    instance.wait_for("running", 1);
    let marker = "PSCHED_APPLICATION=";
    let pes = || {
        let socket = instance.socket.to_str().expect("text");
        let ours: Vec<i32> = processes_with(socket).into_iter().map(|(pid, _)| pid).collect();
        processes_with(marker).into_iter().filter(|(pid, _)| ours.contains(pid)).count()
    };
    assert!(pes() >= 2);
    running.signal(9);
    let began = Instant::now();
    eventually(Duration::from_secs(5), "nothing of it runs", || pes() == 0);
    assert!(began.elapsed() < Duration::from_secs(5));
    running.wait(BOUND).expect(137);
    instance.wait_until_free();
    // Killed before the launch: the posting goes.
    let long = instance.start_script("-q -n 2", "exec sleep 1000");
    let apid = instance.wait_for("running", 1)[0].to_string();
    let waits = instance.start_script("-q -n 2", "true");
    instance.wait_for("posted", 1);
    waits.signal(9);
    waits.wait(BOUND).expect(137);
    eventually(BOUND, "the posting is gone", || instance.apids("posted").is_empty());
    instance.run("apkill", ["-9", &apid]).expect(0);
    long.wait(BOUND).expect(137);
}

#[test]
fn what_pes_leave_behind_is_ended_and_counted() {
    let instance = instance(1, 2);
    let script = "setsid sleep 1000 > /dev/null 2>&1 < /dev/null & exit 0";
    let run = instance.script("-n 2", script).expect(0);
    run.says("left 2 processes behind");
    let socket = instance.socket.to_str().expect("text").to_owned();
    let left: Vec<_> = processes_with(&socket);
    assert!(left.iter().all(|(_, line)| !line.starts_with("sleep")), "{left:?}");
}

#[test]
fn a_closed_stdout_ends_it() {
    let instance = instance(1, 1);
    let mut command = instance.command("aprun", words("-q sh -c"));
    command.arg("trap '' PIPE; while echo x; do :; done; exec sleep 1000");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("started");
    let mut some = [0; 100];
    child.stdout.as_mut().expect("piped").read_exact(&mut some).expect("output");
    drop(child.stdout.take());
    let began = Instant::now();
    while child.try_wait().expect("asked").is_none() {
        assert!(began.elapsed() < BOUND, "aprun goes on");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(status_of(child.wait().expect("ended")), 141);
    instance.wait_until_free();
}

/// The line can't be read, where stderr is what is full: the status says it.
#[test]
fn a_full_disk_under_stderr_counts() {
    let instance = instance(1, 1);
    let script = |to: &str| {
        let line = format!("exec \"$0\" -q sh -c 'echo hi >&2; echo o' 2{to}");
        let mut command = instance.command("sh", ["-c", &line]);
        run(command.arg(instance.bins.join("aprun")))
    };
    script("> /dev/full").expect(125);
    assert_eq!(script(">&-").expect(0).out(), "o\n", "nobody wants it");
    instance.wait_until_free();
}

#[test]
fn a_full_disk_is_said() {
    let instance = instance(1, 1);
    let mut command = instance.command("sh", ["-c", "exec \"$0\" -q seq 1 100000 > /dev/full"]);
    let run = run(command.arg(instance.bins.join("aprun"))).expect(125);
    assert!(run.stderr.contains("No space left"), "{}", run.stderr);
    instance.wait_until_free();
}
