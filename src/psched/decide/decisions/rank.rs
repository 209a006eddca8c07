//! Users before applications: first the applications of the user that has had the smallest part of
//! his share.
//!
//! # Problem
//! Attained service alone gives a user with a hundred applications a hundred times as much as one
//! with one.
//!
//! # Approach
//! Before a decision the users (or accounts: `share.by`) that have applications are put in order of
//! what they have had by weight ([`Shares`](crate::gang::shares::Shares)), and attained service
//! goes within that. Two users of whom each is to have half would change places all the time. So a
//! user whose applications run counts as having had less, by what the user gets in a time slice,
//! and it is known when that will have been had ([`Domain::overtakes`]). For an application that
//! has run for long a turn of one slice is of little use: it waits until the user whose
//! applications run has had more by a share of what its own user has had ([`GRAIN`]), the larger
//! the longer it has run. Applications of the lowest level do not wait for that.
//!
//! ```text
//!   user               had     rank of applications that run,      of those that wait,
//!                              and of those that wait at level 0   at level 1   at level 2
//!   ann, who runs   1,010 s    2                                   4
//!   bob             1,000 s    1                                   3            5
//! ```
//!
//! Bob's application of level 0 comes before Ann's application that runs. Bob's application of
//! level 1 does when Ann has had 1,020 s, that of level 2 when she has had 1,040 s.
//!
//! [`Domain::overtakes`]: crate::psched::decide::domains::Domain

use super::in_line::{InLine, Stands};
use super::ranks::{Rank, Ranks, place};
use crate::apteam::Apid;
use crate::apteam::record::State;
use crate::gang::dues::Want;
use crate::gang::levels::{LEVELS_MAX, Place};
use crate::gang::plan::SLICE_MIN;
use crate::gang::shares::Holder;
use crate::psched::decide::domain::{self, DomainId};
use crate::psched::decide::{Effect, Now, Scheduler};
use crate::variables::units::nanos;
use std::collections::BTreeMap;
use std::time::Duration;

/// Postings for which a place is looked for beside the decision: a bound on the work of one.
const SEATED_MAX: usize = 4;

/// Applications of one user that may start in such places at the same time. If hundreds of
/// processes start together, all of them are slow, and so are those of other users.
const BESIDE_MAX: usize = 4;

/// How often in a time slice it is looked, at most, whether a user has overtaken another.
const LOOKS: u32 = 8;

/// The grain of level 1, as a share of what a user has had: another user, whose applications run,
/// must have had so much more before an application of this user that waits comes before those.
/// Each next level has twice as much, up to all of it. Replays of recorded logs had lower response
/// times and slowdowns with each step from 0.02 on all levels up to these.
const GRAIN: f64 = 0.02;

/// The grain of a level.
fn grain(level: usize) -> f64 {
    match level {
        0 => 0.0,
        _ => (GRAIN * f64::from(1u32 << (level - 1).min(16))).min(1.0),
    }
}

/// A user that has applications here.
#[derive(Clone, Copy, Debug)]
struct User {
    weight: u32,
    /// Processors of the applications that run.
    runs: u64,
    /// Processors of all of the user's applications, and of postings that wait.
    wants: u64,
    /// Processors that the user's applications have by their plans, on average.
    rate: f64,
    /// Levels of which an application runs, and levels of which one waits: a bit each.
    running: u32,
    waiting: u32,
}

impl User {
    fn new() -> User {
        User { weight: 1, runs: 0, wants: 0, rate: 0.0, running: 0, waiting: 0 }
    }

    /// The lowest level at which an application waits.
    fn waits(&self) -> usize {
        self.waiting.trailing_zeros() as usize
    }

    /// Places at which an application stands that runs, a bit each.
    fn runs_at(&self) -> u32 {
        let levels = (0..LEVELS_MAX).filter(|level| self.running >> level & 1 > 0);
        levels.fold(0, |places, level| places | 1 << place(level, true, self.waits()))
    }

    /// How fast the user's usage grows by weight.
    fn speed(&self) -> f64 {
        self.rate / f64::from(self.weight)
    }
}

/// One of a user's places in the order of users.
struct Entry<'a> {
    /// What counts as had by weight.
    had: f64,
    place: usize,
    holder: &'a Holder,
    user: &'a User,
}

impl Scheduler {
    /// Brings what all gangs of a domain have had up to now, and puts their users in order.
    pub(super) fn rank(&mut self, now: Now, domain: DomainId) {
        self.domain_mut(domain).overtakes = None;
        self.schedule.decision.ranks.0.clear();
        if !self.domain(domain).turns.floors {
            return;
        }
        let gangs: Vec<Apid> = self.schedule.levels.of(domain).gangs().collect();
        self.schedule.account_for(&gangs, now.mono_ns);
        let rules = &domain::at(&self.domains, domain).turns.levels;
        self.schedule.levels.of_mut(domain).bring_up(rules, now.mono_ns);
        let users = self.users(domain, &gangs);
        if users.is_empty() {
            return;
        }
        let wants = |(holder, user): (&Holder, &User)| Want {
            holder: holder.clone(),
            weight: user.weight,
            processors: user.wants,
        };
        let wants = users.iter().map(wants).collect();
        let processors = self.domain(domain).processors;
        self.schedule.note_wants(domain, processors, wants, now.mono_ns);
        let order = self.in_order(now, domain, &users);
        let mut ranks: BTreeMap<Holder, Rank> = BTreeMap::new();
        let (mut rank, mut before) = (0, None);
        for Entry { had, place, holder, user } in &order {
            rank += u32::from(before.is_some_and(|before| before < *had));
            before = Some(*had);
            let of = ranks.entry((*holder).clone()).or_default();
            of.waits = user.waits();
            of.levels[*place] = rank;
        }
        self.domain_mut(domain).overtakes = self.overtaken(now, domain, &order, &gangs);
        let schedule = &mut self.schedule;
        schedule.rank(domain, &ranks);
        schedule.decision.ranks = Ranks(ranks);
    }

    /// Others run from now on than those for whom it was reckoned when a user overtakes another. How fast they gain is
    /// not known before they have a plan: it is looked at when it may be so at the earliest.
    pub(super) fn rank_of_new_party(&mut self, now: Now, domain: DomainId) {
        if !self.domain(domain).turns.floors {
            return;
        }
        let gangs: Vec<Apid> = self.schedule.levels.of(domain).gangs().collect();
        let mut users = self.users(domain, &gangs);
        users.values_mut().for_each(|user| user.rate = user.runs as f64);
        let order = self.in_order(now, domain, &users);
        self.domain_mut(domain).overtakes = self.overtaken(now, domain, &order, &gangs);
    }

    /// When a user overtakes another, on the monotonic clock, and which of these gangs leads then; no more often
    /// than [`LOOKS`] times in a slice: programs may have had less meanwhile than their plans say.
    fn overtaken(
        &self,
        now: Now,
        domain: DomainId,
        order: &[Entry<'_>],
        gangs: &[Apid],
    ) -> Option<(u64, Option<Apid>)> {
        let least = (self.domain(domain).turns.time_slice / LOOKS).max(SLICE_MIN);
        let (next, by) = overtakes(order, self.schedule.shares().half_life())?;
        let levels = self.schedule.levels.of(domain);
        let leads = gangs.iter().copied().filter(|apid| {
            levels.level(*apid) == by.place
                && !self.schedule.decision.party.contains(apid)
                && self.schedule.share_of(*apid).is_some_and(|(holder, _)| holder == by.holder)
        });
        let leads = leads.min_by_key(|apid| (levels.entered(*apid), *apid));
        Some((now.mono_ns.saturating_add((next as u64).max(nanos(least))), leads))
    }

    /// The places of users in order of what each has had by weight; users whose applications run count a time slice
    /// less.
    fn in_order<'a>(
        &self,
        now: Now,
        domain: DomainId,
        users: &'a BTreeMap<Holder, User>,
    ) -> Vec<Entry<'a>> {
        let slice = nanos(self.domain(domain).turns.time_slice) as f64;
        let shares = self.schedule.shares();
        let mut order: Vec<Entry<'_>> = Vec::with_capacity(2 * users.len());
        for (holder, user) in users {
            let weight = f64::from(user.weight);
            let used = shares.used(holder, now.mono_ns) / weight;
            let first = used - slice * user.runs as f64 / weight;
            let places = 1 | user.waiting;
            for place in (0..LEVELS_MAX).filter(|place| places >> place & 1 > 0) {
                let had = first + grain(place) * used;
                order.push(Entry { had, place, holder, user });
            }
        }
        order.sort_by(|a, b| a.had.total_cmp(&b.had));
        order
    }

    /// The users of all gangs that take turns, and of postings that wait.
    fn users(&self, domain: DomainId, gangs: &[Apid]) -> BTreeMap<Holder, User> {
        let mut users: BTreeMap<Holder, User> = BTreeMap::new();
        for apid in gangs {
            let Some((holder, width)) = self.schedule.share_of(*apid) else { continue };
            let user = users.entry(holder.clone()).or_insert_with(User::new);
            user.weight = user.weight.max(self.schedule.weight(*apid));
            user.wants += width;
            let level = self.schedule.level(domain, *apid);
            user.rate += width as f64 * self.schedule.share_of_time(*apid);
            let level = 1 << level.min(LEVELS_MAX - 1);
            match self.schedule.decision.party.contains(apid) {
                true => (user.runs, user.running) = (user.runs + width, user.running | level),
                false => user.waiting |= level,
            }
        }
        let turns = &self.domain(domain).turns;
        for team in self.line_of(domain).take(super::line::POSTINGS_MAX) {
            let Some(team) = self.teams.get(&team).filter(|team| team.held.is_none()) else {
                continue;
            };
            let Some(holder) = turns.holder(team) else { continue };
            let user = users.entry(holder).or_insert_with(User::new);
            user.weight = user.weight.max(turns.weight(&team.owner));
            user.waiting |= 1;
            user.wants = user.wants.saturating_add(team.posting.shape.processors());
        }
        users
    }

    /// Gives a place to those of the line who have waited for a time slice for one where they would
    /// run at once: there they have their turns, and their floor.
    pub(super) fn seat_waiting(&mut self, now: Now, domain: DomainId, out: &mut Vec<Effect>) {
        let turns = &self.domain(domain).turns;
        if !turns.floors {
            return;
        }
        let slice = turns.time_slice;
        let line = &self.schedule.decision.line;
        let waits = |one: &&InLine| matches!(one.stands, Stands::Waits(waited) if waited >= slice);
        let posted = |apid: &Apid| {
            self.teams.get(apid).is_some_and(|t| t.state == State::Posted && t.held.is_none())
        };
        let line = line.iter().filter(waits).filter(|one| posted(&one.apid));
        let mut line: Vec<(Place, Apid)> = line.map(|one| (one.place, one.apid)).collect();
        if line.is_empty() {
            return;
        }
        // By rank: a user with many postings must not delay others.
        line.sort_unstable();
        let uid = |apid: &Apid| self.teams.get(apid).map(|team| team.owner.uid);
        let mut starting: BTreeMap<Option<u32>, usize> = BTreeMap::new();
        for apid in &self.schedule.decision.beside {
            *starting.entry(uid(apid)).or_default() += 1;
        }
        line.retain(|(_, apid)| {
            let of_user = starting.entry(uid(apid)).or_default();
            *of_user += 1;
            *of_user <= BESIDE_MAX
        });
        line.truncate(SEATED_MAX);
        for (_, apid) in line {
            let kept = self.kept_before(apid);
            let wanted = self.wanted(&self.teams[&apid]);
            if let Some(places) = self.place_for(apid, &wanted, &kept) {
                self.grant(now, apid, places, out);
                self.seat(apid);
                self.schedule.decision.beside.insert(apid);
            }
        }
    }
}

/// In how many nanoseconds the first user whose applications run will have had as much as the next
/// user whose applications wait, and which place of that user it is.
fn overtakes<'a>(order: &'a [Entry<'a>], half_life: Duration) -> Option<(f64, &'a Entry<'a>)> {
    let of = |(at, own): (usize, &Entry<'_>)| {
        let behind = order[at + 1..].iter().filter(|next| {
            next.user.waiting >> next.place & 1 > 0
                && next.had > own.had
                && next.holder != own.holder
        });
        let mut slower = behind.map(|next| (own.user.speed() - next.user.speed(), next));
        let (speed, next) = slower.find(|(speed, _)| *speed > 0.0)?;
        Some(((next.had - own.had) / speed, next))
    };
    let runs =
        order.iter().enumerate().filter(|(_, entry)| entry.user.runs_at() >> entry.place & 1 > 0);
    let (next, by) = runs.filter_map(of).min_by(|a, b| a.0.total_cmp(&b.0))?;
    // (What one has had less decays meanwhile.)
    let decay = std::f64::consts::LN_2 / half_life.as_nanos().max(1) as f64;
    Some(((decay * next).ln_1p() / decay, by))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_application_that_waits_has_the_grain_of_its_level() {
        assert_eq!([0, 1, 2, 5, 6, 99].map(grain), [0.0, 0.02, 0.04, 0.32, 0.64, 1.0]);
    }

    #[test]
    fn an_application_that_runs_stands_first_among_those_of_its_user() {
        let none = User::new().waits();
        assert_eq!([place(3, true, none), place(3, true, 3), place(3, true, 5)], [0; 3]);
        // Beside one of its user that has had less and waits, both go by their levels.
        assert_eq!([place(3, true, 1), place(1, false, 1)], [1, 1]);
        assert_eq!([place(0, true, 0), place(0, false, 0), place(2, false, 0)], [0, 0, 2]);
    }

    #[test]
    fn it_is_known_when_a_user_overtakes_another() {
        let holders: Vec<Holder> = ["ann", "bob", "cyd"].map(Holder::from).into();
        let runs = User { runs: 4, rate: 4.0, running: 0b10, ..User::new() };
        let waits = User { waiting: 0b10, ..User::new() };
        let gains = User { waiting: 0b10, rate: 4.0, ..User::new() };
        let next = |all: &[(f64, usize, usize, &User)], half_life: u64| {
            let mut order = Vec::new();
            for (had, place, holder, user) in all {
                order.push(Entry { had: *had, place: *place, holder: &holders[*holder], user });
            }
            overtakes(&order, Duration::from_nanos(half_life)).map(|(next, _)| next.round())
        };
        // Only where an application waits, and not where both gain as much.
        let long = 1 << 60;
        let ann = (0.0, 0, 0, &runs);
        assert_eq!(next(&[ann, (40.0, 0, 1, &waits), (80.0, 1, 1, &waits)], long), Some(20.0));
        assert_eq!(next(&[ann, (40.0, 1, 1, &gains), (80.0, 1, 2, &waits)], long), Some(20.0));
        assert_eq!(next(&[ann, (40.0, 1, 1, &gains)], long), None);
        // Nobody overtakes oneself, and a user that comes first already is not overtaken.
        assert_eq!(next(&[ann, (40.0, 1, 0, &runs)], long), None);
        assert_eq!(next(&[(0.0, 1, 1, &waits), (1.0, 0, 0, &runs)], long), None);
        // In a half-life the difference halves by itself.
        assert_eq!(next(&[ann, (80.0, 1, 1, &waits)], 10), Some(13.0));
    }
}
