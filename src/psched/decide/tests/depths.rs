//! Applications whose PEs differ in depth: what they are kept, where they stay. Where they go is in the transcripts
//! (golden/layouts.txt).

use super::*;
use crate::apteam::Apid;
use crate::apteam::layout::{Layout, Row};
use crate::apteam::protocol::node::Command;
use crate::apteam::record::Apteam;
use crate::psched::decide::Abilities;

/// Three PEs: one with two processors on a node, two with one each on the next.
fn deep(number: u8) -> Event {
    laid(number, [(1, 2), (2, 1)])
}

/// So many PEs on two nodes, and their depths.
fn laid(number: u8, rows: [(u32, u32); 2]) -> Event {
    let mut event = posted(number, 3);
    let Event::Posted { posting, .. } = &mut event else { unreachable!() };
    posting.shape.depth = 2;
    let row = |(pes, depth)| Row { nodes: 1, pes, depth };
    posting.layout = Layout::new(rows.map(row).to_vec()).expect("two rows");
    event
}

fn start(nodes: u32, settings: Settings) -> Scheduler {
    let mut s = Scheduler::new(machine(nodes, 2), settings);
    link(&mut s, 1, &(0..nodes).collect::<Vec<_>>(), &[]);
    s
}

fn nids(s: &Scheduler, apid: u64) -> String {
    format_nids(s.team(Apid(apid)).expect("it is there").places.nids())
}

fn runs(s: &mut Scheduler, apid: u64) {
    for said in [Report::Launched, Report::Running] {
        report(s, 1, said(key(apid, 1)));
    }
}

#[test]
fn each_pe_has_processors_of_its_own_depth() {
    let mut s = start(2, alone());
    s.apply(at(1), deep(1));
    let places = s.team(Apid(1)).expect("it is there").places.clone();
    let own: Vec<Vec<u32>> = places.pes().map(|pe| pe.processors).collect();
    assert_eq!(own, [vec![0, 1], vec![0], vec![1]]);
    assert!(places.fits(&Shape { width: 3, depth: 2, per_node: None }));
    // Who finds it on a foreign node sees that too.
    assert_eq!(
        Layout::of_depths(&places).to_string(),
        "1 of depth 2 on a node, 2 of depth 1 on a node"
    );
}

#[test]
fn nodes_are_kept_on_which_only_the_least_deep_have_room() {
    let mut s = start(2, kept_after_a_minute(alone()));
    s.apply(at(1), posted(1, 1));
    s.apply(at(1), deep(2));
    s.apply(at(1), posted(3, 1));
    // (It needs more than all processors, were all its PEs as deep as the first.)
    s.apply(at(70), posted(4, 1));
    assert_eq!((nids(&s, 3), nids(&s, 4)), ("0".into(), String::new()));
    report_at(&mut s, 71, 1, ended(key(1, 1), &[0], None));
    assert_eq!((nids(&s, 2), nids(&s, 4)), (String::new(), String::new()));
    report_at(&mut s, 71, 1, ended(key(3, 1), &[0], None));
    assert_eq!(nids(&s, 2), "0-1");
}

#[test]
fn nobody_moves_it() {
    let abilities = Abilities { moves: true, ..Abilities::default() };
    let mut s = start(4, Settings { abilities, ..alone() });
    s.apply(at(1), posted(1, 2));
    s.apply(at(1), laid(2, [(2, 1), (1, 2)]));
    runs(&mut s, 2);
    assert_eq!(nids(&s, 2), "1-2");
    let stays = |apid| s.team(Apid(apid)).is_some_and(Apteam::stays_put);
    assert!(stays(2) && !stays(1));
    report(&mut s, 1, ended(key(1, 1), &[0], None));
    // On NIDs 0 and 1 it would leave room.
    s.apply(at(2), posted(3, 4));
    while let Some(ns) = s.deadline().filter(|ns| *ns <= 90_000 * SECOND) {
        let moved =
            |effect: &Effect| matches!(effect, Effect::Command { command: Command::Move(_), .. });
        let effects = s.apply(Now { mono_ns: ns, wall_ns: ns + 7 }, Event::Tick);
        assert!(!effects.iter().any(moved), "{effects:?}");
    }
    assert_eq!((nids(&s, 2), nids(&s, 3)), ("1-2".into(), String::new()));
}
