//! Front ends: the Apinit service.

use super::shell::{Event, Events};
use crate::agent::Conn;
use crate::apteam::talk::attach::{FromApinit, ToApinit};
use crate::rpc::listen::Peer;
use crate::rpc::pb;
use crate::rpc::pb::apinit_server::{Apinit, ApinitServer};
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tokio::io::Interest;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};

/// The largest message from a front end: a launch with all that one execve may be given.
const MESSAGE_MAX: usize = 8 * 1024 * 1024;

/// Messages other than output that may wait for a front end that does not read. It has seldom more
/// than a few; but each that it sends may have an answer.
const WORDS_MAX: usize = 1_024;

/// Numbers for streams.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// A number that no stream has had.
pub(super) fn next_conn() -> Conn {
    Conn(NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The service, which tells these events.
pub(super) fn service(events: Events) -> ApinitServer<AttachService> {
    ApinitServer::new(AttachService { events }).max_decoding_message_size(MESSAGE_MAX)
}

pub(super) struct AttachService {
    events: Events,
}

#[tonic::async_trait]
impl Apinit for AttachService {
    type AttachStream = Pin<Box<dyn Stream<Item = Result<pb::FromApinit, Status>> + Send>>;

    async fn attach(
        &self,
        request: Request<Streaming<pb::ToApinit>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        let peer = request.extensions().get::<Peer>().cloned();
        let peer = peer.ok_or_else(|| Status::internal("it is not known who calls"))?;
        let conn = next_conn();
        let (sender, told) = FrontSender::new();
        let events = self.events.clone();
        let opened = Event::FrontOpened { conn, peer, sender };
        let gone = |_| Status::unavailable("apinit is ending");
        events.send(opened).await.map_err(gone)?;
        tokio::spawn(listen_to(conn, request.into_inner(), events));
        Ok(Response::new(Box::pin(told)))
    }
}

type Told = Result<pb::FromApinit, Status>;

/// Towards a front end. Its output is bounded by the window, of each host if there are many, not by
/// the queue; what else there is to tell it, by [`WORDS_MAX`].
#[derive(Clone, Debug)]
pub(super) struct FrontSender {
    queue: mpsc::UnboundedSender<(bool, Told)>,
    /// Messages in the queue that are not output.
    words: Arc<AtomicUsize>,
}

impl FrontSender {
    fn new() -> (FrontSender, impl Stream<Item = Told> + Send) {
        let (queue, receiver) = mpsc::unbounded_channel();
        let words = Arc::new(AtomicUsize::new(0));
        let waiting = Arc::clone(&words);
        let told = UnboundedReceiverStream::new(receiver).map(move |(word, told)| {
            waiting.fetch_sub(usize::from(word), Ordering::AcqRel);
            told
        });
        (FrontSender { queue, words }, told)
    }

    /// False: too much waits for it already.
    pub fn send(&self, message: FromApinit) -> bool {
        let word = !matches!(message, FromApinit::Output(_));
        if self.words.fetch_add(usize::from(word), Ordering::AcqRel) >= WORDS_MAX && word {
            return false;
        }
        // An Err: it is gone, which is told as an event.
        let _ = self.queue.send((word, Ok(message.into())));
        true
    }

    /// The last that it hears.
    pub fn refuse(&self, status: Status) {
        let _ = self.queue.send((false, Err(status)));
    }
}

/// Passes on what a front end says.
async fn listen_to(conn: Conn, mut stream: Streaming<pb::ToApinit>, events: Events) {
    loop {
        let said = match stream.message().await {
            Ok(Some(message)) if message.message.is_none() => continue,
            Ok(Some(message)) => ToApinit::try_from(message).map_err(|e| e.to_string()),
            Ok(None) | Err(_) => break,
        };
        let event = match said {
            Ok(message) => Event::FrontSaid(conn, message),
            Err(text) => {
                let _ = events.send(Event::FrontMalformed(conn, text)).await;
                break;
            }
        };
        if events.send(event).await.is_err() {
            return;
        }
    }
    let _ = events.send(Event::FrontClosed(conn)).await;
}

/// An attached stream, as the shell has it.
#[derive(Debug)]
pub(super) struct Front {
    /// Towards it; `None` for a process that is watched without a stream.
    pub sender: Option<FrontSender>,
    /// Its pid and start time.
    pub process: Option<super::runtime::Process>,
    watch: Option<tokio::task::JoinHandle<()>>,
}

impl Front {
    pub fn new(
        conn: Conn,
        sender: Option<FrontSender>,
        process: Option<super::runtime::Process>,
        pidfd: Option<Arc<OwnedFd>>,
        events: &Events,
    ) -> Front {
        let events = events.clone();
        let watch = pidfd.map(|pidfd| {
            tokio::spawn(async move {
                if wait_for_end(pidfd).await {
                    let _ = events.send(Event::FrontDied(conn)).await;
                }
            })
        });
        Front { sender, process, watch }
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
