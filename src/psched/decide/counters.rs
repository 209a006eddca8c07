//! How many events of each kind psched has heard, and how many effects of each kind it has decided.
//!
//! An administrator sees by them what a busy psched is busy with (`psmgr counters`): a node whose link comes
//! and goes, a front end that asks again and again, plans that are agreed on for ever.

use super::keeping::Record;
use super::{Effect, Event, News};
use std::collections::BTreeMap;

/// Counts since psched was started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Since when, in nanoseconds since the epoch; 0: nothing has been counted.
    pub since_ns: u64,
    /// Events, by kind.
    pub events: BTreeMap<&'static str, u64>,
    /// Effects, by kind.
    pub effects: BTreeMap<&'static str, u64>,
}

impl Event {
    /// Its kind, as it is counted.
    pub fn kind(&self) -> &'static str {
        of_event(self)
    }
}

impl Effect {
    /// Its kind, as it is counted.
    pub fn kind(&self) -> &'static str {
        of_effect(self)
    }
}

impl Counters {
    pub(super) fn event(&mut self, wall_ns: u64, event: &Event) {
        if self.since_ns == 0 {
            self.since_ns = wall_ns;
        }
        *self.events.entry(of_event(event)).or_default() += 1;
    }

    pub(super) fn effects(&mut self, effects: &[Effect]) {
        for effect in effects {
            *self.effects.entry(of_effect(effect)).or_default() += 1;
        }
    }
}

/// The kind of an event. Reports of nodes are of several.
fn of_event(event: &Event) -> &'static str {
    match event {
        Event::Posted { .. } => "posting",
        Event::Restarted { .. } => "posting of a checkpoint",
        Event::Looked { .. } => "look for a placement",
        Event::FrontGone { .. } => "end of a front end",
        Event::Kill { .. } => "apkill",
        Event::LinkOpened { .. } => "link opened",
        Event::Inventory { .. } => "inventory",
        Event::Foreign { .. } => "inventory of a foreign node",
        Event::Manage { .. } => "order: adopt, purge",
        Event::Nodes { .. } => "order: nodes",
        Event::Flavors { .. } => "order: flavors",
        Event::Hold { .. } => "order: hold, release",
        Event::Noted { .. } => "notes of a node",
        Event::Revoked { .. } => "certificate revoked",
        Event::LinkClosed { .. } => "link closed",
        Event::Report { report, .. } => report.kind(),
        Event::StoreRefused { .. } => "posting refused by the store",
        Event::RolledIn { .. } => "report: memory in (simulated)",
        Event::Migrate { .. } => "order: migrate",
        Event::Compact { .. } => "order: compact",
        Event::Tick => "time",
        Event::Settings(_) => "settings",
        Event::Machine(_) => "machine",
    }
}

/// The kind of an effect. Commands and records are of several.
fn of_effect(effect: &Effect) -> &'static str {
    match effect {
        Effect::Keep(record) => of_record(record),
        Effect::Log { .. } => "keep: event log",
        Effect::Accept { .. } => "answer: accepted",
        Effect::Refuse { .. } => "answer: refused",
        Effect::Look { .. } => "answer: placement",
        Effect::Killed { .. } => "answer: apkill",
        Effect::Managed { .. } => "answer: order",
        Effect::Command { command, .. } => command.kind(),
        Effect::RollIn { .. } => "memory in (simulated)",
        Effect::RollOut { .. } => "memory out (simulated)",
        Effect::Welcome { .. } => "link welcomed",
        Effect::RefuseLink { .. } => "link refused",
        Effect::CloseLink { .. } => "link closed",
        Effect::SignalFront { .. } => "tell: SIGUSR1",
        Effect::Tell { news: News::Placed, .. } => "tell: placed",
        Effect::Tell { news: News::Running, .. } => "tell: running",
        Effect::Tell { news: News::Retried { .. }, .. } => "tell: retried",
        Effect::Tell { news: News::Ended(_), .. } | Effect::TellEnd { .. } => "tell: ended",
        Effect::Warn(_) => "warning",
        Effect::Fault(_) => "fault",
    }
}

fn of_record(record: &Record) -> &'static str {
    match record {
        Record::Posted(_) => "keep: posting",
        Record::Adopted(_) => "keep: adopted application",
        Record::Update { .. } => "keep: application",
        Record::Log { .. } => "keep: event log",
        Record::Boot(..) => "keep: boot",
        Record::Nodes(..) => "keep: nodes",
        Record::Flavors(..) => "keep: flavors",
        Record::Variable { .. } => "keep: variable",
        Record::Change(_) => "keep: change",
        Record::Shares(_) => "keep: shares",
    }
}
