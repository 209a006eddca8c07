//! Messages that wait for another host of an application, with a bound on their number and their bytes.
//!
//! A host that does not read must not fill the memory of the head: at the bound the queue is emptied and takes
//! nothing more. What a host asks for again while it waits (the end of a barrier) waits once.

use crate::rpc::pb;
use crate::rpc::pb::to_peer::Message as Said;
use prost::Message;
use std::collections::{BTreeSet, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use tokio_stream::Stream;

/// Messages that may wait: some for each of the thousands of hosts to which this one may lead on.
const MESSAGES_MAX: usize = 256 * 1_024;

/// A piece of the end of a barrier, by the hosts that it goes to (empty: the peer itself), the barrier's generation
/// and the piece's number.
type Piece = (Vec<u32>, u64, u32);

#[derive(Debug, Default)]
struct Waiting {
    messages: VecDeque<(u64, Option<Piece>, pb::ToPeer)>,
    /// Bytes of all of them.
    bytes: u64,
    /// Which of the messages are pieces of ends of barriers.
    pieces: BTreeSet<Piece>,
    /// Nothing more is taken or given.
    closed: bool,
    reader: Option<Waker>,
}

impl Waiting {
    fn close(&mut self) {
        *self = Waiting { closed: true, reader: self.reader.take(), ..Waiting::default() };
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// The message is queued, or the same message is queued already, or the peer's stream is closed.
    Yes,
    /// It was one too many: the queue is closed now.
    Full,
}

/// Where messages are put. Dropping it closes the queue.
#[derive(Debug)]
pub(super) struct PeerSender {
    waiting: Arc<Mutex<Waiting>>,
    /// Bytes that may wait.
    room: u64,
}

/// Messages in order, until the queue is closed.
#[derive(Debug)]
pub(super) struct PeerQueue(Arc<Mutex<Waiting>>);

/// A queue for so many bytes.
pub(super) fn queue(room: u64) -> (PeerSender, PeerQueue) {
    let waiting = Arc::<Mutex<Waiting>>::default();
    (PeerSender { waiting: Arc::clone(&waiting), room }, PeerQueue(waiting))
}

fn lock(waiting: &Mutex<Waiting>) -> MutexGuard<'_, Waiting> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PeerSender {
    pub fn send(&self, message: pb::ToPeer) -> Sent {
        let (bytes, piece) = (message.encoded_len() as u64, piece(&message));
        let mut waiting = lock(&self.waiting);
        if waiting.closed || piece.as_ref().is_some_and(|piece| waiting.pieces.contains(piece)) {
            return Sent::Yes;
        }
        let all = waiting.bytes.saturating_add(bytes);
        if waiting.messages.len() >= MESSAGES_MAX || all > self.room {
            waiting.close();
            return Sent::Full;
        }
        waiting.bytes = all;
        waiting.pieces.extend(piece.clone());
        waiting.messages.push_back((bytes, piece, message));
        if let Some(reader) = waiting.reader.take() {
            reader.wake();
        }
        Sent::Yes
    }
}

impl Drop for PeerSender {
    fn drop(&mut self) {
        lock(&self.waiting).close();
    }
}

impl Stream for PeerQueue {
    type Item = pb::ToPeer;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<pb::ToPeer>> {
        let mut waiting = lock(&self.0);
        match waiting.messages.pop_front() {
            Some((bytes, piece, message)) => {
                waiting.bytes -= bytes;
                if let Some(piece) = piece {
                    waiting.pieces.remove(&piece);
                }
                Poll::Ready(Some(message))
            }
            None if waiting.closed => Poll::Ready(None),
            None => {
                waiting.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for PeerQueue {
    fn drop(&mut self) {
        lock(&self.0).close();
    }
}

/// The piece of the end of a barrier that this is.
fn piece(message: &pb::ToPeer) -> Option<Piece> {
    let of = |to: &[u32], said: &Said| match said {
        Said::BarrierOut(out) => Some((to.to_vec(), out.generation, out.piece)),
        _ => None,
    };
    match message.message.as_ref()? {
        Said::Pass(pass) => of(&pass.to_runs, pass.message.as_ref()?.message.as_ref()?),
        said => of(&[], said),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apteam::protocol::attach::OutputTaken;
    use crate::apteam::protocol::peers::{BarrierOut, Indices, Pass, PmiEntry, ToPeer};
    use tokio_stream::StreamExt;

    fn taken(offset: u64) -> ToPeer {
        ToPeer::OutputTaken(OutputTaken { source: 1, offset })
    }

    /// A piece with a kilobyte.
    fn end_of(generation: u64, piece: u32) -> ToPeer {
        let entry = PmiEntry { key: "k".into(), value: vec![b'v'; 1_000].into() };
        ToPeer::BarrierOut(BarrierOut { generation, piece, last: false, entries: vec![entry] })
    }

    fn pass(to: u32, message: ToPeer) -> ToPeer {
        ToPeer::Pass(Box::new(Pass { to: Indices::of([to]), message }))
    }

    fn send(sender: &PeerSender, message: ToPeer) -> Sent {
        sender.send(message.into())
    }

    #[tokio::test]
    async fn a_host_that_does_not_read_has_so_many_bytes() {
        let (sender, mut queue) = queue(3_500);
        for piece in 0..3 {
            assert_eq!(send(&sender, end_of(1, piece)), Sent::Yes);
        }
        assert!(queue.next().await.is_some());
        assert_eq!(send(&sender, end_of(1, 3)), Sent::Yes, "what was read does not wait");
        assert_eq!(send(&sender, end_of(1, 4)), Sent::Full);
        // It is told once, and nothing is left.
        assert_eq!(send(&sender, end_of(1, 5)), Sent::Yes);
        assert!(lock(&sender.waiting).messages.is_empty());
        assert_eq!(queue.next().await, None);
    }

    #[test]
    fn a_host_that_does_not_read_has_so_many_messages() {
        let (sender, _queue) = queue(u64::MAX);
        for n in 0..MESSAGES_MAX {
            assert_eq!(send(&sender, taken(n as u64)), Sent::Yes);
        }
        assert_eq!(send(&sender, taken(0)), Sent::Full);
    }

    /// A host may say each time anew that it is in a barrier that is over.
    #[tokio::test]
    async fn the_end_of_a_barrier_waits_once() {
        let (sender, mut queue) = queue(10_000);
        for _ in 0..100 {
            for piece in 0..2 {
                assert_eq!(send(&sender, end_of(1, piece)), Sent::Yes);
                assert_eq!(send(&sender, pass(2, end_of(1, piece))), Sent::Yes);
                assert_eq!(send(&sender, pass(3, end_of(1, piece))), Sent::Yes);
            }
        }
        assert_eq!(lock(&sender.waiting).messages.len(), 6);
        // Once it is read it may be said again.
        assert!(queue.next().await.is_some());
        assert_eq!(send(&sender, end_of(1, 0)), Sent::Yes);
        assert_eq!(lock(&sender.waiting).messages.len(), 6);
        drop(sender);
        assert_eq!(queue.next().await, None);
    }
}
