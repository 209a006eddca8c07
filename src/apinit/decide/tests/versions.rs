//! Shepherds of other releases.

use super::*;
use crate::apteam::ending::NOT_THE_PROGRAM;
use crate::apteam::launch::{Part, Strace};
use crate::apteam::protocol::shepherd::{OLDEST, PROTOCOL, misfit};

#[test]
fn nothing_is_launched_with_a_shepherd_of_another_version() {
    for protocol in [OLDEST - 1, PROTOCOL + 1] {
        let (mut agent, key) = with_running();
        let hello = Hello { protocol, key, ..Hello::default() };
        let actions = act(&mut agent, 3 * S, from_shepherd(key, FromShepherd::Hello(hello)));
        let text = misfit(protocol).expect("not understood");
        assert!(text.contains(&format!("version {protocol} ")), "{text}");
        assert!(actions.contains(&Action::KillGroups { key, shepherd: true }), "{actions:?}");
        assert_eq!(agent.apps[&key].known_cause().map(|c| c.status()), Some(125));
    }
}

/// It can't be told anything, and goes on; who ends it kills it.
#[test]
fn a_former_life_whose_shepherd_is_not_understood() {
    let key = key(12, 1);
    let found = |going| {
        let (front, place) = (Some(Conn(77)), place(key, &[&[0, 1]]));
        let protocol = PROTOCOL + 1;
        let hello = Hello { protocol, key, launched: true, going, ..Hello::default() };
        Event::Found(Box::new(Found {
            place,
            going_ns: Some(S),
            ran_ns: None,
            hello: Some(hello),
            silent: false,
            away: None,
            front,
            gone: false,
            adopted: false,
        }))
    };
    let mut agent = apinit(&[0, 1]);
    assert_eq!(act(&mut agent, 2 * S, found(true)), []);
    let actions = act(&mut agent, 2 * S, Event::Linked(Box::new(welcome())));
    let items = vec![(key, Phase::Running)];
    assert!(actions.contains(&Action::Inventory { items, last_command: 0 }), "{actions:?}");
    let cause = Cause::Kill { signal: 15, uid: 1 };
    let terminate = Command::Terminate { key, cause: cause.clone(), kill_after: GRACE };
    assert_eq!(
        act(&mut agent, 3 * S, Event::Command(1, terminate)),
        [Action::KillGroups { key, shepherd: true }]
    );
    let text = "it has died".into();
    go_through(&mut agent, 3 * S, [Event::ShepherdLost { key, text }, Event::GroupsEmpty(key)]);
    assert_eq!(agent.apps[&key].known_cause(), Some(cause));
    // Nothing of the program has run: it does not wait for an apinit that may never come.
    let mut agent = apinit(&[0, 1]);
    let actions = act(&mut agent, 2 * S, found(false));
    assert!(actions.contains(&Action::KillGroups { key, shepherd: true }), "{actions:?}");
}

/// A launch whose second program runs in the last PE.
fn two_programs(conn: Conn, key: Key, last: u32) -> Event {
    let part = Part { first: last, executable: b"/bin/false".to_vec(), ..Part::default() };
    let launch = Box::new(Launch { more: vec![part], ..*program() });
    Event::FrontMessage(conn, ToApinit::Launch { key, ticket: TICKET, launch })
}

fn said(key: Key, several: bool) -> Event {
    from_shepherd(key, FromShepherd::Hello(Hello { key, several, ..Hello::default() }))
}

/// The launches that an apshepherd is given.
fn given(actions: &[Action]) -> usize {
    let launch = |a: &&Action| matches!(a, Action::SendShepherd(_, ToShepherd::Launch(_)));
    actions.iter().filter(launch).count()
}

/// What it can is known by its hello: whichever comes first, that or the launch.
#[test]
fn several_programs_wait_for_the_shepherds_hello() {
    for hello_first in [false, true] {
        let (mut agent, key) = with_placed();
        agent.apply(S, opened(FRONT, OWNER));
        let (launch, hello) = (two_programs(FRONT, key, 3), said(key, true));
        let [one, other] = if hello_first { [hello, launch] } else { [launch, hello] };
        assert_eq!(given(&act(&mut agent, S, one)), 0, "{hello_first}");
        let actions = act(&mut agent, S, other);
        assert_eq!(given(&actions), 1, "{hello_first}: {actions:?}");
        // A hello on the next connection is no reason to launch once more.
        assert_eq!(act(&mut agent, S, said(key, true)), []);
    }
}

#[test]
fn several_programs_are_not_launched_by_a_shepherd_of_the_release_before() {
    for hello_first in [false, true] {
        let (mut agent, key) = with_placed();
        agent.apply(S, opened(FRONT, OWNER));
        let (launch, hello) = (two_programs(FRONT, key, 3), said(key, false));
        let order = if hello_first { [hello, launch] } else { [launch, hello] };
        let actions: Vec<Action> =
            order.into_iter().flat_map(|event| act(&mut agent, S, event)).collect();
        assert_eq!(given(&actions), 0, "{actions:?}");
        let cause = agent.apps[&key].known_cause().expect("it has ended");
        let Cause::LaunchFailed { rank: 0, errno: NOT_THE_PROGRAM, text, .. } = &cause else {
            panic!("{cause:?}");
        };
        assert!(text.ends_with("install the apshepherd of apinit's release"), "{text}");
        assert_eq!((cause.status(), agent.apps[&key].phase()), (125, Phase::Ended));
    }
    // One program it runs as before.
    let (mut agent, key) = with_placed();
    agent.apply(S, opened(FRONT, OWNER));
    assert_eq!(act(&mut agent, S, said(key, false)), []);
    assert_eq!(given(&act(&mut agent, S, launch(FRONT, key))), 1);
}

/// An apshepherd that does not know of tracers would run the PEs untraced, without a word.
#[test]
fn tracers_want_a_shepherd_that_knows_them() {
    let strace = Launch { strace: Some(Strace::default()), ..*program() };
    for launch in [strace, Launch { stacks: true, ..*program() }] {
        let launch = Box::new(launch);
        for knows in [false, true] {
            let (mut agent, key) = with_placed();
            agent.apply(S, opened(FRONT, OWNER));
            let launch = ToApinit::Launch { key, ticket: TICKET, launch: launch.clone() };
            assert_eq!(given(&act(&mut agent, S, Event::FrontMessage(FRONT, launch))), 0);
            let actions = act(&mut agent, S, said(key, knows));
            assert_eq!(given(&actions), usize::from(knows), "{actions:?}");
        }
    }
}

/// Another host's: its head ends the application.
#[test]
fn the_head_hears_of_a_shepherd_that_can_not() {
    let heads = Conn(9);
    let key = key(12, 1);
    let mut agent = linked(&[2]);
    go_through(
        &mut agent,
        0,
        [placed(place(key, &[&[0, 1], &[2]])), Event::ShepherdSpawned(key), head_opened(heads)],
    );
    let Event::FrontMessage(_, ToApinit::Launch { launch, .. }) = two_programs(heads, key, 3)
    else {
        panic!("it is a launch");
    };
    agent.apply(S, Event::HeadMessage(heads, ToPeer::Launch { key, ticket: TICKET, launch }));
    let actions = act(&mut agent, S, said(key, false));
    let [Action::SendHead(conn, FromPeer::Decisive(told))] = &actions[..] else {
        panic!("{actions:?}");
    };
    assert_eq!(*conn, heads);
    assert!(matches!(told.cause, Cause::LaunchFailed { rank: 4, nid: Nid(2), .. }), "{told:?}");
}

#[test]
fn programs_that_are_not_of_the_posting_are_refused() {
    let (mut agent, key) = with_placed();
    agent.apply(S, opened(FRONT, OWNER));
    let text = "part 2 of the programs would begin with PE 4, and the application has 4: the \
                launch does not match its posting";
    assert_eq!(act(&mut agent, S, two_programs(FRONT, key, 4)), refused(FRONT, text));
    assert_eq!(agent.apps[&key].phase(), Phase::Placed);
}

/// One of the release before would skip the question for stacks.
#[test]
fn a_shepherd_says_whether_it_can_be_asked_for_stacks() {
    let (mut agent, key) = with_running();
    for stacks in [true, false] {
        let hello = Hello { key, stacks, ..Hello::default() };
        act(&mut agent, 3 * S, from_shepherd(key, FromShepherd::Hello(hello)));
        assert_eq!(agent.has_stacks(key), stacks);
    }
    assert!(!agent.has_stacks(self::key(99, 1)));
}
