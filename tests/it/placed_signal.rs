//! The signal that says that there is a place: who gets it, and who must not.

use crate::support::hand::Hand;
use crate::support::hosts::{Cluster, may_be};
use crate::support::users::{ANNA, Bins};
use crate::support::*;
use psched::rpc::connect::connect;
use psched::rpc::pb;
use psched::rpc::pb::application_event::Event;
use psched::rpc::pb::psched_client::PschedClient;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tonic::Code;
use tonic::transport::Channel;

const TWO: &str = "nodes:\n  - { nids: 0, processors: 2, flavors: [su, os, ap] }\n";
/// The child of [`it_comes_to_a_front_end_on_another_host`] has it: the socket of its host, and a file that it makes.
const WAITS: &str = "PSCHED_TEST_WAITS";
/// The child of [`a_front_end_that_has_become_root_is_not_signalled`] has it: its set-user-ID program.
const BECOMES: &str = "PSCHED_TEST_BECOMES";

fn request(number: u8, signal: bool) -> pb::PostRequest {
    pb::PostRequest {
        request_id: vec![number; 16].into(),
        shape: Some(pb::Shape { width: 1, depth: 1, per_node: 0 }),
        command: "by hand".into(),
        executable: Some(pb::Executable::default()),
        signal,
        ..Default::default()
    }
}

fn block_on<T>(what: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(what)
}

type Stream = tonic::Streaming<pb::ApplicationEvent>;

async fn next(stream: &mut Stream) -> Event {
    let event = tokio::time::timeout(BOUND, stream.message()).await.expect("an event comes");
    event.expect("it lives").and_then(|event| event.event).expect("an event")
}

async fn accepted(stream: &mut Stream) -> u64 {
    match next(stream).await {
        Event::Accepted(accepted) => accepted.apid,
        other => panic!("{other:?}"),
    }
}

async fn placed(stream: &mut Stream) {
    while !matches!(next(stream).await, Event::Placed(_)) {}
}

async fn kill_it(psched: &mut PschedClient<Channel>, apid: u64) {
    let request = pb::KillRequest { apids: vec![apid], signal: 9 };
    psched.kill(request).await.expect("taken");
}

/// A program that holds both processors until it is killed.
fn fill(hand: &Hand) -> (Running, u64) {
    let runs = hand.start_script("-q -n 2", "exec sleep 1000");
    (runs, hand.wait_for("running", 1)[0])
}

/// This process is the front end: without the answer to its wish it would be dead.
#[test]
fn it_comes_to_whoever_asks_and_cancelling_withdraws_nothing() {
    let came = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(10, Arc::clone(&came)).expect("caught");
    let hand = Hand::start(TWO, &[("0", None)]);
    let (filler, filling) = fill(&hand);
    block_on(async {
        let channel = connect(&hand.socket()).await.expect("psched answers");
        let mut psched = PschedClient::new(channel);
        let post = psched.post(request(1, false)).await;
        let mut stream = post.expect("taken").into_inner();
        let quiet = accepted(&mut stream).await;
        // Cut off, the posting waits on, and can be followed again.
        drop(stream);
        assert_eq!(hand.wait_for("posted", 1), [quiet]);
        let watch = pb::WatchRequest { apid: quiet, ..Default::default() };
        let mut stream = psched.watch(watch.clone()).await.expect("it is there").into_inner();
        assert_eq!(accepted(&mut stream).await, quiet);
        kill_it(&mut psched, filling).await;
        placed(&mut stream).await;
        drop(stream);
        psched.list(pb::ListRequest::default()).await.expect("answered");
        assert!(!came.load(Ordering::SeqCst), "it has not asked");
        // One that asks, on the other processor.
        let post = psched.post(request(2, true)).await;
        let mut stream = post.expect("taken").into_inner();
        let loud = accepted(&mut stream).await;
        placed(&mut stream).await;
        eventually(BOUND, "the signal comes", || came.swap(false, Ordering::SeqCst));
        kill_it(&mut psched, loud).await;
        // What has come once is all: the first has had none.
        let mut stream = psched.watch(watch).await.expect("it is there").into_inner();
        kill_it(&mut psched, quiet).await;
        while !matches!(next(&mut stream).await, Event::Ended(_)) {}
        assert!(!came.load(Ordering::SeqCst));
        let nothing = pb::WatchRequest { apid: loud + 1, ..Default::default() };
        assert_eq!(psched.watch(nothing).await.expect_err("none").code(), Code::NotFound);
    });
    filler.wait(BOUND).expect(137);
    hand.end();
}

/// Whoever posts and then executes sudo has not made psched's signal one against root.
#[test]
fn a_front_end_that_has_become_root_is_not_signalled() {
    if let Some(program) = std::env::var_os(BECOMES) {
        return becomes(&program);
    }
    let test = "placed_signal::a_front_end_that_has_become_root_is_not_signalled";
    if !is_root() {
        return skip(test, "only root can be two users");
    }
    if !Command::new("cc").arg("--version").output().is_ok_and(|o| o.status.success()) {
        return skip(test, "cc is not installed");
    }
    let hand = Hand::start(TWO, &[("0", None)]);
    hand.open_to_all();
    let bins = Bins::new();
    let own = bins.add(&std::env::current_exe().expect("this test"));
    let source = hand.folder().join("becomes.c");
    let text = "#define _GNU_SOURCE\n#include <fcntl.h>\n#include <unistd.h>\nint main(int n, char **a) {\n\
                if (setresuid(0, 0, 0)) return 1;\nclose(creat(a[1], 0600));\nalarm(900);\npause();\n}\n";
    std::fs::write(&source, text).expect("written");
    let program = bins.path("becomes");
    run(Command::new("cc").arg("-o").arg(&program).arg(&source)).expect(0);
    let mode = std::fs::Permissions::from_mode(0o4755);
    std::fs::set_permissions(&program, mode).expect("ours");
    let (filler, filling) = fill(&hand);
    let arguments = ["--exact", test, "--nocapture"];
    let mut front = ANNA.command(&own, arguments);
    front.env("PSCHED_SOCKET", hand.socket()).env(BECOMES, &program);
    front.env("PSCHED_TEST_ROOT", hand.folder().join("root"));
    let mut front = Running::start(&mut front);
    let posted = hand.wait_for("posted", 1)[0];
    eventually(BOUND, "it is root", || {
        assert!(front.runs(), "it has ended");
        hand.folder().join("root").exists()
    });
    run(&mut hand.command("apkill", ["-9", &filling.to_string()])).expect(0);
    filler.wait(BOUND).expect(137);
    assert_eq!(hand.wait_for("placed", 1), [posted]);
    // Its signal is behind that of the other.
    hand.start_script("-q", "true").wait(BOUND).expect(0);
    assert!(front.runs(), "psched has ended a process of root's");
    front.signal(9);
    front.wait(BOUND).expect(137);
    hand.end();
}

/// The child: posts, asks for the signal, and executes the program.
fn becomes(program: &std::ffi::OsStr) {
    let socket = std::env::var_os("PSCHED_SOCKET").expect("given");
    block_on(async {
        let channel = connect(Path::new(&socket)).await.expect("psched answers");
        let post = PschedClient::new(channel).post(request(3, true)).await;
        let mut stream = post.expect("taken").into_inner();
        accepted(&mut stream).await;
        let root = std::env::var_os("PSCHED_TEST_ROOT").expect("given");
        panic!("{}", Command::new(program).arg(root).exec());
    });
}

/// The apinit of that host sends it, for psched.
#[test]
fn it_comes_to_a_front_end_on_another_host() {
    if let Some(socket) = std::env::var_os(WAITS) {
        return waits(Path::new(&socket));
    }
    let test = "placed_signal::it_comes_to_a_front_end_on_another_host";
    if !may_be(test) {
        return;
    }
    let cluster = Cluster::start(2, 1);
    let sleeps = words("-q -n 4 -F exclusive sleep 1000");
    let filler = Running::start(&mut cluster.command(0, "aprun", sleeps));
    let filling = cluster.wait_for("running", 1)[0];
    let own = std::env::current_exe().expect("this test");
    let mut front = Command::new(own);
    front.args(["--exact", test, "--nocapture"]);
    front.env(WAITS, cluster.root(1).join("run/psched/psched.sock"));
    let front = Running::start(&mut front);
    cluster.wait_for("posted", 1);
    run(&mut cluster.command(0, "apkill", ["-9", &filling.to_string()])).expect(0);
    filler.wait(BOUND).expect(137);
    front.wait(BOUND).expect(0);
    cluster.wait_until_up();
}

/// The child: posts, and is told that there is a place, by an event and by the signal.
fn waits(socket: &Path) {
    let came = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(10, Arc::clone(&came)).expect("caught");
    block_on(async {
        let channel = connect(socket).await.expect("its apinit answers");
        let mut psched = PschedClient::new(channel);
        let posting = pb::PostRequest { exclusive: true, ..request(4, true) };
        let mut stream = psched.post(posting).await.expect("taken").into_inner();
        let apid = accepted(&mut stream).await;
        placed(&mut stream).await;
        eventually(BOUND, "the signal comes", || came.load(Ordering::SeqCst));
        kill_it(&mut psched, apid).await;
        while !matches!(next(&mut stream).await, Event::Ended(_)) {}
    });
}
