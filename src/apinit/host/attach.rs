//! Front ends: the Apinit service.

use super::doorway::Doorway;
use super::events::{Events, TaskEvent};
use super::programs;
use super::runtime::Process;
use super::stream_sender::{FRONT_WORDS_MAX, FrontSender, StreamSender};
use crate::apinit::decide::{Conn, Watch};
use crate::apteam::protocol::programs::ProgramOf;
use crate::rpc::convert::Malformed;
use crate::rpc::listen::Peer;
use crate::rpc::pb;
use crate::rpc::pb::apinit_server::{Apinit, ApinitServer};
use crate::rpc::pb::hand_piece::Piece;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::Interest;
use tokio::sync::oneshot;
use tokio::time::sleep;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::{Request, Response, Status, Streaming};

/// By whom the process of a front end is watched.
pub(super) fn watch_of(peer: &Peer) -> Watch {
    match (&peer.relayed, &peer.pidfd) {
        (Some(_), _) => Watch::Elsewhere,
        (None, Some(_)) => Watch::Here,
        (None, None) => Watch::No,
    }
}

/// The largest message from a front end: a launch with all that one execve may be given.
const MESSAGE_MAX: usize = 8 * 1024 * 1024;

/// How long to wait before a process that can't be opened is tried again: no descriptors are left, say.
pub(super) const OPEN_AGAIN: Duration = Duration::from_secs(1);

/// How long who brings a program may take to say which.
const FIRST: Duration = Duration::from_secs(10);

/// Numbers for streams.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// A number that no stream has had.
pub(super) fn next_conn() -> Conn {
    Conn(NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The service, which tells these events. `doorway`: the way to its door from other hosts, if it has a door.
pub(super) fn service(
    events: Events,
    doorway: Option<Arc<Doorway>>,
) -> ApinitServer<AttachService> {
    let service = AttachService { events, doorway };
    ApinitServer::new(service).max_decoding_message_size(MESSAGE_MAX)
}

pub(super) struct AttachService {
    events: Events,
    doorway: Option<Arc<Doorway>>,
}

#[tonic::async_trait]
impl Apinit for AttachService {
    type AttachStream = Pin<Box<dyn Stream<Item = Result<pb::FromApinit, Status>> + Send>>;

    async fn attach(
        &self,
        request: Request<Streaming<pb::ToApinit>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        let peer = request.extensions().get::<Peer>().cloned();
        let peer = peer
            .ok_or_else(|| Status::internal("the kernel does not report the caller's user id"))?;
        let conn = next_conn();
        let (sender, told) = StreamSender::new(peer.hang_up.clone(), FRONT_WORDS_MAX);
        let events = self.events.clone();
        let over = CancellationToken::new();
        let listening = over.clone().drop_guard();
        let opened = TaskEvent::FrontOpened { conn, peer, sender, listening };
        let gone = |_| Status::unavailable("apinit is ending");
        events.send(opened).await.map_err(gone)?;
        let read = move |message: pb::ToApinit| {
            message.message.is_some().then(|| Ok(TaskEvent::FrontSaid(conn, message.try_into()?)))
        };
        let listens = listen_to(conn, request.into_inner(), events, read);
        tokio::spawn(over.run_until_cancelled_owned(listens));
        Ok(Response::new(Box::pin(told)))
    }

    type ImagesStream = Pin<Box<dyn Stream<Item = Result<pb::FromDoor, Status>> + Send>>;

    async fn images(
        &self,
        request: Request<Streaming<pb::ToDoor>>,
    ) -> Result<Response<Self::ImagesStream>, Status> {
        let doorway = self.doorway.as_ref();
        let doorway = doorway
            .ok_or_else(|| Status::failed_precondition("this apinit makes no checkpoints"))?;
        let told = doorway.ask(request).await?;
        Ok(Response::new(Box::pin(ReceiverStream::new(told))))
    }

    async fn hand(
        &self,
        request: Request<Streaming<pb::HandPiece>>,
    ) -> Result<Response<pb::Handed>, Status> {
        let peer = request.extensions().get::<Peer>();
        let uid = peer.map(|peer| peer.uid);
        let uid =
            uid.ok_or_else(|| Status::internal("the kernel does not report the caller's user id"))?;
        let mut stream = request.into_inner();
        let first = tokio::time::timeout(FIRST, stream.message()).await;
        let first = first.map_err(|_| Status::deadline_exceeded("it says nothing"))??;
        let Some(Piece::Of(of)) = first.and_then(|piece| piece.piece) else {
            return Err(Status::invalid_argument(
                "the first message does not say which program it is",
            ));
        };
        let of = ProgramOf::try_from(of).map_err(|e| Status::invalid_argument(e.to_string()))?;
        let (answers, answer) = oneshot::channel();
        let brought = TaskEvent::ProgramBrought(of, uid, answers);
        let gone = || Status::unavailable("apinit is ending");
        self.events.send(brought).await.map_err(|_| gone())?;
        let copy = answer.await.map_err(|_| gone())?;
        let copy = copy.ok_or_else(|| Status::not_found("no host wants that program"))?;
        programs::taken_from_front(copy, stream, self.events.clone()).await?;
        Ok(Response::new(pb::Handed {}))
    }
}

/// Passes on what is said on a stream; `read` makes an event of a message, none of an empty one.
pub(super) async fn listen_to<M>(
    conn: Conn,
    mut stream: Streaming<M>,
    events: Events,
    read: impl Fn(M) -> Option<Result<TaskEvent, Malformed>>,
) {
    while let Ok(Some(message)) = stream.message().await {
        let event = match read(message) {
            None => continue,
            Some(Ok(event)) => event,
            Some(Err(error)) => {
                let _ = events.send(TaskEvent::StreamMalformed(conn, error.to_string())).await;
                break;
            }
        };
        if events.send(event).await.is_err() {
            return;
        }
    }
    let _ = events.send(TaskEvent::StreamClosed(conn)).await;
}

/// An attached stream, as the shell has it.
#[derive(Debug)]
pub(super) struct Front {
    /// Towards it; `None` for a process that is watched without a stream.
    pub sender: Option<FrontSender>,
    /// Its pid and start time.
    pub process: Option<Process>,
    watch: Option<tokio::task::JoinHandle<()>>,
    /// While it is there, what the front end says is listened to: half a message waits with who
    /// listens, and must not outlive the stream's place among the streams. `None`: see `sender`.
    _listening: Option<DropGuard>,
}

impl Front {
    pub fn new(
        conn: Conn,
        sender: Option<FrontSender>,
        process: Option<Process>,
        pidfd: Option<Arc<OwnedFd>>,
        listening: Option<DropGuard>,
        events: &Events,
    ) -> Front {
        let events = events.clone();
        let watch = pidfd.map(|pidfd| {
            tokio::spawn(async move {
                if wait_for_end(pidfd).await {
                    let _ = events.send(TaskEvent::FrontDied(conn)).await;
                }
            })
        });
        Front { sender, process, watch, _listening: listening }
    }

    /// Of a process that a former life has watched, and that can't be opened yet: that is tried again.
    pub fn unopened(conn: Conn, process: Process, events: &Events) -> Front {
        let events = events.clone();
        let watch = tokio::spawn(async move {
            let pidfd = loop {
                sleep(OPEN_AGAIN).await;
                if let Ok(opened) = process.open() {
                    break opened;
                }
            };
            // (None: it has ended meanwhile.)
            let ended = match pidfd {
                Some(pidfd) => wait_for_end(Arc::new(pidfd)).await,
                None => true,
            };
            if ended {
                let _ = events.send(TaskEvent::FrontDied(conn)).await;
            }
        });
        Front { sender: None, process: Some(process), watch: Some(watch), _listening: None }
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        if let Some(watch) = &self.watch {
            watch.abort();
        }
    }
}

/// Waits until the process behind a pidfd is dead; false: that can't be known.
pub(super) async fn wait_for_end(pidfd: Arc<OwnedFd>) -> bool {
    match crate::os::watch::watch(pidfd, Interest::READABLE) {
        Ok(watched) => watched.readable().await.is_ok(),
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::bodies;
    use crate::rpc::listen::tests::peer_of;
    use tokio::sync::mpsc;
    use tonic::codec::Codec;

    /// Half a message would stay in memory for as long as its connection is open, and nobody would
    /// count it.
    #[tokio::test]
    async fn a_stream_that_has_lost_its_place_is_listened_to_no_more() {
        let (events, mut told) = mpsc::channel(4);
        let (says, said) = mpsc::unbounded_channel();
        let decoder = tonic_prost::ProstCodec::<pb::FromApinit, pb::ToApinit>::default().decoder();
        let stream =
            Streaming::new_request(decoder, bodies::channel(said), None, Some(MESSAGE_MAX));
        let mut request = Request::new(stream);
        request.extensions_mut().insert(peer_of(1000));
        let service = AttachService { events: events.clone(), doorway: None };
        let _answer = service.attach(request).await.expect("attached");
        let Some(TaskEvent::FrontOpened { conn, sender, listening, .. }) = told.recv().await else {
            panic!("no stream was told")
        };
        let front = Front::new(conn, Some(sender), None, None, Some(listening), &events);
        let half = [&[0, 0, 0x10, 0, 0][..], &[7; 1000]].concat();
        says.send(half.into()).expect("listened to");
        tokio::task::yield_now().await;
        assert!(!says.is_closed());
        drop(front);
        tokio::time::timeout(Duration::from_secs(10), says.closed()).await.expect("let go");
    }
}
