//! The head of an application and the apinits of its other hosts.

use super::attach::{launch, launch_request, refusal, refused, resume_request, resumption};
use super::{Field, LONG_LIST_MAX, Malformed, all, ms};
use crate::apteam::protocol::peers::{BarrierIn, BarrierOut, FromPeer, PmiEntry, ToPeer};
use crate::rpc::pb;
use std::time::Duration;

impl From<PmiEntry> for pb::PmiEntry {
    fn from(entry: PmiEntry) -> Self {
        let PmiEntry { key, value } = entry;
        Self { key, value }
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

impl From<ToPeer> for pb::ToPeer {
    fn from(message: ToPeer) -> Self {
        use pb::to_peer::Message;
        let message = match message {
            ToPeer::Launch { key, ticket, launch } => {
                Message::Launch(launch_request(key, ticket, *launch))
            }
            ToPeer::Resume { key, ticket, taken } => {
                Message::Resume(resume_request(key, ticket, taken))
            }
            ToPeer::OutputTaken(taken) => Message::OutputTaken(taken.into()),
            ToPeer::Signal(signal) => Message::Signal(signal.into()),
            ToPeer::Terminate { cause, kill_after } => Message::Terminate(pb::Terminate {
                cause: Some(cause.into()),
                kill_after_ms: ms(kill_after),
            }),
            ToPeer::Go => Message::Go(pb::Go {}),
            ToPeer::BarrierOut(barrier) => Message::BarrierOut(barrier.into()),
        };
        Self { message: Some(message) }
    }
}

impl TryFrom<pb::ToPeer> for ToPeer {
    type Error = Malformed;
    fn try_from(message: pb::ToPeer) -> Result<Self, Malformed> {
        use pb::to_peer::Message;
        Ok(match Field("ToPeer", "message").variant(message.message)? {
            Message::Launch(request) => {
                let (key, ticket, launch) = launch(request)?;
                ToPeer::Launch { key, ticket, launch }
            }
            Message::Resume(request) => {
                let (key, ticket, taken) = resumption(request)?;
                ToPeer::Resume { key, ticket, taken }
            }
            Message::OutputTaken(taken) => ToPeer::OutputTaken(taken.try_into()?),
            Message::Signal(signal) => ToPeer::Signal(signal.try_into()?),
            Message::Terminate(terminate) => ToPeer::Terminate {
                cause: Field("Terminate", "cause").need(terminate.cause)?,
                kill_after: Duration::from_millis(terminate.kill_after_ms),
            },
            Message::Go(_) => ToPeer::Go,
            Message::BarrierOut(barrier) => ToPeer::BarrierOut(barrier.try_into()?),
        })
    }
}

impl From<FromPeer> for pb::FromPeer {
    fn from(message: FromPeer) -> Self {
        use pb::from_peer::Message;
        let message = match message {
            FromPeer::Accepted => Message::Accepted(pb::LaunchAccepted {}),
            FromPeer::Refused { text, cause } => Message::Refused(refused(text, cause)),
            FromPeer::NotNow(text) => Message::NotNow(text),
            FromPeer::Ready => Message::Ready(pb::Ready {}),
            FromPeer::Going => Message::Going(pb::Going {}),
            FromPeer::Output(output) => Message::Output(output.into()),
            FromPeer::SignalsTaken(number) => Message::SignalsTaken(number),
            FromPeer::Notice(notice) => Message::Notice(notice.into()),
            FromPeer::BarrierIn(barrier) => Message::BarrierIn(barrier.into()),
            FromPeer::Decisive(decisive) => Message::Decisive(decisive.into()),
            FromPeer::Done => Message::Done(pb::Done {}),
        };
        Self { message: Some(message) }
    }
}

impl TryFrom<pb::FromPeer> for FromPeer {
    type Error = Malformed;
    fn try_from(message: pb::FromPeer) -> Result<Self, Malformed> {
        use pb::from_peer::Message;
        let of = |field| Field("FromPeer", field);
        Ok(match of("message").variant(message.message)? {
            Message::Accepted(_) => FromPeer::Accepted,
            Message::Refused(refused) => {
                let (text, cause) = refusal(refused)?;
                FromPeer::Refused { text, cause }
            }
            Message::NotNow(text) => FromPeer::NotNow(of("not_now").text(text)?),
            Message::Ready(_) => FromPeer::Ready,
            Message::Going(_) => FromPeer::Going,
            Message::Output(output) => FromPeer::Output(output.try_into()?),
            Message::SignalsTaken(number) => FromPeer::SignalsTaken(number),
            Message::Notice(notice) => FromPeer::Notice(notice.try_into()?),
            Message::BarrierIn(barrier) => FromPeer::BarrierIn(barrier.try_into()?),
            Message::Decisive(decisive) => FromPeer::Decisive(decisive.try_into()?),
            Message::Done(_) => FromPeer::Done,
        })
    }
}
