//! Words that every service shares: keys, places, endings.

use super::{COUNT_MAX, Field, Malformed, NODES_MAX, TEXT_MAX, all, bare, given, ms};
use crate::apteam::bounds::Bounds;
use crate::apteam::change::By;
use crate::apteam::ending::{Cause, Decisive, EndCount, HostEnd, PeEnd, Usage};
use crate::apteam::place::{HostPart, Place, PlacementList};
use crate::apteam::posting::{Explanation, Owner, Shape, cut};
use crate::apteam::{Apid, Incarnation, Key};
use crate::machine::Nid;
use crate::rpc::pb;
use std::time::Duration;

/// The most ways for PEs to end that are told apart: 256 codes and 64 signals, each by itself and
/// in consequence, with room to spare.
const ENDS_MAX: usize = 1024;

/// The largest sum of microseconds or blocks: above any real one, and far from an overflow when
/// those of many hosts are added up.
const SUM_MAX: u64 = 1 << 44;

impl From<Bounds> for pb::ApplicationBounds {
    fn from(bounds: Bounds) -> Self {
        let Bounds { output, stdin, pmi } = bounds;
        Self { output, stdin, pmi }
    }
}

/// What is not given has its default.
pub fn bounds(given_bounds: Option<pb::ApplicationBounds>) -> Bounds {
    let pb::ApplicationBounds { output, stdin, pmi } = given_bounds.unwrap_or_default();
    let default = Bounds::default();
    Bounds {
        output: given(output).unwrap_or(default.output),
        stdin: given(stdin).unwrap_or(default.stdin),
        pmi: given(pmi).unwrap_or(default.pmi),
    }
}

impl From<Key> for pb::ApplicationKey {
    fn from(key: Key) -> Self {
        Self { apid: key.apid.0, incarnation: key.incarnation.0 }
    }
}

impl TryFrom<pb::ApplicationKey> for Key {
    type Error = Malformed;
    fn try_from(key: pb::ApplicationKey) -> Result<Self, Malformed> {
        Ok(Key { apid: Apid(key.apid), incarnation: Incarnation(key.incarnation) })
    }
}

impl From<Owner> for pb::Owner {
    fn from(owner: Owner) -> Self {
        let Owner { uid, gid, groups, name, terminal } = owner;
        Self { uid, gid, groups, name: cut(name, TEXT_MAX), terminal }
    }
}

impl TryFrom<pb::Owner> for Owner {
    type Error = Malformed;
    fn try_from(owner: pb::Owner) -> Result<Self, Malformed> {
        let pb::Owner { uid, gid, groups, name, terminal } = owner;
        let groups = Field("Owner", "groups").numbers(groups)?;
        Ok(Owner { uid, gid, groups, name: Field("Owner", "name").text(name)?, terminal })
    }
}

impl From<By> for pb::By {
    fn from(by: By) -> Self {
        let By { uid, name, at_ns } = by;
        Self { uid, user: cut(name, TEXT_MAX), at_ns }
    }
}

impl TryFrom<pb::By> for By {
    type Error = Malformed;
    fn try_from(by: pb::By) -> Result<Self, Malformed> {
        let pb::By { uid, user, at_ns } = by;
        Ok(By { uid, name: Field("By", "user").text(user)?, at_ns })
    }
}

impl From<Shape> for pb::Shape {
    fn from(shape: Shape) -> Self {
        let Shape { width, depth, per_node } = shape;
        Self { width, depth, per_node: per_node.unwrap_or(0) }
    }
}

impl TryFrom<pb::Shape> for Shape {
    type Error = Malformed;
    fn try_from(shape: pb::Shape) -> Result<Self, Malformed> {
        Ok(Shape {
            width: Field("Shape", "width").positive(shape.width)?,
            depth: Field("Shape", "depth").positive(shape.depth)?,
            per_node: Some(shape.per_node).filter(|n| *n != 0),
        })
    }
}

impl From<Place> for pb::Place {
    fn from(place: Place) -> Self {
        Self { nid: place.nid.0, processors: place.processors, pes: place.pes }
    }
}

impl TryFrom<pb::Place> for Place {
    type Error = Malformed;
    fn try_from(place: pb::Place) -> Result<Self, Malformed> {
        let processors = Field("Place", "processors").numbers(place.processors)?;
        let pes = Field("Place", "pes").positive(place.pes)?;
        let shares = processors.len() < pes as usize;
        if !shares && processors.len() % pes as usize != 0 {
            return Field("Place", "processors")
                .wrong(format_args!("{} for {pes} PEs, not as many for each", processors.len()));
        }
        Ok(Place { nid: Nid(place.nid), processors, pes })
    }
}

/// A placement list as a message has it.
pub fn wire_places(list: &PlacementList) -> Vec<pb::Place> {
    list.0.iter().cloned().map(Into::into).collect()
}

/// The placement list of a message; an error where a place is malformed.
pub fn placement_list(places: Vec<pb::Place>) -> Result<PlacementList, Malformed> {
    let places: Vec<Place> = Field("Placement", "places").list(places, NODES_MAX)?;
    Ok(PlacementList(places.into()))
}

impl From<HostPart> for pb::HostPart {
    fn from(host: HostPart) -> Self {
        Self { nids: bare(host.nids), socket: host.socket, host_id: host.host_id }
    }
}

impl TryFrom<pb::HostPart> for HostPart {
    type Error = Malformed;
    fn try_from(host: pb::HostPart) -> Result<Self, Malformed> {
        Ok(HostPart {
            nids: Field("HostPart", "nids").nids(host.nids)?,
            socket: Field("HostPart", "socket").text(host.socket)?,
            host_id: Field("HostPart", "host_id").text(host.host_id)?,
        })
    }
}

impl From<Usage> for pb::Usage {
    fn from(usage: Usage) -> Self {
        let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX).min(SUM_MAX);
        Self {
            utime_us: us(usage.utime),
            stime_us: us(usage.stime),
            max_rss_kib: usage.max_rss_kib,
            inblocks: usage.inblocks.min(SUM_MAX),
            outblocks: usage.outblocks.min(SUM_MAX),
        }
    }
}

impl TryFrom<pb::Usage> for Usage {
    type Error = Malformed;
    fn try_from(usage: pb::Usage) -> Result<Self, Malformed> {
        let sum = |field, n| Field("Usage", field).between(n, 0, SUM_MAX);
        Ok(Usage {
            utime: Duration::from_micros(sum("utime_us", usage.utime_us)?),
            stime: Duration::from_micros(sum("stime_us", usage.stime_us)?),
            max_rss_kib: usage.max_rss_kib,
            inblocks: sum("inblocks", usage.inblocks)?,
            outblocks: sum("outblocks", usage.outblocks)?,
        })
    }
}

impl From<Cause> for pb::Cause {
    fn from(cause: Cause) -> Self {
        use pb::cause::Kind;
        // (Such a text may hold one that came in a message.)
        let cut = |text| cut(text, TEXT_MAX);
        let of = |kind: Kind| pb::Cause { kind: kind.into(), ..pb::Cause::default() };
        match cause {
            Cause::PeExit { rank, nid, code } => {
                pb::Cause { rank, nid: nid.0, code: code.into(), ..of(Kind::PeExit) }
            }
            Cause::PeSignal { rank, nid, signal } => {
                pb::Cause { rank, nid: nid.0, signal, ..of(Kind::PeSignal) }
            }
            Cause::Abort { rank, nid, code } => {
                pb::Cause { rank, nid: nid.0, code, ..of(Kind::Abort) }
            }
            Cause::NoFinalize { rank, nid, code } => {
                pb::Cause { rank, nid: nid.0, code: code.into(), ..of(Kind::NoFinalize) }
            }
            Cause::Garbage { rank, nid, text } => {
                pb::Cause { rank, nid: nid.0, text: cut(text), ..of(Kind::Garbage) }
            }
            Cause::Kill { signal, uid } => pb::Cause { signal, uid, ..of(Kind::Kill) },
            Cause::TimeLimit { limit } => pb::Cause { limit_ms: ms(limit), ..of(Kind::TimeLimit) },
            Cause::FrontGone => of(Kind::FrontGone),
            Cause::StdoutClosed => of(Kind::StdoutClosed),
            Cause::LaunchFailed { rank, nid, errno, text } => pb::Cause {
                rank,
                nid: nid.0,
                code: errno,
                text: cut(text),
                ..of(Kind::LaunchFailed)
            },
            Cause::ShepherdLost { nid, text } => {
                pb::Cause { nid: nid.0, text: cut(text), ..of(Kind::ShepherdLost) }
            }
            Cause::NodeLost { nid, text } => {
                pb::Cause { nid: nid.0, text: cut(text), ..of(Kind::NodeLost) }
            }
            Cause::NoRecord => of(Kind::NoRecord),
            Cause::OverMemory { nid, pes, per_pe, largest } => {
                let (rank, largest) = largest.unwrap_or_default();
                pb::Cause {
                    nid: nid.0,
                    pes: pes.min(COUNT_MAX),
                    memory_per_pe: per_pe,
                    rank,
                    largest,
                    ..of(Kind::OverMemory)
                }
            }
            Cause::HostMemory { rank, nid } => {
                pb::Cause { rank, nid: nid.0, ..of(Kind::HostMemory) }
            }
            Cause::Purge { uid } => pb::Cause { uid, ..of(Kind::Purge) },
            Cause::Checkpointed { uid } => pb::Cause { uid, ..of(Kind::Checkpointed) },
        }
    }
}

impl TryFrom<pb::Cause> for Cause {
    type Error = Malformed;
    fn try_from(cause: pb::Cause) -> Result<Self, Malformed> {
        use pb::cause::Kind;
        let pb::Cause { kind: number, rank, nid, code, signal, uid, limit_ms, text, .. } = cause;
        let text = Field("Cause", "text").text(text)?;
        let nid = Nid(nid);
        let code_of_exit = || Field("Cause", "code").exit_code(code);
        let signal_sent = || Field("Cause", "signal").signal(signal);
        let Ok(kind) = Kind::try_from(number) else {
            return Field("Cause", "kind").wrong(format_args!("{number} is no kind"));
        };
        Ok(match kind {
            Kind::Unknown => return Field("Cause", "kind").wrong("it is missing"),
            Kind::PeExit => Cause::PeExit { rank, nid, code: code_of_exit()? },
            Kind::PeSignal => Cause::PeSignal { rank, nid, signal: signal_sent()? },
            Kind::Abort => Cause::Abort { rank, nid, code },
            Kind::NoFinalize => Cause::NoFinalize { rank, nid, code: code_of_exit()? },
            Kind::Garbage => Cause::Garbage { rank, nid, text },
            Kind::Kill => Cause::Kill { signal: signal_sent()?, uid },
            Kind::TimeLimit => Cause::TimeLimit { limit: Duration::from_millis(limit_ms) },
            Kind::FrontGone => Cause::FrontGone,
            Kind::StdoutClosed => Cause::StdoutClosed,
            Kind::LaunchFailed => Cause::LaunchFailed { rank, nid, errno: code, text },
            Kind::ShepherdLost => Cause::ShepherdLost { nid, text },
            Kind::NodeLost => Cause::NodeLost { nid, text },
            Kind::NoRecord => Cause::NoRecord,
            Kind::OverMemory => Cause::OverMemory {
                nid,
                pes: Field("Cause", "pes").between(cause.pes, 0, COUNT_MAX)?,
                per_pe: cause.memory_per_pe,
                largest: given(cause.largest).map(|bytes| (rank, bytes)),
            },
            Kind::HostMemory => Cause::HostMemory { rank, nid },
            Kind::Purge => Cause::Purge { uid },
            Kind::Checkpointed => Cause::Checkpointed { uid },
        })
    }
}

impl From<Decisive> for pb::Decisive {
    fn from(decisive: Decisive) -> Self {
        Self { at_mono_ns: decisive.at_ns, cause: Some(decisive.cause.into()) }
    }
}

impl TryFrom<pb::Decisive> for Decisive {
    type Error = Malformed;
    fn try_from(decisive: pb::Decisive) -> Result<Self, Malformed> {
        let cause = Field("Decisive", "cause").need(decisive.cause)?;
        Ok(Decisive { at_ns: decisive.at_mono_ns, cause })
    }
}

impl From<EndCount> for pb::EndCount {
    fn from(counted: EndCount) -> Self {
        let EndCount { end, count, consequence } = counted;
        let (code, signal) = match end {
            PeEnd::Exit(code) => (code.into(), 0),
            PeEnd::Signal(signal) => (0, signal),
        };
        Self { code, signal, count: count.min(COUNT_MAX), consequence }
    }
}

impl TryFrom<pb::EndCount> for EndCount {
    type Error = Malformed;
    fn try_from(counted: pb::EndCount) -> Result<Self, Malformed> {
        let pb::EndCount { code, signal, count, consequence } = counted;
        let end = match (code, signal) {
            (code, 0) => PeEnd::Exit(Field("EndCount", "code").exit_code(code)?),
            (0, signal) => PeEnd::Signal(Field("EndCount", "signal").signal(signal)?),
            _ => return Field("EndCount", "code").wrong("a code and a signal at once"),
        };
        let count = Field("EndCount", "count").between(count, 0, COUNT_MAX)?;
        Ok(EndCount { end, count, consequence })
    }
}

impl From<HostEnd> for pb::HostEnd {
    fn from(end: HostEnd) -> Self {
        Self {
            key: Some(end.key.into()),
            nids: bare(end.nids),
            launched: end.launched,
            first: end.first.map(Into::into),
            ends: all(end.ends),
            usage: Some(end.usage.into()),
            leftovers: end.leftovers.min(COUNT_MAX),
            output_lost: end.output_lost,
            run_ms: ms(end.run),
            frozen_ms: ms(end.frozen),
            lost: bare(end.lost),
            peak_memory: end.peak_memory,
        }
    }
}

impl TryFrom<pb::HostEnd> for HostEnd {
    type Error = Malformed;
    fn try_from(end: pb::HostEnd) -> Result<Self, Malformed> {
        Ok(HostEnd {
            key: Field("HostEnd", "key").need(end.key)?,
            nids: Field("HostEnd", "nids").nids(end.nids)?,
            launched: end.launched,
            first: Field("HostEnd", "first").maybe(end.first)?,
            ends: Field("HostEnd", "ends").list(end.ends, ENDS_MAX)?,
            usage: Field("HostEnd", "usage").maybe(end.usage)?.unwrap_or_default(),
            leftovers: Field("HostEnd", "leftovers").between(end.leftovers, 0, COUNT_MAX)?,
            output_lost: end.output_lost,
            run: Duration::from_millis(end.run_ms),
            frozen: Duration::from_millis(end.frozen_ms),
            lost: Field("HostEnd", "lost").nids(end.lost)?,
            peak_memory: end.peak_memory,
        })
    }
}

/// An application's end, for its front end.
impl From<HostEnd> for pb::Ended {
    fn from(end: HostEnd) -> Self {
        Self { status: end.status().into(), end: Some(end.into()) }
    }
}

/// The status that psched has made of an end, and that end.
impl TryFrom<pb::Ended> for (u8, HostEnd) {
    type Error = Malformed;
    fn try_from(ended: pb::Ended) -> Result<Self, Malformed> {
        let status = Field("Ended", "status").between(ended.status, 0, u8::MAX.into())?;
        Ok((status as u8, Field("Ended", "end").need(ended.end)?))
    }
}

impl From<Explanation> for pb::Explanation {
    fn from(explanation: Explanation) -> Self {
        let Explanation { obstacle, holder, cure } = explanation;
        Self { obstacle, holder, cure }
    }
}

impl TryFrom<pb::Explanation> for Explanation {
    type Error = Malformed;
    fn try_from(explanation: pb::Explanation) -> Result<Self, Malformed> {
        let pb::Explanation { obstacle, holder, cure } = explanation;
        Ok(Explanation {
            obstacle: Field("Explanation", "obstacle").text(obstacle)?,
            holder: Field("Explanation", "holder").text(holder)?,
            cure: Field("Explanation", "cure").text(cure)?,
        })
    }
}
