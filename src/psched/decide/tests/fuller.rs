//! Long programs that are in the way of wider ones, and who goes on all the same.

use super::decided::Play;
use super::turns::ms;
use super::*;
use crate::variables::{ShareBy, Variables};
use std::collections::BTreeMap;
use std::time::Duration;

/// After a second a program is of the last level, and what users have had is remembered for so many minutes.
fn settings(minutes: u64) -> Settings {
    let mut settings: Settings = (&Variables::default()).into();
    settings.turns.levels.bounds = vec![Duration::from_secs(1)];
    settings.half_life = Duration::from_secs(60 * minutes);
    settings
}

fn post(play: &mut Play, number: u8, width: u32, user: &str) {
    let mut event = posted(number, width);
    if let Event::Posted { owner, .. } = &mut event {
        owner.name = user.into();
    }
    play.take(event);
    play.pass(20);
}

/// On eight processors Alice's program has one, and each of Bob's two has four.
fn narrow_before_wide(settings: Settings) -> Play {
    let mut play = Play::new(8, 1, settings);
    post(&mut play, 1, 4, "bob");
    post(&mut play, 2, 4, "bob");
    post(&mut play, 3, 1, "alice");
    play
}

/// Seconds of the next `minutes` in which a program is in the party.
fn leads(play: &mut Play, apid: u64, minutes: u64) -> u64 {
    let mut leads = 0;
    for _ in 0..60 * minutes {
        play.pass(1);
        leads += u64::from(play.party().contains(&apid));
    }
    leads
}

#[test]
fn who_keeps_half_of_the_machine_idle_stands_until_its_user_is_short() {
    let mut play = narrow_before_wide(settings(8));
    // (She has had least, and yet her program stands.)
    play.pass(60);
    assert_eq!(play.party(), [1, 2]);
    let part = leads(&mut play, 3, 120) as f64 / 7_200.0;
    assert!((0.1..0.4).contains(&part), "{part}");
    // She has her floor beside that, and so more than a third of what is due to her.
    let had = |play: &Play| {
        let now = ms(play.ms);
        let all = play.s.shares(now).into_iter();
        all.map(|of| (of.holder.to_string(), of.had_s)).collect::<BTreeMap<_, _>>()
    };
    let before = had(&play);
    let due_s = 1.0 * 8.0 * 60.0 / std::f64::consts::LN_2;
    assert!(before["alice"] > 0.3 * due_s, "{before:?} of {due_s}");
}

/// Users take turns as ever if the wide programs fill the machine no better.
#[test]
fn nobody_stands_for_nothing() {
    let mut play = Play::new(8, 1, settings(8));
    post(&mut play, 1, 4, "alice");
    post(&mut play, 2, 8, "bob");
    // (Half of the machine is idle, and Bob's would fill it: he is asked for that half only.)
    post(&mut play, 3, 4, "carol");
    let part = leads(&mut play, 2, 60) as f64 / 3_600.0;
    assert!((0.25..0.45).contains(&part), "{part}");
}

#[test]
fn programs_of_lower_levels_do_not_stand_for_it() {
    let mut settings = settings(8);
    settings.turns.levels.bounds = vec![Duration::from_secs(1), Duration::from_secs(10_000)];
    let mut play = narrow_before_wide(settings);
    play.pass(60);
    assert!(play.party().contains(&3), "{:?}", play.party());
}

#[test]
fn where_there_are_no_users_nothing_is_different() {
    let mut settings = settings(8);
    settings.turns.share_by = ShareBy::Application;
    let mut play = narrow_before_wide(settings);
    play.pass(60);
    assert!(play.party().contains(&3), "{:?}", play.party());
}
