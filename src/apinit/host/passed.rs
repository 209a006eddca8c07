//! The body of a request or of an answer that is passed on between a user of this host and another
//! host.

use super::relay::withdrawn_meanwhile;
use crate::rpc::bodies::{Hook, Hooked};
use crate::rpc::connect::status_text;
use crate::rpc::pieces::{PIECE, Pieces, holding};
use crate::rpc::relayed::{self, Sent};
use crate::rpc::tls::Slot;
use bytes::Bytes;
use http_body::Frame;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::{CancellationToken, PollSemaphore, WaitForCancellationFutureOwned};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::HeaderMap;

/// What HTTP/2 may have of an answer that it has not written, in bytes. (It would take 400 KiB,
/// whether the user reads or not.)
pub(super) const GIVEN_MAX: usize = 64 * 1024;

/// A body that ends when nothing may be passed on any more.
pub(super) type Passed = Hooked<Pieces, Passes>;

/// What ends it.
pub(super) struct Passes {
    over: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Where it goes to a user: how that proceeds, and the place of the request.
    to_user: Option<ToUser>,
    /// Where it goes to a host: why it has ended here.
    why: Arc<OnceLock<Status>>,
}

struct ToUser {
    /// From whom it comes, in words.
    from: Arc<str>,
    /// A permit for each piece that HTTP/2 may still be given.
    room: PollSemaphore,
    /// The permit of the next piece.
    next: Option<OwnedSemaphorePermit>,
    /// The place of the request. Each piece holds it until the piece is written.
    place: Arc<Option<Slot>>,
}

impl Passed {
    /// A user's request. `why`: set before an error that is the request's own, of which the client
    /// on the connection to the other host tells no more than that it was one.
    pub fn to_host(body: Body, over: CancellationToken, why: Arc<OnceLock<Status>>) -> Passed {
        let over = Box::pin(over.cancelled_owned());
        Hooked::new(Pieces::new(body), Passes { over, to_user: None, why })
    }

    /// The answer to a user's request. `from`: who gives the answer, in words. The request keeps its
    /// place until all of the answer has been written to the user's socket.
    pub fn to_user(
        body: Body,
        over: CancellationToken,
        from: Arc<str>,
        place: Option<Slot>,
    ) -> Passed {
        let over = Box::pin(over.cancelled_owned());
        let room = PollSemaphore::new(Arc::new(Semaphore::new(GIVEN_MAX / PIECE)));
        let to_user = Some(ToUser { from, room, next: None, place: Arc::new(place) });
        Hooked::new(Pieces::new(body), Passes { over, to_user, why: Arc::default() })
    }
}

impl ToUser {
    /// Until a piece may be given.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.next.is_none() {
            self.next = ready!(self.room.poll_acquire(cx));
        }
        Poll::Ready(())
    }

    /// This piece is given.
    fn gives(&mut self, data: Bytes) -> Bytes {
        holding(data, (self.next.take(), Arc::clone(&self.place)))
    }

    /// The connection to the other host broke in the middle. (A command asks again, where it does
    /// no harm.)
    fn broke(&self, why: Status) -> Status {
        let text =
            format!("{} can't be reached from this host any more: {}", self.from, status_text(why));
        relayed::unavailable(text, Sent::Maybe)
    }
}

impl Hook for Passes {
    fn poll_passes(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        if self.over.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(withdrawn_meanwhile()));
        }
        match &mut self.to_user {
            Some(to_user) => to_user.poll_room(cx).map(Ok),
            None => Poll::Ready(Ok(())),
        }
    }

    fn passes(&mut self, frame: Frame<Bytes>) -> Frame<Bytes> {
        match &mut self.to_user {
            Some(to_user) => frame.map_data(|data| to_user.gives(data)),
            None => frame,
        }
    }

    fn poll_ends(&mut self, cx: &mut Context<'_>) -> Poll<Status> {
        self.over.as_mut().poll(cx).map(|()| withdrawn_meanwhile())
    }

    fn breaks(&mut self, why: Status) -> Status {
        match &self.to_user {
            Some(to_user) => to_user.broke(why),
            None => self.why.get_or_init(|| why).clone(),
        }
    }

    /// A user reads why; the stream to another host is broken off.
    fn ends(&mut self, why: Status) -> Result<Frame<Bytes>, Status> {
        if self.to_user.is_none() {
            return Err(why);
        }
        let mut trailers = HeaderMap::new();
        why.add_header(&mut trailers).map(|()| Frame::trailers(trailers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::bodies::{self, poll};
    use crate::rpc::raw_requests::requests;
    use crate::rpc::tls::Counted;
    use http_body::Body as _;
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tonic::codegen::http::{Request, Response};
    use tonic::server::NamedService;
    use tower::Service;

    /// A body that has always more.
    fn endless() -> Body {
        bodies::from_fn(|_| Poll::Ready(Some(Ok(vec![0; PIECE + 1].into()))))
    }

    /// An answer for a user.
    fn answer(body: Body, over: &CancellationToken, place: Option<Slot>) -> Passed {
        Passed::to_user(body, over.clone(), "psched on n0".into(), place)
    }

    /// What is given until it waits.
    fn given(body: &mut Passed) -> Vec<Bytes> {
        let mut pieces = Vec::new();
        while let Poll::Ready(frame) = poll(body) {
            let data = frame.expect("endless").expect("no error").into_data().expect("data");
            assert!(data.len() <= PIECE);
            pieces.push(data);
            assert!(pieces.len() <= GIVEN_MAX / PIECE, "it has no bound");
        }
        pieces
    }

    #[tokio::test]
    async fn a_user_is_given_more_when_what_he_was_given_is_written() {
        let over = CancellationToken::new();
        let mut body = answer(endless(), &over, None);
        let mut pieces = given(&mut body);
        assert_eq!(pieces.len(), GIVEN_MAX / PIECE);
        assert_eq!(given(&mut body).len(), 0);
        // Of these some is written.
        pieces.truncate(1);
        pieces.extend(given(&mut body));
        assert_eq!(pieces.len(), GIVEN_MAX / PIECE);
        // A connection that is closed lets all of it go.
        drop(pieces);
        assert_eq!(given(&mut body).len(), GIVEN_MAX / PIECE);
        // What goes to a host is bounded by its windows.
        let mut body = Passed::to_host(endless(), over.clone(), Arc::default());
        let at_once = (0..3 * GIVEN_MAX / PIECE).map(|_| poll(&mut body)).collect::<Vec<_>>();
        assert!(at_once.iter().all(|frame| matches!(frame, Poll::Ready(Some(Ok(_))))));
        over.cancel();
        let ended = poll(&mut body);
        let Poll::Ready(Some(Err(status))) = ended else { panic!("it goes on") };
        assert!(status.message().contains("has not the role login"), "{status}");
    }

    /// Counts when it is dropped.
    struct Counts(Arc<AtomicUsize>);

    impl Drop for Counts {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A body of so many bytes, which counts when it is dropped: all of it has been taken, or it is
    /// not wanted any more.
    fn counted(bytes: usize, ended: &Arc<AtomicUsize>) -> Body {
        let (counts, mut data) = (Counts(Arc::clone(ended)), Some(vec![0; bytes]));
        bodies::from_fn(move |_| {
            let _owned = &counts;
            Poll::Ready(data.take().map(|data| Ok(data.into())))
        })
    }

    #[test]
    fn a_request_has_its_place_until_its_answer_is_written() {
        let (over, requests) = (CancellationToken::new(), Counted::default());
        let ended = Arc::new(AtomicUsize::new(0));
        let place = requests.take(7, 1, 1);
        let mut body = answer(counted(2 * PIECE, &ended), &over, place);
        let pieces: Vec<Bytes> = std::iter::from_fn(|| match poll(&mut body) {
            Poll::Ready(Some(Ok(frame))) => frame.into_data().ok(),
            _ => None,
        })
        .collect();
        assert_eq!(pieces.len(), 2);
        // HTTP/2 has all of it, and has written none.
        drop(body);
        assert_eq!((ended.load(Ordering::Relaxed), requests.of(&7)), (1, 1));
        for piece in pieces {
            assert_eq!(requests.of(&7), 1);
            drop(piece);
        }
        assert_eq!(requests.of(&7), 0);
    }

    /// Answers to all requests, each in its place.
    #[derive(Clone)]
    struct Answers {
        requests: Counted<u32>,
        ended: Arc<AtomicUsize>,
        over: CancellationToken,
        bytes: usize,
    }

    impl NamedService for Answers {
        const NAME: &'static str = "psched.v1.Psched";
    }

    impl Service<Request<Body>> for Answers {
        type Response = Response<Body>;
        type Error = Infallible;
        type Future = std::future::Ready<Result<Response<Body>, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Request<Body>) -> Self::Future {
            let place = self.requests.take(7, usize::MAX, usize::MAX);
            let body = answer(counted(self.bytes, &self.ended), &self.over, place);
            std::future::ready(Ok(Response::new(Body::new(body))))
        }
    }

    /// HTTP/2 takes all of an answer that is no larger than its buffers. The answer to a listing of
    /// a crowd is larger, and is not taken on.
    #[tokio::test]
    async fn unread_answers_count_with_http2_too() {
        const STREAMS: u32 = 32;
        for (bytes, all_are_taken) in [(GIVEN_MAX - PIECE, true), (8 << 20, false)] {
            let answers = Answers {
                requests: Counted::default(),
                ended: Arc::default(),
                over: CancellationToken::new(),
                bytes,
            };
            // (What a socket holds depends on the host: net.core.wmem_default.)
            let (mut caller, connection) = tokio::io::duplex(PIECE);
            let connections = tokio_stream::once(Ok::<_, std::io::Error>(connection));
            let server = tonic::transport::Server::builder().add_service(answers.clone());
            let server = tokio::spawn(server.serve_with_incoming(connections));
            caller.write_all(&requests(STREAMS)).await.expect("written");
            let counts = || (answers.requests.of(&7), answers.ended.load(Ordering::Relaxed) as u32);
            let begun = || match all_are_taken {
                true => counts().1 == STREAMS,
                false => counts().0 == STREAMS as usize,
            };
            until(begun).await;
            // The connection does not hold a whole answer.
            let (places, ended) = counts();
            assert_eq!(places, STREAMS as usize, "{ended} taken, {bytes} bytes");
            match all_are_taken {
                // A caller that reads makes room.
                true => {
                    let reads = tokio::spawn(async move {
                        let mut buffer = vec![0; 1 << 16];
                        while caller.read(&mut buffer).await.is_ok_and(|bytes| bytes > 0) {}
                    });
                    until(|| counts().0 == 0).await;
                    reads.abort();
                }
                // So does a caller that has gone.
                false => {
                    assert_eq!(ended, 0);
                    drop(caller);
                    until(|| counts() == (0, STREAMS)).await;
                }
            }
            server.abort();
        }
    }

    async fn until(is: impl Fn() -> bool) {
        let looks = async {
            while !is() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), looks).await.expect("it comes to that");
    }

    /// A connection that breaks in the middle is told as such, and whether psched has the request.
    #[test]
    fn an_answer_that_breaks_off_says_so() {
        let breaks =
            || bodies::from_fn(|_| Poll::Ready(Some(Err(Status::unknown("h2 protocol error")))));
        let mut body = answer(breaks(), &CancellationToken::new(), None);
        let Poll::Ready(Some(Ok(frame))) = poll(&mut body) else { panic!("it is told nothing") };
        let status = Status::from_header_map(&frame.into_trailers().expect("trailers"));
        let status = status.expect("a status");
        assert_eq!(relayed::sent(&status), Some(Sent::Maybe));
        let why = "psched on n0 can't be reached from this host any more: ";
        assert!(status.message().starts_with(why), "{status}");
        assert!(matches!(poll(&mut body), Poll::Ready(None)));
        let why = Arc::new(OnceLock::new());
        let mut body = Passed::to_host(breaks(), CancellationToken::new(), Arc::clone(&why));
        assert!(matches!(poll(&mut body), Poll::Ready(Some(Err(_)))));
        assert_eq!(why.get().map(Status::message), Some("h2 protocol error"), "for its user");
    }

    #[tokio::test]
    async fn a_request_that_waits_ends_with_the_role() {
        let never = || bodies::from_fn(|_| Poll::Pending);
        let over = CancellationToken::new();
        let mut body = Passed::to_host(never(), over.clone(), Arc::default());
        let next = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx));
        let (frame, ()) = tokio::join!(next, async { over.cancel() });
        assert!(frame.is_some_and(|frame| frame.is_err()));
        // An answer ends with the reason, and after that with nothing.
        let mut body = answer(never(), &over, None);
        let Poll::Ready(Some(Ok(frame))) = poll(&mut body) else { panic!("it goes on") };
        assert_eq!(frame.into_trailers().expect("trailers")["grpc-status"], "14");
        assert!(matches!(poll(&mut body), Poll::Ready(None)));
    }
}
