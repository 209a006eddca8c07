//! The store thread: group commit, and what happens when the disk says no.
//!
//! The main loop hands over a [`Commit`] for each event: what is to be kept, and what may leave
//! psched once it is. All that have gathered while the last transaction was on its way to the disk
//! go into the next one; then their releases come back, in order. What goes when is decided by the
//! pure [`Keeper`]; this is its thread. While transactions fail it goes on taking commits, so that
//! postings among them are refused at once, and [`Trouble`] says why the others wait.

use super::store::Store;
use crate::psched::decide::outbox::{self, BATCH_MAX, Keeper};
use crate::psched::drive::Waits;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;

/// An answer to a question that was asked after what is on its way to the disk.
pub type Answer = super::input::Look;
/// Something that waits for records to be durable.
pub type Release = outbox::Release<Answer>;
/// What one event left to be done.
pub type Commit = outbox::Commit<Answer>;
/// What comes back.
pub type Outcome = outbox::Outcome<Answer>;

/// While the store fails, the log says so once in this time.
const SAID_EVERY: Duration = Duration::from_secs(60);

/// It works again is said of one that has failed for so long.
const SAID_AFTER: Duration = Duration::from_secs(2);

/// How a notice of records that wait begins.
pub const RECORDS_WAIT: &str = "records have been waiting for the disk";

/// Why the store can't take anything just now, and whether its thread is there at all.
#[derive(Clone, Debug, Default)]
pub struct Trouble {
    waits: Arc<Mutex<Option<Waits>>>,
    /// The store's.
    path: PathBuf,
    /// Of what the thread holds until it ends, however it does.
    thread: Weak<()>,
}

impl Trouble {
    /// Why records wait, if they do.
    pub fn waits(&self) -> Option<Waits> {
        self.waits.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }

    /// Why the disk refuses, if it does.
    pub fn reason(&self) -> Option<String> {
        self.waits().filter(|waits| waits.refuses).map(|waits| waits.why)
    }

    /// What users are told below an answer that may not be on record yet.
    pub fn notice(&self) -> Option<String> {
        let Waits { since_ns, why, .. } = self.waits()?;
        let since = super::views::local_time(since_ns);
        Some(format!(
            "{RECORDS_WAIT} since {since}: {why}. Until they are written psched accepts no \
             postings, and a restart would lose all changes since then"
        ))
    }

    /// The store thread has not died.
    pub fn has_thread(&self) -> bool {
        self.thread.strong_count() > 0
    }

    /// The disk has not answered for so long.
    pub fn is_silent(&self, time: Duration) {
        let mut waits = self.waits.lock().unwrap_or_else(|e| e.into_inner());
        if waits.is_none() {
            let (path, seconds) = (self.path.display(), time.as_secs());
            let why = format!("the disk of {path} has not answered for {seconds} s");
            tracing::error!("{why}");
            let now_ns = crate::os::host::wall_ns();
            let time_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            let since_ns = now_ns.saturating_sub(time_ns);
            *waits = Some(Waits { since_ns, why, refuses: false });
        }
    }

    fn refuses(&self, why: String) {
        let mut waits = self.waits.lock().unwrap_or_else(|e| e.into_inner());
        let since_ns = waits.as_ref().map_or_else(crate::os::host::wall_ns, |waits| waits.since_ns);
        *waits = Some(Waits { since_ns, why, refuses: true });
    }

    fn is_over(&self) {
        *self.waits.lock().unwrap_or_else(|e| e.into_inner()) = None;
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
    let path = store.path().to_path_buf();
    let trouble = Trouble { thread: Arc::downgrade(&alive), path, ..Trouble::default() };
    let committer = Committer {
        store,
        receiver,
        back,
        trouble: trouble.clone(),
        keeper: Keeper::default(),
        failing: None,
        said: None,
    };
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
    failing: Option<Failing>,
    /// What the log says of it, and when it last did.
    said: Option<(String, Instant)>,
}

/// A store that fails.
struct Failing {
    since: Instant,
    /// When it is tried again.
    again: Instant,
    tries: u64,
}

impl Committer {
    fn run(mut self) {
        loop {
            let patience = match &self.failing {
                Some(failing) => Some(failing.again.saturating_duration_since(Instant::now())),
                None => self.keeper.patience(),
            };
            let first = match patience {
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
            let (outcomes, to_write) = self.keeper.take(batch);
            if !outcomes.is_empty() {
                drop(self.back.send(outcomes));
            }
            let due = self.failing.as_ref().is_none_or(|failing| failing.again <= Instant::now());
            if to_write && due {
                self.keep();
            }
        }
        // The last lazy ones, and what has waited: one try, for the process is about to end.
        while !self.keeper.records().is_empty() {
            if let Err(error) = self.store.write(&self.keeper.records()) {
                tracing::warn!(%error, "the last changes were not written");
                break;
            }
            self.keeper.written();
        }
    }

    fn keep(&mut self) {
        loop {
            match self.store.write(&self.keeper.records()) {
                Ok(()) => {
                    let written = self.keeper.written();
                    if !self.keeper.is_in_trouble() {
                        self.works_again();
                    }
                    let _ = self.back.send(written);
                }
                Err(error) => {
                    let why = error.to_string();
                    let failed = self.keeper.failed(&why);
                    self.fails(why, failed.again);
                    // The refused are told at once; the others wait for a store that works again.
                    // (Without any, the loop still hears that it does not.)
                    let _ = self.back.send(failed.outcomes);
                    if !failed.again.is_zero() {
                        return;
                    }
                }
            }
            if !self.keeper.is_in_trouble() {
                return;
            }
        }
    }

    fn fails(&mut self, why: String, again: Duration) {
        let now = Instant::now();
        let failing = self.failing.get_or_insert(Failing { since: now, again: now, tries: 0 });
        failing.again = now + again;
        failing.tries += 1;
        // Also where it works in between: a full disk may have room for a short record.
        let known =
            self.said.as_ref().is_some_and(|(said, at)| *said == why && at.elapsed() < SAID_EVERY);
        if !known {
            tracing::error!("{why}");
            self.said = Some((why.clone(), now));
        }
        self.trouble.refuses(why);
    }

    fn works_again(&mut self) {
        if let Some(failing) = self.failing.take()
            && failing.since.elapsed() >= SAID_AFTER
        {
            let seconds = failing.since.elapsed().as_secs();
            tracing::warn!(
                "the store is written again, after {seconds} s and {} tries",
                failing.tries
            );
        }
        self.trouble.is_over();
    }
}
