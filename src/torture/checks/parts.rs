//! Promise 1 once more: no gang runs in part for longer than one plan's lead time.
//!
//! # Problem
//! A gang on several apinits runs in part while it is let run on some of them and frozen on others: its
//! PEs that run wait for those that do not. Some of that can't be helped (messages take their time, and a
//! node that is dead or out of reach takes part in no change), but where nothing is in the way it must be
//! over within a lead.
//!
//! # Approach
//! Looked at are gangs that have processes on all of their apinits, all of which have begun and none is
//! being ended: what is on its way in or out is whole nowhere. Counted is the time in part in which all of
//! its apinits, those of the gangs that compete with it, and psched were *calm*: they run, they have been
//! in touch for long enough to plan anew, and each knows psched's clock. Seeds in which memory has to be
//! brought in are left out.
//!
//! Where hosts learn psched's clock by exchanges a stricter bound holds between changes of plans: all that
//! sets the apinits of a gang apart then is the error that each claims of its clock.

use crate::apinit::decide::switcher::Event as TurnEvent;
use crate::apteam::Key;
use crate::torture::world::World;
use crate::torture::{MS, SECOND};
use std::collections::{BTreeMap, BTreeSet};

/// What two messages take, and what two clocks may differ by.
const SLACK: u64 = 5 * MS;
/// A clock that was learned from a message which was on its way for longer is not known.
const CLOCK_KNOWN: u64 = 2 * MS;
/// After so long the gangs of a node that is back have been planned anew: the others of their component
/// may have been waited for, and then the plan was agreed.
const PLANNED_ANEW: u64 = 3 * SECOND;

/// Which gangs run in part, and what stands in nobody's way.
#[derive(Debug, Default)]
pub struct Parts {
    /// Since when each of them does.
    in_part: BTreeMap<Key, u64>,
    /// Since when an apinit is calm; none: it is not.
    calm: BTreeMap<usize, u64>,
    /// Since when everything else is.
    all_calm: u64,
    /// Whether it knows psched's clock.
    clock_known: BTreeMap<usize, bool>,
    /// When the switcher of an apinit heard something last that is no turn of a plan.
    news: BTreeMap<usize, u64>,
    /// Plans that each switcher has heard of, by their generations.
    plans: BTreeSet<(usize, u64)>,
}

impl World {
    /// An apinit is dead or out of reach.
    pub fn disturbed(&mut self, slot: usize) {
        self.parts.calm.remove(&slot);
    }

    /// psched is dead, and so no apinit is in touch with it.
    pub fn all_disturbed(&mut self) {
        self.parts.calm.clear();
    }

    /// Something disturbs all until then.
    pub fn disturbed_until(&mut self, until: u64) {
        self.parts.all_calm = self.parts.all_calm.max(until);
    }

    /// An apinit hears a welcome that psched said at this time of its clock.
    pub fn welcomed(&mut self, slot: usize, said_ns: u64) {
        let known = self.mono(0).saturating_sub(said_ns) <= CLOCK_KNOWN;
        self.parts.clock_known.insert(slot, known);
    }

    /// psched hears what is on an apinit. The plans that are there may be old ones, of which others have
    /// newer, or by a wrong clock, until its gangs are planned anew.
    pub fn calmed(&mut self, slot: usize) {
        let known = !self.mix.clocks && self.parts.clock_known.get(&slot) == Some(&true);
        if known || self.clocks.on {
            self.parts.calm.insert(slot, self.now + PLANNED_ANEW);
        }
    }

    /// The switcher of an apinit hears something of the agent's. (A plan that comes again has been put anew on
    /// this host's clock.)
    pub fn switcher_told(&mut self, slot: usize, event: &TurnEvent) {
        if self.clocks.on
            && !matches!(event, TurnEvent::Plan(plan) if !self.parts.plans.insert((slot, plan.generation)))
        {
            self.parts.news.insert(slot, self.now);
        }
    }

    /// What one of these apinits may be wrong about psched's clock, now or just before; none: one of them claims
    /// nothing.
    fn worst_error(&self, slots: &[usize]) -> Option<u64> {
        let error = |slot: &usize| {
            let before = self.slots[*slot].proc.as_ref()?.error_before;
            let own = self.clock_error(*slot)?;
            Some(if self.slots[*slot].host == 0 { 0 } else { own.max(before) })
        };
        let errors: Option<Vec<u64>> = slots.iter().map(error).collect();
        errors?.into_iter().max().filter(|worst| *worst < SECOND)
    }

    /// Something of a gang has been frozen or let run, has begun or ended.
    pub fn part_changes(&mut self, key: Key) {
        if self.runs_in_part(key) {
            self.parts.in_part.entry(key).or_insert(self.now);
        } else {
            self.judge_part(key);
            self.parts.in_part.remove(&key);
        }
    }

    /// The same of all that did so when it was last looked.
    pub fn look_at_parts(&mut self) {
        let keys: Vec<Key> = self.parts.in_part.keys().copied().collect();
        for key in keys {
            self.judge_part(key);
            self.part_changes(key);
        }
    }

    /// The apinits that have part of it, by its groups.
    fn apinits_of(&self, key: Key) -> Vec<usize> {
        let with = |slot: &usize| self.groups.contains_key(&(*slot, key));
        (0..self.slots.len()).filter(with).collect()
    }

    /// These, and all that have parts of gangs which compete with theirs, or with those: they have
    /// one plan, and psched plans what it has heard of.
    fn apinits_beside(&self, slots: &[usize]) -> BTreeSet<usize> {
        let mut all: BTreeSet<usize> = slots.iter().copied().collect();
        loop {
            let there = self.groups.keys().filter(|(slot, _)| all.contains(slot));
            let keys: BTreeSet<Key> = there.map(|(_, key)| *key).collect();
            let of_them = self.groups.keys().filter(|(_, key)| keys.contains(key));
            let more: BTreeSet<usize> = of_them.map(|(slot, _)| *slot).collect();
            if more.is_subset(&all) {
                return all;
            }
            all.extend(more);
        }
    }

    fn runs_in_part(&self, key: Key) -> bool {
        let Some(team) = self.disk.teams.get(&key.apid).filter(|team| team.key() == key) else {
            return false;
        };
        let slots = self.apinits_of(key);
        if slots.len() < 2 || slots.len() != team.hosts.len() {
            return false;
        }
        let goes = |slot: &usize| {
            let members = self.groups.get(&(*slot, key)).into_iter().flatten();
            let mut procs = members.filter_map(|id| self.procs.get(id)).peekable();
            procs.peek().is_some() && procs.all(|proc| proc.runs && !proc.dying)
        };
        let frozen = slots.iter().filter(|slot| self.is_frozen(**slot, key)).count();
        (1..slots.len()).contains(&frozen) && slots.iter().all(goes)
    }

    /// How long it has done so by now.
    fn judge_part(&mut self, key: Key) {
        let Some(since) = self.parts.in_part.get(&key).copied() else { return };
        // What waits for its memory on one node runs on others: that is no fault of its plan.
        if self.memory.out > 0 || self.memory.rolls_out {
            return;
        }
        let calm = |slot: usize| self.parts.calm.get(&slot).copied();
        let slots = self.apinits_of(key);
        let component = self.apinits_beside(&slots);
        let calm: Option<Vec<u64>> = component.iter().map(|slot| calm(*slot)).collect();
        let Some(calm) = calm else { return };
        let calm = calm.into_iter().max().unwrap_or(0).max(self.parts.all_calm);
        let part = self.now.saturating_sub(since.max(calm));
        self.counts.partial += u64::from(part > 0);
        self.counts.partial_longest = self.counts.partial_longest.max(part);
        let lead = self.settings.turns.plan_lead.as_nanos() as u64;
        let mut bound = lead + self.stops_take + SLACK;
        if self.clocks.on {
            let Some(worst) = self.worst_error(&slots) else { return };
            let news = |slot| self.parts.news.get(slot).copied().unwrap_or(0);
            let planned = slots.iter().map(news).max().unwrap_or(0);
            let steady = planned + PLANNED_ANEW < since;
            self.counts.add(if steady { "steady parts" } else { "parts of changes" });
            bound = match steady {
                true => self.stops_take + 2 * worst + MS,
                // A message of psched's comes late by its way.
                false => bound + 2 * worst + 2 * self.clocks.longest(),
            };
        }
        if part > bound {
            let (part, bound) = (part / MS, bound / MS);
            let text = format!("{key} ran in part for {part} ms, and {bound} ms is the most");
            self.checks.broken(text);
        }
    }
}
