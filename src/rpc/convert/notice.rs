//! What a user is told of an application while it runs.

use super::Field;
use super::codec::{Inner, NodeId, Same, Text, Via};
use super::table::variants;
use crate::apteam::protocol::notice::{Notice, Seen};
use crate::rpc::pb;

variants! {
    Notice = Notice.notice: notice::Notice;
    Seen {
        nid: NodeId,
        at_ns: Same,
        what: Via(
            |what: Seen| Some(what.into()),
            |field: Field, what| field.variant::<pb::seen::What>(what)?.try_into(),
        ),
    } = Seen,
    Process(process: Text),
    NoRecord,
    MemoryNotLimited,
    Unreachable(unreachable: NodeId),
    Unheard(unheard: Text),
    LaunchedAlready,
    NotCopied { nid: NodeId, why: Text } = NotCopied,
    Silent { nids: NodeId } = SilentHosts,
}

variants! {
    Seen = seen::What, in Seen.what;
    Ends(ends: Inner),
    Pmi { rank: Same, text: Text } = RefusedPmi,
    ProcessLimit(process_limit: Same),
    Process(process: Text),
}
