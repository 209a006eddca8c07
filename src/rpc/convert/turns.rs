//! psched and apinit about turns.

use super::codec::{First, List, Same};
use super::table::{kinds, message};
use super::{Field, LIST_MAX, LONG_LIST_MAX, Malformed, all, nanos};
use crate::apteam::Key;
use crate::apteam::protocol::turns::{
    GANGS_MAX, PlannedSlice, SWITCHES_MAX, SlicePlan, StopMeans, Switch, Switches, TAKERS_MAX,
};
use crate::machine::Nid;
use crate::rpc::pb;
use std::collections::BTreeMap;
use std::time::Duration;

kinds! {
    StopMeans = StopMeans { Freezer, Signals }
}

/// The members at these indices, each once.
fn named(field: Field, indices: Vec<u32>, members: &[Key]) -> Result<Vec<Key>, Malformed> {
    let mut keys = Vec::with_capacity(indices.len().min(members.len()));
    for at in indices {
        match members.get(at as usize) {
            Some(key) if !keys.contains(key) => keys.push(*key),
            _ => return field.wrong(format_args!("{at} is no member, or twice")),
        }
    }
    Ok(keys)
}

impl From<SlicePlan> for pb::SlicePlan {
    fn from(plan: SlicePlan) -> Self {
        let index: BTreeMap<Key, u32> = plan.members.iter().copied().zip(0..).collect();
        let indices =
            |keys: &[Key]| keys.iter().filter_map(|key| index.get(key).copied()).collect();
        let slice = |slice: PlannedSlice| pb::PlannedSlice {
            length_ns: nanos(slice.length),
            party: indices(&slice.party),
        };
        Self {
            generation: plan.generation,
            begins_mono_ns: plan.begins_ns,
            from_mono_ns: plan.from_ns,
            agreed: plan.agreed,
            slices: plan.slices.into_iter().map(slice).collect(),
            takers: indices(&plan.takers),
            members: all(plan.members),
        }
    }
}

impl TryFrom<pb::SlicePlan> for SlicePlan {
    type Error = Malformed;
    fn try_from(plan: pb::SlicePlan) -> Result<Self, Malformed> {
        let of = |field| Field("SlicePlan", field);
        let members: Vec<Key> = of("members").list(plan.members, LIST_MAX)?;
        of("slices").bounded(&plan.slices, LONG_LIST_MAX)?;
        let mut slices = Vec::with_capacity(plan.slices.len());
        for slice in plan.slices {
            let of = |field| Field("PlannedSlice", field);
            let length = of("length_ns").between(slice.length_ns, 1, u64::MAX)?;
            let party = named(of("party"), slice.party, &members)?;
            slices.push(PlannedSlice { length: Duration::from_nanos(length), party });
        }
        of("takers").bounded(&plan.takers, TAKERS_MAX)?;
        let takers = named(of("takers"), plan.takers, &members)?;
        Ok(SlicePlan {
            generation: plan.generation,
            begins_ns: plan.begins_mono_ns,
            from_ns: of("from_mono_ns").between(
                plan.from_mono_ns,
                plan.begins_mono_ns,
                u64::MAX,
            )?,
            agreed: plan.agreed,
            members,
            slices,
            takers,
        })
    }
}

message! {
    Switch = Switch;
    generation: Same,
    due_ns = due_mono_ns: Same,
    began_ns = began_mono_ns: Same,
    freeze_ns: Same,
    gap_ns: Same,
    not_yet_frozen: Same,
    stopped: First(GANGS_MAX),
    started: First(GANGS_MAX),
    brought = brought_bytes: Same,
}

impl From<(Key, Nid, u64)> for pb::MemoryPeak {
    fn from((key, nid, bytes): (Key, Nid, u64)) -> Self {
        Self { key: Some(key.into()), bytes, nid: nid.0 }
    }
}

impl TryFrom<pb::MemoryPeak> for (Key, Nid, u64) {
    type Error = Malformed;
    fn try_from(peak: pb::MemoryPeak) -> Result<Self, Malformed> {
        Ok((Field("MemoryPeak", "key").need(peak.key)?, Nid(peak.nid), peak.bytes))
    }
}

impl From<(Key, Duration)> for pb::GangRan {
    fn from((key, ran): (Key, Duration)) -> Self {
        Self { key: Some(key.into()), run_ns: nanos(ran) }
    }
}

impl TryFrom<pb::GangRan> for (Key, Duration) {
    type Error = Malformed;
    fn try_from(ran: pb::GangRan) -> Result<Self, Malformed> {
        Ok((Field("GangRan", "key").need(ran.key)?, Duration::from_nanos(ran.run_ns)))
    }
}

message! {
    Switches = Switches;
    switches: List(SWITCHES_MAX),
    left_out: Same,
    peaks: List(LIST_MAX),
    ran: List(LIST_MAX),
    idle: List(LIST_MAX),
}
