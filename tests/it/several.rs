//! Several programs in one application, from the command line to the PEs.

use crate::support::*;

const MASTER: &str = "echo master $ALPS_APP_PE/$PMI_SIZE on $ALPS_APP_ID";
const WORKER: &str = "echo worker $ALPS_APP_PE/$PMI_SIZE $0";

/// What the master and three workers say.
fn said(apid: u32) -> Vec<String> {
    let workers = (1..4).map(|rank| format!("worker {rank}/4 a b"));
    std::iter::once(format!("master 0/4 on {apid}")).chain(workers).collect()
}

#[test]
fn ranks_go_on_across_programs_and_nodes() {
    // One node has room for all; of two each has a part of the workers, also under apinits of their own.
    for (apinits, instance) in [
        ("one", instance(1, 4)),
        ("one", instance(2, 2)),
        ("two", Plan::new().nodes(2, 2).arg("--apinits").arg("2").start()),
    ] {
        let line = ["-q", "sh", "-c", MASTER, ":", "-n", "3", "bash", "-c", WORKER, "a b"];
        let run = instance.aprun(line).expect(0);
        assert_eq!(run.sorted(), said(1), "{apinits}");
        let list = instance.directory().join("list");
        std::fs::write(&list, format!("sh -c '{MASTER}'\n-n 3 bash -c '{WORKER}' 'a b'\n"))
            .expect("written");
        let run = instance.aprun(["-q", "--load-file", list.to_str().expect("text")]).expect(0);
        assert_eq!(run.sorted(), said(2), "{apinits}");
        instance.wait_until_free();
    }
}

#[test]
fn the_record_has_the_command_as_typed() {
    let instance = instance(2, 2);
    let line = ["-q", "sleep", "1000", ":", "-n", "2", "sleep", "2000"];
    let running = Running::start(&mut instance.command("aprun", line));
    instance.wait_for("running", 1);
    let row = &instance.apstat("-a")["applications"][0];
    assert_eq!(row["command"], "sleep 1000 : sleep 2000", "{row}");
    assert_eq!(row["pes"], 3, "{row}");
    instance.run("apkill", ["1"]).expect(0);
    running.wait(BOUND).expect(143);
    instance.wait_until_free();
}

/// The first bad end decides, whichever program's it is; a death ends the PEs of the others.
#[test]
fn one_status_for_all() {
    let instance = instance(2, 2);
    let line = ["true", ":", "-n", "2", "sh", "-c", "exit 3"];
    instance.aprun(line).expect(3).says("Application 1 exit codes: 3\n");
    let line = ["sleep", "1000", ":", "-n", "2", "sh", "-c", "kill -SEGV $$"];
    let run = instance.aprun(line).expect(139);
    run.says("died: Segmentation fault (signal 11); initiated application termination");
    instance.wait_until_free();
}

#[test]
fn nothing_runs_where_one_program_is_missing() {
    let instance = instance(2, 2);
    let mark = instance.directory().join("mark");
    let mark_text = mark.to_str().expect("text");
    let line = ["touch", mark_text, ":", "-n", "2", "./absent"];
    let run = instance.aprun(line).expect(127).says("aprun: part 2: ./absent: not found\n");
    assert!(!mark.exists(), "{}", run.stderr);
    // It is there for aprun, and not when the PEs are to be executed.
    let script = instance.directory().join("script");
    write_program(&script, "#!/bin/sh\n", 0o755);
    let script_text = script.to_str().expect("text");
    let fill = instance.start_script("-q -n 4 -F exclusive", "sleep 1000");
    instance.wait_for("running", 1);
    let line = ["touch", mark_text, ":", "-n", "2", script_text];
    let waits = Running::start(&mut instance.command("aprun", line));
    instance.wait_for("posted", 1);
    std::fs::remove_file(&script).expect("removed");
    instance.run("apkill", ["1"]).expect(0);
    fill.wait(BOUND).expect(143);
    let run = waits.wait(BOUND).expect(127);
    run.says(&format!(
        "could not be started, so no PE runs: part 2, {script_text}: No such file or directory"
    ));
    assert!(!mark.exists());
    instance.wait_until_free();
}

/// As many arguments as the kernel lets one process have come through, as with one program.
#[test]
fn long_lists_of_arguments_arrive() {
    let instance = instance(1, 2);
    let long = "x".repeat(100_000);
    let list = instance.directory().join("list");
    let words = format!("{long} ").repeat(4);
    let script = "sh -c 'echo $PMI_RANK $# ${#1}' sh";
    std::fs::write(&list, format!("{script} {words}\n{script} {words} y\n")).expect("written");
    let run = instance.aprun(["-q", "--load-file", list.to_str().expect("text")]).expect(0);
    assert_eq!(run.sorted(), ["0 4 100000", "1 5 100000"]);
}
