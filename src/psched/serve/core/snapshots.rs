//! Copies of the state for whoever only looks at it.
//!
//! A copy of a large state takes milliseconds, in which nothing else is done. So one is made for all who ask
//! until then, and no sooner after the last than that the loop has most of its time for other things; whoever
//! asks sees all that was so when he asked.

use super::Core;
use crate::psched::decide::Scheduler;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Between two copies, at least.
const PAUSE: Duration = Duration::from_millis(2);
/// And so many times what the last one took.
const SHARE: u32 = 10;

/// Those who wait for a copy, and when there may be one.
#[derive(Default)]
pub(super) struct Snapshots {
    waiting: Vec<oneshot::Sender<Arc<Scheduler>>>,
    /// Not before then.
    next: Option<Instant>,
}

impl Snapshots {
    /// In how long the next is made; none: nobody waits for one.
    pub fn due(&self) -> Option<Duration> {
        let next =
            self.next.map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now()));
        (!self.waiting.is_empty()).then_some(next)
    }
}

impl Core {
    pub(super) fn snapshot(&mut self, answer: oneshot::Sender<Arc<Scheduler>>) {
        self.snapshots.waiting.push(answer);
        if self.snapshots.due() == Some(Duration::ZERO) {
            self.hand_out_snapshot();
        }
    }

    pub(super) fn hand_out_snapshot(&mut self) {
        let mut waiting = std::mem::take(&mut self.snapshots.waiting);
        waiting.retain(|answer| !answer.is_closed());
        if waiting.is_empty() {
            return;
        }
        let began = Instant::now();
        let snapshot = Arc::new(self.driver.scheduler().clone());
        let ended = Instant::now();
        self.snapshots.next = Some(ended + PAUSE.max((ended - began) * SHARE));
        self.look(Box::new(move |_| {
            for answer in waiting {
                let _ = answer.send(Arc::clone(&snapshot));
            }
        }));
    }
}
