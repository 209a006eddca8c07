//! An apinit that psched, front ends, other apinits and shepherds tell anything, in any order.
//!
//! - No processor is given to an application while another may have processes there.
//! - Each is launched once, and its PEs go once, after they were ready.
//! - Nothing is said to a stream that is closed, nor to a psched that is not linked or, where it has the
//!   node purged, is not obeyed.
//! - It holds no more applications and streams than there are; a timer that has rung is used up.

use arbitrary::{Result, Unstructured};
use bytes::Bytes;
use prost::Message;
use psched::apinit::decide::switcher::News;
use psched::apinit::decide::{Action, Agent, CameBack, Conn, Event, Found, Me, Watch};
use psched::apteam::ending::{Cause, Decisive, HostEnd};
use psched::apteam::launch::{Launch, Part};
use psched::apteam::place::{HostPart, Place};
use psched::apteam::protocol::attach::*;
use psched::apteam::protocol::node::{Command, NodeSpec, PlaceCommand, Report, Welcome};
use psched::apteam::protocol::peers::*;
use psched::apteam::protocol::shepherd::{FromShepherd, Hello, ToShepherd};
use psched::apteam::shape::Shape;
use psched::apteam::{Apid, Incarnation, Key, Ticket};
use psched::machine::Nid;
use psched::rpc::pb;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const OWN: [u32; 2] = [0, 1];
const TICKET: Ticket = Ticket([7; 16]);
const CONNS: u64 = 4;
const KEYS: usize = 6;
/// The nodes of each apinit of a placement: here, elsewhere, and both.
const HOSTS: [&[&[u32]]; 6] =
    [&[&[0]], &[&[1]], &[&[0, 1]], &[&[0, 1], &[2]], &[&[2], &[0]], &[&[3]]];

pub fn fuzz(data: &[u8]) {
    // An Err: the bytes are used up.
    let _ = history(&mut Unstructured::new(data));
}

fn any_key(u: &mut Unstructured<'_>) -> Result<Key> {
    Ok(Key { apid: Apid(u.int_in_range(1..=3)?), incarnation: Incarnation(u.int_in_range(1..=2)?) })
}

fn welcome(u: &mut Unstructured<'_>) -> Result<Welcome> {
    let node = |nid: u32| NodeSpec {
        nid: Nid(nid),
        processors: 2,
        cpus: vec![],
        first_processor: nid * 2,
        memory: 1 << 30,
    };
    Ok(Welcome {
        store_id: u.choose(&["0123456789abcdef", "0123456789abcdef", "another"])?.to_string(),
        epoch: u.int_in_range(2..=3)?,
        nodes: (0..2).map(node).collect(),
        next_apid: u.int_in_range(2..=9)?,
        ..Welcome::default()
    })
}

fn place(u: &mut Unstructured<'_>) -> Result<PlaceCommand> {
    let hosts: &[&[u32]] = u.choose(&HOSTS)?;
    let nids: Vec<u32> = hosts.concat();
    let place = |nid: &u32| Place { nid: Nid(*nid), processors: vec![0, 1], pes: 2 };
    let part = |nids: &&[u32]| HostPart {
        nids: nids.iter().map(|n| Nid(*n)).collect(),
        socket: format!("/run/apinit-{}.sock", nids[0]),
        host_id: format!("host{}", nids[0]),
        ..HostPart::default()
    };
    let wire = pb::PlaceCommand {
        owner: Some(pb::Owner { uid: 1000, gid: 1000, ..Default::default() }),
        key: Some(any_key(u)?.into()),
        shape: Some(Shape { width: nids.len() as u32 * 2, depth: 1, per_node: None }.into()),
        places: nids.iter().map(place).map(Into::into).collect(),
        hosts: hosts.iter().map(part).map(Into::into).collect(),
        ticket: Bytes::copy_from_slice(&TICKET.0),
        ticket_left_ms: u.int_in_range(0..=60_000)?,
        time_limit_ms: u.int_in_range(0..=3)? * 1000,
        kill_grace_ms: 5000,
        request_id: Bytes::from_static(&[1; 16]),
        ..Default::default()
    };
    Ok(wire.try_into().expect("as psched says it"))
}

fn cause(u: &mut Unstructured<'_>) -> Result<Cause> {
    Ok(match u.int_in_range(0..=2)? {
        0 => Cause::FrontGone,
        1 => Cause::Abort { rank: 0, nid: Nid(0), code: 1 },
        _ => Cause::PeExit { rank: 0, nid: Nid(0), code: 1 },
    })
}

fn output(u: &mut Unstructured<'_>) -> Result<Output> {
    Ok(Output {
        source: u.int_in_range(0..=2)?,
        offset: u.int_in_range(0..=3)? * 4,
        rank: 0,
        nid: Nid(0),
        stderr: u.arbitrary()?,
        data: Bytes::from_static(b"four"),
        report: None,
    })
}

fn arrival(u: &mut Unstructured<'_>) -> Result<BarrierIn> {
    Ok(BarrierIn { generation: u.int_in_range(0..=4)?, entries: vec![] })
}

/// What a front end says; sometimes in any bytes that it can be said in.
fn to_apinit(u: &mut Unstructured<'_>) -> Result<ToApinit> {
    let part = Part { first: u.int_in_range(1..=3)?, ..Part::default() };
    let more = if u.ratio(1, 8)? { vec![part] } else { Vec::new() };
    let launch = Launch { executable: b"/bin/true".to_vec(), pmi: true, more, ..Launch::default() };
    let taken = OutputTaken { source: u.int_in_range(0..=2)?, offset: u.int_in_range(0..=20)? };
    Ok(match u.int_in_range(0..=12)? {
        0..=4 => ToApinit::Launch { key: any_key(u)?, ticket: TICKET, launch: Box::new(launch) },
        5 | 6 => ToApinit::Resume { key: any_key(u)?, ticket: TICKET, taken: vec![taken] },
        7 => ToApinit::OutputTaken(taken),
        8 => ToApinit::Signal(NumberedSignal { number: u.int_in_range(0..=4)?, signal: 2 }),
        9 => ToApinit::Stdin(StdinPiece {
            offset: u.int_in_range(0..=8)?,
            data: Bytes::from_static(b"in"),
        }),
        10 => ToApinit::StdinEnd(u.int_in_range(0..=8)?),
        11 => {
            let reason = *u.choose(&[
                FrontReason::Gone,
                FrontReason::StdoutClosed,
                FrontReason::Withdrawn { signal: 2 },
            ])?;
            ToApinit::Terminate { reason, kill_after: Duration::from_secs(1) }
        }
        _ => {
            let length = usize::from(u.arbitrary::<u8>()?).min(u.len());
            let wire = pb::ToApinit::decode(u.bytes(length)?).unwrap_or_default();
            ToApinit::try_from(wire).unwrap_or(ToApinit::StdinEnd(0))
        }
    })
}

/// The same of a head.
fn to_peer(u: &mut Unstructured<'_>) -> Result<ToPeer> {
    let launch = Launch { executable: b"/bin/true".to_vec(), pmi: true, ..Launch::default() };
    let taken = OutputTaken { source: u.int_in_range(0..=2)?, offset: u.int_in_range(0..=20)? };
    Ok(match u.int_in_range(0..=12)? {
        0..=4 => ToPeer::Launch { key: any_key(u)?, ticket: TICKET, launch: Box::new(launch) },
        5 | 6 => ToPeer::Resume { key: any_key(u)?, ticket: TICKET, taken: vec![taken] },
        7 => ToPeer::OutputTaken(taken),
        8 => ToPeer::Go,
        9 => ToPeer::BarrierOut(BarrierOut {
            generation: u.int_in_range(0..=4)?,
            piece: u.int_in_range(0..=1)?,
            last: u.arbitrary()?,
            entries: vec![],
        }),
        10 => ToPeer::Signal(NumberedSignal { number: u.int_in_range(0..=4)?, signal: 2 }),
        11 => ToPeer::Terminate { cause: cause(u)?, kill_after: Duration::from_secs(1) },
        _ => {
            let length = usize::from(u.arbitrary::<u8>()?).min(u.len());
            let wire = pb::ToPeer::decode(u.bytes(length)?).unwrap_or_default();
            ToPeer::try_from(wire).unwrap_or(ToPeer::Go)
        }
    })
}

fn from_shepherd(u: &mut Unstructured<'_>) -> Result<FromShepherd> {
    let key = any_key(u)?;
    Ok(match u.int_in_range(0..=13)? {
        0..=4 => FromShepherd::Ready,
        5 | 6 => FromShepherd::Output(output(u)?),
        7 => FromShepherd::Failed(Decisive { at_ns: 5, cause: cause(u)? }),
        8 => FromShepherd::Decisive(Decisive { at_ns: 5, cause: cause(u)? }),
        9 => FromShepherd::BarrierIn(arrival(u)?),
        10 => {
            FromShepherd::StdinCredit(StdinCredit { credit: 5, received: u.int_in_range(0..=5)? })
        }
        11 => FromShepherd::SignalsTaken(u.int_in_range(0..=4)?),
        _ => FromShepherd::Ended(Box::new(HostEnd { key, launched: true, ..HostEnd::default() })),
    })
}

fn from_peer(u: &mut Unstructured<'_>) -> Result<FromPeer> {
    Ok(match u.int_in_range(0..=9)? {
        0..=2 => FromPeer::Accepted,
        3 | 4 => FromPeer::Ready,
        5 => FromPeer::BarrierIn(arrival(u)?),
        6 => FromPeer::Done,
        7 => FromPeer::Output(output(u)?),
        8 => FromPeer::Refused { text: String::new(), cause: None },
        _ => match u.int_in_range(0..=2)? {
            0 => FromPeer::Going,
            1 => FromPeer::SignalsTaken(u.int_in_range(0..=4)?),
            _ => FromPeer::Decisive(Decisive { at_ns: 5, cause: cause(u)? }),
        },
    })
}

fn event(u: &mut Unstructured<'_>) -> Result<Event> {
    let key = any_key(u)?;
    let conn = Conn(u.int_in_range(0..=CONNS)?);
    Ok(match u.int_in_range(0..=30)? {
        0 => Event::Linked(Box::new(welcome(u)?)),
        1 => Event::Unlinked,
        2..=5 => Event::Command(1, Command::Place(Box::new(place(u)?))),
        6 => Event::Command(
            2,
            match u.int_in_range(0..=6)? {
                5 => Command::Adopt,
                6 => Command::Purge { uid: 0 },
                0 => Command::TakeBack { key, number: 1 },
                1 => {
                    let number = *u.choose(&[0, PSCHED_SIGNALS + 1, PSCHED_SIGNALS + 2])?;
                    Command::Signal { key, signal: NumberedSignal { number, signal: 10 } }
                }
                2 => Command::AcknowledgeEnd(key),
                3 => Command::Discard(key),
                _ => {
                    Command::Terminate { key, cause: cause(u)?, kill_after: Duration::from_secs(1) }
                }
            },
        ),
        7..=9 => {
            let uid = *u.choose(&[1000, 1000, 0, 5])?;
            match u.ratio(1, 3)? {
                true => Event::HeadOpened { conn, uid, host: "n1".into() },
                false => Event::FrontOpened {
                    conn,
                    uid,
                    watch: *u.choose(&[Watch::No, Watch::Here, Watch::Elsewhere])?,
                },
            }
        }
        10..=14 => match u.ratio(1, 3)? {
            true => Event::HeadMessage(conn, to_peer(u)?),
            false => Event::FrontMessage(conn, to_apinit(u)?),
        },
        15 => Event::StreamClosed(conn),
        16 => Event::FrontDied(conn),
        17..=19 => Event::ShepherdSpawned(key),
        20..=23 => Event::ShepherdMessage(key, from_shepherd(u)?),
        24 => match u.arbitrary()? {
            true => Event::ShepherdLost { key, text: String::new() },
            false => Event::SpawnFailed { key, text: String::new() },
        },
        25 => Event::PeerMessage(key, u.int_in_range(0..=2)?, from_peer(u)?),
        26 => {
            let index = u.int_in_range(0..=2)?;
            Event::PeerLost { key, index, text: String::new() }
        }
        27 => Event::GroupsEmpty(key),
        28 => match u.int_in_range(0..=5)? {
            0 => Event::Turns(News::GoesOut(key)),
            1 => Event::Turns(News::Held(key, u.arbitrary()?)),
            2 => Event::TakenOut(key, if u.arbitrary()? { Ok(7) } else { Err(String::new()) }),
            3 => Event::Turns(News::ComesIn(key)),
            4 => {
                let hello = Hello { key, launched: true, going: true, ..Hello::default() };
                let back = CameBack { hello, bytes: 7, clock_ns: u.arbitrary()? };
                Event::CameBack(key, Ok(Box::new(back)))
            }
            _ => Event::CameBack(key, Err(String::new())),
        },
        29 => {
            let place = place(u)?;
            let hello =
                Hello { key: place.key, launched: true, going: u.arbitrary()?, ..Hello::default() };
            Event::Found(Box::new(Found {
                place,
                going_ns: None,
                ran_ns: None,
                hello: Some(hello),
                silent: false,
                away: None,
                front: None,
                gone: u.arbitrary()?,
                adopted: u.arbitrary()?,
            }))
        }
        _ => Event::GroupsStuck { key, processes: 1, named: vec![] },
    })
}

/// What an onlooker knows of an application from what comes and goes alone.
#[derive(Default, Debug)]
struct Seen {
    processors: Vec<(Nid, u32)>,
    launched: bool,
    ready: bool,
    went: bool,
    empty: bool,
}

fn seen(place: &PlaceCommand) -> Seen {
    let here = place.places.0.iter().filter(|p| OWN.contains(&p.nid.0));
    let processors = here.flat_map(|p| p.processors.iter().map(move |n| (p.nid, *n))).collect();
    Seen { processors, ..Seen::default() }
}

fn history(u: &mut Unstructured<'_>) -> Result<()> {
    let nids = OWN.iter().map(|n| Nid(*n)).collect();
    let mut agent = Agent::new(
        Me { nids, uid: 0, cpus: vec![0, 1], numa: [].into(), boot_id: "boot".into() },
        None,
    );
    let mut known: BTreeMap<Key, Seen> = BTreeMap::new();
    let mut open: BTreeSet<Conn> = BTreeSet::new();
    let (mut linked, mut now, mut timer) = (false, 0u64, None);
    // Linked to a psched that is not obeyed; it has the node purged.
    let (mut foreign, mut purging) = (false, false);
    while !u.is_empty() {
        now += u64::from(u.arbitrary::<u8>()?) * 50_000_000;
        let event = match timer {
            Some(at) if at <= now => Event::Tick,
            _ => event(u)?,
        };
        // What the shell sees to: numbers of streams, and that what is found is found at first.
        match &event {
            Event::FrontOpened { conn, .. } | Event::HeadOpened { conn, .. }
                if !open.insert(*conn) =>
            {
                continue;
            }
            Event::FrontMessage(conn, _) | Event::HeadMessage(conn, _) if !open.contains(conn) => {
                continue;
            }
            Event::StreamClosed(conn) if !open.remove(conn) => continue,
            Event::Found(found) if known.contains_key(&found.place.key) => continue,
            Event::Found(found) => {
                let launched = Seen { launched: true, ..seen(&found.place) };
                let going = found.hello.as_ref().is_some_and(|hello| hello.going);
                known.insert(found.place.key, Seen { ready: going, went: going, ..launched });
            }
            Event::Command(_, Command::Place(place)) => {
                known.entry(place.key).or_insert_with(|| seen(place));
            }
            Event::ShepherdMessage(key, FromShepherd::Ready) => {
                if let Some(seen) = known.get_mut(key).filter(|seen| seen.launched) {
                    seen.ready = true;
                }
            }
            Event::GroupsEmpty(key) => {
                if let Some(seen) = known.get_mut(key) {
                    seen.empty = true;
                }
            }
            Event::Unlinked => (linked, foreign, purging) = (false, false, false),
            Event::Command(_, Command::Purge { .. }) if foreign => purging = true,
            _ => {}
        }
        let rang = event == Event::Tick;
        for action in agent.apply(now, event) {
            match action {
                Action::SendShepherd(key, ToShepherd::Launch(_)) => {
                    let mine = known[&key].processors.clone();
                    let others = known.iter().filter(|(k, s)| **k != key && s.launched && !s.empty);
                    for (other, seen) in others {
                        let shared = seen.processors.iter().any(|p| mine.contains(p));
                        assert!(!shared, "{key} and {other} share a processor");
                    }
                    let seen = known.get_mut(&key).expect("it is there");
                    assert!(
                        !std::mem::replace(&mut seen.launched, true),
                        "{key} is launched twice"
                    );
                    seen.empty = false;
                }
                Action::SendShepherd(key, ToShepherd::Go) => {
                    let seen = known.get_mut(&key).expect("it is there");
                    assert!(seen.ready && !std::mem::replace(&mut seen.went, true), "{key} goes");
                }
                Action::SendShepherd(key, _) | Action::SendPeers(key, ..) => {
                    assert!(known.contains_key(&key), "{key} is not here");
                }
                Action::SendFront(conn, message) => {
                    assert!(open.contains(&conn), "{message:?} to a closed stream");
                }
                Action::SendHead(conn, message) => {
                    assert!(open.contains(&conn), "{message:?} to a closed stream");
                }
                Action::CloseStream(conn) => drop(open.remove(&conn)),
                Action::Report(report) => {
                    assert!(linked || purging, "{report:?} to nobody");
                    if let Report::Ended(end) = report {
                        assert!(known.contains_key(&end.key));
                    }
                }
                Action::Remember(_) => (linked, foreign, purging) = (true, false, false),
                Action::Foreign(_) => (linked, foreign, purging) = (false, true, false),
                Action::Remove(key) => drop(known.remove(&key)),
                Action::SetTimer(at) => timer = at,
                _ => {}
            }
        }
        let (apps, streams) = agent.held();
        assert!(apps <= KEYS && streams <= CONNS as usize + 1, "{apps} and {streams}");
        assert!(!rang || timer.is_none_or(|at| at > now), "a timer that is due is not used up");
    }
    Ok(())
}
