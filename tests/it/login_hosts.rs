//! Login hosts, whose apinits pass on what their users ask: output that nobody reads, and a role
//! that is withdrawn.

use crate::support::hosts::{Cluster, may_be};
use crate::support::users::{ANNA, Bins};
use crate::support::*;
use psched::rpc::connect::connect;
use psched::rpc::pb;
use psched::rpc::pb::psched_client::PschedClient;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};
use std::time::Duration;

/// Lines of a slow reader's application: far more than all windows hold.
const LINES: u32 = 2_000_000;
/// What the unread answers of one user may cost an apinit.
const COSTS_KIB: u64 = 96 * 1024;

/// What each `seq` on a host has written so far; `None`: one of them does not wait for room.
fn held(cluster: &Cluster, host: usize) -> Option<Vec<(i32, u64)>> {
    let of = |pid: i32| {
        let io = std::fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
        io.lines().find_map(|line| line.strip_prefix("wchar: "))?.parse::<u64>().ok()
    };
    let seqs = cluster.others(host).into_iter().filter(|(_, line)| line.starts_with("seq 1 "));
    seqs.map(|(pid, _)| Some((pid, of(pid).filter(|_| waits_for_room(pid))?))).collect()
}

/// All commands of a user on a login host share a connection to each other host. Stopped apruns,
/// which read nothing, slow their own applications and no other one.
#[test]
fn stopped_apruns_on_a_login_host_delay_no_other_application() {
    if !may_be("login_hosts::stopped_apruns_on_a_login_host_delay_no_other_application") {
        return;
    }
    const SLOW: u32 = 3;
    let cluster = Cluster::start(2, SLOW + 1);
    let go = cluster.folder().join("go");
    // PE 0 is on the first host, and aprun on the second.
    let start = |nid: u32| {
        let script =
            format!("until [ -e {} ]; do sleep 0.01; done; exec seq 1 {LINES}", go.display());
        let options = format!("-q -n 1 -L {nid} sh -c");
        let mut command = cluster.command(1, "aprun", words(&options).chain([&*script]));
        command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts")
    };
    let mut slow: Vec<Child> = (0..SLOW).map(start).collect();
    cluster.wait_for("running", SLOW as usize);
    slow.iter().for_each(|aprun| kill(aprun.id() as i32, 19));
    std::fs::write(&go, "").expect("written");
    // Another application comes and goes by their way.
    let quick = |lines: u32| {
        let line = format!("-q -n 1 -L {SLOW} seq 1 {lines}");
        let run = run(&mut cluster.command(1, "aprun", words(&line))).expect(0);
        assert_eq!(run.out().lines().count(), lines as usize);
    };
    let mut last = None;
    eventually(BOUND, "all of them wait for room", || {
        last = held(&cluster, 0).filter(|seqs| seqs.len() == SLOW as usize);
        last.is_some() && {
            quick(100);
            held(&cluster, 0) == last
        }
    });
    quick(300_000);
    run(&mut cluster.command(1, "apstat", ["-a"])).expect(0);
    assert_eq!(held(&cluster, 0), last, "the others have gone on");
    // They read on, and have lost nothing.
    slow.iter().for_each(|aprun| kill(aprun.id() as i32, 18));
    let expected: Vec<u8> = (1..=LINES).flat_map(|i| format!("{i}\n").into_bytes()).collect();
    for aprun in &mut slow {
        let mut all = Vec::new();
        aprun.stdout.take().expect("piped").read_to_end(&mut all).expect("read");
        assert!(all == expected, "{} bytes of {}", all.len(), expected.len());
        assert!(aprun.wait().expect("reaped").success());
    }
    cluster.wait_until_up();
}

/// Bytes in a pipe that its reader has not read.
fn unread(pipe: BorrowedFd<'_>) -> u64 {
    rustix::io::ioctl_fionread(pipe).expect("asked")
}

/// The certificate is renewed with other roles. What was open is not served on: neither requests on
/// connections that are open, nor a conversation that has begun.
#[test]
fn nothing_is_passed_on_once_the_role_login_is_withdrawn() {
    if !may_be("login_hosts::nothing_is_passed_on_once_the_role_login_is_withdrawn") {
        return;
    }
    let cluster = Cluster::start(2, 1);
    let got = cluster.folder().join("got");
    let script = format!("while read line; do echo $line >> {}; done", got.display());
    let mut command = cluster.command(1, "aprun", words("-q -n 1 -L 0 sh -c").chain([&*script]));
    let mut aprun = Running::start(command.stdin(Stdio::piped()));
    let mut stdin = aprun.child.stdin.take().expect("piped");
    let text = || std::fs::read_to_string(&got).unwrap_or_default();
    stdin.write_all(b"before\n").expect("written");
    eventually(BOUND, "it is told", || text() == "before\n");
    // (Its thread answers the pings of apinit: the connection lasts.)
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_all().build().expect("a runtime");
    let socket = cluster.root(1).join("run/psched/psched.sock");
    let channel = runtime.block_on(connect(&socket)).expect("connected");
    let mut client = PschedClient::new(channel);
    runtime.block_on(client.list(pb::ListRequest::default())).expect("answered");

    cluster.certs("host h1 --role node").expect(0);
    cluster.copy_certificates(1);
    let withdrawn = "has not the role login: its users can't run applications from here";
    eventually(BOUND, "the role is withdrawn", || cluster.said("1").contains(withdrawn));
    // (Its connection ends with the role, and the socket is made anew.)
    let mut list = || runtime.block_on(client.list(pb::ListRequest::default()));
    let why = "has not the role login, so that it serves no users";
    eventually(BOUND, "its user is told why", || {
        list().expect_err("refused").message().contains(why)
    });
    stdin.write_all(b"after\n").expect("written");
    // What others ask after that is refused, or done.
    eventually(BOUND, "aprun has read it", || unread(stdin.as_fd()) == 0);
    list().expect_err("refused");
    run(&mut cluster.command(0, "aprun", words("-q -n 1 -L 0 true"))).expect(0);
    assert_eq!(text(), "before\n", "what its user says is still passed on");

    // With the role aprun goes on where it was.
    cluster.certs("host h1 --role node,login").expect(0);
    cluster.copy_certificates(1);
    eventually(BOUND, "it is told the rest", || text() == "before\nafter\n");
    // (A connection of before does not go on refusing.)
    eventually(BOUND, "what was refused is answered", || list().is_ok());
    drop(stdin);
    aprun.wait(BOUND).expect(0);
    cluster.wait_until_up();
}

/// The memory of a host's apinit, in KiB.
fn apinit_kib(cluster: &Cluster, host: usize) -> u64 {
    let root = cluster.root(host);
    let network = |process: &std::path::Path| std::fs::read_link(process.join("ns/net")).ok();
    let own = network(root.parent().expect("of a process"));
    let is_apinit = |pid: &i32| {
        let process = std::path::PathBuf::from(format!("/proc/{pid}"));
        let program = std::fs::read_link(process.join("exe")).ok();
        let program = program.and_then(|path| Some(path.file_name()? == "apinit"));
        program == Some(true) && network(&process) == own
    };
    resident_kib(pids().find(is_apinit).expect("its apinit runs"))
}

/// Requests for the list of all applications, as HTTP/2 has them: the preface, and streams that are
/// not read.
fn requests(streams: u32) -> Vec<u8> {
    let frame = |kind: u8, flags: u8, stream: u32, payload: &[u8]| {
        let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
        [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
    };
    let text = |name: &[u8], value: &str| {
        let length = u8::try_from(value.len()).expect("short");
        [name, &[length], value.as_bytes()].concat()
    };
    // POST, http, and the rest as literals: :path, :authority, content-type, te.
    let headers = [
        vec![0x83, 0x86],
        text(&[0x04], "/psched.v1.Psched/List"),
        text(&[0x01], "localhost"),
        text(&[0x0f, 0x10], "application/grpc"),
        text(&[0x00, 2, b't', b'e'], "trailers"),
    ]
    .concat();
    let mut all = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    all.extend(frame(4, 0, 0, &[]));
    for stream in (0..streams).map(|n| 2 * n + 1) {
        all.extend(frame(1, 4, stream, &headers));
        all.extend(frame(0, 1, stream, &[0; 5]));
    }
    all
}

/// What a user asks and does not read is bounded for each user, however many connections he has.
#[test]
fn answers_that_a_user_of_a_login_host_does_not_read_cost_little() {
    if !may_be("login_hosts::answers_that_a_user_of_a_login_host_does_not_read_cost_little") {
        return;
    }
    let cluster = Cluster::start(2, 1);
    // (Only root may look into the host; the descriptor of a folder leads there, too.)
    let folder = std::fs::File::open(cluster.root(1).join("run/psched")).expect("there");
    let socket = format!("/proc/self/fd/{}/psched.sock", folder.as_raw_fd());
    let requests = requests(250);
    let before = apinit_kib(&cluster, 1);
    let unread = ANNA.does(|| {
        let connect = |_| {
            let mut stream = UnixStream::connect(&socket).expect("connected");
            stream.set_write_timeout(Some(Duration::from_secs(10))).expect("set");
            // (It may not be read either.)
            let _ = stream.write_all(&requests);
            stream
        };
        (0..100).map(connect).collect::<Vec<_>>()
    });
    // Meanwhile other users are answered.
    for _ in 0..5 {
        run(&mut cluster.command(1, "apstat", ["-a"])).expect(0);
    }
    let now = apinit_kib(&cluster, 1);
    eprintln!("apinit went from {before} to {now} KiB");
    assert!(now < before + COSTS_KIB, "apinit went from {before} to {now} KiB");
    drop(unread);
    cluster.wait_until_up();
}

/// What changes something is not asked again, so that each request has to arrive.
#[test]
fn of_many_commands_on_a_login_host_none_fails() {
    if !may_be("login_hosts::of_many_commands_on_a_login_host_none_fails") {
        return;
    }
    let (cluster, bins) = (Cluster::start(2, 1), Bins::new());
    let of_user = |name: &str| cluster.of_user(1, ANNA.uid, &bins.path(name));
    let mut aprun = of_user("aprun");
    aprun.args(words("-q -n 1 sleep 1000")).stdout(Stdio::null()).stderr(Stdio::null());
    let mut aprun = aprun.spawn().expect("it starts");
    let apid = cluster.wait_for("running", 1)[0].to_string();
    // (A connection of HTTP/2 bears a hundred empty frames.)
    for _ in 0..220 {
        run(of_user("apkill").args(["-CONT", &apid])).expect(0);
    }
    run(of_user("apkill").args(["-9", &apid])).expect(0);
    assert!(!aprun.wait().expect("reaped").success());
    cluster.wait_until_up();
}

/// psched has one connection of a host: two apinits would end each other's for ever.
#[test]
fn of_two_apinits_on_a_login_host_one_has_the_connection() {
    if !may_be("login_hosts::of_two_apinits_on_a_login_host_one_has_the_connection") {
        return;
    }
    let mut cluster = Cluster::start(2, 1);
    cluster.wait_until_up();
    let connected =
        |cluster: &Cluster| cluster.said("psched").matches("a login host has connected").count();
    eventually(BOUND, "its apinit has connected", || connected(&cluster) == 1);
    // A second one, by mistake, which has no nodes.
    let log = cluster.folder().join("second");
    let second = words("--psched h0 --certificates /run/certs");
    let mut second = cluster.command(1, "apinit", second);
    second.env("PSCHED_LOG", "info").stdout(Stdio::null());
    second.stderr(std::fs::File::create(&log).expect("created"));
    let mut second = second.spawn().expect("it starts");
    let says = || std::fs::read_to_string(&log).unwrap_or_default();
    let why = "users of this host are served by another apinit";
    eventually(BOUND, "it says why it has no connection", || says().contains(why));
    let post = ["-q", "-n", "1", "-L", "0", "true"];
    for _ in 0..3 {
        run(&mut cluster.command(1, "aprun", post)).expect(0);
    }
    // It takes over when the first one has gone.
    cluster.kill_apinit(1);
    eventually(BOUND, "it has connected", || connected(&cluster) > 1);
    run(&mut cluster.command(1, "aprun", post)).expect(0);
    // (Of each of its two sockets.)
    assert_eq!((connected(&cluster), says().matches(why).count()), (2, 2), "{}", says());
    second.kill().and_then(|()| second.wait()).expect("ended");
}

/// Two with different folders have both sockets each, and one connection to psched between them.
#[test]
fn of_two_apinits_with_folders_of_their_own_the_first_has_the_connection() {
    if !may_be("login_hosts::of_two_apinits_with_folders_of_their_own_the_first_has_the_connection")
    {
        return;
    }
    let mut cluster = Cluster::start(2, 1);
    let connected =
        |cluster: &Cluster| cluster.said("psched").matches("a login host has connected").count();
    eventually(BOUND, "its apinit has connected", || connected(&cluster) == 1);
    let folder = cluster.root(1).join("run/other");
    std::fs::create_dir(&folder).expect("made");
    let log = cluster.folder().join("log-second");
    let second = words("--psched h0 --certificates /run/certs --runtime /run/other");
    let mut second = cluster.command(1, "apinit", second);
    second.env("PSCHED_LOG", "info").stdout(Stdio::null());
    second.stderr(std::fs::File::create(&log).expect("created"));
    let mut second = second.spawn().expect("it starts");
    let why = "on h1 the apinit with --runtime /run/psched (inode";
    eventually(BOUND, "both logs say why", || {
        cluster.said("second").contains(why) && cluster.said("psched").contains(why)
    });
    // Its users are served, and the first apinit watches their front ends.
    let by_second = |arguments: &str| {
        let mut command = cluster.command(1, "aprun", words(arguments));
        command.env("PSCHED_SOCKET", "/run/other/psched.sock");
        command
    };
    run(&mut by_second("-q -n 1 -L 0 true")).expect(0);
    let dies = |aprun: Running| {
        cluster.wait_for("running", 1);
        kill(aprun.child.id() as i32, 9);
        aprun.wait(BOUND);
        cluster.wait_for("running", 0);
    };
    dies(Running::start(&mut by_second("-q -n 1 -L 0 sleep 1000")));
    // (It has tried again and again meanwhile.)
    assert_eq!(connected(&cluster), 1, "{}", cluster.said("psched"));
    assert_eq!(cluster.said("psched").matches(why).count(), 1);
    // It has the connection when the first one is gone.
    let first = cluster.apinit(1);
    kill(first, 9);
    eventually(BOUND, "the second one has connected", || connected(&cluster) == 2);
    dies(Running::start(&mut by_second("-q -n 1 -L 0 sleep 1000")));
    second.kill().and_then(|()| second.wait()).expect("ended");
    cluster.kill_apinit(1);
}
