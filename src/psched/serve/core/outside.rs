//! The driver's outside as it really is: the store thread, gRPC streams, processes, the log.

use super::{EventSender, LinkSender, Look, now, streams};
use crate::apteam::Apid;
use crate::apteam::record::FrontProcess;
use crate::psched::decide::outbox::Kept;
use crate::psched::decide::{Effect, Now, Scheduler};
use crate::psched::drive::recorder::Recording;
use crate::psched::drive::{
    Front, Identity, Note, Outside, Refused, Reply, Sent, ToNode, Told, Waits,
};
use crate::psched::serve::committer::{Commit, Release, Trouble};
use crate::psched::serve::front_handle::FrontHandle;
use crate::psched::serve::fronts::Fronts;
use crate::psched::serve::kept_recordings;
use crate::psched::serve::logins::LoginEvent;
use crate::psched::serve::usage;
use crate::rpc::pb;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::oneshot;

/// See [`Outside`].
pub struct Real {
    commits: std::sync::mpsc::Sender<Commit>,
    /// How the store is.
    pub(in crate::psched::serve) trouble: Trouble,
    durable: Arc<AtomicU64>,
    fronts: Fronts,
    /// The state directory.
    state: PathBuf,
    refusals: super::refusals::Refusals,
    /// By which psched a posting is taken.
    accepted: pb::Accepted,
    /// One span for each application that has not ended, while anybody listens, with its first node.
    spans: HashMap<Apid, (tracing::Span, Option<u32>)>,
}

impl Real {
    pub(super) fn new(
        commits: std::sync::mpsc::Sender<Commit>,
        trouble: Trouble,
        durable: Arc<AtomicU64>,
        fronts: Fronts,
        identity: &Identity,
        state: PathBuf,
    ) -> Real {
        let Identity { store_id, epoch, .. } = identity;
        let start_id = identity.start(*epoch).unwrap_or_default().to_owned();
        Real {
            commits,
            trouble,
            durable,
            fronts,
            state,
            refusals: Default::default(),
            accepted: pb::Accepted { apid: 0, store_id: store_id.clone(), epoch: *epoch, start_id },
            spans: HashMap::new(),
        }
    }

    /// What a login host has to say of its front ends. Returned: the applications whose front end
    /// has ended.
    pub(super) fn login(&mut self, event: LoginEvent) -> Vec<Apid> {
        self.fronts.login(event)
    }

    /// The span of an application, as every process of psched's has it.
    fn span(&mut self, scheduler: &Scheduler, apid: Apid) -> tracing::Span {
        if !tracing::enabled!(tracing::Level::INFO) {
            return tracing::Span::none();
        }
        let team = scheduler.team(apid);
        let nid = team.and_then(|t| t.places.nids().next()).map(|n| n.0);
        let make = || {
            let uid = team.map(|t| t.owner.uid);
            (tracing::info_span!("application", apid = apid.0, uid, nid), nid)
        };
        let (span, known) = self.spans.entry(apid).or_insert_with(make);
        // A field that is recorded anew would be shown twice.
        if nid.is_some() && *known != nid {
            (*span, *known) = make();
        }
        span.clone()
    }
}

impl Outside for Real {
    type Caller<T: Reply> = oneshot::Sender<T>;
    type Stream = EventSender;
    type Front = FrontHandle;
    type Link = LinkSender;
    type Look = Look;

    fn now(&self) -> Now {
        now()
    }

    fn commits(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    fn waits(&self) -> Option<Waits> {
        self.trouble.waits()
    }

    fn commit(&mut self, mut commit: Commit) {
        let lines = usage::lines(&commit.records);
        commit.releases.extend(lines.into_iter().map(Release::Answer));
        if self.commits.send(commit).is_err() {
            store_died();
        }
    }

    fn answer<T: Reply>(&mut self, caller: oneshot::Sender<T>, reply: T) {
        let _ = caller.send(reply);
    }

    fn look(&mut self, look: Look, kept: Kept) {
        look(kept);
    }

    fn listens(&self, stream: &EventSender) -> bool {
        !stream.stream.is_closed()
    }

    fn tell(&mut self, stream: &mut EventSender, told: &Told) -> bool {
        stream.stream.try_send(Ok(streams::event(told, &self.accepted))).is_ok()
    }

    fn refuse(&mut self, stream: EventSender, why: Refused) {
        let _ = stream.stream.try_send(Err(streams::status(&why, &stream.viewer)));
    }

    fn send(&mut self, link: &mut LinkSender, sent: Sent) -> bool {
        let Sent { seq, commits, message } = sent;
        let message = message.map(|message| match message {
            ToNode::Welcome(welcome) => pb::to_node::Message::Welcome((*welcome).into()),
            ToNode::Refused(why) => pb::to_node::Message::Refused(why),
            ToNode::Command(command) => pb::to_node::Message::from(*command),
        });
        link.try_send(Ok(pb::ToNode { seq, commits, message, ..Default::default() })).is_ok()
    }

    fn hang_up(&mut self, link: LinkSender) {
        drop(link);
    }

    fn watch_front(&mut self, apid: Apid, front: Front<FrontHandle>) {
        self.fronts.watch(apid, front);
    }

    fn find_front(&mut self, apid: Apid, process: FrontProcess) -> bool {
        self.fronts.find(apid, process)
    }

    fn forget_front(&mut self, apid: Apid) {
        self.fronts.forget(apid);
        self.spans.remove(&apid);
    }

    fn signal_front(&mut self, apid: Apid, process: FrontProcess) {
        self.fronts.signal(apid, &process);
    }

    fn note(&mut self, note: Note) {
        match note {
            Note::Warning(text) | Note::Fault(text) => tracing::warn!("{text}"),
            Note::Refused(why) => {
                if self.refusals.is_new(&why) {
                    tracing::warn!("an apinit was refused: {why}");
                }
            }
            Note::TooSlow(link) => {
                let link = link.0;
                tracing::warn!(link, "an apinit does not keep up; its connection is closed");
            }
            Note::SayAgain(link) => tracing::info!(
                link = link.0,
                "an apinit must report everything again: its connection is closed"
            ),
        }
    }

    fn keep_recording(&mut self, recording: Recording, why: String) {
        let state = self.state.clone();
        // (Writing takes longer than the loop may wait. An Err: there are no threads any more.)
        let write = move || kept_recordings::keep(&state, &recording, &why);
        if let Err(error) = std::thread::Builder::new().name("psched-records".into()).spawn(write) {
            tracing::warn!(%error, "no recording is written");
        }
    }

    fn decided(&mut self, scheduler: &Scheduler, effects: &[Effect]) {
        for effect in effects {
            if let Effect::Log { apid, name, detail } = effect {
                let span = self.span(scheduler, *apid);
                span.in_scope(|| tracing::info!(event = name, "{detail}"));
            }
        }
    }
}

/// Without its store thread psched can promise nothing any more.
pub(super) fn store_died() -> ! {
    tracing::error!("the store thread has died; psched ends");
    crate::logging::flush();
    std::process::abort();
}
