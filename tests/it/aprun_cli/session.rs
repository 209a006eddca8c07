//! Whole courses of aprun, with a psched and an apinit played by the test.

use super::command;
use super::fake::{Fake, KEY, Posted, soon};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pb::application_event::Event;
use pb::cause::Kind;
use pb::from_apinit::Message as From;
use pb::front_terminate::Reason;
use pb::to_apinit::Message as To;
use psched::rpc::pb;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Output, Stdio};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};
use tonic::Status;

fn aprun(fake: &Fake, arguments: &[&str]) -> Command {
    let mut command = command(env!("CARGO_BIN_EXE_aprun"));
    command.args(arguments).env("PSCHED_SOCKET", &fake.socket).current_dir(fake.folder.path());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut command = Command::from(command);
    command.kill_on_drop(true);
    command
}

pub fn start(fake: &Fake, arguments: &[&str]) -> Child {
    aprun(fake, arguments).spawn().expect("aprun can be started")
}

pub async fn finish(child: Child) -> Output {
    soon(child.wait_with_output()).await.expect("aprun can be waited for")
}

#[track_caller]
pub fn assert_output(output: &Output, stdout: &str, stderr: &str, status: i32) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(
        (text(&output.stdout), text(&output.stderr), output.status.code()),
        (stdout.to_owned(), stderr.to_owned(), Some(status))
    );
}

const TOOK: &str = "Application 12 took 0.000 s: user 0.000 s, system 0.000 s, peak memory 100K\n";

fn credit(credit: u64) -> From {
    From::StdinCredit(pb::StdinCredit { credit, received: 0 })
}

fn stdin(offset: u64, data: &'static [u8]) -> To {
    To::Stdin(pb::StdinPiece { offset, data: data.into() })
}

fn stdin_end(length: u64) -> To {
    To::StdinEnd(pb::StdinEnd { length })
}

fn passed(number: u64, signal: i32) -> To {
    To::Signal(pb::NumberedSignal { number, signal })
}

fn signal(child: &Child, signal: Signal) {
    let pid = child.id().expect("it runs");
    kill(Pid::from_raw(pid as i32), signal).expect("our child");
}

#[tokio::test]
async fn a_whole_course() {
    let mut fake = Fake::start();
    let mut command = aprun(&fake, &["-n", "2", "-d3", "-m", "2K", "-e", "A=b c", "sh", "-c", "x"]);
    let child = command.env("PMI_RANK", "5").spawn().expect("aprun can be started");
    let (posted, mut attached, launch) = fake.going().await;
    let request = posted.request.as_ref().expect("a posting");
    assert_eq!(request.shape, Some(pb::Shape { width: 2, depth: 3, per_node: 0 }));
    assert_eq!((request.memory_per_pe, request.command.as_str()), (2048, "sh -c x"));
    let executable = request.executable.as_ref().expect("what is run");
    assert!(executable.path.ends_with("/sh") && executable.machine != 0, "{executable:?}");
    let arguments: Vec<&[u8]> = launch.arguments.iter().map(|a| &a[..]).collect();
    assert_eq!(arguments, [&b"sh"[..], b"-c", b"x"]);
    assert_eq!(launch.executable, executable.path.as_bytes());
    let directory = fake.folder.path().canonicalize().expect("there");
    assert_eq!(launch.directory, directory.as_os_str().as_encoded_bytes());
    assert!(launch.environment.iter().any(|e| &e[..] == b"A=b c"));
    assert!(!launch.environment.iter().any(|e| e.starts_with(b"PMI_RANK=")));
    assert!(launch.pmi && !launch.whole_lines);
    assert_eq!(launch.limits.len(), 2);
    assert!(launch.identity.is_some_and(|i| i.size > 0));
    attached.output(0, false, b"out\n");
    attached.output(1, true, b"err\n");
    attached.taken().await;
    attached.done();
    posted.end(0, None);
    assert_output(&finish(child).await, "out\n", "err\n", 0);
}

#[tokio::test]
async fn closing_lines_and_quiet() {
    let cause = || {
        Some(pb::Cause {
            kind: Kind::PeSignal.into(),
            rank: 5,
            nid: 3,
            signal: 11,
            ..Default::default()
        })
    };
    for (quiet, options) in [(false, &["true"][..]), (true, &["-q", "true"][..])] {
        let mut fake = Fake::start();
        let child = start(&fake, options);
        let (posted, attached, _) = fake.going().await;
        attached.done();
        posted.end(139, cause());
        let output = finish(child).await;
        assert_eq!(output.status.code(), Some(139));
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let first = text.lines().next().expect("a line");
        assert!(first.starts_with("[NID 00003] 20"), "{text}");
        let died = " Apid 12: PE 5 died: Segmentation fault (signal 11); initiated application \
                    termination";
        assert!(first.ends_with(died), "{text}");
        assert_eq!(text.contains("Application 12 took "), !quiet, "{text}");
    }
}

#[tokio::test]
async fn refusals_of_psched() {
    let fake = Fake::refusing(Status::invalid_argument("-n 1000: at most 8 PEs can be placed"));
    let output = finish(start(&fake, &["-n", "1000", "true"])).await;
    assert_output(&output, "", "aprun: -n 1000: at most 8 PEs can be placed\n", 125);
}

#[tokio::test]
async fn dry_run() {
    let fake = Fake::start();
    let output = finish(start(&fake, &["-n", "2", "--dry-run", "true"])).await;
    let table = " Rank   NID Processors\n    0     3 0\n    1     3 1\n";
    assert_output(&output, table, "", 0);
}

#[tokio::test]
async fn interrupted_while_it_waits() {
    let mut fake = Fake::start();
    let child = start(&fake, &["true"]);
    let posted = fake.posted().await;
    posted.tell(Event::Accepted(pb::Accepted { apid: KEY.apid, ..Default::default() }));
    // Until the event is read, ^C needs no answer of psched's: either way it ends by INT.
    signal(&child, Signal::SIGINT);
    let output = finish(child).await;
    assert_eq!(output.status.signal(), Some(2));
    assert!(output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}");
    assert!(matches!(fake.kills.lock().expect("no panic")[..], [] | [2]));
}

#[tokio::test]
async fn signals_go_down_and_psched_s_does_not() {
    let mut fake = Fake::start();
    let child = start(&fake, &["true"]);
    let posted = fake.posted().await;
    // This process plays psched, so its USR1 says "look". It has connected, so handlers are there.
    posted.tell(Event::Accepted(pb::Accepted { apid: KEY.apid, ..Default::default() }));
    signal(&child, Signal::SIGUSR2);
    signal(&child, Signal::SIGUSR1);
    // The signal may have come before the event; its twin may not be needed.
    posted.tell(Event::Placed(pb::Placed { incarnation: 1 }));
    let mut attached = fake.attached().await;
    assert!(matches!(attached.next().await, To::Launch(_)));
    attached.go();
    assert_eq!(attached.next().await, passed(1, 12));
    let others = [
        Signal::SIGINT,
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGQUIT,
        Signal::SIGABRT,
        Signal::SIGUSR2,
        Signal::SIGURG,
        Signal::SIGWINCH,
    ];
    for (number, passed_on) in (2..).zip(others) {
        signal(&child, Signal::SIGUSR1);
        signal(&child, passed_on);
        assert_eq!(attached.next().await, passed(number, passed_on as i32));
    }
    // Another process's goes down.
    let pid = child.id().expect("it runs").to_string();
    let sent = Command::new("sh").args(["-c", &format!("kill -USR1 {pid}")]).status().await;
    assert!(sent.expect("a shell").success());
    assert_eq!(attached.next().await, passed(10, 10));
    // But one with psched's mark does not: it may be of a psched that aprun has never met.
    let marked = Command::new("/bin/kill").args(["-q", "1886610280", "-s", "USR1", &pid]).status();
    assert!(marked.await.expect("kill(1)").success());
    signal(&child, Signal::SIGUSR2);
    assert_eq!(attached.next().await, passed(11, 12));
    attached.done();
    posted.end(0, None);
    assert_output(&finish(child).await, "", "", 0);
}

#[tokio::test]
async fn a_signal_that_was_ignored_stays_so() {
    let mut fake = Fake::start();
    let mut shell = Command::new("sh");
    let script = format!("trap '' INT; exec {} true", env!("CARGO_BIN_EXE_aprun"));
    shell.args(["-c", &script]).env("PSCHED_SOCKET", &fake.socket);
    shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let child = shell.spawn().expect("a shell");
    let (posted, mut attached, _) = fake.going().await;
    // When this has been written, aprun knows that the PEs run.
    attached.output(0, false, b"x\n");
    attached.taken().await;
    signal(&child, Signal::SIGINT);
    signal(&child, Signal::SIGTERM);
    assert_eq!(attached.next().await, passed(1, 15));
    attached.done();
    posted.end(0, None);
    assert_output(&finish(child).await, "x\n", "", 0);
}

/// By a node of the release before, say: it would not understand it if it were said for ever.
#[tokio::test]
async fn a_launch_that_is_not_understood() {
    let mut fake = Fake::start();
    let child = start(&fake, &["-n", "2", "-cc", "0:1,0", "true"]);
    let posted = fake.posted().await;
    posted.place();
    for _ in 0..6 {
        let mut attached = fake.attached().await;
        let To::Launch(request) = attached.next().await else { panic!("a launch comes first") };
        let launch = request.launch.expect("whole");
        assert_eq!(launch.binding(), pb::launch::Binding::Lists);
        let ranges: Vec<usize> = launch.binding_lists.iter().map(|l| l.ranges.len()).collect();
        assert_eq!(ranges, [1, 1]);
        attached.fail(Status::invalid_argument("Launch.binding: 4 is an unknown kind"));
    }
    let said = "aprun: application 12 was not launched: Launch.binding: 4 is an unknown kind\n";
    assert_output(&finish(child).await, "", said, 125);
}

#[tokio::test]
async fn labels() {
    let mut fake = Fake::start();
    let child = start(&fake, &["-q", "--label", "-n", "2", "true"]);
    let (posted, mut attached, launch) = fake.going().await;
    assert!(launch.whole_lines);
    attached.output(1, false, b"a\nb\n");
    attached.output(0, false, b"c\n");
    attached.output(0, true, b"d\n");
    attached.taken().await;
    attached.done();
    posted.end(0, None);
    assert_output(&finish(child).await, "1: a\n1: b\n0: c\n", "0: d\n", 0);
}

#[tokio::test]
async fn the_table_comes_before_the_closing_lines() {
    for (option, lines) in [("-T", ""), ("-v", TOOK), ("-q", "")] {
        let mut fake = Fake::start();
        let child = start(&fake, &[option, "--report", "-n", "2", "true"]);
        let posted = fake.posted().await;
        posted.place();
        let mut attached = fake.attached().await;
        let To::Launch(request) = attached.next().await else { panic!("a launch comes first") };
        assert!(request.launch.expect("whole").report);
        attached.go();
        attached.output(1, false, b"out\n");
        let report = pb::PeReport { pid: 4711, elapsed_us: 12_345_678, code: 0, signal: 9 };
        attached.report(1, report);
        attached.output(0, true, b"err\n");
        attached.taken().await;
        attached.done();
        posted.end(0, None);
        let table = "Name Rank NID  PID Elapsed Exit Signal\n\
                     true    0   3    -       -    - -\n\
                     true    1   3 4711 12.345s    - Killed\n";
        assert_output(&finish(child).await, "out\n", &format!("err\n{table}{lines}"), 0);
    }
}

#[tokio::test]
async fn files_for_each_rank() {
    let mut fake = Fake::start();
    let child = start(&fake, &["-q", "-n", "2", "--output", "out.%a.%n.%r", "true"]);
    let (posted, mut attached, _) = fake.going().await;
    attached.output(1, false, b"one\n");
    attached.output(1, true, b"err\n");
    attached.taken().await;
    attached.done();
    posted.end(0, None);
    assert_output(&finish(child).await, "", "err\n", 0);
    let read = |name: &str| std::fs::read_to_string(fake.folder.path().join(name)).expect(name);
    assert_eq!((read("out.12.3.0"), read("out.12.3.1")), (String::new(), "one\n".to_owned()));

    let child = start(&fake, &["--error", "/nope/err", "true"]);
    let posted = fake.posted().await;
    posted.place();
    let output = finish(child).await;
    assert_output(&output, "", "aprun: --error: /nope/err: No such file or directory\n", 125);
}

/// What aprun says about an output that it can't get rid of, and what it then gives as its status.
async fn with_stdout(stdout: Stdio, arguments: &[&str], kind: Kind, status: u32) -> Output {
    let mut fake = Fake::start();
    let mut command = aprun(&fake, arguments);
    command.stdout(stdout);
    let child = command.spawn().expect("aprun can be started");
    drop(command);
    let (posted, mut attached, _) = fake.going().await;
    attached.output(0, false, b"x\n");
    loop {
        if let To::Terminate(terminate) = attached.next().await {
            let reason = match kind {
                Kind::StdoutClosed => Reason::StdoutClosed,
                Kind::FrontGone => Reason::Gone,
                other => panic!("{other:?} is no front end's"),
            };
            assert_eq!(terminate.reason(), reason);
            attached.done();
            posted.end(status, Some(pb::Cause { kind: kind.into(), ..pb::Cause::default() }));
            return finish(child).await;
        }
    }
}

#[tokio::test]
async fn stdout_closed_by_its_reader() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let stdout = Stdio::from(OwnedFd::from(writer));
    let output = with_stdout(stdout, &["-q", "true"], Kind::StdoutClosed, 141).await;
    assert_eq!(output.status.code(), Some(141));
}

#[tokio::test]
async fn stdout_on_a_full_disk() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
    let output = with_stdout(full.into(), &["true"], Kind::FrontGone, 125).await;
    let said = format!(
        "aprun: can't write standard output: No space left on device; application 12 is ended\n{TOOK}"
    );
    assert_output(&output, "", &said, 125);
}

#[tokio::test]
async fn stdout_closed_from_the_start() {
    let mut fake = Fake::start();
    for (text, status) in [("", 0), ("x\n", 141)] {
        let mut shell = Command::new("sh");
        let script = format!("exec {} -q true <&- >&-", env!("CARGO_BIN_EXE_aprun"));
        shell.args(["-c", &script]).env("PSCHED_SOCKET", &fake.socket);
        shell.stdin(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
        let child = shell.spawn().expect("a shell");
        let (posted, mut attached, _) = fake.going().await;
        attached.say(credit(1000));
        assert_eq!(attached.next().await, stdin_end(0));
        if !text.is_empty() {
            attached.output(0, false, text.as_bytes());
            attached.taken().await;
        }
        attached.done();
        // psched may not have heard of it: the output is lost all the same.
        posted.end(0, None);
        let output = finish(child).await;
        let said = match text {
            "" => "",
            _ => "aprun: standard output was closed: output of application 12 is lost\n",
        };
        assert_eq!(output.status.code(), Some(status), "{text:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), said, "{text:?}");
    }
}

#[tokio::test]
async fn stdin_is_read_as_far_as_there_is_room() {
    let mut fake = Fake::start();
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let mut command = aprun(&fake, &["-q", "cat"]);
    command.stdin(Stdio::from(OwnedFd::from(reader)));
    let child = command.spawn().expect("aprun can be started");
    drop(command);
    let (posted, mut attached, _) = fake.going().await;
    std::io::Write::write_all(&mut writer, b"0123456789").expect("room in the pipe");
    attached.say(credit(4));
    assert_eq!(attached.next().await, stdin(0, b"0123"));
    attached.say(credit(7));
    assert_eq!(attached.next().await, stdin(4, b"456"));
    drop(writer);
    attached.say(credit(1000));
    assert_eq!(attached.next().await, stdin(7, b"789"));
    assert_eq!(attached.next().await, stdin_end(10));
    attached.done();
    posted.end(0, None);
    assert_output(&finish(child).await, "", "", 0);
}

#[tokio::test]
async fn stdin_from_a_file() {
    let mut fake = Fake::start();
    let path = fake.folder.path().join("input");
    std::fs::write(&path, "text").expect("our folder");
    let mut command = aprun(&fake, &["-q", "cat"]);
    command.stdin(std::fs::File::open(&path).expect("just written"));
    let child = command.spawn().expect("aprun can be started");
    let (posted, mut attached, _) = fake.going().await;
    attached.say(credit(1000));
    assert_eq!(attached.next().await, stdin(0, b"text"));
    assert_eq!(attached.next().await, stdin_end(4));
    attached.done();
    posted.end(0, None);
    assert_output(&finish(child).await, "", "", 0);
}

/// The largest resident set so far, in KiB.
fn peak_kib(child: &Child) -> u64 {
    let pid = child.id().expect("it runs");
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find(|l| l.starts_with("VmHWM:")).expect("there");
    line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number")
}

#[tokio::test]
async fn a_reader_that_stops_loses_nothing_and_costs_no_memory() {
    const PIECE: usize = 64 * 1024;
    const WINDOW: usize = 2 * 1024 * 1024;
    const TOTAL: usize = 24 * 1024 * 1024;
    let mut fake = Fake::start();
    let mut child = start(&fake, &["-q", "true"]);
    let (posted, mut attached, _) = fake.going().await;
    let before = peak_kib(&child);
    // As an apshepherd does: never more on its way than the window.
    let mut sent = 0;
    let mut taken = 0;
    let pattern = |at: usize| (at / 7 % 251) as u8;
    let mut stdout = child.stdout.take();
    let mut reading = None;
    while taken < TOTAL {
        while sent < TOTAL && sent + PIECE <= taken + WINDOW {
            let data: Vec<u8> = (sent..sent + PIECE).map(pattern).collect();
            attached.output(0, false, &data);
            sent += PIECE;
        }
        if let Some(mut stdout) = stdout.take() {
            // Nobody reads stdout: stderr flows all the same.
            attached.output(0, true, b"still here\n");
            let mut line = [0; 11];
            let stderr = child.stderr.as_mut().expect("a pipe");
            soon(stderr.read_exact(&mut line)).await.expect("a line");
            assert_eq!(&line, b"still here\n");
            reading = Some(tokio::spawn(async move {
                let mut got = Vec::with_capacity(TOTAL);
                stdout.read_to_end(&mut got).await.expect("readable");
                got
            }));
        }
        if let To::OutputTaken(report) = attached.next().await {
            taken = report.offset as usize;
        }
    }
    let grown = peak_kib(&child) - before;
    assert!(grown < 32 * 1024, "{grown} KiB more");
    attached.done();
    posted.end(0, None);
    let got = soon(reading.expect("begun")).await.expect("no panic");
    assert_eq!(got.len(), TOTAL);
    assert!(got.iter().enumerate().all(|(at, byte)| *byte == pattern(at)));
    assert_output(&finish(child).await, "", "", 0);
}

#[tokio::test]
async fn both_daemons_restart_and_nothing_is_lost_or_doubled() {
    let mut fake = Fake::start();
    let child = start(&fake, &["-q", "true"]);
    let (posted, mut attached, _) = fake.going().await;
    attached.output(0, false, b"first\n");
    attached.taken().await;
    drop((posted, attached));
    let mut fake = fake.restart().await;
    let watched: Posted = fake.posted().await;
    assert!(watched.request.is_none(), "it is watched, not posted again");
    let mut attached = fake.attached().await;
    let To::Resume(resume) = attached.next().await else { panic!("a resumption") };
    assert_eq!(resume.taken, [pb::OutputTaken { source: 0, offset: 6 }]);
    attached.go();
    attached.output(0, false, b"first\nsecond\n");
    attached.taken().await;
    attached.done();
    watched.end(0, None);
    assert_output(&finish(child).await, "first\nsecond\n", "", 0);
}

#[tokio::test]
async fn output_with_a_hole_is_asked_for_again_and_then_told() {
    let mut fake = Fake::start();
    let child = start(&fake, &["-q", "true"]);
    let (posted, mut attached, _) = fake.going().await;
    attached.output(0, false, b"first\n");
    attached.taken().await;
    // Once it comes when it is asked for, and once it never does.
    attached.skip(7);
    attached.output(0, false, b"third\n");
    let resumed = async |fake: &mut Fake, taken| {
        let mut attached = fake.attached().await;
        let To::Resume(resume) = attached.next().await else { panic!("a resumption") };
        assert_eq!(resume.taken, [pb::OutputTaken { source: 0, offset: taken }]);
        attached.go();
        attached.skip(taken);
        attached
    };
    let mut attached = resumed(&mut fake, 6).await;
    attached.output(0, false, b"second\nthird\n");
    attached.taken().await;
    for _ in 0..5 {
        attached.skip(8);
        attached.output(0, false, b"last\n");
        attached = resumed(&mut fake, 19).await;
    }
    attached.skip(8);
    attached.output(0, false, b"last\n");
    attached.taken().await;
    attached.done();
    posted.end(0, None);
    let lost = "aprun: application 12: 8 bytes of output of its PEs on NID 3 are lost\n";
    assert_output(&finish(child).await, "first\nsecond\nthird\nlast\n", lost, 125);
}

#[tokio::test]
async fn a_psched_that_goes_away_before_it_has_answered() {
    let mut fake = Fake::start();
    let child = start(&fake, &["-q", "true"]);
    let first = fake.posted().await.request.expect("a posting");
    let mut fake = fake.restart().await;
    let again = fake.posted().await;
    let repeated = again.request.as_ref().expect("a posting");
    assert_eq!(repeated.request_id, first.request_id);
    // So that psched looks also among what has ended.
    assert!(!first.again && repeated.again);
    again.place();
    let mut attached = fake.attached().await;
    assert!(matches!(attached.next().await, To::Launch(_)));
    attached.go();
    attached.done();
    again.end(0, None);
    assert_output(&finish(child).await, "", "", 0);
}
