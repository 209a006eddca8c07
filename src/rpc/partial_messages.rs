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
//! Daemons of another host have much to say, all of it on one connection, and no message may wait for another one there:
//! those that wait would fill the connection's window, and the others could not end. So what a host has half said is
//! bounded in bytes ([`HostLimits`]), and a stream with more is broken off. An honest host is far below. (Root and our
//! own user on this host are not bounded.)

use crate::rpc::listen::Peer;
use crate::rpc::tls::HostPeer;
use bytes::Bytes;
use http_body::Frame;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
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
    /// (Who has any is not forgotten.)
    _requests: Arc<Semaphore>,
}

impl HeldBytes {
    /// None: all would be more than `most`.
    fn of(
        all: &Arc<AtomicU64>,
        requests: &Arc<Semaphore>,
        bytes: u64,
        most: u64,
    ) -> Option<HeldBytes> {
        let held = HeldBytes { all: Arc::clone(all), bytes, _requests: Arc::clone(requests) };
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
#[derive(Clone, Debug)]
struct HostPlaces {
    bytes: Arc<AtomicU64>,
    headers: Arc<AtomicU64>,
    requests: Arc<Semaphore>,
}

/// The places of one user.
#[derive(Clone, Debug)]
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
    of: Arc<Mutex<BTreeMap<u32, Places>>>,
    of_hosts: HostLimits,
    hosts: Arc<Mutex<BTreeMap<Arc<str>, HostPlaces>>>,
}

impl PartialMessages {
    /// Without any requests.
    pub fn new(limits: Limits, of_hosts: HostLimits) -> PartialMessages {
        PartialMessages { limits, of: Arc::default(), of_hosts, hosts: Arc::default() }
    }

    /// The same request, whose messages keep to the bound: that of its user; of another host, if its daemons or its root
    /// call. Those of root and of our own user on this host do as they are: nodes and heads are among them.
    pub fn bound(&self, request: Request<Body>) -> Request<Body> {
        let own = nix::unistd::geteuid().as_raw();
        let uid = request.extensions().get::<Peer>().map(|peer| peer.uid);
        let host = request.extensions().get::<HostPeer>().map(|host| Arc::clone(&host.name));
        match (uid.filter(|uid| *uid != 0 && *uid != own), host) {
            (Some(uid), _) => request.map(|body| self.body(uid, body)),
            (None, Some(host)) => request.map(|body| self.body_of_host(host, body)),
            (None, None) => request,
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
            let Places { headers, requests, .. } = self.of(uid);
            HeldBytes::of(&headers, &requests, bytes, self.limits.headers)
                .ok_or_else(|| MANY_REQUESTS.to_owned())
        });
        let of_host = host.map(|host| {
            let HostPlaces { headers, requests, .. } = self.of_host(&host);
            // (The rest is for its daemons: its users must not keep these out.)
            let kept = if uid.is_some() { self.of_hosts.headers / 8 } else { 0 };
            HeldBytes::of(&headers, &requests, bytes, self.of_hosts.headers - kept).ok_or_else(|| {
                format!(
                    "the host {host} has requests with {} MiB of headers, the maximum of one host",
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
                request.map(|_| Body::new(Refused(why)))
            }
        }
    }

    fn body_of_host(&self, host: Arc<str>, body: Body) -> Body {
        let HostPlaces { bytes, requests, .. } = self.of_host(&host);
        match requests.try_acquire_owned() {
            Ok(request) => {
                Body::new(Weighed::new(body, host, (bytes, self.of_hosts.bytes), request))
            }
            Err(_) => Body::new(Refused(format!(
                "the host {host} has the maximum of unfinished requests of one host ({})",
                self.of_hosts.requests
            ))),
        }
    }

    fn of_host(&self, host: &Arc<str>) -> HostPlaces {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        hosts.retain(|_, places| Arc::strong_count(&places.requests) > 1);
        let new = || HostPlaces {
            bytes: Arc::default(),
            headers: Arc::default(),
            requests: Arc::new(Semaphore::new(self.of_hosts.requests)),
        };
        hosts.entry(Arc::clone(host)).or_insert_with(new).clone()
    }

    fn body(&self, uid: u32, body: Body) -> Body {
        let places = self.of(uid);
        match Arc::clone(&places.requests).try_acquire_owned() {
            Ok(request) => Body::new(Measured::new(body, places, self.limits.small, request)),
            Err(_) => Body::new(Refused(MANY_REQUESTS.into())),
        }
    }

    fn of(&self, uid: u32) -> Places {
        let mut by_uid = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        // (Who has a request has a place of this kind.)
        by_uid.retain(|_, places| Arc::strong_count(&places.requests) > 1);
        let Limits { large, halves, requests, .. } = self.limits;
        let places = |count| Arc::new(Semaphore::new(count));
        let new = || Places {
            large: places(large),
            halves: places(halves),
            requests: places(requests),
            headers: Arc::default(),
        };
        by_uid.entry(uid).or_insert_with(new).clone()
    }
}

const MANY_REQUESTS: &str =
    "you have reached the maximum of unfinished requests of one user: end some of your commands";

/// What is read of a request beyond the bound: why.
struct Refused(String);

impl http_body::Body for Refused {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Poll::Ready(Some(Err(Status::resource_exhausted(&self.0))))
    }
}

/// What a host says on a stream, which is broken off if too much of that host is not whole.
struct Weighed {
    body: Body,
    host: Arc<str>,
    lengths: Lengths,
    /// Bytes of the message that is not whole.
    counted: u64,
    /// The sum of these of its host, and how much that may be.
    all: Arc<AtomicU64>,
    most: u64,
    _request: OwnedSemaphorePermit,
}

impl Weighed {
    fn new(
        body: Body,
        host: Arc<str>,
        (all, most): (Arc<AtomicU64>, u64),
        request: OwnedSemaphorePermit,
    ) -> Weighed {
        let lengths = Lengths::default();
        Weighed { body, host, lengths, counted: 0, all, most, _request: request }
    }

    /// False: it is more than may be.
    fn count(&mut self) -> bool {
        let now = self.lengths.unfinished() as u64;
        let before = std::mem::replace(&mut self.counted, now);
        let all = self.all.fetch_add(now, Ordering::AcqRel).saturating_add(now);
        self.all.fetch_sub(before, Ordering::AcqRel);
        now <= before || all.saturating_sub(before) <= self.most
    }
}

impl Drop for Weighed {
    fn drop(&mut self) {
        self.all.fetch_sub(self.counted, Ordering::AcqRel);
    }
}

impl http_body::Body for Weighed {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(http_body::Body::poll_frame(Pin::new(&mut self.body), cx));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            self.lengths.measure(data);
            if !self.count() {
                let text = format!(
                    "the host {} has begun messages of more than {} bytes, and ended none of them",
                    self.host, self.most
                );
                tracing::warn!("a stream is broken off: {text}");
                return Poll::Ready(Some(Err(Status::resource_exhausted(text))));
            }
        }
        Poll::Ready(frame)
    }
}

/// What is said on a stream; no part of a message goes on before there is a place for it.
struct Measured {
    body: Body,
    large: PollSemaphore,
    halves: PollSemaphore,
    place: Option<(Begun, OwnedSemaphorePermit)>,
    /// Waits for a place.
    held: Option<Frame<Bytes>>,
    lengths: Lengths,
    _request: OwnedSemaphorePermit,
}

impl Measured {
    fn new(body: Body, places: Places, small: usize, request: OwnedSemaphorePermit) -> Measured {
        let Places { large, halves, .. } = places;
        let (large, halves) = (PollSemaphore::new(large), PollSemaphore::new(halves));
        let lengths = Lengths { small, ..Lengths::default() };
        Measured { body, large, halves, place: None, held: None, lengths, _request: request }
    }
}

impl http_body::Body for Measured {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
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
        Poll::Ready(self.held.take().map(Ok))
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
}

impl Lengths {
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

    /// A stream of this user's, and what is said on it.
    fn stream(places: &Places) -> (mpsc::UnboundedSender<Bytes>, Measured) {
        let (says, said) = mpsc::unbounded_channel();
        let request = Arc::clone(&places.requests).try_acquire_owned().expect("a place");
        (says, Measured::new(bodies::channel(said), places.clone(), SMALL_MAX, request))
    }

    fn header(length: usize) -> Bytes {
        let length = u32::try_from(length).expect("short").to_be_bytes();
        [&[0][..], &length].concat().into()
    }

    /// Bytes that come at once; `None`: it waits.
    fn comes(body: &mut Measured) -> Option<usize> {
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

    #[test]
    fn of_one_user_a_few_large_messages_are_on_their_way() {
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
        drop((streams, hers, his));
        halves.of(1002);
        assert_eq!(halves.of.lock().expect("whole").len(), 1, "who has none is forgotten");
    }

    #[test]
    fn of_one_user_not_many_small_ones_are_half_said() {
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

    /// What is read at once is that too much is unfinished.
    fn refused(mut body: impl http_body::Body<Error = Status> + Unpin) -> bool {
        match bodies::poll(&mut body) {
            Poll::Ready(Some(Err(status))) => status.code() == tonic::Code::ResourceExhausted,
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

    #[test]
    fn of_one_host_unfinished_messages_have_so_many_bytes() {
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

    #[test]
    fn of_one_host_only_so_many_requests_are_unread() {
        let all = PartialMessages::new(LIMITS, OF_HOSTS);
        let kept: Vec<_> = (0..OF_HOSTS.requests).map(|_| of_host(&all, "n1", None)).collect();
        assert!(refused(of_host(&all, "n1", None).1));
        assert!(!refused(of_host(&all, "n2", None).1));
        // Its users have bounds of their own.
        assert!(!refused(of_host(&all, "n1", Some(1000)).1));
        drop(kept);
        assert!(!refused(of_host(&all, "n1", None).1));
        assert_eq!(all.hosts.lock().expect("whole").len(), 1, "who has none is forgotten");
    }

    #[test]
    fn of_one_user_only_so_many_requests_are_unread() {
        let all = PartialMessages::new(LIMITS, OF_HOSTS);
        let mut kept: Vec<_> =
            (0..LIMITS.requests).map(|_| all.body(1000, Body::empty())).collect();
        assert!(refused(all.body(1000, Body::empty())));
        assert!(!refused(all.body(1001, Body::empty())));
        kept.pop();
        assert!(!refused(all.body(1000, Body::empty())));
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
