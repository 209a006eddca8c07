//! Effects that leave psched.

use super::{Driver, Note, Outside, Refused, ToNode, Told, Waiter};
use crate::apteam::Apid;
use crate::psched::decide::outbox::{Held, Kept};
use crate::psched::decide::{Effect, News};

impl<O: Outside> Driver<O> {
    pub(super) fn perform(&mut self, out: &mut O, effect: Effect) {
        match effect {
            Effect::Accept { reply, apid } => {
                let Some(Waiter::Post { mut stream, front }) = self.waiters.remove(&reply) else {
                    return;
                };
                if let Some(why) = self.outbox.why_refused(apid) {
                    let why = Refused::Now(format!("the posting was not accepted: {why}"));
                    return out.refuse(stream, why);
                }
                // (A client that has gone already is noticed by the next word.)
                let _ = out.tell(&mut stream, &Told::Accepted(apid));
                self.watchers.entry(apid).or_default().push(stream);
                if self.scheduler.team(apid).is_some_and(|team| team.front.is_some()) {
                    out.watch_front(apid, front);
                }
            }
            Effect::Refuse { reply, refusal, reason } => {
                let why = Refused::Decided(refusal, reason);
                match self.waiters.remove(&reply) {
                    Some(Waiter::Post { stream, .. }) => out.refuse(stream, why),
                    Some(Waiter::Look(caller)) => out.answer(caller, Err(why)),
                    Some(Waiter::Manage(caller)) => out.answer(caller, Err(why)),
                    Some(Waiter::Kill(_)) | None => {}
                }
            }
            Effect::Look { reply, looked } => {
                if let Some(Waiter::Look(caller)) = self.waiters.remove(&reply) {
                    out.answer(caller, Ok(looked));
                }
            }
            reply @ (Effect::Killed { .. } | Effect::Managed { .. }) => {
                self.give(out, Held::Reply(reply), Kept::Yes);
            }
            Effect::Command { link, command } => {
                self.send(out, link, ToNode::Command(Box::new(command)));
            }
            Effect::Welcome { link, nids } => self.welcome(out, link, &nids),
            Effect::RefuseLink { link, why } => self.refuse_link(out, link, why),
            Effect::CloseLink { link } => self.close(out, link),
            // Only simulated: nodes are told by a command (`RollsOut::AtHome`).
            Effect::RollIn { .. } | Effect::RollOut { .. } => {}
            Effect::SignalFront { apid, front } => out.signal_front(apid, front),
            Effect::Tell { apid, news } => self.tell(out, apid, news),
            Effect::TellEnd { apid, end } => {
                self.tell(out, apid, News::Ended(end));
            }
            Effect::Warn(text) => out.note(Note::Warning(text)),
            Effect::Fault(text) => out.note(Note::Fault(text)),
            // In the store.
            Effect::Keep(_) | Effect::Log { .. } => {}
        }
    }

    /// Tells all who follow an application.
    fn tell(&mut self, out: &mut O, apid: Apid, news: News) {
        let incarnation =
            self.scheduler.team(apid).map_or_else(Default::default, |t| t.incarnation);
        let told = match news {
            News::Placed => Told::Placed(incarnation),
            News::Running => Told::Launched(incarnation),
            News::Retried { failed, count, most } => Told::Retried { failed, count, most },
            News::Ended(end) => Told::Ended(end),
        };
        let ended = matches!(told, Told::Ended(_));
        if let Some(watchers) = self.watchers.get_mut(&apid) {
            watchers.retain_mut(|watcher| out.tell(watcher, &told));
            if watchers.is_empty() || ended {
                self.watchers.remove(&apid);
            }
        }
        if ended {
            out.forget_front(apid);
        }
    }
}
