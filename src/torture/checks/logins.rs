//! Front ends on other hosts than psched's: none that is alive counts as gone while its host is
//! away for less than
//! `login_host_away`, and none that is dead leaves anything behind.

use super::Checks;
use super::allowed_failures::Why;
use crate::apteam::Apid;
use crate::psched::decide::login_hosts::LeftBehind;
use crate::torture::SECOND;
use crate::torture::host::{Host, Proc, ProcId};
use crate::torture::logins::AWAY_MAX;
use crate::torture::wire::Pid;
use std::collections::{BTreeMap, BTreeSet};

/// How long an application may outlive its front end if nothing stands in the way: that its host is
/// away, that a signal is obeyed and a process dies, and again if a message was lost.
const ORPHANED_MAX: u64 = AWAY_MAX + 60 * SECOND;

/// What is known of login hosts.
#[derive(Debug, Default)]
pub struct LoginChecks {
    /// Front ends that are on such a host, and how often that one had been started by then.
    fronts: BTreeMap<Pid, (usize, u32)>,
    /// When each front end died.
    died: BTreeMap<Pid, u64>,
    /// Connections to psched of each, and since when there is none.
    links: BTreeMap<usize, (BTreeSet<u64>, u64)>,
    /// The last end of an absence that was longer than the bound.
    long: BTreeMap<usize, u64>,
    /// Until when each did not serve its users last.
    away: BTreeMap<usize, u64>,
    /// Until when something stands in the way of every end.
    disturbed: u64,
    /// The same for the ends of applications on one host, or of the front ends there.
    hosts_disturbed: BTreeMap<usize, u64>,
    /// Front ends whose applications were due to have ended while faults went on.
    looked: BTreeSet<Pid>,
}

impl Checks {
    /// A front end is on this host.
    pub fn front_is_on(&mut self, front: Pid, host: usize, boots: u32) {
        self.logins.fronts.insert(front, (host, boots));
    }

    /// An apinit does nothing for its users until then.
    pub fn login_serves(&mut self, host: usize, until: u64) {
        self.logins.away.insert(host, until);
    }

    /// A login host has a connection to psched.
    pub fn login_linked(&mut self, host: usize, number: u64, now: u64) {
        let (links, since) = self.logins.links.entry(host).or_default();
        if links.is_empty() && now - *since >= AWAY_MAX {
            self.logins.long.insert(host, now);
        }
        links.insert(number);
    }

    /// It has one less.
    pub fn login_unlinked(&mut self, host: usize, number: u64, now: u64) {
        let (links, since) = self.logins.links.entry(host).or_default();
        if links.remove(&number) && links.is_empty() {
            *since = now;
        }
    }

    /// How long there has been no connection of a login host to psched.
    fn login_away(&self, host: usize, now: u64) -> u64 {
        match self.logins.links.get(&host) {
            Some((links, since)) if links.is_empty() => now - since,
            Some(_) => 0,
            None => now,
        }
    }

    /// psched takes the front ends of these for gone, by what a login host has said or not.
    pub fn fronts_count_as_gone(&mut self, apids: &[Apid], now: u64) {
        for apid in apids {
            let front = self.courses.get(apid).map_or(0, |course| course.front);
            let alive = self.lives.get(&front).is_some_and(|life| life.exit.is_none());
            let Some((host, _)) = self.logins.fronts.get(&front).copied().filter(|_| alive) else {
                continue;
            };
            if self.login_away(host, now) < AWAY_MAX {
                self.broken(format!(
                    "{apid} counts as left by aprun {front}, which is alive on host {host}, \
                     and that one was not away for {} s",
                    AWAY_MAX / SECOND
                ));
            }
            self.logins.long.insert(host, now);
            // (It may get a place in this very moment, from another one that ends.)
            self.happened(*apid, Why::Front);
        }
    }

    /// psched takes the front ends of these for gone, and none of them was named by its host: it names that
    /// host as its administrator knows it, why, and how many applications that are.
    pub fn left_behind(&mut self, left: Option<&LeftBehind>, gone: &[Apid], hosts: &[Host]) {
        if gone.is_empty() {
            return;
        }
        let text = left.map(|left| left.words(std::time::Duration::from_nanos(AWAY_MAX)));
        let text = text.unwrap_or_default();
        let count = gone.len();
        let mut right = text.contains(&format!(" of {count} application"));
        for apid in gone {
            let front = self.courses.get(apid).map_or(0, |course| course.front);
            let Some((host, boots)) = self.logins.fronts.get(&front) else { continue };
            let host = &hosts[*host];
            right &= text.contains(&format!("login host {} ", host.name));
            right &= !text.contains("was restarted") || host.boots != *boots;
        }
        if !right {
            self.broken(format!("of {count} applications, {gone:?}, is said: {text:?}"));
        }
    }

    /// Whether a front end that is alive may be taken for gone by what is between it and others,
    /// since then: the host of PE 0, and the same with psched.
    pub(super) fn front_is_out_of_reach(
        &self,
        front: Pid,
        head: Option<&usize>,
        since: u64,
    ) -> bool {
        let Some((host, _)) = self.logins.fronts.get(&front) else { return false };
        self.is_cut(Some(host), head, since)
            || self.logins.away.get(host).is_some_and(|until| *until >= since)
            || self.logins.long.get(host).is_some_and(|at| *at >= since)
    }

    /// A front end has ended.
    pub fn front_died(&mut self, front: Pid, now: u64) {
        self.logins.died.insert(front, now);
    }

    /// Something may stand in the way of every end until then.
    pub fn ends_are_disturbed(&mut self, until: u64) {
        self.logins.disturbed = self.logins.disturbed.max(until);
    }

    /// The same for the ends of applications on this host, or of the front ends there.
    pub fn host_is_disturbed(&mut self, host: usize, until: u64) {
        let disturbed = self.logins.hosts_disturbed.entry(host).or_default();
        *disturbed = until.max(*disturbed);
    }

    /// Whether nothing has stood in the way of a host since then.
    pub fn is_undisturbed(&self, host: usize, since: u64) -> bool {
        let own = self.logins.hosts_disturbed.get(&host).copied().unwrap_or(0);
        own.max(self.logins.disturbed) < since
    }

    /// By when what runs for a front end that has died is to have ended; none: it is alive.
    fn orphaned_from(&self, front: Pid) -> Option<u64> {
        let died = self.logins.died.get(&front)?;
        let own = self.logins.fronts.get(&front).map(|(host, _)| *host);
        let apid = self.lives.get(&front).and_then(|life| life.apid);
        let ran = apid.and_then(|apid| self.courses.get(&apid)).map(|course| &course.ran);
        let hosts = ran.into_iter().flat_map(|ran| ran.values().map(|(_, host)| *host));
        let disturbed = hosts.chain(own).filter_map(|host| self.logins.hosts_disturbed.get(&host));
        // (What stood in the way may have gone since.)
        let disturbed = disturbed.copied().max().unwrap_or(0).max(self.logins.disturbed);
        Some(disturbed.max(*died) + ORPHANED_MAX)
    }

    /// Whether what runs for a front end ends by itself, or is soon found to run on.
    pub fn may_be_orphaned(&self, front: Pid, now: u64) -> bool {
        self.orphaned_from(front).is_some_and(|from| now < from + ORPHANED_MAX)
    }

    /// Nothing runs on for long for a front end that has died. Returned: of how many front ends it was
    /// looked at for the first time.
    pub fn check_orphans(&mut self, now: u64, procs: &BTreeMap<ProcId, Proc>) -> usize {
        let found = procs.values().find_map(|proc| {
            let front = self.courses.get(&proc.key.apid)?.front;
            let died = self.logins.died.get(&front)?;
            (now > self.orphaned_from(front)?).then_some((proc.key, front, now - died))
        });
        if let Some((key, front, time)) = found {
            let seconds = time / SECOND;
            self.broken(format!("{key} runs {seconds} s after its aprun {front} has died"));
        }
        let due = |front: &&Pid| {
            !self.logins.looked.contains(front)
                && self.orphaned_from(**front).is_some_and(|from| now > from)
        };
        let due: Vec<Pid> = self.logins.died.keys().filter(due).copied().collect();
        self.logins.looked.extend(&due);
        due.len()
    }
}
