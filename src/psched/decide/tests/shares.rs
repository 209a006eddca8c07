//! What users have had: on record, taken up again, shown.

use super::decided::Play;
use super::*;
use crate::apteam::Apid;
use crate::apteam::protocol::turns::Switches;
use crate::apteam::record::Apteam;
use crate::gang::shares::Holder;
use crate::machine::Nid;
use crate::psched::decide::{HolderUsage, Holding, SharesRecord};
use crate::variables::{ShareBy, Variables};

const HOUR: u64 = 3_600;

/// As the daemon has them, with weights.
fn settings() -> Settings {
    let mut variables = Variables::default();
    variables.set("weight.user.bob", "2").expect("a weight");
    Settings { keeps_shares: true, ..(&variables).into() }
}

/// Alice has had half a minute of all processors when two applications of Bob's come.
fn alice_before_bob() -> Play {
    let mut play = Play::new(1, 2, settings());
    play.take(posted_by(1, "alice"));
    play.pass(30);
    play.take(posted_by(2, "bob"));
    play.take(posted_by(3, "bob"));
    play
}

fn saved(effects: Vec<Effect>) -> Vec<(String, u64)> {
    let had = |had: HolderUsage| (had.holder.to_string(), had.had_s.round() as u64);
    let of = |effect| match effect {
        Effect::Keep(Record::Shares(record)) => record.had.into_iter().map(had).collect(),
        _ => Vec::new(),
    };
    effects.into_iter().flat_map(of).collect()
}

/// An application ends, of which its node says that it has run for so many seconds.
fn end_after(play: &Play, apid: u64, seconds: u64) -> Event {
    let mut end = play.end_of(apid);
    if let Event::Report { report, .. } = &mut end
        && let Report::Ended(end) = &mut **report
    {
        end.run = std::time::Duration::from_secs(seconds);
    }
    end
}

/// Names, weights, applications, had and due in whole seconds.
fn rows(s: &Scheduler, seconds: u64) -> Vec<(String, u32, u32, u64, u64)> {
    let row = |of: Holding| {
        let (had, due) = (of.had_s.round() as u64, of.due_s.round() as u64);
        (of.holder.to_string(), of.weight, of.applications, had, due)
    };
    s.shares(at(seconds)).into_iter().map(row).collect()
}

#[test]
fn what_users_have_had_is_on_record_once_a_minute_and_is_taken_up_again() {
    let mut play = Play::new(1, 2, settings());
    play.take(posted_by(1, "alice"));
    // (No tick in between.)
    assert_eq!(play.s.deadline(), Some(60 * SECOND));
    assert_eq!(saved(play.s.apply(at(59), Event::Tick)), []);
    assert_eq!(saved(play.s.apply(at(60), Event::Tick)), [("alice".into(), 120)]);
    assert_eq!(saved(play.s.apply(at(61), Event::Tick)), []);
    // When psched is stopped, what there is.
    let last: Vec<Effect> = play.s.keep_shares(at(90)).into_iter().collect();
    assert_eq!(saved(last.clone()), [("alice".into(), 179)]);
    let Some(Effect::Keep(Record::Shares(mut record))) = last.into_iter().next() else {
        panic!("saved")
    };
    // An hour later, on a host that has just been booted.
    let mut again = Scheduler::new(machine(1, 2), settings());
    let nonsense = |holder: &str, had_s| HolderUsage { holder: holder.into(), had_s, at_ns: 0 };
    let bad = [nonsense("a", f64::NAN), nonsense("b", -1.0), nonsense("c", f64::INFINITY)];
    let now = Now { mono_ns: 5, wall_ns: at(HOUR + 90).wall_ns };
    record.had.extend(bad);
    again.has_had(now, record);
    let used: Vec<(Holder, f64)> = again
        .schedule
        .shares()
        .all(5)
        .map(|(holder, used)| (holder.clone(), (used / 1e9).round()))
        .collect();
    assert_eq!(used, [("alice".into(), 90.0)]);
}

/// Alice has an application that sleeps and one that computes, Bob one that computes and has had far more. What the first
/// gives is for her other one, until she has had as much as he has.
#[test]
fn what_a_sleeper_gives_is_for_who_would_lead_without_it() {
    let mut play = Play::new(1, 2, settings());
    let had = vec![HolderUsage { holder: "bob".into(), had_s: 100.0, at_ns: at(0).wall_ns }];
    play.s.has_had(at(0), SharesRecord { had, charged: vec![] });
    play.take(posted_by(1, "bob"));
    play.pass(2);
    play.take(posted_by(2, "alice"));
    play.pass(2);
    play.take(posted_by(3, "alice"));
    play.pass(2);
    let takers = |play: &Play| {
        play.s.schedule.takers_of(Apid(1)).iter().map(|apid| apid.0).collect::<Vec<_>>()
    };
    let (leads, other) = match play.party()[..] {
        [2] => (2, 3),
        [3] => (3, 2),
        ref party => panic!("{party:?}"),
    };
    assert_eq!(takers(&play), [other, 1]);
    // For a minute: the leader has had nothing, and its user's other one all of it.
    for second in 1..=60 {
        play.pass(1);
        let so_far = |apid, ns| (key(apid, 1), std::time::Duration::from_nanos(ns));
        let before = play.s.attained(Apid(1), at(6 + second).mono_ns).as_nanos() as u64;
        let ran = vec![
            so_far(leads, 2 * SECOND),
            so_far(other, (2 + second) * SECOND),
            so_far(1, before),
        ];
        let report = Report::Switches(Box::new(Switches { ran, ..Switches::default() }));
        play.take(Event::Report { link: LinkId(1), report: Box::new(report) });
        if play.party() == [1] || takers(&play)[0] == 1 {
            assert!(second > 20, "{second}");
            return;
        }
    }
    panic!("Bob never comes first");
}

/// psched is killed when it last put shares on record 15 s ago, and is back after 70 s. Bob's application has ended
/// meanwhile, Dave's had not begun at that record.
#[test]
fn what_is_run_while_psched_is_away_is_charged() {
    let half_life = std::time::Duration::from_secs(10_000 * HOUR);
    let settings = Settings { half_life, ..settings() };
    let mut play = Play::new(4, 2, settings.clone());
    play.take(posted_by(1, "alice"));
    play.pass(50);
    play.take(posted_by(2, "bob"));
    play.take(posted_by(3, "carol"));
    play.pass(10);
    let Some(Effect::Keep(Record::Shares(record))) = play.s.keep_shares(at(60)) else {
        panic!("kept")
    };
    play.pass(5);
    play.take(posted_by(4, "dave"));
    play.pass(10);
    let teams: Vec<Apteam> = play.s.teams().cloned().collect();
    let boots = (0..4).map(|nid| (Nid(nid), "boot-1".to_owned())).collect();
    let (now, orders) = (at(145), Default::default());
    let (s, _) = Scheduler::restore(machine(4, 2), settings, teams, boots, orders, 5, now);
    (play.s, play.ms) = (s, 145_000);
    play.s.has_had(now, record);
    play.s.started(2, "");
    play.take(Event::LinkOpened { link: LinkId(1), hello: hello(&[0, 1, 2, 3]) });
    let phase = |n| if n == 2 { Phase::Ended } else { Phase::Running };
    let items = (1..5).map(|n| (key(n, 1), phase(n))).collect();
    play.take(Event::Inventory { link: LinkId(1), items });
    let seconds = std::time::Duration::from_secs;
    play.take(end_after(&play, 2, 40));
    let ran = [(1, 145), (3, 95), (4, 80)].map(|(n, ran)| (key(n, 1), seconds(ran))).to_vec();
    let switches = Switches { ran, ..Switches::default() };
    let report = Box::new(Report::Switches(Box::new(switches)));
    play.take(Event::Report { link: LinkId(1), report });
    let had = |play: &Play| rows(&play.s, play.ms / 1_000).into_iter().map(|row| row.3);
    assert_eq!(had(&play).collect::<Vec<_>>(), [290, 80, 190, 160]);
    // Once only.
    play.pass(10);
    assert_eq!(had(&play).collect::<Vec<_>>(), [310, 80, 210, 180]);
    let Some(Effect::Keep(Record::Shares(record))) = play.s.keep_shares(at(155)) else {
        panic!("kept")
    };
    let charged = record.charged.iter().map(|(apid, time)| (apid.0, time.as_secs_f64().round()));
    assert_eq!(charged.collect::<Vec<_>>(), [(1, 155.0), (3, 105.0), (4, 90.0)]);
}

#[test]
fn who_has_had_what_and_what_is_due() {
    let mut play = alice_before_bob();
    let [alice, bob] = &rows(&play.s, 30)[..] else { panic!("two") };
    assert_eq!(*alice, ("alice".into(), 1, 1, 60, 20));
    assert_eq!(*bob, ("bob".into(), 2, 2, 0, 40));
    play.pass(10);
    // Nothing is due to one who wants nothing.
    play.ends(1);
    let [alice, bob] = &rows(&play.s, 40)[..] else { panic!("two") };
    assert!(alice.2 == 0 && alice.4 == 0 && bob.3 == bob.4, "{alice:?} {bob:?}");
    assert_eq!(play.s.share_rules(), (ShareBy::User, std::time::Duration::from_secs(HOUR)));
}

/// Alice's application has run for 0.9 s when Bob's comes: after one slice it is his turn, and not a slice later.
#[test]
fn who_has_had_less_leads_as_soon_as_others_have_had_a_slice() {
    let mut play = Play::new(1, 2, settings());
    play.take(posted_by(1, "alice"));
    play.pass_ms(900);
    play.take(posted_by(2, "bob"));
    let mut waits_ms = 0;
    while !play.is_on(2) && waits_ms < 5_000 {
        play.pass_ms(10);
        waits_ms += 10;
    }
    assert!((90..=250).contains(&waits_ms), "{waits_ms}");
    assert_eq!(play.party(), [2]);
}

#[test]
fn who_has_ended_has_had_what_it_had() {
    let mut play = Play::new(1, 2, settings());
    play.take(posted_by(1, "alice"));
    play.pass(30);
    play.ends(1);
    assert_eq!(rows(&play.s, 30), [("alice".into(), 1, 0, 60, 0)]);
}

/// Bob's application sleeps, and gives its time to Alice's: it ends before its node has told that.
#[test]
fn who_ends_has_had_what_its_node_says() {
    let mut play = Play::new(1, 2, settings());
    play.take(posted_by(1, "alice"));
    play.pass(2);
    play.take(posted_by(2, "bob"));
    play.pass(4);
    play.take(end_after(&play, 2, 1));
    let [_, bob] = &rows(&play.s, 6)[..] else { panic!("two") };
    assert_eq!(bob.3, 2);
}

/// Alice's application sleeps alone for most of its time, as her node says: she is charged for the rest.
#[test]
fn who_sleeps_alone_is_not_charged() {
    let mut play = Play::new(1, 2, settings());
    play.take(posted_by(1, "alice"));
    let [key] = play.s.teams().map(|team| team.key()).collect::<Vec<_>>()[..] else {
        panic!("one")
    };
    let tells = |ran: u64, idle: u64| {
        let told = |seconds| vec![(key, std::time::Duration::from_secs(seconds))];
        let told = Switches { ran: told(ran), idle: told(idle), ..Switches::default() };
        let report = Box::new(Report::Switches(Box::new(told)));
        Event::Report { link: LinkId(1), report }
    };
    play.pass(30);
    play.take(tells(30, 10));
    play.take(tells(30, 15));
    let had = |play: &Play, seconds| rows(&play.s, seconds)[0].3;
    assert_eq!(had(&play, 30), 10, "two processors for five seconds");
    play.pass(40);
    play.take(tells(40, 10));
    assert_eq!(had(&play, 40), 10);
    // Its end does not charge it all the same.
    let end = end_after(&play, 1, 41);
    play.pass(41);
    play.take(end);
    assert_eq!(had(&play, 41), 12);
}

#[test]
fn the_half_life_of_the_configuration_counts_from_the_start() {
    let half_life = std::time::Duration::from_secs(60);
    let mut s = Scheduler::new(machine(1, 2), Settings { half_life, ..settings() });
    let had = vec![HolderUsage { holder: "alice".into(), had_s: 8.0, at_ns: at(0).wall_ns }];
    s.has_had(at(0), SharesRecord { had, charged: vec![] });
    assert_eq!(rows(&s, 60), [("alice".into(), 1, 0, 4, 0)]);
}

/// Who runs is known when it is said until when: one who comes first by a decision has its time bounded too.
#[test]
fn each_user_has_what_is_due_by_weight() {
    let mut play = alice_before_bob();
    play.pass(600);
    let [alice, bob] = &rows(&play.s, 630)[..] else { panic!("two") };
    // (Alice's, of level 3, comes before Bob's again when he has had 8 % more: the grain of that level.)
    assert!(alice.3.abs_diff(alice.4) <= 32 && bob.3.abs_diff(bob.4) <= 32, "{alice:?} {bob:?}");
}
