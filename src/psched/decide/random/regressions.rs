//! What random histories have found.

use super::steps::Step;
use super::{history, moves, post};
use crate::apteam::change::Closed;
use crate::machine::Flavor;
use crate::psched::decide::NodesTo;

#[test]
fn an_old_copy_places_anew_what_an_adopted_node_lacks() {
    use Step::*;
    history(vec![post(3), Copy, Connect(0), Hear(0), OldCopy(true), Adopt(None)]);
}

/// The records of an old copy said where it had been before it was moved, for good: its node does not say again
/// where it is when it is adopted.
#[test]
fn an_old_copy_follows_those_that_have_been_moved_since() {
    use Step::*;
    let start = |number: usize| [post(2), Deliver(0), Launch(number), HearAll];
    for end in [vec![], vec![post(2)], vec![Migrate(0, None), Deliver(0), Arrive(0, false)]] {
        let mut steps: Vec<Step> = start(0).into_iter().chain(start(1)).collect();
        steps.extend([Copy, Connect(0), HearAll, Migrate(0, None), Deliver(0), Arrive(0, false)]);
        steps.extend([HearAll, Migrate(1, None), Deliver(0), Arrive(0, false), HearAll]);
        steps.extend([OldCopy(true), Adopt(None), Deliver(0), HearAll]);
        steps.extend(end);
        moves(steps);
    }
}

/// The end of a purged part concerned the rest, whose node was foreign still.
#[test]
fn what_ends_in_a_purge_is_not_said_to_a_foreign_node() {
    use Step::*;
    history(vec![
        Crash,
        post(3),
        post(3),
        Copy,
        post(1),
        post(1),
        OldCopy(true),
        post(1),
        Adopt(None),
        Deliver(0),
        Deliver(1),
        Copy,
        post(1),
        OldCopy(true),
        OldCopy(true),
    ]);
}

/// A node that had been declared down, and was heard all the same, went on with what was found there.
#[test]
fn what_is_found_on_a_node_that_was_declared_down_is_not_left_there() {
    use Step::*;
    let down = NodesTo::Close(Closed::Down);
    history(vec![
        post(1),
        Deliver(0),
        EmptyStore(false),
        Order(0, down),
        Connect(0),
        Adopt(Some(0)),
        Launch(0),
        Deliver(0),
    ]);
}

/// A part that had ended and was forgotten was placed anew on its node, for ever: the rest had run.
#[test]
fn a_part_placed_anew_after_all_have_run_is_lost() {
    use Step::*;
    for (first, then) in [(0, 1), (1, 0)] {
        history(vec![
            post(3),
            Deliver(0),
            Deliver(1),
            Copy,
            FrontGone(0),
            Adopt(None),
            Connect(first),
            Launch(0),
            Finish(0, first),
            HearAll,
            Deliver(first),
            Finish(0, then),
            OldCopy(true),
            Purge(Some(first)),
            Deliver(first),
            Hear(first),
            Deliver(first),
        ]);
    }
}

/// One that an old copy had placed anew by the same number was taken for one that had moved, and its new place was
/// kept for nobody, for ever.
#[test]
fn an_old_copy_that_has_placed_one_anew_does_not_adopt_the_former() {
    use Step::*;
    let system = [Flavor::Su, Flavor::Os].into_iter().collect();
    let place = [post(1), post(1), Flavors(0, Some(system)), post(1), post(1), Copy];
    let anew = [Connect(1), Deliver(1), OldCopy(true)];
    for end in [vec![Adopt(None)], vec![Purge(Some(1)), Deliver(1), Hear(1), Hear(1)]] {
        history([Crash].into_iter().chain(place.clone()).chain(anew.clone()).chain(end).collect());
    }
}
