//! The loop: one owner of all of psched's state.
//!
//! Everything that happens comes in as an [`Input`]: what nodes and processes tell on one bounded queue, what
//! users ask on bounded lines that are taken by turns ([`fair`]). The loop applies it to
//! the pure scheduler, hands what is to be kept to the store thread, and does the rest once that
//! thread says that it is durable. The loop itself never waits: not for the disk, not for a client,
//! not for a node; whoever can't keep up loses his connection, not our time. Whoever only looks gets
//! a copy of the state ([`Input::Snapshot`]) and makes of it what he wants elsewhere.

mod outside;
mod refusals;
mod snapshots;
mod store_watch;
mod streams;
mod together;

pub use streams::{ended, status};

use super::clock::now;
use super::committer::{Commit, Outcome, Trouble};
use super::fair;
use super::fronts::Fronts;
use super::input::{EventSender, Input, LinkSender, Look};
use super::kept_recordings;
use super::tuner::Tuner;
use crate::os::host::monotonic_ns;
use crate::os::notify::Notify;
use crate::os::signal_helper::SignalHelper;
use crate::os::wait;
use crate::psched::decide::outbox::Outbox;
use crate::psched::decide::{Effect, Event, Scheduler};
use crate::psched::drive::{Driver, Identity};
use outside::Real;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use store_watch::{DISK_PATIENCE, Patience, StoreWatch};
use tokio::sync::{mpsc, watch};

/// The driver with the world around it.
pub struct Core {
    pub(super) driver: Driver<Real>,
    pub(super) out: Real,
    /// Variables.
    pub(super) tuner: Tuner,
    /// The state directory.
    pub(super) state: PathBuf,
    snapshots: snapshots::Snapshots,
}

/// What the loop is made of, beside the scheduler.
pub struct Parts {
    /// To the store thread.
    pub commits: std::sync::mpsc::Sender<Commit>,
    /// How the store is.
    pub trouble: Trouble,
    /// Commits of the store that are durable.
    pub durable: Arc<AtomicU64>,
    /// Into the loop.
    pub inputs: mpsc::WeakSender<Input>,
    /// Which store and which start this is.
    pub identity: Identity,
    /// The state directory.
    pub state: PathBuf,
    /// Variables.
    pub tuner: Tuner,
    /// Who sends signals to front ends.
    pub signals: Option<SignalHelper>,
    /// How long a login host may be away before its front ends count as dead.
    pub away_max: watch::Receiver<Duration>,
}

/// What led to a panic of the loop is kept: psched ends with it.
impl Drop for Core {
    fn drop(&mut self) {
        if std::thread::panicking() {
            kept_recordings::keep(&self.state, &self.driver.recording(), "psched has panicked");
        }
    }
}

impl Core {
    /// A loop's state before its first input. `effects` are those of the restoration.
    pub fn begin(scheduler: Scheduler, effects: Vec<Effect>, parts: Parts) -> Core {
        let Parts { commits, trouble, durable, inputs, identity, state, tuner, signals, away_max } =
            parts;
        let fronts = Fronts::new(inputs, signals, away_max);
        let out = Real::new(commits, trouble, durable, fronts, &identity, state.clone());
        let driver = Driver::new(scheduler, Outbox::default(), identity);
        let snapshots = snapshots::Snapshots::default();
        let mut core = Core { driver, out, tuner, state, snapshots };
        core.driver.begin(&mut core.out, effects);
        core
    }

    /// Runs until it is told to stop.
    pub async fn run(
        mut self,
        mut inputs: mpsc::Receiver<Input>,
        mut asked: fair::Receiver<Input>,
        mut outcomes: mpsc::UnboundedReceiver<Vec<Outcome>>,
        notify: &Notify,
    ) {
        let mut beat = notify.beat().map(tokio::time::interval);
        let mut store = StoreWatch::new(notify.beat());
        let mut patience = Patience::default();
        loop {
            let busy = self.driver.is_busy();
            let until = patience.until(tokio::time::Instant::now(), busy);
            let waits = self.out.trouble.waits().is_some();
            let silent = until.filter(|_| !waits);
            // A disk that is only slow makes everybody wait; one that fails must not.
            let hears = waits || !self.driver.is_full();
            let due = self
                .driver
                .scheduler()
                .deadline()
                .map(|at| Duration::from_nanos(at.saturating_sub(monotonic_ns())));
            tokio::select! {
                biased;
                // First, for it must come also when there is always something else to do; and it
                // says that the loop turns and that what it decides can be kept.
                () = wait::tick(&mut beat) => {
                    if self.out.trouble.has_thread() && store.answers(self.driver.is_busy()) {
                        notify.alive();
                    }
                }
                outcome = outcomes.recv() => {
                    let Some(outcome) = outcome else { outside::store_died() };
                    store.answered();
                    patience.answered();
                    self.outcomes(outcome);
                }
                () = wait::until(silent) => {
                    self.out.trouble.is_silent(DISK_PATIENCE);
                    self.driver.give_if_it_waits(&mut self.out);
                }
                input = inputs.recv(), if hears => {
                    let Some(input) = input else { break };
                    let (came, behind) = together::gather(input, &mut inputs);
                    self.driver.come(&mut self.out, came);
                    match behind {
                        Some(Input::Stop) => break,
                        Some(input) => self.input(input),
                        None => {}
                    }
                    // However much nodes have to tell.
                    if let Some(input) = asked.try_recv() {
                        self.input(input);
                    }
                }
                Some(input) = asked.recv(), if hears => self.input(input),
                () = wait::sleep(self.snapshots.due()) => self.snapshots_due(),
                () = wait::sleep(due) => {
                    self.look_at_offset();
                    self.event(Event::Tick);
                }
            }
        }
        self.stop(outcomes).await;
    }

    /// The last commits reach the disk and their answers leave, within two seconds.
    async fn stop(mut self, mut outcomes: mpsc::UnboundedReceiver<Vec<Outcome>>) {
        self.driver.keep_shares(&mut self.out);
        let end = tokio::time::Instant::now() + Duration::from_secs(2);
        while self.driver.is_busy() {
            let Ok(Some(done)) = tokio::time::timeout_at(end, outcomes.recv()).await else { break };
            self.outcomes(done);
        }
    }

    fn outcomes(&mut self, outcomes: Vec<Outcome>) {
        self.driver.outcomes(&mut self.out, outcomes);
    }

    fn input(&mut self, input: Input) {
        let Core { driver, out, .. } = self;
        match input {
            Input::Post { event, front, events } => driver.post(out, event, front, events),
            Input::Watch { apid, front, events, found } => {
                driver.watch(out, apid, front, events, found);
            }
            Input::AskLaunch { apid } => driver.ask_launch(out, apid),
            Input::Look { apid, answer } => driver.looked(out, apid, answer),
            Input::Kill { kill, answer } => driver.kill(out, kill, answer),
            Input::Manage { event, answer } => driver.manage(out, event, answer),
            Input::LinkOpened { link, hello, sender } => {
                driver.link_opened(out, link, hello, sender);
            }
            Input::Beat(link) => driver.beat(out, link),
            Input::Login(event) => {
                for apid in out.login(event) {
                    driver.event(out, Event::FrontGone { apid });
                }
            }
            Input::Event(event) => driver.events(out, vec![*event]),
            Input::Read(read) => {
                let look = read(driver.scheduler());
                driver.look(out, look);
            }
            Input::Set { wanted, by, answer } => self.set_variables(wanted, &by, answer),
            Input::Show { answer } => self.show_variables(answer),
            Input::Snapshot { answer, follows } => self.snapshot(answer, follows),
            Input::Reconfigured { new, answer } => self.reconfigured(*new, answer),
            Input::Compare { variables, machine, answer } => {
                self.compare(*variables, *machine, answer);
            }
            Input::Record { answer } => {
                // (An Err: nobody waits for it any more.)
                let _ = answer.send(driver.recording());
            }
            Input::Stop => {}
        }
    }

    pub(super) fn event(&mut self, event: Event) {
        self.driver.event(&mut self.out, event);
    }

    /// Has this called when all before it is durable, or known to wait.
    pub(super) fn look(&mut self, look: Look) {
        self.driver.look(&mut self.out, look);
    }
}
