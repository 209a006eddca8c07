//! The thread that stops gangs and lets them run, and how the one task talks with it.
//!
//! # The problem
//!
//! A change of gangs is to be on time and short, and the one task of apinit is neither: it may be in
//! the middle of making a shepherd, and what an ordinary thread thaws preempts it in the middle of
//! thawing the rest (with 8 processes for 18 ms, with 64 for 200).
//!
//! # The approach
//!
//! A thread of its own ([`thread`]) drives the pure [`crate::apinit::decide::switcher`]. It is SCHED_FIFO where
//! that is allowed, else nice -20, and apinit's memory is locked. It sleeps until the next change is
//! due by the clock, or the one task has something for it; it never waits for anybody but the kernel.
//!
//! ```text
//!   the one task --orders--> inbox  --+ eventfd +--> thread --> cgroup.freeze, SIGSTOP ([`means`])
//!                <--news---- outbox <-+ eventfd +--    |
//!                <--------------- meters --------------+
//! ```
//!
//! Both boxes are behind locks that the thread only tries: the one task has an ordinary priority and
//! may lose its processor while it holds one. What a gang has run is in a [`Meter`], a single word that
//! is read without any lock.
//!
//! Memory that has gone to swap is brought in by another, ordinary thread ([`bring`]): that may take
//! seconds, or for ever. So does bringing it there, of gangs that have no turn for long ([`roll`]). Where it goes
//! out by a checkpoint, and comes in from there, the one task sees to it ([`crate::apinit::decide`], `memory_out`).
//!
//! How the thread is placed is said in psched's notes of this node where it is not the best.

mod bring;
mod means;
mod roll;
mod thread;

pub(super) use means::Means;

use super::events::{Events, TaskEvent};
use crate::apinit::decide::switcher::{Event, News, Ran};
use crate::apteam::Key;
use crate::apteam::bounds::HostBounds;
use crate::apteam::protocol::turns::{SWITCHES_MAX, SlicePlan, Switch, Switches};
use crate::node::groups::{Memory, Out};
use crate::os::realtime::{self, Priority};
use crate::os::watch::watch;
use anyhow::Context;
use bring::{Bringer, Coming, Progress};
use roll::{Going, Roller};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::Interest;
use tokio_util::task::AbortOnDropHandle;

/// Orders that may wait. Beyond, plans are lost (which costs time, and psched makes new ones); who comes
/// and goes is bounded by the applications that there may be.
const INBOX_MAX: usize = 4096;

/// What the thread has of a gang.
#[derive(Debug)]
struct Gang {
    means: Means,
    /// Where it can be kept.
    memory: Option<Memory>,
    meter: Arc<Meter>,
    /// Its memory comes, and then it runs.
    coming: Option<Coming>,
    /// Its memory goes to swap.
    going: Option<Going>,
    /// Its memory is in a checkpoint: there is nothing that could run.
    away: bool,
    /// It is brought back from there, and then it runs.
    returns: bool,
    /// It has been stopped and was not frozen when last looked at: the processor time that it had
    /// used by then, and when that was.
    late: Option<(Duration, u64)>,
    /// For how long it has used a processor in that state, and how much of that was said last.
    overran: (Duration, Duration),
    looked: Looked,
}

/// What a gang had used and waited for by the last look, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Looked {
    used: u64,
    at_ns: u64,
    stalled: u64,
}

/// What the thread is told.
#[derive(Debug)]
enum Order {
    /// For the switcher; with a gang that comes.
    Tell(Event, Option<Box<Gang>>),
    /// All memory that could be brought in is in.
    Brought(Key, Arc<Progress>),
    /// Its memory is on its way out no more.
    WentOut(Key, Out),
    /// Its memory is in a checkpoint, and no process of it is left.
    Away(Key),
    /// How long a frozen gang is waited for.
    FreezeWait(Duration),
    /// It is over.
    End,
}

/// What the thread has said.
#[derive(Debug, Default)]
struct Outbox {
    news: Vec<News>,
    /// Collected until it is taken.
    switches: Switches,
    /// How much processor time gangs have used in others' turns.
    overran: Vec<(Key, Duration)>,
    /// The thread is dead.
    dead: bool,
}

#[derive(Debug)]
struct Shared {
    inbox: Mutex<VecDeque<Order>>,
    outbox: Mutex<Outbox>,
    /// Something is in the inbox.
    order: OwnedFd,
    /// Something is in the outbox.
    said: Arc<OwnedFd>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn ring(eventfd: &OwnedFd) {
    // An Err: its counter is full, so it rings.
    let _ = rustix::io::write(eventfd, &1u64.to_ne_bytes());
}

/// What a gang has run, in one word: how long, or, while it runs, since when if it had run all along.
#[derive(Debug, Default)]
pub(super) struct Meter(AtomicU64);

/// It runs.
const RUNS: u64 = 1 << 63;

impl Meter {
    fn set(&self, ran: Ran) {
        let word = match ran.since_ns {
            Some(since) => RUNS | since.saturating_sub(ran.ns),
            None => ran.ns & !RUNS,
        };
        self.0.store(word, Ordering::Relaxed);
    }

    pub fn read(&self) -> Ran {
        match self.0.load(Ordering::Relaxed) {
            word if word & RUNS == 0 => Ran { ns: word, since_ns: None },
            word => Ran { ns: 0, since_ns: Some(word & !RUNS) },
        }
    }
}

/// The thread, as the one task has it.
#[derive(Debug)]
pub(super) struct Switching {
    shared: Arc<Shared>,
    _hears: AbortOnDropHandle<()>,
}

impl Switching {
    /// Starts it, and says what is not as it should be, in words.
    ///
    /// # Errors
    /// No thread can be made, or no descriptor.
    pub fn start(
        events: Events,
        plans: Vec<SlicePlan>,
    ) -> anyhow::Result<(Switching, Vec<String>)> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let said = Arc::new(eventfd(0, flags).context("no eventfd")?);
        let shared = Arc::new(Shared {
            inbox: Mutex::default(),
            outbox: Mutex::default(),
            order: eventfd(0, flags).context("no eventfd")?,
            said: Arc::clone(&said),
        });
        let plans = plans.into_iter().map(|plan| Order::Tell(Event::Plan(plan), None));
        lock(&shared.inbox).extend(plans);
        let mut notes = Vec::new();
        if let Err(error) = realtime::lock_memory() {
            notes.push(format!(
                "gangs change late: apinit's memory can't be locked ({error}): start it as root"
            ));
        }
        let (of_thread, given) = std::sync::mpsc::channel();
        let of = Arc::clone(&shared);
        let bringer = Bringer::start(Arc::clone(&shared))
            .context("can't start the thread that brings memory in")?;
        let roller = Roller::start(Arc::clone(&shared))
            .context("can't start the thread that brings memory to swap")?;
        std::thread::Builder::new()
            .name("apinit-switch".into())
            .spawn(move || {
                let _ = of_thread.send(realtime::prioritise());
                thread::run(of, bringer, roller);
            })
            .context("can't start the thread that changes gangs")?;
        let given = given.recv().unwrap_or(Priority::Ordinary(0));
        let refused = |errno| std::io::Error::from_raw_os_error(errno);
        match given {
            Priority::Fifo => {}
            Priority::Nice => notes.push(
                "gangs change at nice -20: SCHED_FIFO is refused (in a cpu group of cgroup v1 it is \
                 without cpu.rt_runtime_us)"
                    .into(),
            ),
            Priority::Ordinary(errno) => notes.push(format!(
                "gangs change late: neither SCHED_FIFO nor nice -20 is allowed ({}): start apinit \
                 as root, or give it CAP_SYS_NICE",
                refused(errno)
            )),
        }
        let said = watch(said, Interest::READABLE).context("an eventfd can't be watched")?;
        let of = Arc::clone(&shared);
        let hears = tokio::spawn(async move {
            loop {
                let read = said.async_io(Interest::READABLE, |said| {
                    rustix::io::read(said, &mut [0; 8]).map_err(std::io::Error::from)
                });
                if read.await.is_err() {
                    return;
                }
                let Outbox { news, switches, overran, dead } =
                    std::mem::take(&mut *lock(&of.outbox));
                for (key, used) in overran {
                    if events.send(TaskEvent::Overran(key, used)).await.is_err() {
                        return;
                    }
                }
                let switches = (!switches.is_empty()).then(|| Box::new(switches));
                for news in news.into_iter().chain(switches.map(News::Switches)) {
                    if events.send(TaskEvent::Turns(news)).await.is_err() {
                        return;
                    }
                }
                if dead {
                    let _ = events.send(TaskEvent::SwitchingDead).await;
                    return;
                }
            }
        });
        Ok((Switching { shared, _hears: AbortOnDropHandle::new(hears) }, notes))
    }

    fn order(&self, order: Order) {
        let mut inbox = lock(&self.shared.inbox);
        if inbox.len() >= INBOX_MAX && matches!(order, Order::Tell(Event::Plan(_), _)) {
            tracing::warn!("a plan is lost: the queue of the gang-switching thread is full");
            return;
        }
        inbox.push_back(order);
        drop(inbox);
        ring(&self.shared.order);
    }

    /// Tells the switcher.
    pub fn tell(&self, event: Event) {
        self.order(Order::Tell(event, None));
    }

    /// A gang comes, and is stopped by these means. Whether it is stopped already the thread sees; what
    /// it runs from now on is told by the meter.
    pub fn comes(&self, event: Event, means: Means, memory: Option<Memory>) -> Arc<Meter> {
        let meter = Arc::new(Meter::default());
        let gang = Gang {
            means,
            memory,
            meter: Arc::clone(&meter),
            coming: None,
            going: None,
            away: false,
            returns: false,
            late: None,
            overran: Default::default(),
            looked: Looked::default(),
        };
        self.order(Order::Tell(event, Some(Box::new(gang))));
        meter
    }

    /// No process of it is left: before it runs it is to be brought back ([`News::ComesIn`]), which is told by
    /// [`Event::Brought`].
    pub fn away(&self, key: Key) {
        self.order(Order::Away(key));
    }

    /// What of the bounds is for the thread.
    pub fn obey(&self, bounds: &HostBounds) {
        self.order(Order::FreezeWait(bounds.freeze_wait));
        let after = Some(bounds.idle_after).filter(|after| !after.is_zero());
        self.tell(Event::IdleAfter(after));
    }
}

impl Drop for Switching {
    fn drop(&mut self) {
        self.order(Order::End);
    }
}

/// Notes one more change; of too many, the latest.
fn note(told: &mut Switches, switch: Switch) {
    if told.switches.len() >= SWITCHES_MAX {
        told.switches.remove(0);
        told.left_out = told.left_out.saturating_add(1);
    }
    told.switches.push(switch);
}

/// Gangs of which it is kept until the next report for how long they were idle, at most.
const IDLE_MAX: usize = 4_096;

/// Notes for how long gangs were idle.
fn note_idle(told: &mut Switches, more: impl IntoIterator<Item = (Key, Duration)>) {
    for (key, time) in more {
        match told.idle.iter().position(|(of, _)| *of == key) {
            Some(at) => told.idle[at].1 = told.idle[at].1.saturating_add(time),
            None if told.idle.len() < IDLE_MAX => told.idle.push((key, time)),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_is_added_up_until_it_is_told() {
        let mut told = Switches::default();
        let key = |apid| Key::parse(&format!("{apid}.1")).expect("a key");
        let second = Duration::from_secs(1);
        note_idle(&mut told, [(key(1), second), (key(2), second)]);
        note_idle(&mut told, [(key(1), second)]);
        assert_eq!(told.idle, [(key(1), 2 * second), (key(2), second)]);
        note_idle(&mut told, (1..2 * IDLE_MAX as u64).map(|apid| (key(apid), second)));
        assert_eq!(told.idle.len(), IDLE_MAX);
    }

    #[test]
    fn a_meter_tells_what_has_run() {
        let meter = Meter::default();
        meter.set(Ran { ns: 7, since_ns: None });
        assert_eq!(meter.read().by(1_000), 7);
        meter.set(Ran { ns: 7, since_ns: Some(500) });
        assert_eq!(meter.read().by(1_000), 507);
        assert_eq!(meter.read().since_ns, Some(493));
    }

    #[test]
    fn of_too_many_changes_the_latest_are_told() {
        let mut told = Switches::default();
        for due_ns in 0..SWITCHES_MAX as u64 + 3 {
            note(&mut told, Switch { due_ns, ..Switch::default() });
        }
        assert_eq!((told.switches.len(), told.left_out), (SWITCHES_MAX, 3));
        assert_eq!(told.switches[0].due_ns, 3);
    }
}
