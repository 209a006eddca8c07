//! A front end and an apinit: the launch, stdio.

use super::{Field, LIST_MAX, LONG_LIST_MAX, Malformed, all, ms};
use crate::apteam::binding::{Binding, LISTS_MAX, Lists};
use crate::apteam::ending::{Cause, PeEnd, PeReport};
use crate::apteam::launch::{FileIdentity, Launch, Limit, PARTS_MAX, Part};
use crate::apteam::protocol::attach::{
    FromApinit, FrontReason, NumberedSignal, Output, OutputTaken, StdinCredit, StdinPiece, ToApinit,
};
use crate::apteam::{Key, Ticket};
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

/// How a conversation begins, with a front end or with a head.
pub(super) fn launch_request(key: Key, ticket: Ticket, launch: Launch) -> pb::LaunchRequest {
    let ticket = Bytes::copy_from_slice(&ticket.0);
    pb::LaunchRequest { key: Some(key.into()), ticket, launch: Some(launch.into()) }
}

/// The same read.
pub(super) fn launch(request: pb::LaunchRequest) -> Result<(Key, Ticket, Box<Launch>), Malformed> {
    let of = |field| Field("LaunchRequest", field);
    let ticket = Ticket(of("ticket").secret(request.ticket)?);
    Ok((of("key").need(request.key)?, ticket, Box::new(of("launch").need(request.launch)?)))
}

/// How a conversation begins anew.
pub(super) fn resume_request(
    key: Key,
    ticket: Ticket,
    taken: Vec<OutputTaken>,
) -> pb::ResumeRequest {
    let ticket = Bytes::copy_from_slice(&ticket.0);
    pb::ResumeRequest { key: Some(key.into()), ticket, taken: all(taken) }
}

/// The same read.
pub(super) fn resumption(
    request: pb::ResumeRequest,
) -> Result<(Key, Ticket, Vec<OutputTaken>), Malformed> {
    let of = |field| Field("ResumeRequest", field);
    let ticket = Ticket(of("ticket").secret(request.ticket)?);
    Ok((of("key").need(request.key)?, ticket, of("taken").list(request.taken, LIST_MAX)?))
}

fn terminate(reason: FrontReason, kill_after: Duration) -> pb::FrontTerminate {
    use pb::front_terminate::Reason;
    let (reason, signal) = match reason {
        FrontReason::StdoutClosed => (Reason::StdoutClosed, 0),
        FrontReason::Gone => (Reason::Gone, 0),
        FrontReason::Withdrawn { signal } => (Reason::Withdrawn, signal),
    };
    pb::FrontTerminate { reason: reason.into(), kill_after_ms: ms(kill_after), signal }
}

/// A reason that is not known is one of a front end that gives up, whatever made it.
fn reason(terminate: &pb::FrontTerminate) -> Result<FrontReason, Malformed> {
    use pb::front_terminate::Reason;
    Ok(match Reason::try_from(terminate.reason) {
        Ok(Reason::StdoutClosed) => FrontReason::StdoutClosed,
        Ok(Reason::Withdrawn) => {
            let signal = Field("FrontTerminate", "signal").signal(terminate.signal)?;
            FrontReason::Withdrawn { signal }
        }
        Ok(Reason::Gone) | Err(_) => FrontReason::Gone,
    })
}

impl From<ToApinit> for pb::ToApinit {
    fn from(message: ToApinit) -> Self {
        use pb::to_apinit::Message;
        let message = match message {
            ToApinit::Launch { key, ticket, launch } => {
                let several = !launch.more.is_empty();
                let request = launch_request(key, ticket, *launch);
                if several { Message::LaunchSeveral(request) } else { Message::Launch(request) }
            }
            ToApinit::Resume { key, ticket, taken } => {
                Message::Resume(resume_request(key, ticket, taken))
            }
            ToApinit::Stdin(data) => Message::Stdin(data.into()),
            ToApinit::StdinEnd(length) => Message::StdinEnd(pb::StdinEnd { length }),
            ToApinit::OutputTaken(taken) => Message::OutputTaken(taken.into()),
            ToApinit::Signal(signal) => Message::Signal(signal.into()),
            ToApinit::Terminate { reason, kill_after } => {
                Message::Terminate(terminate(reason, kill_after))
            }
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
            Message::Launch(request) | Message::LaunchSeveral(request) => {
                let (key, ticket, launch) = launch(request)?;
                ToApinit::Launch { key, ticket, launch }
            }
            Message::Resume(request) => {
                let (key, ticket, taken) = resumption(request)?;
                ToApinit::Resume { key, ticket, taken }
            }
            Message::Stdin(piece) => ToApinit::Stdin(piece.try_into()?),
            Message::StdinEnd(end) => ToApinit::StdinEnd(end.length),
            Message::OutputTaken(taken) => ToApinit::OutputTaken(taken.try_into()?),
            Message::Signal(signal) => ToApinit::Signal(signal.try_into()?),
            Message::Terminate(terminate) => ToApinit::Terminate {
                reason: reason(&terminate)?,
                kill_after: Duration::from_millis(terminate.kill_after_ms),
            },
        })
    }
}

/// A launch or a resumption is not taken.
pub(super) fn refused(text: String, cause: Option<Cause>) -> pb::Refused {
    pb::Refused { text, cause: cause.map(Into::into) }
}

/// The same read.
pub(super) fn refusal(refused: pb::Refused) -> Result<(String, Option<Cause>), Malformed> {
    let of = |field| Field("Refused", field);
    Ok((of("text").text(refused.text)?, of("cause").maybe(refused.cause)?))
}

impl From<FromApinit> for pb::FromApinit {
    fn from(message: FromApinit) -> Self {
        use pb::from_apinit::Message;
        let message = match message {
            FromApinit::Accepted => Message::Accepted(pb::LaunchAccepted {}),
            FromApinit::NotNow(text) => Message::NotNow(text),
            FromApinit::Refused { text, cause } => Message::Refused(refused(text, cause)),
            FromApinit::Going => Message::Going(pb::Going {}),
            FromApinit::Output(output) => Message::Output(output.into()),
            FromApinit::StdinCredit(credit) => Message::StdinCredit(credit.into()),
            FromApinit::SignalsTaken(number) => Message::SignalsTaken(number),
            FromApinit::Notice(notice) => Message::Notice(notice.into()),
            FromApinit::Done => Message::Done(pb::Done {}),
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
            Message::Refused(refused) => {
                let (text, cause) = refusal(refused)?;
                FromApinit::Refused { text, cause }
            }
            Message::Going(_) => FromApinit::Going,
            Message::Output(output) => FromApinit::Output(output.try_into()?),
            Message::StdinCredit(credit) => FromApinit::StdinCredit(credit.into()),
            Message::SignalsTaken(number) => FromApinit::SignalsTaken(number),
            Message::Notice(notice) => FromApinit::Notice(notice.try_into()?),
            Message::Done(_) => FromApinit::Done,
        })
    }
}
