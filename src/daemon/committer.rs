//! The store thread: group commit, and what happens when the disk says no.
//!
//! The main loop hands over a [`Commit`] for each event: what is to be kept, and what may leave
//! psched once it is ([`Commit::releases`]). All that have gathered while the last transaction was
//! on its way to the disk go into the next one; then their releases come back, in order.
//!
//! Lazy commits (an application's progress, which its node would tell again) are not waited for:
//! their releases come back at once and they are written with the next others, or after
//! [`LAZY_TIME`].
//!
//! When a transaction fails (disk full, say), new postings are taken out of it and refused, since
//! nobody has been told of them; the rest, ends of applications for example, is tried again until
//! it succeeds, and meanwhile the flag [`Trouble`] makes the gate refuse postings with the reason.

use super::store::{Record, Store};
use crate::apteam::Apid;
use crate::scheduler::Effect;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;

/// How long a lazy record may stay unwritten.
const LAZY_TIME: Duration = Duration::from_millis(50);
/// Commits that one transaction takes at most.
const BATCH_MAX: usize = 512;
/// Between two tries of what could not be written.
const RETRY_TIME: Duration = Duration::from_millis(250);

/// Something that waits for records to be durable.
pub enum Release {
    /// An effect of the scheduler.
    Effect(Effect),
    /// An answer to a question that was asked after them.
    Answer(Box<dyn FnOnce() + Send>),
}

/// What one event left to be done.
#[derive(Default)]
pub struct Commit {
    /// To be kept.
    pub records: Vec<Record>,
    /// To be done once they are.
    pub releases: Vec<Release>,
    /// Nobody waits for these records.
    pub lazy: bool,
    /// The posting that this is about: it may be refused.
    pub posting: Option<Apid>,
}

/// What comes back.
pub enum Outcome {
    /// Durable: do these.
    Release(Vec<Release>),
    /// This posting could not be kept, and why; its releases are given back undone.
    Refused { apid: Apid, why: String, releases: Vec<Release> },
}

/// Why the store can't take anything just now.
#[derive(Clone, Debug, Default)]
pub struct Trouble(Arc<Mutex<Option<String>>>);

impl Trouble {
    /// The reason, if there is one.
    pub fn reason(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }

    fn set(&self, reason: Option<String>) {
        *self.0.lock().unwrap_or_else(|e| e.into_inner()) = reason;
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
    let trouble = Trouble::default();
    let committer = Committer { store, receiver, back, trouble: trouble.clone(), lazy: Vec::new() };
    let thread = std::thread::Builder::new().name("store".into()).spawn(move || committer.run())?;
    Ok((sender, trouble, thread))
}

struct Committer {
    store: Store,
    receiver: Receiver<Commit>,
    back: UnboundedSender<Vec<Outcome>>,
    trouble: Trouble,
    /// Records that nobody waits for.
    lazy: Vec<Record>,
}

impl Committer {
    fn run(mut self) {
        loop {
            let first = if self.trouble.reason().is_some() {
                self.receiver.recv_timeout(RETRY_TIME)
            } else if self.lazy.is_empty() {
                self.receiver.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                self.receiver.recv_timeout(LAZY_TIME)
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
            if !batch.is_empty() && batch.iter().all(|c| c.lazy) {
                self.put_off(batch);
            } else {
                self.keep(batch);
            }
        }
        // The last lazy ones: one try, for the process is about to end, and their nodes know.
        let rest: Vec<&Record> = self.lazy.iter().collect();
        if let Err(error) = self.store.write(&rest) {
            tracing::warn!(%error, "progress of applications was not kept");
        }
    }

    fn put_off(&mut self, batch: Vec<Commit>) {
        let mut outcomes = Vec::new();
        for commit in batch {
            self.lazy.extend(commit.records);
            outcomes.push(Outcome::Release(commit.releases));
        }
        let _ = self.back.send(outcomes);
    }

    fn keep(&mut self, mut batch: Vec<Commit>) {
        let mut outcomes = Vec::new();
        loop {
            let records: Vec<&Record> =
                self.lazy.iter().chain(batch.iter().flat_map(|c| &c.records)).collect();
            // With nothing to write this tries whether the store works again.
            let Err(error) = self.store.write(&records) else { break };
            let why = error.to_string();
            tracing::error!("{why}");
            self.trouble.set(Some(why.clone()));
            let before = batch.len();
            batch = refuse_postings(batch, &why, &mut outcomes);
            // The refused are told at once; the others wait for a store that works again.
            let _ = self.back.send(std::mem::take(&mut outcomes));
            if batch.len() == before {
                std::thread::sleep(RETRY_TIME);
            }
            if batch.is_empty() {
                return;
            }
        }
        self.trouble.set(None);
        self.lazy.clear();
        outcomes.extend(batch.into_iter().map(|c| Outcome::Release(c.releases)));
        let _ = self.back.send(outcomes);
    }
}

/// Takes the new postings out of a batch that could not be written.
fn refuse_postings(batch: Vec<Commit>, why: &str, outcomes: &mut Vec<Outcome>) -> Vec<Commit> {
    let (refused, kept): (Vec<_>, Vec<_>) = batch.into_iter().partition(|c| c.posting.is_some());
    for commit in refused {
        if let Some(apid) = commit.posting {
            let why = why.to_owned();
            outcomes.push(Outcome::Refused { apid, why, releases: commit.releases });
        }
    }
    kept
}
