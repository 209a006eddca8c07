//! The thread itself.

use super::bring::{Bringer, Progress};
use super::means::stop_all;
use super::roll::Roller;
use super::{Gang, Looked, Order, Shared, note, note_idle, ring};
use crate::apinit::decide::switcher::{Action, Event, News, Outcome, Start, Switcher};
use crate::apteam::Key;
use crate::apteam::bounds::HostBounds;
use crate::apteam::protocol::turns::Switches;
use crate::os::host::monotonic_ns;
use nix::sys::signal::SigSet;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::{Arc, TryLockError};
use std::time::Duration;

/// Between two tellings of how changes went.
const TELL: u64 = 1_000_000_000;
/// So much time in others' turns is said.
const OVERRAN_FROM: Duration = Duration::from_secs(1);
/// When a box is locked it is tried again after this long, in nanoseconds.
const BOX_AGAIN: u64 = 50_000;

struct Thread {
    shared: Arc<Shared>,
    switcher: Switcher,
    gangs: BTreeMap<Key, Gang>,
    /// Of them those that may not be frozen yet, and those whose memory may be on its way: there are hundreds of
    /// gangs, and changes each millisecond.
    late: BTreeSet<Key>,
    coming: BTreeSet<Key>,
    bringer: Bringer,
    roller: Roller,
    freeze_wait: Duration,
    news: Vec<News>,
    switches: Switches,
    overran: Vec<(Key, Duration)>,
    told_ns: u64,
}

/// Whoever ends without an order says so.
struct Alive(Arc<Shared>, bool);

impl Drop for Alive {
    fn drop(&mut self) {
        if !self.1 {
            super::lock(&self.0.outbox).dead = true;
            ring(&self.0.said);
        }
    }
}

/// Until it is told to end.
pub fn run(shared: Arc<Shared>, bringer: Bringer, roller: Roller) {
    let mut alive = Alive(Arc::clone(&shared), false);
    // Signals are the one task's.
    let _ = SigSet::all().thread_block();
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    let Ok(timer) = timerfd_create(TimerfdClockId::Monotonic, flags) else { return };
    let mut thread = Thread {
        shared,
        switcher: Switcher::default(),
        gangs: BTreeMap::new(),
        late: BTreeSet::new(),
        coming: BTreeSet::new(),
        bringer,
        roller,
        freeze_wait: HostBounds::default().freeze_wait,
        news: Vec::new(),
        switches: Switches::default(),
        overran: Vec::new(),
        told_ns: 0,
    };
    while let Some(next_ns) = thread.turn() {
        if sleep(&timer, &thread.shared.order, next_ns).is_err() {
            return;
        }
    }
    alive.1 = true;
}

/// Until then (`None`: for ever), or until there is an order.
fn sleep(timer: &OwnedFd, order: &OwnedFd, until_ns: Option<u64>) -> rustix::io::Result<()> {
    // Zero would disarm it.
    let at = until_ns.map_or(0, |at| at.max(1));
    let at = Timespec {
        tv_sec: (at / 1_000_000_000).cast_signed(),
        tv_nsec: (at % 1_000_000_000).cast_signed(),
    };
    let never = Timespec { tv_sec: 0, tv_nsec: 0 };
    let at = Itimerspec { it_interval: never, it_value: at };
    timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &at)?;
    let mut fds = [PollFd::new(timer, PollFlags::IN), PollFd::new(order, PollFlags::IN)];
    match poll(&mut fds, None) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error),
    }
    // Nothing is there if it was the timer.
    let _ = rustix::io::read(order, &mut [0; 8]);
    Ok(())
}

impl Gang {
    fn runs(&mut self) {
        self.late = None;
        if let Some(memory) = &mut self.memory {
            memory.keep();
        }
        self.means.start();
    }

    /// The processor time that it has used, or waited for, in all. How long it waited is looked at only where it
    /// has used little since the last look: that takes longer to read. (A debugger of `apstat --stacks` is in its groups:
    /// what that uses counts too.)
    fn wanted_ns(&mut self) -> Option<u64> {
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let (used, now) = (ns(self.means.used()?), monotonic_ns());
        let Looked { used: before, at_ns, stalled } = self.looked;
        let busy = used.saturating_sub(before) > now.saturating_sub(at_ns) / 2;
        let stalled = if busy { stalled } else { ns(self.means.stalled()) };
        self.looked = Looked { used, at_ns: now, stalled };
        Some(used.saturating_add(stalled))
    }

    /// For how long the kernel has worked for it since it was stopped, or last looked at, in
    /// nanoseconds; on several processors at once counts once. None once it is frozen.
    fn overran(&mut self) -> Option<u64> {
        let (before, since_ns) = self.late?;
        // (In this order: what it used until it was frozen counts.)
        let frozen = self.means.frozen();
        let (used, now) = (self.means.used()?, monotonic_ns());
        self.late = (!frozen).then_some((used, now));
        let more = used.checked_sub(before).filter(|more| !more.is_zero())?;
        let more = u64::try_from(more.as_nanos()).unwrap_or(u64::MAX);
        Some(more.min(now.saturating_sub(since_ns)))
    }

    /// All that it has used in others' turns, where that is to be said: a second, and whenever it
    /// is twice as much.
    fn tell_overran(&mut self, time_ns: u64) -> Option<Duration> {
        let (all, told) = &mut self.overran;
        *all = all.saturating_add(Duration::from_nanos(time_ns));
        let tells = *all >= told.saturating_mul(2).max(OVERRAN_FROM);
        tells.then(|| *told = *all).map(|()| *all)
    }

    /// Its means say so: what became of the stop.
    fn stopped(&mut self, outcome: Outcome) -> Outcome {
        if matches!(outcome, Outcome::NotYet(_)) {
            self.late = self.means.used().map(|used| (used, monotonic_ns()));
        }
        let coming = self.coming.take();
        let returns = std::mem::take(&mut self.returns);
        if outcome == Outcome::Failed {
            return outcome;
        }
        if self.away {
            return if returns { Outcome::NotIn(0) } else { outcome };
        }
        if let Some(memory) = &mut self.memory {
            memory.release();
        }
        coming.map_or(outcome, |coming| Outcome::NotIn(coming.bytes()))
    }
}

impl Thread {
    /// Does what is due and what is ordered; when it is to be called again. `None`: it is over.
    fn turn(&mut self) -> Option<Option<u64>> {
        let mut again = None;
        if self.switcher.next_ns().is_some_and(|at| at <= monotonic_ns()) {
            self.look_at_late();
            self.apply(Event::Tick);
        }
        let orders = match self.shared.inbox.try_lock() {
            Ok(mut inbox) => std::mem::take(&mut *inbox),
            Err(TryLockError::Poisoned(inbox)) => std::mem::take(&mut *inbox.into_inner()),
            Err(TryLockError::WouldBlock) => {
                again = Some(monotonic_ns() + BOX_AGAIN);
                VecDeque::new()
            }
        };
        for order in orders {
            match order {
                Order::Tell(event, gang) => self.told(event, gang),
                Order::Brought(key, progress) => self.brought(key, &progress),
                Order::WentOut(key, out) => {
                    self.news.push(News::RolledOut(key, out.bytes, out.why));
                }
                Order::Away(key) => {
                    if let Some(gang) = self.gangs.get_mut(&key) {
                        gang.away = true;
                    }
                }
                Order::FreezeWait(wait) => self.freeze_wait = wait,
                Order::End => return None,
            }
        }
        let look = self.look_at_coming();
        let tell = self.say();
        Some([again, look, tell, self.switcher.next_ns()].into_iter().flatten().min())
    }

    /// Those who were not frozen in time: what they have used in others' turns is theirs to pay
    /// back.
    fn look_at_late(&mut self) {
        let mut overran: Vec<(Key, u64)> = Vec::new();
        let gangs = &mut self.gangs;
        self.late.retain(|key| {
            let Some(gang) = gangs.get_mut(key) else { return false };
            overran.extend(gang.overran().map(|time_ns| (*key, time_ns)));
            gang.late.is_some()
        });
        for (key, time_ns) in overran {
            let all = self.gangs.get_mut(&key).and_then(|gang| gang.tell_overran(time_ns));
            self.overran.extend(all.map(|all| (key, all)));
            self.apply(Event::Overran(key, time_ns));
        }
    }

    fn told(&mut self, mut event: Event, of: Option<Box<Gang>>) {
        if let (Event::Comes { gang, frozen, .. }, Some(mut of)) = (&mut event, of) {
            *frozen = of.means.stopped();
            self.gangs.insert(gang.key, *of);
        }
        match &event {
            Event::Goes(key) => drop(self.gangs.remove(key)),
            Event::Brought(key, _) if !self.returned(*key) => return,
            _ => {}
        }
        self.apply(event);
    }

    /// It was away, and is there again. Whether it runs: its turn has come, and is not over yet.
    fn returned(&mut self, key: Key) -> bool {
        let Some(gang) = self.gangs.get_mut(&key) else { return false };
        gang.away = false;
        let runs = std::mem::take(&mut gang.returns);
        match &mut gang.memory {
            _ if runs => gang.runs(),
            // All of it is in.
            Some(memory) => memory.release(),
            None => {}
        }
        runs
    }

    /// Applies it, and does what comes of it.
    fn apply(&mut self, event: Event) {
        let mut todo = VecDeque::from(self.switcher.apply(monotonic_ns(), event));
        while let Some(action) = todo.pop_front() {
            let event = match action {
                Action::Stop(keys) => Event::Stopped(self.stop(keys)),
                Action::Start(keys) => Event::Started(self.start(keys)),
                Action::Look(keys) => {
                    let used = |key: Key| (key, self.gangs.get_mut(&key).and_then(Gang::wanted_ns));
                    Event::Used(keys.into_iter().map(used).collect())
                }
                Action::Hasten(key) => {
                    let Some(bytes) = self.let_run(key) else { continue };
                    Event::Brought(key, bytes)
                }
                Action::RollOut(key) => {
                    self.roll_out(key);
                    continue;
                }
                Action::TakeOut(key) => {
                    self.news.push(News::GoesOut(key));
                    continue;
                }
                Action::NotOut(key, why) => {
                    self.news.push(News::RolledOut(key, 0, Some(why.to_owned())));
                    continue;
                }
                Action::Ran(key, ran) => {
                    if let Some(gang) = self.gangs.get(&key) {
                        gang.meter.set(ran);
                    }
                    continue;
                }
                Action::MayGo(key) => {
                    self.news.push(News::MayGo(key));
                    continue;
                }
                Action::HasTurn(key) => {
                    self.news.push(News::HasTurn(key));
                    continue;
                }
                Action::Held(key, stands) => {
                    self.news.push(News::Held(key, stands));
                    continue;
                }
                Action::Switched(switch) => {
                    note(&mut self.switches, switch);
                    continue;
                }
                Action::WasIdle(key, ns) => {
                    note_idle(&mut self.switches, [(key, Duration::from_nanos(ns))]);
                    continue;
                }
            };
            todo.extend(self.switcher.apply(monotonic_ns(), event));
        }
    }

    /// Lets all of these run whose memory is there; what of the others' is out is brought in.
    fn start(&mut self, keys: Vec<Key>) -> Vec<(Key, Start)> {
        let mut outcomes = Vec::with_capacity(keys.len());
        for key in keys {
            let mut outcome = Start::Runs;
            if let Some(gang) = self.gangs.get_mut(&key).filter(|gang| gang.away) {
                gang.returns = true;
                outcome = Start::MemoryComes;
                self.news.push(News::ComesIn(key));
            } else if let Some(gang) = self.gangs.get_mut(&key) {
                gang.going = None;
                let memory = gang.memory.as_ref().filter(|memory| memory.out() > 0);
                gang.coming = memory.and_then(|memory| self.bringer.bring(key, memory));
                match gang.coming {
                    Some(_) => {
                        outcome = Start::MemoryComes;
                        self.coming.insert(key);
                    }
                    None => gang.runs(),
                }
            }
            outcomes.push((key, outcome));
        }
        outcomes
    }

    /// Begins to bring the memory of one that stands to swap.
    fn roll_out(&mut self, key: Key) {
        let begun = self.gangs.get_mut(&key).and_then(|gang| {
            // (Before another begins: it is the same memory.)
            gang.going = None;
            gang.going = self.roller.bring_out(key, gang.memory.as_ref()?);
            gang.going.as_ref()
        });
        if begun.is_none() {
            let why = "its memory is not in groups of its own".to_owned();
            self.news.push(News::RolledOut(key, 0, Some(why)));
        }
    }

    /// One whose memory comes does not wait for the rest of it. How much of it has come; none if it
    /// waits for nothing.
    fn let_run(&mut self, key: Key) -> Option<u64> {
        let gang = self.gangs.get_mut(&key)?;
        let coming = gang.coming.take()?;
        gang.runs();
        Some(coming.bytes())
    }

    fn brought(&mut self, key: Key, progress: &Arc<Progress>) {
        let its = self.gangs.get(&key).and_then(|gang| gang.coming.as_ref());
        if its.is_some_and(|coming| coming.is(progress))
            && let Some(bytes) = self.let_run(key)
        {
            self.apply(Event::Brought(key, bytes));
        }
    }

    /// Those whose memory does not come on are let run; when to look again.
    fn look_at_coming(&mut self) -> Option<u64> {
        let now = monotonic_ns();
        let (mut stands, mut next) = (Vec::new(), None);
        let gangs = &mut self.gangs;
        self.coming.retain(|key| {
            let coming = gangs.get_mut(key).and_then(|gang| gang.coming.as_mut());
            let Some(coming) = coming else { return false };
            match coming.look(now) {
                Some(at) => next = Some(next.map_or(at, |next: u64| next.min(at))),
                None => stands.push(*key),
            }
            true
        });
        for key in stands {
            if let Some(bytes) = self.let_run(key) {
                tracing::warn!(%key, "the memory of an application can't be rolled in before its \
                                      turn: it runs and pages in");
                self.apply(Event::Brought(key, bytes));
            }
        }
        next
    }

    fn stop(&mut self, keys: Vec<Key>) -> Vec<(Key, Outcome)> {
        // (Out of the map and back: all are stopped at once.)
        let mut stopped: Vec<(Key, Gang)> =
            keys.iter().filter_map(|key| self.gangs.remove_entry(key)).collect();
        let means = stopped.iter_mut().map(|(_, gang)| &mut gang.means);
        let outcomes = stop_all(means, self.freeze_wait);
        let mut all: Vec<(Key, Outcome)> = Vec::with_capacity(keys.len());
        for ((key, mut gang), outcome) in stopped.into_iter().zip(outcomes) {
            all.push((key, gang.stopped(outcome)));
            if gang.late.is_some() {
                self.late.insert(key);
            }
            self.gangs.insert(key, gang);
        }
        let lost = keys.into_iter().filter(|key| !self.gangs.contains_key(key));
        all.extend(lost.map(|key| (key, Outcome::Failed)).collect::<Vec<_>>());
        all
    }

    /// Puts into the outbox what is to be told now; when the rest is.
    fn say(&mut self) -> Option<u64> {
        let now = monotonic_ns();
        let tell_ns = self.told_ns.saturating_add(TELL);
        let switches = !self.switches.is_empty();
        if self.news.is_empty() && self.overran.is_empty() && !(switches && tell_ns <= now) {
            return switches.then_some(tell_ns);
        }
        let mut outbox = match self.shared.outbox.try_lock() {
            Ok(outbox) => outbox,
            Err(TryLockError::Poisoned(outbox)) => outbox.into_inner(),
            Err(TryLockError::WouldBlock) => return Some(now + BOX_AGAIN),
        };
        outbox.news.append(&mut self.news);
        outbox.overran.append(&mut self.overran);
        if switches && tell_ns <= now {
            self.told_ns = now;
            let told = std::mem::take(&mut self.switches);
            outbox.switches.left_out = outbox.switches.left_out.saturating_add(told.left_out);
            told.switches.into_iter().for_each(|switch| note(&mut outbox.switches, switch));
            note_idle(&mut outbox.switches, told.idle);
        }
        drop(outbox);
        ring(&self.shared.said);
        (!self.switches.is_empty()).then_some(tell_ns)
    }
}
