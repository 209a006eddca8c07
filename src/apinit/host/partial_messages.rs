//! How much one user's front ends may have half said.
//!
//! A message is kept until all of it has come, and a launch may be large: on all the streams that a
//! user may have, halves of launches would fill the host's memory. So only a few of a user's messages
//! may be large and on their way at once; another one waits, unread, until one of these is whole or
//! its stream is closed. (A stream on which nothing has been said for long is closed in any case.)

use crate::rpc::listen::Peer;
use bytes::Bytes;
use http_body::Frame;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::PollSemaphore;
use tonic::body::Body;
use tonic::codegen::http::Request;

/// A message of more bytes is large. Most launches are smaller, and all pieces of stdin.
const SMALL_MAX: usize = 128 * 1024;

/// Large messages of one user that may be on their way at once.
const LARGE_USER_MAX: usize = 8;

/// gRPC's: whether it is compressed, and its length.
const HEADER: usize = 5;

/// The places for large messages, by user.
#[derive(Clone, Debug, Default)]
pub(super) struct PartialMessages(Arc<Mutex<BTreeMap<u32, Arc<Semaphore>>>>);

impl PartialMessages {
    /// The same request, whose messages keep to the bound. Those of root and of our own user do as
    /// they are: heads are among them.
    pub fn bound(&self, request: Request<Body>) -> Request<Body> {
        let own = nix::unistd::geteuid().as_raw();
        let uid = request.extensions().get::<Peer>().map(|peer| peer.uid);
        match uid.filter(|uid| *uid != 0 && *uid != own) {
            Some(uid) => {
                let places = self.of(uid);
                request.map(|body| Body::new(Measured::new(body, places)))
            }
            None => request,
        }
    }

    fn of(&self, uid: u32) -> Arc<Semaphore> {
        let mut by_uid = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        by_uid.retain(|_, places| Arc::strong_count(places) > 1);
        let new = || Arc::new(Semaphore::new(LARGE_USER_MAX));
        Arc::clone(by_uid.entry(uid).or_insert_with(new))
    }
}

/// What is said on a stream; no part of a large message goes on before there is a place for it.
struct Measured {
    body: Body,
    places: PollSemaphore,
    place: Option<OwnedSemaphorePermit>,
    /// Waits for a place.
    held: Option<Frame<Bytes>>,
    lengths: Lengths,
}

impl Measured {
    fn new(body: Body, places: Arc<Semaphore>) -> Measured {
        let places = PollSemaphore::new(places);
        Measured { body, places, place: None, held: None, lengths: Lengths::default() }
    }
}

impl http_body::Body for Measured {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, tonic::Status>>> {
        if self.held.is_none() {
            match ready!(http_body::Body::poll_frame(Pin::new(&mut self.body), cx)) {
                Some(Ok(frame)) => self.held = Some(frame),
                end => return Poll::Ready(end),
            }
            let this = &mut *self;
            if let Some(data) = this.held.as_ref().and_then(Frame::data_ref) {
                this.lengths.measure(data);
            }
        }
        if !self.lengths.large {
            self.place = None;
        } else if self.place.is_none() {
            self.place = ready!(self.places.poll_acquire(cx));
        }
        Poll::Ready(self.held.take().map(Ok))
    }
}

/// Where in its messages a stream is.
#[derive(Debug, Default)]
struct Lengths {
    header: [u8; HEADER],
    /// Bytes of the header that have come.
    begun: usize,
    /// Bytes of the message that are to come.
    left: usize,
    /// A large message has begun and is not whole. (A frame of HTTP/2 is shorter than what is large,
    /// so that nothing large begins and ends within one.)
    large: bool,
}

impl Lengths {
    fn measure(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            if self.left > 0 {
                let come = self.left.min(data.len());
                self.left -= come;
                self.large &= self.left > 0;
                data = &data[come..];
                continue;
            }
            let come = (HEADER - self.begun).min(data.len());
            self.header[self.begun..self.begun + come].copy_from_slice(&data[..come]);
            self.begun += come;
            data = &data[come..];
            if self.begun == HEADER {
                let [_, length @ ..] = self.header;
                self.left = u32::from_be_bytes(length) as usize;
                self.large = self.left > SMALL_MAX;
                self.begun = 0;
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use tokio::sync::mpsc;

    /// A body that is what comes through a channel.
    pub struct Channel(pub mpsc::UnboundedReceiver<Bytes>);

    impl http_body::Body for Channel {
        type Data = Bytes;
        type Error = tonic::Status;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, tonic::Status>>> {
            self.0.poll_recv(cx).map(|data| data.map(|data| Ok(Frame::data(data))))
        }
    }

    /// A stream of this user's, and what is said on it.
    fn stream(places: &Arc<Semaphore>) -> (mpsc::UnboundedSender<Bytes>, Measured) {
        let (says, said) = mpsc::unbounded_channel();
        (says, Measured::new(Body::new(Channel(said)), Arc::clone(places)))
    }

    fn header(length: usize) -> Bytes {
        let length = u32::try_from(length).expect("short").to_be_bytes();
        [&[0][..], &length].concat().into()
    }

    /// Bytes that come at once; `None`: it waits.
    fn comes(body: &mut Measured) -> Option<usize> {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        match http_body::Body::poll_frame(Pin::new(body), &mut cx) {
            Poll::Ready(frame) => {
                Some(frame.expect("no end").expect("no error").into_data().expect("data").len())
            }
            Poll::Pending => None,
        }
    }

    #[test]
    fn of_one_user_a_few_large_messages_are_on_their_way() {
        let halves = PartialMessages::default();
        let (hers, his) = (halves.of(1000), halves.of(1001));
        let mut streams: Vec<_> = (0..=LARGE_USER_MAX).map(|_| stream(&hers)).collect();
        for (says, _) in &streams {
            says.send(header(SMALL_MAX + 1)).expect("open");
        }
        let (more, large) = streams.split_last_mut().expect("there are some");
        assert!(large.iter_mut().all(|(_, body)| comes(body) == Some(HEADER)));
        assert_eq!(comes(&mut more.1), None, "not even its length is passed on");
        // What is small goes on, and so does another user's.
        for (places, length) in [(&hers, SMALL_MAX), (&his, SMALL_MAX + 1)] {
            let (says, mut body) = stream(places);
            says.send(header(length)).expect("open");
            assert_eq!(comes(&mut body), Some(HEADER));
        }
        // One is whole.
        large[0].0.send(vec![0; SMALL_MAX].into()).expect("open");
        assert_eq!((comes(&mut large[0].1), comes(&mut more.1)), (Some(SMALL_MAX), None));
        large[0].0.send(vec![0; 1].into()).expect("open");
        assert_eq!((comes(&mut large[0].1), comes(&mut more.1)), (Some(1), Some(HEADER)));
        // One is closed.
        large[0].0.send(header(SMALL_MAX + 1)).expect("open");
        assert_eq!(comes(&mut large[0].1), None);
        streams.pop();
        assert_eq!(comes(&mut streams[0].1), Some(HEADER));
        drop((streams, hers, his));
        halves.of(1002);
        assert_eq!(halves.0.lock().expect("whole").len(), 1, "who has none is forgotten");
    }

    /// However it is cut into frames.
    #[test]
    fn lengths_are_measured_across_frames() {
        let message = |length: usize| [&header(length)[..], &vec![7; length]].concat();
        let said = [message(3), message(0), message(SMALL_MAX + 1), message(2)].concat();
        let (from, to) = (3 + 2 * HEADER + HEADER, said.len() - 2 - HEADER);
        for cut in [1, 2, 4, 5, 1000, 16_384] {
            let (mut lengths, mut come) = (Lengths::default(), 0);
            for frame in said.chunks(cut) {
                lengths.measure(frame);
                come += frame.len();
                assert_eq!(lengths.large, (from..to).contains(&come), "{come} in {cut}s");
            }
            assert_eq!((lengths.left, lengths.begun), (0, 0));
        }
    }
}
