//! Memory that goes out by a checkpoint.

use super::*;
use crate::apinit::decide::switcher::{Event as Turn, Gang, News};
use crate::apteam::protocol::node::{Restoring, Shift};

/// 12 runs on both nodes, and shares them.
fn with_shared() -> (Agent, Key) {
    let mut agent = linked(&[0, 1]);
    let key = key(12, 1);
    let place = PlaceCommand { shares: true, ..place(key, &[&[0, 1]]) };
    go_through(&mut agent, 0, [placed(place), opened(FRONT, OWNER)]);
    let events = [
        Event::ShepherdSpawned(key),
        from_shepherd(key, FromShepherd::Hello(Hello { key, several: true, ..Hello::default() })),
        launch(FRONT, key),
        from_shepherd(key, FromShepherd::Ready),
        Event::Turns(News::MayGo(key)),
    ];
    go_through(&mut agent, S, events);
    (agent, key)
}

/// The same, with its memory out.
fn with_one_out() -> (Agent, Key) {
    let (mut agent, key) = with_shared();
    let events = [
        Event::Turns(News::GoesOut(key)),
        Event::Turns(News::Held(key, true)),
        Event::TakenOut(key, Ok(700)),
    ];
    go_through(&mut agent, 5 * S, events);
    (agent, key)
}

fn seated(key: Key) -> Action {
    let processors = vec![(Nid(0), 0), (Nid(0), 1), (Nid(1), 0), (Nid(1), 1)];
    Action::Turns(Turn::Rebind(Gang { key, processors, spread: true, whole: true }))
}

fn rolled_out(key: Key, bytes: u64, why: Option<&str>) -> Action {
    Action::Report(Report::RolledOut { key, bytes, why: why.map(str::to_owned) })
}

fn back(key: Key) -> Event {
    let hello = Hello { key, launched: true, going: true, several: true, ..Hello::default() };
    Event::CameBack(key, Ok(Box::new(CameBack { hello, bytes: 700, clock_ns: 3 })))
}

/// What is asked for to bring it back: the processors of now.
#[track_caller]
fn brings_back(actions: &[Action]) {
    let [Action::BringBack { cpus, .. }] = actions else { panic!("{actions:?}") };
    assert_eq!(cpus[..], [vec![0, 1], vec![2, 3]]);
}

/// With the clock of its shepherd, which is its own from now on.
#[track_caller]
fn runs_again(actions: &[Action], key: Key) {
    let [Action::KeepPlace(place), Action::Turns(Turn::Brought(of, 700)), ..] = actions else {
        panic!("{actions:?}")
    };
    let shift = Shift { clock_ns: 3, ..Shift::default() };
    assert_eq!((*of, place.moved.restoring), (key, Restoring::Done(shift)));
}

#[test]
fn it_is_lifted_taken_out_and_brought_back_for_its_turn() {
    let (mut agent, key) = with_shared();
    let wanted = act(&mut agent, 5 * S, Event::Turns(News::GoesOut(key)));
    assert_eq!(wanted, [Action::Turns(Turn::Hold(key))]);
    assert_eq!(act(&mut agent, 5 * S, Event::Turns(News::GoesOut(key))), [], "once");
    let lifted = act(&mut agent, 5 * S, Event::Turns(News::Held(key, true)));
    assert_eq!(lifted, [Action::TakeOut(key)]);
    let gone = act(&mut agent, 6 * S, Event::TakenOut(key, Ok(700)));
    assert_eq!(gone, [seated(key), rolled_out(key, 700, None)]);
    brings_back(&act(&mut agent, 7 * S, Event::Turns(News::ComesIn(key))));
    assert_eq!(act(&mut agent, 7 * S, Event::Turns(News::ComesIn(key))), [], "once");
    runs_again(&act(&mut agent, 8 * S, back(key)), key);
    // And another time; said again while it is out, it is answered again, and nobody waits for it.
    let again = act(&mut agent, 9 * S, Event::Turns(News::GoesOut(key)));
    assert_eq!(again, [Action::Turns(Turn::Hold(key))]);
    act(&mut agent, 9 * S, Event::Turns(News::Held(key, true)));
    act(&mut agent, 9 * S, Event::TakenOut(key, Ok(800)));
    let told = act(&mut agent, 10 * S, Event::Turns(News::GoesOut(key)));
    assert_eq!(told, [seated(key), rolled_out(key, 800, None)]);
}

#[test]
fn what_stands_in_the_way_is_told_and_it_stays() {
    let (mut agent, key) = with_shared();
    act(&mut agent, 5 * S, Event::Turns(News::GoesOut(key)));
    let stays = act(&mut agent, 5 * S, Event::Turns(News::Held(key, false)));
    assert!(stays.ends_with(&[seated(key), rolled_out(key, 0, Some("it can't be stopped"))]));

    act(&mut agent, 6 * S, Event::Turns(News::GoesOut(key)));
    act(&mut agent, 6 * S, Event::Turns(News::Held(key, true)));
    let stays = act(&mut agent, 6 * S, Event::TakenOut(key, Err("disk full".into())));
    assert!(stays.ends_with(&[seated(key), rolled_out(key, 0, Some("disk full"))]), "{stays:?}");

    // While somebody checkpoints it, it stays as well.
    act(
        &mut agent,
        7 * S,
        Event::DumpAsked { number: 1, uid: OWNER, key, end: false, afar: false },
    );
    let told = act(&mut agent, 7 * S, Event::Turns(News::GoesOut(key)));
    let why = "it is being checkpointed by another cpr: try again when that has ended";
    assert_eq!(told, [rolled_out(key, 0, Some(why))]);
}

#[test]
fn what_is_on_several_apinits_stays() {
    let mut agent = linked(&[0, 1]);
    let key = key(12, 1);
    let place = PlaceCommand { shares: true, ..place(key, &[&[0, 1], &[2]]) };
    go_through(&mut agent, 0, [placed(place)]);
    let told = act(&mut agent, 5 * S, Event::Turns(News::GoesOut(key)));
    let why = "it is on several apinits, and its host has no swap";
    assert_eq!(told.last(), Some(&rolled_out(key, 0, Some(why))));
    let seat = |a: &Action| matches!(a, Action::Turns(Turn::Rebind(_)));
    assert!(told.iter().any(seat), "whoever waits for its processors has them: {told:?}");
}

#[test]
fn what_is_to_end_with_a_grace_hears_of_it_when_it_has_its_turn() {
    let (mut agent, key) = with_one_out();
    let end = |kill_after| {
        let cause = Cause::Kill { uid: OWNER, signal: 15 };
        Event::Command(9, Command::Terminate { key, cause, kill_after })
    };
    let actions = act(&mut agent, 6 * S, end(GRACE));
    let watched = Action::Turns(Turn::Watch(key));
    assert_eq!(actions[..2], [watched, Action::Report(Report::ToHear { key, ends: true })]);
    brings_back(&act(&mut agent, 7 * S, Event::Turns(News::ComesIn(key))));
    runs_again(&act(&mut agent, 8 * S, back(key)), key);
    let heard = act(&mut agent, 8 * S, Event::Turns(News::HasTurn(key)));
    let told = |a: &Action| matches!(a, Action::SendShepherd(_, ToShepherd::Terminate { .. }));
    assert!(heard.iter().any(told), "{heard:?}");
}

/// It has written nothing that would be lost.
#[test]
fn without_a_grace_it_ends_as_it_lies() {
    let end = |key| {
        let (cause, kill_after) = (Cause::Kill { uid: OWNER, signal: 9 }, Duration::ZERO);
        Event::Command(9, Command::Terminate { key, cause, kill_after })
    };
    let lost = |key| Event::ShepherdLost { key, text: "it was ended".into() };
    let ends = |agent: &mut Agent, key| {
        let actions = act(agent, 8 * S, Event::GroupsEmpty(key));
        let end = end_of(&actions);
        let cause = end.first.as_ref().map(|first| first.cause.clone());
        assert_eq!(cause, Some(Cause::Kill { uid: OWNER, signal: 9 }));
        assert_eq!(end.lost, []);
    };
    let (mut agent, key) = with_one_out();
    let killed = act(&mut agent, 6 * S, end(key));
    assert_eq!(killed[0], Action::KillGroups { key, shepherd: true });
    act(&mut agent, 6 * S, lost(key));
    ends(&mut agent, key);

    // While it is being taken out: as soon as it is.
    let (mut agent, key) = with_shared();
    act(&mut agent, 5 * S, Event::Turns(News::GoesOut(key)));
    act(&mut agent, 5 * S, Event::Turns(News::Held(key, true)));
    act(&mut agent, 6 * S, end(key));
    let gone = act(&mut agent, 7 * S, Event::TakenOut(key, Ok(700)));
    assert_eq!(gone, [Action::KillGroups { key, shepherd: true }]);
    act(&mut agent, 7 * S, lost(key));
    ends(&mut agent, key);

    // While it is being brought back: what is there of it is killed, and so is what comes.
    let (mut agent, key) = with_one_out();
    act(&mut agent, 6 * S, Event::Turns(News::ComesIn(key)));
    assert_eq!(act(&mut agent, 6 * S, end(key))[0], Action::KillGroups { key, shepherd: true });
    let came = act(&mut agent, 7 * S, back(key));
    assert_eq!(came, [Action::KillGroups { key, shepherd: true }]);
    act(&mut agent, 7 * S, lost(key));
    ends(&mut agent, key);
}

#[test]
fn one_that_can_t_be_brought_back_ends_and_says_why() {
    let (mut agent, key) = with_one_out();
    act(&mut agent, 6 * S, Event::Turns(News::ComesIn(key)));
    let ended = act(&mut agent, 7 * S, Event::CameBack(key, Err("a file has gone".into())));
    assert!(ended.contains(&Action::KillGroups { key, shepherd: true }), "{ended:?}");
    let actions = act(&mut agent, 8 * S, Event::GroupsEmpty(key));
    let end = end_of(&actions);
    let said = format!("{:?}", end.first);
    assert!(said.contains("can't be restored: a file has gone"), "{said}");
    assert_eq!(end.lost, [Nid(0), Nid(1)]);
}

#[test]
fn one_that_is_out_is_brought_back_to_be_checkpointed() {
    let (mut agent, key) = with_one_out();
    let asked = Event::DumpAsked { number: 1, uid: OWNER, key, end: false, afar: false };
    assert_eq!(act(&mut agent, 6 * S, asked), [Action::Turns(Turn::Hold(key))]);
    brings_back(&act(&mut agent, 6 * S, Event::Turns(News::Held(key, true))));
    let actions = act(&mut agent, 7 * S, back(key));
    runs_again(&actions, key);
    assert_eq!(actions.last(), Some(&Action::Dump { key, number: 1 }));
}

#[test]
fn another_life_finds_it_away() {
    let key = key(12, 1);
    let mut agent = linked(&[0, 1]);
    let found = Found {
        place: PlaceCommand { shares: true, ..place(key, &[&[0, 1]]) },
        going_ns: Some(S),
        ran_ns: Some(7),
        hello: None,
        silent: false,
        away: Some(700),
        front: None,
        gone: false,
        adopted: false,
    };
    let actions = agent.apply(2 * S, Event::Found(Box::new(found)));
    let comes = |a: &Action| matches!(a, Action::Turns(Turn::Comes { going: true, ran_ns: 7, .. }));
    assert!(actions.iter().any(comes), "{actions:?}");
    // Its shepherd's counts are known when it is back.
    brings_back(&act(&mut agent, 3 * S, Event::Turns(News::ComesIn(key))));
    let hello = Hello { key, launched: true, going: true, output_taken: 5, ..Hello::default() };
    let came = CameBack { hello, bytes: 700, clock_ns: 3 };
    let actions = act(&mut agent, 4 * S, Event::CameBack(key, Ok(Box::new(came))));
    runs_again(&actions, key);
    assert_eq!(agent.resume_point(key).0, 5);
}
