//! Postings as they come over the wire, to a scheduler on which other things happen too.
//!
//! - A request is malformed, or has one answer, at once.
//! - What can be parsed is the same when it is printed and parsed again.
//! - No processor is held twice in the records that leave, and no more PEs share one than may.

use arbitrary::{Result, Unstructured};
use prost::Message;
use psched::apteam::change::{By, Closed};
use psched::apteam::oversubscribe::Oversubscribe;
use psched::apteam::posting::{Owner, Posting};
use psched::apteam::protocol::node::{Hello, Phase, Report};
use psched::apteam::record::{Apteam, FrontProcess};
use psched::apteam::{Apid, Incarnation, Key, Ticket};
use psched::machine::{Flavor, Flavors, Nid};
use psched::psched::decide::{
    Effect, Event, LinkId, NodesTo, Now, ReplyId, Scheduler, Settings, Turns,
};
use psched::rpc::pb;
use std::collections::BTreeMap;

const NODES: u32 = 3;

pub fn fuzz(data: &[u8]) {
    // An Err: the bytes are used up.
    let _ = history(&mut Unstructured::new(data));
    if let Ok(wire) = pb::PostRequest::decode(data) {
        let _ = parsed(wire);
    }
}

/// As the service takes it.
fn parsed(wire: pb::PostRequest) -> Option<Posting> {
    let posting = Posting::try_from(wire).ok()?;
    let printed = pb::PostRequest::from(posting.clone()).encode_to_vec();
    let again = pb::PostRequest::decode(&printed[..]).expect("what was printed");
    assert_eq!(Posting::try_from(again).as_ref(), Ok(&posting));
    Some(posting)
}

fn number(u: &mut Unstructured<'_>) -> Result<u32> {
    Ok(*u.choose(&[0, 1, 1, 2, 2, 3, 4, 6, 7, 1000, u32::MAX / 2, u32::MAX])?)
}

fn ranges(u: &mut Unstructured<'_>) -> Result<Vec<pb::NidRange>> {
    if !u.ratio(1, 4)? {
        return Ok(Vec::new());
    }
    Ok(vec![pb::NidRange { first: number(u)?, last: number(u)? }])
}

fn posting(u: &mut Unstructured<'_>) -> Result<Option<Posting>> {
    if u.ratio(1, 8)? {
        let length = usize::from(u.arbitrary::<u8>()?).min(u.len());
        return Ok(pb::PostRequest::decode(u.bytes(length)?).ok().and_then(parsed));
    }
    let shape = pb::Shape { width: number(u)?, depth: number(u)?, per_node: number(u)? };
    let wire = pb::PostRequest {
        request_id: vec![u.int_in_range(0..=20)?; *u.choose(&[16, 16, 16, 15])?].into(),
        shape: Some(shape),
        memory_per_pe: *u.choose(&[0, 0, 1, 1 << 20, 1 << 62, u64::MAX])?,
        command: "a.out".into(),
        cpu_limit_ms: *u.choose(&[0, 0, 1, u64::MAX])?,
        time_limit_ms: *u.choose(&[0, 0, 1, u64::MAX])?,
        immediate: u.arbitrary()?,
        exclusive: u.arbitrary()?,
        executable: Some(pb::Executable::default()),
        again: u.arbitrary()?,
        account: (*u.choose(&["", "", "climate", "two words"])?).into(),
        saving: match u.int_in_range(0..=4)? {
            0 => Some(pb::Saving { by: Some(pb::saving::By::Signal(u.int_in_range(-1..=66)?)) }),
            1 => Some(pb::Saving {
                by: Some(pb::saving::By::Command(
                    (*u.choose(&["", " ", "./save", "a\0b"])?).into(),
                )),
            }),
            2 => Some(pb::Saving { by: None }),
            _ => None,
        },
        only: ranges(u)?,
        not: ranges(u)?,
        downwards: u.arbitrary()?,
        flexible: u.arbitrary()?,
        layout: match u.ratio(1, 8)? {
            true => vec![pb::LayoutRow { nodes: number(u)?, pes: number(u)?, depth: number(u)? }],
            false => Vec::new(),
        },
        restart: Default::default(),
        signal: u.arbitrary()?,
        tries_again: u.arbitrary()?,
        brings_images: u.arbitrary()?,
        oversubscribe: u.arbitrary()?,
        shared_processors: number(u)?,
        shared_per_node: number(u)?,
    };
    Ok(parsed(wire))
}

fn history(u: &mut Unstructured<'_>) -> Result<()> {
    let max_resident = u.int_in_range(1..=3)?;
    let turns = Turns { max_resident, ..Turns::default() };
    let settings = Settings { postings_max: 8, postings_user_max: 5, turns, ..Settings::default() };
    let mut scheduler = Scheduler::new(psched::config::embedded(NODES, 2).machine, settings);
    let mut records: BTreeMap<Apid, Apteam> = BTreeMap::new();
    let (mut seconds, mut replies) = (1u64, 0u64);
    while !u.is_empty() {
        seconds += u64::from(u.arbitrary::<u8>()?) / 8;
        let apid = Apid(u.int_in_range(1..=8)?);
        let link = LinkId(u.int_in_range(1..=3)?);
        replies += 1;
        let reply = ReplyId(replies);
        let uid = *u.choose(&[0, 1000, 1001])?;
        let key =
            records.get(&apid).map_or(Key { apid, incarnation: Incarnation(1) }, |team| team.key());
        let event = match u.int_in_range(0..=18)? {
            0..=5 => {
                let Some(posting) = posting(u)? else { continue };
                let owner = Owner {
                    uid,
                    gid: uid,
                    groups: vec![],
                    name: "somebody".into(),
                    terminal: false,
                };
                Event::Posted {
                    reply,
                    posting: Box::new(posting),
                    owner,
                    front: FrontProcess::here(4000, 1),
                    secret: Ticket([replies as u8; 16]),
                }
            }
            6 => Event::Looked { reply, apid },
            7 => Event::FrontGone { apid },
            8 => {
                let (signal, administrator) = (*u.choose(&[0, 2, 9, 10, 64])?, u.arbitrary()?);
                Event::Kill { reply, apids: vec![apid], signal, uid, administrator }
            }
            9 | 10 => {
                let nids = *u.choose(&[&[0, 1, 2][..], &[0], &[1, 2], &[7]])?;
                Event::LinkOpened {
                    link,
                    hello: Box::new(Hello {
                        protocol: u.choose(&[1, 1, 1, 2]).copied()?,
                        socket: "/run/apinit.sock".into(),
                        hostname: "h".into(),
                        boot_id: u.choose(&["boot-1", "boot-1", "boot-2"])?.to_string(),
                        nids: nids.iter().map(|n| Nid(*n)).collect(),
                        cpus: vec![0, 1],
                        ..Hello::default()
                    }),
                }
            }
            11 => {
                let phases = [Phase::Placed, Phase::Launched, Phase::Running, Phase::Ended];
                let items = match u.arbitrary()? {
                    true => vec![],
                    false => vec![(key, *u.choose(&phases)?)],
                };
                Event::Inventory { link, items }
            }
            12 => Event::LinkClosed { link },
            13 | 14 => {
                let report = match u.int_in_range(0..=3)? {
                    0 => Report::Launched(key),
                    1 => Report::Running(key),
                    2 => Report::TakenBack { key, number: u.int_in_range(0..=3)? },
                    _ => {
                        let nids = (0..NODES).map(Nid).collect();
                        let end =
                            psched::apteam::ending::HostEnd { key, nids, ..Default::default() };
                        Report::Ended(Box::new(end))
                    }
                };
                Event::Report { link, report: Box::new(report) }
            }
            15 => {
                let nids = *u.choose(&[&[0, 1, 2][..], &[0], &[1, 2], &[0, 7], &[]])?;
                let nids = nids.iter().map(|n| Nid(*n)).collect();
                let down = NodesTo::Close(Closed::Down);
                let to = *u.choose(&[NodesTo::Close(Closed::Drained), down, NodesTo::Resume])?;
                Event::Nodes { reply, to, nids, reason: "so".into(), by: By::default() }
            }
            16 => {
                Event::Hold { reply, apids: [apid].into(), hold: u.arbitrary()?, by: By::default() }
            }
            17 => {
                let nids = *u.choose(&[&[0, 1, 2][..], &[0], &[1, 2], &[0, 7], &[]])?;
                let nids = nids.iter().map(|n| Nid(*n)).collect();
                let some = [Flavor::Su, Flavor::Os, Flavor::Ap];
                let some: Flavors = some.into_iter().take(u.int_in_range(0..=3)?).collect();
                let to = *u.choose(&[None, Some(some), Some(Flavors::all())])?;
                Event::Flavors { reply, nids, to, by: By::default() }
            }
            _ => Event::Tick,
        };
        let asked = matches!(
            event,
            Event::Posted { .. }
                | Event::Looked { .. }
                | Event::Kill { .. }
                | Event::Nodes { .. }
                | Event::Flavors { .. }
                | Event::Hold { .. }
        );
        let now = Now { mono_ns: seconds * 1_000_000_000, wall_ns: seconds * 1_000_000_000 };
        let mut answers = 0;
        for effect in scheduler.apply(now, event) {
            match effect {
                Effect::Accept { reply: to, .. }
                | Effect::Refuse { reply: to, .. }
                | Effect::Look { reply: to, .. }
                | Effect::Killed { reply: to, .. }
                | Effect::Managed { reply: to, .. } => {
                    assert_eq!(to, reply, "an answer to somebody else");
                    answers += 1;
                }
                Effect::Keep(record) => {
                    if let Some(team) = record.team() {
                        records.insert(team.apid, team.clone());
                    }
                }
                _ => {}
            }
        }
        assert_eq!(answers, u32::from(asked), "answers");
        let mut held: BTreeMap<_, u32> = BTreeMap::new();
        for team in records.values().filter(|team| team.state.holds_processors()) {
            // (No more than the variable oversubscribe_max says share one.)
            let most = match team.posting.oversubscribe {
                Oversubscribe::Shares(_) => 64,
                Oversubscribe::No | Oversubscribe::Allowed => 1,
            };
            for place in team.places.0.iter() {
                assert!(place.nid.0 < NODES && place.pes <= most * place.processors.len() as u32);
                for processor in &place.processors {
                    assert!(*processor < 2, "a processor that is not there");
                    let residents = held.entry((place.nid, *processor)).or_default();
                    *residents += 1;
                    assert!(*residents <= max_resident, "{residents} on a processor");
                }
            }
        }
    }
    Ok(())
}
