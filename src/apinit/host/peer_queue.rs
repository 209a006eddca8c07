//! Messages that wait for another host of an application, with a bound on their number and their bytes.
//!
//! A host that does not read must not fill the memory of the head: at the bound the queue is emptied and takes
//! nothing more.
//!
//! The end of a barrier is large, and hosts may ask for it again at any time. So its pieces are
//! kept once, whatever number of hosts waits for them: those that ask while the pieces are on their
//! way are given all of them in a second pass. A host needs the pieces in order, from the first.

use crate::apteam::protocol::peers::{BarrierOut, Indices, Pass, ToPeer};
use crate::rpc::pb;
use prost::Message;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use tokio_stream::Stream;

/// Messages that may wait: some for each of the thousands of hosts to which this one may lead on.
const MESSAGES_MAX: usize = 256 * 1_024;

/// Bytes that a piece of the end of a barrier counts for beside its entries.
const PIECE_COST: u64 = 64;

/// For which hosts a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum To {
    /// The host at the other end, which is not named.
    Itself,
    /// Hosts that are named.
    Named,
}

/// What waits at its place in the queue.
#[derive(Debug)]
enum Entry {
    /// A message, and how many bytes it has.
    Message(u64, Box<pb::ToPeer>),
    /// The next piece of the end of a barrier.
    Piece(To),
}

/// The end of a barrier, on its way to some hosts.
#[derive(Debug, Default)]
struct BarrierEnd {
    generation: u64,
    /// Those that have come, from the first.
    pieces: Vec<BarrierOut>,
    /// Bytes of all of them.
    bytes: u64,
    /// How many have been given to the hosts of this pass.
    given: usize,
    /// The hosts of this pass (none: the peer itself).
    hosts: BTreeSet<u32>,
    /// There is a second pass, for these.
    then: Option<BTreeSet<u32>>,
    /// It has an entry in the queue.
    queued: bool,
}

#[derive(Debug, Default)]
struct Waiting {
    entries: VecDeque<Entry>,
    /// Bytes of all messages and pieces.
    bytes: u64,
    ends: BTreeMap<To, BarrierEnd>,
    /// Nothing more is taken or given.
    closed: bool,
    reader: Option<Waker>,
}

impl Waiting {
    fn close(&mut self) {
        *self = Waiting { closed: true, reader: self.reader.take(), ..Waiting::default() };
        self.wake();
    }

    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    /// With so many bytes more it would have half of what it may have, or more.
    fn is_half_full(&self, bytes: u64, room: u64) -> bool {
        self.entries.len() >= MESSAGES_MAX / 2 || self.bytes.saturating_add(bytes) > room / 2
    }

    /// Takes a message. False: there is no room for it.
    fn add(&mut self, message: pb::ToPeer, room: u64) -> bool {
        let bytes = message.encoded_len() as u64;
        let all = self.bytes.saturating_add(bytes);
        if self.entries.len() >= MESSAGES_MAX || all > room {
            return false;
        }
        self.bytes = all;
        self.entries.push_back(Entry::Message(bytes, Box::new(message)));
        true
    }

    /// Takes a piece of the end of a barrier for these hosts. False: there is no room for it.
    fn add_piece(&mut self, hosts: Option<&Indices>, piece: BarrierOut, room: u64) -> bool {
        let to = if hosts.is_some() { To::Named } else { To::Itself };
        let runs = hosts.into_iter().flat_map(|hosts| hosts.0.iter());
        let hosts: BTreeSet<u32> =
            runs.flat_map(|(first, count)| *first..first.saturating_add(*count)).collect();
        let number = piece.piece as usize;
        if number > 0 && !self.ends.contains_key(&to) {
            // A host that lacks the pieces before this one can do nothing with it.
            return true;
        }
        let end = self.ends.entry(to).or_default();
        if number == 0 && (end.pieces.is_empty() || end.generation < piece.generation) {
            // (All hosts are in this barrier: none waits for the end of another one.)
            self.bytes = self.bytes.saturating_sub(end.bytes);
            let generation = piece.generation;
            *end = BarrierEnd { generation, queued: end.queued, ..BarrierEnd::default() };
            end.hosts.clone_from(&hosts);
        }
        if end.generation != piece.generation || number > end.pieces.len() {
            return true;
        }
        if end.given == 0 {
            end.hosts.extend(hosts);
        } else if number == 0 || !hosts.is_subset(&end.hosts) {
            end.then.get_or_insert_default().extend(hosts);
        }
        if number < end.pieces.len() {
            return true;
        }
        let entries: u64 = piece.entries.iter().map(|entry| entry.cost() as u64).sum();
        let bytes = entries.saturating_add(PIECE_COST);
        let all = self.bytes.saturating_add(bytes);
        if self.entries.len() >= MESSAGES_MAX || all > room {
            return false;
        }
        (self.bytes, end.bytes) = (all, end.bytes.saturating_add(bytes));
        end.pieces.push(piece);
        if !std::mem::replace(&mut end.queued, true) {
            self.entries.push_back(Entry::Piece(to));
        }
        true
    }

    fn next(&mut self) -> Option<pb::ToPeer> {
        loop {
            match self.entries.pop_front()? {
                Entry::Message(bytes, message) => {
                    self.bytes = self.bytes.saturating_sub(bytes);
                    return Some(*message);
                }
                Entry::Piece(to) => {
                    if let Some(message) = self.next_piece(to) {
                        return Some(message);
                    }
                }
            }
        }
    }

    fn next_piece(&mut self, to: To) -> Option<pb::ToPeer> {
        let end = self.ends.get_mut(&to)?;
        end.queued = false;
        let piece = end.pieces.get(end.given)?;
        let message = ToPeer::BarrierOut(piece.clone());
        let message = match to {
            To::Itself => message,
            To::Named => {
                let to = Indices::of(end.hosts.iter().copied());
                ToPeer::Pass(Box::new(Pass { to, message }))
            }
        };
        let last = piece.last;
        end.given += 1;
        if !last {
            // (The pieces of one end are together.)
            end.queued = end.given < end.pieces.len();
            if end.queued {
                self.entries.push_front(Entry::Piece(to));
            }
        } else if let Some(then) = end.then.take() {
            (end.hosts, end.given, end.queued) = (then, 0, true);
            self.entries.push_back(Entry::Piece(to));
        } else if let Some(end) = self.ends.remove(&to) {
            self.bytes = self.bytes.saturating_sub(end.bytes);
        }
        Some(message.into())
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
    pub fn send(&self, message: ToPeer) -> Sent {
        let mut waiting = lock(&self.waiting);
        if waiting.closed {
            return Sent::Yes;
        }
        let letter = match &message {
            ToPeer::Letter(letter) => Some(letter),
            ToPeer::Pass(pass) => match &pass.message {
                ToPeer::Letter(letter) => Some(letter),
                _ => None,
            },
            _ => None,
        };
        // (Whoever has sent it sends it again.)
        if letter.is_some_and(|letter| waiting.is_half_full(letter.cost() as u64, self.room)) {
            return Sent::Yes;
        }
        let taken = match message {
            ToPeer::BarrierOut(piece) => waiting.add_piece(None, piece, self.room),
            ToPeer::Pass(pass) => match *pass {
                Pass { to, message: ToPeer::BarrierOut(piece) } => {
                    waiting.add_piece(Some(&to), piece, self.room)
                }
                pass => waiting.add(ToPeer::Pass(Box::new(pass)).into(), self.room),
            },
            message => waiting.add(message.into(), self.room),
        };
        if !taken {
            waiting.close();
            return Sent::Full;
        }
        waiting.wake();
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
        match waiting.next() {
            Some(message) => Poll::Ready(Some(message)),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apteam::ending::Cause;
    use crate::apteam::protocol::attach::OutputTaken;
    use crate::apteam::protocol::peers::PmiEntry;
    use crate::machine::Nid;
    use std::time::Duration;
    use tokio_stream::StreamExt;

    fn taken(offset: u64) -> ToPeer {
        ToPeer::OutputTaken(OutputTaken { source: 1, offset })
    }

    /// A piece with a kilobyte.
    fn end_of(generation: u64, piece: u32) -> ToPeer {
        let entry = PmiEntry { key: "k".into(), value: vec![b'v'; 1_000].into() };
        ToPeer::BarrierOut(BarrierOut { generation, piece, last: piece == 2, entries: vec![entry] })
    }

    fn pass(to: u32, message: ToPeer) -> ToPeer {
        ToPeer::Pass(Box::new(Pass { to: Indices::of([to]), message }))
    }

    fn send(sender: &PeerSender, message: ToPeer) -> Sent {
        sender.send(message)
    }

    #[tokio::test]
    async fn a_host_that_does_not_read_has_so_many_bytes() {
        let (sender, mut queue) = queue(3_500);
        let end = || ToPeer::Terminate {
            cause: Cause::Garbage { rank: 0, nid: Nid(0), text: "t".repeat(1_000) },
            kill_after: Duration::from_secs(5),
        };
        for _ in 0..3 {
            assert_eq!(send(&sender, end()), Sent::Yes);
        }
        assert!(queue.next().await.is_some());
        assert_eq!(send(&sender, end_of(1, 0)), Sent::Yes, "what was read does not wait");
        assert_eq!(send(&sender, end_of(1, 1)), Sent::Full);
        // It is told once, and nothing is left.
        assert_eq!(send(&sender, end_of(1, 2)), Sent::Yes);
        assert!(lock(&sender.waiting).entries.is_empty());
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

    /// What is read until nothing waits, of pieces: for whom, of which barrier, and which.
    fn read(queue: &mut PeerQueue) -> Vec<(Vec<u32>, u64, u32)> {
        let mut waiting = lock(&queue.0);
        let mut all = Vec::new();
        while let Some(message) = waiting.next() {
            all.push(match ToPeer::try_from(message).expect("a message") {
                ToPeer::BarrierOut(out) => (Vec::new(), out.generation, out.piece),
                ToPeer::Pass(pass) => match pass.message {
                    ToPeer::BarrierOut(out) => {
                        let to = (0..10).filter(|index| pass.to.has(*index)).collect();
                        (to, out.generation, out.piece)
                    }
                    other => panic!("{other:?}"),
                },
                other => panic!("{other:?}"),
            });
        }
        assert_eq!((waiting.bytes, waiting.ends.len()), (0, 0), "nothing is left");
        all
    }

    fn one(queue: &mut PeerQueue) -> Option<pb::ToPeer> {
        lock(&queue.0).next()
    }

    /// All pieces of the end of a barrier.
    fn whole(generation: u64, pass: impl Fn(ToPeer) -> ToPeer) -> Vec<ToPeer> {
        (0..3).map(|piece| pass(end_of(generation, piece))).collect()
    }

    /// Hosts may say each time anew that they are in a barrier that is over.
    #[test]
    fn the_end_of_a_barrier_waits_once() {
        let (sender, mut queue) = queue(3_500);
        for _ in 0..100 {
            for host in [2, 3, 5] {
                for message in whole(1, |end| pass(host, end)) {
                    assert_eq!(send(&sender, message), Sent::Yes);
                }
            }
        }
        let to = |piece| (vec![2, 3, 5], 1, piece);
        assert_eq!(read(&mut queue), [to(0), to(1), to(2)]);
    }

    /// Of the peer itself too.
    #[test]
    fn a_peer_is_told_a_barrier_once_more_if_it_asks_meanwhile() {
        let (sender, mut queue) = queue(3_500);
        let say = |end| assert_eq!(send(&sender, end), Sent::Yes);
        for _ in 0..2 {
            whole(1, |end| end).into_iter().for_each(say);
        }
        assert!(one(&mut queue).is_some());
        for _ in 0..2 {
            whole(1, |end| end).into_iter().for_each(say);
        }
        let to = |piece| (Vec::new(), 1, piece);
        assert_eq!(read(&mut queue), [to(1), to(2), to(0), to(1), to(2)]);
    }

    /// Each host has all pieces, in order.
    #[test]
    fn hosts_that_ask_while_pieces_are_sent_have_a_second_pass() {
        let (sender, mut queue) = queue(3_500);
        let say = |host, piece| assert_eq!(send(&sender, pass(host, end_of(1, piece))), Sent::Yes);
        (0..3).for_each(|piece| say(2, piece));
        assert!(one(&mut queue).is_some());
        (0..3).for_each(|piece| say(3, piece));
        say(4, 0);
        // The pass is read while this is said.
        assert!(
            one(&mut queue).is_some() && one(&mut queue).is_some() && one(&mut queue).is_some()
        );
        (1..3).for_each(|piece| say(4, piece));
        say(5, 0);
        let (both, last) = (|piece| (vec![3, 4], 1, piece), |piece| (vec![5], 1, piece));
        assert_eq!(read(&mut queue), [both(1), both(2), last(0), last(1), last(2)]);
        // What comes without its beginning is of no use.
        say(6, 1);
        assert_eq!(read(&mut queue), []);
    }

    /// When the next barrier is complete, all hosts have left the one before.
    #[test]
    fn only_the_end_of_the_last_barrier_waits() {
        let (sender, mut queue) = queue(3_500);
        let say = |end| assert_eq!(send(&sender, pass(2, end)), Sent::Yes);
        whole(1, |end| end).into_iter().for_each(say);
        assert!(one(&mut queue).is_some());
        whole(2, |end| end).into_iter().for_each(say);
        whole(1, |end| end).into_iter().for_each(say);
        let to = |piece| (vec![2], 2, piece);
        assert_eq!(read(&mut queue), [to(0), to(1), to(2)]);
    }
}
