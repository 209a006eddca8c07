//! What those are told who follow an application: the streams of events.

use super::{Core, EventSender, Identity};
use crate::apteam::Apid;
use crate::apteam::ending::HostEnd;
use crate::apteam::record::State;
use crate::daemon::fronts::FrontEnd;
use crate::rpc::pb;
use crate::scheduler::{News, Refusal};
use crate::variables::raise;
use tokio::sync::oneshot;
use tonic::Status;

impl Core {
    pub(super) fn tell(&mut self, apid: Apid, news: News) {
        let ended = matches!(news, News::Ended { .. });
        let event = self.event_of(apid, news);
        if let Some(watchers) = self.watchers.get_mut(&apid) {
            watchers.retain(|w| w.try_send(Ok(event.clone())).is_ok());
            if watchers.is_empty() || ended {
                self.watchers.remove(&apid);
            }
        }
        if ended {
            self.fronts.forget(apid);
            self.spans.remove(&apid);
        }
    }

    pub(super) fn accepted(&self, apid: Apid) -> pb::ApplicationEvent {
        let Identity { store_id, epoch, .. } = &self.identity;
        let start_id = self.identity.start(*epoch).unwrap_or_default().to_owned();
        let accepted =
            pb::Accepted { apid: apid.0, store_id: store_id.clone(), epoch: *epoch, start_id };
        pb::ApplicationEvent { event: Some(pb::application_event::Event::Accepted(accepted)) }
    }

    fn event_of(&self, apid: Apid, news: News) -> pb::ApplicationEvent {
        use pb::application_event::Event;
        let incarnation = self.scheduler.team(apid).map_or(0, |t| t.incarnation.0);
        let event = match news {
            News::Placed => Event::Placed(pb::Placed { incarnation }),
            News::Running => Event::Launched(pb::Launched { incarnation }),
            News::Ended { end, status } => Event::Ended(ended(&end, status)),
        };
        pb::ApplicationEvent { event: Some(event) }
    }

    /// Has the front end of a posting say what it would launch; others who follow it know nothing of that.
    pub(super) fn ask_launch(&mut self, apid: Apid) {
        let event = pb::application_event::Event::AskLaunch(pb::AskLaunch {});
        let event = pb::ApplicationEvent { event: Some(event) };
        if let Some(watchers) = self.watchers.get_mut(&apid) {
            watchers.retain(|w| w.try_send(Ok(event.clone())).is_ok());
        }
    }

    pub(super) fn watch(
        &mut self,
        apid: Apid,
        front: Option<FrontEnd>,
        events: EventSender,
        found: oneshot::Sender<Result<bool, Status>>,
    ) {
        let Some(team) = self.scheduler.team(apid) else {
            let _ = found.send(Ok(false));
            return;
        };
        let most = self.scheduler.settings().watches_max;
        let watchers = self.watchers.entry(apid).or_default();
        // Whoever watches it again and again leaves streams behind that nothing else would notice.
        watchers.retain(|w| !w.is_closed());
        // Its own aprun is never too many: it may have been away, and has to know.
        let own = front.as_ref().is_some_and(|front| team.front == Some(front.process));
        if watchers.len() >= most && !own {
            let _ = found.send(Err(Status::unavailable(format!(
                "application {apid} is watched by as many as may: try again later, or {}",
                raise("watches_max", most)
            ))));
            return;
        }
        let news = match team.state {
            State::Running => Some(News::Running),
            // A lapsed one is told to look, whereby it waits again.
            State::Placed | State::Launching | State::Lapsed => Some(News::Placed),
            _ => None,
        };
        let _ = events.try_send(Ok(self.accepted(apid)));
        if let Some(news) = news {
            let _ = events.try_send(Ok(self.event_of(apid, news)));
        }
        if let Some(front) = front
            && team.front == Some(front.process)
        {
            self.fronts.watch(apid, front);
        }
        self.watchers.entry(apid).or_default().push(events);
        let _ = found.send(Ok(true));
    }
}

/// The end of an application, for its front end.
pub fn ended(end: &HostEnd, status: u8) -> pb::Ended {
    let whole = pb::HostEnd::from(end.clone());
    pb::Ended {
        key: whole.key,
        status: u32::from(status),
        decisive: whole.first,
        ends: whole.ends,
        usage: whole.usage,
        leftovers: whole.leftovers,
        output_lost: whole.output_lost,
        launched: whole.launched,
        lost: whole.lost,
    }
}

/// A refusal as gRPC has it.
pub fn refused(refusal: Refusal, text: &str) -> Status {
    match refusal {
        Refusal::Impossible => Status::invalid_argument(text),
        Refusal::NoRoom | Refusal::TooMany => Status::resource_exhausted(text),
        Refusal::NotAllowed => Status::permission_denied(text),
        Refusal::NotFound => Status::not_found(text),
    }
}
