//! What users (or accounts) have had: kept across restarts, and shown.
//!
//! # Problem
//! Who comes first is decided by what each user has had ([`crate::gang::shares`]). A psched that is restarted must
//! not begin anew with that: whoever has had the machine for hours would have it once more.
//!
//! # Approach
//! Once in [`KEPT_EVERY`], and when psched is stopped, it is brought up to date and what has changed is put on
//! record. Nobody waits for these records. They also say how much of each application's time has been charged.
//! What it runs after that, while psched is killed or away, is charged when its node says how long it has run, or had
//! when it ended. So a psched that is killed forgets at most the usage of a minute, of those that
//! ended in that minute.

use super::domain::Domain;
use super::{Effect, Now, Record, Scheduler};
use crate::apteam::Apid;
use crate::apteam::posting::Account;
use crate::gang::shares::Holder;
use crate::psched::decide::HolderUsage;
use crate::psched::decide::SharesRecord;
use crate::variables::ShareBy;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How often usage is put on record while something runs.
const KEPT_EVERY: Duration = Duration::from_secs(60);

/// The holder of a share, as it is shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Holding {
    /// The name of a user or an account.
    pub holder: Holder,
    /// At least 1.
    pub weight: u32,
    /// Applications that wait, run or are held.
    pub applications: u32,
    /// Processor seconds, of which older ones count less.
    pub had_s: f64,
    /// What that would be if those who have applications had had what they have had together by their weights.
    pub due_s: f64,
}

impl Scheduler {
    /// Takes up again what was on record, each entry decayed by the time since then. Entries that make no sense are
    /// left out.
    pub fn has_had(&mut self, now: Now, record: SharesRecord) {
        self.schedule.were_charged(record.charged);
        let shares = self.schedule.shares_mut();
        for had in record.had.into_iter().filter(|had| had.had_s.is_finite() && had.had_s > 0.0) {
            let age_ns = now.wall_ns.saturating_sub(had.at_ns);
            shares.restore(&had.holder, had.had_s * 1e9, age_ns, now.mono_ns);
        }
        self.kept_shares_ns = now.mono_ns;
    }

    /// When usage is to be put on record next.
    pub(super) fn shares_due(&self) -> Option<u64> {
        let counts = || self.domains.iter().any(|domain| domain.has_shares());
        let runs = self.settings.keeps_shares && self.schedule.runs_any() && counts();
        runs.then(|| self.kept_shares_ns.saturating_add(KEPT_EVERY.as_nanos() as u64))
    }

    /// Puts it on record if that is due.
    pub(super) fn keep_shares_if_due(&mut self, now: Now, out: &mut Vec<Effect>) {
        if self.shares_due().is_some_and(|at| at <= now.mono_ns) {
            out.extend(self.keep_shares(now));
        }
    }

    /// What has changed since it was last put on record; None: nothing has.
    pub fn keep_shares(&mut self, now: Now) -> Option<Effect> {
        let since_ns = std::mem::replace(&mut self.kept_shares_ns, now.mono_ns);
        self.account_shares(now);
        let changed = self.schedule.shares().changed_since(since_ns, now.mono_ns);
        let had = changed.map(|(holder, had)| HolderUsage {
            holder: holder.clone(),
            had_s: had / 1e9,
            at_ns: now.wall_ns,
        });
        let had: Vec<HolderUsage> = had.collect();
        (self.settings.keeps_shares && !had.is_empty()).then(|| {
            Effect::Keep(Record::Shares(SharesRecord { had, charged: self.schedule.charged() }))
        })
    }

    fn account_shares(&mut self, now: Now) {
        for domain in self.domain_ids() {
            if self.domain(domain).has_shares() {
                let gangs: Vec<Apid> = self.schedule.levels.of(domain).gangs().collect();
                self.schedule.account_for(&gangs, now.mono_ns);
            }
        }
    }

    /// Whose shares there are in the domain `application`, and after how long what they had counts half.
    pub fn share_rules(&self) -> (ShareBy, Duration) {
        let floors = self.domains.iter().any(Domain::has_floors);
        let by = if floors { self.settings.turns.share_by } else { ShareBy::Application };
        (by, self.settings.half_life)
    }

    /// The accounts that applications of a user count to that have not ended.
    pub fn accounts_of(&self, uid: u32) -> BTreeSet<&str> {
        let own = self.teams.values().filter(|team| team.owner.uid == uid);
        own.filter_map(|team| team.posting.account.as_ref()).map(Account::as_str).collect()
    }

    /// All who have had something or have applications, by name.
    pub fn shares(&self, now: Now) -> Vec<Holding> {
        let mut all: BTreeMap<Holder, Holding> = BTreeMap::new();
        let empty = |holder: &Holder, weight| Holding {
            holder: holder.clone(),
            weight,
            applications: 0,
            had_s: 0.0,
            due_s: 0.0,
        };
        for (holder, had) in self.schedule.shares().all(now.mono_ns) {
            let weight = self.settings.turns.weight_of(holder);
            all.insert(holder.clone(), Holding { had_s: had / 1e9, ..empty(holder, weight) });
        }
        for team in self.teams.values() {
            let domain = self.domain(self.domain_of(team.apid));
            let Some(holder) = domain.holder(team) else { continue };
            let holding = all.entry(holder).or_insert_with_key(|holder| empty(holder, 1));
            holding.weight = holding.weight.max(domain.turns.weight(&team.owner));
            holding.applications += 1;
            let width = self.schedule.share_of(team.apid).map_or(0, |(_, width)| width);
            let more = self.schedule.since_account(team.apid, now.mono_ns);
            holding.had_s += more.as_secs_f64() * width as f64;
        }
        let here = || all.values().filter(|of| of.applications > 0);
        let had: f64 = here().map(|of| of.had_s).sum();
        let weights: f64 = here().map(|of| f64::from(of.weight)).sum();
        for of in all.values_mut().filter(|of| of.applications > 0) {
            of.due_s = had * f64::from(of.weight) / weights;
        }
        all.into_values().collect()
    }
}
