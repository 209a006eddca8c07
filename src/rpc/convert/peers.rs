//! The head of an application and the apinits of its other hosts.

use super::codec::{
    Codec, Data, Inner, List, Millis, Optional, Required, RequiredBox, Same, Secret, Text,
};
use super::table::{message, variants};
use super::{Field, LIST_MAX, LONG_LIST_MAX, Malformed, NODES_MAX};
use crate::apteam::place::HostAddress;
use crate::apteam::protocol::peers::{
    BarrierIn, BarrierOut, Beyond, FromPeer, Indices, Onward, Pass, PmiEntry, SOURCES_MAX, ToPeer,
};

message! {
    PmiEntry = PmiEntry;
    key: Data,
    value: Data,
}

message! {
    BarrierIn = BarrierIn;
    generation: Same,
    entries: List(LONG_LIST_MAX),
}

message! {
    BarrierOut = BarrierOut;
    generation: Same,
    piece: Same,
    last: Same,
    entries: List(LONG_LIST_MAX),
}

message! {
    Onward = Onward;
    index: Same,
    at = (host, address, socket): Address,
}

message! {
    HostAddress = Source;
    host: Text,
    address: Text,
    socket: Text,
}

/// Where an apinit is.
struct Address;

impl Codec<HostAddress, (String, String, String)> for Address {
    fn write(self, plain: HostAddress) -> (String, String, String) {
        let HostAddress { host, address, socket } = plain;
        (host, address, socket)
    }
    fn read(
        self,
        field: Field,
        (host, address, socket): (String, String, String),
    ) -> Result<HostAddress, Malformed> {
        let [host, address, socket] = [host, address, socket].map(|text| field.text(text));
        Ok(HostAddress { host: host?, address: address?, socket: socket? })
    }
}

/// Runs of indices, as pairs.
struct Runs;

impl Codec<Indices, Vec<u32>> for Runs {
    fn write(self, plain: Indices) -> Vec<u32> {
        plain.0.into_iter().flat_map(|(first, count)| [first, count]).collect()
    }
    fn read(self, field: Field, wire: Vec<u32>) -> Result<Indices, Malformed> {
        let (pairs, odd) = wire.as_chunks::<2>();
        field.bounded(pairs, NODES_MAX)?;
        match odd {
            [] => Ok(Indices(pairs.iter().map(|[first, count]| (*first, *count)).collect())),
            _ => field.wrong("runs that are not pairs"),
        }
    }
}

/// A message in one of its own kind, which has to be there.
struct Within;

impl<P: TryFrom<W, Error = Malformed>, W: From<P>> Codec<P, Option<Box<W>>> for Within {
    fn write(self, plain: P) -> Option<Box<W>> {
        Some(Box::new(plain.into()))
    }
    fn read(self, field: Field, wire: Option<Box<W>>) -> Result<P, Malformed> {
        field.need(wire.map(|wire| *wire))
    }
}

/// [`Inner`], in a box on both sides.
struct BoxedBoth;

impl<P: TryFrom<W, Error = Malformed>, W: From<P>> Codec<Box<P>, Box<W>> for BoxedBoth {
    fn write(self, plain: Box<P>) -> Box<W> {
        Box::new((*plain).into())
    }
    fn read(self, _: Field, wire: Box<W>) -> Result<Box<P>, Malformed> {
        (*wire).try_into().map(Box::new)
    }
}

message! {
    Pass = Pass;
    to = to_runs: Runs,
    message: Within,
}

message! {
    Beyond = Beyond;
    index: Same,
    message: Within,
}

variants! {
    ToPeer = ToPeer.message: to_peer::Message;
    Launch { key: Required, ticket: Secret, launch: RequiredBox } = LaunchRequest,
    Resume { key: Required, ticket: Secret, taken: List(LIST_MAX) } = ResumeRequest,
    OutputTaken(output_taken: Inner),
    Signal(signal: Inner),
    Terminate { cause: Required, kill_after = kill_after_ms: Millis } = Terminate,
    Go,
    BarrierOut(barrier_out: Inner),
    Letter(letter: Inner),
    Lead { key: Required, index: Same, fan_out: Same, hosts: List(NODES_MAX) } = Lead,
    Pass(pass: BoxedBoth),
    Sources { hosts: List(SOURCES_MAX) } = Sources,
}

variants! {
    FromPeer = FromPeer.message: from_peer::Message;
    Accepted,
    Refused { text: Text, cause: Optional } = Refused,
    NotNow(not_now: Text),
    Ready,
    Going,
    Output(output: Inner),
    SignalsTaken(signals_taken: Same),
    Notice(notice: Inner),
    BarrierIn(barrier_in: Inner),
    Letter(letter: Inner),
    Decisive(decisive: Inner),
    Done,
    Beyond(beyond: BoxedBoth),
    Lost(lost: Text),
}
