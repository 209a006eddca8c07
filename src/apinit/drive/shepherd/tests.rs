//! What is said to an apshepherd while it is dumped.

use super::*;
use crate::apinit::decide::tests::key;
use crate::apinit::drive::relay::tests::Apinit;

/// An application whose apshepherd is dumped, and was told to go meanwhile.
fn dumped() -> Apinit {
    let mut apinit = Apinit::new();
    apinit.placed(key(5, 1));
    let Apinit { driver, host } = &mut apinit;
    host.said.clear();
    driver.hang_up(host, key(5, 1), Some(1));
    driver.tell_shepherd(host, key(5, 1), ToShepherd::Go);
    assert_eq!(host.said, []);
    apinit
}

#[test]
fn what_waited_is_said_once_it_is_there_again() {
    let Apinit { mut driver, mut host } = dumped();
    driver.heard_again(&mut host, key(5, 1), true);
    assert_eq!(host.said, [ToShepherd::Go]);
    assert!(!driver.is_set_aside(key(5, 1)));
}

#[test]
fn nothing_is_said_to_one_that_has_gone() {
    let Apinit { mut driver, mut host } = dumped();
    driver.heard_again(&mut host, key(5, 1), false);
    assert_eq!(host.said, []);
}
