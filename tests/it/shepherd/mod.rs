//! apshepherd as apinit sees it: the real program, over a real socket.

mod pmi;
pub mod rig;
mod several;

use crate::support::{copy_program, write_program};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{MsgFlags, UnixAddr, connect, recv};
use nix::unistd::Pid;
use psched::apteam::ending::{Cause, EndCount, PeEnd};
use psched::apteam::launch::{FileIdentity, Limit};
use psched::apteam::protocol::attach::{NumberedSignal, StdinPiece};
use psched::apteam::protocol::notice::{Notice, Seen};
use psched::apteam::protocol::shepherd::{FromShepherd, ToShepherd};
use psched::machine::Nid;
use rig::*;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

fn count(end: PeEnd, count: u32, consequence: bool) -> EndCount {
    EndCount { end, count, consequence }
}

#[test]
fn pes_know_who_they_are_and_the_first_bad_code_decides() {
    let mut rig = Rig::new();
    let script = "echo $ALPS_APP_PE $ALPS_APP_DEPTH $ALPS_APP_ID $PMI_RANK/$PMI_SIZE $PMI_FD \
                  $PSCHED_APPLICATION; echo e$PMI_RANK >&2; [ $PMI_RANK != 2 ] || exit 3";
    let end = rig.run(sh(4, script));
    for rank in 0..4 {
        let line = format!("{rank} 1 12 {rank}/4 29 01234567.12.1\n");
        assert_eq!(rig.stdout(rank), line);
        assert_eq!(rig.stream(rank, true), format!("e{rank}\n"));
    }
    assert_eq!(end.ends, [count(PeEnd::Exit(0), 3, false), count(PeEnd::Exit(3), 1, false)]);
    let cause = end.first.as_ref().map(|d| d.cause.clone());
    assert_eq!(cause, Some(Cause::PeExit { rank: 2, nid: Nid(1), code: 3 }));
    assert_eq!((end.status(), end.launched, end.leftovers), (3, true, 0));
    assert_eq!(end.nids, [Nid(0), Nid(1)]);
    rig.say(ToShepherd::Release);
    assert_eq!(rig.gone(), Some(0));
}

#[test]
fn a_death_by_signal_ends_the_others() {
    let mut rig = Rig::new();
    let end = rig.run(sh(3, "[ $PMI_RANK = 1 ] && kill -SEGV $$; exec sleep 1000"));
    assert_eq!(end.status(), 139);
    assert_eq!(end.ends, [count(PeEnd::Signal(11), 1, false), count(PeEnd::Signal(15), 2, true)]);
    let [notice] = &rig.notices[..] else { panic!("{:?}", rig.notices) };
    let Notice::Seen { nid: Nid(0), at_ns, what: Seen::Ends(cause) } = notice else {
        panic!("{notice:?}")
    };
    assert_eq!(*cause, Cause::PeSignal { rank: 1, nid: Nid(0), signal: 11 });
    // After 2020, since the epoch.
    assert!((1_577_836_800_000_000_000..4_102_444_800_000_000_000).contains(at_ns), "{at_ns}");
}

#[test]
fn who_ignores_term_is_killed_after_the_grace() {
    let mut rig = Rig::new();
    let script = "[ $PMI_RANK = 0 ] || { trap '' TERM; echo set; while :; do sleep 1; done; }; \
                  read go; kill -KILL $$";
    let mut launch = sh(2, script);
    launch.stdin = true;
    launch.kill_grace = Duration::from_millis(300);
    rig.start(launch);
    rig.until_written(|rig| rig.stdout(1) == "set\n");
    let began = Instant::now();
    rig.say(ToShepherd::Stdin(StdinPiece { offset: 0, data: bytes("go\n") }));
    let end = rig.end();
    assert!(began.elapsed() >= Duration::from_millis(300));
    assert_eq!(end.ends, [count(PeEnd::Signal(9), 1, false), count(PeEnd::Signal(9), 1, true)]);
    assert_eq!(end.status(), 137);
}

#[test]
fn terminate_has_its_cause_and_its_grace() {
    let mut rig = Rig::new();
    rig.start(sh(2, "trap 'exit 4' TERM; echo ready; while :; do sleep 0.01; done"));
    rig.until_written(|rig| rig.stdout(0).len() + rig.stdout(1).len() == 12);
    let cause = Cause::TimeLimit { limit: Duration::from_secs(1) };
    rig.say(ToShepherd::Terminate { cause, kill_after: Duration::from_secs(20) });
    let end = rig.end();
    assert_eq!((end.status(), end.ends), (124, vec![count(PeEnd::Exit(4), 2, true)]));
}

#[test]
fn if_one_cannot_be_started_no_other_has_done_anything() {
    let mut rig = Rig::new();
    let mut launch = sh(3, "echo x > $PWD/ran.$PMI_RANK");
    launch.launch.directory = rig.folder().to_str().expect("utf-8").into();
    // No such processor.
    launch.pes[1].cpus = vec![60_000];
    rig.launch(launch);
    let FromShepherd::Failed(failed) = rig.next() else { panic!("no failure") };
    let Cause::LaunchFailed { rank: 1, nid: Nid(0), text, .. } = &failed.cause else {
        panic!("{failed:?}")
    };
    assert!(text.contains("processors 60000"), "{text}");
    let end = rig.end();
    assert_eq!((end.launched, end.status(), end.ends.len()), (false, 125, 0));
    assert!((0..3).all(|rank| !rig.folder().join(format!("ran.{rank}")).exists()));
}

#[test]
fn a_script_whose_interpreter_is_gone_does_not_run_anywhere() {
    let mut rig = Rig::new();
    let script = rig.folder().join("script");
    let interpreter = rig.folder().join("interpreter");
    write_program(&script, format!("#!{}\n", interpreter.display()), 0o755);
    rig.launch(launch(2, script.to_str().expect("utf-8"), &[]));
    let end = rig.end();
    let Some(Cause::LaunchFailed { text, .. }) = end.first.as_ref().map(|d| &d.cause) else {
        panic!("{end:?}")
    };
    assert!(text.contains(&format!("interpreter {} was not found", interpreter.display())));
    assert_eq!((end.launched, end.status()), (false, 127));
}

#[test]
fn what_is_no_program_is_named() {
    for (mode, content, status, says) in [
        (0o755, "echo hello\n", 126, "#!"),
        (0o644, "#!/bin/sh\n", 126, "chmod +x"),
        (0o755, "", 127, "No such file"),
    ] {
        let mut rig = Rig::new();
        let file = rig.folder().join("file");
        if !content.is_empty() {
            write_program(&file, content, mode);
        }
        rig.launch(launch(1, file.to_str().expect("utf-8"), &[]));
        let end = rig.end();
        let text = end.first.as_ref().map(|d| d.cause.to_string()).unwrap_or_default();
        assert!(text.contains(says), "{text}");
        assert_eq!(end.status(), status, "{text}");
    }
}

fn identity(path: &Path) -> FileIdentity {
    let file = std::fs::metadata(path).expect("a file");
    FileIdentity {
        device: file.dev(),
        inode: file.ino(),
        size: file.size(),
        mtime_ns: file.mtime() * 1_000_000_000 + file.mtime_nsec(),
        digest: None,
    }
}

#[test]
fn a_program_that_has_changed_since_its_posting_is_refused() {
    let mut rig = Rig::new();
    let file = rig.folder().join("true");
    copy_program("/bin/true", &file);
    let mut posted = launch(2, file.to_str().expect("utf-8"), &[]);
    posted.launch.identity = Some(identity(&file));
    let mut good = Rig::new();
    assert_eq!(good.run(posted.clone()).status(), 0);
    let anew = rig.folder().join("anew");
    copy_program("/bin/true", &anew);
    std::fs::rename(&anew, &file).expect("moved");
    rig.launch(posted);
    let end = rig.end();
    let text = end.first.as_ref().map(|d| d.cause.to_string()).unwrap_or_default();
    assert!(text.contains("has changed since it was posted"), "{text}");
    assert_eq!(end.status(), 126);
}

#[test]
fn directory_umask_limits_and_processors_are_the_callers() {
    let mut rig = Rig::new();
    let script = "pwd; umask; ulimit -S -c; ulimit -S -n; ulimit -S -t; ulimit -H -t; \
                  grep Cpus_allowed_list /proc/self/status; echo $(ls -1 /proc/self/fd)";
    let mut launch = sh(1, script);
    launch.launch.directory = b"/usr".to_vec();
    launch.launch.umask = 0o027;
    let limit = |resource, soft| Limit { resource, soft };
    launch.launch.limits = vec![limit(limits::CORE, 0), limit(limits::NOFILE, 200)];
    launch.cpu_limit = Some(Duration::from_millis(59_500));
    launch.pes[0].cpus = vec![0];
    let end = rig.run(launch);
    assert_eq!(end.status(), 0);
    // ls has the folder itself open, too.
    assert_eq!(rig.stdout(0), "/usr\n0027\n0\n200\n60\n65\nCpus_allowed_list:\t0\n0 1 2 29 3\n");
}

/// Linux's numbers.
mod limits {
    pub const CORE: u32 = 4;
    pub const NOFILE: u32 = 7;
}

#[test]
fn a_launch_may_be_larger_than_a_packet() {
    let mut rig = Rig::new();
    let mut launch = sh(2, "echo ${#BIG0} ${#BIG4}");
    for i in 0..5 {
        let value = "x".repeat(100_000);
        launch.launch.environment.push(format!("BIG{i}={value}").into_bytes());
    }
    assert_eq!(rig.run(launch).status(), 0);
    assert_eq!(rig.stdout(1), "100000 100000\n");
}

#[test]
fn cpu_time_has_its_limit() {
    let mut rig = Rig::new();
    let mut launch = sh(1, "while :; do :; done");
    launch.cpu_limit = Some(Duration::from_secs(1));
    let end = rig.run(launch);
    assert_eq!(end.ends, [count(PeEnd::Signal(Signal::SIGXCPU as i32), 1, false)]);
    // The kernel counts by ticks: about a second.
    assert!(end.usage.utime + end.usage.stime >= Duration::from_millis(500), "{:?}", end.usage);
}

#[test]
fn output_waits_for_the_window_and_comes_whole() {
    let window = psched::apteam::bounds::Bounds::default().output;
    for window in [window, window / 8] {
        output_waits_for(window);
    }
}

fn output_waits_for(window: u64) {
    let mut rig = Rig::new();
    rig.acknowledges = false;
    let total: u64 = 40_000_000;
    let mut launch = sh(1, "head -c 40000000 /dev/zero; echo; echo last >&2");
    launch.bounds.output = window;
    rig.start(launch);
    while let Some(message) = rig.hear_within(Duration::from_millis(500)) {
        let FromShepherd::Output(output) = message else { panic!("{message:?}") };
        assert_eq!(output.offset, rig.received);
        rig.received += output.data.len() as u64;
    }
    assert!(rig.received <= window && rig.received > window / 2, "{}", rig.received);
    let status = std::fs::read_to_string(format!("/proc/{}/status", rig.pid())).expect("status");
    let peak = status.lines().find(|l| l.starts_with("VmHWM")).expect("VmHWM");
    let kib: u64 = peak.split_whitespace().nth(1).expect("a number").parse().expect("a number");
    assert!(kib < 24 * 1024, "{peak}");
    rig.acknowledges = true;
    rig.say(ToShepherd::OutputTaken(rig.received));
    rig.written.insert((0, false), vec![0; rig.received as usize]);
    assert_eq!(rig.end().status(), 0);
    let stdout = &rig.written[&(0, false)];
    assert_eq!(stdout.len() as u64, total + 1);
    assert_eq!(rig.stream(0, true), "last\n");
}

#[test]
fn a_lost_connection_loses_and_doubles_nothing() {
    let mut rig = Rig::new();
    rig.start(sh(2, "for i in $(seq 20000); do echo line $i; done"));
    // Up to somewhere in the middle, of which a part is acknowledged.
    while rig.received < 60_000 {
        let FromShepherd::Output(output) = rig.hear() else { panic!("no output") };
        rig.received += output.data.len() as u64;
        rig.written.entry((output.rank, false)).or_default().extend_from_slice(&output.data);
    }
    rig.say(ToShepherd::OutputTaken(rig.received / 2));
    rig.disconnect();
    let hello = rig.connect();
    assert!(hello.launched && hello.going && !hello.ended);
    assert_eq!(hello.output_taken, rig.received / 2);
    let end = rig.end();
    let whole: String = (1..=20000).map(|i| format!("line {i}\n")).collect();
    assert!((0..2).all(|rank| rig.stdout(rank) == whole));
    // The end is told on each connection.
    rig.disconnect();
    assert!(rig.connect().ended);
    assert_eq!(rig.end(), end);
}

#[test]
fn whole_lines_do_not_mix() {
    let mut rig = Rig::new();
    let mut launch = sh(3, "for i in $(seq 2000); do printf $PMI_RANK; printf 'abc\\n'; done");
    launch.launch.whole_lines = true;
    launch.pes.iter_mut().for_each(|pe| pe.nid = Nid(pe.rank));
    rig.start(launch);
    let mut lines = 0;
    loop {
        match rig.hear() {
            FromShepherd::Output(output) => {
                assert_eq!(output.nid, Nid(output.rank));
                let text = String::from_utf8_lossy(&output.data).into_owned();
                assert!(text.ends_with('\n'), "{text:?}");
                assert!(text.lines().all(|line| line == format!("{}abc", output.rank)));
                lines += text.lines().count();
                let end = output.offset + output.data.len() as u64;
                rig.say(ToShepherd::OutputTaken(end));
            }
            FromShepherd::Ended(end) => break assert_eq!(end.status(), 0),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(lines, 6000);
}

#[test]
fn stdin_goes_to_pe_0_alone() {
    let mut rig = Rig::new();
    let mut launch = sh(2, "wc -c");
    launch.stdin = true;
    rig.start(launch);
    let total: u64 = 3_000_000;
    let mut sent = 0;
    while sent < total {
        if rig.credit == sent {
            match rig.hear() {
                FromShepherd::StdinCredit(credit) => rig.credit = credit.credit,
                FromShepherd::Output(output) => {
                    assert_eq!((output.rank, &output.data[..]), (1, &b"0\n"[..]));
                    rig.received += output.data.len() as u64;
                    rig.say(ToShepherd::OutputTaken(rig.received));
                }
                other => panic!("{other:?}"),
            }
        }
        let some = (rig.credit - sent).min(100_000).min(total - sent);
        let data = vec![b'x'; some as usize].into();
        rig.say(ToShepherd::Stdin(StdinPiece { offset: sent, data }));
        sent += some;
    }
    rig.say(ToShepherd::StdinEnd(total));
    assert_eq!(rig.end().status(), 0);
    assert_eq!(rig.stdout(0), "3000000\n");
}

#[test]
fn what_nobody_reads_of_stdin_stops_nobody() {
    let mut rig = Rig::new();
    let mut launch = sh(1, "exec <&-; echo closed; sleep 1000");
    launch.stdin = true;
    rig.start(launch);
    rig.until_written(|rig| rig.stdout(0) == "closed\n");
    let before = rig.credit;
    let data = vec![b'x'; before as usize].into();
    rig.say(ToShepherd::Stdin(StdinPiece { offset: 0, data }));
    match rig.hear() {
        FromShepherd::StdinCredit(credit) => assert!(credit.credit > before),
        other => panic!("{other:?}"),
    }
    rig.say(ToShepherd::Terminate { cause: Cause::FrontGone, kill_after: Duration::ZERO });
    assert_eq!(rig.end().status(), 125);
}

#[test]
fn what_pes_leave_behind_is_found_and_ended() {
    let marker = format!("leftover.{}", std::process::id());
    let mut rig = Rig::new();
    // One in the background, and a daemon: forked twice, in a session of its own, its files closed.
    let script = "sleep 1000 & (setsid sleep 1000 </dev/null >/dev/null 2>&1 &) ; \
                  (trap '' TERM; exec sleep 1000) & exit 0";
    let mut launch = sh(1, script);
    launch.marker = marker.clone();
    launch.kill_grace = Duration::from_millis(300);
    let end = rig.run(launch);
    assert_eq!((end.status(), end.leftovers), (0, 3));
    assert!(end.run >= Duration::from_millis(300), "{:?}", end.run);
    assert_eq!(marked(&marker), Vec::<std::path::PathBuf>::new());
}

#[test]
fn what_ends_by_itself_soon_is_not_left_behind() {
    let mut rig = Rig::new();
    let end = rig.run(sh(1, "(sleep 0.02; echo last) & exit 0"));
    assert_eq!((end.status(), end.leftovers), (0, 0));
    assert_eq!(rig.stdout(0), "last\n");
}

fn uncounted(signal: Signal) -> NumberedSignal {
    NumberedSignal { number: 0, signal: signal as i32 }
}

#[test]
fn signals_go_down_and_early_ones_wait() {
    let mut rig = Rig::new();
    let script = "trap 'echo usr1' USR1; trap 'echo usr2; exit 0' USR2; echo ready; \
                  while :; do sleep 0.01; done";
    rig.launch(sh(1, script));
    assert_eq!(rig.next(), FromShepherd::Ready);
    // Default action of WINCH: none; it must not make a program go that stands.
    rig.say(ToShepherd::Signal(uncounted(Signal::SIGWINCH)));
    rig.say(ToShepherd::Go);
    rig.until_written(|rig| rig.stdout(0) == "ready\n");
    rig.say(ToShepherd::Signal(uncounted(Signal::SIGUSR1)));
    rig.until_written(|rig| rig.stdout(0) == "ready\nusr1\n");
    rig.say(ToShepherd::Signal(uncounted(Signal::SIGUSR2)));
    assert_eq!(rig.end().status(), 0);
    assert_eq!(rig.stdout(0), "ready\nusr1\nusr2\n");
}

#[test]
fn nothing_runs_before_go_even_if_the_shepherd_dies() {
    let marker = format!("early.{}", std::process::id());
    let mut rig = Rig::new();
    let mut launch = sh(2, "echo x > ran");
    launch.launch.directory = rig.folder().to_str().expect("utf-8").into();
    launch.marker = marker.clone();
    rig.launch(launch);
    assert_eq!(rig.next(), FromShepherd::Ready);
    assert_eq!(marked(&marker).len(), 2);
    kill(Pid::from_raw(rig.pid()), Signal::SIGKILL).expect("killed");
    within("end of the PEs", || marked(&marker).is_empty());
    assert!(!rig.folder().join("ran").exists());
}

#[test]
fn pes_do_not_outlive_their_shepherd() {
    let marker = format!("orphans.{}", std::process::id());
    let mut rig = Rig::new();
    let mut launch = sh(2, "trap '' TERM HUP; echo up; while :; do sleep 0.01; done");
    launch.marker = marker.clone();
    rig.start(launch);
    rig.until_written(|rig| rig.stdout(0) == "up\n" && rig.stdout(1) == "up\n");
    kill(Pid::from_raw(rig.pid()), Signal::SIGKILL).expect("killed");
    within("end of the PEs", || marked(&marker).is_empty());
}

#[test]
fn a_stranger_is_not_heard() {
    const SOCKET: &str = "PSCHED_TEST_STRANGERS_SOCKET";
    if let Some(path) = std::env::var_os(SOCKET) {
        // This is the stranger: the same test, as another user.
        let fd = seqpacket();
        let address = UnixAddr::new(Path::new(&path)).expect("a short path");
        connect(fd.as_raw_fd(), &address).expect("the socket is open to all");
        let heard = recv(fd.as_raw_fd(), &mut [0; 100], MsgFlags::empty());
        return assert!(matches!(heard, Ok(0) | Err(Errno::ECONNRESET)), "{heard:?}");
    }
    if !nix::unistd::Uid::effective().is_root() {
        return println!("a_stranger_is_not_heard skipped: it takes root to be two users");
    }
    let mut rig = Rig::new();
    let socket = rig.folder().join("shepherd.sock");
    for path in [rig.folder(), &socket] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o777)).expect("chmod");
    }
    // A copy, as the build's folder may be closed to others.
    let test = rig.folder().join("test");
    copy_program(std::env::current_exe().expect("this test"), &test);
    rig.disconnect();
    let mut stranger = Command::new(&test);
    stranger.args(["--exact", "shepherd::a_stranger_is_not_heard"]).env(SOCKET, &socket);
    stranger.uid(54_321).gid(54_321).current_dir("/");
    let output = stranger.output().expect("it ran");
    assert!(output.status.success(), "{output:?}");
    assert!(!rig.connect().launched);
}

/// A new control group, removed with this.
struct Group(std::path::PathBuf);

impl Group {
    /// Where this process may make groups.
    fn new(name: &str) -> Option<Group> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
        let mount = mounts.lines().find(|line| line.contains(" - cgroup2 "))?;
        let root = Path::new(mount.split(' ').nth(4)?);
        let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
        let path = root.join(own).join(format!("test.{}.{name}", std::process::id()));
        std::fs::create_dir(&path).ok()?;
        Some(Group(path))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::write(self.0.join("cgroup.kill"), "1");
        let began = Instant::now();
        while std::fs::remove_dir(&self.0).is_err() && began.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn pes_are_born_in_the_group_of_their_node() {
    let (Some(zero), Some(one)) = (Group::new("zero"), Group::new("one")) else {
        return println!("pes_are_born_in_the_group_of_their_node skipped: no cgroup v2 to use");
    };
    let mut rig = Rig::with_groups(&[(Nid(0), &zero.0), (Nid(1), &one.0)]);
    let end = rig.run(sh(3, "grep ^0: /proc/self/cgroup"));
    assert_eq!(end.status(), 0);
    for (rank, name) in [(0, "zero"), (1, "zero"), (2, "one")] {
        let group = rig.stdout(rank);
        assert!(group.ends_with(&format!("test.{}.{name}\n", std::process::id())), "{group}");
    }
}

#[test]
fn with_the_lifeline_everything_goes() {
    let marker = format!("lifeline.{}", std::process::id());
    let mut rig = Rig::new();
    let mut launch = sh(2, "trap '' TERM HUP; (setsid sleep 1000 &); echo up; sleep 1000");
    launch.marker = marker.clone();
    rig.start(launch);
    rig.until_written(|rig| rig.stdout(0) == "up\n" && rig.stdout(1) == "up\n");
    rig.disconnect();
    rig.lifeline = None;
    rig.gone();
    within("end of the PEs", || marked(&marker).is_empty());
}

#[test]
fn released_without_a_launch_it_goes() {
    let mut rig = Rig::new();
    rig.say(ToShepherd::Release);
    assert_eq!(rig.gone(), Some(0));
}
