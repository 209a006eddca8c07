//! Rounds: how often a caller may do something before all others have had their turn.
//!
//! # Problem
//! The tasks of a runtime run in the order in which they are woken. A caller that has a thousand of
//! them holds up all others, and so does one whose tasks go on for long.
//!
//! # Approach
//! A round has so many turns. Once all of them have been used, the runtime goes through its queue
//! once, and then there is the next round. If nothing else is to be done the queue is empty: a lone
//! caller is not slowed down. The next round begins no earlier: tokio runs a task that another one
//! has just spawned before all that wait (its LIFO slot), and polls one that has called `yield_now`
//! when it has looked for I/O, which may be in the middle of the queue. A task that wakes itself
//! goes to the end of the queue.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The rounds of one caller.
#[derive(Debug)]
pub struct Rounds {
    /// What is left of the round. It is never closed, and serves those who wait in their order.
    turns: Arc<Semaphore>,
    /// Turns of the round that have been used.
    used: AtomicUsize,
    /// Turns of a round.
    round: usize,
    /// Rounds that are over.
    #[cfg(test)]
    over: AtomicUsize,
}

impl Rounds {
    /// Rounds of so many turns.
    pub fn new(round: usize) -> Rounds {
        Rounds {
            turns: Arc::new(Semaphore::new(round)),
            used: AtomicUsize::new(0),
            round,
            #[cfg(test)]
            over: AtomicUsize::new(0),
        }
    }

    /// How many rounds are over.
    #[cfg(test)]
    pub fn over(&self) -> usize {
        self.over.load(Ordering::Acquire)
    }

    /// The turns, of which each is to be used as it is taken.
    pub fn turns(&self) -> &Arc<Semaphore> {
        &self.turns
    }

    /// Waits for a turn, and uses it.
    pub async fn turn(&self) {
        if let Ok(turn) = Arc::clone(&self.turns).acquire_owned().await {
            self.uses(turn);
        }
    }

    /// Uses a turn. With the last one of the round the next round is on its way.
    ///
    /// To be called within a tokio runtime.
    pub fn uses(&self, turn: OwnedSemaphorePermit) {
        turn.forget();
        if self.used.fetch_add(1, Ordering::AcqRel) + 1 < self.round {
            return;
        }
        // (No other task counts before there are turns again.)
        self.used.store(0, Ordering::Release);
        #[cfg(test)]
        self.over.fetch_add(1, Ordering::AcqRel);
        let (turns, round) = (Arc::clone(&self.turns), self.round);
        tokio::spawn(async move {
            end_of_queue().await;
            turns.add_permits(round);
        });
    }
}

/// Until the runtime has been through its queue once.
pub async fn end_of_queue() {
    let mut waited = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut waited, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
