//! Whether something of a stream's messages has come lately, be it a part of one.
//!
//! On a slow connection a large message takes longer than the other side may be silent, and its
//! heartbeats wait behind it. What has come of the message is a sign of life, too.

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};

/// Tells of the data of one body.
#[derive(Clone, Debug, Default)]
pub struct Arrivals(Arc<AtomicBool>);

impl Arrivals {
    /// The same request, with its `Arrivals` among the extensions.
    pub fn of_request(mut request: Request<Body>) -> Request<Body> {
        let arrivals = Arrivals::default();
        request.extensions_mut().insert(arrivals.clone());
        request.map(|body| Body::new(Noted { body, arrivals }))
    }

    /// The same answer, of whose data this tells.
    pub fn of_answer(&self, answer: Response<Body>) -> Response<Body> {
        answer.map(|body| Body::new(Noted { body, arrivals: self.clone() }))
    }

    /// Whether any data have come since the last question.
    pub fn any(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

struct Noted {
    body: Body,
    arrivals: Arrivals,
}

impl http_body::Body for Noted {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let Some(Ok(_)) = &frame {
            self.arrivals.0.store(true, Ordering::Relaxed);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
