//! apkill again and again: what changes nothing costs nobody anything.

use crate::support::hand::Hand;
use crate::support::users::{ANNA, Bins};
use crate::support::*;
use psched::rpc::connect::connect;
use psched::rpc::pb;
use psched::rpc::pb::psched_client::PschedClient;

const ONE: &str = "nodes:\n  - { nids: 0, processors: 2, flavors: [su, os, ap] }\n";

/// As many as one call may name.
const NAMED: usize = 10_000;

#[test]
fn one_application_named_many_times_cuts_nothing_off() {
    let test = "many_kills::one_application_named_many_times_cuts_nothing_off";
    if !is_root() {
        return skip(test, "only root can be two users");
    }
    let hand = Hand::start(ONE, &[("0", None)]);
    hand.open_to_all();
    let bins = Bins::new();
    let own = ANNA.folder();
    let ready = own.path().join("ready");
    let traps = "trap : USR1; trap 'echo term' TERM";
    let script = format!("{traps}; : > {}; while :; do sleep 0.05; done", ready.display());
    let mut command = ANNA.command(bins.path("aprun"), ["-q", "sh", "-c", &script]);
    let aprun = Running::start(command.env("PSCHED_SOCKET", hand.socket()));
    let apid = hand.wait_for("running", 1)[0];
    eventually(BOUND, "its signals are caught", || ready.exists());
    let kill = |apids: Vec<u64>, signal| {
        ANNA.does(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let mut psched =
                    PschedClient::new(connect(&hand.socket()).await.expect("psched answers"));
                let request = pb::KillRequest { apids, signal };
                psched.kill(request).await.expect("taken").into_inner().problems
            })
        })
    };
    let none = apid + 100;
    for signal in [10, 0, 0] {
        let mut apids = vec![apid; NAMED];
        apids[17] = none;
        let problems = kill(apids, signal);
        assert_eq!(problems.len(), NAMED);
        assert_eq!(problems.iter().filter(|text| !text.is_empty()).count(), 1);
        assert!(problems[17].contains(&format!("there is no application {none}")));
    }
    for _ in 0..50 {
        assert_eq!(kill(vec![apid], 0), [""]);
    }
    let rows = hand.apstat(&format!("--events {apid}"));
    let rows = rows["events"].as_array().expect("a list").iter();
    // USR1, and TERM once.
    assert_eq!(rows.filter(|row| row["event"] == "signal").count(), 2);
    // Its node has heard all of it.
    let nodes = run(&mut hand.command("apstat", ["-n"])).expect(0).out();
    assert!(nodes.contains(" up"), "{nodes}");
    let said = hand.said();
    assert!(!said.contains("does not keep up") && !said.contains("link is lost"), "{said}");
    hand.start_script("-q", "true").wait(BOUND).expect(0);
    assert_eq!(kill(vec![apid; 3], 9), ["", "", ""]);
    let ended = aprun.wait(BOUND).expect(137);
    assert!(ended.out().starts_with("term\n"), "{}", ended.out());
    hand.end();
}
