//! Bodies of answers that go out in pieces, of which each counts until it has been written.
//!
//! An answer that its reader does not read takes memory here. HTTP/2 takes as much of a body as
//! its buffers hold, whether the reader reads or not; so that a body has been taken says nothing.
//! A piece has what its answer costs with it ([`holding`]), until HTTP/2 lets go of its bytes: it
//! has written them to the connection, or the request is over.

use bytes::Bytes;
use http_body::Frame;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tonic::Status;
use tonic::body::Body;

/// Bytes of a piece, at most.
pub const PIECE: usize = 16 * 1024;

/// A body, taken apart.
#[derive(Debug)]
pub struct Pieces {
    body: Body,
    /// What is left of the frame that the body gave last.
    rest: Option<Bytes>,
}

impl Pieces {
    /// All of this body.
    pub fn new(body: Body) -> Pieces {
        Pieces { body, rest: None }
    }
}

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = Status;

    /// The next piece, or what the body ends with. No piece is empty: a frame without data and
    /// without the end of its stream counts as an attack, of which a connection bears a hundred,
    /// and a client may end each of its requests with a frame that is empty when it comes from
    /// here.
    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let mut data = match self.rest.take() {
            Some(rest) => rest,
            None => loop {
                match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                    Some(Ok(frame)) => match frame.into_data() {
                        Ok(data) if data.is_empty() => {}
                        Ok(data) => break data,
                        Err(frame) => return Poll::Ready(Some(Ok(frame))),
                    },
                    end => return Poll::Ready(end),
                }
            },
        };
        if data.len() > PIECE {
            self.rest = Some(data.split_off(PIECE));
        }
        Poll::Ready(Some(Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_none() && self.body.is_end_stream()
    }
}

/// These bytes, which keep `held` until the last of them is let go of.
pub fn holding(bytes: Bytes, held: impl Send + 'static) -> Bytes {
    Bytes::from_owner(Holding { bytes, _held: held })
}

struct Holding<H> {
    bytes: Bytes,
    _held: H,
}

impl<H> AsRef<[u8]> for Holding<H> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::bodies;
    use std::sync::Arc;

    #[test]
    fn a_large_frame_goes_out_in_pieces() {
        let whole: Bytes = (0..40_000_u32).map(|n| n as u8).collect();
        let mut pieces = Pieces::new(bodies::whole(whole.clone()));
        let (mut sizes, mut all) = (Vec::new(), Vec::new());
        while let Poll::Ready(Some(frame)) = bodies::poll(&mut pieces) {
            let data = frame.expect("no error").into_data().expect("data");
            sizes.push(data.len());
            all.extend_from_slice(&data);
        }
        assert_eq!(sizes, [PIECE, PIECE, 40_000 - 2 * PIECE]);
        assert!(all == whole && http_body::Body::is_end_stream(&pieces));
    }

    #[test]
    fn no_piece_is_empty() {
        let (says, said) = tokio::sync::mpsc::unbounded_channel();
        let mut pieces = Pieces::new(bodies::channel(said));
        for data in ["", "a", "", "", "b", ""] {
            says.send(Bytes::from(data)).expect("read");
        }
        drop(says);
        let mut all = Vec::new();
        while let Poll::Ready(Some(frame)) = bodies::poll(&mut pieces) {
            all.push(frame.expect("no error").into_data().expect("data"));
        }
        assert_eq!(all, ["a", "b"]);
    }

    #[test]
    fn bytes_hold_something_until_the_last_is_gone() {
        let held = Arc::new(());
        let mut bytes = holding(Bytes::from_static(b"abc"), Arc::clone(&held));
        let last = bytes.split_off(2);
        assert_eq!((&bytes[..], &last[..]), (&b"ab"[..], &b"c"[..]));
        drop(bytes);
        assert_eq!(Arc::strong_count(&held), 2);
        drop(last);
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
