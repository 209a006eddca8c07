//! How changes of party went, as the nodes measured them.
//!
//! # Problem
//! Whether turns cost little is a question about thousands of changes on each of many nodes; and how
//! long a gang ran in part is known to none of them: each saw only its own part of it.
//!
//! # Approach
//! For each apinit counts and [`Histogram`]s, of all the latest changes one ring. For each application
//! that is on several apinits it is put together how long it ran on some and not on others ([`parts`]).
//!
//! Nothing of this is on record: it is about this start of psched.

mod histogram;
mod parts;

pub use histogram::Histogram;
pub use parts::Partial;

use crate::apteam::protocol::turns::{Switch, Switches};
use crate::apteam::{Apid, Key};
use crate::machine::Nid;
use parts::Parts;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Changes that are kept one by one: some seconds of a thousand apinits, an hour of a few.
const LATEST_MAX: usize = 16_384;

/// The changes of one apinit, or of several.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Figures {
    /// Those that were told one by one.
    pub switches: u64,
    /// Those that were not.
    pub left_out: u64,
    /// Groups that were not known to be frozen when the incoming ones were let run.
    pub not_yet_frozen: u64,
    /// Nanoseconds until the outgoing gangs were frozen, where there were any.
    pub freeze: Histogram,
    /// Nanoseconds from the begin of that until the incoming ones ran, where one gang followed another.
    pub gap: Histogram,
    /// Nanoseconds by which a change of a plan began too late, or too early.
    pub skew: Histogram,
    /// Nanoseconds until memory had been brought in, where some had to be. (That is in no gap.)
    pub bringing: Histogram,
    /// So much of it, in bytes.
    pub brought: u64,
}

impl Figures {
    fn take(&mut self, switch: &Switch) {
        self.switches = self.switches.saturating_add(1);
        self.not_yet_frozen = self.not_yet_frozen.saturating_add(switch.not_yet_frozen.into());
        if switch.brought > 0 {
            self.bringing.add(switch.gap_ns);
            self.brought = self.brought.saturating_add(switch.brought);
            // The change that it came with is told beside it.
            return;
        }
        if !switch.stopped.is_empty() {
            self.freeze.add(switch.freeze_ns);
            if !switch.started.is_empty() {
                self.gap.add(switch.gap_ns);
            }
        }
        if switch.generation > 0 {
            self.skew.add(switch.began_ns.abs_diff(switch.due_ns));
        }
    }

    /// All of another's too.
    pub fn merge(&mut self, other: &Figures) {
        self.switches = self.switches.saturating_add(other.switches);
        self.left_out = self.left_out.saturating_add(other.left_out);
        self.not_yet_frozen = self.not_yet_frozen.saturating_add(other.not_yet_frozen);
        self.freeze.merge(&other.freeze);
        self.gap.merge(&other.gap);
        self.skew.merge(&other.skew);
        self.bringing.merge(&other.bringing);
        self.brought = self.brought.saturating_add(other.brought);
    }
}

/// A change, and where: the apinit by the lowest of its NIDs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latest {
    /// The apinit.
    pub apinit: Nid,
    /// The change.
    pub switch: Switch,
}

/// Changes that a report may say it left out.
const LEFT_OUT_MAX: u64 = 1 << 20;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Application {
    parts: Parts,
    /// How long it took at its latest two starts on each apinit to bring its memory in, in nanoseconds.
    bringing: BTreeMap<Nid, [u64; 2]>,
    /// Bytes, by node.
    peaks: BTreeMap<Nid, u64>,
}

/// What has been measured.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Measured {
    apinits: BTreeMap<Nid, Figures>,
    latest: VecDeque<Latest>,
    applications: BTreeMap<Apid, Application>,
}

impl Measured {
    /// What an apinit tells. `apinits` is on how many of them an application is: 0 if it is not
    /// known, not in this incarnation, or not on this apinit. `touch`: whether an apinit is in
    /// touch with psched.
    pub(super) fn take(
        &mut self,
        apinit: Nid,
        told: Switches,
        apinits: impl Fn(Key) -> usize,
        touch: impl Fn(Nid) -> bool,
    ) {
        let figures = self.apinits.entry(apinit).or_default();
        // (In the time between two reports: more can't be true, and would make the sum of all hosts
        // worthless.)
        let left_out = told.left_out.min(LEFT_OUT_MAX);
        figures.left_out = figures.left_out.saturating_add(left_out);
        if let Some(first) = told.switches.first().filter(|_| told.left_out > 0) {
            let applications = self.applications.values_mut();
            applications.for_each(|of| of.parts.left_out(apinit, first.began_ns));
        }
        let mut changed = BTreeSet::new();
        for mut switch in told.switches {
            figures.take(&switch);
            // (An apinit may name thousands that are not there: these are not kept.)
            for gang in [&mut switch.started, &mut switch.stopped] {
                let mut named = BTreeSet::new();
                gang.retain(|key| apinits(*key) > 0 && named.insert(*key));
            }
            for key in &switch.started {
                let application = self.applications.entry(key.apid).or_default();
                let bringing = application.bringing.entry(apinit).or_default();
                *bringing = [bringing[1], if switch.brought > 0 { switch.gap_ns } else { 0 }];
            }
            let stopped = switch.stopped.iter().map(|key| (key, switch.freeze_ns, false));
            let started = switch.started.iter().map(|key| (key, switch.gap_ns, true));
            for (key, after_ns, runs) in stopped.chain(started).filter(|(k, ..)| apinits(**k) > 1) {
                let parts = &mut self.applications.entry(key.apid).or_default().parts;
                parts.changed(apinit, switch.began_ns.saturating_add(after_ns), runs);
                changed.insert(*key);
            }
            if self.latest.len() >= LATEST_MAX {
                self.latest.pop_front();
            }
            self.latest.push_back(Latest { apinit, switch });
        }
        for key in changed {
            if let Some(application) = self.applications.get_mut(&key.apid) {
                application.parts.count(apinits(key), &touch);
            }
        }
        for (key, nid, bytes) in told.peaks {
            if apinits(key) > 0 {
                let peaks = &mut self.applications.entry(key.apid).or_default().peaks;
                let peak = peaks.entry(nid).or_default();
                *peak = bytes.max(*peak);
            }
        }
    }

    /// An application has ended.
    pub(super) fn forget(&mut self, apid: Apid) {
        self.applications.remove(&apid);
    }

    /// Nodes have been taken out of the configuration.
    pub(super) fn keep(&mut self, still: impl Fn(Nid) -> bool) {
        self.apinits.retain(|nid, _| still(*nid));
    }

    /// Each apinit that has told of changes, by the lowest of its NIDs.
    pub fn apinits(&self) -> impl Iterator<Item = (Nid, &Figures)> {
        self.apinits.iter().map(|(nid, figures)| (*nid, figures))
    }

    /// The latest changes of all apinits, in the order in which they were told.
    pub fn latest(&self) -> impl ExactSizeIterator<Item = &Latest> {
        self.latest.iter()
    }

    /// How long it took in nanoseconds to bring the memory of an application in at its latest two starts
    /// on each apinit, where it took longest; 0: it was there. (Two, because one whose turn was over
    /// before its memory was in does not wait for it the next time.)
    pub fn bringing(&self, apid: Apid) -> u64 {
        let all = self.applications.get(&apid).into_iter().flat_map(|a| a.bringing.values());
        all.flatten().max().copied().unwrap_or(0)
    }

    /// How an application that runs has run in part.
    pub fn partial(&self, apid: Apid) -> Partial {
        self.applications.get(&apid).map(|a| a.parts.partial).unwrap_or_default()
    }

    /// The most memory in bytes that an application that runs has had on each node so far; nothing
    /// where it is not measured.
    pub fn peaks(&self, apid: Apid) -> impl Iterator<Item = (Nid, u64)> {
        let peaks = self.applications.get(&apid).into_iter().flat_map(|a| &a.peaks);
        peaks.map(|(nid, bytes)| (*nid, *bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apteam::Incarnation;

    const MS: u64 = 1_000_000;

    fn key(apid: u64) -> Key {
        Key { apid: Apid(apid), incarnation: Incarnation(1) }
    }

    /// 1 stops, 2 starts: due at `due_ms`, begun after `late_us`, the gap as long as 300 us.
    fn switch(due_ms: u64, late_us: u64) -> Switch {
        Switch {
            generation: 4,
            due_ns: due_ms * MS,
            began_ns: due_ms * MS + late_us * 1_000,
            freeze_ns: 200_000,
            gap_ns: 300_000,
            not_yet_frozen: 0,
            stopped: vec![key(1)],
            started: vec![key(2)],
            brought: 0,
        }
    }

    fn told(switches: Vec<Switch>) -> Switches {
        Switches { switches, ..Switches::default() }
    }

    fn close(value: Option<u64>, to: u64) -> bool {
        value.is_some_and(|value| value.abs_diff(to) <= to / 16)
    }

    #[test]
    fn each_apinit_has_its_figures() {
        let mut measured = Measured::default();
        let slow = Switch { not_yet_frozen: 2, freeze_ns: 9 * MS, ..switch(99, 50) };
        let mut switches: Vec<Switch> = (1..99).map(|n| switch(n, 50)).collect();
        switches.push(slow);
        // Of no plan: no skew. Nobody goes, or nobody comes: no gap.
        switches.push(Switch { generation: 0, due_ns: 0, stopped: vec![], ..switch(100, 0) });
        switches.push(Switch { started: vec![], ..switch(101, 50) });
        measured.take(Nid(4), Switches { left_out: 3, ..told(switches) }, |_| 1, |_| true);
        let untold = Switches { left_out: u64::MAX, ..told(vec![switch(1, 800)]) };
        measured.take(Nid(0), untold, |_| 1, |_| true);
        let all: Vec<(Nid, &Figures)> = measured.apinits().collect();
        assert_eq!(all.iter().map(|(nid, _)| nid.0).collect::<Vec<_>>(), [0, 4]);
        assert_eq!(all[0].1.left_out, LEFT_OUT_MAX);
        let figures = all[1].1;
        assert_eq!((figures.switches, figures.left_out, figures.not_yet_frozen), (101, 3, 2));
        let counts = [&figures.freeze, &figures.gap, &figures.skew].map(Histogram::count);
        assert_eq!(counts, [100, 99, 100]);
        assert!(close(figures.freeze.quantile(500), 200_000));
        assert!(close(figures.freeze.quantile(990), 200_000));
        assert!(close(figures.freeze.quantile(1_000), 9 * MS));
        assert!(close(figures.gap.quantile(500), 300_000));
        assert!(close(figures.skew.quantile(500), 50_000));
        let mut both = figures.clone();
        both.merge(all[0].1);
        assert_eq!((both.switches, both.skew.count()), (102, 101));
        assert!(close(both.skew.quantile(1_000), 800_000));
        measured.keep(|nid| nid == Nid(0));
        assert_eq!(measured.apinits().count(), 1);
    }

    #[test]
    fn what_is_brought_in_has_figures_of_its_own() {
        let mut measured = Measured::default();
        let outgoing = Switch { started: vec![], ..switch(1, 50) };
        let comes = Switch { stopped: vec![], gap_ns: 80 * MS, brought: 3 << 20, ..switch(1, 50) };
        measured.take(Nid(0), told(vec![outgoing, comes, switch(2, 50)]), |_| 1, |_| true);
        let mut twice = Figures::default();
        for (_, figures) in measured.apinits().chain(measured.apinits()) {
            twice.merge(figures);
        }
        // No gap and no skew of it: the change that it belongs to has them.
        let counts = [&twice.freeze, &twice.gap, &twice.skew, &twice.bringing];
        assert_eq!(counts.map(Histogram::count), [4, 2, 4, 2]);
        assert!(close(twice.bringing.quantile(500), 80 * MS));
        assert_eq!((twice.switches, twice.brought), (6, 6 << 20));
    }

    #[test]
    fn a_gang_runs_in_part_where_not_all_let_it_run() {
        let mut measured = Measured::default();
        let on = |key: Key| if key.apid == Apid(2) { 3 } else { 1 };
        let took = |measured: &Measured| {
            let Partial { total, times, longest } = measured.partial(Apid(2));
            (total.as_micros(), times, longest.as_micros())
        };
        // At 20 the other one's turn comes, on all of them at once.
        let back = || Switch {
            freeze_ns: 0,
            stopped: vec![key(2)],
            started: vec![key(1)],
            ..switch(20, 0)
        };
        let of = |late_us| told(vec![switch(10, late_us), back()]);
        measured.take(Nid(0), of(500), on, |_| true);
        measured.take(Nid(1), of(100), on, |_| true);
        assert_eq!(took(&measured), (0, 0, 0));
        measured.take(Nid(2), of(300), on, |_| true);
        assert_eq!(took(&measured), (400, 1, 400));
        // One misses a turn of nine milliseconds and seven tenths.
        for nid in [0, 1, 2] {
            let all = vec![switch(30, 0), Switch { due_ns: 40 * MS, began_ns: 40 * MS, ..back() }];
            let missed = told(if nid == 1 { vec![] } else { all });
            measured.take(Nid(nid), missed, on, |_| true);
        }
        for nid in [0, 1, 2] {
            measured.take(Nid(nid), told(vec![switch(50, 0)]), on, |_| true);
        }
        assert_eq!(took(&measured), (10_100, 2, 9_700));
        measured.forget(Apid(2));
        assert_eq!(took(&measured), (0, 0, 0));
    }

    #[test]
    fn all_of_it_is_bounded() {
        let mut measured = Measured::default();
        for round in 0..70 {
            let switches = (0..256).map(|n| switch(round * 256 + n, 1)).collect();
            measured.take(Nid(0), told(switches), |_| 2, |_| true);
        }
        assert_eq!(measured.latest().len(), LATEST_MAX);
        let last = measured.latest().last().map_or(0, |latest| latest.switch.due_ns);
        assert_eq!(last, (70 * 256 - 1) * MS);
    }

    #[test]
    fn peaks_are_of_applications_that_run() {
        let mut measured = Measured::default();
        let on = |key: Key| usize::from(key.apid == Apid(1));
        let peaks = |nid, bytes| Switches {
            peaks: vec![(key(1), Nid(nid), bytes), (key(9), Nid(nid), bytes)],
            ..Switches::default()
        };
        measured.take(Nid(0), peaks(0, 500), on, |_| true);
        measured.take(Nid(0), peaks(0, 400), on, |_| true);
        measured.take(Nid(2), peaks(2, 70), on, |_| true);
        assert_eq!(measured.peaks(Apid(1)).collect::<Vec<_>>(), [(Nid(0), 500), (Nid(2), 70)]);
        assert_eq!(measured.peaks(Apid(9)).count(), 0);
    }
}
