//! psched and apinit.

use super::codec::{
    Apids, Between, Boxed, Codec, Cut, Else, First, Given, Inner, LimitMillis, List, Millis, Nanos,
    Nice, NodeId, Numbers, Optional, OrDefault, Required, SIGNAL, Said, Same, Secret, Text, Via,
    kind, kind_or_default,
};
use super::common::Places;
use super::posting::AccountName;
use super::table::{kinds, message, variants};
use super::{Field, LIST_MAX, Malformed, NODES_MAX, all, ms, nanos};
use crate::apshepherd::decide::mapping::mapping_of;
use crate::apteam::bounds::HostBounds;
use crate::apteam::part::{MapRun, Part, RankMap};
use crate::apteam::place::HostPart;
use crate::apteam::protocol::attach::NumberedSignal;
use crate::apteam::protocol::node::{
    ClockTold, Command, Foreign, ForeignApplication, Hello, HostNote, MEANS_MAX, MoveCommand,
    Moved, NOTES_MAX, NodeSpec, NoteAbout, Phase, PlaceCommand, Report, Restart, Restoring,
    RollOut, SAID_MAX, STUCK_MAX, Shift, Start, Welcome, Yields,
};
use crate::apteam::{Apid, Incarnation, Key, SealKey};
use crate::machine::Nid;
use crate::machine::node_memory::Bank;
use crate::rpc::pb;
use crate::variables::{Isolation, Variables};
use bytes::Bytes;
use std::time::Duration;

/// Bytes of the name of a host, or of a kind of processors: the kernel's `HOST_NAME_MAX` is 64, DNS
/// has 253.
const NAME_MAX: usize = 255;
/// NUMA nodes of a host: Linux has no more.
const BANKS_MAX: usize = 1_024;

message! {
    Hello = NodeHello;
    protocol: Same,
    socket: Cut(SAID_MAX),
    hostname: Cut(NAME_MAX),
    boot_id: Cut(NAME_MAX),
    nids: NodeId,
    notes: First(NOTES_MAX),
    store_id: Cut(NAME_MAX),
    epoch: Same,
    cpus: Numbers,
    memory: Same,
    limits: Said(MEANS_MAX),
    stops: kind_or_default::<pb::StopMeans>(),
    arch: Cut(NAME_MAX),
    back_ends: Said(MEANS_MAX),
    roll_out: Via(wire_roll_out, |_, told| read_roll_out(told)),
    banks: List(BANKS_MAX),
    host: Cut(NAME_MAX),
    address: Cut(NAME_MAX),
    parts: Same,
    leads_on: Same,
    stacks: Same,
    images: Same,
    // The kernel tells it.
    here pid: 0,
    here remote: false,
}

message! {
    Bank = Bank;
    cpus: Numbers,
    memory: Same,
}

/// How memory goes out here, as a message has it.
pub fn wire_roll_out(roll_out: RollOut) -> Option<pb::RollOut> {
    match roll_out {
        RollOut::Untold => None,
        RollOut::Can => Some(pb::RollOut { can: true, ..pb::RollOut::default() }),
        RollOut::ByCheckpoint => {
            Some(pb::RollOut { can: true, by_checkpoint: true, ..pb::RollOut::default() })
        }
        RollOut::Cant(why_not) => Some(pb::RollOut { why_not, ..pb::RollOut::default() }),
    }
}

fn read_roll_out(told: Option<pb::RollOut>) -> Result<RollOut, Malformed> {
    Ok(match told {
        None => RollOut::Untold,
        Some(told) if told.can && told.by_checkpoint => RollOut::ByCheckpoint,
        Some(told) if told.can => RollOut::Can,
        Some(told) => RollOut::Cant(Cut(SAID_MAX).read(Field("RollOut", "why_not"), told.why_not)?),
    })
}

impl From<HostNote> for pb::HostNote {
    fn from(note: HostNote) -> Self {
        let (about, key) = match note.about {
            NoteAbout::Host => (pb::NoteAbout::Host, None),
            NoteAbout::Isolation => (pb::NoteAbout::Isolation, None),
            NoteAbout::App(key) => (pb::NoteAbout::Application, Some(key.into())),
        };
        pb::HostNote { about: about.into(), key, text: note.text }
    }
}

impl TryFrom<pb::HostNote> for HostNote {
    type Error = Malformed;
    fn try_from(note: pb::HostNote) -> Result<Self, Malformed> {
        let of = |field| Field("HostNote", field);
        let about = match note.about() {
            pb::NoteAbout::Host => NoteAbout::Host,
            pb::NoteAbout::Isolation => NoteAbout::Isolation,
            pb::NoteAbout::Application => NoteAbout::App(of("key").need(note.key)?),
        };
        Ok(HostNote { about, text: Cut(SAID_MAX).read(of("text"), note.text)? })
    }
}

impl TryFrom<pb::NodeNotes> for (Vec<HostNote>, RollOut, ClockTold) {
    type Error = Malformed;
    fn try_from(told: pb::NodeNotes) -> Result<Self, Malformed> {
        let clock = ClockTold {
            at_ns: told.clock_at_ns,
            ahead_ns: told.clock_ahead_ns,
            error_ns: told.clock_error_ns,
            pace: told.clock_pace,
            growth: told.clock_growth,
        };
        let notes = First(NOTES_MAX).read(Field("NodeNotes", "notes"), told.notes)?;
        Ok((notes, read_roll_out(told.roll_out)?, clock))
    }
}

message! {
    NodeSpec = NodeSpec;
    nid: NodeId,
    processors: Between(1, LIST_MAX as u32),
    cpus: Numbers,
    first_processor: Same,
    memory: Same,
}

message! {
    Start = Start;
    epoch: Same,
    id: Text,
    commits: Same,
}

message! {
    HostBounds = HostBounds;
    connections: Else(HostBounds::default().connections),
    connections_user: Else(HostBounds::default().connections_user),
    applications: Else(HostBounds::default().applications),
    launches_user: Else(HostBounds::default().launches_user),
    launch_bytes: Else(HostBounds::default().launch_bytes),
    launch_bytes_user: Else(HostBounds::default().launch_bytes_user),
    programs: Else(HostBounds::default().programs),
    programs_user: Else(HostBounds::default().programs_user),
    freeze_wait = freeze_wait_ns: Via(
        |wait| Some(nanos(wait)),
        |_, wait: Option<u64>| {
            Ok(wait.map_or(HostBounds::default().freeze_wait, Duration::from_nanos))
        },
    ),
    idle_after = idle_after_ns: Nanos,
    silence = silence_ns: Nanos,
}

message! {
    Welcome = Welcome;
    store_id: Text,
    epoch: Same,
    nodes: List(NODES_MAX),
    kill_grace = kill_grace_ms: Millis,
    mono_ns: Same,
    boot_id: Text,
    next_apid: Same,
    starts: List(LIST_MAX),
    commits: Same,
    unreadable: Apids,
    bounds: OrDefault,
    checkpoint_key: Seal,
}

/// The key by which checkpoints are sealed; empty is none.
struct Seal;

impl Codec<Option<SealKey>, Bytes> for Seal {
    fn write(self, plain: Option<SealKey>) -> Bytes {
        plain.map(|key| key.0.to_vec().into()).unwrap_or_default()
    }
    fn read(self, field: Field, wire: Bytes) -> Result<Option<SealKey>, Malformed> {
        match &wire[..] {
            [] => Ok(None),
            key => match key.try_into() {
                Ok(key) => Ok(Some(SealKey(key))),
                Err(_) => field.wrong("is not of 32 bytes"),
            },
        }
    }
}

kinds! {
    Phase = inventory_item::Phase { Placed, Launched, Running, Ended }
    Isolation = Isolation { Auto, Root, Off }
}

impl From<(Key, Phase)> for pb::InventoryItem {
    fn from((key, phase): (Key, Phase)) -> Self {
        Self { key: Some(key.into()), phase: pb::inventory_item::Phase::from(phase).into() }
    }
}

impl TryFrom<pb::InventoryItem> for (Key, Phase) {
    type Error = Malformed;
    fn try_from(item: pb::InventoryItem) -> Result<Self, Malformed> {
        let key = Field("InventoryItem", "key").need(item.key)?;
        match pb::inventory_item::Phase::try_from(item.phase) {
            Ok(phase) => Ok((key, phase.into())),
            Err(_) => Field("InventoryItem", "phase")
                .wrong(format_args!("{} is an unknown kind", item.phase)),
        }
    }
}

/// The items of an inventory; its `last_command` stands beside them.
impl From<Vec<(Key, Phase)>> for pb::Inventory {
    fn from(items: Vec<(Key, Phase)>) -> Self {
        Self { items: all(items), last_command: 0 }
    }
}

/// See above: take `last_command` first.
impl TryFrom<pb::Inventory> for Vec<(Key, Phase)> {
    type Error = Malformed;
    fn try_from(inventory: pb::Inventory) -> Result<Self, Malformed> {
        // (A host has no more applications: `applications_max`.)
        Field("Inventory", "items").list(inventory.items, LIST_MAX)
    }
}

message! {
    PlaceCommand = PlaceCommand;
    key: Required,
    owner: Required,
    shape: Required,
    places: Places,
    hosts: List(NODES_MAX),
    part: PartOrAll,
    fan_out: Same,
    ticket: Secret,
    ticket_left = ticket_left_ms: Millis,
    cpu_limit = cpu_limit_ms: LimitMillis,
    time_limit = time_limit_ms: LimitMillis,
    kill_grace = kill_grace_ms: Millis,
    memory_per_pe: Given,
    pids_max: Given,
    front_kill_grace = front_kill_grace_ms: Via(
        |grace| Some(ms(grace)),
        |_, grace: Option<u64>| {
            let default = || Variables::default().front_kill_grace();
            Ok(grace.map_or_else(default, Duration::from_millis))
        },
    ),
    bounds: OrDefault,
    // What a newer psched calls otherwise is the default here.
    isolation: kind_or_default::<pb::Isolation>(),
    user_bus: Same,
    request_id: Secret,
    command: Text,
    shares: Same,
    exclusive: Same,
    account: AccountName,
    yields = (yield_nice, yield_nids): Yielding,
    moved = (move_number, born_nids, fixed, restoring): Moves,
    restart: Optional,
    checked by places_of_shape,
}

fn places_of_shape(mut command: PlaceCommand) -> Result<PlaceCommand, Malformed> {
    let of = |field| Field("PlaceCommand", field);
    if command.part.index.is_none() {
        let map = RankMap::of(&command.places, &command.hosts);
        let apart = command.isolation != Isolation::Off;
        let process_mapping = mapping_of(&map, &command.hosts, apart);
        command.part = Part { index: None, map, process_mapping };
    }
    // Ranks are counted along the list, so a list of another shape would give wrong ones.
    if !command.fits() {
        return of("places").wrong("they do not add up to the shape");
    }
    let born = command.moved.born.len();
    let of_host = |host: &HostPart| host.nids.len() == born;
    if born != 0 && born != command.places.0.len() && !command.hosts.iter().any(of_host) {
        return of("born_nids").wrong("their number is not the number of its places");
    }
    let hosts = match command.part.index {
        Some(0) => command.host_count() as usize,
        Some(_) => 1,
        None => command.hosts.len(),
    };
    match command.hosts.len() {
        0 => of("hosts").wrong("no node holds PE 0"),
        n if n != hosts => of("hosts").wrong(format_args!("{n}, and its part has {hosts}")),
        _ => Ok(command),
    }
}

/// A part, or the whole.
struct PartOrAll;

impl Codec<Part, Option<pb::Part>> for PartOrAll {
    fn write(self, plain: Part) -> Option<pb::Part> {
        let Part { index, map, process_mapping } = plain;
        let run = |run: &MapRun| pb::MapRun {
            first_nid: run.first_nid.0,
            nodes: run.nodes,
            pes: run.pes,
            first_host: run.first_host,
            hosts: run.hosts,
        };
        let index = index?;
        Some(pb::Part { index, map: map.0.iter().map(run).collect(), process_mapping })
    }
    fn read(self, _: Field, wire: Option<pb::Part>) -> Result<Part, Malformed> {
        let Some(pb::Part { index, map, process_mapping }) = wire else {
            return Ok(Part::default());
        };
        let of = |field| Field("MapRun", field);
        let run = |run: pb::MapRun| {
            of("nodes").between(run.nodes, 1, NODES_MAX as u32)?;
            of("hosts").between(run.hosts, 1, NODES_MAX as u32)?;
            of("pes").between(run.pes, 1, u32::MAX)?;
            of("first_host").between(run.first_host, 0, NODES_MAX as u32)?;
            let last = u64::from(run.first_nid) + u64::from(run.nodes) * u64::from(run.hosts);
            of("first_nid").between(last, 1, 1 << 32)?;
            let pb::MapRun { first_nid, nodes, pes, first_host, hosts } = run;
            Ok(MapRun { first_nid: Nid(first_nid), nodes, pes, first_host, hosts })
        };
        of("nodes").bounded(&map, NODES_MAX)?;
        let map: Vec<MapRun> = map.into_iter().map(run).collect::<Result<_, Malformed>>()?;
        let map = RankMap(map.into());
        of("nodes").between(map.nodes(), 1, NODES_MAX as u64)?;
        Field("Part", "index").between(index, 0, map.hosts().saturating_sub(1))?;
        let process_mapping = Field("Part", "process_mapping").text(process_mapping)?;
        Ok(Part { index: Some(index), map, process_mapping })
    }
}

/// Where its PEs give way to the system.
struct Yielding;

impl Codec<Yields, (u32, Vec<u32>)> for Yielding {
    fn write(self, plain: Yields) -> (u32, Vec<u32>) {
        (plain.nice, NodeId.write(plain.nids))
    }
    fn read(self, field: Field, (nice, nids): (u32, Vec<u32>)) -> Result<Yields, Malformed> {
        let nids = NodeId.read(Field(field.0, "yield_nids"), nids)?;
        Ok(Yields { nice: Nice.read(field, nice)?, nids })
    }
}

/// What has been moved of it.
struct Moves;

type WireMoves = (u32, Vec<u32>, bool, Option<pb::Restoring>);

impl Codec<Moved, WireMoves> for Moves {
    fn write(self, Moved { number, born, fixed, restoring }: Moved) -> WireMoves {
        let restoring = match restoring {
            Restoring::No => None,
            Restoring::Begun => Some(pb::Restoring { done: None }),
            Restoring::Done(Shift { output, stdin, clock_ns }) => {
                Some(pb::Restoring { done: Some(pb::Shift { output, stdin, clock_ns }) })
            }
        };
        (number, NodeId.write(born), fixed, restoring)
    }
    fn read(
        self,
        field: Field,
        (number, born, fixed, restoring): WireMoves,
    ) -> Result<Moved, Malformed> {
        let restoring = match restoring.map(|restoring| restoring.done) {
            None => Restoring::No,
            Some(None) => Restoring::Begun,
            Some(Some(pb::Shift { output, stdin, clock_ns })) => {
                Restoring::Done(Shift { output, stdin, clock_ns })
            }
        };
        let born = NodeId.read(Field(field.0, "born_nids"), born)?;
        Ok(Moved { number, born, fixed, restoring })
    }
}

message! {
    Restart = Restart;
    from: Required,
    run = run_ns: Nanos,
    parts: Same,
}

message! {
    ForeignApplication = ForeignApplication;
    place: Required,
    phase: kind::<pb::inventory_item::Phase>(),
    run = run_ms: Millis,
}

message! {
    Foreign = Foreign;
    store_id: Cut(NAME_MAX),
    epoch: Same,
    why: Cut(SAID_MAX),
    applications: List(LIST_MAX),
}

message! {
    MoveCommand = MoveCommand;
    key: Required,
    number: Same,
    places: Places,
}

/// A signal in a message that has its number after it.
struct Numbered;

impl Codec<NumberedSignal, (i32, u64)> for Numbered {
    fn write(self, plain: NumberedSignal) -> (i32, u64) {
        (plain.signal, plain.number)
    }
    fn read(self, field: Field, wire: (i32, u64)) -> Result<NumberedSignal, Malformed> {
        let (signal, number) = wire;
        Ok(NumberedSignal { number, signal: SIGNAL.read(field, signal)? })
    }
}

/// An application's key in a message that was an `ApplicationKey` alone in a release before.
struct FlatKey;

impl Codec<Key, (u64, u32)> for FlatKey {
    fn write(self, plain: Key) -> (u64, u32) {
        (plain.apid.0, plain.incarnation.0)
    }
    fn read(self, _: Field, (apid, incarnation): (u64, u32)) -> Result<Key, Malformed> {
        Ok(Key { apid: Apid(apid), incarnation: Incarnation(incarnation) })
    }
}

variants! {
    Command = to_node::Message, in ToNode.message;
    Place(place: Boxed),
    TakeBack { key = (apid, incarnation): FlatKey, number: Same } = TakeBackCommand,
    Signal { key: Required, signal = (signal, number): Numbered } = SignalCommand,
    Terminate {
        key: Required,
        cause: Required,
        kill_after = kill_after_ms: Millis,
    } = TerminateCommand,
    AcknowledgeEnd(acknowledge_end: Inner),
    Discard(discard: Inner),
    Adopt,
    Purge { uid: Same } = Purge,
    Bounds(bounds: Inner),
    Plan(plan: Boxed),
    AgreePlan(agree_plan: Same),
    WithdrawPlan(withdraw_plan: Same),
    Move(order: Boxed),
    RollOut(roll_out: Inner),
    // They begin or end a link.
    unread "it is not a command": Welcome | Refused,
}

variants! {
    Report = NodeReport.report: node_report::Report;
    Launched(launched: Inner),
    Running(running: Inner),
    TakenBack { key = (apid, incarnation): FlatKey, number: Same } = TakenBackReport,
    Stuck { key: Required, nid: NodeId, processes: Said(STUCK_MAX) } = StuckReport,
    SignalsTaken { key: Required, number: Same } = SignalsReport,
    Ended(ended: Boxed),
    ToHear { key: Required, ends: Same } = ToHearReport,
    PlanTaken(plan_taken: Same),
    Switches(switches: Boxed),
    Movable { key: Required, blocker: Optional } = MovableReport,
    Moved { key: Required, number: Same, frozen = frozen_ns: Nanos } = MovedReport,
    MoveFailed { key: Required, number: Same, why: Required } = MoveFailedReport,
    RolledOut { key: Required, bytes: Same, why: Cut(SAID_MAX) } = RolledOutReport,
}
