//! What should never be is found.

use super::decided::{Play, able};
use crate::apteam::Apid;

/// Something breaks it, and what is said then.
type Break = (fn(&mut Play), &'static str);

#[test]
fn what_should_never_be_is_found() {
    let breaks: [Break; 5] = [
        (|play| play.s.occupancy.release(Apid(1)), "1 is running and has no processors"),
        (|play| play.s.queue.extend([Apid(1)]), "1 is running and is in the queue"),
        (|play| play.s.queue.extend([Apid(9)]), "9, which is not there, waits"),
        (|play| play.s.coming.extend([Apid(9)]), "9, which is not there, is to come"),
        (|play| play.s.requests.extend([([9; 16], Apid(9))]), "9, which is not there, has a"),
    ];
    for (broken, said) in breaks {
        let mut play = Play::new(4, 1, able());
        play.post(1, 2);
        assert_eq!(play.s.broken(), None);
        broken(&mut play);
        let found = play.s.broken().expect("it is found");
        assert!(found.starts_with(&format!("application {said}")), "{found}");
    }
}
