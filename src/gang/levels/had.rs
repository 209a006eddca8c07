//! What one gang has had, how it waits, and what place in the order of turns comes of that.

use super::{Apid, Rules, Turn, at, ns, share};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How soon it is looked again whether one has left its level of whom plans say what it has: the first look comes
/// too soon, for it does not run all the time.
const TOLD_MIN: u64 = 50_000_000;

/// What a gang has had, and how it waits. Times in nanoseconds on psched's monotonic clock, which may lie
/// before its zero.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct ServiceAccount {
    /// What it has had is told by others: by plans that have floors.
    pub(super) told: bool,
    /// The place of its user among the users of the domain, in order of what they have had; all 0 without shares.
    pub(super) rank: u32,
    pub(super) weight: u32,
    /// Its share of all processors, in millionths.
    pub(super) width: u64,
    /// What a second counts for, in millionths: less for who is narrow, where width counts.
    pub(super) counts: u64,
    /// Time had until `at`, and what it has still to pay then.
    pub(super) attained: u64,
    pub(super) owes: u64,
    pub(super) at: i64,
    pub(super) runs: bool,
    /// Its place was given to it by a decision, and it has not run there yet.
    pub(super) arrived: bool,
    /// It is held, or on its way.
    pub(super) away: bool,
    pub(super) level: usize,
    pub(super) entered: i64,
    /// Since when it does not run.
    pub(super) stopped: i64,
    pub(super) aged: bool,
    /// Until when it counts as aged, or comes first, once it runs.
    pub(super) aged_until: i64,
    pub(super) first_until: i64,
}

impl ServiceAccount {
    /// Brings what it has had and owes up to then.
    pub(super) fn settle(&mut self, now: i64) {
        let time = u64::try_from(now.saturating_sub(self.at)).unwrap_or(0);
        self.at = self.at.max(now);
        if self.runs && !self.told {
            let pays = self.owes.min(time);
            self.owes -= pays;
            self.attained = self.attained.saturating_add(time - pays);
        }
    }

    /// From now on what it has had is told by others, or it is not.
    pub(super) fn set_told(&mut self, told: bool, now: i64) {
        if self.told == told {
            return;
        }
        self.settle(now);
        (self.told, self.rank) = (told, 0);
        if told {
            (self.owes, self.arrived) = (0, false);
        }
    }

    /// It has had so much, as levels count.
    fn has_had(&self, bound: u64) -> bool {
        // (As for most of all gangs: nobody multiplies by 1 a thousand times.)
        if self.counts == 1_000_000 && self.weight == 1 {
            return self.attained >= bound;
        }
        let per_second = u128::from(self.weight) * 1_000_000;
        u128::from(self.attained) * u128::from(self.counts) >= u128::from(bound) * per_second
    }

    /// How much it has had when it has had so much as levels count.
    fn needs(&self, bound: u64) -> u64 {
        if self.counts == 1_000_000 && self.weight == 1 {
            return bound;
        }
        let time = u128::from(bound) * u128::from(self.weight) * 1_000_000;
        let time = time.div_ceil(u128::from(self.counts.max(1)));
        u64::try_from(time).unwrap_or(u64::MAX)
    }

    /// It has had enough for this level: since when. (Nobody need have looked then.)
    fn enter(&mut self, level: usize, rules: &Rules, now: i64) {
        let bound = level.checked_sub(1).and_then(|below| rules.bounds.get(below));
        let over = bound.map_or(0, |bound| self.attained.saturating_sub(self.needs(ns(*bound))));
        let had_all = if self.runs { now } else { self.stopped };
        self.entered = had_all.saturating_sub(at(over)).max(self.entered);
        self.level = level;
    }

    fn pays(&self) -> bool {
        self.arrived || self.runs && self.owes > 0
    }

    pub(super) fn waited(&self, now: i64) -> u64 {
        if self.runs { 0 } else { u64::try_from(now.saturating_sub(self.stopped)).unwrap_or(0) }
    }

    /// After what wait it is aged.
    pub(super) fn ages(&self, rules: &Rules) -> u64 {
        let share = share(self.attained, rules.aging_share);
        ns(rules.aging_after).saturating_add(share).saturating_add(1)
    }

    /// It is at the level of what it has had by then.
    pub(super) fn levels(&mut self, rules: &Rules, now: i64) {
        self.settle(now);
        let level = rules.bounds.iter().take_while(|bound| self.has_had(ns(**bound))).count();
        if level != self.level {
            self.enter(level, rules, now);
        }
    }

    /// Its place in the order, and its turn.
    pub(super) fn turn(&mut self, apid: Apid, rules: &Rules, now: i64) -> (Place, Turn) {
        self.levels(rules, now);
        let waited = self.waited(now);
        match self.runs {
            true if self.aged && self.aged_until <= now => self.aged = false,
            false if waited >= self.ages(rules) => self.aged = true,
            _ => {}
        }
        let turn = Turn {
            apid,
            level: self.level,
            pays: self.pays(),
            attained: Duration::from_nanos(self.attained),
            waited: Duration::from_nanos(waited),
            runs: self.runs,
        };
        (Place::of(self, rules, now, apid), turn)
    }

    /// In how many nanoseconds one that runs is passed by one who waits, if nothing happens until then; or may
    /// be.
    pub(super) fn passed(
        &self,
        apid: Apid,
        rules: &Rules,
        waiting: &[Place],
        now: i64,
    ) -> Option<u64> {
        let left =
            |until: i64| u64::try_from(until.saturating_sub(now)).ok().filter(|left| *left > 0);
        let aged = Some(self.aged_until).filter(|_| self.aged).and_then(left);
        let before = Place::of(self, rules, now, apid);
        let behind = &waiting[waiting.partition_point(|place| *place < before)..];
        let passes = |had: &ServiceAccount| {
            behind.first().is_some_and(|first| *first < Place::of(had, rules, now, apid))
        };
        let paid = ServiceAccount { owes: 0, arrived: false, ..*self };
        let leaves = || {
            (self.level + 1..).zip(rules.bounds.iter().skip(self.level)).find_map(
                |(level, bound)| {
                    let left = self.needs(ns(*bound)).saturating_sub(self.attained);
                    // (Of one that does not run all the time it is the first moment at which that may be.)
                    let least = if self.told { TOLD_MIN } else { 1 };
                    let after = self.owes.saturating_add(left).max(least);
                    let had =
                        ServiceAccount { level, entered: now.saturating_add(at(after)), ..paid };
                    // (With floors its place among those of its user depends on its level.)
                    (self.told || passes(&had)).then_some(after)
                },
            )
        };
        let moves = match self.pays() && passes(&paid) {
            true => Some(self.owes.max(1)),
            false => leaves(),
        };
        left(self.first_until).into_iter().chain(aged).chain(moves).min()
    }

    fn overdue(&self, now: i64, rules: &Rules) -> bool {
        now < self.first_until || self.waited(now) >= ns(rules.longest_wait)
    }
}

/// A place in the order of turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place(pub(super) u8, pub(super) u32, pub(super) u8, pub(super) i64, pub(super) Apid);

impl Place {
    pub(super) fn of(had: &ServiceAccount, rules: &Rules, now: i64, apid: Apid) -> Place {
        let level = if had.aged { had.level.min(rules.aging_level) } else { had.level };
        let sticky = if had.runs { at(ns(rules.stickiness)) } else { 0 };
        let entered = had.entered.saturating_sub(sticky);
        if had.pays() {
            return Place(0, 0, 0, entered, apid);
        }
        if had.overdue(now, rules) {
            // Who leads by that goes on; then who has waited longest.
            return Place(1, 0, u8::from(!had.runs), had.stopped, apid);
        }
        // (Who is always earlier would have every turn.)
        let early = match had.level == rules.bounds.len() {
            true => ns(rules.wide_first) / 1_000_000 * had.width,
            false => 0,
        };
        Place(2, had.rank, level as u8, entered.saturating_sub(at(early)), apid)
    }

    /// Whether it is one of the last level, by rules: among those of its user, and for no other reason.
    pub fn is_of_last_level(&self, rules: &Rules) -> bool {
        self.0 == 2 && usize::from(self.2) == rules.bounds.len()
    }

    /// The place of a posting that waits since then, by the rank of its user.
    pub fn of_new(apid: Apid, waited: Duration, rank: u32, rules: &Rules, now_ns: u64) -> Place {
        let since = at(now_ns).saturating_sub(at(ns(waited)));
        if waited >= rules.longest_wait {
            return Place(1, 0, 1, since, apid);
        }
        Place(2, rank, 0, since, apid)
    }

    /// That of one who is on its way to its place.
    pub fn of_coming(apid: Apid) -> Place {
        Place(0, 0, 0, i64::MIN, apid)
    }
}
