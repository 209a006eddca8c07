//! What users see of each other, as the variable `private` has it.

use crate::support::hand::Hand;
use crate::support::users::{ANNA, BERT, Bins, User};
use crate::support::*;
use psched::rpc::connect::connect;
use psched::rpc::pb;
use psched::rpc::pb::psched_client::PschedClient;
use std::path::Path;
use tonic::transport::Channel;
use tonic::{Code, Status};

const ONE: &str = "nodes:\n  - { nids: 0, processors: 1, flavors: [su, os, ap] }\n";

/// psched and apinit of root's, open to all; `None`: the test is skipped.
fn daemons(test: &str) -> Option<(Hand, Bins)> {
    if !is_root() {
        skip(&format!("readers::{test}"), "only root can be two users");
        return None;
    }
    let hand = Hand::start(ONE, &[("0", None)]);
    hand.open_to_all();
    Some((hand, Bins::new()))
}

/// Talks to psched as whoever this thread is.
fn talk<T>(socket: &Path, what: impl AsyncFnOnce(PschedClient<Channel>) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let channel = connect(socket).await.expect("psched answers");
        what(PschedClient::new(channel)).await
    })
}

fn posting(number: u32, command: String) -> pb::PostRequest {
    let mut request_id = vec![7; 12];
    request_id.extend(number.to_be_bytes());
    pb::PostRequest {
        request_id: request_id.into(),
        shape: Some(pb::Shape { width: 1, depth: 1, per_node: 0 }),
        command,
        executable: Some(pb::Executable { path: "/bin/true".into(), ..Default::default() }),
        ..Default::default()
    }
}

fn refused<T>(answer: Result<tonic::Response<T>, Status>) -> (Code, String) {
    match answer {
        Ok(_) => (Code::Ok, String::new()),
        Err(status) => (status.code(), status.message().to_owned()),
    }
}

#[test]
fn what_is_private_is_seen_by_owners_and_administrators() {
    let test = "what_is_private_is_seen_by_owners_and_administrators";
    let Some((hand, bins)) = daemons(test) else { return };
    run(&mut hand.command("psmgr", ["set", "application.max_resident=1"])).expect(0);
    let mut command =
        ANNA.command(bins.path("aprun"), words("-q sh -c").chain(["exec sleep 1000 # hers"]));
    let hers = Running::start(command.env("PSCHED_SOCKET", hand.socket()));
    let her_apid = hand.wait_for("running", 1)[0];
    let script = "exec sleep 1000 # his";
    let mut command = BERT.command(bins.path("aprun"), words("-q sh -c").chain([script]));
    let his = Running::start(command.env("PSCHED_SOCKET", hand.socket()));
    let his_apid = hand.wait_for("posted", 1)[0];
    // One of hers that has ended.
    let mut command = ANNA.command(bins.path("aprun"), words("-q sh -c").chain(["# past"]));
    let past = Running::start(command.env("PSCHED_SOCKET", hand.socket()));
    let past_apid = hand.wait_for("posted", 2)[1];
    past.signal(15);
    past.wait(BOUND);
    eventually(BOUND, "it has ended", || {
        hand.apstat("-a")["applications"].as_array().map(Vec::len) == Some(2)
    });

    let said = |user: Option<User>, name: &str, options: &str| -> String {
        let line = words(options);
        let mut command = match user {
            Some(user) => user.command(bins.path(name), line),
            None => hand.command(name, line),
        };
        let run = run(command.env("PSCHED_SOCKET", hand.socket()));
        format!("{}{}", String::from_utf8_lossy(&run.stdout), run.stderr)
    };
    let set = |value: &str| {
        run(&mut hand.command("psmgr", ["set".to_owned(), format!("private={value}")])).expect(0);
    };
    let her = ANNA.uid.to_string();
    let names = |text: &str| text.split(|c: char| !c.is_ascii_digit()).any(|word| word == her);
    let reading = [
        "-a --json".to_owned(),
        "-n --json".to_owned(),
        format!("-A {her_apid} --json"),
        format!("--events {her_apid}"),
        format!("--events {past_apid}"),
        "--history 10 --json".to_owned(),
    ];
    let whys = [format!("--why {his_apid}"), "-p".to_owned()];
    let turns = |user: Option<User>| match user {
        Some(user) => user.does(|| {
            talk(&hand.socket(), async |mut p| {
                p.turns(pb::TurnsRequest { switches: 100, ..Default::default() }).await
            })
        }),
        None => talk(&hand.socket(), async |mut p| {
            p.turns(pb::TurnsRequest { switches: 100, ..Default::default() }).await
        }),
    };

    // Nothing is hidden.
    assert!(said(Some(BERT), "apstat", &reading[0]).contains("# hers"));
    assert!(said(Some(BERT), "apstat", &reading[4]).contains("# past"));
    assert!(said(Some(BERT), "apstat", &whys[0]).contains(&format!("{her_apid} of {her}")));

    set("commands");
    for options in &reading {
        let text = said(Some(BERT), "apstat", options);
        assert!(!text.contains("# hers") && !text.contains("# past"), "{options}: {text}");
    }
    let text = said(Some(BERT), "apstat", &reading[0]);
    assert!(text.contains("(private)") && text.contains("# his") && text.contains(&her), "{text}");
    assert!(said(Some(BERT), "apstat", &reading[3]).contains("(private)"));
    for user in [None, Some(ANNA)] {
        assert!(said(user, "apstat", &reading[0]).contains("# hers"), "{user:?}");
        assert!(said(user, "apstat", &reading[4]).contains("# past"), "{user:?}");
    }
    let reply = turns(Some(BERT)).expect("an answer").into_inner();
    assert!(!format!("{reply:?}").contains("# hers"), "{reply:?}");
    assert!(format!("{:?}", turns(None).expect("an answer")).contains("# hers"));

    set("all");
    for options in reading.iter().chain(&whys) {
        let text = said(Some(BERT), "apstat", options);
        assert!(!text.contains("# hers") && !text.contains("# past"), "{options}: {text}");
        assert!(!names(&text), "{options}: {text}");
    }
    let text = said(Some(BERT), "apstat", &reading[0]);
    assert!(text.contains("# his") && !text.contains("(private)"), "{text}");
    assert!(said(Some(BERT), "apstat", &reading[3]).contains("there is no application"));
    assert!(said(Some(BERT), "apstat", &whys[0]).contains("another user's"));
    let node: serde_json::Value =
        serde_json::from_str(&said(Some(BERT), "apstat", &reading[1])).expect("JSON");
    assert_eq!(node["nodes"][0]["state"], "busy");
    let reply = turns(Some(BERT)).expect("an answer").into_inner();
    assert!(reply.applications.is_empty(), "{reply:?}");
    assert!(reply.plans.is_empty() && reply.nodes[0].apids.is_empty(), "{reply:?}");
    assert_eq!(turns(None).expect("an answer").into_inner().applications.len(), 1);
    // He hears of hers what he hears of one that there is not.
    BERT.does(|| {
        talk(&hand.socket(), async |mut psched| {
            for apid in [her_apid, past_apid] {
                let none = (Code::NotFound, format!("there is no application {apid}"));
                let watch = pb::WatchRequest { apid, ..Default::default() };
                assert_eq!(refused(psched.watch(watch).await), none);
                assert_eq!(refused(psched.look(pb::LookRequest { apid }).await), none);
                let checkpoint = pb::CheckpointRequest { apid };
                assert_eq!(refused(psched.checkpoint(checkpoint).await), none);
                let kill = pb::KillRequest { apids: vec![apid], signal: 9 };
                let problems = psched.kill(kill).await.expect("an answer").into_inner().problems;
                assert!(problems[0].starts_with(&none.1), "{problems:?}");
            }
            let dry = pb::PostRequest { immediate: true, ..posting(1, "mine".into()) };
            for answer in [
                refused(psched.dry_run(dry.clone()).await),
                refused(psched.post(dry.clone()).await),
            ] {
                assert_eq!(answer.0, Code::ResourceExhausted, "{answer:?}");
                assert!(answer.1.contains("another user's") && !names(&answer.1), "{answer:?}");
            }
        });
    });
    for (running, status) in [(hers, 143), (his, 143)] {
        running.signal(15);
        running.wait(BOUND).expect(status);
    }
    hand.end();
}
