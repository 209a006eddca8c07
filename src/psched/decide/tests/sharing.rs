//! Applications placed over others.

use super::*;
use crate::apteam::Apid;
use crate::apteam::change::Orders;
use crate::apteam::protocol::node::Command;
use crate::apteam::protocol::node::PlaceCommand;
use crate::apteam::record::Apteam;
use crate::apteam::record::State;
use crate::machine::Nid;
use crate::psched::reason::sees_all;
use crate::variables::Allocator;
use std::collections::BTreeMap;

fn ready_for(max_resident: u32, nodes: u32, processors: u32) -> Scheduler {
    let settings = with_floors(sharing(max_resident));
    let mut s = Scheduler::new(machine(nodes, processors), settings);
    link(&mut s, 1, &(0..nodes).collect::<Vec<_>>(), &[]);
    s
}

fn owner() -> Owner {
    Owner { uid: 1000, gid: 1000, groups: Vec::new(), name: "alice".into(), terminal: false }
}

fn state(s: &Scheduler, apid: u64) -> State {
    s.team(Apid(apid)).expect("there").state
}

/// The placement that its node is told.
fn told(effects: &[Effect]) -> Option<&PlaceCommand> {
    effects.iter().find_map(|effect| match effect {
        Effect::Command { command: Command::Place(place), .. } => Some(&**place),
        _ => None,
    })
}

#[test]
fn a_posting_that_finds_no_free_processors_is_placed_over_others() {
    let mut s = ready_for(2, 2, 2);
    for (number, apids) in [(1, vec![Apid(1)]), (2, vec![Apid(1), Apid(2)])] {
        let effects = s.apply(at(1), posted_at_once(number, 4));
        let place = told(&effects).expect("placed");
        assert!(place.shares);
        assert_eq!(place.places.nids().collect::<Vec<_>>(), [Nid(0), Nid(1)]);
        // Processors in use are those with anybody on them.
        for node in s.nodes() {
            assert_eq!((node.used, &node.apids, node.pes), (2, &apids, 2 * u32::from(number)));
        }
    }
    assert!(told(&s.apply(at(1), posted(3, 1))).is_none());
    let why = s.why(Apid(3)).expect("it waits").to_string();
    assert!(why.contains("1 of alice") && why.contains("application.max_resident"), "{why}");
    // The end of one of them is enough.
    let freed = report_at(&mut s, 2, 1, ended(key(2, 1), &[0, 1], None));
    assert!(freed.contains(&"-> 1 place 3.1".into()), "{freed:?}");
}

#[test]
fn immediate_is_refused_where_it_cannot_be_placed_over_others_either() {
    let mut s = ready_for(2, 1, 2);
    s.apply(at(1), posted(1, 2));
    let at_once = Posting { immediate: true, ..posting(2, 2) };
    let (places, _) = s.dry_run(&at_once, &owner()).expect("over the first");
    let Event::Posted { reply, owner: its, front, secret, .. } = posted(2, 2) else {
        unreachable!("a posting");
    };
    let event = |posting| Event::Posted {
        reply,
        posting: Box::new(posting),
        owner: its.clone(),
        front: front.clone(),
        secret,
    };
    let effects = s.apply(at(1), event(at_once));
    assert_eq!(told(&effects).map(|place| &place.places), Some(&places));
    let third = Posting { immediate: true, ..posting(3, 1) };
    let (refusal, why) = s.dry_run(&third, &owner()).expect_err("two are there");
    assert_eq!(refusal, Refusal::NoRoom);
    let effects = s.apply(at(1), event(third));
    assert_eq!(
        effects,
        [Effect::Refuse { reply, refusal: Refusal::NoRoom, reason: why }],
        "the same words"
    );
}

#[test]
fn records_that_share_processors_are_restored() {
    let mut s = ready_for(3, 1, 2);
    for number in 1..=3 {
        s.apply(at(1), posted_at_once(number, 2));
        report(&mut s, 1, Report::Running(key(number.into(), 1)));
    }
    s.apply(at(1), posted(4, 1));
    let records: Vec<Apteam> = s.teams().cloned().collect();
    let running: Vec<_> = (1..=3).map(|apid| (key(apid, 1), Phase::Running)).collect();
    // The variable may have been lowered meanwhile: what is there stays.
    for max_resident in [3, 1] {
        let (mut s, effects) = Scheduler::restore(
            machine(1, 2),
            sharing(max_resident),
            records.clone(),
            BTreeMap::new(),
            Orders::default(),
            1,
            at(2),
        );
        assert_eq!(effects, []);
        // They are known, and take turns.
        assert_eq!(brief(&link(&mut s, 1, &[0], &running)), ["boot boot-1", "-> 1 plan"]);
        let mut bigger = machine(1, 2);
        bigger.nodes.extend(machine(2, 3).nodes.into_iter().skip(1));
        s.apply(at(3), Event::Machine(Box::new(bigger)));
        assert_eq!(s.nodes().next().map(|n| n.apids.len()), Some(3));
        let mut placed = Vec::new();
        for apid in 1..=3 {
            placed.extend(report(&mut s, 1, ended(key(apid, 1), &[0], None)));
            let fits = apid == if max_resident == 1 { 3 } else { 1 };
            assert_eq!(placed.contains(&"-> 1 place 4.1".into()), fits, "{apid}: {placed:?}");
            if fits {
                break;
            }
        }
    }
}

#[test]
fn records_that_contradict_each_other_are_found() {
    let mut s = ready_for(1, 1, 1);
    s.apply(at(1), posted(1, 1));
    let mut records: Vec<Apteam> = s.teams().cloned().collect();
    let mut other = records[0].clone();
    (other.apid, other.posting.request_id, other.shares) = (Apid(2), [2; 16], true);
    records.push(other);
    let boots = BTreeMap::new();
    let (_, effects) =
        Scheduler::restore(machine(1, 1), sharing(4), records, boots, Orders::default(), 1, at(2));
    assert!(brief(&effects).iter().any(|e| e.contains("2.1")), "{effects:?}");
}

/// Its nodes were told that it shares with nobody, and that stays so while it has its place.
#[test]
fn nobody_is_placed_over_one_who_shares_with_nobody() {
    let mut s = ready_for(1, 1, 2);
    assert!(!told(&s.apply(at(1), posted(1, 1))).expect("placed").shares);
    s.apply(at(1), posted(2, 2));
    s.apply(at(1), posted(3, 1));
    assert_eq!(state(&s, 2), State::Posted);
    s.apply(at(2), Event::Settings(Box::new(with_floors(sharing(4)))));
    assert_eq!(state(&s, 2), State::Posted);
    let effects = s.apply(at(3), posted(4, 1));
    assert!(told(&effects).is_none(), "{effects:?}");
    let freed = report_at(&mut s, 5, 1, ended(key(1, 1), &[0], None));
    // The third holds the other processor alone still; the fourth goes to the free one.
    assert!(freed.contains(&"-> 1 place 4.1".into()), "{freed:?}");
    assert!(s.team(Apid(4)).expect("placed").shares);
    let freed = report_at(&mut s, 5, 1, ended(key(3, 1), &[0], None));
    assert!(freed.contains(&"-> 1 place 2.1".into()), "{freed:?}");
}

#[test]
fn memory_is_admitted_and_explained() {
    // Each node has 1 GiB.
    let mut s = ready_for(4, 2, 2);
    let with =
        |number, width, memory| Posting { memory_per_pe: Some(memory), ..posting(number, width) };
    let (refusal, why) = s.dry_run(&with(1, 1, 2 << 30), &owner()).expect_err("too much");
    assert_eq!(refusal, Refusal::Impossible);
    assert!(why.words(&sees_all).cure.contains("-m 1024M or less"), "{why}");
    let post = |s: &mut Scheduler, posting: Posting| {
        let Event::Posted { reply, owner, front, secret, .. } = posted(posting.request_id[0], 1)
        else {
            unreachable!("a posting");
        };
        let posting = Box::new(posting);
        let event = Event::Posted { reply, posting, owner, front, secret };
        told(&s.apply(at(1), event)).map(|p| p.places.nids().collect::<Vec<_>>())
    };
    assert_eq!(post(&mut s, with(1, 2, 600 << 20)), Some(vec![Nid(0), Nid(1)]));
    assert_eq!(post(&mut s, with(2, 1, 600 << 20)), None);
    let why = s.why(Apid(2)).expect("it waits").to_string();
    assert!(why.contains("600M of memory") && why.contains("holds memory of NID 0"), "{why}");
    assert_eq!(post(&mut s, with(3, 1, 300 << 20)), Some(vec![Nid(0)]));
    // As often as the variable says.
    let twice = Turns { memory_overcommit: 2_000, ..sharing(4).turns };
    s.apply(at(2), Event::Settings(Box::new(Settings { turns: twice, ..sharing(4) })));
    assert_eq!(state(&s, 2), State::Placed);
}

#[test]
fn another_allocator_counts_from_the_next_placement_on() {
    let mut s = Scheduler::new(machine(6, 1), sharing(4));
    link(&mut s, 1, &[0, 1, 2, 3, 4, 5], &[]);
    let first = |effects: &[Effect]| told(effects).and_then(|p| p.places.nids().next());
    let post = |s: &mut Scheduler, number| first(&s.apply(at(1), posted(number, 1)));
    assert_eq!(post(&mut s, 1), Some(Nid(0)));
    // The one is wide, as the variable says.
    let allocator = Allocator::WideFromOneEnd;
    let turns = Turns { allocator, allocator_wide: 1, ..sharing(4).turns };
    s.apply(at(1), Event::Settings(Box::new(Settings { turns: turns.clone(), ..sharing(4) })));
    assert_eq!(post(&mut s, 2), Some(Nid(5)));
    let turns = Turns { allocator_wide: 2, ..turns };
    s.apply(at(1), Event::Settings(Box::new(Settings { turns, ..sharing(4) })));
    assert_eq!(post(&mut s, 3), Some(Nid(1)));
    s.apply(at(1), Event::Settings(Box::new(sharing(4))));
    assert_eq!(post(&mut s, 4), Some(Nid(2)));
}

#[test]
fn nodes_are_kept_for_one_who_has_waited_too_long() {
    let turns = Turns { longest_wait: Duration::from_secs(3_600), ..alone().turns };
    let mut s = Scheduler::new(machine(1, 2), Settings { turns, ..alone() });
    link(&mut s, 1, &[0], &[]);
    s.apply(at(1), posted(1, 1));
    s.apply(at(2), posted(2, 2));
    assert!(told(&s.apply(at(3_601), posted(3, 1))).is_some());
    report(&mut s, 1, ended(key(3, 1), &[0], None));
    assert!(told(&s.apply(at(3_602), posted(4, 1))).is_none());
    let why = s.why(Apid(4)).expect("it waits").to_string();
    assert!(why.contains("waited too long"), "{why}");
    let placed = report(&mut s, 1, ended(key(1, 1), &[0], None));
    assert!(placed.contains(&"-> 1 place 2.1".into()), "{placed:?}");
}

#[test]
fn one_that_has_nodes_to_itself_is_named_so() {
    let mut s = ready_for(2, 3, 2);
    let Event::Posted { reply, owner: its, front, secret, .. } = posted(1, 6) else {
        unreachable!("a posting");
    };
    let posting = Box::new(Posting { exclusive: true, ..posting(1, 5) });
    s.apply(at(1), Event::Posted { reply, posting, owner: its, front, secret });
    s.apply(at(1), posted(2, 2));
    let why = s.why(Apid(2)).expect("it waits");
    let has = "application 1 of alice has NIDs 0-2 to itself";
    let text = why.to_string();
    assert!(text.contains(&format!("{has} (-F exclusive); it fits on ")), "{text}");
    assert!(text.contains(" when application 1 of alice has ended"), "{text}");
    let brief = why.brief(Apid(2), &|_| true).to_string();
    assert_eq!(brief, format!("2 PEs need 2 processors; {has}; apstat --why 2 tells more"));
}
