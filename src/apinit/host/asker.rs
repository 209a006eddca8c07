//! Who asks an apinit for a checkpoint or brings it one, while the question is open.

use super::coming::Coming;
use crate::node::checkpoint::fd_channel::{Answer, say};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// A process that has asked, as long as its question is open. Dropping this ends the connection.
#[derive(Debug)]
pub(super) struct Asker {
    /// Of the question; none is used twice.
    pub number: u64,
    /// As the kernel says.
    pub uid: u32,
    /// Likewise.
    pub gid: u32,
    /// (Of one on another host.) How it is known whether the files have come that he brings.
    pub afar: Option<Coming>,
    /// None: it is being dropped.
    pub(super) stream: Option<UnixStream>,
    /// To the thread that listens to him: it closes the stream, for that may wait for what he sent.
    pub(super) back: Option<oneshot::Sender<UnixStream>>,
    pub(super) deadline: Deadline,
}

/// When a step is over.
#[derive(Clone, Debug)]
pub(super) struct Deadline(Arc<Mutex<Instant>>);

impl Deadline {
    pub fn after(wait: Duration) -> Deadline {
        Deadline(Arc::new(Mutex::new(Instant::now() + wait)))
    }

    fn set(&self, at: Instant) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = at;
    }

    pub fn get(&self) -> Instant {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Asker {
    /// From now on he is waited for so long, until this is called again; then he is gone.
    pub fn expect_within(&self, wait: Duration) {
        self.deadline.set(Instant::now() + wait);
    }

    /// Tells him. If he is gone, that is heard as an event.
    pub fn say(&mut self, answer: Answer) {
        if let Some(stream) = &mut self.stream {
            let _ = say(stream, answer);
        }
    }

    /// Tells him what may have no room in the socket, on a thread that waits for him. Nothing else may be said
    /// before he has heard it.
    pub fn say_much(&self, answer: Answer) {
        if let Some(Ok(mut stream)) = self.stream.as_ref().map(UnixStream::try_clone) {
            // An Err: he is gone, or does not read, and is hung up on when he says so.
            tokio::task::spawn_blocking(move || say(&mut stream, answer));
        }
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        if let (Some(stream), Some(back)) = (self.stream.take(), self.back.take()) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
            let _ = back.send(stream);
        }
    }
}
