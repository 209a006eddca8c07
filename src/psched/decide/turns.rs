//! Turns: the slice plans of the gangs that run, and how nodes come to follow them.
//!
//! # Problem
//! Gangs come and go, nodes are slow, silent or away, and psched may be killed at any instruction. At
//! each of these a plan must be in force that every node concerned has, or the former one must stay; and
//! what one component does must cost the others nothing.
//!
//! # Approach
//! [`Schedule`] keeps the graph of who competes, what each has had, and the plan of each component
//! ([`crate::gang`]). What changes is noted while an event is applied; at its end each component that is
//! concerned is planned anew. The new plan goes to the apinits that hold its members:
//!
//! ```text
//!   one apinit      Plan(agreed), obeyed at once
//!   several         Plan to all --> PlanTaken from all --> AgreePlan to all      from now + plan_lead on
//!                   not from all in three quarters of that: WithdrawPlan to all, and the same
//!                   without the silent ones, which are told what was agreed
//! ```
//!
//! A component with a plan that is being agreed is not planned again before that is decided, so that
//! arrivals without end hold up nothing. Nodes that are away are waited for, a little; after that a plan
//! is made without them. Who comes back is told the plans of what it holds. A gang that comes meanwhile is
//! told to wait, where it is on several apinits: it would run on some of them only.
//!
//! A gang alone in its component needs no plan: nodes let run what nobody keeps from it.
//!
//! Nothing of this is on record: after a restart nodes go on by the plans that they have until they are
//! told others, whose generations are higher. So a gang of a former start is told even that it is alone.

mod accounts;
mod agree;
mod members;
mod planned;
mod settle;
mod view;

pub use view::{PlanView, Share, Turn};

use super::LinkId;
use super::decisions::{Decision, Rank};
use super::domain::{Domain, DomainId, LevelsOf};
use crate::apteam::Apid;
use crate::apteam::record::Apteam;
use crate::by_time::ByTime;
use crate::gang::Gang;
use crate::gang::accounts::Accounts;
use crate::gang::competition::Competition;
use crate::gang::dues::{Dues, Want};
use crate::gang::levels;
use crate::gang::shares::{Holder, Shares};
use crate::machine::{Machine, Nid};
use crate::occupancy::{Held, Slot};
use planned::Planned;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How the gangs that run take turns.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Schedule {
    /// The first processor of each node on the line, counted over all of them.
    first_processor: Vec<u32>,
    competition: Competition,
    accounts: Accounts,
    /// By generation.
    plans: BTreeMap<u64, Planned>,
    /// When each of them is due.
    due: BTreeSet<(u64, u64)>,
    /// Those that are being agreed.
    asking: BTreeSet<u64>,
    /// The agreed plan of each gang that has one.
    plan_of: BTreeMap<Apid, u64>,
    /// The one that is being agreed.
    asked_of: BTreeMap<Apid, u64>,
    /// Gangs that nobody keeps from running, and since when that is on their account.
    alone: BTreeMap<Apid, u64>,
    /// When each began to take turns, and what it had had by then.
    joined: BTreeMap<Apid, (u64, Duration)>,
    /// Those of a former start whose time is only guessed, from when they were launched, until a node has said it.
    /// For each: how much of its time its share had been charged for.
    guessed: BTreeMap<Apid, Duration>,
    /// Gangs that have had another time than their plans say: one gives its turns away.
    given: BTreeSet<Apid>,
    /// How long gangs were idle while no other gang waited for their processors.
    idle: BTreeMap<Apid, Duration>,
    /// Those of a former start of psched, of whom nodes may have plans that are not known here, and
    /// whether they ran then.
    inherited: BTreeMap<Apid, bool>,
    /// Whose component is to be planned anew.
    changed: BTreeSet<Apid>,
    /// Who is on which level, and who runs where by the last decision.
    pub(super) levels: LevelsOf,
    /// What was due to users.
    pub(super) dues: Dues<DomainId>,
    pub(super) decision: Decision,
    /// Who is to lead at once.
    early: BTreeSet<Apid>,
    /// The users of whom one has done so, because it was told something or because it ends, and until when none
    /// does so again.
    #[serde(with = "crate::pairs")]
    hurried: BTreeMap<(u32, bool), u64>,
    /// Apinits that did not answer in time.
    silent: BTreeSet<LinkId>,
    /// Nodes that went.
    away: ByTime<Nid>,
    /// When a component that waits for such nodes is planned without them.
    retry_ns: Option<u64>,
    generation: u64,
}

impl Schedule {
    pub(super) fn new(machine: &Machine, domains: &[Domain]) -> Schedule {
        let mut first_processor = Vec::with_capacity(machine.nodes.len());
        let mut processors = 0u32;
        for node in machine.nodes.values() {
            first_processor.push(processors);
            processors = processors.saturating_add(node.processors);
        }
        let memory = |node: &crate::machine::Node| match node.memory {
            0 => u64::MAX,
            bytes => bytes,
        };
        let memory = machine.nodes.values().map(memory).collect();
        Schedule {
            first_processor,
            competition: Competition::new(processors as usize, memory),
            accounts: Accounts::default(),
            plans: BTreeMap::new(),
            due: BTreeSet::new(),
            asking: BTreeSet::new(),
            plan_of: BTreeMap::new(),
            asked_of: BTreeMap::new(),
            alone: BTreeMap::new(),
            joined: BTreeMap::new(),
            guessed: BTreeMap::new(),
            given: BTreeSet::new(),
            idle: BTreeMap::new(),
            inherited: BTreeMap::new(),
            changed: BTreeSet::new(),
            levels: LevelsOf::new(domains),
            dues: Dues::default(),
            decision: Decision::default(),
            early: BTreeSet::new(),
            hurried: BTreeMap::new(),
            silent: BTreeSet::new(),
            away: ByTime::default(),
            retry_ns: None,
            generation: 0,
        }
    }

    /// The memory of a node is known from now on. Returned: whether turns of those on it may depend on that.
    pub(super) fn learn_memory(&mut self, line: &[Slot], nid: Nid, bytes: u64) -> bool {
        let at = line.binary_search_by_key(&nid, |slot| slot.nid);
        let bytes = if bytes == 0 { u64::MAX } else { bytes };
        at.is_ok_and(|at| self.competition.set_room(at as u32, bytes))
    }

    /// Whether there is a node whose memory is too small for all who sit on it.
    pub(super) fn is_tight(&self) -> bool {
        self.competition.is_crowded()
    }

    /// What of an application decides whom it may run with, by what it holds.
    fn gang(&self, held: &[Held]) -> Gang {
        let memory = |held: &Held| (held.at as u32, held.memory);
        let memory = held.iter().map(memory).collect();
        let mut processors = Vec::with_capacity(held.iter().map(|h| h.processors.len()).sum());
        for held in held {
            let first = self.first_processor.get(held.at).copied().unwrap_or(0);
            processors.extend(held.processors.iter().map(|p| first.saturating_add(*p)));
        }
        Gang { processors, memory }
    }

    /// Everybody who shares a plan with this one is concerned too, unless he is about to have another.
    pub(super) fn concern(&mut self, apid: Apid) {
        self.concern_all(&[apid]);
    }

    /// The same of each of these: a plan that several of them share is gone through once.
    pub(super) fn concern_all(&mut self, apids: &[Apid]) {
        self.changed.extend(apids);
        self.concern_others(&self.plans_of(apids), &[]);
        // What they are asked about now is not the last word for the others of it either.
        let asked: BTreeSet<u64> =
            apids.iter().filter_map(|apid| self.asked_of.get(apid).copied()).collect();
        for generation in asked {
            let Some(planned) = self.plans.get(&generation) else { continue };
            let asked = |other: &&Apid| self.asked_of.get(other) == Some(&generation);
            self.changed.extend(planned.members.iter().filter(asked));
        }
    }

    /// The agreed plans of these.
    fn plans_of(&self, apids: &[Apid]) -> Vec<u64> {
        let plans = apids.iter().filter_map(|apid| self.plan_of.get(apid).copied());
        let mut plans: Vec<u64> = plans.collect();
        plans.sort_unstable();
        plans.dedup();
        plans
    }

    /// Everybody who has one of these plans, but for those, who stand in order.
    fn concern_others(&mut self, plans: &[u64], but: &[Apid]) {
        for generation in plans {
            let Some(planned) = self.plans.get(generation) else { continue };
            let shares = |other: &&Apid| {
                but.binary_search(other).is_err()
                    && self.plan_of.get(other) == Some(generation)
                    && !self.asked_of.contains_key(other)
            };
            self.changed.extend(planned.members.iter().filter(shares));
        }
    }

    /// A gang counts with so many bytes on the node at this place of the line. Returned: whether that is
    /// news.
    pub(super) fn set_memory(&mut self, apid: Apid, at: usize, bytes: u64) -> bool {
        let node = u32::try_from(at).unwrap_or(u32::MAX);
        let news = self.competition.set_memory(apid, node, bytes);
        if news {
            self.concern(apid);
        }
        news
    }

    /// Bringing the memory of a gang in costs what is made of what it did before.
    pub(super) fn set_cost(&mut self, apid: Apid, cost: impl Fn(Duration) -> Duration) {
        let cost = cost(self.accounts.cost(apid));
        if self.accounts.set_cost(apid, cost) {
            self.concern(apid);
        }
    }

    /// What bringing the memory of a gang in takes, as its nodes have measured it.
    pub(super) fn cost(&self, apid: Apid) -> Duration {
        self.accounts.cost(apid)
    }

    /// Who is to lead at once.
    pub(super) fn early(&self) -> Vec<Apid> {
        self.early.iter().copied().collect()
    }

    /// The weight of a gang.
    pub(super) fn weight(&self, apid: Apid) -> u32 {
        self.accounts.weight(apid)
    }

    /// Whether it can't run beside these, or has no turn at all.
    pub(super) fn is_in_the_way(&self, apid: Apid, party: &BTreeSet<Apid>) -> bool {
        self.competition.gang(apid).is_none()
            || self.competition.crowded(apid).next().is_some()
            || self.competition.competitors(apid).any(|other| party.contains(&other))
    }

    /// It competes with nobody: its memory is out.
    pub(super) fn competition_without(&mut self, apid: Apid) {
        self.competition.remove(apid);
    }

    /// What users have had.
    pub(super) fn shares(&self) -> &Shares {
        &self.accounts.shares
    }

    /// The same, to take them up again or to have others rules for them.
    pub(super) fn shares_mut(&mut self) -> &mut Shares {
        &mut self.accounts.shares
    }

    /// What users have had, and what was due to them, halves in so long from then on.
    pub(super) fn set_half_life(&mut self, half_life: Duration, now_ns: u64) {
        self.accounts.shares.set_half_life(half_life, now_ns);
        self.dues.set_half_life(half_life, now_ns);
    }

    /// The users of a domain of so many processors want so much of them from now on.
    pub(super) fn note_wants(
        &mut self,
        domain: DomainId,
        processors: u64,
        wants: Vec<Want>,
        now_ns: u64,
    ) {
        self.dues.set_wants(domain, processors, wants, now_ns);
        let shares = &self.accounts.shares;
        self.dues.look(|holder| shares.used(holder, now_ns), now_ns);
    }

    /// Whether a gang has turns, or runs without them.
    pub(super) fn runs_any(&self) -> bool {
        !self.alone.is_empty() || !self.plan_of.is_empty()
    }

    /// To whose share the time of a gang counts, and its processors; none: there are no shares.
    pub(super) fn share_of(&self, apid: Apid) -> Option<(&Holder, u64)> {
        Some((self.accounts.holder(apid)?, self.accounts.width(apid)))
    }

    /// The users of a domain have these places.
    pub(super) fn rank(&mut self, domain: DomainId, ranks: &BTreeMap<Holder, Rank>) {
        let accounts = &self.accounts;
        let rank = |apid, level, runs| {
            let rank = accounts.holder(apid).and_then(|holder| ranks.get(holder));
            rank.map_or(0, |rank| rank.of(level, runs))
        };
        self.levels.of_mut(domain).set_ranks(rank);
    }

    /// The level of a gang of a domain.
    pub(super) fn level(&self, domain: DomainId, apid: Apid) -> usize {
        self.levels.of(domain).level(apid)
    }

    /// Which part of the time a gang runs by its plan, from 0 to 1.
    pub(super) fn share_of_time(&self, apid: Apid) -> f64 {
        if self.alone.contains_key(&apid) {
            return 1.0;
        }
        self.planned(apid).map_or(0.0, |planned| planned.share_of_time(apid))
    }

    /// To whose share the time of an application of this domain counts, and on how many processors.
    fn set_share(&mut self, team: &Apteam, domain: &Domain) {
        let width = team.places.0.iter().map(|place| place.processors.len() as u64).sum();
        self.accounts.set_share(team.apid, domain.holder(team), width);
    }

    /// Which share of the processors of its domain an application has.
    fn set_width(&mut self, team: &Apteam, processors: u64, rules: &levels::Rules) {
        let own = team.places.0.iter().map(|place| place.processors.len() as u64);
        let of = own.sum::<u64>().saturating_mul(1_000_000);
        if let Some(levels) = self.levels.with_mut(team.apid) {
            levels.set_width(team.apid, of / processors.max(1), rules);
        }
    }

    /// These have this plan from now on.
    fn have(&mut self, apids: &[Apid], generation: u64) {
        let mut former = Vec::new();
        for apid in apids {
            self.alone.remove(apid);
            self.inherited.remove(apid);
            former.extend(self.plan_of.insert(*apid, generation));
        }
        former.sort_unstable();
        former.dedup();
        self.retire(former);
    }

    /// Forgets plans that are nobody's any more.
    fn retire(&mut self, generations: impl IntoIterator<Item = u64>) {
        for generation in generations {
            let Some(planned) = self.plans.get(&generation) else { continue };
            let asking = self.asking.contains(&generation);
            let still = |apid: &Apid| {
                self.plan_of.get(apid) == Some(&generation)
                    || asking && self.asked_of.get(apid) == Some(&generation)
            };
            if !planned.members.iter().any(still) {
                self.remove(generation);
            }
        }
    }

    fn insert(&mut self, generation: u64, planned: Planned) {
        self.due.insert((planned.due_ns(), generation));
        self.plans.insert(generation, planned);
    }

    fn remove(&mut self, generation: u64) -> Option<Planned> {
        let planned = self.plans.remove(&generation)?;
        self.due.remove(&(planned.due_ns(), generation));
        Some(planned)
    }

    /// When something is to be done next without an event.
    pub(super) fn deadline(&self) -> Option<u64> {
        let due = self.due.first().map(|(at, _)| *at).filter(|at| *at < u64::MAX);
        due.into_iter().chain(self.retry_ns).min()
    }
}
