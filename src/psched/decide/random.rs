//! Random histories: the scheduler against nodes that lose, delay and repeat.
//!
//! Each node is a small honest model: it holds what it was told to hold, launches when a front end
//! comes, and repeats its last words until they are acknowledged. Commands and reports wait in
//! queues from which the history takes them in its own time; a link may break at any moment, which
//! loses both queues. psched may be killed and restored from its last saved records. Looked at
//! after every step: no processor has more holders than it may, on any node; nothing that has ended is told to
//! end twice; what runs on a foreign node goes on until an administrator says otherwise. psched may
//! also be started with an empty store, or with an old copy of one. Administrators close nodes or take the
//! flavor ap from them, and hold applications: nothing new is placed there, and these are not placed. Where the
//! nodes are of domains, another psched.yaml gives them to others: nobody is placed beside somebody of another
//! domain. Where one apinit offers all nodes, running applications are moved, and a move may last, or fail: both
//! places are the application's until it is there. Where nodes bring memory to swap, more sit than may be resident,
//! memory may not go, and nodes may change their minds. Nodes tell how their changes of gangs went,
//! and what memory the gangs have had; psched may hear it late, or twice: nothing of that is of an
//! application that has ended. Looked at once everything has come to rest: each accepted posting
//! has ended, once, and no node holds anything; and on the way there, that each application runs
//! where its record says.

mod node;
mod regressions;
mod steps;
mod world;

use proptest::prelude::*;
use std::collections::BTreeSet;
use steps::{Step, step, step_or_move, step_or_roll_out};
use world::{Kind, World};

const NODES: u32 = 3;
const PROCESSORS: u32 = 2;

fn history(steps: Vec<Step>) {
    history_of(Kind::default(), steps);
}

fn history_of(kind: Kind, steps: Vec<Step>) {
    let mut world = World::new(&kind);
    for number in 0..NODES {
        world.connect(number);
    }
    for step in steps {
        world.step(step);
        world.check();
    }
    world.settle();
    assert_eq!(world.kept.ended.keys().copied().collect::<BTreeSet<_>>(), world.kept.accepted);
}

fn moves(steps: Vec<Step>) {
    history_of(Kind { moves: true, ..Kind::default() }, steps);
}

fn floors() -> impl Strategy<Value = bool> {
    prop_oneof![Just(true), Just(false)]
}

fn post(width: u32) -> Step {
    Step::Post { width, flexible: false }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_history_comes_to_rest(steps in proptest::collection::vec(step(), 1..160)) {
        history(steps);
    }

    #[test]
    fn every_history_of_those_who_share_comes_to_rest(
        max_resident in 2u32..5,
        steps in proptest::collection::vec(step(), 1..160)
    ) {
        history_of(Kind { max_resident, ..Kind::default() }, steps);
    }

    #[test]
    fn every_history_of_domains_comes_to_rest(
        max_resident in 1u32..4,
        steps in proptest::collection::vec(step(), 1..160)
    ) {
        history_of(Kind { max_resident, domains: true, ..Kind::default() }, steps);
    }

    #[test]
    fn every_history_of_moves_comes_to_rest(
        max_resident in 1u32..4,
        domains in proptest::bool::weighted(0.3),
        floors in floors(),
        steps in proptest::collection::vec(step_or_move(), 1..160)
    ) {
        history_of(Kind { max_resident, domains, floors, moves: true, swaps: false }, steps);
    }
    #[test]
    fn every_history_of_roll_outs_comes_to_rest(
        max_resident in 1u32..4,
        domains in proptest::bool::weighted(0.2),
        moves in any::<bool>(),
        steps in proptest::collection::vec(step_or_roll_out(), 1..160)
    ) {
        history_of(Kind { max_resident, domains, floors: false, moves, swaps: true }, steps);
    }
}
