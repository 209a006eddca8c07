//! What users and administrators ask of psched.

use super::{Driver, Front, Killed, Managed, Outside, Refused, Told, Waiter};
use crate::apteam::Apid;
use crate::apteam::record::State;
use crate::psched::decide::{Event, Looked, ReplyId};
use crate::variables::raise;

/// SIGKILL on every Linux.
const KILL: i32 = 9;

/// A signal to applications, or the wish to end them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kill {
    /// Which.
    pub apids: Vec<Apid>,
    /// 0: to end them.
    pub signal: i32,
    /// Who asks.
    pub uid: u32,
    /// May signal applications of others.
    pub administrator: bool,
}

impl<O: Outside> Driver<O> {
    /// Takes a posting. `event` is made with the number of its reply.
    pub fn post(
        &mut self,
        out: &mut O,
        event: impl FnOnce(ReplyId) -> Event,
        front: Front<O::Front>,
        stream: O::Stream,
    ) {
        if let Some(reason) = self.takes_nothing(out) {
            return out
                .refuse(stream, Refused::Now(format!("the posting was not accepted: {reason}")));
        }
        let event = event(self.reply(Waiter::Post { stream, front }));
        self.event(out, event);
    }

    /// Tells a stream of an application from now on. `front`: the process that asks, if the kernel knows
    /// it.
    pub fn watch(
        &mut self,
        out: &mut O,
        apid: Apid,
        front: Option<Front<O::Front>>,
        mut stream: O::Stream,
        found: O::Caller<Result<bool, Refused>>,
    ) {
        let Some(team) = self.scheduler.team(apid) else { return out.answer(found, Ok(false)) };
        let most = self.scheduler.settings().watches_max;
        let watchers = self.watchers.entry(apid).or_default();
        // Streams of clients that have gone would be noticed by nothing else.
        watchers.retain(|watcher| out.listens(watcher));
        let own = front.filter(|front| team.front.as_ref() == Some(&front.process));
        // The application's own aprun may always watch: it may have been away, and has to know.
        if watchers.len() >= most && own.is_none() {
            let why = format!(
                "application {apid} has the maximum number of watchers: try again later, or {}",
                raise("watches_max", most)
            );
            return out.answer(found, Err(Refused::Now(why)));
        }
        let told = match team.state {
            State::Running => Some(Told::Launched(team.incarnation)),
            // The front end of a lapsed application is told to look, whereby the application waits again.
            State::Placed | State::Launching | State::Lapsed => {
                Some(Told::Placed(team.incarnation))
            }
            _ => None,
        };
        // One that was away when its launch failed waits at an apinit that knows nothing of it any more.
        let retried = team.retries.last.clone().map(|failed| Told::Retried {
            failed: Box::new(failed),
            count: team.retries.count,
            most: self.scheduler.settings().launch_retries,
        });
        for told in [Told::Accepted(apid)].iter().chain(&retried).chain(&told) {
            // (A client that has gone already is noticed by the next word.)
            let _ = out.tell(&mut stream, told);
        }
        if let Some(front) = own {
            out.watch_front(apid, front);
        }
        watchers.push(stream);
        out.answer(found, Ok(true));
    }

    /// Has the front end of a posting say what it would launch; other watchers ignore the question.
    pub fn ask_launch(&mut self, out: &mut O, apid: Apid) {
        if let Some(watchers) = self.watchers.get_mut(&apid) {
            watchers.retain_mut(|watcher| out.tell(watcher, &Told::AskLaunch));
        }
    }

    /// A front end looks for its placement.
    pub fn looked(&mut self, out: &mut O, apid: Apid, caller: O::Caller<Result<Looked, Refused>>) {
        let reply = self.reply(Waiter::Look(caller));
        self.event(out, Event::Looked { reply, apid });
    }

    /// Signals or ends applications. What ends one is taken also while the disk is full.
    pub fn kill(&mut self, out: &mut O, kill: Kill, caller: O::Caller<Killed>) {
        let Kill { apids, signal, uid, administrator } = kill;
        if ![0, KILL].contains(&signal) && self.outbox.is_full() {
            let why = self.takes_nothing(out).unwrap_or_default();
            let problem = Some(format!("the signal was not sent: {why}"));
            let problems = vec![problem; apids.len()];
            let kept = crate::psched::decide::outbox::Kept::Yes;
            return out.answer(caller, Killed { problems, kept });
        }
        let reply = self.reply(Waiter::Kill(caller));
        self.event(out, Event::Kill { reply, apids, signal, uid, administrator });
    }

    /// Carries out an administrator's order. `event` is made with the number of its reply.
    pub fn manage(
        &mut self,
        out: &mut O,
        event: impl FnOnce(ReplyId) -> Event,
        caller: O::Caller<Result<Managed, Refused>>,
    ) {
        if let Some(reason) = self.takes_nothing(out) {
            let why = Refused::Now(format!("nothing was changed: {reason}"));
            return out.answer(caller, Err(why));
        }
        let event = event(self.reply(Waiter::Manage(caller)));
        self.event(out, event);
    }

    /// Why psched accepts neither postings nor orders now, if so.
    pub fn takes_nothing(&self, out: &O) -> Option<String> {
        let waits = out.waits();
        if let Some(waits) = waits.as_ref().filter(|waits| waits.refuses) {
            return Some(waits.why.clone());
        }
        self.outbox.is_full().then(|| {
            let why = waits.map_or_else(String::new, |waits| waits.why);
            format!("{} records wait for the disk: {why}", self.outbox.under_way())
        })
    }

    fn reply(&mut self, waiter: Waiter<O>) -> ReplyId {
        let id = ReplyId(self.next_reply);
        self.next_reply += 1;
        self.waiters.insert(id, waiter);
        id
    }
}
