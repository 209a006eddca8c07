//! What of the machine is held, and who waits, from moment to moment.
//!
//! Each plan has its parties take turns, so that this changes with each slice. What is told of it are sums
//! over time: between two events slices are gone through one by one for a while, for a round of every
//! plan where that is not too long. If that goes on for longer, what was held is reckoned from the
//! plans, and how the idle rest divides is taken to stay as it was seen to be.

use super::run_intervals::Round;
use crate::apteam::protocol::turns::SlicePlan;
use crate::apteam::{Apid, Key};
use crate::gang::member_index::MemberIndex;
use crate::simulate::nanos;
use std::collections::{BTreeMap, BTreeSet};

/// Slices that are gone through between two events, at least and at most.
const LOOKS: u32 = 128;
const LOOKS_MAX: u32 = 256;

/// What of the machine is held, and who waits.
#[derive(Debug)]
pub struct Tally {
    processors: u64,
    /// Until when that is counted; from when on, there is a first job.
    counted: u64,
    begun: bool,
    held: u64,
    waiting: u64,
    /// Widths of those that wait: of each plan the narrowest, and of those without a plan all.
    widths: BTreeMap<u64, u32>,
    /// By generation.
    plans: BTreeMap<u64, Parties>,
    /// When their slices are over.
    changes: BTreeSet<(u64, u64)>,
    idle: Idle,
}

/// Processor nanoseconds that nobody had.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Idle {
    /// Somebody waited who would have fitted by count.
    pub fragmented: f64,
    /// Somebody waited, and all were wider.
    pub kept: f64,
    /// Nobody waited.
    pub unwanted: f64,
}

impl Idle {
    fn all(&self) -> f64 {
        self.fragmented + self.kept + self.unwanted
    }

    /// With so many times the other.
    fn add(&mut self, times: f64, other: Idle) {
        self.fragmented += times * other.fragmented;
        self.kept += times * other.kept;
        self.unwanted += times * other.unwanted;
    }
}

/// The parties of a plan.
#[derive(Debug)]
pub struct Parties {
    round: Round,
    slices: Vec<Looks>,
    on: usize,
    /// When the slice that is on is over.
    changes: u64,
}

/// What one slice is like.
#[derive(Clone, Copy, Debug)]
struct Looks {
    /// In its round.
    ends: u64,
    held: u64,
    waiting: u64,
    /// The width of the narrowest that waits.
    narrowest: Option<u64>,
}

impl Parties {
    /// Of this plan, with the members that still have it, by width.
    pub fn of(plan: &SlicePlan, width: impl Fn(Apid) -> Option<u64>) -> Parties {
        let member = |key: &Key| Some((key.apid, width(key.apid)?));
        let mut members: Vec<(Apid, u64)> = plan.members.iter().filter_map(member).collect();
        members.sort_unstable();
        // The members by width; and the last slice in which each runs, of those gone through.
        let mut narrow: Vec<usize> = (0..members.len()).collect();
        narrow.sort_unstable_by_key(|at| members[*at].1);
        let mut runs = vec![0; members.len()];
        let index = MemberIndex::of(members.iter().map(|(apid, _)| *apid));
        let mut number = 0;
        let mut looks = |ends: u64, party: &[Key]| {
            number += 1;
            let mut looks = Looks { ends, held: 0, waiting: members.len() as u64, narrowest: None };
            for key in party {
                if let Some(at) = index.get(key.apid)
                    && std::mem::replace(&mut runs[at], number) != number
                {
                    looks.held += members[at].1;
                    looks.waiting -= 1;
                }
            }
            let waits = narrow.iter().find(|at| runs[**at] != number);
            looks.narrowest = waits.map(|at| members[*at].1);
            looks
        };
        let mut slices: Vec<Looks> = Vec::new();
        for slice in plan.slices.iter().filter(|slice| !slice.length.is_zero()) {
            let begins = slices.last().map_or(0, |before| before.ends);
            slices.push(looks(begins.saturating_add(nanos(slice.length)), &slice.party));
        }
        if slices.is_empty() {
            slices.push(looks(u64::MAX, &[]));
        }
        Parties { round: Round::of(plan), slices, on: 0, changes: u64::MAX }
    }

    /// The slice that is on then, and until when; `u64::MAX`: for ever.
    fn slice(&self, at: u64) -> (usize, u64) {
        if self.slices.len() == 1 {
            return (0, u64::MAX);
        }
        let (at, into) = self.round.into(at);
        let on = self.slices.partition_point(|slice| slice.ends <= into);
        (on, at.saturating_add(self.slices[on].ends - into))
    }

    /// The slice is over: the one that is on then.
    fn turn(&mut self, at: u64) {
        if at == self.changes {
            let begins = self.slices[self.on].ends;
            self.on = (self.on + 1) % self.slices.len();
            let begins = if self.on == 0 { 0 } else { begins };
            self.changes = at.saturating_add(self.slices[self.on].ends - begins);
        } else {
            (self.on, self.changes) = self.slice(at);
        }
    }

    fn looks(&self) -> Looks {
        self.slices[self.on]
    }

    /// Processors held and gangs waiting, by the time that they are, from then until then.
    fn sums(&self, from: u64, until: u64) -> (u128, u128) {
        let time = until - from;
        let whole = self.slices.last().map_or(u64::MAX, |last| last.ends);
        let mut sums = (0, 0);
        let mut add = |looks: &Looks, time: u128| {
            sums.0 += u128::from(looks.held) * time;
            sums.1 += u128::from(looks.waiting) * time;
        };
        let mut begins = 0;
        for looks in &self.slices {
            add(looks, u128::from(looks.ends - begins) * u128::from(time / whole));
            begins = looks.ends;
        }
        let (mut at, until) = (from, from + time % whole);
        while at < until {
            let (on, changes) = self.slice(at);
            let next = changes.min(until);
            add(&self.slices[on], (next - at).into());
            at = next;
        }
        sums
    }
}

impl Tally {
    /// Of a machine with so many processors, from then on.
    pub fn new(processors: u64, at: u64) -> Tally {
        Tally {
            processors,
            counted: at,
            begun: false,
            held: 0,
            waiting: 0,
            widths: BTreeMap::new(),
            plans: BTreeMap::new(),
            changes: BTreeSet::new(),
            idle: Idle::default(),
        }
    }

    /// Processors held, and gangs that wait.
    pub fn now(&self) -> (u64, u64) {
        (self.held, self.waiting)
    }

    /// What nobody had since the first job.
    pub fn idle(&self) -> Idle {
        self.idle
    }

    /// There is a first job: before it there was no machine to waste.
    pub fn begin(&mut self) {
        self.begun = true;
    }

    /// One without a plan waits from now on.
    pub fn waits(&mut self, width: u64) {
        self.waiting += 1;
        self.remember(width);
    }

    /// It waits no more.
    pub fn waits_not(&mut self, width: u64) {
        self.waiting -= 1;
        self.forget(width);
    }

    /// One without a plan runs from now on.
    pub fn runs(&mut self, width: u64) {
        self.held += width;
    }

    /// It runs no more.
    pub fn runs_not(&mut self, width: u64) {
        self.held -= width;
    }

    /// This plan is followed from now on, or by others than before; none: nobody follows it any more.
    pub fn follow(&mut self, generation: u64, parties: Option<Parties>) {
        if let Some(before) = self.plans.remove(&generation) {
            self.changes.remove(&(before.changes, generation));
            self.take(before.looks());
        }
        if let Some(parties) = parties {
            self.put(generation, parties);
        }
    }

    fn put(&mut self, generation: u64, mut parties: Parties) {
        (parties.on, parties.changes) = parties.slice(self.counted);
        let looks = parties.looks();
        self.held += looks.held;
        self.waiting += looks.waiting;
        looks.narrowest.into_iter().for_each(|width| self.remember(width));
        if parties.changes < u64::MAX {
            self.changes.insert((parties.changes, generation));
        }
        self.plans.insert(generation, parties);
    }

    fn take(&mut self, looks: Looks) {
        self.held -= looks.held;
        self.waiting -= looks.waiting;
        if let Some(width) = looks.narrowest {
            self.forget(width);
        }
    }

    fn remember(&mut self, width: u64) {
        *self.widths.entry(width).or_default() += 1;
    }

    fn forget(&mut self, width: u64) {
        if let Some(count) = self.widths.get_mut(&width) {
            *count -= 1;
            if *count == 0 {
                self.widths.remove(&width);
            }
        }
    }

    /// Slices that are over by now.
    pub fn turn(&mut self) {
        while let Some((_, generation)) =
            self.changes.first().copied().filter(|(at, _)| *at <= self.counted)
        {
            let Some((changes, _)) = self.changes.pop_first() else { return };
            let Some(parties) = self.plans.get_mut(&generation) else { continue };
            debug_assert_eq!(parties.changes, changes);
            let before = parties.looks();
            parties.turn(self.counted);
            let (looks, changes) = (parties.looks(), parties.changes);
            self.held = self.held + looks.held - before.held;
            self.waiting = self.waiting + looks.waiting - before.waiting;
            if looks.narrowest != before.narrowest {
                before.narrowest.into_iter().for_each(|width| self.forget(width));
                looks.narrowest.into_iter().for_each(|width| self.remember(width));
            }
            self.changes.insert((changes, generation));
        }
    }

    /// Counts until then; `look` sees what is held and who waits from each moment on at which that changes.
    pub fn pass(&mut self, until: u64, mut look: impl FnMut(u64, u64, u64)) {
        let mut seen = Idle::default();
        let (mut looks, mut round) = (0, None);
        while self.counted < until {
            let next = self.changes.first().map_or(until, |(at, _)| until.min(*at));
            self.wait(next, &mut seen);
            if next == until {
                break;
            }
            self.turn();
            look(next, self.held, self.waiting);
            looks += 1;
            let seen_all = |round: &mut Option<u64>, tally: &Tally| {
                next >= *round.get_or_insert_with(|| tally.round(next))
            };
            if looks >= LOOKS_MAX || looks >= LOOKS && seen_all(&mut round, self) {
                self.skip(until, &mut seen, &mut look);
            }
        }
        if self.begun {
            self.idle.add(1.0, seen);
        }
    }

    /// Nothing changes until then.
    fn wait(&mut self, until: u64, seen: &mut Idle) {
        let time = (until - std::mem::replace(&mut self.counted, until)) as f64;
        let idle = self.processors.saturating_sub(self.held);
        *self.of(idle, seen) += idle as f64 * time;
    }

    /// The account of time on which so many idle processors go, by the widths of those that wait.
    fn of<'a>(&self, idle: u64, seen: &'a mut Idle) -> &'a mut f64 {
        match self.widths.first_key_value() {
            None => &mut seen.unwanted,
            Some((narrowest, _)) if *narrowest <= idle => &mut seen.fragmented,
            Some(_) => &mut seen.kept,
        }
    }

    /// When all plans have gone round once more.
    fn round(&self, at: u64) -> u64 {
        let changing = self.changes.iter().filter_map(|(_, generation)| self.plans.get(generation));
        let round = |parties: &Parties| {
            let (from, length) = parties.round.from();
            at.max(from).saturating_add(length)
        };
        changing.map(round).max().unwrap_or(at)
    }

    /// Until then it goes on as it was seen to.
    fn skip(&mut self, until: u64, seen: &mut Idle, look: &mut impl FnMut(u64, u64, u64)) {
        let from = std::mem::replace(&mut self.counted, until);
        let time = u128::from(until - from);
        let (mut held, mut waiting) =
            (u128::from(self.held) * time, u128::from(self.waiting) * time);
        for parties in self.changes.iter().filter_map(|(_, generation)| self.plans.get(generation))
        {
            let (now, sums) = (parties.looks(), parties.sums(from, until));
            held = held + sums.0 - u128::from(now.held) * time;
            waiting = waiting + sums.1 - u128::from(now.waiting) * time;
        }
        let mean = |sum: u128| ((sum + time / 2) / time.max(1)) as u64;
        look(from, mean(held), mean(waiting));
        let idle = (u128::from(self.processors) * time).saturating_sub(held) as f64;
        self.turn();
        match *seen {
            as_seen if as_seen.all() > 0.0 => seen.add(idle / as_seen.all(), as_seen),
            // All were held for as long as it was looked: it is taken to be as at the end.
            _ => *self.of(self.processors.saturating_sub(mean(held)), seen) += idle,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apteam::Incarnation;
    use crate::apteam::protocol::turns::PlannedSlice;
    use std::time::Duration;

    /// On nine processors two plans, whose rounds are not of one length, after each other's starts.
    fn tally() -> Tally {
        let key = |apid| Key { apid: Apid(apid), incarnation: Incarnation(1) };
        let plan = |members: &[u64], lengths: &[u64], begins_ns: u64| SlicePlan {
            begins_ns,
            from_ns: begins_ns,
            members: members.iter().copied().map(key).collect(),
            takers: Vec::new(),
            slices: members
                .iter()
                .zip(lengths)
                .map(|(apid, length)| PlannedSlice {
                    length: Duration::from_nanos(*length),
                    party: vec![key(*apid)],
                })
                .collect(),
            ..SlicePlan::default()
        };
        let mut tally = Tally::new(9, 0);
        tally.begin();
        // As wide as their numbers.
        tally.follow(1, Some(Parties::of(&plan(&[3, 2], &[7, 4], 0), |apid| Some(apid.0))));
        tally.follow(2, Some(Parties::of(&plan(&[6, 4, 5], &[3, 5, 5], 1), |apid| Some(apid.0))));
        tally
    }

    /// What was held by the time, how it divides, and how it is at last.
    fn passed(times: &[u64]) -> (u128, Idle, (u64, u64)) {
        let mut tally = tally();
        let (mut held, mut at, mut now) = (0, 0, tally.now().0);
        for until in times {
            tally.pass(*until, |next, then, _| {
                held += u128::from(now) * u128::from(next - at);
                (at, now) = (next, then);
            });
            held += u128::from(now) * u128::from(until - at);
            tally.turn();
            (at, now) = (*until, tally.now().0);
        }
        (held, tally.idle(), tally.now())
    }

    /// A plan that holds all processors for longer than is looked at, and then none for long.
    #[test]
    fn what_is_idle_only_later_is_told_too() {
        let key = Key { apid: Apid(1), incarnation: Incarnation(1) };
        let slice = |length, runs| PlannedSlice {
            length: Duration::from_nanos(length),
            party: if runs { vec![key] } else { vec![] },
        };
        let mut slices = vec![slice(1, true); LOOKS_MAX as usize + 1];
        slices.push(slice(1_000, false));
        let plan = SlicePlan { members: vec![key], slices, ..SlicePlan::default() };
        let mut tally = Tally::new(9, 0);
        tally.begin();
        tally.follow(1, Some(Parties::of(&plan, |_| Some(9))));
        tally.pass(1_000, |_, _, _| {});
        let idle = tally.idle();
        assert_eq!((idle.fragmented, idle.kept, idle.unwanted), (9.0 * 743.0, 0.0, 0.0));
    }

    #[test]
    fn a_long_time_is_as_many_short_ones() {
        let until = 1_000_003;
        let (held, idle, now) = passed(&(1..=until).collect::<Vec<u64>>());
        let (held_at_once, idle_at_once, now_at_once) = passed(&[until]);
        assert_eq!(now, now_at_once);
        // (What is drawn of it is a whole number.)
        assert!(held.abs_diff(held_at_once) < held / 10, "{held}, {held_at_once}");
        let all = 9.0 * until as f64 - held as f64;
        assert_eq!((idle.all(), idle_at_once.all()), (all, all));
        // The seen part stands for the rest.
        let share = |idle: Idle| idle.fragmented / idle.all();
        assert!((0.3..0.7).contains(&share(idle)), "{idle:?}");
        assert!((share(idle) - share(idle_at_once)).abs() < 0.02, "{idle:?}, {idle_at_once:?}");
    }
}
