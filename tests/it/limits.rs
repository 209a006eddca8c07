//! Limits and graces that psched.yaml sets, and who may end what.

use crate::support::*;
use std::time::Duration;

const NODES: &str = "nodes:\n  - { nids: 0, processors: 2, flavors: [su, os, ap] }\n";
const STUBBORN: &str = "trap 'echo TERM' TERM; echo ready; while :; do sleep 0.05; done";

fn configured(variables: &str) -> Instance {
    Plan::new().config(&format!("{NODES}variables:\n{variables}")).start()
}

/// Starts it, and waits until each PE has set its traps and says so in a file.
#[track_caller]
fn start_ready(instance: &Instance, options: &str, script: &str, pes: usize) -> (Running, String) {
    let file = instance.directory().join("out");
    let _ = std::fs::remove_file(&file);
    let options = format!("{options} --output {}", file.display());
    let running = instance.start_script(&options, script);
    let apid = instance.wait_for("running", 1)[0].to_string();
    eventually(BOUND, "the traps are set", || {
        std::fs::read_to_string(&file).is_ok_and(|t| t.matches("ready").count() == pes)
    });
    (running, apid)
}

fn written(instance: &Instance) -> String {
    std::fs::read_to_string(instance.directory().join("out")).expect("there")
}

#[test]
fn kill_grace_is_what_the_configuration_says() {
    let instance = configured("  kill_grace: 300ms\n");
    // --time-limit: TERM, which it sees, then KILL.
    let (running, _) = start_ready(&instance, "--time-limit 1s", STUBBORN, 1);
    let run = running.wait(BOUND).expect(124);
    assert!(run.took < Duration::from_secs(4), "{:?}", run.took);
    run.says("time limit");
    assert_eq!(written(&instance), "ready\nTERM\n");
    // A PE's death by a signal: the other gets TERM, then KILL; the first decides.
    let script = format!("[ $ALPS_APP_PE = 0 ] || {{ sleep 0.5; kill -SEGV $$; }}; {STUBBORN}");
    let run = instance.script("-n 2", &script).expect(139);
    assert!(run.took < Duration::from_secs(4), "{:?}", run.took);
    assert!(run.out().contains("TERM"), "{}", run.out());
}

#[test]
fn apkill_is_term_and_after_its_grace_kill() {
    let instance = configured("  apkill_grace: 400ms\n  kill_grace: 1h\n");
    let (running, apid) = start_ready(&instance, "-n 2", STUBBORN, 2);
    instance.run("apkill", [&apid]).expect(0);
    let run = running.wait(BOUND);
    assert!([143, 137].contains(&run.status), "{}: {}", run.status, run.stderr);
    assert!(run.took < Duration::from_secs(10), "{:?}", run.took);
    assert_eq!(written(&instance).matches("TERM").count(), 2);
}

#[test]
fn apkill_with_its_default_grace_waits() {
    let instance = instance(1, 2);
    let script = "trap 'sleep 1; exit 6' TERM; echo ready; while :; do sleep 0.05; done";
    let (running, apid) = start_ready(&instance, "-n 2", script, 2);
    instance.run("apkill", [&apid]).expect(0);
    // What it says when it ends by itself is kept; apkill decides the status.
    running.wait(BOUND).expect(143).says("6");
    // -9 is at once, USR1 is only passed on.
    let script = "trap 'echo USR1' USR1; trap '' TERM; echo ready; while :; do sleep 0.05; done";
    let (running, apid) = start_ready(&instance, "-n 2", script, 2);
    instance.run("apkill", ["-USR1", &apid]).expect(0);
    eventually(BOUND, "it comes to every PE", || written(&instance).matches("USR1").count() == 2);
    assert_eq!(instance.apids("running").len(), 1);
    instance.run("apkill", ["-9", &apid]).expect(0);
    running.wait(BOUND).expect(137);
}

#[test]
fn cpu_seconds_are_counted_for_each_pe() {
    let instance = instance(1, 2);
    // 1 s each: time that passes and the other's time don't count.
    let script = "[ $ALPS_APP_PE = 0 ] || exec sleep 1.5; while :; do :; done";
    let run = instance.script("-n 2 -t 1", script).expect(128 + 24);
    run.says("CPU time limit exceeded");
    let run = instance.script("-q -n 2 -t 1", "exec sleep 1.2").expect(0);
    assert!(run.took > Duration::from_secs(1));
}

#[test]
fn configured_administrators_may_end_everybodys() {
    let name = "limits::configured_administrators_may_end_everybodys";
    if !is_root() {
        return skip(name, "only root can be two users");
    }
    for (administrators, may) in
        [(String::new(), false), (format!("administrators: [{USER}]\n"), true)]
    {
        let instance = Plan::new().config(&format!("{NODES}{administrators}")).start();
        let running = instance.start_script("-q", "exec sleep 1000");
        let apid = instance.wait_for("running", 1)[0].to_string();
        let mode = |m| std::os::unix::fs::PermissionsExt::from_mode(m);
        let folder = instance.folder();
        let parent = folder.parent().expect("the base").to_owned();
        std::fs::set_permissions(&folder, mode(0o711)).expect("opened");
        std::fs::set_permissions(&parent, mode(0o755)).expect("opened");
        // The socket is its owner's: it is opened too, so that psched has to say no itself.
        std::fs::set_permissions(&instance.socket, mode(0o666)).expect("opened");
        let bins = tempfile::Builder::new().prefix("it").tempdir_in("/tmp").expect("made");
        std::fs::set_permissions(bins.path(), mode(0o755)).expect("opened");
        for name in ["apkill", "psched-commands"] {
            copy_program(binaries().join(name), bins.path().join(name));
        }
        let uid = USER.to_string();
        let mut command = std::process::Command::new("setpriv");
        command.args(["--reuid", &uid, "--regid", &uid, "--clear-groups", "--"]);
        command.arg(bins.path().join("apkill")).args(["-9", &apid]).current_dir("/tmp");
        let run = run(command.env("PSCHED_SOCKET", &instance.socket));
        std::fs::set_permissions(&folder, mode(0o700)).expect("closed");
        if may {
            run.expect(0);
        } else {
            let run = run.expect(1);
            assert!(run.stderr.contains("only its owner"), "{}", run.stderr);
            assert_eq!(instance.apids("running").len(), 1);
            instance.run("apkill", ["-9", &apid]).expect(0);
        }
        running.wait(BOUND).expect(137);
    }
}
