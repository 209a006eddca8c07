//! What an apinit says to its front ends and heads, with a bound on what may wait.

use crate::apteam::protocol::attach::FromApinit;
use crate::apteam::protocol::peers::FromPeer;
use crate::rpc::pb;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::Status;

/// Messages other than output that may wait for a front end that does not read. It has seldom more
/// than a few; but each that it sends may have an answer.
pub(super) const FRONT_WORDS_MAX: usize = 1_024;
/// The same for a head, or a host on the way to it, which is an apinit and reads: some from each of the
/// thousands of hosts that may be beyond this one.
pub(super) const HEAD_WORDS_MAX: usize = 256 * 1_024;
/// Bytes of letters of other hosts that may wait for it: more are thrown away, for whoever has sent them sends them again.
const LETTERS_MAX: u64 = 16 * 1024 * 1024;

/// What a message in the queue counts for: bytes of output and of letters. Without output it is a word.
type Counts = (u64, u64);

/// Towards a front end, or a head. Its output is bounded by the window, of each host if there are many, unless
/// it says that it has written what it has not even read; what else there is to tell it, by
/// a number of messages.
#[derive(Clone, Debug)]
pub(super) struct StreamSender<P> {
    queue: mpsc::UnboundedSender<(Counts, Result<P, Status>)>,
    /// Messages in the queue that are not output, and how many there may be.
    words: Arc<AtomicUsize>,
    words_max: usize,
    /// Bytes of output in the queue.
    output: Arc<AtomicU64>,
    /// Bytes of letters in the queue.
    letters: Arc<AtomicU64>,
    /// Ends the connection.
    hang_up: CancellationToken,
}

/// Towards a front end.
pub(super) type FrontSender = StreamSender<pb::FromApinit>;

impl<P: Send + 'static> StreamSender<P> {
    pub fn new(
        hang_up: CancellationToken,
        words_max: usize,
    ) -> (StreamSender<P>, impl Stream<Item = Result<P, Status>> + Send) {
        let (queue, receiver) = mpsc::unbounded_channel();
        let sender = StreamSender {
            queue,
            words: Arc::default(),
            words_max,
            output: Arc::default(),
            letters: Arc::default(),
            hang_up,
        };
        let waiting = [&sender.output, &sender.letters].map(Arc::clone);
        let words = Arc::clone(&sender.words);
        let told = UnboundedReceiverStream::new(receiver).map(move |((output, letter), told)| {
            words.fetch_sub(usize::from(output == 0), Ordering::AcqRel);
            waiting[0].fetch_sub(output, Ordering::AcqRel);
            waiting[1].fetch_sub(letter, Ordering::AcqRel);
            told
        });
        (sender, told)
    }

    /// Sends a letter of so many bytes, unless too many wait.
    fn send_letter(&self, message: P, bytes: u64) {
        let waiting = self.letters.load(Ordering::Acquire);
        if waiting.saturating_add(bytes) > LETTERS_MAX
            || self.words.load(Ordering::Acquire) >= self.words_max / 2
        {
            return;
        }
        self.letters.fetch_add(bytes, Ordering::AcqRel);
        self.words.fetch_add(1, Ordering::AcqRel);
        let _ = self.queue.send(((0, bytes), Ok(message)));
    }

    /// Sends a message that has so many bytes of output. False: too much waits for it already; of output, more than
    /// `room` bytes.
    pub fn send(&self, message: P, bytes: u64, room: u64) -> bool {
        let words = self.words.fetch_add(usize::from(bytes == 0), Ordering::AcqRel);
        let output = self.output.fetch_add(bytes, Ordering::AcqRel);
        let full =
            if bytes == 0 { words >= self.words_max } else { output.saturating_add(bytes) > room };
        if full {
            return false;
        }
        // An Err: it is gone, which is told as an event.
        let _ = self.queue.send(((bytes, 0), Ok(message)));
        true
    }

    /// Ends the connection, and so what waits for a front end that does not read: dropping this end
    /// of the queue would leave it in the hands of HTTP/2, which looks at it only when there is room
    /// to send.
    pub fn hang_up(&self) {
        self.hang_up.cancel();
    }

    /// The last that it hears.
    pub fn refuse(&self, status: Status) {
        self.words.fetch_add(1, Ordering::AcqRel);
        let _ = self.queue.send(((0, 0), Err(status)));
    }
}

/// What is said on a stream, and how many bytes of output are in it.
pub(super) trait OnStream: Into<Self::Wire> {
    /// Its message.
    type Wire: Send + 'static;
    /// Whom it is for, for the log.
    const READER: &'static str;
    /// Bytes of output in it; 0: something else.
    fn output(&self) -> u64;
    /// It is a letter of so many bytes.
    fn letter(&self) -> Option<u64> {
        None
    }
}

impl OnStream for FromApinit {
    type Wire = pb::FromApinit;
    const READER: &'static str = "front end";
    fn output(&self) -> u64 {
        match self {
            FromApinit::Output(output) => output.data.len() as u64,
            _ => 0,
        }
    }
}

impl OnStream for FromPeer {
    type Wire = pb::FromPeer;
    const READER: &'static str = "head";
    fn output(&self) -> u64 {
        match self {
            FromPeer::Output(output) => output.data.len() as u64,
            FromPeer::Beyond(beyond) => beyond.message.output(),
            _ => 0,
        }
    }
    fn letter(&self) -> Option<u64> {
        match self {
            FromPeer::Letter(letter) => Some(letter.cost() as u64),
            FromPeer::Beyond(beyond) => beyond.message.letter(),
            _ => None,
        }
    }
}

/// Tells whoever is at the other end, for whom so many bytes of output may wait. False: he does not read, and his
/// connection has been closed.
pub(super) fn tell<M: OnStream>(
    sender: &mut Option<StreamSender<M::Wire>>,
    message: M,
    room: u64,
) -> bool {
    if let Some(bytes) = message.letter() {
        if let Some(sender) = sender {
            sender.send_letter(message.into(), bytes);
        }
        return true;
    }
    let bytes = message.output();
    let mut message = Some(message.into());
    let full = sender
        .take_if(|sender| message.take().is_some_and(|message| !sender.send(message, bytes, room)));
    if let Some(sender) = &full {
        tracing::warn!("a {} does not read its messages; its connection is closed", M::READER);
        sender.hang_up();
    }
    full.is_none()
}

/// Towards a head.
pub(super) type HeadSender = StreamSender<pb::FromPeer>;

/// A head's stream, as the shell has it.
#[derive(Debug)]
pub(super) struct Head {
    /// Towards it, as long as it is open.
    pub sender: Option<HeadSender>,
    /// As of a front end.
    _listening: DropGuard,
}

impl Head {
    pub fn new(sender: HeadSender, listening: DropGuard) -> Head {
        Head { sender: Some(sender), _listening: listening }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apteam::protocol::attach::Output;

    #[tokio::test]
    async fn what_waits_for_a_front_end_is_bounded() {
        let (sender, told) = FrontSender::new(CancellationToken::new(), FRONT_WORDS_MAX);
        let mut told = std::pin::pin!(told);
        let output = |bytes: usize| {
            let data = vec![b'x'; bytes].into();
            let nid = crate::machine::Nid(0);
            let output =
                Output { source: 0, offset: 0, rank: 0, nid, stderr: false, data, report: None };
            FromApinit::Output(output).into()
        };
        let going = || FromApinit::Going.into();
        assert!(sender.send(output(6), 6, 10));
        assert!(sender.send(going(), 0, 0));
        assert!(sender.send(output(4), 4, 10));
        assert!(!sender.clone().send(output(1), 1, 10));
        // What it has read does not wait.
        let (sender, read) = FrontSender::new(CancellationToken::new(), FRONT_WORDS_MAX);
        told.set(read);
        for _ in 0..2 {
            assert!(sender.send(output(10), 10, 10));
            assert!(told.next().await.is_some());
        }
        for _ in 0..FRONT_WORDS_MAX {
            assert!(sender.send(going(), 0, 0));
        }
        assert!(!sender.send(going(), 0, 0));
    }
}
