//! Clocks of hosts that are learned by exchanges with psched, on ways that are not even.
//!
//! In the class `exchanges` of faults each host's clock has an offset and a drift of its own, and a message
//! takes longer on one way between two hosts than on the way back. Each apinit asks for psched's clock
//! as it ships: [`Exchanges`] says when, and what follows from an answer. What the agent then uses, and
//! what psched was told, is held against the true difference of the clocks ([`super::checks`]).

use super::host::Host;
use super::wire::{Msg, Who, WireId};
use super::world::{Ev, World};
use super::{MS, US};
use crate::apinit::decide::Event;
use crate::apinit::decide::clock::{Exchange, Moment};
use crate::apinit::decide::exchanges::{Exchanges, Learned};
use crate::apteam::protocol::node::ClockTold;
use crate::psched::decide::{Event as PschedEvent, LinkId};
use fastrand::Rng;
use std::collections::BTreeMap;

/// By how much a clock is fast or slow at most, in parts in a million: two differ by less than what apinit
/// takes for possible.
const DRIFT_MAX: i64 = 45;
/// What the longer ways take beside what all take, at most.
const WAY_MAX: u64 = 6 * MS;

/// All of it.
#[derive(Debug)]
pub struct Clocks {
    pub on: bool,
    chance: Rng,
    /// What a message takes more from one host to another.
    ways: BTreeMap<(usize, usize), u64>,
}

impl Clocks {
    pub fn new(seed: u64, on: bool) -> Clocks {
        // (Its chance is its own, so that histories without this class stay the same.)
        Clocks { on, chance: Rng::with_seed(seed ^ 0x00c1_0c45), ways: BTreeMap::new() }
    }

    /// What a message takes more from one host to another. Some ways are as short as those of others, so that
    /// exchanges with psched are worth more there.
    pub fn way(&mut self, hosts: [usize; 2]) -> u64 {
        if !self.on || hosts[0] == hosts[1] {
            return 0;
        }
        let Clocks { chance, ways, .. } = self;
        *ways.entry((hosts[0], hosts[1])).or_insert_with(|| match chance.bool() {
            true => chance.u64(0..WAY_MAX),
            false => chance.u64(0..100 * US),
        })
    }

    /// The longest of all ways.
    pub fn longest(&self) -> u64 {
        self.ways.values().copied().max().unwrap_or(0)
    }

    /// The clocks of hosts drift, whatever else is chosen.
    pub fn drift(&mut self, hosts: &mut [Host]) {
        for host in hosts.iter_mut().filter(|_| self.on) {
            host.runs_fast_by(self.chance.i64(-DRIFT_MAX..=DRIFT_MAX));
        }
    }
}

fn moment(mono_ns: u64) -> Moment {
    Moment { mono_ns, raw_ns: mono_ns, apart_ns: 0 }
}

impl World {
    /// Whether this apinit's clock is another one than psched's, and is learned by exchanges.
    fn learns(&self, slot: usize) -> bool {
        self.clocks.on && self.slots[slot].host != 0
    }

    /// psched has welcomed an apinit on this wire: it asks for psched's clock from now on.
    pub fn exchanges_begin(&mut self, slot: usize, wire: WireId) {
        if !self.learns(slot) {
            return;
        }
        let (mono, life) = (self.mono(self.slots[slot].host), self.slots[slot].life);
        let boots = self.hosts[0].boots;
        if let Some(proc) = &mut self.slots[slot].proc {
            proc.exchanges = Some((Exchanges::new(mono), wire, boots));
            self.after(0, Ev::Clock(slot, life, wire));
        }
    }

    /// A question is due, or a reading.
    pub fn exchange_tick(&mut self, slot: usize, life: u64, wire: WireId) {
        if let Some(pause) = self.paused_until(Who::ApinitLink(slot)) {
            return self.at(pause, Ev::Clock(slot, life, wire));
        }
        let host = self.slots[slot].host;
        let mono = self.mono(host);
        let own = self.slots[slot].life == life;
        let Some(proc) = self.slots[slot].proc.as_mut().filter(|_| own) else { return };
        if proc.link.is_none_or(|link| link.0 != wire) {
            return;
        }
        let Some((exchanges, ..)) = proc.exchanges.as_mut().filter(|of| of.1 == wire) else {
            return;
        };
        let (asks, learned) = (exchanges.asks(mono), exchanges.reads(moment(mono)));
        let next = exchanges.next_ns();
        if asks {
            self.send(wire, 0, Msg::ClockAsked(mono));
        }
        if let Some(learned) = learned {
            self.has_learned(slot, wire, learned);
        }
        let at = self.hosts[host].true_time(self.now, next);
        self.at(at, Ev::Clock(slot, life, wire));
    }

    /// psched answers.
    pub fn exchange_answered(&mut self, slot: usize, wire: WireId, exchange: Exchange) {
        let mono = self.mono(self.slots[slot].host);
        let proc = self.slots[slot].proc.as_mut();
        let exchanges = proc.and_then(|proc| proc.exchanges.as_mut());
        let Some((exchanges, ..)) = exchanges.filter(|of| of.1 == wire) else { return };
        self.counts.add("clock exchanges");
        if let Some(learned) = exchanges.answered(exchange, moment(mono)) {
            self.has_learned(slot, wire, learned);
        }
    }

    fn has_learned(&mut self, slot: usize, wire: WireId, learned: Learned) {
        self.check_clock(slot);
        if let Some(news) = learned.news {
            let notes = Msg::Clock(news);
            self.send(wire, 0, notes);
        }
        self.apinit_learns(slot, Event::Clock(learned.reading));
        let now = self.now;
        if let Some(proc) = &mut self.slots[slot].proc {
            let boots = proc.exchanges.as_ref().map_or(0, |(.., boots)| *boots);
            proc.error_before = proc.reading.map_or(u64::MAX, |(before, ..)| before.error_ns);
            proc.reading = Some((learned.reading, now, boots));
        }
        self.check_clock(slot);
    }

    /// psched is asked for its clock. It answers at once, whatever its loop does.
    pub fn clock_asked(&mut self, wire: WireId, asked_ns: u64) {
        let told_ns = self.mono(0);
        let exchange = Exchange { asked_ns, received_ns: told_ns, told_ns };
        self.send(wire, 1, Msg::ClockAnswered(exchange));
    }

    /// psched is told what an apinit knows of its clock.
    pub fn clock_told(&mut self, link: LinkId, clock: ClockTold) {
        let Some(slot) = self.apinit_of(link) else { return };
        let full = self.psched.as_ref().is_none_or(|psched| psched.driver.is_full());
        if !full {
            self.around.clocks.insert(link, clock);
        }
        let roll_out = self.slots[slot].roll_out.clone();
        self.psched_learns(PschedEvent::Noted { link, notes: Vec::new(), roll_out, clock });
    }
}
