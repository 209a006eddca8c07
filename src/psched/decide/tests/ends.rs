//! Ends, and what brings them about: kills, signals, losses.

use super::*;
use crate::apteam::Apid;
use crate::apteam::change::Orders;
use crate::apteam::protocol::node::Command;
use crate::apteam::record::Apteam;
use crate::apteam::record::State;
use crate::machine::Nid;
use crate::psched::reason::sees_all;
use std::collections::BTreeMap;

#[test]
fn a_report_of_an_older_incarnation_has_no_effect() {
    let mut s = ready(1, 2);
    s.apply(at(1), posted(1, 2));
    s.apply(at(61), Event::Tick);
    report(&mut s, 1, taken_back(key(1, 1)));
    s.apply(at(70), Event::Looked { reply: ReplyId(9), apid: Apid(1) });
    s.apply(at(140), Event::Tick);
    assert_eq!(s.team(Apid(1)).map(|t| (t.key(), t.state)), Some((key(1, 2), State::TakingBack)));
    for stale in [taken_back(key(1, 1)), Report::Launched(key(1, 1)), Report::Running(key(1, 1))] {
        assert_eq!(report(&mut s, 1, stale), Vec::<String>::new());
    }
    // An old end is not wanted: the node forgets it. The present one is not ended by it.
    assert_eq!(report(&mut s, 1, ended(key(1, 1), &[0], None)), ["-> 1 discard 1.1"]);
    assert_eq!(s.team(Apid(1)).map(|t| t.state), Some(State::TakingBack));
}

/// psched was dead while a posting was launched and went: the end of one host's part is the first
/// that it hears. What is on the other hosts is not to be taken back any more.
#[test]
fn an_end_after_the_go_tells_that_all_went() {
    let mut s = Scheduler::new(machine(2, 2), alone());
    link(&mut s, 1, &[0], &[]);
    link(&mut s, 2, &[1], &[]);
    s.apply(at(1), posted(1, 4));
    let told = report(&mut s, 1, ended(key(1, 1), &[0], None));
    assert!(told.contains(&"save 1.1 running lazy".into()), "{told:?}");
    assert_eq!(brief(&s.apply(at(99), Event::Tick)), Vec::<String>::new(), "no ticket lapses");
    // The other host was switched off meanwhile.
    s.apply(at(99), Event::LinkClosed { link: LinkId(2) });
    let hello = Box::new(Hello { boot_id: "boot-2".into(), ..*hello(&[1]) });
    s.apply(at(99), Event::LinkOpened { link: LinkId(3), hello });
    let told = s.apply(at(99), Event::Inventory { link: LinkId(3), items: vec![] });
    assert!(brief(&told).contains(&"tell 1 ended 125".into()), "{told:?}");
}

/// The host of PE 0 was switched off when its own part had ended: the others would wait for it for
/// ever, in a barrier or with their output.
#[test]
fn a_head_that_is_gone_ends_the_rest() {
    let mut s = spread();
    report(&mut s, 1, Report::Running(key(1, 1)));
    report(&mut s, 1, ended(key(1, 1), &[0], None));
    let back = |s: &mut Scheduler, link, boot: &str| {
        let link = LinkId(link);
        let hello = Box::new(Hello { boot_id: boot.into(), ..*hello(&[0]) });
        s.apply(at(9), Event::LinkOpened { link, hello });
        brief(&s.apply(at(9), Event::Inventory { link, items: vec![] }))
    };
    assert_eq!(back(&mut s, 3, "boot-1"), Vec::<String>::new());
    let told = back(&mut s, 4, "boot-2");
    assert_eq!(told[1..3], ["-> 2 terminate 1.1 5", "save 1.1 running"]);
    let told = report(&mut s, 2, ended(key(1, 1), &[1], None));
    assert!(told.contains(&"tell 1 ended 125".into()), "{told:?}");
}

/// A front end that has heard of the end goes before psched has it on record, and psched dies: what
/// it decides then, of all PEs that have ended by themselves, changes nothing.
#[test]
fn a_decision_that_comes_after_the_end_is_not_its_cause() {
    let mut s = ready(1, 2);
    s.apply(at(1), posted(1, 2));
    report(&mut s, 1, Report::Launched(key(1, 1)));
    s.apply(at(2), Event::FrontGone { apid: Apid(1) });
    let all = EndCount { end: PeEnd::Exit(0), count: 2, consequence: false };
    let end = |count| HostEnd {
        key: key(1, 1),
        nids: vec![Nid(0)],
        launched: true,
        ends: vec![EndCount { count, ..all }],
        ..HostEnd::default()
    };
    let status = |s: &Scheduler, count| {
        let told = report(&mut s.clone(), 1, Report::Ended(Box::new(end(count))));
        told.into_iter().find(|effect| effect.contains("tell 1 ended")).unwrap_or_default()
    };
    assert_eq!(status(&s, 2), "now: tell 1 ended 0");
    assert_eq!(status(&s, 1), "tell 1 ended 125");
}

#[test]
fn killing_is_for_owners_and_administrators() {
    let mut s = ready(1, 2);
    s.apply(at(1), posted(1, 2));
    s.apply(at(1), posted(2, 2));
    report(&mut s, 1, Report::Running(key(1, 1)));
    let mut kill = |apid, signal, uid, administrator| {
        let apids = vec![Apid(apid)];
        brief(&s.apply(at(2), Event::Kill { reply: ReplyId(7), apids, signal, uid, administrator }))
    };
    assert!(kill(1, 0, 1001, false)[0].contains("belongs to alice"));
    assert!(kill(9, 0, 1000, false)[0].contains("there is no application 9"));
    assert!(kill(2, 10, 1000, false)[0].contains("has not started"));
    assert_eq!(
        kill(1, 0, 0, true),
        ["save 1.1 running", "-> 1 terminate 1.1 300", "log 1 signal", "killed [None]"]
    );
    assert_eq!(
        kill(1, 10, 1000, false),
        ["save 1.1 running", "-> 1 signal 1.1 10", "log 1 signal", "killed [None]"]
    );
    let waiting = kill(2, 0, 1000, false);
    assert!(waiting.contains(&"tell 2 ended 143".into()), "{waiting:?}");
}

/// A user who says it again and again fills neither the log nor a node's connection.
#[test]
fn what_is_being_ended_is_not_ended_again() {
    let mut s = ready(1, 2);
    s.apply(at(1), posted(1, 2));
    report(&mut s, 1, Report::Running(key(1, 1)));
    let mut kill = |signal| {
        let apids = vec![Apid(1)];
        let event =
            Event::Kill { reply: ReplyId(7), apids, signal, uid: 1000, administrator: false };
        brief(&s.apply(at(2), event))
    };
    assert_eq!(kill(0).len(), 4);
    for _ in 0..3 {
        assert_eq!(kill(0), ["killed [None]"]);
    }
    // KILL goes further, once.
    assert_eq!(
        kill(9),
        ["save 1.1 running", "-> 1 terminate 1.1 0", "log 1 signal", "killed [None]"]
    );
    for signal in [9, 0] {
        assert_eq!(kill(signal), ["killed [None]"]);
    }
    // A signal that does not end it is another each time.
    assert_eq!(kill(10).len(), 4);
    assert_eq!(kill(10).len(), 4);
}

/// Its nodes say it again to a psched that has died meanwhile, but not what that one had decided.
#[test]
fn what_psched_has_decided_is_told_when_it_is_on_record() {
    let by_node = Decisive { at_ns: 5, cause: Cause::PeExit { rank: 0, nid: Nid(0), code: 3 } };
    let told = |killed: bool| {
        let mut s = ready(1, 2);
        s.apply(at(1), posted(1, 2));
        report(&mut s, 1, Report::Running(key(1, 1)));
        if killed {
            let (reply, apids) = (ReplyId(7), vec![Apid(1)]);
            s.apply(
                Now { mono_ns: 4, ..at(2) },
                Event::Kill { reply, apids, signal: 9, uid: 1000, administrator: false },
            );
        }
        report(&mut s, 1, ended(key(1, 1), &[0], Some(by_node.clone())))
    };
    assert!(told(false).contains(&"now: tell 1 ended 3".into()), "{:?}", told(false));
    assert!(told(true).contains(&"tell 1 ended 137".into()), "{:?}", told(true));
}

/// A host stamps by its own clock what it has only heard of another, whose own word came later.
#[test]
fn what_a_host_has_heard_does_not_decide_against_the_host_itself() {
    let mut s = spread();
    report(&mut s, 1, Report::Running(key(1, 1)));
    let signal = Cause::PeSignal { rank: 3, nid: Nid(1), signal: 11 };
    let heard = Decisive { at_ns: 4, cause: signal };
    report(&mut s, 1, ended(key(1, 1), &[0], Some(heard)));
    let own = Decisive { at_ns: 5, cause: Cause::PeExit { rank: 1, nid: Nid(1), code: 57 } };
    let told = report(&mut s, 2, ended(key(1, 1), &[1], Some(own)));
    assert!(told.contains(&"now: tell 1 ended 57".into()), "{told:?}");
}

/// It is said again to a head that comes back, and by a psched that does, until all have it.
#[test]
fn a_signal_is_kept_until_it_has_come() {
    let mut s = spread();
    let usr1 = || {
        let (reply, apids) = (ReplyId(7), vec![Apid(1)]);
        Event::Kill { reply, apids, signal: 10, uid: 1000, administrator: false }
    };
    report(&mut s, 1, Report::Launched(key(1, 1)));
    let kept = ["save 1.1 launching", "log 1 signal", "killed [None]"];
    assert_eq!(brief(&s.apply(at(2), usr1())), kept, "nobody is there to take it");
    let running = report(&mut s, 1, Report::Running(key(1, 1)));
    assert!(running.contains(&"-> 1 signal 1.1 10".into()), "{running:?}");
    let numbers = |s: &Scheduler| -> Vec<u64> {
        s.team(Apid(1)).into_iter().flat_map(|t| &t.signals).map(|s| s.number).collect()
    };
    // The head is away.
    s.apply(at(3), Event::LinkClosed { link: LinkId(1) });
    let kept = ["save 1.1 running", "log 1 signal", "killed [None]"];
    assert_eq!(brief(&s.apply(at(3), usr1())), kept);
    let [first, second] = numbers(&s)[..] else { panic!("{:?}", numbers(&s)) };
    assert!(PSCHED_SIGNALS < first && first < second, "{first} {second}");
    let records = s.teams().cloned().collect();
    let (mut s, _) = Scheduler::restore(
        machine(2, 2),
        alone(),
        records,
        BTreeMap::new(),
        Orders::default(),
        2,
        at(4),
    );
    let again = brief(&link(&mut s, 3, &[0], &[(key(1, 1), Phase::Running)]));
    assert_eq!(again.iter().filter(|e| *e == "-> 3 signal 1.1 10").count(), 2, "{again:?}");
    let other = brief(&link(&mut s, 4, &[1], &[(key(1, 1), Phase::Running)]));
    assert!(!other.iter().any(|e| e.contains("signal")), "{other:?}");
    let taken = |number| Report::SignalsTaken { key: key(1, 1), number };
    assert_eq!(report(&mut s, 3, taken(first)), ["save 1.1 running lazy"]);
    assert_eq!(numbers(&s), [second]);
    assert_eq!(report(&mut s, 3, taken(first)), [""; 0]);
    // There is an end to what is kept.
    let full = (0..20).map(|_| brief(&s.apply(at(5), usr1())).concat());
    assert_eq!(full.filter(|said| said.contains("have not reached all its nodes")).count(), 5);
}

/// With a full disk they leave before their records, which a psched that is killed then takes with
/// it; the clock may be set back meanwhile. A number that its node has seen would be taken for a
/// repetition.
#[test]
fn a_psched_that_forgot_its_signals_does_not_give_their_numbers_again() {
    let mut s = spread();
    report(&mut s, 1, Report::Running(key(1, 1)));
    let records: Vec<Apteam> = s.teams().cloned().collect();
    let mut last = PSCHED_SIGNALS;
    for start in 1..4 {
        let (boots, orders) = (BTreeMap::new(), Orders::default());
        let now = at(100 - 10 * start);
        (s, _) = Scheduler::restore(machine(2, 2), alone(), records.clone(), boots, orders, 2, now);
        s.started(start, "");
        link(&mut s, 1, &[0], &[(key(1, 1), Phase::Running)]);
        for _ in 0..start + 1 {
            let (reply, apids) = (ReplyId(7), vec![Apid(1)]);
            let usr1 = Event::Kill { reply, apids, signal: 10, uid: 1000, administrator: false };
            let effects = s.apply(now, usr1);
            let given = effects.iter().find_map(|effect| match effect {
                Effect::Command { command: Command::Signal { signal, .. }, .. } => {
                    Some(signal.number)
                }
                _ => None,
            });
            let given = given.expect("it runs");
            assert!(given > last, "{given} after {last} in start {start}");
            last = given;
        }
    }
}

/// Two pscheds start on one copy of the store and may place an application on different nodes, under one key:
/// an aprun that has the placement of one must not launch that of the other.
#[test]
fn each_placement_of_each_start_has_a_ticket_of_its_own() {
    let mut s = Scheduler::new(machine(1, 1), alone());
    s.started(1, "one");
    link(&mut s, 1, &[0], &[]);
    s.apply(at(1), posted(1, 1));
    s.apply(at(1), posted(2, 1));
    let records: Vec<Apteam> = s.teams().cloned().collect();
    let ticket = |s: &Scheduler| {
        let team = s.team(Apid(2)).expect("it waits");
        assert_eq!(team.state, State::Placed);
        team.ticket
    };
    let placed_by = |start: &str| {
        let (boots, orders) = (BTreeMap::new(), Orders::default());
        let now = at(2);
        let (mut s, _) =
            Scheduler::restore(machine(1, 1), alone(), records.clone(), boots, orders, 3, now);
        s.started(2, start);
        link(&mut s, 1, &[0], &[(key(1, 1), Phase::Placed)]);
        report(&mut s, 1, ended(key(1, 1), &[0], None));
        let first = ticket(&s);
        s.apply(at(100), Event::Tick);
        report(&mut s, 1, taken_back(key(2, 1)));
        s.apply(at(101), Event::Looked { reply: ReplyId(9), apid: Apid(2) });
        [first, ticket(&s)]
    };
    let (one, other) = (placed_by("two"), placed_by("another two"));
    assert_eq!(one, placed_by("two"));
    let tickets = [records[1].ticket, one[0], one[1], other[0], other[1]];
    for (at, ticket) in tickets.iter().enumerate() {
        assert!(!tickets[..at].contains(ticket), "{at}");
    }
}

/// It passes signals on to the other hosts, also when its own part has ended and it speaks of it no more.
#[test]
fn a_head_that_was_away_hears_of_signals_after_its_own_end() {
    let mut s = spread();
    report(&mut s, 1, Report::Running(key(1, 1)));
    report(&mut s, 1, ended(key(1, 1), &[0], None));
    s.apply(at(2), Event::LinkClosed { link: LinkId(1) });
    let (reply, apids) = (ReplyId(7), vec![Apid(1)]);
    s.apply(at(2), Event::Kill { reply, apids, signal: 10, uid: 1000, administrator: false });
    let back = brief(&link(&mut s, 3, &[0], &[]));
    assert!(back.contains(&"-> 3 signal 1.1 10".into()), "{back:?}");
}

#[test]
fn a_kill_after_a_term_reaches_a_node_that_was_away() {
    let mut s = ready(1, 2);
    s.apply(at(1), posted(1, 2));
    report(&mut s, 1, Report::Running(key(1, 1)));
    s.apply(at(2), Event::LinkClosed { link: LinkId(1) });
    for (seconds, signal) in [(3, 0), (4, 9)] {
        let apids = vec![Apid(1)];
        let reply = ReplyId(7);
        let kill = Event::Kill { reply, apids, signal, uid: 0, administrator: true };
        s.apply(at(seconds), kill);
    }
    let effects = brief(&link(&mut s, 2, &[0], &[(key(1, 1), Phase::Running)]));
    assert_eq!(effects, ["-> 2 terminate 1.1 0"]);
}

#[test]
fn the_time_run_is_what_the_nodes_measured() {
    let mut s = ready(1, 2);
    s.apply(at(1), posted(1, 2));
    report(&mut s, 1, Report::Running(key(1, 1)));
    let Report::Ended(end) = ended(key(1, 1), &[0], None) else { panic!("an end") };
    let (run, frozen) = (Duration::from_secs(3), Duration::from_secs(2));
    let end = Box::new(HostEnd { run, frozen, ..*end });
    let late = Event::Report { link: LinkId(1), report: Box::new(Report::Ended(end)) };
    let effects = s.apply(at(90), late);
    let Effect::Keep(Record::Update { team, .. }) = &effects[0] else { panic!("{effects:?}") };
    // It ended then, and not when it would have if it had never been frozen.
    assert_eq!(team.ended_at_ns - team.running_at_ns, 5 * SECOND);
}

/// One host's part has ended badly, and its apinit has lost sight of the others.
#[test]
fn a_bad_end_of_one_host_is_told_to_the_others() {
    let mut s = Scheduler::new(machine(2, 2), alone());
    link(&mut s, 1, &[0], &[]);
    link(&mut s, 2, &[1], &[]);
    s.apply(at(0), posted(1, 4));
    let launched = Box::new(Report::Launched(key(1, 1)));
    s.apply(at(1), Event::Report { link: LinkId(1), report: launched });
    let cause = Cause::ShepherdLost { nid: Nid(0), text: "it died".into(), fault: Fault::Busy };
    let first = Some(Decisive { at_ns: 1, cause });
    let end = HostEnd { key: key(1, 1), nids: vec![Nid(0)], first, ..HostEnd::default() };
    let report = Box::new(Report::Ended(Box::new(end.clone())));
    let effects = brief(&s.apply(at(1), Event::Report { link: LinkId(1), report }));
    assert!(effects.contains(&"-> 2 terminate 1.1 5".to_owned()), "{effects:?}");
    // Again to one that was away, but not with each repetition.
    let effects = brief(&link(&mut s, 3, &[1], &[(key(1, 1), Phase::Launched)]));
    assert!(effects.contains(&"-> 3 terminate 1.1 5".to_owned()), "{effects:?}");
    let report = Box::new(Report::Ended(Box::new(end)));
    let effects = brief(&s.apply(at(2), Event::Report { link: LinkId(1), report }));
    assert_eq!(effects, ["-> 1 acknowledge 1.1"]);
}

#[test]
fn two_hosts_end_one_after_the_other_and_the_earliest_cause_counts() {
    let mut s = Scheduler::new(machine(2, 1), alone());
    link(&mut s, 1, &[0], &[]);
    link(&mut s, 2, &[1], &[]);
    let placed = brief(&s.apply(at(1), posted(1, 2)));
    assert!(placed.contains(&"-> 1 place 1.1".into()) && placed.contains(&"-> 2 place 1.1".into()));
    report(&mut s, 1, Report::Running(key(1, 1)));
    let cause =
        |code, at_ns| Some(Decisive { at_ns, cause: Cause::PeExit { rank: 0, nid: Nid(0), code } });
    let half = report(&mut s, 1, ended(key(1, 1), &[0], cause(5, 20)));
    assert_eq!(half, ["save 1.1 running", "-> 1 acknowledge 1.1"]);
    let whole = report(&mut s, 2, ended(key(1, 1), &[1], cause(6, 10)));
    assert_eq!(whole[2], "now: tell 1 ended 6");
}

#[test]
fn what_does_not_die_is_shown_as_long_as_it_is_there() {
    let mut s = Scheduler::new(machine(2, 1), alone());
    link(&mut s, 1, &[0], &[]);
    link(&mut s, 2, &[1], &[]);
    s.apply(at(1), posted(1, 2));
    let stuck = |number, nid: u32| {
        let processes = vec![format!("pid {nid}")];
        (number, Report::Stuck { key: key(1, 1), nid: Nid(nid), processes })
    };
    for (number, said) in [stuck(1, 0), stuck(2, 1)] {
        assert_eq!(report(&mut s, number, said), Vec::<String>::new());
    }
    let why = |s: &Scheduler| s.why(Apid(1)).map(|why| why.words(&sees_all).obstacle);
    assert_eq!(why(&s).as_deref(), Some("it is being ended, and pid 0; pid 1"));
    let notes = |s: &Scheduler| s.nodes().flat_map(|n| notes_said(&n.notes)).collect::<Vec<_>>();
    let line = |pid: u32| format!("application 1 is being ended, and pid {pid}");
    assert_eq!(notes(&s), [line(0), line(1)]);
    report(&mut s, 1, ended(key(1, 1), &[0], None));
    assert_eq!(notes(&s), [line(1)]);
    report(&mut s, 2, ended(key(1, 1), &[1], None));
    assert_eq!((notes(&s).len(), why(&s)), (0, None));
    // Too late, or of another launch.
    let (number, said) = stuck(1, 0);
    report(&mut s, number, said);
    assert!(notes(&s).is_empty());
}

/// It may be on a thousand hosts, of which each may say much, and one may lie.
#[test]
fn of_what_does_not_die_some_is_named() {
    let mut s = Scheduler::new(machine(3, 1), alone());
    (0..3).for_each(|nid| drop(link(&mut s, nid, &[nid as u32], &[])));
    s.apply(at(1), posted(1, 2));
    let mut stuck = |number: u64| {
        let processes = (0..20).map(|pid| format!("pid {number}:{pid}")).collect();
        let said = Report::Stuck { key: key(1, 1), nid: Nid(number as u32), processes };
        assert_eq!(report(&mut s, number, said), [""; 0]);
        let obstacle = s.why(Apid(1)).map(|why| why.words(&sees_all).obstacle).unwrap_or_default();
        let notes = s.nodes().flat_map(|n| notes_said(&n.notes)).collect::<Vec<_>>();
        (obstacle, notes)
    };
    let (obstacle, notes) = stuck(2);
    assert!(!obstacle.contains("pid 2:"), "it has no part there: {obstacle}");
    assert_eq!(notes, [""; 0]);
    stuck(0);
    let (obstacle, notes) = stuck(1);
    assert!(obstacle.ends_with("pid 0:15; 24 more"), "{obstacle}");
    assert!(notes[1].ends_with("pid 1:15; 4 more"), "{notes:?}");
}

#[test]
fn what_was_killed_goes_on_as_it_was() {
    let mut s = ready(2, 2);
    s.apply(at(1), posted(1, 3));
    report(&mut s, 1, Report::Running(key(1, 1)));
    s.apply(at(1), posted(2, 2));
    let records: Vec<Apteam> = s.teams().cloned().collect();
    let (mut again, effects) = Scheduler::restore(
        machine(2, 2),
        alone(),
        records,
        BTreeMap::new(),
        Orders::default(),
        3,
        at(2),
    );
    assert_eq!(effects, []);
    link(&mut again, 1, &[0, 1], &[(key(1, 1), Phase::Running)]);
    link(&mut s, 2, &[0, 1], &[(key(1, 1), Phase::Running)]);
    let end = ended(key(1, 1), &[0, 1], None);
    assert_eq!(report(&mut again, 1, end.clone()), {
        let mut told = report(&mut s, 2, end);
        told.iter_mut().for_each(|e| *e = e.replace("-> 2", "-> 1"));
        told
    });
    assert_eq!(again.next_apid(), s.next_apid());
}

#[test]
fn ends_are_counted_by_kind() {
    let mut ends = Vec::new();
    let end = |code| crate::apteam::ending::EndCount {
        end: PeEnd::Exit(code),
        count: 1,
        consequence: false,
    };
    for code in [1, 0, 1] {
        crate::apteam::ending::count_end(&mut ends, end(code));
    }
    assert_eq!(
        ends.iter().map(|e| (e.end, e.count)).collect::<Vec<_>>(),
        [(PeEnd::Exit(0), 1), (PeEnd::Exit(1), 2)]
    );
}

/// What its user has stopped is shown so, until the user has it go on, or ends it; by any other signal nothing
/// changes.
#[test]
fn an_application_is_stopped_until_it_is_continued_or_ended() {
    let told = |signals: &[i32]| {
        let mut s = ready(1, 2);
        s.apply(at(1), posted(1, 2));
        report(&mut s, 1, Report::Launched(key(1, 1)));
        report(&mut s, 1, Report::Running(key(1, 1)));
        for signal in signals.iter().copied() {
            let (reply, apids) = (ReplyId(7), vec![Apid(1)]);
            let administrator = signal == 0;
            s.apply(at(2), Event::Kill { reply, apids, signal, uid: 1000, administrator });
        }
        let stopped = s.team(Apid(1)).and_then(|team| team.stopped.clone());
        (stopped.map(|by| by.uid), s.why(Apid(1)).map(|why| why.words(&sees_all)))
    };
    let [usr1, term, cont, stop, tstp] = [10, 15, 18, 19, 20];
    let (by, why) = told(&[stop]);
    assert_eq!(by, Some(1000));
    let why = why.expect("it is there");
    assert_eq!(why.obstacle, "application 1 is stopped");
    assert!(why.holder.ends_with(" has stopped it (apkill -STOP)"), "{}", why.holder);
    assert_eq!(why.cure, "apkill -CONT 1 lets it go on");
    assert_eq!(told(&[stop, usr1, tstp]).0, Some(1000));
    for signals in [&[][..], &[tstp], &[stop, cont], &[stop, term], &[stop, 0], &[stop, 9]] {
        let (by, why) = told(signals);
        assert_eq!(by, None, "{signals:?}");
        assert!(!why.is_some_and(|why| why.obstacle.contains("stopped")), "{signals:?}");
    }
}
