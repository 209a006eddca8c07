//! Memory of gangs: how much they have, and that it may be out when their turn comes.
//!
//! In half of the seeds nodes measure it: each gang has more and more on each of its nodes, now and then
//! more than its part. In some of those that share processors a gang's memory is out at some of its
//! starts, comes for a while, and until then it stands.

use super::wire::Who;
use super::world::{Ev, World};
use super::{MS, SECOND};
use crate::apinit::decide::Event;
use crate::apinit::decide::switcher::{Event as TurnEvent, News, Outcome};
use crate::apteam::Key;
use crate::apteam::protocol::turns::Switches;
use crate::apteam::record::State;
use crate::machine::Nid;
use crate::psched::decide::Scheduler;
use fastrand::Rng;
use std::collections::{BTreeMap, BTreeSet};

/// How often it is looked.
const LOOK: u64 = 2 * SECOND;
/// On a node, in bytes, at most: less than it has.
const HAS_MAX: u64 = 1_000 << 20;
/// It comes for so long at most.
const COMES_MAX: u64 = 64 * MS;
/// With what else may be in a change of party, a start costs no more than this.
pub const COST_MAX: u64 = 256 * MS;

/// What a seed does with memory.
#[derive(Debug)]
pub struct Memory {
    chance: Rng,
    measured: bool,
    /// It is out at one in so many starts; 0: never.
    pub out: u32,
    /// Some of who stands may go to swap because psched says so.
    pub rolls_out: bool,
    /// Of these it has, on an apinit's nodes.
    gone: BTreeSet<(usize, Key)>,
}

impl Memory {
    /// Whatever comes of this chance.
    pub fn choose(mut chance: Rng) -> Memory {
        let measured = chance.bool();
        let out = if chance.bool() { 0 } else { chance.u32(1..=6) };
        Memory { chance, measured, out, rolls_out: false, gone: BTreeSet::new() }
    }

    /// Nothing is known of memory, and it is never out.
    pub fn none() -> Memory {
        let (chance, gone) = (Rng::with_seed(0), BTreeSet::new());
        Memory { chance, measured: false, out: 0, rolls_out: false, gone }
    }

    /// It takes so long.
    pub fn late(&mut self, most: u64) -> u64 {
        self.chance.u64(100 * super::US..most)
    }

    /// Now and then the disk is full.
    pub fn fails(&mut self) -> bool {
        self.chance.u32(0..10) == 0
    }

    /// So many it has on disk.
    pub fn bytes(&mut self) -> u64 {
        self.chance.u64(1..HAS_MAX)
    }

    /// The share of a slice that bringing it in may take, in thousandths.
    pub fn switch_share(&mut self) -> u64 {
        [50, 300, 1_000][self.chance.usize(0..3)]
    }
}

/// Memory that comes to an apinit's node.
#[derive(Debug)]
pub struct Coming {
    /// Which of all.
    number: u64,
    bytes: u64,
}

impl World {
    /// An apinit begins to look.
    pub fn measure(&mut self, slot: usize) {
        if self.memory.measured {
            self.after(LOOK, Ev::Memory(slot, self.slots[slot].life));
        }
    }

    /// It looks how much its applications have.
    pub fn look_at_memory(&mut self, slot: usize, life: u64) {
        if let Some(pause) = self.paused_until(Who::ApinitLink(slot)) {
            return self.at(pause, Ev::Memory(slot, life));
        }
        if self.slots[slot].life != life || self.slots[slot].proc.is_none() {
            return;
        }
        if let Some(told) = self.peaks(slot, false) {
            self.apinit_happens(slot, Event::Turns(News::Switches(Box::new(told))));
        }
        self.after(LOOK, Ev::Memory(slot, life));
    }

    /// What has grown; `all`: everything.
    pub fn peaks(&mut self, slot: usize, all: bool) -> Option<Switches> {
        if !self.memory.measured {
            return None;
        }
        let at = &self.slots[slot];
        let here = |key: &Key| {
            let place = at.apps.get(key).and_then(|directory| directory.place.as_ref())?;
            let nids = place.places.nids().filter(|nid| at.nids.contains(nid));
            Some(nids.map(|nid| (*key, nid)).collect::<Vec<_>>())
        };
        let had: Vec<(Key, Nid)> = at.apps.keys().filter_map(here).flatten().collect();
        let Some(proc) = &mut self.slots[slot].proc else { return None };
        proc.peaks.retain(|on, _| had.contains(on));
        let mut peaks = Vec::new();
        for (key, nid) in had {
            if proc.switcher.ran(key).is_none() {
                continue;
            }
            let chance = &mut self.memory.chance;
            let has = if chance.u32(0..4) == 0 { chance.u64(0..HAS_MAX) } else { 0 };
            let peak = proc.peaks.entry((key, nid)).or_default();
            if has > *peak || all {
                *peak = has.max(*peak);
                peaks.push((key, nid, *peak));
            }
        }
        self.counts.peaks += peaks.len() as u64;
        (!peaks.is_empty()).then(|| Switches { peaks, ..Switches::default() })
    }

    /// Whether the memory of this gang is out: then it comes.
    pub fn memory_comes(&mut self, slot: usize, key: Key) -> bool {
        let out = self.memory.out;
        let gone = self.memory.gone.remove(&(slot, key));
        let by_chance = |chance: &mut Rng| out > 0 && chance.u32(0..out) == 0;
        if !self.is_frozen(slot, key) || !gone && !by_chance(&mut self.memory.chance) {
            return false;
        }
        let (late, bytes) =
            (self.memory.chance.u64(MS..COMES_MAX), self.memory.chance.u64(1..HAS_MAX));
        let (number, life) = (self.number(), self.slots[slot].life);
        let Some(proc) = &mut self.slots[slot].proc else { return false };
        proc.coming.insert(key, Coming { number, bytes });
        self.counts.brought += 1;
        self.after(late, Ev::Brought { slot, life, key, number });
        true
    }

    /// The memory of one that stands is to go to swap: so much of it does, and why no more.
    pub fn memory_goes(&mut self, slot: usize, key: Key) -> (u64, Option<String>) {
        if self.memory.fails() {
            return (0, Some("swap is full".to_owned()));
        }
        self.memory.gone.insert((slot, key));
        self.counts.rolled_out += 1;
        (self.memory.bytes(), None)
    }

    /// It has come.
    pub fn memory_came(&mut self, slot: usize, life: u64, key: Key, number: u64) {
        if let Some(pause) = self.paused_until(Who::ApinitLink(slot)) {
            return self.at(pause, Ev::Brought { slot, life, key, number });
        }
        if self.slots[slot].life != life {
            return;
        }
        let Some(proc) = &mut self.slots[slot].proc else { return };
        if proc.coming.get(&key).is_none_or(|coming| coming.number != number) {
            return;
        }
        if let Some(event) = self.runs_without_more(slot, key, u64::MAX) {
            self.switcher_hears(slot, event);
            self.apinit_settles(slot);
        }
    }

    /// Its memory is not waited for any longer, of which so much may have come.
    pub fn runs_without_more(&mut self, slot: usize, key: Key, most: u64) -> Option<TurnEvent> {
        let coming = self.slots[slot].proc.as_mut()?.coming.remove(&key)?;
        self.thaw(slot, key);
        Some(TurnEvent::Brought(key, coming.bytes.min(most)))
    }

    /// What becomes of a stop.
    pub fn stops(&mut self, slot: usize, key: Key) -> (Key, Outcome) {
        let proc = self.slots[slot].proc.as_mut();
        let (coming, returns) = proc
            .map_or((None, false), |proc| (proc.coming.remove(&key), proc.returns.remove(&key)));
        let outcome = match coming {
            // Nor is it there.
            None if returns => Outcome::NotIn(0),
            // It stands already.
            Some(coming) => Outcome::NotIn(coming.bytes / 2),
            None => Outcome::Stopped,
        };
        self.freeze(slot, key);
        (key, outcome)
    }

    /// Those on a node that do not fit in its memory together are in one plan, and in no slice together:
    /// where nothing disturbs, and nothing is just being changed.
    pub fn check_memory(&mut self) {
        let undisturbed = self.options.faults.as_ref().is_some_and(|classes| classes.is_empty());
        let Some(psched) = self.psched.as_ref().filter(|_| undisturbed) else { return };
        self.counts.crowded += crowded(psched.driver.scheduler()).len() as u64;
        if let Some(text) = too_much(psched.driver.scheduler()) {
            self.checks.broken(text);
        }
    }
}

/// The nodes on which not all gangs fit, with what each of them has there.
fn crowded(s: &Scheduler) -> Vec<(Nid, BTreeMap<crate::apteam::Apid, u64>)> {
    let running = || s.teams().filter(|team| team.state == State::Running);
    let on = |nid: Nid| {
        let its = running().flat_map(|team| s.memory(team.apid).map(|m| (team.apid, m)));
        its.filter(|(_, (at, _))| *at == nid).map(|(apid, (_, bytes))| (apid, bytes)).collect()
    };
    let all = s.machine().nodes.values().map(|node| (node, on(node.nid)));
    all.filter(|(node, on): &(_, BTreeMap<_, u64>)| on.values().sum::<u64>() > node.memory)
        .map(|(node, on)| (node.nid, on))
        .collect()
}

/// What is wrong with who runs together.
fn too_much(s: &Scheduler) -> Option<String> {
    if s.plans().any(|plan| !plan.agreed) {
        return None;
    }
    for (nid, on) in crowded(s) {
        // Who has no turn in his plan stands, and may be in swap.
        let stands = |apid: &crate::apteam::Apid| {
            let no_turn = |plan: &crate::psched::decide::PlanView| {
                plan.members.contains(apid)
                    && !plan.slices.iter().any(|slice| slice.party.contains(apid))
            };
            s.plans().any(|plan| no_turn(&plan))
        };
        let memory = s.machine().nodes.get(&nid)?.memory;
        let on: BTreeMap<_, u64> = on.into_iter().filter(|(apid, _)| !stands(apid)).collect();
        if on.values().sum::<u64>() <= memory {
            continue;
        }
        let all: BTreeSet<_> = on.keys().collect();
        let Some(plan) = s.plans().find(|plan| plan.members.iter().any(|a| all.contains(a))) else {
            return Some(format!("{all:?} do not fit on NID {nid}, and have no plan"));
        };
        if !all.iter().all(|apid| plan.members.contains(apid)) {
            return Some(format!("{all:?} do not fit on NID {nid}, and have plans of their own"));
        }
        for slice in plan.slices {
            let party: Vec<u64> = slice.party.iter().filter_map(|a| on.get(a)).copied().collect();
            if party.len() > 1 && party.iter().sum::<u64>() > memory {
                return Some(format!("{:?} run at once, and do not fit on NID {nid}", slice.party));
            }
        }
    }
    None
}
