//! When it is decided again while nothing happens.

use super::decided::{Play, able};
use std::time::Duration;

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// On four nodes of a processor: 1, two wide, has stood since 10,000 s, for a place that two took; one of them
/// runs on at 13,000 s, and so does one of two others. There is no window, and nobody's place in the order
/// changes.
fn stands_between(compact_after: u64) -> Play {
    let mut settings = able();
    settings.turns.reconsider = s(100);
    settings.turns.compact_after = s(compact_after);
    settings.turns.levels.wide_first = Duration::ZERO;
    let mut play = Play::new(4, 1, settings);
    play.post(1, 2);
    play.pass(10_000);
    (2..=5).for_each(|number| play.post(number, 1));
    assert_eq!(play.party(), [2, 3, 4, 5]);
    play.pass(3_000);
    let at = |play: &Play, nid: &str| (2..=5).find(|apid| play.nids(*apid) == nid).expect("one");
    let ended = [at(&play, "0"), at(&play, "2")];
    ended.into_iter().for_each(|apid| play.ends(apid));
    assert_eq!(play.party().len(), 2);
    play
}

#[test]
fn a_wait_that_is_long_enough_is_seen_at_the_next_look() {
    let mut play = stands_between(30_050);
    let runs_there = *play.party().iter().find(|apid| play.nids(**apid) == "1").expect("one");
    play.pass(40_000 - 13_000 + 50);
    assert!(play.moves.is_empty() && !play.party().contains(&1));
    play.pass(100);
    // (It has its own place again, and that is no move.)
    let moved: Vec<u64> = play.moves.iter().map(|(apid, ..)| apid.0).collect();
    assert_eq!(moved, [runs_there]);
    assert!(play.party().contains(&1));
}

#[test]
fn nothing_is_decided_where_time_changes_nothing() {
    let mut play = stands_between(1_000_000);
    // (It has looked once more whether what it did changes anything.)
    play.pass(200);
    let now_ns = 13_200 * 1_000_000_000;
    let due = play.s.domains[0].due_ns.expect("one waits");
    // 48 h, and a quarter of the 10,000 s that it has had: then it is aged.
    let aged = 1_000_000_000 * (10_000 + 48 * 3_600 + 2_500);
    assert!(now_ns < due && (aged..=aged + 100_000_000_000).contains(&due), "{due}");
    play.pass((due - now_ns) / 1_000_000_000 + 1);
    assert!(play.party().contains(&1));
}
