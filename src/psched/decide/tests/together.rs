//! What happens at one instant, or soon anyway, is done together.

use super::decided::{Play, settings};
use super::turns::ms;
use super::*;
use crate::apteam::Apid;
use std::time::Duration;

#[test]
fn who_end_at_one_instant_are_decided_about_once() {
    for (together, runs) in [(true, 3), (false, 4)] {
        let mut play = Play::new(2, 1, settings());
        (1..3).for_each(|number| play.post(number, 1));
        play.pass(10);
        // The third needs both nodes, the fourth one of them.
        play.post(3, 2);
        play.post(4, 1);
        assert_eq!(play.party(), [1, 2]);
        let ends = [play.end_of(1), play.end_of(2)];
        match together {
            true => play.take_all(ends.into()),
            false => ends.into_iter().for_each(|end| play.take(end)),
        }
        assert_eq!(play.party(), [runs]);
    }
}

#[test]
fn a_plan_is_said_again_with_what_happens_anyway() {
    let mut settings = settings();
    settings.turns.reconsider = Duration::from_secs(1_000);
    let mut play = Play::new(2, 1, settings);
    play.post(1, 2);
    play.pass(1_000);
    play.post(2, 2);
    play.pass(100);
    // At the bound of its level the second goes on, by the plan that is there.
    assert_eq!((play.party(), play.s.deadline()), (vec![2], Some(1_360 * SECOND)));
    let mut looks = |seconds: u64| {
        let event = Event::Looked { reply: ReplyId(1), apid: Apid(9) };
        brief(&play.s.apply(ms(seconds * 1_000), event))
    };
    assert_eq!(looks(1_360), ["refuse 1 NotFound"]);
    assert_eq!(looks(1_399), ["refuse 1 NotFound"]);
    // That is good for ten minutes: after two thirds of them it is said again with whatever happens.
    assert_eq!(looks(1_401), ["refuse 1 NotFound", "-> 1 plan"]);
    // And where nothing happens, in time all the same.
    let due = play.s.deadline().expect("a plan is to be said again");
    assert!((1_890 * SECOND..1_910 * SECOND).contains(&due), "{due}");
    assert_eq!(brief(&play.s.apply(ms(due.div_ceil(1_000_000)), Event::Tick)), ["-> 1 plan"]);
}
