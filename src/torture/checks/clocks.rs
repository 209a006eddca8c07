//! What is claimed of clocks: the error of a host's difference to psched's clock, and the time that a plan has
//! until it begins.

use crate::apinit::decide::clock::HELD_NS;
use crate::apteam::protocol::node::Command;
use crate::psched::decide::{Effect, LinkId};
use crate::torture::wire::Who;
use crate::torture::world::World;
use crate::torture::{MS, US};
use std::collections::BTreeMap;

/// An error beyond this delays no plan further.
const ERROR_MAX: u64 = 1_000 * MS;
/// What the rounding of times adds.
const ROUNDED: u64 = US;

impl World {
    /// What psched's clock is ahead of that of an apinit's host.
    fn truly_ahead(&self, slot: usize) -> i128 {
        i128::from(self.mono(0)) - i128::from(self.mono(self.slots[slot].host))
    }

    /// By how much an apinit may be wrong about psched's clock now, as it claims; none: it claims nothing, for
    /// it has read it too long ago.
    pub fn clock_error(&self, slot: usize) -> Option<u64> {
        if self.slots[slot].host == 0 {
            return Some(0);
        }
        let (reading, at, boots) = self.slots[slot].proc.as_ref()?.reading?;
        // (Its own clock measures the half second, and a host that was started anew has another clock.)
        let held = self.now - at <= HELD_NS - HELD_NS / 1_000 && boots == self.hosts[0].boots;
        held.then_some(reading.error_ns)
    }

    /// The difference by which an apinit puts plans on its own clock is right within the error that it claims,
    /// and so is what psched was told.
    pub fn check_clock(&mut self, slot: usize) {
        let ahead = self.truly_ahead(slot);
        let own = self.clock_error(slot).and_then(|error| {
            let agent = self.slots[slot].proc.as_ref()?.agent()?;
            Some((agent.clock_ahead_ns(), error))
        });
        let linked = self.linked(slot);
        let told = linked.and_then(|link| self.scheduler()?.clock_of(link));
        let told = told.filter(|told| told.error_ns > 0).map(|told| {
            let (ahead, error) = told.at(self.mono(0));
            (i128::from(ahead), error)
        });
        for (whose, claim) in [("an apinit", own), ("psched", told)] {
            let Some((claimed, error)) = claim else { continue };
            let off = (claimed - ahead).unsigned_abs();
            if off > u128::from(error + ROUNDED) {
                let text = format!(
                    "{whose} is wrong by {} us about the clock of apinit {slot}, and claims at most {} us",
                    off / u128::from(US),
                    error / US
                );
                self.checks.broken(text);
            }
        }
    }

    /// psched's link to an apinit that it has welcomed, while the link stands.
    fn linked(&self, slot: usize) -> Option<LinkId> {
        let (wire, welcomed) = self.slots[slot].proc.as_ref()?.link?;
        match self.wires.get(&wire)?.ends[1] {
            Who::PschedLink(link) if welcomed => Some(link),
            _ => None,
        }
    }

    /// A plan for several apinits begins no earlier than its lead and the worst error that one of them
    /// has told.
    pub fn check_leads(&mut self, effects: &[Effect]) {
        if !self.clocks.on {
            return;
        }
        let mut plans: BTreeMap<u64, (u64, Vec<LinkId>)> = BTreeMap::new();
        for effect in effects {
            let Effect::Command { link, command: Command::Plan(plan) } = effect else { continue };
            if !plan.agreed {
                plans.entry(plan.generation).or_insert((plan.from_ns, Vec::new())).1.push(*link);
            }
        }
        let now = self.mono(0);
        let lead = self.settings.turns.plan_lead.as_nanos() as u64;
        for (generation, (from_ns, links)) in plans {
            let told = links.iter().filter_map(|link| self.around.clocks.get(link));
            let worst = told.map(|told| told.at(now).1).max().unwrap_or(0).min(ERROR_MAX);
            self.counts.add("leads of plans");
            if from_ns < now + lead + worst {
                let text = format!(
                    "plan {generation} begins in {} us: its lead is {} us, and a clock may be wrong by {} us",
                    from_ns.saturating_sub(now) / US,
                    lead / US,
                    worst / US
                );
                self.checks.broken(text);
            }
        }
    }
}
