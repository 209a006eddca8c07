//! The real apinit with the real apshepherd; psched and aprun are played.

mod deaths;
pub mod front;
pub mod rig;

use front::*;
use psched::apteam::Ticket;
use psched::apteam::ending::{EndCount, HostEnd, PeEnd};
use psched::apteam::posting::Owner;
use psched::apteam::protocol::attach::{FromApinit, FrontReason, ToApinit};
use psched::apteam::protocol::node::{Command, Report};
use psched::machine::Nid;
use rig::*;
use std::path::Path;
use std::time::Duration;

#[tokio::test]
async fn a_life() {
    let mut instance = Instance::new().await;
    let apinit = Apinit::start(&instance, "0-1");
    let mut link = instance.link().await;
    assert_eq!(link.hello.nids, [Nid(0), Nid(1)]);
    assert_eq!(Path::new(&link.hello.socket), instance.apinit_socket(0));
    assert_eq!((link.hello.store_id.as_str(), link.hello.hostname.as_str()), ("", "host-of-0-1"));
    assert!(!link.hello.cpus.is_empty() && link.hello.memory > 0 && link.inventory.is_empty());
    let place = instance.place("12.1", &[&[0, 1]], 2);
    let key = place.key;
    link.place(&place).await;
    let script = "echo $ALPS_APP_PE of $PMI_SIZE; exit 3";
    let mut front = Front::launch(&instance.apinit_socket(0), key, script).await;
    front.until_going().await;
    front.until_done().await;
    assert_eq!(sorted(&front.output), ["0 of 4", "1 of 4", "2 of 4", "3 of 4"]);
    assert_eq!(link.report().await, Report::Launched(key));
    assert_eq!(link.report().await, Report::Running(key));
    let end = link.ended().await;
    assert_eq!((end.key, &*end.nids, end.launched), (key, &[Nid(0), Nid(1)][..], true));
    assert_eq!((end.ends.clone(), end.leftovers, end.status()), (exits(3, 4), 0, 3));
    // Again and again until it is acknowledged.
    assert_eq!(link.word().await, Report::Ended(Box::new(end)));
    assert!(apinit.app(key).exists());
    link.acknowledge(key).await;
    assert_eq!(front.next().await, None, "the stream is closed");
    let app = apinit.app(key);
    until("the runtime directory to go", || !app.exists()).await;
    if let Some(groups) = instance.groups() {
        until("the groups to go", || !groups.exists()).await;
    }
    apinit.end().await;
    assert!(!instance.apinit_socket(0).exists());
}

/// What waits for it must not fill apinit's memory.
#[tokio::test]
async fn a_front_end_that_asks_and_never_reads_is_hung_up_on() {
    let mut instance = Instance::new().await;
    let apinit = Apinit::start(&instance, "0");
    let mut link = instance.link().await;
    let place = instance.place("8.1", &[&[0]], 1);
    let key = place.key;
    link.place(&place).await;
    let mut front = Front::launch(&instance.apinit_socket(0), key, "exec sleep 1000").await;
    front.until_going().await;
    // Each is answered by a notice, of some nine bytes: far more than a connection holds.
    const ASKED: u32 = 200_000;
    bounded("all to be said", async {
        for _ in 0..ASKED {
            // An Err: that is what it is about.
            let _ = front.sender.send(launch(key, "true").into()).await;
        }
    })
    .await;
    let mut answers = 0;
    // The stream is reset, so that what waits is not kept until it is read.
    while let Ok(message) = bounded("an answer", front.stream.message()).await {
        assert!(message.is_some(), "the rest of {answers} answers was kept");
        answers += 1;
    }
    assert!(answers < ASKED, "all {answers} were kept for it");
    // Its application has not noticed, and it may come back.
    let taken = Vec::new();
    let resume = ToApinit::Resume { key, ticket: TICKET, taken };
    let mut front = Front::attach(&instance.apinit_socket(0), resume).await;
    assert_eq!(front.next().await, Some(FromApinit::Accepted));
    front
        .say(ToApinit::Terminate { reason: FrontReason::StdoutClosed, kill_after: Duration::ZERO })
        .await;
    let end = link.ended().await;
    link.acknowledge(end.key).await;
    apinit.end().await;
}

#[tokio::test]
async fn what_pes_leave_behind_is_gone_before_the_end_is_told() {
    let mut instance = Instance::new().await;
    let apinit = Apinit::start(&instance, "0");
    let mut link = instance.link().await;
    let place = instance.place("7.1", &[&[0]], 1);
    link.place(&place).await;
    let script = "setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo $!";
    let mut front = Front::launch(&instance.apinit_socket(0), place.key, script).await;
    front.until_going().await;
    let left = Path::new("/proc").join(front.until_pid().await);
    let end = link.ended().await;
    assert!(!left.exists(), "{left:?} is left");
    assert_eq!((end.leftovers, end.status()), (1, 0));
    link.acknowledge(place.key).await;
    apinit.end().await;
}

#[tokio::test]
async fn a_wrong_ticket_and_a_placement_taken_back() {
    let mut instance = Instance::new().await;
    let apinit = Apinit::start(&instance, "0");
    let mut link = instance.link().await;
    let place = instance.place("12.1", &[&[0]], 1);
    let key = place.key;
    link.place(&place).await;
    let app = apinit.app(key);
    until("the shepherd's socket", || app.join("shepherd.sock").exists()).await;
    let ToApinit::Launch { launch, .. } = launch(key, "echo no") else { panic!("it is one") };
    let guess = ToApinit::Launch { key, ticket: Ticket([1; 16]), launch };
    let mut front = Front::attach(&instance.apinit_socket(0), guess).await;
    let text = "the ticket is not the one of application 12.1".to_string();
    assert_eq!(front.next().await, Some(FromApinit::Refused { text, cause: None }));
    assert_eq!(front.next().await, None);
    link.send(Command::TakeBack { key, number: 7 }).await;
    assert_eq!(link.report().await, Report::TakenBack { key, number: 7 });
    until("the runtime directory to go", || !app.exists()).await;
    apinit.end().await;
}

#[tokio::test]
async fn one_application_on_two_apinits() {
    let mut instance = Instance::new().await;
    let head = Apinit::start(&instance, "0");
    let mut links = vec![instance.link().await];
    let other = Apinit::start(&instance, "1");
    links.push(instance.link().await);
    let place = instance.place("12.1", &[&[0], &[1]], 2);
    let key = place.key;
    for link in &mut links {
        link.place(&place).await;
    }
    // Each puts its rank, and reads its neighbour's after the barrier.
    let script = r#"
        ask() { echo "$1" >&$PMI_FD; read -r answer <&$PMI_FD; }
        ask "cmd=init pmi_version=1 pmi_subversion=1"
        ask "cmd=get_my_kvsname"; name=${answer##*kvsname=}
        ask "cmd=put kvsname=$name key=k$PMI_RANK value=v$PMI_RANK"
        ask "cmd=barrier_in"
        next=$(( (PMI_RANK + 1) % PMI_SIZE ))
        ask "cmd=get kvsname=$name key=k$next"; echo "$PMI_RANK ${answer##*value=}"
        ask "cmd=finalize"
    "#;
    let mut front = Front::launch(&instance.apinit_socket(0), key, script).await;
    front.until_going().await;
    front.until_done().await;
    assert_eq!(sorted(&front.output), ["0 v1", "1 v2", "2 v3", "3 v0"]);
    assert_eq!(front.had.keys().copied().collect::<Vec<_>>(), [0, 1], "one source a host");
    for (nid, link) in (0..).zip(&mut links) {
        let end = link.ended().await;
        assert_eq!((end.nids.clone(), end.ends.clone()), (vec![Nid(nid)], exits(0, 2)));
        link.acknowledge(key).await;
    }
    assert_eq!(front.next().await, None);
    for apinit in [&head, &other] {
        let app = apinit.app(key);
        until("the runtime directory to go", || !app.exists()).await;
    }

    // A PE of the other host dies: so do those of the head.
    let place = instance.place("13.1", &[&[0], &[1]], 1);
    for link in &mut links {
        link.place(&place).await;
    }
    let script = "if [ $PMI_RANK = 1 ]; then kill -SEGV $$; fi; exec sleep 1000";
    let mut front = Front::launch(&instance.apinit_socket(0), place.key, script).await;
    front.until_going().await;
    front.until_done().await;
    let mut ends = Vec::new();
    for link in &mut links {
        ends.push(link.ended().await);
    }
    let whole = ends.into_iter().reduce(HostEnd::and).expect("two");
    assert_eq!(whole.status(), 128 + 11, "{whole:?}");
    let own = |e: &&EndCount| !e.consequence;
    let own: Vec<_> = whole.ends.iter().filter(own).map(|e| (e.end, e.count)).collect();
    assert_eq!(own, [(PeEnd::Signal(11), 1)], "{whole:?}");
    head.end().await;
    other.end().await;
}

#[tokio::test]
async fn every_byte_of_much_output_arrives() {
    const BYTES: u64 = 24 << 20;
    let mut instance = Instance::new().await;
    let apinit = Apinit::start(&instance, "0");
    let mut link = instance.link().await;
    let place = instance.place("12.1", &[&[0]], 2);
    link.place(&place).await;
    let script = format!("head -c {} /dev/zero | tr '\\0' $PMI_RANK", BYTES / 2);
    let mut front = Front::launch(&instance.apinit_socket(0), place.key, &script).await;
    front.until_going().await;
    front.until_done().await;
    let of = |c: u8| front.output.bytes().filter(|b| *b == c).count() as u64;
    assert_eq!((front.had[&0], of(b'0'), of(b'1')), (BYTES, BYTES / 2, BYTES / 2));
    assert_eq!(link.ended().await.ends, exits(0, 2));
    link.acknowledge(place.key).await;
    apinit.end().await;
}

#[tokio::test]
async fn a_large_environment_arrives() {
    let mut instance = Instance::new().await;
    let apinit = Apinit::start(&instance, "0");
    let mut link = instance.link().await;
    let place = instance.place("12.1", &[&[0]], 1);
    link.place(&place).await;
    let mut first = launch(place.key, "echo $((${#V0} + ${#V1} + ${#V2} + ${#V3}))");
    if let ToApinit::Launch { launch, .. } = &mut first {
        // More than one packet takes.
        let variable = |n| format!("V{n}={}", "x".repeat(100_000)).into_bytes();
        launch.environment.extend((0..4).map(variable));
    }
    let mut front = Front::attach(&instance.apinit_socket(0), first).await;
    front.until_going().await;
    front.until_done().await;
    assert_eq!(front.output, "400000\n");
    assert_eq!(link.ended().await.ends, exits(0, 1));
    link.acknowledge(place.key).await;
    apinit.end().await;
}

/// Memory of a process in KiB: `VmRSS`, or `VmHWM`, the most it has had.
fn memory_of(pid: nix::unistd::Pid, what: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix(what)?.strip_prefix(':'));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok()).expect("in KiB")
}

#[tokio::test]
async fn launches_for_nothing_take_little_memory_and_give_it_back() {
    use crate::support::users::ANNA;
    if !nix::unistd::geteuid().is_root() {
        let test = "apinit::launches_for_nothing_take_little_memory_and_give_it_back";
        return crate::support::skip(test, "only root can be two users");
    }
    const MIB: u64 = 1024;
    let mut instance = Instance::new().await;
    let apinit = Apinit::start(&instance, "0");
    let _link = instance.link().await;
    let (socket, pid) = (instance.apinit_socket(0), apinit.pid());
    let before = memory_of(pid, "VmRSS");
    // More than three times what she may have.
    const LAUNCHES: usize = 16;
    let attack = std::thread::spawn(move || {
        ANNA.does(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let mut fronts = Vec::new();
                for number in 0..LAUNCHES {
                    let mut first = launch(key(&format!("{}.1", 1_000 + number)), "true");
                    if let ToApinit::Launch { launch, .. } = &mut first {
                        launch.arguments.extend(vec![vec![b'x'; 1_900_000]; 4]);
                    }
                    fronts.push(Front::attach(&socket, first).await);
                }
                let mut refused = 0;
                for front in &mut fronts {
                    match front.next().await {
                        Some(FromApinit::Refused { text, .. }) => {
                            assert!(text.contains("launch_memory_user_max (32M)"), "{text}");
                            refused += 1;
                        }
                        Some(FromApinit::NotNow(text)) => {
                            assert!(text.contains("has not placed application"), "{text}");
                        }
                        other => panic!("{other:?}"),
                    }
                }
                refused
            })
        })
    });
    until("all to be answered", || attack.is_finished()).await;
    let refused = attack.join().expect("as expected");
    assert!(refused >= 1, "none was refused");
    let most = memory_of(pid, "VmHWM") - before;
    println!("{refused} of {LAUNCHES} refused, at most {} MiB more", most / MIB);
    until("the memory to be given back", || memory_of(pid, "VmRSS") < before + 24 * MIB).await;
    apinit.end().await;
}

/// What is passed at the door is closed by the thread of whoever passed it: a socket that is slow
/// to close, for which the one task would wait.
#[tokio::test]
async fn what_is_passed_at_the_door_and_slow_to_close_keeps_nobody_waiting() {
    use nix::sys::socket::setsockopt;
    use nix::sys::socket::sockopt::{Linger, RcvBuf};
    use psched::node::checkpoint::fd_channel::{Answer, Ask, ask};
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::{AsFd, BorrowedFd};
    let mut instance = Instance::new().await;
    let apinit = Apinit::start(&instance, "0");
    let _link = instance.link().await;
    let socket = instance.apinit_socket(0);
    let asks = move |descriptor: BorrowedFd<'_>| {
        let asked = Ask::Restore { key: key("77.1"), ticket: TICKET };
        ask(&socket, &asked, descriptor).expect("asked")
    };
    tokio::task::spawn_blocking(move || {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        setsockopt(&listener, RcvBuf, &4_096).expect("set");
        let address = listener.local_addr().expect("known");
        let mut slow = TcpStream::connect(address).expect("connected");
        let _unread = listener.accept().expect("accepted");
        slow.set_nonblocking(true).expect("set");
        while slow.write(&[b'x'; 65_536]).is_ok() {}
        let linger = nix::libc::linger { l_onoff: 1, l_linger: 1_000 };
        setsockopt(&slow, Linger, &linger).expect("set");
        let mut door = asks(slow.as_fd());
        // (Whoever closes it last waits: apinit, mostly.)
        std::thread::spawn(move || drop(slow));
        let refused = door.answer(BOUND).expect("answered");
        assert!(
            matches!(&refused, Answer::Refused(why) if why.contains("is not a folder")),
            "{refused:?}"
        );
        let folder = std::fs::File::open("/tmp").expect("opened");
        assert_eq!(asks(folder.as_fd()).answer(BOUND).expect("answered"), Answer::NotYet);
    })
    .await
    .expect("as expected");
    apinit.end().await;
}

/// Users who ask at the door and say no more keep nobody out: not root, and soon not each other.
#[tokio::test]
async fn whoever_stands_at_the_door_keeps_nobody_out() {
    use crate::support::users::{ANNA, User};
    use psched::node::checkpoint::fd_channel::{Answer, Ask, ask, beside};
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    if !nix::unistd::geteuid().is_root() {
        let test = "apinit::whoever_stands_at_the_door_keeps_nobody_out";
        return crate::support::skip(test, "only root can be many users");
    }
    let mut instance = Instance::new().await;
    let apinit = Apinit::start(&instance, "0");
    let _link = instance.link().await;
    let socket = instance.apinit_socket(0);
    let asks = |socket: &Path| {
        let folder = std::fs::File::open("/tmp").expect("opened");
        let asked = Ask::Restore { key: key("77.1"), ticket: TICKET };
        let mut door = ask(socket, &asked, folder.as_fd()).expect("asked");
        door.answer(BOUND).expect("answered")
    };
    tokio::task::spawn_blocking(move || {
        let mut held = Vec::new();
        for more in 0..12 {
            let user = User { uid: 61_700 + more, ..ANNA };
            user.does(|| {
                for _ in 0..8 {
                    let door = std::os::unix::net::UnixStream::connect(beside(&socket));
                    let mut door = door.expect("connected");
                    // The beginning of a frame.
                    let _ = door.write_all(&[200]);
                    held.push(door);
                }
            });
        }
        assert_eq!(asks(&socket), Answer::NotYet, "root");
        // Most were taken; these are given up before their users are.
        let until = std::time::Instant::now() + BOUND;
        while ANNA.does(|| asks(&socket)) != Answer::NotYet {
            assert!(std::time::Instant::now() < until, "their places are not given up");
            std::thread::sleep(Duration::from_millis(20));
        }
        for mut door in held {
            door.set_read_timeout(Some(BOUND)).expect("set");
            let mut said = Vec::new();
            // An Err: it was closed with something unread.
            let _ = door.read_to_end(&mut said);
        }
    })
    .await
    .expect("as expected");
    apinit.end().await;
}

#[tokio::test]
async fn an_application_runs_as_its_owner() {
    if !nix::unistd::getuid().is_root() {
        eprintln!("skipped: an_application_runs_as_its_owner (only root can be somebody else)");
        return;
    }
    let uid = 54_321;
    let mut instance = Instance::new().await;
    let apinit = Apinit::start(&instance, "0");
    let mut link = instance.link().await;
    let mut place = instance.place("12.1", &[&[0]], 1);
    place.owner =
        Owner { uid, gid: uid, groups: vec![54_000], name: uid.to_string(), terminal: false };
    link.place(&place).await;
    // Its group is apinit's again before it runs: it can put nobody there, nor leave.
    let script = "id -u; id -G; g=$(sed -n 's/^0:://p' /proc/self/cgroup); echo group $g; \
                  for f in /sys/fs/cgroup/unified$g /sys/fs/cgroup$g; do for d in $f $f/..; do \
                  if [ -e $d/cgroup.procs ]; then echo 0 2>/dev/null >$d/cgroup.procs \
                  && echo escaped; fi; done; done";
    let front = front_process(&instance.apinit_socket(0), "12.1", script, Some(uid));
    let end = link.ended().await;
    let said = tokio::task::spawn_blocking(|| front.wait_with_output().expect("it ends")).await;
    let said = String::from_utf8(said.expect("it ends").stdout).expect("text");
    assert!(said.contains("54321\n54321 54000\n"), "{said}");
    assert!(!said.contains("escaped"), "{said}");
    if instance.groups().is_some_and(|g| g.exists()) {
        assert!(said.contains("/12.1/0\n"), "{said}");
    }
    assert_eq!(end.first, None, "{said}");
    link.acknowledge(place.key).await;
    apinit.end().await;
}

#[test]
fn the_command_line_is_checked() {
    let apinit = |args: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_apinit"));
        let output = command.args(args).output().expect("it starts");
        (output.status.success(), String::from_utf8(output.stderr).expect("text"))
    };
    for (args, needle) in [
        (&["--socket", "/tmp/x/s", "--nids", "3-1"][..], "the range 3-1 runs backwards"),
        (&["--socket", "/no/such/s", "--nids", "0"], "/no/such is not a directory"),
        (&["--nids", "0"], "--socket"),
        (&[], "       apinit --psched HOST[:PORT] [--nids LIST] [OPTIONS]"),
        (&["--socket", "/tmp/s", "--nids", "0", "--lifeline", "77"], "--lifeline 77"),
        (&["--lifeline", "x"], "expected the number of an open file descriptor"),
    ] {
        let (success, said) = apinit(args);
        assert!(!success && said.contains(needle), "{args:?}: {said}");
    }
    let long = format!("/tmp/{}/s", "x".repeat(60));
    let (success, said) = apinit(&["--socket", &long, "--nids", "0"]);
    assert!(!success && said.contains("too long for apinit's sockets"), "{said}");
}
