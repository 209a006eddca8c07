//! aprun stopped, killed and fed: what becomes of its application.

use crate::support::*;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// An aprun whose stdout is read by the test itself; killed when the test fails.
struct Held(Child);

impl Held {
    fn start(command: &mut Command) -> Held {
        Held(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started"))
    }

    fn pid(&self) -> i32 {
        self.0.id() as i32
    }

    fn read(&mut self, bytes: usize) -> Vec<u8> {
        let mut some = vec![0; bytes];
        self.0.stdout.as_mut().expect("piped").read_exact(&mut some).expect("output");
        some
    }

    fn rest(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        self.0.stdout.as_mut().expect("piped").read_to_end(&mut all).expect("output");
        all
    }

    #[track_caller]
    fn status(&mut self) -> i32 {
        let child = &mut self.0;
        eventually(BOUND, "aprun ends", || child.try_wait().expect("asked").is_some());
        status_of(self.0.wait().expect("ended"))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        kill(self.pid(), 18);
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn state_of(pid: i32) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it is there");
    stat.rsplit_once(") ").and_then(|(_, after)| after.chars().next()).expect("a state")
}

#[test]
fn stopped_while_it_runs_its_pes_fill_their_output_and_go_on() {
    let instance = instance(1, 2);
    let progress = instance.directory().join("progress");
    // Each round says in a file how far it is.
    let script = format!(
        "i=0; while [ $i -lt 200 ]; do i=$((i+1)); seq 1 20000; echo $i > {}; done; exit 4",
        progress.display()
    );
    let mut command = instance.command("aprun", ["-q", "sh", "-c", &script]);
    let mut held = Held::start(&mut command);
    let begin = held.read(10);
    kill(held.pid(), 19);
    eventually(BOUND, "aprun is stopped", || state_of(held.pid()) == 'T');
    let far = || -> u32 {
        let text = std::fs::read_to_string(&progress).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    };
    // It runs until nothing more fits, then waits: no progress for half a second.
    let mut seen = (far(), std::time::Instant::now());
    eventually(BOUND, "its output is full", || {
        let now = far();
        if now != seen.0 {
            seen = (now, std::time::Instant::now());
        }
        seen.1.elapsed() > Duration::from_millis(500)
    });
    assert!(far() < 200, "nothing has held it back");
    assert_eq!(instance.apids("running").len(), 1);
    // Nobody else is held up by it.
    let quick = instance.script("-q", "seq 1 100000").expect(0);
    assert_eq!(quick.out().lines().count(), 100_000);
    kill(held.pid(), 18);
    let mut all = begin;
    all.extend(held.rest());
    assert_eq!(held.status(), 4);
    let round: Vec<u8> = (1..=20_000).flat_map(|i| format!("{i}\n").into_bytes()).collect();
    assert!(all == round.repeat(200), "{} bytes", all.len());
}

/// Longer than it waits itself for an apinit that says nothing.
#[test]
fn stopped_for_long_after_its_pes_have_ended_it_has_all_they_wrote() {
    let instance = instance(1, 1);
    let written = instance.directory().join("written");
    // Less than is kept for it, and more than its pipe takes.
    let script = format!("seq 1 200000; : >{}; exit 6", written.display());
    let mut held = Held::start(&mut instance.command("aprun", ["-q", "sh", "-c", &script]));
    let begin = held.read(10);
    kill(held.pid(), 19);
    eventually(BOUND, "its PE has written all", || written.exists());
    eventually(BOUND, "its PE has ended", || processes_with(&script).len() <= 1);
    // No wait for anything: this is how long it is stopped.
    std::thread::sleep(Duration::from_secs(11));
    kill(held.pid(), 18);
    let rest = held.rest();
    let all = String::from_utf8([begin, rest].concat()).expect("text");
    assert!(
        all.lines().map(str::to_owned).eq((1..=200_000).map(|n| n.to_string())),
        "{}",
        all.len()
    );
    let mut said = String::new();
    held.0.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
    assert_eq!((held.status(), said.as_str()), (6, ""));
}

#[test]
fn killed_when_it_is_placed_it_starts_nothing() {
    let instance = instance(1, 1);
    let long = instance.start_script("-q", "exec sleep 1000");
    let apid = instance.wait_for("running", 1)[0].to_string();
    let ran = instance.directory().join("ran");
    let waits = instance.start_script("-q", &format!("touch {}", ran.display()));
    instance.wait_for("posted", 1);
    // Stopped it can't take its place; killed then, it never will.
    waits.signal(19);
    instance.run("apkill", ["-9", &apid]).expect(0);
    long.wait(BOUND).expect(137);
    instance.wait_for("placed", 1);
    waits.signal(9);
    waits.wait(BOUND).expect(137);
    eventually(Duration::from_secs(5), "its place is free", || {
        instance.apstat("-a")["applications"].as_array().is_some_and(Vec::is_empty)
    });
    instance.script("-q --immediate", "true").expect(0);
    assert!(!ran.exists());
}

#[test]
fn abort_and_interrupt_go_down() {
    let instance = instance(1, 1);
    for (name, number) in [("ABRT", 6), ("INT", 2)] {
        let script = format!("trap 'exit 40' {name}; echo ready; while :; do sleep 0.02; done");
        let mut held = Held::start(&mut instance.command("aprun", ["-q", "sh", "-c", &script]));
        assert_eq!(held.read(6), b"ready\n");
        kill(held.pid(), number);
        assert_eq!(held.status(), 40, "{name}");
    }
}

#[test]
fn a_slow_pe_0_gets_all_of_stdin() {
    let instance = instance(1, 2);
    // It reads nothing for a while, then a little at a time: more than every window waits.
    let script =
        "[ $ALPS_APP_PE = 0 ] || exit 0; sleep 1; head -c 100000 | cksum; sleep 0.2; cksum";
    let mut command = instance.command("aprun", ["-q", "-n", "2", "sh", "-c", script]);
    let mut running = Running::start(command.stdin(Stdio::piped()));
    let bytes: Vec<u8> = (0..20_000_000u32).map(|i| (i % 251) as u8).collect();
    let (head, tail) = bytes.split_at(100_000);
    let expected = format!("{}{}", cksum(head), cksum(tail));
    let mut stdin = running.child.stdin.take().expect("piped");
    let sent = bytes.clone();
    let writer = std::thread::spawn(move || stdin.write_all(&sent));
    let run = running.wait(BOUND).expect(0);
    writer.join().expect("joined").expect("taken");
    assert_eq!(run.out(), expected);
}

fn cksum(bytes: &[u8]) -> String {
    let mut child =
        Command::new("cksum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("cksum");
    child.stdin.take().expect("piped").write_all(bytes).expect("taken");
    String::from_utf8(child.wait_with_output().expect("ended").stdout).expect("text")
}

#[test]
fn a_pe_0_that_closes_stdin_early_ends_as_it_likes() {
    let instance = instance(1, 2);
    // More than every window follows the line that it reads.
    let script =
        "[ $ALPS_APP_PE = 0 ] || exit 0; read line; exec 0<&-; sleep 0.3; echo got $line; exit 6";
    let mut command = instance.command("aprun", ["-q", "-n", "2", "sh", "-c", script]);
    let mut running = Running::start(command.stdin(Stdio::piped()));
    let mut stdin = running.child.stdin.take().expect("piped");
    let writer = std::thread::spawn(move || {
        let _ = stdin.write_all(b"first\n");
        // Until nobody takes it any more; or it is thrown away.
        let _ = stdin.write_all(&vec![b'x'; 20_000_000]);
    });
    assert_eq!(running.wait(BOUND).expect(6).out(), "got first\n");
    writer.join().expect("ended");
    instance.wait_until_free();
}
