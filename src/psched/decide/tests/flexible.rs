//! Applications whose nodes need not be contiguous: what they are kept, where they stay. Where they go is in the
//! transcripts (golden/flexible.txt).

use super::decided::{Play, able};
use super::*;
use crate::apteam::Apid;
use crate::apteam::choice::Choice;
use crate::apteam::protocol::node::Command;
use crate::apteam::record::Apteam;
use crate::config;
use crate::machine::Nid;
use crate::psched::decide::{Abilities, Origin};
use std::collections::BTreeMap;

fn flexible(number: u8, width: u32) -> Event {
    let mut event = posted(number, width);
    let Event::Posted { posting, .. } = &mut event else { unreachable!() };
    posting.flexible = true;
    event
}

fn owner() -> Owner {
    Owner { uid: 1000, gid: 1000, groups: Vec::new(), name: "alice".into(), terminal: false }
}

fn nids(s: &Scheduler, apid: u64) -> String {
    format_nids(s.team(Apid(apid)).expect("it is there").places.nids())
}

fn end_of(apid: u64, nid: u32) -> Report {
    ended(key(apid, 1), &[nid], None)
}

/// Nodes of a processor, with an application on each of the odd ones: 1 on NID 1, 2 on NID 3, and so on.
fn on_odd_ones(nodes: u32, settings: Settings) -> Scheduler {
    let mut s = Scheduler::new(machine(nodes, 1), settings);
    link(&mut s, 1, &(0..nodes).collect::<Vec<_>>(), &[]);
    for number in 0..nodes as u8 / 2 {
        let mut event = posted(number + 1, 1);
        let Event::Posted { posting, .. } = &mut event else { unreachable!() };
        let odd = Choice::default().only(&format!("{}", 2 * number + 1)).expect("a list");
        posting.choice = odd;
        s.apply(at(1), event);
    }
    s
}

#[test]
fn nodes_are_kept_for_one_that_has_waited_too_long() {
    let mut s = on_odd_ones(4, kept_after_a_minute(alone()));
    // Two are free, and no neighbours.
    s.apply(at(1), flexible(3, 3));
    s.apply(at(1), posted(4, 1));
    assert_eq!(nids(&s, 4), "0", "past the wide one");
    report(&mut s, 1, end_of(4, 0));
    // After a minute what is free stays free for it, whatever comes, and whether that needs a window or not.
    for number in [5, 6] {
        s.apply(at(70), posted(number, 1));
    }
    s.apply(at(70), flexible(7, 1));
    s.apply(at(70), Event::FrontGone { apid: Apid(5) });
    assert_eq!(nids(&s, 6) + &nids(&s, 7), "");
    let why = s.why(Apid(7)).expect("it waits").to_string();
    assert!(why.contains("kept for an application that has waited too long"), "{why}");
    let why = s.why(Apid(3)).expect("it waits").to_string();
    assert!(why.contains("it fits on NIDs 0-2 when application 1 of alice has ended"), "{why}");
    report_at(&mut s, 71, 1, end_of(2, 3));
    assert_eq!((nids(&s, 3), nids(&s, 6)), ("0,2-3".into(), String::new()));
    // It was the only one for whom they were kept. (One that is flexible is placed first, whatever its turn.)
    report_at(&mut s, 71, 1, end_of(1, 1));
    assert_eq!((nids(&s, 6), nids(&s, 7)), (String::new(), "1".into()));
}

#[test]
fn one_that_is_flexible_waits_for_nodes_that_are_kept_for_another() {
    let mut s = on_odd_ones(4, kept_after_a_minute(alone()));
    s.apply(at(1), posted(3, 2));
    s.apply(at(1), flexible(4, 2));
    assert_eq!(nids(&s, 4), "0,2", "past the one that needs a window");
    report(&mut s, 1, ended(key(4, 1), &[0, 2], None));
    s.apply(at(70), flexible(5, 2));
    assert_eq!(nids(&s, 5), "");
    report_at(&mut s, 71, 1, end_of(1, 1));
    assert_eq!((nids(&s, 3), nids(&s, 5)), ("0-1".into(), String::new()));
    report_at(&mut s, 71, 1, end_of(2, 3));
    assert_eq!(nids(&s, 5), "2-3");
}

/// A record of one that sits in pieces is as good as any.
#[test]
fn after_a_restart_it_is_where_it_was() {
    let mut s = on_odd_ones(4, alone());
    s.apply(at(1), flexible(3, 2));
    assert_eq!(nids(&s, 3), "0,2");
    let records: Vec<Apteam> = s.teams().cloned().collect();
    let orders = Default::default();
    let known = BTreeMap::new();
    let (s, _) = Scheduler::restore(machine(4, 1), alone(), records, known, orders, 9, at(2));
    assert_eq!(nids(&s, 3), "0,2");
    assert_eq!(s.occupancy.holders(Nid(2)), [Apid(3)]);
}

#[test]
fn nobody_moves_one_that_sits_in_pieces() {
    let abilities = Abilities { moves: true, ..Abilities::default() };
    let mut s = on_odd_ones(4, Settings { abilities, ..alone() });
    s.apply(at(1), flexible(3, 2));
    for said in [Report::Launched, Report::Running] {
        report(&mut s, 1, said(key(3, 1)));
    }
    report(&mut s, 1, end_of(1, 1));
    report(&mut s, 1, end_of(2, 3));
    assert_eq!(nids(&s, 3), "0,2");
    // On NIDs 0 and 1 it would leave room.
    s.apply(at(2), posted(4, 2));
    while let Some(ns) = s.deadline().filter(|ns| *ns <= 90_000 * SECOND) {
        let moved =
            |effect: &Effect| matches!(effect, Effect::Command { command: Command::Move(_), .. });
        let effects = s.apply(Now { mono_ns: ns, wall_ns: ns + 7 }, Event::Tick);
        assert!(!effects.iter().any(moved), "{effects:?}");
    }
    assert_eq!((nids(&s, 3), nids(&s, 4)), ("0,2".into(), String::new()));
}

/// Neither aside for another, nor out, for it would come in where there is a
/// window.
#[test]
fn one_in_pieces_stays_where_decisions_move_others() {
    let mut settings = able();
    settings.turns.max_resident = 1;
    let mut play = Play::new(5, 1, settings);
    for number in 1..=5 {
        play.post(number, 1);
    }
    play.ends(1);
    play.ends(3);
    play.ends(5);
    play.take(flexible(6, 3));
    assert_eq!(play.nids(6), "0,2,4");
    play.pass(1_000);
    play.ends(2);
    play.post(7, 2);
    play.pass(2_000);
    assert_eq!(play.nids(6), "0,2,4");
    assert!(!play.moves.iter().any(|(apid, ..)| *apid == Apid(6)), "{:?}", play.moves);
    // Whoever needs more than is free takes turns with it.
    play.post(8, 5);
    play.pass(4_000);
    play.ends(8);
    play.pass(1_000);
    assert_eq!(play.nids(6), "0,2,4");
    assert!(play.party().contains(&6), "{:?}", play.party());
}

/// It would come in wherever there is room. (Whoever needs the processors takes turns with it all the same.)
#[test]
fn who_has_chosen_its_nodes_is_not_rolled_out() {
    let mut settings = able();
    settings.turns.max_resident = 2;
    let mut play = Play::new(2, 1, settings);
    let mut first = posted(1, 2);
    let Event::Posted { posting, .. } = &mut first else { unreachable!() };
    posting.choice = Choice::default().only("0-1").expect("a list");
    play.take(first);
    play.pass(1_000);
    play.post(2, 2);
    play.pass(100);
    play.post(3, 2);
    assert_eq!((play.party(), play.s.schedule.decision.is_out(Apid(1))), (vec![3], false));
}

/// Two nodes are free, and no neighbours.
#[test]
fn one_that_lacks_contiguous_nodes_is_told_where_it_fits_with_flexible() {
    let mut s = on_odd_ones(4, alone());
    s.apply(at(1), posted(3, 2));
    let why = s.why(Apid(3)).expect("it waits");
    let text = why.to_string();
    let cure = "; with --flexible it fits on NIDs 0,2 now";
    assert!(text.contains("on contiguous nodes") && text.ends_with(cure), "{text}");
    let brief = why.brief(Apid(3), &|_| true).to_string();
    assert_eq!(
        brief,
        "2 PEs need 2 processors on contiguous nodes; application 1 of alice holds NID 1; \
         apstat --why 3 tells more"
    );
    // What is refused at once says the same.
    let at_once = Posting { immediate: true, ..posting(4, 2) };
    let (_, why) = s.dry_run(&at_once, &owner()).expect_err("no window");
    assert!(why.to_string().ends_with(cure), "{why}");
    // Among the nodes that it names.
    let choice = Choice::default().only("1-3").expect("a list");
    let (_, why) = s.dry_run(&Posting { choice, ..at_once }, &owner()).expect_err("no window");
    assert!(!why.to_string().contains("--flexible"), "{why}");
    // Where processors are short it is no cure, and neighbours are not what it waits for.
    s.apply(at(1), posted(5, 3));
    let why = s.why(Apid(4)).expect("it waits");
    assert!(!why.to_string().contains("--flexible"), "{why}");
    let brief = why.brief(Apid(4), &|_| true).to_string();
    assert!(brief.starts_with("3 PEs need 3 processors; "), "{brief}");
}

/// A gap divides the region `ordinary`, so that what needs more than four contiguous processors is
/// too wide for it. A flexible posting is not.
const GAP: &str = "
nodes:
  - { nids: 0, processors: 2, flavors: [su, os] }
  - { nids: 1-2, processors: 2 }
  - { nids: 4-5, processors: 2 }
  - { nids: 6-12, processors: 2, flavors: [os, su, ap] }
regions:
  - { name: ordinary, flavors: [ap] }
  - { name: overflow, flavors: [os, su, ap], gates: { width: too wide for ordinary } }
";

#[test]
fn the_cure_flexible_obeys_the_gates_of_a_flexible_posting() {
    let machine = config::read(GAP).expect("a good file").machine;
    let all: Vec<u32> = machine.nodes.keys().map(|nid| nid.0).collect();
    let mut s = Scheduler::new(machine, alone());
    link(&mut s, 1, &all, &[]);
    let cure = |s: &Scheduler, apid: u64| {
        let text = s.why(Apid(apid)).expect("it waits").to_string();
        text.find("with --flexible").map(|at| text[at..].to_owned())
    };
    s.apply(at(1), posted(1, 5));
    s.apply(at(1), posted(2, 5));
    assert_eq!((nids(&s, 1), nids(&s, 2)), ("6-8".into(), "8-10".into()));
    // The overflow region has nine free processors, of which five are contiguous.
    report(&mut s, 1, ended(key(1, 1), &[6, 7, 8], None));
    s.apply(at(1), posted(3, 6));
    assert_eq!(cure(&s, 3).as_deref(), Some("with --flexible it fits on NIDs 1-2,4 now"));
    s.apply(at(1), posted(4, 4));
    assert_eq!(nids(&s, 4), "1-2");
    assert_eq!(cure(&s, 3), None);
}

/// cpr posts an application again with the options that it had: its user can't add one.
#[test]
fn a_restart_is_not_told_to_be_flexible() {
    let mut s = on_odd_ones(4, alone());
    let Event::Posted { reply, mut posting, owner, front, secret } = posted(3, 2) else {
        unreachable!()
    };
    posting.brings_images = true;
    let origin = Origin::Waiting { apid: Apid(99), free: None };
    s.apply(at(1), Event::Restarted { reply, posting, owner, front, secret, origin });
    let waits = s.teams().find(|team| team.places.nids().next().is_none()).expect("it waits").apid;
    let text = s.why(waits).expect("it waits").to_string();
    assert!(text.contains("on contiguous nodes") && !text.contains("--flexible"), "{text}");
}
