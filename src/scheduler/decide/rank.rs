//! Users before applications: first the applications of the user that has had the smallest part of his share.
//!
//! # Problem
//! Attained service alone gives a user with a hundred applications a hundred times as much as one with one.
//!
//! # Approach
//! Before a decision the users (or accounts: `share.by`) that have applications are put in order of what they
//! have had by weight ([`Shares`](crate::gang::shares::Shares)), and attained service goes within that. Two of whom
//! each is to have half would change places all the time: so who runs counts as having had less, by what he gets
//! in a time slice, and it is known when he will have had that ([`Domain::overtakes_ns`]). Of long ones that is a
//! slice of little use to anybody: beside a user who has had hours they wait for a share of that
//! ([`GRAIN`]); applications of the lowest level do not.
//!
//! [`Domain::overtakes_ns`]: crate::scheduler::domains::Domain

use super::line::{InLine, Stands};
use crate::apteam::Apid;
use crate::apteam::record::{Apteam, State};
use crate::gang::floor;
use crate::gang::shares::Holder;
use crate::scheduler::domains::DomainId;
use crate::scheduler::ends::nanos;
use crate::scheduler::{Effect, Now, Scheduler, Turns};
use std::collections::BTreeMap;

/// Postings for which a place is looked for beside the decision: a bound on the work of one.
const SEATED_MAX: usize = 4;

/// By how much of what a user has had another must have had less before long ones of his come first.
const GRAIN: f64 = 0.02;

/// The places of a user.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::scheduler) struct Rank {
    /// Of those of his who are of the lowest level.
    pub short: u32,
    /// Of others.
    pub long: u32,
}

/// The places of users.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranks(BTreeMap<Holder, Rank>);

impl Ranks {
    /// The rank of a posting; 0 where there are no shares.
    pub(super) fn of(&self, team: &Apteam, turns: &Turns) -> u32 {
        match self.0.is_empty() {
            true => 0,
            false => turns.holder(team).and_then(|of| self.0.get(&of)).map_or(0, |rank| rank.short),
        }
    }
}

/// A user that has applications here.
#[derive(Clone, Copy, Debug, Default)]
struct User {
    weight: u32,
    /// Processors of those who run.
    runs: u64,
    /// An application of his waits: of the lowest level, or of another.
    waits: [bool; 2],
}

impl Scheduler {
    /// Brings what all gangs of a domain have had up to now, and puts their users in order.
    pub(super) fn rank(&mut self, now: Now, domain: DomainId) {
        self.domain_mut(domain).overtakes_ns = None;
        self.schedule.decision.ranks.0.clear();
        if !self.domain(domain).turns.floors {
            return;
        }
        let gangs: Vec<Apid> = self.schedule.levels.of(domain).gangs().collect();
        self.schedule.account_for(&gangs, now.mono_ns);
        let users = self.users(domain, &gangs);
        if users.is_empty() {
            return;
        }
        let slice = nanos(self.domain(domain).turns.time_slice) as f64;
        let shares = self.schedule.shares();
        // What each has had by weight, and who runs a time slice less.
        let mut order: Vec<(f64, bool, &Holder, User)> = Vec::with_capacity(2 * users.len());
        for (holder, user) in &users {
            let weight = f64::from(user.weight.max(1));
            let used = shares.used(holder, now.mono_ns) / weight;
            let grace = slice * user.runs as f64 / weight;
            let grain = if user.runs == 0 { GRAIN * used } else { 0.0 };
            order.push((used - grace, false, holder, *user));
            order.push((used - grace + grain, true, holder, *user));
        }
        order.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut ranks: BTreeMap<Holder, Rank> = BTreeMap::new();
        let (mut rank, mut before) = (0, None);
        for (had, long, holder, _) in &order {
            rank += u32::from(before.is_some_and(|before| before < *had));
            before = Some(*had);
            let of = ranks.entry((*holder).clone()).or_default();
            *(if *long { &mut of.long } else { &mut of.short }) = rank;
        }
        // When the first user whose applications run has had as much as the next whose applications wait.
        let runs =
            order.iter().enumerate().filter(|(_, (_, long, _, user))| *long && user.runs > 0);
        let overtakes = runs.filter_map(|(at, (own, _, _, user))| {
            let waits = |(had, long, _, other): &&(f64, bool, &Holder, User)| {
                other.waits[usize::from(*long)] && had > own
            };
            let next = order[at + 1..].iter().find(waits)?;
            Some((next.0 - own) / (user.runs as f64 / f64::from(user.weight.max(1))))
        });
        let least = floor::length(self.domain(domain).turns.time_slice);
        let next = overtakes.fold(f64::INFINITY, f64::min).max(nanos(least) as f64);
        let next = next.is_finite().then(|| now.mono_ns.saturating_add(next as u64));
        self.domain_mut(domain).overtakes_ns = next;
        let schedule = &mut self.schedule;
        schedule.rank(domain, &ranks);
        schedule.decision.ranks = Ranks(ranks);
    }

    /// The users of all gangs that take turns, and of postings that wait.
    fn users(&self, domain: DomainId, gangs: &[Apid]) -> BTreeMap<Holder, User> {
        let mut users: BTreeMap<Holder, User> = BTreeMap::new();
        for apid in gangs {
            let Some((holder, width)) = self.schedule.share_of(*apid) else { continue };
            let user = users.entry(holder.clone()).or_default();
            user.weight = user.weight.max(self.schedule.weight(*apid));
            match self.schedule.decision.party.contains(apid) {
                true => user.runs += width,
                false => user.waits[usize::from(!self.schedule.is_short(domain, *apid))] = true,
            }
        }
        let turns = &self.domain(domain).turns;
        for team in self.line_of(domain).take(super::line::POSTINGS_MAX) {
            let Some(team) = self.teams.get(&team).filter(|team| team.held.is_none()) else {
                continue;
            };
            let Some(holder) = turns.holder(team) else { continue };
            let user = users.entry(holder).or_default();
            user.weight = user.weight.max(turns.weight(&team.owner));
            user.waits[0] = true;
        }
        users
    }

    /// Gives a place to those of the line who have waited for a time slice for one where they would run at once:
    /// there they have their turns, and their floor.
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
        let line = line.iter().filter(waits).map(|one| one.apid).filter(posted);
        let line: Vec<Apid> = line.take(SEATED_MAX).collect();
        for apid in line {
            let kept = self.kept_before(apid);
            let wanted = self.wanted(&self.teams[&apid]);
            if let Some(places) = self.place_for(apid, &wanted, &kept) {
                self.grant(now, apid, places, out);
                self.seat(apid);
            }
        }
    }
}
