//! The side of a shepherd's connection that sends.
//!
//! # Problem
//! A shepherd may not read for a while: its host is busy, or somebody has stopped it. What is said
//! to it meanwhile has to wait, in bounded memory, and none of it may be a reason to give up an
//! application that runs. The windows bound the *bytes* of output and stdin that are on their way;
//! a user who types, or a program that writes lines, makes thousands of messages of few bytes.
//!
//! # Approach
//! Usually the socket takes a message at once, and no task has to be woken. What it does not take
//! waits in a queue in which messages are put together: the latest word on output that is written
//! makes the earlier ones needless, and stdin that follows what waits is added to it.
//!
//! ```text
//! waits:  Stdin 0 "ab"  OutputTaken 10                        comes: Stdin 2 "c"
//! waits:  Stdin 0 "abc"  OutputTaken 10                       comes: OutputTaken 12
//! waits:  Stdin 0 "abc"  OutputTaken 12
//! ```
//!
//! Letters of other hosts are thrown away where many wait: whoever has sent them sends them again. Everything else that can
//! be said is little: a launch, an end, the signals that an apinit keeps.

use crate::apteam::Key;
use crate::apteam::protocol::attach::StdinPiece;
use crate::apteam::protocol::shepherd::{Hello, ToShepherd};
use crate::node::frames::pieces;
use crate::rpc::pb;
use bytes::BytesMut;
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, Shutdown, sendmsg, shutdown};
use prost::Message;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;

/// Messages that may wait for a shepherd. A conversation as it should be stays far below, whatever
/// `stdin_max` is: one that does not is at fault, and its shepherd counts as lost.
const WAITING_MAX: usize = 4096;
/// Letters among them, and their bytes.
const LETTERS_MAX: usize = 512;
const LETTERS_BYTES: usize = 8 * 1024 * 1024;
/// Bytes of stdin that are put together into one message: what is added is copied with what waits,
/// and it must stay one packet.
const TOGETHER: usize = 16 * 1024;

/// Until a message is sent again for which the kernel had no memory.
const NO_MEMORY_PAUSE: Duration = Duration::from_millis(10);

/// A connection in tokio's event loop.
pub(super) type Wire = AsyncFd<Arc<OwnedFd>>;

/// Says things to one shepherd.
#[derive(Debug)]
pub(super) struct ShepherdWriter {
    wire: Arc<Wire>,
    queue: Arc<Mutex<Queue>>,
    /// Wakes the task that sends what waits; closed when it has ended.
    wake: mpsc::Sender<()>,
}

/// What waits.
#[derive(Debug, Default)]
struct Queue {
    messages: VecDeque<ToShepherd>,
    /// The task has taken one out and not sent it yet.
    sending: bool,
}

impl Queue {
    fn push(&mut self, message: ToShepherd) {
        match &message {
            ToShepherd::OutputTaken(offset) => {
                let taken = self.messages.iter_mut().rev().find_map(|m| match m {
                    ToShepherd::OutputTaken(offset) => Some(offset),
                    _ => None,
                });
                if let Some(taken) = taken {
                    // It may be told before what was said in between: that has nothing to do with it.
                    *taken = *offset.max(taken);
                    return;
                }
            }
            ToShepherd::Stdin(piece) => {
                let last = self.messages.iter_mut().rev().find_map(|m| match m {
                    ToShepherd::Stdin(piece) => Some(piece),
                    _ => None,
                });
                if last.is_some_and(|last| add(last, piece)) {
                    return;
                }
            }
            ToShepherd::Letter(letter) => {
                let costs = self.messages.iter().filter_map(|m| match m {
                    ToShepherd::Letter(letter) => Some(letter.cost()),
                    _ => None,
                });
                let (count, bytes) = costs.fold((0, 0), |(n, all), cost| (n + 1, all + cost));
                if count >= LETTERS_MAX || bytes + letter.cost() > LETTERS_BYTES {
                    return;
                }
            }
            _ => {}
        }
        self.messages.push_back(message);
    }
}

/// Adds a piece of stdin to the one before it, if it follows and there is room.
fn add(last: &mut StdinPiece, next: &StdinPiece) -> bool {
    let together = last.data.len() + next.data.len();
    if last.end() != next.offset || together > TOGETHER {
        return false;
    }
    let mut data = BytesMut::with_capacity(together);
    data.extend_from_slice(&last.data);
    data.extend_from_slice(&next.data);
    last.data = data.freeze();
    true
}

impl ShepherdWriter {
    /// Opens it with a hello.
    pub fn open(key: Key, wire: &Arc<Wire>) -> ShepherdWriter {
        let (wake, woken) = mpsc::channel(1);
        let queue = Arc::new(Mutex::new(Queue::default()));
        tokio::spawn(send_what_waits(Arc::clone(wire), Arc::clone(&queue), woken));
        let mouth = ShepherdWriter { wire: Arc::clone(wire), queue, wake };
        mouth.send(ToShepherd::Hello(Hello { key, ..Hello::default() }));
        mouth
    }

    /// False: too much waits for it.
    pub fn send(&self, message: ToShepherd) -> bool {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.messages.is_empty() && !queue.sending {
            let bytes = pb::ToShepherd::from(message.clone()).encode_to_vec();
            let mut packets = pieces(&bytes);
            if let (Some(only), None) = (packets.next(), packets.next())
                && send_packet(self.wire.as_raw_fd(), only).is_ok()
            {
                return true;
            }
        }
        queue.push(message);
        let fits = queue.messages.len() <= WAITING_MAX;
        drop(queue);
        match self.wake.try_send(()) {
            // Full: it is awake.
            Ok(()) | Err(mpsc::error::TrySendError::Full(())) => fits,
            // The connection is broken, which the side that hears tells.
            Err(mpsc::error::TrySendError::Closed(())) => true,
        }
    }
}

fn send_packet(fd: RawFd, (header, payload): (u8, &[u8])) -> io::Result<()> {
    let header = [header];
    let parts = [IoSlice::new(&header), IoSlice::new(payload)];
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    sendmsg::<()>(fd, &parts, &[], flags, None)?;
    Ok(())
}

/// Sends what waits, until nothing more can come.
async fn send_what_waits(wire: Arc<Wire>, queue: Arc<Mutex<Queue>>, mut woken: mpsc::Receiver<()>) {
    let next = || {
        let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
        let next = queue.messages.pop_front();
        queue.sending = next.is_some();
        next
    };
    while woken.recv().await.is_some() {
        while let Some(message) = next() {
            let bytes = pb::ToShepherd::from(message).encode_to_vec();
            for packet in pieces(&bytes) {
                let send = |fd: &Arc<OwnedFd>| send_packet(fd.as_raw_fd(), packet);
                while let Err(error) = wire.async_io(Interest::WRITABLE, send).await {
                    let errno = error.raw_os_error().map(Errno::from_raw);
                    if !matches!(errno, Some(Errno::ENOBUFS | Errno::ENOMEM | Errno::EINTR)) {
                        // The side that hears notices it too, also where only this one is broken.
                        let _ = shutdown(wire.as_raw_fd(), Shutdown::Both);
                        return;
                    }
                    // The host has no memory to spare now; the connection is sound.
                    tokio::time::sleep(NO_MEMORY_PAUSE).await;
                }
            }
        }
    }
    // All is said: the shepherd reads to the end, says what it has to say, and closes.
    let _ = shutdown(wire.as_raw_fd(), Shutdown::Write);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apteam::protocol::attach::NumberedSignal;
    use proptest::prelude::*;

    fn stdin(offset: u64, text: &str) -> ToShepherd {
        ToShepherd::Stdin(StdinPiece { offset, data: text.to_owned().into() })
    }

    #[test]
    fn what_waits_is_put_together() {
        let mut queue = Queue::default();
        let signal = ToShepherd::Signal(NumberedSignal { number: 1, signal: 10 });
        for message in [
            stdin(0, "ab"),
            ToShepherd::OutputTaken(10),
            signal.clone(),
            stdin(2, "c"),
            ToShepherd::OutputTaken(12),
            // Repeated from further back: not what follows.
            stdin(1, "bc"),
            ToShepherd::StdinEnd(3),
        ] {
            queue.push(message);
        }
        let waits: Vec<ToShepherd> = queue.messages.into();
        let end = ToShepherd::StdinEnd(3);
        assert_eq!(
            waits,
            [stdin(0, "abc"), ToShepherd::OutputTaken(12), signal, stdin(1, "bc"), end]
        );
    }

    proptest! {
        /// However small the pieces: nothing of stdin is lost or out of order, the last word on
        /// output is told, and what waits is few.
        #[test]
        fn little_waits_and_nothing_is_lost(steps in prop::collection::vec(0usize..200, 0..4000)) {
            let mut queue = Queue::default();
            let (mut fed, mut taken) = (Vec::new(), 0);
            let (mut got, mut told, mut most) = (Vec::new(), 0, 0);
            let hear = |queue: &mut Queue, got: &mut Vec<u8>, told: &mut u64| {
                match queue.messages.pop_front() {
                    Some(ToShepherd::Stdin(piece)) => {
                        assert_eq!(piece.offset, got.len() as u64);
                        got.extend_from_slice(&piece.data);
                    }
                    Some(ToShepherd::OutputTaken(offset)) => *told = offset.max(*told),
                    _ => return false,
                }
                true
            };
            for step in steps {
                match step {
                    // Rarely, for it is slow.
                    0 => {
                        hear(&mut queue, &mut got, &mut told);
                    }
                    _ if step % 2 == 0 => {
                        taken += step as u64;
                        queue.push(ToShepherd::OutputTaken(taken));
                    }
                    _ => {
                        let data: Vec<u8> = (0..step as u8).collect();
                        let offset = fed.len() as u64;
                        fed.extend_from_slice(&data);
                        queue.push(ToShepherd::Stdin(StdinPiece { offset, data: data.into() }));
                    }
                }
                let waits = fed.len() - got.len();
                most = most.max(queue.messages.len());
                prop_assert!(queue.messages.len() <= 3 + 2 * waits / TOGETHER, "{waits}");
            }
            while hear(&mut queue, &mut got, &mut told) {}
            prop_assert_eq!((got, told), (fed, taken));
        }
    }
}
