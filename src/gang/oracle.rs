//! Plans of random gangs, checked by what is promised and by nothing else.

use super::Gang;
use super::competition::Competition;
use super::plan::plan;
use super::rotation::{Rotation, Rules};
use crate::apteam::Apid;
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const PROCESSORS: u32 = 12;
/// Processors of a node, and its bytes.
const NODE: (u32, u64) = (3, 10);

#[derive(Clone, Debug)]
enum Step {
    /// Comes, or is somewhere else.
    Comes(u64, BTreeSet<u32>, u64),
    /// It has so much memory on each of its processors from now on.
    Grows(u64, u64),
    /// So many milliseconds it took to bring its memory in.
    Costs(u64, u64),
    Goes(u64),
    /// The next slice of its component is run.
    Runs(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let contiguous = (0..PROCESSORS, 1..=PROCESSORS)
        .prop_map(|(at, width)| (at..(at + width).min(PROCESSORS)).collect());
    let processors = prop_oneof![3 => contiguous, 1 => btree_set(0..PROCESSORS, 1..6)];
    prop_oneof![
        4 => (1..12u64, processors, 0..5u64).prop_map(|(a, p, m)| Step::Comes(a, p, m)),
        1 => (1..12u64).prop_map(Step::Goes),
        1 => (1..12u64, 0..8u64).prop_map(|(a, m)| Step::Grows(a, m)),
        1 => (1..12u64, prop_oneof![Just(0), 0..2_000u64, 0..400_000u64])
            .prop_map(|(a, ms)| Step::Costs(a, ms)),
        4 => (1..12u64).prop_map(Step::Runs),
    ]
}

const RULES: Rules = Rules {
    time_slice: Duration::from_secs(1),
    longest_wait: Duration::from_secs(3_600),
    switch_share: 50,
};

/// All that the checks know: who is where.
type Placed = BTreeMap<u64, (BTreeSet<u32>, u64)>;

fn compete(placed: &Placed, one: u64, other: u64) -> bool {
    one != other && !placed[&one].0.is_disjoint(&placed[&other].0)
}

fn memory_on(placed: &Placed, one: u64, node: u32) -> u64 {
    let (processors, bytes) = &placed[&one];
    processors.iter().filter(|p| *p / NODE.0 == node).count() as u64 * bytes
}

fn is_on(placed: &Placed, one: u64, node: u32) -> bool {
    placed[&one].0.iter().any(|p| p / NODE.0 == node)
}

fn nodes() -> std::ops::Range<u32> {
    0..PROCESSORS / NODE.0
}

fn crowded(placed: &Placed, node: u32) -> bool {
    placed.keys().map(|one| memory_on(placed, *one, node)).sum::<u64>() > NODE.1
}

/// May keep each other from running.
fn rivals(placed: &Placed, one: u64, other: u64) -> bool {
    let crowd =
        |node| crowded(placed, node) && is_on(placed, one, node) && is_on(placed, other, node);
    one != other && (compete(placed, one, other) || nodes().any(crowd))
}

fn fits(placed: &Placed, party: &BTreeSet<u64>) -> bool {
    let apart = party.iter().all(|a| party.iter().all(|b| !compete(placed, *a, *b)));
    let room = nodes().all(|node| {
        let all: Vec<u64> = party.iter().map(|one| memory_on(placed, *one, node)).collect();
        let alone = party.iter().filter(|one| is_on(placed, **one, node)).count() <= 1;
        alone || all.iter().sum::<u64>() <= NODE.1
    });
    apart && room
}

proptest! {
    #[test]
    fn promises_hold(steps in vec(step(), 1..30)) {
        let memory = nodes().map(|_| NODE.1).collect();
        let mut competition = Competition::new(PROCESSORS as usize, memory);
        let mut rotation = Rotation::default();
        let mut placed = Placed::new();
        // Slices of its component in which it has not run, since it came or its rivals changed.
        let mut waited: BTreeMap<u64, usize> = BTreeMap::new();
        // Who ran last, and what it costs to bring whose memory in.
        let mut running: BTreeSet<u64> = BTreeSet::new();
        let mut costs: BTreeMap<u64, u64> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Comes(apid, processors, bytes) => {
                    placed.insert(apid, (processors.clone(), bytes));
                    let on = nodes().filter(|node| is_on(&placed, apid, *node));
                    let memory = on.map(|node| (node, memory_on(&placed, apid, node))).collect();
                    competition.add(Apid(apid), Gang { processors: processors.into_iter().collect(), memory });
                    rotation.add(Apid(apid), 1, Duration::ZERO, 0);
                    waited.clear();
                }
                Step::Goes(apid) => {
                    placed.remove(&apid);
                    competition.remove(Apid(apid));
                    rotation.remove(Apid(apid));
                    waited.clear();
                    running.remove(&apid);
                    costs.remove(&apid);
                }
                Step::Grows(apid, bytes) => {
                    let Some(before) = placed.get(&apid).cloned() else { continue };
                    let crowd = |placed: &Placed| nodes().map(|n| crowded(placed, n)).collect::<Vec<_>>();
                    let crowds = crowd(&placed);
                    placed.insert(apid, (before.0, bytes));
                    for node in nodes().filter(|node| is_on(&placed, apid, *node)) {
                        let is = crowd(&placed)[node as usize];
                        let here = memory_on(&placed, apid, node);
                        let matters = competition.set_memory(Apid(apid), node, here);
                        let was = crowds[node as usize];
                        prop_assert_eq!(matters, before.1 != bytes && (was || is));
                    }
                    waited.clear();
                }
                Step::Costs(apid, ms) => {
                    let before = costs.get(&apid).copied().unwrap_or(0);
                    let there = placed.contains_key(&apid);
                    let changes = rotation.set_cost(Apid(apid), Duration::from_millis(ms));
                    prop_assert_eq!(changes, there && ms != before);
                    if there {
                        costs.insert(apid, ms);
                    }
                }
                Step::Runs(apid) => {
                    let members = competition.component(Apid(apid));
                    let slice = rotation.next(&competition, &members, &RULES, 0);
                    rotation.ran(&members, &slice, 0);
                    for member in members {
                        let ran = slice.party.contains(&member);
                        let rivals = placed.keys().filter(|o| rivals(&placed, member.0, **o)).count();
                        let waited = waited.entry(member.0).or_default();
                        *waited = if ran { 0 } else { *waited + 1 };
                        if ran {
                            running.insert(member.0);
                        } else {
                            running.remove(&member.0);
                        }
                        prop_assert!(*waited <= rivals, "{member} waited {waited}, rivals {rivals}");
                    }
                }
            }
            // The components are those of the relation of rivals.
            let components = competition.components();
            let members: Vec<u64> = components.iter().flatten().map(|a| a.0).collect();
            prop_assert_eq!(members.iter().copied().collect::<BTreeSet<_>>(), placed.keys().copied().collect());
            prop_assert_eq!(members.len(), placed.len());
            let home = |one: u64| components.iter().position(|c| c.contains(&Apid(one)));
            for one in placed.keys() {
                for other in placed.keys() {
                    prop_assert_eq!(
                        competition.compete(Apid(*one), Apid(*other)),
                        compete(&placed, *one, *other)
                    );
                    prop_assert!(home(*one) == home(*other) || !rivals(&placed, *one, *other));
                }
            }
            for members in components {
                let plan = plan(&competition, &rotation, &members, &RULES, 0, &[]);
                prop_assert!(!plan.slices.is_empty());
                prop_assert!(members.len() > 1 || plan.slices.len() == 1, "alone, and stopped");
                for slice in &plan.slices {
                    let party: BTreeSet<u64> = slice.party.iter().map(|a| a.0).collect();
                    prop_assert!(fits(&placed, &party), "{party:?} do not fit");
                    for member in &members {
                        let with: BTreeSet<u64> = party.iter().copied().chain([member.0]).collect();
                        let idle = !party.contains(&member.0) && fits(&placed, &with);
                        prop_assert!(!idle, "{member} could run beside {party:?}");
                    }
                }
                // What is brought in is for who was not in the slice before.
                let party = |n: usize| plan.slices[n].party.iter().map(|a| a.0).collect::<BTreeSet<_>>();
                let brought = |n: usize| {
                    let before = match n {
                        0 if plan.repeats => party(plan.slices.len() - 1),
                        0 => running.clone(),
                        n => party(n - 1),
                    };
                    let of = |one: &u64| costs.get(one).copied().unwrap_or(0);
                    party(n).difference(&before).map(of).max().unwrap_or(0)
                };
                let most = (0..plan.slices.len()).map(brought).max().unwrap_or(0);
                for (n, slice) in plan.slices.iter().enumerate() {
                    let length = slice.length.as_millis() as u64;
                    prop_assert!(length >= 1_000 + brought(n), "no time for what comes: {plan:?}");
                    prop_assert!(length >= (20 * most).min(3_600_000), "too short: {plan:?}");
                    prop_assert!(
                        length == 1_000 + brought(n) || length == (20 * most).min(3_600_000),
                        "longer than needed: {plan:?}"
                    );
                }
                // Twice, since it repeats.
                let twice: Vec<_> = plan.slices.iter().chain(&plan.slices).collect();
                for member in &members {
                    let runs: Vec<usize> = (0..twice.len())
                        .filter(|n| twice[*n].party.contains(member))
                        .collect();
                    prop_assert!(!runs.is_empty(), "{member} never runs");
                    let rivals = placed.keys().filter(|o| rivals(&placed, member.0, **o)).count();
                    for pair in runs.windows(2) {
                        let fair = pair[1] - pair[0] - 1 <= rivals;
                        prop_assert!(fair || !plan.repeats, "{member} waits in {plan:?}");
                    }
                }
            }
        }
    }
}
