//! Applications that have chosen their nodes (`aprun -L`): that they get there some day, whoever comes.
//! Where they go is in the transcripts (golden/lists.txt).

use super::decided::{Play, settings};
use super::*;
use crate::apteam::choice::Choice;

/// Both nodes, one PE on each.
fn on_both(number: u8) -> Event {
    let mut event = posted(number, 2);
    let Event::Posted { posting, .. } = &mut event else { unreachable!() };
    posting.choice = Choice::default().only("0-1").expect("a list");
    event
}

/// By the clock it has waited longer than one that came before it, and nodes are kept for both:
/// neither would get a place.
#[test]
fn one_that_came_later_is_not_first_in_line_because_the_clock_was_set_back() {
    let mut settings = settings();
    settings.turns.max_resident = 1;
    settings.turns.longest_wait = Duration::from_secs(100);
    settings.turns.levels.longest_wait = Duration::from_secs(100);
    let mut play = Play::new(2, 1, settings);
    play.post(1, 2);
    play.pass(50);
    play.post(2, 2);
    play.set_back = Duration::from_secs(40);
    play.take(on_both(3));
    play.pass(150);
    play.ends(1);
    assert_eq!((play.nids(2), play.nids(3)), ("0-1".into(), String::new()));
    play.ends(2);
    assert_eq!(play.nids(3), "0-1");
}

#[test]
fn nodes_are_kept_for_one_that_has_waited_for_longest_wait() {
    let mut settings = settings();
    settings.turns.max_resident = 1;
    settings.turns.longest_wait = Duration::from_secs(100);
    settings.turns.levels.longest_wait = Duration::from_secs(100);
    let mut play = Play::new(2, 1, settings);
    play.post(1, 1);
    play.post(2, 1);
    play.take(on_both(3));
    play.post(4, 1);
    play.ends(1);
    assert_eq!((play.nids(3), play.nids(4)), (String::new(), "0".into()), "one node is too few");
    play.post(5, 1);
    play.pass(110);
    // Now what becomes free stays free for it.
    play.ends(2);
    assert_eq!((play.nids(3), play.nids(5)), (String::new(), String::new()));
    play.ends(4);
    assert_eq!((play.nids(3), play.nids(5)), ("0-1".into(), String::new()));
    play.ends(3);
    assert_eq!(play.nids(5), "0");
}
