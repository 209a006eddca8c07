//! What aprun posts.

use super::{Field, Malformed, given, limit, limit_ms};
use crate::apteam::choice::{self, Choice};
use crate::apteam::layout::{Layout, Row};
use crate::apteam::oversubscribe::{Oversubscribe, Sharing};
use crate::apteam::posting::{
    Account, COMMAND_MAX, Executable, Mpi, PATH_MAX, Posting, Shape, cut,
};
use crate::apteam::saving::Saving;
use crate::machine::Nid;
use crate::rpc::pb;
use bytes::Bytes;

impl From<Executable> for pb::Executable {
    fn from(executable: Executable) -> Self {
        use pb::executable::Mpi as Wire;
        let mpi = match executable.mpi {
            Mpi::None => Wire::None,
            Mpi::Mpich => Wire::Mpich,
            Mpi::OpenMpi => Wire::Openmpi,
        };
        Self {
            path: executable.path,
            machine: executable.machine.into(),
            interpreter: executable.interpreter,
            script: executable.script,
            mpi: mpi.into(),
        }
    }
}

impl TryFrom<pb::Executable> for Executable {
    type Error = Malformed;
    fn try_from(executable: pb::Executable) -> Result<Self, Malformed> {
        use pb::executable::Mpi as Wire;
        let mpi = match Wire::try_from(executable.mpi) {
            Ok(Wire::None) => Mpi::None,
            Ok(Wire::Mpich) => Mpi::Mpich,
            Ok(Wire::Openmpi) => Mpi::OpenMpi,
            Err(_) => {
                return Field("Executable", "mpi")
                    .wrong(format_args!("{} is no kind", executable.mpi));
            }
        };
        let machine =
            Field("Executable", "machine").between(executable.machine, 0, u16::MAX.into())?;
        Ok(Executable {
            path: cut(Field("Executable", "path").text(executable.path)?, PATH_MAX),
            machine: machine as u16,
            interpreter: cut(
                Field("Executable", "interpreter").text(executable.interpreter)?,
                PATH_MAX,
            ),
            script: executable.script,
            mpi,
        })
    }
}

impl From<Posting> for pb::PostRequest {
    fn from(posting: Posting) -> Self {
        let (only, not, downwards) = posting.choice.parts();
        let sharing = match posting.oversubscribe {
            Oversubscribe::Shares(sharing) => Some(sharing),
            Oversubscribe::No | Oversubscribe::Allowed => None,
        };
        Self {
            request_id: Bytes::copy_from_slice(&posting.request_id),
            shape: Some(posting.shape.into()),
            memory_per_pe: posting.memory_per_pe.unwrap_or(0),
            command: cut(posting.command, COMMAND_MAX),
            cpu_limit_ms: limit_ms(posting.cpu_limit),
            time_limit_ms: limit_ms(posting.time_limit),
            immediate: posting.immediate,
            exclusive: posting.exclusive,
            account: account_name(posting.account),
            again: false,
            only: only.into_iter().map(range).collect(),
            not: not.into_iter().map(range).collect(),
            downwards,
            flexible: posting.flexible,
            layout: posting
                .layout
                .rows()
                .iter()
                .map(|row| pb::LayoutRow { nodes: row.nodes, pes: row.pes, depth: row.depth })
                .collect(),
            executable: Some(posting.executable.into()),
            saving: posting.saving.map(Into::into),
            restart: Bytes::new(),
            signal: false,
            oversubscribe: posting.oversubscribe != Oversubscribe::No,
            shared_processors: sharing.map_or(0, |sharing| sharing.processors),
            shared_per_node: sharing.and_then(|sharing| sharing.per_node).unwrap_or(0),
        }
    }
}

impl TryFrom<pb::PostRequest> for Posting {
    type Error = Malformed;
    fn try_from(request: pb::PostRequest) -> Result<Self, Malformed> {
        let request_id = Field("PostRequest", "request_id").secret(request.request_id)?;
        let shape: Shape = Field("PostRequest", "shape").need(request.shape)?;
        let layout = layout(request.layout, &shape)?;
        Ok(Posting {
            request_id,
            shape,
            layout,
            memory_per_pe: given(request.memory_per_pe),
            // (A record of an older release may have more of it, too.)
            command: cut(Field("PostRequest", "command").text(request.command)?, COMMAND_MAX),
            cpu_limit: limit(request.cpu_limit_ms),
            time_limit: limit(request.time_limit_ms),
            immediate: request.immediate,
            exclusive: request.exclusive,
            account: account(Field("PostRequest", "account"), &request.account)?,
            choice: choice(request.only, request.not, request.downwards)?,
            flexible: request.flexible,
            oversubscribe: oversubscribe(
                request.oversubscribe,
                request.shared_processors,
                request.shared_per_node,
            ),
            saving: Field("PostRequest", "saving").maybe(request.saving)?,
            executable: Field("PostRequest", "executable").need(request.executable)?,
        })
    }
}

impl From<Saving> for pb::Saving {
    fn from(saving: Saving) -> Self {
        let by = match saving {
            Saving::Signal(number) => pb::saving::By::Signal(number),
            Saving::Command(command) => pb::saving::By::Command(command),
        };
        Self { by: Some(by) }
    }
}

impl TryFrom<pb::Saving> for Saving {
    type Error = Malformed;
    fn try_from(saving: pb::Saving) -> Result<Self, Malformed> {
        let of = Field("PostRequest", "saving");
        let saving = match saving.by {
            Some(pb::saving::By::Signal(number)) => Saving::by_signal(number),
            Some(pb::saving::By::Command(command)) => Saving::by_command(&command),
            None => Err("it is missing".into()),
        };
        saving.or_else(|problem| of.wrong(problem))
    }
}

fn oversubscribe(asked: bool, processors: u32, per_node: u32) -> Oversubscribe {
    let per_node = Some(per_node).filter(|count| *count > 0);
    match (asked, processors) {
        (false, _) => Oversubscribe::No,
        (true, 0) => Oversubscribe::Allowed,
        (true, processors) => Oversubscribe::Shares(Sharing { processors, per_node }),
    }
}

fn range((first, last): choice::Range) -> pb::NidRange {
    pb::NidRange { first: first.0, last: last.0 }
}

fn choice(
    only: Vec<pb::NidRange>,
    not: Vec<pb::NidRange>,
    downwards: bool,
) -> Result<Choice, Malformed> {
    let ranges = |ranges: Vec<pb::NidRange>| {
        let range = |range: pb::NidRange| (Nid(range.first), Nid(range.last));
        ranges.into_iter().map(range).collect()
    };
    Choice::new(ranges(only), ranges(not), downwards)
        .or_else(|problem| Field("PostRequest", "only").wrong(problem))
}

fn layout(rows: Vec<pb::LayoutRow>, shape: &Shape) -> Result<Layout, Malformed> {
    let of = Field("PostRequest", "layout");
    let row = |row: pb::LayoutRow| Row { nodes: row.nodes, pes: row.pes, depth: row.depth };
    let layout = match Layout::new(rows.into_iter().map(row).collect()) {
        Ok(layout) => layout,
        Err(problem) => return of.wrong(problem),
    };
    let fits = layout.width() == u64::from(shape.width)
        && shape.per_node.is_none()
        && layout.most_depth(shape.depth) == shape.depth;
    match layout.is_empty() || fits {
        true => Ok(layout),
        false => of.wrong("it does not add up to the shape".to_owned()),
    }
}

/// An account as it goes over the wire.
pub(super) fn account_name(account: Option<Account>) -> String {
    account.map_or_else(String::new, |account| account.as_str().to_owned())
}

/// One that has come; empty is none.
pub(super) fn account(field: Field, name: &str) -> Result<Option<Account>, Malformed> {
    match Account::parse(name) {
        _ if name.is_empty() => Ok(None),
        Ok(account) => Ok(Some(account)),
        Err(problem) => field.wrong(problem),
    }
}
