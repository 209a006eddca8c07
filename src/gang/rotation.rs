//! Whose turn it is, and for how long.
//!
//! # The problem
//!
//! Nobody may starve, however the gangs of a component overlap. Under one order a gang must not have
//! to wait for more than those that it competes with; under the other a short program is to come
//! through at once, whatever else is there, and nobody says how long a program is.
//!
//! # The approach
//!
//! *Round robin* on an arbitrary graph: in order of when each ran last, longest ago first, and who has
//! never run before all of them in order of arrival. In a slice in which a gang does not run, a rival
//! that had waited longer runs; that rival has then waited less, and can't do it again before the gang
//! has run. So it runs at least once in as many slices as there are gangs that compete with it, itself
//! counted in. A slice has one length, times the weight of who leads it: the bound above is in slices
//! and holds for everybody.
//!
//! *Least attained service*: in levels by the time that each has had, less first. Within a level who
//! runs keeps its turn, then in order of entry; there is no time slice: a slice ends when somebody who runs
//! leaves his level. A gang of weight 3 is charged a third of its time.
//!
//! ```text
//!   level     0            1            2              3
//!   had       under 60 s   under 360 s  under 2,160 s  the rest
//! ```
//!
//! Under either order, who has waited `longest_wait` comes before all others; where there is no time
//! slice it stays there for a fifth of that time, so that it gets something done. Promoted
//! time counts as time had.
//!
//! # Memory that has to be brought in
//!
//! A gang whose memory was out when it was last let run has a *cost*: so long it took. Its slices are
//! longer by that, and no shorter than the cost divided by `switch_share`, so that bringing memory in
//! takes no more than that share of the time. Under round robin everybody else's slices of the component
//! get that least length too: else who has little memory would have little time.
//!
//! ```text
//!   time_slice 1 s, switch_share 5 %, cost of A 0.5 s        A 10 s | B 10 s
//!   time_slice 1 s, switch_share 80 %                        A 1.5 s | B 1 s
//! ```

use super::competition::Competition;
use super::party::party;
use super::plan::Slice;
use crate::apteam::Apid;
use crate::variables::Order;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The time that a gang of each level but the last has had at most, in seconds: what a model found
/// best on recorded workloads.
pub const LEVEL_BOUNDS: [u64; 3] = [60, 360, 2_160];

/// The least length of a slice: below it switching would be all that is done.
pub const SLICE_MIN: Duration = Duration::from_millis(10);

/// To how much a slice is lengthened at most because memory has to be brought in, and the most that this
/// is taken to last: others wait for as long.
pub const LENGTHENED_MAX: Duration = Duration::from_secs(3_600);

/// By what rules turns are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// In which order.
    pub order: Order,
    /// How long one leads, under round robin.
    pub time_slice: Duration,
    /// Who has waited so long comes first.
    pub longest_wait: Duration,
    /// The share of a slice that bringing memory in may take, in thousandths, at least 1.
    pub switch_share: u64,
}

/// What a gang has had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Had {
    /// The number of the last slice in which it ran; 0: none yet.
    last: u64,
    /// Its place in the order of arrival.
    arrived: u64,
    /// At least 1.
    weight: u32,
    /// Time run.
    attained: Duration,
    /// Its place in the order in which gangs have entered their levels.
    entered: u64,
    /// It is in the party that ran last.
    runs: bool,
    /// And has not left its level by that: it keeps its turn.
    keeps: bool,
    /// Since when it waits, if it does not run.
    since_ns: u64,
    /// Until then it comes first, for it has waited too long before.
    first_until_ns: u64,
    /// How long it takes to bring its memory in.
    cost: Duration,
}

impl Had {
    /// The bounds of its levels, for its weight.
    fn bounds(&self) -> impl Iterator<Item = Duration> {
        let weight = self.weight;
        LEVEL_BOUNDS.into_iter().map(move |s| Duration::from_secs(s).saturating_mul(weight))
    }

    fn level(&self) -> usize {
        self.bounds().filter(|bound| self.attained >= *bound).count()
    }

    /// How long it may run until it leaves its level.
    fn left_in_level(&self) -> Option<Duration> {
        Some(self.bounds().nth(self.level())?.saturating_sub(self.attained))
    }

    fn waited(&self, now_ns: u64) -> Duration {
        let since = if self.runs { now_ns } else { self.since_ns };
        Duration::from_nanos(now_ns.saturating_sub(since))
    }

    fn overdue(&self, rules: &Rules, now_ns: u64) -> bool {
        now_ns < self.first_until_ns || self.waited(now_ns) >= rules.longest_wait
    }
}

impl Rules {
    /// How long one comes first who had to wait too long, where there is no time slice. (Not a share of
    /// what it has waited: with many such ones each would wait longer than the one before.)
    fn grant(&self) -> Duration {
        self.longest_wait / 5
    }

    /// The least length of a slice by which so much bringing in is no more than its share.
    pub(super) fn amortises(&self, cost: Duration) -> Duration {
        let share = u32::try_from(self.switch_share.max(1)).unwrap_or(u32::MAX);
        (cost.saturating_mul(1_000) / share).min(LENGTHENED_MAX)
    }
}

/// The order of turns of all gangs of a machine.
#[derive(Clone, Debug, Default)]
pub struct Rotation {
    slices: u64,
    arrivals: u64,
    entries: u64,
    had: BTreeMap<Apid, Had>,
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Rotation {
    /// A gang takes its place, having had so much already: under round robin it leads next in its
    /// component. No effect where it has one.
    pub fn add(&mut self, apid: Apid, weight: u32, had: Duration, now_ns: u64) {
        self.arrivals += 1;
        self.entries += 1;
        let had = Had {
            last: 0,
            arrived: self.arrivals,
            weight: weight.max(1),
            attained: had,
            entered: self.entries,
            runs: false,
            keeps: false,
            since_ns: now_ns,
            first_until_ns: 0,
            cost: Duration::ZERO,
        };
        self.had.entry(apid).or_insert(had);
    }

    /// A gang has gone.
    pub fn remove(&mut self, apid: Apid) {
        self.had.remove(&apid);
    }

    /// Another weight, from the next plan on.
    pub fn set_weight(&mut self, apid: Apid, weight: u32) {
        if let Some(had) = self.had.get_mut(&apid) {
            had.weight = weight.max(1);
        }
    }

    /// The weight of a gang; 1 where it has no place.
    pub fn weight(&self, apid: Apid) -> u32 {
        self.had.get(&apid).map_or(1, |had| had.weight)
    }

    /// So long it takes to bring its memory in, from the next plan on; more than [`LENGTHENED_MAX`]
    /// counts as that. Whether that is another cost than before.
    pub fn set_cost(&mut self, apid: Apid, cost: Duration) -> bool {
        let Some(had) = self.had.get_mut(&apid) else { return false };
        let cost = cost.min(LENGTHENED_MAX);
        std::mem::replace(&mut had.cost, cost) != cost
    }

    /// How long it takes to bring the memory of a gang in; nothing where it is never out.
    pub fn cost(&self, apid: Apid) -> Duration {
        self.had.get(&apid).map_or(Duration::ZERO, |had| had.cost)
    }

    /// Whether a gang was in the party that ran last.
    pub(super) fn runs(&self, apid: Apid) -> bool {
        self.had.get(&apid).is_some_and(|had| had.runs)
    }

    /// How long a gang has run; nothing where it has no place.
    pub fn attained(&self, apid: Apid) -> Duration {
        self.had.get(&apid).map_or(Duration::ZERO, |had| had.attained)
    }

    /// The same for these only.
    pub fn of(&self, members: &[Apid]) -> Rotation {
        let had = members.iter().filter_map(|apid| Some((*apid, *self.had.get(apid)?)));
        Rotation {
            slices: self.slices,
            arrivals: self.arrivals,
            entries: self.entries,
            had: had.collect(),
        }
    }

    /// The members of a component in order of turn. Those without a place are left out.
    pub fn order(&self, members: &[Apid], rules: &Rules, now_ns: u64) -> Vec<Apid> {
        let of = |apid: &Apid| {
            let had = self.had.get(apid)?;
            let place = match rules.order {
                _ if had.overdue(rules, now_ns) => {
                    // Who leads by that goes on; then who has waited longest.
                    (0, u64::from(!had.runs), had.since_ns)
                }
                Order::RoundRobin => (1, had.last, had.arrived),
                Order::LeastAttainedService => {
                    (1 + had.level(), u64::from(!had.keeps), had.entered)
                }
            };
            Some((place, *apid))
        };
        let mut order: Vec<_> = members.iter().filter_map(of).collect();
        order.sort_unstable();
        order.into_iter().map(|(_, apid)| apid).collect()
    }

    /// The next slice of a component. With `first`, these come before all others, in that order. By
    /// least attained service its length has room for memory that has to be brought in; under round
    /// robin that depends on the other slices of a plan, which sees to it.
    pub fn next(
        &self,
        competition: &Competition,
        members: &[Apid],
        rules: &Rules,
        now_ns: u64,
        first: &[Apid],
    ) -> Slice {
        let order = self.order(members, rules, now_ns);
        let leads: BTreeSet<&Apid> = first.iter().collect();
        let others = order.into_iter().filter(|apid| !leads.contains(apid));
        let party = party(competition, first.iter().copied().chain(others));
        let length = match rules.order {
            Order::RoundRobin => {
                let leader = party.first().and_then(|leader| self.had.get(leader));
                rules.time_slice.saturating_mul(leader.map_or(1, |had| had.weight))
            }
            Order::LeastAttainedService => {
                let costs = party.iter().filter(|apid| !self.runs(**apid));
                let cost = costs.map(|apid| self.cost(*apid)).max().unwrap_or_default();
                let length = self.until_change(members, rules, now_ns, &party);
                length.saturating_add(cost).max(rules.amortises(cost))
            }
        };
        Slice { length: length.max(SLICE_MIN), party }
    }

    /// How long this party runs until another may have to: somebody leaves his level, has come first
    /// for long enough, or has waited too long.
    fn until_change(
        &self,
        members: &[Apid],
        rules: &Rules,
        now_ns: u64,
        party: &[Apid],
    ) -> Duration {
        let runs: BTreeSet<&Apid> = party.iter().collect();
        let change = |apid: &Apid| {
            let had = self.had.get(apid)?;
            if !runs.contains(apid) {
                let left = rules.longest_wait.saturating_sub(had.waited(now_ns));
                // One that is overdue already leads next, whenever that is.
                return Some(left).filter(|left| !left.is_zero());
            }
            if had.waited(now_ns) >= rules.longest_wait {
                return Some(rules.grant());
            }
            let first = Duration::from_nanos(had.first_until_ns.saturating_sub(now_ns));
            let first = Some(first).filter(|first| !first.is_zero());
            first.or_else(|| had.left_in_level())
        };
        members.iter().filter_map(change).min().unwrap_or(rules.longest_wait)
    }

    /// So much more time has been had, which says nothing of whose turn it is.
    pub fn credit(&mut self, apid: Apid, time: Duration) {
        if let Some(had) = self.had.get_mut(&apid) {
            had.attained = had.attained.saturating_add(time);
        }
    }

    /// A gang has had so much in all: somebody knows better than what was taken for it.
    pub fn set_attained(&mut self, apid: Apid, time: Duration) {
        if let Some(had) = self.had.get_mut(&apid) {
            had.attained = time;
        }
    }

    /// A slice of these has been run, or is taken as run, which began then.
    pub fn ran(&mut self, members: &[Apid], slice: &Slice, rules: &Rules, began_ns: u64) {
        self.slices += 1;
        let party: BTreeSet<&Apid> = slice.party.iter().collect();
        for apid in members {
            let Some(had) = self.had.get_mut(apid) else { continue };
            if !party.contains(apid) {
                if had.runs {
                    had.since_ns = began_ns;
                }
                (had.runs, had.keeps) = (false, false);
                continue;
            }
            if had.waited(began_ns) >= rules.longest_wait && rules.order != Order::RoundRobin {
                had.first_until_ns = began_ns.saturating_add(ns(rules.grant()));
            }
            let level = had.level();
            had.last = self.slices;
            had.runs = true;
            had.attained = had.attained.saturating_add(slice.length);
            had.keeps = had.level() == level;
            if !had.keeps {
                self.entries += 1;
                had.entered = self.entries;
            }
        }
    }
}
