//! Applications moved aside for one that waits, under round robin.

use super::*;
use crate::apteam::choice::Choice;
use crate::scheduler::Abilities;

/// Four nodes of a processor: 1 to 4 run, then 1 and 3 end, and 5, two wide, waits.
fn fragments(abilities: Abilities) -> Scheduler {
    fragments_for(abilities, posted(5, 2))
}

/// The same, where this one waits.
fn fragments_for(abilities: Abilities, fifth: Event) -> Scheduler {
    let mut s = Scheduler::new(machine(4, 1), Settings { abilities, ..alone() });
    link(&mut s, 1, &[0, 1, 2, 3], &[]);
    for number in 1..=4 {
        s.apply(at(1), posted(number, 1));
        for said in [Report::Launched, Report::Running] {
            let report = Box::new(said(key(number.into(), 1)));
            s.apply(at(1), Event::Report { link: LinkId(1), report });
        }
    }
    for (apid, nid) in [(1, 0), (3, 2)] {
        let report = Box::new(ended(key(apid, 1), &[nid], None));
        s.apply(at(2_000), Event::Report { link: LinkId(1), report });
    }
    s.apply(at(2_000), fifth);
    assert_eq!(s.team(Apid(5)).map(|team| team.state), Some(State::Posted));
    s
}

/// What is done at each deadline until then.
fn until(s: &mut Scheduler, seconds: u64) -> Vec<(u64, Vec<Effect>)> {
    let mut done = Vec::new();
    while let Some(ns) = s.deadline().filter(|ns| *ns <= seconds * SECOND) {
        let now = Now { mono_ns: ns, wall_ns: ns + 7 };
        let effects = s.apply(now, Event::Tick);
        if !effects.is_empty() {
            done.push((ns / SECOND, effects));
        }
    }
    done
}

#[test]
fn one_is_moved_aside_for_a_posting_that_has_waited() {
    let mut s = fragments(Abilities { moves: true, roll_out: false });
    // What it gains by the window counts by how long it has waited: 30 s lost, twentyfold, for two
    // processors, after five minutes; and it is looked again every five minutes.
    let done = until(&mut s, 2_600);
    let [(when, effects), ..] = &done[..] else { panic!("nothing is done") };
    assert_eq!(*when, 2_600);
    let moved = effects.iter().find_map(|effect| match effect {
        Effect::Move { key, from, to } => Some((key.apid, from.nids().next(), to.nids().next())),
        _ => None,
    });
    assert_eq!(moved, Some((Apid(2), Some(Nid(1)), Some(Nid(2)))));
    let team = s.team(Apid(5)).expect("it is there");
    assert_eq!((team.state, team.places.nids().collect()), (State::Placed, vec![Nid(0), Nid(1)]));
    // It stands until its node has moved it, then it runs there.
    let now = at(2_601);
    assert_ne!(s.turn(Apid(2), now.mono_ns), Turn::Always);
    s.apply(now, Event::Moved { key: key(2, 1) });
    assert_eq!(s.turn(Apid(2), now.mono_ns + SECOND), Turn::Always);
    let team = s.team(Apid(2)).expect("it is there");
    assert_eq!(team.places.nids().collect::<Vec<_>>(), [Nid(2)]);
}

#[test]
fn nobody_is_moved_where_nodes_can_move_nobody_or_the_gate_says_no() {
    for (moves, enabled) in [(false, true), (true, false)] {
        let mut s = fragments(Abilities { moves, roll_out: false });
        let mut settings = Settings { abilities: Abilities { moves, roll_out: false }, ..alone() };
        settings.turns.migration.enabled = enabled;
        s.apply(at(2_001), Event::Settings(Box::new(settings)));
        let moved = |effect: &Effect| matches!(effect, Effect::Move { .. });
        assert!(!until(&mut s, 9_000).iter().any(|(_, effects)| effects.iter().any(moved)));
        assert_eq!(s.team(Apid(5)).map(|team| team.state), Some(State::Posted));
    }
}

#[test]
fn no_window_is_made_elsewhere_for_one_that_has_chosen_its_nodes() {
    let mut fifth = posted(5, 2);
    let Event::Posted { posting, .. } = &mut fifth else { unreachable!() };
    posting.choice = Choice::default().only("1-2").expect("a list");
    let mut s = fragments_for(Abilities { moves: true, roll_out: false }, fifth);
    let moved = |effect: &Effect| matches!(effect, Effect::Move { .. });
    assert!(!until(&mut s, 9_000).iter().any(|(_, effects)| effects.iter().any(moved)));
    assert_eq!(s.team(Apid(5)).map(|team| team.state), Some(State::Posted));
}
