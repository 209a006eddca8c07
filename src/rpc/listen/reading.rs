//! How much of a user's connections is read before all others have had their turn.
//!
//! # Problem
//! HTTP/2 reads a connection until nothing more is there, and tokio lets it read a hundred times
//! before another task runs. Of a caller that writes without a pause that is a megabyte, with
//! thousands of requests; each is taken apart, and begun or refused. With some connections a user
//! held up all others for seconds, however few of his requests were begun.
//!
//! # Approach
//! All connections of a user together read [`ROUND`] portions ([`Bounds::portion`]), then the
//! runtime goes through its queue once ([`rounds`](crate::rpc::rounds)). Connections of root and of
//! our own user have no such bound.
//!
//! [`Bounds::portion`]: super::Bounds::portion

use crate::rpc::rounds::Rounds;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio_util::sync::PollSemaphore;

/// Portions that one user's connections read in one round.
const ROUND: usize = 2;

/// The rounds in which the connections of one user are read.
pub(super) fn rounds() -> Rounds {
    Rounds::new(ROUND)
}

/// What one connection may read.
#[derive(Debug)]
pub(super) struct Reading {
    /// None: as much as there is.
    turns: Option<(Arc<Rounds>, PollSemaphore)>,
    /// What is left of its portion.
    left: usize,
    /// Bytes of a portion.
    portion: usize,
}

impl Reading {
    /// Portions of so many bytes, in these rounds, if any.
    pub fn new(rounds: Option<Arc<Rounds>>, portion: usize) -> Reading {
        let turns = rounds.map(|rounds| {
            let semaphore = PollSemaphore::new(Arc::clone(rounds.turns()));
            (rounds, semaphore)
        });
        Reading { turns, left: 0, portion }
    }

    /// Waits until something may be read. None: without a bound.
    pub fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Option<usize>> {
        let Some((rounds, turns)) = &mut self.turns else { return Poll::Ready(None) };
        if self.left == 0 {
            // (It is never closed.)
            if let Some(turn) = ready!(turns.poll_acquire(cx)) {
                rounds.uses(turn);
            }
            self.left = self.portion;
        }
        Poll::Ready(Some(self.left))
    }

    /// So many bytes have been read.
    pub fn reads(&mut self, bytes: usize) {
        self.left = self.left.saturating_sub(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::rounds::end_of_queue;
    use std::future::poll_fn;

    const PORTION: usize = 4_096;

    /// While one user reads as much as he can on many connections, each time that the runtime goes
    /// through its queue a round of his is read, and no more.
    #[tokio::test]
    async fn one_user_reads_a_round_at_a_time() {
        const CONNECTIONS: usize = 20;
        let (his, read) = (Arc::new(rounds()), Arc::new(std::sync::Mutex::new(0)));
        for _ in 0..CONNECTIONS {
            let (mut reading, read) =
                (Reading::new(Some(Arc::clone(&his)), PORTION), Arc::clone(&read));
            tokio::spawn(async move {
                loop {
                    let room = poll_fn(|cx| reading.poll_room(cx)).await.expect("a bound");
                    reading.reads(room.min(3_000));
                    *read.lock().expect("sound") += room.min(3_000);
                }
            });
        }
        let passes = tokio::spawn(async move {
            let (mut before, mut most) = (0, 0);
            for _ in 0..1_000 {
                end_of_queue().await;
                let now = *read.lock().expect("sound");
                most = most.max(now - before);
                before = now;
            }
            (before, most)
        });
        let (before, most) = passes.await.expect("no panic");
        assert!(before > 100 * ROUND * PORTION, "{before}: it does not go on");
        assert!(most <= 2 * ROUND * PORTION, "{most} in one pass");
    }

    #[tokio::test]
    async fn another_user_has_his_own_rounds() {
        let (hers, his) = (Arc::new(rounds()), Arc::new(rounds()));
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let mut of = |rounds: &Arc<Rounds>| {
            let mut reading = Reading::new(Some(Arc::clone(rounds)), PORTION);
            let room = reading.poll_room(&mut cx);
            (reading, room)
        };
        let all: Vec<_> = (0..ROUND).map(|_| of(&hers).1).collect();
        assert!(all.iter().all(|room| *room == Poll::Ready(Some(PORTION))));
        assert!(of(&hers).1.is_pending());
        assert_eq!(of(&his).1, Poll::Ready(Some(PORTION)));
        let mut of_root = Reading::new(None, PORTION);
        of_root.reads(1 << 30);
        assert_eq!(of_root.poll_room(&mut cx), Poll::Ready(None));
    }
}
