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
use super::rotation::{Ahead, Rotation, Rules, SLICE_MIN};
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
    /// It is for those who wait, by attained service ([`floor`](super::floor)).
    pub floor: bool,
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
    let mut ahead = Ahead::new(rotation, competition, members);
    let numbers = 0..members.len() as u32;
    let ran_before: Vec<bool> = numbers.clone().map(|i| ahead.runs(i)).collect();
    let number = |apid: &Apid| members.iter().position(|member| member == apid);
    let first: Vec<u32> = first.iter().filter_map(number).map(|i| i as u32).collect();
    let mut slices: Vec<(Vec<u32>, Duration)> = Vec::new();
    let rivals = |i| ahead.parties.rivals(i).count_ones(..);
    let mut runs: Vec<Runs> = numbers.map(|i| Runs::new(rivals(i))).collect();
    // Up to which member all have run, and the first slices in which all have.
    let (mut ran, mut all_ran) = (0, 0);
    let mut repeats = false;
    let mut now_ns = begins_ns;
    for number in 0..SLICES_MAX.saturating_mul(members.len()).min(SLICES_ALL_MAX) {
        let first = if number == 0 { &first[..] } else { &[] };
        let (party, length) = ahead.next(rules, now_ns, first);
        if party.is_empty() {
            break;
        }
        for member in &party {
            runs[*member as usize].in_slice(number);
        }
        ahead.ran(&party, now_ns);
        now_ns = now_ns.saturating_add(u64::try_from(length.as_nanos()).unwrap_or(u64::MAX));
        slices.push((party, length));
        ran += runs[ran..].iter().take_while(|runs| runs.first.is_some()).count();
        if all_ran == 0 && ran == runs.len() {
            all_ran = slices.len();
        }
        if all_ran > 0 && runs.iter().all(|runs| runs.may_repeat(slices.len())) {
            repeats = true;
            break;
        }
    }
    if all_ran > 0 && !repeats {
        slices.truncate(all_ran);
    }
    let (cost, weight) = (|member| ahead.cost(member), |member| ahead.weight(member));
    lengthened(&mut slices, repeats, (&cost, &weight), &ran_before, rules);
    let party = |party: Vec<u32>| party.into_iter().map(|i| members[i as usize]).collect();
    let slice = |(members, length)| Slice { party: party(members), length, floor: false };
    Plan { slices: slices.into_iter().map(slice).collect(), repeats }
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
    (cost, weight): (&dyn Fn(u32) -> Duration, &dyn Fn(u32) -> u32),
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
    let least = rules.amortises(costs.iter().max().copied().unwrap_or_default());
    for ((party, length), cost) in slices.iter_mut().zip(costs) {
        let weight = party.first().map_or(1, |leader| weight(*leader));
        *length = length.saturating_add(cost).max(least.saturating_mul(weight));
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
