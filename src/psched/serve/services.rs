//! The service Psched: requests of aprun, apstat and apkill, turned into inputs of the loop; those of
//! psmgr are in [`super::management`].
//!
//! Who calls is what the kernel said of the connection ([`Peer`]); a request never says it.

use super::budget::Budgets;
use super::clock::now;
use super::committer::Trouble;
use super::core::{ended, status};
use super::deposits::Deposits;
use super::fair;
use super::front_handle::FrontHandle;
use super::input::{EventSender, FrontEnd, Input};
use super::names::names;
use super::private::Viewer;
use super::processes::Questions;
use super::reload::Reload;
use super::store::{Reader, StoreError};
use super::views;
use crate::apteam::ending::HostEnd;
use crate::apteam::posting::{Owner, Posting};
use crate::apteam::record::{Apteam, FrontProcess, State};
use crate::apteam::{Apid, Ticket};
use crate::config::Config;
use crate::psched::decide::outbox::Kept;
use crate::psched::decide::{Event, Looked, Manage, Scheduler};
use crate::psched::drive::requests::Kill;
use crate::psched::drive::{Identity, Killed, Refused};
use crate::rpc::convert::wire_places;
use crate::rpc::listen::Peer;
use crate::rpc::pb;
use crate::variables::Private;
use crate::variables::units::nanos;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

/// Events that may wait for a front end that does not read: far more than an application has. Whoever
/// leaves more lying loses his stream, and hears the present state on the next one.
const EVENTS_MAX: usize = 64;
/// Applications that one apkill may name.
const KILL_MAX: usize = 10_000;
/// Of these so many go through the loop in one piece, which must not hold up everybody else, nor be
/// more than a node's connection takes.
const KILL_AT_ONCE: usize = 256;

/// The service.
pub struct Service {
    /// Into the loop, by turns.
    pub asked: fair::Sender<Input>,
    /// What may be asked at once.
    pub budgets: Budgets,
    /// What is hidden of others' applications.
    pub private: watch::Receiver<Private>,
    /// The database, for reading.
    pub store: PathBuf,
    /// Users who may do everything, besides root and the one that psched runs as.
    pub administrators: Arc<RwLock<BTreeSet<u32>>>,
    /// Which store it is, and which start.
    pub identity: Identity,
    /// Why records wait for the disk, if they do.
    pub trouble: Trouble,
    /// What of psched.yaml is in force.
    pub running: Arc<RwLock<Config>>,
    /// Reads psched.yaml again.
    pub reload: Arc<tokio::sync::Mutex<Reload>>,
    /// Who waits for what an aprun would launch.
    pub deposits: Deposits,
    /// What apinits are asked.
    pub questions: Questions,
    /// The name of psched's host, by its certificate; empty: it has none.
    pub host: Arc<str>,
}

type Events = Pin<Box<dyn Stream<Item = Result<pb::ApplicationEvent, Status>> + Send>>;

/// Who is calling.
///
/// # Errors
/// The kernel did not say.
pub fn caller<T>(request: &Request<T>) -> Result<Peer, Status> {
    let unknown = || Status::unauthenticated("the kernel does not report the caller's user id");
    request.extensions().get::<Peer>().cloned().ok_or_else(unknown)
}

impl Service {
    pub(super) fn is_administrator(&self, uid: u32) -> bool {
        let named = || {
            let administrators = self.administrators.read();
            administrators.unwrap_or_else(PoisonError::into_inner).contains(&uid)
        };
        uid == 0 || uid == rustix::process::geteuid().as_raw() || named()
    }

    /// Gives the loop what this user asks.
    pub(super) async fn ask(&self, uid: u32, input: Input) -> Result<(), Status> {
        self.asked.send(uid, input).await.map_err(|_| ending())
    }

    /// Asks the scheduler something that is only shown. The answer comes when all before it is
    /// durable; where that waits for the disk, at once, and a notice belongs to it
    /// ([`Trouble::notice`]).
    pub(super) async fn read<T: Send + 'static>(
        &self,
        uid: u32,
        question: impl FnOnce(&Scheduler) -> T + Send + 'static,
    ) -> Result<T, Status> {
        self.question(uid, question).await.map(|(found, _)| found)
    }

    /// Asks the scheduler something on which somebody acts: no answer that a restart may undo.
    pub(super) async fn read_kept<T: Send + 'static>(
        &self,
        uid: u32,
        question: impl FnOnce(&Scheduler) -> T + Send + 'static,
    ) -> Result<T, Status> {
        match self.question(uid, question).await? {
            (found, Kept::Yes) => Ok(found),
            (_, Kept::Waits) => {
                let why = self.trouble.waits().map(|waits| waits.why).unwrap_or_default();
                Err(Status::unavailable(format!("records wait for the disk: {why}")))
            }
        }
    }

    async fn question<T: Send + 'static>(
        &self,
        uid: u32,
        question: impl FnOnce(&Scheduler) -> T + Send + 'static,
    ) -> Result<(T, Kept), Status> {
        let (sender, answer) = oneshot::channel();
        let read = Input::Read(Box::new(move |scheduler| {
            let found = question(scheduler);
            Box::new(move |kept| {
                let _ = sender.send((found, kept));
            })
        }));
        self.ask(uid, read).await?;
        answer.await.map_err(|_| ending())
    }

    /// Asks the store something, on a thread that may wait for the disk.
    pub(super) async fn ask_store<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Reader) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, Status> {
        let path = self.store.clone();
        let answer = tokio::task::spawn_blocking(move || question(&Reader::open(&path)?)).await;
        let answer = answer.map_err(|_| {
            Status::internal("psched lost a query to its store by an internal error: try again")
        })?;
        answer.map_err(|e| Status::unavailable(e.to_string()))
    }

    /// An application that has ended, if the caller may know of it.
    pub(super) async fn ended(&self, peer: &Peer, apid: Apid) -> Result<Apteam, Status> {
        let team = self.ask_store(move |s| s.team(apid)).await?;
        let known = team.filter(|team| self.viewer(peer).sees(team.owner.uid));
        known.ok_or_else(|| no_application(apid))
    }

    /// What one is told who asks for what only the owner of an application gets: `why`, if he may know of it.
    pub(super) fn not_his(&self, peer: &Peer, apid: Apid, owner: u32, why: String) -> Status {
        match self.viewer(peer).sees(owner) {
            true => Status::permission_denied(why),
            false => no_application(apid),
        }
    }

    /// An application that is not on record: it is not, or another psched has it.
    fn not_here(&self, request: &pb::WatchRequest) -> Status {
        let pb::WatchRequest { apid, store_id, epoch, start_id, .. } = request;
        let known = if store_id.is_empty() || self.has_start(store_id, *epoch, start_id) {
            return no_application(Apid(*apid));
        } else if *store_id == self.identity.store_id {
            "an old copy of its state"
        } else {
            "another state directory than the psched that took it"
        };
        // Not for good: it may be started with the right one, or adopt the nodes.
        Status::unavailable(format!(
            "this psched has no record of application {apid}, because it runs on {known}; an \
             administrator can restart it with the right state, or adopt the nodes (psmgr adopt)"
        ))
    }

    /// This psched goes on from that start of that store.
    fn has_start(&self, store_id: &str, epoch: u64, start_id: &str) -> bool {
        self.identity.store_id == store_id
            && match self.identity.start(epoch) {
                Some(id) => id == start_id,
                // Longer ago than any is kept.
                None => epoch <= self.identity.epoch,
            }
    }

    /// What was made of a posting that has come before, whether it has ended or not.
    async fn posted_before(&self, posting: &Posting, uid: u32) -> Result<Option<Apid>, Status> {
        let id = posting.request_id;
        match self.read_kept(uid, move |s| s.requested(&id)).await? {
            Some(apid) => Ok(Some(apid)),
            None => self.ask_store(move |s| s.requested(uid, id)).await,
        }
    }

    async fn watch_as(
        &self,
        peer: &Peer,
        request: pb::WatchRequest,
    ) -> Result<Response<Events>, Status> {
        let apid = Apid(request.apid);
        let owner = self.owner_of(peer.uid, apid, request.request_id.clone()).await?;
        if let Some(owner) = owner {
            self.may_front(peer, apid, &owner)?;
            let (events, stream) = self.events_for(peer);
            let (found, answer) = oneshot::channel();
            let front = front(peer, request.signal);
            self.ask(peer.uid, Input::Watch { apid, front, events, found }).await?;
            let found = answer.await.map_err(|_| ending())?;
            if found.map_err(|refused| status(&refused, &self.viewer(peer)))? {
                return Ok(Response::new(Box::pin(ReceiverStream::new(stream))));
            }
        }
        let past = self.ask_store(move |s| s.team(apid)).await?;
        let Some(team) = past.filter(|team| is_meant(&request.request_id, team)) else {
            if let Some(end) = self.purged_end(peer, &request).await? {
                return Ok(Response::new(only_ended(&end)));
            }
            let unreadable = move |s: &Scheduler| s.unreadable().any(|other| other == apid);
            return Err(match self.read(peer.uid, unreadable).await? {
                true => Status::unavailable(format!(
                    "this psched can't read its record of application {apid}, and none of its \
                     nodes has connected yet"
                )),
                false => self.not_here(&request),
            });
        };
        self.may_front(peer, apid, &team.owner)?;
        if team.state != State::Ended {
            return Err(Status::unavailable("the application is just ending; ask again"));
        }
        let end = team.end.unwrap_or_default();
        Ok(Response::new(only_ended(&end)))
    }

    /// How an application of another psched has ended that was purged from its nodes, for its own front end.
    async fn purged_end(
        &self,
        peer: &Peer,
        request: &pb::WatchRequest,
    ) -> Result<Option<HostEnd>, Status> {
        let (request_id, owner) = (request.request_id.clone(), (Apid(request.apid), peer.uid));
        self.read(peer.uid, move |s| {
            let purged = s.purged_end(&request_id).filter(|purged| purged.owner == owner);
            purged.map(|purged| purged.end.clone())
        })
        .await
    }

    fn may_front(&self, peer: &Peer, apid: Apid, owner: &Owner) -> Result<(), Status> {
        if owner.uid == peer.uid || self.is_administrator(peer.uid) {
            return Ok(());
        }
        let why = format!("application {apid} belongs to {}", owner.name);
        Err(self.not_his(peer, apid, owner.uid, why))
    }

    /// Whose an application is that has not ended; with a number, the one that was posted with it only.
    async fn owner_of(
        &self,
        uid: u32,
        apid: Apid,
        request_id: Bytes,
    ) -> Result<Option<Owner>, Status> {
        let owner = move |s: &Scheduler| {
            let team = s.team(apid).filter(|team| is_meant(&request_id, team))?;
            Some(team.owner.clone())
        };
        self.read_kept(uid, owner).await
    }

    /// A stream of events for this caller.
    fn events_for(
        &self,
        peer: &Peer,
    ) -> (EventSender, mpsc::Receiver<Result<pb::ApplicationEvent, Status>>) {
        let (stream, receiver) = mpsc::channel(EVENTS_MAX);
        (EventSender { stream, viewer: self.viewer(peer) }, receiver)
    }
}

fn no_application(apid: Apid) -> Status {
    Status::not_found(format!("there is no application {apid}"))
}

pub(super) fn ending() -> Status {
    Status::unavailable("psched is ending; try again when it is back")
}

fn malformed(error: crate::rpc::Malformed) -> Status {
    Status::invalid_argument(error.to_string())
}

/// Whether the caller has a controlling terminal.
fn has_terminal(peer: &Peer) -> bool {
    match &peer.relayed {
        Some(relayed) => relayed.terminal,
        // (Who has ended meanwhile, so that its pid may be another's, gets no answer.)
        None => crate::os::peer::has_terminal(peer.pid),
    }
}

async fn owner(peer: &Peer) -> Owner {
    Owner {
        uid: peer.uid,
        gid: peer.gid,
        groups: peer.groups.clone(),
        name: names().user_name(peer.uid).await,
        terminal: has_terminal(peer),
    }
}

/// Whether a caller who names the number of a posting, or none, means this application.
fn is_meant(request_id: &[u8], team: &Apteam) -> bool {
    request_id.is_empty() || *request_id == team.posting.request_id[..]
}

/// The process of a caller, as it is on record.
pub(super) fn process_of(peer: &Peer) -> FrontProcess {
    let host = peer.relayed.as_ref().map(|relayed| relayed.host_and_boot().into());
    FrontProcess { pid: peer.pid, started: peer.started, host: host.unwrap_or_default() }
}

fn front(peer: &Peer, signal: bool) -> Option<FrontEnd> {
    let signal_as = signal.then_some(peer.uid);
    let pidfd = match &peer.relayed {
        Some(_) => None,
        None => Some(peer.pidfd.clone()?),
    };
    let handle = FrontHandle { pidfd, signal_as };
    Some(FrontEnd { process: process_of(peer), handle })
}

#[tonic::async_trait]
impl pb::psched_server::Psched for Service {
    type PostStream = Events;
    type WatchStream = Events;
    type RecordStream = super::record_pieces::Pieces;

    async fn post(&self, request: Request<pb::PostRequest>) -> Result<Response<Events>, Status> {
        let peer = caller(&request)?;
        if let Some(doubt) = peer.doubt {
            return Err(Status::permission_denied(doubt.to_string()));
        }
        let request = request.into_inner();
        let (again, signal) = (request.again, request.signal);
        let front_end = front(&peer, signal).ok_or_else(|| {
            Status::permission_denied(
                "the kernel does not show your process (it is in another pid namespace): run \
                 aprun in psched's own pid namespace",
            )
        })?;
        let owner = owner(&peer).await;
        let (posting, owner, origin) = match request.restart.is_empty() {
            true => (Posting::try_from(request).map_err(malformed)?, owner, None),
            false => {
                let recovered = self.recover(&request, &owner).await?;
                if let crate::psched::decide::Origin::Running(restart) = &recovered.origin {
                    self.can_restore(&peer, restart, request.brings_images).await?;
                }
                (recovered.posting, recovered.owner, Some(recovered.origin))
            }
        };
        if again && let Some(apid) = self.posted_before(&posting, peer.uid).await? {
            let request_id = Bytes::copy_from_slice(&posting.request_id);
            let request =
                pb::WatchRequest { apid: apid.0, request_id, signal, ..Default::default() };
            match self.watch_as(&peer, request).await {
                // The disk has refused its record in this moment: it is as if it had not come.
                Err(status) if status.code() == tonic::Code::NotFound => {}
                answer => return answer,
            }
        }
        let (events, stream) = self.events_for(&peer);
        let secret = Ticket(random()?);
        let (posting, front) = (Box::new(posting), front_end.process.clone());
        let event = move |reply| match origin {
            None => Event::Posted { reply, posting, owner, front, secret },
            Some(origin) => Event::Restarted { reply, posting, owner, front, secret, origin },
        };
        let post = Input::Post { event: Box::new(event), front: front_end, events };
        self.ask(peer.uid, post).await?;
        answered(stream).await.map(Response::new)
    }

    async fn watch(&self, request: Request<pb::WatchRequest>) -> Result<Response<Events>, Status> {
        let peer = caller(&request)?;
        self.watch_as(&peer, request.into_inner()).await
    }

    async fn look(
        &self,
        request: Request<pb::LookRequest>,
    ) -> Result<Response<pb::LookReply>, Status> {
        let peer = caller(&request)?;
        let apid = Apid(request.into_inner().apid);
        let answer = match self.owner_of(peer.uid, apid, Bytes::new()).await? {
            Some(owner) => {
                // The ticket is the owner's alone, not an administrator's.
                if owner.uid != peer.uid {
                    let why = format!(
                        "application {apid} belongs to {}: only its own aprun may look for its placement",
                        owner.name
                    );
                    return Err(self.not_his(&peer, apid, owner.uid, why));
                }
                let (answer, looked) = oneshot::channel();
                self.ask(peer.uid, Input::Look { apid, answer }).await?;
                let looked = looked.await.map_err(|_| ending())?;
                let viewer = self.viewer(&peer);
                match looked.map_err(|refused| status(&refused, &viewer))? {
                    Looked::Placed(team) => {
                        let front_host = self.host_of(&peer).to_string();
                        let placement = views::placement(&team);
                        let placement = pb::Placement { front_host, ..placement };
                        pb::look_reply::Answer::Placement(placement)
                    }
                    Looked::Waiting(why) => {
                        pb::look_reply::Answer::Waiting(viewer.brief(apid, &why).into())
                    }
                }
            }
            None => {
                let team = self.ended(&peer, apid).await?;
                self.may_front(&peer, apid, &team.owner)?;
                let end = team.end.unwrap_or_default();
                pb::look_reply::Answer::Ended(ended(end))
            }
        };
        Ok(Response::new(pb::LookReply { answer: Some(answer) }))
    }

    async fn dry_run(
        &self,
        request: Request<pb::PostRequest>,
    ) -> Result<Response<pb::LookReply>, Status> {
        let peer = caller(&request)?;
        let request = request.into_inner();
        if !request.restart.is_empty() {
            return Err(Status::unimplemented("a dry run of a restart is not supported"));
        }
        let posting = Posting::try_from(request).map_err(malformed)?;
        let owner = owner(&peer).await;
        let make = move |s: &Scheduler, viewer: &Viewer| -> Result<pb::LookReply, Status> {
            let (places, hosts) = s
                .dry_run(&posting, &owner)
                .map_err(|(refusal, why)| status(&Refused::Decided(refusal, why), viewer))?;
            let placement = pb::Placement {
                places: wire_places(&places),
                hosts: hosts.into_iter().map(Into::into).collect(),
                ..pb::Placement::default()
            };
            Ok(pb::LookReply { answer: Some(pb::look_reply::Answer::Placement(placement)) })
        };
        self.look_up(&peer, false, make).await
    }

    async fn kill(
        &self,
        request: Request<pb::KillRequest>,
    ) -> Result<Response<pb::KillReply>, Status> {
        let peer = caller(&request)?;
        let request = request.into_inner();
        if request.apids.len() > KILL_MAX {
            return Err(Status::invalid_argument(format!(
                "{} applications in one call, and at most {KILL_MAX} are taken: name fewer at a time",
                request.apids.len()
            )));
        }
        if !(0..=64).contains(&request.signal) {
            return Err(Status::invalid_argument(format!("{} is not a signal", request.signal)));
        }
        let administrator = self.is_administrator(peer.uid);
        // (The last lines of their apruns have it.)
        names().user_name(peer.uid).await;
        // Each once, however often it is named, and not all at once.
        let apids: BTreeSet<Apid> = request.apids.iter().copied().map(Apid).collect();
        let apids: Vec<Apid> = apids.into_iter().collect();
        let (mut told, mut unrecorded) = (BTreeMap::new(), None);
        for apids in apids.chunks(KILL_AT_ONCE) {
            let (answer, problems) = oneshot::channel();
            let (apids_now, signal, uid) = (apids.to_vec(), request.signal, peer.uid);
            let kill = Kill { apids: apids_now, signal, uid, administrator };
            self.ask(peer.uid, Input::Kill { kill, answer }).await?;
            let Killed { problems, kept } = problems.await.map_err(|_| ending())?;
            let waits = kept == Kept::Waits && problems.iter().any(Option::is_none);
            unrecorded = unrecorded.or_else(|| waits.then(|| self.trouble.notice()).flatten());
            told.extend(apids.iter().zip(problems).filter_map(|(apid, why)| Some((*apid, why?))));
        }
        let left: Vec<Apid> = apids.into_iter().filter(|apid| !told.contains_key(apid)).collect();
        let look = move |scheduler: &Scheduler| {
            let now_ns = now().mono_ns;
            let teams = || left.iter().filter_map(|apid| scheduler.team(*apid));
            let kill_in = |team: &Apteam| Some((team.apid, scheduler.kill_in(team, now_ns)?));
            let kill_in: BTreeMap<Apid, Duration> = teams().filter_map(kill_in).collect();
            let held =
                teams().filter(|team| team.held.is_some() && kill_in.contains_key(&team.apid));
            let held: Vec<u64> = held.map(|team| team.apid.0).collect();
            (kill_in, held)
        };
        let (kill_in, held) = match request.signal {
            // An Err: it is done all the same, only when TERM is heard and KILL comes is not known.
            0 => self.read(peer.uid, look).await.unwrap_or_default(),
            _ => Default::default(),
        };
        let kill_in_ns = |apid: &u64| kill_in.get(&Apid(*apid)).copied().map_or(0, nanos);
        let problem = |apid: &u64| told.get(&Apid(*apid)).cloned().unwrap_or_default();
        Ok(Response::new(pb::KillReply {
            problems: request.apids.iter().map(problem).collect(),
            unrecorded: unrecorded.unwrap_or_default(),
            kill_in_ns: request.apids.iter().map(kill_in_ns).collect(),
            held,
        }))
    }

    async fn list(
        &self,
        request: Request<pb::ListRequest>,
    ) -> Result<Response<pb::ListReply>, Status> {
        self.list_page(request).await
    }

    async fn turns(
        &self,
        request: Request<pb::TurnsRequest>,
    ) -> Result<Response<pb::TurnsReply>, Status> {
        self.turns_page(request).await
    }

    async fn processes(
        &self,
        request: Request<pb::ProcessesRequest>,
    ) -> Result<Response<pb::ProcessesReply>, Status> {
        self.processes_of(request).await
    }

    async fn stacks(
        &self,
        request: Request<pb::StacksRequest>,
    ) -> Result<Response<pb::StacksReply>, Status> {
        self.stacks_of(request).await
    }

    async fn shares(
        &self,
        request: Request<pb::SharesRequest>,
    ) -> Result<Response<pb::SharesReply>, Status> {
        self.shares_page(request).await
    }

    async fn events(
        &self,
        request: Request<pb::EventsRequest>,
    ) -> Result<Response<pb::EventsReply>, Status> {
        self.events_page(request).await
    }

    async fn adopt(
        &self,
        request: Request<pb::NodesRequest>,
    ) -> Result<Response<pb::ManageReply>, Status> {
        self.manage(request, Manage::Adopt).await
    }

    async fn purge(
        &self,
        request: Request<pb::NodesRequest>,
    ) -> Result<Response<pb::ManageReply>, Status> {
        self.manage(request, Manage::Purge).await
    }

    async fn show(
        &self,
        request: Request<pb::ShowRequest>,
    ) -> Result<Response<pb::ShowReply>, Status> {
        self.show_variables(request).await
    }

    async fn set(
        &self,
        request: Request<pb::SetRequest>,
    ) -> Result<Response<pb::ManageReply>, Status> {
        self.set_variables(request).await
    }

    async fn set_nodes(
        &self,
        request: Request<pb::SetNodesRequest>,
    ) -> Result<Response<pb::ManageReply>, Status> {
        self.order_nodes(request).await
    }

    async fn set_flavors(
        &self,
        request: Request<pb::SetFlavorsRequest>,
    ) -> Result<Response<pb::ManageReply>, Status> {
        self.order_flavors(request).await
    }

    async fn hold(
        &self,
        request: Request<pb::HoldRequest>,
    ) -> Result<Response<pb::ManageReply>, Status> {
        self.hold_applications(request).await
    }

    async fn migrate(
        &self,
        request: Request<pb::MigrateRequest>,
    ) -> Result<Response<pb::ManageReply>, Status> {
        self.order_migration(request).await
    }

    async fn compact(
        &self,
        request: Request<pb::CompactRequest>,
    ) -> Result<Response<pb::ManageReply>, Status> {
        self.order_compaction(request).await
    }

    async fn checkpoint(
        &self,
        request: Request<pb::CheckpointRequest>,
    ) -> Result<Response<pb::CheckpointReply>, Status> {
        self.checkpoint_of(request).await
    }

    async fn deposit(
        &self,
        request: Request<pb::DepositRequest>,
    ) -> Result<Response<pb::DepositReply>, Status> {
        self.deposited(request).await
    }

    async fn log(
        &self,
        request: Request<pb::LogRequest>,
    ) -> Result<Response<pb::LogReply>, Status> {
        self.changes(request).await
    }

    async fn counters(
        &self,
        request: Request<pb::CountersRequest>,
    ) -> Result<Response<pb::CountersReply>, Status> {
        self.counters_page(request).await
    }

    async fn record(
        &self,
        request: Request<pb::RecordRequest>,
    ) -> Result<Response<super::record_pieces::Pieces>, Status> {
        self.recorded(request).await
    }

    async fn reload(
        &self,
        request: Request<pb::ReloadRequest>,
    ) -> Result<Response<pb::ManageReply>, Status> {
        self.read_again(request).await
    }

    async fn compare(
        &self,
        request: Request<tonic::Streaming<pb::CompareRequest>>,
    ) -> Result<Response<pb::CompareReply>, Status> {
        self.compare_with(request).await
    }
}

/// A stream that tells of an end, and nothing else.
fn only_ended(end: &HostEnd) -> Events {
    let event = pb::application_event::Event::Ended(ended(end.clone()));
    Box::pin(tokio_stream::once(Ok(pb::ApplicationEvent { event: Some(event) })))
}

/// The stream, once its first message is there: a refusal becomes the call's own status.
async fn answered(
    mut stream: mpsc::Receiver<Result<pb::ApplicationEvent, Status>>,
) -> Result<Events, Status> {
    let first = stream.recv().await.ok_or_else(ending)??;
    let first = tokio_stream::once(Ok(first));
    Ok(Box::pin(tokio_stream::StreamExt::chain(first, ReceiverStream::new(stream))))
}

/// A number by chance.
pub(super) fn random_number() -> Result<u64, Status> {
    let [a, b, c, d, e, f, g, h, ..] = random()?;
    Ok(u64::from_ne_bytes([a, b, c, d, e, f, g, h]))
}

fn random() -> Result<[u8; 16], Status> {
    let mut bytes = [0; 16];
    let got = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty());
    match got {
        Ok(16) => Ok(bytes),
        _ => Err(Status::unavailable("the kernel gives no random numbers: try again later")),
    }
}
