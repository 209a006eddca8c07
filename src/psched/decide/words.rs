//! What the word of a host counts for: its own nodes, and applications that have a part there.
//!
//! # Problem
//! A report comes from an apinit that psched knows by its certificate, and root of that host can have it say
//! anything. If psched took each report as true, root of one host could free processors of another host on which
//! PEs still run, or have nodes drained that work.
//!
//! # Approach
//! Before a report has an effect it is cut to what its host can know:
//!
//! | report | counts |
//! | --- | --- |
//! | launched | from the host of PE 0; another one's means that it can't give its part back |
//! | running, signals taken, to be heard | from the host of PE 0 alone |
//! | ended | for the nodes of the link that the application has |
//! | stuck | for the nodes of the link that the application has |
//! | moved, not moved, movable, memory out | where the application has a node of the link |
//! | changes of party, memory, time that it ran or was idle | where the application has a node of the link |
//! | time that it ran or was frozen | not more than since its posting |
//! | a launch that failed | against a node only where its own host, or psched, says so |
//!
//! The same holds for an inventory: that an application is launched or runs counts from the host of
//! PE 0 alone. Another host has its part, or does not have it.
//!
//! What a host has heard of another still says how an application ended: that concerns the application, and the
//! host has a part of it.

use super::{LinkId, Now, Scheduler};
use crate::apteam::Key;
use crate::apteam::protocol::node::Report;
use crate::machine::{Nid, NidSet};
use std::time::Duration;

/// By so much the clock of psched's host may have been set back since a posting: psched-hosts(7)
/// says that a clock which is wrong by less than an hour does no harm.
pub(super) const CLOCK_SET: Duration = Duration::from_secs(3_600);

impl Scheduler {
    /// What counts of a report; `None`: nothing.
    pub(super) fn counted(&self, now: Now, link: LinkId, report: Report) -> Option<Report> {
        let of = self.links.get(&link)?;
        let own = NidSet::of(&of.hello.nids);
        let counts = match &report {
            Report::Running(key)
            | Report::SignalsTaken { key, .. }
            | Report::ToHear { key, .. } => self.is_head_on(*key, &own),
            Report::Stuck { key, nid, .. } => {
                own.contains(*nid)
                    && (self.is_on(*key, &NidSet::of(&[*nid]))
                        || self.occupancy.holds(key.apid, *nid))
            }
            Report::Launched(key)
            | Report::Movable { key, .. }
            | Report::Moved { key, .. }
            | Report::MoveFailed { key, .. }
            | Report::RolledOut { key, .. } => self.is_on(*key, &own),
            Report::Ended(_)
            | Report::TakenBack { .. }
            | Report::PlanTaken(_)
            | Report::Switches(_) => true,
        };
        match report {
            Report::Ended(mut end) => {
                // (What a node holds that obeys another psched the records need not have so.)
                let team = self.teams.get(&end.key.apid).filter(|team| team.key() == end.key);
                let team = team.filter(|_| of.foreign.is_none());
                let has = |nid: Nid| match team {
                    Some(team) => {
                        self.occupancy.holds(team.apid, nid)
                            || team.places.nids().any(|own| own == nid)
                    }
                    None => true,
                };
                end.nids.retain(|nid| own.contains(*nid) && has(*nid));
                end.lost.retain(|nid| own.contains(*nid));
                end.run = end.run.min(self.ran_at_most(now, end.key));
                end.frozen = end.frozen.min(self.ran_at_most(now, end.key));
                Some(Report::Ended(end))
            }
            Report::Switches(mut told) => {
                for (key, ran) in &mut told.ran {
                    *ran = (*ran).min(self.ran_at_most(now, *key));
                }
                Some(Report::Switches(told))
            }
            report => counts.then_some(report),
        }
    }

    /// How long an application has run at most by now: since it was posted, and before that what it
    /// brings from its checkpoint.
    fn ran_at_most(&self, now: Now, key: Key) -> Duration {
        let Some(team) = self.teams.get(&key.apid) else { return CLOCK_SET };
        let since = Duration::from_nanos(now.wall_ns.saturating_sub(team.posted_at_ns));
        since.saturating_add(team.run_before()).saturating_add(CLOCK_SET)
    }

    /// Whether PE 0 of an application is on one of these nodes.
    fn is_head_on(&self, key: Key, nids: &NidSet) -> bool {
        let team = self.teams.get(&key.apid);
        team.and_then(|team| team.places.nids().next()).is_some_and(|nid| nids.contains(nid))
    }

    /// Whether PE 0 of an application is on a node of this link.
    pub(super) fn has_head(&self, link: LinkId, key: Key) -> bool {
        let of = self.links.get(&link);
        of.is_some_and(|of| self.is_head_on(key, &NidSet::of(&of.hello.nids)))
    }

    /// Whether an application has one of these nodes.
    pub(super) fn is_on(&self, key: Key, nids: &NidSet) -> bool {
        let team = self.teams.get(&key.apid);
        team.is_some_and(|team| team.places.nids().any(|nid| nids.contains(nid)))
    }
}
