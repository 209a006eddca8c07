//! Copies of programs: who is asked for them, and what comes of it.

use super::*;
use crate::apteam::launch::{FileIdentity, Part};
use crate::apteam::place::HostAddress;
use crate::apteam::protocol::programs::{GivenProgram, ProgramOf, WantedProgram};

const HEADS: Conn = Conn(50);

fn wanted(part: u32) -> WantedProgram {
    WantedProgram { part, size: 9, name: b"a.out".to_vec() }
}

fn here(part: u32) -> GivenProgram {
    let identity = Some(FileIdentity::default());
    GivenProgram { part, path: b"/copy".to_vec(), identity, ..GivenProgram::default() }
}

fn wants(key: Key, parts: &[u32]) -> Event {
    let programs = parts.iter().map(|part| wanted(*part)).collect();
    from_shepherd(key, FromShepherd::ProgramsWanted { programs })
}

fn takes(key: Key, part: u32, from: &[HostAddress]) -> Action {
    Action::TakeProgram { key, program: wanted(part), from: from.to_vec() }
}

fn given(key: Key, programs: &[GivenProgram]) -> Action {
    Action::SendShepherd(key, ToShepherd::Programs { programs: programs.to_vec() })
}

fn asks(part: u32) -> Action {
    Action::SendFront(FRONT, FromApinit::ProgramWanted(part))
}

/// A launch of three programs, of which hosts may have copies.
fn allowing() -> Box<Launch> {
    let identity = Some(FileIdentity { size: 9, ..FileIdentity::default() });
    let executable = b"bin/a.out".to_vec();
    let part = |first| Part { first, executable: executable.clone(), identity, ..Part::default() };
    let (more, executable) = (vec![part(1), part(2)], executable.clone());
    Box::new(Launch { copies: true, executable, identity, more, ..*program() })
}

fn at(nid: u32) -> HostAddress {
    HostAddress { socket: format!("/run/apinit-{nid}.sock"), ..HostAddress::default() }
}

/// The head of one on seven hosts, which has its launch.
fn head() -> (Agent, Key, Vec<Action>) {
    let (mut agent, key) = (linked(&[0]), key(12, 1));
    let hosts: [&[u32]; 7] = [&[0], &[1], &[2], &[3], &[4], &[5], &[6]];
    go_through(
        &mut agent,
        0,
        [placed(place(key, &hosts)), Event::ShepherdSpawned(key), opened(FRONT, OWNER)],
    );
    let launch = ToApinit::Launch { key, ticket: TICKET, launch: allowing() };
    let actions = act(&mut agent, S, Event::FrontMessage(FRONT, launch));
    (agent, key, actions)
}

/// Another of its hosts, which has its launch.
fn other() -> (Agent, Key) {
    let (mut agent, key) = (linked(&[2]), key(12, 1));
    let launch = ToPeer::Launch { key, ticket: TICKET, launch: allowing() };
    go_through(
        &mut agent,
        0,
        [
            placed(place(key, &[&[0, 1], &[2]])),
            Event::ShepherdSpawned(key),
            head_opened(HEADS),
            Event::HeadMessage(HEADS, launch),
        ],
    );
    (agent, key)
}

#[test]
fn the_head_says_from_where_each_host_has_programs() {
    let (_, key, actions) = head();
    let told = |index: u32| {
        actions.iter().find_map(|action| match action {
            Action::SendPeers(of, to, ToPeer::Sources { hosts })
                if *of == key && *to == [index] =>
            {
                Some(hosts.clone())
            }
            _ => None,
        })
    };
    assert_eq!(
        [1, 4, 5, 6].map(told),
        [Some(vec![at(0)]), Some(vec![at(0)]), Some(vec![at(1), at(0)]), Some(vec![at(1), at(0)])]
    );
    // Without copies nobody needs to know.
    let (mut agent, key) = (linked(&[0]), key);
    go_through(
        &mut agent,
        0,
        [placed(place(key, &[&[0], &[1]])), Event::ShepherdSpawned(key), opened(FRONT, OWNER)],
    );
    let actions = act(&mut agent, S, launch(FRONT, key));
    let sources = |a: &Action| matches!(a, Action::SendPeers(_, _, ToPeer::Sources { .. }));
    assert!(!actions.iter().any(sources), "{actions:?}");
}

#[test]
fn the_head_has_programs_from_its_front_end() {
    let (mut agent, key, _) = head();
    assert_eq!(
        act(&mut agent, S, wants(key, &[0, 1])),
        [takes(key, 0, &[]), asks(0), takes(key, 1, &[]), asks(1)]
    );
    // Others ask for one that comes already, and for one that is missing only there.
    assert_eq!(act(&mut agent, S, Event::ProgramAsked(key, wanted(1))), []);
    let third = Event::ProgramAsked(key, wanted(2));
    assert_eq!(act(&mut agent, S, third), [takes(key, 2, &[]), asks(2)]);
    assert_eq!(act(&mut agent, S, Event::ProgramTaken(key, Box::new(here(0)))), []);
    // The front end comes back, and is asked for what has not come.
    let again = Conn(2);
    act(&mut agent, S, Event::StreamClosed(FRONT));
    act(&mut agent, S, opened(again, OWNER));
    let launch = ToApinit::Launch { key, ticket: TICKET, launch: allowing() };
    let told = act(&mut agent, S, Event::FrontMessage(again, launch));
    for part in [1, 2] {
        let ask = Action::SendFront(again, FromApinit::ProgramWanted(part));
        assert_eq!(told.iter().filter(|action| **action == ask).count(), 1, "{told:?}");
    }
    assert!(!told.contains(&Action::SendFront(again, FromApinit::ProgramWanted(0))));
    let all = [here(0), here(1)];
    assert_eq!(act(&mut agent, S, Event::ProgramTaken(key, Box::new(here(1)))), [given(key, &all)]);
    // That of the others is nothing to the apshepherd here. One that has lost its connection asks again.
    assert_eq!(act(&mut agent, S, Event::ProgramTaken(key, Box::new(here(2)))), []);
    assert_eq!(act(&mut agent, S, wants(key, &[0, 1])), [given(key, &all)]);
}

/// Root of another host has the ticket, and can ask for anything.
#[test]
fn a_host_asks_in_vain_for_a_program_that_the_launch_does_not_have() {
    let (mut agent, key, _) = head();
    let others = [
        wanted(3),
        wanted(255),
        WantedProgram { size: 1 << 30, ..wanted(1) },
        WantedProgram { name: b"b.out".to_vec(), ..wanted(1) },
    ];
    for program in others.clone() {
        assert_eq!(
            act(&mut agent, S, Event::ProgramAsked(key, program.clone())),
            [],
            "{program:?}"
        );
    }
    let asked = Event::ProgramAsked(key, wanted(1));
    assert_eq!(act(&mut agent, S, asked), [takes(key, 1, &[]), asks(1)]);
    // Nor is another host's apinit made to take what is not of the launch.
    let (mut agent, key) = other();
    let hosts = vec![at(1), at(0)];
    act(&mut agent, S, Event::HeadMessage(HEADS, ToPeer::Sources { hosts: hosts.clone() }));
    for program in others {
        assert_eq!(
            act(&mut agent, S, Event::ProgramAsked(key, program.clone())),
            [],
            "{program:?}"
        );
    }
    let asked = Event::ProgramAsked(key, wanted(2));
    assert_eq!(act(&mut agent, S, asked), [takes(key, 2, &hosts)]);
}

/// Nor does the apshepherd, which is its user's, and asks for what it likes.
#[test]
fn an_apshepherd_asks_in_vain_for_a_program_that_the_launch_does_not_have() {
    let (mut agent, key, _) = head();
    let programs = vec![
        WantedProgram { size: 1 << 30, ..wanted(0) },
        wanted(1),
        WantedProgram { name: b"b.out".to_vec(), ..wanted(2) },
        wanted(3),
    ];
    let asked = from_shepherd(key, FromShepherd::ProgramsWanted { programs });
    assert_eq!(act(&mut agent, S, asked), [takes(key, 1, &[]), asks(1)]);
    // A launch that allows no copies has none.
    let (mut agent, key) = (linked(&[0]), key);
    let launch = Box::new(Launch { copies: false, ..*allowing() });
    launched(&mut agent, key, launch);
    assert_eq!(act(&mut agent, S, wants(key, &[0])), []);
    assert_eq!(act(&mut agent, S, Event::ProgramAsked(key, wanted(0))), []);
}

/// Places it on two hosts, and launches it from here.
fn launched(agent: &mut Agent, key: Key, launch: Box<Launch>) {
    let launch = ToApinit::Launch { key, ticket: TICKET, launch };
    go_through(
        agent,
        0,
        [
            placed(place(key, &[&[0], &[1]])),
            Event::ShepherdSpawned(key),
            opened(FRONT, OWNER),
            Event::FrontMessage(FRONT, launch),
        ],
    );
}

/// What was not looked at when it was posted has no size, and no host wants a copy of it.
#[test]
fn a_program_without_an_identity_is_not_copied() {
    let (mut agent, key) = (linked(&[0]), key(12, 1));
    let launch = Box::new(Launch { identity: None, ..*allowing() });
    launched(&mut agent, key, launch);
    for size in [0, 9] {
        let program = WantedProgram { size, ..wanted(0) };
        assert_eq!(act(&mut agent, S, Event::ProgramAsked(key, program)), []);
    }
    let asked = Event::ProgramAsked(key, wanted(1));
    assert_eq!(act(&mut agent, S, asked), [takes(key, 1, &[]), asks(1)]);
}

/// A restarted apinit has no launch until its head says it again.
#[test]
fn another_life_knows_programs_from_the_launch_that_comes_again() {
    let (mut agent, key) = (apinit(&[2]), key(12, 1));
    let place = place(key, &[&[0, 1], &[2]]);
    let hello = Hello { key, launched: true, several: true, ..Hello::default() };
    let found = Found {
        place,
        going_ns: None,
        ran_ns: None,
        hello: Some(hello),
        silent: false,
        away: None,
        front: None,
        gone: false,
        adopted: false,
    };
    let hosts = vec![at(1), at(0)];
    go_through(
        &mut agent,
        S,
        [
            Event::Found(Box::new(found)),
            Event::Linked(Box::new(welcome())),
            head_opened(HEADS),
            Event::HeadMessage(HEADS, ToPeer::Launch { key, ticket: TICKET, launch: allowing() }),
            Event::HeadMessage(HEADS, ToPeer::Sources { hosts: hosts.clone() }),
        ],
    );
    assert_eq!(act(&mut agent, S, Event::ProgramAsked(key, wanted(3))), []);
    let asked = Event::ProgramAsked(key, wanted(1));
    assert_eq!(act(&mut agent, S, asked), [takes(key, 1, &hosts)]);
}

#[test]
fn another_host_has_programs_from_where_the_head_says() {
    let (mut agent, key) = other();
    // Wanted before that is known.
    assert_eq!(act(&mut agent, S, wants(key, &[0])), []);
    let hosts = vec![at(1), at(0)];
    let sources = Event::HeadMessage(HEADS, ToPeer::Sources { hosts: hosts.clone() });
    assert_eq!(act(&mut agent, S, sources.clone()), [takes(key, 0, &hosts)]);
    assert_eq!(act(&mut agent, S, sources), []);
    // What does not come is told to the user, and the apshepherd may find it at its path.
    let failed = GivenProgram { why_not: "no room".into(), ..GivenProgram::default() };
    let why = Notice::NotCopied { nid: Nid(2), why: "no room".into() };
    assert_eq!(
        act(&mut agent, S, Event::ProgramTaken(key, Box::new(failed.clone()))),
        [Action::SendHead(HEADS, FromPeer::Notice(why)), given(key, &[failed])]
    );
}

#[test]
fn programs_are_for_those_who_know_the_ticket() {
    let (agent, key, _) = head();
    let of = ProgramOf { key, ticket: TICKET, part: 0 };
    assert!(agent.knows_ticket(&of) && agent.is_head_of(key));
    assert!(!agent.knows_ticket(&ProgramOf { ticket: Ticket([8; 16]), ..of }));
    let unknown = super::key(13, 1);
    assert!(!agent.knows_ticket(&ProgramOf { key: unknown, ..of }) && !agent.is_head_of(unknown));
    // An application whose launch allows no copies has none for others.
    let (mut agent, key) = (linked(&[0]), key);
    go_through(
        &mut agent,
        0,
        [
            placed(place(key, &[&[0], &[1]])),
            Event::ShepherdSpawned(key),
            opened(FRONT, OWNER),
            launch(FRONT, key),
        ],
    );
    assert_eq!(act(&mut agent, S, Event::ProgramAsked(key, wanted(0))), []);
}
