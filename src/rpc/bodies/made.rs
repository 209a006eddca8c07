//! Bodies of requests and answers that are made for tests.

use bytes::Bytes;
use http_body::Frame;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use tokio::sync::mpsc;
use tonic::Status;
use tonic::body::Body;

/// What a body gives when it is polled.
pub type Polled<T, E = Status> = Poll<Option<Result<T, E>>>;

struct FromFn<F> {
    gives: F,
    ended: bool,
}

impl<F: FnMut(&mut Context<'_>) -> Polled<Bytes> + Unpin> http_body::Body for FromFn<F> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Polled<Frame<Bytes>> {
        let data = (self.gives)(cx);
        self.ended |= matches!(data, Poll::Ready(None));
        data.map_ok(Frame::data)
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }
}

/// A body that gives what this function returns. What the function owns lives as long as the body.
pub fn from_fn(
    gives: impl FnMut(&mut Context<'_>) -> Polled<Bytes> + Send + Unpin + 'static,
) -> Body {
    Body::new(FromFn { gives, ended: false })
}

/// A body of this one frame.
pub fn whole(data: impl Into<Bytes>) -> Body {
    let mut data = Some(data.into());
    from_fn(move |_| Poll::Ready(data.take().map(Ok)))
}

/// A body of the frames that come through a channel.
pub fn channel(mut frames: mpsc::UnboundedReceiver<Bytes>) -> Body {
    from_fn(move |cx| frames.poll_recv(cx).map(|data| data.map(Ok)))
}

/// What a body gives at once. It is not polled again by itself.
pub fn poll<B: http_body::Body + Unpin>(body: &mut B) -> Polled<Frame<B::Data>, B::Error> {
    Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop()))
}
