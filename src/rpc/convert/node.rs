//! psched and apinit.

use super::common::bounds;
use super::posting::{account, account_name};
use super::{
    Field, LIST_MAX, LONG_LIST_MAX, Malformed, NODES_MAX, all, bare, given, limit, limit_ms, ms,
    nanos, placement_list, wire_places,
};
use crate::apteam::bounds::HostBounds;
use crate::apteam::protocol::attach::NumberedSignal;
use crate::apteam::protocol::node::{
    Command, Foreign, ForeignApplication, Hello, HostNote, MoveCommand, Moved, NICE_MAX, NodeSpec,
    NoteAbout, Phase, PlaceCommand, Report, Restart, Restoring, RollOut, Shift, Start, Welcome,
    Yields,
};
use crate::apteam::{Apid, Key, SealKey, Ticket};
use crate::machine::Nid;
use crate::machine::found::Bank;
use crate::rpc::pb;
use crate::variables::{Isolation, Variables};
use bytes::Bytes;
use std::time::Duration;

impl From<Hello> for pb::NodeHello {
    fn from(hello: Hello) -> Self {
        Self {
            protocol: hello.protocol,
            socket: hello.socket,
            hostname: hello.hostname,
            boot_id: hello.boot_id,
            nids: bare(hello.nids),
            notes: hello.notes.into_iter().map(Into::into).collect(),
            store_id: hello.store_id,
            epoch: hello.epoch,
            cpus: hello.cpus,
            memory: hello.memory,
            limits: hello.limits,
            stops: pb::StopMeans::from(hello.stops).into(),
            arch: hello.arch,
            back_ends: hello.back_ends,
            roll_out: wire_roll_out(hello.roll_out),
            banks: hello.banks.into_iter().map(Into::into).collect(),
        }
    }
}

/// NUMA nodes of a host: Linux has no more.
const BANKS_MAX: usize = 1_024;

impl From<Bank> for pb::Bank {
    fn from(Bank { cpus, memory }: Bank) -> Self {
        Self { cpus, memory }
    }
}

impl TryFrom<pb::Bank> for Bank {
    type Error = Malformed;
    fn try_from(bank: pb::Bank) -> Result<Self, Malformed> {
        Ok(Bank { cpus: Field("Bank", "cpus").numbers(bank.cpus)?, memory: bank.memory })
    }
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

fn roll_out(told: Option<pb::RollOut>) -> Result<RollOut, Malformed> {
    Ok(match told {
        None => RollOut::Untold,
        Some(told) if told.can && told.by_checkpoint => RollOut::ByCheckpoint,
        Some(told) if told.can => RollOut::Can,
        Some(told) => RollOut::Cant(Field("RollOut", "why_not").text(told.why_not)?),
    })
}

impl TryFrom<pb::NodeHello> for Hello {
    type Error = Malformed;
    fn try_from(hello: pb::NodeHello) -> Result<Self, Malformed> {
        let of = |field| Field("NodeHello", field);
        Ok(Hello {
            protocol: hello.protocol,
            socket: of("socket").text(hello.socket)?,
            hostname: of("hostname").text(hello.hostname)?,
            boot_id: of("boot_id").text(hello.boot_id)?,
            nids: of("nids").nids(hello.nids)?,
            pid: 0,
            notes: of("notes").list(hello.notes, LIST_MAX)?,
            store_id: of("store_id").text(hello.store_id)?,
            epoch: hello.epoch,
            cpus: of("cpus").numbers(hello.cpus)?,
            memory: hello.memory,
            limits: of("limits").texts(hello.limits)?,
            stops: pb::StopMeans::try_from(hello.stops).unwrap_or_default().into(),
            arch: of("arch").text(hello.arch)?,
            back_ends: of("back_ends").texts(hello.back_ends)?,
            roll_out: roll_out(hello.roll_out)?,
            banks: of("banks").list(hello.banks, BANKS_MAX)?,
        })
    }
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
        Ok(HostNote { about, text: of("text").text(note.text)? })
    }
}

impl TryFrom<pb::NodeNotes> for (Vec<HostNote>, RollOut) {
    type Error = Malformed;
    fn try_from(told: pb::NodeNotes) -> Result<Self, Malformed> {
        Ok((Field("NodeNotes", "notes").list(told.notes, LIST_MAX)?, roll_out(told.roll_out)?))
    }
}

impl From<NodeSpec> for pb::NodeSpec {
    fn from(node: NodeSpec) -> Self {
        let NodeSpec { nid, processors, cpus, first_processor, memory } = node;
        Self { nid: nid.0, processors, cpus, first_processor, memory }
    }
}

impl TryFrom<pb::NodeSpec> for NodeSpec {
    type Error = Malformed;
    fn try_from(node: pb::NodeSpec) -> Result<Self, Malformed> {
        let pb::NodeSpec { nid, processors, cpus, first_processor, memory } = node;
        let processors = Field("NodeSpec", "processors").between(processors, 1, LIST_MAX as u32)?;
        let cpus = Field("NodeSpec", "cpus").numbers(cpus)?;
        Ok(NodeSpec { nid: Nid(nid), processors, cpus, first_processor, memory })
    }
}

impl From<Start> for pb::Start {
    fn from(Start { epoch, id, commits }: Start) -> Self {
        Self { epoch, id, commits }
    }
}

impl TryFrom<pb::Start> for Start {
    type Error = Malformed;
    fn try_from(start: pb::Start) -> Result<Self, Malformed> {
        let pb::Start { epoch, id, commits } = start;
        Ok(Start { epoch, id: Field("Start", "id").text(id)?, commits })
    }
}

impl From<HostBounds> for pb::HostBounds {
    fn from(bounds: HostBounds) -> Self {
        Self {
            connections: bounds.connections,
            connections_user: bounds.connections_user,
            applications: bounds.applications,
            launches_user: bounds.launches_user,
            launch_bytes: bounds.launch_bytes,
            launch_bytes_user: bounds.launch_bytes_user,
            freeze_wait_ns: Some(nanos(bounds.freeze_wait)),
            idle_after_ns: nanos(bounds.idle_after),
        }
    }
}

/// What is not given has its default.
impl From<pb::HostBounds> for HostBounds {
    fn from(bounds: pb::HostBounds) -> Self {
        let default = HostBounds::default();
        HostBounds {
            connections: given(bounds.connections).unwrap_or(default.connections),
            connections_user: given(bounds.connections_user).unwrap_or(default.connections_user),
            applications: given(bounds.applications).unwrap_or(default.applications),
            launches_user: given(bounds.launches_user).unwrap_or(default.launches_user),
            launch_bytes: given(bounds.launch_bytes).unwrap_or(default.launch_bytes),
            launch_bytes_user: given(bounds.launch_bytes_user).unwrap_or(default.launch_bytes_user),
            freeze_wait: bounds.freeze_wait_ns.map_or(default.freeze_wait, Duration::from_nanos),
            idle_after: Duration::from_nanos(bounds.idle_after_ns),
        }
    }
}

impl From<Welcome> for pb::Welcome {
    fn from(welcome: Welcome) -> Self {
        Self {
            store_id: welcome.store_id,
            epoch: welcome.epoch,
            nodes: all(welcome.nodes),
            kill_grace_ms: ms(welcome.kill_grace),
            mono_ns: welcome.mono_ns,
            boot_id: welcome.boot_id,
            next_apid: welcome.next_apid,
            starts: all(welcome.starts),
            commits: welcome.commits,
            unreadable: welcome.unreadable.into_iter().map(|apid| apid.0).collect(),
            bounds: Some(welcome.bounds.into()),
            checkpoint_key: welcome
                .checkpoint_key
                .map(|key| key.0.to_vec().into())
                .unwrap_or_default(),
        }
    }
}

impl TryFrom<pb::Welcome> for Welcome {
    type Error = Malformed;
    fn try_from(welcome: pb::Welcome) -> Result<Self, Malformed> {
        Ok(Welcome {
            store_id: Field("Welcome", "store_id").text(welcome.store_id)?,
            epoch: welcome.epoch,
            nodes: Field("Welcome", "nodes").list(welcome.nodes, NODES_MAX)?,
            kill_grace: Duration::from_millis(welcome.kill_grace_ms),
            mono_ns: welcome.mono_ns,
            boot_id: Field("Welcome", "boot_id").text(welcome.boot_id)?,
            next_apid: welcome.next_apid,
            starts: Field("Welcome", "starts").list(welcome.starts, LIST_MAX)?,
            commits: welcome.commits,
            unreadable: welcome.unreadable.into_iter().map(Apid).collect(),
            bounds: welcome.bounds.unwrap_or_default().into(),
            checkpoint_key: match &welcome.checkpoint_key[..] {
                [] => None,
                key => {
                    let bad = |_| Malformed::new("Welcome", "checkpoint_key", "is not of 32 bytes");
                    Some(SealKey(key.try_into().map_err(bad)?))
                }
            },
        })
    }
}

impl From<Phase> for pb::inventory_item::Phase {
    fn from(phase: Phase) -> Self {
        match phase {
            Phase::Placed => Self::Placed,
            Phase::Launched => Self::Launched,
            Phase::Running => Self::Running,
            Phase::Ended => Self::Ended,
        }
    }
}

impl From<pb::inventory_item::Phase> for Phase {
    fn from(phase: pb::inventory_item::Phase) -> Self {
        match phase {
            pb::inventory_item::Phase::Placed => Self::Placed,
            pb::inventory_item::Phase::Launched => Self::Launched,
            pb::inventory_item::Phase::Running => Self::Running,
            pb::inventory_item::Phase::Ended => Self::Ended,
        }
    }
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
            Err(_) => {
                Field("InventoryItem", "phase").wrong(format_args!("{} is no kind", item.phase))
            }
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
        Field("Inventory", "items").list(inventory.items, LONG_LIST_MAX)
    }
}

impl From<PlaceCommand> for pb::PlaceCommand {
    fn from(place: PlaceCommand) -> Self {
        Self {
            key: Some(place.key.into()),
            owner: Some(place.owner.into()),
            shape: Some(place.shape.into()),
            places: wire_places(&place.places),
            hosts: place.hosts.iter().cloned().map(Into::into).collect(),
            ticket: Bytes::copy_from_slice(&place.ticket.0),
            ticket_left_ms: ms(place.ticket_left),
            cpu_limit_ms: limit_ms(place.cpu_limit),
            time_limit_ms: limit_ms(place.time_limit),
            kill_grace_ms: ms(place.kill_grace),
            memory_per_pe: place.memory_per_pe.unwrap_or(0),
            pids_max: place.pids_max.unwrap_or(0),
            front_kill_grace_ms: Some(ms(place.front_kill_grace)),
            bounds: Some(place.bounds.into()),
            isolation: match place.isolation {
                Isolation::Auto => pb::Isolation::Auto,
                Isolation::Root => pb::Isolation::Root,
                Isolation::Off => pb::Isolation::Off,
            }
            .into(),
            user_bus: place.user_bus,
            request_id: Bytes::copy_from_slice(&place.request_id),
            command: place.command,
            shares: place.shares,
            exclusive: place.exclusive,
            account: account_name(place.account),
            yield_nice: place.yields.nice,
            yield_nids: bare(place.yields.nids),
            move_number: place.moved.number,
            born_nids: bare(place.moved.born),
            fixed: place.moved.fixed,
            restart: place.restart.map(Into::into),
            restoring: match place.moved.restoring {
                Restoring::No => None,
                Restoring::Begun => Some(pb::Restoring { done: None }),
                Restoring::Done(Shift { output, stdin, clock_ns }) => {
                    Some(pb::Restoring { done: Some(pb::Shift { output, stdin, clock_ns }) })
                }
            },
        }
    }
}

impl TryFrom<pb::PlaceCommand> for PlaceCommand {
    type Error = Malformed;
    fn try_from(place: pb::PlaceCommand) -> Result<Self, Malformed> {
        let of = |field| Field("PlaceCommand", field);
        let command = PlaceCommand {
            key: of("key").need(place.key)?,
            owner: of("owner").need(place.owner)?,
            shape: of("shape").need(place.shape)?,
            places: placement_list(place.places)?,
            hosts: of("hosts").list(place.hosts, NODES_MAX).map(Vec::into)?,
            ticket: Ticket(of("ticket").secret(place.ticket)?),
            ticket_left: Duration::from_millis(place.ticket_left_ms),
            cpu_limit: limit(place.cpu_limit_ms),
            time_limit: limit(place.time_limit_ms),
            kill_grace: Duration::from_millis(place.kill_grace_ms),
            memory_per_pe: given(place.memory_per_pe),
            front_kill_grace: place
                .front_kill_grace_ms
                .map_or_else(|| Variables::default().front_kill_grace(), Duration::from_millis),
            pids_max: given(place.pids_max),
            bounds: bounds(place.bounds),
            // What a newer psched calls otherwise is the default here.
            isolation: match pb::Isolation::try_from(place.isolation).unwrap_or_default() {
                pb::Isolation::Auto => Isolation::Auto,
                pb::Isolation::Root => Isolation::Root,
                pb::Isolation::Off => Isolation::Off,
            },
            user_bus: place.user_bus,
            request_id: of("request_id").secret(place.request_id)?,
            command: of("command").text(place.command)?,
            shares: place.shares,
            exclusive: place.exclusive,
            account: account(of("account"), &place.account)?,
            yields: Yields {
                nice: place.yield_nice.min(NICE_MAX),
                nids: of("yield_nids").nids(place.yield_nids)?,
            },
            moved: Moved {
                number: place.move_number,
                born: of("born_nids").nids(place.born_nids)?,
                fixed: place.fixed,
                restoring: match place.restoring.map(|restoring| restoring.done) {
                    None => Restoring::No,
                    Some(None) => Restoring::Begun,
                    Some(Some(pb::Shift { output, stdin, clock_ns })) => {
                        Restoring::Done(Shift { output, stdin, clock_ns })
                    }
                },
            },
            restart: place.restart.map(TryInto::try_into).transpose()?,
        };
        // Ranks are counted along the list, so a list of another shape would give wrong ones.
        if !command.places.fits_or_shares(&command.shape) {
            return of("places").wrong("they do not add up to the shape");
        }
        let born = command.moved.born.len();
        let of_host = |host: &crate::apteam::place::HostPart| host.nids.len() == born;
        if born != 0 && born != command.places.0.len() && !command.hosts.iter().any(of_host) {
            return of("born_nids").wrong("they are not as many as its places");
        }
        if command.hosts.is_empty() {
            return of("hosts").wrong("nobody holds PE 0");
        }
        Ok(command)
    }
}

impl From<Restart> for pb::Restart {
    fn from(restart: Restart) -> Self {
        let run_ns = u64::try_from(restart.run.as_nanos()).unwrap_or(u64::MAX);
        Self { from: Some(restart.from.into()), run_ns, parts: restart.parts }
    }
}

impl TryFrom<pb::Restart> for Restart {
    type Error = Malformed;
    fn try_from(restart: pb::Restart) -> Result<Self, Malformed> {
        let from = Field("Restart", "from").need(restart.from)?;
        let pb::Restart { run_ns, parts, .. } = restart;
        Ok(Restart { from, run: Duration::from_nanos(run_ns), parts })
    }
}

impl From<ForeignApplication> for pb::ForeignApplication {
    fn from(application: ForeignApplication) -> Self {
        let ForeignApplication { place, phase, run } = application;
        let phase = pb::inventory_item::Phase::from(phase).into();
        Self { place: Some(place.into()), phase, run_ms: ms(run) }
    }
}

impl TryFrom<pb::ForeignApplication> for ForeignApplication {
    type Error = Malformed;
    fn try_from(application: pb::ForeignApplication) -> Result<Self, Malformed> {
        let of = |field| Field("ForeignApplication", field);
        let Ok(phase) = pb::inventory_item::Phase::try_from(application.phase) else {
            return of("phase").wrong(format_args!("{} is no kind", application.phase));
        };
        Ok(ForeignApplication {
            place: of("place").need(application.place)?,
            phase: phase.into(),
            run: Duration::from_millis(application.run_ms),
        })
    }
}

impl From<Foreign> for pb::Foreign {
    fn from(foreign: Foreign) -> Self {
        let Foreign { store_id, epoch, why, applications } = foreign;
        Self { store_id, epoch, why, applications: all(applications) }
    }
}

impl TryFrom<pb::Foreign> for Foreign {
    type Error = Malformed;
    fn try_from(foreign: pb::Foreign) -> Result<Self, Malformed> {
        let of = |field| Field("Foreign", field);
        Ok(Foreign {
            store_id: of("store_id").text(foreign.store_id)?,
            epoch: foreign.epoch,
            why: of("why").text(foreign.why)?,
            applications: of("applications").list(foreign.applications, LIST_MAX)?,
        })
    }
}

impl From<Command> for pb::to_node::Message {
    fn from(command: Command) -> Self {
        match command {
            Command::Place(place) => Self::Place((*place).into()),
            Command::TakeBack(key) => Self::TakeBack(key.into()),
            Command::Signal { key, signal } => {
                let NumberedSignal { number, signal } = signal;
                Self::Signal(pb::SignalCommand { key: Some(key.into()), signal, number })
            }
            Command::Terminate { key, cause, kill_after } => {
                Self::Terminate(pb::TerminateCommand {
                    key: Some(key.into()),
                    cause: Some(cause.into()),
                    kill_after_ms: ms(kill_after),
                })
            }
            Command::AcknowledgeEnd(key) => Self::AcknowledgeEnd(key.into()),
            Command::Discard(key) => Self::Discard(key.into()),
            Command::Adopt => Self::Adopt(pb::Adopt {}),
            Command::Purge { uid } => Self::Purge(pb::Purge { uid }),
            Command::Bounds(bounds) => Self::Bounds(bounds.into()),
            Command::Plan(plan) => Self::Plan((*plan).into()),
            Command::AgreePlan(generation) => Self::AgreePlan(generation),
            Command::WithdrawPlan(generation) => Self::WithdrawPlan(generation),
            Command::Move(order) => {
                let MoveCommand { key, number, places } = *order;
                Self::Move(pb::MoveCommand {
                    key: Some(key.into()),
                    number,
                    places: wire_places(&places),
                })
            }
            Command::RollOut(key) => Self::RollOut(key.into()),
        }
    }
}

/// `welcome` and `refused` are no commands: they begin or end a link.
impl TryFrom<pb::to_node::Message> for Command {
    type Error = Malformed;
    fn try_from(message: pb::to_node::Message) -> Result<Self, Malformed> {
        use pb::to_node::Message;
        Ok(match message {
            Message::Place(place) => Command::Place(Box::new(place.try_into()?)),
            Message::TakeBack(key) => Command::TakeBack(key.try_into()?),
            Message::Signal(command) => Command::Signal {
                key: Field("SignalCommand", "key").need(command.key)?,
                signal: NumberedSignal {
                    number: command.number,
                    signal: Field("SignalCommand", "signal").signal(command.signal)?,
                },
            },
            Message::Terminate(command) => Command::Terminate {
                key: Field("TerminateCommand", "key").need(command.key)?,
                cause: Field("TerminateCommand", "cause").need(command.cause)?,
                kill_after: Duration::from_millis(command.kill_after_ms),
            },
            Message::AcknowledgeEnd(key) => Command::AcknowledgeEnd(key.try_into()?),
            Message::Discard(key) => Command::Discard(key.try_into()?),
            Message::Adopt(pb::Adopt {}) => Command::Adopt,
            Message::Purge(pb::Purge { uid }) => Command::Purge { uid },
            Message::Bounds(bounds) => Command::Bounds(bounds.into()),
            Message::Plan(plan) => Command::Plan(Box::new(plan.try_into()?)),
            Message::AgreePlan(generation) => Command::AgreePlan(generation),
            Message::WithdrawPlan(generation) => Command::WithdrawPlan(generation),
            Message::Move(order) => Command::Move(Box::new(MoveCommand {
                key: Field("MoveCommand", "key").need(order.key)?,
                number: order.number,
                places: placement_list(order.places)?,
            })),
            Message::RollOut(key) => Command::RollOut(key.try_into()?),
            Message::Welcome(_) | Message::Refused(_) => {
                return Field("ToNode", "message").wrong("it is no command");
            }
        })
    }
}

impl From<Report> for pb::NodeReport {
    fn from(report: Report) -> Self {
        use pb::node_report::Report as Wire;
        let report = match report {
            Report::Launched(key) => Wire::Launched(key.into()),
            Report::Running(key) => Wire::Running(key.into()),
            Report::TakenBack(key) => Wire::TakenBack(key.into()),
            Report::Stuck { key, nid, processes } => {
                Wire::Stuck(pb::StuckReport { key: Some(key.into()), nid: nid.0, processes })
            }
            Report::SignalsTaken { key, number } => {
                Wire::SignalsTaken(pb::SignalsReport { key: Some(key.into()), number })
            }
            Report::Ended(end) => Wire::Ended((*end).into()),
            Report::ToHear { key, ends } => {
                Wire::ToHear(pb::ToHearReport { key: Some(key.into()), ends })
            }
            Report::PlanTaken(generation) => Wire::PlanTaken(generation),
            Report::Switches(switches) => Wire::Switches((*switches).into()),
            Report::Movable { key, wall } => Wire::Movable(pb::MovableReport {
                key: Some(key.into()),
                wall: wall.unwrap_or_default(),
            }),
            Report::Moved { key, number, frozen } => Wire::Moved(pb::MovedReport {
                key: Some(key.into()),
                number,
                frozen_ns: nanos(frozen),
            }),
            Report::MoveFailed { key, number, why } => {
                Wire::MoveFailed(pb::MoveFailedReport { key: Some(key.into()), number, why })
            }
            Report::RolledOut { key, bytes, why } => Wire::RolledOut(pb::RolledOutReport {
                key: Some(key.into()),
                bytes,
                why: why.unwrap_or_default(),
            }),
        };
        Self { report: Some(report) }
    }
}

impl TryFrom<pb::NodeReport> for Report {
    type Error = Malformed;
    fn try_from(report: pb::NodeReport) -> Result<Self, Malformed> {
        use pb::node_report::Report as Wire;
        Ok(match Field("NodeReport", "report").variant(report.report)? {
            Wire::Launched(key) => Report::Launched(key.try_into()?),
            Wire::Running(key) => Report::Running(key.try_into()?),
            Wire::TakenBack(key) => Report::TakenBack(key.try_into()?),
            Wire::Stuck(stuck) => Report::Stuck {
                key: Field("StuckReport", "key").need(stuck.key)?,
                nid: Nid(stuck.nid),
                processes: Field("StuckReport", "processes").texts(stuck.processes)?,
            },
            Wire::SignalsTaken(taken) => Report::SignalsTaken {
                key: Field("SignalsReport", "key").need(taken.key)?,
                number: taken.number,
            },
            Wire::Ended(end) => Report::Ended(Box::new(end.try_into()?)),
            Wire::ToHear(told) => Report::ToHear {
                key: Field("ToHearReport", "key").need(told.key)?,
                ends: told.ends,
            },
            Wire::PlanTaken(generation) => Report::PlanTaken(generation),
            Wire::Switches(switches) => Report::Switches(Box::new(switches.try_into()?)),
            Wire::Movable(told) => Report::Movable {
                key: Field("MovableReport", "key").need(told.key)?,
                wall: Some(Field("MovableReport", "wall").text(told.wall)?)
                    .filter(|w| !w.is_empty()),
            },
            Wire::Moved(told) => Report::Moved {
                key: Field("MovedReport", "key").need(told.key)?,
                number: told.number,
                frozen: Duration::from_nanos(told.frozen_ns),
            },
            Wire::MoveFailed(told) => Report::MoveFailed {
                key: Field("MoveFailedReport", "key").need(told.key)?,
                number: told.number,
                why: Field("MoveFailedReport", "why").text(told.why)?,
            },
            Wire::RolledOut(told) => Report::RolledOut {
                key: Field("RolledOutReport", "key").need(told.key)?,
                bytes: told.bytes,
                why: Some(Field("RolledOutReport", "why").text(told.why)?)
                    .filter(|why| !why.is_empty()),
            },
        })
    }
}
