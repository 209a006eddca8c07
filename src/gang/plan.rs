//! Slice plans: the coming parties of a component, with their lengths.
//!
//! # The problem
//!
//! psched sends nothing for each slice, and nodes must go on taking turns when it is dead. So a plan is
//! repeated as long as nobody renews it.
//!
//! # The approach
//!
//! A decision says who runs ([`levels`](super::levels)), and psched takes the next one in time. What a plan
//! says beyond that is what nodes do when psched is dead: some time for everybody ([`levelled`]). Where a
//! start costs little, those who wait have a part of each slice meanwhile, and the plan is as long as it must
//! be to be repeated ([`floor`](super::floor)).
//!
//! ```
//! use psched_pure::apteam::Apid;
//! use psched_pure::gang::{Gang, competition::Competition, plan::levelled};
//! use std::time::Duration;
//!
//! let gang = |processors: &[u32]| Gang { processors: processors.to_vec(), memory: vec![] };
//! let mut competition = Competition::new(6, vec![]);
//! for (apid, processors) in [(1, &[0, 1, 2, 3][..]), (2, &[0, 1]), (3, &[4, 5]), (4, &[2, 3, 4, 5])] {
//!     competition.add(Apid(apid), gang(processors));
//! }
//! let members = competition.component(Apid(1));
//! let plan = levelled(&competition, &members, &[Apid(1), Apid(3)].into(), Duration::from_secs(1));
//! let parties: Vec<_> = plan.slices.iter().map(|slice| slice.party.clone()).collect();
//! assert_eq!(parties, [[Apid(1), Apid(3)], [Apid(2), Apid(4)]]);
//! ```
//!
//! # Memory that has to be brought in
//!
//! A gang whose memory was out when it was last let run has a *cost*: so long it took. Its slices are
//! longer by that, and no shorter than the cost divided by `switch_share`, so that bringing memory in
//! takes no more than that share of the time. Everybody else's slices of the component get that least length
//! too: else who has little memory would have little time. So how long slices are is known once all are there.
//!
//! ```text
//!   slices of 1 s, switch_share 5 %, cost of A 0.5 s        A 10 s | B 10 s
//!   slices of 1 s, switch_share 80 %                        A 1.5 s | B 1 s
//! ```

use super::competition::Competition;
use crate::apteam::Apid;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The least length of a slice: below it switching would be all that is done.
pub const SLICE_MIN: Duration = Duration::from_millis(10);

/// To how much a slice is lengthened at most because memory has to be brought in, and the most that this
/// is taken to last: others wait for as long.
pub const LENGTHENED_MAX: Duration = Duration::from_secs(3_600);

/// Slices of a plan for each member of its component, at most.
pub const SLICES_MAX: usize = 4;
/// Slices of a plan, at most: a bound on its making and on its message.
pub const SLICES_ALL_MAX: usize = 512;

/// By what rules slices are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// How long a cycle is, or how long one leads.
    pub time_slice: Duration,
    /// The share of a slice that bringing memory in may take, in thousandths, at least 1.
    pub switch_share: u64,
}

/// The least time of which such a cost is no more than this share, in thousandths.
pub fn amortised(cost: Duration, switch_share: u64) -> Duration {
    let share = u32::try_from(switch_share.max(1)).unwrap_or(u32::MAX);
    (cost.saturating_mul(1_000) / share).min(LENGTHENED_MAX)
}

/// One slice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slice {
    /// Who runs: the leader, then the promoted.
    pub party: Vec<Apid>,
    /// For how long.
    pub length: Duration,
    /// It is for those who wait, by attained service ([`floor`](super::floor)).
    pub floor: bool,
}

/// What a component does from now on.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Plan {
    /// One after the other, and then from the beginning. One slice: nobody is ever stopped.
    pub slices: Vec<Slice>,
    /// A repetition is as fair as it is once.
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
        let whole: u128 = self.slices.iter().map(|slice| slice.length.as_nanos()).sum();
        let mut into = after.as_nanos().checked_rem(whole)?;
        for (number, slice) in self.slices.iter().enumerate() {
            let length = slice.length.as_nanos();
            if into < length {
                let left = u64::try_from(length - into).unwrap_or(u64::MAX);
                return Some((number, Duration::from_nanos(left)));
            }
            into -= length;
        }
        None
    }
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
    let mut slices = vec![Slice { party: runs, length: DECIDED, floor: false }];
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
            None => {
                let length = time_slice.max(SLICE_MIN);
                slices.push(Slice { party: vec![apid], length, floor: true });
            }
        }
    }
    slices.truncate(SLICES_ALL_MAX);
    Plan { slices, repeats: false }
}

/// Gives slices room for the memory that is to be brought in. `ran`: the gangs that ran last before them, by member.
pub(super) fn lengthened(
    slices: &mut [(Vec<u32>, Duration)],
    repeats: bool,
    cost: &dyn Fn(u32) -> Duration,
    ran: &[bool],
    rules: &Rules,
) {
    // The last slice in which each has run, counted from 1; `before` the first it is 0.
    let before = |member: u32| match slices.last().filter(|_| repeats) {
        Some((last, _)) => last.contains(&member),
        None => ran[member as usize],
    };
    let mut in_slice: Vec<usize> =
        (0..).zip(ran).map(|(member, _)| if before(member) { 0 } else { usize::MAX }).collect();
    let mut costs = Vec::with_capacity(slices.len());
    for (number, (party, _)) in slices.iter().enumerate() {
        let mut most = Duration::ZERO;
        for member in party {
            let last = std::mem::replace(&mut in_slice[*member as usize], number + 1);
            if last != number {
                most = most.max(cost(*member));
            }
        }
        costs.push(most);
    }
    let most = costs.iter().max().copied().unwrap_or_default();
    let least = amortised(most, rules.switch_share);
    for ((_, length), cost) in slices.iter_mut().zip(costs) {
        *length = length.saturating_add(cost).max(least);
    }
}

/// In which slices of a plan one runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Runs {
    /// How many may keep it from running: it may wait for as many slices.
    rivals: usize,
    first: Option<usize>,
    last: usize,
    /// The most slices in a row that it waits between two of its own.
    within: usize,
}

impl Runs {
    pub(super) fn new(rivals: usize) -> Runs {
        Runs { rivals, first: None, last: 0, within: 0 }
    }

    pub(super) fn in_slice(&mut self, number: usize) {
        match self.first {
            Some(_) => self.within = self.within.max(number - self.last - 1),
            None => self.first = Some(number),
        }
        self.last = number;
    }

    /// Whether it has run.
    pub(super) fn has_run(&self) -> bool {
        self.first.is_some()
    }

    /// Whether so many slices, repeated, leave it waiting for no more than its rivals.
    pub(super) fn may_repeat(&self, slices: usize) -> bool {
        let around = self.first.map_or(slices, |first| slices - self.last - 1 + first);
        self.within.max(around) <= self.rivals
    }
}
