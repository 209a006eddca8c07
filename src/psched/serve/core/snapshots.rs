//! Copies of the state for whoever only looks at it.
//!
//! A copy of a large state takes milliseconds, in which nothing else is done. So one is made for all who ask
//! until then, and no sooner after the last than that the loop has most of its time for other things; whoever
//! asks sees all that was so when he asked. Of a list that has many pages those after the first are made of the
//! last copy, which is kept for a moment where making it takes long: else each page would wait for its own.

use super::Core;
use crate::psched::decide::Scheduler;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Between two copies, at least.
const PAUSE: Duration = Duration::from_millis(2);
/// And so many times what the last one took.
const SHARE: u32 = 10;

/// The last copy is kept for the pages of a list for so long.
const KEPT: Duration = Duration::from_secs(5);

/// Those who wait for a copy, and when there may be one.
#[derive(Default)]
pub(super) struct Snapshots {
    waiting: Vec<oneshot::Sender<Arc<Scheduler>>>,
    /// Not before then.
    next: Option<Instant>,
    /// The last one, and when it goes.
    last: Option<(Arc<Scheduler>, Instant)>,
}

impl Snapshots {
    /// In how long there is something to do; none: nobody waits for a copy, and none is kept.
    pub fn due(&self) -> Option<Duration> {
        let left = |at: Instant| at.saturating_duration_since(Instant::now());
        let next = (!self.waiting.is_empty()).then(|| self.next.map_or(Duration::ZERO, left));
        let goes = self.last.as_ref().map(|(_, at)| left(*at));
        next.into_iter().chain(goes).min()
    }

    /// Throws the copy away that is kept, if its time is one of these: elsewhere, for that takes long too.
    fn drop_last(&mut self, when: impl FnOnce(Instant) -> bool) {
        if let Some((last, _)) = self.last.take_if(|(_, goes)| when(*goes)) {
            tokio::task::spawn_blocking(move || drop(last));
        }
    }
}

impl Core {
    /// A copy of the state is asked for; `follows`: for a page after the first.
    pub(super) fn snapshot(&mut self, answer: oneshot::Sender<Arc<Scheduler>>, follows: bool) {
        let last = self.snapshots.last.as_ref().filter(|(_, goes)| *goes > Instant::now());
        if let Some((last, _)) = last.filter(|_| follows) {
            let last = Arc::clone(last);
            return self.look(Box::new(move |_| drop(answer.send(last))));
        }
        self.snapshots.waiting.push(answer);
        self.snapshots_due();
    }

    /// Makes the copy that is due, and throws away the one whose time is over.
    pub(super) fn snapshots_due(&mut self) {
        let now = Instant::now();
        self.snapshots.drop_last(|goes| goes <= now);
        if self.snapshots.next.is_none_or(|next| next <= now) {
            self.hand_out_snapshot();
        }
    }

    fn hand_out_snapshot(&mut self) {
        let mut waiting = std::mem::take(&mut self.snapshots.waiting);
        waiting.retain(|answer| !answer.is_closed());
        if waiting.is_empty() {
            return;
        }
        self.snapshots.drop_last(|_| true);
        let began = Instant::now();
        let snapshot = Arc::new(self.driver.scheduler().clone());
        let ended = Instant::now();
        let pause = PAUSE.max((ended - began) * SHARE);
        self.snapshots.next = Some(ended + pause);
        self.snapshots.last = (pause > PAUSE).then(|| (Arc::clone(&snapshot), ended + KEPT));
        self.look(Box::new(move |_| {
            for answer in waiting {
                let _ = answer.send(Arc::clone(&snapshot));
            }
        }));
    }
}
