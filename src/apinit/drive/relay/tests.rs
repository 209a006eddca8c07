//! Streams of heads that lead on: what a host on the way believes.

use super::*;
use crate::apinit::decide::switcher::{Event as TurnEvent, Ran};
use crate::apinit::decide::tests::{TICKET, key, linked, own, place, placed, program};
use crate::apinit::decide::{Action, Agent};
use crate::apinit::drive::{Heard, Record, Said, Work};
use crate::apteam::Ticket;
use crate::apteam::place::HostAddress;
use crate::apteam::protocol::attach::{FromApinit, Output};
use crate::apteam::protocol::node::{PlaceCommand, Welcome};
use crate::apteam::protocol::programs::WantedProgram;
use crate::apteam::protocol::shepherd::ToShepherd;
use crate::apteam::protocol::turns::Switches;
use crate::machine::Nid;
use std::time::Duration;

/// What is done to other apinits.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::apinit::drive) enum Did {
    Opened(Key, u32),
    Told(Key, u32, ToPeer),
    ClosedPeer(Key, u32),
    Head(Conn, FromPeer),
    Closed(Conn),
}

/// A host on which all is well, and what is done there.
#[derive(Default)]
pub(in crate::apinit::drive) struct Host {
    did: Vec<Did>,
    /// What apshepherds were told.
    pub said: Vec<ToShepherd>,
    warned: Vec<String>,
    /// Bytes of output that might wait for the head that was told something last.
    room: u64,
}

impl Outside for Host {
    fn now_ns(&self) -> u64 {
        0
    }
    fn happened(&mut self) -> Vec<Heard> {
        Vec::new()
    }
    fn hears(&mut self, _: &Event) {}
    fn does(&mut self, _: &Agent, _: &Action) {}
    fn keep(&mut self, _: Record) -> Result<(), String> {
        Ok(())
    }
    fn obey(&mut self, _: &Agent, _: Welcome) {}
    fn make_folder(&mut self, _: &Agent, _: &PlaceCommand, _: &[Nid]) -> Result<(), String> {
        Ok(())
    }
    fn make_groups(&mut self, _: &Agent, _: &PlaceCommand, _: &[Nid]) -> Result<(), String> {
        Ok(())
    }
    fn start_shepherd(&mut self, _: &PlaceCommand) -> Result<(), String> {
        Ok(())
    }
    fn verify_places(&mut self, _: Key, _: &[(Nid, u32)]) -> Option<Result<(), String>> {
        Some(Ok(()))
    }
    fn yields(&mut self, _: Key, _: &[Nid], _: u32) {}
    fn kill(&mut self, _: Key, _: bool) {}
    fn drop_images(&mut self, _: Key) {}
    fn is_empty(&self, _: Key) -> bool {
        true
    }
    fn used(&self, _: Key) -> Option<(Duration, Duration)> {
        None
    }
    fn begin(&mut self, _: &Agent, _: Work) {}
    fn tell_shepherd(&mut self, _: Key, message: ToShepherd) -> bool {
        self.said.push(message);
        true
    }
    fn hang_up_shepherd(&mut self, _: Key) -> bool {
        false
    }
    fn fate(&mut self, _: Key, text: String) -> String {
        text
    }
    fn tell_front(&mut self, _: Conn, _: FromApinit, _: u64) -> bool {
        true
    }
    fn tell_head(&mut self, conn: Conn, message: FromPeer, room: u64) -> bool {
        self.did.push(Did::Head(conn, message));
        self.room = room;
        true
    }
    fn close_stream(&mut self, conn: Conn) {
        self.did.push(Did::Closed(conn));
    }
    fn open_peer(&mut self, key: Key, index: u32, _: u64, _: HostAddress, _: u64) {
        self.did.push(Did::Opened(key, index));
    }
    fn tell_peer(&mut self, key: Key, index: u32, message: ToPeer) {
        self.did.push(Did::Told(key, index, message));
    }
    fn close_peer(&mut self, key: Key, index: u32) {
        self.did.push(Did::ClosedPeer(key, index));
    }
    fn take_program(&mut self, _: Key, _: WantedProgram, _: Vec<HostAddress>, _: (u32, Ticket)) {}
    fn tell_psched(&mut self, _: Said) {}
    fn answer_dump(&mut self, _: u64, _: Option<String>) {}
    fn set_timer(&mut self, _: Option<u64>) {}
    fn turns(&mut self, _: TurnEvent) {}
    fn is_away(&mut self, _: Key) {}
    fn ran(&self, _: Key) -> Option<Ran> {
        None
    }
    fn had(&mut self, _: bool) -> Option<Switches> {
        None
    }
    fn warn(&mut self, _: Key, text: &str) {
        self.warned.push(text.into());
    }
}

/// The apinit of node 1, with its host.
pub(in crate::apinit::drive) struct Apinit {
    pub driver: Driver,
    pub host: Host,
}

const CONN: Conn = Conn(7);

impl Apinit {
    pub fn new() -> Apinit {
        Apinit { driver: Driver::new(linked(&[1])), host: Host::default() }
    }

    /// What is done to other apinits when this happens.
    fn hears(&mut self, event: Event) -> Vec<Did> {
        self.driver.hears(&mut self.host, Heard::Happens(event));
        std::mem::take(&mut self.host.did)
    }

    fn head_says(&mut self, conn: Conn, message: ToPeer) -> Vec<Did> {
        self.hears(Event::HeadMessage(conn, message))
    }

    /// A head has opened a stream from that host.
    fn opened(&mut self, conn: Conn, host: &str) {
        assert_eq!(self.hears(Event::HeadOpened { conn, uid: 0, host: host.into() }), []);
    }

    /// An application of five hosts, of which the second is this one.
    pub fn placed(&mut self, key: Key) -> Vec<Did> {
        let place = place(key, &[&[0], &[1], &[2], &[3], &[4]]);
        self.hears(placed(own(place, 1)))
    }
}

fn onward(index: u32) -> Onward {
    Onward { index, at: HostAddress { socket: format!("/run/{index}"), ..HostAddress::default() } }
}

fn lead(key: Key, hosts: impl IntoIterator<Item = u32>) -> ToPeer {
    ToPeer::Lead { key, index: 1, fan_out: 2, hosts: hosts.into_iter().map(onward).collect() }
}

fn launch(key: Key, ticket: Ticket) -> ToPeer {
    ToPeer::Launch { key, ticket, launch: program() }
}

fn pass(to: &[u32], message: ToPeer) -> ToPeer {
    ToPeer::Pass(Box::new(Pass { to: Indices::of(to.iter().copied()), message }))
}

/// It was closed, and nothing was done to any other apinit.
fn is_closed(did: &[Did], conn: Conn) -> bool {
    let closed = did.contains(&Did::Closed(conn));
    closed && did.iter().all(|did| matches!(did, Did::Head(to, _) | Did::Closed(to) if *to == conn))
}

/// What hosts 2 to 4 are told once this one leads on.
fn led(key: Key) -> Vec<Did> {
    let told = || launch(key, TICKET);
    vec![
        Did::Opened(key, 2),
        Did::Told(key, 2, lead_beyond(key)),
        Did::Opened(key, 4),
        Did::Told(key, 2, pass(&[2, 3], told())),
        Did::Told(key, 4, told()),
    ]
}

fn lead_beyond(key: Key) -> ToPeer {
    ToPeer::Lead { key, index: 2, fan_out: 2, hosts: vec![onward(3)] }
}

#[test]
fn a_stream_leads_on_once_its_ticket_is_shown() {
    let key = key(12, 1);
    let mut apinit = Apinit::new();
    apinit.placed(key);
    apinit.opened(CONN, "n0");
    assert_eq!(apinit.head_says(CONN, lead(key, 2..5)), []);
    let did = apinit.head_says(CONN, pass(&[1, 2, 3, 4], launch(key, TICKET)));
    assert_eq!(did[0], Did::Head(CONN, FromPeer::Accepted));
    assert_eq!(did[1..], led(key));
    // From now on nothing is kept.
    let did = apinit.head_says(CONN, pass(&[4], ToPeer::Go));
    assert_eq!(did, [Did::Told(key, 4, ToPeer::Go)]);
}

/// The head had its placement first, and was launched.
#[test]
fn what_is_for_hosts_beyond_waits_with_the_launch() {
    let key = key(12, 1);
    let mut apinit = Apinit::new();
    apinit.opened(CONN, "n0");
    assert_eq!(apinit.head_says(CONN, lead(key, 2..5)), []);
    assert_eq!(apinit.head_says(CONN, pass(&[1, 2, 3, 4], launch(key, TICKET))), []);
    let did = apinit.placed(key);
    assert_eq!(did[0], Did::Head(CONN, FromPeer::Accepted));
    assert_eq!(did[1..], led(key));
}

#[test]
fn without_its_ticket_nobody_is_led_anywhere() {
    let key = key(12, 1);
    let mut apinit = Apinit::new();
    apinit.placed(key);
    apinit.opened(CONN, "n0");
    assert_eq!(apinit.head_says(CONN, lead(key, 2..5)), []);
    // What is for others only shows nothing to this one.
    assert_eq!(apinit.head_says(CONN, pass(&[2, 3, 4], launch(key, TICKET))), []);
    let did = apinit.head_says(CONN, pass(&[1], launch(key, Ticket([8; 16]))));
    assert!(is_closed(&did, CONN), "{did:?}");
    assert_eq!(apinit.head_says(CONN, pass(&[2], ToPeer::Go)), []);
    // Nor is somebody whose stream is closed before.
    apinit.opened(Conn(8), "n0");
    apinit.head_says(Conn(8), lead(key, 2..5));
    assert_eq!(apinit.hears(Event::StreamClosed(Conn(8))), [Did::Closed(Conn(8))]);
    assert_eq!(apinit.head_says(Conn(8), pass(&[1], launch(key, TICKET))), []);
}

/// A host of one application takes over no streams of another one.
#[test]
fn a_lead_for_another_application_changes_nothing_there() {
    let (his, other) = (key(12, 1), key(13, 1));
    let mut apinit = Apinit::new();
    apinit.placed(his);
    apinit.opened(CONN, "n0");
    apinit.head_says(CONN, lead(his, 2..5));
    apinit.head_says(CONN, pass(&[1, 2, 3, 4], launch(his, TICKET)));

    apinit.hears(placed(own(place(other, &[&[0], &[1]]), 1)));
    let thief = Conn(8);
    apinit.opened(thief, "n9");
    assert_eq!(apinit.head_says(thief, lead(his, 2..5)), []);
    let did = apinit.head_says(thief, pass(&[1], launch(other, TICKET)));
    assert!(is_closed(&did, thief), "{did:?}");
    let warned = "a stream of the host n9 is closed: it shows the ticket of application 13.1";
    assert_eq!(apinit.host.warned, [warned]);
    // The streams are whose they were.
    let did = apinit.head_says(CONN, pass(&[4], ToPeer::Go));
    assert_eq!(did, [Did::Told(his, 4, ToPeer::Go)]);
}

#[test]
fn a_lead_names_hosts_of_its_application_and_not_too_many_at_once() {
    let key = key(12, 1);
    let with = |fan_out: u32| ToPeer::Lead { key, index: 1, fan_out, hosts: vec![onward(2)] };
    let elsewhere = ToPeer::Lead { key, index: 2, fan_out: 2, hosts: vec![onward(3)] };
    let wrong = [
        lead(key, [2, 5]),
        lead(key, [1, 2]),
        lead(key, [3, 2]),
        lead(key, [2, 2]),
        elsewhere,
        with(0),
        with(FAN_OUT_MAX + 1),
    ];
    for (n, lead) in wrong.into_iter().enumerate() {
        let conn = Conn(n as u64);
        let mut apinit = Apinit::new();
        apinit.placed(key);
        apinit.opened(conn, "n0");
        let mut did = apinit.head_says(conn, lead);
        did.extend(apinit.head_says(conn, launch(key, TICKET)));
        did.retain(|did| *did != Did::Head(conn, FromPeer::Accepted));
        assert!(is_closed(&did, conn), "{n}: {did:?}");
        assert_eq!(apinit.host.warned.len(), 1, "{n}");
    }
}

/// A million of them would take minutes, and all of the memory.
#[test]
fn what_a_host_has_said_before_its_ticket_is_bounded() {
    let mut apinit = Apinit::new();
    apinit.opened(CONN, "n9");
    let many = lead(key(12, 1), (2..).take(LEAD_HOSTS_MAX + 1));
    assert!(is_closed(&apinit.head_says(CONN, many), CONN));

    // Several streams of one host count together.
    let hosts = lead(key(12, 1), 2..100_000);
    let mut conns = (8..).map(Conn);
    let refused = conns.by_ref().take(8).find(|conn| {
        apinit.opened(*conn, "n9");
        is_closed(&apinit.head_says(*conn, hosts.clone()), *conn)
    });
    assert!(refused.is_some_and(|conn| conn > Conn(8)), "{refused:?}");
    // Another host's are kept.
    let other = Conn(50);
    apinit.opened(other, "n0");
    assert_eq!(apinit.head_says(other, hosts), []);

    // So is what is to be passed on.
    let go = pass(&[2], ToPeer::Go);
    assert!(is_closed(&apinit.head_says(other, go), other), "nobody goes before its launch");
    apinit.opened(other, "n0");
    assert_eq!(apinit.head_says(other, lead(key(12, 1), [2])), []);
    let signal = ToPeer::OutputTaken(OutputTaken { source: 2, offset: 1 });
    let messages = std::iter::repeat_n(pass(&[2], signal), HELD_MAX + 3);
    let did: Vec<Did> = messages.flat_map(|pass| apinit.head_says(other, pass)).collect();
    assert!(is_closed(&did, other), "{did:?}");
}

/// A head that acknowledges what it does not read is hung up on: what may wait for it is bounded.
#[test]
fn output_of_all_hosts_beyond_may_wait_for_a_head() {
    let key = key(12, 1);
    let mut apinit = Apinit::new();
    apinit.placed(key);
    apinit.opened(CONN, "n0");
    apinit.head_says(CONN, lead(key, 2..5));
    apinit.head_says(CONN, pass(&[1, 2, 3, 4], launch(key, TICKET)));
    assert_eq!(apinit.host.room, u64::MAX, "no output");
    let output = Output {
        source: 2,
        offset: 0,
        rank: 4,
        nid: Nid(2),
        stderr: false,
        data: "x".into(),
        report: None,
    };
    // (The streams to hosts 2 and 4 are the first.)
    let said = Heard::PeerSaid(key, 2, 1, FromPeer::Output(output));
    apinit.driver.hears(&mut apinit.host, said);
    assert!(matches!(apinit.host.did.last(), Some(Did::Head(CONN, FromPeer::Beyond(_)))));
    assert_eq!(apinit.host.room, 4 * apinit.driver.agent().output_room_of_host(key));
    assert!(apinit.host.room < 1 << 30, "{}", apinit.host.room);
}
