//! Debts between gangs: kernel work for one gang during the turn of another.
//!
//! # The problem
//!
//! The freezer stops a process when it returns from the kernel. A system call that reads gigabytes
//! goes on for seconds, and so does work that a process has given to io_uring. That work can't be
//! aborted, and slowing it down would be worse: it may hold kernel locks for which other users wait.
//!
//! # The approach
//!
//! The work is measured and paid back. While a stopped gang is not yet frozen, the time for which its
//! groups use a processor is a debt to the gangs that have its processors meanwhile. In its own next
//! turns the debtor stays stopped and its creditors run, until they have had as much ([`PAYS_FROM`],
//! [`OWES_MAX`]). So a program that keeps the kernel busy has its share over several turns, and so
//! have its rivals. The debt is the same on however many of its processors the kernel has worked: a
//! gang that lacks one of its processors waits with all of them.
//!
//! A debtor stands only while a creditor runs in its place: never for one that can't run now, because
//! another gang has a turn on some other processor of it. So each debt gets smaller while somebody
//! waits for it.
//!
//! A debt ends with either gang, and when a move leaves the two without a common processor.

use super::super::ns;
use super::{Action, Hold, Seat, State, Switcher, Turn};
use crate::apteam::Key;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A smaller debt waits until it has grown: many system calls end a little late.
pub const PAYS_FROM: Duration = Duration::from_millis(20);
/// What a gang may owe another one at most: for no longer does its turn wait.
pub const OWES_MAX: Duration = Duration::from_secs(60);

/// Gangs that may pay now, each with the creditors that may run in its place.
pub(super) type Debtors = BTreeMap<Key, Vec<Key>>;

/// The debts of one gang.
#[derive(Clone, Debug, Default)]
pub(super) struct Debts {
    /// The creditors, and for how many nanoseconds each is to have the processors.
    to: BTreeMap<Key, u64>,
    /// Set while the gang pays: payments up to this time are subtracted.
    pays_ns: Option<u64>,
    /// When the smallest debt is paid: the next look.
    pub again_ns: Option<u64>,
}

impl Switcher {
    /// The kernel has worked for a stopped gang for so long (nanoseconds): it owes that to the gangs that
    /// have its processors now.
    pub(super) fn overran(&mut self, key: Key, time_ns: u64, out: &mut Vec<Action>) {
        let Some(seat) = self.seats.get_mut(&key) else { return };
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

    /// Subtracts what has been paid, and returns the gangs whose debts may be paid now. A payment
    /// is never the only turn of a creditor: a held application stays frozen.
    pub(super) fn debtors(&mut self, now: u64, turns: &BTreeMap<Key, Turn>) -> Debtors {
        let mut debtors = Debtors::new();
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
                    its.lift == Hold::No
                        && its.leaves_by_ns.is_none()
                        && !matches!(its.state, State::Gate { .. })
                });
                stands_by
                    && matches!(turns.get(creditor), Some(Turn::Others { .. }))
                    && self.plans.next_turn(**creditor, now).is_some()
            };
            let begins = if debts.pays_ns.is_some() { 1 } else { ns(PAYS_FROM) };
            if matches!(turn, Turn::Its { .. })
                && matches!(seat.state, State::Stopped)
                && debts.to.values().max().is_some_and(|most| *most >= begins)
            {
                debtors.insert(*key, debts.to.keys().filter(may_run).copied().collect());
            }
            if let Some(seat) = self.seats.get_mut(key) {
                seat.debts = Debts { pays_ns: None, again_ns: None, ..debts };
            }
        }
        debtors
    }

    /// Begins, or goes on with, the payments of these debtors. At least one creditor of each debtor
    /// is among the chosen gangs.
    pub(super) fn pay(&mut self, now: u64, debtors: &Debtors, chosen: &BTreeSet<Key>) {
        for (key, creditors) in debtors {
            let Some(Seat { debts, .. }) = self.seats.get_mut(key) else { continue };
            let paid = creditors.iter().filter(|creditor| chosen.contains(creditor));
            let least = paid.filter_map(|creditor| debts.to.get(creditor)).min();
            debts.again_ns = least.map(|owed| now.saturating_add(*owed));
            debts.pays_ns = Some(now);
        }
    }
}
