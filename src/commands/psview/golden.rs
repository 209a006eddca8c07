//! What is shown of machines of several sizes, at several widths.

use super::lines::text;
use super::page::{Page, page};
use crate::rpc::pb;
use crate::rpc::pb::turn::Kind;

const MS: u64 = 1_000_000;

fn shown(reply: &pb::TurnsReply, width: usize) -> String {
    text(&page(reply, Page::Turns, width))
}

fn machine(nodes: u32) -> pb::TurnsReply {
    let node = |nid: u32| pb::NodeRow {
        nid,
        host: format!("node{nid}"),
        state: "free".into(),
        processors: 2,
        stops: "freezer".into(),
        limits: vec!["memory".into(), "processes".into()],
        apinit: nid,
        ..Default::default()
    };
    pb::TurnsReply {
        now_ns: 10_000 * MS,
        time_slice_ns: 1_000 * MS,
        max_resident: 4,
        nodes: (0..nodes).map(node).collect(),
        ..Default::default()
    }
}

fn application(
    apid: u64,
    nids: impl IntoIterator<Item = u32>,
    turn: pb::Turn,
) -> pb::ApplicationRow {
    let place = |nid| pb::Place { nid, pes: 2, ..Default::default() };
    let places: Vec<pb::Place> = nids.into_iter().map(place).collect();
    pb::ApplicationRow {
        key: Some(pb::ApplicationKey { apid, incarnation: 1 }),
        owner: Some(pb::Owner { uid: 61234, name: "alice".into(), ..Default::default() }),
        shape: Some(pb::Shape { width: 2 * places.len() as u32, depth: 1, per_node: 2 }),
        command: format!("./program-{apid} --with many words"),
        state: "running".into(),
        turn: Some(turn),
        places,
        ..Default::default()
    }
}

fn turn(kind: Kind, left_ms: u64, had: u32, due: u32) -> pb::Turn {
    let (left_ns, attained_ns) = (left_ms * MS, 12_300 * MS);
    pb::Turn { kind: kind.into(), left_ns, had, due, attained_ns, ..Default::default() }
}

fn plan(generation: u64, begins_ms: u64, slices: &[(u64, &[u64])]) -> pb::TurnsPlan {
    let mut members: Vec<u64> = slices.iter().flat_map(|(_, party)| party.to_vec()).collect();
    members.sort_unstable();
    members.dedup();
    let slice =
        |(ms, party): &(u64, &[u64])| pb::TurnsSlice { length_ns: ms * MS, party: party.to_vec() };
    pb::TurnsPlan {
        generation: (1 << 32) + generation,
        members,
        slices: slices.iter().map(slice).collect(),
        begins_ns: begins_ms * MS,
        from_ns: begins_ms * MS,
        agreed: true,
    }
}

/// Three take turns on eight nodes, one has a node of another component for itself.
fn three() -> pb::TurnsReply {
    let mut reply = machine(9);
    let partial = pb::Turn {
        partial_ns: 31 * MS,
        partials: 40,
        partial_longest_ns: 2 * MS,
        ..turn(Kind::Leads, 400, 334, 333)
    };
    reply.applications = vec![
        application(5, 0..4, partial),
        application(6, 4..8, turn(Kind::Promoted, 1_400, 660, 500)),
        application(7, 0..6, turn(Kind::Frozen, 900, 333, 333)),
        application(9, [8], turn(Kind::Always, 0, 1_000, 1_000)),
        application(12, 0..4, turn(Kind::Frozen, 400, 331, 333)),
    ];
    // 0.6 s into it: the plan is two seconds and a half long.
    reply.plans = vec![plan(17, 6_900, &[(1_000, &[5, 6]), (500, &[12, 6]), (1_000, &[7])])];
    let spread = |median_us: u64, p99_us: u64| {
        Some(pb::Spread { count: 40, median_ns: median_us * 1_000, p99_ns: p99_us * 1_000 })
    };
    reply.all = Some(pb::TurnsFigures {
        switches: 1_240,
        left_out: 3,
        not_yet_frozen: 2,
        freeze: spread(90, 480),
        gap: spread(211, 1_300),
        skew: spread(45, 12_600),
        ..Default::default()
    });
    reply
}

#[test]
fn an_empty_machine() {
    let golden = "\
0 nodes: nothing runs; slices of 1s, at most 4 gangs on a processor
";
    assert_eq!(shown(&machine(0), 80), golden);
    let mut one = machine(1);
    one.waiting = 2;
    one.max_resident = 1;
    let golden = "\
1 node: nothing runs; 2 postings without a place;
  slices of 1s, at most 1 gang on a processor
";
    assert_eq!(shown(&one, 50), golden);
}

/// (psched passes on what hosts tell.)
#[test]
fn no_figure_is_too_large_to_be_drawn() {
    let mut reply = machine(2);
    let most = Some(pb::Spread { count: u64::MAX, median_ns: u64::MAX, p99_ns: u64::MAX });
    reply.all = Some(pb::TurnsFigures {
        apinit: 0,
        switches: u64::MAX,
        left_out: u64::MAX,
        not_yet_frozen: u64::MAX,
        freeze: most,
        gap: most,
        skew: most,
        bringing: most,
        brought_bytes: u64::MAX,
    });
    assert!(shown(&reply, 80).contains("18446744073709551615"));
}

#[test]
fn one_application_alone() {
    let mut reply = machine(1_000);
    reply.applications = vec![application(3, 0..1_000, turn(Kind::Always, 0, 1_000, 1_000))];
    let golden = r#"1000 nodes: 1 application alone; slices of 1s, at most 4 gangs on a processor

Apid User   PEs NIDs  Turn For    Had    Due Run Part Command
   3 alice 2000 0-999 runs   - 100.0% 100.0% 12s    - ./program-3 --with many w+
"#;
    assert_eq!(shown(&reply, 80), golden);
}

#[test]
fn three_in_turns() {
    let golden = r#"9 nodes: 4 applications in turns, 1 alone; slices of 1s, at most 4 gangs on a
  processor

Plan 1.17: 4 applications take turns on NIDs 0-7
Party Slice   0   1   2   3  4  5  6  7
>   1  1.0s  *5  *5  *5  *5 +6 +6 +6 +6  on for 0.4s
    2  0.5s *12 *12 *12 *12 +6 +6 +6 +6  in 0.4s
    3  1.0s  *7  *7  *7  *7 *7 *7  -  -  in 0.9s
Frozen: 7 for 0.9s, 12 for 0.4s
> on now, * leads, + promoted

Apid User  PEs NIDs Turn      For    Had    Due Run Part Command
   5 alice   8 0-3  leads    0.4s  33.4%  33.3% 12s 31ms ./program-5 --with man+
   6 alice   8 4-7  promoted 1.4s  66.0%  50.0% 12s    - ./program-6 --with man+
   7 alice  12 0-5  frozen   0.9s  33.3%  33.3% 12s    - ./program-7 --with man+
   9 alice   2 8    runs        - 100.0% 100.0% 12s    - ./program-9 --with man+
  12 alice   8 0-3  frozen   0.4s  33.1%  33.3% 12s    - ./program-12 --with ma+

Changes of party: median and p99 in ms until frozen, until next ran, off plan
NIDs Changes Freeze  p99  Gap  p99 Skew  p99 Late Untold
all     1240   0.09 0.48 0.21 1.30 0.04 12.6    2      3
In part: 40 times, for 31.0 ms in all and 2.00 ms at most
"#;
    assert_eq!(shown(&three(), 80), golden);
    let golden = r#"9 nodes: 4 applications in turns, 1 alone; slices
  of 1s, at most 4 gangs on a processor

Plan 1.17: 4 applications take turns on NIDs 0-7
Party Slice 0-3 4-5 6-7
>   1  1.0s  *5  +6  +6  on for 0.4s
    2  0.5s *12  +6  +6  in 0.4s
    3  1.0s  *7  *7   -  in 0.9s
Frozen: 7 for 0.9s, 12 for 0.4s
> on now, * leads, + promoted

Apid NIDs Turn      For    Had    Due Run Command
   5 0-3  leads    0.4s  33.4%  33.3% 12s ./progr+
   6 4-7  promoted 1.4s  66.0%  50.0% 12s ./progr+
   7 0-5  frozen   0.9s  33.3%  33.3% 12s ./progr+
   9 8    runs        - 100.0% 100.0% 12s ./progr+
  12 0-3  frozen   0.4s  33.1%  33.3% 12s ./progr+

Changes of party: median and p99 in ms until
  frozen, until next ran, off plan
NIDs Changes Freeze  p99  Gap  p99 Skew  p99 Late
all     1240   0.09 0.48 0.21 1.30 0.04 12.6    2
In part: 40 times, for 31.0 ms in all and 2.00 ms
  at most
"#;
    assert_eq!(shown(&three(), 50), golden);
    let golden = r#"9 nodes: 4 applications in turns, 1 alone; slices of 1s, at most 4 gangs on a processor

Plan 1.17: 4 applications take turns on NIDs 0-7
Party Slice   0   1   2   3  4  5  6  7
>   1  1.0s  *5  *5  *5  *5 +6 +6 +6 +6  on for 0.4s
    2  0.5s *12 *12 *12 *12 +6 +6 +6 +6  in 0.4s
    3  1.0s  *7  *7  *7  *7 *7 *7  -  -  in 0.9s
Frozen: 7 for 0.9s, 12 for 0.4s
> on now, * leads, + promoted

Apid User  PEs NIDs Turn      For    Had    Due Run Part Command
   5 alice   8 0-3  leads    0.4s  33.4%  33.3% 12s 31ms ./program-5 --with many words
   6 alice   8 4-7  promoted 1.4s  66.0%  50.0% 12s    - ./program-6 --with many words
   7 alice  12 0-5  frozen   0.9s  33.3%  33.3% 12s    - ./program-7 --with many words
   9 alice   2 8    runs        - 100.0% 100.0% 12s    - ./program-9 --with many words
  12 alice   8 0-3  frozen   0.4s  33.1%  33.3% 12s    - ./program-12 --with many words

Changes of party: median and p99 in ms until frozen, until next ran, off plan
NIDs Changes Freeze  p99  Gap  p99 Skew  p99 Late Untold
all     1240   0.09 0.48 0.21 1.30 0.04 12.6    2      3
In part: 40 times, for 31.0 ms in all and 2.00 ms at most
"#;
    assert_eq!(shown(&three(), 200), golden);
}

/// What the narrowest usual terminal shows.
#[test]
fn three_in_turns_at_forty() {
    let golden = r#"9 nodes: 4 applications in turns, 1
  alone; slices of 1s, at most 4 gangs
  on a processor

Plan 1.17: 4 applications take turns on
  NIDs 0-7
Party Slice 0-3 4-5 6-7
>   1  1.0s  *5  +6  +6  on for 0.4s
    2  0.5s *12  +6  +6  in 0.4s
    3  1.0s  *7  *7   -  in 0.9s
Frozen: 7 for 0.9s, 12 for 0.4s
> on now, * leads, + promoted

Apid Turn      For    Had    Due
   5 leads    0.4s  33.4%  33.3%
   6 promoted 1.4s  66.0%  50.0%
   7 frozen   0.9s  33.3%  33.3%
   9 runs        - 100.0% 100.0%
  12 frozen   0.4s  33.1%  33.3%

Changes of party: median and p99 in ms
  until frozen, until next ran, off plan
NIDs Changes Freeze  Gap  p99 Skew Late
all     1240   0.09 0.21 1.30 0.04    2
In part: 40 times, for 31.0 ms in all
  and 2.00 ms at most
"#;
    assert_eq!(shown(&three(), 40), golden);
}

/// Columns and lines of memory are there where something is known of it.
#[test]
fn memory_that_is_brought_in() {
    let mut reply = three();
    for (row, mib) in reply.applications.iter_mut().zip([1_536, 0, 300, 90, 8_192]) {
        row.memory = mib << 20;
    }
    if let Some(all) = &mut reply.all {
        (all.bringing, all.brought_bytes) = (all.gap, 3 << 30);
    }
    let page = shown(&reply, 95);
    for line in [
        "Apid User  PEs NIDs Turn      For    Had    Due Run Part Memory Command",
        "   5 alice   8 0-3  leads    0.4s  33.4%  33.3% 12s 31ms   1.5G ./program-5 --with many words",
        "   6 alice   8 4-7  promoted 1.4s  66.0%  50.0% 12s    -      - ./program-6 --with many words",
        "In part: 40 times, for 31.0 ms in all and 2.00 ms at most",
        "Memory brought in: 3G in 40 starts, in 0.21 ms (p99 1.30 ms)",
    ] {
        assert!(page.lines().any(|l| l == line), "{line:?} is not in\n{page}");
    }
}

#[test]
fn nodes_and_what_they_can_do() {
    let mut reply = three();
    reply.nodes[0].apids = vec![5, 7, 12];
    reply.nodes.truncate(3);
    for node in &mut reply.nodes[1..] {
        node.stops = "signals".into();
        node.limits.clear();
        node.apinit = 1;
    }
    reply.nodes[1].notes = vec!["no memory controller".into()];
    let of = |apinit, switches| pb::TurnsFigures { apinit, switches, ..Default::default() };
    reply.figures = vec![of(0, 1_000), of(1, 240)];
    let golden = r#"NID Host  State HW Pl Stops   Limits           Apids
  0 node0 free   2  0 freezer memory,processes 5,7,12
  1 node1 free   2  0 SIGSTOP -                -
  2 node2 free   2  0 SIGSTOP -                -

NIDs 1-2: gangs are stopped by SIGSTOP, not by the freezer: programs can see it
  and undo it
NID 1: no memory controller

Changes of party: median and p99 in ms until frozen, until next ran, off plan
NIDs Changes Freeze  p99  Gap  p99 Skew  p99 Late Untold
all     1240   0.09 0.48 0.21 1.30 0.04 12.6    2      3
0       1000      -    -    -    -    -    -    0      0
1-2      240      -    -    -    -    -    -    0      0
In part: 40 times, for 31.0 ms in all and 2.00 ms at most
"#;
    assert_eq!(text(&page(&reply, Page::Nodes, 80)), golden);
    reply.nodes[1].back_ends = vec!["criu 4.2.1".into()];
    let with = text(&page(&reply, Page::Nodes, 80));
    assert!(with.contains(" Checkpoints "), "{with}");
    let second = with.lines().find(|line| line.starts_with("  1 node1 ")).unwrap_or_default();
    assert!(second.contains(" criu 4.2.1 "), "{with}");
    reply.nodes[1].back_ends.clear();
    reply.nodes[1].clock_error_ns = 120_001;
    let clocks = text(&page(&reply, Page::Nodes, 80));
    assert!(clocks.contains(" Clock "), "{clocks}");
    let second = clocks.lines().find(|line| line.starts_with("  1 node1 ")).unwrap_or_default();
    assert!(second.contains(" 121us "), "{clocks}");
    reply.nodes[1].clock_ahead_ns = -5_000_000_123_456;
    let wide = text(&page(&reply, Page::Nodes, 100));
    assert!(wide.contains(" Ahead Clock "), "{wide}");
    let second = wide.lines().find(|line| line.starts_with("  1 node1 ")).unwrap_or_default();
    assert!(second.contains(" -5000.000123s 121us "), "{wide}");
    (reply.nodes[1].clock_error_ns, reply.nodes[1].clock_ahead_ns) = (0, 0);
    reply.nodes[2].stops.clear();
    let narrow = text(&page(&reply, Page::Nodes, 30));
    assert!(narrow.lines().all(|line| line.chars().count() <= 30), "{narrow}");
    assert!(
        narrow.contains("\n  1 free   2  0 SIGSTOP ") && narrow.contains("\n  2 free   2  0 -  "),
        "{narrow}"
    );
}

/// A plan that is not in force yet, one that is being agreed, and one of which nobody runs.
#[test]
fn plans_to_come() {
    let mut reply = three();
    reply.applications[4].turn = Some(turn(Kind::Held, 0, 0, 0));
    reply.plans[0].from_ns = reply.now_ns + 20 * MS;
    reply.plans.push(pb::TurnsPlan { agreed: false, ..plan(18, 7_000, &[(1_000, &[7])]) });
    reply.plans.push(pb::TurnsPlan { members: vec![12], ..plan(19, 7_000, &[]) });
    reply.plans.push(plan(20, 7_000, &[(1_000, &[9])]));
    let page = shown(&reply, 80);
    // One alone needs no table of parties.
    let after = page.lines().skip_while(|line| *line != "Plan 1.20: 9 alone on NID 8").nth(1);
    assert_eq!(after, Some("> on now, * leads, + promoted"), "{page}");
    for line in [
        "Plan 1.17: 4 applications take turns on NIDs 0-7, in force in 20ms",
        ">   1  1.0s  *5  *5  *5  *5 +6 +6 +6 +6  on for 0.3s",
        "9 nodes: 3 applications in turns, 1 alone, 1 held; slices of 1s, at most 4 gangs",
        "Plan 1.18: 7 alone on NIDs 0-5, being agreed",
        "Plan 1.19: 12 on NIDs 0-3 held, in no slice",
        "  12 alice   8 0-3  held        -   0.0%   0.0% 12s    - ./program-12 --with ma+",
    ] {
        assert!(page.lines().any(|l| l == line), "{line:?} is not in\n{page}");
    }
}

fn forty(nodes: u32) -> pb::TurnsReply {
    let mut reply = machine(nodes);
    let wide = nodes / 20;
    let at = |apid: u64| apid as u32 * nodes / 41;
    reply.applications = (1..=40)
        .map(|apid| {
            application(apid, at(apid)..at(apid) + wide.max(1), turn(Kind::Frozen, 300, 20, 25))
        })
        .collect();
    let parties: Vec<Vec<u64>> = (1..=5).map(|n| (0..8).map(|i| n + 5 * i).collect()).collect();
    let slices: Vec<(u64, &[u64])> = parties.iter().map(|party| (100, &party[..])).collect();
    reply.plans = vec![plan(1_234, 9_000, &slices)];
    reply
}

#[test]
fn forty_on_eight_at_fifty() {
    let golden = r#"8 nodes: 40 applications in turns; slices of 1s,
  at most 4 gangs on a processor

Plan 1.1234: 40 applications take turns on NIDs
  0-7
Party Slice  0   1   2   3   4   5
>   1  0.1s *1  +6 +11 +16 +21 +26  on for 0.1s
    2  0.1s *2  +7 +12 +17 +22 +27  in 0.1s
    3  0.1s *3  +8 +13 +18 +23 +28  in 0.2s
    4  0.1s *4  +9 +14 +19 +24 +29  in 0.3s
    5  0.1s *5 +10 +15 +20 +25 +30  in 0.4s

Party Slice   6   7
>   1  0.1s +31 +36
    2  0.1s +32 +37
    3  0.1s +33 +38
    4  0.1s +34 +39
    5  0.1s +35 +40
Frozen: 2 for 0.1s, 3 for 0.2s, 4 for 0.3s,
"#;
    assert_eq!(shown(&forty(8), 50).lines().take(19).collect::<Vec<_>>().join("\n") + "\n", golden);
}

#[test]
fn every_application_has_its_cell_and_every_line_fits() {
    for nodes in [1, 8, 1_000] {
        let reply = forty(nodes);
        for width in [1, 20, 50, 80, 200] {
            let page = shown(&reply, width);
            assert!(page.lines().all(|line| line.chars().count() <= width), "{nodes}, {width}");
            if width < 50 {
                continue;
            }
            for apid in 1..=40 {
                let named = |word: &str| word == format!("*{apid}") || word == format!("+{apid}");
                // On one node only the first few of a party are named.
                let cells = page.split([' ', ',', '\n']).filter(|word| named(word)).count();
                let first = nodes > 1 || apid <= 15;
                assert_eq!(cells > 0, first, "{apid} of {nodes} at {width}:\n{page}");
            }
        }
    }
}

/// Of a very long plan those parties are shown that come next.
#[test]
fn long_plans_are_shown_from_now_on() {
    let mut reply = machine(1);
    reply.applications = vec![application(1, [0], turn(Kind::Leads, 10, 500, 500))];
    let slices: Vec<(u64, &[u64])> = (0..200).map(|_| (100, &[1u64][..])).collect();
    reply.plans = vec![plan(1, 0, &slices)];
    // Ten seconds into it.
    let page = shown(&reply, 80);
    let rows: Vec<&str> = page.lines().filter(|line| line.contains("*1")).collect();
    assert_eq!(rows.len(), 64);
    assert_eq!(rows[0], "> 101  0.1s *1  on for 0.1s");
    assert_eq!(rows[63], "  164  0.1s *1  in 6.3s");
    assert!(page.contains("(136 more parties)"), "{page}");
}

#[test]
fn what_is_stopped_or_out_of_reach_is_marked() {
    let mut row = application(3, 0..4, turn(Kind::Frozen, 250, 498, 500));
    assert_eq!(super::page::turn(&row), "frozen");
    row.stopped = Some(pb::By::default());
    assert_eq!(super::page::turn(&row), "stopped");
    row.unreachable = vec![pb::NidRange { first: 2, last: 9 }];
    assert_eq!(super::page::turn(&row), "suspect");
    let reply = pb::TurnsReply { applications: vec![row], ..Default::default() };
    let json = super::json::json(&reply);
    let of = &json["applications"][0];
    assert_eq!(of["unreachable"], serde_json::json!([2, 3]));
    assert_eq!((&of["stopped"], &of["turn"]), (&true.into(), &"suspect".into()));
}
