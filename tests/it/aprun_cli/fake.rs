//! A psched and an apinit that do what the test says: both services on one unix socket.

use pb::apinit_server::{Apinit, ApinitServer};
use pb::application_event::Event;
use pb::from_apinit::Message as From;
use pb::psched_server::{Psched, PschedServer};
use pb::to_apinit::Message as To;
use psched::rpc::listen::{Bounds, incoming, listen};
use psched::rpc::pb;
use std::future::Future;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Request, Response, Status, Streaming};

/// The application of all these tests.
pub const KEY: pb::ApplicationKey = pb::ApplicationKey { apid: 12, incarnation: 1 };

/// With a bound.
pub async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("within 20 s")
}

/// A posting, or a watch: its request and the way to send events.
pub struct Posted {
    /// `None`: a watch.
    pub request: Option<pb::PostRequest>,
    events: mpsc::UnboundedSender<Result<pb::ApplicationEvent, Status>>,
}

impl Posted {
    pub fn tell(&self, event: Event) {
        let _ = self.events.send(Ok(pb::ApplicationEvent { event: Some(event) }));
    }

    /// Accepted, and at once placed.
    pub fn place(&self) {
        self.tell(Event::Accepted(pb::Accepted { apid: KEY.apid, ..Default::default() }));
        self.tell(Event::Placed(pb::Placed { incarnation: KEY.incarnation }));
    }

    /// Ended with this status and this cause.
    pub fn end(&self, status: u32, cause: Option<pb::Cause>) {
        self.tell(Event::Ended(pb::Ended {
            ago_ms: None,
            by_name: String::new(),
            status,
            end: Some(pb::HostEnd {
                key: Some(KEY),
                first: cause.map(|cause| pb::Decisive { at_mono_ns: 1, cause: Some(cause) }),
                usage: Some(pb::Usage { max_rss_kib: 100, ..Default::default() }),
                launched: true,
                ..Default::default()
            }),
        }));
    }
}

/// A conversation of aprun's with the apinit.
pub struct Attached {
    hears: Streaming<pb::ToApinit>,
    says: mpsc::UnboundedSender<Result<pb::FromApinit, Status>>,
    sent: u64,
}

impl Attached {
    /// What aprun says next.
    pub async fn next(&mut self) -> To {
        let message = soon(self.hears.message()).await.expect("a stream").expect("not ended");
        message.message.expect("not empty")
    }

    pub fn say(&self, message: From) {
        let _ = self.says.send(Ok(pb::FromApinit { message: Some(message), newer_notice: None }));
    }

    /// Ends the conversation so.
    pub fn fail(&self, status: Status) {
        let _ = self.says.send(Err(status));
    }

    pub fn go(&self) {
        self.say(From::Accepted(pb::LaunchAccepted {}));
        self.say(From::Going(pb::Going {}));
    }

    pub fn output(&mut self, rank: u32, stderr: bool, data: &[u8]) {
        let offset = self.sent;
        self.sent += data.len() as u64;
        self.say(From::Output(pb::Output {
            source: 0,
            offset,
            rank,
            nid: 3,
            stderr,
            data: data.to_vec().into(),
            report: None,
        }));
    }

    /// How a PE has ended.
    pub fn report(&mut self, rank: u32, report: pb::PeReport) {
        let offset = self.sent;
        self.sent += 1;
        self.say(From::Output(pb::Output {
            source: 0,
            offset,
            rank,
            nid: 3,
            stderr: false,
            data: b"\n"[..].into(),
            report: Some(report),
        }));
    }

    /// So many bytes of output do not come.
    pub fn skip(&mut self, bytes: u64) {
        self.sent += bytes;
    }

    /// Waits until all output is reported as written.
    pub async fn taken(&mut self) {
        let end = self.sent;
        loop {
            if let To::OutputTaken(taken) = self.next().await
                && taken.offset == end
            {
                return;
            }
        }
    }

    pub fn done(&self) {
        self.say(From::Done(pb::Done {}));
    }
}

struct Services {
    socket: String,
    posts: mpsc::UnboundedSender<Posted>,
    attaches: mpsc::UnboundedSender<Attached>,
    kills: Arc<Mutex<Vec<i32>>>,
    refuse: Option<Status>,
}

type Events = UnboundedReceiverStream<Result<pb::ApplicationEvent, Status>>;

impl Services {
    fn stream(&self, request: Option<pb::PostRequest>) -> Result<Response<Events>, Status> {
        if let Some(status) = &self.refuse {
            return Err(status.clone());
        }
        let (events, stream) = mpsc::unbounded_channel();
        let _ = self.posts.send(Posted { request, events });
        Ok(Response::new(UnboundedReceiverStream::new(stream)))
    }

    fn placement(&self) -> pb::LookReply {
        let places = vec![pb::Place { nid: 3, processors: vec![0, 1], pes: 2 }];
        let host = pb::HostPart {
            nids: vec![3],
            socket: self.socket.clone(),
            host_id: "h".into(),
            ..Default::default()
        };
        let placement = pb::Placement {
            front_host: String::new(),
            key: Some(KEY),
            places,
            place_runs: Vec::new(),
            hosts: vec![host],
            ticket: vec![7; 16].into(),
            ticket_left_ms: 60_000,
        };
        pb::LookReply { answer: Some(pb::look_reply::Answer::Placement(placement)) }
    }
}

#[tonic::async_trait]
impl Psched for Services {
    type PostStream = Events;
    type WatchStream = Events;
    type RecordStream = UnboundedReceiverStream<Result<pb::RecordPiece, Status>>;

    async fn post(&self, request: Request<pb::PostRequest>) -> Result<Response<Events>, Status> {
        self.stream(Some(request.into_inner()))
    }

    async fn watch(&self, _: Request<pb::WatchRequest>) -> Result<Response<Events>, Status> {
        self.stream(None)
    }

    async fn look(&self, _: Request<pb::LookRequest>) -> Result<Response<pb::LookReply>, Status> {
        Ok(Response::new(self.placement()))
    }

    async fn dry_run(
        &self,
        _: Request<pb::PostRequest>,
    ) -> Result<Response<pb::LookReply>, Status> {
        Ok(Response::new(self.placement()))
    }

    async fn kill(
        &self,
        request: Request<pb::KillRequest>,
    ) -> Result<Response<pb::KillReply>, Status> {
        self.kills.lock().expect("no panic").push(request.into_inner().signal);
        Ok(Response::new(pb::KillReply { problems: vec![String::new()], ..Default::default() }))
    }

    async fn stacks(
        &self,
        _: Request<pb::StacksRequest>,
    ) -> Result<Response<pb::StacksReply>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn processes(
        &self,
        _: Request<pb::ProcessesRequest>,
    ) -> Result<Response<pb::ProcessesReply>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn adopt(
        &self,
        _: Request<pb::NodesRequest>,
    ) -> Result<Response<pb::ManageReply>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn purge(
        &self,
        _: Request<pb::NodesRequest>,
    ) -> Result<Response<pb::ManageReply>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn show(&self, _: Request<pb::ShowRequest>) -> Result<Response<pb::ShowReply>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn set(&self, _: Request<pb::SetRequest>) -> Result<Response<pb::ManageReply>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn set_nodes(
        &self,
        _: Request<pb::SetNodesRequest>,
    ) -> Result<Response<pb::ManageReply>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn set_flavors(
        &self,
        _: Request<pb::SetFlavorsRequest>,
    ) -> Result<Response<pb::ManageReply>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn migrate(
        &self,
        _: Request<pb::MigrateRequest>,
    ) -> Result<Response<pb::ManageReply>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn compact(
        &self,
        _: Request<pb::CompactRequest>,
    ) -> Result<Response<pb::ManageReply>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn checkpoint(
        &self,
        _: Request<pb::CheckpointRequest>,
    ) -> Result<Response<pb::CheckpointReply>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn deposit(
        &self,
        _: Request<pb::DepositRequest>,
    ) -> Result<Response<pb::DepositReply>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn hold(&self, _: Request<pb::HoldRequest>) -> Result<Response<pb::ManageReply>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn compare(
        &self,
        _: Request<tonic::Streaming<pb::CompareRequest>>,
    ) -> Result<Response<pb::CompareReply>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn reload(
        &self,
        _: Request<pb::ReloadRequest>,
    ) -> Result<Response<pb::ManageReply>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn log(&self, _: Request<pb::LogRequest>) -> Result<Response<pb::LogReply>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn counters(
        &self,
        _: Request<pb::CountersRequest>,
    ) -> Result<Response<pb::CountersReply>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn record(
        &self,
        _: Request<pb::RecordRequest>,
    ) -> Result<Response<Self::RecordStream>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn list(&self, _: Request<pb::ListRequest>) -> Result<Response<pb::ListReply>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn turns(
        &self,
        _: Request<pb::TurnsRequest>,
    ) -> Result<Response<pb::TurnsReply>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn shares(
        &self,
        _: Request<pb::SharesRequest>,
    ) -> Result<Response<pb::SharesReply>, Status> {
        Err(Status::unimplemented("not here"))
    }

    async fn events(
        &self,
        _: Request<pb::EventsRequest>,
    ) -> Result<Response<pb::EventsReply>, Status> {
        Err(Status::unimplemented(""))
    }
}

#[tonic::async_trait]
impl Apinit for Services {
    type AttachStream = UnboundedReceiverStream<Result<pb::FromApinit, Status>>;

    async fn attach(
        &self,
        request: Request<Streaming<pb::ToApinit>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        let (says, stream) = mpsc::unbounded_channel();
        let _ = self.attaches.send(Attached { hears: request.into_inner(), says, sent: 0 });
        Ok(Response::new(UnboundedReceiverStream::new(stream)))
    }

    type ImagesStream = UnboundedReceiverStream<Result<pb::FromDoor, Status>>;

    async fn images(
        &self,
        _: Request<Streaming<pb::ToDoor>>,
    ) -> Result<Response<Self::ImagesStream>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn hand(
        &self,
        _: Request<Streaming<pb::HandPiece>>,
    ) -> Result<Response<pb::Handed>, Status> {
        Err(Status::not_found("no host wants that program"))
    }
}

/// Both daemons, and the folder in which they listen.
pub struct Fake {
    pub folder: tempfile::TempDir,
    pub socket: PathBuf,
    posts: mpsc::UnboundedReceiver<Posted>,
    attaches: mpsc::UnboundedReceiver<Attached>,
    pub kills: Arc<Mutex<Vec<i32>>>,
    server: JoinHandle<()>,
}

impl Fake {
    pub fn start() -> Fake {
        Fake::in_folder(tempfile::tempdir().expect("a folder"), None)
    }

    pub fn refusing(status: Status) -> Fake {
        Fake::in_folder(tempfile::tempdir().expect("a folder"), Some(status))
    }

    fn in_folder(folder: tempfile::TempDir, refuse: Option<Status>) -> Fake {
        let socket = folder.path().join("psched.sock");
        let (post, posts) = mpsc::unbounded_channel();
        let (attach, attaches) = mpsc::unbounded_channel();
        let kills = Arc::new(Mutex::new(Vec::new()));
        let services = Arc::new(Services {
            socket: socket.display().to_string(),
            posts: post,
            attaches: attach,
            kills: kills.clone(),
            refuse,
        });
        let connections = incoming(listen(&socket, 0o600).expect("a free path"), Bounds::default());
        let router = tonic::transport::Server::builder()
            .add_service(PschedServer::from_arc(services.clone()))
            .add_service(ApinitServer::from_arc(services));
        let server = tokio::spawn(async move {
            // It ends with the test.
            let _ = router.serve_with_incoming(connections).await;
        });
        Fake { folder, socket, posts, attaches, kills, server }
    }

    /// Both die and come back, knowing nothing.
    pub async fn restart(self) -> Fake {
        self.server.abort();
        let _ = self.server.await;
        drop((self.posts, self.attaches));
        let _ = std::fs::remove_file(&self.socket);
        Fake::in_folder(self.folder, None)
    }

    pub async fn posted(&mut self) -> Posted {
        soon(self.posts.recv()).await.expect("the server runs")
    }

    pub async fn attached(&mut self) -> Attached {
        soon(self.attaches.recv()).await.expect("the server runs")
    }

    /// Places what is posted next and lets it go. The launch comes with it.
    pub async fn going(&mut self) -> (Posted, Attached, pb::Launch) {
        let posted = self.posted().await;
        posted.place();
        let mut attached = self.attached().await;
        let To::Launch(request) = attached.next().await else { panic!("a launch comes first") };
        attached.go();
        (posted, attached, request.launch.expect("with what is to be launched"))
    }
}
