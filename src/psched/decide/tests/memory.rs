//! Measured memory: what it lets in and keeps out, who has to take turns by it, and for how long.

use super::turns::{MS, cluster, ends, ms, runs, settings, turns_of};
use super::*;
use crate::apteam::Apid;
use crate::apteam::Key;
use crate::apteam::protocol::turns::{Switch, Switches};
use crate::apteam::record::State;
use crate::machine::Nid;

const MIB: u64 = 1 << 20;
/// Of one processor of a node of two processors and a GiB, of which three may be resident.
const SHARE: u64 = (1 << 30) / 2 / 3;

/// An apinit tells so many MiB at most of these applications on these nodes.
fn peaks(s: &mut Scheduler, now: Now, link: u64, peaks: &[(Key, u32, u64)]) -> Vec<Effect> {
    let peaks = peaks.iter().map(|(key, nid, mib)| (*key, Nid(*nid), mib * MIB)).collect();
    let told = Switches { peaks, ..Switches::default() };
    let report = Box::new(Report::Switches(Box::new(told)));
    s.apply(now, Event::Report { link: LinkId(link), report })
}

/// An apinit has let this one run, having brought in so many bytes for so long.
fn started(
    s: &mut Scheduler,
    now: Now,
    link: u64,
    apid: u64,
    brought: u64,
    took_ms: u64,
) -> Vec<String> {
    let started = vec![key(apid, 1)];
    let gap_ns = took_ms * MS;
    let switch = Switch { generation: 1, started, gap_ns, brought, ..Switch::default() };
    let told = Switches { switches: vec![switch], ..Switches::default() };
    let report = Box::new(Report::Switches(Box::new(told)));
    let effects = s.apply(now, Event::Report { link: LinkId(link), report });
    turns_of(&effects, now)
}

fn memory(s: &Scheduler, apid: u64) -> Vec<(u32, u64)> {
    s.memory(Apid(apid)).map(|(nid, bytes)| (nid.0, bytes)).collect()
}

/// A posting with so many MiB for each PE.
fn with_memory(number: u8, width: u32, mib: u64) -> Event {
    let mut event = posted(number, width);
    let Event::Posted { posting, .. } = &mut event else { unreachable!("a posting") };
    posting.memory_per_pe = Some(mib * MIB);
    event
}

/// Lets time pass, with every tick that is asked for, until something leaves psched.
fn pass(s: &mut Scheduler, until_ms: u64) -> Option<(u64, Vec<Effect>)> {
    while let Some(at_ns) = s.deadline().filter(|at_ns| *at_ns <= until_ms * MS) {
        let effects = s.apply(Now { mono_ns: at_ns, wall_ns: at_ns + 7 }, Event::Tick);
        if !effects.is_empty() {
            return Some((at_ns / MS, effects));
        }
        assert!(s.deadline().is_none_or(|next| next > at_ns), "it is asked for again and again");
    }
    None
}

#[test]
fn who_has_more_than_its_share_counts_with_it_at_once() {
    let mut s = cluster(&[&[0], &[1]]);
    runs(&mut s, ms(0), 1, 4);
    assert_eq!(memory(&s, 1), [(0, 2 * SHARE), (1, 2 * SHARE)]);
    // Of no node of this apinit, of another incarnation, of nobody.
    peaks(&mut s, ms(1), 1, &[(key(1, 1), 1, 900), (key(1, 2), 0, 900), (key(7, 1), 0, 900)]);
    assert_eq!(memory(&s, 1), [(0, 2 * SHARE), (1, 2 * SHARE)]);
    assert_eq!(s.measured().peaks(Apid(1)).count(), 0);
    peaks(&mut s, ms(2), 1, &[(key(1, 1), 0, 900)]);
    assert_eq!(memory(&s, 1), [(0, 904 * MIB), (1, 2 * SHARE)]);
    // Less is no news.
    peaks(&mut s, ms(3), 1, &[(key(1, 1), 0, 800)]);
    assert_eq!(memory(&s, 1), [(0, 904 * MIB), (1, 2 * SHARE)]);
    // On one of the two nodes there is room.
    let effects = s.apply(ms(4), posted_at_once(2, 2));
    assert!(brief(&effects).contains(&"-> 2 place 2.1".into()), "{:?}", brief(&effects));
    s.apply(ms(5), posted(3, 4));
    let why = s.why(Apid(3)).expect("it waits").to_string();
    assert!(why.contains("of memory") && why.contains("1 of alice"), "{why}");
    // More than there is.
    peaks(&mut s, ms(6), 1, &[(key(1, 1), 0, 2_000)]);
    assert_eq!(memory(&s, 1)[0], (0, 1_024 * MIB));
    // It ends, and the third is placed.
    report_at(&mut s, 2, 1, ended(key(1, 1), &[0], None));
    let freed = report_at(&mut s, 2, 2, ended(key(1, 1), &[1], None));
    assert!(freed.contains(&"-> 1 place 3.1".into()), "{freed:?}");
}

/// For accounting.
#[test]
fn the_most_that_it_had_goes_with_its_end() {
    let mut s = cluster(&[&[0]]);
    runs(&mut s, ms(0), 1, 2);
    peaks(&mut s, ms(1), 1, &[(key(1, 1), 0, 900)]);
    peaks(&mut s, ms(2), 1, &[(key(1, 1), 0, 800)]);
    let end = HostEnd { key: key(1, 1), nids: vec![Nid(0)], ..HostEnd::default() };
    let report = Box::new(Report::Ended(Box::new(end)));
    let effects = s.apply(ms(3), Event::Report { link: LinkId(1), report });
    let peak = effects.iter().find_map(|effect| match effect {
        Effect::Keep(record) => record.team()?.end.as_ref().map(|end| end.peak_memory),
        _ => None,
    });
    assert_eq!(peak, Some(900 * MIB));
}

#[test]
fn who_has_less_counts_with_it_after_a_minute_of_its_own() {
    let mut s = cluster(&[&[0]]);
    runs(&mut s, ms(0), 1, 2);
    peaks(&mut s, ms(5_000), 1, &[(key(1, 1), 0, 10)]);
    s.apply(ms(6_000), with_memory(2, 1, 900));
    assert_eq!(s.team(Apid(2)).map(|t| t.state), Some(State::Posted));
    // Nothing is done until then.
    assert!(pass(&mut s, 59_999).is_none());
    assert_eq!(memory(&s, 1), [(0, 2 * SHARE)]);
    let (at_ms, effects) = pass(&mut s, 100_000).expect("it is placed");
    assert_eq!(at_ms, 60_000);
    assert!(brief(&effects).contains(&"-> 1 place 2.1".into()), "{:?}", brief(&effects));
    assert_eq!(memory(&s, 1), [(0, 10 * MIB)]);
    // From now on it counts with what it has, at once.
    peaks(&mut s, ms(70_000), 1, &[(key(1, 1), 0, 20)]);
    assert_eq!(memory(&s, 1), [(0, 20 * MIB)]);
    // Another machine: the same is known of it.
    let mut bigger = machine(1, 2);
    bigger.nodes.extend(machine(2, 3).nodes.into_iter().skip(1));
    s.apply(ms(71_000), Event::Machine(Box::new(bigger)));
    assert_eq!(memory(&s, 1), [(0, 20 * MIB)]);
}

#[test]
fn time_in_which_it_was_frozen_is_not_its_own() {
    let mut s = cluster(&[&[0]]);
    runs(&mut s, ms(0), 1, 2);
    runs(&mut s, ms(0), 2, 2);
    peaks(&mut s, ms(5_000), 1, &[(key(1, 1), 0, 10), (key(2, 1), 0, 10)]);
    // The first has three quarters of the time until it has had its minute; then the other has.
    while pass(&mut s, 79_600).is_some() {}
    assert_eq!([memory(&s, 1), memory(&s, 2)], [[(0, 2 * SHARE)], [(0, 2 * SHARE)]]);
    while pass(&mut s, 125_000).is_some() {}
    assert_eq!([memory(&s, 1), memory(&s, 2)], [[(0, 10 * MIB)], [(0, 2 * SHARE)]]);
    while pass(&mut s, 135_000).is_some() {}
    assert_eq!([memory(&s, 1), memory(&s, 2)], [[(0, 10 * MIB)], [(0, 10 * MIB)]]);
}

#[test]
fn who_has_said_how_much_counts_with_that() {
    let mut s = cluster(&[&[0]]);
    s.apply(ms(0), with_memory(1, 2, 100));
    report(&mut s, 1, Report::Running(key(1, 1)));
    for mib in [10, 900] {
        peaks(&mut s, ms(70_000), 1, &[(key(1, 1), 0, mib)]);
        pass(&mut s, 80_000);
        assert_eq!(memory(&s, 1), [(0, 200 * MIB)]);
    }
}

#[test]
fn who_shares_with_nobody_keeps_its_share() {
    let mut s = ready(1, 2);
    s.apply(at(0), posted(1, 1));
    report(&mut s, 1, Report::Running(key(1, 1)));
    peaks(&mut s, at(1), 1, &[(key(1, 1), 0, 900)]);
    assert_eq!(memory(&s, 1), [(0, 512 * MIB)]);
    let effects = s.apply(at(2), posted(2, 1));
    assert!(brief(&effects).contains(&"-> 1 place 2.1".into()), "{:?}", brief(&effects));
}

#[test]
fn those_who_do_not_fit_together_take_turns() {
    let mut s = cluster(&[&[0]]);
    for number in [1, 2] {
        assert!(runs(&mut s, ms(0), number, 1).is_empty());
    }
    let fit = peaks(&mut s, ms(100), 1, &[(key(1, 1), 0, 600), (key(2, 1), 0, 400)]);
    assert!(turns_of(&fit, ms(100)).is_empty());
    let full = peaks(&mut s, ms(200), 1, &[(key(2, 1), 0, 500)]);
    assert_eq!(turns_of(&full, ms(200)), ["1: agreed at +1: 1.1 750ms | 2.1 250ms"]);
    assert_eq!(ends(&mut s, ms(300), 2, &[0]), ["1: agreed at +1 since -99: 1.1 750ms"]);
    // Who competes with both of them has its turns with both, until they do not fit any more.
    runs(&mut s, ms(400), 3, 1);
    let mut fourth = with_memory(4, 2, 5);
    let Event::Posted { posting, .. } = &mut fourth else { unreachable!("a posting") };
    posting.immediate = true;
    s.apply(ms(500), fourth);
    let report = Box::new(Report::Running(key(4, 1)));
    let told = s.apply(ms(500), Event::Report { link: LinkId(1), report });
    assert_eq!(turns_of(&told, ms(500)), ["1: agreed at +1: 1.1 + 3.1 750ms | 4.1 125ms"]);
    let full = peaks(&mut s, ms(600), 1, &[(key(3, 1), 0, 500)]);
    assert_eq!(
        turns_of(&full, ms(600)),
        ["1: agreed at +1 since -99: 1.1 750ms | 4.1 250ms | 1.1 750ms | 3.1 250ms"]
    );
}

#[test]
fn who_is_found_to_fit_takes_no_turns_any_more() {
    let mut settings = settings();
    settings.turns.memory_overcommit = 2_000;
    let mut s = Scheduler::new(machine(1, 2), settings);
    link(&mut s, 1, &[0], &[]);
    s.apply(ms(0), with_memory(1, 1, 900));
    report(&mut s, 1, Report::Running(key(1, 1)));
    assert_eq!(runs(&mut s, ms(0), 2, 1), ["1: agreed at +1: 1.1 750ms | 2.1 250ms"]);
    peaks(&mut s, ms(1_000), 1, &[(key(2, 1), 0, 50)]);
    // The second leads when the first has had its minute (a little more, for it is narrow), and has had its own
    // later.
    let (at_ms, _) = pass(&mut s, 150_000).expect("another leads");
    assert!((85_000..86_500).contains(&at_ms), "{at_ms}");
    let (at_ms, effects) = pass(&mut s, 150_000).expect("they are planned anew");
    assert!((136_000..138_500).contains(&at_ms), "{at_ms}");
    let now = Now { mono_ns: at_ms * MS, wall_ns: 0 };
    let told = turns_of(&effects, now);
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told.iter().all(|plan| !plan.contains('|')), "{told:?}");
    assert_eq!(s.turn(Apid(1), (at_ms + 100) * MS), Turn::Always);
}

#[test]
fn a_slice_is_long_enough_for_what_is_brought_in() {
    let mut s = cluster(&[&[0, 1]]);
    runs(&mut s, ms(0), 1, 4);
    assert_eq!(runs(&mut s, ms(499), 2, 4), ["1: agreed at +1: 1.1 750ms | 2.1 250ms"]);
    // 500 ms of it are 5 % of ten seconds.
    let told = started(&mut s, ms(999), 1, 2, MIB, 500);
    assert_eq!(told, ["1: agreed at +1 since -499: 1.1 10.24s | 2.1 10.24s"]);
    assert!(pass(&mut s, 11_999).is_none());
    // About as long is no other cost.
    assert!(started(&mut s, ms(12_000), 1, 2, MIB, 300).is_empty());
    // Once nothing was brought in, and once more: it ends.
    assert!(started(&mut s, ms(13_000), 1, 2, 0, 0).is_empty());
    let told = started(&mut s, ms(14_000), 1, 2, 0, 0);
    assert!(told.len() == 1 && told[0].ends_with("| 2.1 250ms"), "{told:?}");
}

#[test]
fn a_gang_costs_what_it_costs_on_the_slowest_of_its_apinits() {
    let mut s = cluster(&[&[0], &[1]]);
    runs(&mut s, ms(0), 1, 4);
    for (link, brought, took_ms, most) in [
        (1, MIB, 100, 100),
        (2, MIB, 30, 100),
        (1, MIB, 20, 100),
        (1, 0, 0, 30),
        (1, 0, 9, 30),
        (2, 0, 0, 30),
        (2, MIB, 5, 5),
        (2, 0, 0, 5),
        (2, 0, 0, 0),
    ] {
        started(&mut s, ms(1), link, 1, brought, took_ms);
        assert_eq!(s.measured().bringing(Apid(1)), most * MS, "apinit {link} told of {took_ms} ms");
    }
    // Of another incarnation, and of nobody.
    for of in [key(1, 2), key(7, 1)] {
        let switch = Switch { started: vec![of], gap_ns: MS, brought: 1, ..Switch::default() };
        let told = Switches { switches: vec![switch], ..Switches::default() };
        report(&mut s, 1, Report::Switches(Box::new(told)));
        assert_eq!(s.measured().bringing(of.apid), 0);
    }
}

/// What hosts tell is the memory of nodes for which nothing is given: shares, what is refused, who sits there.
#[test]
fn memory_is_found_where_it_is_not_given() {
    let mut machine = machine(3, 2);
    for (nid, memory) in [(0, 0), (1, 0), (2, 1 << 30)] {
        machine.nodes.get_mut(&Nid(nid)).expect("there").memory = memory;
    }
    let mut s = Scheduler::new(machine.clone(), plain());
    let refused = |s: &mut Scheduler, number: u8, mib: u64| {
        let effects = s.apply(at(1), with_memory(number, 1, mib));
        effects.iter().any(|effect| matches!(effect, Effect::Refuse { .. }))
    };
    // 5 GiB of which one is given: two for each of the others.
    let tell = |s: &mut Scheduler, number: u64, nids: &[u32], gib: u64| {
        let hello = Box::new(Hello { memory: gib << 30, ..*hello(nids) });
        s.apply(at(0), Event::LinkOpened { link: LinkId(number), hello });
        let items = match s.team(Apid(1)) {
            Some(team) if team.state == State::Running => vec![(key(1, 1), Phase::Running)],
            _ => Vec::new(),
        };
        s.apply(at(0), Event::Inventory { link: LinkId(number), items });
    };
    tell(&mut s, 1, &[0, 1, 2], 5);
    let of = |s: &Scheduler| s.nodes().map(|n| n.memory >> 20).collect::<Vec<_>>();
    assert_eq!(of(&s), [2048, 2048, 1024]);
    assert!(refused(&mut s, 1, 2049) && !refused(&mut s, 2, 2048));
    assert_eq!(memory(&s, 1), [(0, 2 << 30)]);
    for said in [Report::Launched(key(1, 1)), Report::Running(key(1, 1))] {
        report(&mut s, 1, said);
    }
    s.apply(at(1), posted(3, 1));
    assert_eq!(memory(&s, 2), [(1, (2 << 30) / 2 / 4)], "a share");
    // The same again is no other machine: the link stands. Another psched.yaml leaves what was found.
    tell(&mut s, 2, &[0, 1, 2], 5);
    machine.nodes.get_mut(&Nid(1)).expect("there").flavors = crate::machine::Flavors::all();
    s.apply(at(2), Event::Machine(Box::new(machine)));
    assert_eq!(of(&s), [2048, 2048, 1024]);
    assert_eq!(memory(&s, 1), [(0, 2 << 30)]);
    // A host with less: who sits there counts with all that there is.
    tell(&mut s, 3, &[0, 1, 2], 3);
    assert_eq!(of(&s), [1024, 1024, 1024]);
    assert_eq!(memory(&s, 1), [(0, 1 << 30)]);
    assert!(refused(&mut s, 9, 1025));
}
