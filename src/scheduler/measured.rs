//! How changes of party went, as the nodes measured them.
//!
//! # Problem
//! Whether turns cost little is a question about thousands of changes on each of many nodes; and how
//! long a gang ran in part is known to none of them: each saw only its own start of it.
//!
//! # Approach
//! For each apinit counts and [`Histogram`]s, of all the latest changes one ring. For each application
//! that is on several apinits: its starts that have one generation and were due at one time are one
//! start of the gang, and between the first and the last of them it ran in part. A start is kept until
//! all of its apinits have told theirs; what comes after [`STARTS_MAX`] later ones is not counted.
//!
//! Nothing of this is on record: it is about this start of psched.

mod histogram;

pub use histogram::Histogram;

use crate::apteam::talk::turns::{Switch, Switches};
use crate::apteam::{Apid, Key};
use crate::machine::Nid;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Changes that are kept one by one: some seconds of a thousand apinits, an hour of a few.
const LATEST_MAX: usize = 16_384;
/// Starts of one application that are kept because not all of its apinits have told theirs: they do
/// each second, in which there are a hundred at the shortest slices.
const STARTS_MAX: usize = 128;

/// The changes of one apinit, or of several.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
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

/// How a gang that is on several apinits ran on some of them and not on others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Partial {
    /// In all.
    pub total: Duration,
    /// In how many of its starts.
    pub times: u64,
    /// At most.
    pub longest: Duration,
}

/// A change, and where: the apinit by the lowest of its NIDs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Latest {
    /// The apinit.
    pub apinit: Nid,
    /// The change.
    pub switch: Switch,
}

/// A start of a gang by a plan, of which not all of its apinits have told theirs.
#[derive(Clone, Copy, Debug)]
struct Start {
    generation: u64,
    due_ns: u64,
    first_ns: u64,
    last_ns: u64,
    /// Apinits that have not told theirs.
    left: usize,
}

#[derive(Clone, Debug, Default)]
struct Application {
    partial: Partial,
    starts: VecDeque<Start>,
    /// How long it took at its latest two starts on each apinit to bring its memory in, in nanoseconds.
    bringing: BTreeMap<Nid, [u64; 2]>,
    /// Bytes, by node.
    peaks: BTreeMap<Nid, u64>,
}

/// What has been measured.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    apinits: BTreeMap<Nid, Figures>,
    latest: VecDeque<Latest>,
    applications: BTreeMap<Apid, Application>,
}

impl Measured {
    /// What an apinit tells. `apinits` is on how many of them an application is: 0 if it is not known,
    /// or not in this incarnation.
    pub(super) fn take(&mut self, apinit: Nid, told: Switches, apinits: impl Fn(Key) -> usize) {
        let figures = self.apinits.entry(apinit).or_default();
        figures.left_out = figures.left_out.saturating_add(told.left_out);
        for switch in told.switches {
            figures.take(&switch);
            for key in switch.started.iter().filter(|key| apinits(**key) > 0) {
                let application = self.applications.entry(key.apid).or_default();
                let bringing = application.bringing.entry(apinit).or_default();
                *bringing = [bringing[1], if switch.brought > 0 { switch.gap_ns } else { 0 }];
            }
            if switch.generation > 0 {
                for key in &switch.started {
                    let apinits = apinits(*key);
                    if apinits > 1 {
                        self.applications.entry(key.apid).or_default().started(&switch, apinits);
                    }
                }
            }
            if self.latest.len() >= LATEST_MAX {
                self.latest.pop_front();
            }
            self.latest.push_back(Latest { apinit, switch });
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
        self.applications.get(&apid).map(|a| a.partial).unwrap_or_default()
    }

    /// The most memory in bytes that an application that runs has had on each node so far; nothing
    /// where it is not measured.
    pub fn peaks(&self, apid: Apid) -> impl Iterator<Item = (Nid, u64)> {
        let peaks = self.applications.get(&apid).into_iter().flat_map(|a| &a.peaks);
        peaks.map(|(nid, bytes)| (*nid, *bytes))
    }
}

impl Application {
    /// One of its apinits has let it run.
    fn started(&mut self, switch: &Switch, apinits: usize) {
        let (generation, due_ns) = (switch.generation, switch.due_ns);
        let at_ns = switch.began_ns.saturating_add(switch.gap_ns);
        let same = |start: &Start| start.generation == generation && start.due_ns == due_ns;
        let Some(number) = self.starts.iter().position(same) else {
            if self.starts.len() >= STARTS_MAX {
                self.starts.pop_front();
            }
            let (first_ns, last_ns, left) = (at_ns, at_ns, apinits - 1);
            self.starts.push_back(Start { generation, due_ns, first_ns, last_ns, left });
            return;
        };
        let start = &mut self.starts[number];
        let before = start.last_ns - start.first_ns;
        start.first_ns = start.first_ns.min(at_ns);
        start.last_ns = start.last_ns.max(at_ns);
        let part = start.last_ns - start.first_ns;
        start.left = start.left.saturating_sub(1);
        if start.left == 0 {
            self.starts.remove(number);
        }
        let partial = &mut self.partial;
        partial.total = partial.total.saturating_add(Duration::from_nanos(part - before));
        partial.longest = partial.longest.max(Duration::from_nanos(part));
        if before == 0 && part > 0 {
            partial.times = partial.times.saturating_add(1);
        }
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
        measured.take(Nid(4), Switches { left_out: 3, ..told(switches) }, |_| 1);
        measured.take(Nid(0), told(vec![switch(1, 800)]), |_| 1);
        let all: Vec<(Nid, &Figures)> = measured.apinits().collect();
        assert_eq!(all.iter().map(|(nid, _)| nid.0).collect::<Vec<_>>(), [0, 4]);
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
        measured.take(Nid(0), told(vec![outgoing, comes, switch(2, 50)]), |_| 1);
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
    fn a_gang_runs_in_part_between_its_first_and_its_last_start() {
        let mut measured = Measured::default();
        let on = |key: Key| if key.apid == Apid(2) { 3 } else { 1 };
        let took = |measured: &Measured| {
            let Partial { total, times, longest } = measured.partial(Apid(2));
            (total.as_micros(), times, longest.as_micros())
        };
        measured.take(Nid(0), told(vec![switch(10, 500), switch(30, 0)]), on);
        assert_eq!(took(&measured), (0, 0, 0));
        // The middle one is told last, and adds nothing.
        measured.take(Nid(1), told(vec![switch(10, 100)]), on);
        assert_eq!(took(&measured), (400, 1, 400));
        measured.take(Nid(2), told(vec![switch(10, 300), switch(30, 0)]), on);
        assert_eq!(took(&measured), (400, 1, 400));
        // All three of the first start are known; of the second one is missing.
        assert_eq!(measured.applications[&Apid(2)].starts.len(), 1);
        measured.take(Nid(1), told(vec![switch(30, 1_000)]), on);
        assert_eq!(took(&measured), (1_400, 2, 1_000));
        assert!(measured.applications[&Apid(2)].starts.is_empty());
        // Of another plan, and of none: not the same start.
        let other = Switch { generation: 5, ..switch(50, 0) };
        let none = Switch { generation: 0, ..switch(50, 700) };
        measured.take(Nid(0), told(vec![switch(50, 900), other, none]), on);
        assert_eq!(took(&measured), (1_400, 2, 1_000));
        measured.forget(Apid(2));
        assert_eq!(took(&measured), (0, 0, 0));
    }

    #[test]
    fn all_of_it_is_bounded() {
        let mut measured = Measured::default();
        for round in 0..70 {
            let switches = (0..256).map(|n| switch(round * 256 + n, 1)).collect();
            measured.take(Nid(0), told(switches), |_| 2);
        }
        assert_eq!(measured.latest().len(), LATEST_MAX);
        let last = measured.latest().last().map_or(0, |latest| latest.switch.due_ns);
        assert_eq!(last, (70 * 256 - 1) * MS);
        assert_eq!(measured.applications[&Apid(2)].starts.len(), STARTS_MAX);
    }

    #[test]
    fn peaks_are_of_applications_that_run() {
        let mut measured = Measured::default();
        let on = |key: Key| usize::from(key.apid == Apid(1));
        let peaks = |nid, bytes| Switches {
            peaks: vec![(key(1), Nid(nid), bytes), (key(9), Nid(nid), bytes)],
            ..Switches::default()
        };
        measured.take(Nid(0), peaks(0, 500), on);
        measured.take(Nid(0), peaks(0, 400), on);
        measured.take(Nid(2), peaks(2, 70), on);
        assert_eq!(measured.peaks(Apid(1)).collect::<Vec<_>>(), [(Nid(0), 500), (Nid(2), 70)]);
        assert_eq!(measured.peaks(Apid(9)).count(), 0);
    }
}
