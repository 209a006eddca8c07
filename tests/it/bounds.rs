//! Bounds that psched.yaml sets: whoever comes to one is told which, and nobody else notices.

use crate::support::hand::Hand;
use crate::support::nasty::idle;
use crate::support::users::{self, ANNA, BERT, Bins, User};
use crate::support::*;
use psched::rpc::connect::{connect, status_text};
use psched::rpc::pb;
use psched::rpc::pb::psched_client::PschedClient;
use std::os::unix::net::UnixStream;
use std::path::Path;
use tonic::transport::Channel;

const ONE: &str = "nodes:\n  - { nids: 0, processors: 4, flavors: [su, os, ap] }\n";

fn with(variables: &str) -> String {
    format!("{ONE}variables:\n  {}\n", variables.replace(", ", "\n  "))
}

fn daemons(test: &str, variables: &str) -> Option<(Hand, Bins)> {
    users::daemons(&format!("bounds::{test}"), &with(variables), "0")
}

fn aprun(hand: &Hand, bins: &Bins, user: User, script: &str) -> Running {
    let mut command = user.command(bins.path("aprun"), ["-q", "sh", "-c", script]);
    Running::start(command.env("PSCHED_SOCKET", hand.socket()))
}

fn connections(user: User, socket: &Path, count: usize) -> Vec<UnixStream> {
    user.does(|| (0..count).map(|_| idle(socket)).collect())
}

#[test]
fn one_user_with_all_his_connections_to_psched_keeps_nobody_out() {
    let test = "one_user_with_all_his_connections_to_psched_keeps_nobody_out";
    let Some((hand, bins)) = daemons(test, "connections_user_max: 4") else { return };
    let runs = aprun(&hand, &bins, ANNA, "read line < /dev/null; sleep 1000");
    let apid = hand.wait_for("running", 1)[0].to_string();
    // Her aprun has the first.
    let held = connections(ANNA, &hand.socket(), 3);
    let refused = aprun(&hand, &bins, ANNA, "true").wait(BOUND).expect(125);
    refused.says(
        "you have the maximum number of connections of one user: end some of your commands, or \
         have an administrator raise connections_user_max (4) with psmgr set",
    );
    let mut command = ANNA.command(bins.path("apstat"), ["-n"]);
    run(command.env("PSCHED_SOCKET", hand.socket())).expect(1).says("connections_user_max (4)");
    assert!(hand.said().contains("a connection is refused: you have the maximum"));
    // Everybody else is served, and what she has goes on.
    assert_eq!(aprun(&hand, &bins, BERT, "echo his").wait(BOUND).expect(0).out(), "his\n");
    hand.start_script("-q", "true").wait(BOUND).expect(0);
    // An administrator raises it, and that counts at once.
    hand.reconfigure(&with("connections_user_max: 8"));
    eventually(BOUND, "the bound is raised", || {
        hand.said().contains("connections_user_max 4 -> 8")
    });
    assert_eq!(aprun(&hand, &bins, ANNA, "echo hers").wait(BOUND).expect(0).out(), "hers\n");
    drop(held);
    let mut command = ANNA.command(bins.path("apkill"), ["-9", &apid]);
    run(command.env("PSCHED_SOCKET", hand.socket())).expect(0);
    runs.wait(BOUND).expect(137);
    hand.end();
}

#[test]
fn one_user_with_all_his_connections_to_an_apinit_waits_and_nobody_else() {
    let test = "one_user_with_all_his_connections_to_an_apinit_waits_and_nobody_else";
    let Some((hand, bins)) = daemons(test, "connections_user_max: 4") else { return };
    let held = connections(ANNA, &hand.folder().join("apinit-0.sock"), 4);
    let own = ANNA.folder();
    let told = own.path().join("told");
    let script =
        format!("exec {} sh -c 'echo hers' 2> {}", bins.path("aprun").display(), told.display());
    let mut command = ANNA.command("sh", ["-c", &script]);
    let waits = Running::start(command.env("PSCHED_SOCKET", hand.socket()));
    eventually(BOUND, "she is told what she waits for", || {
        let said = std::fs::read_to_string(&told).unwrap_or_default();
        said.contains("raise connections_user_max (4) with psmgr set")
    });
    assert_eq!(aprun(&hand, &bins, BERT, "echo his").wait(BOUND).expect(0).out(), "his\n");
    drop(held);
    assert_eq!(waits.wait(BOUND).expect(0).out(), "hers\n");
    hand.end();
}

/// Where the limit of open files is low, and the soft one lower still.
#[test]
fn open_files_bound_the_connections() {
    if !is_root() {
        return skip("bounds::open_files_bound_the_connections", "only root can be two users");
    }
    let prefix =
        ["prlimit", "--nofile=256:1168", "env", "PSCHED_LOG=info"].map(std::ffi::OsString::from);
    let hand = Hand::start_by(&prefix, ONE, &[("0", None)]);
    hand.open_to_all();
    let bins = Bins::new();
    // (1168 - 768) / 2 in all to psched, of which a quarter is root's; / 8 to apinit.
    for most in ["200", "50"] {
        let said = format!("the limit of open files, 1168, allows {most} connections here");
        assert!(hand.said().contains(&said), "{}", hand.said());
    }
    // One user has a quarter of them, and keeps the others in.
    let hers = connections(ANNA, &hand.socket(), 150);
    aprun(&hand, &bins, BERT, "true").wait(BOUND).expect(0);
    drop(hers);
    // (All at once, because one that never speaks is let go after ten seconds; and again, because
    // hers may still be counted.)
    let users = [1, 2, 3].map(|user| User { uid: 61_650 + user, ..ANNA });
    let mut theirs = Vec::new();
    let mut refused = None;
    eventually(BOUND, "all connections are taken", || {
        theirs.extend(users.iter().flat_map(|user| connections(*user, &hand.socket(), 50)));
        let run = aprun(&hand, &bins, BERT, "true").wait(BOUND);
        refused = (run.status != 0).then_some(run);
        refused.is_some()
    });
    let refused = refused.expect("refused").expect(125);
    refused.says(
        "the daemon's limit of open files allows no more connections: try again later, or have \
         an administrator raise it (LimitNOFILE=",
    );
    hand.start_script("-q", "echo roots").wait(BOUND).expect(0);
    hand.end();
}

/// What 1,000 aprun on one host hold: a connection each to psched and to its apinit.
#[test]
fn a_thousand_connections_of_one_user_are_no_matter() {
    let test = "a_thousand_connections_of_one_user_are_no_matter";
    let Some((hand, bins)) = daemons(test, "kill_grace: 5s") else { return };
    let apinit = hand.folder().join("apinit-0.sock");
    let held = [connections(ANNA, &hand.socket(), 1_000), connections(ANNA, &apinit, 1_000)];
    assert_eq!(aprun(&hand, &bins, ANNA, "echo hers").wait(BOUND).expect(0).out(), "hers\n");
    drop(held);
    hand.end();
}

/// One too many on a host ends with the reason, and the other runs on; a host hears of new bounds.
#[test]
fn applications_on_a_host_are_bounded() {
    let hand = Hand::start(&with("applications_max: 1"), &[("0", None)]);
    let go = hand.folder().join("go");
    let script = format!("while ! [ -e {} ]; do sleep 0.02; done; exit 3", go.display());
    let runs = hand.start_script("-q", &script);
    hand.wait_for("running", 1);
    let refused = hand.start_script("-q", "true").wait(BOUND).expect(125);
    refused.says(
        "its host has the maximum number of applications: have an administrator raise \
         applications_max (1) with psmgr set",
    );
    hand.reconfigure(&with("applications_max: 2"));
    eventually(BOUND, "the bound is raised", || hand.said().contains("applications_max 1 -> 2"));
    hand.start_script("-q", "true").wait(BOUND).expect(0);
    std::fs::write(&go, "").expect("written");
    runs.wait(BOUND).expect(3);
    hand.end();
}

/// Asks psched by this while an application runs.
fn asked_of_one_that_runs(hand: &Hand, ask: impl AsyncFnOnce(u64, PschedClient<Channel>)) {
    let runs = hand.start_script("-q", "exec sleep 1000");
    let apid = hand.wait_for("running", 1)[0];
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let channel = connect(&hand.socket()).await.expect("psched answers");
        ask(apid, PschedClient::new(channel)).await;
    });
    run(&mut hand.command("apkill", ["-9", &apid.to_string()])).expect(0);
    runs.wait(BOUND).expect(137);
}

#[test]
fn streams_that_watch_an_application_are_bounded() {
    let hand = Hand::start(&with("watches_max: 2"), &[("0", None)]);
    asked_of_one_that_runs(&hand, async |apid, mut psched| {
        let request = pb::WatchRequest { apid, ..Default::default() };
        // Its aprun's is the first.
        let watches = psched.watch(request.clone()).await.expect("one more fits");
        let refused = psched.watch(request.clone()).await.expect_err("one too many");
        assert_eq!(refused.code(), tonic::Code::Unavailable);
        let expected = format!(
            "application {apid} has the maximum number of watchers: try again later, or have an \
             administrator raise watches_max (2) with psmgr set"
        );
        assert_eq!(status_text(refused), expected);
        // Who watches no more makes room.
        drop(watches);
        let again = async {
            while psched.watch(request.clone()).await.is_err() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(BOUND, again).await.expect("there is room again");
    });
    hand.end();
}

/// What is asked beyond the streams of one connection waits, and another connection does not.
#[test]
fn streams_of_a_connection_are_bounded() {
    let hand = Hand::start(&with("streams_max: 16"), &[("0", None)]);
    asked_of_one_that_runs(&hand, async |apid, mut psched| {
        let mut watches = Vec::new();
        for _ in 0..16 {
            let request = pb::WatchRequest { apid, ..Default::default() };
            watches.push(psched.watch(request).await.expect("it fits"));
        }
        let mut more = std::pin::pin!(psched.list(pb::ListRequest::default()));
        let soon = std::time::Duration::from_millis(300);
        assert!(tokio::time::timeout(soon, more.as_mut()).await.is_err(), "a 17th stream");
        let mut other = PschedClient::new(connect(&hand.socket()).await.expect("psched answers"));
        other.list(pb::ListRequest::default()).await.expect("another connection is served");
        drop(watches.pop());
        let list = tokio::time::timeout(BOUND, more).await.expect("its turn comes");
        assert_eq!(list.expect("answered").into_inner().applications.len(), 1);
    });
    hand.end();
}

/// A stopped aprun: its PE waits when as much is kept as may be, and all of it comes in the end.
#[test]
fn output_is_kept_within_its_bound_and_none_is_lost() {
    let hand = Hand::start(&with("output_max: 256K, stdin_max: 64K"), &[("0", None)]);
    let count = hand.folder().join("count");
    let go = hand.folder().join("go");
    let script = format!(
        "while ! [ -e {} ]; do sleep 0.02; done; for i in $(seq 1 300); do head -c 100000 /dev/zero | tr '\\0' x; echo $i > {}; done; cat | wc -c",
        go.display(),
        count.display()
    );
    let input = hand.folder().join("in");
    std::fs::write(&input, vec![b'i'; 3_000_000]).expect("written");
    let mut command = hand.command("aprun", ["-q", "sh", "-c", &script]);
    command.stdin(std::fs::File::open(&input).expect("there"));
    let runs = Running::start(&mut command);
    hand.wait_for("running", 1);
    kill(runs.pid(), 19);
    std::fs::write(&go, "").expect("written");
    let rounds = || std::fs::read_to_string(&count).ok().and_then(|t| t.trim().parse().ok());
    // What is kept, and what is in the pipe: much less than without the variable.
    let mut before = 0u32;
    eventually(BOUND, "its PE waits", || {
        std::thread::sleep(std::time::Duration::from_millis(300));
        let now = rounds().unwrap_or(0);
        std::mem::replace(&mut before, now) == now && now > 0
    });
    assert!((1..12).contains(&before), "{before} x 100,000 bytes are kept somewhere");
    kill(runs.pid(), 18);
    let all = runs.wait(BOUND).expect(0).out();
    assert_eq!(all.len(), 300 * 100_000 + "3000000\n".len());
    assert!(all.ends_with("x3000000\n"));
    hand.end();
}

/// KILL at once: a PE that would go on after TERM does not even see it.
#[test]
fn the_grace_after_an_aprun_has_died_is_what_the_configuration_says() {
    let hand = Hand::start(&with("front_kill_grace: 0s"), &[("0", None)]);
    let out = hand.folder().join("pe");
    let script = format!(
        "trap 'echo TERM >> {0}' TERM; echo ready > {0}; while :; do sleep 0.02; done",
        out.display()
    );
    let runs = hand.start_script("-q", &script);
    hand.wait_for("running", 1);
    let said = || std::fs::read_to_string(&out).unwrap_or_default();
    eventually(BOUND, "the trap is set", || said() == "ready\n");
    runs.signal(9);
    runs.wait(BOUND).expect(137);
    hand.wait_for("running", 0);
    hand.wait_until_up();
    assert_eq!(said(), "ready\n");
    hand.end();
}
