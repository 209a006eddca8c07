//! Which gangs give and which take, by examples.

use super::*;
use crate::apinit::decide::switcher::{Event, Gang, Outcome, Start};
use crate::apteam::protocol::turns::{PlannedSlice, SlicePlan};
use crate::machine::Nid;
use std::collections::{BTreeSet, VecDeque};

const MS: u64 = 1_000_000;

fn key(apid: u64) -> Key {
    Key::parse(&format!("{apid}.1")).expect("a key")
}

/// Gangs of two processors, with slices of a second in the order of their numbers.
#[derive(Default)]
struct World {
    switcher: Switcher,
    now: u64,
    /// Gangs whose processes sleep.
    idle: BTreeSet<u64>,
    used: BTreeMap<u64, u64>,
    runs: BTreeSet<u64>,
    /// Since when each has run in all, in nanoseconds, and how often one was let run.
    had: BTreeMap<u64, u64>,
    starts: u64,
    /// For how long each was idle alone, in milliseconds.
    was_idle: BTreeMap<u64, u64>,
}

impl World {
    fn new(gangs: u64, idle: &[u64]) -> World {
        let mut world = World { idle: idle.iter().copied().collect(), ..World::default() };
        world.tell(Event::Begin);
        world.tell(Event::IdleAfter(Some(Duration::from_millis(4))));
        (1..=gangs).for_each(|apid| world.comes(apid, true));
        let members: Vec<Key> = (1..=gangs).map(key).collect();
        let slice = |key: &Key| PlannedSlice { length: Duration::from_secs(1), party: vec![*key] };
        let slices = members.iter().map(slice).collect();
        let plan =
            SlicePlan { generation: 1, agreed: true, members, slices, ..SlicePlan::default() };
        world.tell(Event::Plan(plan));
        world
    }

    fn comes(&mut self, apid: u64, whole: bool) {
        let processors = vec![(Nid(0), 0), (Nid(0), 1)];
        let gang = Gang { key: key(apid), processors, spread: false, whole };
        self.tell(Event::Comes { gang, going: true, frozen: true, ran_ns: 0 });
    }

    fn tell(&mut self, event: Event) {
        let mut todo = VecDeque::from([event]);
        while let Some(event) = todo.pop_front() {
            for action in self.switcher.apply(self.now, event) {
                match action {
                    Action::Stop(keys) => {
                        self.runs.retain(|apid| !keys.contains(&key(*apid)));
                        let all = keys.into_iter().map(|key| (key, Outcome::Stopped));
                        todo.push_back(Event::Stopped(all.collect()));
                    }
                    Action::Start(keys) => {
                        self.starts += 1;
                        self.runs.extend(keys.iter().map(|key| key.apid.0));
                        assert_eq!(self.runs.len(), 1, "two run at once");
                        let all = keys.into_iter().map(|key| (key, Start::Runs));
                        todo.push_back(Event::Started(all.collect()));
                    }
                    Action::Look(keys) => {
                        let used = |key: Key| {
                            (key, Some(self.used.get(&key.apid.0).copied().unwrap_or(0)))
                        };
                        todo.push_back(Event::Used(keys.into_iter().map(used).collect()));
                    }
                    Action::WasIdle(key, ns) => {
                        *self.was_idle.entry(key.apid.0).or_default() += ns / MS;
                    }
                    _ => {}
                }
            }
        }
    }

    /// So many milliseconds go by.
    fn pass(&mut self, ms: u64) {
        let until = self.now + ms * MS;
        while self.now < until {
            let next = self.switcher.next_ns().map_or(until, |at| at.clamp(self.now, until));
            let time = next - self.now;
            for apid in &self.runs {
                *self.had.entry(*apid).or_default() += time;
                if !self.idle.contains(apid) {
                    *self.used.entry(*apid).or_default() += time;
                }
            }
            self.now = next;
            self.tell(Event::Tick);
        }
    }

    /// What each has had so far, in milliseconds.
    fn had(&self) -> Vec<u64> {
        self.had.values().map(|ns| ns / MS).collect()
    }
}

#[test]
fn who_sleeps_gives_its_turn_to_who_computes() {
    let mut world = World::new(2, &[1]);
    world.pass(60_000);
    let [sleeps, computes] = world.had()[..] else { panic!("two of them") };
    // At most two parts of a hundred, of its own half.
    assert!(sleeps * 50 < computes, "{sleeps} of {computes}");
    assert_eq!(sleeps + computes, 60_000, "nobody runs at times");
}

#[test]
fn all_who_compute_have_what_it_gives() {
    let mut world = World::new(4, &[2]);
    world.pass(60_000);
    let had = world.had();
    assert!(had[1] < 60_000 / 50, "{had:?}");
    // By the plan the third has its turn next, so it has that of the second.
    assert!(had[0] > 14_900 && had[2] > 28_000 && had[3] > 14_900, "{had:?}");
}

#[test]
fn who_computes_keeps_its_turn() {
    let mut world = World::new(3, &[]);
    world.pass(60_000);
    assert_eq!((world.had(), world.starts), (vec![20_000; 3], 61));
}

#[test]
fn who_wakes_has_its_turn_within_a_moment() {
    let mut world = World::new(2, &[1]);
    world.pass(500);
    assert_eq!(world.runs, [2].into());
    world.idle.clear();
    world.pass(210);
    assert_eq!(world.runs, [1].into(), "it has something to do");
    world.pass(250);
    assert_eq!(world.runs, [1].into(), "it is its turn");
    // The other falls asleep in its own.
    world.idle = [2].into();
    world.pass(200);
    assert_eq!(world.runs, [1].into());
}

#[test]
fn time_does_not_go_round_among_those_who_sleep() {
    let all: Vec<u64> = (1..=50).collect();
    let mut world = World::new(50, &all);
    world.pass(60_000);
    // (Each has its own turn, and another's once in ten times as long as it gives.)
    assert!(world.starts < 60 * 50, "{}", world.starts);
}

/// Idle time for which no other gang waited is not charged.
#[test]
fn who_sleeps_alone_is_known_to() {
    let mut world = World::new(1, &[1]);
    world.pass(25_000);
    // (The first ten seconds are those after which it is looked at for the first time.)
    assert_eq!(world.was_idle, [(1, 10_000)].into());
    world.idle.clear();
    world.pass(15_000);
    assert_eq!(world.was_idle, [(1, 10_000)].into(), "it was not idle for all of it");
    world.idle = [1].into();
    world.pass(15_000);
    assert_eq!(world.was_idle, [(1, 20_000)].into());
    // Another comes: what it was idle until then counts, and from now on it gives its turn.
    world.comes(2, true);
    let members: Vec<Key> = [1, 2].map(key).into();
    let slice = |key: &Key| PlannedSlice { length: Duration::from_secs(1), party: vec![*key] };
    let slices = members.iter().map(slice).collect();
    let (generation, begins_ns) = (2, world.now);
    let plan = SlicePlan {
        generation,
        begins_ns,
        from_ns: begins_ns,
        agreed: true,
        members,
        slices,
        ..SlicePlan::default()
    };
    world.tell(Event::Plan(plan));
    assert_eq!(world.was_idle, [(1, 25_000)].into());
    world.pass(60_000);
    assert!(world.had[&2] > 58_000 * MS, "{:?}", world.had);
    // (It is looked at in its own turns, for some milliseconds each time.)
    let had = world.had[&1] / MS - 55_000;
    assert!((25_000..=25_000 + had).contains(&world.was_idle[&1]), "{:?}", world.was_idle);
}

/// Nor is the time that gangs give and no gang takes, for all of them sleep.
#[test]
fn who_sleep_side_by_side_are_known_to() {
    let mut world = World::new(2, &[1, 2]);
    world.pass(60_000);
    let asleep: u64 = world.was_idle.values().sum();
    assert!(asleep > 54_000, "{:?} of {:?}", world.was_idle, world.had());
    world.idle.clear();
    world.pass(60_000);
    let more = world.was_idle.values().sum::<u64>() - asleep;
    assert!(more < 1_000, "{more}");
}

/// Gang 1 sleeps and leads. What it gives goes to whom the plan names, though another has the next turn; where that
/// one sleeps too, to the other.
#[test]
fn whom_the_plan_names_takes_first() {
    let mut world = World::new(3, &[1]);
    let members: Vec<Key> = [1, 2, 3].map(key).into();
    let slice = |(key, ms): (&Key, u64)| PlannedSlice {
        length: Duration::from_millis(ms),
        party: vec![*key],
    };
    let slices = members.iter().zip([750, 125, 125]).map(slice).collect();
    world.tell(Event::Plan(SlicePlan {
        generation: 2,
        agreed: true,
        members,
        slices,
        takers: vec![key(3)],
        ..SlicePlan::default()
    }));
    world.pass(10_000);
    let before = world.had();
    assert!(before[2] > 8_000 && before[1] < 1_500, "{before:?}");
    world.idle = [1, 3].into();
    world.pass(10_000);
    let since: Vec<u64> =
        world.had().iter().zip(before).map(|(had, before)| had - before).collect();
    assert!(since[1] > 8_500, "{since:?}");
}

#[test]
fn one_that_is_elsewhere_too_neither_gives_nor_takes() {
    let mut world = World::new(0, &[1]);
    world.comes(1, false);
    world.comes(2, true);
    let members: Vec<Key> = [1, 2].map(key).into();
    let slice = |key: &Key| PlannedSlice { length: Duration::from_secs(1), party: vec![*key] };
    let slices = members.iter().map(slice).collect();
    world.tell(Event::Plan(SlicePlan {
        generation: 2,
        agreed: true,
        members,
        slices,
        ..SlicePlan::default()
    }));
    world.pass(10_000);
    assert_eq!(world.had(), [5_000, 5_000]);
    world.idle = [2].into();
    world.pass(10_000);
    assert_eq!(world.had(), [10_000, 10_000]);
}
