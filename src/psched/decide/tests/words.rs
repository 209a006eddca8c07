//! What a host says of others does not count.

use super::*;
use crate::apteam::protocol::node::{ClockTold, HostNote, NoteAbout, RollOut};
use crate::apteam::protocol::turns::{Switch, Switches};
use crate::apteam::record::State;
use crate::psched::decide::words::CLOCK_SET;

fn state(s: &Scheduler) -> State {
    s.team(Apid(1)).map_or(State::Ended, |team| team.state)
}

/// Application 1 runs on NID 0 of link 1 and NID 1 of link 2.
fn runs() -> Scheduler {
    let mut s = spread();
    report(&mut s, 1, Report::Launched(key(1, 1)));
    report(&mut s, 1, Report::Running(key(1, 1)));
    assert_eq!(state(&s), State::Running);
    s
}

#[test]
fn a_host_can_t_free_the_processors_of_another() {
    let mut s = runs();
    report(&mut s, 2, ended(key(1, 1), &[0, 1], Some(bad(1))));
    assert_eq!(state(&s), State::Running);
    // What it said of its own nodes counts, and of the other one's only that one's word.
    let told = report(&mut s, 1, ended(key(1, 1), &[0], None));
    assert!(told.contains(&"now: tell 1 ended 125".to_owned()), "{told:?}");
    // Nor one that has no part of it at all, whichever nodes it names.
    let mut s = Scheduler::new(machine(3, 2), alone());
    (0..3).for_each(|nid| drop(link(&mut s, nid, &[nid as u32], &[])));
    s.apply(at(1), posted(1, 4));
    report(&mut s, 0, Report::Launched(key(1, 1)));
    for nids in [&[0, 1][..], &[2], &[0, 1, 2]] {
        let told = report(&mut s, 2, ended(key(1, 1), nids, Some(bad(2))));
        assert_eq!(told, ["-> 2 discard 1.1"]);
        let team = s.team(Apid(1)).expect("it runs");
        assert_eq!((team.state, &team.doomed, &team.end), (State::Launching, &None, &None));
    }
    // Nor is one that waits ended by a host that never had it.
    s.apply(at(1), posted(2, 4));
    let waits = s.team(Apid(2)).expect("it waits").key();
    assert_eq!(report(&mut s, 2, ended(waits, &[2], None)), [format!("-> 2 discard {waits}")]);
    assert_eq!(s.team(Apid(2)).map(|team| team.state), Some(State::Posted));
    // One that has ended before it may forget.
    assert_eq!(report(&mut s, 2, ended(key(7, 1), &[0], None)), ["-> 2 discard 7.1"]);
}

#[test]
fn the_host_of_pe_0_alone_says_what_it_alone_knows() {
    let mut s = spread();
    for word in [Report::Launched(key(1, 1)), Report::Running(key(1, 1))] {
        assert_eq!(report(&mut s, 2, word), [""; 0]);
    }
    assert_eq!(state(&s), State::Placed);
    let mut s = runs();
    s.apply(
        at(1),
        Event::Kill {
            reply: ReplyId(3),
            apids: vec![Apid(1)],
            signal: 12,
            uid: 1000,
            administrator: false,
        },
    );
    report(&mut s, 2, Report::SignalsTaken { key: key(1, 1), number: u64::MAX });
    assert_eq!(s.team(Apid(1)).map(|team| team.signals.len()), Some(1));
    report(&mut s, 1, Report::SignalsTaken { key: key(1, 1), number: u64::MAX });
    assert_eq!(s.team(Apid(1)).map(|team| team.signals.len()), Some(0));
}

/// Neither by a report nor by an inventory.
#[test]
fn a_host_without_pe_0_makes_nothing_launched_or_running() {
    for phase in [Phase::Launched, Phase::Running, Phase::Ended] {
        let mut s = spread();
        assert_eq!(brief(&link(&mut s, 3, &[1], &[(key(1, 1), phase)])), [""; 0]);
        assert_eq!(state(&s), State::Placed);
        s.apply(at(70), Event::Tick);
        link(&mut s, 4, &[1], &[(key(1, 1), phase)]);
        assert_eq!(state(&s), State::TakingBack);
        // Nor by the end of its part, and that is no launch either.
        report(&mut s, 4, ended(key(1, 1), &[1], Some(bad(1))));
        assert_eq!(state(&s), State::TakingBack);
        // The head was launched in the same moment.
        report(&mut s, 1, Report::Launched(key(1, 1)));
        assert_eq!(state(&s), State::Launching);
        link(&mut s, 5, &[1], &[(key(1, 1), Phase::Running)]);
        assert_eq!(state(&s), State::Launching);
        link(&mut s, 6, &[0], &[(key(1, 1), Phase::Running)]);
        assert_eq!(state(&s), State::Running);
    }
}

/// The host of PE 0 was restarted before psched had heard of the launch.
#[test]
fn what_the_head_has_lost_is_not_waited_for() {
    let mut s = spread();
    s.apply(at(70), Event::Tick);
    assert_eq!(report(&mut s, 2, Report::Launched(key(1, 1))), [""; 0], "it may be late");
    assert_eq!(report(&mut s, 1, taken_back(key(1, 1))), ["-> 2 take-back 1.1"]);
    assert_eq!(report(&mut s, 2, Report::Launched(key(1, 1))), ["-> 2 terminate 1.1 5"]);
    let again = brief(&link(&mut s, 3, &[1], &[(key(1, 1), Phase::Running)]));
    assert_eq!(again, ["-> 3 terminate 1.1 5"]);
    let over = report(&mut s, 3, ended(key(1, 1), &[1], Some(bad(1))));
    assert!(over.contains(&"save 1.1 ended".to_owned()), "{over:?}");
}

/// All other PEs have ended well. How those on the host of PE 0 ended is unknown.
#[test]
fn what_the_head_has_lost_has_not_ended_well() {
    for hears_launched in [true, false] {
        let mut s = spread();
        s.apply(at(70), Event::Tick);
        report(&mut s, 1, taken_back(key(1, 1)));
        if hears_launched {
            report(&mut s, 2, Report::Launched(key(1, 1)));
        }
        let over = report(&mut s, 2, ended(key(1, 1), &[1], None));
        assert!(over.contains(&"tell 1 ended 125".to_owned()), "{over:?}");
    }
}

#[test]
fn who_has_no_part_of_it_says_nothing_of_its_moves_and_processes() {
    let mut s = Scheduler::new(machine(3, 2), alone());
    (0..3).for_each(|nid| drop(link(&mut s, nid, &[nid as u32], &[])));
    s.apply(at(1), posted(1, 2));
    report(&mut s, 0, Report::Launched(key(1, 1)));
    report(&mut s, 0, Report::Running(key(1, 1)));
    let before = serde_json::to_value(&s).expect("a state");
    let key = key(1, 1);
    for word in [
        Report::Stuck { key, nid: Nid(0), processes: vec!["7 (x)".into()] },
        Report::Movable { key, blocker: None },
        moved(key, 1),
        Report::RolledOut { key, bytes: 1, why: None },
    ] {
        assert_eq!(report(&mut s, 2, word), [""; 0]);
    }
    assert_eq!(serde_json::to_value(&s).expect("a state"), before);
}

/// Else its root would give the gangs of other hosts slices of an hour.
#[test]
fn changes_of_party_count_where_the_gang_is() {
    let mut s = Scheduler::new(machine(3, 2), alone());
    (0..3).for_each(|nid| drop(link(&mut s, nid, &[nid as u32], &[])));
    s.apply(at(1), posted(1, 4));
    report(&mut s, 0, Report::Launched(key(1, 1)));
    report(&mut s, 0, Report::Running(key(1, 1)));
    let changes = |of: u64| {
        let change = |at: u64, gang: [Vec<Key>; 2]| {
            let [started, stopped] = gang;
            let (gap_ns, brought) = (3_600_000_000_000, 1 << 30);
            Switch { began_ns: at, started, stopped, gap_ns, brought, ..Switch::default() }
        };
        let gang = vec![key(of, 1)];
        let switches = vec![change(1, [gang.clone(), Vec::new()]), change(2, [Vec::new(), gang])];
        Report::Switches(Box::new(Switches { switches, left_out: 1, ..Switches::default() }))
    };
    let of = |s: &Scheduler| {
        let (cost, partial) = (s.measured().bringing(Apid(1)), s.measured().partial(Apid(1)));
        (cost, partial, serde_json::to_value(&s.schedule).expect("a schedule"))
    };
    let before = of(&s);
    assert_eq!(report(&mut s, 2, changes(1)), [""; 0]);
    assert_eq!(of(&s), before);
    let kept = |s: &Scheduler| {
        let all = s.measured().latest();
        all.map(|of| of.switch.started.len() + of.switch.stopped.len()).sum::<usize>()
    };
    assert_eq!(kept(&s), 0, "it would be kept");
    // It is a figure of that host alone.
    assert_eq!(
        s.measured().apinits().map(|(nid, f)| (nid.0, f.switches)).collect::<Vec<_>>(),
        [(2, 2)]
    );
    report(&mut s, 1, changes(1));
    assert_eq!(of(&s).0, 3_600_000_000_000);
}

/// Else its root would put a user behind all others for a day.
#[test]
fn nothing_has_run_for_longer_than_it_is_known() {
    let mut s = spread();
    report(&mut s, 1, Report::Launched(key(1, 1)));
    report(&mut s, 1, Report::Running(key(1, 1)));
    let ran = vec![(key(1, 1), Duration::MAX)];
    let told = Switches { ran, ..Switches::default() };
    let report = Box::new(Report::Switches(Box::new(told)));
    s.apply(at(100), Event::Report { link: LinkId(1), report });
    let most = Duration::from_secs(100) + CLOCK_SET;
    assert!(s.attained(Apid(1), at(100).mono_ns) <= most);
    for nid in [0, 1] {
        let Report::Ended(mut end) = ended(key(1, 1), &[nid], None) else { panic!("an end") };
        (end.run, end.frozen) = (Duration::MAX, Duration::MAX);
        let effects = s.apply(
            at(100),
            Event::Report {
                link: LinkId(u64::from(nid) + 1),
                report: Box::new(Report::Ended(end)),
            },
        );
        let ends = effects.iter().filter_map(|effect| match effect {
            Effect::TellEnd { end, .. } => Some((end.run, end.frozen)),
            _ => None,
        });
        let ends: Vec<_> = ends.collect();
        assert_eq!(ends.len(), usize::from(nid == 1));
        assert!(ends.iter().all(|(run, frozen)| *run <= most && *frozen <= most), "{ends:?}");
    }
}

#[test]
fn notes_of_an_application_count_where_it_is() {
    let mut s = Scheduler::new(machine(3, 2), alone());
    (0..3).for_each(|nid| drop(link(&mut s, nid, &[nid as u32], &[])));
    s.apply(at(1), posted(1, 4));
    for number in [1, 2] {
        let note = HostNote { about: NoteAbout::App(key(1, 1)), text: "hangs".into() };
        let (link, roll_out) = (LinkId(number), RollOut::Untold);
        let clock = ClockTold::default();
        s.apply(at(1), Event::Noted { link, notes: vec![note], roll_out, clock });
    }
    let notes = s.nodes().map(|node| notes_said(&node.notes).len()).collect::<Vec<_>>();
    assert_eq!(notes, [0, 1, 0]);
}

/// A line for each would fill the disk.
#[test]
fn what_is_not_on_record_is_one_line() {
    let mut s = Scheduler::new(machine(2, 2), alone());
    let items: Vec<_> = (1..=20).map(|apid| (key(apid, 1), Phase::Running)).collect();
    let warned = |told: &[Effect]| {
        let warned = told.iter().filter_map(|effect| match effect {
            Effect::Warn(text) => Some(text.clone()),
            _ => None,
        });
        warned.collect::<Vec<_>>()
    };
    let told = warned(&link(&mut s, 1, &[0], &items));
    assert_eq!(told.len(), 1);
    assert!(told[0].starts_with("NID 0 holds applications 1.1, 2.1, "), "{told:?}");
    let end = "16.1 and 4 more, which are not on record: they are ended";
    assert!(told[0].ends_with(end), "{told:?}");
    let told = warned(&link(&mut s, 2, &[1], &items[..1]));
    assert_eq!(told, ["NID 1 holds application 1.1, which is not on record: it is ended"]);
}

/// However often a host says that launches fail on another's node.
#[test]
fn hearsay_drains_no_node() {
    let spread_by = |s: &mut Scheduler, number: u8| {
        let mut event = posted(number, 4);
        if let Event::Posted { posting, owner, .. } = &mut event {
            posting.tries_again = true;
            owner.uid = 1000 + u32::from(number);
        }
        s.apply(at(1), event);
    };
    let fault = |nid: u32| {
        let (text, fault) = ("no space left".into(), Fault::Node);
        Decisive { at_ns: 7, cause: Cause::ShepherdLost { nid: Nid(nid), text, fault } }
    };
    for own_word in [false, true] {
        let mut s = Scheduler::new(machine(4, 2), alone());
        (0..4).for_each(|nid| drop(link(&mut s, nid + 1, &[nid as u32], &[])));
        for number in 1..=5 {
            spread_by(&mut s, number);
            let team = s.team(Apid(number.into())).expect("it is placed");
            let (k, nids) = (team.key(), team.places.nids().map(|nid| nid.0).collect::<Vec<_>>());
            let [first, second] = nids[..] else { panic!("two nodes") };
            report(&mut s, u64::from(first) + 1, Report::Launched(k));
            let says = if own_word { first } else { second };
            report(&mut s, u64::from(says) + 1, not_launched(k, &[says], Some(fault(first))));
            let other = if own_word { second } else { first };
            report(&mut s, u64::from(other) + 1, not_launched(k, &[other], None));
            s.apply(at(1), Event::FrontGone { apid: Apid(number.into()) });
            // (Its next try is not of interest.)
            let again = s.team(Apid(number.into())).map(|team| (team.key(), team.places.clone()));
            for (k, nid) in again.iter().flat_map(|(k, places)| places.nids().map(move |n| (k, n)))
            {
                report(&mut s, u64::from(nid.0) + 1, taken_back(*k));
            }
        }
        let closed = (0..4).any(|nid| s.closed(Nid(nid)).is_some());
        assert_eq!(closed, own_word, "own word: {own_word}");
    }
}
