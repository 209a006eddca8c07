//! What aprun posts.

use super::codec::{Codec, Cut, Given, LimitMillis, Optional, Required, Same, Secret, Via, kind};
use super::table::{kinds, message};
use super::{Field, Malformed};
use crate::apteam::choice::{self, Choice};
use crate::apteam::layout::{Layout, Row};
use crate::apteam::oversubscribe::{Oversubscribe, Sharing};
use crate::apteam::posting::{Account, COMMAND_MAX, Executable, Mpi, PATH_MAX, Posting};
use crate::apteam::saving::Saving;
use crate::machine::Nid;
use crate::rpc::pb;

kinds! {
    Mpi = executable::Mpi { None, Mpich, OpenMpi }
}

message! {
    Executable = Executable;
    path: Cut(PATH_MAX),
    machine: Via(u32::from, |field: Field, number| {
        Ok(field.between(number, 0, u16::MAX.into())? as u16)
    }),
    interpreter: Cut(PATH_MAX),
    script: Same,
    mpi: kind::<pb::executable::Mpi>(),
}

// (A record of an older release may have a longer command, too.)
message! {
    Posting = PostRequest;
    request_id: Secret,
    shape: Required,
    memory_per_pe: Given,
    command: Cut(COMMAND_MAX),
    cpu_limit = cpu_limit_ms: LimitMillis,
    time_limit = time_limit_ms: LimitMillis,
    immediate: Same,
    tries_again: Same,
    brings_images: Same,
    exclusive: Same,
    account: AccountName,
    choice = (only, not, downwards): Choices,
    flexible: Same,
    layout: Rows,
    oversubscribe = (oversubscribe, shared_processors, shared_per_node): Shared,
    saving: Optional,
    executable: Required,
    unread again,
    unread restart,
    unread signal,
    checked by layout_of_shape,
}

fn layout_of_shape(posting: Posting) -> Result<Posting, Malformed> {
    let (layout, shape) = (&posting.layout, &posting.shape);
    let fits = layout.width() == u64::from(shape.width)
        && shape.per_node.is_none()
        && layout.most_depth(shape.depth) == shape.depth;
    match layout.is_empty() || fits {
        true => Ok(posting),
        false => Field("PostRequest", "layout").wrong("it does not add up to the shape"),
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

/// Whether its PEs share processors, and which.
struct Shared;

impl Codec<Oversubscribe, (bool, u32, u32)> for Shared {
    fn write(self, plain: Oversubscribe) -> (bool, u32, u32) {
        match plain {
            Oversubscribe::No => (false, 0, 0),
            Oversubscribe::Allowed => (true, 0, 0),
            Oversubscribe::Shares(Sharing { processors, per_node }) => {
                (true, processors, per_node.unwrap_or(0))
            }
        }
    }
    fn read(
        self,
        field: Field,
        (asked, processors, per_node): (bool, u32, u32),
    ) -> Result<Oversubscribe, Malformed> {
        let per_node = Given.read(field, per_node)?;
        Ok(match (asked, processors) {
            (false, _) => Oversubscribe::No,
            (true, 0) => Oversubscribe::Allowed,
            (true, processors) => Oversubscribe::Shares(Sharing { processors, per_node }),
        })
    }
}

/// On which nodes: those to take, those to leave out, from the last one downwards.
struct Choices;

type Ranges = Vec<pb::NidRange>;

impl Codec<Choice, (Ranges, Ranges, bool)> for Choices {
    fn write(self, plain: Choice) -> (Ranges, Ranges, bool) {
        let range = |(first, last): choice::Range| pb::NidRange { first: first.0, last: last.0 };
        let (only, not, downwards) = plain.parts();
        (only.into_iter().map(range).collect(), not.into_iter().map(range).collect(), downwards)
    }
    fn read(
        self,
        field: Field,
        (only, not, downwards): (Ranges, Ranges, bool),
    ) -> Result<Choice, Malformed> {
        let range = |range: pb::NidRange| (Nid(range.first), Nid(range.last));
        let ranges = |ranges: Ranges| ranges.into_iter().map(range).collect();
        Choice::new(ranges(only), ranges(not), downwards).or_else(|problem| field.wrong(problem))
    }
}

/// PEs of each node.
struct Rows;

impl Codec<Layout, Vec<pb::LayoutRow>> for Rows {
    fn write(self, plain: Layout) -> Vec<pb::LayoutRow> {
        let row = |row: &Row| pb::LayoutRow { nodes: row.nodes, pes: row.pes, depth: row.depth };
        plain.rows().iter().map(row).collect()
    }
    fn read(self, field: Field, wire: Vec<pb::LayoutRow>) -> Result<Layout, Malformed> {
        let row = |row: pb::LayoutRow| Row { nodes: row.nodes, pes: row.pes, depth: row.depth };
        Layout::new(wire.into_iter().map(row).collect()).or_else(|problem| field.wrong(problem))
    }
}

/// An account; empty is none.
pub(super) struct AccountName;

impl Codec<Option<Account>, String> for AccountName {
    fn write(self, plain: Option<Account>) -> String {
        plain.map_or_else(String::new, |account| account.as_str().to_owned())
    }
    fn read(self, field: Field, wire: String) -> Result<Option<Account>, Malformed> {
        match Account::parse(&wire) {
            _ if wire.is_empty() => Ok(None),
            Ok(account) => Ok(Some(account)),
            Err(problem) => field.wrong(problem),
        }
    }
}
