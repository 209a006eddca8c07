//! The body of a request or of an answer that is passed on between a user of this host and another
//! host.

use super::relay::withdrawn_meanwhile;
use crate::rpc::listen::Flow;
use crate::rpc::tls::Slot;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::HeaderMap;

/// What HTTP/2 is given of an answer before all that it had has been written. (It would take 400
/// KiB, whether the user reads or not.)
const GIVEN_MAX: usize = 64 * 1024;
/// What it is given at a time.
const PIECE: usize = 16 * 1024;

/// A body that ends when nothing may be passed on any more.
pub(super) struct Passed {
    body: Body,
    over: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Where it goes to a user: how that proceeds, and the place of the request.
    to_user: Option<ToUser>,
    /// What is left of the frame that the body gave last.
    rest: Option<Bytes>,
    ended: bool,
}

struct ToUser {
    flow: Arc<Flow>,
    /// How much has been given since this count of the flow.
    given: usize,
    since: u64,
    /// Until what was given has been written.
    written: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    _place: Option<Slot>,
}

impl Passed {
    /// A user's request.
    pub fn to_host(body: Body, over: CancellationToken) -> Passed {
        let over = Box::pin(over.cancelled_owned());
        Passed { body, over, to_user: None, rest: None, ended: false }
    }

    /// The answer to it, which goes to the user as this flow says.
    pub fn to_user(
        body: Body,
        over: CancellationToken,
        flow: Arc<Flow>,
        place: Option<Slot>,
    ) -> Passed {
        let to_user = ToUser { flow, given: 0, since: 0, written: None, _place: place };
        Passed { to_user: Some(to_user), ..Passed::to_host(body, over) }
    }
}

impl ToUser {
    /// Until more may be given.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(written) = &mut self.written {
            ready!(written.as_mut().poll(cx));
            (self.written, self.given) = (None, 0);
        }
        Poll::Ready(())
    }

    fn gives(&mut self, bytes: usize) {
        if self.given == 0 {
            self.since = self.flow.count();
        }
        self.given += bytes;
        if self.given >= GIVEN_MAX {
            let (flow, since) = (Arc::clone(&self.flow), self.since);
            self.written = Some(Box::pin(async move { flow.past(since).await }));
        }
    }
}

impl http_body::Body for Passed {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        if self.over.as_mut().poll(cx).is_ready() {
            self.ended = true;
            let status = withdrawn_meanwhile();
            let mut trailers = HeaderMap::new();
            // A user reads why; the stream to another host is broken off.
            return Poll::Ready(Some(match self.to_user.is_some() {
                true => status.add_header(&mut trailers).map(|()| Frame::trailers(trailers)),
                false => Err(status),
            }));
        }
        if let Some(to_user) = &mut self.to_user {
            ready!(to_user.poll_room(cx));
        }
        if self.rest.is_none() {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.rest = Some(data),
                    Err(frame) => return Poll::Ready(Some(Ok(frame))),
                },
                end => return Poll::Ready(end),
            }
        }
        let Some(mut data) = self.rest.take() else { return Poll::Ready(None) };
        if data.len() > PIECE {
            self.rest = Some(data.split_off(PIECE));
        }
        if let Some(to_user) = &mut self.to_user {
            to_user.gives(data.len());
        }
        Poll::Ready(Some(Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        self.ended || (self.rest.is_none() && self.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        // (How long the rest is does not matter to anybody.)
        SizeHint::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body::Body as _;
    use std::task::Waker;

    /// A body that has always more.
    struct Endless;

    impl http_body::Body for Endless {
        type Data = Bytes;
        type Error = Status;
        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
            Poll::Ready(Some(Ok(Frame::data(vec![0; PIECE + 1].into()))))
        }
    }

    fn poll(body: &mut Passed) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop()))
    }

    /// What is given until it waits.
    fn given(body: &mut Passed) -> usize {
        let mut bytes = 0;
        while let Poll::Ready(frame) = poll(body) {
            let data = frame.expect("endless").expect("no error").into_data().expect("data");
            assert!(data.len() <= PIECE);
            bytes += data.len();
            assert!(bytes <= 2 * GIVEN_MAX, "it has no bound");
        }
        bytes
    }

    #[tokio::test]
    async fn a_user_is_given_more_when_what_he_was_given_is_written() {
        let (over, flow) = (CancellationToken::new(), Arc::<Flow>::default());
        let mut body = Passed::to_user(Body::new(Endless), over.clone(), Arc::clone(&flow), None);
        let whole = GIVEN_MAX..GIVEN_MAX + PIECE;
        assert!(whole.contains(&given(&mut body)));
        assert_eq!(given(&mut body), 0);
        flow.flushed();
        assert!(whole.contains(&given(&mut body)));
        // A connection that is closed lets it go.
        flow.closed();
        assert!(given_at_most(&mut body, 3 * GIVEN_MAX));
        // What goes to a host is bounded by its windows.
        let mut body = Passed::to_host(Body::new(Endless), over.clone());
        assert!(given_at_most(&mut body, 3 * GIVEN_MAX));
        over.cancel();
        let ended = poll(&mut body);
        let Poll::Ready(Some(Err(status))) = ended else { panic!("it goes on") };
        assert!(status.message().contains("does not have the role login any more"), "{status}");
    }

    /// Whether it gives so much at once.
    fn given_at_most(body: &mut Passed, bytes: usize) -> bool {
        (0..bytes / PIECE).all(|_| matches!(poll(body), Poll::Ready(Some(Ok(_)))))
    }

    #[tokio::test]
    async fn a_request_that_waits_ends_with_the_role() {
        struct Never;
        impl http_body::Body for Never {
            type Data = Bytes;
            type Error = Status;
            fn poll_frame(
                self: Pin<&mut Self>,
                _: &mut Context<'_>,
            ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
                Poll::Pending
            }
        }
        let over = CancellationToken::new();
        let mut body = Passed::to_host(Body::new(Never), over.clone());
        let next = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx));
        let (frame, ()) = tokio::join!(next, async { over.cancel() });
        assert!(frame.is_some_and(|frame| frame.is_err()));
        // An answer ends with the reason, and after that with nothing.
        let mut body = Passed::to_user(Body::new(Never), over, Arc::default(), None);
        let Poll::Ready(Some(Ok(frame))) = poll(&mut body) else { panic!("it goes on") };
        assert_eq!(frame.into_trailers().expect("trailers")["grpc-status"], "14");
        assert!(matches!(poll(&mut body), Poll::Ready(None)));
    }
}
