//! The plans that this apinit holds, and what they say at an instant.

use super::super::ns;
use super::Turn;
use crate::apteam::Key;
use crate::apteam::protocol::turns::SlicePlan;
use std::collections::{BTreeMap, BTreeSet};

/// All of them. Times are of this host's clock.
#[derive(Clone, Debug, Default)]
pub(super) struct Plans {
    all: BTreeMap<u64, Held>,
    /// The generations that name each.
    of: BTreeMap<Key, BTreeSet<u64>>,
}

/// One of them.
#[derive(Clone, Debug)]
struct Held {
    plan: SlicePlan,
    /// When each slice ends, in nanoseconds after the first began: each gang asks at each change.
    ends: Vec<u64>,
}

/// The slice of a plan that is on.
struct Present<'a> {
    index: usize,
    began_ns: u64,
    ends_ns: u64,
    party: &'a [Key],
}

impl Held {
    fn new(plan: SlicePlan) -> Held {
        let mut end = 0u64;
        let ends = plan.slices.iter().map(|slice| {
            end = end.saturating_add(ns(slice.length));
            end
        });
        Held { ends: ends.collect(), plan }
    }

    fn present(&self, now: u64) -> Option<Present<'_>> {
        let plan = &self.plan;
        let after = now.checked_sub(plan.begins_ns)?;
        let into = after.checked_rem(*self.ends.last()?)?;
        let index = self.ends.partition_point(|end| *end <= into);
        let slice = plan.slices.get(index)?;
        let ends_ns = now.saturating_add(self.ends[index] - into);
        let began_ns = ends_ns.saturating_sub(ns(slice.length)).max(plan.from_ns);
        Some(Present { index, began_ns, ends_ns, party: &slice.party })
    }

    /// When it next gives that gang a turn, from then on.
    fn turn_of(&self, key: Key, from_ns: u64) -> Option<u64> {
        let present = self.present(from_ns)?;
        let slices = &self.plan.slices;
        let mut at = from_ns;
        for ahead in 0..slices.len() {
            let slice = &slices[(present.index + ahead) % slices.len()];
            if slice.party.contains(&key) && !slice.length.is_zero() {
                return Some(at);
            }
            at = match ahead {
                0 => present.ends_ns,
                _ => at.saturating_add(ns(slice.length)),
            };
        }
        None
    }

    /// When another of these gangs, which stand in order, begins or ends a turn by it.
    fn next_change(&self, keys: &[Key], now: u64) -> Option<u64> {
        let Some(present) = self.present(now) else {
            return Some(self.plan.begins_ns).filter(|begins_ns| *begins_ns > now);
        };
        let of = |party: &[Key], found: &mut Vec<Key>| {
            found.clear();
            found.extend(party.iter().filter(|key| keys.binary_search(key).is_ok()));
            found.sort_unstable();
        };
        let (mut current, mut other) = (Vec::new(), Vec::new());
        of(present.party, &mut current);
        let slices = &self.plan.slices;
        let mut at = present.ends_ns;
        for ahead in 1..slices.len() {
            let slice = &slices[(present.index + ahead) % slices.len()];
            of(&slice.party, &mut other);
            if !slice.length.is_zero() && other != current {
                return Some(at);
            }
            at = at.saturating_add(ns(slice.length));
        }
        None
    }
}

impl Plans {
    pub fn insert(&mut self, plan: SlicePlan) {
        self.remove(plan.generation);
        for key in &plan.members {
            self.of.entry(*key).or_default().insert(plan.generation);
        }
        self.all.insert(plan.generation, Held::new(plan));
    }

    /// Whom a plan names.
    pub fn members(&self, generation: u64) -> &[Key] {
        self.all.get(&generation).map_or(&[], |held| &held.plan.members)
    }

    pub fn agree(&mut self, generation: u64) {
        if let Some(held) = self.all.get_mut(&generation) {
            held.plan.agreed = true;
        }
    }

    pub fn remove(&mut self, generation: u64) {
        let Some(held) = self.all.remove(&generation) else { return };
        for key in held.plan.members {
            if let Some(generations) = self.of.get_mut(&key) {
                generations.remove(&generation);
                if generations.is_empty() {
                    self.of.remove(&key);
                }
            }
        }
    }

    fn agreed(&self, key: Key) -> impl Iterator<Item = &Held> {
        let generations = self.of.get(&key).into_iter().flatten().rev();
        generations
            .filter_map(|generation| self.all.get(generation))
            .filter(|held| held.plan.agreed)
    }

    /// The one that it obeys now.
    fn obeyed(&self, key: Key, now: u64) -> Option<&Held> {
        self.agreed(key).find(|held| held.plan.from_ns <= now)
    }

    /// What they say of it.
    pub fn turn(&self, key: Key, now: u64) -> Turn {
        let Some(held) = self.obeyed(key, now) else { return Turn::Unplanned };
        let generation = held.plan.generation;
        match held.present(now) {
            Some(present) if present.party.contains(&key) => {
                Turn::Its { generation, since_ns: present.began_ns }
            }
            Some(present) => Turn::Others { generation, since_ns: present.began_ns },
            None => Turn::Others { generation, since_ns: held.plan.from_ns },
        }
    }

    /// When it may have its next turn: at once, where nobody plans for it; none, while no plan gives it one.
    pub fn next_turn(&self, key: Key, now: u64) -> Option<u64> {
        let Some(held) = self.obeyed(key, now) else { return Some(now) };
        let newer = self.agreed(key).find(|held| held.plan.from_ns > now);
        let until = newer.map_or(u64::MAX, |newer| newer.plan.from_ns);
        let own = held.turn_of(key, now).filter(|at| *at < until);
        own.or_else(|| newer.and_then(|newer| newer.turn_of(key, newer.plan.from_ns)))
    }

    /// The place of a gang among those whom its plan names for what others give; the last where it is not named.
    pub fn takes(&self, key: Key, now: u64) -> usize {
        let named = |held: &Held| held.plan.takers.iter().position(|taker| *taker == key);
        self.obeyed(key, now).and_then(named).unwrap_or(usize::MAX)
    }

    /// When they next say something else of one of these.
    pub fn next_change(&self, keys: impl Iterator<Item = Key>, now: u64) -> Option<u64> {
        let mut next: Option<u64> = None;
        let mut sooner = |at: u64| next = Some(next.map_or(at, |n: u64| n.min(at)));
        let mut obeying: Vec<(u64, Key)> = Vec::new();
        for key in keys {
            for held in self.agreed(key) {
                if held.plan.from_ns <= now {
                    obeying.push((held.plan.generation, key));
                    break;
                }
                sooner(held.plan.from_ns);
            }
        }
        obeying.sort_unstable();
        for same in obeying.chunk_by(|one, other| one.0 == other.0) {
            let keys: Vec<Key> = same.iter().map(|(_, key)| *key).collect();
            let held = self.all.get(&same[0].0);
            if let Some(at) = held.and_then(|held| held.next_change(&keys, now)) {
                sooner(at);
            }
        }
        next
    }
}
