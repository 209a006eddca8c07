//! Users who ask for much, who do not read what they are answered, or who post much: what that costs psched and
//! others, and what others see of it.

use crate::support::hand::Hand;
use crate::support::nasty::never_reads_any;
use crate::support::users::{self, ANNA, BERT, Bins, User};
use crate::support::*;
use prost::Message;
use psched::rpc::connect::{connect, status_text};
use psched::rpc::pb;
use psched::rpc::pb::psched_client::PschedClient;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

const ONE: &str = "nodes:\n  - { nids: 0, processors: 1, flavors: [su, os, ap] }\n";

fn daemons(test: &str) -> Option<(Hand, Bins)> {
    users::daemons(&format!("readers::{test}"), ONE, "0")
}

/// Nothing is placed from now on: what is posted waits.
fn drain(hand: &Hand) {
    run(&mut hand.command("psmgr", ["drain", "0"])).expect(0);
}

fn number(variable: &str, usual: usize) -> usize {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
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

type Events = Streaming<pb::ApplicationEvent>;

/// Posts so many with commands of so many bytes, which wait for as long as the streams and this process are.
fn post(
    user: User,
    socket: &Path,
    count: usize,
    bytes: usize,
) -> (tokio::runtime::Runtime, Vec<Events>) {
    user.does(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let mut streams = Vec::new();
        runtime.block_on(async {
            // So many calls may be open on a connection.
            for first in (0..count).step_by(250) {
                let mut psched = PschedClient::new(connect(socket).await.expect("psched answers"));
                for at in first..count.min(first + 250) {
                    let command = format!("{at} {}", "x".repeat(bytes - 8));
                    let reply = psched.post(posting(at as u32, command)).await;
                    streams.push(reply.map_err(status_text).expect("taken").into_inner());
                }
            }
        });
        (runtime, streams)
    })
}

fn memory(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).expect("it has memory");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") / 1024
}

/// A cheap call of BERT's, again and again for so long: how long it took each time, the shortest first. And how
/// much memory psched had at most, in MiB.
fn meanwhile(hand: &Hand, time: Duration) -> (Vec<Duration>, u64) {
    let pid = hand.psched_pid();
    let (mut times, mut most) = BERT.does(|| {
        talk(&hand.socket(), async |mut psched| {
            let (mut times, mut most) = (Vec::new(), 0);
            let until = Instant::now() + time;
            while Instant::now() < until {
                let began = Instant::now();
                let looked = psched.look(pb::LookRequest { apid: 1 << 40 }).await;
                assert_eq!(looked.expect_err("there is none").code(), Code::NotFound);
                times.push(began.elapsed());
                most = most.max(memory(pid));
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            (times, most)
        })
    });
    times.sort_unstable();
    most = most.max(memory(pid));
    (times, most)
}

fn told(what: &str, times: &[Duration], before: u64, most: u64) {
    eprintln!(
        "{what}: psched has {before} MiB, and {most} MiB at most; another's cheap call takes {:?} (median), {:?} \
         (worst of {})",
        times[times.len() / 2],
        times[times.len() - 1],
        times.len()
    );
}

/// How many wait while others read, and how long.
const WAITING: usize = 1_000;
const ATTACK: Duration = Duration::from_secs(3);
/// What the answers of one user that nobody reads may take, in MiB, with all that goes with them.
const MEMORY_MAX: u64 = 150;
/// How long another's cheap call may take, on a busy machine.
const CALL_MAX: Duration = Duration::from_secs(5);

#[test]
fn who_never_reads_and_who_reads_much_hurt_themselves() {
    let Some((hand, bins)) = daemons("who_never_reads_and_who_reads_much_hurt_themselves") else {
        return;
    };
    drain(&hand);
    let waiting = post(BERT, &hand.socket(), number("PSCHED_WAITING", WAITING), 1_000);
    let (times, before) = meanwhile(&hand, Duration::from_millis(500));
    told("nobody reads", &times, before, before);
    let list = pb::ListRequest::default().encode_to_vec();
    let attack = ANNA.does(|| {
        [(); 2].map(|()| never_reads_any(&hand.socket(), "/psched.v1.Psched/List", &list, 256))
    });
    let (times, most) = meanwhile(&hand, ATTACK);
    told("two connections of 256 lists that nobody reads", &times, before, most);
    assert!(most < before + MEMORY_MAX, "{before} MiB -> {most} MiB");
    assert!(times[times.len() - 1] < CALL_MAX, "{:?}", times[times.len() - 1]);
    // She has asked for enough; he has not.
    let is_refused = || {
        let ask =
            async |mut psched: PschedClient<Channel>| psched.list(pb::ListRequest::default()).await;
        let answer = ANNA.does(|| talk(&hand.socket(), ask));
        answer.is_err_and(|status| status.code() == Code::ResourceExhausted)
    };
    eventually(BOUND, "she is refused", is_refused);
    let run = run(BERT.command(bins.path("apstat"), ["-a"]).env("PSCHED_SOCKET", hand.socket()));
    assert!(run.expect(0).out().contains(" posted "), "he has an answer");
    drop(attack);
    // Whatever she asks for.
    let turns = pb::TurnsRequest { switches: 100, ..Default::default() }.encode_to_vec();
    let events = pb::EventsRequest { apid: 1, ..Default::default() }.encode_to_vec();
    for (call, request) in [("Turns", turns), ("Events", events)] {
        eventually(BOUND, "what she did not read is gone", || !is_refused());
        let path = format!("/psched.v1.Psched/{call}");
        let attack =
            ANNA.does(|| [(); 2].map(|()| never_reads_any(&hand.socket(), &path, &request, 256)));
        let (times, most) = meanwhile(&hand, Duration::from_secs(1));
        told(&format!("two connections with 256 unread {call} replies"), &times, before, most);
        assert!(most < before + MEMORY_MAX, "{call}: {before} MiB -> {most} MiB");
        assert!(times[times.len() - 1] < CALL_MAX, "{call}: {:?}", times[times.len() - 1]);
        drop(attack);
    }

    let over = AtomicBool::new(false);
    let (times, most) = std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                ANNA.does(|| {
                    talk(&hand.socket(), async |psched| {
                        let mut psched = psched.max_decoding_message_size(64 << 20);
                        while !over.load(Ordering::Relaxed) {
                            let request = pb::ListRequest { pages: true, ..Default::default() };
                            // (Refused as long as what nobody has read is not gone.)
                            if psched.list(request).await.is_err() {
                                tokio::time::sleep(Duration::from_millis(20)).await;
                            }
                        }
                    });
                });
            });
        }
        let measured = meanwhile(&hand, ATTACK);
        over.store(true, Ordering::Relaxed);
        measured
    });
    told("eight busy readers", &times, before, most);
    assert!(most < before + MEMORY_MAX, "{before} MiB -> {most} MiB");
    assert!(times[times.len() - 1] < CALL_MAX, "{:?}", times[times.len() - 1]);
    drop(waiting);
}

/// How many are posted with 64 KiB of command each, without PSCHED_POSTINGS.
const POSTINGS: usize = 1_500;

#[test]
fn long_commands_are_cut_and_long_answers_come_in_pages() {
    let test = "long_commands_are_cut_and_long_answers_come_in_pages";
    let Some((hand, bins)) = daemons(test) else { return };
    let count = number("PSCHED_POSTINGS", POSTINGS);
    drain(&hand);
    let waiting = post(ANNA, &hand.socket(), count, 64 * 1024);
    let apstat = |user: Option<User>, options: &str| {
        let line = words(options).chain(["--json"]);
        let mut command = match user {
            Some(user) => user.command(bins.path("apstat"), line),
            None => hand.command("apstat", line),
        };
        let run = run(command.env("PSCHED_SOCKET", hand.socket())).expect(0);
        serde_json::from_slice::<serde_json::Value>(&run.stdout).expect("JSON")
    };
    let apids = |list: &serde_json::Value| -> BTreeSet<u64> {
        let rows = list.as_array().expect("a list").iter();
        let apids: Vec<u64> = rows.filter_map(|row| row["apid"].as_u64()).collect();
        let set: BTreeSet<u64> = apids.iter().copied().collect();
        assert_eq!(set.len(), apids.len(), "none is told twice");
        set
    };
    for user in [None, Some(ANNA), Some(BERT)] {
        let all = apstat(user, "-a -n");
        assert_eq!(apids(&all["applications"]).len(), count, "{user:?}");
        assert_eq!(all["nodes"].as_array().map(Vec::len), Some(1));
        let command = all["applications"][1]["command"].as_str().expect("a command");
        assert!(command.len() <= 1_024 && command.ends_with("..."), "{command}");
    }
    // A command of an older release gets what fits into a message that it can read, and is told so.
    let reply = BERT.does(|| {
        talk(&hand.socket(), async |mut psched| psched.list(pb::ListRequest::default()).await)
    });
    let reply = reply.expect("an answer").into_inner();
    assert!((1..count).contains(&reply.applications.len()), "{}", reply.applications.len());
    assert!(reply.notices.iter().any(|n| n.contains("older release")), "{:?}", reply.notices);
    assert_eq!(reply.nodes.len(), 1, "the other lists have room of their own");
    // So do those that have ended.
    let apids_here: Vec<u64> = apids(&apstat(None, "-a")["applications"]).into_iter().collect();
    ANNA.does(|| {
        talk(&hand.socket(), async |mut psched| {
            let request = pb::KillRequest { apids: apids_here, signal: 9 };
            psched.kill(request).await.expect("an answer");
        });
    });
    eventually(BOUND, "all have ended", || {
        apstat(None, "-a")["applications"].as_array().is_some_and(Vec::is_empty)
    });
    assert_eq!(apids(&apstat(Some(BERT), "--history 100000")["history"]).len(), count);
    let size = std::fs::metadata(hand.folder().join("state/psched.db")).expect("there").len();
    let each = size / count as u64;
    eprintln!(
        "{count} postings of 64 KiB: the database has {} KiB, {each} bytes for each",
        size >> 10
    );
    assert!(each < 12 * 1024, "{each} bytes for each");
    drop(waiting);
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

/// The requests that psched takes at once on a new connection, as its settings say, and the
/// connection.
fn streams_of(socket: &Path) -> (u32, UnixStream) {
    let mut stream = UnixStream::connect(socket).expect("connected");
    stream.set_read_timeout(Some(BOUND)).expect("set");
    // (The preface, and settings of which none is named.)
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").expect("written");
    let mut head = [0; 9];
    stream.read_exact(&mut head).expect("a frame");
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let mut settings = vec![0; length as usize];
    stream.read_exact(&mut settings).expect("settings");
    const MAX_CONCURRENT_STREAMS: u8 = 3;
    let most = settings.chunks(6).find(|setting| setting[..2] == [0, MAX_CONCURRENT_STREAMS]);
    let most = most.expect("a bound");
    (u32::from_be_bytes([most[2], most[3], most[4], most[5]]), stream)
}

/// An unread answer takes memory for each request: a user has many connections, or many requests on
/// one of them.
#[test]
fn a_user_with_many_connections_has_few_requests_on_the_last_ones() {
    let test = "a_user_with_many_connections_has_few_requests_on_the_last_ones";
    let Some((hand, _bins)) = daemons(test) else { return };
    let all = ANNA.does(|| (0..66).map(|_| streams_of(&hand.socket())).collect::<Vec<_>>());
    let streams: Vec<u32> = all.iter().map(|(streams, _)| *streams).collect();
    assert_eq!(streams, [[256; 64].as_slice(), &[8; 2]].concat());
    assert_eq!(BERT.does(|| streams_of(&hand.socket()).0), 256, "he has none");
    // (Those of root are of daemons and administrators.)
    let of_root: Vec<_> = (0..66).map(|_| streams_of(&hand.socket())).collect();
    assert!(of_root.iter().all(|(streams, _)| *streams == 256));
    drop(all);
    hand.end();
}
