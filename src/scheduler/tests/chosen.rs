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

#[test]
fn by_least_attained_service_nodes_are_kept_for_one_that_has_waited_for_longest_wait() {
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
