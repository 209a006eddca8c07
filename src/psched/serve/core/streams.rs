//! What those are told who follow an application, as the protocol has it.

use crate::apteam::ending::HostEnd;
use crate::os::host::monotonic_ns;
use crate::psched::decide::Refusal;
use crate::psched::drive::{Refused, Told};
use crate::psched::serve::names::names;
use crate::psched::serve::private::Viewer;
use crate::rpc::pb;
use tonic::Status;

/// An event. `accepted`: by which psched a posting was taken.
pub(super) fn event(told: &Told, accepted: &pb::Accepted) -> pb::ApplicationEvent {
    use pb::application_event::Event;
    let event = match told {
        Told::Accepted(apid) => Event::Accepted(pb::Accepted { apid: apid.0, ..accepted.clone() }),
        Told::Placed(incarnation) => Event::Placed(pb::Placed { incarnation: incarnation.0 }),
        Told::Launched(incarnation) => Event::Launched(pb::Launched { incarnation: incarnation.0 }),
        Told::Retried { failed, count, most } => Event::Retried(pb::Retried {
            incarnation: failed.incarnation.0,
            cause: Some(failed.cause.clone().into()),
            attempt: *count,
            most: *most,
        }),
        Told::Ended(end) => Event::Ended(ended((**end).clone())),
        Told::AskLaunch => Event::AskLaunch(pb::AskLaunch {}),
    };
    pb::ApplicationEvent { event: Some(event) }
}

/// An end. What decided it is timed by psched's clock, and the reader may be on a host that has another.
pub fn ended(end: HostEnd) -> pb::Ended {
    let first = end.first.as_ref().filter(|first| first.at_ns > 0);
    let ago = first.map(|first| monotonic_ns().saturating_sub(first.at_ns) / 1_000_000);
    let by_name = names().known_name_in(end.first.as_ref().map(|first| &first.cause));
    pb::Ended { ago_ms: ago, by_name, ..end.into() }
}

/// A refusal as gRPC has it, for this reader.
pub fn status(refused: &Refused, viewer: &Viewer) -> Status {
    let text = refused.words(&|uid| viewer.sees(uid));
    let Refused::Decided(refusal, _) = refused else { return Status::unavailable(text) };
    match refusal {
        Refusal::Impossible => Status::invalid_argument(text),
        Refusal::NoRoom | Refusal::TooMany => Status::resource_exhausted(text),
        Refusal::NotAllowed => Status::permission_denied(text),
        Refusal::NotFound => Status::not_found(text),
    }
}
