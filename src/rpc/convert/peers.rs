//! The head of an application and the apinits of its other hosts.

use super::codec::{
    Data, Inner, List, Millis, Optional, Required, RequiredBox, Same, Secret, Text,
};
use super::table::{message, variants};
use super::{LIST_MAX, LONG_LIST_MAX};
use crate::apteam::protocol::peers::{BarrierIn, BarrierOut, FromPeer, PmiEntry, ToPeer};

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

variants! {
    ToPeer = ToPeer.message: to_peer::Message;
    Launch { key: Required, ticket: Secret, launch: RequiredBox } = LaunchRequest,
    Resume { key: Required, ticket: Secret, taken: List(LIST_MAX) } = ResumeRequest,
    OutputTaken(output_taken: Inner),
    Signal(signal: Inner),
    Terminate { cause: Required, kill_after = kill_after_ms: Millis } = Terminate,
    Go,
    BarrierOut(barrier_out: Inner),
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
    Decisive(decisive: Inner),
    Done,
}
