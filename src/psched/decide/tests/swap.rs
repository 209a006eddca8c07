//! Memory that goes to swap where more sit than may be resident, as nodes can do it.

use super::decided::{Play, settings};
use super::*;
use crate::apteam::Apid;
use crate::apteam::Key;
use crate::apteam::protocol::node::RollOut;
use crate::apteam::protocol::turns::{Switch, Switches};
use crate::apteam::record::State;
use crate::psched::reason::sees_all;

fn able() -> Settings {
    let mut settings = settings();
    settings.abilities.roll_out = RollsOut::AtHome;
    settings.turns.max_resident = 2;
    settings
}

fn noted(play: &mut Play, roll_out: RollOut) {
    play.take(Event::Noted {
        link: LinkId(1),
        notes: Vec::new(),
        roll_out,
        clock: Default::default(),
    });
}

/// 1 has run for long, 2 for a while, 3 has just come, all on the same two nodes.
fn three() -> Play {
    let mut play = Play::new(2, 1, able());
    noted(&mut play, RollOut::Can);
    play.post(1, 2);
    play.pass(1_000);
    play.post(2, 2);
    play.pass(100);
    assert_eq!(play.told, [""; 0]);
    play.post(3, 2);
    play
}

fn answer(play: &mut Play, apid: u64, bytes: u64, why: Option<&str>) {
    let (key, why) = (key(apid, 1), why.map(str::to_owned));
    let report = Box::new(Report::RolledOut { key, bytes, why });
    play.take(Event::Report { link: LinkId(1), report });
}

fn why(play: &Play, apid: u64) -> String {
    let why = play.s.why(Apid(apid)).expect("it is there").words(&sees_all);
    format!("{}; {}; {}", why.obstacle, why.holder, why.cure)
}

#[test]
fn one_more_is_placed_and_whoever_stood_longest_of_the_highest_level_goes_out() {
    let mut play = three();
    assert_eq!((play.party(), &play.told[..]), (vec![3], &["1.1".to_owned()][..]));
    assert!(why(&play, 1).contains(
        "its memory goes to swap; ; it is rolled in before its next \
                                    turn"
    ));
    answer(&mut play, 1, 612 << 20, None);
    assert!(why(&play, 1).contains("goes to swap (612M so far)"), "{}", why(&play, 1));
    assert!(play.words.contains(&"1 rolled-out".to_owned()));
    // It keeps its place, where it is found at home when its turn comes.
    assert_eq!(play.nids(1), "0-1");
    play.ends(3);
    play.ends(2);
    assert_eq!((play.party(), play.moves.len()), (vec![1], 0));
    assert_eq!(why(&play, 1), "it runs on NIDs 0-1; ; ");
    let switch = Switch { started: vec![key(1, 1)], brought: 600 << 20, ..Switch::default() };
    let told = Box::new(Switches { switches: vec![switch], ..Switches::default() });
    for _ in 0..2 {
        let report = Box::new(Report::Switches(told.clone()));
        play.take(Event::Report { link: LinkId(1), report });
    }
    assert_eq!(play.words.iter().filter(|word| *word == "1 rolled-in").count(), 1);
}

#[test]
fn with_room_for_one_resident_everybody_who_stands_goes_out() {
    let mut settings = able();
    settings.turns.max_resident = 1;
    let mut play = Play::new(2, 1, settings);
    noted(&mut play, RollOut::Can);
    for number in 1..5 {
        play.post(number, 2);
        play.pass(200);
    }
    assert_eq!(play.party(), [4]);
    assert_eq!(play.told, ["1.1", "2.1", "3.1"]);
    // One that has come in goes out again.
    play.ends(4);
    assert_eq!((play.party(), play.told.len()), (vec![1], 3));
    play.post(5, 2);
    assert_eq!((play.party(), &play.told[3..]), (vec![5], &["1.1".to_owned()][..]));
}

#[test]
fn who_is_held_goes_out_too() {
    let mut play = Play::new(2, 1, able());
    noted(&mut play, RollOut::Can);
    play.post(1, 2);
    play.pass(1_000);
    play.hold(1, true);
    play.post(2, 2);
    play.pass(100);
    play.post(3, 2);
    assert_eq!((play.party(), &play.told[..]), (vec![3], &["1.1".to_owned()][..]));
    play.hold(1, false);
    play.ends(3);
    play.ends(2);
    assert_eq!(play.party(), [1]);
}

#[test]
fn where_a_node_can_not_max_resident_is_the_limit_and_the_reason_is_said() {
    let mut play = Play::new(2, 1, able());
    play.post(1, 2);
    play.pass(1_000);
    play.post(2, 2);
    play.pass(100);
    play.post(3, 2);
    let limit = "(at most 2 on each: application.max_resident; no roll-out here: ";
    for (told, words) in [
        (RollOut::Untold, "NIDs 0-1 have an apinit of an older release"),
        (RollOut::Cant("no swap".to_owned()), "NIDs 0-1 have no swap"),
    ] {
        noted(&mut play, told);
        let words = format!("{limit}{words})");
        assert_eq!(play.s.team(Apid(3)).map(|team| team.state), Some(State::Posted));
        assert!(why(&play, 3).contains(&words), "{}", why(&play, 3));
        assert_eq!(play.told, [""; 0]);
    }
    // There is swap now: it is placed at once.
    noted(&mut play, RollOut::Can);
    assert_eq!(play.s.team(Apid(3)).map(|team| team.state), Some(State::Running));
    assert_eq!(play.told.len(), 1);
}

#[test]
fn while_ones_memory_stays_nobody_more_is_placed_there() {
    let mut play = three();
    answer(&mut play, 1, 0, Some("none of its memory can go to swap"));
    assert!(play.words.contains(&"1 not-rolled-out".to_owned()));
    play.pass(100);
    play.post(4, 2);
    assert_eq!(play.s.team(Apid(4)).map(|team| team.state), Some(State::Posted));
    let words = "no roll-out here: application 1 of alice stays in memory: none of its memory can \
                 go to swap)";
    assert!(why(&play, 4).contains(words), "{}", why(&play, 4));
    // Nor is it asked for again and again.
    assert_eq!(play.told, ["1.1"]);
    // When it has gone the next may come.
    play.ends(1);
    assert_eq!(play.s.team(Apid(4)).map(|team| team.state), Some(State::Running));
    assert_eq!(play.told.len(), 2);
}

#[test]
fn who_waits_beyond_max_resident_waits_for_its_turn() {
    let mut play = three();
    play.post(4, 2);
    let words = why(&play, 4);
    let team = play.s.team(Apid(4)).expect("it is there");
    assert!(team.state == State::Running || words.contains("waits for its turn"), "{words}");
}

#[test]
fn it_is_said_again_after_a_break_and_by_a_psched_that_has_been_started_again() {
    let mut play = three();
    let items: Vec<(Key, Phase)> =
        [1, 2, 3].map(|apid| (key(apid, 1), Phase::Running)).into_iter().collect();
    play.take(Event::LinkClosed { link: LinkId(1) });
    let mut of_node = hello(&[0, 1]);
    of_node.roll_out = RollOut::Can;
    play.take(Event::LinkOpened { link: LinkId(1), hello: of_node });
    play.take(Event::Inventory { link: LinkId(1), items });
    assert_eq!(play.told, ["1.1", "1.1"]);
    // An answer to what was said before the break is one.
    answer(&mut play, 1, 1 << 20, None);
    answer(&mut play, 1, 2 << 20, None);
    assert!(why(&play, 1).contains("(2M so far)"), "{}", why(&play, 1));
}

#[test]
fn more_memory_than_a_node_has_goes_out_of_those_who_have_long_waits() {
    let mut machine = machine(2, 1);
    machine.nodes.values_mut().for_each(|node| node.memory = 1 << 30);
    let mut settings = able();
    settings.turns.memory_overcommit = 4_000;
    let mut play = Play::on(machine, settings);
    noted(&mut play, RollOut::Can);
    let posted = |number: u8| {
        let Event::Posted { reply, mut posting, owner, front, secret } = super::posted(number, 2)
        else {
            unreachable!()
        };
        posting.memory_per_pe = Some(700 << 20);
        Event::Posted { reply, posting, owner, front, secret }
    };
    play.take(posted(1));
    // At the first level turns are short: nothing goes.
    play.take(posted(2));
    play.pass(20);
    assert_eq!(play.told, [""; 0]);
    play.ends(2);
    play.pass(1_000);
    play.take(posted(3));
    assert_eq!((play.party(), &play.told[..]), (vec![3], &["1.1".to_owned()][..]));
}
