//! Slice plans: the coming parties of a component, with their lengths.
//!
//! # The problem
//!
//! psched sends nothing for each slice, and nodes must go on taking turns when it is dead. So a plan is
//! repeated as long as nobody renews it, and a repetition must be as fair as the rotation itself: it
//! may not begin with those who have just run.
//!
//! # The approach
//!
//! The rotation is run ahead until what it has given may be repeated: everybody has run, and, with the
//! end joined to the beginning, nobody waits for more slices than it has rivals. Where that does not
//! come within [`SLICES_MAX`] slices for each member, the first length after which all have run is
//! taken, and whoever renews plans does it when that is over.
//!
//! By least attained service ([`levels`](super::levels)) a decision says who runs, and psched takes the
//! next one in time. What a plan says beyond that is what nodes do when psched is dead: some time for
//! everybody ([`levelled`]).
//!
//! Memory has to be brought in for who comes in a slice and was not in the one before; so how long the
//! slices of a round robin are ([`rotation`](super::rotation)) is known once all are there.
//!
//! ```
//! use psched::apteam::Apid;
//! use psched::gang::{Gang, competition::Competition, plan::plan};
//! use psched::gang::rotation::{Rotation, Rules};
//! use std::time::Duration;
//!
//! let gang = |processors: &[u32]| Gang { processors: processors.to_vec(), memory: vec![] };
//! let (mut competition, mut rotation) = (Competition::new(6, vec![]), Rotation::default());
//! for (apid, processors) in [(1, &[0, 1, 2, 3][..]), (2, &[0, 1]), (3, &[4, 5]), (4, &[2, 3, 4, 5])] {
//!     competition.add(Apid(apid), gang(processors));
//!     rotation.add(Apid(apid), 1, Duration::ZERO, 0);
//! }
//! let members = competition.component(Apid(1));
//! let rules = Rules {
//!     time_slice: Duration::from_secs(1),
//!     longest_wait: Duration::from_secs(3_600),
//!     switch_share: 50,
//! };
//! let plan = plan(&competition, &rotation, &members, &rules, 0, &[]);
//! let parties: Vec<_> = plan.slices.iter().map(|slice| slice.party.clone()).collect();
//! assert_eq!(parties, [[Apid(1), Apid(3)], [Apid(2), Apid(4)]]);
//! ```

use super::competition::Competition;
use super::rotation::{Rotation, Rules, SLICE_MIN};
use crate::apteam::Apid;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Slices of a plan for each member of its component, at most.
pub const SLICES_MAX: usize = 4;
/// Slices of a plan, at most: a bound on its making and on its message.
pub const SLICES_ALL_MAX: usize = 512;

/// One slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Who runs: the leader, then the promoted.
    pub party: Vec<Apid>,
    /// For how long.
    pub length: Duration,
}

/// What a component does from now on.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Plan {
    /// One after the other, and then from the beginning. One slice: nobody is ever stopped.
    pub slices: Vec<Slice>,
    /// A repetition is as fair as the rotation.
    pub repeats: bool,
}

impl Plan {
    /// How long it takes once.
    pub fn length(&self) -> Duration {
        self.slices.iter().map(|slice| slice.length).fold(Duration::ZERO, Duration::saturating_add)
    }

    /// The slice that is on so long after the plan began, and how much of it is left. None for a plan
    /// without slices, or without length.
    pub fn at(&self, after: Duration) -> Option<(usize, Duration)> {
        at(self.slices.iter().map(|slice| slice.length), after)
    }
}

/// Of slices of these lengths, which repeat, the one that is on so long after the first began, and how
/// much of it is left. None where there are none, or all are empty.
pub fn at(
    lengths: impl Iterator<Item = Duration> + Clone,
    after: Duration,
) -> Option<(usize, Duration)> {
    let whole: u128 = lengths.clone().map(|length| length.as_nanos()).sum();
    let mut into = after.as_nanos().checked_rem(whole)?;
    for (number, length) in lengths.enumerate() {
        let length = length.as_nanos();
        if into < length {
            let left = u64::try_from(length - into).unwrap_or(u64::MAX);
            return Some((number, Duration::from_nanos(left)));
        }
        into -= length;
    }
    None
}

/// The plan of a component from then on. `first` come first in its first slice: those who run now, say,
/// whose slice is not over.
pub fn plan(
    competition: &Competition,
    rotation: &Rotation,
    members: &[Apid],
    rules: &Rules,
    begins_ns: u64,
    first: &[Apid],
) -> Plan {
    // Not of all the machine: that would be copied for each of its components.
    let mut ahead = rotation.of(members);
    let mut slices: Vec<Slice> = Vec::new();
    let mut runs: BTreeMap<Apid, Runs> =
        members.iter().map(|apid| (*apid, Runs::new(competition.rivals(*apid).len()))).collect();
    let mut all_ran = 0;
    let mut now_ns = begins_ns;
    for number in 0..SLICES_MAX.saturating_mul(members.len()).min(SLICES_ALL_MAX) {
        let first = if number == 0 { first } else { &[] };
        let next = ahead.next(competition, members, rules, now_ns, first);
        if next.party.is_empty() {
            break;
        }
        for apid in &next.party {
            runs.entry(*apid).or_default().in_slice(number);
        }
        ahead.ran(members, &next, now_ns);
        let length = u64::try_from(next.length.as_nanos()).unwrap_or(u64::MAX);
        now_ns = now_ns.saturating_add(length);
        slices.push(next);
        if all_ran == 0 && runs.values().all(|runs| runs.first.is_some()) {
            all_ran = slices.len();
        }
        if all_ran > 0 && runs.values().all(|runs| runs.may_repeat(slices.len())) {
            return lengthened(Plan { slices, repeats: true }, rotation, rules);
        }
    }
    if all_ran > 0 {
        slices.truncate(all_ran);
    }
    lengthened(Plan { slices, repeats: false }, rotation, rules)
}

/// How long the party of a decision runs without another decision. psched takes one, or says this one
/// again, long before that: it is how long nodes wait for a psched that is dead.
pub const DECIDED: Duration = Duration::from_secs(600);

/// The plan of a component by a decision of who runs: these for [`DECIDED`], and, if nothing is heard
/// until then, everybody else in turns of a slice each, as many at once as do not compete.
pub fn levelled(
    competition: &Competition,
    members: &[Apid],
    party: &BTreeSet<Apid>,
    time_slice: Duration,
) -> Plan {
    let (runs, waits): (Vec<Apid>, Vec<Apid>) = members.iter().partition(|a| party.contains(a));
    let mut slices = vec![Slice { party: runs, length: DECIDED }];
    if waits.is_empty() {
        return Plan { slices, repeats: true };
    }
    // Each in the first slice in which nobody competes with it.
    let mut slice_of: BTreeMap<Apid, usize> = BTreeMap::new();
    let mut taken: Vec<usize> = Vec::new();
    for apid in waits {
        taken.clear();
        let crowded = competition.crowded(apid).next().is_some();
        match crowded {
            true => taken.extend(competition.rivals(apid).iter().filter_map(|a| slice_of.get(a))),
            false => taken.extend(competition.competitors(apid).filter_map(|a| slice_of.get(&a))),
        }
        taken.sort_unstable();
        taken.dedup();
        let free = taken.iter().enumerate().find(|(i, slice)| i + 1 < **slice);
        let slice = free.map_or(taken.len() + 1, |(i, _)| i + 1);
        slice_of.insert(apid, slice);
        match slices.get_mut(slice) {
            Some(slice) => slice.party.push(apid),
            None => slices.push(Slice { party: vec![apid], length: time_slice.max(SLICE_MIN) }),
        }
    }
    slices.truncate(SLICES_ALL_MAX);
    Plan { slices, repeats: false }
}

/// A plan of a round robin with room for the memory that is to be brought in.
fn lengthened(mut plan: Plan, rotation: &Rotation, rules: &Rules) -> Plan {
    let slices = &mut plan.slices;
    let ran_before = |apid: Apid, before: Option<&Slice>| match before {
        Some(before) => before.party.contains(&apid),
        None => rotation.runs(apid),
    };
    let cost = |number: usize| {
        let before = match number {
            0 if plan.repeats => slices.last(),
            _ => number.checked_sub(1).map(|before| &slices[before]),
        };
        let comes = slices[number].party.iter().filter(|apid| !ran_before(**apid, before));
        comes.map(|apid| rotation.cost(*apid)).max().unwrap_or_default()
    };
    let costs: Vec<Duration> = (0..slices.len()).map(cost).collect();
    let least = rules.amortises(costs.iter().max().copied().unwrap_or_default());
    for (slice, cost) in slices.iter_mut().zip(costs) {
        let weight = slice.party.first().map_or(1, |leader| rotation.weight(*leader));
        let least = least.saturating_mul(weight);
        slice.length = slice.length.saturating_add(cost).max(least);
    }
    plan
}

/// In which slices of a plan one runs.
#[derive(Clone, Copy, Debug, Default)]
struct Runs {
    /// How many may keep it from running: it may wait for as many slices.
    rivals: usize,
    first: Option<usize>,
    last: usize,
    /// The most slices in a row that it waits between two of its own.
    within: usize,
}

impl Runs {
    fn new(rivals: usize) -> Runs {
        Runs { rivals, ..Runs::default() }
    }

    fn in_slice(&mut self, number: usize) {
        match self.first {
            Some(_) => self.within = self.within.max(number - self.last - 1),
            None => self.first = Some(number),
        }
        self.last = number;
    }

    /// Whether so many slices, repeated, leave it waiting for no more than its rivals.
    fn may_repeat(&self, slices: usize) -> bool {
        let around = self.first.map_or(slices, |first| slices - self.last - 1 + first);
        self.within.max(around) <= self.rivals
    }
}
