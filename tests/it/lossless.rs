//! What is on its way through an apinit when that is killed: stdin, signals, PMI's barriers. All of
//! it arrives once.

use crate::support::mpi::program;
use crate::support::*;
use std::fs::File;
use std::process::Stdio;
use std::time::Duration;

/// An instance whose four nodes are offered by two apinits. Parts that keep to themselves would talk
/// by MPICH's TCP, which hangs now and then at the end, without us too.
fn of_two_apinits() -> Instance {
    let config = "nodes:\n  - { nids: 0-3, processors: 1, flavors: [su, os, ap] }\n\
         variables: { isolation: off }\n";
    Plan::new().config(config).arg("--apinits").arg("2").start()
}

fn apinits(instance: &Instance, count: usize) -> Vec<i32> {
    let mut found = Vec::new();
    eventually(BOUND, "all apinits run", || {
        found = instance.daemons("apinit");
        found.len() == count
    });
    found
}

/// kill -9, and another has taken its place.
fn kill_one(instance: &Instance, number: usize, of: usize) {
    let before = apinits(instance, of);
    kill(before[number % of], 9);
    eventually(BOUND, "it is started again", || {
        let now = instance.daemons("apinit");
        now.len() == of && now != before
    });
}

/// Four PEs that count their USR1, and end with USR2.
struct Counters {
    running: Running,
    directory: std::path::PathBuf,
}

impl Counters {
    /// They run, and their traps are set.
    #[track_caller]
    fn start(instance: &Instance) -> Counters {
        let directory = instance.directory();
        let script = format!(
            "file={}/count$PMI_RANK; trap 'echo got >> $file' USR1; trap 'exit 0' USR2; \
             echo ready > $file; while :; do sleep 0.01; done",
            directory.display()
        );
        let mut command = instance.command("aprun", ["-q", "-n", "4", "bash", "-c", &script]);
        let counters = Counters { running: Running::start(&mut command), directory };
        instance.wait_for("running", 1);
        eventually(BOUND, "the traps are set", || counters.lines() == [1; 4]);
        counters
    }

    /// What each has written: that it is ready, and a line for each signal.
    fn lines(&self) -> [usize; 4] {
        [0, 1, 2, 3].map(|rank| {
            let file = self.directory.join(format!("count{rank}"));
            std::fs::read_to_string(file).unwrap_or_default().lines().count()
        })
    }

    /// They end, with so many lines and no more.
    #[track_caller]
    fn end(mut self, lines: usize) {
        eventually(BOUND, "its end", || !self.running.runs());
        assert_eq!(self.lines(), [lines; 4]);
        self.running.wait(BOUND).expect(0);
    }

    /// Each has had this many signals.
    #[track_caller]
    fn wait_for(&self, signals: usize) {
        eventually(BOUND, "the signal arrives", || self.lines().iter().all(|n| *n > signals));
    }
}

fn length(path: &std::path::Path) -> u64 {
    path.metadata().map_or(0, |data| data.len())
}

#[test]
fn stdin_arrives_whole() {
    const LENGTH: usize = 50_000_000;
    let instance = instance(1, 1);
    let directory = instance.directory();
    let (input, output) = (directory.join("input"), directory.join("output"));
    let bytes: Vec<u8> =
        (0..LENGTH as u32).flat_map(|i| (i / 4).to_le_bytes()).take(LENGTH).collect();
    std::fs::write(&input, &bytes).expect("written");
    let script = format!("exec cat > {}", output.display());
    // From a file, and from a pipe, which is read by a thread.
    for piped in [false, true] {
        let _ = std::fs::remove_file(&output);
        let mut command = instance.command("aprun", ["-q", "sh", "-c", &script]);
        let mut cat = None;
        let stdin = match piped {
            false => Stdio::from(File::open(&input).expect("just written")),
            true => {
                let file = File::open(&input).expect("just written");
                let mut cat_command = std::process::Command::new("cat");
                cat_command.stdin(file).stdout(Stdio::piped());
                let child = cat.insert(cat_command.spawn().expect("cat runs"));
                Stdio::from(child.stdout.take().expect("piped"))
            }
        };
        let running = Running::start(command.stdin(stdin));
        for part in 1..6 {
            eventually(BOUND, "more of stdin arrives", || {
                length(&output) >= part * LENGTH as u64 / 7
            });
            kill_one(&instance, 0, 1);
        }
        running.wait(BOUND).expect(0);
        assert!(std::fs::read(&output).expect("there") == bytes, "not what was sent");
        if let Some(mut cat) = cat {
            assert!(cat.wait().expect("ended").success());
        }
    }
}

#[test]
fn a_signal_arrives_once() {
    let instance = of_two_apinits();
    let counters = Counters::start(&instance);
    for round in 1..=6 {
        let before = apinits(&instance, 2);
        let victim = before[round % 2];
        // Before, after, and while it dies.
        if round % 3 == 0 {
            counters.running.signal(10);
            kill(victim, 9);
        } else {
            kill(victim, 9);
            counters.running.signal(10);
        }
        counters.wait_for(round);
        eventually(BOUND, "it is started again", || {
            let now = instance.daemons("apinit");
            now.len() == 2 && now != before
        });
    }
    counters.running.signal(12);
    counters.end(7);
}

/// What apkill was told is done, and once, whoever dies meanwhile.
#[test]
fn a_signal_of_apkill_arrives_once() {
    let instance = of_two_apinits();
    let counters = Counters::start(&instance);
    let apid = instance.wait_for("running", 1)[0].to_string();
    let apkill = |signal: &str| instance.run("apkill", [signal, &apid]).expect(0);
    for round in 1..=6 {
        let before = (apinits(&instance, 2), instance.daemon("psched"));
        match round % 3 {
            // It has said that it will.
            0 => {
                apkill("-USR1");
                kill(before.1, 9);
            }
            one => {
                kill(before.0[one - 1], 9);
                apkill("-USR1");
            }
        }
        counters.wait_for(round);
        eventually(BOUND, "it is started again", || {
            let now = (instance.daemons("apinit"), instance.daemon("psched"));
            now.0.len() == 2 && now != before
        });
        eventually(BOUND, "psched has its nodes", || {
            let asked = instance.run("apstat", ["-n", "--json"]);
            let all: serde_json::Value = serde_json::from_slice(&asked.stdout).unwrap_or_default();
            let up = |nodes: &Vec<serde_json::Value>| nodes.iter().all(|n| n["state"] != "suspect");
            asked.status == 0 && all["nodes"].as_array().is_some_and(up)
        });
    }
    // With the aprun's own, which are counted apart.
    counters.running.signal(10);
    counters.wait_for(7);
    apkill("-USR2");
    counters.end(8);
}

#[test]
fn barriers_are_passed_by_all_or_nobody() {
    let instance = of_two_apinits();
    let progress = instance.directory();
    // Before each barrier a key of one's own, after it that of the neighbour, on the other apinit.
    let script = format!(
        r#"
        ask() {{ echo "$1" >&$PMI_FD; read -r answer <&$PMI_FD; }}
        ask "cmd=init pmi_version=1 pmi_subversion=1"
        for i in $(seq 1 60); do
            ask "cmd=put key=b${{i}}r$PMI_RANK value=v$i.$PMI_RANK"
            ask "cmd=barrier_in"
            [ "$answer" = "cmd=barrier_out rc=0" ] || exit 3
            next=$(( (PMI_RANK + 2) % PMI_SIZE ))
            ask "cmd=get key=b${{i}}r$next"
            [ "${{answer##*value=}}" = "v$i.$next" ] || {{ echo "$i: $answer"; exit 4; }}
            echo $i >> {}/at$PMI_RANK
            sleep 0.02
        done
        ask "cmd=finalize"
        echo "$PMI_RANK is through"
    "#,
        progress.display()
    );
    let mut command = instance.command("aprun", ["-q", "-n", "4", "bash", "-c", &script]);
    let running = Running::start(&mut command);
    let passed = || {
        let text = std::fs::read_to_string(progress.join("at0")).unwrap_or_default();
        text.lines().count()
    };
    for round in 0..6 {
        eventually(BOUND, "barriers are passed", || passed() >= 8 * (round + 1));
        kill_one(&instance, round, 2);
    }
    let run = running.wait(BOUND).expect(0);
    let through: Vec<String> = (0..4).map(|rank| format!("{rank} is through")).collect();
    assert_eq!(run.sorted(), through);
}

#[test]
fn an_mpi_program_starts_while_apinits_die() {
    let name = "lossless::an_mpi_program_starts_while_apinits_die";
    let Some(ring) = program(name, "ring") else { return };
    let instance = of_two_apinits();
    // The ranks come to MPI_Init one after the other.
    let script = format!("sleep 0.$((PMI_RANK * 2)); exec {}", ring.display());
    for round in 0..6 {
        let mut command = instance.command("aprun", ["-q", "-n", "4", "sh", "-c", &script]);
        let running = Running::start(&mut command);
        instance.wait_for("running", 1);
        std::thread::sleep(Duration::from_millis(100 * round as u64));
        kill_one(&instance, round, 2);
        let run = running.wait(BOUND).expect(0);
        // Without isolation the parts of both apinits have the host's /dev/shm, so all share memory.
        let expected: Vec<String> =
            (0..4).map(|r| format!("rank {r} of 4 appnum 0 sum 10 shared 4")).collect();
        assert_eq!(run.sorted(), expected, "round {round}");
        instance.wait_until_free();
    }
}
