//! The loop: one owner of all of psched's state.
//!
//! Everything that happens comes in as an [`Input`]: what nodes and processes tell on one bounded queue, what
//! users ask on bounded lines that are taken by turns ([`fair`]). The loop applies it to
//! the pure scheduler, hands what is to be kept to the store thread, and does the rest once that
//! thread says that it is durable. The loop itself never waits: not for the disk, not for a client,
//! not for a node; whoever can't keep up loses his connection, not our time. Whoever only looks gets
//! a copy of the state ([`Input::Snapshot`]) and makes of it what he wants elsewhere.

mod refusals;
mod snapshots;
mod store_watch;
mod streams;
mod together;

pub use streams::{ended, refused};

use super::committer::{Commit, Outcome, Release, Trouble};
use super::fair;
use super::fronts::{FrontEnd, Fronts};
use super::tune::Tuner;
use super::usage;
use crate::apteam::change::By;
use crate::apteam::talk::node::{Command, NodeSpec, Start, Welcome};
use crate::apteam::{Apid, SealKey};
use crate::machine::{Machine, Nid};
use crate::os::host::{monotonic_ns, wall_ns};
use crate::os::notify::Notify;
use crate::os::signal_helper::SignalHelper;
use crate::os::wait;
use crate::rpc::pb;
use crate::scheduler::outbox::{Held, Kept, Outbox, Record};
use crate::scheduler::tuning::{Told, Wanted};
use crate::scheduler::{Effect, Event, LinkId, Looked, News, Now, ReplyId, Scheduler};
use crate::variables::Variables;
use refusals::Refusals;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use store_watch::{DISK_PATIENCE, Patience, StoreWatch};
use tokio::sync::{mpsc, oneshot};
use tonic::Status;

/// What an event stream carries.
pub type EventSender = mpsc::Sender<Result<pb::ApplicationEvent, Status>>;
/// What an apinit's stream carries.
pub type LinkSender = mpsc::Sender<Result<pb::ToNode, Status>>;

/// An answer to a question that only looks, given with word whether what it says is on the disk.
pub type Look = Box<dyn FnOnce(Kept) + Send>;
/// A question that only looks.
pub type Read = Box<dyn FnOnce(&Scheduler) -> Look + Send>;
/// SIGKILL on every Linux.
const KILL: i32 = 9;

/// What comes into the loop.
pub enum Input {
    /// A posting, with the stream for its events and the process that waits.
    Post { event: Box<Event>, front: FrontEnd, events: EventSender },
    /// Events of an application from now on. The answer: whether it is there, or why it can't be
    /// watched.
    Watch {
        apid: Apid,
        front: Option<FrontEnd>,
        events: EventSender,
        found: oneshot::Sender<Result<bool, Status>>,
    },
    /// The front end of a posting is to say what it would launch.
    AskLaunch { apid: Apid },
    /// A front end looks.
    Look { apid: Apid, answer: oneshot::Sender<Result<Looked, Status>> },
    /// apkill.
    Kill {
        apids: Vec<Apid>,
        signal: i32,
        uid: u32,
        administrator: bool,
        answer: oneshot::Sender<Killed>,
    },
    /// An order of psmgr's for the scheduler.
    Manage { event: Box<Event>, answer: oneshot::Sender<Result<pb::ManageReply, Status>> },
    /// psmgr set.
    Set { wanted: Wanted, by: By, answer: oneshot::Sender<Result<pb::ManageReply, Status>> },
    /// psmgr show.
    Show { answer: oneshot::Sender<pb::ShowReply> },
    /// An apinit calls.
    LinkOpened { link: LinkId, event: Box<Event>, sender: LinkSender },
    /// An apinit's heartbeat.
    Beat(LinkId),
    /// Anything for the scheduler that needs no answer.
    Event(Box<Event>),
    /// A question. What it returns is called when everything before it is durable, or is known to
    /// wait.
    Read(Read),
    /// The whole state, for whoever only looks at it.
    Snapshot { answer: oneshot::Sender<Arc<Scheduler>> },
    /// psched.yaml was read again. The answer: what that changed of the variables.
    Reconfigured {
        new: Box<super::tune::Reconfigured>,
        answer: oneshot::Sender<super::tune::Answer>,
    },
    /// What would that change, were it read? Of the variables, and for applications.
    Compare {
        variables: Box<Variables>,
        machine: Box<Machine>,
        answer: oneshot::Sender<(Told, Vec<String>)>,
    },
    /// Stop.
    Stop,
}

/// The answer to apkill: a problem for each application, or none; and what its user is told besides.
pub type Killed = (Vec<Option<String>>, Option<String>);

/// A link's outgoing side.
struct LinkOut {
    sender: LinkSender,
    seq: u64,
    /// Commits that it was told of.
    commits: u64,
}

enum Waiter {
    Post { apid_events: EventSender, front: FrontEnd },
    Look(oneshot::Sender<Result<Looked, Status>>),
    Kill(oneshot::Sender<Killed>),
    Manage(oneshot::Sender<Result<pb::ManageReply, Status>>),
}

/// What the loop knows beside the scheduler.
pub struct Core {
    pub(super) scheduler: Scheduler,
    commits: std::sync::mpsc::Sender<Commit>,
    pub(super) trouble: Trouble,
    pub(super) outbox: Outbox<Look>,
    waiters: BTreeMap<ReplyId, Waiter>,
    next_reply: u64,
    watchers: HashMap<Apid, Vec<EventSender>>,
    links: BTreeMap<LinkId, LinkOut>,
    refusals: Refusals,
    fronts: Fronts,
    pub(super) identity: Identity,
    /// Variables.
    pub(super) tuner: Tuner,
    /// One span for each application that has not ended, while anybody listens.
    spans: HashMap<Apid, (tracing::Span, Option<u32>)>,
    snapshots: snapshots::Snapshots,
}

/// What nodes are told of this psched.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The store's id.
    pub store_id: String,
    /// How many times psched has started on it.
    pub epoch: u64,
    /// The last starts by epoch, this one too.
    pub starts: Vec<Start>,
    /// Commits of the store that are durable.
    pub commits: Arc<AtomicU64>,
    /// This host's boot.
    pub boot_id: String,
    /// From TERM to KILL.
    pub kill_grace: Duration,
    /// What checkpoints are sealed with; none: there can be none.
    pub checkpoint_key: Option<SealKey>,
    /// The directory of the store, and of that key.
    pub state: PathBuf,
}

impl Identity {
    /// The id of that start, if it is on record.
    pub fn start(&self, epoch: u64) -> Option<&str> {
        self.starts.iter().find(|start| start.epoch == epoch).map(|start| start.id.as_str())
    }

    /// Commits of the store that are durable now.
    fn commits(&self) -> u64 {
        self.commits.load(Ordering::Acquire)
    }
}

/// Both clocks, now.
pub fn now() -> Now {
    Now { mono_ns: monotonic_ns(), wall_ns: wall_ns() }
}

impl Core {
    /// A loop's state before its first input.
    pub fn new(
        scheduler: Scheduler,
        commits: std::sync::mpsc::Sender<Commit>,
        trouble: Trouble,
        inputs: mpsc::WeakSender<Input>,
        identity: Identity,
        tuner: Tuner,
        signals: Option<SignalHelper>,
    ) -> Core {
        Core {
            scheduler,
            commits,
            trouble,
            outbox: Outbox::default(),
            waiters: BTreeMap::new(),
            next_reply: 1,
            watchers: HashMap::new(),
            links: BTreeMap::new(),
            refusals: Refusals::default(),
            fronts: Fronts::new(inputs, signals),
            identity,
            tuner,
            spans: HashMap::new(),
            snapshots: snapshots::Snapshots::default(),
        }
    }

    /// Effects of the restoration, and the front ends that waited before it.
    pub fn begin(&mut self, effects: Vec<Effect>) {
        self.take(effects, None);
        let waiting: Vec<_> =
            self.scheduler.teams().filter_map(|t| t.front.map(|f| (t.apid, f))).collect();
        for (apid, front) in waiting {
            if !self.fronts.find(apid, front) {
                self.event(Event::FrontGone { apid });
            }
        }
    }

    /// Runs until it is told to stop.
    pub async fn run(
        mut self,
        mut inputs: mpsc::Receiver<Input>,
        mut asked: fair::Receiver<Input>,
        mut outcomes: mpsc::UnboundedReceiver<Vec<Outcome>>,
        notify: &Notify,
    ) {
        let mut beat = notify.beat().map(tokio::time::interval);
        let mut store = StoreWatch::new(notify.beat());
        let mut patience = Patience::default();
        loop {
            let busy = self.outbox.under_way() > 0;
            let until = patience.until(tokio::time::Instant::now(), busy);
            let waits = self.trouble.waits().is_some();
            let silent = until.filter(|_| !waits);
            // A disk that is only slow makes everybody wait; one that fails must not.
            let hears = waits || !self.outbox.is_full();
            let due = self
                .scheduler
                .deadline()
                .map(|at| Duration::from_nanos(at.saturating_sub(monotonic_ns())));
            tokio::select! {
                biased;
                // First, for it must come also when there is always something else to do; and it
                // says that the loop turns and that what it decides can be kept.
                () = wait::tick(&mut beat) => {
                    if self.trouble.has_thread() && store.answers(self.outbox.under_way() > 0) {
                        notify.alive();
                    }
                }
                outcome = outcomes.recv() => {
                    let Some(outcome) = outcome else { store_died() };
                    store.answered();
                    patience.answered();
                    self.outcomes(outcome);
                }
                () = wait::until(silent) => {
                    self.trouble.is_silent(DISK_PATIENCE);
                    self.unhold();
                }
                input = inputs.recv(), if hears => {
                    let Some(input) = input else { break };
                    let behind = match input {
                        Input::Event(event) => {
                            let (events, behind) = together::gather(*event, &mut inputs);
                            self.events(events);
                            behind
                        }
                        other => Some(other),
                    };
                    match behind {
                        Some(Input::Stop) => break,
                        Some(input) => self.input(input),
                        None => {}
                    }
                    // However much nodes have to tell.
                    if let Some(input) = asked.try_recv() {
                        self.input(input);
                    }
                }
                Some(input) = asked.recv(), if hears => self.input(input),
                () = wait::sleep(self.snapshots.due()) => self.hand_out_snapshot(),
                () = wait::sleep(due) => {
                    self.look_at_offset();
                    self.event(Event::Tick);
                }
            }
        }
        self.stop(outcomes).await;
    }

    /// The last commits reach the disk and their answers leave, within two seconds.
    async fn stop(mut self, mut outcomes: mpsc::UnboundedReceiver<Vec<Outcome>>) {
        let shares = self.scheduler.keep_shares(now());
        self.take(shares.into_iter().collect(), None);
        let end = tokio::time::Instant::now() + Duration::from_secs(2);
        while self.outbox.under_way() > 0 {
            let Ok(Some(done)) = tokio::time::timeout_at(end, outcomes.recv()).await else { break };
            self.outcomes(done);
        }
    }

    /// The store has answered.
    fn outcomes(&mut self, outcomes: Vec<Outcome>) {
        for outcome in outcomes {
            self.outbox.came_back(&outcome);
            self.outcome(outcome);
            while let Some(held) = self.outbox.kept() {
                self.give(held, Kept::Yes);
            }
        }
        if self.trouble.waits().is_some() {
            self.unhold();
        }
        for link in self.outbox.to_hang_up() {
            tracing::info!(
                link = link.0,
                "an apinit is to say everything again: its connection is closed"
            );
            self.links.remove(&link);
            self.event(Event::LinkClosed { link });
        }
    }

    /// Answers all who wait for records to be durable, and need not.
    fn unhold(&mut self) {
        for held in self.outbox.unheld() {
            self.give(held, Kept::Waits);
        }
    }

    fn give(&mut self, held: Held<Look>, kept: Kept) {
        match held {
            Held::Look(look) => look(kept),
            Held::Reply(Effect::Killed { reply, problems }) => {
                if let Some(Waiter::Kill(answer)) = self.waiters.remove(&reply) {
                    let waits = kept == Kept::Waits && problems.iter().any(Option::is_none);
                    let notice = waits.then(|| self.trouble.notice()).flatten();
                    let _ = answer.send((problems, notice));
                }
            }
            Held::Reply(Effect::Managed { reply, done, mut problems }) => {
                if let Some(Waiter::Manage(answer)) = self.waiters.remove(&reply) {
                    if kept == Kept::Waits {
                        problems.extend(self.trouble.notice());
                    }
                    let _ = answer.send(Ok(pb::ManageReply { done, problems }));
                }
            }
            // There are no others.
            Held::Reply(_) => {}
        }
    }

    fn input(&mut self, input: Input) {
        match input {
            Input::Post { mut event, front, events } => {
                if let Some(reason) = self.takes_nothing() {
                    let status =
                        Status::unavailable(format!("the posting was not taken: {reason}"));
                    let _ = events.try_send(Err(status));
                    return;
                }
                let id = self.reply(Waiter::Post { apid_events: events, front });
                let mut new = BTreeSet::from([Apid(self.scheduler.next_apid())]);
                match event.as_mut() {
                    Event::Posted { reply, .. } => *reply = id,
                    Event::Restarted { reply, origin, .. } => {
                        *reply = id;
                        let again = Some(origin.apid());
                        new.extend(again.filter(|apid| self.scheduler.team(*apid).is_none()));
                    }
                    _ => {}
                }
                let effects = self.scheduler.apply(now(), *event);
                // Which of the two it is: that of its acceptance.
                let accepted = effects.iter().find_map(|effect| match effect {
                    Effect::Accept { apid, .. } => Some(*apid),
                    _ => None,
                });
                self.take(effects, accepted.filter(|apid| new.contains(apid)));
            }
            Input::Watch { apid, front, events, found } => self.watch(apid, front, events, found),
            Input::AskLaunch { apid } => self.ask_launch(apid),
            Input::Look { apid, answer } => {
                let reply = self.reply(Waiter::Look(answer));
                self.event(Event::Looked { reply, apid });
            }
            // What ends an application is taken also where nothing else is.
            Input::Kill { apids, signal, answer, .. }
                if ![0, KILL].contains(&signal) && self.outbox.is_full() =>
            {
                let why = self.takes_nothing().unwrap_or_default();
                let problem = Some(format!("the signal was not sent: {why}"));
                let _ = answer.send((vec![problem; apids.len()], None));
            }
            Input::Kill { apids, signal, uid, administrator, answer } => {
                let reply = self.reply(Waiter::Kill(answer));
                self.event(Event::Kill { reply, apids, signal, uid, administrator });
            }
            Input::Manage { mut event, answer } => {
                let Some(answer) = self.may_change(answer) else { return };
                let id = self.reply(Waiter::Manage(answer));
                if let Event::Manage { reply, .. }
                | Event::Nodes { reply, .. }
                | Event::Flavors { reply, .. }
                | Event::Hold { reply, .. }
                | Event::Migrate { reply, .. }
                | Event::Compact { reply, .. } = event.as_mut()
                {
                    *reply = id;
                }
                self.event(*event);
            }
            Input::Set { wanted, by, answer } => {
                let Some(answer) = self.may_change(answer) else { return };
                self.set_variables(wanted, &by, answer);
            }
            Input::Show { answer } => self.show_variables(answer),
            Input::LinkOpened { link, event, sender } => {
                self.links.insert(link, LinkOut { sender, seq: 0, commits: 0 });
                if self.outbox.leaves_out(&event, self.trouble.waits().is_some()) {
                    let why = self.takes_nothing().unwrap_or_default();
                    return self.perform(Effect::RefuseLink { link, why });
                }
                self.event(*event);
            }
            Input::Beat(link) => self.beat(link),
            Input::Event(event) => self.events(vec![*event]),
            Input::Read(read) => {
                let look = read(&self.scheduler);
                self.look(look);
            }
            Input::Snapshot { answer } => self.snapshot(answer),
            Input::Reconfigured { new, answer } => self.reconfigured(*new, answer),
            Input::Compare { variables, machine, answer } => {
                self.compare(*variables, *machine, answer);
            }
            Input::Stop => {}
        }
    }

    /// Has this called when all before it is durable, or known to wait.
    pub(super) fn look(&mut self, look: Look) {
        if let Err(look) = self.outbox.hold(look) {
            return look(Kept::Yes);
        }
        if self.trouble.waits().is_some() {
            self.unhold();
        }
    }

    /// Why nothing new is taken now, if so.
    pub(super) fn takes_nothing(&self) -> Option<String> {
        let why = || {
            let why = self.trouble.waits().map_or_else(String::new, |waits| waits.why);
            format!("{} records wait for the disk: {why}", self.outbox.under_way())
        };
        self.trouble.reason().or_else(|| self.outbox.is_full().then(why))
    }

    /// Whether the store takes what an administrator changes; if not, he is told, and nothing is
    /// changed.
    fn may_change(
        &self,
        answer: oneshot::Sender<Result<pb::ManageReply, Status>>,
    ) -> Option<oneshot::Sender<Result<pb::ManageReply, Status>>> {
        let Some(reason) = self.takes_nothing() else { return Some(answer) };
        let _ = answer.send(Err(Status::unavailable(format!("nothing was changed: {reason}"))));
        None
    }

    fn reply(&mut self, waiter: Waiter) -> ReplyId {
        let id = ReplyId(self.next_reply);
        self.next_reply += 1;
        self.waiters.insert(id, waiter);
        id
    }

    pub(super) fn event(&mut self, event: Event) {
        let effects = self.scheduler.apply(now(), event);
        self.take(effects, None);
    }

    /// Lets leave what may, and has the store keep what is to be kept. `new` is the number of the
    /// posting that this may be.
    fn take(&mut self, effects: Vec<Effect>, new: Option<Apid>) {
        if effects.is_empty() {
            return;
        }
        let leaving = self.outbox.take(now().wall_ns, effects, new);
        let records = leaving.commit.iter().flat_map(|c| &c.records);
        for record in records {
            if let Record::Log { apid, name, detail, .. } = record {
                self.span(*apid).in_scope(|| tracing::info!(event = name, "{detail}"));
            }
        }
        for effect in leaving.now {
            self.perform(effect);
        }
        if let Some(mut commit) = leaving.commit {
            let lines = usage::lines(&commit.records);
            commit.releases.extend(lines.into_iter().map(Release::Answer));
            self.commit(commit);
        }
        if self.trouble.waits().is_some() {
            self.unhold();
        }
    }

    /// The span of an application, as every process of psched's has it.
    fn span(&mut self, apid: Apid) -> tracing::Span {
        if !tracing::enabled!(tracing::Level::INFO) {
            return tracing::Span::none();
        }
        let team = self.scheduler.team(apid);
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

    pub(super) fn commit(&mut self, commit: Commit) {
        if self.commits.send(commit).is_err() {
            store_died();
        }
    }

    fn outcome(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Release(effects) => self.release(effects),
            Outcome::Refused { apid, why, releases } => {
                self.outbox.refused(apid, &why);
                for release in releases {
                    if let Release::Effect(accept @ Effect::Accept { .. }) = release {
                        self.perform(accept);
                    }
                }
                self.event(Event::StoreRefused { apid, why });
            }
        }
    }

    fn release(&mut self, releases: Vec<Release>) {
        for release in releases {
            match release {
                Release::Effect(effect) => self.perform(effect),
                Release::Answer(answer) => answer(),
            }
        }
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Accept { reply, apid } => {
                if let Some(Waiter::Post { apid_events, front }) = self.waiters.remove(&reply) {
                    if let Some(why) = self.outbox.why_refused(apid) {
                        let text = format!("the posting was not taken: {why}");
                        let _ = apid_events.try_send(Err(Status::unavailable(text)));
                        return;
                    }
                    let _ = apid_events.try_send(Ok(self.accepted(apid)));
                    self.watchers.entry(apid).or_default().push(apid_events);
                    if self.scheduler.team(apid).and_then(|t| t.front).is_some() {
                        self.fronts.watch(apid, front);
                    }
                }
            }
            Effect::Refuse { reply, refusal, explanation } => {
                let status = refused(refusal, &explanation.to_string());
                match self.waiters.remove(&reply) {
                    Some(Waiter::Post { apid_events, .. }) => {
                        let _ = apid_events.try_send(Err(status));
                    }
                    Some(Waiter::Look(answer)) => {
                        let _ = answer.send(Err(status));
                    }
                    Some(Waiter::Manage(answer)) => {
                        let _ = answer.send(Err(status));
                    }
                    Some(Waiter::Kill(_)) | None => {}
                }
            }
            Effect::Look { reply, looked } => {
                if let Some(Waiter::Look(answer)) = self.waiters.remove(&reply) {
                    let _ = answer.send(Ok(looked));
                }
            }
            reply @ (Effect::Killed { .. } | Effect::Managed { .. }) => {
                self.give(Held::Reply(reply), Kept::Yes);
            }
            Effect::Command { link, command } => self.command(link, command),
            Effect::Welcome { link, nids } => self.welcome(link, &nids),
            Effect::RefuseLink { link, why } => {
                // (It calls again every second or so.)
                if self.refusals.is_new(&why) {
                    tracing::warn!("an apinit was refused: {why}");
                }
                self.send(link, pb::to_node::Message::Refused(why));
                self.links.remove(&link);
            }
            Effect::CloseLink { link } => {
                self.links.remove(&link);
            }
            // Only simulated: nodes are told by a command (`RollsOut::AtHome`).
            Effect::RollIn { .. } | Effect::RollOut { .. } => {}
            Effect::SignalFront { apid, front } => self.fronts.signal(apid, front),
            Effect::Tell { apid, news } => self.tell(apid, news),
            Effect::Warn(text) => tracing::warn!("{text}"),
            Effect::TellEnd { apid, end, status } => self.tell(apid, News::Ended { end, status }),
            // In the store.
            Effect::Save { .. }
            | Effect::SaveAdopted { .. }
            | Effect::Log { .. }
            | Effect::SaveBoot { .. }
            | Effect::SaveNodes { .. }
            | Effect::SaveFlavors { .. }
            | Effect::SaveChange(_)
            | Effect::SaveShares(_) => {}
        }
    }

    fn command(&mut self, link: LinkId, command: Command) {
        let message = pb::to_node::Message::from(command);
        self.send(link, message);
    }

    fn welcome(&mut self, link: LinkId, nids: &[Nid]) {
        let machine = self.scheduler.machine();
        let nodes = nids
            .iter()
            .filter_map(|nid| machine.nodes.get(nid))
            .map(|n| NodeSpec {
                nid: n.nid,
                processors: n.processors,
                cpus: n.cpus.clone(),
                first_processor: self.scheduler.first_processor(n.nid),
                memory: n.memory,
            })
            .collect();
        let welcome = Welcome {
            store_id: self.identity.store_id.clone(),
            epoch: self.identity.epoch,
            nodes,
            kill_grace: self.identity.kill_grace,
            mono_ns: monotonic_ns(),
            boot_id: self.identity.boot_id.clone(),
            next_apid: self.scheduler.next_apid(),
            starts: self.identity.starts.clone(),
            commits: self.identity.commits(),
            unreadable: self.scheduler.unreadable().collect(),
            bounds: self.scheduler.settings().host_bounds,
            checkpoint_key: self.identity.checkpoint_key.clone(),
        };
        self.send(link, pb::to_node::Message::Welcome(welcome.into()));
    }

    /// An apinit's heartbeat is answered with what has become durable since it was last told.
    fn beat(&mut self, link: LinkId) {
        let commits = self.identity.commits();
        if self.links.get(&link).is_some_and(|out| out.commits < commits) {
            self.send_to_node(link, None);
        }
    }

    fn send(&mut self, link: LinkId, message: pb::to_node::Message) {
        self.send_to_node(link, Some(message));
    }

    fn send_to_node(&mut self, link: LinkId, message: Option<pb::to_node::Message>) {
        let commits = self.identity.commits();
        let Some(out) = self.links.get_mut(&link) else { return };
        let seq = match message {
            None | Some(pb::to_node::Message::Welcome(_)) => 0,
            Some(_) => {
                out.seq += 1;
                out.seq
            }
        };
        out.commits = commits;
        if out.sender.try_send(Ok(pb::ToNode { seq, commits, message })).is_err() {
            // It does not read: its connection ends, and after the next one inventories are
            // exchanged, so that nothing is lost by this.
            tracing::warn!(link = link.0, "an apinit does not keep up; its connection is closed");
            self.links.remove(&link);
            self.event(Event::LinkClosed { link });
        }
    }
}

/// Without its store thread psched can promise nothing any more.
fn store_died() -> ! {
    tracing::error!("the store thread has died; psched ends");
    crate::logging::flush();
    std::process::abort();
}
