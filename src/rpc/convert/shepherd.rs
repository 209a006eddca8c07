//! apinit and apshepherd.

use super::attach::StdinEnd;
use super::codec::{
    AtMost, Boxed, CString, CStrings, Codec, Digest, FileName, Given, Inner, LimitMillis, List,
    Millis, Nice, NodeId, Numbers, Optional, OrDefault, POSITIVE, Required, Said, Same, Text, Via,
};
use super::table::{message, variants};
use super::{Field, LONG_LIST_MAX, Malformed};
use crate::apteam::launch::{HostLaunch, LocalPe, PARTS_MAX, Spawned};
use crate::apteam::protocol::node::STUCK_MAX;
use crate::apteam::protocol::processes::{Answer, PeProcess, Question, RANKS_MAX};
use crate::apteam::protocol::programs::{GivenProgram, WantedProgram};
use crate::apteam::protocol::shepherd::{FromShepherd, Hello, ToShepherd};
use crate::apteam::protocol::stacks::{
    Answer as StacksAnswer, Made, Placed, Question as StacksQuestion,
};
use crate::rpc::pb;

message! {
    LocalPe = LocalPe;
    rank: Same,
    nid: NodeId,
    cpus: Numbers,
    nice: Nice,
    depth: Same,
}

message! {
    HostLaunch = ShepherdLaunch;
    key: Required,
    width: POSITIVE,
    depth: POSITIVE,
    launch: Required,
    pes: List(LONG_LIST_MAX),
    process_mapping: Text,
    alone: Same,
    cpu_limit = cpu_limit_ms: LimitMillis,
    stdin: Same,
    kill_grace = kill_grace_ms: Millis,
    marker: Text,
    memory_per_pe: Given,
    pids_max: Given,
    bounds: OrDefault,
    pmix_name: Text,
    host_index: Same,
    pmix_folder: Text,
    spawned: Optional,
    others: Numbers,
    checked by ranks_below_width,
}

message! {
    Spawned = Spawned;
    entries: List(Spawned::ENTRIES_MAX),
    pmix: CStrings,
}

fn ranks_below_width(launch: HostLaunch) -> Result<HostLaunch, Malformed> {
    match launch.pes.iter().find(|pe| pe.rank >= launch.width) {
        Some(pe) => Field("ShepherdLaunch", "pes")
            .wrong(format_args!("rank {} of {} PEs, from 0", pe.rank, launch.width)),
        None => Ok(launch),
    }
}

message! {
    Hello = ShepherdHello;
    protocol: Same,
    key: Required,
    launched: Same,
    going: Same,
    ended: Same,
    output_taken: Same,
    stdin_taken: Same,
    several: Same,
    stacks: Same,
}

variants! {
    ToShepherd = ToShepherd.message: to_shepherd::Message;
    Hello(hello: Inner),
    Launch(launch: Boxed),
    Go,
    Terminate { cause: Required, kill_after = kill_after_ms: Millis } = Terminate,
    Signal(signal: Inner),
    Stdin(stdin: Inner),
    StdinEnd(end: StdinEnd),
    OutputTaken(output_taken: Same),
    BarrierOut(barrier_out: Inner),
    Letter(letter: Inner),
    Release,
    Rekey(rekey: Via(
        |key: crate::apteam::Key| pb::Rekey { key: Some(key.into()) },
        |_, rekey: pb::Rekey| Field("Rekey", "key").need(rekey.key),
    )),
    Processes(processes: Inner),
    Programs { programs: List(PARTS_MAX) } = GivenPrograms,
    Stacks(stacks: Inner),
    StacksWithdrawn(stacks_withdrawn: Same),
    DebuggerPlaced(debugger_placed: Inner),
}

variants! {
    FromShepherd = FromShepherd.message: from_shepherd::Message;
    Hello(hello: Inner),
    Ready,
    Failed(failed: Inner),
    Output(output: Inner),
    StdinCredit(stdin_credit: Inner),
    SignalsTaken(signals_taken: Same),
    BarrierIn(barrier_in: Inner),
    Letter(letter: Inner),
    Decisive(decisive: Inner),
    Notice(notice: Inner),
    Stuck(stuck: Via(
        |processes| pb::StuckProcesses { processes },
        |_, stuck: pb::StuckProcesses| {
            Said(STUCK_MAX).read(Field("StuckProcesses", "processes"), stuck.processes)
        },
    )),
    Processes(processes: Inner),
    ProgramsWanted { programs: List(PARTS_MAX) } = WantedPrograms,
    Stacks(stacks: Inner),
    DebuggerMade(debugger_made: Inner),
    Ended(ended: Boxed),
}

message! {
    WantedProgram = WantedProgram;
    part: Same,
    size: Same,
    name: FileName,
}

message! {
    GivenProgram = GivenProgram;
    part: Same,
    path: CString,
    identity: Optional,
    why_not: Text,
    digest: Digest,
}

message! {
    Question = ProcessesQuestion;
    number: Same,
    key: Required,
    first: Same,
    count: AtMost(RANKS_MAX),
}

message! {
    PeProcess = PeProcess;
    rank: Same,
    pid: Same,
}

message! {
    Answer = ProcessesAnswer;
    number: Same,
    key: Required,
    processes: List(RANKS_MAX as usize),
    why_not: Text,
}

message! {
    StacksQuestion = StacksQuestion;
    number: Same,
    key: Required,
    rank: Same,
    uid: Same,
    administrator: Same,
}

message! {
    Made = DebuggerMade;
    number: Same,
    nid: NodeId,
    pid: Same,
    spawned: Same,
}

message! {
    Placed = DebuggerPlaced;
    number: Same,
    why_not: Text,
    spawned: Same,
}

message! {
    StacksAnswer = StacksAnswer;
    number: Same,
    key: Required,
    rank: Same,
    pid: Same,
    text: Text,
    cut: Same,
    why_not: Text,
}
