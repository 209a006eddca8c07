//! How much one user's clients may have half said.
//!
//! A message is kept until all of it has come, and one may be large: on all the streams that a user may have, halves
//! of messages would fill the host's memory. So only a few of a user's large messages may be on their way at once, and
//! not many of the small ones that have begun and are not whole; another one waits, unread, until one of these is
//! whole or its stream is closed. (What it has of the memory meanwhile is bounded by HTTP/2's windows.) A stream that
//! is opened and says nothing at all takes its headers' memory: of those, too, a user has only so many.
//!
//! The headers of a request are kept as long as its service looks at them: of a request whose
//! message has not come, until it comes. They count by themselves, of a user and of a host with all
//! its users ([`PartialMessages::headers`]).
//!
//! A caller that begins a request and never says the rest would keep its place for ever. So a
//! message has a time in which it is to come whole ([`MessageTime`]): the first one of a request
//! from the moment at which the request begins, each other one from its own first byte. Between two
//! messages a stream may be silent for as long as it likes.
//!
//! What is beyond a bound is refused for now and not for good: callers ask again, and an aprun that
//! waits goes on waiting.
//!
//! What is not counted: the rest of a frame of which one message has been read. tonic copies it
//! into the buffer of the request, which has 8 KiB at first and is no larger than a message and a
//! frame (16 KiB). A request that is unread has a place, so these are `requests` times 24 KiB of a
//! user at most, beside the messages.
//!
//! Daemons of another host have much to say, all of it on one connection, and no message may wait for another one there:
//! those that wait would fill the connection's window, and the others could not end. So what a host has half said is
//! bounded in bytes ([`HostLimits`]), and a stream with more is broken off. An honest host is far below. (Root and our
//! own user on this host are not bounded.)

use crate::rpc::bodies::{Hook, Hooked};
use crate::rpc::kept::Kept;
use crate::rpc::listen::Peer;
use crate::rpc::relayed::{self, Sent};
use crate::rpc::tls::{HostPeer, Refusal, RefusalLog};
use bytes::Bytes;
use http_body::Frame;
use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::sync::PollSemaphore;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{HeaderMap, Request};

/// gRPC's: whether it is compressed, and its length.
const HEADER: usize = 5;

/// How much that is, for one user.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// A message of more bytes is large.
    pub small: usize,
    /// Large messages that may be on their way at once.
    pub large: usize,
    /// Small ones that have begun and are not whole. (Those of an honest client come as a whole, mostly.)
    pub halves: usize,
    /// Requests of which not all has been read.
    pub requests: usize,
    /// Bytes of headers.
    pub headers: u64,
}

/// How much that is, for the daemons of one host.
#[derive(Clone, Copy, Debug)]
pub struct HostLimits {
    /// Bytes of messages that have begun and are not whole. Each counts as it will be once it is.
    pub bytes: u64,
    /// Requests of which not all has been read.
    pub requests: usize,
    /// Bytes of headers, those of its users' requests included.
    pub headers: u64,
}

/// Bytes of headers of one user, and of one host. (A request of a user has a kilobyte or two: it
/// names his groups. That of a user with [`GROUPS_MAX`](crate::rpc::caller::GROUPS_MAX) groups has
/// 130 kB.)
pub const HEADERS: (u64, u64) = (32 << 20, 128 << 20);
/// What a header takes beside its bytes.
const HEADER_EXTRA: usize = 128;
/// How long a message may be waited for. Its caller has begun to send it: what is missing then is
/// lost, or is held back.
const MESSAGE_TIME: Duration = Duration::from_secs(60);
/// What has come of a message lets it take longer, by a second for so many bytes: the slowest
/// connection on which large messages are of use. (The largest one, of 64 MiB, may take two hours
/// and a quarter.)
const MESSAGE_RATE: u64 = 8 * 1024;
/// At most so much of one wait counts. (A part may have come long before its body was polled.)
const WAIT_COUNTS: Duration = Duration::from_secs(30);

impl HostLimits {
    /// For so many of the largest messages on their way at once, and so many requests.
    pub const fn new(message_max: usize, messages: u64, requests: usize) -> HostLimits {
        let bytes = messages * (message_max + HEADER) as u64;
        HostLimits { bytes, requests, headers: HEADERS.1 }
    }
}

/// Bytes of headers that count for a request, until its service has let go of them.
#[derive(Clone, Debug)]
struct HeldHeaders {
    _held: Arc<(Option<HeldBytes>, Option<HeldBytes>)>,
}

/// A part of a sum of bytes.
#[derive(Debug)]
struct HeldBytes {
    all: Arc<AtomicU64>,
    bytes: u64,
    /// (A caller that has any is not forgotten.)
    _of: Arc<dyn Any + Send + Sync>,
}

impl HeldBytes {
    /// None: all would be more than `most`.
    fn new(
        all: &Arc<AtomicU64>,
        of: Arc<dyn Any + Send + Sync>,
        bytes: u64,
        most: u64,
    ) -> Option<HeldBytes> {
        let held = HeldBytes { all: Arc::clone(all), bytes, _of: of };
        let before = held.all.fetch_add(bytes, Ordering::AcqRel);
        (before.saturating_add(bytes) <= most).then_some(held)
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

/// The memory that the headers of a request take.
fn headers_bytes(request: &Request<Body>) -> u64 {
    let all = request.headers().iter();
    let bytes = all.map(|(name, value)| name.as_str().len() + value.len() + HEADER_EXTRA);
    let groups = request.extensions().get::<Peer>().map_or(0, |peer| 4 * peer.groups.len());
    (bytes.sum::<usize>() + request.uri().path().len() + groups) as u64
}

/// What one host has half said.
#[derive(Debug)]
struct HostPlaces {
    bytes: Arc<AtomicU64>,
    headers: Arc<AtomicU64>,
    requests: Arc<Semaphore>,
}

/// The places of one user.
#[derive(Debug)]
struct Places {
    large: Arc<Semaphore>,
    halves: Arc<Semaphore>,
    requests: Arc<Semaphore>,
    headers: Arc<AtomicU64>,
}

/// The places of all, by user and by host.
#[derive(Clone, Debug)]
pub struct PartialMessages {
    limits: Limits,
    of: Kept<u32, Places>,
    of_hosts: HostLimits,
    hosts: Kept<Arc<str>, HostPlaces>,
}

impl PartialMessages {
    /// Without any requests.
    pub fn new(limits: Limits, of_hosts: HostLimits) -> PartialMessages {
        PartialMessages { limits, of: Kept::default(), of_hosts, hosts: Kept::default() }
    }

    /// The same request, whose messages keep to the bound: that of its user; of another host, if its daemons or its root
    /// call. Those of root and of our own user on this host do as they are: nodes and heads are among them.
    pub fn bound(&self, request: Request<Body>) -> Request<Body> {
        let own = nix::unistd::geteuid().as_raw();
        let uid = request.extensions().get::<Peer>().map(|peer| peer.uid);
        let of_host = |host: &HostPeer| (Arc::clone(&host.name), host.log.clone());
        let host = request.extensions().get::<HostPeer>().map(of_host);
        let bound = match (uid.filter(|uid| *uid != 0 && *uid != own), host) {
            (Some(uid), _) => self.place(uid).map(Bound::OfUser),
            (None, Some((host, log))) => self.place_of_host(host, log).map(Bound::OfHost),
            (None, None) => return request,
        };
        match bound {
            Ok(Bound::OfUser(hook)) => request.map(|body| Body::new(Hooked::new(body, hook))),
            Ok(Bound::OfHost(hook)) => request.map(|body| Body::new(Hooked::new(body, hook))),
            Err(why) => refuse(request, why),
        }
    }

    /// The same request, whose headers count until its service has let go of them; what is beyond
    /// the bound has none, and only an error in its body. Those of root and of our own user on this
    /// host do not count.
    ///
    /// To be called before all else that keeps requests.
    pub fn headers(&self, mut request: Request<Body>) -> Request<Body> {
        let own = nix::unistd::geteuid().as_raw();
        let uid = request.extensions().get::<Peer>().map(|peer| peer.uid);
        let uid = uid.filter(|uid| *uid != 0 && *uid != own);
        let host = request.extensions().get::<HostPeer>().map(|host| Arc::clone(&host.name));
        let bytes = headers_bytes(&request);
        let of_user = uid.map(|uid| {
            let of = self.of(uid);
            let all = Arc::clone(&of.headers);
            HeldBytes::new(&all, of, bytes, self.limits.headers).ok_or_else(|| {
                format!(
                    "you have requests with {} MiB of headers, the maximum of one user: try \
                         again later",
                    self.limits.headers >> 20
                )
            })
        });
        let of_host = host.map(|host| {
            let of = self.of_host(&host);
            // (The rest is for its daemons: its users must not keep these out.)
            let kept = if uid.is_some() { self.of_hosts.headers / 8 } else { 0 };
            let all = Arc::clone(&of.headers);
            HeldBytes::new(&all, of, bytes, self.of_hosts.headers - kept).ok_or_else(|| {
                format!(
                    "the host {host} has requests with {} MiB of headers, the maximum of one \
                     host: try again later",
                    self.of_hosts.headers >> 20
                )
            })
        });
        match (of_user.transpose(), of_host.transpose()) {
            (Ok(None), Ok(None)) => request,
            (Ok(of_user), Ok(of_host)) => {
                let held = HeldHeaders { _held: Arc::new((of_user, of_host)) };
                request.extensions_mut().insert(held);
                request
            }
            (_, Err(why)) | (Err(why), _) => {
                *request.headers_mut() = HeaderMap::new();
                refuse(request, why)
            }
        }
    }

    fn place_of_host(&self, host: Arc<str>, log: RefusalLog) -> Result<Weighed, String> {
        let of = self.of_host(&host);
        match Arc::clone(&of.requests).try_acquire_owned() {
            Ok(request) => Ok(Weighed::new((host, log), of, self.of_hosts.bytes, request)),
            Err(_) => Err(format!(
                "the host {host} has the maximum of unfinished requests of one host ({}): try \
                 again later",
                self.of_hosts.requests
            )),
        }
    }

    fn of_host(&self, host: &Arc<str>) -> Arc<HostPlaces> {
        self.hosts.of(Arc::clone(host), || HostPlaces {
            bytes: Arc::default(),
            headers: Arc::default(),
            requests: Arc::new(Semaphore::new(self.of_hosts.requests)),
        })
    }

    fn place(&self, uid: u32) -> Result<Measured, String> {
        let of = self.of(uid);
        match Arc::clone(&of.requests).try_acquire_owned() {
            Ok(request) => Ok(Measured::new(of, self.limits.small, request)),
            Err(_) => Err(MANY_REQUESTS.to_owned()),
        }
    }

    fn of(&self, uid: u32) -> Arc<Places> {
        let Limits { large, halves, requests, .. } = self.limits;
        let places = |count| Arc::new(Semaphore::new(count));
        self.of.of(uid, || Places {
            large: places(large),
            halves: places(halves),
            requests: places(requests),
            headers: Arc::default(),
        })
    }
}

const MANY_REQUESTS: &str = "you have reached the maximum of unfinished requests of one user: end some of your \
                             commands, or try again later";

/// What bounds the messages of a request.
enum Bound {
    OfUser(Measured),
    OfHost(Weighed),
}

/// The request without what takes memory: what is read of it is why it is refused.
fn refuse(mut request: Request<Body>, why: String) -> Request<Body> {
    if let Some(peer) = request.extensions_mut().get_mut::<Peer>() {
        peer.groups = Vec::new();
    }
    request.extensions_mut().insert(Beyond(why.clone()));
    request.map(|_| Body::new(Refused(why)))
}

/// Why a request is refused, for a service that does not read its body.
#[derive(Clone)]
struct Beyond(String);

/// Why this request is refused, if it is beyond a bound.
pub fn refused<B>(request: &Request<B>) -> Option<Status> {
    let Beyond(why) = request.extensions().get::<Beyond>()?;
    Some(relayed::unavailable(why.clone(), Sent::No))
}

/// What is read of a request beyond the bound: why. (Its service has seen nothing of it.)
struct Refused(String);

impl http_body::Body for Refused {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Poll::Ready(Some(Err(relayed::unavailable(self.0.clone(), Sent::No))))
    }
}

/// How long a message has been waited for. Time in which it waits here for its place does not
/// count.
#[derive(Default)]
struct MessageTime {
    waited: Duration,
    /// Since when the next part is waited for.
    since: Option<Instant>,
    /// Bytes of the message that have come.
    bytes: u64,
    ends: Option<Pin<Box<Sleep>>>,
}

impl MessageTime {
    /// So many bytes have come, after which the stream is at this place.
    fn comes(&mut self, bytes: usize, lengths: &Lengths) {
        if !lengths.expects() {
            *self = MessageTime::default();
            return;
        }
        let waited = self.since.take().map_or(Duration::ZERO, |since| since.elapsed());
        self.waited += waited.min(WAIT_COUNTS);
        self.bytes = self.bytes.saturating_add(bytes as u64);
        self.ends = None;
    }

    /// No more has come: resolves when the message is late.
    fn poll_late(&mut self, lengths: &Lengths, cx: &mut Context<'_>) -> Poll<Status> {
        if !lengths.expects() {
            return Poll::Pending;
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        let most = MESSAGE_TIME + Duration::from_secs(self.bytes / MESSAGE_RATE);
        let until = since + most.saturating_sub(self.waited);
        ready!(self.ends.get_or_insert_with(|| Box::pin(sleep_until(until))).as_mut().poll(cx));
        let text = format!(
            "a message of this request has not come within {} s: try again",
            most.as_secs()
        );
        let sent = if lengths.any { Sent::Maybe } else { Sent::No };
        Poll::Ready(relayed::unavailable(text, sent))
    }
}

/// What a host says on a stream, which is broken off if too much of that host is not whole.
struct Weighed {
    host: Arc<str>,
    log: RefusalLog,
    lengths: Lengths,
    time: MessageTime,
    /// Bytes of the message that is not whole.
    counted: u64,
    /// The sum of these of its host, and how much that may be.
    of: Arc<HostPlaces>,
    most: u64,
    fits: bool,
    _request: OwnedSemaphorePermit,
}

impl Weighed {
    fn new(
        (host, log): (Arc<str>, RefusalLog),
        of: Arc<HostPlaces>,
        most: u64,
        request: OwnedSemaphorePermit,
    ) -> Weighed {
        let (lengths, time) = (Lengths::default(), MessageTime::default());
        Weighed { host, log, lengths, time, counted: 0, of, most, fits: true, _request: request }
    }

    /// False: it is more than may be.
    fn count(&mut self) -> bool {
        let now = self.lengths.unfinished() as u64;
        let before = std::mem::replace(&mut self.counted, now);
        let all = self.of.bytes.fetch_add(now, Ordering::AcqRel).saturating_add(now);
        self.of.bytes.fetch_sub(before, Ordering::AcqRel);
        now <= before || all.saturating_sub(before) <= self.most
    }
}

impl Drop for Weighed {
    fn drop(&mut self) {
        self.of.bytes.fetch_sub(self.counted, Ordering::AcqRel);
    }
}

impl Hook for Weighed {
    fn comes(&mut self, frame: &Frame<Bytes>) {
        if let Some(data) = frame.data_ref() {
            self.lengths.measure(data);
            self.time.comes(data.len(), &self.lengths);
            self.fits = self.count();
        }
    }

    fn poll_passes(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        if self.fits {
            return Poll::Ready(Ok(()));
        }
        let text = format!(
            "the host {} has begun messages of more than {} bytes, and ended none of them",
            self.host, self.most
        );
        let of = self.host.to_string();
        self.log.request(&Refusal { kind: "half said", of, why: text.clone() });
        let sent = if self.lengths.any { Sent::Maybe } else { Sent::No };
        Poll::Ready(Err(relayed::unavailable(text, sent)))
    }

    fn poll_ends(&mut self, cx: &mut Context<'_>) -> Poll<Status> {
        self.time.poll_late(&self.lengths, cx)
    }
}

/// What is said on a stream; no part of a message goes on before there is a place for it.
struct Measured {
    large: PollSemaphore,
    halves: PollSemaphore,
    place: Option<(Begun, OwnedSemaphorePermit)>,
    lengths: Lengths,
    time: MessageTime,
    _request: OwnedSemaphorePermit,
    /// (A user who has any is not forgotten.)
    _of: Arc<Places>,
}

impl Measured {
    fn new(of: Arc<Places>, small: usize, request: OwnedSemaphorePermit) -> Measured {
        let large = PollSemaphore::new(Arc::clone(&of.large));
        let halves = PollSemaphore::new(Arc::clone(&of.halves));
        let lengths = Lengths { small, ..Lengths::default() };
        let time = MessageTime::default();
        Measured { large, halves, place: None, lengths, time, _request: request, _of: of }
    }
}

impl Hook for Measured {
    fn comes(&mut self, frame: &Frame<Bytes>) {
        if let Some(data) = frame.data_ref() {
            self.lengths.measure(data);
            self.time.comes(data.len(), &self.lengths);
        }
    }

    fn poll_passes(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        let begun = self.lengths.begun();
        if self.place.as_ref().map(|(begun, _)| *begun) != begun {
            self.place = None;
            let place = match begun {
                None => None,
                Some(Begun::Large) => ready!(self.large.poll_acquire(cx)),
                Some(Begun::Small) => ready!(self.halves.poll_acquire(cx)),
            };
            self.place = begun.zip(place);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_ends(&mut self, cx: &mut Context<'_>) -> Poll<Status> {
        self.time.poll_late(&self.lengths, cx)
    }
}

/// A message that has begun and is not whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Begun {
    Small,
    Large,
}

/// Where in its messages a stream is.
#[derive(Debug, Default)]
struct Lengths {
    /// A message of more bytes is large.
    small: usize,
    header: [u8; HEADER],
    /// Bytes of the header that have come.
    header_come: usize,
    /// Bytes of the message, and of those the ones that are to come.
    length: usize,
    left: usize,
    /// The message of which some are to come is large. (A frame of HTTP/2 is shorter than what is large, so that
    /// nothing large begins and ends within one.)
    large: bool,
    /// A message has come whole.
    any: bool,
}

impl Lengths {
    /// Whether a message is on its way, or none has come yet.
    fn expects(&self) -> bool {
        !self.any || self.begun().is_some()
    }

    fn begun(&self) -> Option<Begun> {
        match self.left > 0 || self.header_come > 0 {
            true => Some(if self.large { Begun::Large } else { Begun::Small }),
            false => None,
        }
    }

    /// Bytes of the message that has begun and is not whole, once it is.
    fn unfinished(&self) -> usize {
        match self.begun() {
            Some(_) if self.left > 0 => HEADER + self.length,
            Some(_) => HEADER,
            None => 0,
        }
    }

    fn measure(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            if self.left > 0 {
                let come = self.left.min(data.len());
                self.left -= come;
                self.large &= self.left > 0;
                self.any |= self.left == 0;
                data = &data[come..];
                continue;
            }
            let come = (HEADER - self.header_come).min(data.len());
            self.header[self.header_come..self.header_come + come].copy_from_slice(&data[..come]);
            self.header_come += come;
            data = &data[come..];
            if self.header_come == HEADER {
                let [_, length @ ..] = self.header;
                self.length = u32::from_be_bytes(length) as usize;
                self.left = self.length;
                self.large = self.left > self.small;
                self.any |= self.left == 0;
                self.header_come = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::bodies;
    use tokio::sync::mpsc;

    type Stream = Hooked<Body, Measured>;

    /// A stream of this user's, and what is said on it.
    fn stream(places: &Arc<Places>) -> (mpsc::UnboundedSender<Bytes>, Stream) {
        let (says, said) = mpsc::unbounded_channel();
        let request = Arc::clone(&places.requests).try_acquire_owned().expect("a place");
        let hook = Measured::new(Arc::clone(places), SMALL_MAX, request);
        (says, Hooked::new(bodies::channel(said), hook))
    }

    fn header(length: usize) -> Bytes {
        let length = u32::try_from(length).expect("short").to_be_bytes();
        [&[0][..], &length].concat().into()
    }

    /// Bytes that come at once; `None`: it waits.
    fn comes(body: &mut Stream) -> Option<usize> {
        match bodies::poll(body) {
            Poll::Ready(frame) => {
                Some(frame.expect("no end").expect("no error").into_data().expect("data").len())
            }
            Poll::Pending => None,
        }
    }

    const SMALL_MAX: usize = 100;
    const LARGE_MAX: usize = 8;
    const LIMITS: Limits =
        Limits { small: SMALL_MAX, large: LARGE_MAX, halves: 20, requests: 30, headers: 5_000 };

    #[tokio::test]
    async fn of_one_user_a_few_large_messages_are_on_their_way() {
        let halves = PartialMessages::new(LIMITS, OF_HOSTS);
        let (hers, his) = (halves.of(1000), halves.of(1001));
        let mut streams: Vec<_> = (0..=LARGE_MAX).map(|_| stream(&hers)).collect();
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
    }

    #[tokio::test]
    async fn of_one_user_not_many_small_ones_are_half_said() {
        let all = PartialMessages::new(LIMITS, OF_HOSTS);
        let hers = all.of(1000);
        let mut streams: Vec<_> = (0..=LIMITS.halves).map(|_| stream(&hers)).collect();
        for (says, _) in &streams {
            says.send(header(SMALL_MAX).slice(..3)).expect("open");
        }
        let (more, halves) = streams.split_last_mut().expect("there are some");
        assert!(halves.iter_mut().all(|(_, body)| comes(body) == Some(3)));
        assert_eq!(comes(&mut more.1), None);
        // A message that arrives whole needs no place.
        let (says, mut body) = stream(&hers);
        says.send([&header(2)[..], &[7; 2]].concat().into()).expect("open");
        assert_eq!(comes(&mut body), Some(HEADER + 2));
        // A message that has become whole gives its place back.
        halves[3].0.send([&header(1)[3..], &[7; 1]].concat().into()).expect("open");
        assert_eq!((comes(&mut halves[3].1), comes(&mut more.1)), (Some(3), Some(3)));
    }

    /// What is read at once is that too much is unfinished, and that it may be asked again.
    fn refused(mut body: impl http_body::Body<Error = Status> + Unpin) -> bool {
        match bodies::poll(&mut body) {
            Poll::Ready(Some(Err(status))) => relayed::sent(&status) == Some(Sent::No),
            _ => false,
        }
    }

    /// A request of this host, for the user whom it names if it does.
    fn of_host(
        all: &PartialMessages,
        name: &str,
        uid: Option<u32>,
    ) -> (mpsc::UnboundedSender<Bytes>, Body) {
        let (says, said) = mpsc::unbounded_channel();
        let mut request = Request::new(bodies::channel(said));
        let host = crate::rpc::tls::tests::host_peer(name);
        if let Some(uid) = uid {
            request.extensions_mut().insert(Peer {
                hang_up: host.hang_up.clone(),
                ..crate::rpc::listen::tests::peer_of(uid)
            });
        }
        request.extensions_mut().insert(host);
        (says, all.bound(request).into_body())
    }

    const OF_HOSTS: HostLimits = HostLimits { bytes: 1_000, requests: 5, headers: 8_000 };

    #[tokio::test]
    async fn of_one_host_unfinished_messages_have_so_many_bytes() {
        let all = PartialMessages::new(LIMITS, OF_HOSTS);
        let poll = |body: &mut Body| match bodies::poll(body) {
            Poll::Ready(Some(Ok(frame))) => frame.into_data().ok().map(|data| data.len()),
            _ => None,
        };
        // Root of a host counts as its daemons do.
        let (one, mut first) = of_host(&all, "n1", None);
        let (two, mut second) = of_host(&all, "n1", Some(0));
        for (says, body) in [(&one, &mut first), (&two, &mut second)] {
            says.send(header(400)).expect("open");
            assert_eq!(poll(body), Some(HEADER));
        }
        let (three, third) = of_host(&all, "n1", None);
        three.send(header(200)).expect("open");
        assert!(refused(third));
        // Another host's goes on.
        let (other, mut of_other) = of_host(&all, "n2", None);
        other.send(header(900)).expect("open");
        assert_eq!(poll(&mut of_other), Some(HEADER));
        // So do those that have begun, and once one is whole or is closed there is room.
        one.send(vec![7; 400].into()).expect("open");
        assert_eq!(poll(&mut first), Some(400));
        one.send(header(500)).expect("open");
        assert_eq!(poll(&mut first), Some(HEADER));
        drop(second);
        let (four, mut fourth) = of_host(&all, "n1", None);
        four.send(header(450)).expect("open");
        assert_eq!(poll(&mut fourth), Some(HEADER));
    }

    /// A request with a header of so many bytes.
    fn with_headers(uid: Option<u32>, host: Option<&str>, bytes: usize) -> Request<Body> {
        let mut request = Request::new(Body::empty());
        request.headers_mut().insert("x", "y".repeat(bytes).parse().expect("a header"));
        if let Some(uid) = uid {
            request.extensions_mut().insert(crate::rpc::listen::tests::peer_of(uid));
        }
        if let Some(host) = host {
            request.extensions_mut().insert(crate::rpc::tls::tests::host_peer(host));
        }
        request
    }

    #[test]
    fn headers_count_until_the_service_lets_go_of_them() {
        let all = PartialMessages::new(LIMITS, OF_HOSTS);
        let fits = |request| {
            let request = all.headers(request);
            let whole = !request.headers().is_empty();
            if whole { Ok(request) } else { Err(request.into_body()) }
        };
        let first = fits(with_headers(Some(1000), None, 4_000)).expect("there is room");
        assert!(refused(fits(with_headers(Some(1000), None, 1_000)).expect_err("no more fits")));
        fits(with_headers(Some(1001), None, 4_000)).expect("another user has his own");
        // The body alone holds nothing.
        let _body = first.into_body();
        let first = fits(with_headers(Some(1000), Some("n1"), 4_000)).expect("there is room");
        // A host's users count for it, too.
        assert!(fits(with_headers(Some(1002), Some("n1"), 4_000)).is_err());
        assert!(fits(with_headers(None, Some("n1"), 4_000)).is_err());
        fits(with_headers(None, Some("n1"), 2_000)).expect("there is room");
        fits(with_headers(None, Some("n2"), 7_000)).expect("another host has its own");
        drop(first);
        fits(with_headers(None, Some("n1"), 7_000)).expect("there is room");
        assert!(fits(with_headers(Some(0), None, 100_000)).is_ok(), "root of this host");
        // However many users have some, there is room for the daemons of their host.
        let of_users: Vec<_> = (2_000..)
            .map_while(|uid| fits(with_headers(Some(uid), Some("n3"), 300)).ok())
            .take(100)
            .collect();
        assert!((10..30).contains(&of_users.len()), "{}", of_users.len());
        fits(with_headers(None, Some("n3"), 300)).expect("there is room");
    }

    #[tokio::test]
    async fn of_one_host_only_so_many_requests_are_unread() {
        let all = PartialMessages::new(LIMITS, OF_HOSTS);
        let kept: Vec<_> = (0..OF_HOSTS.requests).map(|_| of_host(&all, "n1", None)).collect();
        assert!(refused(of_host(&all, "n1", None).1));
        assert!(!refused(of_host(&all, "n2", None).1));
        // Its users have bounds of their own.
        assert!(!refused(of_host(&all, "n1", Some(1000)).1));
        drop(kept);
        assert!(!refused(of_host(&all, "n1", None).1));
    }

    #[tokio::test]
    async fn of_one_user_only_so_many_requests_are_unread() {
        let all = PartialMessages::new(LIMITS, OF_HOSTS);
        let of = |uid| {
            let request = with_headers(Some(uid), None, 0);
            all.bound(request.map(|_| bodies::from_fn(|_| Poll::Pending)))
        };
        let mut kept: Vec<_> = (0..LIMITS.requests).map(|_| of(1000)).collect();
        let more = of(1000);
        let groups = more.extensions().get::<Peer>().map(|peer| peer.groups.capacity());
        assert!(refused(more.into_body()) && groups == Some(0), "{groups:?}");
        assert!(!refused(of(1001).into_body()));
        kept.pop();
        assert!(!refused(of(1000).into_body()));
    }

    async fn frame(body: &mut Body) -> Option<Result<Frame<Bytes>, Status>> {
        std::future::poll_fn(|cx| http_body::Body::poll_frame(Pin::new(body), cx)).await
    }

    /// Why a stream ends within so long, if it does.
    async fn ends(body: &mut Body, within: Duration) -> Option<(Sent, String)> {
        match tokio::time::timeout(within, frame(body)).await {
            Err(_) => None,
            Ok(Some(Err(status))) => {
                Some((relayed::sent(&status).expect("said"), status.message().to_owned()))
            }
            Ok(frame) => panic!("{frame:?}"),
        }
    }

    /// A user's request, and a host's.
    fn requests(all: &PartialMessages) -> [(mpsc::UnboundedSender<Bytes>, Body); 2] {
        [of_host(all, "n1", Some(1000)), of_host(all, "n1", None)]
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_that_does_not_come_is_not_waited_for() {
        let all = PartialMessages::new(LIMITS, OF_HOSTS);
        let second = Duration::from_secs(1);
        for (says, mut body) in requests(&all) {
            assert_eq!(ends(&mut body, MESSAGE_TIME - second).await, None);
            let late = "a message of this request has not come within 60 s: try again";
            assert_eq!(ends(&mut body, 2 * second).await, Some((Sent::No, late.into())));
            drop(says);
        }
        // A stream may be silent between two messages, and no longer in one.
        for (says, mut body) in requests(&all) {
            says.send([&header(2)[..], &[7; 2]].concat().into()).expect("open");
            assert!(matches!(bodies::poll(&mut body), Poll::Ready(Some(Ok(_)))));
            assert_eq!(ends(&mut body, 100 * MESSAGE_TIME).await, None);
            says.send(header(2)).expect("open");
            assert!(matches!(bodies::poll(&mut body), Poll::Ready(Some(Ok(_)))));
            assert_eq!(ends(&mut body, MESSAGE_TIME - second).await, None);
            let (sent, _) = ends(&mut body, 2 * second).await.expect("late");
            assert_eq!(sent, Sent::Maybe);
        }
    }

    /// One byte a second is a sign of life, but for no longer than such a message may take.
    #[tokio::test(start_paused = true)]
    async fn a_message_that_trickles_is_late_too() {
        let all = PartialMessages::new(LIMITS, OF_HOSTS);
        for (says, mut body) in requests(&all) {
            says.send(header(900)).expect("open");
            let (begun, mut frames) = (Instant::now(), 0);
            let late = loop {
                match tokio::time::timeout(Duration::from_secs(1), frame(&mut body)).await {
                    Ok(Some(Ok(_))) => frames += 1,
                    Ok(Some(Err(status))) => break status,
                    Ok(None) => panic!("it has an end"),
                    Err(_) => says.send(vec![7].into()).expect("open"),
                }
            };
            assert!(frames > 30 && begun.elapsed() < 2 * MESSAGE_TIME, "{frames}: {late}");
        }
    }

    /// As fast as a slow connection, and read by a service that is away for a while.
    #[tokio::test(start_paused = true)]
    async fn a_large_message_has_the_time_that_it_takes() {
        const SECONDS: u64 = 600;
        let bytes = SECONDS * (MESSAGE_RATE + 1_000);
        let of_hosts = HostLimits { bytes: 2 * bytes, ..OF_HOSTS };
        let all = PartialMessages::new(LIMITS, of_hosts);
        for (says, mut body) in requests(&all) {
            says.send(header(bytes as usize)).expect("open");
            frame(&mut body).await.expect("no end").expect("no error");
            for second in 0..SECONDS {
                assert!(bodies::poll(&mut body).is_pending());
                tokio::time::sleep(Duration::from_secs(1)).await;
                says.send(vec![7; (MESSAGE_RATE + 1_000) as usize].into()).expect("open");
                if second == 300 {
                    tokio::time::sleep(10 * MESSAGE_TIME).await;
                }
                frame(&mut body).await.expect("no end").expect("no error");
            }
        }
    }

    /// Time in which there is no place for a message is not its caller's.
    #[tokio::test(start_paused = true)]
    async fn a_message_that_waits_for_its_place_is_not_late() {
        let all = PartialMessages::new(LIMITS, OF_HOSTS);
        let hers = all.of(1000);
        let _large: Vec<_> = (0..LARGE_MAX)
            .map(|_| {
                let (says, mut body) = stream(&hers);
                says.send(header(SMALL_MAX + 1)).expect("open");
                assert_eq!(comes(&mut body), Some(HEADER));
                (says, body)
            })
            .collect();
        let (says, body) = of_host(&all, "n1", Some(1000));
        let mut body = body;
        says.send(header(SMALL_MAX + 1)).expect("open");
        assert_eq!(ends(&mut body, 100 * MESSAGE_TIME).await, None);
    }

    /// However it is cut into frames.
    #[test]
    fn lengths_are_measured_across_frames() {
        let message = |length: usize| [&header(length)[..], &vec![7; length]].concat();
        let said = [message(3), message(0), message(SMALL_MAX + 1), message(2)].concat();
        let (from, to) = (3 + 2 * HEADER + HEADER, said.len() - 2 - HEADER);
        for cut in [1, 2, 4, 5, 1000, 16_384] {
            let (mut lengths, mut come) = (Lengths { small: SMALL_MAX, ..Lengths::default() }, 0);
            for frame in said.chunks(cut) {
                lengths.measure(frame);
                come += frame.len();
                assert_eq!(lengths.large, (from..to).contains(&come), "{come} in {cut}s");
            }
            assert_eq!((lengths.left, lengths.header_come), (0, 0));
        }
    }
}
