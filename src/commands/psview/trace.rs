//! The latest changes of party as a Chrome trace-event file, which chrome://tracing and Perfetto show.
//!
//! The JSON array format: a process for each node; in it a thread for each gang that runs there at the
//! same time as another, mostly one, and one for the changes, in which the freezing of the outgoing and
//! the gap until the incoming run, or until their memory has been brought in, stand one in the other.
//! Times are microseconds of psched's monotonic clock.

use super::runs::{Node, Run, by_node};
use crate::rpc::pb;
use serde_json::{Value, json};

/// The thread of the changes: behind those of gangs.
const CHANGES: usize = 1_000_000;

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

/// The events.
pub fn trace(reply: &pb::TurnsReply) -> Vec<Value> {
    let mut events = Vec::new();
    for Node { nid, runs, switches } in by_node(reply) {
        events.push(metadata("process_name", nid, 0, &format!("NID {nid}")));
        let sort = json!({"name": "process_sort_index", "ph": "M", "pid": nid, "tid": 0,
                          "args": {"sort_index": nid}});
        events.push(sort);
        events.extend(gangs(nid, runs));
        events.extend(changes(nid, &switches));
    }
    events
}

fn metadata(what: &str, nid: u32, thread: usize, name: &str) -> Value {
    json!({"name": what, "ph": "M", "pid": nid, "tid": thread, "args": {"name": name}})
}

/// The runs on one node, in as few threads as have no two at once.
fn gangs(nid: u32, runs: Vec<Run>) -> Vec<Value> {
    let mut free_from: Vec<u64> = Vec::new();
    let mut events = Vec::new();
    for Run { apid, since_ns, until_ns, generation } in runs {
        let thread = match free_from.iter().position(|at| *at <= since_ns) {
            Some(thread) => thread,
            None => {
                free_from.push(0);
                let thread = free_from.len() - 1;
                events.push(metadata("thread_name", nid, thread, "gangs"));
                thread
            }
        };
        free_from[thread] = until_ns;
        events.push(json!({
            "name": format!("{apid}"), "cat": "gang", "ph": "X", "pid": nid, "tid": thread,
            "ts": us(since_ns), "dur": us(until_ns - since_ns),
            "args": {"apid": apid, "generation": generation},
        }));
    }
    events
}

/// How much too late it began; less than 0: too early.
fn skew_us(switch: &pb::TurnsSwitch) -> f64 {
    let apart = us(switch.began_ns.abs_diff(switch.due_ns));
    if switch.began_ns < switch.due_ns { -apart } else { apart }
}

/// The changes on one node.
fn changes(nid: u32, switches: &[&pb::TurnsSwitch]) -> Vec<Value> {
    let mut events = Vec::new();
    if !switches.is_empty() {
        events.push(metadata("thread_name", nid, CHANGES, "changes of party"));
    }
    for switch in switches {
        let mut event = |name: &str, length_ns: u64| {
            events.push(json!({
                "name": name, "cat": "change", "ph": "X", "pid": nid, "tid": CHANGES,
                "ts": us(switch.began_ns), "dur": us(length_ns),
                "args": {
                    "generation": switch.generation,
                    "skew_us": skew_us(switch),
                    "not_yet_frozen": switch.not_yet_frozen,
                    "stopped": switch.stopped,
                    "started": switch.started,
                    "brought_bytes": switch.brought_bytes,
                },
            }));
        };
        // The longer first: the other stands in it.
        if !switch.started.is_empty() {
            let name = if switch.brought_bytes > 0 { "bringing in" } else { "gap" };
            event(name, switch.gap_ns.max(switch.freeze_ns));
        }
        if !switch.stopped.is_empty() {
            event("freeze", switch.freeze_ns);
        }
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const MS: u64 = 1_000_000;

    fn application(apid: u64, nids: &[u32], kind: pb::turn::Kind) -> pb::ApplicationRow {
        let place = |nid: &u32| pb::Place { nid: *nid, ..Default::default() };
        pb::ApplicationRow {
            key: Some(pb::ApplicationKey { apid, incarnation: 1 }),
            places: nids.iter().map(place).collect(),
            turn: Some(pb::Turn { kind: kind.into(), ..Default::default() }),
            ..Default::default()
        }
    }

    fn change(at_ms: u64, stopped: &[u64], started: &[u64]) -> pb::TurnsSwitch {
        pb::TurnsSwitch {
            generation: 3,
            due_ns: at_ms * MS,
            began_ns: at_ms * MS,
            freeze_ns: MS,
            gap_ns: 2 * MS,
            stopped: stopped.to_vec(),
            started: started.to_vec(),
            ..Default::default()
        }
    }

    /// 1 and 2 take turns on node 0, 3 is promoted on node 1 with 1; 4 runs there all the time; 9 has
    /// ended.
    fn reply() -> pb::TurnsReply {
        use pb::turn::Kind;
        let node = |nid| pb::NodeRow { nid, ..Default::default() };
        pb::TurnsReply {
            now_ns: 400 * MS,
            nodes: vec![node(0), node(1), pb::NodeRow { apinit: 2, ..node(2) }],
            applications: vec![
                application(1, &[0], Kind::Frozen),
                application(2, &[0], Kind::Leads),
                application(3, &[1], Kind::Frozen),
                application(4, &[1], Kind::Always),
            ],
            switches: vec![
                change(100, &[9, 2], &[1, 3]),
                change(200, &[1, 3], &[2]),
                change(300, &[], &[]),
            ],
            ..Default::default()
        }
    }

    /// Each event of a kind as `pid/tid name from-to` in milliseconds.
    fn brief(events: &[Value], category: &str) -> Vec<String> {
        let of = |event: &&Value| event["cat"] == category;
        let line = |event: &Value| {
            let ms = |name: &str| event[name].as_f64().unwrap_or(f64::NAN) / 1e3;
            let (ts, dur) = (ms("ts"), ms("dur"));
            let name = event["name"].as_str().unwrap_or_default();
            format!("{}/{} {name} {ts}-{}", event["pid"], event["tid"], ts + dur)
        };
        events.iter().filter(of).map(line).collect()
    }

    #[test]
    fn runs_and_changes_by_node() {
        let events = trace(&reply());
        let golden = ["0/0 1 102-200", "0/0 2 202-400", "1/0 4 100-400", "1/1 3 102-200"];
        assert_eq!(brief(&events, "gang"), golden);
        let golden = ["gap 100-102", "freeze 100-101", "gap 200-202", "freeze 200-201"];
        for nid in 0..2 {
            let here = golden.map(|event| format!("{nid}/{CHANGES} {event}"));
            let all = brief(&events, "change");
            let all: Vec<_> = all.iter().filter(|e| e.starts_with(&format!("{nid}/"))).collect();
            assert_eq!(all, here.iter().collect::<Vec<_>>());
        }
        let names = events.iter().filter(|event| event["name"] == "process_name");
        let names: Vec<&str> = names.filter_map(|event| event["args"]["name"].as_str()).collect();
        assert_eq!(names, ["NID 0", "NID 1", "NID 2"]);
    }

    #[test]
    fn what_runs_in_one_thread_never_overlaps() {
        let mut reply = reply();
        reply.switches =
            (1..200u64).map(|n| change(n * 10, &[n % 7], &[(n + 1) % 7, (n * 3) % 5])).collect();
        reply.applications.iter_mut().for_each(|row| row.places[0].nid = 0);
        let mut ends: BTreeMap<(u64, u64), f64> = BTreeMap::new();
        let events = trace(&reply);
        let gangs: Vec<&Value> = events.iter().filter(|event| event["cat"] == "gang").collect();
        assert!(gangs.len() > 100);
        for event in gangs {
            let thread = (event["pid"].as_u64().expect("one"), event["tid"].as_u64().expect("one"));
            let from = event["ts"].as_f64().expect("a time");
            let end = ends.entry(thread).or_default();
            assert!(from >= *end, "{event} begins before {end}");
            *end = from + event["dur"].as_f64().expect("a time");
        }
    }
}
