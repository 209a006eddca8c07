//! The floor: the part of each time slice that goes to gangs that wait.
//!
//! # The problem
//!
//! By attained service alone ([`levels`](super::levels)) a gang that has had much does not run for as long as gangs
//! arrive that have had less. On a machine that many users share, the longest silence of each gang needs a bound
//! that does not depend on how many arrive.
//!
//! # The approach
//!
//! Time goes in *cycles* of one time slice. Three quarters of each, the *lead*, go to the party of the decision. The
//! last quarter, the *floor*, goes to the gang with the earliest deadline. A gang's deadline is as many cycles after
//! its last turn as it has users among its rivals (its own user is counted), plus its rivals of its own user. Where
//! one gang in each cycle is too few to meet all deadlines, the floor is divided among several.
//!
//! ```text
//!   cycle        1                   2                   3
//!   slices       [ lead       |floor][ lead       |floor][ lead       |floor]
//!   gangs          A A A A A A  B      A A A A A A  C      A A A A A A  D
//! ```
//!
//! Gangs that compete with no gang of a slice are promoted into it. The plan is as long as it must be to be
//! repeated: psched sends nothing for each slice, and nodes follow it while psched is dead. A new plan begins with the
//! rest of the slice that is on ([`On`]), so that frequent events do not put off floors.
//!
//! A floor is for machines on which a start costs little. Where one costs seconds there is none, for all would pay
//! for it: [`levelled`](super::plan::levelled).

#[cfg(test)]
mod tests;

use super::accounts::Accounts;
use super::competition::Competition;
use super::party::Parties;
use super::plan::{Plan, Rules, Runs, SLICE_MIN, SLICES_ALL_MAX, SLICES_MAX, Slice, lengthened};
use crate::apteam::Apid;
use fixedbitset::FixedBitSet;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The slice that is on when a plan begins.
#[derive(Clone, Debug)]
pub struct On<'a> {
    /// It.
    pub slice: &'a Slice,
    /// Floors before it in its cycle, if it is one.
    pub floors: u32,
    /// It is over.
    pub over: bool,
}

/// The deadline of a gang that has none.
const NEVER: u64 = u64::MAX;

/// How long a floor is where one gang has it.
pub fn length(time_slice: Duration) -> Duration {
    time_slice / 4
}

/// How long a lead is in a cycle whose floor is divided among so many, and how long each of these runs.
fn lengths(time_slice: Duration, floors: u32) -> (Duration, Duration) {
    let floor = length(time_slice);
    let lead = time_slice.saturating_sub(floor);
    (lead.max(SLICE_MIN), (floor / floors.max(1)).max(SLICE_MIN))
}

/// What a plan obeys beside deadlines.
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "a function says who is out")]
pub struct Chosen<'a> {
    /// The party of the decision.
    pub leads: &'a BTreeSet<Apid>,
    /// These have the first floors, at once: a signal waits for them.
    pub early: &'a [Apid],
    /// Whether its memory is out. Such gangs run only when they lead: they have no floor.
    pub is_out: &'a dyn Fn(Apid) -> bool,
}

/// The plan of a component, whose members stand by number, from then on. `on`: what is on.
pub fn plan(
    competition: &Competition,
    accounts: &Accounts,
    members: &[Apid],
    chosen: Chosen<'_>,
    rules: &Rules,
    now_ns: u64,
    on: Option<&On<'_>>,
) -> Plan {
    let is_out = |(_, apid): &(usize, &Apid)| (chosen.is_out)(**apid);
    let mut out = FixedBitSet::with_capacity(members.len());
    out.extend(members.iter().enumerate().filter(is_out).map(|(i, _)| i));
    let mut made = Making::new((competition, accounts), members, out, rules, now_ns);
    let leads = chosen.leads;
    let number = |apid: &Apid| members.binary_search(apid).ok().map(|i| i as u32);
    let leads: Vec<u32> =
        (0..).zip(members).filter(|(_, a)| leads.contains(a)).map(|(i, _)| i).collect();
    // Who leads now has the floor that is on: it is the beginning of the lead. (As a floor it would be repeated, and
    // that of those who wait would be missing in every repetition.)
    let is_lead = |on: &&On<'_>| {
        let first = on.slice.party.first().is_some_and(|first| chosen.leads.contains(first));
        let lead = || leads.iter().all(|lead| on.slice.party.contains(&members[*lead as usize]));
        !on.over && first && lead()
    };
    let floor_on = on.filter(|on| on.slice.floor && !is_lead(on));
    let begins = floor_on.map_or(0, |on| on.floors + u32::from(on.over));
    let mut floors = begins;
    let mut no_lead = floor_on.is_some() || on.is_some_and(|on| on.over);
    if let Some(on) = floor_on.filter(|on| !on.over) {
        made.slice(on.slice.party.iter().filter_map(number), on.slice.length, true);
        floors += 1;
    }
    let bound = SLICES_MAX.saturating_mul(members.len()).clamp(1, SLICES_ALL_MAX);
    let (lead, floor) = lengths(rules.time_slice, made.floors);
    let mut early = chosen.early.iter().filter_map(number);
    no_lead |= !chosen.early.is_empty();
    let own = made.floors.max(chosen.early.len() as u32);
    // After the early gangs a waiting gang has a floor too: else a stream of signals would put off all floors.
    let first = made.floors + chosen.early.len() as u32;
    // A plan that begins within a cycle, after so many of its floors, is repeated from there on: from the beginning
    // of a cycle on it would have its first floors twice.
    let longer = floor_on.is_some_and(|on| !on.over && on.slice.length > floor);
    let within = (no_lead && !longer).then_some(begins);
    'cycles: while made.slices.len() < bound {
        made.begin_cycle();
        let whole = !std::mem::take(&mut no_lead);
        if whole && !made.slice(leads.iter().copied(), lead, false) {
            break;
        }
        let until = if made.slices.is_empty() { first } else { made.floors };
        let mut is_past = false;
        for number in floors..until {
            if whole && within == Some(number) {
                if made.may_repeat() {
                    break 'cycles;
                }
                is_past = true;
            }
            let waits = || made.waits_most().filter(|one| number < own || !leads.contains(one));
            let Some(leader) = early.next().or_else(waits) else { break };
            made.slice(std::iter::once(leader).chain(leads.iter().copied()), floor, true);
        }
        floors = 0;
        // (A cycle without its lead is repeated only where it is one slice, which stops no gang.)
        if (whole || made.slices.len() == 1) && !is_past && made.may_repeat() {
            break;
        }
    }
    // What is on was made longer, for memory that came in: not once more.
    made.repeats &= !longer;
    made.over(rules)
}

/// A plan that is being made. Members are named by their place in the component.
struct Making<'a> {
    members: &'a [Apid],
    parties: Parties<'a>,
    costs: Vec<Duration>,
    /// Those whose memory is out: no floor, and no part in others' slices.
    out: FixedBitSet,
    /// The members that ran last before it.
    ran: Vec<bool>,
    /// Since when each waits, by the end of what there is; and in what time it is to run again.
    since_ns: Vec<u64>,
    within_ns: Vec<u64>,
    /// The deadline of each member that has a floor and has not run in this cycle; else [`NEVER`].
    open_ns: Vec<u64>,
    /// Among how many the floor of a cycle is divided.
    floors: u32,
    slices: Vec<(Vec<u32>, Duration)>,
    /// Which of them are floors.
    is_floor: Vec<bool>,
    /// The members that have run in this cycle, and in which slices each has.
    cycle: FixedBitSet,
    runs: Vec<Runs>,
    /// Up to which member all have run.
    all: usize,
    repeats: bool,
    now_ns: u64,
}

impl<'a> Making<'a> {
    fn new(
        (competition, accounts): (&'a Competition, &Accounts),
        members: &'a [Apid],
        out: FixedBitSet,
        rules: &Rules,
        now_ns: u64,
    ) -> Making<'a> {
        let parties = Parties::new(competition, members);
        let within = within(&parties, accounts, members);
        let waits = within.iter().enumerate().filter(|(i, within)| **within > 1 && !out[*i]);
        let rates = waits.map(|(_, within)| 1.0 / f64::from(*within));
        let floors = ((rates.sum::<f64>() - 1e-6).ceil() as u32).max(1);
        let slice = u64::try_from(rules.time_slice.as_nanos()).unwrap_or(u64::MAX);
        // (Of slices: a cycle has one more than its floors.)
        let slices = |within: &u32| Runs::new((*within * (floors + 1)) as usize);
        Making {
            members,
            costs: members.iter().map(|apid| accounts.cost(*apid)).collect(),
            out,
            ran: members.iter().map(|apid| accounts.runs(*apid)).collect(),
            since_ns: members.iter().map(|apid| accounts.waits_since(*apid, now_ns)).collect(),
            within_ns: within.iter().map(|w| slice.saturating_mul(u64::from(*w))).collect(),
            runs: within.iter().map(slices).collect(),
            parties,
            floors,
            slices: Vec::new(),
            is_floor: Vec::new(),
            cycle: FixedBitSet::with_capacity(members.len()),
            open_ns: vec![NEVER; members.len()],
            all: 0,
            repeats: false,
            now_ns,
        }
    }

    /// Whether it has a floor.
    fn waits(&self, member: u32) -> bool {
        !self.out[member as usize] && self.parties.takes(member)
    }

    fn due_ns(&self, member: u32) -> u64 {
        let due_ns = self.since_ns[member as usize].saturating_add(self.within_ns[member as usize]);
        due_ns.min(NEVER - 1)
    }

    fn begin_cycle(&mut self) {
        self.cycle.clear();
        for i in 0..self.members.len() as u32 {
            self.open_ns[i as usize] = if self.waits(i) { self.due_ns(i) } else { NEVER };
        }
    }

    /// The member that has not run in this cycle and has the earliest deadline.
    fn waits_most(&self) -> Option<u32> {
        // (In two passes: the compiler makes the first one for several members at once.)
        let first = self.open_ns.iter().copied().min().filter(|due_ns| *due_ns < NEVER)?;
        let same = (0..self.members.len()).filter(|i| self.open_ns[*i] == first);
        same.min_by_key(|i| self.since_ns[*i]).map(|i| i as u32)
    }

    /// One slice more: of these, in that order, and of all others that can run. `false`: none can.
    fn slice(
        &mut self,
        first: impl IntoIterator<Item = u32>,
        length: Duration,
        floor: bool,
    ) -> bool {
        let Making { parties, cycle, out, since_ns, within_ns, .. } = self;
        let due_ns = |i: usize| since_ns[i].saturating_add(within_ns[i]);
        let key = |i: u32| (cycle[i as usize], due_ns(i as usize));
        let party = parties.party_and(first, out, key);
        if party.is_empty() {
            return false;
        }
        let number = self.slices.len();
        let end_ns =
            self.now_ns.saturating_add(u64::try_from(length.as_nanos()).unwrap_or(u64::MAX));
        for member in &party {
            self.cycle.insert(*member as usize);
            self.open_ns[*member as usize] = NEVER;
            self.runs[*member as usize].in_slice(number);
            self.since_ns[*member as usize] = end_ns;
        }
        self.now_ns = end_ns;
        self.slices.push((party, length));
        self.is_floor.push(floor);
        true
    }

    /// Whether the slices may be repeated: all have run, and none waits for too long where they begin again.
    fn may_repeat(&mut self) -> bool {
        let ran = |i: usize| self.runs[i].has_run() || !self.waits(i as u32);
        self.all += (self.all..self.runs.len()).take_while(|i| ran(*i)).count();
        let length = self.slices.len();
        self.repeats = self.all == self.runs.len()
            && (0..self.runs.len())
                .all(|i| !self.waits(i as u32) || self.runs[i].may_repeat(length));
        self.repeats
    }

    fn over(mut self, rules: &Rules) -> Plan {
        let costs = &self.costs;
        let cost = |member: u32| costs[member as usize];
        lengthened(&mut self.slices, self.repeats, &cost, &self.ran, rules);
        let party = |party: Vec<u32>| party.into_iter().map(|i| self.members[i as usize]).collect();
        let slices = self.slices.into_iter().zip(self.is_floor);
        let slice = |((members, length), floor)| Slice { party: party(members), length, floor };
        Plan { slices: slices.map(slice).collect(), repeats: self.repeats }
    }
}

/// In how many cycles each member is to run again: the users among its rivals, its own counted in, and its rivals of
/// its own user.
fn within(parties: &Parties<'_>, accounts: &Accounts, members: &[Apid]) -> Vec<u32> {
    let mut numbers = BTreeMap::new();
    let mut holder_of = Vec::with_capacity(members.len());
    for apid in members {
        let next = numbers.len();
        holder_of.push(*numbers.entry(accounts.holder(*apid)).or_insert(next));
    }
    let mut seen = vec![u32::MAX; numbers.len()];
    let of = |member: u32| {
        let own = holder_of[member as usize];
        seen[own] = member;
        let (mut users, mut own_rivals) = (1, 0);
        for rival in parties.rivals(member).ones() {
            let holder = holder_of[rival];
            if holder == own {
                own_rivals += 1;
            } else if seen[holder] != member {
                seen[holder] = member;
                users += 1;
            }
        }
        users + own_rivals
    };
    (0..members.len() as u32).map(of).collect()
}
