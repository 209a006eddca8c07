//! The order of turns by examples, and that nobody waits for ever.

use super::*;
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Four levels, up to 60 s, 360 s and 2,160 s; costs and all else by the defaults.
fn rules() -> Rules {
    Rules {
        bounds: vec![s(60), s(360), s(2_160)],
        stickiness: s(8 * 3_600),
        aging_after: s(48 * 3_600),
        aging_share: 250,
        aging_level: 2,
        aging_grant: s(600),
        aging_grant_share: 200,
        longest_wait: s(7 * 86_400),
        wide_first: Duration::ZERO,
        width_exponent: 0,
    }
}

/// Gangs that have had so many seconds, numbered from 1, in order of number; long after zero.
fn gangs(had: &[u64]) -> Levels {
    let mut levels = Levels::new(false);
    for (number, had) in (1..).zip(had) {
        levels.add(Apid(number), 1, s(*had), Duration::ZERO, at_s(0));
    }
    levels
}

/// So many seconds after the beginning.
fn at_s(seconds: u64) -> u64 {
    (30 * 86_400 + seconds) * SECOND
}

fn turns(levels: &mut Levels, rules: &Rules, now_ns: u64) -> Vec<Turn> {
    let mut turns: Vec<_> = levels.turns(rules, now_ns).collect();
    turns.sort_by_key(|(place, _)| *place);
    turns.into_iter().map(|(_, turn)| turn).collect()
}

fn order(levels: &mut Levels, rules: &Rules, seconds: u64) -> Vec<u64> {
    turns(levels, rules, at_s(seconds)).iter().map(|turn| turn.apid.0).collect()
}

fn next(levels: &Levels, rules: &Rules, seconds: u64) -> Option<Duration> {
    let next = levels.next(rules, &everywhere(), at_s(seconds))?;
    Some(Duration::from_nanos(next - at_s(seconds)))
}

/// Somebody waits before all of each kind and level.
fn everywhere() -> Vec<Place> {
    [(1, 0), (2, 0), (2, 1), (2, 2), (2, 3)].map(|(a, b)| Place(a, 0, b, i64::MIN, Apid(0))).into()
}

#[test]
fn who_has_had_least_comes_first_in_levels() {
    let mut levels = gangs(&[5_000, 400, 100, 359, 59, 60]);
    // 3 and 4 have had between 60 and 360 s, and so has 6: in order of entry, and that was one moment.
    assert_eq!(order(&mut levels, &rules(), 0), [5, 3, 4, 6, 2, 1]);
    let level: Vec<usize> =
        turns(&mut levels, &rules(), at_s(0)).iter().map(|turn| turn.level).collect();
    assert_eq!(level, [0, 1, 1, 1, 2, 3]);
}

#[test]
fn within_a_level_it_goes_by_the_time_of_entry() {
    let mut levels = gangs(&[30, 100]);
    order(&mut levels, &rules(), 0);
    levels.start(Apid(1), Duration::ZERO, &rules(), at_s(10));
    assert_eq!(next(&levels, &rules(), 10), Some(s(30)));
    // At 40 it has had a minute, and has entered the second level after 2. But it runs.
    assert_eq!(order(&mut levels, &rules(), 39), [1, 2]);
    assert_eq!(order(&mut levels, &rules(), 40), [1, 2]);
    levels.stop(Apid(1), at_s(50));
    assert_eq!(order(&mut levels, &rules(), 50), [2, 1]);
    assert_eq!(levels.attained(Apid(1), at_s(60)), s(70));
}

#[test]
fn who_runs_gives_way_to_one_that_has_waited_for_much_longer() {
    let mut levels = gangs(&[100, 100]);
    order(&mut levels, &rules(), 0);
    let sticky = Rules { stickiness: s(10), ..rules() };
    levels.add(Apid(3), 1, s(100), Duration::ZERO, at_s(9));
    order(&mut levels, &sticky, 9);
    levels.start(Apid(3), Duration::ZERO, &sticky, at_s(9));
    assert_eq!(order(&mut levels, &sticky, 9), [3, 1, 2]);
    levels.stop(Apid(3), at_s(9));
    levels.add(Apid(4), 1, s(100), Duration::ZERO, at_s(11));
    order(&mut levels, &sticky, 11);
    levels.start(Apid(4), Duration::ZERO, &sticky, at_s(11));
    assert_eq!(order(&mut levels, &sticky, 11), [1, 2, 4, 3]);
}

#[test]
fn costs_are_no_time_had_and_who_pays_is_first() {
    let mut levels = gangs(&[50, 1]);
    levels.start(Apid(1), s(30), &rules(), at_s(0));
    assert_eq!(next(&levels, &rules(), 0), Some(s(30)));
    assert_eq!(order(&mut levels, &rules(), 29), [1, 2]);
    assert_eq!(order(&mut levels, &rules(), 30), [1, 2]);
    assert_eq!(levels.attained(Apid(1), at_s(30)), s(50));
    assert_eq!(next(&levels, &rules(), 30), Some(s(10)));
    // Now it is of the second level, and 2 comes before it.
    assert_eq!(order(&mut levels, &rules(), 41), [2, 1]);
    assert_eq!(levels.attained(Apid(1), at_s(41)), s(61));
    // Moved, it pays for that too, when it runs there; its place is kept until then.
    levels.stop(Apid(1), at_s(41));
    levels.moved(Apid(1), s(5), at_s(41));
    assert_eq!(order(&mut levels, &rules(), 50), [1, 2]);
    levels.start(Apid(1), s(2), &rules(), at_s(50));
    assert_eq!(levels.attained(Apid(1), at_s(60)), s(64));
}

#[test]
fn it_matters_when_somebody_who_waits_comes_before_one_that_runs() {
    let mut levels = gangs(&[50]);
    order(&mut levels, &rules(), 0);
    levels.start(Apid(1), s(30), &rules(), at_s(0));
    let waits = |level: u8, hours: i64| {
        let since = at(at_s(0)) - hours * 3_600 * SECOND as i64;
        let waiting = [Place(2, 0, level, since, Apid(2))];
        levels.next(&rules(), &waiting, at_s(0)).map(|next| (next - at_s(0)) / SECOND)
    };
    // Who has waited for longer than stickiness is before it on the same level.
    assert_eq!(waits(0, 9), Some(30));
    assert_eq!(waits(0, 7), Some(30 + 10));
    assert_eq!(waits(1, 9), Some(30 + 10));
    assert_eq!(waits(1, 7), Some(30 + 310));
    assert_eq!(waits(2, 7), Some(30 + 2_110));
    assert_eq!(waits(3, 9), Some(30 + 2_110));
    assert_eq!(waits(3, 7), None);
}

#[test]
fn it_has_entered_its_level_when_it_had_so_much_whoever_looked() {
    let mut levels = gangs(&[50, 50, 50]);
    for (apid, since) in [(1, 0), (2, 5), (3, 30)] {
        levels.start(Apid(apid), Duration::ZERO, &rules(), at_s(since));
    }
    // 1 and 2 have stopped, after 20 s and 25 s; 3 runs, and nobody is sticky.
    levels.stop(Apid(1), at_s(20));
    levels.stop(Apid(2), at_s(30));
    let rules = Rules { stickiness: Duration::ZERO, ..rules() };
    order(&mut levels, &rules, 1_000);
    let entered: Vec<i64> = levels
        .had
        .values()
        .map(|had| had.entered - at(at_s(0)))
        .map(|ns| ns / 1_000_000_000)
        .collect();
    // (3 came to the third level 310 s after it began.)
    assert_eq!(entered, [10, 15, 30 + 310]);
}

#[test]
fn when_one_that_waits_is_aged_is_known_before() {
    let mut levels = gangs(&[10_000]);
    let ages = s(48 * 3_600 + 2_500) + Duration::from_nanos(1);
    let later = |levels: &Levels| levels.later(&rules(), at_s(0)).map(Duration::from_nanos);
    assert_eq!(later(&levels), Some(ages));
    levels.hurry(Apid(1), at_s(7));
    assert_eq!(later(&levels), Some(s(7)));
    levels.start(Apid(1), Duration::ZERO, &rules(), at_s(0));
    assert_eq!(later(&levels), None);
}

#[test]
fn a_weight_makes_time_count_for_less() {
    let mut levels = gangs(&[100, 100]);
    levels.set_weight(Apid(2), 2);
    assert_eq!(order(&mut levels, &rules(), 0), [2, 1]);
    levels.start(Apid(2), Duration::ZERO, &rules(), at_s(0));
    assert_eq!(next(&levels, &rules(), 0), Some(s(20)));
    assert_eq!(order(&mut levels, &rules(), 20), [2, 1]);
    assert_eq!(levels.stands(Apid(2), at_s(20)), (1, 0));
}

#[test]
fn the_time_of_narrow_ones_counts_for_less_where_width_counts() {
    let wide = Rules { width_exponent: 500, ..rules() };
    let mut levels = gangs(&[100, 100]);
    levels.set_width(Apid(1), 1_000_000, &wide);
    levels.set_width(Apid(2), 250_000, &wide);
    // 100 s x sqrt(1/4) = 50 s
    assert_eq!(order(&mut levels, &wide, 0), [2, 1]);
    levels.start(Apid(2), Duration::ZERO, &wide, at_s(0));
    assert_eq!(next(&levels, &wide, 0), Some(s(20)));
}

#[test]
fn who_is_aged_counts_as_of_a_middle_level_for_a_while() {
    let mut levels = gangs(&[10_000, 100_000, 400]);
    levels.start(Apid(3), Duration::ZERO, &rules(), at_s(0));
    let wait = 48 * 3_600 + 2_500;
    assert_eq!(order(&mut levels, &rules(), 100), [3, 1, 2]);
    // 3 runs, and is before all of the top level. After more than 48 h, and a quarter of what it has had, 1 is of
    // the level below.
    assert_eq!(order(&mut levels, &rules(), wait), [3, 1, 2]);
    assert_eq!(order(&mut levels, &rules(), wait + 1), [1, 3, 2]);
    // A short one is before it all the same.
    levels.add(Apid(4), 1, s(0), Duration::ZERO, at_s(wait + 1));
    levels.add(Apid(5), 1, s(300), Duration::ZERO, at_s(wait + 1));
    assert_eq!(order(&mut levels, &rules(), wait + 1), [4, 5, 1, 3, 2]);
    // It keeps that for a fifth of its wait, and is not stopped by one of the top level meanwhile.
    levels.start(Apid(1), Duration::ZERO, &rules(), at_s(wait + 1));
    let grant = s(wait + 1) / 5;
    assert_eq!(next(&levels, &rules(), wait + 1), Some(grant));
    (2..=5).for_each(|apid| levels.remove(Apid(apid)));
    levels.add(Apid(6), 1, s(400), Duration::ZERO, at_s(wait + 1));
    assert_eq!(order(&mut levels, &rules(), wait + grant.as_secs()), [1, 6]);
    assert_eq!(order(&mut levels, &rules(), wait + 2 + grant.as_secs()), [6, 1]);
}

#[test]
fn who_has_waited_longest_is_first_and_stays_it_for_a_while() {
    let rules = Rules { longest_wait: s(1_000), ..rules() };
    let mut levels = gangs(&[5_000, 6_000]);
    order(&mut levels, &rules, 0);
    levels.start(Apid(1), Duration::ZERO, &rules, at_s(0));
    assert_eq!(next(&levels, &rules, 0), Some(s(1_000)));
    levels.add(Apid(3), 1, s(1), Duration::ZERO, at_s(900));
    assert_eq!(order(&mut levels, &rules, 999), [3, 1, 2]);
    assert_eq!(order(&mut levels, &rules, 1_000), [2, 3, 1]);
    levels.stop(Apid(1), at_s(1_000));
    levels.start(Apid(2), Duration::ZERO, &rules, at_s(1_000));
    // For a fifth of it.
    assert_eq!(next(&levels, &rules, 1_000), Some(s(200)));
    assert_eq!(order(&mut levels, &rules, 1_199), [2, 3, 1]);
    assert_eq!(order(&mut levels, &rules, 1_200), [3, 2, 1]);
    // Who is to hear something is first likewise.
    levels.hurry(Apid(1), at_s(1_210));
    assert_eq!(order(&mut levels, &rules, 1_209), [1, 3, 2]);
    assert_eq!(order(&mut levels, &rules, 1_210), [3, 2, 1]);
    // A posting that has waited for so long is before all who have not.
    let place = Place::of_new(Apid(9), s(1_000), 0, &rules, at_s(1_210));
    assert!(levels.turns(&rules, at_s(1_210)).all(|(other, _)| place < other));
}

#[test]
fn on_the_top_level_they_queue() {
    let mut levels = gangs(&[5_000, 5_000, 5_000]);
    // The running gang goes on, although all three have entered the level at once.
    levels.start(Apid(3), Duration::ZERO, &rules(), at_s(0));
    for seconds in 0..50 {
        assert_eq!(order(&mut levels, &rules(), seconds), [3, 1, 2]);
    }
}

#[test]
fn who_is_away_has_no_turn() {
    let mut levels = gangs(&[1, 2]);
    levels.start(Apid(1), Duration::ZERO, &rules(), at_s(0));
    levels.set_away(Apid(1), true, at_s(10));
    assert_eq!(order(&mut levels, &rules(), 20), [2]);
    assert_eq!(levels.attained(Apid(1), at_s(20)), s(11));
    levels.set_away(Apid(1), false, at_s(30));
    assert_eq!(order(&mut levels, &rules(), 30), [1, 2]);
    // That it is not away is nothing new to one that runs.
    levels.start(Apid(2), Duration::ZERO, &rules(), at_s(30));
    levels.set_away(Apid(2), false, at_s(31));
    assert!(levels.runs(Apid(2)));
}

#[test]
fn it_goes_on_a_little_after_psched_has_begun() {
    // Times before the clock's zero, and at its end.
    let mut levels = Levels::new(false);
    levels.add(Apid(1), 1, Duration::ZERO, s(10_000_000), 5);
    levels.add(Apid(2), 0, Duration::MAX, Duration::MAX, 5);
    assert_eq!(turns(&mut levels, &rules(), 5)[0].apid, Apid(1));
    levels.start(Apid(1), Duration::MAX, &rules(), 6);
    assert!(levels.next(&rules(), &[], 6).is_some());
    turns(&mut levels, &rules(), u64::MAX);
    levels.stop(Apid(1), u64::MAX);
    assert_eq!(Levels::new(false).next(&rules(), &everywhere(), 0), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Gangs of random processors run by the order for as long as it says; short ones come all the time.
    /// Nobody waits for longer than `longest_wait`, and, for each gang that was there meanwhile, what one may
    /// keep its place for then: the grant, or a cost.
    #[test]
    fn nobody_waits_for_ever(
        sets in prop::collection::vec(prop::collection::btree_set(0u32..6, 1..6), 2..7),
        costs in prop::collection::vec(0u64..20, 7),
        arrivals in prop::collection::vec((1u64..60, 1u64..90, prop::collection::btree_set(0u32..6, 1..6)), 0..120),
        stickiness in 0u64..500,
        had in 0u64..3_000,
    ) {
        const LONGEST: u64 = 300;
        let rules = Rules {
            longest_wait: s(LONGEST),
            stickiness: s(stickiness),
            aging_after: s(100),
            aging_share: 0,
            aging_grant: s(20),
            ..rules()
        };
        let mut levels = gangs(&vec![had; sets.len()]);
        let mut sets: BTreeMap<Apid, _> = (1..).map(Apid).zip(sets).collect();
        let long = sets.len() as u64;
        let mut ends: BTreeMap<Apid, u64> = BTreeMap::new();
        let (mut seconds, mut arrivals, mut comes) = (0, arrivals.into_iter(), 0);
        let mut next = arrivals.next();
        let mut most_there = 0;
        while seconds < 3_000 {
            while let Some((step, lasts, set)) = next.take_if(|(step, ..)| comes + *step <= seconds) {
                comes += step;
                let apid = Apid(100 + comes);
                levels.add(apid, 1, Duration::ZERO, Duration::ZERO, at_s(seconds));
                sets.insert(apid, set);
                ends.insert(apid, lasts);
                next = arrivals.next();
            }
            for (apid, lasts) in ends.clone() {
                if levels.attained(apid, at_s(seconds)) >= s(lasts) {
                    levels.remove(apid);
                    sets.remove(&apid);
                    ends.remove(&apid);
                }
            }
            most_there = most_there.max(sets.len() as u64);
            let mut taken = std::collections::BTreeSet::new();
            let order = turns(&mut levels, &rules, at_s(seconds));
            let mut party = Vec::new();
            for turn in &order {
                if taken.is_disjoint(&sets[&turn.apid]) {
                    taken.extend(sets[&turn.apid].iter().copied());
                    party.push(turn.apid);
                }
                // Who comes and goes adds his cost once.
                let bound = LONGEST + (long + 120) * 20 + most_there * (LONGEST / 5 + 20);
                prop_assert!(turn.waited <= s(bound), "{} waits for {:?}", turn.apid, turn.waited);
            }
            for turn in &order {
                if !party.contains(&turn.apid) {
                    levels.stop(turn.apid, at_s(seconds));
                }
            }
            for apid in party {
                let cost = costs.get(apid.0 as usize % costs.len()).copied().unwrap_or(0);
                levels.start(apid, s(cost), &rules, at_s(seconds));
            }
            seconds += 1;
        }
    }
}
