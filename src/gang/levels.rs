//! Least attained service: who has had least comes first, in a few levels.
//!
//! # The problem
//!
//! A two-minute run must not wait behind a two-day run, and nobody says in advance which is which. But
//! who has run long so far will run long: of two, the one that has had less is likelier to be over
//! soon. Taken to the letter that makes everybody stop and start all the time, and keeps a long one
//! waiting for as long as short ones come.
//!
//! # The approach
//!
//! *Levels* by the time had: under 60 s, 360 s, 2,160 s, the rest. A gang of a lower level comes before
//! any of a higher one. Within a level it goes by the time of entry, and one that runs counts as having
//! entered hours earlier (*stickiness*): a long gang that runs is stopped only for one that has had less, or
//! that has waited for much longer. The top level is a queue, then.
//!
//! A *wide* gang of the top level finds its processors only when many others give way at once, so it
//! counts as having entered earlier ([`Rules::wide_first`]), in proportion to its width: else wide long ones
//! pay for what everybody else gains.
//! Time had counts a little more the *wider* a gang is ([`Rules::width_exponent`]): what it takes from others
//! while it runs. Much more would keep wide ones waiting.
//!
//! *Ageing* is soft: who has not run for long counts as of a middle level until it has run for a while. It is
//! never among the lowest: a day-old long run must not keep a minute's run waiting. *Longest wait* is hard:
//! who has waited so long comes before everybody.
//!
//! A gang that is started or moved has a *cost* to pay first: its memory comes in. That is time of its
//! processors and none of its own, and while it pays nobody stops it: else it would be paid for nothing.
//!
//! ```text
//!   level          0          1          2           3
//!   time had       < 60 s     < 360 s    < 2,160 s   the rest
//!   in order       who pays   then 0     1           2, and the aged    3
//! ```
//!
//! # Where the numbers come from
//!
//! From recorded years of four machines, replayed with one change at a time; benches/policy.md has the
//! table, `psched simulate` makes it anew. Fewer than four levels break the slowdown of short runs; more
//! make long ones wait for weeks. Stickiness and the quiet time between moves decide how often gangs are
//! moved; ageing bounds the longest wait at next to no cost.

mod had;
#[cfg(test)]
mod tests;

pub use had::Place;

use crate::apteam::Apid;
use crate::variables::units::nanos as ns;
use had::ServiceAccount;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Levels that there may be: a bound on what is gone through for each gang.
pub const LEVELS_MAX: usize = 16;

/// By what rules: the variables `application.*`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    /// Time had at which a gang leaves each level but the last, ascending.
    pub bounds: Vec<Duration>,
    /// So much earlier a gang that runs counts as having entered its level.
    pub stickiness: Duration,
    /// Who has not run for so long, and a share of what it has had, in thousandths, is aged.
    pub aging_after: Duration,
    /// See there.
    pub aging_share: u64,
    /// The level that an aged one counts as, if its own is not lower.
    pub aging_level: usize,
    /// How long it keeps that once it runs, at least, and what share of its wait, in thousandths.
    pub aging_grant: Duration,
    /// See there.
    pub aging_grant_share: u64,
    /// Who has waited so long comes first.
    pub longest_wait: Duration,
    /// So much earlier a gang of all processors counts as having entered the last level, a narrower one in
    /// proportion.
    pub wide_first: Duration,
    /// By how much the time of wide gangs counts for more: the exponent of width, in thousandths.
    pub width_exponent: u64,
}

impl Rules {
    /// How long one comes first who has waited for `longest_wait`.
    fn grant(&self) -> Duration {
        self.longest_wait / 5
    }
}

/// Whose turn it is, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    /// Which gang.
    pub apid: Apid,
    /// Its own level.
    pub level: usize,
    /// It has a cost to pay, or was promised its place: it can't be stopped.
    pub pays: bool,
    /// Time had, without costs.
    pub attained: Duration,
    /// For how long it has not run; zero where it runs.
    pub waited: Duration,
    /// It runs.
    pub runs: bool,
}

/// What all gangs have had.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Levels {
    had: BTreeMap<Apid, ServiceAccount>,
    /// What they have had is told by plans with floors ([`super::floor`]), and a start costs nothing.
    told: bool,
}

fn at(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}

/// A share in thousandths.
fn share(of: u64, thousandths: u64) -> u64 {
    match of.checked_mul(thousandths) {
        Some(product) => product / 1_000,
        None => u64::try_from(u128::from(of) * u128::from(thousandths) / 1_000).unwrap_or(u64::MAX),
    }
}

impl Levels {
    /// Nobody's; what they will have had is told by plans, or it is not.
    pub fn new(told: bool) -> Levels {
        Levels { had: BTreeMap::new(), told }
    }

    /// A gang that has had so much, and has waited for so long. No effect where it is there.
    pub fn add(&mut self, apid: Apid, weight: u32, had: Duration, waited: Duration, now_ns: u64) {
        // (One of a former start of psched has had something, and no place was promised to it just now.)
        let arrived = had.is_zero() && !self.told;
        let now = at(now_ns);
        let since = now.saturating_sub(at(ns(waited)));
        let had = ServiceAccount {
            told: self.told,
            rank: 0,
            weight: weight.max(1),
            width: 0,
            counts: 1_000_000,
            attained: ns(had),
            owes: 0,
            at: now,
            runs: false,
            arrived,
            away: false,
            level: 0,
            entered: since,
            stopped: since,
            aged: false,
            aged_until: 0,
            first_until: 0,
        };
        self.had.entry(apid).or_insert(had);
    }

    /// So wide it is, in millionths of all processors.
    pub fn set_width(&mut self, apid: Apid, millionths: u64, rules: &Rules) {
        if let Some(had) = self.had.get_mut(&apid) {
            had.width = millionths.min(1_000_000);
            had.counts = counts(millionths, rules.width_exponent);
        }
    }

    /// A gang has gone.
    pub fn remove(&mut self, apid: Apid) {
        self.had.remove(&apid);
    }

    /// Nobody is there any more.
    pub fn clear(&mut self) {
        self.had.clear();
    }

    /// From now on what they have had is told by plans, or it is not.
    pub fn set_told(&mut self, told: bool, now_ns: u64) {
        if std::mem::replace(&mut self.told, told) == told {
            return;
        }
        self.had.values_mut().for_each(|had| had.set_told(told, at(now_ns)));
    }

    /// Whether that is so.
    pub fn is_told(&self) -> bool {
        self.told
    }

    /// All of them.
    pub fn gangs(&self) -> impl Iterator<Item = Apid> {
        self.had.keys().copied()
    }

    /// All are at the levels of what they have had by then.
    pub fn bring_up(&mut self, rules: &Rules, now_ns: u64) {
        self.had.values_mut().for_each(|had| had.levels(rules, at(now_ns)));
    }

    /// The places of their users, for a gang of this level that runs or does not.
    pub fn set_ranks(&mut self, rank: impl Fn(Apid, usize, bool) -> u32) {
        for (apid, had) in &mut self.had {
            had.rank = rank(*apid, had.level, had.runs);
        }
    }

    /// The place of a gang in the order of turns; none: it is not there, or may not run.
    pub fn place(&self, apid: Apid, rules: &Rules, now_ns: u64) -> Option<Place> {
        let had = self.had.get(&apid).filter(|had| !had.away)?;
        Some(Place::of(had, rules, at(now_ns), apid))
    }

    /// The level of a gang when it was looked at last.
    pub fn level(&self, apid: Apid) -> usize {
        self.had.get(&apid).map_or(0, |had| had.level)
    }

    /// When a gang has entered its level, as far as is known; the clock's end where it is not there.
    pub fn entered(&self, apid: Apid) -> i64 {
        self.had.get(&apid).map_or(i64::MAX, |had| had.entered)
    }

    /// It has had so much more, a plan says.
    pub fn credit(&mut self, apid: Apid, time: Duration) {
        if let Some(had) = self.had.get_mut(&apid).filter(|had| had.told) {
            had.attained = had.attained.saturating_add(ns(time));
        }
    }

    /// Each gang, with what it has had by now, goes to the one of `parts` at the place that `of` says; to none
    /// where there is no such place.
    pub fn deal(self, of: impl Fn(Apid) -> usize, parts: &mut [Levels], now_ns: u64) {
        for (apid, mut had) in self.had {
            if let Some(part) = parts.get_mut(of(apid)) {
                had.set_told(part.told, at(now_ns));
                part.had.insert(apid, had);
            }
        }
    }

    /// Whether it is there.
    pub fn contains(&self, apid: Apid) -> bool {
        self.had.contains_key(&apid)
    }

    /// Another weight.
    pub fn set_weight(&mut self, apid: Apid, weight: u32) {
        if let Some(had) = self.had.get_mut(&apid) {
            had.weight = weight.max(1);
        }
    }

    /// It is held or on its way, and has no turn; or it is back.
    pub fn set_away(&mut self, apid: Apid, away: bool, now_ns: u64) {
        if away {
            self.stop(apid, now_ns);
        }
        if let Some(had) = self.had.get_mut(&apid) {
            had.away = away;
        }
    }

    /// It has had so much: somebody knows better.
    pub fn set_attained(&mut self, apid: Apid, time: Duration, now_ns: u64) {
        if let Some(had) = self.had.get_mut(&apid) {
            had.settle(at(now_ns));
            had.attained = ns(time);
        }
    }

    /// How long it has run by then, without what it paid.
    pub fn attained(&self, apid: Apid, now_ns: u64) -> Duration {
        let had = self.had.get(&apid).copied().map(|mut had| {
            had.settle(at(now_ns));
            had.attained
        });
        Duration::from_nanos(had.unwrap_or(0))
    }

    /// Whether it runs.
    pub fn runs(&self, apid: Apid) -> bool {
        self.had.get(&apid).is_some_and(|had| had.runs)
    }

    /// Its level, and for how long it has not run: who is the first to go out.
    pub fn stands(&self, apid: Apid, now_ns: u64) -> (usize, u64) {
        self.had.get(&apid).map_or((0, 0), |had| (had.level, had.waited(at(now_ns))))
    }

    /// It runs from now on, and pays so much first. No effect where it runs.
    pub fn start(&mut self, apid: Apid, cost: Duration, rules: &Rules, now_ns: u64) {
        let Some(had) = self.had.get_mut(&apid).filter(|had| !had.runs) else { return };
        let now = at(now_ns);
        let waited = had.waited(now);
        if waited >= ns(rules.longest_wait) {
            had.first_until = now.saturating_add(at(ns(rules.grant())));
        }
        if had.aged {
            let grant = ns(rules.aging_grant).max(share(waited, rules.aging_grant_share));
            had.aged_until = now.saturating_add(at(grant));
        }
        had.at = now;
        had.owes = had.owes.saturating_add(if had.told { 0 } else { ns(cost) });
        (had.runs, had.arrived) = (true, false);
    }

    /// It does not run from now on. No effect where it does not.
    pub fn stop(&mut self, apid: Apid, now_ns: u64) {
        let Some(had) = self.had.get_mut(&apid).filter(|had| had.runs) else { return };
        had.settle(at(now_ns));
        (had.runs, had.aged, had.stopped, had.first_until) = (false, false, at(now_ns), 0);
    }

    /// It has another place, and pays so much when it runs there: its place is kept until it does.
    pub fn moved(&mut self, apid: Apid, cost: Duration, now_ns: u64) {
        if let Some(had) = self.had.get_mut(&apid) {
            had.settle(at(now_ns));
            had.owes = had.owes.saturating_add(if had.told { 0 } else { ns(cost) });
            had.arrived = true;
        }
    }

    /// It comes first until then.
    pub fn hurry(&mut self, apid: Apid, until_ns: u64) {
        if let Some(had) = self.had.get_mut(&apid) {
            had.first_until = had.first_until.max(at(until_ns));
        }
    }

    /// All gangs that may run, by number, each with its place in the order of turn. What they have had is
    /// brought up to now as they are gone through.
    pub fn turns(&mut self, rules: &Rules, now_ns: u64) -> impl Iterator<Item = (Place, Turn)> {
        let now = at(now_ns);
        let may_run = self.had.iter_mut().filter(|(_, had)| !had.away);
        may_run.map(move |(apid, had)| had.turn(*apid, rules, now))
    }

    /// When somebody's place in the order changes by itself, in nanoseconds, to where it comes behind one of
    /// those who are `waiting`, in order, before whom it came: it leaves its level or has paid, or its turn or
    /// what it was granted is over; or one has waited for `longest_wait`.
    pub fn next(&self, rules: &Rules, waiting: &[Place], now_ns: u64) -> Option<u64> {
        let now = at(now_ns);
        let of = |(apid, had): (&Apid, &ServiceAccount)| match had.runs {
            true => had.passed(*apid, rules, waiting, now),
            // One that is overdue already leads next, whenever that is.
            false => {
                Some(ns(rules.longest_wait).saturating_sub(had.waited(now))).filter(|n| *n > 0)
            }
        };
        let next = self.had.iter().filter(|(_, had)| !had.away).filter_map(of).min()?;
        Some(now_ns.saturating_add(next))
    }

    /// In how many nanoseconds somebody's place changes by itself who does not run: it is aged, or does not
    /// come first any more. (That is a matter of hours, and need not be known to the second.)
    pub fn later(&self, rules: &Rules, now_ns: u64) -> Option<u64> {
        let now = at(now_ns);
        let of = |had: &ServiceAccount| {
            let first = u64::try_from(had.first_until.saturating_sub(now)).ok();
            let ages = (!had.aged).then(|| had.ages(rules).saturating_sub(had.waited(now)));
            first.into_iter().chain(ages).filter(|left| *left > 0).min()
        };
        self.had.values().filter(|had| !had.away && !had.runs).filter_map(of).min()
    }
}

/// What a second of a gang of such a width counts for, in millionths.
fn counts(millionths: u64, exponent: u64) -> u64 {
    match exponent {
        0 => 1_000_000,
        _ => {
            let width = (millionths.clamp(1, 1_000_000) as f64) / 1e6;
            (width.powf(exponent as f64 / 1e3) * 1e6) as u64
        }
    }
}
