//! The agent by examples, with the exact actions of each step; and thrown at with random
//! events in [`random`].

mod binding;
mod bounds;
mod deaths;
mod dumps;
mod ends;
mod foreign;
mod lives;
mod memory_out;
mod moves;
mod programs;
mod psched;
mod random;
mod restores;
mod silent_peers;
mod spread;
mod turns;
mod versions;

use super::application::App;
use super::*;
use crate::apshepherd::decide::mapping::mapping_of;
use crate::apteam::Key;
use crate::apteam::bounds::Bounds;
use crate::apteam::ending::{Cause, Decisive, HostEnd};
use crate::apteam::launch::HostLaunch;
use crate::apteam::launch::{Launch, LocalPe};
use crate::apteam::part::{Part, RankMap};
use crate::apteam::place::HostPart;
use crate::apteam::place::{Place, PlacementList};
use crate::apteam::posting::Owner;
use crate::apteam::protocol::attach::{FromApinit, ToApinit};
use crate::apteam::protocol::attach::{
    FrontReason, NumberedSignal, Output, OutputTaken, PSCHED_SIGNALS, StdinCredit, StdinPiece,
};
use crate::apteam::protocol::node::{Command, NodeSpec, Phase, PlaceCommand, Report, Welcome};
use crate::apteam::protocol::node::{Start, Yields};
use crate::apteam::protocol::notice::Notice;
use crate::apteam::protocol::peers::{FromPeer, ToPeer};
use crate::apteam::protocol::shepherd::{FromShepherd, Hello, ToShepherd};
use crate::apteam::protocol::turns::SlicePlan;
use crate::apteam::shape::Shape;
use crate::apteam::{Apid, Incarnation, Ticket};
use crate::machine::Nid;
use crate::variables::Isolation;
use bytes::Bytes;
use std::time::Duration;

const S: u64 = 1_000_000_000;
const OWNER: u32 = 1000;
pub(in crate::apinit) const TICKET: Ticket = Ticket([7; 16]);
const GRACE: Duration = Duration::from_secs(5);
/// Another than the default, lest nobody look at it.
const FRONT_GRACE: Duration = Duration::from_secs(3);
const FRONT: Conn = Conn(1);

/// How it ended.
fn end_of(actions: &[Action]) -> &HostEnd {
    let told = actions.iter().find_map(|action| match action {
        Action::Report(Report::Ended(end)) => Some(&**end),
        _ => None,
    });
    told.expect("its end is told")
}

pub(in crate::apinit) fn key(apid: u64, incarnation: u32) -> Key {
    Key { apid: Apid(apid), incarnation: Incarnation(incarnation) }
}

fn welcome() -> Welcome {
    let node = |nid: u32| NodeSpec {
        nid: Nid(nid),
        processors: 2,
        cpus: vec![],
        first_processor: nid * 2,
        memory: 1 << 30,
    };
    Welcome {
        store_id: "0123456789abcdef".into(),
        epoch: 3,
        nodes: (0..4).map(node).collect(),
        kill_grace: GRACE,
        mono_ns: 0,
        boot_id: "boot".into(),
        next_apid: 100,
        starts: [(2, "two"), (3, "three")]
            .map(|(epoch, id)| Start { epoch, id: id.into(), commits: 0 })
            .into(),
        ..Welcome::default()
    }
}

/// An apinit of these nodes, run by root.
fn apinit(nids: &[u32]) -> Agent {
    let nids = nids.iter().map(|n| Nid(*n)).collect();
    Agent::new(
        Me { nids, uid: 0, cpus: vec![0, 1, 2, 3], numa: [].into(), boot_id: "boot".into() },
        None,
    )
}

pub(in crate::apinit) fn linked(nids: &[u32]) -> Agent {
    let mut agent = apinit(nids);
    agent.apply(0, Event::Linked(Box::new(welcome())));
    agent
}

/// The part of one of its apinits.
pub(in crate::apinit) fn own(place: PlaceCommand, index: u32) -> PlaceCommand {
    place.part_of(index).expect("it has a part")
}

/// One PE on each processor of the given nodes; each inner list is the nodes of one apinit.
pub(in crate::apinit) fn place(key: Key, hosts: &[&[u32]]) -> PlaceCommand {
    let nids: Vec<u32> = hosts.concat();
    let place = |nid: &u32| Place { nid: Nid(*nid), processors: vec![0, 1], pes: 2 };
    let part = |nids: &&[u32]| HostPart {
        nids: nids.iter().map(|n| Nid(*n)).collect(),
        socket: format!("/run/apinit-{}.sock", nids[0]),
        host_id: format!("host{}", nids[0]),
        ..HostPart::default()
    };
    let places = PlacementList(nids.iter().map(place).collect());
    let hosts: Vec<HostPart> = hosts.iter().map(part).collect();
    let map = RankMap::of(&places, &hosts);
    let process_mapping = mapping_of(&map, &hosts, true);
    PlaceCommand {
        part: Part { index: None, map, process_mapping },
        key,
        owner: Owner {
            uid: OWNER,
            gid: OWNER,
            groups: vec![],
            name: "ann".into(),
            terminal: false,
        },
        shape: Shape { width: nids.len() as u32 * 2, depth: 1, per_node: None },
        places,
        hosts: hosts.into(),
        ticket: TICKET,
        ticket_left: Duration::from_secs(60),
        cpu_limit: None,
        time_limit: None,
        kill_grace: GRACE,
        memory_per_pe: None,
        pids_max: None,
        front_kill_grace: FRONT_GRACE,
        bounds: Bounds::default(),
        isolation: Isolation::Auto,
        user_bus: false,
        fan_out: 0,
        request_id: [key.apid.0 as u8; 16],
        command: "a.out".into(),
        shares: false,
        exclusive: false,
        account: None,
        yields: Yields::default(),
        moved: Default::default(),
        restart: None,
    }
}

/// One on NIDs 0 and 1 whose PEs go since the first second, as the next life of its apinit finds it.
fn found_at_work(key: Key) -> Found {
    Found {
        place: place(key, &[&[0, 1]]),
        going_ns: Some(S),
        ran_ns: None,
        hello: Some(Hello { key, launched: true, going: true, ..Hello::default() }),
        silent: false,
        away: None,
        front: None,
        gone: false,
        adopted: false,
    }
}

pub(in crate::apinit) fn placed(place: PlaceCommand) -> Event {
    Event::Command(1, Command::Place(Box::new(place)))
}

pub(in crate::apinit) fn program() -> Box<Launch> {
    Box::new(Launch { executable: b"/bin/true".to_vec(), pmi: true, ..Launch::default() })
}

fn launch(conn: Conn, key: Key) -> Event {
    Event::FrontMessage(conn, ToApinit::Launch { key, ticket: TICKET, launch: program() })
}

fn resume(conn: Conn, key: Key, taken: &[(u32, u64)]) -> Event {
    let taken =
        taken.iter().map(|(source, offset)| OutputTaken { source: *source, offset: *offset });
    let taken = taken.collect();
    Event::FrontMessage(conn, ToApinit::Resume { key, ticket: TICKET, taken })
}

/// The same of a head, which is another apinit.
fn head_launch(conn: Conn, key: Key) -> Event {
    Event::HeadMessage(conn, ToPeer::Launch { key, ticket: TICKET, launch: program() })
}

fn head_resume(conn: Conn, key: Key, taken: &[(u32, u64)]) -> Event {
    let taken =
        taken.iter().map(|(source, offset)| OutputTaken { source: *source, offset: *offset });
    let taken = taken.collect();
    Event::HeadMessage(conn, ToPeer::Resume { key, ticket: TICKET, taken })
}

fn head_opened(conn: Conn) -> Event {
    Event::HeadOpened { conn, uid: 0, host: "n1".into() }
}

fn head_refused(conn: Conn, text: &str) -> Vec<Action> {
    vec![
        Action::SendHead(conn, FromPeer::Refused { text: text.into(), cause: None }),
        Action::CloseStream(conn),
    ]
}

fn head_not_now(conn: Conn, text: &str) -> Vec<Action> {
    vec![Action::SendHead(conn, FromPeer::NotNow(text.into())), Action::CloseStream(conn)]
}

fn opened(conn: Conn, uid: u32) -> Event {
    Event::FrontOpened { conn, uid, watch: Watch::Here }
}

fn numbered(number: u64, signal: i32) -> NumberedSignal {
    NumberedSignal { number, signal }
}

fn piece(offset: u64, text: &'static str) -> StdinPiece {
    StdinPiece { offset, data: Bytes::from_static(text.as_bytes()) }
}

fn credit(credit: u64, received: u64) -> StdinCredit {
    StdinCredit { credit, received }
}

fn output(offset: u64, text: &'static str) -> Output {
    Output {
        source: 0,
        offset,
        rank: 1,
        nid: Nid(0),
        stderr: false,
        data: Bytes::from_static(text.as_bytes()),
        report: None,
    }
}

fn from_shepherd(key: Key, message: FromShepherd) -> Event {
    Event::ShepherdMessage(key, message)
}

/// The end that a shepherd tells: it leaves the nodes to its apinit.
fn end(key: Key) -> HostEnd {
    HostEnd { key, launched: true, run: Duration::from_secs(1), ..HostEnd::default() }
}

fn ended(key: Key) -> Event {
    from_shepherd(key, FromShepherd::Ended(Box::new(end(key))))
}

fn reported(end: HostEnd, nids: &[u32]) -> Action {
    let nids = nids.iter().map(|n| Nid(*n)).collect();
    Action::Report(Report::Ended(Box::new(HostEnd { nids, ..end })))
}

fn to_front(message: FromApinit) -> Action {
    Action::SendFront(FRONT, message)
}

fn refused(conn: Conn, text: &str) -> Vec<Action> {
    vec![
        Action::SendFront(conn, FromApinit::Refused { text: text.into(), cause: None }),
        Action::CloseStream(conn),
    ]
}

fn not_now(conn: Conn, text: &str) -> Vec<Action> {
    vec![Action::SendFront(conn, FromApinit::NotNow(text.into())), Action::CloseStream(conn)]
}

/// Applies it; processes are found to be where they belong.
fn all_well(agent: &mut Agent, now: u64, event: Event) -> Vec<Action> {
    let mut all = Vec::new();
    for action in agent.apply(now, event) {
        match action {
            Action::VerifyPlaces { key, .. } => {
                all.extend(agent.apply(now, Event::PlacesVerified(key, Ok(()))));
            }
            other => all.push(other),
        }
    }
    all
}

/// Without the timer: what is due when is tested by letting time go by. And without the comings and
/// goings that the switcher is told: [`turns`] has those.
fn act(agent: &mut Agent, now: u64, event: Event) -> Vec<Action> {
    let mut actions = all_well(agent, now, event);
    let left_out = |action: &Action| {
        use switcher::Event::{Comes, Goes};
        matches!(action, Action::SetTimer(_) | Action::Turns(Comes { .. } | Goes(_)))
    };
    actions.retain(|action| !left_out(action));
    actions
}

/// Applies all and forgets what came of it.
fn go_through(agent: &mut Agent, now: u64, events: impl IntoIterator<Item = Event>) {
    for event in events {
        all_well(agent, now, event);
    }
}

/// An agent with `12.1` on the nodes 0 and 1 at that stage.
fn with_placed() -> (Agent, Key) {
    let mut agent = linked(&[0, 1]);
    let key = key(12, 1);
    go_through(&mut agent, 0, [placed(place(key, &[&[0, 1]])), Event::ShepherdSpawned(key)]);
    (agent, key)
}

fn with_launched() -> (Agent, Key) {
    let (mut agent, key) = with_placed();
    go_through(&mut agent, S, [opened(FRONT, OWNER), launch(FRONT, key)]);
    (agent, key)
}

fn with_running() -> (Agent, Key) {
    let (mut agent, key) = with_launched();
    go_through(&mut agent, 2 * S, [from_shepherd(key, FromShepherd::Ready)]);
    (agent, key)
}
