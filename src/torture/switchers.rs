//! Changes of gangs: the switcher of each apinit, driven as apinit's thread does it.
//!
//! A group is frozen at once when that is asked for, and what its processes would do next is put off
//! until it is thawed. That it is frozen is known at once too, or after [`World::stops_take`].

use super::host::{Proc, ProcId};
use super::memory::COST_MAX;
use super::wire::{Pid, Who};
use super::world::{Ev, World};
use super::{SECOND, US};
use crate::apinit::decide::Event;
use crate::apinit::decide::switcher::{Action, Event as TurnEvent, News, Outcome, Ran, Start};
use crate::apteam::Key;
use crate::apteam::protocol::turns::{SWITCHES_MAX, Switches};
use crate::gang::plan::SLICE_MIN;
use std::collections::VecDeque;

/// Users that post, which is among how many a floor is divided at most, and one more where what they need is
/// not whole.
const USERS: u64 = 4;

/// A frozen group.
#[derive(Debug)]
pub struct Frozen {
    /// Since when.
    since: u64,
    /// How many had come and gone by then.
    changes: u64,
    /// Its processes that would do something.
    held: Vec<ProcId>,
}

/// For how long one that comes while a node of its component is away waits for that on all of its nodes.
const AWAIT: u64 = 2 * SECOND;
/// Between two tellings of how changes went.
const TELL: u64 = super::SECOND;

impl World {
    /// The groups of an application are frozen on this apinit's nodes.
    pub fn is_frozen(&self, slot: usize, key: Key) -> bool {
        self.frozen.contains_key(&(slot, key))
    }

    /// The PEs of this shepherd are frozen.
    pub fn shepherd_is_frozen(&self, pid: Pid) -> bool {
        self.sheps.get(&pid).is_some_and(|shep| self.is_frozen(shep.slot, shep.key))
    }

    /// A process of a frozen group does nothing; it goes on when it is thawed.
    pub fn held_back(&mut self, id: ProcId) -> bool {
        let Some(proc) = self.procs.get(&id) else { return false };
        let frozen = self.frozen.get_mut(&(proc.slot, proc.key));
        frozen.map(|frozen| frozen.held.push(id)).is_some()
    }

    /// A process runs, unless it is frozen.
    pub fn occupies(&mut self, id: ProcId) {
        let Some(proc) = self.procs.get(&id).filter(|p| p.runs) else { return };
        if !self.is_frozen(proc.slot, proc.key) {
            self.checks.occupies(self.now, self.slots[proc.slot].host, id, proc);
        }
    }

    /// Those of an application's processes on this apinit's nodes that have begun.
    fn begun(&self, slot: usize, key: Key) -> Vec<ProcId> {
        let of =
            |(id, p): (&ProcId, &Proc)| (p.slot == slot && p.key == key && p.runs).then_some(*id);
        self.procs.iter().filter_map(of).collect()
    }

    /// The group does nothing any more.
    pub fn freeze(&mut self, slot: usize, key: Key) {
        if self.frozen.contains_key(&(slot, key)) {
            return;
        }
        self.begun(slot, key).into_iter().for_each(|id| self.checks.leaves(id));
        let frozen = Frozen { since: self.now, changes: self.checks.changes(), held: Vec::new() };
        self.frozen.insert((slot, key), frozen);
        self.part_changes(key);
    }

    /// How long one that was frozen then may wait at most, where nothing disturbs: with floors a cycle for each
    /// that is there, and for each that has come or gone meanwhile; without them `longest_wait`, and for each of
    /// those what it may keep its place for then, or pays for its start.
    fn turns_take(&self, changes: u64) -> Option<u64> {
        let undisturbed = self.options.faults.as_ref().is_some_and(|classes| classes.is_empty());
        let psched = self.psched.as_ref().filter(|_| undisturbed)?;
        let rules = &self.settings.turns;
        let gangs =
            psched.driver.scheduler().teams().filter(|t| t.state.holds_processors()).count() as u64;
        let cycles = gangs + self.checks.changes() - changes + 1;
        // (A cycle is longer than a slice by what its floors have at least.)
        let cycle = (rules.time_slice + SLICE_MIN * USERS as u32).as_nanos() as u64;
        let all = match rules.floors {
            false => {
                let wait = rules.longest_wait.as_nanos() as u64;
                let cost = rules.start_cost.as_nanos() as u64 + 2 * COST_MAX;
                wait + cycles * (wait / 5 + cost)
            }
            // One turn may be over before its memory is in; in the next it does not wait for that. (A slice is
            // longer also for memory that psched takes to be out.)
            true => 2 * cycles * (cycle + COST_MAX).max(COST_MAX * 1_000 / rules.switch_share),
        };
        Some(all + SECOND + AWAIT)
    }

    /// The agent tells the switcher.
    pub fn tell_switcher(&mut self, slot: usize, mut event: TurnEvent) {
        self.switcher_told(slot, &event);
        if let TurnEvent::Comes { gang, frozen, .. } = &mut event {
            *frozen = self.is_frozen(slot, gang.key);
        }
        if let (TurnEvent::Goes(key), Some(proc)) = (&event, &mut self.slots[slot].proc) {
            proc.coming.remove(key);
            proc.away.remove(key);
            proc.returns.remove(key);
        }
        if !self.returned(slot, &event) {
            return;
        }
        self.switcher_hears(slot, event);
    }

    pub fn switcher_hears(&mut self, slot: usize, event: TurnEvent) {
        let (host, life) = (self.slots[slot].host, self.slots[slot].life);
        let mut todo = VecDeque::from([event]);
        while let Some(event) = todo.pop_front() {
            let mono = self.mono(host);
            let Some(proc) = &mut self.slots[slot].proc else { return };
            for action in proc.switcher.apply(mono, event) {
                self.note(|| format!("switcher {slot} does {}", super::trace::cut(&action)));
                match action {
                    Action::Stop(keys) => {
                        let outcomes = keys.into_iter().map(|key| self.stops(slot, key)).collect();
                        match self.stops_take {
                            0 => todo.push_back(TurnEvent::Stopped(outcomes)),
                            late => self.after(late, Ev::TurnsStopped { slot, life, outcomes }),
                        }
                    }
                    Action::Start(keys) => {
                        if !keys.is_empty() {
                            self.counts.let_run += 1;
                        }
                        let start = |key| match self.returns_first(slot, key)
                            || self.memory_comes(slot, key)
                        {
                            true => (key, Start::MemoryComes),
                            false => {
                                self.thaw(slot, key);
                                (key, Start::Runs)
                            }
                        };
                        todo.push_back(TurnEvent::Started(keys.into_iter().map(start).collect()));
                    }
                    Action::Look(keys) => {
                        // (No gang is ever idle here.)
                        let used = keys.into_iter().map(|key| (key, Some(mono)));
                        todo.push_back(TurnEvent::Used(used.collect()));
                    }
                    // (Nothing of it may have come.)
                    Action::Hasten(key) => todo.extend(self.runs_without_more(slot, key, 0)),
                    Action::MayGo(key) => self.turns_news(slot, News::MayGo(key)),
                    Action::HasTurn(key) => self.turns_news(slot, News::HasTurn(key)),
                    Action::Held(key, stands) => self.turns_news(slot, News::Held(key, stands)),
                    Action::TakeOut(key) => self.turns_news(slot, News::GoesOut(key)),
                    Action::RollOut(key) => {
                        let (bytes, why) = self.memory_goes(slot, key);
                        self.turns_news(slot, News::RolledOut(key, bytes, why));
                    }
                    Action::NotOut(key, why) => {
                        self.turns_news(slot, News::RolledOut(key, 0, Some(why.to_owned())));
                    }
                    Action::Ran(..) | Action::WasIdle(..) => {}
                    Action::Switched(switch) => {
                        let Some(proc) = &mut self.slots[slot].proc else { return };
                        let told = &mut proc.switches;
                        if told.switches.len() >= SWITCHES_MAX {
                            told.switches.remove(0);
                            told.left_out += 1;
                        }
                        told.switches.push(switch);
                        if told.switches.len() == 1 && told.left_out == 0 {
                            self.after(TELL, Ev::TurnsTold(slot, life));
                        }
                    }
                }
            }
        }
        self.set_turns_timer(slot);
    }

    fn turns_news(&mut self, slot: usize, news: News) {
        self.apinit_happens(slot, Event::Turns(news));
    }

    fn set_turns_timer(&mut self, slot: usize) {
        let (host, life, number) = (self.slots[slot].host, self.slots[slot].life, self.number());
        let Some(proc) = &mut self.slots[slot].proc else { return };
        proc.turns_timer = number;
        if let Some(at) = proc.switcher.next_ns() {
            let at = self.hosts[host].true_time(self.now, at);
            self.at(at, Ev::Turns(slot, life, number));
        }
    }

    /// The group is let run.
    pub fn thaw(&mut self, slot: usize, key: Key) {
        let Some(Frozen { since, changes, held }) = self.frozen.remove(&(slot, key)) else {
            return;
        };
        self.first_run(slot, key);
        self.checks.goes_on(key);
        self.begun(slot, key).into_iter().for_each(|id| self.occupies(id));
        for id in held {
            self.wake(id, US);
        }
        self.part_changes(key);
        if let Some(bound) = self.turns_take(changes) {
            self.counts.let_run_in_time += 1;
            self.checks.thawed(self.now, key, since, bound);
        }
    }

    /// Whose turn it is may have changed.
    pub fn turns_tick(&mut self, slot: usize, life: u64, number: u64) {
        if let Some(pause) = self.paused_until(Who::ApinitLink(slot)) {
            return self.at(pause, Ev::Turns(slot, life, number));
        }
        let own = self.slots[slot].proc.as_ref().is_some_and(|p| p.turns_timer == number);
        if self.slots[slot].life == life && own {
            self.switcher_hears(slot, TurnEvent::Tick);
            self.apinit_settles(slot);
        }
    }

    /// It is known that these are frozen.
    pub fn turns_stopped(&mut self, slot: usize, life: u64, outcomes: Vec<(Key, Outcome)>) {
        if let Some(pause) = self.paused_until(Who::ApinitLink(slot)) {
            return self.at(pause, Ev::TurnsStopped { slot, life, outcomes });
        }
        if self.slots[slot].life == life && self.slots[slot].proc.is_some() {
            self.switcher_hears(slot, TurnEvent::Stopped(outcomes));
            self.apinit_settles(slot);
        }
    }

    /// How changes went is told.
    pub fn turns_told(&mut self, slot: usize, life: u64) {
        if let Some(pause) = self.paused_until(Who::ApinitLink(slot)) {
            return self.at(pause, Ev::TurnsTold(slot, life));
        }
        if self.slots[slot].life != life {
            return;
        }
        let Some(proc) = &mut self.slots[slot].proc else { return };
        let told: Switches = std::mem::take(&mut proc.switches);
        self.turns_news(slot, News::Switches(Box::new(told)));
        self.apinit_settles(slot);
    }

    /// What one that is found again has run.
    pub fn found_ran(&self, slot: usize, key: Key) -> Option<u64> {
        let (ns, at) = self.slots[slot].apps.get(&key)?.ran?;
        let since_ns = (!self.is_frozen(slot, key)).then_some(at);
        Some(Ran { ns, since_ns }.by(self.mono(self.slots[slot].host)))
    }
}
