//! The one task and the thread that changes gangs.

use super::{Shell, TaskEvent, lost};
use crate::apinit::decide::switcher::{Event as TurnEvent, News};
use crate::apinit::decide::{Agent, Event, Rebind};
use crate::apinit::host::notes::Subject;
use crate::apinit::host::rebind::Rebinding;
use crate::apinit::host::switching::Means;
use crate::apteam::Key;
use crate::apteam::protocol::node::{PlaceCommand, RollOut};
use crate::apteam::protocol::turns::Switches;
use crate::machine::{Nid, format_nids};
use crate::node::stuck::Wait;
use crate::os::host::monotonic_ns;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How often it is looked how much memory applications have had.
pub(super) const PEAKS: Duration = Duration::from_secs(5);

impl Shell {
    pub(super) fn tell_switcher(&mut self, event: TurnEvent) {
        let TurnEvent::Comes { gang, .. } = &event else { return self.switching.tell(event) };
        let Some(app) = self.apps.get_mut(&gang.key) else { return };
        app.keep_sessions();
        let means = match app.groups.as_ref().map(|groups| groups.freezers()) {
            Some(Ok(freezers)) => Means::Freezer(freezers),
            Some(Err(error)) => {
                let text = format!(
                    "the application can't be frozen, because its control groups can't be opened: \
                     {error}"
                );
                app.span.in_scope(|| tracing::warn!("{text}"));
                Means::None
            }
            None => Means::Signals(app.trail(&self.shepherds)),
        };
        let memory = match app.groups.as_ref().map(|groups| groups.memory(gang.spread)) {
            Some(Ok(memory)) => memory,
            Some(Err(error)) => {
                let text = format!(
                    "the memory of the application can't be protected while it runs: {error}"
                );
                app.span.in_scope(|| tracing::warn!("{text}"));
                None
            }
            None => None,
        };
        app.meter = Some(self.switching.comes(event, means, memory));
    }

    /// Binds its threads elsewhere, beside the one task: there may be thousands.
    pub(super) fn rebind(
        &mut self,
        agent: &Agent,
        key: Key,
        parts: Vec<Rebind>,
        place: PlaceCommand,
    ) {
        let Some(app) = self.apps.get(&key) else { return };
        let now: Vec<Nid> = place.places.nids().collect();
        let seats = self.seats(agent, &place, &place.moved.born);
        let rebinding = Rebinding {
            directory: app.directory.clone(),
            groups: app.groups.clone(),
            trail: app.trail(&self.shepherds),
            parts,
            place,
            numa: self.numa.clone(),
            seating: Arc::clone(&app.seating),
            seats,
        };
        let (span, events) = (app.span.clone(), self.events.clone());
        self.leaving.spawn(async move {
            let done = tokio::task::spawn_blocking(move || {
                span.in_scope(|| {
                    let result = rebinding.carry_out();
                    let nids = format_nids(rebinding.place.places.nids());
                    match &result {
                        Ok(_) => tracing::info!(nids, "moved"),
                        Err(why) => tracing::warn!(nids, "not moved: {why}"),
                    }
                    result
                })
            });
            let result = done.await.unwrap_or_else(lost);
            let _ = events.send(TaskEvent::Rebound(key, now, result)).await;
        });
    }

    /// Says whether memory can be brought out, where that has changed: swap and disks come and go, and fill.
    pub(super) fn tell_roll_out(&self) {
        let now = self.roll_out();
        self.switching.tell(TurnEvent::ByCheckpoint(now == RollOut::ByCheckpoint));
        self.hello.send_if_modified(|hello| {
            let changed = hello.roll_out != now;
            hello.roll_out = now;
            changed
        });
    }

    /// Says with changes how long those have run who were stopped or let run, or were idle: psched knows what its plans
    /// say, and not who gave idle time to whom.
    pub(super) fn say_ran(&self, told: &mut Switches) {
        let now = monotonic_ns();
        let ran = |key: Key| {
            let meter = self.apps.get(&key)?.meter.as_ref()?;
            Some((key, Duration::from_nanos(meter.read().by(now))))
        };
        let mut of = told.changed();
        of.extend(told.idle.iter().map(|(key, _)| *key));
        told.ran.extend(of.into_iter().filter_map(ran));
    }

    /// What a found one has run, if it was ever stopped. While apinit was away nobody was stopped or
    /// let run.
    pub(super) fn found_ran(&self, key: Key) -> Option<u64> {
        let app = self.apps.get(&key)?;
        let (ran, at) = app.directory.ran()?;
        let frozen = app.groups.as_ref().is_some_and(|groups| groups.any_frozen());
        let since = if frozen { 0 } else { monotonic_ns().saturating_sub(at) };
        Some(ran.saturating_add(since))
    }

    /// Names the processes that keep gangs from being frozen: somebody may see to the file system that they
    /// wait for. Those that are in the same wait as when changes were told before; others come and go.
    pub(super) fn name_unfrozen(&mut self, told: &Switches) {
        let mut late: BTreeMap<Key, bool> = BTreeMap::new();
        for switch in &told.switches {
            for key in &switch.stopped {
                *late.entry(*key).or_default() |= switch.not_yet_frozen > 0;
            }
        }
        for (key, late) in late {
            let Some(app) = self.apps.get_mut(&key).filter(|app| late || !app.waits.is_empty())
            else {
                continue;
            };
            let left = app.groups.iter().flat_map(|groups| groups.left());
            let left = left.flat_map(|(nid, pid)| Wait::look(pid, nid));
            let before = std::mem::take(&mut app.waits);
            let mut named = Vec::new();
            for (thread, wait) in left {
                let same = before.get(&thread).and_then(|before| wait.clone().same(before));
                named.extend(same.as_ref().and_then(|wait| wait.words.clone()));
                app.waits.insert(thread, same.unwrap_or(wait));
            }
            let unfrozen = named.first().map(|first| match named.len() - 1 {
                0 => first.clone(),
                more => format!("{first} (and {more} more)"),
            });
            let subject = Subject::Unfrozen(key);
            let news = unfrozen.as_ref().filter(|text| self.notes.get(subject) != Some(text));
            if let Some(text) = news {
                app.span.in_scope(|| tracing::warn!("{text}"));
            }
            self.note(subject, unfrozen);
        }
    }

    /// Names an application for which the kernel works in turns of others.
    pub(super) fn name_overran(&mut self, key: Key, used: Duration) {
        let Some(app) = self.apps.get(&key) else { return };
        let text = format!(
            "the kernel has worked {} s for it in turns of other applications (a long system \
             call, io_uring): its own turns are shorter by that time",
            used.as_secs()
        );
        app.span.in_scope(|| tracing::warn!("{text}"));
        self.note(Subject::Overran(key), Some(text));
    }

    /// Tells how much memory applications have had at most, where that has grown.
    pub(super) fn tell_had(&mut self) {
        if let Some(had) = self.memory_had(false) {
            self.happens(Event::Turns(News::Switches(Box::new(had))));
        }
    }

    /// The memory that applications have had at most, where that has grown. With `all`, for a psched that has just
    /// come, that of each of them, and how long it has run.
    pub(super) fn memory_had(&mut self, all: bool) -> Option<Switches> {
        let (mut peaks, mut ran) = (Vec::new(), Vec::new());
        let now = monotonic_ns();
        for (key, app) in &mut self.apps {
            let Some(meter) = &app.meter else { continue };
            if all {
                ran.push((*key, Duration::from_nanos(meter.read().by(now))));
            }
            for (nid, had) in app.groups.iter().flat_map(|groups| groups.memory_had()) {
                let peak = app.peaks.entry(nid).or_default();
                if had > *peak || all {
                    *peak = had.max(*peak);
                    peaks.push((*key, nid, *peak));
                }
            }
        }
        let told = !peaks.is_empty() || !ran.is_empty();
        told.then(|| Switches { peaks, ran, ..Switches::default() })
    }
}
