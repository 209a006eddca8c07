//! Fairness between callers: whose request is begun next.
//!
//! # Problem
//! HTTP/2 lets a caller send thousands of small requests in one packet. Each becomes a task of the
//! runtime, and the tasks run in the order in which they came: the request of any other caller
//! waited behind all of them, for seconds, and so did the heartbeats of hosts.
//!
//! # Approach
//! A caller begins [`ROUND`] requests. The next ones wait until all of these have begun and the runtime has been through
//! its queue once ([`rounds`](crate::rpc::rounds)), which gives all other tasks their turn; a lone caller is not slowed
//! down by that, since the queue is empty then. Only the beginning of a request is in turns: a request that waits for
//! something holds up no other one.
//!
//! A caller is a user of this host, or another host with all of its users: it says who its users
//! are, and could name another one for each request. (An honest login host has a bound for each
//! user before it passes requests on.) Root and our own user on this host have no turns.

use crate::rpc::kept::Kept;
use crate::rpc::listen::Peer;
use crate::rpc::relayed::{self, Sent};
use crate::rpc::rounds::Rounds;
use crate::rpc::tls::HostPeer;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tower::{Layer, Service};

/// Requests that one caller begins before all others have had their turn.
const ROUND: usize = 16;
/// The caller whose requests share turns.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Caller {
    User(u32),
    Host(Arc<str>),
}

/// The requests of one caller that are to begin.
#[derive(Debug)]
struct Queue {
    rounds: Rounds,
    waiting: AtomicUsize,
}

impl Queue {
    fn new() -> Queue {
        Queue { rounds: Rounds::new(ROUND), waiting: AtomicUsize::new(0) }
    }
}

/// A request that waits, among those of its caller.
struct Waits(Arc<Queue>);

impl Waits {
    /// None: `most` wait already.
    fn new(queue: Arc<Queue>, most: usize) -> Option<Waits> {
        let waits = Waits(queue);
        (waits.0.waiting.fetch_add(1, Ordering::AcqRel) < most).then_some(waits)
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The turns of all callers: a layer around services.
#[derive(Clone, Debug)]
pub struct RequestTurns {
    queues: Kept<Caller, Queue>,
    /// Requests that may wait, of a user and of a host.
    of_user: Arc<AtomicUsize>,
    of_host: usize,
}

impl RequestTurns {
    /// So many requests of a user, and of a host, may wait for their turns. A user's next one is
    /// refused, and the connection of a host with more is closed.
    pub fn new(of_user: usize, of_host: usize) -> RequestTurns {
        RequestTurns {
            queues: Kept::default(),
            of_user: Arc::new(AtomicUsize::new(of_user)),
            of_host,
        }
    }

    /// Changes how many requests of a user may wait.
    pub fn allow(&self, of_user: usize) {
        self.of_user.store(of_user, Ordering::Relaxed);
    }

    fn queue(&self, caller: Caller) -> Arc<Queue> {
        self.queues.of(caller, Queue::new)
    }

    /// Lets a request wait among those of its caller. `None`: it need not wait.
    ///
    /// # Errors
    /// Too many wait.
    fn enter(&self, request: &Request<Body>) -> Result<Option<Waits>, Status> {
        if let Some(host) = request.extensions().get::<HostPeer>() {
            let queue = self.queue(Caller::Host(Arc::clone(&host.name)));
            return Waits::new(queue, self.of_host).map(Some).ok_or_else(|| {
                // (Its answers may never be read: they must not be kept, either.)
                host.hang_up.cancel();
                let text = format!(
                    "the host {} has {} requests that wait, the maximum of one host",
                    host.name, self.of_host
                );
                relayed::unavailable(text, Sent::No)
            });
        }
        let Some(uid) = request.extensions().get::<Peer>().map(|peer| peer.uid) else {
            return Ok(None);
        };
        if uid == 0 || uid == nix::unistd::geteuid().as_raw() {
            return Ok(None);
        }
        let most = self.of_user.load(Ordering::Relaxed);
        Waits::new(self.queue(Caller::User(uid)), most).map(Some).ok_or_else(|| {
            let text = format!(
                "you have {most} requests that wait to be begun, the maximum of one user: try \
                 again when some of them are answered"
            );
            relayed::unavailable(text, Sent::No)
        })
    }
}

impl<S> Layer<S> for RequestTurns {
    type Service = InTurns<S>;

    fn layer(&self, inner: S) -> InTurns<S> {
        InTurns { inner, turns: self.clone() }
    }
}

/// A service whose requests begin in turns.
#[derive(Clone, Debug)]
pub struct InTurns<S> {
    inner: S,
    turns: RequestTurns,
}

impl<S> Service<Request<Body>> for InTurns<S>
where
    S: Service<Request<Body>, Response = Response<Body>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let waits = match self.turns.enter(&request) {
            Ok(Some(waits)) => waits,
            Ok(None) => return Box::pin(self.inner.call(request)),
            Err(status) => return Box::pin(std::future::ready(Ok(status.into_http()))),
        };
        // (The service that is ready is called, and not its clone.)
        let next = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, next);
        Box::pin(async move {
            waits.0.rounds.turn().await;
            drop(waits);
            inner.call(request).await
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::listen::tests::peer_of;
    use crate::rpc::rounds::end_of_queue;
    use std::convert::Infallible;
    use std::sync::Mutex;

    type Begun = Arc<Mutex<Vec<Caller>>>;

    /// A service that notes who asks, and never answers.
    #[derive(Clone, Default)]
    struct Notes(Begun);

    impl Service<Request<Body>> for Notes {
        type Response = Response<Body>;
        type Error = Infallible;
        type Future = std::future::Pending<Result<Response<Body>, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: Request<Body>) -> Self::Future {
            self.0.lock().expect("whole").push(caller(&request));
            std::future::pending()
        }
    }

    fn caller(request: &Request<Body>) -> Caller {
        let extensions = request.extensions();
        match extensions.get::<HostPeer>() {
            Some(host) => Caller::Host(Arc::clone(&host.name)),
            None => Caller::User(extensions.get::<Peer>().expect("somebody").uid),
        }
    }

    fn of_user(uid: u32) -> Request<Body> {
        let mut request = Request::new(Body::empty());
        request.extensions_mut().insert(peer_of(uid));
        request
    }

    fn of_host(name: &str, uid: Option<u32>) -> Request<Body> {
        let mut request = uid.map_or_else(|| Request::new(Body::empty()), of_user);
        request.extensions_mut().insert(crate::rpc::tls::tests::host_peer(name));
        request
    }

    /// Asks all of these at once, each in a task, and waits until they have begun. Returned: the
    /// callers, in the order in which their requests began.
    async fn ask(turns: &RequestTurns, requests: Vec<Request<Body>>) -> Vec<Caller> {
        let (notes, count) = (Notes::default(), requests.len());
        let mut service = turns.layer(notes.clone());
        for request in requests {
            tokio::spawn(service.call(request));
        }
        let begun = || notes.0.lock().expect("whole").clone();
        while begun().len() < count {
            tokio::task::yield_now().await;
        }
        begun()
    }

    #[tokio::test]
    async fn many_requests_of_one_caller_hold_up_no_other() {
        let turns = RequestTurns::new(5_000, 5_000);
        let many: [fn(u32) -> Request<Body>; 3] = [
            |_| of_user(8),
            |_| of_host("n1", None),
            // A host's users are no more than the host.
            |n| of_host("n1", Some(10_000 + n)),
        ];
        for (many, one) in many.iter().zip([of_user(7), of_host("n2", None), of_user(7)]) {
            let who = caller(&one);
            let mut requests: Vec<_> = (0..2_000).map(many).collect();
            requests.push(one);
            let begun = ask(&turns, requests).await;
            let place = begun.iter().position(|one| *one == who).expect("it has begun");
            assert!(place <= 100, "{who:?} is the {place}th");
        }
    }

    #[tokio::test]
    async fn only_so_many_requests_wait() {
        let turns = RequestTurns::new(20, 30);
        let mut service = turns.layer(Notes::default());
        let waiting: Vec<_> = (0..20).map(|_| service.call(of_user(7))).collect();
        let refused = service.call(of_user(7)).await.expect("an answer");
        let status = Status::from_header_map(refused.headers()).expect("refused");
        assert!(status.message().contains("you have 20 requests that wait"), "{status}");
        assert!(turns.enter(&of_user(8)).is_ok());
        turns.allow(21);
        assert!(turns.enter(&of_user(7)).is_ok());
        turns.allow(20);
        drop(waiting);
        assert!(turns.enter(&of_user(7)).is_ok(), "those that waited have gone");
        // A host beyond the bound is hung up on.
        let _waiting: Vec<_> =
            (0..30).map(|n| service.call(of_host("n1", (n > 9).then_some(n)))).collect();
        let more = of_host("n1", None);
        let hang_up = more.extensions().get::<HostPeer>().expect("a host").hang_up.clone();
        assert!(turns.enter(&more).is_err() && hang_up.is_cancelled());
        assert!(turns.enter(&of_host("n2", None)).is_ok());
    }

    /// While several callers have thousands of requests, the runtime goes through its queue and
    /// begins no more than a round of each: on the one thread on which the requests are spawned.
    #[test]
    fn no_caller_begins_a_round_before_the_last_one_has_begun() {
        const CALLERS: u32 = 8;
        const EACH: u32 = 40 * ROUND as u32;
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).build().expect("a runtime");
        let passes = async {
            let turns = RequestTurns::new(EACH as usize, EACH as usize);
            let notes = Notes::default();
            let mut service = turns.layer(notes.clone());
            let asked: Vec<_> = (0..CALLERS * EACH)
                .map(|n| tokio::spawn(service.call(of_user(100 + n % CALLERS))))
                .collect();
            // Each time that this task runs the runtime has been through its queue.
            let (mut begun, mut most) = (Vec::new(), 0);
            while begun.last().is_none_or(|all| *all < asked.len()) {
                end_of_queue().await;
                let now = notes.0.lock().expect("whole").len();
                most = most.max(now - begun.last().unwrap_or(&0));
                begun.push(now);
            }
            (begun.len(), most)
        };
        let passes = async { tokio::spawn(passes).await.expect("no panic") };
        let (passes, most) = runtime.block_on(passes);
        eprintln!("{passes} passes, at most {most} requests in one");
        assert!(most <= ROUND * CALLERS as usize, "{most} in one of {passes} passes");
    }
}
