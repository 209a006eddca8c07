//! The plans that this apinit holds, and what they say at an instant.

use super::Turn;
use crate::apteam::Key;
use crate::apteam::talk::turns::SlicePlan;
use crate::gang::plan::at;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// All of them. Times are of this host's clock.
#[derive(Clone, Debug, Default)]
pub(super) struct Plans {
    all: BTreeMap<u64, SlicePlan>,
    /// The generations that name each.
    of: BTreeMap<Key, BTreeSet<u64>>,
}

/// The slice of a plan that is on.
struct Present<'a> {
    index: usize,
    began_ns: u64,
    ends_ns: u64,
    party: &'a [Key],
}

fn present(plan: &SlicePlan, now: u64) -> Option<Present<'_>> {
    let after = now.checked_sub(plan.begins_ns)?;
    let lengths = plan.slices.iter().map(|slice| slice.length);
    let (index, left) = at(lengths, Duration::from_nanos(after))?;
    let slice = plan.slices.get(index)?;
    let ends_ns = now.saturating_add(ns(left));
    let began_ns = ends_ns.saturating_sub(ns(slice.length)).max(plan.from_ns);
    Some(Present { index, began_ns, ends_ns, party: &slice.party })
}

/// When a plan next gives it a turn, from then on.
fn turn_of(plan: &SlicePlan, key: Key, from_ns: u64) -> Option<u64> {
    let present = present(plan, from_ns)?;
    let mut at = from_ns;
    for ahead in 0..plan.slices.len() {
        let slice = &plan.slices[(present.index + ahead) % plan.slices.len()];
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

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Plans {
    pub fn insert(&mut self, plan: SlicePlan) {
        self.remove(plan.generation);
        for key in &plan.members {
            self.of.entry(*key).or_default().insert(plan.generation);
        }
        self.all.insert(plan.generation, plan);
    }

    /// Whom a plan names.
    pub fn members(&self, generation: u64) -> &[Key] {
        self.all.get(&generation).map_or(&[], |plan| &plan.members)
    }

    pub fn agree(&mut self, generation: u64) {
        if let Some(plan) = self.all.get_mut(&generation) {
            plan.agreed = true;
        }
    }

    pub fn remove(&mut self, generation: u64) {
        let Some(plan) = self.all.remove(&generation) else { return };
        for key in plan.members {
            if let Some(generations) = self.of.get_mut(&key) {
                generations.remove(&generation);
                if generations.is_empty() {
                    self.of.remove(&key);
                }
            }
        }
    }

    fn agreed(&self, key: Key) -> impl Iterator<Item = &SlicePlan> {
        let generations = self.of.get(&key).into_iter().flatten().rev();
        generations.filter_map(|generation| self.all.get(generation)).filter(|plan| plan.agreed)
    }

    /// The one that it obeys now.
    fn obeyed(&self, key: Key, now: u64) -> Option<&SlicePlan> {
        self.agreed(key).find(|plan| plan.from_ns <= now)
    }

    /// What they say of it.
    pub fn turn(&self, key: Key, now: u64) -> Turn {
        let Some(plan) = self.obeyed(key, now) else { return Turn::Unplanned };
        let generation = plan.generation;
        match present(plan, now) {
            Some(present) if present.party.contains(&key) => {
                Turn::Its { generation, since_ns: present.began_ns }
            }
            Some(present) => Turn::Others { generation, since_ns: present.began_ns },
            None => Turn::Others { generation, since_ns: plan.from_ns },
        }
    }

    /// When it may have its next turn: at once, where nobody plans for it; none, while no plan gives it one.
    pub fn next_turn(&self, key: Key, now: u64) -> Option<u64> {
        let Some(plan) = self.obeyed(key, now) else { return Some(now) };
        let newer = self.agreed(key).find(|plan| plan.from_ns > now);
        let until = newer.map_or(u64::MAX, |newer| newer.from_ns);
        let own = turn_of(plan, key, now).filter(|at| *at < until);
        own.or_else(|| newer.and_then(|newer| turn_of(newer, key, newer.from_ns)))
    }

    /// When they next say something else of one of these.
    pub fn next_change(&self, keys: impl Iterator<Item = Key>, now: u64) -> Option<u64> {
        let mut next: Option<u64> = None;
        let mut sooner = |at: u64| next = Some(next.map_or(at, |n: u64| n.min(at)));
        let mut obeying: BTreeMap<u64, BTreeSet<Key>> = BTreeMap::new();
        for key in keys {
            for plan in self.agreed(key) {
                if plan.from_ns <= now {
                    obeying.entry(plan.generation).or_default().insert(key);
                    break;
                }
                sooner(plan.from_ns);
            }
        }
        for (generation, keys) in obeying {
            let Some(plan) = self.all.get(&generation) else { continue };
            let Some(present) = present(plan, now) else {
                if plan.begins_ns > now {
                    sooner(plan.begins_ns);
                }
                continue;
            };
            let of = |party: &[Key]| -> BTreeSet<Key> {
                party.iter().filter(|key| keys.contains(key)).copied().collect()
            };
            let current = of(present.party);
            let mut at = present.ends_ns;
            for ahead in 1..plan.slices.len() {
                let slice = &plan.slices[(present.index + ahead) % plan.slices.len()];
                if !slice.length.is_zero() && of(&slice.party) != current {
                    sooner(at);
                    break;
                }
                at = at.saturating_add(ns(slice.length));
            }
        }
        next
    }
}
