//! Examples, and random lives of gangs, plans and hosts under an onlooker of its own mind.

use super::*;
use crate::apteam::protocol::turns::PlannedSlice;
use crate::apteam::{Apid, Incarnation};
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;

const MS: u64 = 1_000_000;

fn key(apid: u64) -> Key {
    Key { apid: Apid(apid), incarnation: Incarnation(1) }
}

fn comes(apid: u64, processors: &[u32]) -> Event {
    let processors = processors.iter().map(|p| (Nid(0), *p)).collect();
    let gang = Gang { key: key(apid), processors, spread: false, whole: true };
    Event::Comes { gang, going: false, frozen: false, ran_ns: 0 }
}

fn found(apid: u64, processors: &[u32], frozen: bool) -> Event {
    let Event::Comes { gang, .. } = comes(apid, processors) else { unreachable!() };
    Event::Comes { gang, going: true, frozen, ran_ns: 5 }
}

/// Slices of so many milliseconds, with the party of each.
fn plan(generation: u64, begins_ms: u64, slices: &[(u64, &[u64])]) -> SlicePlan {
    let members: BTreeSet<Key> =
        slices.iter().flat_map(|(_, party)| party.iter().map(|n| key(*n))).collect();
    let slice = |(ms, party): &(u64, &[u64])| PlannedSlice {
        length: Duration::from_millis(*ms),
        party: party.iter().map(|n| key(*n)).collect(),
    };
    SlicePlan {
        generation,
        begins_ns: begins_ms * MS,
        from_ns: begins_ms * MS,
        agreed: true,
        members: members.into_iter().collect(),
        slices: slices.iter().map(slice).collect(),
        takers: Vec::new(),
    }
}

/// Applies it, and does at once what comes of it, which takes no time.
fn done(switcher: &mut Switcher, now: u64, event: Event) -> Vec<Action> {
    let (mut all, mut todo) = (Vec::new(), vec![event]);
    while let Some(event) = todo.pop() {
        for action in switcher.apply(now, event) {
            match &action {
                Action::Stop(keys) => todo.push(Event::Stopped(
                    keys.iter().map(|key| (*key, Outcome::Stopped)).collect(),
                )),
                Action::Start(keys) => {
                    todo.push(Event::Started(keys.iter().map(|key| (*key, Start::Runs)).collect()))
                }
                Action::Ran(..) => continue,
                _ => {}
            }
            all.push(action);
        }
    }
    all
}

fn running(switcher: &Switcher) -> Vec<u64> {
    switcher.running().map(|key| key.apid.0).collect()
}

/// Two gangs on the same processors; the first runs.
fn two() -> Switcher {
    let mut switcher = Switcher::default();
    done(&mut switcher, 0, Event::Begin);
    assert_eq!(done(&mut switcher, 0, comes(1, &[0, 1])), [Action::MayGo(key(1))]);
    let second = done(&mut switcher, 0, comes(2, &[1]));
    assert_eq!(second, [Action::Stop(vec![key(2)]), Action::MayGo(key(2))]);
    switcher
}

#[test]
fn without_a_plan_who_runs_runs_on() {
    let mut switcher = two();
    assert_eq!((running(&switcher), switcher.next_ns()), (vec![1], None));
    let gone = done(&mut switcher, MS, Event::Goes(key(1)));
    assert_eq!(gone[0], Action::Start(vec![key(2)]));
    assert_eq!(running(&switcher), [2]);
    assert_eq!(switcher.ran(key(2)), Some(Ran { ns: 0, since_ns: Some(MS) }));
}

#[test]
fn turns_go_by_the_clock() {
    let mut switcher = two();
    done(&mut switcher, 0, Event::Plan(plan(7, 10, &[(20, &[1]), (30, &[2])])));
    assert_eq!((running(&switcher), switcher.next_ns()), (vec![1], Some(10 * MS)));
    assert_eq!(done(&mut switcher, 10 * MS, Event::Tick), []);
    assert_eq!(switcher.next_ns(), Some(30 * MS));
    let change = done(&mut switcher, 30 * MS + 7, Event::Tick);
    let switch = Switch {
        generation: 7,
        due_ns: 30 * MS,
        began_ns: 30 * MS + 7,
        stopped: vec![key(1)],
        started: vec![key(2)],
        ..Switch::default()
    };
    let expected =
        [Action::Stop(vec![key(1)]), Action::Start(vec![key(2)]), Action::Switched(switch)];
    assert_eq!(change, expected);
    assert_eq!(switcher.next_ns(), Some(60 * MS));
    // Stopped for a long time, it comes back in the slice that is on, and not in those missed.
    let late = done(&mut switcher, 5_010 * MS + 25 * MS, Event::Tick);
    assert!(!late.iter().any(|a| matches!(a, Action::Stop(_))), "{late:?}");
    done(&mut switcher, 10_010 * MS, Event::Tick);
    assert_eq!(running(&switcher), [1]);
    assert_eq!(switcher.ran(key(2)).map(|ran| ran.ns), Some(9_980 * MS - 7));
}

/// The kernel works for the first one in the second one's turn.
#[test]
fn work_in_the_turn_of_another_is_paid_back() {
    let mut switcher = two();
    done(&mut switcher, 0, Event::Plan(plan(7, 0, &[(100, &[1]), (100, &[2])])));
    done(&mut switcher, 100 * MS, Event::Tick);
    assert_eq!(running(&switcher), [2]);
    let before = switcher.ran(key(1)).expect("it is here").ns;
    done(&mut switcher, 200 * MS, Event::Overran(key(1), 60 * MS));
    assert_eq!(switcher.ran(key(1)).expect("it is here").ns, before + 60 * MS);
    assert_eq!((running(&switcher), switcher.next_ns()), (vec![2], Some(260 * MS)));
    done(&mut switcher, 260 * MS, Event::Tick);
    assert_eq!((running(&switcher), switcher.next_ns()), (vec![1], Some(300 * MS)));
    // What is more than its turn is paid in several.
    done(&mut switcher, 300 * MS, Event::Tick);
    done(&mut switcher, 400 * MS, Event::Overran(key(1), 130 * MS));
    assert_eq!(running(&switcher), [2]);
    done(&mut switcher, 500 * MS, Event::Tick);
    assert_eq!((running(&switcher), switcher.next_ns()), (vec![2], Some(600 * MS)));
    // (Its own turn of 100 ms is no payment.)
    done(&mut switcher, 600 * MS, Event::Tick);
    assert_eq!((running(&switcher), switcher.next_ns()), (vec![2], Some(630 * MS)));
    done(&mut switcher, 630 * MS, Event::Tick);
    assert_eq!(running(&switcher), [1]);
    // A little waits until it is more.
    done(&mut switcher, 700 * MS, Event::Tick);
    done(&mut switcher, 800 * MS, Event::Overran(key(1), 15 * MS));
    assert_eq!(running(&switcher), [1]);
    // A gang that has gone is paid nothing.
    done(&mut switcher, 900 * MS, Event::Tick);
    done(&mut switcher, 950 * MS, Event::Overran(key(1), 900 * MS));
    done(&mut switcher, 960 * MS, Event::Goes(key(2)));
    done(&mut switcher, 1_000 * MS, Event::Tick);
    assert_eq!(running(&switcher), [1]);
}

/// With three on one processor those are paid who have lost time, and not who runs before the
/// debtor's turn.
#[test]
fn who_has_lost_time_has_it_back() {
    let mut switcher = Switcher::default();
    done(&mut switcher, 0, Event::Begin);
    for apid in 1..=3 {
        done(&mut switcher, 0, comes(apid, &[0]));
    }
    done(&mut switcher, 0, Event::Plan(plan(7, 0, &[(100, &[1]), (100, &[2]), (100, &[3])])));
    done(&mut switcher, 100 * MS, Event::Tick);
    done(&mut switcher, 200 * MS, Event::Overran(key(1), 50 * MS));
    assert_eq!(running(&switcher), [3]);
    done(&mut switcher, 300 * MS, Event::Tick);
    assert_eq!((running(&switcher), switcher.next_ns()), (vec![2], Some(350 * MS)));
    done(&mut switcher, 350 * MS, Event::Tick);
    assert_eq!((running(&switcher), switcher.next_ns()), (vec![1], Some(400 * MS)));
}

/// A debtor keeps its turn while its creditor can't run: a third gang has its turn on another processor
/// of the creditor. And a held creditor is paid nothing.
#[test]
fn nobody_stands_for_one_that_can_not_run() {
    let mut switcher = Switcher::default();
    done(&mut switcher, 0, Event::Begin);
    for (apid, on) in [(1, &[0][..]), (2, &[1]), (3, &[0, 1])] {
        done(&mut switcher, 0, comes(apid, on));
    }
    done(&mut switcher, 0, Event::Plan(plan(7, 0, &[(100, &[1, 2]), (100, &[3])])));
    done(&mut switcher, 100 * MS, Event::Tick);
    assert_eq!(running(&switcher), [3]);
    done(&mut switcher, 200 * MS, Event::Overran(key(1), 50 * MS));
    assert_eq!(running(&switcher), [1, 2]);
    done(&mut switcher, 300 * MS, Event::Tick);
    let held = SlicePlan { members: vec![key(1), key(2), key(3)], ..plan(8, 400, &[(100, &[1])]) };
    done(&mut switcher, 390 * MS, Event::Plan(held));
    assert_eq!(running(&switcher), [3]);
    done(&mut switcher, 400 * MS, Event::Tick);
    assert_eq!(running(&switcher), [1]);
}

/// The one that runs is held in the middle of its slice: its rival's plan comes first, and with that the
/// change.
#[test]
fn a_change_is_of_the_plan_that_made_it() {
    let mut switcher = two();
    done(&mut switcher, 0, Event::Plan(plan(7, 10, &[(900, &[1]), (900, &[2])])));
    let rival = SlicePlan { from_ns: 600 * MS, ..plan(8, 590, &[(900, &[2])]) };
    let change = done(&mut switcher, 602 * MS, Event::Plan(rival));
    let Some(Action::Switched(switch)) = change.last() else { panic!("{change:?}") };
    assert_eq!((&switch.stopped[..], &switch.started[..]), (&[key(1)][..], &[key(2)][..]));
    assert_eq!((switch.generation, switch.due_ns), (8, 600 * MS));
}

#[test]
fn who_can_not_be_stopped_keeps_its_processors() {
    let mut switcher = two();
    done(&mut switcher, 0, Event::Plan(plan(7, 10, &[(20, &[1]), (500, &[2])])));
    let stop = switcher.apply(30 * MS, Event::Tick);
    assert_eq!(stop, [Action::Stop(vec![key(1)])]);
    let failed = Event::Stopped(vec![(key(1), Outcome::Failed)]);
    assert_eq!(switcher.apply(31 * MS, failed), []);
    assert_eq!((running(&switcher), switcher.next_ns()), (vec![1], Some(131 * MS)));
    done(&mut switcher, 131 * MS, Event::Tick);
    assert_eq!(running(&switcher), [2]);
}

#[test]
fn nobody_is_let_run_before_the_others_are_stopped() {
    let mut switcher = two();
    done(&mut switcher, 0, Event::Plan(plan(7, 10, &[(20, &[1]), (500, &[2])])));
    switcher.apply(30 * MS, Event::Tick);
    assert_eq!(switcher.apply(30 * MS, Event::Tick), []);
    let three = switcher.apply(31 * MS, comes(3, &[0]));
    assert_eq!(three[1..], [Action::Stop(vec![key(3)])]);
    let late = Event::Stopped(vec![(key(1), Outcome::NotYet(2))]);
    let actions = switcher.apply(32 * MS, late);
    assert!(actions.contains(&Action::Start(vec![key(2)])), "{actions:?}");
    let started = Event::Started(vec![(key(2), Start::Runs)]);
    let actions = switcher.apply(33 * MS, started);
    let Some(Action::Switched(switch)) = actions.last() else { panic!("{actions:?}") };
    assert_eq!((switch.freeze_ns, switch.gap_ns, switch.not_yet_frozen), (2 * MS, 3 * MS, 2));
    // Whom no plan names has what the plan leaves.
    let actions = done(&mut switcher, 34 * MS, Event::Stopped(vec![(key(3), Outcome::Stopped)]));
    assert_eq!(actions[..2], [Action::MayGo(key(3)), Action::Start(vec![key(3)])]);
}

#[test]
fn what_a_former_life_has_left_runs_on_and_nothing_else() {
    let mut switcher = Switcher::default();
    assert_eq!(done(&mut switcher, 0, found(1, &[0], true)), []);
    assert_eq!(done(&mut switcher, 0, found(2, &[0, 1], false)), []);
    assert_eq!(done(&mut switcher, 0, found(3, &[2], true)), []);
    let begun = done(&mut switcher, 0, Event::Begin);
    assert_eq!(begun[0], Action::Start(vec![key(3)]));
    assert_eq!(running(&switcher), [2, 3]);
}

#[test]
fn a_watched_one_is_told_of_its_turn() {
    let mut switcher = two();
    done(&mut switcher, 0, Event::Plan(plan(7, 10, &[(20, &[1]), (30, &[2])])));
    let now = done(&mut switcher, MS, Event::Watch(key(1)));
    assert_eq!(now, [Action::HasTurn(key(1))]);
    assert_eq!(done(&mut switcher, MS, Event::Watch(key(2))), []);
    assert!(done(&mut switcher, 30 * MS, Event::Tick).contains(&Action::HasTurn(key(2))));
    assert!(!done(&mut switcher, 80 * MS, Event::Tick).contains(&Action::HasTurn(key(2))));
}

#[test]
fn a_plan_counts_when_it_is_agreed_and_until_it_is_withdrawn() {
    let mut switcher = two();
    let only =
        |agreed| SlicePlan { agreed, members: vec![key(1), key(2)], ..plan(9, 5, &[(20, &[2])]) };
    done(&mut switcher, 0, Event::Plan(only(false)));
    done(&mut switcher, 50 * MS, Event::Tick);
    assert_eq!(running(&switcher), [1]);
    done(&mut switcher, 51 * MS, Event::Agree(9));
    // One slice for ever: nothing is to be waited for.
    assert_eq!((running(&switcher), switcher.next_ns()), (vec![2], None));
    done(&mut switcher, 52 * MS, Event::Goes(key(2)));
    assert!(running(&switcher).is_empty());
    done(&mut switcher, 53 * MS, Event::Withdraw(9));
    assert_eq!(running(&switcher), [1]);
}

#[test]
fn memory_that_is_out_comes_first_and_is_no_time_run() {
    let mut switcher = two();
    done(&mut switcher, 0, Event::Plan(plan(7, 10, &[(20, &[1]), (500, &[2])])));
    switcher.apply(0, Event::Watch(key(2)));
    switcher.apply(30 * MS, Event::Tick);
    let stopped = Event::Stopped(vec![(key(1), Outcome::Stopped)]);
    let start = switcher.apply(31 * MS, stopped);
    assert_eq!(start.last(), Some(&Action::Start(vec![key(2)])));
    let waits = Event::Started(vec![(key(2), Start::MemoryComes)]);
    let change = switcher.apply(31 * MS, waits);
    let [Action::Switched(switch)] = &change[..] else { panic!("{change:?}") };
    // The change is over for those who run; this one is not among them.
    assert_eq!(
        (switch.gap_ns, &switch.stopped[..], &switch.started[..]),
        (MS, &[key(1)][..], &[][..])
    );
    assert_eq!((running(&switcher), switcher.ran(key(2))), (vec![2], Some(Ran::default())));
    let runs = switcher.apply(70 * MS, Event::Brought(key(2), 5 << 20));
    let told = Switch {
        generation: 7,
        due_ns: 30 * MS,
        began_ns: 30 * MS,
        gap_ns: 40 * MS,
        started: vec![key(2)],
        brought: 5 << 20,
        ..Switch::default()
    };
    let ran = Ran { ns: 0, since_ns: Some(70 * MS) };
    let expected = [Action::Switched(told), Action::Ran(key(2), ran), Action::HasTurn(key(2))];
    assert_eq!(runs, expected);
    assert_eq!(switcher.apply(71 * MS, Event::Brought(key(2), 9)), []);
}

#[test]
fn who_waits_for_its_memory_is_stopped_like_one_that_runs() {
    let mut switcher = two();
    done(&mut switcher, 0, Event::Plan(plan(7, 10, &[(20, &[1]), (30, &[2])])));
    switcher.apply(30 * MS, Event::Tick);
    switcher.apply(30 * MS, Event::Stopped(vec![(key(1), Outcome::Stopped)]));
    switcher.apply(30 * MS, Event::Started(vec![(key(2), Start::MemoryComes)]));
    let stop = switcher.apply(60 * MS, Event::Tick);
    assert_eq!(stop, [Action::Stop(vec![key(2)])]);
    // Its memory comes too late.
    assert_eq!(switcher.apply(60 * MS, Event::Brought(key(2), 1)), []);
    let start = switcher.apply(60 * MS, Event::Stopped(vec![(key(2), Outcome::NotIn(9))]));
    let told = start.iter().find_map(|action| match action {
        Action::Switched(switch) => Some((switch.gap_ns, switch.brought, &switch.started[..])),
        _ => None,
    });
    assert_eq!(told, Some((30 * MS, 9, &[key(2)][..])));
    assert_eq!(start.last(), Some(&Action::Start(vec![key(1)])));
    assert_eq!(switcher.ran(key(2)), Some(Ran::default()));
    switcher.apply(60 * MS, Event::Started(vec![(key(1), Start::Runs)]));
    // In its next turn it does not wait.
    switcher.apply(80 * MS, Event::Tick);
    switcher.apply(80 * MS, Event::Stopped(vec![(key(1), Outcome::Stopped)]));
    let waits = switcher.apply(80 * MS, Event::Started(vec![(key(2), Start::MemoryComes)]));
    assert!(waits.contains(&Action::Hasten(key(2))), "{waits:?}");
    switcher.apply(80 * MS, Event::Brought(key(2), 9));
    assert_eq!(switcher.ran(key(2)), Some(Ran { ns: 0, since_ns: Some(80 * MS) }));
}

#[test]
fn memory_goes_once_its_gang_stands_and_has_no_turn_soon() {
    let mut switcher = Switcher::default();
    switcher.apply(0, Event::Begin);
    done(&mut switcher, 0, comes(1, &[0]));
    done(&mut switcher, 0, comes(2, &[0]));
    let gone = |actions: Vec<Action>| -> Vec<Action> {
        let of = |a: &Action| matches!(a, Action::RollOut(_) | Action::NotOut(..));
        actions.into_iter().filter(of).collect()
    };
    // 2 leads from 100 ms on; 1 is in no slice.
    let mut ahead = plan(1, 100, &[(1_000, &[2])]);
    ahead.members.push(key(1));
    done(&mut switcher, 0, Event::Plan(ahead));
    assert_eq!(gone(done(&mut switcher, MS, Event::RollOut(key(1)))), []);
    assert_eq!(gone(done(&mut switcher, 100 * MS, Event::Tick)), [Action::RollOut(key(1))]);
    // Said again it goes again: some of it may have come in.
    assert_eq!(
        gone(done(&mut switcher, 150 * MS, Event::RollOut(key(1)))),
        [Action::RollOut(key(1))]
    );
    // Its turn is near, in this plan or in one that has not begun.
    let near = [Action::NotOut(key(1), "its turn is near")];
    let mut newer = plan(2, 2_000, &[(1_000, &[2]), (1_000, &[1])]);
    done(&mut switcher, 200 * MS, Event::Plan(newer.clone()));
    assert_eq!(gone(done(&mut switcher, 1_100 * MS, Event::RollOut(key(1)))), near);
    assert_eq!(gone(done(&mut switcher, 2_100 * MS, Event::RollOut(key(1)))), near);
    newer.slices[0].length = Duration::from_secs(60);
    (newer.generation, newer.begins_ns, newer.from_ns) = (3, 5_000 * MS, 5_000 * MS);
    done(&mut switcher, 2_100 * MS, Event::Plan(newer));
    done(&mut switcher, 5_000 * MS, Event::Tick);
    let late = done(&mut switcher, 5_100 * MS, Event::RollOut(key(1)));
    assert_eq!(gone(late), [Action::RollOut(key(1))]);
    // One that runs on is not waited for for ever, and there is a time for that.
    assert_eq!(gone(done(&mut switcher, 6_000 * MS, Event::RollOut(key(2)))), []);
    assert_eq!(switcher.next_ns(), Some(6_000 * MS + ns_of(out::WAITS)));
    let over = done(&mut switcher, 6_000 * MS + ns_of(out::WAITS), Event::Tick);
    assert_eq!(gone(over), [Action::NotOut(key(2), "it runs")]);
    let strange = done(&mut switcher, 6_000 * MS, Event::RollOut(key(9)));
    assert_eq!(strange, [Action::NotOut(key(9), "it is no longer here")]);
}

/// Nothing makes room while it is dumped.
#[test]
fn nobody_runs_where_one_is_taken_out_until_it_has_gone() {
    let mut switcher = two();
    done(&mut switcher, 0, Event::ByCheckpoint(true));
    let mut ahead = plan(1, 100, &[(600_000, &[2])]);
    ahead.members.push(key(1));
    done(&mut switcher, 0, Event::Plan(ahead));
    done(&mut switcher, MS, Event::RollOut(key(1)));
    assert_eq!(running(&switcher), [1]);
    let actions = done(&mut switcher, 100 * MS, Event::Tick);
    assert!(actions.contains(&Action::TakeOut(key(1))), "{actions:?}");
    assert_eq!(running(&switcher), [] as [u64; 0]);
    let lifted = done(&mut switcher, 110 * MS, Event::Hold(key(1)));
    assert!(lifted.contains(&Action::Held(key(1), true)), "{lifted:?}");
    // It has gone, or stays.
    let mut other = switcher.clone();
    let Event::Comes { gang, .. } = comes(1, &[0, 1]) else { unreachable!() };
    done(&mut switcher, 900 * MS, Event::Rebind(gang));
    assert_eq!(running(&switcher), [2]);
    // It is not waited for for ever.
    assert_eq!(other.next_ns(), Some(100 * MS + ns_of(out::LEAVES)));
    done(&mut other, 100 * MS + ns_of(out::LEAVES), Event::Tick);
    assert_eq!(running(&other), [2]);
}

#[test]
fn one_that_is_lifted_stands_until_it_is_seated() {
    let mut switcher = two();
    // The first runs, and the second has its processors as soon as it stands.
    let lifted = done(&mut switcher, MS, Event::Hold(key(1)));
    assert!(lifted.contains(&Action::Stop(vec![key(1)])), "{lifted:?}");
    assert!(lifted.contains(&Action::Held(key(1), true)), "{lifted:?}");
    assert_eq!(running(&switcher), [2]);
    done(&mut switcher, 2 * MS, Event::Goes(key(2)));
    assert_eq!(running(&switcher), [] as [u64; 0]);
    // On other processors, of which somebody has one already.
    done(&mut switcher, 3 * MS, comes(3, &[3]));
    let to = |processors: [u32; 2]| Gang {
        key: key(1),
        processors: processors.map(|p| (Nid(0), p)).to_vec(),
        spread: false,
        whole: true,
    };
    done(&mut switcher, 3 * MS, Event::Rebind(to([2, 3])));
    assert_eq!(running(&switcher), [3]);
    done(&mut switcher, 4 * MS, Event::Goes(key(3)));
    assert_eq!(running(&switcher), [1]);
    assert_eq!(switcher.ran(key(1)), Some(Ran { ns: MS, since_ns: Some(4 * MS) }));
    // What can't be stopped is not lifted, and runs on.
    switcher.apply(5 * MS, Event::Hold(key(1)));
    let failed = switcher.apply(5 * MS, Event::Stopped(vec![(key(1), Outcome::Failed)]));
    assert!(failed.contains(&Action::Held(key(1), false)), "{failed:?}");
    assert_eq!(running(&switcher), [1]);
    assert_eq!(done(&mut switcher, MS, Event::Hold(key(9))), [Action::Held(key(9), false)]);
}

const PROCESSORS: u32 = 5;
const GANGS: u64 = 6;

#[derive(Clone, Debug)]
enum Step {
    Comes(u64, BTreeSet<u32>),
    Goes(u64),
    Plan {
        generation: u64,
        after_ms: u64,
        into_ms: u64,
        agreed: bool,
        members: BTreeSet<u64>,
        slices: Vec<(u64, BTreeSet<u64>)>,
    },
    Agree(u64),
    Withdraw(u64),
    /// Time goes by; in it the host is awake, or apinit is stopped.
    After(u64, bool),
    /// The next stops take so long, and fail.
    Stops(u64, bool),
    /// The memory of the next that are started takes so long to come.
    Brings(u64),
    /// apinit is killed, and started again; with its plans, or without.
    Killed(bool),
    /// It is to stand for a move.
    Hold(u64),
    /// It has been moved there.
    Rebind(u64, BTreeSet<u32>),
    /// Its memory is to go.
    RollOut(u64),
    /// The kernel works for it in others' turns, for so many milliseconds.
    Overran(u64, u64),
}

fn step() -> impl Strategy<Value = Step> {
    let gang = || 1..GANGS;
    let slices = vec((0..40u64, btree_set(gang(), 0..3)), 0..4);
    prop_oneof![
        4 => (gang(), btree_set(0..PROCESSORS, 1..4)).prop_map(|(n, p)| Step::Comes(n, p)),
        2 => gang().prop_map(Step::Goes),
        4 => (1..9u64, (0..60u64, 0..30u64), any::<bool>(), btree_set(gang(), 0..5), slices).prop_map(
            |(generation, (after_ms, into_ms), agreed, members, slices)|
                Step::Plan { generation, after_ms, into_ms, agreed, members, slices }),
        2 => (1..9u64).prop_map(Step::Agree),
        1 => (1..9u64).prop_map(Step::Withdraw),
        6 => (0..80u64, prop::bool::weighted(0.9)).prop_map(|(ms, awake)| Step::After(ms, awake)),
        1 => (0..30u64, any::<bool>()).prop_map(|(ms, fails)| Step::Stops(ms, fails)),
        1 => (1..60u64).prop_map(Step::Brings),
        1 => any::<bool>().prop_map(Step::Killed),
        3 => gang().prop_map(Step::Hold),
        3 => (gang(), btree_set(0..PROCESSORS, 1..4)).prop_map(|(n, p)| Step::Rebind(n, p)),
        2 => gang().prop_map(Step::RollOut),
        6 => (gang(), 10..40u64).prop_map(|(n, ms)| Step::Overran(n, ms)),
    ]
}

/// A gang as the kernel has it.
#[derive(Clone, Debug, Default)]
struct Real {
    processors: BTreeSet<u32>,
    frozen: bool,
    gone: bool,
}

/// A host: what really runs there, and the plans as they were told.
#[derive(Default)]
struct World {
    now: u64,
    switcher: Switcher,
    /// Idle time is given away.
    idle: bool,
    gangs: BTreeMap<u64, Real>,
    plans: BTreeMap<u64, SlicePlan>,
    /// Stops under way: when each is over, and whether it fails.
    stops: Vec<(u64, u64, bool)>,
    takes: (u64, bool),
    /// Memory that comes: when it is in, and whose.
    brings: Vec<(u64, u64)>,
    brings_take: u64,
    /// Stopped before it was.
    not_in: BTreeSet<u64>,
    /// The last time a stop of it has failed.
    failed: BTreeMap<u64, u64>,
    /// Who is to stand for a move; and whether it is known to.
    lifted: BTreeMap<u64, bool>,
    /// Whose memory is to go out, and until when.
    wanted_out: BTreeMap<u64, u64>,
    /// Memory goes out by a checkpoint; and whose does.
    by_checkpoint: bool,
    leaves: BTreeSet<u64>,
    /// What each has been told to owe to each other, and how long it has stood in its own turn for
    /// that.
    owes: BTreeMap<(u64, u64), u64>,
    stood: BTreeMap<u64, u64>,
}

/// Whether all of its processes sleep, always.
fn idles(apid: u64) -> bool {
    apid.is_multiple_of(3)
}

impl World {
    fn tell(&mut self, event: Event) {
        // To look at everybody changes nothing. (But of which plan a change is said to be.)
        let mut thorough = self.switcher.clone();
        thorough.parts.touch_all();
        let by_all = thorough.apply(self.now, event.clone());
        let actions = self.switcher.apply(self.now, event);
        let is_done = |action: &&Action| !matches!(action, Action::Switched(_) | Action::Look(_));
        let [by_all, by_parts] = [&by_all, &actions].map(|all| all.iter().filter(is_done));
        assert!(by_all.clone().eq(by_parts.clone()), "{:?}", (by_all, by_parts));
        let mut at_once = false;
        for action in actions {
            match action {
                Action::Held(key, stands) => {
                    let told = self.lifted.insert(key.apid.0, stands);
                    assert_eq!(told, Some(false), "{key} is lifted twice, or for nobody");
                    if !stands {
                        self.lifted.remove(&key.apid.0);
                    }
                    assert!(!stands || !self.runs(key.apid.0), "{key} runs, and is lifted");
                }
                Action::Stop(keys) => {
                    let out = |(_, apid): &mut (u64, u64)| keys.contains(&key(*apid));
                    self.not_in.extend(self.brings.extract_if(.., out).map(|bring| bring.1));
                    let (takes, fails) = std::mem::take(&mut self.takes);
                    let over = |key: &Key| (self.now + takes * MS, key.apid.0, fails);
                    self.stops.extend(keys.iter().map(over));
                    at_once |= takes == 0;
                }
                Action::Start(keys) => {
                    let takes = std::mem::take(&mut self.brings_take);
                    let mut started = Vec::new();
                    for key in keys {
                        let real = self.gangs.get_mut(&key.apid.0).expect("it is here");
                        assert!(real.frozen, "{key} runs already");
                        let on = real.processors.clone();
                        assert!(!self.is_left(&on), "{key} runs where one is being taken out");
                        let real = self.gangs.get_mut(&key.apid.0).expect("it is here");
                        assert!(!self.lifted.contains_key(&key.apid.0), "{key} is lifted");
                        if takes > 0 {
                            self.brings.push((self.now + takes * MS, key.apid.0));
                            started.push((key, Start::MemoryComes));
                            continue;
                        }
                        real.frozen = false;
                        self.exclusive();
                        started.push((key, Start::Runs));
                    }
                    self.tell(Event::Started(started));
                }
                Action::MayGo(key) => {
                    let real = self.gangs.get_mut(&key.apid.0).expect("it is here");
                    assert!(!std::mem::replace(&mut real.gone, true), "{key} goes twice");
                    self.exclusive();
                }
                Action::Hasten(key) => {
                    let mut all = self.brings.iter_mut();
                    all.find(|(_, of)| *of == key.apid.0).expect("its memory comes").0 = 0;
                    self.brings_over();
                }
                Action::RollOut(key) | Action::TakeOut(key) => {
                    if self.by_checkpoint {
                        self.leaves.insert(key.apid.0);
                    }
                    let by = self.wanted_out.remove(&key.apid.0).expect("it was to go out");
                    assert!(self.gangs[&key.apid.0].frozen, "{key} runs, and goes out");
                    assert!(self.now < by, "{key} goes out too late");
                    let its = self.told(key.apid.0).is_none_or(|(_, its)| its);
                    assert!(!its, "{key} goes out in its turn");
                }
                Action::NotOut(key, _) => drop(self.wanted_out.remove(&key.apid.0)),
                Action::Look(keys) => {
                    let used = |key: Key| (key, Some(if idles(key.apid.0) { 0 } else { self.now }));
                    self.tell(Event::Used(keys.into_iter().map(used).collect()));
                }
                Action::HasTurn(_)
                | Action::Ran(..)
                | Action::WasIdle(..)
                | Action::Switched(_) => {}
            }
        }
        // As drivers do: what comes of one action is told after the others are done.
        if at_once {
            self.stops_over();
        }
    }

    /// Those stops whose time has come.
    fn stops_over(&mut self) {
        let now = self.now;
        let over: Vec<_> = self.stops.extract_if(.., |stop| stop.0 <= now).collect();
        let mut outcomes = Vec::new();
        for (_, apid, fails) in over {
            let Some(real) = self.gangs.get_mut(&apid) else { continue };
            real.frozen = !fails;
            if fails {
                self.failed.insert(apid, now);
            }
            let outcome = match (fails, self.not_in.remove(&apid)) {
                (true, _) => Outcome::Failed,
                (false, true) => Outcome::NotIn(1),
                (false, false) => Outcome::Stopped,
            };
            outcomes.push((key(apid), outcome));
        }
        if !outcomes.is_empty() {
            self.tell(Event::Stopped(outcomes));
        }
    }

    /// Memory that has come.
    fn brings_over(&mut self) {
        // One after the other: what is told of one may stop another, whose memory then comes no more.
        while let Some(over) = self.brings.iter().position(|bring| bring.0 <= self.now) {
            let (_, apid) = self.brings.remove(over);
            let Some(real) = self.gangs.get_mut(&apid) else { continue };
            real.frozen = false;
            self.exclusive();
            self.tell(Event::Brought(key(apid), 1));
        }
    }

    /// One that is being taken out has some of these.
    fn is_left(&self, processors: &BTreeSet<u32>) -> bool {
        let has = |apid: &u64| !self.gangs[apid].processors.is_disjoint(processors);
        self.leaves.iter().any(has)
    }

    fn runs(&self, apid: u64) -> bool {
        self.gangs.get(&apid).is_some_and(|real| real.gone && !real.frozen)
    }

    /// Nobody shares a processor with another.
    fn exclusive(&self) {
        let mut taken = BTreeSet::new();
        for (apid, real) in &self.gangs {
            for processor in real.processors.iter().filter(|_| self.runs(*apid)) {
                assert!(taken.insert(*processor), "two run on {processor}: {:?}", self.gangs);
            }
        }
    }

    /// What the newest plan says of it: nothing, or whether it runs.
    fn told(&self, apid: u64) -> Option<(u64, bool)> {
        let counts = |p: &&SlicePlan| p.agreed && p.from_ns <= self.now;
        let names = |p: &&SlicePlan| p.members.contains(&key(apid));
        let plan = self.plans.values().rev().find(|p| counts(p) && names(p))?;
        let mut at = plan.begins_ns;
        let whole: u64 = plan.slices.iter().map(|s| s.length.as_nanos() as u64).sum();
        at += (self.now - at).checked_div(whole).unwrap_or(0) * whole;
        for slice in &plan.slices {
            let ends = at + slice.length.as_nanos() as u64;
            if self.now < ends {
                return Some((plan.generation, slice.party.contains(&key(apid))));
            }
            at = ends;
        }
        Some((plan.generation, false))
    }

    /// It owes this one something, so that it may stand in its turn and this one run.
    fn owes(&self, debtor: u64, creditor: u64) -> bool {
        self.owes.contains_key(&(debtor, creditor)) && self.told(debtor).is_some_and(|told| told.1)
    }

    /// So much time has gone by, and nothing happened: those who stand in their turns, where nobody
    /// who has one is on their processors, do so for no longer than they owe.
    fn stood(&mut self, time: u64) {
        let debtors: BTreeSet<u64> = self.owes.keys().map(|(debtor, _)| *debtor).collect();
        for debtor in debtors {
            let real = &self.gangs[&debtor];
            let its = &real.processors;
            // (One that could not be stopped, or is being stopped, is paid nothing.)
            let stays = |other: &u64| {
                let failed = self.failed.get(other);
                failed.is_some_and(|at| self.now < at + ns_of(STOP_AGAIN))
                    || self.stops.iter().any(|(_, of, _)| of == other)
            };
            let creditor = |other: &&u64| {
                self.runs(**other)
                    && !stays(other)
                    && self.owes(debtor, **other)
                    && self.told(**other).is_some_and(|told| !told.1)
                    && !self.gangs[*other].processors.is_disjoint(its)
            };
            // (One that gives its turn away stands too, and for that owes nothing.)
            let stands = real.gone && real.frozen && !(self.idle && idles(debtor));
            if stands && self.gangs.keys().any(|other| creditor(&other)) {
                let stood = self.stood.entry(debtor).or_default();
                *stood += time;
                let owed = self.owes.iter().filter(|((of, _), _)| *of == debtor);
                let owed: u64 = owed.map(|(_, owed)| owed).sum();
                assert!(*stood <= owed, "{debtor} has stood for {stood}, and owed {owed}");
            }
        }
    }

    /// What is promised while nothing is under way.
    fn check(&self) {
        // Whatever is given away.
        self.exclusive();
        let late = self.wanted_out.iter().find(|(_, by)| **by <= self.now);
        assert_eq!(late, None, "nothing is said of its memory");
        // Its memory comes, or it is being stopped.
        let changing = |apid: u64| {
            self.stops.iter().any(|(_, of, _)| *of == apid)
                || self.brings.iter().any(|(_, of)| *of == apid)
        };
        let failed =
            |apid: u64| self.failed.get(&apid).is_some_and(|at| self.now < at + ns_of(STOP_AGAIN));
        for (apid, real) in &self.gangs {
            let shares = |other: &u64| {
                other != apid && !self.gangs[other].processors.is_disjoint(&real.processors)
            };
            let held =
                self.gangs.keys().filter(|o| shares(o)).any(|o| self.runs(*o) || changing(*o))
                    || self.is_left(&real.processors);
            let told = self.told(*apid);
            let paid =
                |debtor: &u64| shares(debtor) && !self.runs(*debtor) && self.owes(*debtor, *apid);
            let paid = self.gangs.keys().any(paid);
            // An idle gang gives its turn to others.
            let gives = |other: &u64| {
                self.idle && idles(*other) && self.told(*other).is_some_and(|(_, its)| its)
            };
            let given = self.gangs.keys().filter(|other| shares(other)).any(gives);
            if self.runs(*apid) && told.is_some_and(|(_, its)| !its) && !paid && !given {
                assert!(changing(*apid) || failed(*apid), "{apid} runs in another's turn");
            }
            let lifted = |apid: &u64| self.lifted.contains_key(apid);
            assert!(!self.runs(*apid) || self.lifted.get(apid) != Some(&true), "{apid} is lifted");
            if !self.runs(*apid) && !held && !changing(*apid) && !failed(*apid) && !lifted(apid) {
                let rank = |(generation, its): (u64, bool)| its.then_some(generation);
                let wants = told.map_or(Some(0), rank);
                // Somebody who wants it more, and is held up elsewhere, keeps it free.
                let others = self.gangs.keys().filter(|other| shares(other) && !lifted(other));
                let kept = others.into_iter().any(|other| {
                    let theirs = self.told(*other).map_or(Some(0), rank);
                    theirs.is_some() && theirs >= wants
                });
                assert!(wants.is_none() || kept, "{apid} could run and does not");
            }
        }
    }

    /// Time goes by, to there.
    fn until(&mut self, then: u64, awake: bool) {
        loop {
            let stop = self.stops.iter().map(|stop| stop.0);
            let stop = stop.chain(self.brings.iter().map(|bring| bring.0)).min();
            let next = self.switcher.next_ns().into_iter().chain(stop).min().filter(|_| awake);
            let Some(at) = next.filter(|at| *at <= then) else { break };
            assert!(at >= self.now || stop.is_some(), "the past is waited for");
            self.stood(at.saturating_sub(self.now));
            self.now = at.max(self.now);
            self.stops_over();
            self.brings_over();
            self.tell(Event::Tick);
            self.check();
        }
        if awake {
            self.stood(then - self.now);
        }
        self.now = then;
        self.stops_over();
        self.brings_over();
        self.tell(Event::Tick);
        self.check();
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Comes(apid, processors) => {
                if self.gangs.contains_key(&apid) {
                    return;
                }
                let list: Vec<u32> = processors.iter().copied().collect();
                self.gangs.insert(apid, Real { processors, ..Real::default() });
                self.tell(comes(apid, &list));
            }
            Step::Goes(apid) => {
                self.gangs.remove(&apid);
                self.failed.remove(&apid);
                self.lifted.remove(&apid);
                self.wanted_out.remove(&apid);
                self.leaves.remove(&apid);
                self.owes.retain(|(debtor, creditor), _| *debtor != apid && *creditor != apid);
                self.stood.remove(&apid);
                self.stops.retain(|stop| stop.1 != apid);
                self.brings.retain(|bring| bring.1 != apid);
                self.tell(Event::Goes(key(apid)));
            }
            Step::Plan { generation, after_ms, into_ms, agreed, members, slices } => {
                let slice = |(ms, party): (u64, BTreeSet<u64>)| PlannedSlice {
                    length: Duration::from_millis(ms),
                    party: party.into_iter().map(key).collect(),
                };
                let begins_ns = (self.now + after_ms * MS).saturating_sub(20 * MS);
                let plan = SlicePlan {
                    takers: Vec::new(),
                    generation,
                    begins_ns,
                    from_ns: begins_ns + into_ms * MS,
                    agreed,
                    members: members.into_iter().map(key).collect(),
                    slices: slices.into_iter().map(slice).collect(),
                };
                self.plans.insert(generation, plan.clone());
                self.tell(Event::Plan(plan));
            }
            Step::Agree(generation) => {
                if let Some(plan) = self.plans.get_mut(&generation) {
                    plan.agreed = true;
                }
                self.tell(Event::Agree(generation));
            }
            Step::Withdraw(generation) => {
                self.plans.remove(&generation);
                self.tell(Event::Withdraw(generation));
            }
            Step::After(ms, awake) => self.until(self.now + ms * MS, awake),
            Step::Stops(ms, fails) => self.takes = (ms, fails),
            Step::Brings(ms) => self.brings_take = ms,
            Step::Hold(apid) => {
                let goes = self.gangs.get(&apid).is_some_and(|real| real.gone);
                if goes && !self.lifted.contains_key(&apid) {
                    self.lifted.insert(apid, false);
                    self.tell(Event::Hold(key(apid)));
                }
            }
            Step::RollOut(apid) => {
                if self.gangs.contains_key(&apid) {
                    self.wanted_out.insert(apid, self.now + ns_of(out::WAITS));
                    self.tell(Event::RollOut(key(apid)));
                }
            }
            Step::Rebind(apid, processors) => {
                let stands = self.lifted.get(&apid) == Some(&true)
                    || self.leaves.contains(&apid) && !self.lifted.contains_key(&apid);
                if let Some(real) = self.gangs.get_mut(&apid).filter(|_| stands) {
                    real.processors = processors.clone();
                    self.lifted.remove(&apid);
                    self.leaves.remove(&apid);
                    let processors = processors.into_iter().map(|p| (Nid(0), p)).collect();
                    self.tell(Event::Rebind(Gang {
                        key: key(apid),
                        processors,
                        spread: false,
                        whole: true,
                    }));
                }
            }
            Step::Overran(apid, ms) => {
                let Some(real) = self.gangs.get(&apid).filter(|real| real.frozen) else { return };
                let its = real.processors.clone();
                let shares = |real: &Real| !real.processors.is_disjoint(&its);
                let others =
                    self.gangs.iter().filter(|(other, real)| **other != apid && shares(real));
                let comes = |other: &u64| self.brings.iter().any(|(_, of)| of == other);
                let has = |other: &u64| self.runs(*other) || comes(other);
                let hurt: Vec<u64> = others.map(|(other, _)| *other).filter(has).collect();
                for other in hurt {
                    *self.owes.entry((apid, other)).or_default() += ms * MS;
                }
                self.tell(Event::Overran(key(apid), ms * MS));
            }
            Step::Killed(remembers) => {
                self.brings.clear();
                self.owes.clear();
                self.stood.clear();
                // What it was about may be done or not.
                for (at, apid, _) in std::mem::take(&mut self.stops) {
                    if let Some(real) = self.gangs.get_mut(&apid) {
                        real.frozen = at % 2 == 0;
                    }
                }
                self.failed.clear();
                self.lifted.clear();
                self.wanted_out.clear();
                self.leaves.clear();
                self.switcher = Switcher::default();
                if !remembers {
                    self.plans.clear();
                }
                self.tell(Event::ByCheckpoint(self.by_checkpoint));
                self.tell(Event::IdleAfter(self.idle.then_some(Duration::from_millis(4))));
                for plan in self.plans.clone().into_values() {
                    self.tell(Event::Plan(plan));
                }
                for (apid, real) in self.gangs.clone() {
                    let list: Vec<u32> = real.processors.iter().copied().collect();
                    let gang = Gang {
                        key: key(apid),
                        processors: list.iter().map(|p| (Nid(0), *p)).collect(),
                        spread: false,
                        whole: true,
                    };
                    let Real { gone: going, frozen, .. } = real;
                    self.tell(Event::Comes { gang, going, frozen, ran_ns: 0 });
                }
                self.tell(Event::Begin);
            }
        }
        self.check();
    }
}

fn ns_of(time: Duration) -> u64 {
    time.as_nanos() as u64
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn promises_hold(
        by_checkpoint in any::<bool>(), idle in any::<bool>(), steps in vec(step(), 1..60),
    ) {
        let mut world = World { now: 1_000 * MS, by_checkpoint, idle, ..World::default() };
        world.tell(Event::ByCheckpoint(by_checkpoint));
        world.tell(Event::IdleAfter(idle.then_some(Duration::from_millis(4))));
        world.tell(Event::Begin);
        for step in steps {
            world.step(step);
        }
    }
}
