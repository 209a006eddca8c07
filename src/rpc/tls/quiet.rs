//! Notices that nothing comes on a connection any more.
//!
//! HTTP/2's own keepalive waits for the answer to its question, which may stand behind much that is
//! being sent. Here each byte that comes is a sign of life, so the bound can be shorter: the
//! question is sent after [`KEEPALIVE`](super::KEEPALIVE), and its answer has the rest of
//! [`QUIET`]. On a slow connection the kernel still has what was written before the question: it
//! has time for that, by [`SLOWEST`].

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep};

/// How long an apinit on another host may send nothing. The kernel sends a lost question again
/// after 0.2, 0.6 and 1.4 s: three losses in a row are tolerated.
pub(super) const QUIET: Duration = Duration::from_secs(8);

/// Bytes in a second of the slowest connection that is to last: one of 100 kbit/s, which others
/// share.
const SLOWEST: u64 = 8 * 1024;
/// For what was written there is so much more time, at most. (Then keepalive ends the connection.)
const SENDS: Duration = Duration::from_secs(12);

/// Between two looks at the time. If it is more than twice as long this host stood still, which
/// says nothing of the other one.
const LOOK: Duration = Duration::from_secs(1);

/// How long nothing has come.
pub(super) struct Quiet {
    most: Duration,
    heard: Instant,
    /// Bytes that were written since something came.
    written: u64,
    looked: Instant,
    timer: Pin<Box<Sleep>>,
    /// The connection took no more bytes.
    full: bool,
}

impl Quiet {
    /// Of a connection on which nothing may come for so long.
    pub fn new(most: Duration) -> Quiet {
        let now = Instant::now();
        let timer = Box::pin(sleep(LOOK));
        Quiet { most, heard: now, written: 0, looked: now, timer, full: false }
    }

    /// Something has come.
    pub fn heard(&mut self) {
        (self.heard, self.written) = (Instant::now(), 0);
    }

    /// The connection has taken so many bytes to be sent; none: it is full. It takes more after it
    /// was full only if the other side has acknowledged some.
    pub fn takes(&mut self, bytes: Option<usize>) {
        if bytes.is_some() && self.full {
            self.heard = Instant::now();
        }
        self.full = bytes.is_none();
        self.written = self.written.saturating_add(bytes.unwrap_or(0) as u64);
    }

    /// Ready once nothing has come for too long.
    pub fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.timer.as_mut().poll(cx));
            let now = Instant::now();
            if now > self.looked + 2 * LOOK {
                self.heard = now;
            }
            self.looked = now;
            let sends = Duration::from_secs(self.written / SLOWEST).min(SENDS);
            let until = self.heard + self.most + sends;
            if until <= now {
                return Poll::Ready(());
            }
            self.timer.as_mut().reset(until.min(now + LOOK));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use tokio::time::{advance, timeout};

    async fn is_over(quiet: &mut Quiet, within: Duration) -> bool {
        timeout(within, poll_fn(|cx| quiet.poll_over(cx))).await.is_ok()
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn it_is_over_when_nothing_has_come_for_so_long() {
        let mut quiet = Quiet::new(8 * SECOND);
        assert!(!is_over(&mut quiet, 7 * SECOND).await);
        quiet.heard();
        assert!(!is_over(&mut quiet, 7 * SECOND).await, "it is counted from what came last");
        assert!(is_over(&mut quiet, 2 * SECOND).await);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_acknowledged_is_a_sign_of_life() {
        let mut quiet = Quiet::new(8 * SECOND);
        assert!(!is_over(&mut quiet, 5 * SECOND).await);
        quiet.takes(Some(1));
        assert!(!is_over(&mut quiet, 2 * SECOND).await);
        quiet.takes(None);
        quiet.takes(Some(1));
        assert!(!is_over(&mut quiet, 7 * SECOND).await, "it was full, and takes more");
        quiet.takes(Some(1));
        assert!(is_over(&mut quiet, 2 * SECOND).await, "there was room before");
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_written_has_time_to_be_sent() {
        let mut quiet = Quiet::new(8 * SECOND);
        quiet.takes(Some(4 * SLOWEST as usize));
        assert!(!is_over(&mut quiet, 11 * SECOND).await);
        assert!(is_over(&mut quiet, 2 * SECOND).await);
        let mut quiet = Quiet::new(8 * SECOND);
        quiet.takes(Some(1_000 * SLOWEST as usize));
        assert!(!is_over(&mut quiet, 19 * SECOND).await);
        assert!(is_over(&mut quiet, 2 * SECOND).await, "it has a bound");
    }

    #[tokio::test(start_paused = true)]
    async fn a_standstill_of_this_host_is_no_silence_of_the_other() {
        let mut quiet = Quiet::new(8 * SECOND);
        assert!(!is_over(&mut quiet, SECOND).await);
        advance(60 * SECOND).await;
        assert!(!is_over(&mut quiet, 7 * SECOND).await);
        assert!(is_over(&mut quiet, 2 * SECOND).await);
    }
}
