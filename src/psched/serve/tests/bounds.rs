//! Whatever psched takes in it can read again from its store: every bound of a posting, and of what
//! else is in a record. More than that is refused when it is posted.

use super::*;
use crate::apteam::Key;
use crate::apteam::choice::RANGES_MAX;
use crate::apteam::ending::{EndCount, PeEnd, Usage};
use crate::apteam::fault::Fault;
use crate::apteam::layout::ROWS_MAX;
use crate::apteam::place::HostPart;
use crate::apteam::protocol::node::Restart;
use crate::apteam::record::{FailedLaunch, Moves, Retries};
use crate::apteam::saving::COMMAND_MAX as SAVING_MAX;
use crate::config::{NODES_MAX, PROCESSORS_MAX};
use crate::psched::decide::SIGNALS_MAX;
use crate::rpc::convert::{LIST_MAX, TEXT_MAX};
use crate::rpc::pb;

fn written_and_read(team: &Apteam) -> Apteam {
    records::decode(&records::encode(team)).unwrap_or_else(|why| panic!("{why}"))
}

fn request() -> pb::PostRequest {
    team(1, State::Posted).posting.into()
}

fn ranges(count: usize) -> Vec<pb::NidRange> {
    (0..count as u32).map(|n| pb::NidRange { first: 3 * n, last: 3 * n + 1 }).collect()
}

/// As many rows as PEs.
fn rows(request: &mut pb::PostRequest, count: usize) {
    let row = pb::LayoutRow { nodes: 1, pes: 1, depth: 0 };
    request.layout = vec![row; count];
    request.shape = Some(pb::Shape { width: count as u32, depth: u32::MAX, per_node: 0 });
}

fn saving(by: pb::saving::By) -> Option<pb::Saving> {
    Some(pb::Saving { by: Some(by) })
}

type Say = fn(&mut pb::PostRequest);

/// Each field of a posting with the most that it may have; and with more, where there is more.
fn postings() -> Vec<(&'static str, Say, Option<Say>)> {
    // A new field does not compile here before it is below.
    let pb::PostRequest {
        request_id: _,
        shape: _,
        memory_per_pe: _,
        command: _,
        cpu_limit_ms: _,
        time_limit_ms: _,
        immediate: _,
        exclusive: _,
        account: _,
        again: _,
        only: _,
        not: _,
        downwards: _,
        flexible: _,
        layout: _,
        executable: _,
        saving: _,
        // A manifest, of which a posting is made that was one before.
        restart: _,
        signal: _,
        tries_again: _,
        brings_images: _,
        // (What is shared is psched's to say: it is not looked at.)
        oversubscribe: _,
        shared_processors: _,
        shared_per_node: _,
    } = request();
    let mut all: Vec<(&'static str, Say, Option<Say>)> = vec![
        (
            "request_id",
            |r| r.request_id = vec![255; 16].into(),
            Some(|r| r.request_id = vec![0; 17].into()),
        ),
        (
            "width",
            |r| r.shape = Some(pb::Shape { width: u32::MAX, depth: u32::MAX, per_node: u32::MAX }),
            Some(|r| r.shape = Some(pb::Shape { width: 0, depth: 1, per_node: 1 })),
        ),
        ("memory", |r| r.memory_per_pe = u64::MAX, None),
        (
            "command",
            |r| r.command = "ä".repeat(TEXT_MAX / 2),
            Some(|r| r.command = "ä".repeat(TEXT_MAX / 2 + 1)),
        ),
        ("cpu_limit", |r| r.cpu_limit_ms = u64::MAX, None),
        ("time_limit", |r| r.time_limit_ms = u64::MAX, None),
        (
            "flags",
            |r| {
                (r.immediate, r.exclusive, r.again, r.flexible, r.signal) =
                    (true, true, true, true, true)
            },
            None,
        ),
        (
            "account",
            |r| r.account = "x".repeat(Account::LENGTH_MAX),
            Some(|r| r.account = "x".repeat(Account::LENGTH_MAX + 1)),
        ),
        (
            "only",
            |r| (r.only, r.downwards) = (ranges(RANGES_MAX), true),
            Some(|r| r.only = ranges(RANGES_MAX + 1)),
        ),
        ("only", |r| r.not = ranges(RANGES_MAX), Some(|r| r.not = ranges(RANGES_MAX + 1))),
        ("layout", |r| rows(r, ROWS_MAX), Some(|r| rows(r, ROWS_MAX + 1))),
        (
            "layout",
            |r| {
                let row = pb::LayoutRow { nodes: 1, pes: u32::MAX, depth: u32::MAX };
                r.layout = vec![row];
                r.shape = Some(pb::Shape { width: u32::MAX, depth: u32::MAX, per_node: 0 });
            },
            // (More PEs than the shape can say.)
            Some(|r| {
                let row = pb::LayoutRow { nodes: u32::MAX, pes: u32::MAX, depth: 1 };
                r.layout = vec![row; ROWS_MAX];
                r.shape = Some(pb::Shape { width: u32::MAX, depth: 1, per_node: 0 });
            }),
        ),
    ];
    let executables: [(&'static str, Say, Option<Say>); 3] = [
        (
            "path",
            |r| r.executable.as_mut().expect("there").path = "p".repeat(TEXT_MAX),
            Some(|r| r.executable.as_mut().expect("there").path = "p".repeat(TEXT_MAX + 1)),
        ),
        (
            "interpreter",
            |r| r.executable.as_mut().expect("there").interpreter = "p".repeat(TEXT_MAX),
            Some(|r| r.executable.as_mut().expect("there").interpreter = "p".repeat(TEXT_MAX + 1)),
        ),
        (
            "machine",
            |r| r.executable.as_mut().expect("there").machine = u16::MAX.into(),
            Some(|r| r.executable.as_mut().expect("there").machine = u32::from(u16::MAX) + 1),
        ),
    ];
    let savings: [(&'static str, Say, Option<Say>); 2] = [
        (
            "saving",
            |r| r.saving = saving(pb::saving::By::Signal(64)),
            Some(|r| r.saving = saving(pb::saving::By::Signal(65))),
        ),
        (
            "saving",
            |r| r.saving = saving(pb::saving::By::Command("x".repeat(SAVING_MAX))),
            Some(|r| r.saving = saving(pb::saving::By::Command("x".repeat(SAVING_MAX + 1)))),
        ),
    ];
    all.extend(executables);
    all.extend(savings);
    all
}

#[test]
fn what_can_be_posted_is_read_again_and_more_is_refused() {
    for (field, most, more) in postings() {
        let mut at_most = request();
        most(&mut at_most);
        let posting = Posting::try_from(at_most).unwrap_or_else(|why| panic!("{why}"));
        let team = Apteam { posting, ..team(1, State::Posted) };
        assert!(written_and_read(&team) == team, "{field}");
        if let Some(more) = more {
            let mut beyond = request();
            more(&mut beyond);
            let refused = Posting::try_from(beyond).expect_err(field);
            assert!(refused.field.contains(field) || field == "saving", "{refused}");
        }
    }
}

/// Longer than a message may have it: what psched adds to what came in one.
fn long() -> String {
    "ä".repeat(TEXT_MAX)
}

fn causes() -> Vec<Cause> {
    let nid = Nid(u32::MAX);
    let (rank, text) = (u32::MAX, long());
    vec![
        Cause::PeExit { rank, nid, code: 255 },
        Cause::PeSignal { rank, nid, signal: 64 },
        Cause::Abort { rank, nid, code: i32::MIN },
        Cause::NoFinalize { rank, nid, code: 255 },
        Cause::Garbage { rank, nid, text: text.clone() },
        Cause::NotMet { rank, nid, text: text.clone() },
        Cause::Kill { signal: 64, uid: u32::MAX },
        Cause::TimeLimit { limit: Duration::MAX },
        Cause::FrontGone,
        Cause::StdoutClosed,
        Cause::LaunchFailed { rank, nid, errno: i32::MAX, text: text.clone(), fault: Fault::Node },
        Cause::ShepherdLost { nid, text: text.clone(), fault: Fault::Node },
        Cause::NodeLost { nid, text },
        Cause::NoRecord,
        Cause::OverMemory { nid, pes: u32::MAX, per_pe: u64::MAX, largest: Some((rank, u64::MAX)) },
        Cause::HostMemory { rank, nid },
        Cause::Purge { uid: u32::MAX },
        Cause::Checkpointed { uid: u32::MAX },
    ]
}

/// Of as many hosts as there can be, each with as much as it may report.
fn end() -> HostEnd {
    let usage = Usage {
        utime: Duration::MAX,
        stime: Duration::MAX,
        max_rss_kib: u64::MAX,
        inblocks: u64::MAX,
        outblocks: u64::MAX,
    };
    let ways = (0..=255).map(PeEnd::Exit).chain((1..=64).map(PeEnd::Signal));
    let ends = ways.flat_map(|end| {
        [false, true].map(|consequence| EndCount { end, count: u32::MAX, consequence })
    });
    let nids: Vec<Nid> = (0..NODES_MAX as u32).map(Nid).collect();
    let end = HostEnd {
        key: Key { apid: Apid(u64::MAX), incarnation: Incarnation(u32::MAX) },
        nids: nids.clone(),
        launched: true,
        first: None,
        ends: ends.collect(),
        usage,
        leftovers: u32::MAX,
        output_lost: true,
        run: Duration::MAX,
        frozen: Duration::MAX,
        lost: nids,
        peak_memory: u64::MAX,
    };
    let other = HostEnd { nids: Vec::new(), lost: Vec::new(), ..end.clone() };
    end.and(other)
}

#[test]
fn what_comes_into_a_record_later_is_read_again() {
    // A new field does not compile here before it is below.
    let Apteam {
        apid: _,
        incarnation: _,
        state: _,
        posting: _,
        owner: _,
        front: _,
        front_gone: _,
        places: _,
        hosts: _,
        shares: _,
        ticket: _,
        ticket_until_ns: _,
        posted_at_ns: _,
        running_at_ns: _,
        ended_at_ns: _,
        end: _,
        held: _,
        stopped: _,
        doomed: _,
        signals: _,
        last_signal: _,
        domain: _,
        moves: _,
        restart: _,
        retries: _,
    } = team(1, State::Posted);
    // Read again as they were.
    let place = |nid| Place {
        nid: Nid(nid),
        processors: (0..PROCESSORS_MAX).collect(),
        pes: PROCESSORS_MAX,
    };
    let text = || "x".repeat(TEXT_MAX);
    let host = HostPart {
        nids: vec![Nid(u32::MAX)],
        socket: text(),
        host_id: text(),
        ..HostPart::default()
    };
    let signal = NumberedSignal { number: u64::MAX, signal: 64 };
    let all = Apteam {
        apid: Apid(u64::MAX),
        incarnation: Incarnation(u32::MAX),
        owner: Owner {
            uid: u32::MAX,
            gid: u32::MAX,
            groups: vec![u32::MAX; LIST_MAX],
            name: text(),
            terminal: true,
        },
        front: Some(FrontProcess::here(i32::MAX, u64::MAX)),
        front_gone: true,
        places: PlacementList([place(u32::MAX)].into()),
        hosts: [host].into(),
        ticket: Ticket([255; 16]),
        ticket_until_ns: u64::MAX,
        posted_at_ns: u64::MAX,
        running_at_ns: u64::MAX,
        ended_at_ns: u64::MAX,
        held: Some(By { uid: u32::MAX, name: text(), at_ns: u64::MAX }),
        stopped: Some(By { uid: u32::MAX, name: text(), at_ns: u64::MAX }),
        signals: vec![signal; SIGNALS_MAX],
        last_signal: u64::MAX,
        domain: text().into(),
        moves: Moves { told: u32::MAX, to: Some(PlacementList([place(0)].into())) },
        restart: Some(Restart {
            from: Key { apid: Apid(u64::MAX), incarnation: Incarnation(u32::MAX) },
            run: Duration::from_nanos(u64::MAX),
            parts: vec![u32::MAX; NODES_MAX],
        }),
        retries: Retries {
            count: u32::MAX,
            last: Some(FailedLaunch {
                incarnation: Incarnation(u32::MAX),
                cause: Cause::NodeLost { nid: Nid(u32::MAX), text: text() },
            }),
            may_have_run: true,
        },
        ..team(1, State::Running)
    };
    assert!(written_and_read(&all) == all);
    // Read again at least: what is longer, or larger, than anybody needs is cut.
    let longer = Apteam {
        owner: Owner { name: long(), ..all.owner.clone() },
        held: Some(By { uid: 0, name: long(), at_ns: 0 }),
        stopped: Some(By { uid: 0, name: long(), at_ns: 0 }),
        end: Some(end()),
        ..all
    };
    assert!(written_and_read(&longer).end.is_some_and(|end| end.ends.len() == 2 * (256 + 64)));
    for cause in causes() {
        let decisive = Some(Decisive { at_ns: u64::MAX, cause });
        let end = HostEnd { first: decisive.clone(), ..HostEnd::default() };
        let ends = Apteam { doomed: decisive, end: Some(end), ..team(1, State::Ended) };
        let read = written_and_read(&ends);
        assert!(read.doomed.is_some() && read.doomed == read.end.and_then(|end| end.first));
    }
}

/// psched.yaml describes so many nodes at most, and an application may be on all of them.
#[test]
fn an_application_on_as_many_nodes_as_there_can_be_is_read_again() {
    for nodes in [65_537, NODES_MAX as u32] {
        let place = |nid| Place { nid: Nid(nid), processors: vec![0], pes: 1 };
        let places = PlacementList((0..nodes).map(place).collect::<Vec<_>>().into());
        let host = |nid| HostPart {
            nids: vec![Nid(nid)],
            socket: "s".into(),
            host_id: "h".into(),
            ..HostPart::default()
        };
        let hosts: Vec<_> = (0..nodes).map(host).collect();
        let end = HostEnd { nids: (0..nodes).map(Nid).collect(), ..HostEnd::default() };
        let team =
            Apteam { places, hosts: hosts.into(), end: Some(end), ..team(7, State::Running) };
        let read = written_and_read(&team);
        assert!(read.places == team.places && read.hosts.len() == nodes as usize);
    }
}

/// A record grows with hosts and with runs of nodes that are alike, and not with nodes or PEs.
#[test]
fn a_record_is_as_long_as_it_has_hosts_and_runs() {
    let bytes = |hosts: u32, nodes: u32| {
        let place = |nid| Place { nid: Nid(nid), processors: vec![0, 1, 2, 3], pes: 4 };
        let places = PlacementList((0..hosts * nodes).map(place).collect());
        let host = |host| HostPart {
            nids: (host * nodes..(host + 1) * nodes).map(Nid).collect(),
            socket: "/run/psched/apinit.sock".into(),
            ..HostPart::default()
        };
        let nids = places.nids().collect();
        let end = HostEnd { nids, ..HostEnd::default() };
        let team = Apteam {
            hosts: (0..hosts).map(host).collect(),
            places,
            end: Some(end),
            ..team(7, State::Running)
        };
        records::encode(&team).len()
    };
    let (few, many) = (bytes(10, 10), bytes(10, 10_000));
    assert!(many <= few + 64, "{few} bytes, and with a thousand times as many nodes {many}");
}
