//! A plan, how far it is agreed, and what an apinit is told of it.

use crate::apteam::Apid;
use crate::gang::member_index::MemberIndex;
use crate::gang::plan::{Plan, SLICE_MIN};
use crate::psched::decide::LinkId;
use crate::variables::units::nanos;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::time::Duration;

/// A plan, and how far it is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Planned {
    /// Everybody whom it is about, by number.
    pub(super) members: Vec<Apid>,
    pub(super) plan: Plan,
    pub(super) round: Round,
    /// Where positions are counted from.
    pub(super) begins_ns: u64,
    /// From when on it is obeyed.
    pub(super) from_ns: u64,
    /// How long before its beginning a plan has to be sent to these apinits, in nanoseconds.
    pub(super) lead_ns: u64,
    /// Time had is on the account of its members until then.
    pub(super) accounted_ns: u64,
    /// The apinits that were asked.
    pub(super) asked: BTreeSet<LinkId>,
    /// Those of them that have not answered, and until when they may.
    pub(super) missing: Option<(BTreeSet<LinkId>, u64)>,
    /// It has floors.
    pub(super) floors: bool,
    /// Who is to lead at once by it.
    pub(super) early: BTreeSet<Apid>,
    /// In which order members get the time that one of them gives away; the others by their next turn.
    pub(super) takers: Vec<Apid>,
}

/// A plan once through, in nanoseconds: what is asked of it again and again.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Round {
    pub(super) length: u64,
    /// How long each member runs.
    pub(super) each: Vec<u64>,
    /// The index of each member.
    pub(super) index: MemberIndex,
}

impl Round {
    pub(super) fn of(members: &[Apid], plan: &Plan) -> Round {
        let mut each = vec![0u64; members.len()];
        let index = MemberIndex::of(members.iter().copied());
        for slice in &plan.slices {
            let length = nanos(slice.length);
            for member in slice.party.iter().filter_map(|apid| index.get(*apid)) {
                each[member] = each[member].saturating_add(length);
            }
        }
        Round { length: nanos(plan.length()), each, index }
    }
}

impl Planned {
    /// Which part of the time a member runs, from 0 to 1.
    pub(super) fn share_of_time(&self, apid: Apid) -> f64 {
        let time = self.round.index.get(apid).and_then(|at| self.round.each.get(at));
        time.map_or(0.0, |time| *time as f64 / self.round.length.max(1) as f64)
    }

    /// By a decision of who runs, until another is taken: what it says beyond that is for nodes without psched.
    pub(super) fn is_decided(&self) -> bool {
        !self.floors
    }

    /// The slice that is on then by its number, since when, and how much of it is left.
    pub(super) fn at(&self, ns: u64) -> Option<(usize, u64, Duration)> {
        let after = Duration::from_nanos(ns.saturating_sub(self.begins_ns));
        let (number, left) = self.plan.at(after)?;
        let gone = self.plan.slices[number].length.saturating_sub(left);
        Some((number, ns.saturating_sub(nanos(gone)), left))
    }

    /// When it has to be made anew.
    pub(super) fn over_ns(&self) -> Option<u64> {
        if self.is_decided() && !self.plan.repeats {
            // Long before who runs gives way to whoever waits.
            return Some(self.begins_ns.saturating_add(self.first_ns() / 6 * 5));
        }
        let over = || self.begins_ns.saturating_add(nanos(self.plan.length()));
        (!self.plan.repeats && !self.plan.slices.is_empty()).then(over)
    }

    /// Whether it is made anew now that something happens anyway, so that psched need not be woken for it.
    pub(super) fn is_ripe(&self, now_ns: u64) -> bool {
        let ripe = |over: u64| over.saturating_sub(self.first_ns() / 6) <= now_ns;
        let decided = self.is_decided() && self.missing.is_none();
        decided && self.over_ns().is_some_and(ripe)
    }

    /// How long its first slice is.
    fn first_ns(&self) -> u64 {
        self.plan.slices.first().map_or(0, |slice| nanos(slice.length))
    }

    /// Whether it is obeyed beyond its end by then, although it is not to be repeated: a next plan did not come in
    /// time.
    pub(super) fn is_overdue(&self, ns: u64) -> bool {
        self.over_ns().is_some_and(|over| over <= ns)
    }

    /// When something is to be done about it; `u64::MAX`: never.
    pub(super) fn due_ns(&self) -> u64 {
        match (&self.missing, self.over_ns()) {
            (Some((_, until_ns)), _) => *until_ns,
            // So that the next begins a little before, and it does not begin again; but not before it has begun.
            (None, Some(over)) => {
                let before = self.lead_ns.saturating_add(nanos(SLICE_MIN) / 2);
                over.saturating_sub(before.max(nanos(SLICE_MIN))).max(self.from_ns)
            }
            (None, None) => u64::MAX,
        }
    }
}
