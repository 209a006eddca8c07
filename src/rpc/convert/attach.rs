//! A front end and an apinit: the launch, stdio.

use super::codec::{
    Between, CString, CStrings, Codec, Data, Digest, FileName, Inner, List, Micros, Millis, NodeId,
    Optional, POSITIVE, Required, RequiredBox, SIGNAL, Same, Secret, Text, kind,
};
use super::common::End;
use super::table::{kinds, message, variants};
use super::{Field, LIST_MAX, LONG_LIST_MAX, Malformed};
use crate::apteam::binding::{Binding, LISTS_MAX, Lists};
use crate::apteam::ending::PeReport;
use crate::apteam::launch::{FileIdentity, Launch, Limit, PARTS_MAX, Part, ServePmix, Strace};
use crate::apteam::launcher_variables::Rendezvous;
use crate::apteam::protocol::attach::{
    FromApinit, FrontReason, NumberedSignal, Output, OutputTaken, StdinCredit, StdinPiece, ToApinit,
};
use crate::apteam::protocol::notice::Notice;
use crate::apteam::protocol::programs::ProgramOf;
use crate::rpc::pb;
use bytes::Bytes;

/// More limits than Linux has kinds of (16).
const LIMITS_MAX: u32 = 64;

message! {
    Limit = Limit;
    resource: Between(0, LIMITS_MAX),
    soft: Same,
}

message! {
    FileIdentity = FileIdentity;
    device: Same,
    inode: Same,
    size: Same,
    mtime_ns: Same,
    digest: Digest,
}

message! {
    ProgramOf = ProgramOf;
    key: Required,
    ticket: Secret,
    part: Same,
}

message! {
    Rendezvous = Rendezvous;
    address: Text,
    port: Between(0, u16::MAX as u32),
}

message! {
    Strace = Strace;
    options: CStrings,
}

/// How PEs are bound: the kind, and the lists of `-cc` where it has some.
struct BindingLists;

impl Codec<Binding, (i32, Vec<pb::ProcessorList>)> for BindingLists {
    fn write(self, plain: Binding) -> (i32, Vec<pb::ProcessorList>) {
        use pb::launch::Binding as Wire;
        let (kind, lists) = match &plain {
            Binding::Usual => (Wire::Usual, None),
            Binding::Cpu => (Wire::Cpu, None),
            Binding::None => (Wire::None, None),
            Binding::Depth => (Wire::Depth, None),
            Binding::NumaNode => (Wire::NumaNode, None),
            Binding::Lists(lists) => (Wire::Lists, Some(lists)),
        };
        let list = |list: &Vec<(u32, u32)>| pb::ProcessorList {
            ranges: list.iter().map(|(a, b)| pb::ProcessorRange { first: *a, last: *b }).collect(),
        };
        (kind.into(), lists.map_or(&[][..], Lists::ranges).iter().map(list).collect())
    }

    fn read(
        self,
        field: Field,
        (kind, given): (i32, Vec<pb::ProcessorList>),
    ) -> Result<Binding, Malformed> {
        use pb::launch::Binding as Wire;
        Ok(match Wire::try_from(kind) {
            Ok(Wire::Usual) => Binding::Usual,
            Ok(Wire::Cpu) => Binding::Cpu,
            Ok(Wire::None) => Binding::None,
            Ok(Wire::Depth) => Binding::Depth,
            Ok(Wire::NumaNode) => Binding::NumaNode,
            Ok(Wire::Lists) => Binding::Lists(lists(given)?),
            Err(_) => {
                return field.wrong(format_args!(
                    "{kind} is an unknown kind of binding: this psched is older than aprun, \
                     and has to be upgraded"
                ));
            }
        })
    }
}

fn lists(lists: Vec<pb::ProcessorList>) -> Result<Lists, Malformed> {
    let of = Field("Launch", "binding_lists");
    of.bounded(&lists, LISTS_MAX)?;
    let range = |range: &pb::ProcessorRange| (range.first, range.last);
    let list = |list: &pb::ProcessorList| list.ranges.iter().map(range).collect();
    Lists::new(lists.iter().map(list).collect()).or_else(|problem| of.wrong(problem))
}

kinds! {
    ServePmix = launch::Pmix { No, Offered, Needed }
}

message! {
    Launch = Launch;
    binding = (binding, binding_lists): BindingLists,
    executable: FileName,
    arguments: CStrings,
    environment: CStrings,
    directory: CString,
    umask: Between(0, 0o777),
    limits: List(LIMITS_MAX as usize),
    pmi: Same,
    pmi_port: Same,
    pmix: kind::<pb::launch::Pmix>(),
    whole_lines: Same,
    report: Same,
    strace: Optional,
    stacks: Same,
    copies: Same,
    instead: CString,
    shares: Same,
    rendezvous: Optional,
    identity: Optional,
    more = parts: List(PARTS_MAX - 1),
    checked by parts_in_order,
}

/// The programs after the first. All of them together have no more arguments than one may have.
fn parts_in_order(launch: Launch) -> Result<Launch, Malformed> {
    let of = Field("Launch", "parts");
    let (parts, own) = (&launch.more, launch.arguments.len());
    let all = parts.iter().fold(own, |sum, part| sum.saturating_add(part.arguments.len()));
    if all > LONG_LIST_MAX {
        return of.wrong(format_args!("{all} arguments in all, more than {LONG_LIST_MAX}"));
    }
    match parts.windows(2).find(|pair| pair[1].first <= pair[0].first) {
        Some(pair) => of.wrong(format_args!(
            "one begins with PE {}, and the one after it with PE {}",
            pair[0].first, pair[1].first
        )),
        None => Ok(launch),
    }
}

message! {
    Part = LaunchPart;
    executable: FileName,
    first = first_rank: POSITIVE,
    arguments: CStrings,
    identity: Optional,
}

message! {
    OutputTaken = OutputTaken;
    source: Same,
    offset: Same,
}

/// A piece of a stream, at an offset: what follows adds its beginning and its length.
fn not_beyond(message: &'static str, offset: u64, data: &Bytes) -> Result<(), Malformed> {
    match offset.checked_add(data.len() as u64) {
        Some(_) => Ok(()),
        None => Field(message, "offset").wrong("it is beyond any stream"),
    }
}

message! {
    StdinPiece = StdinPiece;
    offset: Same,
    data: Data,
    checked by stdin_offset,
}

fn stdin_offset(piece: StdinPiece) -> Result<StdinPiece, Malformed> {
    not_beyond("StdinPiece", piece.offset, &piece.data).map(|()| piece)
}

message! {
    StdinCredit = StdinCredit;
    credit: Same,
    received: Same,
}

message! {
    NumberedSignal = NumberedSignal;
    number: Same,
    signal: SIGNAL,
}

message! {
    Output = Output;
    source: Same,
    offset: Same,
    rank: Same,
    nid: NodeId,
    stderr: Same,
    data: Data,
    report: Optional,
    checked by output_offset,
}

fn output_offset(output: Output) -> Result<Output, Malformed> {
    not_beyond("Output", output.offset, &output.data).map(|()| output)
}

message! {
    PeReport = PeReport;
    pid: Same,
    elapsed = elapsed_us: Micros,
    end = (code, signal): End,
}

/// That stdin has ended, at this offset.
pub(super) struct StdinEnd;

impl Codec<u64, pb::StdinEnd> for StdinEnd {
    fn write(self, length: u64) -> pb::StdinEnd {
        pb::StdinEnd { length }
    }
    fn read(self, _: Field, wire: pb::StdinEnd) -> Result<u64, Malformed> {
        Ok(wire.length)
    }
}

/// Why a front end ends its application. A reason that is not known is one of a front end that gives up, whatever
/// made it.
struct Reason;

impl Codec<FrontReason, (i32, i32)> for Reason {
    fn write(self, plain: FrontReason) -> (i32, i32) {
        use pb::front_terminate::Reason as Wire;
        match plain {
            FrontReason::StdoutClosed => (Wire::StdoutClosed.into(), 0),
            FrontReason::Gone => (Wire::Gone.into(), 0),
            FrontReason::Withdrawn { signal } => (Wire::Withdrawn.into(), signal),
        }
    }
    fn read(self, field: Field, (reason, signal): (i32, i32)) -> Result<FrontReason, Malformed> {
        use pb::front_terminate::Reason as Wire;
        Ok(match Wire::try_from(reason) {
            Ok(Wire::StdoutClosed) => FrontReason::StdoutClosed,
            Ok(Wire::Withdrawn) => {
                let signal = SIGNAL.read(Field(field.0, "signal"), signal)?;
                FrontReason::Withdrawn { signal }
            }
            Ok(Wire::Gone) | Err(_) => FrontReason::Gone,
        })
    }
}

variants! {
    ToApinit = to_apinit::Message, in ToApinit.message;
    Launch { key: Required, ticket: Secret, launch: RequiredBox } = LaunchRequest,
    Resume { key: Required, ticket: Secret, taken: List(LIST_MAX) } = ResumeRequest,
    Stdin(stdin: Inner),
    StdinEnd(stdin_end: StdinEnd),
    OutputTaken(output_taken: Inner),
    Signal(signal: Inner),
    Terminate { reason = (reason, signal): Reason, kill_after = kill_after_ms: Millis } = FrontTerminate,
    unread "it is a launch of several programs": LaunchSeveral,
}

/// A launch of several programs is a message of its own: an apinit of a release that would run the first one in all
/// PEs does not know it.
impl From<ToApinit> for pb::ToApinit {
    fn from(message: ToApinit) -> Self {
        use pb::to_apinit::Message;
        let message = match message.into() {
            Message::Launch(request)
                if request.launch.as_ref().is_some_and(|launch| !launch.parts.is_empty()) =>
            {
                Message::LaunchSeveral(request)
            }
            message => message,
        };
        Self { message: Some(message) }
    }
}

impl TryFrom<pb::ToApinit> for ToApinit {
    type Error = Malformed;
    fn try_from(message: pb::ToApinit) -> Result<Self, Malformed> {
        use pb::to_apinit::Message;
        match Field("ToApinit", "message").variant(message.message)? {
            Message::LaunchSeveral(request) => Message::Launch(request).try_into(),
            message => message.try_into(),
        }
    }
}

variants! {
    FromApinit = from_apinit::Message, in FromApinit.message;
    Accepted,
    NotNow(not_now: Text),
    Refused { text: Text, cause: Optional } = Refused,
    Going,
    Output(output: Inner),
    StdinCredit(stdin_credit: Inner),
    SignalsTaken(signals_taken: Same),
    Notice(notice: Inner),
    ProgramWanted(program_wanted: Same),
    Done,
}

/// The notice that an aprun of release 0.1 does not know is beside the message, where that one does
/// not look.
impl From<FromApinit> for pb::FromApinit {
    fn from(message: FromApinit) -> Self {
        use pb::from_apinit::Message;
        match message {
            FromApinit::Notice(notice @ Notice::Silent { .. }) => {
                Self { message: Some(Message::SignalsTaken(0)), newer_notice: Some(notice.into()) }
            }
            message => Self { message: Some(message.into()), newer_notice: None },
        }
    }
}

impl TryFrom<pb::FromApinit> for FromApinit {
    type Error = Malformed;
    fn try_from(wire: pb::FromApinit) -> Result<Self, Malformed> {
        match wire.newer_notice {
            // (One of a later release is none for this one: its message says nothing.)
            Some(notice) if notice.notice.is_some() => Ok(FromApinit::Notice(notice.try_into()?)),
            _ => Field("FromApinit", "message").variant(wire.message)?.try_into(),
        }
    }
}
