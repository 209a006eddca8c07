//! What each gang has had, since when it waits, and how long it takes to bring its memory in.
//!
//! # The problem
//!
//! Whose turn it is follows from what gangs and their users have had so far ([`levels`](super::levels),
//! [`floor`](super::floor)). Plans say it: time passes, and what a plan gave each of its members is to be
//! on that gang's account, and on its user's.
//!
//! # The approach
//!
//! Whoever follows plans says for how long a gang has run between two times, and until when
//! ([`Accounts::had`]). What a node knows better replaces it ([`Accounts::correct`]). The time of a gang is
//! charged to the holder of its share as well ([`shares`](super::shares)).

use super::plan::LENGTHENED_MAX;
use super::shares::{Holder, Shares};
use crate::apteam::Apid;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What a gang has had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Account {
    /// To whose share its time counts, and its processors.
    holder: Option<Holder>,
    width: u64,
    /// At least 1.
    weight: u32,
    /// Time run.
    attained: Duration,
    /// It is in the party that ran last.
    runs: bool,
    /// Since when it waits, if it does not run.
    since_ns: u64,
    /// How long it takes to bring its memory in.
    cost: Duration,
}

/// The accounts of all gangs of a machine, and of those who hold shares.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Accounts {
    had: BTreeMap<Apid, Account>,
    /// What users, or accounts, have had.
    pub shares: Shares,
}

impl Accounts {
    /// A gang that has had so much already, and waits from now on. No effect where it has an account.
    pub fn add(&mut self, apid: Apid, weight: u32, had: Duration, now_ns: u64) {
        let had = Account {
            holder: None,
            width: 1,
            weight: weight.max(1),
            attained: had,
            runs: false,
            since_ns: now_ns,
            cost: Duration::ZERO,
        };
        self.had.entry(apid).or_insert(had);
    }

    /// To whose share its time counts, and how many processors it has.
    pub fn set_share(&mut self, apid: Apid, holder: Option<Holder>, width: u64) {
        if let Some(had) = self.had.get_mut(&apid) {
            (had.holder, had.width) = (holder, width.max(1));
        }
    }

    /// To whose share its time counts.
    pub fn holder(&self, apid: Apid) -> Option<&Holder> {
        self.had.get(&apid)?.holder.as_ref()
    }

    /// Its processors.
    pub fn width(&self, apid: Apid) -> u64 {
        self.had.get(&apid).map_or(0, |had| had.width)
    }

    /// Since when it waits, in nanoseconds; now, where it runs.
    pub fn waits_since(&self, apid: Apid, now_ns: u64) -> u64 {
        let waits = self.had.get(&apid).filter(|had| !had.runs);
        waits.map_or(now_ns, |had| had.since_ns.min(now_ns))
    }

    /// Whether it was in the party that ran last.
    pub fn runs(&self, apid: Apid) -> bool {
        self.had.get(&apid).is_some_and(|had| had.runs)
    }

    /// A gang has gone.
    pub fn remove(&mut self, apid: Apid) {
        self.had.remove(&apid);
    }

    /// Another weight, from the next plan on.
    pub fn set_weight(&mut self, apid: Apid, weight: u32) {
        if let Some(had) = self.had.get_mut(&apid) {
            had.weight = weight.max(1);
        }
    }

    /// The weight of a gang; 1 where it has no account.
    pub fn weight(&self, apid: Apid) -> u32 {
        self.had.get(&apid).map_or(1, |had| had.weight)
    }

    /// So long it takes to bring its memory in, from the next plan on; more than [`LENGTHENED_MAX`]
    /// counts as that. Whether that is another cost than before.
    pub fn set_cost(&mut self, apid: Apid, cost: Duration) -> bool {
        let Some(had) = self.had.get_mut(&apid) else { return false };
        let cost = cost.min(LENGTHENED_MAX);
        std::mem::replace(&mut had.cost, cost) != cost
    }

    /// How long it takes to bring the memory of a gang in; nothing where it is never out.
    pub fn cost(&self, apid: Apid) -> Duration {
        self.had.get(&apid).map_or(Duration::ZERO, |had| had.cost)
    }

    /// How long a gang has run; nothing where it has no account.
    pub fn attained(&self, apid: Apid) -> Duration {
        self.had.get(&apid).map_or(Duration::ZERO, |had| had.attained)
    }

    /// The gangs whose time counts to a share, and what each has had.
    pub fn charged(&self) -> impl Iterator<Item = (Apid, Duration)> {
        let counts = self.had.iter().filter(|(_, had)| had.holder.is_some());
        counts.map(|(apid, had)| (*apid, had.attained))
    }

    /// So much more time has been had by then.
    fn credit(&mut self, apid: Apid, time: Duration, now_ns: u64) {
        if let Some(had) = self.had.get_mut(&apid) {
            had.attained = had.attained.saturating_add(time);
            if let Some(holder) = had.holder.as_ref().filter(|_| !time.is_zero()) {
                self.shares.charge(holder, time.as_nanos() as f64 * had.width as f64, now_ns);
            }
        }
    }

    /// From one time to another a gang has had so much, and ran last until then, if it ran at all.
    pub fn had(&mut self, apid: Apid, time: Duration, last_ns: Option<u64>, of: (u64, u64)) {
        let (from_ns, until_ns) = of;
        self.credit(apid, time, until_ns);
        let Some(had) = self.had.get_mut(&apid) else { return };
        match last_ns {
            Some(last_ns) => had.since_ns = last_ns,
            None if had.runs => had.since_ns = from_ns,
            None => {}
        }
        had.runs = last_ns == Some(until_ns);
    }

    /// A gang has had so much in all: somebody knows better than what was taken for it.
    pub fn set_attained(&mut self, apid: Apid, time: Duration) {
        if let Some(had) = self.had.get_mut(&apid) {
            had.attained = time;
        }
    }

    /// A gang has had so much in all by then, its node says: of what plans gave it others may have had a part.
    pub fn correct(&mut self, apid: Apid, time: Duration, now_ns: u64) {
        let Some(had) = self.had.get_mut(&apid) else { return };
        let more = time.as_nanos() as f64 - had.attained.as_nanos() as f64;
        had.attained = time;
        if let Some(holder) = &had.holder {
            self.shares.charge(holder, more * had.width as f64, now_ns);
        }
    }

    /// Forgets users who have no gang here, if there are too many.
    pub fn forget(&mut self, now_ns: u64) {
        if !self.shares.are_too_many() {
            return;
        }
        let here: BTreeSet<&str> =
            self.had.values().filter_map(|had| had.holder.as_deref()).collect();
        self.shares.forget(now_ns, |holder| here.contains(holder));
    }
}
