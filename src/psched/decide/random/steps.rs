//! What happens in a history, one thing after the other.

use super::{NODES, PROCESSORS};
use crate::apteam::change::Closed;
use crate::machine::{Flavor, Flavors};
use crate::psched::decide::NodesTo;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::time::Duration;

#[derive(Clone, Debug)]
pub(super) enum Step {
    Post {
        width: u32,
        flexible: bool,
    },
    /// One that is restored from a checkpoint, or waits again: under the number of one of the last that have
    /// ended, where nobody has it. (Each node has an apinit, as a rule: a wider one would wait for ever.) Of several
    /// parts each has one PE.
    Restart {
        width: u32,
        parts: u32,
        again: Option<u64>,
    },
    FrontGone(usize),
    Look(usize),
    Kill(usize, i32),
    /// The front end of an application launches it on every node that knows it.
    Launch(usize),
    /// A running application ends by itself on a node.
    Finish(usize, u32),
    Deliver(u32),
    Hear(u32),
    /// All that the nodes report is heard at one instant.
    HearAll,
    /// A report that was heard before comes again.
    HearAgain(u32, usize),
    Break(u32),
    Connect(u32),
    Time,
    Crash,
    /// Its state directory is copied.
    Copy,
    /// It is started on the copy; the nodes call at once, or when they do.
    OldCopy(bool),
    /// It is started on nothing.
    EmptyStore(bool),
    /// On both nodes, or on one of them.
    Adopt(Option<u32>),
    Purge(Option<u32>),
    /// An administrator drains it, declares it down (he may be wrong), or resumes it.
    Order(u32, NodesTo),
    /// An administrator gives it flavors, or takes that back.
    Flavors(u32, Option<Flavors>),
    Hold(usize, bool),
    /// The nodes are of these domains from now on, by number; the same for both: without regions.
    Domains(u32, u32),
    /// An administrator moves one: to these nodes, or anywhere.
    Migrate(usize, Option<BTreeSet<u32>>),
    /// He has all who can be moved brought together.
    Compact,
    /// What a node was told to move is there, or it fails.
    Arrive(u32, bool),
    /// A wide one comes, and runs at once if it is given a place.
    Begin(u32),
    /// Memory goes to swap on a node, or not; and it says that it can, or not.
    Swap(u32, bool, bool),
    /// A node changes gangs, and tells how that went.
    Switch(u32, Measure),
}

/// What a node measures at a change of gangs.
#[derive(Clone, Debug)]
pub(super) struct Measure {
    /// Whose turn it is, by number.
    pub turn: usize,
    /// Which part of the time since the last change the gangs have run, in tenths.
    pub ran: u32,
    /// How long the gang that stops was idle alone.
    pub idle: Duration,
    /// Bytes that had to come in, and how long that took.
    pub brought: u64,
    pub gap_ns: u64,
    /// The most memory of each gang on each node, in bytes.
    pub peak: u64,
    /// Changes that are not told one by one.
    pub left_out: u64,
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    let any = 0..8usize;
    let node = 0..NODES;
    prop_oneof![
        4 => (1..=NODES * PROCESSORS, proptest::bool::ANY)
            .prop_map(|(width, flexible)| Step::Post { width, flexible }),
        1 => (1..=PROCESSORS, 0..=NODES, proptest::option::of(1..8u64))
            .prop_map(|(width, parts, again)| Step::Restart { width, parts, again }),
        1 => any.clone().prop_map(Step::FrontGone),
        2 => any.clone().prop_map(Step::Look),
        2 => (any.clone(), prop_oneof![Just(0), Just(9), Just(10)]).prop_map(|(a, s)| Step::Kill(a, s)),
        6 => any.clone().prop_map(Step::Launch),
        6 => (any.clone(), node.clone()).prop_map(|(a, n)| Step::Finish(a, n)),
        6 => node.clone().prop_map(Step::Deliver),
        6 => node.clone().prop_map(Step::Hear),
        3 => Just(Step::HearAll),
        3 => (node.clone(), 0..64usize).prop_map(|(n, i)| Step::HearAgain(n, i)),
        2 => node.clone().prop_map(Step::Break),
        3 => node.clone().prop_map(Step::Connect),
        2 => Just(Step::Time),
        1 => Just(Step::Crash),
        1 => Just(Step::Copy),
        1 => proptest::bool::ANY.prop_map(Step::OldCopy),
        1 => proptest::bool::ANY.prop_map(Step::EmptyStore),
        5 => proptest::option::of(node.clone()).prop_map(Step::Adopt),
        1 => proptest::option::of(node.clone()).prop_map(Step::Purge),
        3 => (node.clone(), to()).prop_map(|(n, to)| Step::Order(n, to)),
        2 => (node, flavors()).prop_map(|(n, to)| Step::Flavors(n, to)),
        2 => (any, proptest::bool::ANY).prop_map(|(a, hold)| Step::Hold(a, hold)),
        3 => (0..NODES, measure()).prop_map(|(n, measure)| Step::Switch(n, measure)),
        // (Without it where there are none: see `history_of`.)
        2 => (0u32..3, 0u32..3).prop_map(|(a, b)| Step::Domains(a, b)),
    ]
}

/// With moves among them.
pub(super) fn step_or_move() -> impl Strategy<Value = Step> {
    let nids = proptest::option::of(proptest::collection::btree_set(0..NODES, 1..3));
    prop_oneof![
        8 => step(),
        1 => (0..8usize, nids).prop_map(|(a, nids)| Step::Migrate(a, nids)),
        1 => Just(Step::Compact),
        1 => (0..NODES, proptest::bool::weighted(0.2)).prop_map(|(n, fails)| Step::Arrive(n, fails)),
    ]
}

/// With roll-outs, and moves, among them.
pub(super) fn step_or_roll_out() -> impl Strategy<Value = Step> {
    let mostly = || proptest::bool::weighted(0.8);
    prop_oneof![
        12 => step_or_move(),
        // What sits side by side.
        10 => (3..=NODES * PROCESSORS).prop_map(Step::Begin),
        2 => Just(Step::Time),
        1 => (0..NODES, mostly(), mostly()).prop_map(|(n, goes, can)| Step::Swap(n, goes, can)),
    ]
}

fn measure() -> impl Strategy<Value = Measure> {
    let often_none = |most: u64| prop_oneof![Just(0), 0..most];
    (
        0..8usize,
        0..=10u32,
        often_none(3_000_000_000),
        often_none(1 << 30),
        0..=1u64 << 30,
        often_none(9),
    )
        .prop_map(|(turn, ran, idle_ns, brought, peak, left_out)| {
            let (idle, gap_ns) = (Duration::from_nanos(idle_ns), 300_000 + brought);
            Measure { turn, ran, idle, brought, gap_ns, peak, left_out }
        })
}

pub(super) fn flavors() -> impl Strategy<Value = Option<Flavors>> {
    let system = [Flavor::Su, Flavor::Os].into_iter().collect();
    prop_oneof![Just(Some(system)), Just(Some(Flavors::all())), Just(None)]
}

pub(super) fn to() -> impl Strategy<Value = NodesTo> {
    let (drain, down) = (NodesTo::Close(Closed::Drained), NodesTo::Close(Closed::Down));
    prop_oneof![Just(drain), Just(down), Just(NodesTo::Resume)]
}
