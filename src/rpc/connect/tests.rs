use super::*;
use crate::rpc::listen::{Bounds, Peer, incoming, listen};
use crate::rpc::pb;
use pb::psched_client::PschedClient;
use pb::psched_server::{Psched, PschedServer};
use std::future::Future;
use tokio::task::JoinHandle;
use tokio_stream::Once;
use tonic::{Request, Response};

/// Tells callers who they are; refuses the rest.
struct Mirror;

#[tonic::async_trait]
impl Psched for Mirror {
    type PostStream = Once<Result<pb::ApplicationEvent, Status>>;
    type WatchStream = Once<Result<pb::ApplicationEvent, Status>>;
    type RecordStream = Once<Result<pb::RecordPiece, Status>>;

    async fn post(
        &self,
        request: Request<pb::PostRequest>,
    ) -> Result<Response<Self::PostStream>, Status> {
        let posting = crate::apteam::posting::Posting::try_from(request.into_inner())?;
        let event = pb::application_event::Event::Accepted(pb::Accepted {
            apid: posting.shape.width.into(),
            ..pb::Accepted::default()
        });
        Ok(Response::new(tokio_stream::once(Ok(pb::ApplicationEvent { event: Some(event) }))))
    }

    async fn watch(
        &self,
        _: Request<pb::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        Err(Status::not_found("there is no application 7"))
    }

    async fn look(&self, _: Request<pb::LookRequest>) -> Result<Response<pb::LookReply>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn dry_run(
        &self,
        _: Request<pb::PostRequest>,
    ) -> Result<Response<pb::LookReply>, Status> {
        Err(Status::permission_denied(""))
    }

    async fn kill(&self, _: Request<pb::KillRequest>) -> Result<Response<pb::KillReply>, Status> {
        std::future::pending().await
    }

    async fn stacks(
        &self,
        _: Request<pb::StacksRequest>,
    ) -> Result<Response<pb::StacksReply>, Status> {
        Err(Status::unimplemented("not here"))
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

    async fn list(
        &self,
        request: Request<pb::ListRequest>,
    ) -> Result<Response<pb::ListReply>, Status> {
        let peer: &Peer = request.extensions().get().expect("every request has its peer");
        let notices = vec![format!("{} {} {}", peer.uid, peer.pid, peer.doubt.is_none())];
        Ok(Response::new(pb::ListReply { notices, ..Default::default() }))
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
        Err(Status::unimplemented(""))
    }

    async fn events(
        &self,
        _: Request<pb::EventsRequest>,
    ) -> Result<Response<pb::EventsReply>, Status> {
        Ok(Response::new(pb::EventsReply::default()))
    }
}

fn serve(path: &Path, bounds: Bounds) -> JoinHandle<Result<(), tonic::transport::Error>> {
    let connections = incoming(listen(path, 0o600).expect("a free path"), bounds);
    let admitted = tonic::service::InterceptorLayer::new(crate::rpc::listen::admitted);
    let mut server = tonic::transport::Server::builder().layer(admitted);
    let router = server.add_service(PschedServer::new(Mirror));
    tokio::spawn(router.serve_with_incoming(connections))
}

async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(10), future).await.expect("within 10 s")
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

#[tokio::test]
async fn a_call_arrives_with_its_caller() {
    let folder = folder();
    let path = folder.path().join("s");
    let _server = serve(&path, Bounds::default());
    let mut psched = PschedClient::new(soon(connect(&path)).await.expect("it answers"));
    let reply = soon(psched.list(pb::ListRequest::default())).await.expect("an answer");
    let me = format!("{} {} true", nix::unistd::geteuid(), std::process::id());
    assert_eq!(reply.into_inner().notices, [me]);
}

#[tokio::test]
async fn refusals_are_sentences() {
    let folder = folder();
    let path = folder.path().join("s");
    let _server = serve(&path, Bounds::default());
    let mut psched = PschedClient::new(soon(connect(&path)).await.expect("it answers"));
    let status = soon(psched.watch(pb::WatchRequest::default())).await.expect_err("refused");
    assert_eq!(status_text(status), "there is no application 7");
    let status = soon(psched.post(pb::PostRequest::default())).await.expect_err("refused");
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(
        status_text(status),
        "a malformed request: PostRequest.request_id: 0 bytes, it has to be 16"
    );
    let status = soon(psched.look(pb::LookRequest::default())).await.expect_err("refused");
    assert_eq!(
        status_text(status),
        "the other side does not know this request: it is of an older release; upgrade it"
    );
    let status = soon(psched.dry_run(pb::PostRequest::default())).await.expect_err("refused");
    let said = status_text(status);
    assert!(said.starts_with("refused without a reason (The caller does not have"), "{said}");
    let mut request = Request::new(pb::KillRequest::default());
    request.set_timeout(Duration::from_millis(20));
    let status = soon(psched.kill(request)).await.expect_err("no answer");
    assert_eq!(status_text(status), "the other side did not answer in time");
}

#[tokio::test]
async fn nobody_there_is_said_with_the_cure() {
    let folder = folder();
    let path = folder.path().join("s");
    let said = format!(
        "no psched answers on {}: check PSCHED_SOCKET, or start a private psched with `psched start`",
        path.display()
    );
    let error = soon(connect(&path)).await.expect_err("nothing there");
    assert_eq!((error.to_string(), error.may_pass()), (said.clone(), true));
    drop(listen(&path, 0o600).expect("a free path"));
    let error = soon(connect(&path)).await.expect_err("stale");
    assert_eq!(error.to_string(), said);

    let error = soon(connect(&folder.path().join("relay.sock"))).await.expect_err("nothing there");
    let said = error.to_string();
    assert!(said.starts_with("no apinit answers on "), "{said}");
    assert!(said.ends_with("(systemctl status apinit)"), "{said}");

    let error = soon(connect(&folder.path().join("x".repeat(200)))).await.expect_err("too long");
    assert!(matches!(&error, ConnectError::TooLong(_)) && !error.may_pass(), "{error}");
}

#[tokio::test]
async fn a_closed_socket_is_said_with_the_cure() {
    if nix::unistd::geteuid().is_root() {
        // Nothing is closed to root: a thread of another user tries, below.
        return other_user_is_refused().await;
    }
    let folder = folder();
    let path = folder.path().join("s");
    let _listener = listen(&path, 0).expect("a free path");
    let error = soon(connect(&path)).await.expect_err("closed");
    assert!(matches!(&error, ConnectError::NotAllowed(_)) && !error.may_pass(), "{error}");
}

/// With the file-system user id of somebody else, which Linux keeps for each thread.
async fn other_user_is_refused() {
    let folder = folder();
    let path = folder.path().join("s");
    let _listener = listen(&path, 0o600).expect("a free path");
    let tried = path.clone();
    let outcome = std::thread::spawn(move || {
        nix::unistd::setfsuid(nix::unistd::Uid::from_raw(45_678));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async { soon(connect(&tried)).await.map(drop) })
    });
    let error = outcome.join().expect("no panic").expect_err("closed");
    assert!(matches!(&error, ConnectError::NotAllowed(_)) && !error.may_pass(), "{error}");
    let said = error.to_string();
    assert!(said.starts_with(&format!("no permission to connect to {}", path.display())), "{said}");
}

#[tokio::test]
async fn a_listener_that_never_accepts_is_busy() {
    let folder = folder();
    let path = folder.path().join("s");
    let listener = std::os::unix::net::UnixListener::bind(&path).expect("bound");
    rustix::net::listen(&listener, 0).expect("a backlog of one");
    let _first = UnixStream::connect(&path).await.expect("fits the backlog");
    let error = soon(connect(&path)).await.expect_err("full");
    assert!(matches!(&error, ConnectError::Busy(_)) && error.may_pass(), "{error}");
}

/// A channel outlives the server: calls fail in words while it is gone, then succeed again.
#[tokio::test]
async fn a_channel_finds_a_restarted_server() {
    let folder = folder();
    let path = folder.path().join("s");
    // A runtime of its own takes all its connections with it.
    let server = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let server = server.expect("a runtime");
    {
        let _entered = server.enter();
        drop(serve(&path, Bounds::default()));
    }
    let mut psched = PschedClient::new(soon(connect(&path)).await.expect("it answers"));
    let mut killing = psched.clone();
    let waiting = tokio::spawn(async move { killing.kill(pb::KillRequest::default()).await });
    soon(psched.events(pb::EventsRequest::default())).await.expect("an answer");
    server.shutdown_background();
    let status = soon(waiting).await.expect("no panic").expect_err("cut off");
    let said = status_text(status);
    assert!(said.starts_with("the connection broke: "), "{said}");
    let mut said = Vec::new();
    soon(async {
        while !said.iter().any(|text: &String| text.starts_with("no psched answers on ")) {
            // Until the runtime is quite gone a call may find its listener, or its connection.
            if let Err(status) = psched.events(pb::EventsRequest::default()).await {
                said.push(status_text(status));
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(!said.iter().any(|text| text.contains("transport error")), "{said:?}");
    let _server = serve(&path, Bounds::default());
    soon(async { while psched.events(pb::EventsRequest::default()).await.is_err() {} }).await;
}

#[tokio::test]
async fn one_connection_too_many_is_told_why() {
    let folder = folder();
    let path = folder.path().join("s");
    let bounds = Bounds { connections: 0, ..Bounds::default() };
    let _server = serve(&path, bounds);
    let mut psched = PschedClient::new(soon(connect(&path)).await.expect("it is taken"));
    let status = soon(psched.events(pb::EventsRequest::default())).await.expect_err("refused");
    // It may be otherwise in a moment.
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(
        status_text(status),
        "the maximum number of connections is reached: try again later, or have an \
         administrator raise connections_max (0) with psmgr set"
    );
}

#[test]
fn the_socket_is_the_one_of_the_variable() {
    assert_eq!(path_of(Some("/tmp/x".into())), Path::new("/tmp/x"));
    assert_eq!(path_of(Some("".into())), Path::new("/run/psched/psched.sock"));
    assert_eq!(path_of(None), Path::new("/run/psched/psched.sock"));
}

#[test]
fn a_chain_says_each_thing_once() {
    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Link {
        text: &'static str,
        source: Option<Box<Link>>,
    }
    let link = |text, source: Option<Link>| Link { text, source: source.map(Box::new) };
    let error = link("outer: middle", Some(link("middle", Some(link("inner", None)))));
    assert_eq!(chain(&error), "outer: middle: inner");
}

#[test]
fn what_libraries_say_of_a_broken_connection_is_said_plainly() {
    let from = |error: &str| {
        let mut status = Status::unknown(error);
        status.set_source(std::sync::Arc::new(io::Error::other(error.to_owned())));
        status_text(status)
    };
    let closed = format!("the connection broke: {CLOSED}");
    for text in [
        "peer closed connection without sending TLS close_notify: \
         https://docs.rs/rustls/latest/rustls/manual/_03_howto/index.html#unexpected-eof",
        "error reading a body from connection: stream closed because of a broken pipe",
        "h2 protocol error: connection closed because of a broken pipe",
    ] {
        assert_eq!(from(text), closed, "{text}");
    }
    let other = "error reading a body from connection: too many resets";
    assert_eq!(from(other), "the connection broke: too many resets");
    // Without its source.
    let status = Status::internal("h2 protocol error: error reading a body from connection");
    let cut_off = "the connection broke: it was cut off";
    assert_eq!(status_text(status), cut_off);
}

/// A listener that has no place even for saying so.
#[tokio::test]
async fn a_connection_that_is_closed_at_once_is_told_so() {
    let folder = folder();
    let path = folder.path().join("s");
    let listener = listen(&path, 0o600).expect("a free path");
    let closing = tokio::spawn(async move { while listener.accept().await.is_ok() {} });
    for _ in 0..20 {
        let said = match soon(connect(&path)).await {
            Err(error) => error.to_string(),
            Ok(channel) => {
                let mut psched = PschedClient::new(channel);
                let call = psched.events(pb::EventsRequest::default());
                status_text(soon(call).await.expect_err("closed"))
            }
        };
        assert!(said.contains("has reached connections_max"), "{said}");
    }
    closing.abort();
}
