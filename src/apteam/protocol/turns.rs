//! psched and apinit about turns: which gang runs when, and how the changes went.
//!
//! The gangs of a component of competitors take turns by one plan ([`crate::gang`]). Each apinit that
//! has a part of one of them is sent its part of the plan. A plan that concerns several apinits
//! counts once psched has said so ([`Command::AgreePlan`](super::node::Command::AgreePlan)), which it
//! does when all have acknowledged it; one that concerns a single apinit is sent as agreed.
//!
//! Times are nanoseconds of psched's CLOCK_MONOTONIC; an apinit keeps what its own is ahead.

use crate::apteam::Key;
use crate::machine::Nid;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::time::Duration;

/// One slice, as one apinit is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedSlice {
    /// For how long.
    pub length: Duration,
    /// Who of those on this apinit runs, the one that leads first; none: nobody here.
    pub party: Vec<Key>,
}

/// An apinit's part of the plan of a component.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SlicePlan {
    /// Counted up by psched over all its plans, over its starts too. A gang obeys the highest that
    /// names it.
    pub generation: u64,
    /// When its first slice begins, or began: positions in the plan are counted from there.
    pub begins_ns: u64,
    /// From when on it is obeyed; until then what was before. Not before `begins_ns`: a plan may begin
    /// in the middle of a slice that is on.
    pub from_ns: u64,
    /// It counts already: nobody else has to be asked.
    pub agreed: bool,
    /// Everyone of the component who sits on this apinit. Who is in no slice does not run.
    pub members: Vec<Key>,
    /// One after the other, and then from the beginning. None: nobody here runs.
    pub slices: Vec<PlannedSlice>,
    /// In which order members get the time that another gives away: first those that would lead without it. Members
    /// that are not named follow, by their next turn. At most [`TAKERS_MAX`].
    pub takers: Vec<Key>,
}

/// The most gangs of a plan that are named as [`SlicePlan::takers`].
pub const TAKERS_MAX: usize = 16;

/// By what means an apinit stops a gang.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum StopMeans {
    /// The freezer of cgroup v2.
    #[default]
    Freezer,
    /// SIGSTOP and SIGCONT, which programs and their parents see.
    Signals,
}

/// One change of party on one apinit, as it was measured there.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Switch {
    /// Of which plan; 0: of none (a gang came, or went).
    pub generation: u64,
    /// When the plan wanted it.
    pub due_ns: u64,
    /// When it began.
    pub began_ns: u64,
    /// From there until every outgoing gang was frozen, or no longer waited for.
    pub freeze_ns: u64,
    /// From there until the incoming gangs had been let run.
    pub gap_ns: u64,
    /// Groups that were not known to be frozen by then.
    pub not_yet_frozen: u32,
    /// Who was stopped.
    pub stopped: Vec<Key>,
    /// Who was let run.
    pub started: Vec<Key>,
    /// Bytes of memory that were out (in swap) and had to come before they ran. A gang that had to
    /// wait for that is told in a change of its own, in which nobody is stopped.
    pub brought: u64,
}

/// What an apinit tells of its changes, at most each second.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Switches {
    /// The latest, in order.
    pub switches: Vec<Switch>,
    /// Changes before them that are not told one by one.
    pub left_out: u64,
    /// The most memory in bytes that an application has had on a node of this apinit so far, where
    /// that is measured.
    pub peaks: Vec<(Key, Nid, u64)>,
    /// How long gangs have run by now, without the time that they were frozen: all gangs for a psched that has
    /// just come, whose records have only when they were launched, and those that have changed for any.
    pub ran: Vec<(Key, Duration)>,
    /// How long gangs were idle, since the last report, while no other gang waited for their processors. This
    /// time is not charged.
    pub idle: Vec<(Key, Duration)>,
}

impl Switches {
    /// Whether there is nothing of the switching thread's to tell.
    pub fn is_empty(&self) -> bool {
        self.switches.is_empty() && self.idle.is_empty()
    }

    /// The gangs that were stopped or let run in these changes.
    pub fn changed(&self) -> BTreeSet<Key> {
        let all =
            self.switches.iter().flat_map(|switch| switch.stopped.iter().chain(&switch.started));
        all.copied().collect()
    }
}

/// Gangs that one change stops or lets run on a host, at most. More are left out.
pub const GANGS_MAX: usize = 4_096;
/// Changes in one report, at most.
pub const SWITCHES_MAX: usize = 256;
