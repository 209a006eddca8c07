//! Plans and how they are agreed, by examples. `1.1 + 2.1 1s` is a slice of a second that 1.1 leads.

use super::*;
use crate::apteam::Apid;
use crate::apteam::Key;
use crate::apteam::protocol::node::{ClockTold, Command};
use crate::apteam::protocol::turns::{SlicePlan, Switches};
use crate::apteam::record::Apteam;
use crate::machine::Nid;
use crate::psched::decide::ends::Said;
use std::collections::BTreeMap;

pub(super) const MS: u64 = 1_000_000;

/// Milliseconds after the beginning.
pub(super) fn ms(ms: u64) -> Now {
    Now { mono_ns: ms * MS, wall_ns: ms * MS + 7 }
}

/// With floors, three on a processor.
pub(super) fn settings() -> Settings {
    let mut settings = plain();
    settings.turns.max_resident = 3;
    settings.turns.floors = true;
    settings
}

/// Nodes of two processors, each list of them on a link of its own.
pub(super) fn cluster(links: &[&[u32]]) -> Scheduler {
    let mut s = Scheduler::new(machine(links.concat().len() as u32, 2), settings());
    for (number, nids) in (1..).zip(links) {
        link(&mut s, number, nids, &[]);
    }
    s
}

pub(super) fn turns_of(effects: &[Effect], now: Now) -> Vec<String> {
    let ago = |ns: u64| ns as i64 / MS as i64 - (now.mono_ns / MS) as i64;
    let said = |plan: &SlicePlan| {
        let slice = |slice: &crate::apteam::protocol::turns::PlannedSlice| {
            let party: Vec<String> = slice.party.iter().map(Key::to_string).collect();
            format!("{} {:?}", party.join(" + "), slice.length)
        };
        let slices: Vec<String> = plan.slices.iter().map(slice).collect();
        let word = if plan.agreed { "agreed" } else { "asked" };
        let times = match ago(plan.begins_ns) == ago(plan.from_ns) {
            true => format!("at {:+}", ago(plan.from_ns)),
            false => format!("at {:+} since {:+}", ago(plan.from_ns), ago(plan.begins_ns)),
        };
        format!("{word} {times}: {}", slices.join(" | "))
    };
    let turn = |effect: &Effect| {
        let Effect::Command { link, command } = effect else { return None };
        let text = match command {
            Command::Plan(plan) => said(plan),
            Command::AgreePlan(_) => "agree".into(),
            Command::WithdrawPlan(_) => "withdraw".into(),
            _ => return None,
        };
        Some(format!("{}: {text}", link.0))
    };
    effects.iter().filter_map(turn).collect()
}

/// Posts an application of this width, launches it, and gives what nodes are told when it runs.
pub(super) fn runs(s: &mut Scheduler, now: Now, number: u8, width: u32) -> Vec<String> {
    s.apply(now, posted_at_once(number, width));
    let key = s.team(Apid(u64::from(number))).expect("posted").key();
    assert_eq!(key.incarnation.0, 1, "{number} was not placed");
    for report in [Report::Launched(key), Report::Running(key)] {
        let link = head(s, Apid(u64::from(number)));
        let effects = s.apply(now, Event::Report { link, report: Box::new(report.clone()) });
        if matches!(report, Report::Running(_)) {
            return turns_of(&effects, now);
        }
    }
    unreachable!()
}

/// The link of the node of its PE 0.
pub(super) fn head(s: &Scheduler, apid: Apid) -> LinkId {
    let first = s.team(apid).and_then(|team| team.places.nids().next()).expect("it has a place");
    s.offered[&first]
}

fn generation(s: &Scheduler) -> u64 {
    s.plans().map(|plan| plan.generation).max().expect("a plan")
}

/// These links have the newest plan of those that are to be agreed.
fn taken(s: &mut Scheduler, now: Now, links: &[u64]) -> Vec<String> {
    let asked = s.plans().filter(|plan| !plan.agreed).map(|plan| plan.generation).max();
    let generation = asked.unwrap_or_else(|| generation(s));
    let report = |link: &u64| Event::Report {
        link: LinkId(*link),
        report: Box::new(Report::PlanTaken(generation)),
    };
    let told = links.iter().flat_map(|link| {
        let effects = s.apply(now, report(link));
        turns_of(&effects, now)
    });
    told.collect()
}

pub(super) fn ends(s: &mut Scheduler, now: Now, number: u64, nids: &[u32]) -> Vec<String> {
    let mut links: BTreeMap<Option<LinkId>, Vec<Nid>> = BTreeMap::new();
    for nid in nids.iter().map(|nid| Nid(*nid)) {
        links.entry(s.offered.get(&nid).copied()).or_default().push(nid);
    }
    let mut effects = Vec::new();
    for (link, nids) in links {
        let end = HostEnd { key: key(number, 1), nids, launched: true, ..HostEnd::default() };
        match link {
            Some(link) => {
                let report = Box::new(Report::Ended(Box::new(end)));
                effects.extend(s.apply(now, Event::Report { link, report }));
            }
            // One that is away can't say so.
            None => s.part_ended(now, end, Said::ByPsched, &mut effects),
        }
    }
    turns_of(&effects, now)
}

/// The same by the word of one of several apinits.
fn ends_on(s: &mut Scheduler, now: Now, link: u64, number: u64, nids: &[u32]) -> Vec<String> {
    let nids = nids.iter().map(|nid| Nid(*nid)).collect();
    let end = HostEnd { key: key(number, 1), nids, launched: true, ..HostEnd::default() };
    let report = Box::new(Report::Ended(Box::new(end)));
    let effects = s.apply(now, Event::Report { link: LinkId(link), report });
    turns_of(&effects, now)
}

#[test]
fn alone_there_is_nothing_to_be_planned() {
    let mut s = cluster(&[&[0, 1]]);
    assert!(runs(&mut s, ms(0), 1, 2).is_empty());
    assert!(runs(&mut s, ms(0), 2, 2).is_empty());
    assert_eq!(s.plans().count(), 0);
    assert_eq!(s.turn(Apid(1), 5 * SECOND), Turn::Always);
    assert_eq!(s.share(Apid(1), 5 * SECOND), Share { had: 1_000, due: 1_000 });
}

#[test]
fn two_that_want_the_whole_machine_take_turns() {
    let mut s = cluster(&[&[0, 1]]);
    assert!(runs(&mut s, ms(0), 1, 4).is_empty());
    // One apinit need not be agreed with. Who has come has a quarter.
    assert_eq!(runs(&mut s, ms(500), 2, 4), ["1: agreed at +1: 1.1 750ms | 2.1 250ms"]);
    let first = Turn::Runs { leads: true, until_ns: 1_251 * MS };
    assert_eq!(s.turn(Apid(1), 600 * MS), first);
    assert_eq!(s.turn(Apid(2), 600 * MS), Turn::Waits { until_ns: 1_251 * MS });
    // After eleven and a half seconds.
    assert_eq!(s.attained(Apid(2), 12_001 * MS), Duration::from_millis(2_750));
    assert_eq!(s.share(Apid(1), 10_501 * MS).due, 500);
    // The third waits until the lead that is on is over, and who has waited longest has had a part.
    assert_eq!(
        runs(&mut s, ms(1_600), 3, 4),
        ["1: agreed at +1 since -99: 1.1 750ms | 2.1 250ms | 1.1 750ms | 3.1 250ms"]
    );
    // When its leader ends another one goes on with the lead.
    assert_eq!(
        ends(&mut s, ms(1_700), 1, &[0, 1]),
        ["1: agreed at +1 since -199: 2.1 750ms | 3.1 250ms"]
    );
    assert_eq!(ends(&mut s, ms(1_800), 2, &[0, 1]), ["1: agreed at +1 since -299: 3.1 750ms"]);
    assert_eq!(s.turn(Apid(3), 1_900 * MS), Turn::Always);
    assert!(ends(&mut s, ms(1_900), 3, &[0, 1]).is_empty());
    assert_eq!(s.plans().count(), 0);
}

#[test]
fn a_plan_of_several_nodes_counts_when_all_have_it() {
    let mut s = cluster(&[&[0], &[1]]);
    runs(&mut s, ms(0), 1, 4);
    let asked = "asked at +20: 1.1 750ms | 2.1 250ms";
    assert_eq!(runs(&mut s, ms(100), 2, 4), [format!("1: {asked}"), format!("2: {asked}")]);
    assert_eq!(s.turn(Apid(2), 130 * MS), Turn::Waits { until_ns: u64::MAX });
    assert!(taken(&mut s, ms(102), &[1]).is_empty());
    // What changes meanwhile waits until it is agreed. Who comes might run on some of its apinits and
    // not on others: it is told to wait on all of them.
    assert_eq!(runs(&mut s, ms(103), 3, 4), ["1: agreed at +0: ", "2: agreed at +0: "]);
    assert_eq!(s.turn(Apid(3), 103 * MS), Turn::Waits { until_ns: u64::MAX });
    let again = "asked at +20 since +16: 1.1 750ms | 2.1 250ms | 1.1 750ms | 3.1 250ms";
    assert_eq!(
        taken(&mut s, ms(104), &[2]),
        ["1: agree".into(), "2: agree".into(), format!("1: {again}"), format!("2: {again}")]
    );
}

/// A host whose clock may be ahead by so much would begin before the others have the plan.
#[test]
fn a_plan_of_several_nodes_begins_later_by_the_worst_error_of_their_clocks() {
    for (errors_ms, lead_ms) in [([0, 0], 20), ([0, 7], 27), ([3, 7], 27), ([0, 5_000], 1_020)] {
        let mut s = cluster(&[&[0], &[1]]);
        for (link, error) in (1..).map(LinkId).zip(errors_ms) {
            let (notes, roll_out) = (Vec::new(), Default::default());
            // It has grown until the plan is made.
            let (error_ns, growth) = (error * MS / 2, error * MS * 5);
            let clock = ClockTold { error_ns, growth, ..ClockTold::default() };
            s.apply(ms(0), Event::Noted { link, notes, roll_out, clock });
        }
        runs(&mut s, ms(0), 1, 4);
        let asked = format!("asked at +{lead_ms}: 1.1 750ms | 2.1 250ms");
        assert_eq!(
            runs(&mut s, ms(100), 2, 4),
            [format!("1: {asked}"), format!("2: {asked}")],
            "{errors_ms:?}"
        );
    }
}

#[test]
fn who_ends_while_a_plan_is_asked_for_has_no_slice_in_the_next() {
    let mut s = cluster(&[&[0], &[1]]);
    runs(&mut s, ms(0), 1, 4);
    runs(&mut s, ms(100), 2, 4);
    for (link, nid) in [(1, 0), (2, 1)] {
        assert!(ends_on(&mut s, ms(102), link, 2, &[nid]).is_empty());
    }
    assert!(taken(&mut s, ms(104), &[1]).is_empty());
    let again = "asked at +20 since +16: 1.1 750ms";
    assert_eq!(
        taken(&mut s, ms(104), &[2]),
        ["1: agree".into(), "2: agree".into(), format!("1: {again}"), format!("2: {again}")]
    );
}

/// psched goes on from these records a second after the beginning, and its one apinit has them all running;
/// what is told by then.
fn restored(teams: Vec<Apteam>, settings: Settings) -> (Scheduler, Vec<Effect>) {
    let boots = [(Nid(0), "boot-1".to_owned()), (Nid(1), "boot-1".to_owned())].into();
    let items = teams.iter().map(|team| (team.key(), Phase::Running)).collect();
    let now = ms(1_000);
    let (mut s, _) =
        Scheduler::restore(machine(2, 2), settings, teams, boots, Default::default(), 3, now);
    s.started(4, "");
    assert_eq!(s.plans().count(), 0);
    s.apply(now, Event::LinkOpened { link: LinkId(1), hello: hello(&[0, 1]) });
    let effects = s.apply(now, Event::Inventory { link: LinkId(1), items });
    (s, effects)
}

/// The records have when it was launched, and its nodes how long it was frozen.
#[test]
fn after_a_restart_nodes_say_how_long_each_has_run() {
    let mut s = cluster(&[&[0, 1]]);
    runs(&mut s, ms(0), 1, 4);
    runs(&mut s, ms(0), 2, 4);
    let (mut s, _) = restored(s.teams().cloned().collect(), plain());
    assert_eq!(s.attained(Apid(1), 1_000 * MS), Duration::from_secs(1));
    let told = |ran: &[(Key, u64)]| {
        let ran = ran.iter().map(|(key, ms)| (*key, Duration::from_millis(*ms))).collect();
        let report = Box::new(Report::Switches(Box::new(Switches { ran, ..Switches::default() })));
        Event::Report { link: LinkId(1), report }
    };
    // (The last of an older incarnation, and one that is not there.)
    s.apply(ms(1_000), told(&[(key(1, 1), 400), (key(2, 1), 600), (key(2, 0), 9), (key(7, 1), 9)]));
    let had = |s: &Scheduler, apid| s.attained(Apid(apid), 1_000 * MS).as_millis();
    assert_eq!((had(&s, 1), had(&s, 2)), (400, 600));
    // Once only: another of its apinits may say a little more or less.
    s.apply(ms(1_000), told(&[(key(1, 1), 300)]));
    assert_eq!(had(&s, 1), 400);
}

/// Nobody is left with whom it would share anything, and it had a plan of the start before.
#[test]
fn after_a_restart_one_alone_is_told_so() {
    let mut s = cluster(&[&[0, 1]]);
    runs(&mut s, ms(0), 1, 4);
    runs(&mut s, ms(0), 2, 4);
    let teams: Vec<Apteam> = s.teams().filter(|team| team.apid == Apid(1)).cloned().collect();
    let (s, effects) = restored(teams, settings());
    assert_eq!(turns_of(&effects, ms(1_000)), ["1: agreed at +1: 1.1 750ms"]);
    assert_eq!(s.turn(Apid(1), 1_100 * MS), Turn::Always);
}

#[test]
fn who_is_silent_is_not_waited_for() {
    let mut s = cluster(&[&[0], &[1]]);
    runs(&mut s, ms(0), 1, 4);
    runs(&mut s, ms(100), 2, 4);
    taken(&mut s, ms(101), &[1]);
    assert_eq!(s.deadline(), Some(115 * MS));
    let effects = s.apply(ms(115), Event::Tick);
    let plan = "agreed at +1: 1.1 750ms | 2.1 250ms";
    let told = turns_of(&effects, ms(115));
    assert_eq!(told[..2], ["1: withdraw", "2: withdraw"]);
    // Who has come runs on no part of its nodes meanwhile.
    assert_eq!(told[2..4], ["1: agreed at +0: ", "2: agreed at +0: "]);
    assert_eq!(told[4..], [format!("1: {plan}"), format!("2: {plan}")]);
    // With the next plan it is not asked, unless it has been heard.
    assert_eq!(runs(&mut s, ms(200), 3, 4).len(), 2);
    assert_eq!(s.plans().filter(|plan| !plan.agreed).count(), 0);
    taken(&mut s, ms(300), &[2]);
    ends(&mut s, ms(400), 3, &[0, 1]);
    assert_eq!(s.plans().filter(|plan| !plan.agreed).count(), 1);
}

#[test]
fn a_link_that_breaks_is_waited_for_a_little() {
    let mut s = cluster(&[&[0], &[1]]);
    runs(&mut s, ms(0), 1, 4);
    runs(&mut s, ms(100), 2, 4);
    taken(&mut s, ms(101), &[1, 2]);
    let first = generation(&s);
    assert!(turns_of(&s.apply(ms(200), Event::LinkClosed { link: LinkId(2) }), ms(200)).is_empty());
    // By a plan that all have they go on.
    assert_eq!(generation(&s), first);
    // The node is back: it is told its plan. What it has to be asked is asked then.
    assert!(ends(&mut s, ms(300), 2, &[0]).is_empty());
    s.apply(ms(400), Event::LinkOpened { link: LinkId(3), hello: hello(&[1]) });
    let items = vec![(key(1, 1), Phase::Running), (key(2, 1), Phase::Running)];
    let effects = s.apply(ms(400), Event::Inventory { link: LinkId(3), items });
    assert_eq!(turns_of(&effects, ms(400)), ["3: agreed at -280: 1.1 750ms | 2.1 250ms"]);
    // Not back: it is planned without it.
    s.apply(ms(500), Event::LinkClosed { link: LinkId(3) });
    let end = HostEnd { key: key(2, 1), nids: vec![Nid(1)], ..HostEnd::default() };
    s.part_ended(ms(600), end, super::super::ends::Said::ByItsNodes, &mut Vec::new());
    assert!(turns_of(&s.apply(ms(600), Event::Tick), ms(600)).is_empty());
    assert_eq!(s.deadline(), Some(2_500 * MS));
    let effects = s.apply(ms(2_500), Event::Tick);
    assert_eq!(turns_of(&effects, ms(2_500)), ["1: agreed at +1 since -380: 1.1 750ms"]);
}

#[test]
fn another_time_slice_counts_at_once() {
    let mut s = cluster(&[&[0, 1]]);
    runs(&mut s, ms(0), 1, 4);
    runs(&mut s, ms(99), 2, 4);
    let mut settings = settings();
    settings.turns.time_slice = Duration::from_millis(100);
    let effects = s.apply(ms(299), Event::Settings(Box::new(settings.clone())));
    assert_eq!(turns_of(&effects, ms(299)), ["1: agreed at +1: 1.1 75ms | 2.1 25ms"]);
    // The same settings again change nothing.
    assert!(s.apply(ms(300), Event::Settings(Box::new(settings))).is_empty());
    // Without floors there is nothing more to say than until the first of them leaves its level.
    let mut settings = super::turns::settings();
    settings.turns.floors = false;
    let effects = s.apply(ms(20_000), Event::Settings(Box::new(settings)));
    let told = turns_of(&effects, ms(20_000));
    assert_eq!(told.len(), 1);
    assert!(told[0].starts_with("1: agreed at +1: "), "{told:?}");
    let deadline = s.deadline().expect("it is renewed");
    let effects = s.apply(Now { mono_ns: deadline, wall_ns: 0 }, Event::Tick);
    assert_eq!(turns_of(&effects, ms(0)).len(), 1);
    // With floors again: nobody goes on until he would have left his level.
    let now = Now { mono_ns: deadline + SECOND, wall_ns: 0 };
    let effects = s.apply(now, Event::Settings(Box::new(super::turns::settings())));
    let told = turns_of(&effects, now);
    assert!(told[0].contains(" 750ms") && told[0].contains(" 250ms"), "{told:?}");
}

#[test]
fn who_is_told_something_leads_at_once() {
    let mut s = cluster(&[&[0, 1]]);
    runs(&mut s, ms(0), 1, 4);
    runs(&mut s, ms(99), 2, 4);
    let kill = |apid, signal| Event::Kill {
        reply: ReplyId(9),
        apids: vec![Apid(apid)],
        signal,
        uid: 0,
        administrator: true,
    };
    let effects = s.apply(ms(199), kill(2, 10));
    assert_eq!(turns_of(&effects, ms(199)), ["1: agreed at +1: 2.1 250ms | 1.1 750ms"]);
    // It is on already: its slice goes on.
    assert!(turns_of(&s.apply(ms(299), kill(2, 10)), ms(299)).is_empty());
    // Then the other is on, and is not stopped by that again; but by what ends it. Its node says the
    // same of what its front end has sent.
    let hears = |ends| Event::Report {
        link: LinkId(1),
        report: Box::new(Report::ToHear { key: key(2, 1), ends }),
    };
    for event in [kill(2, 10), hears(false)] {
        assert!(turns_of(&s.apply(ms(699), event), ms(699)).is_empty());
    }
    let effects = s.apply(ms(799), hears(true));
    assert_eq!(turns_of(&effects, ms(799)), ["1: agreed at +1: 2.1 250ms | 1.1 750ms"]);
    // After a round anything is heard early again.
    let effects = s.apply(ms(2_399), hears(false));
    assert_eq!(turns_of(&effects, ms(2_399)), ["1: agreed at +1: 2.1 250ms | 1.1 750ms"]);
}

/// The plan by which it was to lead is withdrawn, for a node is silent: the next one says it too.
#[test]
fn who_is_told_something_leads_by_the_second_plan_as_well() {
    let mut s = cluster(&[&[0], &[1]]);
    runs(&mut s, ms(0), 1, 4);
    runs(&mut s, ms(99), 2, 4);
    taken(&mut s, ms(100), &[1, 2]);
    s.apply(
        ms(199),
        Event::Kill {
            reply: ReplyId(9),
            apids: vec![Apid(2)],
            signal: 10,
            uid: 0,
            administrator: true,
        },
    );
    taken(&mut s, ms(200), &[1]);
    let effects = s.apply(ms(214), Event::Tick);
    let plan = ": 2.1 250ms | 1.1 750ms";
    let told = turns_of(&effects, ms(214));
    let [first, second, again, ..] = &told[..] else { panic!("{told:?}") };
    assert_eq!((&first[..], &second[..]), ("1: withdraw", "2: withdraw"));
    assert!(again.ends_with(plan), "{told:?}");
}

#[test]
fn after_a_restart_plans_are_numbered_above_the_former_ones() {
    let mut s = cluster(&[&[0, 1]]);
    s.started(3, "");
    runs(&mut s, ms(0), 1, 4);
    runs(&mut s, ms(0), 2, 4);
    assert_eq!(generation(&s), (3 << 32) + 1);
    let teams: Vec<Apteam> = s.teams().cloned().collect();
    let (s, effects) = restored(teams, settings());
    assert_eq!(turns_of(&effects, ms(1_000)), ["1: agreed at +1: 1.1 750ms | 2.1 250ms"]);
    assert_eq!(generation(&s), (4 << 32) + 1);
}

#[test]
fn both_parts_of_a_component_wait_for_a_node() {
    let mut s = cluster(&[&[0], &[1, 2], &[3]]);
    for number in 1..3 {
        // One on each half, and one over both; the link in the middle is of both halves.
        runs(&mut s, ms(0), number, 4);
    }
    runs(&mut s, ms(0), 3, 8);
    taken(&mut s, ms(1), &[1, 2, 3]);
    assert_eq!(s.plans().next().expect("a plan").members.len(), 3);
    s.apply(ms(100), Event::LinkClosed { link: LinkId(2) });
    assert!(ends(&mut s, ms(200), 3, &[0, 1, 2, 3]).is_empty());
    assert_eq!(s.deadline(), Some(2_100 * MS));
}
