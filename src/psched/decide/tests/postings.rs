//! Postings: accepted or refused, waited for, placed, given back.

use super::*;
use crate::apteam::Apid;
use crate::apteam::record::State;
use crate::machine::Nid;

#[test]
fn a_posting_on_an_idle_machine_lives_and_ends() {
    let mut s = ready(2, 2);
    let effects = brief(&s.apply(at(1), posted(1, 3)));
    assert_eq!(
        effects,
        [
            "save 1.0 posted",
            "log 1 posted",
            "accept 1 1",
            "save 1.1 placed",
            "log 1 placed",
            "-> 1 place 1.1",
            "tell 1 placed",
            "usr1 1",
        ]
    );
    let looked = s.apply(at(1), Event::Looked { reply: ReplyId(9), apid: Apid(1) });
    assert_eq!(brief(&looked), ["look 9 placed 1.1"]);
    assert_eq!(
        report(&mut s, 1, Report::Launched(key(1, 1))),
        ["save 1.1 launching lazy", "log 1 launched"]
    );
    assert_eq!(
        report(&mut s, 1, Report::Running(key(1, 1))),
        ["save 1.1 running lazy", "log 1 running", "tell 1 running"]
    );
    let bad = Decisive { at_ns: 5, cause: Cause::PeExit { rank: 2, nid: Nid(1), code: 3 } };
    let end = ended(key(1, 1), &[0, 1], Some(bad));
    assert_eq!(
        report(&mut s, 1, end.clone()),
        ["save 1.1 ended", "log 1 ended", "now: tell 1 ended 3", "-> 1 acknowledge 1.1"]
    );
    // Repeated because the acknowledgement was lost: the node need wait for nothing of it.
    assert_eq!(report(&mut s, 1, end), ["-> 1 discard 1.1"]);
    assert_eq!(s.teams().count(), 0);
}

#[test]
fn the_same_posting_twice_is_one_application() {
    let mut s = ready(1, 2);
    s.apply(at(1), posted(1, 1));
    assert_eq!(brief(&s.apply(at(1), posted(1, 1))), ["accept 1 1", "tell 1 placed"]);
    assert_eq!(s.teams().count(), 1);
}

#[test]
fn an_impossible_posting_is_refused_and_leaves_no_record() {
    let mut s = ready(2, 2);
    assert_eq!(brief(&s.apply(at(1), posted(1, 5))), ["refuse 1 Impossible"]);
    assert_eq!(s.teams().count(), 0);
}

#[test]
fn a_posting_waits_and_a_smaller_one_passes() {
    let mut s = ready(2, 2);
    s.apply(at(1), posted(1, 3));
    assert_eq!(
        brief(&s.apply(at(1), posted(2, 2))),
        ["save 2.0 posted", "log 2 posted", "accept 2 2"]
    );
    let third = brief(&s.apply(at(1), posted(3, 1)));
    assert!(third.contains(&"-> 1 place 3.1".into()), "{third:?}");
    let why = s.why(Apid(2)).expect("it waits").to_string();
    assert!(why.contains("1 of alice"), "{why}");
    let freed = report(&mut s, 1, ended(key(1, 1), &[0, 1], None));
    assert!(freed.contains(&"-> 1 place 2.1".into()), "{freed:?}");
}

/// Its aprun was cut off before it had the answer: it has not heard of its place either.
#[test]
fn a_posting_sent_again_is_told_that_it_has_a_place() {
    let mut s = ready(1, 2);
    s.apply(at(1), posted(1, 2));
    assert_eq!(brief(&s.apply(at(2), posted(1, 2))), ["accept 1 1", "tell 1 placed"]);
    assert_eq!(brief(&s.apply(at(3), posted(2, 2)))[2..], ["accept 2 2"]);
    assert_eq!(brief(&s.apply(at(4), posted(2, 2))), ["accept 2 2"]);
}

#[test]
fn a_silent_front_end_loses_its_place_and_waits_again() {
    let mut s = ready(1, 2);
    s.apply(at(1), posted(1, 2));
    assert_eq!(s.deadline(), Some(61 * SECOND));
    assert_eq!(brief(&s.apply(at(60), Event::Tick)), Vec::<String>::new());
    let taken = brief(&s.apply(at(61), Event::Tick));
    assert_eq!(taken, ["-> 1 take-back 1.1", "save 1.1 taking-back", "log 1 silent"]);
    // Nothing is anybody else's before the node has said so.
    assert!(!brief(&s.apply(at(62), posted(2, 2))).contains(&"-> 1 place 2.1".into()));
    let back = report(&mut s, 1, taken_back(key(1, 1)));
    assert!(back.contains(&"save 1.1 lapsed".into()) && back.contains(&"-> 1 place 2.1".into()));
    let looked = brief(&s.apply(at(70), Event::Looked { reply: ReplyId(9), apid: Apid(1) }));
    assert_eq!(looked, ["save 1.1 posted", "log 1 waiting", "look 9 waiting"]);
    // It is again before those that came later, and gets a new incarnation.
    s.apply(at(71), posted(3, 2));
    let placed = report(&mut s, 1, ended(key(2, 1), &[0], None));
    assert!(placed.contains(&"-> 1 place 1.2".into()), "{placed:?}");
}

#[test]
fn a_launch_that_crosses_the_taking_back_stands() {
    let mut s = ready(1, 2);
    s.apply(at(1), posted(1, 2));
    s.apply(at(61), Event::Tick);
    assert_eq!(
        report(&mut s, 1, Report::Launched(key(1, 1))),
        ["save 1.1 launching lazy", "log 1 launched"]
    );
    // The late acknowledgement of an older question changes nothing of it... it can't come from a
    // node that launched; a stale incarnation has no effect either.
    assert_eq!(report(&mut s, 1, taken_back(key(1, 9))), Vec::<String>::new());
    assert_eq!(s.team(Apid(1)).expect("there").state, State::Launching);
}

/// A host that was switched off while its place was asked back has said that it has nothing of it;
/// then the head, which could not be heard, tells that all went.
#[test]
fn what_was_given_back_and_had_gone_is_lost() {
    let mut s = spread();
    s.apply(at(70), Event::Tick);
    report(&mut s, 2, taken_back(key(1, 1)));
    let told = report(&mut s, 1, Report::Running(key(1, 1)));
    assert!(told.contains(&"-> 1 terminate 1.1 5".into()), "{told:?}");
    let told = report(&mut s, 1, ended(key(1, 1), &[0], None));
    assert!(told.contains(&"now: tell 1 ended 125".into()), "{told:?}");
    // The other way round it is the same, once it has been asked again.
    let mut s = spread();
    s.apply(at(70), Event::Tick);
    report(&mut s, 1, Report::Running(key(1, 1)));
    assert_eq!(report(&mut s, 2, taken_back(key(1, 1))), ["-> 2 take-back 1.1"]);
    let told = report(&mut s, 2, taken_back(key(1, 1)));
    assert!(told.contains(&"-> 1 terminate 1.1 5".into()), "{told:?}");
    let told = report(&mut s, 1, ended(key(1, 1), &[0], None));
    assert!(told.contains(&"now: tell 1 ended 125".into()), "{told:?}");
}

#[test]
fn a_dead_front_end_takes_its_posting_with_it() {
    let mut s = ready(1, 2);
    s.apply(at(1), posted(1, 2));
    s.apply(at(1), posted(2, 1));
    assert_eq!(
        brief(&s.apply(at(2), Event::FrontGone { apid: Apid(2) })),
        ["save 2.0 ended", "log 2 ended", "tell 2 ended 125"]
    );
    assert_eq!(
        brief(&s.apply(at(2), Event::FrontGone { apid: Apid(1) })),
        ["-> 1 take-back 1.1", "save 1.1 taking-back"]
    );
    let back = report(&mut s, 1, taken_back(key(1, 1)));
    assert_eq!(back, ["save 1.1 ended", "log 1 ended", "tell 1 ended 125"]);
}

#[test]
fn the_table_of_records_and_nodes() {
    // A node that has something of which there is no record.
    let mut s = ready(1, 2);
    let effects = brief(&link(&mut s, 2, &[0], &[(key(77, 1), Phase::Running)]));
    assert_eq!(effects, ["warn", "-> 2 discard 77.1"]);
    // One that has ended, whose node has not heard that its report has come, is no surprise.
    let effects = brief(&link(&mut s, 2, &[0], &[(key(76, 1), Phase::Ended)]));
    assert_eq!(effects, ["-> 2 discard 76.1"]);
    // Running in the records, not there, same boot.
    s.apply(at(1), posted(1, 2));
    report(&mut s, 2, Report::Running(key(1, 1)));
    let effects = brief(&link(&mut s, 3, &[0], &[]));
    assert_eq!(effects, ["log 1 lost", "save 1.1 ended", "log 1 ended", "tell 1 ended 125"]);
    // An older incarnation.
    s.apply(at(1), posted(2, 2));
    let effects =
        brief(&link(&mut s, 4, &[0], &[(key(2, 0), Phase::Running), (key(2, 1), Phase::Running)]));
    assert_eq!(
        effects,
        ["warn", "-> 4 discard 2.0", "save 2.1 running lazy", "log 2 running", "tell 2 running"]
    );
}

#[test]
fn a_refused_store_leaves_nothing() {
    let mut s = ready(1, 1);
    s.apply(at(1), posted(1, 1));
    let undone = s.apply(at(1), Event::StoreRefused { apid: Apid(1), why: "full".into() });
    assert_eq!(brief(&undone), ["-> 1 discard 1.1", "warn"]);
    assert!(brief(&s.apply(at(1), posted(1, 1))).contains(&"-> 1 place 2.1".into()));
}

#[test]
fn one_user_only_where_there_is_no_privilege() {
    let settings = Settings { only_uid: Some(61234), ..alone() };
    let mut s = Scheduler::new(machine(1, 1), settings);
    assert_eq!(brief(&s.apply(at(1), posted(1, 1))), ["refuse 1 NotAllowed"]);
}

/// What is said of when a posting gets its place is what the scheduler will do.
#[test]
fn when_a_posting_gets_its_place() {
    let when = |s: &Scheduler, apid| s.why_and_when(Apid(apid)).map(|(_, when)| when);
    let mut s = ready(2, 1);
    s.apply(at(0), posted(1, 1));
    report(&mut s, 1, Report::Running(key(1, 1)));
    s.apply(at(1), posted(2, 2));
    let longest = plain().turns.longest_wait.as_secs();
    assert_eq!(when(&s, 1), Some(When::Unknown), "it has a place");
    assert_eq!(when(&s, 2), Some(When::KeptAt(at(1 + longest).wall_ns)));
    // Until then others are placed past it; from then on none is.
    s.apply(at(longest), posted(3, 1));
    assert_eq!(s.team(Apid(3)).map(|t| t.state), Some(State::Placed));
    assert_eq!(when(&s, 2), Some(When::KeptAt(at(1 + longest).wall_ns)));
    let gone = Box::new(not_launched(key(3, 1), &[1], None));
    s.apply(at(longest), Event::Report { link: LinkId(1), report: gone });
    s.apply(at(1 + longest), Event::Tick);
    assert_eq!(when(&s, 2), Some(When::Kept));
    s.apply(at(1 + longest), posted(4, 1));
    assert_eq!(s.team(Apid(4)).map(|t| t.state), Some(State::Posted));
    // It waits for them, and so for the same bound of its own.
    assert_eq!(when(&s, 4), Some(When::KeptAt(at(1 + 2 * longest).wall_ns)));
    let by = By { uid: 0, name: "root".into(), at_ns: 7 };
    let apids = [Apid(2)].into();
    s.apply(at(2 + longest), Event::Hold { reply: ReplyId(9), apids, hold: true, by });
    assert_eq!(when(&s, 2), Some(When::Held));
    assert_eq!(when(&s, 9), None);
}

/// Nodes are kept for the first of the line only: of those behind it nothing is known.
#[test]
fn far_back_in_line_nothing_is_known() {
    let mut s = ready(1, 1);
    for number in 1..=66 {
        s.apply(at(0), posted(number, 1));
    }
    let when = |apid| s.why_and_when(Apid(apid)).map(|(_, when)| when);
    let bound = at(plain().turns.longest_wait.as_secs()).wall_ns;
    assert_eq!([when(65), when(66)], [Some(When::KeptAt(bound)), Some(When::Unknown)]);
}
