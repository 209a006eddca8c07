//! Plans with floors, as events follow each other.

use super::decided::Play;
use super::*;
use crate::apteam::Apid;
use crate::apteam::record::State;
use crate::psched::decide::Turn;
use std::collections::BTreeMap;

/// As shipped.
fn settings() -> Settings {
    (&crate::variables::Variables::default()).into()
}

/// For how long each of these stood at most, in milliseconds, while something was done again and again.
fn longest(
    play: &mut Play,
    apids: &[u64],
    times: u32,
    mut does: impl FnMut(&mut Play, u32),
) -> Vec<u64> {
    const STEP: u64 = 50;
    let mut stands = vec![(0, 0); apids.len()];
    for time in 0..times {
        does(play, time);
        play.pass_ms(STEP);
        for (apid, (now, most)) in apids.iter().zip(&mut stands) {
            *now = if play.is_on(*apid) { 0 } else { *now + STEP };
            *most = (*most).max(*now);
        }
    }
    stands.into_iter().map(|(_, most)| most).collect()
}

/// Each of them leads when it comes, and ends in its lead.
#[test]
fn a_stream_of_short_ones_puts_off_no_floor() {
    for (comes, ends) in [(14, 6), (14, 1), (10, 9), (20, 16), (7, 3)] {
        let mut play = Play::new(1, 2, settings());
        play.post(1, 2);
        play.post(2, 2);
        play.post(3, 2);
        play.pass(100);
        let mut next = 4;
        let longest = longest(&mut play, &[1, 2, 3], 600, |play, time| match time % comes {
            0 => play.post(next, 2),
            n if n == ends => {
                play.ends(next.into());
                next += 1;
            }
            _ => {}
        });
        // One user, and three other programs of his.
        assert!(longest.iter().all(|ms| *ms <= 4_000), "{comes} {ends}: {longest:?}");
    }
}

/// Three users' programs take turns for a minute. The share of statements about the next turn of one
/// that waits that come true within a time slice, in percent; `every_ms`: so often a short program of
/// a fourth user comes, and the one before it ends.
fn told_truly(every_ms: Option<u64>) -> f64 {
    const STEP: u64 = 50;
    let mut play = Play::new(1, 2, settings());
    for (number, name) in [(1, "ann"), (2, "bob"), (3, "cyd")] {
        play.take(posted_by(number, name));
    }
    play.pass(5);
    let mut told: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    let (mut all, mut truly, mut comes) = (0, 0, 4);
    for now_ms in (5_000..65_000).step_by(STEP as usize) {
        if every_ms.is_some_and(|every| now_ms % every < STEP) {
            if comes > 4 {
                play.ends(u64::from(comes) - 1);
            }
            play.take(posted_by(comes, "dan"));
            comes += 1;
        }
        for apid in 1..=3 {
            match play.s.turn(Apid(apid), now_ms * 1_000_000) {
                Turn::Waits { until_ns } => told.entry(apid).or_default().push(until_ns),
                _ => {
                    let before = told.remove(&apid).unwrap_or_default();
                    let now_ns = now_ms * 1_000_000;
                    // (It began within the last step.)
                    let most = SECOND + STEP * 1_000_000;
                    let is_true = |until_ns: &&u64| until_ns.abs_diff(now_ns) <= most;
                    all += before.len();
                    truly += before.iter().filter(is_true).count();
                }
            }
        }
        play.pass_ms(STEP);
    }
    assert!(all > 500, "{all}");
    truly as f64 * 100.0 / all as f64
}

#[test]
fn the_next_turn_comes_when_it_was_told() {
    for every_ms in [None, Some(10_000), Some(2_500)] {
        let told = told_truly(every_ms);
        assert!(told >= 95.0, "{every_ms:?}: {told}");
    }
    // (More than one newcomer in a slice, each of which leads.)
    let told = told_truly(Some(700));
    assert!(told >= 94.0, "{told}");
}

/// Who leads gives way as soon as it has had 6 s, the bound of a level, to one of its user that has had less.
#[test]
fn who_passes_a_level_gives_way() {
    let mut play = Play::new(1, 2, settings());
    play.post(1, 2);
    play.pass_ms(1_500);
    play.post(2, 2);
    let mut led_ms = 0;
    while play.party() == [2] && led_ms < 20_000 {
        play.pass_ms(100);
        led_ms += 100;
    }
    // (Of each second it has three quarters.)
    assert!((7_000..9_000).contains(&led_ms), "{led_ms}");
    assert_eq!(play.party(), [1]);
}

/// Bob tells his forty applications something, one after the other: each is to run for that, but not for all of
/// Alice's time.
#[test]
fn who_tells_his_own_something_silences_nobody() {
    for ends in [false, true] {
        let mut play = Play::new(1, 2, settings());
        play.post(1, 2);
        for number in 2..=41 {
            let mut event = posted(number, 2);
            if let Event::Posted { owner, .. } = &mut event {
                (owner.uid, owner.name) = (2_000, "bob".into());
            }
            play.take(event);
        }
        play.pass(60);
        let mut on = 0;
        let longest = longest(&mut play, &[1], 600, |play, time| {
            on += u32::from(play.is_on(1));
            let key = key(u64::from(2 + time / 2 % 40), 1);
            let report = Box::new(Report::ToHear { key, ends });
            play.take(Event::Report { link: LinkId(1), report });
        });
        assert!(longest[0] <= 2_000, "{longest:?}");
        assert!(on >= 240, "{on} of 600");
    }
}

/// Ann posts a thousand short programs at once, and the host takes time to start them. Bob has had
/// nothing, and his program does not wait for all of hers.
#[test]
fn a_sweep_that_starts_slowly_keeps_nobody_else_out() {
    let mut play = Play::new(1, 2, settings());
    let by = |number: u64, width: u32, user: &str| {
        let mut event = posted_by(0, user);
        if let Event::Posted { posting, .. } = &mut event {
            posting.shape.width = width;
            posting.request_id[..8].copy_from_slice(&number.to_ne_bytes());
        }
        event
    };
    play.take(by(1, 2, "ann"));
    play.pass(100);
    let (sweep, bob) = (2..=1_001, 1_002);
    play.silent = sweep.clone().map(Apid).collect();
    play.take_all(sweep.clone().map(|number| by(number, 1, "ann")).collect());
    let is = |play: &Play, apid: u64, state| {
        play.s.team(Apid(apid)).is_some_and(|team| team.state == state)
    };
    let step = |play: &mut Play| {
        // Each hundredth of a second one is launched, and one ends.
        if let Some(apid) = sweep.clone().find(|apid| is(play, *apid, State::Running)) {
            play.ends(apid);
        }
        if let Some(apid) = sweep.clone().find(|apid| is(play, *apid, State::Placed)) {
            let key = play.s.team(Apid(apid)).expect("it is there").key();
            for report in [Report::Launched(key), Report::Running(key)] {
                play.take(Event::Report { link: LinkId(1), report: Box::new(report) });
            }
        }
        play.pass_ms(10);
    };
    for _ in 0..150 {
        step(&mut play);
        // (Two run there at once.)
        let starting = sweep.clone().filter(|apid| is(&play, *apid, State::Placed)).count();
        assert!(starting <= 2 + 4, "{starting} start at once");
    }
    play.take(by(bob, 1, "bob"));
    let at_ms = play.ms;
    while is(&play, bob, State::Posted) && play.ms < at_ms + 10_000 {
        step(&mut play);
    }
    assert!(play.ms - at_ms <= 500, "placed after {} ms", play.ms - at_ms);
}
