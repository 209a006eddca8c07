//! What gangs owe each other: the kernel's work for one of them in the turn of another.
//!
//! # The problem
//!
//! The freezer stops a process when it comes back from the kernel. A system call that reads gigabytes goes on
//! for seconds, and so does what has been given to io_uring. That work can't be broken off, and it is not slowed
//! down: it may hold locks of the kernel for which everybody else waits.
//!
//! # The approach
//!
//! It is measured and paid back. While a gang that was stopped is not frozen, the processor time that its groups
//! use is a debt to the gangs that have its processors meanwhile. When its turn comes it stays where it is and
//! those to whom it owes run instead, until they have had as much ([`PAYS_FROM`], [`OWES_MAX`]). So whoever
//! keeps the kernel busy has in the end what he has without that.
//!
//! A debt ends with the gang that it is owed to, and where the two share no processor any more.

use super::{Action, Lift, State, Switcher, Turn};
use crate::apteam::Key;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A smaller debt waits until it has grown: many system calls end a little late.
pub const PAYS_FROM: Duration = Duration::from_millis(20);
/// What a gang may owe another one at most: for no longer does its turn wait.
pub const OWES_MAX: Duration = Duration::from_secs(60);

/// Of some gangs, who pays now.
#[derive(Debug, Default)]
pub(super) struct Paying {
    /// They stay stopped in their turns.
    pub debtors: BTreeSet<Key>,
    /// They may run in turns of others.
    pub creditors: BTreeSet<Key>,
}

/// What one gang owes.
#[derive(Clone, Debug, Default)]
pub(super) struct Debts {
    /// To whom, and how many nanoseconds of the processors that they share.
    to: BTreeMap<Key, u64>,
    /// It pays, and this has been taken into account until then.
    pays_ns: Option<u64>,
    /// Somebody has had what he was owed by then.
    pub again_ns: Option<u64>,
}

impl Switcher {
    /// The kernel has worked for so many nanoseconds of processor time for one that was stopped.
    pub(super) fn overran(&mut self, key: Key, cpu_ns: u64, out: &mut Vec<Action>) {
        let Some(seat) = self.seats.get_mut(&key) else { return };
        let processors = seat.on.count_ones(..).max(1);
        let time_ns = cpu_ns / u64::try_from(processors).unwrap_or(u64::MAX);
        seat.ran.ns = seat.ran.ns.saturating_add(time_ns);
        out.push(Action::Ran(key, seat.ran));
        let on = seat.on.clone();
        let others = self.seats.iter().filter(|(other, _)| **other != key);
        let hurt: Vec<Key> = others
            .filter(|(_, other)| other.occupies() && !other.on.is_disjoint(&on))
            .map(|(other, _)| *other)
            .collect();
        let Some(seat) = self.seats.get_mut(&key) else { return };
        for creditor in hurt {
            let owed = seat.debts.to.entry(creditor).or_default();
            *owed = owed.saturating_add(time_ns).min(ns(OWES_MAX));
        }
    }

    /// Takes into account what has been paid, and says who pays now.
    pub(super) fn pay(&mut self, now: u64, turns: &BTreeMap<Key, Turn>) -> Paying {
        let mut paying = Paying::default();
        for (key, turn) in turns {
            let Some(seat) = self.seats.get_mut(key).filter(|seat| !seat.debts.to.is_empty())
            else {
                continue;
            };
            let mut debts = std::mem::take(&mut seat.debts);
            let Some(seat) = self.seats.get(key) else { continue };
            debts.to.retain(|creditor, owed| {
                let its = self.seats.get(creditor).filter(|its| !its.on.is_disjoint(&seat.on));
                let had = debts.pays_ns.filter(|_| its.is_some_and(|its| its.occupies()));
                *owed = owed.saturating_sub(had.map_or(0, |since| now.saturating_sub(since)));
                its.is_some() && *owed > 0
            });
            let may_run = |creditor: &&Key| {
                let stands_by = self.seats.get(creditor).is_some_and(|its| {
                    its.lift == Lift::No
                        && its.leaves_by_ns.is_none()
                        && !matches!(its.state, State::Gate { .. })
                });
                stands_by && matches!(turns.get(creditor), Some(Turn::Others { .. }))
            };
            let begins = if debts.pays_ns.is_some() { 1 } else { ns(PAYS_FROM) };
            let stands = matches!(turn, Turn::Its { .. })
                && matches!(seat.state, State::Stopped)
                && debts.to.values().max().is_some_and(|most| *most >= begins);
            let creditors: Vec<Key> = debts.to.keys().filter(may_run).copied().collect();
            let least = creditors.iter().filter_map(|creditor| debts.to.get(creditor)).min();
            debts.again_ns = least.filter(|_| stands).map(|owed| now.saturating_add(*owed));
            debts.pays_ns = debts.again_ns.map(|_| now);
            if debts.pays_ns.is_some() {
                paying.debtors.insert(*key);
                paying.creditors.extend(creditors);
            }
            if let Some(seat) = self.seats.get_mut(key) {
                seat.debts = debts;
            }
        }
        paying
    }
}

fn ns(time: Duration) -> u64 {
    super::super::ns(time)
}
