//! psched's driver: what carries the scheduler's decisions out, and in which order.
//!
//! # Problem
//! [`Scheduler`] decides, in no time and without a world. Between a decision and its effect outside lie
//! records that have to be durable first, callers that wait for their answer, connections that break,
//! and the death of psched at any moment. This order is what "nothing is lost" rests on, so what is
//! tested against every fault must be the very code that ships.
//!
//! # Approach
//! [`Driver`] is generic over [`Outside`]: the daemon gives it sockets, processes and a store thread
//! (`psched::serve`), the simulated cluster its own (`torture::psched`).
//!
//! ```text
//!   requests, events --> Driver --> Scheduler --> effects --> Outbox --> at once ---------> Outside
//!                          ^                                    |
//!                          +---- outcomes <-- store <-- commit -+--> when durable --------> Outside
//! ```
//!
//! | file | subject |
//! | --- | --- |
//! | [`mod@outside`] | the trait, and what is said through it |
//! | `requests` | what users and administrators ask |
//! | `records` | records that have become durable, or can't be kept; answers that wait for them |
//! | `perform` | effects that leave psched |
//! | `nodes` | connections of apinits |
//! | `invariants` | whether all is as it always must be |
//! | [`recorder`] | the last events and the state before them, for `psched replay` |

mod invariants;
mod nodes;
pub mod outside;
mod perform;
pub mod recorder;
mod records;
pub mod requests;

pub use outside::{
    Answer, Front, Killed, Managed, Note, Outside, Refused, Reply, Sent, ToNode, Told, Waits,
};

use crate::apteam::protocol::node::Start;
use crate::apteam::{Apid, SealKey};
use crate::psched::decide::outbox::Outbox;
use crate::psched::decide::{Effect, Event, LinkId, Looked, ReplyId, Scheduler};
pub use nodes::Came;
use nodes::LinkOut;
use recorder::{Recorder, Recording};
use std::collections::BTreeMap;
use std::time::Duration;

/// What nodes are told of this psched.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// The store's id.
    pub store_id: String,
    /// How many times psched has started on it.
    pub epoch: u64,
    /// The last starts by epoch, this one too.
    pub starts: Vec<Start>,
    /// This host's boot.
    pub boot_id: String,
    /// From TERM to KILL.
    pub kill_grace: Duration,
    /// What checkpoints are sealed with; none: there can be none.
    pub checkpoint_key: Option<SealKey>,
}

impl Identity {
    /// The id of that start, if it is on record.
    pub fn start(&self, epoch: u64) -> Option<&str> {
        self.starts.iter().find(|start| start.epoch == epoch).map(|start| start.id.as_str())
    }
}

/// A call whose answer is an effect that is still to come.
enum Waiter<O: Outside> {
    Post { stream: O::Stream, front: Front<O::Front> },
    Look(O::Caller<Result<Looked, Refused>>),
    Kill(O::Caller<Killed>),
    Manage(O::Caller<Result<Managed, Refused>>),
}

/// psched around its scheduler.
pub struct Driver<O: Outside> {
    scheduler: Scheduler,
    recorder: Recorder,
    outbox: Outbox<O::Look>,
    waiters: BTreeMap<ReplyId, Waiter<O>>,
    next_reply: u64,
    /// The clients that follow each application.
    watchers: BTreeMap<Apid, Vec<O::Stream>>,
    links: BTreeMap<LinkId, LinkOut<O::Link>>,
    identity: Identity,
    /// When it is looked next whether all is as it always must be; none: it is not, and that is said.
    looks_ns: Option<u64>,
}

impl<O: Outside> Driver<O> {
    /// Around a scheduler that was just made or restored. [`Driver::begin`] is to follow.
    pub fn new(scheduler: Scheduler, outbox: Outbox<O::Look>, identity: Identity) -> Driver<O> {
        Driver {
            recorder: Recorder::new(&scheduler),
            scheduler,
            outbox,
            waiters: BTreeMap::new(),
            next_reply: 1,
            watchers: BTreeMap::new(),
            links: BTreeMap::new(),
            identity,
            looks_ns: Some(0),
        }
    }

    /// Takes the effects of the restoration, and finds the front ends that waited before it.
    pub fn begin(&mut self, out: &mut O, effects: Vec<Effect>) {
        self.take(out, effects);
        let waiting: Vec<_> = self
            .scheduler
            .teams()
            .filter_map(|team| Some((team.apid, team.front.clone()?)))
            .collect();
        for (apid, front) in waiting {
            if !out.find_front(apid, front) {
                self.event(out, Event::FrontGone { apid });
            }
        }
    }

    /// The state.
    pub fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    /// The connections of apinits that are open.
    pub fn links(&self) -> impl Iterator<Item = LinkId> {
        self.links.keys().copied()
    }

    /// How nodes are told that applications are ended, from now on.
    pub fn set_kill_grace(&mut self, grace: Duration) {
        self.identity.kill_grace = grace;
    }

    /// Applies an event of which nobody waits for an answer.
    pub fn event(&mut self, out: &mut O, event: Event) {
        self.decide(out, [event]);
    }

    /// Applies events that came together, as [`Driver::come`] does.
    pub fn events(&mut self, out: &mut O, events: Vec<Event>) {
        self.come(out, events.into_iter().map(Came::Event));
    }

    /// Has the recorder begin anew, with so many events in a part.
    pub fn remember(&mut self, events_max: usize) {
        self.recorder = Recorder::bounded(&self.scheduler, events_max);
    }

    /// What has happened of late.
    pub fn recording(&self) -> Recording {
        self.recorder.recording()
    }

    fn decide(&mut self, out: &mut O, events: impl AsRef<[Event]> + IntoIterator<Item = Event>) {
        let now = out.now();
        self.recorder.tells(now, &self.scheduler, events.as_ref());
        let effects = self.scheduler.apply_all(now, events);
        self.recorder.gave(&effects);
        self.take(out, effects);
    }
}

#[cfg(test)]
mod tests;
