//! The store thread: group commit, and what happens when the disk says no.
//!
//! The main loop hands over a [`Commit`] for each event: what is to be kept, and what may leave
//! psched once it is. All that have gathered while the last transaction was on its way to the disk
//! go into the next one; then their releases come back, in order. What goes when is decided by the
//! pure [`Keeper`]; this is its thread. While transactions fail, the flag [`Trouble`] makes the
//! gate refuse postings with the reason.

use super::store::Store;
use crate::scheduler::outbox::{self, BATCH_MAX, Keeper};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, Weak};
use tokio::sync::mpsc::UnboundedSender;

/// An answer to a question that was asked after what is on its way to the disk.
pub type Answer = Box<dyn FnOnce() + Send>;
/// Something that waits for records to be durable.
pub type Release = outbox::Release<Answer>;
/// What one event left to be done.
pub type Commit = outbox::Commit<Answer>;
/// What comes back.
pub type Outcome = outbox::Outcome<Answer>;

/// Why the store can't take anything just now, and whether its thread is there at all.
#[derive(Clone, Debug, Default)]
pub struct Trouble {
    reason: Arc<Mutex<Option<String>>>,
    /// Of what the thread holds until it ends, however it does.
    thread: Weak<()>,
}

impl Trouble {
    /// The reason, if there is one.
    pub fn reason(&self) -> Option<String> {
        self.reason.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }

    /// The store thread has not died.
    pub fn has_thread(&self) -> bool {
        self.thread.strong_count() > 0
    }

    fn set(&self, reason: Option<String>) {
        *self.reason.lock().unwrap_or_else(|e| e.into_inner()) = reason;
    }
}

/// Starts the store thread. It ends, everything written, when the sender is dropped.
///
/// # Errors
/// No thread could be made.
pub fn start(
    store: Store,
    back: UnboundedSender<Vec<Outcome>>,
) -> std::io::Result<(Sender<Commit>, Trouble, std::thread::JoinHandle<()>)> {
    let (sender, receiver) = channel();
    let alive = Arc::new(());
    let trouble = Trouble { thread: Arc::downgrade(&alive), ..Trouble::default() };
    let keeper = Keeper::default();
    let committer = Committer { store, receiver, back, trouble: trouble.clone(), keeper };
    let thread = std::thread::Builder::new().name("store".into()).spawn(move || {
        let _alive = alive;
        committer.run();
    })?;
    Ok((sender, trouble, thread))
}

struct Committer {
    store: Store,
    receiver: Receiver<Commit>,
    back: UnboundedSender<Vec<Outcome>>,
    trouble: Trouble,
    keeper: Keeper<Answer>,
}

impl Committer {
    fn run(mut self) {
        loop {
            let first = match self.keeper.patience() {
                Some(time) => self.receiver.recv_timeout(time),
                None => self.receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            let mut batch = Vec::new();
            match first {
                Ok(commit) => batch.push(commit),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            while batch.len() < BATCH_MAX
                && let Ok(commit) = self.receiver.try_recv()
            {
                batch.push(commit);
            }
            match self.keeper.take(batch) {
                Some(outcomes) => drop(self.back.send(outcomes)),
                None => self.keep(),
            }
        }
        // The last lazy ones: one try, for the process is about to end, and their nodes know.
        if let Err(error) = self.store.write(&self.keeper.records()) {
            tracing::warn!(%error, "progress of applications was not kept");
        }
    }

    fn keep(&mut self) {
        while let Err(error) = self.store.write(&self.keeper.records()) {
            let why = error.to_string();
            tracing::error!("{why}");
            self.trouble.set(Some(why.clone()));
            let failed = self.keeper.failed(&why);
            // The refused are told at once; the others wait for a store that works again.
            let _ = self.back.send(failed.outcomes);
            match failed.again {
                Some(pause) => std::thread::sleep(pause),
                None => return,
            }
        }
        self.trouble.set(None);
        let _ = self.back.send(self.keeper.written());
    }
}
