//! psched's answer as JSON, for programs.

use super::{matrix, page};
use crate::rpc::pb;
use serde_json::{Value, json};

/// One object: all that the pages show, and the times behind it.
pub fn json(reply: &pb::TurnsReply) -> Value {
    let plan = |plan: &pb::TurnsPlan| {
        let slice = |s: &pb::TurnsSlice| json!({"length_ns": s.length_ns, "party": s.party});
        let on = matrix::present(plan, reply.now_ns);
        json!({
            "generation": plan.generation,
            "agreed": plan.agreed,
            "begins_ns": plan.begins_ns,
            "from_ns": plan.from_ns,
            "members": plan.members,
            "slices": plan.slices.iter().map(slice).collect::<Vec<_>>(),
            // Which of them is on, from 0, and for how long.
            "on": on.as_ref().map(|on| on.number),
            "left_ns": on.as_ref().map(|on| on.left_ns),
        })
    };
    let apinits = reply.figures.iter().map(|of| {
        let mut value = figures(of);
        value["apinit"] = of.apinit.into();
        value
    });
    let domain = |of: &pb::TurnsDomain| {
        json!({
            "name": of.name,
            "time_slice_ns": of.time_slice_ns,
            "max_resident": of.max_resident,
        })
    };
    json!({
        "version": reply.version,
        "now_ns": reply.now_ns,
        "wall_ns": reply.wall_ns,
        "time_slice_ns": reply.time_slice_ns,
        "max_resident": reply.max_resident,
        "domains": reply.domains.iter().map(domain).collect::<Vec<_>>(),
        "waiting": reply.waiting,
        "plans": reply.plans.iter().map(plan).collect::<Vec<_>>(),
        "parties_cut": reply.parties_cut,
        "applications": reply.applications.iter().map(application).collect::<Vec<_>>(),
        "nodes": reply.nodes.iter().map(node).collect::<Vec<_>>(),
        "changes": {
            "all": figures(&reply.all.unwrap_or_default()),
            "apinits": apinits.collect::<Vec<_>>(),
        },
    })
}

fn application(row: &pb::ApplicationRow) -> Value {
    let turn = row.turn.unwrap_or_default();
    let unreachable =
        |nid: &u32| row.unreachable.iter().any(|of| (of.first..=of.last).contains(nid));
    json!({
        "apid": row.key.map_or(0, |key| key.apid),
        "user": page::user(row),
        "pes": row.shape.unwrap_or_default().width,
        "shared_processors": row.shared_processors,
        "nids": row.places.iter().map(|place| place.nid).collect::<Vec<_>>(),
        "state": row.state,
        "stopped": row.stopped.is_some(),
        "unreachable": row.places.iter().map(|place| place.nid).filter(unreachable).collect::<Vec<_>>(),
        "command": row.command,
        "turn": row.turn.is_some().then(|| page::turn(row)),
        "left_ns": turn.left_ns,
        "had": f64::from(turn.had) / 1e3,
        "due": f64::from(turn.due) / 1e3,
        "attained_ns": turn.attained_ns,
        "partial_ns": turn.partial_ns,
        "partials": turn.partials,
        "partial_longest_ns": turn.partial_longest_ns,
        "memory": row.memory,
        "peak_memory": turn.peak_memory,
    })
}

fn node(row: &pb::NodeRow) -> Value {
    json!({
        "nid": row.nid,
        "host": row.host,
        "state": row.state,
        "processors": row.processors,
        "used": row.used,
        "apids": row.apids,
        "checkpoints": row.back_ends,
        "stops": (!row.stops.is_empty()).then_some(&row.stops),
        "apinit": row.apinit,
        "limits": row.limits,
        "clock_error_ns": row.clock_error_ns,
        "clock_ahead_ns": row.clock_ahead_ns,
        "notes": row.notes,
    })
}

fn figures(of: &pb::TurnsFigures) -> Value {
    let spread = |spread: &Option<pb::Spread>| {
        let spread = spread.unwrap_or_default();
        json!({
            "count": spread.count,
            "median_ns": spread.median_ns,
            "p99_ns": spread.p99_ns,
        })
    };
    json!({
        "switches": of.switches,
        "left_out": of.left_out,
        "not_yet_frozen": of.not_yet_frozen,
        "freeze": spread(&of.freeze),
        "gap": spread(&of.gap),
        "skew": spread(&of.skew),
        "bringing": spread(&of.bringing),
        "brought_bytes": of.brought_bytes,
    })
}
