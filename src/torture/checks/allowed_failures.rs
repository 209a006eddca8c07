//! What justifies that an application ends with 125: the very event that its cause names.

use super::Checks;
use crate::apteam::ending::{Cause, NOT_THE_PROGRAM};
use crate::apteam::record::Apteam;
use crate::apteam::{Apid, Key};
use crate::machine::Nid;
use crate::torture::wire::Pid;
use std::collections::BTreeSet;

/// What happened to one application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// The host of this node lost power.
    Power(Nid),
    /// Its shepherd there was killed, or could not be made.
    Shepherd(Nid),
    /// Its aprun died, was stopped, or was to end it.
    Front,
    /// An administrator has put an older or another state in psched's place.
    Forgotten,
}

impl Checks {
    /// These nodes are on this host.
    pub fn node_is_on(&mut self, nids: &BTreeSet<Nid>, host: usize) {
        self.hosts.extend(nids.iter().map(|nid| (*nid, host)));
    }

    pub(super) fn happened(&mut self, apid: Apid, why: Why) {
        self.course(apid).why.insert(why);
    }

    /// This aprun says nothing for a while.
    pub fn napped(&mut self, front: Pid) {
        let Some(life) = self.lives.get_mut(&front) else { return };
        life.napped = true;
        if let Some(apid) = life.apid {
            self.happened(apid, Why::Front);
        }
    }

    /// An apinit is dead or stopped, or obeys no psched that it reaches, until then.
    pub fn apinit_away(&mut self, nids: &BTreeSet<Nid>, until: u64) {
        self.away.extend(nids.iter().map(|nid| (*nid, until)));
    }

    /// psched is dead or stopped until then.
    pub fn psched_away(&mut self, until: u64) {
        self.psched_away = until;
    }

    /// Nothing, or not everything, goes between two hosts until then.
    pub fn cut(&mut self, a: usize, b: usize, until: u64) {
        self.cuts.push((a.min(b), a.max(b), until));
    }

    pub(super) fn is_cut(&self, a: Option<&usize>, b: Option<&usize>, since: u64) -> bool {
        let (Some(a), Some(b)) = (a, b) else { return false };
        let own = (*a.min(b), *a.max(b));
        self.cuts.iter().any(|(a, b, until)| (*a, *b) == own && *until >= since)
    }

    /// It has got a place.
    pub(super) fn placed(&mut self, now: u64, key: Key) {
        self.placed.entry(key).or_insert(now);
    }

    /// Whether what has happened justifies this cause of a 125.
    pub(super) fn is_justified(&self, team: &Apteam, cause: &Cause) -> bool {
        let Some(course) = self.courses.get(&team.apid) else { return false };
        let since = self.placed.get(&team.key()).copied().unwrap_or(0);
        let away = |nid: &Nid| self.away.get(nid).is_some_and(|until| *until >= since);
        let had = |why: Why| course.why.contains(&why);
        let head = team.places.nids().next();
        let host = |nid: Option<Nid>| nid.and_then(|nid| self.hosts.get(&nid));
        if had(Why::Forgotten) {
            return true;
        }
        match cause {
            // Its apinit waits for an aprun on another host, but not for ever.
            Cause::FrontGone => {
                had(Why::Front)
                    || self.lives.get(&course.front).is_some_and(|l| l.exit.is_some() || l.napped)
                    || head.as_ref().is_some_and(away)
                    || self.is_cut(Some(&0), host(head), since)
                    || self.front_is_out_of_reach(course.front, host(head), since)
            }
            Cause::ShepherdLost { nid, .. } | Cause::NodeLost { nid, .. }
                if had(Why::Shepherd(*nid)) || had(Why::Power(*nid)) =>
            {
                true
            }
            // A launch waits for every apinit to know of the place, but not for ever; and where
            // something else ended it the launch may not have come to every host.
            Cause::NodeLost { nid, .. } => {
                let started = course.ran.len() < team.posting.shape.width as usize;
                let own = host(Some(*nid));
                started
                    && (!course.why.is_empty()
                        || away(nid)
                        || self.psched_away >= since
                        || self.is_cut(own, host(head), since)
                        || self.is_cut(own, Some(&0), since))
            }
            // What stood in the way of a restore, or the death of an apinit in the midst of it.
            Cause::LaunchFailed { errno: NOT_THE_PROGRAM, .. } if course.restarted => {
                course.not_restored || head.as_ref().is_some_and(away)
            }
            _ => false,
        }
    }
}
