//! Whether something of a stream's messages has come lately, be it a part of one.
//!
//! On a slow connection a large message takes longer than the other side may be silent, and its
//! heartbeats wait behind it. What has come of the message is a sign of life, too.

use crate::rpc::bodies::{Hook, Hooked};
use bytes::Bytes;
use http_body::Frame;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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
        request.map(|body| Body::new(Hooked::new(body, arrivals)))
    }

    /// The same answer, of whose data this tells.
    pub fn of_answer(&self, answer: Response<Body>) -> Response<Body> {
        answer.map(|body| Body::new(Hooked::new(body, self.clone())))
    }

    /// Whether any data have come since the last question.
    pub fn any(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

impl Hook for Arrivals {
    fn comes(&mut self, _: &Frame<Bytes>) {
        self.0.store(true, Ordering::Relaxed);
    }
}
