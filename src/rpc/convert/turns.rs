//! psched and apinit about turns.

use super::{Field, LIST_MAX, LONG_LIST_MAX, Malformed, all, nanos};
use crate::apteam::Key;
use crate::apteam::protocol::turns::{
    PlannedSlice, SWITCHES_MAX, SlicePlan, StopMeans, Switch, Switches, TAKERS_MAX,
};
use crate::machine::Nid;
use crate::rpc::pb;
use std::collections::BTreeMap;
use std::time::Duration;

impl From<StopMeans> for pb::StopMeans {
    fn from(means: StopMeans) -> Self {
        match means {
            StopMeans::Freezer => Self::Freezer,
            StopMeans::Signals => Self::Signals,
        }
    }
}

impl From<pb::StopMeans> for StopMeans {
    fn from(means: pb::StopMeans) -> Self {
        match means {
            pb::StopMeans::Freezer => Self::Freezer,
            pb::StopMeans::Signals => Self::Signals,
        }
    }
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

impl From<Switch> for pb::Switch {
    fn from(switch: Switch) -> Self {
        Self {
            generation: switch.generation,
            due_mono_ns: switch.due_ns,
            began_mono_ns: switch.began_ns,
            freeze_ns: switch.freeze_ns,
            gap_ns: switch.gap_ns,
            not_yet_frozen: switch.not_yet_frozen,
            stopped: all(switch.stopped),
            started: all(switch.started),
            brought_bytes: switch.brought,
        }
    }
}

impl TryFrom<pb::Switch> for Switch {
    type Error = Malformed;
    fn try_from(switch: pb::Switch) -> Result<Self, Malformed> {
        let of = |field| Field("Switch", field);
        Ok(Switch {
            generation: switch.generation,
            due_ns: switch.due_mono_ns,
            began_ns: switch.began_mono_ns,
            freeze_ns: switch.freeze_ns,
            gap_ns: switch.gap_ns,
            not_yet_frozen: switch.not_yet_frozen,
            stopped: of("stopped").list(switch.stopped, LIST_MAX)?,
            started: of("started").list(switch.started, LIST_MAX)?,
            brought: switch.brought_bytes,
        })
    }
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

impl From<Switches> for pb::Switches {
    fn from(told: Switches) -> Self {
        let Switches { switches, left_out, peaks, ran, idle } = told;
        let (switches, peaks) = (all(switches), all(peaks));
        Self { switches, left_out, peaks, ran: all(ran), idle: all(idle) }
    }
}

impl TryFrom<pb::Switches> for Switches {
    type Error = Malformed;
    fn try_from(told: pb::Switches) -> Result<Self, Malformed> {
        let of = |field| Field("Switches", field);
        Ok(Switches {
            switches: of("switches").list(told.switches, SWITCHES_MAX)?,
            left_out: told.left_out,
            peaks: of("peaks").list(told.peaks, LIST_MAX)?,
            ran: of("ran").list(told.ran, LIST_MAX)?,
            idle: of("idle").list(told.idle, LIST_MAX)?,
        })
    }
}
