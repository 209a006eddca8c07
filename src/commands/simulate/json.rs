//! The figures as JSON. Times in seconds, parts of a whole from 0 to 1.

use super::Told;
use crate::simulate::classes::Class;
use crate::simulate::figures::{Felt, Spread};
use crate::simulate::summary::{Against, Summary, TurnsTaken};
use serde_json::{Map, Value, json};
use std::time::Duration;

/// The first, with the others under `compare`.
pub fn text(log: &str, all: &[Told]) -> String {
    let mut values = all.iter().map(value);
    let mut first = values.next().unwrap_or_default();
    first.insert("log".into(), log.into());
    first.insert("compare".into(), values.map(Value::Object).collect());
    // Maps of strings are always written.
    serde_json::to_string_pretty(&first).unwrap_or_default() + "\n"
}

fn value(told: &Told) -> Map<String, Value> {
    let Told { setting, nodes, left_out, summary, .. } = told;
    let Summary { processors, span, offered_load, capacity: c, felt, classes, .. } = summary;
    let mut map = figures(felt);
    let mut insert = |name: &str, value: Value| map.insert(name.into(), value);
    insert("setting", setting.label().into());
    insert("policy", setting.policy.name().into());
    insert("moves", setting.moves().into());
    insert("nodes", (*nodes).into());
    insert("processors", (*processors).into());
    insert("left_out", (*left_out).into());
    insert("slowdown_bound", setting.bound.as_secs_f64().into());
    insert("span", span.as_secs_f64().into());
    insert("offered_load", (*offered_load).into());
    insert("utilisation", summary.utilisation().into());
    insert(
        "processor_seconds",
        json!({
            "all": c.total(), "useful": c.useful, "starts": c.starts, "moves": c.moves,
            "fragmented": c.fragmented, "kept": c.kept, "idle": c.idle,
        }),
    );
    insert("by_width", each(&classes.width));
    insert("by_run", each(&classes.run));
    insert("over_2h_by_width", each(&classes.long_by_width));
    insert("turns", summary.turns.as_ref().map_or(Value::Null, turns));
    insert("longest_stopped", longest(summary.longest_stopped));
    insert("longest_wait", longest(summary.longest_wait));
    insert("against_easy", summary.against.as_ref().map_or(Value::Null, against));
    map
}

fn figures(felt: &Felt) -> Map<String, Value> {
    let Felt { jobs, wait, response, bounded_slowdown } = felt;
    let mut map = Map::new();
    map.insert("jobs".into(), (*jobs).into());
    for (name, spread) in
        [("wait", wait), ("response", response), ("bounded_slowdown", bounded_slowdown)]
    {
        let Spread { mean, median, p95, p99, p999, max } = spread;
        let value = json!({
            "mean": mean, "median": median, "p95": p95, "p99": p99, "p999": p999, "max": max,
        });
        map.insert(name.into(), value);
    }
    map
}

fn each(classes: &[Class]) -> Value {
    let value = |class: &Class| {
        let mut map = figures(&class.felt);
        map.insert("class".into(), class.name.clone().into());
        Value::Object(map)
    };
    classes.iter().map(value).collect()
}

fn turns(turns: &TurnsTaken) -> Value {
    let ((starts, most_starts), (moves, most_moves)) = (turns.starts, turns.moves);
    json!({
        "starts": { "mean": starts, "max": most_starts },
        "moves": { "mean": moves, "max": most_moves },
    })
}

fn longest((time, job): (Duration, i64)) -> Value {
    json!({ "seconds": time.as_secs_f64(), "job": job })
}

fn against(against: &Against) -> Value {
    let worst = against.worst.iter().map(|worse| {
        json!({
            "job": worse.job, "width": worse.width, "run": worse.run.as_secs_f64(),
            "response": worse.response.as_secs_f64(), "easy": worse.there.as_secs_f64(),
        })
    });
    let worst: Vec<Value> = worst.collect();
    json!({ "better": against.better, "worse": against.worse, "worst": worst })
}
