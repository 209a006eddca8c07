//! PEs that share processors: who has to, where they go, and what their user is told.

use super::*;
use crate::apteam::Apid;
use crate::apteam::oversubscribe::Oversubscribe;
use crate::apteam::protocol::node::Command;
use crate::apteam::record::State;
use crate::psched::decide::Abilities;

fn start(nodes: u32, processors: u32, settings: Settings) -> Scheduler {
    let mut s = Scheduler::new(machine(nodes, processors), settings);
    link(&mut s, 1, &(0..nodes).collect::<Vec<_>>(), &[]);
    s
}

/// One that may share processors.
fn crowd(number: u8, width: u32, change: impl Fn(&mut Posting)) -> Event {
    let mut event = posted(number, width);
    let Event::Posted { posting, .. } = &mut event else { unreachable!() };
    posting.oversubscribe = Oversubscribe::Allowed;
    change(posting);
    event
}

/// It is placed over others, or refused.
fn at_once(posting: &mut Posting) {
    posting.immediate = true;
}

/// PEs and processors of each node of an application.
fn sits(s: &Scheduler, apid: u64) -> Vec<(u32, usize)> {
    let places = &s.team(Apid(apid)).expect("it is there").places;
    places.0.iter().map(|place| (place.pes, place.processors.len())).collect()
}

fn refused(effects: &[Effect]) -> String {
    let why = effects.iter().find_map(|effect| match effect {
        Effect::Refuse { reason, .. } => Some(reason.to_string()),
        _ => None,
    });
    why.expect("it is refused")
}

#[test]
fn what_fits_shares_nothing_and_what_does_not_has_all_processors() {
    let mut s = start(2, 2, sharing(4));
    s.apply(at(1), crowd(1, 3, |_| ()));
    assert_eq!(sits(&s, 1), [(2, 2), (1, 1)]);
    // It takes turns with the other.
    let effects = s.apply(at(1), crowd(2, 9, at_once));
    assert_eq!(sits(&s, 2), [(5, 2), (4, 2)]);
    let place = effects.iter().find_map(|effect| match effect {
        Effect::Command { command: Command::Place(place), .. } => Some(place),
        _ => None,
    });
    let place = place.expect("its node is told");
    assert!(place.shares && place.places.fits_or_shares(&place.shape), "{place:?}");
    assert_eq!((place.shape.width, place.places.pes().count()), (9, 9));
    let five_each = |posting: &mut Posting| {
        posting.shape.per_node = Some(5);
        at_once(posting);
    };
    s.apply(at(1), crowd(3, 9, five_each));
    assert_eq!(sits(&s, 3), [(5, 2), (4, 2)]);
    s.apply(at(1), crowd(4, 5, five_each));
    assert_eq!(sits(&s, 4), [(5, 2)]);
}

#[test]
fn refusals_name_what_would_help() {
    let mut s = start(2, 2, Settings { oversubscribe_max: 3, ..alone() });
    let why = refused(&s.apply(at(1), posted(1, 5)));
    assert_eq!(
        why,
        "5 PEs of depth 1 need 5 processors; this machine can hold at most 4 PEs of this shape \
         (NIDs 0-1); ask for -n 4 or less; or let PEs share 4 processors with --oversubscribe"
    );
    let why = refused(&s.apply(at(1), crowd(2, 13, |_| ())));
    assert_eq!(
        why,
        "13 PEs on 4 processors exceed the maximum of 3 PEs on a processor; ask for 12 or fewer \
         there, or have an administrator raise oversubscribe_max (3) with psmgr set"
    );
    // Where nobody may share, nobody is told to.
    let mut one = start(2, 2, Settings { oversubscribe_max: 1, ..alone() });
    let why = refused(&one.apply(at(1), posted(1, 5)));
    assert!(!why.contains("oversubscribe"), "{why}");
    let why = refused(&s.apply(at(1), crowd(3, 9, |posting| posting.shape.per_node = Some(3))));
    assert!(why.contains("need 3 nodes, and there are 2 for them"), "{why}");
    let why = refused(&s.apply(at(1), crowd(4, 9, |posting| posting.shape.depth = 2)));
    assert!(why.contains("needs -d 1") && why.contains("leave out -d"), "{why}");
    // What a client says of processors is not looked at.
    let lie = |posting: &mut Posting| {
        let sharing = crate::apteam::oversubscribe::Sharing { processors: 1, per_node: None };
        posting.oversubscribe = Oversubscribe::Shares(sharing);
    };
    s.apply(at(1), crowd(5, 4, lie));
    assert_eq!(sits(&s, 1), [(2, 2), (2, 2)]);
}

#[test]
fn one_that_waits_is_told_what_for() {
    let mut s = start(1, 2, alone());
    s.apply(at(1), posted(1, 1));
    s.apply(at(1), crowd(2, 6, |_| ()));
    assert_eq!(s.team(Apid(2)).expect("it waits").state, State::Posted);
    let why = s.why(Apid(2)).expect("it waits").to_string();
    assert!(why.starts_with("6 PEs share 2 processors (--oversubscribe): "), "{why}");
    let freed = report(&mut s, 1, ended(key(1, 1), &[0], None));
    assert!(freed.contains(&"-> 1 place 2.1".into()), "{freed:?}");
    assert_eq!(sits(&s, 2), [(6, 2)]);
}

#[test]
fn memory_counts_for_each_pe() {
    // Each node has 1 GiB.
    let mut s = start(2, 2, sharing(4));
    let with = |bytes| move |posting: &mut Posting| posting.memory_per_pe = Some(bytes);
    s.apply(at(1), crowd(1, 8, with(200 << 20)));
    assert_eq!(sits(&s, 1), [(4, 2), (4, 2)]);
    let held: Vec<u64> = s.occupancy.held(Apid(1)).iter().map(|held| held.memory).collect();
    assert_eq!(held, [800 << 20; 2]);
    let why = refused(&s.apply(at(1), crowd(2, 8, with(300 << 20))));
    assert!(why.contains("lacks 300M of memory for each of 8 PEs"), "{why}");
}

#[test]
fn nobody_moves_it() {
    let abilities = Abilities { moves: true, ..Abilities::default() };
    let mut s = start(2, 2, Settings { abilities, ..alone() });
    s.apply(at(1), crowd(1, 3, |posting| posting.shape.per_node = Some(3)));
    assert_eq!(sits(&s, 1), [(3, 2)]);
    for said in [Report::Launched, Report::Running] {
        report(&mut s, 1, said(key(1, 1)));
    }
    let team = s.team(Apid(1)).expect("it is there");
    let why = s.why_it_stays(team).expect("it stays");
    assert_eq!(why.to_string(), "its PEs share processors (--oversubscribe)");
}
