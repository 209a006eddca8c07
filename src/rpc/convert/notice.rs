//! What a user is told of an application while it runs.

use super::{Field, Malformed};
use crate::apteam::protocol::notice::{Notice, Seen};
use crate::machine::Nid;
use crate::rpc::pb;

impl From<Notice> for pb::Notice {
    fn from(notice: Notice) -> Self {
        use pb::notice::Notice as Wire;
        let notice = match notice {
            Notice::Seen { nid, at_ns, what } => {
                Wire::Seen(pb::Seen { nid: nid.0, at_ns, what: Some(what.into()) })
            }
            Notice::Process(text) => Wire::Process(text),
            Notice::NoRecord => Wire::NoRecord(true),
            Notice::MemoryNotLimited => Wire::MemoryNotLimited(true),
            Notice::Unreachable(nid) => Wire::UnreachableNid(nid.0),
            Notice::Unheard(text) => Wire::Unheard(text),
            Notice::LaunchedAlready => Wire::LaunchedAlready(true),
        };
        Self { notice: Some(notice) }
    }
}

impl TryFrom<pb::Notice> for Notice {
    type Error = Malformed;
    fn try_from(notice: pb::Notice) -> Result<Self, Malformed> {
        use pb::notice::Notice as Wire;
        let of = |field| Field("Notice", field);
        Ok(match of("notice").variant(notice.notice)? {
            Wire::Seen(seen) => Notice::Seen {
                nid: Nid(seen.nid),
                at_ns: seen.at_ns,
                what: Field("Seen", "what").variant(seen.what)?.try_into()?,
            },
            Wire::Process(text) => Notice::Process(of("process").text(text)?),
            Wire::NoRecord(_) => Notice::NoRecord,
            Wire::MemoryNotLimited(_) => Notice::MemoryNotLimited,
            Wire::UnreachableNid(nid) => Notice::Unreachable(Nid(nid)),
            Wire::Unheard(text) => Notice::Unheard(of("unheard").text(text)?),
            Wire::LaunchedAlready(_) => Notice::LaunchedAlready,
        })
    }
}

impl From<Seen> for pb::seen::What {
    fn from(seen: Seen) -> Self {
        match seen {
            Seen::Ends(cause) => Self::Ends(cause.into()),
            Seen::Pmi { rank, text } => Self::Pmi(pb::RefusedPmi { rank, text }),
            Seen::ProcessLimit(most) => Self::ProcessLimit(most),
            Seen::Process(text) => Self::Process(text),
        }
    }
}

impl TryFrom<pb::seen::What> for Seen {
    type Error = Malformed;
    fn try_from(what: pb::seen::What) -> Result<Self, Malformed> {
        use pb::seen::What;
        Ok(match what {
            What::Ends(cause) => Seen::Ends(cause.try_into()?),
            What::Pmi(pb::RefusedPmi { rank, text }) => {
                Seen::Pmi { rank, text: Field("RefusedPmi", "text").text(text)? }
            }
            What::ProcessLimit(most) => Seen::ProcessLimit(most),
            What::Process(text) => Seen::Process(Field("Seen", "process").text(text)?),
        })
    }
}
