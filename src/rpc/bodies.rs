//! Bodies of requests and answers whose frames are looked at on their way: one wrapper, and a
//! [`Hook`] for each purpose.

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tonic::Status;

#[cfg(test)]
mod made;
#[cfg(test)]
pub(crate) use made::*;

/// What is done with the frames of a body. What is not written out lets all of them pass.
pub trait Hook {
    /// A frame has come.
    fn comes(&mut self, _: &Frame<Bytes>) {}

    /// Whether the frame that has come goes on. It waits as long as this is pending.
    ///
    /// # Errors
    /// Why the body ends here instead.
    fn poll_passes(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    /// The frame goes on, as what this returns.
    fn passes(&mut self, frame: Frame<Bytes>) -> Frame<Bytes> {
        frame
    }

    /// No frame has come yet: why the body ends, once it is to end for that.
    fn poll_ends(&mut self, _: &mut Context<'_>) -> Poll<Status> {
        Poll::Pending
    }

    /// The body has ended with an error of its own: what is told instead.
    fn breaks(&mut self, why: Status) -> Status {
        why
    }

    /// The body ends for this reason, its own or this hook's: its last frame.
    ///
    /// # Errors
    /// The reason, where the reader is told by an error.
    fn ends(&mut self, why: Status) -> Result<Frame<Bytes>, Status> {
        Err(why)
    }
}

/// A body, and what is done with its frames. After an error there is nothing more.
#[derive(Debug)]
pub struct Hooked<B, H> {
    body: B,
    hook: H,
    /// Waits until it may go on.
    held: Option<Frame<Bytes>>,
    ended: bool,
}

impl<B, H> Hooked<B, H> {
    /// All of this body.
    pub fn new(body: B, hook: H) -> Hooked<B, H> {
        Hooked { body, hook, held: None, ended: false }
    }
}

impl<B, H: Hook> Hooked<B, H> {
    fn ends(&mut self, why: Status) -> Result<Frame<Bytes>, Status> {
        (self.ended, self.held) = (true, None);
        self.hook.ends(why)
    }
}

impl<B, H> http_body::Body for Hooked<B, H>
where
    B: http_body::Body<Data = Bytes, Error = Status> + Unpin,
    H: Hook + Unpin,
{
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        if this.ended {
            return Poll::Ready(None);
        }
        if this.held.is_none() {
            match Pin::new(&mut this.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    this.hook.comes(&frame);
                    this.held = Some(frame);
                }
                Poll::Ready(Some(Err(why))) => {
                    let why = this.hook.breaks(why);
                    return Poll::Ready(Some(this.ends(why)));
                }
                Poll::Ready(None) => {
                    this.ended = true;
                    return Poll::Ready(None);
                }
                Poll::Pending => {
                    let why = ready!(this.hook.poll_ends(cx));
                    return Poll::Ready(Some(this.ends(why)));
                }
            }
        }
        match ready!(this.hook.poll_passes(cx)) {
            Ok(()) => Poll::Ready(this.held.take().map(|frame| Ok(this.hook.passes(frame)))),
            Err(why) => Poll::Ready(Some(this.ends(why))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ended || (self.held.is_none() && self.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.held {
            // (How long the rest is does not matter to anybody.)
            Some(_) => SizeHint::default(),
            None => self.body.size_hint(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::body::Body;

    /// Counts frames, and lets them go on one at a time.
    #[derive(Default)]
    struct OneByOne {
        come: usize,
        go: usize,
    }

    impl Hook for OneByOne {
        fn comes(&mut self, _: &Frame<Bytes>) {
            self.come += 1;
        }

        fn poll_passes(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
            match self.go.checked_sub(1) {
                None => Poll::Pending,
                Some(99) => Poll::Ready(Err(Status::aborted("no"))),
                Some(left) => {
                    self.go = left;
                    Poll::Ready(Ok(()))
                }
            }
        }

        fn poll_ends(&mut self, _: &mut Context<'_>) -> Poll<Status> {
            match self.go {
                0 => Poll::Pending,
                _ => Poll::Ready(Status::cancelled("nothing comes")),
            }
        }
    }

    fn hooked(body: Body) -> Hooked<Body, OneByOne> {
        Hooked::new(body, OneByOne::default())
    }

    #[test]
    fn a_frame_that_waits_is_looked_at_once() {
        let mut body = hooked(whole("abc"));
        assert!(poll(&mut body).is_pending() && poll(&mut body).is_pending());
        assert_eq!((body.hook.come, http_body::Body::is_end_stream(&body)), (1, false));
        body.hook.go = 1;
        let Poll::Ready(Some(Ok(frame))) = poll(&mut body) else { panic!("it waits") };
        assert_eq!(frame.into_data().ok().as_deref(), Some(&b"abc"[..]));
        assert!(matches!(poll(&mut body), Poll::Ready(None)));
        assert!(http_body::Body::is_end_stream(&body));
    }

    #[test]
    fn nothing_follows_an_error() {
        let mut refused = hooked(whole("abc"));
        refused.hook.go = 100;
        let mut late = hooked(from_fn(|_| Poll::Pending));
        late.hook.go = 1;
        let mut broken = hooked(from_fn(|_| Poll::Ready(Some(Err(Status::unknown("broken"))))));
        for (body, why) in
            [(&mut refused, "no"), (&mut late, "nothing comes"), (&mut broken, "broken")]
        {
            let Poll::Ready(Some(Err(status))) = poll(body) else { panic!("{why}") };
            assert_eq!(status.message(), why);
            assert!(matches!(poll(body), Poll::Ready(None)), "{why}");
            assert!(http_body::Body::is_end_stream(body));
        }
    }
}
