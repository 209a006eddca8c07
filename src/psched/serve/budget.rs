//! What the questions of one user may take of psched: calls that wait, answers that are put together at once,
//! and bytes of answers that have not been read.
//!
//! Putting a large answer together takes time, and an answer that its caller does not read takes memory. Both
//! are paid by the user who asked, as the kernel says who that is. An answer counts until it has been written to
//! its connection: [`metered`] takes it apart into pieces, each of which counts until HTTP/2 has written it
//! ([`pieces`](crate::rpc::pieces)).

use crate::rpc::bodies::{Hook, Hooked};
use crate::rpc::kept::Kept;
use crate::rpc::listen::Peer;
use crate::rpc::pieces::{Pieces, holding};
use bytes::Bytes;
use http_body::Frame;
use prost::Message;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::body::Body;
use tonic::codegen::http;
use tonic::{Response, Status};

/// Answers that one user has not read, in bytes. A larger one takes all of it.
const BYTES_MAX: u32 = 8 << 20;
/// Calls of one user that may wait to be answered; one more is refused.
const CALLS_MAX: usize = 256;
/// Answers of one user that are put together at once, or wait for their part of [`BYTES_MAX`].
const OWN_MAX: usize = 1;
/// Answers of all users that are put together at once, each on a thread.
const BUILDERS_MAX: usize = 3;
/// How long a call waits for its turn.
const PATIENCE: Duration = Duration::from_secs(25);
/// How long it waits for others of its user's answers to be read; then no more are given until half of them have
/// been.
const READ_WAIT: Duration = Duration::from_secs(2);

/// The budgets of all users.
#[derive(Clone, Debug)]
pub struct Budgets {
    of: Kept<u32, Budget>,
    builders: Arc<Semaphore>,
}

/// That of one.
#[derive(Debug)]
struct Budget {
    calls: Arc<Semaphore>,
    own: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    /// An answer has waited for [`READ_WAIT`] in vain.
    unread: AtomicBool,
}

impl Budget {
    /// # Errors
    /// This user does not read.
    fn reads(&self) -> Result<(), Status> {
        let few = self.bytes.available_permits() < BYTES_MAX as usize / 2;
        if few && self.unread.load(Ordering::Relaxed) { Err(not_read()) } else { Ok(()) }
    }
}

impl Default for Budgets {
    fn default() -> Budgets {
        Budgets { of: Kept::default(), builders: Arc::new(Semaphore::new(BUILDERS_MAX)) }
    }
}

fn too_many() -> Status {
    Status::resource_exhausted(format!(
        "you have {CALLS_MAX} requests that wait for psched, the maximum of one user: try again \
         when some of them are answered"
    ))
}

fn not_read() -> Status {
    Status::resource_exhausted(format!(
        "{} MiB of answers to you are unread, the maximum of one user: end your programs that \
         do not read their answers, or try again later",
        BYTES_MAX >> 20
    ))
}

fn too_late() -> Status {
    Status::unavailable(format!(
        "psched has been busy with other requests for {} s: try again later",
        PATIENCE.as_secs()
    ))
}

fn lost() -> Status {
    Status::internal("psched lost this request by an internal error: try again")
}

impl Budgets {
    fn of(&self, uid: u32) -> Arc<Budget> {
        let new = || Budget {
            calls: Arc::new(Semaphore::new(CALLS_MAX)),
            own: Arc::new(Semaphore::new(OWN_MAX)),
            bytes: Arc::new(Semaphore::new(BYTES_MAX as usize)),
            unread: AtomicBool::new(false),
        };
        // (An answer that waits holds its bytes, not this.)
        let idle = |of: &Budget| of.bytes.available_permits() == BYTES_MAX as usize;
        self.of.of_unless(uid, new, idle)
    }

    /// The turn of a call whose answer is to be put together.
    ///
    /// # Errors
    /// This user has too many calls that wait, or does not read what he has been answered.
    pub async fn enter(&self, peer: &Peer) -> Result<Turn, Status> {
        let budget = self.of(peer.uid);
        let call = Arc::clone(&budget.calls).try_acquire_owned().map_err(|_| too_many())?;
        let turn = async {
            budget.reads()?;
            let own = Arc::clone(&budget.own).acquire_owned().await;
            budget.reads()?;
            let builder = Arc::clone(&self.builders).acquire_owned().await;
            Ok::<_, Status>((own.map_err(|_| lost())?, builder.map_err(|_| lost())?))
        };
        let turn = tokio::time::timeout(PATIENCE, turn).await;
        let (own, builder) = turn.map_err(|_| too_late())??;
        Ok(Turn { budget, _call: call, _own: own, builder })
    }
}

/// A call that is being answered.
#[derive(Debug)]
pub struct Turn {
    budget: Arc<Budget>,
    _call: OwnedSemaphorePermit,
    _own: OwnedSemaphorePermit,
    builder: OwnedSemaphorePermit,
}

impl Turn {
    /// Puts the answer together, on a thread that may take its time.
    ///
    /// # Errors
    /// Those of `work`.
    pub async fn build<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Status> + Send + 'static,
    ) -> Result<T, Status> {
        tokio::task::spawn_blocking(work).await.map_err(|_| lost())?
    }

    /// Hands the answer over, once this user has read enough of what came before.
    ///
    /// # Errors
    /// He does not.
    pub async fn answer<M: Message>(self, reply: M) -> Result<Response<M>, Status> {
        let Turn { budget, _call, _own, builder } = self;
        // Another user's may be put together meanwhile.
        drop(builder);
        let bytes = u32::try_from(reply.encoded_len()).unwrap_or(u32::MAX).clamp(1, BYTES_MAX);
        let room = Arc::clone(&budget.bytes).acquire_many_owned(bytes);
        let room = tokio::time::timeout(READ_WAIT, room).await;
        budget.unread.store(room.is_err(), Ordering::Relaxed);
        let room = room.map_err(|_| not_read())?;
        let held = Held { _room: Arc::new(room.map_err(|_| lost())?) };
        let mut response = Response::new(reply);
        response.extensions_mut().insert(held);
        Ok(response)
    }
}

/// What an answer has of its user's budget, until it has been written.
#[derive(Clone, Debug)]
struct Held {
    _room: Arc<OwnedSemaphorePermit>,
}

/// Has an answer that counts go out in pieces, which hold what it has of the budget until the last is written.
pub fn metered(mut response: http::Response<Body>) -> http::Response<Body> {
    match response.extensions_mut().remove::<Held>() {
        Some(held) => response.map(|body| Body::new(Hooked::new(Pieces::new(body), held))),
        None => response,
    }
}

impl Hook for Held {
    fn passes(&mut self, frame: Frame<Bytes>) -> Frame<Bytes> {
        frame.map_data(|data| holding(data, self.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::bodies;
    use crate::rpc::listen::tests::peer_of;
    use std::task::{Context, Poll};

    fn piece(body: &mut Body) -> Option<Bytes> {
        match bodies::poll(body) {
            Poll::Ready(Some(Ok(frame))) => frame.into_data().ok(),
            _ => None,
        }
    }

    #[tokio::test]
    async fn an_answer_counts_until_it_is_written() {
        let budgets = Budgets::default();
        let peer = peer_of(7);
        let turn = budgets.enter(&peer).await.expect("the first");
        let reply = crate::rpc::pb::EventRow { detail: "x".repeat(40_000), ..Default::default() };
        let response = turn.answer(reply).await.expect("there is room");
        let (_, reply, extensions) = response.into_parts();
        let left = || BYTES_MAX as usize - budgets.of(7).bytes.available_permits();
        assert_eq!(left(), reply.encoded_len());
        let mut response = http::Response::new(bodies::whole(reply.detail));
        *response.extensions_mut() = extensions;
        let mut body = metered(response).into_body();
        let pieces: Vec<Bytes> = std::iter::from_fn(|| piece(&mut body)).collect();
        assert_eq!(pieces.iter().map(Bytes::len).sum::<usize>(), 40_000);
        drop(body);
        for piece in pieces {
            assert!(left() > 40_000, "HTTP/2 has it");
            drop(piece);
        }
        assert_eq!(left(), 0);
    }

    #[tokio::test]
    async fn one_user_waits_for_himself() {
        let budgets = Budgets::default();
        let (anna, bert) = (peer_of(1), peer_of(2));
        let _first = budgets.enter(&anna).await.expect("the first");
        let mut more = Vec::new();
        for _ in 1..CALLS_MAX {
            let mut next = Box::pin({
                let (budgets, anna) = (budgets.clone(), anna.clone());
                async move { budgets.enter(&anna).await }
            });
            let mut cx = Context::from_waker(std::task::Waker::noop());
            assert!(next.as_mut().poll(&mut cx).is_pending());
            more.push(next);
        }
        let refused = budgets.enter(&anna).await.expect_err("too many");
        assert!(refused.message().contains("you have 256 requests that wait"), "{refused}");
        budgets.enter(&bert).await.expect("he has his own");
    }
}
