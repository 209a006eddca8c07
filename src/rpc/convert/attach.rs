//! A front end and an apinit: the launch, stdio, PMI.

use super::{Field, LIST_MAX, LONG_LIST_MAX, Malformed, all, ms};
use crate::apteam::Ticket;
use crate::apteam::binding::{Binding, LISTS_MAX, Lists};
use crate::apteam::ending::{PeEnd, PeReport};
use crate::apteam::launch::{FileIdentity, Launch, Limit, PARTS_MAX, Part};
use crate::apteam::protocol::attach::{
    BarrierIn, BarrierOut, FromApinit, NumberedSignal, Output, OutputTaken, PmiEntry, StdinCredit,
    StdinPiece, ToApinit,
};
use crate::machine::Nid;
use crate::rpc::pb;
use bytes::Bytes;
use std::time::Duration;

/// More limits than Linux has kinds of (16).
const LIMITS_MAX: usize = 64;

/// Messages that have the fields of their type, each as it is.
macro_rules! field_by_field {
    ($($name:ident { $($field:ident),+ })+) => {
        $(
            impl From<$name> for pb::$name {
                fn from(plain: $name) -> Self {
                    let $name { $($field),+ } = plain;
                    Self { $($field),+ }
                }
            }
        )+
    };
}

field_by_field! {
    Limit { resource, soft }
    FileIdentity { device, inode, size, mtime_ns }
    OutputTaken { source, offset }
    PmiEntry { key, value }
    StdinPiece { offset, data }
    StdinCredit { credit, received }
    NumberedSignal { number, signal }
}

/// A piece of a stream: what follows adds its beginning and its length.
fn stretch(message: &'static str, offset: u64, data: Bytes) -> Result<Bytes, Malformed> {
    let data = Field(message, "data").data(data)?;
    match offset.checked_add(data.len() as u64) {
        Some(_) => Ok(data),
        None => Field(message, "offset").wrong("it is beyond any stream"),
    }
}

impl TryFrom<pb::Limit> for Limit {
    type Error = Malformed;
    fn try_from(limit: pb::Limit) -> Result<Self, Malformed> {
        let resource = Field("Limit", "resource").between(limit.resource, 0, LIMITS_MAX as u32)?;
        Ok(Limit { resource, soft: limit.soft })
    }
}

impl TryFrom<pb::FileIdentity> for FileIdentity {
    type Error = Malformed;
    fn try_from(identity: pb::FileIdentity) -> Result<Self, Malformed> {
        let pb::FileIdentity { device, inode, size, mtime_ns } = identity;
        Ok(FileIdentity { device, inode, size, mtime_ns })
    }
}

impl From<Launch> for pb::Launch {
    fn from(launch: Launch) -> Self {
        let (binding, lists) = match &launch.binding {
            Binding::Cpu => (pb::launch::Binding::Cpu, None),
            Binding::None => (pb::launch::Binding::None, None),
            Binding::Depth => (pb::launch::Binding::Depth, None),
            Binding::NumaNode => (pb::launch::Binding::NumaNode, None),
            Binding::Lists(lists) => (pb::launch::Binding::Lists, Some(lists)),
        };
        let list = |list: &Vec<(u32, u32)>| pb::ProcessorList {
            ranges: list.iter().map(|(a, b)| pb::ProcessorRange { first: *a, last: *b }).collect(),
        };
        let binding_lists = lists.map_or(&[][..], Lists::ranges).iter().map(list).collect();
        Self {
            executable: launch.executable.into(),
            arguments: all(launch.arguments),
            environment: all(launch.environment),
            directory: launch.directory.into(),
            umask: launch.umask,
            limits: all(launch.limits),
            binding: binding.into(),
            pmi: launch.pmi,
            whole_lines: launch.whole_lines,
            identity: launch.identity.map(Into::into),
            binding_lists,
            report: launch.report,
            parts: all(launch.more),
        }
    }
}

impl From<Part> for pb::LaunchPart {
    fn from(part: Part) -> Self {
        Self {
            first_rank: part.first,
            executable: part.executable.into(),
            arguments: all(part.arguments),
            identity: part.identity.map(Into::into),
        }
    }
}

impl TryFrom<pb::LaunchPart> for Part {
    type Error = Malformed;
    fn try_from(part: pb::LaunchPart) -> Result<Self, Malformed> {
        let of = |field| Field("LaunchPart", field);
        if part.executable.is_empty() {
            return of("executable").wrong("it is missing");
        }
        Ok(Part {
            first: of("first_rank").positive(part.first_rank)?,
            executable: of("executable").c_string(part.executable)?,
            arguments: of("arguments").c_strings(part.arguments)?,
            identity: of("identity").maybe(part.identity)?,
        })
    }
}

/// The programs after the first. All of them together have no more arguments than one may have.
fn parts(parts: Vec<pb::LaunchPart>, arguments: usize) -> Result<Vec<Part>, Malformed> {
    let of = Field("Launch", "parts");
    let all = parts.iter().fold(arguments, |sum, part| sum.saturating_add(part.arguments.len()));
    if all > LONG_LIST_MAX {
        return of.wrong(format_args!("{all} arguments in all, more than {LONG_LIST_MAX}"));
    }
    let parts: Vec<Part> = of.list(parts, PARTS_MAX - 1)?;
    match parts.windows(2).find(|pair| pair[1].first <= pair[0].first) {
        Some(pair) => of.wrong(format_args!(
            "one begins with PE {}, and the one after it with PE {}",
            pair[0].first, pair[1].first
        )),
        None => Ok(parts),
    }
}

impl TryFrom<pb::Launch> for Launch {
    type Error = Malformed;
    fn try_from(launch: pb::Launch) -> Result<Self, Malformed> {
        let of = |field| Field("Launch", field);
        let binding = match pb::launch::Binding::try_from(launch.binding) {
            Ok(pb::launch::Binding::Cpu) => Binding::Cpu,
            Ok(pb::launch::Binding::None) => Binding::None,
            Ok(pb::launch::Binding::Depth) => Binding::Depth,
            Ok(pb::launch::Binding::NumaNode) => Binding::NumaNode,
            Ok(pb::launch::Binding::Lists) => Binding::Lists(lists(launch.binding_lists)?),
            Err(_) => {
                return of("binding").wrong(format_args!(
                    "{} is no kind of binding (-cc) that this release knows: leave out -cc, or \
                     install the release of who asks",
                    launch.binding
                ));
            }
        };
        if launch.executable.is_empty() {
            return of("executable").wrong("it is missing");
        }
        let more = parts(launch.parts, launch.arguments.len())?;
        Ok(Launch {
            executable: of("executable").c_string(launch.executable)?,
            arguments: of("arguments").c_strings(launch.arguments)?,
            environment: of("environment").c_strings(launch.environment)?,
            directory: of("directory").c_string(launch.directory)?,
            umask: of("umask").between(launch.umask, 0, 0o777)?,
            limits: of("limits").list(launch.limits, LIMITS_MAX)?,
            binding,
            pmi: launch.pmi,
            whole_lines: launch.whole_lines,
            report: launch.report,
            identity: of("identity").maybe(launch.identity)?,
            more,
        })
    }
}

/// The lists of a binding.
fn lists(lists: Vec<pb::ProcessorList>) -> Result<Lists, Malformed> {
    let of = Field("Launch", "binding_lists");
    of.bounded(&lists, LISTS_MAX)?;
    let range = |range: &pb::ProcessorRange| (range.first, range.last);
    let list = |list: &pb::ProcessorList| list.ranges.iter().map(range).collect();
    match Lists::new(lists.iter().map(list).collect()) {
        Ok(lists) => Ok(lists),
        Err(problem) => of.wrong(problem),
    }
}

impl TryFrom<pb::OutputTaken> for OutputTaken {
    type Error = Malformed;
    fn try_from(taken: pb::OutputTaken) -> Result<Self, Malformed> {
        Ok(OutputTaken { source: taken.source, offset: taken.offset })
    }
}

impl TryFrom<pb::PmiEntry> for PmiEntry {
    type Error = Malformed;
    fn try_from(entry: pb::PmiEntry) -> Result<Self, Malformed> {
        let key = Field("PmiEntry", "key").data(entry.key)?;
        Ok(PmiEntry { key, value: Field("PmiEntry", "value").data(entry.value)? })
    }
}

impl From<BarrierIn> for pb::BarrierIn {
    fn from(barrier: BarrierIn) -> Self {
        Self { generation: barrier.generation, entries: all(barrier.entries) }
    }
}

impl TryFrom<pb::BarrierIn> for BarrierIn {
    type Error = Malformed;
    fn try_from(barrier: pb::BarrierIn) -> Result<Self, Malformed> {
        let entries = Field("BarrierIn", "entries").list(barrier.entries, LONG_LIST_MAX)?;
        Ok(BarrierIn { generation: barrier.generation, entries })
    }
}

impl From<BarrierOut> for pb::BarrierOut {
    fn from(barrier: BarrierOut) -> Self {
        let BarrierOut { generation, piece, last, entries } = barrier;
        Self { generation, piece, last, entries: all(entries) }
    }
}

impl TryFrom<pb::BarrierOut> for BarrierOut {
    type Error = Malformed;
    fn try_from(barrier: pb::BarrierOut) -> Result<Self, Malformed> {
        let pb::BarrierOut { generation, piece, last, entries } = barrier;
        let entries = Field("BarrierOut", "entries").list(entries, LONG_LIST_MAX)?;
        Ok(BarrierOut { generation, piece, last, entries })
    }
}

impl TryFrom<pb::StdinPiece> for StdinPiece {
    type Error = Malformed;
    fn try_from(piece: pb::StdinPiece) -> Result<Self, Malformed> {
        let pb::StdinPiece { offset, data } = piece;
        Ok(StdinPiece { offset, data: stretch("StdinPiece", offset, data)? })
    }
}

impl From<pb::StdinCredit> for StdinCredit {
    fn from(credit: pb::StdinCredit) -> Self {
        Self { credit: credit.credit, received: credit.received }
    }
}

impl TryFrom<pb::NumberedSignal> for NumberedSignal {
    type Error = Malformed;
    fn try_from(signal: pb::NumberedSignal) -> Result<Self, Malformed> {
        let pb::NumberedSignal { number, signal } = signal;
        Ok(NumberedSignal { number, signal: Field("NumberedSignal", "signal").signal(signal)? })
    }
}

impl From<Output> for pb::Output {
    fn from(output: Output) -> Self {
        let Output { source, offset, rank, nid, stderr, data, report } = output;
        Self { source, offset, rank, nid: nid.0, stderr, data, report: report.map(Into::into) }
    }
}

impl TryFrom<pb::Output> for Output {
    type Error = Malformed;
    fn try_from(output: pb::Output) -> Result<Self, Malformed> {
        let pb::Output { source, offset, rank, nid, stderr, data, report } = output;
        let data = stretch("Output", offset, data)?;
        let report = Field("Output", "report").maybe(report)?;
        Ok(Output { source, offset, rank, nid: Nid(nid), stderr, data, report })
    }
}

impl From<PeReport> for pb::PeReport {
    fn from(report: PeReport) -> Self {
        let (code, signal) = match report.end {
            PeEnd::Exit(code) => (code.into(), 0),
            PeEnd::Signal(signal) => (0, signal),
        };
        let elapsed_us = u64::try_from(report.elapsed.as_micros()).unwrap_or(u64::MAX);
        Self { pid: report.pid, elapsed_us, code, signal }
    }
}

impl TryFrom<pb::PeReport> for PeReport {
    type Error = Malformed;
    fn try_from(report: pb::PeReport) -> Result<Self, Malformed> {
        let pb::PeReport { pid, elapsed_us, code, signal } = report;
        let end = match signal {
            0 => PeEnd::Exit(Field("PeReport", "code").exit_code(code)?),
            signal => PeEnd::Signal(Field("PeReport", "signal").signal(signal)?),
        };
        Ok(PeReport { pid, elapsed: Duration::from_micros(elapsed_us), end })
    }
}

impl From<ToApinit> for pb::ToApinit {
    fn from(message: ToApinit) -> Self {
        use pb::to_apinit::Message;
        let message = match message {
            ToApinit::Launch { key, ticket, launch } => {
                let several = !launch.more.is_empty();
                let request = pb::LaunchRequest {
                    key: Some(key.into()),
                    ticket: Bytes::copy_from_slice(&ticket.0),
                    launch: Some((*launch).into()),
                };
                if several { Message::LaunchSeveral(request) } else { Message::Launch(request) }
            }
            ToApinit::Resume { key, ticket, taken } => Message::Resume(pb::ResumeRequest {
                key: Some(key.into()),
                ticket: Bytes::copy_from_slice(&ticket.0),
                taken: all(taken),
            }),
            ToApinit::Stdin(data) => Message::Stdin(data.into()),
            ToApinit::StdinEnd(length) => Message::StdinEnd(pb::StdinEnd { length }),
            ToApinit::OutputTaken(taken) => Message::OutputTaken(taken.into()),
            ToApinit::Signal(signal) => Message::Signal(signal.into()),
            ToApinit::Terminate { cause, kill_after } => Message::Terminate(pb::Terminate {
                cause: Some(cause.into()),
                kill_after_ms: ms(kill_after),
            }),
            ToApinit::Go => Message::Go(pb::Go {}),
            ToApinit::BarrierOut(barrier) => Message::BarrierOut(barrier.into()),
        };
        Self { message: Some(message) }
    }
}

impl TryFrom<pb::ToApinit> for ToApinit {
    type Error = Malformed;
    fn try_from(message: pb::ToApinit) -> Result<Self, Malformed> {
        use pb::to_apinit::Message;
        let of = |field| Field("ToApinit", field);
        Ok(match of("message").variant(message.message)? {
            Message::Launch(request) | Message::LaunchSeveral(request) => ToApinit::Launch {
                key: Field("LaunchRequest", "key").need(request.key)?,
                ticket: Ticket(Field("LaunchRequest", "ticket").secret(request.ticket)?),
                launch: Box::new(Field("LaunchRequest", "launch").need(request.launch)?),
            },
            Message::Resume(request) => ToApinit::Resume {
                key: Field("ResumeRequest", "key").need(request.key)?,
                ticket: Ticket(Field("ResumeRequest", "ticket").secret(request.ticket)?),
                taken: Field("ResumeRequest", "taken").list(request.taken, LIST_MAX)?,
            },
            Message::Stdin(piece) => ToApinit::Stdin(piece.try_into()?),
            Message::StdinEnd(end) => ToApinit::StdinEnd(end.length),
            Message::OutputTaken(taken) => ToApinit::OutputTaken(taken.try_into()?),
            Message::Signal(signal) => ToApinit::Signal(signal.try_into()?),
            Message::Terminate(terminate) => ToApinit::Terminate {
                cause: Field("Terminate", "cause").need(terminate.cause)?,
                kill_after: Duration::from_millis(terminate.kill_after_ms),
            },
            Message::Go(_) => ToApinit::Go,
            Message::BarrierOut(barrier) => ToApinit::BarrierOut(barrier.try_into()?),
        })
    }
}

impl From<FromApinit> for pb::FromApinit {
    fn from(message: FromApinit) -> Self {
        use pb::from_apinit::Message;
        let message = match message {
            FromApinit::Accepted => Message::Accepted(pb::LaunchAccepted {}),
            FromApinit::NotNow(text) => Message::NotNow(text),
            FromApinit::Refused { text, cause } => {
                Message::Refused(pb::Refused { text, cause: cause.map(Into::into) })
            }
            FromApinit::Going => Message::Going(pb::Going {}),
            FromApinit::Output(output) => Message::Output(output.into()),
            FromApinit::StdinCredit(credit) => Message::StdinCredit(credit.into()),
            FromApinit::SignalsTaken(number) => Message::SignalsTaken(number),
            FromApinit::Notice(text) => Message::Notice(text),
            FromApinit::Done => Message::Done(pb::Done {}),
            FromApinit::Ready => Message::Ready(pb::Ready {}),
            FromApinit::BarrierIn(barrier) => Message::BarrierIn(barrier.into()),
            FromApinit::Decisive(decisive) => Message::Decisive(decisive.into()),
        };
        Self { message: Some(message) }
    }
}

impl TryFrom<pb::FromApinit> for FromApinit {
    type Error = Malformed;
    fn try_from(message: pb::FromApinit) -> Result<Self, Malformed> {
        use pb::from_apinit::Message;
        let of = |field| Field("FromApinit", field);
        Ok(match of("message").variant(message.message)? {
            Message::Accepted(_) => FromApinit::Accepted,
            Message::NotNow(text) => FromApinit::NotNow(Field("FromApinit", "not_now").text(text)?),
            Message::Refused(refused) => FromApinit::Refused {
                text: Field("Refused", "text").text(refused.text)?,
                cause: Field("Refused", "cause").maybe(refused.cause)?,
            },
            Message::Going(_) => FromApinit::Going,
            Message::Output(output) => FromApinit::Output(output.try_into()?),
            Message::StdinCredit(credit) => FromApinit::StdinCredit(credit.into()),
            Message::SignalsTaken(number) => FromApinit::SignalsTaken(number),
            Message::Notice(text) => FromApinit::Notice(of("notice").text(text)?),
            Message::Done(_) => FromApinit::Done,
            Message::Ready(_) => FromApinit::Ready,
            Message::BarrierIn(barrier) => FromApinit::BarrierIn(barrier.try_into()?),
            Message::Decisive(decisive) => FromApinit::Decisive(decisive.try_into()?),
        })
    }
}
