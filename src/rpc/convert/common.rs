//! Words that every service shares: keys, places, endings.

use super::codec::{
    AtMost, COUNT, Codec, Cut, Else, ExitCode, Given, List, Millis, NodeId, Numbers, Optional,
    OrDefault, POSITIVE, Required, SIGNAL, Same, Text, Via, kind_or_default,
};
use super::runs::nids_of;
use super::table::{flat, kinds, message};
use super::{Field, Malformed, NODES_MAX, TEXT_MAX, given};
use crate::apteam::bounds::Bounds;
use crate::apteam::change::By;
use crate::apteam::ending::{Cause, Decisive, EndCount, HostEnd, PeEnd, Usage};
use crate::apteam::fault::Fault;
use crate::apteam::place::{HostPart, Place, PlacementList};
use crate::apteam::posting::{Explanation, Owner};
use crate::apteam::shape::Shape;
use crate::apteam::{Apid, Incarnation, Key};
use crate::machine::Nid;
use crate::rpc::pb;

/// The most ways for PEs to end that are told apart: 256 codes and 64 signals, each by itself and
/// in consequence, with room to spare.
const ENDS_MAX: usize = 1024;

/// The largest sum of microseconds or blocks: above any real one, and far from an overflow when
/// those of many hosts are added up.
const SUM: AtMost<u64> = AtMost(1 << 44);

message! {
    Bounds = ApplicationBounds;
    output: Else(Bounds::default().output),
    stdin: Else(Bounds::default().stdin),
    pmi: Else(Bounds::default().pmi),
}

message! {
    Key = ApplicationKey;
    apid: Via(|apid: Apid| apid.0, |_, apid| Ok(Apid(apid))),
    incarnation: Via(|number: Incarnation| number.0, |_, number| Ok(Incarnation(number))),
}

message! {
    Owner = Owner;
    uid: Same,
    gid: Same,
    groups: Numbers,
    name: Cut(TEXT_MAX),
    terminal: Same,
}

message! {
    By = By;
    uid: Same,
    name = user: Cut(TEXT_MAX),
    at_ns: Same,
}

message! {
    Shape = Shape;
    width: POSITIVE,
    depth: POSITIVE,
    per_node: Given,
}

message! {
    Place = Place;
    nid: NodeId,
    processors: Numbers,
    pes: POSITIVE,
    checked by as_many_for_each,
}

/// (Or its PEs share them.)
fn as_many_for_each(place: Place) -> Result<Place, Malformed> {
    let (count, pes) = (place.processors.len(), place.pes);
    match count >= pes as usize && count % pes as usize != 0 {
        true => Field("Place", "processors")
            .wrong(format_args!("{count} for {pes} PEs, not as many for each")),
        false => Ok(place),
    }
}

/// Nodes: as a list, or as runs where the writer has made these.
struct NidsOrRuns;

impl Codec<Vec<Nid>, (Vec<u32>, Vec<u32>)> for NidsOrRuns {
    fn write(self, plain: Vec<Nid>) -> (Vec<u32>, Vec<u32>) {
        (NodeId.write(plain), Vec::new())
    }
    fn read(self, of: Field, (nids, runs): (Vec<u32>, Vec<u32>)) -> Result<Vec<Nid>, Malformed> {
        nids_of(of, nids, &runs)
    }
}

/// A placement list.
pub(super) struct Places;

impl Codec<PlacementList, Vec<pb::Place>> for Places {
    fn write(self, plain: PlacementList) -> Vec<pb::Place> {
        wire_places(&plain)
    }
    fn read(self, _: Field, wire: Vec<pb::Place>) -> Result<PlacementList, Malformed> {
        placement_list(wire)
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

message! {
    HostPart = HostPart;
    nids = (nids, nid_runs): NidsOrRuns,
    socket: Text,
    host_id: Text,
    host: Text,
    address: Text,
}

message! {
    Usage = Usage;
    utime = utime_us: SUM,
    stime = stime_us: SUM,
    max_rss_kib: Same,
    inblocks: SUM,
    outblocks: SUM,
}

kinds! {
    Fault = cause::Fault { User, Busy, Node }
}

// (A text may hold one that came in a message.)
flat! {
    Cause = Cause.kind: cause::Kind; absent Unknown,
    PeExit { rank: Same, nid: NodeId, code: ExitCode },
    PeSignal { rank: Same, nid: NodeId, signal: SIGNAL },
    Abort { rank: Same, nid: NodeId, code: Same },
    NoFinalize { rank: Same, nid: NodeId, code: ExitCode },
    Garbage { rank: Same, nid: NodeId, text: Cut(TEXT_MAX) },
    NotMet { rank: Same, nid: NodeId, text: Cut(TEXT_MAX) },
    SpawnedEnd { rank: Same, nid: NodeId, code: ExitCode },
    Kill { signal: SIGNAL, uid: Same },
    TimeLimit { limit = limit_ms: Millis },
    FrontGone,
    StdoutClosed,
    LaunchFailed {
        rank: Same,
        nid: NodeId,
        errno = code: Same,
        text: Cut(TEXT_MAX),
        fault: kind_or_default::<pb::cause::Fault>(),
    },
    ShepherdLost { nid: NodeId, text: Cut(TEXT_MAX), fault: kind_or_default::<pb::cause::Fault>() },
    NodeLost { nid: NodeId, text: Cut(TEXT_MAX) },
    NoRecord,
    OverMemory {
        nid: NodeId,
        pes: COUNT,
        per_pe = memory_per_pe: Same,
        largest = (rank, largest): Via(Option::unwrap_or_default, |_, (rank, bytes)| {
            Ok(given(bytes).map(|bytes| (rank, bytes)))
        }),
    },
    HostMemory { rank: Same, nid: NodeId },
    Purge { uid: Same },
    Checkpointed { uid: Same },
}

message! {
    Decisive = Decisive;
    at_ns = at_mono_ns: Same,
    cause: Required,
}

/// How a PE ended: a code, or else a signal.
pub(super) struct End;

impl Codec<PeEnd, (i32, i32)> for End {
    fn write(self, plain: PeEnd) -> (i32, i32) {
        match plain {
            PeEnd::Exit(code) => (code.into(), 0),
            PeEnd::Signal(signal) => (0, signal),
        }
    }
    fn read(self, field: Field, wire: (i32, i32)) -> Result<PeEnd, Malformed> {
        match wire {
            (code, 0) => ExitCode.read(field, code).map(PeEnd::Exit),
            (0, signal) => SIGNAL.read(Field(field.0, "signal"), signal).map(PeEnd::Signal),
            _ => field.wrong("a code and a signal at once"),
        }
    }
}

message! {
    EndCount = EndCount;
    end = (code, signal): End,
    count: COUNT,
    consequence: Same,
}

message! {
    HostEnd = HostEnd;
    key: Required,
    nids = (nids, nid_runs): NidsOrRuns,
    launched: Same,
    first: Optional,
    ends: List(ENDS_MAX),
    usage: OrDefault,
    leftovers: COUNT,
    output_lost: Same,
    run = run_ms: Millis,
    frozen = frozen_ms: Millis,
    lost = (lost, lost_runs): NidsOrRuns,
    peak_memory: Same,
}

/// An application's end, for its front end.
impl From<HostEnd> for pb::Ended {
    fn from(end: HostEnd) -> Self {
        Self { status: end.status().into(), end: Some(end.into()), ..Self::default() }
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

message! {
    Explanation = Explanation;
    obstacle: Text,
    holder: Text,
    cure: Text,
}
