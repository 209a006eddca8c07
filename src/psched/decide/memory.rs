//! Memory: with how much an application counts once that is measured, and what bringing it in costs.
//!
//! # Problem
//! Few people say how much memory their programs need (`aprun -m`). An application of which nothing is
//! known counts with an equal part of its nodes, which is too much for most and far too little for some:
//! then nodes swap. And where those on a node do not all fit in its memory, each turn begins with
//! bringing memory in, which slices must be long enough for.
//!
//! # Approach
//! Nodes tell how much memory an application has had on each of them at most. One without `-m` counts
//! with more than its share as soon as it has more, and with less only once it has run for [`SETTLED`]:
//!
//! ```text
//!   share of the node   has had      counts with, at first   after a minute of its own
//!                 4G         1G                         4G                          1G
//!                 4G         6G                         6G                          6G
//! ```
//!
//! What it counts with decides who may sit beside it, and with whom it may be in a party. So postings
//! that wait are tried again when it becomes less, and a component is planned anew where a node is
//! crowded, or was. Who has said `-m` counts with that, which its nodes hold it to. Who shares no
//! processor with anybody keeps its share, for its nodes are given to others by processors only.
//!
//! A node also tells how long it took to bring a gang's memory in before it ran. The longest such time of
//! its latest two starts on each apinit is what a start of it costs ([`crate::gang::plan`]).
//!
//! Nothing of this is on record: after a restart of psched its nodes tell it again.

use super::{Effect, LinkId, Now, Scheduler};
use crate::apteam::protocol::node::Hello;
use crate::apteam::protocol::turns::{Switch, Switches};
use crate::apteam::record::Apteam;
use crate::apteam::{Apid, Key};
use crate::gang::plan::LENGTHENED_MAX;
use crate::machine::node_memory::Told;
use crate::machine::{Machine, Nid, NidSet};
use crate::occupancy::Claim;
use crate::variables::units::nanos;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The time that an application has run before less than its share is believed: a program grows at first,
/// while it reads its input, and whoever was put beside it meanwhile would have to make room again.
pub(super) const SETTLED: Duration = Duration::from_secs(60);
/// Between two looks whether it has, at least.
const LOOK: Duration = Duration::from_secs(1);

/// Bytes in steps of a 64th or less, upwards: a program that grows slowly is no new plan at each page.
fn coarse(bytes: u64) -> u64 {
    let step = 1 << bytes.checked_ilog2().unwrap_or(0).saturating_sub(6);
    bytes.checked_next_multiple_of(step).unwrap_or(u64::MAX)
}

/// What a start costs, in powers of two of a millisecond, upwards. One step less than `before` is as
/// before: a time between two of them is no new plan at each start.
fn cost(ns: u64, before: Duration) -> Duration {
    if ns == 0 {
        return Duration::ZERO;
    }
    let ms = ns.div_ceil(1_000_000).next_power_of_two();
    let cost = Duration::from_millis(ms).min(LENGTHENED_MAX);
    if cost == before / 2 { before } else { cost }
}

impl Scheduler {
    /// How changes of party went on the nodes of an apinit, and what memory is there.
    pub(super) fn switched(
        &mut self,
        now: Now,
        link: LinkId,
        mut told: Switches,
        out: &mut Vec<Effect>,
    ) {
        let nids = self.links.get(&link).map_or(&[][..], |l| &l.hello.nids);
        let Some(lowest) = nids.iter().min().copied() else { return };
        let team = |key: &Key| self.teams.get(&key.apid).filter(|team| team.key() == *key);
        let own = NidSet::of(nids);
        let sits = |key: &Key, on: &Nid| team(key).is_some() && self.occupancy.holds(key.apid, *on);
        told.peaks.retain(|(key, nid, _)| own.contains(*nid) && sits(key, nid));
        told.ran.retain(|(key, _)| nids.iter().any(|nid| sits(key, nid)));
        told.idle.retain(|(key, _)| nids.iter().any(|nid| sits(key, nid)));
        let (ran, idle) = (std::mem::take(&mut told.ran), std::mem::take(&mut told.idle));
        // (Many changes of few applications: the nodes of each are looked at once.)
        let changed = told.switches.iter().flat_map(|s| s.started.iter().chain(&s.stopped));
        let mut here: BTreeSet<Key> = changed.filter(|key| team(key).is_some()).copied().collect();
        here.retain(|key| nids.iter().any(|nid| sits(key, nid)));
        here.extend(told.peaks.iter().map(|(key, ..)| *key));
        let of = |switch: &Switch| {
            let apids = switch.started.iter().filter(|key| here.contains(key));
            (apids.map(|key| key.apid).collect::<Vec<_>>(), switch.brought)
        };
        let brought: Vec<_> = told.switches.iter().map(of).collect();
        let started: BTreeSet<Apid> =
            brought.iter().flat_map(|(apids, _)| apids).copied().collect();
        let measured: BTreeSet<Apid> = told.peaks.iter().map(|(key, ..)| key.apid).collect();
        // The first word of somebody's memory: it is looked at again when it has settled.
        let new = |apid: &&Apid| self.measured.peaks(**apid).next().is_none();
        let new: Vec<Apid> = measured.iter().filter(new).copied().collect();
        let apinits =
            |key| team(&key).filter(|_| here.contains(&key)).map_or(0, |team| team.hosts.len());
        self.measured.take(lowest, told, apinits, |nid| self.offered.contains_key(&nid));
        for (key, time) in idle {
            self.schedule.was_idle(key.apid, time);
        }
        for (key, ran) in ran {
            self.turns_ran(now, key.apid, ran);
        }
        for (started, bytes) in brought {
            self.brought_in(&started, bytes, out);
        }
        for apid in started {
            let ns = self.measured.bringing(apid);
            self.schedule.set_cost(apid, |before| cost(ns, before));
        }
        for apid in new {
            self.settling.insert((now.mono_ns, apid));
        }
        let mut frees = self.settle(now);
        for apid in measured {
            frees |= self.count_memory(now, apid);
        }
        if frees {
            self.want_decisions();
        }
    }

    /// Counts those anew that have run for long enough by now.
    pub(super) fn memory_tick(&mut self, now: Now) {
        if self.settle(now) {
            self.want_decisions();
        }
    }

    /// The same; whether that makes room.
    fn settle(&mut self, now: Now) -> bool {
        let mut frees = false;
        while let Some((_, apid)) =
            self.settling.first().copied().filter(|(at, _)| *at <= now.mono_ns)
        {
            self.settling.pop_first();
            let left = SETTLED.saturating_sub(self.attained(apid, now.mono_ns));
            if left.is_zero() {
                frees |= self.count_memory(now, apid);
            } else if self.teams.contains_key(&apid) {
                let again = now.mono_ns.saturating_add(nanos(left.max(LOOK)));
                self.settling.insert((again, apid));
            }
        }
        frees
    }

    /// Counts an application with what is known of its memory. Whether that makes room.
    pub(super) fn count_memory(&mut self, now: Now, apid: Apid) -> bool {
        let by_peak = |team: &&Apteam| team.posting.memory_per_pe.is_none() && team.shares;
        if self.teams.get(&apid).filter(by_peak).is_none() {
            return false;
        }
        let settled = self.attained(apid, now.mono_ns) >= SETTLED;
        let peaks: Vec<(Nid, u64)> = self.measured.peaks(apid).collect();
        let (mut frees, mut news) = (false, false);
        for (nid, peak) in peaks {
            let least = if settled { 0 } else { self.occupancy.share(apid, nid) };
            let bytes = coarse(peak).max(least);
            let Some(counted) = self.occupancy.set_memory(apid, nid, bytes) else { continue };
            frees |= counted.now < counted.before;
            news |= self.schedule.set_memory(apid, counted.at, counted.now);
        }
        if news {
            self.want_decision_for(apid);
        }
        frees
    }

    /// The machine with the memory that hosts have told of nodes for which psched.yaml gives none.
    pub(super) fn with_found(&self, mut machine: Machine) -> Machine {
        for (nid, bytes) in &self.found {
            if let Some(node) = machine.nodes.get_mut(nid).filter(|node| node.memory == 0) {
                node.memory = *bytes;
            }
        }
        machine
    }

    /// An apinit tells what memory its host has: that of its nodes for which psched.yaml gives none is known
    /// from now on, and who sits there counts with his.
    pub(super) fn find_memory(&mut self, now: Now, hello: &Hello) {
        let given = |nid: &Nid| self.configured.nodes.get(nid).is_none_or(|node| node.memory > 0);
        let Some(first) = hello.nids.iter().find(|nid| !given(nid)) else { return };
        if hello.memory == 0 {
            return;
        }
        let host = self.configured.nodes.get(first).map_or("", |node| &node.host);
        let told = Told { cpus: &hello.cpus, banks: &hello.banks, memory: hello.memory };
        let (machine, firsts) = (&self.configured, &self.first_processors);
        let found = self.divisions.of_host(machine, firsts, host, told);
        let new = hello.nids.iter().filter_map(|nid| Some((*nid, *found.get(nid)?)));
        let new: Vec<(Nid, u64)> =
            new.filter(|(nid, bytes)| self.found.get(nid) != Some(bytes)).collect();
        let (mut concerned, mut tight) = (BTreeSet::new(), BTreeSet::new());
        let learned: NidSet = new.iter().map(|(nid, _)| *nid).collect();
        for (nid, bytes) in new {
            self.found.insert(nid, bytes);
            if let Some(node) = self.machine.nodes.get_mut(&nid) {
                node.memory = bytes;
                self.occupancy.learn_memory(nid, bytes);
                let holders = self.occupancy.holders(nid);
                if self.schedule.learn_memory(self.occupancy.line(), nid, bytes) {
                    tight.extend(holders.iter().copied());
                }
                concerned.extend(holders);
            }
        }
        for apid in concerned {
            let Some(team) = self.teams.get(&apid) else { continue };
            let claim: Claim = team.into();
            // (A host after the other tells: nodes that are known are not counted again for each.)
            let mut bytes: BTreeMap<Nid, u64> = BTreeMap::new();
            for place in team.holds().0.iter().filter(|place| learned.contains(place.nid)) {
                let counted = bytes.entry(place.nid).or_default();
                *counted = counted.saturating_add(self.occupancy.memory_of(place, claim));
            }
            for (nid, bytes) in bytes {
                if let Some(counted) = self.occupancy.set_memory(apid, nid, bytes)
                    && self.schedule.set_memory(apid, counted.at, counted.now)
                {
                    tight.insert(apid);
                }
            }
            self.count_memory(now, apid);
        }
        // (Only where not all fit does the memory of a node say who runs when: else a host after the other would have
        // the turns of a wide application made anew.)
        for apid in tight {
            self.schedule.concern(apid);
            self.want_decision_for(apid);
        }
    }

    /// With how many bytes an application counts on each of its nodes whose memory is known.
    pub fn memory(&self, apid: Apid) -> impl Iterator<Item = (Nid, u64)> {
        let line = self.occupancy.line();
        let held = self.occupancy.held(apid).iter().filter(|held| line[held.at].memory > 0);
        held.map(|held| (line[held.at].nid, held.memory))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_counted_in_steps() {
        assert_eq!([0, 1, 127, 128, 129].map(coarse), [0, 1, 127, 128, 130]);
        assert_eq!([1 << 30, (1 << 30) + 1].map(coarse), [1 << 30, (1 << 30) + (1 << 24)]);
        assert_eq!(coarse(u64::MAX), u64::MAX);
        for shift in 0..64 {
            let bytes = 0xfedc_ba98_7654_3210u64 >> shift;
            let counted = coarse(bytes);
            assert!(counted >= bytes && counted - bytes <= bytes / 64, "{bytes}");
            assert_eq!(coarse(counted), counted);
        }
    }

    #[test]
    fn a_cost_changes_when_it_is_another() {
        let ms = Duration::from_millis;
        assert_eq!(cost(0, ms(8)), Duration::ZERO);
        assert_eq!(cost(1, Duration::ZERO), ms(1));
        assert_eq!(cost(5_000_000, Duration::ZERO), ms(8));
        // Around a step: the larger one stays.
        assert_eq!(cost(8_000_001, ms(8)), ms(16));
        assert_eq!(cost(7_999_999, ms(16)), ms(16));
        assert_eq!(cost(4_000_001, ms(16)), ms(16));
        assert_eq!(cost(4_000_000, ms(16)), ms(4));
        assert_eq!(cost(u64::MAX, ms(16)), LENGTHENED_MAX);
    }
}
