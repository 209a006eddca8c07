//! Moves within a host.

use super::*;
use crate::apinit::decide::Rebind;
use crate::apinit::decide::switcher::{Event as Turn, Gang, News};
use crate::apteam::binding::{Binding, Lists};
use crate::apteam::migration_blocker::MigrationBlocker;
use crate::apteam::place::{Place, PlacementList};
use crate::apteam::protocol::node::{MoveCommand, Moved};

/// As the placement of `with_running`, on these nodes.
fn on(nids: [u32; 2]) -> PlacementList {
    PlacementList(nids.map(|n| Place { nid: Nid(n), processors: vec![0, 1], pes: 2 }).into())
}

fn order(key: Key, number: u32, nids: [u32; 2]) -> Event {
    Event::Command(9, Command::Move(Box::new(MoveCommand { key, number, places: on(nids) })))
}

/// Nodes 0 to 3 are its own, 12 runs on the first two.
fn with_room() -> (Agent, Key) {
    let mut agent = linked(&[0, 1, 2, 3]);
    let key = key(12, 1);
    go_through(&mut agent, 0, [placed(place(key, &[&[0, 1]])), opened(FRONT, OWNER)]);
    let events = [
        Event::ShepherdSpawned(key),
        from_shepherd(key, FromShepherd::Hello(Hello { key, several: true, ..Hello::default() })),
        launch(FRONT, key),
    ];
    go_through(&mut agent, S, events);
    go_through(&mut agent, 2 * S, [from_shepherd(key, FromShepherd::Ready)]);
    (agent, key)
}

fn lifted(key: Key, stands: bool) -> Event {
    Event::Turns(News::Held(key, stands))
}

fn gang(key: Key, nids: [u32; 2]) -> Gang {
    let processors = nids.into_iter().flat_map(|n| [(Nid(n), 0), (Nid(n), 1)]).collect();
    Gang { key, processors, spread: true, whole: true }
}

#[test]
fn it_is_lifted_bound_anew_and_seated() {
    let (mut agent, key) = with_room();
    assert_eq!(act(&mut agent, 5 * S, order(key, 1, [1, 2])), [Action::Turns(Turn::Hold(key))]);
    // Said again meanwhile it is one move.
    assert_eq!(act(&mut agent, 5 * S, order(key, 1, [1, 2])), []);
    refused(&mut agent, order(key, 2, [2, 3]), "another move of it is under way");
    let actions = act(&mut agent, 5 * S, lifted(key, true));
    let [Action::Rebind { parts, place, .. }] = &actions[..] else { panic!("{actions:?}") };
    // Node n has the processors 2n and 2n+1, of which there are four: 4 is 0.
    let parts_wanted = [
        Rebind { born: Nid(0), cpus: vec![(0, 2), (1, 3)] },
        Rebind { born: Nid(1), cpus: vec![(2, 0), (3, 1)] },
    ];
    assert_eq!(parts[..], parts_wanted);
    let moved = Moved { number: 1, born: vec![Nid(0), Nid(1)], fixed: false, ..Moved::default() };
    assert_eq!((&place.places, &place.moved), (&on([1, 2]), &moved));
    assert_eq!(place.hosts[0].nids, [Nid(1), Nid(2)]);
    let actions = act(&mut agent, 5 * S + 3_000_000, Event::Rebound(key, Ok(())));
    let frozen = Duration::from_millis(3);
    assert_eq!(
        actions,
        [
            Action::Turns(Turn::Rebind(gang(key, [1, 2]))),
            Action::Report(Report::Moved { key, number: 1, frozen }),
        ]
    );
    // Said again it is answered again, and nothing is done.
    let again = Report::Moved { key, number: 1, frozen: Duration::ZERO };
    assert_eq!(act(&mut agent, 6 * S, order(key, 1, [1, 2])), [Action::Report(again.clone())]);
    // Its groups keep their names when it goes on; a psched that comes hears where it is.
    act(&mut agent, 7 * S, order(key, 3, [2, 3]));
    let actions = act(&mut agent, 7 * S, lifted(key, true));
    let [Action::Rebind { parts, .. }] = &actions[..] else { panic!("{actions:?}") };
    assert_eq!(parts.iter().map(|part| part.born).collect::<Vec<_>>(), [Nid(0), Nid(1)]);
    agent.apply(7 * S, Event::Unlinked);
    let told = act(&mut agent, 7 * S, Event::Linked(Box::new(welcome())));
    assert_eq!(told[1], Action::Report(again));
    // Its end is that of the nodes where it is by now, and so is what its shepherd says.
    act(&mut agent, 7 * S, Event::Rebound(key, Ok(())));
    let said = |nid| {
        let cause = Cause::Abort { rank: 2, nid: Nid(nid), code: 3 };
        Decisive { at_ns: 7, cause }
    };
    act(&mut agent, 7 * S, from_shepherd(key, FromShepherd::Decisive(said(1))));
    let end = Box::new(HostEnd { first: Some(said(1)), ..end(key) });
    go_through(&mut agent, 8 * S, [from_shepherd(key, FromShepherd::Ended(end))]);
    let told = format!("{:?}", act(&mut agent, 8 * S, Event::GroupsEmpty(key)));
    for words in ["nids: [Nid(2), Nid(3)]", "Abort { rank: 2, nid: Nid(3), code: 3 }"] {
        assert!(told.contains(words), "{told}");
    }
}

#[test]
fn what_fails_leaves_it_where_it_was() {
    for stands in [false, true] {
        let (mut agent, key) = with_room();
        act(&mut agent, 5 * S, order(key, 1, [2, 3]));
        let mut actions = act(&mut agent, 5 * S, lifted(key, stands));
        if stands {
            let refused = Event::Rebound(key, Err("EINVAL".into()));
            actions = act(&mut agent, 5 * S, refused);
        }
        let seated = Action::Turns(Turn::Rebind(gang(key, [0, 1])));
        assert!(actions.contains(&seated), "{actions:?}");
        let failed = |a: &Action| matches!(a, Action::Report(Report::MoveFailed { number: 1, .. }));
        assert!(actions.iter().any(failed), "{actions:?}");
        // Said again it has failed still: psched may take the other place for free by now.
        let again = act(&mut agent, 6 * S, order(key, 1, [2, 3]));
        assert!(
            matches!(again[..], [Action::Report(Report::MoveFailed { number: 1, .. })]),
            "{again:?}"
        );
        // The next one is another.
        let again = act(&mut agent, 6 * S, order(key, 2, [2, 3]));
        assert_eq!(again, [Action::Turns(Turn::Hold(key))]);
    }
}

/// What it holds was told to a psched that it does not obey, and stays so until that has judged.
#[test]
fn nobody_is_moved_any_more_once_a_stranger_has_been_told_where_he_sits() {
    let (mut agent, key) = with_room();
    act(&mut agent, 5 * S, order(key, 1, [2, 3]));
    agent.apply(5 * S, Event::Unlinked);
    let stranger = Welcome { store_id: "ffffffffff".into(), epoch: 1, ..welcome() };
    let told = act(&mut agent, 5 * S, Event::Linked(Box::new(stranger)));
    assert!(matches!(told[..], [Action::Foreign(_)]), "{told:?}");
    let actions = act(&mut agent, 5 * S, lifted(key, true));
    assert!(actions.contains(&Action::Turns(Turn::Rebind(gang(key, [0, 1])))), "{actions:?}");
    assert!(!actions.iter().any(|a| matches!(a, Action::Rebind { .. })), "{actions:?}");
}

/// What was told of one that was just being bound anew was its former place, for good.
#[test]
fn a_stranger_is_told_where_everybody_sits_once_that_is_known() {
    for bound in [Ok(()), Err("EINVAL".to_owned())] {
        let (mut agent, key) = with_room();
        act(&mut agent, 5 * S, order(key, 1, [2, 3]));
        act(&mut agent, 5 * S, lifted(key, true));
        agent.apply(5 * S, Event::Unlinked);
        let stranger = Welcome { store_id: "ffffffffff".into(), epoch: 1, ..welcome() };
        assert_eq!(act(&mut agent, 6 * S, Event::Linked(Box::new(stranger))), []);
        let place = if bound.is_ok() { on([2, 3]) } else { on([0, 1]) };
        let actions = act(&mut agent, 7 * S, Event::Rebound(key, bound));
        let Some(Action::Foreign(foreign)) = actions.last() else { panic!("{actions:?}") };
        assert_eq!(foreign.applications[0].place.places, place);
    }
}

/// The numbers of another psched's moves are its own.
#[test]
fn who_is_adopted_may_be_moved_by_any_number() {
    let (mut agent, key) = with_room();
    act(&mut agent, 5 * S, order(key, 1, [2, 3]));
    act(&mut agent, 5 * S, lifted(key, false));
    agent.apply(5 * S, Event::Unlinked);
    let stranger = Welcome { store_id: "ffffffffff".into(), epoch: 1, ..welcome() };
    agent.apply(6 * S, Event::Linked(Box::new(stranger)));
    agent.apply(6 * S, Event::Command(1, Command::Adopt));
    assert_eq!(act(&mut agent, 7 * S, order(key, 1, [2, 3])), [Action::Turns(Turn::Hold(key))]);
}

#[track_caller]
fn refused(agent: &mut Agent, event: Event, why: &str) {
    let actions = act(agent, 5 * S, event);
    let [Action::Report(Report::MoveFailed { why: told, .. })] = &actions[..] else {
        panic!("{actions:?}")
    };
    assert!(told.to_string().contains(why), "{told}");
}

#[test]
fn what_can_t_be_is_not_begun() {
    let (mut agent, key) = with_room();
    refused(&mut agent, order(key, 1, [3, 4]), "NID 4 belongs to another apinit");
    let mut other = on([2, 3]);
    other = PlacementList(other.0.iter().take(1).cloned().collect());
    let order_of =
        |places| Event::Command(9, Command::Move(Box::new(MoveCommand { key, number: 2, places })));
    refused(&mut agent, order_of(other), "its shape does not fit");
    refused(&mut agent, order(super::key(13, 1), 1, [2, 3]), "it is no longer here");
    act(&mut agent, 5 * S, Event::Command(10, Command::Discard(key)));
    refused(&mut agent, order(key, 3, [2, 3]), "it is ending");
}

/// Named processors are kept, and that is remembered by the next life of apinit.
#[test]
fn one_that_has_named_its_processors_stays() {
    let mut agent = linked(&[0, 1, 2, 3]);
    let key = key(12, 1);
    go_through(&mut agent, 0, [placed(place(key, &[&[0, 1]])), opened(FRONT, OWNER)]);
    let events = [
        Event::ShepherdSpawned(key),
        from_shepherd(key, FromShepherd::Hello(Hello { key, several: true, ..Hello::default() })),
    ];
    go_through(&mut agent, S, events);
    let binding = Binding::Lists(Lists::new(vec![vec![(0, 0)], vec![(1, 1)]]).expect("lists"));
    let launch = Box::new(Launch { binding, ..*program() });
    let launch = Event::FrontMessage(FRONT, ToApinit::Launch { key, ticket: TICKET, launch });
    let actions = act(&mut agent, S, launch);
    let kept = actions.iter().find_map(|action| match action {
        Action::KeepPlace(place) => Some(place.moved.fixed),
        _ => None,
    });
    assert_eq!(kept, Some(true));
    let actions = act(&mut agent, 2 * S, from_shepherd(key, FromShepherd::Ready));
    let blocker = Some(MigrationBlocker::ProcessorsNamed);
    assert!(actions.contains(&Action::Report(Report::Movable { key, blocker })), "{actions:?}");
    refused(&mut agent, order(key, 1, [2, 3]), "named");
}

#[test]
fn memory_that_goes_is_the_switchers_and_what_became_of_it_is_reported() {
    let (mut agent, key) = with_room();
    let actions = act(&mut agent, 5 * S, Event::Command(9, Command::RollOut(key)));
    assert_eq!(actions, [Action::Turns(Turn::RollOut(key))]);
    let why = Some("its node has little swap left".to_owned());
    let news = Event::Turns(News::RolledOut(key, 7, why.clone()));
    let report = Report::RolledOut { key, bytes: 7, why };
    assert_eq!(act(&mut agent, 6 * S, news), [Action::Report(report)]);
}
