//! apinit and apshepherd.

use super::common::bounds;
use super::{Field, LONG_LIST_MAX, Malformed, all, given, limit, limit_ms, ms};
use crate::apteam::launch::{HostLaunch, LocalPe};
use crate::apteam::protocol::node::NICE_MAX;
use crate::apteam::protocol::shepherd::{FromShepherd, Hello, ToShepherd};
use crate::machine::Nid;
use crate::rpc::pb;
use std::time::Duration;

impl From<LocalPe> for pb::LocalPe {
    fn from(pe: LocalPe) -> Self {
        Self { rank: pe.rank, nid: pe.nid.0, cpus: pe.cpus, nice: pe.nice, depth: pe.depth }
    }
}

impl TryFrom<pb::LocalPe> for LocalPe {
    type Error = Malformed;
    fn try_from(pe: pb::LocalPe) -> Result<Self, Malformed> {
        let cpus = Field("LocalPe", "cpus").numbers(pe.cpus)?;
        let nice = pe.nice.min(NICE_MAX);
        Ok(LocalPe { rank: pe.rank, nid: Nid(pe.nid), cpus, nice, depth: pe.depth })
    }
}

impl From<HostLaunch> for pb::ShepherdLaunch {
    fn from(launch: HostLaunch) -> Self {
        Self {
            key: Some(launch.key.into()),
            width: launch.width,
            depth: launch.depth,
            launch: Some(launch.launch.into()),
            pes: all(launch.pes),
            process_mapping: launch.process_mapping,
            alone: launch.alone,
            cpu_limit_ms: limit_ms(launch.cpu_limit),
            stdin: launch.stdin,
            kill_grace_ms: ms(launch.kill_grace),
            marker: launch.marker,
            memory_per_pe: launch.memory_per_pe.unwrap_or(0),
            pids_max: launch.pids_max.unwrap_or(0),
            bounds: Some(launch.bounds.into()),
        }
    }
}

impl TryFrom<pb::ShepherdLaunch> for HostLaunch {
    type Error = Malformed;
    fn try_from(launch: pb::ShepherdLaunch) -> Result<Self, Malformed> {
        let of = |field| Field("ShepherdLaunch", field);
        let host_launch = HostLaunch {
            key: of("key").need(launch.key)?,
            width: of("width").positive(launch.width)?,
            depth: of("depth").positive(launch.depth)?,
            launch: of("launch").need(launch.launch)?,
            pes: of("pes").list(launch.pes, LONG_LIST_MAX)?,
            process_mapping: of("process_mapping").text(launch.process_mapping)?,
            alone: launch.alone,
            cpu_limit: limit(launch.cpu_limit_ms),
            stdin: launch.stdin,
            kill_grace: Duration::from_millis(launch.kill_grace_ms),
            marker: of("marker").text(launch.marker)?,
            memory_per_pe: given(launch.memory_per_pe),
            pids_max: given(launch.pids_max),
            bounds: bounds(launch.bounds),
        };
        match host_launch.pes.iter().find(|pe| pe.rank >= host_launch.width) {
            Some(pe) => of("pes")
                .wrong(format_args!("rank {} of {} PEs, from 0", pe.rank, host_launch.width)),
            None => Ok(host_launch),
        }
    }
}

impl From<Hello> for pb::ShepherdHello {
    fn from(hello: Hello) -> Self {
        let Hello { protocol, launched, going, ended, output_taken, stdin_taken, several, .. } =
            hello;
        let key = Some(hello.key.into());
        Self { protocol, key, launched, going, ended, output_taken, stdin_taken, several }
    }
}

impl TryFrom<pb::ShepherdHello> for Hello {
    type Error = Malformed;
    fn try_from(hello: pb::ShepherdHello) -> Result<Self, Malformed> {
        let pb::ShepherdHello {
            protocol,
            launched,
            going,
            ended,
            output_taken,
            stdin_taken,
            several,
            ..
        } = hello;
        let key = Field("ShepherdHello", "key").need(hello.key)?;
        Ok(Hello { protocol, key, launched, going, ended, output_taken, stdin_taken, several })
    }
}

impl From<ToShepherd> for pb::ToShepherd {
    fn from(message: ToShepherd) -> Self {
        use pb::to_shepherd::Message;
        let message = match message {
            ToShepherd::Hello(hello) => Message::Hello(hello.into()),
            ToShepherd::Launch(launch) => Message::Launch((*launch).into()),
            ToShepherd::Go => Message::Go(pb::Go {}),
            ToShepherd::Terminate { cause, kill_after } => Message::Terminate(pb::Terminate {
                cause: Some(cause.into()),
                kill_after_ms: ms(kill_after),
            }),
            ToShepherd::Signal(signal) => Message::Signal(signal.into()),
            ToShepherd::Stdin(piece) => Message::Stdin(piece.into()),
            ToShepherd::StdinEnd(length) => Message::StdinEnd(pb::StdinEnd { length }),
            ToShepherd::OutputTaken(bytes) => Message::OutputTaken(bytes),
            ToShepherd::BarrierOut(barrier) => Message::BarrierOut(barrier.into()),
            ToShepherd::Release => Message::Release(pb::Release {}),
            ToShepherd::Rekey(key) => Message::Rekey(pb::Rekey { key: Some(key.into()) }),
        };
        Self { message: Some(message) }
    }
}

impl TryFrom<pb::ToShepherd> for ToShepherd {
    type Error = Malformed;
    fn try_from(message: pb::ToShepherd) -> Result<Self, Malformed> {
        use pb::to_shepherd::Message;
        let of = |field| Field("ToShepherd", field);
        Ok(match of("message").variant(message.message)? {
            Message::Hello(hello) => ToShepherd::Hello(hello.try_into()?),
            Message::Launch(launch) => ToShepherd::Launch(Box::new(launch.try_into()?)),
            Message::Go(_) => ToShepherd::Go,
            Message::Terminate(terminate) => ToShepherd::Terminate {
                cause: Field("Terminate", "cause").need(terminate.cause)?,
                kill_after: Duration::from_millis(terminate.kill_after_ms),
            },
            Message::Signal(signal) => ToShepherd::Signal(signal.try_into()?),
            Message::Stdin(piece) => ToShepherd::Stdin(piece.try_into()?),
            Message::StdinEnd(end) => ToShepherd::StdinEnd(end.length),
            Message::OutputTaken(bytes) => ToShepherd::OutputTaken(bytes),
            Message::BarrierOut(barrier) => ToShepherd::BarrierOut(barrier.try_into()?),
            Message::Release(_) => ToShepherd::Release,
            Message::Rekey(rekey) => ToShepherd::Rekey(Field("Rekey", "key").need(rekey.key)?),
        })
    }
}

impl From<FromShepherd> for pb::FromShepherd {
    fn from(message: FromShepherd) -> Self {
        use pb::from_shepherd::Message;
        let message = match message {
            FromShepherd::Hello(hello) => Message::Hello(hello.into()),
            FromShepherd::Ready => Message::Ready(pb::Ready {}),
            FromShepherd::Failed(decisive) => Message::Failed(decisive.into()),
            FromShepherd::Output(output) => Message::Output(output.into()),
            FromShepherd::StdinCredit(credit) => Message::StdinCredit(credit.into()),
            FromShepherd::SignalsTaken(number) => Message::SignalsTaken(number),
            FromShepherd::BarrierIn(barrier) => Message::BarrierIn(barrier.into()),
            FromShepherd::Decisive(decisive) => Message::Decisive(decisive.into()),
            FromShepherd::Notice(notice) => Message::Notice(notice.into()),
            FromShepherd::Stuck(processes) => Message::Stuck(pb::StuckProcesses { processes }),
            FromShepherd::Ended(end) => Message::Ended((*end).into()),
        };
        Self { message: Some(message) }
    }
}

impl TryFrom<pb::FromShepherd> for FromShepherd {
    type Error = Malformed;
    fn try_from(message: pb::FromShepherd) -> Result<Self, Malformed> {
        use pb::from_shepherd::Message;
        let of = |field| Field("FromShepherd", field);
        Ok(match of("message").variant(message.message)? {
            Message::Hello(hello) => FromShepherd::Hello(hello.try_into()?),
            Message::Ready(_) => FromShepherd::Ready,
            Message::Failed(decisive) => FromShepherd::Failed(decisive.try_into()?),
            Message::Output(output) => FromShepherd::Output(output.try_into()?),
            Message::StdinCredit(credit) => FromShepherd::StdinCredit(credit.into()),
            Message::SignalsTaken(number) => FromShepherd::SignalsTaken(number),
            Message::BarrierIn(barrier) => FromShepherd::BarrierIn(barrier.try_into()?),
            Message::Decisive(decisive) => FromShepherd::Decisive(decisive.try_into()?),
            Message::Notice(notice) => FromShepherd::Notice(notice.try_into()?),
            Message::Stuck(stuck) => {
                FromShepherd::Stuck(Field("StuckProcesses", "processes").texts(stuck.processes)?)
            }
            Message::Ended(end) => FromShepherd::Ended(Box::new(end.try_into()?)),
        })
    }
}
